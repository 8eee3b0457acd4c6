#!/bin/sh
# Unpacks the texts of the tokenizer's benchmark beside it and runs it.
# usage: tokenizer.sh PROGRAM TOKENIZER_JSON [TEXT...]
program=$1 json=$2 dir=${1%/*}
shift 2
for f in gitenberg_children_2 wordnet_glosses; do
    xz -dc "tools/train/corpus/$f.txt.xz" | head -c 4000000 >"$dir/$f.txt"
done
xz -dc tests/data/corpus/promessi_sposi.txt.xz >"$dir/promessi_sposi.txt"
exec "$program" "${json%/*}/" "$dir/cache" "$dir/gitenberg_children_2.txt" "$dir/wordnet_glosses.txt" "$dir/promessi_sposi.txt" "$@"
