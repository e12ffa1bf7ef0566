//! How long messages travel, and from which size on.

use fabric_sim::ConfigError;
use fabric_sim::parameters::Checker;
use serde::{Deserialize, Serialize};

/// How long messages travel: the baseline and the four variants of "Design and Implementation of a Write Based
/// version of the Exanet MPI", each of which adds to the one before. All ranks use the same.
///
/// | protocol | control messages of a long transfer | the receiver is done | the sender is done |
/// |---|---|---|---|
/// | `Read` | RTS, read request, ACK | after the last byte | after the ACK |
/// | `SenderInitiated` | RTS, CTS, FIN | after the last byte's notification, and the FIN | after the last byte |
/// | `ReceiverInitiated`, `EagerAware` | RTR, FIN; as above where no receive was advertised | the same | the same |
/// | `Elided` | RTR; RTS and CTS where no receive was advertised | after the notification | the same |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Protocol {
    /// The sender announces a message (RTS); the receiver reads it and says when it has it (ACK).
    Read,
    /// The sender announces a message, the receiver says where it goes (CTS), the sender writes it.
    SenderInitiated,
    /// In addition, posted receives of long messages without wildcards say where the message goes (RTR). An eager
    /// message that meets such a receive costs a REVOKE and its answer before the receive is done.
    ReceiverInitiated,
    /// In addition, an eager message retires the RTR of its receive by its number, without further messages.
    EagerAware,
    /// In addition, a message's notification tells its length: no FIN.
    #[default]
    Elided,
}

impl Protocol {
    /// All of them, from the baseline on.
    pub const ALL: [Self; 5] =
        [Self::Read, Self::SenderInitiated, Self::ReceiverInitiated, Self::EagerAware, Self::Elided];

    /// Its name in options and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::SenderInitiated => "sender-initiated",
            Self::ReceiverInitiated => "receiver-initiated",
            Self::EagerAware => "eager-aware",
            Self::Elided => "elided",
        }
    }

    /// The protocol of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == name)
    }

    pub(crate) fn advertises(self) -> bool {
        self >= Self::ReceiverInitiated
    }
}

/// The settings of messages, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MpiConfig {
    /// How long messages travel.
    pub protocol: Protocol,
    /// Bytes of the largest message that travels in control packets, at most 65,536. \[A\] 2048: up to there
    /// packets are as fast as the baseline's long messages, and from there on the published saving of "up to 50 %"
    /// holds.
    pub eager: u32,
    /// Receives of long messages that may be under way, at least 1: each has a word for its notification.
    pub receives: u32,
}

impl Default for MpiConfig {
    fn default() -> Self {
        Self { protocol: Protocol::default(), eager: 2048, receives: 1 << 14 }
    }
}

impl MpiConfig {
    /// The defaults with a protocol.
    pub fn of(protocol: Protocol) -> Self {
        Self { protocol, ..Self::default() }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let table = Checker::of("mpi");
        table.within("eager", self.eager, 0..=1 << 16)?;
        table.within("receives", self.receives, 1..=1 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_have_names() {
        for protocol in Protocol::ALL {
            assert_eq!(Protocol::named(protocol.name()), Some(protocol));
            let text = toml::to_string(&MpiConfig::of(protocol)).unwrap();
            assert!(text.contains(protocol.name()));
            assert_eq!(toml::from_str::<MpiConfig>(&text).unwrap().protocol, protocol);
        }
        assert_eq!(Protocol::named("fast"), None);
    }

    #[test]
    fn bad_sizes_name_field_and_limit() {
        let refused = |config: MpiConfig| config.check().unwrap_err().to_string();
        let large = refused(MpiConfig { eager: 1 << 17, ..MpiConfig::default() });
        assert_eq!(large, "mpi.eager is 131072, but must be from 0 to 65536");
        let none = refused(MpiConfig { receives: 0, ..MpiConfig::default() });
        assert_eq!(none, "mpi.receives is 0, but must be from 1 to 1048576");
    }
}
