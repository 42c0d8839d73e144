//! Providers: registration, enable checks and writing of events.
//!
//! ```text
//!   Provider::register ──▶ slot in the process's table ──▶ announced to every reachable daemon
//!   Provider::enabled      one load and one compare while no session has the provider enabled
//!   Provider::write        header, extended data items and payload, for every enabling session
//! ```
//!
//! | File | Contents |
//! |---|---|
//! | `registration` | the table of registrations, handles, generations |
//! | `enable` | enable state per session: hot words, entries, matching, combination |
//! | `filter` | which events pass the filters of a session |
//! | `callback` | when the application's callback runs |
//! | `binary` | which module a provider lives in |
//! | `information` | EventSetInformation |
//! | `write`, `stage` | one event as bytes on the stack |
//! | `descriptor` | the same from the data descriptors of a C program |
//! | `deliver`, `keys`, `stack` | delivery to several sessions; event keys and call stacks |
//! | `activity` | activity ids of threads |
//!
//! ```
//! use traceweir::{EventDescriptor, Guid, Provider};
//!
//! let provider = Provider::register(Guid::from_provider_name("Example-Docs"), None)?;
//! let event = EventDescriptor { id: 1, level: 4, keyword: 0x1, ..EventDescriptor::default() };
//! if provider.enabled(event.level, event.keyword) {
//!     // Compute expensive fields only here, where a session wants the event.
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

/// The arguments of an enable callback.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct EnableNotice<'a> {
    /// The source id that the controller gave, or the null GUID.
    pub source: Guid,
    /// 0 disabled, 1 enabled, 2 capture state.
    pub code: u32,
    /// The level of the only session, or the highest of several.
    pub level: u8,
    /// The any-mask of the only session, or the union of several.
    pub match_any: u64,
    /// The all-mask of the only session, or the intersection of several.
    pub match_all: u64,
    /// Type and bytes of one filter for the provider, if there is any: the schematized filters of
    /// all sessions in one chain (`traceweir_format::filter::Header::chain`), or else a filter
    /// whose type the provider defines.
    pub filter: Option<(u32, &'a [u8])>,
    /// All filters of all sessions whose types the provider defines.
    pub own_filters: &'a [(u32, &'a [u8])],
}

/// A function that runs when sessions enable, change or disable the provider or request its state.
///
/// It runs on the library's control thread, except for the call during a registration. Calls for
/// one registration never overlap. It should be quick and make no controller calls. It may write
/// events and drop the [`Provider`].
pub type EnableCallback = Box<dyn Fn(&EnableNotice<'_>) + Send + Sync>;

/// The reason why a write did not reach every session that wants the event.
///
/// The session counts the last three as lost events.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The provider is no longer registered.
    #[error("the provider is not registered any more")]
    InvalidHandle,
    /// More than 128 blocks, or another invalid parameter.
    #[error("a parameter is invalid")]
    InvalidParameter,
    /// The event is larger than 64 KiB.
    #[error("the event is larger than 64 KiB")]
    TooLarge,
    /// The event is lost because it does not fit into a session's buffer, or because it is larger
    /// than 64 KiB together with the stack and key that the session requests.
    #[error("the event does not fit into a session's buffer")]
    MoreData,
    /// The event is lost because a session has no free buffer space.
    #[error("a session has no free buffer space")]
    NoRoom,
    /// The event is lost because the backlog of a live session without a consumer is full.
    #[error("the backlog of a live session without a consumer is full: consume or stop it")]
    LogFileFull,
}

impl WriteError {
    /// Returns the Win32 status that the published API returns for this error.
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

/// A registered provider, which is unregistered on drop.
///
/// Dropping waits for a running callback, unless the drop happens inside the callback.
#[derive(Debug)]
pub struct Provider {
    handle: Handle,
}

impl Provider {
    /// Registers a provider.
    ///
    /// Succeeds without a daemon; a daemon that starts later learns of the registration. If a
    /// session has the provider enabled already, the callback runs before this function returns,
    /// and the first event after it is not lost.
    ///
    /// Fails with ERROR_ACCESS_DENIED if the daemon forbids the registration, and with
    /// ERROR_NO_SYSTEM_RESOURCES past 1024 registrations.
    pub fn register(provider: Guid, callback: Option<EnableCallback>) -> Result<Self> {
        client::register(provider, None, callback, 0, |_| ()).map(|handle| Self { handle })
    }

    /// Registers a provider for a program that calls through a façade.
    ///
    /// `origin` is an address in the program's own module, such as its callback or the return
    /// address of its call, or 0 if unknown. It identifies the module that the provider belongs to.
    #[doc(hidden)]
    pub fn register_at(provider: Guid, callback: Option<EnableCallback>, origin: usize) -> Result<Self> {
        Self::register_known(provider, callback, origin, |_| ())
    }

    /// Like [`register_at`](Self::register_at), and passes the handle to `known` early.
    ///
    /// The call of `known` follows the registration and precedes the callback, which may write
    /// events through the handle that the program stored. A failed registration does not call
    /// `known`.
    #[doc(hidden)]
    pub fn register_known(
        provider: Guid,
        callback: Option<EnableCallback>,
        origin: usize,
        known: impl FnOnce(Handle),
    ) -> Result<Self> {
        client::register(provider, None, callback, origin, known).map(|handle| Self { handle })
    }

    /// Registers a provider with traits (name, group) that each of its events carries.
    pub fn register_with_traits(
        provider: Guid,
        traits: &[u8],
        callback: Option<EnableCallback>,
    ) -> Result<Self> {
        tracelogging::Traits::parse_strict(traits)
            .map_err(|e| Error::refused(Status::ERROR_INVALID_PARAMETER, e.to_string()))?;
        client::register(provider, Some(traits), callback, 0, |_| ()).map(|handle| Self { handle })
    }

