//! The model: what ranks, their inboxes, credits and counters do, in terms of plain values.

use am_core::loopback::LoopbackConfig;
use am_core::{Category, Resource};
use std::collections::VecDeque;

/// Bytes of every segment.
pub(crate) const SEGMENT: usize = 64;

/// What a request asks its handler to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// One-way: nothing can be replied.
    Note,
    Ignore,
    ReplyShort,
    ReplyMedium,
    ReplyLong,
    Detach,
    Panic,
}

pub(crate) const ACTIONS: [Action; 7] = [
    Action::Note,
    Action::Ignore,
    Action::ReplyShort,
    Action::ReplyMedium,
    Action::ReplyLong,
    Action::Detach,
    Action::Panic,
];

/// What a handler saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Request { from: usize, number: u32, bytes: Vec<u8>, at: Option<u64> },
    Reply { from: usize, number: u32, bytes: Vec<u8>, at: Option<u64> },
}

/// The bytes of a reply to a request.
pub(crate) fn reply_bytes(number: u32, len: usize) -> Vec<u8> {
    (0..len).map(|index| (number as usize * 7 + index * 3 + 1) as u8).collect()
}

/// Where a Long reply to a request goes.
pub(crate) fn reply_offset(number: u32) -> u64 {
    u64::from(number % 50)
}

pub(crate) const REPLY_LEN: usize = 9;

/// A frame under way in the model.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) from: usize,
    pub(crate) number: u32,
    /// `None` for a reply.
    pub(crate) action: Option<Action>,
    pub(crate) bytes: Vec<u8>,
    /// Where a Long payload lies, and its length.
    pub(crate) placed: Option<(usize, usize)>,
}

/// What one rank has in the model.
#[derive(Clone, Debug)]
pub(crate) struct Party {
    pub(crate) inbox: VecDeque<Frame>,
    pub(crate) segment: [u8; SEGMENT],
    pub(crate) events: Vec<Event>,
    /// Requester and number of detached requests, and of those dropped since the last complete poll.
    pub(crate) pending: Vec<(usize, u32)>,
    pub(crate) dropped: Vec<usize>,
    /// Per peer: requests not handled yet, and replies owed to this rank.
    pub(crate) under_way: Vec<usize>,
    pub(crate) owed: Vec<usize>,
    pub(crate) sent: [u64; 3],
    pub(crate) received: [u64; 3],
    pub(crate) replies_sent: u64,
    pub(crate) bare: u64,
    pub(crate) detached: u64,
}

pub(crate) struct Model {
    pub(crate) requests: usize,
    pub(crate) replies: usize,
    pub(crate) parties: Vec<Party>,
}

impl Model {
    pub(crate) fn new(ranks: usize, config: &LoopbackConfig) -> Self {
        let party = Party {
            inbox: VecDeque::new(),
            segment: [0; SEGMENT],
            events: Vec::new(),
            pending: Vec::new(),
            dropped: Vec::new(),
            under_way: vec![0; ranks],
            owed: vec![0; ranks],
            sent: [0; 3],
            received: [0; 3],
            replies_sent: 0,
            bare: 0,
            detached: 0,
        };
        Self { requests: config.requests, replies: config.replies, parties: vec![party; ranks] }
    }

    /// What a request is short of, if anything.
    pub(crate) fn refusal(&self, from: usize, to: usize, action: Action) -> Option<Resource> {
        let party = &self.parties[from];
        if party.under_way[to] >= self.requests {
            Some(Resource::RequestFrames)
        } else if action != Action::Note && party.owed[to] >= self.replies {
            Some(Resource::ReplyFrames)
        } else {
            None
        }
    }

    pub(crate) fn send(&mut self, from: usize, to: usize, category: Category, frame: Frame) {
        let party = &mut self.parties[from];
        party.under_way[to] += 1;
        party.owed[to] += usize::from(frame.action != Some(Action::Note));
        party.sent[category as usize] += 1;
        self.deliver(to, frame);
    }

    /// Places a Long payload and queues the frame.
    fn deliver(&mut self, to: usize, frame: Frame) {
        if let Some((at, len)) = frame.placed {
            self.parties[to].segment[at..at + len].copy_from_slice(&frame.bytes);
        }
        self.parties[to].inbox.push_back(frame);
    }

    fn give_back(&mut self, by: usize, to: usize) {
        self.parties[by].bare += 1;
        self.parties[to].owed[by] -= 1;
    }

    pub(crate) fn reply(&mut self, from: usize, to: usize, number: u32, category: Category) {
        let bytes = if category == Category::Short { Vec::new() } else { reply_bytes(number, REPLY_LEN) };
        let placed = (category == Category::Long).then(|| (reply_offset(number) as usize, REPLY_LEN));
        self.parties[from].replies_sent += 1;
        self.deliver(to, Frame { from, number, action: None, bytes, placed });
    }

    /// Handles one frame; returns whether its handler panics.
    fn handle(&mut self, me: usize, frame: Frame) -> bool {
        let Frame { from, number, action, bytes, placed } = frame;
        // A Long payload is seen as it is now, whoever wrote there last.
        let bytes = placed.map_or(bytes, |(at, len)| self.parties[me].segment[at..at + len].to_vec());
        let (category, at) = match placed {
            Some((at, _)) => (Category::Long, Some(at as u64)),
            None if bytes.is_empty() => (Category::Short, None),
            None => (Category::Medium, None),
        };
        let Some(action) = action else {
            self.parties[me].owed[from] -= 1;
            self.parties[me].events.push(Event::Reply { from, number, bytes, at });
            return false;
        };
        self.parties[from].under_way[me] -= 1;
        self.parties[me].events.push(Event::Request { from, number, bytes, at });
        // A handler that panics has not finished with its message.
        self.parties[me].received[category as usize] += u64::from(action != Action::Panic);
        match action {
            Action::Note => {}
            Action::Ignore | Action::Panic => self.give_back(me, from),
            Action::ReplyShort => self.reply(me, from, number, Category::Short),
            Action::ReplyMedium => self.reply(me, from, number, Category::Medium),
            Action::ReplyLong => self.reply(me, from, number, Category::Long),
            Action::Detach => {
                self.parties[me].pending.push((from, number));
                self.parties[me].detached += 1;
            }
        }
        action == Action::Panic
    }

    /// Returns how many frames a poll handles, or `None` if a handler panics.
    pub(crate) fn poll(&mut self, me: usize, budget: usize) -> Option<usize> {
        let mut handled = 0;
        while handled < budget {
            let Some(frame) = self.parties[me].inbox.pop_front() else {
                break;
            };
            if self.handle(me, frame) {
                return None;
            }
            handled += 1;
        }
        for to in std::mem::take(&mut self.parties[me].dropped) {
            self.give_back(me, to);
        }
        Some(handled)
    }
}
