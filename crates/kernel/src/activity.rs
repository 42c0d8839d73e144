//! The activity of each processor: the thread that it runs, and the interrupt and softirq that it
//! is in, as far as the enabled groups capture context switches and interrupt entries.
//!
//! A processor handles at most one interrupt and one softirq at a time, and an interrupt may
//! interrupt a softirq: two slots for each processor are enough.

/// The activity of all processors.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    cpus: Vec<CpuActivity>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuActivity {
    /// The thread that the processor last switched to, and its priority.
    running: Option<(u32, u8)>,
    pub(crate) interrupt: Option<InterruptEntry>,
    pub(crate) softirq: Option<InterruptEntry>,
}

/// The entry of an interrupt or softirq whose exit has not been seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InterruptEntry {
    pub(crate) kind: InterruptKind,
    /// The number of the interrupt within its kind.
    pub(crate) number: u32,
    pub(crate) time_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterruptKind {
    Device,
    /// An interrupt that belongs to no device, by its index in `interrupt::VECTOR_FUNCTIONS`.
    Vector(usize),
    Softirq,
}

impl Activity {
    /// Returns the activity of a processor; adds a slot for it if necessary.
    pub(crate) fn cpu_mut(&mut self, cpu: u16) -> Option<&mut CpuActivity> {
        let index = usize::from(cpu);
        if self.cpus.len() <= index {
            self.cpus.resize(index.saturating_add(1), CpuActivity::default());
        }
        self.cpus.get_mut(index)
    }

    /// Records the thread that a processor switched to, and its priority.
    pub(crate) fn set_running(&mut self, cpu: u16, thread: u32, priority: u8) {
        if let Some(cpu) = self.cpu_mut(cpu) {
            cpu.running = Some((thread, priority));
        }
    }

    /// Returns the priority of a thread if the processor last switched to it, otherwise 0.
    pub(crate) fn running_priority(&self, cpu: u16, thread: u32) -> u8 {
        let running = self.cpus.get(usize::from(cpu)).and_then(|cpu| cpu.running);
        running.filter(|(running, _)| *running == thread).map_or(0, |(_, priority)| priority)
    }

    /// Returns whether a processor is in a device interrupt.
    pub(crate) fn is_in_device_interrupt(&self, cpu: u16) -> bool {
        let interrupt = self.cpus.get(usize::from(cpu)).and_then(|cpu| cpu.interrupt);
        interrupt.is_some_and(|entry| entry.kind == InterruptKind::Device)
    }

    /// Returns whether a processor is in a softirq.
    pub(crate) fn is_in_softirq(&self, cpu: u16) -> bool {
        self.cpus.get(usize::from(cpu)).is_some_and(|cpu| cpu.softirq.is_some())
    }

    /// Drops the entries of all processors.
    pub(crate) fn clear_entries(&mut self) {
        for cpu in &mut self.cpus {
            (cpu.interrupt, cpu.softirq) = (None, None);
        }
    }

    /// Drops the activity of all processors.
    pub(crate) fn clear(&mut self) {
        self.cpus.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_priority_is_that_of_the_last_switch() {
        let mut activity = Activity::default();
        assert_eq!(activity.running_priority(3, 7), 0);
        activity.set_running(3, 7, 9);
        let priorities = [(3, 7), (3, 8), (0, 7)].map(|(cpu, thread)| activity.running_priority(cpu, thread));
        assert_eq!(priorities, [9, 0, 0]);
    }
}
