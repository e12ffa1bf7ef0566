//! Two ranks as threads of this process that talk over loopback, and what they do for a figure.

use active_messages::{Address, Endpoint, Handlers, Payload, Rank, Request, Span, Token};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use transport_udp::proto::Protection;
use transport_udp::{LocalJob, LocalOptions, Udp, UdpConfig, WaitMode};

/// Bytes of a rank's segment: Longs rotate over it.
const SEGMENT: usize = 8 << 20;
/// Bytes of a Long.
pub(crate) const LONG: usize = 1 << 20;
const OTHER: Rank = Rank(1);

/// What the ranks keep.
#[derive(Debug, Default)]
pub(crate) struct State {
    replies: u64,
    /// How often this rank was told to pause: rank 0 may go on, and pause again, before this rank has looked.
    pauses: u64,
}

/// The handlers of both ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    ask: Request<u64>,
    note: Request<u64>,
    pause: Request<u64>,
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
    let pause =
        handlers.one_way("pause", |state: &mut State, _: Address, _: u64, _: Payload<'_>| state.pauses += 1);
    let table = Table { ask: ask.expect(few), note: note.expect(few), pause: pause.expect(few) };
    (handlers, table)
}

type Rank0 = Endpoint<Udp, State>;

fn attach(job: &LocalJob, rank: u32) -> (Rank0, Table) {
    let (handlers, table) = table();
    let transport = job.join(rank).expect("every rank joins once");
    let mut endpoint =
        Endpoint::attach(transport, handlers, State::default()).expect("both ranks have the same table");
    endpoint.barrier().expect("both ranks are there");
    (endpoint, table)
}

/// Two ranks; this thread is rank 0, rank 1 serves.
pub(crate) struct Crew {
    endpoint: Option<Rank0>,
    table: Table,
    other: Option<JoinHandle<()>>,
    /// Wakes rank 1; without it, rank 1 ends.
    wake: Option<Sender<()>>,
    payload: Vec<u8>,
    bulk: Vec<u8>,
}

/// How a crew talks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How datagrams are protected.
    pub(crate) protection: Protection,
    /// How the ranks wait.
    pub(crate) waiting: WaitMode,
    /// Whether helpers watch over them.
    pub(crate) helper: bool,
    /// How many datagrams out of 1000 each of them loses instead of sending.
    pub(crate) loss: u32,
}

impl Plan {
    /// As ranks are unless told otherwise.
    pub(crate) fn new(protection: Protection, waiting: WaitMode) -> Self {
        Self { protection, waiting, helper: true, loss: 0 }
    }

    /// The settings of its transports.
    pub(crate) fn config(self) -> UdpConfig {
        let mut config = UdpConfig::new([]);
        config.protocol.protection = self.protection;
        config.waiting = self.waiting;
        config.helper = self.helper;
        config.loss = (self.loss > 0).then_some((self.loss, 7));
        if !self.helper {
            // Nobody answers for rank 0 between two samples.
            config.protocol.silence = Span::from_secs(3600);
        }
        config
    }
}

impl Crew {
    /// Starts both ranks.
    pub(crate) fn start(plan: Plan) -> Self {
        let options = LocalOptions::default().segment_bytes(SEGMENT);
        let job = Arc::new(LocalJob::with(2, options, plan.config()).expect("loopback has free ports"));
        let theirs = Arc::clone(&job);
        let (wake, woken) = mpsc::channel();
        let other = thread::spawn(move || serve(&theirs, &woken, plan.helper));
        let (endpoint, table) = attach(&job, 0);
        let (payload, bulk) = (vec![1; 8 << 10], vec![2; LONG]);
        Self { endpoint: Some(endpoint), table, other: Some(other), wake: Some(wake), payload, bulk }
    }

