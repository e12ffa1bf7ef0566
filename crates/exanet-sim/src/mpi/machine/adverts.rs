//! Receives that are advertised, retired and revoked.

use super::receiving::{Receive, State};
use super::{Faulty, Machine, MpiError, Stream};
use crate::mpi::packet::{Control, Kind};
use am_core::slab::Key;
use std::collections::BTreeMap;

impl Machine {
    /// Advertises the receives of a communicator that may be and are not.
    pub(super) fn advertise(&mut self, communicator: u16) {
        if !self.config.protocol.advertises() {
            return;
        }
        let mut before = BTreeMap::<Stream, u32>::new();
        for at in 0..self.posted.len() {
            let key = self.posted[at];
            let &Receive { selector, capacity, state, .. } =
                self.receives.get(key).expect("what is posted is there");
            if selector.communicator != communicator {
                continue;
            }
            // What is posted behind a wildcard may have to leave its message to it.
            let Some(stream) = selector.stream() else { return };
            let place = before.entry(stream).or_default();
            let index = self.met(&stream).wrapping_add(*place);
            *place += 1;
            let fresh = matches!(state, State::Posted { advert: None, cancelled: false });
            if !fresh || capacity <= self.config.eager.into() || self.held.contains(&stream) {
                continue;
            }
            self.set(key, State::Posted { advert: Some(index), cancelled: false });
            let place = self.place(key);
            let control = Control { receive: key, place, ..Self::about(&stream, index, Kind::Rtr) };
            self.packet(stream.peer, control, Vec::new());
        }
    }

    /// Cancels a receive, unless it has met its message. One that is advertised, or that others that are
    /// advertised count on, has to be revoked first: its end tells how that went.
    pub(crate) fn cancel(&mut self, key: Key) {
        let Some(receive) = self.receives.get_mut(key) else { return };
        let State::Posted { advert, cancelled: cancelled @ false } = &mut receive.state else { return };
        *cancelled = true;
        let (advertised, selector) = (advert.is_some(), receive.selector);
        let later = selector.stream().is_some_and(|stream| {
            let behind = self.posted.iter().skip_while(|posted| **posted != key);
            behind.into_iter().any(|other| {
                let other = self.receives.get(*other).expect("what is posted is there");
                let advertised = matches!(other.state, State::Posted { advert: Some(_), .. });
                advertised && other.selector.stream() == Some(stream)
            })
        });
        match selector.stream() {
            // Rule 9 of the sheet: what a sender may be writing to is asked for first.
            Some(stream) if advertised || later => self.revoke_next(stream),
            _ => {
                self.forget(key);
                self.advertise(selector.communicator);
            }
        }
    }

    /// A receive is cancelled.
    fn forget(&mut self, key: Key) {
        self.unpost(key);
        self.end(key, Err(MpiError::Cancelled));
    }

    /// Asks the sender of a row to forget the first receive that is to be cancelled, one at a time.
    fn revoke_next(&mut self, stream: Stream) {
        if self.held.contains(&stream) {
            return;
        }
        let mut index = self.met(&stream);
        for key in &self.posted {
            let receive = self.receives.get(*key).expect("what is posted is there");
            if receive.selector.stream() != Some(stream) {
                continue;
            }
            if let State::Posted { advert, cancelled: true } = receive.state {
                let control = Self::about(&stream, advert.unwrap_or(index), Kind::Revoke);
                let control = Control { receive: *key, ..control };
                self.held.insert(stream);
                return self.packet(stream.peer, control, Vec::new());
            }
            index = index.wrapping_add(1);
        }
    }

    /// A receiver wants a receive to be forgotten: it is, unless its message was sent.
    pub(super) fn revoke(&mut self, stream: Stream, index: u32, receive: Key) {
        let next = self.sent.get(&stream).copied().unwrap_or_default();
        let in_time = index.wrapping_sub(next) as i32 >= 0;
        if in_time {
            // Rule 8 of the sheet: an eager message uses up the advertisement of its number.
            self.adverts.remove(&(stream, index));
            self.shift(stream, index);
        }
        let control = Control { flag: in_time, receive, ..Self::about(&stream, index, Kind::Revoked) };
        self.packet(stream.peer, control, Vec::new());
    }

    /// Advertisements behind a number in a row are for the messages before theirs.
    fn shift(&mut self, stream: Stream, after: u32) {
        let behind = |(name, _): &(&(Stream, u32), _)| name.0 == stream && name.1.wrapping_sub(after) as i32 > 0;
        let moved: Vec<u32> = self.adverts.iter().filter(behind).map(|(name, _)| name.1).collect();
        for index in moved {
            let advert = self.adverts.remove(&(stream, index)).expect("it was just seen");
            self.adverts.insert((stream, index.wrapping_sub(1)), advert);
        }
    }

    /// Whether a receive was forgotten.
    ///
    /// # Errors
    /// What was noted meanwhile makes no sense.
    pub(super) fn revoked(&mut self, stream: Stream, receive: Key, forgotten: bool) -> Result<(), Faulty> {
        if !self.held.remove(&stream) {
            return Ok(());
        }
        let waits =
            self.receives.get(receive).is_some_and(|receive| matches!(receive.state, State::Posted { .. }));
        if forgotten && waits {
            let at = self.posted.iter().position(|posted| *posted == receive);
            self.forget(receive);
            for key in self.posted.clone().into_iter().skip(at.unwrap_or_default()) {
                let other = self.receives.get_mut(key).expect("what is posted is there");
                if let State::Posted { advert: Some(advert), .. } = &mut other.state
                    && other.selector.stream() == Some(stream)
                {
                    *advert = advert.wrapping_sub(1);
                }
            }
        } else if let Some(receive) = self.receives.get_mut(receive)
            && let State::Posted { cancelled, .. } = &mut receive.state
        {
            // Its message is under way.
            *cancelled = false;
        }
        self.settle(stream)?;
        self.revoke_next(stream);
        self.advertise(stream.communicator);
        Ok(())
    }

    /// An eager message has met a receive that was advertised.
    pub(super) fn retire(&mut self, stream: Stream, index: u32, receive: Key) {
        self.adverts.remove(&(stream, index));
        let control = Control { receive, ..Control::new(Kind::Retired) };
        self.packet(stream.peer, control, Vec::new());
    }

    /// The advertisement of a receive that has met an eager message is forgotten.
    pub(super) fn retired(&mut self, from: u32, receive: Key) {
        if let Some(&Receive { state: State::Retiring(peer, how), .. }) = self.receives.get(receive)
            && peer == from
        {
            self.end(receive, how);
        }
    }
}
