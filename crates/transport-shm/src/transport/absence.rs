//! What an endpoint does before it stops looking: it puts everything in order, then sleeps, or has a waker called.

use super::{NOWHERE, Shm};
use crate::bell::Bell;
use crate::door::Pipe;
use am_core::Instant;
use am_core::transport::{Membership, Notify, Waiting};
use std::os::fd::OwnedFd;
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

    /// What becomes readable when [`listen_for`](Self::listen_for) has been called and something happens.
    #[cold]
    pub(super) fn reader(&mut self) -> Option<OwnedFd> {
        if self.is_fork() {
            return None;
        }
        if self.pipe.is_none() {
            self.pipe = Pipe::make(&self.board.endpoints[self.me.index()]);
        }
        self.pipe.as_ref()?.reader()
    }

    /// Has the pipe readable when something happens, unless something has; without a pipe that all can open, a
    /// waker called.
    #[cold]
    pub(super) fn listen_for(&mut self, waker: &Waker) -> Notify {
        let word = &self.board.parking[self.me.index()];
        if self.pipe.is_none() || word.is_unheard() || self.is_fork() {
            return self.watch_for(waker);
        }
        if self.settle() {
            return Notify::Ready;
        }
        let word = &self.board.parking[self.me.index()];
        match word.listen(self.fenced, self.longest_sleep, || self.idle_waker.take() || self.work()) {
            None => Notify::Ready,
            // Not everyone can be made to fence, and an event loop does not know how often it would have to look.
            Some(longest) if longest < self.longest_sleep => {
                word.end();
                self.watch_for(waker)
            }
            Some(_) => Notify::Armed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Shm;
    use crate::layout::endpoint;
    use crate::{Job, JobConfig};
    use am_core::transport::{Notify, ReplyBound, RequestHeader, Waiting};
    use am_core::{Peer, Words};
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::unistd::read;
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::Arc;
    use std::sync::atomic::Ordering::{Acquire, Relaxed};
    use std::sync::mpsc::{Sender, channel};
    use std::task::{Wake, Waker};
    use std::time::Duration;

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

    fn sends(from: &mut Shm, to: u32) {
        from.short(Peer(to), RequestHeader::new(0, ReplyBound::None), &Words::EMPTY).expect("there is room");
    }

    fn is_readable(pipe: &OwnedFd) -> bool {
        poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO).expect("it is open") != 0
    }

    struct Tell(Sender<()>);

    impl Wake for Tell {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }

    /// Who sends to an endpoint that listens makes its pipe readable, as does who tells news; nobody else does.
    #[test]
    fn a_pipe_is_readable_once_something_is_there() {
        let job = Job::create(&JobConfig::new(4)).expect("memory is there");
        let [mut a, mut b] = [0, 1].map(|rank| job.join(rank).expect("each rank joins once"));
        let (pipe, nobody) = (a.descriptor().expect("the system has pipes"), Waker::noop());
        assert_eq!(a.notify_readable(nobody), Notify::Armed);
        assert!(!is_readable(&pipe));
        job.mark_dead(3);
        assert!(is_readable(&pipe));
        assert_eq!(read(&pipe, &mut [0; 8]), Ok(1));
        assert_eq!(a.notify_readable(nobody), Notify::Ready, "a loss is news");
        // Who looks for itself is not called.
        assert_eq!(a.notify_readable(nobody), Notify::Armed);
        a.end_notify();
        job.mark_dead(2);
        assert!(!is_readable(&pipe));
        assert_eq!(a.notify_readable(nobody), Notify::Ready);
        assert_eq!(a.notify_readable(nobody), Notify::Armed);
        sends(&mut b, 0);
        // Of all that comes before the next look, the first calls.
        sends(&mut b, 0);
        assert_eq!(read(&pipe, &mut [0; 8]), Ok(1));
        assert_eq!(a.notify_readable(nobody), Notify::Ready);
        assert!(!is_readable(&pipe));
    }

    /// Where a pipe can't be opened, the endpoint's thread calls its waker from then on; and no wrong pipe is
    /// written to.
    #[test]
    fn a_thread_takes_the_place_of_a_pipe_that_nobody_opens() {
        let job = Job::create(&JobConfig::new(4)).expect("memory is there");
        let mut a = job.join(0).expect("nobody else has");
        let pipe = a.descriptor().expect("the system has pipes");
        let block = &job.board.endpoints[0];
        block[endpoint::INODE].store(block[endpoint::INODE].load(Relaxed) + 1, Relaxed);
        assert_eq!(a.notify_readable(Waker::noop()), Notify::Armed);
        job.mark_dead(3);
        assert!(!is_readable(&pipe));
        let (sender, told) = channel();
        let waker = Waker::from(Arc::new(Tell(sender)));
        assert_eq!(a.notify_readable(&waker), Notify::Ready);
        assert_eq!(a.notify_readable(&waker), Notify::Armed);
        job.mark_dead(2);
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(()));
        assert!(!is_readable(&pipe));
    }

    /// An endpoint that slept by its pipe sleeps by its word when it waits as others do.
    #[test]
    fn a_wait_after_listening_is_woken() {
        let job = Job::create(&JobConfig::new(3)).expect("memory is there");
        let [mut a, mut b] = [0, 1].map(|rank| job.join(rank).expect("each rank joins once"));
        let _pipe = a.descriptor().expect("the system has pipes");
        assert_eq!(a.notify_readable(Waker::noop()), Notify::Armed);
        a.set_longest_sleep(Duration::from_secs(3600));
        let (sender, slept) = channel();
        let sleeper = std::thread::spawn(move || {
            while !a.work() {
                a.park(None, &mut || false);
            }
            sender.send(()).expect("the test waits");
        });
        sends(&mut b, 0);
        assert_eq!(slept.recv_timeout(Duration::from_secs(60)), Ok(()));
        sleeper.join().expect("it has slept");
    }
}
