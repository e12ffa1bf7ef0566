//! What an endpoint does before it stops looking: it puts everything in order, then sleeps, or has a waker called.

use super::{NOWHERE, Shm};
use crate::bell::Bell;
#[cfg(feature = "event-loop")]
use crate::ear::{Ear, Heard};
use am_core::Instant;
use am_core::transport::{Membership, Notify, Waiting};
#[cfg(feature = "event-loop")]
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
    #[cfg(feature = "event-loop")]
    #[cold]
    pub(super) fn ear_for_event_loops(&mut self) -> Option<OwnedFd> {
        if self.is_fork() {
            return None;
        }
        if self.ear.is_none() {
            self.ear = Ear::new().ok().map(Box::new);
        }
        self.ear.as_ref()?.kernel().descriptor().ok()
    }

    /// Has that readable when something happens, unless something has; where the system does not do so, a waker
    /// called.
    #[cfg(feature = "event-loop")]
    #[cold]
    pub(super) fn listen_for(&mut self, waker: &Waker) -> Notify {
        if self.is_fork() {
            return Notify::Ready;
        }
        let Some(mut ear) = self.ear.take() else { return self.watch_for(waker) };
        let heard = match ear.take() {
            Ok(_) if self.settle() => Ok(Heard::Something),
            Ok(_) => {
                let word = &self.board.parking[self.me.index()];
                ear.listen(word, self.fenced, self.longest_sleep, || self.idle_waker.take() || self.work())
            }
            Err(error) => Err(error),
        };
        let Ok(heard) = heard else { return self.watch_for(waker) };
        self.ear = Some(ear);
        match heard {
            Heard::Something => Notify::Ready,
            Heard::NothingYet => Notify::Armed,
        }
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

    #[cfg(feature = "event-loop")]
    mod event_loop {
        use crate::transport::Shm;
        use crate::{Job, JobConfig};
        use am_core::transport::{
            Arrival, Notify, ReplyBound, ReplyPath, RequestHeader, Sink, Transport, Waiting,
        };
        use am_core::{Payload, Peer, Words};
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use nix::sched::{CloneFlags, unshare};
        use std::os::fd::{AsFd, OwnedFd};
        use std::sync::Arc;
        use std::sync::mpsc::{Sender, channel};
        use std::task::{Wake, Waker};
        use std::time::Duration;

        fn sends(from: &mut Shm, to: u32) {
            from.short(Peer(to), RequestHeader::new(0, ReplyBound::None), &Words::EMPTY).expect("there is room");
        }

        fn waits(descriptor: &OwnedFd, longest: PollTimeout) -> bool {
            poll(&mut [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)], longest).expect("it is open") != 0
        }

        fn is_readable(descriptor: &OwnedFd) -> bool {
            waits(descriptor, PollTimeout::ZERO)
        }

        /// The descriptor of an endpoint; `None`, and said so, on a system without such.
        fn descriptor(shm: &mut Shm) -> Option<OwnedFd> {
            let descriptor = shm.descriptor();
            if descriptor.is_none() {
                eprintln!("SKIPPED: the kernel has no sleeps on futexes by io_uring, or does not permit them");
            }
            descriptor
        }

        struct Forgets;

        impl Sink for Forgets {
            fn request(&mut self, _: Arrival<'_>, _: &mut dyn ReplyPath) {}

            fn reply(&mut self, _: Arrival<'_>) {}

            fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
        }

        struct Tell(Sender<()>);

        impl Wake for Tell {
            fn wake(self: Arc<Self>) {
                let _ = self.0.send(());
            }
        }

        /// Who sends to an endpoint that listens makes its descriptor readable, as does who tells news; nobody
        /// else does, and not while it looks for itself.
        #[test]
        fn what_comes_is_readable() {
            let job = Job::create(&JobConfig::new(4)).expect("memory is there");
            let [mut a, mut b] = [0, 1].map(|rank| job.join(rank).expect("each rank joins once"));
            let Some(ear) = descriptor(&mut a) else { return };
            let nobody = Waker::noop();
            assert_eq!(a.notify_readable(nobody), Notify::Armed);
            assert!(!is_readable(&ear));
            job.mark_dead(3);
            assert!(is_readable(&ear));
            assert_eq!(a.notify_readable(nobody), Notify::Ready, "a loss is news");
            assert!(!is_readable(&ear));
            assert_eq!(a.notify_readable(nobody), Notify::Armed);
            a.end_notify();
            job.mark_dead(2);
            assert!(!is_readable(&ear));
            assert_eq!(a.notify_readable(nobody), Notify::Ready);
            assert_eq!(a.notify_readable(nobody), Notify::Armed);
            sends(&mut b, 0);
            sends(&mut b, 0);
            assert!(is_readable(&ear));
            assert_eq!(a.notify_readable(nobody), Notify::Ready);
            assert!(!is_readable(&ear));
        }

        /// An endpoint that listened is woken when it waits as others do, and listens again afterwards.
        #[test]
        fn a_wait_after_listening_is_woken() {
            let job = Job::create(&JobConfig::new(3)).expect("memory is there");
            let [mut a, mut b] = [0, 1].map(|rank| job.join(rank).expect("each rank joins once"));
            a.set_longest_sleep(Duration::from_secs(3600));
            let Some(ear) = descriptor(&mut a) else { return };
            assert_eq!(a.notify_readable(Waker::noop()), Notify::Armed);
            let (sender, slept) = channel();
            let sleeper = std::thread::spawn(move || {
                while !a.work() {
                    a.park(None, &mut || false);
                }
                sender.send(()).expect("the test waits");
                a
            });
            sends(&mut b, 0);
            slept.recv_timeout(Duration::from_secs(60)).expect("it is woken");
            let mut a = sleeper.join().expect("it has slept");
            assert_eq!(a.notify_readable(Waker::noop()), Notify::Ready, "nobody has looked at the request");
            job.mark_dead(2);
            assert!(!is_readable(&ear));
        }

        /// Whose sleeps are to be shorter than an event loop's has its waker called, by a thread, from then on.
        #[test]
        fn a_thread_takes_the_place_of_what_cannot_be() {
            let job = Job::create(&JobConfig::new(4)).expect("memory is there");
            let mut a = job.join(0).expect("nobody else has");
            let Some(ear) = descriptor(&mut a) else { return };
            a.set_longest_sleep(Duration::from_millis(900));
            let (sender, told) = channel();
            let waker = Waker::from(Arc::new(Tell(sender)));
            assert_eq!(a.notify_readable(&waker), Notify::Armed);
            assert!(a.bell.is_some() && a.ear.is_none());
            job.mark_dead(3);
            assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(()));
            assert!(!is_readable(&ear));
        }

        /// An endpoint takes one descriptor for it, whoever wakes it none, and both have all closed in the end.
        #[test]
        fn an_endpoint_takes_one_descriptor() {
            let counted = std::thread::spawn(|| {
                unshare(CloneFlags::CLONE_FILES).expect("a thread may have descriptors of its own");
                let open = || std::fs::read_dir("/proc/thread-self/fd").expect("it is there").count();
                let before = open();
                {
                    let job = Job::create(&JobConfig::new(2)).expect("memory is there");
                    let [mut a, mut b] = [0, 1].map(|rank| job.join(rank).expect("each rank joins once"));
                    let joined = open();
                    let Some(ear) = descriptor(&mut a) else { return };
                    assert_eq!(open(), joined + 2, "the endpoint's own and this one");
                    for _ in 0..10 {
                        while a.notify_readable(Waker::noop()) == Notify::Ready {
                            a.poll(usize::MAX, &mut Forgets);
                        }
                        sends(&mut b, 0);
                        assert!(waits(&ear, PollTimeout::NONE));
                    }
                    assert_eq!(open(), joined + 2);
                }
                assert_eq!(open(), before);
            });
            counted.join().expect("the counts are right");
        }
    }
}
