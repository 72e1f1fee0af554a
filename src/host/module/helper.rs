//! `lanewatch-module-reader`: reads modules for the agent, with CAP_NET_ADMIN and nothing else. It answers fixed requests
//! over its standard input as a listening socket (systemd's), one after another, and refuses everything else: no
//! arguments, no pages but those of [`super::eeprom`], no writes, no interface without RDMA, none too often.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::eeprom::{BlockAddress, Eeprom, EepromPart, KIND};
use super::protocol::{Answer, LONGEST_REQUEST, Request};
use crate::host::ethtool::standard::{FAMILY, header};
use crate::host::netlink::generic::{self, GenericFamily};
use crate::host::netlink::message::{Attributes, put};
use crate::host::netlink::socket::NetlinkConnector;
use crate::model::time::BootTime;

const MODULE_EEPROM_GET: u8 = 31;
const HEADER: u16 = 1;
const OFFSET: u16 = 2;
const LENGTH: u16 = 3;
const PAGE: u16 = 4;
const BANK: u16 = 5;
const I2C_ADDRESS: u16 = 6;
const DATA: u16 = 7;

/// Requests of a module that may come at once: a module that is new is asked for all its parts, and once more after its
/// link came up. After that one comes back every [`REFILL`].
const BURST: u32 = 9;
const REFILL: Duration = Duration::from_secs(75);

/// How long a client may take to send its request or to take its answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most interfaces that are remembered.
const MOST_INTERFACES: usize = 256;

/// Reads modules on request.
pub struct ModuleHelper {
    family: GenericFamily,
    budgets: BTreeMap<String, (u32, Instant)>,
    /// CMIS needs the identity to know how many banks there are.
    known: BTreeMap<String, Eeprom>,
}

impl ModuleHelper {
    /// Nothing is read yet.
    pub fn new(connect: NetlinkConnector) -> Self {
        Self { family: GenericFamily::new(FAMILY, connect), budgets: BTreeMap::new(), known: BTreeMap::new() }
    }

    /// Answers clients one after another, until the socket fails. Budgets follow this clock.
    ///
    /// # Errors
    /// The socket no longer accepts connections.
    pub fn serve(&mut self, listener: &UnixListener, sysfs: &Path, now: impl Fn() -> Instant) -> io::Result<()> {
        loop {
            let (stream, _) = listener.accept()?;
            // A client that goes away or stays silent costs only its own answer.
            if let Err(error) = self.client(&stream, sysfs, now()) {
                tracing::debug!(%error, "a client got no answer");
            }
        }
    }

    fn client(&mut self, mut stream: &UnixStream, sysfs: &Path, now: Instant) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        BufReader::new(stream.take(LONGEST_REQUEST as u64)).read_line(&mut line)?;
        let answer = self.answer(&line, sysfs, now);
        stream.write_all(answer.text().as_bytes())
    }

    /// Answers one request.
    pub fn answer(&mut self, line: &str, sysfs: &Path, now: Instant) -> Answer {
        let Some(request) = Request::parse(line) else { return Answer::Refused };
        let Request { part, netdev } = request;
        if !has_rdma(sysfs, &netdev) || !self.allows(&netdev, now) {
            return Answer::Refused;
        }
        match self.read(&netdev, part) {
            Ok(eeprom) => Answer::Blocks(eeprom),
            Err(error) => Answer::Failed(error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error())),
        }
    }

    /// Whether a module may be read now.
    fn allows(&mut self, netdev: &str, now: Instant) -> bool {
        if self.budgets.len() >= MOST_INTERFACES && !self.budgets.contains_key(netdev) {
            return false;
        }
        let (left, since) = self.budgets.entry(netdev.to_owned()).or_insert((BURST, now));
        let refilled = u32::try_from(now.duration_since(*since).as_secs() / REFILL.as_secs()).unwrap_or(u32::MAX);
        if refilled > 0 {
            *left = left.saturating_add(refilled).min(BURST);
            *since = now;
        }
        let allowed = *left > 0;
        *left = left.saturating_sub(1);
        allowed
    }

    fn read(&mut self, netdev: &str, part: EepromPart) -> io::Result<Eeprom> {
        let mut eeprom = match part {
            EepromPart::Identity => None,
            EepromPart::Limits | EepromPart::Values => self.known.get(netdev).cloned(),
        }
        .unwrap_or_default();
        let mut read = Eeprom::default();
        if part == EepromPart::Identity || !eeprom.has(KIND) {
            let bytes = self.block(netdev, KIND)?;
            read.set(KIND, bytes.clone());
            eeprom.set(KIND, bytes);
        }
        for block in eeprom.blocks_of(part) {
            let bytes = self.block(netdev, block)?;
            eeprom.set(block, bytes.clone());
            read.set(block, bytes);
            // Reading disturbs a module while it changes its state.
            if !eeprom.is_settled() {
                break;
            }
        }
        if part == EepromPart::Identity {
            self.known.insert(netdev.to_owned(), read.clone());
        }
        Ok(read)
    }

    fn block(&mut self, netdev: &str, block: BlockAddress) -> io::Result<Vec<u8>> {
        let replies = self.family.ask(BootTime(0), MODULE_EEPROM_GET, false, &request(netdev, block))?;
        let reply = replies.as_ref().and_then(|replies| replies.first());
        let reply = reply.ok_or(io::Error::from(rustix::io::Errno::OPNOTSUPP))?;
        data(generic::attributes(reply))
            .filter(|data| data.len() == usize::from(block.length))
            .ok_or_else(|| rustix::io::Errno::IO.into())
    }
}

