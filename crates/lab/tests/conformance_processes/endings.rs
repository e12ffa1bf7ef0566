//! The ways in which a victim's process can end, what its peers must be told, and what its launcher must see.

use crate::ranks::{Party, Table, attach, join};
use active_messages::launch::{RankEnd, RankJob};
use active_messages::shm::Shm;
use active_messages::{AttachError, Endpoint, LossCause, PollError, Rank, WaitError};
use nix::sys::signal::{Signal, raise};
use std::error::Error;
use std::process::exit;

/// When a victim ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Before it has joined the job's memory.
    Unjoined,
    /// After joining, before attaching.
    Unattached,
    /// While the others wait.
    Attached,
    /// In a handler, while the others wait.
    InHandler,
}

/// A way to end.
pub(crate) struct Ending {
    pub(crate) name: &'static str,
    when: When,
    how: fn(),
    /// What the launcher sees.
    pub(crate) end: RankEnd,
    /// What the survivors are told.
    cause: LossCause,
}

fn kill() {
    raise(Signal::SIGKILL).expect("a process may kill itself");
}

fn panic() {
    // The message would only make people look for a fault.
    std::panic::set_hook(Box::new(|_| {}));
    panic!("on purpose");
}

/// All of them, apart from hanging.
pub(crate) const ENDINGS: [Ending; 11] = [
    Ending {
        name: "exits",
        when: When::Attached,
        how: || exit(7),
        end: RankEnd::Exited(7),
        cause: LossCause::Died,
    },
    Ending {
        name: "exits_well",
        when: When::Attached,
        how: || exit(0),
        end: RankEnd::Exited(0),
        cause: LossCause::Died,
    },
    Ending { name: "returns", when: When::Attached, how: || (), end: RankEnd::Exited(0), cause: LossCause::Left },
    Ending {
        name: "panics",
        when: When::Attached,
        how: panic,
        end: RankEnd::Exited(101),
        cause: LossCause::Panicked,
    },
    Ending { name: "killed", when: When::Attached, how: kill, end: RankEnd::Killed(9), cause: LossCause::Died },
    Ending {
        name: "exits_in_handler",
        when: When::InHandler,
        how: || exit(9),
        end: RankEnd::Exited(9),
        cause: LossCause::Died,
    },
    Ending {
        name: "panics_in_handler",
        when: When::InHandler,
        how: panic,
        end: RankEnd::Exited(101),
        cause: LossCause::Panicked,
    },
    Ending {
        name: "killed_in_handler",
        when: When::InHandler,
        how: kill,
        end: RankEnd::Killed(9),
        cause: LossCause::Died,
    },
    Ending {
        name: "exits_unattached",
        when: When::Unattached,
        how: || exit(5),
        end: RankEnd::Exited(5),
        cause: LossCause::Died,
    },
    Ending {
        name: "killed_unattached",
        when: When::Unattached,
        how: kill,
        end: RankEnd::Killed(9),
        cause: LossCause::Died,
    },
    Ending {
        name: "exits_unjoined",
        when: When::Unjoined,
        how: || exit(6),
        end: RankEnd::Exited(6),
        cause: LossCause::Died,
    },
];

/// One rank's part in an ending: the last rank is the victim, all others survive and check what they are told.
pub(crate) fn play(name: &str, job: &RankJob) -> Result<(), Box<dyn Error>> {
    let ending = ENDINGS.iter().find(|ending| ending.name == name).ok_or("no such ending")?;
    let victim = Rank(job.ranks() - 1);
    if job.rank() != victim {
        return survive(ending, victim, job);
    }
    if ending.when == When::Unjoined {
        (ending.how)();
    }
    let transport = join(job)?;
    if ending.when == When::Unattached {
        (ending.how)();
    }
    let (mut endpoint, table) = attach(transport, ending.how)?;
    if ending.when == When::InHandler {
        endpoint.request(Rank(0), table.ready, ())?;
        let outcome = endpoint.wait_until(|_| false);
        return Err(format!("the victim's wait ended with {outcome:?}").into());
    }
    (ending.how)();
    Ok(())
}

fn survive(ending: &Ending, victim: Rank, job: &RankJob) -> Result<(), Box<dyn Error>> {
    let expected = PollError::PeerLost { rank: victim, cause: ending.cause };
    let attached = attach(join(job)?, ending.how);
    let told = match ending.when {
        When::Unjoined | When::Unattached => match attached.err() {
            Some(AttachError::Wait(WaitError::Poll(error))) => error,
            other => return Err(format!("attaching ended with {other:?}, expected {expected:?}").into()),
        },
        When::Attached | When::InHandler => {
            let (mut endpoint, table) = attached?;
            if ending.when == When::InHandler && endpoint.rank() == Rank(0) {
                endpoint.wait_until(|party| party.ready == 1)?;
                endpoint.request(victim, table.fatal, ())?;
            }
            let told = wait_in_vain(&mut endpoint, &table, victim)?;
            let lost = endpoint.lost();
            if lost != [(victim, ending.cause)] {
                return Err(format!("lost ranks: {lost:?}").into());
            }
            endpoint.leave();
            told
        }
    };
    if told == expected { Ok(()) } else { Err(format!("told {told:?}, expected {expected:?}").into()) }
}

/// Waits for the victim: in a barrier, for a reply, or for room to send, depending on the rank.
fn wait_in_vain(
    endpoint: &mut Endpoint<Shm, Party>,
    table: &Table,
    victim: Rank,
) -> Result<PollError, Box<dyn Error>> {
    let outcome = match endpoint.rank().0 % 3 {
        0 => endpoint.barrier(),
        1 => endpoint.wait_until(|_| false),
        _ => loop {
            if let Err(error) = endpoint.request(victim, table.note, ()) {
                match error {
                    active_messages::SendError::Wait(error) => break Err(error),
                    other => return Err(other.into()),
                }
            }
        },
    };
    match outcome {
        Err(WaitError::Poll(error)) => Ok(error),
        other => Err(format!("the wait ended with {other:?}").into()),
    }
}
