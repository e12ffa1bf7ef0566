//! What a rank keeps per peer.

use super::config::{ConduitConfig, FlowControl, Sizes};
use super::joins::Joins;
use super::order::Order;
use crate::credit::{Bank, BankLedger, Borrower, CreditReturn, CreditUse, LoanConfig};
use am_core::Peer;
use am_core::credit::Account;
use fabric_sim::PagedPeers;
use std::fmt;

/// The right to send requests to one peer.
#[derive(Debug)]
pub(super) enum Right {
    Share(Account),
    Loan(Borrower),
    /// No credits.
    Free,
}

impl Right {
    /// Takes what a request costs.
    pub(super) fn take(&mut self, cost: u32) -> Option<CreditUse> {
        match self {
            Self::Share(account) => account.take(cost).is_ok().then_some(CreditUse { cost, ask: 0 }),
            Self::Loan(borrower) => borrower.take(cost).ok(),
            Self::Free => Some(CreditUse { cost: 0, ask: 0 }),
        }
    }

    /// Gives back what a request took that was not sent.
    pub(super) fn cancel(&mut self, charge: CreditUse) {
        let cancelled = match self {
            Self::Share(account) => account.give_back(charge.cost).is_ok(),
            Self::Loan(borrower) => borrower.cancel(charge).is_ok(),
            Self::Free => true,
        };
        assert!(cancelled, "what was taken is outstanding");
    }

    /// Takes in what a reply says. Returns whether it can be.
    pub(super) fn accept(&mut self, back: CreditReturn) -> bool {
        match self {
            Self::Share(account) => account.give_back(back.credits).is_ok(),
            Self::Loan(borrower) => borrower.accept(back).is_ok(),
            Self::Free => true,
        }
    }

    /// Credits that can be taken now.
    pub(super) const fn available(&self) -> u32 {
        match self {
            Self::Share(account) => account.available(),
            Self::Loan(borrower) => borrower.available(),
            Self::Free => u32::MAX,
        }
    }
}

/// What a rank knows of one peer.
#[derive(Debug)]
pub(super) struct PeerState {
    /// Credits at the peer, for this rank's requests.
    pub(super) right: Right,
    /// Credits of the peer's requests that have come and were not given back yet, where shares are static.
    pub(super) inside: u32,
    /// Requests to it that were not replied to.
    pub(super) under_way: u32,
    pub(super) joins: Option<Box<Joins>>,
    /// The order of messages, where they may be sent again.
    pub(super) order: Option<Box<Order>>,
}

/// States of peers, made when first used.
pub(super) struct Peers {
    flow: FlowControl,
    loans: LoanConfig,
    states: PagedPeers<PeerState>,
}

impl Peers {
    pub(super) fn new(ranks: u32, config: &ConduitConfig, sizes: &Sizes) -> Self {
        let mut loans = sizes.loans.clone();
        loans.initial += config.testing.extra_credits;
        loans.total += config.testing.extra_credits * ranks;
        loans.loan_cap = loans.loan_cap.max(loans.initial);
        Self { flow: config.flow, loans, states: PagedPeers::new(ranks) }
    }

    #[inline]
    pub(super) fn of(&mut self, peer: u32) -> &mut PeerState {
        let Self { flow, loans, states } = self;
        states.get_or_insert_with(peer, || PeerState {
            right: match flow {
                FlowControl::Static => Right::Share(Account::new(loans.initial)),
                FlowControl::Bank => Right::Loan(Borrower::new(loans).expect("the configuration was checked")),
                FlowControl::Disable => Right::Free,
            },
            inside: 0,
            under_way: 0,
            joins: None,
            order: None,
        })
    }

    /// Those that there ever was anything to keep of.
    #[inline]
    pub(super) fn known(&self) -> &PagedPeers<PeerState> {
        &self.states
    }

    /// Credits of every peer at the start.
    pub(super) const fn initial(&self) -> u32 {
        self.loans.initial
    }
}

/// The receiver's books of its own receive space.
#[derive(Debug)]
pub(super) enum Ledger {
    /// Every peer has this share.
    Shares(u32),
    Bank(Box<Bank>),
    /// Nothing is counted.
    None,
}

impl Ledger {
    pub(super) fn new(me: u32, config: &ConduitConfig, sizes: &Sizes) -> Self {
        match config.flow {
            FlowControl::Static => Self::Shares(sizes.loans.initial),
            FlowControl::Bank => {
                Self::Bank(Box::new(Bank::new(&sizes.bank_of(me)).expect("the configuration was checked")))
            }
            FlowControl::Disable => Self::None,
        }
    }

    /// A request has come. Returns whether its sender had the right to send it.
    #[inline]
    pub(super) fn arrive(&mut self, from: u32, charge: CreditUse, peers: &mut Peers) -> bool {
        match self {
            Self::Shares(share) => {
                let inside = &mut peers.of(from).inside;
                let allowed = charge.cost > 0 && charge.cost <= *share - (*inside).min(*share);
                *inside += if allowed { charge.cost } else { 0 };
                allowed
            }
            Self::Bank(bank) => bank.arrive(Peer(from), charge).is_ok(),
            Self::None => true,
        }
    }

    /// The request's room is free; what the message says that goes back to its sender.
    #[inline]
    pub(super) fn give(&mut self, from: u32, cost: u32, peers: &mut Peers) -> CreditReturn {
        match self {
            Self::Shares(_) => {
                peers.of(from).inside -= cost;
                CreditReturn { credits: cost, ..CreditReturn::default() }
            }
            Self::Bank(bank) => {
                if cost > 0 {
                    bank.release(Peer(from), cost).expect("the request was counted when it came");
                }
                bank.settle(Peer(from)).unwrap_or_default()
            }
            Self::None => CreditReturn::default(),
        }
    }

    /// The bank, if there is one.
    pub(super) fn bank(&mut self) -> Option<&mut Bank> {
        if let Self::Bank(bank) = self { Some(bank) } else { None }
    }

    /// The books as text.
    pub(super) fn report<'t>(&'t self, peers: &'t Peers) -> Report<'t> {
        Report { ledger: self, peers }
    }
}

/// The books of a rank's receive space, for a panic.
pub(super) struct Report<'t> {
    ledger: &'t Ledger,
    peers: &'t Peers,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ledger {
            Ledger::Shares(share) => {
                writeln!(f, "every peer has a share of {share} credits")?;
                let inside = self.peers.known().iter().filter(|(_, state)| state.inside > 0);
                for (peer, state) in inside {
                    writeln!(f, "  peer {peer}: {} inside", state.inside)?;
                }
                Ok(())
            }
            Ledger::Bank(bank) => {
                let books: BankLedger<'_> = bank.ledger();
                write!(f, "{books}")
            }
            Ledger::None => writeln!(f, "no credits"),
        }
    }
}
