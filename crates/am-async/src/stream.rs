//! Streams of answers at the callee: a bounded queue between the method and the endpoint.

use crate::buffers;
use crate::config::CallConfig;
use crate::method::encode;
use crate::shared::TaskWaker;
use crate::wire::{LENGTH, Status, put_length};
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Bytes of answers that travel together at most: so many save nearly all that can be saved.
const BUNDLE: usize = 8 << 10;

/// Answers that travel in one message.
#[derive(Debug, Default)]
pub(crate) struct Bundle {
    /// Each answer after its length.
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u32,
    /// Bytes of the answers alone.
    pub(crate) item_bytes: u64,
}

impl Bundle {
    /// What the message says, and its payload: one answer travels as it is.
    pub(crate) fn message(&self) -> (Status, &[u8]) {
        match self.count {
            1 => (Status::Item, &self.bytes[self.bytes.len() - self.item_bytes as usize..]),
            _ => (Status::Items, &self.bytes),
        }
    }

    fn add(&mut self, item: &[u8]) {
        put_length(item.len() as u32, &mut self.bytes);
        self.bytes.extend_from_slice(item);
        self.count += 1;
        self.item_bytes += item.len() as u64;
    }
}

#[derive(Debug, Default)]
struct Queue {
    bundles: VecDeque<Bundle>,
    /// Answers in them.
    items: usize,
    /// Answers that may be put in until the caller has taken some.
    credit: u64,
    waker: Option<Waker>,
}

/// The answers of one stream that have not been sent.
#[derive(Debug)]
pub(crate) struct AnswerQueue {
    queue: Mutex<Queue>,
    /// The stream's own task, which sends them.
    task: Arc<TaskWaker>,
    /// Bytes of a message.
    largest: Arc<AtomicU64>,
    /// Bytes of an answer at most.
    limit: u64,
    /// Answers that may wait here for the network, whatever the caller's window.
    most: usize,
}

impl AnswerQueue {
    pub(crate) fn new(config: &CallConfig, largest: &Arc<AtomicU64>, task: &Arc<TaskWaker>) -> Arc<Self> {
        let (most, limit) = (config.stream_window.max(1) as usize, u64::from(config.max_bytes));
        let (largest, task) = (Arc::clone(largest), Arc::clone(task));
        Arc::new(Self { queue: Mutex::default(), task, largest, limit, most })
    }

    /// Gets a queue that nobody else has ready for another stream, of a task, whose caller lets so many answers be
    /// under way.
    pub(crate) fn renew(&mut self, credit: u64, task: &Arc<TaskWaker>) {
        self.clear();
        let queue = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner);
        (queue.credit, queue.waker) = (credit, None);
        if !Arc::ptr_eq(&self.task, task) {
            self.task = Arc::clone(task);
        }
    }

    /// Gives back what waits in a queue that nobody else has.
    pub(crate) fn clear(&mut self) {
        let queue = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner);
        queue.bundles.drain(..).for_each(|bundle| buffers::give(bundle.bytes));
        queue.items = 0;
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller has taken some.
    pub(crate) fn grant(&self, answers: u64) {
        let mut queue = self.queue();
        queue.credit = queue.credit.saturating_add(answers);
        let waker = queue.waker.take();
        drop(queue);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Puts an answer in, with those before it if a message carries them together.
    fn push(queue: &mut Queue, item: &mut Vec<u8>, largest: usize) {
        queue.items += 1;
        if item.len() > largest {
            let bytes = std::mem::take(item);
            return queue.bundles.push_back(Bundle { count: 1, item_bytes: bytes.len() as u64, bytes });
        }
        if let Some(last) = queue.bundles.back_mut()
            && last.bytes.len() + LENGTH + item.len() <= largest.min(BUNDLE)
        {
            return last.add(item);
        }
        let mut bundle = Bundle { bytes: buffers::take(), ..Bundle::default() };
        bundle.add(item);
        queue.bundles.push_back(bundle);
    }

    /// Hands out the first answers; those that could not be sent are put back.
    pub(crate) fn pop(&self) -> Option<Bundle> {
        let mut queue = self.queue();
        let bundle = queue.bundles.pop_front()?;
        queue.items -= bundle.count as usize;
        Some(bundle)
    }

    pub(crate) fn put_back(&self, bundle: Bundle) {
        let mut queue = self.queue();
        queue.items += bundle.count as usize;
        queue.bundles.push_front(bundle);
    }

    /// Answers have been sent: the method may go on.
    pub(crate) fn sent(&self) {
        let waker = self.queue().waker.take();
        waker.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue().bundles.is_empty()
    }
}

/// An answer that is not among the others yet, in a buffer that goes round.
struct Waiting(Vec<u8>);

impl Drop for Waiting {
    fn drop(&mut self) {
        buffers::give(std::mem::take(&mut self.0));
    }
}

/// Where a [stream method](crate::Methods::stream) puts its answers.
pub struct Sink<R> {
    answer_queue: Arc<AnswerQueue>,
    answers: PhantomData<fn(R)>,
}

impl<R> fmt::Debug for Sink<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}

