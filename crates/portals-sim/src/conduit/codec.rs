//! What travels in the match bits and in the header data of a put: all of a message's metadata but its place, if
//! it is Long.
//!
//! ```text
//! match bits   63..32 offset in the requester's ReqSB | 31..24 arguments | 23..16 handler | 15..8 flags |
//! 7..0 target header data  63..32 source rank                     | 31..8 length                          |
//! 7..0 credit byte credit byte  7 end of epoch | 6..4 extra credits asked or granted | 3..0 credits spent or
//! returned
//! ```
//!
//! Bits 6..4 are the amount itself, as published, or one more than its binary logarithm: see [`Extra`].
//!
//! The target is what match entries compare; they ignore the other bits. The offset names the message at its
//! requester: the reply goes there, and it joins the two parts of a Long message.

use super::config::Extra;
use crate::credit::{CreditReturn, CreditUse};
use am_core::Category;

/// What the lowest eight match bits select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Target {
    /// The segment, for puts and gets.
    Rar = 0,
    /// The segment, for the payload of Long requests: its arrival shows in the AM event queue.
    RarAm = 1,
    /// The segment, for the payload of Long replies: its arrival shows in the SAFE event queue.
    RarSrc = 2,
    /// The request receive buffers.
    ReqRb = 3,
    /// The requester's send buffer, where replies go.
    ReqSb = 4,
}

/// The bits that match entries ignore: all but the target.
pub(super) const IGNORED: u64 = !0xff;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A request whose handler may reply.
    Request = 0,
    /// A request whose handler cannot reply.
    OneWay = 1,
    /// A message between cores.
    Control = 2,
    /// The receiver's conduit wants credits back: at most as many as the handler's number says.
    Revoke = 3,
    /// A handler's reply.
    Reply = 4,
    /// The automatic reply to what had none.
    Credit = 5,
    /// Credits ahead of a reply that is answered later; the send-buffer chunk stays taken.
    Ahead = 6,
    /// The automatic reply to a revocation: as many credits as the handler's number says are given up.
    Surrender = 7,
    /// The request came out of turn and was dropped: send it again (Portals 4).
    Again = 8,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Request,
        Self::OneWay,
        Self::Control,
        Self::Revoke,
        Self::Reply,
        Self::Credit,
        Self::Ahead,
        Self::Surrender,
        Self::Again,
    ];

    /// Whether it goes to the request receive buffers.
    pub(super) const fn is_request(self) -> bool {
        (self as u8) < Self::Reply as u8
    }
}

/// How the payload travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Form {
    Short = 0,
    Medium = 1,
    /// A Long message whose payload is in the frame.
    Packed = 2,
    /// A Long message whose payload was put into the segment by itself.
    Unpacked = 3,
}

impl Form {
    const ALL: [Self; 4] = [Self::Short, Self::Medium, Self::Packed, Self::Unpacked];

    pub(super) const fn category(self) -> Category {
        match self {
            Self::Short => Category::Short,
            Self::Medium => Category::Medium,
            Self::Packed | Self::Unpacked => Category::Long,
        }
    }

    pub(super) const fn is_long(self) -> bool {
        matches!(self, Self::Packed | Self::Unpacked)
    }
}

/// Match bits, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    pub(super) target: Target,
    /// Offset of the request's chunk in its requester's send buffer.
    pub(super) chunk: u32,
    pub(super) args: u8,
    pub(super) handler: u8,
    pub(super) kind: Kind,
    pub(super) form: Form,
}

impl Bits {
    pub(super) const fn encode(self) -> u64 {
        let flags = self.kind as u8 | (self.form as u8) << 4;
        (self.chunk as u64) << 32
            | (self.args as u64) << 24
            | (self.handler as u64) << 16
            | (flags as u64) << 8
            | self.target as u64
    }

    /// `None` for bits that no conduit sends.
    pub(super) fn decode(bits: u64) -> Option<Self> {
        let [target, flags, handler, args, ..] = bits.to_le_bytes();
        let target = match target {
            0 => Target::Rar,
            1 => Target::RarAm,
            2 => Target::RarSrc,
            3 => Target::ReqRb,
            4 => Target::ReqSb,
            _ => return None,
        };
        let kind = *Kind::ALL.get(usize::from(flags & 0xf))?;
        let form = *Form::ALL.get(usize::from(flags >> 4))?;
        (args <= 16).then_some(Self { target, chunk: (bits >> 32) as u32, args, handler, kind, form })
    }
}

/// Largest length that header data can tell.
pub(super) const MOST_LENGTH: u32 = (1 << 24) - 1;

/// Header data, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeaderData {
    pub(super) source: u32,
    /// Bytes of the frame; where credit is not counted, requests tell their number here instead.
    pub(super) length: u32,
    pub(super) credit: CreditByte,
}

impl HeaderData {
    pub(super) const fn encode(self) -> u64 {
        debug_assert!(self.length <= MOST_LENGTH);
        (self.source as u64) << 32 | ((self.length & MOST_LENGTH) as u64) << 8 | self.credit.0 as u64
    }

    pub(super) const fn decode(data: u64) -> Self {
        Self {
            source: (data >> 32) as u32,
            length: (data >> 8) as u32 & MOST_LENGTH,
            credit: CreditByte(data as u8),
        }
    }
}

/// Most credits in the lower field.
pub(super) const MOST_CREDITS: u32 = 15;

impl Extra {
    /// The largest amount that the three bits can tell.
    pub(super) const fn most(self) -> u32 {
        match self {
            Self::Shortage => 7,
            Self::Doubling => 64,
        }
    }

