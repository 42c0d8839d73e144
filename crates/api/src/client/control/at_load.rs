//! A control thread that was started when the library was loaded.

use super::{ControlThread, Start};
use crate::client::callbacks;
use crate::registration::Handle;

impl ControlThread {
    /// Waits for the first registration, if the thread was started before it.
    ///
    /// First makes sure that the other threads of the library run, and that none of them calls
    /// `malloc` from now on: the registering thread may be inside it.
    pub(super) fn wait_for_registration(&self, start: Start) {
        if start == Start::AtRegistration {
            return;
        }
        callbacks::allocate_channel_state();
        // Returns when the callback thread runs.
        let _ = self.callbacks.run(|| ());
        // `wait_for_work` returns when the waking thread rings the bell, so that thread runs, too.
        self.client.wake_control_thread();
        self.wait_for_work();
        self.client.lock().has_started_at_load = true;
        self.client.state_changed.notify_all();
        while Handle::iter_current().next().is_none() && self.client.lock().commands.is_empty() {
            self.wait_for_work();
        }
    }

    /// Marks the registrations whose events sessions may have missed, because they were made before
    /// the threads of the library were started.
    pub(super) fn mark_registrations_before_threads(&mut self, index: usize) {
        let numbers = self.client.lock().registered_before_threads.clone();
        self.peers[index].missed_registrations.extend(numbers);
    }
}
