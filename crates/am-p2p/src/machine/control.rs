//! The messages of the protocols and how they travel as argument words.

use am_core::Words;
use am_core::slab::Key;
use am_core::transport::Lent;

/// What numbers a message among those of its sender in its communicator, and what it is matched by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) context: u32,
    pub(crate) tag: u32,
    /// Counts the messages of a sender to a receiver in a communicator, from 0.
    pub(crate) sequence: u32,
    /// The type of the elements, and flags.
    pub(crate) kind: u32,
}

/// In [`Envelope::kind`]: the sender is about to run out of credits.
pub(crate) const SHORT: u32 = 1 << 31;

/// The type in [`Envelope::kind`].
pub(crate) const KIND: u32 = SHORT - 1;

/// Messages, and units of 64 bytes for them, that a receiver has taken out of its memory for unexpected ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credit {
    pub(crate) messages: u32,
    pub(crate) units: u32,
}

impl Credit {
    /// Counts a message more.
    #[inline(always)]
    pub(crate) fn add(&mut self, units: u32) {
        self.messages = self.messages.wrapping_add(1);
        self.units = self.units.wrapping_add(units);
    }

    /// What this is ahead of another count of the same kind.
    #[inline(always)]
    pub(crate) fn since(self, other: Self) -> Self {
        let messages = self.messages.wrapping_sub(other.messages);
        Self { messages, units: self.units.wrapping_sub(other.units) }
    }
}

/// Memory of a sender that its receiver may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Of its process.
    Process(Lent),
    /// Of its segment: addresses are offsets there. The proof is nowhere where the memory stays as it is until the
    /// message has been read.
    Segment(Lent),
}

impl Source {
    /// Of a segment, without a proof.
    pub(crate) const fn owned(offset: u64) -> Self {
        Self::Segment(Lent::new(offset, NOWHERE, 0))
    }

    pub(crate) const fn is_segment(&self) -> bool {
        matches!(self, Self::Segment(_))
    }
}

/// A message that its sender has ready: what it is called there, and where it lies if its receiver may read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) send: Key,
    pub(crate) lent: Option<Source>,
}

/// A Short message of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// A message is ready to be sent.
    Rts { envelope: Envelope, offer: Offer, len: u64 },
    /// A message may be written to `offset` of the receiver's segment, or sent in pieces where there is none.
    /// `stays`: the receive's own memory is there, so that nothing is copied out while more comes.
    /// `copies`: the receiver sees the sender's segment as memory, and takes it that the sender copies by itself.
    Cts { send: Key, receive: Key, offset: Option<u64>, stays: bool, copies: bool },
    /// A message is not going to be received.
    Refuse { send: Key, freed: bool },
    /// A receive is posted: the message with this tag that `place` others with the tag come before, counted from
    /// `seen` on, may be written.
    Rtr {
        context: u32,
        tag: u32,
        seen: u32,
        place: u32,
        receive: Key,
        capacity: u64,
        offset: u64,
        stays: bool,
        copies: bool,
    },
    /// The receive at a place, counted as in `Rtr`, is to be cancelled.
    Revoke { context: u32, tag: u32, seen: u32, place: u32, receive: Key },
    /// Whether the receive is cancelled: if not, a message for it is under way.
    Revoked { context: u32, receive: Key, done: bool },
    /// An eager message has met a receive that was advertised.
    Retire { receive: Key },
    /// No message is going to be written for that receive.
    Retired { receive: Key },
    /// All of a message has been written for an advertised receive; this is its envelope.
    Written { envelope: Envelope, receive: Key, len: u64 },
    /// All of a message has been written.
    Fin { receive: Key },
    /// All of a message has been read.
    Ack { send: Key },
    /// Nothing but the credit that every message carries.
    Credit,
}

/// No offset.
pub(crate) const NOWHERE: u64 = u64::MAX;

struct Writer {
    words: [u32; 16],
    len: usize,
}

impl Writer {
    fn word(&mut self, word: u32) {
        self.words[self.len] = word;
        self.len += 1;
    }

    fn long(&mut self, long: u64) {
        self.word(long as u32);
        self.word((long >> 32) as u32);
    }

    fn envelope(&mut self, envelope: &Envelope) {
        [envelope.context, envelope.tag, envelope.sequence, envelope.kind]
            .into_iter()
            .for_each(|word| self.word(word));
    }
}

struct Reader<'a> {
    words: &'a Words,
    at: usize,
}

impl Reader<'_> {
    fn word(&mut self) -> Option<u32> {
        self.at += 1;
        self.words.word(self.at - 1)
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from(self.word()?) | u64::from(self.word()?) << 32)
    }

    fn key(&mut self) -> Option<Key> {
        self.long().map(Key::from_u64)
    }

    fn envelope(&mut self) -> Option<Envelope> {
        Some(Envelope { context: self.word()?, tag: self.word()?, sequence: self.word()?, kind: self.word()? })
    }
}

