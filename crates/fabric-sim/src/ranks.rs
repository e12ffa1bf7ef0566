//! The ranks as the machine sees them: their clocks, who runs, who waits for what and until when.

use crate::engine::Core;
use crate::error::WaitFor;
use crate::queue::Event;
use crate::stage::NORMAL;

/// What a rank is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Its code is running.
    Running,
    /// An event, one only, will let it go on.
    Queued,
    Waiting(WaitFor),
    Done,
    /// Its node has stopped.
    Stopped,
}

pub(crate) struct RankState {
    /// Its clock. While it runs it may be ahead of the machine, or behind it if it was resumed late.
    pub(crate) now: u64,
    pub(crate) state: State,
    /// When the timer of its wait runs out, if one is set.
    timer: Option<u64>,
    /// While it waits: what its clock will show when it goes on, as far as that is known.
    pub(crate) due: u64,
    /// While it waits: the machine need not resume it before.
    lookahead: u64,
    /// The machine's time when it was last resumed: everything before has happened then.
    pub(crate) resumed: Option<u64>,
    /// Until when it knows everything that has happened.
    pub(crate) synced: u64,
    /// Something has happened that it has not looked at.
    pub(crate) news: bool,
    /// How slow its node is.
    pub(crate) slowness: u64,
    /// State of its random numbers.
    pub(crate) random: u64,
}

impl RankState {
    pub(crate) fn new(random: u64) -> Self {
        Self {
            now: 0,
            state: State::Queued,
            timer: None,
            due: NEVER,
            lookahead: 0,
            resumed: None,
            synced: 0,
            news: false,
            slowness: NORMAL,
            random,
        }
    }
}

/// The time of what is not known to come.
const NEVER: u64 = u64::MAX;

impl<B: Clone> Core<B> {
    /// Lets a rank go on if it waits. One that ran ahead before it began to goes on at its own time; one that
    /// waits with lookahead will go on as of now.
    #[inline]
    pub(crate) fn wake(&mut self, rank: u32, now: u64) {
        let state = &mut self.ranks[rank as usize];
        state.news = true;
        if let State::Waiting(_) = state.state {
            state.due = state.due.min(now);
            if state.lookahead > now {
                let at = state.lookahead;
                self.set_timer(rank, at);
            } else {
                self.go_on(rank, now);
            }
        }
    }

    /// Ends a rank's wait.
    pub(crate) fn go_on(&mut self, rank: u32, now: u64) {
        let state = &mut self.ranks[rank as usize];
        state.now = state.now.max(state.due.min(now));
        let at = state.now.max(now);
        self.enqueue(rank, at);
    }

    /// Lets a rank go on at a time.
    #[inline]
    pub(crate) fn enqueue(&mut self, rank: u32, at: u64) {
        self.ranks[rank as usize].state = State::Queued;
        self.queue.push(at, Event::Resume(rank));
    }

    /// Makes a rank wait, for at most until a time; the machine may let it go on later than that, at a time of
    /// `lookahead`.
    pub(crate) fn wait(&mut self, rank: u32, until: Option<u64>, lookahead: u64, wanted: WaitFor) {
        let state = &mut self.ranks[rank as usize];
        state.state = State::Waiting(wanted);
        (state.due, state.lookahead) = (until.unwrap_or(NEVER), lookahead.min(self.deadline));
        if let Some(until) = until {
            let at = until.max(state.lookahead);
            self.set_timer(rank, at);
        }
    }

    /// Sets a rank's timer. One serves many waits: it is set anew only for an earlier end.
    fn set_timer(&mut self, rank: u32, at: u64) {
        let at = at.max(self.time);
        let state = &mut self.ranks[rank as usize];
        if state.timer.is_none_or(|timer| timer > at) {
            state.timer = Some(at);
            self.queue.push(at, Event::Alarm(rank));
        }
    }

    /// A timer of a rank has run out.
    pub(crate) fn alarm(&mut self, rank: u32, now: u64) {
        let state = &mut self.ranks[rank as usize];
        if state.timer != Some(now) {
            return;
        }
        state.timer = None;
        let at = state.due.max(state.lookahead);
        match state.state {
            State::Waiting(_) if state.due == NEVER => {}
            State::Waiting(_) if at <= now => self.go_on(rank, now),
            State::Waiting(_) => self.set_timer(rank, at),
            _ => {}
        }
    }
}
