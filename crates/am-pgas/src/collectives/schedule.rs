//! Schedules: what one member of a team does in a collective operation, as data. A schedule knows no network, no
//! clock and no element type, so the same schedule is executed, checked against a model, and priced.
//!
//! A schedule is a list of rounds, as those of libNBC (Hoefler, Lumsdaine and Rehm, SC 2007). In a round all
//! messages are sent and received at once and in any order; then its local steps are done in theirs. The next
//! round begins after that. No part that a round receives overlaps another part that it sends or receives, so that
//! what comes out does not depend on the order of arrivals.

pub use super::pricing::{LogGp, PLogP, Upkeep, cost, cost_by_size, mean_cost};

/// A range of elements in the memory of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Part {
    /// Its first element.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
}

impl Part {
    /// `len` elements from `start` on.
    pub const fn new(start: usize, len: usize) -> Self {
        Self { start, len }
    }

    /// The first element behind the part.
    pub const fn end(self) -> usize {
        self.start + self.len
    }

    /// The part as a range of bytes of a memory whose elements have `element` bytes.
    pub(crate) fn bytes(self, element: usize) -> std::ops::Range<usize> {
        self.start * element..self.end() * element
    }

    fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

/// On which side of an operator the other operand stands: it decides for operators that do not commute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// `other op mine`: the other operand comes from lower positions.
    Left,
    /// `mine op other`.
    Right,
}

/// A message that a round sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Send {
    /// The receiver's position in the team.
    pub to: u32,
    /// Tells messages of one operation between the same two members apart.
    pub tag: u32,
    /// What is sent.
    pub part: Part,
}

/// A message that a round receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receive {
    /// The sender's position in the team.
    pub from: u32,
    /// The sender's tag.
    pub tag: u32,
    /// Where it belongs.
    pub part: Part,
    /// Whether it is combined with what is there; it replaces that otherwise.
    pub combine: Option<Side>,
}

/// A local step at the end of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Local {
    /// Copies elements; the parts do not overlap.
    Copy {
        /// The source.
        from: Part,
        /// The first element of the destination.
        to: usize,
    },
    /// Combines elements with others.
    Combine {
        /// The other operand.
        from: Part,
        /// The first element of what is changed.
        into: usize,
        /// Where the other operand stands.
        side: Side,
    },
}

/// Where the actions of a round begin in the lists of its schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Ends {
    sends: usize,
    receives: usize,
    locals: usize,
}

/// One round of a schedule.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// The messages to send.
    pub sends: &'a [Send],
    /// The messages to receive, by ascending position of the sender; at most one from each.
    pub receives: &'a [Receive],
    /// The steps that follow.
    pub locals: &'a [Local],
}

/// What one member does in one operation.
///
/// Its memory has two areas: `data`, which holds the operands at the start, and behind it `scratch`, whose content
/// does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Schedule {
    data: usize,
    scratch: usize,
    result: Part,
    sends: Vec<Send>,
    receives: Vec<Receive>,
    locals: Vec<Local>,
    rounds: Vec<Ends>,
}

impl Schedule {
    /// Elements of the data area.
    pub fn data(&self) -> usize {
        self.data
    }

    /// Elements of the scratch area.
    pub fn scratch(&self) -> usize {
        self.scratch
    }

    /// Where in the data area the result is at the end.
    pub fn result(&self) -> Part {
        self.result
    }

