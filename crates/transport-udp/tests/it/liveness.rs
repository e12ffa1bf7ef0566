//! Death, partition, departure, idleness, path size, congestion, and many peers.

use crate::common::World;
use am_core::arguments::Words;
use am_core::transport::{Departure, LossCause, PeerStatus, Refused, ReplyBound, RequestHeader};
use am_core::{Instant, Peer, Resource, Span};
use transport_udp::proto::{Dropped, Event};

fn one(world: &mut World, from: u32, to: u32) {
    let (from, to) = (Peer(from), Peer(to));
    world.run(Span::from_secs(60), |world| world.send(from, to, 100).is_ok());
    world.run(Span::from_secs(60), World::complete);
}

fn rest(world: &mut World, span: Span) {
    let until = world.net.now() + span;
    while world.step(until) {}
}

#[test]
fn a_dead_rank_is_named_in_time_and_the_others_go_on() {
    let mut world = World::new(1, 3, |config| config.silence = Span::from_secs(2));
    one(&mut world, 0, 1);
    one(&mut world, 2, 1);
    one(&mut world, 0, 2);
    world.net.replace(Peer(1), None);
    let died = world.net.now();
    world.run(Span::from_secs(10), |world| world.lost(0, 1).is_some() && world.lost(2, 1).is_some());
    let took = world.net.now().since(died);
    assert!(took <= Span::from_millis(2600), "{took}");
    assert_eq!(world.lost(0, 1), Some(LossCause::Silent));
    assert!(matches!(world.send(Peer(0), Peer(1), 0), Err(Refused::Gone(_))));
    world.apps[0].sent[1] = 0;
    world.apps[2].sent[1] = 0;
    world.apps[1].expected = vec![0; 3];
    one(&mut world, 0, 2);
    assert_eq!(world.machine(0).buffer_bytes_used(), 0);
}

#[test]
fn time_in_which_a_rank_was_stopped_is_nobodys_silence() {
    let mut world = World::new(8, 2, |_| {});
    one(&mut world, 0, 1);
    rest(&mut world, Span::from_millis(100));
    let later = world.net.now() + Span::from_secs(60);
    let machine = world.machine(0);
    machine.tick(later);
    assert_eq!(machine.status(Peer(1)), PeerStatus::Active);
    // A peer that stays away is still found out.
    let (mut now, mut buffer) = (later, vec![0; 2000]);
    while machine.status(Peer(1)) == PeerStatus::Active {
        while machine.transmit(now, &mut buffer).is_some() {}
        now = machine.deadline().unwrap();
        machine.tick(now);
        assert!(now.since(later) < Span::from_secs(11));
    }
    assert_eq!(machine.status(Peer(1)), PeerStatus::Lost(LossCause::Silent));
}

/// Rank 1 falls silent after one message, except for what `say` makes every 2.5 seconds; returns what rank 0
/// thinks of it a minute later, and what it made of the last datagram.
fn after_a_minute(
    world: &mut World,
    mut say: impl FnMut() -> Option<Vec<u8>>,
) -> (PeerStatus, Option<Result<Peer, Dropped>>) {
    let (mut now, mut buffer) = (world.net.now(), vec![0; 2000]);
    let (end, mut next, mut last) = (now + Span::from_secs(60), now + Span::from_millis(2500), None);
    let machine = world.machine(0);
    while machine.status(Peer(1)) == PeerStatus::Active && now < end {
        while machine.transmit(now, &mut buffer).is_some() {}
        now = machine.deadline().unwrap().min(next);
        if now == next {
            next = now + Span::from_millis(2500);
            last = say().map(|mut datagram| machine.handle(now, &mut datagram)).or(last);
        }
        machine.tick(now);
    }
    (machine.status(Peer(1)), last)
}

