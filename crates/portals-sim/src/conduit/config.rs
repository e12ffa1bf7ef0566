//! What can be chosen about the conduit: flow control, sizes; and the table of credits by the number of nodes.

use super::codec::MOST_CREDITS;
use super::send_slots::{FOR_CONTROL, FOR_REPLY};
use super::space::Space;
use crate::credit::{Growth, LoanConfig};
use am_core::Peer;
use fabric_sim::ConfigError;
use serde::{Deserialize, Serialize};

/// How a receiver's request buffers are kept from overflowing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowControl {
    /// Every sender owns a fixed share of every receiver's buffers. The conduit's first approach: not scalable.
    Static,
    /// Every sender starts with a small loan, the rest is banked; the receiver lends to chatty peers and revokes
    /// from quiet ones. The conduit's final approach.
    #[default]
    Bank,
    /// No credits: Portals 4 disables a full receiver's portal, senders learn that from acknowledgements and send
    /// again.
    Disable,
}

/// How much more a sender asks for that has too few credits, and what three bits of a message say about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extra {
    /// What a request found missing, at most 7, as published: a stalled sender's next request asks.
    #[default]
    Shortage,
    /// As much as the loan is already, in powers of two up to 64, of which three bits tell the exponent. The
    /// request asks that leaves too few for one like it. A receiver that computes answers late, so that a sender
    /// has few round trips to get from its small loan to what a burst needs.
    Doubling,
}

/// Flow control and sizes of the conduit. Fields that a file leaves out are those of [`ConduitConfig::default`],
/// which are the published ones wherever something is published; [`ConduitConfig::tuned`] has this project's rules
/// of lending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConduitConfig {
    /// How receive buffers are kept from overflowing.
    pub flow: FlowControl,
    /// Request receive buffers, at least 2: one may be partly handled while the others fill.
    pub buffers: u32,
    /// Bytes of a send-buffer chunk, 128 to 4096: the largest frame, arguments and payload together.
    pub chunk: u32,
    /// Receive-buffer bytes that a credit stands for; a chunk is worth 15 credits at most.
    pub credit_bytes: u32,
    /// Credits of each peer: its share, or its loan at the start. 0: by the number of ranks; see
    /// [`ConduitConfig::table`].
    pub credits: u32,
    /// Credits that a bank keeps at the start; without it by the number of ranks.
    pub banked: Option<u32>,
    /// The loan that no revocation goes below; 0: what the largest frame costs.
    pub least: u32,
    /// The largest loan.
    pub loan_cap: u32,
    /// Credits lent to one peer within an epoch at most.
    pub lend_limit: u32,
    /// What a sender asks for that runs short.
    pub extra: Extra,
    /// Requests received that end an epoch.
    pub epoch: u32,
    /// Peers that one refused ask revokes from at most.
    pub revoke_peers: u32,
    /// Credits in one revocation at most, up to 255.
    pub revoke_limit: u32,
    /// Credits that a peer must have to spare to be asked for them: a revocation costs two messages.
    pub revoke_least: u32,
    /// Chunks of the send buffer, at least 3: requests that can be under way, two of them messages between cores.
    pub send_chunks: u32,
    /// Slots of the reply buffer, at least 1: replies that the interface has not sent yet.
    pub reply_slots: u32,
    /// Send slots, at least 5; 0: as many as chunks, and two for each reply slot.
    pub send_slots: u32,
    /// Payloads of Long messages that can be under way, at least 2.
    pub staging: u32,
    /// Puts and gets that can be under way, at least 1.
    pub operations: u32,
    /// Memory descriptors that the registration cache keeps, at least 4.
    pub firehose_slots: u32,
    /// Pages that it keeps registered.
    pub firehose_pages: u64,
    /// The reply bound of handlers that declare none, in bytes.
    pub default_reply: u32,
    /// Size of every rank's segment in bytes. Pages that are never touched take no memory.
    pub segment: u64,
    /// Portals 4: receive buffers, at least 2, their size in bytes, and events that the receiver's queue has room
    /// for.
    pub disable_buffers: u32,
    /// Portals 4: bytes of a receive buffer, at least two chunks.
    pub disable_bytes: u32,
    /// Portals 4: room of the queue for arrivals, at least 8.
    pub disable_events: u32,
    /// Portals 4: how long a sender waits before it sends again, in nanoseconds; doubled eight times at most.
    pub resend_ns: f64,
    /// Makes the conduit wrong on purpose.
    #[doc(hidden)]
    #[serde(skip)]
    pub testing: Testing,
}

