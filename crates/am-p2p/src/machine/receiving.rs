//! Receives, messages that come before anybody asks for them, and how these meet.

use super::advance::Item;
use super::chains::Selector;
use super::control::{Control, Credit, Envelope, Offer, Part, SHORT};
use super::peers::OutOfOrder;
use super::place::MakePlace;
use super::receive::short_of;
use super::receive::{Arriving, Bytes, Reading, Receive, SHORT_MESSAGE, Stage, Word};
use super::sending::units;
use super::unexpected::Content;
use super::{Failure, LARGEST_TAG, Machine, zeroes};
use crate::config::Protocol;
use am_core::Payload;
use am_core::slab::Key;

/// What to do with a message that has come.
enum Arrival {
    /// It is the next one.
    InOrder,
    /// Others come before it.
    Early,
    /// Its sender is faulty.
    Refused,
}

impl Machine {
    #[inline(always)]
    pub(super) fn new_receive(&mut self, selector: Selector, kind: u32, capacity: u64) -> Key {
        self.orders += 1;
        let receive = Receive {
            selector,
            kind,
            capacity,
            order: self.orders,
            stage: Stage::Posted,
            from: selector.source,
            tag: selector.tag,
            sent_kind: kind,
            len: 0,
            bytes: Bytes::Buffer(Vec::new()),
            advertised: false,
            cancelling: false,
            wanted: true,
            met: false,
            failure: None,
            far: None,
        };
        self.receives.insert(receive)
    }

    /// Asks for a message of at most `capacity` bytes.
    #[inline(always)]
    pub(crate) fn post(&mut self, selector: Selector, kind: u32, capacity: u64) -> Key {
        let over = self.endings != 0 && self.unmatchable(selector).is_some();
        let meets = self.direct.is_waiting() || !self.unexpected.is_empty() || over;
        let others = meets || !self.posted.is_empty();
        if !others
            && capacity <= self.eager
            && selector.class() == 0
            && let Some(key) = self.line.push(selector, kind, capacity)
        {
            #[cfg(test)]
            self.history.push(super::model::Event::Posted(key, selector));
            return key;
        }
        if !self.line.is_empty() {
            self.post_line();
        }
        if meets || capacity > self.eager || selector.class() != 0 {
            return self.post_any(selector, kind, capacity, None);
        }
        self.post_alone(selector, kind, capacity)
    }

    /// The same, of a receive that meets no message yet.
    #[inline(never)]
    fn post_alone(&mut self, selector: Selector, kind: u32, capacity: u64) -> Key {
        let key = self.new_receive(selector, kind, capacity);
        #[cfg(test)]
        self.history.push(super::model::Event::Posted(key, selector));
        self.posted.push(selector, key);
        key
    }

    /// Asks for a message that goes to memory of the segment, at `offset` and as long as `capacity`.
    pub(crate) fn post_placed(&mut self, selector: Selector, kind: u32, capacity: u64, offset: u64) -> Key {
        if !self.line.is_empty() {
            self.post_line();
        }
        self.post_any(selector, kind, capacity, Some(offset))
    }

    /// The same, of a receive that may meet a message at once, be advertised, or have wildcards, or memory of the
    /// segment for its message.
    #[inline(never)]
    fn post_any(&mut self, selector: Selector, kind: u32, capacity: u64, own: Option<u64>) -> Key {
        if self.direct.is_waiting() {
            self.post_direct();
        }
        let key = self.new_receive(selector, kind, capacity);
        if own.is_some() {
            self.receive_mut(key).transfer().own = own;
        }
        #[cfg(test)]
        self.history.push(super::model::Event::Posted(key, selector));
        if !self.unexpected.is_empty()
            && let Some(waiting) = self.unexpected.first(selector)
        {
            self.withdraw(waiting);
            self.match_stored(key, waiting);
            return key;
        }
        if self.endings != 0
            && let Some(failure) = self.unmatchable(selector)
        {
            self.receive_mut(key).failure = Some(failure);
            self.finish(key);
            return key;
        }
        self.link(key, selector);
        if selector.class() == 0 && capacity > self.eager && self.advertises() {
            self.advertise(key);
        }
        key
    }

