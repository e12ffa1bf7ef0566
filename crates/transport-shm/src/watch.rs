//! The death watch: a thread that sleeps until a peer's process ends, and then says so on the board.
//!
//! Watches share the work, so that descriptors do not grow with the job: each one watches the processes of the
//! next [`PLACES`] peers, counted round the job, and on from there to the first that is active. So every active
//! process is watched by the nearest active one before it, and usually by fifteen others. When a watched process
//! ends or leaves, the watch moves on to the next. The board tells everyone.
//!
//! A process that is stopped (SIGSTOP, a debugger) sees no deaths. It is watched like any other, but takes no
//! place: the watches before it go on to as many processes that run. So every process is watched by the nearest
//! *running* one before it, however many are stopped between them. Watches that have passed somebody by look for
//! stopped processes every 500 ms. What cannot be seen is a process that the kernel keeps from running without
//! stopping it (a frozen cgroup): sixteen such in a row hide the death of the next until one of them runs again.
//!
//! In large jobs all these looks are rarer ([`slower`]): every rank has a watch, and the ranks of a host share its
//! processors.
//!
//! A pidfd becomes readable when its process ends for whatever reason, also before anyone has collected the exit
//! status, so no polling is needed and a death is known within a scheduling delay. Where no pidfd is to be had
//! (the process has run out of descriptors, or the kernel has none) the watch asks every 100 ms, in large jobs
//! rarer, whether the process still exists.
//!
//! Only proof makes a peer dead: that no process has its number, that the process of its number started at another
//! time, or that a pidfd of its process is readable. That something could not be read proves nothing.

use crate::job::{Board, status};
use crate::layout::endpoint;
use crate::sys;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

/// How many peers that run a watch is responsible for.
const PLACES: usize = 16;

/// How often the watch looks for peers that have joined meanwhile, and for deaths where it has no pidfd, in ms.
const INTERVAL: u16 = 100;

/// How often the watch looks whether peers that it watches have left or are stopped, so that it has to watch
/// others, in ms.
const REVIEW: u16 = 500;

/// How many times as long a watch waits between two looks in a job of so many endpoints: from 128 on, all watches
/// of a job together look about as often as those of 64 do, up to eight times.
fn slower(endpoints: usize) -> u16 {
    (endpoints / 64).clamp(1, 8) as u16
}

/// What stands for the start time of a process that could not read its own.
pub(crate) const UNKNOWN: u64 = 0;

/// A running death watch; ends when dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    /// The process whose thread it is.
    process: u32,
}

impl Watch {
    /// Starts watching for the endpoint `me` of a job.
    pub(crate) fn start(board: Arc<Board>, me: usize) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = Arc::new(EventFd::from_flags(flags).map_err(io::Error::from)?);
        let ours = Arc::clone(&stop);
        let thread =
            std::thread::Builder::new().name("am-death-watch".into()).stack_size(128 << 10).spawn(move || {
                Watcher::new(board, me, Kernel).run(&ours);
            })?;
        Ok(Self { stop, thread: Some(thread), process: std::process::id() })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // A fork has neither a thread to join nor the right to stop that of its parent.
            std::mem::forget(self.thread.take());
            return;
        }
        // A full counter or a thread that is gone already both mean that nothing needs to be stopped.
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// When a process was started, in clock ticks since boot; `None` if that can't be read. Tells a process from a
/// later one of the same number.
pub(crate) fn started(pid: u32) -> Option<u64> {
    // Field 22.
    field(pid, 19)?.parse().ok()
}

/// Whether a process is stopped, by a signal or by a debugger.
fn is_stopped(pid: u32) -> bool {
    field(pid, 0).is_some_and(|state| state == "T" || state == "t")
}

/// What the system says of a process, by the place behind its program's name.
fn field(pid: u32, place: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(place).map(str::to_owned)
}

/// What a watch asks the system; a test answers in its place.
trait System {
    /// A descriptor that is readable when the process has ended.
    fn pidfd(&self, pid: u32) -> io::Result<File>;
    /// As the function [`started`].
    fn started(&self, pid: u32) -> Option<u64>;
    /// As the function [`is_stopped`].
    fn is_stopped(&self, pid: u32) -> bool {
        is_stopped(pid)
    }
}

