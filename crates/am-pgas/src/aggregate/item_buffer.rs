//! An item buffer: the items that wait for one neighbour, laid out as the message that takes them there.
//!
//! A message has the items first, so that they are a slice where they arrive, and their tags behind them in
//! reverse order. An item buffer fills its buffer from both ends, so that a full one is a message as it stands;
//! only what is sent earlier has its tags moved.

use am_core::zerocopy::IntoBytes;

/// What each record of a hop's messages consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of an item.
    pub(super) item: usize,
    /// Whether the tag says where the item goes.
    pub(super) to: bool,
    /// Whether the tag says where the item came from.
    pub(super) from: bool,
}

impl Layout {
    fn tag(&self) -> usize {
        4 * (usize::from(self.to) + usize::from(self.from))
    }

    /// Bytes of an item with its tag.
    pub(super) fn record(&self) -> usize {
        self.item + self.tag()
    }

    /// Where the tag of record `index` lies in a message that ends at byte `end`.
    fn tag_at(&self, end: usize, index: usize) -> usize {
        end - (index + 1) * self.tag()
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        let word = bytes[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(word)
    }

    /// Where record `index` of a message goes.
    pub(super) fn to(&self, message: &[u8], index: usize) -> u32 {
        Self::word(message, self.tag_at(message.len(), index))
    }

    /// Where record `index` of a message came from.
    pub(super) fn from(&self, message: &[u8], index: usize) -> u32 {
        Self::word(message, self.tag_at(message.len(), index) + if self.to { 4 } else { 0 })
    }
}

/// A buffer of whole words, so that the items in it are aligned.
pub(super) fn buffer(bytes: usize) -> Vec<u64> {
    vec![0; bytes.div_ceil(8)]
}

/// The items that wait for one neighbour.
#[derive(Debug)]
pub(super) struct ItemBuffer {
    /// The neighbour; this rank itself for items that have arrived.
    pub(super) target: u32,
    /// The hop that the item buffer belongs to; behind all hops for items that have arrived.
    pub(super) hop: usize,
    layout: Layout,
    buffer: Vec<u64>,
    filled: usize,
    capacity: usize,
    /// Items among them that other ranks pushed.
    pub(super) foreign: usize,
    /// Messages that the neighbour has not given back the room of.
    pub(super) under_way: u32,
    /// Whether it is to be sent although it is not full.
    pub(super) due: bool,
    /// Whether the neighbour takes nothing any more.
    pub(super) gone: bool,
}

impl ItemBuffer {
    pub(super) fn new(target: u32, hop: usize, layout: Layout, bytes: usize) -> Self {
        let capacity = bytes / layout.record();
        let buffer = buffer(capacity * layout.record());
        Self {
            target,
            hop,
            layout,
            buffer,
            filled: 0,
            capacity,
            foreign: 0,
            under_way: 0,
            due: false,
            gone: false,
        }
    }

