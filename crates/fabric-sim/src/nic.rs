//! The parameter table of a network interface and its links: plain data, readable from TOML.

use crate::error::ConfigError;
use crate::parameters::{self, Checker};
use crate::stage::{Cost, Stage};
use serde::{Deserialize, Serialize};

/// What a network interface and its links cost. The default costs nothing.
///
/// ```
/// let nic = fabric_sim::NicParameters::from_toml("
///     name = 'mine'
///     header_bytes = 12
///     nic_tx = { fixed_ns = 250, per_unit_ns = 12.5, unit_bytes = 64, depth = 8 }
///     link = { bandwidth_mb_s = 625, latency_ns = 300 }
/// ").unwrap();
/// assert_eq!(nic.link.bandwidth_mb_s, 625.0);
///
/// let error = fabric_sim::NicParameters::from_toml("link = { bandwidth_mb_s = 0 }").unwrap_err();
/// assert_eq!(error.to_string(), "nic.link.bandwidth_mb_s is 0, but must be above 0 MB/s (inf: no limit)");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NicParameters {
    /// What the machine is called.
    pub name: String,
    /// Bytes that every packet has on the wire besides its own.
    pub header_bytes: u32,
    /// Whether packets of a pair stay in order; reordering faults are refused then.
    pub ordered: bool,
    /// The sending processor's part, charged to the rank.
    pub host_issue: Stage,
    /// The sending interface; one for all ranks of a node, like all stages but the processor's.
    pub nic_tx: Stage,
    /// Address translation at the sender.
    pub tx_translate: Stage,
    /// The receiving interface.
    pub nic_rx: Stage,
    /// Address translation or matching at the receiver.
    pub rx_match: Stage,
    /// Writing to the receiver's memory.
    pub mem_write: Stage,
    /// The receiving processor's part, charged to the rank that takes the packet.
    pub host_poll: Stage,
    /// What a look costs that finds nothing. At least a picosecond, so that spinning passes the time. In files it
    /// may also be called `empty_poll_ns`.
    #[serde(alias = "empty_poll_ns")]
    pub empty_poll: EmptyPoll,
    /// The links.
    pub link: LinkParameters,
    /// What the interface takes in from all links of its node together, and puts out to them.
    pub port: PortParameters,
    /// The largest packet on the wire in bytes, header included. A longer message travels as a train of packets,
    /// between which others cut in: what meets it on a link waits for a packet of it and not for its end. 0:
    /// whatever is sent is one packet.
    pub packet_bytes: u32,
}

/// How much a node's interface puts out and takes in, all of its units and links together. Headers count unless
/// [`PortParameters::payload_only`] says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortParameters {
    /// Out to the links in MB/s; infinite: no limit.
    pub injection_mb_s: f64,
    /// In from the links in MB/s; infinite: no limit.
    pub ejection_mb_s: f64,
    /// Both directions take turns, as on a bus.
    pub shared: bool,
    /// Headers do not count: the rate is that of a bus between the interface and memory, which only the links'
    /// side of the interface adds headers to. What has no payload passes, so the interface cannot keep messages in
    /// order. Networks with finite buffers count them, and share nothing.
    pub payload_only: bool,
}

impl PortParameters {
    /// The same in either direction.
    pub const fn of(mb_s: f64) -> Self {
        Self { injection_mb_s: mb_s, ejection_mb_s: mb_s, shared: false, payload_only: false }
    }
}

impl Default for PortParameters {
    fn default() -> Self {
        Self::of(f64::INFINITY)
    }
}

/// The cost of a fruitless poll.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EmptyPoll {
    /// In nanoseconds.
    pub ns: f64,
}

impl Default for EmptyPoll {
    fn default() -> Self {
        Self { ns: 10.0 }
    }
}

/// What a link costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkParameters {
    /// Bandwidth of each direction in MB/s (10^6 bytes); infinite bandwidth means that packets have no length.
    pub bandwidth_mb_s: f64,
    /// Time from entering a link to reaching the next node or switch ready to leave it, in nanoseconds.
    pub latency_ns: f64,
}

impl Default for LinkParameters {
    fn default() -> Self {
        Self { bandwidth_mb_s: f64::INFINITY, latency_ns: 0.0 }
    }
}

impl LinkParameters {
    /// Latency in picoseconds, and femtoseconds per byte.
    pub(crate) fn check(&self, field: &str) -> Result<(u64, u64), ConfigError> {
        Checker::TOP.bandwidth(&format!("{field}.bandwidth_mb_s"), self.bandwidth_mb_s)?;
        // 1 MB/s takes 10^9 fs for a byte.
        let femtos = (1e9 / self.bandwidth_mb_s).round() as u64;
        Ok((picos(self.latency_ns, &format!("{field}.latency_ns"))?, femtos))
    }
}

