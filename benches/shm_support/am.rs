//! The active-message side of the bench: one rank with the handlers that all figures share, and the tasks in which
//! rank 0 (or every even rank) leads and its partner serves.

use std::hint::black_box;
use std::time::{Duration, Instant};

use active_messages::shm::{Job, JoinOptions, Shm};
use active_messages::transport::Peer;
use active_messages::{
    Address, Category, Endpoint, Handlers, Lane, Payload, Rank, RegisterError, Reply, Request, Span, Token,
    Transport,
};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

/// Bytes of every rank's segment, over which Long messages, puts and gets rotate.
pub(crate) const SEGMENT_BYTES: usize = 4 << 20;

/// What is measured between active-message ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AmTask {
    /// Short request and Short reply, without arguments.
    EmptyTrip,
    /// Short request and Short reply with one 64-bit argument each.
    WordTrip,
    /// Short request and Short reply with 56 bytes of arguments each.
    FullTrip,
    /// Medium request and, as the reply, a Medium of the same size or a Short.
    MediumTrip {
        /// Bytes of payload.
        bytes: usize,
        /// Whether the reply carries the payload back.
        back: bool,
    },
    /// Long request and Short reply.
    LongTrip {
        /// Bytes of payload.
        bytes: usize,
    },
    /// One-way Shorts with one 64-bit argument.
    ShortFlood,
    /// One-way Mediums.
    MediumFlood {
        /// Bytes of payload.
        bytes: usize,
        /// Whether the handler reads the payload.
        read: bool,
    },
    /// One-way Longs to one place after the other.
    LongFlood {
        /// Bytes of payload.
        bytes: usize,
    },
    /// One-way Shorts, of which each so many are answered before the next.
    ShortWindows {
        /// Messages of a window.
        window: u64,
    },
    /// The same with Longs to one place.
    LongWindows {
        /// Bytes of payload.
        bytes: usize,
        /// Messages of a window.
        window: u64,
    },
    /// Copies into the peer's segment.
    Put {
        /// Bytes of each.
        bytes: usize,
    },
    /// Copies out of the peer's segment.
    Get {
        /// Bytes of each.
        bytes: usize,
    },
    /// Polls that find nothing.
    EmptyPoll,
    /// [`AmTask::WordTrip`] between ranks 0 and 1, 2 and 3, and so on at the same time.
    PairTrip,
    /// The CPU time that rank 1 takes while it waits, after it has waited for as long before; an iteration is a
    /// millisecond of that.
    Idle,
}

/// What the handlers work on.
#[derive(Default)]
struct State {
    replies: u64,
    requests: u64,
    sum: u64,
    stopped: bool,
}

/// The handlers, the same on every rank.
#[derive(Clone, Copy)]
struct Protocol {
    echo: Request<()>,
    echo_word: Request<u64>,
    echo_full: Request<[u32; 14]>,
    echo_payload: Request<()>,
    echo_largest: Request<()>,
    count_word: Request<u64>,
    count: Request<()>,
    read: Request<()>,
    stop: Request<()>,
}

impl Protocol {
    /// Registers the handlers; `largest` is the largest Medium reply in bytes.
    fn register(handlers: &mut Handlers<State>, largest: u32) -> Result<Self, RegisterError> {
        let took = "the requester waits for its reply";
        let done: Reply<()> =
            handlers.reply("done", |state: &mut State, _: Address, (): (), _: Payload<'_>| state.replies += 1)?;
        let done_word =
            handlers.reply("done word", |state: &mut State, _: Address, word: u64, _: Payload<'_>| {
                state.replies += 1;
                state.sum ^= word;
            })?;
        let done_full =
            handlers.reply("done full", |state: &mut State, _: Address, words: [u32; 14], _: Payload<'_>| {
                state.replies += 1;
                state.sum ^= u64::from(words.iter().fold(0, |sum, word| sum ^ word));
            })?;
        Ok(Self {
            echo: handlers.request("echo", move |_: &mut State, token: Token<'_>, (): (), _: Payload<'_>| {
                token.reply(done, ()).expect(took);
            })?,
            echo_word: handlers.request(
                "echo word",
                move |_: &mut State, token: Token<'_>, word: u64, _: Payload<'_>| {
                    token.reply(done_word, word).expect(took);
                },
            )?,
            echo_full: handlers.request(
                "echo full",
                move |_: &mut State, token: Token<'_>, words: [u32; 14], _: Payload<'_>| {
                    token.reply(done_full, words).expect(took);
                },
            )?,
            echo_payload: handlers.request_bounded(
                "echo payload",
                largest.min(ECHO_BOUND),
                echo_payload(done, largest as usize),
            )?,
            echo_largest: handlers.request_bounded(
                "echo largest",
                largest,
                echo_payload(done, largest as usize),
            )?,
            count_word: handlers.one_way(
                "count word",
                |state: &mut State, _: Address, word: u64, _: Payload<'_>| {
                    state.requests += 1;
                    state.sum ^= word;
                },
            )?,
            count: handlers.one_way("count", |state: &mut State, _: Address, (): (), _: Payload<'_>| {
                state.requests += 1;
            })?,
            read: handlers.one_way("read", |state: &mut State, _: Address, (): (), payload: Payload<'_>| {
                state.requests += 1;
                payload.for_each_u64(|word| state.sum ^= word);
            })?,
            stop: handlers.one_way("stop", |state: &mut State, _: Address, (): (), _: Payload<'_>| {
                state.stopped = true;
            })?,
        })
    }
}

