//! The sender's side of the bank policy: the loan it holds from one target.

use super::config::{ConfigError, Growth, LoanConfig, decayed};
use super::message::{CreditReturn, CreditUse, Revoke, Surrender};
use thiserror::Error;

/// One sender's loan from one target's [`Bank`](super::Bank).
///
/// `held = available + outstanding`; a request moves its cost from available to outstanding, a
/// [`CreditReturn`] moves it back. The loan grows by grants and shrinks by what the sender surrenders when the
/// target revokes. No call allocates or blocks. See the [module page](super) for the protocol and an example.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Borrower {
    available: u32,
    outstanding: u32,
    /// The most credits outstanding at once in recent epochs.
    recent: u32,
    /// Credits to ask for with the next request; 0 unless a request found too few since the last ask.
    wanting: u32,
    /// Credits that must come back before a sender whose loan doubles asks again; never more than are outstanding.
    asked: u32,
    min: u32,
    max_cost: u32,
    loan_cap: u32,
    max_ask: u32,
    /// No more than 32, which leaves nothing.
    decay_shift: u8,
    growth: Growth,
    lost: bool,
}

/// A request that can't leave now. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TakeError {
    /// Too few credits; they come back as the target serves earlier requests. The next request will ask for more.
    #[error("{wanted} credits wanted, {available} available, {outstanding} outstanding")]
    Short {
        /// Cost of the request.
        wanted: u32,
        /// Credits that are there.
        available: u32,
        /// Credits that earlier requests will bring back.
        outstanding: u32,
    },
    /// No request may cost this much, or it costs nothing.
    #[error("a request of {cost} credits is outside 1..={max_cost}")]
    OutOfRange {
        /// Cost of the request.
        cost: u32,
        /// The configured maximum.
        max_cost: u32,
    },
    /// The target was reported lost.
    #[error("the target is lost")]
    Lost,
}

/// A charge that is not outstanding was cancelled; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a charge of {cost} credits was cancelled, only {outstanding} are outstanding")]
#[non_exhaustive]
pub struct CancelError {
    /// Cost of the cancelled request.
    pub cost: u32,
    /// Credits that could be cancelled at most.
    pub outstanding: u32,
}

/// A return that a correct target does not send; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReturnError {
    /// More credits came back than are outstanding.
    #[error("{returned} credits returned, only {outstanding} outstanding")]
    Excess {
        /// Credits that the message returns.
        returned: u32,
        /// Credits that could come back at most.
        outstanding: u32,
    },
    /// The grant is larger than any ask or lifts the loan above its cap.
    #[error("{granted} credits granted on a loan of {held}; at most {max_ask} in one grant and {loan_cap} in all")]
    Overgrant {
        /// Credits that the message grants.
        granted: u32,
        /// The loan before the grant.
        held: u32,
        /// Largest grant in one message.
        max_ask: u32,
        /// Largest loan.
        loan_cap: u32,
    },
    /// A late message from a target that was reported lost.
    #[error("the target is lost")]
    Lost,
}

/// A late revocation from a target that was reported lost; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the target is lost")]
#[non_exhaustive]
pub struct TargetLost;

