//! The parameter tables: what an EXTOLL interface and its links cost, as plain data that a user can read from
//! TOML.
//!
//! Every figure names where it comes from. \[S\]: the source papers (the EXTOLL conduit paper, the report on
//! pscom's EXTOLL plugin); \[C\]: read in a public driver or header; \[P\]: other published material; \[D\]:
//! derived from those by arithmetic; \[F\]: fitted to them; \[A\]: assumed; \[R\]: recalled and not verified, so
//! that no test rests on it.
//!
//! The totals that the tables keep, between two nodes that are neighbours:
//!
//! | what | total | from |
//! |---|---|---|
//! | VELO, a packet from the call to the receiver's hands | 0.337 + 1.106 + 0.457 = 1.900 us | \[F\]: with 0.90 us of software it is the measured 2.80 us |
//! | VELO, each further packet of a stream | 0.457 us | \[F\] |
//! | RMA, a put of up to 64 bytes until it is noticed | 0.5 + 2.0 + 0.6 = 3.100 us | \[A\] split; with 1.2 us of software the measured 4.3 us |
//! | RMA, fragment i of a put after its first | 0.30 min(i, 8) + 0.0727 max(0, i - 8) us | \[F\]: 6.7 us for 512 bytes; on the cluster two copies of 16 ns \[A\] are a part of it |
//! | RMA, saturated link | 64 of every 79 bytes: 880 of 1086 MB/s | \[S\], header \[F\] |
//!
//! What is marked \[F\] is computed by [`fit`](fit::fit()) from a declared training set, and a test holds the
//! tables to it.

pub mod fit;

use am_core::Span;
use fabric_sim::parameters::{self, Checker};
use fabric_sim::{ConfigError, EmptyPoll, LinkParameters, NicParameters, PortParameters, Stage};
use serde::{Deserialize, Serialize};

/// What an EXTOLL interface, its links and the software right above it cost. Fields that a file leaves out are
/// those of [`Parameters::cluster`].
///
/// ```
/// use extoll_sim::model::Parameters;
///
/// let mine = Parameters::from_toml("
///     name = 'mine'
///     link = { bandwidth_mb_s = 1250, latency_ns = 100 }
///     velo = { receive_ns = 300 }
/// ").unwrap();
/// assert_eq!(mine.velo.send_ns, Parameters::cluster().velo.send_ns);
///
/// let error = Parameters::from_toml("velo = { mtu = 96 }").unwrap_err();
/// assert_eq!(error.to_string(), "parameters.velo.mtu is 96, but must be 64 (FPGA) or 120 (ASIC)");
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
    /// What a look costs that finds nothing, in nanoseconds, at least 0.001.
    pub empty_poll_ns: f64,
    /// The unit for small messages.
    pub velo: VeloParameters,
    /// The unit for remote memory access.
    pub rma: RmaParameters,
    /// How lost packets are repaired when the links do not do it.
    pub retry: RetryParameters,
    /// The software of the pscom plugin.
    pub pscom: PscomParameters,
}

/// The VELO unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VeloParameters {
    /// Largest message in bytes: 64 on the FPGA, 120 usable on the ASIC.
    pub mtu: u32,
    /// Size of each mailbox ring in segments of 64 KB, 1 to 512.
    pub segments: u32,
    /// Bytes that a packet has on the wire besides its own.
    pub header_bytes: u32,
    /// The processor's part of sending a packet (o_s), in nanoseconds.
    pub send_ns: f64,
    /// The processor's part of receiving one (o_r), for each 64 bytes begun, in nanoseconds.
    pub receive_ns: f64,
    /// The sending interface, shared by the ranks of a node.
    pub tx: Stage,
    /// The receiving interface, up to the status word in the mailbox.
    pub rx: Stage,
}

