//! Flow control of active messages between two endpoints, as a state machine without a clock: a static partition.
//!
//! Each endpoint may have a number of requests under way to each other one, and may be owed a number of replies.
//! What the peer has handled, and which replies will never come (bare credits), is told by two small counts that
//! ride on every frame to it. Only when half of either is owed, or when the peer asks, a frame goes for them
//! alone: a sender that fills its window is never stuck behind counts that nobody tells, and a message that is
//! answered costs no other one.

use am_core::transport::Resource;
use thiserror::Error;

/// How much may be under way from one endpoint to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    /// Requests that the peer has not handled, 1 to 65,535.
    pub(super) requests: u16,
    /// Requests whose reply, or bare credit, has not come, 1 to 65,535.
    pub(super) replies: u16,
}

/// What an endpoint tells another in passing: how many of its requests ended since the last telling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ended {
    /// Requests handled.
    pub(super) handled: u16,
    /// Requests that end without the reply for which room was set aside.
    pub(super) bare: u16,
}

impl Ended {
    /// Whether there is nothing to tell.
    pub(super) fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// A peer told what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub(super) enum AccountError {
    /// More was handled than was sent.
    #[error("{told} requests were told to be handled, but only {under_way} were under way")]
    Handled {
        /// Requests told.
        told: u16,
        /// Requests under way.
        under_way: u16,
    },
    /// More replies came, or were told never to come, than were owed.
    #[error("{told} replies ended, but only {owed} were owed")]
    Replies {
        /// Replies that ended.
        told: u16,
        /// Replies owed.
        owed: u16,
    },
    /// A request came although all that the peer may have were under way.
    #[error("a request beyond the {limit} that may be under way")]
    Flood {
        /// Requests that the peer may have under way.
        limit: u16,
    },
}

/// One endpoint's account with another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    under_way: u16,
    owed: u16,
    debt: Ended,
    /// Requests of the peer that it has not been told are handled.
    theirs: u16,
    /// The peer has been asked how far it is and has not said.
    asked: bool,
}

impl Account {
    /// Takes room for a request, and for its reply if it may have one.
    ///
    /// # Errors
    /// The resource that is used up; nothing was taken.
    #[inline]
    pub(super) fn admit(&mut self, limits: Partition, reply: bool) -> Result<(), Resource> {
        if self.under_way >= limits.requests {
            return Err(Resource::RequestFrames);
        }
        if reply && self.owed >= limits.replies {
            return Err(Resource::ReplyFrames);
        }
        self.under_way += 1;
        self.owed += u16::from(reply);
        Ok(())
    }

    /// Gives back what [`Account::admit`] took for a request that was not sent.
    pub(super) fn withdraw(&mut self, reply: bool) {
        self.under_way -= 1;
        self.owed -= u16::from(reply);
    }

    /// Takes what the peer tells. Returns whether there was anything.
    ///
    /// # Errors
    /// [`AccountError`] if that cannot be; nothing changes then.
    #[inline]
    pub(super) fn acknowledge(&mut self, ended: Ended) -> Result<bool, AccountError> {
        let Self { under_way, owed, .. } = *self;
        if ended.handled > under_way {
            return Err(AccountError::Handled { told: ended.handled, under_way });
        }
        if ended.bare > owed {
            return Err(AccountError::Replies { told: ended.bare, owed });
        }
        self.under_way -= ended.handled;
        self.owed -= ended.bare;
        Ok(!ended.is_nothing())
    }

    /// A reply has come.
    ///
    /// # Errors
    /// [`AccountError`] if none was owed.
    #[inline]
    pub(super) fn replied(&mut self) -> Result<(), AccountError> {
        self.owed = self.owed.checked_sub(1).ok_or(AccountError::Replies { told: 1, owed: 0 })?;
        Ok(())
    }

    /// A request of the peer has come.
    ///
    /// # Errors
    /// [`AccountError::Flood`] if it has more under way than it may.
    #[inline]
    pub(super) fn enter(&mut self, limits: Partition) -> Result<(), AccountError> {
        if self.theirs >= limits.requests {
            return Err(AccountError::Flood { limit: limits.requests });
        }
        self.theirs += 1;
        Ok(())
    }

    /// A request of the peer has been handled.
    #[inline]
    pub(super) fn handled(&mut self) {
        self.debt.handled += 1;
    }

