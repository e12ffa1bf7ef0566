//! A table whose entries are named by numbers that say which use of an entry they mean.
//!
//! What names an entry travels through a network and may come back after the entry was freed, or used again: a
//! number that is out of date finds nothing.

/// Names one use of an entry of a [`Slab`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// The key of a use of an entry in a table that a program keeps itself.
    #[inline]
    pub const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    /// Which use of its entry it names.
    #[inline]
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// The entry's place, which a later use of it has, too. Places are dense: they are below the most entries that
    /// there ever were at once.
    pub const fn index(self) -> u32 {
        self.index
    }

    /// As one number, for a message.
    pub const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key that a number stands for; it need not name anything.
    pub const fn from_u64(number: u64) -> Self {
        Self { index: number as u32, generation: (number >> 32) as u32 }
    }
}

#[derive(Clone, Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// Entries of type `T`; see the [module](self).
#[derive(Clone, Debug)]
pub struct Slab<T> {
    entries: Vec<Entry<T>>,
    /// Free places; the last one freed is used first.
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    /// A table without entries. Does not allocate.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    /// Adds an entry. Allocates if there are more than ever before.
    ///
    /// # Panics
    /// If there are 2^32 entries.
    #[inline]
    pub fn insert(&mut self, value: T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = u32::try_from(self.entries.len()).expect("a table has fewer than 2^32 entries");
            self.entries.push(Entry { generation: 0, value: None });
            index
        });
        let entry = &mut self.entries[index as usize];
        entry.value = Some(value);
        Key { index, generation: entry.generation }
    }

    /// The key that the next [`insert`](Self::insert) gives.
    ///
    /// # Panics
    /// If there are 2^32 entries.
    #[inline]
    pub fn next_key(&self) -> Key {
        match self.free.last() {
            Some(&index) => Key { index, generation: self.entries[index as usize].generation },
            None => {
                let index = u32::try_from(self.entries.len()).expect("a table has fewer than 2^32 entries");
                Key { index, generation: 0 }
            }
        }
    }

    /// Lets the key go that the next [`insert`](Self::insert) would give, for one that has been told to others and
    /// names nothing now. Allocates if there are more entries than ever before.
    ///
    /// # Panics
    /// If there are 2^32 entries.
    pub fn skip_key(&mut self) {
        let Key { index, generation } = self.next_key();
        if index as usize == self.entries.len() {
            self.entries.push(Entry { generation, value: None });
            self.free.push(index);
        }
        self.entries[index as usize].generation = generation.wrapping_add(1);
    }

    /// The entry of a key, unless it was removed.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let entry = self.entries.get(key.index as usize)?;
        entry.value.as_ref().filter(|_| entry.generation == key.generation)
    }

    /// The entry of a key, to be changed, unless it was removed.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        entry.value.as_mut().filter(|_| entry.generation == key.generation)
    }

    /// Whether the entry of a key is there.
    #[inline]
    pub fn contains(&self, key: Key) -> bool {
        self.get(key).is_some()
    }

    /// Removes an entry; its key names nothing from now on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.get_mut(key.index as usize).filter(|entry| entry.generation == key.generation)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    /// Removes all entries; their keys name nothing from now on. Places are used again from the last one on.
    pub fn clear(&mut self) {
        for (index, entry) in (0..).zip(&mut self.entries) {
            if entry.value.take().is_some() {
                entry.generation = entry.generation.wrapping_add(1);
                self.free.push(index);
            }
        }
    }

    /// Removes an entry where it is; its key names nothing from now on. Whether it was there.
    #[inline]
    pub fn discard(&mut self, key: Key) -> bool {
        let entry = self.entries.get_mut(key.index as usize).filter(|entry| entry.generation == key.generation);
        let Some(entry) = entry.filter(|entry| entry.value.is_some()) else { return false };
        entry.value = None;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.index);
        true
    }

    /// All entries, by their places.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        (0..).zip(&self.entries).filter_map(|(index, entry)| {
            Some((Key { index, generation: entry.generation }, entry.value.as_ref()?))
        })
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outdated_keys_find_nothing() {
        let mut slab = Slab::new();
        let next = slab.next_key();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(next, a);
        assert_eq!((slab.remove(a), slab.remove(a), slab.len()), (Some('a'), None, 1));
        let skipped = slab.next_key();
        slab.skip_key();
        let next = slab.next_key();
        let c = slab.insert('c');
        assert_eq!((next, slab.get(skipped)), (c, None));
        let last = slab.next_key();
        slab.skip_key();
        assert_eq!((slab.len(), slab.next_key().index(), slab.next_key() == last), (2, last.index(), false));
        // The same place, another use of it.
        assert_eq!((c.index(), c == a), (a.index(), false));
        assert_eq!((slab.get(a), slab.get(c), slab.get(b)), (None, Some(&'c'), Some(&'b')));
        assert_eq!(slab.get_mut(a), None);
        assert!(slab.contains(c) && !slab.contains(a));
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(c, &'c'), (b, &'b')]);
        assert_eq!(Key::from_u64(c.to_u64()), c);
        assert_eq!(slab.get(Key::from_u64(u64::MAX)), None);
        assert_eq!((slab.remove(b), slab.discard(c), slab.discard(c)), (Some('b'), true, false));
        assert!(slab.is_empty() && !slab.discard(a));
        let d = slab.insert('d');
        assert_eq!((d.index(), slab.get(c), slab.get(d)), (c.index(), None, Some(&'d')));
        slab.clear();
        assert_eq!((slab.get(d).copied(), slab.remove(d), slab.len()), (None, None, 0));
        assert!(slab.is_empty() && slab.insert('e').index() < 2);
    }
}
