//! Runs of which each half of the machine has its own engine, on one processor or on two.
//!
//! A half executes the events of its nodes up to the end of a *window*, then both halves tell each other what has
//! crossed, and how far each may go on: up to when the first event of the other one can reach it over the fastest
//! link between them. What a half does depends on its own events and on what it is told at these times alone. So
//! a run is the same whether one thread executes the halves by turns or two threads at once; nothing but
//! [`Meeting`] is shared by two threads.

use crate::away::{Crossing, News, follows};
use crate::config::{Config, NetworkModel, Plan};
use crate::context::Context;
use crate::engine::{Core, Engine, NextStep};
use crate::error::{ConfigError, DeadlineMissed, Deadlock, RunError, Waiting};
use crate::limits;
use crate::meeting::Meeting;
use crate::path::Link;
use crate::report::Report;
use crate::routing::Algorithm;
use crate::run::{Program, Rank, Sim, coroutine, own_stages, ranks_by_node, resume};
use crate::split::Split;
use am_core::Instant;
use std::cell::RefCell;
use std::rc::Rc;
use std::thread;

/// How many threads execute the two halves of a machine in [`Sim::run_halves`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processors {
    /// The calling thread, one half after the other.
    #[default]
    One,
    /// The calling thread and another one, both halves at once.
    Two,
}

impl Sim {
    /// [`Sim::run_with`] in two halves: the nodes of lower and of higher number, each with the switches nearest to
    /// them, on one processor or on two. What the run brings is the same on both, to the last bit of its hash.
    ///
    /// `half` is called once for each half, on the half's thread; it makes the devices of all nodes, and a program
    /// for the half's ranks. What devices and programs share by `Rc` they share within a half alone; what ranks of
    /// both have to know they [announce](Context::announce).
    ///
    /// It is not the order of events of [`Sim::run_with`]: events of both halves at one moment may come in another
    /// order, and ranks learn of what was announced up to a notice or a window later, of departures up to a notice
    /// or two windows. A window is at most twice the latency of the fastest link between the halves. The hash and
    /// the number of events are others.
    ///
    /// # Errors
    /// As [`Sim::run`]; [`RunError::Thread`] if the system has no second thread; and faults, limited queues,
    /// finite buffers, ways that are drawn or adaptive, and links
    /// without latency between the halves, since they concern both halves at one moment.
    pub fn run_halves<D, R, M, F>(
        config: &Config,
        processors: Processors,
        half: impl Fn() -> (M, F) + Sync,
    ) -> Result<Report<R>, RunError>
    where
        D: Crossing,
        R: Send + 'static,
        M: FnMut(u32, &[u32]) -> D,
        F: Fn(Context<'_, D>) -> R + 'static,
    {
        check(config)?;
        limits::check(config.ranks, config.stack_bytes)?;
        type Results<R> = Rc<RefCell<Vec<(u32, R)>>>;
        let begin = |own: usize| -> Result<(Side<D>, Results<R>), RunError> {
            let (mut device, program) = half();
            let results = Results::<R>::default();
            let returned = Rc::clone(&results);
            let program = move |context: Context<'_, D>| {
                let rank = context.rank();
                let result = program(context);
                returned.borrow_mut().push((rank, result));
            };
            Ok((Side::new(config, own, &mut device, Rc::new(program))?, results))
        };
        let finish = |(side, results): (Side<D>, Results<R>), ending| (side.finish(ending), results.take());
        let sides = match processors {
            Processors::One => {
                let mut sides = [begin(0)?, begin(1)?];
                let [one, other] = &mut sides;
                let ending = by_turns([&mut one.0, &mut other.0]);
                sides.map(|side| finish(side, ending))
            }
            Processors::Two => {
                let meeting = Meeting::new();
                let work = |own: usize| {
                    let place = meeting.attend(own);
                    let mut side = begin(own)?;
                    let ending = side.0.run(|told| place.exchange(told));
                    Ok::<_, RunError>(finish(side, ending))
                };
                let [one, other] = thread::scope(|scope| {
                    let other = thread::Builder::new().spawn_scoped(scope, || work(1));
                    let other = other.map_err(|source| RunError::Thread { source })?;
                    let one = work(0);
                    let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                    Ok::<_, RunError>([one, other])
                })?;
                [one?, other?]
            }
        };
        let [(one, mut results), (other, more)] = sides;
        let report = join(one, other)?;
        results.extend(more);
        let mut of_ranks: Vec<Option<R>> = Vec::new();
        of_ranks.resize_with(config.ranks as usize, || None);
        results.into_iter().for_each(|(rank, result)| of_ranks[rank as usize] = Some(result));
        Ok(report.with_results(of_ranks))
    }
}

