//! What can be chosen about the conduit: sizes, and what its own work costs.

use crate::nic::Paging;
use am_core::Span;
use fabric_sim::ConfigError;
use fabric_sim::parameters::Checker;
use serde::{Deserialize, Serialize};

/// The most request slots of a pair, and the most of any kind: a word of credits names them.
const MOST_REQUESTS: u32 = 28;
const MOST_SLOTS: u32 = 32;
/// Slots of the small messages between cores, so that no flood of requests gets in their way.
pub(super) const CONTROL_SLOTS: u32 = 4;
/// The least Medium payload that is worth a transport, in bytes.
const LEAST_MEDIUM: u32 = 64;

/// Sizes of the conduit. Fields that a file leaves out are those of [`ConduitConfig::default`].
///
/// ```
/// use exanet_sim::{ExanetConfig, conduit::{self, ConduitConfig}};
///
/// let config = ConduitConfig { medium: 1 << 20, ..ConduitConfig::default() };
/// let error = conduit::run(&ExanetConfig::pair(), &config, |_| ()).unwrap_err();
/// assert_eq!(error.to_string(), "conduit.medium is 1048576, but must be from 64 to 65536");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConduitConfig {
    /// Largest Medium payload in bytes, either direction, 64 to 65,536. With very many ranks each has too little
    /// of the receive buffers for it; [`Limits`](am_core::Limits) then tell how much there is.
    pub medium: u32,
    /// The reply bound of handlers that declare none, in bytes; at most as much as the largest Medium message.
    pub default_reply: u32,
    /// Payloads of so many bytes travel in control packets, longer ones by writes; at most 1024.
    pub inline: u32,
    /// Requests that a rank may have under way to each peer, 1 to 28, as far as the receive buffers have room.
    pub request_slots: u32,
    /// Replies of each peer that a rank has room for, 1 to 32, as far as the receive buffers have room.
    pub reply_slots: u32,
    /// Receive buffers of a rank in bytes, for all its peers, at most 2^32. Pages that are never touched take no
    /// memory.
    pub buffers: u64,
    /// Size of every rank's segment in bytes, at most 2^32. Pages that are never touched take no memory.
    pub segment: u64,
    /// Buffers that writes leave from and gets come to, 2 to 1024.
    pub stages: u32,
    /// Size of each in bytes, at least 4096 and the largest Medium payload; longer payloads are cut.
    pub stage_bytes: u32,
    /// Whether the conduit's memory is pinned. What is not can be met by page faults.
    pub pinned: bool,
    /// What the conduit's own work costs.
    pub costs: HostCosts,
}

/// What the conduit's own work costs the processor, besides what the interface charges for its calls
/// ([`Parameters`](crate::model::Parameters)). All \[A\]: assumed for an ARMv8 core of 1.5 GHz.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostCosts {
    /// Taking credits and composing a frame, in nanoseconds.
    pub compose_ns: f64,
    /// Looking up and calling a handler, in nanoseconds.
    pub dispatch_ns: f64,
    /// A copy, however small, in nanoseconds.
    pub copy_ns: f64,
    /// A copy, for each 64 bytes begun, in nanoseconds.
    pub copy_line_ns: f64,
}

impl HostCosts {
    /// The prototype's cores.
    pub const fn armv8() -> Self {
        Self {
            // [A] about 80 cycles.
            compose_ns: 53.0,
            // [A] about 60 cycles.
            dispatch_ns: 40.0,
            // [A] call and start-up.
            copy_ns: 20.0,
            // [A] 64 bytes at 3 GB/s.
            copy_line_ns: 21.0,
        }
    }

    /// Work that costs nothing, for the same conduit without times.
    pub const fn free() -> Self {
        Self { compose_ns: 0.0, dispatch_ns: 0.0, copy_ns: 0.0, copy_line_ns: 0.0 }
    }

    fn compile(&self) -> Result<Costs, ConfigError> {
        let table = Checker::of("conduit.costs");
        Ok(Costs {
            compose: table.time("compose_ns", self.compose_ns)?,
            dispatch: table.time("dispatch_ns", self.dispatch_ns)?,
            copy: table.time("copy_ns", self.copy_ns)?,
            copy_line: table.time("copy_line_ns", self.copy_line_ns)?,
        })
    }
}

