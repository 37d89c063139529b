//! The HTTP end: `/metrics` and `/json`, for Prometheus and whoever else asks, one look at the processes for each request.

use super::encode::{self, JSON_TYPE, TEXT_TYPE};
use super::gather::Snapshot;
use crate::output;
use anyhow::Context;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tiny_http::{Header, Method, Request, Response, Server};

/// How soon a signal ends it.
const LOOK: Duration = Duration::from_millis(100);
/// Longest that a reader who reads nothing is waited for. Connections have this from the socket that listens (Linux copies it).
const PATIENCE: TimeVal = TimeVal::new(2, 0);
/// A look that is younger is given to the next who asks, too: many requests at once make few looks.
const FRESH: Duration = Duration::from_millis(250);
/// Readers that are remembered for not reading.
const MOST_DEAF: usize = 64;

const NOTHING: &str = "there are /metrics (OpenMetrics text) and /json here\n";

/// Serves until a signal comes.
pub fn run(address: SocketAddr, look: impl Fn() -> Snapshot) -> anyhow::Result<ExitCode> {
    let listener = TcpListener::bind(address).map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::AddrInUse => format!(
                "another program listens there; choose another port, or see which with `ss -ltnp sport = {}`",
                address.port()
            ),
            ErrorKind::AddrNotAvailable => {
                "this host has no such address; `ip address` lists those it has".into()
            }
            ErrorKind::PermissionDenied => "ports below 1024 are root's; choose a higher one".into(),
            _ => return anyhow::anyhow!("cannot listen on {address}: {error}"),
        };
        anyhow::anyhow!("cannot listen on {address}: {advice}")
    })?;
    let address = listener.local_addr().context("cannot listen")?;
    setsockopt(&listener, sockopt::SendTimeout, &PATIENCE).context("cannot listen")?;
    let server =
        Server::from_listener(listener, None).map_err(|error| anyhow::anyhow!("cannot listen: {error}"))?;
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, end.clone())?;
    }
    output::text(&format!("serving http://{address}/metrics and http://{address}/json; ^C ends it\n"))?;
    let mut answers = Answers::default();
    while !end.load(Ordering::Relaxed) {
        match server.recv_timeout(LOOK) {
            Ok(Some(request)) => answers.answer(request, &look),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot serve any more"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What is remembered between requests.
#[derive(Default)]
struct Answers {
    /// The last look, and when it was over.
    last: Option<(Instant, Snapshot)>,
    /// Readers that have not read: what else they have asked for would take as long again, each time.
    deaf: VecDeque<SocketAddr>,
}

impl Answers {
    fn look(&mut self, look: &impl Fn() -> Snapshot) -> &Snapshot {
        let last = self.last.take().filter(|(at, _)| at.elapsed() < FRESH);
        let last = last.unwrap_or_else(|| {
            let snapshot = look();
            (Instant::now(), snapshot)
        });
        &self.last.insert(last).1
    }

    fn answer(&mut self, request: Request, look: &impl Fn() -> Snapshot) {
        let reader = request.remote_addr().copied();
        if reader.is_some_and(|reader| self.deaf.contains(&reader)) {
            drop(request.into_writer()); // without a word
            return;
        }
        if self.respond(request, look).is_err()
            && let Some(reader) = reader
        {
            self.deaf.truncate(MOST_DEAF - 1);
            self.deaf.push_front(reader);
        }
    }

    fn respond(&mut self, request: Request, look: &impl Fn() -> Snapshot) -> std::io::Result<()> {
        let path = request.url().split('?').next().unwrap_or_default().to_owned();
        let (status, media, body) = match (request.method(), path.as_str()) {
            (Method::Get | Method::Head, "/metrics") => (200, TEXT_TYPE, encode::text(self.look(look))),
            (Method::Get | Method::Head, "/json") => {
                (200, JSON_TYPE, format!("{}\n", encode::json(self.look(look))))
            }
            (Method::Get | Method::Head, _) => (404, "text/plain", NOTHING.to_owned()),
            _ => (405, "text/plain", "GET and HEAD alone\n".to_owned()),
        };
        let mut response =
            Response::from_string(body).with_status_code(status).with_chunked_threshold(usize::MAX);
        if let Ok(header) = Header::from_bytes("Content-Type", media) {
            response.add_header(header);
        }
        request.respond(response)
    }
}
