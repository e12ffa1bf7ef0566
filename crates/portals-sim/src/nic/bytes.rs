//! What messages carry: buffers that go round, so that nothing is allocated per message once there are enough.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;

/// The smallest buffer is of 2^5 bytes; larger ones than of 2^17 do not go round.
const SMALLEST: u32 = 5;
const CLASSES: usize = 13;

/// Unused buffers of a machine, by their size in powers of two.
#[derive(Default)]
pub(crate) struct Pool {
    shelves: [RefCell<Vec<Rc<[u8]>>>; CLASSES],
}

impl Pool {
    fn class(len: usize) -> usize {
        (usize::BITS - len.saturating_sub(1).leading_zeros()).saturating_sub(SMALLEST) as usize
    }

    /// A buffer of a length, filled.
    pub(crate) fn fill(&self, len: u32, fill: impl FnOnce(&mut [u8])) -> Bytes {
        if len == 0 {
            return Bytes::default();
        }
        let class = Self::class(len as usize);
        let found = self.shelves.get(class).and_then(|shelf| shelf.borrow_mut().pop());
        let size = if class < CLASSES { 1 << (class as u32 + SMALLEST) } else { len as usize };
        let mut store = found.unwrap_or_else(|| std::iter::repeat_n(0, size).collect());
        fill(&mut Rc::get_mut(&mut store).expect("an unused buffer has one owner")[..len as usize]);
        Bytes { store: Some(store), len }
    }

    /// Takes a buffer back. One that is not given back is freed.
    pub(crate) fn give(&self, bytes: Bytes) {
        if let Some(store) = bytes.store
            && Rc::strong_count(&store) == 1
            && let Some(shelf) = self.shelves.get(Self::class(store.len()))
        {
            shelf.borrow_mut().push(store);
        }
    }
}

/// Bytes under way.
#[derive(Clone, Default)]
pub(crate) struct Bytes {
    store: Option<Rc<[u8]>>,
    len: u32,
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.store.as_ref().map_or(&[], |store| &store[..self.len as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_go_round() {
        let pool = Pool::default();
        let copy = |bytes: &[u8]| pool.fill(bytes.len() as u32, |buffer| buffer.copy_from_slice(bytes));
        let first = copy(b"first");
        let again = first.clone();
        let at = first.as_ptr();
        pool.give(first);
        assert_ne!(copy(b"second").as_ptr(), at, "the buffer is still in use");
        assert_eq!(&*again, b"first");
        pool.give(again);
        assert_eq!(copy(&[1; 32]).as_ptr(), at);
        assert_ne!(copy(&[1; 33]).as_ptr(), at);
        for len in [0, 1, 31, 32, 33, 64, 65, 4096, 131_072, 131_073, 1 << 20] {
            let bytes = copy(&vec![7; len]);
            assert_eq!((bytes.len(), bytes.iter().all(|byte| *byte == 7)), (len, true));
            pool.give(bytes);
        }
        let kept: usize = pool.shelves.iter().map(|shelf| shelf.borrow().len()).sum();
        assert_eq!(kept, 5, "one each of 32, 64, 128, 4096 and 131072 bytes, but no larger one");
    }
}
