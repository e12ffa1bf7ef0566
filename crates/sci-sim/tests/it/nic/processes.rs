//! Jobs of real processes: one that is killed, files that a dead job left, nodes that are taken.

use crate::nic_support::{JobDirectory, await_flag, bytes, ends, node_ids, pattern, pause};
use am_core::{LossCause, PeerStatus, Span};
use sci_sim::nic::{
    Flags, Mapped, MappedConfig, MappedError, NodeId, SegmentId, SegmentReason, SequenceStatus, Sisci,
};
use std::path::Path;
use std::process::{Child, Command};

const PART: &str = "SCI_TEST_PART";
const DIRECTORY: &str = "SCI_TEST_DIRECTORY";

fn join(directory: &Path, me: usize) -> Result<Mapped, MappedError> {
    let nodes = node_ids(2);
    Mapped::initialize(MappedConfig::new(directory, nodes[me], nodes))
}

/// Runs this test program once more, as another process with a part of its own.
fn process(part: &str, directory: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["nic::processes::a_part_of_another_process", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(PART, part).env(DIRECTORY, directory).spawn().unwrap()
}

#[test]
fn a_part_of_another_process() {
    let Ok(part) = std::env::var(PART) else { return };
    let directory = std::path::PathBuf::from(std::env::var(DIRECTORY).unwrap());
    if part == "limited" {
        let error = join(&directory, 1).unwrap_err().to_string();
        assert!(error.ends_with("start it with `ulimit -f unlimited`"), "{error}");
        return;
    }
    let nic = join(&directory, 1).unwrap();
    let other = node_ids(2)[0];
    let ends = ends(&nic, other, 64 << 10);
    let mut sequence = nic.create_map_sequence(&ends.map).unwrap();
    assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::Ok);
    match part.as_str() {
        // Answers each of some messages with its own.
        "echo" => {
            for number in 1..=200 {
                await_flag(&nic, &ends.mine, 0, (number % 200 + 1) as u8);
                let len = number * 37 % 5000 + 1;
                let data = bytes(&nic.memory(&ends.mine), 64, len);
                assert_eq!(data, pattern(number, len));
                nic.store(&ends.map, 64, &data).unwrap();
                assert_eq!(nic.check_sequence(&mut sequence, Flags::NONE), Ok(SequenceStatus::Ok));
                nic.store_flag(&ends.map, 0, (number % 200 + 1) as u8).unwrap();
                nic.alert(&ends.map);
            }
            nic.depart(PeerStatus::Finished);
        }
        // Says that it is there, and waits to be killed.
        "victim" => {
            nic.store_flag(&ends.map, 0, 1).unwrap();
            nic.alert(&ends.map);
            pause(&nic, Span::from_secs(300));
        }
        part => panic!("there is no part {part}"),
    }
}

#[test]
fn processes_exchange_data_and_wake_each_other() {
    let directory = JobDirectory::new();
    let nic = join(directory.path(), 0).unwrap();
    let mut child = process("echo", directory.path());
    let ends = ends(&nic, node_ids(2)[1], 64 << 10);
    nic.watch(&ends.mine, 0).unwrap();
    for number in 1..=200 {
        let len = number * 37 % 5000 + 1;
        nic.store(&ends.map, 64, &pattern(number, len)).unwrap();
        nic.store_flag(&ends.map, 0, (number % 200 + 1) as u8).unwrap();
        nic.alert(&ends.map);
        if number % 20 == 0 {
            // Long enough for the other side to sleep.
            pause(&nic, Span::from_millis(2));
        }
        await_flag(&nic, &ends.mine, 0, (number % 200 + 1) as u8);
        assert_eq!(bytes(&nic.memory(&ends.mine), 64, len), pattern(number, len));
        nic.take_flag(&ends.mine, 0);
    }
    assert!(child.wait().unwrap().success());
    let peer = node_ids(2)[1];
    while nic.status(peer) == PeerStatus::Active {
        pause(&nic, Span::from_millis(1));
    }
    assert_eq!((nic.status(peer), nic.losses()), (PeerStatus::Finished, 0));
    drop(nic);
    assert!(!directory.path().exists(), "the last process clears the directory away");
}

