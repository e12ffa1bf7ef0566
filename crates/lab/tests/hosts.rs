//! Jobs on several hosts, which are network namespaces on this one: the conformance suite and RandomAccess over
//! shared memory and UDP, and what happens when a rank, an agent, a cable or the launcher fails.
//!
//! The program plays all parts. Started by `cargo test` it lists and runs tests, launching itself on every host
//! with `ip netns exec` in ssh's place; with `--agent` it is the launcher's agent there; with a role in its
//! environment it is a rank. It takes names (or parts of names) of tests, `--list`, and `--ignored` for the full
//! profile. Where namespaces can't be made (they take privileges), the tests say so and are skipped.

mod harness;
mod hosts_support;

use active_messages::launch::{
    Hosts, JobTransport, Launcher, Outcome, RankEnd, TransportChoice, TransportOptions, parse_hosts,
    serve_as_agent,
};
use am_conformance::{Buffers, Plan, Profile, all_cases};
use harness::{Outcomes, Skipped, Test, test};
use hosts_support::netns::Network;
use hosts_support::ranks::{self, ROLE, SCRATCH};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::env;
use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The variable that tells a launcher that a test starts as a process of its own which hosts to use.
const LIST: &str = "AM_HOSTS_LIST";
/// Far beyond what any job here takes: a job that is not done by then hangs.
const HANGS: Duration = Duration::from_secs(180);

fn main() -> ExitCode {
    if env::args_os().nth(1).is_some_and(|flag| flag == "--agent") {
        return serve_as_agent();
    }
    if let Ok(role) = env::var(ROLE) {
        return if role == "launcher" { launch_idlers() } else { ranks::play(&role) };
    }
    let tests = vec![
        on("two_hosts_report", 2, report),
        on("two_hosts_suite", 2, |network| suite(network, 3, Profile::Quick)),
        on("four_hosts_suite", 4, |network| suite(network, 4, Profile::Quick)),
        on("two_hosts_suite_full", 2, |network| suite(network, 4, Profile::Full)).full(),
        on("four_hosts_suite_full", 4, |network| suite(network, 8, Profile::Full)).full(),
        on("four_hosts_random_access", 4, random_access),
        on("two_hosts_random_access_figures", 2, random_access_figures).full(),
        on("two_hosts_mpirun", 2, mpirun),
        on("two_hosts_mpirun_by_pmix", 2, mpirun_by_pmix),
        on("two_hosts_mpiexec_by_pmi", 2, mpiexec_by_pmi),
        test("tokio_shm", || tasks_on_one_host(TransportChoice::Shm)),
        test("tokio_udp", || tasks_on_one_host(TransportChoice::Udp)),
        on("two_hosts_tokio", 2, tasks_on_two_hosts),
        on("killed_rank", 2, killed_rank),
        on("killed_rank_of_one_host", 2, killed_rank_of_one_host),
        on("killed_rank_ends_the_job", 2, killed_rank_ends_the_job),
        on("killed_agent", 2, killed_agent),
        on("killed_launcher", 2, killed_launcher),
        on("cut_link_that_heals", 2, cut_link_that_heals),
        on("cut_link_that_does_not_heal", 2, cut_link_that_does_not_heal),
    ];
    #[cfg(feature = "ofi")]
    let tests = tests.into_iter().chain(libfabric::tests()).collect();
    harness::run(tests)
}

/// A test that needs a network of so many hosts.
fn on(name: &str, hosts: u8, run: fn(&Network) -> Outcomes) -> Test {
    test(name, move || {
        let skipped = |reason| Skipped(format!("no network namespaces here: {reason}"));
        run(&Network::new(hosts).map_err(skipped)?)
    })
}

/// A job of this program on all hosts of a network, and the folder where its ranks leave their process ids.
struct Play {
    launcher: Launcher,
    scratch: PathBuf,
}

fn hosts_of(list: &str) -> Result<Hosts, Box<dyn Error>> {
    Ok(Hosts::new(parse_hosts(list)?).remote("ip netns exec".parse()?).agent(env::current_exe()?))
}

fn scratch() -> Result<PathBuf, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hosts-{}", std::process::id()));
    // Left behind by an earlier job that failed.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

impl Play {
    fn new(network: &Network, role: &str, ranks: u32) -> Result<Self, Box<dyn Error>> {
        Self::of(env::current_exe()?, network, role, ranks, |hosts| hosts)
    }

