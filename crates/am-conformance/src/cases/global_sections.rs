//! Item 21, typed sections: vectored, indexed and strided access in all forms of completion, strided on both
//! sides, against a model.

use super::global_memory::{Ranks, attach, mine, part};
use crate::random::Random;
use crate::world::{Verdict, World, ensure};
use am_core::{Rank, Transport};
use am_pgas::allocator::SegmentAllocation;
use am_pgas::memory::GlobalMemory;
use am_pgas::pointer::{GlobalPtr, GlobalSlice};
use am_pgas::sections::{Sections, Strided};

/// Of an odd size, so that most values are not aligned.
type Value = [u8; 3];

/// What no value is that was drawn.
const UNTOUCHED: Value = [0xff; 3];

/// Where the values of an operation lie, in their order, and what says so.
struct Places {
    there: Vec<usize>,
    form: Form,
}

enum Form {
    Vectored(Vec<(u64, u64)>),
    Indexed { row: u64, indices: Vec<u32> },
    Strided { counts: Vec<u64>, there: (u64, Vec<i64>), here: (u64, Vec<i64>), places_here: Vec<usize> },
}

/// How an operation is waited for.
#[derive(Clone, Copy, Debug)]
enum Completion {
    Blocking,
    Handle,
    Implicit,
}

const COMPLETIONS: [Completion; 3] = [Completion::Blocking, Completion::Handle, Completion::Implicit];

fn value(random: &mut Random) -> Value {
    let [a, b, c, ..] = random.number().to_le_bytes();
    // Never what stands for no value.
    [a, b, c & 0x7f]
}

/// Strides by which no two places of so many meet, of any sign and any order of dimensions, with the lowest and
/// the highest place from the first one.
fn strides(random: &mut Random, counts: &[u64]) -> (Vec<i64>, i64, i64) {
    let mut order: Vec<usize> = (0..counts.len()).rev().collect();
    if random.below(2) == 0 {
        random.shuffle(&mut order);
    }
    let (mut strides, mut width) = (vec![0; counts.len()], 1 + (random.below(3) / 2) as i64);
    let (mut lowest, mut highest) = (0, 0);
    for dimension in order {
        let count = counts[dimension] as i64;
        let reach = width * (count - 1);
        if random.below(4) == 0 {
            (strides[dimension], lowest) = (-width, lowest - reach);
        } else {
            (strides[dimension], highest) = (width, highest + reach);
        }
        width = width * count + (random.below(3) / 2 * 2) as i64;
    }
    (strides, lowest, highest)
}

/// The places of a strided side, the last dimension fastest.
fn places(start: i64, counts: &[u64], strides: &[i64]) -> Vec<usize> {
    match (counts, strides) {
        ([count, counts @ ..], [stride, strides @ ..]) => {
            (0..*count as i64).flat_map(|index| places(start + index * stride, counts, strides)).collect()
        }
        _ => vec![start as usize],
    }
}

/// A form that fits `room` values; every form in turn.
fn draw(random: &mut Random, round: u32, room: usize) -> Places {
    match round % 3 {
        0 => {
            let (mut slices, mut at) = (Vec::new(), 0);
            while slices.len() < 30 {
                at += random.length(5);
                let len = random.length(9);
                if at + len > room {
                    break;
                }
                slices.push((at as u64, (at + len) as u64));
                at += len;
            }
            random.shuffle(&mut slices);
            let there = slices.iter().flat_map(|(from, to)| *from as usize..*to as usize).collect();
            Places { there, form: Form::Vectored(slices) }
        }
        1 => {
            // Indices count values, so rows may begin anywhere: these do not overlap.
            let row = 1 + random.length(4);
            let mut indices: Vec<u32> = (0..room / row).map(|index| (index * row) as u32).collect();
            random.shuffle(&mut indices);
            indices.truncate(random.length(indices.len()));
            let there = indices.iter().flat_map(|index| *index as usize..*index as usize + row).collect();
            Places { there, form: Form::Indexed { row: row as u64, indices } }
        }
        _ => {
            let dimensions = random.length(5);
            let most = if dimensions < 3 { 8 } else { 2 };
            let drawn: Vec<u64> = (0..dimensions).map(|_| 1 + random.below(most)).collect();
            let sides = |random: &mut Random, counts: &[u64]| {
                let [there, here] = [(); 2].map(|()| strides(random, counts));
                let fits = |(_, low, high): &(Vec<i64>, i64, i64)| ((high - low) as usize) < room;
                (fits(&there) && fits(&here)).then_some((there, here))
            };
            // One value where so many do not fit.
            let (counts, (there, here)) = match sides(random, &drawn) {
                Some(sides) => (drawn, sides),
                None => (Vec::new(), ((Vec::new(), 0, 0), (Vec::new(), 0, 0))),
            };
            let mut start = |(strides, low, high): (Vec<i64>, i64, i64)| {
                ((random.length(room - 1 - (high - low) as usize) as i64 - low) as u64, strides)
            };
            let (there, here) = (start(there), start(here));
            let [remote, local] = [&there, &here].map(|(start, strides)| places(*start as i64, &counts, strides));
            Places { there: remote, form: Form::Strided { counts, there, here, places_here: local } }
        }
    }
}

