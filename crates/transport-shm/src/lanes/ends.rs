//! The lane ends towards a peer, as they are when a job is joined.

use super::*;

/// Both ends of an endpoint as asker towards one peer, while the word is not zero.
pub(crate) fn asker(
    mapping: &Arc<Mapping>,
    layout: &Layout,
    me: usize,
    peer: usize,
    open: View<AtomicU64>,
) -> (RequestOut, ReplyIn) {
    let pair = layout.pair(me, peer);
    let requests = LaneRings::new(
        mapping,
        (pair.request_cells, layout.request_cells),
        (pair.request_bytes, layout.request_bytes),
    );
    let replies =
        LaneRings::new(mapping, (pair.reply_cells, layout.reply_cells), (pair.reply_bytes, layout.reply_bytes));
    let out = RequestOut {
        writer: Writer::new(&requests.cells),
        rings: requests,
        back: View::new(mapping, pair.back, back::WORDS),
        position: Position::default(),
        bytes_done: 0,
        reply_cells: Account::new(layout.reply_cells as u32),
        reply_bytes: Account::new(layout.reply_budget() as u32),
        bare_seen: [0; 2],
        open,
        starved: true,
        ways: Ways::new(),
    };
    let inward = ReplyIn {
        reader: Reader::new(&replies.cells),
        rings: replies,
        position: Position::default(),
        most: layout.medium_reply(),
    };
    (out, inward)
}

/// Both ends of an endpoint as answerer towards one peer, while the word is not zero.
pub(crate) fn answerer(
    mapping: &Arc<Mapping>,
    layout: &Layout,
    me: usize,
    peer: usize,
    open: View<AtomicU64>,
) -> (RequestIn, ReplyOut) {
    let pair = layout.pair(peer, me);
    let requests = LaneRings::new(
        mapping,
        (pair.request_cells, layout.request_cells),
        (pair.request_bytes, layout.request_bytes),
    );
    let replies =
        LaneRings::new(mapping, (pair.reply_cells, layout.reply_cells), (pair.reply_bytes, layout.reply_bytes));
    let inward = RequestIn {
        reader: Reader::new(&requests.cells),
        batch: told_after(&requests.cells),
        rings: requests,
        back: View::new(mapping, pair.back, back::WORDS),
        position: Position::default(),
        most: layout.medium_request(),
        most_reply: granules(layout.medium_reply()),
    };
    let out = ReplyOut {
        writer: Writer::new(&replies.cells),
        rings: replies,
        back: View::new(mapping, pair.back, back::WORDS),
        position: Position::default(),
        bare: [0; 2],
        open,
    };
    (inward, out)
}
