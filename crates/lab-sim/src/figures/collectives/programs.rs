//! What the ranks do: a collective operation again and again, each from a common beginning; or what PLogP's
//! parameters are measured by.

use crate::conduits::Program;
use active_messages::pgas::Team;
use active_messages::pgas::collectives::algorithms::{self, allreduce, alltoall, broadcast, gather, reduce, scan};
use active_messages::pgas::collectives::schedule::Schedule;
use active_messages::pgas::collectives::{
    Allgather, Allreduce, Alltoall, Broadcast, Collectives, Max, Reduce, Row, Scan, Sum, Tuning,
};
use active_messages::{Address, Endpoint, Handlers, Payload, Rank, Span, Transport};

/// An operation and how it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Dissemination,
    Tree,
    Linear,
    ReduceTree,
    Doubling,
    Scan,
    Knomial,
    Rabenseifner,
    Ring,
    Gather,
    Exchange,
}

impl Algorithm {
    /// Those of a word of each rank.
    pub(super) const SMALL: [Self; 6] =
        [Self::Dissemination, Self::Tree, Self::Linear, Self::ReduceTree, Self::Doubling, Self::Scan];

    /// Those of more, whose messages have a payload.
    pub(super) const LARGE: [Self; 5] =
        [Self::Knomial, Self::Rabenseifner, Self::Ring, Self::Gather, Self::Exchange];

    /// Its name, and those of its curves.
    pub(super) fn names(self) -> [&'static str; 3] {
        match self {
            Self::Dissemination => ["barrier, dissemination", "barrier, simulated", "barrier, PLogP"],
            Self::Tree => ["broadcast, binomial tree", "broadcast tree, simulated", "broadcast tree, PLogP"],
            Self::Linear => ["broadcast, linear", "linear broadcast, simulated", "linear broadcast, PLogP"],
            Self::ReduceTree => ["reduce, binomial tree", "reduce tree, simulated", "reduce tree, PLogP"],
            Self::Doubling => ["allreduce, recursive doubling", "allreduce, simulated", "allreduce, PLogP"],
            Self::Scan => ["scan, doubling", "scan, simulated", "scan, PLogP"],
            Self::Knomial => ["broadcast of 512 B, 4-nomial tree", "4-nomial, simulated", "4-nomial, PLogP"],
            Self::Rabenseifner => {
                ["allreduce of 2 KiB, Rabenseifner", "Rabenseifner, simulated", "Rabenseifner, PLogP"]
            }
            Self::Ring => ["allreduce of 512 B for each rank, ring", "ring, simulated", "ring, PLogP"],
            Self::Gather => {
                ["allgather of 16 B, Bruck", "Bruck's allgather, simulated", "Bruck's allgather, PLogP"]
            }
            Self::Exchange => {
                ["alltoall of 16 B, Bruck", "Bruck's alltoall, simulated", "Bruck's alltoall, PLogP"]
            }
        }
    }

    /// Words of a member's vector, or of one part.
    pub(super) fn count(self, size: usize) -> usize {
        match self {
            Self::Knomial => 64,
            Self::Rabenseifner => 256,
            Self::Ring => 64 * size,
            Self::Gather | Self::Exchange => 2,
            _ => 1,
        }
    }

    /// What a member does.
    pub(super) fn schedule(self, me: usize, size: usize) -> Schedule {
        let count = self.count(size);
        match self {
            Self::Dissemination => algorithms::dissemination(me, size, 1),
            Self::Tree => broadcast::tree(me, size, 0, count, 2),
            Self::Linear => broadcast::linear(me, size, 0, count),
            Self::ReduceTree => reduce::tree(me, size, 0, count, 2),
            Self::Doubling => allreduce::recursive_doubling(me, size, count),
            Self::Scan => scan::doubling(me, size, count, false),
            Self::Knomial => broadcast::tree(me, size, 0, count, 4),
            Self::Rabenseifner => allreduce::rabenseifner(me, size, count),
            Self::Ring => allreduce::ring(me, size, count),
            Self::Gather => gather::bruck(me, size, count),
            Self::Exchange => alltoall::bruck(me, size, count),
        }
    }

