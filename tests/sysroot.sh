#!/bin/sh
# Fetches the libraries of another Debian architecture into a folder, for cross builds: the lib*-dev packages of the groups
# build and check, with what they need, downloaded by apt and unpacked. Nothing is installed, no rights are needed. libcurl is
# optional and stays out: a build with it would have to link all that is behind it.
# usage: sysroot.sh ARCHITECTURE FOLDER
arch=$1 dir=$2
[ ! -e "$dir/complete" ] || exit 0
rm -rf "$dir"
mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial" || exit 1
dir=$(cd "$dir" && pwd)
: >"$dir/apt/status"
cat >"$dir/apt/conf" <<END
APT::Architecture "$arch";
APT::Architectures { "$arch"; };
Dir::State::lists "$dir/apt/lists";
Dir::State::status "$dir/apt/status";
Dir::Cache::archives "$dir/apt/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
END
names=$(awk '($1 == "build" || $1 == "check") && $2 ~ /^lib/ && $2 !~ /-cross$|curl/ {print $2}' mk/packages.txt)
export APT_CONFIG="$dir/apt/conf" DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -q && apt-get install -q -y -d --no-install-recommends -o Debug::NoLocking=1 $names; } >"$dir/log" 2>&1; then
    tail -n 20 "$dir/log" | sed 's/^/    | /'
    exit 1
fi
for p in "$dir"/apt/archives/*.deb; do dpkg-deb -x "$p" "$dir" || exit 1; done
rm -rf "$dir/apt"
touch "$dir/complete"
