//! The parameters of the bank policy and their validation.

use am_core::Peer;
use thiserror::Error;

/// When a sender asks for more credit, and for how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Growth {
    /// Once a request has found too few credits, for what was missing. A loan grows by at most
    /// [`max_ask`](LoanConfig::max_ask) with each ask, which is granted in full or refused. This is how GASNet's
    /// Portals conduit does it.
    #[default]
    Shortage,
    /// As soon as the next request like this one would find too few, for as much as the loan is already, and
    /// not again before what was outstanding then has come back. A loan doubles in each round trip in which
    /// all of it is in use, so that a sender that turns to a new target needs few round trips to get what it
    /// needs there, however long they are. An ask may be granted in part. Asks and grants are powers of two,
    /// which a narrow field of the wire can tell as exponents.
    Doubling,
}

impl Growth {
    /// The largest amount that an ask or a grant can tell, up to a limit.
    #[inline]
    pub(super) const fn tellable(self, limit: u32) -> u32 {
        match self {
            Self::Shortage => limit,
            Self::Doubling => match limit.checked_ilog2() {
                Some(exponent) => 1 << exponent,
                None => 0,
            },
        }
    }
}

/// Parameters of the bank policy. Both ends of a pair must use the same values.
///
/// All amounts are credits; what a credit stands for (256 bytes of receive buffer, one slot) is the conduit's
/// business. [`LoanConfig::new`] fills in values that suit most conduits; assign the fields that a conduit needs
/// otherwise, then [`Bank::new`](super::Bank::new) and [`Borrower::new`](super::Borrower::new) validate the whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LoanConfig {
    /// Number of senders, each with a loan from the start; peers are numbered `0..peers`.
    pub peers: u32,
    /// The bank's owner if it is one of its own senders; its loan is never revoked.
    pub me: Option<Peer>,
    /// Credits that the receive space is worth: the sum of loans and bank at every moment.
    pub total: u32,
    /// Loan of each peer at the start, `min..=loan_cap`.
    pub initial: u32,
    /// Loan that no revocation goes below, at least `max_cost`: whatever happens to the bank, each sender can
    /// always send its largest request once its earlier ones have been served.
    pub min: u32,
    /// Credits that the largest request costs, at least 1.
    pub max_cost: u32,
    /// Loan that no grant to one peer goes above.
    pub loan_cap: u32,
    /// Credits lent to one peer within an epoch at most, on top of its loan; what was lent earlier decays.
    pub lend_limit: u32,
    /// Credits in one ask or one grant at most (the width of the wire's field).
    pub max_ask: u32,
    /// Returned credits in one message at most (the width of the wire's field), at least `max_cost`: the
    /// answer to a request returns all its credits.
    pub max_return: u32,
    /// Length of an epoch in requests received from all peers, at least 1.
    pub epoch: u32,
    /// Right shift of a recent maximum at the end of an epoch: 2 leaves a quarter. At least 1.
    pub decay_shift: u32,
    /// Peers that one refused ask revokes from at most.
    pub revoke_peers: u32,
    /// Peers that one refused ask looks at, at most, in search of quiet ones.
    pub revoke_scan: u32,
    /// Credits in one revocation at most.
    pub revoke_limit: u32,
    /// Credits that a revocation must hope for: getting fewer back is not worth its messages. At most
    /// `revoke_limit` counts; 0 is as good as 1.
    pub revoke_least: u32,
    /// When a sender asks, and for how much.
    pub growth: Growth,
}

/// Parameters that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A field that must be at least 1 is 0.
    #[error("{field} is 0, but must be at least 1")]
    Zero {
        /// The field's name.
        field: &'static str,
    },
    /// The owner is not one of the peers.
    #[error("the owner is peer {me} of only {peers}")]
    UnknownOwner {
        /// The owner's number.
        me: u32,
        /// Number of peers.
        peers: u32,
    },
    /// The largest request does not fit the smallest loan, so that a sender could wait forever.
    #[error("a request may cost {max_cost} credits, more than the minimal loan of {min}")]
    MinBelowCost {
        /// The minimal loan.
        min: u32,
        /// The cost of the largest request.
        max_cost: u32,
    },
    /// The answer to the largest request cannot return its credits.
    #[error("a request may cost {max_cost} credits, but a message returns {max_return} at most")]
    ReturnBelowCost {
        /// The cost of the largest request.
        max_cost: u32,
        /// Returned credits in one message at most.
        max_return: u32,
    },
    /// The loan at the start lies outside `min..=loan_cap`.
    #[error("the initial loan of {initial} credits is outside {min}..={loan_cap}")]
    InitialOutOfRange {
        /// The loan at the start.
        initial: u32,
        /// The minimal loan.
        min: u32,
        /// The maximal loan.
        loan_cap: u32,
    },
    /// The loans at the start exceed the receive space.
    #[error("{peers} initial loans of {initial} credits exceed the total of {total}")]
    Overcommitted {
        /// Number of peers.
        peers: u32,
        /// The loan at the start.
        initial: u32,
        /// Credits of the receive space.
        total: u32,
    },
}

