//! What a channel does whenever the endpoint lets layers carry on: it gives room back, moves items on, sends, and
//! agrees on the end.

use super::Items;
use super::agreement::{Broken, Step};
use super::channel::{Channel, OwnMessage};
use super::config::SendPolicy;
use am_core::layer::{Outbox, Progress};
use am_core::transport::PeerStatus;
use am_core::{Address, Rank, SendError};

/// Rounds of a rank that has said done, after which it counts as idle although messages keep coming.
const LOOKS: u32 = 32;

impl Channel {
    /// One round. Never blocks.
    pub(super) fn advance(&mut self, outbox: &mut Outbox<'_>) -> Progress {
        self.blocked = false;
        self.looks = if self.agreement.is_open() { self.looks.wrapping_add(1) } else { 0 };
        let idle = outbox.about_to_idle() || self.looks % LOOKS == LOOKS - 1;
        self.look_at_clock(outbox);
        let mut moved = self.give_back(outbox) | self.drain_overflow(outbox);
        for hop in (0..self.hops() - 1).rev() {
            moved |= self.forward(hop, outbox);
        }
        moved |= self.send_buffers(outbox, idle);
        moved |= self.agree(outbox, idle);
        if moved {
            return Progress::Advanced;
        }
        let left = self.blocked || self.due || self.timed && self.in_lanes() > 0;
        if left { Progress::Blocked } else { Progress::Idle }
    }

    fn in_lanes(&self) -> usize {
        self.held - self.own.map_or(0, |own| own.mine) + self.foreign
    }

    fn address(&self, rank: u32) -> Address {
        Address::new(Rank(rank), self.plan.me.endpoint)
    }

    /// Lets all go that is held if the oldest has waited long enough.
    fn look_at_clock(&mut self, outbox: &Outbox<'_>) {
        if !self.timed {
            return;
        }
        if self.in_lanes() == 0 {
            self.oldest = None;
        } else {
            self.note_time(outbox.now());
        }
    }

    /// Tells neighbours that messages of theirs have gone on.
    fn give_back(&mut self, outbox: &mut Outbox<'_>) -> bool {
        let mut moved = false;
        for hop in 0..self.parked.len() {
            while let Some((rank, messages)) =
                self.parked[hop].as_ref().and_then(|parked_messages| parked_messages.owed())
            {
                let args = (self.plan.index, hop as u32, messages);
                let told = outbox.try_request(self.address(rank), self.requests.room, args);
                // Whoever is gone needs no room.
                if let Err(SendError::WouldBlock { .. }) = told {
                    self.blocked = true;
                    break;
                }
                if let Some(parked_messages) = &mut self.parked[hop] {
                    parked_messages.told();
                }
                moved = true;
            }
        }
        moved
    }

    /// Puts into item buffers what functions have pushed.
    fn drain_overflow(&mut self, outbox: &mut Outbox<'_>) -> bool {
        let mut moved = false;
        while let Some((to, _)) = self.overflow.first() {
            let item_buffer = self.next[to as usize] as usize;
            if self.item_buffers[item_buffer].gone {
                self.sent += 1;
                self.discarded += 1;
                self.overflow.pop();
                continue;
            }
            if !self.make_room(item_buffer, outbox) {
                self.blocked = true;
                break;
            }
            if self.item_buffers[item_buffer].gone {
                continue;
            }
            let Some((to, item)) = self.overflow.first() else { break };
            self.item_buffers[item_buffer].put(item, to, self.plan.me.rank.0);
            self.held += 1;
            self.overflow.pop();
            moved = true;
        }
        self.bound_puts();
        moved
    }

    /// Makes room in an item buffer for an item of this rank, within the look-ahead.
    fn make_room(&mut self, item_buffer: usize, outbox: &mut Outbox<'_>) -> bool {
        if self.item_buffers[item_buffer].is_full() && !self.send_buffer(item_buffer, outbox) {
            return false;
        }
        // Each turn sends an item of this rank.
        while self.held >= self.look_ahead {
            let own = |item_buffer: &usize| {
                self.item_buffers[*item_buffer].len() - self.item_buffers[*item_buffer].foreign
            };
            let fullest = (0..self.item_buffers.len()).max_by_key(own).filter(|item_buffer| own(item_buffer) > 0);
            let sent = fullest.is_some_and(|item_buffer| self.send_buffer(item_buffer, outbox));
            if !sent {
                return false;
            }
        }
        true
    }

