//! One aggregator's buffers at a rank, whatever the type of its items: what is pushed, what passes through, what
//! has arrived.
//!
//! No deadlock can come of bounded buffers. Items that have come by one hop go on by later hops only, items that
//! have arrived are handled or, where the function answers, become items of an aggregator that was registered
//! before; so what waits for room waits for what is nearer to its end, and what has ended needs no room. Whoever
//! waits holds nothing of the transport's meanwhile (see `parked_messages`), so that a circle of ranks which all
//! wait for each other's credits cannot come about either.

use super::Requests;
use super::agreement::{Agreement, Broken};
use super::config::{AggregateError, AggregatorConfig, AggregatorError, Malformed, SendPolicy};
use super::item_buffer::{ItemBuffer, Layout, buffer};
use super::operations::AggregatorUsage;
use super::overflow::Overflow;
use super::parked_messages::{Parked, ParkedMessages};
use super::routes::{Grid, MOST_HOPS};
use crate::pointer::Element;
use am_core::{Address, Instant, Payload, Rank, Span};

/// Bytes of a message where nobody asks for more or less.
const MESSAGE: usize = 8192;

/// Items of a rank for itself that are worth a call of the function.
const OWN: usize = 16;

/// What a channel is made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) index: u32,
    pub(super) me: Address,
    pub(super) ranks: u32,
    pub(super) item: usize,
    /// Whether the function learns who pushed an item.
    pub(super) named: bool,
    /// Whether the function answers.
    pub(super) answering: bool,
    /// Bytes that wait for each answer that a function may push, or 0.
    pub(super) answer: usize,
    /// Bytes of a message that the transport carries to every rank.
    pub(super) largest: u64,
    pub(super) config: AggregatorConfig,
}

impl Plan {
    pub(super) fn grid(&self) -> Grid {
        Grid::new(self.ranks, self.config.route.hops(self.ranks))
    }

    /// What the records of a hop's messages are; behind the last hop, of items that have arrived.
    fn layout(&self, hop: usize) -> Layout {
        let last = self.grid().hops() - 1;
        let (hop, several) = (hop.min(last), last > 0);
        Layout { item: self.item, to: hop < last, from: several && self.named && (hop > 0 || hop == last) }
    }

    /// The ranks whose messages of a hop can wait here.
    fn waiting(&self, hop: usize) -> Vec<u32> {
        let (grid, me) = (self.grid(), self.me.rank.0);
        if hop + 1 == grid.hops() && !self.answering {
            return Vec::new();
        }
        (0..self.ranks).filter(|rank| grid.leads(*rank, hop, me)).collect()
    }

    /// Bytes of a message, once all is known to fit.
    pub(super) fn message_bytes(&self) -> Result<usize, AggregatorError> {
        let AggregatorConfig { message_bytes, memory, look_ahead, window, answers, .. } = self.config;
        let zero = |number: Option<usize>, what| match number {
            Some(0) => Err(AggregatorError::Zero { what }),
            _ => Ok(()),
        };
        zero(look_ahead, "look-ahead")?;
        zero(Some(window.into()), "window")?;
        zero(Some(answers.into()), "number of answers to an item")?;
        let grid = self.grid();
        // The same number on all ranks, though some have fewer neighbours; two for the items of a rank for itself,
        // and one for a message whose items are not aligned, or as many as the answers to a message fill.
        let record = self.layout(grid.hops()).record();
        let answers = (usize::from(answers) * self.answer).div_ceil(record);
        let mut buffers = 2 + if self.answering { answers } else { 1 };
        for hop in 0..grid.hops() {
            let (targets, sources) = grid.most(hop);
            let waits = hop + 1 < grid.hops() || self.answering;
            buffers += targets + if waits { sources * usize::from(window) } else { 0 };
        }
        let largest = usize::try_from(self.largest).unwrap_or(usize::MAX);
        let available = message_bytes.unwrap_or(MESSAGE).min(largest);
        let needed = (0..grid.hops()).map(|hop| self.layout(hop).record()).max().unwrap_or(self.item);
        if needed > available {
            return Err(AggregatorError::Item { needed, available });
        }
        let share = (memory / buffers) & !7;
        let bytes = if message_bytes.is_some() { available } else { available.min(share) };
        if bytes < needed || bytes.next_multiple_of(8) > share {
            let bytes = bytes.max(needed);
            return Err(AggregatorError::Memory { buffers, bytes, memory });
        }
        Ok(bytes)
    }
}