/// Refuses what concerns both halves at one moment.
fn check(config: &Config) -> Result<(), ConfigError> {
    let refused = |other: &str, reason: &str| {
        let reason = format!("{reason}; run it in one piece");
        Err(ConfigError::Contradiction { field: "processors".into(), other: other.into(), reason })
    };
    if config.model != NetworkModel::default() {
        return refused("model", "the buffers of a switch concern both halves of a machine at one moment");
    }
    let plan = config.compile()?;
    if plan.fault_rng.any || !plan.scheduled_faults.is_empty() {
        return refused("faults", "faults are drawn for both halves of a machine in one order");
    }
    if plan.link_rules.iter().any(|rules| rules.mtu != u32::MAX || rules.queue != u32::MAX) {
        return refused("faults.links", "packets that links drop are not told of in the other half of a machine");
    }
    if matches!(plan.network.algorithm, Algorithm::Valiant | Algorithm::Adaptive) {
        return refused("routing.algorithm", "ways are drawn for both halves of a machine in one order");
    }
    if lookahead(&plan) == 0 {
        let reason = "links between the halves of a machine need a latency, which is the time that one half may be \
                      ahead of the other";
        return refused("the latency of links", reason);
    }
    Ok(())
}

fn lookahead(plan: &Plan) -> u64 {
    let links: Vec<Link> = plan.link_rules.iter().map(|rules| Link::new(rules, u32::MAX)).collect();
    Split::new(&plan.network).lookahead(&plan.network, &links)
}

/// One half while it runs.
struct Side<D: Crossing> {
    own: usize,
    machine: Rc<RefCell<Engine<D>>>,
    /// The half's ranks, and the place of each rank among them.
    coroutines: Vec<Rank>,
    places: Vec<u32>,
    lookahead: u64,
    deadline: u64,
    notice: u64,
    /// Until when each half may execute events; both know both.
    bounds: [u64; 2],
    failure: Option<(Instant, u32, RunError)>,
    /// When the last rank of both halves ended.
    ended: u64,
}

/// What a half says of itself after a window.
#[derive(Clone, Copy)]
struct Standing {
    /// Its next event, and the first one in the other half that follows from what it tells.
    next: u64,
    follows: u64,
    /// Ranks that have not ended; when the last one ended if all have.
    remaining: u32,
    ended: u64,
    failed: bool,
    /// Ranks wait that an orderly end has not woken.
    withheld: bool,
    /// The time of the event executed last.
    time: u64,
}

/// What a half tells the other one after a window.
struct Told<S> {
    standing: Standing,
    news: Vec<News<S>>,
}

/// How a run ends.
#[derive(Clone, Copy)]
enum Ending {
    Returned,
    Failed,
    Deadlock,
    DeadlineMissed,
}

/// What both halves do next.
enum Next {
    /// They execute what happens before these times.
    Windows([u64; 2]),
    /// They wake at this time who has not been woken by an orderly end.
    TellTheRest(u64),
    End(Ending),
}

