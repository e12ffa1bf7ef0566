//! The suite that every active-message transport passes, generic over [`am_core::Transport`].
//!
//! A [`Case`] is a function that each rank of a job runs with its own transport: it attaches, exchanges messages,
//! and says what it found wrong. [`all_cases`] lists them by the items of the conformance list; [`run`] plays the
//! ranks as threads of this process, for any [`Fabric`]; a simulation plays them itself, by [`run_with`]; a
//! program that has its ranks as processes runs [`Case::run`] in each, and checks what a launcher passes on with
//! [`check_surroundings`] (item 14).
//!
//! The cases are compiled once, for a transport behind a trait object; [`concrete_cases`] are the few that run
//! over the transport's own type too.
//!
//! Every case exists in a quick [`Profile`] and a full one. They differ in repetitions alone, never in sizes or
//! cases.
//!
//! ```
//! use am_conformance::{Loopback, Plan, Profile, all_cases, run};
//!
//! let plan = Plan { ranks: vec![2], only: Some("ping".into()), ..Plan::from_environment(Profile::Quick) };
//! run(Loopback, all_cases(), &plan).check();
//! ```
//!
//! # What a transport must offer
//!
//! Segments of one size on all ranks, at least 4 KiB for a small job; Medium messages of at least 64 bytes with
//! sixteen arguments, also at its smallest buffers.

mod case;
mod cases;
mod counting;
mod environment;
mod erased;
mod exchange;
mod halves;
mod loopback;
mod pair_order;
mod random;
mod report;
mod seeds;
mod selected;
mod simulated;
mod sink;
mod threads;
mod traffic;
mod world;

pub use case::{Buffers, Case, Description, Needs, is_deliberate, judge};
pub use cases::{all_cases, cases, concrete_cases, descriptions, run_part, threaded_cases};
pub use counting::{CountingAllocator, allocations, with_stall_requests, without_stall_requests};
pub use environment::{check_surroundings, difficult_arguments, difficult_variables};
pub use exchange::{Exchange, Heard};
pub use halves::{Left, compare_halves, left};
pub use loopback::{Job, Loopback, NativeLoopback};
pub use pair_order::PairOrder;
pub use report::{Line, Report, Skipped};
pub use seeds::each_mutation;
pub use selected::{Selected, SelectedJob};
pub use simulated::{
    Draw, SimConduit, chosen_seeds, play_part, problems, run_seeds, run_simulated, run_simulated_case,
    run_simulated_seeds, spread_seeds, wait_in_vain,
};
pub use sink::CountingSink;
pub use threads::{DEFAULT_SEED, Fabric, Plan, run, run_with};
pub use traffic::{Crossed, Crossing, NodeRates, check_cuts_and_ways, check_node_rates, random_traffic};
pub use world::{Failure, Profile, Verdict, World};
