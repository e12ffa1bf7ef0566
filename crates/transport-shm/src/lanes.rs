//! The four lane ends that an endpoint has towards each peer, and what a frame of each contains.
//!
//! As the asker it writes requests and reads replies; as the answerer it reads requests and writes replies. The
//! asker sets room for replies aside in two accounts, so the answerer writes them without looking.

use crate::frame::{Frame, Kind, MOST_WORDS, granules};
use crate::layout::{Layout, back};
use crate::region::{Mapping, Unshared, Use, View};
use crate::ring::{
    Broken, CELL_WORDS, Cell, GRANULE, OPEN, Position, Reader, Writer, cells_between, give_back, given_back,
    newly_given_back, told_after,
};
use crate::sync::{Acquire, AtomicU64, Relaxed};
use crate::ways::{self, Way, Ways};
use am_core::credit::Account;
use am_core::transport::ReplyBound;
use am_core::{Category, Payload, Resource, Segment, Words};
use std::sync::Arc;
use std::time::Instant;

mod ends;

pub(crate) use ends::{answerer, asker};

/// Cells set aside for every reply: the longest frame.
const REPLY_CELLS: u32 = 2;

/// How many cells ahead the reader fetches lines, once it has read [`LAGGING`] frames in a row.
const READ_AHEAD: u64 = 32;

/// The same in cells of several frames, which a writer far ahead leaves.
const PACKED_AHEAD: u64 = 12;

/// Frames read in a row after which a reader lags behind its writer. One that keeps up would fetch lines that are
/// being written, which the writer then has to get back: a flood took twice as long.
pub(crate) const LAGGING: usize = 48;

/// The same of messages that are matched before they are handled, as two-sided ones are, whose reader lags behind
/// its writer from the first on: those of more words than [`FEW_WORDS`] (two-sided ones have nine), and Mediums of
/// one cell.
const READ_CLOSE: u64 = 4;
const LAGGING_LONGER: usize = 4;
const FEW_WORDS: usize = 8;

/// How many cells ahead the writer fetches lines.
const WRITE_AHEAD: u64 = 12;

/// How many bytes ahead lines are fetched for payloads.
const BYTES_AHEAD: u64 = 512;

/// Why a request was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Busy(Resource),
    Gone,
    Broken,
}

impl From<Broken> for Denied {
    fn from(_: Broken) -> Self {
        Self::Broken
    }
}

/// What writes to a peer's lane: a ring of cells and a ring of bytes.
#[derive(Debug)]
struct LaneRings {
    /// Index of the first word of cells among all words of the mapping.
    base: usize,
    cells: View<Cell>,
    bytes: View<AtomicU64>,
}

impl LaneRings {
    fn new(mapping: &Arc<Mapping>, cells: (usize, usize), bytes: (usize, usize)) -> Self {
        let base = cells.0 / size_of::<AtomicU64>();
        Self { base, cells: View::new(mapping, cells.0, cells.1), bytes: View::new(mapping, bytes.0, bytes.1 / 8) }
    }

    fn capacity(&self) -> usize {
        self.bytes.len() * 8
    }

    /// Fetches the cell a few cells behind the one with this number: at full speed the lines that frames travel
    /// in should be on their way while earlier frames are handled.
    #[inline]
    fn fetch_ahead(&self, cell: u64, purpose: Use) {
        self.fetch_at(cell + if purpose == Use::Read { READ_AHEAD } else { WRITE_AHEAD }, purpose);
    }

    /// Fetches the cell with this number, counted over all laps.
    #[inline]
    fn fetch_at(&self, cell: u64, purpose: Use) {
        let index = cell as usize & (self.cells.len() - 1);
        self.cells.fetch(index * size_of::<Cell>(), purpose);
    }

    /// Fetches a cell behind one of several frames, at its first.
    #[inline(always)]
    fn fetch_packed(&self, reader: &Reader) {
        if !reader.within() {
            self.fetch_at(reader.read() + PACKED_AHEAD, Use::Read);
        }
    }

