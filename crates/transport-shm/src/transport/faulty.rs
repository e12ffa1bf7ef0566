//! A faulty peer is an error, never undefined behaviour: it writes what it likes wherever it can.
//!
//! Three ranks on one thread: two sound ones, and one that sends sound messages and in between overwrites words of the job
//! file. It does so either only where its own program would write, and then the other two must still reach each other; or
//! anywhere, and then nobody may panic, hang or be handed bytes from outside a message.

mod program;

use super::*;
use crate::JobConfig;
use crate::layout::{Layout, back, header};
use crate::sync::AtomicU64;
use am_core::transport::{PayloadWriter, Slot};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::RngCore;
use std::panic::{AssertUnwindSafe, catch_unwind};

const FAULTY: usize = 2;
const SEGMENT: usize = 4096;

/// A PCG generator with the few draws that these tests need.
struct Random(Pcg64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Pcg64::new(u128::from(seed), 1))
    }

    fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which is not zero.
    fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// A length up to `most`.
    fn length(&mut self, most: usize) -> usize {
        self.below(most as u64 + 1) as usize
    }

    fn words(&mut self, count: usize) -> Words {
        let words: Vec<u32> = (0..count).map(|_| self.number() as u32).collect();
        Words::from_slice(&words).expect("no more than sixteen are asked for")
    }
}

/// Where the faulty rank writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Own,
    Everywhere,
}

/// Everything that a sound rank is handed, looked at as a handler would.
struct Reader<'a> {
    random: &'a mut Random,
    detached: &'a mut Vec<PendingKey>,
    most: usize,
    count: usize,
    /// Requests received from the other sound ranks.
    sound: usize,
}

impl Reader<'_> {
    fn look(&mut self, args: &Words, payload: Payload<'_>) {
        self.count += 1;
        assert!(args.iter().count() <= 16);
        let mut words = 0;
        payload.for_each_u64(|_| words += 1);
        assert_eq!(payload.to_vec().len() / 8, words);
    }
}

impl Sink for Reader<'_> {
    fn request(&mut self, arrival: Arrival<'_>, port: &mut dyn Port) {
        self.look(arrival.args, arrival.payload);
        self.sound += usize::from(arrival.from.index() != FAULTY);
        assert!(port.bound() <= self.most, "a reply bound of {} bytes", port.bound());
        respond(self.random, self.detached, port);
    }

    fn reply(&mut self, arrival: Arrival<'_>) {
        self.look(arrival.args, arrival.payload);
    }

    fn control(&mut self, _: Peer, args: &Words, payload: Payload<'_>) {
        self.look(args, payload);
    }
}

/// Replies in one of the ways there are.
fn respond(random: &mut Random, detached: &mut Vec<PendingKey>, port: &mut dyn Port) {
    let args = random.words(3);
    // Whether the requester still takes a reply is not the point.
    let _ = match random.below(6) {
        0 => Ok(()),
        1 => port.short(1, &args),
        2 => {
            let len = random.length(port.bound());
            port.medium(1, &args, len, &mut |buffer| buffer.write(0, &vec![7; len]))
        }
        3 => port.medium(1, &args, port.bound(), &mut |buffer| buffer.write(0, &vec![7; buffer.len()])),
        4 => match port.segment_len().checked_sub(8) {
            Some(at) => port.long(1, &args, &[9; 8], at),
            None => Ok(()),
        },
        _ => {
            detached.push(port.detach());
            Ok(())
        }
    };
}

