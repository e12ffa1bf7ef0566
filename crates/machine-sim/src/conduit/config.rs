//! What can be chosen about the conduit: sizes, and what its own work costs.

use am_core::Span;
use fabric_sim::ConfigError;
use fabric_sim::parameters::Checker;
use serde::{Deserialize, Serialize};

/// Sizes of the conduit, and what its own work costs besides the interface's overheads. Fields that a file leaves
/// out are those of [`ConduitConfig::default`].
///
/// ```
/// use machine_sim::conduit::{self, ConduitConfig};
///
/// let config = ConduitConfig { medium: 1 << 30, ..ConduitConfig::default() };
/// let error = conduit::run(&machine_sim::crossbar(2), &config, |_| ()).unwrap_err();
/// assert_eq!(error.to_string(), "conduit.medium is 1073741824, but must be from 64 to 1048576");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConduitConfig {
    /// Largest Medium payload in bytes, either direction, 64 to 2^20.
    pub medium: u32,
    /// The reply bound of handlers that declare none, in bytes; at most as much as the largest Medium message.
    pub default_reply: u32,
    /// Requests that a rank may have under way to each peer, 1 to 1024.
    pub requests: u32,
    /// Requests with a reply to come that a rank may have under way to each peer, 1 to 1024.
    pub replies: u32,
    /// Size of every rank's segment in bytes, at most 2^32. Pages that are never touched take no memory.
    pub segment: u64,
    /// Composing a frame, in nanoseconds, besides the interface's overhead.
    pub compose_ns: f64,
    /// Looking up and calling a handler, in nanoseconds, besides the interface's overhead.
    pub dispatch_ns: f64,
}

impl Default for ConduitConfig {
    fn default() -> Self {
        Self {
            medium: 8192,
            default_reply: 1024,
            requests: 64,
            replies: 64,
            segment: 1 << 16,
            compose_ns: 0.0,
            dispatch_ns: 0.0,
        }
    }
}

impl ConduitConfig {
    /// The smallest sizes with which everything still works.
    pub fn smallest() -> Self {
        Self { medium: 64, requests: 1, replies: 1, ..Self::default() }
    }

    pub(super) fn compile(&self) -> Result<[Span; 2], ConfigError> {
        let table = Checker::of("conduit");
        for (field, value, limits) in [
            ("medium", u64::from(self.medium), 64..=1 << 20),
            ("requests", self.requests.into(), 1..=1024),
            ("replies", self.replies.into(), 1..=1024),
            ("segment", self.segment, 1..=1 << 32),
        ] {
            table.within(field, value, limits)?;
        }
        Ok([table.time("compose_ns", self.compose_ns)?, table.time("dispatch_ns", self.dispatch_ns)?])
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
            config.compile().unwrap_err().to_string()
        };
        assert_eq!(refused(|c| c.medium = 10), "conduit.medium is 10, but must be from 64 to 1048576");
        assert_eq!(refused(|c| c.requests = 0), "conduit.requests is 0, but must be from 1 to 1024");
        assert_eq!(refused(|c| c.replies = 1025), "conduit.replies is 1025, but must be from 1 to 1024");
        assert_eq!(refused(|c| c.segment = 0), "conduit.segment is 0, but must be from 1 to 4294967296");
        assert!(refused(|c| c.compose_ns = -1.0).starts_with("conduit.compose_ns is -1"));
        assert!(refused(|c| c.dispatch_ns = f64::NAN).starts_with("conduit.dispatch_ns is NaN"));
        assert!(ConduitConfig::smallest().compile().is_ok());
    }
}
