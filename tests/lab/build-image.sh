#!/bin/bash
# Builds an image for the lab's machines, a kernel and an initramfs, from Debian packages alone. The packages are
# unpacked with dpkg -x into a scratch folder; no kernel is installed. host.sh has installed the tools for it.
#
#   build-image.sh OUTDIR
#
# Result in OUTDIR/image: vmlinux (boots through PVH), vmlinuz, initrd.cpio, VERSIONS.
# LAB_KERNEL_SUITE=bookworm-backports (6.12, the default) or bookworm (6.1); LAB_IMAGE_TAG is appended to `image`;
# LAB_ARCH=amd64 (the default) or arm64, which has package lists of its own and changes nothing in this host's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
OUT=$1
SUITE=${LAB_KERNEL_SUITE:-bookworm-backports}
ARCH=${LAB_ARCH:-amd64}
case $ARCH in
amd64) TRIPLET=x86_64-linux-gnu RUN='' W=$OUT/build-$SUITE MAKE=() ;;
arm64) TRIPLET=aarch64-linux-gnu RUN=qemu-aarch64-static W=$OUT/build-$SUITE-arm64 MAKE=(ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu-) ;;
esac
IMG=$OUT/image${LAB_IMAGE_TAG:-}
mkdir -p "$W" "$IMG"

log() { printf '[%4ds] %s\n' "$SECONDS" "$*" >&2; }

PATH=$PATH:/sbin:/usr/sbin
own=()
if [ "$ARCH" != "$(dpkg --print-architecture)" ]; then
  mkdir -p "$W/lists/partial" "$W/dpkg"; : > "$W/dpkg/status"
  own=(-o "APT::Architecture=$ARCH" -o "APT::Architectures=$ARCH" -o "Dir::State::lists=$W/lists" -o "Dir::State::status=$W/dpkg/status"
       -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache=")
  apt-get "${own[@]}" -o APT::Sandbox::User=root -q update >/dev/null
fi
get() { apt-get "${own[@]}" -o APT::Sandbox::User=root -o Acquire::Retries=3 download -q "$@" >/dev/null; }

# kernel package
kpkg=$(apt-cache "${own[@]}" show "linux-image-$ARCH/$SUITE" |
       sed -n 's/^Depends: \(linux-image-[^ ]*\).*/\1/p' | head -1)
[ -n "$kpkg" ] || { echo "no kernel package in $SUITE (apt-get update?)" >&2; exit 1; }
log "kernel package $kpkg"
mkdir -p "$W/kdeb"
if ! ls "$W/kdeb/${kpkg}"_*.deb >/dev/null 2>&1; then
  rm -f "$W"/kdeb/*.deb
  (cd "$W/kdeb" && get "$kpkg/$SUITE")
fi
rm -rf "$W/k"; mkdir "$W/k"
dpkg -x "$W"/kdeb/"$kpkg"_*.deb "$W/k"
vz=$(ls "$W"/k/boot/vmlinuz-*)
KV=${vz##*/vmlinuz-}
mods=$W/k/lib/modules/$KV; [ -d "$mods" ] || mods=$W/k/usr/lib/modules/$KV
cp "$vz" "$IMG/vmlinuz"
log "kernel $KV unpacked"

if [ "$ARCH" = amd64 ]; then
# vmlinux out of the bzImage (payload offset/length are in the setup header);
# booting the ELF through PVH saves the in-guest decompression.
python3 - "$vz" "$W/payload" <<'PY'
import struct, sys
b = open(sys.argv[1], 'rb').read()
assert b[0x202:0x206] == b'HdrS'
sects = b[0x1f1] or 4
off, ln = struct.unpack_from('<II', b, 0x248)
open(sys.argv[2], 'wb').write(b[(sects + 1) * 512 + off:(sects + 1) * 512 + off + ln])
PY
case $(head -c4 "$W/payload" | od -An -tx1 | tr -d ' \n') in
  28b52ffd) zstd -dqf "$W/payload" -o "$IMG/vmlinux" 2>/dev/null || zstd -dcq < "$W/payload" > "$IMG/vmlinux" 2>/dev/null || true ;;
  fd377a58) xz -dc < "$W/payload" > "$IMG/vmlinux" 2>/dev/null || true ;;
  *) rm -f "$IMG/vmlinux" ;;
esac
# the payload carries a 4-byte size trailer, so the decompressor may complain
# after having written everything: judge by the ELF magic
if [ -f "$IMG/vmlinux" ] && [ "$(head -c4 "$IMG/vmlinux" | tail -c3)" = ELF ]; then
  log "vmlinux $(stat -c %s "$IMG/vmlinux") bytes"
else
  rm -f "$IMG/vmlinux"; log "vmlinux not extracted, will boot vmlinuz"
fi
rm -f "$W/payload"
fi

# userland
PKGS="busybox-static kmod iproute2 rdma-core ibverbs-providers ibverbs-utils
      rdmacm-utils perftest infiniband-diags pciutils ethtool iperf3 procps coreutils util-linux bash strace"
