//! The parameter table: what messages cost, in the terms of LogGP and LogGOPS.
//!
//! A message of `s` bytes occupies the sending processor for `o_s + (s - 1) O`, the sending interface for
//! `g + (s - 1) G`, and the receiving interface and processor likewise; its last byte arrives at the earliest
//! `L + (s - 1) G` after it has left, besides what the links take (Alexandrov, Ionescu, Schauser and Scheiman,
//! 1995; Hoefler, Schneider and Lumsdaine, 2010). Messages longer than the eager limit wait for their receiver's
//! interface to say that they may come (Ino, Fujimoto and Hagihara, 2001).

use am_core::Span;
use fabric_sim::parameters::{self, Checker};
use fabric_sim::{ConfigError, EmptyPoll, LinkParameters, NicParameters, Stage};
use serde::{Deserialize, Serialize};

/// What an interface of one's own costs and can do. Fields that a file leaves out are those of
/// [`Parameters::default`].
///
/// ```
/// use machine_sim::model::Parameters;
///
/// let table = Parameters::from_toml("
///     latency_ns = 600
///     eager_bytes = 8192
///     link = { bandwidth_mb_s = 12500, latency_ns = 100 }
///     sizes = [
///         { up_to = 256, send_ns = 150, receive_ns = 150, gap_ns = 20, gap_per_byte_ns = 0.08 },
///         { send_ns = 250, receive_ns = 300, gap_ns = 20, gap_per_byte_ns = 0.08 },
///     ]
/// ").unwrap();
/// assert_eq!(table.sizes[1].up_to, None);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Parameters {
    /// What is described, for reports.
    pub name: String,
    /// The latency L between two interfaces in nanoseconds, besides that of the links.
    pub latency_ns: f64,
    /// What messages cost, by their size: the first class that a message fits counts. The last one takes messages
    /// of any size.
    pub sizes: Vec<SizeClass>,
    /// Longer messages wait for their receiver's interface before they are sent (rendezvous), in bytes; without it
    /// none do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eager_bytes: Option<u64>,
    /// What a node's data path takes from its ranks together, in MB/s; no limit unless given.
    pub injection_mb_s: f64,
    /// What a node's data path gives to its ranks together, in MB/s; no limit unless given.
    pub ejection_mb_s: f64,
    /// Header of every packet on the links, in bytes, at most 4096.
    pub header_bytes: u32,
    /// Payload of the longest packet in bytes, 16 to 2^30. Links are shared packet by packet; a message that is
    /// one packet costs the fewest events.
    pub packet_bytes: u32,
    /// What a look that finds nothing costs, in nanoseconds, at least 0.001.
    pub empty_poll_ns: f64,
    /// Taking and leaving the lock of an interface, once for each call that sends and each message that is
    /// taken, in nanoseconds: where a process has several threads. Nobody waits for it.
    pub lock_ns: f64,
    /// Making a page of 4 KiB known to the interface, in nanoseconds.
    pub register_page_ns: f64,
    /// Learning the address of one other rank when a rank joins the job, in nanoseconds.
    pub exchange_ns: f64,
    /// What messages between ranks of a node cost, if they do not go through the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<SharedMemory>,
    /// The links.
    pub link: LinkParameters,
    /// Which one-sided operations the interface does without its processor.
    pub native: Native,
    /// What happens where links lose packets.
    pub retry: RetryParameters,
}

/// The costs of messages of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeClass {
    /// The longest messages of the class in bytes; the last class has no such limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to: Option<u64>,
    /// The sending processor's overhead o_s in nanoseconds.
    pub send_ns: f64,
    /// The receiving processor's overhead o_r in nanoseconds.
    pub receive_ns: f64,
    /// The gap g between two messages at an interface in nanoseconds.
    #[serde(default)]
    pub gap_ns: f64,
    /// The gap G per byte in nanoseconds: the reciprocal of the bandwidth that one rank gets.
    #[serde(default)]
    pub gap_per_byte_ns: f64,
    /// The processors' overhead O per byte in nanoseconds, for instance of a copy.
    #[serde(default)]
    pub overhead_per_byte_ns: f64,
}

