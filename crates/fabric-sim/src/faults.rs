//! Faults: what goes wrong, at given times or drawn from a seed.

use crate::error::ConfigError;
use crate::fault_rng::{FaultRng, below, random};
use crate::network::Network;
use crate::nic::picos;
use serde::{Deserialize, Serialize};

/// What goes wrong in a run. The default is nothing. Equal seeds give equal faults.
///
/// With `link_retry` each link repairs what it loses or spoils by sending again, and drops what comes twice: every
/// packet arrives exactly once and only later. Without it the packet is gone, spoilt or doubled, and the layers
/// above must cope.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Where all draws come from (PCG XSL 128/64).
    pub seed: u64,
    /// Probability that a packet is lost on a link.
    pub loss: f64,
    /// Probability that a packet is spoilt on a link.
    pub corruption: f64,
    /// Whether links repair loss, corruption and duplication.
    pub link_retry: bool,
    /// Time between a loss and sending again, in nanoseconds.
    pub retry_ns: f64,
    /// Probability that a packet is doubled on a link.
    pub duplication: f64,
    /// Probability that a packet is held back behind later ones; refused where the interface keeps packets
    /// ordered.
    pub reordering: f64,
    /// The longest time by which a packet is held back, in nanoseconds.
    pub reorder_ns: f64,
    /// Probability that a link pauses before a packet.
    pub delay: f64,
    /// The longest such pause, in nanoseconds.
    pub delay_ns: f64,
    /// What happens when.
    pub schedule: Vec<Scheduled>,
    /// What is drawn to happen.
    pub drawn: Vec<Drawn>,
    /// Links that differ from the others, or limits of all of them; later entries win.
    pub links: Vec<LinkFaults>,
}

/// What is special about some links, in one direction. Fields that are not given stay as they are.
///
/// ```
/// let config = fabric_sim::Config::from_toml("
///     ranks = 4
///     topology = { kind = 'direct', nodes = 4 }
///     faults = { links = [{ mtu_bytes = 1500 }, { from = 0, to = 3, loss = 0.5, mtu_bytes = 1400 }] }
/// ").unwrap();
/// assert_eq!(config.faults.links[1].loss, Some(0.5));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkFaults {
    /// Links from this node or switch; without it, from all.
    pub from: Option<u32>,
    /// Links to this node or switch; without it, to all.
    pub to: Option<u32>,
    /// Probability that a packet is lost, instead of [`Faults::loss`].
    pub loss: Option<f64>,
    /// Probability that a packet is spoilt, instead of [`Faults::corruption`].
    pub corruption: Option<f64>,
    /// Latency in nanoseconds on top of the table's.
    pub latency_ns: Option<f64>,
    /// Longer packets, header included, are lost, whether or not links retry.
    pub mtu_bytes: Option<u32>,
    /// A packet is lost if more bytes than these wait for the link before it; links with retry hold everything.
    pub queue_bytes: Option<u32>,
}

/// What is special about one link, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkRules {
    pub(crate) loss: u64,
    pub(crate) corruption: u64,
    pub(crate) latency: u64,
    pub(crate) femtos_per_byte: u64,
    pub(crate) mtu: u32,
    pub(crate) queue: u32,
}

/// Something that happens at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduled {
    /// When, in nanoseconds from the start.
    pub at_ns: f64,
    /// What.
    pub event: FaultEvent,
}

/// What can happen to links and nodes. Switches have the numbers after the last node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum FaultEvent {
    /// The link between two neighbours stops carrying packets in this direction. With link retry packets wait for
    /// it.
    LinkDown {
        /// One end.
        from: u32,
        /// The other end.
        to: u32,
    },
    /// The link carries packets again.
    LinkUp {
        /// One end.
        from: u32,
        /// The other end.
        to: u32,
    },
    /// A node stops for good: its ranks never go on, its interface neither sends nor takes.
    NodeStop {
        /// The node.
        node: u32,
    },
    /// A node takes this many times as long for everything; 1 makes it normal again.
    NodeSlow {
        /// The node.
        node: u32,
        /// From 0.01 to 100,000.
        factor: f64,
    },
}

