//! The bytes of everything that launchers, agents and ranks say to each other. Two versions that differ in them
//! must not talk: who changes one changes [`PROTOCOL`] or the manifest's first bytes as well, and then this file.

use std::io::Read;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::cluster::channel::PROTOCOL;
use crate::cluster::message::{Answer, FromAgent, FromRank, ORDERS_MAGIC, Orders, Parts, RankArrival, ToAgent};
use crate::codec::{Wire, decode, encode};
use crate::control_links::{ControlLinks, Presence, Word, send_done, send_part, send_watch};
use crate::host::local_ranks::LocalRanks;
use crate::manifest::{HostEntry, JobManifest};
use crate::notices::Notice;
use crate::outcome::RankEnd;
use crate::secret::Secret;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The message has these bytes, and these bytes are the message.
fn same(message: &impl Wire, expected: &str) {
    let bytes = encode(message);
    assert_eq!(hex(&bytes), expected);
    fn read<M: Wire>(_: &M, bytes: &[u8]) -> Option<M> {
        decode(bytes)
    }
    let again = read(message, &bytes).expect("it is read back");
    assert_eq!(hex(&encode(&again)), expected);
}

fn host(name: &str, address: [u8; 4]) -> HostEntry {
    HostEntry { name: name.into(), address: address.into(), interface: "lo".into() }
}

fn manifest() -> JobManifest {
    let v6 = HostEntry { address: IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]), ..host("c", [0; 4]) };
    JobManifest {
        job: "job".into(),
        secret: Secret::none(),
        endpoints: 300,
        hosts: vec![host("a", [10, 0, 0, 1]), v6],
        host_of: vec![0, 1, 0],
    }
}

#[test]
fn versions() {
    // When a test below fails these numbers have to change, and then this one.
    assert_eq!((PROTOCOL, ORDERS_MAGIC), (8, *b"am-agent"));
    let mut file = std::fs::File::from(manifest().file().unwrap());
    std::io::Seek::rewind(&mut file).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, [&b"am-mnft3"[..], &encode(&manifest())].concat());
}

#[test]
fn manifests_and_orders() {
    let v6 = format!("01fd{}01", "00".repeat(14));
    let expected = format!("036a6f6200ac02020161000a000001026c6f0163{v6}026c6f03000100");
    same(&manifest(), &expected);
    let local_ranks = LocalRanks {
        program: "p".into(),
        arg0: Some("z".into()),
        args: vec!["x".into(), "".into()],
        environment: vec![("K".into(), "V".into())],
        directory: Some("/d".into()),
        ranks: 200,
        members: vec![0, 199],
        kind: "k".into(),
        prefix: true,
        bind: false,
        keep_going: true,
    };
    let orders = Orders {
        version: "1".into(),
        secret: Secret::none(),
        launcher_addresses: vec!["10.0.0.2:4000".parse().unwrap()],
        connect_timeout: Duration::new(5, 7),
        lost_after: Duration::from_secs(128),
        host: 2,
        name: "h".into(),
        interface: Some("i".into()),
        address: None,
        grace: Duration::ZERO,
        local_ranks,
    };
    let head =
        "013100".to_owned() + "01000a000002a01f" + "0507" + "800100" + "02" + "0168" + "010169" + "00" + "0000";
    let local = "000170".to_owned()
        + "0100017a"
        + "02000178"
        + "0000"
        + "0100014b000156"
        + "01022f64"
        + "c801"
        + "0200c701"
        + "016b"
        + "010001";
    same(&orders, &(head + &local));
}

