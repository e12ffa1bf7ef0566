//! The socket: opening it, rows of datagrams out, rows of datagrams in. Knows nothing of the protocol.

use super::peers::is_loopback;
use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};
use socket2::{Domain, MsgHdr, Protocol, SockRef, Socket, Type};
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

/// Bytes that the system hands over at once at most.
pub(super) const LARGEST: usize = 65536;
/// So many pieces in one visit are better taken in whole rows.
const MANY: usize = 8;
/// So many visits that bring a datagram or none end that.
const THIN: u32 = 200;
/// Bytes of a row of datagrams at most: what one UDP datagram could be.
const ROW: usize = 65_000;

/// Opens and binds a socket for one endpoint; an IPv6 socket at the unspecified address takes IPv4 as well.
pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// So many datagrams in a row to one neighbour are worth a socket that knows no other.
const STREAK: u32 = 64;

/// A second socket for sending to the neighbour on this host that most is sent to at present. The system finds the
/// way to it once and not for every datagram, which takes 0.1 us off each. Nothing is received there: peers do not
/// care which port a datagram comes from, only firewalls between hosts might.
#[derive(Debug)]
struct Direct {
    socket: Option<UdpSocket>,
    /// The last destination, how often in a row, and whether the socket is connected to it.
    to: SocketAddr,
    streak: u32,
    connected: bool,
}

impl Direct {
    fn new() -> Self {
        Self { socket: None, to: (Ipv4Addr::UNSPECIFIED, 0).into(), streak: 0, connected: false }
    }

    /// The socket that is connected to a destination, if there is one.
    #[inline]
    fn way_to(&mut self, to: SocketAddr) -> Option<&UdpSocket> {
        if self.to != to {
            (self.to, self.streak, self.connected) = (to, 0, false);
        }
        if !self.connected {
            self.streak = self.streak.saturating_add(1);
            if self.streak != STREAK || !is_loopback(to.ip()) || self.connect(to).is_err() {
                return None;
            }
        }
        self.socket.as_ref()
    }

    /// Sends a datagram if that can be done here. Whatever is wrong, the other way may work, or tells better what
    /// it is.
    #[inline]
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        self.way_to(to).is_some_and(|socket| socket.send(datagram).is_ok())
    }

    #[cold]
    fn connect(&mut self, to: SocketAddr) -> io::Result<()> {
        // A socket keeps its family.
        let family = |socket: &UdpSocket| socket.local_addr().is_ok_and(|at| at.is_ipv6() == to.is_ipv6());
        let socket = match self.socket.take().filter(family) {
            Some(socket) => socket,
            None => {
                let any: IpAddr = if to.is_ipv6() { to.ip() } else { Ipv4Addr::LOCALHOST.into() };
                UdpSocket::bind((any, 0)).and_then(|socket| socket.set_nonblocking(true).map(|()| socket))?
            }
        };
        socket.connect(to)?;
        self.socket = Some(socket);
        self.connected = true;
        Ok(())
    }
}

/// One endpoint's socket and how it is used best.
#[derive(Debug)]
pub(super) struct Wire {
    socket: Arc<UdpSocket>,
    direct: Direct,
    state: UdpSocketState,
    /// Datagrams of a row at most.
    row: usize,
    /// Whether rows may be taken in whole, whether they are, and how many visits in a row brought hardly anything.
    may_coalesce: bool,
    coalesces: bool,
    thin: u32,
    pub(super) ipv6: bool,
}

/// What became of a row that was to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The system has it, or it is lost, which is the protocol's business.
    Gone,
    /// The system has no room for it at the moment.
    Blocked,
    /// The system refused it for this reason, which may be worth a report; it is lost.
    Failed,
}