impl Control {
    /// As words, with the credit that goes along.
    pub(crate) fn encode(&self, credit: Credit) -> Words {
        let mut to = Writer { words: [0; 16], len: 1 };
        to.word(credit.messages);
        to.word(credit.units);
        to.words[0] = match self {
            Self::Rts { envelope, offer: Offer { send, lent }, len } => {
                to.envelope(envelope);
                to.long(send.to_u64());
                to.long(*len);
                match lent {
                    None => 0,
                    Some(source @ (Source::Process(lent) | Source::Segment(lent))) => {
                        to.long(lent.address);
                        to.long(lent.proof_at);
                        to.word(lent.ticket);
                        if source.is_segment() { 13 } else { 12 }
                    }
                }
            }
            Self::Cts { send, receive, offset, stays, copies } => {
                [send.to_u64(), receive.to_u64(), offset.unwrap_or(NOWHERE)]
                    .into_iter()
                    .for_each(|long| to.long(long));
                to.word(u32::from(*stays) | u32::from(*copies) << 1);
                1
            }
            Self::Refuse { send, freed } => {
                to.long(send.to_u64());
                to.word(u32::from(*freed));
                2
            }
            Self::Rtr { context, tag, seen, place, receive, capacity, offset, stays, copies } => {
                [*context, *tag, *seen, *place].into_iter().for_each(|word| to.word(word));
                [receive.to_u64(), *capacity, *offset].into_iter().for_each(|long| to.long(long));
                to.word(u32::from(*stays) | u32::from(*copies) << 1);
                3
            }
            Self::Revoke { context, tag, seen, place, receive } => {
                [*context, *tag, *seen, *place].into_iter().for_each(|word| to.word(word));
                to.long(receive.to_u64());
                4
            }
            Self::Revoked { context, receive, done } => {
                to.word(*context);
                to.long(receive.to_u64());
                to.word(u32::from(*done));
                5
            }
            Self::Retire { receive } => {
                to.long(receive.to_u64());
                6
            }
            Self::Retired { receive } => {
                to.long(receive.to_u64());
                7
            }
            Self::Written { envelope, receive, len } => {
                to.envelope(envelope);
                to.long(receive.to_u64());
                to.long(*len);
                8
            }
            Self::Fin { receive } => {
                to.long(receive.to_u64());
                9
            }
            Self::Ack { send } => {
                to.long(send.to_u64());
                10
            }
            Self::Credit => 11,
        };
        Words::from_slice(&to.words[..to.len]).expect("a control message has at most sixteen words")
    }

    /// The message that words stand for, or `None` if they stand for none.
    pub(crate) fn decode(words: &Words) -> Option<(Self, Credit)> {
        let mut from = Reader { words, at: 0 };
        let code = from.word()?;
        let credit = Credit { messages: from.word()?, units: from.word()? };
        let control = match code {
            0 | 12 | 13 => {
                let (envelope, send, len) = (from.envelope()?, from.key()?, from.long()?);
                let mut lent = || Some(Lent::new(from.long()?, from.long()?, from.word()?));
                let lent = match code {
                    0 => None,
                    12 => Some(Source::Process(lent()?)),
                    _ => Some(Source::Segment(lent()?)),
                };
                Self::Rts { envelope, offer: Offer { send, lent }, len }
            }
            1 => {
                let (send, receive, offset) = (from.key()?, from.key()?, from.long()?);
                let (offset, how) = ((offset != NOWHERE).then_some(offset), from.word()?);
                Self::Cts { send, receive, offset, stays: how & 1 != 0, copies: how & 2 != 0 }
            }
            2 => Self::Refuse { send: from.key()?, freed: from.word()? != 0 },
            3 => {
                let (context, tag, seen, place) = (from.word()?, from.word()?, from.word()?, from.word()?);
                let (receive, capacity, offset) = (from.key()?, from.long()?, from.long()?);
                let how = from.word()?;
                let (stays, copies) = (how & 1 != 0, how & 2 != 0);
                Self::Rtr { context, tag, seen, place, receive, capacity, offset, stays, copies }
            }
            4 => Self::Revoke {
                context: from.word()?,
                tag: from.word()?,
                seen: from.word()?,
                place: from.word()?,
                receive: from.key()?,
            },
            5 => Self::Revoked { context: from.word()?, receive: from.key()?, done: from.word()? != 0 },
            6 => Self::Retire { receive: from.key()? },
            7 => Self::Retired { receive: from.key()? },
            8 => Self::Written { envelope: from.envelope()?, receive: from.key()?, len: from.long()? },
            9 => Self::Fin { receive: from.key()? },
            10 => Self::Ack { send: from.key()? },
            11 => Self::Credit,
            _ => return None,
        };
        Some((control, credit))
    }
}

/// A part of a long message: where it belongs, and the envelope where the message needs no other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) receive: Key,
    pub(crate) at: u64,
    pub(crate) envelope: Option<(Envelope, u64)>,
    /// Bytes that the sender has copied to their place by itself, in the segment of a receiver that it sees as
    /// memory. The message has none then.
    pub(crate) copied: u32,
}