/// The bound of replies up to 8 KB, in bytes; larger ones have a handler of their own, with more set aside.
const ECHO_BOUND: u32 = 8 << 10;

/// A handler that replies with a Medium of the request's size. It sends bytes of its own, as the tests of other
/// libraries do: what reading a payload costs has figures of its own.
fn echo_payload(
    done: Reply<()>,
    largest: usize,
) -> impl FnMut(&mut State, Token<'_>, (), Payload<'_>) + Send + 'static {
    let own = vec![0xa5; largest];
    move |_, token, (), payload| {
        token.reply_medium(done, (), &own[..payload.len()]).expect("the requester waits for its reply");
    }
}

/// One rank of an active-message job.
pub(crate) struct AmRank {
    endpoint: Endpoint<Shm, State>,
    protocol: Protocol,
    payload: Vec<u8>,
}

impl AmRank {
    /// Joins as `rank` and waits for all others.
    pub(crate) fn join(job: &Job, rank: u32) -> Self {
        let options = JoinOptions::default().segment_bytes(SEGMENT_BYTES);
        let shm = job.join_with(rank, options).expect("the rank is free");
        let mut handlers = Handlers::new();
        let limits = *shm.limits(Peer(0));
        let protocol = Protocol::register(&mut handlers, limits.medium_reply as u32).expect("the names differ");
        let endpoint = Endpoint::attach(shm, handlers, State::default()).expect("all ranks run this program");
        Self { endpoint, protocol, payload: vec![0x5a; SEGMENT_BYTES] }
    }

    /// Leaves without a word to the others, who are leaving too.
    pub(crate) fn leave(self) {
        self.endpoint.leave();
    }

    /// The largest Medium request and reply, in bytes.
    pub(crate) fn largest_medium(&self) -> usize {
        let limit = |lane| self.endpoint.max_payload(Rank(1), Category::Medium, lane, 0).unwrap_or(0) as usize;
        limit(Lane::Request).min(limit(Lane::Reply))
    }

    /// Does this rank's part of `task`, in which it leads or serves, and returns the leader's time.
    pub(crate) fn perform(&mut self, task: AmTask, iterations: u64) -> Duration {
        let rank = self.endpoint.rank().0;
        let (leads, partner) = match task {
            AmTask::PairTrip => (rank.is_multiple_of(2), Rank(rank ^ 1)),
            _ => (rank == 0, Rank(rank ^ 1)),
        };
        match task {
            AmTask::EmptyPoll | AmTask::Put { .. } | AmTask::Get { .. } if !leads => Duration::ZERO,
            AmTask::Idle if rank == 1 => self.idle(Span::from_millis(iterations)),
            AmTask::PairTrip => self.lead_or_serve(leads, task, partner, iterations),
            _ if rank > 1 => Duration::ZERO,
            _ => self.lead_or_serve(leads, task, partner, iterations),
        }
    }

    fn lead_or_serve(&mut self, leads: bool, task: AmTask, partner: Rank, iterations: u64) -> Duration {
        if leads {
            let start = Instant::now();
            self.lead(task, partner, iterations);
            let elapsed = start.elapsed();
            if !matches!(task, AmTask::EmptyPoll | AmTask::Put { .. } | AmTask::Get { .. } | AmTask::Idle) {
                self.endpoint.request(partner, self.protocol.stop, ()).expect("the partner serves");
            }
            elapsed
        } else {
            self.endpoint.wait_until(|state| state.stopped).expect("the leader stops us");
            self.endpoint.state_mut().stopped = false;
            Duration::ZERO
        }
    }

