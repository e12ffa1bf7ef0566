//! An operation under way: its memory, its schedule, and how far its round has come.

use super::context::Members;
use crate::collectives::error::{Call, CollectiveError, Failure};
use crate::collectives::operator::Fold;
use crate::collectives::schedule::{Local, Part, Schedule, Side};
use crate::pointer::Element;
use am_core::Payload;
use am_core::zerocopy::IntoBytes;
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A vector of elements of some type.
pub(crate) trait Vector: Send {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: Element> Vector for Vec<T> {
    fn bytes(&self) -> &[u8] {
        self.as_slice().as_bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice().as_mut_bytes()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The data of an operation.
pub(crate) enum Data {
    /// The instance's own, copied in and out, and used again.
    Pooled(Vec<u8>),
    /// What the program gave.
    Given(Box<dyn Vector>),
}

impl Data {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Pooled(bytes) => bytes,
            Self::Given(vector) => vector.bytes(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pooled(bytes) => bytes,
            Self::Given(vector) => vector.bytes_mut(),
        }
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes().len())
    }
}

/// The elements of a large operation through shared memory: all of them, with those that this member gives in
/// place, or these apart.
pub(crate) enum Buffers<'a> {
    All(&'a mut [u8]),
    Apart { own: &'a [u8], all: &'a mut [u8] },
}

impl Buffers<'_> {
    /// Bytes that this member gives, whose part begins at `at`.
    pub(super) fn given(&self, at: usize, range: Range<usize>) -> &[u8] {
        match self {
            Self::All(all) => &all[at + range.start..at + range.end],
            Self::Apart { own, .. } => &own[range],
        }
    }

    /// Puts bytes that this member gives, whose part begins at `at`, in place.
    pub(super) fn place(&mut self, at: usize, range: Range<usize>) {
        if let Self::Apart { own, all } = self {
            all[at + range.start..at + range.end].copy_from_slice(&own[range]);
        }
    }

    /// Where bytes of the part that begins at `at` belong.
    pub(super) fn take(&mut self, at: usize, range: Range<usize>) -> &mut [u8] {
        let (Self::All(all) | Self::Apart { all, .. }) = self;
        &mut all[at + range.start..at + range.end]
    }
}

/// A message of the round that is to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outgoing {
    /// Whether it may go, and whether that is because its receiver asked for it.
    pub(super) granted: Option<bool>,
    /// Bytes sent.
    pub(super) at: usize,
    pub(super) done: bool,
    /// Whether it waits in its pair's list for room.
    pub(super) held: bool,
}

/// A message of the round that is to come.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    pub(super) arrived: usize,
    pub(super) announced: bool,
    /// Whether it waits in its pair's list for its announcement.
    pub(super) listed: bool,
    pub(super) done: bool,
    /// Pieces that are no whole elements, which cannot be combined before all are there.
    whole: Vec<u8>,
}

/// Who learns how an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A handle or a call.
    Handle,
    /// Nobody: its handle was dropped.
    Nobody,
}

/// An operation under way, or one that ended and whose result has not been fetched.
pub(super) struct Instance {
    /// Tells this use of the place from others.
    pub(super) generation: u32,
    pub(super) used: bool,
    pub(super) owner: Owner,
    pub(super) context: u32,
    pub(super) sequence: u32,
    pub(super) call: Call,
    pub(super) schedule: Arc<Schedule>,
    pub(super) data: Data,
    scratch: Vec<u8>,
    fold: Option<Fold>,
    pub(super) round: usize,
    /// Whether the round has begun.
    pub(super) begun: bool,
    pub(super) sends: Vec<Outgoing>,
    pub(super) sends_left: usize,
    pub(super) receives: Vec<Incoming>,
    pub(super) receives_left: usize,
    /// Whether it has waited for so long that it asks for what it awaits, whatever its size.
    pub(super) asks: bool,
    pub(super) outcome: Option<Result<(), CollectiveError>>,
    /// Whether it waits for its turn in the engine.
    pub(super) queued: bool,
    /// Whether it goes through shared memory, and then whether its caller has the elements.
    pub(super) direct: bool,
    pub(super) lent: bool,
    /// This member's position.
    pub(super) position: usize,
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, context, sequence, round, sends_left, receives_left, .. } = self;
        write!(f, "{call} ({context}.{sequence}), round {round}: {sends_left} to send, {receives_left} to come")
    }
}

/// What a message brings: bytes of a payload, or those that came before.
#[derive(Clone, Copy)]
pub(super) enum Bytes<'a> {
    Payload(&'a Payload<'a>),
    Own(&'a [u8]),
}

impl Bytes<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Payload(payload) => payload.len(),
            Self::Own(bytes) => bytes.len(),
        }
    }

    pub(super) fn copy_to(&self, out: &mut [u8]) {
        match self {
            Self::Payload(payload) => {
                payload.copy_to(out);
            }
            Self::Own(bytes) => out.copy_from_slice(bytes),
        }
    }
}