    /// Says what memory for the message of a receive is made of, where it is read while no call waits for it.
    pub(crate) fn set_make(&mut self, key: Key, make: MakePlace) {
        if let Some(receive) = self.receives.get_mut(key) {
            receive.transfer().make = Some(make);
        }
    }

    /// Adds a receive to those that are posted.
    #[inline]
    pub(super) fn link(&mut self, key: Key, selector: Selector) {
        self.posted.push(selector, key);
        if selector.class() != 0 {
            let context = self.context(selector.context);
            self.contexts[context].wildcards += 1;
        }
    }

    /// Why no message can come for a selector.
    #[inline(never)]
    pub(super) fn unmatchable(&mut self, selector: Selector) -> Option<Failure> {
        let context = self.context(selector.context);
        if self.contexts[context].freed {
            return Some(Failure::Freed);
        }
        let peer = self.peer_of.get(&selector.source)?;
        self.peers[*peer as usize].gone
    }

    /// Accounts for a message, and whether its turn has come. A peer that sends more than its credit permits is
    /// faulty.
    #[inline(always)]
    fn accept_sequence(&mut self, pair: usize, envelope: &Envelope, units: u32) -> Arrival {
        let state = &mut self.pairs[pair];
        let peer = &mut self.peers[state.peer as usize];
        peer.received.add(units);
        if envelope.kind & SHORT != 0 {
            peer.short = true;
        }
        let held = peer.held();
        // Announcements take a unit each where there are none left, too.
        let permitted = held.messages <= self.window.messages
            && held.units <= self.window.units + self.window.messages
            && envelope.tag <= LARGEST_TAG;
        if !permitted {
            let rank = peer.rank;
            self.fault(rank);
            return Arrival::Refused;
        }
        if state.expected != envelope.sequence {
            return Arrival::Early;
        }
        state.expected = state.expected.wrapping_add(1);
        Arrival::InOrder
    }

    fn hold_back(&mut self, pair: usize, envelope: Envelope, info: OutOfOrder) {
        // A peer has no more messages under way than there are credits for, and sends none twice.
        let state = &self.pairs[pair];
        let (ahead, rank) = (envelope.sequence.wrapping_sub(state.expected), self.peers[state.peer as usize].rank);
        let twice = state.out_of_order.iter().any(|(other, _)| other.sequence == envelope.sequence);
        if ahead > self.window.messages || twice {
            return self.fault(rank);
        }
        self.counts.held += 1;
        self.pairs[pair].out_of_order.push((envelope, info));
    }

    /// Looks at what has come before its turn, and releases what waited for the last wildcard.
    #[inline(always)]
    fn after_arrival(&mut self, pair: usize, from: u32) {
        if !self.pairs[pair].out_of_order.is_empty() {
            self.deliver_held(pair, from);
        }
        if self.unblocked.is_some() {
            self.release_deferred();
        }
    }

    #[cold]
    fn deliver_held(&mut self, pair: usize, from: u32) {
        loop {
            let state = &mut self.pairs[pair];
            // Ends also where a peer was found faulty, whose messages are gone then.
            let next = state.out_of_order.iter().position(|(envelope, _)| envelope.sequence == state.expected);
            let Some(next) = next else { return };
            let (envelope, info) = state.out_of_order.swap_remove(next);
            state.expected = state.expected.wrapping_add(1);
            let peer = state.peer as usize;
            match info {
                OutOfOrder::Eager(bytes) => {
                    self.eager_now(peer, from, envelope, &Payload::own(&bytes));
                    self.recycle(bytes);
                }
                OutOfOrder::Offered(offer, len) => self.offered_now(peer, from, envelope, offer, len),
                OutOfOrder::Written(receive, len) => self.written_now(peer, from, envelope, receive, len),
            }
        }
    }