/// The RMA unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RmaParameters {
    /// Processes of a node that may open the unit, 0 to 256; with 0 there is no such unit.
    pub ports: u32,
    /// Commands that a port may have outstanding before posting fails, at least 1.
    pub descriptors: u32,
    /// Entries of a notification queue, at least 1.
    pub notifications: u32,
    /// Pages that the translation table of a node holds, at least 1.
    pub pages: u32,
    /// Payload of a wire fragment in bytes, 8 to 4096, a multiple of 8.
    pub fragment_bytes: u32,
    /// Header of a wire fragment in bytes.
    pub fragment_header_bytes: u32,
    /// Fragments that the simulation moves as one packet once a transfer streams, 1 to 64: its grain, not the
    /// machine's. Others pass between the fragments, and the replay window counts each.
    pub burst: u32,
    /// The processor's part of posting a command, in nanoseconds.
    pub post_ns: f64,
    /// The processor's part of noticing that something has come, in nanoseconds.
    pub receive_ns: f64,
    /// Registering memory or ending that, besides its pages, in nanoseconds.
    pub register_ns: f64,
    /// Registering 4 KiB of memory, which are pinned, in nanoseconds.
    pub register_page_ns: f64,
    /// Address translation at each side, in nanoseconds.
    pub translate_ns: f64,
    /// The sending interface; one unit is a fragment.
    pub tx: Stage,
    /// The receiving interface, up to the last byte in memory.
    pub rx: Stage,
    /// The first fragments of a transfer come later than the link could take them: so many ...
    pub ramp_fragments: u32,
    /// ... at this distance, in nanoseconds.
    pub ramp_ns: f64,
}

/// The repair of lost packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryParameters {
    /// How long a sender waits for a sign of the receiver before it sets the retry flag itself, in nanoseconds, at
    /// least 1. Every fruitless retry doubles it.
    pub timeout_ns: f64,
    /// From a retry flag, once the sender is idle, to sending again, in nanoseconds.
    pub idle_ns: f64,
    /// Retries without progress after which the sender gives a receiver up, 1 to 40.
    pub limit: u32,
}

/// What the pscom plugin costs above the interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PscomParameters {
    /// A message over VELO, sender and receiver together, in nanoseconds.
    pub velo_software_ns: f64,
    /// Entering the reassembly of a message of several packets, in nanoseconds.
    pub velo_reassembly_ns: f64,
    /// A message over RMA, sender and receiver together, in nanoseconds.
    pub rma_software_ns: f64,
    /// Copying 64 bytes to or from a buffer of a ring, after the first 64, in nanoseconds.
    pub copy_line_ns: f64,
}