/// Items that have arrived and are handled one call of the function at a time.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) words: Vec<u64>,
    parked: Option<Parked>,
    /// Who sent the message.
    pub(super) sender: u32,
    /// Bytes of the message.
    pub(super) len: usize,
    /// The records to handle now.
    pub(super) first: usize,
    pub(super) count: usize,
}

/// A message of this rank's items for itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnMessage {
    pub(super) len: usize,
    pub(super) next: usize,
    /// Items of this rank among those that are left; they count as held until they are handled.
    pub(super) mine: usize,
}

/// Items that are put into item buffers one after the other; they count as held at the end, or when the iterator
/// that makes them unwinds.
struct Filled<'a> {
    held: &'a mut usize,
    count: usize,
}

impl Drop for Filled<'_> {
    fn drop(&mut self) {
        *self.held += self.count;
    }
}

/// Puts items into item buffers until `put` finds no room for one, or as many are held as may be.
#[inline(always)]
fn fill<T: Element>(
    items: &mut impl Iterator<Item = (Rank, T)>,
    bound: usize,
    held: &mut usize,
    mut put: impl FnMut(u32, &[u8]) -> bool,
) -> (u64, Option<(Rank, T)>) {
    let room = bound.saturating_sub(*held);
    let mut filled = Filled { held, count: 0 };
    while filled.count < room {
        let Some((to, item)) = items.next() else { break };
        if !put(to.0, item.as_bytes()) {
            return (filled.count as u64, Some((to, item)));
        }
        filled.count += 1;
    }
    (filled.count as u64, None)
}

/// One aggregator at one rank.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) plan: Plan,
    pub(super) requests: Requests,
    grid: Grid,
    /// What the records of each hop's messages are, and those of items that have arrived.
    pub(super) layouts: [Layout; MOST_HOPS + 1],
    /// One for each neighbour of each hop, and one for items that have arrived: by rank where there is one hop.
    pub(super) item_buffers: Vec<ItemBuffer>,
    /// Number of that for items that have arrived.
    own_buffer: usize,
    /// Number of the item buffer of the next hop to each rank.
    pub(super) next: Vec<u32>,
    /// Items of this rank in item buffers or waiting for the function here, and how many there may be.
    pub(super) held: usize,
    pub(super) look_ahead: usize,
    /// How many there may be before a push waits: none while the overflow has items, which were pushed before.
    bound: usize,
    /// Bytes of a message at most.
    message_bytes: usize,
    /// Items of other ranks in item buffers.
    pub(super) foreign: usize,
    /// Messages that wait for the next hop, for each hop; of the last hop for an answering function.
    pub(super) parked: Vec<Option<ParkedMessages>>,
    pub(super) own: Option<OwnMessage>,
    pub(super) own_words: Vec<u64>,
    /// What functions have pushed for which item buffers had no room.
    pub(super) overflow: Overflow,
    pub(super) agreement: Agreement,
    /// Items of this rank that have left their item buffers.
    pub(super) sent: u64,
    pub(super) handled: u64,
    pub(super) messages: u64,
    pub(super) discarded: u64,
    /// Whether some item buffer is due.
    pub(super) due: bool,
    /// Whether all that is held is to go.
    pub(super) flush: bool,
    /// Whether a push waits for room.
    pub(super) pushing: bool,
    /// Whether something could not be sent in the round under way.
    pub(super) blocked: bool,
    /// Whether pushes and polls look at the clock.
    pub(super) timed: bool,
    /// Since when the oldest item may have waited, once somebody has looked at the clock.
    pub(super) oldest: Option<Instant>,
    /// Whether this rank has said done and has not been told that it is over.
    pub(super) ending: bool,
    /// Rounds since this rank said done.
    pub(super) looks: u32,
}

