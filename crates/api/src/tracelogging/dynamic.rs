//! Providers and events that are put together at run time, with the forms of Microsoft's `tracelogging_dynamic` crate.
//!
//! ```
//! use std::pin::pin;
//! use traceweir::tracelogging::dynamic::{EventBuilder, Provider};
//! use traceweir::tracelogging::{Level, OutType};
//!
//! let provider = pin!(Provider::new("Example.Script", &Provider::options()));
//! // Safety: it is dropped, and unregistered by that, before its memory goes.
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
//! A provider is pinned while it is registered, because its callback finds it by its address; dropping it ends the registration. A builder is used for one event after the other and
//! keeps its memory.
//!
//! `unsafe` is allowed here for `register`, whose caller promises what the registration needs.
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
pub use builder::{BuilderOf, EventBuilder};

use super::context::{Context, EnableFunction, boxed};
use super::ids::id_functions;
use super::provider::{describe, name_in};
use super::values::Id;

/// As published: names are shorter than this.
const NAME_LIMIT: usize = 32_768;

/// What a provider may have beside its name.
pub type ProviderOptions = OptionsOf<Guid>;

/// What a provider whose ids have any type may have beside its name.
#[derive(Clone, Copy)]
pub struct OptionsOf<G> {
    group: Option<G>,
    callback: Option<(EnableFunction<G>, usize)>,
}

impl<G> Default for OptionsOf<G> {
    fn default() -> Self {
        Self::new()
    }
}

impl<G> OptionsOf<G> {
    /// None of it.
    pub const fn new() -> Self {
        Self { group: None, callback: None }
    }

    /// The group it belongs to.
    pub fn group_id(&mut self, value: &G) -> &mut Self
    where
        G: Copy,
    {
        self.group = Some(*value);
        self
    }

    /// What is told when sessions enable it, disable it or ask for its state, and a number for that.
    pub fn callback(&mut self, callback: EnableFunction<G>, context: usize) -> &mut Self {
        self.callback = Some((callback, context));
        self
    }
}

impl<G: fmt::Debug> fmt::Debug for OptionsOf<G> {
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

/// A provider made at run time.
pub type Provider = ProviderOf<Guid>;

/// A provider made at run time, whose ids have any type.
pub struct ProviderOf<G> {
    context: Context,
    traits: Vec<u8>,
    id: G,
    callback: Option<(EnableFunction<G>, usize)>,
    _pinned: PhantomPinned,
}

impl<G: Id> ProviderOf<G> {
    /// Options, none of them set.
    pub fn options() -> OptionsOf<G> {
        OptionsOf::new()
    }

    /// A provider of this name, whose id is what the name hashes to. It begins unregistered.
    ///
    /// # Panics
    ///
    /// Where the name has 32,768 bytes or more.
    #[track_caller]
    pub fn new(name: &str, options: &OptionsOf<G>) -> Self {
        Self::new_with_id(name, options, &Self::guid_from_name(name))
    }

    /// A provider of this name and id. It begins unregistered. The name is cut at its first NUL.
    ///
    /// # Panics
    ///
    /// Where the name has 32,768 bytes or more.
    #[track_caller]
    pub fn new_with_id(name: &str, options: &OptionsOf<G>, id: &G) -> Self {
        assert!(name.len() < NAME_LIMIT, "a provider's name has fewer than 32,768 bytes");
        let mut builder = TraitsBuilder::new(name);
        if let Some(group) = options.group {
            builder.group(&group.into());
        }
        // A name of that size and one group make traits that are right.
        let traits = builder.finish().map(<[u8]>::to_vec).unwrap_or_default();
        Self { context: Context::new(), traits, id: *id, callback: options.callback, _pinned: PhantomPinned }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        name_in(&self.traits)
    }

    /// Its id.
    pub const fn id(&self) -> &G {
        &self.id
    }

    /// Its traits: name and group as every event carries them.
    pub fn raw_meta(&self) -> &[u8] {
        &self.traits
    }

    /// Whether any session may want an event of this level and keyword.
    #[inline(always)]
    pub fn enabled(&self, level: Level, keyword: u64) -> bool {
        self.context.enabled(level, keyword)
    }

    /// Registers it: a Win32 status, 0 for success.
    ///
    /// # Safety
    ///
    /// A library that may be unloaded unregisters or drops it before.
    ///
    /// # Panics
    ///
    /// Where it is registered already, or another thread registers or unregisters it.
    #[track_caller]
    pub unsafe fn register(self: Pin<&Self>) -> u32 {
        let callback = self.callback.map(|(callback, context)| boxed(callback, context));
        // SAFETY: pinned and never unpinned, so it stays where it is until it is dropped, which unregisters it; unloading is the caller's.
        unsafe { self.context.register(self.id.into(), &self.traits, callback) }
    }

    /// Ends the registration: a Win32 status, 0 where there is none. It may be registered again.
    pub fn unregister(&self) -> u32 {
        self.context.unregister()
    }

    /// As [`set_information`](super::Provider::set_information) of static providers.
    pub fn set_information(&self, class: u32, information: &[u8]) -> i32 {
        self.context.set_information(class, information)
    }
}

id_functions!(ProviderOf);

impl<G: Id> fmt::Debug for ProviderOf<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, self.name(), self.id.into(), &self.context)
    }
}
