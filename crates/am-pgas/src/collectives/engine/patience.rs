//! Members that wait for long: what they tell, so that calls that differ are found however the two wait.
//!
//! Calls that differ may leave all members waiting: one holds a large message back until it is asked for it, and
//! the other awaits a small one, for which nobody asks, or one of a third. So a member whose oldest operation of a
//! team has stood still for [`PATIENCE`] tells those that it waits for what it has called, and asks for what it
//! awaits, whatever its size. Calls that differ are compared then, and of two sizes the receiver learns both. An
//! operation that goes on sooner costs nothing but looks at the clock before its member idles; at a member that
//! never idles, time is not counted. Names of types and operators are left out where members do not compare their
//! calls in any case ([`Tuning::check`](crate::collectives::Tuning::check)).
//!
//! A message that belongs to the call of one member only says nothing of the other's call. Whoever gets it asks
//! the sender to compare the two before the team fails, and waits for that for [`SUSPICION`] at most. No operation
//! of the team ends meanwhile.

use super::Engine;
use super::context::{Context, Stage};
use crate::collectives::error::{Call, CallWords, Failure};
use am_core::layer::Outbox;
use am_core::{Address, HandlerResult, Instant, Rank, Span};

/// How long the oldest operation of a team may stand still before its member tells what it has called.
const PATIENCE: Span = Span::from_millis(20);

/// How long a member waits for another one to compare their calls.
const SUSPICION: Span = Span::from_secs(1);

/// Since when a round of an operation has stood still, and whether that was told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standstill {
    sequence: u32,
    round: usize,
    since: Instant,
    told: bool,
}

/// A message that goes with the call of one member only, while that member compares the two calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspicion {
    pub(super) member: u32,
    pub(super) sequence: u32,
    pub(super) call: Call,
    failure: Failure,
    /// Whether the member was asked.
    pub(super) told: bool,
    since: Option<Instant>,
}

impl Suspicion {
    /// The ranks between which the message went, or was to go.
    pub(super) fn ranks(&self) -> [u32; 2] {
        match self.failure {
            Failure::Unmatched { from, to } => [from.0, to.0],
            _ => [0; 2],
        }
    }

    /// What the team fails with if the member that was asked is lost.
    pub(super) fn instead_of(&self, failure: Failure) -> Failure {
        let [from, to] = self.ranks();
        match failure {
            Failure::Lost { rank: Rank(rank), .. } if rank == from || rank == to => self.failure,
            other => other,
        }
    }
}

impl Context {
    /// The operation by messages that has to end first, with its place.
    fn first_live(&self) -> Option<u32> {
        self.live.front().copied().flatten().filter(|_| self.failure.is_none())
    }
}

impl Engine {
    /// Takes note of operations that stand still, and lets those be told who may be the reason. To be called at
    /// the end of each progress function. Whether there is something to send.
    pub(crate) fn be_patient(&mut self, outbox: &mut Outbox<'_>) -> bool {
        if !(self.counts_time || outbox.about_to_idle()) {
            return false;
        }
        let idles = outbox.about_to_idle();
        let (mut now, mut wake, mut sends): (Option<Instant>, Option<Instant>, _) = (None, None, false);
        for index in 0..self.contexts.len() {
            let context = &mut self.contexts[index];
            if let Some(suspicion) = context.suspicion.as_mut().filter(|_| context.failure.is_none()) {
                let now = *now.get_or_insert_with(|| outbox.now());
                let until = *suspicion.since.get_or_insert(now) + SUSPICION;
                let failure = suspicion.failure;
                if now >= until {
                    sends = true;
                    self.fail(index, failure);
                    continue;
                }
                wake = Some(wake.map_or(until, |before| before.min(until)));
            }
            let context = &mut self.contexts[index];
            let Some(place) = context.first_live() else {
                context.standstill = None;
                continue;
            };
            let instance = &mut self.instances[place as usize];
            if instance.direct || !instance.begun || instance.outcome.is_some() {
                context.standstill = None;
                continue;
            }
            let same = |still: &Standstill| (still.sequence, still.round) == (instance.sequence, instance.round);
            let Some(still) = context.standstill.as_mut().filter(|still| same(still)) else {
                context.standstill = None;
                // Time is counted once the member has nothing else to do.
                if idles {
                    let since = *now.get_or_insert_with(|| outbox.now());
                    let (sequence, round) = (instance.sequence, instance.round);
                    context.standstill = Some(Standstill { sequence, round, since, told: false });
                    wake = Some(wake.map_or(since + PATIENCE, |before| before.min(since + PATIENCE)));
                }
                continue;
            };
            if still.told {
                continue;
            }
            let (now, until) = (*now.get_or_insert_with(|| outbox.now()), still.since + PATIENCE);
            if now < until {
                wake = Some(wake.map_or(until, |before| before.min(until)));
                continue;
            }
            (still.told, instance.asks, sends) = (true, true, true);
            self.remind(index, place as usize);
        }
        self.counts_time = wake.is_some();
        if let Some(at) = wake {
            outbox.wake_at(at);
        }
        sends
    }

    /// Lets those be told what this member has called for whom an operation waits.
    fn remind(&mut self, index: usize, place: usize) {
        let instance = &self.instances[place];
        let (sequence, call) = (instance.sequence, instance.call);
        let mut waited: Vec<u32> = self.awaited_messages(instance).collect();
        waited.sort_unstable();
        waited.dedup();
        let context = &mut self.contexts[index];
        context.notices.extend(waited.into_iter().map(|member| (member, sequence, Some(call))));
        self.list(index);
        self.enqueue(place);
    }

    /// A member has sent something, or asked for something, that is no part of this one's call: it is asked what
    /// it has called before the team fails, if this one knows what it has called itself.
    pub(super) fn suspect(&mut self, index: usize, sequence: u32, failure: Failure) {
        let context = &mut self.contexts[index];
        if context.suspicion.is_some() && matches!(failure, Failure::Unmatched { .. }) {
            return;
        }
        let me = context.members.ranks[context.members.me as usize];
        let other = match failure {
            Failure::Unmatched { from, to } => context.members.position(if from == me { to } else { from }),
            _ => None,
        };
        match (other, context.called(sequence)) {
            (Some(member), Some(Some(call))) => {
                let suspicion = Suspicion { member, sequence, call, failure, told: false, since: None };
                context.suspicion = Some(suspicion);
                self.counts_time = true;
                self.list(index);
            }
            _ => self.fail(index, failure),
        }
    }

    /// A member asks to compare its call with this one's, since a message goes with one of them only.
    pub(in crate::collectives) fn suspected(
        &mut self,
        from: Address,
        [number, sequence]: [u32; 2],
        call: CallWords,
        [sender, receiver]: [u32; 2],
    ) -> HandlerResult {
        // Whoever has let the team go does not know any more what it called.
        let Some(index) = self.context_index(number) else { return Ok(()) };
        let theirs = Call::decode(call).ok_or(super::out_of_bounds("a suspicion names no operation"))?;
        let context = &self.contexts[index];
        let member = context.member(from).ok_or(super::out_of_bounds("a rank outside the team sends to it"))?;
        if context.failure.is_some() || matches!(context.stage(sequence), Stage::Later) {
            return Ok(());
        }
        let unmatched = Failure::Unmatched { from: Rank(sender), to: Rank(receiver) };
        let failure = context.differs(member, sequence, Some(theirs)).unwrap_or(unmatched);
        self.fail(index, failure);
        Ok(())
    }
}