    /// A message has come in one piece.
    #[inline(always)]
    pub(crate) fn on_eager(&mut self, from: u32, envelope: Envelope, credit: Credit, payload: &Payload<'_>) {
        if !self.on_next_eager(from, &envelope, credit, payload) {
            self.on_any_eager(from, envelope, credit, payload);
        }
    }

    /// The same, of one that comes as arguments.
    #[inline(always)]
    pub(crate) fn on_word(&mut self, from: u32, envelope: Envelope, credit: Credit, word: Word) {
        if !self.on_next_eager(from, &envelope, credit, &word) {
            self.on_any_word(from, envelope, credit, word);
        }
    }

    #[inline(never)]
    fn on_any_word(&mut self, from: u32, envelope: Envelope, credit: Credit, word: Word) {
        let bytes = &word.bits.to_le_bytes()[..word.bytes() as usize];
        self.on_any_eager(from, envelope, credit, &Payload::own(bytes));
    }

    /// The same, of the next message of the pair that was last sent to or heard, for a receive that is looked for
    /// before others. Whether it was one; otherwise nothing has changed.
    #[inline(always)]
    fn on_next_eager<C: Arriving>(&mut self, from: u32, envelope: &Envelope, credit: Credit, content: &C) -> bool {
        let (name, units) = (u64::from(envelope.context) << 32 | u64::from(from), units(content.len() as u64));
        if self.last_pair.0 != name || self.unblocked.is_some() {
            return false;
        }
        let Self { pairs, peers, direct, line, pool, counts, window, .. } = self;
        let pair = &mut pairs[self.last_pair.1 as usize];
        let index = pair.peer as usize;
        let peer = &mut peers[index];
        let held = peer.held();
        let Some(credit) = peer.plain_credit(credit) else { return false };
        let usual = pair.expected == envelope.sequence
            && pair.out_of_order.is_empty()
            && peer.gone.is_none()
            && envelope.kind & SHORT == 0
            && envelope.tag <= LARGEST_TAG
            && held.messages < window.messages
            && held.units.saturating_add(units) <= window.units + window.messages;
        if !usual {
            return false;
        }
        if direct.waits_for(from, envelope) {
            direct.fill(from, envelope, content);
        } else if !line.fill(pool, from, envelope, content) {
            return false;
        }
        #[cfg(test)]
        self.history.push(super::model::Event::Arrived(from, *envelope));
        counts.received += 1;
        counts.received_by.eager += 1;
        pair.expected = envelope.sequence.wrapping_add(1);
        peer.returned = credit;
        peer.received.add(units);
        if peer.consume(*window, units) {
            self.report_consumed(index);
        }
        true
    }

    /// The same, of any message.
    #[inline(never)]
    fn on_any_eager(&mut self, from: u32, envelope: Envelope, credit: Credit, payload: &Payload<'_>) {
        let Some(pair) = self.pair_of_arrival(envelope.context, from) else { return };
        let peer = self.pairs[pair].peer as usize;
        if !self.accept_credit(peer, credit) {
            return;
        }
        match self.accept_sequence(pair, &envelope, units(payload.len() as u64)) {
            Arrival::InOrder => {}
            Arrival::Early => return self.hold_back(pair, envelope, OutOfOrder::Eager(payload.to_vec())),
            Arrival::Refused => return,
        }
        self.eager_now(peer, from, envelope, payload);
        self.after_arrival(pair, from);
    }