impl Wire {
    /// Prepares a bound socket.
    pub(super) fn new(socket: UdpSocket, buffer: usize, offload: bool) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let state = match is_loopback(local.ip()) {
            true => UdpSocketState::new(UdpSockRef::from(&twin(local)?))?,
            false => UdpSocketState::new(UdpSockRef::from(&socket))?,
        };
        let sock = SockRef::from(&socket);
        sock.set_nonblocking(true)?;
        // The system may give less than was asked for; the window finds out what there is.
        sock.set_recv_buffer_size(buffer)?;
        sock.set_send_buffer_size(buffer)?;
        let ipv6 = local.is_ipv6();
        quiet_down(&socket, ipv6)?;
        let row = if offload { state.max_gso_segments() } else { 1 };
        let socket = Arc::new(socket);
        Ok(Self {
            socket,
            direct: Direct::new(),
            state,
            row,
            may_coalesce: offload,
            coalesces: false,
            thin: 0,
            ipv6,
        })
    }

    pub(super) fn socket(&self) -> &Arc<UdpSocket> {
        &self.socket
    }

    /// How many datagrams of `each` bytes may be sent as one row.
    pub(super) fn row_of(&self, each: usize) -> usize {
        self.row.min(self.state.max_gso_segments()).min(ROW / each.max(1)).max(1)
    }

    /// Sends a row of datagrams of `each` bytes, of which the last may be shorter.
    pub(super) fn send(&mut self, to: SocketAddr, row: &[u8], each: usize) -> Sent {
        if row.len() <= each && self.direct.send(to, row) {
            return Sent::Gone;
        }
        for _ in 0..3 {
            let result = if row.len() <= each {
                self.socket.send_to(row, to).map(drop)
            } else {
                let segment_size = Some(each);
                let transmit = Transmit { destination: to, ecn: None, contents: row, segment_size, src_ip: None };
                self.state.try_send(UdpSockRef::from(&*self.socket), &transmit)
            };
            return match result {
                Ok(()) => Sent::Gone,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => Sent::Blocked,
                    // The second is told of an earlier datagram to somebody who was not there.
                    ErrorKind::Interrupted | ErrorKind::ConnectionRefused => continue,
                    _ => Sent::Failed,
                },
            };
        }
        Sent::Failed
    }

    /// Sends a datagram that lies in two pieces of memory. If that fails, the same in one piece may work, or tells
    /// why.
    pub(super) fn send_two(&mut self, to: SocketAddr, head: &[u8], tail: &[u8]) -> bool {
        let pieces = [IoSlice::new(head), IoSlice::new(tail)];
        let sent = match self.direct.way_to(to) {
            Some(socket) => SockRef::from(socket).send_vectored(&pieces),
            None => {
                let to = to.into();
                SockRef::from(&*self.socket).sendmsg(&MsgHdr::new().with_addr(&to).with_buffers(&pieces), 0)
            }
        };
        sent.is_ok()
    }

    /// Tells how many pieces of how many bytes in all one visit to the socket brought.
    ///
    /// Taking rows in whole (GRO) makes every single datagram dearer, by some 0.2 us where this was measured. So
    /// it is asked for only while many small pieces come at once.
    pub(super) fn visited(&mut self, pieces: usize, bytes: usize) {
        let many = pieces >= MANY && bytes / pieces < LARGEST / 4;
        self.thin = if pieces > 1 || bytes >= LARGEST / 4 { 0 } else { self.thin.saturating_add(1) };
        let wanted = self.may_coalesce && (many || self.coalesces && self.thin < THIN);
        if wanted != self.coalesces {
            use nix::sys::socket::{setsockopt, sockopt};
            // Only a wish: without it the same datagrams come one by one.
            let _ = setsockopt(&self.socket, sockopt::UdpGroSegment, &wanted);
            self.coalesces = wanted;
        }
    }

    /// Takes what has arrived: one datagram, or several of one sender in a row. `None` if there is nothing.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, ErrorKind> {
        loop {
            match self.socket.recv(into) {
                Ok(len) => return Ok(Some(len)),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(None),
                    ErrorKind::Interrupted | ErrorKind::ConnectionRefused => {}
                    kind => return Err(kind),
                },
            }
        }
    }
}

/// Takes a datagram if there is one; whatever else there is to say, a later visit tells.
#[inline]
pub(super) fn glance(socket: &UdpSocket, into: &mut [u8]) -> usize {
    socket.recv(into).unwrap_or(0)
}

/// A socket of the same kind as one that is bound to a loopback address, for what quinn-udp finds out and sets. It
/// asks for a time stamp of every datagram, and the system goes on making them for as long as the socket lives,
/// whatever is asked of it later. What else it sets is for paths that might fragment, which loopback is not.
fn twin(local: SocketAddr) -> io::Result<UdpSocket> {
    UdpSocket::bind((local.ip(), 0))
}

/// Switches off what quinn-udp asks the system to tell of every datagram: nobody here wants to know, and it costs
/// time.
fn quiet_down(socket: &UdpSocket, ipv6: bool) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt};
    setsockopt(socket, sockopt::ReceiveTimestampns, &false)?;
    if ipv6 {
        setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &false)?;
        SockRef::from(socket).set_recv_tclass_v6(false)?;
    } else {
        setsockopt(socket, sockopt::Ipv4PacketInfo, &false)?;
        SockRef::from(socket).set_recv_tos_v4(false)?;
    }
    // Until there is need for it: see `Wire::visited`.
    setsockopt(socket, sockopt::UdpGroSegment, &false)?;
    Ok(())
}

