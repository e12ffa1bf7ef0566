//! What has arrived: the lanes of the peers in turn, each frame handed to the sink.

use super::*;
use crate::ring;

impl Shm {
    /// Hands arrived replies of one peer to the sink; how many, and whether the peer broke the protocol then.
    #[inline]
    pub(super) fn take_replies<S: Sink>(
        &mut self,
        peer: usize,
        budget: usize,
        sink: &mut S,
    ) -> (usize, Result<(), Broken>) {
        let Self { asking, segments, home, .. } = self;
        let Asking { requests, replies, .. } = &mut asking[peer];
        let segment = &segments.arrivals;
        let (mut done, mut args) = (0, Words::EMPTY);
        let from = Peer(peer as u32);
        // A handler may have forked: the rest is the parent's.
        while done < budget && !is_wiped(home) {
            match replies.take_trip(requests, &mut args, done >= LAGGING) {
                Ok(Plain::Nothing) => break,
                Ok(Plain::Taken(handler)) => {
                    sink.reply(Arrival::new(from, Category::Short, handler, &args, Payload::EMPTY));
                    done += 1;
                    continue;
                }
                Ok(Plain::Other(_)) => {}
                Err(broken) => return (done, Err(broken)),
            }
            let mut deliver = |frame: Frame, args: &Words, payload: Payload<'_>| {
                if let Kind::Message(category) = frame.kind {
                    sink.reply(Arrival::new(from, category, frame.handler, args, payload));
                }
            };
            let outcome = match replies.take(requests, done >= LAGGING, &mut deliver) {
                Ok(Taken::Nothing) => break,
                Ok(Taken::End | Taken::Small) => Ok(()),
                Ok(Taken::Large(frame)) if frame.kind == Kind::Control => Err(Broken),
                Ok(Taken::Large(frame)) => replies.take_large(requests, frame, segment, deliver),
                Err(broken) => Err(broken),
            };
            if outcome.is_err() {
                return (done, outcome);
            }
            done += 1;
        }
        (done, Ok(()))
    }

    /// Hands arrived requests of one peer to the sink, with the way back for each; how many, and whether the peer
    /// broke the protocol then.
    #[inline(always)]
    pub(super) fn take_requests<S: Sink>(
        &mut self,
        peer: usize,
        budget: usize,
        sink: &mut S,
    ) -> (usize, Result<(), Broken>) {
        let Self { answering, segments, job, board, fenced, bare, home, .. } = self;
        let Answering { requests, replies, .. } = &mut answering[peer];
        let segment = &segments.arrivals;
        let from = Peer(peer as u32);
        let (mut done, mut plain) = (0, Words::EMPTY);
        let outcome = loop {
            // A handler may have forked: the rest is the parent's, and so is the account of what was read.
            if is_wiped(home) {
                return (done, Ok(()));
            }
            if done == budget {
                break Ok(());
            }
            let outcome = match requests.take_plain(&mut plain, done) {
                Plain::Nothing => break Ok(()),
                Plain::Taken(handler) => {
                    let arrival = Arrival::new(from, Category::Short, handler, &plain, Payload::EMPTY);
                    sink.request(arrival, &mut NullReplyPath::one_way(from));
                    Ok(())
                }
                Plain::Other(header) => {
                    if let Some((handler, granules)) = requests.take_trip(header, &mut plain, done >= LAGGING) {
                        let context = ReplyContext { to: from, board, job, segments, fenced: *fenced };
                        let arrival = Arrival::new(from, Category::Short, handler, &plain, Payload::EMPTY);
                        sink.request(arrival, &mut ShmReplyPath::new(replies, context, Some(granules), bare));
                        Ok(())
                    } else if let Some((handler, payload)) = requests.take_small(header, &mut plain, done) {
                        let arrival = Arrival::new(from, Category::Medium, handler, &plain, payload);
                        sink.request(arrival, &mut NullReplyPath::one_way(from));
                        Ok(())
                    } else {
                        let deliver = |frame: Frame, args: &Words, payload: Payload<'_>| {
                            let context = ReplyContext { to: from, board, job, segments, fenced: *fenced };
                            answer(sink, frame, args, payload, replies, context, bare);
                        };
                        match requests.take(header, done >= LAGGING, deliver) {
                            Ok(Taken::End) => continue,
                            Ok(Taken::Nothing | Taken::Small) => Ok(()),
                            Ok(Taken::Large(frame)) => {
                                // A closure of its own: shared with the one above, neither would be compiled in
                                // place.
                                let deliver = |frame: Frame, args: &Words, payload: Payload<'_>| {
                                    let context = ReplyContext { to: from, board, job, segments, fenced: *fenced };
                                    answer(sink, frame, args, payload, replies, context, bare);
                                };
                                requests.take_large(frame, segment, deliver)
                            }
                            Err(broken) => Err(broken),
                        }
                    }
                }
            };
            if let Err(broken) = outcome {
                break Err(broken);
            }
            done += 1;
            if requests.due() && home.load(Relaxed) != 0 {
                requests.publish();
                board.parking[peer].notify(*fenced);
            }
        };
        if requests.owes() {
            requests.publish();
            board.parking[peer].notify(*fenced);
        }
        (done, outcome)
    }

    /// Serves one peer's lanes.
    #[inline]
    pub(super) fn serve<S: Sink>(&mut self, peer: usize, budget: usize, sink: &mut S) -> usize {
        let mut done = 0;
        if self.asking[peer].broken {
            self.watched[peer] = [NOWHERE; 2];
            return 0;
        }
        if arrived(&self.words, self.watched[peer][0]) {
            let (count, outcome) = self.take_replies(peer, budget.min(QUANTUM), sink);
            done += count;
            if let Err(Broken) = outcome {
                self.break_with(peer);
            }
            self.watched[peer][0] = self.asking[peer].replies.watch();
        }
        if arrived(&self.words, self.watched[peer][1]) && done < budget && !self.asking[peer].broken {
            // Should a handler unwind, the next poll has to find what is there: the header of this cell has
            // changed for good, while the word that was watched may by then hold anything.
            self.watched[peer][1] = ring::whole_cell(self.watched[peer][1]);
            let quota = (budget - done).min(QUANTUM);
            let (count, outcome) = self.take_requests(peer, quota, sink);
            done += count;
            if let Err(Broken) = outcome {
                self.break_with(peer);
            }
            let Answering { requests, pace, .. } = &mut self.answering[peer];
            self.watched[peer][1] = requests.watch();
            if pace.counts(count) {
                self.look_at_pace(peer, count < quota);
            }
        }
        done
    }

    /// Serves some peers in turn until the budget is used up; the next poll starts behind the last of them.
    #[inline(always)]
    pub(super) fn sweep<S: Sink>(&mut self, peers: Range<usize>, budget: usize, sink: &mut S) -> usize {
        let (mut done, mut next) = (0, peers.start);
        while done < budget {
            let Some(ahead) = first_arrival(&self.words, &self.watched[next..peers.end]) else {
                next = peers.end;
                break;
            };
            done += self.serve(next + ahead, budget - done, sink);
            next += ahead + 1;
        }
        self.first = if next == self.watched.len() { 0 } else { next };
        done
    }

    /// [`Transport::may_deliver`], where one poll looks at some of the peers only: the next poll begins with the
    /// first of them from which something has arrived, or behind them all.
    pub(super) fn may_deliver_of_many(&mut self) -> bool {
        let (start, peers) = (self.first, self.watched.len());
        let end = start + GLANCE;
        let ahead = first_arrival(&self.words, &self.watched[start..end.min(peers)]);
        let found = ahead.map(|ahead| start + ahead).or_else(|| {
            let wrapped = end.checked_sub(peers)?;
            first_arrival(&self.words, &self.watched[..wrapped])
        });
        (self.first, self.found) = (found.unwrap_or(end % peers), found.is_some());
        self.found
    }
}

/// The first peer from which something has arrived.
#[inline(always)]
pub(super) fn first_arrival(words: &[AtomicU64], watched: &[[u64; 2]]) -> Option<usize> {
    watched.iter().position(|[reply, request]| arrived(words, *reply) | arrived(words, *request))
}

/// Hands a request to the sink together with its way back.
#[inline(always)]
fn answer<S: Sink>(
    sink: &mut S,
    frame: Frame,
    args: &Words,
    payload: Payload<'_>,
    replies: &mut ReplyOut,
    context: ReplyContext<'_>,
    bare: &mut u64,
) {
    let Kind::Message(category) = frame.kind else {
        return sink.control(context.to, args, payload);
    };
    let arrival = Arrival::new(context.to, category, frame.handler, args, payload);
    if frame.reply.is_none() {
        return sink.request(arrival, &mut NullReplyPath::one_way(context.to));
    }
    sink.request(arrival, &mut ShmReplyPath::new(replies, context, frame.reply, bare));
}
