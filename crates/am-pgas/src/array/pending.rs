//! Operations on several ranks that are one call's: when it fails, none of them stays under way.

use am_core::one_sided::{OneSided, OneSidedError, Operation, Output, Unfinished};
use am_core::{Endpoint, HasLayer, SendError, Transport, WaitError};

/// Waits for operations and hands `sink` what each brings, with what is known of it. After an error, of a wait or
/// `before`, those that are left are waited for all the same, whoever else is lost, and what one had sent that
/// could not be sent in full, if it had begun when `begun` had before or later.
///
/// # Errors
/// The first error. After the endpoint's time-out nothing is waited for any more.
pub(super) fn finish<T: Transport, S: HasLayer<OneSided>, R: Output, K>(
    endpoint: &mut Endpoint<T, S>,
    begun: u64,
    operations: impl IntoIterator<Item = (Operation<R>, K)>,
    before: Result<(), OneSidedError>,
    mut sink: impl FnMut(&Endpoint<T, S>, R, K),
) -> Result<(), OneSidedError> {
    let (mut outcome, mut late) = (before, false);
    for (mut operation, known) in operations {
        if outcome.is_ok() {
            match endpoint.wait(operation) {
                Ok(brought) => {
                    sink(endpoint, brought, known);
                    continue;
                }
                Err(Unfinished { error, operation: unfinished, .. }) => {
                    (outcome, operation) = (Err(error), unfinished);
                }
            }
        }
        late |= outcome.as_ref().is_err_and(timed_out);
        if late {
            break;
        }
        match endpoint.settle(operation) {
            Ok(brought) => sink(endpoint, brought, known),
            Err(unfinished) if timed_out(&unfinished.error) => {
                late = true;
                break;
            }
            // It is over: its target is gone.
            Err(_) => {}
        }
    }
    if outcome.as_ref().is_err_and(|error| !late && !timed_out(error)) {
        // After a time-out it is not waited for any more.
        let _ = endpoint.settle_broken_off(begun);
    }
    outcome
}

fn timed_out(error: &OneSidedError) -> bool {
    matches!(
        error,
        OneSidedError::Wait(WaitError::TimedOut(_)) | OneSidedError::Send(SendError::Wait(WaitError::TimedOut(_)))
    )
}
