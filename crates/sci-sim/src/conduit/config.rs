//! What can be chosen about the conduit: slots, methods, the handling of flags, and what its own work costs the
//! processor.

use super::layout::{LINE, Layout};
use super::status::MOST_SLOTS;
use crate::model::ConduitParameters;
use am_core::Span;
use fabric_sim::ConfigError;
use fabric_sim::parameters::Checker;
use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// How the payload of a Medium message reaches the slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediumMethod {
    /// Copied behind the header first, then stored in one transfer.
    OneCopy,
    /// Header and payload are stored by transfers of their own, the payload from where it lies: no copy. The
    /// published measurement found this better.
    #[default]
    TwoTransfers,
}

/// What becomes of the two flags that announce a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlagStores {
    /// As shipped: the receiver clears a ready flag when it has seen it, and the sender does not check whether its
    /// flag stores arrived. A message whose ready flag is lost never runs.
    Unchecked,
    /// Flags carry a number that tells a message from the one before in the same slot, so that storing one twice
    /// does no harm; the sender checks them like data, and stores them again until they have arrived. The receiver
    /// clears nothing.
    #[default]
    Numbered,
}

/// Sizes and methods of the conduit. Fields that a file leaves out are those of [`ConduitConfig::default`].
///
/// ```
/// use sci_sim::conduit::ConduitConfig;
/// let error = ConduitConfig { slot: 100, ..ConduitConfig::paper() }.check(2).unwrap_err();
/// assert!(error.to_string().starts_with("conduit.slot is 100, but must be"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConduitConfig {
    /// Request slots of a pair, 1 to 32; there are as many reply slots. 2 as published.
    pub requests: u32,
    /// Bytes of a slot, a multiple of 64 from 192 to 65,536. 1024 as published.
    pub slot: u32,
    /// How Medium payloads travel.
    pub medium: MediumMethod,
    /// Whether flag stores are checked.
    pub flags: FlagStores,
    /// Size of every rank's payload segment in bytes, for Long messages; the interface limits it to 1 MB unless it
    /// has the large-area patch.
    pub segment: u64,
    /// The size in bytes from which on Long payloads go by DMA, where the platform has its crossover.
    pub dma_from: u64,
    /// Size of the local segment that the DMA engine reads from, in bytes, a multiple of 64; longer payloads take
    /// several turns.
    pub dma_queue: u32,
    /// How often a connection is tried before it counts as impossible. 20 as published.
    pub connect_tries: u32,
    /// Time between two tries, in nanoseconds. A second as published.
    pub connect_pause_ns: f64,
    /// After so many empty polls in a row all ready flags are looked at, whatever the exist flag says; 0: never.
    pub full_scan_polls: u32,
    /// How long a rank sleeps after an announcement before it does the same, in nanoseconds: a ready flag may have
    /// been overtaken by its exist flag on the way. With unchecked flags, one of which may be lost, it never
    /// sleeps longer.
    pub full_scan_sleep_ns: f64,
    /// Whether requests of a pair are handled in the order in which they were sent, and replies likewise. The
    /// published design does not promise that. With flags that may be lost ([`FlagStores::Unchecked`]) all that is
    /// sent behind a lost message waits for it.
    pub ordered: bool,
    /// Whether messages take the way through an MPI library instead: the baseline of the published comparison.
    pub through_mpi: bool,
    /// Makes the protocol wrong on purpose.
    #[doc(hidden)]
    #[serde(skip)]
    pub mutation: Option<Mutation>,
}

/// What tests do to the protocol, to show that it is needed.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The ready flag is stored before the data.
    ReadyBeforeData,
    /// The ready flag is stored before the data is checked.
    ReadyBeforeCheck,
    /// The exist flag is stored before the ready flag.
    ExistBeforeReady,
    /// The exist flag is cleared after the scan.
    ClearAfterScan,
    /// A request takes a slot whether it is free or not.
    ForgetLocations,
    /// After an error that asks for it, only what was stored last is sent again.
    PartialResend,
    /// The receiver asks the sender's memory whether a message is there.
    RemotePoll,
}

/// What the conduit's own work costs the processor, in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub(super) construct: Span,
    pub(super) poll: Span,
    copy: Span,
    femtos_per_byte: u64,
    mpi: Span,
}

impl Costs {
    pub(super) fn new(parameters: &ConduitParameters) -> Self {
        let picos = |nanos: f64| Span((nanos * 1e3).round() as u64);
        Self {
            construct: picos(parameters.construct_ns),
            poll: picos(parameters.poll_ns),
            copy: picos(parameters.copy_ns),
            femtos_per_byte: (1e9 / parameters.copy_mb_s).round() as u64,
            mpi: picos(parameters.mpi_ns),
        }
    }

    /// The cost of a copy.
    pub(super) fn copying(&self, bytes: usize) -> Span {
        if bytes == 0 { Span::ZERO } else { Span(self.copy.0 + self.moving(bytes).0) }
    }

    /// The cost of a copy whose start-up is part of something else.
    pub(super) fn moving(&self, bytes: usize) -> Span {
        Span(bytes as u64 * self.femtos_per_byte / 1000)
    }

