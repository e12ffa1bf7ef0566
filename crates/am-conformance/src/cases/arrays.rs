//! Item 22, global arrays: elements, sections, batches and ghost cells against models, and what is refused.

use super::global_memory::attach;
use crate::random::Random;
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_core::one_sided::{AtomicCode, AtomicOp};
use am_core::{Endpoint, Rank, Transport};
use am_pgas::Pgas;
use am_pgas::array::distribution::{Distribution, DistributionError, Layout, Section};
use am_pgas::array::{ArrayError, Exchange, GlobalArray};

type Ranks<T> = Endpoint<T, Pgas>;

impl From<ArrayError> for Failure {
    fn from(error: ArrayError) -> Self {
        Self::Check(format!("array: {error}"))
    }
}

impl From<DistributionError> for Failure {
    fn from(error: DistributionError) -> Self {
        Self::Check(format!("distribution: {error}"))
    }
}

/// A layout, the same on all ranks.
fn layout(random: &mut Random) -> Layout {
    match random.below(3) {
        0 => Layout::Block,
        1 => Layout::Cyclic,
        _ => Layout::BlockCyclic(1 + random.below(5)),
    }
}

/// The number of an element in row-major order.
fn number<const D: usize>(shape: [u64; D], index: [u64; D]) -> usize {
    index.iter().zip(shape).fold(0, |all, (index, len)| all * len + index) as usize
}

/// A box inside a shape.
fn section<const D: usize>(random: &mut Random, shape: [u64; D]) -> Section<D> {
    shape.map(|len| {
        let start = random.below(len + 1);
        start..start + random.below(len - start + 1)
    })
}

/// The elements of a section of a model.
fn cut<const D: usize>(model: &[u64], shape: [u64; D], section: &Section<D>) -> Vec<u64> {
    let count: u64 = section.iter().map(|range| range.end - range.start).product();
    let element = |place: u64| {
        let (mut rest, mut index) = (place, [0; D]);
        for dimension in (0..D).rev() {
            let range = &section[dimension];
            index[dimension] = range.start + rest % (range.end - range.start);
            rest /= range.end - range.start;
        }
        model[number(shape, index)]
    };
    (0..count).map(element).collect()
}

/// Elements and sections of arrays of 1 to 3 dimensions in drawn distributions; one rank after the other writes.
pub(super) fn sections<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let mut same = world.random(2000);
    for _ in 0..world.count(3, 40) {
        let lens = [0; 3].map(|_| 1 + same.below(8));
        check_sections(world, &mut endpoint, &mut same, [lens[0] * lens[1]])?;
        check_sections(world, &mut endpoint, &mut same, [lens[0], lens[1]])?;
        check_sections(world, &mut endpoint, &mut same, lens)?;
    }
    endpoint.finish()?;
    Ok(())
}

