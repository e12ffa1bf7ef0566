//! The conformance suite over shared memory and UDP in one job: even ranks play one host, odd ranks another.

use active_messages::select::Select;
use active_messages::shm::{Job, JobConfig, JoinOptions, Shm, ShmMemory};
use active_messages::transport::Shape;
use active_messages::udp::{Peers, Udp, UdpConfig, bind};
use active_messages::{Address, Rank, Span, Transport};
use am_conformance::{Buffers, Fabric, Needs, Plan, Profile, all_cases, run};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

const SEGMENT: usize = (1 << 18) + 8;

/// Makes jobs whose ranks are threads on two imagined hosts.
struct TwoHosts;

struct Hosts {
    /// The shared memory of each host that has ranks.
    shm: [Option<Job>; 2],
    udp: UdpConfig,
    peers: Arc<Peers>,
    sockets: Mutex<Vec<Option<UdpSocket>>>,
    endpoints: u16,
}

impl Fabric for TwoHosts {
    type Transport = Select<Shm, Udp<ShmMemory>>;
    type Job = Hosts;

    fn name(&self) -> String {
        "shared memory within a host, UDP between hosts".into()
    }

    fn create(&self, ranks: u32, needs: &Needs) -> Hosts {
        let Needs { buffers, endpoints, .. } = *needs;
        let shape = Shape { ranks, endpoints };
        let secret = [7; 32];
        let mut udp = match buffers {
            Buffers::Default => UdpConfig::new(secret),
            Buffers::Smallest => UdpConfig::smallest(secret),
        };
        udp.protocol.silence = Span::from_secs(8);
        let shm = [0, 1].map(|parity| {
            let here = (ranks + 1 - parity) / 2;
            let config = match buffers {
                Buffers::Default => JobConfig::new(here),
                Buffers::Smallest => JobConfig::smallest(here),
            };
            (here > 0).then(|| Job::create(&config.endpoints(endpoints)).expect("there is memory for a small job"))
        });
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let sockets: Vec<_> = (0..shape.peers()).map(|_| bind(any).expect("loopback has free ports")).collect();
        let addresses = sockets.iter().map(|socket| socket.local_addr().expect("bound")).collect();
        let peers = Peers::new(shape, addresses, vec![SEGMENT as u64; ranks as usize]).expect("all differ");
        let sockets = Mutex::new(sockets.into_iter().map(Some).collect());
        Hosts { shm, udp, peers: Arc::new(peers), sockets, endpoints }
    }

    fn join(&self, job: &Hosts, rank: Rank) -> Vec<Self::Transport> {
        let shape = job.peers.shape();
        let host: Vec<_> = (rank.0 % 2..shape.ranks).step_by(2).map(Rank).collect();
        let join = |endpoint| {
            let memory = job.shm[(rank.0 % 2) as usize].as_ref().expect("the rank's host has ranks");
            let options = JoinOptions::default().segment_bytes(SEGMENT).endpoint(endpoint);
            let near = memory.join_with(rank.0 / 2, options).expect("every endpoint joins once");
            let me = Address::new(rank, endpoint);
            let socket = job.sockets.lock().unwrap()[shape.peer(me).unwrap().index()].take().expect("joins once");
            let segment = near.segment().clone();
            let far =
                Udp::join_with_segment(&job.udp, &job.peers, me, socket, segment).expect("the socket is bound");
            Select::both(near, far, &host, |_| true).expect("both are of the same endpoint")
        };
        (0..job.endpoints).map(join).collect()
    }

    fn at_once(&self) -> usize {
        4
    }
}

#[test]
fn quick() {
    // One rank alone on its host, two that share theirs. The full profile has all numbers of ranks.
    run(TwoHosts, all_cases(), &Plan::with_ranks(Profile::Quick, &[3])).check();
}

/// Takes minutes: `cargo test --release --test near_and_far -- --ignored --nocapture`.
#[test]
#[ignore = "the full profile takes minutes"]
fn full() {
    run(TwoHosts, all_cases(), &Plan::from_environment(Profile::Full)).check();
}
