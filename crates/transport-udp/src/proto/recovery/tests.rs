//! Round trips, losses and windows by hand.

use super::*;

const MS: Span = Span::from_millis(1);

fn load(offset: u64) -> FrameList {
    let mut load = FrameList::EMPTY;
    load.push(Carried::Stream { stream: 0, offset, len: 1 });
    load
}

fn send(recovery: &mut Recovery, now: Instant, count: u64) {
    for _ in 0..count {
        recovery.on_sent(now, 1000, Some(&load(recovery.next_number())));
    }
}

#[test]
fn round_trips_are_estimated_as_the_rfc_says() {
    let mut recovery = Recovery::new(Instant(0), 1000, MS);
    send(&mut recovery, Instant(0), 1);
    recovery.on_ack(Instant(0) + Span::from_millis(80), Span::ZERO, [(0, 0)].into_iter(), |_, _| {}).unwrap();
    assert_eq!(recovery.round_trip(), Some(Span::from_millis(80)));
    assert_eq!(recovery.variation, Span::from_millis(40));
    assert_eq!(recovery.pto(), Span::from_millis(80 + 160 + 1));
}

#[test]
fn three_later_datagrams_make_a_loss() {
    let mut recovery = Recovery::new(Instant(0), 1000, MS);
    send(&mut recovery, Instant(0), 5);
    let mut outcomes = Vec::new();
    let now = Instant(0) + MS;
    recovery.on_ack(now, Span::ZERO, [(4, 4)].into_iter(), |outcome, _| outcomes.push(outcome)).unwrap();
    assert_eq!(outcomes, [Outcome::Acked, Outcome::Lost, Outcome::Lost]);
    let at = recovery.deadline().unwrap();
    assert!(at > now && at < now + MS);
    let mut later = 0;
    assert!(!recovery.on_timer(at, |_, _| later += 1));
    assert_eq!((later, recovery.in_flight, recovery.deadline()), (2, 0, None));
    assert_eq!(recovery.on_ack(at, MS, [(9, 9)].into_iter(), |_, _| {}), Err(Impossible));
}

#[test]
fn silence_brings_probes_at_doubling_distances() {
    let mut recovery = Recovery::new(Instant(0), 1000, MS);
    send(&mut recovery, Instant(0), 9);
    let mut last = Instant(0);
    let mut gaps = Vec::new();
    for _ in 0..3 {
        let at = recovery.deadline().unwrap();
        let mut again = 0;
        assert!(recovery.on_timer(at, |_, _| again += 1));
        assert_eq!((again, recovery.probes), (2, 2));
        gaps.push(at.since(last).0);
        last = at;
    }
    assert_eq!((gaps[1], gaps[2]), (2 * gaps[0], 4 * gaps[0]));
    assert_eq!(recovery.window, 10_000, "silence is no congestion: acknowledgements may have been lost");
}

/// However slow the way is: nothing is asked again before the answer can be there.
#[test]
fn a_slow_way_is_given_its_time() {
    let mut recovery = Recovery::new(Instant(0), 1000, MS);
    let (mut now, way) = (Instant(0), Span::from_secs(3));
    for _ in 0..20 {
        let number = recovery.next_number();
        send(&mut recovery, now, 1);
        now = now + way;
        recovery.on_ack(now, Span::ZERO, [(number, number)].into_iter(), |_, _| {}).unwrap();
    }
    send(&mut recovery, now, 1);
    assert!(recovery.deadline().unwrap().since(now) > way);
}

/// A recovery of a way of 10 ms that has carried windows of 100 datagrams at most for 40 round trips, the
/// time, and the number of the next datagram.
fn busy() -> (Recovery, Instant, u64) {
    let (mut recovery, mut now) = (Recovery::new(Instant(0), 1000, MS), Instant(0));
    for _ in 0..40 {
        let (first, count) = (recovery.next_number(), (recovery.window / 1000).min(100));
        send(&mut recovery, now, count);
        now = now + Span::from_millis(10);
        recovery.on_ack(now, Span::ZERO, [(first, first + count - 1)].into_iter(), |_, _| {}).unwrap();
    }
    let next = recovery.next_number();
    (recovery, now, next)
}

/// RFC 9002 section 7.6.2: what matters is that all between two lost datagrams is lost, and how far these are
/// apart. That older ones were there, whose acknowledgements were lost, does not.
#[test]
fn persistent_congestion_is_shown_not_supposed() {
    for (arrived, collapses) in [(0, true), (1, true), (100, false)] {
        let (mut recovery, mut now, first) = busy();
        send(&mut recovery, now, 100);
        for _ in 0..5 {
            now = recovery.deadline().unwrap();
            assert!(recovery.on_timer(now, |_, _| {}));
            send(&mut recovery, now, 2);
        }
        assert!(recovery.window >= 100_000, "silence shows nothing");
        let last = recovery.next_number() - 1;
        // Of the last window and all that followed the timeouts but the last, so many are there.
        let old = (first, first + arrived.max(1) - 1);
        let ranges = match arrived {
            0 => vec![(last - 1, last)],
            1 => vec![(last - 1, last), old],
            _ => vec![(first, last)],
        };
        now = now + Span::from_millis(10);
        recovery.on_ack(now, Span::ZERO, ranges.into_iter(), |_, _| {}).unwrap();
        assert_eq!(recovery.window == LEAST_WINDOW * 1000, collapses, "{arrived}: {}", recovery.window);
    }
}

