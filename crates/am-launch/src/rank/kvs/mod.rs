//! The key-value spaces of other launchers than this family's, in which rank 0 tells the others where it listens
//! and with which secret: PMI's, over a socket that the launcher leaves, and PMIx', by its library. Nothing else
//! is exchanged there: ranks then meet as at `AM_RENDEZVOUS`. What travels there is as safe from others as the
//! launcher keeps it.

pub(crate) mod pmi;
mod pmix;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use pmi::{Member, PmiServer};
use zeroize::Zeroizing;

use crate::interface::{Chosen, InterfaceWish, addresses, choose};
use crate::rank::error::RankError;
use crate::secret::Secret;

/// The key of what rank 0 tells.
const KEY: &str = "active-messages";
/// What it begins with.
const MARK: &str = "am1";
/// Addresses that rank 0 tells at most: PMI's values have a limit.
const MOST_ADDRESSES: usize = 16;

/// A key-value space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyValueSpace {
    /// PMI's.
    Pmi(PmiServer),
    /// PMIx'.
    Pmix,
}

impl KeyValueSpace {
    /// Its name, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pmi(_) => "PMI",
            Self::Pmix => "PMIx",
        }
    }

    /// Has every rank know what rank 0 tells. Collective, once for a process. Blocks until all ranks call it.
    ///
    /// # Errors
    /// [`RankError::KeyValueSpace`].
    pub(crate) fn share(
        self,
        me: Member<'_>,
        told: Option<&Meeting>,
        limit: Duration,
    ) -> Result<Meeting, RankError> {
        let failed = |reason: String| RankError::KeyValueSpace { space: self.name(), reason };
        let value = told.map(Meeting::text);
        let value = value.as_ref().map(|value| value.as_str());
        let heard = match self {
            Self::Pmi(server) => pmi::share(server, me, value, limit).map_err(|error| error.to_string()),
            Self::Pmix => pmix::share(value),
        };
        let heard = heard.map_err(failed)?;
        Meeting::read(&heard).ok_or_else(|| failed("rank 0 told nothing that a rank of this program tells".into()))
    }
}

/// Where rank 0 listens, and the secret of those who meet there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Meeting {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) secret: Secret,
}

impl Meeting {
    /// The one at this host's addresses, or that which is wished for, at a port.
    ///
    /// # Errors
    /// [`InterfaceError`](crate::InterfaceError) if there is none.
    pub(crate) fn here(
        wish: Option<&InterfaceWish>,
        port: u16,
        secret: Secret,
    ) -> Result<Self, crate::interface::InterfaceError> {
        let found = match wish {
            Some(wish) => vec![choose(wish)?],
            None => addresses()?,
        };
        let mut addresses: Vec<IpAddr> = found.iter().map(|Chosen { address, .. }| *address).collect();
        if addresses.iter().any(|address| !address.is_loopback()) {
            addresses.retain(|address| !address.is_loopback());
        }
        addresses.dedup();
        addresses.truncate(MOST_ADDRESSES);
        let addresses = addresses.into_iter().map(|address| (address, port).into()).collect();
        Ok(Self { addresses, secret })
    }

    /// Where rank 0 listens for all of its addresses: both families, unless this host has only the older one.
    pub(crate) fn any() -> [SocketAddr; 2] {
        [([0u16; 8], 0).into(), (Ipv4Addr::UNSPECIFIED, 0).into()]
    }

    /// As it is told: no spaces, no `=` and no `;`, of which PMI's messages are made.
    fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(1024));
        text.push_str(MARK);
        text.push('/');
        for byte in self.secret.bytes() {
            text.extend([byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).expect("a digit")));
        }
        for address in &self.addresses {
            text.push('/');
            text.push_str(&address.to_string());
        }
        text
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.trim_end_matches('\0').split('/');
        if parts.next()? != MARK {
            return None;
        }
        let (pairs, []) = parts.next()?.as_bytes().as_chunks::<2>() else { return None };
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let byte = |&[high, low]: &[u8; 2]| Some((digit(high)? << 4 | digit(low)?) as u8);
        let bytes = Zeroizing::new(pairs.iter().map(byte).collect::<Option<Vec<u8>>>()?);
        let secret = Secret::from_bytes(&bytes)?;
        let addresses = parts.map(|part| part.parse().ok()).collect::<Option<Vec<SocketAddr>>>()?;
        (!addresses.is_empty()).then_some(Self { addresses, secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meetings_are_read_as_told() {
        let secret = || Secret::random().unwrap();
        let addresses = ["10.0.0.1:4000", "[fd00::1]:4000"].map(|text| text.parse().unwrap()).to_vec();
        let meeting = Meeting { addresses, secret: secret() };
        let text = meeting.text();
        assert!(!text.contains([' ', '=', ';', '\n']) && text.len() < 1000, "{}", text.len());
        assert_eq!(Meeting::read(&text), Some(meeting));
        let here = Meeting::here(None, 7, secret()).unwrap();
        assert!(Meeting::read(&here.text()) == Some(here));
        let loopback = Meeting::here(Some(&"127.0.0.2".parse().unwrap()), 7, secret()).unwrap();
        assert_eq!(loopback.addresses, ["127.0.0.2:7".parse().unwrap()]);
        for wrong in ["", "am1", "am1/00", "am1/zz/1.2.3.4:5", "am2/00/1.2.3.4:5", "am1/00/1.2.3.4:5"] {
            assert_eq!(Meeting::read(wrong), None, "{wrong}");
        }
    }
}
