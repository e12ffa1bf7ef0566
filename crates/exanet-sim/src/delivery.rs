//! What both users of the packetizer do: put the packets of a source into order, send again what full mailboxes
//! refused, and tell peers that are lost although their processes go on.

use crate::nic::{Nack, Nic, PacketError};
use am_core::{Instant, Span};

/// The packet that tells a peer that it is lost, too short for any other.
pub(crate) const LOSS_NOTICE: [u8; 1] = [0];
/// How often a lost peer is told unless it can be reached, each time as long as the interface tries.
const TRIES: u32 = 16;
/// How many times as long as the first a wait for a full mailbox may be.
const LONGEST_WAITS: u64 = 64;

/// The packets of one source, which overtake each other, in the order of their turns.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    next: u16,
    /// Packets that came before their turn, or have not been looked at.
    early: Vec<(u16, T)>,
}

/// A turn that is over, known already, or further ahead than its sender may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfPlace;

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { next: 0, early: Vec::new() }
    }
}

impl<T> Turns<T> {
    #[cfg(test)]
    pub(crate) fn from(next: u16) -> Self {
        Self { next, early: Vec::new() }
    }

    /// Takes a packet in. Its sender has no more than `most` under way.
    pub(crate) fn put(&mut self, turn: u16, packet: T, most: usize) -> Result<(), OutOfPlace> {
        let ahead = usize::from(turn.wrapping_sub(self.next));
        if ahead >= most || self.early.iter().any(|(known, _)| *known == turn) {
            return Err(OutOfPlace);
        }
        self.early.push((turn, packet));
        Ok(())
    }

    /// The packet whose turn it is, if it has come.
    pub(crate) fn next(&mut self) -> Option<T> {
        let index = self.early.iter().position(|(turn, _)| *turn == self.next)?;
        self.next = self.next.wrapping_add(1);
        Some(self.early.swap_remove(index).1)
    }

    /// Number of packets that wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.early.len()
    }

    /// Forgets the packets that wait.
    pub(crate) fn clear(&mut self) {
        self.early.clear();
    }
}

/// When packets that full mailboxes refused are sent again: after a wait that doubles as long as they stay full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusals {
    first: Span,
    retry: Option<(Instant, Span)>,
}

impl Refusals {
    /// With the first wait.
    pub(crate) const fn new(first: Span) -> Self {
        Self { first, retry: None }
    }

    /// Sends refused packets again, if their time has come; gives up those that nobody takes any more, and tells
    /// whose they were. Whether it did anything.
    pub(crate) fn serve(&mut self, nic: &Nic<'_>, refused: u64, mut given_up: impl FnMut(u32, Nack)) -> bool {
        if refused == 0 {
            self.retry = None;
            return false;
        }
        let now = nic.now();
        let (at, wait) = self.retry.unwrap_or((now + self.first, self.first));
        self.retry = Some((at, wait));
        let due = now >= at;
        let mut done = due;
        for channel in (0..u64::BITS).filter(|channel| refused & 1 << channel != 0) {
            let Some((to, nack)) = nic.pkt_refused(channel) else { continue };
            if nack != Nack::MailboxFull {
                done |= nic.pkt_cancel(channel).is_ok();
                given_up(to, nack);
            } else if due {
                // Without room, the interface wakes this rank when there is some.
                let _ = nic.pkt_retry(channel);
            }
        }
        if due {
            let wait = Span((2 * wait.0).min(LONGEST_WAITS * self.first.0));
            self.retry = Some((now + wait, wait));
        }
        done
    }

    /// The longest to idle, since something may have to be sent again.
    pub(crate) fn until(&self, until: Option<Instant>) -> Option<Instant> {
        until.into_iter().chain(self.retry.map(|(at, _)| at)).min()
    }
}

/// A peer that is to be told that it is lost.
#[derive(Clone, Copy, Debug)]
struct Untold {
    peer: u32,
    tries: u32,
    /// Whether a packet is under way.
    sent: bool,
}

/// Peers that could not be reached, and cannot find out themselves that they are lost for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossNotices(Vec<Untold>);

impl LossNotices {
    /// A peer is to be told.
    pub(crate) fn add(&mut self, peer: u32) {
        self.0.push(Untold { peer, tries: 0, sent: false });
    }

    /// A packet to a peer was refused for good.
    pub(crate) fn refused(&mut self, peer: u32, nack: Nack) {
        for untold in self.0.iter_mut().filter(|untold| untold.peer == peer && untold.sent) {
            (untold.sent, untold.tries) = (false, untold.tries + 1);
        }
        // One that has no open context has left.
        self.0.retain(|untold| untold.tries < TRIES && (untold.peer != peer || nack == Nack::Unreachable));
    }

    /// Tells the peers, as far as channels are free.
    pub(crate) fn send(&mut self, nic: &Nic<'_>) {
        for untold in self.0.iter_mut().filter(|untold| !untold.sent) {
            let Some(address) = nic.address(untold.peer) else { continue };
            match nic.pkt_send(address, &LOSS_NOTICE) {
                Ok(_) => untold.sent = true,
                // The interface wakes this rank when there is room.
                Err(PacketError::Full { .. }) => return,
                Err(_) => {}
            }
        }
    }
}
