//! Providers: registration, enable checks and writing of events.
//!
//! ```text
//!   Provider::register ──▶ slot in the process's table ──▶ announced to every reachable daemon
//!   ProviderRef::enabled   one load and one compare while no session has the provider enabled
//!   ProviderRef::write     header, extended data items and payload, for every enabling session
//! ```
//!
//! A [`Provider`] owns its registration and dereferences to [`ProviderRef`], which has all
//! functions of a registration. A [`Handle`] is a copyable name of a registration that may have
//! ended; [`Handle::provider`] checks that and returns the same [`ProviderRef`].
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
//! let cause = traceweir::provider::activity::create();
//! provider.event(&event).related(&cause).write(&[&8u32.to_le_bytes(), b"eight\0"])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod activity;
#[cfg(not(any(windows, traceweir_win32)))]
mod descriptors;
mod information;

use std::ops::Deref;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::spec::status::Status;
use traceweir_format::tracelogging;

use crate::client;
use crate::error::{Error, Result};
use crate::event::CallerEvent;
use crate::registration::SlotRef;
use crate::write::{self, Options};

#[cfg(not(any(windows, traceweir_win32)))]
pub use crate::client::link_state;
pub use crate::enable_notice::{EnableCallback, EnableNotice};
pub use crate::error::WriteError;
pub use crate::event::MAX_BLOCKS;
#[cfg(not(any(windows, traceweir_win32)))]
#[doc(hidden)]
pub use crate::filter::filters_pass;
pub use crate::registration::Handle;
#[cfg(not(any(windows, traceweir_win32)))]
pub use crate::registration::MAX_REGISTRATIONS;
#[cfg(not(any(windows, traceweir_win32)))]
pub use crate::write::DataDescriptor;
#[cfg(not(any(windows, traceweir_win32)))]
#[doc(hidden)]
pub use crate::write::{try_straight, try_straight_described};
pub use information::set_information;

/// A registered provider, which is unregistered on drop.
///
/// Dropping waits for a running callback, unless the drop happens inside the callback. All other
/// functions are those of [`ProviderRef`].
#[derive(Debug)]
pub struct Provider {
    provider_ref: ProviderRef,
}

impl Provider {
    /// Registers a provider.
    ///
    /// Succeeds without a daemon; a daemon that starts later learns of the registration. If a
    /// session has the provider enabled already, the callback runs before this function returns,
    /// and the session gets every event that is written afterwards.
    ///
    /// Fails with ERROR_ACCESS_DENIED if a daemon forbids the registration and none accepts it, and
    /// with ERROR_NO_SYSTEM_RESOURCES if the process has 1024 registrations already.
    pub fn register(provider: Guid, callback: Option<EnableCallback>) -> Result<Self> {
        client::register(provider, None, callback, 0, |_| ()).map(Self::new)
    }

    /// Registers a provider with traits (name, group) that each of its events carries.
    pub fn register_with_traits(
        provider: Guid,
        traits: &[u8],
        callback: Option<EnableCallback>,
    ) -> Result<Self> {
        tracelogging::Traits::parse_strict(traits)
            .map_err(|e| Error::refused(Status::ERROR_INVALID_PARAMETER, e.to_string()))?;
        client::register(provider, Some(traits), callback, 0, |_| ()).map(Self::new)
    }

    /// Registers a provider for a program that calls the C interface.
    ///
    /// `origin` is an address in the program's own module, such as its callback or the return
    /// address of its call, or 0 if unknown. It identifies the module that the provider belongs to.
    #[doc(hidden)]
    pub fn register_at(provider: Guid, callback: Option<EnableCallback>, origin: usize) -> Result<Self> {
        Self::register_with_handle(provider, callback, origin, |_| ())
    }

    /// Like [`register_at`](Self::register_at), but passes the handle to `store_handle` before the
    /// first call of the callback, which can then write events through the stored handle.
    ///
    /// A failed registration does not call `store_handle`.
    #[doc(hidden)]
    pub fn register_with_handle(
        provider: Guid,
        callback: Option<EnableCallback>,
        origin: usize,
        store_handle: impl FnOnce(Handle),
    ) -> Result<Self> {
        client::register(provider, None, callback, origin, store_handle).map(Self::new)
    }

