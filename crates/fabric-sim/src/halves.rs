//! What a run on two processors could gain: the nodes of a run are taken as two halves, and the time that each
//! event takes is counted for the half to which it belongs, window by window.
//!
//! What happens in one half reaches the other over a link, and so not before the latency of the fastest link
//! between them has passed: the lookahead. A conservative run on two processors executes what happens within a
//! lookahead, a window, in both halves at once and then waits for the slower one. [`measure`] executes runs as
//! always, on the calling thread, and [`Halves`] tells what bounds such a run: the sum over all windows of the
//! time of the slower half.
//!
//! The order of events binds the halves more tightly than links do. A rank that has run ahead goes on at once
//! unless another rank's turn is due before, which may be one of the other half, at any time; only then is it
//! queued. A second sum lets it wait for the other half wherever that decides: it bounds a run that executes the
//! same events in the same order.

use crate::device::Device;
use crate::engine::{Core, Engine};
use crate::in_flight::InFlight;
use crate::network::Network;
use crate::path::Link;
use crate::queue::Event;
use crate::split::Split;
use am_core::Span;
use std::cell::RefCell;
use std::fmt;
use std::time::{Duration, Instant};

thread_local! {
    /// The runs measured so far, while runs of this thread are measured.
    static MEASURED: RefCell<Option<Vec<Halves>>> = const { RefCell::new(None) };
}

/// Measures every run that `work` makes on this thread and that comes to its end; returns what it returns, and
/// what was measured, run by run. Reading the clock makes the runs slower, and its own time is taken off.
pub fn measure<R>(work: impl FnOnce() -> R) -> (R, Vec<Halves>) {
    MEASURED.with_borrow_mut(|measured| *measured = Some(Vec::new()));
    let result = work();
    (result, MEASURED.take().unwrap_or_default())
}

/// A run taken as two halves: the nodes of lower and of higher number, each with the switches nearest to it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Halves {
    /// The least latency of a link between the halves.
    pub lookahead: Span,
    /// Windows in which anything happened.
    pub windows: u64,
    /// Events and turns of ranks, by half.
    pub steps: [u64; 2],
    /// The time of the processor that they took, by half.
    pub took: [Duration; 2],
    /// The time of what concerns both halves at one moment: departures, faults, finite buffers.
    pub common: Duration,
    /// The sum over all windows of the time that the slower half took, and what concerns both.
    pub slower: Duration,
    /// The time of a run in which, besides, each rank waits for the other half wherever the order of events asks
    /// for it.
    pub in_order: Duration,
    /// Packets that went from one half to the other.
    pub crossings: u64,
    /// How often a rank that had run ahead asked whether it was its turn.
    pub asked: u64,
    /// How often only the other half could tell.
    pub undecided: u64,
    /// Events and turns at the very time of one of the other half: which comes first is a matter of the order.
    pub ties: u64,
    /// Events that concern both halves at one moment.
    pub common_steps: u64,
}

impl Halves {
    /// The time of the processor that the run took.
    pub fn total(&self) -> Duration {
        self.took[0] + self.took[1] + self.common
    }

    /// All events and turns of ranks.
    pub fn all_steps(&self) -> u64 {
        self.steps[0] + self.steps[1] + self.common_steps
    }

    /// How much faster than one processor two would be at most, if nothing but links bound them. A window ends
    /// with two meetings, which take `trip`: that of a cache line to the other processor and back. A packet that
    /// crosses costs its new half as much. `merge` goes to each event on one processor, while the other waits.
    pub fn bound(&self, trip: Duration, merge: Duration) -> f64 {
        self.ratio(self.slower, trip, merge)
    }

    /// [`Halves::bound`] of a run in the same order of events.
    pub fn bound_in_order(&self, trip: Duration, merge: Duration) -> f64 {
        self.ratio(self.in_order, trip, merge)
    }

    fn ratio(&self, two: Duration, trip: Duration, merge: Duration) -> f64 {
        let trips = self.windows as f64 + self.crossings as f64 / 2.0;
        let besides = trip.as_secs_f64() * trips + merge.as_secs_f64() * self.all_steps() as f64;
        self.total().as_secs_f64() / (two.as_secs_f64() + besides)
    }
}

