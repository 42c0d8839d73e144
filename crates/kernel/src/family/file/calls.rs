//! System calls on files: what each begins, and what its end means.
//!
//! ```text
//!   enter   which opening, which place ──▶ start event ──▶ Call of the thread
//!   exit    Call of the thread + result ──▶ end event ──▶ descriptors, positions
//! ```
//!
//! A descriptor is free from the entry of its close on: another thread may have it again before the exit. It leads somewhere from the exit of an open on.

use super::openings::Ended;
use super::status::status;
use super::tell::{self, About, NOWHERE};
use super::under_way::{Call, Moving, What};
use crate::groups::Group;
use crate::out::Out;
use crate::spec::Event;
use crate::state::State as All;

/// A field that is the first of its row.
const FIRST: usize = 0;
const SECOND: usize = 1;
const THIRD: usize = 2;

/// A thread enters a call: whatever it was in before has ended, told or not.
fn enter(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    tell::names(&mut state.files.openings, event.sample.time, out);
    state.files.calls.forget(event.sample.tid);
}

/// Begins an operation on an opening; `tell` writes its start.
fn begin(
    state: &mut All,
    event: &Event<'_>,
    out: &mut Out<'_>,
    key: u64,
    tell: impl FnOnce(About, &mut Out<'_>),
) -> u64 {
    let irp = state.files.calls.next_irp();
    if state.groups.has(Group::FILE_IO_INIT) {
        tell(About { irp, key, thread: event.sample.tid }, out);
    }
    irp
}

/// An operation that means nothing but itself, on a file or on a path, which has no opening.
fn operation(
    state: &mut All,
    event: &Event<'_>,
    out: &mut Out<'_>,
    descriptor: Option<u32>,
    tell: impl FnOnce(About, &mut Out<'_>),
) {
    enter(state, event, out);
    let key = match descriptor.map(|it| state.files.openings.of(event.sample.pid, it)) {
        Some(None) => return,
        Some(Some(key)) => key,
        None => 0,
    };
    let irp = begin(state, event, out, key, tell);
    state.files.calls.begin(event.sample.tid, What::Nothing, [irp, 0]);
}

/// The descriptor of a call that may have a path in its place.
fn descriptor(event: &Event<'_>) -> Option<u32> {
    event.has(FIRST).then(|| event.u32(FIRST))
}

pub(super) fn open(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    begin_open(state, event, out, Some(event.u32(FIRST)));
}

/// Its flags are in the memory of the program.
pub(super) fn open_how(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    begin_open(state, event, out, None);
}

#[allow(clippy::cast_sign_loss)] // Flags are bits.
pub(super) fn creat(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    begin_open(state, event, out, Some((libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u32));
}

fn begin_open(state: &mut All, event: &Event<'_>, out: &mut Out<'_>, flags: Option<u32>) {
    enter(state, event, out);
    let (key, irp) = (state.files.openings.next_key(), state.files.calls.next_irp());
    let thread = event.sample.tid;
    let is_told = !state.files.calls.has_probe;
    if is_told && state.groups.has(Group::FILE_IO_INIT) {
        tell::create(About { irp, key, thread }, flags, "", out);
    }
    state.files.calls.begin(thread, What::Open { key, flags, is_told, path: None }, [irp, 0]);
}

/// A probe tells the path of the call that the thread is in.
pub(super) fn named(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let (calls, thread) = (&mut state.files.calls, event.sample.tid);
    calls.has_probe = true;
    let Some(Call { what: What::Open { key, flags, is_told, path }, irps: [irp, _] }) =
        calls.by_thread.get_mut(&thread)
    else {
        return;
    };
    let text = String::from_utf8_lossy(event.text(FIRST));
    if !std::mem::replace(is_told, true) && state.groups.has(Group::FILE_IO_INIT) {
        tell::create(About { irp: *irp, key: *key, thread }, *flags, &text, out);
    }
    *path = Some(text.into());
}

pub(super) fn close(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    enter(state, event, out);
    let ended = state.files.openings.unbind(event.sample.pid, event.u32(FIRST), event.sample.time);
    if let Some(ended) = ended {
        let irps = close_one(state, event, &ended, out);
        state.files.calls.begin(event.sample.tid, What::Nothing, irps);
    }
}

/// An opening ends by a call.
fn close_one(state: &mut All, event: &Event<'_>, ended: &Ended, out: &mut Out<'_>) -> [u64; 2] {
    let irps = [state.files.calls.next_irp(), state.files.calls.next_irp()];
    tell::closing(state.groups, &irps, ended.key, event.sample.tid, out);
    tell::name_deleted(ended, out);
    irps
}

/// An opening ends beside what a call does: that has ended too.
fn close_beside(state: &mut All, event: &Event<'_>, descriptor: u32, out: &mut Out<'_>) {
    if let Some(ended) = state.files.openings.unbind(event.sample.pid, descriptor, event.sample.time) {
        let irps = close_one(state, event, &ended, out);
        irps.iter().for_each(|irp| tell::end(state.groups, *irp, 0, 0, out));
    }
}

pub(super) fn close_range(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    /// Nothing is closed yet, but when another program is run.
    const ON_EXEC: u32 = 4;
    /// Nobody else's descriptors are.
    const UNSHARE: u32 = 2;
    enter(state, event, out);
    let process = event.sample.pid;
    if event.u32(THIRD) & UNSHARE != 0 {
        state.files.openings.unshare(process);
    }
    for descriptor in state.files.openings.between(process, event.u32(FIRST), event.u32(SECOND)) {
        if event.u32(THIRD) & ON_EXEC != 0 {
            state.files.openings.set_closes_on_exec(process, descriptor, true);
        } else {
            close_beside(state, event, descriptor, out);
        }
    }
}

pub(super) fn dup(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    enter(state, event, out);
    begin_share(state, event, false);
}

/// `dup2` and `dup3`, which has flags.
pub(super) fn dup2(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    enter(state, event, out);
    if event.u32(FIRST) != event.u32(SECOND) {
        begin_share(state, event, event.u32(THIRD) & CLOSES_ON_EXEC != 0);
    }
}

#[allow(clippy::cast_sign_loss)] // Flags are bits.
const CLOSES_ON_EXEC: u32 = libc::O_CLOEXEC as u32;

pub(super) fn fcntl(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    enter(state, event, out);
    match i32::try_from(event.u32(SECOND)) {
        Ok(libc::F_DUPFD) => begin_share(state, event, false),
        Ok(libc::F_DUPFD_CLOEXEC) => begin_share(state, event, true),
        Ok(libc::F_SETFD) => {
            let closes = event.u32(THIRD) & 1 != 0;
            state.files.openings.set_closes_on_exec(event.sample.pid, event.u32(FIRST), closes);
        }
        _ => {}
    }
}

fn begin_share(state: &mut All, event: &Event<'_>, closes_on_exec: bool) {
    let from = event.u32(FIRST);
    // It must be known before the call ends: then both are the same.
    state.files.openings.of(event.sample.pid, from);
    state.files.calls.begin(event.sample.tid, What::Share { from, closes_on_exec }, [0, 0]);
}

pub(super) fn seek(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    enter(state, event, out);
    if let Some(key) = state.files.openings.of(event.sample.pid, event.u32(FIRST)) {
        state.files.calls.begin(event.sample.tid, What::Seek { key }, [0, 0]);
    }
}

pub(super) fn read(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    transfer(state, event, out, false);
}

pub(super) fn write(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    transfer(state, event, out, true);
}

/// Descriptor, and if they are told bytes and place; no place, and −1, is the position of the opening.
fn transfer(state: &mut All, event: &Event<'_>, out: &mut Out<'_>, is_write: bool) {
    enter(state, event, out);
    let place = Some(event.u64(THIRD)).filter(|place| event.has(THIRD) && *place != NOWHERE);
    let size = u32::try_from(event.u64(SECOND)).unwrap_or(u32::MAX);
    if let Some((irp, moving)) = begin_transfer(state, event, out, (event.u32(FIRST), is_write), place, size)
    {
        state.files.calls.begin(event.sample.tid, What::Transfer([moving, None]), [irp, 0]);
    }
}

fn begin_transfer(
    state: &mut All,
    event: &Event<'_>,
    out: &mut Out<'_>,
    (descriptor, is_write): (u32, bool),
    place: Option<u64>,
    size: u32,
) -> Option<(u64, Option<Moving>)> {
    let key = state.files.openings.of(event.sample.pid, descriptor)?;
    let offset = place.or_else(|| state.files.openings.position(key, is_write)).unwrap_or(NOWHERE);
    let hook = if is_write { tell::WRITE } else { tell::READ };
    let irp = begin(state, event, out, key, |about, out| tell::transfer(hook, about, offset, size, out));
    Some((irp, place.is_none().then_some(Moving { key, is_write })))
}

/// From one descriptor to another: so many bytes, and the places of both, or where in the program's memory they are.
pub(super) fn copy(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const PLACES: [usize; 2] = [3, 4];
    enter(state, event, out);
    let size = u32::try_from(event.u64(THIRD)).unwrap_or(u32::MAX);
    let (mut irps, mut moving) = ([0, 0], [None, None]);
    let ends = [(event.u32(FIRST), false), (event.u32(SECOND), true)];
    for (((end, at), irp), moves) in ends.into_iter().zip(PLACES).zip(&mut irps).zip(&mut moving) {
        // A place in memory is not told, and leaves the position.
        let place = (event.u64(at) != 0).then_some(NOWHERE);
        if let Some((number, it)) = begin_transfer(state, event, out, end, place, size) {
            (*irp, *moves) = (number, it);
        }
    }
    if irps != [0, 0] {
        state.files.calls.begin(event.sample.tid, What::Transfer(moving), irps);
    }
}

pub(super) fn flush(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let start = |about: About, out: &mut Out<'_>| tell::simple(tell::FLUSH, about, out);
    operation(state, event, out, descriptor(event), start);
}

/// An operation with a class of information, as the native calls number them.
fn info(state: &mut All, event: &Event<'_>, out: &mut Out<'_>, hook: u16, (class, extra): (u32, u64)) {
    let start = |about: About, out: &mut Out<'_>| tell::info(hook, about, extra, class, out);
    operation(state, event, out, descriptor(event), start);
}

pub(super) fn truncate(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const END_OF_FILE: u32 = 20;
    info(state, event, out, tell::SET_INFO, (END_OF_FILE, event.u64(SECOND)));
}

pub(super) fn allocate(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const ALLOCATION: u32 = 19;
    info(state, event, out, tell::SET_INFO, (ALLOCATION, event.u64(SECOND)));
}

/// Modes and times.
pub(super) fn set_basic(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const BASIC: u32 = 4;
    info(state, event, out, tell::SET_INFO, (BASIC, 0));
}

pub(super) fn query(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const STAT: u32 = 68;
    info(state, event, out, tell::QUERY_INFO, (STAT, 0));
}

pub(super) fn delete(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const DISPOSITION: u32 = 13;
    info(state, event, out, tell::DELETE, (DISPOSITION, 0));
}

pub(super) fn rename(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const RENAME: u32 = 10;
    info(state, event, out, tell::RENAME, (RENAME, 0));
}

pub(super) fn enumerate(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let length = event.u32(SECOND);
    let start = |about: About, out: &mut Out<'_>| tell::directory(about, length, out);
    operation(state, event, out, descriptor(event), start);
}

/// A call has ended.
pub(super) fn ended(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    tell::names(&mut state.files.openings, event.sample.time, out);
    let Some(Call { what, irps }) = state.files.calls.by_thread.remove(&event.sample.tid) else { return };
    let returned = event.number(FIRST);
    let succeeded = u64::try_from(returned).ok();
    let bytes = if matches!(what, What::Transfer(_)) { succeeded.unwrap_or(0) } else { 0 };
    if let What::Open { key, flags, is_told: false, .. } = &what
        && state.groups.has(Group::FILE_IO_INIT)
    {
        // The call has not got as far as the probe.
        tell::create(About { irp: irps[0], key: *key, thread: event.sample.tid }, *flags, "", out);
    }
    for irp in irps.into_iter().filter(|irp| *irp != 0) {
        tell::end(state.groups, irp, bytes, status(returned), out);
    }
    if let Some(result) = succeeded {
        take_effect(state, event, out, what, result);
    }
}

fn take_effect(state: &mut All, event: &Event<'_>, out: &mut Out<'_>, what: What, result: u64) {
    let (process, time) = (event.sample.pid, event.sample.time);
    let descriptor = u32::try_from(result).unwrap_or(u32::MAX);
    match what {
        What::Nothing => {}
        What::Open { key, flags, path, .. } => {
            state.files.openings.opened((process, descriptor), key, flags, time, path.as_deref());
        }
        What::Transfer(moving) => {
            for Moving { key, is_write } in moving.into_iter().flatten() {
                state.files.openings.moved(key, is_write, result);
            }
        }
        What::Seek { key } => state.files.openings.set_position(key, result),
        What::Share { from, closes_on_exec } => {
            close_beside(state, event, descriptor, out);
            state.files.openings.share(process, (descriptor, from), closes_on_exec, time);
        }
    }
}