impl Borrower {
    /// The initial loan, all of it available.
    ///
    /// # Errors
    /// [`ConfigError`] when the parameters contradict each other.
    pub fn new(config: &LoanConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            available: config.initial,
            outstanding: 0,
            recent: 0,
            wanting: 0,
            asked: 0,
            min: config.min,
            max_cost: config.max_cost,
            loan_cap: config.loan_cap,
            max_ask: config.max_ask,
            decay_shift: config.decay_shift.min(32) as u8,
            growth: config.growth,
            lost: false,
        })
    }

    /// Takes the credits for one request. The charge goes out with that request.
    ///
    /// # Errors
    /// [`TakeError`]; a shortage is remembered, and the next request that does leave asks the target for more; see
    /// [`Growth`].
    #[inline]
    pub fn take(&mut self, cost: u32) -> Result<CreditUse, TakeError> {
        if self.lost {
            return Err(TakeError::Lost);
        }
        if cost == 0 || cost > self.max_cost {
            return Err(TakeError::OutOfRange { cost, max_cost: self.max_cost });
        }
        let Some(rest) = self.available.checked_sub(cost) else {
            self.note_shortage(cost - self.available);
            let Self { available, outstanding, .. } = *self;
            return Err(TakeError::Short { wanted: cost, available, outstanding });
        };
        self.available = rest;
        self.outstanding += cost;
        self.recent = self.recent.max(self.outstanding);
        let wanting = std::mem::take(&mut self.wanting);
        let ask = match self.growth {
            Growth::Shortage => wanting,
            Growth::Doubling if wanting == 0 && rest >= cost => 0,
            Growth::Doubling => self.double(),
        };
        Ok(CreditUse { cost, ask })
    }

    /// Takes back a charge whose request did not leave, for instance because the wire was busy.
    ///
    /// # Errors
    /// [`CancelError`] when that much is not outstanding.
    pub fn cancel(&mut self, charge: CreditUse) -> Result<(), CancelError> {
        let Some(rest) = self.outstanding.checked_sub(charge.cost) else {
            return Err(CancelError { cost: charge.cost, outstanding: self.outstanding });
        };
        self.outstanding = rest;
        self.available += charge.cost;
        self.wanting = self.wanting.max(charge.ask);
        // An ask that has not left will not be answered.
        self.asked = if charge.ask > 0 { 0 } else { self.asked.min(rest) };
        Ok(())
    }

    /// Takes in returned and granted credits.
    ///
    /// # Errors
    /// [`ReturnError`] for a message that a correct target does not send, and for any message after
    /// [`lose`](Self::lose).
    #[inline]
    pub fn accept(&mut self, message: CreditReturn) -> Result<(), ReturnError> {
        let CreditReturn { credits, granted, end_of_epoch } = message;
        if self.lost {
            return Err(ReturnError::Lost);
        }
        let Some(rest) = self.outstanding.checked_sub(credits) else {
            return Err(ReturnError::Excess { returned: credits, outstanding: self.outstanding });
        };
        let held = self.held();
        if granted > 0 && (granted > self.max_ask || granted > self.loan_cap.saturating_sub(held)) {
            let Self { max_ask, loan_cap, .. } = *self;
            return Err(ReturnError::Overgrant { granted, held, max_ask, loan_cap });
        }
        self.outstanding = rest;
        self.asked = self.asked.saturating_sub(credits);
        self.available += credits + granted;
        self.wanting = self.wanting.saturating_sub(granted);
        if end_of_epoch {
            self.end_epoch();
        }
        Ok(())
    }

    /// Answers a revocation: gives up what is available and was not needed lately, keeping at least the minimal
    /// loan, and nothing at all while a request of this sender waits for credit.
    ///
    /// # Errors
    /// [`TargetLost`] after [`lose`](Self::lose).
    pub fn honour(&mut self, revoke: Revoke) -> Result<Surrender, TargetLost> {
        if self.lost {
            return Err(TargetLost);
        }
        if revoke.end_of_epoch {
            self.end_epoch();
        }
        let needed = self.min.max(self.recent);
        let unneeded = if self.wanting > 0 { 0 } else { self.held().saturating_sub(needed) };
        let credits = unneeded.min(self.available).min(revoke.limit);
        self.available -= credits;
        Ok(Surrender { credits })
    }

    /// Declares the target lost: no request can be taken and no message of it is accepted any more.
    pub fn lose(&mut self) {
        self.lost = true;
    }

    /// Credits that can be taken now.
    #[inline]
    pub const fn available(&self) -> u32 {
        self.available
    }

    /// Credits of requests whose return has not arrived.
    #[inline]
    pub const fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// The loan as this side knows it: available and outstanding credits.
    #[inline]
    pub const fn held(&self) -> u32 {
        self.available + self.outstanding
    }

    /// The most credits outstanding at once in recent epochs; what a revocation leaves alone.
    pub const fn recent_maximum(&self) -> u32 {
        self.recent
    }

    /// Credits that the next request will ask for; 0 when no request has met a shortage since the last ask.
    pub const fn wanting(&self) -> u32 {
        self.wanting
    }

    /// Whether the target was declared lost.
    pub const fn is_lost(&self) -> bool {
        self.lost
    }

    #[cold]
    fn note_shortage(&mut self, shortage: u32) {
        self.wanting = self.wanting.max(shortage.min(self.max_ask)).min(self.room());
    }

    /// What a request asks for so that the loan doubles: nothing while the answer to an earlier ask may be
    /// under way.
    #[cold]
    fn double(&mut self) -> u32 {
        if self.asked > 0 {
            return 0;
        }
        let ask = self.growth.tellable(self.held().min(self.max_ask).min(self.room()));
        self.asked = if ask > 0 { self.outstanding } else { 0 };
        ask
    }

    /// Credits that the loan may still grow by.
    fn room(&self) -> u32 {
        self.loan_cap.saturating_sub(self.held())
    }

    fn end_epoch(&mut self) {
        self.recent = decayed(self.recent, self.decay_shift.into(), 1).max(self.outstanding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn borrower() -> Borrower {
        let mut config = LoanConfig::new(4, 80, 4);
        (config.initial, config.loan_cap) = (10, 14);
        Borrower::new(&config).unwrap()
    }

    fn revoke(limit: u32, end_of_epoch: bool) -> Revoke {
        Revoke { limit, end_of_epoch }
    }

    #[test]
    fn a_shortage_is_asked_for_once_with_the_next_request() {
        let mut borrower = borrower();
        for _ in 0..3 {
            assert_eq!(borrower.take(3), Ok(CreditUse { cost: 3, ask: 0 }));
        }
        let short = borrower.take(4).unwrap_err();
        assert_eq!(short, TakeError::Short { wanted: 4, available: 1, outstanding: 9 });
        assert_eq!(short.to_string(), "4 credits wanted, 1 available, 9 outstanding");
        assert_eq!(borrower.take(1), Ok(CreditUse { cost: 1, ask: 3 }));
        borrower.accept(CreditReturn { credits: 3, ..CreditReturn::default() }).unwrap();
        assert_eq!(borrower.take(3), Ok(CreditUse { cost: 3, ask: 0 }));
    }

    #[test]
    fn wrong_costs_and_wrong_messages_change_nothing() {
        let mut borrower = borrower();
        borrower.take(4).unwrap();
        let before = borrower.clone();
        assert_eq!(borrower.take(0), Err(TakeError::OutOfRange { cost: 0, max_cost: 4 }));
        assert_eq!(borrower.take(5), Err(TakeError::OutOfRange { cost: 5, max_cost: 4 }));
        let excess = CreditReturn { credits: 5, granted: 0, end_of_epoch: true };
        assert_eq!(borrower.accept(excess), Err(ReturnError::Excess { returned: 5, outstanding: 4 }));
        for granted in [5, u32::MAX] {
            let error = borrower.accept(CreditReturn { credits: 4, granted, end_of_epoch: true });
            assert_eq!(error, Err(ReturnError::Overgrant { granted, held: 10, max_ask: 4, loan_cap: 14 }));
        }
        assert_eq!(borrower.cancel(CreditUse { cost: 5, ask: 0 }), Err(CancelError { cost: 5, outstanding: 4 }));
        assert_eq!(borrower, before);
        borrower.accept(CreditReturn { credits: 4, granted: 4, end_of_epoch: false }).unwrap();
        let above_cap = borrower.accept(CreditReturn { credits: 0, granted: 1, end_of_epoch: false });
        assert_eq!(above_cap, Err(ReturnError::Overgrant { granted: 1, held: 14, max_ask: 4, loan_cap: 14 }));
    }

    #[test]
    fn a_cancelled_charge_restores_credit_and_ask() {
        let mut borrower = borrower();
        borrower.take(4).unwrap();
        borrower.take(4).unwrap();
        borrower.take(4).unwrap_err();
        let charge = borrower.take(2).unwrap();
        assert_eq!(charge.ask, 2);
        borrower.cancel(charge).unwrap();
        assert_eq!((borrower.available(), borrower.outstanding(), borrower.wanting()), (2, 8, 2));
    }

    #[test]
    fn a_revocation_takes_only_what_was_not_needed_lately() {
        let mut borrower = borrower();
        assert_eq!(borrower.honour(revoke(1, false)), Ok(Surrender { credits: 1 }), "the limit binds");
        borrower.take(4).unwrap();
        borrower.take(4).unwrap();
        assert_eq!(borrower.honour(revoke(9, false)), Ok(Surrender { credits: 1 }), "what is available binds");
        borrower.accept(CreditReturn { credits: 8, ..CreditReturn::default() }).unwrap();
        assert_eq!(
            borrower.honour(revoke(9, false)),
            Ok(Surrender { credits: 0 }),
            "the recent maximum of 8 binds"
        );
        assert_eq!(borrower.honour(revoke(9, true)), Ok(Surrender { credits: 4 }), "the minimal loan binds");
        assert_eq!((borrower.held(), borrower.recent_maximum()), (4, 2));
    }

    #[test]
    fn credits_in_use_count_for_the_next_epoch() {
        let mut borrower = borrower();
        borrower.take(4).unwrap();
        borrower.take(4).unwrap();
        borrower.accept(CreditReturn { credits: 0, granted: 0, end_of_epoch: true }).unwrap();
        borrower.accept(CreditReturn { credits: 8, ..CreditReturn::default() }).unwrap();
        assert_eq!(borrower.honour(revoke(9, false)), Ok(Surrender { credits: 2 }));
    }

    #[test]
    fn nothing_is_asked_above_the_cap() {
        let mut borrower = borrower();
        borrower.take(4).unwrap();
        borrower.take(4).unwrap();
        borrower.take(4).unwrap_err();
        borrower.accept(CreditReturn { credits: 0, granted: 2, end_of_epoch: false }).unwrap();
        assert_eq!(borrower.take(4), Ok(CreditUse { cost: 4, ask: 0 }));
        borrower.accept(CreditReturn { credits: 0, granted: 1, end_of_epoch: false }).unwrap();
        borrower.take(4).unwrap_err();
        assert_eq!(borrower.wanting(), 1, "three are missing, but 13 of 14 are lent already");
    }

    #[test]
    fn a_loan_doubles_once_in_a_round_trip() {
        let mut config = LoanConfig::new(2, 200, 4);
        (config.initial, config.loan_cap, config.max_ask, config.growth) = (12, 70, 16, Growth::Doubling);
        let mut borrower = Borrower::new(&config).unwrap();
        let ask = |borrower: &mut Borrower| borrower.take(4).unwrap().ask;
        assert_eq!(
            [(); 3].map(|()| ask(&mut borrower)),
            [0, 0, 8],
            "the fourth would find too few; twelve are no power"
        );
        borrower.take(4).unwrap_err();
        borrower.accept(CreditReturn { credits: 8, ..CreditReturn::default() }).unwrap();
        assert_eq!([(); 2].map(|()| ask(&mut borrower)), [0, 0], "the answer to the first ask may be under way");
        borrower.accept(CreditReturn { credits: 4, granted: 8, end_of_epoch: false }).unwrap();
        assert_eq!([(); 3].map(|()| ask(&mut borrower)), [0, 0, 16]);
        borrower.accept(CreditReturn { credits: 20, granted: 16, end_of_epoch: false }).unwrap();
        assert_eq!((borrower.held(), borrower.available()), (36, 36));
        assert_eq!(
            [(); 9].map(|()| ask(&mut borrower)),
            [0, 0, 0, 0, 0, 0, 0, 0, 16],
            "no more than the field tells"
        );
        borrower.accept(CreditReturn { credits: 36, granted: 16, end_of_epoch: false }).unwrap();
        let asks = [(); 13].map(|()| ask(&mut borrower));
        assert_eq!((borrower.held(), asks[12]), (52, 16));
        borrower.accept(CreditReturn { credits: 52, granted: 16, end_of_epoch: false }).unwrap();
        let asks = [(); 17].map(|()| ask(&mut borrower));
        assert_eq!((borrower.held(), asks[16]), (68, 2), "the cap leaves room for two");
    }

    #[test]
    fn a_cancelled_ask_to_double_is_made_again() {
        let mut config = LoanConfig::new(2, 100, 4);
        (config.initial, config.max_ask, config.growth) = (8, 64, Growth::Doubling);
        let mut borrower = Borrower::new(&config).unwrap();
        borrower.take(4).unwrap();
        let charge = borrower.take(4).unwrap();
        assert_eq!(charge.ask, 8);
        borrower.cancel(charge).unwrap();
        assert_eq!(borrower.take(1).unwrap().ask, 8, "three are left, but the ask was not heard");
        borrower.take(4).unwrap_err();
        borrower.accept(CreditReturn { credits: 5, ..CreditReturn::default() }).unwrap();
        assert_eq!(borrower.take(1).unwrap().ask, 8, "the ask was answered with nothing, and somebody waits");
    }

    #[test]
    fn a_stalled_sender_surrenders_nothing() {
        let mut borrower = borrower();
        borrower.take(4).unwrap();
        borrower.take(4).unwrap();
        borrower.take(3).unwrap_err();
        borrower.accept(CreditReturn { credits: 8, granted: 0, end_of_epoch: true }).unwrap();
        assert_eq!(borrower.honour(revoke(9, true)), Ok(Surrender { credits: 0 }));
    }

    #[test]
    fn after_the_target_is_lost_nothing_is_taken_or_accepted() {
        let mut borrower = borrower();
        borrower.take(1).unwrap();
        borrower.lose();
        let before = borrower.clone();
        assert_eq!(borrower.take(1), Err(TakeError::Lost));
        assert_eq!(
            borrower.accept(CreditReturn { credits: 1, ..CreditReturn::default() }),
            Err(ReturnError::Lost)
        );
        assert_eq!(borrower.honour(revoke(9, true)), Err(TargetLost));
        assert_eq!(borrower, before);
    }
}
