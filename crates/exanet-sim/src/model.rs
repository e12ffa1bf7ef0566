//! The parameter table: what an ExaNet interface and its links cost, as plain data that a user can read from TOML.
//!
//! Every figure names where it comes from. \[S\]: the paper on the write-based MPI; \[P\]: other published
//! material, which is "The ExaNeSt Prototype" (Ploumidis et al.) unless said otherwise; \[D\]: derived from those
//! by arithmetic; \[F\]: fitted to them by [`fit`](fit::fit), from the [`TRAINING_SET`](fit::TRAINING_SET) alone;
//! \[A\]: assumed, this project's own. In the words of the figures: \[S\] and \[P\] are `published`, \[D\] is
//! `derived`, \[F\] and \[A\] are `model`.
//!
//! The totals that the table keeps, between two nodes that are neighbours:
//!
//! | what | total | class |
//! |---|---|---|
//! | control packet of 64 bytes, from the call to the receiver's hands | 0.470 + 0.096 + 0.314 = 0.880 us | fitted; the split of 0.470 is \[A\] |
//! | the same with MPI's software | 1.293 us | fitted |
//! | each further hop | 0.314 us | fitted |
//! | write of S bytes, from the call to the notification | 0.6 us + S / 1.026 GB/s | 0.6 us \[A\], bandwidth fitted |

pub mod fit;

use am_core::Span;
use fabric_sim::parameters::{self, Checker};
use fabric_sim::{ConfigError, EmptyPoll, LinkParameters, NicParameters, Stage};
use serde::{Deserialize, Serialize};

/// What an ExaNet interface, its links and MPI above it cost. Fields that a file leaves out are those of
/// [`Parameters::prototype`].
///
/// ```
/// use exanet_sim::model::Parameters;
///
/// let mine = Parameters::from_toml("
///     name = 'mine'
///     link = { bandwidth_mb_s = 2000, latency_ns = 100 }
///     packetizer = { mailbox = 64 }
/// ").unwrap();
/// assert_eq!(mine.rdma, Parameters::prototype().rdma);
///
/// let error = Parameters::from_toml("packetizer = { channels = 65 }").unwrap_err();
/// assert_eq!(error.to_string(), "parameters.packetizer.channels is 65, but must be from 1 to 64");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Parameters {
    /// What the machine is called.
    pub name: String,
    /// The links; the latency is that of one hop.
    pub link: LinkParameters,
    /// What a look costs that finds nothing, in nanoseconds, at least 0.001.
    pub empty_poll_ns: f64,
    /// What links carry.
    pub cell: CellParameters,
    /// The unit for control packets, and the mailbox.
    pub packetizer: PacketizerParameters,
    /// The RDMA engine.
    pub rdma: RdmaParameters,
    /// What happens when something did not get through.
    pub retry: RetryParameters,
    /// The MPI library above.
    pub mpi: MpiParameters,
}

/// Cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CellParameters {
    /// Payload of a cell in bytes, 8 to 4096.
    pub payload_bytes: u32,
    /// Bytes that a cell, or a control packet, has on the wire besides.
    pub header_bytes: u32,
}

/// The packetizer and the mailbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PacketizerParameters {
    /// Packets that a context may have sent and not heard of, 1 to 64.
    pub channels: u32,
    /// Packets that a mailbox holds, at least 1.
    pub mailbox: u32,
    /// The processor's part of sending a packet, in nanoseconds.
    pub send_ns: f64,
    /// The processor's part of taking one, in nanoseconds.
    pub receive_ns: f64,
    /// The sending unit, shared by the processes of a node.
    pub tx: Stage,
    /// The receiving unit, up to the mailbox.
    pub rx: Stage,
}