impl Part {
    /// The most bytes that a sender copies by itself between two such messages. Tests have few bytes in several
    /// parts.
    pub(crate) const MOST_COPIED: u64 = if cfg!(test) { 300 } else { 1 << 20 };

    pub(crate) fn encode(&self) -> [u32; 11] {
        let (receive, (envelope, len)) = (self.receive.to_u64(), self.envelope.unwrap_or_default());
        let reported = u32::from(self.envelope.is_some()) | self.copied << 1;
        let Envelope { context, tag, sequence, kind } = envelope;
        let halves = |long: u64| [long as u32, (long >> 32) as u32];
        let ([a, b], [c, d], [e, f]) = (halves(receive), halves(self.at), halves(len));
        [a, b, c, d, reported, context, tag, sequence, kind, e, f]
    }

    pub(crate) fn decode([a, b, c, d, reported, context, tag, sequence, kind, e, f]: [u32; 11]) -> Self {
        let long = |low, high| u64::from(low) | u64::from(high) << 32;
        let envelope = Envelope { context, tag, sequence, kind };
        Self {
            receive: Key::from_u64(long(a, b)),
            at: long(c, d),
            envelope: (reported & 1 != 0).then_some((envelope, long(e, f))),
            copied: reported >> 1,
        }
    }
}

/// Asks for a part of a message that its sender keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) send: Key,
    pub(crate) receive: Key,
    pub(crate) at: u64,
    pub(crate) len: u32,
    /// Where in the reader's segment it belongs, or `None` if it comes as a Medium message.
    pub(crate) offset: Option<u64>,
}

impl Read {
    pub(crate) fn encode(&self) -> [u32; 9] {
        let offset = self.offset.unwrap_or(NOWHERE);
        let [send, receive] = [self.send.to_u64(), self.receive.to_u64()];
        let halves = |long: u64| [long as u32, (long >> 32) as u32];
        let ([a, b], [c, d], [e, f], [g, h]) = (halves(send), halves(receive), halves(self.at), halves(offset));
        [a, b, c, d, e, f, g, h, self.len]
    }

    pub(crate) fn decode([a, b, c, d, e, f, g, h, len]: [u32; 9]) -> Self {
        let long = |low, high| u64::from(low) | u64::from(high) << 32;
        let offset = long(g, h);
        Self {
            send: Key::from_u64(long(a, b)),
            receive: Key::from_u64(long(c, d)),
            at: long(e, f),
            len,
            offset: (offset != NOWHERE).then_some(offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_way() {
        let envelope = Envelope { context: 1, tag: u32::MAX, sequence: 3, kind: SHORT | 4 };
        let (send, receive) = (Key::from_u64(u64::MAX - 5), Key::from_u64(7 << 32 | 9));
        let credit = Credit { messages: u32::MAX, units: 6 };
        let lent = Some(Source::Process(Lent::new(u64::MAX - 7, 1 << 47 | 8, 3)));
        let placed = Some(Source::owned(1 << 41));
        for control in [
            Control::Rts { envelope, offer: Offer { send, lent: None }, len: 1 << 40 },
            Control::Rts { envelope, offer: Offer { send, lent }, len: 1 << 40 },
            Control::Rts { envelope, offer: Offer { send, lent: placed }, len: 1 << 40 },
            Control::Cts { send, receive, offset: None, stays: false, copies: true },
            Control::Cts { send, receive, offset: Some(0), stays: true, copies: false },
            Control::Refuse { send, freed: true },
            Control::Rtr {
                context: 1,
                tag: 2,
                seen: 3,
                place: 4,
                receive,
                capacity: 5,
                offset: 6,
                stays: true,
                copies: true,
            },
            Control::Revoke { context: 1, tag: 2, seen: 3, place: 4, receive },
            Control::Revoked { context: 5, receive, done: true },
            Control::Retire { receive },
            Control::Retired { receive },
            Control::Written { envelope, receive, len: u64::MAX },
            Control::Fin { receive },
            Control::Ack { send },
            Control::Credit,
        ] {
            assert_eq!(Control::decode(&control.encode(credit)), Some((control, credit)));
        }
        for (lent, len) in [(None, 11), (lent, 16), (placed, 16)] {
            let words = Control::Rts { envelope, offer: Offer { send, lent }, len: 1 }.encode(credit);
            assert_eq!(words.len(), len);
            for cut in 0..len {
                let words: Vec<u32> = words.iter().take(cut).collect();
                assert_eq!(Control::decode(&Words::from_slice(&words).unwrap()), None);
            }
        }
        assert_eq!(Control::decode(&Words::from_slice(&[14, 0, 0]).unwrap()), None);
        for (envelope, copied) in
            [(None, 0), (Some((envelope, 1 << 33)), 0), (None, 1 << 20), (Some((envelope, 9)), 9)]
        {
            let part = Part { receive, at: 1 << 35, envelope, copied };
            assert_eq!(Part::decode(part.encode()), part);
        }
        for offset in [None, Some(1 << 34)] {
            let read = Read { send, receive, at: 1 << 36, len: 8, offset };
            assert_eq!(Read::decode(read.encode()), read);
        }
    }
}
