//! Atomic operations on words of segments: the same ones whether the processor, a network interface or a handler
//! does them.
//!
//! The set is that of GASNet-EX's remote atomics (GASNet-EX API, "Remote Atomics"): reads, writes, swaps,
//! arithmetic, minimum and maximum, bits, and compare-and-swap, on 32- and 64-bit integers and floating-point
//! numbers.

use crate::segment::{Memory, Segment, SegmentError};
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that remote atomics work on: `u32`, `i32`, `u64`, `i64`, `f32` or `f64`.
pub trait AtomicValue: Copy + PartialEq + std::fmt::Debug + sealed::Sealed {
    /// Which of them it is.
    const KIND: AtomicKind;

    /// The value's bits, in the low half for 32-bit types.
    fn to_bits(self) -> u64;

    /// The value of some bits.
    fn from_bits(bits: u64) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

/// The type of an atomic's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicKind {
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// Floating-point, 32 bits.
    F32,
    /// Floating-point, 64 bits.
    F64,
}

/// What an atomic does with a value of a segment. Every one of them yields the value that was there before.
///
/// Integers wrap. Bit operations on floating-point numbers are an error
/// ([`OneSidedError::Unsupported`](super::OneSidedError::Unsupported)). Floating-point compare-and-swap compares
/// bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AtomicOp<V> {
    /// Reads.
    Get,
    /// Replaces.
    Swap(V),
    /// Adds.
    Add(V),
    /// Subtracts.
    Sub(V),
    /// Multiplies.
    Mul(V),
    /// Keeps the smaller.
    Min(V),
    /// Keeps the larger.
    Max(V),
    /// Adds one.
    Inc,
    /// Subtracts one.
    Dec,
    /// Keeps common bits.
    And(V),
    /// Sets bits.
    Or(V),
    /// Flips bits.
    Xor(V),
    /// Replaces one particular value.
    CompareSwap {
        /// What must be there.
        expected: V,
        /// What is there then.
        new: V,
    },
}

/// An atomic operation with its operands as bits: what transports carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// Type of the operands.
    pub kind: AtomicKind,
    /// The operation.
    pub code: AtomicCode,
    /// The operand, where the operation has one; what is stored by a compare-and-swap.
    pub operand: u64,
    /// What a compare-and-swap compares with.
    pub expected: u64,
}

/// An atomic operation without its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicCode {
    /// [`AtomicOp::Get`].
    Get,
    /// [`AtomicOp::Swap`].
    Swap,
    /// [`AtomicOp::Add`] and [`AtomicOp::Inc`].
    Add,
    /// [`AtomicOp::Sub`] and [`AtomicOp::Dec`].
    Sub,
    /// [`AtomicOp::Mul`].
    Mul,
    /// [`AtomicOp::Min`].
    Min,
    /// [`AtomicOp::Max`].
    Max,
    /// [`AtomicOp::And`].
    And,
    /// [`AtomicOp::Or`].
    Or,
    /// [`AtomicOp::Xor`].
    Xor,
    /// [`AtomicOp::CompareSwap`].
    CompareSwap,
}

const KINDS: [AtomicKind; 6] =
    [AtomicKind::U32, AtomicKind::I32, AtomicKind::U64, AtomicKind::I64, AtomicKind::F32, AtomicKind::F64];

const CODES: [AtomicCode; 11] = [
    AtomicCode::Get,
    AtomicCode::Swap,
    AtomicCode::Add,
    AtomicCode::Sub,
    AtomicCode::Mul,
    AtomicCode::Min,
    AtomicCode::Max,
    AtomicCode::And,
    AtomicCode::Or,
    AtomicCode::Xor,
    AtomicCode::CompareSwap,
];

