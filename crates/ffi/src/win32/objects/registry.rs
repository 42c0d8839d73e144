//! The events, mutexes, semaphores and threads of the process, the handles that name them, and the
//! waits for them.
//!
//! ```text
//!   handle ──▶ ObjectId ──▶ Object: state, queue of waits ──▶ Wait: objects, condition variable
//!   name   ────────┘
//! ```
//!
//! Invariants
//!
//! 1. One lock protects all of it. So a wait for all of several objects acquires them in one step.
//! 2. A thread that makes an object signaled completes the waits for it, the oldest first, before it
//!    releases the lock. So a signaled object has no wait that it could complete.
//! 3. An object lives while a handle, a wait or its own running thread refers to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use traceweir::Status;

use super::super::new_handle;

// Results of a wait.
const WAIT_OBJECT_0: u32 = 0;
const WAIT_ABANDONED_0: u32 = 0x80;
const WAIT_TIMEOUT: u32 = 258;

/// The number of an object; numbers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectId(u64);

/// The number of a wait. Older waits have lower numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WaitId(u64);

/// Identifies a thread that may own mutexes; not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadToken(pub(crate) u64);

/// An object as the argument of a function names it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Handle(usize),
    Object(ObjectId),
}

/// The state of an object of each kind.
#[derive(Debug)]
pub(crate) enum ObjectState {
    Event {
        is_manual: bool,
        is_set: bool,
    },
    Mutex {
        owner: Option<ThreadToken>,
        depth: u32,
        is_abandoned: bool,
    },
    Semaphore {
        count: i32,
        maximum: i32,
    },
    Thread(ThreadState),
    /// The current process, which is never signaled while it can wait.
    Process,
}

/// The state of a thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    pub(crate) id: u32,
    /// `None` while the thread runs.
    pub(crate) exit_code: Option<u32>,
    /// The gate at which a thread that was created suspended waits until it is resumed.
    pub(crate) gate: Option<Arc<StartGate>>,
}

/// Where a new thread reports its id and waits for its start.
#[derive(Debug, Default)]
pub(crate) struct StartGate {
    pub(crate) state: Mutex<StartState>,
    pub(crate) changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct StartState {
    pub(crate) thread_id: Option<u32>,
    pub(crate) may_start: bool,
}

impl ObjectState {
    fn is_signaled(&self, thread: ThreadToken) -> bool {
        match self {
            Self::Event { is_set, .. } => *is_set,
            Self::Mutex { owner, .. } => owner.is_none_or(|owner| owner == thread),
            Self::Semaphore { count, .. } => *count > 0,
            Self::Thread(state) => state.exit_code.is_some(),
            Self::Process => false,
        }
    }

    /// Changes the state of a signaled object for a thread whose wait it completes. Returns whether
    /// the object is a mutex whose last owner ended without releasing it.
    fn acquire(&mut self, thread: ThreadToken) -> bool {
        match self {
            Self::Event { is_manual, is_set } => *is_set = *is_manual,
            Self::Mutex { owner, depth, is_abandoned } => {
                *owner = Some(thread);
                *depth = depth.saturating_add(1);
                return std::mem::take(is_abandoned);
            }
            Self::Semaphore { count, .. } => *count = count.saturating_sub(1),
            Self::Thread(_) | Self::Process => {}
        }
        false
    }
}

#[derive(Debug)]
struct Object {
    state: ObjectState,
    /// The number of handles, waits and running threads that refer to the object.
    references: usize,
    name: Option<String>,
    waits: BTreeSet<WaitId>,
}

/// A thread that waits.
#[derive(Debug)]
struct Wait {
    objects: Vec<ObjectId>,
    for_all: bool,
    thread: ThreadToken,
    outcome: Option<u32>,
    completed: Arc<Condvar>,
}

#[derive(Debug)]
struct Registry {
    objects: BTreeMap<ObjectId, Object>,
    handles: BTreeMap<usize, ObjectId>,
    names: BTreeMap<String, ObjectId>,
    waits: BTreeMap<WaitId, Wait>,
    next_number: u64,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    objects: BTreeMap::new(),
    handles: BTreeMap::new(),
    names: BTreeMap::new(),
    waits: BTreeMap::new(),
    next_number: 0,
});

fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    fn take_number(&mut self) -> u64 {
        self.next_number = self.next_number.wrapping_add(1);
        self.next_number
    }

    fn find(&self, target: Target) -> Result<ObjectId, Status> {
        let id = match target {
            Target::Handle(handle) => self.handles.get(&handle).copied(),
            Target::Object(id) => Some(id).filter(|id| self.objects.contains_key(id)),
        };
        id.ok_or(Status::ERROR_INVALID_HANDLE)
    }

    /// Adds an object without references.
    fn insert(&mut self, state: ObjectState, name: Option<String>) -> ObjectId {
        let id = ObjectId(self.take_number());
        if let Some(name) = &name {
            self.names.insert(name.clone(), id);
        }
        self.objects.insert(id, Object { state, references: 0, name, waits: BTreeSet::new() });
        id
    }

    fn retain(&mut self, id: ObjectId) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.references = object.references.saturating_add(1);
        }
    }

    fn release(&mut self, id: ObjectId) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        object.references = object.references.saturating_sub(1);
        if object.references == 0
            && let Some(Object { name: Some(name), .. }) = self.objects.remove(&id)
        {
            self.names.remove(&name);
        }
    }

    fn add_handle(&mut self, id: ObjectId) -> usize {
        let handle = new_handle();
        self.retain(id);
        self.handles.insert(handle, id);
        handle
    }

    /// Acquires the objects of a wait, if they are signaled. Returns the result of the wait.
    fn try_acquire(&mut self, objects: &[ObjectId], for_all: bool, thread: ThreadToken) -> Option<u32> {
        let is_signaled =
            |id: &ObjectId| self.objects.get(id).is_some_and(|object| object.state.is_signaled(thread));
        let first_signaled = objects.iter().position(is_signaled)?;
        if for_all && !objects.iter().all(is_signaled) {
            return None;
        }
        let (index, acquired) =
            if for_all { (0, objects) } else { (first_signaled, objects.get(first_signaled..)?.get(..1)?) };
        let mut was_abandoned = false;
        for id in acquired {
            was_abandoned |= self.objects.get_mut(id).is_some_and(|object| object.state.acquire(thread));
        }
        let base = if was_abandoned { WAIT_ABANDONED_0 } else { WAIT_OBJECT_0 };
        Some(base.saturating_add(u32::try_from(index).unwrap_or(0)))
    }

    /// Completes the waits for an object whose state has changed, the oldest first.
    fn complete_waits(&mut self, id: ObjectId) {
        let waits: Vec<WaitId> =
            self.objects.get(&id).map(|object| object.waits.iter().copied().collect()).unwrap_or_default();
        for wait_id in waits {
            let Some(mut wait) = self.waits.remove(&wait_id) else { continue };
            if wait.outcome.is_none() {
                wait.outcome = self.try_acquire(&wait.objects, wait.for_all, wait.thread);
                if wait.outcome.is_some() {
                    wait.completed.notify_one();
                }
            }
            self.waits.insert(wait_id, wait);
        }
    }

    fn begin_wait(&mut self, wait: Wait) -> WaitId {
        let wait_id = WaitId(self.take_number());
        for id in &wait.objects {
            self.retain(*id);
            if let Some(object) = self.objects.get_mut(id) {
                object.waits.insert(wait_id);
            }
        }
        self.waits.insert(wait_id, wait);
        wait_id
    }

    fn end_wait(&mut self, wait_id: WaitId) {
        let Some(wait) = self.waits.remove(&wait_id) else { return };
        for id in wait.objects {
            if let Some(object) = self.objects.get_mut(&id) {
                object.waits.remove(&wait_id);
            }
            self.release(id);
        }
    }
}

/// Creates an object, or finds the object of the same kind and name. Returns a handle, and whether
/// the object existed.
pub(crate) fn create(state: ObjectState, name: Option<String>) -> Result<(usize, bool), Status> {
    let mut registry = lock();
    let existing = name.as_ref().and_then(|name| registry.names.get(name).copied());
    let id = match existing {
        Some(id) => {
            let object = registry.objects.get(&id).ok_or(Status::ERROR_INVALID_HANDLE)?;
            // The name belongs to an object of another kind.
            if std::mem::discriminant(&object.state) != std::mem::discriminant(&state) {
                return Err(Status::ERROR_INVALID_HANDLE);
            }
            id
        }
        None => registry.insert(state, name),
    };
    Ok((registry.add_handle(id), existing.is_some()))
}

