//! Calls against callees that a test plays by hand, faulty ones among them.

use super::*;
use crate::method::MethodId;
use crate::outcome::Sent;
use am_core::Rank;

const ID: MethodId = MethodId { index: 0, digest: 7 };
const TO: Address = Address::new(Rank(0), 0);

struct Played {
    table: Table,
    room: Arc<Room>,
    wakers: Wakers,
}

impl Played {
    fn new(config: CallConfig) -> Self {
        let room = Arc::new(Room::new(config.receive_bytes));
        let mut table = Table::new(config, Arc::clone(&room), Meter::default());
        table.set_shape(Shape { ranks: 1, endpoints: 1 });
        Self { table, room, wakers: Wakers::default() }
    }

    /// Makes a call that is sent, as announced if it is long.
    fn call(&mut self, flags: u16, request: Vec<u8>, long: bool) -> Key {
        let key = self
            .table
            .start(TO, Header::new(ID, flags), request, Due::Never, Entry::Waits, Waiter::Nobody)
            .unwrap();
        self.table.send(&mut self.wakers, |_| if long { Sent::Announced } else { Sent::Yes });
        key
    }

    fn answer(&mut self, call: Key, status: Status, long: bool, number: u64, body: &[u8]) {
        let verdict = Verdict { long, ..Verdict::new(status, ID.digest) };
        let fill = |bytes: &mut Vec<u8>| bytes.extend_from_slice(body);
        self.table.answered(TO, call, Some(verdict), (number, 0), fill, &mut self.wakers);
    }

    /// Has a stream announce something.
    fn announce(&mut self, call: Key, status: Status, number: u64, bytes: u64) {
        let verdict = Verdict { long: true, ..Verdict::new(status, ID.digest) };
        self.table.answered(TO, call, Some(verdict), (number, bytes), |_| unreachable!(), &mut self.wakers);
    }

    fn part(&mut self, call: Key, at: u64, len: usize) {
        self.table.part(TO, call, at, len, |bytes| bytes.fill(len as u8), &mut self.wakers);
    }

    /// The next answer of a stream, or how it has ended.
    fn next(&mut self, call: Key) -> Option<Result<Vec<u8>, Outcome>> {
        match self.table.poll_stream(call, None) {
            Polled::Ready(next) => Some(next.map_err(|(outcome, _)| outcome)),
            Polled::Pending(_) => None,
        }
    }

    fn notes(&mut self) -> Vec<Note> {
        let mut notes = Vec::new();
        self.table.send_notes(|note| {
            notes.push(note);
            Sent::Yes
        });
        notes
    }

    /// Lets those go on for whom there is room, as the layer does.
    fn look(&mut self) -> bool {
        self.room.take_freed() && self.table.make_room()
    }

    fn outcome(&mut self, call: Key) -> Option<Outcome> {
        match self.table.poll(call, None) {
            Polled::Ready((outcome, _)) => Some(outcome),
            Polled::Pending(_) => None,
        }
    }
}

#[test]
fn room_of_a_dropped_answer_goes_to_the_next() {
    let mut played = Played::new(CallConfig::new().receive_bytes(100));
    let calls: Vec<Key> = (0..4).map(|_| played.call(0, vec![], false)).collect();
    for call in &calls {
        played.answer(*call, Status::Answer, true, 80, &[]);
    }
    let grant = |call: Key| vec![Note::GrantAnswer { to: TO, task: 0, call }];
    assert_eq!((played.notes(), played.look()), (grant(calls[0]), false));
    // One that comes and is dropped, one that waits and is dropped.
    played.table.cancel(calls[0]);
    assert!(played.look());
    let mut expected = vec![Note::Cancel { to: TO, call: calls[0] }];
    expected.extend(grant(calls[1]));
    assert_eq!(played.notes(), expected);
    played.table.cancel(calls[2]);
    // A part beyond the answer's end: the call fails, and its room is free.
    played.table.part(TO, calls[1], 70, 20, |_| unreachable!(), &mut played.wakers);
    assert!(matches!(played.outcome(calls[1]), Some(Outcome::BadAnswer)));
    assert!(played.look());
    assert_eq!(played.notes()[1..], grant(calls[3]));
    played.table.part(TO, calls[3], 0, 80, |bytes| bytes.fill(1), &mut played.wakers);
    assert!(matches!(played.outcome(calls[3]), Some(Outcome::Answer)));
    assert_eq!((played.room.used(), played.table.len(), played.table.under_way()), (0, 0, 0));
}

