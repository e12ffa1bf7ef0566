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

/// Peers that always have something waiting are served in turn, however small the budget of a poll.
#[test]
fn no_peer_waits_for_others_to_be_done() {
    struct Sources([u32; 3]);
    impl Sink for Sources {
        fn request(&mut self, arrival: Arrival<'_>, _: &mut dyn ReplyPath) {
            self.0[arrival.from.index()] += 1;
        }
        fn reply(&mut self, _: Arrival<'_>) {}
        fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
        fn completed(&mut self, _: am_core::transport::Completion<'_>) {}
    }
    let job = Job::create(&JobConfig::new(3)).expect("memory is there");
    let [mut a, mut b, mut c] = [0, 1, 2].map(|rank| job.join(rank).expect("it is free"));
    for endpoint in [&mut a, &mut b] {
        for _ in 0..100 {
            let head = RequestHeader::new(0, ReplyBound::None);
            endpoint.short(Peer(2), head, &Words::EMPTY).expect("there is room");
        }
    }
    let mut sources = Sources([0; 3]);
    for _ in 0..20 {
        assert!(c.may_deliver());
        assert_eq!(c.poll(1, &mut sources), 1);
    }
    assert_eq!(sources.0, [10, 10, 0]);
}
