//! The interface, through both implementations: every code that its calls can come to, and the lives of its
//! objects against a model; what only one implementation has, on that one.

mod codes;
mod combining;
mod config;
mod events;
mod life;
mod model;
mod processes;
