//! Item 21, global memory: typed access, access regions, runs and the allocator against models, and what is
//! refused.

use super::{left, right};
use crate::random::{Random, pattern};
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_core::one_sided::{AtomicBatch, AtomicCode, AtomicOp, Dimension, OneSided, OneSidedError, Operation, Runs};
use am_core::transport::{Category, Lane};
use am_core::{Endpoint, Handlers, Rank, SegmentError, Transport};
use am_pgas::Pgas;
use am_pgas::allocator::{AllocationError, Call, FreeError, LocalArray, SegmentAllocation, SymmetricArray};
use am_pgas::memory::{AtomicDomain, AtomicError, GlobalMemory, Operations};
use am_pgas::pointer::{GlobalPtr, GlobalSlice};

pub(super) type Ranks<T> = Endpoint<T, Pgas>;

impl From<AllocationError> for Failure {
    fn from(error: AllocationError) -> Self {
        Self::Check(format!("allocating: {error}"))
    }
}

impl<A> From<FreeError<A>> for Failure {
    fn from(unfreed: FreeError<A>) -> Self {
        unfreed.error.into()
    }
}

impl From<AtomicError> for Failure {
    fn from(error: AtomicError) -> Self {
        Self::Check(format!("atomic: {error}"))
    }
}

pub(super) fn attach<T: Transport>(world: &World, transport: T) -> Result<Ranks<T>, Failure> {
    let mut handlers = Handlers::<Pgas>::new();
    let pgas = Pgas::register(&mut handlers)?;
    Ok(world.attach(transport, handlers, pgas)?)
}

/// Bytes of each rank's segment that every rank writes alone: enough to exceed all limits up to 1 MiB, if there is
/// room. Collective.
pub(super) fn part<T: Transport>(endpoint: &mut Ranks<T>) -> Result<u64, Failure> {
    let (ranks, me) = (endpoint.ranks(), endpoint.rank());
    let segments = (0..ranks).filter_map(|rank| endpoint.segment_len(Rank(rank)));
    let room = segments.min().unwrap_or(0) / 2 / u64::from(ranks);
    let limits = limits(endpoint, right(endpoint.shape(), me));
    let needed = limits.into_iter().filter(|limit| *limit <= 1 << 20).max().unwrap_or(0) + 100;
    let [_, largest] = endpoint.minima([0, !needed])?;
    Ok(room.min((!largest).max(4000)))
}

/// Bytes of one message to a rank, of each kind.
fn limits<T: Transport>(endpoint: &Ranks<T>, to: Rank) -> Vec<u64> {
    let lanes = [Lane::Request, Lane::Reply];
    let kinds = [Category::Medium, Category::Long].into_iter().flat_map(|kind| lanes.map(|lane| (kind, lane)));
    kinds.map(|(kind, lane)| endpoint.max_payload(to, kind, lane, 4).unwrap_or(0)).collect()
}

/// This rank's part of a rank's segment.
pub(super) fn mine<T: Transport>(endpoint: &Ranks<T>, all: &SymmetricArray<u8>, rank: Rank) -> GlobalSlice<u8> {
    let size = all.len() / u64::from(endpoint.ranks());
    let me = u64::from(endpoint.rank().0);
    all.on(rank).range(me * size..(me + 1) * size).expect("every rank has a part")
}

