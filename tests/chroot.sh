#!/bin/sh
# A fresh Debian 12 (debootstrap, minbase) gets a clone of the committed tree: ./demo.sh must install, build and tell a story,
# ./check.sh must pass, and a user without rights must be able to repeat the demo once everything is installed.
# Needs root, debootstrap, and the mirror that this machine's apt uses.
# usage: chroot.sh [SCRIPT...]     runs those instead, e.g. .ci/run
cd "$(dirname "$0")/.." || exit 1
skip() {
    echo "SKIP chroot: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}
[ "$(id -u)" -eq 0 ] || skip 'only root can make a chroot'
for c in debootstrap git unshare; do
    command -v $c >/dev/null || skip "$c is not installed"
done
unshare -m true 2>/dev/null || skip 'mounts are not allowed here'
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    grep -oE 'https?://[^ ]*/debian/?( |$)' | head -n 1 | tr -d ' ')
[ -n "$mirror" ] || skip "apt's sources name no Debian mirror"
root=$(mktemp -d /tmp/chroot-XXXXXX) || exit 1
chmod 755 "$root"
trap 'rm -rf --one-file-system "$root"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0

# inside USER COMMAND: runs in the chroot with /proc and the devices, which vanish with the process.
inside() {
    unshare -m sh -ec '
        mount -t proc proc "$1/proc"
        mount --rbind /dev "$1/dev"
        chroot --userspec="$2" "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp sh -c "$3"
    ' sh "$root" "$1" "$2" </dev/null
}

# verdict NAME STATUS
verdict() {
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok chroot: $1"
    else
        failed=$((failed + 1))
        tail -n 60 "$root/log" | sed 's/^/    | /'
        echo "FAIL chroot: $1"
    fi
}

debootstrap --variant=minbase bookworm "$root" "$mirror" >"$root.log" 2>&1
rc=$?
mv "$root.log" "$root/log"
verdict 'debootstrap' $rc
cp /etc/resolv.conf "$root/etc/resolv.conf"
for f in /etc/apt/apt.conf.d/*; do
    case ${f##*/} in docker-* | *packagekit* | *appstream*) ;; *) cp "$f" "$root/etc/apt/apt.conf.d/" ;; esac
done
rm -rf "$root"/var/lib/apt/lists/*
git clone -q --no-hardlinks . "$root/srv/lily" || exit 1
git clone -q --no-hardlinks . "$root/srv/user" && chown -R 1000:1000 "$root/srv/user"

if [ $# -gt 0 ]; then
    for s in "$@"; do
        inside 0:0 "cd /srv/lily && ./$s" 2>&1 | tee "$root/log" | sed 's/^/    | /'
        tail -n 1 "$root/log" | grep -qE '^[0-9]+ passed, 0 failed, [0-9]+ skipped$'
        verdict "$s" $?
    done
else
    inside 0:0 'cd /srv/lily && ./demo.sh' >"$root/log" 2>&1
    verdict 'demo.sh' $?
    [ "$(wc -w <"$root/log")" -ge 60 ]
    verdict 'demo.sh tells a story' $?
    inside 0:0 'cd /srv/lily && ./check.sh' >"$root/log" 2>&1
    tail -n 1 "$root/log" | grep -qE '^[0-9]+ passed, 0 failed, [0-9]+ skipped$'
    verdict "check.sh: $(tail -n 1 "$root/log" | tr , ' ')" $?
    inside 1000:1000 'cd /srv/user && ./demo.sh What is lily?' >"$root/log" 2>&1
    verdict 'demo.sh without rights' $?
    ! grep -q 'lantern' "$root/log" && tail -n 1 "$root/log" | grep -q 'lily serve'
    verdict 'demo.sh asks what it was given, and says what is next' $?
    ! grep -q 'apt-get' "$root/log"
    verdict 'demo.sh without rights installs nothing' $?
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