fn slices(row: GlobalSlice<Value>, ranges: &[(u64, u64)]) -> Vec<GlobalSlice<Value>> {
    ranges.iter().map(|(from, to)| row.range(*from..*to).expect("the range was drawn inside")).collect()
}

fn strided((start, strides): &(u64, Vec<i64>)) -> Strided<'_> {
    Strided { start: *start, strides }
}

impl Places {
    /// Puts values to their places; of strided forms, out of a buffer where they lie at other places.
    fn put<T: Transport>(
        &self,
        endpoint: &mut Ranks<T>,
        row: GlobalSlice<Value>,
        values: &[Value],
        completion: Completion,
    ) -> Verdict {
        let put = match &self.form {
            Form::Vectored(ranges) => {
                let to = slices(row, ranges);
                match completion {
                    Completion::Blocking => return Ok(endpoint.put_vectored(&to, values)?),
                    Completion::Handle => Some(endpoint.put_vectored_nb(&to, values)?),
                    Completion::Implicit => {
                        endpoint.put_vectored_nbi(&to, values)?;
                        None
                    }
                }
            }
            Form::Indexed { row: len, indices } => match completion {
                Completion::Blocking => return Ok(endpoint.put_indexed(row, *len, indices, values)?),
                Completion::Handle => Some(endpoint.put_indexed_nb(row, *len, indices, values)?),
                Completion::Implicit => {
                    endpoint.put_indexed_nbi(row, *len, indices, values)?;
                    None
                }
            },
            Form::Strided { counts, there, here, places_here } => {
                let mut buffer = vec![UNTOUCHED; row.len() as usize];
                places_here.iter().zip(values).for_each(|(at, value)| buffer[*at] = *value);
                let (there, here) = (strided(there), strided(here));
                match completion {
                    Completion::Blocking => {
                        return Ok(endpoint.put_strided(row.start(), there, counts, &buffer, here)?);
                    }
                    Completion::Handle => {
                        Some(endpoint.put_strided_nb(row.start(), there, counts, &buffer, here)?)
                    }
                    Completion::Implicit => {
                        endpoint.put_strided_nbi(row.start(), there, counts, &buffer, here)?;
                        None
                    }
                }
            }
        };
        match put {
            Some(put) => endpoint.wait(put)?,
            None => endpoint.quiet()?,
        }
        Ok(())
    }

    /// Gets the values from their places. What comes into `landing` or a buffer at no place stays untouched.
    fn get<T: Transport>(
        &self,
        endpoint: &mut Ranks<T>,
        row: GlobalSlice<Value>,
        landing: GlobalSlice<Value>,
        completion: Completion,
    ) -> Result<Option<Vec<Value>>, crate::Failure> {
        let mut out = vec![UNTOUCHED; self.there.len()];
        let into = landing.range(0..out.len() as u64).expect("no more values than a part has");
        endpoint.put_slice(landing, &vec![UNTOUCHED; landing.len() as usize])?;
        let get = match (&self.form, completion) {
            (Form::Vectored(ranges), Completion::Blocking) => {
                endpoint.get_vectored(&slices(row, ranges), &mut out)?;
                return Ok(Some(out));
            }
            (Form::Vectored(ranges), Completion::Handle) => endpoint.get_vectored_nb(&slices(row, ranges))?,
            (Form::Vectored(ranges), Completion::Implicit) => {
                endpoint.get_vectored_nbi(&slices(row, ranges), into)?;
                return landed(endpoint, landing, 0..out.len());
            }
            (Form::Indexed { row: len, indices }, Completion::Blocking) => {
                endpoint.get_indexed(row, *len, indices, &mut out)?;
                return Ok(Some(out));
            }
            (Form::Indexed { row: len, indices }, Completion::Handle) => {
                endpoint.get_indexed_nb(row, *len, indices)?
            }
            (Form::Indexed { row: len, indices }, Completion::Implicit) => {
                endpoint.get_indexed_nbi(row, *len, indices, into)?;
                return landed(endpoint, landing, 0..out.len());
            }
            (Form::Strided { counts, there, here, places_here }, Completion::Blocking) => {
                let mut buffer = vec![UNTOUCHED; row.len() as usize];
                endpoint.get_strided(row.start(), strided(there), counts, &mut buffer, strided(here))?;
                return Ok(picked(buffer, places_here.iter().copied()));
            }
            (Form::Strided { counts, there, .. }, Completion::Handle) => {
                endpoint.get_strided_nb(row.start(), strided(there), counts)?
            }
            (Form::Strided { counts, there, here, places_here }, Completion::Implicit) => {
                let at: GlobalPtr<Value> = landing.start();
                endpoint.get_strided_nbi(row.start(), strided(there), counts, at, strided(here))?;
                return landed(endpoint, landing, places_here.iter().copied());
            }
        };
        Ok(Some(endpoint.wait(get)?))
    }
}