fn check_sections<T: Transport, const D: usize>(
    world: &World,
    endpoint: &mut Ranks<T>,
    same: &mut Random,
    shape: [u64; D],
) -> Verdict {
    let (me, ranks) = (endpoint.rank(), endpoint.ranks());
    let layouts = [(); D].map(|()| layout(same));
    let distribution = Distribution::new(shape, layouts, Distribution::<D>::grid(ranks))?;
    let array = GlobalArray::<u64, D>::new(endpoint, distribution)?;
    let mut model: Vec<u64> = (0..distribution.len()).collect();
    array.own(endpoint).update(|index, _| number(shape, index) as u64);
    endpoint.barrier()?;
    for writer in (0..ranks).map(Rank) {
        let (written, read) = (section(same, shape), section(same, shape));
        let values: Vec<u64> = (0..cut(&model, shape, &written).len() as u64)
            .map(|at| world.salt(&[u64::from(writer.0), at]))
            .collect();
        if me == writer {
            array.put_section(endpoint, &written, &values)?;
        }
        let mut values = values.iter();
        for (place, element) in (0..).zip(&mut model) {
            let (mut rest, mut index) = (place, [0; D]);
            for dimension in (0..D).rev() {
                index[dimension] = rest % shape[dimension];
                rest /= shape[dimension];
            }
            if (0..D).all(|dimension| written[dimension].contains(&index[dimension])) {
                *element = *values.next().expect("one value for each element");
            }
        }
        endpoint.barrier()?;
        let expected = cut(&model, shape, &read);
        let mut found = vec![0; expected.len()];
        array.get_section(endpoint, &read, &mut found)?;
        ensure(found == expected, || format!("section {read:?} of {distribution:?} differs"))?;
        let index = shape.map(|len| same.below(len));
        equal("an element", array.get(endpoint, index)?, model[number(shape, index)])?;
        endpoint.barrier()?;
    }
    for (index, value) in array.own(endpoint).iter() {
        equal("an own element", value, model[number(shape, index)])?;
    }
    let beyond = array.get(endpoint, shape).err();
    equal("beyond", beyond, Some(ArrayError::OutOfRange { dimension: 0, index: shape[0], len: shape[0] }))?;
    Ok(array.free(endpoint)?)
}

/// Batches by everyone at once: loads, stores, sums, tickets and compare-and-swaps.
pub(super) fn batches<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let (me, ranks) = (u64::from(endpoint.rank().0), u64::from(endpoint.ranks()));
    let mut same = world.random(3000);
    for _ in 0..world.count(3, 40) {
        let len = 1 + same.below(120);
        let distribution = Distribution::new([len], [layout(&mut same)], [endpoint.ranks()])?;
        let array = GlobalArray::<u64>::new(&mut endpoint, distribution)?;
        let count = same.below(700);
        // What each rank draws, everyone knows.
        let seed = same.number();
        let drawn = |rank: u64| {
            let mut random = Random::new(seed, rank);
            (0..count).map(|_| random.below(len)).collect::<Vec<u64>>()
        };
        let indices = drawn(me);
        array.batch_add(&mut endpoint, &indices, 1u64)?;
        array.batch_update(&mut endpoint, &indices, AtomicCode::Add, &indices)?;
        endpoint.barrier()?;
        let mut model = vec![0; len as usize];
        for rank in 0..ranks {
            drawn(rank).iter().for_each(|index| model[*index as usize] += 1 + index);
        }
        let mut found = vec![0; indices.len()];
        array.batch_load(&mut endpoint, &indices, &mut found)?;
        let right = indices.iter().zip(&found).all(|(index, value)| *value == model[*index as usize]);
        ensure(right, || format!("a batch of {count} loads from {distribution:?} differs"))?;
        endpoint.barrier()?;
        // Each rank's tickets differ from all others.
        let mut tickets = vec![0; 50];
        let ticket = same.below(len);
        array.batch_fetch(&mut endpoint, &[ticket; 50], AtomicCode::Add, 1u64, &mut tickets)?;
        tickets.sort_unstable();
        let bounds = model[ticket as usize]..model[ticket as usize] + 50 * ranks;
        let right = tickets.windows(2).all(|pair| pair[0] < pair[1]) && tickets.iter().all(|t| bounds.contains(t));
        ensure(right, || format!("tickets {tickets:?} of {bounds:?}"))?;
        endpoint.barrier()?;
        equal("all tickets", array.get(&mut endpoint, [ticket])?, bounds.end)?;
        endpoint.barrier()?;
        // Of all ranks that replace an element, one wins.
        let everything: Vec<u64> = (0..len).collect();
        model[ticket as usize] = bounds.end;
        let mut before = vec![0; everything.len()];
        array.batch_compare_exchange(&mut endpoint, &everything, &model, u64::MAX - me, &mut before)?;
        let won = before.iter().zip(&model).filter(|(before, expected)| before == expected).count() as u64;
        endpoint.barrier()?;
        let one = Distribution::block([1], endpoint.ranks())?;
        let wins = GlobalArray::<u64>::new(&mut endpoint, one)?;
        wins.atomic(&mut endpoint, [0], AtomicOp::Add(won))?;
        endpoint.barrier()?;
        equal("elements that were replaced", wins.get(&mut endpoint, [0])?, len)?;
        let mine: Vec<u64> = everything.iter().copied().filter(|index| index % ranks == me).collect();
        array.batch_store(&mut endpoint, &mine, &mine)?;
        endpoint.barrier()?;
        ensure(array.own(&endpoint).iter().all(|([index], value)| index == value), || {
            "stored elements differ".into()
        })?;
        let outside = array.batch_add(&mut endpoint, &[0, len], 1u64).err();
        equal("an index outside", outside, Some(ArrayError::OutOfRange { dimension: 0, index: len, len }))?;
        let lengths = array.batch_store(&mut endpoint, &[0], &[1, 2]).err();
        equal("too many values", lengths, Some(ArrayError::Lengths { given: 2, needed: 1 }))?;
        endpoint.barrier()?;
        wins.free(&mut endpoint)?;
        array.free(&mut endpoint)?;
    }
    endpoint.finish()?;
    Ok(())
}

