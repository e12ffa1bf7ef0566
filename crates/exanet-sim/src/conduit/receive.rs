//! Receiving: packets become frames, frames wait for their turn and their payload, and go to the sink.

use super::config::note;
use super::frame::{Frame, Header, LEAD, Malformed, packets};
use super::reply_path::ConduitReplyPath;
use super::stages::Purpose;
use super::transport::{Conduit, EndedOperation};
use crate::delivery::LOSS_NOTICE;
use crate::nic::{Fault, Message, Progress};
use am_core::segment::Memory;
use am_core::transport::{Arrival, OperationFault, Sink};
use am_core::{Category, LossCause, Payload, Peer, PeerStatus};
use fabric_sim::conduit::Kind;

impl Conduit<'_> {
    /// Takes what has arrived to the sink, at most `budget` messages.
    pub(super) fn serve<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let found = self.take_in();
        let mut done = 0;
        while done < budget && self.tell_completed(sink) {
            done += 1;
        }
        // Peers whose first frame waits for its payload, in a row.
        let mut fruitless = 0;
        while done < budget && fruitless < self.waiting.len() {
            let Some(from) = self.waiting.pop_front() else { break };
            self.peers.of(from).waits = false;
            if self.is_ready(from) {
                fruitless = 0;
                done += 1;
                self.deliver(from, sink);
            } else {
                fruitless += 1;
                self.line_up(from);
            }
        }
        if done == 0 && !found {
            self.nic.charge_empty_poll();
        }
        done
    }

    /// Puts a peer that has frames into the list of those, unless it is there.
    fn line_up(&mut self, from: u32) {
        let peer = self.peers.of(from);
        if !peer.inbox.is_empty() && !std::mem::replace(&mut peer.waits, true) {
            self.waiting.push_back(from);
        }
    }

    /// Looks at the interface once, and takes in what is there without delivering it. Whether anything was.
    pub(super) fn take_in(&mut self) -> bool {
        let glance = self.nic.glance();
        let sent = self.send_refused(glance.refused);
        if glance.ended {
            self.collect_transfers();
        }
        // A mailbox does not hold more than these at once.
        for _ in 0..if glance.mail { self.nic.parameters().packetizer.mailbox } else { 0 } {
            let Some(message) = self.nic.mbox_take_seen() else { break };
            self.accept(&message);
        }
        self.sweep_natives();
        let found = glance.mail || glance.ended || sent;
        self.presence.fresh |= found;
        found
    }

    /// Takes in transfers that have ended.
    pub(super) fn collect_transfers(&mut self) {
        let mut index = 0;
        while let Some(transfer) = self.stages.under_way.get(index).copied() {
            let outcome = match self.nic.rdma_seen(transfer.id) {
                Some(Progress::Pending) | None => {
                    index += 1;
                    continue;
                }
                Some(Progress::Done) => Ok(()),
                Some(Progress::Fault(fault)) => {
                    if fault == Fault::Unreachable {
                        self.unreachable(transfer.peer);
                    }
                    let gone = matches!(fault, Fault::NoContext | Fault::Unreachable);
                    Err(if gone { OperationFault::Gone } else { OperationFault::Refused })
                }
            };
            self.stages.under_way.swap_remove(index);
            match transfer.purpose {
                Purpose::Native(ticket, bytes) => {
                    // What a read has brought stays in its stage until the core has seen it.
                    let brought = transfer.stage.filter(|_| bytes.is_some() && outcome.is_ok());
                    if let (None, Some(stage)) = (brought, transfer.stage) {
                        self.stages.give(stage);
                    }
                    let brought = brought.map(|stage| (stage, bytes.unwrap_or_default()));
                    self.completed.push_back(EndedOperation { ticket, brought, outcome });
                }
                Purpose::Message | Purpose::Part => {
                    if let Some(stage) = transfer.stage {
                        self.stages.give(stage);
                    }
                    if outcome == Err(OperationFault::Refused) {
                        // Every rank keeps its segment and its buffers mapped.
                        self.lose(transfer.peer, LossCause::Faulty);
                    }
                }
            }
        }
    }

    /// Takes a packet into its source's line.
    fn accept(&mut self, message: &Message) {
        let Some(from) = self.nic.rank_at(message.from) else { return };
        if self.presence.faulty.contains(Peer(from)) {
            return;
        }
        if message.data() == LOSS_NOTICE {
            return self.lose(from, LossCause::Silent);
        }
        // What its credits let a peer have under way: frames of the largest size, and credits.
        let slots = self.shared.sizes.requests + self.shared.sizes.replies + super::config::CONTROL_SLOTS;
        let most = slots as usize * (packets(LEAD + self.shared.config.inline as usize) + 1);
        if self.peers.of(from).line.put(message.data(), most).is_err() {
            return self.lose(from, LossCause::Faulty);
        }
        loop {
            let spare = &mut self.spare;
            let Some(frame) = self.peers.of(from).line.next(|| spare.take(0)) else { return };
            let Ok(Ok(())) = frame.map(|frame| self.enqueue(from, frame)) else {
                return self.lose(from, LossCause::Faulty);
            };
        }
    }

    /// Takes in a frame whose turn it is: its credits at once, the rest when it is delivered.
    fn enqueue(&mut self, from: u32, frame: Frame) -> Result<(), Malformed> {
        self.collect(from, &frame.header)?;
        let Header { kind, slot, write, .. } = frame.header;
        let (sizes, segment) = (self.shared.sizes, self.segment_size());
        let peer = self.peers.of(from);
        let bit = 1u32.checked_shl(slot.into()).unwrap_or(0);
        let fits = match kind.category() {
            Some(Category::Long) => {
                frame.place.offset.checked_add(frame.place.len).is_some_and(|end| end <= segment)
            }
            _ => frame.place.len <= sizes.medium.into() && (write == 0 || bit & sizes.control_slots() == 0),
        };
        let entitled = match kind {
            Kind::Credit => {
                self.spare.give(frame.bytes);
                return Ok(());
            }
            Kind::Reply(_) => {
                self.own_replies &= !if from == self.presence.me { bit } else { 0 };
                let entitled = bit & peer.replies.in_use() & !peer.answered != 0;
                peer.answered |= bit;
                entitled
            }
            _ => {
                let entitled = bit & (sizes.request_slots() | sizes.control_slots()) & !peer.inside != 0;
                peer.inside |= bit;
                entitled
            }
        };
        if !fits || !entitled {
            return Err(Malformed);
        }
        peer.inbox.push_back(frame);
        self.line_up(from);
        Ok(())
    }

    /// Takes in the credits that a frame brings.
    fn collect(&mut self, from: u32, header: &Header) -> Result<(), Malformed> {
        let requests = self.shared.sizes.request_slots();
        let peer = self.peers.of(from);
        // An answer that has come gives its slot back itself.
        if peer.slots.give(header.handled).is_err() || header.freed & peer.answered != 0 {
            return Err(Malformed);
        }
        self.unhandled -= u64::from((header.handled & requests).count_ones());
        peer.replies.give(header.freed).map_err(|_| Malformed)
    }

    /// Whether the first frame of a peer can be delivered: its payload is there.
    fn is_ready(&self, from: u32) -> bool {
        let first = self.peers.known().get(from).and_then(|peer| peer.inbox.front());
        first.is_some_and(|frame| self.has_payload(from, frame))
    }

    fn has_payload(&self, from: u32, frame: &Frame) -> bool {
        let Header { kind, slot, write, .. } = frame.header;
        let reply = matches!(kind, Kind::Reply(_));
        write == 0 || self.notes.word(note(from, reply, slot) as usize) == u64::from(write)
    }

    /// Whether a peer has a frame that can be delivered.
    pub(super) fn has_deliverable(&self) -> bool {
        !self.completed.is_empty() || self.waiting.iter().any(|from| self.is_ready(*from))
    }

    /// Whether replies of peers that are there wait for their payload.
    pub(super) fn replies_wait(&self) -> bool {
        self.waiting.iter().any(|from| {
            let frames = self.peers.known().get(*from).into_iter().flat_map(|peer| &peer.inbox);
            let waits =
                |frame: &Frame| matches!(frame.header.kind, Kind::Reply(_)) && !self.has_payload(*from, frame);
            self.known_status(*from) == PeerStatus::Active && frames.into_iter().any(waits)
        })
    }

    /// Delivers the first frame of a peer.
    fn deliver<S: Sink>(&mut self, from: u32, sink: &mut S) {
        let frame = self.peers.of(from).inbox.pop_front().expect("a peer that waits has a frame");
        // Before the handler runs, which may unwind.
        self.line_up(from);
        let Header { kind, handler, slot, reply, write, .. } = frame.header;
        if write != 0 {
            self.nic.charge_notice();
        }
        self.nic.charge(self.shared.costs.dispatch);
        let (segment, buffers) = (self.segment.clone(), self.buffers.clone());
        let is_reply = matches!(kind, Kind::Reply(_));
        let in_buffer = write != 0 && !kind.is_long();
        let payload = if kind.is_long() {
            let view = segment.view(frame.place.offset, frame.place.len as usize);
            view.expect("the place was checked when the frame came")
        } else if in_buffer {
            let at = self.shared.sizes.buffer(from, is_reply, slot) as usize;
            Payload::shared(buffers.words(), at, frame.place.len as usize)
        } else {
            Payload::own(frame.payload())
        };
        let arrival = |category| Arrival::new(Peer(from), category, handler, &frame.args, payload);
        match kind {
            Kind::Request(category) | Kind::OneWay(category) => {
                let replies = matches!(kind, Kind::Request(_)).then_some(reply);
                // A reply may tell that the slot is free unless the handler still sees its buffer.
                let mut path = ConduitReplyPath::of_request(self, from, 1 << slot, !in_buffer, replies);
                sink.request(arrival(category), &mut path);
            }
            Kind::Reply(category) => {
                // Its buffer stays as it is: until the handler has returned, nobody asks for another reply.
                let peer = self.peers.of(from);
                peer.answered &= !(1 << slot);
                peer.replies.give(1 << slot).expect("the slot was in use when the reply came");
                sink.reply(arrival(category));
            }
            Kind::Control | Kind::Credit => {
                if !self.settle_own(from, 1 << slot, 0) {
                    // Credits are sent after the poll, so nothing overwrites the payload yet.
                    self.owe(from, 1 << slot, 0);
                }
                sink.control(Peer(from), &frame.args, payload);
            }
        }
        self.spare.give(frame.bytes);
    }
}