    /// Moves the items on that wait here after hop `hop`.
    fn forward(&mut self, hop: usize, outbox: &mut Outbox<'_>) -> bool {
        let layout = self.layouts[hop];
        let Some(mut parked_messages) = self.parked[hop].take_if(|parked_messages| !parked_messages.is_empty())
        else {
            return false;
        };
        let mut moved = false;
        'messages: while let Some((parked, message)) = parked_messages.first() {
            let records = message.len() / layout.record();
            while parked.next < records {
                let (index, item) = (parked.next, layout.item);
                let to = layout.to(message, index);
                let from = if layout.from { layout.from(message, index) } else { parked.from };
                let item_buffer = self.next[to as usize] as usize;
                if !self.item_buffers[item_buffer].gone {
                    if self.item_buffers[item_buffer].is_full() && !self.send_buffer(item_buffer, outbox) {
                        self.blocked = true;
                        break 'messages;
                    }
                    let item_buffer = &mut self.item_buffers[item_buffer];
                    if item_buffer.gone {
                        continue;
                    }
                    item_buffer.put(&message[index * item..][..item], to, from);
                    item_buffer.foreign += 1;
                    self.foreign += 1;
                } else {
                    self.discarded += 1;
                }
                parked.next += 1;
                moved = true;
            }
            parked_messages.pop();
            moved = true;
        }
        self.parked[hop] = Some(parked_messages);
        moved
    }

    /// Sends the item buffers whose time has come.
    fn send_buffers(&mut self, outbox: &mut Outbox<'_>, idle: bool) -> bool {
        let idle = idle && !self.pushing;
        let own = self.agreement.is_open();
        // What waits for room in an item buffer goes in a later round.
        let flush = self.flush;
        self.flush &= !self.overflow.is_empty();
        if !self.due && !(self.in_lanes() > 0 && (flush || own || idle)) {
            return false;
        }
        if flush {
            self.item_buffers.iter_mut().for_each(|item_buffer| item_buffer.due |= item_buffer.len() > 0);
            // What is pushed from now on has its own age.
            self.oldest = None;
        }
        let patient = self.plan.config.send_policy == SendPolicy::Deterministic;
        let (mut moved, mut due) = (false, false);
        for index in 0..self.item_buffers.len() {
            let item_buffer = &self.item_buffers[index];
            // Items that only this rank has put there.
            let first = item_buffer.hop == 0 || item_buffer.hop == self.hops() && item_buffer.foreign == 0;
            let own = own && item_buffer.len() > item_buffer.foreign;
            let goes = item_buffer.due || own || idle && !(patient && first);
            if item_buffer.len() > 0 && goes {
                moved |= self.send_buffer(index, outbox);
            }
            due |= self.item_buffers[index].due;
        }
        self.due = due;
        if self.in_lanes() == 0 {
            self.oldest = None;
        }
        moved
    }

    /// Sends an item buffer that has items, if there is room at its end; it is due otherwise.
    fn send_buffer(&mut self, index: usize, outbox: &mut Outbox<'_>) -> bool {
        let to = self.address(self.item_buffers[index].target);
        let (hops, items) = (self.hops(), self.requests.items);
        let item_buffer = &mut self.item_buffers[index];
        let (all, foreign) = (item_buffer.len(), item_buffer.foreign);
        if item_buffer.hop == hops {
            if self.own.is_some() {
                return self.stuck(index);
            }
            let len = item_buffer.exchange(&mut self.own_words);
            self.own = Some(OwnMessage { len, next: 0, mine: all - foreign });
            self.foreign -= foreign;
            return true;
        } else {
            let waits = item_buffer.hop + 1 < hops || self.plan.answering;
            let hop = item_buffer.hop as u32;
            let mut gone = false;
            if waits && item_buffer.under_way >= u32::from(self.plan.config.window) {
                // A neighbour that is gone gives no room back.
                if outbox.status(to) == Some(PeerStatus::Active) {
                    return self.stuck(index);
                }
                gone = true;
            } else {
                match item_buffer.send(|message| match items {
                    Items::Straight(items) => outbox.try_request_medium(to, items, (), message),
                    Items::ByHops(items) => outbox.try_request_medium(to, items, hop, message),
                }) {
                    Ok(()) => {
                        item_buffer.under_way += u32::from(waits);
                        self.messages += 1;
                    }
                    Err(SendError::WouldBlock { .. }) => return self.stuck(index),
                    Err(_) => gone = true,
                }
            }
            if gone {
                item_buffer.close();
                self.discarded += all as u64;
            }
        }
        self.held -= all - foreign;
        self.foreign -= foreign;
        self.sent += (all - foreign) as u64;
        true
    }

    fn stuck(&mut self, index: usize) -> bool {
        self.item_buffers[index].due = true;
        (self.due, self.blocked) = (true, true);
        false
    }

    /// Takes part in the agreement that all is handled.
    fn agree(&mut self, outbox: &mut Outbox<'_>, idle: bool) -> bool {
        let (mut moved, open) = (false, self.agreement.is_open());
        loop {
            let pushed = self.sent + (self.held + self.overflow.len()) as u64;
            let Some(step) = self.agreement.step(pushed, self.handled) else {
                // Rank 0 may have learned that it is over by adding up alone, which whoever waits has to see.
                return moved || open != self.agreement.is_open();
            };
            let index = self.plan.index;
            let sent = match step {
                Step::Report { .. } if !idle => return moved,
                Step::Report { to, sums } => {
                    let args = (index, sums.done, sums.pushed, sums.handled);
                    outbox.try_request(self.address(to.0), self.requests.report, args)
                }
                Step::Over { to, times } => {
                    outbox.try_request(self.address(to.0), self.requests.over, (index, times))
                }
                Step::Broken { to, why } => {
                    let (rank, refused) = match why {
                        Broken::Gone(rank) => (rank, 0),
                        Broken::Refused(rank) => (rank, 1),
                    };
                    outbox.try_request(self.address(to.0), self.requests.broken, (index, rank.0, refused))
                }
            };
            match (sent, step) {
                (Ok(()), _)
                | (
                    Err(SendError::Finished { .. } | SendError::Wait(_)),
                    Step::Over { .. } | Step::Broken { .. },
                ) => {}
                (Err(SendError::WouldBlock { .. }), _) => {
                    self.blocked = true;
                    return moved;
                }
                // Whoever waits learns that the parent is gone.
                (Err(_), _) => return moved,
            }
            self.agreement.sent(step);
            moved = true;
        }
    }
}
