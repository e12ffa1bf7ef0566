//! The command line of `amrun`: its flags, their help, and errors of one line.

use std::ffi::OsString;
use std::fmt::Display;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use am_launch::{
    DEFAULT_GRACE, Hosts, InterfaceWish, Launcher, MAX_RANKS, Placement, RemoteError, default_ranks, env,
    parse_hosts, parse_time, read_host_file, usable_processors,
};
use clap::error::ErrorKind;
use clap::{Parser, value_parser};

/// What comes after the list of flags in `--help`.
const AFTER_HELP: &str = "\
Everything after PROGRAM belongs to the program, even what looks like a flag of amrun.

With --hosts or --hostfile the remote command runs once per host and starts amrun there, which starts that host's \
ranks. Their environment is the remote command's, with all AM_ variables of this one and those of --env; hosts \
report at one TCP port of this host, encrypted with a secret that amrun makes for the job and hands on through \
standard input.

Each rank finds AM_RANK, AM_RANKS, AM_LOCAL_RANK, AM_LOCAL_RANKS and AM_JOB in its environment. \
Rank 0 inherits standard input, the others read from /dev/null. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and \
SIGUSR2 are passed on to every rank; asking the job to end a second time, a second later, kills it. \
SIGQUIT (Ctrl-\\) makes ranks print what they wait for and go on, if they have joined their job. Processes that \
the ranks leave behind end with the job, and everything ends if amrun itself is killed.

Exit codes:
  0        every rank exited with code 0
  1-255    the code of the rank that failed first (named on standard error)
           or the code with which a rank ended the whole job
  128+N    signal N killed the rank that failed first
  2        wrong flags, or an AM_ variable that is unknown or makes no sense
  124      the time limit was over
  141      nobody reads the output any more
  125      amrun itself failed, or a host was lost or could not be reached
  126      the program can't be executed
  127      the program was not found";

/// Starts PROGRAM as N ranks, on this host or on several, and waits for them.
#[derive(Debug, Parser)]
#[command(
    name = "amrun",
    version,
    override_usage = "amrun [OPTIONS] PROGRAM [ARGS]...",
    after_help = AFTER_HELP,
    max_term_width = 100
)]
struct Flags {
    /// Number of ranks [default: $AM_DEFAULT_RANKS, else one for every slot of the hosts, else the number of
    /// usable processors]
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = count)]
    ranks: Option<Count>,

    // Not a doc comment: rustdoc would read the brackets as a link.
    #[arg(
        short,
        long,
        help = "Put the rank in front of each line of output, as in \"[3] line\", and never tear a line"
    )]
    prefix: bool,

    /// Let the other ranks go on when one fails
    #[arg(short, long)]
    keep_going: bool,

    /// End the job after this time, such as 500ms, 90s or 2m (a bare number is seconds); the ranks say before what
    /// they wait for
    #[arg(short = 't', long, value_name = "TIME", value_parser = parse_time)]
    time_limit: Option<Duration>,

    /// Let every wait of a rank that takes longer than this fail, with a report of what it waits for [default:
    /// $AM_TIMEOUT, else none]
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    timeout: Option<Duration>,

    /// Time between asking ranks to end (SIGTERM) and killing them (SIGKILL) [default: 3]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    grace: Option<Duration>,

    /// Set a variable in the environment of every rank; may be repeated
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = value_parser!(OsString))]
    env: Vec<OsString>,

    /// Bind each rank to one of the usable processors, in turn
    #[arg(short, long)]
    bind: bool,

    /// Endpoints of every rank (threads that communicate)
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true)]
    endpoints: u16,

    /// What the ranks talk over, as the program names it (auto, shm or udp; ofi, shm+ofi, shm+ofi+udp or
    /// ofi:PROVIDER where it has libfabric): sets AM_TRANSPORT for them [default: $AM_TRANSPORT, else auto:
    /// shared memory within a host
    /// and UDP between hosts]
    #[arg(long, value_name = "NAME")]
    transport: Option<String>,

    /// Have the program say what its machine has for ranks to talk over, what would be taken and why; it is not
    /// run otherwise
    #[arg(long, conflicts_with_all = ["ranks", "transport"])]
    list: bool,

    /// Interface for traffic between hosts: its name, a network such as 10.1.0.0/16, or an address [default:
    /// $AM_INTERFACE, else the one that reaches the launcher]
    #[arg(long, value_name = "NAME|CIDR", value_parser = InterfaceWish::from_str)]
    interface: Option<InterfaceWish>,

    /// Say what is started where, with which processors, and how each rank ends
    #[arg(short, long)]
    verbose: bool,

    /// Hosts to start the ranks on, with commas between them
    #[arg(long, value_name = "HOST[:SLOTS],...", conflicts_with = "hostfile", help_heading = "Several hosts")]
    hosts: Option<String>,

    /// File with a host in each line: NAME [slots=N] [address=IP]; # starts a comment
    #[arg(long, value_name = "FILE", help_heading = "Several hosts")]
    hostfile: Option<PathBuf>,

    /// Order in which hosts are filled: block keeps neighbouring ranks together, cyclic apart
    #[arg(
        long,
        value_name = "block|cyclic",
        default_value = "block",
        value_parser = Placement::from_str,
        help_heading = "Several hosts"
    )]
    placement: Placement,

    /// Command that runs a program on a host; {host} in it, or its end, is where the host's name goes [default:
    /// $AM_REMOTE, else ssh -T -o BatchMode=yes -o ConnectTimeout=10]
    #[arg(long, value_name = "COMMAND", help_heading = "Several hosts")]
    remote: Option<String>,

    /// The amrun of the other hosts [default: this one's path]
    #[arg(long, value_name = "PATH", help_heading = "Several hosts")]
    remote_amrun: Option<PathBuf>,

    /// Working directory of the ranks on every host [default: this one's]
    #[arg(long, value_name = "DIRECTORY", help_heading = "Several hosts")]
    wdir: Option<PathBuf>,

    /// TCP port at which the hosts report [default: any]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true,
        help_heading = "Several hosts"
    )]
    port: u16,

    /// How long the hosts get to report [default: 60 and 0.25 for each host]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Several hosts")]
    start_limit: Option<Duration>,

    /// After how long of silence a host counts as lost [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Several hosts")]
    lost_after: Option<Duration>,

    /// The program, looked up in PATH unless it has a slash, and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = true,
        num_args = 1..,
        trailing_var_arg = true,
        value_parser = value_parser!(OsString)
    )]
    command: Vec<OsString>,
}