/// The RDMA engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RdmaParameters {
    /// Transfers of a context that were not polled to their end, at least 1.
    pub queue: u32,
    /// Reads of others that an interface serves at a time, at least 1.
    pub reads: u32,
    /// Blocks of a transfer, of 64 cells each, that are under way at a time, at least 1.
    pub window: u32,
    /// Cells that the simulation moves as one packet, 1 to 64: its grain, not the machine's.
    pub grain: u32,
    /// Size of a page in bytes, a power of two from 512 to 2^30.
    pub page_bytes: u32,
    /// The processor's part of posting a transfer, in nanoseconds.
    pub post_ns: f64,
    /// The processor's part of noticing that a notification is there, in nanoseconds.
    pub notice_ns: f64,
    /// From a posted transfer to its first cell, in nanoseconds.
    pub start_ns: f64,
    /// From the last byte to the notification, in nanoseconds.
    pub notify_ns: f64,
    /// The sending engine; one unit is a cell.
    pub tx: Stage,
    /// The receiving engine, up to memory; one unit is a cell. It takes cells in as they come, so what it needs
    /// for them only shows where it is slower than what the links bring together.
    pub rx: Stage,
}

/// What happens when something did not get through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryParameters {
    /// How long a sender waits for an answer before it sends again, in nanoseconds, at least 1. Each of the first
    /// six fruitless attempts doubles it. It does not wait where nothing can be lost.
    pub timeout_ns: f64,
    /// Attempts after which it gives up, 1 to 1000; also refusals in a row of a packet whose process leaves.
    pub limit: u32,
    /// How long the system takes to fetch a page, in nanoseconds.
    pub fetch_ns: f64,
    /// How long a sender waits before it sends a block again that met a page fault, in nanoseconds.
    pub fault_wait_ns: f64,
    /// How long an interface waits before it sends again by itself what was refused for want of room, in
    /// nanoseconds, at least 0.001.
    pub busy_wait_ns: f64,
}

/// The MPI library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MpiParameters {
    /// Its part of a small message, sender and receiver together, in nanoseconds.
    pub software_ns: f64,
}

impl Parameters {
    /// The ExaNeSt prototype: 10 Gb/s links between Zynq UltraScale+ MPSoCs.
    pub fn prototype() -> Self {
        Self {
            name: "ExaNeSt prototype".into(),
            link: LinkParameters {
                // [P] 10 Gb/s.
                bandwidth_mb_s: 1250.0,
                // [F] a quarter of what five hops take longer than one.
                latency_ns: 314.25,
            },
            // [A] a read of memory that is cached; it must only be above zero.
            empty_poll_ns: 20.0,
            cell: CellParameters {
                // [A] 256 bytes.
                payload_bytes: 256,
                // [F] 256 of every 312 bytes are 82 %.
                header_bytes: 56,
            },
            packetizer: PacketizerParameters {
                // [A] channels of a context.
                channels: 32,
                // [A] 64 KB of packets.
                mailbox: 1024,
                // [A] the split of the 470 ns [P] of interface and library: 120 + 115 + 115 + 120.
                send_ns: 120.0,
                receive_ns: 120.0,
                // [A] of each 115 ns the unit is occupied for 60.
                tx: Stage { per_unit_ns: 60.0, unit_bytes: 64, ..Stage::latency(55.0) },
                rx: Stage { per_unit_ns: 60.0, unit_bytes: 64, ..Stage::latency(55.0) },
            },
            rdma: RdmaParameters {
                // [A] transfers of a context; [P] "a number of virtual channels able to work simultaneously with
                // many outstanding transfers".
                queue: 64,
                // [A] reads that are served.
                reads: 16,
                // [A] 64 KB under way.
                window: 4,
                // The simulation's grain: 1 KB.
                grain: 4,
                // [A] pages of the processors' usual size.
                page_bytes: 4096,
                // [A] the split of the 600 ns that set a write up: post 80, start (what is left), a hop, receive
                // 50, notify 15, notice 50.
                post_ns: 80.0,
                notice_ns: 50.0,
                // [F] what is left of the 600 ns [A].
                start_ns: 90.75,
                notify_ns: 15.0,
                // [D] 312 bytes at 1250 MB/s: the engine keeps up with its link.
                tx: Stage { per_unit_ns: 249.6, unit_bytes: 256, ..Stage::NONE },
                // [A] 256 bytes at 2.4 GB/s (128 bits at 150 MHz): about what two links bring.
                rx: Stage { per_unit_ns: 320.0 / 3.0, unit_bytes: 256, ..Stage::latency(50.0) },
            },
            retry: RetryParameters {
                // [A] several round trips across the rack, with blocks of others before.
                timeout_ns: 100_000.0,
                // [A] of packets that are lost one in two, one in 10^12 is given up.
                limit: 40,
                // [A] a page that the system has somewhere in memory.
                fetch_ns: 5_000.0,
                // [A] a little longer.
                fault_wait_ns: 6_000.0,
                // [A] a round trip.
                busy_wait_ns: 2_000.0,
            },
            mpi: MpiParameters {
                // [F] what is left of 1.293 us.
                software_ns: 412.75,
            },
        }
    }

