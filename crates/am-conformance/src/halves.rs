//! The cases of the suite on simulated machines in two halves: on two processors they leave behind what they do on
//! one.

use crate::case::{Buffers, Description};
use crate::simulated::{Draw, SimConduit, problems, run_seeds};
use crate::world::World;
use std::cell::Cell;
use std::fmt::{Debug, Display};

/// What a run in halves leaves behind, in words, and what its ranks found wrong.
pub type Left = (String, Vec<String>);

/// Of a run: its report is `left`, of which `results` gives what [`play_part`](crate::play_part) returned.
pub fn left<L: Debug, E: Display>(
    outcome: Result<L, E>,
    results: impl FnOnce(L) -> Vec<Option<Option<String>>>,
) -> Left {
    let words = match &outcome {
        Ok(left) => format!("{left:?}"),
        Err(error) => error.to_string(),
    };
    (words, problems(outcome.map(results)))
}

/// Runs one case for each seed in halves, on one processor and on two; returns how many seeds there were, and how
/// many were of machines that can be halved. `run` gets whether to use two processors; `None` says that the
/// machine cannot.
///
/// # Panics
/// With all that went wrong or was not the same, and the seeds that repeat it.
pub fn compare_halves<C: SimConduit>(
    seeds: impl IntoIterator<Item = u64>,
    run: impl Fn(&Description, &C::Machine, &C::Config, &World, bool) -> Option<Left>,
) -> [usize; 2] {
    let (all, halved) = (Cell::new(0), Cell::new(0));
    run_seeds(seeds, |case, ranks, world, seed| {
        all.set(all.get() + 1);
        let (machine, config) = C::drawn(&mut Draw::new(seed), seed, ranks);
        let smallest = (case.needs.buffers == Buffers::Smallest).then(|| C::smallest(&config));
        let config = smallest.as_ref().unwrap_or(&config);
        let runs = [false, true].map(|two| run(case, &machine, config, world, two));
        let [Some((one, mut found)), Some((two, _))] = runs else { return Vec::new() };
        halved.set(halved.get() + 1);
        if one != two {
            let at = one.bytes().zip(two.bytes()).take_while(|(one, two)| one == two).count().saturating_sub(40);
            let part = |left: &str| {
                String::from_utf8_lossy(left.as_bytes().get(at..).unwrap_or_default())
                    .chars()
                    .take(160)
                    .collect::<String>()
            };
            found.push(format!("two processors leave behind ...{}... and one ...{}...", part(&two), part(&one)));
        }
        found
    });
    [all.get(), halved.get()]
}

/// The tests that a conduit of [`sim_suite!`](crate::sim_suite) leaves the same behind on two processors as on
/// one: its type, its machine, and the function that runs a program in halves.
#[macro_export]
macro_rules! halves_suite {
    ($conduit:ident, $machine:ident, $run:path; deadline: $deadline:expr, seeds: $seeds:expr $(,)?) => {
        fn compare_halves(seeds: impl IntoIterator<Item = u64>) {
            use ::fabric_sim::{Processors, RunError};
            let [all, halved] = $crate::compare_halves::<$conduit>(seeds, |case, machine, config, world, two| {
                let machine = $machine { deadline_ns: $deadline, ..machine.clone() };
                let processors = if two { Processors::Two } else { Processors::One };
                let (case, world) = (*case, *world);
                let outcome = $run(&machine, config, processors, move |transport| {
                    $crate::play_part(&case, &world, transport)
                });
                match outcome {
                    Err(RunError::Config(_)) => None,
                    outcome => Some($crate::left(outcome, |report| report.results)),
                }
            });
            println!("{halved} of {all} machines can be halved");
            assert!(halved != 0 && halved < all, "{halved} of {all}");
        }

        #[test]
        fn some_seeds_in_halves() {
            compare_halves($crate::spread_seeds($seeds));
        }

        #[test]
        #[ignore = "a thousand seeds take minutes"]
        fn many_seeds_in_halves() {
            compare_halves($crate::chosen_seeds(1000));
        }
    };
}
