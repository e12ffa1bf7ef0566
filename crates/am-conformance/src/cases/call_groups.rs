//! Item 24, groups: one long request to all ranks along a tree ends as the same request straight to each of them,
//! and objects that every rank has a value of are reached before and after their ranks have made and dropped them.

use crate::case::unwind;
use crate::random::{mix, pattern};
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_async::{
    CallConfig, CallEndpoint, CallError, Calls, Context, DistObject, Failure as Text, Method, Methods,
};
use am_core::{Endpoint, Handlers, Rank, Span, Transport};

/// Requests received, and their checksum.
type Log = Vec<(u32, u64)>;

fn checksum(bytes: &[u8]) -> u64 {
    mix(&[bytes.len() as u64, bytes.iter().fold(0, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()))])
}

pub(super) fn groups<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut methods = Methods::<Log>::new();
    let note = methods.function("note", |log: &mut Log, origin, bytes: Vec<u8>| {
        let source = origin.source.rank.0;
        log.push((source, checksum(&bytes)));
        match log.len() % 3 {
            0 => Err(Text::new(format!("request {} of rank {source}", log.len()))),
            _ => Ok(checksum(&bytes)),
        }
    })?;
    let later = methods.asynchronous("later", |context: Context<Log>, bytes: Vec<u8>| async move {
        context.sleep(Span::from_micros(bytes.len() as u64 % 7)).await;
        Ok::<_, Text>((context.origin().source.rank.0, bytes))
    })?;
    let lists = methods.objects::<Vec<u32>>("list")?;
    let push = methods.update(&lists, "push", |list, origin, value: u32| {
        list.push(value);
        Ok::<_, Text>((origin.source.rank.0, list.len()))
    })?;
    let mut handlers = Handlers::new();
    let config = CallConfig::new().tree_bytes(100);
    let calls = Calls::register_with(&mut handlers, methods, Log::new(), config)?;
    let mut endpoint: Endpoint<T, Calls<Log>> = world.attach(transport, handlers, calls)?;
    let (me, ranks, caller) = (endpoint.rank().0, endpoint.ranks(), endpoint.caller());

    // Some ranks more than once, so that there is a tree in every job.
    let to = |turn: u32| (0..ranks.max(9)).rev().map(move |place| Rank((place + turn) % ranks));
    for (turn, len) in [(0, 3000), (1, 150)] {
        let bytes = pattern(mix(&[turn.into(), me.into()]), len);
        let each = caller.call_each(to(turn), later, &bytes).wait(&mut endpoint);
        equal("answers along a tree", each.iter().all(|answer| *answer == Ok((me, bytes.clone()))), true)?;
        equal("their number", each.len(), to(turn).count())?;
    }
    let bytes = pattern(mix(&[me.into()]), 2000);
    for answer in caller.call_each(to(0), note, &bytes).wait(&mut endpoint) {
        let right = match &answer {
            Ok(sum) => *sum == checksum(&bytes),
            Err(CallError::Failed(text)) => text.0.ends_with(&format!("of rank {me}")),
            Err(_) => false,
        };
        equal("the outcome of a call along a tree", right, true)?;
    }
    endpoint.barrier()?;
    // Everyone's request has reached this rank as often as it is named.
    let named = to(0).filter(|rank| rank.0 == me).count();
    let expected: Vec<(u32, u64)> =
        (0..ranks).map(|rank| (rank, checksum(&pattern(mix(&[rank.into()]), 2000)))).collect();
    let log = endpoint.layer::<Calls<Log>>().world().clone();
    equal("requests received", log.len(), named * ranks as usize)?;
    for one in &expected {
        equal("requests of a rank", log.iter().filter(|seen| *seen == one).count(), named)?;
    }

    // Ranks make the object one after the other: those before call before those behind have one.
    let (left, right) = (Rank((me + ranks - 1) % ranks), Rank((me + 1) % ranks));
    let pause = |endpoint: &mut Endpoint<T, Calls<Log>>, micros: u32| {
        let span = Span::from_micros(micros.into());
        endpoint.run(|context| async move { context.sleep(span).await }).map_err(Failure::Wait)
    };
    for turn in 0..3u32 {
        pause(&mut endpoint, (me + turn) % 4 * 5)?;
        let list = DistObject::new(&caller, &lists, vec![me, turn]);
        let pushed = list.update(&caller, right, &push, 100 + me).wait(&mut endpoint)?;
        equal("who pushes", pushed, (me, 3))?;
        let fetched = list.fetch(&caller, right).wait(&mut endpoint)?;
        equal("the right neighbour's list", fetched, vec![right.0, turn, 100 + me])?;
        // The left one's push has come once its fetch has been answered; this rank may have dropped its own by
        // then.
        if turn == 1 {
            drop(list);
            continue;
        }
        while list.with(|list| list.len()) < 3 {
            pause(&mut endpoint, 2)?;
        }
        equal("this rank's list", list.with(|list| list.clone()), vec![me, turn, 100 + left.0])?;
    }
    endpoint.finish()?;
    Ok(())
}

