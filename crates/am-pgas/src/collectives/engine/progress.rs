//! Sending: what progress carries on.

use super::context::ANNOUNCEMENTS;
use super::faults::REFUSED;
use super::instance::Owner;
use super::{ASKED, Engine, Post, Turn};
use crate::collectives::error::{Call, CollectiveError, Failure};
use am_core::layer::{Progress, ProgressResult};
use am_core::{LossCause, SendError};

/// Up to eight bytes as a word.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

impl Engine {
    /// Carries on what can be.
    pub(crate) fn progress<P: Post>(&mut self, post: &mut P) -> ProgressResult {
        self.take_note();
        self.recover();
        let went = self.went;
        let mut progress = Progress::Idle;
        for _ in 0..self.queue.len() {
            let Some(place) = self.queue.pop_front() else { break };
            let place = place as usize;
            self.instances[place].queued = false;
            let instance = &self.instances[place];
            // An operation through shared memory may have the place of an older one.
            if !instance.used || instance.outcome.is_some() || instance.direct {
                continue;
            }
            let number = self.instances[place].context;
            if self.advance(place, post) == Turn::Blocked {
                self.enqueue(place);
            }
            if let Some(index) = self.context_index(number).filter(|index| !self.contexts[*index].is_fork(post)) {
                self.settle(index, post);
            }
        }
        self.advance_direct(post);
        for _ in 0..self.telling.len() {
            let Some(index) = self.telling.pop_front().and_then(|number| self.context_index(number)) else {
                continue;
            };
            self.contexts[index].listed = false;
            let told = self.tell(index, post);
            self.list(index);
            progress = progress.max(told?);
        }
        if self.went != went {
            return Ok(Progress::Advanced);
        }
        if !self.queue.is_empty() && progress == Progress::Idle {
            progress = Progress::Blocked;
        }
        if !self.sharing.is_empty() {
            progress = progress.max(Progress::Watching);
        }
        Ok(progress)
    }

    /// Sends acknowledgements that are due, and why a team fails.
    fn tell<P: Post>(&mut self, index: usize, post: &mut P) -> ProgressResult {
        let (context, requests) = (&mut self.contexts[index], self.requests);
        let mut progress = Progress::Idle;
        while let Some(pair) = context.dues.front() {
            let state = &mut context.pairs[*pair as usize];
            if state.due && state.consumed != state.told {
                let (to, number) = (context.members.address(state.member), context.members.context);
                match post.send(to, requests.taken, [number, state.consumed], &[]) {
                    Ok(()) => state.told = state.consumed,
                    Err(SendError::WouldBlock { .. }) => return Ok(progress.max(Progress::Blocked)),
                    // Whoever is gone needs no room.
                    Err(_) => {}
                }
            }
            state.due = false;
            let stuck = state.stuck(self.tuning.window);
            context.dues.pop_front();
            progress = Progress::Advanced;
            if stuck {
                self.enqueue_oldest(index, ANNOUNCEMENTS as usize + 1);
                return Ok(progress);
            }
        }
        // One that has no room holds none of the others up.
        for _ in 0..context.tell.len() {
            let (Some(member), Some(failure)) = (context.tell.pop_front(), context.failure) else { break };
            let to = context.members.address(member);
            let words = (context.members.context, failure.encode());
            // Whoever is gone needs not be told.
            if let Err(SendError::WouldBlock { .. }) = post.send(to, requests.failed, words, &[]) {
                context.tell.push_back(member);
                progress = progress.max(Progress::Blocked);
            } else {
                progress = Progress::Advanced;
            }
        }
        let number = context.members.context;
        let asks = context.suspicion.as_mut().filter(|suspicion| !suspicion.told && context.failure.is_none());
        if let Some(suspicion) = asks {
            let to = context.members.address(suspicion.member);
            let words = ([number, suspicion.sequence], suspicion.call.encode(), suspicion.ranks());
            if let Err(SendError::WouldBlock { .. }) = post.send(to, requests.suspicion, words, &[]) {
                return Ok(progress.max(Progress::Blocked));
            }
            (suspicion.told, progress) = (true, Progress::Advanced);
        }
        for _ in 0..context.notices.len() {
            let Some((member, sequence, call)) = context.notices.pop_front() else { break };
            let to = context.members.address(member);
            let [a, b, c, d, e, g] = call.map_or([REFUSED, 0, 0, 0, 0, 0], Call::encode);
            let words = [context.members.context, sequence, a, b, c, d, e, g];
            if let Err(SendError::WouldBlock { .. }) = post.send(to, requests.notice, words, &[]) {
                context.notices.push_front((member, sequence, call));
                return Ok(progress.max(Progress::Blocked));
            }
            progress = Progress::Advanced;
        }
        Ok(progress)
    }

