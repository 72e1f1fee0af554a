#!/usr/bin/env bash
# Makes the lab's images below .cache/lab: Debian's kernels 6.12 (backports) and 6.1, each with the tools that the
# scenarios use; with the argument arm64, the one for that architecture (6.12). May run any number of times; does nothing while the scripts that make them are the same.
#
# What cannot be had is one line here and scenarios that are skipped. With CI=true it is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

out=.cache/lab
log=$out/log
mkdir -p "$out"
stamp=$(cat tests/lab/{host,build-image}.sh tests/lab/guest/* tests/lab/provider/* | sha256sum | cut -d' ' -f1)

# Whether the image with this suffix was made by these scripts.
current() { [[ "$(cat "$out/image$1/stamp" 2>/dev/null)" == "$stamp" ]]; }

image() {
  local suite=$1 tag=$2 arch=${3:-amd64}
  ! current "$tag" || return 0
  LAB_KERNEL_SUITE=$suite LAB_IMAGE_TAG=$tag LAB_ARCH=$arch bash tests/lab/build-image.sh "$PWD/$out" >"$log$tag" 2>&1 || return 1
  echo "$stamp" >"$out/image$tag/stamp"
}

# Both at once: a good part of it is waiting for the mirror.
images() {
  bash tests/lab/host.sh >"$log-host" 2>&1 || return 1
  image bookworm-backports "" &
  local other=$! failed=0
  image bookworm -6.1 || failed=1
  wait "$other" || failed=1
  return "$failed"
}

if [[ ${1:-} == arm64 ]]; then
  LAB_ARCH=arm64 bash tests/lab/host.sh >"$log-host" 2>&1 && image bookworm-backports -arm64 arm64 && exit 0
  echo "lab: no image for arm64: see $log-host and $log-arm64" >&2
  exit 1
fi
if current "" && current -6.1 && command -v qemu-system-x86_64 >/dev/null; then
  exit 0
fi
rm -f "$log"*
for tag in "" -6.1; do
  # An image of other scripts is none.
  current "$tag" || rm -f "$out/image$tag/stamp"
done
if [[ $(uname -m) != x86_64 || $(id -u) != 0 ]] || ! grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release; then
  why="it needs root on Debian 12 and x86_64"
elif ! images; then
  tail -n 5 "$log"* >&2
  why="see $log"
else
  exit 0
fi
echo "lab: no image: $why; the lab's scenarios are skipped" >&2
[[ ${CI:-} != true ]]
