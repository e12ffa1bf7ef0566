//! A team as its members' engines know it: who is in it, the operations under way, and what has passed between
//! each pair of members.

use super::direct::Direct;
use super::instance::Instance;
use super::lines::Lines;
use super::patience::{Standstill, Suspicion};
use crate::collectives::algorithms::has_levels;
use crate::collectives::error::{Call, Failure};
use crate::collectives::schedule::Schedule;
use am_core::{Address, Rank};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, OnceLock};

/// Announcements that a member may have with another in one team, besides those of its oldest operation there.
pub(super) const ANNOUNCEMENTS: u32 = 16;

/// Calls that a member keeps in mind to compare them with those of others, and notices that it keeps of each.
pub(super) const NOTICES: usize = 32;

/// Schedules that a team keeps for calls that come again.
const KEPT: usize = 16;

/// Who is in a team; all clones of a [`Team`](crate::Team) share it.
#[derive(Debug)]
pub(crate) struct Members {
    /// The engine that the team belongs to.
    pub(crate) engine: u64,
    /// The team's number, the same at all of its members, and of no other team of any two of them.
    pub(crate) context: u32,
    /// By position.
    pub(crate) ranks: Vec<Rank>,
    /// For each member its host's number, once all members have told theirs.
    pub(crate) hosts: OnceLock<Vec<u32>>,
    /// Whether there are several, and fewer than members, found out once: for a thousand members it takes longer
    /// than a small operation.
    has_levels: OnceLock<bool>,
    /// This member's position.
    pub(crate) me: u32,
    /// The number of the members' endpoints at their ranks.
    pub(crate) endpoint: u16,
    /// Positions by rank, sorted.
    by_rank: Vec<(Rank, u32)>,
    pub(crate) destroyed: AtomicBool,
    /// How often it was shrunk.
    pub(crate) shrunk: AtomicU32,
}

impl Members {
    pub(crate) fn new(engine: u64, context: u32, ranks: Vec<Rank>, me: u32, endpoint: u16) -> Self {
        let mut by_rank: Vec<_> = ranks.iter().zip(0..).map(|(rank, position)| (*rank, position)).collect();
        by_rank.sort_unstable();
        Self {
            engine,
            context,
            ranks,
            hosts: OnceLock::new(),
            has_levels: OnceLock::new(),
            me,
            endpoint,
            by_rank,
            destroyed: AtomicBool::new(false),
            shrunk: AtomicU32::new(0),
        }
    }

    pub(crate) fn position(&self, rank: Rank) -> Option<u32> {
        // Most teams are the whole job.
        if self.ranks.get(rank.0 as usize) == Some(&rank) {
            return Some(rank.0);
        }
        let at = self.by_rank.binary_search_by_key(&rank, |(rank, _)| *rank).ok()?;
        Some(self.by_rank[at].1)
    }

    /// The members' hosts if there are several, and fewer of them than members; none otherwise.
    pub(crate) fn levels(&self) -> &[u32] {
        let Some(hosts) = self.hosts.get() else { return &[] };
        if *self.has_levels.get_or_init(|| has_levels(hosts)) { hosts } else { &[] }
    }

    pub(crate) fn address(&self, member: u32) -> Address {
        Address::new(self.ranks[member as usize], self.endpoint)
    }

    fn member(&self, address: Address) -> Option<u32> {
        if address.endpoint == self.endpoint { self.position(address.rank) } else { None }
    }
}

/// A message that came before its receiver was ready for it.
#[derive(Debug)]
pub(super) struct Early {
    pub(super) sequence: u32,
    pub(super) tag: u32,
    pub(super) arrived: usize,
    pub(super) call: Option<Call>,
    pub(super) bytes: Vec<u8>,
}

/// A message that another member has asked for, and the call that it asked in, where that is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) sequence: u32,
    pub(super) tag: u32,
    pub(super) call: Option<Call>,
}

/// What has passed between this member and another, in one team. Counts wrap.
#[derive(Debug, Default)]
pub(super) struct Pair {
    pub(super) member: u32,
    /// Messages sent without being asked for, and how many of them the other has said that it took.
    pub(super) sent: u32,
    pub(super) taken: u32,
    /// Instances with a message that waits for room, by place and sequence; some have been asked for it since.
    pub(super) held: VecDeque<(u32, u32)>,
    /// Instances with a message to announce that waits for others to come.
    pub(super) unannounced: VecDeque<(u32, u32)>,
    /// Messages that the other has asked for.
    pub(super) ready: Vec<Wanted>,
    /// Messages that came unasked, how many of them were taken, and how many the other knows of.
    pub(super) received: u32,
    pub(super) consumed: u32,
    pub(super) told: u32,
    /// Those received but not taken, and those that have come in part.
    pub(super) early: Vec<Early>,
    /// Messages asked for that have not come.
    pub(super) announced: u32,
    /// Whether an acknowledgement is due.
    pub(super) due: bool,
    /// Bytes of the largest payload towards the other; 0 until it is known.
    pub(super) largest: usize,
}