/// What ranks have received in a job that loses one.
#[derive(Default)]
struct Received {
    /// The rank that answers no request to all.
    silent: Option<Rank>,
    /// Requests to all ranks, by who made them.
    by: Vec<(u32, u64)>,
    ready: u32,
}

type Ranks<T> = Endpoint<T, Calls<Received>>;

/// Requests of this rank to all, and how they have to end while the last rank is being lost, or is.
struct Each {
    count: Method<u64, u32>,
    victim: Rank,
}

impl Each {
    /// Some ranks more than once, so that there is a tree in every job.
    fn places(&self, turn: u32, with_victim: bool) -> Vec<Rank> {
        let ranks = self.victim.0 + u32::from(with_victim);
        (0..ranks.max(9)).rev().map(|place| Rank((place + turn) % ranks)).collect()
    }

    /// Compares outcomes, and what the survivors have received of the request.
    fn judge<T: Transport>(
        &self,
        endpoint: &mut Ranks<T>,
        places: &[Rank],
        bytes: &[u8],
        outcomes: &[Result<u64, CallError>],
    ) -> Verdict {
        let victim = self.victim;
        equal("outcomes", outcomes.len(), places.len())?;
        for (place, outcome) in places.iter().zip(outcomes) {
            let right = match outcome {
                Ok(sum) => *place != victim && *sum == checksum(bytes),
                // What comes by the lost rank is lost with it.
                Err(error) => places.contains(&victim) && error.loss().is_some_and(|(rank, _)| rank == victim),
            };
            ensure(right, || format!("the outcome of rank {place} along a tree: {outcome:?}"))?;
        }
        for rank in (0..victim.0).map(Rank) {
            let named = places.iter().filter(|place| **place == rank).count() as u32;
            let answered =
                places.iter().zip(outcomes).filter(|(place, outcome)| **place == rank && outcome.is_ok());
            let answered = answered.count() as u32;
            let found = endpoint.call(rank, self.count, &checksum(bytes)).wait(endpoint)?;
            ensure((answered..=named).contains(&found), || {
                format!(
                    "rank {rank} has received a request {found} times, named {named}, answered {answered} times"
                )
            })?;
        }
        Ok(())
    }
}

