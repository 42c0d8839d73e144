//! The enable state of a TraceLogging provider: the words that every event checks, and the
//! registration.
//!
//! ```text
//!   level │ any │ all │ is_changing │ registration
//!     the level is stored as level + 1: 0 while disabled, 256 if a session wants all levels
//! ```
//!
//! The words are in the provider itself, so that an unwanted event costs one load, one compare and
//! one branch. The enable callback updates them. They may pass events that no session wants (the
//! write path checks each session anyway), but never reject one that a session wants.
//!
//! `unsafe` is allowed here for the pointer from the callback to the words: the registration ends
//! before they do.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use traceweir_format::Guid;
use traceweir_format::spec::enable::ControlCode;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::spec::status::Status;

use super::types::Level;
use super::values::Id;
use crate::client;
use crate::event::{Blocks, CallerEvent};
use crate::provider::{EnableCallback, EnableNotice, Handle, Provider, WriteError, set_information};
use crate::write;

/// A function that runs when sessions enable or disable a provider, or request its state.
///
/// Its arguments are source, code (0 disabled, 1 enabled, 2 capture state), combined level and
/// masks, the address of a [`FilterDescriptor`] or 0, and the context number of the registration.
pub type ProviderEnableCallback = EnableFunction<Guid>;

/// A [`ProviderEnableCallback`], for programs with their own GUID type `G`.
#[doc(hidden)]
pub type EnableFunction<G> = fn(
    source_id: &G,
    event_control_code: u32,
    level: Level,
    match_any_keyword: u64,
    match_all_keyword: u64,
    filter_data: usize,
    callback_context: usize,
);

/// The structure that `filter_data` of a callback points to, until the callback returns
/// (EVENT_FILTER_DESCRIPTOR).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FilterDescriptor {
    /// Address of the filter's bytes.
    pub ptr: u64,
    /// Number of bytes.
    pub size: u32,
    /// Type of the filter.
    pub kind: u32,
}

/// The enable words and the registration of a provider; see the module documentation.
#[derive(Debug)]
pub struct Context {
    words: EnableWords,
    /// A thread is registering or unregistering.
    is_changing: AtomicBool,
    /// A `Handle` as a number; 0 without one.
    handle: AtomicU64,
}

#[derive(Debug)]
struct EnableWords {
    level: AtomicU32,
    any: AtomicU64,
    all: AtomicU64,
}

