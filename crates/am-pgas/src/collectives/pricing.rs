//! What schedules cost: members in virtual time, whose messages take what a model says.

use super::schedule::{Local, Part, Schedule};
use am_core::Span;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// The parameters of the LogGP model (Alexandrov, Ionescu, Schauser and Scheiman, SPAA 1995).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogGp {
    /// Latency of a message on its way.
    pub latency: Span,
    /// Time that a processor takes to send or to receive a message.
    pub overhead: Span,
    /// Least time between two messages that a processor sends.
    pub gap: Span,
    /// Picoseconds for each byte of a message but the first.
    pub per_byte: f64,
    /// Picoseconds that a processor takes to copy or combine a byte.
    pub compute: f64,
}

/// What messages of one size cost: the parameters of PLogP (Kielmann, Bal and Verstoep, IPDPS workshops 2000), for
/// networks where that does not grow evenly with the size, as where messages fall into packets. The gap, which
/// PLogP has one of, is told apart by side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PLogP {
    /// Time that a processor takes to hand a message over.
    pub send: Span,
    /// Least time from the beginning of one message that leaves a member to the beginning of the next.
    pub gap: Span,
    /// Least time from one message that comes to a member to the next; none where its processor takes longer.
    pub gap_in: Span,
    /// Time that a processor takes to look for messages and to receive one that has come.
    pub receive: Span,
    /// Time that it takes to receive another one that it has found at the same look.
    pub more: Span,
    /// From the beginning of sending to the end of receiving, with a receiver that waits.
    pub one_way: Span,
}

/// When the last member has finished, if all begin together: the cost of an operation under LogGP, without
/// contention. `schedules` are those of all members by position, `element` is the size of an element in bytes.
/// Allocates.
///
/// `None` if the schedules wait for each other in vain.
pub fn cost(schedules: &[Schedule], element: usize, model: &LogGp) -> Option<Span> {
    let (latency, overhead, gap) = (model.latency.picos(), model.overhead.picos(), model.gap.picos());
    let of_size = |bytes: usize| {
        let transfer = (bytes.saturating_sub(1) as f64 * model.per_byte) as u64;
        let gap = Span(overhead.max(gap).max(transfer));
        let one_way = Span(2 * overhead + transfer + latency);
        PLogP { send: model.overhead, gap, gap_in: gap, receive: model.overhead, more: model.overhead, one_way }
    };
    Play::new(&[schedules], element, model.compute, None).play(of_size)?.last().copied()
}

/// As [`cost`], under PLogP: `model` says what messages of a size in bytes cost. Copies and combinations cost
/// nothing.
pub fn cost_by_size(schedules: &[Schedule], element: usize, model: impl Fn(usize) -> PLogP) -> Option<Span> {
    Play::new(&[schedules], element, 0.0, None).play(model)?.last().copied()
}

/// The messages by which members give each other room again, where no others go that way. They cost what messages
/// without bytes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upkeep {
    /// Messages from one member to another that may be unacknowledged
    /// ([`Tuning::window`](super::Tuning::window)): half of them are acknowledged at once.
    pub window: u32,
    /// Looks for messages after which a member's conduit returns all credits that it owes, by a message each, if
    /// all have found something: one that has nothing to do returns them at once.
    /// `None` for conduits that answer each message at once: that is part of what receiving it costs, and takes a
    /// gap.
    pub looks: Option<u32>,
}

/// As [`cost_by_size`], the mean of an operation that is done again and again, each time from a common beginning
/// that `between` has been done for: `times` after one that does not count. So acknowledgements and credits cost
/// what they do on average.
///
/// # Panics
/// If `times` is 0.
pub fn mean_cost(
    [between, schedules]: [&[Schedule]; 2],
    element: usize,
    times: usize,
    upkeep: Upkeep,
    model: impl Fn(usize) -> PLogP,
) -> Option<Span> {
    assert!(times > 0, "there is no mean of nothing");
    let all = [between, schedules].repeat(1 + times);
    let took = Play::new(&all, element, 0.0, Some(upkeep)).play(model)?;
    let counted = took.iter().skip(3).step_by(2);
    Some(Span(counted.map(|span| span.picos()).sum::<u64>() / times as u64))
}

/// Picoseconds from the last member's end to the next common beginning: all messages have come by then.
const LEAD: u64 = 1_000_000_000_000;

/// What a message is for: a round of an operation, of which it has the number and the tag, or upkeep.
type Purpose = Option<(usize, u32)>;

/// A message on its way: when it is there, when a receiver that waits for it has taken it, and from whom it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Letter {
    there: u64,
    taken: u64,
    from: u32,
    purpose: Purpose,
    bytes: usize,
}

