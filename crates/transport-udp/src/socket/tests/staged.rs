//! Messages that are accepted without the lock: in order, with the same refusals, and never left behind.

use super::*;
use am_core::Payload;
use am_core::transport::{Arrival, Body, Departure, Membership, ReplyPath, Resource, Sink, Transport, Waiting};

const HEAD: RequestHeader = RequestHeader::new(0, ReplyBound::None);

/// A Short message without a reply.
fn short(transport: &mut Udp, number: u32) -> Result<(), Refused> {
    transport.send(Peer(1), HEAD, &words(number), Body::None)
}

fn words(number: u32) -> Words {
    Words::from_slice(&[number]).unwrap()
}

/// What has come, in order.
#[derive(Default)]
struct Told(Vec<u32>);

impl Sink for Told {
    fn request(&mut self, arrival: Arrival<'_>, _: &mut dyn ReplyPath) {
        self.0.push(arrival.args.word(0).unwrap());
    }

    fn reply(&mut self, _: Arrival<'_>) {
        panic!("nobody asks");
    }

    fn control(&mut self, _: Peer, args: &Words, _: Payload<'_>) {
        self.0.push(args.word(0).unwrap());
    }
}

/// Two endpoints with an open session. Without helpers, nothing happens unless they are asked to.
fn connected(helper: bool) -> [Udp; 2] {
    let mut config = UdpConfig::new([]);
    (config.helper, config.linger) = (helper, Duration::from_millis(20));
    let job = LocalJob::with(2, LocalOptions::default().segment_bytes(4096), config).unwrap();
    let mut both = [0, 1].map(|rank| job.join(rank).unwrap());
    while (0..2).any(|me| !both[me].machine(|machine| machine.is_connected(Peer(1 - me as u32)))) {
        for transport in &mut both {
            transport.poll(1, &mut Told::default());
        }
    }
    both
}

/// Bytes that have been staged so far.
fn staged(transport: &Udp) -> u64 {
    transport.driver().shared().ring.tail()
}

#[test]
fn order_holds_among_all_kinds() {
    let [mut from, mut to] = connected(false);
    let mut number = 0;
    let mut flood = |from: &mut Udp| {
        let before = staged(from);
        (0..5).for_each(|_| {
            short(from, number).unwrap();
            number += 1;
        });
        assert!(staged(from) > before, "a row of them is staged");
        number += 1;
        number - 1
    };
    let number = flood(&mut from);
    from.send(Peer(1), HEAD, &words(number), Body::Copy(&[1; 100])).unwrap();
    let number = flood(&mut from);
    from.send(Peer(1), HEAD, &words(number), Body::Place(&[2; 1000], 8)).unwrap();
    let number = flood(&mut from);
    from.control(Peer(1), &words(number), &[]).unwrap();
    let number = flood(&mut from);
    from.reserve(Peer(1), HEAD, &words(number), 10).unwrap();
    am_core::transport::Slot::commit(from.slot(Peer(1), HEAD, &words(number), 10, ()));
    let last = flood(&mut from);
    from.depart(Departure::Left);
    let mut told = Told::default();
    while to.status(Peer(0)) == PeerStatus::Active {
        to.poll(100, &mut told);
        from.driver_mut().take_in();
    }
    assert_eq!(told.0, (0..last).collect::<Vec<_>>());
}

#[test]
fn the_helper_takes_them_while_the_program_computes() {
    let [mut from, mut to] = connected(true);
    (0..9).for_each(|number| short(&mut from, number).unwrap());
    assert!(staged(&from) > 0);
    let (limit, mut told) = (std::time::Instant::now() + Duration::from_secs(60), Told::default());
    while told.0.len() < 9 {
        assert!(std::time::Instant::now() < limit, "{:?}", told.0);
        to.poll(100, &mut told);
    }
    assert_eq!(told.0, (0..9).collect::<Vec<_>>());
}

#[test]
fn what_a_lost_peer_was_to_get_is_dropped() {
    let [mut from, _to] = connected(false);
    from.flush();
    (0..2).for_each(|number| short(&mut from, number).unwrap());
    let shared = Arc::clone(from.driver().shared());
    {
        // A helper finds out while the program sends.
        let mut engine = shared.engine();
        let accepted = engine.machine.accepted_bytes();
        short(&mut from, 2).unwrap();
        engine.machine.declare(Instant(0), Peer(1), PeerStatus::Lost(LossCause::Died));
        drop(engine);
        assert_eq!(shared.engine().machine.accepted_bytes(), accepted, "nobody takes it");
    }
    from.poll(1, &mut Told::default());
    assert_eq!(short(&mut from, 3), Err(Refused::Gone(PeerStatus::Lost(LossCause::Died))));
}

