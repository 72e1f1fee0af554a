#!/bin/bash
# The tests of the state directory at length, on each file system that can be mounted here: tmpfs, ext4 and overlayfs.
set -eu
cd "$(dirname "$0")/.."
place=$(mktemp -d)
places=
finish() {
  for name in overlay ext4 tmpfs; do umount "$place/$name" 2>/dev/null || true; done
  rm -rf "$place"
}
trap finish EXIT
chmod 755 "$place"
mkdir "$place/tmpfs" "$place/ext4" "$place/overlay"
add() {
  echo "with $1"
  chmod 1777 "$place/$1"
  places="$places${places:+:}$place/$1"
}
if mount -t tmpfs -o size=512m tmpfs "$place/tmpfs" 2>/dev/null; then add tmpfs; else echo 'without tmpfs'; fi
truncate -s 512M "$place/image"
if mkfs.ext4 -q "$place/image" 2>/dev/null && mount -o loop "$place/image" "$place/ext4" 2>/dev/null; then add ext4; else echo 'without ext4'; fi
if [ -d "$place/ext4/lost+found" ] && mkdir -p "$place"/ext4/{lower,upper,work} &&
  mount -t overlay -o "lowerdir=$place/ext4/lower,upperdir=$place/ext4/upper,workdir=$place/ext4/work" overlay "$place/overlay" 2>/dev/null
then add overlay; else echo 'without overlayfs'; fi
export LANEWATCH_STATE_PLACES=${places:-$place}
LANEWATCH_STATE_ROUNDS=${1:-100} cargo test --locked --test state -- accept
LANEWATCH_STATE_ROUNDS=${2:-500} cargo test --locked --test state -- --nocapture killed