    /// What the MPI library adds at one side: half of what it adds to a message, and one of the two copies.
    pub(super) fn mpi(&self, bytes: usize) -> Span {
        Span(self.mpi.0 / 2 + self.moving(bytes).0)
    }
}

fn range(field: &str, value: impl Display, limit: &str) -> ConfigError {
    Checker::of("conduit").refuse(field, value, limit)
}

impl Default for ConduitConfig {
    /// The published sizes, with flags that are not lost: what conforms under errors of any store; and messages of
    /// a pair in their order.
    fn default() -> Self {
        Self {
            requests: 2,
            slot: 1024,
            medium: MediumMethod::TwoTransfers,
            flags: FlagStores::Numbered,
            segment: 1 << 16,
            dma_from: 2048,
            dma_queue: 1 << 16,
            connect_tries: 20,
            connect_pause_ns: 1e9,
            full_scan_polls: 1024,
            full_scan_sleep_ns: 50_000.0,
            ordered: true,
            through_mpi: false,
            mutation: None,
        }
    }
}

impl ConduitConfig {
    /// The published design to the letter, with the flag stores as shipped, and without order.
    pub fn paper() -> Self {
        Self { flags: FlagStores::Unchecked, ordered: false, ..Self::default() }
    }

    /// What the design can reach: eight requests of a pair under way, Medium payloads of up to 4,016 bytes, no
    /// lost flags.
    pub fn tuned() -> Self {
        Self { requests: 8, slot: 4096, ..Self::default() }
    }

    /// The baseline of the published comparison, a conduit on an MPI library: 10 us more for a message, half at
    /// either side, and payloads copied twice \[A\]. What travels is the same.
    pub fn mpi() -> Self {
        Self { through_mpi: true, ..Self::paper() }
    }

    /// The smallest sizes with which everything still works.
    pub fn smallest() -> Self {
        Self { requests: 1, slot: 192, dma_queue: 4096, ..Self::default() }
    }

    /// Checks that such a conduit is possible for so many ranks.
    ///
    /// # Errors
    /// The first field that is not possible, with its limit.
    pub fn check(&self, ranks: u32) -> Result<(), ConfigError> {
        self.compile(ranks).map(drop)
    }

    pub(super) fn compile(&self, ranks: u32) -> Result<Layout, ConfigError> {
        if !(1..=super::MAX_RANKS).contains(&ranks) {
            return Err(range("ranks", ranks, &format!("from 1 to {}", super::MAX_RANKS)));
        }
        if !(1..=MOST_SLOTS).contains(&self.requests) {
            return Err(range("requests", self.requests, &format!("from 1 to {MOST_SLOTS}")));
        }
        if !(192..=1 << 16).contains(&self.slot) || !(self.slot as usize).is_multiple_of(LINE) {
            return Err(range("slot", self.slot, "a multiple of 64 from 192 to 65536 bytes"));
        }
        if self.segment == 0 || self.segment > u32::MAX.into() {
            return Err(range("segment", self.segment, "from 1 to 2^32 - 1 bytes"));
        }
        if !(4096..=1 << 30).contains(&self.dma_queue) || !(self.dma_queue as usize).is_multiple_of(LINE) {
            return Err(range("dma_queue", self.dma_queue, "a multiple of 64 from 4096 to 2^30 bytes"));
        }
        if self.connect_tries == 0 {
            return Err(range("connect_tries", self.connect_tries, "at least 1"));
        }
        if !(0.0..=1e12).contains(&self.connect_pause_ns) {
            return Err(range("connect_pause_ns", self.connect_pause_ns, "from 0 to 1e12 ns"));
        }
        if !(1.0..=1e12).contains(&self.full_scan_sleep_ns) {
            return Err(range("full_scan_sleep_ns", self.full_scan_sleep_ns, "from 1 to 1e12 ns"));
        }
        Ok(Layout { ranks, requests: self.requests, slot: self.slot as usize })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_sizes_name_field_and_limit() {
        let refused = |change: fn(&mut ConduitConfig)| {
            let mut config = ConduitConfig::default();
            change(&mut config);
            config.check(4).unwrap_err().to_string()
        };
        assert_eq!(refused(|c| c.requests = 33), "conduit.requests is 33, but must be from 1 to 32");
        assert_eq!(
            refused(|c| c.slot = 100),
            "conduit.slot is 100, but must be a multiple of 64 from 192 to 65536 bytes"
        );
        assert!(refused(|c| c.segment = 0).starts_with("conduit.segment is 0"));
        assert!(refused(|c| c.dma_queue = 64).starts_with("conduit.dma_queue is 64"));
        assert!(refused(|c| c.connect_tries = 0).starts_with("conduit.connect_tries is 0"));
        assert!(refused(|c| c.connect_pause_ns = -1.0).starts_with("conduit.connect_pause_ns is -1"));
        assert!(refused(|c| c.full_scan_sleep_ns = f64::NAN).starts_with("conduit.full_scan_sleep_ns is NaN"));
        assert!(ConduitConfig::default().check(65_533).is_err() && ConduitConfig::default().check(65_532).is_ok());
    }
}
