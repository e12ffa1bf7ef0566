//! The target's side of the bank policy: who holds how much of one receive space, and who gets more.

use super::bank_error::{ArriveError, PeerError, ReleaseError, SurrenderError};
use super::config::{ConfigError, Growth, LoanConfig, decayed};
use super::loans::{Loan, Loans, Revocation};
use super::message::{CreditReturn, CreditUse, Revoke, Surrender};
use super::queue::PeerQueue;
use am_core::Peer;
use std::fmt;

/// The credits of one receive space, lent to its senders.
///
/// The sum of all loans and the bank is the total at every moment, and no request is accepted beyond its sender's
/// loan; so the receive space can't overflow. Accounts are made when a peer is first heard of, sixteen
/// neighbours at a time, so that a bank of thousands of peers is as large as the traffic needs; after that
/// nothing allocates, and nothing ever blocks. See the [module page](super) for the protocol and an example.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bank {
    config: LoanConfig,
    banked: u32,
    loans: Loans,
    /// Completed epochs, and requests received in the present one.
    epoch: u32,
    requests: u32,
    /// Revocations that wait to be sent, the sum of those unanswered, and the peer to look at next.
    revocations: PeerQueue,
    revoking: u32,
    cursor: u32,
}

/// One peer's account, for stall reports and checks. All amounts are credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LoanSnapshot {
    /// The whole loan, including everything below.
    pub loan: u32,
    /// Of requests that have arrived and occupy receive space.
    pub inside: u32,
    /// Of served requests, not yet on their way back.
    pub owed: u32,
    /// Granted, not yet on their way.
    pub granted: u32,
    /// The unanswered revocation's limit, 0 if there is none.
    pub revoking: u32,
    /// Most credits in use at once, as seen here, in recent epochs.
    pub recent_maximum: u32,
    /// Whether the peer was declared lost.
    pub lost: bool,
}

