//! A faulty peer is an error, never undefined behaviour: it writes what it likes wherever it can.
//!
//! Three ranks on one thread: two sound ones, and one that sends sound messages and in between overwrites words of
//! the job file. It does so either only where its own program would write, and then the other two must still reach
//! each other; or anywhere, and then nobody may panic, hang or be handed bytes from outside a message.

#[cfg(test)]
mod program;
#[cfg(test)]
mod tests;

use super::*;
use crate::JobConfig;
use crate::layout::{Layout, back, header};
use crate::ring::{CELL_WORDS, Cell};
use crate::sync::AtomicU64;
use am_core::transport::{Body, PayloadWriter, Slot};

const FAULTY: usize = 2;
const SEGMENT: usize = 4096;

/// Decisions: read from a fuzzer's bytes, then from the SplitMix64 generator (Steele, Lea and Flood, OOPSLA 2014).
struct Random<'a> {
    bytes: &'a [u8],
    state: u64,
}

impl<'a> Random<'a> {
    fn new(seed: u64) -> Self {
        Self { bytes: &[], state: seed }
    }

    fn of_bytes(bytes: &'a [u8]) -> Self {
        Self { bytes, state: 0 }
    }

    fn generated(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number of so many bytes, at least.
    fn draw(&mut self, bytes: usize) -> u64 {
        let Some((now, later)) = self.bytes.split_at_checked(bytes) else { return self.generated() };
        self.bytes = later;
        now.iter().rfold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn number(&mut self) -> u64 {
        self.draw(8)
    }

    /// A number below `bound`, which is not zero.
    fn below(&mut self, bound: u64) -> u64 {
        let bytes = match bound {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 8,
        };
        self.draw(bytes) % bound
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
struct Reader<'a, 'b> {
    random: &'a mut Random<'b>,
    detached: &'a mut Vec<PendingKey>,
    most: usize,
    count: usize,
    /// Requests received from the other sound ranks.
    sound: usize,
}

impl Reader<'_, '_> {
    fn look(&mut self, args: &Words, payload: Payload<'_>) {
        self.count += 1;
        assert!(args.iter().count() <= 16);
        let mut words = 0;
        payload.for_each_u64(|_| words += 1);
        assert_eq!(payload.to_vec().len() / 8, words);
    }
}

impl Sink for Reader<'_, '_> {
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
        self.look(arrival.args, arrival.payload);
        self.sound += usize::from(arrival.from.index() != FAULTY);
        assert!(path.bound() <= self.most, "a reply bound of {} bytes", path.bound());
        respond(self.random, self.detached, path);
    }

    fn reply(&mut self, arrival: Arrival<'_>) {
        self.look(arrival.args, arrival.payload);
    }

    fn control(&mut self, _: Peer, args: &Words, payload: Payload<'_>) {
        self.look(args, payload);
    }
}

/// Replies in one of the ways there are.
fn respond(random: &mut Random<'_>, detached: &mut Vec<PendingKey>, path: &mut dyn ReplyPath) {
    let args = random.words(3);
    // Whether the requester still takes a reply is not the point.
    let _ = match random.below(6) {
        0 => Ok(()),
        1 => path.send(1, &args, Body::None),
        2 => {
            let len = random.length(path.bound());
            path.send(1, &args, Body::Copy(&vec![7; len]))
        }
        3 => path.send_filled(1, &args, path.bound(), &mut |buffer| buffer.write(0, &vec![7; buffer.len()])),
        4 => match path.segment_len().checked_sub(8) {
            Some(at) => path.send(1, &args, Body::Place(&[9; 8], at)),
            None => Ok(()),
        },
        _ => {
            detached.push(path.detach());
            Ok(())
        }
    };
}

/// Sends something; whether it is accepted is not the point.
fn send(shm: &mut Shm, random: &mut Random<'_>, to: Peer) {
    let limits = *shm.limits(to);
    let reply = match random.below(3) {
        0 => ReplyBound::None,
        1 => ReplyBound::UpTo(limits.medium_reply as u32),
        _ => ReplyBound::UpTo(random.length(limits.medium_reply) as u32),
    };
    let head = RequestHeader::new(random.number() as u8, reply);
    let count = random.length(16);
    let args = random.words(count);
    let payload = vec![5; random.length(limits.medium_request)];
    let rank = shm.shape().address(to).rank;
    let _ = match random.below(5) {
        0 => shm.send(to, head, &args, Body::None),
        1 => shm.send(to, head, &args, Body::Copy(&payload)),
        2 => shm.reserve(to, head, &args, payload.len()).map(|room| {
            let mut slot = shm.slot(to, head, &args, payload.len(), room);
            if !slot.is_empty() {
                slot.write(0, &payload);
                slot.commit();
            }
        }),
        3 => match shm.segment_len(rank).checked_sub(8) {
            Some(at) => shm.send(to, head, &args, Body::Place(&[1; 8], at)),
            None => Ok(()),
        },
        _ => shm.control(to, &args, &payload),
    };
}

/// Polls one rank as its core would; returns how many requests of sound ranks came.
fn poll(shm: &mut Shm, random: &mut Random<'_>, detached: &mut Vec<PendingKey>) -> usize {
    let budget = 1 + random.length(20);
    let most = shm.limits.medium_reply;
    let mut reader = Reader { random, detached, most, count: 0, sound: 0 };
    let told = shm.poll(budget, &mut reader);
    let (count, sound) = (reader.count, reader.sound);
    assert!(told == count && count <= budget, "{told} of {count} told with a budget of {budget}");
    if let Some(key) = detached.pop() {
        shm.reply_detached(key, |path| respond(random, &mut Vec::new(), path));
    }
    shm.park(Some(shm.now()), &mut || false);
    sound
}

/// The job file as the faulty rank sees it.
struct Memory {
    words: View<AtomicU64>,
    layout: Layout,
}

impl Memory {
    /// Index of a word that the faulty rank itself would write, and whether it is the header of a cell.
    fn own(&self, random: &mut Random<'_>) -> (usize, bool) {
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
            2 => return (requests & !7, true),
            // Where a cell of several frames may have its next one.
            3 => return (requests, true),
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

    fn anywhere(&self, random: &mut Random<'_>) -> (usize, bool) {
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

    fn scribble(&self, random: &mut Random<'_>, reach: Reach) {
        let (index, header) = if reach == Reach::Own { self.own(random) } else { self.anywhere(random) };
        let old = self.words[index].load(Relaxed);
        let value = match random.below(6) {
            // Some of these look like headers: of the next lap, with fields that make sense by themselves.
            _ if header && random.below(4) != 0 => {
                let lap = old.wrapping_add(random.below(3)) & 0xff;
                let kind = random.below(6) << 13;
                let (args, reply) = (random.below(20) << 8, random.below(300) << 44 | random.below(2) << 59);
                let len = random.below(300) << 24 | random.below(2) << 58 | random.below(2) << 60;
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
fn case(random: &mut Random<'_>, reach: Reach) {
    let config = if random.below(4) == 0 { JobConfig::new(3) } else { JobConfig::smallest(3) };
    let job = Job::create(&config).expect("memory is there");
    let join =
        |rank| job.join_with(rank, crate::JoinOptions::default().segment_bytes(SEGMENT)).expect("a free rank");
    let mut ranks = [join(0), join(1), join(2)];
    // What has become of its own accounts may make the faulty rank's transport take others for faulty. Its word
    // would count, so it is kept from telling them.
    let elsewhere = Job::create(&config).expect("memory is there");
    ranks[FAULTY].board = Arc::clone(&elsewhere.board);
    let layout = job.board.layout;
    let words = View::new(&job.mapping, 0, layout.control_bytes() / 8);
    let memory = Memory { words, layout };
    if random.below(2) == 0 {
        let all = ranks.iter_mut().flat_map(|rank| &mut rank.asking);
        all.for_each(|asking| asking.requests.always_pack());
    }
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
        let head = RequestHeader::new(0, ReplyBound::None);
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

/// Rank 1 of two has written a frame with these fields, words and position among the first cells to rank 0; what
/// that one makes of it.
fn received(requests: bool, frames: &[(u64, [u64; CELL_WORDS])], random: &mut Random<'_>) -> PeerStatus {
    let job = Job::create(&JobConfig::smallest(2)).expect("memory is there");
    let options = crate::JoinOptions::default().segment_bytes(SEGMENT);
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
        cell.0[0].store(*fields & !0xff | 1, Relaxed);
    }
    poll(&mut rank, random, &mut Vec::new());
    rank.status(Peer(1))
}

/// What a sound rank makes of cells with any contents, in either lane: nothing worse than the loss of who wrote
/// them. Returns whether that one is lost.
pub fn frame(data: &[u8]) -> bool {
    let Some((how, cells)) = data.split_first() else { return false };
    let mut frames = Vec::new();
    // As many as the smallest lane has.
    for cell in cells.chunks(8 * (1 + CELL_WORDS)).take(4) {
        let mut words = [0; 1 + CELL_WORDS];
        for (word, bytes) in words.iter_mut().zip(cell.chunks(8)) {
            *word = bytes.iter().rfold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        let [fields, rest @ ..] = words;
        frames.push((fields, rest));
    }
    let status = received(how & 1 == 0, &frames, &mut Random::new(0));
    assert!(matches!(status, PeerStatus::Active | PeerStatus::Lost(LossCause::Faulty)), "{status:?}");
    status != PeerStatus::Active
}

/// A rank that writes what the bytes say where its own program would write (an even first byte) or anywhere, in
/// between sound traffic of three.
pub fn memory(data: &[u8]) {
    let Some((how, decisions)) = data.split_first() else { return };
    case(&mut Random::of_bytes(decisions), if how & 1 == 0 { Reach::Own } else { Reach::Everywhere });
}