    /// Items in it.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.filled
    }

    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.filled == self.capacity
    }

    /// Bytes of a full message.
    fn end(&self) -> usize {
        self.capacity * self.layout.record()
    }

    /// Adds an item.
    ///
    /// # Panics
    /// If it is full.
    #[inline(always)]
    pub(super) fn put(&mut self, item: &[u8], to: u32, from: u32) {
        if self.layout.to | self.layout.from {
            let mut at = self.layout.tag_at(self.end(), self.filled);
            let bytes = self.buffer.as_mut_bytes();
            if self.layout.to {
                bytes[at..at + 4].copy_from_slice(&to.to_le_bytes());
                at += 4;
            }
            if self.layout.from {
                bytes[at..at + 4].copy_from_slice(&from.to_le_bytes());
            }
        }
        self.put_untagged(item);
    }

    /// Adds an item where items have no tags, unless it is full.
    #[inline(always)]
    pub(super) fn offer_untagged(&mut self, item: &[u8]) -> bool {
        if let Ok(word) = <[u8; 8]>::try_from(item) {
            // Words fill the buffer up to its end, which is looked for anyway.
            let Some(place) = self.buffer.get_mut(self.filled) else { return false };
            *place = u64::from_ne_bytes(word);
            self.filled += 1;
            return true;
        }
        let has_room = !self.is_full();
        if has_room {
            self.put_untagged(item);
        }
        has_room
    }

    /// As [`put`](Self::put), where items have no tags.
    #[inline(always)]
    pub(super) fn put_untagged(&mut self, item: &[u8]) {
        let at = self.filled * item.len();
        self.buffer.as_mut_bytes()[at..at + item.len()].copy_from_slice(item);
        self.filled += 1;
    }

    /// Moves the tags to where a message of the present length has them, or back; returns the message's length.
    fn shift(&mut self, back: bool) -> usize {
        let (tags, items) = (self.filled * self.layout.tag(), self.filled * self.layout.item);
        let full = self.end();
        if tags != 0 && !self.is_full() {
            let (source, target) = if back { (items, full - tags) } else { (full - tags, items) };
            self.buffer.as_mut_bytes().copy_within(source..source + tags, target);
        }
        items + tags
    }

    /// Hands the items as a message to `send`; they stay where it fails.
    pub(super) fn send<E>(&mut self, send: impl FnOnce(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let len = self.shift(false);
        let sent = send(&self.buffer.as_bytes()[..len]);
        match sent {
            Ok(()) => self.clear(),
            Err(_) => {
                self.shift(true);
            }
        }
        sent
    }

    /// Exchanges the buffer with another of the same size; returns the length of the message that is in that now.
    pub(super) fn exchange(&mut self, other: &mut Vec<u64>) -> usize {
        let len = self.shift(false);
        // A function that unwound has taken the buffer with it.
        other.resize(self.buffer.len(), 0);
        std::mem::swap(&mut self.buffer, other);
        self.clear();
        len
    }

    /// Items that there is room for.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Takes nothing any more.
    pub(super) fn close(&mut self) {
        self.clear();
        self.buffer.clear();
        (self.capacity, self.gone) = (0, true);
    }

    /// Forgets the items.
    pub(super) fn clear(&mut self) {
        (self.filled, self.foreign, self.due) = (0, 0, false);
    }

    /// Bytes of its buffer.
    pub(super) fn memory(&self) -> usize {
        8 * self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_any_length_have_items_then_tags() {
        for (to, from) in [(false, false), (true, false), (false, true), (true, true)] {
            let layout = Layout { item: 8, to, from };
            let mut item_buffer = ItemBuffer::new(1, 0, layout, 5 * layout.record() + 3);
            for count in 1..=5usize {
                for attempt in [false, true] {
                    if attempt {
                        assert!(item_buffer.send(|_| Err(())).is_err());
                    } else {
                        (0..count).for_each(|n| {
                            item_buffer.put(&(n as u64).to_le_bytes(), n as u32 + 10, n as u32 + 20)
                        });
                    }
                }
                assert_eq!(item_buffer.is_full(), count == 5);
                let mut seen = Vec::new();
                let sent = item_buffer.send::<()>(|message| {
                    assert_eq!(message.len(), count * layout.record());
                    for n in 0..count {
                        seen.push(u64::from_le_bytes(message[8 * n..8 * n + 8].try_into().unwrap()));
                        assert!(!to || layout.to(message, n) == n as u32 + 10);
                        assert!(!from || layout.from(message, n) == n as u32 + 20);
                    }
                    Ok(())
                });
                assert!(sent.is_ok() && seen.iter().copied().eq(0..count as u64) && item_buffer.len() == 0);
            }
        }
    }

    #[test]
    fn full_and_closed_buffers_take_nothing() {
        for item in [vec![7; 8], vec![7; 3]] {
            let layout = Layout { item: item.len(), to: false, from: false };
            let mut item_buffer = ItemBuffer::new(1, 0, layout, 5 * item.len() + 2);
            (0..5).for_each(|_| assert!(item_buffer.offer_untagged(&item)));
            assert!(item_buffer.is_full() && !item_buffer.offer_untagged(&item) && item_buffer.len() == 5);
            item_buffer.close();
            assert!(item_buffer.is_full() && !item_buffer.offer_untagged(&item) && item_buffer.len() == 0);
        }
    }

    #[test]
    fn refused_messages_grow_on() {
        let layout = Layout { item: 4, to: true, from: true };
        let mut item_buffer = ItemBuffer::new(1, 0, layout, 10 * layout.record());
        for n in 0..10u32 {
            item_buffer.put(&n.to_le_bytes(), n, 2 * n);
            assert!(item_buffer.send(|_| Err(())).is_err());
        }
        let sent = item_buffer.send::<()>(|message| {
            for n in 0..10 {
                assert_eq!((layout.to(message, n), layout.from(message, n)), (n as u32, 2 * n as u32));
            }
            Ok(())
        });
        assert!(sent.is_ok());
    }
}