/// The Hellos of a session are the same whenever they are sent, so anybody can repeat them.
#[test]
fn recorded_hellos_keep_nobody_alive() {
    for open in [0, 2] {
        let mut world = World::new(9, 2, |_| {});
        world.net.recording = Some(Vec::new());
        one(&mut world, 0, 1);
        rest(&mut world, Span::from_millis(100));
        let recording = world.net.recording.take().unwrap();
        let hello = recording.iter().rfind(|(to, bytes)| to.0 == 0 && bytes[0] == 0xA0 && bytes[2] & 2 == open);
        let (_, hello) = hello.expect("rank 1 has said so");
        let (status, last) = after_a_minute(&mut world, || Some(hello.clone()));
        assert_eq!((status, last), (PeerStatus::Lost(LossCause::Silent), Some(Ok(Peer(1)))), "flag {open}");
    }
}

/// What a rank said before it fell silent, held back and let go bit by bit, is no sign of life of today.
#[test]
fn withheld_datagrams_keep_nobody_alive() {
    let mut world = World::new(9, 2, |_| {});
    one(&mut world, 0, 1);
    one(&mut world, 1, 0);
    world.net.link(Peer(1), Peer(0)).down = true;
    world.net.recording = Some(Vec::new());
    for _ in 0..40 {
        let _ = world.send(Peer(1), Peer(0), 10);
        rest(&mut world, Span::from_millis(50));
    }
    let recording = world.net.recording.take().unwrap();
    let mut withheld: Vec<_> = recording
        .into_iter()
        .filter(|(to, bytes)| to.0 == 0 && bytes[0] == 0xA1)
        .map(|(_, bytes)| bytes)
        .collect();
    assert!(withheld.len() > 25, "{} datagrams last for a minute", withheld.len());
    withheld.reverse();
    let (status, last) = after_a_minute(&mut world, || withheld.pop());
    assert_eq!((status, last), (PeerStatus::Lost(LossCause::Silent), Some(Ok(Peer(1)))));
}

#[test]
fn a_cut_that_heals_in_time_costs_nothing_but_time() {
    let mut world = World::new(2, 2, |_| {});
    one(&mut world, 0, 1);
    world.net.each_link(|_, _, link| link.down = true);
    for _ in 0..50 {
        let _ = world.send(Peer(0), Peer(1), 2000);
    }
    rest(&mut world, Span::from_secs(8));
    assert!(!world.complete());
    world.net.each_link(|_, _, link| link.down = false);
    let healed = world.net.now();
    world.run(Span::from_secs(20), World::complete);
    assert!(world.net.now().since(healed) < Span::from_millis(1500), "probes go on at most a second apart");
    assert_eq!(world.machine(0).losses(), 0);
}

#[test]
fn idle_sessions_stay_alive_for_a_handful_of_datagrams() {
    let mut world = World::new(3, 2, |_| {});
    one(&mut world, 0, 1);
    rest(&mut world, Span::from_secs(1));
    let before = world.machine(0).counters().sent;
    rest(&mut world, Span::from_secs(100));
    let sent = world.machine(0).counters().sent - before;
    assert_eq!((world.machine(0).losses(), world.machine(1).losses()), (0, 0));
    assert!((20..=100).contains(&sent), "{sent} datagrams in 100 s");
}

#[test]
fn leaving_is_told_after_everything_else() {
    let mut world = World::new(4, 2, |_| {});
    world.net.each_link(|_, _, link| link.loss = 200);
    one(&mut world, 0, 1);
    for _ in 0..20 {
        let _ = world.send(Peer(0), Peer(1), 3000);
    }
    world.run(Span::from_secs(30), |world| world.apps[0].pushing.is_none());
    world.machine(0).depart(Departure::Finished);
    let departed = Event::Departed(Peer(0), Departure::Finished);
    world.run(Span::from_secs(30), |world| world.apps[1].events.contains(&departed));
    assert_eq!(world.machine(1).status(Peer(0)), PeerStatus::Finished);
    assert_eq!(world.apps[1].expected[0], world.apps[0].sent[1]);
    assert!(matches!(world.send(Peer(1), Peer(0), 0), Err(Refused::Gone(_))));
    world.run(Span::from_secs(30), |world| world.machine(0).settled());
    rest(&mut world, Span::from_secs(30));
    assert_eq!(world.machine(1).losses(), 0, "who has left may be silent");
}

