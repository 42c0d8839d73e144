//! Begins and ends events, and writes the names of processes and threads before their first event.

use anyhow::Result;

use super::{ChromeWriter, Ids, NO_PROCESS_PID, OUTPUT_BYTES};
use crate::activity::{ActivityTables, FieldValue, ProcessIndex, ThreadIndex};
use crate::json::{push_members, push_microseconds, push_text};

/// The most names of processors, disks and the like.
const MAX_SINGLE_NAMES: usize = 1 << 16;

impl ChromeWriter<'_> {
    /// Begins an event: phase, name, category, ids and time.
    pub(super) fn begin(&mut self, phase: &str, name: &str, category: &str, (pid, tid): Ids, at_ns: i64) {
        if self.written > 0 {
            self.buffer.push(b',');
        }
        self.buffer.extend_from_slice(b"\n{\"ph\":\"");
        self.buffer.extend_from_slice(phase.as_bytes());
        self.buffer.extend_from_slice(b"\",\"name\":");
        push_text(name, &mut self.buffer);
        if !category.is_empty() {
            self.buffer.extend_from_slice(b",\"cat\":");
            push_text(category, &mut self.buffer);
        }
        for (key, id) in [("pid", pid), ("tid", tid)] {
            self.buffer.extend_from_slice(format!(",\"{key}\":{id}").as_bytes());
        }
        self.buffer.extend_from_slice(b",\"ts\":");
        push_microseconds(at_ns, &mut self.buffer);
    }

    pub(super) fn end(&mut self) -> Result<()> {
        self.buffer.push(b'}');
        self.written = self.written.saturating_add(1);
        self.write_if_full()
    }

    pub(super) fn write_if_full(&mut self) -> Result<()> {
        if self.buffer.len() >= OUTPUT_BYTES {
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    pub(super) fn push_id(&mut self, id: u64) {
        self.buffer.extend_from_slice(format!(",\"id\":\"{id:#x}\"").as_bytes());
    }

    /// Appends numbers as arguments; `None` is left out.
    pub(super) fn push_numbers(&mut self, values: &[(&str, Option<u64>)]) {
        self.buffer.extend_from_slice(b",\"args\":");
        let values: Vec<(&str, FieldValue)> = values
            .iter()
            .filter_map(|(name, value)| Some((*name, FieldValue::Unsigned((*value)?))))
            .collect();
        push_members(values.iter().map(|(name, value)| (*name, value)), &mut self.buffer);
    }

    /// Writes the name of a process or thread.
    pub(super) fn write_name(&mut self, kind: &str, ids: Ids, name: &str) -> Result<()> {
        self.begin("M", kind, "", ids, 0);
        self.buffer.extend_from_slice(b",\"args\":{\"name\":");
        push_text(name, &mut self.buffer);
        self.buffer.push(b'}');
        self.end()
    }

    /// Writes the names of a process and a thread that stand for something else.
    pub(super) fn name_single(&mut self, pid: u32, tid: u32, process: &str, thread: &str) -> Result<()> {
        if self.named_ids.len() >= MAX_SINGLE_NAMES || !self.named_ids.insert((pid, tid)) {
            return Ok(());
        }
        self.write_name("process_name", (pid, tid), process)?;
        self.write_name("thread_name", (pid, tid), thread)
    }

    /// Returns the ids of a process, and writes its name before its first event.
    pub(super) fn process_ids(
        &mut self,
        tables: &ActivityTables,
        process: Option<ProcessIndex>,
    ) -> Result<Ids> {
        let Some((index, process)) = process.and_then(|index| Some((index, tables.lives.process(index)?)))
        else {
            self.name_single(NO_PROCESS_PID, 0, "(no process)", "events")?;
            return Ok((NO_PROCESS_PID, 0));
        };
        let pid = ActivityTables::output_id(process.machine, process.pid);
        if self.named_processes.insert(index) {
            if let Some(name) = &process.name {
                self.write_name("process_name", (pid, pid), name)?;
            }
            if let Some(command_line) = &process.command_line {
                self.begin("M", "process_labels", "", (pid, pid), 0);
                self.buffer.extend_from_slice(b",\"args\":{\"labels\":");
                push_text(command_line, &mut self.buffer);
                self.buffer.push(b'}');
                self.end()?;
            }
        }
        Ok((pid, pid))
    }

    /// Returns the ids of a thread, and writes the names of process and thread before its first event.
    pub(super) fn thread_ids(&mut self, tables: &ActivityTables, thread: Option<ThreadIndex>) -> Result<Ids> {
        let known = thread.and_then(|index| Some((index, tables.lives.thread(index)?)));
        let Some((index, thread)) = known else { return self.process_ids(tables, None) };
        let (pid, _) = self.process_ids(tables, thread.process)?;
        let ids = (pid, ActivityTables::output_id(thread.machine, thread.tid));
        if let Some(name) = thread.name.as_ref().filter(|_| self.named_threads.insert(index)) {
            self.write_name("thread_name", ids, name)?;
        }
        Ok(ids)
    }
}
