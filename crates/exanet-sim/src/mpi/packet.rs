//! The control packets of the protocols, 64 bytes at most. A parser without a clock.

use crate::nic::PACKET;
use am_core::slab::Key;

/// What a control packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message in whole, or the first bytes of one.
    Eager,
    /// Further bytes of the eager message before it.
    More,
    /// A message is ready to be sent.
    Rts,
    /// Where the message belongs that was announced, or that nobody wants it.
    Cts,
    /// Where a message belongs whose receive is posted.
    Rtr,
    /// A receive that was posted is to be forgotten.
    Revoke,
    /// Whether it is.
    Revoked,
    /// The advertisement of a receive that has met an eager message is to be forgotten.
    Retire,
    /// It is.
    Retired,
    /// A message is being written; how long it is.
    Fin,
    /// A message has been read.
    Ack,
}

const KINDS: [Kind; 11] = [
    Kind::Eager,
    Kind::More,
    Kind::Rts,
    Kind::Cts,
    Kind::Rtr,
    Kind::Revoke,
    Kind::Revoked,
    Kind::Retire,
    Kind::Retired,
    Kind::Fin,
    Kind::Ack,
];

/// Where a message may be written, and the word that tells its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) at: u64,
    /// Bytes that there is room for.
    pub(crate) len: u64,
    /// Which word, and what tells its uses apart.
    pub(crate) note: u32,
    pub(crate) turn: u32,
}

/// What a control packet says. Fields that its kind has no use for are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) kind: Kind,
    /// Of a CTS: nobody wants the message. Of a REVOKED: the receive is forgotten.
    pub(crate) flag: bool,
    pub(crate) communicator: u16,
    pub(crate) tag: u32,
    /// Counts the messages of a sender to a receiver with that tag in that communicator.
    pub(crate) index: u32,
    pub(crate) send: Key,
    pub(crate) receive: Key,
    /// The place of a message; of an announcement its source's, of a FIN its length alone.
    pub(crate) place: Place,
}

/// Bytes before the payload of an eager message's first packet and its others, and of all other packets.
const FIRST: usize = 20;
const MORE: usize = 4;
const WHOLE: usize = 56;

impl Control {
    pub(crate) fn new(kind: Kind) -> Self {
        let none = Key::from_u64(0);
        let place = Place::default();
        Self { kind, flag: false, communicator: 0, tag: 0, index: 0, send: none, receive: none, place }
    }

    /// Writes a packet, with as much of an eager message's payload as fits; returns its length and what of the
    /// payload is left.
    pub(crate) fn encode<'p>(&self, turn: u16, payload: &'p [u8], out: &mut [u8; PACKET]) -> (usize, &'p [u8]) {
        *out = [0; PACKET];
        out[0] = self.kind as u8;
        out[1] = self.flag.into();
        out[2..4].copy_from_slice(&turn.to_le_bytes());
        let start = match self.kind {
            Kind::More => MORE,
            Kind::Eager => FIRST,
            _ => WHOLE,
        };
        if self.kind != Kind::More {
            out[4..6].copy_from_slice(&self.communicator.to_le_bytes());
            out[8..12].copy_from_slice(&self.tag.to_le_bytes());
            out[12..16].copy_from_slice(&self.index.to_le_bytes());
        }
        if self.kind == Kind::Eager {
            out[16..FIRST].copy_from_slice(&(self.place.len as u32).to_le_bytes());
        } else if self.kind != Kind::More {
            let Place { at, len, note, turn } = self.place;
            for (index, long) in [self.send.to_u64(), self.receive.to_u64(), at, len].into_iter().enumerate() {
                out[16 + 8 * index..24 + 8 * index].copy_from_slice(&long.to_le_bytes());
            }
            out[48..52].copy_from_slice(&note.to_le_bytes());
            out[52..WHOLE].copy_from_slice(&turn.to_le_bytes());
        }
        let carries = matches!(self.kind, Kind::Eager | Kind::More);
        let (now, left) = payload.split_at(if carries { payload.len().min(PACKET - start) } else { 0 });
        out[start..start + now.len()].copy_from_slice(now);
        (start + now.len(), left)
    }

    /// Reads a packet: its turn, what it says, and where its payload begins; none if it makes no sense.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(u16, Self, usize)> {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let kind = *KINDS.get(usize::from(*bytes.first()?))?;
        let mut control = Self { flag: *bytes.get(1)? != 0, ..Self::new(kind) };
        let turn = (word(0)? >> 16) as u16;
        if kind == Kind::More {
            return Some((turn, control, MORE));
        }
        (control.communicator, control.tag, control.index) = (word(4)? as u16, word(8)?, word(12)?);
        if kind == Kind::Eager {
            control.place.len = word(16)?.into();
            return Some((turn, control, FIRST));
        }
        (control.send, control.receive) = (Key::from_u64(long(16)?), Key::from_u64(long(24)?));
        control.place = Place { at: long(32)?, len: long(40)?, note: word(48)?, turn: word(52)? };
        Some((turn, control, WHOLE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packets_survive_the_way(
            kind in 2usize..11, flag: bool, turn: u16, communicator: u16, tag: u32, index: u32, send: u64,
            receive: u64, place: (u64, u64, u32, u32)
        ) {
            let (at, len, note, use_of) = place;
            let place = Place { at, len, note, turn: use_of };
            let (send, receive) = (Key::from_u64(send), Key::from_u64(receive));
            let control = Control { kind: KINDS[kind], flag, communicator, tag, index, send, receive, place };
            let mut out = [0; PACKET];
            let (end, left) = control.encode(turn, &[], &mut out);
            prop_assert_eq!((left.len(), Control::decode(&out[..end])), (0, Some((turn, control, end))));
            prop_assert_eq!(Control::decode(&out[..end - 1]), None);
        }

        #[test]
        fn eager_messages_survive_the_way(bytes in prop::collection::vec(any::<u8>(), 0..400), tag: u32) {
            let first = Control { tag, ..Control::new(Kind::Eager) };
            let first = Control { place: Place { len: bytes.len() as u64, ..Place::default() }, ..first };
            let (mut out, mut left, mut found, mut turn) = ([0; PACKET], &bytes[..], Vec::new(), 0);
            let mut control = first;
            while turn == 0 || !left.is_empty() {
                let (end, rest) = control.encode(turn, left, &mut out);
                let (number, read, start) = Control::decode(&out[..end]).unwrap();
                prop_assert_eq!((number, read), (turn, control));
                found.extend_from_slice(&out[start..end]);
                (left, turn, control) = (rest, turn + 1, Control::new(Kind::More));
            }
            prop_assert_eq!(found, bytes);
        }

        #[test]
        fn nonsense_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..=64)) {
            if let Some((_, _, start)) = Control::decode(&bytes) {
                prop_assert!(start <= bytes.len());
            }
        }
    }
}