/// The last rank panics amid requests along trees, and while others wait for its value of an object: what comes by
/// it, or is asked of it, ends and names it; all else comes once, and the survivors' objects are as they were.
pub(super) fn lost<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut methods = Methods::<Received>::new();
    let all = methods.asynchronous("all", |context: Context<Received>, bytes: Vec<u8>| async move {
        let sum = checksum(&bytes);
        let silent = context.with(|received| {
            received.by.push((context.origin().source.rank.0, sum));
            received.silent.is_some()
        });
        if silent { std::future::pending().await } else { Ok::<_, Text>(sum) }
    })?;
    let count = methods.function("count", |received: &mut Received, origin, sum: u64| {
        let by = (origin.source.rank.0, sum);
        Ok::<_, Text>(received.by.iter().filter(|one| **one == by).count() as u32)
    })?;
    let ready = methods.function("ready", |received: &mut Received, _, ()| {
        received.ready += 1;
        Ok::<(), Text>(())
    })?;
    let lists = methods.objects::<Vec<u32>>("list")?;
    let push = methods.update(&lists, "push", |list, _, value: u32| {
        list.push(value);
        Ok::<_, Text>(list.len())
    })?;
    let mut handlers = Handlers::new();
    let config = CallConfig::new().tree_bytes(100);
    let calls = Calls::register_with(&mut handlers, methods, Received::default(), config)?;
    let mut endpoint: Ranks<T> = world.attach(transport, handlers, calls)?;
    let (me, caller, victim) = (endpoint.rank(), endpoint.caller(), super::last(endpoint.shape()));
    let survivors = victim.0;
    let early = DistObject::new(&caller, &lists, vec![me.0]);
    if me == victim {
        endpoint.layer_mut::<Calls<Received>>().world_mut().silent = Some(victim);
        endpoint.serve_until(|received| received.ready == survivors)?;
        unwind();
    }
    let (right, next) = (Rank((me.0 + 1) % survivors), Rank((me.0 + 2) % survivors));
    early.update(&caller, victim, &push, 100 + me.0).wait(&mut endpoint)?;
    let fetched = early.fetch(&caller, victim).wait(&mut endpoint)?;
    equal("what the victim's list holds", fetched.contains(&(100 + me.0)) && fetched[0] == victim.0, true)?;
    // The victim makes no other object, for which these wait.
    let late = DistObject::new(&caller, &lists, vec![me.0, 7]);
    let (fetching, pushing) = (late.fetch(&caller, victim), late.update(&caller, victim, &push, 1));
    let each = Each { count, victim };
    let turn = world.random(0x2430).below(9) as u32;
    let request = |number: u64| pattern(mix(&[number, me.0.into()]), [200, 3000][number as usize % 2]);
    let (places, bytes) = (each.places(turn, true), request(0));
    let under_way = caller.call_each(places.clone(), all, &bytes);
    for _ in 0..world.random(0x2431 + u64::from(me.0)).below(20) {
        endpoint.poll()?;
    }
    caller.one_way(victim, ready, &())?;
    let outcomes = under_way.wait(&mut endpoint);
    each.judge(&mut endpoint, &places, &bytes, &outcomes)?;
    let is_lost = |error: &CallError| error.loss().is_some_and(|(rank, _)| rank == victim);
    let fetched = fetching.wait(&mut endpoint);
    ensure(fetched.as_ref().is_err_and(is_lost), || format!("a value of a lost rank: {fetched:?}"))?;
    let pushed = pushing.wait(&mut endpoint);
    ensure(pushed.as_ref().is_err_and(is_lost), || format!("a change at a lost rank: {pushed:?}"))?;
    endpoint.acknowledge_loss(victim);
    // Once more with the lost rank in the tree, and without it.
    for (number, with_victim) in [(1, true), (2, false), (3, false)] {
        let (places, bytes) = (each.places(turn + number as u32, with_victim), request(number));
        let outcomes = caller.call_each(places.clone(), all, &bytes).wait(&mut endpoint);
        each.judge(&mut endpoint, &places, &bytes, &outcomes)?;
        equal("the victim's outcomes", with_victim, outcomes.iter().any(Result::is_err))?;
    }
    // The survivors' values, of objects that the victim had and had not, and of one that is made after its loss.
    let after = DistObject::new(&caller, &lists, vec![]);
    for (list, due) in [(&early, vec![right.0]), (&late, vec![right.0, 7])] {
        equal("another one's list", list.fetch(&caller, right).wait(&mut endpoint)?, due)?;
    }
    let pushed = after.update(&caller, next, &push, me.0).wait(&mut endpoint)?;
    equal("values pushed", pushed, 1)?;
    let before = Rank((me.0 + 2 * survivors - 2 % survivors) % survivors);
    while after.with(|list| list.is_empty()) {
        endpoint.run(|context| async move { context.sleep(Span::from_micros(2)).await })?;
    }
    equal("this rank's list", after.with(|list| list.clone()), vec![before.0])?;
    drop((early, after, late));
    // All have been served.
    for rank in (0..survivors).map(Rank) {
        endpoint.call(rank, ready, &()).wait(&mut endpoint)?;
    }
    endpoint.serve_until(|received| received.ready == survivors)?;
    endpoint.wait_until(|calls| calls.tasks() == 0)?;
    equal("calls held and under way", (caller.held(), caller.under_way()), (0, 0))?;
    endpoint.drain().map_err(Failure::Wait)?;
    endpoint.leave();
    Ok(())
}