/// Messages between ranks of a node through memory: none of them passes the interface, waits for another, or asks
/// first however long it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedMemory {
    /// The sending processor's overhead in nanoseconds.
    pub send_ns: f64,
    /// The receiving processor's overhead in nanoseconds.
    pub receive_ns: f64,
    /// From the one to the other, in nanoseconds.
    #[serde(default)]
    pub latency_ns: f64,
    /// Each processor's copy of a byte after the first, in nanoseconds.
    #[serde(default)]
    pub copy_per_byte_ns: f64,
}

/// The one-sided operations of an interface. What it does not do travels as active messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Native {
    /// Writes to a peer's memory.
    pub put: bool,
    /// Reads of a peer's memory.
    pub get: bool,
    /// Atomic operations on a peer's memory.
    pub atomics: bool,
    /// Operations under way at a time, 1 to 2^20.
    pub operations: u32,
}

impl Default for Native {
    fn default() -> Self {
        Self { put: true, get: true, atomics: true, operations: 64 }
    }
}

/// How lost packets are sent again. Nothing of this costs anything where links repair what they lose, or lose
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryParameters {
    /// How long a sender waits for an acknowledgement, in nanoseconds, at least 1; every fruitless wait doubles
    /// it, up to 64 times.
    pub timeout_ns: f64,
    /// Packets under way to a peer that are not acknowledged, 1 to 65,536; more wait.
    pub window: u32,
    /// Fruitless attempts in a row after which the peer counts as lost, 1 to 1000.
    pub limit: u32,
}

impl Default for RetryParameters {
    fn default() -> Self {
        Self { timeout_ns: 50_000.0, window: 256, limit: 40 }
    }
}

impl Default for Parameters {
    /// One microsecond from processor to processor for a small message, and 10 GB/s: no machine, but one that is
    /// easy to reckon with.
    fn default() -> Self {
        Self {
            name: "generic".into(),
            latency_ns: 500.0,
            sizes: vec![SizeClass {
                up_to: None,
                send_ns: 250.0,
                receive_ns: 250.0,
                gap_ns: 50.0,
                gap_per_byte_ns: 0.1,
                overhead_per_byte_ns: 0.0,
            }],
            eager_bytes: None,
            injection_mb_s: f64::INFINITY,
            ejection_mb_s: f64::INFINITY,
            header_bytes: 0,
            packet_bytes: 4096,
            empty_poll_ns: 20.0,
            lock_ns: 0.0,
            register_page_ns: 0.0,
            exchange_ns: 0.0,
            shared_memory: None,
            link: LinkParameters::default(),
            native: Native::default(),
            retry: RetryParameters::default(),
        }
    }
}

const MOST_CLASSES: usize = 64;

impl Parameters {
    /// Messages that cost nothing, for semantics without times. Looks that find nothing take a picosecond, so that
    /// spinning passes the time.
    pub fn free() -> Self {
        Self {
            name: "free".into(),
            latency_ns: 0.0,
            sizes: vec![SizeClass::default()],
            empty_poll_ns: 0.001,
            ..Self::default()
        }
    }

    /// Pure LogGP: one class of messages, whatever their size.
    pub fn loggp(latency_ns: f64, overhead_ns: f64, gap_ns: f64, gap_per_byte_ns: f64) -> Self {
        let class = SizeClass {
            send_ns: overhead_ns,
            receive_ns: overhead_ns,
            gap_ns,
            gap_per_byte_ns,
            ..SizeClass::default()
        };
        Self { name: "LogGP".into(), latency_ns, sizes: vec![class], packet_bytes: 1 << 30, ..Self::default() }
    }

