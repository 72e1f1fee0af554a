//! The collector with the real helper behind a socket, and a kernel with one module; a clock that is moved by hand.

use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tempfile::TempDir;

use super::eeprom::tests::{Image, osfp, qsfp28};
use super::helper::ModuleHelper;
use super::helper::tests::{Memory, kernel};
use super::*;
use crate::host::harness::{CARD, CollectorHarness, facts};

/// A card with a port, whose module is read.
struct Cage {
    harness: CollectorHarness,
    memory: Memory,
    seconds: Arc<AtomicU64>,
    _directory: TempDir,
}

impl Cage {
    fn new(image: Image) -> Self {
        let directory = TempDir::new().unwrap();
        let socket = directory.path().join("reader.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let sysfs = directory.path().join("sys");
        std::fs::create_dir_all(sysfs.join("class/net/eth2/device/infiniband/mlx5_0")).unwrap();
        let (memory, seconds): (Memory, Arc<AtomicU64>) = (Arc::new(Mutex::new((image, Vec::new()))), Arc::default());
        let mut helper = ModuleHelper::new(kernel(&memory));
        let (clock, start) = (Arc::clone(&seconds), Instant::now());
        std::thread::spawn(move || {
            helper.serve(&listener, &sysfs, || start + Duration::from_secs(clock.load(Ordering::SeqCst)))
        });
        let mut harness = CollectorHarness::with_card(&SPEC);
        harness.memory.set(format!("{CARD}/net/eth2/type"), "1\n");
        harness.memory.set(format!("{CARD}/net/eth2/carrier"), "1\n");
        harness.memory.symlink(format!("{CARD}/driver"), "../../../../bus/pci/drivers/mlx5_core");
        harness.set_module_reader(socket);
        Self { harness, memory, seconds, _directory: directory }
    }

    /// Lets this time go by, with a pass every five seconds; the module as it then is.
    fn wait(&mut self, time: Duration) -> Option<Module> {
        let mut read = Vec::new();
        for _ in 0..time.as_secs() / 5 {
            self.seconds.fetch_add(5, Ordering::SeqCst);
            self.harness.discover().unwrap();
            read = facts(&self.harness.read());
        }
        read.pop()
    }

    fn carrier(&self, up: bool) {
        self.harness.memory.set(format!("{CARD}/net/eth2/carrier"), if up { "1\n" } else { "0\n" });
    }

    fn plug(&self, image: Image) {
        self.memory.lock().unwrap().0 = image;
    }

    /// Blocks that the kernel was asked for since the last time.
    fn asked(&self) -> usize {
        std::mem::take(&mut self.memory.lock().unwrap().1).len()
    }
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn what_a_module_is_is_read_once_and_its_values_every_five_minutes() {
    let mut cage = Cage::new(osfp(4, 1, 0));
    let module = cage.wait(Duration::from_secs(5)).unwrap();
    assert_eq!((&*module.netdev, module.identity.serial_number.as_deref()), ("eth2", Some("SN0003")));
    assert_eq!(cage.asked(), 8, "kind and three blocks of identity, limits, state, monitors, lanes");
    let module = cage.wait(HOUR).unwrap();
    assert_eq!((cage.asked(), module.at), (36, BootTime(3_605_000)), "three blocks, twelve times");
}

#[test]
fn a_link_that_flaps_for_an_hour_costs_no_more_than_the_documents_say() {
    let mut cage = Cage::new(osfp(4, 1, 0));
    cage.wait(MINUTE);
    cage.asked();
    let mut seen = 0;
    for round in 0..180 {
        cage.carrier(round % 2 == 1);
        seen += usize::from(cage.wait(Duration::from_secs(20)).is_some());
    }
    let asked = cage.asked();
    assert!((100..=132).contains(&asked), "{asked}");
    assert_eq!(seen, 180, "the module stays known");
}

#[test]
fn another_module_is_seen_ten_seconds_after_its_link_came_up() {
    let mut cage = Cage::new(osfp(4, 1, 0));
    cage.wait(10 * MINUTE);
    cage.carrier(false);
    cage.plug(Image::new());
    assert_eq!(cage.wait(Duration::from_secs(20)), None, "nothing answers");
    assert_eq!(cage.harness.faults.len(), 0, "said when it was read, not again and again");
    // For so long that it is left alone.
    cage.wait(20 * MINUTE);
    cage.asked();
    cage.wait(9 * MINUTE);
    assert_eq!(cage.asked(), 0);
    cage.plug(qsfp28());
    cage.carrier(true);
    let module = cage.wait(Duration::from_secs(15)).unwrap();
    assert_eq!(module.identity.serial_number.as_deref(), Some("SN0002"));
}

#[test]
fn a_torn_read_is_repeated_once_and_then_unreadable() {
    let mut torn = qsfp28();
    torn.put(0x50, 0, 0, 191, &[0x5a]);
    let mut cage = Cage::new(torn);
    assert_eq!(cage.wait(Duration::from_secs(5)), None);
    assert_eq!(
        (cage.asked(), &cage.harness.faults[..]),
        (4, &[("module of eth2".to_owned(), ReadError::Malformed)][..])
    );
}

#[test]
fn an_empty_cage_is_no_fault() {
    let mut empty = Image::new();
    empty.put(0x50, 0, 0, 0, &[0xff; 128]);
    let mut cage = Cage::new(empty);
    assert_eq!((cage.wait(Duration::from_secs(5)), cage.harness.faults.len()), (None, 0));
}

#[test]
fn while_a_module_changes_its_state_it_has_no_values() {
    let mut image = osfp(4, 1, 0);
    image.put(0x50, 0, 0, 3, &[0x04]);
    let mut cage = Cage::new(image);
    let module = cage.wait(Duration::from_secs(5)).unwrap();
    assert_eq!((module.values, module.limits.temperature.is_some()), (None, true));
}

#[test]
fn drivers_that_read_byte_by_byte_are_left_alone_unless_asked_for_by_name() {
    let mut cage = Cage::new(qsfp28());
    cage.harness.memory.symlink(format!("{CARD}/driver"), "../../../../bus/pci/drivers/ice");
    assert_eq!((cage.wait(10 * MINUTE), cage.asked()), (None, 0));
}

#[test]
fn a_recorded_host_has_no_reader_and_that_is_no_fault() {
    let mut cage = Cage::new(qsfp28());
    cage.harness.set_module_reader("/nonexistent/reader.sock".into());
    assert_eq!((cage.wait(Duration::from_secs(5)), cage.harness.faults.len()), (None, 0));
}
