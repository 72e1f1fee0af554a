//! The HTTP server. Small on purpose: two methods, a handful of paths, and bounds on everything a client can hold.
//!
//! | path | |
//! |---|---|
//! | `/` | status page |
//! | `/metrics`, or as configured | metrics |
//! | `/-/healthy` | 200 while the program runs |
//! | `/-/ready` | 200 once a first pass is complete |
//! | `/api/v1/findings`, `/api/v1/events`, `/api/v1/snapshot` | JSON |
//! | `POST /api/v1/probe-server` | starts a server for the probe of a peer, where that is on |

mod app;
mod bodies;
mod connection;
mod gate;
mod listen;
mod probe_server;
mod timed;
mod tls;

pub use app::{App, Options, Source};
pub use connection::{Activity, drive};
pub use listen::serve;
pub use probe_server::ProbeServer;

#[cfg(test)]
mod tests;
