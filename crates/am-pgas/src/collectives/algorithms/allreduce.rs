//! Algorithms of allreduce: the elements of all members are combined, and all have the result. Every algorithm
//! gives all members the same bits, since each element is combined in one order, whoever does it.

use super::{Hosts, blocks, broadcast, reduce};
use crate::collectives::schedule::{Builder, Part, Schedule, Side};

/// The power of two that an algorithm works on: neighbours are folded together until as many members are left.
struct Fold {
    power: usize,
    /// Pairs of neighbours that act as one.
    pairs: usize,
    /// The place among those that are left, none for a member whose neighbour acts for both.
    place: Option<usize>,
}

impl Fold {
    fn new(me: usize, size: usize) -> Self {
        let power = 1 << size.ilog2();
        let pairs = size - power;
        let place = match me {
            _ if me >= 2 * pairs => Some(me - pairs),
            _ if me % 2 == 1 => Some(me / 2),
            _ => None,
        };
        Self { power, pairs, place }
    }

    /// The position of a member that is left.
    fn position(&self, place: usize) -> usize {
        if place < self.pairs { 2 * place + 1 } else { place + self.pairs }
    }

    /// The even member of each pair gives the odd one its elements.
    fn fold(&self, b: &mut Builder, me: usize, all: Part) {
        if self.place.is_none() {
            b.send(me + 1, 0, all);
        } else if me < 2 * self.pairs {
            b.reduce(me - 1, 0, all, Side::Left);
        }
        b.end();
        b.phase();
    }

    /// The odd member of each pair gives the even one the result.
    fn unfold(&self, b: &mut Builder, me: usize, all: Part) {
        b.phase();
        if self.place.is_none() {
            b.receive(me + 1, 0, all);
        } else if me < 2 * self.pairs {
            b.send(me - 1, 0, all);
        }
        b.end();
    }
}

/// In each round a member exchanges all elements with another, at twice the distance of the round before. Keeps
/// the order of operands.
pub fn recursive_doubling(me: usize, size: usize, count: usize) -> Schedule {
    let mut builder = Builder::new(count);
    doubling(&mut builder, me, size, Part::new(0, count));
    builder.finish()
}

fn doubling(b: &mut Builder, me: usize, size: usize, all: Part) {
    let fold = Fold::new(me, size);
    fold.fold(b, me, all);
    let other = Part::new(b.scratch(all.len), all.len);
    if let Some(place) = fold.place {
        for bit in 0..fold.power.ilog2() {
            let partner = fold.position(place ^ 1 << bit);
            b.send(partner, bit as usize, all);
            b.receive(partner, bit as usize, other);
            b.combine(other, all.start, if partner < me { Side::Left } else { Side::Right });
            b.end();
        }
    }
    fold.unfold(b, me, all);
}

/// Recursive halving leaves each member a combined block, recursive doubling gives everyone all of them. For
/// operators that commute.
pub fn rabenseifner(me: usize, size: usize, count: usize) -> Schedule {
    let mut builder = Builder::new(count);
    let (all, fold) = (Part::new(0, count), Fold::new(me, size));
    fold.fold(&mut builder, me, all);
    let blocks = blocks(count, fold.power);
    let span =
        |from: usize, len: usize| Part::new(blocks[from].start, blocks[from + len - 1].end() - blocks[from].start);
    if let Some(place) = fold.place {
        let bits = fold.power.ilog2();
        for bit in (0..bits).rev() {
            let (half, partner) = (1 << bit, place ^ 1 << bit);
            builder.send(fold.position(partner), bit as usize, span(partner & !(half - 1), half));
            builder.reduce(fold.position(partner), bit as usize, span(place & !(half - 1), half), Side::Right);
            builder.end();
        }
        for bit in 0..bits {
            let (half, partner) = (1 << bit, place ^ 1 << bit);
            let tag = (bits + bit) as usize;
            builder.send(fold.position(partner), tag, span(place & !(half - 1), half));
            builder.receive(fold.position(partner), tag, span(partner & !(half - 1), half));
            builder.end();
        }
    }
    fold.unfold(&mut builder, me, all);
    builder.finish()
}

/// Blocks go round a ring twice: once being combined, once complete. For operators that commute.
pub fn ring(me: usize, size: usize, count: usize) -> Schedule {
    let mut builder = Builder::new(count);
    let (blocks, right, left) = (blocks(count, size), (me + 1) % size, (me + size - 1) % size);
    for step in 0..size - 1 {
        builder.send(right, step, blocks[(me + size - step) % size]);
        builder.reduce(left, step, blocks[(me + 2 * size - step - 1) % size], Side::Left);
        builder.end();
    }
    builder.phase();
    for step in 0..size - 1 {
        builder.send(right, step, blocks[(me + 1 + size - step) % size]);
        builder.receive(left, step, blocks[(me + size - step) % size]);
        builder.end();
    }
    builder.finish()
}

/// Within the hosts to their first members, among these by recursive doubling, and back. For operators that
/// commute.
pub fn two_level(me: usize, count: usize, hosts: &[u32]) -> Schedule {
    let mut builder = Builder::new(count);
    let (all, place) = (Part::new(0, count), Hosts::new(me, hosts, usize::MAX));
    builder.among(&place.own);
    reduce::ascend(&mut builder, place.place, place.own.len(), 0, all, 2);
    builder.phase();
    // Leaders begin two phases in between; so does everyone.
    if let Some(leading) = place.leading {
        builder.among(&place.leaders);
        doubling(&mut builder, leading, place.leaders.len(), all);
    } else {
        builder.phase();
        builder.phase();
    }
    builder.phase();
    builder.among(&place.own);
    broadcast::descend(&mut builder, place.place, place.own.len(), 0, all, 2);
    builder.finish()
}
