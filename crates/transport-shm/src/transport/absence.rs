//! What an endpoint does before it stops looking: it puts everything in order, then sleeps, or has a waker called.

use super::{NOWHERE, Shm};
use crate::bell::Bell;
use am_core::Instant;
use am_core::transport::{Membership, Notify, Waiting};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::task::Waker;
use std::time::Duration;

impl Shm {
    /// Sets how long this endpoint sleeps at most before it looks for itself what there is; one second unless set.
    /// Nothing that comes waits for that look, unless a faulty peer takes back the announcement of this endpoint's
    /// sleep. A request for its [stall report](am_core::stall::request) does.
    pub fn set_longest_sleep(&mut self, longest: Duration) {
        self.longest_sleep = longest;
    }

    /// Gives back what is owed and takes in what is told, as for a long absence; whether something was new.
    fn settle(&mut self) -> bool {
        // A faulty rank can change the count of news, so an endpoint that sleeps looks for them at least this
        // often.
        let losses = self.losses;
        self.note_news(self.news[0].load(Acquire));
        let mut news = self.losses != losses;
        for index in 0..self.partners.len() {
            let peer = self.partners[index] as usize;
            if self.answering[peer].requests.owes() {
                self.answering[peer].requests.publish();
                self.board.parking[peer].notify(self.fenced);
            }
            if self.asking[peer].broken {
                continue;
            }
            let [asked, asks] = self.watched[peer].map(|watched| watched != NOWHERE);
            let sound =
                (!asked || self.asking[peer].replies.sound()) && (!asks || self.answering[peer].requests.sound());
            let fresh = if asked { self.asking[peer].requests.refresh() } else { Ok(false) };
            match fresh {
                Ok(fresh) if sound => news |= fresh,
                _ => self.break_with(peer),
            }
        }
        news
    }

    /// Sleeps until something happens, or peers change something else that is looked for.
    #[cold]
    pub(super) fn park(&mut self, until: Option<Instant>, changed: &mut dyn FnMut() -> bool) {
        if self.is_fork() {
            self.note_news(self.news[0].load(Acquire));
            // Nobody wakes it.
            std::thread::sleep(Duration::from_millis(1));
            return;
        }
        if !self.settle() {
            let longest =
                until.map_or(self.longest_sleep, |until| self.longest_sleep.min((until - self.now()).into()));
            let word = &self.board.parking[self.me.index()];
            word.park(self.fenced, longest, || self.idle_waker.take() || self.work() || changed());
            if self.bell.as_ref().is_some_and(Bell::is_armed) {
                // Sleep is announced no more, so senders would not ring for the waker.
                word.rouse();
            }
        }
        self.backoff.reset();
    }

    /// Has a waker called when something happens, unless something has. Starts a thread when it is first used;
    /// without one the transport has to be polled.
    #[cold]
    pub(super) fn watch_for(&mut self, waker: &Waker) -> Notify {
        if self.is_fork() {
            return Notify::Ready;
        }
        if self.bell.is_none() {
            let Ok(bell) = Bell::start(Arc::clone(&self.board), self.me) else { return Notify::Never };
            self.bell = Some(bell);
        }
        if self.settle() {
            return Notify::Ready;
        }
        let word = &self.board.parking[self.me.index()];
        let Some(longest) = word.arm(self.fenced, self.longest_sleep, || self.idle_waker.take() || self.work())
        else {
            return Notify::Ready;
        };
        let Some(bell) = &self.bell else { return Notify::Never };
        bell.arm(waker.clone(), longest);
        Notify::Armed
    }
}

#[cfg(test)]
mod tests {
    use crate::{Job, JobConfig};
    use am_core::Peer;
    use std::sync::atomic::Ordering::Acquire;

    /// Whoever is about to sleep looks at the peers that it talks with, each once, however large the job is.
    #[test]
    fn partners_are_those_talked_with() {
        let job = Job::create(&JobConfig::new(40)).expect("memory is there");
        let [mut a, mut b, mut c] = [3, 20, 39].map(|rank| job.join(rank).expect("each rank joins once"));
        (0..2).for_each(|_| a.contact(Peer(20)));
        for shm in [&mut a, &mut b, &mut c] {
            shm.settle();
        }
        assert_eq!([&a, &b, &c].map(|shm| shm.partners.as_slice()), [&[20][..], &[3], &[]]);
        b.contact(Peer(3));
        b.contact(Peer(39));
        for shm in [&mut a, &mut b, &mut c] {
            shm.note_news(shm.news[0].load(Acquire));
        }
        assert_eq!([&a, &b, &c].map(|shm| shm.partners.as_slice()), [&[20][..], &[3, 39], &[20]]);
    }
}
