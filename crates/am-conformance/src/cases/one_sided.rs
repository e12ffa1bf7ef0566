//! Item 17, one-sided access: puts, gets and atomics against models, whatever way they travel.

use super::{last, right};
use crate::random::{Random, pattern};
use crate::world::{Failure, Findings, Verdict, World, ensure, equal};
use am_core::one_sided::{AtomicOp, OneSided, OneSidedError, Operation, Unfinished};
use am_core::{Endpoint, Handlers, Rank, SegmentError, Shape, Transport};

/// Bytes at the start of a segment for counters.
const COUNTERS: u64 = 64;

type Ranks<T> = Endpoint<T, OneSided>;

impl From<OneSidedError> for Failure {
    fn from(error: OneSidedError) -> Self {
        Self::Check(format!("one-sided: {error}"))
    }
}

impl<R> From<Unfinished<R>> for Failure {
    fn from(Unfinished { error, .. }: Unfinished<R>) -> Self {
        error.into()
    }
}

pub(super) fn attach<T: Transport>(world: &World, transport: T) -> Result<Ranks<T>, Failure> {
    let mut handlers = Handlers::<OneSided>::new();
    let one_sided = OneSided::register(&mut handlers)?;
    Ok(world.attach(transport, handlers, one_sided)?)
}

/// The part of every segment that a rank alone writes: its offset and size.
fn part<T: Transport>(endpoint: &Ranks<T>, rank: Rank) -> (u64, usize) {
    let lens = (0..endpoint.ranks()).filter_map(|rank| endpoint.segment_len(Rank(rank)));
    let size = (lens.min().unwrap_or(0).saturating_sub(COUNTERS)) / u64::from(endpoint.ranks());
    (COUNTERS + u64::from(rank.0) * size, size as usize)
}

/// A get under way, what its target held when it began, and its target.
type Reading = (Operation<Vec<u8>>, Vec<u8>, Rank);

/// What a rank knows that its parts of the segments hold.
struct Model {
    parts: Vec<Vec<u8>>,
    begin: u64,
}

impl Model {
    /// A random range of a part: mostly short, at times all of it.
    fn range(&self, random: &mut Random) -> (usize, usize) {
        let size = self.parts[0].len();
        let most = [8, 64, 3000, size][random.below(4) as usize].min(size);
        let len = random.below(most as u64 + 1) as usize;
        (random.below((size - len) as u64 + 1) as usize, len)
    }
}

/// Puts and gets of every size and alignment, blocking, with handles and without, several under way.
pub(super) fn put_and_get<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let (shape, me) = (endpoint.shape(), endpoint.rank());
    let (begin, size) = part(&endpoint, me);
    let mut model = Model { parts: vec![vec![0; size]; shape.ranks as usize], begin };
    let mut random = world.random(u64::from(me.0));
    let (mut writing, mut reading): (Vec<Operation<()>>, Vec<Reading>) = (Vec::new(), Vec::new());
    endpoint.barrier()?;
    for step in 0..u64::from(world.count(60, 2000)) {
        let rank = Rank(random.below(u64::from(shape.ranks)) as u32);
        let (at, len) = model.range(&mut random);
        let offset = model.begin + at as u64;
        let bytes = pattern(world.salt(&[step, u64::from(me.0)]), len);
        match random.below(6) {
            0..3 => {
                // Operations are not ordered: what overlaps has to be done.
                settle(&mut endpoint, &mut writing, &mut reading)?;
                match step % 3 {
                    0 => endpoint.put(rank, offset, &bytes)?,
                    1 => writing.push(endpoint.put_nb(rank, offset, &bytes)?),
                    _ => endpoint.put_nbi(rank, offset, &bytes)?,
                }
                model.parts[rank.0 as usize][at..at + len].copy_from_slice(&bytes);
            }
            3 => {
                settle(&mut endpoint, &mut writing, &mut Vec::new())?;
                let mut found = vec![0; len];
                endpoint.get(rank, offset, &mut found)?;
                let expected = &model.parts[rank.0 as usize][at..at + len];
                equal("bytes of a get", found == expected, true)?;
            }
            4 => {
                settle(&mut endpoint, &mut writing, &mut Vec::new())?;
                let expected = model.parts[rank.0 as usize][at..at + len].to_vec();
                reading.push((endpoint.get_nb(rank, offset, len)?, expected, rank));
                if reading.len() > 8 {
                    settle(&mut endpoint, &mut writing, &mut reading)?;
                }
            }
            _ => {
                settle(&mut endpoint, &mut writing, &mut reading)?;
                // A get into this rank's own part of its own segment changes the model of that.
                let own = &mut model.parts;
                let (into, half) = (random.below(8) as usize, len / 2);
                if into + half <= size {
                    endpoint.get_nbi(rank, offset, half, begin + into as u64)?;
                    endpoint.quiet()?;
                    let bytes = own[rank.0 as usize][at..at + half].to_vec();
                    // Also where both ranges overlap: what comes is what was there before.
                    own[me.0 as usize][into..into + half].copy_from_slice(&bytes);
                }
            }
        }
    }
    settle(&mut endpoint, &mut writing, &mut reading)?;
    for (rank, expected) in (0..).map(Rank).zip(&model.parts) {
        let mut found = vec![0; size];
        endpoint.get(rank, begin, &mut found)?;
        equal("all bytes at the end", found == *expected, true)?;
    }
    equal("operations under way", endpoint.layer::<OneSided>().under_way(), 0)?;
    endpoint.barrier()?;
    endpoint.finish()?;
    Ok(())
}

