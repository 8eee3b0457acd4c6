#!/bin/sh
# lily run --prompt-cache on the tiny checkpoint: the same answer, less read; other models, damage, files that are not ours.
. tests/cli/lib/check.sh
file=$tmp/prompt.cache
long='Once there was a fox who lived at the edge of a dark wood, and every evening she walked down to the river to look at the moon. '
long="$long$long$long"

# The words of --json's usage line on stderr are for people; -v says "N cached, M computed" there.
ask() { run run -m $TINY --ctx 2048 --no-think --temp 0 -n 6 -v --prompt-cache "$file" "$@"; }
computed() { sed -n 's/.*cached, \([0-9]*\) computed.*/\1/p' "$tmp/err" | head -n 1; }

run run -m $TINY --ctx 2048 --no-think --temp 0 -n 6 "$long"
plain=$out
ask "$long"
expect 'the first run: status' is "$rc" 0
expect 'the first run: the answer' is "$out" "$plain"
expect 'the first run leaves the file' test -s "$file"
expect 'the file is the user'"'"'s alone' is "$(stat -c %a "$file")" 600
ask "$long"
expect 'the second run: the answer' is "$out" "$plain"
expect 'the second run reads at most a grid step' grep -q ' cached' "$tmp/err"
ask -s "$long" 'Who are you?'
ask -s "$long" 'Say more.'
said=$out
run run -m $TINY --ctx 2048 --no-think --temp 0 -n 6 -s "$long" 'Say more.'
expect 'another question behind the same system prompt: the answer' is "$said" "$out"

cp "$file" "$tmp/good"
size=$(stat -c %s "$file")
for at in 20 300 $((size / 2)) $((size - 3)); do
    cp "$tmp/good" "$file"
    printf '\377\125' | dd of="$file" bs=1 seek="$at" conv=notrunc 2>/dev/null
    ask -s "$long" 'Say more.'
    expect "damage at $at: status" is "$rc" 0
    expect "damage at $at: the answer" is "$out" "$said"
done
expect 'damage is named' has "$err" 'set aside'
expect 'and the file set aside' test -s "$file.damaged"
cp "$tmp/good" "$file"
dd of="$file" bs=1 seek=$((size - 1)) count=0 2>/dev/null
ask -s "$long" 'Say more.'
expect 'a missing byte is named' has "$err" 'set aside'
expect 'a missing byte: the answer' is "$out" "$said"

cp "$tmp/good" "$file"
run run -m $TINY --ctx 2048 --no-think --temp 0 -n 6 --kv f32 --prompt-cache "$file" -s "$long" 'Say more.'
expect 'another type: status' is "$rc" 0
expect 'another type: said' has "$err" 'another model, build or device'
echo 'my notes' >"$tmp/notes"
run run -m $TINY --prompt-cache "$tmp/notes" hi
expect 'a file that is no cache: status' is "$rc" 2
expect 'a file that is no cache stays' is "$(cat "$tmp/notes")" 'my notes'
run run -m $TINY --ctx 2048 --no-think --temp 0 -n 1 --prompt-cache "$tmp/short" hi
expect 'a prompt too short to keep: status' is "$rc" 0
expect 'a prompt too short to keep' has "$err" 'nothing to keep'
run run -m $TINY --ctx 2048 --no-think --temp 0 -n 6 --prompt-cache "$tmp/no/such/folder" "$long"
expect 'a folder that is not there: the answer' is "$out" "$plain"
expect 'a folder that is not there: said' has "$err" 'not kept'
summary
