//! What becomes of batches while somebody else drives their machine.

use super::*;
use crate::proto::deliver::Direct;
use crate::proto::wire::Credit;
use crate::proto::{Config, Event, Secrets};
use crate::sim;
use am_core::transport::{Category, LossCause, PeerStatus, ReplyBound, RequestHeader};
use am_core::{Shape, Span};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a handler does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Nothing,
    Detach,
    Short,
    Medium(usize),
    Long(usize),
    Panic,
}

/// Notes the numbers of requests and replies, and answers.
struct Log {
    answer: fn(u32) -> Answer,
    handled: Vec<u32>,
    replies: Vec<(u32, Category, usize)>,
    detached: Vec<PendingKey>,
}

impl Log {
    fn new(answer: fn(u32) -> Answer) -> Self {
        Self { answer, handled: Vec::new(), replies: Vec::new(), detached: Vec::new() }
    }
}

impl Sink for Log {
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
        let number = arrival.args.word(0).unwrap();
        self.handled.push(number);
        match (self.answer)(number) {
            Answer::Nothing => {}
            Answer::Detach => self.detached.push(path.detach()),
            Answer::Short => path.send(0, arrival.args, Body::None).unwrap(),
            Answer::Medium(len) => path.send(0, arrival.args, Body::Copy(&vec![1; len])).unwrap(),
            Answer::Long(len) => path.send(0, arrival.args, Body::Place(&vec![2; len], 0)).unwrap(),
            Answer::Panic => panic!("a handler unwinds"),
        }
    }

    fn reply(&mut self, arrival: Arrival<'_>) {
        self.replies.push((arrival.args.word(0).unwrap(), arrival.category, arrival.payload.len()));
    }

    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
}

/// Rank 0 asks, rank 1 answers.
struct Pair {
    now: Instant,
    machines: [Machine; 2],
}

fn machine(me: u8, incarnation: u8, change: fn(&mut Config)) -> Machine {
    let secrets = Secrets { job: vec![5; 32], incarnation: [incarnation; 32] };
    let mut config = Config::new(Shape::new(2), Peer(me.into()), secrets);
    change(&mut config);
    sim::machine(config, 1 << 16).unwrap().0
}

const ASKER: Peer = Peer(0);
const ANSWERER: Peer = Peer(1);

impl Pair {
    fn new(change: fn(&mut Config)) -> Self {
        let machines = [0, 1].map(|me| machine(me, me, change));
        let mut pair = Self { now: Instant(0), machines };
        pair.machines[0].connect(pair.now, ANSWERER);
        pair.carry();
        assert!(pair.machines[0].is_connected(ANSWERER) && pair.machines[1].is_connected(ASKER));
        pair
    }

    /// Carries what both want to send, for a while.
    fn carry(&mut self) {
        let mut buffer = vec![0; 1 << 16];
        for _ in 0..200 {
            for from in [0, 1] {
                while let Some((to, len)) = self.machines[from].transmit(self.now, &mut buffer) {
                    let _ = self.machines[to.index()].handle(self.now, &mut buffer[..len]);
                }
                self.machines[from].tick(self.now);
            }
            self.now = self.now + Span::from_millis(1);
        }
    }

    /// Sends so many requests, and sees them arrive.
    fn ask(&mut self, count: u32, reply: ReplyBound) {
        for number in 0..count {
            let (head, args) = (RequestHeader::new(0, reply), Words::from_slice(&[number]).unwrap());
            self.machines[0].request(self.now, ANSWERER, head, &args, None).unwrap();
        }
        self.carry();
    }

    fn serve(&mut self, log: &mut Log) -> usize {
        self.machines[1].poll(self.now, 100, log)
    }

    /// The replies as they come at the asker.
    fn replies(&mut self) -> Vec<(u32, Category, usize)> {
        self.carry();
        let mut log = Log::new(|_| Answer::Nothing);
        self.machines[0].poll(self.now, 100, &mut log);
        log.replies
    }

    fn start(&self) -> u64 {
        self.machines[1].session(ASKER).unwrap().traffic.incoming[0].fifo.start()
    }
}