impl Pair {
    /// Whether another message may be sent unasked.
    pub(super) fn has_room(&self, window: u32) -> bool {
        self.sent.wrapping_sub(self.taken) < window
    }

    /// Takes in what the other says that it has taken in all; messages may overtake each other. Whether that is
    /// news.
    pub(super) fn acknowledge(&mut self, taken: u32) -> bool {
        let (more, most) = (taken.wrapping_sub(self.taken), self.sent.wrapping_sub(self.taken));
        let news = more > 0 && more <= most;
        if news {
            self.taken = taken;
        }
        news
    }

    /// Whether the other may be out of room, as far as this member knows.
    fn full(&self, window: u32) -> bool {
        self.received.wrapping_sub(self.told) >= window
    }

    /// Whether the other has to be told what was taken: half of its window, or anything if it may wait for that.
    pub(super) fn owes(&self, window: u32) -> bool {
        let untold = self.consumed.wrapping_sub(self.told);
        untold >= window.div_ceil(2) || untold > 0 && self.full(window)
    }

    /// Whether the other is out of room and nothing that this member could tell changes that: it has to be asked
    /// for what is needed.
    pub(super) fn stuck(&self, window: u32) -> bool {
        self.full(window) && self.consumed == self.told
    }
}

/// Where an operation stands.
pub(super) enum Stage {
    /// It has not begun here.
    Later,
    /// Under way in an instance.
    Live(u32),
    /// Over.
    Gone,
}

/// A team with its operations under way.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) members: Arc<Members>,
    /// The number of the operation that begins next.
    pub(super) next: u32,
    /// Instances from the oldest operation that has not ended on; none where it has.
    pub(super) live: VecDeque<Option<u32>>,
    pub(super) pairs: Vec<Pair>,
    /// Places in `pairs` by member, plus 1.
    pair_of: Vec<u32>,
    /// Pairs with an acknowledgement due.
    pub(super) dues: VecDeque<u32>,
    pub(super) failure: Option<Failure>,
    /// Whom that has to be told.
    pub(super) tell: VecDeque<u32>,
    /// What this member called last, by number; nothing where it refused a call.
    pub(super) recent: VecDeque<(u32, Option<Call>)>,
    /// Whom that has to be told: member, number and call.
    pub(super) notices: VecDeque<(u32, u32, Option<Call>)>,
    /// What members told of calls that this one has not come to.
    pub(super) noticed: Vec<(u32, u32, Option<Call>)>,
    /// Entries of the `early` and the `ready` lists of all pairs.
    pub(super) early: usize,
    pub(super) readies: usize,
    /// The team that it fails with, until all members are known to have made it.
    pub(super) parent: Option<u32>,
    /// Whether an operation ended here alone, so that others may go on with it.
    pub(super) broken: bool,
    /// What stands still, and a message that may be a sign of calls that differ.
    pub(super) standstill: Option<Standstill>,
    pub(super) suspicion: Option<Suspicion>,
    /// Whether it stands in the engine's list of those that have something to tell, or of those with operations
    /// through shared memory.
    pub(super) listed: bool,
    pub(super) shares: bool,
    /// The memory that all members share.
    pub(super) lines: Option<Lines>,
    /// Operations through it that have begun here, until this member is done with them.
    pub(super) direct: VecDeque<Direct>,
    /// Whether this member may lend the others what it gives.
    pub(super) lends: bool,
    /// The operation of which the others know that this member is done with those before it.
    pub(super) told: u32,
    /// Whether memory has changed for which others may wait.
    pub(super) wakes_others: bool,
    /// Schedules with the numbers of their last uses.
    kept: Vec<(Call, Arc<Schedule>, u64)>,
    uses: u64,
}

impl Context {
    pub(super) fn new(members: Arc<Members>, parent: Option<u32>) -> Self {
        Self {
            pair_of: vec![0; members.ranks.len()],
            members,
            next: 0,
            live: VecDeque::new(),
            pairs: Vec::new(),
            dues: VecDeque::new(),
            failure: None,
            tell: VecDeque::new(),
            recent: VecDeque::with_capacity(NOTICES),
            notices: VecDeque::new(),
            noticed: Vec::new(),
            early: 0,
            readies: 0,
            parent,
            broken: false,
            standstill: None,
            suspicion: None,
            listed: false,
            shares: false,
            lines: None,
            direct: VecDeque::new(),
            lends: true,
            told: 0,
            wakes_others: false,
            kept: Vec::new(),
            uses: 0,
        }
    }

    /// The position of an address.
    pub(super) fn member(&self, address: Address) -> Option<u32> {
        self.members.member(address)
    }

    /// The place of the pair with a member. Allocates at the first use.
    pub(super) fn pair(&mut self, member: u32) -> usize {
        let place = &mut self.pair_of[member as usize];
        if *place == 0 {
            self.pairs.push(Pair { member, ..Pair::default() });
            *place = self.pairs.len() as u32;
        }
        *place as usize - 1
    }

    /// The number of the oldest operation that has not ended.
    pub(super) fn oldest(&self) -> u32 {
        self.next.wrapping_sub(self.live.len() as u32)
    }

