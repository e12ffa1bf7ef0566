//! The ranks as the machine sees them: their clocks, who runs, who waits for what and until when.

use crate::error::WaitFor;
use crate::machine::Core;
use crate::queue::Event;
use crate::stage::NORMAL;

/// What a rank is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Its code is running.
    Running,
    /// An event, one only, will let it go on.
    Queued,
    Waiting(WaitFor, Option<u64>),
    Done,
    /// Its node has stopped.
    Stopped,
}

pub(crate) struct RankState {
    pub(crate) now: u64,
    pub(crate) state: State,
    /// When the timer of its wait runs out, if one is set.
    timer: Option<u64>,
    /// When it was last resumed: everything before has happened then.
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
        let (state, timer, resumed) = (State::Queued, None, None);
        Self { now: 0, state, timer, resumed, synced: 0, news: false, slowness: NORMAL, random }
    }
}

impl<B: Clone> Core<B> {
    /// Lets a rank go on if it waits. One that ran ahead before it began to goes on at its own time.
    #[inline]
    pub(crate) fn wake(&mut self, rank: u32, now: u64) {
        let state = &mut self.ranks[rank as usize];
        state.news = true;
        if matches!(state.state, State::Waiting(..)) {
            let at = state.now.max(now);
            self.enqueue(rank, at);
        }
    }

    /// Lets a rank go on at a time.
    #[inline]
    pub(crate) fn enqueue(&mut self, rank: u32, at: u64) {
        self.ranks[rank as usize].state = State::Queued;
        self.queue.push(at, Event::Resume(rank));
    }

    /// Makes a rank wait, for at most until a time.
    pub(crate) fn wait(&mut self, rank: u32, until: Option<u64>, wanted: WaitFor) {
        let state = &mut self.ranks[rank as usize];
        state.state = State::Waiting(wanted, until);
        // One timer serves many waits: it is set anew only for an earlier end.
        if let Some(until) = until
            && state.timer.is_none_or(|timer| timer > until)
        {
            state.timer = Some(until);
            self.queue.push(until, Event::Alarm(rank));
        }
    }

    /// A timer of a rank has run out.
    pub(crate) fn alarm(&mut self, rank: u32, now: u64) {
        let state = &mut self.ranks[rank as usize];
        if state.timer != Some(now) {
            return;
        }
        state.timer = None;
        if let State::Waiting(wanted, Some(until)) = state.state {
            if until <= now {
                self.enqueue(rank, now);
            } else {
                self.wait(rank, Some(until), wanted);
            }
        }
    }
}