/// Slices of every alignment whose lengths are around every limit, with handles that overlap in time and with
/// regions.
pub(super) fn typed_access<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let (shape, me) = (endpoint.shape(), endpoint.rank());
    let size = part(&mut endpoint)?;
    let all = endpoint.allocate_symmetric::<u8>(size * u64::from(shape.ranks))?;
    let mut random = world.random(u64::from(me.0));
    let to = right(shape, me);
    let row = mine(&endpoint, &all, to);
    // The limits towards near and far neighbours differ: everyone uses the smallest and the largest, so that all
    // put equally often.
    let mut lens = Vec::new();
    for limit in limits(&endpoint, to) {
        let [least, most] = endpoint.minima([limit, !limit])?;
        lens.extend(
            [least, !most].into_iter().flat_map(|limit| [limit.saturating_sub(1), limit, limit.saturating_add(1)]),
        );
    }
    lens.extend([0, 1, 3, 4, 7, 8, 9, 16, 63, 64, 65, 1000]);
    lens.retain(|len| *len <= size.saturating_sub(8));
    lens.sort_unstable();
    lens.dedup();
    signals(world, &mut endpoint, &all, &lens)?;
    for len in lens {
        let at = random.below(9);
        let slice = row.range(at..(at + len).min(size)).expect("lengths were chosen to fit");
        let bytes = pattern(world.salt(&[len, u64::from(me.0)]), slice.len() as usize);
        match len % 3 {
            0 => endpoint.put_slice(slice, &bytes)?,
            1 => put_in_parts(&mut endpoint, slice, &bytes)?,
            _ => {
                endpoint.put_slice_nbi(slice, &bytes)?;
                endpoint.quiet()?;
            }
        }
        let early = endpoint.get_slice_nb(slice)?;
        let mut found = vec![0; bytes.len()];
        endpoint.get_slice(slice, &mut found)?;
        ensure(found == bytes, || format!("{len} bytes at {at} of rank {to} differ"))?;
        ensure(endpoint.wait(early)? == bytes, || format!("{len} bytes of a handle from rank {to} differ"))?;
    }
    // Values of odd sizes, misaligned.
    let odd = GlobalPtr::<[u16; 3]>::new(to, row.offset() + 1);
    endpoint.put_value(odd, [1, 2, 3])?;
    endpoint.put_value_nbi(odd.checked_add(1).expect("near"), [4, 5, 6])?;
    endpoint.quiet()?;
    let mut pair = [[0; 3]; 2];
    endpoint.get_slice(odd.slice(2), &mut pair)?;
    equal("values", pair, [[1, 2, 3], [4, 5, 6]])?;
    endpoint.barrier()?;
    endpoint.free_symmetric(all)?;
    refuse(&mut endpoint, to)?;
    equal("operations under way", endpoint.layer::<OneSided>().under_way(), 0)?;
    endpoint.finish()?;
    Ok(())
}

/// Everyone puts values of all lengths to the right with a signal; who sees the signal finds the values.
fn signals<T: Transport>(
    world: &World,
    endpoint: &mut Ranks<T>,
    all: &SymmetricArray<u8>,
    lens: &[u64],
) -> Verdict {
    let (shape, me) = (endpoint.shape(), endpoint.rank());
    let (to, from) = (right(shape, me), left(shape, me));
    let counter = endpoint.allocate_symmetric::<u64>(1)?;
    let size = all.len() / u64::from(shape.ranks);
    let bytes = |len: u64, rank: Rank| pattern(world.salt(&[len, u64::from(rank.0), 7]), len as usize);
    let row = |rank: Rank, on: Rank, len| {
        let at = u64::from(rank.0) * size;
        all.on(on).range(at..at + len).expect("every rank has a part")
    };
    for (round, len) in (1..).zip(lens) {
        let put = endpoint.put_slice_signal(row(me, to, *len), &bytes(*len, me), counter.on(to).start())?;
        equal("the counter", endpoint.wait_counter(counter.on(me).start(), round)?, round)?;
        let found = endpoint.local(row(from, me, *len))?.map(|own| own.to_vec());
        ensure(found == Some(bytes(*len, from)), || format!("{len} bytes with a signal from rank {from} differ"))?;
        endpoint.wait(put)?;
        endpoint.barrier()?;
    }
    endpoint.free_symmetric(counter)?;
    Ok(())
}

/// Two regions that are under way at once, and one more put outside them.
fn put_in_parts<T: Transport>(endpoint: &mut Ranks<T>, slice: GlobalSlice<u8>, bytes: &[u8]) -> Verdict {
    let third = bytes.len() / 3;
    let part = |from: usize, to: usize| (slice.range(from as u64..to as u64), &bytes[from..to]);
    let put = |endpoint: &mut Ranks<T>, from, to| -> Verdict {
        let (slice, bytes) = part(from, to);
        Ok(endpoint.put_slice_nbi(slice.expect("the part is inside"), bytes)?)
    };
    endpoint.begin_region()?;
    put(endpoint, 0, third)?;
    equal("a region in a region", endpoint.begin_region(), Err(OneSidedError::RegionOpen))?;
    let first: Operation<()> = endpoint.end_region()?;
    endpoint.begin_region()?;
    put(endpoint, third, 2 * third)?;
    let second = endpoint.end_region()?;
    put(endpoint, 2 * third, bytes.len())?;
    endpoint.wait(second)?;
    endpoint.quiet()?;
    Ok(endpoint.wait(first)?)
}

