//! The conformance suite over providers of libfabric that every machine can have, with the ranks as threads of one
//! process. Where the library or a provider is missing, a test says so and is skipped.

use am_conformance::{Buffers, Fabric, Needs, Plan, Profile, all_cases, run};
use am_core::{Address, Rank};
use transport_ofi::{LocalJob, LocalOptions, Ofi, OfiConfig};

/// Makes jobs whose ranks are threads.
struct Threads {
    provider: &'static str,
}

impl Threads {
    fn config(&self, buffers: Buffers) -> OfiConfig {
        let config = match buffers {
            Buffers::Default => OfiConfig::default(),
            Buffers::Smallest => OfiConfig::smallest(),
        };
        config.provider(self.provider).interface("127.0.0.1")
    }
}

impl Fabric for Threads {
    type Transport = Ofi;
    type Job = (LocalJob, u16);

    fn name(&self) -> String {
        format!("libfabric's provider {} between threads", self.provider)
    }

    fn create(&self, ranks: u32, needs: &Needs) -> (LocalJob, u16) {
        let options = LocalOptions::default().endpoints(needs.endpoints).segment_bytes(SEGMENT);
        let job = LocalJob::with(ranks, options, &self.config(needs.buffers));
        (job.expect("the provider opens endpoints"), needs.endpoints)
    }

    fn join(&self, (job, endpoints): &(LocalJob, u16), rank: Rank) -> Vec<Ofi> {
        let join = |endpoint| job.join_endpoint(Address::new(rank, endpoint)).expect("every endpoint joins once");
        (0..*endpoints).map(join).collect()
    }
}

/// Bytes of every rank's segment: not a multiple of anything but eight.
const SEGMENT: usize = (1 << 18) + 8;

/// Plays the cases whose number is one of some.
fn check(provider: &'static str, plan: &Plan, which: impl Fn(usize) -> bool) {
    let fabric = Threads { provider };
    if let Err(error) = LocalJob::new(1, &fabric.config(Buffers::Default)) {
        return crate::skip("conformance", provider, &error);
    }
    let cases = all_cases().into_iter().enumerate().filter(|(number, _)| which(*number));
    run(fabric, cases.map(|(_, case)| case).collect(), plan).check();
}

/// Each provider plays some of the cases, and all of them are played by one; the fake network plays all.
fn quick(provider: &'static str, ranks: u32, which: impl Fn(usize) -> bool) {
    check(provider, &Plan::with_ranks(Profile::Quick, &[ranks]), which);
}

#[test]
fn quick_tcp() {
    quick("tcp", 3, |number| number % 10 < 3);
}

#[test]
fn quick_shm() {
    quick("shm", 2, |number| (3..6).contains(&(number % 10)));
}

#[test]
fn quick_udp() {
    limited("conformance::quick_udp", || quick("udp;ofi_rxd", 2, |number| number % 10 >= 6));
}

/// Plays a test over `udp;ofi_rxd` in a process of its own, started with the variable that
/// `limit_provider_buffers` sets in programs: without it that of libfabric before 2.4 stands still at times.
fn limited(test: &str, play: impl FnOnce()) {
    if std::env::var_os(crate::RXD_PACKETS.0).is_some() {
        return play();
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--include-ignored", "--nocapture"]).envs([crate::RXD_PACKETS]);
    let output = child.output().unwrap();
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
}

/// `cargo test --release -p active-messages-ofi --test it -- --ignored full_quick_profile`.
#[test]
#[ignore = "the quick tests share the cases"]
fn full_quick_profile() {
    limited("conformance::full_quick_profile", || {
        for provider in ["tcp", "shm", "udp;ofi_rxd"] {
            let plan = Plan { further: 1, ..Plan::with_ranks(Profile::Quick, &[1, 2, 3, 5, 8]) };
            check(provider, &plan, |_| true);
        }
    });
}

/// Each takes minutes: `cargo test --release -p active-messages-ofi --test it -- --ignored conformance::full
/// --nocapture`; `AM_CONFORMANCE_RANKS=8` plays those with eight ranks.
fn full(provider: &'static str) {
    check(provider, &Plan::with_ranks(Profile::Full, &[1, 2, 3, 5, 8]), |_| true);
}

#[test]
#[ignore = "the full profile takes minutes"]
fn full_tcp() {
    full("tcp");
}

#[test]
#[ignore = "the full profile takes minutes"]
fn full_shm() {
    full("shm");
}

#[test]
#[ignore = "the full profile takes minutes"]
fn full_udp() {
    limited("conformance::full_udp", || full("udp;ofi_rxd"));
}
