//! The atomic operations of Portals 4 and the datatypes that they work on.

/// What an atomic operation does (`ptl_op_t`). `target` is what is there, `source` what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AtomicOp {
    /// The lesser.
    Min,
    /// The greater.
    Max,
    /// The sum; integers wrap.
    Sum,
    /// The product; integers wrap.
    Prod,
    /// 1 if either is not zero, else 0.
    Lor,
    /// 1 if both are not zero, else 0.
    Land,
    /// The bits of either.
    Bor,
    /// The bits of both.
    Band,
    /// 1 if one of them is zero and the other is not, else 0.
    Lxor,
    /// The bits of one of them.
    Bxor,
    /// The source.
    Swap,
    /// The source if the operand equals the target.
    Cswap,
    /// The source if the operand does not equal the target.
    CswapNe,
    /// The source if the operand is less than or equal to the target.
    CswapLe,
    /// The source if the operand is less than the target.
    CswapLt,
    /// The source if the operand is greater than or equal to the target.
    CswapGe,
    /// The source if the operand is greater than the target.
    CswapGt,
    /// The source's bits where the operand has ones, the target's elsewhere.
    Mswap,
}

/// What kind of call takes an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `PtlAtomic` and `PtlFetchAtomic`.
    Combine,
    /// `PtlSwap`.
    Exchange,
}

impl AtomicOp {
    /// All operations.
    pub const ALL: [Self; 18] = [
        Self::Min,
        Self::Max,
        Self::Sum,
        Self::Prod,
        Self::Lor,
        Self::Land,
        Self::Bor,
        Self::Band,
        Self::Lxor,
        Self::Bxor,
        Self::Swap,
        Self::Cswap,
        Self::CswapNe,
        Self::CswapLe,
        Self::CswapLt,
        Self::CswapGe,
        Self::CswapGt,
        Self::Mswap,
    ];

    /// The call that takes it.
    pub(crate) const fn call(self) -> Call {
        if self as u8 >= Self::Swap as u8 { Call::Exchange } else { Call::Combine }
    }

    /// Whether it has an operand, and so works on one element only.
    pub const fn has_operand(self) -> bool {
        self as u8 > Self::Swap as u8
    }

    /// Whether it works on a datatype: no order among complex numbers, no bits of numbers with fractions.
    ///
    /// ```
    /// use portals_sim::nic::p4::{AtomicOp, Datatype};
    /// assert!(AtomicOp::Sum.works_on(Datatype::DoubleComplex));
    /// assert!(!AtomicOp::Max.works_on(Datatype::DoubleComplex));
    /// assert!(AtomicOp::Mswap.works_on(Datatype::Uint64) && !AtomicOp::Bor.works_on(Datatype::Double));
    /// ```
    pub const fn works_on(self, datatype: Datatype) -> bool {
        match self {
            Self::Sum | Self::Prod | Self::Swap | Self::Cswap | Self::CswapNe => true,
            Self::Min | Self::Max | Self::CswapLe | Self::CswapLt | Self::CswapGe | Self::CswapGt => {
                !matches!(datatype, Datatype::FloatComplex | Datatype::DoubleComplex)
            }
            Self::Lor | Self::Land | Self::Bor | Self::Band | Self::Lxor | Self::Bxor | Self::Mswap => {
                datatype as u8 <= Datatype::Uint64 as u8
            }
        }
    }
}

/// What an operation works on (`ptl_datatype_t`); little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Datatype {
    /// 8 bits with sign.
    Int8,
    /// 8 bits.
    Uint8,
    /// 16 bits with sign.
    Int16,
    /// 16 bits.
    Uint16,
    /// 32 bits with sign.
    Int32,
    /// 32 bits.
    Uint32,
    /// 64 bits with sign.
    Int64,
    /// 64 bits.
    Uint64,
    /// 32 bits with fraction.
    Float,
    /// 64 bits with fraction.
    Double,
    /// Real and imaginary part of 32 bits each.
    FloatComplex,
    /// Real and imaginary part of 64 bits each.
    DoubleComplex,
}

impl Datatype {
    /// All datatypes.
    pub const ALL: [Self; 12] = [
        Self::Int8,
        Self::Uint8,
        Self::Int16,
        Self::Uint16,
        Self::Int32,
        Self::Uint32,
        Self::Int64,
        Self::Uint64,
        Self::Float,
        Self::Double,
        Self::FloatComplex,
        Self::DoubleComplex,
    ];

    /// Size of an element in bytes.
    pub const fn size(self) -> u32 {
        match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Int16 | Self::Uint16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float => 4,
            Self::Int64 | Self::Uint64 | Self::Double | Self::FloatComplex => 8,
            Self::DoubleComplex => 16,
        }
    }
}