fn refuse<T: Transport>(endpoint: &mut Ranks<T>, to: Rank) -> Verdict {
    let segment = endpoint.segment_len(to).unwrap_or(0);
    let last = GlobalPtr::<u64>::new(to, segment - 8).slice(2);
    let source = SegmentError::OutOfRange { offset: segment - 8, len: 16, segment };
    let outside = Err(OneSidedError::Segment { rank: to, source });
    equal("a slice outside", endpoint.put_slice(last, &[0; 2]), outside)?;
    let lengths = Err(OneSidedError::Lengths { given: 8, needed: 16 });
    equal("a buffer that is too short", endpoint.get_slice(last, &mut [0]), lengths)?;
    let nobody = Rank(endpoint.ranks());
    let no_such = Err(OneSidedError::NoSuchRank { rank: nobody, ranks: nobody.0 });
    equal("a value of nobody", endpoint.get_value(last.start().on(nobody)), no_such)?;
    equal("no region", endpoint.end_region().err(), Some(OneSidedError::NoRegion))?;
    let domain = AtomicDomain::<i64>::new(Operations::ADD)?;
    let odd = GlobalPtr::new(to, 12);
    let source = SegmentError::Misaligned { offset: 12, alignment: 8 };
    let misaligned = AtomicError::Access(OneSidedError::Segment { rank: to, source });
    equal("a misaligned atomic", domain.apply(endpoint, odd, AtomicOp::Inc), Err(misaligned))?;
    ensure(domain.apply(endpoint, odd, AtomicOp::Get).is_err(), || "a read outside the domain".into())
}

/// Runs of all forms against a model, of a length that fits messages or not.
pub(super) fn runs<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let (shape, me) = (endpoint.shape(), endpoint.rank());
    let size = part(&mut endpoint)?.min(4000);
    // The forms need room beside each other.
    ensure(size >= 128, || format!("a part of {size} bytes has no room for the forms"))?;
    let unit = if size < 600 { 9 } else { 61 };
    let all = endpoint.allocate_symmetric::<u8>(size * u64::from(shape.ranks))?;
    let landing = endpoint.allocate_symmetric::<u8>(size)?;
    let mut random = world.random(u64::from(me.0));
    let mut model = vec![vec![0; size as usize]; shape.ranks as usize];
    for round in 0..u64::from(world.count(12, 300)) {
        let rank = Rank(random.below(u64::from(shape.ranks)) as u32);
        let base = mine(&endpoint, &all, rank).offset();
        let (list, indices, dimensions) = draw(&mut random, base, size, unit);
        let len = 1 + random.below([8, unit - 1][round as usize % 2]);
        let runs = match round % 3 {
            0 => Runs::List(&list),
            1 => Runs::Indexed { base, unit, len, indices: &indices },
            _ => Runs::Strided { base: base + size / 2, len, dimensions: &dimensions },
        };
        let bytes = pattern(world.salt(&[round, u64::from(me.0)]), runs.bytes() as usize);
        match round % 4 {
            0 => endpoint.put_runs(rank, &runs, &bytes)?,
            1 => {
                let put = endpoint.put_runs_nb(rank, &runs, &bytes)?;
                endpoint.wait(put)?;
            }
            _ => {
                endpoint.begin_region()?;
                endpoint.put_runs_nbi(rank, &runs, &bytes)?;
                let region = endpoint.end_region()?;
                endpoint.wait(region)?;
            }
        }
        let mut rest = bytes.as_slice();
        for (offset, len) in runs.iter() {
            let (run, others) = rest.split_at(len as usize);
            model[rank.0 as usize][(offset - base) as usize..][..run.len()].copy_from_slice(run);
            rest = others;
        }
        let mut found = vec![0; bytes.len()];
        endpoint.get_runs(rank, &runs, &mut found)?;
        ensure(found == bytes, || format!("runs {runs:?} of rank {rank} differ"))?;
        let get = endpoint.get_runs_nb(rank, &runs)?;
        ensure(endpoint.wait(get)? == bytes, || format!("runs {runs:?} of a handle from rank {rank} differ"))?;
        // Into the own segment: in one run, and in runs that are cut differently.
        let (start, total) = (landing.offset(), bytes.len() as u64);
        let step = 1 + random.below(100);
        let cut: Vec<_> = (0..total).step_by(step as usize).map(|at| (start + at, step.min(total - at))).collect();
        for into in [Runs::List(&[(start, total)]), Runs::List(&cut)] {
            endpoint.put_slice(landing.on(me), &vec![0; size as usize])?;
            endpoint.get_runs_nbi(rank, &runs, &into)?;
            endpoint.quiet()?;
            let own = endpoint.local(landing.on(me))?.map(|own| own.to_vec());
            let arrived = own.is_some_and(|own| {
                own[..bytes.len()] == bytes && own[bytes.len()..].iter().all(|byte| *byte == 0)
            });
            ensure(arrived, || format!("runs {runs:?} of rank {rank} in own runs differ"))?;
        }
        let runs = [(base, 1), (u64::MAX - 1, 2)];
        let beyond = Runs::List(&runs);
        ensure(endpoint.put_runs(rank, &beyond, &[1; 3]).is_err(), || "a run beyond all segments".into())?;
    }
    for (rank, expected) in (0..).map(Rank).zip(&model) {
        let mut found = vec![0; size as usize];
        let row = mine(&endpoint, &all, rank);
        endpoint.get_slice(row, &mut found)?;
        ensure(found == *expected, || format!("all bytes of rank {rank} at the end differ"))?;
    }
    endpoint.barrier()?;
    endpoint.free_symmetric(landing)?;
    endpoint.free_symmetric(all)?;
    endpoint.finish()?;
    Ok(())
}

