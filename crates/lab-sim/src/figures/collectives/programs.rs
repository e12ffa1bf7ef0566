//! What the ranks do: a collective operation again and again, each from a common beginning; or what PLogP's
//! parameters are measured by.

use super::algorithm::Algorithm;
use crate::conduits::Program;
use active_messages::pgas::Team;
use active_messages::pgas::collectives::{Collectives, Max, Sum};
use active_messages::{Address, Endpoint, Handlers, Payload, Rank, Request, Span, Transport, WaitError};

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

/// Measures PLogP's parameters: rank 0 exchanges messages with rank 1, sends one to each of the others in a row,
/// and receives one from each of them. Each carries so many bytes, as operations send them: few among its
/// arguments, more as a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calibration(pub(super) usize);

/// Receivers of the messages in a row, and senders of those that are received in a row.
pub(super) const BURST: u32 = 16;

/// Round trips before those that are timed, and these.
const TRIPS: [u64; 2] = [4, 8];

/// What a rank has measured, in picoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// What it takes to hand a message over.
    pub(super) overhead: u64,
    /// What it takes to receive one message that has come, and [`BURST`] of them.
    pub(super) received: [u64; 2],
    /// How long one message takes that is awaited, and [`BURST`] of them that are sent at once.
    pub(super) awaited: [u64; 2],
    /// When the last message came.
    pub(super) arrival: u64,
}

/// The arguments that every message of an operation has.
type Head = [u32; 4];

/// Messages that have come to a rank, and the largest word among them.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    count: u64,
    word: u64,
}

type Words = (u64, u64, u64, u64);

/// What ranks send each other.
struct Messages {
    tiny: Request<(Head, u64)>,
    small: Request<(Head, u32, Words)>,
    message: Request<Head>,
    bytes: Vec<u8>,
}

impl Messages {
    fn register(handlers: &mut Handlers<Seen>, bytes: usize) -> Self {
        let tiny = |seen: &mut Seen, _: Address, (_, word): (Head, u64), _: Payload<'_>| {
            (seen.count, seen.word) = (seen.count + 1, seen.word.max(word));
        };
        let small = |seen: &mut Seen, _: Address, _: (Head, u32, Words), _: Payload<'_>| seen.count += 1;
        let message = |seen: &mut Seen, _: Address, _: Head, _: Payload<'_>| seen.count += 1;
        Self {
            tiny: handlers.one_way("tiny", tiny).expect("the table has room"),
            small: handlers.one_way("small", small).expect("the table has room"),
            message: handlers.one_way("message", message).expect("the table has room"),
            bytes: vec![0; bytes],
        }
    }

    /// Sends a message as operations send so many bytes; a word tells when the others are to send theirs.
    fn send<T: Transport>(&self, endpoint: &mut Endpoint<T, Seen>, to: u32, word: Option<u64>) {
        let (to, head) = (Rank(to), [0; 4]);
        let sent = match (self.bytes.len(), word) {
            (_, Some(word)) => endpoint.request(to, self.tiny, (head, word)),
            (0..=8, None) => endpoint.request(to, self.tiny, (head, 0)),
            (9..=32, None) => endpoint.request(to, self.small, (head, 0, (0, 0, 0, 0))),
            _ => endpoint.request_medium(to, self.message, head, &self.bytes),
        };
        sent.expect("the other serves");
    }
}

/// Computes until then.
fn charge_until<T: Transport>(endpoint: &mut Endpoint<T, Seen>, until: u64) {
    let left = until.checked_sub(endpoint.now().0).expect("the lead is long enough");
    endpoint.charge(Span(left));
}

impl Program for Calibration {
    type Result = Measured;

    fn play<T: Transport>(self, transport: T) -> Measured {
        let mut handlers = Handlers::new();
        let messages = Messages::register(&mut handlers, self.0);
        let mut endpoint = Endpoint::attach(transport, handlers, Seen::default()).expect("all ranks attach");
        let (me, mut measured) = (endpoint.rank().0, Measured::default());
        let all = TRIPS[0] + TRIPS[1];
        for trip in 0..if me < 2 { all } else { 0 } {
            if trip == TRIPS[0] {
                measured.overhead = 0;
            }
            if me == 1 {
                endpoint.wait_until(|seen| seen.count > trip).expect("rank 0 sends");
            }
            let before = endpoint.now().0;
            messages.send(&mut endpoint, 1 - me, None);
            measured.overhead += endpoint.now().0 - before;
            if me == 0 {
                endpoint.wait_until(|seen| seen.count > trip).expect("rank 1 answers");
            }
        }
        measured.overhead /= TRIPS[1];
        // All are awake for the messages in a row.
        for _ in 0..2 {
            endpoint.barrier().expect("nobody is lost");
        }
        let mut due = if me < 2 { all } else { 0 };
        if me == 0 {
            (1..=BURST).for_each(|to| messages.send(&mut endpoint, to, None));
        } else {
            due += 1;
            endpoint.wait_until(|seen| seen.count == due).expect("rank 0 sends");
            measured.arrival = endpoint.now().0;
        }
        for (senders, is_late) in [(1, true), (BURST, true), (1, false), (BURST, false)] {
            if me > 0 {
                due += 1;
                endpoint.wait_until(|seen| seen.count == due).expect("rank 0 sends");
                let begin = endpoint.state().word;
                charge_until(&mut endpoint, begin);
                if me <= senders {
                    messages.send(&mut endpoint, 0, None);
                }
                // Nothing else comes to rank 0 before it has looked.
                charge_until(&mut endpoint, begin + 2 * LEAD);
                continue;
            }
            let begin = endpoint.now().0 + 4 * LEAD;
            (1..=BURST).for_each(|to| messages.send(&mut endpoint, to, Some(begin)));
            due += u64::from(senders);
            // It serves what is left of the messages before. Late, it finds all that has come.
            let rested = endpoint.wait_until_for(Span(3 * LEAD), |_| false);
            assert!(matches!(rested, Err(WaitError::TimedOut(_))), "nobody is lost");
            charge_until(&mut endpoint, if is_late { begin + LEAD } else { begin });
            let before = endpoint.now().0;
            endpoint.wait_until(|seen| seen.count == due).expect("all send");
            let took = if is_late { &mut measured.received } else { &mut measured.awaited };
            took[usize::from(senders > 1)] = endpoint.now().0 - before;
        }
        endpoint.finish().expect("all ranks end");
        measured
    }
}
