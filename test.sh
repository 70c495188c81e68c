#!/bin/sh
# Installs what the tests need (Debian) and runs all of them. `./test.sh versions` runs those of the SQL engines on current
# versions of the databases instead.
set -eu
cd "$(dirname "$0")"

# What each package is for: strace kills a process at a chosen system call, util-linux makes small and read-only disks and
# lets a server die with the test that started it, redis-server, postgresql, pgbouncer, mariadb-server and etcd are those
# servers (on ports of their own: one that a package starts does not matter), openssl makes their certificates, procps and the C
# compiler are what a bare image may lack. Python, Node, Go and Java run the clients of others that share locks with us, and Java runs ZooKeeper.
# Chromium shows the page of examples/flash-sale.
needed=""
for pair in strace:strace unshare:util-linux flock:util-linux setpriv:util-linux redis-server:redis-server \
  pgbouncer:pgbouncer mariadbd:mariadb-server cc:build-essential openssl:openssl python3:python3 node:nodejs npm:npm \
  go:golang-go javac:default-jdk-headless mvn:maven etcd:etcd-server etcdctl:etcd-client \
  chromium:chromium chromedriver:chromium-driver; do
  # Where Debian has servers, a user's path does not lead.
  PATH="$PATH:/usr/sbin" command -v "${pair%%:*}" >/dev/null 2>&1 || needed="$needed ${pair##*:}"
done
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || needed="$needed postgresql"
# Debian has the two halves of Python's own `venv` in two packages.
python3 -c 'import ensurepip' 2>/dev/null || needed="$needed python3-venv"
if [ -n "$needed" ]; then
  sudo=""
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -q
  # shellcheck disable=SC2086
  $sudo apt-get install -q -y --no-install-recommends $needed
fi

if [ "${1-}" = versions ]; then
  shift
  exec tests/versions.sh "$@"
fi

tests/interop/install.sh

# A tool that is missing after that fails its cases; it does not skip them.
CI=true
export CI
exec cargo test --workspace --all-features --locked "$@"
