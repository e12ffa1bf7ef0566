//! What the suite over simulations has in common: a rank's part of a case, what went wrong with all of them, and
//! cases on machines that are drawn from seeds.

use crate::case::{Buffers, Description, judge};
use crate::cases::{descriptions, run_part};
use crate::threads::{Plan, run_with};
use crate::world::{Profile, World};
use am_core::{Endpoint, Handlers, Rank, Transport};
use std::env;
use std::fmt::Display;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Plays one rank's part of a case with its transport, which may borrow; returns what it found wrong. Catches
/// panics.
pub fn play_part<T: Transport>(case: &Description, world: &World, transport: T) -> Option<String> {
    judge(case, catch_unwind(AssertUnwindSafe(|| run_part(case, world, vec![transport]))))
}

/// What went wrong in a run whose ranks returned what [`play_part`] did; `None` for a rank that did not end.
pub fn problems<E: Display>(outcome: Result<Vec<Option<Option<String>>>, E>) -> Vec<String> {
    match outcome {
        Ok(ranks) => {
            let ranks = ranks.into_iter().enumerate();
            ranks.filter_map(|(rank, problem)| Some(format!("rank {rank}: {}", problem??))).collect()
        }
        Err(error) => vec![error.to_string()],
    }
}

/// A conduit on simulated machines, as far as the suite has to know it.
pub trait SimConduit {
    /// Its name.
    const NAME: &str;
    /// A machine that it runs on.
    type Machine;
    /// How it can be configured.
    type Config: Clone;

    /// The same with buffers as small as they can be.
    fn smallest(config: &Self::Config) -> Self::Config;

    /// Another machine, other sizes and other faults for every seed.
    fn drawn(draw: &mut Draw, seed: u64, ranks: u32) -> (Self::Machine, Self::Config);

    /// Runs all ranks of a case, each by [`play_part`]; returns the [`problems`]. A program that polls for ever
    /// must come to an end.
    fn run(case: &Description, machine: Self::Machine, config: &Self::Config, world: &World) -> Vec<String>;
}

fn play<C: SimConduit>(case: &Description, machine: C::Machine, config: &C::Config, world: &World) -> Vec<String> {
    let smallest = (case.needs.buffers == Buffers::Smallest).then(|| C::smallest(config));
    C::run(case, machine, smallest.as_ref().unwrap_or(config), world)
}

/// Runs the suite over a conduit as planned.
///
/// # Panics
/// With all that went wrong.
pub fn run_simulated<C: SimConduit>(
    what: &str,
    plan: &Plan,
    config: &C::Config,
    machine: impl Fn(u32) -> C::Machine,
) {
    run_with(format!("{} {what}", C::NAME), plan, |case, ranks, world| {
        play::<C>(case, machine(ranks), config, world)
    })
    .check();
}

/// Runs one case for each seed over a conduit; see [`run_seeds`].
///
/// # Panics
/// With all that went wrong, and the seeds that repeat it.
pub fn run_simulated_seeds<C: SimConduit>(seeds: impl IntoIterator<Item = u64>) {
    run_seeds(seeds, |case, ranks, world, seed| {
        let (machine, config) = C::drawn(&mut Draw::new(seed), seed, ranks);
        play::<C>(case, machine, &config, world)
    });
}

/// Runs one case, by name, on the machine that a seed draws: for what a seed of [`run_simulated_seeds`] once
/// found, which would draw another case when the list of cases changes.
///
/// # Panics
/// With what went wrong, or if no case is called like that.
pub fn run_simulated_case<C: SimConduit>(name: &str, ranks: u32, seed: u64) {
    let case = descriptions().iter().find(|case| case.name == name).expect("a case is called like that");
    let (machine, config) = C::drawn(&mut Draw::new(seed), seed, ranks);
    let found = play::<C>(case, machine, &config, &World::new(Profile::Quick, seed));
    assert!(found.is_empty(), "seed {seed}, {name} on {ranks} ranks: {}", found.join("\n"));
}

/// The program of a rank of a job that ends in a deadlock: rank 1 waits for what nobody sends, and the others for
/// its end.
///
/// # Panics
/// If the rank cannot attach.
pub fn wait_in_vain<T: Transport>(transport: T) {
    let mut endpoint = Endpoint::attach(transport, Handlers::<()>::new(), ()).expect("all ranks attach");
    if endpoint.rank() == Rank(1) {
        // It does not come back: the run is given up.
        let _ = endpoint.wait_until(|()| false);
    }
    let _ = endpoint.finish();
}

