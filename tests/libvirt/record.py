#!/usr/bin/env python3
"""Records what a real libvirtd writes of a machine while it is started, saved, restored, moved, and ended.

    record.py WORK > timeline

Two libvirtd run side by side, `a` and `b`, each with its own directories below WORK. The machine has no disk and is
emulated. `record.sh` makes the namespaces in which this harms nobody and reaches no network.

A line of the result is `## step`, or who wrote and what:

    a status <domstatus ...>      a status file as it was replaced, shortened to what names the machine and its state
    a started, a ended            QEMU made its pid file; it closed it, which it keeps open while it lives
    a gone                        the status file was removed
"""
import ctypes, os, re, signal, struct, subprocess, sys, threading, time

WORK = sys.argv[1]
LIBC = ctypes.CDLL(None)
OUT = threading.Lock()
MACHINE = """<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
<name>vm1</name><uuid>0f7a2c1e-5f0d-4c8e-9a55-6b2a3c4d5e6f</uuid><memory unit='MiB'>96</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type></os><features><acpi/></features>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator><controller type='usb' model='none'/><memballoon model='none'/></devices>
<qemu:commandline><qemu:arg value='-device'/><qemu:arg value='loader,file=%s/noise,addr=0x1000000,force-raw=on'/></qemu:commandline>
</domain>"""


def say(line):
    with OUT:
        print(line, flush=True)


def step(name):
    time.sleep(1)
    say('## ' + name)