/// What tests do to the conduit.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Testing {
    /// The receive space is exactly what the credits are worth: only a first wave of whole-credit messages fits.
    pub exact_space: bool,
    /// Every sender believes to have so many credits more than it was lent.
    pub extra_credits: u32,
    /// Requests are taken in without holding what their replies need, and may take the last send slots.
    pub unreserved: bool,
    /// Portals 4: messages that come out of turn are handled as they come.
    pub out_of_turn: bool,
}

impl Default for ConduitConfig {
    fn default() -> Self {
        Self {
            flow: FlowControl::default(),
            // [S] triple buffered in the figure, double in the table.
            buffers: 3,
            // [C] the next twelve.
            chunk: 2048,
            credit_bytes: 256,
            credits: 0,
            banked: None,
            least: 8,
            loan_cap: 400,
            // [C]
            lend_limit: 32,
            extra: Extra::default(),
            epoch: 1024,
            revoke_peers: 6,
            revoke_limit: 32,
            // [C] whatever there is.
            revoke_least: 1,
            send_chunks: 2048,
            reply_slots: 256,
            send_slots: 0,
            // [A]
            staging: 32,
            operations: 256,
            firehose_slots: 64,
            firehose_pages: 4096,
            default_reply: 1024,
            segment: 1 << 16,
            // [C] the Portals 4 conduit's.
            disable_buffers: 16,
            disable_bytes: 1 << 20,
            // [A]
            disable_events: 1 << 16,
            resend_ns: 10_000.0,
            testing: Testing::default(),
        }
    }
}

impl ConduitConfig {
    /// The default with another flow control.
    pub fn with(flow: FlowControl) -> Self {
        Self { flow, ..Self::default() }
    }

    /// The published sizes with this project's rules of lending \[A\], which keep up with static shares where the
    /// published ones do not: a sender asks one request earlier and for as much as it holds ([`Extra::Doubling`]);
    /// what is lent to a peer in an epoch is limited by the largest loan alone, since with 32 a burst of some
    /// hundred credits takes many epochs; and a revocation, which costs two messages, must hope for a large
    /// message's worth.
    ///
    /// ```
    /// use portals_sim::conduit::{ConduitConfig, Extra};
    /// let (published, tuned) = (ConduitConfig::default(), ConduitConfig::tuned());
    /// assert_eq!((published.extra, published.lend_limit, published.revoke_least), (Extra::Shortage, 32, 1));
    /// assert_eq!((tuned.extra, tuned.lend_limit, tuned.revoke_least), (Extra::Doubling, 400, 8));
    /// ```
    pub fn tuned() -> Self {
        Self { extra: Extra::Doubling, lend_limit: 400, revoke_least: 8, ..Self::default() }
    }

    /// The smallest sizes with which everything still works, for tests of scarcity.
    pub fn smallest() -> Self {
        Self {
            buffers: 2,
            chunk: 128,
            credit_bytes: 64,
            credits: 2,
            banked: Some(2),
            least: 2,
            send_chunks: 8,
            reply_slots: 1,
            send_slots: 10,
            staging: 2,
            operations: 2,
            firehose_slots: 4,
            firehose_pages: 8,
            default_reply: 64,
            disable_buffers: 2,
            disable_bytes: 512,
            disable_events: 8,
            ..Self::default()
        }
    }

    /// The published table: credits of each node and credits of the bank, by the number of nodes \[S, C\]. It has
    /// 64, 128, 512, 1024, 2048 and 4096 nodes; in between, the next larger row's loan. The bank's 25,600 from
    /// 1024 nodes on are assumed: they keep the total of 58,368 that 512 nodes have.
    ///
    /// ```
    /// use portals_sim::conduit::ConduitConfig;
    /// assert_eq!([64, 128].map(ConduitConfig::table), [(170, 12_800), (170, 25_600)]);
    /// assert_eq!([512, 4096].map(ConduitConfig::table), [(64, 25_600), (8, 25_600)]);
    /// ```
    pub const fn table(nodes: u32) -> (u32, u32) {
        let loan = match nodes {
            0..=128 => 170,
            129..=512 => 64,
            513..=1024 => 32,
            1025..=2048 => 16,
            _ => 8,
        };
        (loan, if nodes < 128 { 200 * nodes } else { 25_600 })
    }

