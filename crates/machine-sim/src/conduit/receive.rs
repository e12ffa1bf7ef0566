//! Receiving: messages become frames, whose credits count at once, and go to the sink.

use super::frame::{Header, Malformed, arguments_len, read_arguments};
use super::reply_path::ConduitReplyPath;
use super::transport::Conduit;
use crate::nic::Message;
use am_core::transport::{Arrival, Sink};
use am_core::{LossCause, Payload, Peer, Words};
use fabric_sim::conduit::Kind;

impl Conduit<'_> {
    /// Takes what has arrived to the sink, at most `budget` messages.
    pub(super) fn serve<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let (mut done, mut found) = (0, false);
        while let Some(peer) = self.nic.unreachable() {
            self.presence.fresh |= self.presence.faulty.insert(Peer(peer), LossCause::Silent);
        }
        self.collect_natives();
        while done < budget && self.tell_completed(sink) {
            done += 1;
        }
        while done < budget {
            let Some(message) = self.nic.take() else { break };
            found = true;
            match self.deliver(&message, sink) {
                Ok(delivered) => done += usize::from(delivered),
                Err(Malformed) => {
                    self.presence.fresh |= self.presence.faulty.insert(Peer(message.from), LossCause::Faulty)
                }
            }
        }
        self.presence.fresh |= found;
        if done == 0 && !found {
            self.nic.charge_empty_poll();
        }
        done
    }

    /// Takes in the credits that a frame brings.
    fn collect(&mut self, from: u32, header: &Header) -> Result<(), Malformed> {
        let peer = self.peers.of(from);
        let (handled, freed) = (u32::from(header.handled), u32::from(header.freed));
        let controls = u32::from(header.controls);
        peer.controls = peer.controls.checked_sub(controls).ok_or(Malformed)?;
        peer.unhandled = peer.unhandled.checked_sub(handled).ok_or(Malformed)?;
        peer.expected = peer.expected.checked_sub(freed).ok_or(Malformed)?;
        self.unhandled -= u64::from(handled + controls);
        Ok(())
    }

    /// Delivers a frame; whether the sink got anything.
    fn deliver<S: Sink>(&mut self, message: &Message, sink: &mut S) -> Result<bool, Malformed> {
        let Message { from, immediate, ref data, .. } = *message;
        if self.presence.faulty.contains(Peer(from)) {
            return Ok(false);
        }
        let header = Header::read(immediate)?;
        self.collect(from, &header)?;
        let Header { kind, handler, args, offset, .. } = header;
        let words: Words = read_arguments(data, args)?;
        let bytes = &data[arguments_len(args.into())..];
        let segment = self.segment.clone();
        let payload = if kind.is_long() {
            segment.view(offset, bytes.len()).map_err(|_| Malformed)?
        } else {
            Payload::own(bytes)
        };
        if kind == Kind::Credit {
            return Ok(false);
        }
        self.nic.charge(self.shared.dispatch);
        let arrival = |category| Arrival::new(Peer(from), category, handler, &words, payload);
        match kind {
            Kind::Request(category) | Kind::OneWay(category) => {
                let allowed = matches!(kind, Kind::Request(_));
                let mut path = ConduitReplyPath::of_request(self, from, allowed);
                sink.request(arrival(category), &mut path);
            }
            Kind::Reply(category) => {
                let peer = self.peers.of(from);
                peer.expected = peer.expected.checked_sub(1).ok_or(Malformed)?;
                self.own_replies -= u32::from(from == self.presence.me);
                sink.reply(arrival(category));
            }
            Kind::Control => {
                let peer = self.peers.of(from);
                peer.controls_handled = peer.controls_handled.saturating_add(1);
                self.list(from);
                sink.control(Peer(from), &words, payload);
            }
            Kind::Credit => {}
        }
        Ok(true)
    }
}
