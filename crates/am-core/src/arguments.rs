//! Handler arguments: up to sixteen 32-bit words on the wire, typed values in the program.
//!
//! [`Words`] is what travels. [`Arguments`] turns plain values, arrays, tuples and (through [`Plain`]) small
//! structures into words and back, so that programs never pack by hand and a wrong type does not compile.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The most 32-bit arguments that one message carries.
pub const MAX_WORDS: usize = 16;

/// Up to sixteen 32-bit arguments, stored as little-endian pairs.
///
/// Also usable itself as the [`Arguments`] of a handler that takes any number of words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    pairs: [u64; MAX_WORDS / 2],
    len: u8,
}

/// More than sixteen argument words were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given} argument words exceed the limit of 16")]
#[non_exhaustive]
pub struct TooManyWords {
    /// How many words were given.
    pub given: usize,
}

impl Words {
    /// No arguments.
    pub const EMPTY: Self = Self { pairs: [0; MAX_WORDS / 2], len: 0 };

    /// Takes the words of a slice.
    ///
    /// # Errors
    /// [`TooManyWords`] beyond sixteen.
    pub fn from_slice(words: &[u32]) -> Result<Self, TooManyWords> {
        if words.len() > MAX_WORDS {
            return Err(TooManyWords { given: words.len() });
        }
        let mut all = Self::EMPTY;
        let mut writer = Writer { words: &mut all };
        words.iter().for_each(|word| writer.put_u32(*word));
        Ok(all)
    }

    /// Rebuilds words from the pairs of a received frame: `len` words, of which a transport got
    /// `len.div_ceil(2)` pairs. Missing pairs read as zero.
    ///
    /// # Errors
    /// [`TooManyWords`] beyond sixteen.
    #[inline]
    pub fn from_pairs(len: usize, pairs: impl Iterator<Item = u64>) -> Result<Self, TooManyWords> {
        let mut all = Self::EMPTY;
        all.refill(len, pairs)?;
        Ok(all)
    }

    /// [`Words::from_pairs`] in place: a transport that reads many messages in a row need not copy them.
    ///
    /// # Errors
    /// [`TooManyWords`] beyond sixteen; nothing has changed then.
    #[inline]
    pub fn refill(&mut self, len: usize, pairs: impl Iterator<Item = u64>) -> Result<(), TooManyWords> {
        if len > MAX_WORDS {
            return Err(TooManyWords { given: len });
        }
        self.pairs = [0; MAX_WORDS / 2];
        self.len = len as u8;
        let mut room = self.pairs.iter_mut();
        for from in pairs {
            let Some(to) = room.next() else { break };
            *to = from;
        }
        Ok(())
    }

    /// Rebuilds words from the bytes that [`Words::to_le_bytes`] gave, four for each.
    ///
    /// # Errors
    /// [`TooManyWords`] beyond sixteen.
    #[inline]
    pub fn from_le_bytes(bytes: &[u8]) -> Result<Self, TooManyWords> {
        let pair = |pair: &[u8]| {
            let mut all = [0; 8];
            all[..pair.len()].copy_from_slice(pair);
            u64::from_le_bytes(all)
        };
        Self::from_pairs(bytes.len() / 4, bytes.chunks(8).map(pair))
    }

    /// The words in little-endian order, four bytes each; the rest is zero.
    #[inline]
    pub fn to_le_bytes(&self) -> [u8; 4 * MAX_WORDS] {
        let mut bytes = [0; 4 * MAX_WORDS];
        for (to, pair) in bytes.chunks_exact_mut(8).zip(self.pairs()) {
            to.copy_from_slice(&pair.to_le_bytes());
        }
        bytes
    }

    /// Number of words, 0 to 16.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Word number `index`, or `None` past the end.
    #[inline]
    pub fn word(&self, index: usize) -> Option<u32> {
        (index < self.len()).then(|| (self.pairs[index / 2] >> (32 * (index % 2))) as u32)
    }

    /// The words, one by one.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len()).filter_map(|index| self.word(index))
    }

    /// The words as the little-endian pairs that frames carry; `len().div_ceil(2)` of them.
    #[inline]
    pub fn pairs(&self) -> &[u64] {
        &self.pairs[..self.len().div_ceil(2)]
    }
}

/// Appends words to a [`Words`] in [`Arguments::store`].
#[derive(Debug)]
pub struct Writer<'a> {
    words: &'a mut Words,
}

