//! Tests of the engine without Python.

mod frames;
mod groups;
