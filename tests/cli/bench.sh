#!/bin/sh
# lily bench: every form of its report, a synthetic model, peers, refusals. Nothing here depends on how fast it is.
. tests/cli/lib/check.sh
cat >"$tmp/peers.json" <<'END'
{"peers": [{"name": "other <engine>", "device": "cpu", "rows": [{"phase": "prefill", "context": 16, "tok_s": 50.5},
  {"phase": "decode", "context": 16, "tok_s": 7}]}, {"name": "elsewhere", "device": "cuda", "rows": []}]}
END
run bench --synthetic tiny --lengths 16,128 --steps 2 --fill 100 -v --peers "$tmp/peers.json" --csv "$tmp/b.csv" --markdown "$tmp/b.md" \
    --svg "$tmp/b.svg"
expect 'bench succeeds' is "$rc" 0
expect 'the table has both phases' test "$(printf '%s\n' "$out" | grep -cE '^(prefill|decode) +[0-9]+[ *] ')" -eq 3
expect 'the steps of each are told apart' test "$(printf '%s\n' "$out" | grep -cE '^(prefill|decode) [0-9]+, ms a token: .*experts [0-9]')" -eq 3
expect 'and the limits' has "$out" 'Gop/s ('
expect 'and the peers of the device' has "$out" 'other <engine>'
expect 'and no others' lacks "$out" elsewhere
expect 'a filled cache is marked' has "$out" 'cache filled from a seed'
run bench --synthetic tiny --lengths 16 --steps 1 --quick
expect 'no mark is explained that no row has' lacks "$out" 'cache filled'
expect 'CSV: a head and three rows' test "$(wc -l <"$tmp/b.csv")" -eq 4
expect 'Markdown: a table' test "$(grep -c '^|' "$tmp/b.md")" -eq 5
if [ "$have_python" ]; then
    expect 'SVG is well formed' python3 -c 'import sys, xml.dom.minidom as m; d = m.parse(sys.argv[1]); assert d.getElementsByTagName("polyline")' "$tmp/b.svg"
    expect 'CSV has as many cells in each row' python3 -c 'import sys, csv; r = list(csv.reader(open(sys.argv[1]))); assert {len(x) for x in r} == {15}, r' "$tmp/b.csv"
    run bench -m $TINY --lengths 20 --steps 2 --phase decode --quick --json
    expect 'bench --json' json 'set(v) == {"manifest","machine","model","rows"} and len(v["rows"]) == 1'
    expect 'bench --json: a row' json '{"phase","context","tokens","tok_s","spread","gb_s","floor_tok_s","share","final","note"} <= set(v["rows"][0]) and v["rows"][0]["phase"] == "decode" and v["rows"][0]["final"] is False'
    expect 'bench --json: manifest' json 'len(v["manifest"]["binary_sha256"]) == 64 and len(v["manifest"]["model_key"]) == 64'
    expect 'bench --json: the steps, also without -v' json '{"experts"} <= set(v["rows"][0]["step_ms"])'
    run bench --synthetic tiny --lengths 16 --steps 1 --quick
    expect 'without -v the table ends with its marks' lacks "$out" 'ms a token'
    expect 'and it is there' has "$out" '? not final'
    run bench --synthetic tiny --lengths 16 --steps 1 --quick --json --peers bench/peers.json
    expect 'the peers file of the tree is read' json '"llama.cpp Q4_0" in v["rows"][0]["peers"]'
else
    skip 'JSON and XML' 'no python3' 9
fi
run bench --synthetic tiny -m $TINY --lengths 16
expect 'two models' fails_with 2 'no --model beside it'
# A run over these lengths that is stopped after 3 seconds.
interrupted() {
    "$LILY" bench --synthetic demo "$@" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    sleep 3
    kill -INT $pid
    wait $pid
    rc=$? out=$(cat "$tmp/out") err=$(cat "$tmp/err")
}
interrupted --lengths 16K --rounds 15 --phase prefill
expect 'Ctrl-C before anything is measured' fails_with 130 'stopped before all was measured: there is no report'
interrupted --lengths 16,16K --phase prefill --quick
expect 'Ctrl-C later' fails_with 130 'stopped before all was measured'
expect 'what was measured is shown' has "$out" 'stopped after 1 of 1 rounds'
interrupted --lengths 16,16K --phase prefill --quick --json
expect 'as JSON, too' has "$out" '"note":"stopped after 1 of 1 rounds"'
expect 'with one value on its output' lacks "$out" '"error"'
run bench --synthetic tiny --lengths 12,x
expect 'no number in the list' fails_with 2 'is no list of lengths'
run bench --synthetic tiny --lengths 0
expect 'a length of 0' fails_with 2 'is no list of lengths'
run bench --synthetic tiny --lengths 512,
expect 'a length of nothing' fails_with 2 'is no list of lengths; expected numbers from 1 to 4M'
run bench --synthetic tiny --lengths 512,5M
expect 'a length beyond every model' fails_with 2 '5M tokens are too many; lengths go up to 4M'
run bench --synthetic tiny --lengths 1M
expect 'M is a unit of lengths, too' fails_with 2 "a context of 1048640 tokens: the model's limit is 32768"
run bench --synthetic tiny --phase sideways
expect 'no such phase' fails_with 2 'is no phase'
run bench --synthetic tiny --lengths 40K
expect 'past the context of the model' fails_with 2 "the model's limit is 32768"
run bench --synthetic 35b --lengths 128 --memory-limit 1G
expect 'and nothing is written for it' lacks "$err" 'writing'
expect 'a model that does not fit is refused with numbers' fails_with 1 'the model does not fit: 1'
printf '{"peers": [{"name": "x", "device": "cpu", "rows": [{"phase": "decode"}]}]}' >"$tmp/bad.json"
run bench --synthetic tiny --lengths 16 --peers "$tmp/bad.json"
expect 'a peer without numbers' fails_with 1 'a row needs phase'
summary
