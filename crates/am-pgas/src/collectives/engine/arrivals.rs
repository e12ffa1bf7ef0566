//! What arrives: messages go to the rounds that await them, or wait for these.

use super::context::{ANNOUNCEMENTS, Early, Stage, Wanted};
use super::faults::{self, disagree};
use super::instance::Bytes;
use super::strays::StrayKind;
use super::{ASKED, Engine, Head, out_of_bounds};
use crate::collectives::error::{Call, CallWords, Failure, FailureWords};
use am_core::{Address, HandlerResult, Payload};

impl Engine {
    /// A message, or a piece of one, has arrived.
    pub(in crate::collectives) fn arrive(
        &mut self,
        from: Address,
        head: Head,
        extent: Option<(u64, u64)>,
        call: Option<CallWords>,
        payload: &Payload<'_>,
    ) -> HandlerResult {
        let call = match call {
            Some(words) => Some(Call::decode(words).ok_or(out_of_bounds("a message names no operation"))?),
            None => None,
        };
        let extent = extent.unwrap_or((0, payload.len() as u64));
        self.message(from, head, extent, call, Bytes::Payload(payload))
    }

    /// A message of so many bytes has arrived as words.
    pub(in crate::collectives) fn arrive_in_words(
        &mut self,
        from: Address,
        head: Head,
        len: usize,
        words: &[u64],
    ) -> HandlerResult {
        let mut bytes = [0; 32];
        for (out, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *out = word.to_le_bytes();
        }
        let bytes = bytes.get(..len).ok_or(out_of_bounds("more bytes than there are words"))?;
        self.message(from, head, (0, len as u64), None, Bytes::Own(bytes))
    }

    /// Keeps what came for a team that is not there yet; nothing for one that is gone.
    pub(super) fn stray(&mut self, from: Address, kind: StrayKind) -> HandlerResult {
        if kind.context() < self.next_context {
            return Ok(());
        }
        self.strays.keep(from, kind, &self.tuning)
    }

    pub(super) fn message(
        &mut self,
        from: Address,
        head: Head,
        extent: (u64, u64),
        call: Option<Call>,
        bytes: Bytes<'_>,
    ) -> HandlerResult {
        self.recover();
        let Some(index) = self.context_index(head[0]) else {
            let mut own = vec![0; bytes.len()];
            bytes.copy_to(&mut own);
            return self.stray(from, StrayKind::Message { head, extent, call, bytes: own });
        };
        let window = self.tuning.window;
        let context = &mut self.contexts[index];
        let member = context.member(from).ok_or(out_of_bounds("a rank outside the team sends to it"))?;
        if context.failure.is_some() {
            return Ok(());
        }
        let [_, sequence, tag, taken] = head;
        let (asked, tag) = (tag & ASKED != 0, tag & !ASKED);
        let too_large = |_| out_of_bounds("a message exceeds this rank's memory");
        let (offset, total) =
            (usize::try_from(extent.0).map_err(too_large)?, usize::try_from(extent.1).map_err(too_large)?);
        let end = offset.checked_add(bytes.len()).filter(|end| *end <= total);
        let end = end.ok_or(out_of_bounds("a piece is outside its message"))?;
        let pair = context.pair(member);
        let opened = context.pairs[pair].acknowledge(taken);
        let stage = context.stage(sequence);
        let mut complete = false;
        match stage {
            Stage::Gone => {
                if let Some(failure) =
                    context.differs(member, sequence, call).or_else(|| context.unawaited(member, sequence))
                {
                    self.suspect(index, sequence, failure);
                    return Ok(());
                }
                complete = end == total;
            }
            Stage::Live(place) => {
                let instance = &mut self.instances[place as usize];
                let differ = disagree(&context.members, member, instance.call, call);
                let direct = || instance.direct.then(|| context.out_of_place(member, instance.call, extent.1));
                if let Some(failure) = differ.or_else(direct) {
                    self.suspect(index, sequence, failure);
                    return Ok(());
                }
                let kept = context.early > 0
                    && context.pairs[pair]
                        .early
                        .iter()
                        .any(|early| (early.sequence, early.tag) == (sequence, tag));
                let awaited = instance.awaited(member, tag).filter(|_| !kept);
                let (combines, members) = (&mut self.combines, &context.members);
                let taken = awaited.map(|at| {
                    combines.set(Some(head[0]));
                    let taken = instance.take(at, offset, total, bytes, members);
                    combines.set(None);
                    (at, taken)
                });
                match taken {
                    Some((at, taken)) => match taken {
                        Ok(done) => {
                            if done {
                                complete = true;
                                if instance.receives[at].announced {
                                    context.pairs[pair].announced -= 1;
                                    self.announce_next(index, pair);
                                }
                                if self.instances[place as usize].receives_left == 0 {
                                    self.enqueue(place as usize);
                                }
                            }
                        }
                        Err(failure) => {
                            self.fail(index, failure);
                            return Ok(());
                        }
                    },
                    None => self.keep(index, pair, (sequence, tag), [offset, total], call, bytes)?,
                }
            }
            Stage::Later => self.keep(index, pair, (sequence, tag), [offset, total], call, bytes)?,
        }
        if complete && !asked {
            let state = &mut self.contexts[index].pairs[pair];
            state.received = state.received.wrapping_add(1);
            state.consumed = state.consumed.wrapping_add(1);
        }
        self.contexts[index].consider(pair, window);
        self.list(index);
        if opened {
            self.make_room(index, pair);
        }
        Ok(())
    }

