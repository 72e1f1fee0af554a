#!/usr/bin/env bash
# Records the status files that a real libvirtd writes (record.py): `make capture-libvirt` does so for the timelines of
# src/watch/vfmap. Needs root; installs Debian's libvirtd and QEMU by name where they are missing. Everything runs in
# namespaces of its own, without a network, and ends with this script.
#
#   record.sh FILE
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

file=$(realpath -m "$1")
need=()
command -v libvirtd >/dev/null || need+=(libvirt-daemon libvirt-daemon-driver-qemu)
command -v virsh >/dev/null || need+=(libvirt-clients)
command -v qemu-system-x86_64 >/dev/null || need+=(qemu-system-x86)
command -v python3 >/dev/null || need+=(python3)
[[ ${#need[@]} == 0 ]] || apt-get -q -y install --no-install-recommends "${need[@]}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The shell is PID 1 there: it reaps QEMU, which leaves its parent.
unshare --mount --pid --net --fork --kill-child --mount-proc bash -c "python3 $PWD/record.py $work/hosts; exit \$?" >"$work/timeline"
mv "$work/timeline" "$file"