# pulled in only by maintainer scripts or perl helpers: never needed at run time
DROP='^(adduser|base-files|debconf|debianutils|dpkg|gcc-12-base|init-system-helpers|libaudit.*|libfile-find-rule-perl|libgdbm.*|libnumber-compare-perl|libpam.*|libperl.*|libsemanage.*|libsepol.*|libtext-glob-perl|lsb-base|mawk|passwd|perl.*|sysvinit-utils|tar|udev|usrmerge|libdb5.*|libtirpc-common|gettext-base)$'
mkdir -p "$W/apt/archives/partial"; : > "$W/apt/status"
apto=(-o Dir::State::status="$W/apt/status" -o Dir::Cache::archives="$W/apt/archives"
      -o APT::Sandbox::User=root -o Debug::NoLocking=1 -o APT::Install-Recommends=false)
list=$(apt-get "${own[@]}" "${apto[@]}" -s install $PKGS | awk '/^Inst/{print $2}' | grep -Ev "$DROP")
log "userland: $(echo $list | wc -w) packages"
(cd "$W/apt/archives"
 missing=$(for p in $list; do ls "${p}"_*.deb >/dev/null 2>&1 || echo "$p"; done)
 [ -z "$missing" ] || get $missing)
rm -rf "$W/root"; mkdir "$W/root"
: > "$IMG/VERSIONS"
echo "$kpkg $(dpkg-deb -f "$W"/kdeb/"$kpkg"_*.deb Version)" >> "$IMG/VERSIONS"
for p in $list; do
  d=$(ls "$W/apt/archives/${p}"_*.deb | tail -1)
  dpkg -x "$d" "$W/root"
  echo "$p $(dpkg-deb -f "$d" Version)" >> "$IMG/VERSIONS"
done
R=$W/root
log "unpacked"
# usr-merge the tree (all of /bin /sbin /lib /lib64 into /usr)
for d in bin sbin lib lib64; do
  if [ -d "$R/$d" ] && [ ! -L "$R/$d" ]; then
    mkdir -p "$R/usr/$d"; cp -a "$R/$d/." "$R/usr/$d/"; rm -rf "${R:?}/$d"
  fi
  mkdir -p "$R/usr/$d"; ln -sfn "usr/$d" "$R/$d"
done
# slim down
rm -rf "$R"/usr/share/{doc,man,locale,lintian,bug,bash-completion,info,zoneinfo,perl*,libmnl,doc-base,man-db} \
       "$R"/usr/include "$R"/usr/lib/{systemd,udev,tmpfiles.d,sysusers.d,modprobe.d} \
       "$R"/usr/lib/"$TRIPLET"/{gconv,perl*,engines-3,ossl-modules,audit} \
       "$R"/usr/lib/bpf "$R"/etc/{systemd,init.d,cron*,apparmor.d} "$R"/var/{cache,lib/dpkg}
rm -f "$R/usr/lib/$TRIPLET"/{libasan*,libtsan*}
ln -sf /usr/share/misc/pci.ids "$R/usr/share/pci.ids" 2>/dev/null || true

# kernel modules (decompressed: quicker to load, signatures kept)
MODS="virtio_pci virtio_console rdma_rxe rdma_ucm ib_umad ib_uverbs ib_ipoib mlx5_core mlx5_ib igb igbvf e1000e
      virtio_net 9p 9pnet_virtio vfio-pci vfio_iommu_type1 vmgenid veth dummy bridge
      8021q macvlan nvme aer_inject einj virtio_rng virtio_blk ext4 af_packet
      tun nf_tables sch_netem sch_tbf sch_htb act_police cls_u32 iptable_filter
      msr qemu_fw_cfg pci-stub cxl_pci cxl_acpi cxl_mem cxl_port loop overlay"
if [ ! -f "$mods/modules.dep" ]; then
  mkdir -p "$W/kb/lib/modules"; rm -rf "$W/kb/lib/modules/$KV"
  cp -al "$mods" "$W/kb/lib/modules/$KV"
  depmod -b "$W/kb" "$KV"
  full=$W/kb/lib/modules/$KV
else full=$mods; fi
DST=$R/usr/lib/modules/$KV; mkdir -p "$DST"
python3 - "$full" $MODS <<'PY' > "$W/modlist"
import sys, os, re
base, want = sys.argv[1], sys.argv[2:]
norm = lambda s: s.replace('-', '_')
dep, name, soft = {}, {}, {}
for l in open(os.path.join(base, 'modules.dep')):
    p, d = l.rstrip('\n').split(':'); dep[p] = d.split()
    name[norm(re.sub(r'\.ko(\.xz|\.zst)?$', '', os.path.basename(p)))] = p
for l in open(os.path.join(base, 'modules.softdep')):
    t = l.split()
    if len(t) > 2 and t[0] == 'softdep':
        soft.setdefault(norm(t[1]), []).extend(x for x in t[2:] if not x.endswith(':'))
out, todo = set(), list(want)
while todo:
    m = norm(todo.pop())
    p = name.get(m)
    if not p or p in out: continue
    out.add(p)
    todo += [re.sub(r'\.ko(\.xz|\.zst)?$', '', os.path.basename(x)) for x in dep[p]]
    todo += soft.get(m, [])
