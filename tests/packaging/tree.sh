#!/usr/bin/env bash
# Makes a clean Debian below .cache/debian, once: the least that debootstrap makes, and systemd-sysusers.
# Needs root. May run any number of times.
#
# What cannot be had is one line here and a test that is skipped. With CI=true it is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tree=.cache/debian
log=.cache/debian.log
suite=bookworm
mirror=${LANEWATCH_DEBIAN_MIRROR:-http://deb.debian.org/debian}

[[ -e $tree/made ]] && exit 0
why="it needs root and debootstrap"
if [[ $(id -u) == 0 ]] && command -v debootstrap >/dev/null; then
  rm -rf "$tree"
  if debootstrap --variant=minbase --include=systemd-standalone-sysusers "$suite" "$tree" "$mirror" >"$log" 2>&1; then
    rm -rf "$tree"/var/cache/apt/archives/*.deb "$tree"/var/lib/apt/lists/* "$tree"/usr/share/{doc,locale}/*
    touch "$tree/made"
    exit 0
  fi
  why="see $log"
fi
echo "packaging: no Debian tree: $why; the test of an installation is skipped" >&2
[[ ${CI:-} != true ]]
