use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::*;
use crate::host::memory::MemoryHost;

fn read(host: &Host, path: &str) -> io::Result<String> {
    let mut buffer = [0; 100];
    let length = host.io.open(Path::new(path))?.read(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

#[test]
fn what_was_asked_is_kept_where_it_really_is() {
    let memory = Arc::new(MemoryHost::new());
    memory.set("/sys/devices/pci0/ib/mlx5_0/state", "4: ACTIVE\n");
    memory.set("/sys/devices/pci0/ib/mlx5_0/vpd", "serial\n");
    memory.symlink("/sys/devices/pci0/ib/mlx5_0/device", "../../../pci0");
    memory.directory("/sys/devices/pci0/ib/mlx5_0/ports");
    memory.symlink("/sys/class/mlx5_0", "/sys/devices/pci0/ib/mlx5_0");
    memory.fail("/sys/devices/pci0/broken", Errno::IO);
    memory.fail("/sys/devices/pci0/net/ib0/carrier", Errno::INVAL);
    memory.set("/etc/secret", "x");
    memory.symlink("/sys/out", "/etc");
    let (recording, host) = Recording::of(&memory.host());
    assert_eq!(read(&host, "/sys/class/mlx5_0/state").unwrap(), "4: ACTIVE\n");
    assert!(read(&host, "/sys/class/mlx5_0/device/broken").is_err());
    assert!(read(&host, "/sys/devices/pci0/net/ib0/carrier").is_err());
    assert!(read(&host, "/sys/class/mlx5_0/none").is_err());
    assert_eq!(read(&host, "/sys/out/secret").unwrap(), "x");
    assert_eq!(host.io.list(Path::new("/sys/class/mlx5_0")).unwrap().len(), 4);
    assert!(host.io.stamp(Path::new("/sys/class")).is_ok());
    let file = |text: &str| RecordedEntry::File(text.as_bytes().to_vec());
    let expected = [
        ("sys/class", RecordedEntry::Directory),
        ("sys/class/mlx5_0", RecordedEntry::Link("../devices/pci0/ib/mlx5_0".into())),
        ("sys/devices/pci0/broken", RecordedEntry::Unreadable),
        ("sys/devices/pci0/ib/mlx5_0", RecordedEntry::Directory),
        ("sys/devices/pci0/ib/mlx5_0/device", RecordedEntry::Link("../../../pci0".into())),
        ("sys/devices/pci0/ib/mlx5_0/ports", RecordedEntry::Directory),
        ("sys/devices/pci0/ib/mlx5_0/state", file("4: ACTIVE\n")),
    ];
    let expected: Entries = expected.into_iter().map(|(path, entry)| (PathBuf::from(path), entry)).collect();
    assert_eq!(recording.entries(), expected);
}

#[test]
fn links_that_lead_round_or_out_are_left() {
    let memory = Arc::new(MemoryHost::new());
    memory.symlink("/sys/a", "b");
    memory.symlink("/sys/b", "a");
    memory.symlink("/sys/up", "../../..");
    let (recording, host) = Recording::of(&memory.host());
    assert!(read(&host, "/sys/a/x").is_err());
    assert!(read(&host, "/sys/up/x").is_err());
    assert!(!recording.entries().values().any(|entry| matches!(entry, RecordedEntry::File(_))));
}

#[test]
fn long_files_are_kept_whole_and_processes_left_out() {
    let memory = Arc::new(MemoryHost::new());
    memory.set("/proc/interrupts", "0123456789");
    memory.set("/proc/77/comm", "bash\n");
    memory.set("/proc/78/comm", "irqbalance\n");
    let (recording, host) = Recording::of(&memory.host());
    let mut file = host.io.open(Path::new("/proc/interrupts")).unwrap();
    let mut buffer = [0; 4];
    let mut offset = 0;
    while let Ok(length @ 1..) = file.read_at(offset, &mut buffer) {
        offset += length as u64;
    }
    read(&host, "/proc/77/comm").unwrap();
    read(&host, "/proc/78/comm").unwrap();
    host.io.list(Path::new("/proc")).unwrap();
    let file = |text: &str| RecordedEntry::File(text.as_bytes().to_vec());
    let expected = [("proc/78/comm", file("irqbalance\n")), ("proc/interrupts", file("0123456789"))];
    let mut entries = recording.entries();
    assert_eq!(entries.remove(Path::new("proc")), Some(RecordedEntry::Directory));
    let expected: Entries = expected.into_iter().map(|(path, entry)| (PathBuf::from(path), entry)).collect();
    assert_eq!(entries, expected);
}
