//! Streams of answers at the callee: a bounded queue between the method and the endpoint.

use crate::buffers;
use crate::method::encode;
use crate::shared::TaskWaker;
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Vec<u8>>,
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
    /// Answers that may wait here for the network, whatever the caller's window.
    most: usize,
}

impl AnswerQueue {
    pub(crate) fn new(most: u32, largest: &Arc<AtomicU64>, task: &Arc<TaskWaker>) -> Arc<Self> {
        let (most, largest) = (most.max(1) as usize, Arc::clone(largest));
        Arc::new(Self { queue: Mutex::default(), task: Arc::clone(task), largest, most })
    }

    /// Gets a queue that nobody else has ready for another stream, of a task, whose caller lets so many answers be
    /// under way.
    pub(crate) fn renew(&mut self, credit: u64, task: &Arc<TaskWaker>) {
        let queue = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner);
        queue.items.drain(..).for_each(buffers::give);
        (queue.credit, queue.waker) = (credit, None);
        if !Arc::ptr_eq(&self.task, task) {
            self.task = Arc::clone(task);
        }
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

    /// Hands out the first answer; one that could not be sent is put back.
    pub(crate) fn pop(&self) -> Option<Vec<u8>> {
        self.queue().items.pop_front()
    }

    pub(crate) fn put_back(&self, item: Vec<u8>) {
        self.queue().items.push_front(item);
    }

    /// Answers have been sent: the method may go on.
    pub(crate) fn sent(&self) {
        let waker = self.queue().waker.take();
        waker.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue().items.is_empty()
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
    /// It is longer than one message to the caller: a stream's answers travel in one each.
    #[error(
        "an answer of {bytes} bytes exceeds the {limit} bytes of one message: let the stream have more, shorter answers"
    )]
    TooLarge {
        /// Bytes of the answer.
        bytes: u64,
        /// Bytes of a message.
        limit: u64,
    },
}

impl<R: Serialize> Sink<R> {
    pub(crate) fn new(answer_queue: &Arc<AnswerQueue>) -> Self {
        Self { answer_queue: Arc::clone(answer_queue), answers: PhantomData }
    }

    /// Bytes of an answer at most.
    pub(crate) fn largest(&self) -> usize {
        usize::try_from(self.answer_queue.largest.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Puts an answer in, once the caller has taken enough of those before it. Answers arrive in order.
    ///
    /// # Errors
    /// [`SinkError`]; the stream can go on.
    pub async fn send(&mut self, answer: &R) -> Result<(), SinkError> {
        let mut item = buffers::take();
        encode(answer, &mut item).map_err(SinkError::Unserialisable)?;
        let (bytes, limit) = (item.len() as u64, self.answer_queue.largest.load(Ordering::Relaxed));
        if bytes > limit {
            buffers::give(item);
            return Err(SinkError::TooLarge { bytes, limit });
        }
        let mut item = Some(item);
        std::future::poll_fn(|context| {
            let mut queue = self.answer_queue.queue();
            if queue.credit == 0 || queue.items.len() >= self.answer_queue.most {
                let old = queue.waker.replace(context.waker().clone());
                drop((queue, old));
                return Poll::Pending;
            }
            queue.credit -= 1;
            queue.items.extend(item.take());
            drop(queue);
            std::task::Wake::wake_by_ref(&self.answer_queue.task);
            Poll::Ready(())
        })
        .await;
        Ok(())
    }
}
