//! Item 23, a rank that is lost in a step of a protocol: its peers learn who it was, and go on.

use super::last;
use super::message_memory::{Receiving, Sending};
use super::messages::{Ranks, attach};
use crate::case::unwind;
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_core::{LossCause, Transport};
use am_p2p::{ANY_SOURCE, AskedTag, Communicator, MessageConfig, MessageError, Protocol};

/// Bytes of long messages.
const LEN: usize = 9000;

/// What the victim does last.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// Others have posted receives for its messages.
    Awaited,
    /// It has announced messages, which are received after its end.
    Announced,
    /// It has posted receives, which may be advertised.
    Posted,
    /// It has posted receives with wildcards, and others write to it.
    Written,
}

const STEPS: [Step; 4] = [Step::Awaited, Step::Announced, Step::Posted, Step::Written];

/// An operation with the victim that cannot end well.
fn ended<R>(what: &str, victim: u32, tag: i32, result: Result<R, MessageError>) -> Verdict {
    match result {
        Ok(_) => Err(Failure::Check(format!("{what} with lost rank {victim} ended well"))),
        Err(error) => {
            let right = matches!(error, MessageError::Lost { tag: told, .. } if told == AskedTag(Some(tag)));
            let loss = error.loss().map(|(rank, cause)| (rank.0, cause));
            ensure(right && loss == Some((victim, LossCause::Panicked)), || format!("{what}: {error}"))
        }
    }
}

pub(super) fn lost<T: Transport>(world: &World, transport: T) -> Verdict {
    let draw = world.random(23).number();
    let protocol = Protocol::ALL[draw as usize % 5];
    let step = STEPS[(draw / 5) as usize % 4];
    // Whether long messages are in segments.
    let (out, into) = ((draw / 20) % 2 == 1, (draw / 40) % 2 == 1);
    let mut endpoint = attach(world, transport, MessageConfig::default().protocol(protocol).eager(64))?;
    let all = Communicator::world(&mut endpoint)?;
    let victim = last(endpoint.shape());
    let survives = endpoint.rank() != victim;
    let without = all.split(&mut endpoint, survives.then_some(0), 0)?;
    if !survives {
        die(&mut endpoint, &all, step, out, into)?;
        unwind();
    }
    let without = without.expect("all but the victim are in it");
    let (gone, long) = (victim.0, vec![7u8; LEN]);
    // Eager: it comes whatever happens afterwards.
    all.send(&mut endpoint, gone, 1, &[0u8])?;
    let early = Receiving::begin(&mut endpoint, &all, (gone.into(), 3.into()), LEN, into)?;
    let (got, _) = all.receive::<_, _, u32>(&mut endpoint, gone, 2)?;
    equal("what the victim sent before", got, 0xfeed)?;
    match step {
        Step::Awaited => ended("a receive", gone, 3, early.wait(&mut endpoint))?,
        // All of it may have come, as written to the receive that was posted.
        Step::Announced => match early.wait(&mut endpoint) {
            Ok((bytes, _)) => {
                ensure(bytes == vec![1u8; LEN], || "an announced message came as another one".into())?
            }
            error => ended("an announced message", gone, 3, error)?,
        },
        Step::Posted | Step::Written => {
            // A message that is written may be over at its sender before the receiver's end: one for each receive.
            let receives = if step == Step::Posted { 1 } else { without.size() };
            let mut written = 0;
            for _ in 0..=receives {
                let sent = Sending::begin(&mut endpoint, &all, (gone, 4), &long, (false, out))?;
                match sent.wait(&mut endpoint) {
                    Ok(()) => written += 1,
                    error => ended("a long send", gone, 4, error)?,
                }
            }
            ensure(written <= receives, || format!("{written} messages to {receives} receive(s) of a lost rank"))?;
            ended("a receive", gone, 3, early.wait(&mut endpoint))?;
        }
    }
    ended("a later send", gone, 5, all.send(&mut endpoint, gone, 5, &long))?;
    let any = all.receive::<_, _, u8>(&mut endpoint, ANY_SOURCE, 6);
    ended("a receive from anyone", gone, 6, any)?;
    equal("lost members", all.acknowledge_losses(&mut endpoint), vec![gone])?;
    endpoint.acknowledge_loss(victim);
    // Survivors go on, in this communicator and in others.
    let (me, size) = (without.rank(), without.size());
    for team in [&all, &without] {
        let mut got = vec![0u8; LEN];
        let own = vec![me as u8; LEN];
        let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
        team.send_receive_into(&mut endpoint, (next, 8), &own, (previous, 8), &mut got)?;
        ensure(got == vec![previous as u8; LEN], || "the survivors' message is another one".into())?;
    }
    without.team().barrier(&mut endpoint)?;
    endpoint.drain().map_err(Failure::Wait)?;
    endpoint.leave();
    Ok(())
}

/// What the victim does before it ends.
fn die<T: Transport>(endpoint: &mut Ranks<T>, all: &Communicator, step: Step, out: bool, into: bool) -> Verdict {
    let survivors = all.size() - 1;
    for from in 0..survivors {
        all.receive::<_, _, u8>(endpoint, from, 1)?;
    }
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for to in 0..survivors {
        match step {
            Step::Awaited => {}
            Step::Announced => sends.push(Sending::begin(endpoint, all, (to, 3), &vec![1u8; LEN], (false, out))?),
            Step::Posted => receives.push(Receiving::begin(endpoint, all, (to.into(), 4.into()), LEN, into)?),
            Step::Written => receives.push(Receiving::begin(endpoint, all, (ANY_SOURCE, 4.into()), LEN, into)?),
        }
        all.send(endpoint, to, 2, &[0xfeed_u32])?;
    }
    // What it has announced or advertised is known, and something may come of it.
    endpoint.drain().map_err(Failure::Wait)?;
    std::mem::forget((sends, receives));
    Ok(())
}
