#!/bin/sh
# What `just peers-speed` needs besides Rust: Berkeley DB and RocksDB with their headers, and a C compiler. From the
# packages of Debian or what is derived from it; does nothing where all are there.
set -eu

packages="gcc libc6-dev libdb5.3-dev librocksdb-dev"

is_there() {
    dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

missing=""
for package in $packages; do
    is_there "$package" || missing="$missing $package"
done
if [ -z "$missing" ]; then
    echo "all there: $packages"
    exit 0
fi

as_root=""
[ "$(id -u)" -eq 0 ] || as_root="sudo"
$as_root apt-get update
# shellcheck disable=SC2086 # a list of packages
$as_root apt-get install -y --no-install-recommends $missing
