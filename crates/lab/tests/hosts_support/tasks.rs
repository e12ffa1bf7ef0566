//! Ranks whose programs are tasks of tokio ([`RankJob::attach_tokio`]): calls from many tasks, to drivers that
//! sleep before most of them, with `select!` and time-outs; and a rank that is killed amid calls.

use active_messages::calls::{CallError, Caller, Context, Failure, Method, Methods, StreamMethod};
use active_messages::launch::RankJob;
use active_messages::shm::JoinOptions;
use active_messages::{LossCause, Rank, Span};
use nix::sys::signal::{Signal, raise};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

/// Longer than a driver stays awake that has nothing to do.
const PARKED: Duration = Duration::from_millis(3);
/// Bytes of long requests: of several messages on every transport.
const LONG: usize = 300_000;
/// Calls of a task, and tasks of a rank.
const CALLS: u32 = 40;
const TASKS: u32 = 4;

#[derive(Default)]
struct Log {
    /// Requests received: who asked, and its number of the request.
    received: Vec<(u32, u32)>,
    ready: u32,
}

/// Counts futures that are over.
struct Guard(Arc<AtomicU32>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Clone, Copy)]
struct Handles {
    /// Answers one more, after so many microseconds.
    later: Method<(u32, u64), u32>,
    long: Method<(u32, Vec<u8>), u64>,
    never: Method<(), ()>,
    count: StreamMethod<u32, u32>,
    die: Method<(), ()>,
    ready: Method<(), ()>,
    readies: Method<(), u32>,
    /// How often each of these requests of the caller has come.
    received: Method<Vec<u32>, Vec<u32>>,
    /// Futures of `never` that have begun, and that are over.
    nevers: Method<(), (u32, u32)>,
}

