//! Receives of immediate calls for eager messages, in the order in which they were posted: messages that come in
//! that order find theirs at once, without a table.
//!
//! Receives are in the line only while no other one is posted, so that the first in it that a message fits is the
//! one that the message is for. Whatever is not such a message or receive makes all that wait in the line posted
//! receives like others; the key of each stands for that receive then, until it is taken.

use super::chains::Selector;
use super::control::{Envelope, KIND};
use super::receive::{Arriving, MessageInfo, Taken, copy_short};
use super::{BYTES, Failure, Machine};
use am_core::slab::Key;
use am_core::zerocopy::IntoBytes;

/// Places of the line: a power of two.
const PLACES: usize = 256;

/// Places that are looked at for a message before all that wait become posted receives.
const LOOKS: u32 = 16;

/// What tells keys of the line from those of posted receives, which never are so many.
const LINE: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Unused,
    /// It has met no message.
    Waiting,
    /// Its message is here.
    Arrived,
    /// Its message is here, and cannot be received.
    Failed,
    /// It is a posted receive.
    Moved,
}

/// Bytes of a message that a place holds.
const FEW: usize = 24;

/// A receive: one line of the cache, as most receives need no more.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    stage: Stage,
    /// How many were posted before it.
    number: u32,
    context: u32,
    source: u32,
    tag: u32,
    kind: u32,
    capacity: u32,
    /// The type of its message's elements, and the message's length.
    sent_kind: u32,
    len: u32,
    /// The bytes of its message if they are few, with others behind them, or else.
    few: [u64; FEW / 8],
}

const _: () = assert!(size_of::<Place>() == 64);

/// What few receives have.
#[derive(Debug, Default)]
struct More {
    /// The receive that it was posted as.
    posted: Option<Key>,
    failure: Option<Failure>,
    /// The bytes of a message that are not few.
    bytes: Vec<u8>,
}

impl Place {
    #[inline(always)]
    fn fits(&self, from: u32, envelope: &Envelope) -> bool {
        self.tag == envelope.tag && self.source == from && self.context == envelope.context
    }

    fn selector(&self) -> Selector {
        Selector { context: self.context, source: self.source, tag: self.tag }
    }

    #[inline(always)]
    fn info(&self) -> MessageInfo {
        MessageInfo { from: self.source, tag: self.tag, len: u64::from(self.len), kind: self.sent_kind }
    }
}

/// The line. Its places are made when they are first used.
#[derive(Debug, Default)]
pub(super) struct Line {
    places: Vec<Place>,
    more: Vec<More>,
    /// Numbers of the first receive that may wait, and of the next one.
    first: u32,
    next: u32,
    /// Receives that wait, and that have a place.
    waiting: u32,
    used: u32,
}

impl Line {
    #[inline(always)]
    fn index(number: u32) -> usize {
        number as usize & (PLACES - 1)
    }

    /// Whether no receive waits.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Receives that have a place.
    pub(super) fn used(&self) -> usize {
        self.used as usize
    }

    /// The place of a key, if it is one of the line's and not out of date.
    #[inline(always)]
    fn place(&self, key: Key) -> Option<&Place> {
        let place = self.places.get((key.index() ^ LINE) as usize)?;
        (place.number == key.generation() && place.stage != Stage::Unused).then_some(place)
    }

    /// Adds a receive, if there is a place; its key.
    #[inline(always)]
    pub(super) fn push(&mut self, selector: Selector, kind: u32, capacity: u64) -> Option<Key> {
        // No eager message is longer.
        let capacity = u32::try_from(capacity).ok()?;
        let (number, index) = (self.next, Self::index(self.next));
        if index >= self.places.len() {
            self.grow();
        }
        // As many numbers as there are places, or more, would have two receives at the first one's place.
        if number.wrapping_sub(self.first) as usize >= PLACES {
            self.skip();
        }
        let full = number.wrapping_sub(self.first) as usize >= PLACES;
        let place = &mut self.places[index];
        if full || place.stage != Stage::Unused {
            self.step_over();
            return None;
        }
        (place.stage, place.number) = (Stage::Waiting, number);
        (place.context, place.source, place.tag) = (selector.context, selector.source, selector.tag);
        (place.kind, place.capacity) = (kind, capacity);
        self.next = number.wrapping_add(1);
        self.waiting += 1;
        self.used += 1;
        Some(Key::new(index as u32 | LINE, number))
    }

