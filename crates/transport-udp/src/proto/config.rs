//! What a machine is told at the start, and what can be wrong with it.

use am_core::address::{Peer, Shape};
use am_core::time::Span;
use std::ops::{Deref, DerefMut};
use thiserror::Error;
use zeroize::Zeroize;

/// How datagrams are protected. All ranks of a job use the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// Encrypted and authenticated, by AEGIS-128L and AEGIS-128X2.
    #[default]
    Encrypted,
    /// Authenticated, but readable on the wire. On processors with AES instructions it is slower than
    /// [`Protection::Encrypted`] for more than some hundred bytes, and a tenth faster for the smallest datagrams.
    PlainText,
    /// Neither: whoever can send to the socket can write this rank's memory. For measurements on a loopback
    /// interface.
    Unauthenticated,
}

/// The job's secret and what this process alone knows. Its `Debug` form shows neither; both are wiped when
/// dropped.
#[derive(Clone)]
pub struct Secrets {
    /// Shared by all ranks of the job and nobody else, at least 16 bytes from a cryptographic random source.
    pub job: Vec<u8>,
    /// Fresh from a cryptographic random source at every start of the process: what tells it from its predecessor.
    pub incarnation: [u8; 32],
}

impl Zeroize for Secrets {
    fn zeroize(&mut self) {
        self.job.zeroize();
        self.incarnation.zeroize();
    }
}

impl Drop for Secrets {
    fn drop(&mut self) {
        self.zeroize();
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

/// What a machine is told at the start: who it is, and the settings of its protocol, which can be read and set as
/// if they were fields of this structure.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The shape of the job.
    pub shape: Shape,
    /// This endpoint.
    pub me: Peer,
    /// Keys.
    pub secrets: Secrets,
    /// Everything else.
    pub protocol: ProtocolConfig,
}

impl Deref for Config {
    type Target = ProtocolConfig;

    fn deref(&self) -> &ProtocolConfig {
        &self.protocol
    }
}

impl DerefMut for Config {
    fn deref_mut(&mut self) -> &mut ProtocolConfig {
        &mut self.protocol
    }
}

/// Payload in bytes of a UDP datagram that every path carries.
pub const DATAGRAM_START: u16 = 1200;

/// Settings of the protocol. All ranks of a job must have the same protection, sizes and acknowledgement delay; a
/// peer that has others is [incompatible](am_core::LossCause::Incompatible). Sizes are bytes. Checked when a
/// machine is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProtocolConfig {
    /// How datagrams are protected.
    pub protection: Protection,
    /// Largest Medium payload, request or reply.
    pub medium: u32,
    /// Request bytes (payloads of Long messages aside) queued towards one peer and not yet acknowledged.
    pub send_queue: u32,
    /// The same, towards all peers together.
    pub send_budget: u32,
    /// Bytes of Long payloads of requests queued towards one peer, and of replies; one reply may exceed it. Of a
    /// request, what is longer is sent from where it is while `long` blocks, until no more than this waits for
    /// acknowledgement.
    pub bulk_queue: u32,
    /// Request bytes received from all peers and not yet handled; room for two of the largest messages, or for
    /// `send_queue`, and a byte for every peer at least.
    pub receive_budget: u32,
    /// Room set aside for replies of one peer.
    pub reply_window: u32,
    /// Room set aside for replies of all peers, and reply bytes queued towards all peers, each. Beyond the second,
    /// requests of a peer that has not acknowledged its replies wait; one reply to every peer always finds room.
    pub reply_budget: u32,
    /// A peer is lost that has acknowledged nothing which was sent to it within this time, or that has not been
    /// there for so long since it was first needed.
    pub silence: Span,
    /// How long an acknowledgement may wait for company.
    pub ack_delay: Span,
    /// Largest UDP payload to probe for, at least [`DATAGRAM_START`]; equal to it, nothing is probed.
    pub datagram_limit: u16,
    /// Whether a peer that was lost may come back with a new session; otherwise it stays lost.
    pub rejoin: bool,
}

