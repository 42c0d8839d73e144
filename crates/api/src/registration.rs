//! Registrations: a table of 1024 slots in static memory.
//!
//! ```text
//!   handle  = generation (upper 32 bits) │ slot index + 1        a number that C programs can keep
//!   slot    ┌─ cache line 0 ──────────────────────────────────────────────────────────────────┐
//!           │ level  ignores_keyword_0  any  all  active                                      │
//!           │ provider (16)  traits  generation  claimed                                      │
//!           │     read by every write                                                         │
//!           ├─ cache line 1 ──────────────────────────────────────────────────────────────────┤
//!           │ version  notified  turn  callback  retired  flags  decoding  classes …          │
//!           │     read by registering threads, the control thread, writes through a raw       │
//!           │     handle (is_classic), and writes with traits (decoding)                      │
//!           ├─ entries ───────────────────────────────────────────────────────────────────────┤
//!           │ 32 × 32 bytes, see `enable`                                                     │
//!           └─────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! | File | Contents |
//! |---|---|
//! | `enable` | the enable state: which sessions want which events |
//! | `callback` | calls of the enable callback |
//! | `module` | the executable or library that contains the provider |
//! | `parts` | traits, decode GUID and classes, as slots refer to them |
//!
//! A slot is never freed, so a stale handle, a signal handler or a forked child always finds valid
//! memory. The generation is odd while the slot is in use and shows whether the registration has
//! ended.
//!
//! Invariants
//!
//! 1. `is_claimed` is set by compare-exchange. Only the thread that set it fills the slot, and only
//!    the thread that moved the generation from odd to even empties it.
//! 2. Only the thread that holds the `turn` (see `callback`) reads, calls or removes the callback,
//!    so no callback is freed during a call.
//! 3. Traits, the header words derived from them, lists of classes, and modules are interned and
//!    never freed.
//! 4. Traits are set once, by `fill` or later under the client's lock, after the words derived from
//!    them: a writer that finds traits finds the derived words too.
//!
//! Nothing here waits for a daemon; the client announces registrations.
#![allow(unsafe_code)]

#[deny(unsafe_code)]
mod callback;
#[deny(unsafe_code)]
pub(crate) mod enable;
mod module;
mod parts;

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::EnableParams;
use traceweir_transport::ring::Ticket;

use crate::enable_notice::EnableCallback;
use crate::error::{Error, Result};
use callback::CallbackTurn;
pub(crate) use callback::provider_filter;
use enable::{AtomicSessionEnable, EnableChange, MAX_ENABLE_ENTRIES};
pub(crate) use module::{ProviderModule, find_mapped_path};
pub(crate) use parts::{Classes, DecodeGuidWords, NewRegistration, ProviderTraits};
pub use traceweir_transport::message::MAX_REGISTRATIONS;

/// A reference to the slot of a registration.
pub(crate) type SlotRef = &'static RegistrationSlot;

/// A registration, or a free slot for one.
#[repr(C, align(64))]
pub(crate) struct RegistrationSlot {
    // The enable state, up to `active`: see `enable`.
    level: AtomicU32,
    ignores_keyword_0: AtomicU32,
    any: AtomicU64,
    all: AtomicU64,
    active: AtomicU64,
    provider: [AtomicU64; 2],
    traits: AtomicPtr<ProviderTraits>,
    generation: AtomicU32,
    is_claimed: AtomicBool,
    /// Data descriptors have types even without traits.
    has_types: AtomicBool,
    /// Number of changes of the enable state.
    version: AtomicU64,
    /// The version that was last reported to the callback.
    notified: AtomicU64,
    turn: CallbackTurn,
    callback: AtomicPtr<EnableCallback>,
    /// A callback that has unregistered its own provider, to be freed when it has returned.
    retired_callback: AtomicPtr<EnableCallback>,
    /// The registering thread calls the callback itself, and no other thread does.
    is_registering: AtomicBool,
    /// The last call of the callback reported "enabled".
    has_reported_enabled: AtomicBool,
    /// A classic provider: only one session at a time can enable it; module `classic` writes its
    /// events.
    is_classic: AtomicBool,
    decoding: AtomicPtr<DecodeGuidWords>,
    classes: AtomicPtr<Classes>,
    /// An address in the module that the provider belongs to; 0 for the module of this code.
    origin: AtomicUsize,
    /// The module at `origin`, if sessions record it.
    module: AtomicPtr<ProviderModule>,
    entries: [AtomicSessionEnable; MAX_ENABLE_ENTRIES],
}