    fn of(
        program: PathBuf,
        network: &Network,
        role: &str,
        ranks: u32,
        change: impl FnOnce(Hosts) -> Hosts,
    ) -> Result<Self, Box<dyn Error>> {
        let hosts = change(hosts_of(&network.list())?);
        Ok(Self::on_one_host(program, role, ranks)?.with(|launcher| launcher.hosts(hosts)))
    }

    fn on_one_host(program: PathBuf, role: &str, ranks: u32) -> Result<Self, Box<dyn Error>> {
        let scratch = scratch()?;
        let launcher = Launcher::new(program)
            .name("hosts")
            .env(ROLE, role)
            .env(SCRATCH, &scratch)
            .ranks(ranks)
            .time_limit(HANGS)
            .grace(Duration::from_millis(300));
        Ok(Self { launcher, scratch })
    }

    fn with(self, change: impl FnOnce(Launcher) -> Launcher) -> Self {
        Self { launcher: change(self.launcher), ..self }
    }

    /// Runs the job, with `meanwhile` beside it; fails if it hangs or leaves anything behind.
    fn run(self, meanwhile: impl FnOnce(&Running<'_>) -> Outcomes) -> Result<Outcome, Box<dyn Error>> {
        let open = open_files()?;
        let Self { launcher, scratch } = self;
        // The ranks die with the thread that launches them, which is therefore another one.
        let job = thread::spawn(move || launcher.launch());
        let beside = meanwhile(&Running { scratch: &scratch, has_ended: &|| job.is_finished() });
        let outcome = job.join().map_err(|_| "the launcher panicked")??;
        beside.map_err(|error| format!("{error}; the ranks: {:?}", outcome.ends()))?;
        check(!outcome.timed_out(), || "the job hangs".into())?;
        for (rank, process) in processes(&scratch)? {
            wait_until(&format!("the end of rank {rank}, process {}", process[0]), || !exists(process[0]))?;
        }
        wait_until("the end of the threads that served the job", || {
            open_files().is_ok_and(|after| after <= open)
        })?;
        fs::remove_dir_all(&scratch)?;
        Ok(outcome)
    }
}

/// A job that runs, for what happens beside it.
struct Running<'j> {
    scratch: &'j Path,
    has_ended: &'j dyn Fn() -> bool,
}

impl Running<'_> {
    /// Waits for something that the job does; fails once that has ended without it.
    fn wait_until(&self, what: &str, mut done: impl FnMut() -> bool) -> Outcomes {
        let mut ended = false;
        wait_until(what, || {
            let before = (self.has_ended)();
            let done = done();
            ended = before && !done;
            done || ended
        })?;
        check(!ended, || format!("the job has ended without {what}"))
    }
}

fn check(ok: bool, what: impl FnOnce() -> String) -> Outcomes {
    if ok { Ok(()) } else { Err(what().into()) }
}

/// How many files this process has open.
fn open_files() -> Result<usize, Box<dyn Error>> {
    Ok(fs::read_dir("/proc/self/fd")?.count())
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) -> Outcomes {
    let deadline = Instant::now() + HANGS;
    while !done() {
        check(Instant::now() < deadline, || format!("waited in vain for {what}"))?;
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The id of a rank's process, and of its agent.
type Ids = [i32; 2];

/// The ranks that have started.
fn processes(scratch: &Path) -> Result<Vec<(u32, Ids)>, Box<dyn Error>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(scratch)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Ok(rank) = name.parse() else { continue };
        let ids: Vec<i32> = fs::read_to_string(&path)?.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        all.push((rank, [ids[0], ids[1]]));
    }
    all.sort_unstable();
    Ok(all)
}

/// Whether a process runs; one that has ended but was not waited for does not.
fn exists(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z" && state != "X")
}

/// A launcher that a test starts as a process of its own, to see what it prints or to kill it.
fn launcher(network: &Network, role: &str, scratch: &Path) -> Result<Command, Box<dyn Error>> {
    let mut command = Command::new(env::current_exe()?);
    command.env(ROLE, "launcher").env(LIST, network.list()).env(SCRATCH, scratch).env("HOSTS_PART", role);
    Ok(command)
}

