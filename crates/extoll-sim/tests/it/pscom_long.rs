//! Active Long messages there and back over both plugins, of all sizes at which something changes: whatever they
//! bring is what was sent, and nobody waits for ever. Messages of many packets do not end within a poll.

use am_core::transport::{
    Arrival, Body, Departure, Membership, ReplyBound, ReplyPath, RequestHeader, Sink, Transport, Waiting,
};
use am_core::{Address, Endpoint, Handlers, Payload, Peer, Rank, Span, Token, Words};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::pscom::{self, Plugin, PscomConfig};
use fabric_sim::Topology;

const ROUNDS: u8 = 3;

/// Every byte tells its place, its round and its direction.
fn pattern(bytes: usize, round: u8, back: bool) -> Vec<u8> {
    let first = round.wrapping_mul(2) + u8::from(back);
    (0..bytes).map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7] ^ first).collect()
}

/// Sends Long messages of a size there and back.
fn there_and_back(config: &PscomConfig, machine: &ExtollConfig, bytes: usize) {
    let mut config = config.clone();
    config.am.segment = config.am.segment.max(bytes as u64);
    let report = pscom::run(machine, &config, move |transport| {
        let mut handlers = Handlers::<u8>::new();
        let back = handlers.reply("back", move |done: &mut u8, _: Address, round: u32, payload: Payload<'_>| {
            assert_eq!(payload.to_vec(), pattern(bytes, round as u8, true), "the way back of round {round}");
            *done += 1;
        });
        let back = back.unwrap();
        let there = move |_: &mut u8, token: Token<'_>, round: u32, payload: Payload<'_>| {
            assert_eq!(payload.to_vec(), pattern(bytes, round as u8, false), "the way there of round {round}");
            token.reply_long(back, round, &pattern(bytes, round as u8, true), 0).unwrap();
        };
        let there = handlers.request("there", there).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
        if endpoint.rank() == Rank(0) {
            for round in 0..ROUNDS {
                endpoint.request_long(Rank(1), there, round.into(), &pattern(bytes, round, false), 0).unwrap();
                endpoint.wait_until(|done| *done == round + 1).unwrap();
            }
        }
        endpoint.finish().unwrap()
    });
    let report = report.unwrap_or_else(|error| panic!("{bytes} bytes: {error}"));
    assert_eq!(report.results[0], Some(ROUNDS), "{bytes} bytes");
}

/// Around the chunk of a packet, the rendezvous, the slot of a ring, the window of a channel and the steps of a
/// poll.
const SIZES: [usize; 18] = [
    0,
    1,
    63,
    64,
    1023,
    1024,
    4067,
    4068,
    4088,
    4095,
    4096,
    4097,
    16_320,
    65_536,
    65_537,
    262_144,
    262_145,
    1 << 20,
];

#[test]
fn over_velo() {
    SIZES.iter().for_each(|bytes| there_and_back(&PscomConfig::with(Plugin::Velo), &ExtollConfig::pair(), *bytes));
}

#[test]
fn over_rma() {
    SIZES.iter().for_each(|bytes| there_and_back(&PscomConfig::with(Plugin::Rma), &ExtollConfig::pair(), *bytes));
}

/// Everything through the ring, of two sizes.
#[test]
fn over_rma_without_rendezvous() {
    let mut config = PscomConfig { rendezvous: 0, ..PscomConfig::with(Plugin::Rma) };
    for buffer in [4096, 128] {
        config.ring.buffer_bytes = buffer;
        SIZES.iter().for_each(|bytes| there_and_back(&config, &ExtollConfig::pair(), *bytes));
    }
}

/// Counts what comes, and answers nothing.
#[derive(Default)]
struct Count {
    requests: u32,
}

impl Sink for Count {
    fn request(&mut self, _: Arrival<'_>, _: &mut dyn ReplyPath) {
        self.requests += 1;
    }

    fn reply(&mut self, _: Arrival<'_>) {}

    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
}

/// As many fruitless polls as the transport says tell that nothing is there: not so while a poll has only had
/// enough of the many packets of messages that are not complete yet.
#[test]
fn fruitless_polls_have_seen_all_that_is_there() {
    const SENDERS: u32 = 12;
    for bytes in [1000, 13_000] {
        let machine = ExtollConfig::new(1 + SENDERS, Topology::Crossbar { nodes: 1 + SENDERS });
        let report = pscom::run(&machine, &PscomConfig::with(Plugin::Velo), move |mut transport| {
            let head = RequestHeader::new(0, ReplyBound::None);
            if transport.local_peer() != Peer(0) {
                transport.send(Peer(0), head, &Words::EMPTY, Body::Place(&pattern(bytes, 0, false), 0)).unwrap();
                transport.flush();
                transport.depart(Departure::Finished);
                return 0;
            }
            // By then all packets of all senders are in the mailbox.
            transport.charge(Span(10_000_000_000));
            let (mut sink, mut fruitless) = (Count::default(), 0);
            while fruitless < transport.polls_per_sweep() {
                fruitless = if transport.poll(100, &mut sink) == 0 { fruitless + 1 } else { 0 };
            }
            transport.depart(Departure::Finished);
            sink.requests
        });
        assert_eq!(report.unwrap().results[0], Some(SENDERS), "{bytes} bytes");
    }
}
