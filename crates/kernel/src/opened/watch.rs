//! From when on, and whom, events that are open watch.
//!
//! ```text
//!   change ─▶ rows, tasks: open, silent ──begin──▶ all tell at once ──▶ threads that come otherwise are watched as they are found
//! ```

use std::sync::Arc;

use super::{Opened, Route, open};
use crate::asked::tasks_attr;
use crate::closing::Closing;
use crate::control::Scope;
use crate::perf_ring::Event;
use crate::targets::Targets;

impl Opened {
    /// All that is open tells what happens, from now on; so does what is opened later.
    pub(crate) fn begin(&mut self) {
        self.is_silent = false;
        let rows = self.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
        for event in self.tasks.iter().chain(rows) {
            // An event that cannot be switched on was just opened by the same rights.
            let _ = event.enable();
        }
    }

    /// Nothing that is open reports anything any more, nor what is opened later; it is closed when this is dropped.
    pub(crate) fn end(&mut self) {
        self.is_silent = true;
        let rows = self.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
        for event in self.tasks.iter().chain(rows) {
            // As in `begin`.
            let _ = event.disable();
        }
        self.closing.get_or_insert_with(Closing::begin);
    }

    /// Watches threads that came otherwise than from those that are watched.
    pub(crate) fn look_for_more(&mut self, rings: &[Arc<Event>], is_followed: impl Fn(u32) -> bool) {
        let new = self.targets.look_for_more(is_followed);
        self.watch(&new, rings);
    }

    /// Watches threads: their tasks, and what all rows are about, as far as that is possible.
    fn watch(&mut self, threads: &[i32], rings: &[Arc<Event>]) {
        self.watch_tasks(threads, rings);
        for row in self.rows.values_mut() {
            let opened = open(&mut self.targets, (row.spec, &row.attr), &row.key.members, (threads, rings));
            let Ok((events, members)) = opened else {
                self.targets.leave_out();
                continue;
            };
            let tag = row.key.source.as_ref().map_or(0, |it| it.id);
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

    /// Watches the tasks of threads, where each is watched for itself. One that cannot be watched is left out, and does not keep the others from it.
    pub(super) fn watch_tasks(&mut self, threads: &[i32], rings: &[Arc<Event>]) {
        if self.wanted.scope == Scope::Everything {
            return;
        }
        let what = "tasks of a thread";
        let attr = tasks_attr(&self.wanted);
        let enable = |event: &Event| if self.is_silent { Ok(()) } else { event.enable() };
        for (id, ring) in threads.iter().flat_map(|id| rings.iter().map(move |ring| (*id, ring))) {
            // The events of the rings themselves tell of the one that they belong to.
            if id == Targets::owner(Scope::Own) {
                continue;
            }
            match self.targets.open(&attr, id, ring.cpu(), what) {
                Ok(Some(event)) if event.write_to(ring).and_then(|()| enable(&event)).is_ok() => {
                    self.tasks.push(event);
                }
                // Counted where that is due.
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => self.targets.leave_out(),
            }
        }
    }
}
