//! How the data of a large operation pass through shared memory: a giver lends its elements and the others read
//! them where they are, or they pass by blocks.
//!
//! Whoever gives decides, and says in its line what it lends. A member that cannot read it, since the system does
//! not permit that or the giver's call has timed out, asks for blocks, which the giver then fills. A giver that
//! lends is done when all others have passed the last round, and one that was asked for blocks lends nothing to
//! its team from then on.

use super::context::Context;
use super::direct::{Direct, bytes};
use super::instance::Buffers;
use super::lines::{Lines, SMALL};
use super::{Engine, Post};
use crate::collectives::error::{Failure, Operation};
use am_core::transport::{Lent, Loan};

/// The largest team whose members lend.
const MEMBERS: usize = u64::BITS as usize;

/// Bytes that are read from one member between two looks at the network.
const PIECE: usize = 256 << 10;

/// Parts that pass between two looks at the network: blocks of 64 KiB, so that a megabyte passes at once where
/// nobody waits, or pieces of 256 KiB that are read from members, four megabytes. Messages are not served
/// meanwhile: some 50 us for blocks on a fast machine, and 275 us for pieces where the system copies 15 GB/s
/// (computed).
const PARTS: u32 = 16;

/// How far the data of a large operation have passed at this member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing {
    /// The number of its first round, and how many there are.
    first: u32,
    rounds: u32,
    /// Rounds for which this member has filled its block, and rounds of which it has read what all give.
    filled: u32,
    read: u32,
    /// Givers of the round under way of which it has read.
    givers: u32,
    /// What this member lends, and whether its own elements are in place then.
    lent: Option<Lent>,
    placed: bool,
    /// Bytes of the next giver that have been read where they are.
    at: usize,
    /// Members, by bits, whose elements have been read where they are, and those that were asked for blocks.
    straight: u64,
    asked: u64,
}

impl Passing {
    pub(super) fn new(first: u32, rounds: u32) -> Self {
        Self {
            first,
            rounds,
            filled: 0,
            read: 0,
            givers: 0,
            lent: None,
            placed: false,
            at: 0,
            straight: 0,
            asked: 0,
        }
    }

    /// The number of the last round.
    pub(super) fn last(&self) -> u32 {
        self.first.wrapping_add(self.rounds - 1)
    }

    /// What this member lends.
    pub(super) fn lent(&self) -> Option<Lent> {
        self.lent
    }
}

/// A loan as a line says it.
pub(super) fn lent_in_line(lent: Lent) -> [u8; SMALL] {
    let mut line = [0; SMALL];
    let words = [lent.address, lent.proof_at, u64::from(lent.ticket) << 32 | 1];
    line.as_chunks_mut::<8>().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
    line
}

/// What a line says of a loan.
fn lent_of(line: &[u8; SMALL]) -> Option<Lent> {
    let word = |at: usize| line.as_chunks::<8>().0.get(at).map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (word(2) & 1 == 1).then(|| Lent::new(word(0), word(1), (word(2) >> 32) as u32))
}

const fn bit(member: usize) -> u64 {
    1 << (member % MEMBERS)
}

impl Direct {
    /// Members whose elements this one needs.
    fn sources(&self, size: usize) -> usize {
        if self.call.operation == Operation::Broadcast { 1 } else { size - 1 }
    }

    /// Where this member gets the next bytes from, if it needs some.
    fn source(&self, me: usize, size: usize) -> Option<usize> {
        let passing = self.passing.filter(|passing| passing.read < passing.rounds)?;
        match self.call.operation {
            Operation::Broadcast => self.call.root.map(|root| root as usize).filter(|root| *root != me),
            _ => Some((me + 1 + passing.givers as usize) % size),
        }
    }

    /// What the next giver lends, until it is asked for blocks.
    fn offered(&self, from: usize, size: usize, lines: &Lines) -> Option<Lent> {
        let passing = self.passing?;
        let looks = passing.read == 0 && passing.asked & bit(from) == 0 && size <= MEMBERS;
        if !looks || !lines.has_come(from, self.sequence) {
            return None;
        }
        lent_of(&lines.given(from, self.sequence))
    }

    /// The round for which this member fills its block next, if there is one.
    fn fills(&self, lines: &Lines, me: usize) -> Option<u32> {
        let passing = self.passing.filter(|passing| passing.filled < passing.rounds)?;
        let gives = self.call.operation != Operation::Broadcast || self.is_root(me);
        let by_blocks = passing.lent.is_none() || lines.is_asked(passing.last());
        (gives && by_blocks).then(|| passing.first.wrapping_add(passing.filled))
    }

