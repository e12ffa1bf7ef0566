//! Reading and writing values at the front of byte slices; every length is checked and nothing is allocated.

/// The largest value of a variable-length integer.
pub(super) const MAX_VARINT: u64 = (1 << 62) - 1;

/// Takes values from the front of a slice; `None` past its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(len)?;
        self.rest = tail;
        Some(head)
    }

    /// The bytes that another reader, which began here, has taken since.
    pub(super) fn until(&self, later: &Self) -> &'a [u8] {
        let taken = self.rest.len().saturating_sub(later.rest.len());
        self.rest.get(..taken).unwrap_or(&[])
    }

    /// Skips bytes that are zero.
    pub(super) fn skip_zeros(&mut self) {
        let zeros = self.rest.iter().take_while(|byte| **byte == 0).count();
        self.rest = self.rest.get(zeros..).unwrap_or(&[]);
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn varint(&mut self) -> Option<u64> {
        let first = *self.rest.first()?;
        Some(match first >> 6 {
            0 => u64::from(self.u8()?),
            1 => u64::from(u16::from_be_bytes(self.array()?) & 0x3fff),
            2 => u64::from(u32::from_be_bytes(self.array()?) & 0x3fff_ffff),
            _ => u64::from_be_bytes(self.array()?) & MAX_VARINT,
        })
    }
}

/// Appends values to a slice; what does not fit is refused as a whole.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.at
    }

    pub(super) fn remaining(&self) -> usize {
        self.out.len() - self.at
    }

    /// The next `len` bytes, to be filled by the caller.
    pub(super) fn space(&mut self, len: usize) -> Option<&mut [u8]> {
        let end = self.at.checked_add(len)?;
        let space = self.out.get_mut(self.at..end)?;
        self.at = end;
        Some(space)
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.space(bytes.len())?.copy_from_slice(bytes);
        Some(())
    }

    pub(super) fn u8(&mut self, value: u8) -> Option<()> {
        self.put(&[value])
    }

    /// # Panics
    /// If the value exceeds [`MAX_VARINT`], which no offset, length or time here does.
    pub(super) fn varint(&mut self, value: u64) -> Option<()> {
        assert!(value <= MAX_VARINT, "offsets and lengths stay below 2^62");
        match value {
            0..0x40 => self.put(&[value as u8]),
            0x40..0x4000 => self.put(&(value as u16 | 0x4000).to_be_bytes()),
            0x4000..0x4000_0000 => self.put(&(value as u32 | 0x8000_0000).to_be_bytes()),
            _ => self.put(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
        }
    }
}
