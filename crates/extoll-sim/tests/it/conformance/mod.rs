//! The conformance suite over both conduits: without faults, with them, over several machines, and over machines
//! drawn from seeds.
//!
//! `AM_CONFORMANCE_FIRST=7 AM_CONFORMANCE_SEEDS=1` chooses the seeds of the `many_seeds` tests (`-- --ignored`).

mod gasnet;
mod machines;
mod pscom;

use am_conformance::{Buffers, Description, Draw, Plan, Profile, World, run_seeds, run_with};
use extoll_sim::ExtollConfig;
use std::ops::Range;

/// Programs that poll for ever end here, in nanoseconds of virtual time.
const DEADLINE: f64 = 2e10;

/// A conduit, as far as the suite has to know it.
trait Conduit {
    /// Its name.
    const NAME: &str;
    /// How it can be configured.
    type Config: Clone;

    /// The same with buffers as small as they can be.
    fn smallest(config: &Self::Config) -> Self::Config;

    /// A configuration for a machine, drawn from a seed.
    fn drawn(draw: &mut Draw, machine: &ExtollConfig) -> Self::Config;

    /// Runs all ranks of a case; returns what they found wrong.
    fn run(case: &Description, machine: &ExtollConfig, config: &Self::Config, world: &World) -> Vec<String>;
}

fn play<C: Conduit>(case: &Description, machine: ExtollConfig, config: &C::Config, world: &World) -> Vec<String> {
    let smallest = (case.needs.buffers == Buffers::Smallest).then(|| C::smallest(config));
    C::run(case, &ExtollConfig { deadline_ns: DEADLINE, ..machine }, smallest.as_ref().unwrap_or(config), world)
}

/// Runs the suite with some numbers of ranks, unless the environment says which.
fn suite<C: Conduit>(
    what: &str,
    (profile, ranks): (Profile, &[u32]),
    config: &C::Config,
    machine: impl Fn(u32) -> ExtollConfig,
) {
    let plan = Plan::with_ranks(profile, ranks);
    let name = format!("{} {what}", C::NAME);
    run_with(name, &plan, |case, ranks, world| play::<C>(case, machine(ranks), config, world)).check();
}

/// Another machine, other sizes and other faults for every seed.
fn seeds<C: Conduit>(seeds: Range<u64>) {
    run_seeds(seeds, |case, ranks, world, seed| {
        let mut draw = Draw::new(seed);
        let machine = machines::drawn(&mut draw, seed, ranks);
        let config = C::drawn(&mut draw, &machine);
        play::<C>(case, machine, &config, world)
    });
}