    /// Reads a table from TOML and checks it.
    ///
    /// # Errors
    /// [`ConfigError`] names an unknown field, or the first value that is not possible and its limit.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        parameters::from_toml(text, |table: &Self| table.compile().map(drop))
    }

    /// The network's part of the table.
    pub(crate) fn network(&self) -> NicParameters {
        NicParameters {
            name: self.name.clone(),
            header_bytes: self.header_bytes,
            // The interface itself brings what has overtaken in order.
            ordered: false,
            empty_poll: EmptyPoll { ns: self.empty_poll_ns },
            link: self.link,
            ..NicParameters::default()
        }
    }

    /// The data paths of a node, as stages: out of it, and into it.
    pub(crate) fn stages(&self) -> [Stage; 2] {
        [self.injection_mb_s, self.ejection_mb_s].map(|rate| Stage { per_unit_ns: 1e3 / rate, ..Stage::NONE })
    }

    pub(crate) fn compile(&self) -> Result<Costs, ConfigError> {
        let table = Checker::of("parameters");
        if self.sizes.is_empty() || self.sizes.len() > MOST_CLASSES {
            let limit = format!("a list of 1 to {MOST_CLASSES} classes");
            return Err(table.refuse("sizes", format!("{} classes", self.sizes.len()), limit));
        }
        let mut classes = Vec::with_capacity(self.sizes.len());
        let mut least = 0;
        for (index, class) in self.sizes.iter().enumerate() {
            let field = |name: &str| format!("sizes[{index}].{name}");
            let last = index + 1 == self.sizes.len();
            let up_to = match class.up_to {
                None if !last => {
                    return Err(table.refuse(&field("up_to"), "missing", "given in all classes but the last"));
                }
                Some(up_to) if up_to < least || up_to == u64::MAX => {
                    return Err(table.refuse(
                        &field("up_to"),
                        up_to,
                        format!("at least {least}, above the class before"),
                    ));
                }
                Some(up_to) if last => {
                    return Err(table.refuse(
                        &field("up_to"),
                        up_to,
                        "left out in the last class, which has no limit",
                    ));
                }
                up_to => up_to.unwrap_or(u64::MAX),
            };
            least = up_to.saturating_add(1);
            let femtos = |name: &str, nanos: f64| {
                if (0.0..=1e9).contains(&nanos) {
                    return Ok((nanos * 1e6).round() as u64);
                }
                Err(table.refuse(&field(name), nanos, "a number of nanoseconds from 0 to 1e9"))
            };
            classes.push(Class {
                up_to,
                send: table.time(&field("send_ns"), class.send_ns)?,
                receive: table.time(&field("receive_ns"), class.receive_ns)?,
                gap: table.time(&field("gap_ns"), class.gap_ns)?,
                gap_per_byte: femtos("gap_per_byte_ns", class.gap_per_byte_ns)?,
                overhead_per_byte: femtos("overhead_per_byte_ns", class.overhead_per_byte_ns)?,
            });
        }
        for (field, value, limits) in [
            ("header_bytes", self.header_bytes, 0..=4096),
            ("packet_bytes", self.packet_bytes, 16..=1 << 30),
            ("native.operations", self.native.operations, 1..=1 << 20),
            ("retry.window", self.retry.window, 1..=1 << 16),
            ("retry.limit", self.retry.limit, 1..=1000),
        ] {
            table.within(field, value, limits)?;
        }
        for (field, rate) in [
            ("injection_mb_s", self.injection_mb_s),
            ("ejection_mb_s", self.ejection_mb_s),
            ("link.bandwidth_mb_s", self.link.bandwidth_mb_s),
        ] {
            table.bandwidth(field, rate)?;
        }
        table.time("link.latency_ns", self.link.latency_ns)?;
        let empty_poll = table.some_time("empty_poll_ns", self.empty_poll_ns)?;
        let local = self.shared_memory.map(|memory| memory.compile(&table)).transpose()?;
        let timeout = table.time("retry.timeout_ns", self.retry.timeout_ns)?;
        if timeout < Span::from_nanos(1) {
            return Err(table.refuse("retry.timeout_ns", self.retry.timeout_ns, "at least 1 ns"));
        }
        Ok(Costs {
            latency: table.time("latency_ns", self.latency_ns)?,
            classes,
            eager: self.eager_bytes.unwrap_or(u64::MAX),
            packet: self.packet_bytes,
            link_femtos: (1e9 / self.link.bandwidth_mb_s).round() as u64,
            empty_poll,
            lock: table.time("lock_ns", self.lock_ns)?,
            register_page: table.time("register_page_ns", self.register_page_ns)?,
            exchange: table.time("exchange_ns", self.exchange_ns)?,
            local,
            timeout,
        })
    }
}