/// What stays of an operation on numbers that have an order.
fn ordered<T: PartialOrd + Copy>(operation: AtomicOp, target: T, source: T, operand: T) -> Option<T> {
    let chosen = |condition: bool| Some(if condition { source } else { target });
    match operation {
        AtomicOp::Min => chosen(source < target),
        AtomicOp::Max => chosen(source > target),
        AtomicOp::CswapLe => chosen(operand <= target),
        AtomicOp::CswapLt => chosen(operand < target),
        AtomicOp::CswapGe => chosen(operand >= target),
        AtomicOp::CswapGt => chosen(operand > target),
        _ => equal(operation, target, source, operand),
    }
}

/// What stays of an operation on numbers that can be told apart.
fn equal<T: PartialEq>(operation: AtomicOp, target: T, source: T, operand: T) -> Option<T> {
    match operation {
        AtomicOp::Swap => Some(source),
        AtomicOp::Cswap => Some(if operand == target { source } else { target }),
        AtomicOp::CswapNe => Some(if operand != target { source } else { target }),
        _ => None,
    }
}

macro_rules! integer {
    ($type:ty, $operation:expr, $target:expr, $source:expr, $operand:expr) => {{
        const SIZE: usize = size_of::<$type>();
        let word = |bytes: &[u8]| {
            <$type>::from_le_bytes(std::array::from_fn(|index| bytes.get(index).copied().unwrap_or(0)))
        };
        let (target, source, operand) = (word($target), word($source), word($operand));
        let (is, comes) = (target != 0, source != 0);
        let result = match $operation {
            AtomicOp::Sum => target.wrapping_add(source),
            AtomicOp::Prod => target.wrapping_mul(source),
            AtomicOp::Lor => (is || comes).into(),
            AtomicOp::Land => (is && comes).into(),
            AtomicOp::Lxor => (is != comes).into(),
            AtomicOp::Bor => target | source,
            AtomicOp::Band => target & source,
            AtomicOp::Bxor => target ^ source,
            AtomicOp::Mswap => source & operand | target & !operand,
            other => ordered(other, target, source, operand).unwrap_or(target),
        };
        $target[..SIZE].copy_from_slice(&result.to_le_bytes());
    }};
}

macro_rules! real {
    ($type:ty, $operation:expr, $target:expr, $source:expr, $operand:expr) => {{
        const SIZE: usize = size_of::<$type>();
        let word = |bytes: &[u8]| {
            <$type>::from_le_bytes(std::array::from_fn(|index| bytes.get(index).copied().unwrap_or(0)))
        };
        let (target, source, operand) = (word($target), word($source), word($operand));
        let result = match $operation {
            AtomicOp::Sum => target + source,
            AtomicOp::Prod => target * source,
            other => ordered(other, target, source, operand).unwrap_or(target),
        };
        $target[..SIZE].copy_from_slice(&result.to_le_bytes());
    }};
}

macro_rules! complex {
    ($type:ty, $operation:expr, $target:expr, $source:expr, $operand:expr) => {{
        const SIZE: usize = size_of::<$type>();
        let word = |bytes: &[u8]| {
            <$type>::from_le_bytes(std::array::from_fn(|index| bytes.get(index).copied().unwrap_or(0)))
        };
        let number = |bytes: &[u8]| [word(bytes), word(bytes.get(SIZE..).unwrap_or(&[]))];
        let (target, source, operand) = (number($target), number($source), number($operand));
        let ([a, b], [c, d]) = (target, source);
        let result = match $operation {
            AtomicOp::Sum => [a + c, b + d],
            AtomicOp::Prod => [a * c - b * d, a * d + b * c],
            other => equal(other, target, source, operand).unwrap_or(target),
        };
        $target[..SIZE].copy_from_slice(&result[0].to_le_bytes());
        $target[SIZE..2 * SIZE].copy_from_slice(&result[1].to_le_bytes());
    }};
}

/// Applies an operation to one element: `target` becomes the result. The operand may be shorter; it is filled up
/// with zeros.
fn element(operation: AtomicOp, datatype: Datatype, target: &mut [u8], source: &[u8], operand: &[u8]) {
    match datatype {
        Datatype::Int8 => integer!(i8, operation, target, source, operand),
        Datatype::Uint8 => integer!(u8, operation, target, source, operand),
        Datatype::Int16 => integer!(i16, operation, target, source, operand),
        Datatype::Uint16 => integer!(u16, operation, target, source, operand),
        Datatype::Int32 => integer!(i32, operation, target, source, operand),
        Datatype::Uint32 => integer!(u32, operation, target, source, operand),
        Datatype::Int64 => integer!(i64, operation, target, source, operand),
        Datatype::Uint64 => integer!(u64, operation, target, source, operand),
        Datatype::Float => real!(f32, operation, target, source, operand),
        Datatype::Double => real!(f64, operation, target, source, operand),
        Datatype::FloatComplex => complex!(f32, operation, target, source, operand),
        Datatype::DoubleComplex => complex!(f64, operation, target, source, operand),
    }
}

