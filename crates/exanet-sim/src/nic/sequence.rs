//! Numbers for what travels from one node to another, so that it takes effect exactly once however often it is
//! sent. State machines without a clock.
//!
//! A *unit* is a control packet, or a block of a transfer. The sender numbers the units for each node and keeps a
//! unit until it was answered; it never has numbers under way that are [`WINDOW`] or more apart. So the receiver
//! needs to remember its last `WINDOW` answers only: what is older is not asked for again.

use std::collections::VecDeque;

/// Units under way between two nodes, from the oldest on.
pub(crate) const WINDOW: u32 = 64;

/// What became of a unit at its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It took effect.
    Accepted,
    /// The mailbox or the queue of reads is full.
    Full,
    /// The process has no open context.
    NoContext,
    /// Translation refused it for good.
    Violation,
}

/// What a receiver knows of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It was not answered.
    New,
    /// It was; its sender may not know.
    Answered(Answer),
    /// Its sender knows the answer: a late copy.
    Past,
}

/// The receiver's side: the last answers.
#[derive(Debug)]
pub(crate) struct Answers {
    next: u32,
    last: [Option<Answer>; WINDOW as usize],
}

impl Default for Answers {
    fn default() -> Self {
        Self { next: 0, last: [None; WINDOW as usize] }
    }
}

impl Answers {
    fn is_ahead(&self, number: u32) -> bool {
        number.wrapping_sub(self.next) as i32 >= 0
    }

    pub(crate) fn look_up(&self, number: u32) -> Known {
        if self.is_ahead(number) {
            return Known::New;
        }
        if self.next.wrapping_sub(number) > WINDOW {
            return Known::Past;
        }
        self.last[(number % WINDOW) as usize].map_or(Known::New, Known::Answered)
    }

    /// Notes the answer to a number that is [new](Known::New).
    pub(crate) fn note(&mut self, number: u32, answer: Answer) {
        while self.is_ahead(number) {
            self.last[(self.next % WINDOW) as usize] = None;
            self.next = self.next.wrapping_add(1);
        }
        self.last[(number % WINDOW) as usize] = Some(answer);
    }
}

/// The sender's side: the units that were not answered.
#[derive(Debug)]
pub(crate) struct UnderWay<T> {
    first: u32,
    /// From the oldest on; those in between that were answered are gone.
    units: VecDeque<Option<T>>,
}

impl<T> Default for UnderWay<T> {
    fn default() -> Self {
        Self { first: 0, units: VecDeque::new() }
    }
}

impl<T> UnderWay<T> {
    /// Numbers from the oldest unit to the newest, at most [`WINDOW`].
    pub(crate) fn span(&self) -> u32 {
        self.units.len() as u32
    }

    /// Adds a unit; returns its number. The window has room.
    pub(crate) fn add(&mut self, unit: T) -> u32 {
        debug_assert!(self.span() < WINDOW, "the sender has looked for room");
        self.units.push_back(Some(unit));
        self.first.wrapping_add(self.span() - 1)
    }

    pub(crate) fn get(&mut self, number: u32) -> Option<&mut T> {
        self.units.get_mut(number.wrapping_sub(self.first) as usize)?.as_mut()
    }

    /// A unit was answered, or given up; `None` if there is no such unit any more.
    pub(crate) fn settle(&mut self, number: u32) -> Option<T> {
        let unit = self.units.get_mut(number.wrapping_sub(self.first) as usize)?.take()?;
        while self.units.front().is_some_and(Option::is_none) {
            self.units.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        Some(unit)
    }

    /// The units with their numbers, oldest first.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let first = self.first;
        let units = self.units.iter_mut().enumerate();
        units.filter_map(move |(index, unit)| Some((first.wrapping_add(index as u32), unit.as_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn late_copies_are_told_from_news() {
        let mut answers = Answers::default();
        assert_eq!(answers.look_up(0), Known::New);
        answers.note(2, Answer::Full);
        assert_eq!(
            [0, 1, 2, 3].map(|number| answers.look_up(number)),
            [Known::New, Known::New, Known::Answered(Answer::Full), Known::New]
        );
        answers.note(0, Answer::Accepted);
        answers.note(65, Answer::Accepted);
        assert_eq!(answers.look_up(2), Known::Answered(Answer::Full));
        assert_eq!(answers.look_up(1), Known::Past);
        answers.note(66, Answer::Accepted);
        assert_eq!(answers.look_up(2), Known::Past);
    }

    #[test]
    fn numbers_wrap() {
        let mut answers = Answers { next: u32::MAX - 1, ..Answers::default() };
        for number in [u32::MAX - 1, u32::MAX, 0, 1] {
            assert_eq!(answers.look_up(number), Known::New);
            answers.note(number, Answer::Accepted);
        }
        assert_eq!(answers.look_up(u32::MAX), Known::Answered(Answer::Accepted));
        let mut under_way = UnderWay { first: u32::MAX, ..UnderWay::default() };
        assert_eq!(["a", "b"].map(|unit| under_way.add(unit)), [u32::MAX, 0]);
        assert_eq!((under_way.settle(0), under_way.span()), (Some("b"), 2));
        assert_eq!((under_way.settle(u32::MAX), under_way.span()), (Some("a"), 0));
        assert_eq!(under_way.settle(0), None);
    }

    proptest! {
        /// Copies and answers in any order, some of them lost: a unit takes effect once, and its answers agree.
        #[test]
        fn units_take_effect_once(steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 1..400)) {
            let (mut sender, mut receiver) = (UnderWay::default(), Answers::default());
            let (mut effects, mut copies, mut replies) = (Vec::new(), Vec::new(), Vec::new());
            for (step, which) in steps {
                match step {
                    0 if sender.span() < WINDOW => {
                        let number = sender.add(());
                        copies.push(number);
                        effects.push(0);
                    }
                    // Sent again.
                    1 => copies.extend(sender.all().map(|(number, ())| number).nth(which.index(8))),
                    2 if !copies.is_empty() => {
                        // Copies stay: the network may double and delay them.
                        let number = copies[which.index(copies.len())];
                        let answer = if number % 3 == 0 { Answer::Full } else { Answer::Accepted };
                        match receiver.look_up(number) {
                            Known::New => {
                                effects[number as usize] += 1;
                                receiver.note(number, answer);
                                replies.push(number);
                            }
                            Known::Answered(known) => {
                                prop_assert_eq!(known, answer);
                                replies.push(number);
                            }
                            Known::Past => prop_assert!(sender.get(number).is_none()),
                        }
                    }
                    3 if !replies.is_empty() => drop(sender.settle(replies[which.index(replies.len())])),
                    _ => {}
                }
                prop_assert!(effects.iter().all(|count| *count <= 1));
            }
        }
    }
}