impl Default for HostCosts {
    fn default() -> Self {
        Self::armv8()
    }
}

/// [`HostCosts`] in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub(super) compose: Span,
    pub(super) dispatch: Span,
    copy: Span,
    copy_line: Span,
}

impl Costs {
    /// The cost of copying bytes.
    #[inline]
    pub(super) fn copying(&self, bytes: usize) -> Span {
        if bytes == 0 { Span::ZERO } else { Span(self.copy.0 + self.copy_line.0 * bytes.div_ceil(64) as u64) }
    }
}

/// The sizes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) medium: u32,
    pub(super) requests: u32,
    pub(super) replies: u32,
}

impl Sizes {
    /// Slots of the request lane that have a buffer, and those of small messages between cores behind them.
    pub(super) const fn request_slots(&self) -> u32 {
        (1 << self.requests) - 1
    }

    pub(super) const fn control_slots(&self) -> u32 {
        ((1 << CONTROL_SLOTS) - 1) << self.requests
    }

    pub(super) const fn reply_slots(&self) -> u32 {
        u32::MAX >> (MOST_SLOTS - self.replies)
    }

    /// Bytes of the receive buffers that a peer has.
    const fn share(&self) -> u64 {
        (self.requests + self.replies) as u64 * self.medium as u64
    }

    pub(super) const fn buffers(&self, ranks: u32) -> u64 {
        self.share() * ranks as u64
    }

    /// Where a slot's buffer begins in the receive buffers.
    pub(super) const fn buffer(&self, peer: u32, reply: bool, slot: u8) -> u64 {
        let index = slot as u64 + if reply { self.requests as u64 } else { 0 };
        peer as u64 * self.share() + index * self.medium as u64
    }
}

/// Where the word begins that notifies a slot's writes.
pub(super) const fn note(peer: u32, reply: bool, slot: u8) -> u64 {
    8 * ((peer as u64 * 2 + reply as u64) * MOST_SLOTS as u64 + slot as u64)
}

/// Size of the words of all peers.
pub(super) const fn notes(ranks: u32) -> u64 {
    note(ranks, false, 0)
}

impl Default for ConduitConfig {
    fn default() -> Self {
        Self {
            medium: 4096,
            default_reply: 1024,
            inline: 192,
            request_slots: 16,
            reply_slots: 16,
            buffers: 16 << 20,
            segment: 1 << 16,
            stages: 8,
            stage_bytes: 1 << 16,
            pinned: false,
            costs: HostCosts::armv8(),
        }
    }
}

impl ConduitConfig {
    /// The smallest sizes with which everything still works.
    pub fn smallest() -> Self {
        Self {
            medium: LEAST_MEDIUM,
            inline: 0,
            request_slots: 1,
            reply_slots: 1,
            stages: 2,
            stage_bytes: 4096,
            ..Self::default()
        }
    }

    pub(super) const fn paging(&self) -> Paging {
        if self.pinned { Paging::Pinned } else { Paging::Touched }
    }

