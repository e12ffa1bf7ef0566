//! Which transports a job uses: what the user asks for, and what each pair of ranks gets.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::env;
use crate::rank::identity::EnvironmentError;

/// What the ranks of a job shall talk over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransportChoice {
    /// Shared memory between ranks of one host, UDP between hosts.
    #[default]
    Auto,
    /// Shared memory only: a job on one host.
    Shm,
    /// UDP only, also between ranks of one host.
    Udp,
}

impl TransportChoice {
    /// The choice in `AM_TRANSPORT`, if it is set.
    ///
    /// # Errors
    /// Its value is not one of `auto`, `shm` and `udp`.
    pub fn from_environment() -> Result<Option<Self>, EnvironmentError> {
        Self::read(std::env::var_os(env::TRANSPORT))
    }

    fn read(value: Option<OsString>) -> Result<Option<Self>, EnvironmentError> {
        let Some(value) = value else { return Ok(None) };
        match value.to_str().map(str::parse) {
            Some(Ok(choice)) => Ok(Some(choice)),
            _ => {
                let (variable, expected) = (env::TRANSPORT, EXPECTED);
                Err(EnvironmentError::NotANumber { variable, value, expected })
            }
        }
    }
}

const EXPECTED: &str = "one of auto, shm and udp";

impl FromStr for TransportChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "shm" => Ok(Self::Shm),
            "udp" => Ok(Self::Udp),
            _ => Err("not one of auto, shm and udp"),
        }
    }
}

impl fmt::Display for TransportChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Udp => "udp",
        })
    }
}

/// What carries messages between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Carrier {
    /// Shared memory.
    Shm,
    /// UDP.
    Udp,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shm => "shared memory",
            Self::Udp => "UDP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_read_or_refused() {
        assert_eq!(TransportChoice::read(None), Ok(None));
        assert_eq!(TransportChoice::read(Some("udp".into())), Ok(Some(TransportChoice::Udp)));
        let error = TransportChoice::read(Some("tcp".into())).unwrap_err();
        assert_eq!(error.to_string(), "AM_TRANSPORT=tcp in the environment is not one of auto, shm and udp");
    }
}
