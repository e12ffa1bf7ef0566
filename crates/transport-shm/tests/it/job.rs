//! What a job file is good for: opening it, joining it, and what happens to one that is damaged.

use am_core::transport::Membership;
use am_core::{LossCause, PeerStatus, Rank, Transport};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use transport_shm::{Job, JobConfig, JobError, JoinError, JoinOptions};

/// Bytes of the words that the header begins with: magic, version, ranks, endpoints, then the ring sizes.
const MAGIC: u64 = 0;
const VERSION: u64 = 8;
const RANKS: u64 = 16;
const REQUEST_CELLS: u64 = 32;
const PID_NAMESPACE: u64 = 72;

fn create(ranks: u32) -> Job {
    Job::create(&JobConfig::smallest(ranks)).expect("memory is there")
}

fn descriptor(job: &Job) -> OwnedFd {
    job.fd().try_clone_to_owned().expect("descriptors are there")
}

/// Overwrites a word of the job file as a program of another version, or a faulty one, would.
fn overwrite(job: &Job, at: u64, value: u64) {
    File::from(descriptor(job)).write_all_at(&value.to_le_bytes(), at).expect("the file can be written");
}

/// What opening a job says after one of its words has been overwritten.
fn opened_after(at: u64, value: u64) -> JobError {
    let job = create(3);
    overwrite(&job, at, value);
    Job::open(descriptor(&job)).expect_err("the header is wrong")
}

#[test]
fn a_job_is_opened_through_its_descriptor() {
    let job = create(3);
    let again = Job::open(descriptor(&job)).expect("the job is sound");
    assert_eq!(again.shape(), job.shape());
    let transport = again.join(2).expect("rank 2 is free");
    assert_eq!(transport.status(am_core::Peer(2)), PeerStatus::Active);
    assert!(matches!(job.join(2), Err(JoinError::Taken { rank: 2, endpoint: 0 })));
}

#[test]
fn ranks_of_other_pid_namespaces_are_refused() {
    let job = create(2);
    let _first = job.join(0).expect("rank 0 is free");
    job.join(1).expect("both are in one namespace");
    let job = create(2);
    overwrite(&job, PID_NAMESPACE, 1);
    let error = job.join(0).expect_err("the first endpoint was in another namespace");
    assert!(matches!(error, JoinError::PidNamespace { first: 1, .. }), "{error}");
    assert!(error.to_string().contains("--pid=host"), "{error}");
}

#[test]
fn other_files_are_not_jobs() {
    let null: OwnedFd = File::open("/dev/null").expect("it is always there").into();
    assert!(matches!(Job::open(null), Err(JobError::NotAJob)));
    for bytes in [0, 100, 1 << 20] {
        for seals in [SealFlag::empty(), SealFlag::F_SEAL_SHRINK] {
            let flags = nix::sys::memfd::MFdFlags::MFD_ALLOW_SEALING;
            let file = File::from(nix::sys::memfd::memfd_create(c"other", flags).expect("memory is there"));
            file.set_len(bytes).expect("it can grow");
            fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).expect("it can be sealed");
            assert!(matches!(Job::open(file.into()), Err(JobError::NotAJob)));
        }
    }
}

#[test]
fn another_version_is_named() {
    let error = opened_after(VERSION, 77);
    assert!(matches!(error, JobError::Layout { found: 77, .. }), "{error}");
    assert!(error.to_string().contains("memory layout 77"), "{error}");
}

#[test]
fn damaged_headers_are_refused() {
    assert!(matches!(opened_after(MAGIC, 0), JobError::NotAJob));
    for (at, values) in [
        (RANKS, [0, 2, 4, 5000, u64::MAX]),
        (RANKS + 8, [0, 2, 65, 1 << 20, u64::MAX]),
        (REQUEST_CELLS, [0, 3, 100, 8, u64::MAX]),
        (REQUEST_CELLS + 8, [0, 64, 100, 1 << 40, u64::MAX]),
        (REQUEST_CELLS + 16, [0, 3, 1 << 63, 1 << 20, u64::MAX]),
        (REQUEST_CELLS + 24, [0, 255, 1 << 30, 1 << 32, u64::MAX]),
    ] {
        for value in values {
            let error = opened_after(at, value);
            assert!(matches!(error, JobError::Damaged), "{value} at byte {at}: {error}");
        }
    }
}