/// Sends something; whether it is accepted is not the point.
fn send(shm: &mut Shm, random: &mut Random, to: Peer) {
    let limits = *shm.limits(to);
    let reply = match random.below(3) {
        0 => ReplyBound::None,
        1 => ReplyBound::UpTo(limits.medium_reply as u32),
        _ => ReplyBound::UpTo(random.length(limits.medium_reply) as u32),
    };
    let head = Head { handler: random.number() as u8, reply };
    let count = random.length(16);
    let args = random.words(count);
    let payload = vec![5; random.length(limits.medium_request)];
    let rank = shm.shape().address(to).rank;
    let _ = match random.below(5) {
        0 => shm.short(to, head, &args),
        1 => shm.medium(to, head, &args, &payload),
        2 => shm.claim(to, head, &args, payload.len()).map(|mut slot| {
            if !slot.is_empty() {
                slot.write(0, &payload);
                slot.commit();
            }
        }),
        3 => match shm.segment_len(rank).checked_sub(8) {
            Some(at) => shm.long(to, head, &args, &[1; 8], at),
            None => Ok(()),
        },
        _ => shm.control(to, &args, &payload),
    };
}

/// Polls one rank as its core would; returns how many requests of sound ranks came.
fn poll(shm: &mut Shm, random: &mut Random, detached: &mut Vec<PendingKey>) -> usize {
    let budget = 1 + random.length(20);
    let most = shm.limits.medium_reply;
    let mut reader = Reader { random, detached, most, count: 0, sound: 0 };
    let told = shm.poll(budget, &mut reader);
    let (count, sound) = (reader.count, reader.sound);
    assert!(told == count && count <= budget, "{told} of {count} told with a budget of {budget}");
    if let Some(key) = detached.pop() {
        shm.answer(key, |port| respond(random, &mut Vec::new(), port));
    }
    shm.park(Some(shm.now()));
    sound
}

/// The job file as the faulty rank sees it.
struct Memory {
    words: View<AtomicU64>,
    layout: Layout,
}

impl Memory {
    /// Index of a word that the faulty rank itself would write, and whether it is the header of a cell.
    fn own(&self, random: &mut Random) -> (usize, bool) {
        let other = random.below(2) as usize;
        let (to, from) = (self.layout.pair(FAULTY, other), self.layout.pair(other, FAULTY));
        let mut inside = |start: usize, bytes: usize| start / 8 + random.below(bytes as u64 / 8) as usize;
        let (requests, replies) = (
            inside(to.request_cells, 64 * self.layout.request_cells),
            inside(from.reply_cells, 64 * self.layout.reply_cells),
        );
        let block = self.layout.endpoint(FAULTY) / 8;
        let index = match random.below(12) {
            0 => requests,
            1 => replies,
            2 | 3 => return (requests & !7, true),
            4 | 5 => return (replies & !7, true),
            6 => from.back / 8 + random.below(back::WORDS as u64) as usize,
            7 => block + random.below(endpoint::WORDS as u64) as usize,
            8 => (self.layout.endpoint(random.below(3) as usize) + endpoint::PARK) / 8,
            9 => self.layout.contacts(other) / 8 + FAULTY,
            10 => self.layout.endpoint(random.below(3) as usize) / 8 + endpoint::NEWS,
            _ => header::CHANGES,
        };
        (index, false)
    }

    fn anywhere(&self, random: &mut Random) -> (usize, bool) {
        let index = random.below(self.words.len() as u64) as usize;
        match random.below(4) {
            0 => (index, false),
            1 => (index & !7, true),
            2 => self.own(random),
            _ => {
                let (asker, answerer) = (random.below(3) as usize, random.below(3) as usize);
                (self.layout.pair(asker, answerer).back / 8 + random.below(4) as usize, false)
            }
        }
    }

    fn scribble(&self, random: &mut Random, reach: Reach) {
        let (index, header) = if reach == Reach::Own { self.own(random) } else { self.anywhere(random) };
        let old = self.words[index].load(Relaxed);
        let value = match random.below(6) {
            // Some of these look like headers: of the next lap, with fields that make sense by themselves.
            _ if header && random.below(4) != 0 => {
                let lap = old.wrapping_add(random.below(3)) & 0xff;
                let kind = random.below(6) << 13;
                let (args, reply) = (random.below(20) << 8, random.below(300) << 44 | random.below(2) << 59);
                let len = random.below(300) << 24 | random.below(2) << 58;
                (random.number() & 0xff << 16) | lap | kind | args | reply | len
            }
            0 => random.number(),
            1 => random.below(10),
            2 => u64::MAX - random.below(10),
            3 => old.wrapping_add(random.below(100)),
            4 => old.wrapping_sub(random.below(100)),
            _ => 1 << random.below(64),
        };
        self.words[index].store(value, Relaxed);
    }
}

