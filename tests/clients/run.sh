#!/bin/sh
# The real SDKs against lily serve: Python's, locked by hash, and JavaScript's, locked by package-lock.json; and huggingface_hub
# beside lily pull. Needs the package registries; what cannot be fetched is skipped aloud. The packages go to build/clients.
dir=build/clients
mkdir -p "$dir"
total_passed=0 total_failed=0 total_skipped=0
# add LOG STATUS: adds a closing line.
add() {
    grep -aE '^(FAIL|SKIP)' "$1"
    line=$(grep -aE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$1" | tail -n 1 | tr -d ,)
    [ -n "$line" ] || { tail -n 20 "$1"; line='0 passed 1 failed 0 skipped'; }
    set -- $line
    total_passed=$((total_passed + $1)) total_failed=$((total_failed + $3)) total_skipped=$((total_skipped + $5))
}
skip() {
    echo "SKIP $1"
    total_skipped=$((total_skipped + 1))
}

if python3 -m venv "$dir/venv" >"$dir/pip.log" 2>&1 &&
    "$dir/venv/bin/pip" install -q --require-hashes -r tests/clients/requirements.txt >>"$dir/pip.log" 2>&1; then
    "$dir/venv/bin/python" tests/clients/sdk.py >"$dir/python.log" 2>&1
    add "$dir/python.log"
else
    skip "clients: the Python SDKs cannot be installed: $(tail -n 1 "$dir/pip.log")"
fi

# huggingface_hub and lily pull share a cache; a hub of our own serves both.
if python3 -m venv "$dir/venv-hub" >"$dir/pip-hub.log" 2>&1 &&
    "$dir/venv-hub/bin/pip" install -q --require-hashes -r tests/clients/requirements_hub.txt >>"$dir/pip-hub.log" 2>&1; then
    "$dir/venv-hub/bin/python" tests/clients/hub.py >"$dir/hub.log" 2>&1
    add "$dir/hub.log"
else
    skip "clients: huggingface_hub cannot be installed: $(tail -n 1 "$dir/pip-hub.log")"
fi

version=$(node --version 2>/dev/null | tr -dc 0-9. | cut -d. -f1)
if [ "${version:-0}" -lt 20 ]; then
    skip "clients: the JavaScript SDKs need node 20 or later, found ${version:-none}"
else
    mkdir -p "$dir/node" && cp tests/clients/package.json tests/clients/package-lock.json "$dir/node/"
    if (cd "$dir/node" && npm ci --ignore-scripts --no-audit --no-fund) >"$dir/npm.log" 2>&1; then
        python3 tests/clients/sdk_node.py "$dir/node" >"$dir/node.log" 2>&1
        add "$dir/node.log"
    else
        skip "clients: the JavaScript SDKs cannot be installed: $(tail -n 1 "$dir/npm.log")"
    fi
fi
echo "$total_passed passed, $total_failed failed, $total_skipped skipped"
[ "$total_failed" -eq 0 ]
