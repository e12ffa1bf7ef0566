//! Single courses of events that random programs seldom take.

use super::adverts::Cancel;
use super::control::Offer;
use super::model::{LINK, Packet, Play, SEGMENT};
use super::*;
use am_core::Payload;
use am_core::layer::Progress;
use am_core::transport::LentFault;
use std::ops::Range;

#[test]
fn a_receive_posted_during_a_revocation_gets_its_message() {
    let mut play = Play::pair(1 << 20);
    let first = play.post_one(3, 1000);
    play.settle();
    // The answer to the revocation is not here when the next receive is posted.
    assert_eq!(play.machines[1].cancel(first), Cancel::Asked);
    let second = play.post_one(3, 1000);
    play.settle();
    assert!(play.machines[1].is_cancelled(first) && !play.machines[1].is_received(second));
    let send = play.send_one(3, 500);
    play.settle();
    assert!(play.machines[1].is_received(second) && play.machines[0].is_sent(send));
    assert_eq!(play.machines[0].counts.receiver_initiated, 1);
}

#[test]
fn a_sender_without_credit_learns_of_each_taken() {
    // Room for four messages.
    let mut play = Play::pair(0);
    let sends = [0, 0, 0, 1, 2].map(|tag| play.send_one(tag, 1));
    play.settle();
    assert_eq!(play.machines[0].counts.stalled, 1);
    let taken = play.post_one(1, 1);
    let waiting = play.post_one(2, 1);
    play.settle();
    assert!(play.machines[1].is_received(taken) && play.machines[1].is_received(waiting));
    assert!(sends.into_iter().all(|send| play.machines[0].is_sent(send)));
}

#[test]
fn a_revocation_ends_with_its_sender() {
    let mut play = Play::pair(1 << 20);
    let first = play.post_one(3, 1000);
    let second = play.post_one(3, 1000);
    play.settle();
    assert_eq!(play.machines[1].cancel(first), Cancel::Asked);
    assert_eq!(play.machines[1].cancel(second), Cancel::Asked);
    assert!(play.machines[1].is_cancelling(first) && play.machines[1].is_cancelling(second));
    play.machines[1].lose(0, Some(LossCause::Died));
    for key in [first, second] {
        assert!(!play.machines[1].is_cancelling(key) && play.machines[1].is_received(key));
        let taken = play.machines[1].take_received(key).unwrap();
        assert_eq!(taken.failure, Some(Failure::Gone(Some(LossCause::Died))));
    }
}

#[test]
fn a_message_ends_the_wait_for_a_revocation() {
    let mut play = Play::pair(1 << 20);
    let receives = [play.post_one(3, 1000), play.post_one(3, 1000)];
    play.settle();
    // Both messages are under way when both receives are cancelled.
    let sends = [play.send_one(3, 5), play.send_one(3, 6)];
    play.advance(0);
    for key in receives {
        assert_eq!(play.machines[1].cancel(key), Cancel::Asked);
    }
    play.settle();
    for key in receives {
        assert!(!play.machines[1].is_cancelling(key) && play.machines[1].is_received(key));
        assert!(!play.machines[1].is_cancelled(key));
    }
    assert!(sends.iter().all(|send| play.machines[0].is_sent(*send)));
    // The next one is advertised, and can be cancelled.
    let third = play.post_one(3, 1000);
    play.settle();
    assert_eq!(play.machines[1].cancel(third), Cancel::Asked);
    play.settle();
    assert!(play.machines[1].is_cancelled(third));
}

/// Fills the link from rank 1 to rank 0, so that what follows is queued at rank 1.
fn fill_link(play: &mut Play) {
    while play.network.link(1, 0).len() < LINK {
        play.network.link(1, 0).push_back(Packet::Control(Control::Credit, Credit::default()));
    }
}

