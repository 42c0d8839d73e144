//! System calls on files: the operation that each starts, and the effect of its completion.
//!
//! ```text
//!   enter   open file, offset ──▶ start event ──▶ Call of the thread
//!   exit    Call of the thread + result ──▶ end event ──▶ descriptors, positions
//! ```
//!
//! A descriptor is free from the entry of its close on: another thread may get it again before the
//! exit. A new descriptor is valid from the exit of its open on.

use super::open_files::ClosedFile;
use super::payload::{self, Operation, UNKNOWN_OFFSET};
use super::pending_calls::{Advance, Call, Effect};
use super::status::status;
use crate::groups::Group;
use crate::out::Out;
use crate::spec::Event;
use crate::state::State as All;

/// Indexes of the fields in a row.
const FIRST: usize = 0;
const SECOND: usize = 1;
const THIRD: usize = 2;

/// Handles the entry of a call. Any earlier call of the thread has ended, with or without an exit
/// record.
fn enter(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    payload::write_confirmed_names(&mut state.files.open_files, event.sample.time, out);
    state.files.calls.remove(event.sample.tid);
}

/// Starts an operation on an open file; `write_start` writes its start event. Returns its number.
fn start_operation(
    state: &mut All,
    event: &Event<'_>,
    out: &mut Out<'_>,
    key: u64,
    write_start: impl FnOnce(Operation, &mut Out<'_>),
) -> u64 {
    let irp = state.files.calls.next_irp();
    if state.groups.has(Group::FILE_IO_INIT) {
        write_start(Operation { irp, key, thread: event.sample.tid }, out);
    }
    irp
}

/// Handles a call without an effect on descriptors, on an open file or, without a descriptor, on a
/// path.
fn enter_operation(
    state: &mut All,
    event: &Event<'_>,
    out: &mut Out<'_>,
    descriptor: Option<u32>,
    write_start: impl FnOnce(Operation, &mut Out<'_>),
) {
    enter(state, event, out);
    let key = match descriptor.map(|number| state.files.open_files.resolve(event.sample.pid, number)) {
        Some(None) => return,
        Some(Some(key)) => key,
        None => 0,
    };
    let irp = start_operation(state, event, out, key, write_start);
    state.files.calls.insert(event.sample.tid, Effect::Nothing, [irp, 0]);
}

/// Returns the descriptor of a call; `None` for a call with a path instead.
fn descriptor(event: &Event<'_>) -> Option<u32> {
    event.has(FIRST).then(|| event.u32(FIRST))
}

pub(super) fn open(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    begin_open(state, event, out, Some(event.u32(FIRST)));
}

/// Handles `openat2`, whose flags are in the memory of the program.
pub(super) fn openat2(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    begin_open(state, event, out, None);
}

#[allow(clippy::cast_sign_loss)] // Flags are bits.
pub(super) fn creat(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    begin_open(state, event, out, Some((libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u32));
}

fn begin_open(state: &mut All, event: &Event<'_>, out: &mut Out<'_>, flags: Option<u32>) {
    enter(state, event, out);
    let (key, irp) = (state.files.open_files.next_key(), state.files.calls.next_irp());
    let thread = event.sample.tid;
    // With a probe the start waits for the path.
    let is_written = !state.files.calls.has_probe;
    if is_written && state.groups.has(Group::FILE_IO_INIT) {
        payload::write_create(Operation { irp, key, thread }, flags, "", out);
    }
    state.files.calls.insert(thread, Effect::Open { key, flags, is_written, path: None }, [irp, 0]);
}

/// Handles the probe, which reports the path of the open call that the thread is in.
pub(super) fn open_path(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let (calls, thread) = (&mut state.files.calls, event.sample.tid);
    calls.has_probe = true;
    let Some(Call { effect: Effect::Open { key, flags, is_written, path }, irps: [irp, _] }) =
        calls.by_thread.get_mut(&thread)
    else {
        return;
    };
    let text = String::from_utf8_lossy(event.text(FIRST));
    if !std::mem::replace(is_written, true) && state.groups.has(Group::FILE_IO_INIT) {
        payload::write_create(Operation { irp: *irp, key: *key, thread }, *flags, &text, out);
    }
    *path = Some(text.into());
}

pub(super) fn close(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    enter(state, event, out);
    let closed = state.files.open_files.unbind(event.sample.pid, event.u32(FIRST), event.sample.time);
    if let Some(closed) = closed {
        let irps = write_close(state, event, &closed, out);
        state.files.calls.insert(event.sample.tid, Effect::Nothing, irps);
    }
}

/// Writes the start events of the operations that close an open file. Returns their numbers.
fn write_close(state: &mut All, event: &Event<'_>, closed: &ClosedFile, out: &mut Out<'_>) -> [u64; 2] {
    let irps = [state.files.calls.next_irp(), state.files.calls.next_irp()];
    payload::write_close(state.groups, &irps, closed.key, event.sample.tid, out);
    payload::write_name_delete(closed, out);
    irps
}

/// Closes a descriptor as a side effect of another call, and writes start and end events at once.
fn close_implicitly(state: &mut All, event: &Event<'_>, descriptor: u32, out: &mut Out<'_>) {
    let closed = state.files.open_files.unbind(event.sample.pid, descriptor, event.sample.time);
    if let Some(closed) = closed {
        let irps = write_close(state, event, &closed, out);
        irps.iter().for_each(|irp| payload::write_end(state.groups, *irp, 0, 0, out));
    }
}

pub(super) fn close_range(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    /// `CLOSE_RANGE_CLOEXEC`: the descriptors are closed by the next exec, not now.
    const CLOEXEC: u32 = 4;
    /// `CLOSE_RANGE_UNSHARE`: the descriptors of other processes are not affected.
    const UNSHARE: u32 = 2;
    enter(state, event, out);
    let process = event.sample.pid;
    if event.u32(THIRD) & UNSHARE != 0 {
        state.files.open_files.unshare_table(process);
    }
    let (first, last) = (event.u32(FIRST), event.u32(SECOND));
    for descriptor in state.files.open_files.descriptors_between(process, first, last) {
        if event.u32(THIRD) & CLOEXEC != 0 {
            state.files.open_files.set_closes_on_exec(process, descriptor, true);
        } else {
            close_implicitly(state, event, descriptor, out);
        }
    }
}

pub(super) fn dup(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    enter(state, event, out);
    enter_dup(state, event, false);
}

/// Handles `dup2` and `dup3`, which has flags.
pub(super) fn dup2(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    enter(state, event, out);
    if event.u32(FIRST) != event.u32(SECOND) {
        enter_dup(state, event, event.u32(THIRD) & CLOSES_ON_EXEC != 0);
    }
}

#[allow(clippy::cast_sign_loss)] // Flags are bits.
const CLOSES_ON_EXEC: u32 = libc::O_CLOEXEC as u32;

pub(super) fn fcntl(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    enter(state, event, out);
    match i32::try_from(event.u32(SECOND)) {
        Ok(libc::F_DUPFD) => enter_dup(state, event, false),
        Ok(libc::F_DUPFD_CLOEXEC) => enter_dup(state, event, true),
        Ok(libc::F_SETFD) => {
            let closes = event.u32(THIRD) & 1 != 0;
            state.files.open_files.set_closes_on_exec(event.sample.pid, event.u32(FIRST), closes);
        }
        _ => {}
    }
}

fn enter_dup(state: &mut All, event: &Event<'_>, closes_on_exec: bool) {
    let from = event.u32(FIRST);
    // The open file must be known before the call ends, when both descriptors refer to it.
    state.files.open_files.resolve(event.sample.pid, from);
    state.files.calls.insert(event.sample.tid, Effect::Dup { from, closes_on_exec }, [0, 0]);
}

pub(super) fn seek(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    enter(state, event, out);
    if let Some(key) = state.files.open_files.resolve(event.sample.pid, event.u32(FIRST)) {
        state.files.calls.insert(event.sample.tid, Effect::Seek { key }, [0, 0]);
    }
}

pub(super) fn read(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    transfer(state, event, out, false);
}

pub(super) fn write(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    transfer(state, event, out, true);
}

/// Handles a read or write. Fields: descriptor and, if the tracepoint has them, size and offset.
/// Without an offset, and with −1, the call uses the position of the open file.
fn transfer(state: &mut All, event: &Event<'_>, out: &mut Out<'_>, is_write: bool) {
    enter(state, event, out);
    let offset = Some(event.u64(THIRD)).filter(|offset| event.has(THIRD) && *offset != UNKNOWN_OFFSET);
    let size = u32::try_from(event.u64(SECOND)).unwrap_or(u32::MAX);
    let end = (event.u32(FIRST), is_write);
    if let Some((irp, advance)) = start_transfer(state, event, out, end, offset, size) {
        state.files.calls.insert(event.sample.tid, Effect::Transfer([advance, None]), [irp, 0]);
    }
}

/// Starts one side of a transfer. Returns its number and, if `offset` is `None`, the position that
/// it advances.
fn start_transfer(
    state: &mut All,
    event: &Event<'_>,
    out: &mut Out<'_>,
    (descriptor, is_write): (u32, bool),
    offset: Option<u64>,
    size: u32,
) -> Option<(u64, Option<Advance>)> {
    let key = state.files.open_files.resolve(event.sample.pid, descriptor)?;
    let position = offset.or_else(|| state.files.open_files.position(key, is_write));
    let position = position.unwrap_or(UNKNOWN_OFFSET);
    let hook = if is_write { payload::WRITE } else { payload::READ };
    let irp = start_operation(state, event, out, key, |operation, out| {
        payload::write_transfer(hook, operation, position, size, out);
    });
    Some((irp, offset.is_none().then_some(Advance { key, is_write })))
}

/// Handles a copy between two descriptors. Fields: both descriptors, the size, and the addresses of
/// both offsets in the program's memory.
pub(super) fn copy(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const OFFSETS: [usize; 2] = [3, 4];
    enter(state, event, out);
    let size = u32::try_from(event.u64(THIRD)).unwrap_or(u32::MAX);
    let (mut irps, mut advances) = ([0, 0], [None, None]);
    let ends = [(event.u32(FIRST), false), (event.u32(SECOND), true)];
    for (((end, field), irp), slot) in ends.into_iter().zip(OFFSETS).zip(&mut irps).zip(&mut advances) {
        // An offset in memory is unknown here, and the call leaves the position unchanged.
        let offset = (event.u64(field) != 0).then_some(UNKNOWN_OFFSET);
        if let Some((number, advance)) = start_transfer(state, event, out, end, offset, size) {
            (*irp, *slot) = (number, advance);
        }
    }
    if irps != [0, 0] {
        state.files.calls.insert(event.sample.tid, Effect::Transfer(advances), irps);
    }
}

pub(super) fn flush(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let start = |operation: Operation, out: &mut Out<'_>| {
        payload::write_simple(payload::FLUSH, operation, out);
    };
    enter_operation(state, event, out, descriptor(event), start);
}

/// Handles an operation with an information class, numbered as in the native API.
fn enter_info(state: &mut All, event: &Event<'_>, out: &mut Out<'_>, hook: u16, (class, extra): (u32, u64)) {
    let start = |operation: Operation, out: &mut Out<'_>| {
        payload::write_info(hook, operation, extra, class, out);
    };
    enter_operation(state, event, out, descriptor(event), start);
}

pub(super) fn truncate(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const END_OF_FILE: u32 = 20;
    enter_info(state, event, out, payload::SET_INFO, (END_OF_FILE, event.u64(SECOND)));
}

pub(super) fn allocate(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const ALLOCATION: u32 = 19;
    enter_info(state, event, out, payload::SET_INFO, (ALLOCATION, event.u64(SECOND)));
}

/// Handles changes of mode and times.
pub(super) fn set_basic(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const BASIC: u32 = 4;
    enter_info(state, event, out, payload::SET_INFO, (BASIC, 0));
}

pub(super) fn query(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const STAT: u32 = 68;
    enter_info(state, event, out, payload::QUERY_INFO, (STAT, 0));
}

pub(super) fn delete(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const DISPOSITION: u32 = 13;
    enter_info(state, event, out, payload::DELETE, (DISPOSITION, 0));
}

pub(super) fn rename(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const RENAME: u32 = 10;
    enter_info(state, event, out, payload::RENAME, (RENAME, 0));
}

pub(super) fn enumerate(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let length = event.u32(SECOND);
    let start = |operation: Operation, out: &mut Out<'_>| {
        payload::write_directory(operation, length, out);
    };
    enter_operation(state, event, out, descriptor(event), start);
}