/// RFC 8085 section 3.1: a way that carries a tenth of what it did is not overrun for long.
#[test]
fn heavy_losses_are_heard_within_a_few_round_trips() {
    let (mut recovery, mut now, _) = busy();
    for round in 0..3 {
        let (first, count) = (recovery.next_number(), recovery.window / 1000);
        send(&mut recovery, now, count);
        now = now + Span::from_millis(10);
        let there = count.min(10);
        let ranges = (1..=there).map(|nth| first + nth * count / there - 1).map(|number| (number, number));
        recovery.on_ack(now, Span::ZERO, ranges, |_, _| {}).unwrap();
        assert!(recovery.window < 15_000, "{} after {round}", recovery.window);
    }
}

/// What leaves regardless of the pacer does not stop what follows.
#[test]
fn the_pacer_keeps_no_debts() {
    let (mut recovery, mut now, _) = busy();
    assert_eq!(recovery.paced(now), None);
    for _ in 0..10 {
        recovery.on_sent(now, 65_000, Some(&load(0)));
    }
    let wait = recovery.paced(now).unwrap().since(now);
    assert!(wait < Span::from_millis(1), "{wait}");
    for _ in 0..6 {
        now = recovery.deadline().unwrap();
        assert!(recovery.on_timer(now, |_, _| {}));
        assert_eq!(recovery.paced(now), None, "probes do not wait");
        (0..2).for_each(|_| recovery.on_sent(now, 65_000, Some(&load(0))));
    }
    let last = recovery.next_number() - 1;
    recovery.on_ack(now, Span::ZERO, [(last, last)].into_iter(), |_, _| {}).unwrap();
    assert_eq!(recovery.probes, 0, "an answer is there: window and pacer hold again");
    let wait = recovery.paced(now).map_or(Span::ZERO, |at| at.since(now));
    assert!(wait < Span::from_millis(10), "{wait}");
}

/// Whoever mostly acknowledges learns the round-trip time from what it says besides.
#[test]
fn acknowledgements_hide_no_round_trip_time() {
    let mut recovery = Recovery::new(Instant(0), 1000, MS);
    send(&mut recovery, Instant(0), 1);
    recovery.on_sent(Instant(0) + MS, 30, None);
    let now = Instant(0) + Span::from_millis(2);
    recovery.on_ack(now, Span::ZERO, [(0, 1)].into_iter(), |_, _| {}).unwrap();
    assert_eq!(recovery.round_trip(), Some(Span::from_millis(2)));
}

/// Pauses and time-outs lower an average, not what the way has carried.
#[test]
fn pauses_do_not_lower_the_bandwidth() {
    let mut recovery = Recovery::new(Instant(0), 1000, MS);
    let mut now = Instant(0);
    for round in 0..40u64 {
        let first = recovery.next_number();
        let count = if round % 5 == 0 { recovery.window / 1000 } else { 1 };
        send(&mut recovery, now, count);
        now = now + Span::from_millis(10);
        recovery.on_ack(now, Span::ZERO, [(first, first + count - 1)].into_iter(), |_, _| {}).unwrap();
        now = now + Span::from_millis(500);
    }
    let window = recovery.window;
    assert!(window > 50_000, "{window}");
    let first = recovery.next_number();
    send(&mut recovery, now, 40);
    now = now + Span::from_millis(10);
    recovery.on_ack(now, Span::ZERO, [(first + 4, first + 39)].into_iter(), |_, _| {}).unwrap();
    assert!(recovery.window > window / 3, "{} after {window}", recovery.window);
}

/// A window beyond what the way carries gives way to a loss.
#[test]
fn a_queue_gives_way() {
    let mut recovery = Recovery::new(Instant(0), 1000, MS);
    let mut now = Instant(0);
    // A way of 10 ms that carries 20 datagrams in that time; what is more waits.
    for _ in 0..60 {
        let first = recovery.next_number();
        let count = recovery.window / 1000;
        send(&mut recovery, now, count);
        for number in first..first + count {
            let at = now + Span::from_millis(10) + Span(500_000_000 * (number - first));
            recovery.on_ack(at, Span::ZERO, [(number, number)].into_iter(), |_, _| {}).unwrap();
        }
        now = now + Span::from_millis(10) + Span(500_000_000 * count);
    }
    assert!(recovery.window > 60_000, "{}", recovery.window);
    let first = recovery.next_number();
    send(&mut recovery, now, 10);
    now = now + Span::from_millis(10);
    recovery.on_ack(now, Span::ZERO, [(first + 5, first + 9)].into_iter(), |_, _| {}).unwrap();
    assert!(recovery.window < 30_000, "{}", recovery.window);
}

#[test]
fn random_loss_keeps_the_window_near_the_path() {
    let mut recovery = Recovery::new(Instant(0), 1000, MS);
    let mut now = Instant(0);
    for round in 0..300u64 {
        let first = recovery.next_number();
        let count = (recovery.window / 1000).min(100);
        send(&mut recovery, now, count);
        now = now + Span::from_millis(10);
        let skip = first + round % 3;
        let ranges = [(skip + 1, first + count - 1), (first, skip.max(first + 1) - 1)];
        recovery.on_ack(now, Span::ZERO, ranges.into_iter().filter(|(a, b)| a <= b), |_, _| {}).unwrap();
    }
    // NewReno would be at a handful of datagrams, with one loss in every round trip.
    assert!(recovery.window > 8_000, "{}", recovery.window);
}
