//! An authenticated, encrypted channel over TCP between two holders of the job's secret: a handshake of one
//! message each way, then sealed frames. Non-blocking; whoever owns a channel polls it.
//!
//! ```text
//! client -> server   "am-rdv", version u16, nonce[32]
//! server -> client   the same                                  (only to a greeting of the right form)
//! both               frames: length u32, sealed bytes          (the first one empty: it proves the secret)
//! ```
//!
//! Keys come from the secret and both nonces by BLAKE3's key derivation, one per direction, so that neither an old
//! conversation nor one's own words can be played back. Frames are sealed with AEGIS-256 with a counter as nonce
//! and the length as associated data. Until the first frame has been opened, a peer may send 64 bytes at most.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use aegis::aegis256::Aegis256;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use zeroize::Zeroize;

use crate::codec::{self, Wire};
use crate::secret::Secret;

/// The version of everything that is said over a channel; it changes with the messages.
pub(crate) const PROTOCOL: u16 = 8;
const MAGIC: [u8; 6] = *b"am-rdv";
const NONCE: usize = 32;
const GREETING: usize = MAGIC.len() + 2 + NONCE;
const TAG: usize = 16;
/// The longest frame of an authenticated peer, in sealed bytes.
const LONGEST: usize = 16 << 20;
/// The longest message.
const MOST: usize = LONGEST - TAG;
/// How much is read at once.
const READ_BYTES: usize = 64 << 10;
/// Seconds of silence after which the system asks the other end whether it is there.
const KEEP_ALIVE: u32 = 60;

/// Which end of a channel this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The end that connected and speaks first.
    Client,
    /// The end that listens.
    Server,
}

/// Why a channel can't go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The other end is no program of this family.
    #[error("something else answers there: its greeting makes no sense")]
    Stranger,
    /// The other end is a program of another version.
    #[error("its version of the start protocol is {theirs}, ours is {PROTOCOL}: install one version everywhere")]
    Version {
        /// The other end's version.
        theirs: u16,
    },
    /// The other end has another secret.
    #[error("its secret is another one: it belongs to another job, or the secret's files differ")]
    WrongSecret,
    /// Something between the two ends changed what was sent, or the other end is broken.
    #[error("what arrived was damaged or forged on its way")]
    Damaged,
    /// The other end hung up.
    #[error("it hung up")]
    HungUp,
    /// Nothing came in time, or nothing of what was sent was acknowledged for as long as the system tries.
    #[error("it did not answer in time")]
    TimedOut,
    /// This end has more to say in one message than a channel carries: names and places of very many ranks, for
    /// instance.
    #[error(
        "a message of {bytes} bytes exceeds the {} that a channel carries: use fewer ranks or shorter host names",
        MOST
    )]
    TooLong {
        /// Bytes of the message.
        bytes: usize,
    },
    /// The operating system refused something.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl ChannelError {
    /// What kind of error of the system it is, from which it can be had back as far as it names no version or
    /// number.
    pub(crate) fn kind(&self) -> io::ErrorKind {
        match self {
            Self::HungUp => io::ErrorKind::UnexpectedEof,
            Self::TimedOut => io::ErrorKind::TimedOut,
            Self::System(error) => error.kind(),
            _ => io::ErrorKind::InvalidData,
        }
    }
}

impl From<io::ErrorKind> for ChannelError {
    fn from(kind: io::ErrorKind) -> Self {
        match kind {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => Self::HungUp,
            io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::InvalidData => Self::Damaged,
            kind => Self::System(kind.into()),
        }
    }
}

/// The key of one direction, which stays where it is when its channel moves.
type Key = am_core::private::Key<32>;

/// The keys of an open channel and their counters.
struct Keys {
    seal: Key,
    sealed: u64,
    open: Key,
    opened: u64,
}

/// Why a channel whose ends and connection are well can't go on.
#[derive(Clone, Copy)]
enum Failure {
    /// An authentic frame held no message.
    Damaged,
    /// A message of so many bytes was to be sent.
    TooLong(usize),
}

impl From<Failure> for ChannelError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Damaged => Self::Damaged,
            Failure::TooLong(bytes) => Self::TooLong { bytes },
        }
    }
}

