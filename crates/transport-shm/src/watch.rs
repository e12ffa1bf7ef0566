//! The death watch: a thread that sleeps until a peer's process ends, and then says so on the board.
//!
//! It holds one pidfd per other process of the job. A pidfd becomes readable when its process ends for whatever reason, also
//! before anyone has collected the exit status, so no polling is needed and a death is known within a scheduling delay.
//! Where the kernel has no pidfds it asks every 100 ms whether the processes still exist.

use crate::job::{Board, status};
use crate::layout::endpoint;
use crate::sys;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

/// How often the watch looks for peers that have joined meanwhile, or for deaths where there are no pidfds, in ms.
const INTERVAL: u16 = 100;

/// A running death watch; ends when dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts watching all other processes of a job.
    pub(crate) fn start(board: Arc<Board>) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = Arc::new(EventFd::from_flags(flags).map_err(io::Error::from)?);
        let ours = Arc::clone(&stop);
        let thread =
            std::thread::Builder::new().name("am-death-watch".into()).stack_size(128 << 10).spawn(move || {
                Watcher { board, known: BTreeMap::new() }.run(&ours);
            })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A full counter or a thread that is gone already both mean that nothing needs to be stopped.
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// When a process was started, in clock ticks since boot; 0 if unknown. Tells a process from a later one of the same id.
pub(crate) fn started(pid: u32) -> u64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return 0;
    };
    // The second field is the program's name in parentheses and may contain anything; field 22 is the start time.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields.split_whitespace().nth(19).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

struct Watcher {
    board: Arc<Board>,
    /// Watched processes by id.
    known: BTreeMap<u32, Process>,
}

/// A process that has endpoints of the job.
struct Process {
    /// Readable when it has ended; `None` where the kernel cannot do that.
    fd: Option<File>,
    /// Its endpoints. They are kept here because the board is in memory that a faulty process can change.
    peers: Vec<usize>,
}

impl Watcher {
    fn run(mut self, stop: &EventFd) {
        loop {
            let complete = self.learn();
            let pollable = self.known.values().all(|process| process.fd.is_some());
            let timeout = if complete && pollable { PollTimeout::NONE } else { PollTimeout::from(INTERVAL) };
            let mut waits = vec![PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
            let watched = self.known.iter().filter_map(|(pid, process)| Some((*pid, process.fd.as_ref()?)));
            let (pids, fds): (Vec<u32>, Vec<&File>) = watched.unzip();
            waits.extend(fds.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
            match poll(&mut waits, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                // Without poll there is no watch; the job's waits still have their patience.
                Err(_) => return,
            }
            let fired = |wait: &PollFd<'_>| wait.any().unwrap_or(false);
            if fired(&waits[0]) {
                return;
            }
            let mut dead: Vec<u32> =
                pids.iter().zip(&waits[1..]).filter(|(_, wait)| fired(wait)).map(|(pid, _)| *pid).collect();
            let unseen = self.known.iter().filter(|(_, process)| process.fd.is_none()).map(|(pid, _)| *pid);
            dead.extend(unseen.filter(|pid| kill(Pid::from_raw(*pid as i32), None) == Err(Errno::ESRCH)));
            dead.into_iter().for_each(|pid| self.bury(pid));
        }
    }

    /// Takes up processes that have joined; returns whether everyone has.
    fn learn(&mut self) -> bool {
        let mut complete = true;
        for peer in 0..self.board.endpoints.len() {
            match self.board.raw_status(peer) {
                status::ABSENT => complete = false,
                status::ACTIVE => {
                    let block = &self.board.endpoints[peer];
                    let pid = block[endpoint::PID].load(Relaxed) as u32;
                    if pid == std::process::id() {
                        continue;
                    }
                    if let Some(process) = self.known.get_mut(&pid) {
                        if !process.peers.contains(&peer) {
                            process.peers.push(peer);
                        }
                        continue;
                    }
                    let fd = sys::pidfd_open(pid as i32);
                    // The system knows no such process; `EINVAL` if there can be none of that number.
                    let code = fd.as_ref().err().and_then(io::Error::raw_os_error);
                    let gone = matches!(code, Some(libc::ESRCH | libc::EINVAL));
                    if gone || started(pid) != block[endpoint::STARTED].load(Relaxed) {
                        self.board.set_died(peer);
                    } else {
                        self.known.insert(pid, Process { fd: fd.ok(), peers: vec![peer] });
                    }
                }
                _ => {}
            }
        }
        complete
    }

    /// Marks the endpoints of a dead process.
    fn bury(&mut self, pid: u32) {
        let peers = self.known.remove(&pid).map_or(Vec::new(), |process| process.peers);
        peers.into_iter().for_each(|peer| self.board.set_died(peer));
    }
}
