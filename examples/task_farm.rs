//! A task farm that steals: all tasks begin at rank 0, and ranks without work ask others for half of theirs.
//!
//! `cargo run --release --features calls --example task_farm -- --ranks 4`; `--help` lists the flags.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::calls::{CallEndpoint, CallError, Calls, Failure, Methods};
use active_messages::prelude::*;
use lab::workload::scramble;
use std::collections::VecDeque;

/// Numbers that one task looks at.
const PIECE: u64 = 256;

#[derive(Default)]
struct Farm {
    /// The first numbers of pieces.
    tasks: VecDeque<u64>,
    /// At rank 0: pieces that are done, and the sum of their results.
    done: u64,
    sum: u64,
    over: bool,
}

struct TaskFarm {
    tasks: u64,
    json: bool,
}

/// Collatz steps of the numbers of a piece: an uneven amount of work.
fn work(first: u64) -> u64 {
    let steps = |number: u64| {
        let next = |n: &u64| (*n != 1).then(|| if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 });
        std::iter::successors(Some(number), next).count() as u64
    };
    (first + 1..=first + PIECE).map(steps).sum()
}

impl Program for TaskFarm {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut methods = Methods::<Farm>::new();
        let steal = methods.function("steal", |farm: &mut Farm, _, ()| {
            let keep = farm.tasks.len().div_ceil(2);
            Ok::<Vec<u64>, Failure>(farm.tasks.split_off(keep).into())
        })?;
        let done = methods.function("done", |farm: &mut Farm, _, (pieces, sum): (u64, u64)| {
            farm.done += pieces;
            farm.sum += sum;
            Ok::<(), Failure>(())
        })?;
        let over = methods.function("over", |farm: &mut Farm, _, ()| {
            farm.over = true;
            Ok::<(), Failure>(())
        })?;
        let mut handlers = Handlers::new();
        let calls = Calls::register(&mut handlers, methods, Farm::default())?;
        let mut endpoint = rank.attach(handlers, calls)?;
        let (me, ranks, all) = (endpoint.rank(), endpoint.ranks(), self.tasks);
        if me == Rank(0) {
            endpoint.layer_mut::<Calls<Farm>>().world_mut().tasks.extend((0..all).map(|task| task * PIECE));
        }
        endpoint.barrier()?;
        let start = endpoint.now();
        let stolen = endpoint.run(|context| async move {
            let (mut stolen, mut tries, mut pieces, mut sum) = (0u64, u64::from(me.0), 0u64, 0u64);
            while !context.with(|farm| farm.over) {
                if let Some(task) = context.with(|farm| farm.tasks.pop_front()) {
                    sum += work(task);
                    pieces += 1;
                    // Others are served between two tasks.
                    context.sleep(Span::from_nanos(1)).await;
                    continue;
                }
                if pieces != 0 {
                    context.call(Rank(0), done, &(pieces, sum)).await?;
                    (pieces, sum) = (0, 0);
                }
                if me == Rank(0) && context.with(|farm| farm.done) == all {
                    for ended in context.call_each((0..ranks).map(Rank), over, &()).await {
                        ended?;
                    }
                    break;
                }
                tries += u64::from(ranks);
                let victim = Rank((scramble(tries) % u64::from(ranks)) as u32);
                let tasks = if victim == me { Vec::new() } else { context.call(victim, steal, &()).await? };
                stolen += tasks.len() as u64;
                if tasks.is_empty() {
                    context.sleep(Span::from_micros(5)).await;
                }
                context.with(|farm| farm.tasks.extend(tasks));
            }
            Ok::<u64, CallError>(stolen)
        })??;
        let time = endpoint.now() - start;
        let mine = endpoint.caller();
        let farm = endpoint.finish()?;
        if me != Rank(0) {
            return Ok(());
        }
        let expected: u64 = (0..all).map(|task| work(task * PIECE)).sum();
        let errors = farm.world().sum.abs_diff(expected) + farm.world().done.abs_diff(all) + mine.held() as u64;
        let report = Report::new("task_farm", ranks, time).work(all as f64, "tasks/s").errors(errors);
        report.with("stolen_by_rank_0", stolen as f64).print(self.json)
    }
}

fn main() -> std::process::ExitCode {
    let mut flags = Flags::new("Tasks that idle ranks steal from busy ones.", Options::new().default_ranks(3));
    let tasks = flags.value("--tasks", "N", 10_000u64, "tasks in all");
    flags.require(tasks <= 1 << 32, "--tasks is at most 2^32, of which each takes 8 bytes of memory");
    let json = flags.json();
    flags.run(TaskFarm { tasks, json })
}
