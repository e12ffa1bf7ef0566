//! Misuses that the types rule out. For each: the program with its misuse, which must fail to compile with the
//! marked error, and the same program without the marked lines, which must compile. Documentation tests run them;
//! the library does not contain this module.

mod arguments;
mod endpoints;
mod layers;
mod memory;
mod tokens;
