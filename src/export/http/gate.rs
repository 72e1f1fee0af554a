//! What comes before an answer: the rate limit, the password, and the headers that every answer gets.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;

use super::app::{Answer, App, line};
use super::connection::Client;
use crate::export::web::{Refused as Unencrypted, Verdict, Web};

/// Wrong passwords are said in the log at the first and then at every so many.
const SAID_EVERY: u64 = 100;

/// Counts what was refused, for the log.
#[derive(Debug, Default)]
pub(super) struct Refused(AtomicU64);

impl App {
    /// The answer to a request of a client, if it may have one.
    pub(super) async fn respond(&self, client: Client, request: &Parts, body: Incoming) -> Answer {
        let web = self.web();
        let mut answer = match self.probe_route(request) {
            // Requests of peers have limits and signatures of their own.
            Some(route) => self.probe_server(route, client, request, body).await,
            None => match self.refusal(&web, client.address, request).await {
                Some(refusal) => refusal,
                None => self.answer(request).await,
            },
        };
        for (name, value) in &web.headers {
            answer.headers_mut().insert(name.clone(), value.clone());
        }
        answer
    }

    /// Counts a client that got no encrypted connection.
    pub(super) fn count_refused(&self, why: Unencrypted) {
        self.change_agent(|agent| {
            for (count, known) in agent.refused.iter_mut().zip(Unencrypted::ALL) {
                *count += u64::from(known == why);
            }
        });
    }

    async fn refusal(&self, web: &Arc<Web>, peer: Option<IpAddr>, request: &Parts) -> Option<Answer> {
        if web.rate.as_ref().is_some_and(|rate| !rate.take(Instant::now())) {
            return Some(later("too many requests\n"));
        }
        let users = web.users.as_ref()?;
        let shown = request.headers.get(header::AUTHORIZATION);
        match users.judge(peer, shown).await {
            Verdict::Right => None,
            Verdict::Later => Some(later("too many attempts\n")),
            Verdict::Wrong => {
                if shown.is_some() {
                    self.refused.say(peer);
                }
                let mut answer = line(StatusCode::UNAUTHORIZED, "unauthorized\n");
                let basic = HeaderValue::from_static("Basic realm=\"lanewatch\", charset=\"UTF-8\"");
                answer.headers_mut().insert(header::WWW_AUTHENTICATE, basic);
                Some(answer)
            }
        }
    }
}

impl Refused {
    /// Neither names nor passwords: people type one into the field of the other.
    fn say(&self, peer: Option<IpAddr>) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        if before.is_multiple_of(SAID_EVERY) {
            let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
            tracing::warn!(%peer, refused = before + 1, "wrong user name or password");
        }
    }
}

fn later(text: &'static str) -> Answer {
    let mut answer = line(StatusCode::TOO_MANY_REQUESTS, text);
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}