/// Plays such a launcher: two ranks on each host.
fn launch_idlers() -> ExitCode {
    let launch = || {
        let list = env::var(LIST)?;
        let ranks = 2 * list.split(',').count() as u32;
        let launcher = Launcher::new(env::current_exe()?).env(ROLE, env::var("HOSTS_PART")?).ranks(ranks);
        let launcher = launcher.env(SCRATCH, env::var(SCRATCH)?).name("launcher").verbose(true).prefix(true);
        Ok::<_, Box<dyn Error>>(launcher.hosts(hosts_of(&list)?).launch()?.code())
    };
    match launch() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("launcher: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Ranks whose programs are tasks of tokio, without a loss and with one.
fn tasks_on_one_host(transport: TransportChoice) -> Outcomes {
    for victim in [None, Some(2)] {
        let role = if victim.is_some() { "tasks killed" } else { "tasks all" };
        let play = Play::on_one_host(env::current_exe()?, role, 3)?.with(|launcher| launcher.transport(transport));
        tasks_end(play, victim)?;
    }
    Ok(())
}

/// The same over shared memory and UDP at once.
fn tasks_on_two_hosts(network: &Network) -> Outcomes {
    for victim in [None, Some(3)] {
        let role = if victim.is_some() { "tasks killed" } else { "tasks all" };
        tasks_end(Play::new(network, role, 4)?, victim)?;
    }
    Ok(())
}

fn tasks_end(play: Play, victim: Option<usize>) -> Outcomes {
    let outcome = play.with(|launcher| launcher.keep_going(victim.is_some())).run(|_| Ok(()))?;
    let right = outcome
        .ends()
        .iter()
        .enumerate()
        .all(|(rank, end)| if Some(rank) == victim { *end == RankEnd::Killed(9) } else { end.is_success() });
    check(right, || format!("victim {victim:?}: {:?}", outcome.ends()))
}

/// What the ranks and the launcher say about hosts, addresses and transports.
fn report(network: &Network) -> Outcomes {
    let scratch = scratch()?;
    let output = launcher(network, "report", &scratch)?.stdin(Stdio::null()).output()?;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    check(output.status.success(), || format!("{}: {out}{err}", output.status))?;
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let mut expected = Vec::new();
    for rank in 0..4u8 {
        let (host, near, far) =
            (rank / 2, ["0-1", "2-3"][usize::from(rank / 2)], ["2-3", "0-1"][usize::from(rank / 2)]);
        expected.push(format!(
            "[{rank}] rank {rank} of 4, started by amrun, on host {} at {} (eth0); shared memory to {near}; UDP to {far}",
            network.name(host),
            network.address(host)
        ));
    }
    check(lines == expected, || format!("{out}instead of {expected:#?}"))?;
    for host in 0..2 {
        let part = format!("at {} (eth0)", network.address(host));
        check(err.contains(&part), || format!("'{part}' is not in {err}"))?;
    }
    Ok(fs::remove_dir_all(scratch)?)
}

/// One or two cases of each kind: the quick profile has to be quick. All of them run in one process over the same
/// transports elsewhere, and between processes on hosts in the full profile.
const QUICK: [&str; 13] = [
    "checksum-ping",
    "sizes-smallest",
    "zero-length",
    "all-to-all",
    "statistics",
    "token-facts",
    "incast",
    "order",
    "tables-names",
    "accumulator",
    "finish-together",
    "leaves",
    "threads-own",
];

/// The conformance list: a selection, or all of it in the full profile.
fn suite(network: &Network, ranks: u32, profile: Profile) -> Outcomes {
    suite_with(network, ranks, profile, |launcher| launcher)
}

/// The same with a change to every launcher.
fn suite_with(network: &Network, ranks: u32, profile: Profile, change: impl Fn(Launcher) -> Launcher) -> Outcomes {
    let plan = Plan::from_environment(profile);
    // UDP within a host runs all cases.
    let plan = if profile == Profile::Quick { plan.sample(&format!("{ranks} ranks on hosts")) } else { plan };
    let mut problems = String::new();
    for case in all_cases::<JobTransport>().into_iter().map(|case| case.description) {
        let chosen = profile == Profile::Full || QUICK.contains(&case.name);
        if !chosen || !plan.wants(&case, ranks) {
            continue;
        }
        let role = format!("case {} {} {}", case.name, profile == Profile::Full, plan.seed);
        let play = Play::new(network, &role, ranks)?.with(|launcher| {
            let launcher = launcher.keep_going(true).time_limit(plan.limit()).endpoints(case.needs.endpoints);
            // No case waits for silence, but ranks of a crowded machine may be silent for long.
            let launcher = launcher.env("AM_UDP_SILENCE", "60");
            match case.needs.buffers {
                Buffers::Default => launcher,
                Buffers::Smallest => launcher.rings(Some(4), Some(256)),
            }
        });
        let outcome = play.with(&change).run(|_| Ok(()))?;
        if !outcome.is_success() {
            problems += &format!("      {} with {ranks} ranks: {:?}\n", case.name, outcome.ends());
        }
    }
    check(problems.is_empty(), || format!("{problems}      (AM_CONFORMANCE_SEED={})", plan.seed))
}

/// The example RandomAccess, built with the profile of this test.
fn random_access_example() -> Result<PathBuf, Box<dyn Error>> {
    let own = env::current_exe()?;
    let profile = own.parent().and_then(Path::parent).ok_or("no <target>/<profile>/deps")?;
    let program = profile.join("examples").join("random_access");
    check(program.exists(), || {
        format!("{} is missing: `cargo build --example random_access` makes it", program.display())
    })?;
    Ok(program)
}

/// The example, as its users start it.
fn random_access(network: &Network) -> Outcomes {
    let program = random_access_example()?;
    for variant in ["short", "medium"] {
        let play = Play::of(program.clone(), network, "", 4, |hosts| hosts)?;
        let outcome = play
            .with(|launcher| launcher.args(["--variant", variant, "--log2-table", "14", "--json"]))
            .run(|_| Ok(()))?;
        check(outcome.is_success(), || format!("{variant}: {:?}", outcome.ends()))?;
    }
    Ok(())
}

/// The example on two hosts with two ranks each, in turn with four ranks of one host. Its reports are printed, so
/// that `--alone two_hosts_random_access_figures` shows the rates.
fn random_access_figures(network: &Network) -> Outcomes {
    let program = random_access_example()?;
    for variant in ["short", "medium"] {
        for turn in 0..6 {
            let (place, play) = match turn % 2 {
                0 => ("one host", Play::on_one_host(program.clone(), "", 4)?),
                _ => ("two hosts", Play::of(program.clone(), network, "", 4, |hosts| hosts)?),
            };
            println!("{place}:");
            let play = play.with(|launcher| launcher.args(["--variant", variant, "--log2-table", "21", "--json"]));
            let outcome = play.run(|_| Ok(()))?;
            check(outcome.is_success(), || format!("{place}, {variant}: {:?}", outcome.ends()))?;
        }
    }
    Ok(())
}

/// What a start by another launcher takes: a folder of this test, and a file in it.
struct Foreign {
    scratch: PathBuf,
}

impl Foreign {
    fn new() -> Result<Self, Box<dyn Error>> {
        Ok(Self { scratch: scratch()? })
    }

    fn file(&self, name: &str, text: &str, mode: u32) -> Result<PathBuf, Box<dyn Error>> {
        let path = self.scratch.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(path)
    }

    /// What launchers use in ssh's place: they know hosts by their addresses, `ip` by their names.
    fn remote(&self, network: &Network) -> Result<PathBuf, Box<dyn Error>> {
        let script = format!(
            "#!/bin/sh\n\
             while [ \"${{1#-}}\" != \"$1\" ]; do shift; done\ncase $1 in {}) host={};; *) host={};; esac\nshift\n\
             TMPDIR={}/$host\nmkdir -p $TMPDIR\nexport TMPDIR\nexec ip netns exec $host sh -c \"$*\"\n",
            network.address(0),
            network.name(0),
            network.name(1),
            self.scratch.display()
        );
        self.file("rsh", &script, 0o755)
    }

    /// Runs the command, whose ranks report, two on each host.
    fn check(self, network: &Network, mut command: Command) -> Outcomes {
        let output = command.arg(env::current_exe()?).stdin(Stdio::null()).output()?;
        let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
        check(output.status.success(), || format!("{}: {out}{err}", output.status))?;
        for (rank, host, near, far) in [(1, 0, "0-1", "2-3"), (2, 1, "2-3", "0-1")] {
            let start = format!("rank {rank} of 4, started by mpirun, on host ");
            let end = format!(" at {} (eth0); shared memory to {near}; UDP to {far}", network.address(host));
            let said = out.lines().any(|line| line.starts_with(&start) && line.ends_with(&end));
            check(said, || format!("'{start}...{end}' is not in {out}"))?;
        }
        Ok(fs::remove_dir_all(self.scratch)?)
    }

    /// Open MPI's `mpirun` with these variables for the ranks.
    fn open_mpi(
        &self,
        program: &str,
        network: &Network,
        variables: &[(&str, &str)],
    ) -> Result<Command, Box<dyn Error>> {
        let (first, second) = (network.address(0), network.address(1));
        let mut command = Command::new(program);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.arg("--mca").arg("plm_rsh_agent").arg(self.remote(network)?);
        command.args(["--mca", "oob_tcp_if_include", &format!("{first}/24")]);
        // Its daemons share what they know of the processors at an address that is not always free: one start in
        // three ended with a signal in hwloc.
        command.args(["--mca", "rtc_hwloc_vmhole", "none"]);
        command.args(["--host", &format!("{first}:2,{second}:2"), "-n", "4"]);
        for (key, value) in variables.iter().chain(&[(ROLE, "report")]) {
            command.args(["-x", &format!("{key}={value}")]);
        }
        command.arg("-x").arg(format!("{SCRATCH}={}", self.scratch.display()));
        Ok(command)
    }
}

/// The first of these programs whose version says that.
fn find<'a>(programs: [&'a str; 2], mark: &str) -> Result<&'a str, Skipped> {
    let is = |program: &&str| {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(mark))
    };
    let found = programs.into_iter().find(is);
    found.ok_or_else(|| Skipped(format!("no {} of {mark} is installed", programs[0])))
}