impl fmt::Display for Halves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lookahead, windows, steps, took, common, crossings, asked, undecided, ties, .. } = *self;
        let part = |count: u64, of: u64| 100.0 * count as f64 / of.max(1) as f64;
        let of_time = |time: Duration| 100.0 * time.as_secs_f64() / self.total().as_secs_f64();
        let (all, each) = (self.all_steps(), windows.max(1) as f64);
        write!(
            f,
            "{windows} windows of {lookahead}, each {:.1} events in {:.2} us; halves {:.1} : {:.1} % of {all} \
             events and {:.1} : {:.1} % of the time, {:.1} % of it for both; {:.1} % of events cross, {:.1} % \
             are at a time of the other half; {asked} times a rank asked whether it goes on, {:.1} % undecided",
            all as f64 / each,
            1e6 * self.total().as_secs_f64() / each,
            part(steps[0], all),
            part(steps[1], all),
            of_time(took[0]),
            of_time(took[1]),
            of_time(common),
            part(crossings, all),
            part(ties, all),
            part(undecided, asked),
        )
    }
}

/// To whom the time goes that passes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Half(usize),
    Both,
}

/// Measures a run.
pub(crate) struct Meter {
    split: Split,
    owner: Owner,
    last: Instant,
    /// What reading the clock takes.
    clock: Duration,
    /// The packet that entered a link in the last event.
    on_link: Option<u32>,
    /// When the window ends.
    end: u64,
    /// What each half took in it.
    window: [Duration; 2],
    /// Until when each half is busy in a run in order.
    busy: [Duration; 2],
    /// When the last event of each half was.
    times: [u64; 2],
    /// By half: a rank that a turn of the other one made wait, and until when that was busy then.
    cut: [Option<(u32, Duration)>; 2],
    halves: Halves,
}

impl Meter {
    /// For a run that begins, if runs of this thread are measured.
    pub(crate) fn wanted(network: &Network, links: &[Link]) -> Option<Box<Self>> {
        MEASURED.with_borrow(Option::is_some).then(|| Box::new(Self::new(network, links)))
    }

    fn new(network: &Network, links: &[Link]) -> Self {
        let begin = Instant::now();
        const READS: u32 = 1000;
        (0..READS).for_each(|_| {
            std::hint::black_box(Instant::now());
        });
        let clock = begin.elapsed() / READS;
        let split = Split::new(network);
        let halves = Halves {
            lookahead: Span(split.lookahead(network, links)),
            windows: 0,
            steps: [0; 2],
            took: [Duration::ZERO; 2],
            common: Duration::ZERO,
            slower: Duration::ZERO,
            in_order: Duration::ZERO,
            crossings: 0,
            asked: 0,
            undecided: 0,
            ties: 0,
            common_steps: 0,
        };
        Self {
            split,
            owner: Owner::Both,
            last: Instant::now(),
            clock,
            on_link: None,
            end: 0,
            window: [Duration::ZERO; 2],
            busy: [Duration::ZERO; 2],
            times: [u64::MAX; 2],
            cut: [None; 2],
            halves,
        }
    }

    /// From here on the time goes to another owner, at a virtual time.
    fn pass(&mut self, owner: Owner, time: u64) {
        let now = Instant::now();
        let took = now.duration_since(self.last).saturating_sub(self.clock);
        self.last = now;
        match self.owner {
            Owner::Half(half) => {
                self.window[half] += took;
                self.busy[half] += took;
                self.halves.took[half] += took;
            }
            // While one processor does it the other waits.
            Owner::Both => {
                self.halves.common += took;
                self.halves.slower += took;
                self.meet();
                self.busy = self.busy.map(|busy| busy + took);
            }
        }
        self.owner = owner;
        if time >= self.end {
            self.close();
            self.end = time.saturating_add(self.halves.lookahead.0.max(1));
            self.halves.windows += 1;
        }
    }

    /// Both halves wait for each other.
    fn meet(&mut self) {
        self.busy = [self.busy[0].max(self.busy[1]); 2];
    }

    /// A window ends.
    fn close(&mut self) {
        self.halves.slower += self.window[0].max(self.window[1]);
        self.window = [Duration::ZERO; 2];
        self.meet();
    }

    /// The event before this one may have sent a packet over a link to the other half.
    fn look_at_link<B>(&mut self, in_flight: &mut InFlight<B>) {
        if let Some(index) = self.on_link.take() {
            let flight = in_flight.path(index);
            let half = self.split.half(flight.at, flight.goal);
            self.halves.crossings += u64::from(self.owner != Owner::Half(half));
        }
    }

