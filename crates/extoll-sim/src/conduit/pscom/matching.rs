//! Matching of receives and messages by context, tag and rank: the posted receives, and the messages nobody waits
//! for yet.
//!
//! MPI's rules: a message goes to the receive that was posted first among those that fit, a receive takes the
//! message that came first among those that fit.

use super::header::Envelope;
use std::collections::VecDeque;

/// Which messages a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Selector {
    /// The communicator.
    pub(super) context: u32,
    /// The tag; `None` takes any.
    pub(super) tag: Option<u32>,
    /// The sender's rank; `None` takes any.
    pub(super) source: Option<u32>,
}

impl Selector {
    /// Whether a message fits.
    pub(super) fn fits(&self, envelope: &Envelope) -> bool {
        self.context == envelope.context
            && self.tag.is_none_or(|tag| tag == envelope.tag)
            && self.source.is_none_or(|source| source == envelope.source)
    }
}

/// The two queues, for receives known as `R` and messages known as `M`.
#[derive(Debug)]
pub(super) struct Matching<R, M> {
    posted: VecDeque<(Selector, R)>,
    unexpected: VecDeque<(Envelope, M)>,
}

impl<R, M> Default for Matching<R, M> {
    fn default() -> Self {
        Self { posted: VecDeque::new(), unexpected: VecDeque::new() }
    }
}

impl<R, M> Matching<R, M> {
    /// A message has come: it goes to a posted receive, or joins the unexpected ones.
    pub(super) fn arrive(&mut self, envelope: Envelope, message: M) -> Option<(R, M)> {
        match self.posted.iter().position(|(selector, _)| selector.fits(&envelope)) {
            Some(index) => self.posted.remove(index).map(|(_, receive)| (receive, message)),
            None => {
                self.unexpected.push_back((envelope, message));
                None
            }
        }
    }

    /// A receive is posted: it takes an unexpected message, or waits.
    pub(super) fn post(&mut self, selector: Selector, receive: R) -> Option<(Envelope, R, M)> {
        match self.unexpected.iter().position(|(envelope, _)| selector.fits(envelope)) {
            Some(index) => self.unexpected.remove(index).map(|(envelope, message)| (envelope, receive, message)),
            None => {
                self.posted.push_back((selector, receive));
                None
            }
        }
    }

    /// Messages that nobody has asked for.
    pub(super) fn unexpected(&self) -> usize {
        self.unexpected.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(tag: u32, source: u32) -> Envelope {
        Envelope { context: 1, tag, source }
    }

    fn selector(tag: Option<u32>, source: Option<u32>) -> Selector {
        Selector { context: 1, tag, source }
    }

    #[test]
    fn the_receive_posted_first_gets_the_message() {
        let mut matching = Matching::default();
        assert!(matching.post(selector(None, Some(2)), "from 2").is_none());
        assert!(matching.post(selector(Some(7), None), "tag 7").is_none());
        assert!(matching.post(selector(None, None), "any").is_none());
        assert_eq!(matching.arrive(envelope(7, 2), 'a'), Some(("from 2", 'a')));
        assert_eq!(matching.arrive(envelope(8, 2), 'b'), Some(("any", 'b')));
        assert_eq!(matching.arrive(envelope(8, 2), 'c'), None);
        assert_eq!((matching.posted.len(), matching.unexpected()), (1, 1));
    }

    #[test]
    fn the_message_that_came_first_is_taken() {
        let mut matching = Matching::default();
        for (tag, source, message) in [(1, 1, 'a'), (2, 1, 'b'), (1, 2, 'c'), (1, 1, 'd')] {
            assert_eq!(matching.arrive(envelope(tag, source), message), None);
        }
        let mut take = |tag, source| matching.post(selector(tag, source), ()).map(|(.., message)| message);
        assert_eq!(take(None, Some(2)), Some('c'));
        assert_eq!(take(Some(1), None), Some('a'));
        assert_eq!(take(Some(1), Some(1)), Some('d'));
        assert_eq!(take(Some(1), None), None);
        assert_eq!(take(None, None), Some('b'));
    }

    #[test]
    fn contexts_do_not_mix() {
        let mut matching = Matching::default();
        assert!(matching.arrive(Envelope { context: 2, tag: 0, source: 0 }, 'x').is_none());
        assert!(matching.post(selector(None, None), ()).is_none());
        assert!(matching.post(Selector { context: 2, tag: None, source: None }, ()).is_some());
    }
}
