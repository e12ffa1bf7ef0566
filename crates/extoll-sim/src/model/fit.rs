//! The fit: what the parameter tables take from measured totals is computed here, from a declared training set and
//! nothing else. A test compares the tables with it, so that nobody tunes them by hand.

/// The measurements that the tables are fitted to: those of the report on pscom's EXTOLL plugins, taken on the
/// DEEP evaluator. Whatever else was published is held out, VELO's latency at 128 and 256 bytes above all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainingSet {
    /// \[S\] Latency of 32 bytes over VELO, one packet, in microseconds.
    pub velo_32_us: f64,
    /// \[S\] The same of 64 bytes, two packets.
    pub velo_64_us: f64,
    /// \[S\] The same of 512 bytes, nine packets.
    pub velo_512_us: f64,
    /// \[S\] Throughput of VELO at saturation, both directions together, in MB/s; read at 8 KB.
    pub velo_mb_s: f64,
    /// \[S\] Latency of up to 32 bytes over RMA, in microseconds.
    pub rma_us: f64,
    /// \[S\] Throughput of RMA at saturation, both directions together, in MB/s.
    pub rma_mb_s: f64,
}

/// The training set.
pub const TRAINING_SET: TrainingSet = TrainingSet {
    velo_32_us: 2.8,
    velo_64_us: 3.5,
    velo_512_us: 6.7,
    velo_mb_s: 160.0,
    rma_us: 4.3,
    rma_mb_s: 1760.0,
};

impl TrainingSet {
    /// Names and units of the values, in the order of [`TrainingSet::values`].
    pub const NAMES: [(&'static str, &'static str); 6] = [
        ("VELO latency, 32 B", "us"),
        ("VELO latency, 64 B", "us"),
        ("VELO latency, 512 B", "us"),
        ("VELO SendRecv, saturation", "MB/s"),
        ("RMA latency, 32 B", "us"),
        ("RMA SendRecv, saturation", "MB/s"),
    ];

    /// The values.
    pub const fn values(&self) -> [f64; 6] {
        [self.velo_32_us, self.velo_64_us, self.velo_512_us, self.velo_mb_s, self.rma_us, self.rma_mb_s]
    }
}

impl From<[f64; 6]> for TrainingSet {
    fn from([velo_32_us, velo_64_us, velo_512_us, velo_mb_s, rma_us, rma_mb_s]: [f64; 6]) -> Self {
        Self { velo_32_us, velo_64_us, velo_512_us, velo_mb_s, rma_us, rma_mb_s }
    }
}

/// What is known or assumed beforehand. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Given {
    /// \[S\] Bandwidth of a link in MB/s.
    pub link_mb_s: f64,
    /// \[A\] A hop.
    pub hop_ns: f64,
    /// \[A\] A packet of VELO on the wire, in bytes.
    pub velo_wire_bytes: f64,
    /// \[D\] What a packet of VELO occupies the sending unit.
    pub velo_unit_ns: f64,
    /// \[A\] The software of a message over VELO, both sides.
    pub velo_software_ns: f64,
    /// \[S\] Payload of a wire fragment of RMA, in bytes.
    pub fragment_bytes: f64,
    /// \[S\] Throughput of RMA at saturation is a part of this bandwidth, in MB/s: that of the evaluator's links.
    pub measured_link_mb_s: f64,
    /// \[A\] What posting, noticing and translating (twice) take of a put, and the software above it.
    pub rma_software_ns: f64,
    /// \[A\] Copying 64 bytes after the first to or from a buffer; a message is copied twice.
    pub copy_line_ns: f64,
    /// \[A\] How many fragments after the first come later than the link could take them.
    pub ramp_fragments: f64,
}

impl Given {
    /// What is assumed of the DEEP evaluator, whose measured totals include the copies.
    pub const fn evaluator() -> Self {
        Self { copy_line_ns: 0.0, ..Self::fpga(1086.0) }
    }

    /// What is assumed of the cluster.
    pub const fn cluster() -> Self {
        Self::fpga(624.0)
    }

    const fn fpga(link_mb_s: f64) -> Self {
        Self {
            link_mb_s,
            hop_ns: 300.0,
            velo_wire_bytes: 80.0,
            velo_unit_ns: 128.2,
            velo_software_ns: 900.0,
            fragment_bytes: 64.0,
            measured_link_mb_s: 1086.0,
            rma_software_ns: 500.0 + 600.0 + 2.0 * 200.0 + 1200.0,
            copy_line_ns: 16.0,
            ramp_fragments: 8.0,
        }
    }
}

