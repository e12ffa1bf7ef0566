//! Reassembly: the packets of one source become frames again. A state machine per source, with no clock.
//!
//! VELO keeps the packets of a pair in order and a sender finishes a frame before it begins the next, so one frame
//! per source is in the making at most.

use super::header::{HEADER, Header};
use super::layout::{MTT_ARGUMENTS, MTT_CONTROL, MTT_DATA, MTT_HEADER};
use fabric_sim::conduit::SpareBuffers;

/// A frame that is not complete.
#[derive(Debug)]
pub(super) struct Partial {
    header: Header,
    bytes: Vec<u8>,
    total: usize,
    slots: u32,
}

/// What a packet makes of its source's stream.
#[derive(Debug)]
pub(super) enum Step {
    /// The packet is a whole frame, whose bytes are its own.
    Whole(Header),
    /// More is missing.
    More,
    /// The packet completes this frame, which took that many slots.
    Complete(Header, Vec<u8>, u32),
}

/// A packet that makes no sense after those before it: its sender is faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Buffers for frames of several packets, and the state of frames in the making, kept for the next.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub(super) spare: SpareBuffers,
    // In boxes, since a source holds but a pointer, and moving them there and back must not allocate.
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is kept")]
    partials: Vec<Box<Partial>>,
}

/// Whether a type of packet may begin a frame with this header.
fn begins(mtt: u8, header: &Header) -> bool {
    use super::header::Kind;
    let between = matches!(header.kind, Kind::Control | Kind::Credit);
    mtt == if between { MTT_CONTROL } else { MTT_HEADER }
}

/// Takes the next packet of a source.
#[inline]
pub(super) fn step(
    partial: &mut Option<Box<Partial>>,
    buffers: &mut Buffers,
    mtt: u8,
    packet: &[u8],
    slots: u32,
) -> Result<Step, Malformed> {
    if let Some(frame) = partial {
        let fits = frame.bytes.len() + packet.len() <= frame.total && !packet.is_empty();
        if !fits || !matches!(mtt, MTT_ARGUMENTS | MTT_DATA) {
            return Err(Malformed);
        }
        frame.bytes.extend_from_slice(packet);
        frame.slots += slots;
        if frame.bytes.len() < frame.total {
            return Ok(Step::More);
        }
        let mut frame = partial.take().expect("a frame is being assembled");
        let complete = Step::Complete(frame.header, std::mem::take(&mut frame.bytes), frame.slots);
        buffers.partials.push(frame);
        return Ok(complete);
    }
    let word = packet.first_chunk::<HEADER>().ok_or(Malformed)?;
    let header = Header::decode(u64::from_le_bytes(*word)).ok_or(Malformed)?;
    let total = header.lead() + header.payload();
    if !begins(mtt, &header) || packet.len() > total {
        return Err(Malformed);
    }
    if packet.len() == total {
        return Ok(Step::Whole(header));
    }
    let mut bytes = buffers.spare.take(0);
    bytes.reserve(total);
    bytes.extend_from_slice(packet);
    let fresh = Partial { header, bytes, total, slots };
    *partial = Some(match buffers.partials.pop() {
        Some(mut book) => {
            *book = fresh;
            book
        }
        None => Box::new(fresh),
    });
    Ok(Step::More)
}

#[cfg(test)]
mod tests {
    use super::super::header::{Kind, LEAD, LongTarget, read_lead, write_lead};
    use super::super::layout::{Implementation, Layout, slots_of_packet};
    use super::*;
    use am_core::{Category, Words};
    use proptest::prelude::*;