#[test]
fn the_path_is_probed_and_a_narrower_one_noticed() {
    let mut world = World::new(5, 2, |config| config.datagram_limit = 8952);
    world.net.each_link(|_, _, link| link.largest = 4000);
    one(&mut world, 0, 1);
    rest(&mut world, Span::from_secs(20));
    let found = world.machine(0).datagram_size(Peer(1)).unwrap();
    assert!((3980..=4000).contains(&found), "{found}");
    world.net.each_link(|_, _, link| link.largest = 1300);
    for _ in 0..20 {
        let _ = world.send(Peer(0), Peer(1), 20_000);
    }
    world.run(Span::from_secs(30), World::complete);
    let found = world.machine(0).datagram_size(Peer(1)).unwrap();
    assert!((1200..=1300).contains(&found), "{found}");
    assert_eq!(world.machine(0).losses(), 0);
}

/// Bytes of one Long message through a link, and the time it took.
fn long(loss: u32, bytes: usize) -> Span {
    let mut world = World::new(6, 2, |_| {});
    world.net.each_link(|_, _, link| {
        link.loss = loss;
        link.delay = Span::from_micros(50);
        link.bandwidth = 100_000_000;
    });
    one(&mut world, 0, 1);
    let (now, began) = (world.net.now(), world.net.now());
    let head = RequestHeader::new(crate::common::SILENT, ReplyBound::None);
    let number = world.apps[0].sent[1];
    let args = Words::from_slice(&[number as u32, 0]).unwrap();
    world.machine(0).long(now, Peer(1), head, &args, bytes as u64, 0).unwrap();
    world.apps[0].sent[1] += 1;
    world.apps[0].pushing = Some((Peer(1), crate::common::pattern(Peer(0), number, bytes), 0));
    world.run(Span::from_secs(60), |world| world.apps[1].expected[0] == number + 1);
    world.net.now().since(began)
}

#[test]
fn random_loss_costs_little_throughput() {
    let bytes = crate::common::SEGMENT;
    let (clean, one, ten, thirty) = (long(0, bytes), long(10, bytes), long(100, bytes), long(300, bytes));
    let rate = |span: Span| bytes as f64 / span.as_secs_f64() / 1e6;
    let report = format!("{:.0} {:.0} {:.0} {:.0} MB/s", rate(clean), rate(one), rate(ten), rate(thirty));
    println!("{report}");
    assert!(rate(clean) > 60.0, "{report}");
    assert!(rate(one) > 0.6 * rate(clean), "{report}");
    assert!(rate(ten) > 2.0 && rate(thirty) > 0.2, "{report}");
}

#[test]
fn small_messages_share_datagrams() {
    let mut world = World::new(7, 2, |_| {});
    one(&mut world, 0, 1);
    let before = world.machine(0).counters().sent;
    let head = RequestHeader::new(crate::common::SILENT, ReplyBound::None);
    for _ in 0..2000 {
        let number = world.apps[0].sent[1];
        let args = Words::from_slice(&[number as u32, 0]).unwrap();
        world.machine(0).request(Instant(0), Peer(1), head, &args, None).unwrap();
        world.apps[0].sent[1] += 1;
    }
    // Whatever they were meant to be, these requests have no replies.
    world.run(Span::from_secs(10), |world| world.machine(0).quiet());
    let sent = world.machine(0).counters().sent - before;
    assert!(sent < 40, "{sent} datagrams for 2000 messages, {:?}", world.machine(0).counters());
}

