//! What can be chosen about pscom: plugins, the ring, rendezvous, and the sizes of active messages.

use super::account::Partition;
use super::tail::{Padding, TAIL_BYTES};
use super::tokens::TokenRules;
use crate::ExtollConfig;
use fabric_sim::ConfigError;
use fabric_sim::parameters::Checker;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// What carries a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Plugin {
    /// VELO packets, all connections of a rank through its one mailbox.
    Velo,
    /// A ring of buffers at each side, written by RMA puts. It takes entries of the node's translation table, 32
    /// by default at each end; where there are none left, the connection goes over VELO.
    Rma,
}

impl Plugin {
    /// All plugins.
    pub const ALL: [Self; 2] = [Self::Velo, Self::Rma];

    /// The plugin's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Velo => "velo",
            Self::Rma => "rma",
        }
    }
}

impl fmt::Display for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no plugin of this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no pscom plugin {0:?}; there are velo and rma")]
pub struct UnknownPlugin(
    /// The name asked for.
    pub String,
);

impl FromStr for Plugin {
    type Err = UnknownPlugin;

    fn from_str(name: &str) -> Result<Self, UnknownPlugin> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name).ok_or_else(|| UnknownPlugin(name.into()))
    }
}

/// Which plugin the connection of two ranks takes, whatever else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairOverride {
    /// The two ranks, in any order.
    pub ranks: [u32; 2],
    /// What carries their connection.
    pub plugin: Plugin,
}

/// The RMA ring of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RingConfig {
    /// Send buffers, 1 to `receive_buffers`: chunks with payload that may be unreturned at once.
    pub send_buffers: u16,
    /// Receive buffers, 3 to 4096, which is the number of tokens.
    pub receive_buffers: u16,
    /// Size of a buffer in bytes, a multiple of 64 from 128 to 65,536.
    pub buffer_bytes: u32,
    /// How the length of a put is rounded up.
    pub padding: Padding,
    /// Whether the last token is kept for returning tokens. False is a defect that tests show to deadlock.
    pub keep_one: bool,
}

impl Default for RingConfig {
    fn default() -> Self {
        // [S, C] 16 + 16 buffers of 4 KB.
        Self { send_buffers: 16, receive_buffers: 16, buffer_bytes: 4096, padding: Padding::Line, keep_one: true }
    }
}

impl RingConfig {
    /// The largest payload of a chunk in bytes: 4088 for 4 KB.
    pub fn payload(&self) -> usize {
        // The length of a chunk is 16 bits in the tail.
        (self.buffer_bytes as usize - TAIL_BYTES).min(usize::from(u16::MAX))
    }

    /// Bytes of memory for a connection at each of its ends: 128 KB by default.
    pub fn memory_bytes(&self) -> u64 {
        (u64::from(self.send_buffers) + u64::from(self.receive_buffers)) * u64::from(self.buffer_bytes)
    }

    /// The rules of the tokens.
    pub fn rules(&self) -> TokenRules {
        TokenRules { keep_one: self.keep_one, ..TokenRules::new(self.receive_buffers, self.send_buffers) }
    }
}

/// Sizes of active messages over two-sided messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AmConfig {
    /// Requests that a rank may have under way to each other one, 1 to 65,535.
    pub requests: u16,
    /// Requests whose reply is still owed, to each other one, 1 to 65,535.
    pub replies: u16,
    /// Largest Medium payload in bytes, either direction, 64 to 1 MiB.
    pub medium: u32,
    /// Largest Long payload in bytes, up to 2^30; the destination's segment limits it further.
    pub long: u32,
    /// Size of every rank's segment in bytes, at most 2^32. Pages that are never touched take no memory.
    pub segment: u64,
}

impl Default for AmConfig {
    fn default() -> Self {
        Self { requests: 64, replies: 64, medium: 8192, long: 1 << 20, segment: 1 << 16 }
    }
}

impl AmConfig {
    pub(super) fn partition(&self) -> Partition {
        Partition { requests: self.requests, replies: self.replies }
    }
}

/// How ranks communicate. Fields that a file leaves out are those of [`PscomConfig::default`].
///
/// ```
/// use extoll_sim::conduit::pscom::{Plugin, PscomConfig, RingConfig};
///
/// let config: PscomConfig = toml::from_str("
///     plugin = 'rma'
///     ring = { receive_buffers = 8, send_buffers = 8 }
/// ").unwrap();
/// assert_eq!(config.plugin_of(0, 1), Plugin::Rma);
/// assert_eq!(config.ring.memory_bytes(), 64 << 10);
///
/// let ring = RingConfig { send_buffers: 17, ..config.ring };
/// assert_eq!(
///     PscomConfig { ring, ..config }.check().unwrap_err().to_string(),
///     "pscom.ring.send_buffers is 17, but must be from 1 to 8"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PscomConfig {
    /// The plugin of all connections that it can carry.
    pub plugin: Plugin,
    /// Plugins of single connections, whatever else is said; the first that fits counts.
    pub pairs: Vec<PairOverride>,
    /// The ring of RMA connections.
    pub ring: RingConfig,
    /// Bodies of so many bytes and more wait at the sender of an RMA connection until the receiver gets them; 0:
    /// none do, as the report on the plugins has it. The public code begins with 1024.
    pub rendezvous: u32,
    /// Active messages.
    pub am: AmConfig,
}

impl Default for PscomConfig {
    fn default() -> Self {
        Self {
            // [C] the code of both has the same priority. [A] VELO, because it takes no memory per connection.
            plugin: Plugin::Velo,
            pairs: Vec::new(),
            ring: RingConfig::default(),
            // [S] puts only: get is not employed. [C] the public code has a rendezvous from 1024 bytes on.
            rendezvous: 0,
            am: AmConfig::default(),
        }
    }
}

