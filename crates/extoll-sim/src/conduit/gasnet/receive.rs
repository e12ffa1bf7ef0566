//! Receiving: packets become frames, halves of Long messages are joined, frames go to the sink.

use super::assembly::{Step, step};
use super::header::{HEADER, Header, Kind, LongTarget, read_lead};
use super::joins::{FrameHeader, Joins, Placed};
use super::layout::{Implementation, slots_of_packet};
use super::lines::{Held, lane};
use super::reply_path::ConduitReplyPath;
use super::send::LONG_CLASS;
use super::transport::{Gasnet, Ready};
use crate::nic::rma::{Command, Event, Notify};
use crate::nic::velo::Message;
use am_core::transport::{Arrival, Sink};
use am_core::{Lane, LossCause, Payload, Peer, PeerStatus, Span};

/// What a packet brings.
enum Sorted {
    /// Nothing for the sink.
    Nothing,
    /// A frame whose bytes are the packet's.
    Whole(u32, Header),
    /// A frame of several packets, and how many slots it took.
    Complete(u32, Header, Vec<u8>, u32),
    /// A Long message whose data is there.
    Joined(u32, FrameHeader),
}

impl Gasnet<'_> {
    /// Takes what has arrived to the sink, at most `budget` messages.
    pub(super) fn serve<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        if self.shared.costs.lock != Span::ZERO {
            self.nic.charge(self.shared.costs.lock);
        }
        let mut done = self.deliver_ready(budget, sink);
        // Messages of credits and pieces of frames do not count, but a ring does not hold more than these at once.
        let mut left = self.shared.rooms.segments as usize * 1024;
        if done < budget {
            let mut message = Message::NONE;
            let mut there = self.velo.probe_into(&mut message);
            while there {
                left -= 1;
                done += usize::from(self.deliver_packet(&message, sink));
                // What came since the look is for the next poll.
                there = done < budget && left != 0 && self.velo.take_seen_into(&mut message);
            }
        }
        if done < budget && self.natives.are_under_way() {
            self.look_at_natives();
            done += self.deliver_ready(budget - done, sink);
        } else if done < budget && (self.implementation() == Implementation::First || self.open_joins != 0) {
            self.take_notifications();
            done += self.deliver_ready(budget - done, sink);
        }
        while done < budget && self.tell_completed(sink) {
            done += 1;
        }
        done
    }

    /// Takes to the sink what payloads have made ready, at most `budget` messages.
    fn deliver_ready<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let mut done = 0;
        while done < budget {
            match self.ready.front() {
                None => break,
                Some(Ready::Long(..)) => {
                    let Some(Ready::Long(from, heading)) = self.ready.pop_front() else { break };
                    self.deliver_long(from, &heading, sink);
                    done += 1;
                }
                Some(&Ready::Line(from, lane)) => match self.next_of_line(from, lane) {
                    Some(held) => {
                        self.deliver_held(from, held, sink);
                        done += 1;
                    }
                    None => drop(self.ready.pop_front()),
                },
            }
        }
        done
    }

    fn next_of_line(&mut self, from: u32, lane: Lane) -> Option<Held> {
        let held = self.peers.of(from).joins.as_mut()?.lines.pop(lane)?;
        self.held -= 1;
        Some(held)
    }

    fn deliver_held<S: Sink>(&mut self, from: u32, held: Held, sink: &mut S) {
        let Held { heading, bytes, .. } = held;
        if heading.header.kind.is_long() {
            return self.deliver_long(from, &heading, sink);
        }
        self.hand_over(from, &heading, Payload::own(&bytes[heading.header.lead()..]), sink);
        self.buffers.spare.give(bytes);
    }

    /// Whether a message has to wait behind others of its source.
    #[inline]
    fn has_to_wait(&self, from: u32, header: &Header) -> bool {
        let lines = |joins: &Joins| joins.lines.wait(lane(header.kind));
        self.held != 0 && self.peers.known().get(from).and_then(|peer| peer.joins.as_deref()).is_some_and(lines)
    }

    /// Puts a message into its line.
    fn hold(&mut self, from: u32, held: Held) {
        // Who sends within its credits has no more slots here than that.
        let rooms = self.shared.rooms;
        let most = rooms.requests + rooms.answers + rooms.control;
        let lines = &mut self.peers.of(from).joins.get_or_insert_default().lines;
        if lines.slots() + held.heading.slots > most {
            return self.lose(from);
        }
        lines.push(held);
        self.held += 1;
    }

    /// Puts a whole frame into its line.
    fn hold_frame(&mut self, from: u32, header: Header, bytes: Vec<u8>, slots: u32) -> Sorted {
        let (_, args) = read_lead(&header, &bytes);
        let heading = FrameHeader { header, place: LongTarget::default(), args, slots };
        self.hold(from, Held { heading, bytes, complete: true });
        Sorted::Nothing
    }

    fn deliver_packet<S: Sink>(&mut self, message: &Message, sink: &mut S) -> bool {
        match self.sort(message) {
            Sorted::Nothing => return false,
            Sorted::Whole(from, header) => {
                let bytes = message.data();
                self.deliver(from, &header, bytes, slots_of_packet(bytes.len()), sink);
            }
            Sorted::Complete(from, header, bytes, slots) => {
                self.deliver(from, &header, &bytes, slots, sink);
                self.buffers.spare.give(bytes);
            }
            Sorted::Joined(from, heading) => self.deliver_long(from, &heading, sink),
        }
        true
    }

    /// Notes that a peer broke the protocol.
    #[cold]
    fn lose(&mut self, of: u32) {
        if self.presence.faulty.insert(Peer(of), LossCause::Faulty) {
            let peer = self.peers.of(of);
            peer.partial = None;
            self.held -= peer.joins.as_mut().map_or(0, |joins| joins.lines.clear());
            self.presence.fresh = true;
        }
    }

    /// Finds out what a packet is, and keeps what is not complete.
    fn sort(&mut self, message: &Message) -> Sorted {
        let Some(from) = self.nic.rank_at(message.from) else { return Sorted::Nothing };
        let packet = message.data();
        let costs = self.shared.costs;
        let first = self.implementation() == Implementation::First;
        if self.presence.faulty.contains(Peer(from)) {
            return Sorted::Nothing;
        }
        let peer = self.peers.of(from);
        let assembled = peer.partial.is_some();
        let sorted = if message.error {
            Err(super::assembly::Malformed)
        } else {
            step(&mut peer.partial, &mut self.buffers, message.mtt, packet, slots_of_packet(packet.len()))
        };
        if first {
            self.nic.charge(costs.assembling(packet.len()));
            self.nic.charge(costs.register);
        } else if assembled || matches!(sorted, Ok(Step::More)) {
            self.nic.charge(costs.assembling(packet.len()));
        }
        match sorted {
            Ok(Step::More) => Sorted::Nothing,
            Ok(Step::Whole(header)) if header.kind == Kind::Credit => {
                self.collect(from, &header);
                self.presence.fresh = true;
                Sorted::Nothing
            }
            Ok(Step::Whole(header)) if header.kind.is_long() => {
                self.sort_long(from, header, packet, slots_of_packet(packet.len()))
            }
            Ok(Step::Whole(header)) if self.has_to_wait(from, &header) => {
                if !first {
                    // The first implementation has copied and paid for every packet above.
                    self.nic.charge(costs.assembling(packet.len()));
                }
                let mut bytes = self.buffers.spare.take(0);
                bytes.extend_from_slice(packet);
                self.hold_frame(from, header, bytes, slots_of_packet(packet.len()))
            }
            Ok(Step::Whole(header)) => Sorted::Whole(from, header),
            Ok(Step::Complete(header, bytes, slots)) if header.kind.is_long() => {
                let sorted = self.sort_long(from, header, &bytes, slots);
                self.buffers.spare.give(bytes);
                sorted
            }
            Ok(Step::Complete(header, bytes, slots)) if self.has_to_wait(from, &header) => {
                self.hold_frame(from, header, bytes, slots)
            }
            Ok(Step::Complete(header, bytes, slots)) => Sorted::Complete(from, header, bytes, slots),
            Err(_) => {
                self.lose(from);
                Sorted::Nothing
            }
        }
    }

    fn sort_long(&mut self, from: u32, header: Header, bytes: &[u8], slots: u32) -> Sorted {
        let (place, args) = read_lead(&header, bytes);
        let LongTarget { offset, len } = place;
        if offset.checked_add(len).is_none_or(|end| end > self.segment_size()) {
            self.lose(from);
            return Sorted::Nothing;
        }
        let heading = FrameHeader { header, place, args, slots };
        let complete = if len == 0 {
            true
        } else {
            let window = self.join_window();
            match self.peers.of(from).joins.get_or_insert_default().head(heading, window) {
                Ok(joined) => joined.is_some(),
                Err(_) => {
                    self.lose(from);
                    return Sorted::Nothing;
                }
            }
        };
        self.open_joins += usize::from(!complete);
        if self.shared.config.ordered && (!complete || self.has_to_wait(from, &header)) {
            self.hold(from, Held { heading, bytes: Vec::new(), complete });
            return Sorted::Nothing;
        }
        if complete { Sorted::Joined(from, heading) } else { Sorted::Nothing }
    }

    /// Long messages of a pair that can be outstanding: each takes a slot at least.
    fn join_window(&self) -> usize {
        (self.shared.rooms.requests + self.shared.rooms.answers) as usize
    }

    /// Takes notifications: own puts give their bounce buffers back, and the puts of others complete Long
    /// messages, which then are ready to be delivered. Returns how many it took.
    pub(super) fn take_notifications(&mut self) -> usize {
        // What stood in the queue is looked at as a whole: nobody tells of the rest again.
        let most = self.nic.parameters().rma.notifications as usize;
        for taken in 0..most {
            let Ok(notification) = self.rma.noti_probe() else { return taken };
            let event = *notification;
            self.rma.noti_free(notification).expect("the port is open");
            self.notified(&event);
        }
        self.presence.fresh = true;
        most
    }

    fn notified(&mut self, event: &Event) {
        if event.command == Command::Put
            && event.kind == Notify::REQUESTER
            && let Some(bounce) = &mut self.bounce
            // Others than the conduit may post commands too; theirs are not from the bounce buffers.
            && let Ok(at) = u32::try_from(event.value.wrapping_sub(bounce.base.0))
        {
            bounce.allocator.give(at);
        }
        let Some(from) = self.nic.rank_at(event.partner) else { return };
        let joined = match event.command {
            Command::Put if event.kind == Notify::COMPLETER => {
                let base = self.segment_of(self.presence.me).expect("a rank has registered its own segment");
                let placed = Placed { at: event.value.wrapping_sub(base.0), len: event.size.into() };
                let (window, peer) = (self.join_window(), self.peers.of(from));
                peer.joins.get_or_insert_default().place(placed, window)
            }
            Command::Notification if event.class == LONG_CLASS => {
                let (window, peer) = (self.join_window(), self.peers.of(from));
                peer.joins.get_or_insert_default().notified(event.value, window)
            }
            _ => return self.native_notified(event),
        };
        match joined {
            _ if event.error => self.lose(from),
            Ok(None) => {}
            Ok(Some(heading)) => {
                self.open_joins -= 1;
                self.presence.fresh = true;
                let peer = self.peers.of(from);
                if !self.shared.config.ordered {
                    self.ready.push_back(Ready::Long(from, heading));
                } else if !self.presence.faulty.contains(Peer(from))
                    && let Some(joins) = &mut peer.joins
                    && joins.lines.complete(&heading)
                {
                    self.ready.push_back(Ready::Line(from, lane(heading.header.kind)));
                }
            }
            Err(_) => self.lose(from),
        }
    }

    /// Takes in the credits that a frame brings.
    fn collect(&mut self, from: u32, header: &Header) {
        let peer = self.peers.of(from);
        let answers = u32::from(header.freed) + u32::from(if is_reply(header) { header.reserve } else { 0 });
        let control = if header.kind == Kind::Credit { header.length.into() } else { 0 };
        let returned = [
            peer.requests.give_back(header.handled.into()).is_ok(),
            peer.answers.give_back(answers).is_ok(),
            peer.control.give_back(control).is_ok(),
        ];
        if returned[0] {
            self.unhandled -= u64::from(header.handled);
        }
        if returned.contains(&false) {
            // It claims to have handled or answered more than it was sent.
            self.lose(from);
        }
    }

    fn deliver<S: Sink>(&mut self, from: u32, header: &Header, bytes: &[u8], slots: u32, sink: &mut S) {
        let (_, args) = read_lead(header, bytes);
        let lead = header.lead();
        debug_assert!(
            lead >= HEADER && bytes.len() == lead + header.payload(),
            "the assembly has the whole frame"
        );
        let heading = FrameHeader { header: *header, place: LongTarget::default(), args, slots };
        self.hand_over(from, &heading, Payload::own(&bytes[lead..]), sink);
    }

    fn deliver_long<S: Sink>(&mut self, from: u32, heading: &FrameHeader, sink: &mut S) {
        let segment = self.segment.clone();
        let LongTarget { offset, len } = heading.place;
        let payload = segment.view(offset, len as usize).expect("the place was checked when the header came");
        self.hand_over(from, heading, payload, sink);
    }

    fn hand_over<S: Sink>(&mut self, from: u32, heading: &FrameHeader, payload: Payload<'_>, sink: &mut S) {
        let FrameHeader { header, ref args, slots, .. } = *heading;
        self.collect(from, &header);
        self.nic.charge(self.shared.costs.dispatch);
        let arrival = |category| Arrival::new(Peer(from), category, header.handler, args, payload);
        match header.kind {
            Kind::Request(category) | Kind::OneWay(category) => {
                let replies = matches!(header.kind, Kind::Request(_));
                let mut path = ConduitReplyPath::of_request(self, from, header.reserve, replies, slots);
                sink.request(arrival(category), &mut path);
            }
            Kind::Reply(category) => sink.reply(arrival(category)),
            Kind::Control | Kind::Credit => {
                let small = slots <= self.shared.rooms.control_frame;
                let (handled, controlled) = if small { (0, slots) } else { (slots, 0) };
                if self.settle_own(from, handled, header.reserve.into(), controlled) {
                    // Nothing has to travel.
                } else if small {
                    self.owe_control(from, slots);
                } else {
                    self.owe(from, slots, header.reserve.into());
                }
                sink.control(Peer(from), args, payload);
            }
        }
    }

    /// Whether replies of peers that are there wait for the data of Long ones.
    pub(super) fn replies_wait(&self) -> bool {
        self.open_joins != 0
            && self.peers.known().iter().any(|(peer, state)| {
                let waits = state.joins.as_ref().is_some_and(|joins| joins.waits(is_reply));
                waits && self.known_status(peer) == PeerStatus::Active
            })
    }
}

fn is_reply(header: &Header) -> bool {
    matches!(header.kind, Kind::Reply(_))
}
