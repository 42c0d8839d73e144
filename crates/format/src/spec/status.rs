//! Win32 status codes that the published API returns, with one line of text each, and the HRESULTs
//! and NTSTATUS values that stand for them.
//!
//! ```text
//!   0x80071069 ─┐
//!   0xC0000296 ─┼─ win32() ─▶ 4201 ─▶ name()    ERROR_WMI_INSTANCE_NOT_FOUND
//!         4201 ─┘                  ─▶ text()    one line of text
//!   all three   ── meaning() ─▶ the text that FormatMessage and decoded events show
//! ```
//!
//! Source: Documented ("System Error Codes", "NTSTATUS Values"); the texts are written for this
//! project. They end without a full stop and have no line breaks.

use core::fmt;

/// A Win32 status code, an HRESULT or an NTSTATUS value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(pub u32);

macro_rules! statuses {
    ($($code:literal $name:ident $text:literal,)*) => {
        #[allow(missing_docs)] // The text of each code is its documentation.
        impl Status {
            $(#[doc = $text] pub const $name: Self = Self($code);)*

            /// All codes that have a text.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the documented name, if this project knows the code.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($code => Some(stringify!($name)),)* _ => None }
            }

            /// Returns one line of text about the code, if this project knows it.
            #[must_use]
            pub fn text(self) -> Option<&'static str> {
                match self.0 { $($code => Some($text),)* _ => None }
            }
        }
    };
}

statuses! {
    0 ERROR_SUCCESS "completed",
    1 ERROR_INVALID_FUNCTION "operation not valid in this state",
    2 ERROR_FILE_NOT_FOUND "no such file",
    3 ERROR_PATH_NOT_FOUND "no such directory",
    4 ERROR_TOO_MANY_OPEN_FILES "too many open files",
    5 ERROR_ACCESS_DENIED "permission refused",
    6 ERROR_INVALID_HANDLE "handle does not name an object",
    8 ERROR_NOT_ENOUGH_MEMORY "out of memory or of trace buffers",
    13 ERROR_INVALID_DATA "data is not valid",
    14 ERROR_OUTOFMEMORY "allocation failed",
    18 ERROR_NO_MORE_FILES "no more files or volumes",
    24 ERROR_BAD_LENGTH "size field is wrong",
    31 ERROR_GEN_FAILURE "operation not done",
    32 ERROR_SHARING_VIOLATION "file is in use",
    38 ERROR_HANDLE_EOF "end of the file",
    50 ERROR_NOT_SUPPORTED "request not supported",
    80 ERROR_FILE_EXISTS "file exists already",
    87 ERROR_INVALID_PARAMETER "parameter value is wrong",
    111 ERROR_BUFFER_OVERFLOW "name is too long",
    112 ERROR_DISK_FULL "not enough disk space",
    120 ERROR_CALL_NOT_IMPLEMENTED "not implemented here",
    122 ERROR_INSUFFICIENT_BUFFER "output buffer too small",
    123 ERROR_INVALID_NAME "name is not valid",
    126 ERROR_MOD_NOT_FOUND "library not found",
    127 ERROR_PROC_NOT_FOUND "entry point missing",
    131 ERROR_NEGATIVE_SEEK "position is before the start of the file",
    160 ERROR_BAD_ARGUMENTS "arguments are wrong",
    161 ERROR_BAD_PATHNAME "log-file path not usable",
    170 ERROR_BUSY "object in use",
    183 ERROR_ALREADY_EXISTS "already exists",
    186 ERROR_INVALID_FLAG_NUMBER "header flags are wrong",
    206 ERROR_FILENAME_EXCED_RANGE "file name or path is too long",
    234 ERROR_MORE_DATA "more data than fits",
    259 ERROR_NO_MORE_ITEMS "no more items",
    288 ERROR_NOT_OWNER "mutex belongs to another thread",
    298 ERROR_TOO_MANY_POSTS "semaphore would exceed its maximum",
    317 ERROR_MR_MID_NOT_FOUND "no text for this code",
    534 ERROR_ARITHMETIC_OVERFLOW "value out of range",
    998 ERROR_NOACCESS "callback faulted",
    1004 ERROR_INVALID_FLAGS "flags are wrong",
    1117 ERROR_IO_DEVICE "input/output error",
    1150 ERROR_OLD_WIN_VERSION "version condition does not hold",
    1168 ERROR_NOT_FOUND "item not found",
    1223 ERROR_CANCELLED "cancelled by the caller",
    1300 ERROR_NOT_ALL_ASSIGNED "not every privilege was assigned",
    1313 ERROR_NO_SUCH_PRIVILEGE "privilege is not known",
    1314 ERROR_PRIVILEGE_NOT_HELD "privilege missing",
    1337 ERROR_INVALID_SID "SID is not valid",
    1392 ERROR_FILE_CORRUPT "file content is damaged",
    1450 ERROR_NO_SYSTEM_RESOURCES "tracing resources exhausted",
    1460 ERROR_TIMEOUT "timed out",
    1465 ERROR_XML_PARSE_ERROR "manifest is not valid",
    1502 ERROR_LOG_FILE_FULL "log file is full",
    1784 ERROR_INVALID_USER_BUFFER "caller buffer not usable",
    1813 ERROR_RESOURCE_TYPE_NOT_FOUND "no resources of that type",
    1814 ERROR_RESOURCE_NAME_NOT_FOUND "no resource with that name",
    1815 ERROR_RESOURCE_LANG_NOT_FOUND "no texts in that language",
    1901 ERROR_INVALID_TIME "time range is wrong",
    2402 ERROR_ACTIVE_CONNECTIONS "session is already stopping",
    4200 ERROR_WMI_GUID_NOT_FOUND "GUID is not known",
    4201 ERROR_WMI_INSTANCE_NOT_FOUND "session is not running",
    4208 ERROR_WMI_SERVER_UNAVAILABLE "decoding service unavailable",
    4306 ERROR_EMPTY "nothing is defined",
    5007 ERROR_RESOURCE_NOT_FOUND "no event metadata",
    7007 ERROR_CTX_CLOSE_PENDING "close accepted, finishing",
    15003 ERROR_EVT_EVENT_TEMPLATE_NOT_FOUND "event has no template",
    15005 ERROR_EVT_INVALID_EVENT_DATA "payload does not fit the schema",
    15100 ERROR_MUI_FILE_NOT_FOUND "localized strings missing",
    0x8000_4001 E_NOTIMPL "not implemented here",
    0x8000_4003 E_POINTER "pointer is missing",
    0x8000_4005 E_FAIL "failed for a reason without a code",
    0xC000_0188 STATUS_LOG_FILE_FULL "log file is full",
}