impl Bank {
    /// A bank that has lent every peer its initial loan and keeps the rest. Allocates a word for every sixteen
    /// peers.
    ///
    /// # Errors
    /// [`ConfigError`] when the parameters contradict each other.
    pub fn new(config: &LoanConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            banked: config.total - config.peers * config.initial,
            loans: Loans::new(config.peers, config.initial),
            epoch: 0,
            requests: 0,
            revocations: PeerQueue::new(config.peers),
            revoking: 0,
            cursor: 0,
            config: config.clone(),
        })
    }

    /// Takes note of a request that has arrived: it occupies receive space until [`release`](Self::release).
    /// Grants its ask, and if the bank can't, queues revocations from quiet peers (looking at no more than
    /// [`revoke_scan`](LoanConfig::revoke_scan) of them), so that a later ask may be granted.
    ///
    /// # Errors
    /// [`ArriveError`] when the peer is unknown, lost, or spends or asks for more than it may.
    pub fn arrive(&mut self, peer: Peer, charge: CreditUse) -> Result<(), ArriveError> {
        let CreditUse { cost, ask } = charge;
        let LoanConfig { max_cost, max_ask, .. } = self.config;
        let loan = self.live(peer)?;
        let held = loan.away();
        if cost == 0 || cost > max_cost {
            return Err(ArriveError::CostOutOfRange { peer, cost, max_cost });
        }
        if ask > max_ask {
            return Err(ArriveError::AskOutOfRange { peer, ask, max_ask });
        }
        // Rule 5 of the sheet: nobody spends more of the receive space than was lent.
        if cost > held {
            return Err(ArriveError::Overdraft { peer, cost, held });
        }
        self.age(peer);
        let loan = self.loans.of(peer);
        loan.inside += cost;
        loan.recent = loan.recent.max(loan.inside + loan.owed);
        self.requests += 1;
        if self.requests >= self.config.epoch {
            self.requests = 0;
            self.epoch += 1;
        }
        self.answer(peer, ask);
        Ok(())
    }

    /// Takes note that a request's receive space is free again, so that its credits may go back with the next
    /// [`settle`](Self::settle) for this peer. Those of a lost peer return to the bank instead.
    ///
    /// # Errors
    /// [`ReleaseError`] when the peer is unknown or its requests occupy less than `cost`.
    pub fn release(&mut self, peer: Peer, cost: u32) -> Result<(), ReleaseError> {
        let Some(loan) = self.loans.known(peer) else {
            return Err(ReleaseError::Unknown { peer, peers: self.config.peers });
        };
        let Some(rest) = loan.inside.checked_sub(cost) else {
            return Err(ReleaseError::Excess { peer, cost, inside: loan.inside });
        };
        let loan = self.loans.of(peer);
        loan.inside = rest;
        // Rule 4 of the sheet: freed space is owed to its holder, or goes back to the bank; the total stays.
        if loan.lost {
            loan.loan -= cost;
            self.banked += cost;
        } else {
            loan.owed += cost;
        }
        Ok(())
    }

    /// What the answer that is about to leave for `peer` carries: owed and granted credits as far as its
    /// fields hold them. The rest waits for the next answer.
    ///
    /// # Errors
    /// [`PeerError`] when the peer is unknown or lost.
    pub fn settle(&mut self, peer: Peer) -> Result<CreditReturn, PeerError> {
        self.live(peer)?;
        let loan = self.loans.of(peer);
        let credits = loan.owed.min(self.config.max_return);
        let granted = self.config.growth.tellable(loan.granted.min(self.config.max_ask));
        loan.owed -= credits;
        loan.granted -= granted;
        Ok(CreditReturn { credits, granted, end_of_epoch: loan.tell_epoch(self.epoch) })
    }

    /// The next revocation to send, or `None`. One whose peer has asked for credit itself in vain is dropped.
    ///
    /// A conduit whose revocations need a resource of their own (a credit at the peer, say) calls this only when
    /// it has one, and answers to the bank with [`surrendered`](Self::surrendered) when the peer's [`Surrender`]
    /// arrives.
    pub fn next_revocation(&mut self) -> Option<(Peer, Revoke)> {
        loop {
            let peer = self.revocations.pop()?;
            let loan = self.loans.of(peer);
            let Revocation::Queued(limit) = loan.revocation else { continue };
            loan.revocation = Revocation::Sent(limit);
            let end_of_epoch = loan.tell_epoch(self.epoch);
            return Some((peer, Revoke { limit, end_of_epoch }));
        }
    }

    /// The peer that [`next_revocation`](Self::next_revocation) writes to: for conduits that need something of
    /// that peer before.
    pub fn revocation_waits_for(&mut self) -> Option<Peer> {
        loop {
            let peer = self.revocations.front()?;
            if self.loans.known(peer).is_some_and(|loan| matches!(loan.revocation, Revocation::Queued(_))) {
                return Some(peer);
            }
            self.revocations.pop();
        }
    }

    /// Puts the next revocation behind the others, for when what it needs is missing.
    pub fn postpone_revocation(&mut self) {
        if let Some(peer) = self.revocations.pop() {
            self.revocations.push(peer);
        }
    }

    /// Gives the next revocation up, for a peer that takes no more messages.
    pub fn drop_revocation(&mut self) {
        let Some(peer) = self.revocations.pop() else { return };
        let loan = self.loans.of(peer);
        if let Revocation::Queued(limit) = loan.revocation {
            loan.revocation = Revocation::None;
            self.revoking -= limit;
        }
    }

    /// Takes in the answer to a revocation; the credits go to the bank.
    ///
    /// # Errors
    /// [`SurrenderError`] when the peer is unknown or lost, or was not asked for that much.
    pub fn surrendered(&mut self, peer: Peer, message: Surrender) -> Result<(), SurrenderError> {
        let Surrender { credits } = message;
        let loan = self.live(peer)?;
        let Revocation::Sent(revoked) = loan.revocation else {
            return Err(SurrenderError::Unasked { peer, credits });
        };
        let limit = revoked.min(loan.away());
        if credits > limit {
            return Err(SurrenderError::Excess { peer, credits, limit });
        }
        let loan = self.loans.of(peer);
        loan.revocation = Revocation::None;
        loan.loan -= credits;
        if credits < revoked {
            // It has no more to give until its needs have been forgotten for an epoch: asking again would be
            // noise.
            loan.spared = Some(self.epoch);
        }
        self.revoking -= revoked;
        self.banked += credits;
        Ok(())
    }

    /// Declares a peer lost and returns how many credits came back to the bank at once: all that do not occupy
    /// receive space; those that do follow as they are [released](Self::release). A second call finds nothing and
    /// returns 0.
    ///
    /// Messages of the peer that come later are refused and change nothing. So before the call the conduit must
    /// have made sure that nothing of this peer can still be deposited in the receive space, and must have passed
    /// to [`arrive`](Self::arrive), or dropped, what had been deposited; until then the peer's credits stand for
    /// that space.
    ///
    /// # Errors
    /// [`PeerError::Unknown`] when there is no such peer.
    pub fn lose(&mut self, peer: Peer) -> Result<u32, PeerError> {
        let reclaimed = match self.live(peer) {
            Ok(loan) => loan.loan - loan.inside,
            Err(PeerError::Lost { .. }) => return Ok(0),
            Err(unknown) => return Err(unknown),
        };
        let loan = self.loans.of(peer);
        self.revoking -= loan.revocation.limit();
        *loan = Loan { loan: loan.inside, inside: loan.inside, lost: true, ..Loan::default() };
        self.banked += reclaimed;
        Ok(reclaimed)
    }

    /// Credits in the bank, lent to nobody.
    pub const fn banked(&self) -> u32 {
        self.banked
    }

    /// The parameters.
    pub const fn config(&self) -> &LoanConfig {
        &self.config
    }

    /// Epochs that have ended since the start.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The books, to be printed where they are asked for: by a panic about an overflow, say.
    pub const fn ledger(&self) -> BankLedger<'_> {
        BankLedger(self)
    }

    /// All accounts that differ from one that was never used, in order.
    pub(super) fn used(&self) -> impl Iterator<Item = (Peer, LoanSnapshot)> {
        self.loans.made().filter_map(|peer| Some((peer, self.loan(peer)?)))
    }

    /// One peer's account as it stands, or `None` if there is no such peer.
    pub fn loan(&self, peer: Peer) -> Option<LoanSnapshot> {
        let loan = self.loans.known(peer)?;
        Some(LoanSnapshot {
            loan: loan.loan,
            inside: loan.inside,
            owed: loan.owed,
            granted: loan.granted,
            revoking: loan.revocation.limit(),
            recent_maximum: decayed(loan.recent, self.config.decay_shift, self.epoch - loan.decayed_at),
            lost: loan.lost,
        })
    }

    fn live(&self, peer: Peer) -> Result<&Loan, PeerError> {
        let unknown = PeerError::Unknown { peer, peers: self.config.peers };
        let loan = self.loans.known(peer).ok_or(unknown)?;
        if loan.lost { Err(PeerError::Lost { peer }) } else { Ok(loan) }
    }

    /// Catches up on the epochs since the loan was last looked at, so that the end of an epoch need not visit
    /// every peer: the recent figures decay, and a refusal expires after a whole epoch in which the peer did
    /// not ask again. (One that has fallen quiet would otherwise keep its loan safe from revocation for ever.)
    fn age(&mut self, peer: Peer) {
        let loan = self.loans.of(peer);
        let epochs = self.epoch - loan.decayed_at;
        if epochs > 0 {
            if self.epoch - loan.asked_at > 1 {
                loan.refused = false;
            }
            loan.recent = decayed(loan.recent, self.config.decay_shift, epochs).max(loan.inside + loan.owed);
            loan.lent = decayed(loan.lent, self.config.decay_shift, epochs);
            loan.decayed_at = self.epoch;
        }
    }

    /// Grants an ask in full, or refuses it for good and looks for quiet peers, so that a later one may fare
    /// better. Where loans double, it grants what it can.
    fn answer(&mut self, peer: Peer, ask: u32) {
        let loan = self.loans.of(peer);
        loan.refused = false;
        if ask == 0 {
            return;
        }
        loan.asked_at = self.epoch;
        let (room, growth) = (loan.room(&self.config), self.config.growth);
        let (allowed, granted) = match growth {
            Growth::Shortage if room < ask => return,
            Growth::Shortage => (ask, if ask <= self.banked { ask } else { 0 }),
            Growth::Doubling => {
                let allowed = growth.tellable(ask.min(room));
                (allowed, growth.tellable(allowed.min(self.banked)))
            }
        };
        self.banked -= granted;
        loan.loan += granted;
        loan.granted += granted;
        loan.lent += granted;
        if granted == allowed {
            return;
        }
        loan.refused = true;
        if let Revocation::Queued(limit) = loan.revocation {
            loan.revocation = Revocation::None;
            self.revoking -= limit;
        }
        self.revoke(allowed - granted);
    }

    /// Queues revocations until they may cover what is wanted, from the next few peers that seem not to need their
    /// loan. Makes no account for those that it leaves alone.
    fn revoke(&mut self, wanted: u32) {
        let mut victims = 0;
        for _ in 0..self.config.revoke_scan.min(self.config.peers) {
            if victims == self.config.revoke_peers || self.revoking >= wanted {
                return;
            }
            let peer = Peer(self.cursor);
            self.cursor = (self.cursor + 1) % self.config.peers;
            if self.loans.is_made(peer) {
                self.age(peer);
            }
            let Some(loan) = self.loans.known(peer) else { continue };
            let quiet = !loan.refused && loan.spared != Some(self.epoch) && loan.revocation == Revocation::None;
            if self.config.me == Some(peer) || loan.lost || !quiet {
                continue;
            }
            let unneeded = loan.loan.saturating_sub(self.config.min.max(loan.recent));
            let limit = unneeded.min(self.config.revoke_limit);
            if limit > 0 && limit >= self.config.revoke_least.min(self.config.revoke_limit) {
                self.loans.of(peer).revocation = Revocation::Queued(limit);
                self.revoking += limit;
                self.revocations.push(peer);
                victims += 1;
            }
        }
    }
}