impl Parameters {
    /// The cluster of the conduit paper: 64 nodes of 16 cores with FPGA interfaces and 625 MB/s links.
    pub fn cluster() -> Self {
        Self {
            name: "EXTOLL cluster (FPGA)".into(),
            link: LinkParameters {
                // [D] FPGA data path of 156 MHz x 32 bit = 624 MB/s; matches [S] 625 MB/s links.
                bandwidth_mb_s: 624.0,
                // [A] about 0.3 us per hop.
                latency_ns: 300.0,
            },
            // [D] the same data path, which all links and both units of a node share.
            port: PortParameters::of(624.0),
            // [A] one read of uncached-to-cached status; it must only be above zero.
            empty_poll_ns: 50.0,
            velo: VeloParameters {
                // [S, C] the FPGA's MTU.
                mtu: 64,
                // [C] segments of 64 KB; one is the default.
                segments: 1,
                // [A] header, routing and check bytes of a VELO packet.
                header_bytes: 16,
                // [F] o_s and o_r from 160 MB/s of bidirectional 8 KB and the slope of the latency table.
                send_ns: 336.656,
                receive_ns: 457.143,
                // [D] 80 bytes on the wire at 624 MB/s occupy the unit for 128.2 ns. [F] the fixed part: what is
                // left of 1.106 us after the hop (300), the link (128.2) and the occupancy (128.2), [A] all of it
                // spent at the sender.
                tx: velo_stage(549.796),
                rx: Stage::NONE,
            },
            rma: RmaParameters {
                // [C] 8 bits of vpid.
                ports: 256,
                // [A] descriptors per port.
                descriptors: 1024,
                // [C] 256 KB of 16-byte entries.
                notifications: 16_384,
                // [A] 1 GB in pages of 4 KB.
                pages: 262_144,
                // [S] 64-byte wire fragments.
                fragment_bytes: 64,
                // [F] 64 / (64 + 15) of 1086 MB/s are 880 MB/s.
                fragment_header_bytes: 15,
                // The simulation's grain: 1 KB.
                burst: 16,
                // [A] the split of 4.3 us: send 0.5, interface and wire 1.6, translation 0.4, receive 0.6,
                // software 1.2.
                post_ns: 500.0,
                receive_ns: 600.0,
                // [S] "expensive"; [A] a system call, and 1 us a page as on Portals.
                register_ns: 1_000.0,
                register_page_ns: 1_000.0,
                // [A] half of 0.4 us.
                translate_ns: 200.0,
                // [F] 64 bytes at 880 MB/s: 72.7 ns per fragment; the fixed part: half of what is left of 1.6 us
                // after the hop (300), the link (126.6) and the two occupancies (145.5).
                tx: rma_stage(513.971),
                rx: rma_stage(513.971),
                // [F] the curves of VELO and RMA cross above 512 bytes, so that both take 6.7 us there: 0.30 us
                // for each of eight fragments [A] after the first, less two copies.
                ramp_fragments: 8,
                ramp_ns: 268.0,
            },
            retry: RetryParameters {
                // [A] several round trips of the slowest command.
                timeout_ns: 50_000.0,
                // [A] waiting for the sender to be idle and rewriting the first packet.
                idle_ns: 1_000.0,
                // [A] 50 us doubled 14 times are 0.8 s; of packets that are lost one in ten, one in 10^10 is given
                // up.
                limit: 14,
            },
            pscom: PscomParameters {
                // [A] what is left of the measured 2.80 us.
                velo_software_ns: 900.0,
                // [F] the step from one to two packets is 0.243 us more than the slope.
                velo_reassembly_ns: 242.857,
                // [A] what is left of the measured 4.3 us.
                rma_software_ns: 1_200.0,
                // [A] 64 bytes at 4 GB/s, as the conduit's copies.
                copy_line_ns: 16.0,
            },
        }
    }

    /// The DEEP evaluator, on which the report on pscom's plugin measured: the same interface with faster links.
    pub fn deep() -> Self {
        let cluster = Self::cluster();
        Self {
            name: "DEEP evaluator (FPGA)".into(),
            // [S] 1086 MB/s per direction; [A] the hop.
            link: LinkParameters { bandwidth_mb_s: 1086.0, latency_ns: 300.0 },
            // [A] a data path as fast as a link: 880 MB/s of payload were measured in both directions at once [S].
            port: PortParameters::of(1086.0),
            velo: VeloParameters {
                // [F] as in the cluster, with 73.7 ns on the link.
                tx: velo_stage(604.337),
                ..cluster.velo
            },
            rma: RmaParameters {
                // [F] as in the cluster, with 72.7 ns on the link.
                tx: rma_stage(540.901),
                rx: rma_stage(540.901),
                // [F] 0.30 us: what is measured there includes the copies.
                ramp_ns: 300.0,
                ..cluster.rma
            },
            pscom: PscomParameters {
                // [F] the measured totals include the copies.
                copy_line_ns: 0.0,
                ..cluster.pscom
            },
            ..cluster
        }
    }

