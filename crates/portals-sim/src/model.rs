//! The parameter table: what a Portals interface, its links and the software right above it cost, as plain data
//! that a user can read from TOML.
//!
//! Every figure names where it comes from. \[S\]: "Porting GASNet to Portals"; \[C\]: read in a public conduit or
//! header; \[P\]: other published material; \[D\]: derived from those by arithmetic; \[A\]: assumed; \[R\]:
//! recalled and not verified, so that no test rests on it. The source gives plots without a table, so the model is
//! consistent with it, not calibrated to it.
//!
//! The totals that the table keeps, between two nodes that are neighbours:
//!
//! | what | total | from |
//! |---|---|---|
//! | put of one byte until its acknowledgement is in the initiator's hands | 0.9 + 1.0 + 0.3 + 2.0 + 2.0 + 3.0 + 0.8 = 10.0 us | \[A\], 8 to 12 accepted |
//! | the same as a ping over raw MPI, and as a put over MPI | 16.3, about 20 us | \[D\] from \[R\]: only their order counts |
//! | message of no bytes, without the conduit's software | 0.9 + 1.0 + 0.3 + 2.0 + 1.5 = 5.7 us | \[P\]: below 6 us |
//! | request and reply of an active message | 2 (5.7 + 0.8) = 13 us | \[A\] |
//! | bandwidth of a flood of S bytes each | 1650 S / (S + 4096) MB/s | \[A\], below the axis of 1800 |

use am_core::{Instant, Span};
use fabric_sim::parameters::{self, Checker};
use fabric_sim::{ConfigError, EmptyPoll, LinkParameters, NicParameters, PortParameters, Stage};
use serde::{Deserialize, Serialize};

/// What a Portals interface, its links and the software right above it cost. Fields that a file leaves out are
/// those of [`Parameters::xt4`].
///
/// ```
/// use portals_sim::model::Parameters;
///
/// let mine = Parameters::from_toml("
///     name = 'mine'
///     link = { bandwidth_mb_s = 3000, latency_ns = 40 }
///     nic = { ack_event_ns = 1500 }
/// ").unwrap();
/// assert_eq!(mine.nic.tx_ns, Parameters::xt4().nic.tx_ns);
///
/// let error = Parameters::from_toml("nic = { dma_slots = 0 }").unwrap_err();
/// assert_eq!(error.to_string(), "parameters.nic.dma_slots is 0, but must be from 1 to 16777216");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Parameters {
    /// What the machine is called.
    pub name: String,
    /// The links; the latency is that of one hop.
    pub link: LinkParameters,
    /// What the interface puts out to all links of its node together, and takes in from them, headers included.
    pub port: PortParameters,
    /// The interface.
    pub nic: InterfaceParameters,
    /// The software above it.
    pub software: SoftwareParameters,
    /// What the same costs over MPI on this machine: the baseline of figures.
    pub mpi: MpiParameters,
    /// How much there is of everything.
    pub limits: NiLimits,
}

/// The interface and the processor's part of using it. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InterfaceParameters {
    /// The processor's part of giving a command (put, get, atomic operation).
    pub command_ns: f64,
    /// From a command at the interface to its first bit at the router.
    pub tx_ns: f64,
    /// From there to the first link.
    pub inject_ns: f64,
    /// What a message occupies the sending engine besides its bytes: the n of S / (S + n).
    pub tx_gap_ns: f64,
    /// Transmissions that may be outstanding on a node: whoever gives another command waits for a slot.
    pub dma_slots: u32,
    /// What a command costs the processor more that has to wait for a slot.
    pub dma_overload_ns: f64,
    /// Header bytes of a message on the wire.
    pub header_bytes: u32,
    /// The packets that links carry, in bytes: messages of others are carried between two of them. 0: a message is
    /// one packet.
    pub packet_bytes: u32,
    /// The receiving engine: from the last bit to the last byte in memory. One unit is a message.
    pub rx: Stage,
    /// From the last byte in memory until the message is completed: acknowledged, and its event on its way.
    pub complete_ns: f64,
    /// From the completion until its event is in the queue.
    pub event_ns: f64,
    /// From the completion of a put until its acknowledgement's first bit is at the router.
    pub ack_tx_ns: f64,
    /// From an acknowledgement at the initiator's interface until its event is in the queue.
    pub ack_event_ns: f64,
    /// The processor's part of looking at an event queue or counter, whether or not something is there; at least
    /// 0.001.
    pub eq_get_ns: f64,
    /// The processor's part of calls that attach, bind and unlink.
    pub list_ns: f64,
}

