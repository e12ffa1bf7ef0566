//! What a UDP transport is told at the start, from the program and from the environment.

use super::peers::Peers;
use crate::proto::{Config, DATAGRAM_START, Protection, ProtocolConfig, Secrets};
use am_core::Peer;
use std::time::Duration;
use zeroize::{Zeroize, Zeroizing};

/// What an endpoint does while it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitMode {
    /// Asks the socket again and again for some time, gives its processor away for a while, then sleeps until
    /// something arrives. Where more endpoints share a host than it has processors, it gives the processor away at
    /// once.
    #[default]
    Adaptive,
    /// Asks the socket again and again and never sleeps: the lowest latency, and a processor of its own.
    Polled,
    /// Sleeps at once: the fewest cycles.
    Blocking,
}

/// Settings of a UDP transport. All ranks of a job must have the same secret.
///
/// `Debug` does not show the secret, and it is wiped when dropped.
#[derive(Clone)]
#[non_exhaustive]
pub struct UdpConfig {
    /// The job's secret: at least 16 bytes from a cryptographic random source, known to all ranks and nobody else.
    pub secret: Vec<u8>,
    /// Settings of the protocol: protection, sizes, times. Its `datagram_limit` is not used.
    pub protocol: ProtocolConfig,
    /// What an endpoint does while it waits.
    pub waiting: WaitMode,
    /// Largest UDP payload to probe for; `None` means 1452 (Ethernet), or [`LOOPBACK_DATAGRAM`] where all ranks
    /// are at loopback addresses. 8952 suits networks with jumbo frames.
    pub datagram_limit: Option<u16>,
    /// Size in bytes asked of the system for the socket's buffers, each; it may give less.
    pub socket_buffer: usize,
    /// Whether to hand the system rows of datagrams at once (GSO) and take rows from it (GRO), where it can.
    pub offload: bool,
    /// How long the program may neither poll nor send nor wait before a thread of the transport does its work for
    /// it.
    pub absence: Duration,
    /// Whether a thread of the transport does the program's work while it is absent. A program without it must
    /// poll or wait all the time, until it has left: else nothing is acknowledged or sent again, and after their
    /// `silence` its peers take it for dead. It saves a thread per endpoint. The tokio mode has its task in any
    /// case.
    pub helper: bool,
    /// For tests and measurements: how many datagrams out of 1000 this endpoint loses instead of sending them, and
    /// the seed of that choice. (The 65,487 bytes of a datagram on loopback are lost together.)
    pub loss: Option<(u32, u64)>,
    /// How long leaving may take: until everything sent is acknowledged, but no longer.
    pub linger: Duration,
}

/// The largest datagram between loopback addresses unless told otherwise.
pub const LOOPBACK_DATAGRAM: u16 = 65_487;
const ETHERNET_DATAGRAM: u16 = 1452;

impl Drop for UdpConfig {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl std::fmt::Debug for UdpConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpConfig")
            .field("protocol", &self.protocol)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

/// A variable of the environment that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{variable} is {value:?}, but must be {expected}")]
pub struct VariableError {
    /// Its name.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// What it may be.
    pub expected: &'static str,
}

impl UdpConfig {
    /// The variables that [`UdpConfig::from_environment`] reads.
    pub const VARIABLES: [&'static str; 5] =
        ["AM_UDP_PROTECTION", "AM_UDP_WAITING", "AM_UDP_DATAGRAM", "AM_UDP_SILENCE", "AM_UDP_LINGER"];

    /// Encrypted, adaptive, 64 KiB Medium messages, 10 s of silence, 512 KiB of Long payloads queued towards one
    /// peer.
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self {
            secret: secret.into(),
            protocol: ProtocolConfig { bulk_queue: 512 << 10, ..ProtocolConfig::default() },
            waiting: WaitMode::Adaptive,
            datagram_limit: None,
            socket_buffer: 4 << 20,
            offload: true,
            absence: Duration::from_millis(2),
            helper: true,
            loss: None,
            linger: Duration::from_secs(2),
        }
    }

