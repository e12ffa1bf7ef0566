//! Item 22, arrays of which a rank is lost: batches, ranges and what becomes of the operations of one call.

use super::global_memory::attach;
use super::teams::{arrive, leave};
use crate::case::unwind;
use crate::world::{Verdict, World, ensure, equal};
use am_core::one_sided::{AtomicCode, OneSided};
use am_core::{Endpoint, PeerStatus, Rank, Span, Transport};
use am_pgas::array::distribution::{Distribution, Layout};
use am_pgas::array::{ArrayError, GlobalArray};
use am_pgas::{Pgas, Team};

type Ranks<T> = Endpoint<T, Pgas>;
type Outcome = Result<(), ArrayError>;

const ELEMENTS: u64 = 300;
const CALLS: usize = 9;

/// One call on all elements, whose every rank has some.
fn call<T: Transport>(kind: usize, array: &GlobalArray<u64>, endpoint: &mut Ranks<T>) -> Outcome {
    let all: Vec<u64> = (0..ELEMENTS).collect();
    let mut out = vec![1; all.len()];
    match kind {
        0 => array.batch_add(endpoint, &all, 1u64),
        1 => array.batch_update(endpoint, &all, AtomicCode::Max, &all),
        2 => array.batch_load(endpoint, &all, &mut out),
        3 => array.batch_store(endpoint, &all, &all),
        4 => array.batch_fetch(endpoint, &all, AtomicCode::Add, 1u64, &mut out),
        5 => array.batch_fetch(endpoint, &all, AtomicCode::Get, 0u64, &mut out),
        6 => array.batch_compare_exchange(endpoint, &all, 7u64, 8u64, &mut out),
        7 => array.get_range(endpoint, 0..ELEMENTS, &mut out),
        _ => array.put_range(endpoint, 0..ELEMENTS, &out),
    }
}

/// A call ends well, or names the victim; nothing of it is under way then.
fn checked<T: Transport>(kind: usize, array: &GlobalArray<u64>, endpoint: &mut Ranks<T>, victim: Rank) -> Verdict {
    let gone = endpoint.status(victim) != Some(PeerStatus::Active);
    let outcome = call(kind, array, endpoint);
    let what = |text: &str| format!("call {kind} {text}: {outcome:?}");
    match &outcome {
        // Memory that this process sees outlives the rank it belonged to.
        Ok(()) => {
            ensure(!gone || endpoint.remote_segment(victim).is_some(), || what("on elements of a lost rank"))?;
        }
        Err(error) => ensure(error.lost_rank() == Some(victim), || what("does not name the victim"))?,
    }
    equal("operations under way after a call", endpoint.layer::<OneSided>().under_way(), 0)
}

/// A rank, mostly not the last, is lost amid the calls of all.
pub(super) fn lost<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let mut same = world.random(2200);
    let (me, ranks) = (endpoint.rank(), endpoint.ranks());
    let victim = Rank(same.below(u64::from(ranks)) as u32);
    let layout = [Layout::Block, Layout::Cyclic, Layout::BlockCyclic(7)][same.below(3) as usize];
    let (before, first) = (same.below(4), same.below(CALLS as u64) as usize);
    let array = GlobalArray::<u64>::new(&mut endpoint, Distribution::new([ELEMENTS], [layout], [ranks])?)?;
    let all = Team::world(&mut endpoint)?;
    let without = all.split(&mut endpoint, (me != victim).then_some(0), 0)?;
    arrive(&all, &mut endpoint, victim)?;
    let Some(without) = without else {
        for number in 0..before as usize {
            call((first + number) % CALLS, &array, &mut endpoint)?;
        }
        unwind();
    };
    for number in 0..CALLS {
        checked((first + number) % CALLS, &array, &mut endpoint, victim)?;
    }
    while endpoint.status(victim) == Some(PeerStatus::Active) {
        // The loss is told here, or was told before.
        let _ = endpoint.poll_or_idle(Span::from_micros(50));
    }
    (0..CALLS).try_for_each(|kind| checked(kind, &array, &mut endpoint, victim))?;
    endpoint.acknowledge_loss(victim);
    (0..CALLS).try_for_each(|kind| checked(kind, &array, &mut endpoint, victim))?;
    equal("what is left to wait for", endpoint.quiet(), Ok(()))?;
    // Elements of the others are as usable as before, once nobody changes them any more.
    without.barrier(&mut endpoint)?;
    let next = without.rank((without.me() + 1) % without.size()).expect("it is in the team");
    let of_next = |number: &u64| array.pointer([*number]).is_some_and(|place| place.rank() == next);
    let theirs: Vec<u64> = (0..ELEMENTS).filter(of_next).collect();
    let mut found = vec![0; theirs.len()];
    array.batch_store(&mut endpoint, &theirs, &theirs)?;
    array.batch_fetch(&mut endpoint, &theirs, AtomicCode::Add, 1u64, &mut found)?;
    equal("elements of a survivor", &found, &theirs)?;
    without.barrier(&mut endpoint)?;
    let own = array.own(&endpoint).iter().all(|([number], value)| value == number + 1);
    ensure(own, || "elements that a survivor has stored differ".into())?;
    leave(endpoint, &without)
}
