//! Item 23, a rank that is lost in a step of a protocol: its peers learn who it was, and go on.

use super::message_memory::{Receiving, Sending};
use super::messages::{Ranks, attach};
use super::{breathe, last};
use crate::case::unwind;
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_core::{LossCause, Transport};
use am_p2p::{ANY_SOURCE, AskedTag, Communicator, MessageConfig, MessageError, Protocol};

/// Bytes of long messages.
const LEN: usize = 9000;

/// Bytes of messages that are under way when the victim ends.
const LONGEST: usize = 60_000;

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
    /// Its messages are being written or read.
    Sending,
    /// Messages to it are being written or read.
    Receiving,
    /// It cancels receives, which may be advertised.
    Revoking,
    /// Others cancel receives for its messages, which may be advertised.
    Revoked,
    /// Eager messages meet receives that it may have advertised.
    Retiring,
}

const STEPS: [Step; 9] = [
    Step::Awaited,
    Step::Announced,
    Step::Posted,
    Step::Written,
    Step::Sending,
    Step::Receiving,
    Step::Revoking,
    Step::Revoked,
    Step::Retiring,
];

/// Runs in which each protocol comes with each step.
pub(super) const DRAWS: u32 = 5 * STEPS.len() as u32;

/// The choices of a run.
#[derive(Clone, Copy, Debug)]
struct Choices {
    protocol: Protocol,
    step: Step,
    /// Whether long messages are sent from segments, and received to them.
    out: bool,
    into: bool,
    lent_cost: u32,
}

