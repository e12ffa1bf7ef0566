//! Operations through memory that all members share: small ones by lines, large ones by blocks.
//!
//! Whether an operation is one depends on its call, which says whether operands keep their order, and the team
//! alone, so that all members do the same. Each member says in its line what it has called, and looks at the lines
//! of all others, at the latest before it tells that it is done with the operation: calls that differ are found,
//! even by those who get what they want before the others come.

use super::context::Context;
use super::faults::disagree;
use super::instance::{Buffers, Instance};
use super::lines::{Lines, Offer, SLOTS, SMALL};
use super::passing::{Passing, lent_in_line};
use super::{Engine, Post};
use crate::collectives::algorithms;
use crate::collectives::error::{Call, Failure, Operation};
use crate::collectives::schedule::Schedule;
use am_core::Segment;
use am_core::segment::AnyMemory;

/// How an operation uses shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Lines,
    Blocks,
}

/// An operation through shared memory that has begun here.
#[derive(Debug)]
pub(super) struct Direct {
    pub(super) sequence: u32,
    pub(super) call: Call,
    head: [u64; 3],
    /// Its instance, until it has ended here.
    place: Option<u32>,
    published: bool,
    /// Members, from the first on, whose call is known to be the same.
    agreed: usize,
    pub(super) passing: Option<Passing>,
}

/// Bytes that each member gives, or the root.
pub(super) fn bytes(call: Call) -> u64 {
    call.count.saturating_mul(u64::from(call.element))
}

/// What a member does in an operation through shared memory: nothing by messages.
pub(super) fn schedule(call: Call, me: usize, size: usize) -> Schedule {
    let count = call.count as usize;
    match call.operation {
        Operation::Gather if call.root != Some(me as u32) => algorithms::nothing(count, 0),
        Operation::Gather | Operation::Allgather | Operation::Split | Operation::Duplicate | Operation::Select => {
            algorithms::nothing(count * size, count * size)
        }
        _ => algorithms::nothing(count, count),
    }
}

impl Direct {
    pub(super) fn new(sequence: u32, call: Call, place: u32, way: Way, lines: &mut Lines) -> Self {
        let passing = (way == Way::Blocks).then(|| {
            let (first, rounds) = lines.begin_rounds(bytes(call) as usize);
            Passing::new(first, rounds)
        });
        Self { sequence, call, head: call.head(), place: Some(place), published: false, agreed: 0, passing }
    }

    /// An operation by messages of a team with lines, whose calls are compared there all the same.
    pub(super) fn compared(sequence: u32, call: Call) -> Self {
        Self { sequence, call, head: call.head(), place: None, published: false, agreed: 0, passing: None }
    }

    /// An operation that the others have been told of, and that has no instance yet.
    pub(super) fn published(sequence: u32, call: Call) -> Self {
        Self { sequence, call, head: call.head(), place: None, published: true, agreed: 0, passing: None }
    }

    pub(super) fn set_place(&mut self, place: u32) {
        self.place = Some(place);
    }

    pub(super) fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Whether it has an instance here.
    pub(super) fn is_at(&self, place: u32) -> bool {
        self.place == Some(place)
    }

    pub(super) fn call(&self) -> Call {
        self.call
    }

    /// Whether it has not ended here, or the others have still to be told of it.
    pub(super) fn is_under_way(&self) -> bool {
        self.place.is_some() || !self.published
    }

    /// Whether all members are known to have called the same.
    pub(super) fn is_agreed(&self, size: usize) -> bool {
        self.agreed == size
    }

    /// Looks at the lines of the others; whether all is there that this member needs of a small operation.
    #[inline]
    pub(super) fn look(&mut self, context: &Context, lines: &Lines) -> Result<bool, Failure> {
        let (me, size) = (context.members.me as usize, context.members.ranks.len());
        self.compare(context, lines)?;
        let ready = self.is_ready(lines, me, size);
        let root = self.call.root.unwrap_or(0) as usize;
        // The root's line may be there before those of members before it.
        if ready && self.call.operation == Operation::Broadcast && root != me && root >= self.agreed {
            self.compare_with(root, context, lines)?;
        }
        Ok(ready)
    }

    pub(super) fn is_root(&self, member: usize) -> bool {
        self.call.root == Some(member as u32)
    }

