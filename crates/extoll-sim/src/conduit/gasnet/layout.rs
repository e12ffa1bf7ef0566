//! How a frame falls into VELO packets, and how many mailbox slots it takes: pure arithmetic.
//!
//! A frame is a stream of bytes: header, place of a Long payload, arguments, payload. The second implementation of
//! active messages cuts the stream every [`Layout::packet`] bytes, so that a packet with the last arguments is
//! topped up with the first payload. The first one begins a packet for the header, one or two for the arguments,
//! and others for the payload.

use super::header::{HEADER, LEAD, LONG_TARGET};

/// The type tag of a VELO packet (MTT) that begins a frame.
pub(super) const MTT_HEADER: u8 = 0;
/// ... that goes on with its arguments.
pub(super) const MTT_ARGUMENTS: u8 = 1;
/// ... that has payload only.
pub(super) const MTT_DATA: u8 = 2;
/// ... that begins a frame between cores or transports: control messages, credits.
pub(super) const MTT_CONTROL: u8 = 3;

/// Which of the two implementations of active messages is used. Both deliver the same; they differ in what it
/// costs.
///
/// | | first | second |
/// |---|---|---|
/// | packets | header, arguments and payload each begin a packet | cut where full: arguments are topped up with payload |
/// | payload of a Medium message | staged in a buffer, then cut | cut where it lies |
/// | reassembly | every packet is copied into a buffer of its source | a frame of one packet is handled in its slot |
/// | credits | a packet of their own for every request, as soon as it is handled | ride on replies and requests, else are summed up |
/// | read pointer | a register write for every packet | left to the interface's every eight slots |
/// | Long messages | a notification behind the puts carries the message's number | the last put's own notification is counted |
/// | notifications | looked for at every poll, and after every put | looked for while a Long header waits, or many puts are under way |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Implementation {
    /// The straightforward one.
    First,
    /// The better one.
    #[default]
    Second,
}

/// Bytes of data in a mailbox slot.
const SLOT: usize = 56;

/// Mailbox slots that a packet takes.
#[inline]
pub(super) const fn slots_of_packet(bytes: usize) -> u32 {
    if bytes <= SLOT {
        1
    } else if bytes <= 2 * SLOT {
        2
    } else {
        3
    }
}

/// How frames are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of a full packet.
    pub(super) packet: usize,
    pub(super) implementation: Implementation,
}

/// A piece of a frame: its type, and where it begins and ends in the stream of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) mtt: u8,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// The pieces of a frame, in order.
pub(super) struct Pieces {
    layout: Layout,
    lead: usize,
    total: usize,
    at: usize,
}

impl Iterator for Pieces {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        let Self { layout, lead, total, at: from } = *self;
        if from >= total {
            return None;
        }
        let full = from + layout.packet;
        let to = match layout.implementation {
            Implementation::Second => full.min(total),
            Implementation::First if from == 0 => HEADER,
            Implementation::First if from < lead => full.min(lead),
            Implementation::First => full.min(total),
        };
        self.at = to;
        let mtt = match from {
            0 => MTT_HEADER,
            _ if from < lead => MTT_ARGUMENTS,
            _ => MTT_DATA,
        };
        Some(Piece { mtt, from, to })
    }
}

impl Layout {
    /// The pieces of a frame with `lead` bytes before its payload.
    #[inline]
    pub(super) fn pieces(self, lead: usize, payload: usize) -> Pieces {
        Pieces { layout: self, lead, total: lead + payload, at: 0 }
    }

    /// Mailbox slots of a frame.
    #[inline]
    pub(super) fn slots(self, lead: usize, payload: usize) -> u32 {
        if lead + payload <= self.packet && self.implementation == Implementation::Second {
            return slots_of_packet(lead + payload);
        }
        let part = |bytes: usize| {
            let (full, rest) = (bytes / self.packet, bytes % self.packet);
            let rest = if rest == 0 { 0 } else { slots_of_packet(rest) };
            full as u32 * slots_of_packet(self.packet) + rest
        };
        match self.implementation {
            Implementation::Second => part(lead + payload),
            Implementation::First => part(HEADER) + part(lead - HEADER) + part(payload),
        }
    }

    /// Slots of the largest request without payload over VELO, with sixteen arguments.
    pub(super) fn slots_of_lead(self) -> u32 {
        self.slots(LEAD, 0)
    }

