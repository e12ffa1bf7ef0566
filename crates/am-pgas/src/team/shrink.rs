//! Agreement on the survivors of a team, of which [`Team::shrink`] makes a new one.
//!
//! The lowest member that is not lost coordinates. Everyone tells it which members it takes for lost (*join*);
//! when all that are left have, it proposes the others as survivors, with the new team's number; who gets the
//! proposal holds it and acknowledges; when all that are left have, it is decided, and the coordinator tells
//! everyone, who tell their neighbours. If the coordinator is lost, the next one begins again: with the proposal
//! that it holds, or with one of its own if it holds none.
//!
//! # Why all decide alike
//!
//! A proposal is decided when every member that is left holds it. So the next coordinator, which is one of these,
//! holds it too and proposes nothing else. A proposal that some members do not hold has not been decided, and
//! gives way to that of a later coordinator. This takes what the transports give: a rank that is lost is lost for
//! good, and every survivor comes to know of it. As in the agreement of ULFM (Bland, Bouteiller, Herault, Bosilca
//! and Dongarra, 2013), ranks that are lost after the proposal may be among its survivors; the new team then fails
//! in its turn.

use super::Team;
use crate::collectives::{CollectiveError, Collectives, Failure, Members};
use am_core::layer::{LayerHandlers, Outbox, Progress, ProgressResult};
use am_core::{
    Address, Endpoint, HandlerError, HandlerResult, HasLayer, Payload, PeerStatus, RegisterError, Request,
    SendError, Transport, WaitReason,
};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Decisions that a member keeps for those who ask late.
const KEPT: usize = 64;

/// The kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// To the coordinator: the members taken for lost, and the least number for a new team.
    Join,
    /// From it: the survivors, and the number of their team.
    Propose,
    /// To it.
    Acknowledge,
    /// To all: as it was proposed.
    Decide,
}

const KINDS: [Kind; 4] = [Kind::Join, Kind::Propose, Kind::Acknowledge, Kind::Decide];

/// Kind, team, how many times it was shrunk before, the coordinator, and the new team's number.
type Words = [u32; 5];

/// Who survives, and the number of their team.
#[derive(Clone, Debug, PartialEq)]
struct Proposal {
    /// The coordinator's position.
    by: u32,
    context: u32,
    survivors: Vec<bool>,
}

/// What a member knows of one agreement.
#[derive(Debug)]
struct Vote {
    members: Arc<Members>,
    attempt: u32,
    /// Per member, what it told this one as coordinator.
    joined: Vec<Option<(u32, Vec<bool>)>>,
    acknowledged: Vec<bool>,
    held: Option<Proposal>,
    decided: Option<Proposal>,
    /// The coordinator that this member has joined.
    follows: Option<u32>,
    /// Whether this member, as coordinator, has proposed.
    proposed: bool,
    /// Whose word this member waited for at its last step.
    awaited: Option<u32>,
}

/// The part of the layer that agrees.
#[derive(Debug)]
pub(crate) struct Shrinking {
    request: Request<Words>,
    votes: VecDeque<Vote>,
    /// What was decided on teams, told to those who ask late: the message, with the team and how often it was
    /// shrunk before.
    settled: VecDeque<(Words, Vec<u8>)>,
    queue: VecDeque<(Address, Words, Vec<u8>)>,
    /// Messages about teams that this member has not made yet.
    early: Vec<(Address, Words, Vec<u8>)>,
    /// Whether something has come since the last look.
    news: bool,
}

fn pack(flags: &[bool]) -> Vec<u8> {
    flags.chunks(8).map(|chunk| chunk.iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(*flag))).collect()
}

fn unpack(bytes: &[u8], len: usize) -> Option<Vec<bool>> {
    let flag = |index: usize| bytes[index / 8] >> (index % 8) & 1 == 1;
    (bytes.len() == len.div_ceil(8)).then(|| (0..len).map(flag).collect())
}