fn deliver(machine: &mut Machine, now: Instant, batch: &mut Batch, log: &mut Log) -> usize {
    batch.deliver(log, &mut Direct { machine, now })
}

#[test]
fn a_lane_moves_on_when_settled() {
    let mut pair = Pair::new(|_| {});
    pair.ask(3, ReplyBound::UpTo(0));
    let (mut batch, mut log) = (pair.machines[1].new_batch(), Log::new(|_| Answer::Short));
    // What is taken and not delivered is still there.
    for _ in 0..2 {
        assert!(pair.machines[1].take_batch(pair.now, 100, &mut batch));
        assert_eq!((batch.len, pair.start()), (3, 0));
    }
    assert_eq!(deliver(&mut pair.machines[1], pair.now, &mut batch, &mut log), 3);
    pair.carry();
    assert!(pair.start() == 0 && !pair.machines[0].quiet(), "nobody has told the machine");
    pair.machines[1].settle(pair.now, &mut batch);
    assert!(pair.start() > 0 && !pair.machines[1].take_batch(pair.now, 100, &mut batch));
    assert_eq!(pair.replies().len(), 3);
    assert_eq!((log.handled, pair.machines[0].quiet()), (vec![0, 1, 2], true));
}

#[test]
fn replies_keep_their_order() {
    // The last ones are more than wait for the machine at a time.
    let answer = |number| match number % 3 {
        0 if number < 12 => Answer::Short,
        1 if number < 12 => Answer::Long(2000),
        _ => Answer::Medium(5000),
    };
    let mut pair = Pair::new(|_| {});
    pair.ask(30, ReplyBound::UpTo(5000));
    let (mut log, mut replies) = (Log::new(answer), Vec::new());
    while replies.len() < 30 {
        assert!(pair.serve(&mut log) > 0);
        replies.extend(pair.replies());
    }
    for (number, (replied, category, len)) in (0..).zip(replies) {
        let expected = match answer(number) {
            Answer::Short => (Category::Short, 0),
            Answer::Medium(len) => (Category::Medium, len),
            Answer::Long(len) => (Category::Long, len),
            other => panic!("{other:?}"),
        };
        assert_eq!((replied, (category, len)), (number, expected));
    }
    assert_eq!(log.handled, (0..30).collect::<Vec<_>>());
}

/// One payload may exceed the queue, no more.
#[test]
fn long_replies_end_a_batch() {
    let mut pair = Pair::new(|config| config.bulk_queue = 4096);
    pair.ask(10, ReplyBound::UpTo(0));
    let (mut log, mut replies) = (Log::new(|_| Answer::Long(3000)), 0);
    assert_eq!(pair.serve(&mut log), 2);
    while replies < 10 {
        replies += pair.replies().len();
        let handled = log.handled.len();
        assert!(pair.serve(&mut log) <= 2 && (log.handled.len() > handled || handled == 10));
    }
    assert_eq!(log.handled, (0..10).collect::<Vec<_>>());
}

/// A peer that acknowledges nothing has half of the budget.
#[test]
fn a_batch_counts_its_replies() {
    let mut pair = Pair::new(|config| {
        config.medium = 1024;
        config.reply_budget = 20_000;
    });
    pair.ask(17, ReplyBound::UpTo(1024));
    let mut log = Log::new(|_| Answer::Medium(1024));
    let served = pair.serve(&mut log);
    let queued = pair.machines[1].shared.queued[1];
    assert!(served > 5 && queued <= 10_000, "{served} replies of {queued} bytes");
}

/// The asker may have left already, and take no reply any more.
#[test]
fn what_has_no_reply_does_not_wait() {
    let mut pair = Pair::new(|config| {
        config.medium = 2000;
        (config.reply_window, config.reply_budget) = (2400, 2400);
    });
    pair.ask(1, ReplyBound::UpTo(2000));
    pair.ask(1, ReplyBound::None);
    let mut log = Log::new(|_| Answer::Medium(2000));
    assert_eq!(pair.machines[1].poll(pair.now, 1, &mut log), 1);
    log.answer = |_| Answer::Nothing;
    assert_eq!(pair.serve(&mut log), 1, "more than half of the budget is in use");
}

