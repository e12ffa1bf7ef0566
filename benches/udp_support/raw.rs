//! The baselines: two threads and two UDP sockets on loopback, with nothing in between.

use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};
use socket2::SockRef;
use std::hint::spin_loop;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a datagram of the ping-pong and of the packet stream.
const SMALL: usize = 32;
/// Bytes of a segment of the large stream, and how many go in one call.
const SEGMENT: usize = 1400;
const ROW: usize = 45 * SEGMENT;
/// Bytes on their way at most in the large stream, so that the receiver's buffer holds them.
const AHEAD: usize = 1 << 20;

fn pair(blocking: bool) -> [(UdpSocket, SocketAddr); 2] {
    let open = || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has free ports");
        socket.set_nonblocking(!blocking).expect("a socket can be non-blocking");
        SockRef::from(&socket).set_recv_buffer_size(4 << 20).expect("a buffer size can be asked for");
        let address = socket.local_addr().expect("a bound socket has an address");
        (socket, address)
    };
    let [(a, at_a), (b, at_b)] = [open(), open()];
    [(a, at_b), (b, at_a)]
}

/// Receives, asking again and again if the socket does not block.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> usize {
    loop {
        if let Ok((len, _)) = socket.recv_from(buffer) {
            return len;
        }
    }
}

/// Runs one side on this thread and the other beside it; returns this side's time, from when both were ready.
fn beside(other: impl FnOnce() + Send, this: impl FnOnce()) -> Duration {
    let ready = Barrier::new(2);
    thread::scope(|scope| {
        let (other, waiting) = (other, &ready);
        scope.spawn(move || {
            waiting.wait();
            other();
        });
        ready.wait();
        let began = Instant::now();
        this();
        began.elapsed()
    })
}

/// Round trips of a small datagram.
pub(crate) fn ping_pong(blocking: bool, iterations: u64) -> Duration {
    let [(a, to_b), (b, to_a)] = pair(blocking);
    let echo = move || {
        let mut buffer = [0; 2048];
        for _ in 0..iterations {
            let len = receive(&b, &mut buffer);
            b.send_to(&buffer[..len], to_a).expect("the other side is there");
        }
    };
    beside(echo, move || {
        let mut buffer = [0; 2048];
        for _ in 0..iterations {
            a.send_to(&[1; SMALL], to_b).expect("the other side is there");
            receive(&a, &mut buffer);
        }
    })
}

/// Small datagrams, one call each, to somebody who takes them out as fast as possible.
pub(crate) fn packets(iterations: u64) -> Duration {
    let [(a, to_b), (b, _)] = pair(false);
    let done = AtomicUsize::new(0);
    let drain = || {
        let mut buffer = [0; 2048];
        while done.load(Relaxed) == 0 {
            let _ = b.recv_from(&mut buffer);
        }
    };
    beside(drain, || {
        for _ in 0..iterations {
            a.send_to(&[1; SMALL], to_b).expect("the other side is there");
        }
        done.store(1, Relaxed);
    })
}

/// Rows of segments, one call per row (GSO), taken out in rows (GRO); an iteration is a mebibyte.
pub(crate) fn stream(iterations: u64) -> Duration {
    let [(a, to_b), (b, _)] = pair(false);
    let state = UdpSocketState::new(UdpSockRef::from(&a)).expect("a socket can be set up");
    UdpSocketState::new(UdpSockRef::from(&b)).expect("a socket can be set up");
    let rows = (iterations as usize * (1 << 20)).div_ceil(ROW);
    let (arrived, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let drain = || {
        let mut buffer = vec![0; 1 << 16];
        while done.load(Relaxed) == 0 {
            if let Ok(len) = b.recv(&mut buffer) {
                arrived.fetch_add(len, Relaxed);
            }
        }
    };
    beside(drain, || {
        let row = vec![1; ROW];
        let transmit =
            Transmit { destination: to_b, ecn: None, contents: &row, segment_size: Some(SEGMENT), src_ip: None };
        let limit = Instant::now() + Duration::from_secs(60);
        for count in 0..rows {
            while count * ROW > arrived.load(Relaxed) + AHEAD {
                assert!(Instant::now() < limit, "the receiver's buffer holds {AHEAD} bytes");
                spin_loop();
            }
            state.try_send(UdpSockRef::from(&a), &transmit).expect("loopback takes rows");
        }
        while arrived.load(Relaxed) < rows * ROW {
            assert!(Instant::now() < limit, "the receiver's buffer holds {AHEAD} bytes");
            spin_loop();
        }
        done.store(1, Relaxed);
    })
}
