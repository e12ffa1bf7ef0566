//! Runs: where the parts of a vectored operation lie in a segment, and how messages describe them.

use crate::error::HandlerFault;
use crate::segment::SegmentError;

/// Dimensions whose places are counted instead of divided for, and that messages describe.
const FEW: usize = 8;

/// Where the runs of a vectored operation lie in a segment, in the order of their bytes at the other side.
///
/// The forms are those of GASNet-EX's vector-indexed-strided interface. Runs may touch; runs of a put that overlap
/// leave unspecified which of them is seen.
#[derive(Clone, Copy, Debug)]
pub enum Runs<'a> {
    /// Byte offset and length of each run.
    List(&'a [(u64, u64)]),
    /// Runs of equal length at `base + unit * index`.
    Indexed {
        /// Byte offset of index 0.
        base: u64,
        /// Bytes from one index to the next.
        unit: u64,
        /// Bytes of each run.
        len: u64,
        /// The indices.
        indices: &'a [u32],
    },
    /// Runs of equal length in any number of dimensions, the last of which varies fastest.
    Strided {
        /// Byte offset of the first run.
        base: u64,
        /// Bytes of each run.
        len: u64,
        /// The dimensions; one run if there are none.
        dimensions: &'a [Dimension],
    },
}

/// One dimension of [`Runs::Strided`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dimension {
    /// Places in this dimension.
    pub count: u64,
    /// Bytes from one place to the next.
    pub stride: i64,
}

impl<'a> Runs<'a> {
    /// Number of runs, which saturates.
    pub fn count(&self) -> u64 {
        match self {
            Self::List(runs) => runs.len() as u64,
            Self::Indexed { indices, .. } => indices.len() as u64,
            Self::Strided { dimensions, .. } => {
                dimensions.iter().fold(1u64, |all, dimension| all.saturating_mul(dimension.count))
            }
        }
    }

    /// Bytes of all runs, which saturates.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::List(runs) => runs.iter().fold(0, |all, (_, len)| all.saturating_add(*len)),
            Self::Indexed { len, .. } | Self::Strided { len, .. } => self.count().saturating_mul(*len),
        }
    }

    /// Checks that all runs lie inside a segment.
    ///
    /// # Errors
    /// [`SegmentError::OutOfRange`] with the first run that does not, or with the extent of strided runs.
    pub fn check(&self, segment: u64) -> Result<(), SegmentError> {
        let outside = |offset: u64, len: u64| SegmentError::OutOfRange { offset, len, segment };
        let inside = |offset: u64, len: u64| match offset.checked_add(len) {
            Some(end) if end <= segment => Ok(()),
            _ => Err(outside(offset, len)),
        };
        match *self {
            Self::List(runs) => runs.iter().try_for_each(|(offset, len)| inside(*offset, *len)),
            Self::Indexed { base, unit, len, indices } => {
                let Some(last) = indices.iter().max() else { return Ok(()) };
                let last = unit.checked_mul(u64::from(*last)).and_then(|at| at.checked_add(base));
                inside(last.ok_or(outside(u64::MAX, len))?, len)
            }
            Self::Strided { base, len, dimensions } => {
                if self.count() == 0 {
                    return Ok(());
                }
                let (mut low, mut high) = (i128::from(base), i128::from(base) + i128::from(len));
                for dimension in dimensions {
                    let reach = i128::from(dimension.count - 1).saturating_mul(i128::from(dimension.stride));
                    low = low.saturating_add(reach.min(0));
                    high = high.saturating_add(reach.max(0));
                }
                if low >= 0 && high <= i128::from(segment) {
                    return Ok(());
                }
                let extent = u64::try_from(high.saturating_sub(low)).unwrap_or(u64::MAX);
                Err(outside(u64::try_from(low).unwrap_or(u64::MAX), extent))
            }
        }
    }

    /// The runs from number `first` on: byte offset and length of each.
    pub fn iter_from(&self, first: u64) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let mut walk = match *self {
            Self::Strided { base, dimensions, .. } => Walk::new(base, dimensions, first),
            Self::List(_) | Self::Indexed { .. } => Walk::new(0, &[], 0),
        };
        let (runs, count) = (*self, self.count());
        (first..count).map(move |number| match runs {
            Self::List(list) => list[number as usize],
            Self::Indexed { base, unit, len, indices } => {
                (base.wrapping_add(unit.wrapping_mul(indices[number as usize].into())), len)
            }
            Self::Strided { len, .. } => (walk.step(number), len),
        })
    }

    /// The runs: byte offset and length of each.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        self.iter_from(0)
    }
}