/// As many are accepted as the machine alone would accept.
#[test]
fn the_end_of_the_room_is_a_refusal() {
    let [mut from, to] = connected(false);
    let queue = from.machine(|machine| machine.config().send_queue);
    let before = u64::from(queue) - from.credits(Peer(1)).request_bytes;
    let mut accepted = 0;
    let refused = loop {
        match short(&mut from, accepted) {
            Ok(()) => accepted += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, Refused::Busy(Resource::RequestBytes));
    // Each takes 7 bytes, and the last needs room for the longest header.
    let (mut queued, mut expected) = (before, 0);
    while queued + 94 <= queue.into() {
        (queued, expected) = (queued + 7, expected + 1);
    }
    assert_eq!((accepted, u64::from(queue) - from.credits(Peer(1)).request_bytes), (expected, queued));
    drop(to);
}

/// What all peers share may end before the room towards one.
#[test]
fn the_end_of_the_shared_room_is_a_refusal() {
    let mut config = UdpConfig::new([]);
    (config.helper, config.linger) = (false, Duration::from_millis(20));
    config.protocol.send_budget = config.protocol.send_queue;
    let job = LocalJob::with(3, LocalOptions::default().segment_bytes(4096), config).unwrap();
    let mut all = [0, 1, 2].map(|rank| job.join(rank).unwrap());
    while ![1, 2].iter().all(|peer| all[0].machine(|machine| machine.is_connected(Peer(*peer)))) {
        all.iter_mut().for_each(|transport| _ = transport.poll(1, &mut Told::default()));
    }
    let [from, ..] = &mut all;
    from.send(Peer(2), HEAD, &words(0), Body::Copy(&[1; 1000])).unwrap();
    let used = staged(from);
    let refused = (0..).find_map(|number| short(from, number).err()).unwrap();
    assert_eq!(refused, Refused::Busy(Resource::Interface));
    assert!(staged(from) > used);
    let budget = u64::from(from.machine(|machine| machine.config().send_budget));
    let left = budget - from.machine(Machine::accepted_bytes);
    assert!(left < 94 && left + 7 >= 94, "{left} bytes are left");
}

/// A new session of the peer gets nothing that the old one had accepted.
#[test]
fn a_later_session_gets_none_of_them() {
    let [mut from, _to] = connected(false);
    from.flush();
    let shared = Arc::clone(from.driver().shared());
    let (session, room) = from.machine(|machine| machine.room_to_stage(Peer(1))).unwrap();
    assert!(room > 1000);
    let mut engine = shared.engine();
    let accepted = engine.machine.accepted_bytes();
    let bytes = crate::proto::encoded(0, &words(1));
    engine.machine.append_staged(Peer(1), session ^ 1, &bytes);
    assert_eq!(engine.machine.accepted_bytes(), accepted);
    engine.machine.append_staged(Peer(1), session, &bytes);
    assert_eq!(engine.machine.accepted_bytes(), accepted + bytes.len() as u64);
}

/// A program that has left the endpoint to its helper, and stages messages without looking after it again.
#[test]
fn the_helper_is_told_of_them() {
    let [mut from, mut to] = connected(true);
    while from.notify(Waker::noop()) != Notify::Armed {}
    (0..9).for_each(|number| short(&mut from, number).unwrap());
    assert!(staged(&from) > 0);
    let (limit, mut told) = (std::time::Instant::now() + Duration::from_secs(60), Told::default());
    while told.0.len() < 9 {
        assert!(std::time::Instant::now() < limit, "{:?}", told.0);
        to.poll(100, &mut told);
    }
}

/// A helper that panics while messages are staged: the program's next message is an error, and nobody gets them.
#[test]
fn a_broken_endpoint_stages_nothing() {
    let [mut from, _to] = connected(true);
    (0..3).for_each(|number| short(&mut from, number).unwrap());
    break_helper(&Arc::clone(from.driver().shared()));
    let before = staged(&from);
    assert_eq!(short(&mut from, 3), Err(Refused::Gone(PeerStatus::Lost(LossCause::Broken))));
    assert_eq!(staged(&from), before);
    assert!(!from.driver().look(Machine::has_ready));
}