impl EnableWords {
    /// Updates the words with the combined parameters of the sessions.
    fn update(&self, notice: &EnableNotice<'_>) {
        // Relaxed: each word may be seen before or after the others. At worst, an event that is
        // written at the moment of the change is checked against old and new words.
        match ControlCode::from_number(notice.code) {
            Some(ControlCode::Disable) => self.level.store(0, Ordering::Relaxed),
            Some(ControlCode::Enable) => {
                let any = if notice.match_any == 0 { u64::MAX } else { notice.match_any };
                self.any.store(any, Ordering::Relaxed);
                self.all.store(notice.match_all, Ordering::Relaxed);
                let level = if notice.level == 0 { 256 } else { u32::from(notice.level) + 1 };
                self.level.store(level, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// A pointer to the words of a registered provider.
struct EnableWordsPointer(*const EnableWords);

// SAFETY: words are atomics; they outlive the registration, which owns this (see
// `Context::register`).
unsafe impl Send for EnableWordsPointer {}
// SAFETY: `update` only stores to atomics, so several threads may call it; the words outlive the
// registration, which owns this.
unsafe impl Sync for EnableWordsPointer {}

impl EnableWordsPointer {
    fn update(&self, notice: &EnableNotice<'_>) {
        // SAFETY: called only by the registration's callback. `Context::register` requires that the
        // words stay in place until the registration ends, which waits for a running callback or
        // happens inside it, after this.
        unsafe { &*self.0 }.update(notice);
    }
}

impl Context {
    /// Creates the context of an unregistered provider.
    #[must_use]
    pub const fn new() -> Self {
        let words = EnableWords { level: AtomicU32::new(0), any: AtomicU64::new(0), all: AtomicU64::new(0) };
        Self { words, is_changing: AtomicBool::new(false), handle: AtomicU64::new(0) }
    }

    /// Returns whether any session may want an event of this level and keyword.
    #[inline(always)]
    #[must_use]
    pub fn enabled(&self, level: Level, keyword: u64) -> bool {
        u32::from(level.as_int()) < self.words.level.load(Ordering::Relaxed) && self.keyword_may_pass(keyword)
    }

    #[inline(always)]
    fn keyword_may_pass(&self, keyword: u64) -> bool {
        let all = self.words.all.load(Ordering::Relaxed);
        keyword == 0 || (keyword & self.words.any.load(Ordering::Relaxed) != 0 && keyword & all == all)
    }

    /// Registers the provider, sets its traits, and returns a Win32 status. A failure to set the
    /// traits is not reported, as documented.
    ///
    /// # Safety
    ///
    /// The context stays in place in memory until it is unregistered or dropped, which must happen
    /// before its library is unloaded.
    ///
    /// # Panics
    ///
    /// Panics if it is registered already, or another thread is registering or unregistering it.
    #[track_caller]
    pub unsafe fn register(&self, id: Guid, traits: &[u8], callback: Option<EnableCallback>) -> u32 {
        // Pairs with the release below and in `unregister`.
        if self.is_changing.swap(true, Ordering::Acquire) {
            panic!("the provider is being registered or unregistered by another thread");
        }
        if self.handle.load(Ordering::Relaxed) != 0 {
            self.is_changing.store(false, Ordering::Release);
            panic!("the provider is registered already");
        }
        let words = EnableWordsPointer(ptr::from_ref(&self.words));
        let notify: EnableCallback = Box::new(move |notice| {
            words.update(notice);
            if let Some(callback) = &callback {
                callback(notice);
            }
        });
        // Runs before the callback, whose events must carry the traits too.
        let store_handle = |handle: Handle| {
            self.handle.store(handle.to_raw(), Ordering::Release);
            let _ = client::set_traits(handle, traits);
        };
        let status = match Provider::register_with_handle(id, Some(notify), 0, store_handle) {
            Ok(provider) => {
                let _handle_is_stored = provider.into_handle();
                Status::ERROR_SUCCESS
            }
            Err(error) => error.status(),
        };
        self.is_changing.store(false, Ordering::Release);
        status.0
    }

    /// Ends the registration and returns a Win32 status. Does nothing if there is none, or another
    /// thread is registering or unregistering.
    pub fn unregister(&self) -> u32 {
        if self.is_changing.swap(true, Ordering::Acquire) {
            return Status::ERROR_SUCCESS.0;
        }
        self.words.level.store(0, Ordering::Relaxed);
        let handle = Handle::from_raw_any_kind(self.handle.swap(0, Ordering::Relaxed));
        let status = handle.map_or(Status::ERROR_SUCCESS, |h| to_status(h.unregister()));
        // Clear the level once more: a callback may have run in between.
        self.words.level.store(0, Ordering::Relaxed);
        self.is_changing.store(false, Ordering::Release);
        status.0
    }

    /// Writes an event that passed [`enabled`](Self::enabled), and returns a Win32 status.
    // Always inline, like all functions that write: the call stack of an event begins at the
    // application's call.
    #[inline(always)]
    pub fn write(
        &self,
        descriptor: &EventDescriptor,
        metadata: &[u8],
        activity: Option<&Guid>,
        related: Option<&Guid>,
        data: Blocks<'_>,
    ) -> u32 {
        let Some(handle) = Handle::from_raw_any_kind(self.handle.load(Ordering::Relaxed)) else {
            return WriteError::InvalidHandle.status().0;
        };
        // Usually decided at compile time.
        if activity.is_none() && related.is_none() {
            return to_status(write::write_described(handle.slot(), descriptor, metadata, data)).0;
        }
        let metadata = Some(metadata);
        let event = CallerEvent {
            metadata,
            activity,
            related,
            ..CallerEvent::from_blocks(descriptor, data.as_slice())
        };
        to_status(write::write(handle.slot(), &event)).0
    }

    /// Sets a property of the registration (TraceLoggingSetInformation) and returns an HRESULT.
    ///
    /// Does nothing and returns HRESULT_FROM_WIN32(ERROR_NOT_SUPPORTED) if providers with ids of
    /// this type [cannot set information](Id::CAN_SET_INFORMATION).
    pub fn set_information<G: Id>(&self, class: u32, information: &[u8]) -> i32 {
        if !G::CAN_SET_INFORMATION {
            return to_hresult(Status::ERROR_NOT_SUPPORTED);
        }
        to_hresult(set_information(self.handle(), class, Some(information)))
    }

    /// Returns the registration handle as a number; 0 without a registration.
    #[must_use]
    pub fn handle(&self) -> u64 {
        self.handle.load(Ordering::Relaxed)
    }
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.unregister();
    }
}

/// Wraps a function and its context number as the callback of a registration.
pub(super) fn make_callback<G: Id>(callback: EnableFunction<G>, context: usize) -> EnableCallback {
    Box::new(move |notice| {
        let filter = notice.filter.map(|(kind, bytes)| FilterDescriptor {
            ptr: bytes.as_ptr().addr() as u64,
            size: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            kind,
        });
        let filter = filter.as_ref().map_or(0, |f| ptr::from_ref(f).expose_provenance());
        let level = Level::from_int(notice.level);
        callback(
            &G::from(notice.source),
            notice.code,
            level,
            notice.match_any,
            notice.match_all,
            filter,
            context,
        );
    })
}

#[inline(always)]
fn to_status(result: Result<(), WriteError>) -> Status {
    match result {
        Ok(()) => Status::ERROR_SUCCESS,
        Err(error) => error.status(),
    }
}

/// Converts a status like HRESULT_FROM_WIN32.
const fn to_hresult(status: Status) -> i32 {
    if status.0.cast_signed() <= 0 {
        status.0.cast_signed()
    } else {
        (0x8007_0000 | status.0 & 0xFFFF).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(code: ControlCode, level: u8, match_any: u64, match_all: u64) -> EnableNotice<'static> {
        EnableNotice {
            source: Guid::NULL,
            code: code.number(),
            level,
            match_any,
            match_all,
            filter: None,
            own_filters: &[],
        }
    }

    #[test]
    fn enable_words_pass_events_by_level_and_keyword() {
        let context = Context::new();
        let passes = |level, keyword| context.enabled(Level::from_int(level), keyword);
        assert!(!passes(0, 0), "a provider that no session enables must pass nothing");
        context.words.update(&notice(ControlCode::Enable, 3, 0x6, 0x2));
        for (level, keyword, expected) in [
            (3, 0x2, true),
            (0, 0x6, true),
            (3, 0, true),
            (4, 0x2, false),
            (3, 0x4, false),
            (3, 0x8, false),
            (3, 0xA, true),
        ] {
            assert_eq!(passes(level, keyword), expected, "level {level} keyword {keyword:#x}");
        }
        context.words.update(&notice(ControlCode::Enable, 0, 0, 0));
        assert!(passes(255, 1 << 63) && passes(0, 0), "level 0 and an any-mask of 0 must pass everything");
        context.words.update(&notice(ControlCode::CaptureState, 1, 1, 1));
        assert!(passes(255, 1 << 63), "a request for the state must change nothing");
        context.words.update(&notice(ControlCode::Disable, 0, 0, 0));
        assert!(!passes(0, 0));
    }

    #[test]
    fn win32_statuses_become_hresults() {
        assert_eq!(to_hresult(Status::ERROR_SUCCESS), 0);
        assert_eq!(to_hresult(Status::ERROR_NOT_SUPPORTED).cast_unsigned(), 0x8007_0032);
        assert_eq!(to_hresult(Status::ERROR_INVALID_PARAMETER).cast_unsigned(), 0x8007_0057);
        assert_eq!(
            to_hresult(Status(0xC000_0001)).cast_unsigned(),
            0xC000_0001,
            "a status that is an HRESULT already"
        );
    }
}
