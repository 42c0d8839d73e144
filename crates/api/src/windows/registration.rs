//! Registrations with Windows, and their callbacks.
//!
//! Windows calls [`call_back`] with the key of a registration. The key is looked up in a table, so
//! that a call which comes after the end of its registration finds nothing.
//!
//! Invariants
//!
//! 1. Callbacks of one registration never overlap: the calling thread is its `caller`.
//! 2. After [`Registration::wait_until_idle`], no other thread is in the callback.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_void;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;

use super::functions::{
    EventEnabled, EventProviderEnabled, EventSetInformation, FilterDescriptor, RegHandle,
};
use crate::enable_notice::{EnableCallback, EnableNotice};

/// A copyable name of a registration: the REGHANDLE of Windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(NonZeroU64);

impl Handle {
    /// Returns the REGHANDLE, which functions of Windows accept.
    #[inline(always)]
    #[must_use]
    pub fn to_raw(self) -> u64 {
        self.0.get()
    }

    /// Creates a handle from a REGHANDLE; `None` for 0.
    #[inline(always)]
    #[must_use]
    pub fn from_raw(raw: u64) -> Option<Self> {
        NonZeroU64::new(raw).map(Self)
    }

    /// Like [`from_raw`](Self::from_raw).
    #[inline(always)]
    pub(crate) fn from_raw_any_kind(raw: u64) -> Option<Self> {
        Self::from_raw(raw)
    }

    /// Returns whether this crate made the registration and it has not ended.
    #[must_use]
    pub fn is_current(self) -> bool {
        lock_registrations().iter().any(|registration| registration.handle() == Some(self))
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> SlotRef {
        SlotRef(self.to_raw())
    }
}

/// A registration as the write functions see it.
#[derive(Clone, Copy)]
pub(crate) struct SlotRef(pub(super) RegHandle);

impl SlotRef {
    #[inline(always)]
    pub(crate) fn is_enabled(self, level: u8, keyword: u64) -> bool {
        // SAFETY: the function takes numbers only; it returns 0 for a handle without registration.
        unsafe { EventProviderEnabled(self.0, level, keyword) != 0 }
    }

    #[inline(always)]
    pub(crate) fn is_event_enabled(self, event: &EventDescriptor) -> bool {
        // SAFETY: the descriptor lives during the call; the function returns 0 for a handle without
        // registration.
        unsafe { EventEnabled(self.0, event) != 0 }
    }

