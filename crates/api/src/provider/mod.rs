//! Providers: register, ask whether anybody listens, write events.
//!
//! ```text
//!   Provider::register ──▶ a slot of the process's table ──▶ announced to every daemon that can be reached
//!   Provider::enabled      one load and one compare while nobody listens
//!   Provider::write        header, items and payload, once for every session that wants the event
//! ```
//!
//! | File | What it knows |
//! |---|---|
//! | `registration` | the table, handles, generations |
//! | `enable` | who wants what: hot words, entries, matching, combination |
//! | `filter` | which events pass the filters of a session |
//! | `callback` | when the application's callback runs |
//! | `binary` | which module a provider lives in |
//! | `information` | what a provider may set (EventSetInformation) |
//! | `write`, `stage` | one event as bytes on the stack |
//! | `descriptor` | the same from the blocks of a C program |
//! | `deliver`, `keys`, `stack` | several sessions, and what they ask for beside the event |
//! | `activity` | activity ids of threads |
//!
//! ```
//! use traceweir::{EventDescriptor, Guid, Provider};
//!
//! let provider = Provider::register(Guid::from_provider_name("Example-Docs"), None)?;
//! let event = EventDescriptor { id: 1, level: 4, keyword: 0x1, ..EventDescriptor::default() };
//! if provider.enabled(event.level, event.keyword) {
//!     // Only now is it worth to compute what the event says.
//!     provider.write(&event, &[&7u32.to_le_bytes(), b"seven\0"])?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod activity;
mod binary;
mod callback;
mod deliver;
mod descriptor;
mod enable;
mod filter;
mod information;
mod keys;
#[cfg(test)]
mod memory;
mod registration;
mod scratch;
mod stack;
mod stage;
mod write;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::spec::status::Status;
use traceweir_format::tracelogging;
use traceweir_transport::ring::Blocks;

use crate::client;
use crate::error::{Error, Result};

pub use crate::client::link_state;
pub(crate) use crate::provider::binary::Module;
pub(crate) use callback::for_provider;
use deliver::Except;
pub use descriptor::DataDescriptor;
pub(crate) use enable::{Change, Combined};
#[doc(hidden)]
pub use filter::filters_pass;
pub use information::set_information;
pub(crate) use registration::{Classes, Decoding, New, Traits};
pub use registration::{Handle, MAX_REGISTRATIONS};
use write::Event;
pub use write::MAX_BLOCKS;
#[doc(hidden)]
pub use write::straight::{write_described_straight, write_straight};

/// What an enable callback is told.
#[derive(Clone, Debug)]
pub struct EnableNotice<'a> {
    /// The controller's source id, or null.
    pub source: Guid,
    /// 0 disabled, 1 enabled, 2 capture state.
    pub code: u32,
    /// Combined level.
    pub level: u8,
    /// Combined any-mask.
    pub match_any: u64,
    /// Combined all-mask.
    pub match_all: u64,
    /// Filter data for the provider, where there is any: type and bytes. The schematized filters of all sessions in one chain
    /// (`traceweir_format::filter::Header::chain`), or else a filter whose type the provider defines.
    pub filter: Option<(u32, &'a [u8])>,
    /// All filters whose types the provider defines, of all sessions.
    pub own_filters: &'a [(u32, &'a [u8])],
}

/// Called when sessions enable, change, disable the provider or ask for its state.
///
/// It runs on the library's control thread, but for the call during a registration, and never twice at a time for one registration. It should be
/// quick and make no controller calls. It may write events and drop the [`Provider`].
pub type EnableCallback = Box<dyn Fn(&EnableNotice<'_>) + Send + Sync>;

/// Why a write did not reach every session that wants the event. The last three are counted as losses of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The registration is gone.
    #[error("the registration is gone")]
    InvalidHandle,
    /// More than 128 blocks, or another wrong parameter.
    #[error("a parameter is wrong")]
    InvalidParameter,
    /// The event is larger than 64 KiB.
    #[error("the event is larger than 64 KiB")]
    TooLarge,
    /// The event does not fit into a session's buffer, or is larger than 64 KiB with the stack and key that a session asks for; the
    /// event is lost there.
    #[error("the event does not fit into a session's buffer")]
    MoreData,
    /// No free room in a session; the event is lost there.
    #[error("no free room in a session")]
    NoRoom,
    /// What a live session keeps for its first consumer is full; the event is lost there.
    #[error("a live session without a consumer can keep no more: consume or stop it")]
    LogFileFull,
}

impl WriteError {
    /// The Win32 status that the published API returns.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::InvalidHandle => Status::ERROR_INVALID_HANDLE,
            Self::InvalidParameter => Status::ERROR_INVALID_PARAMETER,
            Self::TooLarge => Status::ERROR_ARITHMETIC_OVERFLOW,
            Self::MoreData => Status::ERROR_MORE_DATA,
            Self::NoRoom => Status::ERROR_NOT_ENOUGH_MEMORY,
            Self::LogFileFull => Status::STATUS_LOG_FILE_FULL,
        }
    }
}