impl Channel {
    /// Allocates all that the channel ever uses.
    pub(super) fn new(plan: Plan, requests: Requests) -> Result<Self, AggregatorError> {
        let (bytes, grid, me) = (plan.message_bytes()?, plan.grid(), plan.me.rank.0);
        let hops = grid.hops();
        let mut item_buffers: Vec<ItemBuffer> = Vec::new();
        for hop in 0..hops {
            item_buffers.extend(grid.targets(me, hop).map(|to| ItemBuffer::new(to, hop, plan.layout(hop), bytes)));
        }
        // Where there is one hop, those of all ranks in their order.
        let own = if hops == 1 { me as usize } else { item_buffers.len() };
        item_buffers.insert(own, ItemBuffer::new(me, hops, plan.layout(hops), bytes));
        let item_buffer = |to| match grid.next(me, to) {
            None => own as u32,
            Some((hop, target)) => {
                let item_buffer = item_buffers
                    .iter()
                    .position(|item_buffer| (item_buffer.hop, item_buffer.target) == (hop, target));
                item_buffer.expect("the grid lists every target of a hop") as u32
            }
        };
        let next = (0..plan.ranks).map(item_buffer).collect();
        let parked_messages = |hop| {
            let neighbours = plan.waiting(hop);
            let waits = hop + 1 < hops || plan.answering;
            waits.then(|| ParkedMessages::new(plan.ranks, &neighbours, plan.config.window, bytes))
        };
        let room: usize = item_buffers.iter().map(ItemBuffer::capacity).sum();
        let room = room + item_buffers[own].capacity();
        let look_ahead = plan.config.look_ahead.unwrap_or(usize::MAX).min(room);
        Ok(Self {
            layouts: std::array::from_fn(|hop| plan.layout(hop)),
            parked: (0..hops).map(parked_messages).collect(),
            own: None,
            own_words: buffer(item_buffers[own].memory()),
            overflow: Overflow::new(plan.item),
            agreement: Agreement::new(me, plan.ranks),
            ending: false,
            look_ahead,
            bound: look_ahead,
            message_bytes: bytes,
            plan,
            requests,
            grid,
            item_buffers,
            own_buffer: own,
            next,
            held: 0,
            foreign: 0,
            sent: 0,
            handled: 0,
            messages: 0,
            discarded: 0,
            due: false,
            flush: false,
            pushing: false,
            blocked: false,
            timed: matches!(plan.config.send_policy, SendPolicy::Aged(_) | SendPolicy::Steady(_)),
            oldest: None,
            looks: 0,
        })
    }

    /// Adds an item of this rank if there is room for it.
    #[inline(always)]
    pub(super) fn put(&mut self, to: u32, item: &[u8]) -> bool {
        let Some(&item_buffer) = self.next.get(to as usize) else { return false };
        let item_buffer = &mut self.item_buffers[item_buffer as usize];
        if item_buffer.is_full() | (self.held >= self.bound) {
            return false;
        }
        item_buffer.put(item, to, self.plan.me.rank.0);
        self.held += 1;
        true
    }

    /// As [`Channel::put`], for items of bytes that are known when this is compiled, until one finds no room or
    /// the look-ahead is used up.
    #[inline(always)]
    pub(super) fn put_all<T: Element>(
        &mut self,
        items: &mut impl Iterator<Item = (Rank, T)>,
    ) -> (u64, Option<(Rank, T)>) {
        let (next, me) = (&self.next[..], self.plan.me.rank.0);
        let (bound, held) = (if self.ending { 0 } else { self.bound }, &mut self.held);
        let item_buffers = &mut self.item_buffers[..];
        match self.grid.hops() {
            1 => fill(items, bound, held, |to, item| {
                item_buffers.get_mut(to as usize).is_some_and(|item_buffer| item_buffer.offer_untagged(item))
            }),
            _ => fill(items, bound, held, |to, item| {
                let item_buffer = next.get(to as usize).map(|index| &mut item_buffers[*index as usize]);
                let item_buffer = item_buffer.filter(|item_buffer| !item_buffer.is_full());
                item_buffer.map(|item_buffer| item_buffer.put(item, to, me)).is_some()
            }),
        }
    }