impl Instance {
    pub(super) fn new(schedule: &Arc<Schedule>, call: Call) -> Self {
        Self {
            generation: 0,
            used: false,
            owner: Owner::Nobody,
            context: 0,
            sequence: 0,
            call,
            schedule: Arc::clone(schedule),
            data: Data::Pooled(Vec::new()),
            scratch: Vec::new(),
            fold: None,
            round: 0,
            begun: false,
            sends: Vec::new(),
            sends_left: 0,
            receives: Vec::new(),
            receives_left: 0,
            asks: false,
            outcome: None,
            queued: false,
            direct: false,
            lent: false,
            position: 0,
        }
    }

    /// Begins an operation; the data are as the schedule needs them.
    pub(super) fn begin(&mut self, schedule: Arc<Schedule>, call: Call, fold: Option<Fold>) {
        let scratch = schedule.scratch() * call.element as usize;
        if self.scratch.len() < scratch {
            self.scratch.resize(scratch, 0);
        }
        (self.schedule, self.call, self.fold) = (schedule, call, fold);
        (self.used, self.owner, self.outcome) = (true, Owner::Handle, None);
        (self.round, self.begun) = (0, false);
        (self.direct, self.lent) = (false, false);
    }

    pub(super) fn element(&self) -> usize {
        self.call.element as usize
    }

    /// Sets up a round.
    pub(super) fn set_up(&mut self) {
        let round = self.schedule.round(self.round);
        (self.sends_left, self.receives_left) = (round.sends.len(), round.receives.len());
        self.sends.clear();
        self.sends.resize(self.sends_left, Outgoing::default());
        self.receives.truncate(self.receives_left);
        for incoming in &mut self.receives {
            (incoming.arrived, incoming.announced, incoming.done) = (0, false, false);
            incoming.listed = false;
        }
        self.receives.resize_with(self.receives_left, Incoming::default);
        (self.begun, self.asks) = (true, false);
    }

    /// The place of a message in the round.
    pub(super) fn awaited(&self, from: u32, tag: u32) -> Option<usize> {
        if !self.begun || self.outcome.is_some() {
            return None;
        }
        let receives = self.schedule.round(self.round).receives;
        let at = match receives {
            [only] => (only.from == from).then_some(0)?,
            all => all.binary_search_by_key(&from, |receive| receive.from).ok()?,
        };
        (receives[at].tag == tag && !self.receives[at].done).then_some(at)
    }

    /// The bytes of a part.
    pub(super) fn bytes(&self, part: Part) -> &[u8] {
        let (element, data) = (self.element(), self.schedule.data());
        if part.start < data || part.len == 0 && part.start == data {
            &self.data.bytes()[part.bytes(element)]
        } else {
            &self.scratch[Part::new(part.start - data, part.len).bytes(element)]
        }
    }

    fn bytes_mut(&mut self, part: Part) -> &mut [u8] {
        let (element, data) = (self.element(), self.schedule.data());
        if part.start < data || part.len == 0 && part.start == data {
            &mut self.data.bytes_mut()[part.bytes(element)]
        } else {
            &mut self.scratch[Part::new(part.start - data, part.len).bytes(element)]
        }
    }

    /// Takes bytes of a message of the round in; `total` is the message's size. Whether all of it is there now.
    ///
    /// # Errors
    /// The team's failure, if the message has another size than is expected.
    pub(super) fn take(
        &mut self,
        at: usize,
        offset: usize,
        total: usize,
        bytes: Bytes<'_>,
        members: &Members,
    ) -> Result<bool, Failure> {
        let receive = self.schedule.round(self.round).receives[at];
        let (element, len) = (self.element(), bytes.len());
        let expected = receive.part.len * element;
        let end = offset.checked_add(len).filter(|end| *end <= total && total == expected);
        let Some(end) = end else {
            let (from, to) = (members.ranks[receive.from as usize], members.ranks[members.me as usize]);
            return Err(Failure::Size { from, to, sent: total as u64, expected: expected as u64 });
        };
        match receive.combine {
            _ if len == 0 => {}
            None => bytes.copy_to(&mut self.bytes_mut(receive.part)[offset..end]),
            Some(side) if offset.is_multiple_of(element) && len.is_multiple_of(element) => {
                let part = Part::new(receive.part.start + offset / element, len / element);
                self.fold(part, bytes, side);
            }
            Some(_) => {
                let whole = &mut self.receives[at].whole;
                whole.resize(total, 0);
                bytes.copy_to(&mut whole[offset..end]);
            }
        }
        let incoming = &mut self.receives[at];
        incoming.arrived += len;
        incoming.done = incoming.arrived >= total;
        if incoming.done {
            self.receives_left -= 1;
            let whole = std::mem::take(&mut self.receives[at].whole);
            if let (Some(side), false) = (receive.combine, whole.is_empty()) {
                self.fold(receive.part, Bytes::Own(&whole), side);
            }
        }
        Ok(self.receives[at].done)
    }

    /// Combines a part with bytes that came.
    fn fold(&mut self, part: Part, bytes: Bytes<'_>, side: Side) {
        let fold = self.fold.take().expect("a schedule that combines has an operator");
        let own = match bytes {
            Bytes::Own(own) => Some(own),
            Bytes::Payload(payload) => payload.as_bytes(),
        };
        if let Some(own) = own {
            fold(self.bytes_mut(part), own, side);
        } else {
            self.fold_pieces(part, bytes, side, &fold);
        }
        self.fold = Some(fold);
    }

