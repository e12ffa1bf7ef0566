//! Flow control of a ring connection as a state machine without a clock: tokens, one for every slot at the peer.
//!
//! Whoever sends a slot spends a token. The receiver owes it once it has consumed the slot, and gives back what it
//! owes in the tail of whatever it sends next, or in an empty message once enough is owed. An empty message needs
//! a slot itself, so the last token is kept for it: sending is allowed with two tokens, or with one if that brings
//! tokens to the peer.
//!
//! For each direction, at every moment: tokens held + slots and returns under way + slots waiting at the
//! receiver + tokens owed = number of slots. Because slots come back in the order in which they went, the sender
//! also knows which of its send buffers are free again. Source: pscom's EXTOLL plugin, sheet `extoll.md`.
//!
//! ```
//! use extoll_sim::conduit::pscom::{TokenRules, Tokens};
//!
//! let rules = TokenRules::new(16, 16);
//! let (mut here, mut there) = (Tokens::new(rules), Tokens::new(rules));
//! let mut sent = 0;
//! while here.may_send(true) {
//!     let given_back = here.send(true);
//!     there.arrive(given_back).unwrap();
//!     there.consume(true);
//!     sent += 1;
//! }
//! assert_eq!(sent, 15, "the last token is kept");
//! assert!(there.must_return());
//! here.arrive(there.send(false)).unwrap();
//! here.consume(false);
//! assert!(here.may_send(true));
//! ```

use std::collections::VecDeque;
use thiserror::Error;

/// The rules of a connection, equal on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenRules {
    /// Slots at the receiver, which is the number of tokens.
    pub receive_buffers: u16,
    /// Buffers at the sender: slots with payload that may be unreturned at once.
    pub send_buffers: u16,
    /// Tokens owed from which on they are returned in an empty message.
    pub return_at: u16,
    /// Tokens owed for slots with payload from which on they are returned; smaller than `return_at` where the
    /// sender has too few send buffers to get there.
    pub return_payload_at: u16,
    /// Whether the last token is kept for returning tokens. Without that rule two ranks can block each other for
    /// ever.
    pub keep_one: bool,
}

impl TokenRules {
    /// The fewest slots: with two, an empty message could only ever be answered by another one.
    pub const FEWEST: u16 = 3;

    /// The rules for these numbers of buffers. Tokens are returned when as many are owed as the plugin suggests:
    /// 10 for 16 slots and all but six for more, about half for fewer.
    pub const fn new(receive_buffers: u16, send_buffers: u16) -> Self {
        let return_at = pending_tokens(receive_buffers);
        // Few send buffers come back one by one, or the sender would wait for a batch that it cannot fill.
        let return_payload_at = match send_buffers {
            0..=5 if send_buffers < receive_buffers => 1,
            _ => pending_tokens(if send_buffers < receive_buffers { send_buffers } else { receive_buffers }),
        };
        Self { receive_buffers, send_buffers, return_at, return_payload_at, keep_one: true }
    }
}

/// How many tokens a receiver lets gather before it returns them in an empty message. Source: pscom's EXTOLL
/// plugin.
const fn pending_tokens(buffers: u16) -> u16 {
    match buffers {
        0..=5 => 2,
        6 | 7 => 3,
        8 | 9 => 4,
        10 | 11 => 5,
        more => more - 6,
    }
}

/// One side's view of a connection's tokens, both directions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tokens {
    rules: TokenRules,
    held: u16,
    /// Slots that have arrived and not been consumed.
    waiting: u16,
    owed: u16,
    owed_for_payload: u16,
    /// For every slot that has not been returned, oldest first: whether it took a send buffer.
    sent: VecDeque<bool>,
    buffers_used: u16,
}

/// A peer gave back what it never had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{returned} tokens came back, but only {outstanding} of {of} were out")]
pub struct TokenError {
    /// Tokens that the peer claims to give back.
    pub returned: u16,
    /// Tokens that are not held here.
    pub outstanding: u16,
    /// Tokens in all.
    pub of: u16,
}

impl Tokens {
    /// A new connection: all tokens are held.
    pub fn new(rules: TokenRules) -> Self {
        Self {
            rules,
            held: rules.receive_buffers,
            waiting: 0,
            owed: 0,
            owed_for_payload: 0,
            sent: VecDeque::with_capacity(usize::from(rules.receive_buffers)),
            buffers_used: 0,
        }
    }

    /// Whether a slot may be sent now; one with payload also needs a send buffer.
    pub fn may_send(&self, payload: bool) -> bool {
        let token =
            // Rule 5 of the sheet: the last token goes only with tokens for the peer.
            if self.rules.keep_one { self.held >= 2 || (self.held == 1 && self.owed > 0) } else { self.held >= 1 };
        token && (!payload || self.buffers_used < self.rules.send_buffers)
    }

    /// Spends a token on a slot; returns how many tokens the slot takes along.
    ///
    /// # Panics
    /// If [`Tokens::may_send`] says no.
    pub fn send(&mut self, payload: bool) -> u16 {
        assert!(self.may_send(payload), "a slot is sent only when tokens allow it");
        self.held -= 1;
        self.sent.push_back(payload);
        self.buffers_used += u16::from(payload);
        self.owed_for_payload = 0;
        std::mem::take(&mut self.owed)
    }

    /// A slot has arrived with returned tokens; it is consumed later.
    ///
    /// # Errors
    /// [`TokenError`] if the peer returns more than was sent; nothing changes then.
    pub fn arrive(&mut self, returned: u16) -> Result<(), TokenError> {
        let (outstanding, of) = (self.sent.len() as u16, self.rules.receive_buffers);
        if returned > outstanding {
            return Err(TokenError { returned, outstanding, of });
        }
        for payload in self.sent.drain(..usize::from(returned)) {
            self.buffers_used -= u16::from(payload);
        }
        self.held += returned;
        self.waiting += 1;
        Ok(())
    }

    /// The oldest slot that waited has been consumed: its token is owed now.
    ///
    /// # Panics
    /// If none waited.
    pub fn consume(&mut self, payload: bool) {
        self.waiting = self.waiting.checked_sub(1).expect("only a slot that has arrived is consumed");
        self.owed += 1;
        self.owed_for_payload += u16::from(payload);
    }

    /// Whether so much is owed that it should go back in an empty message, once [`Tokens::may_send`] allows that.
    pub fn must_return(&self) -> bool {
        self.owed >= self.rules.return_at || self.owed_for_payload >= self.rules.return_payload_at
    }

    /// Send buffers that are not free.
    pub fn buffers_used(&self) -> u16 {
        self.buffers_used
    }

    /// Tokens held.
    pub fn held(&self) -> u16 {
        self.held
    }

    /// Slots that wait here for being consumed.
    pub fn waiting(&self) -> u16 {
        self.waiting
    }

    /// Tokens owed to the peer.
    pub fn owed(&self) -> u16 {
        self.owed
    }
}