/// Why there is nothing to launch.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Help or version was asked for; this is it.
    Shown(String),
    /// The flags are wrong; this line says how.
    Usage(String),
}

/// Reads a command line, the program's own name first.
pub(crate) fn read(args: impl IntoIterator<Item = OsString>) -> Result<Launcher, Stop> {
    let flags = parse(args.into_iter().collect())?;
    let hosts = hosts(&flags)?;
    let ranks = match flags.ranks.and_then(Count::number).map_or_else(default_ranks, |ranks| Ok(Some(ranks))) {
        Ok(ranks) => ranks.unwrap_or_else(|| hosts.as_ref().map_or_else(usable_processors, Hosts::default_ranks)),
        Err(error) => return Err(Stop::Usage(error.to_string())),
    };
    let mut command = flags.command.into_iter();
    let program = command.next().expect("clap requires at least one value");
    let mut launcher = Launcher::new(program)
        .args(command)
        .name("amrun")
        .ranks(ranks)
        .prefix(flags.prefix)
        .keep_going(flags.keep_going)
        .grace(flags.grace.unwrap_or(DEFAULT_GRACE))
        .bind(flags.bind)
        .endpoints(flags.endpoints)
        .verbose(flags.verbose)
        .adopt(true);
    if let Some(hosts) = hosts {
        launcher = launcher.hosts(hosts);
    } else if let Some(wish) = flags.interface.or(interface_from_environment()?) {
        launcher = launcher.interface(wish);
    }
    if let Some(name) = flags.transport {
        launcher = launcher.env(env::TRANSPORT, name);
    }
    if flags.list {
        launcher = launcher.ranks(1).env(env::TRANSPORT, env::LIST);
    }
    if let Some(limit) = flags.time_limit {
        launcher = launcher.time_limit(limit);
    }
    if let Some(timeout) = flags.timeout {
        launcher = launcher.wait_timeout(timeout);
    }
    for pair in flags.env {
        let (key, value) = split(&pair)?;
        launcher = launcher.env(key, value);
    }
    Ok(launcher)
}

/// The hosts that the flags name, if they do.
fn hosts(flags: &Flags) -> Result<Option<Hosts>, Stop> {
    let list = match (&flags.hosts, &flags.hostfile) {
        (Some(list), _) => parse_hosts(list),
        (None, Some(file)) => read_host_file(file),
        (None, None) => return Ok(None),
    };
    let wrong = |error: &dyn Display| Stop::Usage(error.to_string());
    let mut hosts = Hosts::new(list.map_err(|error| wrong(&error))?).placement(flags.placement).port(flags.port);
    let remote = flags.remote.clone().map(OsString::from).or_else(|| std::env::var_os(env::REMOTE));
    if let Some(remote) = remote {
        hosts = hosts.remote(remote.to_string_lossy().parse().map_err(|error: RemoteError| wrong(&error))?);
    }
    // The same program under the same path, unless the user knows better.
    let agent = flags.remote_amrun.clone().or_else(|| std::env::current_exe().ok());
    hosts = hosts.agent(agent.unwrap_or_else(|| "amrun".into()));
    if let Some(directory) = &flags.wdir {
        hosts = hosts.directory(directory);
    }
    if let Some(limit) = flags.start_limit {
        hosts = hosts.start_limit(limit);
    }
    if let Some(time) = flags.lost_after {
        hosts = hosts.lost_after(time);
    }
    if let Some(wish) = flags.interface.clone().map_or_else(interface_from_environment, |wish| Ok(Some(wish)))? {
        hosts = hosts.interface(wish);
    }
    Ok(Some(hosts))
}

