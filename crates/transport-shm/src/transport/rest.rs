//! Rests of a reader that is close behind its writer.
//!
//! A reader that keeps up with a flood takes each line away while it is still being written, so that every frame
//! costs both sides a transfer, and neither gets away from the other. A reader that finds itself in such a flood
//! therefore leaves the lane alone until its writer is far ahead, which then puts several frames into a line, and
//! reads lines that are all there. It looks at one cell far ahead meanwhile, and no longer than [`LONGEST_REST`].
//!
//! A flood is [`FLOOD`] frames of one cell or less in a row, at [`FLOOD_PACE`] each or faster, while the reader
//! has sent nothing to their writer. A writer that stops within a rest was waiting for something, and the next
//! rest needs four times as many frames.

use super::{NOWHERE, Shm};
use std::time::Duration;
// Not the endpoint's clock, which stands still after 213 days.
pub(super) use std::time::Instant;

/// A place to watch where no frame ever appears, of a lane that is watched all the same.
pub(super) const RESTING: u64 = NOWHERE - (1 << 8);

/// Frames of a flood before its reader rests.
const FLOOD: u32 = 64;

/// Frames of a flood before its reader rests, if rests have only held its writer up.
const MOST: u32 = 1 << 20;

/// What a frame of a flood takes at most.
const FLOOD_PACE: Duration = Duration::from_nanos(300);

/// Nobody waits longer for a frame because its reader rests.
const LONGEST_REST: Duration = Duration::from_micros(30);

/// Cells that a writer is ahead when a rest ends.
const FAR: u64 = 400;

/// What a reader knows of the pace of a lane.
#[derive(Debug)]
pub(super) struct Pace {
    frames: u32,
    since: Instant,
    /// What changes if the reader sends to the writer, or if the writer sends more than a cell holds.
    account: [u64; 2],
    patience: u32,
}

impl Pace {
    pub(super) fn new(since: Instant) -> Self {
        Self { frames: 0, since, account: [0; 2], patience: FLOOD }
    }

    /// Counts frames; whether it is time to look at the pace.
    #[inline(always)]
    pub(super) fn counts(&mut self, frames: usize) -> bool {
        self.frames = self.frames.saturating_add(frames as u32);
        self.frames >= self.patience
    }

    /// Whether the frames counted since the last look were a flood.
    fn is_flood(&mut self, now: Instant, account: [u64; 2]) -> bool {
        let flood = self.account == account && now - self.since <= FLOOD_PACE * self.frames;
        (self.frames, self.since, self.account) = (0, now, account);
        flood
    }

    /// Takes note of how a rest has ended.
    fn rested(&mut self, now: Instant, far: bool) {
        (self.frames, self.since) = (0, now);
        self.patience = if far { FLOOD } else { self.patience.saturating_mul(4).min(MOST) };
    }
}

/// A lane of requests that is left alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    peer: usize,
    since: Instant,
}

impl Shm {
    /// Looks at the pace of a lane, and begins a rest if it was a flood that has been `caught_up` with.
    #[cold]
    pub(super) fn look_at_pace(&mut self, peer: usize, caught_up: bool) {
        let now = Instant::now();
        let (asking, answering) = (&self.asking[peer], &mut self.answering[peer]);
        let sent = asking.requests.written() + answering.replies.written();
        let flood = answering.pace.is_flood(now, [sent, answering.requests.byte_position()]);
        // In a small ring no writer can be far ahead.
        if flood && caught_up && !answering.requests.is_far_behind(FAR) {
            self.begin_rest(peer, now);
        }
    }

    /// Leaves a peer's requests alone, unless another's are.
    pub(super) fn begin_rest(&mut self, peer: usize, since: Instant) {
        if self.rest.is_none() && self.watched[peer][1] != NOWHERE {
            self.rest = Some(Rest { peer, since });
            self.watched[peer][1] = RESTING;
        }
    }

    /// Ends a rest that has lasted long enough.
    #[cold]
    pub(super) fn look_at_rest(&mut self) {
        let Some(Rest { peer, since }) = self.rest else { return };
        let far = self.answering[peer].requests.is_far_behind(FAR);
        let now = Instant::now();
        if far || now - since >= LONGEST_REST {
            self.answering[peer].pace.rested(now, far);
            self.end_rest();
        }
    }

