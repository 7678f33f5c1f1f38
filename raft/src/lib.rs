//! The consensus engine of pyjs-server: TiKV's `raft` with our own frames.
//!
//! `frame` and `entry` implement the format, `log` is the storage that the engine reads, `group` is one group,
//! `groups` has all groups of a node, `guard` catches panics, and `python` is the interface for Python.

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
