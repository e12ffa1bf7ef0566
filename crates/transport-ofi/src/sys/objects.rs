//! The objects of libfabric that an endpoint consists of: how they are reached, registered and closed.

use super::abi::{FI_ENABLE, fid, fid_av, fid_cq, fid_domain, fid_ep, fid_fabric, fid_mr};
use super::library::Library;
use crate::error::OfiError;
use std::ffi::c_int;
use std::ptr;

/// The objects of libfabric, closed in the order that it wants.
pub(super) struct Objects {
    pub(super) fabric: *mut fid_fabric,
    pub(super) domain: *mut fid_domain,
    pub(super) av: *mut fid_av,
    pub(super) cq: *mut fid_cq,
    pub(super) ep: *mut fid_ep,
    /// The segment, frames, chunks, slots.
    pub(super) mrs: [*mut fid_mr; 4],
    /// Whether registrations belong to the endpoint and have to go before it.
    pub(super) bound: bool,
    pub(super) closed: bool,
}

/// What an object of the library points to: its table of functions, or a part.
///
/// # Safety
/// The object has to be open, and stay so for as long as the result is used.
pub(super) unsafe fn table<'a, O: 'a, T>(object: *const O, part: impl FnOnce(&O) -> *const T) -> &'a T {
    // SAFETY: the caller says that it is open.
    let object = unsafe { &*object };
    // SAFETY: every open object has what its declaration points to; nobody changes that.
    unsafe { &*part(object) }
}

fn close(object: *mut fid) -> bool {
    if object.is_null() {
        return true;
    }
    // SAFETY: the object is open, and every object has its table.
    let close = unsafe { table(object, |object| object.ops) }.close;
    // SAFETY: it is closed once: its owner forgets it.
    unsafe { close(object) == 0 }
}

impl Objects {
    pub(super) const fn none() -> Self {
        let (fabric, domain, av) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let (cq, ep, mrs) = (ptr::null_mut(), ptr::null_mut(), [ptr::null_mut(); 4]);
        Self { fabric, domain, av, cq, ep, mrs, bound: false, closed: false }
    }

    /// Closes everything; whether the provider has let go of all buffers.
    pub(super) fn close(&mut self) -> bool {
        if std::mem::replace(&mut self.closed, true) {
            return true;
        }
        let regions = |mrs: &[*mut fid_mr]| mrs.iter().fold(true, |done, region| close(region.cast()) & done);
        let mut done = !self.bound || regions(&self.mrs);
        done &= close(self.ep.cast());
        done &= self.bound || regions(&self.mrs);
        done &= close(self.cq.cast()) & close(self.av.cast());
        done & close(self.domain.cast()) & close(self.fabric.cast())
    }
}

impl Objects {
    /// Registers the beginning of a region; keys are asked for by number where the provider does not choose them.
    pub(super) fn register(
        &mut self,
        check: &Check<'_>,
        index: usize,
        (start, len): (*mut u8, usize),
        access: u64,
    ) -> Result<(), OfiError> {
        let domain: *mut fid_domain = self.domain;
        // SAFETY: the domain is open and has its table.
        let reg = unsafe { table(domain, |object| object.mr) }.reg;
        let (start, key) = (start.cast_const().cast(), index as u64 + 1);
        let mr = &raw mut self.mrs[index];
        // SAFETY: the region outlives the registration, which `Port` closes first.
        let code = unsafe { reg(domain.cast(), start, len, access, 0, key, 0, mr, ptr::null_mut()) };
        check.of("fi_mr_reg", code)?;
        if self.bound {
            let mr: *mut fid = self.mrs[index].cast();
            // SAFETY: the registration is open and has its table.
            let common = unsafe { table(mr, |object| object.ops) };
            // SAFETY: both objects are open.
            let code = unsafe { (common.bind)(mr, self.ep.cast(), 0) };
            check.of("fi_mr_bind", code)?;
            // SAFETY: the registration is open; this command takes no argument.
            let code = unsafe { (common.control)(mr, FI_ENABLE, ptr::null_mut()) };
            check.of("fi_mr_enable", code)?;
        }
        Ok(())
    }
}

/// Turns a result of the library into an error.
pub(super) struct Check<'a> {
    pub(super) library: &'static Library,
    pub(super) provider: &'a str,
}

impl Check<'_> {
    pub(super) fn of(&self, call: &'static str, code: c_int) -> Result<(), OfiError> {
        match code {
            0.. => Ok(()),
            _ => {
                let (provider, reason) = (self.provider.into(), self.library.explain(code));
                Err(OfiError::Call { call, provider, code: code.abs(), reason })
            }
        }
    }
}