/// One case; panics if something is wrong.
fn case(seed: u64, reach: Reach) {
    let random = &mut Random::new(seed);
    let config = if random.below(4) == 0 { JobConfig::new(3) } else { JobConfig::smallest(3) };
    let job = Job::create(&config).expect("memory is there");
    let join = |rank| {
        job.join_with(rank, crate::JoinOptions { segment_bytes: SEGMENT, endpoint: 0 }).expect("a free rank")
    };
    let mut ranks = [join(0), join(1), join(2)];
    // What has become of its own accounts may make the faulty rank's transport take others for faulty. Its word would count,
    // so it is kept from telling them.
    let elsewhere = Job::create(&config).expect("memory is there");
    ranks[FAULTY].board = Arc::clone(&elsewhere.board);
    let layout = job.board.layout;
    let words = View::new(&job.mapping, 0, layout.control_bytes() / 8);
    let memory = Memory { words, layout };
    let mut detached = [Vec::new(), Vec::new()];
    for _ in 0..random.below(100) {
        let one = random.below(2) as usize;
        match random.below(6) {
            0 => memory.scribble(random, reach),
            1 => send(&mut ranks[FAULTY], random, Peer(one as u32)),
            2 => send(&mut ranks[one], random, Peer(FAULTY as u32)),
            3 => send(&mut ranks[one], random, Peer(1 - one as u32)),
            _ => {
                poll(&mut ranks[one], random, &mut detached[one]);
            }
        }
    }
    if reach == Reach::Everywhere {
        return;
    }
    // The sound ones still reach each other.
    for (from, to) in [(0, 1), (1, 0)] {
        assert_eq!(ranks[to].status(Peer(from as u32)), PeerStatus::Active);
        let head = Head { handler: 0, reply: ReplyBound::None };
        let mut sent = false;
        let mut left = 1000;
        loop {
            sent = sent || ranks[from].short(Peer(to as u32), head, &Words::EMPTY).is_ok();
            let came = poll(&mut ranks[to], random, &mut detached[to]);
            poll(&mut ranks[from], random, &mut detached[from]);
            if sent && came != 0 && ranks[from].asking[to].requests.quiet() {
                break;
            }
            left -= 1;
            assert!(left != 0, "rank {to} does not hear of rank {from} any more");
        }
    }
}

