//! The parameter table: what an SCI adapter and its links cost, as plain data that a user can read from TOML.
//!
//! Every figure names where it comes from. \[S\]: the source paper (the GASNet core API on SCI); \[C\]: read in
//! the public SISCI header or GASNet's historical conduit; \[D\]: derived from those by arithmetic; \[F\]: fitted
//! to them; \[A\]: assumed.
//!
//! The totals that the table keeps, between two nodes that are neighbours:
//!
//! | what | total | from |
//! |---|---|---|
//! | PIO, S bytes stored until the last has landed | 2.70 + 0.23 ceil(S / 64) us | \[F\]: 3.16 us at 80 bytes is measured \[S\] |
//! | PIO, streaming | 64 bytes in 0.23 us: 278 MB/s | \[A\] |
//! | a remote read | 5.86 us for each line, one after the other | \[D\]: there and back, each as long as a stored line |
//! | DMA, S bytes posted until the last has landed | t0 + S / 300 us, t0 from where it overtakes PIO | \[A\] |
//! | sequence check after the last store | 0.70 + 0.30 us | \[D\], see below |
//! | Short active message | 3.16 + 1.84 = 5.00 us | \[S\] |
//!
//! The 1.84 us of software and protocol are the sheet's alternative split, 0.35 of construction and the rest for
//! check, flags and poll. It is the only one whose parts are operations of this interface: 0.35 construct + 1.00
//! check + two flags of 0.23 each + 0.03 poll. Each further hop costs 0.07 us on the way there. The answer that a
//! check waits for goes on in the direction of the ringlets, so that both together pass a ringlet once: the totals
//! are those of a ringlet of two nodes.

pub mod fit;

use am_core::Span;
use fabric_sim::parameters::{self, Checker};
use fabric_sim::{ConfigError, EmptyPoll, LinkParameters, NicParameters, PortParameters};
use serde::{Deserialize, Serialize};

use crate::nic::LINE;

/// What an SCI adapter, its links and the software right above it cost. Fields that a file leaves out are those of
/// [`Parameters::paper`].
///
/// ```
/// use sci_sim::model::Parameters;
///
/// let mine = Parameters::from_toml("
///     name = 'mine'
///     segment_bytes = 16777216
///     dma = { crossover_bytes = 8192 }
/// ").unwrap();
/// assert_eq!(mine.pio, Parameters::paper().pio);
/// assert_eq!((mine.dma_start_ns() / 100.0).round(), 48.0);
///
/// let error = Parameters::from_toml("pio = { outstanding = 0 }").unwrap_err();
/// assert_eq!(error.to_string(), "parameters.pio.outstanding is 0, but must be from 1 to 64");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Parameters {
    /// What the machine is called.
    pub name: String,
    /// The links; the latency is that of one hop.
    pub link: LinkParameters,
    /// The bus between a node's adapter and its memory, in MB/s: what it carries of payload in both directions
    /// together.
    pub bus_mb_s: f64,
    /// The largest segment in bytes, a multiple of 4 up to 2^40.
    pub segment_bytes: u64,
    /// Memory of a node for segments in bytes, up to 2^40.
    pub memory_bytes: u64,
    /// What a look costs that finds nothing, in nanoseconds, at least 0.001.
    pub empty_poll_ns: f64,
    /// What a call into the driver costs the processor (making, mapping, connecting), in nanoseconds.
    pub call_ns: f64,
    /// Programmed I/O.
    pub pio: PioParameters,
    /// The DMA engine.
    pub dma: DmaParameters,
    /// What happens when answers do not come.
    pub errors: ErrorParameters,
    /// The software of active messages.
    pub conduit: ConduitParameters,
}

/// Programmed I/O.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PioParameters {
    /// Time for which a line of 64 bytes, or a part of one, occupies the processor on its way out, in nanoseconds.
    pub line_ns: f64,
    /// From there until it has landed in the memory of the other node of a ringlet of two, in nanoseconds.
    pub fixed_ns: f64,
    /// How much of `fixed_ns` passes before the link, in nanoseconds.
    pub send_ns: f64,
    /// From leaving the processor until that node's answer is back, in nanoseconds.
    pub answer_ns: f64,
    /// What looking at the adapter's error state costs, in nanoseconds.
    pub check_ns: f64,
    /// Lines under way at once, 1 to 64.
    pub outstanding: u32,
    /// A remote read of a line from that node, in nanoseconds.
    pub read_ns: f64,
    /// Bytes that a packet has on the wire besides its own.
    pub header_bytes: u32,
}

