//! The answers of a stream at its caller: in order, whatever order they come in.

use crate::buffers;
use crate::outcome::Outcome;
use std::collections::VecDeque;

/// The answers of a stream that have come and were not taken.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// From the next one on; `None` for one that has been overtaken.
    items: VecDeque<Option<Vec<u8>>>,
    /// Number of the next one to be taken.
    next: u64,
    /// Taken, but the callee has not been told.
    owed: u64,
    /// How the stream ends, after so many answers.
    end: Option<(u64, Outcome)>,
    window: u32,
}

/// The callee breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Impossible;

impl Answers {
    /// Gets it ready for a stream of which so many answers may be under way.
    pub(crate) fn renew(&mut self, window: u32) {
        self.items.drain(..).flatten().for_each(buffers::give);
        (self.next, self.owed, self.end, self.window) = (0, 0, None, window.max(1));
    }

    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Answers that are kept, and gaps between them.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The next answer, if it is there.
    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        let item = self.items.front_mut()?.take()?;
        self.items.pop_front();
        self.next += 1;
        self.owed += 1;
        Some(item)
    }

    /// Answers that the callee is to be told of: they come in halves of the window.
    pub(crate) fn owed(&mut self) -> Option<u64> {
        let due = self.owed >= u64::from(self.window).div_ceil(2);
        due.then(|| std::mem::take(&mut self.owed))
    }

    /// Answers that have come without a gap.
    fn come(&self) -> u64 {
        self.next + self.items.iter().take_while(|item| item.is_some()).count() as u64
    }

    /// An answer with this number has come.
    pub(crate) fn put(&mut self, number: u64, bytes: impl FnOnce() -> Vec<u8>) -> Result<(), Impossible> {
        let before_end = self.end.as_ref().is_none_or(|(count, _)| number < *count);
        let place = number.checked_sub(self.next).filter(|place| *place < u64::from(self.window) && before_end);
        let place = place.ok_or(Impossible)? as usize;
        while self.items.len() <= place {
            self.items.push_back(None);
        }
        if self.items[place].is_some() {
            return Err(Impossible);
        }
        self.items[place] = Some(bytes());
        Ok(())
    }

    /// The stream ends so after this many answers, of which some may still come.
    pub(crate) fn end(&mut self, count: u64, outcome: Outcome) -> Result<(), Impossible> {
        let least = self.next + self.items.iter().rposition(Option::is_some).map_or(0, |last| last as u64 + 1);
        let possible = least..=self.next + u64::from(self.window);
        if self.end.is_some() || !possible.contains(&count) {
            return Err(Impossible);
        }
        self.end = Some((count, outcome));
        Ok(())
    }

    /// How the stream has ended, once all answers before that have come.
    pub(crate) fn ended(&mut self) -> Option<Outcome> {
        let (count, _) = self.end.as_ref()?;
        if *count != self.come() {
            return None;
        }
        self.end.take().map(|(_, outcome)| outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(window: u32) -> Answers {
        let mut answers = Answers::default();
        answers.renew(window);
        answers
    }

    #[test]
    fn answers_are_taken_in_order() {
        let mut answers = stream(3);
        answers.put(1, || vec![1]).unwrap();
        assert_eq!(answers.pop(), None);
        answers.end(3, Outcome::Answer).unwrap();
        answers.put(0, || vec![0]).unwrap();
        assert!(answers.ended().is_none());
        assert_eq!((answers.pop(), answers.owed()), (Some(vec![0]), None));
        assert_eq!((answers.pop(), answers.owed(), answers.owed()), (Some(vec![1]), Some(2), None));
        answers.put(2, || vec![2]).unwrap();
        assert!(matches!(answers.ended(), Some(Outcome::Answer)));
        assert_eq!((answers.pop(), answers.pop()), (Some(vec![2]), None));
    }

    #[test]
    fn what_a_faulty_callee_sends_is_refused() {
        let mut answers = stream(2);
        assert_eq!(answers.put(2, || unreachable!()), Err(Impossible));
        answers.put(1, Vec::new).unwrap();
        assert_eq!(answers.put(1, || unreachable!()), Err(Impossible));
        // An end before what has come, one beyond what may come, and a second one.
        assert_eq!(answers.end(1, Outcome::Answer), Err(Impossible));
        assert_eq!(answers.end(3, Outcome::Answer), Err(Impossible));
        answers.end(2, Outcome::Answer).unwrap();
        assert_eq!(answers.end(2, Outcome::Answer), Err(Impossible));
        let mut answers = stream(4);
        answers.end(1, Outcome::Answer).unwrap();
        assert_eq!(answers.put(1, || unreachable!()), Err(Impossible));
    }
}
