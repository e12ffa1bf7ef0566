//! Messages as streams of chunks: cutting what goes out, putting together what comes in.
//!
//! A message is its headers and its body. It begins with a new chunk; a chunk is a VELO packet or a ring slot, so
//! a message of S bytes takes ceil((S + 20) / 64) packets or ceil((S + 20) / 4088) slots. Chunks of a connection
//! arrive in order.

use super::header::{HEADER_BYTES, Header, HeaderError};
use thiserror::Error;

/// Buffers that go round, so that messages allocate only until as many are there as are ever under way.
#[derive(Debug, Default)]
pub(super) struct Pool {
    spare: Vec<Vec<u8>>,
}

/// Capacity beyond which a buffer is not kept: few messages are so large, and all buffers would grow to it.
const LARGEST_KEPT: usize = 64 << 10;

impl Pool {
    /// An empty buffer.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Gives a buffer back.
    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        if (1..=LARGEST_KEPT).contains(&buffer.capacity()) {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

/// A message being sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    header: [u8; HEADER_BYTES],
    body: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    /// A message of which nothing has been sent.
    pub(super) fn new(header: Header, body: Vec<u8>) -> Self {
        Self { header: header.encode(), body, sent: 0 }
    }

    /// Copies the next chunk, as much as fits; returns its length.
    pub(super) fn chunk(&self, out: &mut [u8]) -> usize {
        let head = self.header.get(self.sent..).unwrap_or(&[]);
        let taken = head.len().min(out.len());
        let (first, rest) = out.split_at_mut(taken);
        first.copy_from_slice(&head[..taken]);
        let body = &self.body[(self.sent + taken).saturating_sub(HEADER_BYTES).min(self.body.len())..];
        let more = body.len().min(rest.len());
        rest[..more].copy_from_slice(&body[..more]);
        taken + more
    }

    /// Takes note that a chunk has been sent; returns whether it was the last.
    pub(super) fn advance(&mut self, bytes: usize) -> bool {
        self.sent += bytes;
        self.left() == 0
    }

    /// The header and the length of the body, if nothing has been sent.
    pub(super) fn unsent(&self) -> Option<(Header, usize)> {
        let header = (self.sent == 0).then(|| Header::decode(&self.header).ok()).flatten()?;
        Some((header, self.body.len()))
    }

    /// Bytes that have not been sent, headers included.
    pub(super) fn left(&self) -> usize {
        HEADER_BYTES + self.body.len() - self.sent
    }

    /// The buffer, for the pool.
    pub(super) fn into_body(self) -> Vec<u8> {
        self.body
    }
}

/// A message that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Incoming {
    /// Its headers.
    pub(super) header: Header,
    /// What followed them.
    pub(super) body: Vec<u8>,
}

/// Why a chunk makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The headers are nonsense.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// A message is longer than any may be.
    #[error("a message of {body} bytes exceeds the limit of {limit}")]
    TooLong {
        /// Bytes announced.
        body: u32,
        /// Bytes allowed.
        limit: u32,
    },
    /// A chunk goes beyond its message.
    #[error("a chunk of {chunk} bytes, but the message lacks only {missing}")]
    TooMuch {
        /// Bytes of the chunk.
        chunk: usize,
        /// Bytes that the message lacks.
        missing: usize,
    },
}

/// Puts the messages of one connection together.
#[derive(Debug)]
pub(super) struct Assembler {
    limit: u32,
    header: Option<Header>,
    body: Vec<u8>,
}

impl Assembler {
    /// For messages of bodies up to `limit` bytes.
    pub(super) fn new(limit: u32) -> Self {
        Self { limit, header: None, body: Vec::new() }
    }

    /// Whether the next chunk begins a message.
    pub(super) fn between(&self) -> bool {
        self.header.is_none()
    }

