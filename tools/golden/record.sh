#!/bin/sh
# Makes every golden of tests/data again: tools/golden/record.sh [VENV]. See README.md beside it.
# VENV (default build/venv-golden) is made and filled from requirements.txt where it does not exist.
set -eu
cd "$(dirname "$0")/../.."
venv=${1:-build/venv-golden}
if [ ! -x "$venv/bin/python" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q -r tools/golden/requirements.txt
fi
run() {
    tool=$1
    shift
    echo "== $tool $*"
    PYTHONDONTWRITEBYTECODE=1 TRANSFORMERS_VERBOSITY=error "$venv/bin/python" "tools/golden/$tool.py" "$@"
}
data=tests/data
run vectors $data/vectors.json
run check_quant $data/quant
run make_tiny $data/templates $data/tiny
run golden_tiny $data/tiny
run golden_tiny_mlx $data/tiny-mlx
run tokenizer_forms $data/tokenizer/forms
run corpora ids
run corpora check
run templates $data/templates
if [ -f models/demo/model.safetensors ]; then
    run demo_golden models/demo $data/demo/golden.safetensors
    run eval_reference models/demo $data/demo/golden.safetensors models/demo/reference.safetensors
else
    echo "== models/demo/model.safetensors is not here: demo goldens left as they are"
fi
git status --short $data models