/// The values at some places of a buffer; none if it has values at others.
fn picked(mut buffer: Vec<Value>, places: impl Iterator<Item = usize>) -> Option<Vec<Value>> {
    let values = places.map(|at| std::mem::replace(&mut buffer[at], UNTOUCHED)).collect();
    buffer.iter().all(|value| *value == UNTOUCHED).then_some(values)
}

/// What an implicit get has brought into this rank's own segment.
fn landed<T: Transport>(
    endpoint: &mut Ranks<T>,
    landing: GlobalSlice<Value>,
    places: impl Iterator<Item = usize>,
) -> Result<Option<Vec<Value>>, crate::Failure> {
    endpoint.quiet()?;
    let mut own = vec![UNTOUCHED; landing.len() as usize];
    endpoint.get_slice(landing, &mut own)?;
    Ok(picked(own, places))
}

/// Puts and gets of all forms against a model of the part of each segment that a rank alone writes.
pub(super) fn sections<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport)?;
    let (shape, me) = (endpoint.shape(), endpoint.rank());
    let size = part(&mut endpoint)?.min(3000);
    let room = (size / size_of::<Value>() as u64) as usize;
    let all = endpoint.allocate_symmetric::<u8>(size * u64::from(shape.ranks))?;
    let landing = endpoint.allocate_symmetric::<Value>(room as u64)?;
    let row = |endpoint: &Ranks<T>, rank: Rank| {
        GlobalPtr::<Value>::new(rank, mine(endpoint, &all, rank).offset()).slice(room as u64)
    };
    let mut random = world.random(2100 + u64::from(me.0));
    let mut model = vec![vec![Value::default(); room]; shape.ranks as usize];
    for round in 0..world.count(27, 900) {
        let rank = Rank(random.below(u64::from(shape.ranks)) as u32);
        let (drawn, there) = (draw(&mut random, round, room), row(&endpoint, rank));
        let values: Vec<Value> = drawn.there.iter().map(|_| value(&mut random)).collect();
        let [put, get] = [round / 3, round / 9].map(|number| COMPLETIONS[number as usize % 3]);
        drawn.put(&mut endpoint, there, &values, put)?;
        let part = &mut model[rank.0 as usize];
        drawn.there.iter().zip(&values).for_each(|(at, value)| part[*at] = *value);
        let other = draw(&mut random, round + 1, room);
        for places in [&drawn, &other] {
            let expected: Vec<Value> = places.there.iter().map(|at| part[*at]).collect();
            let found = places.get(&mut endpoint, there, landing.on(me), get)?;
            ensure(found == Some(expected), || {
                format!("round {round}: values at {:?} of rank {rank} differ ({get:?})", places.there)
            })?;
        }
    }
    for (rank, expected) in (0..).map(Rank).zip(&model) {
        let mut found = vec![UNTOUCHED; room];
        let there = row(&endpoint, rank);
        endpoint.get_slice(there, &mut found)?;
        ensure(found == *expected, || format!("the values of rank {rank} at the end differ"))?;
    }
    endpoint.barrier()?;
    endpoint.free_symmetric(landing)?;
    endpoint.free_symmetric(all)?;
    endpoint.finish()?;
    Ok(())
}