    fn new(handle: Handle) -> Self {
        Self { provider_ref: ProviderRef { handle } }
    }

    /// Returns the handle without unregistering. The caller ends the registration with
    /// [`Handle::unregister`].
    #[must_use]
    pub fn into_handle(self) -> Handle {
        std::mem::ManuallyDrop::new(self).handle()
    }
}

impl Deref for Provider {
    type Target = ProviderRef;

    #[inline(always)]
    fn deref(&self) -> &ProviderRef {
        &self.provider_ref
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        client::unregister(self.handle());
    }
}

impl Handle {
    /// Returns the [`ProviderRef`] that writes the registration's events.
    ///
    /// Fails with [`WriteError::InvalidHandle`] if the registration has ended. Only this call
    /// checks that: keep the handle, not the returned [`ProviderRef`].
    #[inline(always)]
    pub fn provider(self) -> Result<ProviderRef, WriteError> {
        if self.is_current() { Ok(ProviderRef { handle: self }) } else { Err(WriteError::InvalidHandle) }
    }

    /// Ends the registration; fails if it has ended already.
    pub fn unregister(self) -> Result<(), WriteError> {
        if client::unregister(self) { Ok(()) } else { Err(WriteError::InvalidHandle) }
    }
}

/// The functions of a registration, whether owned by a [`Provider`] or found by a [`Handle`].
#[derive(Debug)]
pub struct ProviderRef {
    handle: Handle,
}

impl ProviderRef {
    /// Finds the registration with this number ([`Handle::to_raw`]).
    ///
    /// Fails with [`WriteError::InvalidHandle`] if no current registration has it, and for the
    /// number of a classic provider, whose events are written by other functions.
    #[inline(always)]
    pub fn from_raw(raw: u64) -> Result<Self, WriteError> {
        match Handle::from_raw(raw) {
            Some(handle) => Ok(Self { handle }),
            None => Err(WriteError::InvalidHandle),
        }
    }

    /// Returns the handle of the registration, which converts to a number for use outside Rust.
    #[inline(always)]
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    #[inline(always)]
    fn slot(&self) -> SlotRef {
        self.handle.slot()
    }

    /// Sets the traits of a registration that has none.
    ///
    /// The provider joins the group that the traits name, and every later event carries them.
    ///
    /// Fails with ERROR_INVALID_PARAMETER if the traits are malformed or already set, and with
    /// ERROR_ACCESS_DENIED if the provider may not join the group. A failure sets nothing.
    pub fn set_traits(&self, traits: &[u8]) -> Result<()> {
        client::set_traits(self.handle, traits)
    }

    /// Returns whether any session may want an event of this level and keyword.
    ///
    /// Costs one relaxed load and a compare while no session has the provider enabled.
    #[inline(always)]
    #[must_use]
    pub fn enabled(&self, level: u8, keyword: u64) -> bool {
        self.slot().is_enabled(level, keyword)
    }

    /// Returns whether any session may want this event.
    ///
    /// Checks level and keyword like [`enabled`](Self::enabled), and the event id if all sessions
    /// have event filters.
    #[inline]
    #[must_use]
    pub fn event_enabled(&self, event: &EventDescriptor) -> bool {
        self.slot().is_event_enabled(event)
    }

    /// Writes an event whose payload is the concatenation of the blocks.
    // Always inline, like all functions that write: the call stack of an event begins at the
    // application's call in every build.
    #[inline(always)]
    pub fn write(&self, descriptor: &EventDescriptor, data: &[&[u8]]) -> Result<(), WriteError> {
        if !self.enabled(descriptor.level, descriptor.keyword) {
            return Ok(());
        }
        write::write_plain(self.slot(), descriptor, data)
    }

    /// Writes an event with activity ids (EventWriteTransfer).
    ///
    /// Without `activity`, the event carries the thread's activity id; without `related`, it
    /// carries no related activity id.
    #[inline(always)]
    pub fn write_transfer(
        &self,
        descriptor: &EventDescriptor,
        activity: Option<&Guid>,
        related: Option<&Guid>,
        data: &[&[u8]],
    ) -> Result<(), WriteError> {
        self.write_if_enabled(&CallerEvent { activity, related, ..CallerEvent::new(descriptor, data) })
    }

