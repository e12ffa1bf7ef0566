//! Methods of a transport around another one that it passes on.

/// Methods of [`Membership`](crate::transport::Membership), [`Waiting`](crate::transport::Waiting) and
/// [`Transport`](crate::Transport) that a transport around another one passes on unchanged: stands within an
/// `impl` and names the field that holds the other one, and the methods.
///
/// ```
/// use am_core::loopback::Loopback;
/// use am_core::transport::{Departure, Membership};
///
/// struct Counting {
///     inner: Loopback,
///     departures: u32,
/// }
///
/// impl Membership for Counting {
///     am_core::forward!(inner: local_peer, shape, losses, status, is_fork);
///     fn depart(&mut self, how: Departure) {
///         self.departures += 1;
///         self.inner.depart(how);
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward {
    ($inner:ident: $($method:ident),+ $(,)?) => { $($crate::forward!(@$method $inner);)+ };

    (@local_peer $inner:ident) => { $crate::forward!(& $inner local_peer() -> $crate::Peer); };
    (@shape $inner:ident) => { $crate::forward!(& $inner shape() -> $crate::Shape); };
    (@losses $inner:ident) => { $crate::forward!(& $inner losses() -> u32); };
    (@status $inner:ident) => { $crate::forward!(& $inner status(peer: $crate::Peer) -> $crate::PeerStatus); };
    (@writes_no_more $inner:ident) => { $crate::forward!(& $inner writes_no_more(peer: $crate::Peer) -> bool); };
    (@is_fork $inner:ident) => { $crate::forward!(& $inner is_fork() -> bool); };
    (@all_depart $inner:ident) => { $crate::forward!(&mut $inner all_depart() -> ()); };
    (@depart $inner:ident) => { $crate::forward!(&mut $inner depart(how: $crate::transport::Departure) -> ()); };

    (@idle $inner:ident) => {
        $crate::forward!(&mut $inner idle(
            until: Option<$crate::Instant>,
            reason: $crate::transport::WaitReason
        ) -> ());
    };
    (@idle_unless $inner:ident) => {
        $crate::forward!(&mut $inner idle_unless(
            until: Option<$crate::Instant>,
            reason: $crate::transport::WaitReason,
            changed: &mut dyn FnMut() -> bool
        ) -> ());
    };
    (@wake_peer $inner:ident) => { $crate::forward!(&mut $inner wake_peer(peer: $crate::Peer) -> ()); };
    (@spins $inner:ident) => { $crate::forward!(& $inner spins() -> bool); };
    (@waker $inner:ident) => { $crate::forward!(& $inner waker() -> Option<::std::task::Waker>); };
    (@notify $inner:ident) => {
        $crate::forward!(&mut $inner notify(waker: &::std::task::Waker) -> $crate::transport::Notify);
    };
    (@descriptor $inner:ident) => {
        $crate::forward!(&mut $inner descriptor() -> Option<::std::os::fd::OwnedFd>);
    };
    (@notify_readable $inner:ident) => {
        $crate::forward!(&mut $inner notify_readable(waker: &::std::task::Waker) -> $crate::transport::Notify);
    };
    (@end_notify $inner:ident) => { $crate::forward!(&mut $inner end_notify() -> ()); };
    (@now $inner:ident) => { $crate::forward!(& $inner now() -> $crate::Instant); };
    (@charge $inner:ident) => { $crate::forward!(&mut $inner charge(cost: $crate::Span) -> ()); };

    (@limits $inner:ident) => { $crate::forward!(& $inner limits(peer: $crate::Peer) -> &$crate::Limits); };
    (@send $inner:ident) => {
        $crate::forward!(&mut $inner send(
            to: $crate::Peer,
            head: $crate::transport::RequestHeader,
            args: &$crate::Words,
            body: $crate::transport::Body<'_>
        ) -> Result<(), $crate::transport::Refused>);
    };
    (@reserve $inner:ident) => {
        $crate::forward!(&mut $inner reserve(
            to: $crate::Peer,
            head: $crate::transport::RequestHeader,
            args: &$crate::Words,
            len: usize
        ) -> Result<Self::Room, $crate::transport::Refused>);
    };
    (@slot $inner:ident) => {
        $crate::forward!(&mut $inner slot(
            to: $crate::Peer,
            head: $crate::transport::RequestHeader,
            args: &$crate::Words,
            len: usize,
            room: Self::Room
        ) -> Self::Slot<'_>);
    };
    (@control $inner:ident) => {
        $crate::forward!(&mut $inner control(
            to: $crate::Peer,
            args: &$crate::Words,
            payload: &[u8]
        ) -> Result<(), $crate::transport::Refused>);
    };
    (@poll $inner:ident) => {
        fn poll<S: $crate::transport::Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
            self.$inner.poll(budget, sink)
        }
    };
    (@may_deliver $inner:ident) => { $crate::forward!(&mut $inner may_deliver() -> bool); };
    (@polls_per_sweep $inner:ident) => { $crate::forward!(& $inner polls_per_sweep() -> u32); };
    (@reply_detached $inner:ident) => {
        fn reply_detached<R>(
            &mut self,
            key: $crate::transport::PendingKey,
            reply: impl FnOnce(&mut dyn $crate::transport::ReplyPath) -> R,
        ) -> R {
            self.$inner.reply_detached(key, reply)
        }
    };
    (@flush $inner:ident) => { $crate::forward!(&mut $inner flush() -> ()); };
    (@is_quiescent $inner:ident) => { $crate::forward!(&mut $inner is_quiescent() -> bool); };
    (@segment $inner:ident) => { $crate::forward!(& $inner segment() -> &$crate::Segment<Self::Memory>); };
    (@segment_len $inner:ident) => { $crate::forward!(& $inner segment_len(rank: $crate::Rank) -> u64); };
    (@remote_segment $inner:ident) => {
        $crate::forward!(& $inner remote_segment(rank: $crate::Rank) -> Option<&$crate::Segment<Self::Memory>>);
    };
    (@reads_lent $inner:ident) => { $crate::forward!(&mut $inner reads_lent(of: $crate::Peer) -> bool); };
    (@read_lent $inner:ident) => {
        $crate::forward!(&mut $inner read_lent(
            of: $crate::Peer,
            lent: &$crate::transport::Lent,
            at: u64,
            out: &mut [u8]
        ) -> Result<(), $crate::transport::LentFault>);
    };
    (@auxiliary $inner:ident) => {
        $crate::forward!(& $inner auxiliary(of: $crate::Peer) -> Option<$crate::Segment<$crate::AnyMemory>>);
    };
    (@native $inner:ident) => {
        $crate::forward!(&mut $inner native(
            to: $crate::Peer
        ) -> Option<(&mut dyn $crate::transport::NativeOneSided, $crate::Peer)>);
    };
    (@credits $inner:ident) => {
        $crate::forward!(& $inner credits(peer: $crate::Peer) -> $crate::transport::CreditSnapshot);
    };
    (@owed $inner:ident) => {
        $crate::forward!(& $inner owed(peer: $crate::Peer) -> Option<$crate::transport::Owed>);
    };
    (@bare_credits $inner:ident) => { $crate::forward!(& $inner bare_credits() -> u64); };

    (&mut $inner:ident $method:ident($($name:ident: $type:ty),*) -> $result:ty) => {
        fn $method(&mut self, $($name: $type),*) -> $result { self.$inner.$method($($name),*) }
    };
    (& $inner:ident $method:ident($($name:ident: $type:ty),*) -> $result:ty) => {
        fn $method(&self, $($name: $type),*) -> $result { self.$inner.$method($($name),*) }
    };
}