/// Runs of all forms inside `size` bytes from `base` on that do not overlap if they are shorter than `unit`.
fn draw(random: &mut Random, base: u64, size: u64, unit: u64) -> (Vec<(u64, u64)>, Vec<u32>, [Dimension; 2]) {
    let (mut list, mut at) = (Vec::new(), 0);
    while list.len() < 40 {
        at += random.below(20);
        let most = [10, 100, size / 4][random.below(3) as usize];
        let len = random.below(most);
        if at + len > size {
            break;
        }
        list.push((base + at, len));
        at += len;
    }
    random.shuffle(&mut list);
    let mut indices: Vec<u32> =
        (0..(size / unit).saturating_sub(1) as u32).filter(|_| random.below(3) > 0).collect();
    random.shuffle(&mut indices);
    // Rows and columns on both sides of the middle, away from each other.
    let stride = unit as i64 + 9;
    let columns = random.below(size / 2 / stride as u64 / 4) + 1;
    let dimensions = [
        Dimension { count: 1 + random.below(3), stride: -stride * columns as i64 },
        Dimension { count: columns, stride },
    ];
    (list, indices, dimensions)
}

/// Symmetric and local memory: the same place everywhere, zeros, exhaustion, and calls that differ.
pub(super) fn allocator<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let (shape, me) = (endpoint.shape(), endpoint.rank());
    let mut same = world.random(1000);
    let mut own = world.random(u64::from(me.0));
    endpoint.leave_alone(16)?;
    let (mut kept, mut local): (Vec<SymmetricArray<u16>>, Vec<LocalArray<u8>>) = (Vec::new(), Vec::new());
    for round in 0..u64::from(world.count(20, 400)) {
        // What this rank does alone is in nobody's way.
        match own.below(3) {
            0 => local.extend(endpoint.allocate_local(own.below(100))),
            1 if !local.is_empty() => drop(local.swap_remove(own.below(local.len() as u64) as usize)),
            _ => {}
        }
        if same.below(3) == 0 && !kept.is_empty() {
            let array = kept.swap_remove(same.below(kept.len() as u64) as usize);
            endpoint.free_symmetric(array)?;
            continue;
        }
        let (len, alignment) = (same.below(300), 8 << same.below(5));
        let array = match endpoint.allocate_symmetric_aligned::<u16>(len, alignment) {
            Ok(array) => array,
            Err(AllocationError::Exhausted { .. }) => continue,
            Err(other) => return Err(other.into()),
        };
        let [least, most] = endpoint.minima([array.offset(), !array.offset()])?;
        ensure(least == !most && least % alignment == 0 && least >= 16, || format!("offset {}", array.offset()))?;
        let to = right(shape, me);
        let row = array.on(to);
        let mut found = vec![1; len as usize];
        endpoint.get_slice(row, &mut found)?;
        ensure(found.iter().all(|value| *value == 0), || format!("round {round}: memory is no zeros"))?;
        endpoint.barrier()?;
        endpoint.put_slice(row, &vec![0xffff; len as usize])?;
        kept.push(array);
    }
    let everything = endpoint.segment().len() as u64;
    let exhausted = endpoint.allocate_symmetric::<u64>(everything);
    ensure(matches!(exhausted, Err(AllocationError::Exhausted { .. })), || format!("too much: {exhausted:?}"))?;
    if shape.ranks > 1 {
        let last = shape.ranks - 1;
        let differ = endpoint.allocate_symmetric::<u8>(if me.0 == last { 100 } else { 1 }).err();
        let call = |len| Call::Allocate { len, size: 1, alignment: 64, distribution: 0 };
        let expected = AllocationError::CallsDiffer { a: Rank(0), in_a: call(1), b: Rank(last), in_b: call(100) };
        equal("sizes that differ", differ, Some(expected))?;
    }
    for array in kept {
        endpoint.free_symmetric(array)?;
    }
    let once_more = endpoint.allocate_symmetric_aligned::<u8>(1, 8)?;
    equal("where memory begins once all is free", once_more.offset(), 16)?;
    endpoint.free_symmetric(once_more)?;
    endpoint.finish()?;
    Ok(())
}