/// Open MPI's `mpirun`, and MPICH's.
const OPEN_MPI: [&str; 2] = ["mpirun", "mpirun.openmpi"];
const MPICH: [&str; 2] = ["mpiexec", "mpiexec.hydra"];

/// A start by a real Open MPI on two hosts; the ranks meet at an address of rank 0's.
fn mpirun(network: &Network) -> Outcomes {
    let program = find(OPEN_MPI, "Open MPI")?;
    let foreign = Foreign::new()?;
    let secret = foreign.file("secret", "a secret of this test alone", 0o600)?;
    let (meeting, secret) = (format!("{}:4711", network.address(0)), secret.display().to_string());
    let command =
        foreign.open_mpi(program, network, &[("AM_RENDEZVOUS", &meeting), ("AM_SECRET_FILE", &secret)])?;
    foreign.check(network, command)
}

/// The same without any variable: rank 0 tells the others where it is over PMIx.
fn mpirun_by_pmix(network: &Network) -> Outcomes {
    let program = find(OPEN_MPI, "Open MPI")?;
    let foreign = Foreign::new()?;
    let command = foreign.open_mpi(program, network, &[])?;
    foreign.check(network, command)
}

/// A start by MPICH's `mpiexec` on two hosts, without any variable: over PMI.
fn mpiexec_by_pmi(network: &Network) -> Outcomes {
    let program = find(MPICH, "HYDRA")?;
    let foreign = Foreign::new()?;
    let mut command = Command::new(program);
    command.args(["-launcher", "ssh", "-launcher-exec"]).arg(foreign.remote(network)?);
    command.args(["-localhost", &network.launcher().to_string()]);
    command.args(["-hosts", &format!("{}:2,{}:2", network.address(0), network.address(1)), "-n", "4"]);
    command.args(["-genv", ROLE, "report"]).arg("-genv").arg(SCRATCH).arg(&foreign.scratch);
    foreign.check(network, command)
}

