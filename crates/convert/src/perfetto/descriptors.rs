//! Descriptions: the clock, the processes and threads, and the tracks of events.

use anyhow::Result;

use super::fields::{clock, descriptor, packet, process_tree};
use super::tracks::{TrackKey, TrackUuid};
use super::writer::PerfettoWriter;
use crate::activity::{ActivityTables, ProcessIndex, ThreadIndex};

/// The most entries of one packet with the process tree.
const MAX_TREE_ENTRIES: usize = 1 << 12;

impl PerfettoWriter<'_> {
    /// Writes the clock snapshot, and the processes and threads that the traces name.
    pub(super) fn write_start(&mut self, tables: &ActivityTables) -> Result<u64> {
        let unix_ns = u64::try_from(tables.start_unix_ns()).unwrap_or(0);
        let boot_ns = tables.boot_to_start_ns.and_then(|ns| u64::try_from(ns).ok());
        let start_ns = boot_ns.unwrap_or(unix_ns);
        self.start_ns = Some(start_ns);
        self.packet.put_u64(packet::TIMESTAMP, start_ns);
        self.packet.put_message(packet::CLOCK_SNAPSHOT, |snapshot| {
            for (id, time) in
                [(clock::BOOTTIME, start_ns), (clock::MONOTONIC, start_ns), (clock::REALTIME, unix_ns)]
            {
                snapshot.put_message(clock::CLOCKS, |message| {
                    message.put_u64(clock::CLOCK_ID, id).put_u64(clock::CLOCK_TIMESTAMP, time);
                });
            }
            snapshot.put_u64(clock::PRIMARY_TRACE_CLOCK, clock::BOOTTIME);
        });
        self.end_packet()?;
        let lives = &tables.lives;
        let exists = |start_ns: Option<i64>| start_ns.is_none();
        let processes: Vec<ProcessIndex> = (0..)
            .zip(lives.processes())
            .filter(|(_, process)| exists(process.life.start_ns))
            .map(|(index, _)| ProcessIndex(index))
            .collect();
        let threads: Vec<ThreadIndex> = (0..)
            .zip(lives.threads())
            .filter(|(_, thread)| exists(thread.life.start_ns))
            .map(|(index, _)| ThreadIndex(index))
            .collect();
        for part in processes.chunks(MAX_TREE_ENTRIES) {
            self.write_tree(tables, part, &[])?;
        }
        for part in threads.chunks(MAX_TREE_ENTRIES) {
            self.write_tree(tables, &[], part)?;
        }
        Ok(start_ns)
    }

    pub(super) fn write_tree(
        &mut self,
        tables: &ActivityTables,
        processes: &[ProcessIndex],
        threads: &[ThreadIndex],
    ) -> Result<()> {
        let lives = &tables.lives;
        let start_ns = self.start_ns.unwrap_or(0);
        self.packet.put_u64(packet::TIMESTAMP, start_ns);
        self.packet.put_message(packet::PROCESS_TREE, |tree| {
            for process in processes.iter().filter_map(|index| lives.process(*index)) {
                tree.put_message(process_tree::PROCESSES, |message| {
                    let output_id = |pid| u64::from(ActivityTables::output_id(process.machine, pid));
                    message.put_u64(process_tree::PID, output_id(process.pid));
                    if let Some(parent) = process.parent_pid {
                        message.put_u64(process_tree::PPID, output_id(parent));
                    }
                    for text in [&process.name, &process.command_line].into_iter().flatten() {
                        message.put_text(process_tree::CMDLINE, text);
                    }
                });
            }
            for (index, thread) in threads.iter().filter_map(|index| Some((*index, lives.thread(*index)?))) {
                let (Some(pid), Some(tid)) = tables.output_ids(Some(index)) else { continue };
                tree.put_message(process_tree::THREADS, |message| {
                    message.put_u64(process_tree::TID, tid.into()).put_u64(process_tree::TGID, pid.into());
                    if let Some(name) = &thread.name {
                        message.put_text(process_tree::THREAD_NAME, name);
                    }
                });
            }
        });
        self.end_packet()
    }

    pub(super) fn process_track(
        &mut self,
        tables: &ActivityTables,
        index: ProcessIndex,
    ) -> Result<TrackUuid> {
        let uuid = TrackUuid::of_process(index);
        let Some(process) = tables.lives.process(index).filter(|_| self.tracks.add_process(index)) else {
            return Ok(uuid);
        };
        let pid = ActivityTables::output_id(process.machine, process.pid);
        self.packet.put_message(packet::TRACK_DESCRIPTOR, |message| {
            message.put_u64(descriptor::UUID, uuid.0);
            message.put_message(descriptor::PROCESS, |message| {
                message.put_u64(descriptor::PROCESS_PID, pid.into());
                if let Some(command_line) = &process.command_line {
                    message.put_text(descriptor::PROCESS_CMDLINE, command_line);
                }
                if let Some(name) = &process.name {
                    message.put_text(descriptor::PROCESS_NAME, name);
                }
            });
        });
        self.end_packet()?;
        Ok(uuid)
    }

    pub(super) fn thread_track(
        &mut self,
        tables: &ActivityTables,
        thread: Option<ThreadIndex>,
    ) -> Result<TrackUuid> {
        let known = thread.and_then(|index| Some((index, tables.lives.thread(index)?)));
        let Some((index, thread)) = known else {
            return self.find_track(tables, &TrackKey::Named("No thread"), "No thread");
        };
        let uuid = TrackUuid::of_thread(index);
        if !self.tracks.add_thread(index) {
            return Ok(uuid);
        }
        let tid = ActivityTables::output_id(thread.machine, thread.tid);
        let parent = match thread.process {
            Some(process) => Some((self.process_track(tables, process)?, tables.output_ids(Some(index)).0)),
            None => None,
        };
        self.packet.put_message(packet::TRACK_DESCRIPTOR, |message| {
            message.put_u64(descriptor::UUID, uuid.0);
            match parent {
                Some((parent, pid)) => {
                    message.put_u64(descriptor::PARENT_UUID, parent.0);
                    message.put_message(descriptor::THREAD, |message| {
                        message.put_u64(descriptor::THREAD_PID, pid.unwrap_or(0).into());
                        message.put_u64(descriptor::THREAD_TID, tid.into());
                        if let Some(name) = &thread.name {
                            message.put_text(descriptor::THREAD_NAME, name);
                        }
                    });
                }
                // A thread descriptor needs a process.
                None => {
                    message.put_text(descriptor::NAME, &format!("Thread {tid}"));
                }
            }
        });
        self.end_packet()?;
        Ok(uuid)
    }

    /// Returns the track of a key, and describes it if it is new.
    pub(super) fn find_track(
        &mut self,
        tables: &ActivityTables,
        key: &TrackKey,
        name: &str,
    ) -> Result<TrackUuid> {
        let (uuid, is_new) = self.tracks.find_or_add(key);
        if !is_new {
            return Ok(uuid);
        }
        let parent = match key.process() {
            Some(process) => Some(self.process_track(tables, process)?),
            None => None,
        };
        self.packet.put_message(packet::TRACK_DESCRIPTOR, |message| {
            message.put_u64(descriptor::UUID, uuid.0).put_text(descriptor::NAME, name);
            if let Some(parent) = parent {
                message.put_u64(descriptor::PARENT_UUID, parent.0);
            }
            if matches!(key, TrackKey::Counter { .. }) {
                message.put_message(descriptor::COUNTER, |message| {
                    if name.ends_with(" bytes") {
                        message.put_u64(descriptor::COUNTER_UNIT, descriptor::UNIT_BYTES);
                    }
                });
            }
        });
        self.end_packet()?;
        Ok(uuid)
    }
}
