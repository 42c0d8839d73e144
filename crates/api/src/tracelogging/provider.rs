//! The static provider of `define_provider!`.
//!
//! `unsafe` is allowed here for `register`, whose caller guarantees the lifetime of the provider.
#![allow(unsafe_code)]

use std::fmt;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::tracelogging::Traits;

use super::context::{Context, EnableFunction, make_callback};
use super::ids::id_functions;
use super::types::Level;
use super::values::Id;
use crate::event::{Block, Blocks};

/// A provider of self-describing events, defined by [`define_provider!`](crate::define_provider).
pub type Provider = ProviderWithId<Guid>;

/// A static provider, for programs with their own GUID type `G`.
pub struct ProviderWithId<G> {
    context: Context,
    traits: &'static [u8],
    id: G,
}

impl<G> ProviderWithId<G> {
    /// Creates an unregistered provider, for `define_provider!`.
    #[doc(hidden)]
    pub const fn new(traits: &'static [u8], id: G) -> Self {
        Self { context: Context::new(), traits, id }
    }

    /// Returns the traits: name and group as every event carries them.
    pub const fn raw_meta(&self) -> &[u8] {
        self.traits
    }

    /// Returns the name of the provider.
    pub fn name(&self) -> &str {
        name_from_traits(self.traits)
    }

    /// Returns the id of the provider.
    pub const fn id(&self) -> &G {
        &self.id
    }

    /// Returns whether any session may want an event of this level and keyword.
    ///
    /// Costs one load and one compare while no session has the provider enabled.
    #[inline(always)]
    pub fn enabled(&self, level: Level, keyword: u64) -> bool {
        self.context.enabled(level, keyword)
    }

    /// Ends the registration, if there is one, and returns a Win32 status. The provider may be
    /// registered again.
    pub fn unregister(&self) -> u32 {
        self.context.unregister()
    }
}

impl<G: Id> ProviderWithId<G> {
    /// Sets a property of the registration (TraceLoggingSetInformation) and returns an HRESULT,
    /// 0x80070057 (ERROR_INVALID_PARAMETER) if it is not registered.
    pub fn set_information(&self, class: u32, information: &[u8]) -> i32 {
        self.context.set_information::<G>(class, information)
    }

    /// Registers the provider with its traits and returns a Win32 status, 0 for success.
    ///
    /// A daemon that starts later learns of the registration.
    ///
    /// # Safety
    ///
    /// The provider is a static, or stays in place until it is unregistered. A library that may be
    /// unloaded must unregister it first.
    ///
    /// # Panics
    ///
    /// Panics if it is registered already, or another thread is registering or unregistering it.
    #[track_caller]
    pub unsafe fn register(&self) -> u32 {
        // SAFETY: the context is a field of the provider. The caller promises that the provider is
        // a static or stays in place until it is unregistered, and that a library unregisters it
        // before it is unloaded.
        unsafe { self.context.register(self.id.into(), self.traits, None) }
    }

    /// Registers the provider like [`register`](Self::register), with a callback for enables,
    /// disables and requests of its state.
    ///
    /// # Safety
    ///
    /// The provider is a static, or stays in place until it is unregistered. A library that may be
    /// unloaded must unregister it first.
    ///
    /// # Panics
    ///
    /// Panics as [`register`](Self::register) does.
    #[track_caller]
    pub unsafe fn register_with_callback(&self, callback: EnableFunction<G>, context: usize) -> u32 {
        // SAFETY: the context is a field of the provider, which the caller keeps in place and
        // loaded until it is unregistered; `callback` is a function pointer and needs no lifetime.
        unsafe { self.context.register(self.id.into(), self.traits, Some(make_callback(callback, context))) }
    }
}

id_functions!(ProviderWithId);

impl<G: Id> fmt::Debug for ProviderWithId<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_provider(f, self.name(), self.id.into(), &self.context)
    }
}

/// Formats a provider of any kind.
pub(super) fn format_provider(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    id: Guid,
    context: &Context,
) -> fmt::Result {
    let enabled = context.enabled(Level::LogAlways, 0);
    write!(
        f,
        "Provider {{ name: \"{name}\", id: {id}, enabled: {enabled}, reg_handle: {:x} }}",
        context.handle()
    )
}

/// Returns the name in traits that were built from a string.
pub(super) fn name_from_traits(traits: &[u8]) -> &str {
    Traits::parse(traits).ok().and_then(|t| std::str::from_utf8(t.name).ok()).unwrap_or_default()
}

/// Creates a provider, for `define_provider!`.
#[must_use]
pub const fn provider(traits: &'static [u8], id: &[u8; 16]) -> Provider {
    Provider::new(traits, Guid::from_bytes(id))
}

/// Writes an event, for `write_event!`.
#[inline(always)]
pub fn write<G>(
    provider: &ProviderWithId<G>,
    descriptor: &EventDescriptor,
    metadata: &[u8],
    activity: Option<&Guid>,
    related: Option<&Guid>,
    data: &[Block<'_>],
) -> u32 {
    provider.context.write(descriptor, metadata, activity, related, Blocks::new(data))
}
