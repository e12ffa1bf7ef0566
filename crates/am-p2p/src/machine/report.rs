//! What is under way, in words: reports of waits that time out tell it.

use super::chains::{ANY, Selector};
use super::receive::{Receive, Stage as Met};
use super::sending::{Mode, Send, Stage};
use super::{Machine, control::KIND};
use crate::error::AskedTag;
use crate::kind::ElementType;
use std::fmt;

/// Messages of each kind that a report names.
const NAMED: usize = 8;

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "with {} from ", AskedTag::of(self.tag))?;
        if self.source == ANY { f.write_str("any rank") } else { write!(f, "rank {}", self.source) }
    }
}

/// How far a message has come on its way out.
fn step(send: &Send) -> &'static str {
    match (send.stage, send.mode) {
        (Stage::Backlogged, _) => "for which there is no room among its unexpected messages",
        (Stage::Queued, _) => "which the network has not taken yet",
        (Stage::Offered, Mode::Standard) => {
            "which was announced (RTS) and has not met its receive, or is being read"
        }
        (Stage::Offered, Mode::Synchronous) => "a synchronous one, which has not met its receive",
        (Stage::Granted, _) => "which is being written where its receive is (CTS or RTR)",
        (Stage::Ending, _) => "which was written, and whose end is to be told (FIN)",
        (Stage::Done, _) => "which was sent",
    }
}

fn of_send(send: &Send) -> String {
    let (len, tag, to) = (send.len, AskedTag::of(send.envelope.tag), send.to);
    format!("the message of {len} bytes with {tag} to rank {to}, {}", step(send))
}

fn of_receive(receive: &Receive) -> String {
    let (selector, capacity) = (receive.selector, receive.capacity);
    let (tag, from, len) = (AskedTag::of(receive.tag), receive.from, receive.len);
    match receive.stage {
        Met::Posted => {
            let state = if receive.cancelling { "which is being revoked" } else { "which has not come" };
            let most = if capacity == u64::MAX { String::new() } else { format!(" of at most {capacity} bytes") };
            format!("a message {selector}{most}, {state}")
        }
        _ => {
            let here = receive.arrived();
            format!("the message of {len} bytes with {tag} from rank {from}, of which {here} have come")
        }
    }
}

/// Of a list, its first entries and how many others there are.
fn first<'a, V: 'a>(
    all: impl Iterator<Item = &'a V>,
    of: fn(&V) -> String,
    what: &str,
    clauses: &mut Vec<String>,
) {
    let (before, mut others) = (clauses.len(), 0);
    for one in all {
        if clauses.len() - before < NAMED { clauses.push(of(one)) } else { others += 1 }
    }
    if others != 0 {
        clauses.push(format!("{others} {what} more"));
    }
}

impl Machine {
    /// Messages and receives that are under way, each in words that name rank, tag and length. Allocates.
    pub(crate) fn under_way(&mut self) -> Vec<String> {
        // Those that have a quick way are named by the same table as others.
        self.post_direct();
        self.post_line();
        let mut clauses = Vec::new();
        let sends = self.sends.iter().map(|(_, send)| send).filter(|send| send.stage != Stage::Done);
        first(sends, of_send, "message(s) to others", &mut clauses);
        let open = |receive: &&Receive| !matches!(receive.stage, Met::Done | Met::Cancelled);
        let receives = self.receives.iter().map(|(_, receive)| receive).filter(open);
        first(receives, of_receive, "receive(s)", &mut clauses);
        clauses
    }

    /// Messages that nobody has asked for yet, in words. Allocates.
    pub(crate) fn unasked(&self) -> Option<String> {
        let mut held = Vec::new();
        let stored = self.stored.iter().map(|(_, waiting)| waiting);
        first(
            stored,
            |waiting| {
                let (len, tag, from) = (waiting.len, AskedTag::of(waiting.envelope.tag), waiting.from);
                let kind = ElementType::from_number(waiting.envelope.kind & KIND);
                format!("{len} bytes of {kind} with {tag} from rank {from}")
            },
            "message(s)",
            &mut held,
        );
        (!held.is_empty()).then(|| format!("messages that wait for their receives: {}", held.join(", ")))
    }
}
