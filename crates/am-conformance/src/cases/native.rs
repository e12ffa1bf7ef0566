//! Item 17, one-sided operations that the network does by itself: that it does what it says, without the target's
//! program, and what becomes of them when ranks end. Where the network does none, the same program runs over
//! messages.

use super::one_sided::attach;
use super::{last, left, right};
use crate::random::pattern;
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_core::one_sided::{Atomic, AtomicOp, OneSided, OneSidedError, Operation};
use am_core::transport::Capability;
use am_core::{Endpoint, PeerStatus, Rank, Span, Transport};

type Ranks<T> = Endpoint<T, OneSided>;

/// What the network does by itself towards a rank's first endpoint. Nothing where the rank's segment is memory.
pub(super) fn capability<T: Transport>(transport: &mut T, to: Rank) -> Capability {
    let (me, shape) = (transport.shape().address(transport.local_peer()).rank, transport.shape());
    if to == me || transport.remote_segment(to).is_some() {
        return Capability::default();
    }
    let found = shape.peer(to.into()).and_then(|peer| transport.native(peer));
    found.map_or(Capability::default(), |(network, named)| network.capability(named))
}

/// Operations that the network did while a program ran.
fn counted<T: Transport, R>(
    endpoint: &mut Ranks<T>,
    program: impl FnOnce(&mut Ranks<T>) -> Result<R, OneSidedError>,
) -> Result<(R, bool), Failure> {
    let before = endpoint.statistics().native().messages;
    let result = program(endpoint)?;
    Ok((result, endpoint.statistics().native().messages != before))
}

/// Every kind of operation goes the way that the capability tells.
pub(super) fn way<T: Transport>(world: &World, mut transport: T) -> Verdict {
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()).rank);
    let to = right(shape, me);
    let native = capability(&mut transport, to);
    equal("the same at every call", capability(&mut transport, to), native)?;
    let mut endpoint = attach(world, transport)?;
    endpoint.barrier()?;
    let bytes = pattern(world.salt(&[u64::from(me.0)]), 48);
    let ((), way) = counted(&mut endpoint, |endpoint| endpoint.put(to, 64, &bytes))?;
    equal("a put by the network", way, native.put != 0)?;
    let (found, way) = counted(&mut endpoint, |endpoint| {
        let mut found = [0; 48];
        endpoint.get(to, 64, &mut found).map(|()| found)
    })?;
    equal("a get by the network", way, native.get != 0 && native.longest_get >= 48)?;
    equal("its bytes", found[..] == bytes, true)?;
    let (operation, way) = counted(&mut endpoint, |endpoint| endpoint.put_signal(to, 128, &bytes, 0))?;
    equal("a signal by the network", way, native.signal)?;
    endpoint.wait(operation)?;
    endpoint.wait_signal(0, 1)?;
    let theirs = pattern(world.salt(&[u64::from(left(shape, me).0)]), 48);
    equal("bytes told of", endpoint.segment().view(128, 48)?.to_vec(), theirs.clone())?;
    let add = AtomicOp::Add(3u64);
    let (old, way) = counted(&mut endpoint, |endpoint| endpoint.atomic(to, 8, add))?;
    equal("an atomic by the network, and what was there", (way, old), (native.does(&Atomic::new(add)), 0))?;
    let ((), way) = counted(&mut endpoint, |endpoint| {
        endpoint.get_nbi(to, 64, 48, 192)?;
        endpoint.quiet()
    })?;
    equal("a get into the segment by the network", way, native.get_into != 0 && native.longest_get >= 48)?;
    equal("its bytes", endpoint.segment().view(192, 48)?.to_vec(), bytes)?;
    endpoint.barrier()?;
    equal("bytes put", endpoint.segment().view(64, 48)?.to_vec(), theirs)?;
    equal("sum", endpoint.atomic(me, 8, AtomicOp::<u64>::Get)?, 3)?;
    endpoint.barrier()?;
    endpoint.finish()?;
    Ok(())
}

/// Looks of a target at its segment, after which what rank 0 does counts as never done.
const LOOKS: u32 = 1_000_000;

/// The last rank looks at its segment and polls no more, until what the network does by itself is there.
pub(super) fn deaf_target<T: Transport>(world: &World, mut transport: T) -> Verdict {
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()).rank);
    let target = last(shape);
    // All ranks see each other alike.
    let native = capability(&mut transport, if me == target { Rank(0) } else { target });
    let mut endpoint = attach(world, transport)?;
    endpoint.barrier()?;
    if native.put != 0 && me == target {
        let mut looks = 0;
        while endpoint.segment().view(0, 1)?.to_vec() == [0] {
            // Time passes where a program asks for a status.
            endpoint.status(Rank(0));
            endpoint.charge(Span::from_micros(1));
            std::thread::yield_now();
            looks += 1;
            ensure(looks < LOOKS, || "the network does nothing by itself while the target does not poll".into())?;
        }
    } else if native.put != 0 && me == Rank(0) {
        let bytes = pattern(world.salt(&[]), 3000);
        endpoint.put(target, 64, &bytes)?;
        if native.longest_get != 0 {
            let len = native.longest_get.min(3000) as usize;
            let mut found = vec![0; len];
            endpoint.get(target, 64, &mut found)?;
            equal("bytes of a get", found[..] == bytes[..len], true)?;
        }
        for rounds in 0..3 {
            if native.does(&Atomic::new(AtomicOp::Add(5u32))) {
                equal("an atomic", endpoint.atomic(target, 8, AtomicOp::Add(5u32))?, 5 * rounds)?;
            }
            if native.signal {
                // No more than one put takes.
                let some = &bytes[..native.put.min(3000) as usize];
                let signal = endpoint.put_signal(target, 64, some, 16)?;
                endpoint.wait(signal)?;
            }
        }
        endpoint.put(target, 0, &[1])?;
    }
    endpoint.barrier()?;
    if native.put != 0 && me == target {
        equal("bytes put", endpoint.segment().view(64, 3000)?.to_vec() == pattern(world.salt(&[]), 3000), true)?;
    }
    endpoint.finish()?;
    Ok(())
}

