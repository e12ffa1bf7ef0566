//! Ranks as processes: this test program runs itself again, once per rank, and hands the cards around on pipes.

use am_core::{Address, Endpoint, HandlerResult, Handlers, LossCause, Payload, Rank, Request, Shape};
use std::io::{BufRead, BufReader, Read as _, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use transport_ofi::{Ofi, OfiConfig, Opened};

const RANK: &str = "AM_OFI_TEST_RANK";
const RANKS: u32 = 3;
/// The variable of libfabric that says how many buffers an endpoint over tcp has.
const RXM_BUFFERS: &str = "FI_OFI_RXM_MSG_RX_SIZE";
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

/// What ranks ask each other.
struct Requests {
    /// Is answered.
    add: Request<()>,
    /// Is a Long message; one that is not its sender's pattern counts as wrong.
    placed: Request<()>,
    ready: Request<()>,
}

fn handlers() -> (Handlers<Seen>, Requests) {
    let mut handlers = Handlers::new();
    let sum = handlers.reply("sum", |seen: &mut Seen, _, (): (), _| seen.answers += 1).unwrap();
    let add = handlers.request("add", move |_, token, (): (), _| -> HandlerResult {
        token.reply(sum, ())?;
        Ok(())
    });
    let add = add.unwrap();
    let placed = handlers.one_way("placed", |seen: &mut Seen, from, (): (), payload: Payload<'_>| {
        seen.longs += 1;
        seen.wrong += u32::from(payload.len() != LONG || payload.to_vec() != pattern(from.rank.0));
    });
    let placed = placed.unwrap();
    let ready = handlers.one_way("ready", |seen: &mut Seen, _, (): (), _| seen.ready += 1).unwrap();
    (handlers, Requests { add, placed, ready })
}

/// A rank's part, run by the tests below in a process of its own; without their variables it is nothing.
#[test]
fn rank() {
    let Ok(text) = std::env::var(RANK) else { return };
    let words: Vec<&str> = text.split(' ').collect();
    let [part, rank, ranks, provider] = words[..] else {
        panic!("a part, a rank, how many there are, a provider")
    };
    let (rank, ranks) = (rank.parse().expect("a number"), ranks.parse().expect("a number"));
    match part {
        "talk" => talk(rank, provider),
        "storm" => storm(rank, provider),
        _ => greet(rank, ranks, provider),
    }
}

/// Says its card, reads those of all, and joins.
fn join(rank: u32, ranks: u32, segment: usize, provider: &str) -> Ofi {
    let opened = Opened::new(&config(provider), ranks, segment).expect("the parent has opened one, too");
    println!("CARD {}", opened.card());
    let lines: Vec<String> = std::io::stdin().lines().take(ranks as usize).collect::<Result<_, _>>().unwrap();
    let cards: Vec<Option<&str>> = lines.iter().map(|line| Some(line.as_str())).collect();
    opened.join(Address::new(Rank(rank), 0), Shape::new(ranks), 42, &cards).unwrap()
}

