//! Rules for status codes, and for their mapping from system errors. `rule.rs` explains the rows.

use traceweir::Status;
use traceweir_transport::error::status_of;

use crate::helpers::Fixture;
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("api 5", P, "each status has its name and its text", statuses_have_names_and_texts),
    rule!("api 5", P, "texts end without a full stop and have one line", status_texts_have_one_line),
    rule!("api 5.1", P, "each errno has its status", system_errors_map_to_statuses),
];

/// Code, name and text of every status that the contract lists.
const ALL_STATUSES: &[(u32, &str, &str)] = &[
    (0, "ERROR_SUCCESS", "completed"),
    (1, "ERROR_INVALID_FUNCTION", "operation not valid in this state"),
    (2, "ERROR_FILE_NOT_FOUND", "no such file"),
    (3, "ERROR_PATH_NOT_FOUND", "no such directory"),
    (5, "ERROR_ACCESS_DENIED", "permission refused"),
    (6, "ERROR_INVALID_HANDLE", "handle does not name an object"),
    (8, "ERROR_NOT_ENOUGH_MEMORY", "out of memory or of trace buffers"),
    (14, "ERROR_OUTOFMEMORY", "allocation failed"),
    (24, "ERROR_BAD_LENGTH", "size field is wrong"),
    (32, "ERROR_SHARING_VIOLATION", "file is in use"),
    (50, "ERROR_NOT_SUPPORTED", "request not supported"),
    (87, "ERROR_INVALID_PARAMETER", "parameter value is wrong"),
    (112, "ERROR_DISK_FULL", "not enough disk space"),
    (120, "ERROR_CALL_NOT_IMPLEMENTED", "not implemented here"),
    (122, "ERROR_INSUFFICIENT_BUFFER", "output buffer too small"),
    (127, "ERROR_PROC_NOT_FOUND", "entry point missing"),
    (161, "ERROR_BAD_PATHNAME", "log-file path not usable"),
    (170, "ERROR_BUSY", "object in use"),
    (183, "ERROR_ALREADY_EXISTS", "already exists"),
    (186, "ERROR_INVALID_FLAG_NUMBER", "header flags are wrong"),
    (234, "ERROR_MORE_DATA", "more data than fits"),
    (534, "ERROR_ARITHMETIC_OVERFLOW", "value out of range"),
    (998, "ERROR_NOACCESS", "callback faulted"),
    (1004, "ERROR_INVALID_FLAGS", "flags are wrong"),
    (1168, "ERROR_NOT_FOUND", "item not found"),
    (1223, "ERROR_CANCELLED", "cancelled by the caller"),
    (1314, "ERROR_PRIVILEGE_NOT_HELD", "privilege missing"),
    (1392, "ERROR_FILE_CORRUPT", "file content is damaged"),
    (1450, "ERROR_NO_SYSTEM_RESOURCES", "tracing resources exhausted"),
    (1460, "ERROR_TIMEOUT", "timed out"),
    (1465, "ERROR_XML_PARSE_ERROR", "manifest is not valid"),
    (1502, "ERROR_LOG_FILE_FULL", "log file is full"),
    (1784, "ERROR_INVALID_USER_BUFFER", "caller buffer not usable"),
    (1901, "ERROR_INVALID_TIME", "time range is wrong"),
    (2402, "ERROR_ACTIVE_CONNECTIONS", "session is already stopping"),
    (4200, "ERROR_WMI_GUID_NOT_FOUND", "GUID is not known"),
    (4201, "ERROR_WMI_INSTANCE_NOT_FOUND", "session is not running"),
    (4306, "ERROR_EMPTY", "nothing is defined"),
    (5007, "ERROR_RESOURCE_NOT_FOUND", "no event metadata"),
    (7007, "ERROR_CTX_CLOSE_PENDING", "close accepted, finishing"),
    (1117, "ERROR_IO_DEVICE", "input/output error"),
    (4208, "ERROR_WMI_SERVER_UNAVAILABLE", "decoding service unavailable"),
    (15003, "ERROR_EVT_EVENT_TEMPLATE_NOT_FOUND", "event has no template"),
    (15005, "ERROR_EVT_INVALID_EVENT_DATA", "payload does not fit the schema"),
    (15100, "ERROR_MUI_FILE_NOT_FOUND", "localized strings missing"),
];

fn statuses_have_names_and_texts(_: &Fixture) {
    for (code, name, text) in ALL_STATUSES {
        assert_eq!((Status(*code).name(), Status(*code).text()), (Some(*name), Some(*text)), "status {code}");
    }
}

fn status_texts_have_one_line(_: &Fixture) {
    for text in (0..20_000).filter_map(|code| Status(code).text()) {
        assert!(!text.is_empty() && !text.ends_with('.') && !text.contains('\n'), "{text:?}");
    }
}

fn system_errors_map_to_statuses(_: &Fixture) {
    for (errors, status) in [
        (&[libc::EPERM, libc::EACCES][..], 5),
        (&[libc::ENOENT], 2),
        (&[libc::ENOMEM], 8),
        (&[libc::ENOSPC, libc::EDQUOT], 112),
        (&[libc::EEXIST], 183),
        (&[libc::EBUSY, libc::ETXTBSY], 32),
        (&[libc::EINVAL], 87),
        (&[libc::ENOSYS, libc::EOPNOTSUPP, libc::ENODEV, libc::ENXIO], 50),
        (&[libc::EMFILE, libc::ENFILE, libc::ENOBUFS], 1450),
        (&[libc::ETIMEDOUT], 1460),
        (&[libc::ENAMETOOLONG, libc::ENOTDIR, libc::EISDIR], 161),
        (&[libc::EIO], 1117),
    ] {
        for error in errors {
            assert_eq!(status_of(&std::io::Error::from_raw_os_error(*error)).0, status, "errno {error}");
        }
    }
}