impl Writer<'_> {
    /// Appends one word.
    ///
    /// # Panics
    /// Beyond sixteen words, which [`Arguments::WORDS`] rules out at compile time for a truthful implementation.
    #[inline(always)]
    pub fn put_u32(&mut self, value: u32) {
        let at = self.words.len();
        assert!(at < MAX_WORDS, "an Arguments implementation stored more words than it declared");
        self.words.pairs[at / 2] |= u64::from(value) << (32 * (at % 2));
        self.words.len += 1;
    }

    /// Appends two words, low half first.
    ///
    /// # Panics
    /// Beyond sixteen words, as [`Writer::put_u32`].
    #[inline(always)]
    pub fn put_u64(&mut self, value: u64) {
        let at = self.words.len();
        if at.is_multiple_of(2) {
            assert!(at < MAX_WORDS, "an Arguments implementation stored more words than it declared");
            self.words.pairs[at / 2] = value;
            self.words.len += 2;
        } else {
            self.put_u32(value as u32);
            self.put_u32((value >> 32) as u32);
        }
    }
}

/// Takes words out of a [`Words`] in [`Arguments::load`]; past the end it yields zeros.
#[derive(Debug)]
pub struct Reader<'a> {
    words: &'a Words,
    at: usize,
}

impl Reader<'_> {
    /// The next word.
    #[inline(always)]
    pub fn take_u32(&mut self) -> u32 {
        let value = self.words.word(self.at).unwrap_or(0);
        self.at += 1;
        value
    }

    /// The next two words, low half first.
    #[inline(always)]
    pub fn take_u64(&mut self) -> u64 {
        if self.at.is_multiple_of(2) && self.at < MAX_WORDS {
            let value = self.words.pairs[self.at / 2];
            self.at += 2;
            return value;
        }
        let low = u64::from(self.take_u32());
        low | u64::from(self.take_u32()) << 32
    }

    /// How many words are left.
    #[inline]
    pub fn left(&self) -> usize {
        self.words.len().saturating_sub(self.at)
    }
}

/// Values that travel as handler arguments.
///
/// Implemented for `()`, the 32- and 64-bit numbers, `bool`, arrays of up to sixteen `u32`, tuples of up to six of
/// these, [`Plain`] structures, and [`Words`] for a dynamic number of words. Types of more than sixteen words do
/// not compile as arguments, neither where a handler is registered nor where a message is sent.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not travel as handler arguments",
    label = "not made of 32- and 64-bit numbers",
    note = "text and lists travel as the payload of a Medium or Long message",
    note = "use `u64` or `u32` for `usize`, and `Plain<T>` for a structure"
)]
pub trait Arguments: Sized {
    /// Number of 32-bit words of a value; the maximum if [`Arguments::EXACT`] is false.
    const WORDS: usize;
    /// Whether every value has exactly [`Arguments::WORDS`] words.
    const EXACT: bool = true;

