//! Tables of things that programs know by handles: a handle carries a generation, so that one of something that is
//! gone is told from one of what has taken its place.

use std::fmt;

/// What every handle is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    generation: u32,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

struct Slot<T> {
    generation: u32,
    content: Option<T>,
}

/// A table. It takes memory for as many things as there ever were at once.
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    unused: Vec<u32>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), unused: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.unused.len()
    }

    pub(crate) fn insert(&mut self, content: T) -> Key {
        if let Some(index) = self.unused.pop() {
            let slot = &mut self.slots[index as usize];
            slot.content = Some(content);
            return Key { index, generation: slot.generation };
        }
        self.slots.push(Slot { generation: 0, content: Some(content) });
        Key { index: self.slots.len() as u32 - 1, generation: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.content.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.content.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        let content = slot.content.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.unused.push(key.index);
        Some(content)
    }

    /// Removes everything; the handles are stale.
    pub(crate) fn clear(&mut self) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if slot.content.take().is_some() {
                slot.generation = slot.generation.wrapping_add(1);
                self.unused.push(index as u32);
            }
        }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (Key, &T)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| {
            let key = Key { index: index as u32, generation: slot.generation };
            slot.content.as_ref().map(|content| (key, content))
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.content.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slots = Slots::new();
        let (one, two) = (slots.insert(1), slots.insert(2));
        assert_eq!(slots.remove(one), Some(1));
        assert_eq!((slots.remove(one), slots.get(one), slots.len()), (None, None, 1));
        let three = slots.insert(3);
        assert_eq!((three.index, slots.get(one), slots.get(three)), (one.index, None, Some(&3)));
        assert_eq!(slots.get_mut(two), Some(&mut 2));
        assert_eq!(slots.iter().sum::<i32>(), 5);
    }
}
