//! Ranks as processes: this test program runs itself again, once per rank, and hands the cards around on pipes.

use am_core::{Address, Endpoint, HandlerResult, Handlers, LossCause, Payload, Rank, Shape};
use std::io::{BufRead, BufReader, Read as _, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use transport_ofi::{OfiConfig, Opened};

const RANK: &str = "AM_OFI_TEST_RANK";
const RANKS: u32 = 3;
/// Bytes of a segment, and of the Long message, which takes several parts.
const SEGMENT: usize = 1 << 20;
const LONG: usize = 700_001;

fn config(provider: &str) -> OfiConfig {
    OfiConfig::default().provider(provider).interface("127.0.0.1")
}

fn pattern(rank: u32) -> Vec<u8> {
    (0..LONG).map(|index| (index * 13 + rank as usize * 101) as u8).collect()
}

/// What a rank has seen.
#[derive(Default)]
struct Seen {
    answers: u32,
    longs: u32,
    wrong: u32,
    ready: u32,
}

/// A rank's part, run by the tests below in a process of its own; without their variables it is nothing.
#[test]
fn rank() {
    let Ok(text) = std::env::var(RANK) else { return };
    let (rank, provider) = text.split_once(' ').expect("a rank and a provider");
    let rank: u32 = rank.parse().expect("a number");
    let opened = Opened::new(&config(provider), RANKS, SEGMENT).expect("the parent has opened one, too");
    println!("CARD {}", opened.card());
    let lines: Vec<String> = std::io::stdin().lines().take(RANKS as usize).collect::<Result<_, _>>().unwrap();
    let cards: Vec<Option<&str>> = lines.iter().map(|line| Some(line.as_str())).collect();
    let transport = opened.join(Address::new(Rank(rank), 0), Shape::new(RANKS), 42, &cards).unwrap();
    let notifier = transport.failure_notifier();
    let mut handlers = Handlers::new();
    let sum = handlers.reply("sum", |seen: &mut Seen, _, (): (), _| seen.answers += 1).unwrap();
    let add = handlers.request("add", move |_, token, (): (), _| -> HandlerResult {
        token.reply(sum, ())?;
        Ok(())
    });
    let add = add.unwrap();
    let placed = handlers.one_way("placed", |seen: &mut Seen, from, (): (), payload: Payload<'_>| {
        seen.longs += 1;
        seen.wrong += u32::from(payload.to_vec() != pattern(from.rank.0));
    });
    let placed = placed.unwrap();
    let ready = handlers.one_way("ready", |seen: &mut Seen, _, (): (), _| seen.ready += 1).unwrap();
    let mut endpoint = Endpoint::attach(transport, handlers, Seen::default()).unwrap();
    for _ in 0..200 {
        (0..RANKS).for_each(|to| endpoint.request(Rank(to), add, ()).unwrap());
    }
    endpoint.wait_until(|seen| seen.answers == 200 * RANKS).unwrap();
    endpoint.request_long(Rank((rank + 1) % RANKS), placed, (), &pattern(rank), 5).unwrap();
    endpoint.wait_until(|seen| seen.longs == 1).unwrap();
    assert_eq!(endpoint.state().wrong, 0, "a Long payload arrives as it was sent");
    endpoint.barrier().unwrap();
    println!("MET");
    if rank == RANKS - 1 {
        // The parent kills this one.
        std::thread::park();
    }
    // The launcher's word, here the parent's.
    let mut word = String::new();
    std::io::stdin().read_line(&mut word).unwrap();
    notifier.lost(Rank(RANKS - 1), LossCause::Died);
    let lost = endpoint.barrier().unwrap_err();
    assert_eq!(lost.loss(), Some((Rank(RANKS - 1), LossCause::Died)), "{lost}");
    // Survivors go on.
    endpoint.acknowledge_loss(Rank(RANKS - 1));
    let other = Rank(1 - rank);
    endpoint.request(other, add, ()).unwrap();
    endpoint.wait_until(|seen| seen.answers == 200 * RANKS + 1).unwrap();
    endpoint.request(other, ready, ()).unwrap();
    endpoint.wait_until(|seen| seen.ready == 1).unwrap();
    endpoint.leave();
    println!("DONE");
}

/// A process that plays a rank.
struct Player {
    child: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

impl Player {
    fn start(rank: u32, provider: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::rank", "--nocapture", "--test-threads", "1"]);
        command.env(RANK, format!("{rank} {provider}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    /// What follows a word that the process says.
    fn hears(&mut self, word: &str) -> String {
        for line in self.output.by_ref().lines() {
            let line = line.unwrap();
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
        panic!("a rank ended without saying {word}");
    }
}

fn play(provider: &str) {
    if let Err(error) = Opened::new(&config(provider), RANKS, SEGMENT) {
        return crate::skip("processes", provider, &error);
    }
    let mut players: Vec<Player> = (0..RANKS).map(|rank| Player::start(rank, provider)).collect();
    let cards: Vec<String> = players.iter_mut().map(|player| player.hears("CARD ")).collect();
    for player in &mut players {
        cards.iter().for_each(|card| writeln!(player.input, "{card}").unwrap());
    }
    players.iter_mut().for_each(|player| drop(player.hears("MET")));
    let mut victim = players.pop().unwrap();
    victim.child.kill().unwrap();
    victim.child.wait().unwrap();
    players.iter_mut().for_each(|player| writeln!(player.input, "it is lost").unwrap());
    for player in &mut players {
        player.hears("DONE");
        assert!(player.child.wait().unwrap().success());
    }
}

#[test]
fn three_over_tcp_of_which_one_is_killed() {
    play("tcp");
}

#[test]
fn three_over_shm_of_which_one_is_killed() {
    play("shm");
}
