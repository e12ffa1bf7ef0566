//! Frames: what a message says of itself, and how it falls into control packets. Parsers and state machines
//! without a clock.
//!
//! A frame is a header of 20 bytes, the place of a payload that comes by a write, up to sixteen arguments of four
//! bytes, and a small payload. It is cut into packets of 60 bytes, each behind a turn of two bytes, by which the
//! receiver puts the packets of a source into order, and the number of packets that follow.

use crate::delivery::{OutOfPlace, Turns};
use am_core::Words;
use fabric_sim::conduit::Kind;

/// Bytes of a header, and of a place.
const HEADER: usize = 20;
const LONG_TARGET: usize = 16;
/// Bytes of a packet before its part of a frame, and that part.
const HEAD: usize = 4;
pub(super) const PART: usize = 60;
/// The longest frame before its payload.
pub(super) const LEAD: usize = HEADER + LONG_TARGET + 64;
/// No slot.
pub(super) const NO_SLOT: u8 = u8::MAX;

/// What a frame says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) handler: u8,
    pub(super) args: u8,
    /// Its slot at the receiver.
    pub(super) slot: u8,
    /// The sender's slot for the reply.
    pub(super) reply: u8,
    /// Bytes of the payload in the frame.
    pub(super) payload: u16,
    /// What the notification of its write tells; 0: there is none.
    pub(super) write: u32,
    /// Slots of the receiver's requests that are free again, and of the answers that it owed.
    pub(super) handled: u32,
    pub(super) freed: u32,
}

impl Header {
    /// Of credits and nothing else.
    pub(super) const fn credit(handled: u32, freed: u32) -> Self {
        let (slot, reply) = (NO_SLOT, NO_SLOT);
        Self { kind: Kind::Credit, handler: 0, args: 0, slot, reply, payload: 0, write: 0, handled, freed }
    }

    fn has_place(&self) -> bool {
        self.write != 0 || self.kind.is_long()
    }

    /// Bytes of the frame before its payload.
    pub(super) fn lead(&self) -> usize {
        HEADER + if self.has_place() { LONG_TARGET } else { 0 } + 4 * usize::from(self.args)
    }
}

/// Where a payload that comes by a write goes: its offset in the segment, for Long messages, and its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LongTarget {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Writes what stands before a frame's payload; returns its length.
pub(super) fn write_lead(out: &mut [u8; LEAD], header: &Header, place: LongTarget, args: &Words) -> usize {
    let Header { kind, handler, slot, reply, payload, write, handled, freed, .. } = *header;
    out[..6].copy_from_slice(&[kind.code(), handler, header.args, slot, reply, 0]);
    out[6..8].copy_from_slice(&payload.to_le_bytes());
    out[8..12].copy_from_slice(&write.to_le_bytes());
    out[12..16].copy_from_slice(&handled.to_le_bytes());
    out[16..20].copy_from_slice(&freed.to_le_bytes());
    let mut at = HEADER;
    if header.has_place() {
        out[at..at + 8].copy_from_slice(&place.offset.to_le_bytes());
        out[at + 8..at + 16].copy_from_slice(&place.len.to_le_bytes());
        at += LONG_TARGET;
    }
    for (word, bytes) in args.iter().zip(out[at..].chunks_exact_mut(4)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    at + 4 * args.len()
}

/// A frame that has come.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) header: Header,
    pub(super) place: LongTarget,
    pub(super) args: Words,
    /// All its bytes; the payload is the end of them.
    pub(super) bytes: Vec<u8>,
}

impl Frame {
    pub(super) fn payload(&self) -> &[u8] {
        &self.bytes[self.header.lead()..]
    }
}

/// What makes no sense: its sender is faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

fn word<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Malformed> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(Malformed)
}