    /// An interface and links that cost nothing, for semantics without times. Looks that find nothing take a
    /// picosecond, so that spinning passes the time.
    pub fn free() -> Self {
        let prototype = Self::prototype();
        let nothing = Stage::NONE;
        Self {
            name: "free".into(),
            link: LinkParameters::default(),
            empty_poll_ns: 0.001,
            cell: prototype.cell,
            packetizer: PacketizerParameters {
                send_ns: 0.0,
                receive_ns: 0.0,
                tx: nothing,
                rx: nothing,
                ..prototype.packetizer
            },
            rdma: RdmaParameters {
                post_ns: 0.0,
                notice_ns: 0.0,
                start_ns: 0.0,
                notify_ns: 0.0,
                tx: nothing,
                rx: nothing,
                ..prototype.rdma
            },
            retry: prototype.retry,
            mpi: MpiParameters { software_ns: 0.0 },
        }
    }

    /// The names of the built-in tables.
    pub const BUILT_IN: [&str; 2] = ["prototype", "free"];

    /// A built-in table by its name.
    ///
    /// # Errors
    /// [`ConfigError`] lists the names that there are.
    pub fn named(name: &str) -> Result<Self, ConfigError> {
        parameters::named(name, Self::BUILT_IN, [Self::prototype, Self::free])
    }