#[test]
fn nobody_can_truncate_or_seal_a_job() {
    let job = create(2);
    let file = File::from(descriptor(&job));
    let len = file.metadata().expect("it is a file").len();
    for other in [0, len - 4096, len + 4096] {
        assert!(file.set_len(other).is_err(), "set to {other} bytes");
    }
    let seals = SealFlag::F_SEAL_FUTURE_WRITE;
    assert!(fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).is_err(), "a seal would keep others from joining");
    assert!(Job::open(descriptor(&job)).is_ok());
}

#[test]
fn a_job_has_no_name() {
    let job = create(2);
    let file = File::from(descriptor(&job));
    assert_eq!(file.metadata().expect("it is a file").nlink(), 0);
}

#[test]
fn an_endpoint_is_joined_once_however_many_try_at_once() {
    for _ in 0..50 {
        let job = create(2);
        let start = std::sync::Barrier::new(4);
        let winners = std::thread::scope(|scope| {
            let claims: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        job.join(0)
                    })
                })
                .collect();
            let outcomes: Vec<_> = claims.into_iter().map(|claim| claim.join().expect("no panic")).collect();
            let taken =
                outcomes.iter().filter(|outcome| matches!(outcome, Err(JoinError::Taken { rank: 0, .. }))).count();
            assert_eq!(taken, 3);
            outcomes.into_iter().flatten().count()
        });
        assert_eq!(winners, 1);
    }
}

#[test]
fn what_cannot_be_joined_is_named() {
    let job = Job::create(&JobConfig::smallest(2).endpoints(2)).expect("memory is there");
    let join = |rank, segment_bytes, endpoint| {
        job.join_with(rank, JoinOptions::default().segment_bytes(segment_bytes).endpoint(endpoint))
    };
    let error = join(2, 0, 0).unwrap_err();
    assert_eq!(error.to_string(), "rank 2 endpoint 0 is not in a job of 2 ranks with 2 endpoint(s) each");
    assert!(matches!(join(0, 0, 2), Err(JoinError::NoSuchEndpoint { endpoint: 2, .. })));
    assert!(matches!(join(0, usize::MAX, 0), Err(JoinError::SegmentTooLarge { bytes: usize::MAX, .. })));
    let _first = join(0, 100, 0).expect("it is free");
    let error = join(0, 200, 1).unwrap_err();
    assert_eq!(error.to_string(), "endpoints of rank 0 ask for segments of 100 and 200 bytes");
    let _second = join(0, 100, 1).expect("a refusal does not take the endpoint");
}

#[test]
fn every_rank_has_a_segment_of_its_own_size() {
    let job = create(3);
    let join =
        |rank, segment_bytes| job.join_with(rank, JoinOptions::default().segment_bytes(segment_bytes)).unwrap();
    let first = join(0, 10);
    assert_eq!(first.segment_len(Rank(1)), 0, "not known before it joins");
    assert!(first.remote_segment(Rank(1)).is_none());
    let (second, third) = (join(1, 1 << 20), join(2, 0));
    for rank in [&first, &second, &third] {
        assert_eq!([0, 1, 2].map(|other| rank.segment_len(Rank(other))), [10, 1 << 20, 0]);
        assert_eq!(rank.segment_len(Rank(3)), 0);
        assert!(rank.remote_segment(Rank(3)).is_none());
    }
    let far = first.remote_segment(Rank(1)).expect("it has joined");
    far.write((1 << 20) - 3, b"end").unwrap();
    assert!(far.write((1 << 20) - 2, b"end").is_err());
    let mut end = [0; 3];
    second.segment().read((1 << 20) - 3, &mut end).unwrap();
    assert_eq!(&end, b"end");
}

#[test]
fn a_dead_rank_cannot_join_any_more() {
    let job = create(2);
    job.mark_dead(1);
    assert_eq!(job.status(1), Some(PeerStatus::Lost(LossCause::Died)));
    assert!(matches!(job.join(1), Err(JoinError::Taken { rank: 1, .. })));
    assert_eq!((job.status(0), job.status(2)), (Some(PeerStatus::Active), None));
}

/// Programs that another thread starts while a job is made do not get it.
#[test]
fn descriptors_are_left_to_others_on_request() {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    let job = create(1);
    let flags = || FdFlag::from_bits_retain(fcntl(job.fd(), FcntlArg::F_GETFD).expect("it is open"));
    assert_eq!(flags(), FdFlag::FD_CLOEXEC);
    job.inherit().expect("it is open");
    assert_eq!(flags(), FdFlag::empty());
}
