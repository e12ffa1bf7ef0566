//! What stands between the network and the ranks of a node: a device takes arriving packets at their time, without a rank's
//! help. [`Mailbox`] is the simplest; simulated interfaces bring their own.

use crate::machine::Core;
use am_core::{Instant, PeerStatus};
use std::collections::VecDeque;

/// A packet that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<B> {
    /// The rank that sent it.
    pub from: u32,
    /// The rank it is for.
    pub to: u32,
    /// Its length in bytes, without the header.
    pub bytes: u32,
    /// When it was sent.
    pub sent: Instant,
    /// Whether it was spoilt on the way, which only happens without link retry.
    pub corrupt: bool,
    /// What it carries.
    pub body: B,
}

/// The interface of one node: a state machine that the simulation calls when something happens.
pub trait Device: 'static {
    /// What packets carry. A doubled packet is a clone.
    type Body: Clone + 'static;

    /// Takes a packet for one of this node's ranks.
    fn arrive(&mut self, packet: Packet<Self::Body>, port: &mut Port<'_, Self::Body>);

    /// A timer has run out; see [`Port::timer`].
    fn timer(&mut self, token: u32, port: &mut Port<'_, Self::Body>) {
        let _ = (token, port);
    }
}

/// What a device can do to the world.
pub struct Port<'a, B> {
    pub(crate) core: &'a mut Core<B>,
    pub(crate) node: u32,
    pub(crate) now: u64,
}

impl<B> std::fmt::Debug for Port<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("node", &self.node).field("now", &self.now).finish_non_exhaustive()
    }
}

impl<B: Clone> Port<'_, B> {
    /// The node.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        Instant(self.now)
    }

    /// Lets a rank of this node go on, if it idles; otherwise its next idling ends at once.
    pub fn wake(&mut self, rank: u32) {
        self.core.wake(rank, self.now);
    }

    /// Sends a packet on behalf of a rank of this node, at no cost for its processor.
    ///
    /// # Panics
    /// If `to` is outside the job.
    pub fn send(&mut self, from: u32, to: u32, bytes: u32, body: B) {
        self.core.send(from, to, bytes, body, self.now);
    }

    /// Lets a rank of this node leave the job, as [`Context::depart`](crate::Context::depart) does: for ranks that have
    /// ended before their device has sent everything.
    pub fn depart(&mut self, rank: u32, status: PeerStatus) {
        self.core.depart(rank, status, self.now);
    }

    /// Calls the device's [`Device::timer`] at a time; one that has passed counts as now.
    pub fn timer(&mut self, at: Instant, token: u32) {
        self.core.timer(self.node, at.0.max(self.now), token);
    }
}

/// A device that keeps arrived packets for its ranks, in the order of arrival.
#[derive(Debug)]
pub struct Mailbox<B> {
    boxes: Vec<(u32, VecDeque<Packet<B>>)>,
}

impl<B> Mailbox<B> {
    /// The mailboxes of some ranks.
    pub fn new(ranks: &[u32]) -> Self {
        let mut boxes: Vec<_> = ranks.iter().map(|rank| (*rank, VecDeque::new())).collect();
        boxes.sort_by_key(|(rank, _)| *rank);
        Self { boxes }
    }

    /// The packets that wait for a rank of this node.
    ///
    /// # Panics
    /// If the rank is on another node.
    pub fn of(&mut self, rank: u32) -> &mut VecDeque<Packet<B>> {
        let found = self.boxes.binary_search_by_key(&rank, |(rank, _)| *rank);
        &mut self.boxes[found.expect("a mailbox is asked for its own ranks")].1
    }
}

impl<B: Clone + 'static> Device for Mailbox<B> {
    type Body = B;

    fn arrive(&mut self, packet: Packet<B>, port: &mut Port<'_, B>) {
        let to = packet.to;
        self.of(to).push_back(packet);
        port.wake(to);
    }
}
