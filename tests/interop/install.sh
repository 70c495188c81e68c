#!/bin/sh
# Installs the clients of others that tests/interop and tests/conformance run, in the versions that are pinned beside this
# file, into target/interop. What is there already is left as it is. A client whose language is not installed is left out.
set -eu
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
case ${CARGO_TARGET_DIR:=target} in
/*) into=$CARGO_TARGET_DIR/interop ;;
*) into=$root/$CARGO_TARGET_DIR/interop ;;
esac
mkdir -p "$into"

# Two at once would get into each other's way.
exec 9>"$into/lock"
flock 9

# install WHAT PROGRAM FILE...: calls install_WHAT unless it was done with the same files.
install() {
  what=$1 program=$2
  shift 2
  if ! command -v "$program" >/dev/null 2>&1; then
    echo "interop: no $program, so no clients in $what" >&2
    return
  fi
  sum=$(cat install.sh "$@" | cksum)
  [ "$(cat "$into/$what.done" 2>/dev/null)" = "$sum" ] && return
  rm -rf "$into/$what.done" "${into:?}/$what"
  "install_$what"
  echo "$sum" >"$into/$what.done"
}

install_python() {
  python3 -m venv "$into/python"
  "$into/python/bin/pip" install --quiet --disable-pip-version-check -r python/requirements.txt
}

install_node() {
  mkdir "$into/node"
  cp node/package.json node/package-lock.json "$into/node"
  (cd "$into/node" && npm ci --silent --no-audit --no-fund --ignore-scripts)
}

install_go() {
  (cd go && go build -buildvcs=false -o "$into/go/strangers" .)
}

install_etcd() {
  # A Go that is older than etcd needs, and can not fetch a newer one, builds nothing: the tests then run on the etcd that
  # is installed.
  mkdir "$into/etcd"
  (cd etcd && go build -buildvcs=false -o "$into/etcd/etcd" go.etcd.io/etcd/server/v3 &&
    go build -buildvcs=false -o "$into/etcd/etcdctl" go.etcd.io/etcd/etcdctl/v3 &&
    go build -buildvcs=false -o "$into/etcd/stranger" .) || {
    echo "interop: this Go does not build etcd; the tests use the one in PATH, and not its Go client" >&2
    rm -rf "$into/etcd"
  }
}

install_rust() {
  cargo build --quiet --locked --manifest-path rslock/Cargo.toml --target-dir "$into/rust"
}

install_java() {
  mkdir "$into/java"
  cp -r java/pom.xml java/src "$into/java"
  (cd "$into/java" && mvn --quiet --batch-mode package)
}

install_zookeeper() {
  # The server, and Curator.
  mkdir "$into/zookeeper"
  cp -r zookeeper/pom.xml zookeeper/src "$into/zookeeper"
  (cd "$into/zookeeper" && mvn --quiet --batch-mode package)
}

install python python3 python/requirements.txt
install node npm node/package.json node/package-lock.json
install go go go/main.go go/go.mod go/go.sum
install etcd go etcd/main.go etcd/go.mod etcd/go.sum
# leasehold is a part of it, so cargo decides what is old.
cargo build --quiet --locked --manifest-path sqlx/Cargo.toml --target-dir "$into/sqlx"
install rust cargo rslock/src/main.rs rslock/Cargo.toml rslock/Cargo.lock
install java mvn java/pom.xml java/src/main/java/Stranger.java
install zookeeper mvn zookeeper/pom.xml zookeeper/src/main/java/Curator.java