/// Waits for all operations, the handles of some of which are dropped.
fn settle<T: Transport>(
    endpoint: &mut Ranks<T>,
    writing: &mut Vec<Operation<()>>,
    reading: &mut Vec<Reading>,
) -> Verdict {
    for operation in writing.drain(..) {
        while !endpoint.test(&operation)? {
            endpoint.poll_or_idle(am_core::Span::from_micros(20))?;
        }
        endpoint.wait(operation)?;
    }
    // In another order than they began; one of them nobody waits for.
    for (index, (operation, expected, rank)) in reading.drain(..).rev().enumerate() {
        if index == 3 {
            drop(operation);
            continue;
        }
        let found = endpoint.wait(operation)?;
        ensure(found == expected, || format!("bytes of a get with a handle from rank {rank} differ"))?;
    }
    endpoint.quiet()?;
    Ok(())
}

/// Everyone updates counters of everyone at once; all sums must come out.
pub(super) fn atomics<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let (shape, me) = (endpoint.shape(), endpoint.rank());
    let rounds = u64::from(world.count(13, 301));
    let each = u64::from(me.0) + 1;
    endpoint.barrier()?;
    let mut findings = Findings::default();
    for round in 0..rounds {
        for rank in (0..shape.ranks).map(Rank) {
            endpoint.atomic_nbi(rank, 0, AtomicOp::Add(each))?;
            let old = endpoint.atomic(rank, 8, AtomicOp::Add(0.5f64))?;
            ensure((old * 2.0).fract() == 0.0, || format!("a sum of halves was {old}"))?;
            endpoint.atomic(rank, 16, AtomicOp::<u32>::Inc)?;
            let below = endpoint.atomic_nb(rank, 20, AtomicOp::Sub(1i32))?;
            // A lock-free maximum, and a counter by compare-and-swap.
            endpoint.atomic_nbi(rank, 24, AtomicOp::Max(round * 100 + each))?;
            let mut seen = endpoint.atomic(rank, 32, AtomicOp::<u64>::Get)?;
            loop {
                let found = endpoint.atomic(rank, 32, AtomicOp::CompareSwap { expected: seen, new: seen + 1 })?;
                if found == seen {
                    break;
                }
                findings.equal("a counter that only grows", found > seen, true);
                seen = found;
            }
            endpoint.atomic_nbi(rank, 40, AtomicOp::Xor(world.salt(&[u64::from(me.0)])))?;
            let below = endpoint.wait(below)?;
            ensure(below <= 0, || format!("a counter that only falls was {below}"))?;
        }
    }
    endpoint.quiet()?;
    endpoint.barrier()?;
    let ranks = u64::from(shape.ranks);
    let at = |endpoint: &mut Ranks<T>, offset| endpoint.atomic(me, offset, AtomicOp::<u64>::Get);
    equal("sum", at(&mut endpoint, 0)?, rounds * ranks * (ranks + 1) / 2)?;
    let halves = endpoint.atomic(me, 8, AtomicOp::<f64>::Get)?;
    equal("sum of halves", halves, (rounds * ranks) as f64 / 2.0)?;
    equal("counter of 32 bits", endpoint.atomic(me, 16, AtomicOp::<u32>::Get)?, (rounds * ranks) as u32)?;
    equal("falling counter", endpoint.atomic(me, 20, AtomicOp::<i32>::Get)?, -((rounds * ranks) as i32))?;
    equal("maximum", at(&mut endpoint, 24)?, (rounds - 1) * 100 + ranks)?;
    equal("compare-and-swap", at(&mut endpoint, 32)?, rounds * ranks)?;
    let salts = (0..ranks).map(|rank| world.salt(&[rank])).fold(0, |all, salt| all ^ salt);
    equal("exclusive or", at(&mut endpoint, 40)?, if rounds % 2 == 0 { 0 } else { salts })?;
    endpoint.barrier()?;
    endpoint.finish()?;
    findings.verdict()
}

