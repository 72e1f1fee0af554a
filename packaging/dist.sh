#!/usr/bin/env bash
# Everything that is released, in a folder: packaging/dist.sh DIR
#
# The same commit and toolchain give the same bytes, wherever the repository lies: the time is the commit's, and paths of this machine are
# taken out of the program. Needs what `tests/setup.sh packaging` installs. packaging/dist-twice.sh tries it.
#
# MAINTAINER="Name <address>" is who the packages say publishes them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(realpath -m "$1")
cargo=${CARGO:-cargo}
tools=.cache/tools/bin

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
home=${CARGO_HOME:-$HOME/.cargo}
# Encoded, as a path may hold spaces.
export CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=$PWD=/lanewatch"$'\x1f'"--remap-path-prefix=$home=/cargo"

rm -rf "$out"
mkdir -p "$out"
# A folder of its own, so that other flags do not make everything else be built anew.
"$cargo" build --profile dist --locked --target-dir target/dist
bash packaging/stage.sh target/dist/dist/lanewatch

"$tools/cargo-deb" deb --no-build --no-strip ${MAINTAINER:+--maintainer "$MAINTAINER"} -o "$out/"
"$tools/cargo-generate-rpm" generate-rpm ${MAINTAINER:+--set-metadata "vendor = '$MAINTAINER'"} -o "$out/"
cp target/package/doc/lanewatch.cdx.json "$out/"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
tarball() { # NAME FOLDER FILES
  local name=$1 folder=$2
  shift 2
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r-w,a+X \
    --format=ustar -C "$folder" -cf - "$@" | gzip -9n >"$out/$name"
}
tarball "lanewatch-$version-$(uname -m).tar.gz" target/package lanewatch
# Rules and dashboards are links in the repository, and files in the chart.
tarball "lanewatch-chart-$version.tgz" packaging/helm --dereference lanewatch
(cd "$out" && sha256sum -- * >SHA256SUMS)
cat "$out/SHA256SUMS"
