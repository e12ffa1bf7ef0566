//! The far transport beside a near one: polled while it has work, left to watch itself while it has none.
//!
//! Polling a network costs a system call or more, a near message a fraction of that. So after some fruitless polls
//! the far transport is asked to call back, and from then on a poll costs one load. Any use of it brings it back
//! to being polled.

use crate::transport::{Notify, Sink, Transport};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

/// Fruitless polls after which the far transport watches itself: some tens of microseconds of system calls.
const PATIENCE: u32 = 64;

/// Ends the near transport's idling when the far one calls back.
struct Bell {
    rung: AtomicBool,
    near: Option<Waker>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Release: whoever sees the bell rung sees what rang it.
        self.rung.store(true, Ordering::Release);
        if let Some(near) = &self.near {
            near.wake_by_ref();
        }
    }
}

/// Who looks after the far transport.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Fruitless polls in a row.
    fruitless: u32,
    /// Whether the transport will ring the bell; until then it is not polled.
    left_alone: bool,
}

impl Watch {
    /// Polls once more before leaving the transport alone again: a question may have taken in what the bell was to
    /// tell.
    #[inline]
    pub(super) fn look(&mut self) {
        if self.left_alone {
            *self = Self { left_alone: false, fruitless: PATIENCE - 1 };
        }
    }

    /// Goes back to polling.
    #[inline]
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }
}

pub(super) struct Far<F> {
    pub(super) transport: F,
    pub(super) watch: Watch,
    bell: Arc<Bell>,
    waker: Waker,
    /// Whether it can be left to itself at all.
    can_watch: bool,
}

impl<F: std::fmt::Debug> std::fmt::Debug for Far<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Far")
            .field("transport", &self.transport)
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}

impl<F: Transport> Far<F> {
    /// `near` ends the idling of the transport that the rank idles in; without it the far one is polled for ever.
    pub(super) fn new(transport: F, near: Option<Waker>) -> Self {
        let can_watch = near.is_some();
        let bell = Arc::new(Bell { rung: AtomicBool::new(false), near });
        let waker = Waker::from(Arc::clone(&bell));
        Self { transport, watch: Watch::default(), bell, waker, can_watch }
    }

    /// Takes note of a message: if it was sent, something will come back.
    #[inline]
    pub(super) fn sent(&mut self, accepted: bool) {
        if accepted {
            self.watch.end();
        } else {
            self.refused();
        }
    }

    /// Takes note of a question.
    #[inline]
    pub(super) fn asked(&mut self) {
        self.watch.look();
    }

    /// Takes note of a refusal. The transport, which may want to send something now, is asked anew to call back,
    /// and not polled: whoever is refused tries again before each sleep, and would never sleep.
    #[inline]
    fn refused(&mut self) {
        if self.watch.left_alone && self.transport.notify(&self.waker) != Notify::Armed {
            self.watch.end();
        }
    }

    #[inline]
    pub(super) fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        // Acquire: pairs with the Release in `wake_by_ref`.
        if self.watch.left_alone && !self.bell.rung.load(Ordering::Acquire) {
            return 0;
        }
        self.poll_now(budget, sink)
    }

    fn poll_now<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        if self.watch.left_alone {
            self.watch.end();
        }
        let done = self.transport.poll(budget, sink);
        self.watch.fruitless = if done == 0 { self.watch.fruitless + 1 } else { 0 };
        if self.watch.fruitless == PATIENCE {
            self.leave_alone();
        }
        done
    }

    /// Leaves the transport to itself if it has nothing.
    #[cold]
    fn leave_alone(&mut self) {
        self.bell.rung.store(false, Ordering::Relaxed);
        let left_alone = self.can_watch && self.transport.notify(&self.waker) == Notify::Armed;
        self.watch = Watch { fruitless: 0, left_alone };
    }

    /// What a fruitless look at both transports means: whether the near one may idle, since this one is watched.
    #[inline]
    pub(super) fn rest(&mut self) -> bool {
        if !self.watch.left_alone {
            std::hint::spin_loop();
        }
        self.watch.left_alone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Words;
    use crate::loopback::{LoopbackConfig, network};
    use crate::transport::{Arrival, Body, ReplyBound, ReplyPath, RequestHeader};
    use crate::{Payload, Peer};

    /// Counts what it is handed.
    struct Count(usize);

    impl Sink for Count {
        fn request(&mut self, _: Arrival<'_>, _: &mut dyn ReplyPath) {
            self.0 += 1;
        }

        fn reply(&mut self, _: Arrival<'_>) {}

        fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
    }

    #[test]
    fn the_refused_may_sleep_until_news() {
        let mut ranks = network(2, LoopbackConfig::default());
        let (mut other, own) = (ranks.remove(1), ranks.remove(0));
        let (mut far, mut sink) = (Far::new(own, Some(Waker::noop().clone())), Count(0));
        // Who is left alone after some polls stays so when refused again and again.
        (0..PATIENCE).for_each(|_| assert_eq!(far.poll(8, &mut sink), 0));
        for _ in 0..3 {
            far.sent(false);
            assert!(far.rest() && far.poll(8, &mut sink) == 0);
        }
        // What comes then is polled, whether a refusal precedes the poll or not.
        for refusals in 0..2 {
            let head = RequestHeader::new(0, ReplyBound::None);
            other.send(Peer(0), head, &Words::EMPTY, Body::None).unwrap();
            (0..refusals).for_each(|_| far.sent(false));
            assert_eq!(far.poll(8, &mut sink), 1);
            while !far.rest() {
                far.poll(8, &mut sink);
            }
        }
        assert_eq!(sink.0, 2);
        // A message that was sent brings answers.
        far.sent(true);
        assert!(!far.rest());
    }
}