fn interface_from_environment() -> Result<Option<InterfaceWish>, Stop> {
    let Some(value) = std::env::var_os(env::INTERFACE) else { return Ok(None) };
    let wish = value.to_string_lossy().parse().map_err(|reason| {
        Stop::Usage(format!("{}={} in the environment: {reason}", env::INTERFACE, value.display()))
    })?;
    Ok(Some(wish))
}

/// The first paragraph of clap's message on one line, without its "error: ".
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let paragraph: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let line = paragraph.join(" ");
    format!("{} (see amrun --help)", line.strip_prefix("error: ").unwrap_or(&line))
}

/// The flags of a command line, also of one that has `-np N` as that of an `mpirun` has.
fn parse(mut args: Vec<OsString>) -> Result<Flags, Stop> {
    let stop = |error: clap::Error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Shown(error.render().to_string()),
        _ => Stop::Usage(one_line(&error)),
    };
    let flags = Flags::try_parse_from(&args).map_err(stop)?;
    match (flags.ranks, args.iter().position(|arg| arg == "-np")) {
        (Some(Count::Np), Some(at)) => {
            args[at] = "-n".into();
            Flags::try_parse_from(&args).map_err(stop)
        }
        (Some(Count::Np), None) => Err(Stop::Usage("-n p: not a number of ranks (see amrun --help)".into())),
        _ => Ok(flags),
    }
}

/// What follows `-n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    Number(u32),
    /// The rest of `-np`, whose number is the next word.
    Np,
}

impl Count {
    fn number(self) -> Option<u32> {
        match self {
            Self::Number(number) => Some(number),
            Self::Np => None,
        }
    }
}

fn count(text: &str) -> Result<Count, String> {
    match text.parse() {
        Ok(number) if (1..=MAX_RANKS).contains(&number) => Ok(Count::Number(number)),
        _ if text == "p" => Ok(Count::Np),
        _ => Err(format!("not a number from 1 to {MAX_RANKS}")),
    }
}

fn timeout(text: &str) -> Result<Duration, &'static str> {
    parse_time(text).and_then(|time| if time.is_zero() { Err("a time-out is longer than 0") } else { Ok(time) })
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "not a number of seconds from 0".to_owned())
}

/// `KEY=VALUE` as its two halves, whatever bytes they have.
fn split(pair: &OsString) -> Result<(OsString, OsString), Stop> {
    let bytes = pair.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(at) if at > 0 => {
            Ok((OsString::from_vec(bytes[..at].to_vec()), OsString::from_vec(bytes[at + 1..].to_vec())))
        }
        _ => Err(Stop::Usage(format!("--env '{}' is not KEY=VALUE (see amrun --help)", pair.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn flags(args: &[&str]) -> Flags {
        Flags::try_parse_from([&["amrun"], args].concat()).unwrap()
    }

    fn usage(args: &[&str]) -> String {
        match read([&["amrun"], args].concat().into_iter().map(OsString::from)) {
            Err(Stop::Usage(line)) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Flags::command().debug_assert();
    }

    #[test]
    fn everything_after_the_program_is_the_programs() {
        let all = ["prog", "-n", "9", "--prefix", "--", "", "-h", "--help", "--version", "a b"];
        let flags = flags(&[&["-n", "2"], &all[..]].concat());
        assert_eq!(flags.ranks, Some(Count::Number(2)));
        assert!(!flags.prefix);
        assert_eq!(flags.command, all);
    }

    #[test]
    fn the_number_of_ranks_may_follow_np() {
        let parsed =
            |args: &[&str]| parse([&["amrun"], args].concat().into_iter().map(OsString::from).collect()).unwrap();
        let flags = parsed(&["-e", "A=b", "-np", "4", "--prefix", "prog", "-np", "5"]);
        assert_eq!((flags.ranks, flags.prefix), (Some(Count::Number(4)), true));
        assert_eq!(flags.command, ["prog", "-np", "5"]);
        assert_eq!(parsed(&["prog", "-np", "5"]).ranks, None);
    }

    #[test]
    fn a_double_dash_before_the_program_is_amruns() {
        assert_eq!(flags(&["-n2", "--", "-odd-name", "--", "x"]).command, ["-odd-name", "--", "x"]);
    }

    #[test]
    fn errors_are_one_line() {
        for (args, part) in [
            (&[][..], "required arguments were not provided"),
            (&["-n", "2"], "PROGRAM"),
            (&["-n", "0", "true"], "invalid value '0'"),
            (&["-n", "many", "true"], "invalid value 'many'"),
            (&["--frobnicate", "true"], "'--frobnicate'"),
            (&["-np", "0", "true"], "invalid value '0'"),
            (&["-n", "p", "true"], "not a number of ranks"),
            (&["-t", "-1", "true"], "'-1'"),
            (&["-t", "soon", "true"], "not a time such as 500ms"),
            (&["--timeout", "0s", "true"], "longer than 0"),
            (&["--grace", "soon", "true"], "not a number of seconds"),
            (&["--env", "novalue", "true"], "'novalue' is not KEY=VALUE"),
            (&["--env", "=x", "true"], "'=x' is not KEY=VALUE"),
        ] {
            let line = usage(args);
            assert!(line.contains(part), "{line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }
}