    /// Bytes that one node of a job of so many ranks keeps for requests of others: receive buffers, and the
    /// entries of the event queue, at 128 bytes each \[C\].
    ///
    /// # Errors
    /// [`ConfigError`] as [`run`](super::run).
    pub fn receive_bytes(&self, ranks: u32) -> Result<u64, ConfigError> {
        let sizes = self.compile(ranks)?;
        Ok(sizes.space.total() + 128 * u64::from(sizes.am_events))
    }

    pub(super) fn compile(&self, ranks: u32) -> Result<Sizes, ConfigError> {
        if ranks == 0 {
            return Err(ConfigError::range("ranks", ranks, "at least 1"));
        }
        for (field, value, least, most) in [
            ("buffers", self.buffers, 2, 1024),
            ("chunk", self.chunk, 128, 4096),
            ("credit_bytes", self.credit_bytes, 16, 4096),
            ("send_chunks", self.send_chunks, 3, 1 << 16),
            ("reply_slots", self.reply_slots, 1, 1 << 16),
            ("staging", self.staging, 2, 256),
            ("operations", self.operations, 1, 1 << 16),
            ("firehose_slots", self.firehose_slots, 4, 1024),
            ("revoke_limit", self.revoke_limit, 0, 255),
            ("disable_buffers", self.disable_buffers, 2, 1024),
            ("disable_bytes", self.disable_bytes, 2 * self.chunk, 1 << 30),
            ("disable_events", self.disable_events, 8, 1 << 20),
            ("send_slots", if self.send_slots == 0 { 5 } else { self.send_slots }, 5, 1 << 18),
        ] {
            if !(least..=most).contains(&value) {
                return Err(range(field, value, &format!("from {least} to {most}")));
            }
        }
        if self.segment > 1 << 32 {
            return Err(range("segment", self.segment, "at most 4294967296"));
        }
        if !(0.0..=1e12).contains(&self.resend_ns) {
            return Err(range("resend_ns", self.resend_ns, "from 0 to 1e12 ns"));
        }
        let costs = Costs { unit: self.credit_bytes };
        let dearest = costs.of(self.chunk as usize).max(2);
        if dearest > MOST_CREDITS {
            let limit = format!("at least {}, a fifteenth of a chunk", self.chunk.div_ceil(MOST_CREDITS));
            return Err(range("credit_bytes", self.credit_bytes, &limit));
        }
        let (loan, banked) = Self::table(ranks);
        let loan = if self.credits == 0 { loan } else { self.credits };
        let least = if self.least == 0 { dearest } else { self.least };
        if loan < dearest {
            return Err(range("credits", loan, &format!("at least {dearest}, which the largest frame costs")));
        }
        let mut loans = LoanConfig::new(ranks, 0, dearest);
        (loans.initial, loans.min) = (loan, least.max(dearest).min(loan));
        let banked = if self.flow == FlowControl::Bank { self.banked.unwrap_or(banked) } else { 0 };
        let total = u64::from(ranks) * u64::from(loan) + u64::from(banked);
        let Ok(total_credits) = u32::try_from(total) else {
            return Err(range("credits", loan, &format!("less: {ranks} ranks would have {total} in all")));
        };
        loans.total = total_credits;
        loans.loan_cap = self.loan_cap.max(loan);
        loans.lend_limit = self.lend_limit;
        (loans.max_ask, loans.max_return) = (self.extra.most(), MOST_CREDITS);
        loans.growth = match self.extra {
            Extra::Shortage => Growth::Shortage,
            Extra::Doubling => Growth::Doubling,
        };
        (loans.epoch, loans.decay_shift) = (self.epoch, 2);
        (loans.revoke_peers, loans.revoke_limit) = (self.revoke_peers, self.revoke_limit);
        loans.revoke_least = self.revoke_least;
        loans.validate().map_err(|error| range("credits", loan, &format!("possible: {error}")))?;
        let (space, am_events) = match self.flow {
            FlowControl::Disable => {
                let space = Space { buffers: self.disable_buffers, bytes: self.disable_bytes.into() };
                (space, self.disable_events)
            }
            FlowControl::Static | FlowControl::Bank => {
                let space = Space::needed(self.buffers, total, self.credit_bytes, self.chunk, &self.testing);
                // Every credit may be a message; then buffers that are unlinked.
                let events = total + u64::from(self.buffers);
                let events = u32::try_from(events).map_err(|_| range("credits", loan, "less"))?;
                (space, events)
            }
        };
        let send_slots =
            if self.send_slots == 0 { self.send_chunks + 2 * self.reply_slots } else { self.send_slots };
        // Per send slot: the message and the payload have left, a reply and its payload have come, credits
        // ahead of it. On Portals 4 also acknowledgements, which may come when the send slot is used again. Per
        // operation: what it sends has left, twice for a signal, and it is done.
        let safe_events = 8 * send_slots + 3 * self.operations + 16;
        // A peer that answers nothing must not stand in the way of the others.
        let requests = (self.send_chunks - FOR_CONTROL).min(send_slots - FOR_CONTROL - FOR_REPLY);
        let most_per_peer = requests.div_ceil(2);
        let medium = self.chunk - 64;
        Ok(Sizes { costs, loans, space, am_events, safe_events, send_slots, medium, most_per_peer })
    }
}