#[test]
fn an_early_answer_to_a_long_request_is_taken_as_it_is() {
    for (long, number) in [(true, 10), (false, 0)] {
        let mut played = Played::new(CallConfig::new());
        let call = played.call(0, vec![1; 1000], true);
        played.table.granted(TO, call, 5);
        // Half of the request is sent when the answer, which is shorter, comes.
        let mut sent = 0;
        played.table.send_parts(&mut played.wakers, |_, _, at, _| {
            sent += u32::from(at == 0);
            Ok(if at == 0 { 500 } else { 0 })
        });
        played.answer(call, Status::Answer, long, number, &[]);
        played.table.send_parts(&mut played.wakers, |_, _, _, _| unreachable!("the request is over"));
        assert_eq!(sent, 1);
        if long {
            played.table.part(TO, call, 0, 10, |bytes| bytes.fill(1), &mut played.wakers);
        }
        assert!(matches!(played.outcome(call), Some(Outcome::Answer)));
        assert_eq!((played.table.len(), played.table.under_way()), (0, 0));
    }
}

#[test]
fn impossible_answers_of_streams_end_them() {
    let mut played = Played::new(CallConfig::new().stream_window(4));
    let call = played.call(Header::STREAM, vec![], false);
    played.answer(call, Status::Item, false, 0, &[1]);
    // An end before what has come.
    played.answer(call, Status::Answer, false, 0, &[]);
    assert!(matches!(played.table.poll_stream(call, None), Polled::Ready(Ok(_))));
    assert!(matches!(played.table.poll_stream(call, None), Polled::Ready(Err((Outcome::BadAnswer, _)))));
    let call = played.call(Header::STREAM, vec![], false);
    played.answer(call, Status::Item, false, 4, &[1]);
    assert!(matches!(played.table.poll_stream(call, None), Polled::Ready(Err((Outcome::BadAnswer, _)))));
    assert_eq!((played.table.len(), played.table.under_way()), (0, 0));
}

#[test]
fn answers_that_come_together_are_taken_one_by_one() {
    let bundles: [&[u8]; 5] = [&[], &[1], &[1, 7, 0x80], &[1, 7, 0], &[1, 7, 0, 1, 8, 1, 9]];
    for (place, bundle) in bundles.into_iter().enumerate() {
        let mut played = Played::new(CallConfig::new().stream_window(3));
        let call = played.call(Header::STREAM, vec![], false);
        played.answer(call, Status::Items, false, 1, bundle);
        let take = |played: &mut Played| match played.table.poll_stream(call, None) {
            Polled::Ready(Ok(item)) => Some(item),
            Polled::Ready(Err((outcome, _))) => {
                assert!(matches!(outcome, Outcome::BadAnswer));
                None
            }
            Polled::Pending(_) => panic!("it is there"),
        };
        if place < 3 {
            // Nothing, or less than its length says.
            assert_eq!(take(&mut played), None, "{bundle:?}");
        } else if place == 3 {
            // The first of all comes last.
            played.answer(call, Status::Item, false, 0, &[]);
            assert_eq!([(); 3].map(|()| take(&mut played)), [Some(vec![]), Some(vec![7]), Some(vec![])]);
            // One that is no stream's.
            let call = played.call(0, vec![], false);
            played.answer(call, Status::Items, false, 0, &[1, 7]);
            assert!(matches!(played.outcome(call), Some(Outcome::BadAnswer)));
        } else {
            // One more than may be under way.
            assert_eq!(take(&mut played), None);
        }
    }
}

#[test]
fn long_answers_of_a_stream_wait_for_room() {
    let mut played = Played::new(CallConfig::new().receive_bytes(100));
    let other = played.call(0, vec![], false);
    played.answer(other, Status::Answer, true, 90, &[]);
    assert_eq!(played.notes().len(), 1);
    let call = played.call(Header::STREAM, vec![], false);
    played.announce(call, Status::Item, 1, 80);
    played.announce(call, Status::Failed, 2, 70);
    played.answer(call, Status::Item, false, 0, &[5]);
    // There is no room yet.
    played.part(call, 0, 80);
    assert_eq!((played.notes(), played.room.waiting()), (vec![], 1));
    played.table.part(TO, other, 0, 90, |_| {}, &mut played.wakers);
    assert!(played.look());
    let grant = vec![Note::GrantItem { to: TO, call }];
    assert_eq!(played.notes(), grant);
    assert_eq!(played.next(call).unwrap().unwrap(), [5]);
    played.part(call, 40, 40);
    assert!(played.next(call).is_none());
    played.part(call, 0, 40);
    // Its room goes to the end.
    assert_eq!((played.notes(), played.room.used()), (grant, 70));
    played.part(call, 0, 70);
    assert_eq!(played.next(call).unwrap().unwrap(), [40; 80]);
    assert!(matches!(played.next(call), Some(Err(Outcome::Failed))));
    assert!(matches!(played.outcome(other), Some(Outcome::Answer)));
    assert_eq!((played.room.used(), played.table.len(), played.table.under_way()), (0, 0, 0));
}

