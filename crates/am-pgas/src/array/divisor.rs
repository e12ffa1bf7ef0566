//! Division by a number that is known in advance, which costs a shift or a multiplication.

/// A divisor of numbers up to some bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Divisor {
    divisor: u64,
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A power of two.
    Shift(u32),
    /// Multiplication by the reciprocal, rounded up, in units of 2^-64. A dividend's quotient is exact as long as
    /// the error, less than the dividend times the divisor in these units, does not reach the next whole number
    /// (Granlund and Montgomery 1994).
    Multiply(u64),
    Divide,
}

impl Divisor {
    /// A divisor, which is not 0, of numbers up to `largest`.
    pub(super) fn new(divisor: u64, largest: u64) -> Self {
        let way = if divisor.is_power_of_two() {
            Way::Shift(divisor.trailing_zeros())
        } else if largest.checked_mul(divisor).is_some() {
            Way::Multiply(u64::MAX / divisor + 1)
        } else {
            Way::Divide
        };
        Self { divisor, way }
    }

    /// The divisor itself.
    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.divisor
    }

    /// Quotient and remainder.
    #[inline]
    pub(super) fn divide(&self, dividend: u64) -> (u64, u64) {
        let quotient = match self.way {
            Way::Shift(shift) => dividend >> shift,
            Way::Multiply(reciprocal) => ((u128::from(dividend) * u128::from(reciprocal)) >> 64) as u64,
            Way::Divide => dividend / self.divisor,
        };
        (quotient, dividend - quotient * self.divisor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn divides_as_the_processor(divisor in 1u64.., largest: u64, shift in 0u32..64, less in 0u32..64) {
            let (divisor, largest) = ((divisor >> shift).max(1), largest >> less);
            let by = Divisor::new(divisor, largest);
            let multiples = [largest / divisor * divisor, (largest / divisor * divisor).saturating_sub(1)];
            let near = [divisor.min(largest), (divisor - 1).min(largest)];
            for dividend in [0, 1, near[0], near[1], largest, multiples[0], multiples[1]] {
                prop_assert_eq!(by.divide(dividend), (dividend / divisor, dividend % divisor));
            }
        }
    }
}