    /// Keeps a message, or a piece of one, until its round begins.
    fn keep(
        &mut self,
        index: usize,
        pair: usize,
        (sequence, tag): (u32, u32),
        [offset, total]: [usize; 2],
        call: Option<Call>,
        bytes: Bytes<'_>,
    ) -> HandlerResult {
        let (context, window) = (&mut self.contexts[index], self.tuning.window);
        let state = &mut context.pairs[pair];
        let found = state.early.iter().position(|early| (early.sequence, early.tag) == (sequence, tag));
        let at = match found {
            Some(at) => at,
            None => {
                if total > self.tuning.eager || state.early.len() >= window as usize {
                    return Err(out_of_bounds("a member sends more than its window, or a large message unasked"));
                }
                let mut buffer = self.spare.pop().unwrap_or_default();
                buffer.clear();
                buffer.resize(total, 0);
                state.early.push(Early { sequence, tag, arrived: 0, call, bytes: buffer });
                context.early += 1;
                state.early.len() - 1
            }
        };
        let early = &mut state.early[at];
        let room = early.bytes.get_mut(offset..offset + bytes.len()).filter(|_| early.arrived < total.max(1));
        bytes.copy_to(room.ok_or(out_of_bounds("a piece is outside its message"))?);
        early.arrived += bytes.len();
        if early.arrived < early.bytes.len() {
            return Ok(());
        }
        state.received = state.received.wrapping_add(1);
        // Its round may have begun meanwhile, or the member may be out of room for what other rounds wait for.
        if let Stage::Live(place) = context.stage(sequence)
            && self.instances[place as usize].awaited(context.pairs[pair].member, tag).is_some()
        {
            self.take_kept(index, place as usize);
        }
        let context = &mut self.contexts[index];
        context.consider(pair, window);
        self.list(index);
        if self.contexts[index].pairs[pair].stuck(window) {
            self.enqueue_oldest(index, ANNOUNCEMENTS as usize + 1);
        }
        Ok(())
    }

    /// Takes what came before the round of an instance began.
    pub(super) fn take_kept(&mut self, index: usize, place: usize) {
        let window = self.tuning.window;
        let context = &self.contexts[index];
        if context.early == 0 {
            return;
        }
        for at in 0..self.instances[place].receives.len() {
            let (context, instance) = (&mut self.contexts[index], &mut self.instances[place]);
            let receive = instance.schedule.round(instance.round).receives[at];
            let pair = context.pair(receive.from);
            let state = &mut context.pairs[pair];
            let whole = |early: &Early| {
                (early.sequence, early.tag) == (instance.sequence, receive.tag)
                    && early.arrived >= early.bytes.len()
            };
            let Some(early) = state.early.iter().position(whole).filter(|_| !instance.receives[at].done) else {
                continue;
            };
            let early = state.early.swap_remove(early);
            context.early -= 1;
            state.consumed = state.consumed.wrapping_add(1);
            let announced = std::mem::take(&mut instance.receives[at].announced);
            state.announced -= u32::from(announced);
            context.consider(pair, window);
            self.combines.set(Some(instance.context));
            let outcome = match disagree(&context.members, receive.from, instance.call, early.call) {
                Some(failure) => Err(failure),
                None => instance.take(at, 0, early.bytes.len(), Bytes::Own(&early.bytes), &context.members),
            };
            self.combines.set(None);
            self.spare.push(early.bytes);
            if let Err(failure) = outcome {
                return self.fail(index, failure);
            }
            self.list(index);
            if announced {
                self.announce_next(index, pair);
            }
        }
        self.enqueue(place);
    }