/// What follows from both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The processor's part of sending a VELO packet (o_s).
    pub velo_send_ns: f64,
    /// The processor's part of receiving one (o_r).
    pub velo_receive_ns: f64,
    /// What a VELO packet takes in the sending interface beyond its occupancy.
    pub velo_fixed_ns: f64,
    /// What a message of more than one packet takes more.
    pub velo_reassembly_ns: f64,
    /// Header of an RMA fragment, in whole bytes.
    pub fragment_header_bytes: f64,
    /// What a fragment occupies either RMA unit.
    pub rma_unit_ns: f64,
    /// What a put takes in either RMA unit beyond that.
    pub rma_fixed_ns: f64,
    /// How far apart the first fragments of a put come.
    pub ramp_ns: f64,
}

/// VELO packets of a message: 20 bytes of headers, 64 in a packet.
///
/// ```
/// use extoll_sim::model::fit::packets;
/// assert_eq!([32, 64, 128, 256, 512].map(packets), [1, 2, 3, 5, 9]);
/// ```
pub const fn packets(bytes: u64) -> u64 {
    (bytes + 20).div_ceil(64)
}

/// Bytes at which the throughput of VELO is read.
const SATURATED: u64 = 8 << 10;

/// Fits the parameters to the training set.
///
/// VELO's latency is a line over the number of packets: the slope from two to nine packets is what receiving one
/// takes, and what a second packet takes beyond the slope is reassembly. At saturation a process sends and
/// receives a packet in turn, which gives what sending takes. RMA saturates where the link carries nothing but
/// full fragments. VELO and RMA are published to cross above 512 bytes: so at 512 both take as long, eight
/// fragments after the first, of which two copies are a part.
pub fn fit(training: &TrainingSet, given: &Given) -> Fit {
    let [one, two, nine] = [training.velo_32_us, training.velo_64_us, training.velo_512_us].map(|us| us * 1e3);
    let receive = (nine - two) / (packets(512) - packets(64)) as f64;
    let pair = 2.0 * SATURATED as f64 / training.velo_mb_s * 1e3 / packets(SATURATED) as f64;
    let send = pair - receive;
    let wire = |bytes: f64| bytes / given.link_mb_s * 1e3;
    let one_way = training.rma_mb_s / 2.0;
    let fragment = given.fragment_bytes;
    let header = (fragment * given.measured_link_mb_s / one_way - fragment).round();
    let unit = fragment / one_way * 1e3;
    let rma = training.rma_us * 1e3;
    let units = rma - given.rma_software_ns - given.hop_ns - wire(fragment + header) - 2.0 * unit;
    let interface = one - given.velo_software_ns - send - receive;
    Fit {
        velo_send_ns: send,
        velo_receive_ns: receive,
        velo_fixed_ns: interface - given.hop_ns - wire(given.velo_wire_bytes) - given.velo_unit_ns,
        velo_reassembly_ns: two - one - receive,
        fragment_header_bytes: header,
        rma_unit_ns: unit,
        rma_fixed_ns: units / 2.0,
        ramp_ns: (nine - rma) / given.ramp_fragments - 2.0 * given.copy_line_ns,
    }
}

impl Fit {
    /// The parameters with their names in a [`Parameters`](super::Parameters) table.
    pub const fn parameters(&self) -> [(&'static str, f64); 9] {
        [
            ("velo.send_ns", self.velo_send_ns),
            ("velo.receive_ns", self.velo_receive_ns),
            ("velo.tx.fixed_ns", self.velo_fixed_ns),
            ("pscom.velo_reassembly_ns", self.velo_reassembly_ns),
            ("rma.fragment_header_bytes", self.fragment_header_bytes),
            ("rma.tx.per_unit_ns", self.rma_unit_ns),
            ("rma.tx.fixed_ns", self.rma_fixed_ns),
            ("rma.rx.fixed_ns", self.rma_fixed_ns),
            ("rma.ramp_ns", self.ramp_ns),
        ]
    }

    /// What the fit says of a message over VELO between neighbours, in microseconds.
    pub fn velo_us(&self, training: &TrainingSet, bytes: u64) -> f64 {
        let more = packets(bytes) - 1;
        let entry = if more > 0 { self.velo_reassembly_ns } else { 0.0 };
        training.velo_32_us + (entry + self.velo_receive_ns * more as f64) * 1e-3
    }

    /// What the fit says of a message over RMA that fits a buffer of the ring, in microseconds.
    pub fn rma_us(&self, training: &TrainingSet, given: &Given, bytes: u64) -> f64 {
        // 20 bytes of headers and 8 of the buffer's tail.
        let more = (bytes + 28).div_ceil(64) as f64 - 1.0;
        let slow = more.min(given.ramp_fragments);
        let copies = 2.0 * given.copy_line_ns * more;
        training.rma_us + (copies + self.ramp_ns * slow + self.rma_unit_ns * (more - slow)) * 1e-3
    }
}
