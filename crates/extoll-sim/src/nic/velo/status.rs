//! The status word that ends each mailbox slot.

/// The status of one slot:
///
/// | bits | field |
/// |---|---|
/// | 15:0 | node of the sender |
/// | 23:16 | its vpid |
/// | 33:32 | MTT |
/// | 36 | end of message |
/// | 37 | error |
/// | 47:40 | tag |
/// | 54:48 | length of the message in bytes |
///
/// A word that is not zero means that the slot is valid; the end of message makes it so even for an empty message
/// of process 0 of node 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The sender's node.
    pub node: u16,
    /// The sender's vpid.
    pub vpid: u8,
    /// The message's type, 2 bits.
    pub mtt: u8,
    /// Whether the message ends in this slot.
    pub end: bool,
    /// Whether the message was spoilt on its way.
    pub error: bool,
    /// The message's tag.
    pub tag: u8,
    /// The message's length in bytes, 7 bits.
    pub len: u8,
}

impl Status {
    /// The word in memory.
    pub fn encode(self) -> u64 {
        u64::from(self.node)
            | u64::from(self.vpid) << 16
            | u64::from(self.mtt & 3) << 32
            | u64::from(self.end) << 36
            | u64::from(self.error) << 37
            | u64::from(self.tag) << 40
            | u64::from(self.len & 0x7f) << 48
    }

    /// Reads a word; `None` while the slot is not valid.
    pub fn decode(word: u64) -> Option<Self> {
        (word != 0).then_some(Self {
            node: word as u16,
            vpid: (word >> 16) as u8,
            mtt: (word >> 32 & 3) as u8,
            end: word >> 36 & 1 != 0,
            error: word >> 37 & 1 != 0,
            tag: (word >> 40) as u8,
            len: (word >> 48 & 0x7f) as u8,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_lie_where_the_sheet_says() {
        let status = Status { node: 0xabcd, vpid: 0xef, mtt: 2, end: true, error: false, tag: 0x5a, len: 0x40 };
        assert_eq!(status.encode(), 0x0040_5a12_00ef_abcd);
        assert_eq!(Status { error: true, ..status }.encode() - status.encode(), 1 << 37);
        let nothing = Status { node: 0, vpid: 0, mtt: 0, end: true, error: false, tag: 0, len: 0 };
        assert_ne!(nothing.encode(), 0, "an empty message of the first process is valid");
    }

    proptest! {
        #[test]
        fn words_survive_a_round_trip(
            node: u16, vpid: u8, mtt in 0u8..4, end: bool, error: bool, tag: u8, len in 1u8..=127
        ) {
            let status = Status { node, vpid, mtt, end, error, tag, len };
            prop_assert_eq!(Status::decode(status.encode()), Some(status));
        }
    }
}