#[test]
fn advertisements_count_from_when_they_are_sent() {
    // Room for four messages, so that senders remember eight.
    let mut play = Play::pair(0);
    fill_link(&mut play);
    // Announcements wait before the advertisement, and bring fresh credit one by one.
    let back = Envelope { context: 0, tag: 9, sequence: 0, kind: BYTES };
    let announced: Vec<Key> =
        (0..4).map(|_| play.machines[1].begin(0, back, Mode::Standard, vec![1; 50])).collect();
    let stale = play.post_one(3, 1000);
    play.advance(1);
    assert_eq!(play.machines[1].counts.rtr, 0);
    play.send_one(3, 4);
    for _ in 0..4 {
        for _ in 0..3 {
            let receive = play.post_one(4, 10);
            play.send_one(4, 4);
            play.advance(0);
            while play.deliver(0, 1) {}
            assert!(play.machines[1].take_received(receive).is_some());
        }
        // One announcement gets through, with what has been taken by now.
        play.network.link(1, 0).pop_front();
        play.advance(1);
        let announcement = play.network.link(1, 0).pop_back().expect("there was room for one");
        play.network.link(1, 0).push_front(announcement);
        play.deliver(1, 0);
        fill_link(&mut play);
    }
    let taken = play.machines[1].take_received(stale).expect("the eager message was for it");
    play.machines[1].recycle(taken.bytes);
    play.settle();
    // The receive had its message before it was advertised, so that it never is.
    assert_eq!(play.machines[1].counts.rtr, 0);
    let late = play.send_one(3, 500);
    play.settle();
    let receive = play.machines[1].post(Selector { context: 0, source: 0, tag: 3 }, BYTES, u64::MAX);
    play.settle();
    assert!(play.machines[1].is_received(receive) && play.machines[0].is_sent(late));
    for _ in &announced {
        play.machines[0].post(Selector { context: 0, source: 1, tag: 9 }, BYTES, 100);
    }
    play.settle();
    assert!(announced.into_iter().all(|send| play.machines[1].is_sent(send)));
    assert_eq!([play.machines[0].counts.ignored, play.machines[1].counts.ignored], [0, 0]);
}

#[test]
fn lent_messages_follow_the_answer_to_a_revocation() {
    let mut play = Play::pair(1 << 20);
    let (first, second) = (play.post_one(3, 1000), play.post_one(3, 1000));
    play.settle();
    assert_eq!(play.machines[1].cancel(first), Cancel::Asked);
    play.advance(1);
    // The answer does not fit into the link at once.
    while play.network.link(0, 1).len() < LINK {
        play.network.link(0, 1).push_back(Packet::Control(Control::Credit, Credit::default()));
    }
    while play.deliver(1, 0) {}
    let envelope = Envelope { context: 0, tag: 3, sequence: 0, kind: BYTES };
    let lent = play.machines[0].begin_lent(1, envelope, Mode::Standard, 500, None);
    assert!(!play.machines[0].granted(lent), "the answer is sent first");
    play.advance(0);
    while play.deliver(0, 1) {}
    play.advance(0);
    assert!(play.machines[0].granted(lent));
    play.ranks[0].lent.push((lent, vec![7; 500]));
    play.settle();
    assert!(play.machines[1].is_cancelled(first) && play.machines[1].is_received(second));
    assert_eq!(play.machines[1].counts.ignored, 0);
}

#[test]
fn lengths_without_memory_are_refused() {
    let mut play = Play::pair(1 << 20);
    for len in [u64::MAX, 1 << 62, isize::MAX as u64 + 1] {
        let key = play.post_one(3, u64::MAX);
        let sequence = play.machines[1].counts.received as u32;
        let envelope = Envelope { context: 0, tag: 3, sequence, kind: BYTES };
        let offer = Offer { send: Key::from_u64(0), lent: None };
        let rts = Control::Rts { envelope, offer, len };
        play.machines[1].on_control(0, rts, Credit::default());
        let taken = play.machines[1].take_received(key).unwrap();
        assert_eq!((taken.failure, taken.info.len), (Some(Failure::NoMemory), len));
    }
}

#[test]
fn retirements_that_a_sender_has_not_looked_at_are_few() {
    let mut play = Play::pair_with(Protocol::ReceiverInitiated, 1 << 20);
    // Each receive is advertised before its eager message comes, and the sender looks at nothing meanwhile.
    let (mut receives, mut held) = (Vec::new(), VecDeque::new());
    for _ in 0..4 * adverts::ADVERTS {
        receives.push(play.post_one(3, 100));
        play.advance(1);
        play.send_one(3, 5);
        play.advance(0);
        while play.deliver(0, 1) {}
        // The link is as long as it has to be.
        held.append(play.network.link(1, 0));
    }
    let retired = |packet: &&Packet| matches!(packet, Packet::Control(Control::Retire { .. }, _));
    assert_eq!(held.iter().filter(retired).count() as u32, adverts::ADVERTS);
    play.network.link(1, 0).extend(held);
    while play.deliver(1, 0) {}
    assert_eq!(play.machines[0].gone(1), None, "the receiver is honest");
    play.settle();
    for key in receives {
        assert_eq!(play.machines[1].take_received(key).unwrap().failure, None);
    }
    // All of them have been answered, so that there is room for others.
    let more: Vec<_> = (0..adverts::ADVERTS / 2).map(|tag| play.post_one(10 + tag, 100)).collect();
    let before = play.machines[1].counts.rtr;
    play.settle();
    assert_eq!(play.machines[1].counts.rtr - before, u64::from(adverts::ADVERTS / 2));
    assert!(more.into_iter().all(|key| !play.machines[1].is_received(key)));
}