    pub(super) fn on_rts(&mut self, from: u32, envelope: Envelope, offer: Offer, len: u64) {
        let Some(pair) = self.pair_of_arrival(envelope.context, from) else { return };
        match self.accept_sequence(pair, &envelope, 1) {
            Arrival::InOrder => {}
            Arrival::Early => return self.hold_back(pair, envelope, OutOfOrder::Offered(offer, len)),
            Arrival::Refused => return,
        }
        let peer = self.pairs[pair].peer as usize;
        self.offered_now(peer, from, envelope, offer, len);
        self.after_arrival(pair, from);
    }

    pub(super) fn on_written(&mut self, from: u32, envelope: Envelope, receive: Key, len: u64) {
        let Some(pair) = self.pair_of_arrival(envelope.context, from) else { return };
        match self.accept_sequence(pair, &envelope, 1) {
            Arrival::InOrder => {}
            Arrival::Early => return self.hold_back(pair, envelope, OutOfOrder::Written(receive, len)),
            Arrival::Refused => return,
        }
        let peer = self.pairs[pair].peer as usize;
        self.written_now(peer, from, envelope, receive, len);
        self.after_arrival(pair, from);
    }

    /// The receive that a message is for.
    #[inline(always)]
    fn find_posted(&mut self, from: u32, envelope: &Envelope) -> Option<Key> {
        if !self.line.is_empty() {
            self.post_line();
        }
        let Envelope { context, tag, .. } = *envelope;
        let exact = Selector { context, source: from, tag };
        if self.posted.len() == self.posted.of_class(0) {
            return self.posted.first(exact);
        }
        self.find_any(exact)
    }

    /// The same, where receives with wildcards are posted, too.
    #[inline(never)]
    fn find_any(&self, exact: Selector) -> Option<Key> {
        let selectors = exact.matching();
        let classes = (0..4).filter(|class| self.posted.of_class(*class) != 0);
        let found = classes.filter_map(|class| self.posted.first(selectors[class]));
        found.min_by_key(|key| self.receives.get(*key).map(|receive| receive.order))
    }

    /// A receive is not posted any more.
    pub(super) fn unlink(&mut self, key: Key) {
        let Some(receive) = self.receives.get_mut(key) else { return };
        let (selector, advertised) = (receive.selector, std::mem::take(&mut receive.advertised));
        receive.cancelling = false;
        self.posted.remove(selector, key);
        if advertised {
            let peer = self.peer(selector.source);
            self.peers[peer].adverts -= 1;
        }
        if selector.class() != 0 {
            let context = self.context(selector.context);
            let state = &mut self.contexts[context];
            state.wildcards -= 1;
            if state.wildcards == 0 && !state.deferred.is_empty() {
                self.unblocked = Some(selector.context);
            }
        }
    }

    /// Notes which message a receive has met; whether it can be received.
    pub(super) fn match_envelope(&mut self, key: Key, from: u32, envelope: &Envelope, len: u64) -> bool {
        self.counts.received += 1;
        let receive = self.receive_mut(key);
        receive.take(from, envelope, len);
        receive.failure.is_none()
    }

    #[inline(always)]
    fn count_eager(&mut self) {
        self.counts.received += 1;
        self.counts.received_by.eager += 1;
    }

    #[inline(always)]
    fn eager_now(&mut self, peer: usize, from: u32, envelope: Envelope, payload: &Payload<'_>) {
        let len = payload.len() as u64;
        #[cfg(test)]
        self.history.push(super::model::Event::Arrived(from, envelope));
        if self.direct.waits_for(from, &envelope) {
            self.count_eager();
            self.direct.fill(from, &envelope, payload);
            return self.consume(peer, units(len));
        }
        if self.line.fill(&mut self.pool, from, &envelope, payload) {
            self.count_eager();
            return self.consume(peer, units(len));
        }
        self.eager_posted(peer, from, envelope, payload);
    }

