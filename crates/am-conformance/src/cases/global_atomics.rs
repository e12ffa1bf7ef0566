//! Item 21, atomics of all operations on all six types: one by one, with handles and in batches against models,
//! and those of everyone on one value.

use super::global_memory::{Ranks, attach};
use super::right;
use crate::random::Random;
use crate::world::{Verdict, World, ensure, equal};
use am_core::one_sided::atomic::Number;
use am_core::one_sided::{AtomicBatch, AtomicCode, AtomicOp, AtomicValue, OneSidedError, Output};
use am_core::{Rank, Transport};
use am_pgas::allocator::SegmentAllocation;
use am_pgas::memory::{AtomicDomain, GlobalMemory, Operations};
use am_pgas::pointer::{Element, GlobalPtr};

/// Values of each rank in each segment.
const VALUES: usize = 9;

/// A type of atomics, and what its operations do, by the suite's own arithmetic.
trait Modelled: Element + AtomicValue + Number + Output {
    fn draw(random: &mut Random) -> Self;

    fn after(self, op: AtomicOp<Self>) -> Self;
}

macro_rules! modelled {
    ($([$($type:ty)*] $draw:expr, $add:ident, $sub:ident, $mul:ident, |$a:ident, $b:ident| $bits:tt;)*) => {$($(
        impl Modelled for $type {
            fn draw(random: &mut Random) -> Self {
                let number = random.number();
                // Small ones as well, which compare in both orders.
                let number = if number % 3 == 0 { number >> 32 & 0xff } else { number };
                let draw: fn(u64) -> Self = $draw;
                draw(number)
            }

            fn after(self, op: AtomicOp<Self>) -> Self {
                let $a = self;
                match op {
                    AtomicOp::Get => self,
                    AtomicOp::Swap(value) => value,
                    AtomicOp::Add(value) => self.$add(value),
                    AtomicOp::Sub(value) => self.$sub(value),
                    AtomicOp::Mul(value) => self.$mul(value),
                    AtomicOp::Min(value) => if value < self { value } else { self },
                    AtomicOp::Max(value) => if value > self { value } else { self },
                    AtomicOp::Inc => self.$add(1 as $type),
                    AtomicOp::Dec => self.$sub(1 as $type),
                    AtomicOp::And($b) => modelled!(@ $bits, $a, $b, &),
                    AtomicOp::Or($b) => modelled!(@ $bits, $a, $b, |),
                    AtomicOp::Xor($b) => modelled!(@ $bits, $a, $b, ^),
                    // By bits, as the operation on numbers is.
                    AtomicOp::CompareSwap { expected, new } => {
                        if AtomicValue::to_bits(self) == AtomicValue::to_bits(expected) { new } else { self }
                    }
                }
            }
        }
    )*)*};
    (@ (bits), $a:ident, $b:ident, $op:tt) => { $a $op $b };
    (@ (none), $a:ident, $b:ident, $op:tt) => {{ let _ = $b; $a }};
}

use std::ops::{Add as _, Mul as _, Sub as _};

modelled! {
    [u32 i32 u64 i64] |number| number as _, wrapping_add, wrapping_sub, wrapping_mul, |a, b| (bits);
    // Of a few bits, so that nothing is rounded on the way.
    [f32 f64] |number| (number % 1000) as Self / 4.0 - 77.0, add, sub, mul, |a, b| (none);
}

fn ops<V: Modelled>(random: &mut Random, there: V) -> [AtomicOp<V>; 14] {
    let mut next = || V::draw(random);
    [
        AtomicOp::Get,
        AtomicOp::Swap(next()),
        AtomicOp::Add(next()),
        AtomicOp::Sub(next()),
        AtomicOp::Mul(next()),
        AtomicOp::Min(next()),
        AtomicOp::Max(next()),
        AtomicOp::Inc,
        AtomicOp::Dec,
        AtomicOp::And(next()),
        AtomicOp::Or(next()),
        AtomicOp::Xor(next()),
        AtomicOp::CompareSwap { expected: there, new: next() },
        AtomicOp::CompareSwap { expected: next(), new: next() },
    ]
}

fn bitwise<V>(op: AtomicOp<V>) -> bool {
    matches!(op, AtomicOp::And(_) | AtomicOp::Or(_) | AtomicOp::Xor(_))
}

