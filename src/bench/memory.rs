//! Copies in memory: from and to the CPUs' own NUMA node, and another. A thread is pinned to a node's CPUs; memory
//! stands on the node of the CPU that touches it first.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet as Affinity, sched_setaffinity};

use crate::model::benchmark::{Direction, Measurements};
use crate::model::host::NumaNode;
use crate::model::irq::CpuSet;
use crate::watch::HostReport;

/// Bytes of each of the two buffers: beyond what most caches hold.
const BUFFER: usize = 64 << 20;

/// How long each way is measured.
const TIME: Duration = Duration::from_millis(500);

/// A node and its CPUs.
#[derive(Debug, Clone)]
pub struct NodeCpus {
    /// Its number.
    pub id: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// The nodes that have CPUs. A host that does not show any has one, with whatever CPUs there are.
pub fn nodes(report: &HostReport) -> Vec<NodeCpus> {
    let with_cpus = |node: &NumaNode| {
        let cpus = CpuSet::from_list(node.cpus.as_deref()?)?;
        (!cpus.is_empty()).then_some(NodeCpus { id: node.id, cpus })
    };
    let mut nodes: Vec<NodeCpus> = report.snapshot.all::<NumaNode>().filter_map(with_cpus).collect();
    nodes.sort_by_key(|node| node.id);
    if nodes.is_empty() {
        nodes.push(NodeCpus { id: 0, cpus: CpuSet::default() });
    }
    nodes
}

/// Copies on the own memory of the first node whose CPUs this process may use, and on another node's. Each value is
/// bytes copied in a second.
pub fn measure(nodes: &[NodeCpus]) -> Result<Measurements, &'static str> {
    measure_with(nodes, BUFFER, TIME)
}

fn measure_with(nodes: &[NodeCpus], buffer: usize, time: Duration) -> Result<Measurements, &'static str> {
    let mut why = "no NUMA node has CPUs";
    for own in nodes {
        let local = match copy(own, own, buffer, time) {
            Ok(local) => local,
            // Another node's may be this process's to use.
            Err(error) => {
                why = error;
                continue;
            }
        };
        let mut others = nodes.iter().rev().filter(|other| other.id != own.id);
        let remote = others.find_map(|other| copy(own, other, buffer, time).ok());
        let bandwidth = [(Direction::Local, Some(local)), (Direction::Remote, remote)];
        let bandwidth = bandwidth.into_iter().filter_map(|(way, value)| Some((way, value?))).collect();
        return Ok(Measurements { bandwidth, latency: Vec::new() });
    }
    Err(why)
}

/// Copies with the CPUs of one node in memory of another.
fn copy(cpus: &NodeCpus, memory: &NodeCpus, buffer: usize, time: Duration) -> Result<f64, &'static str> {
    const NO_THREAD: &str = "cannot start a thread";
    const NO_CPU: &str = "this process is not allowed to use the node's CPUs";
    // The buffers are touched first where they should stand.
    let node = memory.clone();
    let touch = thread::Builder::new().spawn(move || {
        pin(&node)?;
        Some((vec![1u8; buffer], vec![2u8; buffer]))
    });
    let (mut to, from) = touch.map_err(|_| NO_THREAD)?.join().ok().flatten().ok_or(NO_CPU)?;
    let node = cpus.clone();
    let work = thread::Builder::new().spawn(move || {
        pin(&node)?;
        to.copy_from_slice(black_box(&from));
        let began = Instant::now();
        let mut copies = 0u32;
        while began.elapsed() < time {
            to.copy_from_slice(black_box(&from));
            black_box(&to);
            copies += 1;
        }
        #[expect(clippy::cast_precision_loss, reason = "buffers are far below 2^53 bytes")]
        Some(f64::from(copies) * buffer as f64 / began.elapsed().as_secs_f64())
    });
    work.map_err(|_| NO_THREAD)?.join().ok().flatten().ok_or(NO_CPU)
}

/// Keeps this thread on a node's CPUs; a node of which none are known takes any.
fn pin(node: &NodeCpus) -> Option<()> {
    if node.cpus.is_empty() {
        return Some(());
    }
    let mut affinity = Affinity::new();
    for cpu in (0..Affinity::MAX_CPU).filter(|cpu| u32::try_from(*cpu).is_ok_and(|cpu| node.cpus.contains(cpu))) {
        affinity.set(cpu);
    }
    sched_setaffinity(None, &affinity).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: (usize, Duration) = (1 << 20, Duration::from_millis(5));

    #[test]
    fn local_and_remote() {
        let cpus = rustix::thread::sched_getaffinity(None).unwrap();
        let mine = (0..Affinity::MAX_CPU).find(|cpu| cpus.is_set(*cpu)).unwrap();
        let node = |id| NodeCpus { id, cpus: CpuSet::from_list(&mine.to_string()).unwrap() };
        let one = measure_with(&[node(0)], SMALL.0, SMALL.1).unwrap();
        assert!(one.bandwidth(Direction::Local).is_some_and(|rate| rate.0 > 1e6));
        assert_eq!(one.bandwidth(Direction::Remote), None);
        let two = measure_with(&[node(0), node(1)], SMALL.0, SMALL.1).unwrap();
        assert!(two.bandwidth(Direction::Remote).is_some());
    }

    #[test]
    fn a_node_of_others() {
        let beyond = NodeCpus { id: 0, cpus: CpuSet::from_list("1000").unwrap() };
        assert!(measure_with(std::slice::from_ref(&beyond), SMALL.0, SMALL.1).is_err());
        let any = NodeCpus { id: 1, cpus: CpuSet::default() };
        let measured = measure_with(&[beyond, any], SMALL.0, SMALL.1).unwrap();
        assert_eq!(measured.bandwidth.len(), 1, "what cannot be measured costs itself alone");
        assert!(measure_with(&[], SMALL.0, SMALL.1).is_err());
    }
}