/// What the active message conduit's own software costs, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SoftwareParameters {
    /// Per operation, besides the looks at event queues.
    pub gasnet_ns: f64,
    /// Copying to and from bounce buffers, per byte.
    pub copy_ns_per_byte: f64,
    /// Registering a page of memory.
    pub pin_page_ns: f64,
}

/// MPI on the same machine, for comparison. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MpiParameters {
    /// A raw ping with its acknowledgement.
    pub ping_ack_ns: f64,
    /// A blocking put of the conduit over MPI.
    pub conduit_put_ns: f64,
    /// Request and reply of an active message of the conduit over MPI.
    pub conduit_round_trip_ns: f64,
    /// The n of a flood's bandwidth S / (S + n), in bytes.
    pub flood_half_bytes: u32,
}

/// How much a process may have of everything. Per process unless noted; at least 1 each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NiLimits {
    /// Portal table entries.
    pub pt_entries: u32,
    /// Match entries and list entries.
    pub entries: u32,
    /// Memory descriptors.
    pub mds: u32,
    /// Event queues.
    pub eqs: u32,
    /// Entries of an event queue.
    pub eq_entries: u32,
    /// Counting events (Portals 4).
    pub cts: u32,
    /// Entries of one list (Portals 4).
    pub list_entries: u32,
    /// Unexpected headers (Portals 4).
    pub unexpected_headers: u32,
    /// Triggered operations (Portals 4).
    pub triggered: u32,
    /// The largest message in bytes.
    pub message_bytes: u32,
}

impl Parameters {
    /// XT4 nodes with SeaStar interfaces in a 3D torus.
    pub fn xt4() -> Self {
        Self {
            name: "XT4 (SeaStar)".into(),
            link: LinkParameters {
                // [A] below the axis of 1800 MB/s of the source's plots [S].
                bandwidth_mb_s: 1650.0,
                // [A] about 0.05 us per hop.
                latency_ns: 50.0,
            },
            // [A] the interface's path to memory is what limits a node, and not its six links.
            port: PortParameters::of(1650.0),
            nic: InterfaceParameters {
                // [A] host command.
                command_ns: 900.0,
                // [A] TX DMA.
                tx_ns: 1_000.0,
                // [D] what is left of the wire's 0.3 us [A] after a hop (50) and 65 bytes on the link (39.4).
                inject_ns: 210.6,
                // [D] n = 4096 bytes [A, 4 to 8 KB] at 1650 MB/s are 2482.4 ns; a unit of 64 bytes (38.8) counts
                // besides.
                tx_gap_ns: 2_443.6,
                // [C] DMA slots.
                dma_slots: 256,
                // [A] "worse beyond about 300 outstanding" [C].
                dma_overload_ns: 500.0,
                // [A] a header packet.
                header_bytes: 64,
                // [P] SeaStar's packets.
                packet_bytes: 64,
                // [A] RX match + DMA are 2.0 us: half of it the message occupies the engine, half completes it.
                rx: Stage { per_unit_ns: 1_000.0, unit_bytes: u32::MAX, ..Stage::NONE },
                complete_ns: 1_000.0,
                // [D] half of a round trip of 13 us [A], less all the rest.
                event_ns: 1_500.0,
                // [D] an acknowledgement takes 2.0 us [A]: 0.3 of it are the wire, 1.0 the initiator's receiving
                // engine.
                ack_tx_ns: 700.6,
                // [A] ACK event to host.
                ack_event_ns: 3_000.0,
                // [C] EQGet.
                eq_get_ns: 74.0,
                // [A] a call that stays on this side of the interface.
                list_ns: 200.0,
            },
            software: SoftwareParameters {
                // [D] poll and GASNet overhead are 0.8 us [A], of which EQGet is 0.074.
                gasnet_ns: 726.0,
                // [A] 2 GB/s.
                copy_ns_per_byte: 0.5,
                // [A] a system call and a table entry.
                pin_page_ns: 1_000.0,
            },
            mpi: MpiParameters {
                // [D] from [R].
                ping_ack_ns: 16_300.0,
                conduit_put_ns: 20_000.0,
                // [A] "above 20 us".
                conduit_round_trip_ns: 21_000.0,
                // [A] the other end of 4 to 8 KB.
                flood_half_bytes: 8_192,
            },
            limits: NiLimits {
                // [C] table sizes of the same order; [A] their exact values.
                pt_entries: 64,
                entries: 4_096,
                mds: 4_096,
                eqs: 64,
                eq_entries: 1 << 20,
                cts: 4_096,
                list_entries: 4_096,
                unexpected_headers: 4_096,
                triggered: 4_096,
                message_bytes: 1 << 30,
            },
        }
    }