    /// An event or a turn.
    fn step(&mut self, owner: Owner, time: u64) {
        self.pass(owner, time);
        match owner {
            Owner::Half(half) => {
                self.halves.steps[half] += 1;
                self.times[half] = time;
                self.halves.ties += u64::from(self.times[1 - half] == time);
            }
            Owner::Both => self.halves.common_steps += 1,
        }
    }

    /// It is a rank's turn.
    fn turn(&mut self, rank: u32, half: usize, time: u64) {
        self.step(Owner::Half(half), time);
        // Of its half it is the next one: had it not been for the other half, it would have gone on.
        if let Some((waited, until)) = self.cut[half].take()
            && waited == rank
        {
            self.halves.undecided += 1;
            self.busy[half] = self.busy[half].max(until);
        }
    }

    /// A rank that had run ahead has asked whether it goes on at once; `turn` is the rank whose turn is before.
    fn asked(&mut self, rank: u32, half: usize, time: u64, turn: Option<usize>) {
        // What is behind is not over yet where another rank's turn is before.
        let time = if turn.is_none() { time } else { 0 };
        self.pass(Owner::Half(half), time);
        self.halves.asked += 1;
        let other = self.busy[1 - half];
        match turn {
            None => {
                self.halves.undecided += 1;
                self.busy[half] = self.busy[half].max(other);
            }
            Some(turn) if turn != half => self.cut[half] = Some((rank, other)),
            Some(_) => {}
        }
    }

    /// The first turn is next.
    pub(crate) fn begin(&mut self) {
        self.last = Instant::now();
    }

    /// The run has ended.
    pub(crate) fn finish(mut self: Box<Self>, well: bool) {
        if !well {
            return;
        }
        self.pass(Owner::Both, 0);
        self.close();
        self.halves.in_order = self.busy[0];
        MEASURED.with_borrow_mut(|measured| measured.get_or_insert_default().push(self.halves));
    }
}

impl<B: Clone> Core<B> {
    /// The half to which an event belongs.
    fn owner(&mut self, event: Event, meter: &Meter) -> Owner {
        let place = match event {
            Event::Inject(index) | Event::Hop(index) => {
                let flight = self.in_flight.path(index);
                (flight.at, flight.goal)
            }
            Event::Arrive(index) | Event::Deliver(index) | Event::Due(index) => {
                let flight = self.in_flight.path(index);
                (flight.goal, flight.goal)
            }
            Event::Resume(rank) | Event::Alarm(rank) => (self.node_of[rank as usize], 0),
            Event::Timer { node, .. } => (node, 0),
            Event::Fault(_) | Event::Notice | Event::Buffers => return Owner::Both,
        };
        Owner::Half(meter.split.half(place.0, place.1))
    }

    /// An event is about to be executed. Out of the way of runs that are not measured, as the others here.
    #[cold]
    #[inline(never)]
    pub(crate) fn measure_event(&mut self, event: Event, now: u64) {
        let Some(mut meter) = self.meter.take() else { return };
        meter.look_at_link(&mut self.in_flight);
        let owner = self.owner(event, &meter);
        meter.step(owner, now);
        meter.on_link = match event {
            Event::Inject(index) | Event::Hop(index) => Some(index),
            _ => None,
        };
        self.meter = Some(meter);
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn measure_turn(&mut self, rank: u32, time: u64) {
        let Self { meter, node_of, in_flight, .. } = self;
        if let Some(meter) = meter {
            let node = node_of[rank as usize];
            meter.look_at_link(in_flight);
            meter.turn(rank, meter.split.half(node, 0), time);
        }
    }
}

impl<D: Device> Engine<D> {
    /// [`Engine::settle`] for a rank at its time.
    pub(crate) fn settle_for(&mut self, rank: u32, now: u64) -> bool {
        let settled = self.settle(now);
        if self.core.meter.is_some() {
            self.measure_asked(rank, now);
        }
        settled
    }

    #[cold]
    #[inline(never)]
    fn measure_asked(&mut self, rank: u32, now: u64) {
        let turn = self.turn().filter(|(time, _)| *time <= now);
        let Core { meter, node_of, in_flight, .. } = &mut self.core;
        let Some(meter) = meter else { return };
        meter.look_at_link(in_flight);
        let turn = turn.map(|(_, turn)| meter.split.half(node_of[turn as usize], 0));
        meter.asked(rank, meter.split.half(node_of[rank as usize], 0), now, turn);
    }
}
