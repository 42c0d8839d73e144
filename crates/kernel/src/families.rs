//! Passes records to all families of a capture in the right order.

use traceweir_format::kernel::hook;
use traceweir_format::logfile::group_masks;

use crate::family::config::ConfigFamily;
use crate::family::disk::DiskFamily;
use crate::family::file::{self, FileFamily};
use crate::family::image::ImageFamily;
use crate::family::interrupt::{self, InterruptFamily};
use crate::family::memory::MemoryFamily;
use crate::family::network::NetworkFamily;
use crate::family::process::{self, ProcessFamily};
use crate::family::profile::ProfileFamily;
use crate::family::schedule::ScheduleFamily;
use crate::family::syscall::{self, SystemCallFamily};
use crate::family::{Context, EventFamily, Rundown};
use crate::groups::{Group, Groups};
use crate::kallsyms;
use crate::out::Out;
use crate::record::{Mmap, Sideband, SidebandRecord};
use crate::scope::ProcessScope;
use crate::settings::CaptureSettings;
use crate::spec::{PerfEventSpec, SampleEvent};
use crate::tasks::TaskIds;

/// Declares the families of a capture. Their order is that in which they handle records and write
/// their rundown: the process family updates the tasks that the following ones use.
macro_rules! families {
    ($($field:ident: $family:ident,)*) => {
        /// All families, and the context that they share.
        #[derive(Debug, Default)]
        pub(crate) struct Families {
            pub(crate) context: Context,
            $(pub(crate) $field: $family,)*
        }

        #[expect(clippy::enum_variant_names, reason = "the variants have the names of the types")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        enum FamilyId {
            $($family,)*
        }

        const FAMILY_COUNT: usize = [$(FamilyId::$family,)*].len();

        /// Returns the perf events of all families.
        pub(crate) fn specs() -> impl Iterator<Item = (RowId, &'static PerfEventSpec)> {
            std::iter::empty()$(.chain(family_specs::<$family>(FamilyId::$family)))*
        }

        impl Families {
            /// Returns all families and, separately, the context that they share.
            fn split_context(&mut self) -> ([&mut dyn EventFamily; FAMILY_COUNT], &mut Context) {
                ([$(&mut self.$field,)*], &mut self.context)
            }

            /// Passes a sample to the handler of its row.
            pub(crate) fn on_sample(&mut self, row: RowId, event: &SampleEvent<'_>, out: &mut Out<'_>) {
                let ids = TaskIds { pid: event.sample.pid, tid: event.sample.tid };
                out.is_in_scope = self.context.is_task_in_scope(ids);
                match row.family {
                    $(FamilyId::$family if !out.is_in_scope && !self.$field.handles_all_processes() => {})*
                    $(FamilyId::$family => {
                        if let Some(row) = $family::rows().get(row.index) {
                            (row.on_sample)(&mut self.$field, event, &mut self.context, out);
                        }
                    })*
                }
            }
        }
    };
}

families! {
    config: ConfigFamily,
    processes: ProcessFamily,
    images: ImageFamily,
    schedule: ScheduleFamily,
    interrupts: InterruptFamily,
    system_calls: SystemCallFamily,
    memory: MemoryFamily,
    disks: DiskFamily,
    files: FileFamily,
    network: NetworkFamily,
    profile: ProfileFamily,
}

/// Identifies a row: its family, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowId {
    family: FamilyId,
    index: usize,
}

fn family_specs<F: EventFamily>(family: FamilyId) -> impl Iterator<Item = (RowId, &'static PerfEventSpec)> {
    let rows = F::rows().iter().enumerate();
    rows.map(move |(index, row)| (RowId { family, index }, &row.spec))
}

/// Returns the task that a side-band record is about: the new one in a fork, otherwise the one that
/// ended, changed or was switched.
fn find_subject(record: &SidebandRecord<'_>) -> TaskIds {
    match record.body {
        Sideband::Mmap(Mmap { pid, tid, .. })
        | Sideband::Comm { pid, tid, .. }
        | Sideband::Fork { pid, tid, .. }
        | Sideband::Exit { pid, tid, .. } => TaskIds { pid, tid },
        Sideband::Lost(_) | Sideband::Switch { .. } => TaskIds { pid: record.pid, tid: record.tid },
    }
}

/// Reads the kernel's symbols, if these groups need them. Runs before the first event of the groups
/// is opened: reading takes long, and their records would fill the rings meanwhile.
pub(crate) fn read_symbols(groups: Groups) {
    if groups.has_any(interrupt::ROUTINE_GROUPS) || groups.has(Group::SYSTEMCALL) {
        kallsyms::read_once(|name| syscall::is_entry_function(name) || interrupt::is_routine(name));
    }
}

/// Groups whose events begin with a rundown when they are enabled. The rundown shows the state
/// before the unread records. So if an unread record reports the end of a process, image or file,
/// the end is written even if it came before the groups were enabled.
const RUNDOWN_GROUPS: [&[Group]; 3] = [process::GROUPS, &[Group::IMAGE_LOAD], file::NAME_GROUPS];

impl Families {
    /// Creates the families of a capture. Must run before the rings of the capture are opened: a
    /// task that started before this call counts as one whose start was not recorded.
    pub(crate) fn new(settings: &CaptureSettings) -> Self {
        let scope = ProcessScope::new(&settings.process_trees);
        let context =
            Context { groups: settings.groups, settings: settings.clone(), scope, ..Context::default() };
        let mut families = Self { context, ..Self::default() };
        families.images.prepare_kernel_images(&families.context);
        families.update_exec_capture();
        families
    }

