//! Documented constants under their published names, and types for numbers and bit sets.

pub mod access;
pub mod enable;
pub mod event;
pub mod info;
pub mod session;
pub mod status;
pub mod system;
pub mod types;