    /// Reads a table from TOML and checks it.
    ///
    /// # Errors
    /// [`ConfigError`] names an unknown field, or the first value that is not possible and its limit.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        parameters::from_toml(text, |table: &Self| table.compile().map(drop))
    }

    /// What was given to the [fit](fit::fit) of this table, besides the training set.
    pub fn given(&self) -> fit::Given {
        let RdmaParameters { post_ns, notice_ns, notify_ns, rx, .. } = self.rdma;
        fit::Given {
            link_mb_s: self.link.bandwidth_mb_s,
            cell_bytes: self.cell.payload_bytes.into(),
            packet_bytes: 64.0,
            setup_ns: 600.0,
            other_setup_ns: post_ns + rx.fixed_ns + notify_ns + notice_ns,
        }
    }

    /// The network's part of the table.
    pub(crate) fn network(&self) -> NicParameters {
        NicParameters {
            name: self.name.clone(),
            header_bytes: self.cell.header_bytes,
            ordered: false,
            empty_poll: EmptyPoll { ns: self.empty_poll_ns },
            link: self.link,
            ..NicParameters::default()
        }
    }

    pub(crate) fn compile(&self) -> Result<Costs, ConfigError> {
        let table = Checker::of("parameters");
        let Self { cell, packetizer, rdma, retry, .. } = self;
        for (field, value, limits) in [
            ("cell.payload_bytes", cell.payload_bytes, 8..=4096),
            ("cell.header_bytes", cell.header_bytes, 0..=4096),
            ("packetizer.channels", packetizer.channels, 1..=64),
            ("packetizer.mailbox", packetizer.mailbox, 1..=1 << 24),
            ("rdma.queue", rdma.queue, 1..=1 << 20),
            ("rdma.reads", rdma.reads, 1..=1 << 20),
            ("rdma.window", rdma.window, 1..=32),
            ("rdma.grain", rdma.grain, 1..=64),
            ("rdma.page_bytes", rdma.page_bytes, 512..=1 << 30),
            ("retry.limit", retry.limit, 1..=1000),
        ] {
            table.within(field, value, limits)?;
        }
        if !rdma.page_bytes.is_power_of_two() {
            return Err(table.refuse("rdma.page_bytes", rdma.page_bytes, "a power of two"));
        }
        table.bandwidth("link.bandwidth_mb_s", self.link.bandwidth_mb_s)?;
        table.time("link.latency_ns", self.link.latency_ns)?;
        table.some_time("empty_poll_ns", self.empty_poll_ns)?;
        for (field, stage) in [
            ("packetizer.tx", &packetizer.tx),
            ("packetizer.rx", &packetizer.rx),
            ("rdma.tx", &rdma.tx),
            ("rdma.rx", &rdma.rx),
        ] {
            table.stage(field, stage)?;
        }
        table.times([("mpi.software_ns", self.mpi.software_ns)])?;
        let timeout = table.time("retry.timeout_ns", retry.timeout_ns)?;
        if timeout < Span::from_nanos(1) {
            return Err(table.refuse("retry.timeout_ns", retry.timeout_ns, "at least 1 ns"));
        }
        Ok(Costs {
            send: table.time("packetizer.send_ns", packetizer.send_ns)?,
            receive: table.time("packetizer.receive_ns", packetizer.receive_ns)?,
            post: table.time("rdma.post_ns", rdma.post_ns)?,
            notice: table.time("rdma.notice_ns", rdma.notice_ns)?,
            start: table.time("rdma.start_ns", rdma.start_ns)?,
            notify: table.time("rdma.notify_ns", rdma.notify_ns)?,
            place: table.time("rdma.rx.fixed_ns", rdma.rx.fixed_ns)?,
            timeout,
            fetch: table.time("retry.fetch_ns", retry.fetch_ns)?,
            fault_wait: table.some_time("retry.fault_wait_ns", retry.fault_wait_ns)?,
            busy_wait: table.some_time("retry.busy_wait_ns", retry.busy_wait_ns)?,
        })
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Self::prototype()
    }
}

fabric_sim::default_parts!(Parameters {
    cell: CellParameters,
    packetizer: PacketizerParameters,
    rdma: RdmaParameters,
    retry: RetryParameters,
    mpi: MpiParameters
});

/// The processors' and units' times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub(crate) send: Span,
    pub(crate) receive: Span,
    pub(crate) post: Span,
    pub(crate) notice: Span,
    pub(crate) start: Span,
    pub(crate) notify: Span,
    /// What the receiving engine takes for every byte, however few come.
    pub(crate) place: Span,
    pub(crate) timeout: Span,
    pub(crate) fetch: Span,
    pub(crate) fault_wait: Span,
    pub(crate) busy_wait: Span,
}

#[cfg(test)]
mod tests {
    use super::fit::{Fit, TRAINING_SET, fit};
    use super::*;

    #[test]
    fn the_table_is_the_fit() {
        let table = Parameters::prototype();
        let Fit { hop_ns, header_bytes, interface_ns, software_ns, start_ns } = fit(&TRAINING_SET, &table.given());
        let packetizer = &table.packetizer;
        let stage = |stage: &Stage| stage.fixed_ns + stage.per_unit_ns;
        let interface = packetizer.send_ns + stage(&packetizer.tx) + stage(&packetizer.rx) + packetizer.receive_ns;
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(close(table.link.latency_ns, hop_ns), "{hop_ns}");
        assert_eq!(table.cell.header_bytes, header_bytes);
        assert!(close(interface, interface_ns), "{interface}");
        assert!(close(table.mpi.software_ns, software_ns), "{software_ns}");
        assert!(close(table.rdma.start_ns, start_ns), "{start_ns}");
        let cell = f64::from(table.cell.payload_bytes + table.cell.header_bytes) / table.link.bandwidth_mb_s * 1e3;
        assert!(close(table.rdma.tx.per_unit_ns, cell), "{cell}");
    }

