//! Enabling and disabling open events, and watching further threads.
//!
//! ```text
//!   change ─▶ rows, tasks: opened, disabled ──begin──▶ all enabled ──▶ further threads are
//!                                                                      watched when found
//! ```

use std::sync::Arc;

use super::{Opened, Route, open};
use crate::asked::tasks_attr;
use crate::closing::Closing;
use crate::control::Scope;
use crate::perf_ring::Event;
use crate::targets::Targets;

impl Opened {
    /// Enables all open events, and from now on also those that are opened later.
    pub(crate) fn begin(&mut self) {
        self.is_silent = false;
        let rows = self.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
        for event in self.tasks.iter().chain(rows) {
            // Not expected to fail: the same credentials have just opened the event.
            let _ = event.enable();
        }
    }

    /// Disables all open events, and those that are opened later. Dropping the table closes them.
    pub(crate) fn end(&mut self) {
        self.is_silent = true;
        let rows = self.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
        for event in self.tasks.iter().chain(rows) {
            // Errors are ignored as in `begin`.
            let _ = event.disable();
        }
        self.closing.get_or_insert_with(Closing::begin);
    }

    /// Watches threads that are not descendants of watched threads.
    pub(crate) fn watch_new_threads(&mut self, rings: &[Arc<Event>], is_followed: impl Fn(u32) -> bool) {
        let new = self.targets.find_new_threads(is_followed);
        self.watch(&new, rings);
    }

    /// Opens the task events and all rows for these threads, as far as possible.
    fn watch(&mut self, threads: &[i32], rings: &[Arc<Event>]) {
        self.watch_tasks(threads, rings);
        for row in self.rows.values_mut() {
            let opened = open(&mut self.targets, (row.spec, &row.attr), &row.key.members, (threads, rings));
            let Ok((events, members)) = opened else {
                self.targets.leave_out();
                continue;
            };
            let tag = row.key.source.as_ref().map_or(0, |source| source.id);
            for (id, event) in &events {
                let (parts, fields) = (row.key.parts, Arc::clone(&row.fields));
                self.routes.insert(*id, Route { spec: row.spec, parts, fields, tag, replaces: None });
                if !self.is_silent {
                    let _ = event.enable();
                }
            }
            row.events.extend(events);
            row._members.extend(members);
        }
    }

    /// Opens the task events of these threads, in captures that watch each thread separately. A
    /// thread that cannot be watched is counted and skipped.
    pub(super) fn watch_tasks(&mut self, threads: &[i32], rings: &[Arc<Event>]) {
        if self.wanted.scope == Scope::Everything {
            return;
        }
        let what = "tasks of a thread";
        let attr = tasks_attr(&self.wanted);
        let enable = |event: &Event| if self.is_silent { Ok(()) } else { event.enable() };
        for (id, ring) in threads.iter().flat_map(|id| rings.iter().map(move |ring| (*id, ring))) {
            // The events of the rings already report the tasks of their owner.
            if id == Targets::owner(Scope::Own) {
                continue;
            }
            match self.targets.open(&attr, id, ring.cpu(), what) {
                Ok(Some(event)) if event.write_to(ring).and_then(|()| enable(&event)).is_ok() => {
                    self.tasks.push(event);
                }
                // `Targets::open` has counted it if necessary.
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => self.targets.leave_out(),
            }
        }
    }
}