    /// Combines a part with bytes in memory that others may write, copied by pieces.
    fn fold_pieces(&mut self, part: Part, bytes: Bytes<'_>, side: Side, fold: &Fold) {
        let Bytes::Payload(payload) = bytes else { return };
        let element = self.element();
        if payload.len() <= 64 {
            let mut small = [0; 64];
            let small = &mut small[..payload.len()];
            payload.copy_to(small);
            return fold(self.bytes_mut(part), small, side);
        }
        let mut stack = [0; 2048];
        if element > stack.len() {
            let copy = payload.to_vec();
            return fold(self.bytes_mut(part), &copy, side);
        }
        let step = stack.len() / element * element;
        let mine = self.bytes_mut(part);
        for (index, mine) in mine.chunks_mut(step).enumerate() {
            let piece = &mut stack[..mine.len()];
            payload.copy_from(index * step, piece);
            fold(mine, piece, side);
        }
    }

    /// Does the local steps of the round, whose messages are all through, and goes to the next.
    pub(super) fn end_round(&mut self) {
        for index in 0..self.schedule.round(self.round).locals.len() {
            let (from, to, side) = match self.schedule.round(self.round).locals[index] {
                Local::Copy { from, to } => (from, Part::new(to, from.len), None),
                Local::Combine { from, into, side } => (from, Part::new(into, from.len), Some(side)),
            };
            self.local(from, to, side);
        }
        (self.round, self.begun) = (self.round + 1, false);
    }

    fn local(&mut self, from: Part, to: Part, side: Option<Side>) {
        if from.len == 0 {
            return;
        }
        let (element, data) = (self.element(), self.schedule.data());
        let apply = |mine: &mut [u8], other: &[u8], fold: &Option<Fold>| match side {
            None => mine.copy_from_slice(other),
            Some(side) => fold.as_ref().expect("a schedule that combines has an operator")(mine, other, side),
        };
        let shift = |part: Part| Part::new(part.start - data, part.len).bytes(element);
        match (from.start < data, to.start < data) {
            (true, false) => {
                apply(&mut self.scratch[shift(to)], &self.data.bytes()[from.bytes(element)], &self.fold)
            }
            (false, true) => {
                apply(&mut self.data.bytes_mut()[to.bytes(element)], &self.scratch[shift(from)], &self.fold);
            }
            (true, true) => {
                within(self.data.bytes_mut(), from.bytes(element), to.bytes(element), |mine, other| {
                    apply(mine, other, &self.fold);
                })
            }
            (false, false) => {
                within(&mut self.scratch, shift(from), shift(to), |mine, other| apply(mine, other, &self.fold));
            }
        }
    }

    /// All bytes of the data.
    pub(super) fn all_mut(&mut self) -> &mut [u8] {
        self.data.bytes_mut()
    }

    /// What this member gives for a small operation.
    pub(super) fn given(&self, me: usize) -> &[u8] {
        let len = self.call.count as usize * self.element();
        // Where there are parts, its own is in place.
        let at = if self.schedule.data() > self.call.count as usize { me * len } else { 0 };
        &self.data.bytes()[at..at + len]
    }

    /// Combines elements with those of the next member.
    pub(super) fn combine(&self, mine: &mut [u8], other: &[u8]) {
        self.fold.as_ref().expect("an operation that combines has an operator")(mine, other, Side::Right);
    }

    /// Takes copies of the elements that its caller has.
    pub(super) fn take_back(&mut self, buffers: &Buffers<'_>) {
        let all = match buffers {
            Buffers::All(all) => all.to_vec(),
            Buffers::Apart { own, all } => {
                let (len, mut copy) = (own.len(), all.to_vec());
                let at = self.position * len;
                copy[at..at + len].copy_from_slice(own);
                copy
            }
        };
        (self.data, self.lent) = (Data::Pooled(all), false);
    }

    /// The bytes of the result; none if its caller has the elements.
    pub(super) fn result(&self) -> &[u8] {
        if self.lent {
            return &[];
        }
        &self.data.bytes()[self.schedule.result().bytes(self.element())]
    }

    /// Makes the place free for another operation.
    pub(super) fn release(&mut self) {
        (self.used, self.generation) = (false, self.generation.wrapping_add(1));
        (self.begun, self.fold) = (false, None);
        if matches!(self.data, Data::Given(_)) {
            self.data = Data::Pooled(Vec::new());
        }
    }
}

/// Calls `apply` with two ranges of one memory, which do not overlap.
fn within(
    memory: &mut [u8],
    from: std::ops::Range<usize>,
    to: std::ops::Range<usize>,
    apply: impl FnOnce(&mut [u8], &[u8]),
) {
    if from.start < to.start {
        let (low, high) = memory.split_at_mut(to.start);
        apply(&mut high[..to.len()], &low[from]);
    } else {
        let (low, high) = memory.split_at_mut(from.start);
        apply(&mut low[to], &high[..from.len()]);
    }
}