    /// Fetches a line of the byte ring that payloads soon to come will be written to.
    #[inline]
    fn fetch_bytes_ahead(&self, next: Position) {
        let at = (next.bytes() + BYTES_AHEAD) as usize & (self.capacity() - 1);
        self.bytes.fetch(at, Use::Write);
    }
}

/// Writes a frame whose words are the arguments, behind offset and length if it is Long.
#[inline(always)]
fn write(writer: &mut Writer, cells: &[Cell], frame: &Frame, args: &Words, placed: Option<(u64, u64)>) {
    let pairs = args.pairs();
    let Some((at, len)) = placed else {
        if pairs.len() <= CELL_WORDS {
            writer.push(cells, frame.encode(), pairs, &[]);
        } else {
            writer.push_two(cells, frame.encode(), pairs);
        }
        return;
    };
    let mut words = [0; MOST_WORDS];
    (words[0], words[1]) = (at, len);
    words[2..2 + pairs.len()].copy_from_slice(pairs);
    let words = &words[..2 + pairs.len()];
    if words.len() <= CELL_WORDS {
        writer.push(cells, frame.encode(), words, &[]);
    } else {
        writer.push_two(cells, frame.encode(), words);
    }
}

/// What a lane hands on of each frame: its fields, arguments and payload.
///
/// A closure rather than a returned structure: the pieces stay where they are, and the processor need not wait for
/// bytes that it has just stored in other sizes.
pub(crate) trait Deliver: FnMut(Frame, &Words, Payload<'_>) {}

impl<F: FnMut(Frame, &Words, Payload<'_>)> Deliver for F {}

/// What a lane end had to offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// No frame.
    Nothing,
    /// The end of a cell of several frames, which is no frame.
    End,
    /// A frame, which has been delivered.
    Small,
    /// A frame of more than one cell, or with its payload elsewhere, still to be delivered by `take_large`.
    Large(Frame),
}

/// What a lane of requests had to offer of the plainest kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    /// No request.
    Nothing,
    /// One for this handler, which has been taken.
    Taken(u8),
    /// One of another kind, with this header, still to be taken.
    Other(u64),
}

/// Delivers a frame that lies in one cell.
#[inline(always)]
fn deliver_small(first: &[AtomicU64], frame: Frame, mut deliver: impl Deliver) -> Result<(), Broken> {
    let pairs = frame.args.div_ceil(2);
    let words = first.get(1..=frame.small_words()).ok_or(Broken)?;
    let mut args = Words::EMPTY;
    args.refill(frame.args, words[..pairs].iter().map(|word| word.load(Relaxed))).map_err(|_| Broken)?;
    let payload = match frame.len {
        0 => Payload::EMPTY,
        len => Payload::shared(words, 8 * pairs, len),
    };
    deliver(frame, &args, payload);
    Ok(())
}

/// A frame that is more than one cell holds, as it was read, and the byte position after it.
struct Large<'a> {
    args: Words,
    payload: Payload<'a>,
    next: Position,
}

