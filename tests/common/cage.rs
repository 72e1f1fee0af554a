//! A cage with a module: the real module reader behind a socket, and a kernel that answers it from a memory that the test
//! writes, laid out as CMIS has it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lanewatch::host::module::helper::ModuleHelper;
use lanewatch::host::netlink::socket::NetlinkConnection;
use lanewatch::watch::clock::{Clock as _, ManualClock};
use rustix::io::Errno;
use tempfile::TempDir;

use super::ethtool::{attribute, attributes};

/// Pages by bank and number, 256 bytes each; the lower half of page 0 is the lower memory.
pub type ModuleMemory = BTreeMap<(u8, u8), Vec<u8>>;

/// Puts bytes into a page.
pub fn put(memory: &mut ModuleMemory, page: u8, offset: usize, bytes: &[u8]) {
    let page = memory.entry((0, page)).or_insert_with(|| vec![0; 256]);
    page[offset..offset + bytes.len()].copy_from_slice(bytes);
}

fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// An OSFP module of 400 or 800 Gb/s over single-mode fibre, with this serial number and so many lanes: 50 °C, 1 mW sent and
/// 0.5 mW received in every lane; alarms below 0.1 mW and above 75 °C.
pub fn optic(serial: &str, lanes: u8) -> ModuleMemory {
    let mut memory = ModuleMemory::new();
    let mut text = |page: u8, offset: usize, length: usize, text: &str| {
        put(&mut memory, page, offset, format!("{text:length$}").as_bytes());
    };
    text(0, 129, 16, "EXAMPLE PHOTONICS");
    text(0, 148, 16, "EP-OSFP-DR");
    text(0, 166, 16, serial);
    put(&mut memory, 0, 0, &[0x19, 0x52, 0, 0x06]);
    put(&mut memory, 0, 14, &words(&[50 * 256, 33_000]));
    put(&mut memory, 0, 39, &[1, 7]);
    put(&mut memory, 0, 85, &[2, 0x51, 0x1c, (lanes << 4) | lanes, 1]);
    put(&mut memory, 0, 212, &[0x06]);
    put(&mut memory, 1, 132, &[0x05]);
    put(&mut memory, 1, 160, &[0x07]);
    let power = [20_000, 1_000, 15_000, 1_500];
    for (offset, limits) in [
        (128, [75 * 256, 0, 70 * 256, 5 * 256]),
        (136, [36_300, 29_700, 34_650, 31_350]),
        (176, power),
        (184, [60_000, 5_000, 50_000, 6_000]),
        (192, power),
    ] {
        put(&mut memory, 2, offset, &words(&limits));
    }
    for (offset, value) in [(154, 10_000), (170, 40_000), (186, 5_000)] {
        put(&mut memory, 0x11, offset, &words(&[value; 8]));
    }
    memory
}

/// What a lane receives, in tenths of a microwatt.
pub fn receive(memory: &mut ModuleMemory, lane: usize, raw: u16) {
    put(memory, 0x11, 186 + 2 * lane, &raw.to_be_bytes());
}

/// A cage of a port.
pub struct Cage {
    memory: Arc<Mutex<Option<ModuleMemory>>>,
    asked: Arc<Mutex<usize>>,
    directory: TempDir,
}

impl Cage {
    /// An empty one.
    pub fn new() -> Self {
        let directory = TempDir::new().unwrap();
        Self { memory: Arc::default(), asked: Arc::default(), directory }
    }

    /// Where the module reader listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("reader.sock")
    }

    /// Starts the module reader for an interface, on this clock.
    pub fn serve(&self, netdev: &str, clock: &Arc<ManualClock>) {
        let sysfs = self.directory.path().join("sys");
        let device = sysfs.join("class/net").join(netdev).join("device");
        std::fs::create_dir_all(device.join("infiniband/mlx5_0")).unwrap();
        let listener = UnixListener::bind(self.socket()).unwrap();
        let (memory, asked) = (Arc::clone(&self.memory), Arc::clone(&self.asked));
        let connect = move || -> io::Result<Box<dyn NetlinkConnection>> {
            Ok(Box::new(Kernel { memory: Arc::clone(&memory), asked: Arc::clone(&asked) }))
        };
        let mut helper = ModuleHelper::new(Arc::new(connect));
        let (clock, began, start) = (Arc::clone(clock), clock.now().tick, Instant::now());
        std::thread::spawn(move || helper.serve(&listener, &sysfs, || start + clock.now().tick.since(began)));
    }

    /// Plugs a module, or pulls it.
    pub fn plug(&self, module: Option<ModuleMemory>) {
        *self.memory.lock().unwrap() = module;
    }

    /// Blocks that the kernel was asked for since the last call.
    pub fn asked(&self) -> usize {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

struct Kernel {
    memory: Arc<Mutex<Option<ModuleMemory>>>,
    asked: Arc<Mutex<usize>>,
}

impl NetlinkConnection for Kernel {
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        const EEPROM_GET: u8 = 31;
        if u16::from_ne_bytes([request[4], request[5]]) == 16 {
            return Ok(vec![[&[1, 2, 0, 0][..], &attribute(1, &0x15u16.to_ne_bytes())].concat()]);
        }
        assert_eq!(request[16], EEPROM_GET);
        *self.asked.lock().unwrap() += 1;
        let all = attributes(&request[20..]);
        let number = |wanted: u16| usize::from(all.iter().find(|(kind, _)| *kind == wanted).unwrap().1[0]);
        let (offset, length, page, bank) = (number(2), number(3), number(4), number(5));
        assert!(number(6) == 0x50 && length <= 128 && (offset >= 128 || offset + length <= 128));
        let memory = self.memory.lock().unwrap();
        let page = u8::try_from(if offset < 128 { 0 } else { page }).unwrap();
        let pages = memory.as_ref().ok_or(Errno::IO)?;
        let bytes = pages.get(&(u8::try_from(bank).unwrap(), page)).ok_or(Errno::IO)?;
        let data = attribute(7, &bytes[offset..offset + length]);
        Ok(vec![[&[EEPROM_GET, 1, 0, 0][..], &data].concat()])
    }
}
