//! Round-trip times of Short, Medium and Long messages between two ranks.
//!
//! ```text
//! cargo run --release --example ping_pong
//! cargo run --release --example ping_pong -- --trips 100000
//! ```
//!
//! Rank 0 sends a request, rank 1 answers with a reply of the same kind and size; neither looks at what a payload
//! says. The best and the middle of several series are printed: the best is what the path costs, the middle what
//! to expect.

use active_messages::launch::{self, RunOptions};
use active_messages::shm::JoinOptions;
use active_messages::{
    Address, AttachError, Category, Endpoint, HandlerResult, Handlers, Lane, Payload, Rank, RegisterError, Reply,
    Request, SendError,
};
use active_messages::{Token, Transport, WaitError};
use clap::Parser;
use std::process::ExitCode;
use std::time::Instant;

/// Round-trip times of active messages between two ranks of this host.
#[derive(Clone, Debug, Parser)]
#[command(name = "ping_pong", max_term_width = 100)]
struct Cli {
    /// Round trips of each kind and size
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    trips: u32,
}

/// The largest Medium message, in bytes: its handler declares that it may reply with so much.
const LARGEST: u32 = 8 << 10;

/// Bytes of each rank's segment, where Long payloads are placed.
const SEGMENT: usize = 1 << 20;

/// Series into which the round trips of a row are divided.
const SERIES: u32 = 20;

#[derive(Debug, thiserror::Error)]
enum PingError {
    #[error("ping_pong needs 2 ranks, not {0}")]
    Ranks(u32),
    #[error(transparent)]
    Join(#[from] launch::JobAttachError),
    #[error(transparent)]
    Register(#[from] RegisterError),
    #[error(transparent)]
    Attach(#[from] AttachError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Wait(#[from] WaitError),
}

/// What the handlers work on.
struct State {
    /// Replies that have arrived.
    replies: u64,
    /// What replies carry.
    payload: Vec<u8>,
}

/// The handlers: each request is answered in kind.
#[derive(Clone, Copy)]
struct Pings {
    short: Request<u64>,
    medium: Request<()>,
    long: Request<()>,
}

impl Pings {
    fn register(handlers: &mut Handlers<State>) -> Result<Self, RegisterError> {
        let pong: Reply<()> =
            handlers.reply("pong", |state: &mut State, _: Address, (): (), _: Payload<'_>| {
                state.replies += 1;
            })?;
        let short = move |_: &mut State, token: Token<'_>, _: u64, _: Payload<'_>| -> HandlerResult {
            Ok(token.reply(pong, ())?)
        };
        let medium = move |state: &mut State, token: Token<'_>, (): (), payload: Payload<'_>| -> HandlerResult {
            Ok(token.reply_medium(pong, (), &state.payload[..payload.len()])?)
        };
        let long = move |state: &mut State, token: Token<'_>, (): (), payload: Payload<'_>| -> HandlerResult {
            Ok(token.reply_long(pong, (), &state.payload[..payload.len()], 0)?)
        };
        Ok(Self {
            short: handlers.request_bounded("short", 0, short)?,
            medium: handlers.request_bounded("medium", LARGEST, medium)?,
            long: handlers.request_bounded("long", 0, long)?,
        })
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            let text = error.to_string();
            let paragraph = text.lines().map(str::trim).take_while(|line| !line.is_empty());
            eprintln!("{}", paragraph.collect::<Vec<_>>().join(" "));
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    launch::run(RunOptions::new().ranks(2), |job| {
        if job.ranks() != 2 {
            return Err(PingError::Ranks(job.ranks()));
        }
        run(job.attach(JoinOptions::default().segment_bytes(SEGMENT))?, &cli)
    })
}

/// Runs one of the two ranks on any transport: rank 0 measures, rank 1 answers until rank 0 is done.
fn run<T: Transport>(transport: T, cli: &Cli) -> Result<(), PingError> {
    let mut handlers = Handlers::new();
    let pings = Pings::register(&mut handlers)?;
    let state = State { replies: 0, payload: vec![0x5a; SEGMENT] };
    let mut endpoint = Endpoint::attach(transport, handlers, state)?;
    if endpoint.rank() == Rank(0) {
        measure_all(&mut endpoint, pings, cli.trips)?;
    }
    endpoint.finish()?;
    Ok(())
}

fn measure_all<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    pings: Pings,
    trips: u32,
) -> Result<(), PingError> {
    println!("{:<8} {:>9} {:>12} {:>12} {:>12}", "kind", "bytes", "best us", "middle us", "MB/s");
    let peer = Rank(1);
    row(endpoint, "Short", 0, trips, |endpoint| endpoint.request(peer, pings.short, 0))?;
    let payload = vec![0xa5; SEGMENT];
    for bytes in [8, 64, 512, 1 << 10, 4 << 10, LARGEST as usize] {
        if bytes as u64 <= endpoint.max_payload(peer, Category::Medium, Lane::Request, 0).unwrap_or(0) {
            let ping = |endpoint: &mut Endpoint<T, State>| {
                endpoint.request_medium(peer, pings.medium, (), &payload[..bytes])
            };
            row(endpoint, "Medium", bytes, trips, ping)?;
        }
    }
    for bytes in [8, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20] {
        let trips = trips.min((1 << 30) / bytes as u32);
        let ping =
            |endpoint: &mut Endpoint<T, State>| endpoint.request_long(peer, pings.long, (), &payload[..bytes], 0);
        row(endpoint, "Long", bytes, trips, ping)?;
    }
    Ok(())
}

/// Measures and prints one row.
fn row<T: Transport>(
    endpoint: &mut Endpoint<T, State>,
    kind: &str,
    bytes: usize,
    trips: u32,
    mut ping: impl FnMut(&mut Endpoint<T, State>) -> Result<(), SendError>,
) -> Result<(), PingError> {
    let each = trips.div_ceil(SERIES);
    let mut series = Vec::new();
    // The first series only warms up.
    for _ in 0..=SERIES {
        let start = Instant::now();
        for _ in 0..each {
            let next = endpoint.state().replies + 1;
            ping(endpoint)?;
            endpoint.wait_until(|state| state.replies == next)?;
        }
        series.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(each));
    }
    let series = &mut series[1..];
    series.sort_by(f64::total_cmp);
    let (best, middle) = (series[0], series[series.len() / 2]);
    // Bytes per microsecond are megabytes per second; they go there and back.
    println!("{kind:<8} {bytes:>9} {best:>12.3} {middle:>12.3} {:>12.1}", 2.0 * bytes as f64 / middle);
    Ok(())
}
