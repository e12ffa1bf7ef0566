//! Credits that move: a receiver's bank lends its space to the senders that need it.
//!
//! One credit stands for a unit of a receiver's space. With a static partition ([`am_core::credit::Account`]) each
//! sender owns a fixed share; with thousands of senders every share is tiny and nearly all of the space idles.
//! Here each sender starts with a small loan, and the receiver's [`Bank`] keeps the rest. A sender that runs
//! short asks for more with its next request; the bank grants what it has, within limits per peer, and gets
//! credit back from senders that have not needed theirs lately. This is the dynamic redistribution that
//! GASNet's Portals conduit introduced ("Porting GASNet to Portals", CUG 2009). As published, an ask is
//! granted in full with the answer to the request that asks, or refused; a sender that stalls again asks
//! again, and revocations refill the bank meanwhile.
//! [`Growth`] chooses how a loan grows: by what a request found missing, as published, or by doubling,
//! which needs few round trips where each is long because the target computes.
//!
//! Both machines are pure states without clock, thread or I/O: the conduit embeds them, reports what has
//! happened, and puts what they answer on the wire. Nothing here allocates per message: a bank makes its
//! accounts when peers are first heard of.
//!
//! ```text
//!    sender Y: Borrower (its loan from X)                       target X: Bank (total = loans + banked)
//!
//!    take ──────────── request + CreditUse { cost, ask } ────────────────────> arrive
//!                                                                            │ handler runs, room is free again
//!    accept <────── answer + CreditReturn { credits, granted, epoch } ─────────── release, settle
//!
//!    honour <────────────── Revoke { limit, epoch } ─────────────────────── next_revocation
//!       └───────────────── Surrender { credits } ─────────────────────────> surrendered
//! ```
//!
//! *Who is quiet?* Both sides remember the most credits that the pair had in use at once, and let that maximum
//! decay (by a right shift) at the end of each epoch. Epochs are counted by the target in requests received, so
//! that they need no clock; the senders learn of them by a flag in whatever the target sends next. The bank picks
//! a few peers whose loan exceeds their recent maximum; the borrower, which knows its own traffic better, decides
//! how much of that it can spare. Never revoked from: the owner itself, a peer whose last ask was refused,
//! and the minimal loan.
//!
//! ```
//! use am_core::Peer;
//! use portals_sim::credit::{Bank, Borrower, LoanConfig};
//!
//! let mut config = LoanConfig::new(2, 8, 2);      // two senders, eight credits, requests cost up to two
//! config.initial = 4;                             // all lent from the start, nothing banked
//! let mut bank = Bank::new(&config)?;
//! let (busy, quiet) = (Peer(0), Peer(1));
//! let (mut sender, mut idler) = (Borrower::new(&config)?, Borrower::new(&config)?);
//!
//! // The sender uses up its loan and runs short.
//! bank.arrive(busy, sender.take(2)?)?;
//! bank.arrive(busy, sender.take(1)?)?;
//! assert!(sender.take(2).is_err());
//!
//! // Its next request asks for more; the bank has none, so it revokes from the quiet peer ...
//! bank.arrive(busy, sender.take(1)?)?;
//! let (victim, revoke) = bank.next_revocation().expect("the quiet peer has two credits to spare");
//! assert_eq!(victim, quiet);
//! bank.surrendered(quiet, idler.honour(revoke)?)?;
//!
//! // ... while the answers return the credits of the requests that were served.
//! bank.release(busy, 2)?;
//! sender.accept(bank.settle(busy)?)?;
//! assert_eq!((sender.held(), idler.held(), bank.banked()), (4, 2, 2));
//!
//! // The sender runs short again and asks again; now the bank can grant, and the answer brings the credit.
//! bank.arrive(busy, sender.take(1)?)?;
//! assert!(sender.take(2).is_err());
//! bank.arrive(busy, sender.take(1)?)?;
//! bank.release(busy, 1)?;
//! sender.accept(bank.settle(busy)?)?;
//! assert_eq!((sender.held(), idler.held(), bank.banked()), (5, 2, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## What always holds
//!
//! - **Conservation**: the sum of all loans and the bank is the total; each loan is exactly what its peer holds
//!   plus what travels between the two plus what the target has yet to send back.
//! - **No overflow**: requests that occupy room never exceed the total. A peer that spends what it does not have
//!   is found out at [`Bank::arrive`].
//! - **No deadlock**: the minimal loan covers the largest request, and a served request's answer returns all its
//!   credits. So a conduit needs no timer, but must keep three promises: answers and surrenders never wait for
//!   credit; a rank that waits for credit keeps serving what arrives; and every request is answered by one
//!   message with what [`Bank::settle`] hands out, whether its handler replies or not. Grants and revocations
//!   improve the distribution; progress never depends on them.
//! - **Lost peers**: [`Bank::lose`] brings a peer's credits back exactly once, and its late messages are refused.
//!
//! The messages must arrive exactly once, in any order. All of them are amounts to add or subtract, so one that
//! overtakes another does no harm.

mod bank;
mod bank_error;
mod borrower;
mod config;
mod loans;
mod message;
mod queue;

pub use bank::{Bank, BankLedger, LoanSnapshot};
pub use bank_error::{ArriveError, PeerError, ReleaseError, SurrenderError};
pub use borrower::{Borrower, CancelError, ReturnError, TakeError, TargetLost};
pub use config::{ConfigError, Growth, LoanConfig};
pub use message::{CreditReturn, CreditUse, Revoke, Surrender};
