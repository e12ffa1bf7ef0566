//! The fit: what the parameter table takes from published totals is computed here, from a declared training set
//! and nothing else. A test compares the table with it.

/// The published totals that the table is fitted to. Whatever else was published is held out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainingSet {
    /// \[P\] A small MPI message between neighbours, one way, in microseconds.
    pub one_hop_us: f64,
    /// \[P\] The same over five hops.
    pub five_hops_us: f64,
    /// \[P\] The part of the network interface and its user-space library in it, in microseconds.
    pub interface_us: f64,
    /// \[P\] The part of a link's bandwidth that large messages reach over one hop.
    pub utilisation: f64,
}

impl TrainingSet {
    /// Whether a published value is one of the set; one that is not is held out.
    pub fn has(&self, published: f64) -> bool {
        [self.one_hop_us, self.five_hops_us, self.interface_us, self.utilisation].contains(&published)
    }
}

/// The training set: "The ExaNeSt Prototype" (Ploumidis et al.), its abstract and text.
pub const TRAINING_SET: TrainingSet =
    TrainingSet { one_hop_us: 1.293, five_hops_us: 2.55, interface_us: 0.47, utilisation: 0.82 };

/// What is known or assumed beforehand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Given {
    /// \[P\] Bandwidth of a link in MB/s: 10 Gb/s.
    pub link_mb_s: f64,
    /// \[A\] Payload of a cell in bytes.
    pub cell_bytes: f64,
    /// \[P\] A control packet, in bytes.
    pub packet_bytes: f64,
    /// \[A\] From the call of a write between neighbours to its notification, without the time that its bytes
    /// take, in nanoseconds.
    pub setup_ns: f64,
    /// \[A\] What of that is not the engine's start: post, receive, notify, notice, in nanoseconds.
    pub other_setup_ns: f64,
}

/// What follows from both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// A hop in nanoseconds: from link to link.
    pub hop_ns: f64,
    /// Bytes of a link's time that a cell takes besides its payload.
    pub header_bytes: u32,
    /// The interface's part of a control packet in nanoseconds: library, packetizer, mailbox.
    pub interface_ns: f64,
    /// The MPI library's part of a small message, both sides, in nanoseconds.
    pub software_ns: f64,
    /// The start of the RDMA engine in nanoseconds.
    pub start_ns: f64,
}

/// Fits the parameters to the training set.
///
/// Hops differ by a hop's time alone, since packets are cut through. A link that carries nothing but full cells
/// spends the part `utilisation` of its time on payload. What is left of the latency after hop, wire and
/// interface is software, and what is left of the set-up of a write is the start of the engine.
pub fn fit(training: &TrainingSet, given: &Given) -> Fit {
    let hop_ns = (training.five_hops_us - training.one_hop_us) * 1e3 / 4.0;
    let header_bytes = (given.cell_bytes / training.utilisation - given.cell_bytes).round() as u32;
    let wire_ns = (given.packet_bytes + f64::from(header_bytes)) / given.link_mb_s * 1e3;
    let interface_ns = training.interface_us * 1e3;
    let software_ns = training.one_hop_us * 1e3 - interface_ns - hop_ns - wire_ns;
    let start_ns = given.setup_ns - given.other_setup_ns - hop_ns;
    Fit { hop_ns, header_bytes, interface_ns, software_ns, start_ns }
}
