#!/usr/bin/env python3
"""The lab's virtual machines: QEMU with software emulation, a stock Debian kernel, and commands run in it.

    machine.py      reads calls as JSON, one a line, and answers each with a line:
                    {"vm": "a", "call": "sh", "args": {"cmd": "uname -r"}}  ->  {"ok": [0, "6.12...\n"]} or {"error": "..."}

`boot` starts the machine named by `vm`; every other call is a method of Lab. All machines end with their caller: when
standard input ends, or their caller is gone, they are powered off; the kernel kills them should this process die.
"""
import base64, ctypes, json, os, re, shutil, signal, socket, struct, subprocess, sys, tempfile, threading, time

sys.dont_write_bytecode = True      # nothing is left in the folder of the sources
import snapshots

LAB = os.environ.get('LAB_DIR', '/tmp/lab')

LIFE = 15 * 60      # seconds that any scenario may take; nothing of it is left after that
ANSWER = 120        # seconds that QEMU's monitor may take for an answer

KIND = '6c616e65-7761-7463-682d-6c6162000001'

SPEED = {1: '2.5', 2: '5.0', 3: '8.0', 4: '16.0', 5: '32.0', 6: '64.0'}


def cpio_newc(files):
    """files: list of (name, mode, data) -> bytes of a newc archive"""
    out, ino = bytearray(), 100
    for name, mode, data in files + [('TRAILER!!!', 0, b'')]:
        ino += 1
        nm = name.encode() + b'\0'
        h = '070701' + ''.join('%08X' % v for v in (
            ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(nm), 0))
        out += h.encode() + nm
        out += b'\0' * (-len(out) % 4)
        out += data
        out += b'\0' * (-len(out) % 4)
    out += b'\0' * (-len(out) % 512)
    return bytes(out)


def dir_to_cpio(path, prefix):
    files = [(prefix, 0o040755, b'')]
    for root, dirs, names in os.walk(path):
        dirs.sort()
        rel = os.path.relpath(root, path)
        base = prefix if rel == '.' else prefix + '/' + rel
        for d in list(dirs):
            p = os.path.join(root, d)
            if os.path.islink(p):
                files.append((base + '/' + d, 0o120777, os.readlink(p).encode()))
            else:
                files.append((base + '/' + d, 0o040755, b''))
        for n in sorted(names):
            p = os.path.join(root, n)
            if os.path.islink(p):
                files.append((base + '/' + n, 0o120777, os.readlink(p).encode()))
            elif os.path.isfile(p):
                files.append((base + '/' + n, 0o100000 | (os.stat(p).st_mode & 0o777),
                              open(p, 'rb').read()))
    return cpio_newc(files)


LIBC, SELF = ctypes.CDLL(None), os.getpid()


def die_with_parent():
    LIBC.prctl(1, signal.SIGKILL)       # PR_SET_PDEATHSIG
    if os.getppid() != SELF:            # it died before that
        os._exit(1)


class LabError(Exception):
    pass


