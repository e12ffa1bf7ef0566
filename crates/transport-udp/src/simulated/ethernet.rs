//! The parameter table: what an Ethernet and the kernel's UDP cost, in virtual time.
//!
//! Tags say where a number comes from: \[S\] a standard, \[M\] measured on a 2-core server as the raw baselines
//! beside this transport's benchmarks are, \[A\] assumed, of the order that data sheets and measurements of such
//! parts have.

use am_core::Span;
use fabric_sim::{EmptyPoll, LinkParameters, NicParameters, Stage};

/// Bytes on the wire besides a datagram's payload: preamble 8, header 14, check sequence 4 and gap 12 (IEEE
/// 802.3), IPv4 header 20 (RFC 791), UDP header 8 (RFC 768). \[S\]
pub const WIRE_OVERHEAD: u32 = 8 + 14 + 4 + 12 + 20 + 8;

/// Payload of the largest datagram in a frame of 1500 bytes, without options. \[S\]
pub const STANDARD_DATAGRAM: u32 = 1500 - 20 - 8;

/// One kind of Ethernet with the hosts on it. Every host has one link to a switch, and packets take two.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ethernet {
    /// What it is called.
    pub name: &'static str,
    /// Rate of each direction of a link in MB/s (10^6 bytes).
    pub link_mb_s: f64,
    /// Latency of a link in nanoseconds: cable, both ends' serializers, half of a cut-through switch.
    pub link_ns: f64,
    /// Largest payload of a datagram in bytes.
    pub datagram: u32,
    /// Latency of the sending interface in nanoseconds: doorbell, fetching descriptor and data.
    pub interface_tx_ns: f64,
    /// Latency of the receiving interface in nanoseconds: writing to memory, interrupt.
    pub interface_rx_ns: f64,
    /// Time for which each datagram occupies the sending kernel, in nanoseconds, if it comes in a row (GSO).
    pub kernel_tx_ns: f64,
    /// The same of the receiving kernel (GRO).
    pub kernel_rx_ns: f64,
    /// What the host pays.
    pub host: HostCosts,
}

/// What the processor of a rank pays for datagrams, besides the kernel's share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostCosts {
    /// A system call that sends up to [`HostCosts::row`] datagrams.
    pub send: Span,
    /// A system call that receives as many.
    pub receive: Span,
    /// A system call that finds nothing.
    pub empty: Span,
    /// Datagrams that go with one system call.
    pub row: u32,
    /// Copying and encrypting a byte once, in picoseconds.
    pub byte_ps: u64,
    /// Handing a message over, or taking it.
    pub message: Span,
}

impl HostCosts {
    /// Nothing costs anything.
    pub const FREE: Self = Self {
        send: Span::ZERO,
        receive: Span::ZERO,
        empty: Span::from_nanos(100),
        row: 64,
        byte_ps: 0,
        message: Span::ZERO,
    };

    /// What a row of datagrams costs with one of the calls.
    pub(super) fn row_of(&self, call: Span, datagrams: u64, bytes: u64) -> Span {
        let calls = datagrams.div_ceil(u64::from(self.row.max(1)));
        Span(calls * call.picos() + bytes * self.byte_ps)
    }
}

/// A host whose application polls a non-blocking socket.
const HOST: HostCosts = HostCosts {
    // [M] 3.2 us one way over the loopback interface, which is a send, a receive and the path between them; the
    // split [A].
    send: Span::from_nanos(1_500),
    receive: Span::from_nanos(700),
    empty: Span::from_nanos(300),
    // [S] The most segments of one send on Linux (UDP_MAX_SEGMENTS).
    row: 64,
    // [M] AEGIS-128X2: 262 cycles of 2.3 GHz for 1400 bytes (`proto::seal`), 81 ps per byte; [A] a copy at 10
    // GB/s.
    byte_ps: 181,
    // [A] A header of about 30 bytes written or parsed.
    message: Span::from_nanos(40),
};

impl Ethernet {
    /// 10 Gbit/s.
    pub fn ten() -> Self {
        Self {
            name: "10 GbE",
            link_mb_s: 1_250.0, // [S] IEEE 802.3ae
            link_ns: 500.0,     // [A] 10 m of cable 50, serializers 150, half a switch 300
            datagram: STANDARD_DATAGRAM,
            interface_tx_ns: 900.0,   // [A] two crossings of PCIe
            interface_rx_ns: 1_100.0, // [A] one crossing, interrupt without moderation
            kernel_tx_ns: 130.0,      // [M] GSO stream of 1400-byte segments at 4.7 to 6.7 GB/s: 210 to 300 ns
            kernel_rx_ns: 130.0,      //     for both ends together
            host: HOST,
        }
    }

    /// 25 Gbit/s.
    pub fn twenty_five() -> Self {
        // [S] IEEE 802.3by; [A] forward error correction costs what the faster switch saves.
        Self { name: "25 GbE", link_mb_s: 3_125.0, link_ns: 500.0, ..Self::ten() }
    }

    /// 100 Gbit/s.
    pub fn hundred() -> Self {
        // [S] IEEE 802.3bj; [A] as before, and interfaces of that age cross PCIe faster.
        let interface = Self { interface_tx_ns: 600.0, interface_rx_ns: 800.0, ..Self::ten() };
        Self { name: "100 GbE", link_mb_s: 12_500.0, link_ns: 450.0, ..interface }
    }

    /// The same with jumbo frames of 9000 bytes.
    pub fn jumbo(self) -> Self {
        Self { datagram: 9000 - 20 - 8, ..self }
    }

    /// A network of 10 us without costs, for tests of behaviour.
    pub fn ideal() -> Self {
        Self {
            name: "ideal",
            link_mb_s: f64::INFINITY,
            link_ns: 5_000.0,
            datagram: STANDARD_DATAGRAM,
            interface_tx_ns: 0.0,
            interface_rx_ns: 0.0,
            kernel_tx_ns: 0.0,
            kernel_rx_ns: 0.0,
            host: HostCosts::FREE,
        }
    }

    /// The table of the simulated fabric. Processors pay through [`HostCosts`], so its host stages are empty.
    pub fn nic(&self) -> NicParameters {
        let stage = |fixed_ns, per_unit_ns| Stage { fixed_ns, per_unit_ns, unit_bytes: 65_536, ..Stage::NONE };
        NicParameters {
            name: self.name.into(),
            header_bytes: WIRE_OVERHEAD,
            nic_tx: stage(self.interface_tx_ns, self.kernel_tx_ns),
            nic_rx: stage(self.interface_rx_ns, self.kernel_rx_ns),
            empty_poll: EmptyPoll { ns: self.host.empty.picos().max(1) as f64 / 1e3 },
            link: LinkParameters { bandwidth_mb_s: self.link_mb_s, latency_ns: self.link_ns },
            ..NicParameters::default()
        }
    }
}