    /// The same interface with every time at zero: what remains is the semantics.
    pub fn free() -> Self {
        let xt4 = Self::xt4();
        Self {
            name: "Portals without cost".into(),
            link: LinkParameters::default(),
            port: PortParameters::default(),
            nic: InterfaceParameters {
                command_ns: 0.0,
                tx_ns: 0.0,
                inject_ns: 0.0,
                tx_gap_ns: 0.0,
                dma_overload_ns: 0.0,
                rx: Stage::NONE,
                complete_ns: 0.0,
                event_ns: 0.0,
                ack_tx_ns: 0.0,
                ack_event_ns: 0.0,
                // The least that lets spinning pass the time.
                eq_get_ns: 0.001,
                list_ns: 0.0,
                ..xt4.nic
            },
            software: SoftwareParameters { gasnet_ns: 0.0, copy_ns_per_byte: 0.0, pin_page_ns: 0.0 },
            ..xt4
        }
    }

    /// The names of the built-in tables.
    pub const BUILT_IN: [&str; 2] = ["xt4", "free"];

    /// A built-in table.
    ///
    /// ```
    /// use portals_sim::model::Parameters;
    /// assert_eq!(Parameters::named("xt4").unwrap(), Parameters::xt4());
    /// let error = Parameters::named("myrinet").unwrap_err();
    /// assert_eq!(error.to_string(), "parameters is myrinet, but must be one of xt4, free");
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`] lists the names that there are.
    pub fn named(name: &str) -> Result<Self, ConfigError> {
        parameters::named(name, Self::BUILT_IN, [Self::xt4, Self::free])
    }

    /// Reads a table from TOML and checks it.
    ///
    /// # Errors
    /// [`ConfigError`] names an unknown field, or the first value that is not physical and its limit.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        parameters::from_toml(text, Self::check)
    }

    /// Checks that there can be such an interface.
    ///
    /// # Errors
    /// [`ConfigError`] names the first value that is not physical and its limit.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.compile().map(drop)
    }

    /// The links and the receiving engine, as the network wants them; the sending engine is the interface's own.
    pub(crate) fn network(&self) -> NicParameters {
        NicParameters {
            name: self.name.clone(),
            ordered: true,
            header_bytes: self.nic.header_bytes,
            nic_rx: self.nic.rx,
            empty_poll: EmptyPoll { ns: self.nic.eq_get_ns },
            link: self.link,
            port: self.port,
            packet_bytes: self.nic.packet_bytes,
            ..NicParameters::default()
        }
    }

    /// The sending engine: a message occupies it for its gap and its bytes.
    pub(crate) fn tx(&self) -> Stage {
        Stage {
            fixed_ns: self.nic.tx_gap_ns,
            per_unit_ns: TX_UNIT as f64 * self.ns_per_byte(),
            unit_bytes: TX_UNIT,
            depth: 1,
        }
    }

    fn ns_per_byte(&self) -> f64 {
        1e3 / self.link.bandwidth_mb_s
    }

    pub(crate) fn compile(&self) -> Result<Costs, ConfigError> {
        let (nic, software, mpi, limits) = (&self.nic, &self.software, &self.mpi, &self.limits);
        let table = Checker::of("parameters");
        let time = |field: &str, nanos: f64| table.time(field, nanos);
        table.bandwidth("link.bandwidth_mb_s", self.link.bandwidth_mb_s)?;
        time("link.latency_ns", self.link.latency_ns)?;
        table.bandwidth("port.injection_mb_s", self.port.injection_mb_s)?;
        table.bandwidth("port.ejection_mb_s", self.port.ejection_mb_s)?;
        table.stage("nic.rx", &nic.rx)?;
        time("nic.tx_gap_ns", nic.tx_gap_ns)?;
        table.within("nic.dma_slots", nic.dma_slots, 1..=1 << 24)?;
        table.within("nic.header_bytes", nic.header_bytes, 0..=1 << 16)?;
        table.within("nic.packet_bytes", nic.packet_bytes, 0..=1 << 30)?;
        table.times([
            ("software.gasnet_ns", software.gasnet_ns),
            ("software.copy_ns_per_byte", software.copy_ns_per_byte),
            ("software.pin_page_ns", software.pin_page_ns),
            ("mpi.ping_ack_ns", mpi.ping_ack_ns),
            ("mpi.conduit_put_ns", mpi.conduit_put_ns),
            ("mpi.conduit_round_trip_ns", mpi.conduit_round_trip_ns),
        ])?;
        for (field, count, most) in [
            ("limits.pt_entries", limits.pt_entries, 1 << 16),
            ("limits.entries", limits.entries, 1 << 24),
            ("limits.mds", limits.mds, 1 << 24),
            ("limits.eqs", limits.eqs, 1 << 16),
            ("limits.eq_entries", limits.eq_entries, 1 << 26),
            ("limits.cts", limits.cts, 1 << 24),
            ("limits.list_entries", limits.list_entries, 1 << 24),
            ("limits.unexpected_headers", limits.unexpected_headers, 1 << 24),
            ("limits.triggered", limits.triggered, 1 << 24),
            ("limits.message_bytes", limits.message_bytes, u32::MAX.into()),
        ] {
            table.within(field, count, 1..=most)?;
        }
        let eq_get = table.some_time("nic.eq_get_ns", nic.eq_get_ns)?;
        let (event, complete) = (time("nic.event_ns", nic.event_ns)?, time("nic.complete_ns", nic.complete_ns)?);
        let ack_event = time("nic.ack_event_ns", nic.ack_event_ns)?;
        Ok(Costs {
            overload: time("nic.dma_overload_ns", nic.dma_overload_ns)?,
            command: time("nic.command_ns", nic.command_ns)?,
            tx: time("nic.tx_ns", nic.tx_ns)?,
            inject: time("nic.inject_ns", nic.inject_ns)?,
            complete,
            event,
            ack_tx: time("nic.ack_tx_ns", nic.ack_tx_ns)?,
            ack_event,
            eq_get,
            list: time("nic.list_ns", nic.list_ns)?,
            femtos_per_byte: (self.ns_per_byte() * 1e6).round() as u64,
            lookahead: Span(complete.0 + event.0).min(ack_event),
        })
    }
}

/// The sending engine reads memory in units of so many bytes.
const TX_UNIT: u32 = 64;

impl Default for Parameters {
    fn default() -> Self {
        Self::xt4()
    }
}

fabric_sim::default_parts!(Parameters {
    nic: InterfaceParameters,
    software: SoftwareParameters,
    mpi: MpiParameters,
    limits: NiLimits
});

/// The table in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub(crate) overload: Span,
    pub(crate) command: Span,
    pub(crate) tx: Span,
    pub(crate) inject: Span,
    pub(crate) complete: Span,
    pub(crate) event: Span,
    pub(crate) ack_tx: Span,
    pub(crate) ack_event: Span,
    pub(crate) eq_get: Span,
    pub(crate) list: Span,
    femtos_per_byte: u64,
    /// No event caused by a packet is in its queue sooner after the packet's arrival.
    pub(crate) lookahead: Span,
}

impl Costs {
    /// When the event is in its queue that tells of a message which has arrived at a time.
    pub(crate) fn told(&self, arrived: Instant) -> Instant {
        arrived + self.complete + self.event
    }

    /// How long so many bytes take to leave memory.
    pub(crate) fn bytes(&self, bytes: u32) -> Span {
        Span(u64::from(bytes).saturating_mul(self.femtos_per_byte) / 1000)
    }
}
