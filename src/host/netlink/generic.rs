//! Generic netlink: families of requests that are found by their names (`uapi/linux/genetlink.h`).

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use super::message;
use super::message::{Attributes, number16, put_text};
use super::socket::{LazyConnection, NetlinkConnection, NetlinkConnector};
use crate::model::time::BootTime;

/// The family that knows the others (`GENL_ID_CTRL`).
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `struct genlmsghdr`: command, version, two bytes of nothing.
const HEADER: usize = 4;

/// How long a missing family is not looked up again.
const NOT_THERE: Duration = Duration::from_secs(10 * 60);

/// Errors of a kernel without the family, or without generic netlink.
const ABSENT: [Errno; 4] = [Errno::NOENT, Errno::OPNOTSUPP, Errno::PROTONOSUPPORT, Errno::AFNOSUPPORT];

/// A request of a family.
pub fn request(family: u16, command: u8, dump: bool, attributes: &[u8]) -> Vec<u8> {
    let payload = [&[command, 1, 0, 0], attributes].concat();
    message::request_of(family, dump, &payload)
}

/// What follows the header of a reply.
pub fn attributes(reply: &[u8]) -> Attributes<'_> {
    Attributes::new(reply.get(HEADER..).unwrap_or_default())
}

/// Encodes the lookup of a family's number.
fn family_request(name: &str) -> Vec<u8> {
    let mut attributes = Vec::new();
    put_text(&mut attributes, FAMILY_NAME, name);
    request(CONTROL, GET_FAMILY, false, &attributes)
}

fn family(reply: &[u8]) -> Option<u16> {
    attributes(reply).find_map(|(kind, value)| if kind == FAMILY_ID { number16(value) } else { None })
}

/// Client of one generic netlink family.
pub struct GenericFamily {
    name: &'static str,
    connection: LazyConnection,
    id: Option<u16>,
    absent_until: Option<BootTime>,
}

impl GenericFamily {
    /// Nothing is asked yet.
    pub fn new(name: &'static str, connect: NetlinkConnector) -> Self {
        Self { name, connection: LazyConnection::new(connect), id: None, absent_until: None }
    }

    /// The replies to a request; `None` if the kernel does not have the family.
    ///
    /// # Errors
    /// The errno that the kernel answered with, or why the request failed.
    pub fn ask(
        &mut self,
        now: BootTime,
        command: u8,
        dump: bool,
        attributes: &[u8],
    ) -> io::Result<Option<Vec<Vec<u8>>>> {
        let Some(id) = self.id(now)? else { return Ok(None) };
        let replies = self.connection.ask(&request(id, command, dump, attributes));
        // A reloaded module has another number.
        if replies.as_ref().is_err_and(|error| is(error, &[Errno::NOENT])) {
            self.id = None;
        }
        replies.map(Some)
    }

    fn id(&mut self, now: BootTime) -> io::Result<Option<u16>> {
        if self.id.is_some() || self.absent_until.is_some_and(|until| now < until) {
            return Ok(self.id);
        }
        match self.connection.ask(&family_request(self.name)) {
            Ok(replies) => self.id = replies.first().and_then(|reply| family(reply)),
            Err(error) if is(&error, &ABSENT) => {}
            Err(error) => return Err(error),
        }
        self.absent_until = self.id.is_none().then(|| now.after(NOT_THERE));
        Ok(self.id)
    }
}

