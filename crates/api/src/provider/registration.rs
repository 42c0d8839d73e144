//! Registrations: a table of 1024 slots in static memory.
//!
//! ```text
//!   handle  = generation (upper 32 bits) │ slot index + 1                  a number that a C program can keep
//!   slot    ┌─ line 0 ────────────────────────────────────────────────────────────┐
//!           │ level  strict  any  all  active │ provider (16) │ traits │ generation │ claimed │     read by every write
//!           ├─ line 1 ────────────────────────────────────────────────────────────┤
//!           │ version  notified  turn  callback  doomed  flags  decoding  classes … │     read by registering threads, the control thread, and writers
//!           │                                                                      │     whose registration is of a rarer kind
//!           ├─ entries ───────────────────────────────────────────────────────────┤
//!           │ 32 × 32 bytes, see `enable`                                          │
//!           └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A slot is never freed, so a stale handle, a signal handler or a forked child always finds memory to look at; the generation, odd while the slot
//! is in use, tells it that the registration is gone.
//!
//! Invariants
//!
//! 1. `claimed` is taken by compare-exchange; only who took it fills the slot, and only the one who moved the generation from odd to even empties it.
//! 2. The callback is read, called and taken out by whoever has the `turn` (see `callback`), so it is not freed under a caller.
//! 3. Traits, what follows from them for headers, lists of classes and modules are interned and never freed.
//! 4. Traits are set once, by `fill` or later under the client's lock, and what follows from them before: a writer that finds traits finds that too.
//!
//! Nothing here waits for a daemon; announcing a registration is the client's part.
#![allow(unsafe_code)]

mod parts;

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::EnableParams;
use traceweir_transport::ring::Ticket;

use super::EnableCallback;
use super::binary::Module;
use super::callback::Turn;
use super::enable::{Change, Entry, MAX_ENTRIES};
use crate::error::{Error, Result};

pub(crate) use parts::{Classes, Decoding, New, Traits};
pub use traceweir_transport::message::MAX_REGISTRATIONS;

/// One registration, or room for one.
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(super) level: AtomicU32,
    pub(super) strict: AtomicU32,
    pub(super) any: AtomicU64,
    pub(super) all: AtomicU64,
    pub(super) active: AtomicU64,
    provider: [AtomicU64; 2],
    traits: AtomicPtr<Traits>,
    generation: AtomicU32,
    claimed: AtomicBool,
    /// Data descriptors have types, also without traits.
    typed: AtomicBool,
    pub(super) version: AtomicU64,
    pub(super) notified: AtomicU64,
    pub(super) turn: Turn,
    callback: AtomicPtr<EnableCallback>,
    /// A callback that was unregistered from within itself, to be freed when it has returned.
    doomed: AtomicPtr<EnableCallback>,
    /// The registering thread calls the callback itself; nobody else does.
    pub(super) registering: AtomicBool,
    /// The last notice said "enabled".
    pub(super) told_enabled: AtomicBool,
    /// A classic provider: one session at a time, written to by `classic`.
    classic: AtomicBool,
    decoding: AtomicPtr<Decoding>,
    classes: AtomicPtr<Classes>,
    /// An address in the module that the provider belongs to; 0: the one this code is in.
    origin: AtomicUsize,
    /// That module, where sessions are to be told of it.
    module: AtomicPtr<Module>,
    pub(super) entries: [Entry; MAX_ENTRIES],
}

// A number in control messages has ten bits for the slot.
const _: () = assert!(MAX_REGISTRATIONS == 1 << 10);
const _: () = assert!(size_of::<Slot>() <= 1216 && std::mem::offset_of!(Slot, version) == 64);

static TABLE: [Slot; MAX_REGISTRATIONS] = [const { Slot::new() }; MAX_REGISTRATIONS];

