//! Where: processors of the machine and the one that runs this thread.

/// Processors that may ever be there (the highest possible index plus one), at most [`crate::abi::MAX_CPUS`].
#[must_use]
pub fn possible() -> u16 {
    todo!()
}

/// The processor that runs this thread right now.
#[must_use]
pub fn current() -> u32 {
    todo!()
}
