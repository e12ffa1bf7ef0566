//! Ranks that something else started: `mpirun` and `srun`, imitated by their variables and, where installed, real.
//! That ranks found each other is shown by a barrier.

use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::harness::{Finished, Roll, Running, Test, clean, finish, role};
use crate::roles::ROLL;

pub(crate) const TESTS: &[Test] = &[
    ("launchers_open_mpi", open_mpi),
    ("launchers_mpich", mpich),
    ("launchers_mpich_below_a_shell", mpich_below_a_shell),
    ("launchers_slurm", slurm),
    ("launchers_slurm_batch_script", slurm_batch_script),
    ("launchers_by_hand", by_hand),
    ("launchers_lost_ranks", lost_ranks),
    ("launchers_a_missing_rank_is_an_error", a_missing_rank_is_an_error),
    ("launchers_several_hosts", several_hosts),
    ("launchers_real_mpirun", real_mpirun),
];

/// Starts `ranks` processes by hand, each with the variables for its rank, and runs them to their ends.
fn start(ranks: u32, actions: &[&str], variables: impl Fn(u32) -> Vec<(&'static str, String)>) -> Vec<Finished> {
    // The last rank first, so that it has to wait for rank 0.
    let running: Vec<Running> =
        (0..ranks).rev().map(|rank| Running::start(role("job").args(actions).envs(variables(rank)))).collect();
    running.into_iter().map(Running::finish).rev().collect()
}

/// Checks that the processes found each other: same job, right ranks.
fn check(finished: &[Finished], by: &str) {
    let ranks = finished.len();
    for (rank, finished) in finished.iter().enumerate() {
        assert_eq!(finished.code(), 0, "{finished:?}");
        assert!(finished.text().starts_with(&format!("{rank} of {ranks} by {by}\n")), "{finished:?}");
    }
}

fn open_mpi() {
    let finished = start(3, &["who", "barrier"], |rank| {
        vec![
            ("OMPI_COMM_WORLD_RANK", rank.to_string()),
            ("OMPI_COMM_WORLD_SIZE", "3".into()),
            ("OMPI_COMM_WORLD_LOCAL_RANK", rank.to_string()),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "3".into()),
            ("PMIX_NAMESPACE", format!("imitated-{}", std::process::id())),
            ("PMIX_RANK", rank.to_string()),
        ]
    });
    check(&finished, "mpirun");
}

/// MPICH names no job: ranks of one parent belong together, so this process starts one such job at a time.
static ONE_OF_MPICH: Mutex<()> = Mutex::new(());

fn mpich() {
    let _turn = ONE_OF_MPICH.lock().unwrap_or_else(PoisonError::into_inner);
    let finished =
        start(4, &["who", "barrier"], |rank| vec![("PMI_RANK", rank.to_string()), ("PMI_SIZE", "4".into())]);
    check(&finished, "mpirun");
}