# crc32 implementations are needed by rxe through the crypto API
print('\n'.join(sorted(out | {p for p in dep if re.search(r'crypto/(crc32|.*crc32)[^/]*\.ko', p)})))
PY
while read -r m; do
  mkdir -p "$DST/$(dirname "$m")"
  case $m in
    *.xz)  xz  -dc "$full/$m" > "$DST/${m%.xz}" ;;
    *.zst) zstd -dcq "$full/$m" > "$DST/${m%.zst}" ;;
    *)     cp "$full/$m" "$DST/$m" ;;
  esac
done < "$W/modlist"
# labib: stand-in IB/RoCE provider (see provider/labib.c)
hp=linux-headers-$KV
hpk="$hp $(apt-cache "${own[@]}" depends "$hp" | sed -n 's/^ *Depends: \(linux-headers-[^ ]*-common\|linux-kbuild-[^ ]*\)$/\1/p' | tr '\n' ' ')"
mkdir -p "$W/hdeb"
(cd "$W/hdeb"
 missing=$(for p in $hpk; do ls "${p}"_*.deb >/dev/null 2>&1 || echo "$p"; done)
 [ -z "$missing" ] || get $missing)
rm -rf "$W/h" "$W/labib"; mkdir "$W/h"
for p in $hpk; do dpkg -x "$(ls "$W/hdeb/${p}"_*.deb | tail -1)" "$W/h"; done
if [ "$ARCH" != amd64 ]; then                        # the programs that build have to run here
  kbuild=$(tr ' ' '\n' <<<"$hpk" | grep ^linux-kbuild-)
  mkdir -p "$W/kbuild"
  (cd "$W/kbuild" && own=() && { ls "$kbuild"_*.deb >/dev/null 2>&1 || get "$kbuild"; })
  dpkg -x "$(ls "$W/kbuild/$kbuild"_*.deb | tail -1)" "$W/h"
fi
H=$W/h/usr/src/$hp
sed -i "s#/usr/src/#$W/h/usr/src/#g" "$H/Makefile"
rm -f "$H/vmlinux"                                   # no BTF for the module
cp -r "$here/provider" "$W/labib"
if make -s -C "$H" M="$W/labib" "${MAKE[@]}" modules > "$W/labib.log" 2>&1; then
  mkdir -p "$DST/extra"; "$TRIPLET-strip" --strip-debug "$W/labib/labib.ko"
  cp "$W/labib/labib.ko" "$DST/extra/"; log "labib.ko built"
else
  log "labib.ko not built: $(tail -3 "$W/labib.log" | tr '\n' ' ')"; exit 1
fi
cp "$full"/modules.{order,builtin,builtin.modinfo} "$DST/" 2>/dev/null || true
depmod -b "$R/usr" "$KV" 2>/dev/null || depmod -b "$R" "$KV"
log "$(wc -l < "$W/modlist") modules"

# init + agent
ln -sf bash "$R/usr/bin/sh"   # busybox sh would prefer its own ip, ps ... applets
for a in $($RUN "$R/usr/bin/busybox" --list); do
  case $a in ip|modprobe|insmod|rmmod|lsmod|depmod|modinfo|lspci|ps|top|free|watch|sysctl|bash|init|linuxrc|reboot|poweroff|halt) continue;; esac
  [ -e "$R/usr/bin/$a" ] || [ -e "$R/usr/sbin/$a" ] || ln -s busybox "$R/usr/bin/$a"
done
for a in poweroff reboot halt; do ln -sf ../bin/busybox "$R/usr/sbin/$a"; done
mkdir -p "$R"/{proc,sys,dev,run,tmp,root,etc,mnt,lab,inject,var/log,var/run,etc/rdma}
install -m755 "$here/guest/init.sh" "$R/init"
install -m755 "$here/guest/capture.sh" "$R/usr/bin/lab-capture"
install -m755 "$here/guest/names.sh" "$R/usr/bin/lab-names"
echo 'root:x:0:0:root:/root:/bin/sh' > "$R/etc/passwd"
printf 'root:x:0:\nrdma:x:101:\n' > "$R/etc/group"
echo rdmalab > "$R/etc/hostname"
printf '127.0.0.1 localhost rdmalab\n' > "$R/etc/hosts"
printf 'NAME="rdmalab"\nID=rdmalab\n' > "$R/etc/os-release"
mkdir -p "$R/etc/libibverbs.d"
chroot "$R" /sbin/ldconfig 2>/dev/null || "$R/sbin/ldconfig" -r "$R" 2>/dev/null || ldconfig -r "$R" || true

( cd "$R" && find . -print0 | sort -z | cpio --null -o -H newc -R 0:0 --quiet ) > "$IMG/initrd.cpio"
log "initrd $(stat -c %s "$IMG/initrd.cpio") bytes"
# what was unpacked; the packages stay for the next time
rm -rf "$W/k" "$W/kb" "$W/h" "$W/labib" "$W/root"
log done