    pub(super) fn stage(&self, sequence: u32) -> Stage {
        let ahead = sequence.wrapping_sub(self.oldest());
        match self.live.get(ahead as usize) {
            Some(Some(instance)) => Stage::Live(*instance),
            Some(None) => Stage::Gone,
            None if ahead < 1 << 31 => Stage::Later,
            None => Stage::Gone,
        }
    }

    /// Notes that an operation has ended.
    pub(super) fn ended(&mut self, sequence: u32) {
        let ahead = sequence.wrapping_sub(self.oldest()) as usize;
        if let Some(entry) = self.live.get_mut(ahead) {
            *entry = None;
        }
        while self.live.front() == Some(&None) {
            self.live.pop_front();
        }
    }

    /// Lets an acknowledgement be sent if one is due.
    pub(super) fn consider(&mut self, pair: usize, window: u32) {
        let state = &mut self.pairs[pair];
        if !state.due && state.owes(window) {
            state.due = true;
            self.dues.push_back(pair as u32);
        }
    }

    /// Keeps none of the schedules any longer.
    pub(super) fn forget_schedules(&mut self) {
        self.kept.clear();
    }

    /// The schedule of a call that came before.
    pub(super) fn kept(&mut self, call: Call) -> Option<Arc<Schedule>> {
        let (_, schedule, used) = self.kept.iter_mut().find(|(other, ..)| *other == call)?;
        self.uses += 1;
        *used = self.uses;
        Some(Arc::clone(schedule))
    }

    /// Keeps a schedule in place of the one whose last use is the longest ago.
    pub(super) fn keep(&mut self, call: Call, schedule: &Arc<Schedule>) {
        self.uses += 1;
        let entry = (call, Arc::clone(schedule), self.uses);
        if self.kept.len() < KEPT {
            self.kept.push(entry);
        } else if let Some(oldest) = self.kept.iter_mut().min_by_key(|(.., used)| *used) {
            *oldest = entry;
        }
    }

    /// Lets the team fail, once; the instances that have to end.
    pub(super) fn fail(&mut self, failure: Failure) -> Vec<u32> {
        if self.failure.is_some() {
            return Vec::new();
        }
        self.failure = Some(failure);
        // The neighbours in a binomial graph: it stays connected unless as many members are lost as one has
        // neighbours.
        let (size, me) = (self.members.ranks.len() as u32, self.members.me);
        let distances = (0..32).map(|bit| 1u32 << bit).take_while(|distance| *distance < size);
        self.tell =
            distances.flat_map(|distance| [(me + distance) % size, (me + size - distance) % size]).collect();
        self.pairs.iter_mut().for_each(|pair| {
            pair.early.clear();
            pair.ready.clear();
            pair.held.clear();
            pair.unannounced.clear();
        });
        (self.early, self.readies) = (0, 0);
        self.dues.clear();
        self.direct.clear();
        self.notices.clear();
        self.noticed.clear();
        self.live.drain(..).flatten().collect()
    }

    /// Whether there is something to tell members besides messages.
    pub(super) fn has_something_to_tell(&self) -> bool {
        let asks = self.suspicion.as_ref().is_some_and(|suspicion| !suspicion.told) && self.failure.is_none();
        asks || !(self.dues.is_empty() && self.tell.is_empty() && self.notices.is_empty())
    }

    /// The oldest operation under way that has the instance `of`.
    pub(super) fn is_oldest(&self, of: &Instance) -> bool {
        of.sequence == self.oldest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::Operation;

    #[test]
    fn schedules_in_use_are_kept() {
        let members = Arc::new(Members::new(0, 0, vec![Rank(0)], 0, 0));
        let mut context = Context::new(members, None);
        let key = |count| crate::collectives::call::<u8>(Operation::Scan, count as usize, None);
        for count in 0..100 {
            // The first comes again and again.
            assert_eq!(context.kept(key(0)).is_some(), count > 0);
            context.keep(key(count), &Arc::default());
        }
        let kept = (0..100).filter(|count| context.kept(key(*count)).is_some());
        assert!(kept.eq(std::iter::once(0).chain(100 - KEPT as u64 + 1..100)));
    }

    #[test]
    fn acknowledgements_are_told_by_halves_or_when_missed() {
        let mut pair = Pair::default();
        (pair.received, pair.consumed) = (7, 3);
        assert!(!pair.owes(8) && !pair.stuck(8));
        pair.consumed = 4;
        assert!(pair.owes(8));
        (pair.received, pair.consumed) = (8, 1);
        assert!(pair.owes(8) && !pair.stuck(8), "one is enough when the window is full");
        pair.told = 1;
        pair.received = 9;
        assert!(!pair.owes(8) && pair.stuck(8));
    }

    #[test]
    fn acknowledgements_may_overtake_each_other() {
        let mut pair = Pair { sent: 2, taken: u32::MAX, ..Pair::default() };
        assert!(pair.has_room(4) && !pair.has_room(3));
        assert!(pair.acknowledge(1) && !pair.acknowledge(0) && !pair.acknowledge(3));
        assert_eq!(pair.taken, 1);
    }
}