impl Vote {
    fn new(members: &Arc<Members>, attempt: u32) -> Self {
        let size = members.ranks.len();
        Self {
            members: Arc::clone(members),
            attempt,
            joined: vec![None; size],
            acknowledged: vec![false; size],
            held: None,
            decided: None,
            follows: None,
            proposed: false,
            awaited: None,
        }
    }

    fn words(&self, kind: Kind, by: u32, context: u32) -> Words {
        [kind as u32, self.members.context, self.attempt, by, context]
    }

    /// Takes a message in; what is to be sent in answer.
    fn receive(
        &mut self,
        kind: Kind,
        from: u32,
        by: u32,
        context: u32,
        flags: Option<Vec<bool>>,
    ) -> Vec<(u32, Words, Vec<u8>)> {
        match (kind, flags) {
            (Kind::Join, _) if self.decided.is_some() => self.tell(from),
            (Kind::Join, Some(lost)) => {
                self.joined[from as usize] = Some((context, lost));
                Vec::new()
            }
            (Kind::Propose, _) if self.decided.is_some() => self.tell(from),
            (Kind::Propose, Some(survivors)) => {
                if self.held.as_ref().is_some_and(|held| held.by > by) {
                    return Vec::new();
                }
                self.held = Some(Proposal { by, context, survivors });
                vec![(from, self.words(Kind::Acknowledge, by, context), Vec::new())]
            }
            (Kind::Acknowledge, _) => {
                self.acknowledged[from as usize] |= by == self.members.me;
                Vec::new()
            }
            (Kind::Decide, Some(survivors)) => self.decide(Proposal { by, context, survivors }),
            (_, None) => Vec::new(),
        }
    }

    /// Tells one member what was decided.
    fn tell(&self, to: u32) -> Vec<(u32, Words, Vec<u8>)> {
        let Some(Proposal { by, context, survivors }) = &self.decided else { return Vec::new() };
        vec![(to, self.words(Kind::Decide, *by, *context), pack(survivors))]
    }

    /// Notes the decision, and tells it to neighbours among the survivors; the coordinator tells all.
    fn decide(&mut self, proposal: Proposal) -> Vec<(u32, Words, Vec<u8>)> {
        if self.decided.is_some() {
            return Vec::new();
        }
        let (me, size) = (self.members.me, self.members.ranks.len() as u32);
        let everyone: Vec<u32> = (0..size).filter(|member| *member != me).collect();
        let survivors: Vec<u32> = (0..size).filter(|member| proposal.survivors[*member as usize]).collect();
        let place = survivors.iter().position(|member| *member == me);
        let told = match place {
            Some(place) if proposal.by != me && survivors.len() > 64 => {
                let count = survivors.len();
                let distances = (0..32).map(|bit| 1usize << bit).take_while(|distance| *distance < count);
                let around = |distance| [(place + distance) % count, (place + count - distance) % count];
                distances.flat_map(around).map(|place| survivors[place]).collect()
            }
            _ => everyone,
        };
        self.decided = Some(proposal);
        told.into_iter().flat_map(|to| self.tell(to)).collect()
    }