fn methods() -> Result<(Methods<Log>, Handles), Box<dyn Error>> {
    let mut methods = Methods::<Log>::new();
    let later =
        methods.asynchronous("later", |context: Context<Log>, (number, micros): (u32, u64)| async move {
            let by = context.origin().source.rank.0;
            context.with(|log| log.received.push((by, number)));
            context.sleep(Span::from_micros(micros)).await;
            Ok::<_, Failure>(number + 1)
        })?;
    let long = methods.function("long", |log: &mut Log, origin, (number, bytes): (u32, Vec<u8>)| {
        log.received.push((origin.source.rank.0, number));
        Ok::<_, Failure>(bytes.iter().map(|byte| u64::from(*byte)).sum())
    })?;
    let (begun, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let counters = (Arc::clone(&begun), Arc::clone(&over));
    let never = methods.asynchronous("never", move |_, ()| {
        counters.0.fetch_add(1, Ordering::SeqCst);
        let guard = Guard(Arc::clone(&counters.1));
        async move {
            let _guard = guard;
            std::future::pending::<Result<(), Failure>>().await
        }
    })?;
    let nevers = methods.function("nevers", move |_, _, ()| {
        Ok::<_, Failure>((begun.load(Ordering::SeqCst), over.load(Ordering::SeqCst)))
    })?;
    let count = methods.stream("count", |context: Context<Log>, count: u32, mut sink| async move {
        for number in 0..count {
            if number % 8 == 7 {
                context.sleep(Span::from_micros(50)).await;
            }
            sink.send(&number).await?;
        }
        Ok::<(), Failure>(())
    })?;
    let die = methods.function("die", |_, _, ()| {
        let _ = raise(Signal::SIGKILL);
        Ok::<(), Failure>(())
    })?;
    let ready = methods.function("ready", |log: &mut Log, _, ()| {
        log.ready += 1;
        Ok::<(), Failure>(())
    })?;
    let readies = methods.function("readies", |log: &mut Log, _, ()| Ok::<_, Failure>(log.ready))?;
    let received = methods.function("received", |log: &mut Log, origin, numbers: Vec<u32>| {
        let by = origin.source.rank.0;
        let times = |number| log.received.iter().filter(|one| **one == (by, number)).count() as u32;
        Ok::<_, Failure>(numbers.into_iter().map(times).collect())
    })?;
    Ok((methods, Handles { later, long, never, count, die, ready, readies, received, nevers }))
}

/// What went wrong in a task.
type Wrong = Box<dyn Error + Send + Sync>;

fn check(ok: bool, what: impl FnOnce() -> String) -> Result<(), Wrong> {
    if ok { Ok(()) } else { Err(what().into()) }
}

/// Runtimes of one thread and of two, in turn.
fn runtime(rank: Rank) -> std::io::Result<Runtime> {
    match rank.0 % 2 {
        0 => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        _ => Builder::new_current_thread().enable_all().build(),
    }
}

/// A rank's part. With a victim, the last rank is killed amid calls.
pub(crate) fn play(job: &RankJob, with_victim: bool) -> Result<(), Box<dyn Error>> {
    let (methods, handles) = methods()?;
    let (me, ranks) = (job.rank(), job.ranks());
    let (caller, driver) = job.attach_tokio(JoinOptions::default(), methods, Log::default())?;
    let program = Program { caller, handles, me, ranks, victim: with_victim.then_some(Rank(ranks - 1)) };
    // The event loop of the runtime wakes half of the drivers, where it can.
    let driver = if me.0 / 2 % 2 == 0 { driver.on_tokio() } else { driver };
    let stop = driver.stop_handle();
    let runtime = runtime(me)?;
    let end = runtime.block_on(async move {
        let driver = tokio::spawn(driver);
        tokio::spawn(program.run()).await??;
        stop.stop();
        Ok::<_, Wrong>(driver.await?)
    });
    let end = end.map_err(|wrong| wrong.to_string())?;
    if let Some(error) = end.error {
        return Err(format!("the driver ended with {error}").into());
    }
    let mut endpoint = end.endpoint;
    if !with_victim {
        return Ok(endpoint.finish().map(drop)?);
    }
    endpoint.acknowledge_loss(Rank(ranks - 1));
    endpoint.leave();
    Ok(())
}

/// What a rank's tasks do.
#[derive(Clone)]
struct Program {
    caller: Caller,
    handles: Handles,
    me: Rank,
    ranks: u32,
    victim: Option<Rank>,
}

impl Program {
    async fn run(self) -> Result<(), Wrong> {
        self.while_parked().await?;
        self.many_tasks().await?;
        self.given_up().await?;
        self.all_are_ready(1).await?;
        if let Some(victim) = self.victim {
            self.killed(victim).await?;
            self.all_are_ready(3).await?;
        }
        check(self.caller.held() == 0, || format!("{} calls are held", self.caller.held()))
    }

    fn survivors(&self) -> impl Iterator<Item = Rank> + use<> {
        let victim = self.victim;
        (0..self.ranks).map(Rank).filter(move |rank| Some(*rank) != victim)
    }

    /// Both sides sleep before each call.
    async fn while_parked(&self) -> Result<(), Wrong> {
        for number in 0..10 {
            for to in (0..self.ranks).map(Rank) {
                sleep(PARKED).await;
                let answer = self.caller.call(to, self.handles.later, &(number, 0)).await?;
                check(answer == number + 1, || format!("rank {to} answers {answer} to {number}"))?;
            }
        }
        Ok(())
    }

    /// Short and long calls of tasks that run beside each other; each request comes once.
    async fn many_tasks(&self) -> Result<(), Wrong> {
        let first = |task: u32| 1000 * (1 + task);
        let tasks = (0..TASKS).map(|task| {
            let program = self.clone();
            tokio::spawn(async move {
                for number in first(task)..first(task) + CALLS {
                    let to = Rank(number % program.ranks);
                    if number % 8 == 0 {
                        let bytes = vec![number as u8; LONG];
                        let due = u64::from(number as u8) * LONG as u64;
                        let sum = program.caller.call(to, program.handles.long, &(number, bytes)).await?;
                        check(sum == due, || format!("the sum of a long request is {sum}, not {due}"))?;
                    } else {
                        let micros = u64::from(number % 5) * 20;
                        let answer = program.caller.call(to, program.handles.later, &(number, micros)).await?;
                        check(answer == number + 1, || format!("rank {to} answers {answer} to {number}"))?;
                    }
                }
                Ok::<(), Wrong>(())
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await??;
        }
        for to in (0..self.ranks).map(Rank) {
            let numbers = (0..TASKS).flat_map(|task| first(task)..first(task) + CALLS);
            let numbers: Vec<u32> = numbers.filter(|number| Rank(number % self.ranks) == to).collect();
            let times = self.caller.call(to, self.handles.received, &numbers).await?;
            check(times == vec![1; numbers.len()], || format!("rank {to} has received requests {times:?} times"))?;
        }
        Ok(())
    }

    /// Calls that the runtime gives up are cancelled; the callees learn of it.
    async fn given_up(&self) -> Result<(), Wrong> {
        for to in (0..self.ranks).map(Rank) {
            let never = self.caller.call(to, self.handles.never, &());
            check(timeout(Duration::from_millis(2), never).await.is_err(), || "it has answered".into())?;
            tokio::select! {
                outcome = self.caller.call(to, self.handles.never, &()) => {
                    return Err(format!("a call that never ends: {outcome:?}").into());
                }
                answer = self.caller.call(to, self.handles.later, &(7, 100)) => {
                    check(answer? == 8, || "another answer".into())?;
                }
            }
            let late = self.caller.timeout(Span::from_millis(2)).call(to, self.handles.never, &()).await;
            check(matches!(late, Err(CallError::TimedOut { .. })), || format!("a late call: {late:?}"))?;
            let mut answers = self.caller.stream(to, self.handles.count, &50);
            let mut sum = 0;
            while let Some(answer) = answers.next().await {
                sum += answer?;
            }
            check(sum == (0..50).sum::<u32>(), || format!("the sum of a stream is {sum}"))?;
        }
        self.all_are_ready(0).await?;
        // Nobody gives up anything any more.
        for to in (0..self.ranks).map(Rank) {
            loop {
                let (begun, over) = self.caller.call(to, self.handles.nevers, &()).await?;
                if begun == over {
                    check(begun >= 1, || format!("no call has come to rank {to}"))?;
                    break;
                }
                sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(())
    }

    /// Waits until all have said so, for the `turn`th time; from the second one on, without the victim.
    async fn all_are_ready(&self, turn: u32) -> Result<(), Wrong> {
        let mut ranks: Vec<Rank> = (0..self.ranks).map(Rank).collect();
        if turn >= 2 {
            ranks = self.survivors().collect();
        }
        for to in &ranks {
            self.caller.call(*to, self.handles.ready, &()).await?;
        }
        let due = (turn + 1).min(2) * self.ranks + turn.saturating_sub(1) * ranks.len() as u32;
        while self.caller.call(self.me, self.handles.readies, &()).await? < due {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// The last rank is killed: all calls to it end, and name it; the others' calls to each other are as ever.
    async fn killed(&self, victim: Rank) -> Result<(), Wrong> {
        if self.me == victim {
            // It is killed by a method.
            std::future::pending::<()>().await;
        }
        let lost = CallError::RankLost { rank: victim, cause: LossCause::Died };
        let begun: Vec<_> = (0..5).map(|_| self.caller.call(victim, self.handles.never, &())).collect();
        let mut answers = self.caller.stream(victim, self.handles.count, &1_000_000);
        check(answers.next().await == Some(Ok(0)), || "another first answer".into())?;
        // Each of them has a stream under way before it is killed.
        self.all_are_ready(2).await?;
        let meanwhile = {
            let program = self.clone();
            tokio::spawn(async move {
                for number in 0..200 {
                    for to in program.survivors() {
                        let answer = program.caller.call(to, program.handles.later, &(number, 10)).await?;
                        check(answer == number + 1, || format!("rank {to} answers {answer} to {number}"))?;
                    }
                }
                Ok::<(), Wrong>(())
            })
        };
        if self.me == Rank(0) {
            sleep(PARKED).await;
            self.caller.one_way(victim, self.handles.die, &())?;
        }
        // Some in tasks of their own.
        let begun = begun.into_iter().map(tokio::spawn);
        for call in begun.collect::<Vec<_>>() {
            let outcome = call.await?;
            check(outcome == Err(lost.clone()), || format!("a call to a killed rank: {outcome:?}"))?;
        }
        let last = loop {
            match answers.next().await {
                Some(Ok(_)) => {}
                other => break other,
            }
        };
        check(last == Some(Err(lost.clone())), || format!("a stream of a killed rank: {last:?}"))?;
        let long = self.caller.call(victim, self.handles.long, &(0, vec![1; LONG])).await;
        check(long == Err(lost), || format!("a late call: {long:?}"))?;
        meanwhile.await?
    }
}
