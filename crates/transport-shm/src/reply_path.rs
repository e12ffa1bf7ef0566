//! The way back for one reply, and a claimed Medium request.

use crate::frame::{Frame, Kind, granules};
use crate::job::{Board, Job};
use crate::lanes::{ReplyOut, RequestOut};
use crate::park::Parking;
use crate::ring::{GRANULE, Position};
use crate::transport::segments::Segments;
use am_core::transport::{Body, Fill, PayloadWriter, PendingKey, ReplyBound, ReplyPath, ReplyPathGone, Slot};
use am_core::{Category, Peer, Rank, Words};

/// What a way back needs of its endpoint.
#[derive(Clone, Copy)]
pub(crate) struct ReplyContext<'a> {
    pub(crate) to: Peer,
    pub(crate) board: &'a Board,
    pub(crate) job: &'a Job,
    pub(crate) segments: &'a Segments,
    pub(crate) fenced: bool,
}

impl ReplyContext<'_> {
    fn rank(&self) -> Rank {
        self.board.shape().address(self.to).rank
    }
}

/// The way back for one reply.
pub(crate) struct ShmReplyPath<'a> {
    replies: &'a mut ReplyOut,
    context: ReplyContext<'a>,
    /// Granules that the asker has set aside, if it allows a reply.
    set_aside: Option<u64>,
    used: bool,
    bare: &'a mut u64,
}

impl<'a> ShmReplyPath<'a> {
    #[inline]
    pub(crate) fn new(
        replies: &'a mut ReplyOut,
        context: ReplyContext<'a>,
        set_aside: Option<u64>,
        bare: &'a mut u64,
    ) -> Self {
        Self { replies, context, set_aside, used: false, bare }
    }

    /// The frame of a reply, which repeats what was set aside so that the asker can give it back to its accounts.
    fn frame(
        &mut self,
        category: Category,
        handler: u8,
        args: &Words,
        len: usize,
    ) -> Result<Frame, ReplyPathGone> {
        if self.replies.is_gone() || self.set_aside.is_none() || self.used {
            return Err(ReplyPathGone);
        }
        self.used = true;
        let kind = Kind::Message(category);
        Ok(Frame { kind, handler, args: args.len(), len, reply: self.set_aside, in_ring: true })
    }

    fn long(&mut self, handler: u8, args: &Words, payload: &[u8], at: u64) -> Result<(), ReplyPathGone> {
        let segment = self.context.segments.put(self.context.job, self.context.rank()).ok_or(ReplyPathGone)?;
        let frame = self.frame(Category::Long, handler, args, 0)?;
        segment.write(at, payload).expect("the core checks the range of a Long reply");
        let frame = Frame { in_ring: false, ..frame };
        self.replies.send(&frame, args, Some((at, payload.len() as u64)));
        self.notify();
        Ok(())
    }

    fn notify(&self) {
        self.context.board.parking[self.context.to.index()].notify(self.context.fenced);
    }
}

impl ReplyPath for ShmReplyPath<'_> {
    fn bound(&self) -> usize {
        self.set_aside.unwrap_or(0) as usize * GRANULE
    }

    fn segment_len(&self) -> u64 {
        self.context.segments.len_of(self.context.job, self.context.rank())
    }

    fn long_limit(&self) -> u64 {
        u64::MAX
    }

    #[inline]
    fn send(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), ReplyPathGone> {
        match body {
            Body::None => {
                let frame = Frame { in_ring: false, ..self.frame(Category::Short, handler, args, 0)? };
                self.replies.send(&frame, args, None);
                self.notify();
                Ok(())
            }
            Body::Copy(payload) => {
                self.send_filled(handler, args, payload.len(), &mut |buffer| buffer.write(0, payload))
            }
            Body::Place(payload, at) => self.long(handler, args, payload, at),
        }
    }

    fn send_filled(
        &mut self,
        handler: u8,
        args: &Words,
        len: usize,
        fill: &mut Fill<'_>,
    ) -> Result<(), ReplyPathGone> {
        assert!(granules(len) <= self.set_aside.unwrap_or(0), "the core checks the bound of a reply");
        let frame = self.frame(Category::Medium, handler, args, len)?;
        let (start, next) = self.replies.place(len);
        fill(&mut ReplyBuffer { replies: self.replies, start, len });
        // The program may have forked while it filled the buffer.
        if self.replies.is_gone() {
            return Err(ReplyPathGone);
        }
        self.replies.send_filled(&frame, args, next);
        self.notify();
        Ok(())
    }

    fn detach(&mut self) -> PendingKey {
        self.used = true;
        PendingKey::new(self.context.to, self.set_aside.map_or(0, |granules| granules + 1))
    }
}

impl Drop for ShmReplyPath<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(granules) = self.set_aside
            && !self.used
            && !self.replies.is_gone()
        {
            *self.bare += 1;
            self.replies.bare(granules);
            self.notify();
        }
    }
}

/// The buffer of a Medium reply.
struct ReplyBuffer<'a> {
    replies: &'a ReplyOut,
    start: usize,
    len: usize,
}

impl PayloadWriter for ReplyBuffer<'_> {
    fn len(&self) -> usize {
        self.len
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.len), "writes stay inside the buffer");
        if !self.replies.is_gone() {
            self.replies.fill(self.start + at, bytes);
        }
    }
}

/// A claimed Medium request: a piece of the peer's byte ring. In a fork, writing and committing do nothing.
#[derive(Debug)]
pub struct ShmSlot<'a> {
    requests: &'a mut RequestOut,
    parking: &'a Parking,
    fenced: bool,
    frame: Frame,
    args: Words,
    start: usize,
    next: Position,
    reply: ReplyBound,
    committed: bool,
}

impl<'a> ShmSlot<'a> {
    #[inline]
    pub(crate) fn new(
        requests: &'a mut RequestOut,
        parking: &'a Parking,
        fenced: bool,
        frame: Frame,
        args: Words,
        (start, next): (usize, Position),
        reply: ReplyBound,
    ) -> Self {
        Self { requests, parking, fenced, frame, args, start, next, reply, committed: false }
    }
}

impl PayloadWriter for ShmSlot<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.frame.len
    }

    #[inline]
    fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.frame.len), "writes stay inside the buffer");
        if !self.requests.is_gone() {
            self.requests.fill(self.start + at, bytes);
        }
    }

    #[inline]
    fn write_u64(&mut self, index: usize, value: u64) {
        assert!(index < self.frame.len / 8, "writes stay inside the buffer");
        if !self.requests.is_gone() {
            self.requests.fill_word(self.start + 8 * index, value);
        }
    }
}

impl Slot for ShmSlot<'_> {
    #[inline]
    fn commit(mut self) {
        self.committed = true;
        // Nothing ends the relation to a peer while a slot is open, except that this is a fork: the slot is the
        // parent's.
        if self.requests.is_gone() {
            return;
        }
        self.requests.send_filled(&self.frame, &self.args, self.next);
        self.parking.notify(self.fenced);
    }
}

impl Drop for ShmSlot<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.committed {
            self.requests.cancel(self.reply);
        }
    }
}
