//! What peers are told of an endpoint that could not attach.

use am_core::loopback::{LoopbackConfig, network};
use am_core::transport::{LossCause, Membership, PeerStatus};
use am_core::{AttachError, Endpoint, Handlers, Peer, Span, WaitError};

/// Nobody else ever attaches, so that attaching fails at any time-out.
#[test]
fn failed_attach_is_no_finish() {
    let [failing, other] = network(2, LoopbackConfig::default()).try_into().expect("two ranks");
    let outcome = Endpoint::builder(failing).timeout(Some(Span::from_millis(1))).attach(Handlers::new(), ());
    assert!(matches!(outcome, Err(AttachError::Wait(WaitError::TimedOut(_)))), "{outcome:?}");
    assert_eq!(other.status(Peer(0)), PeerStatus::Lost(LossCause::Left));
}

/// Layers declare as much as they like: tables that differ are told even where nobody sends all of them.
#[test]
fn long_tables_that_differ_are_told() {
    for (different, index) in [(0, 0), (1199, 968)] {
        let mut ranks = network(2, LoopbackConfig::default()).into_iter();
        let mut attach = |of: &'static str| {
            let transport = ranks.next().expect("two ranks");
            move || {
                let mut handlers = Handlers::<()>::new();
                let mut layer = handlers.layer::<()>("layer").unwrap();
                let same = "as everywhere, at length ".repeat(10);
                for number in 0..1200 {
                    let what = if number == different { of } else { &same };
                    layer.declare(&format!("line {number:04}"), what).unwrap();
                }
                Endpoint::attach(transport, handlers, ()).unwrap_err()
            }
        };
        let (zero, one) = (attach("of zero"), attach("of one"));
        let told =
            std::thread::scope(|scope| [scope.spawn(zero), scope.spawn(one)].map(|rank| rank.join().unwrap()));
        for told in told {
            let AttachError::TablesDiffer { index: found, in_a, .. } = told else { panic!("{told}") };
            assert_eq!(found, index, "{in_a}");
            assert_eq!(in_a.contains("behind the first 256 KiB"), different != 0, "{in_a}");
        }
    }
}
