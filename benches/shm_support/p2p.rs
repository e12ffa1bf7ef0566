//! The tasks of the p2p bench: two-sided messages between two ranks of a crew, over a job of their own.

use std::time::{Duration, Instant};

use active_messages::launch::JobTransport;
use active_messages::p2p::{Communicator, Messages, P2p, Protocol, ReceiveRequest};
use active_messages::pgas::allocator::{LocalArray, SegmentAllocation};
use active_messages::pgas::collectives::Sum;
use active_messages::shm::{Job, JoinOptions, Shm};
use active_messages::{Endpoint, Handlers, Transport};
use serde::{Deserialize, Serialize};

/// Messages that are under way at once where the rate or bandwidth is measured.
const WINDOW: u64 = 64;
/// The largest message.
const LARGEST: usize = 4 << 20;

/// How long messages travel, as a task names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Way {
    /// Read by the receiver.
    Read,
    /// Written where the receiver says.
    SenderInitiated,
    /// Written where a posted receive has said, which an eager message costs messages more.
    ReceiverInitiated,
    /// The same, where an eager message costs nothing more.
    EagerAware,
    /// The same, without control messages that can be had otherwise.
    Elided,
}

impl Way {
    fn protocol(self) -> Protocol {
        match self {
            Self::Read => Protocol::Read,
            Self::SenderInitiated => Protocol::SenderInitiated,
            Self::ReceiverInitiated => Protocol::ReceiverInitiated,
            Self::EagerAware => Protocol::EagerAware,
            Self::Elided => Protocol::Elided,
        }
    }
}

/// What is measured between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum P2pTask {
    /// A message there and one back, by blocking calls.
    PingPong {
        /// Bytes of each.
        bytes: usize,
        /// How long ones travel.
        way: Way,
    },
    /// The same, where those there and those back go in communicators of their own.
    Apart {
        /// Bytes of each.
        bytes: usize,
    },
    /// The same, where messages come from memory of the segment, or go there, or both.
    Placed {
        /// Bytes of each.
        bytes: usize,
        /// Which.
        memory: Placed,
        /// Whether what has come is sent back.
        echo: bool,
    },
    /// What has come is sent back.
    Echo {
        /// Bytes of it.
        bytes: usize,
    },
    /// Messages one way, an answer for each window of them.
    Flood {
        /// Bytes of each.
        bytes: usize,
    },
    /// Eight bytes there and back among receives with other tags.
    Posted {
        /// Receives that are posted and get no message.
        receives: usize,
    },
    /// A collective operation.
    Collective {
        /// Which one.
        operation: Operation,
        /// By messages, not by the team's own ways.
        two_sided: bool,
    },
}

/// Which memory of a message is in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Placed {
    /// What is sent.
    Out,
    /// What is received.
    Into,
    /// Both.
    Both,
}

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Operation {
    Barrier,
    /// The sum of one number of each rank.
    Allreduce,
    /// By turns from each rank.
    Broadcast {
        /// Bytes of it.
        bytes: usize,
    },
}

/// A rank of one of both types of endpoints.
pub(crate) enum AnyP2pRank {
    Shared(P2pRank<Shm>),
    /// What [`RankJob::attach`](active_messages::launch::RankJob::attach) gives.
    Either(P2pRank<JobTransport>),
}

impl AnyP2pRank {
    /// Joins as `rank` and waits for all others.
    pub(crate) fn join(job: &Job, rank: u32, either: bool) -> Self {
        let options = JoinOptions::default().segment_bytes(64 << 20);
        let shm = job.join_with(rank, options).expect("the rank is free");
        if either {
            Self::Either(P2pRank::attach(JobTransport::near(shm)))
        } else {
            Self::Shared(P2pRank::attach(shm))
        }
    }

    /// Leaves without a word to the others, who are leaving too.
    pub(crate) fn leave(self) {
        match self {
            Self::Shared(rank) => drop(rank.endpoint.leave()),
            Self::Either(rank) => drop(rank.endpoint.leave()),
        }
    }