impl Choices {
    /// [`DRAWS`] in succession have each protocol with each step, and each step in all places; a third of them
    /// has each protocol and each step.
    fn of(world: &World) -> Self {
        // Which steps come in which places, and with which cost, is the seed's alone.
        let round = world.random(2303).below(12) as u32;
        let number = world.combination(23, DRAWS) * 7 % DRAWS;
        let (step, place) = (number / 5, number + round);
        Self {
            protocol: Protocol::ALL[number as usize % 5],
            step: STEPS[step as usize],
            out: place % 2 == 1,
            into: place / 2 % 2 == 1,
            lent_cost: [u32::MAX, 0, MessageConfig::default().lent_cost][(step + round) as usize % 3],
        }
    }
}

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
    let choices = Choices::of(world);
    let Choices { protocol, step, out, into, lent_cost } = choices;
    let config = MessageConfig::default().protocol(protocol).eager(64).lent_cost(lent_cost);
    let mut endpoint = attach(world, transport, config)?;
    let all = Communicator::world(&mut endpoint)?;
    let victim = last(endpoint.shape());
    let survives = endpoint.rank() != victim;
    let without = all.split(&mut endpoint, survives.then_some(0), 0)?;
    if !survives {
        die(&mut endpoint, &all, choices, world.random(2302 + u64::from(world.draw)).below(24))?;
        unwind();
    }
    let without = without.expect("all but the victim are in it");
    let (gone, long) = (victim.0, vec![7u8; LEN]);
    let awaited = if step == Step::Sending { LONGEST } else { LEN };
    // Eager: it comes whatever happens afterwards.
    all.send(&mut endpoint, gone, 1, &[0u8])?;
    let early = Receiving::begin(&mut endpoint, &all, (gone.into(), 3.into()), awaited, into)?;
    let (got, _) = all.receive::<_, _, u32>(&mut endpoint, gone, 2)?;
    equal("what the victim sent before", got, 0xfeed)?;
    match step {
        Step::Awaited => ended("a receive", gone, 3, early.wait(&mut endpoint))?,
        // All of it may have come, as written to the receive that was posted.
        Step::Announced | Step::Sending => match early.wait(&mut endpoint) {
            Ok((bytes, _)) => {
                ensure(bytes == vec![1u8; awaited], || "an announced message came as another one".into())?
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
        // These may have met their receives in time.
        Step::Receiving | Step::Revoking | Step::Retiring => {
            let len = match step {
                Step::Receiving => LONGEST,
                Step::Revoking => LEN,
                _ => 8,
            };
            let sent = Sending::begin(&mut endpoint, &all, (gone, 4), &vec![7u8; len], (false, out && len > 8))?;
            match sent.wait(&mut endpoint) {
                Ok(()) => {}
                error => ended("a send", gone, 4, error)?,
            }
            ended("a receive", gone, 3, early.wait(&mut endpoint))?;
        }
        Step::Revoked => match early.cancel(&mut endpoint) {
            Ok(None) => {}
            Ok(Some(early)) => ended("a receive", gone, 3, early.wait(&mut endpoint))?,
            Err(error) => ended::<()>("a cancelled receive", gone, 3, Err(error))?,
        },
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

/// What the victim does before it ends: the last of it within a few polls.
fn die<T: Transport>(endpoint: &mut Ranks<T>, all: &Communicator, choices: Choices, polls: u64) -> Verdict {
    let (survivors, Choices { step, out, into, .. }) = (all.size() - 1, choices);
    for from in 0..survivors {
        all.receive::<_, _, u8>(endpoint, from, 1)?;
    }
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for to in 0..survivors {
        let (source, len) = match step {
            Step::Written => (ANY_SOURCE, LEN),
            Step::Receiving => (to.into(), LONGEST),
            _ => (to.into(), LEN),
        };
        match step {
            Step::Awaited | Step::Sending | Step::Revoked => {}
            Step::Announced => sends.push(Sending::begin(endpoint, all, (to, 3), &vec![1u8; LEN], (false, out))?),
            Step::Posted | Step::Written | Step::Receiving | Step::Revoking | Step::Retiring => {
                receives.push(Receiving::begin(endpoint, all, (source, 4.into()), len, into)?);
            }
        }
        all.send(endpoint, to, 2, &[0xfeed_u32])?;
    }
    let before = all.counts(endpoint).received;
    // What it has announced or advertised is known, and something may come of it.
    endpoint.drain().map_err(Failure::Wait)?;
    let amid = match step {
        Step::Awaited | Step::Announced | Step::Posted | Step::Written => false,
        Step::Sending => {
            for to in 0..survivors {
                let how = (false, out);
                sends.push(Sending::begin(endpoint, all, (to, 3), &vec![1u8; LONGEST], how)?);
            }
            true
        }
        Step::Receiving | Step::Revoked => true,
        // Nobody waits for them any more.
        Step::Revoking => {
            receives.clear();
            true
        }
        Step::Retiring => {
            while all.counts(endpoint).received == before {
                breathe(endpoint)?;
            }
            true
        }
    };
    for _ in 0..if amid { polls } else { 0 } {
        endpoint.poll()?;
    }
    std::mem::forget((sends, receives));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Profile;
    use std::collections::BTreeSet;

    /// A run over a transport has every protocol with every step, whatever the seed, and many seeds have all else.
    #[test]
    fn draws_have_all_combinations() {
        let mut all = BTreeSet::new();
        for seed in 0..600 {
            let drawn = |draws| (0..draws).map(|draw| Choices::of(&World::new(Profile::Quick, seed).drawn(draw)));
            let pairs: BTreeSet<_> =
                drawn(DRAWS).map(|choices| (choices.protocol as u8, choices.step as u8)).collect();
            assert_eq!(pairs.len(), DRAWS as usize);
            let places: BTreeSet<_> =
                drawn(DRAWS).map(|choices| (choices.step as u8, choices.out, choices.into)).collect();
            assert_eq!(places.len(), 4 * STEPS.len());
            let steps: BTreeSet<_> = drawn(DRAWS / 3).map(|choices| choices.step as u8).collect();
            let protocols: BTreeSet<_> = drawn(DRAWS / 3).map(|choices| choices.protocol as u8).collect();
            assert_eq!((steps.len(), protocols.len()), (STEPS.len(), 5));
            // Runs over many seeds have one draw of each.
            let choices = Choices::of(&World::new(Profile::Quick, seed));
            all.insert((choices.protocol as u8, choices.step as u8));
        }
        assert_eq!(all.len(), DRAWS as usize);
    }
}