pub(super) fn range(field: &str, value: impl fmt::Display, limit: impl Into<String>) -> ConfigError {
    Checker::of("pscom").refuse(field, value, limit)
}

fn within<N: PartialOrd + fmt::Display>(field: &str, value: N, least: N, most: N) -> Result<(), ConfigError> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(range(field, value, format!("from {least} to {most}")))
}

impl PscomConfig {
    /// The same with one plugin for all connections.
    pub fn with(plugin: Plugin) -> Self {
        Self { plugin, ..Self::default() }
    }

    /// The smallest sizes with which everything still works.
    pub fn smallest() -> Self {
        Self {
            ring: RingConfig {
                send_buffers: 1,
                receive_buffers: TokenRules::FEWEST,
                buffer_bytes: 128,
                ..RingConfig::default()
            },
            am: AmConfig { requests: 1, replies: 1, medium: 64, ..AmConfig::default() },
            ..Self::default()
        }
    }

    /// What is to carry the connection of two ranks: an override, or the plugin of all; both ranks come to the
    /// same. What does carry it, [`Pscom::plugin`](super::Pscom::plugin) tells.
    pub fn plugin_of(&self, one: u32, other: u32) -> Plugin {
        let fits = |pair: &&PairOverride| pair.ranks == [one, other] || pair.ranks == [other, one];
        self.pairs.iter().find(fits).map_or(self.plugin, |pair| pair.plugin)
    }

    /// Whether any connection may use RMA.
    pub(super) fn uses_rma(&self) -> bool {
        self.pairs.iter().any(|pair| pair.plugin == Plugin::Rma)
            || self.plugin_of(u32::MAX, u32::MAX) == Plugin::Rma
    }

    /// [`PscomConfig::check`], and that a machine has the interfaces for it.
    ///
    /// # Errors
    /// As [`PscomConfig::check`]; too few RMA ports for the ranks of a node.
    pub fn check_on(&self, machine: &ExtollConfig) -> Result<(), ConfigError> {
        self.check()?;
        let (ports, needed) = (machine.parameters.rma.ports, machine.ranks_per_node.min(machine.ranks));
        if self.uses_rma() && ports < needed {
            let limit = format!("at least {needed}, one for each rank of a node");
            return Err(ConfigError::range("parameters.rma.ports", ports, limit));
        }
        Ok(())
    }

    /// Checks that all of this is possible.
    ///
    /// # Errors
    /// [`ConfigError`] names the first field that is not and its limit.
    pub fn check(&self) -> Result<(), ConfigError> {
        let ring = &self.ring;
        within("ring.receive_buffers", ring.receive_buffers, TokenRules::FEWEST, 4096)?;
        within("ring.send_buffers", ring.send_buffers, 1, ring.receive_buffers)?;
        within("ring.buffer_bytes", ring.buffer_bytes, 128, 1 << 16)?;
        if !ring.buffer_bytes.is_multiple_of(64) {
            return Err(range("ring.buffer_bytes", ring.buffer_bytes, "a multiple of 64"));
        }
        let am = &self.am;
        within("am.requests", am.requests, 1, u16::MAX)?;
        within("am.replies", am.replies, 1, u16::MAX)?;
        within("am.medium", am.medium, 64, 1 << 20)?;
        within("am.long", am.long, 0, 1 << 30)?;
        within("am.segment", am.segment, 0, 1 << 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_override_the_plugin_of_all() {
        let mut config = PscomConfig::with(Plugin::Rma);
        assert_eq!(config.plugin_of(0, 1), Plugin::Rma);
        config.plugin = "velo".parse().unwrap();
        assert_eq!(config.plugin_of(0, 1), Plugin::Velo);
        config.pairs = vec![PairOverride { ranks: [1, 0], plugin: Plugin::Rma }];
        assert_eq!([config.plugin_of(0, 1), config.plugin_of(1, 0)], [Plugin::Rma; 2]);
        assert_eq!(config.plugin_of(0, 2), Plugin::Velo);
        assert!(config.uses_rma());
        assert!(!PscomConfig::default().uses_rma());
        let unknown = "ib".parse::<Plugin>().unwrap_err();
        assert_eq!(unknown.to_string(), "there is no pscom plugin \"ib\"; there are velo and rma");
    }

    #[test]
    fn the_ring_takes_128_kb() {
        let ring = RingConfig::default();
        assert_eq!((ring.memory_bytes(), ring.payload()), (128 << 10, 4088));
        assert_eq!(RingConfig { buffer_bytes: 1 << 16, ..ring }.payload(), 65_528);
    }

    #[test]
    fn what_is_not_possible_is_refused_by_name() {
        let refused = |change: fn(&mut PscomConfig)| {
            let mut config = PscomConfig::default();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        let fewest = "pscom.ring.receive_buffers is 2, but must be from 3 to 4096";
        assert_eq!(refused(|c| c.ring.receive_buffers = 2), fewest);
        assert!(refused(|c| c.ring.send_buffers = 17).starts_with("pscom.ring.send_buffers is 17"));
        assert!(refused(|c| c.ring.buffer_bytes = 200).ends_with("a multiple of 64"));
        assert!(refused(|c| c.am.medium = 0).starts_with("pscom.am.medium is 0"));
        PscomConfig::smallest().check().unwrap();
        let mut machine = crate::cluster(32);
        machine.parameters.rma.ports = 8;
        PscomConfig::default().check_on(&machine).unwrap();
        let error = PscomConfig::with(Plugin::Rma).check_on(&machine).unwrap_err();
        assert_eq!(
            error.to_string(),
            "parameters.rma.ports is 8, but must be at least 16, one for each rank of a node"
        );
    }
}
