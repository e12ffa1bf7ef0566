//! Atomic operations in domains: sets of operations that belong together.

use crate::array::{ArrayError, GlobalArray, Values};
use crate::pointer::{Element, GlobalPtr};
use am_core::one_sided::atomic::Number;
use am_core::one_sided::{
    Atomic, AtomicBatch, AtomicCode, AtomicKind, AtomicOp, AtomicValue, OneSided, OneSidedError, Operation, Output,
};
use am_core::{Endpoint, HasLayer, LossCause, Rank, Transport};
use std::fmt;
use std::marker::PhantomData;
use std::ops::BitOr;

/// A set of atomic operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operations(u16);

impl Operations {
    /// Reading.
    pub const GET: Self = Self::of(AtomicCode::Get);
    /// Replacing.
    pub const SWAP: Self = Self::of(AtomicCode::Swap);
    /// Adding, and adding one.
    pub const ADD: Self = Self::of(AtomicCode::Add);
    /// Subtracting, and subtracting one.
    pub const SUB: Self = Self::of(AtomicCode::Sub);
    /// Multiplying.
    pub const MUL: Self = Self::of(AtomicCode::Mul);
    /// Keeping the smaller.
    pub const MIN: Self = Self::of(AtomicCode::Min);
    /// Keeping the larger.
    pub const MAX: Self = Self::of(AtomicCode::Max);
    /// Keeping common bits.
    pub const AND: Self = Self::of(AtomicCode::And);
    /// Setting bits.
    pub const OR: Self = Self::of(AtomicCode::Or);
    /// Flipping bits.
    pub const XOR: Self = Self::of(AtomicCode::Xor);
    /// Replacing one particular value.
    pub const COMPARE_SWAP: Self = Self::of(AtomicCode::CompareSwap);
    /// Bits.
    const BITWISE: Self = Self(Self::AND.0 | Self::OR.0 | Self::XOR.0);

    /// The set of one operation.
    pub const fn of(code: AtomicCode) -> Self {
        Self(1 << code as u16)
    }

    /// Every operation that values of a kind have.
    pub const fn all(kind: AtomicKind) -> Self {
        let all = (1 << (AtomicCode::CompareSwap as u16 + 1)) - 1;
        Self(if kind.is_float() { all & !Self::BITWISE.0 } else { all })
    }

    /// Whether an operation is in the set.
    #[inline]
    pub const fn contains(self, code: AtomicCode) -> bool {
        self.0 & Self::of(code).0 != 0
    }
}

impl BitOr for Operations {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// An atomic operation through a domain could not be done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AtomicError {
    /// The domain was made without this operation.
    #[error("{code:?} is not among the operations of the atomic domain of {kind:?}")]
    NotInDomain {
        /// The operation.
        code: AtomicCode,
        /// The domain's type.
        kind: AtomicKind,
    },
    /// The operation failed.
    #[error(transparent)]
    Access(#[from] OneSidedError),
    /// A batch failed.
    #[error(transparent)]
    Batch(#[from] ArrayError),
}

impl AtomicError {
    /// The rank whose loss made the operation fail and how it was lost, if one did.
    pub fn loss(&self) -> Option<(Rank, LossCause)> {
        match self {
            Self::Access(error) => error.loss(),
            Self::Batch(error) => error.loss(),
            _ => None,
        }
    }

    /// The rank whose loss made the operation fail, if one did.
    pub fn lost_rank(&self) -> Option<Rank> {
        self.loss().map(|(rank, _)| rank)
    }
}

/// A type and the set of atomic operations that a program uses on some values of it (GASNet-EX API, "Remote
/// Atomics": `gex_AD_t`).
///
/// Operations of one domain on one value are coherent with each other however they travel, and so are those of
/// different domains of one type here. What else reads or writes the value meanwhile sees it before or after an
/// operation.
#[derive(Clone, Copy)]
pub struct AtomicDomain<V> {
    operations: Operations,
    of: PhantomData<fn() -> V>,
}

impl<V: AtomicValue> fmt::Debug for AtomicDomain<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AtomicDomain").field(&V::KIND).field(&self.operations).finish()
    }
}

impl<V: AtomicValue + Number + Output> AtomicDomain<V> {
    /// A domain of some operations on values of type `V`. No communication.
    ///
    /// # Errors
    /// [`OneSidedError::Unsupported`] for bit operations on floating-point numbers.
    pub fn new(operations: Operations) -> Result<Self, OneSidedError> {
        let bits = [AtomicCode::And, AtomicCode::Or, AtomicCode::Xor];
        match bits.into_iter().find(|code| V::KIND.is_float() && operations.contains(*code)) {
            Some(code) => Err(OneSidedError::Unsupported { code, kind: V::KIND }),
            None => Ok(Self { operations, of: PhantomData }),
        }
    }

