//! What can be chosen about the conduit: sizes, the implementation, and what its own work costs the processor.

use super::layout::{Implementation, Layout};
use super::rooms::Rooms;
use am_core::Span;
use fabric_sim::ConfigError;
use fabric_sim::parameters::Checker;
use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// Sizes and kind of the conduit. Fields that a file leaves out are those of [`GasnetConfig::default`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GasnetConfig {
    /// Which implementation of active messages is used.
    pub implementation: Implementation,
    /// Bytes of a full VELO packet: 56 fill one mailbox slot; 64, the MTU of the FPGA, take two; 112 fill two
    /// (ASIC).
    pub packet: u32,
    /// Size of every rank's mailbox ring in segments of 64 KB, 1 to 512; 0: as many as the ranks of the job need.
    pub segments: u32,
    /// Largest Medium payload in bytes, either direction, at most 8192. With very many ranks each has too little
    /// room in the rings for one such message; [`Limits`](am_core::Limits) then tell how much there is.
    pub medium: u32,
    /// The reply bound of handlers that declare none, in bytes; at most as much as the largest Medium reply has.
    /// The larger it is, the fewer such requests can be under way.
    pub default_reply: u32,
    /// Mailbox slots at each peer that a rank wants for its requests. At least one message of the largest size
    /// fits.
    pub request_slots: u32,
    /// Mailbox slots that a rank wants to set aside for each peer's replies. At least one of the largest size
    /// fits.
    pub reply_slots: u32,
    /// Size of every rank's segment in bytes, at most 2^32. Pages that are never touched take no memory.
    pub segment: u64,
    /// Bounce buffers for Long payloads, in bytes, at least 4096: puts read from registered memory.
    pub bounce: u32,
    /// The largest put, in bytes, 1 to 8,388,608; longer payloads are cut.
    pub put: u32,
    /// Whether requests of a pair are handled in the order in which they were sent, and replies likewise. If not,
    /// messages overtake a Long one whose payload has not come.
    pub ordered: bool,
    /// What the conduit's own work costs.
    pub costs: HostCosts,
}

/// What the conduit's own work costs the processor, besides what the interface charges for its calls
/// ([`Parameters`](crate::model::Parameters)). All \[A\]: assumed for a
/// 2 GHz Opteron, the processor of the conduit paper's cluster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostCosts {
    /// Taking credits and composing a header, per frame sent, in nanoseconds.
    pub compose_ns: f64,
    /// Looking up and calling a handler, in nanoseconds.
    pub dispatch_ns: f64,
    /// A copy, however small, in nanoseconds.
    pub copy_ns: f64,
    /// A copy, for each 64 bytes begun, in nanoseconds.
    pub copy_line_ns: f64,
    /// Finding the reassembly buffer of a source and keeping its state, per packet put there, in nanoseconds.
    pub assemble_ns: f64,
    /// Writing a register of the interface across the bus, as committing the read pointer does, in nanoseconds.
    pub register_ns: f64,
    /// Taking and leaving the conduit's lock (AMLOCK, AMUNLOCK), once per frame sent and once per poll, in
    /// nanoseconds. A rank is one thread here, so that nobody waits for it. 0: the build for programs of one
    /// thread.
    pub lock_ns: f64,
    /// Learning the endpoints of one other rank when a rank joins the job, in nanoseconds.
    pub exchange_ns: f64,
}

impl HostCosts {
    /// The processor of the conduit paper's cluster.
    pub const fn opteron() -> Self {
        Self {
            // [A] about 80 cycles.
            compose_ns: 40.0,
            // [A] an indirect call that is predicted badly, and the look-up.
            dispatch_ns: 30.0,
            // [A] call and start-up.
            copy_ns: 15.0,
            // [A] 64 bytes at 4 GB/s, from cache to cache.
            copy_line_ns: 16.0,
            // [A] a look-up by source and a few words of state, partly out of cache.
            assemble_ns: 60.0,
            // [A] a posted write over HyperTransport.
            register_ns: 100.0,
            lock_ns: 0.0,
            // [A] a line of the job's key-value space.
            exchange_ns: 1_000.0,
        }
    }

    /// Work that costs nothing, for the same conduit without times.
    pub const fn free() -> Self {
        Self {
            compose_ns: 0.0,
            dispatch_ns: 0.0,
            copy_ns: 0.0,
            copy_line_ns: 0.0,
            assemble_ns: 0.0,
            register_ns: 0.0,
            lock_ns: 0.0,
            exchange_ns: 0.0,
        }
    }

    pub(super) fn compile(&self) -> Result<Costs, ConfigError> {
        let time = |nanos: f64, field: &str| {
            if (0.0..=1e9).contains(&nanos) {
                return Ok(Span((nanos * 1e3).round() as u64));
            }
            Err(range(&format!("costs.{field}"), nanos, "from 0 to 1e9 ns"))
        };
        Ok(Costs {
            compose: time(self.compose_ns, "compose_ns")?,
            lock: time(self.lock_ns, "lock_ns")?,
            exchange: time(self.exchange_ns, "exchange_ns")?,
            dispatch: time(self.dispatch_ns, "dispatch_ns")?,
            copy: time(self.copy_ns, "copy_ns")?,
            copy_line: time(self.copy_line_ns, "copy_line_ns")?,
            assemble: time(self.assemble_ns, "assemble_ns")?,
            register: time(self.register_ns, "register_ns")?,
        })
    }
}

