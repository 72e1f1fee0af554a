//! The fleet: the capacity of many hosts, from a Prometheus that scrapes them.
//!
//! [`client`] queries the server, [`facts`] holds what one host's series say, [`stranded`] and [`host`] compute its
//! capacity (pure functions), [`tally`] adds hosts up, [`cables`] pairs the ends of cables, [`audit`] runs the queries in
//! shards, [`trend`] compares several moments, and [`limit`] checks the result against `--fail-on`. Memory is bounded by a
//! shard and by the lists, not by the size of the fleet.

pub mod audit;
pub mod cables;
pub mod client;
pub mod facts;
pub mod host;
pub mod limit;
pub mod peer_transport;
pub mod query;
pub mod stranded;
pub mod tally;
pub mod tls;
pub mod trend;
