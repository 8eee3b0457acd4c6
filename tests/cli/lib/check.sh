# Checks for the scripts of this folder; sourced. Every script ends with `summary`.
#   run [-i TEXT] ARGS...      runs lily; $out, $err, $rc are what came of it (files in $tmp for exact bytes: out, err)
#   expect NAME CONDITION...   one test: the condition (a command) must hold
#   json EXPRESSION            true when $tmp/out is one JSON value v for which the Python expression holds
LILY=${LILY:-./lily}
TINY=tests/data/tiny
passed=0 failed=0 skipped=0
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
# Nothing of the person who runs the tests plays a part.
export HOME="$tmp/home" XDG_CACHE_HOME="$tmp/cache" XDG_STATE_HOME="$tmp/state"
unset LILY_MODEL HF_HOME HF_HUB_CACHE NO_COLOR
mkdir -p "$HOME"

run() {
    if [ "$1" = -i ]; then
        printf '%s' "$2" >"$tmp/in"
        shift 2
    else
        : >"$tmp/in"
    fi
    "$LILY" "$@" <"$tmp/in" >"$tmp/out" 2>"$tmp/err"
    rc=$?
    out=$(tr -d '\000' <"$tmp/out") err=$(cat "$tmp/err")
}

expect() {
    what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        return 0
    fi
    failed=$((failed + 1))
    echo "FAIL $what: $*"
    echo "  status $rc"
    printf '%s\n' "$out" | head -c 2000 | sed 's/^/  out: /'
    printf '%s\n' "$err" | head -c 2000 | sed 's/^/  err: /'
    return 1
}

skip() {
    echo "SKIP $1: $2"
    skipped=$((skipped + ${3:-1}))
}

has() { case $1 in *"$2"*) true ;; *) false ;; esac; }
lacks() { ! has "$1" "$2"; }
is() { [ "$1" = "$2" ]; }

# One line on stderr says what is wrong, a second one may hint; the status is as given.
fails_with() {
    [ "$rc" -eq "$1" ] && has "$err" "$2" && [ "$(printf '%s\n' "$err" | grep -c '^lily: ')" -eq 1 ] &&
        [ "$(printf '%s\n' "$err" | grep -vc '^lily: \|^hint: ')" -eq 0 ]
}

have_python=$(command -v python3)
json() {
    python3 -c '
import json, sys
text = open(sys.argv[1], encoding="utf-8").read()
v = json.loads(text, parse_constant=lambda c: sys.exit("not JSON: " + c))
assert text.endswith("\n") and text.count("\n") == 1, "not one line"
sys.exit(0 if eval(sys.argv[2]) else 1)' "$tmp/out" "$1"
}

summary() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}
