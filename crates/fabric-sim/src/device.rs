//! What stands between the network and the ranks of a node: a device takes arriving packets at their time, without
//! a rank's help. [`Mailbox`] is the simplest; simulated interfaces bring their own.

use crate::away::Crossing;
use crate::device_context::DeviceContext;
use crate::stage::Stage;
use am_core::Instant;
use std::collections::VecDeque;

/// A packet that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<B> {
    /// Its number, by which traces know it; a copy has that of its original.
    pub number: u64,
    /// The rank that sent it.
    pub from: u32,
    /// The rank it is for.
    pub to: u32,
    /// Its length in bytes, without the header.
    pub bytes: u32,
    /// When it was sent.
    pub sent: Instant,
    /// Whether it was spoilt on the way, which only happens without link retry.
    pub corrupt: bool,
    /// What it carries.
    pub body: B,
}

/// The interface of one node: a state machine that the simulation calls when something happens.
///
/// A device may have FIFO units of its own, set packets aside, and set timers. This one passes what arrives
/// through a unit that checks it, then through one that writes it to memory, and only then tells the rank:
///
/// ```
/// use fabric_sim::{Config, Context, Device, Packet, DeviceContext, Sim, Stage, WaitFor};
///
/// #[derive(Default)]
/// struct Nic {
///     memory: Vec<u32>,
/// }
///
/// const CHECK: usize = 0;
/// const WRITE: usize = 1;
///
/// impl Device for Nic {
///     type Body = u32;
///
///     fn stages(&self) -> Vec<(&'static str, Stage)> {
///         let write = Stage { per_unit_ns: 10.0, unit_bytes: 64, ..Stage::latency(50.0) };
///         vec![("check", Stage::latency(100.0)), ("write", write)]
///     }
///
///     fn arrive(&mut self, packet: Packet<u32>, port: &mut DeviceContext<'_, u32>) {
///         let checked = port.serve(CHECK, port.now(), packet.bytes, &packet).leaves;
///         let written = port.serve(WRITE, checked, packet.bytes, &packet).leaves;
///         port.defer(written, packet, 0);
///     }
///
///     fn due(&mut self, packet: Packet<u32>, _: u32, port: &mut DeviceContext<'_, u32>) {
///         self.memory.push(packet.body);
///         port.wake(packet.to);
///     }
/// }
///
/// let report = Sim::run_with(&Config::new(2), |_, _| Nic::default(), |rank: Context<'_, Nic>| {
///     if rank.rank() == 0 {
///         rank.send(1, 128, 42);
///     }
///     while rank.rank() == 1 && rank.device(|nic, _| nic.memory.is_empty()) {
///         rank.idle(None, WaitFor::Named("the word 42"));
///     }
///     rank.now().0
/// })?;
/// assert_eq!(report.results[1], Some(100_000 + 2 * 10_000 + 50_000));
/// assert_eq!(report.stages[1].to_string(), "write of node 1: 1 packets, 128 bytes, busy 20.000 ns (11.8 %)");
/// # Ok::<(), fabric_sim::RunError>(())
/// ```
pub trait Device: 'static {
    /// What packets carry. A doubled packet is a clone.
    type Body: Clone + 'static;

    /// The device's own FIFO units by name, asked for once at the start; [`DeviceContext::serve`] knows them
    /// by their place here.
    fn stages(&self) -> Vec<(&'static str, Stage)> {
        Vec::new()
    }

    /// Takes a packet for one of this node's ranks.
    fn arrive(&mut self, packet: Packet<Self::Body>, port: &mut DeviceContext<'_, Self::Body>);

    /// A packet that was set aside comes to its time; see [`DeviceContext::defer`] and
    /// [`Context::post`](crate::Context::post).
    fn due(&mut self, packet: Packet<Self::Body>, token: u32, port: &mut DeviceContext<'_, Self::Body>) {
        let _ = (packet, token, port);
    }

    /// A timer has run out; see [`DeviceContext::timer`].
    fn timer(&mut self, token: u32, port: &mut DeviceContext<'_, Self::Body>) {
        let _ = (token, port);
    }

    /// The time before which nothing that an idling rank does next can reach the network or another rank: the
    /// machine may resume the rank only then. Asked for when the rank begins to idle; a time that has passed
    /// means no lookahead. A device that answers otherwise must ask [`DeviceContext::resume_early`] before it
    /// lets the rank see something, or keep that back until the rank looks.
    fn lookahead(&self, rank: u32, port: &DeviceContext<'_, Self::Body>) -> Instant {
        let _ = (rank, port);
        Instant::default()
    }

    /// What a deadlock report should say of a waiting rank besides what it waits for: its credits, its queues.
    fn explain(&self, rank: u32) -> Option<String> {
        let _ = rank;
        None
    }
}

/// A device that keeps arrived packets for its ranks, in the order of arrival.
#[derive(Debug)]
pub struct Mailbox<B> {
    boxes: Vec<(u32, VecDeque<Packet<B>>)>,
}

impl<B> Mailbox<B> {
    /// The mailboxes of some ranks.
    pub fn new(ranks: &[u32]) -> Self {
        let mut boxes: Vec<_> = ranks.iter().map(|rank| (*rank, VecDeque::new())).collect();
        boxes.sort_by_key(|(rank, _)| *rank);
        Self { boxes }
    }

    /// The packets that wait for a rank of this node.
    ///
    /// # Panics
    /// If the rank is on another node.
    pub fn of(&mut self, rank: u32) -> &mut VecDeque<Packet<B>> {
        let found = self.boxes.binary_search_by_key(&rank, |(rank, _)| *rank);
        &mut self.boxes[found.expect("a mailbox is asked for its own ranks")].1
    }
}

impl<B: Clone + Send + 'static> Crossing for Mailbox<B> {
    type Sent = B;

    fn send_over(body: B) -> B {
        body
    }

    fn take_over(&self, sent: B) -> B {
        sent
    }
}

impl<B: Clone + 'static> Device for Mailbox<B> {
    type Body = B;

    fn arrive(&mut self, packet: Packet<B>, port: &mut DeviceContext<'_, B>) {
        let to = packet.to;
        self.of(to).push_back(packet);
        port.wake(to);
    }
}
