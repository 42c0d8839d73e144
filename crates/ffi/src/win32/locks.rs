//! Locks in the memory of the program: critical sections, slim reader/writer locks and condition
//! variables.
//!
//! Each is a word on which threads wait with a futex. None allocates memory, and none needs to be
//! deleted. NULL is ignored.

mod futex;
pub mod once;

use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

use traceweir::Status;

use self::futex::Deadline;
use super::to_bool;

/// The flag of SleepConditionVariableSRW for a lock that is held in shared mode.
const CONDITION_VARIABLE_LOCKMODE_SHARED: u32 = 0x1;

/// The most turns that a thread spins before it waits.
const MAX_SPIN_COUNT: usize = 4000;
const SRW_SPIN_COUNT: usize = 100;

thread_local! {
    static MARK: Cell<u8> = const { Cell::new(0) };
}

/// Returns a number of the calling thread, which no other thread has while this one lives. The child
/// of a fork keeps it.
fn thread_mark() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// The published structure RTL_CRITICAL_SECTION. Only `lock_count` is a lock; the members
/// for owner and recursion belong to the thread that holds it.
#[derive(Debug)]
#[repr(C)]
pub struct CriticalSection {
    debug_info: usize,
    lock_count: AtomicI32,
    recursion_count: AtomicI32,
    owning_thread: AtomicUsize,
    lock_semaphore: usize,
    spin_count: AtomicUsize,
}

const _: () = assert!(size_of::<CriticalSection>() == 40);
const _: () = assert!(size_of::<SrwLock>() == 8 && size_of::<ConditionVariable>() == 8);

// Values of LockCount, as debuggers of Windows show them: the lowest bit is clear while the section
// is locked; the bits above the second are the complement of the number of waiting threads, of which
// only "none" and "some" are used here.
const UNLOCKED: i32 = -1;
const LOCKED: i32 = -2;
const CONTENDED: i32 = -6;

impl CriticalSection {
    const fn new(spin_count: usize) -> Self {
        Self {
            debug_info: 0,
            lock_count: AtomicI32::new(UNLOCKED),
            recursion_count: AtomicI32::new(0),
            owning_thread: AtomicUsize::new(0),
            lock_semaphore: 0,
            spin_count: AtomicUsize::new(spin_count),
        }
    }

    fn is_mine(&self) -> bool {
        self.owning_thread.load(Ordering::Relaxed) == thread_mark()
    }

    fn try_enter(&self) -> bool {
        if self.is_mine() {
            self.recursion_count.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        let has_locked =
            self.lock_count.compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if has_locked {
            self.set_owner();
        }
        has_locked
    }

    fn set_owner(&self) {
        self.owning_thread.store(thread_mark(), Ordering::Relaxed);
        self.recursion_count.store(1, Ordering::Relaxed);
    }

    fn enter(&self) {
        for _ in 0..=self.spin_count.load(Ordering::Relaxed).min(MAX_SPIN_COUNT) {
            if self.try_enter() {
                return;
            }
            std::hint::spin_loop();
        }
        while self.lock_count.swap(CONTENDED, Ordering::Acquire) != UNLOCKED {
            futex::wait(self.lock_count.as_ptr().cast(), CONTENDED.cast_unsigned(), Deadline::NEVER);
        }
        self.set_owner();
    }

    /// Leaves the section once. Does nothing in a thread that does not own it.
    fn leave(&self) {
        if !self.is_mine() {
            return;
        }
        if self.recursion_count.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        self.owning_thread.store(0, Ordering::Relaxed);
        if self.lock_count.swap(UNLOCKED, Ordering::Release) == CONTENDED {
            futex::wake(self.lock_count.as_ptr().cast(), 1);
        }
    }
}

/// The published structure RTL_SRWLOCK: the number of readers, and two flags. All bits are 0 while
/// the lock is free.
#[derive(Debug)]
#[repr(C)]
pub struct SrwLock {
    state: AtomicU32,
    unused: u32,
}

const WRITER: u32 = 1 << 31;
/// Threads may wait. Readers wait behind them, so that writers get the lock.
const WAITERS: u32 = 1 << 30;
const READERS: u32 = WAITERS - 1;

impl SrwLock {
    /// Returns the state after a thread has taken the lock, or `None` if it must wait.
    fn acquired_state(state: u32, is_shared: bool) -> Option<u32> {
        let is_held = state & (WRITER | READERS) != 0;
        match (is_shared, is_held) {
            (false, false) => Some(state | WRITER),
            (true, false) => Some(state.wrapping_add(1)),
            (true, true) if state & (WRITER | WAITERS) == 0 && state != READERS => {
                Some(state.wrapping_add(1))
            }
            _ => None,
        }
    }