impl SharedMemory {
    fn compile(&self, table: &Checker) -> Result<Local, ConfigError> {
        let field = |name: &str| format!("shared_memory.{name}");
        let copy = self.copy_per_byte_ns;
        if !(0.0..=1e9).contains(&copy) {
            let limit = "a number of nanoseconds from 0 to 1e9";
            return Err(table.refuse(&field("copy_per_byte_ns"), copy, limit));
        }
        let class = Class {
            up_to: u64::MAX,
            send: table.time(&field("send_ns"), self.send_ns)?,
            receive: table.time(&field("receive_ns"), self.receive_ns)?,
            gap: Span::ZERO,
            gap_per_byte: 0,
            overhead_per_byte: (copy * 1e6).round() as u64,
        };
        Ok(Local { class, latency: table.time(&field("latency_ns"), self.latency_ns)? })
    }
}

/// What passes between ranks of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    class: Class,
    pub(crate) latency: Span,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    up_to: u64,
    send: Span,
    receive: Span,
    gap: Span,
    /// Femtoseconds.
    gap_per_byte: u64,
    overhead_per_byte: u64,
}

/// So many femtoseconds for each byte after the first.
fn bytes(femtos: u64, size: u64) -> Span {
    Span((u128::from(femtos) * u128::from(size.saturating_sub(1)) / 1000) as u64)
}

impl Class {
    /// The time of the processor that sends.
    pub(crate) fn sending(&self, size: u64) -> Span {
        Span(self.send.0 + bytes(self.overhead_per_byte, size).0)
    }

    /// The time of the processor that receives.
    pub(crate) fn receiving(&self, size: u64) -> Span {
        Span(self.receive.0 + bytes(self.overhead_per_byte, size).0)
    }

    /// The overheads alone, and what the bytes cost the processor.
    pub(crate) fn send_overhead(&self) -> Span {
        self.send
    }

    pub(crate) fn receive_overhead(&self) -> Span {
        self.receive
    }

    pub(crate) fn copy(&self, size: u64) -> Span {
        bytes(self.overhead_per_byte, size)
    }

    /// For how long a message occupies an interface.
    pub(crate) fn gap(&self, size: u64) -> Span {
        Span(self.gap.0 + bytes(self.gap_per_byte, size).0)
    }

    /// How long the bytes of a message take at least.
    pub(crate) fn length(&self, size: u64) -> Span {
        bytes(self.gap_per_byte, size)
    }
}

/// The table in picoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    pub(crate) latency: Span,
    classes: Vec<Class>,
    pub(crate) eager: u64,
    pub(crate) packet: u32,
    /// Femtoseconds that a byte takes on a link.
    link_femtos: u64,
    pub(crate) empty_poll: Span,
    pub(crate) lock: Span,
    pub(crate) register_page: Span,
    pub(crate) exchange: Span,
    /// What ranks of a node use, if it is not the interface.
    pub(crate) local: Option<Local>,
    pub(crate) timeout: Span,
}

impl Costs {
    /// The class of messages of so many bytes.
    #[inline]
    pub(crate) fn class(&self, size: u64) -> &Class {
        let found = self.classes.iter().find(|class| size <= class.up_to);
        found.expect("the last class takes messages of any size")
    }

    /// The class of messages of so many bytes through memory, or through the interface.
    #[inline]
    pub(crate) fn class_by(&self, memory: bool, size: u64) -> &Class {
        match &self.local {
            Some(local) if memory => &local.class,
            _ => self.class(size),
        }
    }

    /// The class of messages of so many bytes, by its number.
    pub(crate) fn index(&self, size: u64) -> usize {
        self.classes.iter().position(|class| size <= class.up_to).unwrap_or_default()
    }

    /// Number of classes.
    pub(crate) fn count(&self) -> usize {
        self.classes.len()
    }

    /// How long so many bytes take on a link.
    pub(crate) fn on_link(&self, packet: u64) -> Span {
        Span((u128::from(self.link_femtos) * u128::from(packet) / 1000) as u64)
    }

