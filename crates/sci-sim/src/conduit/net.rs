//! The conduit's hold on the interface: the segments that it exports, those that it imports, and the operations on
//! them.

use super::config::ConduitConfig;
use super::flags::OwnFlags;
use super::layout::{Common, Layout, command_id, common_id};
use crate::nic::{Code, Flags, NodeId, SegmentId, SequenceStatus, Sisci};
use am_core::segment::Memory;
use am_core::{Instant, PeerStatus, Span};
use fabric_sim::WaitFor;
use thiserror::Error;

/// A peer takes no more messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

/// Which of the imported segments is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// This rank's command segment at the peer.
    Command,
    /// The peer's flags.
    Flags,
    /// The peer's payload segment, imported when it is first needed.
    Payload,
}

/// Why a rank's conduit could not be opened.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration is not possible.
    #[error(transparent)]
    Config(#[from] fabric_sim::ConfigError),
    /// The node that this process runs on is not in the map.
    #[error("{node} is not among the {ranks} nodes of the job")]
    NotInJob {
        /// This node.
        node: NodeId,
        /// Nodes of the job.
        ranks: u32,
    },
    /// A segment could not be exported.
    #[error("segment {id:#x} of {bytes} bytes cannot be exported: {code}")]
    Export {
        /// The segment.
        id: u32,
        /// Its size.
        bytes: usize,
        /// Why.
        code: Code,
    },
    /// A peer's segment could not be imported.
    #[error("segment {id:#x} of rank {rank} cannot be imported after {tries} tries: {code}")]
    Import {
        /// The peer.
        rank: u32,
        /// The segment.
        id: u32,
        /// How often it was tried.
        tries: u32,
        /// Why the last try failed.
        code: Code,
    },
    /// A peer exports its segments, but has not imported this rank's in all the time that the tries take.
    #[error("rank {rank} has not imported this rank's segments")]
    Silent {
        /// The peer.
        rank: u32,
    },
    /// The interface refused something else.
    #[error("the interface refuses {what}: {code}")]
    Interface {
        /// What was asked for.
        what: &'static str,
        /// Why not.
        code: Code,
    },
}

/// A segment of this rank, exported.
struct Exported<N: Sisci> {
    segment: N::LocalSegment,
    map: N::LocalMap,
    memory: N::Memory,
}

/// A segment of a peer, imported.
struct Imported<N: Sisci> {
    segment: N::RemoteSegment,
    map: N::RemoteMap,
    sequence: N::Sequence,
}

/// What is imported from a peer.
struct Imports<N: Sisci> {
    command: Imported<N>,
    flags: Imported<N>,
    payload: Option<Imported<N>>,
}

/// The interface in the conduit's hands.
pub(super) struct Net<N: Sisci> {
    pub(super) nic: N,
    descriptor: N::Descriptor,
    layout: Layout,
    me: u32,
    nodes: Vec<NodeId>,
    commands: Vec<Exported<N>>,
    ready: Exported<N>,
    payload: Exported<N>,
    dma: Exported<N>,
    dma_queue: N::DmaQueue,
    peers: Vec<Option<Imports<N>>>,
    tries: u32,
    pause: Span,
}

/// Between two looks for the greetings of peers.
const MEETING: Span = Span::from_micros(50);

/// What such a look takes, in virtual time.
const GLANCE: Span = Span::from_micros(1);

/// One transfer at a time.
const TRANSFERS: usize = 1;