#[test]
fn requests_wait_for_a_peer_that_does_not_poll() {
    let mut world = World::new(8, 2, |_| {});
    one(&mut world, 0, 1);
    let mut refused = None;
    let mut accepted = 0;
    let head = RequestHeader::new(crate::common::SILENT, ReplyBound::None);
    for _ in 0..3000 {
        let (now, number) = (world.net.now(), world.apps[0].sent[1]);
        let args = Words::from_slice(&[number as u32, 0]).unwrap();
        let payload = crate::common::pattern(Peer(0), number, 8000);
        match world.machine(0).request(now, Peer(1), head, &args, Some(&payload)) {
            Ok(()) => {
                world.apps[0].sent[1] += 1;
                accepted += 1;
            }
            Err(why) => refused = Some(why),
        }
        world.net.step(now + Span::from_millis(5));
    }
    assert_eq!(refused, Some(Refused::Busy(Resource::RequestBytes)));
    assert!(accepted * 8000 <= (8 << 20) + (256 << 10), "{accepted}");
    assert!(world.machine(1).buffer_bytes() <= (8 << 20) + 65536);
    world.run(Span::from_secs(20), |world| world.machine(0).quiet());
    assert_eq!(world.apps[1].expected[0], world.apps[0].sent[1]);
}

#[test]
fn many_peers_share_one_bounded_memory() {
    let ranks = 48;
    let mut world = World::new(10, ranks, |config| {
        // What 48 ranks get here is what 512 get by default.
        (config.receive_budget, config.send_queue, config.reply_window) = (800_000, 80_000, 80_000);
        (config.send_budget, config.reply_budget) = (400_000, 400_000);
    });
    let head = RequestHeader::new(crate::common::SILENT, ReplyBound::None);
    for round in 0..3 {
        for from in 1..ranks {
            let payload = crate::common::pattern(Peer(from), round, 60_000);
            let args = Words::from_slice(&[round as u32, 0]).unwrap();
            world.run(Span::from_secs(60), |world| {
                let now = world.net.now();
                let done = world.machine(from).request(now, Peer(0), head, &args, Some(&payload)).is_ok();
                if !done {
                    world.step(now + Span::from_millis(1));
                }
                done
            });
            world.apps[from as usize].sent[0] += 1;
        }
    }
    world.run(Span::from_secs(60), |world| (1..ranks as usize).all(|from| world.apps[0].expected[from] == 3));
    let loans = world.machine(0).counters().loans;
    assert!(loans > 40, "{loans} loans");
    assert!(world.peak <= 800_000 + 3 * 2048 * ranks as usize, "{} bytes", world.peak);
}

#[test]
fn a_poll_looks_behind_a_peer_that_has_only_left() {
    let mut world = World::new(9, 3, |_| {});
    one(&mut world, 1, 0);
    one(&mut world, 2, 0);
    rest(&mut world, Span::from_millis(10));
    // From here on nobody polls until both the farewell and, behind it, a message are there.
    world.machine(1).depart(Departure::Finished);
    let mut until = world.net.now() + Span::from_millis(10);
    while world.net.step(until) {}
    let (now, head) = (world.net.now(), RequestHeader::new(0, ReplyBound::None));
    let number = world.apps[2].sent[0];
    let args = crate::common::words(number);
    world.machine(2).request(now, Peer(0), head, &args, None).unwrap();
    until = now + Span::from_millis(10);
    while world.net.step(until) {}
    struct Count(u32);
    impl am_core::transport::Sink for Count {
        fn request(&mut self, _: am_core::transport::Arrival<'_>, _: &mut dyn am_core::transport::ReplyPath) {
            self.0 += 1;
        }
        fn reply(&mut self, _: am_core::transport::Arrival<'_>) {}
        fn control(&mut self, _: Peer, _: &Words, _: am_core::Payload<'_>) {}
    }
    let (now, mut count) = (world.net.now(), Count(0));
    assert_eq!(world.machine(0).poll(now, 256, &mut count), 1);
    assert_eq!((count.0, world.machine(0).status(Peer(1))), (1, PeerStatus::Finished));
}