// A number in control messages has ten bits for the slot.
const _: () = assert!(MAX_REGISTRATIONS == 1 << 10);
const _: () =
    assert!(size_of::<RegistrationSlot>() <= 1216 && std::mem::offset_of!(RegistrationSlot, version) == 64);

static TABLE: [RegistrationSlot; MAX_REGISTRATIONS] = [const { RegistrationSlot::new() }; MAX_REGISTRATIONS];

/// The index at which the next search for a free slot begins, so that slots are reused late.
static NEXT_SEARCH_INDEX: AtomicUsize = AtomicUsize::new(0);

impl RegistrationSlot {
    pub(crate) const fn new() -> Self {
        Self {
            level: AtomicU32::new(0),
            ignores_keyword_0: AtomicU32::new(0),
            any: AtomicU64::new(0),
            all: AtomicU64::new(0),
            active: AtomicU64::new(0),
            provider: [AtomicU64::new(0), AtomicU64::new(0)],
            traits: AtomicPtr::new(ptr::null_mut()),
            generation: AtomicU32::new(0),
            is_claimed: AtomicBool::new(false),
            has_types: AtomicBool::new(false),
            version: AtomicU64::new(0),
            notified: AtomicU64::new(0),
            turn: CallbackTurn::new(),
            callback: AtomicPtr::new(ptr::null_mut()),
            retired_callback: AtomicPtr::new(ptr::null_mut()),
            is_registering: AtomicBool::new(false),
            has_reported_enabled: AtomicBool::new(false),
            is_classic: AtomicBool::new(false),
            decoding: AtomicPtr::new(ptr::null_mut()),
            classes: AtomicPtr::new(ptr::null_mut()),
            origin: AtomicUsize::new(0),
            module: AtomicPtr::new(ptr::null_mut()),
            entries: [const { AtomicSessionEnable::new() }; MAX_ENABLE_ENTRIES],
        }
    }

    /// Returns the provider id as the two words of an event header.
    #[inline(always)]
    pub(crate) fn provider_words(&self) -> [u64; 2] {
        [self.provider[0].load(Ordering::Relaxed), self.provider[1].load(Ordering::Relaxed)]
    }

    pub(crate) fn provider(&self) -> Guid {
        guid_from_words(self.provider_words())
    }