    /// The ASIC: larger packets, 600 ns from end to end, more than 100 million messages a second.
    pub fn asic() -> Self {
        let cluster = Self::cluster();
        Self {
            name: "EXTOLL ASIC".into(),
            // [R] 12 lanes of 8.4 Gbit/s: about 12 GB/s on the wire. [A] the hop.
            link: LinkParameters { bandwidth_mb_s: 12_000.0, latency_ns: 60.0 },
            // [A] as fast as a link.
            port: PortParameters::of(12_000.0),
            empty_poll_ns: 20.0,
            velo: VeloParameters {
                // [C] 120 bytes of 128 are used.
                mtu: 120,
                // [A] the split of 600 ns [P]: 50 + 430 + 120 for a packet of 64 bytes.
                send_ns: 50.0,
                receive_ns: 120.0,
                // [P] above 100 million messages a second: at most 10 ns for each.
                tx: Stage { per_unit_ns: 8.0, unit_bytes: 64, ..Stage::latency(355.3) },
                ..cluster.velo
            },
            rma: RmaParameters {
                // [A] three times as long as VELO for a put, as on the FPGA; fragments at link speed.
                post_ns: 100.0,
                receive_ns: 120.0,
                translate_ns: 80.0,
                tx: Stage { per_unit_ns: 6.6, unit_bytes: 64, ..Stage::latency(200.0) },
                rx: Stage { per_unit_ns: 6.6, unit_bytes: 64, ..Stage::latency(200.0) },
                ramp_ns: 20.0,
                ..cluster.rma
            },
            retry: RetryParameters { timeout_ns: 10_000.0, idle_ns: 200.0, ..cluster.retry },
            // [A] the same software on a processor of its time.
            pscom: PscomParameters {
                velo_software_ns: 300.0,
                velo_reassembly_ns: 70.0,
                rma_software_ns: 400.0,
                copy_line_ns: 5.0,
            },
        }
    }

    /// The FPGA interface with every time at zero: what remains is the semantics.
    pub fn free() -> Self {
        let cluster = Self::cluster();
        Self {
            name: "EXTOLL without cost".into(),
            link: LinkParameters::default(),
            port: PortParameters::default(),
            // The least that lets spinning pass the time.
            empty_poll_ns: 1.0,
            velo: VeloParameters {
                send_ns: 0.0,
                receive_ns: 0.0,
                tx: Stage::NONE,
                rx: Stage::NONE,
                ..cluster.velo
            },
            rma: RmaParameters {
                register_ns: 0.0,
                register_page_ns: 0.0,
                post_ns: 0.0,
                receive_ns: 0.0,
                translate_ns: 0.0,
                tx: Stage::NONE,
                rx: Stage::NONE,
                ramp_ns: 0.0,
                ..cluster.rma
            },
            retry: cluster.retry,
            pscom: PscomParameters {
                velo_software_ns: 0.0,
                velo_reassembly_ns: 0.0,
                rma_software_ns: 0.0,
                copy_line_ns: 0.0,
            },
        }
    }

    /// The names of the built-in tables.
    pub const BUILT_IN: [&str; 4] = ["cluster", "deep", "asic", "free"];

