//! Lost peers.

use super::receiving::State;
use super::{Machine, MpiError};

impl Machine {
    pub(crate) fn is_lost(&self, peer: u32) -> bool {
        self.lost.contains(&peer)
    }

    /// Ends what is under way with a peer, now and from now on. Eager messages of it that have come can still be
    /// received.
    pub(crate) fn lose(&mut self, peer: u32) {
        if !self.lost.insert(peer) {
            return;
        }
        let lost = MpiError::Lost { rank: peer };
        let of_peer = |done: bool, other: u32| !done && other == peer;
        let sends: Vec<_> =
            self.sends.iter().map(|(key, send)| (key, send.done.is_some(), send.stream.peer)).collect();
        for (key, ..) in sends.into_iter().filter(|(_, done, other)| of_peer(*done, *other)) {
            self.sends.get_mut(key).expect("it was just seen").done = Some(Err(lost));
        }
        let receives = self.receives.iter().map(|(key, receive)| {
            let other = match receive.state {
                State::Posted { .. } => receive.selector.source,
                State::Arriving(stream) | State::Reading { stream, .. } => Some(stream.peer),
                State::Retiring(peer, _) => Some(peer),
                State::Done(_) => None,
            };
            (key, other)
        });
        let receives: Vec<_> = receives.filter(|(_, other)| *other == Some(peer)).map(|(key, _)| key).collect();
        for key in receives {
            self.unpost(key);
            self.end(key, Err(lost));
        }
        self.unexpected.retain(|message| message.stream.peer != peer || message.is_whole());
        self.adverts.retain(|(stream, _), _| stream.peer != peer);
        self.announced.retain(|(stream, _), _| stream.peer != peer);
        self.held.retain(|stream| stream.peer != peer);
    }
}
