//! How messages and manifests become bytes: what launchers, agents and ranks that meet by themselves say to each
//! other.
//!
//! The form is that of postcard 1 (<https://postcard.jamesmunns.com/wire-format>): integers of more than one byte
//! have a variable length (LEB128; signed ones in zigzag form), sequences and texts follow their length, options
//! and variants follow a byte that names them, and structures are their fields one after the other. The messages
//! are few, so [`wire!`] writes the code from a list of fields; a derive macro and its parser would be five more
//! crates in every program.
//!
//! Bytes from others are decoded without a panic, in memory of a small multiple of their length: 24 times at most,
//! for a list of arguments that are all empty. What postcard takes and nobody writes is refused: integers with
//! more bytes than they need. So what is decoded has the same bytes when it is encoded again.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use zeroize::Zeroizing;

/// What can be part of a message.
pub(crate) trait Wire: Sized {
    /// Hands its bytes to `to`, piece by piece.
    fn put(&self, to: &mut dyn FnMut(&[u8]));

    /// Takes one off the front of `from`; `None` if that begins with none.
    fn take(from: &mut &[u8]) -> Option<Self>;

    /// The items of a sequence.
    fn put_all(items: &[Self], to: &mut dyn FnMut(&[u8])) {
        items.iter().for_each(|item| item.put(to));
    }

    /// `count` items of a sequence. Nothing has less than a byte, so `count` is at most the length of `from`.
    fn take_all(count: usize, from: &mut &[u8]) -> Option<Vec<Self>> {
        // Grown as items come: an item in memory may be many times as long as in its message.
        (0..count).map(|_| Self::take(from)).collect()
    }
}

/// A message as bytes, which are wiped when dropped: it may have a secret in it. They are written at once to where
/// they stay, so that no part is left behind as it would be in a vector that grows.
pub(crate) fn encode(message: &impl Wire) -> Zeroizing<Vec<u8>> {
    let mut length = 0;
    message.put(&mut |bytes| length += bytes.len());
    let mut all = Zeroizing::new(Vec::with_capacity(length));
    message.put(&mut |bytes| all.extend_from_slice(bytes));
    all
}

/// The message of these bytes; `None` if they are none, or more than one.
pub(crate) fn decode<M: Wire>(mut bytes: &[u8]) -> Option<M> {
    M::take(&mut bytes).filter(|_| bytes.is_empty())
}