#[test]
fn a_killed_process_frees_its_node() {
    let directory = JobDirectory::new();
    let nic = join(directory.path(), 0).unwrap();
    let mut child = process("victim", directory.path());
    let peer = node_ids(2)[1];
    let first = ends(&nic, peer, 64 << 10);
    let mut sequence = nic.create_map_sequence(&first.map).unwrap();
    assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::Ok);
    await_flag(&nic, &first.mine, 0, 1);
    assert!(matches!(join(directory.path(), 1), Err(MappedError::Taken { node: NodeId(8), .. })));
    child.kill().unwrap();
    child.wait().unwrap();
    let patience = Some(Span::from_secs(300));
    assert_eq!(nic.wait_for_remote_segment_event(&first.remote, patience), Ok(SegmentReason::Lost));
    assert_eq!((nic.status(peer), nic.losses()), (PeerStatus::Lost(LossCause::Died), 1));
    assert_eq!(nic.check_sequence(&mut sequence, Flags::NONE), Ok(SequenceStatus::NotRetriable));
    let connect = || nic.connect_segment(&first.descriptor, peer, SegmentId(1), Span::from_millis(1), Flags::NONE);
    assert!(connect().is_err(), "nobody connects to what a dead process left");
    // The next process of the node finds a clean place, and is found in place of the dead one.
    let next = join(directory.path(), 1).unwrap();
    assert!(connect().is_err());
    let session = next.open().unwrap();
    let segment = next.create_segment(&session, SegmentId(1), 64, Flags::NONE).unwrap();
    next.prepare_segment(&segment).unwrap();
    next.set_available(&segment).unwrap();
    assert_eq!(nic.remote_segment_size(&connect().unwrap()), 64);
    assert_eq!((nic.status(peer), nic.losses()), (PeerStatus::Active, 1));
}

/// Processor time of this thread so far, in nanoseconds.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn whoever_waits_leaves_its_processor_to_others() {
    let directory = JobDirectory::new();
    let nic = join(directory.path(), 0).unwrap();
    let before = processor_time();
    pause(&nic, Span::from_millis(400));
    let used = processor_time() - before;
    assert!(used < 200_000_000, "{used} ns of 400 ms");
}

#[test]
fn one_of_many_takes_a_node() {
    let directory = JobDirectory::new();
    for _ in 0..20 {
        let start = std::sync::Barrier::new(4);
        let (start, path) = (&start, directory.path());
        let taken = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| {
                scope.spawn(move || {
                    start.wait();
                    let joined = join(path, 0);
                    start.wait();
                    match joined {
                        Ok(_) => 1,
                        Err(MappedError::Taken { .. }) => 0,
                        Err(error) => panic!("{error}"),
                    }
                })
            });
            threads.map(|thread| thread.join().unwrap()).into_iter().sum::<u32>()
        });
        assert_eq!(taken, 1);
    }
}

/// Beyond its limit a process would be ended by a signal.
#[test]
fn a_limit_of_file_sizes_is_an_error() {
    let directory = JobDirectory::new();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    command.args(["nic::processes::a_part_of_another_process", "--exact", "--nocapture", "--test-threads=1"]);
    // What it says goes through pipes, which have no such limit.
    let output = command.env(PART, "limited").env(DIRECTORY, directory.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn impossible_configurations_name_field_and_limit() {
    let directory = JobDirectory::new();
    let refused = |change: fn(&mut MappedConfig)| {
        let mut config = MappedConfig::new(directory.path(), NodeId(4), node_ids(2));
        change(&mut config);
        Mapped::initialize(config).unwrap_err().to_string()
    };
    assert_eq!(refused(|config| config.node = NodeId(5)), "node is node 5, but must be one of the job's nodes");
    assert_eq!(refused(|config| config.nodes.push(NodeId(4))), "nodes is node 4, but must be named once");
    assert!(refused(|config| config.segment_bytes = 2).starts_with("segment_bytes is 2, but must be from 4"));
    assert!(refused(|config| config.dma_alignment = 3).starts_with("dma_alignment is 3, but must be 4, 8"));
    assert!(refused(|config| config.errors.pending = 1.5).starts_with("errors.pending is 1.5, but must be a"));
    assert!(refused(|config| config.directory = "/dev/null/job".into()).starts_with("/dev/null/job: "));
}
