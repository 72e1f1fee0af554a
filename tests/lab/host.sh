#!/bin/bash
# Makes the host able to build the lab's images and to run its machines: the backports suite of the mirror that is set up
# (QEMU 10, kernel 6.12), and tools by name where they are missing. May run any number of times.
set -euo pipefail

policy=$(apt-cache policy)
if ! grep -q 'n=bookworm-backports' <<<"$policy"; then
  src=$(grep -ls '^Suites:.*bookworm' /etc/apt/sources.list.d/*.sources | head -1 || true)
  if [ -n "$src" ]; then
    # the first stanza of that file that names bookworm itself, with another suite
    awk 'BEGIN{RS="";ORS="\n\n"} /Suites:[^\n]*bookworm/ && !/security/ && !d {gsub(/Suites:[^\n]*/,"Suites: bookworm-backports"); print; d=1}' \
      "$src" > /etc/apt/sources.list.d/lab-backports.sources
  else
    awk '$1=="deb" && $0 ~ / bookworm / && !d {sub(/ bookworm /, " bookworm-backports "); print; d=1}' /etc/apt/sources.list \
      > /etc/apt/sources.list.d/lab-backports.list
  fi
fi
apt=(apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
export DEBIAN_FRONTEND=noninteractive
# Package lists that are older than the mirror name files that are gone.
"${apt[@]}" update

need=()
for tool in cpio:cpio zstd:zstd xz:xz-utils depmod:kmod make:make x86_64-linux-gnu-gcc-12:gcc-12 strip:binutils python3:python3; do
  PATH=$PATH:/sbin:/usr/sbin command -v "${tool%%:*}" >/dev/null || need+=("${tool#*:}")
done
[ ${#need[@]} -eq 0 ] || "${apt[@]}" install --no-install-recommends "${need[@]}"
# The lab of arm64 needs its own emulator and firmware, and the programs that make its image.
if [ "${LAB_ARCH:-amd64}" = arm64 ]; then
  need=()
  [ -e /usr/share/AAVMF/AAVMF_CODE.fd ] || need+=(qemu-efi-aarch64)
  command -v qemu-system-aarch64 >/dev/null || need+=(qemu-system-arm)
  command -v qemu-aarch64-static >/dev/null || need+=(qemu-user-static)
  command -v fdtput >/dev/null || need+=(device-tree-compiler)
  command -v aarch64-linux-gnu-gcc-12 >/dev/null || need+=(gcc-12-aarch64-linux-gnu)
  [ ${#need[@]} -eq 0 ] || "${apt[@]}" install --no-install-recommends -t bookworm-backports "${need[@]}"
  exit
fi
command -v qemu-system-x86_64 >/dev/null ||
  "${apt[@]}" install --no-install-recommends -t bookworm-backports qemu-system-x86
