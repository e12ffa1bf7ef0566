//! Receives, and how they meet messages.

use super::{Action, Faulty, Machine, MpiError, Protocol, Status, Stream, note_value};
use crate::mpi::packet::{Control, Kind, Place};
use am_core::slab::Key;

/// Which messages a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) communicator: u16,
    pub(crate) source: Option<u32>,
    pub(crate) tag: Option<u32>,
}

impl Selector {
    pub(crate) fn takes(&self, stream: &Stream) -> bool {
        self.communicator == stream.communicator
            && self.source.is_none_or(|source| source == stream.peer)
            && self.tag.is_none_or(|tag| tag == stream.tag)
    }

    /// The row that it takes from, if there is only one.
    pub(super) fn stream(&self) -> Option<Stream> {
        Some(Stream { peer: self.source?, communicator: self.communicator, tag: self.tag? })
    }
}

/// How far a receive is.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// It has met no message. The number of the message that it is advertised for; whether it is to be cancelled.
    Posted {
        advert: Option<u32>,
        cancelled: bool,
    },
    /// Its message is being written.
    Arriving(Stream),
    /// Its message is being read.
    Reading {
        stream: Stream,
        send: Key,
        len: u64,
    },
    /// Its message is there, and its advertisement is to be forgotten first.
    Retiring(u32, Result<Status, MpiError>),
    Done(Result<Status, MpiError>),
}

/// A receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    pub(super) selector: Selector,
    pub(super) at: u64,
    pub(super) capacity: u64,
    pub(super) state: State,
    /// Where its message is written, once a sender may know.
    pub(super) place: Option<Place>,
    /// The length of its message, as its FIN and its notification tell.
    said: Option<u64>,
    noted: Option<u64>,
}

impl Receive {
    pub(super) fn done(&self) -> Option<Result<Status, MpiError>> {
        if let State::Done(done) = self.state { Some(done) } else { None }
    }
}

/// A message that nobody has asked for.
#[derive(Clone, Debug)]
pub(super) struct Unexpected {
    pub(super) stream: Stream,
    index: u32,
    pub(super) what: What,
}

/// What has come of a message.
#[derive(Clone, Debug)]
pub(super) enum What {
    Eager(Vec<u8>),
    Announced { send: Key, source: u64, len: u64 },
}

impl Machine {
    /// Posts a receive into `capacity` bytes at an address.
    pub(crate) fn receive(&mut self, selector: Selector, at: u64, capacity: u64) -> Key {
        let state = State::Posted { advert: None, cancelled: false };
        let receive = Receive { selector, at, capacity, state, place: None, said: None, noted: None };
        let key = self.receives.insert(receive);
        // Rule 7 of the sheet: the message that came first is met first.
        let found = self.unexpected.iter().position(|message| selector.takes(&message.stream));
        if let Some(index) = found {
            let Unexpected { stream, index, what } = self.unexpected.remove(index);
            self.meet(key, stream, index, what);
            return key;
        }
        if let Some(rank) = selector.source.filter(|source| self.lost.contains(source)) {
            self.end(key, Err(MpiError::Lost { rank }));
            return key;
        }
        self.posted.push(key);
        self.advertise(selector.communicator);
        key
    }

    /// The receive that a message meets: the first that takes it and is not advertised for another.
    fn find(&self, stream: &Stream, index: u32) -> Option<Key> {
        // Rule 7 of the sheet: the receive posted first is met first.
        self.posted.iter().copied().find(|key| {
            let receive = self.receives.get(*key).expect("what is posted is there");
            let other = matches!(receive.state, State::Posted { advert: Some(advert), .. } if advert != index);
            !other && receive.selector.takes(stream)
        })
    }

    /// A message is announced.
    pub(super) fn announced(&mut self, stream: Stream, index: u32, send: Key, place: Place) -> Result<(), Faulty> {
        if place.len >> super::LENGTH != 0 {
            return Err(Faulty);
        }
        self.came(stream, index, What::Announced { send, source: place.at, len: place.len })
    }

