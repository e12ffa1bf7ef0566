//! Algorithms of broadcast: `count` elements of the root reach every member.

use super::{Hosts, blocks, place};
use crate::collectives::schedule::{Builder, Part, Schedule};

/// A tree of some radix; 2 is the binomial tree.
pub fn tree(me: usize, size: usize, root: usize, count: usize, radix: usize) -> Schedule {
    let mut builder = Builder::new(count);
    descend(&mut builder, me, size, root, Part::new(0, count), radix);
    builder.finish()
}

/// The rounds of a tree, for schedules of several phases.
pub(crate) fn descend(b: &mut Builder, me: usize, size: usize, root: usize, all: Part, radix: usize) {
    let absolute = |relative: usize| (relative + root) % size;
    let place = place((me + size - root) % size, size, radix);
    if let Some(parent) = place.parent {
        b.receive(absolute(parent), 0, all);
        b.end();
    }
    // The largest subtrees have the longest way.
    for child in place.levels.iter().rev().flatten() {
        b.send(absolute(*child), 0, all);
    }
    b.end();
}

/// The root sends to everyone.
pub fn linear(me: usize, size: usize, root: usize, count: usize) -> Schedule {
    let mut builder = Builder::new(count);
    let all = Part::new(0, count);
    if me == root {
        for other in (1..size).map(|distance| (root + distance) % size) {
            builder.send(other, 0, all);
        }
    } else {
        builder.receive(root, 0, all);
    }
    builder.finish()
}

/// A chain of members through which segments of the elements follow each other.
pub fn chain(me: usize, size: usize, root: usize, count: usize, segments: usize) -> Schedule {
    let mut builder = Builder::new(count);
    let (relative, segments) = ((me + size - root) % size, blocks(count, segments.max(1)));
    let mut before: Option<(usize, Part)> = None;
    for (index, segment) in segments.iter().copied().enumerate() {
        if relative > 0 {
            builder.receive((me + size - 1) % size, index, segment);
        }
        if relative + 1 < size {
            // The root has everything at once; others send what they received in the round before.
            let ready = if relative == 0 { Some((index, segment)) } else { before };
            if let Some((index, segment)) = ready {
                builder.send((me + 1) % size, index, segment);
            }
        }
        before = Some((index, segment));
        builder.end();
    }
    if let (true, Some((index, segment))) = (relative > 0 && relative + 1 < size, before) {
        builder.send((me + 1) % size, index, segment);
    }
    builder.finish()
}

/// The root's elements are scattered down a binomial tree and gathered by everyone along a ring.
pub fn scatter_allgather(me: usize, size: usize, root: usize, count: usize) -> Schedule {
    let mut builder = Builder::new(count);
    let absolute = |relative: usize| (relative + root) % size;
    let (relative, blocks) = ((me + size - root) % size, blocks(count, size));
    let span = |from: usize, to: usize| Part::new(blocks[from].start, blocks[to - 1].end() - blocks[from].start);
    let place = place(relative, size, 2);
    // The subtree of a child at level `i` has the members from it on to the next child of that level.
    let subtree = |child: usize, level: usize| span(child, (child + (1 << level)).min(size));
    if let Some(parent) = place.parent {
        builder.receive(absolute(parent), 0, subtree(relative, place.levels.len()));
        builder.end();
    }
    for (level, children) in place.levels.iter().enumerate().rev() {
        for child in children {
            builder.send(absolute(*child), 0, subtree(*child, level));
        }
    }
    builder.end();
    builder.phase();
    for step in 0..size - 1 {
        let (out, inwards) = ((relative + size - step) % size, (relative + 2 * size - step - 1) % size);
        builder.send((me + 1) % size, step, blocks[out]);
        builder.receive((me + size - 1) % size, step, blocks[inwards]);
        builder.end();
    }
    builder.finish()
}

/// Among the first members of the hosts, and then within each host, along binomial trees.
pub fn two_level(me: usize, root: usize, count: usize, hosts: &[u32]) -> Schedule {
    let mut builder = Builder::new(count);
    let (all, place) = (Part::new(0, count), Hosts::new(me, hosts, root));
    if let Some(leading) = place.leading {
        let first = place.leaders.iter().position(|leader| *leader as usize == root);
        builder.among(&place.leaders);
        let first = first.expect("the root leads its host");
        descend(&mut builder, leading, place.leaders.len(), first, all, 2);
    }
    builder.phase();
    builder.among(&place.own);
    descend(&mut builder, place.place, place.own.len(), 0, all, 2);
    builder.finish()
}
