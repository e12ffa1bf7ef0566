//! Two ranks of a machine: control packets, writes, two-sided messages, and round trips of active messages. Each
//! function runs a simulation and tells virtual time in microseconds.

use active_messages::{Category, Endpoint, HandlerError, Handlers, Instant, Rank, Span};
use exanet_sim::ExanetConfig;
use exanet_sim::conduit::{self, ConduitConfig};
use exanet_sim::mpi::{self, Counts, Mpi, MpiConfig, MpiError, WORLD};
use exanet_sim::nic::{Access, HostMemory, Notify, Paging, Progress};
use fabric_sim::{RunError, WaitFor};

fn micros(picos: u64) -> f64 {
    picos as f64 * 1e-6
}

/// A control packet of 64 bytes from rank 0 to the rank of this number, from the call into the receiver's hands.
///
/// # Errors
/// The machine cannot be, or has no such rank.
pub fn packet_us(machine: &ExanetConfig, to: u32) -> Result<f64, RunError> {
    let report = exanet_sim::run(machine, move |nic| {
        nic.open();
        nic.sync();
        if nic.rank() == 0 {
            let address = nic.address(to).expect("the machine has that rank");
            nic.pkt_send(address, &[7; 64]).expect("the first packet finds a channel");
        }
        while nic.rank() == to && nic.mbox_poll().is_none() {
            nic.idle(None, WaitFor::Arrival);
        }
        nic.now().0
    })?;
    Ok(micros(report.results[to as usize].unwrap_or_default()))
}

/// A write from rank 0 to rank 1, from the call until the receiver has noticed it, and until its sender knows the
/// end.
///
/// # Errors
/// The machine cannot be.
pub fn write_us(machine: &ExanetConfig, bytes: u32) -> Result<(f64, f64), RunError> {
    let report = exanet_sim::run(machine, move |nic| {
        let note = u64::from(bytes.next_multiple_of(8));
        let memory = HostMemory::new(note as usize + 8);
        nic.open();
        nic.map(0, &memory, Access::ReadWrite, Paging::Pinned).expect("nothing else is mapped");
        nic.sync();
        if nic.rank() == 0 {
            let to = nic.address(1).expect("the machine has two ranks");
            let notify = Some(Notify { at: note, value: 1 });
            let write = nic.rdma_write(0, to, 0, bytes.into(), notify).expect("the first write finds room");
            while nic.rdma_poll(write) == Ok(Progress::Pending) {
                nic.idle(None, WaitFor::Named("the end of the write"));
            }
        }
        while nic.rank() == 1 && !nic.notified(&memory, note as usize, 1) {
            nic.idle(None, WaitFor::Named("the notification"));
        }
        nic.now().0
    })?;
    let at = |rank: usize| micros(report.results[rank].unwrap_or_default());
    Ok((at(1), at(0)))
}

/// When the receive of a message is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// So long before that its advertisement is there when the message is sent.
    Before,
    /// When the message is sent.
    AtOnce,
}

/// A two-sided message from rank 0 to rank 1, from the beginning of the send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Until its receiver has it, in microseconds.
    pub receiver_us: f64,
    /// Until its sender is done, in microseconds.
    pub sender_us: f64,
    /// What both have sent for it.
    pub counts: Counts,
}

/// Room of a receive, so that all are long ones.
const ROOM: u64 = 1 << 17;

/// Sends a message of at most 128 KiB to a receive of so many.
///
/// # Errors
/// The machine or the settings cannot be.
pub fn transfer(
    machine: &ExanetConfig,
    config: &MpiConfig,
    bytes: u32,
    posted: Posted,
) -> Result<Transfer, RunError> {
    let machine = ExanetConfig { ranks: 2, ..machine.clone() };
    let report = mpi::run(&machine, config, move |mpi| {
        let took = ends(mpi, bytes.into(), posted)?;
        // Senders answer what comes of their messages after they are done.
        mpi.barrier()?;
        let mut counts = mpi.counts();
        counts.eager -= 1;
        Ok((took, counts))
    })?;
    let mut results = report.results.into_iter();
    let mut result = || match results.next() {
        Some(Some(Ok(result))) => result,
        other => panic!("nothing is lost in this program: {other:?}"),
    };
    let ((sender, of_sender), (receiver, of_receiver)) = (result(), result());
    Ok(Transfer { receiver_us: micros(receiver), sender_us: micros(sender), counts: of_sender.and(&of_receiver) })
}

/// How long a rank's side of a message takes, in picoseconds.
fn ends(mpi: &mut Mpi<'_>, bytes: u64, posted: Posted) -> Result<u64, MpiError> {
    const START: Instant = Instant(50_000_000);
    let buffer = mpi.buffer(ROOM as usize);
    if mpi.rank() == 0 {
        // What has come until then is out of the way.
        mpi.compute(Span::from_micros(25));
        while mpi.progress() {}
        mpi.compute(START.since(mpi.now()));
        mpi.send(WORLD, 1, 3, &buffer, 0..bytes)?;
        return Ok(mpi.now().since(START).0);
    }
    let wait = |mpi: &mut Mpi<'_>| mpi.compute(START.since(mpi.now()));
    if posted == Posted::AtOnce {
        wait(mpi);
    }
    let request = mpi.receive_begin(WORLD, Some(0), Some(3), &buffer, 0..ROOM)?;
    wait(mpi);
    mpi.wait(request)?;
    Ok(mpi.now().since(START).0)
}

/// Half a round trip of active messages between ranks 0 and 1, with so many bytes each way.
///
/// # Errors
/// The machine cannot be.
pub fn one_way_us(machine: &ExanetConfig, category: Category, bytes: u32) -> Result<f64, RunError> {
    const ROUNDS: u32 = 20;
    let machine = ExanetConfig { ranks: 2, ..machine.clone() };
    let config = ConduitConfig { segment: u64::from(bytes).max(1 << 16), ..ConduitConfig::default() };
    let report = conduit::run(&machine, &config, move |transport| {
        let mut handlers = Handlers::<u32>::new();
        let payload = vec![7; bytes as usize];
        let back = payload.clone();
        let pong = handlers.reply("pong", |rounds, _, (): (), _| *rounds += 1).expect("the name is free");
        let ping = handlers.request_largest("ping", move |_, token, (): (), _| -> Result<(), HandlerError> {
            match category {
                Category::Short => token.reply(pong, ())?,
                Category::Medium => token.reply_medium(pong, (), &back)?,
                Category::Long => token.reply_long(pong, (), &back, 0)?,
            }
            Ok(())
        });
        let ping = ping.expect("the name is free");
        let mut endpoint = Endpoint::attach(transport, handlers, 0).expect("both ranks attach");
        let mut began = endpoint.now();
        for round in 0..if endpoint.rank() == Rank(0) { ROUNDS + 2 } else { 0 } {
            if round == 2 {
                began = endpoint.now();
            }
            let sent = match category {
                Category::Short => endpoint.request(Rank(1), ping, ()),
                Category::Medium => endpoint.request_medium(Rank(1), ping, (), &payload),
                Category::Long => endpoint.request_long(Rank(1), ping, (), &payload, 0),
            };
            sent.expect("the other rank is there");
            endpoint.wait_until(|rounds| *rounds == round + 1).expect("the other rank answers");
        }
        let took = endpoint.now().since(began).0;
        endpoint.finish().expect("both ranks end");
        took
    })?;
    Ok(micros(report.results[0].unwrap_or_default()) / f64::from(2 * ROUNDS))
}