class Lab:
    """One guest.  Default hardware:
      4 vCPUs = 2 sockets x 2 cores, NUMA node 0 = cpu 0-1, node 1 = cpu 2-3
      rp0 (pcie-root-port, node 0) -> igb0 (82576 with SR-IOV, 7 VFs)
      rp1 (behind a pxb-pcie on node 1) -> igb1
      rp2 empty hot-plug slot; intel-iommu with interrupt remapping; vmgenid
      arch='aarch64': QEMU's virt board instead of q35, with a GICv3 and its ITS, UEFI and ACPI, without IOMMU and vmgenid; the
      kernel ignores the nodes, as Debian 12's firmware passes flash memory as memory of no node
      devicetree=True: without UEFI, described by a devicetree, which has no pxb-pcie: all cards are on one bridge, of node 1
      virtio-net management NIC; igb0 and igb1 share one L2 segment
    """
    rp = {'rp0': ('8', '8'), 'rp1': ('16', '16'), 'rp2': ('8', '8')}   # x-speed, x-width

    def __init__(self, image=None, inject=None, mem=1536, smp=4, rp=None, iommu=True,
                 nvme=False, hostfwd=(), share=None, cmdline='', mods='igb,virtio_net', extra=(),
                 link=None, mac=0, incoming=None, vmgenid='auto', acpi_hotplug=False,
                 arch='x86_64', devicetree=False, cpu=None, tcg_thread='single', console=None, workdir=None,
                 igb0=True, igb1=True, timeout=180, kernel=None, verbose=False, name='lab', rtc=None,
                 start=True, boot_timeout=120, retries=3, cache=None, saved=False):
        self.boot_timeout, self.retries = boot_timeout, retries
        self.cache, self.saved = cache, saved and cache
        self.image = image or os.path.join(LAB, 'image')
        self.dir = workdir or tempfile.mkdtemp(prefix='lab-')
        self.own_dir = workdir is None
        self.t0 = time.time()
        self.n = 0
        self.verbose = verbose
        self.timeout = timeout
        self.proc = None
        self.events = []
        d = self.dir
        initrd = snapshots.initrd(self.image, dir_to_cpio(inject, 'inject') if inject else b'', cache or d)
        kern = kernel or os.path.join(self.image, 'vmlinux')
        if not os.path.exists(kern):
            kern = os.path.join(self.image, 'vmlinuz')
        self.program = shutil.which('qemu-system-' + arch)
        arm = arch == 'aarch64'
        if arm:
            iommu, vmgenid = False, None
        if self.saved and vmgenid == 'auto' and not incoming:
            vmgenid = KIND                # the same in all machines of a kind: to go on from its boot is no fork
        rp = dict(self.rp, **(rp or {}))
        self.console_path = console or os.path.join(d, 'console.log')
        half = mem // 2
        cl = ('loglevel=6 panic=-1 nokaslr mitigations=off cryptomgr.notests random.trust_cpu=on '
              'rcupdate.rcu_expedited=1 net.ifnames=0 lab.mods=%s ' % mods)
        cl += 'console=ttyAMA0 ' if arm else 'console=ttyS0 no_timer_check tsc=reliable lpj=4000000 '
        if iommu:
            cl += 'intel_iommu=on '
        cl += cmdline
        a = [self.program, '-name', name, '-nodefaults', '-no-user-config', '-display', 'none',
             '-machine', ('virt,gic-version=3,its=on,acpi=%s' % ('off' if devicetree else 'on')) if arm else 'q35',
             '-accel', 'tcg,thread=%s,tb-size=256' % tcg_thread,
             '-cpu', cpu or ('cortex-a76' if arm else 'max,la57=off'), '-m', str(mem),
             '-no-reboot',
             '-kernel', kern, '-initrd', initrd, '-append', cl.strip(),
             '-chardev', 'file,id=con,path=%s' % self.console_path,
             '-serial', 'chardev:con',
             '-qmp', 'unix:%s/qmp,server=on,wait=off' % d,
             '-device', 'virtio-serial-pci,bus=pcie.0,id=vser,disable-legacy=on',
             '-chardev', 'socket,id=ctl,path=%s/ctl,server=on,wait=off' % d,
             '-device', 'virtserialport,chardev=ctl,name=lab.ctl']
        if smp >= 4:
            a += ['-smp', '%d,sockets=2,cores=%d,threads=1' % (smp, smp // 2),
                  '-object', 'memory-backend-ram,id=m0,size=%dM' % half,
                  '-object', 'memory-backend-ram,id=m1,size=%dM' % half,
                  '-numa', 'node,nodeid=0,cpus=0-%d,memdev=m0' % (smp // 2 - 1),
                  '-numa', 'node,nodeid=1,cpus=%d-%d,memdev=m1' % (smp // 2, smp - 1),
                  '-numa', 'dist,src=0,dst=1,val=21', '-numa', 'dist,src=1,dst=0,val=21']
        else:
            a += ['-smp', str(smp)]
        if iommu:
            a += ['-device', 'intel-iommu,intremap=on,caching-mode=on,device-iotlb=off']
        if arm and not devicetree:
            a += ['-bios', '/usr/share/qemu-efi-aarch64/QEMU_EFI.fd']
        if not acpi_hotplug and not arm:      # native PCIe hot-plug (pciehp) on the root ports
            a += ['-global', 'ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off']
        if vmgenid:
            a += ['-device', 'vmgenid,guid=%s,id=vmgenid0' % vmgenid]
        # ports
        def port(i, nm, bus):
            s, w = rp[nm]
            return ['-device', 'pcie-root-port,id=%s,bus=%s,chassis=%d,slot=%d,x-speed=%s,x-width=%s'
                    % (nm, bus, i + 1, i + 1, s, w)]
        bus0 = bus1 = 'pcie.0'
        if smp >= 4 and not devicetree:       # devices on pcie.0 itself have numa_node -1
            a += ['-device', 'pxb-pcie,id=pxb0,bus=pcie.0,bus_nr=64,numa_node=0',
                  '-device', 'pxb-pcie,id=pxb1,bus=pcie.0,bus_nr=128,numa_node=1']
            bus0, bus1 = 'pxb0', 'pxb1'
        a += port(0, 'rp0', bus0) + port(1, 'rp1', bus1) + port(2, 'rp2', bus0)
        # NICs
        fw = ''.join(',hostfwd=tcp:127.0.0.1:%d-:%d' % (h, g) for h, g in hostfwd)
        a += ['-netdev', 'user,id=mgmt,restrict=on%s' % fw if fw else 'user,id=mgmt,restrict=on',
              '-device', 'virtio-net-pci,bus=pcie.0,netdev=mgmt,mac=52:54:00:00:00:%02x,romfile=' % (0x10 + mac)]
        a += ['-netdev', 'hubport,id=h0,hubid=1']
        if igb0:
            a += ['-device', 'igb,id=igb0,bus=rp0,netdev=h0,mac=52:54:00:aa:%02x:00,romfile=' % mac]
        if igb1:
            a += ['-netdev', 'hubport,id=h1,hubid=1',
                  '-device', 'igb,id=igb1,bus=rp1,netdev=h1,mac=52:54:00:bb:%02x:00,romfile=' % mac]
        if link:                  # join the L2 segment of another guest: ('listen'|'connect', path)
            how, path = link
            a += ['-netdev', 'stream,id=x0,server=%s,addr.type=unix,addr.path=%s'
                  % ('on' if how == 'listen' else 'off', path),
                  '-netdev', 'hubport,id=hx,hubid=1,netdev=x0']
        if nvme:
            a += ['-device', 'pcie-root-port,id=rp3,bus=%s,chassis=4,slot=4,x-speed=16,x-width=4' % bus1,
                  '-device', 'nvme-subsys,id=sub0',
                  '-device', 'nvme,id=nvme0,bus=rp3,serial=lab0,subsys=sub0,sriov_max_vfs=4,'
                  'sriov_vq_flexible=8,sriov_vi_flexible=4,max_ioqpairs=18,msix_qsize=19']
        if share:
            a += ['-fsdev', 'local,id=fs0,path=%s,security_model=none' % share,
                  '-device', 'virtio-9p-pci,bus=pcie.0,fsdev=fs0,mount_tag=lab']
        if rtc:
            a += ['-rtc', rtc]
        if incoming:
            a += ['-incoming', incoming]
        a += list(extra)
        self.args = a
        self.share = share
        self.incoming = incoming
        if arm and devicetree:
            self.args += ['-dtb', self.devicetree()]
        if start:
            self.begin()

    def devicetree(self):
        """QEMU's own, with a node for its PCI host bridge"""
        path = os.path.join(self.dir, 'dtb')
        args = [a + ',dumpdtb=' + path if a.startswith('virt,') else a for a in self.args]
        subprocess.run(args, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.err_log())
        bridge = next(l for l in subprocess.run(['fdtget', '-l', path, '/'], check=True, capture_output=True,
                                                text=True).stdout.split() if l.startswith('pcie@'))
        subprocess.run(['fdtput', '-t', 'u', path, '/' + bridge, 'numa-node-id', '1'], check=True)
        return path

    # -- life cycle ----------------------------------------------------------
    def begin(self):
        """boots it, or goes on from where such a machine was saved after its boot"""
        try:
            if self.saved and not self.incoming:
                snapshots.begin(self)
            else:
                self.start()
        except Exception as error:
            self.kill()              # leave no QEMU behind
            raise LabError('%r; qemu: %s' % (error, open(os.path.join(self.dir, 'qemu.err')).read()))
        except BaseException:
            self.kill()
            raise

    def start(self):
        self.t0 = time.time()
        self.err = self.err_log()
        self.proc = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=self.err, stderr=self.err,
                                     preexec_fn=die_with_parent)
        self._qmp = self._connect('qmp')
        self._qmp.settimeout(ANSWER)
        self._qf = self._qmp.makefile('rwb')
        json.loads(self._qf.readline())
        self.qmp('qmp_capabilities')
        self._ctl = self._connect('ctl')
        self._ctl.settimeout(self.timeout)
        self._cf = self._ctl.makefile('rb')
        if not self.incoming:
            try:
                self._ctl.settimeout(self.boot_timeout)
                self.wait_ready()
                self.sh(snapshots.TICKS, check=True)
                self._ctl.settimeout(self.timeout)
            except LabError:
                # now and then a vCPU never gets its first timer tick under
                # emulation; nothing has been done in the guest yet: start again
                if self.retries <= 0:
                    raise
                self.retries -= 1
                self.kill()
                return self.start()
            if self.share:
                self.sh('modprobe 9pnet_virtio; modprobe 9p; mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 lab /lab', check=True)

    def err_log(self):
        return open(os.path.join(self.dir, 'qemu.err'), 'a')

    def wait_ready(self):
        line = self._readline()
        if not line.startswith('READY'):
            raise LabError('unexpected: %r' % line)
        self.boot_s = time.time() - self.t0
        self.guest_boot_s = float(line.split()[1])

    def _connect(self, nm):
        path = os.path.join(self.dir, nm)
        for _ in range(200):
            if self.proc.poll() is not None:
                raise LabError('qemu exited: ' + open(os.path.join(self.dir, 'qemu.err')).read())
            try:
                s = socket.socket(socket.AF_UNIX); s.connect(path); return s
            except OSError:
                s.close(); time.sleep(0.05)
        raise LabError('cannot connect ' + nm)

    def _readline(self):
        try:
            l = self._cf.readline()
        except socket.timeout:
            raise LabError('guest silent for %ds; console tail:\n%s' % (self.timeout, self.console()[-3000:]))
        if not l:
            raise LabError('guest gone; console tail:\n' + self.console()[-3000:])
        return l.decode().rstrip('\n')

    def console(self):
        try:
            return open(self.console_path, errors='replace').read()
        except OSError:
            return ''

    # -- guest ---------------------------------------------------------------
    def sh(self, cmd, check=False, timeout=None):
        self.n += 1
        if timeout:
            self._ctl.settimeout(timeout)
        self._ctl.sendall(('%d %s\n' % (self.n, base64.b64encode((cmd + '\n').encode()).decode())).encode())
        while True:
            l = self._readline()
            if l.startswith('B %d ' % self.n):
                break
        _, _, rc, nb = l.split()
        data = base64.b64decode(self._cf.read(int(nb)))
        self._readline()
        if timeout:
            self._ctl.settimeout(self.timeout)
        text = data.decode('utf-8', 'replace')
        if check and int(rc):
            raise LabError('rc %s from %r: %s' % (rc, cmd, text))
        return int(rc), text

    def out(self, cmd):
        return self.sh(cmd)[1]

    def get(self, path):
        """bytes of a guest file"""
        self.n += 1
        self.out('base64 %s > /run/get.b64 2>/dev/null; true' % path)
        return base64.b64decode(self.out('cat /run/get.b64'))

    def capture(self, name, to):
        """run lab-capture in the guest and save NAME.tar.gz in the host folder `to`"""
        self.sh('lab-capture ' + name, check=True, timeout=300)
        p = os.path.join(to, name + '.tar.gz')
        with open(p, 'wb') as f:
            f.write(self.get('/out/%s.tar.gz' % name))
        return p

    # -- monitor ---------------------------------------------------------------
    def qmp(self, cmd, **args):
        m = {'execute': cmd}
        if args:
            m['arguments'] = {k.replace('_', '-') if k not in ('command_line',) else 'command-line': v
                              for k, v in args.items()}
        self._qf.write(json.dumps(m).encode() + b'\n'); self._qf.flush()
        while True:
            l = self._qf.readline()
            if not l:
                raise LabError('qmp closed')
            r = json.loads(l)
            if 'event' in r:
                self.events.append(r); continue
            if 'error' in r:
                raise LabError('%s: %s' % (cmd, r['error']['desc']))
            return r['return']

    def hmp(self, line):
        return self.qmp('human-monitor-command', command_line=line)

    def wait_event(self, name, timeout=120):
        end = time.time() + timeout
        while time.time() < end:
            for i, e in enumerate(self.events):
                if e['event'] == name:
                    return self.events.pop(i)
            self.qmp('query-status')
            time.sleep(0.2)
        raise LabError('no event ' + name)

    # -- PCI config space fault injection ---------------------------------------
    # QEMU keeps each function's config space in a heap buffer.  A link that
    # trained below its capability cannot be asked for on the command line, so
    # write LnkSta (or LnkCap) there: the guest then reads it as if the device
    # reported it.  The buffer is found by its contents.
    def _config_bufs(self, pat, size=4096):
        hits = []
        pid = self.proc.pid
        with open('/proc/%d/maps' % pid) as m, open('/proc/%d/mem' % pid, 'rb', 0) as mem:
            for l in m:
                f = l.split()
                lo, hi = (int(x, 16) for x in f[0].split('-'))
                if 'rw' not in f[1] or hi - lo > 400 << 20 or (len(f) > 5 and f[5].startswith(('/', '[v'))):
                    continue
                try:
                    mem.seek(lo); data = mem.read(hi - lo)
                except (OSError, ValueError):
                    continue
                for x in re.finditer(pat, data, re.S):
                    hits.append((lo + x.start(), data[x.start():x.start() + size]))
        return hits

    @staticmethod
    def pcie_cap(cfg):
        p = cfg[0x34]
        for _ in range(48):
            if not p:
                return None
            if cfg[p] == 0x10:
                return p
            p = cfg[p + 1]
        return None

    def find_config(self, vendor, device, slot_id=None, want=None):
        """list of (address, 4096 bytes) of config spaces with that vendor:device;
        want(cfg) narrows it"""
        pat = re.escape(struct.pack('<HH', vendor, device))
        out = []
        for a, c in self._config_bufs(pat):
            if len(c) < 4096 or c[0x0b] not in (0x01, 0x02, 0x06, 0x05, 0x08) or not (c[0x06] & 0x10):
                continue
            cap = self.pcie_cap(c)
            if cap is None or (want and not want(c)):
                continue
            out.append((a, c))
        return out

    def poke(self, addr, data):
        with open('/proc/%d/mem' % self.proc.pid, 'r+b', 0) as mem:
            mem.seek(addr); mem.write(data)

    def bar0(self, bdf, guest_cmd='lspci'):
        t = self.out('setpci -s %s BASE_ADDRESS_0' % bdf).strip()
        return int(t, 16)

    def config_of(self, bdf):
        """(address in the QEMU process, 4096 bytes) of the config space that the guest sees at bdf"""
        ids = int(self.out('setpci -s %s 0.l' % bdf), 16)
        if int(self.out('setpci -s %s e.b' % bdf), 16) & 0x7f == 1:     # bridge: by bus numbers
            key = int(self.out('setpci -s %s 18.l' % bdf), 16) & 0xffffff
            want = lambda c: struct.unpack_from('<I', c, 0x18)[0] & 0xffffff == key
        else:
            bar = int(self.out('setpci -s %s 10.l' % bdf), 16) & ~0xf
            want = lambda c: struct.unpack_from('<I', c, 0x10)[0] & ~0xf == bar
        hits = self.find_config(ids & 0xffff, ids >> 16, want=want)
        if len(hits) != 1:
            raise LabError('%d config spaces match %s' % (len(hits), bdf))
        return hits[0]

    def poke_config(self, bdf, off, value, size=2, mask=None, cap=True):
        """write value at off (from the PCIe capability, or with cap=False from 0)"""
        addr, c = self.config_of(bdf)
        base = self.pcie_cap(c) if cap else 0
        fmt = {1: '<B', 2: '<H', 4: '<I'}[size]
        old, = struct.unpack_from(fmt, c, base + off)
        new = value if mask is None else old & ~mask | value & mask
        self.poke(addr + base + off, struct.pack(fmt, new))
        return old, new

    def poke_link(self, bdf, speed=None, width=None, cap_speed=None, cap_width=None):
        """Set LnkSta (speed: 1=2.5GT/s .. 6=64GT/s, width in lanes) and/or LnkCap.
        current_* are read from the device every time; the kernel (6.12) keeps the
        maximum speed from enumeration, so after a cap_speed call do
        'echo 1 > remove; echo 1 > /sys/bus/pci/rescan' in the guest (fake_link does)."""
        if cap_speed:
            self.poke_config(bdf, 0x0c, cap_speed, 4, 0xf)
            self.poke_config(bdf, 0x2c, ((1 << cap_speed) - 1) << 1, 4)     # LnkCap2
            self.poke_config(bdf, 0x30, cap_speed, 2, 0xf)                  # LnkCtl2 target
        if cap_width:
            self.poke_config(bdf, 0x0c, cap_width << 4, 4, 0x3f0)
        if speed:
            self.poke_config(bdf, 0x12, speed, 2, 0xf)
        if width:
            self.poke_config(bdf, 0x12, width << 4, 2, 0x3f0)

    def fake_link(self, bdf, speed, width, cap_speed=None, cap_width=None):
        """make the endpoint at bdf a card of cap_speed x cap_width that runs at speed x width"""
        self.poke_link(bdf, speed, width, cap_speed or speed, cap_width or width)
        self.sh('echo 1 > /sys/bus/pci/devices/0000:%s/remove; sleep 0.3; '
                'echo 1 > /sys/bus/pci/rescan; sleep 0.5; lab-names' % bdf)

    def enable_error_reports(self, bdf):
        """igb's DevCtl is read-only in QEMU; without these bits injected errors stay silent"""
        self.poke_config(bdf, 0x08, 0xf, 2, 0xf)

    # -- end -------------------------------------------------------------------
    def kill(self):
        if self.proc and self.proc.poll() is None:
            self.proc.kill(); self.proc.wait()
        for f in ('qmp', 'ctl'):
            try:
                os.unlink(os.path.join(self.dir, f))
            except OSError:
                pass

    def close(self):
        if self.proc and self.proc.poll() is None:
            try:
                self._qf.write(b'{"execute": "quit"}\n'); self._qf.flush()
                self.proc.wait(5)
            except Exception:
                self.proc.kill(); self.proc.wait()
        self.clean()

    def clean(self):
        if self.own_dir:
            shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.close()


def migrate(machines, old, new, options):
    """Saves `old` to a file and goes on with it as `new` in another process: what a guest sees of a live migration."""
    source = machines[old]
    image = os.path.join(source.dir, 'state')
    snapshots.save(source, image)
    source.kill()
    target = Lab(incoming='file:' + image, **options)
    machines[new] = target
    snapshots.wait_until_running(target)
    target.n = source.n
    if old != new:
        machines.pop(old)
    source.close()


def watch(machines, caller):
    """Ends everything when the caller is gone, whatever is being waited for, and after the longest life."""
    end = time.monotonic() + LIFE
    while os.getppid() == caller and time.monotonic() < end:
        time.sleep(0.5)
    for machine in list(machines.values()):
        machine.retries = 0
        machine.kill()
        machine.clean()
    os._exit(1)


def serve():
    machines = {}
    threading.Thread(target=watch, args=(machines, os.getppid()), daemon=True).start()
    try:
        for line in sys.stdin:
            request = json.loads(line)
            vm, call, args = request['vm'], request['call'], request.get('args', {})
            try:
                if call == 'boot':
                    machines[vm] = Lab(start=False, **args)     # known before it runs: it ends with this process
                    machines[vm].begin()
                    result = None
                elif call == 'migrate':
                    result = migrate(machines, vm, args['to'], args['options'])
                else:
                    result = getattr(machines[vm], call)(**args)
                answer = {'ok': base64.b64encode(result).decode() if isinstance(result, bytes) else result}
            except Exception as error:              # the caller decides; this process serves on
                answer = {'error': '%s: %s' % (type(error).__name__, error)}
            print(json.dumps(answer), flush=True)
    finally:
        for machine in machines.values():
            machine.close()


if __name__ == '__main__':
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    serve()