/// A network that fails.
struct Failing;

impl Wire for Failing {
    type Error = ();

    fn control(&mut self, _: u32, _: &Control, _: Credit) -> Result<(), Unsent<()>> {
        Err(Unsent::Failed(()))
    }

    fn eager(&mut self, _: u32, _: &Envelope, _: Credit, _: &[u8]) -> Result<(), Unsent<()>> {
        Err(Unsent::Failed(()))
    }

    fn part(&mut self, _: u32, _: &Part, _: &[u8], _: Option<u64>) -> Result<(), Unsent<()>> {
        Err(Unsent::Failed(()))
    }

    fn read(&mut self, _: u32, _: &Read) -> Result<(), Unsent<()>> {
        Err(Unsent::Failed(()))
    }

    fn read_lent(&mut self, _: u32, _: &Source, _: u64, _: &mut [u8]) -> Result<(), LentFault> {
        Err(LentFault::Failed)
    }

    fn read_own(&mut self, _: u64, _: &mut [u8]) {}

    fn maps(&self, _: u32) -> bool {
        false
    }

    fn copy_own(&mut self, _: Range<u64>, _: u32, _: u64) -> bool {
        false
    }

    fn longest_part(&self, _: u32, _: bool) -> u64 {
        100
    }

    fn longest_read(&self, _: u32, _: bool) -> u32 {
        100
    }
}

#[test]
fn what_cannot_be_sent_fails_once() {
    let mut play = Play::pair(1 << 20);
    let send = play.send_one(3, 500);
    play.settle();
    // A place that is no part of any segment.
    let cts = Control::Cts { send, receive: Key::from_u64(5), offset: Some(1 << 50), stays: false, copies: true };
    play.machines[0].on_control(1, cts, Credit::default());
    assert!(play.machines[0].advance(&mut Failing).is_err());
    assert_eq!(play.machines[0].take_sent(send), Some(Err(Failure::Gone(Some(LossCause::Faulty)))));
    assert_eq!(play.machines[0].advance(&mut Failing), Ok(Progress::Idle));
    // One that is behind all numbers does not get that far.
    let mut play = Play::pair(1 << 20);
    let send = play.send_one(3, 500);
    play.settle();
    let cts =
        Control::Cts { send, receive: Key::from_u64(5), offset: Some(u64::MAX - 1), stays: true, copies: true };
    play.machines[0].on_control(1, cts, Credit::default());
    assert_eq!(play.machines[0].take_sent(send), Some(Err(Failure::Gone(Some(LossCause::Faulty)))));
}

/// A request to read that its sender does not answer, or cannot, ends the message at both.
#[test]
fn a_read_without_an_answer_ends() {
    let lost = Failure::Gone(Some(LossCause::Faulty));
    let mut play = Play::pair_with(Protocol::Read, 1 << 20);
    let (send, receive) = (play.send_one(3, 500), play.post_one(3, 1000));
    play.advance(0);
    while !matches!(play.network.link(1, 0).front(), Some(Packet::Read(_))) {
        play.deliver(0, 1);
        play.advance(1);
    }
    // Of another rank, and of what is not read.
    let [sender, reader] = &mut play.machines[..] else { unreachable!() };
    reader.on_no_answer(2, receive);
    reader.on_no_answer(0, Key::from_u64(77));
    sender.on_bad_read(2, send);
    sender.on_bad_read(1, Key::from_u64(77));
    assert!(!sender.is_sent(send) && !reader.is_received(receive));
    sender.on_bad_read(1, send);
    reader.on_no_answer(0, receive);
    assert_eq!(sender.take_sent(send), Some(Err(lost)));
    assert_eq!(reader.take_received(receive).and_then(|taken| taken.failure), Some(lost));
}

