//! Ranks that meet at `AM_RENDEZVOUS`: started by hand with three variables and a file for the secret, or by an
//! `mpirun` that is imitated or real. All on this host, over shared memory or UDP.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;

use crate::harness::{Finished, Roll, Running, Test, clean, finish, role};
use crate::launchers::allow_mpirun;
use crate::roles::ROLL;

pub(crate) const TESTS: &[Test] = &[
    ("rendezvous_by_hand", by_hand),
    ("rendezvous_every_run_has_a_secret", every_run_has_a_secret),
    ("rendezvous_mpirun_on_several_hosts", mpirun_on_several_hosts),
    ("rendezvous_real_mpirun", real_mpirun),
    ("rendezvous_secret_files", secret_files),
    ("rendezvous_wrong_secret", wrong_secret),
    ("rendezvous_wrong_version", wrong_version),
    ("rendezvous_ranks_that_contradict", ranks_that_contradict),
    ("rendezvous_addresses", addresses),
    ("rendezvous_missing_ranks", missing_ranks),
    ("rendezvous_lost_rank", lost_rank),
    ("rendezvous_lost_ranks_are_named", lost_ranks_are_named),
];

/// A file with a secret, removed with the test.
struct SecretFile(PathBuf);

impl SecretFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("am-launch-secret-{}-{name}", std::process::id()));
        fs::write(&path, text).expect("a temporary file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its own file");
        Self(path)
    }

    fn path(&self) -> String {
        self.0.to_str().expect("text").to_owned()
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// An address that nobody listens at.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string()
}