/// Who drains has done what was started and not waited for.
pub(super) fn drained<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let (shape, me) = (endpoint.shape(), endpoint.rank());
    endpoint.barrier()?;
    for round in 0..u64::from(world.count(5, 100)) {
        let bytes = |of: Rank| pattern(world.salt(&[round, u64::from(of.0)]), 1600);
        for (part, bytes) in (0..).zip(bytes(me).chunks(100)) {
            endpoint.put_nbi(right(shape, me), 64 + 100 * part, bytes)?;
        }
        endpoint.drain()?;
        endpoint.barrier()?;
        let found = endpoint.segment().view(64, 1600)?.to_vec();
        equal("bytes after drain and barrier", found == bytes(left(shape, me)), true)?;
        endpoint.barrier()?;
    }
    // What ends a job does, too.
    endpoint.put_nbi(right(shape, me), 64, &[7; 100])?;
    endpoint.finish()?;
    Ok(())
}

/// The last rank panics among operations on its segment; those on other segments go on.
pub(super) fn target_lost<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let (shape, me, victim) = (endpoint.shape(), endpoint.rank(), last(endpoint.shape()));
    if me == victim {
        // Nobody is still attaching then.
        endpoint.wait_signal(16, u64::from(shape.ranks) - 1)?;
        crate::case::unwind();
    }
    let attached = endpoint.put_signal(victim, 64, &[], 16)?;
    // A loss ends waits as long as it is not acknowledged; that of survivors that have left is none.
    (0..shape.ranks).map(Rank).for_each(|rank| endpoint.acknowledge_loss(rank));
    let gone = |error: &OneSidedError| match error {
        OneSidedError::Gone { rank, .. } => *rank == victim,
        error => error.loss().is_some_and(|(rank, _)| rank == victim),
    };
    let fails = |what, outcome: Result<(), OneSidedError>| match outcome {
        Err(error) if !gone(&error) => ensure(false, || format!("{what} towards the victim: {error}")),
        _ => Ok(()),
    };
    let (mut puts, mut gets): (Vec<Operation<()>>, Vec<Operation<Vec<u8>>>) = (Vec::new(), Vec::new());
    for part in 0..8 {
        let put = endpoint.put_nb(victim, 64 + 100 * part, &[1; 100]).map(|put| puts.push(put));
        let get = endpoint.get_nb(victim, 64 + 100 * part, 100).map(|get| gets.push(get));
        fails("a put", put)?;
        fails("a get", get)?;
        fails("a put without a handle", endpoint.put_nbi(victim, 64, &[2; 40]))?;
    }
    let outcome = endpoint.wait(attached).map_err(OneSidedError::from);
    fails("the wait for a signal", outcome)?;
    for put in puts.drain(..) {
        let outcome = endpoint.wait(put).map_err(OneSidedError::from);
        fails("the wait for a put", outcome)?;
    }
    for get in gets.drain(..).rev() {
        let outcome = endpoint.wait(get).map(drop).map_err(OneSidedError::from);
        fails("the wait for a get", outcome)?;
    }
    let mut quiet = endpoint.quiet();
    fails("quiet", quiet)?;
    quiet = endpoint.quiet();
    equal("a second quiet", quiet.is_ok(), true)?;
    equal("operations under way", endpoint.layer::<OneSided>().under_way(), 0)?;
    while endpoint.status(victim) == Some(PeerStatus::Active) {
        endpoint.poll_or_idle(Span::from_micros(20))?;
    }
    // Memory that this process sees outlives the rank it belonged to.
    let seen = endpoint.remote_segment(victim).is_some();
    let refused = endpoint.put(victim, 64, &[1]);
    ensure(if seen { refused.is_ok() } else { refused.as_ref().is_err_and(gone) }, || {
        format!("a put to the victim: {refused:?}")
    })?;
    let survivor = Rank((me.0 + 1) % (shape.ranks - 1));
    for round in 0..100 {
        endpoint.put(survivor, 64, &[round; 80])?;
        endpoint.atomic(survivor, 8, AtomicOp::Add(1u64))?;
        let mut found = [0; 80];
        endpoint.get(survivor, 64, &mut found)?;
        equal("bytes of a survivor", found, [round; 80])?;
    }
    for rank in (0..shape.ranks - 1).map(Rank) {
        let told = endpoint.put_signal(rank, 64, &[], 16)?;
        endpoint.wait(told)?;
    }
    endpoint.wait_signal(16, u64::from(shape.ranks) - 1)?;
    endpoint.leave();
    Ok(())
}
