//! Index gather: every rank reads many random elements of an array that is spread over all ranks (bale's `ig`).
//!
//! Questions travel by one aggregator, and the function that handles them answers by another.
//!
//! `cargo run --release --example index_gather -- --ranks 4 --backend udp`; `--help` lists the flags.
//! A copy of this program takes `scramble`, one function of `crates/lab/src/workload/mod.rs`, along.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::pgas::aggregate::Emitter;
use active_messages::pgas::prelude::*;
use active_messages::prelude::*;
use lab::workload::scramble;

struct IndexGather {
    elements: u64,
    reads: u64,
    json: bool,
}

struct State {
    pgas: Pgas,
    /// This rank's elements of the array.
    elements: Vec<u64>,
    /// What has been read, by question.
    read: Vec<u64>,
    errors: u64,
}
pgas_state!(State, pgas);

/// Which of its reads a rank asks for, and which of the owner's elements that is.
type Question = [u32; 2];
/// Which of its reads a rank asked for, and the element.
type Answer = [u64; 2];

impl Program for IndexGather {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut handlers = Handlers::<State>::new();
        let mut pgas = Pgas::register(&mut handlers)?;
        let config = AggregatorConfig::new();
        let store = |state: &mut State, _: Rank, answers: &[Answer]| {
            answers.iter().for_each(|[read, element]| state.read[*read as usize] = *element);
        };
        let answer = Aggregator::register(&rank, &mut pgas, &mut handlers, "answer", config, store)?;
        let load = |state: &mut State, from, questions: &[Question], answers: &mut Emitter<'_, Answer>| {
            for [read, index] in questions {
                let element = state.elements[*index as usize];
                answers.push(from, [u64::from(*read), element]).expect("one answer to each question");
            }
        };
        let ask = Aggregator::register_answering(&rank, &mut pgas, &mut handlers, "ask", config, answer, load)?;
        let sum = |state: &mut State, errors: &[u64]| state.errors += errors.iter().sum::<u64>();
        let sum = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "sum", config, sum)?;

        // Element `e` of the whole array is element `e / ranks` of rank `e % ranks`.
        let (me, ranks) = (u64::from(rank.address().rank.0), u64::from(rank.shape().ranks));
        let elements = (0..self.elements).map(|index| scramble(index * ranks + me)).collect();
        let state = State { pgas, elements, read: vec![0; self.reads as usize], errors: 0 };
        let mut endpoint = rank.attach(handlers, state)?;
        let index = |read: u64| scramble(!(me * self.reads + read)) % (self.elements * ranks);

        endpoint.barrier()?;
        let start = endpoint.now();
        endpoint.push_all(
            ask,
            (0..self.reads).map(|read| {
                let index = index(read);
                (Rank((index % ranks) as u32), [read as u32, (index / ranks) as u32])
            }),
        )?;
        // Once all questions have been handled, all answers have been pushed.
        endpoint.done(ask)?;
        endpoint.done(answer)?;
        let time = endpoint.now() - start;

        let wrong = (0..self.reads).filter(|read| endpoint.state().read[*read as usize] != scramble(index(*read)));
        let wrong = wrong.count() as u64;
        endpoint.push(sum, Rank(0), wrong)?;
        endpoint.done(sum)?;
        let (first, errors) = (endpoint.rank() == Rank(0), endpoint.finish()?.errors);
        if !first {
            return Ok(());
        }
        let report = Report::new("index_gather", ranks as u32, time).errors(errors);
        report
            .work((self.reads * ranks) as f64, "reads/s")
            .with("elements_per_rank", self.elements as f64)
            .print(self.json)
    }
}

fn main() -> std::process::ExitCode {
    let mut flags = Flags::new("Reads random elements of an array that is spread over all ranks.", Options::new());
    let elements = flags.value("--elements", "N", 1u64 << 20, "elements of every rank");
    let reads = flags.value("--reads", "N", 1u64 << 21, "elements that every rank reads");
    flags.memory("--elements", elements, elements.saturating_mul(8));
    flags.memory("--reads", reads, reads.saturating_mul(8));
    flags.require(
        elements > 0 && elements.max(reads) <= 1 << 32,
        "--elements is from 1 to 2^32, and --reads at most 2^32",
    );
    let json = flags.json();
    flags.run(IndexGather { elements, reads, json })
}
