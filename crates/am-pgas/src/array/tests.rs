//! Global arrays against models, over messages and over memory.

use super::distribution::{Distribution, DistributionError, Layout, Section};
use super::{ArrayError, Exchange, GlobalArray, Values};
use crate::Pgas;
use crate::allocator::{AllocationError, Call};
use crate::on_ranks::{Ranks, on_ranks};
use am_core::loopback::{LoopbackConfig, network};
use am_core::one_sided::{AtomicCode, AtomicOp, OneSidedError};
use am_core::{Endpoint, HandlerError, Handlers, Rank};
use std::thread;

const LAYOUTS: [Layout; 3] = [Layout::Block, Layout::Cyclic, Layout::BlockCyclic(4)];

/// A reproducible row of numbers below `bound`.
fn numbers(seed: u64, count: usize, bound: u64) -> Vec<u64> {
    let mut state = seed;
    let mut next = || {
        // Knuth's generator of full period; its high bits are good enough.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    (0..count).map(|_| next()).collect()
}

/// Everyone writes its own elements; what a function makes of their indices.
fn fill<const D: usize>(endpoint: &mut Ranks, array: &GlobalArray<u64, D>, value: impl Fn([u64; D]) -> u64) {
    array.own(endpoint).update(|index, _| value(index));
    endpoint.barrier().unwrap();
}

#[test]
fn elements_and_sections_of_one_dimension() {
    on_ranks(3, |endpoint| {
        for layout in LAYOUTS {
            let array =
                GlobalArray::<u64>::new(endpoint, Distribution::new([50], [layout], [3]).unwrap()).unwrap();
            fill(endpoint, &array, |[index]| index * index);
            for index in 0..50 {
                assert_eq!(array.get(endpoint, [index]), Ok(index * index));
            }
            for range in [0..50, 7..8, 13..13, 16..35] {
                let expected: Vec<u64> = range.clone().map(|index| index * index).collect();
                let mut found = vec![0; expected.len()];
                array.get_range(endpoint, range, &mut found).unwrap();
                assert_eq!(found, expected);
            }
            endpoint.barrier().unwrap();
            if endpoint.rank() == Rank(2) {
                array.put_range(endpoint, 5..45, &[1; 40]).unwrap();
                array.put(endpoint, [20], 2).unwrap();
                assert_eq!(array.atomic(endpoint, [20], AtomicOp::Add(5)), Ok(2));
            }
            endpoint.barrier().unwrap();
            let model = |index: u64| match index {
                20 => 7,
                5..45 => 1,
                _ => index * index,
            };
            assert!(array.own(endpoint).iter().all(|([index], value)| value == model(index)));
            array.free(endpoint).unwrap();
        }
    });
}

#[test]
fn sections_of_more_dimensions() {
    on_ranks(4, |endpoint| {
        let layouts = [[Layout::Block; 3], [Layout::Cyclic, Layout::Block, Layout::BlockCyclic(2)]];
        for layouts in layouts {
            let distribution = Distribution::new([5, 6, 9], layouts, [2, 1, 2]).unwrap();
            let array = GlobalArray::<u64, 3>::new(endpoint, distribution).unwrap();
            let value = |[x, y, z]: [u64; 3]| 100 * x + 10 * y + z;
            fill(endpoint, &array, value);
            let sections: [Section<3>; 4] =
                [[0..5, 0..6, 0..9], [1..4, 2..3, 3..9], [2..3, 0..6, 8..9], [0..0, 1..2, 1..2]];
            for section in sections {
                let mut expected = Vec::new();
                for x in section[0].clone() {
                    for y in section[1].clone() {
                        expected.extend(section[2].clone().map(|z| value([x, y, z])));
                    }
                }
                let mut found = vec![0; expected.len()];
                array.get_section(endpoint, &section, &mut found).unwrap();
                assert_eq!(found, expected, "{section:?}");
            }
            endpoint.barrier().unwrap();
            // Everyone writes a plane of its own.
            let me = u64::from(endpoint.rank().0);
            let plane: Vec<u64> = (0..45).map(|number| 1000 * me + number).collect();
            array.put_section(endpoint, &[0..5, me..me + 1, 0..9], &plane).unwrap();
            endpoint.barrier().unwrap();
            for ([x, y, z], found) in array.own(endpoint).iter() {
                assert_eq!(found, if y < 4 { 1000 * y + 9 * x + z } else { value([x, y, z]) });
            }
            array.free(endpoint).unwrap();
        }
    });
}

#[test]
fn batches_of_elements() {
    on_ranks(3, |endpoint| {
        for layout in LAYOUTS {
            let array =
                GlobalArray::<u64>::new(endpoint, Distribution::new([101], [layout], [3]).unwrap()).unwrap();
            fill(endpoint, &array, |[index]| 3 * index);
            let indices = numbers(u64::from(endpoint.rank().0), 1000, 101);
            let mut found = vec![0; 1000];
            array.batch_load(endpoint, &indices, &mut found).unwrap();
            assert!(indices.iter().zip(&found).all(|(index, value)| *value == 3 * index));
            endpoint.barrier().unwrap();
            // Everyone stores in elements of its own.
            let me = u64::from(endpoint.rank().0);
            let mine: Vec<u64> = (0..101).rev().filter(|index| index % 3 == me).collect();
            let values: Vec<u64> = mine.iter().map(|index| 7 * index).collect();
            array.batch_store(endpoint, &mine, &values).unwrap();
            endpoint.barrier().unwrap();
            assert!(array.own(endpoint).iter().all(|([index], value)| value == 7 * index));
            endpoint.barrier().unwrap();
            array.batch_store(endpoint, &mine, 5u64).unwrap();
            endpoint.barrier().unwrap();
            assert!(array.own(endpoint).iter().all(|(_, value)| value == 5));
            endpoint.barrier().unwrap();
            array.free(endpoint).unwrap();
        }
    });
}

#[test]
fn batches_of_atomics_add_up() {
    on_ranks(3, |endpoint| {
        for layout in LAYOUTS {
            let shape = Distribution::new([10, 9], [layout, Layout::Block], [3, 1]).unwrap();
            let array = GlobalArray::<u64, 2>::new(endpoint, shape).unwrap();
            let me = u64::from(endpoint.rank().0);
            let indices = numbers(me, 2000, 90);
            array.batch_add(endpoint, &indices, 1u64).unwrap();
            array.batch_update(endpoint, &indices, AtomicCode::Add, &indices).unwrap();
            endpoint.barrier().unwrap();
            let mut model = [0; 90];
            for rank in 0..3 {
                numbers(rank, 2000, 90).iter().for_each(|index| model[*index as usize] += 1 + index);
            }
            let number = |[x, y]: [u64; 2]| (9 * x + y) as usize;
            assert!(array.own(endpoint).iter().all(|(index, value)| value == model[number(index)]));
            endpoint.barrier().unwrap();
            // Everyone takes tickets; no two get the same.
            let mut tickets = vec![0; 500];
            array.batch_fetch(endpoint, &[4; 500], AtomicCode::Add, 1u64, &mut tickets).unwrap();
            tickets.sort_unstable();
            assert!(tickets.windows(2).all(|pair| pair[0] < pair[1]));
            endpoint.barrier().unwrap();
            assert_eq!(array.get(endpoint, [0, 4]), Ok(model[4] + 1500));
            let mut found = vec![0; 90];
            let all: Vec<u64> = (0..90).collect();
            array.batch_fetch(endpoint, &all, AtomicCode::Get, 0u64, &mut found).unwrap();
            endpoint.barrier().unwrap();
            // One rank replaces each, and the others find what it has put there.
            let mut before = vec![0; 90];
            array.batch_compare_exchange(endpoint, &all, &found, 1_000_000 + me, &mut before).unwrap();
            let won = before.iter().zip(&found).filter(|(before, found)| before == found).count() as u64;
            array.atomic(endpoint, [0, 0], AtomicOp::Get).unwrap();
            endpoint.barrier().unwrap();
            let wins = GlobalArray::<u64>::new(endpoint, Distribution::block([1], 3).unwrap()).unwrap();
            wins.batch_add(endpoint, &[0], won).unwrap();
            endpoint.barrier().unwrap();
            assert_eq!(wins.get(endpoint, [0]), Ok(90));
            assert!(array.own(endpoint).iter().all(|(_, value)| (1_000_000..1_000_003).contains(&value)));
            wins.free(endpoint).unwrap();
            array.free(endpoint).unwrap();
        }
    });
}

/// A batch of many more elements than are sorted at a time.
#[test]
fn large_batches() {
    on_ranks(2, |endpoint| {
        let array = GlobalArray::<u32>::new(endpoint, Distribution::block([1000], 2).unwrap()).unwrap();
        let indices = numbers(7, 150_000, 1000);
        array.batch_add(endpoint, &indices, 1u32).unwrap();
        endpoint.barrier().unwrap();
        let mut found = vec![0; indices.len()];
        array.batch_load(endpoint, &indices, &mut found).unwrap();
        let mut model = [0u32; 1000];
        indices.iter().for_each(|index| model[*index as usize] += 2);
        assert!(indices.iter().zip(&found).all(|(index, value)| *value == model[*index as usize]));
        array.free(endpoint).unwrap();
    });
}

/// What the cells of a rank hold after an exchange, by the rule: the element that a cell stands for, or what was
/// there before. Returns how many of its ghost cells stand for elements.
fn check_ghosts<const D: usize>(
    endpoint: &mut Ranks,
    shape: [u64; D],
    grid: [u32; D],
    exchange: Exchange<D>,
    width: u64,
) -> usize {
    let distribution = Distribution::new(shape, [Layout::Block; D], grid).unwrap().with_halo(width).unwrap();
    let array = GlobalArray::<u64, D>::new(endpoint, distribution).unwrap();
    let value = |index: [u64; D]| index.iter().fold(1, |all, index| 100 * all + index);
    array.own(endpoint).update(|index, _| value(index));
    array.exchange(endpoint, &exchange).unwrap();
    let own = array.own(endpoint);
    let begin = distribution.own_box(endpoint.rank()).unwrap_or_else(|| std::array::from_fn(|_| 0..0));
    let mut filled = 0;
    let cells = own.shape().map(|len| len as i64 + 2 * width as i64);
    for number in 0..cells.iter().product::<i64>() {
        let (mut cell, mut rest) = ([0; D], number);
        for dimension in (0..D).rev() {
            cell[dimension] = rest % cells[dimension] - width as i64;
            rest /= cells[dimension];
        }
        let beyond =
            (0..D).filter(|dimension| !(0..own.shape()[*dimension] as i64).contains(&cell[*dimension])).count();
        let mut index = [0; D];
        let mut element = beyond < 2 || exchange.corners;
        for dimension in 0..D {
            let position = begin[dimension].start as i64 + cell[dimension];
            let len = shape[dimension] as i64;
            element &= exchange.periodic[dimension] || (0..len).contains(&position);
            index[dimension] = position.rem_euclid(len.max(1)) as u64;
        }
        // Cells around nothing stand for nothing.
        element &= !own.is_empty();
        assert_eq!(own.load(cell), if element { value(index) } else { 0 }, "cell {cell:?} of {begin:?}");
        filled += usize::from(element && beyond > 0);
    }
    array.free(endpoint).unwrap();
    filled
}

#[test]
fn ghost_cells() {
    on_ranks(4, |endpoint| {
        for (periodic, corners) in [(false, false), (true, false), (false, true), (true, true)] {
            let filled = check_ghosts(endpoint, [10], [4], Exchange { periodic: [periodic], corners }, 2);
            // 3, 3, 3 and 1 elements.
            let expected = if periodic { 4 } else { [2, 4, 3, 2][endpoint.rank().0 as usize] };
            assert_eq!(filled, expected);
            // One rank has nothing, and the halo is wider than what others have.
            check_ghosts(endpoint, [9], [4], Exchange { periodic: [periodic], corners }, 5);
            check_ghosts(endpoint, [7, 5], [2, 2], Exchange { periodic: [periodic, !periodic], corners }, 1);
            let filled =
                check_ghosts(endpoint, [4, 5, 6], [2, 1, 2], Exchange { periodic: [periodic; 3], corners }, 2);
            // Around 2 x 5 x 3 elements lie 6 x 9 x 7 cells.
            assert!(!periodic || filled == if corners { 348 } else { 4 * (15 + 6 + 10) });
        }
        check_ghosts(endpoint, [3], [1], Exchange { periodic: [true], corners: false }, 7);
    });
}

/// A handler's error ends an exchange on its rank, and none of the others waits in vain.
#[test]
fn an_exchange_fails_on_one_rank() {
    thread::scope(|scope| {
        let config = LoopbackConfig::default().direct(false);
        for transport in network(2, config) {
            scope.spawn(move || {
                let mut handlers = Handlers::<Pgas>::new();
                let fail = handlers.one_way("fail", |_, _, (), _| Err(HandlerError::new("as it should"))).unwrap();
                let pgas = Pgas::register(&mut handlers).unwrap();
                let mut endpoint = Endpoint::attach(transport, handlers, pgas).unwrap();
                let distribution = Distribution::block([8], 2).unwrap().with_halo(1).unwrap();
                let array = GlobalArray::<u64>::new(&mut endpoint, distribution).unwrap();
                if endpoint.rank() == Rank(1) {
                    endpoint.request(Rank(0), fail, ()).unwrap();
                    array.exchange(&mut endpoint, &Exchange::default()).unwrap();
                } else {
                    // Handled within the first barrier at the latest, which leaves the error to the next poll.
                    let failed = array.exchange(&mut endpoint, &Exchange::default());
                    assert!(failed.is_err(), "{failed:?}");
                }
                array.exchange(&mut endpoint, &Exchange::default()).unwrap();
                array.free(&mut endpoint).unwrap();
                endpoint.finish().unwrap();
            });
        }
    });
}

/// Ranks outside the grid own nothing, and use the array as the others do.
#[test]
fn grids_smaller_than_the_job() {
    on_ranks(3, |endpoint| {
        let distribution = Distribution::new([4, 6], [Layout::Block; 2], [2, 1]).unwrap().with_halo(1).unwrap();
        let array = GlobalArray::<u64, 2>::new(endpoint, distribution).unwrap();
        let outside = endpoint.rank() == Rank(2);
        assert_eq!(array.own(endpoint).is_empty(), outside);
        fill(endpoint, &array, |[x, y]| 10 * x + y);
        array.exchange(endpoint, &Exchange { periodic: [true; 2], corners: true }).unwrap();
        let mut found = [0; 4];
        array.get_section(endpoint, &[1..3, 2..4], &mut found).unwrap();
        assert_eq!(found, [12, 13, 22, 23]);
        array.batch_load(endpoint, &[0, 7, 14, 23], &mut found).unwrap();
        assert_eq!(found, [0, 11, 22, 35]);
        endpoint.barrier().unwrap();
        if outside {
            array.put_section(endpoint, &[0..4, 0..1], &[9; 4]).unwrap();
            array.batch_add(endpoint, &[0, 6, 12, 18], 1u64).unwrap();
        }
        endpoint.barrier().unwrap();
        assert_eq!(array.get(endpoint, [3, 0]), Ok(10));
        array.free(endpoint).unwrap();
    });
}

#[test]
fn arrays_without_elements() {
    on_ranks(2, |endpoint| {
        for layout in LAYOUTS {
            let distribution = Distribution::new([4, 0], [Layout::Block, layout], [1, 2]).unwrap();
            let array = GlobalArray::<u64, 2>::new(endpoint, distribution).unwrap();
            assert!(array.own(endpoint).is_empty() && array.own(endpoint).iter().next().is_none());
            array.get_section(endpoint, &[0..4, 0..0], &mut []).unwrap();
            array.put_section(endpoint, &[2..3, 0..0], &[]).unwrap();
            array.batch_load(endpoint, &[], &mut []).unwrap();
            array.batch_add(endpoint, &[], 1u64).unwrap();
            let outside = array.batch_load(endpoint, &[0], &mut [0]);
            assert_eq!(outside, Err(ArrayError::OutOfRange { dimension: 0, index: 0, len: 0 }));
            assert_eq!(array.pointer([0, 0]), None);
            if layout == Layout::Block {
                check_ghosts(endpoint, [0], [2], Exchange { periodic: [true], corners: false }, 1);
            }
            array.exchange(endpoint, &Exchange::default()).unwrap();
            array.free(endpoint).unwrap();
        }
    });
}

/// An array of a job with larger segments, used with an endpoint of another job.
#[test]
fn arrays_of_other_jobs_are_refused() {
    let config = LoopbackConfig::default().segment(4096);
    let join = |config| {
        let mut handlers = Handlers::<Pgas>::new();
        let pgas = Pgas::register(&mut handlers).unwrap();
        Endpoint::attach(network(1, config).remove(0), handlers, pgas).unwrap()
    };
    let (mut large, mut small) = (join(config), join(config.segment(64)));
    let array = GlobalArray::<u64>::new(&mut large, Distribution::block([100], 1).unwrap()).unwrap();
    for indices in [&[][..], &[99], &[3, 4]] {
        let mut found = vec![0; indices.len()];
        if !indices.is_empty() {
            assert_eq!(array.batch_load(&mut small, indices, &mut found), Err(ArrayError::Foreign));
            assert_eq!(array.batch_store(&mut small, indices, 1u64), Err(ArrayError::Foreign));
            assert_eq!(array.batch_add(&mut small, indices, 1u64), Err(ArrayError::Foreign));
            let fetched = array.batch_fetch(&mut small, indices, AtomicCode::Add, 1u64, &mut found);
            assert_eq!(fetched, Err(ArrayError::Foreign));
        }
        array.batch_add(&mut large, indices, 1u64).unwrap();
    }
    assert_eq!(array.exchange(&mut small, &Exchange::default()), Err(ArrayError::Foreign));
    assert!(array.get_range(&mut small, 0..100, &mut [0; 100]).is_err());
    array.free(&mut large).unwrap();
}

#[test]
fn distributions_that_differ_are_told() {
    on_ranks(2, |endpoint| {
        let layout = [Layout::Block, Layout::Cyclic][endpoint.rank().0 as usize];
        // As many elements for each rank either way.
        let differ = GlobalArray::<u64>::new(endpoint, Distribution::new([10], [layout], [2]).unwrap());
        let Err(ArrayError::Allocation(AllocationError::CallsDiffer { a, in_a, b, in_b })) = differ else {
            panic!("{differ:?}");
        };
        assert_eq!((a, b), (Rank(0), Rank(1)));
        let allocate = |call| match call {
            Call::Allocate { len, size, distribution, .. } => (len, size, distribution),
            other => panic!("{other:?}"),
        };
        let (in_a, in_b) = (allocate(in_a), allocate(in_b));
        assert_eq!((in_a.0, in_a.1), (in_b.0, in_b.1));
        assert!(in_a.2 != in_b.2 && in_a.2 != 0 && in_b.2 != 0);
        // One rank's grid is larger than the job.
        let grid = 2 + endpoint.rank().0;
        let differ = GlobalArray::<u64>::new(endpoint, Distribution::block([10], grid).unwrap());
        assert!(matches!(differ, Err(ArrayError::Allocation(AllocationError::CallsDiffer { .. }))), "{differ:?}");
    });
}

#[test]
fn wrong_indices_are_told() {
    on_ranks(2, |endpoint| {
        let array = GlobalArray::<f64, 2>::new(endpoint, Distribution::block([8, 6], 2).unwrap()).unwrap();
        let outside = |dimension, index, len| Some(ArrayError::OutOfRange { dimension, index, len });
        assert_eq!(array.get(endpoint, [3, 6]).err(), outside(1, 6, 6));
        assert_eq!(array.put(endpoint, [8, 6], 1.0).err(), outside(0, 8, 8));
        let section = |dimension, start, end, len| Some(ArrayError::Section { dimension, start, end, len });
        assert_eq!(array.get_section(endpoint, &[0..9, 0..1], &mut [0.0; 9]).err(), section(0, 0, 9, 8));
        let backwards = std::ops::Range { start: 5, end: 2 };
        let found = array.get_section(endpoint, &[0..1, backwards], &mut []).err();
        assert_eq!(found, section(1, 5, 2, 6));
        let text = found.map(|error| error.to_string());
        assert_eq!(
            text.as_deref(),
            Some("the range 5..2 of dimension 1 is none of an array with 6 elements there")
        );
        let lengths = |given, needed| Some(ArrayError::Lengths { given, needed });
        assert_eq!(array.put_section(endpoint, &[0..2, 0..2], &[0.0; 3]).err(), lengths(3, 4));
        assert_eq!(array.batch_load(endpoint, &[0, 48], &mut [0.0; 2]).err(), outside(0, 48, 48));
        assert_eq!(array.batch_load(endpoint, &[0], &mut [0.0; 2]).err(), lengths(2, 1));
        assert_eq!(array.batch_add(endpoint, &[0], &[0.0; 2]).err(), lengths(2, 1));
        let bits = array.batch_update(endpoint, &[0], AtomicCode::Xor, Values::One(1.0));
        assert!(matches!(bits, Err(ArrayError::Access(OneSidedError::Unsupported { .. }))), "{bits:?}");
        let swap = array.batch_fetch(endpoint, &[0], AtomicCode::CompareSwap, 1.0, &mut [0.0]);
        assert!(matches!(swap, Err(ArrayError::Access(OneSidedError::Unsupported { .. }))), "{swap:?}");
        let many = GlobalArray::<u8>::new(endpoint, Distribution::block([8], 3).unwrap());
        let grid = DistributionError::TooManyRanks { grid: 3, ranks: 2 };
        assert_eq!(many.err(), Some(grid.into()));
        let large = GlobalArray::<u8>::new(endpoint, Distribution::block([1 << 40], 2).unwrap());
        assert!(matches!(large, Err(ArrayError::Allocation(_))));
        endpoint.barrier().unwrap();
        assert!(array.own(endpoint).iter().all(|(_, value)| value == 0.0));
        array.free(endpoint).unwrap();
    });
}

#[test]
fn errors_name_the_lost_rank() {
    let (rank, cause) = (Rank(2), am_core::LossCause::Left);
    let finished = ArrayError::from(OneSidedError::Gone { rank, cause: None });
    for other in [finished, ArrayError::Foreign] {
        assert_eq!((other.loss(), other.lost_rank()), (None, None));
    }
    let wait = am_core::WaitError::from(am_core::PollError::PeerLost { rank, cause });
    let gone = OneSidedError::Gone { rank, cause: Some(cause) };
    for error in [
        ArrayError::from(wait.clone()),
        ArrayError::from(OneSidedError::from(wait.clone())),
        ArrayError::from(AllocationError::from(wait)),
        ArrayError::from(gone),
    ] {
        assert_eq!((error.loss(), error.lost_rank()), (Some((rank, cause)), Some(rank)));
        let atomic = crate::memory::AtomicError::from(error);
        assert_eq!((atomic.loss(), atomic.lost_rank()), (Some((rank, cause)), Some(rank)));
    }
}