/// The address in the family of a socket.
pub(super) fn in_family(address: SocketAddr, ipv6: bool) -> Option<SocketAddr> {
    match (address, ipv6) {
        (SocketAddr::V4(v4), true) => {
            let mapped: Ipv6Addr = v4.ip().to_ipv6_mapped();
            Some(SocketAddr::new(IpAddr::V6(mapped), v4.port()))
        }
        (SocketAddr::V6(_), false) => None,
        _ => Some(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(address: &str, offload: bool) -> (Wire, Wire, SocketAddr) {
        let open = || Wire::new(bind(address.parse().unwrap()).unwrap(), 1 << 20, offload).unwrap();
        let (a, b) = (open(), open());
        let to = b.socket().local_addr().unwrap();
        (a, b, to)
    }

    /// Loopback delivers before `send` returns.
    fn drain(wire: &mut Wire) -> Vec<u8> {
        let (mut buffer, mut all) = (vec![0; LARGEST], Vec::new());
        while let Some(len) = wire.receive(&mut buffer).unwrap() {
            all.extend_from_slice(&buffer[..len]);
        }
        all
    }

    #[test]
    fn rows_arrive_whole_with_and_without_offload() {
        for (address, offload) in [("127.0.0.1:0", true), ("127.0.0.1:0", false), ("[::1]:0", true)] {
            let (mut a, mut b, to) = pair(address, offload);
            let row: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
            let count = a.row_of(1000);
            assert!(count >= 1 && (offload || count == 1));
            for part in row.chunks(1000 * count) {
                assert_eq!(a.send(to, part, 1000), Sent::Gone);
            }
            assert_eq!(drain(&mut b), row);
            b.visited(MANY, MANY * 1000);
            assert_eq!(b.coalesces, offload);
            for part in row.chunks(1000 * count) {
                assert_eq!(a.send(to, part, 1000), Sent::Gone);
            }
            assert_eq!(drain(&mut b), row);
            (0..THIN).for_each(|_| b.visited(1, 100));
            assert!(!b.coalesces);
        }
    }

    #[test]
    fn two_pieces_make_one_datagram() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (mut a, mut b, to) = pair(address, true);
            // Before and after there is a socket of its own for the neighbour.
            for _ in 0..2 * STREAK {
                assert!(a.send_two(to, &[1; 20], &[2; 40_000]));
                let mut buffer = vec![0; LARGEST];
                assert_eq!(b.receive(&mut buffer), Ok(Some(40_020)));
                assert!(buffer[..20] == [1; 20] && buffer[20..40_020] == [2; 40_000]);
            }
            assert!(a.direct.connected && !a.send_two(to, &[1; 20], &[2; LARGEST]));
        }
    }

    #[test]
    fn nobody_there_is_no_error_that_matters() {
        let (mut a, b, to) = pair("127.0.0.1:0", true);
        drop(b);
        for _ in 0..10 {
            assert_eq!(a.send(to, &[1; 10], 10), Sent::Gone);
            assert!(drain(&mut a).is_empty());
        }
    }

    #[test]
    fn a_streak_to_a_neighbour_takes_the_short_way() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (mut a, mut b, to) = pair(address, true);
            let (_, mut c, elsewhere) = pair(address, true);
            for number in 0..3 * STREAK {
                assert_eq!(a.send(to, &number.to_le_bytes(), 4), Sent::Gone);
                assert_eq!(a.direct.connected, number + 1 >= STREAK);
                assert_eq!(drain(&mut b), number.to_le_bytes());
            }
            assert_eq!(a.send(elsewhere, &[7], 1), Sent::Gone);
            assert!(!a.direct.connected);
            assert_eq!(drain(&mut c), [7]);
            (0..STREAK).for_each(|_| assert_eq!(a.send(elsewhere, &[7], 1), Sent::Gone));
            assert!(a.direct.connected);
            assert_eq!(drain(&mut c).len() as u32, STREAK);
            drop(c);
            (0..10).for_each(|_| assert_eq!(a.send(elsewhere, &[7], 1), Sent::Gone));
        }
    }

    #[test]
    fn both_families_share_an_open_socket() {
        let mut open = Wire::new(bind("[::]:0".parse().unwrap()).unwrap(), 1 << 20, true).unwrap();
        let port = open.socket().local_addr().unwrap().port();
        let v4: SocketAddr = ([127, 0, 0, 1], port).into();
        let mut other = Wire::new(bind("127.0.0.1:0".parse().unwrap()).unwrap(), 1 << 20, true).unwrap();
        assert_eq!(other.send(v4, &[5; 3], 3), Sent::Gone);
        assert_eq!(drain(&mut open), [5; 3]);
        let back = in_family(other.socket().local_addr().unwrap(), open.ipv6).unwrap();
        assert_eq!(open.send(back, &[6; 3], 3), Sent::Gone);
        assert_eq!(drain(&mut other), [6; 3]);
        assert_eq!(in_family("[::1]:1".parse().unwrap(), false), None);
    }
}