    #[inline(always)]
    fn write_if_enabled(&self, event: &CallerEvent<'_>) -> Result<(), WriteError> {
        if !self.enabled(event.descriptor.level, event.descriptor.keyword) {
            return Ok(());
        }
        write::write(self.slot(), event)
    }

    /// Prepares an event with activity ids, metadata or excluded sessions.
    #[inline(always)]
    pub const fn event<'a>(&'a self, descriptor: &'a EventDescriptor) -> EventBuilder<'a> {
        EventBuilder {
            provider: self,
            descriptor,
            metadata: None,
            activity: None,
            related: None,
            excluded: 0,
            flags: 0,
        }
    }

    /// Writes a string with level and keyword.
    ///
    /// Allocates if the string has more than 511 UTF-16 units.
    #[inline(always)]
    pub fn write_string(&self, level: u8, keyword: u64, text: &str) -> Result<(), WriteError> {
        if !self.enabled(level, keyword) {
            return Ok(());
        }
        write::write_string(self.slot(), level, keyword, text)
    }

    /// Like [`write_string`](Self::write_string), for UTF-16 bytes that end in a terminator.
    ///
    /// This is for the C interface, like [`write_descriptors`](Self::write_descriptors).
    #[cfg(not(any(windows, traceweir_win32)))]
    #[doc(hidden)]
    #[inline(always)]
    pub fn write_wide_string(&self, level: u8, keyword: u64, text: &[u8]) -> Result<(), WriteError> {
        if !self.enabled(level, keyword) {
            return Ok(());
        }
        write::write_wide_string(self.slot(), level, keyword, text)
    }
}

/// An event with activity ids, metadata or excluded sessions; [`write`](Self::write) writes it.
#[derive(Clone, Copy, Debug)]
#[must_use = "the event is written by `write`"]
pub struct EventBuilder<'a> {
    provider: &'a ProviderRef,
    descriptor: &'a EventDescriptor,
    metadata: Option<&'a [u8]>,
    activity: Option<&'a Guid>,
    related: Option<&'a Guid>,
    excluded: u64,
    flags: u32,
}

impl<'a> EventBuilder<'a> {
    /// Sets the activity id, which is that of the thread by default.
    #[inline(always)]
    pub fn activity(self, id: impl Into<Option<&'a Guid>>) -> Self {
        Self { activity: id.into(), ..self }
    }

    /// Sets the id of a related activity.
    #[inline(always)]
    pub fn related(self, id: impl Into<Option<&'a Guid>>) -> Self {
        Self { related: id.into(), ..self }
    }

    /// Makes this a TraceLogging event, described by its metadata (extended data item 11).
    #[inline(always)]
    pub const fn metadata(self, metadata: &'a [u8]) -> Self {
        Self { metadata: Some(metadata), ..self }
    }

    /// Excludes the sessions of a bit mask (EventWriteEx). The `instance` of each schematized filter
    /// that the callback gets is the bit of its session.
    #[inline(always)]
    pub const fn exclude(self, sessions: u64) -> Self {
        Self { excluded: sessions, ..self }
    }

    /// Sets `EVENT_WRITE_FLAG_…` bits (EventWriteEx): NO_FAULTING changes nothing; INPRIVATE
    /// withholds the event from sessions that exclude in-private events; any other bit makes
    /// [`write`](Self::write) fail with [`WriteError::InvalidParameter`].
    #[inline(always)]
    pub const fn flags(self, flags: u32) -> Self {
        Self { flags, ..self }
    }

    /// Writes the event with the concatenation of the blocks as payload.
    #[inline(always)]
    pub fn write(self, data: &[&[u8]]) -> Result<(), WriteError> {
        let Self { provider, descriptor, metadata, activity, related, excluded, flags } = self;
        let event = CallerEvent { metadata, activity, related, ..CallerEvent::new(descriptor, data) };
        // Usually decided at compile time.
        if excluded == 0 && flags == 0 {
            return provider.write_if_enabled(&event);
        }
        if !provider.enabled(descriptor.level, descriptor.keyword) {
            return Ok(());
        }
        write::write_excluding(provider.slot(), &event, &Options::from_write_ex(excluded, flags)?)
    }
}
