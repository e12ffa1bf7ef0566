//! Algorithms of alltoall: each member has a part for each. The data are what it gives, in the order of positions,
//! and behind it room for what it gets.

use super::parts;
use crate::collectives::schedule::{Builder, Part, Schedule};

/// Begins a schedule: the parts given and the parts that come.
fn begin(me: usize, gives: &[usize], gets: &[usize]) -> (Builder, Vec<Part>, Vec<Part>) {
    let (given, got) = (gives.iter().sum(), gets.iter().sum());
    let (out, inwards) = (parts(0, gives), parts(given, gets));
    let mut builder = Builder::new(given + got).result(Part::new(given, got));
    let own = Part::new(out[me].start, out[me].len.min(inwards[me].len));
    builder.copy(own, inwards[me].start);
    (builder, out, inwards)
}

/// Everything at once.
pub fn linear(me: usize, gives: &[usize], gets: &[usize]) -> Schedule {
    let (mut builder, out, inwards) = begin(me, gives, gets);
    let size = gives.len();
    for distance in 1..size {
        let other = (me + distance) % size;
        builder.send(other, 0, out[other]);
        builder.receive(other, 0, inwards[other]);
    }
    builder.finish()
}

/// In each of n - 1 rounds a member sends to another and receives from a third.
pub fn pairwise(me: usize, gives: &[usize], gets: &[usize]) -> Schedule {
    let (mut builder, out, inwards) = begin(me, gives, gets);
    let size = gives.len();
    builder.end();
    for distance in 1..size {
        let (to, from) = ((me + distance) % size, (me + size - distance) % size);
        builder.send(to, distance, out[to]);
        builder.receive(from, distance, inwards[from]);
        builder.end();
    }
    builder.finish()
}

/// Of `count` elements for each member: in round `k` the parts whose distance has bit `k` go `2^k` members on.
pub fn bruck(me: usize, size: usize, count: usize) -> Schedule {
    let total = size * count;
    let mut builder = Builder::new(2 * total).result(Part::new(total, total));
    // By distance: first the way to go, at the end the way come.
    let turned = builder.scratch(total);
    let packed = (builder.scratch(total), builder.scratch(total));
    for distance in 0..size {
        builder.copy(Part::new((me + distance) % size * count, count), turned + distance * count);
    }
    let mut bit = 1;
    while bit < size {
        let chosen: Vec<usize> = (1..size).filter(|distance| distance & bit != 0).collect();
        for (index, distance) in chosen.iter().enumerate() {
            builder.copy(Part::new(turned + distance * count, count), packed.0 + index * count);
        }
        builder.end();
        builder.send((me + bit) % size, bit, Part::new(packed.0, chosen.len() * count));
        builder.receive((me + size - bit) % size, bit, Part::new(packed.1, chosen.len() * count));
        for (index, distance) in chosen.iter().enumerate() {
            builder.copy(Part::new(packed.1 + index * count, count), turned + distance * count);
        }
        builder.end();
        bit *= 2;
    }
    for distance in 0..size {
        builder.copy(Part::new(turned + distance * count, count), total + (me + size - distance) % size * count);
    }
    builder.finish()
}