    /// Sets a property of the registration (EventSetInformation) and returns a Win32 status.
    pub(super) fn set_information(self, class: u32, information: Option<&[u8]>) -> u32 {
        let address = information.map_or(std::ptr::null(), <[u8]>::as_ptr);
        let size_bytes = information.map_or(0, |bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        // SAFETY: `address` is NULL with size 0, or the address of that many bytes. A slice of more
        // than 4 GiB has at least the bytes that the saturated size claims.
        unsafe { EventSetInformation(self.0, class, address.cast(), size_bytes) }
    }
}

/// A registration that this crate made.
pub(super) struct Registration {
    /// The number that Windows passes to [`call_back`].
    pub(super) key: usize,
    /// The REGHANDLE; 0 until EventRegister has written it.
    pub(super) handle: AtomicU64,
    callback: Option<EnableCallback>,
    /// The thread that is in the callback.
    caller: Mutex<Option<ThreadId>>,
    caller_left: Condvar,
}

static REGISTRATIONS: Mutex<Vec<Arc<Registration>>> = Mutex::new(Vec::new());

pub(super) fn lock_registrations() -> MutexGuard<'static, Vec<Arc<Registration>>> {
    REGISTRATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registration {
    /// Creates a registration, which the table of registrations contains from now on.
    pub(super) fn add(callback: Option<EnableCallback>) -> Arc<Self> {
        static KEYS: AtomicUsize = AtomicUsize::new(1);
        let registration = Arc::new(Self {
            key: KEYS.fetch_add(1, Ordering::Relaxed),
            handle: AtomicU64::new(0),
            callback,
            caller: Mutex::new(None),
            caller_left: Condvar::new(),
        });
        lock_registrations().push(Arc::clone(&registration));
        registration
    }

    /// Removes the registration from the table.
    pub(super) fn remove(&self) {
        lock_registrations().retain(|registration| registration.key != self.key);
    }

    pub(super) fn handle(&self) -> Option<Handle> {
        Handle::from_raw(self.handle.load(Ordering::Acquire))
    }

    fn lock_caller(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.caller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread is in the callback.
    pub(super) fn wait_until_idle(&self) -> MutexGuard<'_, Option<ThreadId>> {
        let this_thread = std::thread::current().id();
        let is_busy = |caller: &mut Option<ThreadId>| caller.is_some_and(|caller| caller != this_thread);
        self.caller_left.wait_while(self.lock_caller(), is_busy).unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, notice: &EnableNotice<'_>) {
        let Some(callback) = &self.callback else { return };
        let previous = self.wait_until_idle().replace(std::thread::current().id());
        // A panic must not reach Windows. The registration continues.
        let _ = catch_unwind(AssertUnwindSafe(|| callback(notice)));
        // A nested call of the same thread leaves the outer one in place.
        *self.lock_caller() = previous;
        self.caller_left.notify_all();
    }
}

thread_local! {
    /// The function that stores the handle of the registration that this thread is making.
    static PENDING_STORE: Cell<Option<PendingStore>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct PendingStore {
    key: usize,
    store: *const dyn Fn(Handle),
}

/// Runs `register`. If Windows calls the callback meanwhile, on this thread, `store` gets the
/// handle first: inside EventRegister, the program cannot have it yet.
pub(super) fn with_pending_store<R>(
    registration: &Registration,
    store: &dyn Fn(Handle),
    register: impl FnOnce() -> R,
) -> R {
    /// Restores the store of an outer registration on drop.
    struct Restore(Option<PendingStore>);
    impl Drop for Restore {
        fn drop(&mut self) {
            PENDING_STORE.set(self.0);
        }
    }
    let store: *const (dyn Fn(Handle) + '_) = store;
    // SAFETY: only the lifetime changes. The pointer is removed by `Restore` before `store` ends.
    let store: *const (dyn Fn(Handle) + 'static) = unsafe { std::mem::transmute(store) };
    let _restore = Restore(PENDING_STORE.replace(Some(PendingStore { key: registration.key, store })));
    register()
}

fn store_pending_handle(registration: &Registration) {
    let pending = PENDING_STORE.get().filter(|pending| pending.key == registration.key);
    if let (Some(pending), Some(handle)) = (pending, registration.handle()) {
        // SAFETY: this thread is inside `with_pending_store`, whose `store` is still borrowed.
        unsafe { (*pending.store)(handle) };
    }
}

/// The function that Windows calls: finds the registration and passes the arguments on.
///
/// # Safety
///
/// `source` and `filter` are NULL or valid during the call, and so are the bytes of the filter.
pub(super) unsafe extern "system" fn call_back(
    source: *const Guid,
    code: u32,
    level: u8,
    match_any: u64,
    match_all: u64,
    filter: *const FilterDescriptor,
    context: *mut c_void,
) {
    let key = context.addr();
    let registration = lock_registrations().iter().find(|known| known.key == key).cloned();
    let Some(registration) = registration else { return };
    store_pending_handle(&registration);
    // SAFETY: the caller passes NULL or valid pointers.
    let (source, filter) = unsafe { (source.as_ref(), filter.as_ref()) };
    let filter = filter.filter(|filter| filter.address != 0).map(|filter| {
        let address = std::ptr::with_exposed_provenance(filter.address as usize);
        // SAFETY: the caller promises that the bytes of the filter are valid during the call.
        (filter.kind, unsafe { std::slice::from_raw_parts(address, filter.size_bytes as usize) })
    });
    registration.call(&EnableNotice {
        source: source.copied().unwrap_or(Guid::NULL),
        code,
        level,
        match_any,
        match_all,
        filter,
        own_filters: filter.as_slice(),
    });
}
