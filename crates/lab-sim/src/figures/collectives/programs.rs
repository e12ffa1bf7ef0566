//! What the ranks do: a collective operation again and again, each from a common beginning; or what PLogP's
//! parameters are measured by.

use super::algorithm::Algorithm;
use crate::conduits::Program;
use active_messages::pgas::Team;
use active_messages::pgas::collectives::{Collectives, Max, Sum};
use active_messages::{Address, Endpoint, Handlers, Payload, Rank, Span, Transport};

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