    /// The operations.
    pub fn operations(&self) -> Operations {
        self.operations
    }

    #[inline]
    fn check(&self, op: AtomicOp<V>) -> Result<(), AtomicError> {
        self.check_code(Atomic::new(op).code)
    }

    #[inline]
    fn check_code(&self, code: AtomicCode) -> Result<(), AtomicError> {
        if self.operations.contains(code) { Ok(()) } else { Err(AtomicError::NotInDomain { code, kind: V::KIND }) }
    }

    /// Does an operation on a value and returns what was there.
    ///
    /// # Errors
    /// An operation that is not in the domain; as [`Endpoint::atomic`].
    #[inline]
    pub fn apply<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        at: GlobalPtr<V>,
        op: AtomicOp<V>,
    ) -> Result<V, AtomicError> {
        self.check(op)?;
        Ok(endpoint.atomic(at.rank(), at.offset(), op)?)
    }

    /// Begins an operation on a value; [`Endpoint::wait`] returns what was there.
    ///
    /// # Errors
    /// As [`AtomicDomain::apply`].
    pub fn apply_nb<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        at: GlobalPtr<V>,
        op: AtomicOp<V>,
    ) -> Result<Operation<V>, AtomicError> {
        self.check(op)?;
        Ok(endpoint.atomic_nb(at.rank(), at.offset(), op)?)
    }

    /// Begins an operation whose old value nobody needs; [`Endpoint::wait`] waits until it is done.
    ///
    /// # Errors
    /// As [`AtomicDomain::apply`].
    pub fn update_nb<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        at: GlobalPtr<V>,
        op: AtomicOp<V>,
    ) -> Result<Operation<()>, AtomicError> {
        let Atomic { code, operand, expected, .. } = Atomic::new(op);
        self.check_code(code)?;
        let (operand, expected) = ([V::from_bits(operand)], [V::from_bits(expected)]);
        let batch = AtomicBatch {
            code,
            operands: if code == AtomicCode::Get { &[] } else { &operand },
            expected: if code == AtomicCode::CompareSwap { &expected } else { &[] },
        };
        Ok(endpoint.updates_nb(at.rank(), at.offset(), &[0], &batch)?)
    }

    /// Begins an operation whose old value nobody needs; waited for by [`Endpoint::quiet`] or the access region
    /// that is open.
    ///
    /// # Errors
    /// As [`AtomicDomain::apply`].
    #[inline]
    pub fn apply_nbi<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        at: GlobalPtr<V>,
        op: AtomicOp<V>,
    ) -> Result<(), AtomicError> {
        self.check(op)?;
        Ok(endpoint.atomic_nbi(at.rank(), at.offset(), op)?)
    }
}

