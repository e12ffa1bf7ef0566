//! A hash table that is spread over all ranks: every rank inserts, then looks up what the others have inserted.
//!
//! `cargo run --release --example hash_table -- --ranks 4 --backend udp`; `--help` lists the flags.
//! A copy of this program takes `scramble`, one function of `crates/lab/src/workload/mod.rs`, along.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::pgas::aggregate::Emitter;
use active_messages::pgas::prelude::*;
use active_messages::prelude::*;
use lab::workload::scramble;
use std::collections::HashMap;

struct HashTable {
    entries: u64,
    json: bool,
}

struct State {
    pgas: Pgas,
    /// The entries whose keys this rank owns.
    entries: HashMap<u64, u64>,
    /// Right and wrong answers to this rank's look-ups.
    right: u64,
    wrong: u64,
    errors: u64,
}
pgas_state!(State, pgas);

/// What is stored under a key.
fn value(key: u64) -> u64 {
    scramble(key ^ 0xdead_beef)
}

/// An answer where there is no entry: no value is 0, since only one number is scrambled to that.
const MISSING: u64 = 0;

impl Program for HashTable {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut handlers = Handlers::<State>::new();
        let mut pgas = Pgas::register(&mut handlers)?;
        let config = AggregatorConfig::new();
        let insert = |state: &mut State, entries: &[[u64; 2]]| {
            state.entries.extend(entries.iter().map(|[key, value]| (*key, *value)));
        };
        let insert = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "insert", config, insert)?;
        let found = |state: &mut State, _: Rank, answers: &[[u64; 2]]| {
            for [key, answer] in answers {
                // Keys above the half were never inserted.
                let expected = if *key >> 63 == 0 { value(*key) } else { MISSING };
                *if *answer == expected { &mut state.right } else { &mut state.wrong } += 1;
            }
        };
        let found = Aggregator::register(&rank, &mut pgas, &mut handlers, "found", config, found)?;
        let find = |state: &mut State, from, keys: &[u64], answers: &mut Emitter<'_, [u64; 2]>| {
            for key in keys {
                let value = state.entries.get(key).copied().unwrap_or(MISSING);
                answers.push(from, [*key, value]).expect("one answer to each key");
            }
        };
        let find = Aggregator::register_answering(&rank, &mut pgas, &mut handlers, "find", config, found, find)?;
        let sum = |state: &mut State, errors: &[u64]| state.errors += errors.iter().sum::<u64>();
        let sum = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "sum", config, sum)?;
        let state = State { pgas, entries: HashMap::new(), right: 0, wrong: 0, errors: 0 };
        let mut endpoint = rank.attach(handlers, state)?;
        let (me, ranks) = (endpoint.rank(), endpoint.ranks());

        let owner = |key: u64| Rank((scramble(key) % u64::from(ranks)) as u32);
        let keys = |rank: u32| {
            let first = u64::from(rank) * self.entries;
            (first..first + self.entries).map(|number| scramble(number) >> 1)
        };
        endpoint.barrier()?;
        let start = endpoint.now();
        endpoint.push_all(insert, keys(me.0).map(|key| (owner(key), [key, value(key)])))?;
        endpoint.done(insert)?;
        // What the next rank has inserted, and as many keys that nobody has.
        let present = keys((me.0 + 1) % ranks);
        let wanted = present.flat_map(|key| [key, key | 1 << 63]).map(|key| (owner(key), key));
        endpoint.push_all(find, wanted)?;
        endpoint.done(find)?;
        endpoint.done(found)?;
        let time = endpoint.now() - start;

        let state = endpoint.state();
        let errors = state.wrong + (2 * self.entries).abs_diff(state.right + state.wrong);
        endpoint.push(sum, Rank(0), errors)?;
        endpoint.done(sum)?;
        let errors = endpoint.finish()?.errors;
        if me != Rank(0) {
            return Ok(());
        }
        let operations = 3.0 * self.entries as f64 * f64::from(ranks);
        let report = Report::new("hash_table", ranks, time).work(operations, "operations/s").errors(errors);
        report.with("entries_per_rank", self.entries as f64).print(self.json)
    }
}

fn main() -> std::process::ExitCode {
    let mut flags = Flags::new("Inserts into a distributed hash table and looks up.", Options::new());
    let entries = flags.value("--entries", "N", 1u64 << 18, "entries that every rank inserts");
    // Entries, and the room that their table keeps to grow.
    flags.memory("--entries", entries, entries.saturating_mul(34));
    flags.require(entries <= 1 << 32, "--entries is at most 2^32");
    let json = flags.json();
    flags.run(HashTable { entries, json })
}