    fn try_acquire(&self, is_shared: bool) -> bool {
        let acquire = |state| Self::acquired_state(state, is_shared);
        self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, acquire).is_ok()
    }

    fn acquire(&self, is_shared: bool) {
        for _ in 0..SRW_SPIN_COUNT {
            if self.try_acquire(is_shared) {
                return;
            }
            std::hint::spin_loop();
        }
        while !self.try_acquire(is_shared) {
            // Announces the wait, unless the lock has become free.
            let announce =
                |state: u32| Self::acquired_state(state, is_shared).is_none().then_some(state | WAITERS);
            if let Ok(state) = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, announce) {
                futex::wait(self.state.as_ptr(), state | WAITERS, Deadline::NEVER);
            }
        }
    }

    fn release(&self, is_shared: bool) {
        let held = if is_shared { 1 } else { WRITER };
        let is_wrong = |state: u32| state & if is_shared { READERS } else { WRITER } == 0;
        let release = |state: u32| {
            // A lock that the program does not hold stays as it is.
            let left = if is_wrong(state) { return None } else { state.wrapping_sub(held) };
            // The last holder lets all waiting threads compete.
            Some(if left == WAITERS { 0 } else { left })
        };
        let before = self.state.fetch_update(Ordering::Release, Ordering::Relaxed, release);
        if before.is_ok_and(|state| state.wrapping_sub(held) == WAITERS) {
            futex::wake(self.state.as_ptr(), i32::MAX);
        }
    }
}

/// The published structure RTL_CONDITION_VARIABLE: a number that each wake changes.
#[derive(Debug)]
#[repr(C)]
pub struct ConditionVariable {
    wakes: AtomicU32,
    unused: u32,
}

impl ConditionVariable {
    fn wake(&self, threads: i32) {
        self.wakes.fetch_add(1, Ordering::Release);
        futex::wake(self.wakes.as_ptr(), threads);
    }

    /// Releases a lock, waits, and acquires the lock again. Fails with ERROR_TIMEOUT.
    fn sleep(&self, milliseconds: u32, release: impl FnOnce(), acquire: impl FnOnce()) -> Result<(), Status> {
        let deadline = Deadline::after(milliseconds);
        let seen = self.wakes.load(Ordering::Acquire);
        release();
        let is_woken = futex::wait(self.wakes.as_ptr(), seen, deadline);
        acquire();
        if is_woken { Ok(()) } else { Err(Status::ERROR_TIMEOUT) }
    }
}

/// Initializes memory of the program.
///
/// # Safety
///
/// `at` is NULL or can be written.
unsafe fn initialize<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: `at` is not NULL, so the caller guarantees that it can be written.
        unsafe { at.write(value) };
    }
}

macro_rules! locks {
    ($($(#[$doc:meta])* fn $name:ident($lock:ident: $type:ty) -> $result:ty => $body:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// The argument is NULL or an initialized lock.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($lock: *const $type) -> $result {
            // SAFETY: the caller passes NULL or a lock, whose members are atomic.
            match unsafe { $lock.as_ref() } {
                Some($lock) => $body,
                None => Default::default(),
            }
        }
    )*};
}

locks! {
    /// Enters a critical section, as often as the thread likes.
    fn EnterCriticalSection(section: CriticalSection) -> () => section.enter();
    /// Enters a critical section if no other thread is in it.
    fn TryEnterCriticalSection(section: CriticalSection) -> i32 => section.try_enter().into();
    /// Leaves a critical section once.
    fn LeaveCriticalSection(section: CriticalSection) -> () => section.leave();
    /// Ends the use of a critical section, which holds no resources.
    fn DeleteCriticalSection(section: CriticalSection) -> () => { let _ = section; };
    /// Takes a lock for writing.
    fn AcquireSRWLockExclusive(lock: SrwLock) -> () => lock.acquire(false);
    /// Takes a lock for reading.
    fn AcquireSRWLockShared(lock: SrwLock) -> () => lock.acquire(true);
    /// Takes a lock for writing if it is free.
    fn TryAcquireSRWLockExclusive(lock: SrwLock) -> u8 => lock.try_acquire(false).into();
    /// Takes a lock for reading if no thread writes or waits.
    fn TryAcquireSRWLockShared(lock: SrwLock) -> u8 => lock.try_acquire(true).into();
    /// Ends writing.
    fn ReleaseSRWLockExclusive(lock: SrwLock) -> () => lock.release(false);
    /// Ends reading.
    fn ReleaseSRWLockShared(lock: SrwLock) -> () => lock.release(true);
    /// Wakes one thread that sleeps on a condition variable.
    fn WakeConditionVariable(variable: ConditionVariable) -> () => variable.wake(1);
    /// Wakes all threads that sleep on a condition variable.
    fn WakeAllConditionVariable(variable: ConditionVariable) -> () => variable.wake(i32::MAX);
}