    /// An eager message has come that no blocking call waits for as the only receive.
    #[inline]
    fn eager_posted(&mut self, peer: usize, from: u32, envelope: Envelope, payload: &Payload<'_>) {
        let len = payload.len() as u64;
        let Some(key) = self.find_posted(from, &envelope) else {
            return self.eager_unexpected(peer, from, envelope, payload);
        };
        let Self { receives, pool, .. } = self;
        let receive = receives.get_mut(key).expect("a posted receive has its entry");
        let known = receive.advertised || receive.cancelling || !receive.wanted || receive.failure.is_some();
        if known || receive.selector.class() != 0 {
            return self.eager_known(key, peer, from, envelope, payload);
        }
        // As below, for the receives that most are.
        receive.take(from, &envelope, len);
        receive.stage = Stage::Done;
        if receive.failure.is_none() && len <= SHORT_MESSAGE as u64 {
            receive.bytes = Bytes::Short(short_of(payload));
        } else if receive.failure.is_none() {
            let mut bytes = pool.pop().unwrap_or_default();
            bytes.resize(payload.len(), 0);
            payload.copy_to(&mut bytes);
            receive.bytes = Bytes::Buffer(bytes);
        }
        let selector = receive.selector;
        self.posted.remove(selector, key);
        self.count_eager();
        self.consume(peer, units(len));
    }

    /// An eager message has come that nobody has asked for.
    #[inline(never)]
    fn eager_unexpected(&mut self, peer: usize, from: u32, envelope: Envelope, payload: &Payload<'_>) {
        let len = payload.len() as u64;
        if self.is_freed(envelope.context) {
            return self.consume(peer, units(len));
        }
        let mut bytes = self.buffer();
        bytes.resize(payload.len(), 0);
        payload.copy_to(&mut bytes);
        self.store(from, envelope, len, Content::Here(bytes));
    }

    /// An eager message has come for a receive with wildcards, or one that its sender or its communicator knows
    /// of.
    #[inline(never)]
    fn eager_known(&mut self, key: Key, peer: usize, from: u32, envelope: Envelope, payload: &Payload<'_>) {
        let len = payload.len() as u64;
        let advertised = self.receive_mut(key).advertised;
        self.unlink(key);
        self.counts.received_by.eager += 1;
        if self.match_envelope(key, from, &envelope, len) && len != 0 {
            let mut bytes = self.buffer();
            bytes.resize(payload.len(), 0);
            payload.copy_to(&mut bytes);
            self.receive_mut(key).bytes = Bytes::Buffer(bytes);
        }
        let block = self.receive_mut(key).take_staged();
        block.into_iter().for_each(|block| self.staging.give_back(block));
        self.consume(peer, units(len));
        if advertised && self.config.protocol == Protocol::ReceiverInitiated {
            self.receive_mut(key).stage = Stage::Retiring;
            // It counts as advertised until it is answered, so that the peer never has more to answer than there
            // are advertisements.
            self.peers[peer].adverts += 1;
            self.counts.revocations += 1;
            self.queue_control(peer, Control::Retire { receive: key });
        } else {
            self.finish(key);
        }
    }

    fn offered_now(&mut self, peer: usize, from: u32, envelope: Envelope, offer: Offer, len: u64) {
        if self.direct.waits_for(from, &envelope) {
            self.post_direct();
        }
        #[cfg(test)]
        self.history.push(super::model::Event::Arrived(from, envelope));
        let Some(key) = self.find_posted(from, &envelope) else {
            if self.is_freed(envelope.context) {
                self.consume(peer, 1);
                return self.queue_control(peer, Control::Refuse { send: offer.send, freed: true });
            }
            return self.store(from, envelope, len, Content::Offered(offer));
        };
        let advertised = self.receive_mut(key).advertised;
        self.unlink(key);
        self.start_transfer(key, peer, from, &envelope, (offer, len), advertised);
    }