    /// Takes a chunk; returns the message that it completes.
    ///
    /// # Errors
    /// [`StreamError`] if the peer sends nonsense; the connection is then of no more use.
    pub(super) fn feed(&mut self, mut chunk: &[u8], pool: &mut Pool) -> Result<Option<Incoming>, StreamError> {
        let header = match self.header {
            Some(header) => header,
            None => {
                let header = Header::decode(chunk)?;
                if header.body > self.limit {
                    return Err(StreamError::TooLong { body: header.body, limit: self.limit });
                }
                chunk = &chunk[HEADER_BYTES..];
                self.body = pool.take();
                header
            }
        };
        let missing = header.body as usize - self.body.len();
        if chunk.len() > missing {
            return Err(StreamError::TooMuch { chunk: chunk.len(), missing });
        }
        self.body.extend_from_slice(chunk);
        if chunk.len() < missing {
            self.header = Some(header);
            return Ok(None);
        }
        self.header = None;
        Ok(Some(Incoming { header, body: std::mem::take(&mut self.body) }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::{Envelope, Kind};
    use super::*;

    fn header(body: usize) -> Header {
        Header { kind: Kind::Eager, body: body as u32, envelope: Envelope { context: 1, tag: 2, source: 3 } }
    }

    /// Sends a message in chunks of `unit` bytes; returns what arrives and in how many chunks.
    fn carry(body: &[u8], unit: usize) -> (Incoming, usize) {
        let mut outgoing = Outgoing::new(header(body.len()), body.to_vec());
        let (mut assembler, mut pool) = (Assembler::new(u32::MAX), Pool::default());
        let mut buffer = vec![0; unit];
        for chunks in 1.. {
            let len = outgoing.chunk(&mut buffer);
            let last = outgoing.advance(len);
            let arrived = assembler.feed(&buffer[..len], &mut pool).unwrap();
            assert_eq!(arrived.is_some(), last);
            if let Some(incoming) = arrived {
                assert!(assembler.between());
                return (incoming, chunks);
            }
        }
        unreachable!("a message ends")
    }

    #[test]
    fn counts_of_packets_are_those_of_the_sheet() {
        for (size, packets) in
            [(0usize, 1), (32, 1), (44, 1), (45, 2), (64, 2), (128, 3), (256, 5), (512, 9), (8192, 129)]
        {
            let body: Vec<u8> = (0..size).map(|index| index as u8).collect();
            for (unit, chunks) in
                [(64, packets), (4088, (size + 20).div_ceil(4088)), (20, (size + 20).div_ceil(20))]
            {
                let (incoming, counted) = carry(&body, unit);
                assert_eq!((incoming.body, counted), (body.clone(), chunks), "{size} bytes in chunks of {unit}");
                assert_eq!(incoming.header, header(size));
            }
        }
    }

    #[test]
    fn nonsense_from_a_peer_is_an_error() {
        let mut pool = Pool::default();
        let mut feed = |limit, chunks: &[&[u8]]| {
            let mut assembler = Assembler::new(limit);
            chunks.iter().map(|chunk| assembler.feed(chunk, &mut pool)).last().unwrap().unwrap_err().to_string()
        };
        let start = header(100).encode();
        assert_eq!(feed(99, &[&start]), "a message of 100 bytes exceeds the limit of 99");
        let much = feed(100, &[&start, &[0; 60], &[0; 41]]);
        assert_eq!(much, "a chunk of 41 bytes, but the message lacks only 40");
        assert!(feed(100, &[&start[..5]]).contains("begins with 5 bytes"));
    }

    #[test]
    fn buffers_go_round() {
        let mut pool = Pool::default();
        let mut buffer = pool.take();
        buffer.extend([1; 100]);
        let place = buffer.as_ptr();
        pool.give(buffer);
        let again = pool.take();
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
        pool.give(Vec::with_capacity(LARGEST_KEPT + 1));
        assert_eq!(pool.take().capacity(), 0, "huge buffers are not kept");
    }
}