    /// Somebody keeps the next place: later receives get those behind it, once no other waits.
    #[cold]
    fn step_over(&mut self) {
        if self.waiting == 0 {
            self.next = self.next.wrapping_add(1);
            self.first = self.next;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let places = (self.places.len() * 2).clamp(16, PLACES);
        self.places.resize_with(places, Place::default);
        self.more.resize_with(places, More::default);
    }

    /// The first receive that waits for a message with this envelope; `None` if there is none among those that are
    /// looked at.
    #[inline(always)]
    fn find(&mut self, from: u32, envelope: &Envelope) -> Option<usize> {
        if self.waiting == 0 {
            return None;
        }
        let (front, place) = (self.first, self.places.get(Self::index(self.first))?);
        if place.stage == Stage::Waiting && place.fits(from, envelope) {
            self.first = front.wrapping_add(1);
            return Some(Self::index(front));
        }
        self.find_behind(from, envelope)
    }

    #[inline(never)]
    fn find_behind(&mut self, from: u32, envelope: &Envelope) -> Option<usize> {
        let mut number = self.first;
        for _ in 0..LOOKS {
            let index = Self::index(number);
            let place = &self.places[index];
            let waits = place.stage == Stage::Waiting;
            let found = waits && place.fits(from, envelope);
            if number == self.first && (found || !waits) {
                self.first = number.wrapping_add(1);
            }
            if found {
                return Some(index);
            }
            number = number.wrapping_add(1);
            if number == self.next {
                break;
            }
        }
        None
    }

    /// Hands an eager message, which is the next one of its sender, to the receive that it is for. Whether there
    /// is one among those that are looked at.
    #[inline(always)]
    pub(super) fn fill<C: Arriving>(
        &mut self,
        pool: &mut Vec<Vec<u8>>,
        from: u32,
        envelope: &Envelope,
        content: &C,
    ) -> bool {
        let Some(index) = self.find(from, envelope) else { return false };
        let (place, len, kind) = (&mut self.places[index], content.len(), envelope.kind & KIND);
        (place.sent_kind, place.len) = (kind, len as u32);
        self.waiting -= 1;
        let wrong = place.kind != kind && place.kind != BYTES;
        if wrong || len > place.capacity as usize {
            place.stage = Stage::Failed;
            self.more[index].failure = Some(if wrong { Failure::WrongType(kind) } else { Failure::Truncated });
            return true;
        }
        place.stage = Stage::Arrived;
        if C::FITS_WORD || len <= FEW {
            content.store(&mut place.few);
        } else {
            let mut bytes = pool.pop().unwrap_or_default();
            bytes.resize(len, 0);
            content.copy_to(&mut bytes);
            self.more[index].bytes = bytes;
        }
        true
    }

    /// Frees a place.
    #[inline(always)]
    fn leave(&mut self, key: Key) {
        self.used -= 1;
        self.places[(key.index() ^ LINE) as usize].stage = Stage::Unused;
    }

    /// Steps over what waits no longer.
    fn skip(&mut self) {
        while self.first != self.next && self.places[Self::index(self.first)].stage != Stage::Waiting {
            self.first = self.first.wrapping_add(1);
        }
    }
}

impl Machine {
    /// Makes what waits in the line posted receives like others, in their order.
    #[cold]
    #[inline(never)]
    pub(super) fn post_line(&mut self) {
        while !self.line.is_empty() {
            self.line.skip();
            let index = Line::index(self.line.first);
            let place = &self.line.places[index];
            let (selector, kind, capacity) = (place.selector(), place.kind, u64::from(place.capacity));
            let key = self.new_receive(selector, kind, capacity);
            #[cfg(test)]
            self.aliases.insert(key, Key::new(index as u32 | LINE, self.line.first));
            self.line.places[index].stage = Stage::Moved;
            self.line.more[index].posted = Some(key);
            self.line.waiting -= 1;
            self.posted.push(selector, key);
        }
        self.line.first = self.line.next;
    }

    /// The posted receive that a key stands for.
    #[inline]
    pub(super) fn posted_of(&self, key: Key) -> Key {
        match self.line.place(key) {
            Some(Place { stage: Stage::Moved, .. }) => {
                self.line.more[(key.index() ^ LINE) as usize].posted.expect("it was posted")
            }
            _ => key,
        }
    }