    /// Whether all others have read what this member lends, if it lends.
    fn has_lent(&self, lines: &Lines, me: usize, size: usize) -> bool {
        let Some(passing) = self.passing.filter(|passing| passing.lent.is_some()) else { return true };
        (0..size).all(|member| member == me || lines.has_passed(member, passing.last()))
    }

    /// Whether a member has asked for blocks of what this one lends.
    pub(super) fn is_refused(&self, lines: &Lines) -> bool {
        self.passing.is_some_and(|passing| passing.lent.is_some() && lines.is_asked(passing.last()))
    }

    /// Whether something would pass, or everything has.
    pub(super) fn would_pass(&self, lines: &Lines, me: usize, size: usize) -> bool {
        let (fills, source) = (self.fills(lines, me), self.source(me, size));
        let Some(passing) = self.passing else { return false };
        let round = passing.first.wrapping_add(passing.read);
        fills.is_some_and(|round| lines.may_fill(round))
            || source.is_some_and(|from| self.offered(from, size, lines).is_some() || lines.is_filled(from, round))
            || fills.is_none() && source.is_none() && self.has_lent(lines, me, size)
    }

    /// Lets one part each way pass, or several to the others. Whether one did.
    pub(super) fn pass<P: Post>(
        &mut self,
        context: &Context,
        lines: &Lines,
        buffers: &mut Buffers<'_>,
        post: &mut P,
    ) -> Result<bool, Failure> {
        let (me, size) = (context.members.me as usize, context.members.ranks.len());
        let (len, block) = (bytes(self.call) as usize, lines.block());
        let range = |number: u32| {
            let start = number as usize * block;
            start..(start + block).min(len)
        };
        let part = |member: usize| if self.call.operation == Operation::Broadcast { 0 } else { member * len };
        let (offset, mut moved) = (part(me), false);
        let fills = self.fills(lines, me).filter(|round| lines.may_fill(*round));
        let reads = self.call.operation != Operation::Broadcast;
        let Some(passing) = self.passing.as_mut() else { return Ok(false) };
        if let Some(mut round) = fills {
            let begin = passing.filled;
            // Who reads as well fills every block that it may before, so that the others find them filled.
            loop {
                lines.fill(round, buffers.given(offset, range(passing.filled)));
                (passing.filled, round) = (passing.filled + 1, round.wrapping_add(1));
                if !reads || passing.filled == passing.rounds || !lines.may_fill(round) {
                    break;
                }
            }
            // Behind the copies that others wait for.
            (begin..passing.filled).for_each(|number| buffers.place(offset, range(number)));
            moved = true;
        } else if passing.lent.is_some() && !std::mem::replace(&mut passing.placed, true) {
            buffers.place(offset, 0..len);
        }
        let (read, at, round) = (passing.read, passing.at, passing.first.wrapping_add(passing.read));
        let Some(from) = self.source(me, size) else { return Ok(moved) };
        if let Some(lent) = self.offered(from, size, lines) {
            self.compare_with(from, context, lines)?;
            let end = len.min(at + PIECE);
            let out = buffers.take(part(from), at..end);
            let outcome = post.read_lent(context.members.address(from as u32), &lent, at as u64, out);
            let passing = self.passing.as_mut().expect("an operation by blocks");
            passing.at = end % len;
            if outcome.is_err() {
                (passing.at, passing.asked) = (0, passing.asked | bit(from));
                lines.ask(passing.last());
            } else if end == len {
                passing.straight |= bit(from);
                self.go_on(lines, me, size);
            }
            return Ok(true);
        }
        if lines.is_filled(from, round) {
            self.compare_with(from, context, lines)?;
            lines.read(from, round, buffers.take(part(from), range(read)));
            self.go_on(lines, me, size);
            moved = true;
        }
        Ok(moved)
    }