/// Initializes a critical section.
///
/// # Safety
///
/// `section` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeCriticalSection(section: *mut CriticalSection) {
    // SAFETY: the caller passes NULL or a writable `section`.
    unsafe { initialize(section, CriticalSection::new(0)) };
}

/// Initializes a critical section whose threads spin before they wait.
///
/// # Safety
///
/// As [`InitializeCriticalSection`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeCriticalSectionAndSpinCount(
    section: *mut CriticalSection,
    spin_count: u32,
) -> i32 {
    // SAFETY: the caller passes NULL or a writable `section`.
    unsafe { initialize(section, CriticalSection::new(spin_count as usize)) };
    1
}

/// Like [`InitializeCriticalSectionAndSpinCount`]. The flags have no effect.
///
/// # Safety
///
/// As [`InitializeCriticalSection`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeCriticalSectionEx(
    section: *mut CriticalSection,
    spin_count: u32,
    _flags: u32,
) -> i32 {
    // SAFETY: the caller passes NULL or a writable `section`.
    unsafe { initialize(section, CriticalSection::new(spin_count as usize)) };
    1
}

/// Sets how long the threads of a critical section spin. Returns the value before.
///
/// # Safety
///
/// `section` is NULL or initialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SetCriticalSectionSpinCount(
    section: *const CriticalSection,
    spin_count: u32,
) -> u32 {
    // SAFETY: the caller passes NULL or a critical section, whose members are atomic.
    let before = unsafe { section.as_ref() }
        .map_or(0, |section| section.spin_count.swap(spin_count as usize, Ordering::Relaxed));
    u32::try_from(before).unwrap_or(u32::MAX)
}

/// Initializes a reader/writer lock.
///
/// # Safety
///
/// `lock` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeSRWLock(lock: *mut SrwLock) {
    // SAFETY: the caller passes NULL or a writable `lock`.
    unsafe { initialize(lock, SrwLock { state: AtomicU32::new(0), unused: 0 }) };
}

/// Initializes a condition variable.
///
/// # Safety
///
/// `variable` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeConditionVariable(variable: *mut ConditionVariable) {
    // SAFETY: the caller passes NULL or a writable `variable`.
    unsafe { initialize(variable, ConditionVariable { wakes: AtomicU32::new(0), unused: 0 }) };
}

/// Leaves a critical section once, sleeps, and enters the section again.
///
/// # Safety
///
/// Both arguments are NULL or initialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SleepConditionVariableCS(
    variable: *const ConditionVariable,
    section: *const CriticalSection,
    milliseconds: u32,
) -> i32 {
    // SAFETY: the caller passes NULL or initialized memory, whose members are atomic.
    let (variable, section) = unsafe { (variable.as_ref(), section.as_ref()) };
    to_bool(|| {
        let (variable, section) = variable.zip(section).ok_or(Status::ERROR_INVALID_PARAMETER)?;
        variable.sleep(milliseconds, || section.leave(), || section.enter())
    })
}

/// Releases a reader/writer lock, sleeps, and acquires the lock again in the same mode.
///
/// # Safety
///
/// Both pointers are NULL or initialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SleepConditionVariableSRW(
    variable: *const ConditionVariable,
    lock: *const SrwLock,
    milliseconds: u32,
    flags: u32,
) -> i32 {
    // SAFETY: the caller passes NULL or initialized memory, whose members are atomic.
    let (variable, lock) = unsafe { (variable.as_ref(), lock.as_ref()) };
    to_bool(|| {
        let (variable, lock) = variable.zip(lock).ok_or(Status::ERROR_INVALID_PARAMETER)?;
        if flags & !CONDITION_VARIABLE_LOCKMODE_SHARED != 0 {
            return Err(Status::ERROR_INVALID_PARAMETER);
        }
        let is_shared = flags & CONDITION_VARIABLE_LOCKMODE_SHARED != 0;
        variable.sleep(milliseconds, || lock.release(is_shared), || lock.acquire(is_shared))
    })
}
