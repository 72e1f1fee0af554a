#!/usr/bin/env bash
# Makes two clean Debians, once each. Needs root. May run any number of times.
#
#   .cache/debian               a folder: the least that debootstrap makes, and systemd-sysusers; packages are installed in copies of it
#   .cache/debian-systemd.ext4  a disk with systemd, for a virtual machine that boots it
#
# What cannot be had is one line here and a test that is skipped. With CI=true it is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tree=.cache/debian
disk=.cache/debian-systemd.ext4
log=.cache/debian.log
suite=bookworm
mirror=${LANEWATCH_DEBIAN_MIRROR:-http://deb.debian.org/debian}

tree() { # FOLDER PACKAGES
  rm -rf "$1"
  debootstrap --variant=minbase --include="$2" "$suite" "$1" "$mirror" >>"$log" 2>&1 || return 1
  rm -rf "$1"/var/cache/apt/archives/*.deb "$1"/var/lib/apt/lists/* "$1"/usr/share/{doc,locale}/*
}

folder() {
  [[ -e $tree/made ]] && return
  tree "$tree" systemd-standalone-sysusers && touch "$tree/made"
}

disk() {
  [[ -e $disk ]] && return
  tree "$disk.tree" systemd,iproute2,procps && rm -f "$disk.new" &&
    mke2fs -q -t ext4 -d "$disk.tree" "$disk.new" 700M >>"$log" 2>&1 || return 1
  rm -rf "$disk.tree"
  mv "$disk.new" "$disk"
}

[[ -e $tree/made && -e $disk ]] && exit 0
: >"$log"
why="it needs root and debootstrap"
if [[ $(id -u) == 0 ]] && command -v debootstrap >/dev/null; then
  folder && disk && exit 0
  why="see $log"
fi
echo "packaging: no Debian tree: $why; the tests of an installation are skipped" >&2
[[ ${CI:-} != true ]]