/// Reads the bytes of a frame.
pub(super) fn parse(bytes: Vec<u8>) -> Result<Frame, Malformed> {
    let [kind, handler, args, slot, reply, _] = word::<6>(&bytes, 0)?;
    let header = Header {
        kind: Kind::from_code(kind).ok_or(Malformed)?,
        handler,
        args,
        slot,
        reply,
        payload: u16::from_le_bytes(word(&bytes, 6)?),
        write: u32::from_le_bytes(word(&bytes, 8)?),
        handled: u32::from_le_bytes(word(&bytes, 12)?),
        freed: u32::from_le_bytes(word(&bytes, 16)?),
    };
    if args > 16 || bytes.len() != header.lead() + usize::from(header.payload) {
        return Err(Malformed);
    }
    let mut place = LongTarget::default();
    if header.has_place() {
        place.offset = u64::from_le_bytes(word(&bytes, HEADER)?);
        place.len = u64::from_le_bytes(word(&bytes, HEADER + 8)?);
    }
    let mut words = [0; 16];
    let given = bytes[header.lead() - 4 * usize::from(args)..header.lead()].chunks_exact(4);
    for (word, bytes) in words.iter_mut().zip(given) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    let args = Words::from_slice(&words[..usize::from(args)]).map_err(|_| Malformed)?;
    Ok(Frame { header, place, args, bytes })
}

/// Number of packets of a frame.
pub(super) const fn packets(len: usize) -> usize {
    len.div_ceil(PART)
}

/// Cuts a frame, of which `lead` and `payload` are the two halves, into packets: the `index`th of them. Returns
/// its length.
pub(super) fn cut(out: &mut [u8; HEAD + PART], turn: u16, lead: &[u8], payload: &[u8], index: usize) -> usize {
    let len = lead.len() + payload.len();
    let (from, to) = (index * PART, len.min((index + 1) * PART));
    let head = &lead[from.min(lead.len())..to.min(lead.len())];
    let tail = &payload[from.max(lead.len()) - lead.len()..to.max(lead.len()) - lead.len()];
    out[..2].copy_from_slice(&turn.to_le_bytes());
    out[2..HEAD].copy_from_slice(&[(packets(len) - 1 - index) as u8, 0]);
    out[HEAD..HEAD + head.len()].copy_from_slice(head);
    out[HEAD + head.len()..HEAD + to - from].copy_from_slice(tail);
    HEAD + to - from
}

/// A packet that waits for its turn.
#[derive(Clone, Copy, Debug)]
struct Part {
    more: u8,
    len: u8,
    bytes: [u8; PART],
}

/// The packets of one source become frames again, in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct Line {
    turns: Turns<Part>,
    /// What has come of a frame, and how many packets of it are missing.
    bytes: Vec<u8>,
    missing: Option<u8>,
}

impl Line {
    /// Takes a packet. Its sender has no more than `most` under way.
    pub(super) fn put(&mut self, packet: &[u8], most: usize) -> Result<(), Malformed> {
        let [turn @ .., more, _] = word::<HEAD>(packet, 0)?;
        let rest = &packet[HEAD..];
        if rest.is_empty() || rest.len() > PART {
            return Err(Malformed);
        }
        let mut part = Part { more, len: rest.len() as u8, bytes: [0; PART] };
        part.bytes[..rest.len()].copy_from_slice(rest);
        self.turns.put(u16::from_le_bytes(turn), part, most).map_err(|OutOfPlace| Malformed)
    }

