//! The conformance suite over UDP sockets on loopback, with the ranks as threads of one process.

use am_conformance::{Buffers, Fabric, Needs, Plan, Profile, all_cases, run};
use am_core::{Address, Rank, Span};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use transport_udp::proto::Protection;
use transport_udp::{LocalJob, LocalOptions, Udp, UdpConfig};

/// Makes jobs whose ranks are threads.
struct Threads {
    interface: IpAddr,
    protection: Protection,
}

impl Fabric for Threads {
    type Transport = Udp;
    type Job = (LocalJob, u16);

    fn name(&self) -> String {
        format!("UDP between threads at {}, {:?}", self.interface, self.protection)
    }

    fn create(&self, ranks: u32, needs: &Needs) -> (LocalJob, u16) {
        let mut config = match needs.buffers {
            Buffers::Default => UdpConfig::new([]),
            Buffers::Smallest => UdpConfig::smallest([]),
        };
        config.protocol.protection = self.protection;
        config.protocol.silence = Span::from_secs(10);
        // A machine that runs many tests at once keeps threads waiting for milliseconds. The helper would then
        // change what a rank may still send between its refusal and its look at the reasons.
        config.absence = Duration::from_millis(20);
        let options =
            LocalOptions::default().endpoints(needs.endpoints).segment_bytes(SEGMENT).interface(self.interface);
        (LocalJob::with(ranks, options, config).expect("loopback has free ports"), needs.endpoints)
    }

    fn join(&self, (job, endpoints): &(LocalJob, u16), rank: Rank) -> Vec<Udp> {
        let join = |endpoint| job.join_endpoint(Address::new(rank, endpoint)).expect("every endpoint joins once");
        (0..*endpoints).map(join).collect()
    }

    fn at_once(&self) -> usize {
        4
    }
}

/// Bytes of every rank's segment: not a multiple of anything but eight.
const SEGMENT: usize = (1 << 18) + 8;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn check(interface: IpAddr, protection: Protection, plan: &Plan) {
    run(Threads { interface, protection }, all_cases(), plan).check();
}

/// The quick profile with fewer numbers of ranks than usual.
fn quick(ranks: &[u32]) -> Plan {
    Plan { ranks: ranks.to_vec(), ..Plan::from_environment(Profile::Quick) }
}

#[test]
fn quick_encrypted() {
    check(V4, Protection::Encrypted, &quick(&[1, 3]));
}

#[test]
fn quick_over_ipv6() {
    check(V6, Protection::PlainText, &quick(&[3]).sample("IPv6"));
}

#[test]
fn quick_unauthenticated() {
    check(V4, Protection::Unauthenticated, &quick(&[2]).sample("unauthenticated"));
}

/// Takes minutes: `cargo test --release -p active-messages-udp --test it -- --ignored conformance:: --nocapture`.
#[test]
#[ignore = "the full profile takes minutes"]
fn full() {
    for interface in [V4, V6] {
        for protection in [Protection::Encrypted, Protection::PlainText, Protection::Unauthenticated] {
            check(interface, protection, &Plan::from_environment(Profile::Full));
        }
    }
}