/// Whether an error is one of these.
pub fn is(error: &io::Error, errors: &[Errno]) -> bool {
    errors.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use super::super::message::tests::attribute;
    use super::super::socket;
    use super::*;

    /// A kernel that a test makes up: replies, without their headers, by command.
    #[derive(Default)]
    pub(crate) struct FakeFamily {
        /// What it answers; a command that is not here is not supported.
        pub(crate) replies: Mutex<BTreeMap<u8, Vec<Vec<u8>>>>,
        /// What it refuses everything with.
        pub(crate) refuses: Mutex<Option<Errno>>,
        /// Whether it lacks the family.
        pub(crate) lacks: Mutex<bool>,
        /// What it was asked: commands, and their attributes.
        pub(crate) asked: Mutex<Vec<(u8, Vec<u8>)>>,
    }

    impl FakeFamily {
        pub(crate) fn set(&self, command: u8, replies: &[Vec<u8>]) {
            self.replies.lock().unwrap().insert(command, replies.to_vec());
        }

        pub(crate) fn connect(made: &Arc<Self>) -> NetlinkConnector {
            let made = Arc::clone(made);
            Arc::new(move || Ok(Box::new(Connection(Arc::clone(&made)))))
        }

        /// How often a command was asked for.
        pub(crate) fn count(&self, command: u8) -> usize {
            self.asked.lock().unwrap().iter().filter(|(asked, _)| *asked == command).count()
        }
    }

    struct Connection(Arc<FakeFamily>);

    impl NetlinkConnection for Connection {
        fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
            let kind = u16::from_ne_bytes([request[4], request[5]]);
            let command = request[16];
            if kind == CONTROL {
                let reply = [&[1, 2, 0, 0][..], &attribute(FAMILY_ID, &0x15u16.to_ne_bytes())].concat();
                return if *self.0.lacks.lock().unwrap() { Err(Errno::NOENT.into()) } else { Ok(vec![reply]) };
            }
            assert_eq!(kind, 0x15);
            self.0.asked.lock().unwrap().push((command, request[20..].to_vec()));
            if let Some(errno) = *self.0.refuses.lock().unwrap() {
                return Err(errno.into());
            }
            let replies = self.0.replies.lock().unwrap();
            let replies = replies.get(&command).ok_or(io::Error::from(Errno::OPNOTSUPP))?;
            Ok(replies.iter().map(|reply| [&[command, 1, 0, 0][..], reply].concat()).collect())
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_family_is_looked_up_by_name() {
        let expected = [
            32, 0, 0, 0, 16, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, // nlmsghdr
            3, 1, 0, 0, // genlmsghdr
            12, 0, 2, 0, b'e', b't', b'h', b't', b'o', b'o', b'l', 0,
        ];
        assert_eq!(family_request("ethtool"), expected);
        let reply = [1, 2, 0, 0, 12, 0, 2, 0, b'e', b't', b'h', b't', b'o', b'o', b'l', 0, 6, 0, 1, 0, 21, 0, 0, 0];
        assert_eq!(family(&reply), Some(21));
        for end in 0..reply.len() - 2 {
            assert_eq!(family(&reply[..end]), None, "{end}");
        }
    }

    #[test]
    fn a_kernel_without_the_family_is_not_asked_again_for_a_while() {
        let made = Arc::new(FakeFamily::default());
        *made.lacks.lock().unwrap() = true;
        let mut family = GenericFamily::new("ethtool", FakeFamily::connect(&made));
        assert!(family.ask(BootTime(0), 32, false, &[]).unwrap().is_none());
        *made.lacks.lock().unwrap() = false;
        assert!(family.ask(BootTime(1000), 32, false, &[]).unwrap().is_none());
        let refused = family.ask(BootTime(600_000), 32, false, &[]).unwrap_err();
        assert!(is(&refused, &[Errno::OPNOTSUPP]));
        made.set(32, &[vec![1, 2, 3, 4]]);
        assert_eq!(family.ask(BootTime(600_000), 32, false, &[]).unwrap().unwrap(), [[32, 1, 0, 0, 1, 2, 3, 4]]);
    }

    #[test]
    fn the_running_kernel_answers() {
        let mut nothing = GenericFamily::new("no-such-family", socket::generic());
        assert!(nothing.ask(BootTime(0), 1, false, &[]).is_ok_and(|replies| replies.is_none()));
    }
}