/// A registered provider; unregistered on drop, which waits for a running callback unless it happens inside it.
#[derive(Debug)]
pub struct Provider {
    handle: Handle,
}

impl Provider {
    /// Registers a provider.
    ///
    /// Succeeds without a daemon too; one that appears later is told. Where a session has the provider enabled already, the callback runs before the
    /// return and the first event after it is not lost. ERROR_ACCESS_DENIED where the daemon forbids it, ERROR_NO_SYSTEM_RESOURCES past 1024 registrations.
    pub fn register(provider: Guid, callback: Option<EnableCallback>) -> Result<Self> {
        client::register(provider, None, callback, 0, |_| ()).map(|handle| Self { handle })
    }

    /// Registers a provider for a program that calls through a façade: `origin` is an address in the program's own module, such as that of its
    /// callback or the one its call returns to; 0 where that is not known. It tells which module the provider belongs to.
    #[doc(hidden)]
    pub fn register_at(provider: Guid, callback: Option<EnableCallback>, origin: usize) -> Result<Self> {
        Self::register_known(provider, callback, origin, |_| ())
    }

    /// The same, where the program keeps the handle in a place of its own: `known` is told it once the registration stands and before the callback can run, which
    /// may write through that place. Nobody is told of a registration that fails.
    #[doc(hidden)]
    pub fn register_known(
        provider: Guid,
        callback: Option<EnableCallback>,
        origin: usize,
        known: impl FnOnce(Handle),
    ) -> Result<Self> {
        client::register(provider, None, callback, origin, known).map(|handle| Self { handle })
    }

    /// Registers a provider with traits (name, group), which every event of it carries.
    pub fn register_with_traits(
        provider: Guid,
        traits: &[u8],
        callback: Option<EnableCallback>,
    ) -> Result<Self> {
        tracelogging::Traits::parse_strict(traits)
            .map_err(|e| Error::refused(Status::ERROR_INVALID_PARAMETER, e.to_string()))?;
        client::register(provider, Some(traits), callback, 0, |_| ()).map(|handle| Self { handle })
    }

    /// Gives a registration that came without traits its traits, once; it joins the group that they name, and every event from now on carries them.
    ///
    /// Traits that are wrong, or a second set, are ERROR_INVALID_PARAMETER; a group that may not be joined is ERROR_ACCESS_DENIED. Nothing is
    /// set then.
    pub fn set_traits(&self, traits: &[u8]) -> Result<()> {
        self.handle.set_traits(traits)
    }

    /// The registration as a number that can be kept outside Rust.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Whether any session may want an event of this level and keyword: one relaxed load and a compare when nobody listens.
    #[inline(always)]
    #[must_use]
    pub fn enabled(&self, level: u8, keyword: u64) -> bool {
        self.handle.slot.enabled(level, keyword)
    }

    /// Whether any session may want this event: as [`enabled`](Self::enabled), and by its id where all sessions have filters of ids.
    #[inline]
    #[must_use]
    pub fn event_enabled(&self, event: &EventDescriptor) -> bool {
        self.handle.slot.event_enabled(event)
    }

    /// Writes an event whose payload is the blocks one after the other.
    // Always inline, as all that write: the stack of an event begins where the application calls, in every build.
    #[inline(always)]
    pub fn write(&self, descriptor: &EventDescriptor, data: &[&[u8]]) -> Result<(), WriteError> {
        self.offer(&Event::new(descriptor, data))
    }

    /// Writes an event with activity ids; `None` takes the thread's activity, and no related one.
    #[inline(always)]
    pub fn write_transfer(
        &self,
        descriptor: &EventDescriptor,
        activity: Option<&Guid>,
        related: Option<&Guid>,
        data: &[&[u8]],
    ) -> Result<(), WriteError> {
        self.offer(&Event { activity, related, ..Event::new(descriptor, data) })
    }

    /// Writes a TraceLogging event: `metadata` is the event's own (extended item 11).
    #[inline(always)]
    pub fn write_self_described(
        &self,
        descriptor: &EventDescriptor,
        metadata: &[u8],
        activity: Option<&Guid>,
        related: Option<&Guid>,
        data: &[&[u8]],
    ) -> Result<(), WriteError> {
        self.offer(&Event { metadata: Some(metadata), activity, related, ..Event::new(descriptor, data) })
    }

    /// Writes an event, but not to everybody (EventWriteEx).
    ///
    /// `exclude` has the bits of sessions that are not to get it: those that filters name as their instance. `flags` are `EVENT_WRITE_FLAG_…`:
    /// NO_FAULTING changes nothing, INPRIVATE keeps the event from sessions that leave such ones out; others are [`WriteError::InvalidParameter`].
    #[inline(always)]
    pub fn write_ex(
        &self,
        descriptor: &EventDescriptor,
        exclude: u64,
        flags: u32,
        activity: Option<&Guid>,
        related: Option<&Guid>,
        data: &[&[u8]],
    ) -> Result<(), WriteError> {
        if !self.enabled(descriptor.level, descriptor.keyword) {
            return Ok(());
        }
        let except = Except::new(exclude, flags)?;
        write::write_except(
            self.handle.slot,
            &Event { activity, related, ..Event::new(descriptor, data) },
            except,
        )
    }