    /// Lets parts pass for as long as others come after so many looks, a few at most: then it is time for a look
    /// at the network.
    pub(super) fn pass_on<P: Post>(
        &mut self,
        context: &Context,
        lines: &Lines,
        buffers: &mut Buffers<'_>,
        looks: u32,
        post: &mut P,
    ) -> Result<(), Failure> {
        let (me, size) = (context.members.me as usize, context.members.ranks.len());
        // The others are woken for the first part, and once for those behind it.
        let (mut woken, mut moved, mut outcome) = (false, false, Ok(()));
        'parts: for _ in 0..PARTS {
            match self.pass(context, lines, buffers, post) {
                Ok(false) => {}
                Ok(true) if woken => moved = true,
                Ok(true) => {
                    woken = true;
                    context.wake_others(post);
                }
                // The others may wait for what passed before it failed, blocks of the same part among it.
                Err(failure) => {
                    (moved, outcome) = (true, Err(failure));
                    break;
                }
            }
            let mut left = looks;
            while !self.would_pass(lines, me, size) {
                if left == 0 {
                    break 'parts;
                }
                left -= 1;
                std::hint::spin_loop();
            }
        }
        if moved {
            context.wake_others(post);
        }
        outcome
    }

    /// Goes on to the next giver, or the next round.
    fn go_on(&mut self, lines: &Lines, me: usize, size: usize) {
        let sources = self.sources(size);
        let Some(passing) = self.passing.as_mut() else { return };
        passing.givers += 1;
        while passing.read < passing.rounds {
            let straight = |giver: u32| passing.straight & bit((me + 1 + giver as usize) % size) != 0;
            if passing.givers as usize == sources {
                let all = passing.straight.count_ones() as usize == sources;
                (passing.givers, passing.read) = (0, if all { passing.rounds } else { passing.read + 1 });
                lines.pass(passing.first.wrapping_add(passing.read - 1));
            } else if passing.read > 0 && sources > 1 && straight(passing.givers) {
                passing.givers += 1;
            } else {
                return;
            }
        }
    }

    /// Whether all data have passed, which the others are told; those who only give have nothing to read.
    pub(super) fn has_passed(&mut self, me: usize, size: usize, lines: &Lines) -> bool {
        if self.fills(lines, me).is_some() || self.source(me, size).is_some() || !self.has_lent(lines, me, size) {
            return false;
        }
        if let Some(passing) = self.passing {
            lines.leave(passing.last().wrapping_add(1));
        }
        true
    }
}

impl Engine {
    /// Whether a member may lend so many bytes to the others of its team.
    pub(crate) fn may_lend(&self, number: u32, bytes: usize) -> bool {
        let context = self.context_index(number).map(|index| &self.contexts[index]);
        bytes >= self.tuning.lent_bytes
            && context.is_some_and(|context| {
                let blocks = context.lines.as_ref().is_some_and(|lines| lines.block() > 0);
                blocks && context.lends && context.members.ranks.len() <= MEMBERS
            })
    }

    /// Lends nothing to the others of a team from now on.
    pub(crate) fn lend_no_more(&mut self, number: u32) {
        if let Some(index) = self.context_index(number) {
            self.contexts[index].lends = false;
        }
    }

    /// Lends bytes, unless others are lent already.
    pub(crate) fn lend(&mut self, bytes: &[u8]) -> Option<Loan> {
        self.lender.lend(bytes)
    }

    /// Lets the others read what this member gives to an operation that has just begun, and whose elements its
    /// caller has, where it is.
    pub(crate) fn lend_to(&mut self, id: u64, lent: Lent) {
        let Some(place) = self.place(id).filter(|place| self.instances[*place].lent) else { return };
        let Some(index) = self.context_index(self.instances[place].context) else { return };
        let direct = self.contexts[index].direct.iter_mut().find(|direct| direct.is_at(place as u32));
        if let Some(passing) = direct.and_then(|direct| direct.passing.as_mut()) {
            passing.lent = Some(lent);
        }
    }

