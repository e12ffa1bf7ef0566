//! Algorithms of reduce and reduce-scatter: the elements of all members are combined, in the order of positions
//! where an algorithm says so; the root, or each member its part, has the result.

use super::gather::{collect, hand_out};
use super::{Hosts, blocks, parts, place};
use crate::collectives::schedule::{Builder, Part, Schedule, Side};

/// A tree of some radix, whose root is the operation's: for operators that commute.
pub fn tree(me: usize, size: usize, root: usize, count: usize, radix: usize) -> Schedule {
    let mut builder = Builder::new(count);
    ascend(&mut builder, me, size, root, Part::new(0, count), radix);
    builder.finish()
}

/// A tree whose root is the first member, which sends the result to the operation's: keeps the order of operands.
pub fn ordered_tree(me: usize, size: usize, root: usize, count: usize, radix: usize) -> Schedule {
    let mut builder = Builder::new(count);
    let all = Part::new(0, count);
    ascend(&mut builder, me, size, 0, all, radix);
    builder.phase();
    if root != 0 {
        if me == 0 {
            builder.send(root, 0, all);
        } else if me == root {
            builder.receive(0, 0, all);
        }
    }
    builder.finish()
}

/// The rounds of a tree, for schedules of several phases. In the order of positions from the root on.
pub(crate) fn ascend(b: &mut Builder, me: usize, size: usize, root: usize, all: Part, radix: usize) {
    let absolute = |relative: usize| (relative + root) % size;
    let place = place((me + size - root) % size, size, radix);
    let others = place.levels.iter().map(Vec::len).max().unwrap_or(0);
    let scratch = if others > 1 { b.scratch(others * all.len) } else { 0 };
    for children in &place.levels {
        if let [child] = children[..] {
            b.reduce(absolute(child), 0, all, Side::Right);
        } else {
            for (index, child) in children.iter().enumerate() {
                let other = Part::new(scratch + index * all.len, all.len);
                b.receive(absolute(*child), 0, other);
                b.combine(other, all.start, Side::Right);
            }
        }
        b.end();
    }
    if let Some(parent) = place.parent {
        b.send(absolute(parent), 0, all);
        b.end();
    }
}

/// Everyone sends to the root, which combines in the order of positions.
pub fn linear(me: usize, size: usize, root: usize, count: usize) -> Schedule {
    let mut builder = Builder::new(count);
    if me != root {
        builder.send(root, 0, Part::new(0, count));
        return builder.finish();
    }
    let scratch = builder.scratch((size - 1) * count);
    let slot = |other: usize| Part::new(scratch + (other - usize::from(other > root)) * count, count);
    for other in (0..size).filter(|other| *other != root) {
        builder.receive(other, 0, slot(other));
    }
    for other in (0..root).rev() {
        builder.combine(slot(other), 0, Side::Left);
    }
    for other in root + 1..size {
        builder.combine(slot(other), 0, Side::Right);
    }
    builder.finish()
}

/// Each member combines a block of all others' elements; the root gathers the blocks. For operators that commute.
pub fn scatter_gather(me: usize, size: usize, root: usize, count: usize) -> Schedule {
    let mut builder = Builder::new(count);
    let blocks = blocks(count, size);
    exchange(&mut builder, me, &blocks);
    builder.phase();
    collect(&mut builder, me, root, &blocks, blocks[me]);
    builder.finish()
}

/// Along binomial trees within the hosts and then among their first members. For operators that commute.
pub fn two_level(me: usize, root: usize, count: usize, hosts: &[u32]) -> Schedule {
    let mut builder = Builder::new(count);
    let (all, place) = (Part::new(0, count), Hosts::new(me, hosts, root));
    builder.among(&place.own);
    ascend(&mut builder, place.place, place.own.len(), 0, all, 2);
    builder.phase();
    if let Some(leading) = place.leading {
        let first = place.leaders.iter().position(|leader| *leader as usize == root);
        builder.among(&place.leaders);
        ascend(&mut builder, leading, place.leaders.len(), first.expect("the root leads its host"), all, 2);
    }
    builder.finish()
}

/// In each of n - 1 rounds a member gives another its block and combines its own with a third's. For operators
/// that commute.
fn exchange(b: &mut Builder, me: usize, blocks: &[Part]) {
    let size = blocks.len();
    for distance in 1..size {
        let (to, from) = ((me + distance) % size, (me + size - distance) % size);
        b.send(to, distance, blocks[to]);
        b.reduce(from, distance, blocks[me], Side::Right);
        b.end();
    }
}

/// Reduce-scatter by pairwise exchange; `counts` has the length of each member's part. For operators that commute.
pub fn pairwise(me: usize, counts: &[usize]) -> Schedule {
    let blocks = parts(0, counts);
    let mut builder = Builder::new(counts.iter().sum()).result(blocks[me]);
    exchange(&mut builder, me, &blocks);
    builder.finish()
}

/// Reduce-scatter as a reduction to the first member, which hands out the parts: keeps the order of operands.
pub fn then_scatter(me: usize, counts: &[usize]) -> Schedule {
    let (blocks, total) = (parts(0, counts), counts.iter().sum());
    let mut builder = Builder::new(total).result(blocks[me]);
    ascend(&mut builder, me, counts.len(), 0, Part::new(0, total), 2);
    builder.phase();
    hand_out(&mut builder, me, 0, &blocks, blocks[me]);
    builder.finish()
}