    /// Sets the traits of a registration that has none.
    ///
    /// The provider joins the group that the traits name, and every later event carries them.
    ///
    /// Fails with ERROR_INVALID_PARAMETER if the traits are malformed or already set, and with
    /// ERROR_ACCESS_DENIED if the provider may not join the group. A failure sets nothing.
    pub fn set_traits(&self, traits: &[u8]) -> Result<()> {
        self.handle.set_traits(traits)
    }

    /// Returns the handle of the registration, which converts to a number for use outside Rust.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns whether any session may want an event of this level and keyword.
    ///
    /// Costs one relaxed load and a compare while no session has the provider enabled.
    #[inline(always)]
    #[must_use]
    pub fn enabled(&self, level: u8, keyword: u64) -> bool {
        self.handle.slot.enabled(level, keyword)
    }

    /// Returns whether any session may want this event.
    ///
    /// Checks level and keyword like [`enabled`](Self::enabled), and the event id if all sessions
    /// have event-id filters.
    #[inline]
    #[must_use]
    pub fn event_enabled(&self, event: &EventDescriptor) -> bool {
        self.handle.slot.event_enabled(event)
    }

    /// Writes an event whose payload is the concatenation of the blocks.
    // Always inline, like all functions that write: the call stack of an event begins at the
    // application's call in every build.
    #[inline(always)]
    pub fn write(&self, descriptor: &EventDescriptor, data: &[&[u8]]) -> Result<(), WriteError> {
        self.offer(&Event::new(descriptor, data))
    }

    /// Writes an event with activity ids.
    ///
    /// Without `activity`, the event carries the thread's activity id; without `related`, none.
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

    /// Writes a TraceLogging event with its metadata (extended data item 11).
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

    /// Writes an event to all sessions except excluded ones (EventWriteEx).
    ///
    /// `exclude` has the bits of the excluded sessions, as filters report them in their instance.
    /// `flags` are `EVENT_WRITE_FLAG_…`: NO_FAULTING changes nothing; INPRIVATE withholds the event
    /// from sessions that exclude in-private events; others are [`WriteError::InvalidParameter`].
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

    /// Writes a string with level and keyword.
    ///
    /// Allocates if the string has more than 500 UTF-16 units.
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

/// The functions of [`Provider`] for handles that may be stale.
///
/// They check the registration first, then the enable state, then the parameters.
impl Handle {
    /// Takes over the ownership of a registration, which then ends with
    /// [`unregister`](Self::unregister).
    #[must_use]
    pub fn from_provider(provider: Provider) -> Self {
        std::mem::ManuallyDrop::new(provider).handle
    }

    /// Sets the traits of the registration, like [`Provider::set_traits`].
    ///
    /// Fails with ERROR_INVALID_PARAMETER if the provider is no longer registered.
    pub fn set_traits(self, traits: &[u8]) -> Result<()> {
        client::set_traits(self, traits)
    }

    /// Ends the registration; fails if it has ended already.
    pub fn unregister(self) -> Result<(), WriteError> {
        if client::unregister(self) { Ok(()) } else { Err(WriteError::InvalidHandle) }
    }

    /// Returns whether any session may want an event of this level and keyword; `false` for a stale
    /// handle.
    #[inline]
    #[must_use]
    pub fn enabled(self, level: u8, keyword: u64) -> bool {
        self.slot.enabled(level, keyword) && self.is_current()
    }

    /// Returns whether any session may want this event, by level, keyword and id; `false` for a
    /// stale handle.
    #[inline]
    #[must_use]
    pub fn event_enabled(self, event: &EventDescriptor) -> bool {
        self.slot.event_enabled(event) && self.is_current()
    }

    /// Checks the registration and then the enable state, in the order that is published.
    #[inline(always)]
    fn is_wanted(self, level: u8, keyword: u64) -> Result<bool, WriteError> {
        if self.is_current() { Ok(self.slot.enabled(level, keyword)) } else { Err(WriteError::InvalidHandle) }
    }

    /// Writes an event; with `metadata`, a self-described one.
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

    /// Writes a self-described event that passed the provider's own enable words.
    ///
    /// Each session's level and keyword are still checked.
    #[inline(always)]
    pub(crate) fn write_let_through(
        self,
        descriptor: &EventDescriptor,
        metadata: &[u8],
        activity: Option<&Guid>,
        related: Option<&Guid>,
        blocks: Blocks<'_>,
    ) -> Result<(), WriteError> {
        // Usually known at compile time.
        if activity.is_none() && related.is_none() {
            return write::write_described(self.slot, descriptor, metadata, blocks);
        }
        let metadata = Some(metadata);
        let event = Event { metadata, activity, related, ..Event::new(descriptor, &[]) };
        write::write_blocks(self.slot, &event, blocks)
    }

    /// Writes an event to all sessions except excluded ones, like [`Provider::write_ex`].
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

    /// Writes a string with level and keyword, like [`Provider::write_string`].
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

    /// Like [`write_string`](Self::write_string), for text in UTF-16 bytes with its terminator.
    ///
    /// This is for a façade, as [`write_descriptors`](Self::write_descriptors) is.
    #[inline(always)]
    pub fn write_wide_string(self, level: u8, keyword: u64, text: &[u8]) -> Result<(), WriteError> {
        if !self.is_wanted(level, keyword)? {
            return Ok(());
        }
        write::write_wide_string(self.slot, level, keyword, text)
    }
}