    /// Whether a member gives bytes for a line.
    fn gives(&self, me: usize) -> bool {
        self.passing.is_none() && (self.call.operation != Operation::Broadcast || self.is_root(me))
    }

    /// Whether everything is there that this member needs of a small operation.
    fn is_ready(&self, lines: &Lines, me: usize, size: usize) -> bool {
        match self.call.operation {
            Operation::Broadcast => {
                let root = self.call.root.unwrap_or(0) as usize;
                root == me || root < self.agreed || lines.has_come(root, self.sequence)
            }
            Operation::Reduce | Operation::Gather if !self.is_root(me) => true,
            Operation::Scan | Operation::Exscan => self.agreed >= me,
            _ => self.agreed == size,
        }
    }

    /// Whether a step would do something.
    fn would_go_on(&self, lines: &Lines, me: usize, size: usize, passes: bool) -> bool {
        if !self.published {
            return lines.has_slot(self.sequence);
        }
        let next = if self.agreed == me { me + 1 } else { self.agreed };
        if next < size && lines.has_come(next, self.sequence) {
            return true;
        }
        match self.passing {
            _ if self.place.is_none() => false,
            None => self.is_ready(lines, me, size),
            Some(_) => passes && self.would_pass(lines, me, size),
        }
    }

    /// Compares the calls of members that have come.
    #[inline]
    pub(super) fn compare(&mut self, context: &Context, lines: &Lines) -> Result<(), Failure> {
        let (me, size) = (context.members.me as usize, context.members.ranks.len());
        while self.agreed < size {
            if self.agreed != me {
                match lines.has_called(self.agreed, self.sequence, self.head) {
                    None => break,
                    Some(true) => {}
                    Some(false) => self.differs(self.agreed, context, lines)?,
                }
            }
            self.agreed += 1;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn compare_with(&self, member: usize, context: &Context, lines: &Lines) -> Result<(), Failure> {
        if lines.has_called(member, self.sequence, self.head) == Some(true) {
            return Ok(());
        }
        self.differs(member, context, lines)
    }

    #[cold]
    fn differs(&self, member: usize, context: &Context, lines: &Lines) -> Result<(), Failure> {
        let theirs = lines.called(member, self.sequence);
        match theirs {
            Some(theirs) if theirs == self.call => Ok(()),
            Some(_) => disagree(&context.members, member as u32, self.call, theirs).map_or(Ok(()), Err),
            None => Err(context.unmatched(member as u32, true)),
        }
    }
}

impl Context {
    /// How an operation uses the memory that the members share, if it does.
    pub(super) fn way(&self, call: Call, large: u64) -> Option<Way> {
        let lines = self.lines.as_ref()?;
        let small = bytes(call) <= SMALL as u64;
        match call.operation {
            Operation::Reduce | Operation::Allreduce | Operation::Scan | Operation::Exscan => {
                (small && !call.ordered).then_some(Way::Lines)
            }
            Operation::Barrier | Operation::Gather => small.then_some(Way::Lines),
            Operation::Split | Operation::Duplicate | Operation::Select => small.then_some(Way::Lines),
            Operation::Broadcast | Operation::Allgather if small => Some(Way::Lines),
            Operation::Broadcast | Operation::Allgather => {
                (lines.block() > 0 && bytes(call) >= large).then_some(Way::Blocks)
            }
            _ => None,
        }
    }

    /// The failure of a team in which a member has sent a message for an operation that has none.
    pub(super) fn out_of_place(&self, member: u32, call: Call, sent: u64) -> Failure {
        let (from, to) = (self.members.ranks[member as usize], self.members.ranks[self.members.me as usize]);
        if sent == bytes(call) {
            return self.unmatched(member, true);
        }
        Failure::Size { from, to, sent, expected: bytes(call) }
    }

    /// The members without which an operation through shared memory does not go on.
    pub(super) fn missing(&self, place: u32) -> impl Iterator<Item = u32> {
        let found = self.direct.iter().find(|direct| direct.place == Some(place)).zip(self.lines.as_ref());
        let me = self.members.me;
        found.into_iter().flat_map(move |(direct, lines)| {
            let misses = move |member: &u32| {
                let at = *member as usize;
                let last = direct.passing.map(|passing| passing.last());
                !lines.has_come(at, direct.sequence) || last.is_some_and(|last| !lines.has_passed(at, last))
            };
            (0..self.members.ranks.len() as u32).filter(move |member| *member != me).filter(misses)
        })
    }

    /// Whether an operation through shared memory would go on.
    fn would_go_on(&self) -> bool {
        let Some(lines) = &self.lines else { return false };
        let (me, size, mut passes) = (self.members.me as usize, self.members.ranks.len(), true);
        for direct in &self.direct {
            if direct.would_go_on(lines, me, size, passes) {
                return true;
            }
            if !direct.published {
                break;
            }
            passes &= direct.passing.is_none() || direct.place.is_none();
        }
        false
    }

    /// Whether the lines are those of this process's parent. The next look for losses ends the team's operations
    /// then.
    pub(super) fn is_fork<P: Post>(&self, post: &P) -> bool {
        let other = u32::from(self.members.me == 0);
        self.members.ranks.len() > 1 && post.is_fork(self.members.address(other))
    }

    /// Wakes the others up if they sleep.
    pub(super) fn wake_others<P: Post>(&self, post: &mut P) {
        let (members, me) = (&self.members, self.members.me);
        for member in (0..members.ranks.len() as u32).filter(|member| *member != me) {
            post.wake_peer(members.address(member));
        }
    }

    /// The first operation with which this member is not done.
    pub(super) fn done(&self) -> u32 {
        let (oldest, waits) = (self.oldest(), self.direct.front().map(|direct| direct.sequence));
        waits.filter(|waits| (oldest.wrapping_sub(*waits) as i32) > 0).unwrap_or(oldest)
    }
}

impl Instance {
    /// Ends a small operation, for which all is there that this member needs.
    fn conclude(&mut self, lines: &Lines, sequence: u32, me: usize, size: usize) {
        let (call, root) = (self.call, self.call.root.unwrap_or(0) as usize);
        let len = bytes(call) as usize;
        let given = |member| lines.given(member, sequence);
        let members = match call.operation {
            Operation::Broadcast if me != root => {
                return self.all_mut()[..len].copy_from_slice(&given(root)[..len]);
            }
            Operation::Gather if me != root => return,
            Operation::Gather
            | Operation::Allgather
            | Operation::Split
            | Operation::Duplicate
            | Operation::Select => {
                for member in 0..size {
                    self.all_mut()[member * len..][..len].copy_from_slice(&given(member)[..len]);
                }
                return;
            }
            Operation::Barrier | Operation::Allreduce => size,
            Operation::Reduce if me == root => size,
            Operation::Scan => me + 1,
            Operation::Exscan => me,
            _ => 0,
        };
        if members > 0 {
            let mut sum = given(0);
            (1..members).for_each(|member| self.combine(&mut sum[..len], &given(member)[..len]));
            self.all_mut()[..len].copy_from_slice(&sum[..len]);
        }
    }
}

impl Engine {
    /// The largest team that uses shared memory.
    pub(crate) fn largest_direct(&self) -> usize {
        self.tuning.direct
    }

    /// Room in this member's auxiliary segment for a team's lines and blocks.
    pub(crate) fn offer(&mut self, segment: usize) -> Offer {
        self.collect();
        self.auxiliary.offer(segment)
    }

    /// Lets a team use the memory that its members have offered, if all have.
    pub(crate) fn share(
        &mut self,
        number: u32,
        offers: &[Offer],
        memory: impl FnMut(usize) -> Option<Segment<AnyMemory>>,
    ) {
        let Some(index) = self.context_index(number) else { return };
        let context = &mut self.contexts[index];
        let me = context.members.me as usize;
        context.lines = Lines::open(number, me, offers, memory);
        // Those that were made before are for messages.
        context.forget_schedules();
        match &context.lines {
            Some(lines) => {
                context.told = context.oldest();
                lines.tell_done(context.told);
                // Others may have used all slots meanwhile.
                context.wakes_others = true;
                self.follow(index);
            }
            None => self.auxiliary.give_back(offers[me]),
        }
    }

    /// Takes room back that was offered to a team which this member does not use it for.
    pub(crate) fn take_back_offer(&mut self, offer: Offer) {
        self.auxiliary.give_back(offer);
    }

    /// Lets progress look after the lines of a team.
    pub(super) fn follow(&mut self, index: usize) {
        let context = &mut self.contexts[index];
        if !std::mem::replace(&mut context.shares, true) {
            self.sharing.push(context.members.context);
        }
    }

    /// Whether a team uses memory that its members share.
    #[cfg(test)]
    pub(crate) fn shares(&self, number: u32) -> bool {
        self.context_index(number).is_some_and(|index| self.contexts[index].lines.is_some())
    }

    /// How an operation of a team uses the memory that its members share, if it does.
    pub(crate) fn way(&self, number: u32, call: Call) -> Option<Way> {
        let context = &self.contexts[self.context_index(number)?];
        context.way(call, self.tuning.direct_bytes as u64)
    }

    /// Notes that an operation through shared memory has begun.
    pub(super) fn begin_directly(&mut self, index: usize, sequence: u32, call: Call, place: u32, way: Way) {
        let context = &mut self.contexts[index];
        let Some(lines) = context.lines.as_mut() else { return };
        context.direct.push_back(Direct::new(sequence, call, place, way, lines));
        self.follow(index);
    }

    /// Lets the call of an operation by messages be compared with those of the others, if the team has lines.
    pub(super) fn compare_directly(&mut self, index: usize, sequence: u32, call: Call) {
        let context = &mut self.contexts[index];
        if context.lines.is_some() {
            context.direct.push_back(Direct::compared(sequence, call));
            self.follow(index);
        }
    }

    /// Carries on operations through shared memory.
    pub(super) fn advance_direct<P: Post>(&mut self, post: &mut P) {
        let mut at = 0;
        while at < self.sharing.len() {
            let index = self.context_index(self.sharing[at]);
            if let Some(index) = index {
                self.advance_team(index, post);
                if !self.contexts[index].direct.is_empty() {
                    at += 1;
                    continue;
                }
                self.contexts[index].shares = false;
            }
            self.sharing.swap_remove(at);
        }
    }

    fn advance_team<P: Post>(&mut self, index: usize, post: &mut P) {
        if self.contexts[index].is_fork(post) || self.contexts[index].suspicion.is_some() {
            return;
        }
        let (mut at, mut passes) = (0, true);
        while at < self.contexts[index].direct.len() {
            let context = &mut self.contexts[index];
            let (me, size) = (context.members.me as usize, context.members.ranks.len());
            // Taken out while the instance works on it.
            let (Some(lines), Some(mut direct)) = (context.lines.take(), context.direct.remove(at)) else {
                return;
            };
            let stepped = self.step(index, &mut direct, &lines, passes, post);
            let ended = stepped == Ok(true);
            let place = direct.place;
            let published = direct.published;
            if ended && let Some(place) = direct.place.take() {
                self.combines.set(Some(self.instances[place as usize].context));
                if direct.passing.is_none() {
                    self.instances[place as usize].conclude(&lines, direct.sequence, me, size);
                }
                self.combines.set(None);
            }
            passes &= direct.passing.is_none() || direct.place.is_none();
            let context = &mut self.contexts[index];
            context.lines = Some(lines);
            if direct.place.is_some() || direct.agreed < size {
                context.direct.insert(at, direct);
                at += 1;
            }
            match (stepped, place) {
                (Err(failure), _) => {
                    // The others may wait for what it has published or filled.
                    if std::mem::take(&mut context.wakes_others) {
                        context.wake_others(post);
                    }
                    return self.fail(index, failure);
                }
                (_, Some(place)) if ended => self.end(index, place as usize, Ok(())),
                _ => {}
            }
            if !published {
                break;
            }
        }
        self.settle(index, post);
    }

    /// One step of an operation; whether all is there that this member needs of it.
    fn step<P: Post>(
        &mut self,
        index: usize,
        direct: &mut Direct,
        lines: &Lines,
        passes: bool,
        post: &mut P,
    ) -> Result<bool, Failure> {
        let context = &mut self.contexts[index];
        let (me, size) = (context.members.me as usize, context.members.ranks.len());
        if !direct.published {
            if !lines.has_slot(direct.sequence) {
                return Ok(false);
            }
            let instance = direct.place.filter(|_| direct.gives(me)).map(|place| &self.instances[place as usize]);
            let lent = direct.passing.and_then(|passing| passing.lent()).map(lent_in_line);
            let lent = lent.as_ref().map_or(&[][..], |line| line);
            lines.publish(direct.sequence, direct.call, instance.map_or(lent, |instance| instance.given(me)));
            (direct.published, context.wakes_others) = (true, true);
            self.went = self.went.wrapping_add(1);
        }
        let Some(place) = direct.place else {
            return direct.compare(context, lines).map(|()| false);
        };
        let instance = &mut self.instances[place as usize];
        if direct.passing.is_none() {
            return direct.look(context, lines);
        }
        direct.compare(context, lines)?;
        if passes && !instance.lent {
            let mut buffers = Buffers::All(instance.all_mut());
            let passed = direct.pass(context, lines, &mut buffers, post);
            // A part that fails may have filled blocks before.
            if passed != Ok(false) {
                context.wakes_others = true;
                self.went = self.went.wrapping_add(1);
            }
            passed?;
        }
        let passed = direct.has_passed(me, size, lines);
        // The next to give may wait for this member to have passed.
        context.wakes_others |= passed;
        Ok(passed)
    }

    /// Lets data pass of a large operation whose buffers its caller has, if it is its turn, with so many looks at
    /// what the others do for each part.
    pub(crate) fn pass_lent<P: Post>(&mut self, id: u64, buffers: &mut Buffers<'_>, looks: u32, post: &mut P) {
        let Some(place) = self.place(id) else { return };
        let Some(index) = self.context_index(self.instances[place].context) else { return };
        let context = &mut self.contexts[index];
        if context.is_fork(post) {
            return;
        }
        let Some(at) = context.direct.iter().position(|direct| direct.passing.is_some() && direct.place.is_some())
        else {
            return;
        };
        if context.direct[at].place != Some(place as u32) || !context.direct[at].published {
            return;
        }
        let (Some(lines), Some(mut direct)) = (context.lines.take(), context.direct.remove(at)) else { return };
        let passed = direct.pass_on(context, &lines, buffers, looks, post);
        context.lends &= !direct.is_refused(&lines);
        context.direct.insert(at, direct);
        context.lines = Some(lines);
        if let Err(failure) = passed {
            self.fail(index, failure);
        }
    }

    /// Wakes the others up if they may wait for what this member has changed, and tells them with which operations
    /// it is done once they may soon need to know.
    #[inline]
    pub(super) fn settle_soon<P: Post>(&mut self, index: usize, post: &mut P) {
        let number = self.contexts[index].members.context;
        if self.untold != Some(number) {
            self.tell_rest(number, post);
        }
        let context = &mut self.contexts[index];
        if context.done().wrapping_sub(context.told) >= SLOTS / 2 {
            return self.settle(index, post);
        }
        if std::mem::take(&mut context.wakes_others) {
            context.wake_others(post);
        }
    }

    /// Operations of another team than the last ones end: tells with which of those this member is done, since
    /// there may be no more of them, and the others could give the lines of a team that all have let go to
    /// another.
    #[cold]
    fn tell_rest<P: Post>(&mut self, number: u32, post: &mut P) {
        let before = self.untold.replace(number);
        if let Some(index) = before.and_then(|before| self.context_index(before)) {
            self.settle(index, post);
        }
    }

    /// Tells with which operations this member is done, and wakes the others up if they may wait for what it
    /// changed.
    pub(super) fn settle<P: Post>(&mut self, index: usize, post: &mut P) {
        let context = &mut self.contexts[index];
        let (done, Some(lines)) = (context.done(), &context.lines) else { return };
        if context.told != done {
            lines.tell_done(done);
            (context.told, context.wakes_others) = (done, true);
        }
        if std::mem::take(&mut context.wakes_others) {
            context.wake_others(post);
        }
    }

    /// Whether members have changed memory for which an operation waits.
    pub(crate) fn has_changed(&self) -> bool {
        let contexts = self.sharing.iter().filter_map(|number| self.context_index(*number));
        contexts.into_iter().any(|index| self.contexts[index].would_go_on())
    }

    /// Whether an operation goes through shared memory.
    pub(crate) fn is_direct(&self, id: u64) -> bool {
        self.place(id).is_some_and(|place| self.instances[place].direct)
    }
}
