//! The documents of EXTOLL, and what groups of lines have in common.

use crate::figures::line::{Class, Group, Source, Tolerance};

const REPORT: &str = "report on pscom's EXTOLL plugins (DEEP D4.3)";
const PAPER: &str = "paper on the EXTOLL conduit for GASNet";

const fn report(place: &'static str) -> Source {
    Source { document: REPORT, place }
}

pub(super) const fn paper(place: &'static str) -> Source {
    Source { document: PAPER, place }
}

const fn ours(place: &'static str) -> Source {
    Source { document: "this project", place }
}

/// An inequality has no tolerance.
pub(super) const NONE: Tolerance = Tolerance::Absolute(0.0);

/// Table 1, whether or not parameters are fitted to a value.
pub(super) static TABLE: Group = Group {
    class: Class::Published,
    source: report("table 1, PingPong over VELO and RMA"),
    sentence: "the latency of messages of 32 to 512 bytes",
    tolerance: Tolerance::Absolute(0.05),
    rule: "values are rounded to 0.1 us; what is off by more is listed as not reproduced",
};

const fn copy(group: &Group) -> Group {
    Group {
        class: group.class,
        source: group.source,
        sentence: group.sentence,
        tolerance: group.tolerance,
        rule: group.rule,
    }
}

pub(super) static RMA_SMALL: Group = Group {
    sentence: "messages of up to 32 bytes take 4.3 us over RMA",
    source: report("text on the RMA plugin's latency"),
    ..copy(&TABLE)
};

pub(super) static LATENCY_MODEL: Group = Group {
    class: Class::Model,
    source: ours("extoll_sim::model::fit"),
    sentence: "the latency that the fit says of sizes whose value was not published",
    tolerance: Tolerance::Part(0.02),
    rule: "2 %: the machine is to keep to its formula",
};

pub(super) static CROSSOVER: Group = Group {
    class: Class::Claim,
    source: report("text on the choice of a plugin"),
    sentence: "above 512 bytes RMA is ahead of VELO, in latency and in bidirectional bandwidth",
    tolerance: NONE,
    rule: "read as: at every multiple of 64 bytes from 576 bytes to 4 KB",
};

pub(super) static SATURATION: Group = Group {
    class: Class::Published,
    source: report("text on SendRecv at saturation"),
    sentence: "160 MB/s over VELO and 1760 MB/s over RMA, both directions together",
    tolerance: Tolerance::Part(0.03),
    rule: "3 %: two digits and three are given",
};

pub(super) static SENDRECV_MODEL: Group = Group {
    class: Class::Model,
    source: ours("docs/reproduction.md, EXTOLL"),
    sentence: "an exchange of n packets takes n times o_s + o_r, and at most a latency more",
    tolerance: NONE,
    rule: "bounds of the model",
};

pub(super) static WINDOW_MODEL: Group = Group {
    class: Class::Model,
    source: ours("docs/reproduction.md, EXTOLL"),
    sentence: "a round trip of 15 us (assumed) for each window of slots of 4088 bytes, at most the link's 880 MB/s",
    tolerance: Tolerance::Part(0.03),
    rule: "3 %, as of saturation",
};

pub(super) static WINDOW_MORE: Group = Group {
    class: Class::Claim,
    source: report("text on the number and size of buffers"),
    sentence: "more or larger buffers are only slightly better",
    tolerance: NONE,
    rule: "read as: by at most 5 %",
};

pub(super) static WINDOW_FEWER: Group = Group {
    class: Class::Claim,
    source: report("text on the number and size of buffers"),
    sentence: "fewer buffers are significantly worse",
    tolerance: NONE,
    rule: "read as: there are fewer that lose 10 %",
};

pub(super) static PING_PONG_MARGINAL: Group = Group {
    class: Class::Claim,
    source: paper("figure 9, ping-pong"),
    sentence: "the conduit is only marginally behind raw VELO and RMA",
    tolerance: NONE,
    rule: "read as: at most 10 % for what fits a packet, at most 20 % in the mean over all sizes",
};

pub(super) static PING_PONG_NOTABLE: Group = Group {
    class: Class::Claim,
    source: paper("figure 9, ping-pong"),
    sentence: "MPI is notably behind both",
    tolerance: NONE,
    rule: "MPI is taken to be pscom's two-sided messages; read as: at least 25 % for what fits a packet",
};

pub(super) static UPDATES_MARGINAL: Group = Group {
    class: Class::Claim,
    source: paper("figures 12 to 14, RandomAccess"),
    sentence: "RandomAccess on the conduit is only marginally behind raw VELO and RMA",
    tolerance: NONE,
    rule: "read as: at most 10 % at every number of processes",
};

pub(super) static UPDATES_NOTABLE: Group = Group {
    class: Class::Claim,
    source: paper("figures 12 to 14, RandomAccess"),
    sentence: "MPI is notably behind both",
    tolerance: NONE,
    rule: "MPI is taken to be pscom's two-sided messages; read as: at least 20 % at every number of processes",
};

pub(super) static IMPLEMENTATIONS: Group = Group {
    class: Class::Claim,
    source: paper("figure 3, RandomAccess in UPC"),
    sentence: "the second implementation of active messages is better than the first",
    tolerance: NONE,
    rule: "read as: better at every number of processes; what the first one did is not said, and here it is this project's guess",
};

pub(super) static CROSSBAR: Group = Group {
    class: Class::Model,
    source: ours("docs/reproduction.md, EXTOLL"),
    sentence: "on a crossbar twice as many processes make twice as many updates: there is no topology that could make a jump",
    tolerance: Tolerance::Part(0.1),
    rule: "10 %: what is left at the beginning and the end of a run",
};

pub(super) static UDP_TWICE: Group = Group {
    class: Class::Claim,
    source: paper("figures 1 and 8, the conduit over UDP"),
    sentence: "a conduit over UDP can cost up to 100 % over raw UDP",
    tolerance: NONE,
    rule: "read as: never more, by ping-pongs and floods of 8 B to 1 KB; what calls into the kernel cost is assumed",
};

pub(super) static UDP_MODEL: Group = Group {
    class: Class::Model,
    source: ours("docs/reproduction.md, EXTOLL"),
    sentence: "each request is answered: both calls for each message, beside the slower one of them",
    tolerance: Tolerance::Part(0.1),
    rule: "10 %: what is left at the beginning and the end of a run, and headers",
};
