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
refused 'an empty config' config.json
copy llama
echo '{"model_type":"llama","hidden_size":64,"num_hidden_layers":4}' >"$dir/config.json"
refused 'a llama config' config.json llama
copy notokenizer
rm "$dir/tokenizer.json"
refused 'no tokenizer' tokenizer
copy badtokenizer
echo '{' >"$dir/tokenizer.json"
refused 'a broken tokenizer' tokenizer.json
copy dtype
sed -i 's/"dtype":"U32"/"dtype":"I32"/' "$dir/model-00001-of-00002.safetensors"
refused 'a wrong dtype' I32
copy escape
printf '{"model_type":"\\u001b[2Jllama"}' >"$dir/config.json"
run run -m "$dir" hi
expect 'a hostile name: refused' fails_with 1 config.json
expect 'a hostile name: no escape sequence' lacks "$err" "$(printf '\033')"
run run -m $TINY hi --memory-limit 1M
expect 'too little memory' fails_with 1 'does not fit'
run run -m $TINY hi --device cuda
expect 'no CUDA' fails_with 1 'no CUDA backend'
run run -m $TINY hi --ctx 64 -s "$(head -c 300 /dev/zero | tr '\0' x)"
expect 'a prompt past the context' fails_with 1 'context'
run -i '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}' run -m $TINY --messages -
expect 'an image' fails_with 1 'messages[0].content[0]'

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
HF_HUB_CACHE=$hub LILY_MODEL=$tmp/nowhere run info -m $TINY
expect '-m wins' is "$rc" 0
expect '-m says nothing' is "$err" ''

if [ -n "$have_python" ]; then
    run run -m "$tmp/nowhere" hi --json
    expect 'as JSON: status' is "$rc" 1
    expect 'as JSON' json 'set(v) == {"error"} and set(v["error"]) == {"message","hint"} and "nowhere" in v["error"]["message"]'
else
    skip 'errors as JSON' 'no python3' 2
fi
summary
