//! The consensus engine of pyjs-server: TiKV's `raft` behind frames of our own.
//!
//! `frame` and `entry` are the format, `log` what the engine reads, `group` one group, `groups` all of a node, `guard` catches
//! panics, `python` is the face to Python.

pub mod entry;
pub mod frame;
pub mod group;
pub mod groups;
pub mod guard;
pub mod log;
#[cfg(feature = "python")]
mod python;
#[cfg(test)]
mod tests;
