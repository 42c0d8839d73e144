//! Writing from data descriptors, for the C interface.
//!
//! `unsafe` is allowed here because C programs describe their data by addresses.
#![allow(unsafe_code)]

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;

use super::{DataDescriptor, ProviderRef, WriteError};
use crate::event::CallerEvent;
use crate::write::{self, Options};

impl ProviderRef {
    /// Writes an event from C's data descriptors (EventWrite, EventWriteTransfer, EventWriteEx).
    ///
    /// The enable state is checked first, then the parameters. [`WriteError::InvalidParameter`]
    /// has these causes:
    ///
    /// * more than [`MAX_BLOCKS`](super::MAX_BLOCKS) blocks
    /// * a block with a size but no address
    /// * `flags` other than those of [`EventBuilder::flags`](super::EventBuilder::flags)
    /// * if the data descriptors of the provider have types: a type of 4 or more, two blocks of one
    ///   of the types 1 to 3, or a time stamp that does not have 8 bytes
    ///
    /// This is for the C interface: the function is inlined into its caller, and the call stack of
    /// the event begins at the code that called the C function.
    ///
    /// # Safety
    ///
    /// Each block's address is NULL or points to as many bytes as the block's size states, which
    /// are readable and do not change during the call.
    #[inline(always)]
    pub unsafe fn write_descriptors(
        &self,
        descriptor: &EventDescriptor,
        excluded: u64,
        flags: u32,
        activity: Option<&Guid>,
        related: Option<&Guid>,
        blocks: &[DataDescriptor],
    ) -> Result<(), WriteError> {
        if !self.enabled(descriptor.level, descriptor.keyword) {
            return Ok(());
        }
        let options = Options::from_write_ex(excluded, flags)?;
        let event = CallerEvent { activity, related, ..CallerEvent::from_blocks(descriptor, &[]) };
        // SAFETY: the caller promises that the bytes of each block can be read.
        unsafe { write::write_descriptors(self.slot(), event, options, blocks) }
    }
}
