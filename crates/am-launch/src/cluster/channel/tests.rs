//! Two ends that know the secret, and everybody else.

use super::*;
use std::net::TcpListener;
use std::thread;

const PATIENCE: Duration = Duration::from_secs(60);

/// Both ends of a connection, and their first words if they understand each other.
fn meet(ours: &Secret, theirs: &Secret) -> [Result<Vec<String>, ChannelError>; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let talk = |stream, side, secret: &Secret| {
        let mut channel = Channel::new(stream, side, secret).unwrap();
        channel.send(&format!("{side:?}"));
        // The other end may need what is still queued here when this end has received enough.
        let received = channel.wait::<String>(Instant::now() + PATIENCE);
        let _ = channel.pump::<String>();
        received
    };
    thread::scope(|scope| {
        let client = scope.spawn(|| talk(TcpStream::connect(address).unwrap(), Side::Client, theirs));
        let server = talk(listener.accept().unwrap().0, Side::Server, ours);
        [server, client.join().unwrap()]
    })
}

#[test]
fn holders_of_the_secret_understand_each_other() {
    let secret = Secret::random().unwrap();
    let [server, client] = meet(&secret, &secret);
    assert_eq!((server.unwrap(), client.unwrap()), (vec!["Client".to_owned()], vec!["Server".to_owned()]));
}

#[test]
fn others_learn_what_is_wrong() {
    let [server, client] = meet(&Secret::random().unwrap(), &Secret::random().unwrap());
    assert!(matches!(client, Err(ChannelError::WrongSecret)), "{client:?}");
    assert!(matches!(server, Err(ChannelError::WrongSecret)), "{server:?}");
}

/// What a server says to these bytes.
fn answer(bytes: &[u8]) -> (Result<Vec<String>, ChannelError>, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stranger.write_all(bytes).unwrap();
    stranger.shutdown(std::net::Shutdown::Write).unwrap();
    let secret = Secret::random().unwrap();
    let mut server = Channel::new(listener.accept().unwrap().0, Side::Server, &secret).unwrap();
    let received = server.wait(Instant::now() + PATIENCE);
    drop(server);
    let mut said = Vec::new();
    let _ = stranger.read_to_end(&mut said);
    (received, said)
}

#[test]
fn strangers_get_nothing() {
    let (received, said) = answer(b"GET / HTTP/1.1\r\n\r\n");
    assert!(matches!(received, Err(ChannelError::Stranger)), "{received:?}");
    assert!(said.is_empty());
    let (received, said) = answer(b"am-r");
    assert!(matches!(received, Err(ChannelError::HungUp)), "{received:?}");
    assert!(said.is_empty());
}

#[test]
fn another_version_is_told_ours() {
    let (received, said) = answer(&[&MAGIC[..], &9u16.to_le_bytes(), &[0; NONCE]].concat());
    assert!(matches!(received, Err(ChannelError::Version { theirs: 9 })), "{received:?}");
    assert_eq!(said[MAGIC.len()..][..2], PROTOCOL.to_le_bytes());
    assert_eq!(said.len(), GREETING);
}

#[test]
fn a_long_frame_before_the_proof_is_not_taken_in() {
    let greeting = [&MAGIC[..], &PROTOCOL.to_le_bytes(), &[0; NONCE]].concat();
    let (received, _) = answer(&[&greeting[..], &(1u32 << 20).to_le_bytes(), &[0; 100]].concat());
    assert!(matches!(received, Err(ChannelError::WrongSecret)), "{received:?}");
}

/// Both ends of a connection that know each other, server first, and until when they may take.
fn acquainted() -> (Channel, Channel, Instant) {
    let secret = Secret::random().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut client = Channel::new(stream, Side::Client, &secret).unwrap();
    let mut server = Channel::new(listener.accept().unwrap().0, Side::Server, &secret).unwrap();
    let until = Instant::now() + PATIENCE;
    while !(client.prove().unwrap() & server.prove().unwrap()) {
        assert!(Instant::now() < until);
    }
    (server, client, until)
}

/// Hears all until the channel fails.
fn all(channel: &mut Channel, until: Instant) -> (Vec<String>, ChannelError) {
    let mut received = Vec::new();
    loop {
        match channel.wait::<String>(until) {
            Ok(words) => received.extend(words),
            Err(error) => return (received, error),
        }
    }
}

#[test]
fn changed_frames_are_noticed() {
    let (mut server, mut client, until) = acquainted();
    client.send(&"words".to_owned());
    let at = client.leaving.len() - 1;
    client.leaving[at] ^= 1;
    client.pump::<String>().unwrap();
    let received = server.wait::<String>(until);
    assert!(matches!(received, Err(ChannelError::Damaged)), "{received:?}");
}

#[test]
fn what_came_before_a_damaged_frame_is_heard() {
    // Changed on its way, or sealed by an end that says what nobody understands.
    for sealed in [false, true] {
        let (mut server, mut client, until) = acquainted();
        client.send(&"first".to_owned());
        client.send(&"second".to_owned());
        if sealed {
            client.seal(vec![0xff]);
        } else {
            client.send(&"damaged".to_owned());
            let at = client.leaving.len() - 1;
            client.leaving[at] ^= 1;
        }
        client.send(&"behind".to_owned());
        // In one piece, so that one look finds all of it.
        client.push().unwrap();
        drop(client);
        while server.read().is_ok() {
            assert!(Instant::now() < until);
        }
        let (received, error) = all(&mut server, until);
        assert_eq!(received, ["first", "second"]);
        assert!(matches!(error, ChannelError::Damaged), "{error}");
        // It stays so.
        assert!(matches!(server.pump::<String>(), Err(ChannelError::Damaged)));
    }
}

