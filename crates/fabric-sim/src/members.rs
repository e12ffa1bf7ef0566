//! Who is still there: ranks depart, and the others learn it some time after the last packet of the departed has
//! landed.
//!
//! This is an ideal membership service: it costs no packets and is never wrong. News of many departures come at
//! once, and who has ended in order wakes those alone that wait for it: the end of a large job does not wake
//! everyone for everyone.

use crate::away::News as Told;
use am_core::PeerStatus;

pub(crate) struct Members {
    notice: u64,
    /// Per rank: packets under way, how and when it departs, and what the others know of it.
    members: Vec<Member>,
    /// Ranks that have departed and have no packet under way, but nobody knows.
    unknown: Vec<u32>,
    notice_pending: bool,
    /// Ranks that are known to have departed, and those of them that are lost.
    departures: u32,
    losses: u32,
    /// The other half, where this is one of two.
    away: Option<Box<Away>>,
}

/// Where this is one of two halves. Each counts what is under way in it, and each rank's own half knows how
/// many of the rank's packets are in the other one.
struct Away {
    /// Per rank: whether it belongs to the other half, and how many of its packets have come over since nothing
    /// of it was under way here.
    ranks: Vec<bool>,
    came: Vec<u32>,
    /// What the other half is to be told.
    landed: Vec<(u32, u32, u64)>,
    departed: Vec<(u32, PeerStatus, u64)>,
}

#[derive(Clone)]
struct Member {
    in_flight: u32,
    departs: Option<(PeerStatus, u64)>,
    status: PeerStatus,
    /// When the others learnt it.
    told: u64,
}

/// What a notice brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) finished: bool,
    pub(crate) lost: bool,
    /// When to give notice again.
    pub(crate) next: Option<u64>,
}

impl Members {
    pub(crate) fn new(ranks: usize, notice: u64) -> Self {
        let member = Member { in_flight: 0, departs: None, status: PeerStatus::Active, told: u64::MAX };
        Self {
            notice,
            members: vec![member; ranks],
            unknown: Vec::new(),
            notice_pending: false,
            departures: 0,
            losses: 0,
            away: None,
        }
    }

    /// This is one of two halves; whether each rank belongs to the other one.
    pub(crate) fn halve(&mut self, ranks: Vec<bool>) {
        let came = vec![0; ranks.len()];
        self.away = Some(Box::new(Away { ranks, came, landed: Vec::new(), departed: Vec::new() }));
    }

    /// Whether a rank belongs to the other half.
    pub(crate) fn is_away(&self, rank: u32) -> bool {
        self.away.as_ref().is_some_and(|away| away.ranks[rank as usize])
    }

    /// A packet of a rank has come over from the other half.
    pub(crate) fn comes_over(&mut self, from: u32) {
        self.sent(from);
        if let Some(away) = &mut self.away
            && away.ranks[from as usize]
        {
            away.came[from as usize] += 1;
        }
    }

    /// So many packets of a rank of this half are not under way in the other one any more. Returns when to give
    /// notice, if that is to be planned.
    pub(crate) fn landed_there(&mut self, rank: u32, count: u32, at: u64) -> Option<u64> {
        // The last of them as if it had landed here.
        self.members[rank as usize].in_flight -= count.saturating_sub(1);
        if count == 0 { None } else { self.landed(rank, at) }
    }

    /// A rank of the other half has departed. Returns when to give notice, if that is to be planned.
    pub(crate) fn departed_there(&mut self, rank: u32, status: PeerStatus, at: u64) -> Option<u64> {
        self.members[rank as usize].departs = Some((status, at));
        self.tell(rank, at)
    }

    /// What the other half is to be told.
    pub(crate) fn take_news<B>(&mut self) -> Vec<Told<B>> {
        let Some(away) = &mut self.away else { return Vec::new() };
        let landed = away.landed.drain(..).map(|(rank, count, at)| Told::Landed { rank, count, at });
        let departed = away.departed.drain(..).map(|(rank, status, at)| Told::Departed { rank, status, at });
        landed.chain(departed).collect()
    }

    /// The time until a departure is known.
    pub(crate) const fn notice_time(&self) -> u64 {
        self.notice
    }

    pub(crate) fn status(&self, rank: u32) -> PeerStatus {
        self.members[rank as usize].status
    }

