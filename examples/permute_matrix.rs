//! Permutation of a sparse matrix: rows and columns of a matrix that is spread over all ranks get new numbers
//! (bale's `permute_matrix`).
//!
//! The permutations are spread over the ranks, too. A rank knows the new numbers of its rows, asks for those of
//! the columns that occur in them, and sends each entry to the owner of its new row.
//!
//! `cargo run --release --example permute_matrix -- --ranks 4`; `--help` lists the flags.
//! A copy of this program takes `scramble`, one function of `crates/lab/src/workload/mod.rs`, along.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::pgas::aggregate::Emitter;
use active_messages::pgas::prelude::*;
use active_messages::prelude::*;
use lab::workload::scramble;

struct PermuteMatrix {
    rows: u64,
    per_row: u64,
    json: bool,
}

struct State {
    pgas: Pgas,
    /// New numbers of this rank's columns: column `c` is column `c / ranks` of rank `c % ranks`.
    columns: Vec<u32>,
    /// The new columns of this rank's entries, in their order.
    moved: Vec<u32>,
    /// The entries of the permuted matrix: new row, new column.
    permuted: Vec<[u32; 2]>,
    sums: [u64; 2],
}
pgas_state!(State, pgas);

impl PermuteMatrix {
    /// Entry `number` of a row lies in this column; several may lie in the same.
    fn column(&self, row: u64, number: u64) -> u32 {
        (scramble(row * self.per_row + number) % self.rows) as u32
    }

    /// The new number of a row or column: numbers below a power of two are permuted by multiplication with an odd
    /// number and an offset. `back` undoes it.
    fn permutation(&self, odd: u64, offset: u64, number: u64, back: bool) -> u64 {
        let mask = self.rows - 1;
        if !back {
            return number.wrapping_mul(odd).wrapping_add(offset) & mask;
        }
        // Newton's iteration doubles the bits of the inverse that are right.
        let inverse = (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))));
        number.wrapping_sub(offset).wrapping_mul(inverse) & mask
    }

    fn row(&self, number: u64, back: bool) -> u64 {
        self.permutation(0x9e37_79b1, 777, number, back)
    }

    fn new_column(&self, number: u64, back: bool) -> u64 {
        self.permutation(0x85eb_ca6b, 4242, number, back)
    }
}

impl Program for PermuteMatrix {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut handlers = Handlers::<State>::new();
        let mut pgas = Pgas::register(&mut handlers)?;
        let config = AggregatorConfig::new();
        let known = |state: &mut State, answers: &[[u32; 2]]| {
            answers.iter().for_each(|[entry, column]| state.moved[*entry as usize] = *column);
        };
        let known = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "known", config, known)?;
        let ask = |state: &mut State, from, questions: &[[u32; 2]], answers: &mut Emitter<'_, [u32; 2]>| {
            for [entry, column] in questions {
                answers
                    .push(from, [*entry, state.columns[*column as usize]])
                    .expect("one answer to each question");
            }
        };
        let ask = Aggregator::register_answering(&rank, &mut pgas, &mut handlers, "ask", config, known, ask)?;
        let place = |state: &mut State, entries: &[[u32; 2]]| state.permuted.extend(entries);
        let place = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "place", config, place)?;
        let sum = |state: &mut State, sums: &[[u64; 2]]| {
            sums.iter()
                .for_each(|[errors, entries]| state.sums = [state.sums[0] + errors, state.sums[1] + entries]);
        };
        let sum = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "sum", config, sum)?;

        let (me, ranks) = (u64::from(rank.address().rank.0), u64::from(rank.shape().ranks));
        let own = || (me..self.rows).step_by(ranks as usize);
        let entries: Vec<[u64; 2]> = own()
            .flat_map(|row| (0..self.per_row).map(move |number| [row, u64::from(self.column(row, number))]))
            .collect();
        let columns = own().map(|column| self.new_column(column, false) as u32).collect();
        let moved = vec![u32::MAX; entries.len()];
        let mut endpoint =
            rank.attach(handlers, State { pgas, columns, moved, permuted: Vec::new(), sums: [0; 2] })?;
        let owner = |number: u64| Rank((number % ranks) as u32);

        endpoint.barrier()?;
        let start = endpoint.now();
        let questions = entries.iter().enumerate();
        endpoint.push_all(
            ask,
            questions.map(|(entry, [_, column])| (owner(*column), [entry as u32, (column / ranks) as u32])),
        )?;
        endpoint.done(ask)?;
        endpoint.done(known)?;
        let moved = std::mem::take(&mut endpoint.state_mut().moved);
        let placed = entries.iter().zip(&moved).map(|([row, _], column)| (self.row(*row, false), *column));
        endpoint.push_all(place, placed.map(|(row, column)| (owner(row), [row as u32, column])))?;
        endpoint.done(place)?;
        let time = endpoint.now() - start;

        // Each entry that has arrived was one of the matrix, as often as it occurs there.
        let mut found = std::mem::take(&mut endpoint.state_mut().permuted);
        let mut expected: Vec<[u32; 2]> = own()
            .map(|row| (row, self.row(row, true)))
            .flat_map(|(row, old)| (0..self.per_row).map(move |number| (row, self.column(old, number))))
            .map(|(row, column)| [row as u32, self.new_column(column.into(), false) as u32])
            .collect();
        found.sort_unstable();
        expected.sort_unstable();
        let wrong = found.iter().zip(&expected).filter(|(found, due)| found != due).count();
        let errors = (wrong + found.len().abs_diff(expected.len())) as u64;
        endpoint.push(sum, Rank(0), [errors, found.len() as u64])?;
        endpoint.done(sum)?;
        let [errors, entries] = endpoint.finish()?.sums;
        if me != 0 {
            return Ok(());
        }
        let errors = errors + entries.abs_diff(self.rows * self.per_row);
        let report =
            Report::new("permute_matrix", ranks as u32, time).work(entries as f64, "entries/s").errors(errors);
        report.with("rows", self.rows as f64).with("per_row", self.per_row as f64).print(self.json)
    }
}

fn main() -> std::process::ExitCode {
    let mut flags = Flags::new("Permutes a distributed sparse matrix.", Options::new());
    let log2 = flags.value("--log2-rows", "N", 16u32, "binary logarithm of the number of rows and columns");
    let per_row = flags.value("--per-row", "N", 16u64, "entries of each row");
    flags.require((0..32).contains(&log2), "--log2-rows is at most 31");
    // An entry is made, moved, and checked.
    let entries = per_row.saturating_mul(1 << log2.min(31)) / u64::from(flags.ranks().max(1));
    flags.memory("--per-row", per_row, entries.saturating_mul(36));
    let json = flags.json();
    flags.run(PermuteMatrix { rows: 1 << log2.min(31), per_row, json })
}