impl Default for ProtocolConfig {
    /// 64 KiB Medium messages, encryption, Ethernet datagrams, 10 s of silence.
    fn default() -> Self {
        Self {
            protection: Protection::Encrypted,
            medium: 65536,
            send_queue: 256 << 10,
            send_budget: 4 << 20,
            bulk_queue: 1 << 20,
            receive_budget: 8 << 20,
            reply_window: 256 << 10,
            reply_budget: 4 << 20,
            silence: Span::from_secs(10),
            ack_delay: Span::from_micros(500),
            datagram_limit: 1452,
            rejoin: false,
        }
    }
}

impl ProtocolConfig {
    /// Sets how datagrams are protected.
    #[must_use]
    pub const fn protection(mut self, protection: Protection) -> Self {
        self.protection = protection;
        self
    }

    /// Sets the largest Medium payload in bytes, request or reply.
    #[must_use]
    pub const fn medium(mut self, medium: u32) -> Self {
        self.medium = medium;
        self
    }

    /// Sets after how long without an acknowledgement a peer is lost.
    #[must_use]
    pub const fn silence(mut self, silence: Span) -> Self {
        self.silence = silence;
        self
    }

    /// Sets the bytes of Long payloads queued towards one peer.
    #[must_use]
    pub const fn bulk_queue(mut self, bulk_queue: u32) -> Self {
        self.bulk_queue = bulk_queue;
        self
    }

    /// Sets the largest UDP payload to probe for, in bytes.
    #[must_use]
    pub const fn datagram_limit(mut self, datagram_limit: u16) -> Self {
        self.datagram_limit = datagram_limit;
        self
    }

    /// Takes the smallest buffers: Medium messages of 1 KiB, and hardly more than one of them under way.
    #[must_use]
    pub const fn smallest(mut self) -> Self {
        self.medium = 1024;
        (self.send_queue, self.send_budget, self.bulk_queue) = (1200, 1200, 4096);
        (self.receive_budget, self.reply_window, self.reply_budget) = (4096, 1200, 1200);
        self
    }
}

/// Settings that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// This endpoint is not part of the job.
    #[error("endpoint {me} is not one of {peers}")]
    NoSuchPeer {
        /// Index given.
        me: u32,
        /// Endpoints of the job.
        peers: u32,
    },
    /// The secret can be guessed.
    #[error("the job's secret has {len} bytes, but needs at least 16")]
    ShortSecret {
        /// Its length in bytes.
        len: usize,
    },
    /// A size is too small for what it must hold.
    #[error("{field} is {value} bytes, but must be at least {least}")]
    TooSmall {
        /// The field.
        field: &'static str,
        /// Bytes given.
        value: u64,
        /// Bytes needed.
        least: u64,
    },
    /// The probing limit is below the start.
    #[error("datagrams start at {start} bytes, above their limit of {limit}")]
    DatagramLimit {
        /// [`DATAGRAM_START`].
        start: u16,
        /// `datagram_limit`.
        limit: u16,
    },
    /// A time is zero.
    #[error("{field} is zero")]
    Zero {
        /// The field.
        field: &'static str,
    },
}

impl Config {
    /// Settings for endpoint `me` of a job, those of the protocol by default.
    pub fn new(shape: Shape, me: Peer, secrets: Secrets) -> Self {
        Self { shape, me, secrets, protocol: ProtocolConfig::default() }
    }

