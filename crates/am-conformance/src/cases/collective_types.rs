//! Item 18, types of elements: collective operations on five bytes, on small and large numbers and on
//! floating-point ones, with built-in and own operators.

use super::collectives::{Ranks, attach};
use crate::random::mix;
use crate::world::{Verdict, World, ensure};
use am_core::Transport;
use am_pgas::Team;
use am_pgas::collectives::{And, Max, Min, Operator, Or, Ordered, Product, Sum, Tuning, Xor};
use am_pgas::pointer::Element;
use std::fmt::Debug;

/// An element of no number's size, with an operator that commutes.
type Odd = [u8; 5];

fn add_each(a: Odd, b: Odd) -> Odd {
    std::array::from_fn(|byte| a[byte].wrapping_add(b[byte]))
}

/// One type with one operator, whose results the model has by `combine`.
struct Kind<E, O> {
    name: &'static str,
    draw: fn(u64) -> E,
    operator: O,
    combine: fn(E, E) -> E,
}

impl<E: Element + PartialEq + Debug, O: Operator<E> + Copy> Kind<E, O> {
    fn elements(&self, world: &World, member: usize, count: usize) -> Vec<E> {
        (0..count).map(|index| (self.draw)(mix(&[world.seed, member as u64, index as u64]))).collect()
    }

    /// All operations that combine or move elements, by blocking calls and with handles.
    fn play<T: Transport>(&self, world: &World, endpoint: &mut Ranks<T>, team: &Team, count: usize) -> Verdict {
        let (size, me) = (team.size() as usize, team.me() as usize);
        let of = |member: usize| self.elements(world, member, count);
        let combined = |members: std::ops::Range<usize>| {
            let fold = |a: Vec<E>, b: Vec<E>| a.into_iter().zip(b).map(|(a, b)| (self.combine)(a, b)).collect();
            members.map(of).reduce(fold).unwrap_or_default()
        };
        let check = |what: &str, found: &[E], expected: &[E]| {
            ensure(found == expected, || {
                let at = found.iter().zip(expected).position(|(a, b)| a != b);
                format!("{what} of {count} {}: element {at:?} differs", self.name)
            })
        };
        let (mine, whole) = (of(me), combined(0..size));
        let under_way = team.allreduce_nb(endpoint, mine.clone(), Ordered(self.operator))?;
        let mut found = mine.clone();
        team.allreduce(endpoint, &mut found, self.operator)?;
        check("allreduce", &found, &whole)?;
        found.clone_from(&mine);
        team.scan(endpoint, &mut found, self.operator)?;
        check("scan", &found, &combined(0..me + 1))?;
        check("allreduce with a handle", &under_way.wait(endpoint)?, &whole)?;
        let before = team.exscan_nb(endpoint, mine.clone(), self.operator)?;
        for root in [0, size - 1] {
            found.clone_from(&mine);
            team.broadcast(endpoint, root as u32, &mut found)?;
            check("broadcast", &found, &of(root))?;
            found.clone_from(&mine);
            team.reduce(endpoint, root as u32, &mut found, self.operator)?;
            check("reduce", &found, if me == root { &whole } else { &mine })?;
        }
        check("exscan", &before.wait(endpoint)?, &combined(0..me.max(1)))?;
        let all: Vec<E> = (0..size).flat_map(of).collect();
        let mut gathered = vec![E::new_zeroed(); count * size];
        team.allgather(endpoint, &mine, &mut gathered)?;
        check("allgather", &gathered, &all)?;
        // Everyone gives everything: each member gets the same part of all.
        let scattered = team.alltoall_nb(endpoint, all.clone())?;
        team.reduce_scatter(endpoint, &gathered, &mut found, self.operator)?;
        let part = || of(me).into_iter();
        let expected: Vec<E> = match size {
            1 => mine.clone(),
            _ => part().map(|own| (1..size).fold(own, |sum, _| (self.combine)(sum, own))).collect(),
        };
        check("reduce-scatter", &found, &expected)?;
        let expected: Vec<E> = (0..size).flat_map(|_| of(me)).collect();
        check("alltoall", &scattered.wait(endpoint)?, &expected)
    }
}

/// Every type and every built-in operator, of counts that fit lines, messages, or neither: in a quick run one
/// count for each, another one for the next and with another seed.
pub(super) fn types<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport, Tuning::default())?;
    let team = Team::world(&mut endpoint)?;
    // Whole numbers, whose sums of few are exact whatever the order.
    let float = |number: u64| (number % 2001) as f64 - 1000.0;
    let counts = [0, 1, 7, 60, 700];
    let times = world.count(1, counts.len() as u32) as usize;
    for time in 0..times {
        let mut next = counts.into_iter().cycle().skip(world.seed as usize % counts.len() + time);
        let mut count = || next.next().expect("it begins again");
        macro_rules! play {
            ($($name:literal, $draw:expr, $operator:expr, $combine:expr;)*) => {$(
                let kind = Kind { name: $name, draw: $draw, operator: $operator, combine: $combine };
                kind.play(world, &mut endpoint, &team, count())?;
            )*};
        }
        play! {
            "five bytes, own sum", |number| std::array::from_fn(|byte| number.to_le_bytes()[byte]),
                add_each as fn(Odd, Odd) -> Odd, add_each;
            "u8, sum", |number| number as u8, Sum, |a: u8, b| a.wrapping_add(b);
            "i16, product", |number| number as i16 | 1, Product, |a: i16, b| a.wrapping_mul(b);
            "i32, minimum", |number| number as i32, Min, |a: i32, b| if a < b { a } else { b };
            "i64, maximum", |number| number as i64, Max, |a: i64, b| if a > b { a } else { b };
            "u128, and", |number| u128::from(number) << 40 | 1, And, |a: u128, b| a & b;
            "u32, or", |number| (number & number >> 7) as u32, Or, |a: u32, b| a | b;
            "i8, exclusive or", |number| number as i8, Xor, |a: i8, b| a ^ b;
            "f64, sum", float, Sum, |a: f64, b| a + b;
            "f32, maximum", |number| (number % 2001) as f32, Max, |a: f32, b| if a > b { a } else { b };
        }
    }
    team.barrier(&mut endpoint)?;
    endpoint.finish()?;
    Ok(())
}
