//! Short messages that the program has handed over without the engine's lock, on their way to the machine.
//!
//! The lock costs more than all else that a Short message in a row of many takes, so the program's thread writes
//! such messages, as they will stand in their lane, into a ring of its own; whoever takes the lock next, the
//! program or its helper, hands them to the machine before anything else (`Shared::engine`). So no work on the
//! machine comes before a message that was accepted earlier.
//!
//! What may be staged is a [`Licence`], issued under the lock while the ring is empty: room towards one peer that
//! was free at that moment. Nobody but the program takes such room, so that it is still free when the messages
//! reach the machine. Each other use of the machine by the program ends the licence.

use am_core::Peer;
use am_core::arguments::{MAX_WORDS, Words};
#[cfg(all(test, am_loom))]
use loom::sync::atomic::AtomicU64;
#[cfg(not(all(test, am_loom)))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Words of the ring; few under loom, so that its schedules go round.
const WORDS: usize = if cfg!(all(test, am_loom)) { 12 } else { 512 };
const BYTES: u64 = 8 * WORDS as u64;
/// Bytes that are handed to the machine at once.
const PIECE: usize = 256;
/// Bytes of a header, and of a message at most, rounded up to where a writer that begins within a word ends.
const HEADER: u32 = 3;
const LONGEST: u64 = (HEADER as u64 + 4 * MAX_WORDS as u64 + 8).next_multiple_of(8);

/// The ring: bytes of whole messages, one after the other.
///
/// The program's thread writes. It begins anew only with a licence, so under the lock and once all is taken; until
/// then it stays within one round. So no word is written that anybody may still read.
#[derive(Debug)]
pub(super) struct Ring {
    words: Box<[AtomicU64; WORDS]>,
    /// Where the messages end that may be taken, in bytes since the start.
    tail: AtomicU64,
}

/// The reading end; its owner is whoever holds the lock.
#[derive(Debug, Default)]
pub(super) struct Staged {
    /// Up to where messages have been taken.
    head: u64,
    /// Whose messages there are: the peer, and the name of the session with it.
    pub(super) owner: Option<(Peer, u64)>,
}

/// The writing end, of the program's thread, and what it may write.
#[derive(Debug, Default)]
pub(super) struct Stage {
    licence: Option<Licence>,
    at: u64,
    /// The bytes of the word at `at` that stand before it.
    partial: u64,
}

/// Permission to stage messages.
#[derive(Clone, Copy, Debug)]
struct Licence {
    to: Peer,
    /// The furthest place where a message may begin.
    last: u64,
}

impl Ring {
    pub(super) fn new() -> Self {
        Self { words: Box::new(std::array::from_fn(|_| AtomicU64::new(0))), tail: AtomicU64::new(0) }
    }

    /// Bytes that have been staged so far.
    #[cfg(test)]
    pub(super) fn tail(&self) -> u64 {
        self.tail.load(Relaxed)
    }

    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[(at / 8) as usize % WORDS]
    }

    /// Whether there are messages to take.
    #[inline]
    pub(super) fn has_more(&self, staged: &Staged) -> bool {
        // Acquire: pairs with the Release of `Stage::publish`, so that the words of the messages can be read.
        self.tail.load(Acquire) != staged.head
    }

    /// Takes all messages, piece by piece; the bytes are those of their lane.
    pub(super) fn take(&self, staged: &mut Staged, mut with: impl FnMut(&[u8])) {
        // As in `has_more`.
        let tail = self.tail.load(Acquire);
        let mut bytes = [0; PIECE];
        while staged.head < tail {
            let skew = staged.head % 8;
            let begin = staged.head - skew;
            let len = (tail - begin).min(PIECE as u64);
            for (at, to) in (begin..begin + len).step_by(8).zip(bytes.as_chunks_mut::<8>().0) {
                *to = self.word(at).load(Relaxed).to_le_bytes();
            }
            with(&bytes[skew as usize..len as usize]);
            staged.head = begin + len;
        }
    }
}

impl Stage {
    /// Permits messages to a peer, to which `room` bytes are free. To be called under the lock, when all messages
    /// have been taken.
    pub(super) fn permit(&mut self, to: Peer, room: u64) {
        self.licence = Some(Licence { to, last: self.at + room.min(BYTES - LONGEST) });
    }

    /// Ends the licence.
    #[inline]
    pub(super) fn forbid(&mut self) {
        self.licence = None;
    }

    /// Stages a Short message without a reply; returns how many bytes it takes of the lane, or `None` if that is
    /// not permitted.
    #[inline]
    pub(super) fn push(&mut self, ring: &Ring, to: Peer, handler: u8, args: &Words) -> Option<u64> {
        self.licence.filter(|licence| licence.to == to && self.at <= licence.last)?;
        let from = self.at;
        // As `Message::encode` writes it; a test compares them.
        let first = (args.len() as u64) << 3 | u64::from(handler) << 8;
        self.put(ring, first, HEADER);
        let (pairs, odd) = args.pairs().split_at(args.len() / 2);
        pairs.iter().for_each(|pair| self.put(ring, *pair, 8));
        if let Some(odd) = odd.first() {
            self.put(ring, *odd & u64::from(u32::MAX), 4);
        }
        self.publish(ring);
        Some(self.at - from)
    }

    /// Appends the lowest `bytes` bytes of a value whose other bytes are zero.
    #[inline]
    fn put(&mut self, ring: &Ring, value: u64, bytes: u32) {
        let filled = (self.at % 8) as u32;
        self.partial |= value << (8 * filled);
        if filled + bytes >= 8 {
            // Relaxed: `publish` orders it.
            ring.word(self.at).store(self.partial, Relaxed);
            self.partial = value.checked_shr(64 - 8 * filled).unwrap_or(0);
        }
        self.at += u64::from(bytes);
    }

