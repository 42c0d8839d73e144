//! NTSTATUS values for results of system calls.
//!
//! Source: Documented ("NTSTATUS Values"). The mapping of errors to the status with the nearest
//! meaning is ours.

/// Status of errors without an entry in [`NTSTATUS_BY_ERRNO`].
const STATUS_UNSUCCESSFUL: u32 = 0xC000_0001;

/// NTSTATUS value of each Linux error.
const NTSTATUS_BY_ERRNO: &[(i32, u32)] = &[
    (libc::ENOENT, 0xC000_0034),       // OBJECT_NAME_NOT_FOUND
    (libc::EACCES, 0xC000_0022),       // ACCESS_DENIED
    (libc::EPERM, 0xC000_0022),        // ACCESS_DENIED
    (libc::EEXIST, 0xC000_0035),       // OBJECT_NAME_COLLISION
    (libc::EBADF, 0xC000_0008),        // INVALID_HANDLE
    (libc::EINVAL, 0xC000_000D),       // INVALID_PARAMETER
    (libc::ENOTDIR, 0xC000_0103),      // NOT_A_DIRECTORY
    (libc::EISDIR, 0xC000_00BA),       // FILE_IS_A_DIRECTORY
    (libc::ENOTEMPTY, 0xC000_0101),    // DIRECTORY_NOT_EMPTY
    (libc::EAGAIN, 0xC000_00D8),       // CANT_WAIT
    (libc::EINTR, 0xC000_0120),        // CANCELLED
    (libc::EIO, 0xC000_0185),          // IO_DEVICE_ERROR
    (libc::ENXIO, 0xC000_000E),        // NO_SUCH_DEVICE
    (libc::ENODEV, 0xC000_000E),       // NO_SUCH_DEVICE
    (libc::ENOMEM, 0xC000_0017),       // NO_MEMORY
    (libc::EFAULT, 0xC000_0005),       // ACCESS_VIOLATION
    (libc::EBUSY, 0x8000_0011),        // DEVICE_BUSY
    (libc::ETXTBSY, 0xC000_0043),      // SHARING_VIOLATION
    (libc::EXDEV, 0xC000_00D4),        // NOT_SAME_DEVICE
    (libc::EMFILE, 0xC000_011F),       // TOO_MANY_OPENED_FILES
    (libc::ENFILE, 0xC000_011F),       // TOO_MANY_OPENED_FILES
    (libc::ENOTTY, 0xC000_0010),       // INVALID_DEVICE_REQUEST
    (libc::ESPIPE, 0xC000_0010),       // INVALID_DEVICE_REQUEST
    (libc::EFBIG, 0xC000_0904),        // FILE_TOO_LARGE
    (libc::ENOSPC, 0xC000_007F),       // DISK_FULL
    (libc::EDQUOT, 0xC000_0044),       // QUOTA_EXCEEDED
    (libc::EROFS, 0xC000_00A2),        // MEDIA_WRITE_PROTECTED
    (libc::EMLINK, 0xC000_0265),       // TOO_MANY_LINKS
    (libc::EPIPE, 0xC000_014B),        // PIPE_BROKEN
    (libc::ENAMETOOLONG, 0xC000_0106), // NAME_TOO_LONG
    (libc::ELOOP, 0xC000_0280),        // REPARSE_POINT_NOT_RESOLVED
    (libc::ENOSYS, 0xC000_0002),       // NOT_IMPLEMENTED
    (libc::EOPNOTSUPP, 0xC000_00BB),   // NOT_SUPPORTED
    (libc::ETIMEDOUT, 0xC000_00B5),    // IO_TIMEOUT
    // Internal to the kernel: a signal interrupted the call, which restarts or fails with EINTR.
    (512, 0xC000_0120), // ERESTARTSYS: CANCELLED
    (513, 0xC000_0120), // ERESTARTNOINTR: CANCELLED
    (514, 0xC000_0120), // ERESTARTNOHAND: CANCELLED
    (516, 0xC000_0120), // ERESTART_RESTARTBLOCK: CANCELLED
];

/// Returns the NTSTATUS for the return value of a system call.
pub(super) fn to_ntstatus(returned: i64) -> u32 {
    // Errors are the values from -4095 to -1.
    if !(-4095..0).contains(&returned) {
        return 0;
    }
    let error = returned.saturating_neg();
    let entry = NTSTATUS_BY_ERRNO.iter().find(|(code, _)| i64::from(*code) == error);
    entry.map_or(STATUS_UNSUCCESSFUL, |(_, status)| *status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_map_to_statuses_and_results_to_success() {
        assert_eq!(to_ntstatus(0), 0);
        assert_eq!(to_ntstatus(i64::MAX), 0);
        assert_eq!(to_ntstatus(i64::MIN), 0);
        assert_eq!(to_ntstatus(i64::from(-libc::ENOENT)), 0xC000_0034);
        assert_eq!(to_ntstatus(i64::from(-libc::EACCES)), 0xC000_0022);
        assert_eq!(to_ntstatus(-4000), STATUS_UNSUCCESSFUL);
    }
}
