//! Members whose calls differ, operators that panic, and how a team's members learn of it.
//!
//! Each member numbers its calls, so that what belongs together has the same number. A call that is refused for
//! its arguments has a number too, and all members are told. What a member sends that no call of the other awaits,
//! and what it awaits that no call of the other sends, are faults. Where [`Tuning::check`](super::Tuning::check)
//! is set, each member also tells the next one what it called: if any two calls differ, two neighbours do.

use super::context::{Context, Members, NOTICES, Stage};
use super::{Engine, HandlerResult, StrayKind, out_of_bounds};
use crate::collectives::error::{Call, Failure};
use crate::collectives::schedule::Schedule;
use am_core::{Address, Rank};

/// In the place of an operation: the call was refused.
pub(super) const REFUSED: u32 = u32::MAX;

/// The team whose operator is being called. If it is still there afterwards, the operator panicked.
#[derive(Debug, Default)]
pub(super) struct Combines(Option<u32>);

impl Combines {
    /// Notes that the operator of a team is about to be called, or that it has returned.
    #[inline]
    pub(super) fn set(&mut self, of: Option<u32>) {
        self.0 = of;
    }
}

/// Whether a schedule has a message with this tag to a member.
pub(super) fn sends(schedule: &Schedule, member: u32, tag: u32) -> bool {
    let in_round = |round| {
        let mut sends = schedule.round(round).sends.iter();
        sends.any(|send| (send.to, send.tag) == (member, tag))
    };
    (0..schedule.rounds()).any(in_round)
}

/// The failure of a team whose members called different operations.
pub(super) fn disagree(members: &Members, member: u32, mine: Call, theirs: Option<Call>) -> Option<Failure> {
    let theirs = theirs.filter(|theirs| *theirs != mine)?;
    let (me, other) = (members.ranks[members.me as usize], members.ranks[member as usize]);
    let (a, b): ((Rank, Call), (Rank, Call)) = ((me, mine), (other, theirs));
    // All members tell it alike.
    let ((first, first_call), (second, second_call)) = if me < other { (a, b) } else { (b, a) };
    Some(Failure::Mismatch { first, first_call, second, second_call })
}

impl Context {
    /// Numbers a call, or one that was refused, and lets those be told who have to know.
    pub(super) fn number(&mut self, call: Option<Call>, check: bool) -> u32 {
        let (sequence, me, size) = (self.next, self.members.me, self.members.ranks.len() as u32);
        if let Some(lines) = &self.lines {
            lines.refresh(sequence, self.done());
        }
        self.next = self.next.wrapping_add(1);
        if self.recent.len() == NOTICES {
            self.recent.pop_front();
        }
        self.recent.push_back((sequence, call));
        match call {
            Some(call) if check && size > 1 => self.notices.push_back(((me + 1) % size, sequence, Some(call))),
            Some(_) => {}
            None => self.notices.extend((1..size).map(|distance| ((me + distance) % size, sequence, None))),
        }
        sequence
    }

    /// What this member called under a number, unless that is too long ago.
    pub(super) fn called(&self, sequence: u32) -> Option<Option<Call>> {
        self.recent.iter().rev().find(|(other, _)| *other == sequence).map(|(_, call)| *call)
    }

    /// The failure of a team in which this member has refused a call that another one goes through with.
    pub(super) fn refused(&self, sequence: u32) -> Option<Failure> {
        let rank = self.members.ranks[self.members.me as usize];
        (self.called(sequence) == Some(None)).then_some(Failure::Arguments { rank })
    }

    /// The failure of a team in which a member has sent something for a call that is over here.
    pub(super) fn unawaited(&self, member: u32, sequence: u32) -> Option<Failure> {
        if self.broken {
            return None;
        }
        self.refused(sequence).or(Some(self.unmatched(member, true)))
    }

    /// The failure of a team in which a member has sent this one a message, or awaits one of it, that this one
    /// knows nothing of.
    pub(super) fn unmatched(&self, member: u32, sent: bool) -> Failure {
        let (me, other) = (self.members.ranks[self.members.me as usize], self.members.ranks[member as usize]);
        if sent { Failure::Unmatched { from: other, to: me } } else { Failure::Unmatched { from: me, to: other } }
    }

    /// The failure of a team in which another member told, with something of it, that it called something else.
    pub(super) fn differs(&self, member: u32, sequence: u32, theirs: Option<Call>) -> Option<Failure> {
        theirs.and_then(|_| self.compare(member, sequence, theirs))
    }

    /// [`Context::compare`] of what a member has told by itself, perhaps since an operation of it stands still.
    /// Where calls are not compared in any case, names of types and of operators, which no message shows, decide
    /// nothing: who is late must not decide whether a program ends well.
    fn compare_told(&self, member: u32, sequence: u32, theirs: Option<Call>, check: bool) -> Option<Failure> {
        let alike = |theirs: Call| match self.called(sequence) {
            Some(Some(mine)) if !(check || self.shares) => {
                Call { of: mine.of, operator: theirs.operator.and(mine.operator), ..theirs }
            }
            _ => theirs,
        };
        self.compare(member, sequence, theirs.map(alike))
    }