    /// Whether a rank is known to have departed.
    pub(crate) fn has_ended(&self, rank: u32) -> bool {
        self.members.get(rank as usize).is_some_and(|member| member.status != PeerStatus::Active)
    }

    /// Whether the others learn of this rank's departure at this moment.
    pub(crate) fn told_at(&self, rank: u32, now: u64) -> bool {
        self.members.get(rank as usize).is_some_and(|member| member.told == now)
    }

    pub(crate) fn departures(&self) -> u32 {
        self.departures
    }

    pub(crate) fn losses(&self) -> u32 {
        self.losses
    }

    pub(crate) fn sent(&mut self, from: u32) {
        self.members[from as usize].in_flight += 1;
    }

    /// A packet of this rank is no longer under way. Returns when to give notice, if that is to be planned.
    #[inline(always)]
    pub(crate) fn landed(&mut self, from: u32, now: u64) -> Option<u64> {
        let member = &mut self.members[from as usize];
        member.in_flight -= 1;
        if member.in_flight != 0 || member.departs.is_none() && self.away.is_none() {
            return None;
        }
        self.last_landed(from, now)
    }

    /// Nothing of a rank is under way any more, and that may matter.
    #[inline(never)]
    fn last_landed(&mut self, from: u32, now: u64) -> Option<u64> {
        if let Some(away) = &mut self.away
            && away.ranks[from as usize]
        {
            away.landed.push((from, std::mem::take(&mut away.came[from as usize]), now));
            return None;
        }
        let member = &self.members[from as usize];
        let (_, left) = member.departs?;
        if member.status != PeerStatus::Active {
            return None;
        }
        self.tell(from, left.max(now))
    }

    /// A rank departs; only the first time counts. Returns when to give notice, if that is to be planned.
    pub(crate) fn depart(&mut self, rank: u32, status: PeerStatus, at: u64) -> Option<u64> {
        let member = &mut self.members[rank as usize];
        if member.departs.is_some() {
            return None;
        }
        member.departs = Some((status, at));
        if member.in_flight == 0 { self.tell(rank, at) } else { None }
    }

    fn tell(&mut self, rank: u32, at: u64) -> Option<u64> {
        if let Some(away) = &mut self.away
            && !away.ranks[rank as usize]
            && let Some((status, _)) = self.members[rank as usize].departs
        {
            away.departed.push((rank, status, at));
        }
        self.unknown.push(rank);
        let planned = std::mem::replace(&mut self.notice_pending, true);
        (!planned).then_some(at + self.notice)
    }

    /// Lets everyone know what happened up to now.
    pub(crate) fn notice(&mut self, now: u64) -> News {
        let (mut news, mut later) = (News::default(), None::<u64>);
        let Self { unknown, members, departures, losses, .. } = self;
        unknown.retain(|rank| {
            let member = &mut members[*rank as usize];
            let (status, at) = member.departs.expect("only departed ranks are told of");
            if at > now {
                later = Some(later.map_or(at, |earlier| earlier.min(at)));
                return true;
            }
            if member.status == PeerStatus::Active {
                (member.status, member.told) = (status, now);
                let lost = matches!(status, PeerStatus::Lost(_));
                *departures += 1;
                *losses += u32::from(lost);
                news.lost |= lost;
                news.finished |= !lost;
            }
            false
        });
        self.notice_pending = later.is_some();
        News { next: later.map(|at| at + self.notice), ..news }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn departures_are_known_after_the_last_packet_and_together() {
        let mut members = Members::new(3, 100);
        members.sent(0);
        assert_eq!(members.depart(0, PeerStatus::Finished, 5), None);
        assert_eq!(members.depart(1, PeerStatus::Finished, 7), Some(107));
        assert_eq!(members.landed(0, 9), None, "the notice is planned already");
        assert_eq!(members.depart(2, PeerStatus::Finished, 500), None);
        assert_eq!(members.notice(107), News { finished: true, lost: false, next: Some(600) });
        let active = [0, 1, 2].map(|rank| members.status(rank) == PeerStatus::Active);
        assert_eq!(active, [false, false, true]);
        assert_eq!([0, 1, 2].map(|rank| members.told_at(rank, 107)), [true, true, false]);
        assert_eq!(members.notice(600), News { finished: true, lost: false, next: None });
        assert_eq!((members.departures(), members.losses()), (3, 0));
    }
}
