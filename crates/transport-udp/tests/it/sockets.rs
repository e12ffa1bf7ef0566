//! Real sockets: work goes on while the program does not poll, lossy ways, long streams both ways, and what bad
//! set-ups get.

use crate::patience::patiently;
use am_core::transport::{Notify, Waiting};
use am_core::{
    Address, Endpoint, Handlers, LossCause, Payload, PollError, Rank, Request, SendError, Shape, Span, WaitError,
};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use transport_udp::proto::Protection;
use transport_udp::sim::SplitMix64;
use transport_udp::{LocalJob, LocalOptions, Peers, Udp, UdpConfig, UdpError, bind};

const SECRET: [u8; 16] = [9; 16];
const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const SEGMENT: u64 = 1 << 20;
/// First byte of a Hello.
const HELLO: u8 = 0xA0;

/// Sits between two ranks and loses datagrams.
pub(crate) struct Relay {
    pub(crate) permille: Arc<AtomicU32>,
    /// The last Hello of every way, whether lost or not.
    hellos: Arc<Mutex<[Vec<u8>; 2]>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u32>>,
}

impl Relay {
    /// Takes what is sent to one of its sockets and sends it to the address beside it, from the other socket.
    fn start(ways: [(UdpSocket, SocketAddr); 2], permille: u32) -> Self {
        let (permille, stop) = (Arc::new(AtomicU32::new(permille)), Arc::new(AtomicBool::new(false)));
        let hellos = Arc::<Mutex<[Vec<u8>; 2]>>::default();
        let threads = ways.into_iter().enumerate().map(|(seed, (socket, to))| {
            let (permille, stop, hellos) = (Arc::clone(&permille), Arc::clone(&stop), Arc::clone(&hellos));
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            thread::spawn(move || {
                let (mut rng, mut buffer, mut lost) = (SplitMix64(seed as u64), vec![0; 1 << 16], 0);
                while !stop.load(Relaxed) {
                    let Ok(len) = socket.recv(&mut buffer) else { continue };
                    if buffer[0] == HELLO {
                        hellos.lock().unwrap()[seed] = buffer[..len].to_vec();
                    }
                    if rng.chance(permille.load(Relaxed)) {
                        lost += 1;
                    } else {
                        // A rank that has left takes nothing; that is no matter of the relay.
                        let _ = socket.send_to(&buffer[..len], to);
                    }
                }
                lost
            })
        });
        Self { threads: threads.collect(), permille, hellos, stop }
    }

    pub(crate) fn stop(self) -> u32 {
        self.stop.store(true, Relaxed);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    }
}

/// Two ranks that see each other through a relay.
fn through_a_relay(permille: u32, change: impl Fn(&mut UdpConfig)) -> ([Udp; 2], Relay) {
    joined_through_a_relay(permille, change, Udp::join)
}

/// [`through_a_relay`] in a way of one's own.
pub(crate) fn joined_through_a_relay(
    permille: u32,
    change: impl Fn(&mut UdpConfig),
    join: impl Fn(&UdpConfig, &Arc<Peers>, Address, UdpSocket) -> Result<Udp, UdpError>,
) -> ([Udp; 2], Relay) {
    let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let [a, b, to_a, to_b] = [(); 4].map(|()| bind(local).unwrap());
    let at = |socket: &UdpSocket| socket.local_addr().unwrap();
    let table =
        |first, second| Arc::new(Peers::new(Shape::new(2), vec![first, second], vec![SEGMENT; 2]).unwrap());
    let (table_a, table_b) = (table(at(&a), at(&to_b)), table(at(&to_a), at(&b)));
    let relay = Relay::start([(to_a, at(&a)), (to_b, at(&b))], permille);
    let mut config = UdpConfig::new(SECRET);
    // Many small datagrams, so that there is something to lose.
    config.datagram_limit = Some(1200);
    config.protocol.silence = Span::from_secs(30);
    change(&mut config);
    let join = |table, rank, socket| join(&config, table, Address::new(Rank(rank), 0), socket).unwrap();
    ([join(&table_a, 0, a), join(&table_b, 1, b)], relay)
}

#[derive(Default)]
struct State {
    count: u64,
    sum: u64,
}