/// Something that happens to random victims at random times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drawn {
    /// How often, at most 100,000.
    pub count: u32,
    /// All of it before this time, in nanoseconds from the start.
    pub within_ns: f64,
    /// What.
    pub kind: DrawnKind,
}

/// What can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum DrawnKind {
    /// The first link of the way between two random nodes goes down for this long, in nanoseconds.
    LinkFlap {
        /// For how long.
        down_ns: f64,
    },
    /// A random node stops.
    NodeStop,
    /// A random node becomes slow for good.
    NodeSlow {
        /// How many times as long it takes.
        factor: f64,
    },
}

/// A checked event, as the machine executes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScheduledFault {
    Link { link: u32, up: bool },
    Stop { node: u32 },
    Slow { node: u32, slowness: u64 },
}

fn threshold(value: f64, field: &str) -> Result<u64, ConfigError> {
    if (0.0..1.0).contains(&value) {
        return Ok((value * 18_446_744_073_709_551_616.0) as u64);
    }
    Err(ConfigError::range(format!("faults.{field}"), value, "a probability from 0 to below 1"))
}

fn slowness(factor: f64, field: &str) -> Result<u64, ConfigError> {
    if (0.01..=100_000.0).contains(&factor) {
        return Ok((factor * 1024.0).round() as u64);
    }
    Err(ConfigError::range(field, factor, "from 0.01 to 100000"))
}

impl Faults {
    /// Whether links can go down.
    pub fn cut_links(&self) -> bool {
        self.schedule.iter().any(|planned| matches!(planned.event, FaultEvent::LinkDown { .. }))
            || self.drawn.iter().any(|drawn| matches!(drawn.kind, DrawnKind::LinkFlap { .. }))
    }

    /// Whether nodes can stop.
    pub fn stop_nodes(&self) -> bool {
        self.schedule.iter().any(|planned| matches!(planned.event, FaultEvent::NodeStop { .. }))
            || self.drawn.iter().any(|drawn| matches!(drawn.kind, DrawnKind::NodeStop))
    }

    /// Whether the network can lose or spoil a packet between nodes that go on, so that an interface has to notice
    /// that. `longest` has the bytes of the longest packet, header included: links that repeat what they lose
    /// still lose what is too long.
    pub fn can_lose(&self, longest: u32) -> bool {
        let worse = |rate: Option<f64>| rate.is_some_and(|rate| rate > 0.0);
        let special = |link: &LinkFaults| worse(link.loss) || worse(link.corruption) || link.queue_bytes.is_some();
        let unrepaired = self.loss + self.corruption > 0.0 || self.cut_links() || self.links.iter().any(special);
        let too_long = |link: &LinkFaults| link.mtu_bytes.is_some_and(|mtu| mtu < longest);
        self.links.iter().any(too_long) || !self.link_retry && unrepaired
    }

    /// Whether the network can deliver a packet twice.
    pub fn can_double(&self) -> bool {
        !self.link_retry && self.duplication > 0.0
    }

