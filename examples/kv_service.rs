//! A key-value service: every rank keeps a part of the entries and asks the others for theirs, by typed calls.
//!
//! `cargo run --release --features calls --example kv_service -- --ranks 4 --lose`; `--help` lists the flags.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::calls::{CallEndpoint, CallError, Calls, Failure, Methods, join};
use active_messages::prelude::*;
use lab::workload::scramble;
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, process};

type Entry = (String, Vec<u64>);

/// There is no such entry.
#[derive(PartialEq, Serialize, Deserialize)]
struct Missing(String);

#[derive(Default)]
struct Service {
    entries: HashMap<String, Vec<u64>>,
    done: Vec<u64>,
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
    (Rank((hash % u64::from(ranks)) as u32), (format!("entry {number} of rank {from}"), value))
}

impl Program for KeyValue {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut methods = Methods::<Service>::new();
        let put = methods.function("put", |service: &mut Service, _, (key, value): Entry| {
            Ok::<_, Failure>(service.entries.insert(key, value))
        })?;
        let get = methods.function("get", |service: &mut Service, _, key: String| {
            service.entries.get(&key).cloned().ok_or(Missing(key))
        })?;
        let stuck = methods.asynchronous("stuck", |_, ()| std::future::pending::<Result<(), Failure>>())?;
        let done = methods.function("done", |service: &mut Service, _, errors: u64| {
            service.done.push(errors);
            Ok::<_, Failure>(process::id())
        })?;
        let over = methods.function("over", |service: &mut Service, _, ()| {
            service.over = true;
            Ok::<(), Failure>(())
        })?;
        let mut handlers = Handlers::new();
        let calls = Calls::register(&mut handlers, methods, Service::default())?;
        let mut endpoint = rank.attach(handlers, calls)?;
        let (me, ranks, count) = (endpoint.rank(), endpoint.ranks(), self.entries);
        let (victim, right) = (Rank(ranks - 1), Rank((me.0 + 1) % ranks));
        endpoint.barrier()?;
        let start = endpoint.now();
        let mut wrong = endpoint.run(|context| async move {
            let own = (0..count).map(|number| entry(me, number, ranks));
            let puts = own.map(|(to, entry)| context.call(to, put, &entry));
            join(32, puts).await.iter().filter(|outcome| **outcome != Ok(None)).count()
        })?;
        endpoint.barrier()?;
        wrong += endpoint.run(|context| async move {
            let others = (0..count).map(|number| entry(right, number, ranks));
            let gets = others.map(async |(to, (key, value))| context.call(to, get, &key).await == Ok(value));
            let wrong = join(32, gets).await.iter().filter(|right| !**right).count();
            // What the service refuses, and what takes too long.
            let missing = context.call(right, get, &"none".into()).await.is_err();
            let late = context.timeout(Span::from_micros(200)).call(right, stuck, &()).await;
            wrong + usize::from(!(missing && matches!(late, Err(CallError::TimedOut { .. }))))
        })?;
        let time = endpoint.now() - start;
        endpoint.barrier()?;
        if self.lose && me == victim {
            // It ends without a word, once the others have got here; ranks of one process can not be killed alone.
            let process = endpoint.call(Rank(0), done, &(wrong as u64)).wait(&mut endpoint)?;
            endpoint.serve_until(|service| service.done.len() == victim.0 as usize)?;
            if process != process::id() {
                process::Command::new("kill").args(["-KILL", &process::id().to_string()]).status()?;
            }
            return Ok(());
        } else if self.lose {
            endpoint.caller().one_way(victim, done, &0)?;
            // Its entries are lost: the others go on.
            let outcome = endpoint.call(victim, stuck, &()).wait(&mut endpoint);
            wrong += usize::from(!matches!(outcome, Err(CallError::RankLost { rank, .. }) if rank == victim));
            endpoint.acknowledge_loss(victim);
        }
        endpoint.call(Rank(0), done, &(wrong as u64)).wait(&mut endpoint)?;
        if me == Rank(0) {
            endpoint.serve_until(|service| service.done.len() == ranks as usize)?;
            let left = if self.lose { victim.0 } else { ranks };
            endpoint.caller().call_each((0..left).map(Rank), over, &()).wait(&mut endpoint);
        }
        endpoint.serve_until(|service| service.over)?;
        let service = endpoint.leave();
        if me != Rank(0) {
            return Ok(());
        }
        let report = Report::new("kv_service", ranks, time).work(2.0 * count as f64 * f64::from(ranks), "calls/s");
        report.errors(service.world().done.iter().sum()).with("entries_per_rank", count as f64).print(self.json)
    }
}

fn main() -> process::ExitCode {
    let mut flags = Flags::new("A key-value service of typed calls.", Options::new().default_ranks(3));
    let entries = flags.value("--entries", "N", 10_000u64, "entries that every rank puts");
    let lose = flags
        .switch("--lose", "the last rank is killed amid the service; between processes, the job's code says so");
    flags.require(!lose || flags.ranks() > 1, "--lose needs at least two ranks: --ranks 2");
    flags.keep_going(lose);
    let json = flags.json();
    flags.run(KeyValue { entries, lose, json })
}
