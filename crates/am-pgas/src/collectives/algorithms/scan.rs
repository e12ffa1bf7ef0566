//! Algorithms of scan and exscan: each member has the combination of the elements of all members up to it, or
//! before it. They keep the order of operands. The result of an exclusive scan at the first member is what it
//! gave.

use crate::collectives::schedule::{Builder, Part, Schedule, Side};

/// In each round a member exchanges what its block of members has combined with a block beside it, of the same
/// size.
pub fn doubling(me: usize, size: usize, count: usize, exclusive: bool) -> Schedule {
    let mut builder = Builder::new(count);
    let (partial, other) = (builder.scratch(count), builder.scratch(count));
    builder.copy(Part::new(0, count), partial);
    builder.end();
    let (mut distance, mut empty) = (1, exclusive);
    while distance < size {
        let partner = me ^ distance;
        if partner < size {
            builder.send(partner, distance, Part::new(partial, count));
            builder.receive(partner, distance, Part::new(other, count));
            let other = Part::new(other, count);
            if partner > me {
                builder.combine(other, partial, Side::Right);
            } else {
                if std::mem::take(&mut empty) {
                    builder.copy(other, 0);
                } else {
                    builder.combine(other, 0, Side::Left);
                }
                builder.combine(other, partial, Side::Left);
            }
            builder.end();
        }
        distance *= 2;
    }
    builder.finish()
}

/// Each member hands what it has combined to the next.
pub fn chain(me: usize, size: usize, count: usize, exclusive: bool) -> Schedule {
    let mut builder = Builder::new(count);
    let (all, before) = (Part::new(0, count), builder.scratch(if exclusive { count } else { 0 }));
    let before = Part::new(before, count);
    let total = if exclusive && me > 0 { before } else { all };
    if me > 0 {
        if exclusive {
            // The scratch is what the next member needs; the data becomes what came.
            builder.receive(me - 1, 0, before);
            builder.end();
            let swapped = Part::new(builder.scratch(count), count);
            builder.copy(before, swapped.start);
            builder.combine(all, before.start, Side::Right);
            builder.copy(swapped, 0);
        } else {
            builder.reduce(me - 1, 0, all, Side::Left);
        }
        builder.end();
    }
    if me + 1 < size {
        builder.send(me + 1, 0, total);
    }
    builder.finish()
}
