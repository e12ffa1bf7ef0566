//! What the program's thread and the helper thread take turns in driving: a machine and its socket.

use super::process::Process;
use super::stage::{Ring, Staged};
use super::wire::{LARGEST, Sent, Wire};
use crate::proto::{BorrowedPayload, Machine, Parts};
use crate::random::SplitMix64;
use am_core::{Instant, Peer, Span};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;

/// Pieces taken from the socket in one go, so that a peer cannot keep its receiver here.
const GO: usize = 64;
/// After a pause of this length all that waits is taken, not only up to the first message.
const PAUSE: Span = Span::from_micros(100);

/// After so many bytes taken in a row their senders hear of it: what a stream of large payloads has under way is
/// soon acknowledged, and sender and receiver work at the same time.
const HEARD: usize = 128 << 10;

/// Datagrams below this many bytes are not full.
const SMALL: usize = 512;

/// A machine and its socket.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) machine: Machine,
    pub(super) wire: Wire,
    /// A child of this process must not go on with what its parent does.
    pub(super) process: Process,
    /// What the program has handed over without the lock.
    pub(super) staged: Staged,
    addresses: Arc<[SocketAddr]>,
    me: Peer,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// How many datagrams out of 1000 are lost here on purpose, and what chooses them.
    loss: Option<(u32, SplitMix64)>,
    /// A row that the system had no room for: destination, bytes in `outgoing`, bytes of each datagram.
    blocked: Option<(Peer, usize, usize)>,
    /// The last visit to the socket brought something.
    flowing: bool,
    /// When the socket was last asked.
    asked: Instant,
    /// The latest time that the machine has been driven at.
    pub(super) latest: Instant,
    pub(super) deadline: Option<Instant>,
    /// How often something was taken in by the helper, or came from this endpoint itself.
    pub(super) news: u64,
    /// Whom the helper calls when it has taken something in.
    pub(super) watcher: Option<Waker>,
}

impl Engine {
    pub(super) fn new(machine: Machine, wire: Wire, addresses: Arc<[SocketAddr]>, process: Process) -> Self {
        let (me, limit) = (machine.config().me, usize::from(machine.config().datagram_limit));
        Self {
            machine,
            wire,
            process,
            staged: Staged::default(),
            addresses,
            me,
            incoming: vec![0; LARGEST],
            // One row, and one datagram that does not belong to it.
            outgoing: vec![0; LARGEST + 2 * limit],
            loss: None,
            blocked: None,
            flowing: false,
            asked: Instant(0),
            latest: Instant(0),
            deadline: None,
            news: 0,
            watcher: None,
        }
    }

    /// Hands messages to the machine that the program has staged.
    #[inline]
    pub(super) fn take_staged(&mut self, ring: &Ring) {
        if ring.has_more(&self.staged) && !self.process.is_other() {
            let Self { machine, staged, .. } = self;
            let owner = staged.owner;
            ring.take(staged, |messages| {
                if let Some((to, session)) = owner {
                    machine.append_staged(to, session, messages);
                }
            });
        }
    }

    /// From now on so many datagrams out of 1000 are lost instead of being sent.
    pub(super) fn lose(&mut self, permille: u32, seed: u64) {
        self.loss = Some((permille, SplitMix64(seed ^ u64::from(self.me.0))));
    }

    /// Whether a datagram is to be lost.
    #[inline]
    fn loses(&mut self) -> bool {
        self.loss.as_mut().is_some_and(|(permille, choice)| choice.chance(*permille))
    }

    /// Whether the last visit to the socket brought something.
    #[cfg(feature = "tokio")]
    pub(super) fn is_flowing(&self) -> bool {
        self.flowing
    }