/// Implements [`Wire`] for a structure by its fields, or for an enumeration by its variants and their numbers.
macro_rules! wire {
    (struct $name:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::codec::Wire for $name {
            fn put(&self, to: &mut dyn FnMut(&[u8])) {
                $($crate::codec::Wire::put(&self.$field, to);)+
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: $crate::codec::Wire::take(from)?),+ })
            }
        }
    };
    (enum $name:ident {
        $($number:literal => $variant:ident $({ $($field:ident),+ })? $(($($item:ident),+))?),+ $(,)?
    }) => {
        impl $crate::codec::Wire for $name {
            fn put(&self, to: &mut dyn FnMut(&[u8])) {
                match self {
                    $(Self::$variant $({ $($field),+ })? $(($($item),+))? => {
                        to(&[$number]);
                        $($($crate::codec::Wire::put($field, to);)+)?
                        $($($crate::codec::Wire::put($item, to);)+)?
                    })+
                }
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                let number: u8 = $crate::codec::Wire::take(from)?;
                match number {
                    $($number => {
                        $($(let $field = $crate::codec::Wire::take(from)?;)+)?
                        $($(let $item = $crate::codec::Wire::take(from)?;)+)?
                        Some(Self::$variant $({ $($field),+ })? $(($($item),+))?)
                    })+
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use wire;

/// The first `count` bytes.
fn split<'a>(from: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    from.split_off(..count)
}

/// An integer of variable length: seven bits a byte, the lowest first; all bytes but the last have their highest
/// bit set.
fn put_number(mut number: u64, to: &mut dyn FnMut(&[u8])) {
    while number > 0x7f {
        to(&[number as u8 | 0x80]);
        number >>= 7;
    }
    to(&[number as u8]);
}

fn take_number(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = u8::take(from)?;
        let part = u64::from(byte & 0x7f);
        // Of the tenth byte one bit is left.
        if part << shift >> shift != part {
            return None;
        }
        number |= part << shift;
        if byte & 0x80 == 0 {
            // Every number has one form, so that every message has: a last byte of zero adds nothing.
            return (byte > 0 || shift == 0).then_some(number);
        }
    }
    None
}

/// The length of a sequence of which each item has a byte at least.
pub(crate) fn take_length(from: &mut &[u8]) -> Option<usize> {
    usize::try_from(take_number(from)?).ok().filter(|length| *length <= from.len())
}

impl Wire for u8 {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        to(&[*self]);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        from.split_off_first().copied()
    }

    fn put_all(items: &[Self], to: &mut dyn FnMut(&[u8])) {
        to(items);
    }

    fn take_all(count: usize, from: &mut &[u8]) -> Option<Vec<Self>> {
        Some(split(from, count)?.to_vec())
    }
}

impl Wire for bool {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        to(&[u8::from(*self)]);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        match u8::take(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

macro_rules! integers {
    ($($integer:ty),+) => {
        $(impl Wire for $integer {
            fn put(&self, to: &mut dyn FnMut(&[u8])) {
                put_number((*self).into(), to);
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                take_number(from)?.try_into().ok()
            }
        })+
    };
}
integers!(u16, u32, u64);

impl Wire for i32 {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        // The sign is the lowest bit.
        ((self << 1) ^ (self >> 31)).cast_unsigned().put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let number = u32::take(from)?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

impl<W: Wire> Wire for Option<W> {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        match bool::take(from)? {
            true => W::take(from).map(Some),
            false => Some(None),
        }
    }
}

impl<W: Wire> Wire for Vec<W> {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        put_number(self.len() as u64, to);
        W::put_all(self, to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let count = take_length(from)?;
        W::take_all(count, from)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        self.0.put(to);
        self.1.put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl<const LENGTH: usize> Wire for [u8; LENGTH] {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        const { assert!(LENGTH > 0, "a sequence of nothing has any length") };
        to(self);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        split(from, LENGTH)?.try_into().ok()
    }
}

impl Wire for String {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        put_number(self.len() as u64, to);
        to(self.as_bytes());
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Self::from_utf8(Wire::take(from)?).ok()
    }
}

impl Wire for OsString {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        // Of Unix, as serde counts the systems.
        to(&[0]);
        put_number(self.len() as u64, to);
        to(self.as_bytes());
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        (u8::take(from)? == 0).then(|| Wire::take(from).map(Self::from_vec))?
    }
}

impl Wire for PathBuf {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        put_number(self.as_os_str().len() as u64, to);
        to(self.as_os_str().as_bytes());
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(OsString::from_vec(Wire::take(from)?).into())
    }
}

impl Wire for IpAddr {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        match self {
            Self::V4(address) => (0u8, address.octets()).put(to),
            Self::V6(address) => (1u8, address.octets()).put(to),
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        match u8::take(from)? {
            0 => <[u8; 4]>::take(from).map(|octets| Ipv4Addr::from(octets).into()),
            1 => <[u8; 16]>::take(from).map(|octets| Ipv6Addr::from(octets).into()),
            _ => None,
        }
    }
}

/// Without what means something on one host alone: the scope of an IPv6 address.
impl Wire for SocketAddr {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        self.ip().put(to);
        self.port().put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        <(IpAddr, u16)>::take(from).map(Self::from)
    }
}

