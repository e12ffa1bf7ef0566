//! The place of one peer: no session, a handshake, or a session, and how one becomes the other.
//!
//! A session is named by two tokens, each made by one side for this session alone. Who sees its own unused token
//! echoed in an authentic Hello knows that the peer is there *now*, and opens the session. Nothing else of a Hello
//! is judged before, neither its version nor its sender's settings. A recorded Hello echoes a token that is used
//! up. A restarted peer knows no token: it is told a fresh one, and only when that comes back does the old session
//! end. Every Hello causes at most one Hello of the same size, and none is a sign of life: copies of it would be
//! one, too.

use super::bytes::MAX_VARINT;
use super::context::Context;
use super::session::{Names, Session, sooner};
use super::wire::{Hello, VERSION};
use super::{Event, seal::Keyring};
use am_core::transport::{LossCause, PeerStatus};
use am_core::{Instant, Peer, Span};

/// The first distance of Hellos; it doubles up to [`SLOWEST`].
const FIRST: Span = Span::from_millis(20);
const SLOWEST: Span = Span::from_millis(500);

/// What a Hello or a timer led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    Nothing,
    Event(Event),
    /// The old session is over, and the peer has come back.
    Replaced(LossCause),
}

/// One peer.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) peer: Peer,
    pub(super) session: Option<Box<Session>>,
    /// How the peer ended, if it did.
    pub(super) ended: Option<PeerStatus>,
    /// Tokens used so far, and the one for the next session.
    sessions: u64,
    token: u64,
    /// The peer's token as it was last seen outside of a session.
    candidate: u64,
    /// Since when this side wants a session.
    connecting: Option<Instant>,
    hello_due: bool,
    challenge_due: bool,
    hello_at: Option<Instant>,
    attempts: u32,
    pub(super) segment: u64,
    /// What the job was told of the size of the peer's segment.
    pub(super) promised_segment: Option<u64>,
    /// In the machine's queues.
    pub(super) ready: bool,
    pub(super) arrived: bool,
}

impl Slot {
    pub(super) fn new(peer: Peer, keyring: &Keyring) -> Self {
        Self {
            peer,
            session: None,
            ended: None,
            sessions: 0,
            token: keyring.token(peer.0, 0),
            candidate: 0,
            connecting: None,
            hello_due: false,
            challenge_due: false,
            hello_at: None,
            attempts: 0,
            segment: 0,
            promised_segment: None,
            ready: false,
            arrived: false,
        }
    }

    /// This side was held up for so long; the peer could not make itself heard.
    pub(super) fn excuse(&mut self, late: Span) {
        self.connecting = self.connecting.map(|since| since + late);
        if let Some(session) = &mut self.session {
            session.last_heard = session.last_heard + late;
            session.asked_at = session.asked_at.map(|since| since + late);
        }
    }

    /// Whether a session is wanted and not there yet.
    pub(super) fn is_connecting(&self) -> bool {
        self.connecting.is_some()
    }

    /// Wants a session, if there is none and the peer has not ended.
    pub(super) fn connect(&mut self, now: Instant) {
        if self.session.is_none() && self.connecting.is_none() && self.ended.is_none() {
            self.connecting = Some(now);
            self.attempts = 0;
            self.hello_due = true;
        }
    }

    /// Opens the session that a Hello asks for; returns whether its key is one that an honest peer has.
    fn open(&mut self, shared: &Context, keyring: &Keyring, hello: &Hello, now: Instant) -> bool {
        let own = self.peer == shared.config.me;
        let Some(keys) = keyring.agree(&hello.public, own) else { return false };
        let names =
            Names { peer: self.peer.0, mine: self.token, theirs: hello.token, peer_segment: hello.segment };
        let mut session = Session::new(&shared.config, shared.base, &keys, &names, now);
        session.confirmed = hello.open;
        self.session = Some(Box::new(session));
        self.segment = hello.segment;
        self.sessions += 1;
        self.token = keyring.token(self.peer.0, self.sessions);
        (self.connecting, self.candidate, self.attempts) = (None, 0, 0);
        (self.hello_due, self.challenge_due) = (true, false);
        true
    }

    /// Ends the session, if there is one, and notes why.
    pub(super) fn end(&mut self, shared: &mut Context, status: PeerStatus) {
        if let Some(mut session) = self.session.take() {
            session.close(shared);
            if session.waiting {
                shared.waiting.retain(|peer| *peer != self.peer.0);
            }
        }
        let comes_back = shared.config.rejoin && matches!(status, PeerStatus::Lost(_));
        self.ended = if comes_back { None } else { Some(status) };
        (self.connecting, self.hello_at, self.hello_due, self.challenge_due) = (None, None, false, false);
    }

