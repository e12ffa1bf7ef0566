//! Types of elements, as messages name them.

use am_pgas::pointer::Element;
use std::any::TypeId;
use std::fmt;

/// The type of a message's elements, as far as messages tell it: a number type, or the size of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ElementType(u32);

/// Bits of the size; larger elements are told as the largest that fits.
const SIZE: u32 = 20;

const NAMES: [&str; 15] = [
    "other", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "u128", "i128", "usize", "isize", "f32", "f64",
];

/// The code of values of any type that serde knows.
const SERDE: u32 = NAMES.len() as u32;

impl ElementType {
    /// The type of elements.
    #[inline]
    pub fn of<V: Element>() -> Self {
        macro_rules! code {
            ($($type:ty)*) => {{
                let own = TypeId::of::<V>();
                let others = [$(TypeId::of::<$type>()),*];
                // Known when the program is compiled.
                let mut code = 0;
                let mut index = 0;
                while index < others.len() {
                    if own == others[index] {
                        code = index as u32 + 1;
                    }
                    index += 1;
                }
                code
            }};
        }
        let code: u32 = code!(u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize f32 f64);
        Self(code << SIZE | (size_of::<V>() as u32).min((1 << SIZE) - 1))
    }

    /// A value that serde has turned into bytes.
    #[cfg(feature = "serde")]
    pub(crate) const fn serialized() -> Self {
        Self(SERDE << SIZE | 1)
    }

    pub(crate) const fn from_number(number: u32) -> Self {
        Self(number)
    }

    #[inline]
    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    /// Bytes of an element.
    pub const fn size(self) -> u32 {
        self.0 & ((1 << SIZE) - 1)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 >> SIZE {
            0 => write!(f, "elements of {} byte(s)", self.size()),
            SERDE => f.write_str("a serialized value"),
            code => f.write_str(NAMES.get(code as usize).copied().unwrap_or("an unknown type")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_differ() {
        let of = [
            ElementType::of::<u8>(),
            ElementType::of::<f32>(),
            ElementType::of::<u32>(),
            ElementType::of::<f64>(),
            ElementType::of::<[f32; 2]>(),
        ];
        assert_eq!(of[0].number(), crate::machine::BYTES);
        assert_eq!(of.map(ElementType::size), [1, 4, 4, 8, 8]);
        assert_eq!(of.map(|of| of.to_string()), ["u8", "f32", "u32", "f64", "elements of 8 byte(s)"]);
        assert_eq!(ElementType::from_number(SERDE << SIZE | 1).to_string(), "a serialized value");
    }
}