    #[test]
    fn tables_survive_a_round_trip() {
        for name in Parameters::BUILT_IN {
            let table = Parameters::named(name).unwrap();
            let text = toml::to_string(&table).unwrap();
            assert_eq!(Parameters::from_toml(&text).unwrap(), table);
        }
    }

    #[test]
    fn bad_tables_are_refused_by_field_and_limit() {
        for (text, wanted) in [
            ("packetizers = {}", "packetizers"),
            ("rdma = { queues = 1 }", "queues"),
            ("cell = { payload_bytes = 4 }", "parameters.cell.payload_bytes is 4, but must be from 8 to 4096"),
            ("cell = { header_bytes = 5000 }", "parameters.cell.header_bytes is 5000"),
            ("packetizer = { channels = 0 }", "parameters.packetizer.channels is 0, but must be from 1 to 64"),
            ("packetizer = { mailbox = 0 }", "parameters.packetizer.mailbox is 0, but must be from 1 to"),
            ("packetizer = { send_ns = -1 }", "parameters.packetizer.send_ns is -1, but must be a finite number"),
            ("packetizer = { receive_ns = nan }", "parameters.packetizer.receive_ns is NaN"),
            ("packetizer = { tx = { fixed_ns = inf } }", "parameters.packetizer.tx.fixed_ns is inf"),
            ("packetizer = { rx = { depth = 0 } }", "parameters.packetizer.rx.depth is 0"),
            ("rdma = { queue = 0 }", "parameters.rdma.queue is 0"),
            ("rdma = { reads = 0 }", "parameters.rdma.reads is 0"),
            ("rdma = { window = 33 }", "parameters.rdma.window is 33, but must be from 1 to 32"),
            ("rdma = { grain = 65 }", "parameters.rdma.grain is 65, but must be from 1 to 64"),
            ("rdma = { page_bytes = 256 }", "parameters.rdma.page_bytes is 256"),
            ("rdma = { page_bytes = 5000 }", "parameters.rdma.page_bytes is 5000, but must be a power of two"),
            ("rdma = { post_ns = -1 }", "parameters.rdma.post_ns is -1"),
            ("rdma = { notice_ns = -1 }", "parameters.rdma.notice_ns is -1"),
            ("rdma = { start_ns = 1e300 }", "parameters.rdma.start_ns is 1"),
            ("rdma = { notify_ns = -2 }", "parameters.rdma.notify_ns is -2"),
            ("rdma = { tx = { unit_bytes = 0 } }", "parameters.rdma.tx.unit_bytes is 0"),
            ("rdma = { rx = { per_unit_ns = -3 } }", "parameters.rdma.rx.per_unit_ns is -3"),
            ("retry = { timeout_ns = 0 }", "parameters.retry.timeout_ns is 0, but must be at least 1 ns"),
            ("retry = { limit = 1001 }", "parameters.retry.limit is 1001, but must be from 1 to 1000"),
            ("retry = { fetch_ns = -1 }", "parameters.retry.fetch_ns is -1"),
            (
                "retry = { fault_wait_ns = 0 }",
                "parameters.retry.fault_wait_ns is 0, but must be at least 0.001 ns",
            ),
            ("retry = { busy_wait_ns = 0 }", "parameters.retry.busy_wait_ns is 0, but must be at least 0.001 ns"),
            ("mpi = { software_ns = -1 }", "parameters.mpi.software_ns is -1"),
            ("link = { bandwidth_mb_s = 0 }", "parameters.link.bandwidth_mb_s is 0, but must be above 0"),
            ("link = { latency_ns = -1 }", "parameters.link.latency_ns is -1"),
            ("empty_poll_ns = 0", "parameters.empty_poll_ns is 0"),
        ] {
            let error = Parameters::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        let unknown = Parameters::named("rack").unwrap_err().to_string();
        assert_eq!(unknown, "parameters is rack, but must be one of prototype, free");
    }
}