/// Ghost cells of every kind, over and over with other values.
pub(super) fn ghost_cells<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let mut same = world.random(4000);
    for _ in 0..world.count(2, 30) {
        let lens = [0; 3].map(|_| 1 + same.below(7));
        check_ghosts(&mut endpoint, &mut same, [lens[0] + lens[1]])?;
        check_ghosts(&mut endpoint, &mut same, [lens[0], lens[1]])?;
        check_ghosts(&mut endpoint, &mut same, lens)?;
    }
    endpoint.finish()?;
    Ok(())
}

fn check_ghosts<T: Transport, const D: usize>(
    endpoint: &mut Ranks<T>,
    same: &mut Random,
    shape: [u64; D],
) -> Verdict {
    let width = 1 + same.below(2);
    let exchange = Exchange { periodic: [(); D].map(|()| same.below(2) == 0), corners: same.below(2) == 0 };
    let distribution = Distribution::block(shape, endpoint.ranks())?.with_halo(width)?;
    let array = GlobalArray::<u64, D>::new(endpoint, distribution)?;
    for round in 1..4 {
        array.own(endpoint).update(|index, _| 1000 * round + number(shape, index) as u64);
        array.exchange(endpoint, &exchange)?;
        let own = array.own(endpoint);
        let begin = distribution.own_box(endpoint.rank()).filter(|_| !own.is_empty());
        let begin = begin.map(|section| section.map(|range| range.start as i64));
        let cells = own.shape().map(|len| len as i64 + 2 * width as i64);
        for place in 0..cells.iter().product::<i64>() {
            let (mut rest, mut cell) = (place, [0; D]);
            for dimension in (0..D).rev() {
                cell[dimension] = rest % cells[dimension] - width as i64;
                rest /= cells[dimension];
            }
            let outside = |dimension: &usize| !(0..own.shape()[*dimension] as i64).contains(&cell[*dimension]);
            let mut filled = exchange.corners || (0..D).filter(outside).count() < 2;
            let mut index = [0; D];
            for dimension in 0..D {
                let (len, at) =
                    (shape[dimension] as i64, begin.map_or(0, |begin| begin[dimension]) + cell[dimension]);
                filled &= exchange.periodic[dimension] || (0..len).contains(&at);
                index[dimension] = at.rem_euclid(len) as u64;
            }
            // Nothing is around nothing.
            filled &= begin.is_some();
            let expected = if filled { 1000 * round + number(shape, index) as u64 } else { 0 };
            ensure(own.load(cell) == expected, || {
                format!("cell {cell:?} from {begin:?} of {shape:?}: {} instead of {expected}", own.load(cell))
            })?;
        }
    }
    Ok(array.free(endpoint)?)
}
