//! Topological sort: brings a permuted triangular matrix that is spread over all ranks into triangular form again
//! (bale's `toposort`). A row with a single entry left is a pivot: it and the entry's column come next, and the
//! column's entries vanish from the other rows, which makes new pivots. Rows know how many entries they have left
//! and the sum of these entries' columns, so that a pivot knows its column.
//!
//! `cargo run --release --example topological_sort -- --ranks 4`; `--help` lists the flags. A copy takes along
//! `triangular.rs` of `crates/lab/src/workload`, and `scramble` of the `mod.rs` there.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::pgas::Team;
use active_messages::pgas::collectives::Sum;
use active_messages::pgas::prelude::*;
use active_messages::prelude::*;
use lab::workload::Triangular;

struct TopologicalSort {
    matrix: Triangular,
    json: bool,
}

/// A row: its entries that are left, the sum of their columns, and its level once it is a pivot.
#[derive(Clone, Default)]
struct Row {
    left: u32,
    columns: u64,
    level: Option<u32>,
}

struct State {
    pgas: Pgas,
    /// This rank's rows: row `r` is row `r / ranks` of rank `r % ranks`.
    rows: Vec<Row>,
    /// For each of this rank's columns: the rows that have an entry there, and its level.
    columns: Vec<(Vec<u32>, u32)>,
    /// Rows that have a single entry left, and columns of pivots.
    pivots: Vec<u32>,
    eliminated: Vec<u32>,
    depth: u32,
    errors: u64,
}
pgas_state!(State, pgas);

impl Program for TopologicalSort {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut handlers = Handlers::<State>::new();
        let mut pgas = Pgas::register(&mut handlers)?;
        let (me, ranks) = (rank.address().rank.0, rank.shape().ranks);
        let (owner, local) =
            (move |number: u32| Rank(number % ranks), move |number: u32| (number / ranks) as usize);
        let config = AggregatorConfig::new();
        let by_row = move |state: &mut State, entries: &[[u32; 2]]| {
            for [row, column] in entries {
                let row = &mut state.rows[local(*row)];
                (row.left, row.columns) = (row.left + 1, row.columns + u64::from(*column));
            }
        };
        let by_row = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "by_row", config, by_row)?;
        let by_column = move |state: &mut State, entries: &[[u32; 2]]| {
            entries.iter().for_each(|[row, column]| state.columns[local(*column)].0.push(*row));
        };
        let by_column =
            Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "by_column", config, by_column)?;
        let eliminate = move |state: &mut State, columns: &[u32]| {
            for column in columns {
                state.columns[local(*column)].1 = state.depth;
                state.eliminated.push(*column);
            }
        };
        let eliminate =
            Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "eliminate", config, eliminate)?;
        let shorten = move |state: &mut State, entries: &[[u32; 2]]| {
            for [number, column] in entries {
                let row = &mut state.rows[local(*number)];
                (row.left, row.columns) = (row.left - 1, row.columns - u64::from(*column));
                if row.left == 1 {
                    state.pivots.push(*number);
                }
            }
        };
        let shorten = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "shorten", config, shorten)?;
        // No entry of a row may come at a later level than the row's own.
        let check = move |state: &mut State, entries: &[[u32; 2]]| {
            let late = |[row, level]: &&[u32; 2]| state.rows[local(*row)].level.is_none_or(|own| *level > own);
            state.errors += entries.iter().filter(late).count() as u64;
        };
        let check = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "check", config, check)?;

        let own = (self.matrix.rows as u32 - me).div_ceil(ranks) as usize;
        let (rows, columns) = (vec![Row::default(); own], vec![(Vec::new(), u32::MAX); own]);
        let (pivots, eliminated) = (Vec::new(), Vec::new());
        let state = State { pgas, rows, columns, pivots, eliminated, depth: 0, errors: 0 };
        let mut endpoint = rank.attach(handlers, state)?;
        let world = Team::world(&mut endpoint)?;
        let entries = || self.matrix.entries(me, ranks);
        let mine = endpoint.push_all(by_row, entries().map(|entry| (owner(entry[0]), entry)))?;
        endpoint.push_all(by_column, entries().map(|entry| (owner(entry[1]), entry)))?;
        endpoint.done(by_row)?;
        endpoint.done(by_column)?;
        let total = world.allreduce_one(&mut endpoint, mine, Sum)?;

        let start = endpoint.now();
        let single = (0..own).filter(|row| endpoint.state().rows[*row].left == 1);
        let mut pivots: Vec<u32> = single.map(|row| row as u32 * ranks + me).collect();
        while world.allreduce_one(&mut endpoint, pivots.len() as u64, Sum)? > 0 {
            for row in pivots.drain(..) {
                let (depth, row) = (endpoint.state().depth, &mut endpoint.state_mut().rows[local(row)]);
                row.level = Some(depth);
                let column = row.columns as u32;
                endpoint.push(eliminate, owner(column), column)?;
            }
            endpoint.done(eliminate)?;
            let depth = endpoint.state().depth;
            for column in std::mem::take(&mut endpoint.state_mut().eliminated) {
                let rows = endpoint.state().columns[local(column)].0.clone();
                endpoint.push_all(shorten, rows.into_iter().map(|row| (owner(row), [row, column])))?;
            }
            endpoint.done(shorten)?;
            let state = endpoint.state_mut();
            (state.depth, pivots) = (depth + 1, std::mem::take(&mut state.pivots));
        }
        let time = endpoint.now() - start;

        for index in 0..own {
            let (rows, level) = endpoint.state().columns[index].clone();
            endpoint.push_all(check, rows.into_iter().map(|row| (owner(row), [row, level])))?;
        }
        endpoint.done(check)?;
        let (mine, depth) = (endpoint.state().errors, endpoint.state().depth);
        let errors = world.allreduce_one(&mut endpoint, mine, Sum)?;
        endpoint.finish()?;
        if me != 0 {
            return Ok(());
        }
        let report = Report::new("topological_sort", ranks, time).work(total as f64, "entries/s").errors(errors);
        report.with("rows", self.matrix.rows as f64).with("levels", depth).print(self.json)
    }
}

fn main() -> std::process::ExitCode {
    let mut flags = Flags::new("Sorts a distributed matrix topologically.", Options::new());
    let log2 = flags.value("--log2-rows", "N", 14u32, "binary logarithm of the number of rows");
    let per_row = flags.value("--per-row", "N", 8u64, "entries of each row before the diagonal, at most");
    let fits = log2 < 32 && flags.ranks() <= 1 << log2.min(31);
    flags.require(fits, "--log2-rows is at most 31, with a row for each rank");
    let (rows, ranks) = (1u64 << log2.min(31), u64::from(flags.ranks().max(1)));
    flags.memory("--per-row", per_row, per_row.saturating_mul(4).saturating_add(56).saturating_mul(rows / ranks));
    let json = flags.json();
    flags.run(TopologicalSort { matrix: Triangular { rows, per_row }, json })
}