fn attach(transport: Udp) -> (Endpoint<Udp, State>, Request<u64>) {
    let mut handlers = Handlers::<State>::new();
    let note = handlers
        .one_way("note", |state: &mut State, _: Address, number: u64, payload: Payload<'_>| {
            let bytes = payload.to_vec();
            assert!(bytes.iter().all(|byte| *byte == number as u8), "the payload of message {number}");
            state.count += 1;
            state.sum += number;
        })
        .unwrap();
    let patience = Some(LIMIT.into());
    (Endpoint::builder(transport).timeout(patience).attach(handlers, State::default()).unwrap(), note)
}

/// Rank 0 sends 200 messages over a way that loses every third datagram and then does not touch its endpoint; rank
/// 1 gets them all. Returns how many datagrams the way lost.
#[test]
fn losses_are_resent_while_the_program_does_not_poll() {
    let ([a, b], relay) = through_a_relay(0, |_| {});
    let (tell, told) = mpsc::channel();
    let other = thread::spawn(move || {
        let (mut endpoint, _) = attach(b);
        endpoint.barrier().unwrap();
        endpoint.wait_until(|state| state.count == 200).unwrap();
        assert_eq!(endpoint.state().sum, (0..200).sum::<u64>());
        tell.send(()).unwrap();
        endpoint.finish().unwrap();
    });
    let (mut endpoint, note) = attach(a);
    endpoint.barrier().unwrap();
    relay.permille.store(333, Relaxed);
    for number in 0..200 {
        endpoint.request_medium(Rank(1), note, number, &[number as u8; 1000]).unwrap();
    }
    // Not even a flush. This thread now does something else.
    told.recv_timeout(LIMIT).expect("the helper sends until everything has arrived");
    let counters = endpoint.transport().machine(|machine| machine.counters().clone());
    assert!(counters.lost > 10, "{counters:?}");
    relay.permille.store(0, Relaxed);
    endpoint.finish().unwrap();
    other.join().unwrap();
    assert!(relay.stop() > 10);
}

/// Rank 1 takes part in nothing after it has attached; its helper acknowledges, so rank 0 loses nobody and is
/// done.
#[test]
fn a_rank_that_computes_is_alive() {
    patiently(Duration::from_secs(1), |silence| {
        let ([a, b], relay) = through_a_relay(0, |config| config.protocol.silence = silence.into());
        let (tell, told) = mpsc::channel::<()>();
        let other = thread::spawn(move || {
            let (mut endpoint, _) = attach(b);
            endpoint.barrier().unwrap();
            let _ = told.recv_timeout(LIMIT.max(10 * silence));
            endpoint.wait_until(|state| state.count == 50).unwrap();
            endpoint.finish().unwrap();
        });
        let (mut endpoint, note) = attach(a);
        endpoint.barrier().unwrap();
        for number in 0..50 {
            endpoint.request_medium(Rank(1), note, number, &[number as u8; 1000]).unwrap();
        }
        // Three times the permitted silence.
        let _ = endpoint.wait_until_for((3 * silence).into(), |_| false);
        assert!(endpoint.transport().machine(|machine| machine.settled()), "acknowledged without the program");
        assert_eq!(endpoint.lost(), []);
        drop(tell);
        endpoint.finish().unwrap();
        other.join().unwrap();
        relay.stop();
    });
}

