//! A key-value service: every rank keeps a part of the entries and asks the others for theirs, by typed calls with
//! time-outs.
//!
//! `cargo run --release --features calls --example kv_service -- --ranks 4 --lose`; `--help` lists the flags.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::calls::{CallEndpoint, CallError, Calls, Failure, Methods, join};
use active_messages::prelude::*;
use lab::workload::scramble;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::{fmt, process};

#[derive(Serialize, Deserialize)]
struct Entry {
    key: String,
    value: Vec<u64>,
}

/// Why the service does not do what it is asked.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Refused {
    Missing { key: String },
    Empty,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[derive(Default)]
struct Service {
    entries: HashMap<String, Vec<u64>>,
    done: u32,
    errors: u64,
    over: bool,
}

struct KeyValue {
    entries: u64,
    lose: bool,
    json: bool,
}

/// An entry of a rank, and the rank that keeps it.
fn entry(from: Rank, number: u64, ranks: u32) -> (Rank, Entry) {
    let hash = scramble(u64::from(from.0) << 32 | number);
    let value = (0..number % 12 + 1).map(|index| hash ^ index).collect();
    (Rank((hash % u64::from(ranks)) as u32), Entry { key: format!("entry {number} of rank {from}"), value })
}

impl Program for KeyValue {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut methods = Methods::<Service>::new();
        let put = methods.function("put", |service: &mut Service, _, Entry { key, value }| match value[..] {
            [] => Err(Refused::Empty),
            _ => Ok(service.entries.insert(key, value)),
        })?;
        let get = methods.function("get", |service: &mut Service, _, key: String| {
            service.entries.get(&key).cloned().ok_or(Refused::Missing { key })
        })?;
        let stuck = methods.asynchronous("stuck", |_, ()| std::future::pending::<Result<(), Failure>>())?;
        let done = methods.function("done", |service: &mut Service, _, errors: u64| {
            service.done += 1;
            service.errors += errors;
            Ok::<(), Failure>(())
        })?;
        let process = methods.function("process", |_, _, ()| Ok::<_, Failure>(process::id()))?;
        let over = methods.function("over", |service: &mut Service, _, ()| {
            service.over = true;
            Ok::<(), Failure>(())
        })?;
        let mut handlers = Handlers::new();
        let calls = Calls::register(&mut handlers, methods, Service::default())?;
        let mut endpoint = rank.attach(handlers, calls)?;
        let (me, ranks, count) = (endpoint.rank(), endpoint.ranks(), self.entries);
        let (victim, lose) = (Rank(ranks - 1), self.lose && ranks > 1);
        let right = Rank((me.0 + 1) % ranks);

        endpoint.barrier()?;
        let start = endpoint.now();
        let mut wrong = endpoint.run(|context| async move {
            let own = (0..count).map(|number| entry(me, number, ranks));
            let puts = join(32, own.map(|(to, entry)| context.call(to, put, &entry))).await;
            puts.iter().filter(|outcome| **outcome != Ok(None)).count()
        })?;
        endpoint.barrier()?;
        wrong += endpoint.run(|context| async move {
            let caller = context.timeout(Span::from_secs(60));
            let others = (0..count).map(|number| entry(right, number, ranks));
            let gets =
                others.map(async |(to, Entry { key, value })| caller.call(to, get, &key).await == Ok(value));
            let wrong = join(32, gets).await.iter().filter(|right| !**right).count();
            // What the service refuses, and what takes too long.
            let key = String::from("nothing");
            let missing = caller.call(right, get, &key).await;
            let late = context.timeout(Span::from_micros(200)).call(right, stuck, &()).await;
            let as_expected = missing == Err(CallError::Failed(Refused::Missing { key }))
                && matches!(late, Err(CallError::TimedOut { .. }));
            wrong + usize::from(!as_expected)
        })?;
        let time = endpoint.now() - start;
        endpoint.barrier()?;
        if lose {
            // Ranks that share a process can not be killed alone.
            let apart = endpoint.call(Rank(0), process, &()).wait(&mut endpoint)? != process::id();
            if me == victim {
                // It ends without a word to anyone, once the others have got here.
                endpoint.serve_until(|service| service.done == ranks - 1)?;
                if apart {
                    kill();
                }
                drop(endpoint);
                return Ok(());
            }
            endpoint.caller().one_way(victim, done, &0)?;
            // Its entries are lost: the others go on.
            let outcome = endpoint.call(victim, stuck, &()).wait(&mut endpoint);
            wrong += usize::from(!matches!(outcome, Err(CallError::RankLost { rank, .. }) if rank == victim));
            endpoint.acknowledge_loss(victim);
        }
        let survivors = if lose { ranks - 1 } else { ranks };
        endpoint.call(Rank(0), done, &(wrong as u64)).wait(&mut endpoint)?;
        if me == Rank(0) {
            endpoint.serve_until(|service| service.done == survivors)?;
            endpoint.caller().call_each((0..survivors).map(Rank), over, &()).wait(&mut endpoint);
        }
        endpoint.serve_until(|service| service.over)?;
        let service = endpoint.leave();
        if me != Rank(0) {
            return Ok(());
        }
        let report = Report::new("kv_service", ranks, time).work(2.0 * count as f64 * f64::from(ranks), "calls/s");
        report.errors(service.world().errors).with("entries_per_rank", count as f64).print(self.json)
    }
}

/// Ends this process as the system does when memory runs out.
fn kill() -> ! {
    let me = process::id().to_string();
    let _ = process::Command::new("kill").args(["-KILL", &me]).status();
    process::abort()
}

fn main() -> process::ExitCode {
    let mut flags = Flags::new("A key-value service of typed calls.", Options::new().default_ranks(3));
    let entries = flags.value("--entries", "N", 10_000u64, "entries that every rank puts");
    let lose = flags
        .switch("--lose", "the last rank is killed amid the service; between processes, the job's code says so");
    flags.keep_going(lose);
    let json = flags.json();
    flags.run(KeyValue { entries, lose, json })
}