/// What both halves do next, by what both say.
fn decide(standings: [&Standing; 2], lookahead: u64, deadline: u64) -> Next {
    let any = |is: fn(&Standing) -> bool| standings.iter().any(|standing| is(standing));
    if any(|standing| standing.failed) {
        return Next::End(Ending::Failed);
    }
    if !any(|standing| standing.remaining != 0) {
        return Next::End(Ending::Returned);
    }
    let [one, other] = standings;
    let firsts = [one.next.min(other.follows), other.next.min(one.follows)];
    let first = firsts[0].min(firsts[1]);
    if first == u64::MAX {
        let time = one.time.max(other.time);
        return if any(|standing| standing.withheld) {
            Next::TellTheRest(time)
        } else {
            Next::End(Ending::Deadlock)
        };
    }
    if first > deadline {
        return Next::End(Ending::DeadlineMissed);
    }
    // What comes from the other half follows from its first event, or from one that this half causes there.
    let bound = |own: u64, other: u64| other.min(own.saturating_add(lookahead)).saturating_add(lookahead);
    let bounds = [bound(firsts[0], firsts[1]), bound(firsts[1], firsts[0])];
    Next::Windows(bounds.map(|bound| bound.min(deadline.saturating_add(1))))
}

impl<D: Crossing> Side<D> {
    fn new(
        config: &Config,
        own: usize,
        device: &mut dyn FnMut(u32, &[u32]) -> D,
        program: Rc<Program<D>>,
    ) -> Result<Self, RunError> {
        let plan = config.compile()?;
        let (split, lookahead) = (Split::new(&plan.network), lookahead(&plan));
        let ranks_of = ranks_by_node(&plan);
        let devices =
            ranks_of.iter().enumerate().map(|(node, ranks)| device(node as u32, ranks)).collect::<Vec<D>>();
        let lives = |node: u32| split.half(node, node) == own;
        let ranks: Vec<u32> = (0..config.ranks).filter(|rank| lives(plan.node_of[*rank as usize])).collect();
        let mut core = Core::new(plan, config.trace, lives);
        own_stages(&mut core, &devices)?;
        core.halve(split, own);
        // One more than there are: a half without ranks goes on for the other one.
        core.remaining = ranks.len() as u32 + 1;
        let (deadline, notice) = (core.deadline, core.members.notice_time());
        let machine = Rc::new(RefCell::new(Engine::new(core, devices)));
        let mut places = vec![u32::MAX; config.ranks as usize];
        let mut coroutines = Vec::with_capacity(ranks.len());
        for (place, rank) in ranks.into_iter().enumerate() {
            places[rank as usize] = place as u32;
            coroutines.push(coroutine(config, rank, &machine, &program)?);
        }
        // What ranks announce before anything happens both halves know from then on.
        let bounds = [1; 2];
        Ok(Self { own, machine, coroutines, places, lookahead, deadline, notice, bounds, failure: None, ended: 0 })
    }

    /// Executes what happens before the half's bound.
    fn window(&mut self) {
        let Some(horizon) = self.bounds[self.own].checked_sub(1) else { return };
        self.machine.borrow_mut().core.horizon = horizon;
        loop {
            let step = self.machine.borrow_mut().next_step();
            let NextStep::Resume(rank) = step else { return };
            let place = self.places[rank as usize] as usize;
            if let Err(failure) = resume(&self.machine, &mut self.coroutines[place], rank) {
                let at = Instant(self.machine.borrow().core.ranks[rank as usize].now);
                self.failure = Some((at, rank, failure));
                return;
            }
        }
    }

    /// What the other half is told after a window.
    fn tell(&mut self) -> Told<D::Sent> {
        let core = &mut self.machine.borrow_mut().core;
        let news = core.take_news();
        let bound = self.bounds[1 - self.own];
        let follows =
            news.iter().map(|news| follows(news, self.notice, self.lookahead, bound)).min().unwrap_or(u64::MAX);
        let remaining = core.remaining - 1;
        let standing = Standing {
            next: core.queue.next_time().unwrap_or(u64::MAX),
            follows,
            remaining,
            ended: if remaining == 0 { Report::ended(core) } else { 0 },
            failed: self.failure.is_some(),
            withheld: core.withheld,
            time: core.time,
        };
        Told { standing, news: news.into_iter().map(|news| news.map(D::send_over)).collect() }
    }