type Variables = Vec<(&'static str, String)>;

fn hand(rank: u32, ranks: u32, address: &str, secret: &SecretFile) -> Variables {
    vec![
        ("AM_RANK", rank.to_string()),
        ("AM_RANKS", ranks.to_string()),
        ("AM_RENDEZVOUS", address.into()),
        ("AM_SECRET_FILE", secret.path()),
    ]
}

/// Starts these ranks, the last one first, so that it has to wait for rank 0, and runs them to their ends.
fn start(actions: &[&str], ranks: Vec<Variables>) -> Vec<Finished> {
    let running: Vec<Running> = ranks
        .into_iter()
        .rev()
        .map(|variables| Running::start(role("job").args(actions).envs(variables)))
        .collect();
    running.into_iter().map(Running::finish).rev().collect()
}

fn by_hand() {
    let secret = SecretFile::new("by-hand", "0123456789abcdef0123456789abcdef\n");
    for (transport, near, far) in [("auto", "; shared memory to 0-2\n", ""), ("udp", "; UDP to 0-2\n", " (lo)")] {
        let address = free_address();
        let ranks = (0..3)
            .map(|rank| [hand(rank, 3, &address, &secret), vec![("AM_TRANSPORT", transport.into())]].concat());
        for (rank, finished) in start(&["report", "barrier"], ranks.collect()).iter().enumerate() {
            assert_eq!(finished.code(), 0, "{finished:?}");
            let text = finished.text();
            assert!(text.starts_with(&format!("rank {rank} of 3, started by hand")), "{text}");
            assert!(text.ends_with(near) && text.contains(far), "{text}");
        }
    }
}

/// What is sent in one run is sealed with other keys than in every other run, though the file is the same.
fn every_run_has_a_secret() {
    let file = SecretFile::new("every-run", "0123456789abcdef");
    let run = || {
        let address = free_address();
        let udp = ("AM_TRANSPORT", "udp".to_owned());
        let ranks = (0..3).map(|rank| [hand(rank, 3, &address, &file), vec![udp.clone()]].concat());
        let finished = start(&["secret", "barrier"], ranks.collect());
        finished.iter().for_each(|rank| assert_eq!(rank.code(), 0, "{rank:?}"));
        finished.iter().map(|rank| rank.text()).collect::<Vec<_>>()
    };
    let (first, second) = (run(), run());
    assert!(first.iter().all(|rank| *rank == first[0]) && second.iter().all(|rank| *rank == second[0]));
    assert_ne!(first[0], second[0]);
    assert!(!first[0].is_empty() && !first[0].contains("0123456789abcdef"));
}

/// Open MPI says that only some of the ranks are here: they meet where they are told to.
fn mpirun_on_several_hosts() {
    let secret = SecretFile::new("mpirun", "0123456789abcdef");
    let address = free_address();
    let rank = |rank: u32| -> Variables {
        vec![
            ("OMPI_COMM_WORLD_RANK", rank.to_string()),
            ("OMPI_COMM_WORLD_SIZE", "4".into()),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2".into()),
            ("OMPI_COMM_WORLD_LOCAL_RANK", (rank % 2).to_string()),
            ("AM_RENDEZVOUS", address.clone()),
            ("AM_SECRET_FILE", secret.path()),
            ("AM_TRANSPORT", "udp".into()),
        ]
    };
    for finished in start(&["who", "barrier"], (0..4).map(rank).collect()) {
        assert_eq!(finished.code(), 0, "{finished:?}");
        assert!(finished.text().ends_with(" of 4 by mpirun\n"), "{finished:?}");
    }
}

fn real_mpirun() {
    if clean("mpirun").arg("--version").output().is_err() {
        println!("rendezvous_real_mpirun: skipped, no mpirun is installed");
        return;
    }
    let secret = SecretFile::new("real-mpirun", "0123456789abcdef");
    let program = std::env::current_exe().expect("a test knows its file");
    for transport in ["auto", "udp"] {
        let mut command = clean("mpirun");
        allow_mpirun(&mut command);
        // Open MPI needs to be told to pass variables on to other hosts; MPICH passes all of them.
        command
            .env("AM_RENDEZVOUS", free_address())
            .env("AM_SECRET_FILE", secret.path())
            .env("AM_TRANSPORT", transport);
        let finished = finish(command.args(["-n", "3"]).arg(&program).args(["--role", "job", "who", "barrier"]));
        assert_eq!(finished.code(), 0, "{finished:?}");
        assert_eq!(finished.sorted(), [0, 1, 2].map(|rank| format!("{rank} of 3 by mpirun")), "{finished:?}");
    }
}

/// Runs one rank that can't get far, and checks its code and the parts of its only line.
fn fails(variables: Variables, code: i32, parts: &[&str]) {
    let finished = finish(role("job").arg("who").envs(variables));
    assert_eq!(finished.code(), code, "{finished:?}");
    assert_eq!(finished.err.lines().count(), 1, "{finished:?}");
    for part in parts {
        assert!(finished.err.contains(part), "'{part}' is not in {finished:?}");
    }
}

fn secret_files() {
    let secret = SecretFile::new("files", "0123456789abcdef");
    let address = free_address();
    let mut without = hand(0, 2, &address, &secret);
    without.pop();
    fails(without, 2, &[&format!("AM_RENDEZVOUS={address} needs the job's secret: AM_SECRET_FILE=FILE")]);
    fs::set_permissions(&secret.0, fs::Permissions::from_mode(0o644)).expect("its own file");
    fails(hand(0, 2, &address, &secret), 2, &["is open to other users (mode 644): chmod 600 "]);
    let short = SecretFile::new("short", "guess me\n");
    fails(hand(0, 2, &address, &short), 2, &["has 8 bytes, but needs at least 16"]);
    let mut missing = hand(0, 2, &address, &secret);
    missing[3].1 = "/no/such/secret".into();
    fails(missing.clone(), 2, &["can't be read from /no/such/secret"]);
    missing[3].1 = "/dev/zero".into();
    fails(missing, 2, &["the job's secret is read from a regular file, which /dev/zero is not"]);
}

fn wrong_secret() {
    let (ours, theirs) =
        (SecretFile::new("ours", "0123456789abcdef"), SecretFile::new("theirs", "fedcba9876543210"));
    let address = free_address();
    let limit = ("AM_MEET_TIMEOUT", "2".to_owned());
    let rank = |rank, secret| [hand(rank, 2, &address, secret), vec![limit.clone()]].concat();
    let finished = start(&["who"], vec![rank(0, &ours), rank(1, &theirs)]);
    assert_eq!(finished[1].code(), 125, "{finished:?}");
    assert!(finished[1].err.contains("its secret is another one"), "{finished:?}");
    assert_eq!(finished[0].code(), 125, "{finished:?}");
    assert!(
        finished[0].err.contains("1 callers with another secret were refused, the last from 127.0.0.1"),
        "{finished:?}"
    );
}

fn wrong_version() {
    let secret = SecretFile::new("version", "0123456789abcdef");
    // A rank 0 of another version.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a caller");
        let mut greeting = [0; 40];
        stream.read_exact(&mut greeting).expect("a greeting");
        greeting[6] = 77;
        stream.write_all(&greeting).expect("it listens");
        let _ = stream.read(&mut greeting);
    });
    fails(
        hand(1, 2, &address, &secret),
        125,
        &["its version of the start protocol is 77, ours is ", "install one version"],
    );
    server.join().expect("no panic");
    // A caller of another version, which rank 0 remembers.
    let address = free_address();
    let variables = [hand(0, 2, &address, &secret), vec![("AM_MEET_TIMEOUT", "1".into())]].concat();
    let rank = Running::start(role("job").arg("who").envs(variables));
    let mut stream = crate::orphans::within(crate::harness::ANTI_HANG, || TcpStream::connect(&address).ok());
    stream.write_all(&[&b"am-rdv"[..], &78u16.to_le_bytes(), &[0; 32]].concat()).expect("it listens");
    let finished = rank.finish();
    assert!(
        finished
            .err
            .contains("a caller was refused, the last from 127.0.0.1: its version of the start protocol is 78"),
        "{finished:?}"
    );
}

