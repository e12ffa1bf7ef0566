//! A process that is killed amid two-sided messages: what its peers are told, and that they go on.

use crate::ranks::{PATIENCE, join};
use active_messages::launch::RankJob;
use active_messages::p2p::{AskedTag, Communicator, MessageConfig, MessageError, P2p, Protocol};
use active_messages::{Endpoint, Handlers, LossCause, Rank};
use nix::sys::signal::{Signal, raise};
use std::error::Error;

/// Bytes of the messages: more than the rings hold, and than is copied at once.
const LEN: usize = 3 << 20;

/// Polls of the victim before it is killed: none, a few, and enough to be amid the messages.
pub(crate) const POLLS: [u32; 4] = [0, 1, 4, 16];

/// What a message to or from the victim has come to: it is over, or names the victim and the tag.
fn ended<R>(victim: u32, tag: i32, outcome: Result<R, MessageError>) -> Result<Option<R>, Box<dyn Error>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(MessageError::Lost { rank, tag: told, cause, .. })
            if (rank, told, cause) == (Rank(victim), AskedTag(Some(tag)), LossCause::Died) =>
        {
            Ok(None)
        }
        Err(error) => Err(format!("a message of rank {victim} with tag {tag}: {error}").into()),
    }
}

/// One rank's part: the last one is the victim, and sends to all others and receives from them as it is killed.
pub(crate) fn play(protocol: &str, polls: u32, job: &RankJob) -> Result<(), Box<dyn Error>> {
    let protocol = Protocol::named(protocol).ok_or("no such protocol")?;
    let mut handlers = Handlers::<P2p>::new();
    let p2p = P2p::register_with(&mut handlers, MessageConfig::default().protocol(protocol))?;
    let mut endpoint = Endpoint::builder(join(job)?).timeout(Some(PATIENCE)).attach(handlers, p2p)?;
    let all = Communicator::world(&mut endpoint)?;
    let (me, victim) = (all.rank(), all.size() - 1);
    let without = all.split(&mut endpoint, (me != victim).then_some(0), 0)?;
    let own = vec![me as u8; LEN];
    let Some(without) = without else {
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for other in 0..victim {
            receives.push(all.immediate_receive::<_, _, u8>(&mut endpoint, other, 4, LEN)?);
            sends.push(all.immediate_send(&mut endpoint, other, 3, &own)?);
        }
        for _ in 0..polls {
            endpoint.poll()?;
        }
        raise(Signal::SIGKILL)?;
        return Err("the victim went on".into());
    };
    let receive = all.immediate_receive::<_, _, u8>(&mut endpoint, victim, 3, LEN)?;
    let send = all.immediate_send(&mut endpoint, victim, 4, &own)?;
    if let Some((bytes, _)) = ended(victim, 3, receive.wait(&mut endpoint))?
        && bytes != vec![victim as u8; LEN]
    {
        return Err("a message of the victim came as another one".into());
    }
    ended(victim, 4, send.wait(&mut endpoint))?;
    if ended(victim, 5, all.send(&mut endpoint, victim, 5, &own))?.is_some() {
        return Err("the victim has taken a message after its end".into());
    }
    if ended(victim, 6, all.receive_vec::<_, _, u8>(&mut endpoint, victim, 6))?.is_some() {
        return Err("a message has come from nowhere".into());
    }
    let (next, previous) = ((me + 1) % without.size(), (me + without.size() - 1) % without.size());
    let mut got = vec![0u8; LEN];
    without.send_receive_into(&mut endpoint, (next, 8), &own, (previous, 8), &mut got)?;
    if got != vec![previous as u8; LEN] {
        return Err("the survivors' message is another one".into());
    }
    endpoint.acknowledge_loss(Rank(victim));
    without.team().barrier(&mut endpoint)?;
    endpoint.drain()?;
    endpoint.leave();
    Ok(())
}