    /// Applies new settings to the records that are handled from now on.
    pub(crate) fn apply_settings(&mut self, settings: &CaptureSettings) {
        self.context.groups = settings.groups;
        self.context.settings.clone_from(settings);
        self.update_exec_capture();
    }

    fn update_exec_capture(&mut self) {
        self.context.tasks.set_exec_capture(self.context.groups.has_any(process::EXEC_GROUPS));
    }

    pub(crate) fn on_sideband(&mut self, record: &SidebandRecord<'_>, out: &mut Out<'_>) {
        if let (Sideband::Fork { pid, ppid, tid, .. }, Some(scope)) = (&record.body, &mut self.context.scope)
        {
            scope.note_fork(*ppid, TaskIds { pid: *pid, tid: *tid });
        }
        let ids = find_subject(record);
        let is_in_scope = self.context.is_task_in_scope(ids);
        out.is_in_scope = is_in_scope;
        // Images are unloaded before the end of their process is written, and loaded after its
        // start.
        if is_in_scope {
            self.images.unload_ended_program(record, &self.context, out);
        }
        let (families, context) = self.split_context();
        for family in families {
            if is_in_scope || family.handles_all_processes() {
                family.on_sideband(record, context, out);
            }
        }
        if let (Sideband::Exit { .. }, Some(scope)) = (&record.body, &mut context.scope) {
            scope.note_exit(ids, !context.tasks.has_process(ids.pid));
        }
    }

    /// Drops state that lost records may have made wrong.
    pub(crate) fn forget_after_loss(&mut self) {
        let (families, context) = self.split_context();
        for family in families {
            family.forget_after_loss();
        }
        context.activity.clear();
        if let Some(scope) = &mut context.scope {
            scope.note_loss();
        }
    }

    /// Writes the rundown of the machine, processes, threads, images, open files and sampling
    /// intervals, and the event that ends it.
    pub(crate) fn run_down(&mut self, when: Rundown, out: &mut Out<'_>) {
        let (families, context) = self.split_context();
        for family in families {
            family.run_down(when, context, out);
        }
        let mut payload = out.new_payload();
        match when {
            Rundown::Start => out.write_perfinfo(hook::RUNDOWN_COMPLETE, 2, payload),
            Rundown::End => {
                payload.extend_from_slice(&group_masks(&context.groups.0));
                out.write_perfinfo(hook::END_GROUP_MASKS, 2, payload);
            }
        }
    }

    /// Writes the rundown of the groups that have been enabled since `before`.
    pub(crate) fn run_down_new_groups(&mut self, before: &Groups, out: &mut Out<'_>) {
        let context = &mut self.context;
        let enabled = context.groups;
        // The groups that were enabled before have had their rundown.
        context.groups = enabled.difference(before);
        if context.groups.has_any(process::GROUPS) {
            self.processes.run_down(Rundown::Start, context, out);
        }
        self.images.run_down(Rundown::Start, context, out);
        if !before.has_any(file::NAME_GROUPS) {
            self.files.run_down(Rundown::Start, context, out);
        }
        context.groups = enabled;
    }

    /// Returns the groups that apply to records written before the settings changed: the groups
    /// enabled `before`, and the new groups of [`RUNDOWN_GROUPS`].
    pub(crate) fn groups_until_change(&self, before: Groups) -> Groups {
        let enabled = &self.context.groups;
        RUNDOWN_GROUPS.iter().fold(before, |set, groups| set.with_enabled(enabled, groups))
    }

    /// Handles a change of groups, intervals or sources since the last poll.
    pub(crate) fn on_settings_change(&mut self, out: &mut Out<'_>) {
        let (families, context) = self.split_context();
        for family in families {
            family.on_settings_change(context, out);
        }
    }

    /// Begins a poll: receives exit statuses and the arguments of execs, and prepares all families.
    pub(crate) fn begin_poll(&mut self) {
        self.context.tasks.poll();
        if let Some(scope) = &mut self.context.scope {
            scope.recover_from_loss();
        }
        let (families, context) = self.split_context();
        for family in families {
            family.begin_poll(context);
        }
    }

    /// Finishes a poll: writes the events that had to wait until all rings were read.
    pub(crate) fn finish_poll(&mut self, out: &mut Out<'_>) {
        self.processes.finish_poll(&mut self.context, out);
    }
}

#[cfg(test)]
mod scope_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::{InterruptEntry, InterruptKind};

    #[test]
    fn lost_records_drop_running_threads_and_interrupts() {
        let mut families = Families::default();
        let entry = Some(InterruptEntry { kind: InterruptKind::Device, number: 36, time_ns: 1 });
        families.context.activity.set_running(1, 7, 9);
        let cpu = families.context.activity.cpu_mut(1).expect("processor 1 has no slot");
        (cpu.interrupt, cpu.softirq) = (entry, entry);
        let state = |families: &Families| {
            let activity = &families.context.activity;
            (activity.running_priority(1, 7), activity.is_in_device_interrupt(1), activity.is_in_softirq(1))
        };
        assert_eq!(state(&families), (9, true, true));
        families.forget_after_loss();
        assert_eq!(state(&families), (0, false, false));
    }
}
