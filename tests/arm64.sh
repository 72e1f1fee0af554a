#!/usr/bin/env bash
# The aarch64 program under QEMU's user-mode emulation: library tests, recorded hosts, and the packages of both architectures in trees
# of old and new Debians. `make arm64` installs what it needs first.
#
#   tests/arm64.sh             all of it
#   tests/arm64.sh tests       library tests and recorded hosts alone
#   tests/arm64.sh packages    packages alone; LANEWATCH_DIST names those of `make dist`, otherwise unoptimized ones are made
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
what=${1:-all}
target=aarch64-unknown-linux-musl

# As qemu-user-static does where systemd runs: programs for aarch64 start under QEMU, in changed roots too (F). Until the next boot.
register() {
  local misc=/proc/sys/fs/binfmt_misc
  [[ $(uname -m) != aarch64 && ! -e $misc/qemu-aarch64 ]] || return 0
  [[ -e $misc/register ]] || mount -t binfmt_misc binfmt_misc "$misc"
  local magic='\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
  local mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
  echo ":qemu-aarch64:M::$magic:$mask:/usr/bin/qemu-aarch64-static:OCF" >"$misc/register"
}

register
mkdir -p target/arm64
if [[ $what != packages ]]; then
  # QEMU translates neither the ioctl of ethtool nor netlink of DCB.
  LANEWATCH_SHUFFLES=5 cargo test --locked --target-dir target/arm64 --target "$target" --lib -- --skip the_running_kernel_answers
  cargo test --locked --target-dir target/arm64 --target "$target" --test cases
fi
if [[ $what != tests ]]; then
  bash tests/packaging/userlands.sh
  if [[ -z ${LANEWATCH_DIST:-} ]]; then
    PROFILE=dev bash packaging/dist.sh target/arm64/dist
    export LANEWATCH_DIST=$PWD/target/arm64/dist
  fi
  cargo test --locked --test packaging -- --ignored --nocapture userlands::
fi
