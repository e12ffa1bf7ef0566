//! Receiving: the exist flag is looked at, ready flags are searched for, messages are queued and handed over one
//! by one.

use super::config::{FlagStores, Mutation};
use super::flags::{self, Clear};
use super::header::{Header, Kind, Number, Ready};
use super::reply_path::ConduitReplyPath;
use super::send::{NUMBER_SHIFT, next_number};
use super::transport::Conduit;
use super::turns::Turn;
use super::work::Found;
use crate::nic::Sisci;
use am_core::segment::Memory;
use am_core::transport::{Arrival, Sink};
use am_core::{Category, Lane, LossCause, Payload, Peer, Segment, Words};
use std::sync::atomic::Ordering::Relaxed;

impl<N: Sisci> Conduit<N> {
    /// Takes what has arrived to the sink, at most `budget` messages.
    pub(super) fn serve<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        self.pay();
        if self.queue.is_empty() && !self.look() {
            return 0;
        }
        let mut done = 0;
        while done < budget {
            let Some(found) = self.queue.pop() else { break };
            done += usize::from(self.hand_over(found, sink));
        }
        done
    }

    /// Looks at the exist flag; if it is set, or has not been for long, queues all messages that are there.
    /// Returns whether there are any.
    #[inline]
    fn look(&mut self) -> bool {
        if self.mutation(Mutation::RemotePoll) {
            self.net.read_remotely((self.me + 1) % self.ranks);
        }
        // Rule 6 of the sheet: a poll reads local memory alone.
        if !self.net.exists() {
            self.empty_polls = self.empty_polls.saturating_add(1);
            let waits = self.empty_polls < self.config.full_scan_polls && !self.last_look.take();
            if self.config.full_scan_polls == 0 || waits {
                self.net.nic.charge_empty_poll();
                return false;
            }
            self.counts.full_scans += 1;
            self.empty_polls = 0;
            self.search();
            let found = !self.queue.is_empty();
            self.unsure = found || self.unsure && !std::mem::take(&mut self.settled);
            return found;
        }
        self.empty_polls = 0;
        self.search();
        // What was announced may have been overtaken by the announcement, whatever else was found.
        (self.unsure, self.settled) = (true, false);
        !self.queue.is_empty()
    }

    /// Queues all messages whose ready flag is new.
    fn search(&mut self) {
        // Rule 2 of the sheet: the exist flag is cleared before the search.
        let clear = if self.mutation(Mutation::ClearAfterScan) { Clear::After } else { Clear::First };
        let numbered = self.config.flags == FlagStores::Numbered;
        let Self { net, queue, seen, expected, layout, .. } = self;
        let mut misfit = None;
        flags::search(&net.flags(), layout.ready_words(), seen, clear, |at, flag| {
            let (from, slot) = layout.of_ready(at);
            let (value, number) = (flag & ((1 << NUMBER_SHIFT) - 1), flag >> NUMBER_SHIFT);
            let fits = match expected.get_mut(at) {
                Some(expected) if numbered => {
                    let next = next_number(*expected);
                    *expected = number;
                    number == next
                }
                Some(_) => number == 0,
                None => false,
            };
            match Ready::from_flag(value) {
                Some(ready) if fits => queue.push(Found { from, slot, ready }),
                _ => misfit = Some(from),
            }
        });
        if let Some(from) = misfit {
            self.lose(from);
        }
    }

    /// Notes that a peer broke the protocol.
    #[cold]
    pub(super) fn lose(&mut self, of: u32) {
        if of < self.ranks && self.faulty.insert(Peer(of), LossCause::Faulty) {
            self.turns.forget(of);
            self.fresh = true;
        }
    }

    /// Hands a message to the sink; returns whether there was anything for it.
    fn hand_over<S: Sink>(&mut self, found: Found, sink: &mut S) -> bool {
        let Found { from, slot, ready } = found;
        if self.faulty.contains(Peer(from)) {
            return false;
        }
        if self.config.ordered && ready != Ready::Control {
            match self.take_turn(found) {
                Turn::Now => {}
                Turn::Later => return false,
                Turn::Never => {
                    self.lose(from);
                    return false;
                }
            }
        }
        self.net.charge(self.costs.poll);
        let answers = self.layout.request_slot(slot);
        if let Some(request) = answers
            && !self.locations.is_taken(from, request)
        {
            // It answers what it was not asked.
            self.lose(from);
            return false;
        }
        if ready == Ready::Control {
            match answers {
                Some(request) => self.settle(from, request),
                None => self.lose(from),
            }
            return false;
        }
        let (words, first) = (self.net.command(from).words(), self.layout.at(slot) / 8);
        // Relaxed: looking at the flag has ordered it.
        let Ok((header, args)) = Header::read(|index| u64::from_le(words[first + index].load(Relaxed))) else {
            self.lose(from);
            return false;
        };
        if header.ready() != ready || !self.fits(&header, answers.is_some()) {
            self.lose(from);
            return false;
        }
        if self.config.through_mpi {
            self.net.charge(self.costs.mpi(header.payload as usize));
        }
        match answers {
            Some(request) => self.hand_over_reply(from, slot, request, &header, &args, sink),
            None => self.hand_over_request(from, slot, &header, &args, sink),
        }
        true
    }

    /// Finds out whether it is a message's turn. If so, the one behind it comes next if it has been found before;
    /// if not, the message waits.
    fn take_turn(&mut self, found: Found) -> Turn {
        let Self { net, layout, turns, queue, .. } = self;
        let of = |found: &Found| {
            let words = net.command(found.from).words();
            // Relaxed: looking at the flag has ordered it.
            let first = u64::from_le(words[layout.at(found.slot) / 8].load(Relaxed));
            let lane = if layout.request_slot(found.slot).is_some() { Lane::Reply } else { Lane::Request };
            (lane, Number::of_word(first))
        };
        let (lane, number) = of(&found);
        let turn = turns.turn(found.from, lane, number);
        match turn {
            Turn::Now => {
                if let Some(next) = turns.advance(found.from, lane, of) {
                    queue.push_front(next);
                }
            }
            Turn::Later => turns.wait(found),
            Turn::Never => {}
        }
        turn
    }

    /// Whether a header's payload is where one can be, and its kind is that of its slot.
    fn fits(&self, header: &Header, answers: bool) -> bool {
        let len = u64::from(header.payload);
        let (is_reply, category) = match header.kind {
            Kind::Reply(category) => (true, category),
            Kind::Request(category) | Kind::OneWay(category) => (false, category),
            Kind::Core => (false, Category::Medium),
        };
        let room = match category {
            Category::Short => 0,
            Category::Medium => self.layout.medium() as u64,
            Category::Long => (self.segment.len() as u64).saturating_sub(header.place),
        };
        is_reply == answers && len <= room
    }

    fn hand_over_request<S: Sink>(&mut self, from: u32, slot: u32, header: &Header, args: &Words, sink: &mut S) {
        let len = header.payload as usize;
        let (category, replies) = match header.kind {
            Kind::Request(category) => (category, true),
            Kind::OneWay(category) => (category, false),
            Kind::Core | Kind::Reply(_) => (Category::Medium, false),
        };
        let (memory, segment) = (self.net.command(from).clone(), self.segment.clone());
        let payload = payload(&memory, &segment, category, self.layout.payload_at(slot), header.place, len);
        let in_slot = category == Category::Medium && len != 0;
        let mut path = ConduitReplyPath::of_request(self, from, slot, replies, in_slot);
        if header.kind == Kind::Core {
            sink.control(Peer(from), args, payload);
        } else {
            sink.request(Arrival::new(Peer(from), category, header.handler, args, payload), &mut path);
        }
    }

    fn hand_over_reply<S: Sink>(
        &mut self,
        from: u32,
        slot: u32,
        request: u32,
        header: &Header,
        args: &Words,
        sink: &mut S,
    ) {
        let Kind::Reply(category) = header.kind else { return };
        let len = header.payload as usize;
        let (memory, segment) = (self.net.command(from).clone(), self.segment.clone());
        let payload = payload(&memory, &segment, category, self.layout.payload_at(slot), header.place, len);
        // Freed when the handler has returned or unwound: the payload may lie in the slot.
        let _freed = Freed { conduit: self, from, request };
        sink.reply(Arrival::new(Peer(from), category, header.handler, args, payload));
    }

    /// A request has been answered: its slot is free.
    pub(super) fn settle(&mut self, from: u32, request: u32) {
        self.locations.free(from, request).expect("that it is taken was seen before");
        self.fresh = true;
    }
}

/// The payload of a message, where it lies.
fn payload<'p, M: Memory>(
    slots: &'p M,
    segment: &'p Segment<M>,
    category: Category,
    at: usize,
    place: u64,
    len: usize,
) -> Payload<'p> {
    match category {
        Category::Short => Payload::EMPTY,
        Category::Medium => Payload::in_memory(slots, at, len),
        Category::Long => segment.view(place, len).expect("the place of a payload has been checked"),
    }
}

/// A reply slot in use; frees the request slot that it belongs to.
struct Freed<'c, N: Sisci> {
    conduit: &'c mut Conduit<N>,
    from: u32,
    request: u32,
}

impl<N: Sisci> Drop for Freed<'_, N> {
    fn drop(&mut self) {
        self.conduit.settle(self.from, self.request);
    }
}
