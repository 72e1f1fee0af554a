#!/usr/bin/env bash
# Everything that is released, for x86_64 and aarch64, in a folder: packaging/dist.sh DIR
#
# The programs are static (musl), so they run on any kernel from 4.18 on and need nothing from the distribution. The same commit
# and toolchain give the same bytes, wherever the repository lies: the time is the commit's, and paths of this machine are
# taken out of the program. Needs what `tests/setup.sh packaging` installs. packaging/dist-twice.sh tries it.
#
# MAINTAINER="Name <address>" is who the packages say publishes them. PROFILE=dev, for tests: cargo's profile, if not dist.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(realpath -m "$1")
cargo=${CARGO:-cargo}
tools=.cache/tools/bin
machines=(x86_64 aarch64)

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
LANEWATCH_REVISION=$(git rev-parse --short=12 HEAD)
[[ -z $(git status --porcelain --untracked-files=no) ]] || LANEWATCH_REVISION+=-modified
export SOURCE_DATE_EPOCH LANEWATCH_REVISION LC_ALL=C TZ=UTC
umask 022
home=${CARGO_HOME:-$HOME/.cargo}
# Encoded, as a path may hold spaces.
export CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=$PWD=/lanewatch"$'\x1f'"--remap-path-prefix=$home=/cargo"

rm -rf "$out"
mkdir -p "$out"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

tarball() { # NAME FOLDER FILES
  local name=$1 folder=$2
  shift 2
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r-w,a+X \
    --format=ustar -C "$folder" -cf - "$@" | gzip -9n >"$out/$name"
}

# A folder of its own, so that other flags do not make everything else be built again.
built=target/dist
targets=("${machines[@]/%/-unknown-linux-musl}")
profile=${PROFILE:-dist}
if [[ $profile == dist ]]; then
  "$cargo" build --profile dist --locked --target-dir "$built" "${targets[@]/#/--target=}"
  program() { echo "$built/$1-unknown-linux-musl/dist/lanewatch"; }
else
  "$cargo" build --profile "$profile" --locked --target-dir target/arm64 "${targets[@]/#/--target=}"
  program() { echo "target/arm64/$1-unknown-linux-musl/${profile/#dev/debug}/lanewatch"; }
fi

runs=$(program "$(uname -m)")
for machine in "${machines[@]}"; do
  target=$machine-unknown-linux-musl
  bash packaging/stage.sh "$(program "$machine")" "$runs"
  "$tools/cargo-deb" deb --target "$target" --no-build --no-strip ${MAINTAINER:+--maintainer "$MAINTAINER"} -o "$out/"
  "$tools/cargo-generate-rpm" generate-rpm --arch "$machine" ${MAINTAINER:+--set-metadata "vendor = '$MAINTAINER'"} -o "$out/"
  install -D -m 755 target/package/lanewatch "target/package/tar/lanewatch-$version-$machine/lanewatch"
  cp LICENSE README.md packaging/systemd/lanewatch.{service,socket,sysusers} target/package/doc/lanewatch.cdx.json \
    "target/package/tar/lanewatch-$version-$machine/"
  tarball "lanewatch-$version-$machine.tar.gz" target/package/tar "lanewatch-$version-$machine"
done
cp target/package/doc/lanewatch.cdx.json "$out/"
python3 packaging/image.py "$out/lanewatch-$version-image.tar" "$version" \
  "amd64=$(program x86_64)" "arm64=$(program aarch64)"
# Rules and dashboards are links in the repository, and files in the chart.
tarball "lanewatch-chart-$version.tgz" packaging/helm --dereference lanewatch
(cd "$out" && sha256sum -- * >SHA256SUMS)
python3 packaging/provenance.py "$out" >"$out/lanewatch-$version.provenance.json"
cat "$out/SHA256SUMS"