/// What a dropped stream leaves for another one is no answer that nobody has taken.
#[test]
fn dropped_streams_keep_no_answers() {
    let mut played = Played::new(CallConfig::new());
    let call = played.call(Header::STREAM, vec![], false);
    (0..3).for_each(|number| played.answer(call, Status::Item, false, number, &[1; 100]));
    played.table.cancel(call);
    assert_eq!(played.table.spare.iter().map(|answers| answers.len()).collect::<Vec<_>>(), [0]);
}

#[test]
fn streams_that_end_give_their_room_back() {
    for granted in [true, false] {
        for end in 0..5 {
            let mut played = Played::new(CallConfig::new().receive_bytes(100).max_bytes(200));
            let first = played.call(0, vec![], false);
            if !granted {
                played.answer(first, Status::Answer, true, 90, &[]);
            }
            let call = played.call(Header::STREAM, vec![], false);
            played.announce(call, Status::Item, 0, 80);
            let ended = match end {
                0 => played.table.cancel(call).is_none(),
                // One that has come twice, an end before what was announced, a part beyond the end.
                1 => {
                    played.answer(call, Status::Item, false, 0, &[]);
                    matches!(played.next(call), Some(Err(Outcome::BadAnswer)))
                }
                2 => {
                    played.answer(call, Status::Answer, false, 0, &[]);
                    matches!(played.next(call), Some(Err(Outcome::BadAnswer)))
                }
                3 if granted => {
                    played.table.part(TO, call, 70, 20, |_| unreachable!(), &mut played.wakers);
                    matches!(played.next(call), Some(Err(Outcome::BadAnswer)))
                }
                // One that is too long.
                _ => {
                    played.announce(call, Status::Item, 1, 201);
                    matches!(played.next(call), Some(Err(Outcome::AnswerTooLarge { bytes: 201, limit: 200 })))
                }
            };
            assert!(ended, "{granted} {end}");
            assert_eq!((played.room.used(), played.room.waiting()), (if granted { 0 } else { 90 }, 0));
            played.table.cancel(first);
            assert_eq!((played.room.used(), played.table.len(), played.table.under_way()), (0, 0, 0));
        }
    }
    // One that is no stream's.
    let mut played = Played::new(CallConfig::new());
    let call = played.call(0, vec![], false);
    played.announce(call, Status::Item, 0, 80);
    assert!(matches!(played.outcome(call), Some(Outcome::BadAnswer)));
}

#[test]
fn a_part_that_comes_twice_ends_its_call() {
    let mut played = Played::new(CallConfig::new().receive_bytes(100));
    let call = played.call(0, vec![], false);
    played.answer(call, Status::Answer, true, 80, &[]);
    played.table.part(TO, call, 40, 40, |bytes| bytes.fill(1), &mut played.wakers);
    played.table.part(TO, call, 40, 40, |_| unreachable!(), &mut played.wakers);
    assert!(matches!(played.outcome(call), Some(Outcome::BadAnswer)));
    assert_eq!(played.room.used(), 0);
}

#[test]
fn calls_at_once_overtake_nobody() {
    let mut played = Played::new(CallConfig::new().calls(1));
    let header = Header::new(ID, 0);
    let at_once = |played: &mut Played| {
        let shape = Shape { ranks: 1, endpoints: 1 };
        let started = played.table.start_sent(shape, TO, (header, 0), &mut (), |()| Instant(0), |(), _| Sent::Yes);
        started.map(|(key, _)| key)
    };
    let first = at_once(&mut played).unwrap();
    assert_eq!(at_once(&mut played), None, "as many as may be");
    let second = played.call(0, vec![], false);
    assert!(played.table.has_work());
    played.answer(first, Status::Answer, false, 0, &[]);
    assert_eq!(at_once(&mut played), None, "one waits");
    played.table.send(&mut played.wakers, |_| Sent::Yes);
    played.answer(second, Status::Answer, false, 0, &[]);
    assert!(!played.table.has_work());
    assert!(at_once(&mut played).is_some());
}