    /// Whether there is something to send that the system had no room for.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Takes in what has arrived and acts on the passing of time. Returns whether anything has changed.
    ///
    /// When the program has been asking in vain, this stops at the first piece that brings a message: it had
    /// better be delivered, and answered, before the system is asked for more.
    ///
    /// `now` may be a little old; it is renewed when something has come. `early` is what the caller has taken from
    /// the socket itself.
    pub(super) fn take_in(&mut self, now: &mut Instant, clock: impl Fn() -> Instant, early: &mut [u8]) -> bool {
        if self.process.is_other() {
            return false;
        }
        let due = self.deadline.is_some_and(|at| at <= *now);
        let thorough = due || self.flowing || now.since(self.asked) > PAUSE;
        self.asked = *now;
        let mut changed = false;
        let (mut pieces, mut bytes, mut silent) = (0, 0, 0);
        let mut go = GO;
        if !early.is_empty() {
            (pieces, bytes, silent) = (1, early.len(), early.len());
            *now = clock();
            changed |= self.machine.handle_row(*now, early) > 0;
            if !thorough && self.machine.has_arrived() {
                go = 0;
            }
        }
        while pieces < go {
            match self.wire.receive(&mut self.incoming) {
                Ok(Some(len)) => {
                    (pieces, bytes, silent) = (pieces + 1, bytes + len, silent + len);
                    *now = clock();
                    changed |= self.machine.handle_row(*now, &mut self.incoming[..len]) > 0;
                    if !thorough && self.machine.has_arrived() {
                        break;
                    }
                    if silent >= HEARD {
                        silent = 0;
                        self.send_out(*now, None);
                    }
                }
                Ok(None) => break,
                // As if nothing had come.
                Err(_) => break,
            }
        }
        self.flowing = pieces > 0;
        if pieces > 0 {
            self.wire.visited(pieces, bytes);
        }
        if due {
            self.machine.tick(*now);
            changed = true;
        }
        self.latest = self.latest.max(*now);
        changed
    }

    /// Sends all that may leave at this moment, in rows where the system takes them.
    pub(super) fn send_out(&mut self, now: Instant, lent: Option<BorrowedPayload<'_>>) {
        if self.process.is_other() {
            return;
        }
        if let Some((to, filled, each)) = self.blocked.take()
            && !self.send(to, 0, filled, each)
        {
            return;
        }
        while let Some(Parts { to, len: each, tail }) = self.machine.transmit_parts(now, lent, &mut self.outgoing)
        {
            if let Some(lent) = lent.filter(|_| !tail.is_empty()) {
                let (head, tail) = (each - tail.len(), &lent.payload[tail]);
                if to != self.me
                    && (self.loses()
                        || self.wire.send_two(self.addresses[to.index()], &self.outgoing[..head], tail))
                {
                    continue;
                }
                self.outgoing[head..each].copy_from_slice(tail);
            }
            if to == self.me {
                // The way to oneself needs no system, nor does it end a sleep: who is about to begin one is told.
                self.machine.handle_row(now, &mut self.outgoing[..each]);
                self.news += u64::from(self.machine.has_arrived());
                continue;
            }
            if self.loses() {
                continue;
            }
            // A small one is all there was for this peer.
            let most = if each < SMALL { 1 } else { self.wire.row_of(each) };
            let (mut filled, mut count, mut other) = (each, 1, None);
            while count < most {
                match self.machine.transmit_more(now, to, lent, &mut self.outgoing[filled..]) {
                    Some(_) if self.loses() => {}
                    Some(len) if len <= each => {
                        filled += len;
                        count += 1;
                        if len < each {
                            break;
                        }
                    }
                    Some(len) => {
                        other = Some(len);
                        break;
                    }
                    None => break,
                }
            }
            let sent = self.send(to, 0, filled, each);
            // If the row did not leave, this counts as lost: only one row is kept.
            if let Some(len) = other.filter(|_| sent) {
                self.send(to, filled, len, len);
            }
            if self.is_blocked() {
                return;
            }
        }
        self.deadline = self.machine.deadline();
    }

    /// Sends a row; returns whether more may follow.
    fn send(&mut self, to: Peer, from: usize, len: usize, each: usize) -> bool {
        match self.wire.send(self.addresses[to.index()], &self.outgoing[from..from + len], each) {
            // The protocol takes what failed for lost.
            Sent::Gone | Sent::Failed => true,
            Sent::Blocked => {
                self.outgoing.copy_within(from..from + len, 0);
                self.blocked = Some((to, len, each));
                false
            }
        }
    }
}
