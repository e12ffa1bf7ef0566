//! How collective operations combine elements: operators.

use super::schedule::Side;
use crate::pointer::Element;

/// Combines two operands. It must be associative; reductions of floating-point numbers, which are not quite, give
/// the same bits whenever teams, counts and [`Tuning`](super::Tuning) are the same.
///
/// [`Sum`] and its like are operators, and so are functions `Fn(T, T) -> T`, which count as commutative; those
/// that are not stand in [`Ordered`].
pub trait Operator<T>: Send + 'static {
    /// `left op right`, where `left` comes from lower positions in the team.
    fn combine(&self, left: T, right: T) -> T;

    /// The operator's name, by which members find that they called different ones (see [`Call`](super::Call)):
    /// that of its type; all functions have the same. It has to be the same on all members.
    #[inline]
    fn name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Whether operands may be combined in another order than that of positions. The association is fixed all the
    /// same.
    fn commutes(&self) -> bool {
        true
    }
}

impl<T, F: Fn(T, T) -> T + Send + 'static> Operator<T> for F {
    fn combine(&self, left: T, right: T) -> T {
        self(left, right)
    }

    #[inline]
    fn name(&self) -> &'static str {
        "function"
    }
}

/// An operator whose operands stay in the order of positions, however many elements there are and wherever the
/// ranks run: for operators that do not commute, and for results whose bits depend on the number of members alone.
#[derive(Clone, Copy, Debug)]
pub struct Ordered<F>(pub F);

impl<T, O: Operator<T>> Operator<T> for Ordered<O> {
    fn combine(&self, left: T, right: T) -> T {
        self.0.combine(left, right)
    }

    #[inline]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn commutes(&self) -> bool {
        false
    }
}

macro_rules! operators {
    ($($(#[$about:meta])* $name:ident: $([$($value:ty)*] $combine:expr;)*)*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        $($(
            impl Operator<$value> for $name {
                #[inline]
                fn combine(&self, left: $value, right: $value) -> $value {
                    let combine: fn($value, $value) -> $value = $combine;
                    combine(left, right)
                }

                #[inline]
                fn name(&self) -> &'static str {
                    stringify!($name)
                }
            }
        )*)*
    )*

        /// The names of operators that are shown.
        pub(super) const NAMES: [&str; 8] = ["function", $(stringify!($name)),*];
    };
}

operators! {
    /// The sum; of integers modulo their size.
    Sum: [u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize] |a, b| a.wrapping_add(b); [f32 f64] |a, b| a + b;
    /// The product; of integers modulo their size.
    Product:
        [u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize] |a, b| a.wrapping_mul(b); [f32 f64] |a, b| a * b;
    /// The smaller one; of floating-point numbers the one that is a number.
    Min: [u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize] |a, b| a.min(b); [f32 f64] |a, b| a.min(b);
    /// The larger one; of floating-point numbers the one that is a number.
    Max: [u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize] |a, b| a.max(b); [f32 f64] |a, b| a.max(b);
    /// Bitwise and.
    And: [u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize] |a, b| a & b;
    /// Bitwise or.
    Or: [u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize] |a, b| a | b;
    /// Bitwise exclusive or.
    Xor: [u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize] |a, b| a ^ b;
}

/// An operator on elements as bytes: the first slice becomes the combination with the second, which stands on a
/// side.
pub(crate) type Fold = Box<dyn Fn(&mut [u8], &[u8], Side) + Send>;

/// An operator over bytes. Allocates only if the operator holds data.
pub(crate) fn fold<T: Element, O: Operator<T>>(operator: O) -> Fold {
    let value = |bytes: &[u8]| T::read_from_bytes(bytes).expect("a chunk has the size of an element");
    Box::new(move |mine, other, side| {
        let pairs = mine.chunks_exact_mut(size_of::<T>()).zip(other.chunks_exact(size_of::<T>()));
        match side {
            Side::Left => pairs.for_each(|(mine, other)| {
                mine.copy_from_slice(operator.combine(value(other), value(mine)).as_bytes());
            }),
            Side::Right => pairs.for_each(|(mine, other)| {
                mine.copy_from_slice(operator.combine(value(mine), value(other)).as_bytes());
            }),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use am_core::zerocopy::IntoBytes;

    #[test]
    fn operators_combine_bytes_on_either_side() {
        let minus = fold::<u64, _>(Ordered(|a: u64, b: u64| a - b));
        for (side, expected) in [(Side::Right, [5u64, 6]), (Side::Left, [u64::MAX - 4, u64::MAX - 5])] {
            let minus: Fold = match side {
                Side::Right => fold::<u64, _>(Ordered(|a: u64, b: u64| a - b)),
                Side::Left => fold::<u64, _>(Ordered(|a: u64, b: u64| a.wrapping_sub(b))),
            };
            let mut mine = [9u64, 10];
            minus(mine.as_mut_bytes(), [4u64, 4].as_bytes(), side);
            assert_eq!(mine, expected);
        }
        let mut mine = [7u64];
        minus(mine.as_mut_bytes(), [2u64].as_bytes(), Side::Right);
        assert_eq!(mine, [5]);
    }

    #[test]
    fn functions_commute_unless_ordered() {
        assert!(Operator::<u64>::commutes(&Sum));
        assert!(Operator::<u64>::commutes(&|a: u64, b: u64| a + b));
        assert!(!Operator::<f64>::commutes(&Ordered(Sum)));
        assert_eq!((Sum.combine(u8::MAX, 2u8), Min.combine(f64::NAN, 1.0f64), Xor.combine(6u32, 5)), (1, 1.0, 3));
    }
}
