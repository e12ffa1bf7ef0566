//! Counting events and the operations that they trigger, as a state machine with no clock.

use super::command::Command;
use super::types::CtEvent;
use crate::nic::mutation::{Defects, Mutation};

struct Triggered {
    threshold: u64,
    /// When it was made, among all of this counter.
    made: u64,
    /// The move of the counter at which it has fired; only a defect keeps it.
    fired: u64,
    command: Command,
}

/// A counting event.
#[derive(Default)]
pub(crate) struct Counter {
    value: CtEvent,
    /// By threshold, then in the order of their making.
    waiting: Vec<Triggered>,
    made: u64,
    moves: u64,
}

impl Counter {
    pub(crate) fn value(&self) -> CtEvent {
        self.value
    }

    /// Triggered operations that have not fired.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn add(&mut self, by: CtEvent) {
        self.value.success = self.value.success.wrapping_add(by.success);
        self.value.failure = self.value.failure.wrapping_add(by.failure);
        self.moves += 1;
    }

    pub(crate) fn set(&mut self, value: CtEvent) {
        self.value = value;
        self.moves += 1;
    }

    /// Lets a command wait until the count of successes reaches a threshold.
    pub(crate) fn trigger(&mut self, threshold: u64, command: Command) {
        self.made += 1;
        self.moves += 1;
        let place = self.waiting.partition_point(|other| other.threshold <= threshold);
        self.waiting.insert(place, Triggered { threshold, made: self.made, fired: 0, command });
    }

    /// Forgets all commands that wait; returns how many.
    pub(crate) fn cancel(&mut self) -> usize {
        std::mem::take(&mut self.waiting).len()
    }

    /// The next command whose threshold is reached: that of the lowest, among equals the one made first. Each
    /// comes once. Ask until there is none.
    pub(crate) fn due(&mut self, defects: Defects) -> Option<Command> {
        let reached = self.waiting.partition_point(|other| other.threshold <= self.value.success);
        if defects.has(Mutation::TriggerAgain) {
            let moves = self.moves;
            let next = self.waiting[..reached].iter_mut().find(|other| other.fired != moves)?;
            next.fired = moves;
            return Some(next.command);
        }
        let all = 0..reached;
        // Rule 9 of the sheet: the lowest threshold fires first.
        let next = if defects.has(Mutation::TriggerInOrderOfMaking) {
            all.min_by_key(|index| self.waiting[*index].made)
        } else {
            all.min()
        };
        next.map(|index| self.waiting.remove(index).command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::p4::types::CtHandle;
    use am_core::slab::Slab;

    #[test]
    fn commands_come_once_and_by_threshold() {
        let ct = CtHandle(Slab::new().insert(()));
        let command = |number| Command::CtInc(ct, CtEvent::success(number));
        let mut counter = Counter::default();
        for (threshold, number) in [(5, 50), (2, 20), (5, 51), (3, 30), (0, 0)] {
            counter.trigger(threshold, command(number));
        }
        let due =
            |counter: &mut Counter| std::iter::from_fn(|| counter.due(Defects::default())).collect::<Vec<_>>();
        assert_eq!(due(&mut counter), [command(0)]);
        counter.add(CtEvent { success: 2, failure: 9 });
        assert_eq!(due(&mut counter), [command(20)]);
        counter.add(CtEvent::success(9));
        assert_eq!(due(&mut counter), [30, 50, 51].map(command));
        counter.set(CtEvent::success(0));
        counter.add(CtEvent::success(90));
        assert_eq!((due(&mut counter), counter.waiting()), (vec![], 0));
    }
}
