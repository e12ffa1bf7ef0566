//! What packets carry: buffers that go round, so that nothing is allocated per packet once there are enough.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;

/// The largest VELO message.
pub(crate) const LONGEST: usize = 120;

/// Size of the buffers for VELO messages and single fragments.
const SMALL: usize = 128;

/// Unused buffers of a machine.
pub(crate) struct Pool {
    small: RefCell<Vec<Rc<[u8]>>>,
    large: RefCell<Vec<Rc<[u8]>>>,
    /// Size of the large ones.
    size: usize,
}

impl Pool {
    /// A pool for packets of at most `longest` bytes.
    pub(crate) fn new(longest: usize) -> Self {
        Self { small: RefCell::default(), large: RefCell::default(), size: longest.max(SMALL) }
    }

    /// A buffer of a length, filled.
    pub(crate) fn fill(self: &Rc<Self>, len: usize, fill: impl FnOnce(&mut [u8])) -> Bytes {
        let (shelf, size) = if len <= SMALL { (&self.small, SMALL) } else { (&self.large, self.size) };
        let found = shelf.borrow_mut().pop();
        let mut store = found.unwrap_or_else(|| std::iter::repeat_n(0, size).collect());
        fill(&mut Rc::get_mut(&mut store).expect("an unused buffer has one owner")[..len]);
        Bytes { store: Some(store), len: len as u32, pool: Rc::clone(self) }
    }

    /// A copy of some bytes.
    pub(crate) fn copy(self: &Rc<Self>, bytes: &[u8]) -> Bytes {
        self.fill(bytes.len(), |buffer| buffer.copy_from_slice(bytes))
    }
}

/// Bytes under way. Clones share them, so that a packet kept for replay costs no copy.
#[derive(Clone)]
pub(crate) struct Bytes {
    /// There until the end.
    store: Option<Rc<[u8]>>,
    len: u32,
    pool: Rc<Pool>,
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.store.as_ref().map_or(&[], |store| &store[..self.len as usize])
    }
}

impl Drop for Bytes {
    #[inline]
    fn drop(&mut self) {
        if let Some(store) = self.store.take()
            && Rc::strong_count(&store) == 1
        {
            let shelf = if store.len() == SMALL { &self.pool.small } else { &self.pool.large };
            shelf.borrow_mut().push(store);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_go_round() {
        let pool = Rc::new(Pool::new(1024));
        let first = pool.copy(b"first");
        let again = first.clone();
        let at = first.as_ptr();
        drop(first);
        let second = pool.copy(b"second");
        assert_ne!(second.as_ptr(), at, "the buffer is still in use");
        assert_eq!((&*again, &*second), (&b"first"[..], &b"second"[..]));
        drop(again);
        assert_eq!(pool.copy(&[1; 100]).as_ptr(), at);
        assert_eq!(pool.copy(&[1; 1000]).len(), 1000);
        assert_eq!((pool.small.borrow().len(), pool.large.borrow().len()), (1, 1));
    }
}
