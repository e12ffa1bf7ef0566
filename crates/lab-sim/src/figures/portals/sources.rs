//! The document of Portals, and what groups of lines have in common. It has plots and words and no tables: so
//! there is no published number to compare with.

use crate::figures::line::{Class, Group, Source, Tolerance};

const fn paper(place: &'static str) -> Source {
    Source { document: "Porting GASNet to Portals (CUG 2009)", place }
}

const MODEL: Group = Group {
    class: Class::Model,
    source: Source { document: "this project", place: "portals_sim::model, the table of totals" },
    sentence: "the sum of assumed stages: 10 us for a blocking put, 13 us for a round trip of Medium messages",
    tolerance: Tolerance::Part(0.1),
    rule: "10 %: the stages are assumed",
};

const CLAIM: Group = Group {
    class: Class::Claim,
    source: paper("plot of the latency of puts"),
    sentence: "a put over Portals is about two times as fast as over the conduit on MPI",
    tolerance: Tolerance::Absolute(0.0),
    rule: "about: read as at least 1.8 times, for a put of one byte",
};

pub(super) static STAGES: Group = MODEL;

pub(super) static TWICE: Group = CLAIM;

pub(super) static AHEAD: Group = Group {
    sentence: "a put is faster than a raw MPI ping with its acknowledgement, and than the conduit on MPI",
    rule: "read as: at every size of the plot",
    ..CLAIM
};

pub(super) static BESIDE_MPI: Group = Group {
    sentence: "a put is faster than a raw MPI ping with its acknowledgement; MPI simulated as two-sided messages \
               over the conduit",
    rule: "read as: at every size of the plot",
    ..CLAIM
};

/// The paper's claims once more, beside an MPI that is simulated; read before it had run.
pub(super) static PUT_TWO_COPIES: Group = Group {
    sentence: "a put is faster than a raw MPI ping with its acknowledgement, and than the conduit on MPI; MPI simulated \
               on the interface, with two copies",
    rule: "read as: at every size of the plot",
    ..CLAIM
};

pub(super) static MEDIUM_TWO_COPIES: Group = Group {
    sentence: "round trips of Medium messages are faster than over the conduit on MPI; MPI simulated on the interface, \
               with two copies",
    ..MEDIUM
};

/// No claim of the paper is judged by it: how a put over messages is put together was settled when the first
/// result was known.
pub(super) static OVER_MESSAGES: Group = Group {
    source: Source { document: "this project", place: "docs/reproduction.md, Portals" },
    sentence: "a put over two-sided messages is a message that is answered, with the conduit's overhead at either \
               end; the paper's about two times is of MPI",
    rule: "the bar of the paper's sentence; what a put over messages is was settled after a first result",
    ..MODEL_BAR
};

const MODEL_BAR: Group = Group { tolerance: Tolerance::Absolute(0.0), ..MODEL };

pub(super) static LATENCY_AXIS: Group = Group {
    sentence: "the axis of the plot ends at 30 us",
    rule: "read as: no put of the plot's sizes takes longer",
    ..CLAIM
};

pub(super) static FLOOD: Group = Group {
    source: paper("plot of the bandwidth of puts"),
    sentence: "the bandwidth meets or exceeds that of a raw MPI flood",
    rule: "read as: at every size of the plot",
    ..CLAIM
};

pub(super) static BANDWIDTH_AXIS: Group = Group {
    source: paper("plot of the bandwidth of puts"),
    sentence: "the axis of the plot ends at 1800 MB/s",
    rule: "read as: no flood is faster",
    ..CLAIM
};

pub(super) static LARGE: Group = Group {
    sentence: "1650 S / (S + n) MB/s with n = 4096 bytes, assumed",
    tolerance: Tolerance::Part(0.03),
    rule: "3 %, as of other saturations",
    ..MODEL
};

pub(super) static MEDIUM: Group = Group {
    source: paper("plot of active messages"),
    sentence: "round trips of Medium messages are faster than over the conduit on MPI",
    rule: "read as: at every size of the plot",
    ..CLAIM
};

pub(super) static CREDITS: Group = Group {
    source: Source { document: "this project", place: "docs/reproduction.md, Portals" },
    sentence: "lent credits need a quarter of the memory of static ones and are ahead of them where senders are few",
    tolerance: Tolerance::Absolute(0.0),
    rule: "this project's bars",
    ..MODEL
};