/// Where the next search for a free slot begins: slots are reused late.
static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Slot {
    pub(super) const fn new() -> Self {
        Self {
            level: AtomicU32::new(0),
            strict: AtomicU32::new(0),
            any: AtomicU64::new(0),
            all: AtomicU64::new(0),
            active: AtomicU64::new(0),
            provider: [AtomicU64::new(0), AtomicU64::new(0)],
            traits: AtomicPtr::new(ptr::null_mut()),
            generation: AtomicU32::new(0),
            claimed: AtomicBool::new(false),
            typed: AtomicBool::new(false),
            version: AtomicU64::new(0),
            notified: AtomicU64::new(0),
            turn: Turn::new(),
            callback: AtomicPtr::new(ptr::null_mut()),
            doomed: AtomicPtr::new(ptr::null_mut()),
            registering: AtomicBool::new(false),
            told_enabled: AtomicBool::new(false),
            classic: AtomicBool::new(false),
            decoding: AtomicPtr::new(ptr::null_mut()),
            classes: AtomicPtr::new(ptr::null_mut()),
            origin: AtomicUsize::new(0),
            module: AtomicPtr::new(ptr::null_mut()),
            entries: [const { Entry::new() }; MAX_ENTRIES],
        }
    }

    /// The provider's id as the two words that stand in a header.
    #[inline(always)]
    pub(super) fn provider_words(&self) -> [u64; 2] {
        [self.provider[0].load(Ordering::Relaxed), self.provider[1].load(Ordering::Relaxed)]
    }

    /// The provider's id.
    pub(crate) fn provider(&self) -> Guid {
        guid_of(self.provider_words())
    }

    /// Traits that every event carries; empty when there are none.
    #[inline(always)]
    pub(crate) fn traits(&self) -> &'static [u8] {
        let traits = self.traits.load(Ordering::Acquire);
        // SAFETY: null, or a leaked `Traits` (invariant 3) published by the release store in `set_traits`.
        unsafe { traits.as_ref() }.map_or(&[], Traits::bytes)
    }

    /// Whether there are any.
    #[inline(always)]
    pub(super) fn has_traits(&self) -> bool {
        !self.traits.load(Ordering::Relaxed).is_null()
    }

    /// The traits as an item; empty when there are none. `None`: they make more of events than that item.
    #[inline(always)]
    pub(super) fn traits_item(&self, another_follows: bool) -> Option<&'static [u64]> {
        // SAFETY: as in `traits`.
        let Some(traits) = (unsafe { self.traits.load(Ordering::Acquire).as_ref() }) else {
            return Some(&[]);
        };
        // Stored before the traits (invariant 4).
        let is_plain = self.decoding.load(Ordering::Relaxed).is_null();
        is_plain.then(|| traits.item(another_follows))
    }

    /// The provider's id where it lies, as it stands in a header.
    #[inline(always)]
    pub(super) fn provider_in_memory(&self) -> &[AtomicU64; 2] {
        &self.provider
    }

    /// What traits that name a GUID to decode by make of headers. Looked at only where there are traits.
    #[inline]
    pub(super) fn decoding(&self) -> Option<&'static Decoding> {
        // SAFETY: null, or a leaked `Decoding` (invariant 3) published by the release store in `set_traits`.
        unsafe { self.decoding.load(Ordering::Acquire).as_ref() }
    }

    /// Gives every event from now on these traits. Once, under the client's lock, or before anybody knows the registration.
    pub(crate) fn set_traits(&self, traits: Option<&'static Traits>, decoding: Option<&'static Decoding>) {
        self.decoding.store(leaked(decoding), Ordering::Release);
        self.traits.store(leaked(traits), Ordering::Release);
    }

    /// Whether the types of data descriptors mean something: the provider said so, or has traits.
    #[inline(always)]
    pub(super) fn honours_types(&self) -> bool {
        self.typed.load(Ordering::Relaxed) || !self.traits.load(Ordering::Relaxed).is_null()
    }

    /// Whether they mean something where there are no traits.
    pub(super) fn use_types(&self, yes: bool) {
        self.typed.store(yes, Ordering::Relaxed);
    }

    /// Whether it is a classic provider's.
    // Part of every write by a handle, also by those of other crates.
    #[inline(always)]
    pub(crate) fn is_classic(&self) -> bool {
        self.classic.load(Ordering::Relaxed)
    }

    /// The classes of a classic provider.
    pub(crate) fn classes(&self) -> &'static [Guid] {
        // SAFETY: null, or a leaked `Classes` (invariant 3) published by the release store in `fill`.
        unsafe { self.classes.load(Ordering::Acquire).as_ref() }.map_or(&[], |c| &c.0)
    }

    /// The number of the registration that is in it, as [`Handle::to_raw`].
    pub(super) fn raw(&self) -> u64 {
        raw_of(self.generation.load(Ordering::Acquire), self)
    }

    /// An address in the module that the provider belongs to.
    pub(super) fn origin(&self) -> usize {
        match self.origin.load(Ordering::Relaxed) {
            0 => Self::origin as *const () as usize,
            address => address,
        }
    }

    /// The module that sessions are told of.
    pub(super) fn module(&self) -> Option<&'static Module> {
        // SAFETY: null, or a leaked `Module` (invariant 3) published by the release store in `set_module`.
        unsafe { self.module.load(Ordering::Acquire).as_ref() }
    }

    /// Has sessions told of the module from now on. Under the client's lock.
    pub(crate) fn set_module(&self, module: Option<&'static Module>) {
        self.module.store(leaked(module), Ordering::Release);
    }

    /// Whether it has a callback.
    pub(crate) fn has_callback(&self) -> bool {
        !self.callback.load(Ordering::Acquire).is_null()
    }

    /// Calls the callback, if there is one. The caller has the turn.
    pub(super) fn with_callback(&self, call: impl FnOnce(&EnableCallback)) {
        // SAFETY: null, or a box leaked by `fill`. It is freed by `drop_callback` only: under the turn, which the caller has, or through `doomed`
        // below, after the call.
        if let Some(callback) = unsafe { self.callback.load(Ordering::Acquire).as_ref() } {
            call(callback);
        }
        let doomed = self.doomed.swap(ptr::null_mut(), Ordering::AcqRel);
        if !doomed.is_null() {
            // SAFETY: taken out of `callback` by `drop_callback`, and out of `doomed` by us alone; no call of it is running any more.
            drop(unsafe { Box::from_raw(doomed) });
        }
    }

    fn fill(&self, new: New) -> u32 {
        let words = new.provider.to_words();
        self.provider[0].store(words[0], Ordering::Relaxed);
        self.provider[1].store(words[1], Ordering::Relaxed);
        self.set_traits(new.traits, new.decoding);
        self.use_types(false);
        self.origin.store(new.origin, Ordering::Relaxed);
        self.set_module(None);
        self.classic.store(new.classes.is_some(), Ordering::Relaxed);
        self.classes.store(leaked(new.classes), Ordering::Release);
        let callback = new.callback.map_or(ptr::null_mut(), |c| Box::into_raw(Box::new(c)));
        self.callback.store(callback, Ordering::Release);
        self.version.store(0, Ordering::Relaxed);
        self.notified.store(0, Ordering::Relaxed);
        self.told_enabled.store(false, Ordering::Relaxed);
        self.registering.store(true, Ordering::SeqCst);
        // Odd from now on. Pairs with the acquire loads of `is_current`.
        self.generation.fetch_add(1, Ordering::Release).wrapping_add(1)
    }

    /// Waits for a running callback, unless called from inside it, and frees it.
    fn drop_callback(&self) {
        let turn = self.turn.take();
        let callback = self.callback.swap(ptr::null_mut(), Ordering::AcqRel);
        if callback.is_null() {
            return;
        }
        // Inside the callback: whoever called it frees it. When one is doomed already, that is the one that runs and this one never did.
        let running = turn.is_none()
            && self
                .doomed
                .compare_exchange(ptr::null_mut(), callback, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        if !running {
            // SAFETY: leaked by `fill`, taken out by us alone; nobody runs it: we have the turn, or another one is running.
            drop(unsafe { Box::from_raw(callback) });
        }
    }
}

