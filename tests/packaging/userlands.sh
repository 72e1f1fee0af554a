#!/usr/bin/env bash
# Makes Debians of several ages for amd64 and arm64, once each, below .cache/userlands: the least that debootstrap makes, as systemd
# needs it. Needs root; arm64 needs what tests/arm64.sh registers. May run any number of times.
#
# The mirrors that Debian's tools are set up with have no other distribution. RPMs are installed by rpm in copies of the Debians.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mirror=${LANEWATCH_DEBIAN_MIRROR:-http://deb.debian.org/debian}
suites=(bullseye bookworm trixie)
mkdir -p .cache/userlands

tree() { # SUITE ARCHITECTURE
  local folder=.cache/userlands/$1-$2
  [[ ! -e $folder/made ]] || return 0
  rm -rf "$folder"
  # Since 12, systemd-sysusers comes alone.
  local sysusers=systemd-standalone-sysusers script=()
  [[ $1 != bullseye ]] || sysusers=systemd
  [[ -e /usr/share/debootstrap/scripts/$1 ]] || script=(/usr/share/debootstrap/scripts/sid)
  debootstrap --variant=minbase --arch="$2" --include="$sysusers" "$1" "$folder" "$mirror" "${script[@]}" >"$folder.log" 2>&1 || return 1
  rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/* "$folder"/usr/share/{doc,locale}/*
  touch "$folder/made"
}

failed=0
for suite in "${suites[@]}"; do
  for architecture in amd64 arm64; do
    tree "$suite" "$architecture" ||
      { echo "userlands: no $suite for $architecture, see .cache/userlands/$suite-$architecture.log" >&2 && failed=1; }
  done
done
exit "$failed"
