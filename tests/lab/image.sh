#!/usr/bin/env bash
# Makes the lab's images below .cache/lab: Debian's kernels 6.12 (backports) and 6.1, each with the tools that the
# scenarios use. May run any number of times; does nothing while the scripts that make them are the same.
#
# What cannot be had is one line here and scenarios that are skipped. With CI=true it is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

out=.cache/lab
log=$out/log
mkdir -p "$out"
stamp=$(cat tests/lab/build-image.sh tests/lab/guest/* tests/lab/provider/* | sha256sum | cut -d' ' -f1)

image() {
  local suite=$1 tag=$2
  [[ "$(cat "$out/image$tag/stamp" 2>/dev/null)" == "$stamp" ]] && return 0
  LAB_KERNEL_SUITE=$suite LAB_IMAGE_TAG=$tag bash tests/lab/build-image.sh "$PWD/$out" >>"$log" 2>&1 || return 1
  echo "$stamp" >"$out/image$tag/stamp"
}

: >"$log"
if [[ $(uname -m) != x86_64 || $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
  why="it needs root on Debian and x86_64"
elif ! image bookworm-backports "" || ! image bookworm -6.1; then
  why="see $log"
else
  exit 0
fi
echo "lab: no image: $why; the lab's scenarios are skipped" >&2
[[ ${CI:-} != true ]]