    /// Wakes rank 1, does some work with it, and lets it sleep again, so that nobody polls beside a baseline.
    fn timed(&mut self, work: impl FnOnce(&mut Rank0, Table, &[u8], &[u8])) -> Duration {
        let Self { endpoint, table, payload, bulk, wake, .. } = self;
        let endpoint = endpoint.as_mut().expect("the endpoint lives as long as the crew");
        wake.as_ref().and_then(|wake| wake.send(()).ok()).expect("rank 1 is there");
        (0..100).for_each(|number| trip(endpoint, table, number, None));
        let began = Instant::now();
        work(endpoint, *table, payload, bulk);
        let took = began.elapsed();
        endpoint.request(OTHER, table.pause, 0).expect("rank 1 is there");
        endpoint.drain().expect("rank 1 pauses");
        took
    }

    /// A Short request with one 64-bit argument and its Short reply.
    pub(crate) fn short_trips(&mut self, iterations: u64) -> Duration {
        self.timed(|endpoint, table, _, _| {
            (0..iterations).for_each(|number| trip(endpoint, &table, number, None));
        })
    }

    /// A Medium request of 1 KB and a Medium reply of the same size.
    pub(crate) fn medium_trips(&mut self, iterations: u64) -> Duration {
        self.timed(|endpoint, table, payload, _| {
            (0..iterations).for_each(|number| trip(endpoint, &table, number, Some(&payload[..1024])));
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

    /// Processor time that the whole process takes while both ranks wait, a quarter of a second per iteration.
    pub(crate) fn idle(&mut self, iterations: u64) -> Duration {
        let mut took = Duration::ZERO;
        self.timed(|endpoint, _, _, _| {
            // The ranks and their helpers fall asleep first.
            let _ = endpoint.wait_until_for(Span::from_millis(20), |_| false);
            let before = processor_time();
            let _ = endpoint.wait_until_for(Span::from_millis(250 * iterations), |_| false);
            took = processor_time() - before;
        });
        took.max(Duration::from_nanos(1))
    }
}

fn trip(endpoint: &mut Rank0, table: &Table, number: u64, payload: Option<&[u8]>) {
    let due = endpoint.state().replies.wrapping_add(1);
    let sent = match payload {
        Some(bytes) => endpoint.request_medium(OTHER, table.ask, number, bytes),
        None => endpoint.request(OTHER, table.ask, number),
    };
    sent.expect("rank 1 is there");
    endpoint.wait_until(|state| state.replies == due).expect("rank 1 answers");
}

fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process knows its usage");
    Duration::from_micros((usage.user_time() + usage.system_time()).num_microseconds() as u64)
}

/// Waits to be woken; without a helper, a rank must poll meanwhile. Returns whether there is more to do.
fn sleep(endpoint: &mut Rank0, woken: &Receiver<()>, helper: bool) -> bool {
    if helper {
        return woken.recv().is_ok();
    }
    loop {
        match woken.try_recv() {
            Ok(()) => return true,
            Err(TryRecvError::Disconnected) => return false,
            Err(TryRecvError::Empty) => drop(endpoint.wait_until_for(Span::from_micros(100), |_| false)),
        }
    }
}

/// Rank 1: whenever it is woken, does what it is told until it is told to pause.
fn serve(job: &LocalJob, woken: &Receiver<()>, helper: bool) {
    let (mut endpoint, _) = attach(job, 1);
    let mut served = 0;
    while sleep(&mut endpoint, woken, helper) {
        served += 1;
        endpoint.wait_until(|state| state.pauses >= served).expect("rank 0 is there");
        // Rank 0 waits for the news that its last message was handled, which leaves half a millisecond later.
        let _ = endpoint.wait_until_for(Span::from_millis(2), |_| false);
    }
    endpoint.finish().expect("rank 0 finishes, too");
}

impl Drop for Crew {
    fn drop(&mut self) {
        let Some(endpoint) = self.endpoint.take() else { return };
        if thread::panicking() {
            return;
        }
        self.wake = None;
        endpoint.finish().expect("rank 1 finishes, too");
        if let Some(other) = self.other.take() {
            other.join().expect("rank 1 ends well");
        }
    }
}