#[test]
fn what_agents_say() {
    let ready =
        FromAgent::Ready { host: 1, version: "2".into(), address: [127, 0, 0, 1].into(), interface: "e".into() };
    same(&ready, "00010132007f0000010165");
    same(&FromAgent::Failed { host: 1, code: 125, reason: "no".into() }, "01017d026e6f");
    let ends = vec![(3, RankEnd::Exited(4)), (130, RankEnd::Killed(9)), (5, RankEnd::Lost)];
    let ended = ["0203", "030004", "82010109", "0502", "018201", "0103"].concat();
    same(&FromAgent::Ended { ends, first: Some(130), left: vec![3] }, &ended);
    let notices =
        vec![Notice::Lost { rank: 1, lost: 2 }, Notice::Left { rank: 3 }, Notice::Exit { rank: 4, code: 200 }];
    same(&FromAgent::Notices(notices), "030300010201030204c8");
    same(&FromAgent::Part { rank: 129, part: vec![7, 8] }, "048101020708");
    same(&FromAgent::Done(vec![1, 128]), "0502018001");
    same(&FromAgent::Over, "06");
    same(&FromAgent::Alive, "07");
}

#[test]
fn what_agents_hear() {
    let start = ToAgent::Start(JobManifest { hosts: vec![], host_of: vec![], ..manifest() });
    same(&start, "00036a6f6200ac020000");
    same(&ToAgent::Gathered { parts: Parts(vec![vec![1], vec![]]), more: true }, "010201010001");
    same(&ToAgent::Signal(15), "021e");
    same(&ToAgent::Report, "03");
    same(&ToAgent::Died(vec![2, 300]), "040202ac02");
    same(&ToAgent::Alive, "05");
}

#[test]
fn what_ranks_say_at_a_rendezvous() {
    let arrival = RankArrival {
        version: "3".into(),
        rank: 1,
        ranks: 2,
        endpoints: 1,
        transport: Some("udp".into()),
        machine: "m".into(),
        name: "n".into(),
        address: [10, 0, 0, 1].into(),
        interface: "e".into(),
    };
    same(&FromRank::Arrived(arrival), "0001330102010103756470016d016e000a0000010165");
    let words = [Word::Part(vec![9]), Word::Left, Word::Back, Word::Done, Word::Watch(true)];
    for (word, expected) in words.into_iter().zip(["01000109", "0101", "0102", "0103", "010401"]) {
        same(&FromRank::Said(word), expected);
    }
    let table = Answer::Table(JobManifest { hosts: vec![], host_of: vec![], ..manifest() }, [5; 32]);
    same(&table, &format!("00036a6f6200ac020000{}", "05".repeat(32)));
    same(&Answer::Refused("why".into()), "0103776879");
    same(&Answer::Gathered { parts: Parts(vec![vec![]]), more: false }, "02010000");
    same(&Answer::Failed(vec![2, 300]), "030202ac02");
    same(&Answer::Done(vec![1]), "040101");
    same(&Answer::Left(true), "0501");
}

/// What comes out at the other end until the link is cut.
fn said(link: UnixStream) -> String {
    let mut bytes = Vec::new();
    (&link).read_to_end(&mut bytes).unwrap();
    hex(&bytes)
}

#[test]
fn links_of_ranks() {
    let (rank, launcher) = UnixStream::pair().unwrap();
    let mut presence = Presence::default();
    send_part(&rank, &[1, 2]).unwrap();
    presence.attach(&rank);
    presence.depart(&rank);
    presence.attach(&rank);
    send_watch(&rank, true);
    send_watch(&rank, false);
    send_done(&rank);
    drop(rank);
    let frames = ["00020000000102", "0100000000", "0200000000", "040100000001", "040100000000", "0300000000"];
    assert_eq!(said(launcher), frames.concat());
}

#[test]
fn links_of_launchers() {
    let mut links = ControlLinks::default();
    let rank = UnixStream::from(links.add().unwrap());
    send_watch(&rank, true);
    links.poll();
    links.answer(&[vec![7], vec![], vec![8, 9]]);
    links.announce_failures(&[1, 256]);
    links.announce_done(&[2]);
    drop(links);
    let parts = "051000000000010000000700000000020000000809";
    assert_eq!(said(rank), parts.to_owned() + "060800000001000000" + "00010000" + "070400000002000000");
}