    /// A message has been or is being written to an advertised receive.
    fn written_now(&mut self, peer: usize, from: u32, envelope: Envelope, key: Key, len: u64) {
        #[cfg(test)]
        self.history.push(super::model::Event::Arrived(from, envelope));
        let meant = self.receives.get(key).filter(|receive| {
            let fits = len <= receive.capacity && receive.arrived() <= len;
            receive.advertised && fits
        });
        if meant.is_none() || self.find_posted(from, &envelope) != Some(key) {
            return self.fault(from);
        }
        self.consume(peer, 1);
        self.unlink(key);
        self.match_envelope(key, from, &envelope, len);
        self.counts.received_by.receiver_initiated += 1;
        let receive = self.receive_mut(key);
        (receive.stage, receive.transfer().ended) = (Stage::Moving, true);
        self.complete_if_arrived(key);
    }

    /// A receive meets a message that was announced.
    pub(super) fn start_transfer(
        &mut self,
        key: Key,
        peer: usize,
        from: u32,
        envelope: &Envelope,
        (offer, len): (Offer, u64),
        advertised: bool,
    ) {
        self.consume(peer, 1);
        let (fits, elides) = (self.match_envelope(key, from, envelope, len), self.elides());
        let capacity = self.receive_mut(key).capacity;
        if advertised && len <= capacity {
            // The sender finds the receive that was advertised, and writes to it.
            self.counts.received_by.crossing += 1;
            let receive = self.receive_mut(key);
            (receive.stage, receive.transfer().ended) = (Stage::Moving, elides);
            return self.complete_if_arrived(key);
        }
        if !fits {
            let block = self.receive_mut(key).take_staged();
            block.into_iter().for_each(|block| self.staging.give_back(block));
            self.queue_control(peer, Control::Refuse { send: offer.send, freed: false });
            return self.finish(key);
        }
        if len == 0 || !self.await_reader(key, peer, offer) {
            self.ask_to_write(key, peer, offer.send);
        }
    }

    /// A receive has a message to be written to it, or to be read by messages.
    pub(super) fn ask_to_write(&mut self, key: Key, peer: usize, send: Key) {
        let (len, elides) = (self.receive_mut(key).len, self.elides());
        let own = self.receive_mut(key).own(len);
        let staged = if len == 0 { None } else { own.or_else(|| self.staging.take(len)) };
        let reads = self.config.protocol == Protocol::Read;
        let bytes = if staged.is_none() { usize::try_from(len).ok().and_then(|len| zeroes(0, len)) } else { None };
        let receive = self.receive_mut(key);
        if staged.is_none() {
            let Some(bytes) = bytes else {
                receive.failure = Some(Failure::NoMemory);
                self.queue_control(peer, Control::Refuse { send, freed: false });
                return self.finish(key);
            };
            receive.bytes = Bytes::Buffer(bytes);
        }
        receive.stage = Stage::Moving;
        let transfer = receive.transfer();
        (transfer.staged, transfer.ended) = (staged, elides || reads);
        if reads {
            transfer.reading = Some(Reading { send, asked: 0, under_way: 0 });
            self.peers[peer].queue.push_back(Item::Read(key));
            self.mark_ready(peer);
        } else {
            self.counts.cts += 1;
            self.counts.received_by.sender_initiated += 1;
            let (offset, stays) = (staged.map(|block| block.offset), own.is_some());
            self.queue_control(peer, Control::Cts { send, receive: key, offset, stays, copies: false });
        }
        self.complete_if_arrived(key);
    }