/// The DMA engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DmaParameters {
    /// The size from which DMA is as fast as PIO, in bytes, a multiple of 64 up to 2^30: it gives the time to
    /// start.
    pub crossover_bytes: u32,
    /// Bandwidth in MB/s, at least that of PIO.
    pub bandwidth_mb_s: f64,
    /// How much of the time to start the processor spends on posting, in nanoseconds.
    pub post_ns: f64,
    /// Offsets and sizes are multiples of so many bytes: 4 to 64, a power of two.
    pub alignment: u32,
    /// Bytes that the simulation moves as one packet, 64 to 65,536, a multiple of 64: its grain, not the
    /// machine's.
    pub chunk_bytes: u32,
}

/// Errors and how long it takes to know them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ErrorParameters {
    /// A line or request that has not been answered for so long has failed, in nanoseconds, at least 1000. What
    /// has been under way for longer than that does not land any more.
    pub timeout_ns: f64,
    /// How long the driver needs to find out how bad a failure is, in nanoseconds; until then it is pending.
    pub investigation_ns: f64,
    /// What starting a failed sequence once more costs, in nanoseconds.
    pub restart_ns: f64,
}

/// The software of active messages on the interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConduitParameters {
    /// Constructing a command, in nanoseconds.
    pub construct_ns: f64,
    /// Looking at a flag that is set and entering its handler, in nanoseconds.
    pub poll_ns: f64,
    /// Entering a copy, in nanoseconds.
    pub copy_ns: f64,
    /// Bandwidth of copies, in MB/s.
    pub copy_mb_s: f64,
    /// What a message costs more above MPI, in nanoseconds: importing as needed, two copies.
    pub mpi_ns: f64,
}

impl Parameters {
    /// The paper's machine: two 4 x 2 tori of 8 nodes, links of 5.3 Gb/s, PCI.
    pub fn paper() -> Self {
        Self {
            name: "SCI cluster (two 4x2 tori of 8 nodes)".into(),
            // [S] 5.3 Gb/s; [A] 70 ns a hop.
            link: LinkParameters { bandwidth_mb_s: 662.5, latency_ns: 70.0 },
            // [D] PCI of 64 bits at 66 MHz [S].
            bus_mb_s: 528.0,
            // [S] 1 MB without the large-area patch; contiguous memory comes in powers of two.
            segment_bytes: 1 << 20,
            // [A]
            memory_bytes: 512 << 20,
            // [A] a byte in the processor's cache.
            empty_poll_ns: 10.0,
            // [A] a system call that touches the adapter.
            call_ns: 5_000.0,
            pio: PioParameters {
                // [A] 278 MB/s; with the next line [F] to 3.16 us at 80 bytes [S].
                line_ns: 230.0,
                fixed_ns: 2_700.0,
                // [A] a split of the above.
                send_ns: 250.0,
                // [D] 1.84 - 0.35 - 2 x 0.23 - 0.03 = 1.00 us for a check, of which [A] 0.70 are waiting.
                answer_ns: 700.0,
                check_ns: 300.0,
                // [S]
                outstanding: 16,
                // [D] a way there and one back of 2.93 us each, at least; without streaming eight lines take ten
                // times as long as stores [S].
                read_ns: 5_860.0,
                // [A] SCI's packet header and checksum.
                header_bytes: 16,
            },
            dma: DmaParameters {
                // [A] of the sheet's four, its default.
                crossover_bytes: 2_048,
                // [A]
                bandwidth_mb_s: 300.0,
                // [A] a part of the time to start.
                post_ns: 500.0,
                // [S] the conduit sends the 64-byte-aligned middle by DMA.
                alignment: 64,
                chunk_bytes: 1_024,
            },
            // [A] all: only their order matters.
            errors: ErrorParameters { timeout_ns: 100_000.0, investigation_ns: 50_000.0, restart_ns: 20_000.0 },
            conduit: ConduitParameters {
                // [F] the sheet's alternative split of 1.84 us.
                construct_ns: 350.0,
                poll_ns: 30.0,
                // [A] 0.3 us + S / 400 MB/s.
                copy_ns: 300.0,
                copy_mb_s: 400.0,
                // [F] about 15 us [S] against 5.
                mpi_ns: 10_000.0,
            },
        }
    }

