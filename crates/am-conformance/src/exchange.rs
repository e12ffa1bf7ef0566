//! Two ranks that send each other every kind of message, and how often that allocates: what the tests of
//! allocation of all transports have in common.

use crate::counting::allocations;
use am_core::{Address, Endpoint, Handlers, Payload, PayloadWriter, Rank, Request, Span, Token, Transport};

/// What a rank of an [`Exchange`] has heard.
#[derive(Debug)]
pub struct Heard {
    /// Answers so far.
    pub answers: u64,
    /// The value of the last answer, or of the last request that is not answered.
    pub value: u64,
    /// Where payloads are copied to.
    buffer: Vec<u8>,
}

/// One of two ranks that send each other every kind of message. Requests are answered by replies of their own
/// kind, with the payload and the value that came. Methods panic when a call on the endpoint fails.
#[derive(Debug)]
pub struct Exchange<T: Transport> {
    endpoint: Endpoint<T, Heard>,
    short: Request<u64>,
    medium: Request<u64>,
    long: Request<u64>,
    silent: Request<u64>,
    to: Rank,
    payload: Vec<u8>,
    asked: u64,
}

impl<T: Transport> Exchange<T> {
    /// Attaches one of two ranks, whose segments and payloads are of at most 64 KiB. Waits fail after a minute.
    ///
    /// # Panics
    /// If it cannot.
    pub fn attach(transport: T) -> Self {
        let mut handlers = Handlers::<Heard>::new();
        let answer = handlers
            .reply("answer", |heard: &mut Heard, _: Address, value: u64, payload: Payload<'_>| {
                heard.answers += 1;
                heard.value = value;
                payload.copy_to(&mut heard.buffer);
            })
            .expect("the table has room");
        let short = handlers
            .request("short", move |_: &mut Heard, token: Token<'_>, value: u64, _: Payload<'_>| {
                token.reply(answer, value).expect("the requester is there");
            })
            .expect("the table has room");
        let medium = handlers
            .request("medium", move |heard: &mut Heard, token: Token<'_>, value: u64, payload: Payload<'_>| {
                let len = payload.copy_to(&mut heard.buffer).min(token.max_reply());
                token.reply_medium(answer, value, &heard.buffer[..len]).expect("the requester is there");
            })
            .expect("the table has room");
        let long = handlers
            .request("long", move |heard: &mut Heard, token: Token<'_>, value: u64, payload: Payload<'_>| {
                let len = payload.copy_to(&mut heard.buffer);
                token.reply_long(answer, value, &heard.buffer[..len], 0).expect("the requester is there");
            })
            .expect("the table has room");
        let silent = handlers
            .request("silent", |heard: &mut Heard, _: Token<'_>, value: u64, _: Payload<'_>| heard.value = value)
            .expect("the table has room");
        let heard = Heard { answers: 0, value: 0, buffer: vec![0; 1 << 16] };
        let patience = Some(Span::from_secs(60));
        let endpoint =
            Endpoint::builder(transport).timeout(patience).attach(handlers, heard).expect("two ranks attach");
        let to = Rank(1 - endpoint.rank().0);
        Self { endpoint, short, medium, long, silent, to, payload: vec![7; 1 << 16], asked: 0 }
    }

    /// The endpoint.
    pub fn endpoint(&mut self) -> &mut Endpoint<T, Heard> {
        &mut self.endpoint
    }

    /// The other rank.
    pub fn other(&self) -> Rank {
        self.to
    }

    /// Sends a request without a payload.
    pub fn short(&mut self, value: u64) {
        self.endpoint.request(self.to, self.short, value).expect("a Short request can be sent");
        self.asked += 1;
    }

    /// Sends a request that is not answered.
    pub fn silent(&mut self, value: u64) {
        self.endpoint.request(self.to, self.silent, value).expect("a Short request can be sent");
    }

    /// Sends a request with a payload of so many bytes.
    pub fn medium(&mut self, value: u64, bytes: usize) {
        let payload = &self.payload[..bytes];
        self.endpoint.request_medium(self.to, self.medium, value, payload).expect("a Medium request can be sent");
        self.asked += 1;
    }

    /// Sends a request with a payload of so many bytes, at least 8, that is written where it is sent from.
    pub fn reserved(&mut self, value: u64, bytes: usize) {
        let slot = self.endpoint.reserve_medium(self.to, self.medium, value, bytes);
        let mut slot = slot.expect("a Medium request can be reserved");
        slot.write_u64(0, value);
        slot.commit();
        self.asked += 1;
    }

    /// Sends a request with a payload of so many bytes for the other rank's segment.
    pub fn long(&mut self, value: u64, bytes: usize) {
        let (payload, at) = (&self.payload[..bytes], 8 * (value % 100));
        self.endpoint.request_long(self.to, self.long, value, payload, at).expect("a Long request can be sent");
        self.asked += 1;
    }

    /// Sends one of each, with payloads of so many bytes, at least 8.
    pub fn ask(&mut self, value: u64, bytes: usize) {
        self.short(value);
        self.silent(value);
        self.medium(value, bytes);
        self.reserved(value, bytes);
        self.long(value, bytes);
    }

    /// Waits until at most so many answers are missing.
    pub fn settle(&mut self, missing: u64) {
        let asked = self.asked;
        self.endpoint.wait_until(|heard| heard.answers + missing >= asked).expect("answers come");
    }

    /// Plays a round so many times to warm up, and as many times again; returns how often this thread has asked
    /// for memory in the second half. In simulations that is all ranks together.
    pub fn allocations(mut self, rounds: u64, mut play: impl FnMut(&mut Self, u64)) -> u64 {
        (0..rounds).for_each(|round| play(&mut self, round));
        let before = allocations();
        (rounds..2 * rounds).for_each(|round| play(&mut self, round));
        let allocated = allocations() - before;
        self.finish();
        allocated
    }

    /// Leaves the job in order.
    pub fn finish(self) {
        self.endpoint.finish().expect("two ranks finish");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use am_core::loopback::{LoopbackConfig, network};

    #[test]
    fn every_request_is_answered_but_the_silent_one() {
        let ranks = network(2, LoopbackConfig::default());
        std::thread::scope(|scope| {
            for transport in ranks {
                scope.spawn(move || {
                    let mut talk = Exchange::attach(transport);
                    (0..20).for_each(|value| talk.ask(value, 100));
                    talk.settle(0);
                    assert_eq!(talk.endpoint().state().answers, 80);
                    talk.endpoint().barrier().unwrap();
                    talk.finish();
                });
            }
        });
    }
}