/// A walk over strided places in their order.
struct Walk<'a> {
    base: u64,
    dimensions: &'a [Dimension],
    /// Where the next place is, in few dimensions.
    at: u64,
    index: [u64; FEW],
}

impl<'a> Walk<'a> {
    fn new(base: u64, dimensions: &'a [Dimension], first: u64) -> Self {
        let mut index = [0; FEW];
        let walk = Self { base, dimensions, at: base, index };
        let at = walk.place(first, |dimension, place| {
            if let Some(slot) = index.get_mut(dimension) {
                *slot = place;
            }
        });
        Self { at, index, ..walk }
    }

    /// The offset of a place, by division, whose index in each dimension it tells. Offsets wrap: whoever uses one
    /// checks it.
    fn place(&self, number: u64, mut tell: impl FnMut(usize, u64)) -> u64 {
        let (mut rest, mut at) = (number, self.base);
        for (position, dimension) in self.dimensions.iter().enumerate().rev() {
            let index = rest.checked_rem(dimension.count).unwrap_or(0);
            rest = rest.checked_div(dimension.count).unwrap_or(0);
            at = at.wrapping_add(index.wrapping_mul(dimension.stride as u64));
            tell(position, index);
        }
        at
    }

    /// The offset of place `number`, which comes after that of the last step.
    fn step(&mut self, number: u64) -> u64 {
        if self.dimensions.len() > FEW {
            return self.place(number, |_, _| ());
        }
        let here = self.at;
        for (dimension, index) in self.dimensions.iter().zip(&mut self.index).rev() {
            *index += 1;
            self.at = self.at.wrapping_add(dimension.stride as u64);
            if *index < dimension.count {
                break;
            }
            self.at = self.at.wrapping_sub(dimension.count.wrapping_mul(dimension.stride as u64));
            *index = 0;
        }
        here
    }
}

const LIST: u32 = 0;
const INDEXED: u32 = 1;
const STRIDED: u32 = 2;

/// Bytes that a message needs for each run of a list.
const LISTED: u64 = 12;

/// What one message describes: `count` runs of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The form of their description.
    pub(super) form: u32,
    pub(super) count: u32,
    /// Bytes of the runs.
    pub(super) bytes: u64,
}

/// Describes the runs from number `first` on in the empty `out`, as many as fit: `room` bytes for the description
/// and, of a put, the bytes of the runs, and `brought` bytes for those of a get. No part if a run does not fit
/// with others, or has no bytes.
pub(super) fn describe(
    runs: &Runs<'_>,
    first: u64,
    room: u64,
    brought: Option<u64>,
    out: &mut Vec<u8>,
) -> Option<Part> {
    let left = runs.count() - first;
    // Bytes of the message for each run of equal length, and how many of them fit behind a head.
    let fitting = |head: u64, each: u64, len: u64| {
        let own = if brought.is_some() { each } else { each + len };
        let come = brought.map_or(u64::MAX, |brought| brought / len);
        let fit = room.checked_sub(head).map_or(0, |room| room.checked_div(own).unwrap_or(u64::MAX));
        fit.min(come).min(left).min(u64::from(u32::MAX))
    };
    match *runs {
        // A long run travels alone.
        Runs::Indexed { len, .. } | Runs::Strided { len, .. } if len == 0 || len > brought.unwrap_or(room) / 2 => {
            None
        }
        Runs::Indexed { base, unit, len, indices } => {
            let count = fitting(24, 4, len);
            if count == 0 {
                return None;
            }
            put(out, &[base, unit, len]);
            for index in &indices[first as usize..(first + count) as usize] {
                out.extend_from_slice(&index.to_le_bytes());
            }
            Some(Part { form: INDEXED, count: count as u32, bytes: count * len })
        }
        Runs::Strided { base, len, dimensions } if dimensions.len() <= FEW => {
            let count = fitting(32 + 16 * dimensions.len() as u64, 0, len);
            if count == 0 {
                return describe_list(runs, first, room, brought, out);
            }
            put(out, &[base, len, first, dimensions.len() as u64]);
            for dimension in dimensions {
                put(out, &[dimension.count, dimension.stride as u64]);
            }
            Some(Part { form: STRIDED, count: count as u32, bytes: count * len })
        }
        Runs::List(_) | Runs::Strided { .. } => describe_list(runs, first, room, brought, out),
    }
}