/// Rank 1 falls silent, and somebody repeats the Hello by which its session was opened.
#[test]
fn a_recorded_hello_keeps_no_rank_alive() {
    let ([a, b], relay) = through_a_relay(0, |config| {
        (config.protocol.silence, config.linger) = (Span::from_secs(1), Duration::from_millis(100));
    });
    let (at, stop) = (a.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
    let (tell, told) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel::<()>();
    let other = thread::spawn(move || {
        let (mut endpoint, _) = attach(b);
        endpoint.barrier().unwrap();
        ready.send(()).unwrap();
        let _ = told.recv_timeout(LIMIT);
    });
    let (mut endpoint, _) = attach(a);
    endpoint.barrier().unwrap();
    is_ready.recv_timeout(LIMIT).unwrap();
    relay.permille.store(1000, Relaxed);
    let hello = relay.hellos.lock().unwrap()[0].clone();
    assert!(!hello.is_empty());
    let stranger = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            while !stop.load(Relaxed) {
                socket.send_to(&hello, at).unwrap();
                thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let lost = endpoint.wait_until_for(LIMIT.into(), |_| false);
    stop.store(true, Relaxed);
    let expected =
        matches!(lost, Err(WaitError::Poll(PollError::PeerLost { rank: Rank(1), cause: LossCause::Silent })));
    assert!(expected, "{lost:?}");
    drop((tell, endpoint));
    stranger.join().unwrap();
    other.join().unwrap();
    relay.stop();
}

/// A handler holds up everything else at its endpoint, but its peers learn that it lives.
#[test]
fn a_handler_that_runs_for_long_is_not_taken_for_death() {
    patiently(Duration::from_secs(1), |silence| {
        let mut config = UdpConfig::new(SECRET);
        config.protocol.silence = silence.into();
        let job = LocalJob::with(2, LocalOptions::default(), config).unwrap();
        thread::scope(|scope| {
            (0..2).for_each(|rank| {
                drop(scope.spawn({
                    let job = &job;
                    move || nap(rank, job, 5 * silence / 2)
                }))
            })
        });
    });
}

/// Rank 0 has rank 1 run a handler for so long.
fn nap(rank: u32, job: &LocalJob, span: Duration) {
    let mut handlers = Handlers::<u64>::new();
    let nap = handlers.one_way("nap", move |naps: &mut u64, _: Address, (): (), _: Payload<'_>| {
        thread::sleep(span);
        *naps += 1;
    });
    let nap = nap.unwrap();
    let mut endpoint = Endpoint::attach(job.join(rank).unwrap(), handlers, 0).unwrap();
    if rank == 0 {
        endpoint.request(Rank(1), nap, ()).unwrap();
    } else {
        endpoint.wait_until(|naps| *naps == 1).unwrap();
    }
    endpoint.finish().unwrap();
}

/// Bytes that tell where they belong.
fn pattern(rank: u32, len: usize) -> Vec<u8> {
    (0..len as u64 / 8).flat_map(|word| (word << 8 | u64::from(rank)).to_le_bytes()).collect()
}

/// Longer than what is queued, so that much is sent from where it is, also again; in small datagrams and in large
/// ones.
#[test]
fn long_streams_cross() {
    let protections = [Protection::Encrypted, Protection::PlainText, Protection::Unauthenticated];
    for (protection, limit, loss) in protections
        .into_iter()
        .flat_map(|each| [(each, 1452, None), (each, 65_487, None), (each, 65_487, Some((50, 3)))])
    {
        let mut config = UdpConfig::new([]);
        (config.protocol.bulk_queue, config.protocol.protection) = (64 << 10, protection);
        (config.datagram_limit, config.loss) = (Some(limit), loss);
        let len = 6 << 20;
        let options = LocalOptions::default().segment_bytes(len);
        let job = LocalJob::with(2, options, config).unwrap();
        thread::scope(|scope| {
            for rank in 0..2 {
                let job = &job;
                scope.spawn(move || {
                    let mut handlers = Handlers::<u32>::new();
                    let whole = handlers
                        .one_way("whole", |count: &mut u32, from: Address, (): (), payload: Payload<'_>| {
                            assert!(payload.to_vec() == pattern(from.rank.0, payload.len()));
                            *count += 1;
                        })
                        .unwrap();
                    let transport = job.join(rank).unwrap();
                    let mut endpoint =
                        Endpoint::builder(transport).timeout(Some(LIMIT.into())).attach(handlers, 0).unwrap();
                    endpoint.barrier().unwrap();
                    for _ in 0..2 {
                        endpoint.request_long(Rank(1 - rank), whole, (), &pattern(rank, len), 0).unwrap();
                    }
                    endpoint.wait_until(|count| *count == 2).unwrap();
                    endpoint.finish().unwrap();
                });
            }
        });
    }
}

#[test]
fn a_long_stream_to_a_vanished_rank_ends() {
    let ([a, b], relay) = through_a_relay(0, |config| {
        config.protocol.silence = Span::from_secs(1);
        config.protocol.bulk_queue = 64 << 10;
        config.linger = Duration::from_millis(100);
    });
    let (tell, told) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel::<()>();
    let other = thread::spawn(move || {
        let (mut endpoint, _) = attach(b);
        endpoint.barrier().unwrap();
        ready.send(()).unwrap();
        let _ = told.recv_timeout(LIMIT);
    });
    let (mut endpoint, note) = attach(a);
    endpoint.barrier().unwrap();
    // What gets the other one out of the barrier must not be lost.
    is_ready.recv_timeout(LIMIT).unwrap();
    relay.permille.store(1000, Relaxed);
    let sent = endpoint.request_long(Rank(1), note, 0, &[0; 1 << 20], 0);
    assert!(
        matches!(&sent, Err(SendError::Wait(WaitError::Poll(PollError::PeerLost { rank: Rank(1), .. })))),
        "{sent:?}"
    );
    drop((tell, endpoint));
    other.join().unwrap();
    relay.stop();
}