/// The system itself.
struct Kernel;

impl System for Kernel {
    fn pidfd(&self, pid: u32) -> io::Result<File> {
        sys::pidfd_open(pid as i32)
    }

    fn started(&self, pid: u32) -> Option<u64> {
        started(pid)
    }
}

/// Whether a process has ended, told without a descriptor: there is none of its number, or all that is left of it
/// is a first thread without a program, which waits to be collected.
fn is_gone(pid: u32) -> bool {
    if kill(Pid::from_raw(pid as i32), None) == Err(Errno::ESRCH) {
        return true;
    }
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    let unloaded = program.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    // The directory has a link for each thread beside its own two.
    unloaded && std::fs::metadata(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.nlink() == 3)
}

struct Watcher<S> {
    board: Arc<Board>,
    me: usize,
    system: S,
    /// Watched processes by id.
    known: BTreeMap<u32, Process>,
}

/// A process that has endpoints of the job.
struct Process {
    /// Readable when it has ended; `None` while none is to be had.
    fd: Option<File>,
    /// Its endpoints, and whether the start time has shown for each that this is the process that joined. They are
    /// kept here because the board is in memory that a faulty process can change.
    peers: BTreeMap<usize, bool>,
}

/// When to look again if nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    Never,
    InMillis(u16),
}

impl<S: System> Watcher<S> {
    fn new(board: Arc<Board>, me: usize, system: S) -> Self {
        Self { board, me, system, known: BTreeMap::new() }
    }

    fn run(mut self, stop: &EventFd) {
        loop {
            let again = self.review();
            if self.wait(stop, again) {
                return;
            }
        }
    }