fn describe_list(runs: &Runs<'_>, first: u64, room: u64, brought: Option<u64>, out: &mut Vec<u8>) -> Option<Part> {
    let mut part = Part { form: LIST, count: 0, bytes: 0 };
    for (offset, len) in runs.iter_from(first) {
        let described = LISTED * u64::from(part.count + 1);
        let bytes = part.bytes.saturating_add(len);
        let fits = match brought {
            Some(brought) => described <= room && bytes <= brought,
            None => described.saturating_add(bytes) <= room,
        };
        if len == 0 || len > brought.unwrap_or(room) / 2 || !fits {
            break;
        }
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&(len as u32).to_le_bytes());
        (part.count, part.bytes) = (part.count + 1, bytes);
    }
    (part.count > 0).then_some(part)
}

fn put(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

/// Runs as a message describes them. Nothing of it is believed: offsets wrap, and whoever uses them checks them.
pub(super) struct Described<'a> {
    form: u32,
    count: u32,
    head: &'a [u8],
    places: &'a [u8],
    dimensions: [Dimension; FEW],
}

impl<'a> Described<'a> {
    /// Takes a description apart from what follows it in a message.
    pub(super) fn parse(form: u32, count: u32, bytes: &'a [u8]) -> Result<(Self, &'a [u8]), HandlerFault> {
        let bad = HandlerFault("the description of runs does not fit its message");
        let mut dimensions = [Dimension::default(); FEW];
        let count_bytes = count as usize;
        let (head, places) = match form {
            LIST => (0, count_bytes.checked_mul(LISTED as usize)),
            INDEXED => (24, count_bytes.checked_mul(4)),
            STRIDED => (32, Some(0)),
            _ => return Err(bad),
        };
        let (head, mut rest) = bytes.split_at_checked(head).ok_or(bad)?;
        if form == STRIDED {
            let used = usize::try_from(number(&head[24..32])).ok().and_then(|count| dimensions.get_mut(..count));
            for dimension in used.ok_or(bad)? {
                let (this, others) = rest.split_at_checked(16).ok_or(bad)?;
                *dimension = Dimension { count: number(&this[..8]), stride: number(&this[8..]) as i64 };
                rest = others;
            }
        }
        let (places, rest) = places.and_then(|len| rest.split_at_checked(len)).ok_or(bad)?;
        let this = Self { form, count, head, places, dimensions };
        // Runs without bytes would let a peer keep this rank busy for nothing.
        if this.form != LIST && this.equal_len() == 0 {
            return Err(bad);
        }
        Ok((this, rest))
    }

    /// Bytes of each run, where all have the same.
    fn equal_len(&self) -> u64 {
        if self.form == INDEXED { number(&self.head[16..24]) } else { number(&self.head[8..16]) }
    }

    /// Bytes of all runs, which saturates.
    pub(super) fn bytes(&self) -> u64 {
        if self.form != LIST {
            return self.equal_len().saturating_mul(self.count.into());
        }
        self.places.chunks_exact(LISTED as usize).map(|run| number(&run[8..])).sum()
    }