    /// A built-in table.
    ///
    /// ```
    /// use extoll_sim::model::Parameters;
    /// assert_eq!(Parameters::named("deep").unwrap(), Parameters::deep());
    /// let error = Parameters::named("myrinet").unwrap_err();
    /// assert_eq!(error.to_string(), "parameters is myrinet, but must be one of cluster, deep, asic, free");
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`] lists the names that there are.
    pub fn named(name: &str) -> Result<Self, ConfigError> {
        parameters::named(name, Self::BUILT_IN, [Self::cluster, Self::deep, Self::asic, Self::free])
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

    /// The links, as the network wants them; the stages are the interface's own.
    pub(crate) fn network(&self) -> NicParameters {
        NicParameters {
            name: self.name.clone(),
            ordered: true,
            empty_poll: EmptyPoll { ns: self.empty_poll_ns },
            link: self.link,
            port: self.port,
            // What travels as one packet of the simulation is several of the machine's, between which others pass.
            packet_bytes: (self.rma.fragment_bytes + self.rma.fragment_header_bytes)
                .max(self.velo.mtu + self.velo.header_bytes),
            ..NicParameters::default()
        }
    }

    /// How long a fragment takes on the slower of a link and the way out of the interface: the unit does not fill
    /// up what others want to use, too.
    pub(crate) fn fragment_on_wire(&self) -> Span {
        let bytes = f64::from(self.rma.fragment_bytes + self.rma.fragment_header_bytes);
        let mb_s = self.link.bandwidth_mb_s.min(self.port.injection_mb_s);
        Span((bytes * 1e6 / mb_s).round() as u64)
    }

    pub(crate) fn compile(&self) -> Result<Costs, ConfigError> {
        let (velo, rma, retry) = (&self.velo, &self.rma, &self.retry);
        let table = Checker::of("parameters");
        let time = |field: &str, nanos: f64| table.time(field, nanos);
        if ![64, 120].contains(&velo.mtu) {
            return Err(table.refuse("velo.mtu", velo.mtu, "64 (FPGA) or 120 (ASIC)"));
        }
        for (field, value, limits) in [
            ("velo.segments", velo.segments, 1..=512),
            ("velo.header_bytes", velo.header_bytes, 0..=1 << 16),
            ("rma.ports", rma.ports, 0..=256),
            ("rma.descriptors", rma.descriptors, 1..=1 << 24),
            ("rma.notifications", rma.notifications, 1..=1 << 24),
            ("rma.pages", rma.pages, 1..=1 << 26),
            ("rma.fragment_bytes", rma.fragment_bytes, 8..=4096),
            ("rma.fragment_header_bytes", rma.fragment_header_bytes, 0..=1 << 16),
            ("rma.burst", rma.burst, 1..=64),
            ("rma.ramp_fragments", rma.ramp_fragments, 0..=1 << 16),
            ("retry.limit", retry.limit, 1..=40),
        ] {
            table.within(field, value, limits)?;
        }
        if !rma.fragment_bytes.is_multiple_of(8) {
            return Err(table.refuse("rma.fragment_bytes", rma.fragment_bytes, "a multiple of 8"));
        }
        table.stage("velo.tx", &velo.tx)?;
        table.stage("velo.rx", &velo.rx)?;
        table.times([
            ("pscom.velo_software_ns", self.pscom.velo_software_ns),
            ("pscom.velo_reassembly_ns", self.pscom.velo_reassembly_ns),
            ("pscom.rma_software_ns", self.pscom.rma_software_ns),
            ("pscom.copy_line_ns", self.pscom.copy_line_ns),
        ])?;
        let timeout = time("retry.timeout_ns", retry.timeout_ns)?;
        if timeout < Span::from_nanos(1) {
            return Err(table.refuse("retry.timeout_ns", retry.timeout_ns, "at least 1 ns"));
        }
        Ok(Costs {
            velo_send: time("velo.send_ns", velo.send_ns)?,
            velo_receive: time("velo.receive_ns", velo.receive_ns)?,
            rma_post: time("rma.post_ns", rma.post_ns)?,
            register: time("rma.register_ns", rma.register_ns)?,
            register_page: time("rma.register_page_ns", rma.register_page_ns)?,
            rma_receive: time("rma.receive_ns", rma.receive_ns)?,
            translate: time("rma.translate_ns", rma.translate_ns)?,
            ramp: time("rma.ramp_ns", rma.ramp_ns)?,
            tx_gap: table.stage("rma.tx", &rma.tx)?,
            rx_gap: table.stage("rma.rx", &rma.rx)?,
            timeout,
            idle: time("retry.idle_ns", retry.idle_ns)?,
        })
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Self::cluster()
    }
}

fabric_sim::default_parts!(Parameters {
    velo: VeloParameters,
    rma: RmaParameters,
    retry: RetryParameters,
    pscom: PscomParameters
});

fn velo_stage(fixed_ns: f64) -> Stage {
    Stage { per_unit_ns: 128.2, unit_bytes: 64, ..Stage::latency(fixed_ns) }
}

fn rma_stage(fixed_ns: f64) -> Stage {
    Stage { per_unit_ns: 72.727, unit_bytes: 64, ..Stage::latency(fixed_ns) }
}

/// The processors' and units' times in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub(crate) velo_send: Span,
    pub(crate) velo_receive: Span,
    pub(crate) rma_post: Span,
    pub(crate) register: Span,
    pub(crate) register_page: Span,
    pub(crate) rma_receive: Span,
    pub(crate) translate: Span,
    pub(crate) ramp: Span,
    pub(crate) tx_gap: Span,
    pub(crate) rx_gap: Span,
    pub(crate) timeout: Span,
    pub(crate) idle: Span,
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let refused = |text: &str| Parameters::from_toml(text).unwrap_err().to_string();
        for (text, wanted) in [
            ("velo = { mtuu = 64 }", "mtuu"),
            ("vello = {}", "vello"),
            ("velo = { segments = 513 }", "parameters.velo.segments is 513, but must be from 1 to 512"),
            ("velo = { send_ns = -1 }", "parameters.velo.send_ns is -1, but must be a finite number"),
            ("velo = { receive_ns = nan }", "parameters.velo.receive_ns is NaN"),
            ("velo = { tx = { fixed_ns = inf } }", "parameters.velo.tx.fixed_ns is inf"),
            ("velo = { rx = { unit_bytes = 0 } }", "parameters.velo.rx.unit_bytes is 0, but must be at least 1"),
            ("rma = { tx = { depth = 0 } }", "parameters.rma.tx.depth is 0"),
            ("rma = { rx = { per_unit_ns = -3 } }", "parameters.rma.rx.per_unit_ns is -3"),
            ("rma = { ports = 257 }", "parameters.rma.ports is 257, but must be from 0 to 256"),
            ("rma = { descriptors = 0 }", "parameters.rma.descriptors is 0"),
            ("rma = { notifications = 0 }", "parameters.rma.notifications is 0"),
            ("rma = { pages = 0 }", "parameters.rma.pages is 0"),
            ("rma = { fragment_bytes = 4 }", "parameters.rma.fragment_bytes is 4, but must be from 8 to 4096"),
            ("rma = { fragment_bytes = 60 }", "parameters.rma.fragment_bytes is 60, but must be a multiple of 8"),
            ("rma = { register_page_ns = -1 }", "parameters.rma.register_page_ns is -1"),
            ("rma = { burst = 65 }", "parameters.rma.burst is 65"),
            ("rma = { ramp_ns = -0.5 }", "parameters.rma.ramp_ns is -0.5"),
            ("rma = { translate_ns = 1e300 }", "parameters.rma.translate_ns is 1"),
            ("retry = { timeout_ns = 0 }", "parameters.retry.timeout_ns is 0, but must be at least 1 ns"),
            ("retry = { limit = 41 }", "parameters.retry.limit is 41, but must be from 1 to 40"),
            ("pscom = { rma_software_ns = -1 }", "parameters.pscom.rma_software_ns is -1"),
        ] {
            let error = refused(text);
            assert!(error.contains(wanted), "{text}: {error}");
        }
        // The network's own part of the table is checked with the rest of the configuration.
        let config = |text: &str| {
            let text = format!("ranks = 2\ntopology = {{ kind = 'direct', nodes = 2 }}\n{text}");
            crate::ExtollConfig::from_toml(&text).unwrap_err().to_string()
        };
        assert!(config("parameters = { link = { bandwidth_mb_s = 0 } }").contains("link.bandwidth_mb_s is 0"));
        assert!(config("parameters = { port = { ejection_mb_s = 0 } }").contains("port.ejection_mb_s is 0"));
        assert!(config("parameters = { empty_poll_ns = 0 }").contains("parameters.empty_poll_ns is 0"));
        assert!(config("adversary = { jitter_ns = -1 }").contains("adversary.jitter_ns is -1"));
        assert!(config("faults = { reordering = 0.1 }").contains("contradicts"));
        assert!(config("testing = { defects = 1 }").contains("testing"));
        assert!(config("ranks_per_node = 257").contains("ranks_per_node is 257, but must be at most 256"));
    }
}
