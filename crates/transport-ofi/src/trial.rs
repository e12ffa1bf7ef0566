//! A trial before a job begins: whether the limits of this process permit an endpoint.

use crate::config::OfiConfig;
use crate::error::OfiError;
use crate::job::Opened;
use crate::provider::Offer;
use nix::sys::resource::{Resource, getrlimit};
use std::fs::File;

/// Bytes of the trial's segment: those of a small program. Nobody knows yet what the program will ask for.
const SEGMENT: usize = 1 << 20;
/// Descriptors that an endpoint opens after it has been opened itself, without its connections: bells, those of
/// the job, and a few files of the program.
const MORE: u64 = 8;

/// Opens an endpoint with these settings as a job of so many endpoints does, registers its memory and a segment of
/// a mebibyte, and closes it again: whether the limits of this process permit that. Then it sees whether there are
/// descriptors for the connections of a barrier, two for each doubling of the endpoints; a program that talks to
/// more needs more, and one with a larger segment learns when it attaches whether that can be registered. Blocks
/// while providers look around; allocates.
///
/// # Errors
/// As [`Opened::new`], with the limit that is in the way where there is one, and [`OfiError::Descriptors`].
pub fn rehearse(config: &OfiConfig, endpoints: u32) -> Result<Offer, OfiError> {
    let opened = Opened::new(config, endpoints, SEGMENT)?;
    let offer = opened.offer().clone();
    match lacking(further(&offer.provider, endpoints)) {
        Some((needed, limit)) => Err(OfiError::Descriptors { provider: offer.provider, needed, limit }),
        None => Ok(offer),
    }
}

/// Descriptors that an endpoint takes besides those with which it has been opened.
fn further(provider: &str, endpoints: u32) -> u64 {
    let connects = provider.split(';').any(|part| matches!(part, "tcp" | "net" | "sockets" | "verbs"));
    let doublings = u64::from(u32::BITS - endpoints.saturating_sub(1).leading_zeros());
    let connections = if connects { (2 * doublings).min(u64::from(endpoints.saturating_sub(1))) } else { 0 };
    connections + MORE
}

/// Takes so many descriptors, and gives them back: where there are fewer, how many the process needs in all, and
/// how many it may have.
fn lacking(wanted: u64) -> Option<(u64, u64)> {
    // What is open is not counted, which would itself take a descriptor.
    let taken: Vec<File> = (0..wanted).map_while(|_| File::open("/dev/null").ok()).collect();
    let missing = wanted - taken.len() as u64;
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((u64::MAX, u64::MAX));
    (missing != 0).then(|| (limit.saturating_add(missing), limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::setrlimit;
    use std::process::Command;

    #[test]
    fn connections_of_a_barrier_are_counted() {
        for (provider, endpoints, expected) in
            [("tcp;ofi_rxm", 1, 8), ("tcp;ofi_rxm", 2, 9), ("tcp;ofi_rxm", 1024, 28), ("udp;ofi_rxd", 1024, 8)]
        {
            assert_eq!(further(provider, endpoints), expected, "{provider} {endpoints}");
        }
    }

    /// In a process of its own, whose limit is low: also where not one descriptor is left.
    #[test]
    fn too_few_descriptors_are_noticed() {
        const CHILD: &str = "AM_TEST_FEW_DESCRIPTORS";
        if std::env::var_os(CHILD).is_none() {
            let name = "trial::tests::too_few_descriptors_are_noticed";
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", name, "--test-threads=1"]).env(CHILD, "1");
            let output = child.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            return;
        }
        setrlimit(Resource::RLIMIT_NOFILE, 64, 64).unwrap();
        let mut all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        for left in 0..12 {
            let expected = (left < 8).then_some((64 + 8 - left, 64));
            assert_eq!(lacking(8), expected, "{left} are left");
            all.pop();
        }
    }
}
