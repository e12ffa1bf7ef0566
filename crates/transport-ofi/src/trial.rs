//! A trial before a job begins: whether the limits of this process permit an endpoint.

use crate::config::OfiConfig;
use crate::error::OfiError;
use crate::job::Opened;
use crate::provider::Offer;
use nix::sys::resource::{Resource, getrlimit};

/// Bytes of the trial's segment.
const SEGMENT: usize = 4096;
/// Descriptors that an endpoint opens after it has been opened itself, without its connections: bells, those of
/// the job, and a few files of the program.
const MORE: u64 = 8;

/// Opens an endpoint with these settings as a job of so many endpoints does, registers its memory, and closes it
/// again: whether the limits of this process permit that. Then it sees whether there are descriptors for the
/// connections of a barrier, two for each doubling of the endpoints; a program that talks to more needs more.
/// Blocks while providers look around; allocates.
///
/// # Errors
/// As [`Opened::new`], with the limit that is in the way where there is one, and [`OfiError::Descriptors`].
pub fn rehearse(config: &OfiConfig, endpoints: u32) -> Result<Offer, OfiError> {
    let opened = Opened::new(config, endpoints, SEGMENT)?;
    let offer = opened.offer().clone();
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((u64::MAX, u64::MAX));
    match lacking(&offer.provider, endpoints, open, limit) {
        Some(needed) => Err(OfiError::Descriptors { provider: offer.provider, needed, limit }),
        None => Ok(offer),
    }
}

/// How many descriptors are needed, if there are fewer: some are open, and the limit permits so many.
fn lacking(provider: &str, endpoints: u32, open: u64, limit: u64) -> Option<u64> {
    let connects = provider.split(';').any(|part| matches!(part, "tcp" | "net" | "sockets" | "verbs"));
    let doublings = u64::from(u32::BITS - endpoints.saturating_sub(1).leading_zeros());
    let connections = if connects { (2 * doublings).min(u64::from(endpoints.saturating_sub(1))) } else { 0 };
    let needed = open + connections + MORE;
    (needed > limit).then_some(needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_counted_with_connections() {
        for (provider, endpoints, limit, expected) in [
            ("tcp;ofi_rxm", 1, 28, None),
            ("tcp;ofi_rxm", 1, 27, Some(28)),
            ("tcp;ofi_rxm", 2, 28, Some(29)),
            ("tcp;ofi_rxm", 1024, 40, Some(48)),
            ("udp;ofi_rxd", 1024, 28, None),
        ] {
            assert_eq!(lacking(provider, endpoints, 20, limit), expected, "{provider} {endpoints} {limit}");
        }
    }
}
