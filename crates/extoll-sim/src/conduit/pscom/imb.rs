//! PingPong and SendRecv as the Intel MPI Benchmarks measure them, and a one-way stream that shows the ring's
//! window.
//!
//! Two ranks on neighbouring nodes; the machine's [`ExtollConfig`] gives everything else. A few exchanges that are
//! not timed come first, so that connections are open. Times are virtual.

use super::config::{Plugin, PscomConfig};
use super::messenger::Messenger;
use crate::ExtollConfig;
use am_core::Span;
use fabric_sim::RunError;

/// Exchanges before the timed ones.
const WARM_UP: u32 = 2;

/// Timed exchanges of a size; fewer of large messages, which vary less.
fn repetitions(bytes: usize) -> u32 {
    (4 << 20).min((4 << 20) / bytes.max(1)).clamp(2, 20) as u32
}

/// The latency of messages in microseconds, for each size in bytes: half the time of a round trip.
///
/// ```
/// use extoll_sim::ExtollConfig;
/// use extoll_sim::conduit::pscom::{Plugin, PscomConfig, imb};
/// use extoll_sim::model::Parameters;
///
/// let machine = ExtollConfig { parameters: Parameters::deep(), ..ExtollConfig::pair() };
/// let table = imb::ping_pong(&machine, &PscomConfig::default(), Plugin::Velo, &[32, 64])?;
/// assert!((table[0].1 - 2.8).abs() < 0.05 && (table[1].1 - 3.5).abs() < 0.05, "{table:?}");
/// # Ok::<(), fabric_sim::RunError>(())
/// ```
///
/// # Errors
/// As [`run`](crate::run()), if the machine or pscom cannot be so.
pub fn ping_pong(
    machine: &ExtollConfig,
    pscom: &PscomConfig,
    plugin: Plugin,
    sizes: &[usize],
) -> Result<Vec<(usize, f64)>, RunError> {
    let spans = measure(machine, pscom, plugin, sizes, |messenger, data| {
        let other = 1 - messenger.rank();
        if messenger.rank() == 0 {
            messenger.send(other, 0, data).expect("the other rank is there");
            messenger.receive(Some(other), Some(0)).expect("the other rank answers");
        } else {
            messenger.receive(Some(other), Some(0)).expect("the other rank sends");
            messenger.send(other, 0, data).expect("the other rank is there");
        }
    })?;
    Ok(spans.into_iter().map(|(size, span)| (size, span / 2.0)).collect())
}

/// The throughput of SendRecv in MB/s (10^6 bytes, both directions together), for each size in bytes: both ranks
/// send and receive at the same time.
///
/// # Errors
/// As [`ping_pong`].
pub fn send_recv(
    machine: &ExtollConfig,
    pscom: &PscomConfig,
    plugin: Plugin,
    sizes: &[usize],
) -> Result<Vec<(usize, f64)>, RunError> {
    let spans = measure(machine, pscom, plugin, sizes, |messenger, data| {
        let other = 1 - messenger.rank();
        messenger.send_receive((other, 0), data, (Some(other), Some(0))).expect("the other rank is there");
    })?;
    Ok(spans.into_iter().map(|(size, span)| (size, 2.0 * size as f64 / span)).collect())
}

/// The throughput in MB/s of one message of `bytes` bytes that goes through the ring of an RMA connection chunk by
/// chunk, for each number of send buffers: the window of chunks that may be unreturned.
///
/// # Errors
/// As [`ping_pong`].
pub fn window(
    machine: &ExtollConfig,
    pscom: &PscomConfig,
    windows: &[u16],
    bytes: usize,
) -> Result<Vec<(u16, f64)>, RunError> {
    let mut curve = Vec::new();
    for window in windows {
        let mut pscom = PscomConfig { rendezvous: 0, ..pscom.clone() };
        pscom.ring.send_buffers = *window;
        let spans = measure(machine, &pscom, Plugin::Rma, &[bytes], |messenger, data| {
            // The empty answer tells the sender that all is there.
            if messenger.rank() == 0 {
                messenger.send(1, 0, data).expect("the other rank is there");
                messenger.receive(Some(1), Some(0)).expect("the other rank answers");
            } else {
                messenger.receive(Some(0), Some(0)).expect("the other rank sends");
                messenger.send(0, 0, &[]).expect("the other rank is there");
            }
        })?;
        curve.push((*window, bytes as f64 / spans[0].1));
    }
    Ok(curve)
}

/// The time of one exchange in microseconds, for each size.
fn measure(
    machine: &ExtollConfig,
    pscom: &PscomConfig,
    plugin: Plugin,
    sizes: &[usize],
    exchange: fn(&mut Messenger<'_>, &[u8]),
) -> Result<Vec<(usize, f64)>, RunError> {
    let pscom = PscomConfig { plugin, ..pscom.clone() };
    let machine = ExtollConfig { ranks: 2, ranks_per_node: 1, ..machine.clone() };
    pscom.check_on(&machine)?;
    let all = sizes.to_vec();
    let report = crate::run(&machine, move |nic| {
        let mut messenger = Messenger::new(&nic, &pscom);
        let timed = |messenger: &mut Messenger<'_>, size: usize| {
            let data = vec![0x5a; size];
            (0..WARM_UP).for_each(|_| exchange(messenger, &data));
            let (count, began) = (repetitions(size), messenger.now());
            (0..count).for_each(|_| exchange(messenger, &data));
            micros(messenger.now().since(began)) / f64::from(count)
        };
        let spans: Vec<f64> = all.iter().map(|size| timed(&mut messenger, *size)).collect();
        messenger.finish();
        spans
    })?;
    let spans = report.results.into_iter().next().flatten().unwrap_or_default();
    Ok(sizes.iter().copied().zip(spans).collect())
}

fn micros(span: Span) -> f64 {
    span.0 as f64 / 1e6
}
