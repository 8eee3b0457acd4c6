#!/bin/sh
# Installs with apt what is missing of the given groups of mk/packages.txt, after saying what that is. Does nothing, and
# needs no rights, when everything is there.
# usage: packages.sh GROUP...
cd "$(dirname "$0")/.." || exit 1
table=mk/packages.txt

say() { echo "lily: $*"; }

id='' version='' like=''
if [ -r /etc/os-release ]; then
    id=$(. /etc/os-release && echo "$ID")
    version=$(. /etc/os-release && echo "${VERSION_ID:-}")
    like=" $(. /etc/os-release && echo "${ID_LIKE:-}") "
fi
case "$id $version" in
'debian 12') column=2 ;;
'ubuntu 24.04') column=3 ;;
*)
    column=2
    case " $id $like" in *' ubuntu '*) column=3 ;; esac
    ;;
esac

# The names of the groups, in the column of this system, but for those whose command is there from another source.
names=$(for g in "$@"; do awk -v g="$g" -v c=$column '$1 == g {print $c, $4}' $table; done | sort -u |
    while read -r name provides; do
        [ -n "$provides" ] && command -v "$provides" >/dev/null || echo "$name"
    done)

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    # Not a Debian: go on when the build's needs are there all the same, else say what they are.
    if command -v "${CC:-gcc}" >/dev/null && command -v make >/dev/null &&
        pkg-config --exists libpcre2-8 libutf8proc libcrypto libxxhash 2>/dev/null; then
        say "this system has no apt; what the build needs is there"
        exit 0
    fi
    say "this system (${id:-unknown} $version) has no apt, and something is missing. By their Debian names, lily needs:"
    echo $names
    say "install your system's packages of these, then run: make"
    exit 1
fi

missing=''
for p in $names; do
    case $(dpkg-query -W -f '${Status}' "$p" 2>/dev/null) in
    'install ok installed') ;;
    *) missing="$missing $p" ;;
    esac
done
if [ -z "$missing" ]; then exit 0; fi

case "$id $version" in
'debian 12') ;;
*) say "this is $id $version; lily is tested on Debian 12 only, the package names are a guess" ;;
esac
as_root=''
if [ "$(id -u)" -ne 0 ]; then
    as_root='sudo'
    if ! command -v sudo >/dev/null; then
        say "these packages are missing, and only root can install them:$missing"
        say "as root, run: apt-get install$missing"
        exit 1
    fi
fi
say "installing with ${as_root:+$as_root }apt-get:$missing"

install() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
}
# The lists of a fresh machine are empty, those of an old one may be stale: update only when the names do not resolve or
# the files are gone.
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
if ! install >"$log" 2>&1; then
    say "updating the package lists"
    if ! $as_root apt-get update -q >>"$log" 2>&1 || ! install >>"$log" 2>&1; then
        tail -n 30 "$log"
        say "the packages could not be installed; the output above says why"
        exit 1
    fi
fi
