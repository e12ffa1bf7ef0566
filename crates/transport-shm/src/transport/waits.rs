//! How long an endpoint spins does not depend on waits that are over.

use super::*;
use crate::JobConfig;
use am_core::transport::ReplyBound;

/// Waits in vain until the next thing to do is to sleep.
fn wait_long(endpoint: &mut Shm) {
    while endpoint.backoff.next() != Next::Park {}
}

#[test]
fn a_wait_begins_with_spinning() {
    let job = Job::create(&JobConfig::new(2)).expect("memory is there");
    let mut endpoint = job.join(0).expect("it is free");
    wait_long(&mut endpoint);
    assert!(endpoint.is_quiescent());
    assert_eq!(endpoint.backoff.next(), Next::Spin, "all requests have been handled");
    wait_long(&mut endpoint);
    let head = RequestHeader::new(0, ReplyBound::None);
    for _ in 0..2 {
        endpoint.short(Peer(1), head, &Words::EMPTY).expect("there is room");
        assert_eq!(endpoint.backoff.next(), Next::Spin, "what is waited for now was sent just now");
        wait_long(&mut endpoint);
    }
}
