//! The runs of a sweep, several at a time: each is simulated by one thread, and no two have anything in common.

use super::Failure;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Makes a run of each item, `jobs` at a time, and returns what they bring in the order of the items. `run` gets
/// an item and whether it is the last one.
///
/// # Errors
/// That of the first item, in their order, whose run fails.
pub(crate) fn sweep<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    run: impl Fn(&T, bool) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let next = AtomicUsize::new(0);
    let brought: Vec<Mutex<Option<Result<R, Failure>>>> = items.iter().map(|_| Mutex::default()).collect();
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(place) else { return };
            let result = run(item, place + 1 == items.len());
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
        for jobs in [1, 2, 64] {
            let doubled = sweep(&items, jobs, |item, last| Ok((2 * item, last))).expect("no run fails");
            assert!(doubled.iter().zip(&items).all(|(run, item)| *run == (2 * item, *item == 19)), "{doubled:?}");
            let failing = |item: &u32, _| match item {
                7 | 8 => Err(Failure::Simulation(item.to_string())),
                _ => Ok(()),
            };
            assert_eq!(sweep(&items, jobs, failing).expect_err("two fail").to_string(), "7");
        }
        assert_eq!(sweep(&[] as &[u32], 2, |_, _| Ok(())).expect("nothing fails"), []);
    }
}