    /// Checks that the settings fit together.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first contradiction.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let peers = self.shape.peers();
        if self.me.0 >= peers {
            return Err(ConfigError::NoSuchPeer { me: self.me.0, peers });
        }
        if self.secrets.job.len() < 16 {
            return Err(ConfigError::ShortSecret { len: self.secrets.job.len() });
        }
        let message = self.largest_message();
        let sizes = [
            ("send_queue", self.send_queue, message),
            ("send_budget", self.send_budget, self.send_queue.into()),
            ("bulk_queue", self.bulk_queue, 4096),
            ("receive_budget", self.receive_budget, self.kept_for_loans() + u64::from(peers)),
            ("reply_window", self.reply_window, message),
            ("reply_budget", self.reply_budget, message),
        ];
        for (field, value, least) in sizes {
            if u64::from(value) < least {
                return Err(ConfigError::TooSmall { field, value: value.into(), least });
            }
        }
        if self.datagram_limit < DATAGRAM_START {
            return Err(ConfigError::DatagramLimit { start: DATAGRAM_START, limit: self.datagram_limit });
        }
        for (field, span) in [("silence", self.silence), ("ack_delay", self.ack_delay)] {
            if span == Span::ZERO {
                return Err(ConfigError::Zero { field });
            }
        }
        Ok(())
    }

    /// Bytes of a lane that the largest message takes.
    pub(super) fn largest_message(&self) -> u64 {
        u64::from(self.medium) + super::message::MAX_HEADER as u64
    }

    /// What is at least kept for lending: enough for two, so that no single peer has all of it.
    pub(crate) fn kept_for_loans(&self) -> u64 {
        u64::from(self.send_queue).max(2 * self.largest_message())
    }

    /// What is kept for lending: a quarter of the receive budget where the largest messages need loans, so that it
    /// takes many peers that never give theirs back to use it up.
    fn for_loans(&self) -> u64 {
        let (budget, peers) = (u64::from(self.receive_budget), u64::from(self.shape.peers()));
        let least = self.kept_for_loans();
        if (budget - least) / peers >= self.largest_message() {
            return least;
        }
        least.max((budget / 4).min(budget - peers))
    }

    /// What every peer may always send: its part of the receive budget, less what is kept for lending.
    pub(super) fn base_window(&self) -> u64 {
        ((u64::from(self.receive_budget) - self.for_loans()) / u64::from(self.shape.peers())).min(1 << 20)
    }

    /// What can be lent to peers in need, together.
    pub(super) fn lendable(&self) -> u64 {
        u64::from(self.receive_budget) - self.base_window() * u64::from(self.shape.peers())
    }

    /// Fingerprint (FNV-1a) of what all ranks must agree on.
    pub(super) fn layout(&self) -> u64 {
        let fields = [
            u64::from(self.shape.ranks),
            u64::from(self.shape.endpoints),
            self.protection as u64,
            self.medium.into(),
            self.send_queue.into(),
            self.receive_budget.into(),
            self.reply_window.into(),
            self.ack_delay.0,
            self.datagram_limit.into(),
        ];
        fields
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_are_named() {
        let secrets = Secrets { job: vec![1; 16], incarnation: [0; 32] };
        assert!(!format!("{secrets:?}").contains('1'));
        type Change = fn(&mut Config);
        let cases: [(Change, &str); 5] = [
            (|c| c.me = Peer(9), "endpoint 9 is not one of 2"),
            (|c| c.secrets.job.truncate(3), "the job's secret has 3 bytes, but needs at least 16"),
            (|c| c.send_queue = 65536, "send_queue is 65536 bytes, but must be at least 65630"),
            (|c| c.datagram_limit = 600, "datagrams start at 1200 bytes, above their limit of 600"),
            (|c| c.silence = Span::ZERO, "silence is zero"),
        ];
        for (change, message) in cases {
            let mut config = Config::new(Shape::new(2), Peer(0), secrets.clone());
            assert_eq!(config.validate(), Ok(()));
            change(&mut config);
            assert_eq!(config.validate().unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn windows_and_loans_fit_the_budget_at_any_size() {
        for ranks in [1, 2, 7, 512, 4096] {
            let secrets = Secrets { job: vec![1; 16], incarnation: [0; 32] };
            let config = Config::new(Shape::new(ranks), Peer(0), secrets);
            config.validate().unwrap();
            assert!(config.base_window() > 0 && config.lendable() >= u64::from(config.send_queue));
            let total = config.base_window() * u64::from(ranks) + config.lendable();
            assert_eq!(total, u64::from(config.receive_budget));
        }
    }
}
