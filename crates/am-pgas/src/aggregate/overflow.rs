//! Items that functions have pushed while they could not be put into item buffers.

use std::collections::VecDeque;

/// A queue of items of equal size, of bounded length.
#[derive(Debug)]
pub(super) struct Overflow {
    to: VecDeque<u32>,
    items: Vec<u8>,
    item: usize,
    /// Where the first item lies, in items.
    head: usize,
    capacity: usize,
}

impl Overflow {
    /// A queue without room.
    pub(super) fn new(item: usize) -> Self {
        Self { to: VecDeque::new(), items: Vec::new(), item, head: 0, capacity: 0 }
    }

    /// Makes room for at least `items` items. Allocates; only for an empty queue.
    pub(super) fn grow(&mut self, items: usize) {
        if items > self.capacity {
            self.capacity = items;
            self.to.reserve_exact(items);
            self.items.resize(items * self.item, 0);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.to.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.to.len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Items that it has room for.
    pub(super) fn free(&self) -> usize {
        self.capacity - self.to.len()
    }

    /// Adds an item.
    ///
    /// # Panics
    /// If there is no room.
    pub(super) fn push(&mut self, to: u32, item: &[u8]) {
        assert!(self.free() > 0, "a function is called with room for all that it may push");
        let at = (self.head + self.to.len()) % self.capacity * self.item;
        self.items[at..at + self.item].copy_from_slice(item);
        self.to.push_back(to);
    }

    /// The first item.
    pub(super) fn first(&self) -> Option<(u32, &[u8])> {
        let at = self.head * self.item;
        self.to.front().map(|to| (*to, &self.items[at..at + self.item]))
    }

    /// Takes the first item out.
    pub(super) fn pop(&mut self) {
        if self.to.pop_front().is_some() {
            self.head = (self.head + 1) % self.capacity;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_leave_in_their_order() {
        let mut overflow = Overflow::new(2);
        overflow.grow(3);
        for round in 0..10u8 {
            for n in 0..3 {
                overflow.push(n.into(), &[round, n]);
            }
            assert_eq!((overflow.free(), overflow.len()), (0, 3));
            for n in 0..2u8 {
                assert_eq!(overflow.first(), Some((n.into(), &[round, n][..])));
                overflow.pop();
            }
            overflow.pop();
            assert!(overflow.is_empty());
            overflow.push(9, &[9, 9]);
            overflow.pop();
        }
    }
}