/// Reads and checks a frame that is more than one cell holds.
#[inline(never)]
fn read_large<'a>(
    rings: &'a LaneRings,
    reader: &Reader,
    position: Position,
    frame: &Frame,
    segment: &'a Segment<Unshared>,
    most: usize,
) -> Result<Large<'a>, Broken> {
    // Others lie in no cell that was open.
    if reader.within() {
        return Err(Broken);
    }
    let first = reader.first(&rings.cells);
    let second = if frame.cells() == 2 { &reader.second(&rings.cells)?.0[1..] } else { &[] };
    let mut all = first[1..].iter().chain(second).map(|word| word.load(Relaxed));
    let (mut payload, mut next) = (Payload::EMPTY, position);
    let elsewhere = matches!(frame.kind, Kind::Message(Category::Short | Category::Long));
    if elsewhere && (frame.in_ring || frame.len != 0) {
        return Err(Broken);
    }
    if frame.kind == Kind::Message(Category::Long) {
        let (at, len) = (all.next().ok_or(Broken)?, all.next().ok_or(Broken)?);
        let len = usize::try_from(len).map_err(|_| Broken)?;
        payload = segment.view(at, len).map_err(|_| Broken)?;
    }
    let args = Words::from_pairs(frame.args, all.take(frame.args.div_ceil(2))).map_err(|_| Broken)?;
    if frame.in_ring {
        if frame.len > most {
            return Err(Broken);
        }
        let (start, after) = position.place(frame.len, rings.capacity());
        payload = Payload::in_memory(&rings.bytes, start, frame.len);
        next = after;
    } else if frame.len != 0 {
        return Err(Broken);
    }
    Ok(Large { args, payload, next })
}

/// The asker's end of the request lane, with the accounts of what is set aside for replies.
#[derive(Debug)]
pub(crate) struct RequestOut {
    rings: LaneRings,
    back: View<AtomicU64>,
    writer: Writer,
    position: Position,
    bytes_done: u64,
    reply_cells: Account,
    reply_bytes: Account,
    bare_seen: [u64; 2],
    /// Zero if the peer takes no more requests, or this is not the process that joined.
    open: View<AtomicU64>,
    /// Room was found missing since this was last reset, or nothing has been sent yet: the next send has more to
    /// do.
    pub(crate) starved: bool,
    /// How long payloads are written.
    ways: Ways,
}

impl RequestOut {
    /// Whether the peer takes no more requests, or none from this process.
    #[inline(always)]
    pub(crate) fn is_gone(&self) -> bool {
        // Relaxed: only the endpoint writes it, and a fork.
        self.open[0].load(Relaxed) == 0
    }

