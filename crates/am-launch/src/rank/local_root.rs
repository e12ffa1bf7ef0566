//! What rank 0 does in a launcher's place for ranks of one host that another launcher started: carries their exchanges, and
//! tells of those that end.

use std::io;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::control_links::{Allgather, ControlLinks};

/// How often a rank that does not take what it is told is tried again.
const AGAIN: Duration = Duration::from_millis(20);

/// Starts the thread that serves a job's ranks; `streams` lead to those from rank 1, in order. Returns rank 0's own link. The thread
/// ends when all ranks have hung up, or with the process.
///
/// # Errors
/// Those of the system.
pub(crate) fn begin(streams: Vec<UnixStream>) -> io::Result<UnixStream> {
    let (mut own, mut links) = (ControlLinks::default(), ControlLinks::default());
    let link = own.add()?;
    streams.into_iter().try_for_each(|stream| links.adopt(stream))?;
    thread::Builder::new().name("am-root".into()).stack_size(64 * 1024).spawn(move || serve(own, links))?;
    Ok(link.into())
}

/// Rank 0 is told last: its process, and this thread with it, may end once it knows everything.
fn serve(mut own: ControlLinks, mut links: ControlLinks) {
    let others = links.ends().count();
    let mut exchange = Allgather::new(others as u32 + 1);
    let mut open = vec![true; others];
    let mut held: Option<Vec<Vec<u8>>> = None;
    while own.is_open(0) || open.contains(&true) {
        let mut ends: Vec<PollFd<'_>> =
            own.ends().chain(links.ends()).map(|end| PollFd::new(end, PollFlags::POLLIN)).collect();
        let behind = own.is_behind() || links.is_behind();
        let nap =
            if behind { PollTimeout::try_from(AGAIN).unwrap_or(PollTimeout::ZERO) } else { PollTimeout::NONE };
        let _ = poll(&mut ends, nap);
        drop(ends);
        own.poll().into_iter().for_each(|(_, part)| exchange.note(0, part));
        links.poll().into_iter().for_each(|(place, part)| exchange.note(place as u32 + 1, part));
        let done = own.take_done().into_iter().map(|_| 0);
        let done: Vec<u32> = done.chain(links.take_done().into_iter().map(|place| place as u32 + 1)).collect();
        own.announce_done(&done);
        links.announce_done(&done);
        done.into_iter().for_each(|rank| exchange.lose(rank));
        let mut lost = Vec::new();
        for (place, open) in open.iter_mut().enumerate() {
            if *open && !links.is_open(place) {
                *open = false;
                if !links.has_left(place) {
                    lost.push(place as u32 + 1);
                }
            }
        }
        links.announce_failures(&lost);
        own.announce_failures(&lost);
        if let Some(parts) = exchange.complete() {
            links.answer(&parts);
            held = Some(parts);
        }
        if !links.is_behind()
            && let Some(parts) = held.take()
        {
            own.answer(&parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_links::{LauncherMessage, listen, send_part};
    use am_core::Rank;

    #[test]
    fn parts_and_losses_reach_everyone() {
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..2).map(|_| UnixStream::pair().unwrap()).unzip();
        let zero = begin(ours).unwrap();
        let [one, two] = theirs.try_into().unwrap();
        // The second rank ends before it takes part.
        drop(two);
        for (rank, link) in [(0, &zero), (1, &one)] {
            send_part(link, &[rank]).unwrap();
        }
        for link in [&zero, &one] {
            let mut received = Vec::new();
            listen(link, 3, |message| {
                received.push(message);
                if received.len() == 2 {
                    link.shutdown(std::net::Shutdown::Both).unwrap();
                }
            });
            received.sort_by_key(|message| matches!(message, LauncherMessage::Gathered(_)));
            assert_eq!(
                received,
                [
                    LauncherMessage::Failed(vec![Rank(2)]),
                    LauncherMessage::Gathered(vec![vec![0], vec![1], vec![]])
                ]
            );
        }
    }
}