    /// Does this rank's part of `task`; the time from the common start to the common end.
    pub(crate) fn perform(&mut self, task: P2pTask, iterations: u64) -> Duration {
        match self {
            Self::Shared(rank) => rank.perform(task, iterations),
            Self::Either(rank) => rank.perform(task, iterations),
        }
    }
}

/// One rank.
pub(crate) struct P2pRank<T: Transport> {
    endpoint: Endpoint<T, P2p>,
    world: Communicator,
    /// Of all ranks, too.
    copy: Communicator,
    out: Vec<u8>,
    into: Vec<u8>,
    /// The same, in the segment.
    placed: [LocalArray<u8>; 2],
    posted: Vec<ReceiveRequest<u8>>,
    way: Way,
}

impl<T: Transport> P2pRank<T> {
    fn attach(transport: T) -> Self {
        let mut handlers = Handlers::<P2p>::new();
        let p2p = P2p::register(&mut handlers).expect("the names differ");
        let mut endpoint = Endpoint::attach(transport, handlers, p2p).expect("all ranks run this program");
        let world = Communicator::world(&mut endpoint).expect("nobody is lost");
        let copy = world.duplicate(&mut endpoint).expect("nobody is lost");
        let (out, into) = (vec![1; LARGEST], vec![0; LARGEST]);
        let placed = [1, 2].map(|_| endpoint.allocate_local(LARGEST as u64).expect("there is room"));
        Self { endpoint, world, copy, out, into, placed, posted: Vec::new(), way: Way::Elided }
    }

    fn perform(&mut self, task: P2pTask, iterations: u64) -> Duration {
        let way = if let P2pTask::PingPong { way, .. } = task { way } else { Way::Elided };
        let receives = if let P2pTask::Posted { receives } = task { receives } else { 0 };
        self.prepare(way, receives);
        self.world.team().barrier(&mut self.endpoint).expect("nobody is lost");
        let start = Instant::now();
        match task {
            P2pTask::PingPong { bytes, .. } => self.ping_pong(bytes, iterations),
            P2pTask::Apart { bytes } => self.apart(bytes, iterations),
            P2pTask::Placed { bytes, memory, echo } => self.placed(bytes, memory, echo, iterations),
            P2pTask::Echo { bytes } => self.echo(bytes, iterations),
            P2pTask::Flood { bytes } => self.flood(bytes, iterations),
            P2pTask::Posted { .. } => self.ping_pong(8, iterations),
            P2pTask::Collective { operation, two_sided } => {
                (0..iterations).for_each(|turn| self.collective(operation, two_sided, (turn % 2) as u32));
            }
        }
        start.elapsed()
    }

    fn prepare(&mut self, way: Way, receives: usize) {
        let Self { endpoint, world, posted, .. } = self;
        if posted.len() != receives {
            for request in posted.drain(..) {
                assert!(request.cancel(endpoint).expect("nobody is lost").is_none(), "it has got no message");
            }
            for tag in 0..receives {
                let receive = world.immediate_receive(endpoint, 1 - world.rank(), 1000 + tag as i32, 8);
                posted.push(receive.expect("the call is right"));
            }
        }
        if self.way != way {
            let eager = endpoint.layer::<Messages>().config().eager;
            world.choose(endpoint, way.protocol(), eager).expect("nothing is under way");
            self.way = way;
        }
    }

    fn ping_pong(&mut self, bytes: usize, trips: u64) {
        let Self { endpoint, world, out, into, .. } = self;
        let (other, out, into) = (1 - world.rank(), &out[..bytes], &mut into[..bytes]);
        for _ in 0..trips {
            if other == 1 {
                world.send(endpoint, other, 1, out).expect("the other serves");
                world.receive_into(endpoint, other, 1, into).expect("the other answers");
            } else {
                world.receive_into(endpoint, other, 1, into).expect("the other sends");
                world.send(endpoint, other, 1, out).expect("the other serves");
            }
        }
    }

