#!/bin/sh
# From a fresh clone to a tested build: installs what the tests need (Debian, Ubuntu), then runs `make check`. The last line
# is "N passed, N failed, N skipped".
set -e
usage() {
    cat <<'END'
usage: ./check.sh
Installs the packages that the tests need (Debian, Ubuntu; with apt, through sudo
only where you are not root), builds lily and runs its tests: about 6 minutes on
two cores. After it `make check T=WORD` runs only those whose path has WORD.
END
}
case ${1-} in
'') ;;
-h | --help) usage && exit ;;
*)
    echo "check.sh: takes no arguments, found $1" >&2
    usage >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")"
mk/packages.sh build check
exec make -j"$(nproc)" check