fn range(field: &str, value: impl ToString, limit: &str) -> ConfigError {
    ConfigError::OutOfRange { field: format!("conduit.{field}"), value: value.to_string(), limit: limit.into() }
}

/// What frames cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    unit: u32,
}

impl Costs {
    /// Credits of a frame of so many bytes: each message takes an event, if no room.
    #[inline]
    pub(super) const fn of(self, bytes: usize) -> u32 {
        let credits = (bytes as u32).div_ceil(self.unit);
        if credits == 0 { 1 } else { credits }
    }
}

/// What follows from a configuration and the number of ranks.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub(super) costs: Costs,
    pub(super) loans: LoanConfig,
    pub(super) space: Space,
    pub(super) am_events: u32,
    pub(super) safe_events: u32,
    pub(super) send_slots: u32,
    /// The largest Medium payload.
    pub(super) medium: u32,
    /// Requests to one peer that can be under way.
    pub(super) most_per_peer: u32,
}

impl Sizes {
    /// The parameters of one rank's own bank.
    pub(super) fn bank_of(&self, me: u32) -> LoanConfig {
        let mut loans = self.loans.clone();
        loans.me = Some(Peer(me));
        loans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sizes_follow() {
        let sizes = ConduitConfig::default().compile(512).unwrap();
        assert_eq!((sizes.loans.initial, sizes.loans.total, sizes.loans.min), (64, 58_368, 8));
        assert_eq!(
            (sizes.costs.of(0), sizes.costs.of(256), sizes.costs.of(257), sizes.costs.of(2048)),
            (1, 1, 2, 8)
        );
        assert_eq!(sizes.medium, 1984);
        let loans = &sizes.loans;
        assert_eq!((loans.max_ask, loans.lend_limit, loans.revoke_least, loans.loan_cap), (7, 32, 1, 400));
        assert_eq!((loans.growth, loans.epoch, loans.revoke_peers), (Growth::Shortage, 1024, 6));
        for ranks in [1024, 2048, 4096] {
            assert_eq!(ConduitConfig::default().compile(ranks).unwrap().loans.total, 58_368);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_field() {
        let refused = |change: fn(&mut ConduitConfig)| {
            let mut config = ConduitConfig::default();
            change(&mut config);
            config.compile(4).unwrap_err().to_string()
        };
        assert_eq!(refused(|c| c.buffers = 1), "conduit.buffers is 1, but must be from 2 to 1024");
        assert_eq!(
            refused(|c| c.credit_bytes = 128),
            "conduit.credit_bytes is 128, but must be at least 137, a fifteenth of a chunk"
        );
        assert_eq!(
            refused(|c| c.credits = 7),
            "conduit.credits is 7, but must be at least 8, which the largest frame costs"
        );
        assert!(refused(|c| c.send_slots = 2).starts_with("conduit.send_slots is 2"));
        assert!(refused(|c| c.segment = 1 << 33).starts_with("conduit.segment is 8589934592"));
        ConduitConfig::smallest().compile(3).unwrap();
    }
}