/// An answer of a stream was not put in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// It can not be serialised.
    #[error("the answer can not be serialised: {0}")]
    Unserialisable(String),
    /// It is longer than [`CallConfig::max_bytes`] of this rank.
    #[error(
        "an answer of {bytes} bytes exceeds the limit of {limit}: raise CallConfig::max_bytes, or let the stream \
         have more, shorter answers"
    )]
    TooLarge {
        /// Bytes of the answer.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}

impl<R: Serialize> Sink<R> {
    pub(crate) fn new(answer_queue: &Arc<AnswerQueue>) -> Self {
        Self { answer_queue: Arc::clone(answer_queue), answers: PhantomData }
    }

    /// Bytes of an answer that one message carries at most, and that may be sent.
    pub(crate) fn largest(&self) -> usize {
        let largest = self.answer_queue.largest.load(Ordering::Relaxed).min(self.answer_queue.limit);
        usize::try_from(largest).unwrap_or(usize::MAX)
    }

    /// Puts an answer in, once the caller has taken enough of those before it. Answers arrive in order. Those that
    /// are put in before the endpoint has its next turn travel together, as far as one message carries them; none
    /// waits for others. One that is longer than a message goes in parts, once its caller has room for it
    /// ([`CallConfig::receive_bytes`]), and only one of those waits in here.
    ///
    /// # Errors
    /// [`SinkError`]; the stream can go on.
    pub async fn send(&mut self, answer: &R) -> Result<(), SinkError> {
        let mut item = buffers::take();
        encode(answer, &mut item).map_err(SinkError::Unserialisable)?;
        let (bytes, limit, largest) = (item.len() as u64, self.answer_queue.limit, self.largest());
        if bytes > limit {
            buffers::give(item);
            return Err(SinkError::TooLarge { bytes, limit });
        }
        let mut item = Waiting(item);
        let is_long = item.0.len() > largest;
        std::future::poll_fn(|context| {
            let mut queue = self.answer_queue.queue();
            let full = queue.items >= self.answer_queue.most;
            let full = full || (is_long && queue.bundles.iter().any(|bundle| bundle.bytes.len() > largest));
            if queue.credit == 0 || full {
                let old = queue.waker.replace(context.waker().clone());
                drop((queue, old));
                return Poll::Pending;
            }
            queue.credit -= 1;
            AnswerQueue::push(&mut queue, &mut item.0, largest);
            drop(queue);
            std::task::Wake::wake_by_ref(&self.answer_queue.task);
            Poll::Ready(())
        })
        .await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell::Doorbell;
    use crate::shared::Ready;
    use am_core::slab::Slab;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn answers_that_are_ready_travel_together() {
        let task = TaskWaker::new(&Ready::new(&Arc::new(Doorbell::default())), Slab::new().insert(()));
        let config = CallConfig::new().stream_window(6).max_bytes(40);
        let mut queue = AnswerQueue::new(&config, &Arc::new(AtomicU64::new(20)), &task);
        Arc::get_mut(&mut queue).unwrap().renew(7, &task);
        let mut sink = Sink::<String>::new(&queue);
        let mut send = |length: usize| {
            let text = "x".repeat(length);
            let sent = pin!(sink.send(&text)).poll(&mut Context::from_waker(Waker::noop()));
            sent.map(Result::unwrap).is_ready()
        };
        // A text has its length before it, and a place among others takes a byte more, for which five are free.
        assert!([1, 2, 3, 19, 1, 1].into_iter().all(&mut send));
        assert!(!send(1), "as many as may wait here");
        let mut counts = Vec::new();
        let first = queue.pop().unwrap();
        assert_eq!(first.message(), (Status::Items, &b"\x02\x01x\x03\x02xx\x04\x03xxx"[..]));
        assert_eq!((first.count, first.item_bytes), (3, 9));
        // What could not be sent stays the first.
        queue.put_back(first);
        assert!(!send(1));
        while let Some(bundle) = queue.pop() {
            counts.push((bundle.count, bundle.message().0, bundle.message().1.len()));
        }
        assert_eq!(counts, [(3, Status::Items, 12), (1, Status::Item, 20), (2, Status::Items, 6)]);
        assert!(send(5));
        assert!(!send(5), "the caller has taken none");
        assert_eq!(queue.pop().unwrap().message(), (Status::Item, &b"\x05xxxxx"[..]));
        assert!(queue.pop().is_none() && queue.is_empty());
    }

    #[test]
    fn one_long_answer_waits_at_a_time() {
        let task = TaskWaker::new(&Ready::new(&Arc::new(Doorbell::default())), Slab::new().insert(()));
        let config = CallConfig::new().stream_window(6).max_bytes(40);
        let mut queue = AnswerQueue::new(&config, &Arc::new(AtomicU64::new(20)), &task);
        Arc::get_mut(&mut queue).unwrap().renew(9, &task);
        let mut sink = Sink::<String>::new(&queue);
        let mut send = |length: usize| {
            let text = "x".repeat(length);
            pin!(sink.send(&text)).poll(&mut Context::from_waker(Waker::noop()))
        };
        assert_eq!(send(40), Poll::Ready(Err(SinkError::TooLarge { bytes: 41, limit: 40 })));
        assert_eq!([1, 39, 1].map(&mut send), [const { Poll::Ready(Ok(())) }; 3]);
        assert_eq!(send(20), Poll::Pending);
        let pop = || queue.pop().map(|bundle| (bundle.message().0, bundle.message().1.len()));
        assert_eq!([pop(), pop()], [Some((Status::Item, 2)), Some((Status::Item, 40))]);
        assert_eq!(send(20), Poll::Ready(Ok(())));
    }
}