    /// Checks the sizes for a job and divides the receive buffers.
    pub(super) fn compile(&self, ranks: u32) -> Result<(Sizes, Costs), ConfigError> {
        let table = Checker::of("conduit");
        for (field, value, limits) in [
            ("medium", u64::from(self.medium), u64::from(LEAST_MEDIUM)..=1 << 16),
            ("inline", self.inline.into(), 0..=1024),
            ("request_slots", self.request_slots.into(), 1..=MOST_REQUESTS.into()),
            ("reply_slots", self.reply_slots.into(), 1..=MOST_SLOTS.into()),
            ("buffers", self.buffers, 1..=1 << 32),
            ("segment", self.segment, 1..=1 << 32),
            ("stages", self.stages.into(), 2..=1024),
            ("stage_bytes", self.stage_bytes.into(), u64::from(self.medium.max(4096))..=1 << 30),
        ] {
            table.within(field, value, limits)?;
        }
        let costs = self.costs.compile()?;
        // The shares shrink first, and then the messages.
        let share = self.buffers / u64::from(ranks.max(1));
        let slots = |medium: u32, most: u32| (share / 2 / u64::from(medium)).min(most.into()) as u32;
        let mut medium = self.medium;
        while medium > LEAST_MEDIUM && slots(medium, 1) == 0 {
            medium = (medium / 2).max(LEAST_MEDIUM);
        }
        let (requests, replies) = (slots(medium, self.request_slots), slots(medium, self.reply_slots));
        if requests == 0 {
            let least = u64::from(ranks) * 2 * u64::from(LEAST_MEDIUM);
            let limit = format!("at least {least}, two slots of {LEAST_MEDIUM} bytes for each of {ranks} ranks");
            return Err(table.refuse("buffers", self.buffers, limit));
        }
        Ok((Sizes { medium, requests, replies }, costs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_shrink_before_messages() {
        let sizes = |ranks| ConduitConfig::default().compile(ranks).unwrap().0;
        assert_eq!(sizes(2), Sizes { medium: 4096, requests: 16, replies: 16 });
        assert_eq!(sizes(512), Sizes { medium: 4096, requests: 4, replies: 4 });
        assert_eq!(sizes(16_384), Sizes { medium: 512, requests: 1, replies: 1 });
        for ranks in [1, 2, 3, 100, 512, 4096, 32_000] {
            let sizes = sizes(ranks);
            assert!(sizes.buffers(ranks) <= 16 << 20, "{sizes:?}");
            assert_eq!(sizes.request_slots() & sizes.control_slots(), 0);
        }
    }

    #[test]
    fn buffers_and_words_of_slots_do_not_overlap() {
        let (sizes, _) =
            ConduitConfig { request_slots: 3, reply_slots: 2, ..ConduitConfig::default() }.compile(3).unwrap();
        let slots = (0..3).flat_map(|peer| {
            let lanes = [(false, sizes.requests), (true, sizes.replies)];
            lanes.into_iter().flat_map(move |(reply, slots)| (0..slots as u8).map(move |slot| (peer, reply, slot)))
        });
        let buffers: Vec<u64> = slots.clone().map(|(peer, reply, slot)| sizes.buffer(peer, reply, slot)).collect();
        let expected: Vec<u64> = (0..15).map(|index| index * 4096).collect();
        assert_eq!((buffers, sizes.buffers(3)), (expected, 15 * 4096));
        let words: Vec<u64> = slots.map(|(peer, reply, slot)| note(peer, reply, slot)).collect();
        assert!(words.windows(2).all(|two| two[0] < two[1]) && words[14] < notes(3));
    }

    #[test]
    fn bad_sizes_name_field_and_limit() {
        let refused = |change: fn(&mut ConduitConfig)| {
            let mut config = ConduitConfig::default();
            change(&mut config);
            config.compile(4).unwrap_err().to_string()
        };
        assert_eq!(refused(|c| c.medium = 63), "conduit.medium is 63, but must be from 64 to 65536");
        assert_eq!(refused(|c| c.inline = 1025), "conduit.inline is 1025, but must be from 0 to 1024");
        assert_eq!(refused(|c| c.request_slots = 29), "conduit.request_slots is 29, but must be from 1 to 28");
        assert_eq!(refused(|c| c.reply_slots = 0), "conduit.reply_slots is 0, but must be from 1 to 32");
        assert!(refused(|c| c.segment = 0).starts_with("conduit.segment is 0"));
        assert_eq!(refused(|c| c.stages = 1), "conduit.stages is 1, but must be from 2 to 1024");
        assert_eq!(
            refused(|c| c.stage_bytes = 100),
            "conduit.stage_bytes is 100, but must be from 4096 to 1073741824"
        );
        assert!(refused(|c| c.costs.copy_ns = f64::NAN).starts_with("conduit.costs.copy_ns is NaN"));
        assert_eq!(
            refused(|c| c.buffers = 500),
            "conduit.buffers is 500, but must be at least 512, two slots of 64 bytes for each of 4 ranks"
        );
    }
}