    /// Does what can be done now that these members are left; what is to be sent.
    fn step(&mut self, left: &[bool], next_context: u32) -> Vec<(u32, Words, Vec<u8>)> {
        let me = self.members.me;
        let mut out = Vec::new();
        let coordinator = left.iter().position(|left| *left).expect("this member is left") as u32;
        if self.decided.is_some() {
            return out;
        }
        let lost: Vec<bool> = left.iter().map(|left| !left).collect();
        if coordinator == me {
            self.joined[me as usize] = Some((next_context, lost.clone()));
        }
        if self.follows.replace(coordinator) != Some(coordinator) && coordinator != me {
            out.push((coordinator, self.words(Kind::Join, coordinator, next_context), pack(&lost)));
        }
        let remaining = || (0..left.len()).filter(|member| left[*member]);
        let silent =
            |told: &dyn Fn(usize) -> bool| remaining().find(|member| !told(*member)).map(|member| member as u32);
        self.awaited = if coordinator != me {
            Some(coordinator)
        } else {
            let unjoined = silent(&|member| self.joined[member].is_some());
            let proposed = self.proposed;
            unjoined.or_else(|| silent(&|member| proposed && self.acknowledged[member] || member == me as usize))
        };
        if coordinator != me || !remaining().all(|member| self.joined[member].is_some()) {
            return out;
        }
        if !std::mem::replace(&mut self.proposed, true) {
            let joins = || self.joined.iter().flatten();
            let fresh = || {
                let context = joins().map(|(next, _)| *next).max().unwrap_or(next_context);
                let survives = |member: usize| left[member] && joins().all(|(_, lost)| !lost[member]);
                (context, (0..left.len()).map(survives).collect::<Vec<bool>>())
            };
            let (context, survivors) = match self.held.take() {
                Some(held) => (held.context, held.survivors),
                None => fresh(),
            };
            let words = self.words(Kind::Propose, me, context);
            for member in remaining().filter(|member| *member as u32 != me) {
                out.push((member as u32, words, pack(&survivors)));
            }
            self.held = Some(Proposal { by: me, context, survivors });
            self.acknowledged[me as usize] = true;
        }
        if remaining().all(|member| self.acknowledged[member])
            && let Some(held) = self.held.clone()
        {
            out.extend(self.decide(held));
        }
        out
    }
}

impl Shrinking {
    pub(crate) fn register<S: HasLayer<Collectives>>(
        layer: &mut LayerHandlers<'_, S, Collectives>,
    ) -> Result<Self, RegisterError> {
        let request = layer.one_way(
            "shrink",
            |layer: &mut Collectives, from: Address, words: Words, bytes: Payload<'_>| {
                let [_, context, ..] = words;
                let members = layer.engine().members(context);
                let expected = context >= layer.engine().next_context;
                layer.shrinking.arrive(from, words, bytes.to_vec(), members, expected)
            },
        )?;
        let (votes, settled, queue) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Ok(Self { request, votes, settled, queue, early: Vec::new(), news: false })
    }

    fn arrive(
        &mut self,
        from: Address,
        words: Words,
        bytes: Vec<u8>,
        members: Option<Arc<Members>>,
        expected: bool,
    ) -> HandlerResult {
        let [kind, context, attempt, by, new] = words;
        let kind = *KINDS.get(kind as usize).ok_or_else(|| HandlerError::new("no such step of an agreement"))?;
        let same = |words: &Words| (words[1], words[2]) == (context, attempt);
        if let Some((words, bytes)) = self.settled.iter().find(|(words, _)| same(words)) {
            if matches!(kind, Kind::Join | Kind::Propose) {
                self.queue.push_back((from, *words, bytes.clone()));
            }
            return Ok(());
        }
        let at = match (self.find(context, attempt), members) {
            (Some(at), _) => at,
            (None, Some(members)) => {
                // Relaxed: only the thread that uses the endpoint counts.
                let shrunk = members.shrunk.load(Ordering::Relaxed);
                match attempt.checked_sub(shrunk) {
                    Some(0 | 1) => self.begin(&members, attempt),
                    // It is over, and nobody that takes part in it needs this member.
                    None => return Ok(()),
                    _ => return Err(HandlerError::new("a rank shrinks a team that others have to shrink before")),
                }
            }
            (None, None) if expected => {
                if self.early.iter().filter(|(other, ..)| *other == from).count() >= KEPT {
                    return Err(HandlerError::new("a rank shrinks more teams than there can be"));
                }
                self.early.push((from, words, bytes));
                return Ok(());
            }
            // This member has left the team.
            (None, None) => return Ok(()),
        };
        let vote = &mut self.votes[at];
        let member = vote.members.position(from.rank).filter(|_| from.endpoint == vote.members.endpoint);
        let member = member.ok_or_else(|| HandlerError::new("a rank outside the team agrees on it"))?;
        let flags = unpack(&bytes, vote.members.ranks.len());
        let out = vote.receive(kind, member, by, new, flags);
        let members = Arc::clone(&vote.members);
        self.post(&members, out);
        self.news = true;
        Ok(())
    }

    fn find(&self, context: u32, attempt: u32) -> Option<usize> {
        self.votes.iter().position(|vote| (vote.members.context, vote.attempt) == (context, attempt))
    }

    fn begin(&mut self, members: &Arc<Members>, attempt: u32) -> usize {
        self.votes.push_back(Vote::new(members, attempt));
        self.votes.len() - 1
    }

    /// An agreement is over for this member: nothing of it is kept but what was decided.
    fn settle(&mut self, context: u32, attempt: u32) {
        let Some(vote) = self.find(context, attempt).and_then(|at| self.votes.remove(at)) else { return };
        if let Some(Proposal { by, context, survivors }) = &vote.decided {
            if self.settled.len() == KEPT {
                self.settled.pop_front();
            }
            self.settled.push_back((vote.words(Kind::Decide, *by, *context), pack(survivors)));
        }
    }

    fn post(&mut self, members: &Members, out: Vec<(u32, Words, Vec<u8>)>) {
        self.queue.extend(out.into_iter().map(|(to, words, bytes)| (members.address(to), words, bytes)));
    }

    pub(crate) fn progress(&mut self, outbox: &mut Outbox<'_>) -> ProgressResult {
        let mut progress = Progress::Idle;
        while let Some((to, words, bytes)) = self.queue.front() {
            let sent = if bytes.is_empty() {
                outbox.try_request(*to, self.request, *words)
            } else {
                outbox.try_request_medium(*to, self.request, *words, bytes)
            };
            match sent {
                Err(SendError::WouldBlock { .. }) => return Ok(progress.max(Progress::Blocked)),
                // Whoever is gone agrees no more, which the next look finds.
                Err(_) => self.news = true,
                Ok(()) => {}
            }
            self.queue.pop_front();
            progress = Progress::Advanced;
        }
        Ok(progress)
    }
}

