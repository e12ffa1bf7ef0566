//! The accounts of a bank: one per peer, made when there is first something to write into it.

use super::config::LoanConfig;
use am_core::Peer;

/// One peer's loan. `loan - inside - owed - granted` is what the peer has or what travels between it and the
/// target. Sixty-four bytes, because a job of thousands of ranks may come to have one for every pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Loan {
    pub(super) loan: u32,
    pub(super) inside: u32,
    pub(super) owed: u32,
    pub(super) granted: u32,
    /// The epoch of the last ask.
    pub(super) asked_at: u32,
    /// Most credits of this peer seen in use at once in recent epochs, and credits lent to it; both decay.
    pub(super) recent: u32,
    pub(super) lent: u32,
    pub(super) decayed_at: u32,
    /// The epoch that the peer was last told of.
    pub(super) told: u32,
    pub(super) revocation: Revocation,
    /// The epoch in which the peer last gave up less than a revocation hoped for.
    pub(super) spared: Option<u32>,
    pub(super) lost: bool,
    /// Its last request asked in vain, or for more than it got.
    pub(super) refused: bool,
}

/// A peer has at most one revocation under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Revocation {
    #[default]
    None,
    Queued(u32),
    Sent(u32),
}

impl Loan {
    /// Credits that the peer has, or that travel between it and the target.
    pub(super) fn away(&self) -> u32 {
        self.loan - self.inside - self.owed - self.granted
    }

    /// Credits that may still be lent to this peer now.
    pub(super) fn room(&self, config: &LoanConfig) -> u32 {
        let below_cap = config.loan_cap.saturating_sub(self.loan);
        below_cap.min(config.lend_limit.saturating_sub(self.lent))
    }

    pub(super) fn tell_epoch(&mut self, epoch: u32) -> bool {
        let news = self.told != epoch;
        self.told = epoch;
        news
    }
}

impl Revocation {
    pub(super) fn limit(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Queued(limit) | Self::Sent(limit) => limit,
        }
    }
}

/// Accounts that are made together.
const PAGE: usize = 16;

/// All accounts. One that was never written to is as at the start, and takes no memory but its share of a
/// page's word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Loans {
    peers: u32,
    unused: Loan,
    pages: Vec<Option<Box<[Loan; PAGE]>>>,
}

impl Loans {
    pub(super) fn new(peers: u32, initial: u32) -> Self {
        let unused = Loan { loan: initial, ..Loan::default() };
        Self { peers, unused, pages: vec![None; (peers as usize).div_ceil(PAGE)] }
    }

    /// An account as it stands; `None` if there is no such peer.
    #[inline]
    pub(super) fn known(&self, peer: Peer) -> Option<&Loan> {
        if peer.0 >= self.peers {
            return None;
        }
        let page = self.pages[peer.index() / PAGE].as_ref();
        Some(page.map_or(&self.unused, |page| &page[peer.index() % PAGE]))
    }

    /// Whether there is a page with this peer's account.
    pub(super) fn is_made(&self, peer: Peer) -> bool {
        self.pages.get(peer.index() / PAGE).is_some_and(Option::is_some)
    }

    /// An account to be written to.
    ///
    /// # Panics
    /// If there is no such peer.
    #[inline]
    pub(super) fn of(&mut self, peer: Peer) -> &mut Loan {
        let Self { unused, pages, .. } = self;
        let page =
            pages[peer.index() / PAGE].get_or_insert_with(|| Box::new(std::array::from_fn(|_| unused.clone())));
        &mut page[peer.index() % PAGE]
    }

    /// The peers of all pages that were made.
    pub(super) fn made(&self) -> impl Iterator<Item = Peer> {
        (0..self.peers).map(Peer).filter(|peer| self.is_made(*peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_small_and_made_when_written_to() {
        assert!(size_of::<Loan>() <= 64, "{} bytes", size_of::<Loan>());
        let mut loans = Loans::new(1000, 8);
        assert_eq!(loans.known(Peer(999)).map(|loan| loan.loan), Some(8));
        assert_eq!(loans.known(Peer(1000)), None);
        assert_eq!(loans.made().count(), 0);
        loans.of(Peer(17)).inside = 3;
        assert_eq!(loans.made().map(|peer| peer.0).collect::<Vec<_>>(), (16..32).collect::<Vec<_>>());
        assert_eq!((loans.known(Peer(16)).unwrap().inside, loans.known(Peer(17)).unwrap().inside), (0, 3));
        assert_eq!(loans.known(Peer(31)).unwrap().loan, 8);
    }
}