/// A transport that panics may have sent the request: the answer to it must end no other call.
#[test]
fn keys_of_requests_that_panicked_are_not_used_again() {
    let mut played = Played::new(CallConfig::new());
    let (shape, header) = (Shape { ranks: 1, endpoints: 1 }, Header::new(ID, 0));
    let mut told = None;
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let send = |(): &mut (), key| {
            told = Some(key);
            panic!("on purpose")
        };
        played.table.start_sent(shape, TO, (header, 0), &mut (), |()| Instant(0), send)
    }));
    assert!(panicked.is_err());
    let next =
        played.table.start_sent(shape, TO, (header, 0), &mut (), |()| Instant(0), |(), _| Sent::Yes).unwrap().0;
    assert_ne!(told, Some(next));
    played.answer(told.unwrap(), Status::Answer, false, 0, &[]);
    assert!(!played.table.is_done(next));
    played.answer(next, Status::Answer, false, 0, &[]);
    assert!(played.table.is_done(next));
}

#[cfg(feature = "tower")]
#[test]
fn a_free_place_is_work_where_one_waits_for_it() {
    let mut played = Played::new(CallConfig::new().calls(1));
    let call = played.call(0, vec![], false);
    let mut permit = None;
    let polled = played.table.permit(TO, &mut permit, Waker::noop());
    assert!(matches!(polled, Ok(Polled::Pending(_))));
    played.answer(call, Status::Answer, false, 0, &[]);
    assert!(played.table.has_work());
    played.table.send(&mut played.wakers, |_| Sent::Yes);
    assert!(matches!(played.table.permit(TO, &mut permit, Waker::noop()), Ok(Polled::Ready(()))));
    assert!(!played.table.has_work());
}

/// The numbers of the peers to which calls went, with so many places and calls of these peers.
fn sent_in_turn(config: CallConfig, peers: &[u32]) -> Vec<u32> {
    let mut played = Played::new(config);
    played.table = Table::new(config, Arc::clone(&played.room), Meter::default());
    played.table.set_shape(Shape { ranks: 3, endpoints: 1 });
    for peer in peers {
        let (to, header) = (Address::new(Rank(*peer), 0), Header::new(ID, 0));
        played.table.start(to, header, vec![], Due::Never, Entry::Waits, Waiter::Nobody).unwrap();
    }
    let (mut order, mut under_way) = (Vec::new(), VecDeque::new());
    while order.len() < peers.len() {
        played.table.send(&mut played.wakers, |outgoing| {
            order.push(outgoing.to.rank.0);
            under_way.push_back((outgoing.to, outgoing.key));
            Sent::Yes
        });
        let (to, call) = under_way.pop_front().expect("a call under way");
        let verdict = Some(Verdict::new(Status::Answer, ID.digest));
        played.table.answered(to, call, verdict, (0, 0), |_| {}, &mut played.wakers);
    }
    order
}

/// Who calls one peer much takes no places from calls to others, however few places there are.
#[test]
fn peers_take_turns_for_the_places() {
    let calls = [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 0];
    for places in [1, 2, 3] {
        let order = sent_in_turn(CallConfig::new().calls(places), &calls);
        assert_eq!(order, [1, 2, 0, 1, 2, 1, 1, 1, 1, 1, 1], "{places} places");
    }
    // One that waits for its own limit is in nobody's way.
    let order = sent_in_turn(CallConfig::new().calls_per_peer(1).calls(2), &calls);
    assert_eq!(order[..4], [1, 2, 0, 1]);
}

/// A network that has room for one call now and then serves peers in turn.
#[test]
fn peers_take_turns_for_the_networks_room() {
    let mut played = Played::new(CallConfig::new());
    played.table = Table::new(CallConfig::new(), Arc::clone(&played.room), Meter::default());
    played.table.set_shape(Shape { ranks: 3, endpoints: 1 });
    for peer in [1, 1, 1, 2, 2, 2] {
        let (to, header) = (Address::new(Rank(peer), 0), Header::new(ID, 0));
        played.table.start(to, header, vec![], Due::Never, Entry::Waits, Waiter::Nobody).unwrap();
    }
    let mut order = Vec::new();
    for round in 1..=6 {
        played.table.send(&mut played.wakers, |outgoing| {
            if order.len() == round {
                return Sent::NotNow;
            }
            order.push(outgoing.to.rank.0);
            Sent::Yes
        });
    }
    assert_eq!(order, [1, 2, 1, 2, 1, 2]);
}

