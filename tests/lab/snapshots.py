"""Machines that are saved: to go on as another process, and once after its boot for all that are of its kind.

A boot is most of what a short scenario takes, and the one step that emulation does not always survive.
"""
import fcntl, glob, hashlib, os, re, shutil, time

SAVING = 300        # seconds that writing a machine's state may take
LOADING = 120       # and reading it
OLD = 300           # seconds after which what another build of the program left may go

# Every CPU can sleep and wakes again: its timer works.
TICKS = 'for c in $(seq 0 $(($(nproc) - 1))); do taskset -c $c sleep 0.02 || exit 1; done'


def save(lab, path):
    """writes the state of a machine, which stands still from then on"""
    lab.qmp('migrate-set-parameters', max_bandwidth=4 << 30)
    lab.qmp('migrate', uri='file:' + path)
    end = time.monotonic() + SAVING
    while True:
        status = lab.qmp('query-migrate')
        if status['status'] == 'completed':
            return
        if status['status'] == 'failed' or time.monotonic() > end:
            raise RuntimeError('not saved: %s' % status)
        time.sleep(.05)


def wait_until_running(lab):
    end = time.monotonic() + LOADING
    while lab.qmp('query-status')['status'] != 'running':
        if time.monotonic() > end:
            raise RuntimeError('the machine that was loaded does not run')
        time.sleep(.05)


def begin(lab):
    """has the machine as it is after its boot, from its kind's saved state if that can be"""
    path = saved_path(lab)
    for _ in range(2):
        try:
            if not os.path.exists(path):
                make(lab, path)
            return load(lab, path)
        except Exception as error:      # another try, and then as a machine that nothing is saved of
            lab.kill()
            print('%s: %r' % (path, error), file=lab.err_log(), flush=True)
            if os.path.exists(path):
                os.unlink(path)
    lab.start()


def make(lab, path):
    with open(path.rsplit('-', 1)[0] + '.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(path):        # another has just made it
            return
        lab.start()
        forget_older(path)
        save(lab, path + '.part')
        lab.kill()
        os.rename(path + '.part', path)


def forget_older(path):
    """removes what earlier builds of the program left for this image, and for no other whose name begins like its name"""
    digest = '[0-9a-f]' * 16
    for old in glob.glob(glob.escape(path.rsplit('-', 1)[0]) + '-' + digest):
        try:
            if old != path and time.time() - os.stat(old).st_mtime > OLD:
                os.unlink(old)
        except FileNotFoundError:       # another has just done so
            pass


def initrd(image, inject, folder):
    """the path of the image's initramfs with this archive behind it, which all machines that have it share"""
    base = os.path.join(image, 'initrd.cpio')
    if not inject:
        return base
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(image, 'stamp'), 'rb') as stamp:
        digest = hashlib.sha256(stamp.read() + inject).hexdigest()[:16]
    path = os.path.join(folder, 'initrd-%s-%s' % (os.path.basename(image), digest))
    if not os.path.exists(path):
        forget_older(path)
        part = '%s.%d' % (path, os.getpid())
        with open(base, 'rb') as source, open(part, 'wb') as target:
            shutil.copyfileobj(source, target, 1 << 20)
            target.write(b'\0' * (-target.tell() % 512) + inject)
        os.rename(part, path)
    return path


def load(lab, path):
    arguments = lab.args
    lab.args, lab.incoming = arguments + ['-incoming', 'file:' + path], path
    try:
        lab.start()
        wait_until_running(lab)
        lab.sh('date -s @%.3f' % time.time(), check=True, timeout=60)
        lab.sh(TICKS, check=True, timeout=60)
    finally:
        lab.args, lab.incoming = arguments, None


def saved_path(lab):
    """where the state of a machine with this kernel, these devices and this program in it is saved"""
    digest = hashlib.sha256()
    # What differs between two machines of a kind is where they keep their sockets, and the ports of the host. The name
    # of the initramfs is of what is in it.
    for argument in lab.args:
        argument = argument.replace(lab.dir, '').replace(lab.image, '').replace(lab.cache, '')
        digest.update(re.sub(r'hostfwd=tcp:127\.0\.0\.1:\d+', '', argument).encode() + b'\0')
    with open(os.path.join(lab.image, 'stamp'), 'rb') as stamp:
        digest.update(stamp.read())
    qemu = os.stat(lab.program)
    digest.update(b'%d %d' % (qemu.st_size, qemu.st_mtime_ns))
    return os.path.join(lab.cache, 'state-%s-%s' % (os.path.basename(lab.image), digest.hexdigest()[:16]))