    /// Slots of a Medium frame with sixteen arguments.
    pub(super) fn slots_of_medium(self, payload: usize) -> u32 {
        self.slots(LEAD - LONG_TARGET, payload)
    }

    /// Slots that must be set aside for any reply with a payload of up to `bound` bytes, and for one packet of
    /// credits.
    pub(super) fn reserve(self, bound: usize) -> u32 {
        self.slots_of_medium(bound).max(self.slots_of_lead()) + 1
    }

    /// The largest Medium payload, with sixteen arguments, that fits some slots.
    #[inline]
    pub(super) fn payload_of(self, slots: u32) -> usize {
        let lead = match self.implementation {
            Implementation::Second => 0,
            Implementation::First => self.slots_of_medium(0),
        };
        let Some(left) = slots.checked_sub(lead) else { return 0 };
        // Whole packets, then one that fills what is left.
        let whole = slots_of_packet(self.packet);
        let bytes = (left / whole) as usize * self.packet + (left % whole) as usize * SLOT;
        match self.implementation {
            Implementation::Second => bytes.saturating_sub(LEAD - LONG_TARGET),
            Implementation::First => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::{HEADER, LEAD};
    use super::{Implementation, Layout, slots_of_packet};
    use proptest::prelude::*;

    const SLOT: Layout = Layout { packet: 56, implementation: Implementation::Second };
    const PACKET: Layout = Layout { packet: 64, implementation: Implementation::Second };

    fn packets(layout: Layout, lead: usize, payload: usize) -> usize {
        layout.pieces(lead, payload).count()
    }

    /// Bytes before the payload of a Medium message with some arguments.
    const fn lead(args: usize) -> usize {
        HEADER + 4 * args
    }

    #[test]
    fn packets_are_as_many_as_the_sheet_says() {
        assert_eq!(packets(SLOT, lead(16), 8192), 148);
        assert_eq!(packets(PACKET, lead(16), 8192), 130);
        assert_eq!(packets(SLOT, lead(0), 0), 1);
        assert_eq!(packets(SLOT, lead(12), 0), 1, "header and twelve arguments fill a slot");
        assert_eq!(packets(SLOT, lead(13), 0), 2);
        assert_eq!(packets(PACKET, lead(14), 0), 1);
        assert_eq!(packets(PACKET, lead(15), 0), 2);
        assert_eq!((SLOT.slots(lead(16), 8192), PACKET.slots(lead(16), 8192)), (148, 259));
    }

    #[test]
    fn only_the_second_implementation_pads_arguments() {
        let pieces = |implementation| {
            let layout = Layout { packet: 56, implementation };
            layout.pieces(lead(16), 100).map(|piece| (piece.mtt, piece.to - piece.from)).collect::<Vec<_>>()
        };
        assert_eq!(pieces(Implementation::Second), [(0, 56), (1, 56), (2, 56), (2, 4)]);
        assert_eq!(pieces(Implementation::First), [(0, 8), (1, 56), (1, 8), (2, 56), (2, 44)]);
    }

    proptest! {
        #[test]
        fn pieces_cover_the_frame_and_agree_with_the_counts(
            first: bool, packet in prop::sample::select(vec![56usize, 64, 112, 120]), lead in 8usize..=LEAD,
            payload in 0usize..=8192
        ) {
            let implementation = if first { Implementation::First } else { Implementation::Second };
            let layout = Layout { packet, implementation };
            let pieces: Vec<_> = layout.pieces(lead, payload).collect();
            prop_assert_eq!(pieces[0].from, 0);
            prop_assert_eq!(pieces.last().unwrap().to, lead + payload);
            prop_assert!(pieces.windows(2).all(|two| two[0].to == two[1].from && two[0].mtt <= two[1].mtt));
            prop_assert!(pieces.iter().all(|piece| piece.to > piece.from && piece.to - piece.from <= packet));
            let slots: u32 = pieces.iter().map(|piece| slots_of_packet(piece.to - piece.from)).sum();
            prop_assert_eq!(slots, layout.slots(lead, payload));
            let fits = layout.payload_of(layout.slots_of_medium(payload));
            prop_assert!(fits >= payload);
            prop_assert_eq!(layout.slots_of_medium(fits), layout.slots_of_medium(payload));
            prop_assert!(layout.slots_of_medium(fits + 1) > layout.slots_of_medium(payload));
        }
    }
}