    /// How much later than the links the interface has the last byte of a packet, since it is slower than they
    /// are.
    #[inline]
    pub(crate) fn trailing(&self, class: &Class, packet: u64) -> Span {
        Span(class.length(packet).0.saturating_sub(self.on_link(packet).0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_survive_a_round_trip() {
        for table in [Parameters::default(), Parameters::free(), Parameters::loggp(1.0, 2.0, 3.0, 4.0)] {
            let text = toml::to_string(&table).unwrap();
            assert_eq!(Parameters::from_toml(&text).unwrap(), table);
        }
    }

    #[test]
    fn costs_are_those_of_the_class() {
        let table = Parameters::from_toml(
            "sizes = [{ up_to = 8, send_ns = 1, receive_ns = 2, gap_ns = 3 },
                      { send_ns = 10, receive_ns = 20, gap_ns = 30, gap_per_byte_ns = 0.5, overhead_per_byte_ns = 0.25 }]",
        );
        let costs = table.unwrap().compile().unwrap();
        assert_eq!(costs.class(8).sending(8), Span::from_nanos(1));
        let class = costs.class(9);
        assert_eq!((class.sending(9), class.receiving(9)), (Span::from_nanos(12), Span::from_nanos(22)));
        assert_eq!((class.gap(101), class.length(101)), (Span::from_nanos(80), Span::from_nanos(50)));
        assert_eq!(class.gap(0), Span::from_nanos(30));
    }

    #[test]
    fn bad_tables_are_refused_by_field_and_limit() {
        let class = "send_ns = 1, receive_ns = 1";
        let two = |one: &str, other: &str| format!("sizes = [{{ {one} {class} }}, {{ {other} {class} }}]");
        for (text, wanted) in [
            ("latency = 1".to_owned(), "unknown field `latency`"),
            ("sizes = []".into(), "parameters.sizes is 0 classes, but must be a list of 1 to 64 classes"),
            (two("", ""), "parameters.sizes[0].up_to is missing, but must be given in all classes but the last"),
            (
                two("up_to = 9,", "up_to = 10,"),
                "parameters.sizes[1].up_to is 10, but must be left out in the last",
            ),
            (two("up_to = 9,", "up_to = 9,"), "parameters.sizes[1].up_to is 9, but must be at least 10"),
            ("sizes = [{ send_ns = 1 }]".into(), "missing field `receive_ns`"),
            ("sizes = [{ send_ns = -1, receive_ns = 1 }]".into(), "parameters.sizes[0].send_ns is -1"),
            (
                format!("sizes = [{{ {class}, gap_per_byte_ns = nan }}]"),
                "parameters.sizes[0].gap_per_byte_ns is NaN",
            ),
            (format!("sizes = [{{ {class}, overhead_per_byte_ns = -1 }}]"), "sizes[0].overhead_per_byte_ns is -1"),
            ("latency_ns = -1".into(), "parameters.latency_ns is -1"),
            ("header_bytes = 5000".into(), "parameters.header_bytes is 5000, but must be from 0 to 4096"),
            ("packet_bytes = 8".into(), "parameters.packet_bytes is 8, but must be from 16 to 1073741824"),
            ("injection_mb_s = 0".into(), "parameters.injection_mb_s is 0, but must be above 0"),
            ("ejection_mb_s = -1".into(), "parameters.ejection_mb_s is -1, but must be above 0"),
            ("link = { bandwidth_mb_s = 0 }".into(), "parameters.link.bandwidth_mb_s is 0"),
            ("link = { latency_ns = -2 }".into(), "parameters.link.latency_ns is -2"),
            ("lock_ns = -1".into(), "parameters.lock_ns is -1"),
            ("register_page_ns = nan".into(), "parameters.register_page_ns is NaN"),
            ("exchange_ns = -3".into(), "parameters.exchange_ns is -3"),
            ("shared_memory = { send_ns = -1, receive_ns = 1 }".into(), "parameters.shared_memory.send_ns is -1"),
            ("shared_memory = { send_ns = 1 }".into(), "missing field `receive_ns`"),
            (
                "shared_memory = { send_ns = 1, receive_ns = 1, copy_per_byte_ns = -1 }".into(),
                "parameters.shared_memory.copy_per_byte_ns is -1",
            ),
            ("empty_poll_ns = 0".into(), "parameters.empty_poll_ns is 0, but must be at least 0.001 ns"),
            ("native = { operations = 0 }".into(), "parameters.native.operations is 0"),
            ("retry = { window = 0 }".into(), "parameters.retry.window is 0"),
            ("retry = { timeout_ns = 0 }".into(), "parameters.retry.timeout_ns is 0, but must be at least 1 ns"),
        ] {
            let error = Parameters::from_toml(&text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
