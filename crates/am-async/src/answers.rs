//! The answers of a stream at its caller: in order, whatever order they come in.

use crate::buffers;
use crate::coverage::Coverage;
use crate::outcome::Outcome;
use crate::wire::{Status, Verdict};
use std::collections::VecDeque;

/// Where an answer is.
#[derive(Debug)]
enum Place {
    /// It has been overtaken.
    Missing,
    /// It is longer than a message, and announced.
    Coming,
    Here(Vec<u8>),
}

/// Something longer than a message that a stream has announced: an answer, or how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) verdict: Verdict,
    /// The answer's number, or how many there were before the end.
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

impl Announced {
    fn is_item(self) -> bool {
        self.verdict.status == Status::Item
    }
}

/// What of a stream is on its way in parts: one thing at a time.
#[derive(Debug)]
struct Parts {
    what: Announced,
    /// What has come, once there is room for it.
    come: Option<(Vec<u8>, Coverage)>,
}

/// What was announced, once all of it has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Complete {
    pub(crate) what: Announced,
    pub(crate) bytes: Vec<u8>,
    /// The length of what is announced behind it, which waits for room from now on.
    pub(crate) behind: Option<u64>,
}

/// What a stream has of the memory for what is long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Nothing,
    /// It waits for some.
    Waits,
    /// So many bytes.
    Has(u64),
}