    fn tuning(self) -> Tuning {
        let mut tuning = Tuning::default();
        tuning.check = false;
        tuning.broadcast = vec![Row::any(match self {
            Self::Linear => Broadcast::Linear,
            Self::Knomial => Broadcast::Tree { radix: 4 },
            _ => Broadcast::Tree { radix: 2 },
        })];
        tuning.reduce = vec![Row::any(Reduce::Tree { radix: 2 })];
        // The common beginning is agreed on by a word.
        tuning.allreduce = vec![Row::new(usize::MAX, 8, Allreduce::RecursiveDoubling)];
        tuning.allreduce.push(Row::any(match self {
            Self::Rabenseifner => Allreduce::Rabenseifner,
            _ => Allreduce::Ring,
        }));
        tuning.scan = vec![Row::any(Scan::Doubling)];
        tuning.allgather = vec![Row::any(Allgather::Bruck)];
        tuning.alltoall = vec![Row::any(Alltoall::Bruck)];
        tuning
    }

    fn perform<T: Transport>(self, endpoint: &mut Endpoint<T, Collectives>, world: &Team) {
        let size = world.size() as usize;
        let mut words = vec![u64::from(world.me()); self.count(size)];
        let done = match self {
            Self::Dissemination => world.barrier(endpoint),
            Self::Tree | Self::Linear | Self::Knomial => world.broadcast(endpoint, 0, &mut words),
            Self::ReduceTree => world.reduce(endpoint, 0, &mut words, Sum),
            Self::Doubling | Self::Rabenseifner | Self::Ring => world.allreduce(endpoint, &mut words, Sum),
            Self::Scan => world.scan(endpoint, &mut words, Sum),
            Self::Gather => {
                let mut all = vec![0; words.len() * size];
                world.allgather(endpoint, &words, &mut all)
            }
            Self::Exchange => {
                let (given, mut got) = (words.repeat(size), vec![0; words.len() * size]);
                world.alltoall(endpoint, &given, &mut got)
            }
        };
        done.expect("nobody is lost");
    }
}

/// Times an operation: picoseconds from the common beginning to this rank's end, each time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing(pub(super) Algorithm);

/// Operations before those that are timed, and these.
const WARM_UP: usize = 1;
const ROUNDS: usize = 4;

/// Picoseconds within which all ranks know of the common beginning and are ready for it.
const LEAD: u64 = 20_000_000_000;

impl Program for Timing {
    type Result = Vec<u64>;

    fn play<T: Transport>(self, transport: T) -> Vec<u64> {
        let mut handlers = Handlers::<Collectives>::new();
        let layer = Collectives::register_tuned(&mut handlers, self.0.tuning()).expect("the table has room");
        let mut endpoint = Endpoint::attach(transport, handlers, layer).expect("all ranks attach");
        let world = Team::world(&mut endpoint).expect("nobody is lost");
        let mut took = Vec::new();
        for _ in 0..WARM_UP + ROUNDS {
            let now = endpoint.now().0;
            let begin = LEAD + world.allreduce_one(&mut endpoint, now, Max).expect("nobody is lost");
            let left = begin.checked_sub(endpoint.now().0).expect("the lead is long enough");
            endpoint.charge(Span(left));
            self.0.perform(&mut endpoint, &world);
            took.push(endpoint.now().0 - begin);
        }
        endpoint.finish().expect("all ranks end");
        took.split_off(WARM_UP)
    }
}

/// Barriers, broadcasts and allreduces of a word, so often each, by the usual tuning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mixed(pub(super) u32);

impl Program for Mixed {
    type Result = ();

    fn play<T: Transport>(self, transport: T) {
        let mut handlers = Handlers::<Collectives>::new();
        let layer = Collectives::register(&mut handlers).expect("the table has room");
        let mut endpoint = Endpoint::attach(transport, handlers, layer).expect("all ranks attach");
        let world = Team::world(&mut endpoint).expect("nobody is lost");
        for time in 0..self.0 {
            let mut word = [u64::from(world.me())];
            world.barrier(&mut endpoint).expect("nobody is lost");
            world.broadcast(&mut endpoint, time % world.size(), &mut word).expect("nobody is lost");
            let sum = world.allreduce_one(&mut endpoint, word[0], Sum).expect("nobody is lost");
            assert_eq!(sum, u64::from(time % world.size()) * u64::from(world.size()));
        }
        endpoint.finish().expect("all ranks end");
    }
}