/// A rank is killed the hard way; those on both hosts find out and go on.
fn killed_rank(network: &Network) -> Outcomes {
    survivors_are_told(Play::new(network, "victim", 4)?)
}

/// The same on one host, where the launcher watches the ranks itself.
fn killed_rank_of_one_host(_: &Network) -> Outcomes {
    let play = Play::on_one_host(env::current_exe()?, "victim", 4)?;
    survivors_are_told(play.with(|launcher| launcher.transport(TransportChoice::Udp)))
}

/// Nobody is lost by silence within the time that the job has, so only the launcher's word can tell.
fn survivors_are_told(play: Play) -> Outcomes {
    let outcome =
        play.with(|launcher| launcher.keep_going(true).env("AM_UDP_SILENCE", "86400")).run(|_| Ok(()))?;
    let ok = RankEnd::Exited(0);
    check(outcome.ends() == [ok, ok, ok, RankEnd::Killed(9)], || format!("{:?}", outcome.ends()))?;
    check(outcome.code() == 137, || format!("the launcher's code is {}", outcome.code()))
}

/// Unless told otherwise, the launcher ends the job on all hosts with its first rank that fails.
fn killed_rank_ends_the_job(network: &Network) -> Outcomes {
    let outcome = Play::new(network, "idle", 4)?.run(|job| {
        job.wait_until("the ranks", || processes(job.scratch).is_ok_and(|all| all.len() == 4))?;
        Ok(kill(Pid::from_raw(processes(job.scratch)?[2].1[0]), Signal::SIGKILL)?)
    })?;
    let [term, killed] = [RankEnd::Killed(15), RankEnd::Killed(9)];
    check(outcome.ends() == [term, term, killed, term], || format!("{:?}", outcome.ends()))?;
    check(outcome.first_failure().map(|rank| rank.0) == Some(2), || format!("{outcome:?}"))
}