    fn lead(&mut self, task: AmTask, to: Rank, iterations: u64) {
        let Protocol { echo, echo_word, echo_full, echo_payload, echo_largest, count_word, count, read, .. } =
            self.protocol;
        let Self { endpoint, payload, .. } = self;
        let sent = "the partner serves";
        match task {
            AmTask::EmptyTrip => {
                trips(endpoint, iterations, |endpoint, _| endpoint.request(to, echo, ()).expect(sent))
            }
            AmTask::WordTrip | AmTask::PairTrip => {
                trips(endpoint, iterations, |endpoint, trip| endpoint.request(to, echo_word, trip).expect(sent));
            }
            AmTask::FullTrip => trips(endpoint, iterations, |endpoint, trip| {
                endpoint.request(to, echo_full, [trip as u32; 14]).expect(sent);
            }),
            AmTask::MediumTrip { bytes, back } => {
                // Room for the largest possible reply is set aside: a small bound lets more requests be under way.
                let handler = match back {
                    false => echo,
                    true if bytes <= ECHO_BOUND as usize => echo_payload,
                    true => echo_largest,
                };
                let payload = &payload[..bytes];
                trips(endpoint, iterations, |endpoint, _| {
                    endpoint.request_medium(to, handler, (), payload).expect(sent);
                });
            }
            AmTask::LongTrip { bytes } => trips(endpoint, iterations, |endpoint, trip| {
                endpoint
                    .request_long(to, echo, (), &payload[..bytes], place(trip, bytes, SEGMENT_BYTES))
                    .expect(sent);
            }),
            AmTask::ShortFlood => flood(endpoint, to, echo, iterations, |endpoint, message| {
                endpoint.request(to, count_word, message).expect(sent);
            }),
            AmTask::MediumFlood { bytes, read: reads } => {
                let (handler, payload) = (if reads { read } else { count }, &payload[..bytes]);
                flood(endpoint, to, echo, iterations, |endpoint, _| {
                    endpoint.request_medium(to, handler, (), payload).expect(sent);
                });
            }
            AmTask::LongFlood { bytes } => flood(endpoint, to, echo, iterations, |endpoint, message| {
                let place = place(message, bytes, SEGMENT_BYTES);
                endpoint.request_long(to, count, (), &payload[..bytes], place).expect(sent);
            }),
            AmTask::ShortWindows { window } => windows(iterations, window, |messages| {
                flood(endpoint, to, echo, messages, |endpoint, message| {
                    endpoint.request(to, count_word, message).expect(sent);
                });
            }),
            AmTask::LongWindows { bytes, window } => windows(iterations, window, |messages| {
                flood(endpoint, to, echo, messages, |endpoint, _| {
                    endpoint.request_long(to, count, (), &payload[..bytes], 0).expect(sent);
                });
            }),
            AmTask::Put { bytes } => {
                let segment = endpoint.remote_segment(to).expect("shared memory reaches every segment");
                for message in 0..iterations {
                    segment
                        .write(place(message, bytes, SEGMENT_BYTES), &payload[..bytes])
                        .expect("the range is inside");
                }
            }
            AmTask::Get { bytes } => {
                let segment = endpoint.remote_segment(to).expect("shared memory reaches every segment");
                for message in 0..iterations {
                    segment
                        .read(place(message, bytes, SEGMENT_BYTES), &mut payload[..bytes])
                        .expect("the range is inside");
                    black_box(&payload);
                }
            }
            AmTask::EmptyPoll => {
                for _ in 0..iterations {
                    black_box(endpoint.poll().expect("no rank is lost"));
                }
            }
            AmTask::Idle => {}
        }
    }

    /// Waits for `span`, then for as long again while it counts its CPU time.
    fn idle(&mut self, span: Span) -> Duration {
        let mut wait = || {
            let waited = self.endpoint.wait_until_for(span, |_| false);
            assert!(waited.is_err(), "nothing ends this wait but time");
        };
        wait();
        let before = cpu_time();
        wait();
        cpu_time() - before
    }
}

/// One request after the other, each once the last one's reply is there.
#[inline(always)]
fn trips(endpoint: &mut Endpoint<Shm, State>, trips: u64, mut send: impl FnMut(&mut Endpoint<Shm, State>, u64)) {
    endpoint.state_mut().replies = 0;
    for trip in 1..=trips {
        send(endpoint, trip);
        endpoint.wait_until(|state| state.replies == trip).expect("the partner replies");
    }
}

/// Requests as fast as they are taken, then one whose reply says that all have been handled.
#[inline(always)]
fn flood(
    endpoint: &mut Endpoint<Shm, State>,
    to: Rank,
    last: Request<()>,
    messages: u64,
    mut send: impl FnMut(&mut Endpoint<Shm, State>, u64),
) {
    endpoint.state_mut().replies = 0;
    for message in 0..messages {
        send(endpoint, message);
    }
    endpoint.request(to, last, ()).expect("the partner serves");
    endpoint.wait_until(|state| state.replies == 1).expect("the partner replies");
}

/// Messages in windows, each of `window` messages or what is left of all.
#[inline(always)]
fn windows(messages: u64, window: u64, mut send: impl FnMut(u64)) {
    for first in (0..messages).step_by(window as usize) {
        send(window.min(messages - first));
    }
}

/// Where the payload of a message lies in a part of the segment, which is used again and again.
fn place(message: u64, bytes: usize, span: usize) -> u64 {
    let places = (span / bytes) as u64;
    message % places * bytes as u64
}

/// The CPU time of this process so far.
fn cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask for its own usage");
    let part =
        |time: nix::sys::time::TimeVal| Duration::from_micros((time.tv_sec() * 1_000_000 + time.tv_usec()) as u64);
    part(usage.user_time()) + part(usage.system_time())
}
