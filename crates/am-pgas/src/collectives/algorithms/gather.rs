//! Algorithms of scatter, gather and allgather.

use super::{parts, place};
use crate::collectives::schedule::{Builder, Part, Schedule};

/// The root sends each member its part; `mine` is where a member other than the root has it.
pub(crate) fn hand_out(b: &mut Builder, me: usize, root: usize, parts: &[Part], mine: Part) {
    if me == root {
        let others = parts.iter().enumerate().filter(|(other, _)| *other != root);
        others.for_each(|(other, part)| b.send(other, 0, *part));
    } else {
        b.receive(root, 0, mine);
    }
    b.end();
}

/// Each member sends the root its part; `mine` is where a member other than the root has it.
pub(crate) fn collect(b: &mut Builder, me: usize, root: usize, parts: &[Part], mine: Part) {
    if me == root {
        let others = parts.iter().enumerate().filter(|(other, _)| *other != root);
        others.for_each(|(other, part)| b.receive(other, 0, *part));
    } else {
        b.send(root, 0, mine);
    }
    b.end();
}

/// What the root knows: the counts of all members. Others know their own.
#[derive(Clone, Copy, Debug)]
pub enum Counts<'a> {
    /// At the root: of each member.
    All(&'a [usize]),
    /// Elsewhere: of this member.
    Own(usize),
}

/// Scatter: the root sends everyone its part. The root's data are all parts, another member's its own.
pub fn scatter_linear(me: usize, root: usize, counts: Counts<'_>) -> Schedule {
    let (parts, data, mine) = layout(me, counts);
    let mut builder = Builder::new(data).result(mine);
    hand_out(&mut builder, me, root, &parts, mine);
    builder.finish()
}

/// Gather: everyone sends the root its part. The root's data are all parts, with its own in place; another
/// member's its own.
pub fn gather_linear(me: usize, root: usize, counts: Counts<'_>) -> Schedule {
    let (parts, data, mine) = layout(me, counts);
    let result = if me == root { Part::new(0, data) } else { Part::new(0, 0) };
    let mut builder = Builder::new(data).result(result);
    collect(&mut builder, me, root, &parts, mine);
    builder.finish()
}

/// All parts, the size of the data, and this member's part of them.
fn layout(me: usize, counts: Counts<'_>) -> (Vec<Part>, usize, Part) {
    match counts {
        Counts::All(counts) => {
            let parts = parts(0, counts);
            let mine = parts[me];
            (parts, counts.iter().sum(), mine)
        }
        Counts::Own(count) => (Vec::new(), count, Part::new(0, count)),
    }
}

/// Scatter of `count` elements to each member along a binomial tree.
pub fn scatter_tree(me: usize, size: usize, root: usize, count: usize) -> Schedule {
    let relative = (me + size - root) % size;
    let place = place(relative, size, 2);
    let below = (1 << place.levels.len()).min(size - relative);
    let (data, mine) = own(me, size, root, count);
    let mut builder = Builder::new(data).result(mine);
    let tree = builder.scratch(below * count);
    if let Some(parent) = place.parent {
        builder.receive((parent + root) % size, 0, Part::new(tree, below * count));
        builder.copy(Part::new(tree, count), mine.start);
    } else {
        turn(&mut builder, root, Part::new(0, size * count), tree, count);
    }
    builder.end();
    for (level, children) in place.levels.iter().enumerate().rev() {
        for child in children {
            let len = (1 << level).min(size - child) * count;
            builder.send((child + root) % size, 0, Part::new(tree + (child - relative) * count, len));
        }
    }
    builder.finish()
}

/// Gather of `count` elements from each member along a binomial tree.
pub fn gather_tree(me: usize, size: usize, root: usize, count: usize) -> Schedule {
    let relative = (me + size - root) % size;
    let place = place(relative, size, 2);
    let below = (1 << place.levels.len()).min(size - relative);
    let (data, mine) = own(me, size, root, count);
    let result = if me == root { Part::new(0, data) } else { Part::new(0, 0) };
    let mut builder = Builder::new(data).result(result);
    let tree = builder.scratch(below * count);
    builder.copy(mine, tree);
    for (level, children) in place.levels.iter().enumerate() {
        for child in children {
            let len = (1 << level).min(size - child) * count;
            builder.receive((child + root) % size, 0, Part::new(tree + (child - relative) * count, len));
        }
    }
    builder.end();
    match place.parent {
        Some(parent) => builder.send((parent + root) % size, 0, Part::new(tree, below * count)),
        None => {
            let kept = size - root;
            builder.copy(Part::new(tree, kept * count), root * count);
            builder.copy(Part::new(tree + kept * count, root * count), 0);
        }
    }
    builder.finish()
}

/// The size of the data, and this member's part of them: the root has all parts.
fn own(me: usize, size: usize, root: usize, count: usize) -> (usize, Part) {
    if me == root { (size * count, Part::new(root * count, count)) } else { (count, Part::new(0, count)) }
}

/// Copies parts so that the one of `first` comes first.
fn turn(b: &mut Builder, first: usize, all: Part, to: usize, count: usize) {
    let before = first * count;
    b.copy(Part::new(all.start + before, all.len - before), to);
    b.copy(Part::new(all.start, before), to + all.len - before);
}

/// Allgather: the parts go round a ring. The data are all parts, with the member's own in place.
pub fn ring(me: usize, counts: &[usize]) -> Schedule {
    let (size, blocks) = (counts.len(), parts(0, counts));
    let mut builder = Builder::new(counts.iter().sum());
    for step in 0..size - 1 {
        builder.send((me + 1) % size, step, blocks[(me + size - step) % size]);
        builder.receive((me + size - 1) % size, step, blocks[(me + 2 * size - step - 1) % size]);
        builder.end();
    }
    builder.finish()
}

/// Allgather of `count` elements from each of a power of two of members: blocks that double.
///
/// # Panics
/// If `size` is not a power of two.
pub fn doubling(me: usize, size: usize, count: usize) -> Schedule {
    assert!(size.is_power_of_two(), "recursive doubling takes a power of two of members");
    let mut builder = Builder::new(size * count);
    for bit in 0..size.ilog2() {
        let (len, partner) = (1 << bit, me ^ 1 << bit);
        let block = |of: usize| Part::new((of & !(len - 1)) * count, len * count);
        builder.send(partner, bit as usize, block(me));
        builder.receive(partner, bit as usize, block(partner));
        builder.end();
    }
    builder.finish()
}

/// Allgather of `count` elements from each member: the blocks at hand double, in an order that begins with the
/// member's own.
pub fn bruck(me: usize, size: usize, count: usize) -> Schedule {
    let mut builder = Builder::new(size * count);
    let turned = builder.scratch(size * count);
    builder.copy(Part::new(me * count, count), turned);
    builder.end();
    let mut have = 1;
    while have < size {
        let more = have.min(size - have) * count;
        builder.send((me + size - have) % size, have, Part::new(turned, more));
        builder.receive((me + have) % size, have, Part::new(turned + have * count, more));
        builder.end();
        have *= 2;
    }
    let kept = size - me;
    builder.copy(Part::new(turned, kept * count), me * count);
    builder.copy(Part::new(turned + kept * count, me * count), 0);
    builder.finish()
}