/// Measures PLogP's parameters: rank 0 exchanges messages with rank 1, and then sends one to each of the others in
/// a row. Each carries so many bytes, as operations send them: few among its arguments, more as a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calibration(pub(super) usize);

/// Receivers of the messages in a row.
pub(super) const BURST: u32 = 16;

/// Round trips before those that are timed, and these.
const TRIPS: [u64; 2] = [4, 8];

/// What a rank has measured, in picoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// A round trip.
    pub(super) trip: u64,
    /// What it takes to hand a message over.
    pub(super) overhead: u64,
    /// What it takes to receive a message that has come.
    pub(super) received: u64,
    /// When the last message came.
    pub(super) arrival: u64,
}

/// The arguments that every message of an operation has.
type Head = [u32; 4];

impl Program for Calibration {
    type Result = Measured;

    fn play<T: Transport>(self, transport: T) -> Measured {
        let mut handlers = Handlers::<u64>::new();
        let tiny = |seen: &mut u64, _: Address, _: (Head, u64), _: Payload<'_>| *seen += 1;
        let tiny = handlers.one_way("tiny", tiny).expect("the table has room");
        let small = |seen: &mut u64, _: Address, _: (Head, u32, (u64, u64, u64, u64)), _: Payload<'_>| *seen += 1;
        let small = handlers.one_way("small", small).expect("the table has room");
        let message = |seen: &mut u64, _: Address, _: Head, _: Payload<'_>| *seen += 1;
        let message = handlers.one_way("message", message).expect("the table has room");
        let mut endpoint = Endpoint::attach(transport, handlers, 0).expect("all ranks attach");
        let (me, mut measured, head) = (endpoint.rank().0, Measured::default(), [0; 4]);
        let bytes = vec![0; self.0];
        let send = |endpoint: &mut Endpoint<T, u64>, to| {
            let sent = match self.0 {
                0..=8 => endpoint.request(to, tiny, (head, 0)),
                9..=32 => endpoint.request(to, small, (head, 0, (0, 0, 0, 0))),
                _ => endpoint.request_medium(to, message, head, &bytes),
            };
            sent.expect("the other serves");
        };
        let all = TRIPS[0] + TRIPS[1];
        let mut began = endpoint.now().0;
        for trip in 0..if me < 2 { all } else { 0 } {
            if trip == TRIPS[0] {
                (began, measured.overhead) = (endpoint.now().0, 0);
            }
            if me == 1 {
                endpoint.wait_until(|seen| *seen > trip).expect("rank 0 sends");
            }
            let before = endpoint.now().0;
            send(&mut endpoint, Rank(1 - me));
            measured.overhead += endpoint.now().0 - before;
            if me == 0 {
                endpoint.wait_until(|seen| *seen > trip).expect("rank 1 answers");
            }
        }
        measured.trip = (endpoint.now().0 - began) / TRIPS[1];
        measured.overhead /= TRIPS[1];
        if me == 0 {
            send(&mut endpoint, Rank(1));
        } else if me == 1 {
            // This one has come long before its receiver looks.
            endpoint.charge(Span(LEAD));
            let before = endpoint.now().0;
            endpoint.wait_until(|seen| *seen > all).expect("rank 0 sends");
            measured.received = endpoint.now().0 - before;
        }
        // All are awake for the messages in a row.
        for _ in 0..2 {
            endpoint.barrier().expect("nobody is lost");
        }
        if me == 0 {
            for to in 1..=BURST {
                send(&mut endpoint, Rank(to));
            }
        } else {
            let due = if me == 1 { all + 2 } else { 1 };
            endpoint.wait_until(|seen| *seen == due).expect("rank 0 sends");
            measured.arrival = endpoint.now().0;
        }
        endpoint.finish().expect("all ranks end");
        measured
    }
}