/// What a lost rank has sent may come later than the news of its loss: no other message is put there.
#[test]
fn memory_that_a_lost_rank_may_write_is_withheld() {
    for protocol in [Protocol::Read, Protocol::SenderInitiated, Protocol::ReceiverInitiated] {
        let mut play = Play::pair_with(protocol, 1 << 20);
        let receive = play.post_one(3, 1000);
        let staged = |play: &Play| play.machines[1].receives.get(receive).and_then(|receive| receive.staged());
        while staged(&play).is_none() {
            play.advance(1);
            play.deliver(1, 0);
            if play.machines[0].sends.is_empty() {
                play.send_one(3, 500);
            }
            play.advance(0);
            play.deliver(0, 1);
        }
        let to = staged(&play).expect("it has some");
        // The sender is told of it.
        play.advance(1);
        play.machines[1].lose(0, Some(LossCause::Died));
        let taken = play.machines[1].take_received(receive).expect("it is over");
        taken.staged.into_iter().for_each(|block| play.machines[1].release(block));
        while let Some(block) = play.machines[1].staging.take(64) {
            assert!(block.offset + block.len <= to.offset || block.offset >= to.offset + to.len);
        }
    }
}

/// A receiver that does not see the sender's segment, which sees the receiver's, gets messages in parts.
#[test]
fn who_sees_less_than_its_peer_gets_messages() {
    for protocol in [Protocol::SenderInitiated, Protocol::ReceiverInitiated] {
        let mut play = Play::pair_with(protocol, 1 << 20);
        (play.network.maps, play.network.blind) = (true, Some(1));
        let receive = play.post_one(3, 1000);
        play.settle();
        let (envelope, at) =
            (Envelope { context: 0, tag: 3, sequence: 0, kind: BYTES }, play.network.lay(0, &[7; 900]));
        let send = play.machines[0].begin_placed((1, envelope, Mode::Standard), (at, 900), None);
        play.settle();
        assert_eq!(play.machines[0].take_sent(send), Some(Ok(())));
        let taken = play.machines[1].take_received(receive).expect("it has come");
        let at = taken.staged.expect("it was written").offset as usize;
        assert_eq!((taken.failure, &play.ranks[1].segment[at..][..900]), (None, &[7; 900][..]));
    }
}

#[test]
fn wildcards_hold_back_few_receives() {
    let mut play = Play::pair(1 << 20);
    play.machines[1].post(Selector { context: 0, source: ANY, tag: 1 }, BYTES, 10);
    for _ in 0..10_000 {
        let key = play.post_one(3, 1000);
        play.send_one(3, 5);
        play.settle();
        assert!(play.machines[1].take_received(key).is_some());
    }
    assert!(play.machines[1].contexts.iter().all(|context| context.deferred.len() < 100));
}

#[test]
fn a_blocking_call_that_unwound_takes_no_message() {
    let mut play = Play::pair(1 << 20);
    let selector = Selector { context: 0, source: 0, tag: 3 };
    for posts in [false, true] {
        assert!(play.machines[1].begin_direct(selector, BYTES, 10));
        if posts {
            play.machines[1].post_direct();
        }
        // The next call does not meet what the first was to receive.
        assert!(play.machines[1].begin_direct(Selector { tag: 4, ..selector }, BYTES, 10));
        play.send_one(4, 6);
        play.settle();
        let mut out = [0; 10];
        let found = play.machines[1].take_direct(&mut out);
        assert!(matches!(found, Found::Message(MessageInfo { tag: 4, len: 6, .. }, None)), "{found:?}");
        play.send_one(3, 5);
        play.settle();
        assert!(play.machines[1].probe(selector).is_some());
        let receive = play.post_one(3, 10);
        assert!(play.machines[1].take_received(receive).is_some());
    }
}

