//! Rank 0 greets every rank, and each answers with its process. `cargo run --example hello`

use active_messages::prelude::*;
use std::{error::Error, process};

fn main() -> process::ExitCode {
    launch::run(RunOptions::new().default_ranks(3), rank)
}

fn rank(job: RankJob) -> Result<(), Box<dyn Error>> {
    let mut handlers = Handlers::new(); // every rank registers the same; they work on the rank's state, here a u32
    let hello = handlers.reply("hello", |answers: &mut u32, from, process: u32, _| {
        println!("hello from rank {from}, process {process}");
        *answers += 1;
    })?;
    let greet = handlers.request("greet", move |_, token, (), _| -> HandlerResult {
        token.reply(hello, process::id())?; // an asker that is gone by now is no failure
        Ok(())
    })?;
    let mut endpoint = Endpoint::attach(job.attach(JoinOptions::default())?, handlers, 0)?;
    if endpoint.rank() == Rank(0) {
        let ranks = endpoint.ranks();
        (0..ranks).try_for_each(|to| endpoint.request(Rank(to), greet, ()))?;
        endpoint.wait_until(|answers| *answers == ranks)?;
    }
    endpoint.finish()?; // serves the others until all are done
    Ok(())
}