/// One end of a channel.
pub(crate) struct Channel {
    stream: TcpStream,
    side: Side,
    secret: Secret,
    nonce: [u8; NONCE],
    keys: Option<Keys>,
    /// Whether a frame of the other end has been opened.
    proven: bool,
    arrived: Vec<u8>,
    leaving: Vec<u8>,
    /// Frames that wait for the keys.
    early: Vec<Vec<u8>>,
    /// Why nothing more can be sent or received, to be reported after what had been received before.
    failed: Option<Failure>,
    /// When something came last.
    last_received: Instant,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel")
            .field("stream", &self.stream)
            .field("proven", &self.proven)
            .finish_non_exhaustive()
    }
}

impl Channel {
    /// Starts a conversation over a connected stream.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn new(stream: TcpStream, side: Side, secret: &Secret) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        // Conversations go on as long as a job, and what lies between may forget those in which nothing is said.
        setsockopt(&stream, sockopt::KeepAlive, &true)?;
        setsockopt(&stream, sockopt::TcpKeepIdle, &KEEP_ALIVE)?;
        Self::over(stream, side, secret)
    }

    /// Starts a conversation with a process of this host.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn local(stream: UnixStream, side: Side, secret: &Secret) -> io::Result<Self> {
        Self::over(OwnedFd::from(stream).into(), side, secret)
    }

    /// Starts a conversation over any connected stream.
    fn over(stream: TcpStream, side: Side, secret: &Secret) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|_| io::Error::other("no random bytes from the system"))?;
        let mut channel = Self {
            stream,
            side,
            secret: secret.clone(),
            nonce,
            keys: None,
            proven: false,
            arrived: Vec::new(),
            leaving: Vec::new(),
            early: Vec::new(),
            failed: None,
            last_received: Instant::now(),
        };
        if side == Side::Client {
            channel.greet();
        }
        Ok(channel)
    }

    /// When something came last, or the channel was made.
    pub(crate) fn last_received(&self) -> Instant {
        self.last_received
    }

    /// This side was held up: what the other end may have said meanwhile, it may still have to say.
    pub(crate) fn excuse(&mut self) {
        self.last_received = Instant::now();
    }

    /// The address of this end.
    pub(crate) fn local_address(&self) -> io::Result<std::net::SocketAddr> {
        self.stream.local_addr()
    }

    /// What to wait for.
    pub(crate) fn interest(&self) -> PollFlags {
        if self.leaving.is_empty() { PollFlags::POLLIN } else { PollFlags::POLLIN | PollFlags::POLLOUT }
    }

    /// Queues a message; [`pump`](Self::pump) sends it. One that is too long is not sent, nor is any after it: the
    /// next [`pump`](Self::pump) or [`push`](Self::push) fails with [`ChannelError::TooLong`].
    pub(crate) fn send(&mut self, message: &impl Wire) {
        let bytes = std::mem::take(&mut *codec::encode(message));
        if self.failed.is_some() {
            return;
        }
        if bytes.len() > MOST {
            self.failed = Some(Failure::TooLong(bytes.len()));
            return;
        }
        if self.keys.is_some() { self.seal(bytes) } else { self.early.push(bytes) }
    }

    /// How many bytes are queued, those included that wait for the other end's greeting.
    pub(crate) fn queued(&self) -> usize {
        self.leaving.len() + self.early.iter().map(Vec::len).sum::<usize>()
    }

    /// Moves bytes both ways without blocking and returns the messages that have arrived; those before an error
    /// are returned first, the error at the next call.
    ///
    /// # Errors
    /// [`ChannelError`]; the channel is then of no further use.
    pub(crate) fn pump<M: Wire>(&mut self) -> Result<Vec<M>, ChannelError> {
        if !self.prove()? {
            return self.check().map(|()| Vec::new());
        }
        let sent = self.write();
        let more = self.read();
        let mut messages = Vec::new();
        while !matches!(self.failed, Some(Failure::Damaged)) {
            match self.next_until(false) {
                Ok(Some(frame)) => match codec::decode(&frame) {
                    Some(message) => messages.push(message),
                    None => self.failed = Some(Failure::Damaged),
                },
                Ok(None) => break,
                Err(error) if messages.is_empty() => return Err(error),
                // The next call meets it again: a frame that can't be opened stays the next one.
                Err(_) => break,
            }
        }
        if messages.is_empty() {
            self.check()?;
            more?;
            sent?;
        }
        Ok(messages)
    }

    /// Fails if the channel has.
    fn check(&self) -> Result<(), ChannelError> {
        self.failed.map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Sends what is queued as far as that is possible without blocking.
    ///
    /// # Errors
    /// [`ChannelError`]; the channel is then of no further use.
    pub(crate) fn push(&mut self) -> Result<(), ChannelError> {
        self.write()?;
        self.check()
    }

    /// As [`pump`](Self::pump), but waits until a message arrives.
    ///
    /// # Errors
    /// [`ChannelError`], among them [`ChannelError::TimedOut`].
    pub(crate) fn wait<M: Wire>(&mut self, until: Instant) -> Result<Vec<M>, ChannelError> {
        loop {
            let messages = self.pump()?;
            if !messages.is_empty() {
                return Ok(messages);
            }
            self.rest(until)?;
        }
    }

    /// Sends what is queued and waits until the other end hangs up, as it does once it has read the last word. A
    /// channel that is dropped before may lose that: what arrives at an end that is closed resets the connection,
    /// and with it goes what is still on its way, after a cut for instance.
    pub(crate) fn part<M: Wire>(&mut self, until: Instant) {
        while self.pump::<M>().is_ok() && self.rest(until).is_ok() {}
    }

    /// Moves bytes both ways without blocking until both ends have proven themselves; returns whether the other
    /// has.
    ///
    /// # Errors
    /// [`ChannelError`]; the channel is then of no further use.
    pub(crate) fn prove(&mut self) -> Result<bool, ChannelError> {
        if self.proven {
            return Ok(true);
        }
        let sent = self.write();
        let more = self.read();
        // The only frame that is looked at is the proof: whatever follows it waits for `pump`.
        let proven = self.next_until(true);
        // What has arrived may have given us something to say: the greeting, and the proof. Without it the other
        // end would not know what was wrong.
        let sent = sent.and_then(|()| self.write());
        proven?;
        if !self.proven {
            more?;
            sent?;
        }
        Ok(self.proven)
    }

    /// Sleeps until there is something to do, at most until `until`.
    ///
    /// # Errors
    /// [`ChannelError::TimedOut`] if that time is over.
    pub(crate) fn rest(&self, until: Instant) -> Result<(), ChannelError> {
        self.rest_until(self.interest(), until).map(drop)
    }

    /// Sleeps until the other end takes more, at most until `until`, whatever it has said; returns whether it
    /// does.
    ///
    /// # Errors
    /// [`ChannelError::TimedOut`] if that time is over.
    pub(crate) fn rest_until_room(&self, until: Instant) -> Result<bool, ChannelError> {
        self.rest_until(PollFlags::POLLOUT, until)
    }

    fn rest_until(&self, events: PollFlags, until: Instant) -> Result<bool, ChannelError> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ChannelError::TimedOut);
        }
        let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        Ok(poll(&mut [PollFd::new(self.stream.as_fd(), events)], timeout).is_ok_and(|ready| ready > 0))
    }

    fn greet(&mut self) {
        self.leaving.extend_from_slice(&MAGIC);
        self.leaving.extend_from_slice(&PROTOCOL.to_le_bytes());
        self.leaving.extend_from_slice(&self.nonce);
    }

    /// The next frame that has arrived whole, opened; none if only the `proof` is asked for and has been seen.
    fn next_until(&mut self, proof: bool) -> Result<Option<Vec<u8>>, ChannelError> {
        loop {
            if proof && self.proven || self.keys.is_none() && !self.greeted()? {
                return Ok(None);
            }
            let Some(length) = self.arrived.first_chunk::<4>() else { return Ok(None) };
            let (prefix, length) = (*length, u32::from_le_bytes(*length) as usize);
            let longest = if self.proven { LONGEST } else { TAG };
            if length > longest {
                return Err(if self.proven { ChannelError::Damaged } else { ChannelError::WrongSecret });
            }
            if self.arrived.len() < 4 + length {
                return Ok(None);
            }
            let mut frame = self.arrived[4..4 + length].to_vec();
            let keys = self.keys.as_mut().expect("frames are looked for once there are keys");
            let opened = frame.split_last_chunk_mut::<TAG>().and_then(|(text, tag)| {
                cipher(&keys.open, keys.opened).decrypt_in_place(text, tag, &prefix).ok()?;
                Some(text.len())
            });
            let Some(text) = opened else {
                return Err(if self.proven { ChannelError::Damaged } else { ChannelError::WrongSecret });
            };
            keys.opened += 1;
            self.arrived.drain(..4 + length);
            if self.proven {
                frame.truncate(text);
                return Ok(Some(frame));
            }
            self.proven = true;
        }
    }

    /// Takes the other end's greeting in once it is there.
    fn greeted(&mut self) -> Result<bool, ChannelError> {
        let known = self.arrived.len().min(MAGIC.len());
        if self.arrived[..known] != MAGIC[..known] {
            return Err(ChannelError::Stranger);
        }
        if self.arrived.len() < GREETING {
            return Ok(false);
        }
        let greeting: Vec<u8> = self.arrived.drain(..GREETING).collect();
        let (version, theirs) = greeting[MAGIC.len()..].split_at(2);
        let version = u16::from_le_bytes([version[0], version[1]]);
        if self.side == Side::Server {
            self.greet();
        }
        if version != PROTOCOL {
            // The other end has to learn of it, too.
            let _ = self.write();
            return Err(ChannelError::Version { theirs: version });
        }
        let (seal, open) = match self.side {
            Side::Client => (&b"client"[..], &b"server"[..]),
            Side::Server => (&b"server"[..], &b"client"[..]),
        };
        let salt = match self.side {
            Side::Client => [&self.nonce, theirs].concat(),
            Side::Server => [theirs, &self.nonce].concat(),
        };
        let key = |direction| key(&self.secret, &salt, direction);
        self.keys = Some(Keys { seal: key(seal), sealed: 0, open: key(open), opened: 0 });
        self.seal(Vec::new());
        for frame in std::mem::take(&mut self.early) {
            self.seal(frame);
        }
        Ok(true)
    }

    fn seal(&mut self, mut frame: Vec<u8>) {
        let keys = self.keys.as_mut().expect("frames are sealed once there are keys");
        let length = ((frame.len() + TAG) as u32).to_le_bytes();
        let tag = cipher(&keys.seal, keys.sealed).encrypt_in_place(&mut frame, &length);
        keys.sealed += 1;
        self.leaving.extend_from_slice(&length);
        self.leaving.extend_from_slice(&frame);
        self.leaving.extend_from_slice(&tag);
    }

    /// Reads what is there, at most one frame of the longest kind beyond what is known. Of an end that has not
    /// proven itself, what it takes for that: whatever follows stays in the stream, where whoever waits for it
    /// sees it.
    fn read(&mut self) -> Result<(), ChannelError> {
        let mut buffer = [0; READ_BYTES];
        let most = match (self.proven, &self.keys) {
            (true, _) => LONGEST + 1,
            (false, None) => GREETING,
            (false, Some(_)) => 4 + TAG,
        };
        while self.arrived.len() < most {
            let room = if self.proven { READ_BYTES } else { most - self.arrived.len() };
            match self.stream.read(&mut buffer[..room]) {
                Ok(0) => return Err(ChannelError::HungUp),
                Ok(length) => {
                    self.arrived.extend_from_slice(&buffer[..length]);
                    self.last_received = Instant::now();
                    if !self.proven {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ended_by(error)),
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), ChannelError> {
        let mut written = 0;
        let outcome = loop {
            if written == self.leaving.len() {
                break Ok(());
            }
            match self.stream.write(&self.leaving[written..]) {
                Ok(length) => written += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(ended_by(error)),
            }
        };
        self.leaving.drain(..written);
        outcome
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// What ended a conversation: one cause has one name, whichever call met it.
fn ended_by(error: io::Error) -> ChannelError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ChannelError::HungUp,
        io::ErrorKind::TimedOut => ChannelError::TimedOut,
        _ => ChannelError::System(error),
    }
}

/// The cipher of one frame: no two frames of a key have the same counter.
fn cipher(key: &Key, counter: u64) -> Aegis256<TAG> {
    let mut nonce = [0; 32];
    nonce[..8].copy_from_slice(&counter.to_le_bytes());
    Aegis256::new(key, &nonce)
}

/// The key of one direction.
fn key(secret: &Secret, salt: &[u8], direction: &[u8]) -> Key {
    let mut hash = blake3::Hasher::new_derive_key("active-messages launch 2026-11 channel");
    // Nonces and direction have fixed lengths.
    hash.update(salt).update(direction).update(secret.bytes());
    let mut key = Key::default();
    hash.finalize_xof().fill(&mut key[..]);
    hash.zeroize();
    key
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
