//! The HTTP server. Small on purpose: two methods, a handful of paths, and bounds on everything a client can hold.
//!
//! | path | |
//! |---|---|
//! | `/` | status page |
//! | `/metrics`, or as configured | metrics |
//! | `/-/healthy` | 200 while the program runs |
//! | `/-/ready` | 200 once a first pass is complete |
//! | `/api/v1/findings`, `/api/v1/events`, `/api/v1/snapshot` | JSON |

mod app;
mod bodies;
mod connection;
mod gate;
mod listen;
mod timed;
mod tls;

pub use app::{App, Options, Source};
pub use connection::{Activity, drive};
pub use listen::serve;

#[cfg(test)]
mod tests;