/// An agent is killed the hard way: its ranks die, and the launcher knows that the host is lost.
fn killed_agent(network: &Network) -> Outcomes {
    let outcome = Play::new(network, "idle", 4)?.run(|job| {
        job.wait_until("the ranks", || processes(job.scratch).is_ok_and(|all| all.len() == 4))?;
        Ok(kill(Pid::from_raw(processes(job.scratch)?[2].1[1]), Signal::SIGKILL)?)
    })?;
    let [term, lost] = [RankEnd::Killed(15), RankEnd::Lost];
    check(outcome.ends() == [term, term, lost, lost], || format!("{:?}", outcome.ends()))?;
    check(outcome.code() == 125, || format!("the launcher's code is {}", outcome.code()))
}

/// The launcher is killed without a chance to clean up: no rank and no agent outlives it.
fn killed_launcher(network: &Network) -> Outcomes {
    let scratch = scratch()?;
    let mut launcher = launcher(network, "idle", &scratch)?.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let started = wait_until("the ranks", || processes(&scratch).is_ok_and(|all| all.len() == 4));
    launcher.kill()?;
    launcher.wait()?;
    started?;
    for (rank, ids) in processes(&scratch)? {
        wait_until(&format!("the end of rank {rank}"), || !exists(ids[0]))?;
        wait_until(&format!("the end of the agent of rank {rank}"), || !exists(ids[1]))?;
    }
    Ok(fs::remove_dir_all(scratch)?)
}

/// A cable is cut and mended while ranks talk: nobody is lost, and every message arrives once.
fn cut_link_that_heals(network: &Network) -> Outcomes {
    heals(network, |launcher| launcher)
}

fn heals(network: &Network, change: impl Fn(Launcher) -> Launcher) -> Outcomes {
    // The system may take many seconds to mend a cable while other tests make and remove networks.
    let play = Play::of(env::current_exe()?, network, "rounds", 4, |hosts| hosts.lost_after(2 * HANGS))?;
    let play = play.with(|launcher| change(launcher).env("AM_UDP_SILENCE", "360"));
    let outcome = play.run(|job| {
        let rounds =
            || fs::read_to_string(job.scratch.join("rounds")).ok().and_then(|text| text.parse::<u64>().ok());
        let after =
            |rounds_done: u64| job.wait_until("another round", || rounds().is_some_and(|done| done > rounds_done));
        after(0)?;
        for _ in 0..2 {
            network.set_link(1, false);
            thread::sleep(Duration::from_millis(700));
            let before = rounds().unwrap_or(0);
            network.set_link(1, true);
            after(before)?;
        }
        Ok(fs::write(job.scratch.join("stop"), "")?)
    })?;
    check(outcome.is_success(), || format!("{:?}", outcome.ends()))
}

/// A cable is cut for good: the survivors get errors that name the ranks behind it and go on; those ranks are
/// ended by their agent, which misses the launcher.
fn cut_link_that_does_not_heal(network: &Network) -> Outcomes {
    let lost_after = Duration::from_secs(10);
    let play = Play::of(env::current_exe()?, network, "survive 2", 4, |hosts| hosts.lost_after(lost_after))?;
    let play = play.with(|launcher| launcher.keep_going(true).env("AM_UDP_SILENCE", "1"));
    does_not_heal(play, network)
}

