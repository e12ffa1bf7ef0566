//! The tasks of the p2p bench over UDP: two ranks as threads of this process that talk over loopback, by messages
//! and by bare active messages, so that each figure has its baseline in the same run.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use active_messages::p2p::{Communicator, P2p};
use active_messages::pgas::allocator::{LocalArray, SegmentAllocation};
use active_messages::{Endpoint, Handlers, Payload, Rank, Request, Token};
use transport_udp::{LocalJob, LocalOptions, Udp, UdpConfig};

/// Bytes of a long message, and of the part of a segment that Longs rotate over.
const BLOCK: usize = 1 << 20;
const SPARE: usize = 8 << 20;
const OTHER: Rank = Rank(1);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FarP2pTask {
    /// A Short request and its Short reply.
    Trip,
    /// A Long of a mebibyte and its Short reply.
    LongTrip,
    /// A message of so many bytes there and one of as many, but eight at most, back.
    Messages {
        /// The bytes.
        bytes: usize,
    },
    /// The same, to memory of the receiver's segment.
    Placed {
        /// The bytes.
        bytes: usize,
    },
}

thread_local! {
    static CREW: RefCell<Option<FarP2pCrew>> = const { RefCell::new(None) };
}

impl FarP2pTask {
    /// Does it with two ranks, which are started at its first use.
    pub(crate) fn run(self, iterations: u64) -> Duration {
        CREW.with_borrow_mut(|crew| crew.get_or_insert_with(FarP2pCrew::start).run(self, iterations))
    }
}

/// Ends both ranks.
pub(crate) fn end() {
    CREW.take().into_iter().for_each(FarP2pCrew::end);
}

struct State {
    p2p: P2p,
    replies: u64,
}
active_messages::p2p::p2p_state!(State, p2p);

struct FarP2pRank {
    endpoint: Endpoint<Udp, State>,
    world: Communicator,
    ask: Request<u64>,
    out: Vec<u8>,
    into: Vec<u8>,
    /// As long, in the segment.
    placed: LocalArray<u8>,
}

impl FarP2pRank {
    fn join(job: &LocalJob, rank: u32) -> Self {
        let (few, mut handlers) = ("there is room for all of them", Handlers::<State>::new());
        let p2p = P2p::register(&mut handlers).expect(few);
        let reply = handlers.reply("reply", |state: &mut State, _, _: u64, _: Payload<'_>| state.replies += 1);
        let reply = reply.expect(few);
        let ask = handlers.request("ask", move |_: &mut State, token: Token<'_>, value: u64, _: Payload<'_>| {
            token.reply(reply, value).expect("the asker waits");
        });
        let (ask, transport) = (ask.expect(few), job.join(rank).expect("every rank joins once"));
        let state = State { p2p, replies: 0 };
        let mut endpoint = Endpoint::attach(transport, handlers, state).expect("all ranks have the same tables");
        let world = Communicator::world(&mut endpoint).expect("nobody is lost");
        let placed = endpoint.allocate_local(BLOCK as u64).expect("there is room");
        Self { endpoint, world, ask, out: vec![7; BLOCK], into: vec![0; BLOCK], placed }
    }

    /// Does this rank's part of a task; the time from the common start on.
    fn perform(&mut self, task: FarP2pTask, iterations: u64) -> Duration {
        let there = "nobody is lost";
        let Self { endpoint, world, ask, out, into, placed } = self;
        world.team().barrier(endpoint).expect(there);
        let (start, leads) = (Instant::now(), world.rank() == 0);
        match task {
            FarP2pTask::Trip | FarP2pTask::LongTrip if leads => {
                for index in 0..iterations {
                    let due = endpoint.state().replies + 1;
                    if task == FarP2pTask::Trip {
                        endpoint.request(OTHER, *ask, index).expect(there);
                    } else {
                        let at = index * BLOCK as u64 % (SPARE - BLOCK) as u64;
                        endpoint.request_long(OTHER, *ask, index, out, at).expect(there);
                    }
                    endpoint.wait_until(|state| state.replies == due).expect(there);
                }
            }
            FarP2pTask::Messages { bytes } => {
                let (there_bytes, back_bytes) = (bytes, bytes.min(8));
                for _ in 0..iterations {
                    if leads {
                        world.send(endpoint, 1, 1, &out[..there_bytes]).expect(there);
                        world.receive_into(endpoint, 1, 1, &mut into[..back_bytes]).expect(there);
                    } else {
                        world.receive_into(endpoint, 0, 1, &mut into[..there_bytes]).expect(there);
                        world.send(endpoint, 0, 1, &out[..back_bytes]).expect(there);
                    }
                }
            }
            FarP2pTask::Placed { bytes } => {
                let there_memory = placed.slice().range(0..bytes as u64).expect("it is as long");
                for _ in 0..iterations {
                    if leads {
                        world.send(endpoint, 1, 1, &out[..bytes]).expect(there);
                        world.receive_into(endpoint, 1, 1, &mut into[..8]).expect(there);
                    } else {
                        world.receive_segment(endpoint, 0, 1, there_memory).expect(there);
                        world.send(endpoint, 0, 1, &out[..8]).expect(there);
                    }
                }
            }
            FarP2pTask::Trip | FarP2pTask::LongTrip => {}
        }
        let elapsed = start.elapsed();
        // Who does not lead serves here.
        self.world.team().barrier(&mut self.endpoint).expect(there);
        elapsed
    }
}

/// A task and how many iterations of it.
type Order = (FarP2pTask, u64);

/// This thread's rank, and that of a thread that sleeps between two tasks.
struct FarP2pCrew {
    rank: FarP2pRank,
    orders: Sender<Order>,
    other: JoinHandle<()>,
}

impl FarP2pCrew {
    fn start() -> Self {
        let options = LocalOptions::default().segment_bytes(2 * SPARE);
        let job = Arc::new(LocalJob::with(2, options, UdpConfig::new([])).expect("loopback has free ports"));
        let theirs = Arc::clone(&job);
        let (orders, received) = mpsc::channel();
        let other = thread::spawn(move || serve(&theirs, &received));
        Self { rank: FarP2pRank::join(&job, 0), orders, other }
    }

    fn run(&mut self, task: FarP2pTask, iterations: u64) -> Duration {
        self.orders.send((task, iterations)).expect("rank 1 is there");
        self.rank.perform(task, iterations)
    }

    fn end(self) {
        drop(self.orders);
        self.other.join().expect("rank 1 ends well");
        self.rank.endpoint.leave();
    }
}

fn serve(job: &LocalJob, orders: &Receiver<Order>) {
    let mut this = FarP2pRank::join(job, 1);
    while let Ok((task, iterations)) = orders.recv() {
        this.perform(task, iterations);
    }
    this.endpoint.leave();
}