class Host:
    def __init__(self, name):
        self.name, self.dir = name, os.path.join(WORK, name)
        for part in ('run/qemu', 'etc/qemu', 'lib', 'log', 'cache'):
            os.makedirs(os.path.join(self.dir, part))
        with open(self.dir + '/etc/libvirtd.conf', 'w') as file:
            file.write('auth_unix_rw="none"\nauth_unix_ro="none"\nunix_sock_group="root"\n'
                       'host_uuid="11111111-2222-4333-8444-55555555555%s"\n' % name)
        with open(self.dir + '/etc/qemu.conf', 'w') as file:
            file.write('user="root"\ngroup="root"\nsecurity_driver="none"\ncgroup_controllers=[]\nnamespaces=[]\n'
                       'stdio_handler="file"\nremember_owner=0\n')
        threading.Thread(target=self.watch, daemon=True).start()
        self.begin()

    def begin(self):
        mounts = ['mount --bind %s/%s %s' % (self.dir, part, at) for part, at in (
            ('run', '/run/libvirt'), ('etc', '/etc/libvirt'), ('lib', '/var/lib/libvirt'),
            ('log', '/var/log/libvirt'), ('cache', '/var/cache/libvirt'))]
        script = ' && '.join(['mount --make-rprivate /',
                              'mkdir -p /run/libvirt /etc/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt',
                              *mounts, 'exec libvirtd -p /run/libvirt/libvirtd-%s.pid' % self.name])
        log = open(self.dir + '.log', 'a')
        self.process = subprocess.Popen(['unshare', '-m', 'bash', '-c', script], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(600):
            if self.virsh('version') == 0:
                return
            time.sleep(0.1)
        sys.exit('libvirtd %s does not respond: %s' % (self.name, open(self.dir + '.log').read()))

    def restart(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.begin()

    def uri(self):
        return 'qemu+unix:///system?socket=%s/run/libvirt-sock' % self.dir

    def start_virsh(self, *words):
        return subprocess.Popen(['virsh', '-q', '-c', self.uri(), *words], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def virsh(self, *words):
        command = self.start_virsh(*words)
        error = command.communicate()[1]
        if command.returncode and words[0] != 'version':
            print('%s: virsh %s: %s' % (self.name, ' '.join(words), error.strip()), file=sys.stderr)
        return command.returncode

    def must(self, *words):
        if self.virsh(*words):
            sys.exit(1)

    def pid(self):
        return int(open(self.dir + '/run/qemu/vm1.pid').read())

    def status(self):
        try:
            return open(self.dir + '/run/qemu/vm1.xml').read()
        except OSError:
            return ''

    def until(self, part):
        for _ in range(1200):
            if part in self.status():
                return
            time.sleep(0.05)
        sys.exit('%s: no %r in %s' % (self.name, part, self.status()[:2000]))

    def watch(self):
        """libvirt renames a new file over the old one: each is read when it appears"""
        folder = self.dir + '/run/qemu'
        events = LIBC.inotify_init1(0)
        LIBC.inotify_add_watch(events, folder.encode(), 0x8 | 0x80 | 0x100 | 0x200)     # CLOSE_WRITE, MOVED_TO, CREATE, DELETE
        last = None
        while True:
            data, at = os.read(events, 65536), 0
            while at < len(data):
                _, mask, _, length = struct.unpack_from('iIII', data, at)
                name = data[at + 16:at + 16 + length].rstrip(b'\0').decode()
                at += 16 + length
                if name == 'vm1.pid':
                    if mask & 0x108:
                        say('%s %s' % (self.name, 'started' if mask & 0x100 else 'ended'))
                elif name == 'vm1.xml':
                    now = self.short(self.status()) if not mask & 0x200 else 'gone'
                    if now and now != last:
                        last = now
                        say('%s %s' % (self.name, now))

    def short(self, text):
        status, job = re.search(r'<domstatus [^>]*>', text), re.search(r'<job ([^>]*?)/?>', text)
        domain = re.search(r"<domain [^>]*?(id='\d+')", text)
        if not status:
            return None
        words = re.sub(r" asyncStarted='\d+'", '', '<job %s/>' % job[1]) if job else ''
        return "status %s%s<domain type='qemu'%s><name>vm1</name></domain></domstatus>" \
            % (status[0], words, ' ' + domain[1] if domain else '')


def move(source, to, *flags):
    return source.start_virsh('migrate', '--live', *flags, 'vm1', to.uri(), 'tcp://127.0.0.1')


def moved(command):
    error = command.communicate()[1]
    if command.returncode:
        sys.exit('the migration failed: ' + error)


def main():
    subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)
    os.makedirs(WORK, exist_ok=True)
    with open(WORK + '/noise', 'wb') as file:       # memory that takes a while to send
        file.write(os.urandom(32 << 20))
    with open(WORK + '/vm1.xml', 'w') as file:
        file.write(MACHINE % WORK)
    a, b = Host('a'), Host('b')
    print('# Recorded by tests/libvirt/record.sh from libvirt %s.' % subprocess.run(
        ['libvirtd', '--version'], capture_output=True, text=True).stdout.split()[-1], flush=True)
    step('start')
    a.must('define', WORK + '/vm1.xml')
    a.must('start', 'vm1')
    step('managed save')
    a.must('managedsave', 'vm1')
    step('restore')
    a.must('start', 'vm1')
    step('suspend and resume')
    a.must('suspend', 'vm1')
    a.must('resume', 'vm1')
    step('libvirtd restarts')
    a.restart()
    step('migrate')
    moved(move(a, b))
    step('cancel a migration')
    command = move(b, a, '--bandwidth', '1')
    b.until("phase='perform3'")
    time.sleep(2)
    b.must('domjobabort', 'vm1')
    command.communicate()
    step('the destination fails')
    command = move(b, a, '--bandwidth', '1')
    b.until("phase='perform3'")
    time.sleep(2)
    os.kill(a.pid(), signal.SIGKILL)
    command.communicate()
    step('post-copy')
    command = move(b, a, '--bandwidth', '1', '--postcopy', '--postcopy-bandwidth', '8')
    b.until("phase='perform3'")
    time.sleep(2)
    b.must('migrate-postcopy', 'vm1')
    moved(command)
    step('kill QEMU')
    os.kill(a.pid(), signal.SIGKILL)
    for _ in range(100):
        if not a.status():
            break
        time.sleep(0.1)
    step('destroy')
    a.must('start', 'vm1')
    time.sleep(1)
    a.must('destroy', 'vm1')
    step('end')
    for host in (a, b):
        host.process.terminate()


main()
