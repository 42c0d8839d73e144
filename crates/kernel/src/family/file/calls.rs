//! System calls on files: the operation that each starts, and the effect of its completion.
//!
//! ```text
//!   enter   open file, offset ──▶ start event ──▶ PendingCall of the thread
//!   exit    PendingCall of the thread + result ──▶ end event ──▶ descriptors, positions
//! ```
//!
//! A descriptor is free from the entry of its close on: another thread may get it again before the
//! exit. A new descriptor is valid from the exit of its open on.

use traceweir_format::kernel::hook;

use super::FileFamily;
use super::open_files::ClosedFile;
use super::payload::{self, Operation, UNKNOWN_OFFSET};
use super::pending_calls::{Advance, CallEffect, PendingCall};
use super::status::to_ntstatus;
use crate::family::Context;
use crate::groups::Group;
use crate::out::Out;
use crate::spec::SampleEvent;

// Indexes of the fields in a row.
const FIRST_FIELD: usize = 0;
const SECOND_FIELD: usize = 1;
const THIRD_FIELD: usize = 2;

#[allow(clippy::cast_sign_loss)] // Flags are bits.
const O_CLOEXEC: u32 = libc::O_CLOEXEC as u32;

/// The file that a transfer reads or writes.
struct TransferSide {
    descriptor: u32,
    is_write: bool,
}

impl FileFamily {
    /// Handles the entry of a call. Any earlier call of the thread has ended, with or without an
    /// exit record.
    fn enter(&mut self, event: &SampleEvent<'_>, out: &mut Out<'_>) {
        payload::write_confirmed_names(&mut self.open_files, event.sample.time, out);
        self.calls.remove(event.sample.tid);
    }