impl<N: Sisci> Net<N> {
    /// Exports all segments of a rank, then imports its command segment and the flags at every peer. Waits for
    /// peers that have not exported theirs yet.
    pub(super) fn open(
        nic: N,
        nodes: Vec<NodeId>,
        layout: Layout,
        config: &ConduitConfig,
    ) -> Result<Self, OpenError> {
        let refused = |what| move |code| OpenError::Interface { what, code };
        let (ranks, node) = (layout.ranks, nic.node());
        let me = nodes.iter().position(|other| *other == node).ok_or(OpenError::NotInJob { node, ranks })? as u32;
        let descriptor = nic.open().map_err(refused("a session"))?;
        let export = |id, bytes: usize| {
            let bytes = bytes.next_multiple_of(8);
            export(&nic, &descriptor, id, bytes).map_err(|code| OpenError::Export { id, bytes, code })
        };
        let commands: Result<Vec<_>, _> =
            (0..ranks).map(|sender| export(command_id(me, sender), layout.command_bytes())).collect();
        let commands = commands?;
        let payload = export(common_id(me, ranks, Common::Payload), config.segment as usize)?;
        let dma = export(common_id(me, ranks, Common::DmaQueue), config.dma_queue as usize)?;
        let dma_queue = nic.create_dma_queue(&descriptor, TRANSFERS).map_err(refused("a DMA queue"))?;
        let ready = export(common_id(me, ranks, Common::Ready), layout.flag_bytes())?;
        nic.watch(&ready.map, layout.exist_at()).map_err(refused("to watch the exist flag"))?;
        let mut net = Self {
            nic,
            descriptor,
            layout,
            me,
            nodes,
            commands,
            ready,
            payload,
            dma,
            dma_queue,
            peers: Vec::with_capacity(ranks as usize),
            tries: config.connect_tries,
            pause: Span((config.connect_pause_ns * 1e3) as u64),
        };
        for peer in 0..ranks {
            let command = net.import(peer, command_id(peer, me))?;
            let flags = net.import(peer, common_id(peer, ranks, Common::Ready))?;
            let imports = command.zip(flags).map(|(command, flags)| Imports { command, flags, payload: None });
            net.peers.push(imports);
        }
        net.meet()?;
        Ok(net)
    }

    /// Tells every peer that its segments have been imported, and waits until all that are there have said so. Who
    /// leaves afterwards is known to all: nobody looks for segments of a rank that has come and gone.
    fn meet(&mut self) -> Result<(), OpenError> {
        let ranks = self.layout.ranks;
        for peer in 0..ranks {
            let at = self.layout.greeting_at(self.me);
            // A peer that has gone needs no greeting.
            while self.status(peer) == PeerStatus::Active && self.greet(peer, at) == Ok(false) {
                self.nic.charge_empty_poll();
            }
        }
        let limit = self.now() + Span(self.pause.0.saturating_mul(self.tries.into()));
        for rank in 0..ranks {
            let at = self.layout.greeting_at(rank);
            while self.nic.flag(&self.ready.map, at) == 0 && self.status(rank) == PeerStatus::Active {
                if self.now() >= limit {
                    return Err(OpenError::Silent { rank });
                }
                // Others may have sent messages already, so that idling ends at once.
                self.nic.charge(GLANCE);
                self.nic.idle(Some(self.now() + MEETING), WaitFor::From(rank));
            }
        }
        Ok(())
    }

    /// Tries to greet a peer; returns whether that has arrived.
    fn greet(&mut self, peer: u32, at: usize) -> Result<bool, Gone> {
        if self.start(peer, Channel::Flags)? != SequenceStatus::Ok {
            return Ok(false);
        }
        self.store(peer, Channel::Flags, at, &[1])?;
        let arrived = self.check(peer, Channel::Flags)? == SequenceStatus::Ok;
        self.alert(peer);
        Ok(arrived)
    }

    pub(super) fn rank(&self) -> u32 {
        self.me
    }