/// A bank's books as text: see [`Bank::ledger`].
#[derive(Clone, Copy, Debug)]
pub struct BankLedger<'a>(&'a Bank);

/// Accounts that a ledger prints at most.
const LINES: usize = 40;

impl fmt::Display for BankLedger<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bank = self.0;
        let LoanConfig { total, peers, initial, .. } = bank.config;
        let unused = peers as usize - bank.used().count();
        let lent: u64 =
            bank.used().map(|(_, loan)| u64::from(loan.loan)).sum::<u64>() + unused as u64 * u64::from(initial);
        writeln!(
            f,
            "{total} credits: {} banked, {lent} lent to {peers} peers, epoch {}",
            bank.banked, bank.epoch
        )?;
        let eventful = |(_, loan): &(Peer, LoanSnapshot)| {
            loan.loan != initial || loan.inside + loan.owed + loan.granted + loan.revoking > 0 || loan.lost
        };
        for (peer, loan) in bank.used().filter(eventful).take(LINES) {
            let LoanSnapshot { loan: all, inside, owed, granted, revoking, recent_maximum, lost } = loan;
            let away = all - inside - owed - granted;
            write!(
                f,
                "  peer {}: loan {all} = {away} away + {inside} inside + {owed} owed + {granted} granted",
                peer.0
            )?;
            write!(f, "; revoking {revoking}, recent maximum {recent_maximum}")?;
            writeln!(f, "{}", if lost { ", lost" } else { "" })?;
        }
        match bank.used().filter(eventful).count().saturating_sub(LINES) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests;