/// Defines HRESULTs and NTSTATUS values that stand for a Win32 code, by their published names.
macro_rules! aliases {
    ($($code:literal $name:ident $win32:ident,)*) => {
        const fn resolve_alias(code: u32) -> Status {
            match code { $($code => Status::$win32,)* _ => Status(code) }
        }

        /// Name and value of each alias.
        const ALIASES: &[(&str, u32)] = &[$((stringify!($name), $code)),*];
    };
}

aliases! {
    0x8007_000E E_OUTOFMEMORY ERROR_OUTOFMEMORY,
    0x8007_0057 E_INVALIDARG ERROR_INVALID_PARAMETER,
    0xC000_0004 STATUS_INFO_LENGTH_MISMATCH ERROR_BAD_LENGTH,
    0xC000_0008 STATUS_INVALID_HANDLE ERROR_INVALID_HANDLE,
    0xC000_000D STATUS_INVALID_PARAMETER ERROR_INVALID_PARAMETER,
    0xC000_0017 STATUS_NO_MEMORY ERROR_NOT_ENOUGH_MEMORY,
    0xC000_0022 STATUS_ACCESS_DENIED ERROR_ACCESS_DENIED,
    0xC000_0023 STATUS_BUFFER_TOO_SMALL ERROR_INSUFFICIENT_BUFFER,
    0xC000_0035 STATUS_OBJECT_NAME_COLLISION ERROR_ALREADY_EXISTS,
    0xC000_0061 STATUS_PRIVILEGE_NOT_HELD ERROR_PRIVILEGE_NOT_HELD,
    0xC000_007F STATUS_DISK_FULL ERROR_DISK_FULL,
    0xC000_0095 STATUS_INTEGER_OVERFLOW ERROR_ARITHMETIC_OVERFLOW,
    0xC000_009A STATUS_INSUFFICIENT_RESOURCES ERROR_NO_SYSTEM_RESOURCES,
    0xC000_00BB STATUS_NOT_SUPPORTED ERROR_NOT_SUPPORTED,
    0xC000_0139 STATUS_ENTRYPOINT_NOT_FOUND ERROR_PROC_NOT_FOUND,
    0xC000_0206 STATUS_INVALID_BUFFER_SIZE ERROR_INVALID_USER_BUFFER,
    0xC000_0295 STATUS_WMI_GUID_NOT_FOUND ERROR_WMI_GUID_NOT_FOUND,
    0xC000_0296 STATUS_WMI_INSTANCE_NOT_FOUND ERROR_WMI_INSTANCE_NOT_FOUND,
}

