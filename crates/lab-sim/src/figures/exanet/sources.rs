//! The documents of ExaNet, and what groups of lines have in common.

use crate::figures::line::{Class, Group, Source, Tolerance};

/// The document on the machine.
pub(super) const PROTOTYPE: &str = "The ExaNeSt Prototype (Ploumidis et al.)";

/// The document on two-sided messages, of which only the abstract is at hand.
pub(super) const MPI: &str = "Design and Implementation of a Write Based version of the Exanet MPI";

const NONE: Tolerance = Tolerance::Absolute(0.0);

const CLAIM: Group = Group {
    class: Class::Claim,
    source: Source { document: MPI, place: "abstract" },
    sentence: "the write-based protocols have up to 50 % lower latency than the read-based one",
    tolerance: NONE,
    rule: "of long messages to a posted receive, from the eager limit on: the largest saving is from 40 to 60 %",
};

const MODEL: Group = Group {
    class: Class::Model,
    source: Source { document: "this project", place: "exanet_sim::mpi, what a call costs" },
    sentence: "2c + r + D until the receiver is done, 3c + r + D until the sender of a read is: c a small message of 1.293 us, r \
               the set-up of a write of 0.6 us (assumed), D the bytes at 1025 MB/s",
    tolerance: Tolerance::Absolute(0.6),
    rule: "0.6 us: the interface serves a read request without the library, and a FIN costs its receiver a packet more",
};

pub(super) static PUBLISHED: Group = Group {
    class: Class::Published,
    source: Source {
        document: PROTOTYPE,
        place: "abstract, and text on the latency and bandwidth of the network",
    },
    sentence: "latency of small MPI messages over one hop and five, the interface's part of it, the part of a link that is used",
    tolerance: Tolerance::Part(0.01),
    rule: "1 %: three or two digits are given",
};

pub(super) static BOUND: Group = Group {
    class: Class::Derived,
    source: Source { document: PROTOTYPE, place: "text on the links" },
    sentence: "links of 10 Gb/s carry 1250 MB/s",
    tolerance: NONE,
    rule: "a bound of physics",
};

pub(super) static SAVING: Group = CLAIM;

pub(super) static ANNOUNCED: Group = MODEL;

pub(super) static ADVERTISED: Group = Group {
    sentence: "r + D until the receiver is done whose receive has been advertised: r the set-up of a write of 0.6 us (assumed), D \
               the bytes at 1025 MB/s",
    tolerance: Tolerance::Absolute(0.1),
    rule: "0.1 us: nobody waits for a control message",
    ..MODEL
};

pub(super) static COUNTED: Group = Group {
    source: Source { document: "this project", place: "exanet_sim::mpi::Protocol, the table of control messages" },
    sentence: "control messages of a long transfer: RTS, read request and ACK; RTS, CTS and FIN; RTR and FIN; RTR",
    tolerance: NONE,
    rule: "they are counted",
    ..MODEL
};

pub(super) static EAGER_BEFORE: Group = Group {
    sentence: "an eager message that meets an advertised receive costs a REVOKE and its answer, two small messages, before the fix",
    tolerance: Tolerance::Absolute(0.2),
    rule: "0.2 us: the library looks at two messages more, and waits while they travel",
    ..MODEL
};

pub(super) static EAGER_AFTER: Group = Group {
    sentence: "an eager message retires the advertisement by its number: it costs nothing",
    tolerance: Tolerance::Absolute(0.01),
    rule: "0.01 us: no message more",
    ..MODEL
};

pub(super) static BROADCAST: Group = Group {
    source: Source { document: PROTOTYPE, place: "text on collective operations" },
    sentence: "the latency of broadcasts grows with the number of ranks as is to be expected",
    tolerance: NONE,
    rule: "to be expected of a tree: a round for each doubling, which takes some time, and at most a small message over the machine's longest way",
    ..CLAIM
};

pub(super) static PROGRAMS: Group = Group {
    source: Source { document: "this project", place: "lab_sim::figures::exanet::programs" },
    sentence: "the programs compute what they must",
    tolerance: NONE,
    rule: "every value is looked at, the residual has shrunk, and a sum of known parts is right",
    ..MODEL
};
