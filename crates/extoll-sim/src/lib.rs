//! A simulated EXTOLL network interface.
#![forbid(unsafe_code)]