    const fn encode(self, amount: u32) -> u8 {
        debug_assert!(amount <= self.most());
        match self {
            Self::Shortage => amount as u8,
            Self::Doubling => match amount.checked_ilog2() {
                Some(exponent) => exponent as u8 + 1,
                None => 0,
            },
        }
    }

    const fn decode(self, bits: u8) -> u32 {
        match (self, bits) {
            (Self::Shortage, amount) => amount as u32,
            (Self::Doubling, 0) => 0,
            (Self::Doubling, bits) => 1 << (bits - 1),
        }
    }
}

/// `E XXX NNNN`: what a message says about credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CreditByte(pub(super) u8);

impl CreditByte {
    const fn new(end_of_epoch: bool, extra: u8, credits: u32) -> Self {
        debug_assert!(extra <= 7 && credits <= MOST_CREDITS);
        Self((end_of_epoch as u8) << 7 | extra << 4 | credits as u8)
    }

    /// Of a request.
    pub(super) const fn charge(charge: CreditUse, extra: Extra) -> Self {
        Self::new(false, extra.encode(charge.ask), charge.cost)
    }

    /// Of a reply.
    pub(super) const fn back(back: CreditReturn, extra: Extra) -> Self {
        Self::new(back.end_of_epoch, extra.encode(back.granted), back.credits)
    }

    /// Of a revocation, which is a request that costs one credit.
    pub(super) const fn revoke(charge: CreditUse, extra: Extra, end_of_epoch: bool) -> Self {
        Self::new(end_of_epoch, extra.encode(charge.ask), charge.cost)
    }

    /// Credits that a request spends.
    pub(super) const fn cost(self) -> u32 {
        (self.0 & 15) as u32
    }

    pub(super) const fn as_charge(self, extra: Extra) -> CreditUse {
        CreditUse { cost: self.cost(), ask: extra.decode(self.0 >> 4 & 7) }
    }

    pub(super) const fn as_return(self, extra: Extra) -> CreditReturn {
        let granted = extra.decode(self.0 >> 4 & 7);
        CreditReturn { credits: self.cost(), granted, end_of_epoch: self.ends_epoch() }
    }

    pub(super) const fn ends_epoch(self) -> bool {
        self.0 >> 7 != 0
    }
}

/// Bytes of a Long message's place in its frame.
pub(super) const LONG_TARGET: usize = 16;

/// Where a Long payload goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LongTarget {
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl LongTarget {
    pub(super) fn encode(self) -> [u8; LONG_TARGET] {
        let mut bytes = [0; LONG_TARGET];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: [u8; LONG_TARGET]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        Self { offset: word(0), len: word(8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_lie_where_the_sheet_says() {
        let bits = Bits {
            target: Target::ReqRb,
            chunk: 0x1234_5678,
            args: 16,
            handler: 0xab,
            kind: Kind::OneWay,
            form: Form::Packed,
        };
        assert_eq!(bits.encode(), 0x1234_5678_10ab_2103);
        let credit = CreditByte::charge(CreditUse { cost: 8, ask: 5 }, Extra::Shortage);
        let data = HeaderData { source: 7, length: 2048, credit };
        assert_eq!(data.encode(), 7 << 32 | 2048 << 8 | 0b0101_1000);
        let back = CreditReturn { credits: 9, granted: 2, end_of_epoch: true };
        assert_eq!(CreditByte::back(back, Extra::Shortage), CreditByte(0b1010_1001));
    }

    #[test]
    fn three_bits_tell_powers_of_two_up_to_64() {
        let tell = |ask: u32| CreditByte::charge(CreditUse { cost: 8, ask }, Extra::Doubling);
        assert_eq!([0, 1, 2, 16, 64].map(tell), [0x08, 0x18, 0x28, 0x58, 0x78].map(CreditByte));
        for amount in [0, 1, 2, 4, 8, 16, 32, 64] {
            assert_eq!(tell(amount).as_charge(Extra::Doubling), CreditUse { cost: 8, ask: amount });
        }
    }

    #[test]
    fn place_survives() {
        let place = LongTarget { offset: 1 << 40, len: 77 };
        assert_eq!(LongTarget::decode(place.encode()), place);
    }

    proptest! {
        #[test]
        fn any_bits_are_refused_or_mean_themselves(bits: u64) {
            if let Some(decoded) = Bits::decode(bits) {
                prop_assert_eq!(decoded.encode(), bits);
            }
        }

        #[test]
        fn any_header_data_means_itself(data: u64) {
            let decoded = HeaderData::decode(data);
            prop_assert_eq!(decoded.encode(), data);
            for extra in [Extra::Shortage, Extra::Doubling] {
                prop_assert_eq!(CreditByte::back(decoded.credit.as_return(extra), extra), decoded.credit);
                let charge = decoded.credit.as_charge(extra);
                prop_assert_eq!(CreditByte::revoke(charge, extra, decoded.credit.ends_epoch()), decoded.credit);
            }
        }

        #[test]
        fn all_messages_survive(
            chunk: u32, args in 0u8..=16, handler: u8, kind in 0usize..9, form in 0usize..4, target in 0u8..5
        ) {
            let targets = [Target::Rar, Target::RarAm, Target::RarSrc, Target::ReqRb, Target::ReqSb];
            let target = targets[usize::from(target)];
            let bits = Bits { target, chunk, args, handler, kind: Kind::ALL[kind], form: Form::ALL[form] };
            prop_assert_eq!(Bits::decode(bits.encode()), Some(bits));
        }
    }
}
