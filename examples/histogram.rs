//! Histogram: every rank adds many small updates to a table that is spread over all ranks (bale's `histo`).
//!
//! `cargo run --release --example histogram -- --ranks 4 --backend udp`; `--help` lists the flags.
//! A copy of this program takes `scramble`, one function of `crates/lab/src/workload/mod.rs`, along.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::pgas::prelude::*;
use active_messages::prelude::*;
use lab::workload::scramble;

struct Histogram {
    bins: u64,
    updates: u64,
    json: bool,
}

struct State {
    pgas: Pgas,
    counts: Vec<u64>,
    errors: u64,
}
pgas_state!(State, pgas);

impl Histogram {
    /// The bins that a rank's updates count in.
    fn stream(&self, rank: u32, ranks: u32) -> impl Iterator<Item = u64> {
        let (bins, first) = (self.bins * u64::from(ranks), u64::from(rank) * self.updates);
        (first..first + self.updates).map(move |update| scramble(update) % bins)
    }
}

impl Program for Histogram {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut handlers = Handlers::<State>::new();
        let mut pgas = Pgas::register(&mut handlers)?;
        // Nobody needs to know whose update it is.
        let add = |state: &mut State, bins: &[u64]| {
            bins.iter().for_each(|bin| state.counts[*bin as usize] += 1);
        };
        let config = AggregatorConfig::new();
        let add = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "add", config, add)?;
        let sum = |state: &mut State, errors: &[u64]| state.errors += errors.iter().sum::<u64>();
        let sum = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "sum", config, sum)?;
        let state = State { pgas, counts: vec![0; self.bins as usize], errors: 0 };
        let mut endpoint = rank.attach(handlers, state)?;
        let (me, ranks) = (endpoint.rank(), endpoint.ranks());

        // Bin `b` of the whole table is bin `b / ranks` of rank `b % ranks`.
        let (owner, local) = (|bin| Rank((bin % u64::from(ranks)) as u32), |bin| bin / u64::from(ranks));
        endpoint.barrier()?;
        let start = endpoint.now();
        endpoint.push_all(add, self.stream(me.0, ranks).map(|bin| (owner(bin), local(bin))))?;
        endpoint.done(add)?;
        let time = endpoint.now() - start;

        // The same once more, without messages.
        let mut expected = vec![0; self.bins as usize];
        for bin in (0..ranks).flat_map(|rank| self.stream(rank, ranks)).filter(|bin| owner(*bin) == me) {
            expected[local(bin) as usize] += 1;
        }
        let wrong = endpoint.state().counts.iter().zip(&expected).filter(|(found, due)| found != due).count();
        endpoint.push(sum, Rank(0), wrong as u64)?;
        endpoint.done(sum)?;
        let errors = endpoint.finish()?.errors;
        if me != Rank(0) {
            return Ok(());
        }
        let updates = self.updates as f64 * f64::from(ranks);
        let report = Report::new("histogram", ranks, time).work(updates, "updates/s").errors(errors);
        report.with("bins_per_rank", self.bins as f64).print(self.json)
    }
}

fn main() -> std::process::ExitCode {
    let mut flags = Flags::new("Counts random numbers in a table that all ranks share.", Options::new());
    let bins = flags.value("--bins", "N", 1u64 << 20, "bins of every rank");
    let updates = flags.value("--updates", "N", 1u64 << 22, "updates that every rank makes");
    // What is counted, and what it is checked against.
    flags.memory("--bins", bins, bins.saturating_mul(16));
    flags.require((1..=1 << 40).contains(&bins), "--bins is 1 to 2^40");
    flags.require(updates <= 1 << 40, "--updates is at most 2^40");
    let json = flags.json();
    flags.run(Histogram { bins, updates, json })
}
