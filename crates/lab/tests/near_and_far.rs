//! The conformance suite over several transports in one job: shared memory and UDP, where even ranks play one host
//! and odd ranks another; and, with the feature `ofi`, libfabric between them for some pairs.

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

/// Shared memory, libfabric and UDP, each for some pairs of ranks.
#[cfg(feature = "ofi")]
mod three {
    use super::*;
    use active_messages::ofi::{Ofi, OfiConfig, Opened, choose};
    use std::io::Write as _;

    /// Makes jobs whose ranks are threads, in pairs on two imagined hosts; even ranks are on one fabric, odd ones
    /// on another.
    struct TwoFabrics;

    /// An endpoint before it joins the others.
    struct Seat {
        near: Shm,
        fabric: Opened<ShmMemory>,
        socket: UdpSocket,
    }

    struct Seats {
        // Kept for as long as the memory is used.
        _shm: Vec<Option<Job>>,
        udp: UdpConfig,
        peers: Arc<Peers>,
        cards: Vec<String>,
        seats: Mutex<Vec<Option<Seat>>>,
    }

    fn host(rank: u32) -> usize {
        (rank % 4 / 2) as usize
    }

    fn mates(ranks: u32, of: impl Fn(u32) -> bool) -> Vec<Rank> {
        (0..ranks).filter(|rank| of(*rank)).map(Rank).collect()
    }

    fn place(mates: &[Rank], rank: Rank) -> u32 {
        mates.binary_search(&rank).expect("a rank is its own mate") as u32
    }

    impl Fabric for TwoFabrics {
        type Transport = Select<Shm, Select<Ofi<ShmMemory>, Udp<ShmMemory>>>;
        type Job = Seats;

        fn name(&self) -> String {
            "shared memory, libfabric over tcp and UDP in one job".into()
        }

        fn create(&self, ranks: u32, needs: &Needs) -> Seats {
            let Needs { buffers, endpoints, .. } = *needs;
            let shape = Shape { ranks, endpoints };
            let (mut udp, fabric) = match buffers {
                Buffers::Default => (UdpConfig::new([7; 32]), OfiConfig::default()),
                Buffers::Smallest => (UdpConfig::smallest([7; 32]), OfiConfig::smallest()),
            };
            udp.protocol.silence = Span::from_secs(8);
            let fabric = fabric.provider("tcp").interface("127.0.0.1");
            let shm: Vec<Option<Job>> = [0, 1]
                .map(|which| {
                    let here = mates(ranks, |rank| host(rank) == which).len() as u32;
                    let config = match buffers {
                        Buffers::Default => JobConfig::new(here),
                        Buffers::Smallest => JobConfig::smallest(here),
                    };
                    (here > 0).then(|| {
                        Job::create(&config.endpoints(endpoints)).expect("there is memory for a small job")
                    })
                })
                .into();
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let (mut seats, mut cards, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
            for rank in 0..ranks {
                let here = mates(ranks, |other| host(other) == host(rank));
                let memory = shm[host(rank)].as_ref().expect("the rank's host has ranks");
                for endpoint in 0..endpoints {
                    let options = JoinOptions::default().segment_bytes(SEGMENT).endpoint(endpoint);
                    let near =
                        memory.join_with(place(&here, Rank(rank)), options).expect("every endpoint joins once");
                    let opened = Opened::with_segment(&fabric, shape.peers(), near.segment().clone());
                    let fabric = opened.expect("the provider opens endpoints");
                    let socket = bind(any).expect("loopback has free ports");
                    addresses.push(socket.local_addr().expect("bound"));
                    cards.push(fabric.card());
                    seats.push(Some(Seat { near, fabric, socket }));
                }
            }
            let peers = Peers::new(shape, addresses, vec![SEGMENT as u64; ranks as usize]).expect("all differ");
            Seats { _shm: shm, udp, peers: Arc::new(peers), cards, seats: Mutex::new(seats) }
        }

        fn join(&self, job: &Seats, rank: Rank) -> Vec<Self::Transport> {
            let Shape { ranks, endpoints } = job.peers.shape();
            let here = mates(ranks, |other| host(other) == host(rank.0));
            let reached = mates(ranks, |other| other % 2 == rank.0 % 2);
            let cards: Vec<Option<&str>> = reached
                .iter()
                .flat_map(|mate| &job.cards[mate.0 as usize * usize::from(endpoints)..][..usize::from(endpoints)])
                .map(|card| Some(card.as_str()))
                .collect();
            let join = |endpoint| {
                let me = Address::new(rank, endpoint);
                let index = job.peers.shape().peer(me).expect("the job has this endpoint").index();
                let Seat { near, fabric, socket } = job.seats.lock().unwrap()[index].take().expect("joins once");
                let segment = near.segment().clone();
                let shape = Shape { ranks: reached.len() as u32, endpoints };
                let inner = Address::new(Rank(place(&reached, rank)), endpoint);
                let fabric = fabric.join(inner, shape, 7, &cards).expect("its own cards");
                let udp = Udp::join_with_segment(&job.udp, &job.peers, me, socket, segment);
                let far = Select::both(fabric, udp.expect("the socket is bound"), &reached, |_| true);
                Select::both(near, far.expect("both are of the same endpoint"), &here, |_| true)
                    .expect("both are of the same endpoint")
            };
            (0..endpoints).map(join).collect()
        }

        fn at_once(&self) -> usize {
            4
        }
    }

    fn check(plan: &Plan, which: impl Fn(usize) -> bool) {
        if let Err(error) = choose(&OfiConfig::default().provider("tcp").interface("127.0.0.1")) {
            // Past the test runner, which shows nothing of tests that pass.
            if let Ok(mut out) = std::fs::OpenOptions::new().append(true).open("/dev/stderr") {
                let _ = out.write_all(format!("SKIPPED: three transports in one job: {error}\n").as_bytes());
            }
            return;
        }
        let cases = all_cases().into_iter().enumerate().filter(|(number, _)| which(*number));
        run(TwoFabrics, cases.map(|(_, case)| case).collect(), plan).check();
    }

    /// A third of the cases: each transport plays all of them elsewhere.
    #[test]
    fn quick() {
        // Two share memory, two a fabric, two neither.
        check(&Plan::with_ranks(Profile::Quick, &[3]), |number| number % 3 == 0);
    }

    /// Takes minutes: `cargo test --release -p lab --features ofi --test near_and_far -- --ignored three`.
    #[test]
    #[ignore = "the full profile takes minutes"]
    fn full() {
        check(&Plan::with_ranks(Profile::Full, &[3, 5, 8]), |_| true);
    }
}