    /// Gives an operation buffers of its own whose caller takes its own away.
    pub(crate) fn take_back(&mut self, id: u64, buffers: &Buffers<'_>) {
        if let Some(place) = self.place(id).filter(|place| self.instances[*place].outcome.is_none()) {
            self.instances[place].take_back(buffers);
            let index = self.context_index(self.instances[place].context);
            let direct = index.and_then(|index| {
                self.contexts[index].direct.iter_mut().find(|direct| direct.is_at(place as u32))
            });
            // What was lent passes by blocks.
            if let Some(passing) = direct.and_then(|direct| direct.passing.as_mut()) {
                passing.lent = None;
            }
            self.abandon(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::engine::context::Members;
    use crate::collectives::engine::direct::{Way, schedule};
    use crate::collectives::engine::lines::Auxiliary;
    use crate::collectives::{Collectives, call};
    use am_core::loopback::segment;
    use am_core::transport::LentFault;
    use am_core::{Address, Arguments, Handlers, Rank, Request, SendError};
    use std::sync::Arc;

    const SIZE: usize = 4;
    const COUNT: usize = 1 << 10;

    /// Counts how often each member is woken.
    #[derive(Default)]
    struct Bells([u32; SIZE]);

    impl Post for Bells {
        fn send<A: Arguments>(&mut self, _: Address, _: Request<A>, _: A, _: &[u8]) -> Result<(), SendError> {
            unreachable!("what passes through shared memory sends nothing")
        }

        fn largest(&self, _: Address, _: usize) -> u64 {
            0
        }

        fn wake_peer(&mut self, member: Address) {
            self.0[member.rank.0 as usize] += 1;
        }

        fn give_way(&mut self) {}

        fn is_fork(&self, _: Address) -> bool {
            false
        }

        fn read_lent(&mut self, _: Address, _: &Lent, _: u64, _: &mut [u8]) -> Result<(), LentFault> {
            Err(LentFault::NoMemory)
        }
    }

    /// Member 0 takes part in an allgather in which member `odd` has called another operation; how often it wakes
    /// each of the others.
    fn woken_before_failing(odd: usize) -> [u32; SIZE] {
        let memory = [(); SIZE].map(|()| segment(1 << 20).erase());
        let offer = Auxiliary::default().offer(1 << 20);
        let open = |me| Lines::open(0, me, &[offer; SIZE], |member| Some(memory[member].clone())).unwrap();
        let (allgather, len) = (call::<u64>(Operation::Allgather, COUNT, None), 8 * COUNT);
        for member in 1..SIZE {
            let (mut lines, other) = (open(member), call::<u64>(Operation::Alltoall, COUNT, None));
            let (first, _) = lines.begin_rounds(len);
            lines.publish(0, if member == odd { other } else { allgather }, &[]);
            lines.fill(first, &vec![member as u8; len]);
        }
        let members = Members::new(0, 0, (0..SIZE as u32).map(Rank).collect(), 0, 0);
        let (context, mut lines) = (Context::new(Arc::new(members), None), open(0));
        let mut direct = Direct::new(0, allgather, 0, Way::Blocks, &mut lines);
        let (own, mut all, mut bells) = (vec![7; len], vec![0; SIZE * len], Bells::default());
        let mut buffers = Buffers::Apart { own: &own, all: &mut all };
        let failed = direct.pass_on(&context, &lines, &mut buffers, 0, &mut bells);
        assert!(
            matches!(failed, Err(Failure::Mismatch { second, .. }) if second == Rank(odd as u32)),
            "{failed:?}"
        );
        assert!(open(1).is_filled(0, 0), "what member 0 gives is there");
        bells.0
    }

    #[test]
    fn parts_that_fail_wake_the_others() {
        // For its own block, though the same part fails; then for the first part and those behind it.
        assert_eq!(woken_before_failing(1), [0, 1, 1, 1]);
        assert_eq!(woken_before_failing(3), [0, 2, 2, 2]);
    }

    /// Member 0 comes to an operation of which member `odd` has called another, after the others, who sleep until
    /// it has come.
    #[test]
    fn operations_that_fail_wake_the_others() {
        for odd in 1..SIZE {
            let memory = [(); SIZE].map(|()| segment(1 << 20).erase());
            let offer = Auxiliary::default().offer(1 << 20);
            let open = |me| Lines::open(0, me, &[offer; SIZE], |member| Some(memory[member].clone())).unwrap();
            let allgather = call::<u64>(Operation::Allgather, 1, None);
            let mut handlers = Handlers::<Collectives>::new();
            let mut engine = *Collectives::register(&mut handlers).unwrap().engine.unwrap();
            let members = Arc::new(Members::new(0, 0, (0..SIZE as u32).map(Rank).collect(), 0, 0));
            engine.open(&members, None);
            engine.contexts[0].lines = Some(open(0));
            for member in 1..SIZE {
                let other = call::<u64>(Operation::Allreduce, 1, None);
                open(member).publish(0, if member == odd { other } else { allgather }, &[member as u8; 8]);
            }
            let schedule = Arc::new(schedule(allgather, 0, SIZE));
            engine.begin(&members, allgather, (schedule, Some(Way::Lines)), None, None, |_| ()).unwrap();
            let mut bells = Bells::default();
            engine.advance_direct(&mut bells);
            let failed = engine.failure(0);
            let other = Rank(odd as u32);
            assert!(matches!(failed, Some(Failure::Mismatch { second, .. }) if second == other), "{failed:?}");
            assert!(open(1).has_come(0, 0), "what member 0 called is there to see");
            assert_eq!(bells.0, [0, 1, 1, 1], "member {odd} differs");
        }
    }
}
