//! Asks a peer to start a server.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ring::rand::{SecureRandom as _, SystemRandom};

use super::authentication::millis;
use super::authentication::{PeerKey, RequestStamp, hex};
use super::request::RequestResult;
use super::request::{ErrorDocument, NONCE, SIGNATURE, ServerRequest, StartedServer, TIME, TO};
use super::schedule::split;
use crate::bench::rdma::{Peer, PeerError, RemoteServer, TestPlan};
use crate::model::benchmark::Doubt;

/// What an HTTP server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpReply {
    /// Its status.
    pub status: u16,
    /// The header [`SIGNATURE`].
    pub signature: Option<String>,
    /// Its body.
    pub body: Vec<u8>,
}

/// Somebody who can make an HTTP request.
pub trait PeerTransport: Send + Sync {
    /// Posts a request to a peer, at [`PATH`](super::request::PATH).
    ///
    /// # Errors
    /// There is no answer; one sentence.
    fn post(&self, to: &str, headers: &[(&'static str, String)], body: Vec<u8>) -> Result<HttpReply, String>;
}

/// A peer that is asked over HTTP.
pub struct HttpPeer<'a> {
    /// How.
    pub transport: &'a dyn PeerTransport,
    /// The file of the key to sign with; none: the connection's certificate says who asks.
    pub key: Option<&'a Path>,
    /// The peer, as the list names it.
    pub to: Arc<str>,
    /// Which of its ports.
    pub rail: u32,
    /// The wall clock.
    pub now: &'a dyn Fn() -> SystemTime,
}

fn refused(text: impl Into<String>) -> PeerError {
    PeerError { reason: Doubt::PeerRefused, text: text.into() }
}

impl Peer for HttpPeer<'_> {
    fn name(&self) -> &str {
        &self.to
    }

    fn host(&self) -> &str {
        split(&self.to).map_or(&*self.to, |(host, _)| host)
    }

    fn start(&self, plan: &TestPlan) -> Result<RemoteServer, PeerError> {
        let (host, _) = split(&self.to).ok_or_else(|| refused("the peer's name has no port"))?;
        let request = ServerRequest::new(plan, self.rail);
        request.within_bounds().map_err(refused)?;
        let body = serde_json::to_vec(&request).map_err(|error| refused(error.to_string()))?;
        let key = self.key.map(PeerKey::read).transpose().map_err(|error| refused(error.to_string()))?;
        let mut nonce = [0; 16];
        SystemRandom::new().fill(&mut nonce).map_err(|_| refused("no random numbers are available"))?;
        let (nonce, time) = (hex(&nonce), millis((self.now)()));
        let mut headers = Vec::new();
        if let Some(key) = &key {
            let signature = key.sign(&RequestStamp { to: &self.to, time, nonce: &nonce }, &body);
            headers.push((TO, self.to.to_string()));
            headers.push((TIME, time.to_string()));
            headers.push((NONCE, nonce.clone()));
            headers.push((SIGNATURE, signature));
        }
        let unreachable = |text| PeerError { reason: Doubt::PeerUnreachable, text };
        let reply = self.transport.post(&self.to, &headers, body).map_err(unreachable)?;
        if reply.status != 200 {
            return Err(self.why(&reply));
        }
        let signature = reply.signature.as_deref().unwrap_or_default();
        if key.is_some_and(|key| !key.is_right_answer(signature, &nonce, &reply.body)) {
            return Err(refused("its response is not signed with the shared key"));
        }
        let started: StartedServer = serde_json::from_slice(&reply.body)
            .map_err(|error| refused(format!("its response cannot be read: {error}")))?;
        let ceiling = started.lane.and_then(|lane| lane.ceiling());
        Ok(RemoteServer { host: host.to_owned(), tcp_port: started.tcp_port, ceiling })
    }
}

impl HttpPeer<'_> {
    fn why(&self, reply: &HttpReply) -> PeerError {
        let Ok(told) = serde_json::from_slice::<ErrorDocument>(&reply.body) else {
            let hint = if reply.status == 404 { ": it does not serve peers ([probe.peers] serve)" } else { "" };
            return refused(format!("HTTP status {}{hint}", reply.status));
        };
        let here = millis((self.now)());
        let skew = told.clock.filter(|_| told.reason == RequestResult::ClockSkew.as_str());
        let Some(there) = skew else { return refused(format!("{}: {}", told.reason, brief(&told.message))) };
        let apart = humantime::format_duration(Duration::from_secs(here.abs_diff(there) / 1_000));
        let way = if there > here { "ahead of" } else { "behind" };
        PeerError { reason: Doubt::PeerClock, text: format!("its clock is {apart} {way} this host's") }
    }
}

/// What another host says, as one short line.
fn brief(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rdma::BenchmarkTool;

    struct Says(Result<HttpReply, String>);

    impl PeerTransport for Says {
        fn post(&self, _: &str, _: &[(&'static str, String)], _: Vec<u8>) -> Result<HttpReply, String> {
            self.0.clone()
        }
    }

    fn ask(says: Result<HttpReply, String>, plan: &TestPlan) -> Result<RemoteServer, PeerError> {
        let now = || SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let http_peer =
            HttpPeer { transport: &Says(says), key: None, to: Arc::from("node18:10015"), rail: 0, now: &now };
        http_peer.start(plan)
    }

    fn reply(status: u16, body: &str) -> HttpReply {
        HttpReply { status, signature: None, body: body.as_bytes().to_vec() }
    }

    const PLAN: TestPlan = TestPlan {
        program: BenchmarkTool::WriteBandwidth,
        size: 65_536,
        queue_pairs: 1,
        duration: Duration::from_secs(5),
        both: false,
    };

    #[test]
    fn answers_and_refusals() {
        let server = ask(Ok(reply(200, "{\"tcp_port\": 18515}")), &PLAN).unwrap();
        assert_eq!((server.host.as_str(), server.tcp_port), ("node18", 18_515));
        let skew = "{\"reason\": \"clock_skew\", \"message\": \"x\", \"clock\": 1790000093000}";
        for (says, plan, reason, part) in [
            (Err("connection refused".to_owned()), PLAN, "peer_unreachable", "connection refused"),
            (Ok(reply(200, "{}")), PLAN, "peer_refused", "cannot be read"),
            (Ok(reply(404, "not found\n")), PLAN, "peer_refused", "[probe.peers] serve"),
            (Ok(reply(503, "{\"reason\": \"busy\", \"message\": \"a job\"}")), PLAN, "peer_refused", "busy: a job"),
            (Ok(reply(401, skew)), PLAN, "peer_clock", "its clock is 1m 33s ahead of this host's"),
            (
                Ok(reply(200, "")),
                TestPlan { duration: Duration::from_secs(600), ..PLAN },
                "peer_refused",
                "outside 1 to 60",
            ),
        ] {
            let why = ask(says, &plan).unwrap_err();
            assert_eq!(why.reason.as_str(), reason, "{}", why.text);
            assert!(why.text.contains(part), "{}", why.text);
        }
    }
}
