//! A small HTTP server from which Prometheus fetches metrics: one thread, one connection at a time.

use crate::metrics::{Metrics, prometheus};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a client may take for its request and for taking the answer together.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a client has at least for being told that it was too slow.
const LAST: Duration = Duration::from_millis(100);

/// Bytes of a request's head that are read at most.
const HEAD: usize = 8192;

/// Serves metrics over HTTP, at `/metrics` and in Prometheus' text format, from a thread of its own. A program
/// starts one on the rank that is to tell, usually rank 0. It answers one client after the other, of which each
/// has two seconds; it knows neither passwords nor encryption, so that the address should be one that only those
/// reach who may read: `127.0.0.1:9400`.
///
/// Dropping it ends the thread.
///
/// ```no_run
/// use am_async::{Caller, metrics::MetricsServer};
///
/// fn serve(caller: Caller) -> std::io::Result<MetricsServer> {
///     let server = MetricsServer::bind("127.0.0.1:9400", move || caller.metrics().into_iter().collect())?;
///     println!("metrics at http://{}/metrics", server.address());
///     Ok(server)
/// }
/// ```
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens at an address, and answers with what `source` yields: the rank's own metrics, or those of several
    /// ranks. It is called for each request, on the server's thread.
    ///
    /// # Errors
    /// What the system says to the address, or to the thread.
    pub fn bind(
        address: impl ToSocketAddrs,
        source: impl Fn() -> Vec<Metrics> + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let (address, stop) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("calls-metrics".into()).spawn(move || {
            for client in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                match client {
                    // A client that is gone, or too slow, has no answer.
                    Ok(client) => drop(answer(client, &source)),
                    // There are no descriptors left, for instance: later perhaps.
                    Err(_) => thread::sleep(Duration::from_millis(50)),
                }
            }
        })?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// The address that it listens at, with the port that the system chose where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The metrics of several ranks in Prometheus' text format.
    pub fn text(all: &[Metrics]) -> String {
        prometheus::text(all)
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Who listens everywhere is reached here.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        // One that it cannot reach ends with the process.
        if TcpStream::connect_timeout(&address, PATIENCE).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// Reads a request and answers it.
fn answer(mut client: TcpStream, source: &impl Fn() -> Vec<Metrics>) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() >= HEAD {
            // It has a little longer for the answer, which is short.
            let end = end.max(Instant::now() + LAST);
            respond(&mut client, end, "408 Request Timeout", "the request is too slow or too long\n")?;
            return finish(&mut client, end);
        }
        client.set_read_timeout(Some(left))?;
        let mut bytes = [0; 1024];
        match client.read(&mut bytes)? {
            0 => return Ok(()),
            len => head.extend_from_slice(&bytes[..len]),
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (verb, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    match (verb, path) {
        (b"GET", b"/metrics") => match catch_unwind(AssertUnwindSafe(source)) {
            Ok(metrics) => respond(&mut client, end, "200 OK", &prometheus::text(&metrics)),
            // What it panicked with has been told.
            Err(_) => respond(&mut client, end, "500 Internal Server Error", "the metrics' source panicked\n"),
        },
        (b"GET", _) => respond(&mut client, end, "404 Not Found", "metrics are at /metrics\n"),
        _ => respond(&mut client, end, "405 Method Not Allowed\r\nAllow: GET", "metrics are read by GET\n"),
    }
}

/// Reads what is left of a request: a connection that closes with bytes unread loses its answer.
fn finish(client: &mut TcpStream, end: Instant) -> io::Result<()> {
    client.shutdown(Shutdown::Write)?;
    for _ in 0..HEAD / 1024 {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        client.set_read_timeout(Some(left))?;
        if client.read(&mut [0; 1024])? == 0 {
            break;
        }
    }
    Ok(())
}

fn respond(client: &mut TcpStream, end: Instant, status: &str, body: &str) -> io::Result<()> {
    let (kind, len) = ("text/plain; version=0.0.4; charset=utf-8", body.len());
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n");
    let answer = head + body;
    let mut rest = answer.as_bytes();
    while !rest.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_write_timeout(Some(left))?;
        match client.write(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => rest = &rest[written..],
        }
    }
    Ok(())
}