    /// Sends whatever is small in cells of several frames from now on.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn always_pack(&mut self) {
        self.writer.always_pack();
    }

    /// Admits a request: `cells` cells, `len` bytes of the byte ring if any, and room for the reply. Returns where
    /// the payload starts and the position after it. Only the reply's room is taken; cells and bytes are when
    /// written.
    #[inline(always)]
    pub(crate) fn admit(
        &mut self,
        cells: u64,
        len: Option<usize>,
        reply: ReplyBound,
    ) -> Result<(usize, Position), Denied> {
        if self.is_gone() {
            return Err(Denied::Gone);
        }
        if !self.writer.room(&self.rings.cells, &self.back[back::CELLS], cells)? {
            self.starved = true;
            return Err(Denied::Busy(Resource::RequestFrames));
        }
        let mut place = (0, self.position);
        if let Some(len) = len {
            place = self.position.place(len, self.rings.capacity());
            if place.1.bytes() - self.bytes_done > self.rings.capacity() as u64 {
                self.refresh_bytes()?;
                if place.1.bytes() - self.bytes_done > self.rings.capacity() as u64 {
                    self.starved = true;
                    return Err(Denied::Busy(Resource::RequestBytes));
                }
            }
        }
        if let ReplyBound::UpTo(bytes) = reply {
            self.set_aside(granules(bytes as usize) as u32 * GRANULE as u32)?;
        }
        Ok(place)
    }

    /// Takes what a reply of at most `bytes` payload bytes needs.
    #[inline]
    fn set_aside(&mut self, bytes: u32) -> Result<(), Denied> {
        if self.reply_cells.available() < REPLY_CELLS || self.reply_bytes.available() < bytes {
            self.refresh_bare()?;
        }
        if self.reply_cells.take(REPLY_CELLS).is_err() {
            self.starved = true;
            return Err(Denied::Busy(Resource::ReplyFrames));
        }
        if self.reply_bytes.take(bytes).is_err() {
            self.starved = true;
            self.reply_cells.give_back(REPLY_CELLS).expect("they were taken a line above");
            return Err(Denied::Busy(Resource::ReplyBytes));
        }
        Ok(())
    }

    /// Gives back what `admit` took, for a claim that is not committed.
    pub(crate) fn cancel(&mut self, reply: ReplyBound) {
        if let ReplyBound::UpTo(bytes) = reply {
            let bytes = granules(bytes as usize) as u32 * GRANULE as u32;
            let cells = self.reply_cells.give_back(REPLY_CELLS);
            cells.and(self.reply_bytes.give_back(bytes)).expect("the claim took them");
        }
    }

    #[cold]
    fn refresh_bytes(&mut self) -> Result<(), Broken> {
        self.bytes_done = given_back(&self.back[back::BYTES], self.bytes_done, self.position.bytes())?;
        Ok(())
    }

    /// Takes in the bare credits that the answerer has given back.
    #[cold]
    fn refresh_bare(&mut self) -> Result<(), Broken> {
        for (index, word) in [back::BARE_CELLS, back::BARE_BYTES].into_iter().enumerate() {
            let fresh = newly_given_back(&self.back[word], &mut self.bare_seen[index])?;
            let account = if index == 0 { &mut self.reply_cells } else { &mut self.reply_bytes };
            account.give_back(fresh).map_err(|_| Broken)?;
        }
        Ok(())
    }

    /// Takes back what was set aside for a reply that has arrived.
    #[inline]
    fn settle(&mut self, bytes: u64) -> Result<(), Broken> {
        self.reply_cells.give_back(REPLY_CELLS).map_err(|_| Broken)?;
        self.reply_bytes.give_back(bytes as u32).map_err(|_| Broken)
    }

    /// Learns everything the answerer has given back; returns whether anything was new.
    pub(crate) fn refresh(&mut self) -> Result<bool, Broken> {
        let before = (self.writer.known(), self.bytes_done, self.bare_seen);
        self.writer.refresh(&self.rings.cells, &self.back[back::CELLS])?;
        self.refresh_bytes()?;
        self.refresh_bare()?;
        Ok(before != (self.writer.known(), self.bytes_done, self.bare_seen))
    }

    /// Whether the answerer has given back something that `refresh` has not seen.
    pub(crate) fn news(&self) -> bool {
        let seen = [self.writer.known(), self.bytes_done];
        let bare = self.bare_seen;
        let now = [back::CELLS, back::BYTES, back::BARE_CELLS, back::BARE_BYTES];
        now.map(|word| self.back[word].load(Relaxed)) != [seen[0], seen[1], bare[0], bare[1]]
    }

    /// Words of cells written so far.
    pub(crate) fn written(&self) -> u64 {
        self.writer.written()
    }

    /// Whether all requests have been handled.
    pub(crate) fn quiet(&self) -> bool {
        // A peer that nothing was sent to has handled everything, and its words need not be looked at.
        // Acquire: pairs with the Release in `Reader::publish`; what the handlers did is visible where memory is
        // shared.
        self.writer.written() == 0 || self.back[back::CELLS].load(Acquire) == self.writer.written()
    }

    /// Requests that have got neither a reply nor a bare credit.
    pub(crate) fn unanswered(&self) -> u64 {
        let bare = self.back[back::BARE_CELLS].load(Relaxed).wrapping_sub(self.bare_seen[0]);
        u64::from(self.reply_cells.outstanding()).saturating_sub(bare) / u64::from(REPLY_CELLS)
    }

    #[inline]
    pub(crate) fn send(&mut self, frame: &Frame, args: &Words, placed: Option<(u64, u64)>) {
        self.rings.fetch_ahead(self.writer.cell(), Use::Write);
        self.writer.close(&self.rings.cells);
        write(&mut self.writer, &self.rings.cells, frame, args, placed);
    }

    /// Sends a frame of one cell, compiled into its caller, which knows most of it.
    #[inline(always)]
    pub(crate) fn send_inline(&mut self, frame: &Frame, args: &Words, payload: &[u8]) {
        self.rings.fetch_ahead(self.writer.cell(), Use::Write);
        let (cells, header) = (&self.rings.cells, frame.encode());
        if self.writer.packs() {
            self.writer.pack(cells, &self.back[back::CELLS], header, args.pairs(), payload);
        } else {
            self.writer.push(cells, header, args.pairs(), payload);
        }
    }

    /// Copies payload bytes into the byte ring, at a place that `admit` returned.
    #[inline]
    pub(crate) fn fill(&self, start: usize, bytes: &[u8]) {
        self.rings.bytes.copy_in(start, bytes);
    }

    /// As [`RequestOut::fill`], of a whole payload: a long one goes the way that is faster between the processors.
    #[inline]
    pub(crate) fn fill_whole(&mut self, start: usize, bytes: &[u8]) {
        if bytes.len() < ways::LEAST { self.fill(start, bytes) } else { self.fill_long(start, bytes) }
    }

    #[inline(never)]
    fn fill_long(&mut self, start: usize, bytes: &[u8]) {
        let (way, timed) = self.ways.next();
        let begun = timed.then(Instant::now);
        match way {
            Way::Cached => self.fill(start, bytes),
            Way::Past => self.rings.bytes.copy_past(start, bytes),
        }
        if let Some(begun) = begun {
            self.ways.took(way, bytes.len(), u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Stores one word of payload, at a place that `admit` returned.
    #[inline]
    pub(crate) fn fill_word(&self, at: usize, value: u64) {
        // Relaxed: the Release store of the frame's header makes it visible.
        self.rings.bytes[at / 8].store(value.to_le(), Relaxed);
    }

    /// Sends a frame whose payload has been copied into the byte ring up to `next`.
    #[inline]
    pub(crate) fn send_filled(&mut self, frame: &Frame, args: &Words, next: Position) {
        self.position = next;
        self.rings.fetch_ahead(self.writer.cell(), Use::Write);
        self.rings.fetch_bytes_ahead(next);
        self.writer.close(&self.rings.cells);
        write(&mut self.writer, &self.rings.cells, frame, args, None);
    }

    /// Free cells, free bytes, reply cells and reply bytes that can be set aside.
    pub(crate) fn free(&self) -> [u64; 4] {
        let done = self.back[back::CELLS].load(Relaxed);
        let used = cells_between(done, self.writer.written()).min(self.rings.cells.len() as u64);
        let bytes_done = self.back[back::BYTES].load(Relaxed);
        let bytes_used = self.position.bytes().wrapping_sub(bytes_done).min(self.rings.capacity() as u64);
        let cells = self.rings.cells.len() as u64 - used;
        let bytes = self.rings.capacity() as u64 - bytes_used;
        [cells, bytes, u64::from(self.reply_cells.available()), u64::from(self.reply_bytes.available())]
    }
}

/// The asker's end of the reply lane.
#[derive(Debug)]
pub(crate) struct ReplyIn {
    rings: LaneRings,
    reader: Reader,
    position: Position,
    most: usize,
}

impl ReplyIn {
    /// Whether a reply has arrived.
    #[inline]
    pub(crate) fn ready(&self) -> bool {
        self.reader.peek(&self.rings.cells).is_some()
    }

    /// Where to look for the next frame; see [`Reader::watch`].
    #[inline]
    pub(crate) fn watch(&self) -> u64 {
        self.reader.watch(&self.rings.cells, self.rings.base)
    }

    /// Whether the lane looks as its writer must have left it.
    pub(crate) fn sound(&self) -> bool {
        self.reader.sound(&self.rings.cells)
    }

    /// Takes the next reply, if there is one, is Short and lies in one cell, and gives its room back to the
    /// accounts of `out`. Faster than [`ReplyIn::take`], which takes all others.
    #[inline(always)]
    pub(crate) fn take_trip(
        &mut self,
        out: &mut RequestOut,
        args: &mut Words,
        ahead: bool,
    ) -> Result<Plain, Broken> {
        let Some((words, header)) = self.reader.peek(&self.rings.cells) else { return Ok(Plain::Nothing) };
        let Some((handler, len, granules)) = Frame::decode_trip(header) else { return Ok(Plain::Other(header)) };
        let Some(words) = words.get(1..=len.div_ceil(2)) else { return Err(Broken) };
        args.refill(len, words.iter().map(|word| word.load(Relaxed))).map_err(|_| Broken)?;
        if ahead {
            self.rings.fetch_ahead(self.reader.read(), Use::Read);
        }
        out.settle(granules * GRANULE as u64)?;
        self.reader.advance(1);
        Ok(Plain::Taken(handler))
    }

    /// Delivers the next reply if it is there and lies in one cell, and gives its room back to the accounts of
    /// `out`.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        out: &mut RequestOut,
        ahead: bool,
        deliver: impl Deliver,
    ) -> Result<Taken, Broken> {
        let Some((first, header)) = self.reader.peek(&self.rings.cells) else {
            return Ok(Taken::Nothing);
        };
        if ahead {
            self.rings.fetch_ahead(self.reader.read(), Use::Read);
        }
        let frame = Frame::decode(header).ok_or(Broken)?;
        if !frame.one_cell() {
            return Ok(Taken::Large(frame));
        }
        out.settle(frame.reply.ok_or(Broken)? * GRANULE as u64)?;
        self.reader.advance(1);
        deliver_small(first, frame, deliver)?;
        Ok(Taken::Small)
    }

    /// Delivers the reply that `take` found to be large.
    #[inline(never)]
    pub(crate) fn take_large(
        &mut self,
        out: &mut RequestOut,
        frame: Frame,
        segment: &Segment<Unshared>,
        mut deliver: impl Deliver,
    ) -> Result<(), Broken> {
        let bytes = frame.reply.ok_or(Broken)? * GRANULE as u64;
        let large = read_large(&self.rings, &self.reader, self.position, &frame, segment, self.most)?;
        if large.next.bytes() - self.position.bytes() > self.room(bytes) {
            return Err(Broken);
        }
        out.settle(bytes)?;
        self.reader.advance(frame.cells());
        self.position = large.next;
        deliver(frame, &large.args, large.payload);
        Ok(())
    }

    /// How far a reply for which `bytes` were set aside may move the position: its bytes, and the gap at the
    /// ring's end.
    #[inline]
    fn room(&self, bytes: u64) -> u64 {
        let capacity = self.rings.capacity() as u64;
        let to_end = capacity - self.position.bytes() % capacity;
        if to_end < bytes { bytes + to_end } else { bytes }
    }
}

/// The answerer's end of the request lane.
#[derive(Debug)]
pub(crate) struct RequestIn {
    rings: LaneRings,
    back: View<AtomicU64>,
    reader: Reader,
    position: Position,
    most: usize,
    /// The most granules that can be set aside for a reply.
    most_reply: u64,
    /// Words of cells after which they are given back even though more frames wait.
    batch: u64,
}

impl RequestIn {
    /// Whether a request has arrived.
    #[inline]
    pub(crate) fn ready(&self) -> bool {
        self.reader.peek(&self.rings.cells).is_some()
    }

    /// Where to look for the next frame; see [`Reader::watch`].
    #[inline]
    pub(crate) fn watch(&self) -> u64 {
        self.reader.watch(&self.rings.cells, self.rings.base)
    }

    /// Whether the lane looks as its writer must have left it.
    pub(crate) fn sound(&self) -> bool {
        self.reader.sound(&self.rings.cells)
    }

    /// Takes the next request, if there is one, has arguments only, fits one cell and permits no reply. Faster
    /// than [`RequestIn::take`], which takes all others. Behind `done` others in a row, fetches a cell of frames
    /// to come. Its cell is the writer's again only after `publish`.
    #[inline(always)]
    pub(crate) fn take_plain(&mut self, args: &mut Words, done: usize) -> Plain {
        let Self { rings, reader, .. } = self;
        let Some((words, header)) = reader.peek(&rings.cells) else { return Plain::Nothing };
        let Some((handler, len)) = Frame::decode_plain(header) else { return Plain::Other(header) };
        let pairs = len.div_ceil(2);
        let Some(words) = words.get(1..=pairs) else { return Plain::Other(header) };
        if args.refill(len, words.iter().map(|word| word.load(Relaxed))).is_err() {
            return Plain::Other(header);
        }
        // A branch each: where the next frame is then hangs on nothing that has been loaded, if this one is the
        // last of its cell.
        if header & OPEN != 0 {
            rings.fetch_packed(reader);
            reader.stay(pairs);
        } else {
            if len > FEW_WORDS {
                if done >= LAGGING_LONGER {
                    rings.fetch_at(reader.read() + READ_CLOSE, Use::Read);
                }
            } else if done >= LAGGING {
                rings.fetch_ahead(reader.read(), Use::Read);
            }
            reader.leave();
        }
        Plain::Taken(handler)
    }

    /// Takes the request with this header if it is Medium, lies in one cell and permits no reply: its handler and
    /// payload. Its cell is the writer's again only after `publish`.
    #[inline(always)]
    pub(crate) fn take_small(&mut self, header: u64, args: &mut Words, done: usize) -> Option<(u8, Payload<'_>)> {
        let (handler, count, len) = Frame::decode_small(header)?;
        let (pairs, all) = (count.div_ceil(2), count.div_ceil(2) + len.div_ceil(8));
        let words = self.reader.first(&self.rings.cells).get(1..=all)?;
        args.refill(count, words[..pairs].iter().map(|word| word.load(Relaxed))).ok()?;
        if header & OPEN != 0 {
            self.rings.fetch_packed(&self.reader);
            self.reader.stay(all);
        } else {
            if done >= LAGGING_LONGER {
                self.rings.fetch_at(self.reader.read() + READ_CLOSE, Use::Read);
            }
            self.reader.leave();
        }
        let payload = if len == 0 { Payload::EMPTY } else { Payload::shared(words, 8 * pairs, len) };
        Some((handler, payload))
    }

    /// Takes the request with this header if it is Short, lies in one cell and permits a reply: its handler and
    /// the granules set aside for the reply. Its cell is the writer's again only after `publish`.
    #[inline(always)]
    pub(crate) fn take_trip(&mut self, header: u64, args: &mut Words, ahead: bool) -> Option<(u8, u64)> {
        let (handler, len, granules) = Frame::decode_trip(header)?;
        if granules > self.most_reply {
            return None;
        }
        let pairs = len.div_ceil(2);
        let words = self.reader.first(&self.rings.cells).get(1..=pairs)?;
        args.refill(len, words.iter().map(|word| word.load(Relaxed))).ok()?;
        if ahead {
            self.rings.fetch_ahead(self.reader.read(), Use::Read);
        }
        self.reader.step(header, pairs);
        Some((handler, granules))
    }

    /// Delivers the request with this header if it lies in one cell. Its cell is the writer's again only after
    /// `publish`.
    #[inline(always)]
    pub(crate) fn take(&mut self, header: u64, ahead: bool, deliver: impl Deliver) -> Result<Taken, Broken> {
        if ahead {
            self.rings.fetch_ahead(self.reader.read(), Use::Read);
        }
        let Some(frame) = Frame::decode(header) else {
            return if self.reader.step_out(header) { Ok(Taken::End) } else { Err(Broken) };
        };
        if frame.reply.is_some_and(|granules| granules > self.most_reply) {
            return Err(Broken);
        }
        if !frame.one_cell() {
            return Ok(Taken::Large(frame));
        }
        let first = self.reader.first(&self.rings.cells);
        self.reader.step(header, frame.small_words());
        deliver_small(first, frame, deliver)?;
        Ok(Taken::Small)
    }

    /// Delivers the request that `take` found to be large.
    #[inline(never)]
    pub(crate) fn take_large(
        &mut self,
        frame: Frame,
        segment: &Segment<Unshared>,
        mut deliver: impl Deliver,
    ) -> Result<(), Broken> {
        let large = read_large(&self.rings, &self.reader, self.position, &frame, segment, self.most)?;
        self.reader.advance(frame.cells());
        self.position = large.next;
        deliver(frame, &large.args, large.payload);
        Ok(())
    }

    /// Bytes of the byte ring read so far.
    pub(crate) fn byte_position(&self) -> u64 {
        self.position.bytes()
    }

    /// Whether the writer is more than `cells` cells ahead, or cannot be. Looks at no cell that is nearer.
    pub(crate) fn is_far_behind(&self, cells: u64) -> bool {
        self.rings.cells.len() as u64 <= 2 * cells || self.reader.is_written(&self.rings.cells, cells)
    }

    /// Whether so many cells have been read that the writer should learn of it.
    #[inline]
    pub(crate) fn due(&self) -> bool {
        self.reader.unpublished() >= self.batch
    }

    /// Whether anything read has not been given back.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.reader.unpublished() != 0
    }

    /// Gives everything read back to the writer.
    #[inline]
    pub(crate) fn publish(&mut self) {
        give_back(&self.back[back::BYTES], self.position.bytes());
        self.reader.publish(&self.back[back::CELLS]);
    }
}

