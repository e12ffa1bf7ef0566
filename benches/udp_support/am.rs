//! Two ranks as threads of this process that talk over loopback, and what they do for a figure.

use super::random_access::{self, Stream, Variant};
use active_messages::{Address, Endpoint, Handlers, Payload, Rank, Request, Span, Token};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use transport_udp::proto::Protection;
use transport_udp::{LocalJob, LocalOptions, Udp, UdpConfig, Waiting};

/// Bytes of a rank's segment: Longs rotate over it.
const SEGMENT: usize = 8 << 20;
/// Bytes of a Long.
pub(crate) const LONG: usize = 1 << 20;
const OTHER: Rank = Rank(1);

/// What the ranks keep.
#[derive(Debug, Default)]
pub(crate) struct State {
    replies: u64,
    go: Option<(u64, Variant)>,
    finished: u64,
    stop: bool,
    pub(crate) table: Vec<u64>,
}

/// The handlers of both ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    ask: Request<u64>,
    note: Request<u64>,
    go: Request<(u64, u64)>,
    finished: Request<u64>,
    stop: Request<u64>,
    pub(crate) update: Request<u64>,
    pub(crate) updates: Request<()>,
}

fn table() -> (Handlers<State>, Table) {
    let mut handlers = Handlers::<State>::new();
    let few = "a dozen handlers fit";
    let reply = handlers
        .reply("reply", |state: &mut State, _: Address, _: u64, _: Payload<'_>| state.replies += 1)
        .expect(few);
    let ask = handlers.request("ask", move |_: &mut State, token: Token<'_>, value: u64, payload: Payload<'_>| {
        let sent = match payload.len() {
            0 => token.reply(reply, value),
            len => token.reply_medium(reply, value, &vec![1; len]),
        };
        sent.expect("the asker waits");
    });
    let note = handlers.one_way("note", |state: &mut State, _: Address, value: u64, _: Payload<'_>| {
        state.replies = state.replies.wrapping_add(value);
    });
    let go = handlers.one_way("go", |state: &mut State, _: Address, (count, kind): (u64, u64), _: Payload<'_>| {
        state.go = Some((count, if kind == 0 { Variant::Short } else { Variant::Medium }));
    });
    let finished =
        handlers.one_way("finished", |state: &mut State, _: Address, _: u64, _: Payload<'_>| state.finished += 1);
    let stop = handlers.one_way("stop", |state: &mut State, _: Address, _: u64, _: Payload<'_>| state.stop = true);
    let update = handlers.one_way("update", |state: &mut State, _: Address, value: u64, _: Payload<'_>| {
        random_access::apply(&mut state.table, value);
    });
    let updates = handlers.one_way("updates", |state: &mut State, _: Address, (): (), values: Payload<'_>| {
        let table = &mut state.table;
        values.for_each_u64(|value| random_access::apply(table, value));
    });
    let table = Table {
        ask: ask.expect(few),
        note: note.expect(few),
        go: go.expect(few),
        finished: finished.expect(few),
        stop: stop.expect(few),
        update: update.expect(few),
        updates: updates.expect(few),
    };
    (handlers, table)
}

type Rank0 = Endpoint<Udp, State>;

fn attach(job: &LocalJob, rank: u32) -> (Rank0, Table) {
    let (handlers, table) = table();
    let transport = job.join(rank).expect("every rank joins once");
    let state = State { table: vec![0; random_access::WORDS], ..State::default() };
    let mut endpoint = Endpoint::attach(transport, handlers, state).expect("both ranks have the same table");
    endpoint.barrier().expect("both ranks are there");
    (endpoint, table)
}

/// Two ranks; this thread is rank 0, rank 1 serves.
pub(crate) struct Crew {
    endpoint: Option<Rank0>,
    table: Table,
    other: Option<JoinHandle<()>>,
    payload: Vec<u8>,
    bulk: Vec<u8>,
}

/// How a crew talks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How datagrams are protected.
    pub(crate) protection: Protection,
    /// How the ranks wait.
    pub(crate) waiting: Waiting,
    /// Whether the helper threads ever look after the ranks.
    pub(crate) helper: bool,
}

impl Crew {
    /// Starts both ranks.
    pub(crate) fn start(plan: Plan) -> Self {
        let mut config = UdpConfig::new([]);
        config.protection = plan.protection;
        config.waiting = plan.waiting;
        if !plan.helper {
            config.absence = Duration::from_secs(3600);
        }
        let options = LocalOptions { segment_bytes: SEGMENT, ..LocalOptions::default() };
        let job = Arc::new(LocalJob::with(2, options, config).expect("loopback has free ports"));
        let theirs = Arc::clone(&job);
        let other = thread::spawn(move || serve(&theirs));
        let (endpoint, table) = attach(&job, 0);
        Self {
            endpoint: Some(endpoint),
            table,
            other: Some(other),
            payload: vec![1; 8 << 10],
            bulk: vec![2; LONG],
        }
    }

