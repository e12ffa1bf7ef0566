//! Memory of the own segment that messages are written to: which parts of it are free.

/// A part that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Byte offset in the segment.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u64,
}

/// The memory; parts begin at multiples of 64.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// Free parts, by offset, of which no two touch.
    free: Vec<Block>,
}

impl Staging {
    /// Memory of `len` bytes from `offset` on.
    pub(crate) fn new(offset: u64, len: u64) -> Self {
        let free = if len == 0 { Vec::new() } else { vec![Block { offset, len }] };
        Self { free }
    }

    /// Whether there is a free part that is large enough.
    pub(crate) fn has(&self, len: u64) -> bool {
        self.free.iter().any(|block| block.len >= len)
    }

    /// Takes the first free part that is large enough, if there is one.
    pub(crate) fn take(&mut self, len: u64) -> Option<Block> {
        let len = len.max(1).checked_next_multiple_of(64)?;
        let index = self.free.iter().position(|block| block.len >= len)?;
        let block = &mut self.free[index];
        let taken = Block { offset: block.offset, len };
        (block.offset, block.len) = (block.offset + len, block.len - len);
        if block.len == 0 {
            self.free.remove(index);
        }
        Some(taken)
    }

    /// Gives back a part that was taken.
    pub(crate) fn give_back(&mut self, block: Block) {
        let index = self.free.partition_point(|other| other.offset < block.offset);
        self.free.insert(index, block);
        if let Some(behind) = self.free.get(index + 1).copied()
            && block.offset + block.len == behind.offset
        {
            self.free[index].len += behind.len;
            self.free.remove(index + 1);
        }
        if index > 0 && self.free[index - 1].offset + self.free[index - 1].len == block.offset {
            self.free[index - 1].len += self.free[index].len;
            self.free.remove(index);
        }
    }

    /// Free bytes.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u64 {
        self.free.iter().map(|block| block.len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_together_again() {
        let mut staging = Staging::new(128, 640);
        let blocks: Vec<_> = (0..10).map(|len| staging.take(len * 7 + 1).unwrap()).collect();
        assert_eq!((staging.take(0), staging.free()), (None, 0));
        for index in [3, 1, 2, 9, 0, 8, 4, 6, 5, 7] {
            staging.give_back(blocks[index]);
        }
        assert_eq!(staging.take(640), Some(Block { offset: 128, len: 640 }));
        assert_eq!(Staging::new(0, 0).take(1), None);
        assert_eq!(staging.take(u64::MAX), None);
    }
}
