//! What came for teams that this member has not made yet.

use super::context::{ANNOUNCEMENTS, NOTICES};
use super::{Head, out_of_bounds};
use crate::collectives::error::{Call, FailureWords};
use crate::collectives::tuning::Tuning;
use am_core::{Address, HandlerResult};

/// Teams that a member may learn of from another before it has made them; they are made one after the other.
const STRAY_TEAMS: usize = 16;

#[derive(Debug)]
pub(super) enum StrayKind {
    Message { head: Head, extent: (u64, u64), call: Option<Call>, bytes: Vec<u8> },
    Ready(Head, Option<Call>),
    Failed(u32, FailureWords),
    Notice([u32; 8]),
}

impl StrayKind {
    pub(super) fn context(&self) -> u32 {
        match self {
            Self::Message { head, .. } | Self::Ready(head, _) => head[0],
            Self::Failed(context, _) => *context,
            Self::Notice([context, ..]) => *context,
        }
    }
}

/// What one rank sent to one team.
#[derive(Debug)]
struct Stray {
    from: Address,
    number: u32,
    /// Messages that are there as a whole, and bytes of all.
    messages: usize,
    bytes: usize,
    kept: Vec<StrayKind>,
}

/// What came for teams that this member has not made yet. Each rank has a window with each of 16 teams.
#[derive(Debug, Default)]
pub(super) struct Strays {
    all: Vec<Stray>,
}

impl Strays {
    /// Keeps what a rank sent.
    ///
    /// # Errors
    /// If that is more than a member sends to another that has not come to an operation.
    pub(super) fn keep(&mut self, from: Address, kind: StrayKind, tuning: &Tuning) -> HandlerResult {
        let number = kind.context();
        let found = self.all.iter().position(|stray| (stray.from, stray.number) == (from, number));
        let at = match found {
            Some(at) => at,
            None => {
                if self.all.iter().filter(|stray| stray.from == from).count() >= STRAY_TEAMS {
                    return Err(out_of_bounds("a rank sends to more teams than there can be"));
                }
                self.all.push(Stray { from, number, messages: 0, bytes: 0, kept: Vec::new() });
                self.all.len() - 1
            }
        };
        let (stray, window) = (&mut self.all[at], tuning.window as usize);
        if let StrayKind::Message { extent: (offset, total), bytes, .. } = &kind {
            let whole = usize::from(offset.checked_add(bytes.len() as u64) == Some(*total));
            let (messages, bytes) = (stray.messages + whole, stray.bytes + bytes.len());
            if *total > tuning.eager as u64 || messages > window || bytes > window * tuning.eager {
                return Err(out_of_bounds("a rank sends more than its window to a team that is not there"));
            }
            (stray.messages, stray.bytes) = (messages, bytes);
        }
        // Pieces of a message have at least one byte.
        let pieces = window * tuning.eager.max(1);
        if stray.kept.len() > pieces + ANNOUNCEMENTS as usize + 2 * NOTICES {
            return Err(out_of_bounds("a rank announces more than it may to a team that is not there"));
        }
        stray.kept.push(kind);
        Ok(())
    }

    /// What came for a team.
    pub(super) fn take(&mut self, number: u32) -> Vec<(Address, StrayKind)> {
        let (mine, others) = std::mem::take(&mut self.all).into_iter().partition(|stray| stray.number == number);
        self.all = others;
        let mine: Vec<Stray> = mine;
        mine.into_iter().flat_map(|stray| stray.kept.into_iter().map(move |kind| (stray.from, kind))).collect()
    }

    /// Lets go what came for teams that are never made here.
    pub(super) fn forget(&mut self, below: u32) {
        self.all.retain(|stray| stray.number >= below);
    }

    /// Messages and their bytes.
    pub(super) fn waiting(&self) -> (usize, usize) {
        self.all.iter().fold((0, 0), |(messages, bytes), stray| (messages + stray.messages, bytes + stray.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a rank sends beyond its window neither waits nor counts.
    #[test]
    fn what_is_refused_waits_nowhere() {
        let (mut strays, tuning) = (Strays::default(), Tuning::default());
        let from = Address::from(am_core::Rank(1));
        let window = tuning.window as usize;
        let kept = (0..3 * window).filter(|_| {
            let message = StrayKind::Message { head: [7; 4], extent: (0, 100), call: None, bytes: vec![0; 100] };
            strays.keep(from, message, &tuning).is_ok()
        });
        assert_eq!(kept.count(), window);
        assert_eq!(strays.waiting(), (window, 100 * window));
        assert_eq!(strays.take(7).len(), window);
    }
}