/// Puts that tell their target, and what is refused.
pub(super) fn signals_and_errors<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let (shape, me) = (endpoint.shape(), endpoint.rank());
    let to = right(shape, me);
    let (begin, size) = part(&endpoint, me);
    let source = if me.0 == 0 { last(shape) } else { Rank(me.0 - 1) };
    let (theirs, _) = part(&endpoint, source);
    let len = size.min(500);
    endpoint.barrier()?;
    for round in 0..u64::from(world.count(10, 200)) {
        let bytes = pattern(world.salt(&[round, u64::from(me.0)]), len);
        let put = endpoint.put_signal(to, begin, &bytes, 48)?;
        endpoint.wait_signal(48, round + 1)?;
        let found = endpoint.segment().view(theirs, len)?.to_vec();
        equal("bytes told of", found == pattern(world.salt(&[round, u64::from(source.0)]), len), true)?;
        endpoint.wait(put)?;
        endpoint.barrier()?;
    }
    refuse(&mut endpoint, shape, to)?;
    endpoint.barrier()?;
    endpoint.finish()?;
    Ok(())
}

fn refuse<T: Transport>(endpoint: &mut Ranks<T>, shape: Shape, to: Rank) -> Verdict {
    let segment = endpoint.segment_len(to).unwrap_or(0);
    let nobody = Rank(shape.ranks);
    let no_such = Some(OneSidedError::NoSuchRank { rank: nobody, ranks: shape.ranks });
    equal("a put to nobody", endpoint.put(nobody, 0, &[1]).err(), no_such.clone())?;
    equal("a get from nobody", endpoint.get_nb(nobody, 0, 1).err(), no_such.clone())?;
    equal("an atomic at nobody's", endpoint.atomic(nobody, 0, AtomicOp::<u64>::Inc).err(), no_such)?;
    let outside = |offset, len| {
        let source = SegmentError::OutOfRange { offset, len, segment };
        Some(OneSidedError::Segment { rank: to, source })
    };
    equal("a put outside", endpoint.put(to, segment - 1, &[1, 2]).err(), outside(segment - 1, 2))?;
    equal("a get outside", endpoint.get(to, u64::MAX, &mut [0; 2]).err(), outside(u64::MAX, 2))?;
    equal("an atomic outside", endpoint.atomic_nbi(to, segment, AtomicOp::Add(1u32)).err(), outside(segment, 4))?;
    let source = SegmentError::Misaligned { offset: 12, alignment: 8 };
    let misaligned = Some(OneSidedError::Segment { rank: to, source });
    equal("a misaligned atomic", endpoint.atomic(to, 12, AtomicOp::<i64>::Dec).err(), misaligned.clone())?;
    equal("a misaligned signal", endpoint.put_signal(to, 0, &[], 12).err(), misaligned)?;
    let refused = endpoint.atomic(to, 8, AtomicOp::And(1.0f64));
    ensure(matches!(refused, Err(OneSidedError::Unsupported { .. })), || format!("bits of a float: {refused:?}"))?;
    endpoint.put(to, segment, &[])?;
    equal("nothing at the end", endpoint.get_nb(to, segment, 0).map(|get| endpoint.wait(get))??, vec![])
}
