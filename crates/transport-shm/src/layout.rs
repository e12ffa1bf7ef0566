//! Where everything lies in a job file: header, one block per endpoint, one row of contact words per endpoint, one
//! block per ordered pair, one auxiliary segment per endpoint, then the segments.
//!
//! Memory is a sparse file: pages exist once they are touched, by reading or writing. An endpoint looks at the
//! lanes of a pair only after one of the two has sent to the other, so pairs that never talk cost address space
//! only. For each ordered pair (asker, answerer) there is a line of give-backs and two lanes, each a ring of cells
//! and a ring of bytes; by default that is at most 648 KiB for up to 8 endpoints, 328 KiB up to 16, 168 KiB up to
//! 64, 48 KiB beyond.

use crate::config::JobConfig;
use crate::ring::{Cell, GRANULE};
use am_core::transport::DEFAULT_REPLY;

/// Changes whenever the meaning of any byte of a job file changes; programs of different versions refuse each
/// other.
pub(crate) const VERSION: u64 = 6;
/// The first word of a job file.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"amshmjob");
/// Space for the header, in bytes.
const HEADER: usize = 4096;
/// Words of the header, in order.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 1;
    pub(crate) const RANKS: usize = 2;
    pub(crate) const ENDPOINTS: usize = 3;
    pub(crate) const REQUEST_CELLS: usize = 4;
    pub(crate) const REQUEST_BYTES: usize = 5;
    pub(crate) const REPLY_CELLS: usize = 6;
    pub(crate) const REPLY_BYTES: usize = 7;
    /// [`Layout::digest`](super::Layout::digest) of the sizes, to tell a damaged header.
    pub(crate) const DIGEST: usize = 8;
    /// The pid namespace of the first endpoint that joined; zero as long as none is known.
    pub(crate) const PID_NAMESPACE: usize = 9;
    /// Counts changes of any endpoint's status; on a line of its own.
    pub(crate) const CHANGES: usize = 16;
    /// Number of words that a view of the header needs.
    pub(crate) const WORDS: usize = 32;
}

/// Words of an endpoint's block, in order.
pub(crate) mod endpoint {
    pub(crate) const STATUS: usize = 0;
    pub(crate) const PID: usize = 1;
    pub(crate) const STARTED: usize = 2;
    pub(crate) const SEGMENT: usize = 3;
    pub(crate) const NEEDS_FENCE: usize = 4;
    /// Counts what the endpoint has to look for outside its lanes: statuses that changed, peers that sent for the
    /// first time. On a line of its own.
    pub(crate) const NEWS: usize = 8;
    /// Number of words that a view of the block needs.
    pub(crate) const WORDS: usize = 9;
    /// Byte offset of the word that the endpoint parks on, on a line of its own.
    pub(crate) const PARK: usize = 128;
    /// Size of the block in bytes.
    pub(crate) const BYTES: usize = 256;
}

/// Words of the give-back line of a pair, written by the answerer, read by the asker.
pub(crate) mod back {
    /// How far the request cells have been read, in words.
    pub(crate) const CELLS: usize = 0;
    /// Request payload bytes done with.
    pub(crate) const BYTES: usize = 1;
    /// Reply cells that were set aside and not used.
    pub(crate) const BARE_CELLS: usize = 2;
    /// Reply payload bytes that were set aside and not used.
    pub(crate) const BARE_BYTES: usize = 3;
    /// Number of words that a view of the line needs.
    pub(crate) const WORDS: usize = 8;
    /// Space for it in bytes: two lines, because processors fetch lines in pairs.
    pub(super) const SPACE: usize = 128;
}

/// Space within which the beginnings of pairs are staggered: if all began at the same place of a page, the cells
/// that a poll looks at would all compete for the same few sets of the first-level cache.
const STAGGER: usize = 4096;

/// Size of an endpoint's auxiliary segment in bytes.
pub(crate) const AUXILIARY: usize = 1 << 20;

/// Distance between the segments of two ranks in the file: the largest segment, 1 TiB.
pub(crate) const SEGMENT_STRIDE: u64 = 1 << 40;

/// Bytes of a large page, at which segments begin; smaller ones do not ask for any.
pub(crate) const LARGE_PAGE: usize = 1 << 21;

/// The sizes of a job, checked, and the offsets that follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) ranks: u32,
    pub(crate) endpoints: u16,
    pub(crate) request_cells: usize,
    pub(crate) request_bytes: usize,
    pub(crate) reply_cells: usize,
    pub(crate) reply_bytes: usize,
}

/// Offsets of the parts of a pair, in bytes from the start of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) back: usize,
    pub(crate) request_cells: usize,
    pub(crate) reply_cells: usize,
    pub(crate) request_bytes: usize,
    pub(crate) reply_bytes: usize,
}

impl Layout {
    /// The layout of a checked configuration.
    pub(crate) fn new(config: &JobConfig) -> Self {
        let sizes = config.sizes();
        Self {
            ranks: config.ranks,
            endpoints: config.endpoints,
            request_cells: sizes.request_cells,
            request_bytes: sizes.request_bytes,
            reply_cells: sizes.reply_cells,
            reply_bytes: sizes.reply_bytes,
        }
    }