/// What `AtomicPtr` takes; nobody writes through it.
fn leaked<T>(value: Option<&'static T>) -> *mut T {
    value.map_or(ptr::null_mut(), |value| ptr::from_ref(value).cast_mut())
}

fn guid_of(words: [u64; 2]) -> Guid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_le_bytes());
    bytes[8..].copy_from_slice(&words[1].to_le_bytes());
    Guid::from_bytes(&bytes)
}

/// A registration that may be gone by now. Copied freely; [`Provider`](super::Provider) is the owner that unregisters it.
#[derive(Clone, Copy)]
pub struct Handle {
    pub(super) slot: &'static Slot,
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
    /// Takes a free slot for a provider with plain traits. The registration is not announced yet.
    #[cfg(test)]
    pub(crate) fn claim(
        provider: Guid,
        traits: Option<&'static Traits>,
        callback: Option<EnableCallback>,
    ) -> Result<Self> {
        Self::claim_for(New { provider, traits, decoding: None, classes: None, callback, origin: 0 })
    }

    /// Takes a free slot. The registration is not announced yet.
    pub(crate) fn claim_for(new: New) -> Result<Self> {
        let start = NEXT.fetch_add(1, Ordering::Relaxed);
        for step in 0..MAX_REGISTRATIONS {
            let index = start.wrapping_add(step) % MAX_REGISTRATIONS;
            let slot = &TABLE[index];
            if slot.claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                NEXT.store(index + 1, Ordering::Relaxed);
                return Ok(Self { slot, generation: slot.fill(new) });
            }
        }
        Err(Error::refused(
            Status::ERROR_NO_SYSTEM_RESOURCES,
            format!("this process has {MAX_REGISTRATIONS} registrations already"),
        ))
    }

    /// The number that names it outside Rust; never 0.
    #[must_use]
    pub fn to_raw(self) -> u64 {
        raw_of(self.generation, self.slot)
    }

    /// From such a number; `None` where no registration can have it or it is gone, and for the number of a classic provider, whose
    /// events are not written by this.
    #[inline]
    #[must_use]
    pub fn from_raw(raw: u64) -> Option<Self> {
        Self::of_raw(raw).filter(|handle| !handle.slot.is_classic())
    }

    /// From such a number, whatever the kind of provider.
    #[inline]
    pub(crate) fn of_raw(raw: u64) -> Option<Self> {
        let index = usize::try_from(raw & 0xFFFF_FFFF).ok()?.checked_sub(1)?;
        let handle = Self { slot: TABLE.get(index)?, generation: u32::try_from(raw >> 32).ok()? };
        handle.is_current().then_some(handle)
    }

    /// Whether it is still registered.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        self.generation & 1 == 1 && self.slot.generation.load(Ordering::Acquire) == self.generation
    }

    /// Its number in control messages: slot and as much of the generation as fits.
    pub(crate) fn number(self) -> u32 {
        self.generation << 10 | self.index() as u32
    }

    /// From its number in a control message.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        let slot = &TABLE[number as usize % MAX_REGISTRATIONS];
        let handle = Self { slot, generation: slot.generation.load(Ordering::Acquire) };
        (handle.is_current() && handle.number() == number).then_some(handle)
    }

    /// All that are registered now.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        TABLE
            .iter()
            .map(|slot| Self { slot, generation: slot.generation.load(Ordering::Acquire) })
            .filter(|h| h.generation & 1 == 1)
    }

    pub(crate) fn slot(self) -> &'static Slot {
        self.slot
    }

    /// A session wants it, or wants it differently. Under the client's lock. A classic provider has one session: this one from now on.
    pub(crate) fn wish(self, outlet: u8, ticket: Ticket, params: &EnableParams) -> Change {
        if !self.slot.is_classic() {
            return self.slot.wish(outlet, ticket, params);
        }
        let match_any = params.match_any & u64::from(u32::MAX);
        let narrow = EnableParams { level: params.level, match_any, ..EnableParams::default() };
        let change = self.slot.wish(outlet, ticket, &narrow);
        let took_over = self.slot.unwish(!(1 << outlet));
        if took_over { Change::Changed } else { change }
    }

    /// Ends it: no writer and no message finds it any more. `false` when somebody else did.
    pub(crate) fn retire(self) -> bool {
        let next = self.generation.wrapping_add(1);
        self.generation & 1 == 1
            && self
                .slot
                .generation
                .compare_exchange(self.generation, next, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Frees what a retired registration held, once its entries are cleared, and the slot with it.
    pub(crate) fn release(self) {
        self.slot.drop_callback();
        // Pairs with the acquire in `claim`.
        self.slot.claimed.store(false, Ordering::Release);
    }

    fn index(self) -> usize {
        index_of(self.slot)
    }
}

fn index_of(slot: &Slot) -> usize {
    (ptr::from_ref(slot).addr() - TABLE.as_ptr().addr()) / size_of::<Slot>()
}

fn raw_of(generation: u32, slot: &Slot) -> u64 {
    u64::from(generation) << 32 | (index_of(slot) as u64 + 1)
}