    /// An authentic Hello of this peer has arrived.
    pub(super) fn on_hello(
        &mut self,
        shared: &mut Context,
        keyring: &Keyring,
        hello: &Hello,
        now: Instant,
    ) -> Transition {
        if let Some(status) = self.ended {
            if status == PeerStatus::Lost(LossCause::Incompatible) && hello.asking {
                // It should learn the same of us.
                (self.candidate, self.hello_due) = (hello.token, true);
            }
            return Transition::Nothing;
        }
        match &mut self.session {
            Some(session) if hello.token == session.theirs => {
                session.confirmed |= hello.open && hello.echo == session.mine;
                self.hello_due |= hello.asking;
                return Transition::Nothing;
            }
            // Said at some time, not now.
            Some(_) if hello.echo != self.token => {
                if hello.asking {
                    (self.candidate, self.challenge_due) = (hello.token, true);
                }
                return Transition::Nothing;
            }
            None if hello.echo != self.token => {
                self.candidate = hello.token;
                self.hello_due |= hello.asking;
                return Transition::Nothing;
            }
            _ => {}
        }
        let ours = shared.config.layout();
        // Places in a larger one could not be written down.
        let promised = self.promised_segment.is_none_or(|promised| promised == hello.segment);
        let segment = promised && hello.segment <= MAX_VARINT;
        if hello.version != VERSION || hello.layout != ours || !segment {
            self.end(shared, PeerStatus::Lost(LossCause::Incompatible));
            self.ended = Some(PeerStatus::Lost(LossCause::Incompatible));
            // It should learn the same of us.
            (self.candidate, self.hello_due) = (hello.token, true);
            let (theirs, version) = (hello.layout, hello.version);
            return Transition::Event(Event::Incompatible { peer: self.peer, version, ours, theirs });
        }
        let replaces = self.session.is_some();
        if replaces {
            self.end(shared, PeerStatus::Lost(LossCause::Restarted));
        }
        if self.ended.is_none() && !self.open(shared, keyring, hello, now) {
            self.end(shared, PeerStatus::Lost(LossCause::Faulty));
            self.ended = Some(PeerStatus::Lost(LossCause::Faulty));
            return Transition::Event(Event::Lost(self.peer, LossCause::Faulty));
        }
        if replaces {
            Transition::Replaced(LossCause::Restarted)
        } else {
            Transition::Event(Event::Connected(self.peer))
        }
    }

    /// Whether a Hello is to be sent before anything else.
    pub(super) fn owes_hello(&self) -> bool {
        self.hello_due || self.challenge_due
    }

    /// The Hello to send now, if any.
    pub(super) fn next_hello(&mut self, shared: &Context, keyring: &Keyring, now: Instant) -> Option<Hello> {
        let (token, echo, asking, open) = match &self.session {
            Some(session) if std::mem::take(&mut self.hello_due) => {
                (session.mine, session.theirs, !session.confirmed, true)
            }
            Some(_) if std::mem::take(&mut self.challenge_due) => (self.token, self.candidate, false, false),
            None if std::mem::take(&mut self.hello_due) => {
                (self.token, self.candidate, self.connecting.is_some(), false)
            }
            _ => return None,
        };
        if asking {
            let wait = Span(FIRST.0 << self.attempts.min(10)).min(SLOWEST);
            self.attempts += 1;
            self.hello_at = Some(now + wait);
        }
        let (sender, receiver) = (shared.config.me.0, self.peer.0);
        let (layout, segment, public) = (shared.config.layout(), shared.segment.len() as u64, keyring.public());
        Some(Hello { version: VERSION, asking, open, sender, receiver, token, echo, layout, segment, public })
    }

    /// When [`Slot::on_timer`] wants to be called, seen after nothing more can be sent.
    pub(super) fn deadline(&self, now: Instant, silence: Span) -> Option<Instant> {
        let connect = self.connecting.map(|since| since + silence);
        match &self.session {
            Some(session) => Some(sooner(sooner(session.deadline(now, silence), connect), self.hello_at)),
            None => connect.map(|connect| sooner(connect, self.hello_at)).or(self.hello_at),
        }
    }

    /// Time has passed.
    pub(super) fn on_timer(&mut self, shared: &mut Context, now: Instant) -> Transition {
        if self.hello_at.is_some_and(|at| at <= now) {
            self.hello_at = None;
            let confirmed = self.session.as_ref().map(|session| session.confirmed);
            self.hello_due |= confirmed == Some(false) || (confirmed.is_none() && self.connecting.is_some());
        }
        let late = match &mut self.session {
            Some(session) => session.on_timer(shared, now),
            None => self.connecting.is_some_and(|since| now.since(since) >= shared.config.silence),
        };
        if !late {
            return Transition::Nothing;
        }
        // One that has left may be silent.
        if let Some(status) = self.ended {
            self.end(shared, status);
            return Transition::Nothing;
        }
        self.end(shared, PeerStatus::Lost(LossCause::Silent));
        Transition::Event(Event::Lost(self.peer, LossCause::Silent))
    }
}
