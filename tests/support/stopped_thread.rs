//! Stops one thread of a child process with `ptrace`, while its other threads run.

use std::io;

/// A thread of a child process that does not run until this value is dropped.
pub(crate) struct StoppedThread(libc::pid_t);

impl StoppedThread {
    /// Stops the thread. Returns an error if this process may not use `ptrace`.
    pub(crate) fn stop(thread: libc::pid_t) -> io::Result<Self> {
        ptrace_request(libc::PTRACE_SEIZE, thread)?;
        let seized = Self(thread);
        ptrace_request(libc::PTRACE_INTERRUPT, thread)?;
        let status = wait_for_thread(thread)?;
        assert!(libc::WIFSTOPPED(status), "the thread did not stop: {status:#x}");
        Ok(seized)
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        if ptrace_request(libc::PTRACE_DETACH, self.0).is_err() {
            // The thread has ended. Its process ends only after this process has waited for the
            // thread.
            let _ = wait_for_thread(self.0);
        }
    }
}

/// Makes a request of `ptrace` that takes neither an address nor data.
fn ptrace_request(request: libc::c_uint, thread: libc::pid_t) -> io::Result<()> {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: these requests read and write no memory.
    let result = unsafe { libc::ptrace(request, thread, nothing, nothing) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits until a thread stops or ends, and returns its status.
fn wait_for_thread(thread: libc::pid_t) -> io::Result<libc::c_int> {
    let mut status = 0;
    // SAFETY: the status is written to a variable of this function.
    let waited_thread = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
    if waited_thread == thread { Ok(status) } else { Err(io::Error::last_os_error()) }
}