/// Who waits for a permit is overtaken by no call that came later, and overtakes none that came before.
#[cfg(feature = "tower")]
#[test]
fn permits_wait_like_calls() {
    let mut played = Played::new(CallConfig::new().calls(1));
    let (first, second) = (played.call(0, vec![], false), played.call(0, vec![], false));
    let mut permit = None;
    assert!(matches!(played.table.permit(TO, &mut permit, Waker::noop()), Ok(Polled::Pending(_))));
    let third = played.call(0, vec![], false);
    let ready = |played: &mut Played, permit: &mut Option<Key>| {
        played.table.send(&mut played.wakers, |_| Sent::Yes);
        matches!(played.table.permit(TO, permit, Waker::noop()), Ok(Polled::Ready(())))
    };
    played.answer(first, Status::Answer, false, 0, &[]);
    assert!(!ready(&mut played, &mut permit));
    played.answer(second, Status::Answer, false, 0, &[]);
    assert!(ready(&mut played, &mut permit));
    // It has not gone before the permit, and goes when that ends.
    assert_eq!(played.table.under_way(), 0);
    played.table.end_permit(permit.unwrap());
    played.table.send(&mut played.wakers, |_| Sent::Yes);
    played.answer(third, Status::Answer, false, 0, &[]);
    assert!(matches!(played.outcome(third), Some(Outcome::Answer)));
    // One that is dropped while it waits leaves the queue.
    let fourth = played.call(0, vec![], false);
    let mut permit = None;
    assert!(matches!(played.table.permit(TO, &mut permit, Waker::noop()), Ok(Polled::Pending(_))));
    let fifth = played.call(0, vec![], false);
    played.table.end_permit(permit.unwrap());
    played.answer(fourth, Status::Answer, false, 0, &[]);
    played.table.send(&mut played.wakers, |_| Sent::Yes);
    played.answer(fifth, Status::Answer, false, 0, &[]);
    assert!(matches!(played.outcome(fifth), Some(Outcome::Answer)) && !played.table.has_work());
}

#[test]
fn deadlines_that_nobody_has_seen_leave_no_more_than_they_were() {
    let mut played = Played::new(CallConfig::new());
    for _ in 0..10_000 {
        let call = played.table.start(
            TO,
            Header::new(ID, 0),
            vec![],
            Due::After(am_core::Span(1)),
            Entry::Waits,
            Waiter::Nobody,
        );
        played.table.cancel(call.unwrap());
        let sleep = played.table.sleep(Due::After(am_core::Span(1)), Waker::noop()).unwrap();
        played.table.end_sleep(sleep);
    }
    assert!(played.table.fresh.len() <= 130, "{}", played.table.fresh.len());
}

struct Idle;

impl std::task::Wake for Idle {
    fn wake(self: Arc<Self>) {}
}

/// The waker of the future that the endpoint runs is neither cloned nor called for what it waits for.
#[test]
fn the_root_waits_without_its_waker() {
    let mut played = Played::new(CallConfig::new().calls(1));
    let (idle, later) = (Arc::new(Idle), Due::After(am_core::Span(1)));
    let waker = Waker::from(Arc::clone(&idle));
    played.table.root = Some(waker.clone());
    let kept = Arc::strong_count(&idle);
    let sleep = played.table.sleep(later, &waker).unwrap();
    assert!(matches!(played.table.slept(sleep, &waker), Polled::Pending(None)));
    assert_eq!(Arc::strong_count(&idle), kept);
    for now in [0, 1] {
        played.table.advance(Instant(now), &mut played.wakers, |_| unreachable!());
    }
    assert!(std::mem::take(&mut played.wakers.root) && played.wakers.others.is_empty());
    assert!(matches!(played.table.slept(sleep, &waker), Polled::Ready(())));
    #[cfg(feature = "tower")]
    {
        let (call, mut permit) = (played.call(0, vec![], false), None);
        assert!(matches!(played.table.permit(TO, &mut permit, &waker), Ok(Polled::Pending(None))));
        assert_eq!(Arc::strong_count(&idle), kept);
        played.answer(call, Status::Answer, false, 0, &[]);
        played.table.send(&mut played.wakers, |_| Sent::Yes);
        assert!(played.wakers.root && played.wakers.others.is_empty());
    }
}
