//! Starts, ends, parents and users of processes.

use std::collections::HashMap;

use traceweir_decode::schema::Field;
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::Record;
use traceweir_format::kernel::hook::{self, type_of};
use traceweir_format::security::{Principal, Sid};
use traceweir_format::spec::event::class;

/// Maximum number of process events to store.
const MAX_PROCESS_EVENTS: usize = 1 << 18;

const PROCESS_START: u8 = type_of(hook::PROCESS_START);
const PROCESS_END: u8 = type_of(hook::PROCESS_END);
const RUNDOWN_START: u8 = type_of(hook::PROCESS_DC_START);
const RUNDOWN_END: u8 = type_of(hook::PROCESS_DC_END);

/// Starts, ends, parents and users of processes by pid.
#[derive(Default)]
pub(super) struct ProcessLifetimes {
    /// Times at which each pid was released, in ascending order.
    ends: HashMap<u32, Vec<i64>>,
    /// Times at which each pid was assigned, with the parent.
    starts: HashMap<u32, Vec<(i64, u32)>>,
    /// Users of each pid, with the time from which each is valid.
    users: HashMap<u32, Vec<(i64, u32)>>,
    count: usize,
    /// Traces that share the limit, or 0.
    pub(super) traces: usize,
}

#[derive(Default)]
struct ProcessFields {
    pid: u32,
    parent: u32,
    user: Option<u32>,
}

impl<'p> Visitor<'p> for ProcessFields {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let to_id = || value.as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
        match (&*field.name, value) {
            ("ProcessId", _) => self.pid = to_id(),
            ("ParentId", _) => self.parent = to_id(),
            ("UserSID", Value::Sid(bytes)) => self.user = parse_uid(bytes),
            _ => {}
        }
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, _: &Field) {}
    fn end_struct(&mut self, _: usize, _: &Field) {}
}

fn parse_uid(sid: &[u8]) -> Option<u32> {
    match Sid::parse(sid).ok()?.principal() {
        Principal::User(uid) => Some(uid),
        Principal::System => Some(0),
        _ => None,
    }
}

impl ProcessLifetimes {
    /// Returns whether an event is about a process; as for images, the event must have a hook.
    pub(super) fn is_informative(record: &Record<'_>) -> bool {
        let opcode = record.descriptor().opcode;
        record.hook().is_some()
            && record.provider() == class::PROCESS
            && matches!(opcode, PROCESS_START | PROCESS_END | RUNDOWN_START | RUNDOWN_END)
    }

    pub(super) fn observe(
        &mut self,
        record: &Record<'_>,
        schema_match: &SchemaMatch<'_, '_>,
        walker: &mut Walker,
    ) {
        if self.count >= MAX_PROCESS_EVENTS / self.traces.max(1) {
            return;
        }
        self.count = self.count.saturating_add(1);
        let mut fields = ProcessFields::default();
        let _ = walker.walk(
            &schema_match.prepared.schema,
            schema_match.payload,
            record.pointer_size(),
            &mut fields,
        );
        let (time, opcode) = (record.time(), record.descriptor().opcode);
        let since = match opcode {
            PROCESS_START => time,
            _ => self.end_before(fields.pid, time).unwrap_or(i64::MIN),
        };
        if let Some(user) = fields.user {
            insert_by_time(self.users.entry(fields.pid).or_default(), (since, user));
        }
        match opcode {
            PROCESS_START => {
                insert_by_time(self.starts.entry(fields.pid).or_default(), (time, fields.parent))
            }
            PROCESS_END => {
                let ends = self.ends.entry(fields.pid).or_default();
                ends.insert(ends.partition_point(|end| *end <= time), time);
            }
            _ => {}
        }
    }

    /// Returns when a pid was last released before a time.
    pub(super) fn end_before(&self, pid: u32, time: i64) -> Option<i64> {
        let ends = self.ends.get(&pid)?;
        // A process that ends at exactly this time still exists.
        ends.get(ends.partition_point(|end| *end < time).checked_sub(1)?).copied()
    }

    /// Returns the start time and the parent of the process that had a pid at a time.
    pub(super) fn find_parent(&self, pid: u32, time: i64) -> Option<(i64, u32)> {
        let (start, parent) = find_last_up_to(self.starts.get(&pid)?, time)?;
        let is_same_process = self.end_before(pid, time).is_none_or(|end| end <= start);
        (is_same_process && parent != pid).then_some((start, parent))
    }

    /// Returns the user of the process that had a pid at a time.
    pub(super) fn find_user(&self, pid: u32, time: i64) -> Option<u32> {
        find_last_up_to(self.users.get(&pid)?, time).map(|(_, user)| user)
    }
}

fn insert_by_time(entries: &mut Vec<(i64, u32)>, entry: (i64, u32)) {
    let index = entries.partition_point(|(time, _)| *time <= entry.0);
    if index.checked_sub(1).and_then(|previous| entries.get(previous)) != Some(&entry) {
        entries.insert(index, entry);
    }
}

fn find_last_up_to(entries: &[(i64, u32)], time: i64) -> Option<(i64, u32)> {
    entries.get(entries.partition_point(|(start, _)| *start <= time).checked_sub(1)?).copied()
}