    fn endpoint(&mut self) -> &mut Rank0 {
        self.endpoint.as_mut().expect("the endpoint lives as long as the crew")
    }

    fn timed(&mut self, work: impl FnOnce(&mut Rank0, Table, &[u8], &[u8])) -> Duration {
        let Self { endpoint, table, payload, bulk, .. } = self;
        let endpoint = endpoint.as_mut().expect("the endpoint lives as long as the crew");
        let began = Instant::now();
        work(endpoint, *table, payload, bulk);
        began.elapsed()
    }

    /// A Short request with one 64-bit argument and its Short reply.
    pub(crate) fn short_trips(&mut self, iterations: u64) -> Duration {
        self.timed(|endpoint, table, _, _| {
            for number in 0..iterations {
                let due = endpoint.state().replies.wrapping_add(1);
                endpoint.request(OTHER, table.ask, number).expect("rank 1 is there");
                endpoint.wait_until(|state| state.replies == due).expect("rank 1 answers");
            }
        })
    }

    /// A Medium request of 8 KB and a Medium reply of the same size.
    pub(crate) fn medium_trips(&mut self, iterations: u64) -> Duration {
        self.timed(|endpoint, table, payload, _| {
            for number in 0..iterations {
                let due = endpoint.state().replies.wrapping_add(1);
                endpoint.request_medium(OTHER, table.ask, number, &payload[..1024]).expect("rank 1 is there");
                endpoint.wait_until(|state| state.replies == due).expect("rank 1 answers");
            }
        })
    }

    /// Short one-way requests with one 64-bit argument, until all are handled.
    pub(crate) fn short_flood(&mut self, iterations: u64) -> Duration {
        self.timed(|endpoint, table, _, _| {
            for number in 0..iterations {
                endpoint.request(OTHER, table.note, number).expect("rank 1 is there");
            }
            endpoint.drain().expect("rank 1 handles them");
        })
    }

    /// Medium one-way requests of 8 KB, until all are handled.
    pub(crate) fn medium_flood(&mut self, iterations: u64) -> Duration {
        self.timed(|endpoint, table, payload, _| {
            for number in 0..iterations {
                endpoint.request_medium(OTHER, table.note, number, payload).expect("rank 1 is there");
            }
            endpoint.drain().expect("rank 1 handles them");
        })
    }

    /// Long one-way requests of a mebibyte, until all are handled.
    pub(crate) fn long_flood(&mut self, iterations: u64) -> Duration {
        self.timed(|endpoint, table, _, bulk| {
            for number in 0..iterations {
                let at = number % (SEGMENT / LONG) as u64 * LONG as u64;
                endpoint.request_long(OTHER, table.note, number, bulk, at).expect("rank 1 is there");
            }
            endpoint.drain().expect("rank 1 handles them");
        })
    }

    /// RandomAccess: `iterations` updates by each rank, until all are applied everywhere.
    pub(crate) fn random_access(&mut self, variant: Variant, iterations: u64) -> Duration {
        self.timed(|endpoint, table, _, _| {
            let kind = u64::from(variant == Variant::Medium);
            endpoint.request(OTHER, table.go, (iterations, kind)).expect("rank 1 is there");
            endpoint.flush();
            random_access::run(endpoint, &table, variant, &mut Stream::new(0), iterations);
            endpoint.wait_until(|state| state.finished == 1).expect("rank 1 finishes");
            endpoint.state_mut().finished = 0;
        })
    }

    /// Processor time that the whole process takes while both ranks wait for `iterations` milliseconds.
    pub(crate) fn idle(&mut self, iterations: u64) -> Duration {
        let before = processor_time();
        let _ = self.endpoint().wait_until_for(Span::from_millis(iterations), |_| false);
        processor_time() - before
    }
}

fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process knows its usage");
    Duration::from_micros((usage.user_time() + usage.system_time()).num_microseconds() as u64)
}

/// Rank 1: does what it is told until it is told to stop.
fn serve(job: &LocalJob) {
    let (mut endpoint, table) = attach(job, 1);
    let mut stream = Stream::new(1);
    loop {
        endpoint.wait_until(|state| state.stop || state.go.is_some()).expect("rank 0 is there");
        if endpoint.state().stop {
            break;
        }
        if let Some((count, variant)) = endpoint.state_mut().go.take() {
            random_access::run(&mut endpoint, &table, variant, &mut stream, count);
            endpoint.request(Rank(0), table.finished, 0).expect("rank 0 waits");
        }
    }
    endpoint.finish().expect("rank 0 finishes, too");
}

impl Drop for Crew {
    fn drop(&mut self) {
        let Some(mut endpoint) = self.endpoint.take() else { return };
        if thread::panicking() {
            return;
        }
        endpoint.request(OTHER, self.table.stop, 0).expect("rank 1 is there");
        endpoint.finish().expect("rank 1 finishes, too");
        if let Some(other) = self.other.take() {
            other.join().expect("rank 1 ends well");
        }
    }
}
