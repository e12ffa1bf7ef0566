//! Credits: how a sender knows that its next message has room at the receiver, without asking.
//!
//! A receiver owns a bounded resource, for instance a buffer for requests. One *credit* stands for one unit of it.
//! A sender spends credits to send and gets them back when the receiver has freed the room again; as long as no
//! more credits exist than there is room, nothing can overflow, whatever the order of events. What differs between
//! policies is who holds how many credits. Two are here, as pure state machines without clock, thread or I/O; a
//! transport embeds one, tells it what has happened, and puts what it answers on the wire. Nothing here allocates per
//! message: a bank makes its accounts when peers are first heard of.
//!
//! # Static partition
//!
//! Each sender owns a fixed share for good: an [`Account`] at the sender, a comparison and a subtraction per
//! message, no protocol at all beyond "this reply returns n credits". The right choice while the space divided by
//! the number of senders is comfortably more than a message; useless with thousands of senders, where every share
//! is tiny and nearly all of the space idles.
//!
//! ```
//! use am_core::credit::Account;
//!
//! let mut lane = Account::share(1024, 4);         // 1024 slots at the receiver, four senders
//! assert_eq!(lane.capacity(), 256);
//! lane.take(200)?;                                // a message of 200 slots leaves
//! assert!(lane.take(100).is_err());               // the next one has to wait ...
//! lane.give_back(200)?;                           // ... until the receiver has returned the credits
//! lane.take(100)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Bank with loans and revocation
//!
//! Each sender starts with a small loan, and the receiver's [`Bank`] keeps the rest. A sender that runs short asks
//! for more with its next request; the bank grants what it has, within limits per peer, and gets credit back from
//! senders that have not needed theirs lately. This is the dynamic redistribution that GASNet's Portals conduit
//! introduced ("Porting GASNet to Portals", CUG 2009), with two changes: an ask that can't be granted at once
//! waits in line instead of being refused, and may be granted in part. [`Asks::AtOnce`] does without both, as
//! published. How a loan grows can be chosen, too: by what a request found missing, as published, or by doubling,
//! [`Growth::Doubling`], which needs few round trips where each is long because the target computes.
//!
//! ```text
//!    sender Y: Borrower (its loan from X)                       target X: Bank (total = loans + banked)
//!
//!    take ──────────── request + Charge { cost, ask } ────────────────────> arrive
//!                                                                            │ handler runs, room is free again
//!    accept <── reply or bare credit + Return { credits, granted, epoch } ── release, settle / next_bare
//!
//!    honour <────────────── Revoke { limit, epoch } ─────────────────────── next_revocation
//!       └───────────────── Surrender { credits } ─────────────────────────> surrendered
//! ```
//!
//! *Who is quiet?* Both sides remember the most credits that the pair had in use at once, and let that maximum
//! decay (by a right shift) at the end of each epoch. Epochs are counted by the target in requests received, so
//! that they need no clock; the senders learn of them by a flag in whatever the target sends next. The bank picks
//! a few peers whose loan exceeds their recent maximum; the borrower, which knows its own traffic better, decides
//! how much of that it can spare. Never revoked from: the owner itself, a peer whose ask is waiting, and the
//! minimal loan.
//!
//! ```
//! use am_core::Peer;
//! use am_core::credit::{Bare, Bank, Borrower, LoanConfig};
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
//! // ... and a reply brings the grant along with the credits that it returns anyway.
//! bank.release(busy, 2)?;
//! sender.accept(bank.settle(busy)?)?;
//! assert_eq!((sender.held(), idler.held(), bank.banked()), (5, 2, 1));
//!
//! // Requests without a reply return their credits as a coalesced bare credit.
//! bank.release(busy, 1)?;
//! bank.release(busy, 1)?;
//! let (peer, bare) = bank.next_bare(Bare::Due).expect("two owed credits are a full message");
//! assert_eq!((peer, bare.credits), (busy, 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## What always holds
//!
//! - **Conservation**: the sum of all loans and the bank is the total; each loan is exactly what its peer holds
//!   plus what travels between the two plus what the target has yet to send back.
//! - **No overflow**: requests that occupy room never exceed the total. A peer that spends what it does not have
//!   is found out at [`Bank::arrive`].
//! - **No deadlock**: the minimal loan covers the largest request, and whatever may stop a sender is due for
//!   return as soon as its requests have been served. So a conduit needs no timer, but must keep three promises:
//!   returns and surrenders never wait for credit; who waits for credit keeps serving what arrives; and all that
//!   [`Bank::next_bare`] hands out is sent. Grants and revocations improve the distribution; progress never
//!   depends on them.
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
mod static_partition;

pub use bank::{Bank, Bare, Ledger, LoanSnapshot};
pub use bank_error::{ArriveError, PeerError, ReleaseError, SurrenderError};
pub use borrower::{Borrower, CancelError, ReturnError, TakeError, TargetLost};
pub use config::{Asks, ConfigError, Growth, LoanConfig};
pub use message::{Charge, Return, Revoke, Surrender};
pub use static_partition::{Account, Excess, Short};