    /// Connects to a peer's segment, again and again until it is there; `None` if the peer has gone.
    fn import(&self, rank: u32, id: u32) -> Result<Option<Imported<N>>, OpenError> {
        let node = self.nodes[rank as usize];
        let mut tries = 0;
        loop {
            tries += 1;
            let segment = self.nic.connect_segment(&self.descriptor, node, SegmentId(id), self.pause, Flags::NONE);
            let imported = segment.and_then(|segment| {
                let map = self.nic.map_remote(&segment, 0, self.nic.remote_segment_size(&segment))?;
                let sequence = self.nic.create_map_sequence(&map)?;
                Ok(Imported { segment, map, sequence })
            });
            let code = match imported {
                Ok(imported) => return Ok(Some(imported)),
                Err(code) => code,
            };
            if self.nic.status(node) != PeerStatus::Active {
                return Ok(None);
            }
            if tries == self.tries {
                return Err(OpenError::Import { rank, id, tries, code });
            }
            let until = self.nic.now() + self.pause;
            while self.nic.now() < until && self.nic.status(node) == PeerStatus::Active {
                self.nic.idle(Some(until), WaitFor::From(rank));
            }
        }
    }

    /// Imports a peer's payload segment, unless that has been done.
    pub(super) fn open_payload(&mut self, peer: u32) -> Result<(), Gone> {
        let imports = self.peers[peer as usize].as_ref().ok_or(Gone)?;
        if imports.payload.is_none() {
            let id = common_id(peer, self.layout.ranks, Common::Payload);
            let payload = self.import(peer, id).ok().flatten().ok_or(Gone)?;
            self.peers[peer as usize].as_mut().ok_or(Gone)?.payload = Some(payload);
        }
        Ok(())
    }

    #[inline]
    fn imported(&mut self, peer: u32, channel: Channel) -> Result<(&N, &mut Imported<N>), Gone> {
        let imports = self.peers[peer as usize].as_mut().ok_or(Gone)?;
        let imported = match channel {
            Channel::Command => &mut imports.command,
            Channel::Flags => &mut imports.flags,
            Channel::Payload => imports.payload.as_mut().ok_or(Gone)?,
        };
        Ok((&self.nic, imported))
    }

    /// Begins a sequence of stores.
    #[inline]
    pub(super) fn start(&mut self, peer: u32, channel: Channel) -> Result<SequenceStatus, Gone> {
        let (nic, imported) = self.imported(peer, channel)?;
        Ok(nic.start_sequence(&mut imported.sequence))
    }

    /// Stores bytes. Posted.
    #[inline]
    pub(super) fn store(&mut self, peer: u32, channel: Channel, at: usize, bytes: &[u8]) -> Result<(), Gone> {
        let (nic, imported) = self.imported(peer, channel)?;
        let stored = match *bytes {
            [flag] if channel == Channel::Flags => nic.store_flag(&imported.map, at, flag),
            _ => nic.store(&imported.map, at, bytes),
        };
        stored.map_err(|code| unreachable_range(code, at, bytes.len()))
    }

    /// What became of the stores since the start, or the last check. Waits for them.
    #[inline]
    pub(super) fn check(&mut self, peer: u32, channel: Channel) -> Result<SequenceStatus, Gone> {
        let (nic, imported) = self.imported(peer, channel)?;
        nic.check_sequence(&mut imported.sequence, Flags::NONE).map_err(|_| Gone)
    }

    /// Wakes a peer that sleeps until its exist flag is set.
    #[inline]
    pub(super) fn alert(&mut self, peer: u32) {
        if let Ok((nic, imported)) = self.imported(peer, Channel::Flags) {
            nic.alert(&imported.map);
        }
    }

    /// Copies bytes, whole lines, to the segment that the DMA engine reads, and lets it move them to a peer's
    /// payload segment. Waits. Returns whether they have arrived.
    pub(super) fn dma(&mut self, peer: u32, at: usize, bytes: &[u8]) -> Result<bool, Gone> {
        self.dma.memory.store(0, bytes);
        let payload =
            self.peers[peer as usize].as_ref().and_then(|imports| imports.payload.as_ref()).ok_or(Gone)?;
        let queue = &mut self.dma_queue;
        let done = self
            .nic
            .enqueue(queue, &self.dma.segment, 0, &payload.segment, at, bytes.len())
            .and_then(|()| self.nic.post(queue))
            .and_then(|()| self.nic.wait_for_dma_queue(queue, None));
        let reset = self.nic.reset(queue);
        match done {
            Ok(()) => Ok(reset.is_ok()),
            Err(Code::TransferFailed | Code::Cancelled | Code::Timeout) => Ok(false),
            Err(code) => Err(unreachable_range(code, at, bytes.len())),
        }
    }

