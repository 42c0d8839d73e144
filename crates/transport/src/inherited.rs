//! Closes descriptors that a process inherited through `exec` and does not want.
//!
//! ```text
//!   parent ──fork, exec──▶ daemon      0 1 2   standard streams, which the daemon uses
//!   lock files, pipes, ──▶             3 …     not used by the daemon; while they are open, locks
//!   sockets                                    stay held and pipes never end
//! ```
//!
//! 1. A descriptor that was inherited through `exec` has no close-on-exec flag, or `exec` would
//!    have closed it. The Rust standard library sets the flag on everything that it opens. So the
//!    flag distinguishes inherited descriptors from descriptors that this process opened.
//!
//! A process that opens descriptors without the flag, as C libraries may, must not call
//! [`close_inherited`] while such descriptors are open.

use std::os::fd::RawFd;

/// First descriptor that is not a standard stream.
const FIRST_NON_STANDARD: RawFd = libc::STDERR_FILENO + 1;
/// Upper bound of the descriptors that are tried one by one if `/proc` cannot list them.
const TRIED_DESCRIPTORS: RawFd = 4096;

/// Closes every descriptor above the standard streams that this process inherited through `exec`.
/// Call it at the start of a program.
pub fn close_inherited() {
    for fd in list_open_descriptors() {
        if is_inherited(fd) {
            // SAFETY: the descriptor is open and without the close-on-exec flag, so it was
            // inherited and has no owner here (point 1); it is not a standard stream, which the
            // standard library uses by number.
            unsafe { libc::close(fd) };
        }
    }
}

/// Returns the numbers that may be open descriptors, without standard streams.
fn list_open_descriptors() -> Vec<RawFd> {
    let Ok(listed) = std::fs::read_dir("/proc/self/fd") else {
        return (FIRST_NON_STANDARD..TRIED_DESCRIPTORS).collect();
    };
    let numbers = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(|&fd| fd >= FIRST_NON_STANDARD).collect()
}

fn is_inherited(fd: RawFd) -> bool {
    // SAFETY: `F_GETFD` only reads the flags of a descriptor; for any other number it fails.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn own_descriptors_do_not_count_as_inherited() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(list_open_descriptors().contains(&file.as_raw_fd()));
        assert!(!is_inherited(file.as_raw_fd()));
        assert!(!is_inherited(-1));
        assert!(is_inherited(libc::STDERR_FILENO), "a standard stream has the close-on-exec flag");
        assert!(list_open_descriptors().iter().all(|fd| *fd > libc::STDERR_FILENO));
    }
}
