//! Messages put together by what they are about. A burst costs no more room than its first lines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::reader::Message;
use super::rules;
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::kmsg::{KernelLog, MessageGroup, MessageKind, MessageSource, RECENT_TIMES};
use crate::model::text::bounded;
use crate::model::time::BootTime;

/// How long a message matters.
const AGE: Duration = Duration::from_secs(3600);

/// Groups kept; beyond that the one that was quiet longest goes.
const MOST: usize = 256;

/// Functions of RDMA hardware that are remembered.
const MOST_FUNCTIONS: usize = 1 << 12;

/// Bytes kept of a text.
const TEXT: usize = 240;

type Key = (MessageSource, MessageKind, Option<PciAddress>, Option<DeviceName>);

/// What was said, and how often.
#[derive(Debug)]
pub(super) struct Groups {
    counts: BTreeMap<(MessageSource, MessageKind), u64>,
    by_subject: BTreeMap<Key, MessageGroup>,
    /// Functions that a driver of RDMA hardware named in any line.
    rdma_functions: BTreeSet<PciAddress>,
}

impl Groups {
    /// None yet; what these drivers may say is counted from zero on.
    pub(super) fn new(loaded: &[MessageSource]) -> Self {
        let mut groups = Self { counts: BTreeMap::new(), by_subject: BTreeMap::new(), rdma_functions: BTreeSet::new() };
        groups.expect(loaded);
        groups
    }

    fn expect(&mut self, drivers: &[MessageSource]) {
        for pair in rules::pairs().into_iter().filter(|(driver, _)| drivers.contains(driver)) {
            self.counts.entry(pair).or_default();
        }
    }

    /// Takes a message; one from before the start is not counted as new.
    pub(super) fn add(&mut self, message: Message, at: BootTime, sequence: Option<u64>, is_new: bool, now: BootTime) {
        let Message { driver, kind, address, device, of_rdma, text } = message;
        if !self.counts.contains_key(&(driver, kind)) {
            self.expect(&[driver]);
        }
        if is_new {
            *self.counts.entry((driver, kind)).or_default() += 1;
        }
        if now.since(at) >= AGE {
            return;
        }
        let key = (driver, kind, address, device);
        if !self.by_subject.contains_key(&key) {
            self.make_room();
        }
        let group = self.by_subject.entry(key).or_insert_with_key(|(_, _, _, device)| MessageGroup {
            driver,
            kind,
            address,
            device: device.clone(),
            of_rdma,
            moments: Vec::new(),
            count: 0,
            text: Arc::from(""),
            sequence: None,
        });
        group.count += 1;
        group.of_rdma |= of_rdma;
        if group.moments.len() >= RECENT_TIMES {
            group.moments.remove(0);
        }
        group.moments.push(at);
        group.sequence = sequence.or(group.sequence);
        let line = text.lines().next().unwrap_or_default();
        let line = bounded(line, TEXT);
        if *group.text != *line {
            group.text = Arc::from(line);
        }
    }

    /// Notes that a driver of RDMA hardware has a function. Lines of others about it, before and after, count as lines
    /// about RDMA hardware: the host itself may not know the function, or no longer.
    pub(super) fn add_rdma_function(&mut self, address: PciAddress) {
        if self.rdma_functions.len() < MOST_FUNCTIONS {
            self.rdma_functions.insert(address);
        }
    }

    fn make_room(&mut self) {
        if self.by_subject.len() >= MOST {
            let oldest = self.by_subject.iter().min_by_key(|(_, group)| group.last()).map(|(key, _)| key.clone());
            oldest.map(|key| self.by_subject.remove(&key));
        }
    }

    /// What there is now.
    pub(super) fn log(&mut self, now: BootTime) -> KernelLog {
        self.by_subject.retain(|_, group| group.last().is_some_and(|last| now.since(last) < AGE));
        for group in self.by_subject.values_mut() {
            group.of_rdma |= group.address.is_some_and(|address| self.rdma_functions.contains(&address));
        }
        KernelLog {
            counts: self.counts.iter().map(|(pair, count)| (*pair, *count)).collect(),
            groups: self.by_subject.values().cloned().collect(),
            ..KernelLog::default()
        }
    }
}