    /// Reads what the other half has told, and goes on as both have decided; how the run ends if it does.
    fn go_on(&mut self, news: Vec<News<D::Sent>>, standings: [&Standing; 2]) -> Option<Ending> {
        let mut machine = self.machine.borrow_mut();
        let bound = self.bounds[self.own];
        let announced = news.iter().any(|news| matches!(news, News::Announced { .. }));
        news.into_iter().for_each(|news| machine.take_in(news, bound));
        if announced {
            (0..self.places.len() as u32).for_each(|rank| machine.core.wake(rank, bound));
        }
        match decide(standings, self.lookahead, self.deadline) {
            Next::Windows(bounds) => self.bounds = bounds,
            Next::TellTheRest(time) => {
                machine.core.tell_the_rest(time);
                // Nobody knows yet what comes of it.
                self.bounds = [0; 2];
            }
            Next::End(ending) => {
                self.ended = standings[0].ended.max(standings[1].ended);
                return Some(ending);
            }
        }
        None
    }

    /// Runs the half, whose thread exchanges what is told with the other half's. Fails if that is gone.
    fn run(&mut self, exchange: impl Fn(Told<D::Sent>) -> Option<Told<D::Sent>>) -> Ending {
        loop {
            self.window();
            let told = self.tell();
            let own = told.standing;
            let Some(Told { standing: other, news }) = exchange(told) else { return Ending::Failed };
            let standings = if self.own == 0 { [&own, &other] } else { [&other, &own] };
            if let Some(ending) = self.go_on(news, standings) {
                return ending;
            }
        }
    }

    /// Unwinds the ranks that are still suspended; what the half leaves behind.
    fn finish(self, ending: Ending) -> Finished {
        let Self { machine, coroutines, failure, ended, .. } = self;
        let waiting = match ending {
            Ending::Deadlock | Ending::DeadlineMissed => machine.borrow().waiting(),
            Ending::Returned | Ending::Failed => Vec::new(),
        };
        machine.borrow_mut().core.end();
        drop(coroutines);
        let core = &mut machine.borrow_mut().core;
        let remaining = core.remaining - 1;
        let (report, links) = Report::of(core, ended);
        Finished { ending, failure, waiting, remaining, deadline: core.deadline, report, links }
    }
}

/// Runs both halves on the calling thread.
fn by_turns<D: Crossing>(mut sides: [&mut Side<D>; 2]) -> Ending {
    loop {
        sides.iter_mut().for_each(|side| side.window());
        let [one, other] = sides.each_mut().map(|side| side.tell());
        let standings = [&one.standing, &other.standing];
        let [ending, _] = [sides[0].go_on(other.news, standings), sides[1].go_on(one.news, standings)];
        if let Some(ending) = ending {
            return ending;
        }
    }
}

/// What a half leaves behind.
struct Finished {
    ending: Ending,
    failure: Option<(Instant, u32, RunError)>,
    waiting: Vec<Waiting>,
    remaining: u32,
    deadline: u64,
    report: Report<()>,
    /// The numbers of the report's links.
    links: Vec<u32>,
}

/// The report of both halves.
fn join(one: Finished, other: Finished) -> Result<Report<()>, RunError> {
    let (ending, deadline) = (one.ending, Instant(one.deadline));
    // The half that failed first; the other one may have failed in the same window.
    let failures = [one.failure, other.failure].into_iter().flatten();
    if let Some((.., failure)) = failures.min_by_key(|(at, rank, _)| (*at, *rank)) {
        return Err(failure);
    }
    let mut waiting = one.waiting;
    waiting.extend(other.waiting);
    waiting.sort_by_key(|waiting| waiting.rank);
    match ending {
        Ending::Deadlock => {
            let at = waiting.iter().map(|waiting| waiting.since).max().unwrap_or_default();
            Err(RunError::Deadlock(Box::new(Deadlock { at, waiting, held: 0 })))
        }
        Ending::DeadlineMissed => {
            let remaining = one.remaining + other.remaining;
            Err(RunError::DeadlineMissed(Box::new(DeadlineMissed { deadline, remaining, waiting })))
        }
        Ending::Returned | Ending::Failed => {
            Ok(Report::joined([one.report, other.report], [one.links, other.links]))
        }
    }
}
