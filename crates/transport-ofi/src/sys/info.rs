//! What providers offer: a query of the library, and its answers as plain values.

use super::abi::{
    API_VERSION, FI_CONTEXT, FI_CONTEXT2, FI_DELIVERY_COMPLETE, FI_ENODATA, FI_EP_RDM, FI_MR_ALLOCATED,
    FI_MR_ENDPOINT, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_MSG, FI_MULTI_RECV, FI_ORDER_SAS,
    FI_RM_ENABLED, FI_RMA, FI_THREAD_DOMAIN, fi_info,
};
use super::handlers;
use super::library::Library;
use crate::error::OfiError;
use crate::provider::Offer;
use std::ffi::{CStr, CString, c_char};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// What is asked of the library.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Query<'a> {
    /// A provider's name, as libfabric filters by it.
    pub(crate) provider: Option<&'a str>,
}

/// The answers of the library to a query, freed when dropped.
pub(crate) struct Infos {
    library: &'static Library,
    first: *mut fi_info,
}

/// Frees an info.
struct Hints(&'static Library, *mut fi_info);

impl Drop for Hints {
    fn drop(&mut self) {
        // SAFETY: it came from `fi_dupinfo` and is freed once.
        unsafe { (self.0.freeinfo)(self.1) }
    }
}

impl Infos {
    /// Asks for endpoints that send reliable messages and write remote memory. May block while providers look
    /// around.
    ///
    /// # Errors
    /// [`OfiError::Call`]; no answer is no error.
    pub(crate) fn ask(library: &'static Library, query: Query<'_>) -> Result<Self, OfiError> {
        let asked = query.provider.unwrap_or("any");
        let failed = |call, code: i32| OfiError::Call {
            call,
            provider: asked.into(),
            code: code.abs(),
            reason: library.explain(code),
        };
        // SAFETY: of nothing it makes an empty info.
        let raw = unsafe { (library.dupinfo)(ptr::null()) };
        if raw.is_null() {
            return Err(failed("fi_dupinfo", libc::ENOMEM));
        }
        let hints = Hints(library, raw);
        // SAFETY: the empty info has all of its parts, and nobody else has it.
        let info = unsafe { &mut *hints.1 };
        info.caps = FI_MSG | FI_RMA;
        info.mode = FI_CONTEXT | FI_CONTEXT2;
        // SAFETY: as above, a part of its own.
        unsafe { (*info.ep_attr).r#type = FI_EP_RDM };
        // SAFETY: as above.
        unsafe { (*info.tx_attr).op_flags = FI_DELIVERY_COMPLETE };
        // SAFETY: as above.
        let domain = unsafe { &mut *info.domain_attr };
        domain.threading = FI_THREAD_DOMAIN;
        domain.mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
        if let Some(name) = query.provider {
            let bad = OfiError::Setting {
                name: "AM_FABRIC",
                value: name.escape_default().to_string(),
                expected: "the name of a provider",
            };
            let text = CString::new(name).map_err(|_| bad)?;
            // SAFETY: text that ends in a zero; the copy is the info's, which frees it with itself.
            let copy = unsafe { libc::strdup(text.as_ptr()) };
            // SAFETY: as above, a part of its own.
            unsafe { (*info.fabric_attr).prov_name = copy };
        }
        let mut first = ptr::null_mut();
        let answer = &raw mut first;
        // The first question has the library load its providers.
        let code = handlers::kept(|| {
            // SAFETY: hints and the place for the answer live through the call; no node, no service.
            unsafe { (library.getinfo)(API_VERSION, ptr::null(), ptr::null(), 0, hints.1, answer) }
        });
        match code.abs() {
            0 => Ok(Self { library, first }),
            FI_ENODATA => Ok(Self { library, first: ptr::null_mut() }),
            _ => Err(failed("fi_getinfo", code)),
        }
    }

    /// All answers in the library's order.
    pub(crate) fn offers(&self) -> Vec<Offer> {
        self.iter().map(offer).collect()
    }

    fn iter(&self) -> impl Iterator<Item = &fi_info> {
        // SAFETY: the list lives as long as `self`, and nobody changes it but `answer`, which needs `self` alone.
        let mut next = unsafe { self.first.as_ref() };
        std::iter::from_fn(move || {
            let info = next?;
            // SAFETY: as above.
            next = unsafe { info.next.as_ref() };
            Some(info)
        })
    }

    /// The answer of this number, with messages that complete when they are sent.
    pub(super) fn answer(&mut self, index: usize) -> *mut fi_info {
        let mut info = self.first;
        for _ in 0..index {
            // SAFETY: the number comes from the offers, so there are as many answers.
            info = unsafe { (*info).next };
        }
        assert!(!info.is_null(), "the number comes from the offers");
        // SAFETY: it is an answer of the list.
        let part = unsafe { (*info).tx_attr };
        // SAFETY: every answer has this part, and nobody reads it at the moment.
        unsafe { (*part).op_flags = 0 };
        info
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }
}

impl Drop for Infos {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: the list came from `fi_getinfo` and is freed once.
            unsafe { (self.library.freeinfo)(self.first) }
        }
    }
}

fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: a provider's text ends in a zero and lives as long as its info, which is borrowed by the caller.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

fn offer(info: &fi_info) -> Offer {
    // SAFETY: every answer of the library has all of its parts.
    let fabric = unsafe { &*info.fabric_attr };
    // SAFETY: as above.
    let domain = unsafe { &*info.domain_attr };
    // SAFETY: as above.
    let tx = unsafe { &*info.tx_attr };
    // SAFETY: as above.
    let rx = unsafe { &*info.rx_attr };
    // SAFETY: as above.
    let most = unsafe { (*info.ep_attr).max_msg_size };
    Offer {
        provider: text(fabric.prov_name),
        fabric: text(fabric.name),
        domain: text(domain.name),
        address: address(info),
        inject: tx.inject_size,
        sends: tx.size,
        receives: rx.size,
        largest: most,
        ordered: tx.msg_order & rx.msg_order & FI_ORDER_SAS != 0,
        managed: domain.resource_mgmt == FI_RM_ENABLED,
        several: info.caps & rx.caps & FI_MULTI_RECV != 0,
    }
}

/// The IP address that an endpoint would have, where it has one.
fn address(info: &fi_info) -> Option<IpAddr> {
    if info.src_addr.is_null() || info.src_addrlen < size_of::<libc::sockaddr_in>() {
        return None;
    }
    // FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6.
    if !(1..=3).contains(&info.addr_format) {
        return None;
    }
    // SAFETY: an address of these formats begins with its family.
    let family = unsafe { info.src_addr.cast::<libc::sa_family_t>().read_unaligned() };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: an address of this family and at least this length.
            let address = unsafe { info.src_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 if info.src_addrlen >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above.
            let address = unsafe { info.src_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}