    /// Sleeps until a process ends or it is time to look again; returns whether the watch is to stop.
    fn wait(&mut self, stop: &EventFd, again: Again) -> bool {
        let timeout = match again {
            Again::Never => PollTimeout::NONE,
            Again::InMillis(millis) => PollTimeout::from(millis),
        };
        let mut waits = vec![PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        let watched = self.known.iter().filter_map(|(pid, process)| Some((*pid, process.fd.as_ref()?)));
        let (pids, fds): (Vec<u32>, Vec<&File>) = watched.unzip();
        waits.extend(fds.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        // The kernel is out of memory, or the limit of files was lowered below what is watched: then nothing is
        // known of any descriptor, and everyone is asked about.
        let blind = !matches!(poll(&mut waits, timeout), Ok(_) | Err(Errno::EINTR));
        if blind {
            std::thread::sleep(std::time::Duration::from_millis(INTERVAL.into()));
        }
        let fired = |wait: &PollFd<'_>| wait.any().unwrap_or(false);
        let stopped = if blind { stop.read().is_ok() } else { fired(&waits[0]) };
        let ended = pids.iter().zip(&waits[1..]).filter(|(_, wait)| fired(wait));
        let mut dead: Vec<u32> = ended.map(|(pid, _)| *pid).collect();
        let unseen = self.known.iter().filter(|(_, process)| blind || process.fd.is_none()).map(|(pid, _)| *pid);
        dead.extend(unseen.filter(|pid| is_gone(*pid)));
        dead.into_iter().for_each(|pid| self.declare_dead(pid));
        stopped
    }

    /// Decides whom to watch, and declares dead whoever is found to be; returns when to look again.
    fn review(&mut self) -> Again {
        let (mut places, mut active, mut absent, mut rest) = (0, false, false, false);
        let mut mine = BTreeSet::new();
        let count = self.board.endpoints.len();
        let me = self.me;
        // In a small job everyone watches everyone, whoever is stopped.
        let crowded = count > PLACES + 1;
        for peer in (1..count).map(|ahead| (me + ahead) % count) {
            if places >= PLACES && active {
                rest = true;
                break;
            }
            let known =
                self.known.iter().find(|(_, process)| process.peers.contains_key(&peer)).map(|(pid, _)| *pid);
            match (self.board.raw_status(peer), known) {
                (status::FINISHED..=status::FAULTY, _) => {}
                (status::ACTIVE, _) | (_, Some(_)) => {
                    let pid =
                        known.unwrap_or_else(|| self.board.endpoints[peer][endpoint::PID].load(Relaxed) as u32);
                    if pid != std::process::id() && self.watch(pid, peer) {
                        let runs = mine.insert(pid) && !(crowded && self.system.is_stopped(pid));
                        active |= runs;
                        places += usize::from(runs);
                    }
                }
                _ => {
                    absent = true;
                    places += 1;
                }
            }
        }
        self.known.retain(|pid, _| mine.contains(pid));
        let sure =
            |process: &Process| process.fd.is_some() && process.peers.values().all(|identified| *identified);
        match (absent || !self.known.values().all(sure), rest) {
            (true, _) => Again::InMillis(INTERVAL * slower(count)),
            (false, true) => Again::InMillis(REVIEW * slower(count)),
            (false, false) => Again::Never,
        }
    }

    /// Takes a peer's process up, or makes up for what could not be done before; returns whether it lives as far
    /// as is known.
    fn watch(&mut self, pid: u32, peer: usize) -> bool {
        let process = self.known.entry(pid).or_insert(Process { fd: None, peers: BTreeMap::new() });
        process.peers.entry(peer).or_insert(false);
        if process.fd.is_none() {
            match self.system.pidfd(pid) {
                Ok(fd) => {
                    process.fd = Some(fd);
                    // Whom it belongs to is not known before the start time is looked at again.
                    process.peers.values_mut().for_each(|identified| *identified = false);
                }
                // There is no such process; `EINVAL` if there can be none of that number.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL)) => {
                    self.declare_dead(pid);
                    return false;
                }
                Err(_) => {}
            }
        }
        let identified = process.peers.get_mut(&peer).expect("it was entered above");
        if !*identified {
            // After the descriptor was opened: what is read belongs to the process that is watched, or to a later
            // one.
            let joined = self.board.endpoints[peer][endpoint::STARTED].load(Relaxed);
            let found = self.system.started(pid);
            *identified = found.is_some();
            if found.is_some_and(|found| joined != UNKNOWN && found != joined) {
                // Others may have joined from the process that has the number now.
                process.peers.remove(&peer);
                self.board.set_died(peer);
                return false;
            }
        }
        true
    }

    /// Marks the endpoints of a dead process.
    fn declare_dead(&mut self, pid: u32) {
        let peers = self.known.remove(&pid).map_or(BTreeMap::new(), |process| process.peers);
        peers.into_keys().for_each(|peer| self.board.set_died(peer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Job, JobConfig};
    use am_core::{LossCause, PeerStatus};
    use std::cell::Cell;
    use std::process::{Child, Command};

    const DIED: PeerStatus = PeerStatus::Lost(LossCause::Died);

    /// A system whose answers may fail because this process has too many files open.
    #[derive(Default)]
    struct Scarce {
        /// Whether there is no descriptor to be had.
        full: Cell<bool>,
    }

    impl System for Scarce {
        fn pidfd(&self, pid: u32) -> io::Result<File> {
            if self.full.get() { Err(io::Error::from_raw_os_error(libc::EMFILE)) } else { Kernel.pidfd(pid) }
        }

        fn started(&self, pid: u32) -> Option<u64> {
            if self.full.get() { None } else { Kernel.started(pid) }
        }
    }

    /// A process that has joined a job and does nothing.
    struct Member(Child);

    impl Member {
        fn join(job: &Job, peer: usize) -> Self {
            let child = Command::new("sleep").arg("600").spawn().expect("there is a program to start");
            let block = &job.board.endpoints[peer];
            block[endpoint::PID].store(child.id().into(), Relaxed);
            block[endpoint::STARTED].store(started(child.id()).expect("it runs"), Relaxed);
            assert!(job.board.set_status(peer, &[status::ABSENT], status::ACTIVE));
            Self(child)
        }

        fn leave(&self, job: &Job, peer: usize) {
            assert!(job.board.set_status(peer, &[status::ACTIVE], status::LEFT));
        }
    }

    impl Drop for Member {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn watcher(job: &Job, me: usize) -> (Watcher<Scarce>, EventFd) {
        (Watcher::new(Arc::clone(&job.board), me, Scarce::default()), EventFd::new().expect("a descriptor"))
    }

    /// Waits until a process has ended, without collecting it.
    fn ended(child: &Child) {
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("nobody collects it");
        while !stat().contains(") Z ") {
            std::thread::yield_now();
        }
    }

    #[test]
    fn too_many_open_files_kill_nobody() {
        let job = Job::create(&JobConfig::new(3)).expect("memory is there");
        let mut members = [1, 2].map(|peer| Member::join(&job, peer));
        let (mut watcher, stop) = watcher(&job, 0);
        watcher.system.full.set(true);
        for _ in 0..3 {
            assert_eq!(watcher.review(), Again::InMillis(INTERVAL));
            assert!(!watcher.wait(&stop, Again::InMillis(1)));
        }
        assert_eq!([1, 2].map(|peer| job.board.status(peer)), [PeerStatus::Active; 2]);
        // Deaths are seen nevertheless, of processes that have been collected and of such that have not.
        members[0].0.kill().expect("it runs");
        ended(&members[0].0);
        watcher.wait(&stop, Again::InMillis(1));
        assert_eq!([1, 2].map(|peer| job.board.status(peer)), [DIED, PeerStatus::Active]);
        members[1].0.kill().and_then(|()| members[1].0.wait()).expect("it runs");
        watcher.wait(&stop, Again::InMillis(1));
        assert_eq!(job.board.status(2), DIED);
    }

    /// Without descriptors a death takes as long as the watch sleeps, and a row of them a few times as long: far
    /// less than a second.
    #[test]
    fn scarce_descriptors_hide_no_death_for_long() {
        const RANKS: usize = 40;
        let job = Job::create(&JobConfig::new(RANKS as u32)).expect("memory is there");
        let mut members: Vec<Member> = (1..RANKS).map(|peer| Member::join(&job, peer)).collect();
        let (mut watcher, stop) = watcher(&job, 0);
        watcher.system.full.set(true);
        let died = || (1..RANKS).filter(|peer| job.board.status(*peer) == DIED).count();
        let mut round = || {
            assert_eq!(watcher.review(), Again::InMillis(INTERVAL));
            assert!(!watcher.wait(&stop, Again::InMillis(1)));
        };
        round();
        assert_eq!(died(), 0);
        members.iter_mut().for_each(|member| member.0.kill().expect("it runs"));
        members.iter().for_each(|member| ended(&member.0));
        // All that it watches at once, then those beyond them.
        for expected in [PLACES, 2 * PLACES, RANKS - 1] {
            round();
            assert_eq!(died(), expected);
        }
    }

    #[test]
    fn descriptors_are_used_once_there_are_some() {
        let job = Job::create(&JobConfig::new(2)).expect("memory is there");
        let mut member = Member::join(&job, 1);
        let (mut watcher, stop) = watcher(&job, 0);
        watcher.system.full.set(true);
        assert_eq!(watcher.review(), Again::InMillis(INTERVAL));
        watcher.system.full.set(false);
        assert_eq!(watcher.review(), Again::Never);
        member.0.kill().expect("it runs");
        assert!(!watcher.wait(&stop, Again::Never));
        assert_eq!(job.board.status(1), DIED);
    }

    #[test]
    fn another_process_of_the_number_is_no_peer() {
        let job = Job::create(&JobConfig::new(3)).expect("memory is there");
        let _member = Member::join(&job, 1);
        // Peer 2 claims the process of peer 1, but that began at another time.
        let number = job.board.endpoints[1][endpoint::PID].load(Relaxed);
        job.board.endpoints[2][endpoint::PID].store(number, Relaxed);
        job.board.endpoints[2][endpoint::STARTED].store(1, Relaxed);
        assert!(job.board.set_status(2, &[status::ABSENT], status::ACTIVE));
        let (mut watcher, _stop) = watcher(&job, 0);
        watcher.review();
        assert_eq!([1, 2].map(|peer| job.board.status(peer)), [PeerStatus::Active, DIED]);
    }

    #[test]
    fn a_watch_holds_few_descriptors() {
        const RANKS: usize = 40;
        let job = Job::create(&JobConfig::new(RANKS as u32)).expect("memory is there");
        let (mut watcher, _stop) = watcher(&job, 30);
        // Only peers far away have joined: the nearest of them is watched.
        let _far = [20, 25].map(|peer| Member::join(&job, peer));
        assert_eq!(watcher.review(), Again::InMillis(INTERVAL));
        let watched = |watcher: &Watcher<Scarce>| {
            watcher.known.values().flat_map(|process| process.peers.keys().copied()).collect::<BTreeSet<_>>()
        };
        assert_eq!(watched(&watcher), [20].into());
        let members: BTreeMap<usize, Member> = (0..RANKS)
            .filter(|peer| ![20, 25, 30].contains(peer))
            .map(|peer| (peer, Member::join(&job, peer)))
            .collect();
        assert_eq!(watcher.review(), Again::InMillis(REVIEW));
        assert_eq!(watched(&watcher), (0..=6).chain(31..40).collect());
        // Whoever leaves makes room for the next.
        (31..36).for_each(|peer| members[&peer].leave(&job, peer));
        watcher.review();
        assert_eq!(watched(&watcher), (0..=11).chain(36..40).collect());
    }

    #[test]
    fn watches_of_large_jobs_look_rarely() {
        let again = |ranks| watcher(&Job::create(&JobConfig::new(ranks)).expect("memory is there"), 0).0.review();
        assert_eq!([127, 640].map(again), [Again::InMillis(INTERVAL), Again::InMillis(8 * INTERVAL)]);
        assert_eq!(slower(1 << 20), 8);
    }

    #[test]
    fn stopped_processes_hide_no_death() {
        const RANKS: usize = 40;
        let job = Job::create(&JobConfig::new(RANKS as u32)).expect("memory is there");
        let mut members: Vec<Member> = (1..RANKS).map(|peer| Member::join(&job, peer)).collect();
        let (mut watcher, stop) = watcher(&job, 0);
        assert_eq!(watcher.review(), Again::InMillis(REVIEW));
        for member in &members[..PLACES] {
            let pid = Pid::from_raw(member.0.id() as i32);
            kill(pid, nix::sys::signal::Signal::SIGSTOP).expect("it runs");
            while !is_stopped(member.0.id()) {
                std::thread::yield_now();
            }
        }
        // The next sixteen that run are watched as well, and so is the first of them.
        assert_eq!(watcher.review(), Again::InMillis(REVIEW));
        assert_eq!(watcher.known.len(), 2 * PLACES);
        members[PLACES].0.kill().expect("it runs");
        ended(&members[PLACES].0);
        watcher.wait(&stop, Again::InMillis(1));
        assert_eq!(job.board.status(PLACES + 1), DIED);
        // Those that are stopped are still watched, too.
        members[3].0.kill().expect("it is there");
        ended(&members[3].0);
        watcher.wait(&stop, Again::InMillis(1));
        assert_eq!(job.board.status(4), DIED);
    }

    #[test]
    fn a_row_of_deaths_is_followed() {
        const RANKS: usize = 40;
        let job = Job::create(&JobConfig::new(RANKS as u32)).expect("memory is there");
        let mut members: Vec<Member> = (1..RANKS).map(|peer| Member::join(&job, peer)).collect();
        let (mut watcher, stop) = watcher(&job, 0);
        members.iter_mut().for_each(|member| member.0.kill().expect("it runs"));
        members.iter().for_each(|member| ended(&member.0));
        while watcher.review() != Again::Never || !watcher.known.is_empty() {
            watcher.wait(&stop, Again::InMillis(1));
        }
        assert!((1..RANKS).all(|peer| job.board.status(peer) == DIED));
    }
}