impl Default for HostCosts {
    fn default() -> Self {
        Self::opteron()
    }
}

/// [`HostCosts`] in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    compose: Span,
    pub(super) dispatch: Span,
    copy: Span,
    copy_line: Span,
    assemble: Span,
    pub(super) register: Span,
    pub(super) lock: Span,
    pub(super) exchange: Span,
}

impl Costs {
    /// The cost of sending a frame besides copies: the lock, credits, the header.
    #[inline]
    pub(super) fn composing(&self) -> Span {
        Span(self.compose.0 + self.lock.0)
    }

    /// The cost of copying bytes.
    #[inline]
    pub(super) fn copying(&self, bytes: usize) -> Span {
        if bytes == 0 { Span::ZERO } else { Span(self.copy.0 + self.copy_line.0 * bytes.div_ceil(64) as u64) }
    }

    /// The cost of adding a packet to a frame in the making.
    #[inline]
    pub(super) fn assembling(&self, bytes: usize) -> Span {
        Span(self.assemble.0 + self.copying(bytes).0)
    }
}

impl Default for GasnetConfig {
    fn default() -> Self {
        Self {
            implementation: Implementation::Second,
            packet: 56,
            segments: 0,
            medium: 8192,
            default_reply: 1024,
            request_slots: 512,
            reply_slots: 512,
            segment: 1 << 16,
            bounce: 1 << 16,
            put: 8 << 20,
            ordered: true,
            costs: HostCosts::opteron(),
        }
    }
}

pub(super) fn range(field: &str, value: impl Display, limit: &str) -> ConfigError {
    Checker::of("gasnet").refuse(field, value, limit)
}

impl GasnetConfig {
    /// The smallest sizes with which everything still works: one largest request and one largest reply of a pair
    /// under way, and Medium payloads of 64 bytes.
    pub fn smallest() -> Self {
        Self { medium: 64, request_slots: 0, reply_slots: 0, bounce: 4096, ..Self::default() }
    }

    /// The same with the first implementation of active messages.
    pub fn first() -> Self {
        Self { implementation: Implementation::First, ..Self::default() }
    }

    pub(super) fn layout(&self) -> Layout {
        Layout { packet: self.packet as usize, implementation: self.implementation }
    }

    /// Checks the sizes for a job and divides the rings.
    pub(super) fn compile(&self, ranks: u32, mtu: u32) -> Result<Rooms, ConfigError> {
        if ranks == 0 {
            return Err(ConfigError::range("ranks", ranks, "at least 1"));
        }
        if !(16..=mtu.min(120)).contains(&self.packet) {
            return Err(range("packet", self.packet, &format!("from 16 to the interface's limit of {mtu} bytes")));
        }
        if self.segments > 512 {
            return Err(range("segments", self.segments, "at most 512"));
        }
        if self.medium > 8192 {
            return Err(range("medium", self.medium, "at most 8192 bytes"));
        }
        if self.segment == 0 || self.segment > 1 << 32 {
            return Err(range("segment", self.segment, "from 1 to 2^32 bytes"));
        }
        if !(4096..=1 << 30).contains(&self.bounce) {
            return Err(range("bounce", self.bounce, "from 4096 to 2^30 bytes"));
        }
        if !(1..=8 << 20).contains(&self.put) {
            return Err(range("put", self.put, "from 1 to 8388608 bytes"));
        }
        self.costs.compile()?;
        Rooms::divide(self, ranks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_sizes_name_field_and_limit() {
        let refused = |change: fn(&mut GasnetConfig)| {
            let mut config = GasnetConfig::default();
            change(&mut config);
            config.compile(4, 64).unwrap_err().to_string()
        };
        assert_eq!(
            refused(|c| c.packet = 65),
            "gasnet.packet is 65, but must be from 16 to the interface's limit of 64 bytes"
        );
        assert_eq!(refused(|c| c.segments = 513), "gasnet.segments is 513, but must be at most 512");
        assert_eq!(refused(|c| c.medium = 8193), "gasnet.medium is 8193, but must be at most 8192 bytes");
        assert!(refused(|c| c.segment = 0).starts_with("gasnet.segment is 0"));
        assert!(refused(|c| c.bounce = 1).starts_with("gasnet.bounce is 1"));
        assert!(refused(|c| c.put = 0).starts_with("gasnet.put is 0"));
        assert!(refused(|c| c.costs.copy_ns = f64::NAN).starts_with("gasnet.costs.copy_ns is NaN"));
        let nobody = GasnetConfig::default().compile(0, 64).unwrap_err().to_string();
        assert_eq!(nobody, "ranks is 0, but must be at least 1");
    }

    #[test]
    fn copies_cost_by_the_line() {
        let costs = HostCosts { copy_ns: 1.0, copy_line_ns: 2.0, ..HostCosts::free() }.compile().unwrap();
        assert_eq!([0, 1, 64, 65].map(|bytes| costs.copying(bytes).0), [0, 3_000, 3_000, 5_000]);
    }
}
