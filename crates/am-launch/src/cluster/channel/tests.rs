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
        // The other end may need what is still queued here when this end has heard enough.
        let heard = channel.wait::<String>(Instant::now() + PATIENCE);
        let _ = channel.pump::<String>();
        heard
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
    let heard = server.wait(Instant::now() + PATIENCE);
    drop(server);
    let mut said = Vec::new();
    let _ = stranger.read_to_end(&mut said);
    (heard, said)
}

#[test]
fn strangers_get_nothing() {
    let (heard, said) = answer(b"GET / HTTP/1.1\r\n\r\n");
    assert!(matches!(heard, Err(ChannelError::Stranger)), "{heard:?}");
    assert!(said.is_empty());
    let (heard, said) = answer(b"am-r");
    assert!(matches!(heard, Err(ChannelError::HungUp)), "{heard:?}");
    assert!(said.is_empty());
}

#[test]
fn another_version_is_told_ours() {
    let (heard, said) = answer(&[&MAGIC[..], &7u16.to_le_bytes(), &[0; NONCE]].concat());
    assert!(matches!(heard, Err(ChannelError::Version { theirs: 7 })), "{heard:?}");
    assert_eq!(said[MAGIC.len()..][..2], PROTOCOL.to_le_bytes());
    assert_eq!(said.len(), GREETING);
}

#[test]
fn a_long_frame_before_the_proof_is_not_taken_in() {
    let greeting = [&MAGIC[..], &PROTOCOL.to_le_bytes(), &[0; NONCE]].concat();
    let (heard, _) = answer(&[&greeting[..], &(1u32 << 20).to_le_bytes(), &[0; 100]].concat());
    assert!(matches!(heard, Err(ChannelError::WrongSecret)), "{heard:?}");
}

#[test]
fn changed_frames_are_noticed() {
    let secret = Secret::random().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut client = Channel::new(stream, Side::Client, &secret).unwrap();
    let mut server = Channel::new(listener.accept().unwrap().0, Side::Server, &secret).unwrap();
    let until = Instant::now() + PATIENCE;
    while !(client.prove().unwrap() & server.prove().unwrap()) {
        assert!(Instant::now() < until);
    }
    client.send(&"words".to_owned());
    let at = client.leaving.len() - 1;
    client.leaving[at] ^= 1;
    client.pump::<String>().unwrap();
    let heard = server.wait::<String>(until);
    assert!(matches!(heard, Err(ChannelError::Damaged)), "{heard:?}");
}