    /// The same, of a key that is not used any more.
    pub(super) fn leave_line(&mut self, key: Key) -> Key {
        let posted = self.posted_of(key);
        if posted != key {
            self.line.leave(key);
        }
        posted
    }

    /// Whether a receive in the line is over; `None` if the key is no such receive's.
    pub(super) fn is_over_in_line(&self, key: Key) -> Option<bool> {
        match self.line.place(key)?.stage {
            Stage::Waiting => Some(false),
            Stage::Arrived | Stage::Failed => Some(true),
            Stage::Moved | Stage::Unused => None,
        }
    }

    /// What a receive in the line asks for.
    pub(super) fn selector_in_line(&self, key: Key) -> Option<Selector> {
        self.line.place(key).map(Place::selector)
    }

    /// Copies out the message of a receive in the line, if it is short and well; the receive goes.
    #[inline(always)]
    pub(super) fn take_short(&mut self, key: Key, out: &mut [u8]) -> Option<MessageInfo> {
        let place = self.line.place(key)?;
        let len = place.len as usize;
        if place.stage != Stage::Arrived || len > FEW {
            return None;
        }
        copy_short(&place.few, out.get_mut(..len)?);
        let info = place.info();
        self.line.leave(key);
        Some(info)
    }

    /// What a receive in the line has brought, if its message is here; it goes.
    pub(super) fn take_from_line(&mut self, key: Key) -> Option<Taken> {
        let over = |place: &&Place| matches!(place.stage, Stage::Arrived | Stage::Failed);
        let place = self.line.place(key).filter(over)?;
        let (info, well, few, len) = (place.info(), place.stage == Stage::Arrived, place.few, place.len as usize);
        let more = &mut self.line.more[(key.index() ^ LINE) as usize];
        let (failure, mut bytes) = (more.failure.take(), std::mem::take(&mut more.bytes));
        self.line.leave(key);
        if well && len <= FEW {
            bytes = self.buffer();
            bytes.extend_from_slice(&few.as_bytes()[..len]);
        }
        Some(Taken {
            info,
            met: true,
            cancelled: false,
            failure,
            bytes,
            staged: None,
            place: None,
            landed: false,
            timed: false,
        })
    }