    #[inline]
    fn publish(&mut self, ring: &Ring) {
        // Whoever reads this word sees the bytes before `tail`, which later stores do not change.
        ring.word(self.at).store(self.partial, Relaxed);
        // Release: pairs with the Acquire of `Ring::has_more` and `Ring::take`.
        ring.tail.store(self.at, Release);
    }
}

#[cfg(all(test, not(am_loom)))]
mod tests {
    use super::*;
    use crate::proto::encoded;
    use crate::random::SplitMix64;

    const TO: Peer = Peer(1);

    fn message(random: &mut SplitMix64) -> (u8, Words) {
        let words: Vec<u32> = (0..random.below(17)).map(|_| random.next_u64() as u32).collect();
        (random.next_u64() as u8, Words::from_slice(&words).unwrap())
    }

    #[test]
    fn messages_come_out_as_the_lane_has_them() {
        let (ring, mut stage, mut staged) = (Ring::new(), Stage::default(), Staged::default());
        let mut random = SplitMix64(1);
        for round in 0..300 {
            let (mut expected, mut taken) = (Vec::new(), Vec::new());
            assert!(!ring.has_more(&staged));
            stage.permit(TO, u64::MAX);
            // Every third round is as long as the ring permits.
            let most = if round % 3 == 0 { usize::MAX } else { round % 7 };
            for _ in 0..most {
                let (handler, args) = message(&mut random);
                let Some(len) = stage.push(&ring, TO, handler, &args) else { break };
                let bytes = encoded(handler, &args);
                assert_eq!(len, bytes.len() as u64);
                expected.extend(bytes);
                if random.chance(100) {
                    // The helper takes some in between.
                    ring.take(&mut staged, |bytes| taken.extend_from_slice(bytes));
                }
            }
            ring.take(&mut staged, |bytes| taken.extend_from_slice(bytes));
            assert!(taken == expected, "round {round}");
            assert!(most < usize::MAX || taken.len() as u64 > BYTES - 2 * LONGEST);
        }
    }

    #[test]
    fn a_licence_is_for_one_peer_and_its_room() {
        let (ring, mut stage) = (Ring::new(), Stage::default());
        assert_eq!(stage.push(&ring, TO, 0, &Words::EMPTY), None, "none was issued");
        stage.permit(TO, 5);
        assert_eq!(stage.push(&ring, Peer(2), 0, &Words::EMPTY), None);
        assert_eq!(stage.push(&ring, TO, 0, &Words::EMPTY), Some(3));
        assert_eq!(stage.push(&ring, TO, 0, &Words::EMPTY), Some(3));
        assert_eq!(stage.push(&ring, TO, 0, &Words::EMPTY), None, "there is no room");
        stage.permit(TO, 5);
        stage.forbid();
        assert_eq!(stage.push(&ring, TO, 0, &Words::EMPTY), None);
    }

    /// Another thread takes messages while they are being staged.
    #[test]
    fn two_threads_hand_messages_on_in_order() {
        const COUNT: u32 = 20_000;
        let (ring, staged) = (Ring::new(), std::sync::Mutex::new((Staged::default(), Vec::new())));
        let drain = || {
            let mut guard = staged.lock().unwrap();
            let (staged, bytes) = &mut *guard;
            ring.take(staged, |more| bytes.extend_from_slice(more));
            guard
        };
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while done.load(Relaxed) == 0 {
                    drop(drain());
                    std::thread::yield_now();
                }
            });
            let mut stage = Stage::default();
            for number in 0..COUNT {
                let args = Words::from_slice(&[number, number][..1 + number as usize % 2]).unwrap();
                while stage.push(&ring, TO, 7, &args).is_none() {
                    let guard = drain();
                    stage.permit(TO, u64::MAX);
                    drop(guard);
                }
            }
            done.store(1, Relaxed);
        });
        let expected = (0..COUNT).flat_map(|number| {
            encoded(7, &Words::from_slice(&[number, number][..1 + number as usize % 2]).unwrap())
        });
        assert!(expected.eq(drain().1.iter().copied()));
    }
}

/// Compiled with `--cfg am_loom` only.
#[cfg(all(test, am_loom))]
mod loom_ring {
    use super::*;
    use crate::proto::encoded;
    use loom::sync::{Arc, Mutex};

    /// Where the ring ends, the words of old messages are written anew while a helper takes messages.
    #[test]
    fn messages_come_out_whole_and_once() {
        const TO: Peer = Peer(1);
        loom::model(|| {
            let ring = Arc::new(Ring::new());
            let staged = Arc::new(Mutex::new((Staged::default(), Vec::new())));
            let drain = |ring: &Ring, staged: &Mutex<(Staged, Vec<u8>)>| {
                let mut guard = staged.lock().unwrap();
                let (staged, bytes) = &mut *guard;
                if ring.has_more(staged) {
                    ring.take(staged, |more| bytes.extend_from_slice(more));
                }
            };
            let helper = {
                let (ring, staged) = (Arc::clone(&ring), Arc::clone(&staged));
                loom::thread::spawn(move || (0..2).for_each(|_| drain(&ring, &staged)))
            };
            let (mut stage, mut expected) = (Stage::default(), Vec::new());
            for round in 0..3u32 {
                drain(&ring, &staged);
                stage.permit(TO, u64::MAX);
                // Together they are longer than the ring.
                let args = Words::from_slice(&[round + 1; 9]).unwrap();
                stage.push(&ring, TO, 7, &args).unwrap();
                expected.extend(encoded(7, &args));
            }
            helper.join().unwrap();
            drain(&ring, &staged);
            assert!(staged.lock().unwrap().1 == expected);
        });
    }
}
