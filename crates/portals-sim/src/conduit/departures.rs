//! When a peer's departure may be believed.
//!
//! The simulation tells of a departure some time after the peer's last packet has landed, and of several at once,
//! so that the last of them may be told early: an event takes time from the packet's arrival to its queue. So a
//! departure counts from when it was first seen and that time has passed: then everything that the peer sent can
//! be polled.

use am_core::{Instant, PeerStatus, Span};

/// What was seen, and when.
#[derive(Clone, Debug, Default)]
pub(super) struct Departures {
    lag: Span,
    /// Departures that were asked about, until they count.
    seen: Vec<(u32, Instant)>,
    /// Losses that were seen, since when, and those that count.
    losses: (u32, Instant, u32),
}

impl Departures {
    pub(super) fn new(lag: Span) -> Self {
        Self { lag, ..Self::default() }
    }

    /// What counts of a peer's status, where so many losses are known.
    pub(super) fn status(&mut self, peer: u32, known: PeerStatus, losses: u32, now: Instant) -> PeerStatus {
        if known == PeerStatus::Active {
            return known;
        }
        let counting = self.losses(losses, now);
        if matches!(known, PeerStatus::Lost(_)) && counting == losses {
            return known;
        }
        let seen = match self.seen.iter().find(|(other, _)| *other == peer) {
            Some((_, at)) => *at,
            None => {
                self.seen.push((peer, now));
                now
            }
        };
        if now >= seen + self.lag { known } else { PeerStatus::Active }
    }

    /// How many losses count, of those that are known.
    pub(super) fn losses(&mut self, known: u32, now: Instant) -> u32 {
        let (seen, since, counting) = &mut self.losses;
        if *seen != known {
            (*seen, *since) = (known, now);
        }
        if now >= *since + self.lag {
            *counting = *seen;
        }
        *counting
    }

    /// When the next of them counts; a rank must not sleep longer.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let (seen, since, counting) = self.losses;
        let losses = (seen != counting).then_some(since + self.lag);
        let peers = self.seen.iter().map(|(_, at)| *at + self.lag).filter(|at| *at > now);
        peers.chain(losses).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_departure_counts_some_time_after_it_was_seen() {
        let mut departures = Departures::new(Span(100));
        let at = Instant;
        assert_eq!(departures.status(3, PeerStatus::Active, 0, at(5)), PeerStatus::Active);
        assert_eq!(departures.next(at(5)), None);
        assert_eq!(departures.status(3, PeerStatus::Finished, 0, at(10)), PeerStatus::Active);
        assert_eq!((departures.losses(2, at(20)), departures.next(at(20))), (0, Some(at(110))));
        assert_eq!(departures.status(3, PeerStatus::Finished, 2, at(110)), PeerStatus::Finished);
        assert_eq!((departures.losses(2, at(119)), departures.next(at(119))), (0, Some(at(120))));
        assert_eq!((departures.losses(2, at(120)), departures.next(at(120))), (2, None));
    }
}