/// Opens an object by its name, if `is_kind` holds for it.
pub(crate) fn open(name: &str, is_kind: impl Fn(&ObjectState) -> bool) -> Result<usize, Status> {
    let mut registry = lock();
    let id = registry.names.get(name).copied().ok_or(Status::ERROR_FILE_NOT_FOUND)?;
    let object = registry.objects.get(&id).ok_or(Status::ERROR_FILE_NOT_FOUND)?;
    if !is_kind(&object.state) {
        return Err(Status::ERROR_INVALID_HANDLE);
    }
    Ok(registry.add_handle(id))
}

/// Adds an object that the caller refers to without a handle.
pub(crate) fn add_unnamed(state: ObjectState) -> ObjectId {
    let mut registry = lock();
    let id = registry.insert(state, None);
    registry.retain(id);
    id
}

/// Ends the reference of [`add_unnamed`].
pub(crate) fn remove_reference(id: ObjectId) {
    lock().release(id);
}

/// Closes a handle. Returns `false` if it names no object.
pub(crate) fn close(handle: usize) -> bool {
    let mut registry = lock();
    let closed = registry.handles.remove(&handle);
    if let Some(id) = closed {
        registry.release(id);
    }
    closed.is_some()
}

/// Returns a new handle of an object.
pub(crate) fn duplicate(target: Target) -> Result<usize, Status> {
    let mut registry = lock();
    let id = registry.find(target)?;
    Ok(registry.add_handle(id))
}

/// Reads or changes the state of an object, and completes the waits that the change allows.
pub(crate) fn with_state<T>(
    target: Target,
    change: impl FnOnce(&mut ObjectState) -> Result<T, Status>,
) -> Result<T, Status> {
    let mut registry = lock();
    let id = registry.find(target)?;
    let object = registry.objects.get_mut(&id).ok_or(Status::ERROR_INVALID_HANDLE)?;
    let answer = change(&mut object.state)?;
    registry.complete_waits(id);
    Ok(answer)
}

/// Abandons the mutexes of a thread that ends, and makes its object signaled.
pub(crate) fn end_thread(thread: ThreadToken, object: Option<ObjectId>, code: u32) {
    let mut registry = lock();
    let mut changed = Vec::new();
    for (id, object) in &mut registry.objects {
        if let ObjectState::Mutex { owner, depth, is_abandoned } = &mut object.state
            && *owner == Some(thread)
        {
            (*owner, *depth, *is_abandoned) = (None, 0, true);
            changed.push(*id);
        }
    }
    if let Some(id) = object
        && let Some(Object { state: ObjectState::Thread(state), .. }) = registry.objects.get_mut(&id)
    {
        state.exit_code = Some(code);
        changed.push(id);
    }
    for id in changed {
        registry.complete_waits(id);
    }
    if let Some(id) = object {
        registry.release(id);
    }
}

/// Waits for one or all of several objects, and returns the result of the published function. A
/// timeout of `None` never expires.
pub(crate) fn wait(
    targets: &[Target],
    for_all: bool,
    timeout: Option<Duration>,
    thread: ThreadToken,
) -> Result<u32, Status> {
    let mut registry = lock();
    let objects: Vec<ObjectId> =
        targets.iter().map(|target| registry.find(*target)).collect::<Result<_, _>>()?;
    if for_all && objects.iter().collect::<BTreeSet<_>>().len() != objects.len() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    if let Some(outcome) = registry.try_acquire(&objects, for_all, thread) {
        return Ok(outcome);
    }
    if timeout == Some(Duration::ZERO) {
        return Ok(WAIT_TIMEOUT);
    }
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let completed = Arc::new(Condvar::new());
    let wait = Wait { objects, for_all, thread, outcome: None, completed: Arc::clone(&completed) };
    let id = registry.begin_wait(wait);
    loop {
        let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let outcome = registry.waits.get(&id).and_then(|wait| wait.outcome);
        let outcome = outcome.or((remaining == Some(Duration::ZERO)).then_some(WAIT_TIMEOUT));
        if let Some(outcome) = outcome {
            registry.end_wait(id);
            return Ok(outcome);
        }
        registry = match remaining {
            Some(remaining) => {
                completed.wait_timeout(registry, remaining).unwrap_or_else(PoisonError::into_inner).0
            }
            None => completed.wait(registry).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