/// The answers of a stream that have come and were not taken.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// From the next one on.
    items: VecDeque<Place>,
    parts: Option<Parts>,
    /// What is announced behind that.
    behind: Option<Announced>,
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
        for place in self.items.drain(..) {
            if let Place::Here(bytes) = place {
                buffers::give(bytes);
            }
        }
        self.forget_parts();
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
        let item = match self.items.front_mut()? {
            Place::Here(bytes) => std::mem::take(bytes),
            Place::Missing | Place::Coming => return None,
        };
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
        self.next + self.items.iter().take_while(|item| matches!(item, Place::Here(_))).count() as u64
    }

    /// An answer with this number has come.
    pub(crate) fn put(&mut self, number: u64, bytes: impl FnOnce() -> Vec<u8>) -> Result<(), Impossible> {
        let place = self.place(number)?;
        *place = Place::Here(bytes());
        Ok(())
    }

    /// Where an answer with this number goes, of which nothing has come.
    fn place(&mut self, number: u64) -> Result<&mut Place, Impossible> {
        let before_end = self.end.as_ref().is_none_or(|(count, _)| number < *count);
        let place = number.checked_sub(self.next).filter(|place| *place < u64::from(self.window) && before_end);
        let place = place.ok_or(Impossible)? as usize;
        while self.items.len() <= place {
            self.items.push_back(Place::Missing);
        }
        match &mut self.items[place] {
            place @ Place::Missing => Ok(place),
            Place::Coming | Place::Here(_) => Err(Impossible),
        }
    }

    /// Something longer than a message is announced; whether it is to wait for room now, else something else is
    /// on its way before it.
    pub(crate) fn announce(&mut self, what: Announced) -> Result<bool, Impossible> {
        if self.behind.is_some() {
            return Err(Impossible);
        }
        if what.is_item() {
            *self.place(what.number)? = Place::Coming;
        }
        if self.parts.is_some() {
            self.behind = Some(what);
            return Ok(false);
        }
        self.parts = Some(Parts { what, come: None });
        Ok(true)
    }

    /// There is room for what is announced.
    pub(crate) fn receive(&mut self) {
        if let Some(Parts { what, come }) = &mut self.parts {
            *come = Some((buffers::take_filled(what.bytes as usize), Coverage::default()));
        }
    }

    /// A part of so many bytes has come. Hands out what that completes.
    pub(crate) fn part(
        &mut self,
        at: u64,
        len: usize,
        body: impl FnOnce(&mut [u8]),
    ) -> Result<Option<Complete>, Impossible> {
        let Some(Parts { what, come: Some((bytes, received)) }) = &mut self.parts else { return Ok(None) };
        let place = usize::try_from(at).ok().and_then(|at| bytes.get_mut(at..at.checked_add(len)?));
        let place = place.ok_or(Impossible)?;
        let received = received.note(at, len as u64).map_err(|_| Impossible)?;
        body(place);
        if received != what.bytes {
            return Ok(None);
        }
        let (what, bytes) = (*what, std::mem::take(bytes));
        self.parts = self.behind.take().map(|what| Parts { what, come: None });
        Ok(Some(Complete { what, bytes, behind: self.parts.as_ref().map(|parts| parts.what.bytes) }))
    }

    /// An announced answer has come.
    pub(crate) fn fill(&mut self, number: u64, bytes: Vec<u8>) {
        // Nothing that comes later has been taken.
        if let Some(place) = self.items.get_mut((number - self.next) as usize) {
            *place = Place::Here(bytes);
        }
    }

    /// Nothing more comes in parts; what that had of the memory for it.
    pub(crate) fn forget_parts(&mut self) -> Hold {
        self.behind = None;
        match self.parts.take() {
            None => Hold::Nothing,
            Some(Parts { come: None, .. }) => Hold::Waits,
            Some(Parts { come: Some((bytes, _)), what }) => {
                buffers::give(bytes);
                Hold::Has(what.bytes)
            }
        }
    }

    /// The length of what comes in parts.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn in_parts(&self) -> Option<usize> {
        self.parts.as_ref()?.come.as_ref().map(|(bytes, _)| bytes.len())
    }

    /// The stream ends so after this many answers, of which some may still come.
    pub(crate) fn end(&mut self, count: u64, outcome: Outcome) -> Result<(), Impossible> {
        let last = self.items.iter().rposition(|item| !matches!(item, Place::Missing));
        let least = self.next + last.map_or(0, |last| last as u64 + 1);
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

    fn announced(number: u64, bytes: u64) -> Announced {
        Announced { verdict: Verdict::new(Status::Item, 7), number, bytes }
    }

    #[test]
    fn long_answers_come_one_after_the_other() {
        let mut answers = stream(3);
        assert_eq!((answers.announce(announced(1, 3)), answers.announce(announced(2, 2))), (Ok(true), Ok(false)));
        answers.put(0, || vec![0]).unwrap();
        // There is no room yet.
        assert_eq!(answers.part(0, 3, |_| unreachable!()), Ok(None));
        answers.receive();
        assert_eq!(answers.part(2, 1, |bytes| bytes.fill(3)), Ok(None));
        assert_eq!((answers.pop(), answers.pop()), (Some(vec![0]), None));
        // The end has overtaken what it ends.
        answers.end(3, Outcome::Answer).unwrap();
        let come = answers.part(0, 2, |bytes| bytes.fill(1)).unwrap();
        assert_eq!(come, Some(Complete { what: announced(1, 3), bytes: vec![1, 1, 3], behind: Some(2) }));
        answers.fill(1, vec![1, 1, 3]);
        assert_eq!((answers.pop(), answers.pop()), (Some(vec![1, 1, 3]), None));
        assert!(answers.ended().is_none());
        assert_eq!(answers.forget_parts(), Hold::Waits);
        assert_eq!(answers.forget_parts(), Hold::Nothing);
    }

    #[test]
    fn long_answers_of_a_faulty_callee_are_refused() {
        let mut answers = stream(2);
        assert_eq!(answers.announce(announced(2, 9)), Err(Impossible), "beyond the window");
        answers.announce(announced(0, 9)).unwrap();
        assert_eq!(answers.announce(announced(0, 9)), Err(Impossible), "a second time");
        assert_eq!(answers.put(0, || unreachable!()), Err(Impossible));
        assert_eq!(answers.end(0, Outcome::Answer), Err(Impossible), "an end before it");
        answers.receive();
        for (at, len) in [(8, 2), (u64::MAX, 2), (0, 10)] {
            assert_eq!(answers.part(at, len, |_| unreachable!()), Err(Impossible), "{at} {len}");
        }
        assert_eq!(answers.part(0, 4, |bytes| bytes.fill(1)), Ok(None));
        assert_eq!(answers.part(3, 4, |_| unreachable!()), Err(Impossible), "some of it twice");
        answers.announce(announced(1, 9)).unwrap();
        let end = Announced { verdict: Verdict::new(Status::Failed, 7), number: 2, bytes: 9 };
        assert_eq!(answers.announce(end), Err(Impossible), "more than one behind");
        assert_eq!(answers.forget_parts(), Hold::Has(9));
    }
}