    /// Calls `f` with the byte offset and length of each run.
    pub(super) fn try_for_each<E>(&self, mut f: impl FnMut(u64, u64) -> Result<(), E>) -> Result<(), E> {
        match self.form {
            LIST => {
                let mut runs = self.places.chunks_exact(LISTED as usize);
                runs.try_for_each(|run| f(number(&run[..8]), number(&run[8..])))
            }
            INDEXED => {
                let (base, unit) = (number(&self.head[..8]), number(&self.head[8..16]));
                let len = self.equal_len();
                let mut places = self.places.chunks_exact(4);
                places.try_for_each(|index| f(base.wrapping_add(unit.wrapping_mul(number(index))), len))
            }
            _ => {
                let (base, first) = (number(&self.head[..8]), number(&self.head[16..24]));
                let used = number(&self.head[24..32]) as usize;
                let mut walk = Walk::new(base, &self.dimensions[..used], first);
                let len = self.equal_len();
                (0..u64::from(self.count)).try_for_each(|run| f(walk.step(first.wrapping_add(run)), len))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dimension() -> impl Strategy<Value = Dimension> {
        (0u64..5, -40i64..40).prop_map(|(count, stride)| Dimension { count, stride })
    }

    /// The places of strided runs by nested loops.
    fn places(base: u64, dimensions: &[Dimension]) -> Vec<u64> {
        let Some((first, rest)) = dimensions.split_first() else { return vec![base] };
        (0..first.count)
            .flat_map(|index| places(base.wrapping_add((index as i64 * first.stride) as u64), rest))
            .collect()
    }

    /// What the parts of messages describe, one after the other.
    fn through_messages(runs: &Runs<'_>, room: u64, brought: Option<u64>) -> Vec<(u64, u64)> {
        let (mut all, mut first) = (Vec::new(), 0);
        while first < runs.count() {
            let mut message = Vec::new();
            let Some(part) = describe(runs, first, room, brought, &mut message) else {
                all.extend(runs.iter_from(first).next());
                first += 1;
                continue;
            };
            let own = if brought.is_some() { 0 } else { part.bytes };
            assert!(message.len() as u64 + own <= room && brought.is_none_or(|most| part.bytes <= most));
            message.extend_from_slice(b"rest");
            let (described, rest) = Described::parse(part.form, part.count, &message).unwrap();
            assert_eq!((rest, described.bytes()), (&b"rest"[..], part.bytes));
            described
                .try_for_each(|at, len| {
                    all.push((at, len));
                    Ok::<(), ()>(())
                })
                .unwrap();
            first += u64::from(part.count);
        }
        all
    }

    proptest! {
        #[test]
        fn strided_runs_are_nested_loops(
            base in 0u64..100, dimensions in prop::collection::vec(dimension(), 0..11)
        ) {
            let runs = Runs::Strided { base, len: 3, dimensions: &dimensions[..dimensions.len().min(4)] };
            let expected = places(base, &dimensions[..dimensions.len().min(4)]);
            prop_assert_eq!(runs.iter().map(|run| run.0).collect::<Vec<_>>(), expected.clone());
            for (first, at) in (0..).zip(&expected) {
                prop_assert_eq!(runs.iter_from(first).next(), Some((*at, 3)));
            }
            let inside = expected.iter().all(|at| at.checked_add(3).is_some_and(|end| end <= 150));
            prop_assert_eq!(runs.check(150).is_ok(), inside);
            // Many dimensions, most of them with one place.
            let mut many = vec![Dimension { count: 1, stride: 7 }; 9];
            many.extend_from_slice(&dimensions[..dimensions.len().min(3)]);
            let runs = Runs::Strided { base, len: 3, dimensions: &many };
            prop_assert_eq!(runs.iter().map(|run| run.0).collect::<Vec<_>>(), places(base, &many));
        }

        #[test]
        fn messages_describe_all_runs(
            list in prop::collection::vec((0u64..1000, 0u64..60), 0..40),
            indices in prop::collection::vec(any::<u32>(), 0..60),
            dimensions in prop::collection::vec(dimension(), 0..4),
            len in 0u64..50, room in 0u64..200, get: bool,
        ) {
            let brought = get.then_some(room / 2);
            let all = [
                Runs::List(&list),
                Runs::Indexed { base: 5, unit: 8, len, indices: &indices },
                Runs::Strided { base: 100, len, dimensions: &dimensions },
            ];
            for runs in all {
                prop_assert_eq!(through_messages(&runs, room, brought), runs.iter().collect::<Vec<_>>());
                prop_assert_eq!(runs.bytes(), runs.iter().map(|run| run.1).sum::<u64>());
            }
        }

        #[test]
        fn any_description_is_one_or_refused(
            form in 0u32..4, count in 0u32..30, bytes in prop::collection::vec(any::<u8>(), 0..200)
        ) {
            if let Ok((described, _)) = Described::parse(form, count, &bytes) {
                described.bytes();
                let mut found = 0;
                described.try_for_each(|_, _| { found += 1; Ok::<(), ()>(()) }).unwrap();
                prop_assert_eq!(found, count);
            }
        }
    }

    #[test]
    fn places_outside_are_told() {
        let outside = |runs: Runs<'_>| runs.check(100).unwrap_err();
        let list = [(0, 100), (99, 2)];
        assert_eq!(outside(Runs::List(&list)), SegmentError::OutOfRange { offset: 99, len: 2, segment: 100 });
        let indexed = Runs::Indexed { base: 4, unit: 8, len: 8, indices: &[11, 12, 3] };
        assert_eq!(outside(indexed), SegmentError::OutOfRange { offset: 100, len: 8, segment: 100 });
        assert!(Runs::Indexed { base: u64::MAX, unit: 8, len: 8, indices: &[1] }.check(100).is_err());
        let back = [Dimension { count: 3, stride: -10 }];
        assert!(Runs::Strided { base: 20, len: 80, dimensions: &back }.check(100).is_ok());
        assert!(Runs::Strided { base: 19, len: 1, dimensions: &back }.check(100).is_err());
        let many = [Dimension { count: u64::MAX, stride: i64::MAX }; 4];
        assert!(Runs::Strided { base: 0, len: 1, dimensions: &many }.check(100).is_err());
    }
}
