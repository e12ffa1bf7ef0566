//! One host of a job as its launcher sees it: the remote command, what it says, and the channel of its agent.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::channel::Channel;
use crate::cluster::options::Hosts;
use crate::error::LaunchError;
use crate::manifest::HostEntry;
use crate::outcome::{EXIT_LAUNCHER_FAILED, RankEnd};

/// How much of what a remote command says before its agent reports is kept.
const SAYINGS: usize = 16 << 10;

/// One host of a job while its ranks are started and watched. Dropping it ends its agent and thereby its ranks.
#[derive(Debug)]
pub(crate) struct HostState {
    pub(crate) name: String,
    pub(crate) ranks: Vec<u32>,
    pub(crate) child: Child,
    pub(crate) out: Option<OwnedFd>,
    pub(crate) err: Option<File>,
    /// What came through `err` before the agent reported.
    pub(crate) said: Vec<u8>,
    pub(crate) channel: Option<Channel>,
    /// How the remote command ended, and when that was noticed.
    pub(crate) ended: Option<(ExitStatus, Instant)>,
    pub(crate) card: Option<HostEntry>,
    /// The remote command as a user would type it, and what may help when it fails.
    pub(crate) shown: String,
}

impl Drop for HostState {
    fn drop(&mut self) {
        // The agent sees its channel close, and a remote command such as ssh is not needed for that.
        self.channel = None;
        if self.ended.is_none() {
            let until = Instant::now() + Duration::from_secs(2);
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl HostState {
    /// Notes whether the remote command has ended.
    pub(crate) fn look(&mut self) {
        if self.ended.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.ended = Some((status, Instant::now()));
        }
    }

    /// Takes in what the remote command says on its standard error, in bounds.
    pub(crate) fn listen(&mut self) {
        let Some(err) = &mut self.err else { return };
        let mut buffer = [0; 4096];
        while let Ok(length) = err.read(&mut buffer) {
            if length == 0 {
                self.err = None;
                return;
            }
            let room = SAYINGS.saturating_sub(self.said.len());
            self.said.extend_from_slice(&buffer[..length.min(room)]);
        }
    }

    /// What the remote command said last, on one line.
    pub(crate) fn stderr_tail(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.said);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines.last().map(|_| lines[lines.len().saturating_sub(3)..].join(" / "))
    }

    /// Why the agent never reported.
    pub(crate) fn startup_error(&self, hosts: &Hosts, status: ExitStatus) -> LaunchError {
        let host = self.name.clone();
        let said = self.stderr_tail();
        // An agent that can't report says all there is to say.
        if let (Some(125 | 2), Some(said)) = (status.code(), &said)
            && (said.starts_with("host ") || said.starts_with("amrun --agent"))
        {
            let reason = said.strip_prefix(&format!("host {host}: ")).unwrap_or(said).to_owned();
            return LaunchError::Host { host, reason, code: EXIT_LAUNCHER_FAILED };
        }
        let ended = RankEnd::from(status);
        let said = said.map(|said| format!(" ({said})")).unwrap_or_default();
        let remedy = hosts.remote.remedy(&host, status.code());
        let reason = format!("`{}` {ended} before its amrun reported{said}; {remedy}", self.shown);
        LaunchError::Host { host, reason, code: EXIT_LAUNCHER_FAILED }
    }
}