    /// A message has come, or its announcement.
    pub(super) fn came(&mut self, stream: Stream, index: u32, what: What) -> Result<(), Faulty> {
        if self.met.get(&stream).is_some_and(|met| met.has(index)) {
            // It has been written to a receive whose advertisement has crossed its announcement.
            return if matches!(what, What::Announced { .. }) { Ok(()) } else { Err(Faulty) };
        }
        match self.find(&stream, index) {
            Some(key) => {
                self.unpost(key);
                self.meet(key, stream, index, what);
                // All of it may have been noted while its number was not known.
                let receive = self.receives.get(key).expect("receives stay until they are done");
                if let Some(len) = receive.noted.or(receive.said) {
                    self.arrives(key, len)?;
                }
                self.advertise(stream.communicator);
            }
            None => {
                self.unexpected.push(Unexpected { stream, index, what });
                self.counts.most_unexpected = self.counts.most_unexpected.max(self.unexpected.len() as u64);
            }
        }
        Ok(())
    }

    /// A receive waits for a message no more.
    pub(super) fn unpost(&mut self, key: Key) {
        self.posted.retain(|posted| *posted != key);
    }

    /// A receive and its message have met.
    fn meet(&mut self, key: Key, stream: Stream, index: u32, what: What) {
        // Rule 8 of the sheet: an announcement that the advertisement has crossed finds this, and is dropped.
        self.met.entry(stream).or_default().add(index);
        let &Receive { capacity, at, state, .. } = self.receives.get(key).expect("the receive was just found");
        let advertised = matches!(state, State::Posted { advert: Some(_), .. });
        let len = match &what {
            What::Eager(bytes) => bytes.len() as u64,
            What::Announced { len, .. } => *len,
        };
        let Stream { peer: source, tag, .. } = stream;
        let fits = len <= capacity;
        let status = if fits {
            Ok(Status { source, tag, len })
        } else {
            Err(MpiError::Truncated { rank: source, tag, len, capacity })
        };
        match what {
            What::Eager(bytes) => {
                if fits {
                    self.actions.push_back(Action::Fill { at, bytes });
                }
                if advertised && self.config.protocol == Protocol::ReceiverInitiated {
                    self.set(key, State::Retiring(source, status));
                    let control = Control { receive: key, ..Self::about(&stream, index, Kind::Retire) };
                    self.packet(source, control, Vec::new());
                } else {
                    self.end(key, status);
                }
            }
            What::Announced { send, .. } if !fits => {
                let refusal = if self.config.protocol == Protocol::Read { Kind::Ack } else { Kind::Cts };
                let control = Control { flag: true, send, ..Control::new(refusal) };
                self.packet(source, control, Vec::new());
                self.end(key, status);
            }
            What::Announced { send, source: from, .. } if self.config.protocol == Protocol::Read => {
                self.counts.reads += 1;
                self.set(key, State::Reading { stream, send, len });
                self.actions.push_back(Action::Read { receive: key, from: source, source: from, at, len });
            }
            // The advertisement counts, and the sender writes when it comes.
            What::Announced { .. } if advertised => self.set(key, State::Arriving(stream)),
            What::Announced { send, .. } => {
                let place = self.place(key);
                self.set(key, State::Arriving(stream));
                let control = Control { send, receive: key, place, ..Control::new(Kind::Cts) };
                self.packet(source, control, Vec::new());
            }
        }
    }

    pub(super) fn set(&mut self, key: Key, state: State) {
        self.receives.get_mut(key).expect("receives stay until they are done").state = state;
    }

    /// Sets aside a word for the notification of a receive's message.
    pub(super) fn place(&mut self, key: Key) -> Place {
        let note = self.notes.pop().unwrap_or_else(|| {
            self.uses.push(0);
            self.uses.len() as u32 - 1
        });
        // What a word tells differs from what it told before.
        let turn = self.uses[note as usize] % 0xff_ffff + 1;
        self.uses[note as usize] = turn;
        let receive = self.receives.get_mut(key).expect("receives stay until they are done");
        let place = Place { at: receive.at, len: receive.capacity, note, turn };
        receive.place = Some(place);
        self.awaited.push(key);
        place
    }

    /// Ends a receive.
    pub(super) fn end(&mut self, key: Key, how: Result<Status, MpiError>) {
        let receive = self.receives.get_mut(key).expect("receives stay until they are done");
        receive.state = State::Done(how);
        if let Some(place) = receive.place.take() {
            self.notes.push(place.note);
            self.awaited.retain(|awaited| *awaited != key);
        }
    }