fn fuzz(cases: u64, reach: Reach) {
    let seed = std::env::var("AM_FAULTY_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = seed.map_or(0..cases, |seed| seed..seed + 1);
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(seed, reach))) {
            eprintln!("AM_FAULTY_SEED={seed} repeats this failure ({reach:?})");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_rank_that_writes_garbage_harms_only_itself() {
    fuzz(1500, Reach::Own);
}

#[test]
fn garbage_anywhere_is_survived() {
    fuzz(1500, Reach::Everywhere);
}

/// `cargo test -p transport-shm --lib -- --ignored many`: minutes.
#[test]
#[ignore = "takes minutes"]
fn many_cases() {
    fuzz(50_000, Reach::Own);
    fuzz(50_000, Reach::Everywhere);
}

/// Rank 1 of two has written a frame with these fields, words and position among the first cells to rank 0; what that one
/// makes of it.
fn received(requests: bool, frames: &[(u64, [u64; 2])]) -> PeerStatus {
    let job = Job::create(&JobConfig::smallest(2)).expect("memory is there");
    let options = crate::JoinOptions { segment_bytes: SEGMENT, endpoint: 0 };
    let mut rank = job.join_with(0, options).expect("rank 0 is free");
    let mut other = job.join(1).expect("rank 1 is free");
    // As if both had sent before; otherwise nobody looks at their lanes.
    rank.contact(Peer(1));
    other.contact(Peer(0));
    let layout = job.board.layout;
    let cells = if requests { layout.pair(1, 0).request_cells } else { layout.pair(0, 1).reply_cells };
    let lane = View::<Cell>::new(&job.mapping, cells, layout.request_cells);
    for (cell, (fields, words)) in lane.iter().zip(frames) {
        for (slot, word) in cell.0[1..].iter().zip(words) {
            slot.store(*word, Relaxed);
        }
        cell.0[0].store(*fields | 1, Relaxed);
    }
    let random = &mut Random::new(0);
    poll(&mut rank, random, &mut Vec::new());
    rank.status(Peer(1))
}

#[test]
fn frames_that_make_no_sense_are_told_from_those_that_do() {
    let kind = |kind: u64| kind << 13;
    let (args, len) = (|count: u64| count << 8, |bytes: u64| bytes << 24);
    let (reply, in_ring) = (|granules: u64| granules << 44 | 1 << 59, 1 << 58);
    let end = SEGMENT as u64;
    let lost = PeerStatus::Lost(LossCause::Faulty);
    for (fields, words, expected) in [
        (kind(1) | args(14), [0; 2], PeerStatus::Active),
        (kind(1) | args(15), [0; 2], lost), // needs a second cell, which is not there
        (kind(1) | args(17), [0; 2], lost),
        (kind(0), [0; 2], lost),
        (kind(5), [0; 2], lost),
        (kind(1) | in_ring, [0; 2], lost),
        (kind(1) | reply(1), [0; 2], PeerStatus::Active),
        (kind(1) | reply(2), [0; 2], lost),
        (kind(2) | len(56), [0; 2], PeerStatus::Active),
        (kind(2) | len(57), [0; 2], lost),
        (kind(2) | in_ring | len(64), [0; 2], PeerStatus::Active),
        (kind(2) | in_ring | len(65), [0; 2], lost),
        (kind(3), [end - 8, 8], PeerStatus::Active),
        (kind(3), [end - 8, 9], lost),
        (kind(3), [u64::MAX, 2], lost),
        (kind(3), [8, u64::MAX], lost),
        (kind(3) | len(8), [0, 8], lost),
        (kind(3) | in_ring, [0, 8], lost),
        (kind(4) | in_ring | len(8), [0; 2], PeerStatus::Active),
        (kind(4) | len(8), [0; 2], lost),
    ] {
        assert_eq!(received(true, &[(fields, words)]), expected, "fields {fields:#x}, words {words:?}");
        // Nobody has asked, so every reply is one too many.
        assert_eq!(received(false, &[(fields, words)]), lost, "reply with fields {fields:#x}");
    }
    // A second cell must be of the same lap, whatever else it says.
    assert_eq!(received(true, &[(kind(1) | args(16), [0; 2]), (0, [0; 2])]), PeerStatus::Active);
}

/// A handler panics after its ring has gone round under the poll that called it: what came meanwhile is still found.
#[test]
fn frames_are_found_after_a_handler_panicked() {
    struct Clumsy(usize);
    impl Sink for Clumsy {
        fn request(&mut self, _: Arrival<'_>, _: &mut dyn Port) {
            self.0 += 1;
            assert_ne!(self.0, 4, "a handler panics");
        }
        fn reply(&mut self, _: Arrival<'_>) {}
        fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
    }
    let job = Job::create(&JobConfig::smallest(2)).expect("memory is there");
    let (mut receiver, mut sender) = (job.join(0).expect("it is free"), job.join(1).expect("it is free"));
    let head = Head { handler: 0, reply: ReplyBound::None };
    let mut send =
        |count: usize| (0..count).filter(|_| sender.short(Peer(0), head, &Words::EMPTY).is_ok()).count();
    let mut sink = Clumsy(0);
    assert_eq!(send(4), 4);
    assert!(catch_unwind(AssertUnwindSafe(|| receiver.poll(100, &mut sink))).is_err());
    // With the smallest ring every cell is given back at once, so the first one is written anew.
    assert_eq!(send(3), 3);
    assert_eq!((receiver.poll(100, &mut sink), sink.0), (3, 7));
}
