//! The integration tests of transport-ofi, one program: each module is a subject.

mod allocation;
mod conformance;
mod cut;
mod departures;
mod fake;
mod faults;
mod forks;
mod missing;
mod processes;

use std::io::Write as _;
use transport_ofi::{OfiConfig, OfiError};

/// What `limit_provider_buffers` sets for `udp;ofi_rxd`, before it is loaded.
pub(crate) const RXD_PACKETS: (&str, &str) = ("FI_OFI_RXD_MAX_UNACKED", "16");

/// Says that a test is skipped because the library, or the provider that it is about, is not on this machine. The
/// line goes past the test runner, which shows nothing of tests that pass.
///
/// # Panics
/// If the error is any other one: that is a failure, not an absence.
pub(crate) fn skip(what: &str, provider: &str, error: &OfiError) {
    let absent = match error {
        OfiError::NoLibrary { .. } => true,
        OfiError::NoProvider { .. } => {
            let offers = transport_ofi::list(&OfiConfig::default()).expect("libfabric says what there is");
            !offers.iter().any(|verdict| {
                let has = |part| verdict.offer.provider.split(';').any(|own| own == part);
                provider.split(';').all(has)
            })
        }
        _ => false,
    };
    assert!(absent, "{what} over {provider}: {error}");
    let line = format!("SKIPPED: {what} over {provider}: {error}\n");
    if let Ok(mut out) = std::fs::OpenOptions::new().append(true).open("/dev/stderr") {
        let _ = out.write_all(line.as_bytes());
    }
}

#[test]
#[should_panic(expected = "conformance over tcp: window=0")]
fn only_what_is_absent_is_skipped() {
    let error = OfiError::Setting { name: "window", value: "0".into(), expected: "from 1 to 1024" };
    skip("conformance", "tcp", &error);
}

// Counts per thread, so that tests beside each other do not disturb each other's counts.
#[global_allocator]
static ALLOCATOR: am_conformance::CountingAllocator = am_conformance::CountingAllocator;
