//! What fuzzers let the other end of a channel say.

use super::*;
use crate::cluster::message::{Answer, FromAgent, FromRank, Orders, ToAgent};
use crate::manifest::JobManifest;

/// Both ends of a connection that takes no port, so that there may be any number of them.
fn pair() -> (TcpStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("the system has two more descriptors");
    theirs.set_nonblocking(true).expect("a new socket can be set so");
    (OwnedFd::from(ours).into(), theirs)
}

/// What an end without the secret may say, in two parts: an even first byte says it to a server, an odd one to a
/// client, and the second byte is the length of the first part. Returns whether the greeting was taken.
///
/// # Panics
/// If it is believed, or kept at length, or a client or server says more than its greeting and proof.
pub fn stranger(data: &[u8]) -> bool {
    let Some(([side, first], words)) = data.split_first_chunk::<2>() else { return false };
    let side = if side & 1 == 0 { Side::Server } else { Side::Client };
    let (stream, mut other) = pair();
    let mut channel = Channel::over(stream, side, &Secret::none()).expect("a new socket can be set so");
    channel.send(&ToAgent::Alive);
    let most = GREETING + 4 + TAG + 1;
    let (first, second) = words.split_at(words.len().min(usize::from(*first)));
    let mut ended = false;
    for part in [first, second, &[]] {
        if !part.is_empty() {
            // An end that has hung up takes nothing.
            let _ = other.write(part);
        }
        for _ in 0..4 {
            if !ended {
                let proven = channel.prove();
                assert!(!matches!(proven, Ok(true)), "an end without the secret is believed");
                ended = proven.is_err();
            }
        }
        assert!(channel.arrived.len() <= most, "{} bytes of a stranger are kept", channel.arrived.len());
    }
    let greeted = channel.keys.is_some();
    drop(channel);
    let (mut said, mut buffer) = (0, [0; 4096]);
    while let Ok(length @ 1..) = other.read(&mut buffer) {
        said += length;
    }
    // The first message is sealed and waits behind the proof.
    assert!(said <= GREETING + 4 + TAG + 4 + 16 + TAG, "{said} bytes for a stranger");
    assert!(side == Side::Client || greeted || said <= GREETING, "{said} bytes before a greeting");
    greeted
}

/// What an end with the secret may say: the first byte chooses who listens for what, the others are one message.
/// Returns whether it was understood.
///
/// # Panics
/// If the channel gives anything else than the message or [`ChannelError::Damaged`].
pub fn message(data: &[u8]) -> bool {
    let Some((listener, words)) = data.split_first() else { return false };
    match listener % 5 {
        0 => receive::<FromAgent>(words).is_some(),
        1 => receive::<ToAgent>(words).is_some_and(|message| {
            if let ToAgent::Start(manifest) = message {
                read(&manifest);
            }
            true
        }),
        2 => receive::<FromRank>(words).is_some(),
        3 => receive::<Answer>(words).is_some_and(|message| {
            if let Answer::Table(manifest, _) = message {
                read(&manifest);
            }
            true
        }),
        _ => receive::<Orders>(words).is_some(),
    }
}

/// Asks a manifest what its readers ask.
fn read(manifest: &JobManifest) {
    let members: usize = (0..manifest.hosts.len() as u32).map(|host| manifest.members(host).len()).sum();
    assert_eq!(members == manifest.ranks() as usize, manifest.is_sound());
}

/// Both ends prove themselves, one seals these bytes as they are, and the other one takes them for a message.
fn receive<M: Wire>(words: &[u8]) -> Option<M> {
    let (stream, other) = pair();
    let secret = Secret::none();
    let over = |stream, side| Channel::over(stream, side, &secret).expect("a new socket can be set so");
    let (mut server, mut client) = (over(stream, Side::Server), over(OwnedFd::from(other).into(), Side::Client));
    for _ in 0..8 {
        let _ = (client.prove().expect("its peer is sound"), server.prove().expect("its peer is sound"));
    }
    assert!(client.proven && server.proven, "eight turns are enough");
    client.seal(words.to_vec());
    for _ in 0..1000 {
        client.push().expect("its peer listens");
        match server.pump() {
            Ok(messages) if messages.is_empty() => {}
            Ok(mut messages) => {
                let message = messages.pop().expect("there is one");
                // A message has one form.
                assert_eq!(*codec::encode(&message), words);
                return Some(message);
            }
            Err(ChannelError::Damaged) => return None,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("{} bytes do not arrive", words.len());
}

/// Messages of every kind, as [`message`] takes them.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::message::Parts;

    #[test]
    fn sound_messages_are_understood() {
        let with = |listener: u8, words: &[u8]| [&[listener], words].concat();
        let gathered = codec::encode(&ToAgent::Gathered { parts: Parts(vec![vec![1], vec![]]), more: false });
        assert!(message(&with(1, &gathered)));
        let refused = codec::encode(&Answer::Refused("why".into()));
        assert!(message(&with(3, &refused)) && !message(&with(3, &refused[..3])));
    }
}
