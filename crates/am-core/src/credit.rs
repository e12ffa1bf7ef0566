//! Credits: how a sender knows that its next message has room at the receiver, without asking.
//!
//! A receiver owns a bounded resource, for instance a buffer for requests. One *credit* stands for one unit of it.
//! A sender spends credits to send and gets them back when the receiver has freed the room again; as long as no
//! more credits exist than there is room, nothing can overflow, whatever the order of events.
//!
//! [`Account`] is the static partition: each sender owns a fixed share for good. It costs a comparison and a
//! subtraction per message, and no protocol beyond "this reply returns n credits". It is the right choice
//! while the space divided by the number of senders is comfortably more than a message.
//!
//! ```
//! use am_core::credit::Account;
//!
//! let mut lane = Account::share(1024, 4);         // 1024 slots at the receiver, four senders
//! assert_eq!(lane.capacity(), 256);
//! lane.take(200)?;                                // a message of 200 slots leaves
//! assert!(lane.take(100).is_err());               // the next one has to wait ...
//! lane.give_back(200)?;                           // ... until the receiver has returned the credits
//! lane.take(100)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use thiserror::Error;

/// What one sender may still send to one peer out of a fixed share of one resource.
///
/// The unit is the embedding transport's: frames, buffer chunks, cells. The account only counts, and upholds
/// `available + outstanding = capacity`. Every operation is a comparison and a subtraction; none of them
/// allocates or blocks.
///
/// The same type serves at the receiver, as a check on a peer that it does not trust: an arrival takes, an answer
/// gives back, and a failing [`take`](Self::take) means that the peer has sent more than its share.
///
/// ```
/// use am_core::credit::Account;
///
/// let mut replies = Account::new(4);              // four reply frames fit the lane
/// replies.take(3)?;                               // three requests leave, each may be answered
/// assert_eq!(replies.take(2).unwrap_err().to_string(), "2 credits wanted, 1 available");
/// replies.give_back(2)?;                          // two answers have arrived
/// assert_eq!((replies.available(), replies.outstanding()), (3, 1));
/// assert!(replies.give_back(2).is_err());         // a faulty peer answers once too often
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Account {
    capacity: u32,
    available: u32,
}

/// Too few credits are available; nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{wanted} credits wanted, {available} available")]
#[non_exhaustive]
pub struct Short {
    /// Credits that the caller asked for.
    pub wanted: u32,
    /// Credits that are there, fewer than `wanted`.
    pub available: u32,
}

/// More credits came back than are outstanding, which only a faulty peer causes; nothing was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{returned} credits returned, only {outstanding} outstanding")]
#[non_exhaustive]
pub struct ExcessCredits {
    /// Credits that the peer claims to return.
    pub returned: u32,
    /// Credits that it could return at most.
    pub outstanding: u32,
}

impl Account {
    /// An account that holds its whole `capacity` (credits). A capacity of 0 is allowed and always short.
    #[inline]
    pub const fn new(capacity: u32) -> Self {
        Self { capacity, available: capacity }
    }

    /// The equal share of `total` credits for each of `peers` senders, rounded down; 0 senders share nothing.
    ///
    /// The shares together never exceed `total`, which is why a static partition can't overflow its receiver, and
    /// also why it does not scale: with many peers each of them gets less than one message needs.
    ///
    /// ```
    /// use am_core::credit::Account;
    /// assert_eq!(Account::share(1024, 3).capacity(), 341);
    /// ```
    #[inline]
    pub const fn share(total: u32, peers: u32) -> Self {
        Self::new(match total.checked_div(peers) {
            Some(share) => share,
            None => 0,
        })
    }

    /// Takes `n` credits.
    ///
    /// # Errors
    /// [`Short`] when fewer than `n` are available; the account is unchanged.
    #[inline]
    pub const fn take(&mut self, n: u32) -> Result<(), Short> {
        match self.available.checked_sub(n) {
            Some(rest) => {
                self.available = rest;
                Ok(())
            }
            None => Err(Short { wanted: n, available: self.available }),
        }
    }

    /// Gives `n` credits back.
    ///
    /// # Errors
    /// [`ExcessCredits`] when fewer than `n` are outstanding; the account is unchanged.
    #[inline]
    pub const fn give_back(&mut self, n: u32) -> Result<(), ExcessCredits> {
        let outstanding = self.outstanding();
        if n > outstanding {
            return Err(ExcessCredits { returned: n, outstanding });
        }
        self.available += n;
        Ok(())
    }

    /// Credits that can be taken now.
    #[inline]
    pub const fn available(&self) -> u32 {
        self.available
    }

    /// Credits taken and not yet given back.
    #[inline]
    pub const fn outstanding(&self) -> u32 {
        self.capacity - self.available
    }

    /// All credits of the account, available and outstanding.
    #[inline]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn extremes_are_errors_and_change_nothing() {
        let mut account = Account::new(u32::MAX);
        assert_eq!(account.give_back(1), Err(ExcessCredits { returned: 1, outstanding: 0 }));
        account.take(u32::MAX).unwrap();
        assert_eq!(account.take(1), Err(Short { wanted: 1, available: 0 }));
        account.give_back(u32::MAX).unwrap();
        assert_eq!(account, Account::new(u32::MAX));
        assert_eq!(Account::new(0).take(1), Err(Short { wanted: 1, available: 0 }));
        assert_eq!(Account::share(7, 0).capacity(), 0);
    }

    proptest! {
        #[test]
        fn shares_never_exceed_the_total(total: u32, peers in 1u32..5000) {
            let share = Account::share(total, peers).capacity();
            prop_assert!(u64::from(share) * u64::from(peers) <= u64::from(total));
        }

        /// The model counts in 64 bits what has been taken and given back.
        #[test]
        fn agrees_with_a_wide_model(capacity: u32, steps in prop::collection::vec(any::<(bool, u32)>(), 0..200)) {
            let mut account = Account::new(capacity);
            let mut out = 0u64;
            for (take, n) in steps {
                // Small amounts succeed often, large ones reach the limits.
                let n = if n.is_multiple_of(3) { n } else { n % (capacity / 4 + 2) };
                if take {
                    let fits = out + u64::from(n) <= u64::from(capacity);
                    prop_assert_eq!(account.take(n).is_ok(), fits);
                    out += if fits { u64::from(n) } else { 0 };
                } else {
                    let owed = u64::from(n) <= out;
                    prop_assert_eq!(account.give_back(n).is_ok(), owed);
                    out -= if owed { u64::from(n) } else { 0 };
                }
                prop_assert_eq!(u64::from(account.outstanding()), out);
                prop_assert_eq!(u64::from(account.available()) + out, u64::from(capacity));
            }
        }
    }
}