/// Encodes the request for a block (`net/ethtool/eeprom.c`).
fn request(netdev: &str, block: BlockAddress) -> Vec<u8> {
    let mut out = header(HEADER, netdev, 0);
    put(&mut out, OFFSET, &u32::from(block.offset).to_ne_bytes());
    put(&mut out, LENGTH, &u32::from(block.length).to_ne_bytes());
    put(&mut out, PAGE, &[block.page]);
    put(&mut out, BANK, &[block.bank]);
    put(&mut out, I2C_ADDRESS, &[block.i2c]);
    out
}

fn data(mut reply: Attributes<'_>) -> Option<Vec<u8>> {
    reply.find_map(|(kind, value)| (kind == DATA).then(|| value.to_vec()))
}

/// Whether an interface belongs to a function with an RDMA device, and is no VF.
fn has_rdma(sysfs: &Path, netdev: &str) -> bool {
    let device = sysfs.join("class/net").join(netdev).join("device");
    device.join("infiniband").is_dir() && !device.join("physfn").exists()
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use rustix::io::Errno;

    use super::*;
    use crate::host::module::eeprom::tests::{Image, osfp, qsfp28};
    use crate::host::netlink::generic::tests::FakeFamily;
    use crate::host::netlink::message::tests::attribute;
    use crate::host::netlink::message::{NESTED, number8, number32};
    use crate::host::netlink::socket::NetlinkConnection;

    /// A kernel with one module, and the blocks that were read of it.
    pub(in crate::host::module) type Memory = Arc<Mutex<(Image, Vec<BlockAddress>)>>;

    struct Kernel(Memory);

    /// Connects to a kernel with this module.
    pub(in crate::host::module) fn kernel(memory: &Memory) -> NetlinkConnector {
        let memory = Arc::clone(memory);
        Arc::new(move || Ok(Box::new(Kernel(Arc::clone(&memory)))))
    }

    impl NetlinkConnection for Kernel {
        fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
            if u16::from_ne_bytes([request[4], request[5]]) == 16 {
                return Ok(vec![[&[1, 2, 0, 0][..], &attribute(1, &0x15u16.to_ne_bytes())].concat()]);
            }
            assert_eq!(request[16], MODULE_EEPROM_GET, "nothing else is asked");
            let find =
                |wanted| Attributes::new(&request[20..]).find_map(|(kind, value)| (kind == wanted).then_some(value));
            let small = |kind| number8(find(kind).unwrap()).unwrap();
            let wide = |kind| u8::try_from(number32(find(kind).unwrap()).unwrap()).unwrap();
            let block = BlockAddress {
                i2c: small(I2C_ADDRESS),
                bank: small(BANK),
                page: small(PAGE),
                offset: wide(OFFSET),
                length: wide(LENGTH),
            };
            let mut kernel = self.0.lock().unwrap();
            kernel.1.push(block);
            let bytes = kernel.0.read(block).ok_or(Errno::IO)?;
            Ok(vec![
                [&[MODULE_EEPROM_GET, 1, 0, 0][..], &attribute(HEADER | NESTED, &[]), &attribute(DATA, &bytes)]
                    .concat(),
            ])
        }
    }

    struct Setup {
        helper: ModuleHelper,
        kernel: Memory,
        sysfs: tempfile::TempDir,
        now: Instant,
    }

    impl Setup {
        fn new(image: Image) -> Self {
            let kernel = Arc::new(Mutex::new((image, Vec::new())));
            let sysfs = tempfile::TempDir::new().unwrap();
            std::fs::create_dir_all(sysfs.path().join("class/net/eth2/device/infiniband/mlx5_0")).unwrap();
            std::fs::create_dir_all(sysfs.path().join("class/net/eth9/device")).unwrap();
            std::fs::create_dir_all(sysfs.path().join("class/net/eth3v0/device/infiniband/mlx5_1")).unwrap();
            std::fs::create_dir_all(sysfs.path().join("class/net/eth3v0/device/physfn")).unwrap();
            Self { helper: ModuleHelper::new(self::kernel(&kernel)), kernel, sysfs, now: Instant::now() }
        }

        fn answer(&mut self, line: &str) -> Answer {
            self.helper.answer(line, self.sysfs.path(), self.now)
        }

        fn asked(&self) -> usize {
            self.kernel.lock().unwrap().1.len()
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_request_byte_for_byte() {
        #[rustfmt::skip]
        let expected = [
            24, 0, 1, 0x80,
            9, 0, 2, 0, b'e', b't', b'h', b'2', 0, 0, 0, 0,
            8, 0, 3, 0, 0, 0, 0, 0,
            8, 0, 2, 0, 154, 0, 0, 0,
            8, 0, 3, 0, 48, 0, 0, 0,
            5, 0, 4, 0, 0x11, 0, 0, 0,
            5, 0, 5, 0, 1, 0, 0, 0,
            5, 0, 6, 0, 0x50, 0, 0, 0,
        ];
        let block = BlockAddress { i2c: 0x50, bank: 1, page: 0x11, offset: 154, length: 48 };
        assert_eq!(request("eth2", block), expected);
    }

    #[test]
    fn a_module_is_read_part_by_part() {
        let mut setup = Setup::new(osfp(4, 1, 0));
        let mut eeprom = Eeprom::default();
        for part in EepromPart::ALL {
            let before = setup.asked();
            let Answer::Blocks(read) = setup.answer(&format!("{} eth2\n", part.as_str())) else { panic!("{part:?}") };
            assert!((1..=4).contains(&(setup.asked() - before)), "{part:?}");
            eeprom.extend(read);
        }
        assert_eq!(eeprom.identity().unwrap().part_number.as_deref(), Some("AO-400DR4"));
        assert_eq!(eeprom.values().unwrap().lanes.len(), 4);
        assert!(eeprom.limits().receive.is_some());
    }

    #[test]
    fn a_module_that_changes_its_state_is_left_alone() {
        let mut image = osfp(4, 1, 0);
        image.put(0x50, 0, 0, 3, &[0x04]);
        let mut setup = Setup::new(image);
        setup.answer("identity eth2\n");
        let before = setup.asked();
        let Answer::Blocks(read) = setup.answer("values eth2\n") else { panic!() };
        assert_eq!((setup.asked() - before, read.blocks().count()), (1, 1), "its state, and no more");
    }

    #[test]
    fn everything_else_is_refused_without_a_question_to_the_kernel() {
        let mut setup = Setup::new(qsfp28());
        for line in [
            "",
            "values\n",
            "values eth9\n",
            "values eth3v0\n",
            "values lo\n",
            "values ../eth2\n",
            "write eth2\n",
            "values eth2 11 0\n",
            "GET / HTTP/1.1\n",
        ] {
            assert_eq!(setup.answer(line), Answer::Refused, "{line:?}");
        }
        assert_eq!(setup.asked(), 0);
    }

    #[test]
    fn a_module_is_not_read_too_often() {
        let mut setup = Setup::new(qsfp28());
        let allowed = |setup: &mut Setup| (0..100).filter(|_| setup.answer("values eth2\n") != Answer::Refused).count();
        assert_eq!(allowed(&mut setup), 9);
        setup.now += Duration::from_secs(74);
        assert_eq!(allowed(&mut setup), 0);
        setup.now += Duration::from_secs(76);
        assert_eq!(allowed(&mut setup), 2);
    }

    #[test]
    fn what_the_kernel_says_is_passed_on() {
        let made = Arc::new(FakeFamily::default());
        let mut setup = Setup::new(Image::new());
        assert_eq!(setup.answer("identity eth2\n"), Answer::Failed(Errno::IO.raw_os_error()));
        setup.helper = ModuleHelper::new(FakeFamily::connect(&made));
        *made.refuses.lock().unwrap() = Some(Errno::PERM);
        assert_eq!(setup.answer("identity eth2\n"), Answer::Failed(Errno::PERM.raw_os_error()));
    }

    #[test]
    fn clients_over_a_socket() {
        let mut setup = Setup::new(qsfp28());
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let sysfs = setup.sysfs.path().to_owned();
        std::thread::spawn(move || setup.helper.serve(&listener, &sysfs, Instant::now));
        let request = Request { part: EepromPart::Identity, netdev: "eth2".to_owned() };
        let Answer::Blocks(eeprom) = super::super::ask(&path, &request).unwrap() else { panic!() };
        assert_eq!(eeprom.identity().unwrap().serial_number.as_deref(), Some("SN0002"));
        let request = Request { netdev: "eth9".to_owned(), ..request };
        assert_eq!(super::super::ask(&path, &request).unwrap(), Answer::Refused);
        // One that says nothing and goes, and one with a flood.
        drop(UnixStream::connect(&path).unwrap());
        let mut flood = UnixStream::connect(&path).unwrap();
        let _ = flood.write_all(&[b'x'; 4096]);
        assert_eq!(super::super::ask(&path, &request).unwrap(), Answer::Refused);
    }
}