    /// One number that stands for all sizes (FNV-1a over them).
    pub(crate) fn digest(&self) -> u64 {
        let rings = [self.request_cells, self.request_bytes, self.reply_cells, self.reply_bytes];
        let sizes =
            [u64::from(self.ranks), u64::from(self.endpoints)].into_iter().chain(rings.map(|size| size as u64));
        let bytes = sizes.flat_map(u64::to_le_bytes);
        bytes
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    }

    pub(crate) fn peers(&self) -> usize {
        self.ranks as usize * usize::from(self.endpoints)
    }

    /// Byte offset of an endpoint's block.
    pub(crate) fn endpoint(&self, peer: usize) -> usize {
        HEADER + peer * endpoint::BYTES
    }

    /// Bytes of an endpoint's contact words, one per peer, padded so that no two endpoints share a line.
    fn row_bytes(&self) -> usize {
        (self.peers() * 8).next_multiple_of(64)
    }

    /// Byte offset of an endpoint's contact words. Word `i` is not zero once peer `i` has sent to the endpoint;
    /// only peer `i` writes it.
    pub(crate) fn contacts(&self, peer: usize) -> usize {
        HEADER + self.peers() * endpoint::BYTES + peer * self.row_bytes()
    }

    fn pairs(&self) -> usize {
        self.contacts(self.peers()).next_multiple_of(4096)
    }

    fn pair_bytes(&self) -> usize {
        let cells = (self.request_cells + self.reply_cells) * size_of::<Cell>();
        (STAGGER + back::SPACE + cells + self.request_bytes + self.reply_bytes).next_multiple_of(4096)
    }

    /// Offsets for requests of `asker` to `answerer`, and the replies to them.
    pub(crate) fn pair(&self, asker: usize, answerer: usize) -> Pair {
        let stagger = (asker + answerer) * back::SPACE % STAGGER;
        let start = self.pairs() + (asker * self.peers() + answerer) * self.pair_bytes() + stagger;
        let request_cells = start + back::SPACE;
        let reply_cells = request_cells + self.request_cells * size_of::<Cell>();
        let request_bytes = reply_cells + self.reply_cells * size_of::<Cell>();
        let reply_bytes = request_bytes + self.request_bytes;
        Pair { back: start, request_cells, reply_cells, request_bytes, reply_bytes }
    }

    /// Byte offset of an endpoint's auxiliary segment.
    pub(crate) fn auxiliary(&self, peer: usize) -> usize {
        self.pairs() + self.peers() * self.peers() * self.pair_bytes() + peer * AUXILIARY
    }

    /// Size of everything but the segments, in bytes.
    pub(crate) fn control_bytes(&self) -> usize {
        self.auxiliary(self.peers())
    }

    /// Byte offset of a rank's segment.
    pub(crate) fn segment(&self, rank: u32) -> u64 {
        let start = (self.control_bytes() as u64).next_multiple_of(LARGE_PAGE as u64);
        start + u64::from(rank) * SEGMENT_STRIDE
    }

    /// Size of the whole sparse file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.segment(self.ranks)
    }

    /// Largest Medium request payload: a quarter of the byte ring, so that a few are under way at once.
    pub(crate) fn medium_request(&self) -> usize {
        (self.request_bytes / 4).clamp(GRANULE, 1 << 16)
    }

    /// Largest Medium reply payload.
    pub(crate) fn medium_reply(&self) -> usize {
        (self.reply_bytes / 4).clamp(GRANULE, 1 << 16)
    }

    /// The reply bound of handlers that declare none.
    pub(crate) fn default_reply(&self) -> usize {
        self.medium_reply().min((self.reply_bytes / 8).clamp(GRANULE, DEFAULT_REPLY))
    }

    /// Reply payload bytes that can be set aside at once: all but one largest piece, which may be lost to the
    /// ring's end.
    pub(crate) fn reply_budget(&self) -> usize {
        self.reply_bytes - self.medium_reply()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_all_is_aligned() {
        for ranks in [1, 2, 3, 64] {
            let layout = Layout::new(&JobConfig::new(ranks));
            let mut end = layout.contacts(layout.peers());
            assert!(layout.contacts(0) >= layout.endpoint(layout.peers()));
            assert!((0..ranks as usize).all(|peer| layout.contacts(peer).is_multiple_of(64)));
            for asker in 0..layout.peers() {
                for answerer in 0..layout.peers() {
                    let pair = layout.pair(asker, answerer);
                    assert!(pair.back >= end);
                    let parts = [pair.request_cells, pair.reply_cells, pair.request_bytes, pair.reply_bytes];
                    assert!(parts.is_sorted() && parts.iter().all(|offset| offset % 64 == 0));
                    end = pair.reply_bytes + layout.reply_bytes;
                }
            }
            assert!(end <= layout.auxiliary(0) && layout.auxiliary(0).is_multiple_of(4096));
            assert_eq!(layout.auxiliary(ranks as usize), layout.control_bytes());
            assert!(layout.control_bytes() as u64 <= layout.segment(0));
        }
    }

    #[test]
    fn the_documented_sizes_hold() {
        let pair = |ranks| Layout::new(&JobConfig::new(ranks)).pair_bytes() >> 10;
        assert_eq!([8, 16, 64, 65].map(pair), [648, 328, 168, 48]);
    }
}
