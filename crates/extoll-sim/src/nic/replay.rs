//! The reliable channel of a pair of processes, as a state machine with no clock: an 8-bit sequence, a replay ring
//! of 256 packets, a committed count of 8 bits, a retry flag.
//!
//! The sender numbers packets and keeps them until they are committed. The receiver takes them in sequence only,
//! and says how far it has come: *delivered* packets have reached the interface, *committed* ones their mailbox or
//! memory, so that the room which they took in the ring is free again. When a packet is missing the receiver says
//! so once, and the sender's retry flag goes up: nothing new is sent, and once the sender is idle it clears the
//! flag and sends committed..wp again.
//!
//! What the simulation moves as one packet may be several of the machine's: it takes as many numbers and as many
//! places in the ring.

use std::collections::VecDeque;

/// Packets that may be uncommitted: the ring has 256 places, and with all of them taken an 8-bit count could not
/// tell full from empty.
pub const WINDOW: u8 = 255;

/// Packets that are committed before their sender is told, where nothing is lost.
pub(crate) const TELL_EVERY: u8 = 64;

/// How far a receiver has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The sequence number that it waits for.
    pub delivered: u8,
    /// The sequence number after the last packet whose room is free again.
    pub committed: u8,
}

/// The sending end.
#[derive(Debug)]
pub struct Sender<P> {
    committed: u8,
    delivered: u8,
    next: u8,
    retry: bool,
    refused: bool,
    /// The packets committed..next with how many each stands for, if they are kept at all.
    kept: VecDeque<(u8, P)>,
    wraps: bool,
}

impl<P> Default for Sender<P> {
    fn default() -> Self {
        Self {
            committed: 0,
            delivered: 0,
            next: 0,
            retry: false,
            refused: false,
            kept: VecDeque::new(),
            wraps: true,
        }
    }
}

impl<P: Clone> Sender<P> {
    /// A sender that compares counts without wrapping, which is wrong.
    pub(crate) fn broken() -> Self {
        Self { wraps: false, ..Self::default() }
    }

    /// Packets that are not yet committed.
    #[inline]
    pub fn uncommitted(&self) -> u8 {
        self.next.wrapping_sub(self.committed)
    }

    /// Packets that the receiver has not yet said to have.
    #[inline]
    pub fn undelivered(&self) -> u8 {
        self.next.wrapping_sub(self.delivered)
    }

    /// How many of so many packets may be sent now as one of the simulation; if none, [`Sender::progress`] will
    /// tell when that has changed. It ends where the receiver tells how far it is, so that this is as soon as
    /// without.
    #[inline]
    pub fn room(&mut self, count: u8) -> u8 {
        let room = self.free().min(count).min(TELL_EVERY - self.next % TELL_EVERY);
        self.refused |= room == 0;
        room
    }

    fn free(&self) -> u8 {
        if self.retry { 0 } else { WINDOW - self.uncommitted() }
    }

    /// Takes a packet that stands for so many and returns the first one's sequence number. `packet` is asked for
    /// only where packets are kept for replay.
    ///
    /// # Panics
    /// Unless there is [room](Sender::room) for them.
    #[inline]
    pub fn push(&mut self, packet: Option<P>, count: u8) -> u8 {
        assert!(count <= self.free(), "a packet is sent only when there is room");
        self.kept.extend(packet.map(|packet| (count, packet)));
        let sequence = self.next;
        self.next = self.next.wrapping_add(count);
        sequence
    }

    /// Takes note of the receiver's progress. Returns whether there was any, and whether someone who was refused
    /// may send now. Counts that the receiver cannot have reached are ignored.
    #[inline]
    pub fn progress(&mut self, progress: Progress) -> (bool, bool) {
        let Progress { delivered, committed } = progress;
        let (gone, possible) = (committed.wrapping_sub(self.committed), self.uncommitted());
        let reached = if self.wraps {
            gone <= possible && delivered.wrapping_sub(committed) <= self.next.wrapping_sub(committed)
        } else {
            committed >= self.committed && committed <= self.next
        };
        if !reached {
            return (false, false);
        }
        let ahead = delivered.wrapping_sub(self.delivered);
        let moved = gone != 0 || (ahead != 0 && ahead <= self.undelivered());
        let mut gone = gone;
        while let Some((count, _)) = self.kept.front().filter(|(count, _)| *count <= gone) {
            gone -= count;
            self.kept.pop_front();
        }
        self.committed = committed;
        self.delivered = delivered;
        (moved, self.open())
    }

    fn open(&mut self) -> bool {
        let open = self.refused && self.free() != 0;
        self.refused &= !open;
        open
    }

    /// Puts the retry flag up; returns whether it was down. With nothing to send again it stays down.
    pub fn flag(&mut self) -> bool {
        let raised = !self.retry && self.uncommitted() != 0;
        self.retry |= raised;
        raised
    }

    /// Whether the retry flag is up.
    pub fn retrying(&self) -> bool {
        self.retry
    }

    /// Clears the retry flag and gives what is to be sent again: committed..wp, in order. Call when the sender is
    /// idle. Returns also whether someone who was refused may send after that.
    pub fn replay(&mut self) -> (Vec<(u8, P)>, bool) {
        self.retry = false;
        let mut next = self.committed;
        let again = self.kept.iter().map(|(count, packet)| {
            let first = next;
            next = next.wrapping_add(*count);
            (first, packet.clone())
        });
        let again = again.collect();
        (again, self.open())
    }

    /// Forgets what has not arrived, because it never will. Returns how many packets that were.
    pub fn abandon(&mut self) -> u8 {
        let lost = self.uncommitted();
        self.kept.clear();
        (self.committed, self.delivered, self.retry) = (self.next, self.next, false);
        lost
    }
}

/// What a receiver makes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the next one.
    Take,
    /// It has been here before: say how far we are, drop it.
    Known,
    /// One before it is missing: ask for a replay, drop it.
    Missing,
    /// As before, and the replay has been asked for already: drop it.
    Waiting,
}

/// The receiving end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Receiver {
    delivered: u8,
    committed: u8,
    told: u8,
    asked: bool,
}

impl Receiver {
    /// Judges a packet that stands for so many by the first one's sequence number.
    #[inline]
    pub fn judge(&mut self, sequence: u8, count: u8) -> Verdict {
        let ahead = sequence.wrapping_sub(self.delivered);
        if ahead == 0 {
            self.delivered = self.delivered.wrapping_add(count);
            self.asked = false;
            return Verdict::Take;
        }
        // Beyond half of the circle it may be either. Then the worst is a replay, or a timeout, more.
        if ahead >= 128 {
            return Verdict::Known;
        }
        if std::mem::replace(&mut self.asked, true) { Verdict::Waiting } else { Verdict::Missing }
    }

    /// Takes a packet whatever its number is, which is wrong.
    pub(crate) fn take_any(&mut self, count: u8) {
        self.delivered = self.delivered.wrapping_add(count);
    }

    /// The oldest delivered packet, which stands for so many, has found its place. Returns whether `every` packets
    /// have been committed since the sender was last told.
    ///
    /// # Panics
    /// If all delivered packets are committed already.
    #[inline]
    pub fn commit(&mut self, count: u8, every: u8) -> bool {
        let delivered = self.delivered.wrapping_sub(self.committed);
        assert!(count <= delivered, "only delivered packets are committed");
        self.committed = self.committed.wrapping_add(count);
        self.committed.wrapping_sub(self.told) >= every
    }

    /// What to tell the sender.
    #[inline]
    pub fn tell(&mut self) -> Progress {
        self.told = self.committed;
        Progress { delivered: self.delivered, committed: self.committed }
    }
}
