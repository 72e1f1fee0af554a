//! Judges a host: pure functions from facts, history and policy to conditions. The clock is in the facts.
//!
//! A check family is one module and its line in [`RULES`].

mod acs;
pub mod aer;
pub mod benchmark;
pub mod capacity;
pub mod devices;
pub mod failover;
pub mod gpu;
pub mod irq;
pub mod kmsg;
pub mod limits;
pub mod link_quality;
mod links;
mod module_messages;
pub mod modules;
pub mod pasted;
pub mod pcie;
pub mod port_down;
pub mod port_errors;
pub mod ports;
pub mod posture;
pub mod rdma_cgroup;
pub mod roce;
pub mod temperature;
#[cfg(test)]
mod testing;
pub mod verdicts;
pub mod vf;
pub mod visibility;

use crate::model::history::History;
use crate::model::policy::Policy;
use crate::model::snapshot::Snapshot;
use crate::model::topology::Topology;
use capacity::HostCapacity;
use verdicts::Verdicts;

/// What a rule may look at.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The facts.
    pub snapshot: &'a Snapshot,
    /// Links and paths.
    pub topology: &'a Topology,
    /// Ports with what their paths leave of their rates.
    pub lanes: &'a HostCapacity,
    /// The past.
    pub history: &'a History,
    /// What the operator expects.
    pub policy: &'a Policy,
    /// Whether this is a single look: what would need a full window is judged by what there is.
    pub instant: bool,
}

/// A family of checks.
pub type Rule = fn(&View<'_>, &mut Verdicts);

/// Every family, in the order of their findings.
pub const RULES: &[Rule] = &[
    devices::missing,
    devices::dead,
    devices::without_driver,
    port_down::down,
    ports::rate,
    ports::flapping,
    port_errors::errors,
    link_quality::quality,
    modules::fault,
    modules::light,
    ports::saturated,
    temperature::hot,
    pcie::links,
    pcie::below_port_rate,
    pcie::drifted,
    gpu::far,
    aer::errors,
    vf::all,
    failover::failover,
    irq::remote,
    irq::piled_up,
    irq::drifted,
    roce::lossy,
    rdma_cgroup::limit_near,
    benchmark::slow,
    benchmark::failing,
    kmsg::messages,
    kmsg::reporters,
    posture::posture,
];

/// Everything the rules say of a host.
pub fn assess(view: &View<'_>) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for rule in RULES {
        rule(view, &mut verdicts);
    }
    verdicts
}