impl AtomicKind {
    /// Size of a value in bytes, 4 or 8, which is also its alignment.
    pub const fn size(self) -> u64 {
        match self {
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Whether the values are floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

impl Atomic {
    /// An operation on values of type `V`.
    #[inline]
    pub fn new<V: AtomicValue + Number>(op: AtomicOp<V>) -> Self {
        let (code, operand, expected) = match op {
            AtomicOp::Get => (AtomicCode::Get, 0, 0),
            AtomicOp::Swap(value) => (AtomicCode::Swap, value.to_bits(), 0),
            AtomicOp::Add(value) => (AtomicCode::Add, value.to_bits(), 0),
            AtomicOp::Sub(value) => (AtomicCode::Sub, value.to_bits(), 0),
            AtomicOp::Mul(value) => (AtomicCode::Mul, value.to_bits(), 0),
            AtomicOp::Min(value) => (AtomicCode::Min, value.to_bits(), 0),
            AtomicOp::Max(value) => (AtomicCode::Max, value.to_bits(), 0),
            AtomicOp::Inc => (AtomicCode::Add, V::ONE.to_bits(), 0),
            AtomicOp::Dec => (AtomicCode::Sub, V::ONE.to_bits(), 0),
            AtomicOp::And(value) => (AtomicCode::And, value.to_bits(), 0),
            AtomicOp::Or(value) => (AtomicCode::Or, value.to_bits(), 0),
            AtomicOp::Xor(value) => (AtomicCode::Xor, value.to_bits(), 0),
            AtomicOp::CompareSwap { expected, new } => {
                (AtomicCode::CompareSwap, new.to_bits(), expected.to_bits())
            }
        };
        Self { kind: V::KIND, code, operand, expected }
    }

    /// Whether values of this kind have this operation.
    #[inline]
    pub const fn is_supported(&self) -> bool {
        !(self.kind.is_float() && matches!(self.code, AtomicCode::And | AtomicCode::Or | AtomicCode::Xor))
    }

    /// Adds one to a 64-bit counter.
    pub const fn increment() -> Self {
        Self { kind: AtomicKind::U64, code: AtomicCode::Add, operand: 1, expected: 0 }
    }

    /// Every operation of every kind, without operands; some of them [are not supported](Self::is_supported).
    pub(crate) fn every() -> impl Iterator<Item = Self> {
        let of = |code: AtomicCode| KINDS.map(|kind| Self { kind, code, operand: 0, expected: 0 });
        CODES.into_iter().flat_map(of)
    }

    /// Kind and operation as a number for a message.
    pub fn number(&self) -> u32 {
        let code = CODES.iter().position(|code| *code == self.code).unwrap_or(0);
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0);
        (code * KINDS.len() + kind) as u32
    }

    /// The operation that a message names, or `None` if there is no such or its kind does not have it.
    pub fn from_number(number: u32, operand: u64, expected: u64) -> Option<Self> {
        let (code, kind) = (number as usize / KINDS.len(), number as usize % KINDS.len());
        let atomic = Self { kind: KINDS[kind], code: *CODES.get(code)?, operand, expected };
        atomic.is_supported().then_some(atomic)
    }

    /// What is stored where `old` was.
    #[inline]
    pub fn apply(&self, old: u64) -> u64 {
        match self.kind {
            AtomicKind::U32 => self.apply_to::<u32>(old),
            AtomicKind::I32 => self.apply_to::<i32>(old),
            AtomicKind::U64 => self.apply_to::<u64>(old),
            AtomicKind::I64 => self.apply_to::<i64>(old),
            AtomicKind::F32 => self.apply_to::<f32>(old),
            AtomicKind::F64 => self.apply_to::<f64>(old),
        }
    }

    #[inline]
    fn apply_to<V: AtomicValue + Number>(&self, old: u64) -> u64 {
        let (value, operand) = (V::from_bits(old), V::from_bits(self.operand));
        let new = match self.code {
            AtomicCode::Get => return old,
            AtomicCode::Swap => return self.operand,
            AtomicCode::And => return old & self.operand,
            AtomicCode::Or => return old | self.operand,
            AtomicCode::Xor => return old ^ self.operand,
            AtomicCode::CompareSwap => return if old == self.expected { self.operand } else { old },
            AtomicCode::Add => value.plus(operand),
            AtomicCode::Sub => value.minus(operand),
            AtomicCode::Mul => value.times(operand),
            AtomicCode::Min => value.least(operand),
            AtomicCode::Max => value.most(operand),
        };
        new.to_bits()
    }
}

/// Arithmetic of atomics.
pub trait Number: Copy {
    /// One.
    const ONE: Self;
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// The difference; integers wrap.
    fn minus(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn times(self, other: Self) -> Self;
    /// The smaller.
    fn least(self, other: Self) -> Self;
    /// The larger.
    fn most(self, other: Self) -> Self;
}

macro_rules! values {
    ($(
        $type:ident, $kind:ident, $to:expr, $from:expr, $one:expr, $plus:ident, $minus:ident, $times:ident;
    )*) => {$(
        impl sealed::Sealed for $type {}

        impl AtomicValue for $type {
            const KIND: AtomicKind = AtomicKind::$kind;
            #[inline]
            fn to_bits(self) -> u64 {
                $to(self)
            }
            #[inline]
            fn from_bits(bits: u64) -> Self {
                $from(bits)
            }
        }

        impl Number for $type {
            const ONE: Self = $one;
            #[inline]
            fn plus(self, other: Self) -> Self {
                self.$plus(other)
            }
            #[inline]
            fn minus(self, other: Self) -> Self {
                self.$minus(other)
            }
            #[inline]
            fn times(self, other: Self) -> Self {
                self.$times(other)
            }
            #[inline]
            fn least(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline]
            fn most(self, other: Self) -> Self {
                self.max(other)
            }
        }
    )*};
}

use std::ops::{Add as _, Mul as _, Sub as _};

values! {
    u32, U32, u64::from, |bits: u64| bits as u32, 1, wrapping_add, wrapping_sub, wrapping_mul;
    i32, I32, |v: i32| u64::from(v as u32), |bits: u64| bits as i32, 1, wrapping_add, wrapping_sub, wrapping_mul;
    u64, U64, |v: u64| v, |bits: u64| bits, 1, wrapping_add, wrapping_sub, wrapping_mul;
    i64, I64, |v: i64| v as u64, |bits: u64| bits as i64, 1, wrapping_add, wrapping_sub, wrapping_mul;
    f32, F32, |v: f32| u64::from(v.to_bits()), |bits: u64| f32::from_bits(bits as u32), 1.0, add, sub, mul;
    f64, F64, f64::to_bits, f64::from_bits, 1.0, add, sub, mul;
}

impl Atomic {
    /// Does the operation on a word of memory, whose value has 8 bytes, with the processor's own atomics, and
    /// returns what was there.
    #[inline]
    pub fn on_word(&self, word: &AtomicU64) -> u64 {
        on_word(word, self)
    }
}

#[inline]
fn on_word(word: &AtomicU64, atomic: &Atomic) -> u64 {
    // Acquire and Release: an atomic that sees another sees what its rank had put before.
    let (operand, order) = (atomic.operand, Ordering::AcqRel);
    match (atomic.kind, atomic.code) {
        (_, AtomicCode::Get) => word.load(Ordering::Acquire),
        (_, AtomicCode::Swap) => word.swap(operand, order),
        (AtomicKind::U64 | AtomicKind::I64, AtomicCode::Add) => word.fetch_add(operand, order),
        (AtomicKind::U64 | AtomicKind::I64, AtomicCode::Sub) => word.fetch_sub(operand, order),
        (AtomicKind::U64 | AtomicKind::I64, AtomicCode::And) => word.fetch_and(operand, order),
        (AtomicKind::U64 | AtomicKind::I64, AtomicCode::Or) => word.fetch_or(operand, order),
        (AtomicKind::U64 | AtomicKind::I64, AtomicCode::Xor) => word.fetch_xor(operand, order),
        (_, AtomicCode::CompareSwap) => {
            word.compare_exchange(atomic.expected, operand, order, Ordering::Acquire).unwrap_or_else(|found| found)
        }
        _ => update(word, |old| atomic.apply(old)),
    }
}

#[inline]
fn update(word: &AtomicU64, new: impl Fn(u64) -> u64) -> u64 {
    let updated = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(new(old)));
    updated.unwrap_or_else(|old| old)
}

impl<M: Memory> Segment<M> {
    /// Does an atomic operation on the value at a byte offset, with the processor's own atomics, and returns the
    /// bits that were there. Values lie in little-endian order.
    ///
    /// # Errors
    /// [`SegmentError`] outside the segment, or at an offset that is not a multiple of the value's size.
    #[inline]
    pub fn atomic(&self, offset: u64, atomic: &Atomic) -> Result<u64, SegmentError> {
        let size = atomic.kind.size();
        self.range(offset, size as usize)?;
        if !offset.is_multiple_of(size) {
            return Err(SegmentError::Misaligned { offset, alignment: size });
        }
        let word = &self.memory.words()[(offset / 8) as usize];
        if size == 8 {
            return Ok(atomic.on_word(word));
        }
        // Half a word: the other half keeps its value.
        let shift = 8 * (offset % 8);
        let half = |word: u64| (word >> shift) & u64::from(u32::MAX);
        if atomic.code == AtomicCode::Get {
            return Ok(half(word.load(Ordering::Acquire)));
        }
        let old = update(word, |old| {
            let new = atomic.apply(half(old)) & u64::from(u32::MAX);
            old & !(u64::from(u32::MAX) << shift) | new << shift
        });
        Ok(half(old))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback;
    use proptest::prelude::*;

    fn check<V: AtomicValue + Number>(offset: u64, before: V, op: AtomicOp<V>, after: V) {
        let segment = loopback::segment(16);
        segment.write(offset, &before.to_bits().to_le_bytes()[..V::KIND.size() as usize]).unwrap();
        let guard = if offset < 8 { 8 } else { 0 };
        segment.write(guard, &[0xaa; 8]).unwrap();
        let atomic = Atomic::new(op);
        assert_eq!(Atomic::from_number(atomic.number(), atomic.operand, atomic.expected), Some(atomic));
        assert_eq!(V::from_bits(segment.atomic(offset, &atomic).unwrap()), before, "{op:?}");
        assert_eq!(
            V::from_bits(segment.atomic(offset, &Atomic::new(AtomicOp::<V>::Get)).unwrap()),
            after,
            "{op:?}"
        );
        let mut rest = [0; 8];
        segment.read(guard, &mut rest).unwrap();
        assert_eq!(rest, [0xaa; 8], "{op:?} touches its value alone");
    }

    #[test]
    fn every_operation_on_every_kind() {
        check(4, 7u32, AtomicOp::Swap(9), 9);
        check(0, u32::MAX, AtomicOp::Inc, 0);
        check(4, 0u32, AtomicOp::Dec, u32::MAX);
        check(4, -3i32, AtomicOp::Min(2), -3);
        check(0, -3i32, AtomicOp::Max(2), 2);
        check(12, -3i32, AtomicOp::Mul(-2), 6);
        check(8, u64::MAX, AtomicOp::Add(2), 1);
        check(0, 1u64, AtomicOp::Sub(2), u64::MAX);
        check(0, 6u64, AtomicOp::And(3), 2);
        check(0, 6u64, AtomicOp::Or(3), 7);
        check(8, 6u64, AtomicOp::Xor(3), 5);
        check(8, 6u64, AtomicOp::Min(3), 3);
        check(0, -6i64, AtomicOp::Max(3), 3);
        check(0, -6i64, AtomicOp::CompareSwap { expected: -6, new: 1 }, 1);
        check(0, -6i64, AtomicOp::CompareSwap { expected: 6, new: 1 }, -6);
        check(4, 1.5f32, AtomicOp::Add(0.25), 1.75);
        check(0, 1.5f32, AtomicOp::CompareSwap { expected: 1.5, new: -0.0 }, -0.0);
        check(8, 1.5f64, AtomicOp::Mul(-2.0), -3.0);
        check(0, 1.5f64, AtomicOp::Inc, 2.5);
        check(0, 1.5f64, AtomicOp::Min(f64::INFINITY), 1.5);
    }

    #[test]
    fn places_and_operations_are_checked() {
        let segment = loopback::segment(12);
        let get = Atomic::new(AtomicOp::<u64>::Get);
        assert!(segment.atomic(0, &get).is_ok());
        assert_eq!(segment.atomic(8, &get), Err(SegmentError::OutOfRange { offset: 8, len: 8, segment: 12 }));
        assert_eq!(segment.atomic(4, &get), Err(SegmentError::Misaligned { offset: 4, alignment: 8 }));
        let half = Atomic::new(AtomicOp::<f32>::Get);
        assert!(segment.atomic(8, &half).is_ok());
        assert_eq!(segment.atomic(6, &half), Err(SegmentError::Misaligned { offset: 6, alignment: 4 }));
        assert!(segment.atomic(u64::MAX - 3, &half).is_err());
        assert!(!Atomic::new(AtomicOp::Xor(1.0f64)).is_supported());
    }

    proptest! {
        #[test]
        fn any_number_is_an_operation_or_refused(number: u32, operand: u64, expected: u64, old: u64) {
            for number in [number, number % 70] {
                if let Some(atomic) = Atomic::from_number(number, operand, expected) {
                    prop_assert_eq!(atomic.number(), number);
                    atomic.apply(old);
                }
            }
        }
    }
}
