//! The provider that `define_provider!` makes.
//!
//! `unsafe` is allowed here for `register`, whose caller promises what the registration needs.
#![allow(unsafe_code)]

use std::fmt;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::tracelogging::Traits;
use traceweir_transport::ring::{Block, Blocks};

use super::context::{Context, EnableFunction, boxed};
use super::ids::id_functions;
use super::types::Level;
use super::values::Id;

/// A provider of events that describe themselves; made by [`define_provider!`](crate::define_provider).
pub type Provider = ProviderOf<Guid>;

/// A static provider whose ids have any type.
pub struct ProviderOf<G> {
    context: Context,
    traits: &'static [u8],
    id: G,
}

impl<G> ProviderOf<G> {
    /// For `define_provider!`.
    #[doc(hidden)]
    pub const fn new(traits: &'static [u8], id: G) -> Self {
        Self { context: Context::new(), traits, id }
    }

    /// Its traits: name and group as every event carries them.
    pub const fn raw_meta(&self) -> &[u8] {
        self.traits
    }

    /// Its name.
    pub fn name(&self) -> &str {
        name_in(self.traits)
    }

    /// Its id.
    pub const fn id(&self) -> &G {
        &self.id
    }

    /// Whether any session may want an event of this level and keyword: one load and one compare while nobody listens.
    #[inline(always)]
    pub fn enabled(&self, level: Level, keyword: u64) -> bool {
        self.context.enabled(level, keyword)
    }

    /// Ends the registration: a Win32 status, 0 where there is none. It may be registered again.
    pub fn unregister(&self) -> u32 {
        self.context.unregister()
    }

    /// Sets something about the registration (TraceLoggingSetInformation): an HRESULT, 0x80070057 where it is not registered.
    ///
    /// With the feature `set-info-off` it does nothing and returns 0x80070032, ERROR_NOT_SUPPORTED.
    pub fn set_information(&self, class: u32, information: &[u8]) -> i32 {
        self.context.set_information(class, information)
    }
}

impl<G: Id> ProviderOf<G> {
    /// Registers it: a Win32 status, 0 for success, after which it has its traits. A daemon that appears later is told.
    ///
    /// # Safety
    ///
    /// It is a static, or stays where it is until it is unregistered. A library that may be unloaded unregisters it before.
    ///
    /// # Panics
    ///
    /// Where it is registered already, or another thread registers or unregisters it.
    #[track_caller]
    pub unsafe fn register(&self) -> u32 {
        // SAFETY: the caller's.
        unsafe { self.context.register(self.id.into(), self.traits, None) }
    }

    /// The same with a callback that is told when sessions enable it, disable it or ask for its state.
    ///
    /// # Safety
    ///
    /// As for [`register`](Self::register).
    ///
    /// # Panics
    ///
    /// As [`register`](Self::register).
    #[track_caller]
    pub unsafe fn register_with_callback(&self, callback: EnableFunction<G>, context: usize) -> u32 {
        // SAFETY: the caller's.
        unsafe { self.context.register(self.id.into(), self.traits, Some(boxed(callback, context))) }
    }
}

id_functions!(ProviderOf);

impl<G: Id> fmt::Debug for ProviderOf<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, self.name(), self.id.into(), &self.context)
    }
}

/// The same words for all kinds of providers.
pub(super) fn describe(f: &mut fmt::Formatter<'_>, name: &str, id: Guid, context: &Context) -> fmt::Result {
    let enabled = context.enabled(Level::LogAlways, 0);
    write!(
        f,
        "Provider {{ name: \"{name}\", id: {id}, enabled: {enabled}, reg_handle: {:x} }}",
        context.handle()
    )
}

/// The name in traits that were built from a string.
pub(super) fn name_in(traits: &[u8]) -> &str {
    Traits::parse(traits).ok().and_then(|t| std::str::from_utf8(t.name).ok()).unwrap_or_default()
}

/// For `define_provider!`.
#[must_use]
pub const fn provider(traits: &'static [u8], id: &[u8; 16]) -> Provider {
    Provider::new(traits, Guid::from_bytes(id))
}

/// For `write_event!`.
#[inline(always)]
pub fn write<G>(
    provider: &ProviderOf<G>,
    descriptor: &EventDescriptor,
    metadata: &[u8],
    activity: Option<&Guid>,
    related: Option<&Guid>,
    data: &[Block<'_>],
) -> u32 {
    provider.context.write(descriptor, metadata, activity, related, Blocks::new(data))
}
