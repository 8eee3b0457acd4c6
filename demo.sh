#!/bin/sh
# From a fresh clone to a first story: installs what the build needs (Debian, Ubuntu), builds lily, runs the small model
# that comes with it. No network but the package mirror, no model download.
set -e
usage() {
    cat <<'END'
usage: ./demo.sh [QUESTION]
Installs what the build needs (Debian, Ubuntu), builds lily, and lets the small model that comes with it tell a story,
or answer QUESTION. A question that begins with a dash comes after --.
END
}
case ${1-} in
-h | --help) usage && exit ;;
--) shift ;;
-*)
    echo "demo.sh: unknown option $1" >&2
    usage >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")"
mk/packages.sh build
make -j"$(nproc)"
if [ $# -gt 0 ]; then
    ./lily run -m models/demo -- "$*"
else
    make demo
fi
cat >&2 <<'END'

Next:
  ./lily chat      talk with it, here in the terminal
  ./lily serve     the same in a browser, at http://127.0.0.1:8080/
END