    /// Returns the traits that every event carries; empty if there are none.
    #[inline(always)]
    pub(crate) fn traits(&self) -> &'static [u8] {
        let traits = self.traits.load(Ordering::Acquire);
        // SAFETY: null, or a leaked `ProviderTraits` (invariant 3) published by the release store in
        // `set_traits`.
        unsafe { traits.as_ref() }.map_or(&[], ProviderTraits::bytes)
    }

    #[inline(always)]
    pub(crate) fn has_traits(&self) -> bool {
        !self.traits.load(Ordering::Relaxed).is_null()
    }

    /// Returns the traits as an extended data item; empty if there are none. `None` if the traits
    /// also change the event header ([`decoding`](Self::decoding)).
    #[inline(always)]
    pub(crate) fn traits_item(&self, another_follows: bool) -> Option<&'static [u64]> {
        // SAFETY: null, or a leaked `ProviderTraits` (invariant 3) published by the release store
        // in `set_traits`.
        let Some(traits) = (unsafe { self.traits.load(Ordering::Acquire).as_ref() }) else {
            return Some(&[]);
        };
        // Stored before the traits (invariant 4).
        let is_plain = self.decoding.load(Ordering::Relaxed).is_null();
        is_plain.then(|| traits.item(another_follows))
    }

    /// Borrows the provider id in the layout of an event header.
    #[inline(always)]
    pub(crate) fn provider_in_memory(&self) -> &[AtomicU64; 2] {
        &self.provider
    }

    /// Returns the header words that replace the provider id, if the traits name another GUID to
    /// decode events by.
    #[inline]
    pub(crate) fn decoding(&self) -> Option<&'static DecodeGuidWords> {
        // SAFETY: null, or a leaked `DecodeGuidWords` (invariant 3) published by the release store
        // in `set_traits`.
        unsafe { self.decoding.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the traits of all later events. Called once, under the client's lock or before the
    /// registration is published.
    pub(crate) fn set_traits(
        &self,
        traits: Option<&'static ProviderTraits>,
        decoding: Option<&'static DecodeGuidWords>,
    ) {
        self.decoding.store(to_atomic_pointer(decoding), Ordering::Release);
        self.traits.store(to_atomic_pointer(traits), Ordering::Release);
    }

    /// Returns whether data descriptors have types: the provider requested it, or has traits.
    #[inline(always)]
    pub(crate) fn has_descriptor_types(&self) -> bool {
        self.has_types.load(Ordering::Relaxed) || !self.traits.load(Ordering::Relaxed).is_null()
    }

    /// Sets whether data descriptors have types even if there are no traits.
    pub(crate) fn set_descriptor_types(&self, has_types: bool) {
        self.has_types.store(has_types, Ordering::Relaxed);
    }

    /// Returns whether this is the registration of a classic provider.
    // Part of every write by handle, and inlined into other crates.
    #[inline(always)]
    pub(crate) fn is_classic(&self) -> bool {
        self.is_classic.load(Ordering::Relaxed)
    }

    /// Returns the event classes of a classic provider.
    pub(crate) fn classes(&self) -> &'static [Guid] {
        // SAFETY: null, or a leaked `Classes` (invariant 3) published by the release store in
        // `fill`.
        unsafe { self.classes.load(Ordering::Acquire).as_ref() }.map_or(&[], |c| &c.0)
    }

    /// Returns the number of the current registration, in the form of [`Handle::to_raw`].
    pub(crate) fn raw_handle(&self) -> u64 {
        make_raw_handle(self.generation.load(Ordering::Acquire), self)
    }

    /// Returns an address in the module that the provider belongs to.
    pub(crate) fn origin(&self) -> usize {
        match self.origin.load(Ordering::Relaxed) {
            0 => Self::origin as *const () as usize,
            address => address,
        }
    }

    /// Returns the module that sessions record, if any.
    pub(crate) fn module(&self) -> Option<&'static ProviderModule> {
        // SAFETY: null, or a leaked `ProviderModule` (invariant 3) published by the release store
        // in `set_module`.
        unsafe { self.module.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the module that sessions record from now on, if any. Requires the client's lock.
    pub(crate) fn set_module(&self, module: Option<&'static ProviderModule>) {
        self.module.store(to_atomic_pointer(module), Ordering::Release);
    }

    pub(crate) fn has_callback(&self) -> bool {
        !self.callback.load(Ordering::Acquire).is_null()
    }

    /// Calls the callback, if there is one. The caller holds the turn.
    pub(crate) fn call_callback_with(&self, call: impl FnOnce(&EnableCallback)) {
        // SAFETY: null, or a box leaked by `fill`. Only `drop_callback` frees it: under the turn,
        // which the caller holds, or through `retired_callback` below, after the call.
        if let Some(callback) = unsafe { self.callback.load(Ordering::Acquire).as_ref() } {
            call(callback);
        }
        let retired_callback = self.retired_callback.swap(ptr::null_mut(), Ordering::AcqRel);
        if !retired_callback.is_null() {
            // SAFETY: `drop_callback` took it out of `callback`, and this thread alone took it out
            // of `retired_callback`; no call of it is running any more.
            drop(unsafe { Box::from_raw(retired_callback) });
        }
    }

    fn fill(&self, new: NewRegistration) -> u32 {
        let words = new.provider.to_words();
        self.provider[0].store(words[0], Ordering::Relaxed);
        self.provider[1].store(words[1], Ordering::Relaxed);
        self.set_traits(new.traits, new.decoding);
        self.set_descriptor_types(false);
        self.origin.store(new.origin, Ordering::Relaxed);
        self.set_module(None);
        self.is_classic.store(new.classes.is_some(), Ordering::Relaxed);
        self.classes.store(to_atomic_pointer(new.classes), Ordering::Release);
        let callback = new.callback.map_or(ptr::null_mut(), |c| Box::into_raw(Box::new(c)));
        self.callback.store(callback, Ordering::Release);
        self.version.store(0, Ordering::Relaxed);
        self.notified.store(0, Ordering::Relaxed);
        self.has_reported_enabled.store(false, Ordering::Relaxed);
        self.is_registering.store(true, Ordering::SeqCst);
        // Odd from now on. Pairs with the acquire loads of `is_current`.
        self.generation.fetch_add(1, Ordering::Release).wrapping_add(1)
    }

    /// Waits for a running callback, unless called from inside it, and frees it.
    fn drop_callback(&self) {
        let turn = self.turn.acquire();
        let callback = self.callback.swap(ptr::null_mut(), Ordering::AcqRel);
        if callback.is_null() {
            return;
        }
        // Inside the callback, `call_callback_with` frees it later. If `retired_callback` is set
        // already, it is the callback that is running. Then `callback` belongs to a later
        // registration in this slot, and was never called.
        let is_retired = turn.is_none()
            && self
                .retired_callback
                .compare_exchange(ptr::null_mut(), callback, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        if !is_retired {
            // SAFETY: leaked by `fill` and taken out by this thread alone; it is not running,
            // because this thread holds the turn or another callback is running.
            drop(unsafe { Box::from_raw(callback) });
        }
    }
}

/// Converts a leaked reference to the pointer that `AtomicPtr` stores. No code writes through it.
fn to_atomic_pointer<T>(value: Option<&'static T>) -> *mut T {
    value.map_or(ptr::null_mut(), |value| ptr::from_ref(value).cast_mut())
}

fn guid_from_words(words: [u64; 2]) -> Guid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_le_bytes());
    bytes[8..].copy_from_slice(&words[1].to_le_bytes());
    Guid::from_bytes(&bytes)
}

