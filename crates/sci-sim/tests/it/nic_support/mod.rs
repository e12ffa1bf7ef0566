//! Programs that run on either implementation of the interface, and what they have in common.

use am_core::segment::Memory;
use am_core::{Span, WaitReason};
use fabric_sim::{Report, RunError};
use sci_sim::SciConfig;
use sci_sim::nic::{Code, Flags, Mapped, MappedConfig, NodeId, SegmentId, Sisci};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// What every node of a job does; it asserts what it expects.
pub(crate) trait Program: Clone + Send + 'static {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]);
}

/// Runs a program on every rank of a simulated machine.
pub(crate) fn in_virtual_time(config: &SciConfig, program: impl Program) -> Result<Report<()>, RunError> {
    // Far beyond what any program here needs: a broken interface may keep one polling for ever.
    let config = SciConfig { deadline_ns: config.deadline_ns.min(3e9), ..config.clone() };
    sci_sim::run(&config, move |nic| {
        let (rank, nodes) = (nic.rank() as usize, nic.nodes());
        program.run(nic, rank, &nodes);
    })
}

/// A directory for one job, which goes with it.
pub(crate) struct JobDirectory(PathBuf);

impl JobDirectory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(base.join(format!("sci-sim-test-{}-{number}", std::process::id())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for JobDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn node_ids(count: usize) -> Vec<NodeId> {
    (1..=count as u16).map(|number| NodeId(4 * number)).collect()
}

/// Runs a program on every node of a mapped job, whose processes are threads here. Returns what the first that
/// failed said.
pub(crate) fn mapped(
    count: usize,
    change: impl Fn(&mut MappedConfig),
    program: impl Program,
) -> Result<(), String> {
    let (directory, nodes) = (JobDirectory::new(), node_ids(count));
    let threads: Vec<_> = (0..count)
        .map(|me| {
            let mut config = MappedConfig::new(directory.path(), nodes[me], nodes.iter().copied());
            change(&mut config);
            let (program, nodes) = (program.clone(), nodes.clone());
            std::thread::spawn(move || program.run(Mapped::initialize(config).unwrap(), me, &nodes))
        })
        .collect();
    let failures = threads.into_iter().filter_map(|thread| thread.join().err());
    let text = |panic: Box<dyn std::any::Any + Send>| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    };
    failures.map(text).next().map_or(Ok(()), Err)
}

/// Runs a program on two neighbours, both ways.
pub(crate) fn pair(program: impl Program) {
    in_virtual_time(&SciConfig::pair(), program.clone()).unwrap();
    mapped(2, |_| (), program).unwrap();
}

/// Waits a while.
pub(crate) fn pause<N: Sisci>(nic: &N, span: Span) {
    let until = nic.now() + span;
    while nic.now() < until {
        nic.idle(Some(until), WaitReason::Message);
    }
}

/// Waits until a call's answer is not one that time may change.
pub(crate) fn retry<N: Sisci, R>(nic: &N, mut call: impl FnMut() -> Result<R, Code>) -> R {
    let end = nic.now() + Span::from_secs(300);
    loop {
        match call() {
            Ok(done) => return done,
            Err(
                Code::NoSuchSegment
                | Code::ConnectionRefused
                | Code::NoRemoteLinkAccess
                | Code::NoLinkAccess
                | Code::Timeout
                | Code::Busy,
            ) => {}
            Err(code) => panic!("{code}"),
        }
        assert!(nic.now() < end, "it never works");
        pause(nic, Span::from_micros(100));
    }
}

/// Waits until a byte of local memory has a value.
pub(crate) fn await_flag<N: Sisci>(nic: &N, map: &N::LocalMap, at: usize, value: u8) {
    let end = nic.now() + Span::from_secs(300);
    while nic.flag(map, at) != value {
        assert!(nic.losses() == 0, "the other node is lost");
        assert!(nic.now() < end, "byte {at} never becomes {value}");
        let until = nic.now() + Span::from_micros(20);
        nic.idle(Some(until), WaitReason::Message);
        nic.charge_empty_poll();
    }
}

pub(crate) fn bytes<M: Memory>(memory: &M, at: usize, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    memory.load(at, &mut out);
    out
}

/// A pattern by which any byte of any message is known.
pub(crate) fn pattern(message: usize, len: usize) -> Vec<u8> {
    (0..len).map(|index| (message.wrapping_mul(31).wrapping_add(index * 7) % 251) as u8 + 1).collect()
}

/// A segment of this node, and a connection to that of another.
pub(crate) struct Ends<N: Sisci> {
    pub(crate) descriptor: N::Descriptor,
    pub(crate) local: N::LocalSegment,
    pub(crate) mine: N::LocalMap,
    pub(crate) remote: N::RemoteSegment,
    pub(crate) map: N::RemoteMap,
}

/// Waits until the other node has come as far as this one, whatever gets lost on the way: nobody is gone before it
/// is found.
fn meet<N: Sisci>(nic: &N, descriptor: &N::Descriptor, other: NodeId) {
    const MET: u32 = 77;
    let here = nic.create_interrupt(descriptor, MET).unwrap();
    let there = retry(nic, || nic.connect_interrupt(descriptor, other, MET, Span::from_millis(2)));
    loop {
        let _ = nic.trigger_interrupt(&there);
        if nic.wait_for_interrupt(&here, Some(Span::from_micros(300))).is_ok() {
            break;
        }
    }
    // The other one may not have been told yet, and its interrupt may get lost like anything else.
    for _ in 0..5 {
        let _ = nic.trigger_interrupt(&there);
    }
    nic.disconnect_interrupt(there);
    nic.remove_interrupt(here);
}

/// Makes a segment number 1 of a size, and connects to another node's. Returns when that one has done so too.
pub(crate) fn ends<N: Sisci>(nic: &N, other: NodeId, size: usize) -> Ends<N> {
    let descriptor = nic.open().unwrap();
    let local = nic.create_segment(&descriptor, SegmentId(1), size, Flags::NONE).unwrap();
    nic.prepare_segment(&local).unwrap();
    let mine = nic.map_local(&local, 0, size).unwrap();
    nic.set_available(&local).unwrap();
    let timeout = Span::from_millis(2);
    let remote = retry(nic, || nic.connect_segment(&descriptor, other, SegmentId(1), timeout, Flags::NONE));
    let map = nic.map_remote(&remote, 0, size).unwrap();
    meet(nic, &descriptor, other);
    Ends { descriptor, local, mine, remote, map }
}
