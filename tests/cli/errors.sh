#!/bin/sh
# Bad model folders: status 1 and one line that names the cause.
. tests/cli/lib/check.sh

# copy NAME: a copy of the tiny checkpoint in $dir
copy() {
    dir=$tmp/$1
    cp -r $TINY "$dir" && chmod -R u+w "$dir"
}
# refused NAME WORDS...: running on $dir fails, and the line has the words
refused() {
    name=$1
    shift
    run run -m "$dir" hi
    for word in "$@"; do
        expect "$name: names $word" fails_with 1 "$word"
    done
    expect "$name: nothing on stdout" is "$out" ''
}

dir=$tmp/nowhere
refused 'no folder' 'nowhere: there is no such folder'
dir=$tmp/a.gguf
: >"$dir"
refused 'a file in place of a folder' 'a.gguf: is a file, expected a model folder'
printf 'lilypack and more' >"$tmp/a.packed"
dir=$tmp/a.packed
refused 'a packed file' 'a.packed: is a packed file' "hint: name the folder that it was made from, too: -m DIR --packed $tmp/a.packed"
mkdir -p "$tmp/hub/models--a/snapshots"
cp -r $TINY "$tmp/hub/models--a/snapshots/1"
dir=$tmp/hub/models--a
refused 'a folder around a model' 'models--a: holds no config.json' "hint: models are inside: -m $dir/snapshots/1"
run pack "$dir"
expect 'a folder around a model: pack' fails_with 1 'holds no config.json'
rm -r "$tmp/hub"
mkdir "$tmp/empty"
dir=$tmp/empty
refused 'an empty folder' config.json
copy shard
rm "$dir/model-00002-of-00002.safetensors"
refused 'a missing shard' model-00002-of-00002.safetensors
copy cut
head -c 300000 $TINY/model-00001-of-00002.safetensors >"$dir/model-00001-of-00002.safetensors"
refused 'a truncated shard' model-00001-of-00002.safetensors
copy hole
: >"$dir/model-00002-of-00002.safetensors"
refused 'an empty shard' model-00002-of-00002.safetensors
copy noconfig
: >"$dir/config.json"
refused 'an empty config' config.json 'the file is empty: copy or download it again'
copy cutconfig
head -c 100 $TINY/config.json >"$dir/config.json"
refused 'a cut config' config.json 'the file is cut short'
copy llama
echo '{"model_type":"llama","hidden_size":64,"num_hidden_layers":4}' >"$dir/config.json"
refused 'a llama config' config.json llama 'lily runs Qwen3.6-35B-A3B'
copy notokenizer
rm "$dir/tokenizer.json"
refused 'no tokenizer' tokenizer
copy badtokenizer
echo '{' >"$dir/tokenizer.json"
refused 'a broken tokenizer' tokenizer.json
copy hollow
: >"$dir/tokenizer.json"
refused 'an empty tokenizer' tokenizer.json 'the file is empty'
copy cuttokenizer
head -c 100 $TINY/tokenizer.json >"$dir/tokenizer.json"
refused 'a cut tokenizer' tokenizer.json 'the file is cut short'
# A link whose file is gone is no file that was left out.
for file in generation_config.json tokenizer_config.json chat_template.jinja; do
    copy "broken-$file"
    ln -sf nowhere "$dir/$file"
    refused "a broken link as $file" "$file" 'No such file'