fn ranks_that_contradict() {
    let secret = SecretFile::new("contradict", "0123456789abcdef");
    let second = |change: &dyn Fn(&mut Variables)| {
        let address = free_address();
        let mut other = hand(1, 3, &address, &secret);
        change(&mut other);
        let [zero, one]: [Finished; 2] =
            start(&["who"], vec![hand(0, 3, &address, &secret), other]).try_into().expect("two");
        assert_eq!((zero.code(), one.code()), (125, 125), "{zero:?} {one:?}");
        let said = |finished: &Finished| finished.err.split_once(": ").expect("a name in front").1.to_owned();
        assert_eq!(said(&zero), said(&one), "both know why");
        said(&one)
    };
    assert!(second(&|rank| rank[1].1 = "2".into()).contains("claims to be rank 1 of 2, but the job has 3 ranks"));
    let transport = second(&|rank| rank.push(("AM_TRANSPORT", "udp".into())));
    assert!(
        transport.contains("has AM_TRANSPORT=udp, but rank 0 has none: set it alike everywhere"),
        "{transport}"
    );
}

fn addresses() {
    let secret = SecretFile::new("addresses", "0123456789abcdef");
    fails(hand(0, 2, "127.0.0.1", &secret), 2, &["AM_RENDEZVOUS=127.0.0.1 in the environment is not HOST:PORT"]);
    fails(hand(0, 2, "127.0.0.1:0", &secret), 2, &["is not HOST:PORT: its port is 0"]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    fails(hand(0, 2, &address, &secret), 125, &[&format!("the rendezvous port {address} is in use on this host")]);
    // An address of the block that is set aside for documentation.
    fails(
        hand(0, 2, "198.51.100.1:4000", &secret),
        125,
        &["198.51.100.1:4000 is not one of this host's", "rank 0"],
    );
    let variables = [hand(1, 2, &free_address(), &secret), vec![("AM_MEET_TIMEOUT", "0.3".into())]].concat();
    fails(variables, 125, &["can't be reached within 0.3 s: Connection refused"]);
    let variables = [hand(0, 1, &free_address(), &secret), vec![("AM_INTERFACE", "none7".into())]].concat();
    fails(variables, 125, &["no interface fits none7; there are "]);
}

fn missing_ranks() {
    let secret = SecretFile::new("missing", "0123456789abcdef");
    let address = free_address();
    let limit = ("AM_MEET_TIMEOUT", "1".to_owned());
    let ranks = [0, 2].map(|rank| [hand(rank, 4, &address, &secret), vec![limit.clone()]].concat());
    let finished = start(&["who"], ranks.into());
    let part =
        format!("2 of 4 ranks, the first of them rank 1, did not report at AM_RENDEZVOUS={address} within 1 s");
    assert!(finished[0].err.contains(&part), "{finished:?}");
    assert_eq!((finished[0].code(), finished[1].code()), (125, 125));
}

/// Ranks that are killed, or exit with 0 without taking leave: all others hear of it at once, whichever rank it
/// is. Nobody but rank 0 tells them: over UDP no silence is waited for, and shared memory watches no rank that has
/// not attached.
fn lost_ranks_are_named() {
    let secret = SecretFile::new("named", "0123456789abcdef");
    let udp = ["2:killed", "1:vanish", "0:killed", "0:vanish"].map(|action| ("udp", action));
    for (transport, action) in udp.into_iter().chain([("auto", "2:kill")]) {
        let (whose, _) = action.split_once(':').expect("a rank");
        let roll = Roll::new(&format!("rendezvous-{transport}-{}", action.replace(':', "-")));
        let address = free_address();
        let more = [
            ("AM_TRANSPORT", transport.to_owned()),
            // Nobody waits for silence.
            ("AM_UDP_SILENCE", "1000".into()),
            (ROLL, roll.0.to_string_lossy().into_owned()),
        ];
        let ranks = (0..3).map(|rank| [hand(rank, 3, &address, &secret), more.to_vec()].concat());
        let finished = start(&[action, "outlive"], ranks.collect());
        for (rank, finished) in finished.iter().enumerate() {
            if rank.to_string() != whose {
                let said = format!("{}{}", finished.text(), finished.err);
                assert!(said.contains(&format!("rank {whose} is lost: its process died")), "{finished:?}");
            }
        }
    }
}

/// A rank that dies after the rendezvous and before it attaches keeps nobody waiting.
fn lost_rank() {
    let secret = SecretFile::new("lost", "0123456789abcdef");
    for transport in ["auto", "udp"] {
        let address = free_address();
        let more = [("AM_TRANSPORT", transport), ("AM_UDP_SILENCE", "1"), ("AM_TIMEOUT", "30s")]
            .map(|(key, value)| (key, value.to_owned()));
        let ranks = (0..3).map(|rank| [hand(rank, 3, &address, &secret), more.to_vec()].concat());
        let finished = start(&["1:kill", "barrier"], ranks.collect());
        for rank in [0, 2] {
            assert_eq!(finished[rank].code(), 1, "{finished:?}");
            assert!(finished[rank].err.contains(" is lost: "), "{finished:?}");
        }
    }
}
