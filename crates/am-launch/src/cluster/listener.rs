//! The rendezvous address: a listening socket that lets in whoever proves to know the job's secret.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use crate::cluster::channel::{Channel, ChannelError, Side};
use crate::error::ListenError;
use crate::secret::Secret;

/// How many callers may be pending at once; beyond that the one that has waited longest is sent away.
const MOST_PENDING: usize = 128;
/// How long a caller may take to prove itself.
const PROOF_TIME: Duration = Duration::from_secs(5);
/// How long a caller waits between attempts to reach a listener, at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// A rendezvous address that is listened at.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: TcpListener,
    secret: Secret,
    pending: Vec<(Channel, SocketAddr, Instant)>,
    refused: Refused,
}

/// Who was not let in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refused {
    wrong_secret: u32,
    /// The last version that was not ours.
    version: Option<u16>,
    last: Option<SocketAddr>,
}

impl Refused {
    /// What there is to say about it at the end of a message, if anything.
    pub(crate) fn note(&self) -> String {
        let from = self.last.map(|address| format!(", the last from {}", address.ip())).unwrap_or_default();
        match (self.version, self.wrong_secret) {
            (Some(version), _) => {
                let error = ChannelError::Version { theirs: version };
                format!("; a caller was refused{from}: {error}")
            }
            (None, 0) => String::new(),
            (None, count) => format!("; {count} callers with another secret were refused{from}"),
        }
    }
}

impl Listener {
    /// Starts to listen.
    ///
    /// # Errors
    /// [`ListenError`].
    pub(crate) fn open(address: SocketAddr, secret: &Secret) -> Result<Self, ListenError> {
        let listener = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = listener.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse(address),
            io::ErrorKind::AddrNotAvailable => ListenError::Elsewhere(address),
            io::ErrorKind::PermissionDenied => ListenError::Forbidden(address),
            _ => ListenError::System(address, source),
        })?;
        Ok(Self { listener, secret: secret.clone(), pending: Vec::new(), refused: Refused::default() })
    }

    /// The port that is listened at.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    pub(crate) fn refused(&self) -> &Refused {
        &self.refused
    }

    /// What to wait for: the listener and all pending callers.
    pub(crate) fn interests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let callers = self.pending.iter().map(|(channel, ..)| (channel.as_fd(), channel.interest()));
        std::iter::once((self.listener.as_fd(), PollFlags::POLLIN)).chain(callers)
    }

    /// Serves all pending callers without blocking; returns those who have proven to know the secret.
    pub(crate) fn serve(&mut self) -> Vec<(Channel, SocketAddr)> {
        let now = Instant::now();
        for _ in 0..MOST_PENDING {
            let Ok((stream, address)) = self.listener.accept() else { break };
            if self.pending.len() == MOST_PENDING {
                self.pending.remove(0);
            }
            if let Ok(channel) = Channel::new(stream, Side::Server, &self.secret) {
                self.pending.push((channel, address, now));
            }
        }
        let mut unidentified = Vec::new();
        for (mut channel, address, since) in std::mem::take(&mut self.pending) {
            // A caller that has proven itself has said nothing else yet: its first frame is the proof.
            match channel.prove() {
                Ok(true) => unidentified.push((channel, address)),
                Ok(false) if now.saturating_duration_since(since) < PROOF_TIME => {
                    self.pending.push((channel, address, since));
                }
                Ok(false) => {}
                Err(error) => self.refuse(&error, address),
            }
        }
        unidentified
    }

    fn refuse(&mut self, error: &ChannelError, address: SocketAddr) {
        match error {
            ChannelError::WrongSecret => self.refused.wrong_secret = self.refused.wrong_secret.saturating_add(1),
            ChannelError::Version { theirs } => self.refused.version = Some(*theirs),
            _ => return,
        }
        self.refused.last = Some(address);
    }
}

/// Why nobody opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody answers.
    #[error("{addresses} can't be reached within {seconds} s: {reason}")]
    Unreachable {
        /// The addresses that were tried.
        addresses: String,
        /// For how long.
        seconds: f64,
        /// What the last attempt ended in.
        reason: String,
    },
    /// Somebody answers, but not as they should.
    #[error("{address} does not let us in: {source}")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: ChannelError,
    },
}

/// Connects to the first of these addresses that opens, trying until `until`.
///
/// # Errors
/// [`ConnectError`].
pub(crate) fn connect(
    addresses: &[SocketAddr],
    secret: &Secret,
    connect_timeout: Duration,
) -> Result<Channel, ConnectError> {
    let until = Instant::now() + connect_timeout;
    let mut pause = Duration::from_millis(5);
    let mut reason = "there is no address".to_owned();
    loop {
        for &address in addresses {
            let left = until.saturating_duration_since(Instant::now());
            // One address that swallows everything must not take the time of the others.
            let turn = (left / 2).clamp(Duration::from_millis(50), Duration::from_secs(3));
            match TcpStream::connect_timeout(&address, turn).map_err(ChannelError::from) {
                Ok(stream) => match enter(stream, secret, Instant::now() + turn.max(PROOF_TIME)) {
                    Ok(channel) => return Ok(channel),
                    Err(
                        source @ (ChannelError::WrongSecret
                        | ChannelError::Version { .. }
                        | ChannelError::Stranger),
                    ) => {
                        return Err(ConnectError::Refused { address, source });
                    }
                    Err(error) => reason = error.to_string(),
                },
                Err(error) => reason = error.to_string(),
            }
        }
        if Instant::now() >= until {
            let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
            let addresses = addresses.join(", ");
            return Err(ConnectError::Unreachable { addresses, seconds: connect_timeout.as_secs_f64(), reason });
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Proves to know the secret and sees the other end's proof.
fn enter(stream: TcpStream, secret: &Secret, until: Instant) -> Result<Channel, ChannelError> {
    let mut channel = Channel::new(stream, Side::Client, secret)?;
    while !channel.prove()? {
        channel.rest(until)?;
    }
    Ok(channel)
}
