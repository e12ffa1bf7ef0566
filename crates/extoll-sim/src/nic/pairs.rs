//! What an interface knows of each of its partners: found by local process, remote rank and channel, numbered in
//! the order in which they were first needed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash of one word; nothing depends on the order of the map.
#[derive(Default)]
pub(crate) struct WordHasher(u64);

/// A map by a word.
pub(crate) type ByWord<V> = HashMap<u64, V, BuildHasherDefault<WordHasher>>;

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }
}

/// What two processes have together on one channel.
pub(crate) struct Pairs<T> {
    numbers: ByWord<u32>,
    all: Vec<T>,
}

impl<T> Pairs<T> {
    pub(crate) fn new() -> Self {
        Self { numbers: ByWord::default(), all: Vec::new() }
    }

    /// The number of a pair, which `make` makes if it is new.
    #[inline]
    pub(crate) fn number(&mut self, local: u32, remote: u32, channel: u8, make: impl FnOnce() -> T) -> u32 {
        let Self { numbers, all } = self;
        *numbers.entry(u64::from(local) << 40 | u64::from(channel) << 32 | u64::from(remote)).or_insert_with(
            || {
                all.push(make());
                all.len() as u32 - 1
            },
        )
    }

    #[inline]
    pub(crate) fn at(&mut self, number: u32) -> &mut T {
        &mut self.all[number as usize]
    }

    pub(crate) fn all(&self) -> &[T] {
        &self.all
    }
}