/// A copyable reference to a registration that may have ended.
///
/// [`Provider`](crate::Provider) is the owner that unregisters it. [`provider`](Self::provider)
/// returns a [`ProviderRef`](crate::provider::ProviderRef), which writes the registration's events,
/// or fails if the registration has ended.
#[derive(Clone, Copy)]
pub struct Handle {
    slot: &'static RegistrationSlot,
    generation: u32,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({:#x})", self.to_raw())
    }
}

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        self.to_raw() == other.to_raw()
    }
}

impl Eq for Handle {}

impl Handle {
    /// Claims a free slot for a provider with plain traits, without announcing it.
    #[cfg(test)]
    pub(crate) fn claim_plain(
        provider: Guid,
        traits: Option<&'static ProviderTraits>,
        callback: Option<EnableCallback>,
    ) -> Result<Self> {
        Self::claim_slot(NewRegistration {
            provider,
            traits,
            decoding: None,
            classes: None,
            callback,
            origin: 0,
        })
    }

    /// Claims a free slot, without announcing the registration.
    pub(crate) fn claim_slot(new: NewRegistration) -> Result<Self> {
        let start = NEXT_SEARCH_INDEX.fetch_add(1, Ordering::Relaxed);
        for step in 0..MAX_REGISTRATIONS {
            let index = start.wrapping_add(step) % MAX_REGISTRATIONS;
            let slot = &TABLE[index];
            if slot.is_claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                NEXT_SEARCH_INDEX.store(index + 1, Ordering::Relaxed);
                return Ok(Self { slot, generation: slot.fill(new) });
            }
        }
        Err(Error::refused(
            Status::ERROR_NO_SYSTEM_RESOURCES,
            format!("this process has {MAX_REGISTRATIONS} registrations already"),
        ))
    }

    /// Returns the number that identifies the registration outside Rust; never 0.
    #[must_use]
    pub fn to_raw(self) -> u64 {
        make_raw_handle(self.generation, self.slot)
    }

    /// Finds the registration with this raw handle.
    ///
    /// Returns `None` for a raw handle that no current registration has, and for that of a classic
    /// provider, whose events are written by other functions.
    #[inline]
    #[must_use]
    pub fn from_raw(raw: u64) -> Option<Self> {
        Self::from_raw_any_kind(raw).filter(|handle| !handle.slot.is_classic())
    }

    /// Finds the registration with this raw handle, for any kind of provider.
    #[inline]
    pub(crate) fn from_raw_any_kind(raw: u64) -> Option<Self> {
        let index = usize::try_from(raw & 0xFFFF_FFFF).ok()?.checked_sub(1)?;
        let handle = Self { slot: TABLE.get(index)?, generation: u32::try_from(raw >> 32).ok()? };
        handle.is_current().then_some(handle)
    }

    /// Returns whether the provider is still registered.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        self.generation & 1 == 1 && self.slot.generation.load(Ordering::Acquire) == self.generation
    }

    /// Returns the number in control messages: slot index and the generation bits that fit.
    pub(crate) fn number(self) -> u32 {
        self.generation << 10 | self.index() as u32
    }

    /// Finds the registration with this number of a control message.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        let slot = &TABLE[number as usize % MAX_REGISTRATIONS];
        let handle = Self { slot, generation: slot.generation.load(Ordering::Acquire) };
        (handle.is_current() && handle.number() == number).then_some(handle)
    }

    pub(crate) fn iter_current() -> impl Iterator<Item = Self> {
        TABLE
            .iter()
            .map(|slot| Self { slot, generation: slot.generation.load(Ordering::Acquire) })
            .filter(|handle| handle.generation & 1 == 1)
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> SlotRef {
        self.slot
    }

    /// Enables the registration for a session, or changes the parameters of a session that enables
    /// it already. If the registration is tracked, a new session gets its module. Requires the
    /// client's lock. A classic provider has one session at a time: this call replaces the former
    /// session.
    pub(crate) fn enable_session(self, outlet: u8, ticket: Ticket, params: &EnableParams) -> EnableChange {
        let before = self.slot.find_enable(outlet);
        let change = self.change_session(outlet, ticket, params);
        if before.is_none_or(|before| before.ticket != ticket) {
            self.slot.send_tracked_module(outlet);
        }
        change
    }

    fn change_session(self, outlet: u8, ticket: Ticket, params: &EnableParams) -> EnableChange {
        if !self.slot.is_classic() {
            return self.slot.enable_session(outlet, ticket, params);
        }
        let match_any = params.match_any & u64::from(u32::MAX);
        let classic_params = EnableParams { level: params.level, match_any, ..EnableParams::default() };
        let change = self.slot.enable_session(outlet, ticket, &classic_params);
        let has_replaced_session = self.slot.disable_sessions(!(1 << outlet));
        if has_replaced_session { EnableChange::Changed } else { change }
    }

    /// Ends the registration, so that no writer and no message finds it; `false` if another thread
    /// ended it.
    pub(crate) fn retire(self) -> bool {
        let next = self.generation.wrapping_add(1);
        self.generation & 1 == 1
            && self
                .slot
                .generation
                .compare_exchange(self.generation, next, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Frees the callback and the slot of a retired registration, whose entries the caller
    /// has cleared.
    pub(crate) fn release(self) {
        self.slot.drop_callback();
        // Pairs with the acquire in `claim_slot`.
        self.slot.is_claimed.store(false, Ordering::Release);
    }

    fn index(self) -> usize {
        slot_index(self.slot)
    }
}

fn slot_index(slot: &RegistrationSlot) -> usize {
    (ptr::from_ref(slot).addr() - TABLE.as_ptr().addr()) / size_of::<RegistrationSlot>()
}

fn make_raw_handle(generation: u32, slot: &RegistrationSlot) -> u64 {
    u64::from(generation) << 32 | (slot_index(slot) as u64 + 1)
}
