//! An index of entries by a key, in the order in which they were added to each key: the cost of finding the first
//! entry of a key does not depend on how many others there are.
//!
//! Entries of a slab are nodes of chains, one chain for each bucket of a hash table. Adding, finding and removing
//! take constant time on average and allocate only when there are more entries than ever before.

use am_core::slab::Key;

/// No node.
const NONE: u32 = u32::MAX;

/// Stands for any source, or for any tag.
pub(crate) const ANY: u32 = u32::MAX;

/// What entries are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) context: u32,
    pub(crate) source: u32,
    pub(crate) tag: u32,
}

impl Selector {
    /// How many wildcards there are, as a number from 0 (none) to 3 (both).
    #[inline(always)]
    pub(crate) fn class(self) -> usize {
        usize::from(self.source == ANY) + 2 * usize::from(self.tag == ANY)
    }

    /// The selectors that match a message with this envelope, by class.
    pub(crate) fn matching(self) -> [Self; 4] {
        std::array::from_fn(|class| Self {
            context: self.context,
            source: if class & 1 == 0 { self.source } else { ANY },
            tag: if class & 2 == 0 { self.tag } else { ANY },
        })
    }

    /// A number that differs where keys do, nearly always: the multiplier is that of Steele, Lea and Flood's
    /// SplitMix64 (2014).
    #[inline(always)]
    fn hash(self) -> u64 {
        let mixed = (u64::from(self.context) << 32 | u64::from(self.source)) ^ u64::from(self.tag).rotate_left(20);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 32)
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    selector: Selector,
    entry: Key,
    before: u32,
    behind: u32,
    /// Its bucket, or [`NONE`] while it is in no chain.
    bucket: u32,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    first: u32,
    last: u32,
}

/// The index. An entry can be added once under a selector of each class.
#[derive(Debug)]
pub(crate) struct Chains {
    buckets: Vec<Bucket>,
    nodes: Vec<Node>,
    len: usize,
    /// Nodes of each class.
    classes: [usize; 4],
}

const EMPTY: Bucket = Bucket { first: NONE, last: NONE };

impl Chains {
    pub(crate) fn new() -> Self {
        Self { buckets: vec![EMPTY; 16], nodes: Vec::new(), len: 0, classes: [0; 4] }
    }

    /// Nodes under selectors of a class.
    #[inline]
    pub(crate) fn of_class(&self, class: usize) -> usize {
        self.classes[class]
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of nodes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn place(selector: Selector, entry: Key) -> usize {
        entry.index() as usize * 4 + selector.class()
    }

    #[inline(always)]
    fn bucket(&self, selector: Selector) -> usize {
        selector.hash() as usize & (self.buckets.len() - 1)
    }

    /// Adds an entry at the end of its key.
    #[inline]
    pub(crate) fn push(&mut self, selector: Selector, entry: Key) {
        let place = Self::place(selector, entry);
        if self.len >= self.buckets.len() || self.nodes.len() <= place {
            self.grow(place, selector, entry);
        }
        self.append(place as u32, selector, entry);
        self.len += 1;
        self.classes[place % 4] += 1;
    }

    #[inline(always)]
    fn append(&mut self, place: u32, selector: Selector, entry: Key) {
        let bucket = self.bucket(selector);
        let chain = &mut self.buckets[bucket];
        let before = std::mem::replace(&mut chain.last, place);
        if before == NONE {
            chain.first = place;
        } else {
            self.nodes[before as usize].behind = place;
        }
        self.nodes[place as usize] = Node { selector, entry, before, behind: NONE, bucket: bucket as u32 };
    }

    /// Makes room for one entry more, at a place.
    #[cold]
    fn grow(&mut self, place: usize, selector: Selector, entry: Key) {
        if self.nodes.len() <= place {
            let unused = Node { selector, entry, before: NONE, behind: NONE, bucket: NONE };
            self.nodes.resize(place + 4 - place % 4, unused);
        }
        if self.len < self.buckets.len() {
            return;
        }
        let old = std::mem::take(&mut self.buckets);
        self.buckets = vec![EMPTY; old.len() * 2];
        for bucket in old {
            let mut place = bucket.first;
            while place != NONE {
                let Node { selector, entry, behind, .. } = self.nodes[place as usize];
                self.append(place, selector, entry);
                place = behind;
            }
        }
    }

    /// The first entry of a key.
    #[inline]
    pub(crate) fn first(&self, selector: Selector) -> Option<Key> {
        self.iter(selector).next()
    }

    /// The entries of a key in order.
    #[inline]
    pub(crate) fn iter(&self, selector: Selector) -> impl Iterator<Item = Key> + '_ {
        let mut place = self.buckets[self.bucket(selector)].first;
        std::iter::from_fn(move || {
            while place != NONE {
                let node = &self.nodes[place as usize];
                place = node.behind;
                if node.selector == selector {
                    return Some(node.entry);
                }
            }
            None
        })
    }

    /// Removes an entry from a key that it was added to.
    #[inline]
    pub(crate) fn remove(&mut self, selector: Selector, entry: Key) {
        let place = Self::place(selector, entry);
        let Some(node) = self.nodes.get_mut(place).filter(|node| node.bucket != NONE && node.entry == entry)
        else {
            return;
        };
        let (Node { before, behind, .. }, bucket) = (*node, std::mem::replace(&mut node.bucket, NONE) as usize);
        if before == NONE {
            self.buckets[bucket].first = behind;
        } else {
            self.nodes[before as usize].behind = behind;
        }
        if behind == NONE {
            self.buckets[bucket].last = before;
        } else {
            self.nodes[behind as usize].before = before;
        }
        self.len -= 1;
        self.classes[place % 4] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use am_core::slab::Slab;

    #[test]
    fn order_survives_growth_and_removal() {
        let (mut slab, mut chains) = (Slab::new(), Chains::new());
        let selector = |tag| Selector { context: 1, source: 2, tag };
        let all: Vec<_> = (0..300u32).map(|number| (number % 7, slab.insert(number))).collect();
        for (tag, key) in &all {
            chains.push(selector(*tag), *key);
            chains.push(Selector { source: ANY, ..selector(*tag) }, *key);
        }
        for (number, (tag, key)) in all.iter().enumerate() {
            if number % 3 == 0 {
                chains.remove(selector(*tag), *key);
                chains.remove(selector(*tag), *key);
            }
        }
        assert_eq!((chains.of_class(0), chains.of_class(1), chains.len()), (200, 300, 500));
        for tag in 0..7 {
            let expected = |kept: fn(usize) -> bool| -> Vec<_> {
                let of = all.iter().enumerate().filter(|(number, (other, _))| *other == tag && kept(*number));
                of.map(|(_, (_, key))| *key).collect()
            };
            assert_eq!(chains.iter(selector(tag)).collect::<Vec<_>>(), expected(|number| number % 3 != 0));
            assert_eq!(
                chains.iter(Selector { source: ANY, ..selector(tag) }).collect::<Vec<_>>(),
                expected(|_| true)
            );
        }
        assert_eq!(chains.first(selector(8)), None);
    }
}