    /// Carries one operation on as far as it goes.
    fn advance<P: Post>(&mut self, place: usize, post: &mut P) -> Turn {
        let Some(index) = self.context_index(self.instances[place].context) else { return Turn::Waits };
        if self.contexts[index].suspicion.is_some() {
            // It ends with the team.
            return Turn::Waits;
        }
        loop {
            if self.instances[place].round == self.instances[place].schedule.rounds() {
                self.end(index, place, Ok(()));
                return Turn::Waits;
            }
            if !self.instances[place].begun {
                self.instances[place].set_up();
                self.take_kept(index, place);
                if self.instances[place].outcome.is_some() || !self.instances[place].used {
                    return Turn::Waits;
                }
            }
            let sent = self.send_round(index, place, post);
            let announced = sent.and_then(|turn| Ok((turn, self.announce(index, place, post)?)));
            let turn = match announced {
                Ok((Turn::Waits, turn)) | Ok((turn, _)) => turn,
                Err(SendError::Finished { to }) => {
                    self.fail(index, Failure::Lost { rank: to.rank, cause: LossCause::Left });
                    return Turn::Waits;
                }
                Err(error) => {
                    match error.loss() {
                        Some((rank, cause)) => self.fail(index, Failure::Lost { rank, cause }),
                        None => self.end(index, place, Err(error.into())),
                    }
                    return Turn::Waits;
                }
            };
            let instance = &mut self.instances[place];
            if instance.sends_left > 0 || instance.receives_left > 0 {
                return turn;
            }
            self.combines.set(Some(instance.context));
            instance.end_round();
            self.combines.set(None);
            self.went = self.went.wrapping_add(1);
        }
    }

    /// An operation is over.
    pub(super) fn end(&mut self, index: usize, place: usize, outcome: Result<(), CollectiveError>) {
        self.went = self.went.wrapping_add(1);
        let (instance, well) = (&mut self.instances[place], outcome.is_ok());
        self.contexts[index].broken |= !well;
        instance.outcome = Some(outcome);
        let (sequence, unowned) = (instance.sequence, instance.owner == Owner::Nobody);
        self.contexts[index].ended(sequence);
        if unowned {
            self.release(place);
        }
        // The next is the oldest now.
        self.enqueue_oldest(index, 1);
        if well {
            self.look_for_rests(index, sequence);
        }
    }