/// Handles the exit of a call.
pub(super) fn exit(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    payload::write_confirmed_names(&mut state.files.open_files, event.sample.time, out);
    let Some(Call { effect, irps }) = state.files.calls.by_thread.remove(&event.sample.tid) else { return };
    let returned = event.number(FIRST);
    let succeeded = u64::try_from(returned).ok();
    let bytes = if matches!(effect, Effect::Transfer(_)) { succeeded.unwrap_or(0) } else { 0 };
    if let Effect::Open { key, flags, is_written: false, .. } = &effect
        && state.groups.has(Group::FILE_IO_INIT)
    {
        // The call failed before it reached the probe.
        let operation = Operation { irp: irps[0], key: *key, thread: event.sample.tid };
        payload::write_create(operation, *flags, "", out);
    }
    for irp in irps.into_iter().filter(|irp| *irp != 0) {
        payload::write_end(state.groups, irp, bytes, status(returned), out);
    }
    if let Some(result) = succeeded {
        apply_effect(state, event, out, effect, result);
    }
}

fn apply_effect(state: &mut All, event: &Event<'_>, out: &mut Out<'_>, effect: Effect, result: u64) {
    let (process, time) = (event.sample.pid, event.sample.time);
    let descriptor = u32::try_from(result).unwrap_or(u32::MAX);
    match effect {
        Effect::Nothing => {}
        Effect::Open { key, flags, path, .. } => {
            let target = (process, descriptor);
            state.files.open_files.add_opened(target, key, flags, time, path.as_deref());
        }
        Effect::Transfer(advances) => {
            for Advance { key, is_write } in advances.into_iter().flatten() {
                state.files.open_files.advance_position(key, is_write, result);
            }
        }
        Effect::Seek { key } => state.files.open_files.set_position(key, result),
        Effect::Dup { from, closes_on_exec } => {
            close_implicitly(state, event, descriptor, out);
            state.files.open_files.duplicate(process, (descriptor, from), closes_on_exec, time);
        }
    }
}
