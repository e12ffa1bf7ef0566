//! Whom endpoints have to do with from their start to their end, and how many messages that takes.

use crate::fake::{Faults, Network};
use am_core::{Endpoint, Handlers, PeerStatus, Rank, Shape};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

/// Messages and partners of the endpoint that has most of each, in a job that attaches and finishes.
fn most(ranks: u32) -> (u32, usize) {
    let faults = Faults { several: true, linger: 60_000, ..Faults::none(1) };
    let (network, conduits) = Network::with_conduits(Shape::new(ranks), 2, (4, 1), 64, faults);
    std::thread::scope(|scope| {
        for conduit in conduits {
            let run = move || {
                let endpoint = Endpoint::attach(conduit, Handlers::<()>::new(), ()).expect("all attach");
                endpoint.finish().expect("all finish");
            };
            std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, run).expect("there is a thread");
        }
    });
    let largest = |of: &dyn Fn(u32) -> u32| (0..ranks).map(of).max().unwrap_or(0);
    (largest(&|peer| network.sent(peer)), largest(&|peer| network.partners(peer) as u32) as usize)
}

#[test]
fn who_finishes_tells_whom_it_has_met() {
    let (_, partners) = most(32);
    // Those of a barrier: one and one for each doubling, of which the last two are the same.
    assert_eq!(partners, 9);
}

/// Others may send to it for the first time, and some providers do not stand that once it has ended.
#[test]
fn who_leaves_alone_tells_all() {
    let faults = Faults { several: true, linger: 60_000, ..Faults::none(1) };
    let (network, conduits) = Network::with_conduits(Shape::new(16), 2, (4, 1), 64, faults);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (rank, conduit) in (0..).zip(conduits) {
            let over = &over;
            scope.spawn(move || {
                let mut endpoint = Endpoint::attach(conduit, Handlers::<()>::new(), ()).expect("all attach");
                if rank == 0 {
                    endpoint.leave();
                    return over.store(true, SeqCst);
                }
                while !over.load(SeqCst) || endpoint.status(Rank(0)) == Some(PeerStatus::Active) {
                    endpoint.poll().expect("nobody is lost");
                    std::thread::yield_now();
                }
                assert_eq!(endpoint.status(Rank(0)), Some(PeerStatus::Finished));
                endpoint.leave();
            });
        }
    });
    assert_eq!(network.partners(0), 15);
}

/// `cargo test -p active-messages-ofi --test it -- --ignored --nocapture full_messages_of_an_empty_job`;
/// `AM_TEST_RANKS=512` for other ranks than 64.
#[test]
#[ignore = "prints figures"]
fn full_messages_of_an_empty_job() {
    let ranks = std::env::var("AM_TEST_RANKS").map_or(64, |text| text.parse().expect("a number of ranks"));
    let (messages, partners) = most(ranks);
    println!("{ranks} ranks attach and finish: at most {messages} messages and {partners} partners each");
}
