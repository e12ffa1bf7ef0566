//! The document of SCI, and what groups of lines have in common.

use crate::figures::line::{Class, Group, Source, Tolerance};

const fn paper(place: &'static str) -> Source {
    Source { document: "paper on the GASNet core API on SCI", place }
}

const MODEL: Group = Group {
    class: Class::Model,
    source: Source { document: "this project", place: "sci_sim::model, the table of totals" },
    sentence: "what the parameter table gives: 2.70 us and 0.23 us for each 64 bytes begun, DMA at 300 MB/s",
    tolerance: Tolerance::Part(0.02),
    rule: "2 %: the machine is to keep to its formula",
};

pub(super) static STORES: Group = Group {
    class: Class::Published,
    source: paper("text on raw transfers"),
    sentence: "80 bytes stored take 3.16 us",
    tolerance: Tolerance::Absolute(0.005),
    rule: "the value is rounded to 0.01 us",
};

pub(super) static FORMULA: Group = MODEL;

pub(super) static CROSSOVER: Group = Group {
    sentence: "DMA is as fast as stores from the crossover on that its parameter says; the paper's is not known",
    tolerance: Tolerance::Absolute(64.0),
    rule: "a line of 64 bytes, which sizes are looked at by",
    ..MODEL
};

pub(super) static READS: Group = Group {
    class: Class::Claim,
    source: paper("text on the choice of writes"),
    sentence: "remote writes are about ten times as fast as remote reads, of a size that is not told",
    tolerance: Tolerance::Part(0.1),
    rule: "about: 10 %; read as transfers of 512 bytes, which are chosen so: it is 2 times at 64 bytes, and more with more",
};

pub(super) static SHORT: Group = Group {
    class: Class::Published,
    source: paper("text on Short messages"),
    sentence: "a Short message takes 5 us, one-way since two raw transfers take longer",
    tolerance: Tolerance::Absolute(0.05),
    rule: "5.0: the value is taken as rounded to 0.1 us",
};

pub(super) static BEHIND: Group = Group {
    class: Class::Derived,
    sentence: "5 us of a Short message less 3.16 us of its two lines",
    ..copy(&SHORT)
};

pub(super) static ON_MPI: Group = Group {
    class: Class::Published,
    source: paper("text on the conduit over MPI"),
    sentence: "a Short message takes about 15 us on MPI; here what MPI adds is a parameter, so the line shows arithmetic",
    tolerance: Tolerance::Part(0.1),
    rule: "about: 10 %; the value is in the training set and one parameter is computed from it alone: the line cannot fail",
};

pub(super) static TIMES: Group = Group {
    class: Class::Derived,
    sentence: "about 15 us on MPI divided by 5 us; the paper does not say \"three times\"",
    ..copy(&ON_MPI)
};

pub(super) static METHODS: Group = Group {
    class: Class::Claim,
    source: paper("text on the two ways to send a Medium message"),
    sentence: "two transfers without a copy are better than one copy and one transfer",
    tolerance: Tolerance::Absolute(0.0),
    rule: "read as: earlier at every size that is measured",
};

pub(super) static SOFTWARE: Group = Group {
    sentence: "16 lines and the software of a Short message; copies of 0.3 us and S / 400 MB/s, all assumed",
    ..MODEL
};

pub(super) static TUNED: Group = Group {
    source: Source { document: "this project", place: "sci_sim::conduit::ConduitConfig::tuned" },
    sentence: "more and larger slots spread a message's software over more bytes, and checked flags cost little",
    tolerance: Tolerance::Absolute(0.0),
    rule: "this project's bars",
    ..MODEL
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