/// How far a member has come.
#[derive(Clone, Debug, Default)]
struct Player {
    /// Until when its processor is busy, and what sends its messages.
    clock: u64,
    sends_from: u64,
    /// Until when what brings it messages is.
    gets_from: u64,
    operation: usize,
    round: usize,
    /// Whether it has begun the operation, and sent the messages of the round.
    has_begun: bool,
    has_sent: bool,
    inbox: BinaryHeap<Reverse<Letter>>,
    /// Messages that it has taken, and rounds have not.
    kept: BTreeSet<(u32, usize, u32)>,
    /// Messages taken from others since it last sent them something.
    untold: BTreeMap<u32, u32>,
    /// Those that credits are owed to, and looks that have found something since it last returned them.
    owed: BTreeSet<u32>,
    looks: u32,
}

impl Player {
    /// The message that comes next, as what brings messages lets it come.
    fn next(&self) -> Option<Letter> {
        let Reverse(letter) = *self.inbox.peek()?;
        let late = self.gets_from.saturating_sub(letter.there);
        Some(Letter { there: letter.there + late, taken: letter.taken + late, ..letter })
    }
}

/// The members, in virtual time: a member that waits looks for messages, takes all that are there, whatever round
/// they are for, and goes on as far as it gets.
struct Play<'a> {
    /// Of all members, by operation. Each begins when all have ended that before, if there is upkeep and its
    /// number is odd; otherwise when its member has.
    operations: &'a [&'a [Schedule]],
    element: usize,
    compute: f64,
    upkeep: Option<Upkeep>,
    players: Vec<Player>,
    /// When members may look for messages.
    looks: BinaryHeap<Reverse<(u64, u32)>>,
    /// When the operation with a common beginning began, and how many wait for the next.
    began: u64,
    assembled: usize,
}