done
copy dtype
sed -i 's/"dtype":"U32"/"dtype":"I32"/' "$dir/model-00001-of-00002.safetensors"
refused 'a wrong dtype' I32
if [ -n "$have_python" ]; then
    # poison NAME BYTES: every two bytes of the tensor become these
    poison() {
        python3 -c 'import json,sys
path, name, two = sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3])
with open(path, "r+b") as f:
    n = int.from_bytes(f.read(8), "little")
    begin, end = json.loads(f.read(n))[name]["data_offsets"]
    f.seek(8 + n + begin)
    f.write(two * ((end - begin) // 2))' "$dir/model-00002-of-00002.safetensors" "language_model.$1" "$2"
    }
    copy infinite
    poison lm_head.biases 807f
    refused 'infinite biases' 'not finite' 'logit of token'
    copy nan
    poison lm_head.scales c0ff
    refused 'scales that are no numbers' 'not finite'
else
    skip 'poisoned weights' 'no python3' 5
fi
run run -m '' hi
expect 'a model without a name' fails_with 2 '--model'
long=$(printf '%0700d' 0)
run run -m "$long" hi
expect 'a name of 700 letters: what is wrong with it' fails_with 1 '000: there is no such folder'
expect 'a name of 700 letters: is shortened' has "$err" '000...000'
run eval -m $TINY "$long"
expect 'a file of 700 letters' fails_with 1 '000: cannot open: File name too long'
copy escape
printf '{"model_type":"\\u001b[2Jllama"}' >"$dir/config.json"
run run -m "$dir" hi
expect 'a hostile name: refused' fails_with 1 config.json
expect 'a hostile name: no escape sequence' lacks "$err" "$(printf '\033')"
run run -m $TINY hi --memory-limit 1M
expect 'too little memory' fails_with 1 'does not fit'
expect 'too little memory: the hint' has "$err" 'at least'
run serve -m models/demo --memory-limit 100M --ctx 16K --cache-ram 32M --parallel 3
expect 'too little memory for several' fails_with 1 'kv of 3 x 16384 tokens'
expect 'too little memory for several: the hint' has "$err" 'hint: lower --ctx or --parallel, free'
# What can be told without the model is told before it is looked for.
for host in 127.0.0.1:9 localhost:80 '[::1]:80' '[::1]' http://localhost; do
    run serve -m "$tmp/nowhere" --host "$host"
    expect "--host $host" fails_with 2 "serve: --host: \"$host\" is no address"
    expect "--host $host: the hint" has "$err" 'hint: --port takes the port'
done
for key in '' --api-key=k; do
    run serve -m "$tmp/nowhere" --host no-such-host.invalid $key
    expect "an unknown --host${key:+ with a key}" fails_with 2 'serve: --host: "no-such-host.invalid" is no address'
done
run serve -m "$tmp/nowhere" --host ::1
expect '--host ::1 is an address' fails_with 1 'nowhere'
mkdir -m 555 "$tmp/closed"
as=
[ ! -w "$tmp/closed" ] || { chmod 711 "$tmp" && as='setpriv --reuid 65534 --clear-groups'; } # nothing is closed to root
if $as "$LILY" --version >"$tmp/out" 2>&1; then
    $as "$LILY" serve -m "$tmp/nowhere" --cache-dir "$tmp/closed" >"$tmp/out" 2>"$tmp/err"
    rc=$? out= err=$(cat "$tmp/err")
    expect 'a cache folder that is closed' fails_with 1 'closed: cannot write into the folder'
else
    skip 'a cache folder that is closed' 'root, and nobody else may run lily here'
fi
run run -m models/demo hi --ctx 100K
expect 'a context beyond the model' fails_with 2 "the model's limit is 65536"
expect 'a context beyond the model: the hint' has "$err" 'hint: give --ctx 65536 or less'
run bench -m models/demo --lengths 64K
expect 'lengths beyond the model' fails_with 2 "the model's limit is 65536"
expect 'lengths beyond the model: the hint' has "$err" 'hint: give shorter --lengths'
run bench -m models/demo --lengths 32K --memory-limit 32M
expect 'lengths that do not fit' fails_with 1 'does not fit'
expect 'lengths that do not fit: the hint' has "$err" 'hint: give shorter --lengths, free'
run run -m $TINY hi --ctx 64 -s "$(head -c 300 /dev/zero | tr '\0' x)"
expect 'a prompt past the context' fails_with 1 'context'
expect 'a prompt past the context: the hint' has "$err" 'hint: shorten the prompt or raise --ctx'
run -i "$(head -c 70000 /dev/zero | tr '\0' '\n' | sed 's/^/x./')" run -m $TINY --ctx 64
expect 'a prompt past the model' fails_with 1 'the context holds 64'
expect 'a prompt past the model: no --ctx helps' has "$err" "hint: shorten the prompt: the model's own limit is 32768 tokens"
run -i '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}' run -m $TINY --messages -
expect 'an image' fails_with 1 'messages[0].content[0]'

# Limits of the process.
head -c 6000 README.md >"$tmp/long"
(ulimit -S -s 512; "$LILY" run -m models/demo --ctx 4096 --threads 2 --max-tokens 1 --no-think - <"$tmp/long" >"$tmp/out" 2>"$tmp/err"; echo "status $?" >>"$tmp/out")
expect 'a stack too small for kernels is raised' has "$(cat "$tmp/out")" 'status 0'
rm -rf "$XDG_CACHE_HOME"
(ulimit -f 1; "$LILY" tokenize -m $TINY hi 2>"$tmp/err" | cat >"$tmp/out"; exit "$?")
err=$(cat "$tmp/err") out=$(cat "$tmp/out")
expect 'no room for the tokenizer cache: the answer' has "$out" '"h"'
expect 'no room for the tokenizer cache: said' has "$err" 'not kept'
expect 'no room for the tokenizer cache: nothing left behind' is "$(find "$XDG_CACHE_HOME" -type f)" ''
head -c 10000000 /dev/zero | tr '\0' a >"$tmp/long"
(ulimit -v 250000; "$LILY" tokenize -m $TINY <"$tmp/long" 2>"$tmp/err" >"$tmp/out")
rc=$? err=$(cat "$tmp/err") out=$(cat "$tmp/out")
expect 'no memory for the tokens of a text' fails_with 1 'not enough memory'
expect 'no memory for the tokens of a text: one line' is "$(wc -l <"$tmp/err")" 1
rm "$tmp/long"
"$LILY" help >&- 2>"$tmp/err"
rc=$? err=$(cat "$tmp/err")
expect 'stdout closed' fails_with 1 'cannot write to stdout'
"$LILY" tokenize -m $TINY <&- >"$tmp/out" 2>"$tmp/err"
rc=$? err=$(cat "$tmp/err")
expect 'stdin closed' fails_with 1 'cannot read stdin'

# Which model, when none is named: the line on stderr says.
dir=$tmp/home/.none
LILY_MODEL=$TINY run info
expect 'LILY_MODEL' is "$rc" 0
expect 'LILY_MODEL is said' has "$err" 'LILY_MODEL'
hub=$tmp/hub
mkdir -p "$hub/models--a--old/snapshots/1" "$hub/models--b--new/snapshots/2" "$hub/models--c--other/snapshots/3"
cp $TINY/* "$hub/models--a--old/snapshots/1"
cp $TINY/* "$hub/models--b--new/snapshots/2"
echo '{"model_type":"llama"}' >"$hub/models--c--other/snapshots/3/config.json"
touch -d '2020-01-01' "$hub/models--a--old/snapshots/1"
touch -d '2021-01-01' "$hub/models--b--new/snapshots/2"
HF_HUB_CACHE=$hub run info
expect 'the newest pulled model' is "$rc" 0
expect 'the newest pulled model is said' has "$err" 'models--b--new/snapshots/2'
rm "$hub/models--b--new/snapshots/2/model-00002-of-00002.safetensors"
touch -d '2021-01-01' "$hub/models--b--new/snapshots/2"
HF_HUB_CACHE=$hub run info
expect 'a download that is half done is not taken' has "$err" 'models--a--old/snapshots/1'
HF_HUB_CACHE=$hub run info -m a/old
expect 'a pulled model by its name' has "$err" 'models--a--old/snapshots/1 (pulled)'
HF_HUB_CACHE=$hub run info -m a/old@2
expect 'no such revision of it' fails_with 1 'a/old@2: there is no such folder, and what was pulled of that name is no whole model'
expect 'no such revision of it: the hint' has "$err" 'hint: lily pull a/old@2 fetches what is missing'
for c in 'run -m' 'info -m' 'bench -m' pack; do
    HF_HUB_CACHE=$hub run $c a/none
    [ "$c" != 'run -m' ] || HF_HUB_CACHE=$hub run run -m a/none hi
    expect "$c: not pulled" fails_with 1 'a/none: there is no such folder, and no such model was pulled'
    expect "$c: not pulled: the hint" has "$err" 'hint: lily pull a/none fetches it'
done
HF_HUB_CACHE=$hub run run -m models/dem hi
expect 'a mistyped path below a folder' has "$err" 'hint: lily list shows the models that are here'
HF_HUB_CACHE=$hub LILY_MODEL=a/none run run hi
expect '$LILY_MODEL that was not pulled' has "$err" 'hint: lily pull a/none fetches it'
HF_HUB_CACHE=$hub run pack a/old
expect 'pack takes a pulled model by its name, too' is "$rc" 0
commit=0123456789abcdef0123456789abcdef01234567
cp -r "$hub/models--a--old/snapshots/1" "$hub/models--a--old/snapshots/$commit"
mkdir -p "$hub/models--a--old/refs" && printf %s $commit >"$hub/models--a--old/refs/v2"
HF_HUB_CACHE=$hub run info -m a/old@v2
expect 'a revision by its name' has "$err" "snapshots/$commit (pulled)"
rm -r "$hub/models--a--old/snapshots/$commit" "$hub/models--a--old/refs"
HF_HUB_CACHE=$hub LILY_MODEL=$tmp/nowhere run info -m $TINY
expect '-m wins' is "$rc" 0
expect '-m says nothing' is "$err" ''

if [ -n "$have_python" ]; then
    run run -m "$tmp/nowhere" hi --json
    expect 'as JSON: status' is "$rc" 1
    expect 'as JSON' json 'set(v) == {"error"} and set(v["error"]) == {"message","hint"} and "nowhere" in v["error"]["message"]'

    # A shard that shrinks while it is read; loading is sometimes over before it does.
    i=0 rc=0
    while [ "$rc" -eq 0 ] && [ $i -lt 20 ]; do
        rm -rf "$tmp/shrinks"
        cp -r models/demo "$tmp/shrinks" && chmod -R u+w "$tmp/shrinks"
        python3 tests/cli/lib/shrink.py "$tmp/shrinks" model.safetensors "$LILY" run -m "$tmp/shrinks" --json -n 1 hi >"$tmp/out" 2>"$tmp/err"
        rc=$? out=$(cat "$tmp/out") err=$(cat "$tmp/err")
        i=$((i + 1))
    done
    expect 'a shard that shrinks' fails_with 1 'became shorter'
    expect 'a shard that shrinks: as JSON' json 'set(v) == {"error"} and "became shorter" in v["error"]["message"]'
else
    skip 'errors as JSON' 'no python3' 4
fi

run run -m models/demo --messages /dev/null
expect 'a device as a file' fails_with 1 '/dev/null: not a regular file'
expect 'a device as a file: the hint' has "$err" 'hint: the name - stands for stdin'

# What is no text is named with the place where it ends to be one, wherever text comes in.
binary() {
    expect "no UTF-8: $1" fails_with 1 "$2"
    expect "no UTF-8: $1: nothing on stdout" is "$out" ''
}
latin=$(printf 'caf\351 au lait')
run -i "$latin" run -m $TINY -n 2
binary 'stdin' 'stdin is no UTF-8 text: the byte 0xe9 at offset 3'
expect 'no UTF-8: the hint' has "$err" 'hint: lily reads text only; iconv'
run -i "$latin" run -m $TINY -n 2 'What is this?'
binary 'stdin behind a prompt' 'stdin is no UTF-8 text: the byte 0xe9 at offset 3'
run -i "$latin" run -m $TINY -n 2 --raw
binary 'stdin without a template' 'stdin is no UTF-8 text: the byte 0xe9 at offset 3'
run run -m $TINY -n 2 "$latin"
binary 'a prompt' 'PROMPT is no UTF-8 text: the byte 0xe9 at offset 3'
run run -m $TINY -n 2 -s "$latin" hi
binary 'a system prompt' '--system is no UTF-8 text'
run -i hi chat -m $TINY -n 2 -s "$latin"
binary 'a system prompt of a chat' '--system is no UTF-8 text'
run -i "$latin" tokenize -m $TINY
binary 'tokenize' 'stdin is no UTF-8 text'
run tokenize -m $TINY "$latin"
binary 'tokenize TEXT' 'TEXT is no UTF-8 text'
printf '[{"role":"user","content":"%s"}]' "$latin" >"$tmp/latin"
run run -m $TINY -n 2 --messages "$tmp/latin"
binary 'messages' "$tmp/latin is no UTF-8 text: the byte 0xe9 at offset 30"
run template -m $TINY "$tmp/latin"
binary 'template' "$tmp/latin is no UTF-8 text"
run eval -m $TINY "$tmp/latin"
binary 'eval' "$tmp/latin is no UTF-8 text"
run -i "$(printf 'na\303')" run -m $TINY -n 2
binary 'cut' 'stdin ends inside a UTF-8 character, which begins at byte offset 2'
run -i "$(printf 'caf\303\251')" run -m $TINY -n 2 --no-think
expect 'UTF-8 is taken' is "$rc" 0
printf 'hello there\n%s\n/system %s\nhello there\n' "$latin" "$latin" >"$tmp/in"
"$LILY" chat -m $TINY --no-think --temp 0 -n 6 <"$tmp/in" >"$tmp/out" 2>"$tmp/err"
rc=$? out=$(cat "$tmp/out") err=$(cat "$tmp/err")
expect 'no UTF-8: lines of a chat are refused' is "$(grep -cE 'the (message|system prompt) is no UTF-8 text: the byte 0xe9 at offset 3' "$tmp/err")" 2
expect 'no UTF-8: other lines are answered' is "$(wc -l <"$tmp/out")" 2
expect 'no UTF-8: a chat fails with its last failure' is "$rc" 1

# Memory that a large input lacks: one line, status 1. (The program itself takes 20 to 30 MB of addresses.)
yes 'Some words, again and again.' | head -c 10000000 >"$tmp/long.txt"
{ printf '[{"role": "user", "content": "' && head -c 9999999 "$tmp/long.txt" | tr '\n' ' ' && printf '"}]'; } >"$tmp/long.json"
{ printf '[{"role": "user", "content": ""}' && yes ',{"role": "user", "content": ""}' | head -n 300000 && printf ']'; } >"$tmp/many.json"
# starved KB WORDS...: lily with these words, that much memory, and the long text on stdin
starved() {
    kb=$1
    shift
    (ulimit -v "$kb" && exec "$LILY" "$@") <"$tmp/long.txt" >"$tmp/out" 2>"$tmp/err"
    rc=$? out=$(head -c 1000 "$tmp/out") err=$(grep -v '^lily: model: ' "$tmp/err")
    expect "little memory: $*" fails_with 1 'not enough memory'
    expect "little memory: $*: one line" is "$(echo "$err" | wc -l)" 1
}
starved 60000 run -m models/demo
starved 40000 run -m models/demo --messages "$tmp/long.json"
starved 60000 run -m models/demo --messages "$tmp/many.json"
starved 40000 template -m models/demo "$tmp/long.json"
starved 60000 tokenize -m models/demo --json

# A plan is printed before the weights are there; what is missing is said.
mkdir "$tmp/half" && cp models/demo/*.json models/demo/*.jinja "$tmp/half/"
run info -m "$tmp/half"
expect 'info without weights: the plan' is "$rc" 0
expect 'info without weights: what is missing' has "$err" 'a run of this model would fail'
run info -m models/demo
expect 'info of a whole model warns of nothing' is "$err" ''
summary
