#!/bin/sh
# lily pack: the same ids with and without a packed file, what a run takes and refuses, damage, the plan of lily info.
. tests/cli/lib/check.sh
ids() { run run -m "$1" --no-think --temp 0 -n 24 --json "$2" 'tell me a story' ; }
same_ids() { python3 -c 'import json, sys; a, b = (json.load(open(p))["ids"] for p in sys.argv[1:]); assert a == b and len(a) > 1, (a, b)' "$tmp/$1" "$tmp/$2"; }
keep() { cp "$tmp/out" "$tmp/$1"; }
for model in $TINY models/demo; do
    name=$(basename "$model")
    cp -r "$model" "$tmp/$name"
    ids "$tmp/$name" --packed=none && keep plain
    run pack "$tmp/$name"
    expect "pack $name" is "$rc" 0
    expect "pack $name says so" has "$out" ' MiB written in '
    file=$(ls "$tmp"/cache/lily/packed/*.lily)
    ids "$tmp/$name" --threads=1 && keep packed
    ids "$tmp/$name" --packed="$file" && keep named
    if [ "$have_python" ]; then
        expect "$name: the same ids from the packed file" same_ids plain packed
        expect "$name: and with its name given" same_ids plain named
    else
        skip "$name: the same ids" 'no python3' 2
    fi
    run pack "$tmp/$name"
    expect "$name: a second time there is nothing to do" has "$out" 'there already'
    [ "$name" = demo ] || rm -rf "$tmp/cache/lily/packed"
done
run info -m "$tmp/demo"
expect 'info names the packed file' has "$out" "$file"
run info -m "$tmp/demo" --packed none
expect 'info: --packed none' has "$out" 'none: weights are packed while loading'
run pack "$tmp/demo" --check
expect 'a good file passes the check' is "$rc" 0
run bench -m "$tmp/demo" --lengths 8 --steps 1 --quick --phase decode
expect 'bench says that it was packed' has "$out" 'from a packed file'

# Damage: named, set aside, not used.
printf damage | dd of="$file" bs=1 seek=9000000 conv=notrunc 2>/dev/null
run pack "$tmp/demo" --check
expect 'the check finds damage' fails_with 1 'is damaged between bytes'
ids "$tmp/demo" --threads=2 && keep hurt
expect 'a run names damage and goes on' has "$err" 'is damaged between bytes'
expect 'and sets the file aside' test -f "$file.damaged" -a ! -f "$file"
[ "$have_python" ] && { expect 'with the same ids' same_ids plain hurt || :; } || skip 'ids after damage' 'no python3'
cp "$file.damaged" "$tmp/bad.lily"
run run -m "$tmp/demo" --packed "$tmp/bad.lily" hi
expect 'a damaged file given by name ends the run' fails_with 1 'is damaged between bytes'

# Another checkpoint; a changed one.
run pack "$tmp/demo" --out "$tmp/demo/packed.lily"
expect 'pack --out' is "$rc" 0
expect 'who may read the folder may map the file' is "$(find "$tmp/demo/packed.lily" -perm "$(printf %o $((0666 & ~$(umask))))")" "$tmp/demo/packed.lily"
run info -m "$tmp/demo"
expect 'a packed.lily in the folder is found' has "$out" "$tmp/demo/packed.lily"
run run -m "$tmp/tiny" --packed "$tmp/demo/packed.lily" hi
expect 'the file of another model is refused' fails_with 2 'made from another checkpoint'
touch -d '2001-01-01' "$tmp/demo/model.safetensors"
run run -m "$tmp/demo" --no-think -n 2 hi
expect 'the file of a changed checkpoint is passed over' has "$err" 'before it changed'
run pack "$tmp/demo" --out "$tmp/demo/packed.lily"
expect 'pack makes it anew then' has "$out" 'written in'
# What --out names is not lost, unless it is a packed file.
cp models/demo/model.safetensors "$tmp/demo/model.safetensors"
run pack "$tmp/demo" --out "$tmp/demo/model.safetensors"
expect 'a checkpoint is not replaced by its packed file' fails_with 2 'no packed file: it is not replaced'
expect 'and stays as it was' cmp -s models/demo/model.safetensors "$tmp/demo/model.safetensors"
mkfifo "$tmp/fifo"
run pack "$tmp/demo" --out "$tmp/fifo"
expect 'nor is what is no file' fails_with 1 'not a regular file'
run pack "$tmp/demo" --out /dev/null/x
expect 'no folder to write to' fails_with 1 '/dev/null'
run pack "$tmp/none"
expect 'no such model' fails_with 1 'none'
summary
