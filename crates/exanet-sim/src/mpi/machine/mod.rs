//! The protocols as a state machine with neither interface nor clock: it is told what a rank asks for and what
//! comes, and says what is to be done ([`Action`]).
//!
//! `sending` has messages on their way out, `receiving` receives and how they meet messages, `adverts` receives
//! that are advertised, retired and revoked, `ending` lost peers.
//!
//! # Why an advertisement meets the right message
//!
//! The messages of a sender to a receiver with a tag in a communicator are numbered. A receive with neither
//! wildcard is advertised only while no wildcard that was posted before it waits in its communicator. So messages
//! of its sender with its tag meet the receives with that tag in order, and the receive's message is the one whose
//! number is that of messages met so far and of such receives before it. Both sides know that number: the sender
//! writes that message and no other; an announcement of it that has crossed the advertisement is not answered,
//! even if it comes behind the message itself, since writes overtake packets; an eager message of that number uses
//! the advertisement up. A revocation takes a number out of the row, at both sides, unless its message has been
//! sent; until it is answered, nothing of that row is advertised, and a message that is noted there has to wait
//! for its number.

mod adverts;
mod ending;
#[cfg(test)]
mod model;
mod receiving;
mod sending;

pub(crate) use receiving::Selector;

use super::config::{MpiConfig, Protocol};
use super::packet::{Control, Kind, Place};
use super::{Counts, MpiError, Status};
use am_core::slab::{Key, Slab};
use receiving::{Receive, Unexpected, What};
use sending::Send;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The messages between two ranks with a tag in a communicator, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stream {
    pub(crate) peer: u32,
    pub(crate) communicator: u16,
    pub(crate) tag: u32,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A control packet, or an eager message in several.
    Packet { to: u32, control: Control, payload: Vec<u8> },
    /// A message is to be written to its place, and its word after it.
    Write { send: Key, to: u32, source: u64, place: Place, len: u64 },
    /// A message is to be read.
    Read { receive: Key, from: u32, source: u64, at: u64, len: u64 },
    /// The bytes of an eager message are to be put where its receive wants them.
    Fill { at: u64, bytes: Vec<u8> },
}

/// What the protocols of a rank keep.
#[derive(Debug)]
pub(crate) struct Machine {
    config: MpiConfig,
    sends: Slab<Send>,
    receives: Slab<Receive>,
    /// Receives that have met no message, in the order in which they were posted.
    posted: Vec<Key>,
    /// Messages that have met no receive, in the order in which they came.
    unexpected: Vec<Unexpected>,
    /// The number of the next message to be sent, and which have met a receive.
    sent: BTreeMap<Stream, u32>,
    met: BTreeMap<Stream, Met>,
    /// Advertisements of peers for messages of this rank, and messages that are announced.
    adverts: BTreeMap<(Stream, u32), (Key, Place)>,
    announced: BTreeMap<(Stream, u32), Key>,
    /// Rows of which a receive is being revoked.
    held: BTreeSet<Stream>,
    /// Words for notifications that are free, and the use that each was put to last.
    notes: Vec<u32>,
    uses: Vec<u32>,
    /// Receives that a notification may come for.
    awaited: Vec<Key>,
    lost: BTreeSet<u32>,
    actions: VecDeque<Action>,
    pub(crate) counts: Counts,
}

/// Which messages of a row have met a receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Met {
    /// All before this number, and some behind it.
    all_before: u32,
    others: BTreeSet<u32>,
}

impl Met {
    fn count(&self) -> u32 {
        self.all_before.wrapping_add(self.others.len() as u32)
    }

    fn has(&self, index: u32) -> bool {
        (index.wrapping_sub(self.all_before) as i32) < 0 || self.others.contains(&index)
    }

    fn add(&mut self, index: u32) {
        self.others.insert(index);
        while self.others.remove(&self.all_before) {
            self.all_before = self.all_before.wrapping_add(1);
        }
    }
}

/// Bits of a notification that tell the length of its message.
const LENGTH: u32 = 40;

/// The value of the word that tells the end of a message.
pub(crate) fn note_value(place: &Place, len: u64) -> u64 {
    u64::from(place.turn) << LENGTH | len
}

impl Machine {
    pub(crate) fn new(config: MpiConfig) -> Self {
        Self {
            config,
            sends: Slab::new(),
            receives: Slab::new(),
            posted: Vec::new(),
            unexpected: Vec::new(),
            sent: BTreeMap::new(),
            met: BTreeMap::new(),
            adverts: BTreeMap::new(),
            announced: BTreeMap::new(),
            held: BTreeSet::new(),
            notes: Vec::new(),
            uses: Vec::new(),
            awaited: Vec::new(),
            lost: BTreeSet::new(),
            actions: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// What is to be done next.
    pub(crate) fn action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn elides(&self) -> bool {
        self.config.protocol == Protocol::Elided
    }

    /// How many messages of a row have met a receive.
    fn met(&self, stream: &Stream) -> u32 {
        self.met.get(stream).map_or(0, Met::count)
    }

    /// A control packet about a row.
    fn about(stream: &Stream, index: u32, kind: Kind) -> Control {
        let Stream { communicator, tag, .. } = *stream;
        Control { communicator, tag, index, ..Control::new(kind) }
    }

    fn packet(&mut self, to: u32, control: Control, payload: Vec<u8>) {
        self.counts.count(control.kind);
        self.actions.push_back(Action::Packet { to, control, payload });
    }

    /// Takes a control packet of a peer, with the payload of an eager message.
    ///
    /// # Errors
    /// The peer breaks the protocol.
    pub(crate) fn take(&mut self, from: u32, control: &Control, payload: Vec<u8>) -> Result<(), Faulty> {
        let Control { kind, flag, communicator, tag, index, send, receive, place } = *control;
        let stream = Stream { peer: from, communicator, tag };
        match kind {
            Kind::Eager => self.came(stream, index, What::Eager(payload))?,
            Kind::More => return Err(Faulty),
            Kind::Rts => self.announced(stream, index, send, place)?,
            Kind::Cts => self.cleared(from, send, receive, place, flag)?,
            Kind::Rtr => self.advertised(stream, index, receive, place),
            Kind::Revoke => self.revoke(stream, index, receive),
            Kind::Revoked => self.revoked(stream, receive, flag)?,
            Kind::Retire => self.retire(stream, index, receive),
            Kind::Retired => self.retired(from, receive),
            Kind::Fin => self.said_to_end(from, receive, place.len)?,
            Kind::Ack => self.was_read(from, send),
        }
        Ok(())
    }

    /// The result of a message that has been sent, which is forgotten.
    pub(crate) fn sent(&mut self, send: Key) -> Option<Result<(), MpiError>> {
        let done = self.sends.get(send)?.done?;
        self.sends.remove(send);
        Some(done)
    }

    /// The result of a receive that has ended, which is forgotten.
    pub(crate) fn received(&mut self, receive: Key) -> Option<Result<Status, MpiError>> {
        let done = self.receives.get(receive)?.done()?;
        self.receives.remove(receive);
        Some(done)
    }

    /// Whether nothing is under way.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.sends.iter().all(|(_, send)| send.done.is_some())
            && self.receives.iter().all(|(_, receive)| receive.done().is_some())
    }
}

/// What a peer sent makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Faulty;
