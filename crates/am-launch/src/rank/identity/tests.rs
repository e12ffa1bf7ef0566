//! Environments of every launcher, and malformed ones.

use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Option<Identity>, EnvironmentError> {
    identify(&|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
}

fn rank(variables: &[(&str, &str)]) -> Identity {
    read(variables).expect("a sound environment").expect("a rank")
}

fn error(variables: &[(&str, &str)]) -> String {
    read(variables).expect_err("a malformed environment").to_string()
}

fn inherited(manifest: &str, control: &str) -> Inherited {
    Inherited { manifest: manifest.parse().unwrap(), control: control.parse().unwrap() }
}

#[test]
fn an_empty_environment_is_no_rank() {
    assert_eq!(read(&[]), Ok(None));
    assert_eq!(read(&[("AM_JOB", "left over")]), Ok(None));
}

#[test]
fn amrun_and_the_program_itself() {
    let mut variables = vec![
        ("AM_RANK", "3"),
        ("AM_RANKS", "4"),
        ("AM_LOCAL_RANK", "3"),
        ("AM_LOCAL_RANKS", "4"),
        ("AM_JOB", "17-abc"),
        ("AM_MANIFEST_FD", "5:9:50"),
        ("AM_CONTROL_FD", "8:9:80"),
        ("AM_LAUNCHER", "amrun"),
        ("AM_LAUNCHER_PID", "17"),
        ("AM_LIFELINE_FD", "6:13:60"),
        ("AM_NOTICE_FD", "7:13:70"),
        // An outer mpirun that started amrun.
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
    ];
    let expected = Identity {
        rank: Rank(3),
        ranks: 4,
        local_rank: 3,
        started_by: StartedBy::Amrun,
        rank_variable: "AM_RANK",
        job: Some("17-abc".into()),
        launcher_pid: Some(17),
        lifeline_fd: "6:13:60".parse().ok(),
        notice_fd: "7:13:70".parse().ok(),
        inherited: Some(inherited("5:9:50", "8:9:80")),
        rendezvous: None,
        space: None,
    };
    assert_eq!(rank(&variables), expected);
    variables[7].1 = "self";
    assert_eq!(rank(&variables).started_by, StartedBy::Itself);
}

#[test]
fn by_hand() {
    let identity = rank(&[("AM_RANK", "0"), ("AM_RANKS", "2"), ("AM_JOB", "debug")]);
    assert_eq!((identity.started_by, identity.inherited), (StartedBy::Hand, None));
    assert_eq!(identity.job.as_deref(), Some("debug"));
}

#[test]
fn by_hand_on_several_hosts_with_three_variables() {
    let three = [("AM_RANK", "1"), ("AM_RANKS", "2"), ("AM_RENDEZVOUS", "a:4000")];
    let identity = rank(&three);
    assert_eq!((identity.started_by, identity.job), (StartedBy::Hand, None));
    assert_eq!(identity.rendezvous.as_deref(), Some("a:4000"));
}

#[test]
fn a_manifest_comes_with_a_link() {
    let mut variables = vec![("AM_RANK", "2"), ("AM_RANKS", "4"), ("AM_LOCAL_RANK", "0"), ("AM_LOCAL_RANKS", "2")];
    variables.extend([("AM_JOB", "j"), ("AM_LAUNCHER", "amrun"), ("AM_MANIFEST_FD", "7:9:70")]);
    assert_eq!(
        error(&variables),
        "AM_MANIFEST_FD=7:9:70 is set in the environment but AM_CONTROL_FD is not: `amrun -n RANKS PROGRAM` sets what each rank needs"
    );
    variables.push(("AM_CONTROL_FD", "8:9:80"));
    let identity = rank(&variables);
    assert_eq!((identity.local_rank, identity.inherited), (0, Some(inherited("7:9:70", "8:9:80"))));
}

#[test]
fn open_mpi_mpich_and_slurm() {
    let identity = rank(&[
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ("PMIX_RANK", "1"),
        ("PMIX_NAMESPACE", "prterun-1@1"),
    ]);
    assert_eq!((identity.rank, identity.ranks, identity.started_by), (Rank(1), 2, StartedBy::Mpirun));
    assert_eq!(identity.job.as_deref(), Some("prterun-1@1"));

    let identity =
        rank(&[("PMI_RANK", "2"), ("PMI_SIZE", "3"), ("MPI_LOCALRANKID", "2"), ("MPI_LOCALNRANKS", "3")]);
    assert_eq!((identity.rank, identity.ranks, identity.job), (Rank(2), 3, None));

    let step = [("SLURM_JOB_ID", "88"), ("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")];
    let identity = rank(&step);
    assert_eq!((identity.rank, identity.ranks, identity.started_by), (Rank(1), 2, StartedBy::Srun));
    assert_eq!(identity.job.as_deref(), Some("slurm-88.0"));
    let named = [&step[..], &[("AM_JOB", "mine")]].concat();
    assert_eq!(rank(&named).job.as_deref(), Some("mine"));
}

#[test]
fn what_slurm_sets_outside_of_a_step_is_no_rank() {
    let batch = [("SLURM_JOB_ID", "88"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
    assert_eq!(read(&batch), Ok(None));
    assert_eq!(read(&[&batch[..], &[("SLURM_STEP_ID", "4294967291")]].concat()), Ok(None));
    let one = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1"), ("PMIX_RANK", "0")];
    assert_eq!(read(&one), Ok(None));
}

#[test]
fn malformed_environments_name_variable_and_value() {
    assert_eq!(error(&[("AM_RANK", "7"), ("AM_RANKS", "4"), ("AM_JOB", "j")]), {
        "AM_RANK=7 in the environment, but with AM_RANKS=4 a rank is less than 4"
    });
    let word = [("AM_RANK", "two"), ("AM_RANKS", "4")];
    assert_eq!(error(&word), "AM_RANK=two in the environment is not a rank");
    let negative = [("AM_RANK", "-1"), ("AM_RANKS", "4")];
    assert_eq!(error(&negative), "AM_RANK=-1 in the environment is not a rank");
    let none = [("AM_RANK", "0"), ("AM_RANKS", "0")];
    assert_eq!(error(&none), "AM_RANKS=0 in the environment is not a number of ranks");
    assert_eq!(
        error(&[("AM_RANK", "1")]),
        "AM_RANK=1 is set in the environment but AM_RANKS is not: `amrun -n RANKS PROGRAM` sets what each rank needs"
    );
    assert_eq!(
        error(&[("AM_RANKS", "2")]),
        "AM_RANKS=2 is set in the environment but AM_RANK is not: `amrun -n 2 PROGRAM` starts so many ranks, and sets what each needs"
    );
    let no_job = [("AM_RANK", "1"), ("AM_RANKS", "2")];
    assert_eq!(
        error(&no_job),
        "AM_RANK=1 is set in the environment but AM_JOB (on one host) or AM_RENDEZVOUS is not: `amrun -n RANKS PROGRAM` sets what each rank needs"
    );
    let no_fd = [("AM_RANK", "1"), ("AM_RANKS", "2"), ("AM_JOB", "j"), ("AM_LAUNCHER", "amrun")];
    assert!(error(&no_fd).starts_with("AM_LAUNCHER=amrun is set in the environment but AM_MANIFEST_FD is not"));
    let file = [("AM_RANK", "1"), ("AM_RANKS", "2"), ("AM_JOB", "j"), ("AM_NOTICE_FD", "7")];
    assert_eq!(error(&file), "AM_NOTICE_FD=7 in the environment is not a file descriptor as NUMBER:DEVICE:INODE");
    let fd = [("AM_RANK", "1"), ("AM_RANKS", "2"), ("AM_JOB", "j"), ("AM_MANIFEST_FD", "7")];
    assert_eq!(error(&fd), "AM_MANIFEST_FD=7 in the environment is not a file descriptor as NUMBER:DEVICE:INODE");
    let size = [("OMPI_COMM_WORLD_RANK", "0")];
    assert_eq!(error(&size), "OMPI_COMM_WORLD_RANK=0 is set in the environment but OMPI_COMM_WORLD_SIZE is not");
    assert!(error(&[("PMIX_RANK", "0")]).contains("a number of ranks (OMPI_COMM_WORLD_SIZE or AM_RANKS) is not"));
}

#[test]
fn several_hosts_are_refused() {
    let open_mpi =
        [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "8"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "4")];
    assert_eq!(error(&open_mpi), {
        "OMPI_COMM_WORLD_LOCAL_SIZE=4 of 8 ranks are on this host, and nothing says where ranks of several hosts meet: set \
         AM_RENDEZVOUS=HOST:PORT (rank 0's host, a free port) and AM_SECRET_FILE=FILE for every rank"
    });
    let met = [&open_mpi[..], &[("AM_RENDEZVOUS", "a:4000")]].concat();
    assert_eq!(rank(&met).rendezvous.as_deref(), Some("a:4000"));
    let slurm =
        [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2"), ("SLURM_STEP_NUM_NODES", "2")];
    assert!(error(&slurm).starts_with("SLURM_STEP_NUM_NODES=2: the job step spans 2 hosts"));
    let met = [&slurm[..], &[("AM_RENDEZVOUS", "a:4000")]].concat();
    assert_eq!(rank(&met).rendezvous.as_deref(), Some("a:4000"));
    let space = |more: &[(&'static str, &'static str)]| rank(&[&open_mpi[..], more].concat()).space;
    assert_eq!(space(&[("PMIX_NAMESPACE", "n")]), Some(KeyValueSpace::Pmix));
    let pmi = |first| Some(KeyValueSpace::Pmi(PmiServer { socket: 9, first }));
    assert_eq!(space(&[("PMI_FD", "9"), ("PMIX_NAMESPACE", "n")]), pmi(Version::One));
    let mpich = [("PMI_RANK", "2"), ("PMI_SIZE", "4"), ("MPI_LOCALNRANKS", "2"), ("PMI_FD", "9")];
    assert_eq!(rank(&mpich).space, pmi(Version::One));
    let srun = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("PMI_FD", "9")];
    assert_eq!(rank(&[&slurm[..], &srun].concat()).space, pmi(Version::Two));
    assert_eq!(rank(&[&mpich[..], &[("AM_RENDEZVOUS", "a:4000")]].concat()).space, None);
    let pmix = [&slurm[..], &[("PMIX_NAMESPACE", "slurm.pmix.2.0")]].concat();
    assert_eq!(rank(&pmix).space, Some(KeyValueSpace::Pmix));
    let more = [("AM_SECRET_FILE", "f"), ("SLURM_STEP_NODELIST", "rack[03-07]"), ("SLURM_JOB_ID", "2")];
    assert_eq!(rank(&[&slurm[..], &more].concat()).rendezvous.as_deref(), Some("rack03:20122"));
}

#[test]
fn lists_of_hosts_as_slurm_writes_them() {
    for (list, first) in [
        ("a", Some("a")),
        ("a1,b[2-3]", Some("a1")),
        ("rack[03-07,9]-x,z", Some("rack03-x")),
        ("n[7,9]", Some("n7")),
        ("", None),
        ("n[3", None),
        ("r[1-2]n[3-4]", None),
    ] {
        assert_eq!(first_host(list).as_deref(), first, "{list}");
    }
}