/// All operations on this rank's own values in the segments of all others, at the same time as theirs beside them.
fn alone<T: Transport, V: Modelled>(endpoint: &mut Ranks<T>, random: &mut Random, rounds: u32) -> Verdict {
    let (shape, me) = (endpoint.shape(), endpoint.rank());
    let values = endpoint.allocate_symmetric::<V>(VALUES as u64 * u64::from(shape.ranks))?;
    let domain = AtomicDomain::<V>::new(Operations::all(V::KIND))?;
    let float = V::KIND.is_float();
    for round in 0..rounds {
        let rank = Rank(random.below(u64::from(shape.ranks)) as u32);
        let start = u64::from(me.0) * VALUES as u64;
        let row = values.on(rank).range(start..start + VALUES as u64).expect("every rank has its values");
        let mut model: Vec<V> = (0..VALUES).map(|_| V::draw(random)).collect();
        endpoint.put_slice(row, &model)?;
        let index = random.below(VALUES as u64);
        let at: GlobalPtr<V> = row.at(index).expect("the index was drawn inside");
        let place = &mut model[index as usize];
        for number in 0..14 {
            let op = ops(random, *place)[number];
            let what = format!("round {round}: {op:?} on {place:?} of rank {rank}");
            let refused = if float && bitwise(op) {
                let by_number = endpoint.atomic_nb(rank, at.offset(), op).map(drop);
                ensure(matches!(by_number, Err(OneSidedError::Unsupported { .. })), || what.clone())?;
                true
            } else {
                false
            };
            if refused {
                continue;
            }
            match (round + number as u32) % 3 {
                0 => equal(&what, domain.apply(endpoint, at, op)?, *place)?,
                1 => {
                    let under_way = domain.apply_nb(endpoint, at, op)?;
                    equal(&what, endpoint.wait(under_way)?, *place)?;
                }
                _ => {
                    domain.apply_nbi(endpoint, at, op)?;
                    endpoint.quiet()?;
                }
            }
            *place = place.after(op);
            equal(&what, endpoint.get_value(at)?, *place)?;
        }
        batches(endpoint, random, (row.offset(), rank), &mut model)?;
        let mut found = vec![model[0]; VALUES];
        endpoint.get_slice(row, &mut found)?;
        equal("the values of a rank at the end", found, model)?;
    }
    endpoint.barrier()?;
    endpoint.free_symmetric(values)?;
    Ok(())
}

/// The operations that batches have, with what one of them does.
fn batched<V: Modelled>(code: AtomicCode, operand: V, expected: V) -> AtomicOp<V> {
    match code {
        AtomicCode::Get => AtomicOp::Get,
        AtomicCode::Swap => AtomicOp::Swap(operand),
        AtomicCode::Add => AtomicOp::Add(operand),
        AtomicCode::Sub => AtomicOp::Sub(operand),
        AtomicCode::Mul => AtomicOp::Mul(operand),
        AtomicCode::Min => AtomicOp::Min(operand),
        AtomicCode::Max => AtomicOp::Max(operand),
        AtomicCode::And => AtomicOp::And(operand),
        AtomicCode::Or => AtomicOp::Or(operand),
        AtomicCode::Xor => AtomicOp::Xor(operand),
        AtomicCode::CompareSwap => AtomicOp::CompareSwap { expected, new: operand },
    }
}

const CODES: [AtomicCode; 11] = [
    AtomicCode::Get,
    AtomicCode::Swap,
    AtomicCode::Add,
    AtomicCode::Sub,
    AtomicCode::Mul,
    AtomicCode::Min,
    AtomicCode::Max,
    AtomicCode::And,
    AtomicCode::Or,
    AtomicCode::Xor,
    AtomicCode::CompareSwap,
];

/// Batches of every operation, on each value once, since those on one value have no order.
fn batches<T: Transport, V: Modelled>(
    endpoint: &mut Ranks<T>,
    random: &mut Random,
    (base, rank): (u64, Rank),
    model: &mut [V],
) -> Verdict {
    for code in CODES {
        let mut indices: Vec<u32> = (0..VALUES as u32).collect();
        random.shuffle(&mut indices);
        indices.truncate(1 + random.length(VALUES - 1));
        let (get, compare) = (code == AtomicCode::Get, code == AtomicCode::CompareSwap);
        let operands: Vec<V> = indices.iter().filter(|_| !get).map(|_| V::draw(random)).collect();
        // Half of the comparisons come true.
        let mut expect =
            |index: &u32| if index.is_multiple_of(2) { model[*index as usize] } else { V::draw(random) };
        let expected: Vec<V> = indices.iter().filter(|_| compare).map(&mut expect).collect();
        let batch = AtomicBatch { code, operands: &operands, expected: &expected };
        let any = model[0];
        if V::KIND.is_float() && bitwise(batched(code, any, any)) {
            let refused = endpoint.updates_nbi(rank, base, &indices, &batch);
            ensure(matches!(refused, Err(OneSidedError::Unsupported { .. })), || {
                format!("{code:?}: {refused:?}")
            })?;
            continue;
        }
        let before: Vec<V> = indices.iter().map(|index| model[*index as usize]).collect();
        if random.below(2) == 0 {
            let bytes = endpoint.atomics(rank, base, &indices, &batch)?;
            let found: Vec<V> = bytes
                .chunks_exact(size_of::<V>())
                .map(|bytes| V::read_from_bytes(bytes).expect("a chunk has the size of a value"))
                .collect();
            equal(&format!("what was there before a batch of {code:?}"), found, before)?;
        } else {
            endpoint.updates_nbi(rank, base, &indices, &batch)?;
            endpoint.quiet()?;
        }
        for (number, index) in indices.iter().enumerate() {
            let operand = operands.get(number).copied().unwrap_or(any);
            let expected = expected.get(number).copied().unwrap_or(any);
            let place = &mut model[*index as usize];
            *place = place.after(batched(code, operand, expected));
        }
    }
    Ok(())
}