impl Team {
    /// The team of the members that survive, in the same order. All survivors call it; the others need not be lost
    /// for that. It agrees on them even if more members are lost meanwhile; one that is lost late may still be in
    /// the team, which then fails, and is shrunk in its turn. Works on a team that fails as on any other.
    /// Collective over the survivors; blocks; allocates.
    ///
    /// # Errors
    /// [`CollectiveError::Excluded`] if the others took this rank for lost; a time-out.
    pub fn shrink<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Self, CollectiveError> {
        if endpoint.layer_unscheduled::<Collectives>().engine().id != self.members.engine {
            return Err(CollectiveError::NotInTeam);
        }
        // Relaxed: the thread that uses the endpoint sets and counts alone.
        if self.members.destroyed.load(Ordering::Relaxed) {
            return Err(CollectiveError::Destroyed);
        }
        // A call after a time-out goes on with the team, or else with the same agreement.
        let learning = &endpoint.layer_unscheduled::<Collectives>().learning;
        let begun = learning.iter().find(|learning| learning.from == Some(self.members.context));
        if let Some(team) = begun.map(|learning| learning.team.clone()) {
            team.learn_hosts(endpoint, Some(self.members.context))?;
            return Ok(team);
        }
        let attempt = self.members.shrunk.load(Ordering::Relaxed);
        let context = self.members.context;
        let shrinking = &mut endpoint.layer_mut::<Collectives>().shrinking;
        shrinking.news = true;
        if shrinking.find(context, attempt).is_none() {
            shrinking.begin(&self.members, attempt);
        }
        for (from, words, bytes) in std::mem::take(&mut shrinking.early) {
            let members = (words[1] == context).then(|| Arc::clone(&self.members));
            // What makes no sense is dropped.
            let _ = shrinking.arrive(from, words, bytes, members, true);
        }
        let (mut seen, mut idles) = (None, endpoint.idles());
        let decided = endpoint.wait_through(|endpoint| {
            let layer = endpoint.layer_unscheduled::<Collectives>();
            let at = layer.shrinking.find(context, attempt).expect("an agreement under way is kept");
            let awaited = layer.shrinking.votes[at].awaited.map(|member| self.members.address(member));
            if std::mem::replace(&mut idles, endpoint.idles()) != idles
                && awaited.is_some_and(|awaited| endpoint.status(awaited) != Some(PeerStatus::Active))
            {
                endpoint.layer_unscheduled::<Collectives>().shrinking.news = true;
            }
            let now = Some(endpoint.losses());
            let news = std::mem::take(&mut endpoint.layer_unscheduled::<Collectives>().shrinking.news);
            if seen != now || news {
                // Those that are counted before their status says so are looked for again.
                let lost = |peer: &Address| matches!(endpoint.status(*peer), Some(PeerStatus::Lost(_)));
                seen = now.min(Some(endpoint.others().filter(lost).count() as u32));
                self.agree(endpoint, attempt);
            }
            let shrinking = &mut endpoint.layer_unscheduled::<Collectives>().shrinking;
            let at = shrinking.find(context, attempt).expect("an agreement under way is kept");
            // What the others are told has to be on its way when this rank goes on, and perhaps ends.
            if let Some(decided) = shrinking.votes[at].decided.clone().filter(|_| shrinking.queue.is_empty()) {
                return Ok::<_, CollectiveError>(ControlFlow::Break(decided));
            }
            let awaited = shrinking.votes[at].awaited.map(|member| self.members.address(member));
            let awaited = awaited.and_then(|awaited| endpoint.shape().peer(awaited));
            Ok(ControlFlow::Continue(awaited.map_or(WaitReason::Message, WaitReason::Collective)))
        })?;
        self.members.shrunk.fetch_add(1, Ordering::Relaxed);
        endpoint.layer_unscheduled::<Collectives>().shrinking.settle(context, attempt);
        let survivors: Vec<u32> =
            (0..self.size()).filter(|position| decided.survivors[*position as usize]).collect();
        if decided.context == u32::MAX {
            return Err(CollectiveError::TooManyTeams { members: self.size() });
        }
        let team = self.among(endpoint, &survivors, decided.context, None);
        let team = team.ok_or(CollectiveError::Excluded { rank: endpoint.rank() })?;
        // Some members may not have learned of the hosts of the team before.
        team.learn_hosts(endpoint, Some(context))?;
        Ok(team)
    }