    /// The words that tell the ends of messages, and where these may be.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = (Key, Place)> + '_ {
        self.awaited.iter().filter_map(|key| Some((*key, self.receives.get(*key)?.place?)))
    }

    /// The length that a word tells, if it is for this use.
    pub(crate) fn noted_length(place: &Place, word: u64) -> Option<u64> {
        let len = word & ((1 << super::LENGTH) - 1);
        (word == note_value(place, len)).then_some(len)
    }

    /// A word tells that all of a message is there.
    pub(crate) fn noted(&mut self, key: Key, len: u64) -> Result<(), Faulty> {
        let receive = self.receives.get_mut(key).expect("only receives that are there are awaited");
        receive.noted = Some(len);
        self.arrives(key, len)
    }

    /// A FIN tells that a message is being written.
    pub(super) fn said_to_end(&mut self, from: u32, key: Key, len: u64) -> Result<(), Faulty> {
        let Some(receive) = self.receives.get_mut(key) else { return Ok(()) };
        let expected = match receive.state {
            State::Posted { advert: Some(_), .. } => receive.selector.source,
            State::Arriving(stream) => Some(stream.peer),
            _ => return Ok(()),
        };
        if expected != Some(from) {
            return Err(Faulty);
        }
        receive.said = Some(len);
        self.arrives(key, len)
    }

    fn arrives(&mut self, key: Key, len: u64) -> Result<(), Faulty> {
        let receive = *self.receives.get(key).expect("it was just found");
        let stream = match receive.state {
            State::Arriving(stream) => stream,
            State::Posted { advert: Some(index), .. } => {
                let stream = receive.selector.stream().expect("only receives without wildcards are advertised");
                if self.held.contains(&stream) {
                    return Ok(());
                }
                // It has met the message that it was advertised for.
                self.met.entry(stream).or_default().add(index);
                self.unpost(key);
                self.set(key, State::Arriving(stream));
                stream
            }
            _ => return Ok(()),
        };
        if len > receive.capacity || receive.said.zip(receive.noted).is_some_and(|(said, noted)| said != noted) {
            return Err(Faulty);
        }
        // Rule 10 of the sheet: a receive ends once its bytes are there.
        if receive.noted.is_some() && (self.elides() || receive.said.is_some()) {
            self.end(key, Ok(Status { source: stream.peer, tag: stream.tag, len }));
        }
        self.advertise(stream.communicator);
        Ok(())
    }

    /// Takes in what was noted of a row while a receive of it was being revoked.
    pub(super) fn settle(&mut self, stream: Stream) -> Result<(), Faulty> {
        for key in self.posted.clone() {
            let receive = self.receives.get(key).expect("what is posted is there");
            if let Some(len) = receive.noted.or(receive.said)
                && receive.selector.stream() == Some(stream)
            {
                self.arrives(key, len)?;
            }
        }
        Ok(())
    }

    /// The interface has read a message.
    pub(crate) fn read(&mut self, key: Key) {
        let Some(&Receive { state: State::Reading { stream, send, len }, .. }) = self.receives.get(key) else {
            return;
        };
        self.packet(stream.peer, Control { send, ..Control::new(Kind::Ack) }, Vec::new());
        self.end(key, Ok(Status { source: stream.peer, tag: stream.tag, len }));
    }
}

impl Unexpected {
    /// Whether all of the message is here.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.what, What::Eager(_))
    }
}

impl Machine {
    /// The bytes that a receive has room for.
    pub(crate) fn capacity(&self, key: Key) -> u64 {
        self.receives.get(key).map_or(0, |receive| receive.capacity)
    }

    /// Who a receive's notification is from, and whether it was not taken before.
    pub(crate) fn expects(&self, key: Key) -> (u32, bool) {
        let Some(receive) = self.receives.get(key) else { return (0, false) };
        let peer = match receive.state {
            State::Arriving(stream) => Some(stream.peer),
            _ => receive.selector.source,
        };
        (peer.unwrap_or_default(), receive.noted.is_none() && receive.done().is_none())
    }
}
