//! The options of Portals 4.

use std::fmt;
use std::ops::BitOr;

macro_rules! options {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $option:ident = $bit:expr,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(u32);

        impl $name {
            /// None of them.
            pub const NONE: Self = Self(0);
            $($(#[$inner])* pub const $option: Self = Self(1 << $bit);)*

            /// Whether all of `options` are set.
            #[inline]
            pub const fn has(self, options: Self) -> bool {
                self.0 & options.0 == options.0
            }
        }

        impl BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let names = [$((Self::$option, stringify!($option))),*];
                let set = names.into_iter().filter(|(option, _)| self.has(*option));
                f.debug_set().entries(set.map(|(_, name)| name)).finish()
            }
        }
    };
}

options! {
    /// Options of a memory descriptor.
    MdOptions {
        /// `PTL_MD_EVENT_SUCCESS_DISABLE`: only failures make events.
        EVENT_SUCCESS_DISABLE = 0,
        /// `PTL_MD_EVENT_SEND_DISABLE`: no send events.
        EVENT_SEND_DISABLE = 1,
        /// `PTL_MD_EVENT_CT_SEND`: the counter counts sends.
        EVENT_CT_SEND = 2,
        /// `PTL_MD_EVENT_CT_REPLY`: the counter counts replies.
        EVENT_CT_REPLY = 3,
        /// `PTL_MD_EVENT_CT_ACK`: the counter counts acknowledgements.
        EVENT_CT_ACK = 4,
        /// `PTL_MD_EVENT_CT_BYTES`: the counter counts bytes, not operations.
        EVENT_CT_BYTES = 5,
    }
}

options! {
    /// Options of a match entry or list entry.
    MeOptions {
        /// `PTL_ME_OP_PUT`: responds to puts and atomic operations.
        OP_PUT = 0,
        /// `PTL_ME_OP_GET`: responds to gets; fetching atomic operations want both.
        OP_GET = 1,
        /// `PTL_ME_MANAGE_LOCAL`: each operation goes behind the one before. Without it the initiator says where.
        MANAGE_LOCAL = 2,
        /// `PTL_ME_NO_TRUNCATE`: what is too long does not match. Without it it is cut off.
        NO_TRUNCATE = 3,
        /// `PTL_ME_MAY_ALIGN`: operations may be put to aligned places: the interface takes multiples of 8.
        MAY_ALIGN = 4,
        /// `PTL_ME_USE_ONCE`: the entry is unlinked when it has matched.
        USE_ONCE = 5,
        /// `PTL_ME_ACK_DISABLE`: success is not acknowledged.
        ACK_DISABLE = 6,
        /// `PTL_ME_EVENT_COMM_DISABLE`: no events of operations.
        EVENT_COMM_DISABLE = 7,
        /// `PTL_ME_EVENT_OVER_DISABLE`: no events of unexpected headers that it matches.
        EVENT_OVER_DISABLE = 8,
        /// `PTL_ME_EVENT_SUCCESS_DISABLE`: only failures make events.
        EVENT_SUCCESS_DISABLE = 9,
        /// `PTL_ME_EVENT_LINK_DISABLE`: no event when it has been linked.
        EVENT_LINK_DISABLE = 10,
        /// `PTL_ME_EVENT_UNLINK_DISABLE`: no events when it unlinks itself.
        EVENT_UNLINK_DISABLE = 11,
        /// `PTL_ME_EVENT_CT_COMM`: the counter counts operations.
        EVENT_CT_COMM = 12,
        /// `PTL_ME_EVENT_CT_OVERFLOW`: the counter counts unexpected headers that it matches.
        EVENT_CT_OVERFLOW = 13,
        /// `PTL_ME_EVENT_CT_BYTES`: the counter counts bytes, not operations.
        EVENT_CT_BYTES = 14,
        /// `PTL_ME_UNEXPECTED_HDR_DISABLE`: in the overflow list: no unexpected headers.
        UNEXPECTED_HDR_DISABLE = 15,
    }
}

options! {
    /// Options of a portal table entry.
    PtOptions {
        /// `PTL_PT_ONLY_USE_ONCE`: takes entries in its priority list only with [`MeOptions::USE_ONCE`].
        ONLY_USE_ONCE = 0,
        /// `PTL_PT_FLOWCTRL`: disables itself when it lacks match entries, unexpected headers or room in its event
        /// queue: it keeps four places, for the events of a message, of unlinking and freeing its entry, and of
        /// disabling itself.
        FLOWCTRL = 1,
        /// `PTL_PT_ALLOC_DISABLED`: begins disabled.
        ALLOC_DISABLED = 2,
    }
}
