//! Providers and events that are built at run time, with the types and functions of Microsoft's
//! `tracelogging_dynamic` crate.
//!
//! ```
//! use std::pin::pin;
//! use traceweir::tracelogging::dynamic::{EventBuilder, Provider};
//! use traceweir::tracelogging::{Level, OutType};
//!
//! let provider = pin!(Provider::new("Example.Script", &Provider::options()));
//! // SAFETY: the code of a program is never unloaded.
//! unsafe { provider.as_ref().register() };
//! let mut builder = EventBuilder::new();
//! if provider.enabled(Level::Verbose, 0x1) {
//!     builder
//!         .reset("Ran", Level::Verbose, 0x1, 0)
//!         .add_str8("script", "a.js", OutType::Utf8, 0)
//!         .add_u32("lines", 12, OutType::Default, 0)
//!         .write(&provider, None, None);
//! }
//! ```
//!
//! A provider is pinned while it is registered, because its callback finds it by its address;
//! dropping it ends the registration. A builder can be reused for further events and keeps its
//! memory.
//!
//! `unsafe` is allowed here for `register`, whose caller guarantees that the provider is
//! unregistered before its code is unloaded.
#![allow(unsafe_code)]

mod builder;
mod fields;

use std::fmt;
use std::marker::PhantomPinned;
use std::pin::Pin;

use traceweir_format::Guid;
use traceweir_format::tracelogging::TraitsBuilder;

pub use super::context::ProviderEnableCallback;
pub use super::types::{Channel, InType, Level, Opcode, OutType};
pub use builder::{EventBuilder, EventBuilderWithId};

use super::context::{Context, EnableFunction, make_callback};
use super::ids::id_functions;
use super::provider::{format_provider, name_from_traits};
use super::values::Id;

/// The documented limit: names are shorter than this.
const NAME_LIMIT_BYTES: usize = 32_768;

/// The optional properties of a provider.
pub type ProviderOptions = ProviderOptionsWithId<Guid>;

/// The optional properties of a provider, for programs with their own GUID type `G`.
#[derive(Clone, Copy)]
pub struct ProviderOptionsWithId<G> {
    group: Option<G>,
    callback: Option<(EnableFunction<G>, usize)>,
}

impl<G> Default for ProviderOptionsWithId<G> {
    fn default() -> Self {
        Self::new()
    }
}

impl<G> ProviderOptionsWithId<G> {
    /// Creates options with nothing set.
    pub const fn new() -> Self {
        Self { group: None, callback: None }
    }

    /// Sets the group of the provider.
    pub fn group_id(&mut self, value: &G) -> &mut Self
    where
        G: Copy,
    {
        self.group = Some(*value);
        self
    }

    /// Sets the callback, and the context number that is passed to it. The callback runs when a
    /// session enables or disables the provider or requests its state.
    pub fn callback(&mut self, callback: EnableFunction<G>, context: usize) -> &mut Self {
        self.callback = Some((callback, context));
        self
    }
}

impl<G: fmt::Debug> fmt::Debug for ProviderOptionsWithId<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = self.callback.as_ref().map(|(callback, _)| *callback as *const ());
        let context = self.callback.as_ref().map_or(0, |(_, context)| *context);
        write!(
            f,
            "ProviderOptions {{ group_id: \"{:?}\", callback_fn: {function:?}, callback_context: {context:x} }}",
            self.group
        )
    }
}

/// A provider that is created at run time.
pub type Provider = ProviderWithId<Guid>;

/// A provider that is created at run time, for programs with their own GUID type `G`.
pub struct ProviderWithId<G> {
    context: Context,
    traits: Vec<u8>,
    id: G,
    callback: Option<(EnableFunction<G>, usize)>,
    _pinned: PhantomPinned,
}

impl<G: Id> ProviderWithId<G> {
    /// Creates options with nothing set.
    pub fn options() -> ProviderOptionsWithId<G> {
        ProviderOptionsWithId::new()
    }

    /// Creates an unregistered provider with this name, whose id is the hash of the name.
    ///
    /// # Panics
    ///
    /// Panics if the name has 32,768 bytes or more.
    #[track_caller]
    pub fn new(name: &str, options: &ProviderOptionsWithId<G>) -> Self {
        Self::new_with_id(name, options, &Self::guid_from_name(name))
    }

    /// Creates an unregistered provider with this name and id. The name ends at its first NUL.
    ///
    /// # Panics
    ///
    /// Panics if the name has 32,768 bytes or more.
    #[track_caller]
    pub fn new_with_id(name: &str, options: &ProviderOptionsWithId<G>, id: &G) -> Self {
        assert!(name.len() < NAME_LIMIT_BYTES, "a provider's name must have fewer than 32,768 bytes");
        let mut builder = TraitsBuilder::new(name);
        if let Some(group) = options.group {
            builder.group(&group.into());
        }
        // A name of that size and one group make valid traits.
        let traits = builder.finish().map(<[u8]>::to_vec).unwrap_or_default();
        Self { context: Context::new(), traits, id: *id, callback: options.callback, _pinned: PhantomPinned }
    }

    /// Returns the name of the provider.
    pub fn name(&self) -> &str {
        name_from_traits(&self.traits)
    }

    /// Returns the id of the provider.
    pub const fn id(&self) -> &G {
        &self.id
    }

    /// Returns the traits: name and group as every event carries them.
    pub fn raw_meta(&self) -> &[u8] {
        &self.traits
    }

    /// Returns whether any session may want an event of this level and keyword.
    #[inline(always)]
    pub fn enabled(&self, level: Level, keyword: u64) -> bool {
        self.context.enabled(level, keyword)
    }

    /// Registers the provider and returns a Win32 status, 0 for success.
    ///
    /// # Safety
    ///
    /// The provider must be unregistered or dropped before the library that contains its code is
    /// unloaded.
    ///
    /// # Panics
    ///
    /// Panics if it is registered already, or another thread is registering or unregistering it.
    #[track_caller]
    pub unsafe fn register(self: Pin<&Self>) -> u32 {
        let callback = self.callback.map(|(callback, context)| make_callback(callback, context));
        // SAFETY: pinned and never unpinned, so it stays in place until it is dropped, which
        // unregisters it; the caller handles unloading.
        unsafe { self.context.register(self.id.into(), &self.traits, callback) }
    }

    /// Ends the registration, if there is one, and returns a Win32 status. The provider may be
    /// registered again.
    pub fn unregister(&self) -> u32 {
        self.context.unregister()
    }

    /// Sets a property of the registration and returns an HRESULT, like
    /// [`set_information`](super::Provider::set_information) of static providers.
    pub fn set_information(&self, class: u32, information: &[u8]) -> i32 {
        self.context.set_information::<G>(class, information)
    }
}

id_functions!(ProviderWithId);

impl<G: Id> fmt::Debug for ProviderWithId<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_provider(f, self.name(), self.id.into(), &self.context)
    }
}