/// Meets the others, and says what that has cost: kilobytes of memory at most and its share of them now, and
/// descriptors.
fn greet(rank: u32, ranks: u32, provider: &str) {
    let transport = join(rank, ranks, 1 << 16, provider);
    let mut endpoint = Endpoint::attach(transport, Handlers::<()>::new(), ()).unwrap();
    endpoint.barrier().unwrap();
    let number = |file: &str, what: &str| {
        let text = std::fs::read_to_string(file).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    let (resident, share) = (number("/proc/self/status", "VmHWM:"), number("/proc/self/smaps_rollup", "Pss:"));
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    println!("MET {resident} {share} {descriptors}");
    let mut word = String::new();
    std::io::stdin().read_line(&mut word).unwrap();
    println!("DONE");
    // The parent ends all of them together.
    std::io::stdout().flush().unwrap();
    std::process::exit(0);
}

/// Sends to all until a rank is lost that the parent kills at some time; then the survivors go on.
fn storm(rank: u32, provider: &str) {
    let transport = join(rank, RANKS, SEGMENT, provider);
    let notifier = transport.failure_notifier();
    let (handlers, Requests { add, placed, ready }) = handlers();
    let mut endpoint = Endpoint::attach(transport, handlers, Seen::default()).unwrap();
    endpoint.barrier().unwrap();
    println!("MET");
    // The launcher's word, here the parent's.
    std::thread::spawn(move || {
        let mut word = String::new();
        std::io::stdin().read_line(&mut word).unwrap();
        notifier.lost(Rank(RANKS - 1), LossCause::Died);
    });
    let long = pattern(rank);
    let mut rounds = 0u32;
    let lost = loop {
        let to = Rank(rounds % RANKS);
        let sent = match rounds % 7 {
            0 => endpoint.request_long(to, placed, (), &long[..1 + rounds as usize % LONG], 8).map(drop),
            _ => endpoint.request(to, add, ()),
        };
        if let Some(lost) = sent.err().and_then(|error| error.loss()) {
            break lost;
        }
        if let Some(lost) = endpoint.poll().err().and_then(|error| error.loss()) {
            break lost;
        }
        rounds += 1;
    };
    assert_eq!(lost.0, Rank(RANKS - 1), "the one that was killed is lost, nobody else: {lost:?}");
    endpoint.acknowledge_loss(Rank(RANKS - 1));
    let other = Rank(1 - rank);
    endpoint.request(other, ready, ()).unwrap();
    endpoint.wait_until(|seen| seen.ready == 1).unwrap();
    endpoint.leave();
    println!("DONE");
}

/// Messages of all kinds; the last rank is killed when all have met.
fn talk(rank: u32, provider: &str) {
    let transport = join(rank, RANKS, SEGMENT, provider);
    let notifier = transport.failure_notifier();
    let (handlers, Requests { add, placed, ready }) = handlers();
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
    fn start(part: &str, rank: u32, ranks: u32, provider: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::rank", "--nocapture", "--test-threads", "1"]);
        // The provider's default is 64 MB of buffers for each rank.
        if std::env::var_os(RXM_BUFFERS).is_none() {
            command.env(RXM_BUFFERS, "64");
        }
        if std::env::var_os(crate::RXD_PACKETS.0).is_none() {
            command.envs([crate::RXD_PACKETS]);
        }
        command
            .env(RANK, format!("{part} {rank} {ranks} {provider}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
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

/// Starts so many ranks and hands their cards around.
fn start(part: &str, ranks: u32, provider: &str) -> Vec<Player> {
    let mut players: Vec<Player> = (0..ranks).map(|rank| Player::start(part, rank, ranks, provider)).collect();
    let cards: Vec<String> = players.iter_mut().map(|player| player.hears("CARD ")).collect();
    for player in &mut players {
        player.input.write_all((cards.join("\n") + "\n").as_bytes()).unwrap();
    }
    players
}

fn play(provider: &str) {
    if let Err(error) = Opened::new(&config(provider), RANKS, SEGMENT) {
        return crate::skip("processes", provider, &error);
    }
    let mut players = start("talk", RANKS, provider);
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

/// Kills a rank at a random time while all send to all; seeds as elsewhere.
fn kill(provider: &str, seeds: std::ops::Range<u64>) {
    if let Err(error) = Opened::new(&config(provider), RANKS, SEGMENT) {
        return crate::skip("random kills", provider, &error);
    }
    for seed in seeds {
        let mut players = start("storm", RANKS, provider);
        players.iter_mut().for_each(|player| drop(player.hears("MET")));
        std::thread::sleep(Duration::from_micros(crate::fake::Random::new(seed).below(20_000)));
        let mut victim = players.pop().unwrap();
        victim.child.kill().unwrap();
        victim.child.wait().unwrap();
        // Who has learnt of it from the provider may have ended by now.
        players.iter_mut().for_each(|player| drop(writeln!(player.input, "it is lost")));
        for player in &mut players {
            player.hears("DONE");
            assert!(player.child.wait().unwrap().success(), "seed {seed}");
        }
    }
}

#[test]
fn one_killed_at_some_time() {
    kill("tcp", 1..3);
}

/// `cargo test --release -p active-messages-ofi --test it -- --ignored full_kills`.
#[test]
#[ignore = "two hundred jobs of three processes"]
fn full_kills() {
    kill("tcp", 1..151);
    kill("udp;ofi_rxd", 151..201);
}

/// `AM_TEST_RANKS=64 cargo test --release -p active-messages-ofi --test it -- --ignored --nocapture
/// full_many_ranks_start`.
#[test]
#[ignore = "256 processes"]
fn full_many_ranks_start() {
    let ranks = std::env::var("AM_TEST_RANKS").map_or(256, |text| text.parse().expect("a number"));
    if let Err(error) = Opened::new(&config("tcp"), ranks, 1 << 16) {
        return crate::skip("many ranks", "tcp", &error);
    }
    let began = Instant::now();
    let mut players = start("greet", ranks, "tcp");
    let said: Vec<String> = players.iter_mut().map(|player| player.hears("MET")).collect();
    let took = began.elapsed();
    let most =
        |word: usize| said.iter().map(|text| text.split(' ').nth(word).unwrap().parse::<u32>().unwrap()).max();
    let [resident, share, descriptors] = [0, 1, 2].map(|word| most(word).unwrap());
    println!(
        "{ranks} ranks have met after {took:.1?}; at most {resident} kB resident, {share} kB of them a rank's share, \
         {descriptors} descriptors"
    );
    players.iter_mut().for_each(|player| writeln!(player.input, "end").unwrap());
    players.iter_mut().for_each(|player| drop(player.hears("DONE")));
    players.iter_mut().for_each(|player| drop(player.child.wait()));
}