    /// The smallest buffers: Medium messages of 1 KiB, and hardly more than one of them under way.
    pub fn smallest(secret: impl Into<Vec<u8>>) -> Self {
        let mut config = Self::new(secret);
        config.protocol = config.protocol.smallest();
        config
    }

    /// Sets the settings of the protocol: protection, sizes, times.
    #[must_use]
    pub fn protocol(mut self, protocol: ProtocolConfig) -> Self {
        self.protocol = protocol;
        self
    }

    /// Sets what an endpoint does while it waits.
    #[must_use]
    pub fn waiting(mut self, waiting: WaitMode) -> Self {
        self.waiting = waiting;
        self
    }

    /// Sets the largest UDP payload to probe for, in bytes; `None` goes by the addresses.
    #[must_use]
    pub fn datagram_limit(mut self, datagram_limit: Option<u16>) -> Self {
        self.datagram_limit = datagram_limit;
        self
    }

    /// Sets the size in bytes asked of the system for the socket's buffers, each.
    #[must_use]
    pub fn socket_buffer(mut self, socket_buffer: usize) -> Self {
        self.socket_buffer = socket_buffer;
        self
    }

    /// Sets whether rows of datagrams are handed over at once.
    #[must_use]
    pub fn offload(mut self, offload: bool) -> Self {
        self.offload = offload;
        self
    }

    /// Sets how long the program may be absent before a thread of the transport does its work.
    #[must_use]
    pub fn absence(mut self, absence: Duration) -> Self {
        self.absence = absence;
        self
    }

    /// Sets whether there is such a thread.
    #[must_use]
    pub fn helper(mut self, helper: bool) -> Self {
        self.helper = helper;
        self
    }

    /// Sets how many datagrams out of 1000 are lost on purpose, and the seed of that choice.
    #[must_use]
    pub fn loss(mut self, loss: Option<(u32, u64)>) -> Self {
        self.loss = loss;
        self
    }

    /// Sets how long leaving may take.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// [`UdpConfig::new`], changed by the environment: `AM_UDP_PROTECTION` (`encrypted`, `plain-text`,
    /// `unauthenticated`), `AM_UDP_WAITING` (`adaptive`, `polled`, `blocking`), `AM_UDP_DATAGRAM` (largest UDP
    /// payload in bytes, 1200 to 65487), `AM_UDP_SILENCE` and `AM_UDP_LINGER` (seconds).
    ///
    /// # Errors
    /// [`VariableError`] names the variable and what it may be.
    pub fn from_environment(secret: impl Into<Vec<u8>>) -> Result<Self, VariableError> {
        Self::from_variables(secret, |name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })
    }

