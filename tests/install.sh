#!/bin/sh
# make install, uninstall and dist: what is installed works from its place, another program can be built against it with
# pkg-config, staging puts the same files elsewhere, uninstall leaves none, and dist is the same bytes twice. Then which
# packages mk/packages.sh asks for.
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0 skipped=0
verdict() {
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        cat "$tmp/log"
        echo "FAIL $1"
    fi
}
# The outer make's job slots are not ours.
unset MAKEFLAGS MFLAGS
prefix=$tmp/prefix
make install PREFIX="$prefix" >"$tmp/log" 2>&1
verdict 'make install' $?
(cd "$prefix" && find . -type f | sort) >"$tmp/files"
for f in bin/lily lib/liblily.a lib/pkgconfig/lily.pc include/lily/status.h share/man/man1/lily.1 \
    share/bash-completion/completions/lily share/zsh/site-functions/_lily; do
    [ -f "$prefix/$f" ]
    verdict "installed: $f" $?
done
[ -x "$prefix/bin/lily" ] && [ ! -x "$prefix/lib/liblily.a" ]
verdict 'modes of installed files' $?
(cd / && "$prefix/bin/lily" --version) >"$tmp/log" 2>&1
verdict 'the installed program runs' $?

export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
[ "$(pkg-config --modversion lily 2>"$tmp/log")" = "$(cat VERSION)" ]
verdict 'the version in lily.pc' $?
# With --static and without: there is only the static library.
cat >"$tmp/other.c" <<END
#include <lily/status.h>
int main(void) { return lily_status_name(LILY_ERR_IO)[0] == 'i' ? 0 : 1; }
END
san=${SAN:+-fsanitize=$SAN}
for static in '' --static; do
    ${CC:-gcc} -std=c17 $san "$tmp/other.c" $(pkg-config $static --cflags --libs lily) -o "$tmp/other" >"$tmp/log" 2>&1 &&
        "$tmp/other" >>"$tmp/log" 2>&1
    verdict "a program built with pkg-config $static" $?
done
for f in examples/*.c; do
    if [ ! -f "$f" ]; then continue; fi
    ${CC:-gcc} -std=c17 -Wall -Wextra -Werror $san "$f" $(pkg-config --cflags --libs lily) -o "$tmp/example" >"$tmp/log" 2>&1
    verdict "$f builds against the installed library" $?
    if [ -d models/demo ]; then
        [ -n "$("$tmp/example" models/demo "Tell me a story." 2>"$tmp/log" </dev/null)" ]
        verdict "$f answers with the demo model" $?
    fi
done

make install DESTDIR="$tmp/stage" PREFIX=/opt/lily >"$tmp/log" 2>&1
(cd "$tmp/stage/opt/lily" && find . -type f | sort) >"$tmp/staged" 2>>"$tmp/log"
cmp "$tmp/files" "$tmp/staged" >>"$tmp/log" && [ "$(find "$tmp/stage" -type f | wc -l)" -eq "$(wc -l <"$tmp/files")" ]
verdict 'DESTDIR puts the same files below it' $?
grep -q '^prefix=/opt/lily$' "$tmp/stage/opt/lily/lib/pkgconfig/lily.pc"
verdict 'lily.pc names the final place' $?
echo keep >"$prefix/lib/other-file"
make uninstall PREFIX="$prefix" >"$tmp/log" 2>&1
(cd "$prefix" && find . -type f) >>"$tmp/log"
[ "$(cd "$prefix" && find . -type f)" = ./lib/other-file ]
verdict 'uninstall removes its files and no others' $?

if git rev-parse HEAD >/dev/null 2>&1; then
    git clone -q . "$tmp/clone" 2>"$tmp/log" && for n in 1 2; do
        (cd "$tmp/clone" && make dist >>"$tmp/log" 2>&1 && mv lily-*.tar.gz "$tmp/$n" && touch Makefile && sleep 1)
    done
    cmp "$tmp/1" "$tmp/2" >>"$tmp/log" 2>&1
    verdict 'dist gives the same bytes twice' $?
    tar -xzf "$tmp/1" -C "$tmp" && [ "$(cd "$tmp/lily-$(cat "$tmp/clone/VERSION")" && find . -type f | wc -l)" -eq "$(git ls-tree -r --name-only HEAD | wc -l)" ]
    verdict 'dist holds every committed file' $?
else
    echo 'SKIP dist gives the same bytes twice: not a git checkout'
    echo 'SKIP dist holds every committed file: not a git checkout'
    skipped=$((skipped + 2))
fi

# A machine without packages whose apt only notes what it is asked for, first without Node.js, then with one that holds npm.
mkdir "$tmp/bin"
ln -s "$(command -v sh)" "$(command -v awk)" "$(command -v sort)" "$(command -v dirname)" "$(command -v mktemp)" \
    "$(command -v rm)" "$(command -v env)" "$tmp/bin"
printf '#!/bin/sh\necho 0\n' >"$tmp/bin/id"
printf '#!/bin/sh\nexit 1\n' >"$tmp/bin/dpkg-query"
printf '#!/bin/sh\necho " $* " >>"%s/asked"\n' "$tmp" >"$tmp/bin/apt-get"
chmod +x "$tmp"/bin/*
PATH=$tmp/bin mk/packages.sh all >"$tmp/log" 2>&1 && grep ' nodejs ' "$tmp/asked" | grep -q ' npm '
verdict 'Node.js and npm are installed where they are missing' $?
ln -s /bin/true "$tmp/bin/node"
ln -s /bin/true "$tmp/bin/npm"
rm "$tmp/asked"
PATH=$tmp/bin mk/packages.sh all >"$tmp/log" 2>&1 && grep -q ' debootstrap ' "$tmp/asked" && ! grep -qE ' (nodejs|npm) ' "$tmp/asked"
verdict 'Node.js and npm are not installed over those of another source' $?
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