    /// The next frame that is complete, in a buffer that `buffer` makes.
    pub(super) fn next(&mut self, buffer: impl FnOnce() -> Vec<u8>) -> Option<Result<Frame, Malformed>> {
        while let Some(part) = self.turns.next() {
            if self.missing.is_some_and(|missing| missing.checked_sub(1) != Some(part.more)) {
                return Some(Err(Malformed));
            }
            self.bytes.extend_from_slice(&part.bytes[..usize::from(part.len)]);
            if part.more != 0 {
                self.missing = Some(part.more);
                continue;
            }
            self.missing = None;
            let mut whole = buffer();
            whole.clear();
            whole.extend_from_slice(&self.bytes);
            self.bytes.clear();
            return Some(parse(whole));
        }
        None
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.turns.clear();
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use am_core::Category;
    use proptest::prelude::*;

    const KINDS: [Kind; 5] = [
        Kind::Request(Category::Short),
        Kind::OneWay(Category::Medium),
        Kind::Reply(Category::Long),
        Kind::Control,
        Kind::Credit,
    ];

    fn words() -> impl Strategy<Value = Vec<u32>> {
        prop::collection::vec(any::<u32>(), 0..=16)
    }

    fn packets_of(
        turn: &mut u16,
        header: &Header,
        place: LongTarget,
        args: &Words,
        payload: &[u8],
    ) -> Vec<Vec<u8>> {
        let (mut lead, mut packet) = ([0; LEAD], [0; HEAD + PART]);
        let end = write_lead(&mut lead, header, place, args);
        let count = packets(end + payload.len());
        let mut packets = Vec::new();
        for index in 0..count {
            let len = cut(&mut packet, *turn, &lead[..end], payload, index);
            packets.push(packet[..len].to_vec());
            *turn = turn.wrapping_add(1);
        }
        packets
    }

    proptest! {
        /// Packets of several frames in any order: the frames come out as and in the order in which
        /// they were sent.
        #[test]
        fn frames_come_out_in_the_order_in_which_they_were_sent(
            frames in prop::collection::vec((0usize..5, words(), 0usize..700, any::<bool>()), 1..12),
            order in prop::collection::vec(0usize..7, 0..200), first: u16
        ) {
            let (mut line, mut turn) = (Line { turns: Turns::from(first), ..Line::default() }, first);
            let (mut sent, mut under_way) = (Vec::new(), Vec::new());
            for (kind, words, payload, written) in frames {
                let (args, payload) = (Words::from_slice(&words).unwrap(), vec![payload as u8; payload]);
                let write = u32::from(written) * 7;
                let header = Header {
                    kind: KINDS[kind], handler: 3, args: words.len() as u8, slot: 4, reply: 5,
                    payload: payload.len() as u16, write, handled: 0x8000_0001, freed: 6
                };
                let has_place = written || KINDS[kind].is_long();
                let place = if has_place { LongTarget { offset: 1 << 40, len: 9 } } else { LongTarget::default() };
                under_way.extend(packets_of(&mut turn, &header, place, &args, &payload));
                sent.push((header, place, args, payload));
            }
            let (mut found, mut order) = (Vec::new(), order.into_iter());
            while !under_way.is_empty() {
                let index = order.next().unwrap_or(0).min(under_way.len() - 1);
                line.put(&under_way.remove(index), 300).unwrap();
                while let Some(frame) = line.next(Vec::new) {
                    let frame = frame.unwrap();
                    let payload = frame.payload().to_vec();
                    found.push((frame.header, frame.place, frame.args, payload));
                }
            }
            prop_assert_eq!(found, sent);
            prop_assert!(line.turns.len() == 0 && line.bytes.is_empty());
        }

        /// Whatever a peer sends, nothing panics and what is kept stays within the window.
        #[test]
        fn nonsense_is_noticed_or_bounded(
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..=64), 0..300)
        ) {
            let mut line = Line::default();
            for mut packet in packets {
                if let Some(high) = packet.get_mut(1) {
                    *high = 0;
                }
                let _ = line.put(&packet, 40);
                while let Some(frame) = line.next(Vec::new) {
                    if let Ok(frame) = frame {
                        prop_assert_eq!(frame.payload().len(), usize::from(frame.header.payload));
                    }
                }
                prop_assert!(line.turns.len() <= 40 && line.bytes.len() <= 257 * PART);
            }
        }
    }

    #[test]
    fn packets_out_of_place_are_nonsense() {
        let mut turn = 0;
        let header = Header { payload: 100, ..Header::credit(1, 2) };
        let two = packets_of(&mut turn, &header, LongTarget::default(), &Words::EMPTY, &[1; 100]);
        let mut line = Line::default();
        assert_eq!(line.put(&two[1], 1), Err(Malformed), "beyond the window");
        assert_eq!(line.put(&two[0][..4], 8), Err(Malformed), "nothing in it");
        line.put(&two[1], 8).unwrap();
        assert_eq!(line.put(&two[1], 8), Err(Malformed), "the same turn twice");
        assert!(line.next(Vec::new).is_none());
        line.put(&two[0], 8).unwrap();
        assert_eq!(line.next(Vec::new).unwrap().unwrap().header, header);
        assert_eq!(line.put(&two[0], 8), Err(Malformed), "a turn that is over");
        assert_eq!(parse(vec![11; 40]).unwrap_err(), Malformed);
        assert_eq!(parse(vec![0; 19]).unwrap_err(), Malformed);
    }
}