    /// A part of a message has come: by itself in the segment, or as bytes.
    pub(crate) fn on_part(&mut self, from: u32, part: &Part, payload: &Payload<'_>) {
        if let Some((envelope, len)) = part.envelope {
            self.on_written(from, envelope, part.receive, len);
        }
        if payload.is_empty() && part.copied == 0 {
            return;
        }
        let peer = self.peer_of.get(&from).map(|peer| &self.peers[*peer as usize]);
        if peer.is_some_and(|peer| peer.is_faulty()) {
            return self.ignore();
        }
        // Nobody else can have copied anything to this rank's segment.
        let (ordered, maps) = (self.ordered, peer.is_some_and(|peer| peer.maps));
        let Some(receive) = self.receives.get_mut(part.receive).filter(|receive| receive.from == from) else {
            return self.ignore();
        };
        // What has been copied comes without bytes.
        let copied = part.copied != 0 && payload.is_empty();
        let len = if copied { u64::from(part.copied) } else { payload.len() as u64 };
        // An advertised receive may be written to before its message is known.
        let expected = match receive.stage {
            Stage::Moving if receive.lent().is_none() => receive.len,
            Stage::Posted if receive.advertised => receive.capacity,
            Stage::Posted | Stage::Moving | Stage::Retiring | Stage::Done | Stage::Cancelled => {
                return self.fault(from);
            }
        };
        let arrived = receive.arrived();
        let end = part.at.checked_add(len).filter(|end| *end <= expected && arrived + len <= expected);
        let in_order = !ordered || receive.reading().is_some() || part.at == arrived;
        let Some(end) = end.filter(|_| in_order) else { return self.fault(from) };
        match receive.staged() {
            Some(_) if copied && maps => {}
            Some(block) if payload.offset() == Some(block.offset + part.at) => {}
            None if payload.offset().is_none() && !copied => {
                payload.copy_to(&mut receive.bytes.buffer()[part.at as usize..end as usize]);
            }
            _ => return self.fault(from),
        }
        let whole = receive.len;
        let transfer = receive.transfer();
        transfer.arrived += len;
        if let Some(reading) = &mut transfer.reading {
            reading.under_way = reading.under_way.saturating_sub(1);
            if reading.asked < whole {
                let peer = self.peer(from);
                self.peers[peer].queue.push_back(Item::Read(part.receive));
                self.mark_ready(peer);
            }
        }
        self.complete_if_arrived(part.receive);
    }

    /// The sender of a message does not answer a request to read it, which it has to.
    #[cold]
    pub(crate) fn on_no_answer(&mut self, from: u32, key: Key) {
        let reads = |receive: &&Receive| {
            receive.from == from && receive.stage == Stage::Moving && receive.reading().is_some()
        };
        match self.receives.get(key).filter(reads) {
            Some(_) => self.fault(from),
            None => self.ignore(),
        }
    }

    pub(super) fn on_fin(&mut self, from: u32, key: Key) {
        let moving = |receive: &&mut Receive| {
            receive.from == from && receive.stage == Stage::Moving && receive.lent().is_none()
        };
        match self.receives.get_mut(key).filter(moving) {
            Some(receive) => receive.transfer().ended = true,
            None => self.ignore(),
        }
        self.complete_if_arrived(key);
    }

    /// Ends a receive whose message is all there.
    fn complete_if_arrived(&mut self, key: Key) {
        let Some(receive) = self.receives.get(key) else { return };
        if receive.stage != Stage::Moving || !receive.has_ended() || receive.arrived() < receive.len {
            return;
        }
        let from = receive.from;
        if let Some(reading) = receive.reading() {
            let peer = self.peer(from);
            self.counts.ack += 1;
            self.counts.received_by.read += 1;
            self.queue_control(peer, Control::Ack { send: reading.send });
        }
        self.finish(key);
    }

    /// A receive is over.
    pub(super) fn finish(&mut self, key: Key) {
        let receive = self.receive_mut(key);
        receive.stage = Stage::Done;
        if !receive.wanted {
            self.discard(key);
        }
    }

    /// Lets go what a receive has brought.
    pub(super) fn discard(&mut self, key: Key) {
        let Some(mut receive) = self.receives.remove(key) else { return };
        receive.take_staged().into_iter().for_each(|block| self.staging.give_back(block));
        if receive.far.as_ref().is_some_and(|far| far.timed) {
            self.note_written(None);
        }
        if let Bytes::Buffer(bytes) = receive.bytes {
            self.recycle(bytes);
        }
    }
}