    /// Everything at once, for tests of logic. Sizes are the paper's.
    pub fn free() -> Self {
        let paper = Self::paper();
        Self {
            name: "free".into(),
            link: LinkParameters::default(),
            bus_mb_s: f64::INFINITY,
            empty_poll_ns: 1.0,
            call_ns: 0.0,
            pio: PioParameters {
                line_ns: 0.0,
                fixed_ns: 0.0,
                send_ns: 0.0,
                answer_ns: 0.0,
                check_ns: 0.0,
                read_ns: 0.0,
                ..paper.pio
            },
            dma: DmaParameters { bandwidth_mb_s: f64::INFINITY, post_ns: 0.0, ..paper.dma },
            conduit: ConduitParameters {
                construct_ns: 0.0,
                poll_ns: 0.0,
                copy_ns: 0.0,
                copy_mb_s: f64::INFINITY,
                mpi_ns: 0.0,
            },
            ..paper
        }
    }

    /// Reads a table from TOML and checks it.
    ///
    /// # Errors
    /// [`ConfigError`] names an unknown field, or the first value that is not physical.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        parameters::from_toml(text, Self::check)
    }

    /// Checks the table.
    ///
    /// # Errors
    /// [`ConfigError`] names the first value that is not physical.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.compile().map(drop)
    }

    /// What a PIO transfer of some bytes to a neighbour takes until it has landed, in nanoseconds.
    pub fn pio_ns(&self, bytes: u64) -> f64 {
        self.pio.fixed_ns + self.pio.line_ns * bytes.div_ceil(LINE as u64) as f64
    }

    /// The time to start of DMA in nanoseconds: such that at [`DmaParameters::crossover_bytes`] it takes as long
    /// as PIO. For 2, 4, 8 and 16 KB it is 3.2, 3.8, 4.8 and 7.0 us.
    pub fn dma_start_ns(&self) -> f64 {
        let bytes = self.dma.crossover_bytes;
        self.pio_ns(u64::from(bytes)) - f64::from(bytes) * 1e3 / self.dma.bandwidth_mb_s
    }

    /// The links and interfaces below the adapters, for the network.
    pub(crate) fn network(&self) -> NicParameters {
        NicParameters {
            name: self.name.clone(),
            header_bytes: self.pio.header_bytes,
            empty_poll: EmptyPoll { ns: self.empty_poll_ns },
            link: self.link,
            port: PortParameters { shared: true, payload_only: true, ..PortParameters::of(self.bus_mb_s) },
            ..NicParameters::default()
        }
    }

    /// Checks the table and turns it into picoseconds.
    pub(crate) fn compile(&self) -> Result<Costs, ConfigError> {
        let Self { pio, dma, errors, conduit, .. } = self;
        let table = Checker::of("parameters");
        let time = |field: &str, nanos: f64| table.time(field, nanos);
        table.multiple("segment_bytes", self.segment_bytes, 4..=1 << 40, 4)?;
        table.within("memory_bytes", self.memory_bytes, 4..=1 << 40)?;
        table.within("pio.outstanding", pio.outstanding, 1..=64)?;
        table.within("pio.header_bytes", pio.header_bytes, 0..=1024)?;
        table.multiple("dma.crossover_bytes", dma.crossover_bytes, 64..=1 << 30, 64)?;
        table.multiple("dma.chunk_bytes", dma.chunk_bytes, 64..=65_536, 64)?;
        if !dma.alignment.is_power_of_two() || !(4..=64).contains(&dma.alignment) {
            return Err(table.refuse("dma.alignment", dma.alignment, "4, 8, 16, 32 or 64"));
        }
        let line = time("pio.line_ns", pio.line_ns)?;
        let fixed = time("pio.fixed_ns", pio.fixed_ns)?;
        let send = time("pio.send_ns", pio.send_ns)?;
        let answer = time("pio.answer_ns", pio.answer_ns)?;
        let hop = time("link.latency_ns", self.link.latency_ns)?;
        let bandwidth = |field: &str, value: f64| {
            if value >= 1e-3 {
                Ok(())
            } else {
                Err(table.refuse(field, value, "at least 0.001 MB/s (inf: no limit)"))
            }
        };
        bandwidth("link.bandwidth_mb_s", self.link.bandwidth_mb_s)?;
        bandwidth("bus_mb_s", self.bus_mb_s)?;
        bandwidth("dma.bandwidth_mb_s", dma.bandwidth_mb_s)?;
        bandwidth("conduit.copy_mb_s", conduit.copy_mb_s)?;
        let at_rate = |bytes: u32, mb_s: f64| {
            let femtos = (1e9 / mb_s).round() as u64;
            Span((u64::from(bytes) * femtos).saturating_add(500) / 1000)
        };
        let wire = |bytes: u32| at_rate(bytes, self.link.bandwidth_mb_s);
        // Of a line the last bit comes as late as the slower of the link and the bus lets it.
        let data = wire(LINE as u32 + pio.header_bytes).max(at_rate(LINE as u32, self.bus_mb_s));
        // What passes on the way besides the two adapters' own times, which take up the rest of the totals.
        let there = send.0 + hop.0 + data.0;
        let back = hop.0 + wire(pio.header_bytes).0;
        let at_least = |field: &str, total: Span, part: u64, found: f64| {
            let rest = total.0.checked_sub(part);
            let limit = || format!("at least the {} ns of its parts", part as f64 / 1e3);
            rest.map(Span).ok_or_else(|| table.refuse(field, found, limit()))
        };
        let land = at_least("pio.fixed_ns", fixed, there, pio.fixed_ns)?;
        let reply = at_least("pio.answer_ns", answer, there + back, pio.answer_ns)?;
        let read = time("pio.read_ns", pio.read_ns)?;
        let data_back = hop.0 + data.0;
        let ask = send.0 + hop.0 + wire(pio.header_bytes).0;
        let fetch = at_least("pio.read_ns", read, ask + data_back, pio.read_ns)?;
        let per_line = line.0 as f64 / LINE as f64;
        let per_byte = 1e6 / dma.bandwidth_mb_s;
        if per_byte > per_line && line.0 > 0 {
            let limit = format!("at least the {:.1} MB/s of programmed I/O", 1e6 / per_line);
            return Err(table.refuse("dma.bandwidth_mb_s", dma.bandwidth_mb_s, limit));
        }
        let on_wire = 1e6 / self.link.bandwidth_mb_s * (1.0 + f64::from(pio.header_bytes) / LINE as f64);
        let on_bus = 1e6 / self.bus_mb_s;
        if on_wire.max(on_bus) > per_byte && dma.bandwidth_mb_s.is_finite() {
            let (rate, way) = if on_wire >= on_bus {
                (1e6 / on_wire, "link carries besides headers")
            } else {
                (1e6 / on_bus, "bus carries")
            };
            let limit = format!("at most the {rate:.1} MB/s that the {way}");
            return Err(table.refuse("dma.bandwidth_mb_s", dma.bandwidth_mb_s, limit));
        }
        let start = Span((self.dma_start_ns() * 1e3).round() as u64);
        let set_up = at_least("dma.crossover_bytes", start, hop.0 + land.0, dma.crossover_bytes.into())?;
        let post = time("dma.post_ns", dma.post_ns)?;
        if post > set_up {
            let limit = format!("at most the {} ns that starting takes before the link", set_up.0 as f64 / 1e3);
            return Err(table.refuse("dma.post_ns", dma.post_ns, limit));
        }
        let timeout = time("errors.timeout_ns", errors.timeout_ns)?;
        if timeout < Span::from_micros(1) {
            return Err(table.refuse("errors.timeout_ns", errors.timeout_ns, "at least 1000 ns"));
        }
        table.times([
            ("conduit.construct_ns", conduit.construct_ns),
            ("conduit.poll_ns", conduit.poll_ns),
            ("conduit.copy_ns", conduit.copy_ns),
            ("conduit.mpi_ns", conduit.mpi_ns),
        ])?;
        Ok(Costs {
            call: time("call_ns", self.call_ns)?,
            line,
            send,
            land,
            reply,
            check: time("pio.check_ns", pio.check_ns)?,
            fetch,
            post,
            set_up: Span(set_up.0 - post.0),
            femtos_per_byte: (per_byte * 1e3).round() as u64,
            data_femtos_per_byte: (on_wire.max(on_bus) * 1e3).round() as u64,
            timeout,
            investigation: time("errors.investigation_ns", errors.investigation_ns)?,
            restart: time("errors.restart_ns", errors.restart_ns)?,
        })
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Self::paper()
    }
}

