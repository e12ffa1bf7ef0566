//! Frames: the header in two words, arguments, payload.

use am_core::Words;
use fabric_sim::conduit::Kind;

/// A peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// What a frame says besides arguments and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) handler: u8,
    pub(super) args: u8,
    /// Requests of the receiver that were handled, and replies that will not come.
    pub(super) handled: u16,
    pub(super) freed: u16,
    /// Messages between cores that were handled.
    pub(super) controls: u8,
    /// Where the payload of a Long message lies in the receiver's segment.
    pub(super) offset: u64,
}

impl Header {
    pub(super) fn write(&self) -> [u64; 2] {
        let word = u64::from(self.kind.code())
            | u64::from(self.handler) << 8
            | u64::from(self.args) << 16
            | u64::from(self.controls) << 24
            | u64::from(self.handled) << 32
            | u64::from(self.freed) << 48;
        [word, self.offset]
    }

    pub(super) fn read([word, offset]: [u64; 2]) -> Result<Self, Malformed> {
        let byte = |at: u32| (word >> at) as u8;
        let header = Self {
            kind: Kind::from_code(byte(0)).ok_or(Malformed)?,
            handler: byte(8),
            args: byte(16),
            handled: (word >> 32) as u16,
            freed: (word >> 48) as u16,
            controls: byte(24),
            offset,
        };
        if header.args > 16 { Err(Malformed) } else { Ok(header) }
    }
}

/// Bytes of so many arguments.
pub(super) const fn arguments_len(args: usize) -> usize {
    4 * args
}

/// The arguments at the beginning of a frame's bytes.
pub(super) fn read_arguments(bytes: &[u8], args: u8) -> Result<Words, Malformed> {
    let words = bytes.get(..arguments_len(args.into())).ok_or(Malformed)?;
    Words::from_le_bytes(words).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_are_read_as_written(
            code in 0..Kind::CODES, handler: u8, args in 0u8..17, handled: u16, freed: u16, controls: u8,
            offset: u64
        ) {
            let kind = Kind::from_code(code).unwrap();
            let header = Header { kind, handler, args, handled, freed, controls, offset };
            prop_assert_eq!(Header::read(header.write()), Ok(header));
        }

        #[test]
        fn nonsense_is_no_header(word: u64, offset: u64) {
            if let Ok(header) = Header::read([word, offset]) {
                prop_assert_eq!(header.write(), [word, offset]);
            }
        }
    }

    #[test]
    fn arguments_have_to_be_there() {
        assert_eq!(read_arguments(&[1, 0, 0, 0, 9], 1).unwrap(), Words::from_slice(&[1]).unwrap());
        assert_eq!(read_arguments(&[1, 0, 0], 1), Err(Malformed));
    }
}