    /// Nobody waits for a receive in the line any more. Whether it was one.
    pub(super) fn drop_from_line(&mut self, key: Key) -> bool {
        let Some(over) = self.is_over_in_line(key) else { return false };
        if over {
            if let Some(taken) = self.take_from_line(key) {
                self.recycle(taken.bytes);
            }
        } else {
            #[cfg(test)]
            self.history.push(super::model::Event::Cancelled(key));
            self.line.waiting -= 1;
            self.line.leave(key);
            self.line.skip();
        }
        true
    }
}

#[cfg(test)]
impl Machine {
    /// What the history calls a receive.
    pub(super) fn name_of(&self, key: Key) -> Key {
        self.aliases.get(&key).copied().unwrap_or(key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Play;
    use super::super::{ANY, Mode};
    use super::*;

    fn receive(play: &mut Play, key: Key) -> Option<u64> {
        play.machines[1].take_received(key).map(|taken| taken.info.len)
    }

    /// Receives in the line meet messages in their order, whatever else is posted, cancelled or let go meanwhile.
    #[test]
    fn receives_keep_their_order() {
        let mut play = Play::pair(1 << 20);
        let first: Vec<Key> = (0..5).map(|_| play.post_one(1, 10)).collect();
        assert!(first.iter().all(|key| key.index() & LINE != 0));
        let other = play.post_one(2, 10);
        play.machines[1].drop_receive(first[1]);
        for len in [0, 1, 2] {
            play.send_one(1, len);
        }
        play.settle();
        assert_eq!((receive(&mut play, first[0]), receive(&mut play, first[2])), (Some(0), Some(1)));
        assert_eq!((receive(&mut play, first[3]), receive(&mut play, first[4])), (Some(2), None));
        // One that is cancelled, and one with wildcards, are posted behind what waits.
        play.machines[1].cancel(other);
        assert!(play.machines[1].is_cancelled(other));
        let any = play.machines[1].post(Selector { context: 0, source: ANY, tag: ANY }, BYTES, 10);
        play.send_one(2, 3);
        play.send_one(1, 4);
        play.settle();
        assert_eq!((receive(&mut play, any), receive(&mut play, first[4])), (Some(3), Some(4)));
        assert!(receive(&mut play, other).is_some());
        assert_eq!((play.machines[1].receives.len(), play.machines[1].line.used()), (0, 0));
    }

    /// Keys are used again, and those that are out of date find nothing; so do places that nobody leaves.
    #[test]
    fn places_come_round() {
        let mut play = Play::pair(1 << 20);
        let old = play.post_one(1, 10);
        play.send_one(1, 9);
        play.settle();
        let mut in_line = 0;
        for round in 0..2 * PLACES {
            let key = play.post_one(1, 10);
            in_line += usize::from(key.index() & LINE != 0);
            play.send_one(1, round % 11);
            play.settle();
            assert_eq!(receive(&mut play, key), Some(round as u64 % 11));
            assert_eq!((receive(&mut play, key), play.machines[1].waits_for(key)), (None, None));
        }
        assert_eq!(receive(&mut play, old), Some(9));
        // All but those whose place was kept.
        assert_eq!(in_line, 2 * PLACES - 2);
    }

    /// A place that was left early is not taken again while an earlier receive waits.
    #[test]
    fn places_left_early_keep_the_order() {
        let mut play = Play::pair(1 << 20);
        let [first, early, third] = [1, 2, 1].map(|tag| play.post_one(tag, 10));
        for (tag, key) in [(2, early), (1, first)] {
            play.send_one(tag, 0);
            play.settle();
            assert_eq!(receive(&mut play, key), Some(0));
        }
        let later: Vec<Key> = (0..PLACES).map(|_| play.post_one(1, 10)).collect();
        play.send_one(1, 7);
        play.settle();
        assert_eq!((receive(&mut play, third), receive(&mut play, later[PLACES - 2])), (Some(7), None));
        for (number, key) in later.into_iter().enumerate() {
            play.send_one(1, number % 11);
            play.settle();
            assert_eq!(receive(&mut play, key), Some(number as u64 % 11));
        }
    }

    /// A message that comes for a receive far behind in the line, or that is not sent eagerly, finds it.
    #[test]
    fn messages_out_of_order_find_theirs() {
        let mut play = Play::pair(1 << 20);
        let keys: Vec<Key> = (0..40).map(|tag| play.post_one(tag, 10)).collect();
        for tag in [3, 39, 0] {
            play.send_one(tag, tag as usize % 10);
            play.settle();
            assert_eq!(receive(&mut play, keys[tag as usize]), Some(u64::from(tag) % 10));
        }
        let mut play = Play::pair(1 << 20);
        let late = play.post_one(50, 10);
        assert_ne!(late.index() & LINE, 0);
        let envelope = Envelope { context: 0, tag: 50, sequence: 0, kind: BYTES };
        play.machines[0].begin(1, envelope, Mode::Synchronous, vec![7; 5]);
        play.settle();
        assert_eq!(receive(&mut play, late), Some(5));
    }

    /// The end of one communicator leaves the quick ways of all others open.
    #[test]
    fn other_communicators_that_end_change_nothing() {
        let mut play = Play::pair(1 << 20);
        play.machines[1].close(7);
        let key = play.post_one(1, 10);
        assert_ne!(key.index() & LINE, 0);
        play.send_one(1, 9);
        play.settle();
        assert_eq!(receive(&mut play, key), Some(9));
        let selector = Selector { context: 0, source: 0, tag: 1 };
        assert!(play.machines[1].begin_direct(selector, BYTES, 10));
        play.machines[1].end_direct();
        play.machines[1].close(0);
        assert!(!play.machines[1].begin_direct(selector, BYTES, 10));
        let over = play.post_one(1, 10);
        assert_eq!(over.index() & LINE, 0);
        assert_eq!(play.machines[1].take_received(over).and_then(|taken| taken.failure), Some(Failure::Freed));
    }

    #[test]
    fn what_does_not_fit_fails() {
        let mut play = Play::pair(1 << 20);
        let (short, wrong) = (
            play.post_one(1, 3),
            play.machines[1].post(Selector { context: 0, source: 0, tag: 1 }, 4 << 20 | 4, 10),
        );
        play.send_one(1, 4);
        play.send_one(1, 4);
        play.settle();
        let failure = |play: &mut Play, key| play.machines[1].take_received(key).and_then(|taken| taken.failure);
        assert_eq!(failure(&mut play, short), Some(Failure::Truncated));
        assert_eq!(failure(&mut play, wrong), Some(Failure::WrongType(BYTES)));
    }
}