    fn header(kind: Kind, args: u8, length: u16) -> Header {
        Header { kind, args, handler: 7, length, reserve: 3, handled: 2, freed: 1 }
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(
            first: bool, packet in 16usize..=120,
            frames in
                prop::collection::vec((0usize..4, prop::collection::vec(any::<u32>(), 0..=16), 0usize..3000), 1..6)
        ) {
            let implementation = if first { Implementation::First } else { Implementation::Second };
            let layout = Layout { packet, implementation };
            let (mut partial, mut buffers) = (None, Buffers::default());
            for (kind, words, len) in frames {
                let kind = [
                    Kind::Request(Category::Short), Kind::Reply(Category::Medium), Kind::OneWay(Category::Long),
                    Kind::Control,
                ][kind];
                let length = if matches!(kind, Kind::Reply(_) | Kind::Control) { len } else { 0 };
                let header = header(kind, words.len() as u8, length as u16);
                let args = Words::from_slice(&words).unwrap();
                let mut lead = [0; LEAD];
                let end = write_lead(&mut lead, header, LongTarget { offset: 5, len: 6 }, &args);
                let payload: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
                let stream = [&lead[..end], &payload].concat();
                let mut out = None;
                for piece in layout.pieces(end, length) {
                    prop_assert!(out.is_none());
                    let bytes = &stream[piece.from..piece.to];
                    let mtt = if piece.mtt == 0 && kind == Kind::Control { MTT_CONTROL } else { piece.mtt };
                    match step(&mut partial, &mut buffers, mtt, bytes, slots_of_packet(bytes.len())).unwrap() {
                        Step::Whole(header) => out = Some((header, bytes.to_vec(), slots_of_packet(bytes.len()))),
                        Step::More => {}
                        Step::Complete(header, bytes, slots) => out = Some((header, bytes, slots)),
                    }
                }
                let (found, bytes, slots) = out.unwrap();
                prop_assert_eq!(found, header);
                prop_assert_eq!(slots, layout.slots(end, length));
                prop_assert_eq!(read_lead(&found, &bytes).1, args);
                prop_assert_eq!(&bytes[end..], &payload[..]);
                buffers.spare.give(bytes);
            }
        }

        /// Whatever a peer sends, nothing panics and no more is kept than a largest frame.
        #[test]
        fn nonsense_is_noticed_or_bounded(
            packets in prop::collection::vec((0u8..4, prop::collection::vec(any::<u8>(), 0..=120)), 0..200)
        ) {
            let (mut partial, mut buffers) = (None::<Box<Partial>>, Buffers::default());
            for (mtt, packet) in packets {
                if let Ok(Step::Complete(header, bytes, _)) = step(&mut partial, &mut buffers, mtt, &packet, 1) {
                    prop_assert_eq!(bytes.len(), header.lead() + header.payload());
                    buffers.spare.give(bytes);
                }
                let room = partial.as_ref().map_or(0, |partial| partial.bytes.capacity());
                prop_assert!(room <= 2 * (LEAD + (1 << 14)));
            }
        }
    }

    #[test]
    fn packets_out_of_place_are_nonsense() {
        let mut lead = [0; LEAD];
        let long = header(Kind::Request(Category::Medium), 0, 100);
        write_lead(&mut lead, long, LongTarget::default(), &Words::EMPTY);
        let begin = &lead[..8];
        let (mut partial, mut buffers) = (None, Buffers::default());
        assert_eq!(step(&mut partial, &mut buffers, MTT_DATA, begin, 1).unwrap_err(), Malformed);
        assert_eq!(step(&mut partial, &mut buffers, MTT_CONTROL, begin, 1).unwrap_err(), Malformed);
        assert!(matches!(step(&mut partial, &mut buffers, MTT_HEADER, begin, 1), Ok(Step::More)));
        assert_eq!(step(&mut partial, &mut buffers, MTT_HEADER, begin, 1).unwrap_err(), Malformed);
        assert_eq!(step(&mut partial, &mut buffers, MTT_DATA, &[0; 101], 2).unwrap_err(), Malformed);
        assert!(matches!(step(&mut partial, &mut buffers, MTT_DATA, &[0; 100], 2), Ok(Step::Complete(_, _, 3))));
    }
}