    /// Whether the exist flag is set.
    #[inline]
    pub(super) fn exists(&self) -> bool {
        self.nic.flag(&self.ready.map, self.layout.exist_at()) != 0
    }

    /// This rank's own flags.
    #[inline]
    pub(super) fn flags(&self) -> LocalFlags<'_, N> {
        LocalFlags { net: self }
    }

    /// The slots that a sender writes to.
    #[inline]
    pub(super) fn command(&self, sender: u32) -> &N::Memory {
        &self.commands[sender as usize].memory
    }

    /// The memory of this rank's payload segment.
    pub(super) fn payload_memory(&self) -> &N::Memory {
        &self.payload.memory
    }

    /// Reads bytes of a peer's payload segment across the network. Waits. Returns whether they have come.
    pub(super) fn read(&mut self, peer: u32, at: usize, out: &mut [u8]) -> Result<bool, Gone> {
        let (nic, imported) = self.imported(peer, Channel::Payload)?;
        match nic.read_remote(&imported.map, at, out) {
            Ok(()) => Ok(true),
            Err(Code::TransferFailed) => Ok(false),
            Err(code) => Err(unreachable_range(code, at, out.len())),
        }
    }

    /// Reads a word of a peer's memory across the network: what the design does without.
    pub(super) fn read_remotely(&mut self, peer: u32) {
        if let Ok((nic, imported)) = self.imported(peer, Channel::Command) {
            let mut word = [0; 8];
            // Nobody uses what it brings.
            let _ = nic.read_remote(&imported.map, 0, &mut word);
        }
    }

    #[inline]
    pub(super) fn status(&self, peer: u32) -> PeerStatus {
        self.nic.status(self.nodes[peer as usize])
    }

    #[inline]
    pub(super) fn charge(&self, cost: Span) {
        self.nic.charge(cost);
    }

    pub(super) fn now(&self) -> Instant {
        self.nic.now()
    }
}

/// Offsets and sizes are the conduit's own, or were checked by the core.
#[cold]
fn unreachable_range(code: Code, at: usize, len: usize) -> Gone {
    debug_assert!(
        !matches!(code, Code::OutOfRange | Code::OffsetAlignment | Code::SizeAlignment),
        "{len} bytes at {at} lie in the segment: {code}"
    );
    Gone
}

fn export<N: Sisci>(nic: &N, descriptor: &N::Descriptor, id: u32, bytes: usize) -> Result<Exported<N>, Code> {
    let segment = nic.create_segment(descriptor, SegmentId(id), bytes, Flags::NONE)?;
    nic.prepare_segment(&segment)?;
    let map = nic.map_local(&segment, 0, bytes)?;
    let memory = nic.memory(&map);
    nic.set_available(&segment)?;
    Ok(Exported { segment, map, memory })
}

/// A rank's own flags in the segment that the interface writes to.
pub(super) struct LocalFlags<'n, N: Sisci> {
    net: &'n Net<N>,
}

impl<N: Sisci> OwnFlags for LocalFlags<'_, N> {
    #[inline]
    fn clear_exist(&self) {
        self.net.nic.take_flag(&self.net.ready.map, self.net.layout.exist_at());
    }

    #[inline]
    fn glance(&self, word: usize) -> u64 {
        u64::from_le(self.net.ready.memory.words()[word].load(std::sync::atomic::Ordering::Relaxed))
    }

    #[inline]
    fn ready(&self, at: usize) -> u8 {
        self.net.nic.flag(&self.net.ready.map, at)
    }

    #[inline]
    fn take_ready(&self, at: usize) -> u8 {
        self.net.nic.take_flag(&self.net.ready.map, at)
    }
}