#[test]
fn strangers_are_faulty() {
    let mut play = Play::pair(1 << 20);
    // Rank 0 sends in a communicator that rank 1 makes without it, before and after.
    let envelope = |context| Envelope { context, tag: 0, sequence: 0, kind: BYTES };
    let eager = |play: &mut Play, from, context| {
        let bytes = am_core::Payload::own(&[1]);
        play.machines[1].on_eager(from, envelope(context), Credit::default(), &bytes);
    };
    eager(&mut play, 0, 7);
    play.machines[1].open(7, [1, 5]);
    assert_eq!(play.machines[1].gone(0), Some(Failure::Gone(Some(LossCause::Faulty))));
    eager(&mut play, 5, 7);
    assert_eq!((play.machines[1].gone(5), play.machines[1].stored.len()), (None, 2));
    eager(&mut play, 6, 7);
    assert_eq!(play.machines[1].gone(6), Some(Failure::Gone(Some(LossCause::Faulty))));
    // One that names ever more communicators is stopped.
    (0..100_000).for_each(|context| eager(&mut play, 8, 100 + context));
    assert!(play.machines[1].pairs.len() < 10_000 && play.machines[1].gone(8).is_some());
}

#[test]
fn who_does_not_see_a_segment_has_copied_nothing_there() {
    for maps in [false, true] {
        let mut play = Play::pair(1 << 20);
        play.network.maps = maps;
        let receive = play.post_one(3, 1000);
        play.settle();
        let part = Part { receive, at: 0, envelope: None, copied: 100 };
        play.machines[1].on_part(0, &part, &Payload::EMPTY);
        let sender = play.machines[1].peer_of[&0] as usize;
        assert_eq!(play.machines[1].peers[sender].is_faulty(), !maps);
    }
}

/// Memory that a lost rank has been told of is withheld until it writes no more; what it does not know of, or has
/// filled, is free at once.
#[test]
fn memory_is_withheld_while_somebody_may_write_there() {
    let died = Some(LossCause::Died);
    let withheld = |machine: &Machine| (machine.withheld(), machine.staging.free() + machine.withheld());
    // The answer to an announcement, before it is sent and after.
    for told in [false, true] {
        let mut play = Play::pair_with(Protocol::SenderInitiated, 1 << 20);
        play.send_one(3, 1000);
        play.advance(0);
        assert!(play.deliver(0, 1));
        let receive = play.post_one(3, 1000);
        if told {
            play.advance(1);
        }
        let machine = &mut play.machines[1];
        machine.lose(0, died);
        assert!(machine.take_received(receive).is_some());
        assert_eq!(withheld(machine), (if told { 1024 } else { 0 }, SEGMENT), "told {told}");
        machine.release_withheld(|rank| rank != 0);
        assert_eq!(machine.withholds(), told);
        machine.release_withheld(|rank| rank == 0);
        assert_eq!((machine.withholds(), machine.staging.free()), (false, SEGMENT));
    }
    // An advertised receive, which was told of.
    let mut play = Play::pair_with(Protocol::Elided, 1 << 20);
    play.post_one(3, 1000);
    play.settle();
    play.machines[1].lose(0, died);
    assert_eq!(withheld(&play.machines[1]), (1024, SEGMENT));
    // A message that is read: before it is asked for, while it is on its way, and when nothing more was asked for.
    for (asked, answered) in [(false, false), (true, false), (true, true)] {
        let mut play = Play::pair_with(Protocol::Read, 1 << 20);
        play.send_one(3, 200);
        play.advance(0);
        assert!(play.deliver(0, 1));
        play.post_one(3, 1000);
        if asked {
            play.advance(1);
        }
        if answered {
            // All of it was asked for at once.
            assert!(play.deliver(1, 0) && !play.deliver(1, 0) && play.deliver(0, 1));
        }
        play.machines[1].lose(0, died);
        let expected = if asked && !answered { 256 } else { 0 };
        let free = withheld(&play.machines[1]).0;
        assert_eq!(free, expected, "asked {asked}, answered {answered}");
    }
}

/// Messages that are read while no call waits for them are timed like others.
#[test]
fn what_is_read_meanwhile_is_timed() {
    let mut play = Play::pair(1 << 20).near();
    play.machines[1].note_copies(Copies::timed(100));
    for tag in 0..9 {
        play.send_one(tag, 2000);
        play.settle();
        let receive = play.post_one(tag, 2000);
        play.settle();
        let reader = &mut play.machines[1];
        let taken = reader.take_received(receive).expect("it has come");
        assert_eq!(taken.place.is_some(), !taken.timed);
        if taken.timed {
            reader.note_written(Some(taken.info.len));
        }
        taken.staged.into_iter().for_each(|block| reader.release(block));
    }
    let times = play.machines[1].times(2000);
    assert!(times.iter().all(Option::is_some), "{times:?}");
}
