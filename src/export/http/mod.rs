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
mod connection;
mod listen;
mod negotiate;
mod probe_server;
mod response;
mod stream;

pub use app::{App, HttpOptions, ReportSource};
pub use connection::drive;
pub use listen::serve;
pub use probe_server::ProbeServer;
pub use stream::Activity;

#[cfg(test)]
mod tests;
