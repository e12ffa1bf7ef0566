//! Small operations through shared memory for which everybody comes at about the same time: they are over within a
//! few looks at the lines of the others, without an instance. One that is not gets an instance, and is waited for
//! as any other.

use super::direct::Direct;
use super::instance::{Data, Instance};
use super::lines::{Lines, SMALL};
use super::{Engine, Post, directly};
use crate::collectives::error::{Call, Failure, Operation};
use crate::collectives::operator::Fold;
use crate::collectives::schedule::Side;
use crate::collectives::tuning::Seat;

/// Operations that may end at once before the endpoint serves its peers.
const AT_ONCE: u32 = 16;

/// What is folded into the caller's elements. Dropped amid that, as in a panic of the operator, it puts back what
/// the caller gave, which the member's own line has as well.
struct Folded<'a> {
    lines: &'a Lines,
    me: usize,
    sequence: u32,
    bytes: &'a mut [u8],
}

impl Drop for Folded<'_> {
    fn drop(&mut self) {
        self.lines.take(self.me, self.sequence, self.bytes);
    }
}

/// How often a member looks at the lines of the others, at first one look after the other, then letting others use
/// its processor before each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looks {
    pub(crate) spins: u32,
    pub(crate) yields: u32,
}

/// How such an operation has come out.
#[derive(Debug)]
pub(crate) enum Quick {
    /// It is no such operation.
    No,
    /// It is over.
    Over,
    /// It has an instance.
    Begun(u64),
}

impl Engine {
    /// Does an operation whose result takes the place of what this member gives, with so many looks.
    pub(crate) fn quickly<P: Post>(
        &mut self,
        seat: Seat<'_>,
        number: u32,
        (call, fold): (Call, &mut Option<Fold>),
        bytes: &mut [u8],
        looks: Looks,
        post: &mut P,
    ) -> Quick {
        self.take_note();
        self.recover();
        let Some(index) = self.context_index(number) else { return Quick::No };
        let context = &mut self.contexts[index];
        let waits =
            context.early + context.readies > 0 || !context.noticed.is_empty() || context.suspicion.is_some();
        if self.tuning.check || context.failure.is_some() || waits || context.way(call, u64::MAX).is_none() {
            return Quick::No;
        }
        let Some(lines) = &context.lines else { return Quick::No };
        if context.direct.iter().any(Direct::is_under_way) || !lines.has_slot(context.next) {
            return Quick::No;
        }
        // The books are done before: what they read of what was just written would wait until the line is this
        // member's again. It is under way from here on: the others may not use its slot again before this member
        // has read theirs.
        let sequence = context.number(Some(call), false);
        context.live.push_back(None);
        let mut direct = Direct::published(sequence, call);
        if let Some(lines) = &context.lines {
            lines.publish(sequence, call, bytes);
        }
        context.wakes_others = true;
        self.settle_soon(index, post);
        let ready = match self.look(index, &mut direct, looks, post) {
            Ok(ready) => ready,
            Err(failure) => {
                self.fail(index, failure);
                // The operation that follows finds it.
                return Quick::No;
            }
        };
        if !ready {
            let id = self.instance(seat, index, (call, fold.take()), direct, bytes);
            return Quick::Begun(id);
        }
        self.combines.set(Some(number));
        self.take_result(index, &direct, fold.as_ref(), bytes);
        self.combines.set(None);
        self.contexts[index].ended(sequence);
        if !direct.is_agreed(seat.size) {
            self.contexts[index].direct.push_back(direct);
            self.follow(index);
        }
        self.settle_soon(index, post);
        Quick::Over
    }

    /// Whether so many operations have ended at once that the endpoint has to serve its peers.
    #[inline]
    pub(crate) fn is_time_to_serve(&mut self) -> bool {
        self.at_once = (self.at_once + 1) % AT_ONCE;
        self.at_once == 0
    }

    /// Looks at the lines of the others; whether all is there that this member needs.
    #[inline]
    fn look<P: Post>(
        &mut self,
        index: usize,
        direct: &mut Direct,
        Looks { spins, yields }: Looks,
        post: &mut P,
    ) -> Result<bool, Failure> {
        let context = &mut self.contexts[index];
        let Some(lines) = context.lines.take() else { return Ok(false) };
        let mut outcome = Ok(false);
        for turn in 0..spins + yields {
            if turn >= spins {
                post.give_way();
            }
            outcome = direct.look(context, &lines);
            if !matches!(outcome, Ok(false)) {
                break;
            }
        }
        if matches!(outcome, Ok(true)) && !context.direct.is_empty() {
            // Whoever has come to this one has come to those before.
            let (size, mut before) = (context.members.ranks.len(), std::mem::take(&mut context.direct));
            while let Some(first) = before.front_mut() {
                match first.compare(context, &lines) {
                    Ok(()) if first.is_agreed(size) => drop(before.pop_front()),
                    Ok(()) => break,
                    Err(failure) => {
                        outcome = Err(failure);
                        break;
                    }
                }
            }
            context.direct = before;
        }
        context.lines = Some(lines);
        outcome
    }

    #[inline]
    fn take_result(&mut self, index: usize, direct: &Direct, fold: Option<&Fold>, bytes: &mut [u8]) {
        let context = &self.contexts[index];
        let Some(lines) = &context.lines else { return };
        let (call, sequence) = (direct.call(), direct.sequence());
        let (me, root) = (context.members.me as usize, call.root.unwrap_or(0) as usize);
        match call.operation {
            Operation::Broadcast if me != root => {
                lines.take(root, sequence, bytes);
            }
            Operation::Reduce if me != root => {}
            Operation::Barrier | Operation::Allreduce | Operation::Reduce => {
                let fold = fold.expect("an operation that combines has an operator");
                let mut given = [0; SMALL];
                let given = &mut given[..bytes.len()];
                // An operator that panics leaves what was given.
                let folded = Folded { lines, me, sequence, bytes };
                lines.take(0, sequence, folded.bytes);
                for member in 1..context.members.ranks.len() {
                    lines.take(member, sequence, given);
                    fold(folded.bytes, given, Side::Right);
                }
                std::mem::forget(folded);
            }
            _ => {}
        }
    }

    /// Gives an operation an instance that not everybody has come to.
    #[cold]
    fn instance(
        &mut self,
        seat: Seat<'_>,
        index: usize,
        (call, fold): (Call, Option<Fold>),
        mut direct: Direct,
        bytes: &[u8],
    ) -> u64 {
        let number = self.contexts[index].members.context;
        let schedule = self.schedule(number, call, |_| directly(call, seat));
        let place = self.free.pop().unwrap_or_else(|| {
            self.instances.push(Instance::new(&schedule, call));
            self.instances.len() as u32 - 1
        });
        let instance = &mut self.instances[place as usize];
        if let Data::Pooled(data) = &mut instance.data {
            data.resize(data.len().max(bytes.len()), 0);
            data[..bytes.len()].copy_from_slice(bytes);
        }
        (instance.context, instance.sequence) = (number, direct.sequence());
        instance.begin(schedule, call, fold);
        (instance.direct, instance.position) = (true, seat.me);
        let id = u64::from(instance.generation) << 32 | u64::from(place);
        if let Some(entry) = self.contexts[index].live.back_mut() {
            *entry = Some(place);
        }
        direct.set_place(place);
        self.contexts[index].direct.push_back(direct);
        self.follow(index);
        id
    }
}
