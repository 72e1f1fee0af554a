//! TCP between two hosts (iperf3), for comparison. Between two addresses of one host it would measure nothing.

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use super::iperf::{IperfError, from_json, is_unreachable};
use super::process::RunDirectory;
use super::process::Toolbox;
use super::process::{Child, Invocation, ProcessExit};
use super::rdma::{RemoteServer, Timeouts};
use crate::host::netlink::routing::lookup;
use crate::host::netlink::socket::NetlinkConnection;
use crate::model::benchmark::{Direction, Failure, Measurements};
use crate::model::irq::CpuSet;

/// The program.
pub const PROGRAM: &str = "iperf3";

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum TcpOutcome {
    /// It measured; segments sent again, where they are counted.
    Measured(Measurements, Option<u64>),
    /// Data could not be moved.
    Failed(Failure, String),
    /// The tool got into trouble.
    Inconclusive(&'static str, String),
}

/// Why a host must not be measured with TCP: an address of it is this host's own.
///
/// # Errors
/// Its name has no address, or the kernel does not say which route it would use.
pub fn stays_here(host: &str, kernel: &mut dyn NetlinkConnection) -> io::Result<Option<String>> {
    let addresses: Vec<IpAddr> = match host.parse() {
        Ok(address) => vec![address],
        Err(_) => (host, 0).to_socket_addrs()?.map(|socket| socket.ip()).collect(),
    };
    for address in addresses {
        if lookup(kernel, address)?.local {
            return Ok(Some(format!(
                "{address} is an address of this host: the route is local (dev lo), so TCP would measure memory and not \
                 the link. Use another host, or network namespaces that force traffic over the link"
            )));
        }
    }
    Ok(None)
}

/// Runs a client against a server that a peer started.
///
/// # Errors
/// The program is not there or cannot be started.
pub fn run(
    tools: &Toolbox,
    server: &RemoteServer,
    streams: u32,
    duration: Duration,
    cpus: Option<&CpuSet>,
    timeouts: Timeouts,
) -> io::Result<TcpOutcome> {
    let program = tools.find(PROGRAM).ok_or(io::ErrorKind::NotFound)?;
    let directory = RunDirectory::new()?;
    let words = ["--client", &server.host, "--port", &server.tcp_port.to_string(), "--json", "--time"];
    let mut arguments: Vec<String> = words.map(str::to_owned).to_vec();
    arguments.extend([duration.as_secs().max(1).to_string(), "--parallel".to_owned(), streams.max(1).to_string()]);
    let mut child = Child::start(&Invocation { program, arguments }, directory.path(), cpus)?;
    Ok(classify(&child.wait(Instant::now() + duration + timeouts.overrun)))
}

fn classify(ended: &ProcessExit) -> TcpOutcome {
    if ended.timed_out {
        return TcpOutcome::Inconclusive("timeout", "iperf3 timed out and was killed".to_owned());
    }
    match from_json(&ended.output) {
        Ok(report) => {
            let direction = if report.reverse.is_some() { Direction::Both } else { Direction::OneWay };
            let sum = report.received.0 + report.reverse.map_or(0.0, |reverse| reverse.0);
            let measured = Measurements { bandwidth: vec![(direction, sum)], latency: Vec::new() };
            TcpOutcome::Measured(measured, report.retransmits)
        }
        Err(IperfError::Program(text)) if is_unreachable(&text) => {
            TcpOutcome::Failed(Failure::TcpSetup, format!("iperf3: {text}"))
        }
        Err(error @ IperfError::Impossible) => TcpOutcome::Inconclusive("impossible_value", error.to_string()),
        Err(error) => TcpOutcome::Inconclusive("no_result", error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::netlink::socket::route;

    #[test]
    fn a_test_between_two_addresses_of_one_host_is_refused() {
        let Ok(mut kernel) = route()() else { return };
        let why = stays_here("127.0.0.1", &mut *kernel).unwrap().unwrap();
        assert!(why.contains("local (dev lo)"), "{why}");
        assert!(stays_here("localhost", &mut *kernel).unwrap().is_some());
    }

    #[test]
    fn iperf3_that_finds_nobody() {
        let ended = |output: &str| ProcessExit {
            code: Some(0),
            signal: None,
            timed_out: false,
            flooded: false,
            output: output.to_owned(),
        };
        let refused = classify(&ended("{\"error\": \"unable to connect to server: Connection refused\"}"));
        assert!(matches!(refused, TcpOutcome::Failed(Failure::TcpSetup, _)));
        assert!(matches!(classify(&ended("nonsense")), TcpOutcome::Inconclusive("no_result", _)));
        let busy = classify(&ended("{\"error\": \"the server is busy running a test. try again later\"}"));
        assert!(matches!(busy, TcpOutcome::Inconclusive("no_result", _)));
    }
}