impl Wire for Duration {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        (self.as_secs(), self.subsec_nanos()).put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let (seconds, nanos) = <(u64, u32)>::take(from)?;
        (nanos < 1_000_000_000).then(|| Self::new(seconds, nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    /// The value has these bytes, and none of its beginnings is one.
    fn same<W: Wire + Debug + PartialEq>(value: W, bytes: &[u8]) {
        assert_eq!(*encode(&value), bytes, "{value:?}");
        assert_eq!(decode::<W>(bytes).as_ref(), Some(&value));
        for length in 0..bytes.len() {
            assert_eq!(decode::<W>(&bytes[..length]), None, "{length} bytes of {value:?}");
        }
        assert_eq!(decode::<W>(&[bytes, &[0]].concat()), None, "more than {value:?}");
    }

    #[derive(Debug, PartialEq)]
    struct Pair {
        first: u32,
        second: Option<String>,
    }
    wire!(struct Pair { first, second });

    #[derive(Debug, PartialEq)]
    enum Kind {
        Bare,
        Named { value: i32 },
        Two(u8, Vec<u8>),
    }
    wire!(enum Kind { 0 => Bare, 1 => Named { value }, 2 => Two(first, second) });

    #[test]
    fn values_have_the_bytes_of_postcard() {
        same(200u8, &[200]);
        same(127u16, &[0x7f]);
        same(128u16, &[0x80, 0x01]);
        same(u16::MAX, &[0xff, 0xff, 0x03]);
        same(u32::MAX, &[0xff, 0xff, 0xff, 0xff, 0x0f]);
        same(u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        for (number, bytes) in
            [(0, &[0][..]), (-1, &[1]), (1, &[2]), (63, &[0x7e]), (-64, &[0x7f]), (64, &[0x80, 1])]
        {
            same::<i32>(number, bytes);
        }
        same(i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]);
        same((true, false), &[1, 0]);
        same(vec![300u32, 1], &[2, 0xac, 0x02, 1]);
        same([7u8; 3], &[7; 3]);
        same(Pair { first: 5, second: Some("hé".into()) }, &[5, 1, 3, b'h', 0xc3, 0xa9]);
        same(Pair { first: 5, second: None }, &[5, 0]);
        same(Kind::Bare, &[0]);
        same(Kind::Named { value: -2 }, &[1, 3]);
        same(Kind::Two(9, vec![1, 2]), &[2, 9, 2, 1, 2]);
        same(OsString::from_vec(vec![0xff]), &[0, 1, 0xff]);
        same(PathBuf::from("/a"), &[2, b'/', b'a']);
        same(Duration::new(3, 999_999_999), &[3, 0xff, 0x93, 0xeb, 0xdc, 0x03]);
        same("10.0.0.1:80".parse::<SocketAddr>().unwrap(), &[0, 10, 0, 0, 1, 80]);
        let mut bytes = [0; 17];
        (bytes[0], bytes[16]) = (1, 1);
        same("::1".parse::<IpAddr>().unwrap(), &bytes);
    }

    #[test]
    fn wrong_values_are_refused() {
        assert_eq!(decode::<bool>(&[2]), None);
        assert_eq!(decode::<Option<u8>>(&[2, 0]), None);
        assert_eq!(decode::<u16>(&[0x80, 0x80, 0x04]), None, "65536");
        assert_eq!(decode::<u64>(&[[0x80; 9].as_slice(), &[2]].concat()), None, "2 to the 64");
        assert_eq!(decode::<u64>(&[[0x80; 10].as_slice(), &[0]].concat()), None, "eleven bytes");
        for long in [&[0x80, 0x00][..], &[0xff, 0x00], &[0x80, 0x80, 0x00], &[0x81, 0x80, 0x80, 0x00]] {
            assert_eq!(decode::<u16>(long), None, "more bytes than the number needs: {long:?}");
            assert_eq!(decode::<u64>(long), None, "{long:?}");
            assert_eq!(decode::<i32>(long), None, "{long:?}");
            assert_eq!(decode::<Vec<u8>>(&[long, &[0; 200]].concat()), None, "as a length: {long:?}");
        }
        assert_eq!(decode::<Kind>(&[3]), None);
        assert_eq!(decode::<String>(&[1, 0xff]), None);
        assert_eq!(decode::<IpAddr>(&[2, 0, 0, 0, 0]), None);
        assert_eq!(decode::<Duration>(&[0, 0x80, 0x94, 0xeb, 0xdc, 0x03]), None, "a second of nanoseconds");
    }

    #[test]
    fn numbers_have_one_form() {
        // All of up to five bytes at the limits.
        let alphabet = [0, 1, 0x0f, 0x10, 0x7f, 0x80, 0x81, 0xff];
        let mut taken = 0;
        for length in 1..6u32 {
            for mut index in 0..8usize.pow(length) {
                let mut bytes = [0; 5];
                for byte in &mut bytes[..length as usize] {
                    (*byte, index) = (alphabet[index % 8], index / 8);
                }
                let bytes = &bytes[..length as usize];
                if let Some(number) = decode::<u32>(bytes) {
                    taken += 1;
                    assert_eq!(&*encode(&number), bytes);
                }
                if let Some(number) = decode::<i32>(bytes) {
                    assert_eq!(&*encode(&number), bytes);
                }
            }
        }
        assert!(taken > 100, "{taken}");
    }

    #[test]
    fn lengths_that_are_not_there_take_no_memory() {
        let mut long = [0xff; 10];
        long[9] = 1;
        assert_eq!(decode::<Vec<u8>>(&long), None);
        assert_eq!(decode::<Vec<Vec<u8>>>(&long), None);
        assert_eq!(decode::<String>(&[&[0x80, 0x80, 0x04], "much shorter".as_bytes()].concat()), None);
    }
}
