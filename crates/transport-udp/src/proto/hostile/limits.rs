//! Frames and keys just beyond what an honest peer sends.

use super::*;
use crate::proto::recovery::MAX_CARRIED;
use crate::proto::wire::{HELLO, HELLO_BODY, Hello, KIND_HELLO};
use am_core::transport::Departure;

impl Duel {
    /// Forges a datagram of these frames.
    fn say_all(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let (mut datagram, mut body) = (vec![0; DATAGRAM], 0);
        for frame in frames {
            datagram[HEADER + body..HEADER + body + frame.len()].copy_from_slice(&frame);
            body += frame.len();
        }
        self.deliver(&mut datagram, body);
    }

    fn is_faulty(&self) -> bool {
        match self.victim.status(INSIDER) {
            PeerStatus::Active => false,
            PeerStatus::Lost(LossCause::Faulty) => true,
            other => panic!("{other:?}"),
        }
    }
}

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 400];
    let mut writer = Writer::new(&mut bytes);
    frame.encode(&mut writer).unwrap();
    let len = writer.len();
    bytes.truncate(len);
    bytes
}

fn met(seed: u64) -> Duel {
    let mut duel = Duel::new(seed, Protection::Encrypted);
    duel.connect();
    duel
}

#[test]
fn farewells_of_no_kind_are_faults() {
    for (how, after) in [(3, None), (255, None), (1, Some((2, 3))), (1, Some((2, 255)))] {
        let mut duel = met(1);
        duel.say_all([bytes(&Frame::Leave(Leave { how, after, ..Leave::default() }))]);
        assert!(duel.is_faulty(), "{how} {after:?}");
        duel.end();
    }
}

/// An acknowledgement may cost as much as is in flight, and so a datagram that is full of them what a stranger's
/// never does.
#[test]
fn no_more_frames_than_a_sender_makes() {
    let mut ack = vec![0; 40];
    let mut writer = Writer::new(&mut ack);
    let mut ranges = AckRanges::EMPTY;
    ranges.push(0, 0);
    encode_ack(&mut writer, 0, ranges.iter()).unwrap();
    let len = writer.len();
    ack.truncate(len);
    let want = bytes(&Frame::Want(5));
    for (acks, wants, faulty) in
        [(1, MAX_CARRIED, false), (2, 0, true), (0, MAX_CARRIED + 1, true), (1, MAX_CARRIED + 1, true)]
    {
        let mut duel = met(2);
        let frames = std::iter::repeat_n(&ack, acks).chain(std::iter::repeat_n(&want, wants));
        duel.say_all(frames.cloned());
        assert_eq!(duel.is_faulty(), faulty, "{acks} acknowledgements and {wants} others");
        duel.end();
    }
}

#[test]
fn what_comes_after_a_farewell_is_neither_kept_nor_placed() {
    let mut duel = met(3);
    let before = duel.victim.shared.segment.view(0, 16).unwrap().to_vec();
    duel.say_all([bytes(&Frame::Leave(Leave { how: Departure::Left as u8, ..Leave::default() }))]);
    duel.serve(VICTIM, 4);
    assert_eq!(duel.victim.status(INSIDER), PeerStatus::Lost(LossCause::Left));
    let used = duel.victim.buffer_bytes_used();
    for stream in 0..4 {
        let frame = bytes(&Frame::Stream { stream, offset: 0, at: 0, data: &[9; 16] });
        duel.say_all([frame]);
    }
    assert_eq!(duel.victim.buffer_bytes_used(), used);
    assert_eq!(duel.victim.shared.segment.view(0, 16).unwrap().to_vec(), before);
    // All of it is acknowledged, so that an honest peer comes to its end.
    assert!(duel.victim.session(INSIDER).unwrap().ack_pending >= 4);
    duel.end();
}

/// A peer that says that it has sent replies which it cannot have sent would be waited for as long as it lives.
#[test]
fn replies_that_there_was_no_room_for_are_a_fault() {
    for beyond in [0, 1, 1 << 60] {
        let mut duel = met(4);
        let head = RequestHeader::new(1, ReplyBound::UpTo(100));
        duel.victim.request(duel.now, INSIDER, head, &Words::EMPTY, None).unwrap();
        duel.carry(0);
        let session = duel.victim.session(INSIDER).unwrap();
        let most = session.traffic.incoming[1].fifo.start() + session.set_aside;
        let credit = Credit { replies: most + beyond, ..session.told };
        duel.say_all([bytes(&Frame::Credit(credit))]);
        assert_eq!(duel.is_faulty(), beyond > 0, "{beyond} bytes");
        duel.end();
    }
}

/// What the insider's Hellos say instead of its public key; how the victim sees the insider then.
fn met_with_key(key: impl Fn(&Duel) -> [u8; 32]) -> (PeerStatus, bool) {
    let mut duel = Duel::new(5, Protection::Encrypted);
    let key = key(&duel);
    let mut buffer = vec![0; DATAGRAM];
    for _ in 0..20 {
        duel.insider.connect(duel.now, VICTIM);
        while let Some((_, len)) = duel.insider.transmit(duel.now, &mut buffer) {
            let mut datagram = buffer[..len].to_vec();
            if datagram[0] == KIND_HELLO {
                let mut hello = Hello::parse(&datagram).unwrap();
                hello.public = key;
                let body: [u8; HELLO_BODY] = hello.encode();
                let signed: [u8; HELLO] = duel.insider.keyring.sign_hello(&body);
                datagram = signed.to_vec();
            }
            let _ = duel.victim.handle(duel.now, &mut datagram);
        }
        while let Some((to, len)) = duel.victim.transmit(duel.now, &mut buffer) {
            if to == INSIDER {
                let _ = duel.insider.handle(duel.now, &mut buffer[..len]);
            }
        }
        duel.now = duel.now + Span::from_millis(30);
        duel.insider.tick(duel.now);
        duel.victim.tick(duel.now);
    }
    (duel.victim.status(INSIDER), duel.victim.is_connected(INSIDER))
}

/// With such keys who knows the job's secret could read the session later.
#[test]
fn keys_that_no_honest_peer_has_are_refused() {
    let mut one = [0; 32];
    one[0] = 1;
    let faulty = (PeerStatus::Lost(LossCause::Faulty), false);
    assert_eq!(met_with_key(|_| [0; 32]), faulty);
    assert_eq!(met_with_key(|_| one), faulty);
    assert_eq!(met_with_key(|duel| duel.victim.keyring.public()), faulty, "its own one, reflected");
    assert_eq!(met_with_key(|duel| duel.insider.keyring.public()), (PeerStatus::Active, true));
}