#[test]
fn a_message_that_is_too_long_is_an_error() {
    let (mut server, mut client, until) = acquainted();
    client.send(&"before".to_owned());
    client.send(&"x".repeat(MOST));
    client.send(&"behind".to_owned());
    let error = client.push().unwrap_err();
    assert!(matches!(error, ChannelError::TooLong { bytes } if bytes > MOST), "{error}");
    assert!(error.to_string().contains("exceeds the 16777200 that a channel carries"), "{error}");
    server.send(&"answer".to_owned());
    server.push().unwrap();
    // What the other end says is received first.
    let (received, error) = all(&mut client, until);
    assert_eq!(received, ["answer"]);
    assert!(matches!(error, ChannelError::TooLong { .. }), "{error}");
    drop(client);
    let (received, error) = all(&mut server, until);
    assert_eq!(received, ["before"]);
    assert!(matches!(error, ChannelError::HungUp), "{error}");
}

#[test]
fn a_message_may_be_as_long_as_a_frame() {
    let (mut server, mut client, until) = acquainted();
    // Its length takes four bytes.
    let longest = "x".repeat(MOST - 4);
    client.send(&longest);
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                client.push().unwrap();
                if client.queued() == 0 {
                    break;
                }
                client.rest(until).unwrap();
            }
        });
        assert!(server.wait::<String>(until).unwrap() == [longest]);
    });
}

/// An end that has said something and takes nothing wakes nobody who waits for it to take more.
#[test]
fn a_wait_for_room_does_not_end_at_words() {
    let (mut server, mut client, until) = acquainted();
    server.send(&"a word".to_owned());
    server.push().unwrap();
    client.rest(until).unwrap();
    client.send(&"x".repeat(MOST - 4));
    // The system stops taking bytes soon, but not always at the first look.
    let slept = (0..1000).any(|_| {
        client.push().unwrap();
        assert!(client.queued() > 0, "a socket has room for a frame of the greatest length");
        !client.rest_until_room(Instant::now() + Duration::from_millis(20)).unwrap()
    });
    assert!(slept, "words that nobody reads end every wait");
}

/// What an end says last is read to the end by one that goes on talking: a word that meets a closed end would
/// reset the connection.
#[test]
fn last_words_arrive_whole() {
    let (mut server, mut client, until) = acquainted();
    let last = "x".repeat(1 << 20);
    client.send(&last);
    let leaving = thread::spawn(move || client.part::<String>(until));
    let mut received = Vec::new();
    while received.is_empty() {
        server.send(&"go on".to_owned());
        received = server.pump::<String>().unwrap();
        thread::yield_now();
    }
    assert!(received == [last]);
    drop(server);
    leaving.join().unwrap();
}

/// Ends of different versions must not take each other for strangers: who changes these bytes changes
/// [`PROTOCOL`].
#[test]
fn keys_and_frames_have_these_bytes() {
    let secret = codec::decode::<Secret>(&[&[16][..], &[7; 16]].concat()).unwrap();
    let salt: Vec<u8> = (0..64).collect();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let keys = [b"client", b"server"].map(|direction| key(&secret, &salt, direction));
    assert_eq!(hex(&keys[0][..]), "e850cca3bb32d73fe03ff790b27702d286e35fcf70b3eeef79ec68a9430bbe02");
    assert_eq!(hex(&keys[1][..]), "ce6f0c967813f11cce556c2b9422916f25540b0f5b5a762fe9d391d0f5de6393");
    let mut text = *b"text";
    let tag = cipher(&keys[0], 3).encrypt_in_place(&mut text, &20u32.to_le_bytes());
    assert_eq!((hex(&text), hex(&tag)), ("2d8c2f1d".into(), "0fd22bb894910ca1597ab5c18f591cdd".into()));
}

#[test]
fn one_cause_has_one_name() {
    use nix::errno::Errno;
    for (errno, name) in [
        (Errno::EPIPE, "it hung up"),
        (Errno::ECONNRESET, "it hung up"),
        (Errno::ETIMEDOUT, "it did not answer in time"),
        (Errno::EHOSTUNREACH, "No route to host (os error 113)"),
    ] {
        let error = ended_by(errno.into());
        assert_eq!(error.to_string(), name);
        // As ranks tell it that find no connection any more.
        assert_eq!(ChannelError::from(error.kind()).kind(), error.kind());
    }
}

/// Who waits at the stream for what follows the proof finds it there.
#[test]
fn proofs_take_nothing_of_what_follows() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut server = Channel::local(ours, Side::Server, &Secret::none()).unwrap();
    let mut client = Channel::local(theirs, Side::Client, &Secret::none()).unwrap();
    client.send(&7u32);
    while !client.prove().unwrap() | !server.prove().unwrap() {}
    let mut ends = [PollFd::new(server.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut ends, PollTimeout::ZERO), Ok(1));
    assert_eq!(server.pump::<u32>().unwrap(), [7]);
}