/// Choices drawn from a seed, as the digits of a mixed base: neighbouring seeds differ in everything, and every
/// combination of choices comes.
#[derive(Clone, Copy, Debug)]
pub struct Draw(u64);

impl Draw {
    /// The choices of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8)
    }

    /// The next choice out of some.
    ///
    /// # Panics
    /// If there are none.
    pub fn of(&mut self, choices: u64) -> u64 {
        let digit = self.0 % choices;
        self.0 /= choices;
        digit
    }

    /// One of several values.
    ///
    /// # Panics
    /// If there are none.
    pub fn one<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.of(values.len() as u64) as usize]
    }
}

/// The seeds from `AM_CONFORMANCE_FIRST` on, 0 by default, as many as `AM_CONFORMANCE_SEEDS` says, or so many that
/// each case has as many as `AM_CONFORMANCE_EACH` says, or `count`.
///
/// # Panics
/// If the environment does not hold numbers.
pub fn chosen_seeds(count: u64) -> Range<u64> {
    let number = |name: &str| env::var(name).ok().map(|text| text.trim().parse().expect("seeds are numbers"));
    let first = number("AM_CONFORMANCE_FIRST").unwrap_or(0);
    let each = number("AM_CONFORMANCE_EACH").map(|each: u64| each * descriptions().len() as u64);
    first..first + number("AM_CONFORMANCE_SEEDS").or(each).unwrap_or(count)
}

/// So many seeds whose cases are spread over the whole list, the last case first, with all numbers of ranks in
/// turn; see [`run_seeds`].
pub fn spread_seeds(count: u64) -> impl Iterator<Item = u64> {
    let cases = descriptions().len() as u64;
    (0..count).map(move |index| {
        let place = cases - 1 - index % count.min(cases) * cases / count.min(cases);
        place + cases * (index % 5)
    })
}

/// Runs one case for each seed, all cases in turn, with 1, 2, 3, 5 and 8 ranks in turn, or as many as needed.
/// `play` gets the seed too, to draw a machine from, and returns what went wrong. Seeds of cases whose name
/// contains nothing of the list in `AM_CONFORMANCE_ONLY`, whose parts have commas between them, are left out.
///
/// # Panics
/// With all that went wrong, and the seeds that repeat it.
pub fn run_seeds(
    seeds: impl IntoIterator<Item = u64>,
    mut play: impl FnMut(&Description, u32, &World, u64) -> Vec<String>,
) {
    let (cases, only) = (descriptions(), env::var("AM_CONFORMANCE_ONLY").unwrap_or_default());
    let mut all = Vec::new();
    for seed in seeds {
        let case = &cases[(seed % cases.len() as u64) as usize];
        if !only.split(',').any(|part| case.name.contains(part.trim())) {
            continue;
        }
        let ranks = [2, 3, 1, 5, 8][(seed / cases.len() as u64 % 5) as usize].max(case.needs.ranks);
        let found = play(case, ranks, &World::new(Profile::Quick, seed), seed);
        let name = case.name;
        all.extend(found.into_iter().map(|found| format!("seed {seed}, {name} on {ranks} ranks: {found}")));
    }
    assert!(all.is_empty(), "{} problems:\n{}", all.len(), all.join("\n"));
}

