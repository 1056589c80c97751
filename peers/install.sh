#!/bin/sh
# What `just peers-speed` needs besides Rust: Berkeley DB with its headers, compilers of C and C++, and libclang, by which
# RocksDB's crate reads RocksDB's header. With the argument `servers`, what `just peers-served` needs: the programs of
# PostgreSQL and MariaDB. From the packages of Debian or what is derived from it; does nothing where all are there. No
# server is left running: the benchmark starts its own, in a temporary directory, and stops them.
set -eu

packages="gcc g++ libc6-dev libdb5.3-dev libclang-dev"
[ "${1:-}" != servers ] || packages="$packages postgresql mariadb-server-core"

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
# Installing PostgreSQL would make a cluster of its own and start it.
if [ "${1:-}" = servers ] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
    $as_root mkdir -p /etc/postgresql-common
    echo "create_main_cluster = false" | $as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
fi
# shellcheck disable=SC2086 # a list of packages
$as_root apt-get install -y --no-install-recommends $missing