impl<'a> Play<'a> {
    fn new(operations: &'a [&'a [Schedule]], element: usize, compute: f64, upkeep: Option<Upkeep>) -> Self {
        let players = vec![Player::default(); operations[0].len()];
        let looks = BinaryHeap::new();
        Self { operations, element, compute, upkeep, players, looks, began: 0, assembled: 0 }
    }

    /// How long each operation has taken from its last common beginning on, until it was over everywhere.
    fn play(mut self, model: impl Fn(usize) -> PLogP) -> Option<Vec<Span>> {
        let mut ends = vec![0; self.operations.len()];
        for me in 0..self.players.len() {
            self.carry_on(me, &model, &mut ends, BTreeSet::new());
        }
        (0..self.players.len() as u32).for_each(|me| self.look_again(me));
        while let Some(Reverse((now, me))) = self.looks.pop() {
            let player = &mut self.players[me as usize];
            // It has gone on since then, or looks no more before the next beginning.
            if now < player.clock || !player.has_begun {
                self.look_again(me);
                continue;
            }
            let (mut found, mut due) = (0, BTreeSet::new());
            while let Some(letter) = player.next().filter(|letter| letter.there <= now) {
                player.inbox.pop();
                let cost = model(letter.bytes);
                let busy = if found == 0 { cost.receive } else { cost.more };
                player.gets_from = letter.there + cost.gap_in.picos();
                player.clock = letter.taken.max(player.clock.max(letter.there) + busy.picos());
                found += 1;
                let Some((operation, tag)) = letter.purpose else { continue };
                player.kept.insert((letter.from, operation, tag));
                match self.upkeep {
                    Some(Upkeep { looks: Some(_), .. }) => drop(player.owed.insert(letter.from)),
                    Some(_) => {
                        let answer = model(0);
                        let began = player.clock.saturating_sub(answer.send.picos());
                        player.sends_from = player.sends_from.max(began) + answer.gap.picos();
                    }
                    None => {}
                }
                let untold = player.untold.entry(letter.from).or_default();
                *untold += 1;
                due.insert(letter.from);
            }
            player.looks += 1;
            let most = self.upkeep.and_then(|upkeep| upkeep.looks).unwrap_or(u32::MAX);
            if found == 0 || player.looks >= most {
                self.return_credits(me, &model);
            }
            if found == 0 {
                self.look_again(me);
                continue;
            }
            self.carry_on(me as usize, &model, &mut ends, due);
            self.look_again(me);
        }
        let is_over = self.players.iter().all(|player| player.operation == self.operations.len());
        is_over.then(|| ends.into_iter().map(Span).collect())
    }

    /// Returns the credits that a member owes.
    fn return_credits(&mut self, me: u32, model: &impl Fn(usize) -> PLogP) {
        let player = &mut self.players[me as usize];
        player.looks = 0;
        for to in std::mem::take(&mut player.owed) {
            self.send(me, to, None, 0, model);
        }
    }

    fn work(&self, part: Part) -> u64 {
        ((part.len * self.element) as f64 * self.compute) as u64
    }

    fn send(&mut self, me: u32, to: u32, purpose: Purpose, bytes: usize, model: &impl Fn(usize) -> PLogP) {
        let (cost, player) = (model(bytes), &mut self.players[me as usize]);
        let begin = player.clock.max(player.sends_from);
        (player.clock, player.sends_from) = (player.clock + cost.send.picos(), begin + cost.gap.picos());
        player.owed.remove(&to);
        if purpose.is_some() {
            player.untold.remove(&to);
        }
        let there = begin + cost.one_way.picos().saturating_sub(cost.receive.picos());
        let taken = begin + cost.one_way.picos();
        self.players[to as usize].inbox.push(Reverse(Letter { there, taken, from: me, purpose, bytes }));
        self.look_again(to);
    }

    /// Has a member that waits look when it can and there is something, or it owes something.
    fn look_again(&mut self, me: u32) {
        let player = &self.players[me as usize];
        let there = player.next().map(|letter| letter.there);
        let owes = (!player.owed.is_empty()).then_some(player.clock);
        if let Some(at) = owes.or(there).filter(|_| player.has_begun) {
            self.looks.push(Reverse((at.max(player.clock), me)));
        }
    }

    /// Lets a member do what it can with what it has taken from some, who are told of it if it is time.
    fn carry_on(&mut self, me: usize, model: &impl Fn(usize) -> PLogP, ends: &mut [u64], mut from: BTreeSet<u32>) {
        let most = self.upkeep.map_or(u32::MAX, |upkeep| upkeep.window.div_ceil(2));
        while self.players[me].operation < self.operations.len() {
            if !self.players[me].has_begun {
                if self.upkeep.is_some() && self.players[me].operation % 2 == 1 {
                    return self.assemble(model, ends);
                }
                self.players[me].has_begun = true;
            }
            let is_over = self.go_on(me, model);
            for to in std::mem::take(&mut from) {
                if self.players[me].untold.get(&to).is_some_and(|untold| *untold >= most) {
                    self.players[me].untold.remove(&to);
                    self.send(me as u32, to, None, 0, model);
                }
            }
            if !is_over {
                return;
            }
            let player = &mut self.players[me];
            let end = &mut ends[player.operation];
            *end = (*end).max(player.clock - self.began);
            (player.operation, player.round, player.has_begun) = (player.operation + 1, 0, false);
        }
    }

    /// Goes on with an operation as far as it gets. Whether it is over.
    fn go_on(&mut self, me: usize, model: &impl Fn(usize) -> PLogP) -> bool {
        let schedule = &self.operations[self.players[me].operation][me];
        while self.players[me].round < schedule.rounds() {
            let player = &mut self.players[me];
            let (round, operation) = (schedule.round(player.round), player.operation);
            if !std::mem::replace(&mut player.has_sent, true) {
                for send in round.sends {
                    let purpose = Some((operation, send.tag));
                    self.send(me as u32, send.to, purpose, send.part.len * self.element, model);
                }
            }
            let kept = &self.players[me].kept;
            if !round.receives.iter().all(|receive| kept.contains(&(receive.from, operation, receive.tag))) {
                return false;
            }
            let combined = round.receives.iter().filter(|receive| receive.combine.is_some());
            let locals = round.locals.iter().map(|local| match local {
                Local::Copy { from, .. } | Local::Combine { from, .. } => *from,
            });
            let work: u64 = combined.map(|receive| receive.part).chain(locals).map(|part| self.work(part)).sum();
            let player = &mut self.players[me];
            for receive in round.receives {
                player.kept.remove(&(receive.from, operation, receive.tag));
            }
            player.clock += work;
            (player.round, player.has_sent) = (player.round + 1, false);
        }
        true
    }

    /// One more waits for the common beginning; the last lets all of them begin.
    fn assemble(&mut self, model: &impl Fn(usize) -> PLogP, ends: &mut [u64]) {
        self.assembled += 1;
        if self.assembled < self.players.len() {
            return;
        }
        self.assembled = 0;
        self.began = LEAD + self.players.iter().map(|player| player.clock).max().unwrap_or(0);
        for player in &mut self.players {
            (player.clock, player.has_begun) = (self.began, true);
        }
        for me in 0..self.players.len() {
            self.carry_on(me, model, ends, BTreeSet::new());
        }
        (0..self.players.len() as u32).for_each(|me| self.look_again(me));
    }
}
