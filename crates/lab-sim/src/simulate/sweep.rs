//! The runs of a sweep, several at a time: each is simulated by one thread, and no two have anything in common.

use super::Failure;
use machine_sim::MachineConfig;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Makes a run of each item, `jobs` at a time, and returns what they bring in the order of the items. `run` gets
/// the machine, an item and whether it is the last one. Only the last run is traced, if the machine asks for it:
/// nobody would see the other traces.
///
/// # Errors
/// That of the first item, in their order, whose run fails.
pub(crate) fn sweep<T: Sync, R: Send>(
    machine: &MachineConfig,
    items: &[T],
    jobs: usize,
    run: impl Fn(&MachineConfig, &T, bool) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let untraced = MachineConfig { trace: false, ..machine.clone() };
    let next = AtomicUsize::new(0);
    let brought: Vec<Mutex<Option<Result<R, Failure>>>> = items.iter().map(|_| Mutex::default()).collect();
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(place) else { return };
            let last = place + 1 == items.len();
            let result = run(if last { machine } else { &untraced }, item, last);
            if result.is_err() {
                // Those before it have begun, so that the first failure is the same however many run at a time.
                next.store(items.len(), Ordering::Relaxed);
            }
            *brought[place].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    thread::scope(|scope| {
        (1..jobs.min(items.len())).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    // What was not begun is behind a failure.
    brought.into_iter().map_while(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_failures_come_in_order() {
        let items: Vec<u32> = (0..20).collect();
        let machine = MachineConfig { trace: true, ..machine_sim::crossbar(2) };
        for jobs in [1, 2, 64] {
            let run = |machine: &MachineConfig, item: &u32, last| Ok((2 * item, last, machine.trace));
            let runs = sweep(&machine, &items, jobs, run).expect("no run fails");
            let expected = items.iter().map(|item| (2 * item, *item == 19, *item == 19));
            assert!(expected.eq(runs.iter().copied()), "only the last run is traced: {runs:?}");
            let failing = |_: &MachineConfig, item: &u32, _| match item {
                7 | 8 => Err(Failure::Simulation(item.to_string())),
                _ => Ok(()),
            };
            assert_eq!(sweep(&machine, &items, jobs, failing).expect_err("two fail").to_string(), "7");
        }
        assert_eq!(sweep(&machine, &[] as &[u32], 2, |_, _, _| Ok(())).expect("nothing fails"), []);
    }
}