/// Applies an operation to the whole elements of some bytes: `target` becomes the result.
pub(crate) fn apply(operation: AtomicOp, datatype: Datatype, target: &mut [u8], source: &[u8], operand: &[u8]) {
    let size = datatype.size() as usize;
    for (target, source) in target.chunks_exact_mut(size).zip(source.chunks_exact(size)) {
        element(operation, datatype, target, source, operand);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied<const N: usize>(
        operation: AtomicOp,
        datatype: Datatype,
        target: [u8; N],
        source: [u8; N],
        operand: &[u8],
    ) -> [u8; N] {
        let mut result = target;
        apply(operation, datatype, &mut result, &source, operand);
        result
    }

    #[test]
    fn integers_follow_their_tables() {
        let on = |operation, target: i32, source: i32, operand: i32| {
            let [target, source, operand] = [target, source, operand].map(i32::to_le_bytes);
            i32::from_le_bytes(applied(operation, Datatype::Int32, target, source, &operand))
        };
        for (operation, expected) in [
            (AtomicOp::Min, -6),
            (AtomicOp::Max, 5),
            (AtomicOp::Sum, -1),
            (AtomicOp::Prod, -30),
            (AtomicOp::Lor, 1),
            (AtomicOp::Land, 1),
            (AtomicOp::Lxor, 0),
            (AtomicOp::Bor, 5 | -6),
            (AtomicOp::Band, 5 & -6),
            (AtomicOp::Bxor, 5 ^ -6),
            (AtomicOp::Swap, -6),
        ] {
            assert_eq!(on(operation, 5, -6, 0), expected, "{operation:?}");
        }
        assert_eq!(on(AtomicOp::Sum, i32::MAX, 1, 0), i32::MIN);
        assert_eq!(on(AtomicOp::Mswap, 0x1234_5678, -1, 0x00ff_00ff), 0x12ff_56ff);
        let less = [AtomicOp::CswapNe, AtomicOp::CswapLe, AtomicOp::CswapLt];
        let same = [AtomicOp::Cswap, AtomicOp::CswapLe, AtomicOp::CswapGe];
        let greater = [AtomicOp::CswapNe, AtomicOp::CswapGe, AtomicOp::CswapGt];
        for (operand, swapped) in [(4, less), (5, same), (6, greater)] {
            for operation in AtomicOp::ALL.into_iter().filter(|operation| operation.has_operand()) {
                if operation != AtomicOp::Mswap {
                    let expected = if swapped.contains(&operation) { 9 } else { 5 };
                    assert_eq!(on(operation, 5, 9, operand), expected, "{operation:?} with {operand}");
                }
            }
        }
    }

    #[test]
    fn signs_sizes_and_fractions_count() {
        assert_eq!(applied(AtomicOp::Max, Datatype::Int8, [0xff, 1], [1, 0xff], &[]), [1, 1]);
        assert_eq!(applied(AtomicOp::Max, Datatype::Uint8, [0xff, 1], [1, 0xff], &[]), [0xff, 0xff]);
        assert_eq!(applied(AtomicOp::Sum, Datatype::Uint16, [0xff, 0, 0xff, 0], [1, 0, 1, 0], &[]), [0, 1, 0, 1]);
        let double = applied(AtomicOp::Prod, Datatype::Double, 1.5f64.to_le_bytes(), (-4f64).to_le_bytes(), &[]);
        assert_eq!(f64::from_le_bytes(double), -6.0);
        // (1 + 2i)(3 - i) = 5 + 5i
        let number =
            |[re, im]: [f32; 2]| -> [u8; 8] { [re.to_le_bytes(), im.to_le_bytes()].concat().try_into().unwrap() };
        let product =
            applied(AtomicOp::Prod, Datatype::FloatComplex, number([1.0, 2.0]), number([3.0, -1.0]), &[]);
        assert_eq!(product, number([5.0, 5.0]));
        let swapped =
            applied(AtomicOp::Cswap, Datatype::FloatComplex, product, number([0.0, 1.0]), &number([5.0, 5.0]));
        assert_eq!(swapped, number([0.0, 1.0]));
    }

    #[test]
    fn every_operation_has_its_datatypes() {
        let count =
            |operation: AtomicOp| Datatype::ALL.iter().filter(|datatype| operation.works_on(**datatype)).count();
        assert_eq!([AtomicOp::Sum, AtomicOp::Max, AtomicOp::Bor].map(count), [12, 10, 8]);
        for operation in AtomicOp::ALL {
            for datatype in Datatype::ALL.into_iter().filter(|datatype| operation.works_on(*datatype)) {
                // No operation that works on a datatype leaves elements of another size alone or writes too much.
                let mut target = [1u8; 16];
                apply(operation, datatype, &mut target[..datatype.size() as usize], &[1; 16], &[1; 16]);
                assert!(
                    target[datatype.size() as usize..].iter().all(|byte| *byte == 1),
                    "{operation:?} {datatype:?}"
                );
            }
        }
    }
}