    /// One look at who is left, and what follows from it.
    fn agree<T: Transport, S: HasLayer<Collectives>>(&self, endpoint: &mut Endpoint<T, S>, attempt: u32) {
        let members = &self.members;
        let engine = endpoint.layer_unscheduled::<Collectives>().engine();
        let (failure, next) = (engine.failure(members.context), engine.next_context);
        // What others told is as good as what this rank found.
        let told = match failure {
            Some(Failure::Lost { rank, .. }) => members.position(rank),
            _ => None,
        };
        let is_left = |member: u32| {
            let active = endpoint.status(members.address(member)) == Some(PeerStatus::Active);
            member == members.me || active && told != Some(member)
        };
        let left: Vec<bool> = (0..self.size()).map(is_left).collect();
        let shrinking = &mut endpoint.layer_mut::<Collectives>().shrinking;
        let at = shrinking.find(members.context, attempt).expect("an agreement under way is kept");
        let out = shrinking.votes[at].step(&left, next);
        shrinking.post(members, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use am_core::Rank;
    use proptest::prelude::*;

    #[test]
    fn flags_survive_packing() {
        for len in 0..20 {
            let flags: Vec<bool> = (0..len).map(|index| index * 7 % 3 == 0).collect();
            assert_eq!(unpack(&pack(&flags), len), Some(flags));
        }
        assert_eq!(unpack(&[0, 0], 8), None);
    }

    /// Messages on their way from one member to another.
    type Channel = VecDeque<(Words, Vec<u8>)>;

    /// A network of members whose messages arrive in any order, but those of a pair in theirs, and some of which
    /// are lost at any time.
    struct Model {
        votes: Vec<Vote>,
        /// By sender and receiver.
        channels: Vec<Vec<Channel>>,
        alive: Vec<bool>,
        /// Per member, whom it knows to be lost.
        known: Vec<Vec<bool>>,
    }

    impl Model {
        fn new(size: usize) -> Self {
            let ranks: Vec<Rank> = (0..size as u32).map(Rank).collect();
            let members = |me| Arc::new(Members::new(0, 1, ranks.clone(), me, 0));
            Self {
                votes: (0..size as u32).map(|me| Vote::new(&members(me), 0)).collect(),
                channels: vec![vec![Channel::new(); size]; size],
                alive: vec![true; size],
                known: vec![vec![false; size]; size],
            }
        }

        fn send(&mut self, from: usize, out: Vec<(u32, Words, Vec<u8>)>, most: usize) {
            for (to, words, bytes) in out.into_iter().take(most) {
                self.channels[from][to as usize].push_back((words, bytes));
            }
        }

        /// A member looks; if it dies in doing so, only some of its messages go out.
        fn look(&mut self, me: usize, most: usize) {
            let left: Vec<bool> = self.known[me].iter().map(|lost| !lost).collect();
            let out = self.votes[me].step(&left, 10 + me as u32);
            self.send(me, out, most);
        }

        fn deliver(&mut self, from: usize, to: usize, most: usize) -> bool {
            let Some((words, bytes)) = self.channels[from][to].pop_front() else { return false };
            let [kind, _, _, by, context] = words;
            let flags = unpack(&bytes, self.votes.len());
            let out = self.votes[to].receive(KINDS[kind as usize], from as u32, by, context, flags);
            self.send(to, out, most);
            true
        }
    }

    proptest! {
        #[test]
        fn survivors_agree_whoever_is_lost_when(
            size in 1usize..8, steps in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 0..400),
        ) {
            let mut model = Model::new(size);
            for (what, a, b) in steps {
                let (a, b) = (usize::from(a) % size, usize::from(b) % size);
                match what {
                    // Dies after it has sent some of what a look or a message makes it send.
                    0..12 if model.alive[a] && model.alive.iter().filter(|alive| **alive).count() > 1 => {
                        if what % 2 == 0 {
                            model.look(a, b);
                        } else {
                            model.deliver(b, a, usize::from(what) / 2);
                        }
                        model.alive[a] = false;
                    }
                    12..60 if !model.alive[b] => model.known[a][b] = true,
                    60..140 if model.alive[a] => model.look(a, usize::MAX),
                    _ if model.alive[b] => drop(model.deliver(a, b, usize::MAX)),
                    _ => {}
                }
            }
            // Everyone comes to know of every loss, and everything arrives.
            for _ in 0..4 * size + 4 {
                for me in (0..size).filter(|me| model.alive[*me]).collect::<Vec<_>>() {
                    model.known[me] = model.alive.iter().map(|alive| !alive).collect();
                    for from in 0..size {
                        while model.deliver(from, me, usize::MAX) {}
                    }
                    model.look(me, usize::MAX);
                }
            }
            let decided: Vec<_> = model.votes.iter().map(|vote| vote.decided.as_ref()).collect();
            let result = |proposal: &Proposal| (proposal.context, proposal.survivors.clone());
            let first = decided.iter().flatten().next().map(|proposal| result(proposal));
            for (me, decided) in decided.iter().enumerate() {
                // The dead that had decided had decided the same.
                if let Some(proposal) = decided {
                    prop_assert_eq!(Some(result(proposal)), first.clone());
                }
                if model.alive[me] {
                    prop_assert!(decided.is_some(), "member {} hangs: {:?}", me, model.votes[me]);
                    prop_assert!(decided.unwrap().survivors[me], "member {} is alive", me);
                }
            }
        }
    }
}