    /// Writes a string with level and keyword. Allocates where the string has more than 500 UTF-16 units.
    #[inline(always)]
    pub fn write_string(&self, level: u8, keyword: u64, text: &str) -> Result<(), WriteError> {
        if !self.enabled(level, keyword) {
            return Ok(());
        }
        write::write_string(self.handle.slot, level, keyword, text)
    }

    #[inline(always)]
    fn offer(&self, event: &Event<'_>) -> Result<(), WriteError> {
        if !self.enabled(event.descriptor.level, event.descriptor.keyword) {
            return Ok(());
        }
        write::write(self.handle.slot, event)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        client::unregister(self.handle);
    }
}

/// The same for handles that may be stale: the registration is looked at first, then whether anybody listens, then the parameters.
impl Handle {
    /// Gives the ownership of a registration to whoever keeps the handle, who ends it with [`unregister`](Self::unregister).
    #[must_use]
    pub fn from_provider(provider: Provider) -> Self {
        std::mem::ManuallyDrop::new(provider).handle
    }

    /// As [`Provider::set_traits`]; a registration that is gone is ERROR_INVALID_PARAMETER.
    pub fn set_traits(self, traits: &[u8]) -> Result<()> {
        client::set_traits(self, traits)
    }

    /// Ends the registration; an error when it is gone already.
    pub fn unregister(self) -> Result<(), WriteError> {
        if client::unregister(self) { Ok(()) } else { Err(WriteError::InvalidHandle) }
    }

    /// Whether any session may want an event of this level and keyword; `false` for a stale handle.
    #[inline]
    #[must_use]
    pub fn enabled(self, level: u8, keyword: u64) -> bool {
        self.slot.enabled(level, keyword) && self.is_current()
    }

    /// Whether any session may want this event, its id included; `false` for a stale handle.
    #[inline]
    #[must_use]
    pub fn event_enabled(self, event: &EventDescriptor) -> bool {
        self.slot.event_enabled(event) && self.is_current()
    }

    /// Whether any session may want an event, in the order of the published checks: the registration first.
    #[inline(always)]
    fn is_wanted(self, level: u8, keyword: u64) -> Result<bool, WriteError> {
        if self.is_current() { Ok(self.slot.enabled(level, keyword)) } else { Err(WriteError::InvalidHandle) }
    }

    /// Writes an event; `metadata` makes it a self-described one.
    #[inline(always)]
    pub fn write(
        self,
        descriptor: &EventDescriptor,
        metadata: Option<&[u8]>,
        activity: Option<&Guid>,
        related: Option<&Guid>,
        data: &[&[u8]],
    ) -> Result<(), WriteError> {
        if !self.is_wanted(descriptor.level, descriptor.keyword)? {
            return Ok(());
        }
        write::write(self.slot, &Event { metadata, activity, related, ..Event::new(descriptor, data) })
    }

    /// Writes a self-described event that words of its provider's own have let through; each session is asked all the same.
    #[inline(always)]
    pub(crate) fn write_let_through(
        self,
        descriptor: &EventDescriptor,
        metadata: &[u8],
        activity: Option<&Guid>,
        related: Option<&Guid>,
        blocks: Blocks<'_>,
    ) -> Result<(), WriteError> {
        // Known to the compiler as a rule.
        if activity.is_none() && related.is_none() {
            return write::write_described(self.slot, descriptor, metadata, blocks);
        }
        let metadata = Some(metadata);
        let event = Event { metadata, activity, related, ..Event::new(descriptor, &[]) };
        write::write_blocks(self.slot, &event, blocks)
    }

    /// As [`Provider::write_ex`].
    #[inline(always)]
    pub fn write_ex(
        self,
        descriptor: &EventDescriptor,
        exclude: u64,
        flags: u32,
        activity: Option<&Guid>,
        related: Option<&Guid>,
        data: &[&[u8]],
    ) -> Result<(), WriteError> {
        if !self.is_wanted(descriptor.level, descriptor.keyword)? {
            return Ok(());
        }
        let except = Except::new(exclude, flags)?;
        write::write_except(self.slot, &Event { activity, related, ..Event::new(descriptor, data) }, except)
    }

    /// As [`Provider::write_string`].
    #[inline(always)]
    pub fn write_string(self, level: u8, keyword: u64, text: &str) -> Result<(), WriteError> {
        if !self.is_current() {
            return Err(WriteError::InvalidHandle);
        }
        if !self.slot.enabled(level, keyword) {
            return Ok(());
        }
        write::write_string(self.slot, level, keyword, text)
    }

    /// As [`write_string`](Self::write_string), with the bytes of a text in UTF-16, its terminator included, as a C program has it. This is for a façade, as
    /// [`write_descriptors`](Self::write_descriptors).
    #[inline(always)]
    pub fn write_wide_string(self, level: u8, keyword: u64, text: &[u8]) -> Result<(), WriteError> {
        if !self.is_wanted(level, keyword)? {
            return Ok(());
        }
        write::write_wide_string(self.slot, level, keyword, text)
    }
}
