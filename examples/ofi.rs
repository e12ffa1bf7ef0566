//! Ranks over libfabric: `ofi list` says what this machine has and which provider would be taken; plainly started,
//! the program starts its ranks, which greet each other and measure round trips. `AM_FABRIC=tcp` asks for a
//! provider.

use active_messages::ofi::{self, OfiConfig};
use active_messages::prelude::*;
use std::error::Error;
use std::process::ExitCode;

/// Round trips that are measured.
const ROUNDS: u32 = 10_000;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("list") {
        return match list() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::from(2)
            }
        };
    }
    launch::run(RunOptions::new().default_ranks(2), rank)
}

fn list() -> Result<(), Box<dyn Error>> {
    let (major, minor) = ofi::version()?;
    println!("libfabric {major}.{minor}");
    for verdict in ofi::list(&OfiConfig::from_environment()?)? {
        println!("{verdict}");
    }
    Ok(())
}

fn rank(job: RankJob) -> Result<(), Box<dyn Error>> {
    let mut handlers = Handlers::new(); // they work on the rank's state, here the number of answers
    let pong = handlers.reply("pong", |answers: &mut u32, _, (): (), _| *answers += 1)?;
    let ping = handlers.request("ping", move |_, token, (): (), _| -> HandlerResult {
        token.reply(pong, ())?;
        Ok(())
    })?;
    let mut endpoint = Endpoint::attach(job.ofi(JoinOptions::default())?, handlers, 0)?;
    let (me, ranks) = (endpoint.rank(), endpoint.ranks());
    if me == Rank(0) {
        (0..ranks).try_for_each(|to| endpoint.request(Rank(to), ping, ()))?;
        endpoint.wait_until(|answers| *answers == ranks)?;
        println!("{ranks} ranks answer");
        let began = endpoint.now();
        for round in 1..=ROUNDS {
            endpoint.request(Rank(ranks - 1), ping, ())?;
            endpoint.wait_until(|answers| *answers == ranks + round)?;
        }
        let took = (endpoint.now() - began).as_secs_f64();
        println!("round trip with rank {}: {:.2} us", ranks - 1, took / f64::from(ROUNDS) * 1e6);
    }
    endpoint.finish()?;
    Ok(())
}