/// Everyone updates values of everyone at once, one by one and in batches; all sums must come out.
pub(super) fn domains<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let (shape, me) = (endpoint.shape(), endpoint.rank());
    let ranks = u64::from(shape.ranks);
    let values = endpoint.allocate_symmetric::<u64>(64)?;
    let halves = endpoint.allocate_symmetric::<f32>(1)?;
    let counts = AtomicDomain::<u64>::new(Operations::ADD | Operations::GET)?;
    let sums = AtomicDomain::<f32>::new(Operations::ADD | Operations::GET)?;
    let indices: Vec<u32> = (0..200).map(|index| index * 7 % 64).collect();
    let each: Vec<u64> = (0..200).collect();
    let rounds = u64::from(world.count(5, 50));
    for _ in 0..rounds {
        for rank in (0..shape.ranks).map(Rank) {
            counts.apply_nbi(&mut endpoint, values.on(rank).start(), AtomicOp::Add(1))?;
            sums.apply(&mut endpoint, halves.on(rank).start(), AtomicOp::Add(0.5))?;
            let one = AtomicBatch { code: AtomicCode::Add, operands: &[3u64], expected: &[] };
            endpoint.updates_nbi(rank, values.offset(), &indices, &one)?;
            let many = AtomicBatch { operands: &each, ..one };
            let before = endpoint.atomics(rank, values.offset(), &indices, &many)?;
            equal("bytes of what was there", before.len(), 8 * indices.len())?;
        }
    }
    endpoint.quiet()?;
    endpoint.barrier()?;
    let mut model = vec![0; 64];
    model[0] = rounds * ranks;
    indices.iter().zip(&each).for_each(|(index, value)| model[*index as usize] += (3 + value) * rounds * ranks);
    let own = endpoint.local(values.on(me))?.map(|own| own.to_vec());
    equal("all values", own, Some(model))?;
    let sum = sums.apply(&mut endpoint, halves.on(me).start(), AtomicOp::Get)?;
    equal("sum of halves", sum, (rounds * ranks) as f32 / 2.0)?;
    endpoint.free_symmetric(values)?;
    endpoint.free_symmetric(halves)?;
    endpoint.finish()?;
    Ok(())
}