    /// Appends the value's words.
    fn store(&self, writer: &mut Writer<'_>);

    /// Reads a value back from exactly the words that `store` wrote.
    fn load(reader: &mut Reader<'_>) -> Self;

    /// A short text that tells this type from others when ranks compare their handler tables.
    fn signature() -> String;
}

/// The words of a value.
#[inline(always)]
pub fn encode<A: Arguments>(value: &A) -> Words {
    const { assert!(A::WORDS <= MAX_WORDS, "arguments of more than sixteen 32-bit words: send the rest as payload") };
    let mut words = Words::EMPTY;
    value.store(&mut Writer { words: &mut words });
    words
}

/// The value that words stand for, or `None` if their number does not fit the type.
#[inline(always)]
pub fn decode<A: Arguments>(words: &Words) -> Option<A> {
    if A::EXACT && words.len() != A::WORDS {
        return None;
    }
    Some(A::load(&mut Reader { words, at: 0 }))
}

macro_rules! number {
    ($($type:ty, $words:expr, $put:ident, $take:ident, $to:expr, $from:expr;)*) => {$(
        impl Arguments for $type {
            const WORDS: usize = $words;
            #[inline(always)]
            fn store(&self, writer: &mut Writer<'_>) {
                writer.$put($to(*self));
            }
            #[inline(always)]
            fn load(reader: &mut Reader<'_>) -> Self {
                $from(reader.$take())
            }
            fn signature() -> String {
                stringify!($type).into()
            }
        }
    )*};
}

number! {
    u32, 1, put_u32, take_u32, |v| v, |v| v;
    i32, 1, put_u32, take_u32, |v: i32| v as u32, |v: u32| v as i32;
    f32, 1, put_u32, take_u32, f32::to_bits, f32::from_bits;
    bool, 1, put_u32, take_u32, u32::from, |v| v != 0;
    u64, 2, put_u64, take_u64, |v| v, |v| v;
    i64, 2, put_u64, take_u64, |v: i64| v as u64, |v: u64| v as i64;
    f64, 2, put_u64, take_u64, f64::to_bits, f64::from_bits;
}

impl Arguments for () {
    const WORDS: usize = 0;
    #[inline(always)]
    fn store(&self, _: &mut Writer<'_>) {}
    #[inline(always)]
    fn load(_: &mut Reader<'_>) -> Self {}
    fn signature() -> String {
        "()".into()
    }
}

impl<const N: usize> Arguments for [u32; N] {
    const WORDS: usize = N;
    #[inline(always)]
    fn store(&self, writer: &mut Writer<'_>) {
        self.iter().for_each(|word| writer.put_u32(*word));
    }
    #[inline(always)]
    fn load(reader: &mut Reader<'_>) -> Self {
        std::array::from_fn(|_| reader.take_u32())
    }
    fn signature() -> String {
        format!("[u32; {N}]")
    }
}

impl Arguments for Words {
    const WORDS: usize = MAX_WORDS;
    const EXACT: bool = false;
    #[inline(always)]
    fn store(&self, writer: &mut Writer<'_>) {
        *writer.words = *self;
    }
    #[inline(always)]
    fn load(reader: &mut Reader<'_>) -> Self {
        let all = *reader.words;
        reader.at = all.len();
        all
    }
    fn signature() -> String {
        "words".into()
    }
}

macro_rules! tuple {
    ($($name:ident $index:tt),+) => {
        impl<$($name: Arguments),+> Arguments for ($($name,)+) {
            const WORDS: usize = {
                assert!($($name::EXACT)&&+, "a dynamic number of words cannot be part of a tuple");
                0 $(+ $name::WORDS)+
            };
            #[inline(always)]
            fn store(&self, writer: &mut Writer<'_>) {
                $(self.$index.store(writer);)+
            }
            #[inline(always)]
            fn load(reader: &mut Reader<'_>) -> Self {
                ($($name::load(reader),)+)
            }
            fn signature() -> String {
                let parts: Vec<String> = vec![$($name::signature()),+];
                format!("({})", parts.join(", "))
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);

/// A plain-old-data structure as handler arguments; its size must be at most 64 bytes.
///
/// The structure implements [`FromBytes`], [`IntoBytes`] and [`Immutable`] of the crate `zerocopy`, which derives
/// them for structures without padding. It is re-exported as [`am_core::zerocopy`](crate::zerocopy), so that its
/// version fits; the derived code must be told its place, as here. (A program that depends on the same version of
/// `zerocopy` itself needs no `zerocopy(crate = ..)`.)
///
/// ```
/// use am_core::arguments::{Plain, decode, encode};
/// use am_core::zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
/// #[zerocopy(crate = "am_core::zerocopy")]
/// #[repr(C)]
/// struct Update { index: u64, value: u32, flags: u32 }
///
/// let update = Update { index: 7, value: 9, flags: 1 };
/// let words = encode(&Plain(update));
/// assert_eq!(words.len(), 4);
/// assert_eq!(decode::<Plain<Update>>(&words), Some(Plain(update)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plain<T>(pub T);

impl<T: FromBytes + IntoBytes + Immutable> Arguments for Plain<T> {
    const WORDS: usize = size_of::<T>().div_ceil(4);
    #[inline(always)]
    fn store(&self, writer: &mut Writer<'_>) {
        for chunk in self.0.as_bytes().chunks(4) {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            writer.put_u32(u32::from_le_bytes(word));
        }
    }
    #[inline(always)]
    fn load(reader: &mut Reader<'_>) -> Self {
        let mut bytes = [0; MAX_WORDS * 4];
        for chunk in bytes[..Self::WORDS * 4].chunks_exact_mut(4) {
            chunk.copy_from_slice(&reader.take_u32().to_le_bytes());
        }
        let value = T::read_from_bytes(&bytes[..size_of::<T>()]);
        Self(value.expect("the slice has the structure's size"))
    }
    fn signature() -> String {
        format!("{}:{}", std::any::type_name::<T>(), size_of::<T>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round<A: Arguments + PartialEq + std::fmt::Debug>(value: A, words: usize) {
        let encoded = encode(&value);
        assert_eq!(encoded.len(), words);
        let received = Words::from_pairs(encoded.len(), encoded.pairs().iter().copied()).unwrap();
        assert_eq!(decode::<A>(&received), Some(value));
    }

    #[test]
    fn every_kind_of_argument_survives() {
        round((), 0);
        round(7u32, 1);
        round(-7i64, 2);
        round((1u32, u64::MAX - 5, -3i32), 4);
        round((1u32, (2.5f64, true), [3u32; 4]), 8);
        round([9u32; 16], 16);
        round(Words::from_slice(&[1, 2, 3]).unwrap(), 3);
    }

    #[test]
    fn a_wrong_count_is_refused() {
        assert_eq!(decode::<u64>(&encode(&1u32)), None);
        assert_eq!(decode::<()>(&encode(&1u32)), None);
        assert_eq!(Words::from_slice(&[0; 17]), Err(TooManyWords { given: 17 }));
    }

    proptest! {
        #[test]
        fn any_words_survive(words in prop::collection::vec(any::<u32>(), 0..=16)) {
            let all = Words::from_slice(&words).unwrap();
            prop_assert_eq!(all.iter().collect::<Vec<_>>(), words);
        }
    }
}
