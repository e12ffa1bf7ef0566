//! Two threads on a processor each, with an endpoint each: rank 0 measures, rank 1 answers.

use active_messages::shm::Shm;
use active_messages::{Address, Endpoint, Handlers, Payload, Rank, Reply, Request, Token, Transport};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use sci_sim::conduit::Conduit;
use sci_sim::nic::{Mapped, Sisci};
use std::thread;
use std::time::Instant;

/// How much of everything is done for one sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// Round trips.
    pub(crate) trips: u32,
    /// Messages of a flood.
    pub(crate) flood: u32,
}

/// Seconds that one operation took, and what it moved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// A Short round trip.
    pub(crate) short: f64,
    /// A Medium round trip of [`MEDIUM`] bytes.
    pub(crate) medium: f64,
    /// A Short message of a flood.
    pub(crate) flood: f64,
    /// Lines that rank 0 stored for its part of a Short round trip, where the transport counts them.
    pub(crate) lines: Option<f64>,
}

/// Bytes of the Medium messages: the largest of the published conduit.
pub(crate) const MEDIUM: usize = 944;

/// A transport that may tell how many lines it has stored.
pub(crate) trait Counting: Transport {
    /// Lines so far.
    fn lines(&self) -> Option<u64>;
}

impl Counting for Shm {
    fn lines(&self) -> Option<u64> {
        None
    }
}

impl Counting for Conduit<Mapped> {
    fn lines(&self) -> Option<u64> {
        Some(self.nic().counters().lines)
    }
}

/// Measures once: `join` gives each rank, on its own thread, its transport.
pub(crate) fn sample<T: Counting>(counts: Counts, join: impl Fn(u32) -> T + Sync) -> Sample {
    thread::scope(|scope| {
        let join = &join;
        let answering = scope.spawn(move || {
            confine(1);
            rank(join(1), counts);
        });
        let measuring = scope.spawn(move || {
            confine(0);
            rank(join(0), counts)
        });
        answering.join().expect("rank 1 answers");
        measuring.join().expect("rank 0 measures")
    })
}

/// Keeps this thread on a processor, if there are as many.
fn confine(processor: usize) {
    let mut set = CpuSet::new();
    if thread::available_parallelism().is_ok_and(|all| all.get() > processor) && set.set(processor).is_ok() {
        // Where that is not allowed, the figures are only less steady.
        let _ = sched_setaffinity(Pid::from_raw(0), &set);
    }
}

#[derive(Default)]
struct State {
    answers: u32,
    arrived: u32,
    over: bool,
}

#[derive(Clone, Copy)]
struct Table {
    ask: Request<u64>,
    fill: Request<()>,
    note: Request<u64>,
    over: Request<()>,
}

fn table(handlers: &mut Handlers<State>) -> Table {
    let room = "five handlers fit the table";
    let back: Reply<u64> = handlers
        .reply("back", |state: &mut State, _: Address, _: u64, _: Payload<'_>| state.answers += 1)
        .expect(room);
    let ask = move |_: &mut State, token: Token<'_>, word: u64, _: Payload<'_>| {
        token.reply(back, word).expect("the asker waits");
    };
    let fill = move |_: &mut State, token: Token<'_>, (): (), _: Payload<'_>| {
        token.reply_medium(back, 0, &[0x5a; MEDIUM]).expect("the asker waits");
    };
    let note = |state: &mut State, _: Address, _: u64, _: Payload<'_>| state.arrived += 1;
    let over = |state: &mut State, _: Address, (): (), _: Payload<'_>| state.over = true;
    Table {
        ask: handlers.request("ask", ask).expect(room),
        fill: handlers.request("fill", fill).expect(room),
        note: handlers.one_way("note", note).expect(room),
        over: handlers.one_way("over", over).expect(room),
    }
}

fn rank<T: Counting>(transport: T, counts: Counts) -> Sample {
    let mut handlers = Handlers::new();
    let table = table(&mut handlers);
    let mut endpoint = Endpoint::attach(transport, handlers, State::default()).expect("both ranks register alike");
    let mut sample = Sample::default();
    if endpoint.rank() == Rank(0) {
        sample = measure(&mut endpoint, &table, counts);
        endpoint.request(Rank(1), table.over, ()).expect("rank 1 serves");
    } else {
        endpoint.wait_until(|state| state.over).expect("rank 0 measures");
    }
    endpoint.finish().expect("both ranks end");
    sample
}

fn measure<T: Counting>(endpoint: &mut Endpoint<T, State>, table: &Table, counts: Counts) -> Sample {
    let serves = "rank 1 serves until it is told to end";
    let trips = |endpoint: &mut Endpoint<T, State>, count: u32, medium: bool| {
        let began = Instant::now();
        for _ in 0..count {
            let next = endpoint.state().answers + 1;
            if medium {
                endpoint.request_medium(Rank(1), table.fill, (), &[0x5a; MEDIUM]).expect(serves);
            } else {
                endpoint.request(Rank(1), table.ask, 1).expect(serves);
            }
            endpoint.wait_until(|state| state.answers == next).expect(serves);
        }
        began.elapsed().as_secs_f64() / f64::from(count)
    };
    // What was never touched is slow the first time.
    trips(endpoint, counts.trips / 10 + 1, false);
    trips(endpoint, counts.trips / 10 + 1, true);
    let before = endpoint.transport().lines();
    let short = trips(endpoint, counts.trips, false);
    let after = endpoint.transport().lines();
    let lines = after.zip(before).map(|(after, before)| (after - before) as f64 / f64::from(counts.trips));
    let medium = trips(endpoint, counts.trips, true);
    let began = Instant::now();
    for number in 0..counts.flood {
        endpoint.request(Rank(1), table.note, number.into()).expect(serves);
    }
    endpoint.drain().expect(serves);
    let flood = began.elapsed().as_secs_f64() / f64::from(counts.flood);
    Sample { short, medium, flood, lines }
}