impl NicParameters {
    /// Reads a table from TOML and checks it.
    ///
    /// # Errors
    /// [`ConfigError`] names an unknown field, or the first value that is not physical.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        parameters::from_toml(text, |table: &Self| table.check().map(drop))
    }

    /// Checks the table and turns it into picoseconds.
    pub(crate) fn check(&self) -> Result<Costs, ConfigError> {
        let (latency, femtos_per_byte) = self.link.check("nic.link")?;
        let table = Checker::of("nic");
        let PortParameters { injection_mb_s, ejection_mb_s, shared, payload_only } = self.port;
        table.bandwidth("port.injection_mb_s", injection_mb_s)?;
        table.bandwidth("port.ejection_mb_s", ejection_mb_s)?;
        // What has no payload passes the port, and so what its sender sent before.
        if payload_only && self.ordered {
            return Err(ConfigError::Contradiction {
                field: "nic.port.payload_only".into(),
                other: "nic.ordered".into(),
                reason: "messages without payload overtake others at such a port; leave one of them out".into(),
            });
        }
        let femtos = |mb_s: f64| (1e9 / mb_s).round() as u64;
        let empty_poll = table.some_time("empty_poll", self.empty_poll.ns)?.0;
        Ok(Costs {
            header: self.header_bytes,
            host_issue: self.host_issue.check("nic.host_issue")?,
            nic_tx: self.nic_tx.check("nic.nic_tx")?,
            tx_translate: self.tx_translate.check("nic.tx_translate")?,
            nic_rx: self.nic_rx.check("nic.nic_rx")?,
            rx_match: self.rx_match.check("nic.rx_match")?,
            mem_write: self.mem_write.check("nic.mem_write")?,
            host_poll: self.host_poll.check("nic.host_poll")?,
            empty_poll,
            femtos_per_byte,
            latency,
            ports: (injection_mb_s.is_finite() || ejection_mb_s.is_finite()).then_some(PortCosts {
                out: femtos(injection_mb_s),
                into: femtos(ejection_mb_s),
                link: femtos_per_byte,
                shared,
                payload_only,
            }),
            ordered: self.ordered,
            packet: if self.packet_bytes == 0 { u32::MAX } else { self.packet_bytes },
        })
    }
}

/// The table in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub(crate) header: u32,
    pub(crate) host_issue: Cost,
    pub(crate) nic_tx: Cost,
    pub(crate) tx_translate: Cost,
    pub(crate) nic_rx: Cost,
    pub(crate) rx_match: Cost,
    pub(crate) mem_write: Cost,
    pub(crate) host_poll: Cost,
    pub(crate) empty_poll: u64,
    pub(crate) femtos_per_byte: u64,
    pub(crate) latency: u64,
    pub(crate) ports: Option<PortCosts>,
    pub(crate) ordered: bool,
    /// The largest packet on the wire; what is longer is a train.
    pub(crate) packet: u32,
}

/// The rates of a node's port, in femtoseconds per byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortCosts {
    pub(crate) out: u64,
    pub(crate) into: u64,
    /// Of the links that bring packets.
    pub(crate) link: u64,
    pub(crate) shared: bool,
    pub(crate) payload_only: bool,
}

/// How long so many bytes occupy a link.
#[inline]
pub(crate) fn serialization(bytes: u32, femtos_per_byte: u64) -> u64 {
    (u64::from(bytes).saturating_mul(femtos_per_byte)).saturating_add(500) / 1000
}

/// Whole picoseconds of a number of nanoseconds.
pub(crate) fn picos(nanos: f64, field: &str) -> Result<u64, ConfigError> {
    if (0.0..=1e15).contains(&nanos) {
        return Ok((nanos * 1e3).round() as u64);
    }
    Err(ConfigError::range(field, nanos, "a finite number of nanoseconds from 0 to 1e15"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_tables_are_refused_by_field() {
        let refused = |text: &str| NicParameters::from_toml(text).unwrap_err().to_string();
        assert!(refused("nic_txx = { fixed_ns = 1 }").contains("nic_txx"));
        assert!(refused("nic_tx = { fixd_ns = 1 }").contains("fixd_ns"));
        assert!(refused("nic_rx = { fixed_ns = nan }").starts_with("nic.nic_rx.fixed_ns is NaN"));
        assert!(refused("mem_write = { fixed_ns = inf }").starts_with("nic.mem_write.fixed_ns is inf"));
        assert!(refused("link = { bandwidth_mb_s = -4 }").starts_with("nic.link.bandwidth_mb_s is -4"));
        assert!(refused("link = { bandwidth_mb_s = nan }").starts_with("nic.link.bandwidth_mb_s is NaN"));
        assert!(refused("port = { ejection_mb_s = 0 }").starts_with("nic.port.ejection_mb_s is 0"));
        assert!(refused("link = { latency_ns = -1 }").starts_with("nic.link.latency_ns is -1"));
        assert!(refused("empty_poll = 0").starts_with("nic.empty_poll is 0"));
        let overtaking = refused("ordered = true\nport = { payload_only = true }");
        assert!(
            overtaking.contains("nic.port.payload_only") && overtaking.contains("nic.ordered"),
            "{overtaking}"
        );
    }

    #[test]
    fn tables_survive_a_round_trip() {
        let link = LinkParameters { bandwidth_mb_s: 625.0, latency_ns: 300.0 };
        let table =
            NicParameters { name: "x".into(), link, nic_tx: Stage::latency(5.0), ..NicParameters::default() };
        let text = toml::to_string(&table).unwrap();
        assert_eq!(NicParameters::from_toml(&text).unwrap(), table);
        assert_eq!(serialization(1000, table.check().unwrap().femtos_per_byte), 1_600_000);
    }
}