    /// Sends the messages of a round that may go.
    fn send_round<P: Post>(&mut self, index: usize, place: usize, post: &mut P) -> Result<Turn, SendError> {
        let (context, instance) = (&mut self.contexts[index], &mut self.instances[place]);
        let (mut turn, mut passed) = (Turn::Waits, Vec::new());
        if instance.sends_left == 0 {
            return Ok(turn);
        }
        let (eager, window) = (self.tuning.eager, self.tuning.window);
        for at in 0..instance.sends.len() {
            let mut outgoing = instance.sends[at];
            if outgoing.done {
                continue;
            }
            let send = instance.schedule.round(instance.round).sends[at];
            let (pair, to) = (context.pair(send.to), context.members.address(send.to));
            let (state, total) = (&mut context.pairs[pair], send.part.len * instance.element());
            if outgoing.granted.is_none() {
                let key = (instance.sequence, send.tag);
                if let Some(ready) = state.ready.iter().position(|ready| (ready.sequence, ready.tag) == key) {
                    state.ready.swap_remove(ready);
                    context.readies -= 1;
                    outgoing.granted = Some(true);
                } else if total <= eager && state.has_room(window) {
                    state.sent = state.sent.wrapping_add(1);
                    outgoing.granted = Some(false);
                } else {
                    if total <= eager && !std::mem::replace(&mut outgoing.held, true) {
                        state.held.push_back((place as u32, instance.sequence));
                        instance.sends[at] = outgoing;
                    }
                    continue;
                }
            }
            let asked = if outgoing.granted == Some(true) { ASKED } else { 0 };
            if state.largest == 0 {
                state.largest = usize::try_from(post.largest(to, 14)).unwrap_or(usize::MAX).max(1);
            }
            // Pieces of whole elements can be combined at once.
            let (largest, element) = (state.largest, instance.element().max(1));
            let step = if largest >= element { largest / element * element } else { largest };
            let bytes = instance.bytes(send.part);
            let head = [context.members.context, instance.sequence, send.tag | asked, state.consumed];
            // What fits the arguments needs no buffer.
            let in_words = !self.tuning.check && (1..=32).contains(&total);
            while !outgoing.done {
                let piece = &bytes[outgoing.at..(outgoing.at + step).min(total)];
                let sent = if self.tuning.check {
                    let extent = (outgoing.at as u64, total as u64);
                    post.send(to, self.requests.checked, (head, extent, instance.call.encode()), piece)
                } else if in_words && total == 8 {
                    post.send(to, self.requests.tiny, (head, word(bytes)), &[])
                } else if in_words {
                    let mut words = bytes.chunks(8).map(word);
                    let [a, b, c, d] = std::array::from_fn(|_| words.next().unwrap_or(0));
                    post.send(to, self.requests.small, (head, total as u32, (a, b, c, d)), &[])
                } else if piece.len() == total {
                    post.send(to, self.requests.message, head, piece)
                } else {
                    post.send(to, self.requests.piece, (head, (outgoing.at as u64, total as u64)), piece)
                };
                match sent {
                    Ok(()) => {
                        self.went = self.went.wrapping_add(1);
                        state.told = state.consumed;
                        outgoing.at += if in_words { total } else { piece.len() };
                        outgoing.done = outgoing.at == total;
                    }
                    Err(SendError::WouldBlock { .. }) => {
                        turn = Turn::Blocked;
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            instance.sends[at] = outgoing;
            instance.sends_left -= usize::from(outgoing.done);
            if !context.pairs[pair].held.is_empty() && context.pairs[pair].has_room(window) {
                // This one was woken for room that it did not take.
                passed.push(pair);
            }
        }
        for pair in passed {
            self.make_room(index, pair);
        }
        Ok(turn)
    }

    /// Announces the messages of a round that are not sent without it.
    fn announce<P: Post>(&mut self, index: usize, place: usize, post: &mut P) -> Result<Turn, SendError> {
        let (context, instance) = (&mut self.contexts[index], &mut self.instances[place]);
        if instance.receives_left == 0 {
            return Ok(Turn::Waits);
        }
        let (eager, window) = (self.tuning.eager, self.tuning.window);
        let (oldest, mut passed) = (context.is_oldest(instance), Vec::new());
        for at in 0..instance.receives.len() {
            let incoming = &instance.receives[at];
            if incoming.done || incoming.announced {
                continue;
            }
            let receive = instance.schedule.round(instance.round).receives[at];
            let (pair, from) = (context.pair(receive.from), context.members.address(receive.from));
            let state = &mut context.pairs[pair];
            let needed = receive.part.len * instance.element() > eager || state.stuck(window) || instance.asks;
            if !needed {
                if state.announced < ANNOUNCEMENTS && !state.unannounced.is_empty() {
                    passed.push(pair);
                }
                continue;
            }
            if !oldest && state.announced >= ANNOUNCEMENTS {
                if !std::mem::replace(&mut instance.receives[at].listed, true) {
                    state.unannounced.push_back((place as u32, instance.sequence));
                }
                continue;
            }
            let head = [context.members.context, instance.sequence, receive.tag, state.consumed];
            let sent = if self.tuning.check {
                post.send(from, self.requests.checked_ready, (head, instance.call.encode()), &[])
            } else {
                post.send(from, self.requests.ready, head, &[])
            };
            match sent {
                Ok(()) => {
                    self.went = self.went.wrapping_add(1);
                    (state.told, state.announced) = (state.consumed, state.announced + 1);
                    instance.receives[at].announced = true;
                }
                Err(SendError::WouldBlock { .. }) => return Ok(Turn::Blocked),
                Err(error) => return Err(error),
            }
        }
        for pair in passed {
            self.announce_next(index, pair);
        }
        Ok(Turn::Waits)
    }
}
