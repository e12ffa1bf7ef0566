//! Settings of the transport, and the variables that set them.

use crate::error::OfiError;
use crate::frame::{LONG_HEADER, MAX_ARGUMENTS};
use std::net::IpAddr;
use std::time::Duration;

/// Names a provider.
const FABRIC: &str = "AM_FABRIC";
/// Names an interface.
const INTERFACE: &str = "AM_OFI_INTERFACE";
/// Largest Medium payload.
const MEDIUM: &str = "AM_OFI_MEDIUM";
/// Seconds that leaving may take.
const LINGER: &str = "AM_OFI_LINGER";

/// Settings of an endpoint; the same on all ranks, but for the interface and the host's address.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OfiConfig {
    /// The provider by its name in libfabric (`verbs`, `tcp`, `udp;ofi_rxd`); the fastest that fits if none is
    /// named.
    pub provider: Option<String>,
    /// The interface by its address or its domain (`10.0.0.1`, `eth0`, `mlx5_0`); any if none is named.
    pub interface: Option<String>,
    /// The IP address by which others know this host: of several interfaces of one provider, the one that has it
    /// is taken.
    pub host: Option<IpAddr>,
    /// Whether the job spans several hosts, so that a provider within one will not do.
    pub several_hosts: bool,
    /// Largest Medium payload in bytes, either direction, 64 to 65536.
    pub medium: usize,
    /// Requests that may be under way to each peer, and those with a reply to come, 1 to 1024; follows from the
    /// number of peers if unset.
    pub window: Option<u32>,
    /// Buffers for parts of Long payloads, 1 to 64, and their size in bytes, 4096 to 2^24.
    pub chunks: u32,
    /// Bytes of each.
    pub chunk_bytes: usize,
    /// Whether messages share receive buffers, one after the other, where the provider has that (`FI_MULTI_RECV`)
    /// and manages its queues; otherwise each has a buffer of its own.
    pub multi_receive: bool,
    /// How long a departure may wait for peers that do not answer.
    pub linger: Duration,
    /// How long the program may leave the provider alone before the helper thread carries it on.
    pub absence: Duration,
}

impl Default for OfiConfig {
    /// Any provider of one host or several, Medium messages of 8 KiB, sixteen buffers of 128 KiB for Long ones, 5
    /// s for departures.
    fn default() -> Self {
        Self {
            provider: None,
            interface: None,
            host: None,
            several_hosts: false,
            medium: 8192,
            window: None,
            chunks: 16,
            chunk_bytes: 128 << 10,
            multi_receive: true,
            linger: Duration::from_secs(5),
            absence: Duration::from_millis(2),
        }
    }
}

impl OfiConfig {
    /// The variables that [`OfiConfig::from_environment`] reads.
    pub const VARIABLES: [&'static str; 5] = [FABRIC, INTERFACE, MEDIUM, LINGER, "AM_OFI_LIBRARY"];

    /// The smallest sizes with which everything still works, for tests of flow control.
    pub fn smallest() -> Self {
        Self { medium: 64, window: Some(1), chunks: 1, chunk_bytes: 4096, ..Self::default() }
    }

    /// Sets the provider.
    #[must_use]
    pub fn provider(mut self, name: impl Into<String>) -> Self {
        self.provider = Some(name.into());
        self
    }

    /// Sets the interface, by address or domain.
    #[must_use]
    pub fn interface(mut self, name: impl Into<String>) -> Self {
        self.interface = Some(name.into());
        self
    }

    /// Sets the address by which others know this host.
    #[must_use]
    pub const fn host(mut self, address: IpAddr) -> Self {
        self.host = Some(address);
        self
    }

    /// Sets whether the job spans several hosts.
    #[must_use]
    pub const fn several_hosts(mut self, several: bool) -> Self {
        self.several_hosts = several;
        self
    }

    /// The defaults, changed by `AM_FABRIC`, `AM_OFI_INTERFACE`, `AM_OFI_MEDIUM` and `AM_OFI_LINGER`.
    ///
    /// # Errors
    /// [`OfiError::Setting`] names a variable that makes no sense.
    pub fn from_environment() -> Result<Self, OfiError> {
        Self::from_variables(&|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// The defaults, changed by what `lookup` knows of the variables.
    ///
    /// # Errors
    /// [`OfiError::Setting`] names a variable that makes no sense.
    pub fn from_variables(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, OfiError> {
        let named = |name| lookup(name).filter(|text| !text.is_empty());
        let mut config = Self { provider: named(FABRIC), interface: named(INTERFACE), ..Self::default() };
        let wrong = |name, value: String, expected| OfiError::Setting { name, value, expected };
        if let Some(value) = lookup(MEDIUM) {
            config.medium =
                value.trim().parse().map_err(|_| wrong(MEDIUM, value, "a number of bytes from 64 to 65536"))?;
        }
        if let Some(value) = lookup(LINGER) {
            let seconds: Result<f64, _> = value.trim().parse();
            let linger = seconds.ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            config.linger = linger.ok_or_else(|| wrong(LINGER, value, "a number of seconds"))?;
        }
        config.check()?;
        Ok(config)
    }

    pub(crate) fn check(&self) -> Result<(), OfiError> {
        let within = |name, value: u64, least: u64, most: u64, expected| {
            let wrong = || OfiError::Setting { name, value: value.to_string(), expected };
            if (least..=most).contains(&value) { Ok(()) } else { Err(wrong()) }
        };
        within(MEDIUM, self.medium as u64, 64, 1 << 16, "a number of bytes from 64 to 65536")?;
        within("window", self.window.unwrap_or(1).into(), 1, 1024, "from 1 to 1024")?;
        within("chunks", self.chunks.into(), 1, 64, "from 1 to 64")?;
        within("chunk_bytes", self.chunk_bytes as u64, 4096, 1 << 24, "from 4096 to 16777216")
    }

    /// Requests under way to each of so many peers.
    pub(crate) fn window(&self, peers: u32) -> u32 {
        self.window.unwrap_or_else(|| (256 / peers).clamp(4, 64))
    }

    /// Bytes of the largest message on the wire.
    pub(crate) const fn frame_bytes(&self) -> usize {
        LONG_HEADER + 4 * MAX_ARGUMENTS + self.medium
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<OfiConfig, String> {
        let lookup = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into());
        OfiConfig::from_variables(&lookup).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_without_sense_are_named() {
        let config =
            read(&[("AM_FABRIC", "udp;ofi_rxd"), ("AM_OFI_LINGER", "0.5"), ("AM_OFI_INTERFACE", "")]).unwrap();
        assert_eq!((config.provider.as_deref(), config.interface), (Some("udp;ofi_rxd"), None));
        assert_eq!(config.linger, Duration::from_millis(500));
        for (name, value, expected) in [
            ("AM_OFI_MEDIUM", "much", "AM_OFI_MEDIUM=much in the settings"),
            (
                "AM_OFI_MEDIUM",
                "63",
                "AM_OFI_MEDIUM=63 in the settings of libfabric's transport is not a number of bytes",
            ),
            ("AM_OFI_LINGER", "-1", "AM_OFI_LINGER=-1 in"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(OfiConfig::smallest().check().is_ok());
        assert!(OfiConfig { window: Some(0), ..OfiConfig::default() }.check().is_err());
    }

    #[test]
    fn windows_follow_from_the_number_of_peers() {
        let config = OfiConfig::default();
        assert_eq!([1, 2, 8, 64, 5000].map(|peers| config.window(peers)), [64, 64, 32, 4, 4]);
    }
}