#[test]
fn room_given_back_twice_is_a_fault() {
    let mut pair = Pair::new(|_| {});
    pair.ask(3, ReplyBound::UpTo(100));
    pair.serve(&mut Log::new(|_| Answer::Short));
    pair.carry();
    let (now, asker) = (pair.now, &mut pair.machines[0]);
    let (mut batch, mut log) = (asker.new_batch(), Log::new(|_| Answer::Nothing));
    assert!(asker.take_batch(now, 100, &mut batch));
    let Machine { slots, shared, .. } = asker;
    let session = slots[ANSWERER.index()].session.as_deref_mut().unwrap();
    let credit = Credit { bare: 3, bare_bytes: session.set_aside, ..session.told };
    session.on_credit(shared, credit).unwrap();
    assert_eq!(deliver(asker, now, &mut batch, &mut log), 3);
    asker.settle(now, &mut batch);
    assert_eq!(asker.status(ANSWERER), PeerStatus::Lost(LossCause::Faulty));
    assert_eq!((asker.buffer_bytes_used(), asker.shared.set_aside), (0, 0));
}

#[test]
fn a_lost_session_is_told_nothing() {
    let mut pair = Pair::new(|_| {});
    pair.ask(6, ReplyBound::UpTo(100));
    let (now, answerer) = (pair.now, &mut pair.machines[1]);
    let answer = |number| [Answer::Short, Answer::Medium(100), Answer::Nothing][number as usize % 3];
    let (mut batch, mut log) = (answerer.new_batch(), Log::new(answer));
    assert!(answerer.take_batch(now, 100, &mut batch));
    let accepted = answerer.accepted_bytes();
    answerer.declare(now, ASKER, PeerStatus::Lost(LossCause::Died));
    assert_eq!(deliver(answerer, now, &mut batch, &mut log), 6);
    answerer.settle(now, &mut batch);
    assert_eq!((answerer.accepted_bytes(), answerer.bare_credits()), (accepted, 0));
    assert_eq!(answerer.buffer_bytes_used(), 0);
}

#[test]
fn a_new_session_is_told_nothing_of_the_old() {
    let rejoin = |config: &mut Config| config.rejoin = true;
    let mut pair = Pair::new(rejoin);
    pair.ask(4, ReplyBound::UpTo(100));
    let answer = |number| [Answer::Short, Answer::Nothing, Answer::Long(100), Answer::Short][number as usize];
    let (mut batch, mut log) = (pair.machines[1].new_batch(), Log::new(answer));
    assert!(pair.machines[1].take_batch(pair.now, 100, &mut batch));
    pair.machines[0] = machine(0, 9, rejoin);
    pair.machines[0].connect(pair.now, ANSWERER);
    pair.carry();
    assert!(pair.machines[0].is_connected(ANSWERER));
    let restarted = Some(LossCause::Restarted);
    let lost = std::iter::from_fn(|| pair.machines[1].next_event()).find_map(|event| match event {
        Event::Lost(_, cause) => Some(cause),
        _ => None,
    });
    assert_eq!(lost, restarted);
    deliver(&mut pair.machines[1], pair.now, &mut batch, &mut log);
    pair.machines[1].settle(pair.now, &mut batch);
    assert_eq!((pair.start(), pair.machines[1].bare_credits(), pair.replies()), (0, 0, vec![]));
    pair.ask(2, ReplyBound::UpTo(100));
    assert_eq!(pair.serve(&mut Log::new(|_| Answer::Short)), 2);
    assert_eq!(pair.replies().len(), 2);
}

