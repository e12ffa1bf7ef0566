//! Who a rank is, who is still there, and the parts of the contract that follow from that alone.

use crate::context::Context;
use crate::device::Device;
use am_core::transport::{FaultyPeers, WaitReason};
use am_core::{Peer, PeerStatus};

/// What a rank's conduit knows of itself and of who is there.
#[derive(Clone, Debug, Default)]
pub struct Presence {
    /// This rank.
    pub me: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// Peers that are lost for this rank alone.
    pub faulty: FaultyPeers,
    /// Something that lets a wait end has come since the last idling, without any message for the sink.
    pub fresh: bool,
    /// This rank has left.
    pub departed: bool,
    /// How many had departed when the rank last asked whether everything was handled.
    quiet_departures: u32,
}

impl Presence {
    /// Of a rank that has not left.
    pub fn new(me: u32, ranks: u32) -> Self {
        Self { me, ranks, ..Self::default() }
    }

    /// What is known of a peer without letting anything happen.
    #[inline]
    pub fn known_status<D: Device>(&self, context: &Context<'_, D>, peer: u32) -> PeerStatus {
        self.faulty.status(Peer(peer), || context.known_status(peer))
    }

    /// How many ranks are known to be lost, those among them that are lost for this rank alone.
    pub fn losses<D: Device>(&self, context: &Context<'_, D>) -> u32 {
        self.faulty.losses(context.losses(), |peer| context.known_status(peer.0))
    }

    /// Departures and faulty peers: as long as both stay, nobody else has gone.
    pub fn gone<D: Device>(&self, context: &Context<'_, D>) -> (u32, usize) {
        (context.departures(), self.faulty.len())
    }

    /// Notes who had departed when the rank asks whether everything was handled.
    pub fn ask_quiet<D: Device>(&mut self, context: &Context<'_, D>) {
        self.quiet_departures = context.departures();
    }

    /// Whether a wait for this reason may be over already, without a look at the interface. The end of a rank that
    /// comes between the question whether everything was handled and the idling wakes nobody.
    pub fn is_fresh<D: Device>(&mut self, context: &Context<'_, D>, reason: WaitReason) -> bool {
        if reason == WaitReason::Handling {
            context.sync();
            self.fresh |= context.departures() != self.quiet_departures;
        }
        std::mem::take(&mut self.fresh)
    }
}

/// What follows from a conduit's [`Presence`]: `Debug`; `known_status`, `busy`; leaving when it is dropped.
///
/// The conduit is a struct with a lifetime. It has a `nic` with `context` and `charge_empty_poll`, a `presence`,
/// and implements `Membership`.
#[macro_export]
macro_rules! presence {
    ($conduit:ident) => {
        impl ::std::fmt::Debug for $conduit<'_> {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let $crate::conduit::Presence { me, ranks, .. } = self.presence;
                f.debug_struct(stringify!($conduit))
                    .field("rank", &me)
                    .field("ranks", &ranks)
                    .finish_non_exhaustive()
            }
        }

        impl $conduit<'_> {
            /// What is known of a peer without letting anything happen.
            #[inline]
            pub(super) fn known_status(&self, peer: u32) -> ::am_core::PeerStatus {
                self.presence.known_status(self.nic.context(), peer)
            }

            /// A refusal for now. A program may try again at once; its time has to pass even so.
            pub(super) fn busy(&mut self, resource: ::am_core::Resource) -> ::am_core::transport::Refused {
                self.nic.charge_empty_poll();
                ::am_core::transport::Refused::Busy(resource)
            }
        }

        impl Drop for $conduit<'_> {
            fn drop(&mut self) {
                // Reached without a departure by a rank that never attached.
                if !self.presence.departed {
                    let how = ::am_core::transport::Departure::of_drop();
                    ::am_core::transport::Membership::depart(self, how);
                }
            }
        }
    };
}

/// `Membership` and `Waiting` of a conduit with a [`Presence`].
///
/// Besides what [`presence!`](crate::presence) wants, the conduit has the methods `pay_all`, which sends the
/// credits that are owed, `leave(PeerStatus)`, which tells the machine that the rank leaves, and
/// `rest(Option<Instant>, WaitReason)`, which idles unless something has come that lets the wait end.
#[macro_export]
macro_rules! membership {
    ($conduit:ident) => {
        impl ::am_core::transport::Membership for $conduit<'_> {
            fn local_peer(&self) -> ::am_core::Peer {
                ::am_core::Peer(self.presence.me)
            }

            fn shape(&self) -> ::am_core::Shape {
                ::am_core::Shape::new(self.presence.ranks)
            }

            fn losses(&self) -> u32 {
                self.presence.losses(self.nic.context())
            }

            fn status(&self, peer: ::am_core::Peer) -> ::am_core::PeerStatus {
                // Lets everything happen that has happened by now.
                self.nic.context().sync();
                self.known_status(peer.0)
            }

            fn depart(&mut self, how: ::am_core::transport::Departure) {
                self.pay_all();
                self.presence.departed = true;
                self.leave(how.status());
            }
        }

        impl ::am_core::transport::Waiting for $conduit<'_> {
            fn idle(&mut self, until: Option<::am_core::Instant>, reason: ::am_core::transport::WaitReason) {
                self.pay_all();
                self.rest(until, reason);
            }

            fn now(&self) -> ::am_core::Instant {
                self.nic.now()
            }

            fn charge(&mut self, cost: ::am_core::Span) {
                self.nic.charge(cost);
            }
        }
    };
}

/// What every conduit's `Transport` has alike, within its `impl`: `Memory`, `limits`, `reply_detached`, `segment`,
/// `segment_len`, `bare_credits`.
///
/// The conduit has the fields `limits`, `segment` and `bare_given`; `ConduitReplyPath::of_key` makes a reply path
/// of a key.
#[macro_export]
macro_rules! transport_items {
    () => {
        type Memory = $crate::HostMemory;

        fn limits(&self, _: ::am_core::Peer) -> &::am_core::Limits {
            &self.limits
        }

        fn reply_detached<R>(
            &mut self,
            key: ::am_core::transport::PendingKey,
            reply: impl FnOnce(&mut dyn ::am_core::transport::ReplyPath) -> R,
        ) -> R {
            reply(&mut ConduitReplyPath::of_key(self, key))
        }

        fn segment(&self) -> &::am_core::Segment<$crate::HostMemory> {
            &self.segment
        }

        fn segment_len(&self, _: ::am_core::Rank) -> u64 {
            self.segment.len() as u64
        }

        fn bare_credits(&self) -> u64 {
            self.bare_given
        }
    };
}