    /// The reply to a request of the peer will never come.
    #[inline]
    pub(super) fn bare(&mut self) {
        self.debt.bare += 1;
    }

    /// What to tell the peer with the next frame; it counts as told.
    #[inline]
    pub(super) fn take_due(&mut self) -> Ended {
        self.theirs -= self.debt.handled;
        std::mem::take(&mut self.debt)
    }

    /// Whether the peer must be told now, even if nothing else goes to it.
    #[inline]
    pub(super) fn must_tell(&self, limits: Partition) -> bool {
        self.debt.handled >= (limits.requests / 2).max(1) || self.debt.bare >= (limits.replies / 2).max(1)
    }

    /// Whether all requests have been handled.
    pub(super) fn is_quiet(&self) -> bool {
        self.under_way == 0
    }

    /// Asks the peer how far it is: whether that question is to be sent now.
    pub(super) fn ask(&mut self) -> bool {
        !self.is_quiet() && !std::mem::replace(&mut self.asked, true)
    }

    /// The peer has answered.
    pub(super) fn answered(&mut self) {
        self.asked = false;
    }

    /// Requests that can be sent, and replies for which room can be set aside.
    pub(super) fn room(&self, limits: Partition) -> (u16, u16) {
        (limits.requests - self.under_way, limits.replies - self.owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Partition = Partition { requests: 4, replies: 2 };

    #[test]
    fn both_resources_are_limited_and_come_back() {
        let mut account = Account::default();
        assert_eq!(
            [true, true, true].map(|reply| account.admit(SMALL, reply).err()),
            [None, None, Some(Resource::ReplyFrames)]
        );
        assert_eq!(
            [false, false, false].map(|reply| account.admit(SMALL, reply).err()),
            [None, None, Some(Resource::RequestFrames)]
        );
        assert_eq!(account.room(SMALL), (0, 0));
        assert_eq!(account.acknowledge(Ended { handled: 3, bare: 1 }), Ok(true));
        assert_eq!(account.room(SMALL), (3, 1));
        account.replied().unwrap();
        assert_eq!(account.room(SMALL), (3, 2));
        account.admit(SMALL, true).unwrap();
        account.withdraw(true);
        assert_eq!(account.acknowledge(Ended { handled: 1, bare: 0 }), Ok(true));
        assert!(account.is_quiet());
    }

    #[test]
    fn a_full_window_is_always_told_of() {
        for requests in 1..20 {
            let limits = Partition { requests, replies: requests };
            let (mut sender, mut receiver) = (Account::default(), Account::default());
            let mut sent = 0;
            for _ in 0..1000 {
                if sender.admit(limits, true).is_ok() {
                    sent += 1;
                    receiver.enter(limits).unwrap();
                    receiver.handled();
                    receiver.bare();
                }
                if receiver.must_tell(limits) {
                    sender.acknowledge(receiver.take_due()).unwrap();
                }
            }
            assert_eq!(sent, 1000, "{requests} requests");
        }
    }

    #[test]
    fn a_peer_cannot_tell_what_cannot_be() {
        let mut account = Account::default();
        account.admit(SMALL, false).unwrap();
        let before = account;
        let error = account.acknowledge(Ended { handled: 2, bare: 0 }).unwrap_err();
        assert_eq!(error.to_string(), "2 requests were told to be handled, but only 1 were under way");
        assert!(account.acknowledge(Ended { handled: 0, bare: 1 }).is_err());
        assert!(account.replied().is_err());
        assert_eq!(account, before, "nothing changed");
    }

    #[test]
    fn a_peer_cannot_send_more_than_it_may() {
        let mut account = Account::default();
        (0..4).for_each(|_| account.enter(SMALL).unwrap());
        assert_eq!(account.enter(SMALL), Err(AccountError::Flood { limit: 4 }));
        account.handled();
        assert!(account.enter(SMALL).is_err(), "the peer does not know yet");
        account.take_due();
        account.enter(SMALL).unwrap();
    }

    #[test]
    fn one_question_at_a_time() {
        let mut account = Account::default();
        assert!(!account.ask(), "nothing is under way");
        account.admit(SMALL, false).unwrap();
        assert!(account.ask() && !account.ask());
        account.answered();
        assert!(account.ask());
    }
}