    /// Looks at every lane again from now on.
    #[inline]
    pub(super) fn end_rest(&mut self) {
        // The lane is not watched any more if its writer broke the protocol, or in a fork.
        if let Some(Rest { peer, .. }) = self.rest.take()
            && self.watched[peer][1] == RESTING
        {
            self.watched[peer][1] = self.answering[peer].requests.watch();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Job, JobConfig};
    use am_core::transport::{
        Arrival, Body, Completion, Departure, Membership, ReplyBound, ReplyPath, RequestHeader, Sink,
    };
    use am_core::{LossCause, Payload, Peer, PeerStatus, Transport, Words};
    use std::sync::LazyLock;

    #[derive(Default)]
    struct Count(usize);

    impl Sink for Count {
        fn request(&mut self, _: Arrival<'_>, _: &mut dyn ReplyPath) {
            self.0 += 1;
        }
        fn reply(&mut self, _: Arrival<'_>) {}
        fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
        fn completed(&mut self, _: Completion<'_>) {}
    }

    fn pair() -> (Shm, Shm) {
        let job = Job::create(&JobConfig::new(2)).expect("memory is there");
        let [a, b] = [0, 1].map(|rank| job.join(rank).expect("it is free"));
        (a, b)
    }

    fn send(from: &mut Shm, to: u32, frames: usize) {
        for _ in 0..frames {
            let head = RequestHeader::new(0, ReplyBound::None);
            from.send(Peer(to), head, &Words::EMPTY, Body::None).expect("there is room");
        }
    }

    fn poll(endpoint: &mut Shm) -> usize {
        let mut count = Count::default();
        if endpoint.may_deliver() {
            endpoint.poll(1000, &mut count);
        }
        count.0
    }

    fn at(nanos: u64) -> Instant {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        *BEGAN + Duration::from_nanos(nanos)
    }

    #[test]
    fn a_flood_is_fast_and_one_way() {
        let mut pace = Pace::new(at(0));
        assert!(!pace.counts(63) && pace.counts(1));
        assert!(pace.is_flood(at(64 * 300), [0, 0]));
        assert!(pace.counts(64) && !pace.is_flood(at(64 * 601), [0, 0]), "too slow");
        assert!(pace.counts(100) && !pace.is_flood(at(64 * 602), [1, 0]), "the reader has sent");
        assert!(pace.counts(100) && !pace.is_flood(at(64 * 603), [1, 64]), "large messages");
        assert!(pace.counts(100) && pace.is_flood(at(64 * 604), [1, 64]));
        // Rests in which nothing comes are paid for once in four times as many frames.
        for patience in [256, 1024] {
            pace.rested(at(0), false);
            assert!(!pace.counts(patience - 1) && pace.counts(1));
        }
        (0..40).for_each(|_| pace.rested(at(0), false));
        assert!(!pace.counts(MOST as usize - 1) && pace.counts(1));
        pace.rested(at(0), true);
        assert!(!pace.counts(63) && pace.counts(1));
    }

    /// A lane that rests is left alone until its writer is far ahead, or for a while; nothing is lost by that.
    #[test]
    fn a_rest_ends_when_the_writer_is_far_ahead_or_in_time() {
        let (mut a, mut b) = pair();
        send(&mut a, 1, 10);
        assert_eq!(poll(&mut b), 10);
        // Begun in a future that does not come, so that it is not time that ends it.
        let never = Instant::now() + Duration::from_secs(1_000_000);
        b.begin_rest(1, never);
        assert!(b.rest.is_none(), "nothing ever came from there");
        b.begin_rest(0, never);
        for _ in 0..6 {
            send(&mut a, 1, 60);
            assert_eq!(poll(&mut b), 0);
            assert!(b.work(), "whoever is about to sleep sees them");
        }
        send(&mut a, 1, 41);
        assert_eq!(poll(&mut b), 256, "a quantum");
        assert!(b.rest.is_none());
        assert_eq!(poll(&mut b), 145);
        let long_ago = Instant::now();
        while Instant::now() - long_ago < LONGEST_REST {}
        b.begin_rest(0, long_ago);
        send(&mut a, 1, 1);
        assert_eq!(poll(&mut b), 1);
        b.begin_rest(0, long_ago);
        send(&mut a, 1, 1);
        let mut count = Count::default();
        assert_eq!(b.poll(1000, &mut count), 1, "not everyone asks `may_deliver`, as two networks do not");
        b.begin_rest(0, never);
        send(&mut a, 1, 1);
        assert_eq!(poll(&mut b), 0);
        b.flush();
        assert_eq!(poll(&mut b), 1, "nobody is left alone any longer");
    }

    /// What a rank sent before it was lost comes before the news of its loss.
    #[test]
    fn news_end_a_rest() {
        let (mut a, mut b) = pair();
        send(&mut a, 1, 1);
        assert_eq!(poll(&mut b), 1);
        let never = Instant::now() + Duration::from_secs(1_000_000);
        b.begin_rest(0, never);
        send(&mut a, 1, 3);
        a.depart(Departure::Panicked);
        assert_eq!(poll(&mut b), 3);
        assert_eq!(b.status(Peer(0)), PeerStatus::Lost(LossCause::Panicked));
        // A rest of a lane that is not watched any more does not have it watched again.
        b.begin_rest(0, never);
        b.break_with(0);
        b.end_rest();
        assert_eq!(b.watched[0], [NOWHERE; 2]);
    }

    /// An endpoint whose lane rests does the same with everything else.
    #[test]
    fn others_are_served_during_a_rest() {
        let job = Job::create(&JobConfig::new(3)).expect("memory is there");
        let [mut a, mut b, mut c] = [0, 1, 2].map(|rank| job.join(rank).expect("it is free"));
        // That somebody begins to send is news, which end a rest.
        send(&mut a, 2, 1);
        send(&mut b, 2, 1);
        assert_eq!(poll(&mut c), 2);
        c.begin_rest(0, Instant::now() + Duration::from_secs(1_000_000));
        send(&mut a, 2, 1);
        send(&mut b, 2, 5);
        assert_eq!(poll(&mut c), 5);
        // To contact the one whose lane rests changes nothing.
        send(&mut c, 0, 1);
        assert_eq!((poll(&mut a), poll(&mut c)), (1, 0));
        c.end_rest();
        assert_eq!((poll(&mut c), c.partners.len()), (1, 2));
    }
}