    /// Whether an item may be put into its item buffer without further ado.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        !self.ending && !self.timed
    }

    /// Whether a hop is the last.
    pub(super) fn hops(&self) -> usize {
        self.grid.hops()
    }

    /// What the records of items that have arrived are.
    pub(super) fn layout(&self) -> Layout {
        self.layouts[MOST_HOPS]
    }

    /// Items that a message of the last hop has room for.
    pub(super) fn records(&self) -> usize {
        self.item_buffers[self.own_buffer].capacity()
    }

    pub(super) fn age(&self) -> Option<Span> {
        match self.plan.config.send_policy {
            SendPolicy::Aged(age) | SendPolicy::Steady(age) => Some(age),
            _ => None,
        }
    }

    pub(super) fn is_steady(&self) -> bool {
        matches!(self.plan.config.send_policy, SendPolicy::Steady(_))
    }

    /// What is held, and what may be.
    pub(super) fn usage(&self) -> AggregatorUsage {
        let own = |own: OwnMessage| own.len / self.layout().record() - own.next - own.mine;
        let parked = || self.parked.iter().flatten();
        let item_buffers: usize = self.item_buffers.iter().map(ItemBuffer::memory).sum();
        let places: usize = parked().map(ParkedMessages::memory).sum();
        AggregatorUsage {
            held: self.held + self.overflow.len(),
            look_ahead: self.look_ahead,
            overflow: self.overflow.capacity(),
            passing: self.foreign + self.parked() + self.own.map_or(0, own),
            memory: item_buffers + places + 8 * self.own_words.capacity() + self.beside(),
            pushed: self.sent + (self.held + self.overflow.len()) as u64,
            handled: self.handled,
            messages: self.messages,
            discarded: self.discarded,
        }
    }

    /// Bytes beside the item buffers and parked messages: for a message that is not aligned, or for what the
    /// function pushes.
    fn beside(&self) -> usize {
        if self.plan.answering {
            self.records() * usize::from(self.plan.config.answers) * self.plan.answer
        } else {
            self.message_bytes.next_multiple_of(8)
        }
    }

    /// Items in messages that wait here.
    fn parked(&self) -> usize {
        let parked = self.parked.iter().zip(&self.layouts);
        parked
            .filter_map(|(of_hop, layout)| of_hop.as_ref().map(|messages| messages.records(layout.record())))
            .sum()
    }

    /// Notes an item of this rank at a time; whether what is held has to go.
    pub(super) fn note_time(&mut self, now: Instant) -> bool {
        let age = self.age().unwrap_or(Span(u64::MAX));
        let oldest = *self.oldest.get_or_insert(now);
        let late = now >= oldest + age;
        self.flush |= late;
        late
    }

    /// Whether items for this rank itself are worth a poll.
    pub(super) fn has_own(&self) -> bool {
        self.item_buffers[self.own_buffer].len() >= OWN
    }

    /// Whether there is room for an item to a rank; if not, makes what stands in its way due.
    pub(super) fn press(&mut self, to: Rank) -> Result<bool, AggregateError> {
        let Some(&index) = self.next.get(to.0 as usize) else {
            return Err(AggregateError::NoSuchRank { rank: to, ranks: self.plan.ranks });
        };
        if self.ending {
            return Err(AggregateError::SaidDone);
        }
        let item_buffer = &mut self.item_buffers[index as usize];
        if item_buffer.gone {
            return Err(AggregateError::Gone { rank: Rank(item_buffer.target), cause: None });
        }
        if !item_buffer.is_full() && self.held < self.bound {
            return Ok(true);
        }
        if item_buffer.is_full() {
            (item_buffer.due, self.due) = (true, true);
        } else {
            self.press_fullest();
        }
        Ok(false)
    }

    /// Makes the item buffers with the most items of this rank due, until a quarter of the look-ahead comes free,
    /// unless some are: a poll for each message would cost more than the message. A deterministic rank gives one
    /// item buffer at a time, since what is pushed next may find some of several gone.
    fn press_fullest(&mut self) {
        let (mut freed, enough) = (0, self.look_ahead / 4);
        let several = self.plan.config.send_policy != SendPolicy::Deterministic;
        let own = |item_buffer: &ItemBuffer| item_buffer.len() - item_buffer.foreign;
        // None where all items are in the overflow, or wait for the function.
        while (!self.due || freed > 0 && several && freed < enough)
            && let Some(fullest) = self
                .item_buffers
                .iter_mut()
                .filter(|item_buffer| own(item_buffer) > 0 && !item_buffer.due)
                .max_by_key(|item_buffer| own(item_buffer))
        {
            freed += own(fullest);
            (fullest.due, self.due) = (true, true);
        }
    }

    /// Makes the items for this rank itself due.
    pub(super) fn handle_own(&mut self) {
        self.item_buffers[self.own_buffer].due = true;
        self.due = true;
    }

    pub(super) fn set_pushing(&mut self, pushing: bool) {
        self.pushing = pushing;
    }

    pub(super) fn send_held(&mut self) {
        self.flush = true;
    }

    pub(super) fn say_done(&mut self) {
        if !std::mem::replace(&mut self.ending, true) {
            self.agreement.say();
        }
    }

    /// Whether what was said done of is over; then this rank may push again.
    pub(super) fn take_end(&mut self) -> bool {
        let over = self.agreement.is_over();
        self.ending &= !over;
        over
    }

    /// Takes in an item that a function pushes; there is room in an item buffer or in the overflow.
    pub(super) fn pour(&mut self, to: u32, item: &[u8]) {
        if !self.overflow.is_empty() || !self.put(to, item) {
            self.overflow.push(to, item);
            self.bound_puts();
        }
    }

    /// Keeps what is pushed from going before what is in the overflow.
    pub(super) fn bound_puts(&mut self) {
        self.bound = if self.overflow.is_empty() { self.look_ahead } else { 0 };
    }

    /// Refuses a message that has arrived if it names a source that there is not; notes its items as handled
    /// otherwise.
    pub(super) fn handle_here(&mut self, sender: Rank, message: &[u8]) -> Result<(), Malformed> {
        let layout = self.layout();
        let checked = Self::check(layout, usize::MAX, &self.next, &self.item_buffers, sender, message);
        if checked.is_err() {
            self.agreement.break_off(Broken::Refused(sender));
        }
        checked?;
        self.handled += (message.len() / layout.record()) as u64;
        Ok(())
    }

    /// Refuses records of a message that cannot go on from here after hop `hop`, or name a source that there is
    /// not.
    fn check(
        layout: Layout,
        hop: usize,
        next: &[u32],
        item_buffers: &[ItemBuffer],
        sender: Rank,
        message: &[u8],
    ) -> Result<(), Malformed> {
        if !layout.to && !layout.from {
            return Ok(());
        }
        for index in 0..message.len() / layout.record() {
            let to = if layout.to { layout.to(message, index) } else { 0 };
            let onward = !layout.to
                || next.get(to as usize).is_some_and(|item_buffer| item_buffers[*item_buffer as usize].hop > hop);
            let from = if layout.from { layout.from(message, index) } else { sender.0 };
            if !onward || from as usize >= next.len() {
                return Err(Malformed::Record { to, from, sender });
            }
        }
        Ok(())
    }

    /// Takes in a message; whether its items are to be handled here and now, or wait for progress.
    pub(super) fn arrive(&mut self, from: Address, hop: u32, payload: &Payload<'_>) -> Result<bool, Malformed> {
        let arrived = self.take_in(from, hop, payload);
        if arrived.is_err() {
            // Its items are never handled.
            self.agreement.break_off(Broken::Refused(from.rank));
        }
        arrived
    }

    fn take_in(&mut self, from: Address, hop: u32, payload: &Payload<'_>) -> Result<bool, Malformed> {
        let (sender, index) = (from.rank, hop as usize);
        if from.endpoint != self.plan.me.endpoint || index >= self.grid.hops() {
            return Err(Malformed::Way { hop, from: sender });
        }
        let (layout, most) = (self.layouts[index], self.message_bytes);
        let (bytes, record) = (payload.len(), layout.record());
        if !bytes.is_multiple_of(record) {
            return Err(Malformed::Length { bytes, record });
        }
        if bytes > most {
            return Err(Malformed::TooLong { bytes, most });
        }
        if let Some(parked_messages) = &mut self.parked[index] {
            let (next, item_buffers) = (&self.next, &self.item_buffers);
            let check = |message: &[u8]| Self::check(layout, index, next, item_buffers, sender, message);
            parked_messages.park(hop, sender.0, payload, check)?;
            return Ok(false);
        }
        if !self.grid.leads(sender.0, index, self.plan.me.rank.0) {
            return Err(Malformed::Way { hop, from: sender });
        }
        Ok(true)
    }

    /// Takes in that a neighbour has room again.
    pub(super) fn room_back(&mut self, from: Rank, hop: u32, messages: u32) -> Result<(), Malformed> {
        let item_buffer = self
            .item_buffers
            .iter_mut()
            .find(|item_buffer| item_buffer.target == from.0 && item_buffer.hop == hop as usize);
        let item_buffer = item_buffer.ok_or(Malformed::Way { hop, from })?;
        item_buffer.under_way =
            item_buffer.under_way.checked_sub(messages).ok_or(Malformed::Room { from, messages })?;
        Ok(())
    }

    /// The next items to handle, at most `most`.
    pub(super) fn next_work(&mut self, most: usize) -> Option<Work> {
        let record = self.layout().record();
        if most == 0 {
            return None;
        }
        if let Some(own) = &mut self.own {
            let (first, len) = (own.next, own.len);
            let mut words = std::mem::take(&mut self.own_words);
            let mut count = most.min(len / record - first);
            if words.is_empty() {
                // A function has unwound that was to handle the items before: the others are lost.
                let rest = (len / record - first) as u64;
                (self.handled, self.discarded) = (self.handled + rest, self.discarded + rest);
                words = buffer(len);
                (own.next, count) = (len / record, 0);
            }
            own.next += count;
            let left = own.mine.min(len / record - own.next);
            let mine = std::mem::replace(&mut own.mine, left) - left;
            (self.held, self.sent) = (self.held - mine, self.sent + mine as u64);
            self.handled += count as u64;
            let first = own.next - count;
            return Some(Work { words, parked: None, sender: self.plan.me.rank.0, len, first, count });
        }
        let parked_messages = self.parked[self.grid.hops() - 1].as_mut().filter(|_| self.plan.answering)?;
        let (parked, mut words) = parked_messages.take()?;
        let Parked { from: sender, len, next: first, .. } = parked;
        let mut count = most.min(len / record - first);
        if words.is_empty() {
            // As above.
            let rest = (len / record - first) as u64;
            (self.handled, self.discarded) = (self.handled + rest, self.discarded + rest);
            words = buffer(len);
            count = 0;
            parked_messages.first()?.0.next = len / record;
        }
        let parked = parked_messages.first()?.0;
        parked.next += count;
        let (first, parked) = (parked.next - count, *parked);
        self.handled += count as u64;
        Some(Work { words, parked: Some(parked), sender, len, first, count })
    }

    /// Notes that items have been handled.
    pub(super) fn work_done(&mut self, work: Work) {
        let record = self.layout().record();
        let ended = work.first + work.count == work.len / record;
        match work.parked {
            Some(parked) => {
                let Some(parked_messages) = &mut self.parked[self.grid.hops() - 1] else { return };
                parked_messages.put_back(parked, work.words);
                if ended {
                    parked_messages.pop();
                }
            }
            None if self.own.is_some() => {
                self.own_words = work.words;
                if ended {
                    self.own = None;
                }
            }
            None => {}
        }
    }

    /// Whether items wait for the function.
    pub(super) fn has_work(&self) -> bool {
        let parked =
            |of_hop: &Option<ParkedMessages>| of_hop.as_ref().is_some_and(|messages| !messages.is_empty());
        self.own.is_some() || self.parked.last().is_some_and(parked)
    }
}