fabric_sim::default_parts!(Parameters {
    pio: PioParameters,
    dma: DmaParameters,
    errors: ErrorParameters,
    conduit: ConduitParameters,
});

/// The table in picoseconds, with totals split into what the simulation does one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub(crate) call: Span,
    /// The processor's time for a line.
    pub(crate) line: Span,
    /// From the processor to the link.
    pub(crate) send: Span,
    /// From the last byte at the receiving adapter to memory.
    pub(crate) land: Span,
    /// What the receiving adapter takes to answer a line.
    pub(crate) reply: Span,
    pub(crate) check: Span,
    /// What the receiving adapter takes to read a line.
    pub(crate) fetch: Span,
    pub(crate) post: Span,
    /// From the end of posting until the engine's first byte is on the link.
    pub(crate) set_up: Span,
    femtos_per_byte: u64,
    data_femtos_per_byte: u64,
    pub(crate) timeout: Span,
    pub(crate) investigation: Span,
    pub(crate) restart: Span,
}

impl Costs {
    /// How long the DMA engine takes for some bytes.
    pub(crate) fn engine(&self, bytes: u64) -> Span {
        Span((u128::from(bytes) * u128::from(self.femtos_per_byte) / 1000) as u64)
    }

    /// How long whole lines occupy a link, with a header each, or the bus if that is slower.
    pub(crate) fn data(&self, bytes: u64) -> Span {
        Span((u128::from(bytes) * u128::from(self.data_femtos_per_byte) / 1000) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_start_is_the_sheets() {
        for (crossover, micros) in [(2_048, 3.2), (4_096, 3.8), (8_192, 4.8), (16_384, 7.0)] {
            let dma = DmaParameters { crossover_bytes: crossover, ..DmaParameters::default() };
            let start = Parameters { dma, ..Parameters::paper() }.dma_start_ns() / 1e3;
            assert!((start - micros).abs() <= 0.05, "{crossover}: {start}");
        }
    }

    #[test]
    fn tables_are_possible_and_survive_a_round_trip() {
        for table in [Parameters::paper(), Parameters::free()] {
            table.check().unwrap();
            let text = toml::to_string(&table).unwrap();
            assert_eq!(Parameters::from_toml(&text).unwrap(), table);
        }
    }

    #[test]
    fn what_is_not_physical_is_refused_by_name() {
        let refused = |text: &str| Parameters::from_toml(text).unwrap_err().to_string();
        let begins = |text: &str, start: &str| {
            let found = refused(text);
            assert!(found.starts_with(start), "{found}");
        };
        begins(
            "segment_bytes = 6",
            "parameters.segment_bytes is 6, but must be from 4 to 1099511627776, a multiple of 4",
        );
        begins("memory_bytes = 0", "parameters.memory_bytes is 0");
        begins("call_ns = -1", "parameters.call_ns is -1");
        begins("pio = { line_ns = nan }", "parameters.pio.line_ns is NaN");
        begins("pio = { outstanding = 65 }", "parameters.pio.outstanding is 65, but must be from 1 to 64");
        begins("pio = { fixed_ns = 100 }", "parameters.pio.fixed_ns is 100, but must be at least the 441.212 ns");
        begins("pio = { answer_ns = 500 }", "parameters.pio.answer_ns is 500, but must be at least");
        begins("pio = { read_ns = 1 }", "parameters.pio.read_ns is 1, but must be at least");
        begins("dma = { crossover_bytes = 100 }", "parameters.dma.crossover_bytes is 100");
        begins(
            "dma = { bandwidth_mb_s = 200 }",
            "parameters.dma.bandwidth_mb_s is 200, but must be at least the 278.3",
        );
        begins(
            "dma = { bandwidth_mb_s = 600 }",
            "parameters.dma.bandwidth_mb_s is 600, but must be at most the 528.0 MB/s that the bus carries",
        );
        begins("dma = { post_ns = 5000 }", "parameters.dma.post_ns is 5000, but must be at most");
        begins("dma = { alignment = 24 }", "parameters.dma.alignment is 24, but must be 4, 8, 16, 32 or 64");
        begins("dma = { chunk_bytes = 65 }", "parameters.dma.chunk_bytes is 65");
        begins("errors = { timeout_ns = 10 }", "parameters.errors.timeout_ns is 10");
        begins("conduit = { copy_mb_s = 0 }", "parameters.conduit.copy_mb_s is 0");
        begins("conduit = { poll_ns = inf }", "parameters.conduit.poll_ns is inf");
        begins("link = { bandwidth_mb_s = 0 }", "parameters.link.bandwidth_mb_s is 0");
        assert!(refused("pio = { lines = 3 }").contains("lines"));
    }
}
