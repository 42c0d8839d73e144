//! When processes began and ended, by whom they were made, and for which user.

use std::collections::HashMap;

use traceweir_decode::schema::Field;
use traceweir_decode::source::Found;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::Record;
use traceweir_format::security::{Principal, Sid};
use traceweir_format::spec::event::class;

/// Beginnings and ends that are kept.
const MAX_TOLD: usize = 1 << 18;

const START: u8 = 1;
const END: u8 = 2;
const RUNDOWN_START: u8 = 3;
const RUNDOWN_END: u8 = 4;

/// The lives of processes.
#[derive(Default)]
pub(super) struct Lives {
    /// When each number was given back, in order of time.
    ends: HashMap<u32, Vec<i64>>,
    /// When it was given, and by whom.
    beginnings: HashMap<u32, Vec<(i64, u32)>>,
    users: HashMap<u32, Vec<(i64, u32)>>,
    count: usize,
}

#[derive(Default)]
struct Told {
    pid: u32,
    parent: u32,
    user: Option<u32>,
}

impl<'p> Visitor<'p> for Told {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let id = || value.as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
        match (&*field.name, value) {
            ("ProcessId", _) => self.pid = id(),
            ("ParentId", _) => self.parent = id(),
            ("UserSID", Value::Sid(bytes)) => self.user = user_of(bytes),
            _ => {}
        }
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, _: &Field) {}
    fn end_struct(&mut self, _: usize, _: &Field) {}
}

fn user_of(sid: &[u8]) -> Option<u32> {
    match Sid::parse(sid).ok()?.principal() {
        Principal::User(uid) => Some(uid),
        Principal::System => Some(0),
        _ => None,
    }
}

impl Lives {
    /// Whether an event tells of a process; as with images, one with a hook.
    pub(super) fn is_informative(record: &Record<'_>) -> bool {
        let opcode = record.descriptor().opcode;
        record.hook().is_some()
            && record.provider() == class::PROCESS
            && matches!(opcode, START | END | RUNDOWN_START | RUNDOWN_END)
    }

    pub(super) fn observe(&mut self, record: &Record<'_>, found: &Found<'_, '_>, walker: &mut Walker) {
        if self.count >= MAX_TOLD {
            return;
        }
        self.count = self.count.saturating_add(1);
        let mut told = Told::default();
        let _ = walker.walk(&found.known.schema, found.payload, record.pointer_size(), &mut told);
        let (time, opcode) = (record.time(), record.descriptor().opcode);
        let since = match opcode {
            START => time,
            _ => self.end_before(told.pid, time).unwrap_or(i64::MIN),
        };
        if let Some(user) = told.user {
            insert(self.users.entry(told.pid).or_default(), (since, user));
        }
        match opcode {
            START => insert(self.beginnings.entry(told.pid).or_default(), (time, told.parent)),
            END => {
                let ends = self.ends.entry(told.pid).or_default();
                ends.insert(ends.partition_point(|end| *end <= time), time);
            }
            _ => {}
        }
    }

    /// When the number was last given back before a time.
    pub(super) fn end_before(&self, pid: u32, time: i64) -> Option<i64> {
        let ends = self.ends.get(&pid)?;
        // What ends at this very time is still there.
        ends.get(ends.partition_point(|end| *end < time).checked_sub(1)?).copied()
    }

    /// When the process of a time began, and who made it.
    pub(super) fn parent(&self, pid: u32, time: i64) -> Option<(i64, u32)> {
        let (began, parent) = last_before(self.beginnings.get(&pid)?, time)?;
        let is_its_own = self.end_before(pid, time).is_none_or(|end| end <= began);
        (is_its_own && parent != pid).then_some((began, parent))
    }

    /// The user of the process of a time.
    pub(super) fn user(&self, pid: u32, time: i64) -> Option<u32> {
        last_before(self.users.get(&pid)?, time).map(|(_, user)| user)
    }
}

fn insert(all: &mut Vec<(i64, u32)>, told: (i64, u32)) {
    let at = all.partition_point(|(time, _)| *time <= told.0);
    if at.checked_sub(1).and_then(|at| all.get(at)) != Some(&told) {
        all.insert(at, told);
    }
}

fn last_before(all: &[(i64, u32)], time: i64) -> Option<(i64, u32)> {
    all.get(all.partition_point(|(at, _)| *at <= time).checked_sub(1)?).copied()
}