/// The answerer's end of the reply lane.
#[derive(Debug)]
pub(crate) struct ReplyOut {
    rings: LaneRings,
    back: View<AtomicU64>,
    writer: Writer,
    position: Position,
    bare: [u64; 2],
    /// Zero if the asker takes no more replies, or this is not the process that joined.
    open: View<AtomicU64>,
}

impl ReplyOut {
    /// Words of cells written so far.
    pub(crate) fn written(&self) -> u64 {
        self.writer.written()
    }

    /// Whether the asker takes no more replies, or none from this process.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        // Relaxed: only the endpoint writes it, and a fork.
        self.open[0].load(Relaxed) == 0
    }

    /// Sends a Short or Long reply; its room was set aside by the asker.
    #[inline]
    pub(crate) fn send(&mut self, frame: &Frame, args: &Words, placed: Option<(u64, u64)>) {
        self.writer.assume_room(&self.rings.cells);
        write(&mut self.writer, &self.rings.cells, frame, args, placed);
    }

    /// Claims the place of a Medium reply's payload: where it starts, and the position after it.
    #[inline]
    pub(crate) fn place(&self, len: usize) -> (usize, Position) {
        self.position.place(len, self.rings.capacity())
    }

    /// Copies payload bytes to a place that `place` returned.
    #[inline]
    pub(crate) fn fill(&self, start: usize, bytes: &[u8]) {
        self.rings.bytes.copy_in(start, bytes);
    }

    /// Sends a Medium reply whose payload has been copied up to `next`.
    #[inline]
    pub(crate) fn send_filled(&mut self, frame: &Frame, args: &Words, next: Position) {
        self.position = next;
        self.send(frame, args, None);
    }

    /// Gives back, without a reply, what the asker had set aside for one of `granules` granules.
    #[inline]
    pub(crate) fn bare(&mut self, granules: u64) {
        self.bare[0] += u64::from(REPLY_CELLS);
        self.bare[1] += granules * GRANULE as u64;
        give_back(&self.back[back::BARE_CELLS], self.bare[0]);
        give_back(&self.back[back::BARE_BYTES], self.bare[1]);
    }
}
