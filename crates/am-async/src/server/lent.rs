//! Long requests that are read where their callers lend them.

use super::Server;
use crate::context::Environment;
use crate::coverage::Coverage;
use crate::lending::PIECE;
use crate::task::Phase;
use am_core::Address;
use am_core::transport::{Lent, LentFault};
use std::sync::Arc;

impl<W: Send + 'static> Server<W> {
    /// Reads a piece of each request that is lent; whether there was any, and whether any is left. `read` gets who
    /// lends it, where it lies, and the byte to begin with.
    pub(crate) fn read_lent(
        &mut self,
        world: &mut W,
        environment: &Arc<Environment<W>>,
        mut read: impl FnMut(Address, &Lent, u64, &mut [u8]) -> Result<(), LentFault>,
    ) -> (bool, bool) {
        let mut any = false;
        for _ in 0..self.reads.len() {
            let Some(key) = self.reads.pop_front() else { break };
            let Some(task) = self.tasks.get_mut(key) else { continue };
            let (from, len) = (task.from, task.bytes.len());
            let Phase::Reading { lent, at } = &mut task.phase else { continue };
            any = true;
            let end = len.min(*at + PIECE);
            match read(from, lent, *at as u64, &mut task.bytes[*at..end]) {
                Ok(()) if end < len => {
                    *at = end;
                    self.reads.push_back(key);
                }
                Ok(()) => self.has_come(key, world, environment),
                Err(_) => {
                    task.phase = Phase::Receiving { received: Coverage::default() };
                    self.grants.push_back(key);
                }
            }
        }
        (any, !self.reads.is_empty())
    }
}