/// Everyone on the same values of rank 0 and of the last rank: what comes out must not depend on the order.
fn together<T: Transport>(endpoint: &mut Ranks<T>, rounds: u32) -> Verdict {
    let (ranks, me) = (endpoint.ranks(), endpoint.rank());
    let shared = endpoint.allocate_symmetric::<i64>(6)?;
    let number = i64::from(me.0) + 1;
    let domain = AtomicDomain::<i64>::new(Operations::all(i64::KIND))?;
    for target in [Rank(0), Rank(ranks - 1)] {
        let at = |index| shared.on(target).at(index).expect("there are six");
        if me == target {
            for (index, value) in [(2, 1), (3, -1)] {
                endpoint.put_value(at(index), value)?;
            }
        }
        endpoint.barrier()?;
        let mut swapped = 0;
        for round in 0..rounds {
            let value = i64::from(round * ranks) + number;
            swapped += domain.apply(endpoint, at(0), AtomicOp::Swap(value))?;
            domain.apply_nbi(endpoint, at(1), AtomicOp::Min(-value))?;
            domain.apply_nbi(endpoint, at(2), AtomicOp::Mul(3))?;
            domain.apply_nbi(endpoint, at(3), AtomicOp::And(!(1 << (me.0 % 60))))?;
            domain.apply_nbi(endpoint, at(4), AtomicOp::Or(1 << (me.0 % 60)))?;
            domain.apply_nbi(endpoint, at(5), if round % 2 == 0 { AtomicOp::Dec } else { AtomicOp::Sub(2) })?;
        }
        endpoint.quiet()?;
        // What was swapped out, and what is there at last, is what everyone has swapped in.
        endpoint.barrier()?;
        let last = endpoint.get_value(at(0))?;
        endpoint.barrier()?;
        domain.apply(endpoint, at(0), AtomicOp::Add(swapped))?;
        endpoint.barrier()?;
        let found: Vec<i64> = (0..6).map(|index| endpoint.get_value(at(index))).collect::<Result<_, _>>()?;
        let all = i64::from(rounds * ranks);
        let bits = (0..ranks.min(60)).fold(0, |bits, rank| bits | 1 << rank);
        let product = (0..all).fold(1i64, |product, _| product.wrapping_mul(3));
        let (even, odd) = (i64::from(rounds.div_ceil(2)), i64::from(rounds / 2));
        let falls = -i64::from(ranks) * (even + 2 * odd);
        let expected = [all * (all + 1) / 2, -all, product, !bits, bits, falls];
        equal("what was swapped in", found[0], expected[0])?;
        ensure(last > 0, || format!("{last} was swapped in last"))?;
        equal("values that everyone has worked on", &found[1..], &expected[1..])?;
        endpoint.barrier()?;
        if me == target {
            for index in 0..6 {
                endpoint.put_value(at(index), 0)?;
            }
        }
        endpoint.barrier()?;
    }
    endpoint.free_symmetric(shared)?;
    Ok(())
}

/// All operations on all types.
pub(super) fn atomics<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let mut random = world.random(2200 + u64::from(endpoint.rank().0));
    let rounds = world.count(2, 40);
    alone::<T, u32>(&mut endpoint, &mut random, rounds)?;
    alone::<T, i32>(&mut endpoint, &mut random, rounds)?;
    alone::<T, u64>(&mut endpoint, &mut random, rounds)?;
    alone::<T, i64>(&mut endpoint, &mut random, rounds)?;
    alone::<T, f32>(&mut endpoint, &mut random, rounds)?;
    alone::<T, f64>(&mut endpoint, &mut random, rounds)?;
    together(&mut endpoint, world.count(3, 60))?;
    let to = right(endpoint.shape(), endpoint.rank());
    let odd = GlobalPtr::<f32>::new(to, 2);
    let sums = AtomicDomain::<f32>::new(Operations::ADD)?;
    ensure(sums.apply(&mut endpoint, odd, AtomicOp::Inc).is_err(), || "a misaligned number".into())?;
    endpoint.finish()?;
    Ok(())
}
