//! Item 24, groups: one long request to all ranks along a tree ends as the same request straight to each of them,
//! and objects that every rank has a value of are reached before and after their ranks have made and dropped them.

use crate::random::{mix, pattern};
use crate::world::{Failure, Verdict, World, equal};
use am_async::{CallConfig, CallEndpoint, CallError, Calls, Context, DistObject, Failure as Text, Methods};
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
    let to = |turn: u32| (0..ranks.max(9)).map(move |place| Rank((place * 5 + turn) % ranks));
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
