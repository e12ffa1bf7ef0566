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