    /// The first field that concerns links and not nodes, if any.
    pub(crate) fn of_links(&self) -> Option<&'static str> {
        let rates = [
            (self.loss, "loss"),
            (self.corruption, "corruption"),
            (self.duplication, "duplication"),
            (self.reordering, "reordering"),
            (self.delay, "delay"),
        ];
        let rate = rates.into_iter().find(|(rate, _)| *rate != 0.0).map(|(_, field)| field);
        let of_node =
            |event: &FaultEvent| matches!(event, FaultEvent::NodeStop { .. } | FaultEvent::NodeSlow { .. });
        let scheduled = self.schedule.iter().any(|scheduled| !of_node(&scheduled.event)).then_some("schedule");
        let drawn =
            self.drawn.iter().any(|drawn| matches!(drawn.kind, DrawnKind::LinkFlap { .. })).then_some("drawn");
        rate.or(scheduled).or(drawn).or((!self.links.is_empty()).then_some("links"))
    }

    pub(crate) fn fault_rng(&self, ordered: bool) -> Result<FaultRng, ConfigError> {
        if ordered && self.reordering > 0.0 {
            return Err(ConfigError::Contradiction {
                field: "faults.reordering".into(),
                other: "nic.ordered".into(),
                reason: "an interface that keeps packets in order cannot mix them up".into(),
            });
        }
        let thresholds = [
            threshold(self.loss, "loss")?,
            threshold(self.corruption, "corruption")?,
            threshold(self.duplication, "duplication")?,
            threshold(self.reordering, "reordering")?,
            threshold(self.delay, "delay")?,
        ];
        let [.., duplication, reordering, delay] = thresholds;
        let special = self.links.iter().any(|link| link.loss.is_some() || link.corruption.is_some());
        let retry = picos(self.retry_ns, "faults.retry_ns")?;
        Ok(FaultRng {
            random: random(self.seed, 0),
            duplication,
            reordering,
            delay,
            reorder: picos(self.reorder_ns, "faults.reorder_ns")?,
            pause: picos(self.delay_ns, "faults.delay_ns")?,
            retry: self.link_retry.then_some(retry),
            any: special || thresholds.iter().any(|threshold| *threshold != 0),
        })
    }

    /// What is special about each link, by its number.
    pub(crate) fn link_rules(&self, network: &Network) -> Result<Vec<LinkRules>, ConfigError> {
        let plain = LinkRules {
            loss: threshold(self.loss, "loss")?,
            corruption: threshold(self.corruption, "corruption")?,
            latency: 0,
            femtos_per_byte: 0,
            mtu: u32::MAX,
            queue: u32::MAX,
        };
        let mut all = vec![plain; network.links()];
        for (index, special) in self.links.iter().enumerate() {
            let field = format!("links[{index}]");
            let ends = |end: Option<u32>| end.map_or(0..network.vertices(), |end| end..end.saturating_add(1));
            let some: Vec<u32> = if special.from.is_none() && special.to.is_none() {
                (0..all.len() as u32).collect()
            } else {
                let pairs = ends(special.from).flat_map(|from| ends(special.to).map(move |to| (from, to)));
                pairs.flat_map(|(from, to)| network.between(from, to)).collect()
            };
            if some.is_empty() {
                let end = |end: Option<u32>| end.map_or_else(|| "any".to_owned(), |end| end.to_string());
                let found = format!("from {} to {}", end(special.from), end(special.to));
                return Err(ConfigError::range(format!("faults.{field}"), found, "between neighbours"));
            }
            let loss = special.loss.map(|loss| threshold(loss, &format!("{field}.loss"))).transpose()?;
            let corruption = special.corruption.map(|value| threshold(value, &format!("{field}.corruption")));
            let corruption = corruption.transpose()?;
            let latency = special.latency_ns.map(|value| picos(value, &format!("faults.{field}.latency_ns")));
            let latency = latency.transpose()?;
            for link in some {
                let link = &mut all[link as usize];
                link.loss = loss.unwrap_or(link.loss);
                link.corruption = corruption.unwrap_or(link.corruption);
                link.latency = latency.unwrap_or(link.latency);
                link.mtu = special.mtu_bytes.unwrap_or(link.mtu);
                link.queue = special.queue_bytes.unwrap_or(link.queue);
            }
        }
        Ok(all)
    }

    /// All events with their times, given and drawn, ordered by time.
    pub(crate) fn scheduled_faults(&self, network: &Network) -> Result<Vec<(u64, ScheduledFault)>, ConfigError> {
        let mut scheduled_faults = Vec::new();
        let node = |node: u32, field: &str| {
            let limit = || format!("below the number of nodes, {}", network.nodes);
            if node < network.nodes { Ok(node) } else { Err(ConfigError::range(field, node, limit())) }
        };
        for (index, Scheduled { at_ns, event }) in self.schedule.iter().enumerate() {
            let field = format!("faults.schedule[{index}]");
            let at = picos(*at_ns, &format!("{field}.at_ns"))?;
            let mut links = |from, to, up| {
                let some = network.between(from, to);
                if some.is_empty() {
                    let found = format!("from {from} to {to}");
                    return Err(ConfigError::range(&field, found, "between neighbours"));
                }
                scheduled_faults.extend(some.into_iter().map(|link| (at, ScheduledFault::Link { link, up })));
                Ok(())
            };
            let strike = match *event {
                FaultEvent::LinkDown { from, to } => {
                    links(from, to, false)?;
                    continue;
                }
                FaultEvent::LinkUp { from, to } => {
                    links(from, to, true)?;
                    continue;
                }
                FaultEvent::NodeStop { node: which } => ScheduledFault::Stop { node: node(which, &field)? },
                FaultEvent::NodeSlow { node: which, factor } => {
                    let slowness = slowness(factor, &format!("{field}.factor"))?;
                    ScheduledFault::Slow { node: node(which, &field)?, slowness }
                }
            };
            scheduled_faults.push((at, strike));
        }
        let mut random = random(self.seed, 1);
        for (index, Drawn { count, within_ns, kind }) in self.drawn.iter().enumerate() {
            let field = format!("faults.drawn[{index}]");
            let within = picos(*within_ns, &format!("{field}.within_ns"))?;
            if *count > 100_000 {
                return Err(ConfigError::range(format!("{field}.count"), count, "at most 100000"));
            }
            for _ in 0..*count {
                let (at, node) = (below(&mut random, within), below(&mut random, u64::from(network.nodes)) as u32);
                match *kind {
                    DrawnKind::NodeStop => scheduled_faults.push((at, ScheduledFault::Stop { node })),
                    DrawnKind::NodeSlow { factor } => {
                        let slowness = slowness(factor, &format!("{field}.factor"))?;
                        scheduled_faults.push((at, ScheduledFault::Slow { node, slowness }));
                    }
                    DrawnKind::LinkFlap { down_ns } => {
                        let down = picos(down_ns, &format!("{field}.down_ns"))?;
                        if network.nodes < 2 {
                            return Err(ConfigError::range(field, "a link flap", "drawn where there are links"));
                        }
                        let other =
                            (node + 1 + below(&mut random, u64::from(network.nodes) - 1) as u32) % network.nodes;
                        let (link, _) = network.next(node, other, network.straight(node, other));
                        scheduled_faults.push((at, ScheduledFault::Link { link, up: false }));
                        scheduled_faults.push((at + down, ScheduledFault::Link { link, up: true }));
                    }
                }
            }
        }
        scheduled_faults.sort_by_key(|(at, _)| *at);
        Ok(scheduled_faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault_rng::{Try, shuffled};
    use crate::{Algorithm, Topology};

    fn refused(faults: Faults) -> String {
        let network = Topology::Mesh { dims: vec![3, 3] }.compile(Algorithm::Default).unwrap();
        faults
            .fault_rng(true)
            .map(drop)
            .and_then(|()| faults.scheduled_faults(&network).map(drop))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn bad_faults_name_their_field() {
        let bad = Faults::default;
        assert_eq!(
            refused(Faults { loss: 1.0, ..bad() }),
            "faults.loss is 1, but must be a probability from 0 to below 1"
        );
        assert!(refused(Faults { delay: f64::NAN, ..bad() }).starts_with("faults.delay is NaN"));
        assert!(refused(Faults { retry_ns: -1.0, ..bad() }).starts_with("faults.retry_ns is -1"));
        assert!(
            refused(Faults { reordering: 0.1, ..bad() }).starts_with("faults.reordering contradicts nic.ordered")
        );
        let at = |event| Faults { schedule: vec![Scheduled { at_ns: 1.0, event }], ..bad() };
        assert_eq!(
            refused(at(FaultEvent::LinkDown { from: 0, to: 4 })),
            "faults.schedule[0] is from 0 to 4, but must be between neighbours"
        );
        assert!(refused(at(FaultEvent::NodeStop { node: 9 })).contains("below the number of nodes, 9"));
        assert!(
            refused(at(FaultEvent::NodeSlow { node: 1, factor: 0.0 }))
                .starts_with("faults.schedule[0].factor is 0")
        );
    }

    #[test]
    fn special_links_differ_in_one_direction() {
        let network = Topology::Crossbar { nodes: 3 }.compile(Algorithm::Default).unwrap();
        let all = LinkFaults { mtu_bytes: Some(1500), ..LinkFaults::default() };
        let up = LinkFaults { from: Some(2), loss: Some(0.5), ..LinkFaults::default() };
        let link_rules = Faults { links: vec![all, up], ..Faults::default() }.link_rules(&network).unwrap();
        let losses: Vec<bool> = link_rules.iter().map(|link| link.loss > 0).collect();
        assert_eq!(losses, [false, false, true, false, false, false], "links 3 to 5 lead down from the switch");
        assert!(link_rules.iter().all(|link| link.mtu == 1500));
        let nowhere = Faults { links: vec![LinkFaults { to: Some(9), ..all }], ..Faults::default() };
        assert!(
            nowhere.link_rules(&network).unwrap_err().to_string().starts_with("faults.links[0] is from any to")
        );
    }

    #[test]
    fn what_links_repair_is_not_lost() {
        let link = LinkFaults::default;
        let special = |link| Faults { links: vec![link], ..Faults::default() };
        let down = Scheduled { at_ns: 1.0, event: FaultEvent::LinkDown { from: 0, to: 1 } };
        let stop = Scheduled { at_ns: 1.0, event: FaultEvent::NodeStop { node: 0 } };
        let scheduled = |event| Faults { schedule: vec![event], ..Faults::default() };
        // Faults, whether a packet can be lost because of them, and whether it can if links repair.
        for (faults, lost, lost_with_retry) in [
            (Faults { loss: 0.1, ..Faults::default() }, true, false),
            (Faults { corruption: 0.1, ..Faults::default() }, true, false),
            (Faults { duplication: 0.1, ..Faults::default() }, false, false),
            (special(LinkFaults { loss: Some(0.1), ..link() }), true, false),
            (special(LinkFaults { loss: Some(0.0), latency_ns: Some(5.0), ..link() }), false, false),
            (special(LinkFaults { queue_bytes: Some(100), ..link() }), true, false),
            (special(LinkFaults { mtu_bytes: Some(100), ..link() }), true, true),
            (special(LinkFaults { mtu_bytes: Some(101), ..link() }), false, false),
            (scheduled(down), true, false),
            (scheduled(stop), false, false),
        ] {
            let retried = Faults { link_retry: true, ..faults.clone() };
            assert_eq!((faults.can_lose(101), retried.can_lose(101)), (lost, lost_with_retry), "{faults:?}");
            assert_eq!((faults.can_double(), retried.can_double()), (faults.duplication > 0.0, false));
        }
    }

    #[test]
    fn draws_follow_the_seed_and_the_probability() {
        let network = Topology::Mesh { dims: vec![3, 3] }.compile(Algorithm::Default).unwrap();
        let drawn = |kind| vec![Drawn { count: 20, within_ns: 1e6, kind }];
        let make = |seed| Faults {
            seed,
            loss: 0.25,
            drawn: drawn(DrawnKind::LinkFlap { down_ns: 5.0 }),
            ..Faults::default()
        };
        assert_eq!(make(7).scheduled_faults(&network).unwrap(), make(7).scheduled_faults(&network).unwrap());
        assert_ne!(make(7).scheduled_faults(&network).unwrap(), make(8).scheduled_faults(&network).unwrap());
        let mut fault_rng = make(7).fault_rng(true).unwrap();
        let link_rules = make(7).link_rules(&network).unwrap();
        let lost = (0..100_000).filter(|_| fault_rng.cross(&link_rules[0]) == Try::Lost).count();
        assert!((24_000..26_000).contains(&lost), "{lost} of 100000 lost at 25 %");
        let mut order = shuffled(100, 3);
        assert_ne!(order, (0..100).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }
}