/// A shell between launcher and rank doesn't separate the ranks.
fn mpich_below_a_shell() {
    let _turn = ONE_OF_MPICH.lock().unwrap_or_else(PoisonError::into_inner);
    let program = std::env::current_exe().expect("a test knows its file");
    let start = |rank: u32| {
        let mut command = clean("sh");
        command.args(["-c", "\"$@\"; exit $?", "sh"]).arg(&program).args(["--role", "job", "who", "barrier"]);
        Running::start(command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", "2"))
    };
    let running = [start(0), start(1)];
    check(&running.map(Running::finish), "mpirun");
}

fn slurm() {
    let finished = start(2, &["who", "barrier"], |rank| {
        vec![
            ("SLURM_JOB_ID", std::process::id().to_string()),
            ("SLURM_STEP_ID", "0".into()),
            ("SLURM_PROCID", rank.to_string()),
            ("SLURM_LOCALID", rank.to_string()),
            ("SLURM_NTASKS", "2".into()),
            ("SLURM_STEP_NUM_NODES", "1".into()),
        ]
    });
    check(&finished, "srun");
}

fn slurm_batch_script() {
    let variables = [("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "16")];
    let finished = finish(role("job").args(["2", "who"]).envs(variables));
    assert_eq!(finished.sorted(), [0, 1].map(|rank| format!("{rank} of 2 by the program itself")), "{finished:?}");
}

fn by_hand() {
    let finished = start(2, &["who", "barrier"], |rank| {
        let job = format!("by-hand-{}", std::process::id());
        vec![("AM_RANK", rank.to_string()), ("AM_RANKS", "2".into()), ("AM_JOB", job)]
    });
    check(&finished, "hand");
    // Their addresses go the same way.
    let finished = start(3, &["who", "report", "barrier"], |rank| {
        let job = format!("by-hand-udp-{}", std::process::id());
        let rank = ("AM_RANK", rank.to_string());
        vec![rank, ("AM_RANKS", "3".into()), ("AM_JOB", job), ("AM_TRANSPORT", "udp".into())]
    });
    check(&finished, "hand");
    assert!(finished.iter().all(|rank| rank.text().ends_with("; UDP to 0-2\n")), "{finished:?}");
}

/// A rank that ends before it attaches, and ones that end later: rank 0 tells the others in a launcher's place,
/// and its own end shows. Nobody else tells them of these.
fn lost_ranks() {
    for (transport, action) in [("shm", "2:kill"), ("udp", "2:kill"), ("udp", "2:killed"), ("udp", "0:killed")] {
        let (whose, how) = action.split_once(':').expect("a rank");
        let roll = Roll::new(&format!("hand-{transport}-{whose}-{how}"));
        let finished = start(3, &[action, "outlive"], |rank| {
            let job = format!("lost-{transport}-{whose}-{how}-{}", std::process::id());
            vec![
                ("AM_RANK", rank.to_string()),
                ("AM_RANKS", "3".into()),
                ("AM_JOB", job),
                ("AM_TRANSPORT", transport.into()),
                // Nobody waits for silence.
                ("AM_UDP_SILENCE", "1000".into()),
                (ROLL, roll.0.to_string_lossy().into_owned()),
            ]
        });
        for (rank, finished) in finished.iter().enumerate().filter(|(rank, _)| rank.to_string() != whose) {
            let said = format!("{}{}", finished.text(), finished.err);
            let lost = format!("rank {whose} is lost: its process died");
            assert!(said.contains(&lost), "rank {rank}, {action}: {finished:?}");
        }
    }
}

fn a_missing_rank_is_an_error() {
    let job = format!("nobody-else-{}", std::process::id());
    for (rank, part) in
        [("0", "1 ranks, the first of them rank 1, did not turn up within 0.2 s"), ("1", "rank 0 did not")]
    {
        let variables = [("AM_RANK", rank), ("AM_RANKS", "2"), ("AM_JOB", &*job), ("AM_MEET_TIMEOUT", "0.2")];
        let finished = finish(role("job").arg("who").envs(variables));
        assert_eq!(finished.code(), 125, "{finished:?}");
        assert!(finished.err.contains(part) && finished.err.lines().count() == 1, "{finished:?}");
    }
}

fn several_hosts() {
    let variables =
        [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "2")];
    let finished = finish(role("job").arg("who").envs(variables));
    assert_eq!(finished.code(), 2, "{finished:?}");
    assert!(finished.err.contains("nothing says where ranks of several hosts meet"), "{finished:?}");
}

fn real_mpirun() {
    if clean("mpirun").arg("--version").output().is_err() {
        println!("launchers_real_mpirun: skipped, no mpirun is installed");
        return;
    }
    let mut command = clean("mpirun");
    allow_mpirun(&mut command);
    let program = std::env::current_exe().expect("a test knows its file");
    let finished = finish(command.args(["-n", "3"]).arg(program).args(["--role", "job", "who", "barrier"]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert_eq!(finished.sorted(), [0, 1, 2].map(|rank| format!("{rank} of 3 by mpirun")), "{finished:?}");
}

/// Lets Open MPI's `mpirun` start ranks as any user, and more of them than there are processors.
pub(crate) fn allow_mpirun(command: &mut Command) {
    for allowed in [
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "OMPI_MCA_rmaps_base_oversubscribe",
        "PRTE_ALLOW_RUN_AS_ROOT",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
    ] {
        command.env(allowed, "1");
    }
    command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
}