    /// Number of rounds.
    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// A round.
    ///
    /// # Panics
    /// If there are fewer rounds.
    pub fn round(&self, index: usize) -> Round<'_> {
        let begin = index.checked_sub(1).map_or_else(Ends::default, |before| self.rounds[before]);
        let end = self.rounds[index];
        Round {
            sends: &self.sends[begin.sends..end.sends],
            receives: &self.receives[begin.receives..end.receives],
            locals: &self.locals[begin.locals..end.locals],
        }
    }

    /// What is wrong with the schedule of a member of a team of `size`, if anything: parts outside the memory, in
    /// both areas at once, or overlapping in a round, two messages from one member in a round, or members that do
    /// not exist.
    pub fn fault(&self, size: usize) -> Option<String> {
        let inside = |part: Part| {
            let area = if part.start < self.data { self.data } else { self.data + self.scratch };
            part.len == 0 || part.end() <= area
        };
        for index in 0..self.rounds() {
            let round = self.round(index);
            for (at, receive) in round.receives.iter().enumerate() {
                let later = round.receives[at + 1..].iter().map(|other| other.part);
                let sent = round.sends.iter().map(|send| send.part);
                if let Some(other) = later.chain(sent).find(|other| other.overlaps(receive.part)) {
                    return Some(format!("round {index}: {receive:?} overlaps {other:?}"));
                }
                if round.receives[at + 1..].iter().any(|other| other.from <= receive.from) {
                    return Some(format!("round {index}: {receive:?} is not the only one, or out of order"));
                }
            }
            let members = round.sends.iter().map(|send| send.to);
            if let Some(member) = members
                .chain(round.receives.iter().map(|receive| receive.from))
                .find(|member| *member as usize >= size)
            {
                return Some(format!("round {index}: no member {member} in a team of {size}"));
            }
            let messages = round.sends.iter().map(|send| send.part);
            let messages = messages.chain(round.receives.iter().map(|receive| receive.part));
            let locals = round.locals.iter().flat_map(|local| match *local {
                Local::Copy { from, to } => [from, Part::new(to, from.len)],
                Local::Combine { from, into, .. } => [from, Part::new(into, from.len)],
            });
            if let Some(part) = messages.chain(locals).find(|part| !inside(*part)) {
                return Some(format!("round {index}: {part:?} is outside {} + {}", self.data, self.scratch));
            }
            let overlapping = |local: &&Local| match **local {
                Local::Copy { from, to } => from.overlaps(Part::new(to, from.len)),
                Local::Combine { from, into, .. } => from.overlaps(Part::new(into, from.len)),
            };
            if let Some(local) = round.locals.iter().find(overlapping) {
                return Some(format!("round {index}: {local:?} overlaps itself"));
            }
        }
        (!inside(self.result) || self.result.end() > self.data).then(|| format!("result {:?}", self.result))
    }
}

/// Builds the schedule of one member, round by round.
///
/// An algorithm over a part of the team works with positions in that part; [`Builder::among`] translates them.
#[derive(Debug)]
pub(crate) struct Builder {
    schedule: Schedule,
    /// Added to the tags, so that phases of one operation do not meet.
    phase: u32,
    /// The positions in the team of the part's members; all of them if empty.
    among: Vec<u32>,
}

impl Builder {
    /// A schedule over `data` elements of operands, all of which are the result.
    pub(crate) fn new(data: usize) -> Self {
        let schedule = Schedule { data, result: Part::new(0, data), ..Schedule::default() };
        Self { schedule, phase: 0, among: Vec::new() }
    }

    /// Says which part of the data is the result.
    pub(crate) fn result(mut self, result: Part) -> Self {
        self.schedule.result = result;
        self
    }

    /// Takes `len` elements of scratch; returns the first.
    pub(crate) fn scratch(&mut self, len: usize) -> usize {
        let start = self.schedule.data + self.schedule.scratch;
        self.schedule.scratch += len;
        start
    }

    /// Begins another phase. Every member begins as many, whether it takes part in them or not.
    pub(crate) fn phase(&mut self) {
        self.phase += 1 << 20;
    }

    /// Lets the positions of what follows be places in a list of members; all members if it is empty.
    pub(crate) fn among(&mut self, members: &[u32]) {
        self.among.clear();
        self.among.extend_from_slice(members);
    }

    fn member(&self, position: usize) -> u32 {
        self.among.get(position).copied().unwrap_or(position as u32)
    }

    pub(crate) fn send(&mut self, to: usize, tag: usize, part: Part) {
        let (to, tag) = (self.member(to), self.phase + tag as u32);
        self.schedule.sends.push(Send { to, tag, part });
    }

    fn receive_as(&mut self, from: usize, tag: usize, part: Part, combine: Option<Side>) {
        let (from, tag) = (self.member(from), self.phase + tag as u32);
        self.schedule.receives.push(Receive { from, tag, part, combine });
    }

    pub(crate) fn receive(&mut self, from: usize, tag: usize, part: Part) {
        self.receive_as(from, tag, part, None);
    }

    pub(crate) fn reduce(&mut self, from: usize, tag: usize, part: Part, side: Side) {
        self.receive_as(from, tag, part, Some(side));
    }

    pub(crate) fn copy(&mut self, from: Part, to: usize) {
        if from.len > 0 {
            self.schedule.locals.push(Local::Copy { from, to });
        }
    }

    pub(crate) fn combine(&mut self, from: Part, into: usize, side: Side) {
        self.schedule.locals.push(Local::Combine { from, into, side });
    }

    /// Ends the round, unless it is empty.
    pub(crate) fn end(&mut self) {
        let schedule = &mut self.schedule;
        let begin = schedule.rounds.last().copied().unwrap_or_default();
        let (sends, receives, locals) = (schedule.sends.len(), schedule.receives.len(), schedule.locals.len());
        let ends = Ends { sends, receives, locals };
        if ends != begin {
            schedule.receives[begin.receives..].sort_unstable_by_key(|receive| receive.from);
            schedule.rounds.push(ends);
        }
    }

    /// Ends the last round, and the schedule.
    pub(crate) fn finish(mut self) -> Schedule {
        self.end();
        self.schedule
    }
}