    /// Starts an operation on an open file, and returns the number of the operation. `write_start`
    /// writes the start event.
    fn start_operation(
        &mut self,
        event: &SampleEvent<'_>,
        context: &Context,
        out: &mut Out<'_>,
        key: u64,
        write_start: impl FnOnce(Operation, &mut Out<'_>),
    ) -> u64 {
        let irp = self.calls.next_irp();
        if context.groups.has(Group::FILE_IO_INIT) {
            write_start(Operation { irp, key, thread: event.sample.tid }, out);
        }
        irp
    }

    /// Handles the entry of a call that changes no descriptor. The call operates on the open file
    /// of `descriptor` or, if there is no descriptor, on a path.
    fn enter_operation(
        &mut self,
        event: &SampleEvent<'_>,
        context: &Context,
        out: &mut Out<'_>,
        descriptor: Option<u32>,
        write_start: impl FnOnce(Operation, &mut Out<'_>),
    ) {
        self.enter(event, out);
        let key = match descriptor.map(|number| self.open_files.resolve_descriptor(event.sample.pid, number))
        {
            Some(None) => return,
            Some(Some(key)) => key,
            None => 0,
        };
        let irp = self.start_operation(event, context, out, key, write_start);
        self.calls.insert(event.sample.tid, CallEffect::Nothing, [irp, 0]);
    }

    pub(super) fn open(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        self.begin_open(event, context, out, Some(event.u32(FIRST_FIELD)));
    }

    /// Handles `openat2`, whose flags are in the memory of the program.
    pub(super) fn openat2(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        self.begin_open(event, context, out, None);
    }

    #[allow(clippy::cast_sign_loss)] // Flags are bits.
    pub(super) fn creat(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        self.begin_open(event, context, out, Some((libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u32));
    }

    fn begin_open(
        &mut self,
        event: &SampleEvent<'_>,
        context: &Context,
        out: &mut Out<'_>,
        flags: Option<u32>,
    ) {
        self.enter(event, out);
        let (key, irp) = (self.open_files.next_key(), self.calls.next_irp());
        let thread = event.sample.tid;
        // If the kprobe reports paths, the start event waits for the path.
        let is_written = !self.calls.has_probe;
        if is_written && context.groups.has(Group::FILE_IO_INIT) {
            payload::write_create(Operation { irp, key, thread }, flags, "", out);
        }
        self.calls.insert(thread, CallEffect::Open { key, flags, is_written, path: None }, [irp, 0]);
    }

    /// Handles a sample of the kprobe: the path of the open call that the thread is in.
    pub(super) fn open_path(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        let (calls, thread) = (&mut self.calls, event.sample.tid);
        calls.has_probe = true;
        let Some(PendingCall { effect: CallEffect::Open { key, flags, is_written, path }, irps: [irp, _] }) =
            calls.by_thread.get_mut(&thread)
        else {
            return;
        };
        let text = String::from_utf8_lossy(event.text(FIRST_FIELD));
        if !std::mem::replace(is_written, true) && context.groups.has(Group::FILE_IO_INIT) {
            payload::write_create(Operation { irp: *irp, key: *key, thread }, *flags, &text, out);
        }
        *path = Some(text.into());
    }

    pub(super) fn close(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        self.enter(event, out);
        let closed =
            self.open_files.close_descriptor(event.sample.pid, event.u32(FIRST_FIELD), event.sample.time);
        if let Some(closed) = closed {
            let irps = self.write_close(event, context, &closed, out);
            self.calls.insert(event.sample.tid, CallEffect::Nothing, irps);
        }
    }

    /// Writes the start events of the operations that close an open file. Returns their numbers.
    fn write_close(
        &mut self,
        event: &SampleEvent<'_>,
        context: &Context,
        closed: &ClosedFile,
        out: &mut Out<'_>,
    ) -> [u64; 2] {
        let irps = [self.calls.next_irp(), self.calls.next_irp()];
        payload::write_close(context.groups, &irps, closed.key, event.sample.tid, out);
        payload::write_name_delete(closed, out);
        irps
    }

    /// Closes a descriptor as a side effect of another call, and writes start and end events at
    /// once.
    fn close_implicitly(
        &mut self,
        event: &SampleEvent<'_>,
        context: &Context,
        descriptor: u32,
        out: &mut Out<'_>,
    ) {
        let closed = self.open_files.close_descriptor(event.sample.pid, descriptor, event.sample.time);
        if let Some(closed) = closed {
            let irps = self.write_close(event, context, &closed, out);
            irps.iter().for_each(|irp| payload::write_end(context.groups, *irp, 0, 0, out));
        }
    }

    pub(super) fn close_range(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        /// The descriptors are closed by the next exec, not now.
        const CLOSE_RANGE_CLOEXEC: u32 = 4;
        /// The descriptors of other processes are not affected.
        const CLOSE_RANGE_UNSHARE: u32 = 2;
        self.enter(event, out);
        let process = event.sample.pid;
        if event.u32(THIRD_FIELD) & CLOSE_RANGE_UNSHARE != 0 {
            self.open_files.unshare_table(process);
        }
        let (first, last) = (event.u32(FIRST_FIELD), event.u32(SECOND_FIELD));
        for descriptor in self.open_files.descriptors_between(process, first, last) {
            if event.u32(THIRD_FIELD) & CLOSE_RANGE_CLOEXEC != 0 {
                self.open_files.set_closes_on_exec(process, descriptor, true);
            } else {
                self.close_implicitly(event, context, descriptor, out);
            }
        }
    }

    pub(super) fn dup(&mut self, event: &SampleEvent<'_>, _: &mut Context, out: &mut Out<'_>) {
        self.enter(event, out);
        self.enter_dup(event, false);
    }

    /// Handles `dup2` and `dup3`, which has flags.
    pub(super) fn dup2(&mut self, event: &SampleEvent<'_>, _: &mut Context, out: &mut Out<'_>) {
        self.enter(event, out);
        if event.u32(FIRST_FIELD) != event.u32(SECOND_FIELD) {
            self.enter_dup(event, event.u32(THIRD_FIELD) & O_CLOEXEC != 0);
        }
    }

    pub(super) fn fcntl(&mut self, event: &SampleEvent<'_>, _: &mut Context, out: &mut Out<'_>) {
        self.enter(event, out);
        match i32::try_from(event.u32(SECOND_FIELD)) {
            Ok(libc::F_DUPFD) => self.enter_dup(event, false),
            Ok(libc::F_DUPFD_CLOEXEC) => self.enter_dup(event, true),
            Ok(libc::F_SETFD) => {
                let closes = event.u32(THIRD_FIELD) & libc::FD_CLOEXEC.cast_unsigned() != 0;
                self.open_files.set_closes_on_exec(event.sample.pid, event.u32(FIRST_FIELD), closes);
            }
            _ => {}
        }
    }

    fn enter_dup(&mut self, event: &SampleEvent<'_>, closes_on_exec: bool) {
        let from = event.u32(FIRST_FIELD);
        // The open file must be known before the call ends, when both descriptors refer to it.
        self.open_files.resolve_descriptor(event.sample.pid, from);
        self.calls.insert(event.sample.tid, CallEffect::Dup { from, closes_on_exec }, [0, 0]);
    }

    pub(super) fn seek(&mut self, event: &SampleEvent<'_>, _: &mut Context, out: &mut Out<'_>) {
        self.enter(event, out);
        if let Some(key) = self.open_files.resolve_descriptor(event.sample.pid, event.u32(FIRST_FIELD)) {
            self.calls.insert(event.sample.tid, CallEffect::Seek { key }, [0, 0]);
        }
    }

    pub(super) fn read(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        self.transfer(event, context, out, false);
    }

    pub(super) fn write(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        self.transfer(event, context, out, true);
    }

    /// Handles a read or write. Fields: descriptor and, if the tracepoint has them, size and
    /// offset. Without an offset, and with −1, the call uses the position of the open file.
    fn transfer(&mut self, event: &SampleEvent<'_>, context: &Context, out: &mut Out<'_>, is_write: bool) {
        self.enter(event, out);
        let offset =
            Some(event.u64(THIRD_FIELD)).filter(|offset| event.has(THIRD_FIELD) && *offset != UNKNOWN_OFFSET);
        let size = u32::try_from(event.u64(SECOND_FIELD)).unwrap_or(u32::MAX);
        let side = TransferSide { descriptor: event.u32(FIRST_FIELD), is_write };
        if let Some((irp, advance)) = self.start_transfer(event, context, out, side, offset, size) {
            self.calls.insert(event.sample.tid, CallEffect::Transfer([advance, None]), [irp, 0]);
        }
    }

    /// Starts the read or the write of a transfer. Returns its number and, if `offset` is `None`,
    /// the position that it advances.
    fn start_transfer(
        &mut self,
        event: &SampleEvent<'_>,
        context: &Context,
        out: &mut Out<'_>,
        side: TransferSide,
        offset: Option<u64>,
        size: u32,
    ) -> Option<(u64, Option<Advance>)> {
        let key = self.open_files.resolve_descriptor(event.sample.pid, side.descriptor)?;
        let is_write = side.is_write;
        let position = offset.or_else(|| self.open_files.position(key, is_write));
        let position = position.unwrap_or(UNKNOWN_OFFSET);
        let hook = if is_write { hook::FILE_WRITE } else { hook::FILE_READ };
        let irp = self.start_operation(event, context, out, key, |operation, out| {
            payload::write_transfer(hook, operation, position, size, out);
        });
        Some((irp, offset.is_none().then_some(Advance { key, is_write })))
    }

    /// Handles a copy between two descriptors. Fields: the source and the target descriptor, the
    /// size, and the addresses of the source and the target offset in the program's memory.
    pub(super) fn copy(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        const OFFSETS: [usize; 2] = [3, 4];
        self.enter(event, out);
        let size = u32::try_from(event.u64(THIRD_FIELD)).unwrap_or(u32::MAX);
        let (mut irps, mut advances) = ([0, 0], [None, None]);
        let sides = [
            TransferSide { descriptor: event.u32(FIRST_FIELD), is_write: false },
            TransferSide { descriptor: event.u32(SECOND_FIELD), is_write: true },
        ];
        for (((side, field), irp), slot) in sides.into_iter().zip(OFFSETS).zip(&mut irps).zip(&mut advances) {
            // An offset in memory is unknown here, and the call leaves the position unchanged.
            let offset = (event.u64(field) != 0).then_some(UNKNOWN_OFFSET);
            if let Some((number, advance)) = self.start_transfer(event, context, out, side, offset, size) {
                (*irp, *slot) = (number, advance);
            }
        }
        if irps != [0, 0] {
            self.calls.insert(event.sample.tid, CallEffect::Transfer(advances), irps);
        }
    }

    pub(super) fn flush(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        let start = |operation: Operation, out: &mut Out<'_>| {
            payload::write_simple(hook::FILE_FLUSH, operation, out);
        };
        self.enter_operation(event, context, out, descriptor(event), start);
    }

    /// Handles an operation with a file information class, numbered as in the Windows native API.
    fn enter_info(
        &mut self,
        event: &SampleEvent<'_>,
        context: &Context,
        out: &mut Out<'_>,
        hook: u16,
        info_class: u32,
        extra: u64,
    ) {
        let start = |operation: Operation, out: &mut Out<'_>| {
            payload::write_info(hook, operation, extra, info_class, out);
        };
        self.enter_operation(event, context, out, descriptor(event), start);
    }

    pub(super) fn truncate(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        const FILE_END_OF_FILE_INFORMATION: u32 = 20;
        self.enter_info(
            event,
            context,
            out,
            hook::FILE_SET_INFO,
            FILE_END_OF_FILE_INFORMATION,
            event.u64(SECOND_FIELD),
        );
    }

    pub(super) fn allocate(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        const FILE_ALLOCATION_INFORMATION: u32 = 19;
        self.enter_info(
            event,
            context,
            out,
            hook::FILE_SET_INFO,
            FILE_ALLOCATION_INFORMATION,
            event.u64(SECOND_FIELD),
        );
    }

    /// Handles changes of mode and times.
    pub(super) fn set_basic(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        const FILE_BASIC_INFORMATION: u32 = 4;
        self.enter_info(event, context, out, hook::FILE_SET_INFO, FILE_BASIC_INFORMATION, 0);
    }

    pub(super) fn query(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        const FILE_STAT_INFORMATION: u32 = 68;
        self.enter_info(event, context, out, hook::FILE_QUERY_INFO, FILE_STAT_INFORMATION, 0);
    }

    pub(super) fn delete(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        const FILE_DISPOSITION_INFORMATION: u32 = 13;
        self.enter_info(event, context, out, hook::FILE_DELETE, FILE_DISPOSITION_INFORMATION, 0);
    }

    pub(super) fn rename(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        const FILE_RENAME_INFORMATION: u32 = 10;
        self.enter_info(event, context, out, hook::FILE_RENAME, FILE_RENAME_INFORMATION, 0);
    }

    pub(super) fn enumerate(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        let length = event.u32(SECOND_FIELD);
        let start = |operation: Operation, out: &mut Out<'_>| {
            payload::write_directory(operation, length, out);
        };
        self.enter_operation(event, context, out, descriptor(event), start);
    }