impl LoanConfig {
    /// A configuration for `peers` senders of requests that cost at most `max_cost` credits, sharing `total`
    /// credits.
    ///
    /// Half of the space is lent evenly at the start (but at least `max_cost` to each), the other half is banked;
    /// one peer may come to hold everything that the others don't need.
    pub fn new(peers: u32, total: u32, max_cost: u32) -> Self {
        let initial = (total / 2).checked_div(peers).unwrap_or(0).max(max_cost);
        Self {
            peers,
            me: None,
            total,
            initial,
            min: max_cost,
            max_cost,
            loan_cap: total.max(initial),
            lend_limit: total,
            max_ask: max_cost,
            max_return: u32::MAX,
            epoch: 1024,
            decay_shift: 2,
            revoke_peers: 6,
            revoke_scan: 64,
            revoke_limit: 32,
            revoke_least: 1,
            growth: Growth::default(),
        }
    }

    /// Checks that the parameters fit together.
    ///
    /// # Errors
    /// A [`ConfigError`] naming the first contradiction.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let at_least_one = [
            ("peers", self.peers),
            ("max_cost", self.max_cost),
            ("epoch", self.epoch),
            ("decay_shift", self.decay_shift),
        ];
        for (field, value) in at_least_one {
            if value == 0 {
                return Err(ConfigError::Zero { field });
            }
        }
        let Self { peers, total, initial, min, max_cost, loan_cap, .. } = *self;
        if let Some(me) = self.me.filter(|me| me.0 >= peers) {
            return Err(ConfigError::UnknownOwner { me: me.0, peers });
        }
        if self.max_return < max_cost {
            return Err(ConfigError::ReturnBelowCost { max_cost, max_return: self.max_return });
        }
        if min < max_cost {
            return Err(ConfigError::MinBelowCost { min, max_cost });
        }
        if !(min..=loan_cap).contains(&initial) {
            return Err(ConfigError::InitialOutOfRange { initial, min, loan_cap });
        }
        if u64::from(peers) * u64::from(initial) > u64::from(total) {
            return Err(ConfigError::Overcommitted { peers, initial, total });
        }
        Ok(())
    }
}

/// A recent maximum (or a recent sum) after `epochs` ends of epoch.
pub(super) fn decayed(value: u32, shift: u32, epochs: u32) -> u32 {
    let shift = shift.saturating_mul(epochs).min(32);
    value.checked_shr(shift).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each contradiction is reported with its numbers.
    #[test]
    fn contradictions_are_named() {
        type Change = fn(&mut LoanConfig);
        let cases: [(Change, &str); 11] = [
            (|c| c.peers = 0, "peers is 0, but must be at least 1"),
            (|c| c.max_cost = 0, "max_cost is 0, but must be at least 1"),
            (|c| c.max_return = 7, "a request may cost 8 credits, but a message returns 7 at most"),
            (|c| c.epoch = 0, "epoch is 0, but must be at least 1"),
            (|c| c.decay_shift = 0, "decay_shift is 0, but must be at least 1"),
            (|c| c.me = Some(Peer(4)), "the owner is peer 4 of only 4"),
            (|c| c.min = 7, "a request may cost 8 credits, more than the minimal loan of 7"),
            (|c| c.initial = 7, "the initial loan of 7 credits is outside 8..=100"),
            (|c| c.loan_cap = 11, "the initial loan of 12 credits is outside 8..=11"),
            (|c| c.initial = 26, "4 initial loans of 26 credits exceed the total of 100"),
            (|c| c.peers = u32::MAX, "4294967295 initial loans of 12 credits exceed the total of 100"),
        ];
        for (change, message) in cases {
            let mut config = LoanConfig::new(4, 100, 8);
            assert_eq!(config.validate(), Ok(()));
            change(&mut config);
            assert_eq!(config.validate().unwrap_err().to_string(), message);
        }
        assert!(LoanConfig::new(20, 100, 8).validate().is_err());
    }

    #[test]
    fn doubling_tells_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 64, 127].map(|limit| Growth::Doubling.tellable(limit)), [0, 1, 2, 2, 64, 64]);
        assert_eq!(Growth::Doubling.tellable(u32::MAX), 1 << 31);
        assert_eq!([0, 3, 127].map(|limit| Growth::Shortage.tellable(limit)), [0, 3, 127]);
    }

    #[test]
    fn decay_reaches_zero_and_does_not_overflow() {
        assert_eq!(decayed(100, 2, 0), 100);
        assert_eq!(decayed(100, 2, 1), 25);
        assert_eq!(decayed(100, 2, 2), 6);
        assert_eq!(decayed(u32::MAX, 2, u32::MAX), 0);
        assert_eq!(decayed(u32::MAX, 32, 1), 0);
    }
}