impl<V: AtomicValue + Number + Output + Element> AtomicDomain<V> {
    /// [`GlobalArray::batch_update`] with an operation of the domain.
    ///
    /// # Errors
    /// An operation that is not in the domain; as [`GlobalArray::batch_update`].
    pub fn batch_update<'v, T: Transport, S: HasLayer<OneSided>, const D: usize>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (array, indices): (&GlobalArray<V, D>, &[u64]),
        code: AtomicCode,
        values: impl Into<Values<'v, V>>,
    ) -> Result<(), AtomicError> {
        self.check_code(code)?;
        Ok(array.batch_update(endpoint, indices, code, values)?)
    }

    /// [`GlobalArray::batch_fetch`] with an operation of the domain.
    ///
    /// # Errors
    /// An operation that is not in the domain; as [`GlobalArray::batch_fetch`].
    pub fn batch_fetch<'v, T: Transport, S: HasLayer<OneSided>, const D: usize>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (array, indices): (&GlobalArray<V, D>, &[u64]),
        code: AtomicCode,
        values: impl Into<Values<'v, V>>,
        out: &mut [V],
    ) -> Result<(), AtomicError> {
        self.check_code(code)?;
        Ok(array.batch_fetch(endpoint, indices, code, values, out)?)
    }

    /// [`GlobalArray::batch_compare_exchange`], if the domain has [`Operations::COMPARE_SWAP`].
    ///
    /// # Errors
    /// An operation that is not in the domain; as [`GlobalArray::batch_compare_exchange`].
    pub fn batch_compare_exchange<'v, T: Transport, S: HasLayer<OneSided>, const D: usize>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (array, indices): (&GlobalArray<V, D>, &[u64]),
        expected: impl Into<Values<'v, V>>,
        new: impl Into<Values<'v, V>>,
        out: &mut [V],
    ) -> Result<(), AtomicError> {
        self.check_code(AtomicCode::CompareSwap)?;
        Ok(array.batch_compare_exchange(endpoint, indices, expected, new, out)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::GlobalMemory;
    use crate::on_ranks::on_ranks;
    use am_core::Rank;

    /// Batches obey the check of a domain.
    #[test]
    fn batches_obey_their_domain() {
        on_ranks(2, |endpoint| {
            let distribution = crate::array::distribution::Distribution::block([10], 2).unwrap();
            let array = GlobalArray::<u64>::new(endpoint, distribution).unwrap();
            let domain = AtomicDomain::<u64>::new(Operations::ADD).unwrap();
            domain.batch_update(endpoint, (&array, &[1, 2, 1]), AtomicCode::Add, 5).unwrap();
            endpoint.barrier().unwrap();
            let mut out = [0; 2];
            domain.batch_fetch(endpoint, (&array, &[1, 2]), AtomicCode::Add, 0, &mut out).unwrap();
            assert_eq!(out, [20, 10]);
            let refused = |code| Err(AtomicError::NotInDomain { code, kind: AtomicKind::U64 });
            let found = domain.batch_update(endpoint, (&array, &[1]), AtomicCode::Xor, 5);
            assert_eq!(found, refused(AtomicCode::Xor));
            let found = domain.batch_fetch(endpoint, (&array, &[1, 2]), AtomicCode::Get, 0, &mut out);
            assert_eq!(found, refused(AtomicCode::Get));
            let found = domain.batch_compare_exchange(endpoint, (&array, &[1, 2]), 20, 1, &mut out);
            assert_eq!(found, refused(AtomicCode::CompareSwap));
            array.free(endpoint).unwrap();
        });
    }

    #[test]
    fn domains_are_checked() {
        let bits = Err(OneSidedError::Unsupported { code: AtomicCode::Or, kind: AtomicKind::F32 });
        let domain = AtomicDomain::<f32>::new(Operations::OR | Operations::ADD);
        assert_eq!(domain.map(|domain| domain.operations()), bits);
        assert!(AtomicDomain::<f64>::new(Operations::all(AtomicKind::F64)).is_ok());
        assert!(Operations::all(AtomicKind::U32).contains(AtomicCode::Xor));
        on_ranks(3, |endpoint| {
            let domain = AtomicDomain::<i32>::new(Operations::ADD | Operations::MAX).unwrap();
            let at = GlobalPtr::new(Rank(0), 4);
            domain.apply_nbi(endpoint, at, AtomicOp::Inc).unwrap();
            endpoint.quiet().unwrap();
            let add = domain.apply_nb(endpoint, at, AtomicOp::Add(10)).unwrap();
            assert!(endpoint.wait(add).unwrap() >= 1);
            endpoint.barrier().unwrap();
            let refused = AtomicError::NotInDomain { code: AtomicCode::Get, kind: AtomicKind::I32 };
            assert_eq!(domain.apply(endpoint, at, AtomicOp::Get), Err(refused));
            assert_eq!(domain.apply(endpoint, at, AtomicOp::Max(0)), Ok(33));
            endpoint.barrier().unwrap();
            let update = domain.update_nb(endpoint, at, AtomicOp::Add(-1)).unwrap();
            endpoint.wait(update).unwrap();
            endpoint.barrier().unwrap();
            assert_eq!(domain.apply(endpoint, at, AtomicOp::Max(0)), Ok(30));
            let swap = domain.update_nb(endpoint, at, AtomicOp::Swap(1)).err();
            assert_eq!(swap, Some(AtomicError::NotInDomain { code: AtomicCode::Swap, kind: AtomicKind::I32 }));
            let all = AtomicDomain::<i32>::new(Operations::all(AtomicKind::I32)).unwrap();
            let own = GlobalPtr::new(endpoint.rank(), 8);
            for (op, then) in
                [(AtomicOp::Swap(5), 5), (AtomicOp::Get, 5), (AtomicOp::CompareSwap { expected: 5, new: 9 }, 9)]
            {
                let update = all.update_nb(endpoint, own, op).unwrap();
                endpoint.wait(update).unwrap();
                assert_eq!(endpoint.get_value(own), Ok(then));
            }
            endpoint.barrier().unwrap();
        });
    }
}
