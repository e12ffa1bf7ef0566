//! Active messages on the interface.