    fn apart(&mut self, bytes: usize, trips: u64) {
        let Self { endpoint, world, copy, out, into, .. } = self;
        let (other, out, into) = (1 - world.rank(), &out[..bytes], &mut into[..bytes]);
        for _ in 0..trips {
            if other == 1 {
                world.send(endpoint, other, 1, out).expect("the other serves");
                copy.receive_into(endpoint, other, 1, into).expect("the other answers");
            } else {
                world.receive_into(endpoint, other, 1, into).expect("the other sends");
                copy.send(endpoint, other, 1, out).expect("the other serves");
            }
        }
    }

    fn placed(&mut self, bytes: usize, memory: Placed, echo: bool, trips: u64) {
        let Self { endpoint, world, out, into, placed, .. } = self;
        let (other, out, into) = (1 - world.rank(), &out[..bytes], &mut into[..bytes]);
        let part = |array: &LocalArray<u8>| array.slice().range(0..bytes as u64).expect("it is longer");
        let (from, to) = (part(&placed[usize::from(echo)]), part(&placed[1]));
        for half in 0..2 * trips {
            let sends = (half % 2 == 0) == (other == 1);
            match (sends, memory) {
                (true, Placed::Into) => world.send(endpoint, other, 1, out).expect("the other serves"),
                (true, _) => world.send_segment(endpoint, other, 1, &from).expect("the other serves"),
                (false, Placed::Out) => {
                    world.receive_into(endpoint, other, 1, into).expect("the other sends");
                }
                (false, _) => {
                    world.receive_segment(endpoint, other, 1, to).expect("the other sends");
                }
            }
        }
    }

    fn echo(&mut self, bytes: usize, trips: u64) {
        let Self { endpoint, world, into, .. } = self;
        let (other, into) = (1 - world.rank(), &mut into[..bytes]);
        for _ in 0..trips {
            if other == 1 {
                world.send(endpoint, other, 1, into).expect("the other serves");
                world.receive_into(endpoint, other, 1, into).expect("the other answers");
            } else {
                world.receive_into(endpoint, other, 1, into).expect("the other sends");
                world.send(endpoint, other, 1, into).expect("the other serves");
            }
        }
    }

    fn collective(&mut self, operation: Operation, two_sided: bool, root: u32) {
        let Self { endpoint, world, into, .. } = self;
        let (team, messages) = (world.team(), world.two_sided());
        let mut number = [1.0_f64];
        let expected = "nobody is lost";
        match (operation, two_sided) {
            (Operation::Barrier, true) => messages.barrier(endpoint).expect(expected),
            (Operation::Barrier, false) => team.barrier(endpoint).expect(expected),
            (Operation::Allreduce, true) => messages.allreduce(endpoint, &mut number, Sum).expect(expected),
            (Operation::Allreduce, false) => team.allreduce(endpoint, &mut number, Sum).expect(expected),
            (Operation::Broadcast { bytes }, true) => {
                messages.broadcast(endpoint, root, &mut into[..bytes]).expect(expected);
            }
            (Operation::Broadcast { bytes }, false) => {
                team.broadcast(endpoint, root, &mut into[..bytes]).expect(expected);
            }
        }
    }

    fn flood(&mut self, bytes: usize, messages: u64) {
        let Self { endpoint, world, out, into, .. } = self;
        let other = 1 - world.rank();
        let mut left = messages;
        while left > 0 {
            let window = left.min(WINDOW);
            left -= window;
            if other == 1 {
                for _ in 0..window {
                    world.send(endpoint, other, 1, &out[..bytes]).expect("the other serves");
                }
                world.receive_into(endpoint, other, 2, &mut into[..0]).expect("the other answers");
            } else {
                let receive = |_| world.immediate_receive::<_, _, u8>(endpoint, other, 1, bytes);
                let requests: Vec<_> =
                    (0..window).map(receive).map(|call| call.expect("the call is right")).collect();
                for request in requests {
                    request.wait_into(endpoint, &mut into[..bytes]).expect("the other sends");
                }
                world.send(endpoint, other, 2, &out[..0]).expect("the other serves");
            }
        }
    }
}