/// Other names of success.
const SUCCESS_NAMES: [&str; 3] = ["NO_ERROR", "S_OK", "STATUS_SUCCESS"];

/// The upper half of HRESULTs that hold a Win32 code.
const FACILITY_WIN32: u32 = 0x8007_0000;

impl Status {
    /// Returns the Win32 code that an HRESULT or NTSTATUS stands for; an unknown value is
    /// returned unchanged.
    ///
    /// ```
    /// # use traceweir_format::spec::status::Status;
    /// assert_eq!(Status(0x8007_0032).win32(), Status::ERROR_NOT_SUPPORTED);
    /// assert_eq!(Status(0xC000_000D).win32(), Status::ERROR_INVALID_PARAMETER);
    /// assert_eq!(Status(87).win32(), Status(87));
    /// ```
    #[must_use]
    pub const fn win32(self) -> Self {
        match self.0 {
            hresult if hresult & 0xFFFF_0000 == FACILITY_WIN32 => Self(hresult & 0xFFFF),
            other => resolve_alias(other),
        }
    }

    /// Returns one line of text about a Win32 code, HRESULT or NTSTATUS.
    ///
    /// ```
    /// # use traceweir_format::spec::status::Status;
    /// assert_eq!(Status(0xC000_0022).meaning(), Status::ERROR_ACCESS_DENIED.text());
    /// assert_eq!(Status(0x8000_4003).meaning(), Status::E_POINTER.text());
    /// assert_eq!(Status(0xDEAD).meaning(), None);
    /// ```
    #[must_use]
    pub fn meaning(self) -> Option<&'static str> {
        self.win32().text()
    }

    /// Returns the value of a published name, without regard to case.
    ///
    /// ```
    /// # use traceweir_format::spec::status::Status;
    /// assert_eq!(Status::from_name("error_disk_full"), Some(Status::ERROR_DISK_FULL));
    /// let alias = Status::from_name("STATUS_DISK_FULL");
    /// assert_eq!(alias.map(Status::win32), Some(Status::ERROR_DISK_FULL));
    /// assert_eq!(Status::from_name("disk full"), None);
    /// ```
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let is_same_name = |known: &str| known.eq_ignore_ascii_case(name);
        if SUCCESS_NAMES.into_iter().any(is_same_name) {
            return Some(Self::ERROR_SUCCESS);
        }
        let alias = || ALIASES.iter().find(|(known, _)| is_same_name(known)).map(|(_, code)| Self(*code));
        Self::ALL.iter().copied().find(|status| status.name().is_some_and(is_same_name)).or_else(alias)
    }

    /// Returns the published name of this exact value, if it is an alias of a Win32 code.
    ///
    /// ```
    /// # use traceweir_format::spec::status::Status;
    /// assert_eq!(Status(0xC000_007F).alias(), Some("STATUS_DISK_FULL"));
    /// assert_eq!(Status::ERROR_DISK_FULL.alias(), None);
    /// ```
    #[must_use]
    pub fn alias(self) -> Option<&'static str> {
        ALIASES.iter().find(|(_, code)| *code == self.0).map(|(name, _)| *name)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.write_str(text),
            None => write!(f, "unknown status 0x{:08X}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.name().unwrap_or("?"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_round_trip() {
        for status in Status::ALL {
            assert_eq!(status.name().and_then(Status::from_name), Some(*status), "{status:?}");
        }
        for (name, code) in ALIASES {
            let status = Status::from_name(name).unwrap();
            assert_eq!((status.0, status.alias()), (*code, Some(*name)));
            assert!(status.win32() != status && status.win32().text().is_some(), "{name}");
        }
    }

    #[test]
    fn texts_are_one_line_without_a_full_stop() {
        for status in Status::ALL {
            let text = status.text().unwrap();
            assert!(!text.is_empty() && !text.ends_with('.') && !text.contains(['\r', '\n']), "{text}");
        }
    }
}