    /// [`UdpConfig::from_environment`] with another source of variables.
    ///
    /// # Errors
    /// As [`UdpConfig::from_environment`].
    pub fn from_variables(
        secret: impl Into<Vec<u8>>,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, VariableError> {
        let mut config = Self::new(secret);
        let mut read = |variable, expected, set: &mut dyn FnMut(&mut Self, &str) -> Option<()>| {
            let Some(value) = lookup(variable) else { return Ok(()) };
            set(&mut config, value.trim()).ok_or(VariableError { variable, value, expected })
        };
        read("AM_UDP_PROTECTION", "encrypted, plain-text or unauthenticated", &mut |config, value| {
            config.protocol.protection = match value {
                "encrypted" => Protection::Encrypted,
                "plain-text" => Protection::PlainText,
                "unauthenticated" => Protection::Unauthenticated,
                _ => return None,
            };
            Some(())
        })?;
        read("AM_UDP_WAITING", "adaptive, polled or blocking", &mut |config, value| {
            config.waiting = match value {
                "adaptive" => WaitMode::Adaptive,
                "polled" => WaitMode::Polled,
                "blocking" => WaitMode::Blocking,
                _ => return None,
            };
            Some(())
        })?;
        read("AM_UDP_DATAGRAM", "a number of bytes from 1200 to 65487", &mut |config, value| {
            config.datagram_limit = Some(value.parse().ok().filter(|size| (1200..=65487).contains(size))?);
            Some(())
        })?;
        let seconds = |value: &str, least: f64| {
            value.parse().ok().filter(|seconds| (least..=86400.0).contains(seconds)).map(Duration::from_secs_f64)
        };
        read("AM_UDP_SILENCE", "a number of seconds from 0.1 to 86400", &mut |config, value| {
            config.protocol.silence = seconds(value, 0.1)?.into();
            Some(())
        })?;
        read("AM_UDP_LINGER", "a number of seconds from 0 to 86400", &mut |config, value| {
            config.linger = seconds(value, 0.0)?;
            Some(())
        })?;
        Ok(config)
    }

    /// The settings of the machine of one endpoint.
    pub(super) fn machine(&self, peers: &Peers, me: Peer) -> Result<Config, getrandom::Error> {
        let mut incarnation = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *incarnation)?;
        let secrets = Secrets { job: self.secret.clone(), incarnation: *incarnation };
        let usual = if peers.is_loopback() { LOOPBACK_DATAGRAM } else { ETHERNET_DATAGRAM };
        let mut config = Config::new(peers.shape(), me, secrets);
        config.protocol = self.protocol;
        // Every peer must always be able to send something.
        let least = config.kept_for_loans() + 512 * u64::from(peers.shape().peers());
        config.receive_budget = config.receive_budget.max(u32::try_from(least).unwrap_or(u32::MAX));
        config.datagram_limit = self.datagram_limit.unwrap_or(usual).max(DATAGRAM_START);
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use am_core::Span;

    fn from(variables: &[(&str, &str)]) -> Result<UdpConfig, VariableError> {
        let lookup =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        UdpConfig::from_variables([7; 16], lookup)
    }

    #[test]
    fn the_environment_changes_settings_and_nonsense_is_named() {
        let all = from(&[
            ("AM_UDP_PROTECTION", "plain-text"),
            ("AM_UDP_WAITING", "blocking"),
            ("AM_UDP_DATAGRAM", "8952"),
            ("AM_UDP_SILENCE", "2.5"),
            ("AM_UDP_LINGER", "0"),
        ])
        .unwrap();
        assert_eq!((all.protocol.protection, all.waiting), (Protection::PlainText, WaitMode::Blocking));
        assert_eq!(all.datagram_limit, Some(8952));
        assert_eq!((all.protocol.silence, all.linger), (Span::from_millis(2500), Duration::ZERO));
        assert!(!format!("{all:?}").contains("7, 7"));
        let asked = std::cell::RefCell::new(Vec::new());
        let note = |name: &str| {
            asked.borrow_mut().push(name.to_owned());
            None
        };
        UdpConfig::from_variables([7; 16], note).unwrap();
        assert_eq!(asked.into_inner(), UdpConfig::VARIABLES);
        for (name, value) in [
            ("AM_UDP_PROTECTION", "none"),
            ("AM_UDP_WAITING", ""),
            ("AM_UDP_DATAGRAM", "65508"),
            ("AM_UDP_SILENCE", "-1"),
            ("AM_UDP_LINGER", "NaN"),
        ] {
            let error = from(&[(name, value)]).unwrap_err();
            assert_eq!((error.variable, error.value.as_str()), (name, value));
            assert!(error.to_string().starts_with(&format!("{name} is {value:?}, but must be ")), "{error}");
        }
    }

    #[test]
    fn machines_have_the_settings_of_the_protocol() {
        let protocol = ProtocolConfig::default().medium(2048).silence(Span::from_millis(300)).bulk_queue(8192);
        let config = UdpConfig::new([7; 16]).protocol(protocol).datagram_limit(Some(1300));
        let at = |port| ([127, 0, 0, 1], port).into();
        let peers = Peers::new(am_core::Shape::new(2), vec![at(1), at(2)], vec![0; 2]).unwrap();
        let machine = config.machine(&peers, Peer(1)).unwrap();
        assert_eq!((machine.me, machine.secrets.job.as_slice()), (Peer(1), &[7; 16][..]));
        assert_eq!(machine.protocol, protocol.datagram_limit(1300));
        let unlimited = config.datagram_limit(None).machine(&peers, Peer(0)).unwrap();
        assert_eq!(unlimited.protocol, protocol.datagram_limit(LOOPBACK_DATAGRAM));
        assert_ne!(unlimited.secrets.incarnation, machine.secrets.incarnation);
    }
}