fn does_not_heal(play: Play, network: &Network) -> Outcomes {
    let outcome = play.run(|job| {
        job.wait_until("the ranks", || (0..4).all(|rank| job.scratch.join(format!("ready-{rank}")).exists()))?;
        network.set_link(1, false);
        Ok(())
    })?;
    let [ok, lost] = [RankEnd::Exited(0), RankEnd::Lost];
    check(outcome.ends() == [ok, ok, lost, lost], || format!("{:?}", outcome.ends()))
}

/// Jobs whose hosts talk over libfabric's provider for TCP.
#[cfg(feature = "ofi")]
mod libfabric {
    use super::*;
    use active_messages::ofi::{self, OfiConfig};

    pub(super) fn tests() -> [Test; 8] {
        [
            on("libfabric_two_hosts_suite_full", &[24, 24], suite).full(),
            on("libfabric_killed_rank", &[24, 24], killed_rank),
            on("libfabric_cut_link_that_heals_full", &[24, 24], |network| heals(network, variables)).full(),
            on("libfabric_cut_link_that_does_not_heal", &[24, 24], cut_link_that_does_not_heal),
            on("libfabric_and_udp", &[24, 24, 25], carriers),
            on("libfabric_and_udp_suite", &[24, 24, 25], |network| three(network, Profile::Quick)),
            on("libfabric_and_udp_suite_full", &[24, 24, 25], |network| three(network, Profile::Full)).full(),
            on("libfabric_and_udp_cut_link", &[25, 24, 24], cut_link_of_three),
        ]
    }

    /// A test that needs a network of hosts with these netmasks, and libfabric. Hosts of one mask share a fabric.
    fn on(name: &'static str, masks: &'static [u8], run: fn(&Network) -> Outcomes) -> Test {
        test(name, move || {
            let there = ofi::choose(&OfiConfig::default().provider("tcp").interface("127.0.0.1"));
            there.map_err(|error| Skipped(error.to_string()))?;
            let network = Network::with_masks(masks);
            run(&network.map_err(|reason| Skipped(format!("no network namespaces here: {reason}")))?)
        })
    }

    fn all_three(launcher: Launcher) -> Launcher {
        launcher.env("AM_TRANSPORT", "shm+ofi:tcp+udp")
    }

    /// Each pair uses the first of shared memory, libfabric and UDP that leads from one to the other.
    fn carriers(network: &Network) -> Outcomes {
        let outcome = Play::new(network, "carriers 2", 6)?.with(all_three).run(|_| Ok(()))?;
        check(outcome.is_success(), || format!("{:?}", outcome.ends()))
    }

    /// Two ranks on the first host, one on each of the others.
    fn three(network: &Network, profile: Profile) -> Outcomes {
        suite_with(network, 4, profile, all_three)
    }

    /// The first host shares no fabric with the other two, of which one is cut off.
    fn cut_link_of_three(network: &Network) -> Outcomes {
        let lost_after = Duration::from_secs(10);
        let play = Play::of(env::current_exe()?, network, "survive 2", 3, |hosts| hosts.lost_after(lost_after))?;
        let play = play.with(|launcher| all_three(launcher.keep_going(true)).env("AM_UDP_SILENCE", "60"));
        let outcome = play.run(|job| {
            job.wait_until("the ranks", || (0..3).all(|rank| job.scratch.join(format!("ready-{rank}")).exists()))?;
            network.set_link(2, false);
            Ok(())
        })?;
        let ok = RankEnd::Exited(0);
        check(outcome.ends() == [ok, ok, RankEnd::Lost], || format!("{:?}", outcome.ends()))
    }

    fn variables(launcher: Launcher) -> Launcher {
        launcher.env("AM_TRANSPORT", "shm+ofi:tcp")
    }

    /// Four ranks that play a part.
    fn over_tcp(network: &Network, role: &str) -> Result<Play, Box<dyn Error>> {
        Ok(Play::new(network, role, 4)?.with(variables))
    }

    fn suite(network: &Network) -> Outcomes {
        suite_with(network, 3, Profile::Quick, variables)
    }

    fn killed_rank(network: &Network) -> Outcomes {
        survivors_are_told(over_tcp(network, "victim")?)
    }

    /// Only the launcher, which misses the agent, can tell.
    fn cut_link_that_does_not_heal(network: &Network) -> Outcomes {
        let lost_after = Duration::from_secs(10);
        let play = Play::of(env::current_exe()?, network, "survive 2", 4, |hosts| hosts.lost_after(lost_after))?;
        does_not_heal(play.with(|launcher| variables(launcher.keep_going(true))), network)
    }
}
