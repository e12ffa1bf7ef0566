//! What packets carry: buffers that go round, so that nothing is allocated per packet once there are enough.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

/// The smallest buffer is of 2^5 bytes; larger ones than of 2^17 do not go round.
const SMALLEST: u32 = 5;
const CLASSES: usize = 13;
/// So few bytes need no buffer.
const INLINE: usize = 22;

/// Unused buffers of a machine, by their size in powers of two.
#[derive(Default)]
pub struct Pool {
    shelves: [RefCell<Vec<Rc<[u8]>>>; CLASSES],
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    fn class(len: usize) -> usize {
        (usize::BITS - len.saturating_sub(1).leading_zeros()).saturating_sub(SMALLEST) as usize
    }

    /// So many bytes, filled by a function that gets them as the last user left them. Allocates if no buffer is
    /// unused.
    #[inline]
    pub fn fill(&self, len: u32, fill: impl FnOnce(&mut [u8])) -> Bytes {
        if len as usize <= INLINE {
            let mut bytes = [0; INLINE];
            fill(&mut bytes[..len as usize]);
            return Bytes(Store::Inline { len: len as u8, bytes });
        }
        let class = Self::class(len as usize);
        let found = self.shelves.get(class).and_then(|shelf| shelf.borrow_mut().pop());
        let size = if class < CLASSES { 1 << (class as u32 + SMALLEST) } else { len as usize };
        let mut buffer = found.unwrap_or_else(|| std::iter::repeat_n(0, size).collect());
        fill(&mut Rc::get_mut(&mut buffer).expect("an unused buffer has one owner")[..len as usize]);
        Bytes(Store::Buffer { buffer, len })
    }

    /// So many bytes, filled, that find their way back here by themselves.
    #[inline]
    pub fn lend(self: &Rc<Self>, len: u32, fill: impl FnOnce(&mut [u8])) -> PooledBytes {
        PooledBytes { bytes: self.fill(len, fill), pool: Rc::clone(self) }
    }

    /// A copy of some bytes that finds its way back here by itself.
    #[inline]
    pub fn lend_copy(self: &Rc<Self>, bytes: &[u8]) -> PooledBytes {
        self.lend(bytes.len() as u32, |buffer| buffer.copy_from_slice(bytes))
    }

    /// Takes a buffer back, unless it has other users. One that is not given back is freed.
    #[inline]
    pub fn give(&self, bytes: Bytes) {
        if let Store::Buffer { buffer, .. } = bytes.0
            && Rc::strong_count(&buffer) == 1
            && let Some(shelf) = self.shelves.get(Self::class(buffer.len()))
        {
            shelf.borrow_mut().push(buffer);
        }
    }
}

/// Bytes under way, 24 bytes in size. Clones share a buffer, so that a packet kept for replay costs no copy.
#[derive(Clone)]
pub struct Bytes(Store);

#[derive(Clone)]
enum Store {
    Inline { len: u8, bytes: [u8; INLINE] },
    Buffer { buffer: Rc<[u8]>, len: u32 },
}

impl Default for Bytes {
    fn default() -> Self {
        Self(Store::Inline { len: 0, bytes: [0; INLINE] })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Store::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Store::Buffer { buffer, len } => &buffer[..*len as usize],
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bytes").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A copy of bytes under way that belongs to no pool: what crosses to another thread.
#[derive(Clone, Debug)]
pub enum Detached {
    /// So many of these.
    Inline(u8, [u8; INLINE]),
    /// All of these.
    Boxed(Box<[u8]>),
}

impl Detached {
    /// A copy of some bytes. Allocates for more than a few.
    pub fn new(bytes: &[u8]) -> Self {
        if bytes.len() > INLINE {
            return Self::Boxed(bytes.into());
        }
        let mut inline = [0; INLINE];
        inline[..bytes.len()].copy_from_slice(bytes);
        Self::Inline(bytes.len() as u8, inline)
    }

    /// The same bytes in a buffer of a pool.
    pub fn fill(&self, pool: &Pool) -> Bytes {
        pool.fill(self.len() as u32, |buffer| buffer.copy_from_slice(self))
    }

    /// The same bytes in a buffer that finds its way back to a pool.
    pub fn lend(&self, pool: &Rc<Pool>) -> PooledBytes {
        pool.lend_copy(self)
    }
}

impl Deref for Detached {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Self::Boxed(bytes) => bytes,
        }
    }
}

/// Bytes under way that go back to their pool when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct PooledBytes {
    bytes: Bytes,
    pool: Rc<Pool>,
}

impl Deref for PooledBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for PooledBytes {
    #[inline]
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_go_round() {
        let pool = Pool::default();
        let copy = |bytes: &[u8]| pool.fill(bytes.len() as u32, |buffer| buffer.copy_from_slice(bytes));
        let first = copy(&[1; 23]);
        let again = first.clone();
        let at = first.as_ptr();
        pool.give(first);
        assert_ne!(copy(&[2; 23]).as_ptr(), at, "the buffer is still in use");
        assert_eq!(&*again, [1; 23]);
        pool.give(again);
        assert_eq!(copy(&[1; 32]).as_ptr(), at);
        assert_ne!(copy(&[1; 33]).as_ptr(), at);
        assert_eq!(size_of::<Bytes>(), 24);
        for len in [0, 1, 22, 23, 31, 32, 33, 64, 65, 4096, 131_072, 131_073, 1 << 20] {
            let bytes = copy(&vec![7; len]);
            assert_eq!((bytes.len(), bytes.iter().all(|byte| *byte == 7)), (len, true));
            pool.give(bytes);
        }
        let kept: usize = pool.shelves.iter().map(|shelf| shelf.borrow().len()).sum();
        assert_eq!(kept, 5, "one each of 32, 64, 128, 4096 and 131072 bytes, but no larger one");
    }

    #[test]
    fn what_crosses_is_the_same_on_the_other_side() {
        let pool = Pool::default();
        for len in [0, 22, 23, 1000] {
            let there = Detached::new(&vec![9; len]).fill(&pool);
            assert_eq!((there.len(), there.iter().all(|byte| *byte == 9)), (len, true));
        }
    }

    #[test]
    fn what_is_lent_comes_back_with_its_last_clone() {
        let pool = Rc::new(Pool::default());
        let lend = |bytes: &[u8]| pool.lend_copy(bytes);
        let first = lend(&[1; 100]);
        let (again, at) = (first.clone(), first.as_ptr());
        drop(first);
        assert_ne!(lend(&[2; 100]).as_ptr(), at, "the buffer is still in use");
        assert_eq!(&*again, [1; 100]);
        drop(again);
        assert_eq!(lend(&[3; 128]).as_ptr(), at);
    }
}