    /// A member awaits a message.
    pub(in crate::collectives) fn ready(
        &mut self,
        from: Address,
        head: Head,
        call: Option<CallWords>,
    ) -> HandlerResult {
        let call = match call {
            Some(words) => Some(Call::decode(words).ok_or(out_of_bounds("an announcement names no operation"))?),
            None => None,
        };
        self.announced(from, head, call)
    }

    pub(super) fn announced(&mut self, from: Address, head: Head, call: Option<Call>) -> HandlerResult {
        let [number, sequence, tag, taken] = head;
        let Some(index) = self.context_index(number) else {
            return self.stray(from, StrayKind::Ready(head, call));
        };
        let context = &mut self.contexts[index];
        let member = context.member(from).ok_or(out_of_bounds("a rank outside the team sends to it"))?;
        if context.failure.is_some() {
            return Ok(());
        }
        let pair = context.pair(member);
        let opened = context.pairs[pair].acknowledge(taken);
        let wanted = match context.stage(sequence) {
            Stage::Gone => {
                if let Some(failure) =
                    context.differs(member, sequence, call).or_else(|| context.refused(sequence))
                {
                    self.fail(index, failure);
                    return Ok(());
                }
                false
            }
            Stage::Later => true,
            Stage::Live(place) => {
                let instance = &self.instances[place as usize];
                // What has gone already needs no announcement; the two have crossed.
                let now = |round: usize| {
                    let mut sends = instance.schedule.round(round).sends.iter().enumerate();
                    let found = sends.find(|(_, send)| (send.to, send.tag) == (member, tag));
                    found.is_some_and(|(at, _)| {
                        round > instance.round || !instance.begun || instance.sends[at].granted.is_none()
                    })
                };
                let wanted = (instance.round..instance.schedule.rounds()).any(now);
                let differ = disagree(&context.members, member, instance.call, call);
                if differ.is_some() || !wanted && !faults::sends(&instance.schedule, member, tag) {
                    let failure = differ.unwrap_or_else(|| context.unmatched(member, false));
                    self.suspect(index, sequence, failure);
                    return Ok(());
                }
                self.enqueue(place as usize);
                wanted
            }
        };
        let context = &mut self.contexts[index];
        if wanted {
            let ready = &mut context.pairs[pair].ready;
            if ready.len() > ANNOUNCEMENTS as usize {
                return Err(out_of_bounds("a member announces more than it may"));
            }
            if !ready.iter().any(|ready| (ready.sequence, ready.tag) == (sequence, tag)) {
                ready.push(Wanted { sequence, tag, call });
                context.readies += 1;
            }
        }
        if opened {
            self.make_room(index, pair);
        }
        Ok(())
    }

    /// A member tells what it has taken.
    pub(in crate::collectives) fn taken(&mut self, from: Address, [number, taken]: [u32; 2]) -> HandlerResult {
        let Some(index) = self.context_index(number) else { return Ok(()) };
        let context = &mut self.contexts[index];
        let member = context.member(from).ok_or(out_of_bounds("a rank outside the team sends to it"))?;
        let pair = context.pair(member);
        if context.pairs[pair].acknowledge(taken) {
            self.make_room(index, pair);
        }
        Ok(())
    }

    /// A member tells that the team fails.
    pub(in crate::collectives) fn failed(
        &mut self,
        from: Address,
        number: u32,
        words: FailureWords,
    ) -> HandlerResult {
        let Some(index) = self.context_index(number) else {
            return self.stray(from, StrayKind::Failed(number, words));
        };
        self.contexts[index].member(from).ok_or(out_of_bounds("a rank outside the team sends to it"))?;
        let failure = Failure::decode(words).ok_or(out_of_bounds("a team fails for no known reason"))?;
        self.fail(index, failure);
        Ok(())
    }
}
