//! What an endpoint keeps per peer, made when it first has to do with it: jobs may have many ranks.

use crate::frame::Credits;
use am_core::{Instant, PeerStatus};
use std::collections::VecDeque;

/// Messages between cores that may be under way to a peer besides all requests, so that no flood of these gets in
/// their way.
pub(crate) const CONTROLS: u32 = 4;

/// Something that waits until the wire takes it.
#[derive(Debug)]
pub(super) enum Queued {
    /// A composed frame, in memory of the conduit's own: what waits holds no buffer that others could use.
    Frame(Vec<u8>),
    /// A part of a Long payload, and the Long that it belongs to.
    Write { buffer: u32, len: usize, at: u64, long: usize },
}

/// What a peer is asked after an injected frame has failed of which nobody knows whose it was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probe {
    /// The frames with lower numbers were sent before the first question: with all of them there, none was lost.
    pub(super) number: Option<u32>,
    /// A question is under way.
    pub(super) asked: bool,
    /// When the next one may be.
    pub(super) next: Option<Instant>,
    /// Another injected frame has failed since: what is in order then is asked for once more.
    pub(super) again: bool,
    /// Since when frames are known to be missing.
    pub(super) missing: Option<Instant>,
}

/// Frames to one peer that are sent together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bundle {
    pub(super) buffer: u32,
    /// Bytes, with the place for its header.
    pub(super) len: usize,
    pub(super) frames: u32,
}

#[derive(Debug, Default)]
pub(super) struct PeerState {
    /// Requests, of any kind, that the peer has not handled; and replies of it that may still come.
    pub(super) unhandled: u32,
    pub(super) expected: u32,
    /// Messages between cores that the peer has not handled.
    pub(super) controls: u32,
    /// Requests and messages between cores of the peer that were taken, and replies to it that may still come, of
    /// which it has no credit yet: never more than its window, if it keeps to the protocol.
    pub(super) taken_requests: u32,
    pub(super) taken_replies: u32,
    pub(super) taken_controls: u32,
    /// Credits that the peer has a right to, and does not know of yet.
    pub(super) owed: Credits,
    /// Whether the peer is in the list of those that credits are owed to.
    pub(super) listed: bool,
    /// Numbers of the next frame to it and from it.
    pub(super) next_out: u32,
    pub(super) next_in: u32,
    /// Frames that came before others that were sent earlier, by their numbers.
    pub(super) held: Vec<(u32, Vec<u8>)>,
    /// Frames of it that wait for the program.
    pub(super) ready: u32,
    /// What waits until the wire takes it, and whether the peer is in the list of those for which something waits.
    pub(super) queue: VecDeque<Queued>,
    pub(super) waiting: bool,
    /// The program's turn in which something was last sent to it, frames that wait for the end of this turn, and
    /// whether the peer is in the list of those that have any.
    pub(super) sent_in: u64,
    pub(super) bundle: Option<Bundle>,
    pub(super) bundled: bool,
    /// Buffers that it has: of frames under way, of parts that wait or are under way; and Longs of which parts
    /// are.
    pub(super) frames: u32,
    pub(super) chunks: u32,
    pub(super) longs: u32,
    /// One-sided operations of the wire under way.
    pub(super) natives: u32,
    /// Whether frames were injected since it was last known that all had come.
    pub(super) injected: bool,
    /// Of a peer that is asked which frame is due there: what it has to say, and until when.
    pub(super) probe: Option<Probe>,
    /// How often it may still be told that it is lost here.
    pub(super) words: u8,
    /// How it has left, if it has said so.
    pub(super) left: Option<PeerStatus>,
    /// It was told that this endpoint leaves, and knows it.
    pub(super) told: bool,
    pub(super) heard: bool,
}

impl PeerState {
    /// Whether something of this endpoint is still on its way.
    pub(super) fn is_busy(&self) -> bool {
        self.frames != 0 || self.longs != 0 || self.natives != 0 || !self.queue.is_empty()
    }
}

/// States of peers: eight bytes for one that was never used.
#[derive(Debug)]
pub(super) struct Peers {
    states: Vec<Option<Box<PeerState>>>,
}

impl Peers {
    pub(super) fn new(peers: u32) -> Self {
        Self { states: (0..peers).map(|_| None).collect() }
    }

    pub(super) fn len(&self) -> u32 {
        self.states.len() as u32
    }

    #[inline]
    pub(super) fn of(&mut self, peer: u32) -> &mut PeerState {
        self.states[peer as usize].get_or_insert_default()
    }

    #[inline]
    pub(super) fn known(&self, peer: u32) -> Option<&PeerState> {
        self.states.get(peer as usize)?.as_deref()
    }

    /// The peers that were used, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &PeerState)> {
        (0..).zip(&self.states).filter_map(|(peer, state)| Some((peer, state.as_deref()?)))
    }
}