#[test]
fn bad_set_ups_are_told() {
    let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let (socket, other) = (bind(local).unwrap(), bind(local).unwrap());
    let (at, elsewhere) = (socket.local_addr().unwrap(), other.local_addr().unwrap());
    assert!(matches!(bind(at), Err(UdpError::Bind { address, .. }) if address == at));
    assert!(bind(at).unwrap_err().to_string().contains("is the port in use"));
    let table = |addresses: &[SocketAddr]| {
        let shape = Shape::new(addresses.len() as u32);
        Arc::new(Peers::new(shape, addresses.to_vec(), vec![64; addresses.len()]).unwrap())
    };
    let join = |secret: &[u8], table: &Arc<Peers>, rank| {
        let socket = socket.try_clone().unwrap();
        Udp::join(&UdpConfig::new(secret), table, Address::new(Rank(rank), 0), socket).unwrap_err().to_string()
    };
    let good = table(&[at]);
    assert_eq!(join(&[1; 5], &good, 0), "the job's secret has 5 bytes, but needs at least 16");
    assert_eq!(join(&SECRET, &good, 3), "endpoint 3 is not in a job of 1 ranks with 1 endpoint(s) each");
    let wrong = join(&SECRET, &table(&[elsewhere]), 0);
    assert_eq!(wrong, format!("endpoint 0 is bound to {at}, but the job was told {elsewhere}"));
    let v6 = join(&SECRET, &table(&[at, "[::1]:9".parse().unwrap()]), 0);
    assert!(v6.contains("rank 1 is at [::1]:9, which the socket bound to"), "{v6}");
}

/// Real sockets that lose datagrams of the endpoints' own choice: everything arrives, once and whole, at every
/// rate.
#[test]
fn lossy_endpoints_lose_no_message() {
    for permille in [10, 100, 300] {
        let mut config = UdpConfig::new([]);
        config.loss = Some((permille, 5));
        // More datagrams than loopback needs, so that there is something to lose.
        config.datagram_limit = Some(1452);
        let options = LocalOptions::default().segment_bytes(SEGMENT as usize);
        let job = LocalJob::with(2, options, config).unwrap();
        thread::scope(|scope| {
            for rank in 0..2 {
                let job = &job;
                scope.spawn(move || {
                    let (mut endpoint, note) = attach(job.join(rank).unwrap());
                    endpoint.barrier().unwrap();
                    for number in 0..200 {
                        endpoint.request_medium(Rank(1 - rank), note, number, &[number as u8; 500]).unwrap();
                    }
                    endpoint.request_long(Rank(1 - rank), note, 200, &[200; SEGMENT as usize], 0).unwrap();
                    endpoint.wait_until(|state| state.count == 201).unwrap();
                    assert_eq!(endpoint.state().sum, (0..=200).sum::<u64>());
                    let lost = endpoint.transport().machine(|machine| machine.counters().lost);
                    assert!(lost > 0, "{permille} of 1000 were to be lost");
                    endpoint.finish().unwrap();
                });
            }
        });
    }
}

/// Ranks that never stop polling need no helper; who leaves its endpoint to one is told that there is none.
#[test]
fn ranks_that_always_poll_need_no_helper() {
    let mut config = UdpConfig::new([]);
    config.helper = false;
    let job = LocalJob::with(2, LocalOptions::default(), config).unwrap();
    thread::scope(|scope| {
        for rank in 0..2 {
            let job = &job;
            scope.spawn(move || {
                let mut transport = job.join(rank).unwrap();
                assert_eq!(transport.notify(Waker::noop()), Notify::Never);
                let (mut endpoint, note) = attach(transport);
                for number in 0..100 {
                    endpoint.request_medium(Rank(1 - rank), note, number, &[number as u8; 3000]).unwrap();
                }
                endpoint.wait_until(|state| state.count == 100).unwrap();
                endpoint.finish().unwrap();
            });
        }
    });
}