    /// Whether what another member called goes with what this one did.
    fn compare(&self, member: u32, sequence: u32, theirs: Option<Call>) -> Option<Failure> {
        match (self.called(sequence)?, theirs) {
            (Some(mine), Some(_)) => disagree(&self.members, member, mine, theirs),
            (Some(_), None) => Some(Failure::Arguments { rank: self.members.ranks[member as usize] }),
            (None, Some(_)) => self.refused(sequence),
            (None, None) => None,
        }
    }
}

impl Engine {
    /// Gives a call a number that was refused for its arguments. The other members are told, and if one of them
    /// goes through with the call, the team fails.
    pub(crate) fn refuse(&mut self, number: u32) {
        let Some(index) = self.context_index(number) else { return };
        let context = &mut self.contexts[index];
        if context.failure.is_some() {
            return;
        }
        context.live.push_back(None);
        let sequence = context.number(None, false);
        context.ended(sequence);
        self.list(index);
        self.look_back(index, sequence);
    }

    /// Looks at what came for a call before this member came to it.
    pub(super) fn look_back(&mut self, index: usize, sequence: u32) {
        let check = self.tuning.check;
        let context = &mut self.contexts[index];
        let mut failure = None;
        if !context.noticed.is_empty() {
            let noticed = std::mem::take(&mut context.noticed);
            for (member, _, theirs) in noticed.iter().filter(|(_, other, _)| *other == sequence) {
                failure = failure.or_else(|| context.compare_told(*member, sequence, *theirs, check));
            }
            context.noticed = noticed;
            context.noticed.retain(|(_, other, _)| *other != sequence);
        }
        let direct = match context.stage(sequence) {
            Stage::Live(place) => Some(&self.instances[place as usize]).filter(|instance| instance.direct),
            _ => None,
        };
        let refused = context.called(sequence) == Some(None);
        if context.early > 0 {
            let early = context.pairs.iter().flat_map(|pair| pair.early.iter().map(|early| (pair.member, early)));
            let mut early = early.filter(|(_, early)| early.sequence == sequence);
            let found = early.find_map(|(member, early)| match early.call {
                None if refused => context.refused(sequence),
                theirs => {
                    let differ = context.differs(member, sequence, theirs);
                    let out_of_place = |instance: &super::Instance| {
                        context.out_of_place(member, instance.call, early.bytes.len() as u64)
                    };
                    differ.or_else(|| direct.map(out_of_place))
                }
            });
            failure = failure.or(found);
        }
        if context.readies > 0 {
            let schedule = match context.stage(sequence) {
                Stage::Live(place) => Some(&self.instances[place as usize].schedule),
                _ => None,
            };
            let context = &self.contexts[index];
            let ready = context.pairs.iter().flat_map(|pair| pair.ready.iter().map(|ready| (pair.member, *ready)));
            let mut ready = ready.filter(|(_, ready)| ready.sequence == sequence);
            let found = ready.find_map(|(member, ready)| {
                context.differs(member, sequence, ready.call).or_else(|| match schedule {
                    Some(schedule) => {
                        (!sends(schedule, member, ready.tag)).then(|| context.unmatched(member, false))
                    }
                    None => context.refused(sequence),
                })
            });
            failure = failure.or(found);
        }
        if let Some(failure) = failure {
            self.suspect(index, sequence, failure);
        }
    }

    /// Looks whether an operation that ended well has left anything that came for it.
    pub(super) fn look_for_rests(&mut self, index: usize, sequence: u32) {
        let context = &self.contexts[index];
        if context.early == 0 {
            return;
        }
        let left = |early: &&super::Early| early.sequence == sequence;
        let rest = context.pairs.iter().find_map(|pair| Some((pair.member, pair.early.iter().find(left)?.call)));
        if let Some((member, call)) = rest {
            let differ = context.differs(member, sequence, call);
            let failure = differ.unwrap_or_else(|| context.unmatched(member, true));
            self.suspect(index, sequence, failure);
        }
    }

    /// A member tells what it called, or that it refused a call.
    pub(in crate::collectives) fn noticed(&mut self, from: Address, words: [u32; 8]) -> HandlerResult {
        let [number, sequence, call @ ..] = words;
        let Some(index) = self.context_index(number) else { return self.stray(from, StrayKind::Notice(words)) };
        let theirs = match call {
            [REFUSED, ..] => None,
            call => Some(Call::decode(call).ok_or(out_of_bounds("a notice names no operation"))?),
        };
        let check = self.tuning.check;
        let context = &mut self.contexts[index];
        let member = context.member(from).ok_or(out_of_bounds("a rank outside the team sends to it"))?;
        if context.failure.is_some() {
            return Ok(());
        }
        let failure = match context.stage(sequence) {
            Stage::Later => {
                let kept = context.noticed.iter().filter(|(other, ..)| *other == member).count();
                // Beyond that, calls are not compared.
                if kept < NOTICES {
                    context.noticed.push((member, sequence, theirs));
                    return Ok(());
                }
                let rank = context.members.ranks[member as usize];
                theirs.is_none().then_some(Failure::Arguments { rank })
            }
            _ => context.compare_told(member, sequence, theirs, check),
        };
        if let Some(failure) = failure {
            self.fail(index, failure);
        }
        Ok(())
    }

    /// Lets a team fail whose operator has panicked at this member.
    pub(super) fn recover(&mut self) {
        if let Some(index) = self.combines.0.take().and_then(|number| self.context_index(number)) {
            let members = &self.contexts[index].members;
            let rank: Rank = members.ranks[members.me as usize];
            self.fail(index, Failure::Operator { rank });
        }
    }
}