/// What the suites over all simulated conduits have: the [`SimConduit`], `conforms`, the tests over seeds, the
/// full suite, and that a deadlock names the ranks.
///
/// | field | is |
/// |---|---|
/// | the first | the name of the type, what it is called, machine, configuration, and the function that runs a program on both |
/// | `deadline` | when programs that poll for ever end, in nanoseconds of virtual time |
/// | `smallest`, `drawn` | the functions of [`SimConduit`] |
/// | `seeds` | how many seeds the quick test tries |
/// | `full` | names and configurations of the full suite, and its machine by the number of ranks |
/// | `deadlocks` | machines of three ranks and configurations, on which a wait for nothing is a deadlock |
///
/// The crate depends on `fabric_sim`; `AM_CONFORMANCE_FIRST` and `AM_CONFORMANCE_SEEDS` choose the seeds of the
/// `many_seeds` test.
#[macro_export]
macro_rules! sim_suite {
    (
        $conduit:ident, $name:literal, $machine:ident, $config:ident, $run:path;
        deadline: $deadline:expr, smallest: $smallest:expr, drawn: $drawn:path, seeds: $seeds:expr,
        full: $full:expr, on: $full_machine:expr, deadlocks: $deadlocks:expr $(,)?
    ) => {
        struct $conduit;

        impl $crate::SimConduit for $conduit {
            const NAME: &str = $name;
            type Machine = $machine;
            type Config = $config;

            fn smallest(config: &$config) -> $config {
                let smallest: fn(&$config) -> $config = $smallest;
                smallest(config)
            }

            fn drawn(draw: &mut $crate::Draw, seed: u64, ranks: u32) -> ($machine, $config) {
                $drawn(draw, seed, ranks)
            }

            fn run(
                case: &$crate::Description,
                machine: $machine,
                config: &$config,
                world: &$crate::World,
            ) -> Vec<String> {
                let machine = $machine { deadline_ns: $deadline, ..machine };
                let (case, world) = (*case, *world);
                let outcome = $run(&machine, config, move |transport| $crate::play_part(&case, &world, transport));
                $crate::problems(outcome.map(|report| report.results))
            }
        }

        fn conforms(what: &str, ranks: &[u32], config: &$config, machine: impl Fn(u32) -> $machine) {
            let plan = $crate::Plan::with_ranks($crate::Profile::Quick, ranks);
            $crate::run_simulated::<$conduit>(what, &plan, config, machine);
        }

        /// About a fifth of the cases, others for each variant: the first configuration runs all.
        fn conforms_in_part(what: &str, ranks: &[u32], config: &$config, machine: impl Fn(u32) -> $machine) {
            let plan = $crate::Plan::with_ranks($crate::Profile::Quick, ranks).sample(what);
            $crate::run_simulated::<$conduit>(what, &plan, config, machine);
        }

        #[test]
        fn some_seeds() {
            $crate::run_simulated_seeds::<$conduit>($crate::spread_seeds($seeds));
        }

        #[test]
        #[ignore = "a thousand seeds take minutes"]
        fn many_seeds() {
            $crate::run_simulated_seeds::<$conduit>($crate::chosen_seeds(1000));
        }

        #[test]
        #[ignore = "the full profile takes minutes"]
        fn full() {
            for (what, config) in $full {
                let plan = $crate::Plan::with_ranks($crate::Profile::Full, &[1, 2, 3, 5, 8]);
                $crate::run_simulated::<$conduit>(what, &plan, &config, $full_machine);
            }
        }

        #[test]
        fn a_wait_for_nothing_is_a_deadlock_that_names_the_ranks() {
            for (machine, config) in $deadlocks {
                let outcome = $run(&machine, &config, |transport| $crate::wait_in_vain(transport));
                let Err(::fabric_sim::RunError::Deadlock(report)) = outcome else { panic!("{outcome:?}") };
                let ranks = report.waiting.iter().map(|waiting| waiting.rank);
                assert_eq!(ranks.collect::<Vec<_>>(), [0, 1, 2]);
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_name_their_rank() {
        let outcome: Result<_, String> = Ok(vec![Some(None), None, Some(Some("lost".into()))]);
        assert_eq!(problems(outcome), ["rank 2: lost"]);
        assert_eq!(problems(Err("deadlock")), ["deadlock"]);
    }

    #[test]
    fn neighbouring_seeds_differ_and_all_choices_come() {
        let mut seen = [[0; 4]; 7];
        for seed in 0..1000 {
            let mut draw = Draw::new(seed);
            seen[draw.of(7) as usize][draw.one(&[0, 1, 2, 3])] += 1;
        }
        assert!(seen.iter().flatten().all(|count| (10..80).contains(count)), "{seen:?}");
    }

    /// Each part of the list is drawn from, the calls at its end among them, and no case twice.
    #[test]
    fn few_seeds_are_of_all_kinds_of_cases() {
        for count in [1, 24, 30, 40, 82] {
            let (mut places, mut ranks) = (Vec::new(), [0; 9]);
            run_seeds(spread_seeds(count), |case, of, _, _| {
                places.push(descriptions().iter().position(|other| other == case).unwrap());
                ranks[of as usize] += 1;
                vec![]
            });
            assert_eq!(places[0], descriptions().len() - 1);
            let widest = descriptions().len().div_ceil(count as usize);
            assert!(places.is_sorted_by(|one, next| one > next && one - next <= widest), "{places:?}");
            assert!(*places.last().unwrap() < widest);
            let calls = places.iter().filter(|place| descriptions()[**place].name.starts_with("calls")).count();
            assert!(calls >= count as usize / 24, "{calls} cases of calls among {count}");
            assert!(count < 5 || [2, 3, 5, 8].iter().all(|of| ranks[*of] > 0), "{ranks:?}");
        }
    }

    #[test]
    #[should_panic(expected = "2 problems:\nseed 4, ")]
    fn a_problem_names_its_seed() {
        run_seeds(0..6, |_, _, _, seed| if seed < 4 { vec![] } else { vec!["wrong".into()] });
    }
}
