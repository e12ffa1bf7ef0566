//! What the two machines of the bank policy tell each other: four small values that a conduit puts on its wire.
//!
//! They need a channel that delivers each of them exactly once; order does not matter, because all of them are
//! amounts that are added or subtracted.

/// Sender to target, with every request: what the request costs, and how many more credits the sender would like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CreditUse {
    /// Credits that the request uses up, `1..=max_cost`.
    pub cost: u32,
    /// Additional credits wanted because the sender has stalled or is about to, `0..=max_ask`; 0 asks for nothing.
    pub ask: u32,
}

/// Target to sender, with the answer to every request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[must_use = "the credits in a return exist nowhere else: put it on the wire"]
pub struct CreditReturn {
    /// Credits of served requests that come back, `0..=max_return`.
    pub credits: u32,
    /// Credits lent in addition, `0..=max_ask`.
    pub granted: u32,
    /// An epoch of the target has ended since its last message to this sender.
    pub end_of_epoch: bool,
}

impl CreditReturn {
    /// Whether the message carries no credit, so that it need not be sent by itself.
    pub const fn is_empty(&self) -> bool {
        self.credits == 0 && self.granted == 0
    }
}

/// Target to sender: please give up to `limit` unused credits back. Always answered by one [`Surrender`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a revocation that is not sent is never answered, and the bank waits for the answer"]
pub struct Revoke {
    /// Credits that the target would like back at most.
    pub limit: u32,
    /// An epoch of the target has ended since its last message to this sender.
    pub end_of_epoch: bool,
}

/// Sender to target: the answer to a [`Revoke`], possibly 0 credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the credits in a surrender exist nowhere else: put it on the wire"]
pub struct Surrender {
    /// Credits given up, at most the revocation's limit.
    pub credits: u32,
}