    pub(super) fn exit(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        payload::write_confirmed_names(&mut self.open_files, event.sample.time, out);
        let Some(PendingCall { effect, irps }) = self.calls.by_thread.remove(&event.sample.tid) else {
            return;
        };
        let returned = event.number(FIRST_FIELD);
        let result = u64::try_from(returned).ok();
        let bytes = if matches!(effect, CallEffect::Transfer(_)) { result.unwrap_or(0) } else { 0 };
        if let CallEffect::Open { key, flags, is_written: false, .. } = &effect
            && context.groups.has(Group::FILE_IO_INIT)
        {
            // The call failed before it reached the probe.
            let operation = Operation { irp: irps[0], key: *key, thread: event.sample.tid };
            payload::write_create(operation, *flags, "", out);
        }
        for irp in irps.into_iter().filter(|irp| *irp != 0) {
            payload::write_end(context.groups, irp, bytes, to_ntstatus(returned), out);
        }
        if let Some(result) = result {
            self.apply_effect(event, context, out, effect, result);
        }
    }

    /// Applies the effect of a call that succeeded and returned `result`.
    fn apply_effect(
        &mut self,
        event: &SampleEvent<'_>,
        context: &Context,
        out: &mut Out<'_>,
        effect: CallEffect,
        result: u64,
    ) {
        let (process, time) = (event.sample.pid, event.sample.time);
        let descriptor = u32::try_from(result).unwrap_or(u32::MAX);
        match effect {
            CallEffect::Nothing => {}
            CallEffect::Open { key, flags, path, .. } => {
                self.open_files.add_opened(process, descriptor, key, flags, time, path.as_deref());
            }
            CallEffect::Transfer(advances) => {
                for Advance { key, is_write } in advances.into_iter().flatten() {
                    self.open_files.advance_position(key, is_write, result);
                }
            }
            CallEffect::Seek { key } => self.open_files.set_position(key, result),
            CallEffect::Dup { from, closes_on_exec } => {
                self.close_implicitly(event, context, descriptor, out);
                self.open_files.duplicate_descriptor(process, from, descriptor, closes_on_exec, time);
            }
        }
    }
}

/// Returns the descriptor of a call; `None` for a call with a path instead.
fn descriptor(event: &SampleEvent<'_>) -> Option<u32> {
    event.has(FIRST_FIELD).then(|| event.u32(FIRST_FIELD))
}