/// Long replies go to the machine at once, and find nobody there.
#[test]
fn a_long_reply_to_a_lost_peer_goes_nowhere() {
    let mut pair = Pair::new(|_| {});
    pair.ask(6, ReplyBound::UpTo(100));
    let (now, answerer) = (pair.now, &mut pair.machines[1]);
    let (mut batch, mut log) = (answerer.new_batch(), Log::new(|_| Answer::Long(100)));
    assert!(answerer.take_batch(now, 100, &mut batch));
    answerer.declare(now, ASKER, PeerStatus::Lost(LossCause::Died));
    assert_eq!(deliver(answerer, now, &mut batch, &mut log), 1, "the others have nobody to answer");
    answerer.settle(now, &mut batch);
    assert_eq!(answerer.buffer_bytes_used(), 0);
}

#[test]
fn a_handler_that_unwinds_is_settled() {
    let answer = |number| if number == 2 { Answer::Panic } else { Answer::Short };
    let mut pair = Pair::new(|_| {});
    pair.ask(5, ReplyBound::UpTo(0));
    let (now, answerer) = (pair.now, &mut pair.machines[1]);
    let (mut batch, mut log) = (answerer.new_batch(), Log::new(answer));
    assert!(answerer.take_batch(now, 100, &mut batch));
    let delivered = catch_unwind(AssertUnwindSafe(|| deliver(answerer, now, &mut batch, &mut log)));
    assert!(delivered.is_err() && batch.outcome.is_empty());
    assert_eq!(answerer.bare_credits(), 1);
    assert_eq!(pair.serve(&mut log), 2);
    assert_eq!(log.handled, [0, 1, 2, 3, 4]);
    assert_eq!(pair.replies().iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [0, 1, 3, 4]);
    assert!(pair.machines[0].quiet());
}

#[test]
fn detached_requests_are_owed_until_answered() {
    let mut pair = Pair::new(|_| {});
    pair.ask(4, ReplyBound::UpTo(100));
    let answer = |number| if number < 3 { Answer::Detach } else { Answer::Nothing };
    let mut log = Log::new(answer);
    assert_eq!(pair.serve(&mut log), 4);
    let owed = |pair: &Pair| pair.machines[1].session(ASKER).unwrap().owed;
    let each = cost_of(101);
    assert_eq!((owed(&pair), pair.machines[1].bare_credits()), (3 * each, 1));
    let now = pair.now;
    let [replied, dropped, kept] = log.detached[..] else { panic!("three were detached") };
    pair.machines[1]
        .answer(now, replied, |path| path.send(0, &Words::from_slice(&[7]).unwrap(), Body::None))
        .unwrap();
    assert_eq!(pair.machines[1].answer(now, kept, |path| path.detach()), kept);
    assert_eq!(owed(&pair), 2 * each);
    pair.machines[1].answer(now, dropped, |_| ());
    assert_eq!((owed(&pair), pair.machines[1].bare_credits()), (each, 2));
    assert_eq!(pair.replies(), [(7, Category::Short, 0)]);
}

/// The clock of an endpoint stands still after 213 days: nothing of the protocol panics or goes round in circles
/// then.
#[test]
fn the_end_of_time_is_survived() {
    let mut pair = Pair::new(|_| {});
    let mut log = Log::new(|number| if number == 0 { Answer::Short } else { Answer::Medium(3000) });
    // Requests are under way, and answered, when it comes.
    pair.ask(3, ReplyBound::UpTo(3000));
    pair.now = Instant(u64::MAX);
    assert_eq!(pair.serve(&mut log), 3);
    let mut buffer = vec![0; 1 << 16];
    for _ in 0..100 {
        for from in [0, 1] {
            pair.machines[from].tick(pair.now);
            let mut rows = 0;
            while let Some((to, len)) = pair.machines[from].transmit(pair.now, &mut buffer) {
                let _ = pair.machines[to.index()].handle(pair.now, &mut buffer[..len]);
                rows += 1;
                assert!(rows < 1000, "rank {from} sends for ever");
            }
        }
    }
    for machine in &pair.machines {
        assert!(machine.deadline().is_none_or(|at| at <= pair.now));
        assert_eq!([ASKER, ANSWERER].map(|peer| machine.status(peer)), [PeerStatus::Active; 2]);
    }
}
