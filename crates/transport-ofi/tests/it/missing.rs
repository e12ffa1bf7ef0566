//! Ranks that have ended before the others met.

use am_core::transport::{Body, Refused, ReplyBound, RequestHeader};
use am_core::{
    Address, Endpoint, Handlers, LossCause, Membership, Peer, PeerStatus, Rank, Shape, Transport, Words,
};
use transport_ofi::{OfiConfig, OfiError, Opened};

fn open() -> Result<Opened, OfiError> {
    Opened::new(&OfiConfig::default().provider("tcp").interface("127.0.0.1"), 3, 4096)
}

/// The third is lost from the start: nothing is sent to no address.
#[test]
fn nothing_is_sent_to_nobody() {
    let opened = match open() {
        Ok(opened) => opened,
        Err(error) => return crate::skip("missing ranks", "tcp", &error),
    };
    let other = open().unwrap();
    let (card, second) = (opened.card(), other.card());
    let cards = [Some(&*card), Some(&*second), None];
    let mut conduit = opened.join(Address::new(Rank(0), 0), Shape::new(3), 7, &cards).unwrap();
    assert_eq!(conduit.status(Peer(2)), PeerStatus::Lost(LossCause::Died));
    let head = RequestHeader::new(0, ReplyBound::None);
    for body in [Body::None, Body::Copy(&[7; 200])] {
        let sent = conduit.send(Peer(2), head, &Words::EMPTY, body);
        assert!(matches!(sent, Err(Refused::Gone(_))), "{sent:?}");
    }
}

/// The wire itself refuses it, too.
#[test]
fn the_wire_has_no_such_address() {
    use transport_ofi::wire::{Fault, Wire};
    let opened = match open() {
        Ok(opened) => opened,
        Err(error) => return crate::skip("missing ranks", "tcp", &error),
    };
    let card = opened.card();
    let mut wire = opened.into_wire(&[Some(&card), None, None]).unwrap();
    let refused = Err(Fault::Failed(libc::EHOSTUNREACH));
    assert_eq!(wire.send(1, 0, 8), refused);
    assert_eq!(wire.inject(1, 0, 8), refused);
    assert_eq!(wire.write(1, 0, 8, 0), refused);
    assert_eq!(wire.read(2, 0, 8, 0), refused);
}

#[test]
fn the_others_attach() {
    let Ok(opened) = (0..2).map(|_| open()).collect::<Result<Vec<_>, _>>() else { return };
    let cards: Vec<String> = opened.iter().map(Opened::card).collect();
    std::thread::scope(|scope| {
        for (rank, opened) in (0..).zip(opened) {
            let cards = [Some(&*cards[0]), Some(&*cards[1]), None];
            scope.spawn(move || {
                let conduit = opened.join(Address::new(Rank(rank), 0), Shape::new(3), 7, &cards).unwrap();
                // It may be an error that names the third, or an endpoint that knows of it.
                if let Ok(endpoint) = Endpoint::attach(conduit, Handlers::<()>::new(), ()) {
                    assert_ne!(endpoint.status(Rank(2)), Some(PeerStatus::Active));
                    endpoint.leave();
                }
            });
        }
    });
}
