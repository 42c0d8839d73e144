//! Win32 status codes that the published API returns, with one line of text each, and the one NTSTATUS that writers get as it is.
//!
//! Source: Documented ("System Error Codes"); the texts are our own.

use core::fmt;

/// A Win32 status code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(pub u32);

macro_rules! statuses {
    ($($code:literal $name:ident $text:literal,)*) => {
        #[allow(missing_docs)] // The text beside each code is its documentation.
        impl Status {
            $(#[doc = $text] pub const $name: Self = Self($code);)*

            /// The documented name, where this project knows the code.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($code => Some(stringify!($name)),)* _ => None }
            }

            /// One line that says what the code means, where this project knows it.
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
    5 ERROR_ACCESS_DENIED "permission refused",
    6 ERROR_INVALID_HANDLE "handle does not name an object",
    8 ERROR_NOT_ENOUGH_MEMORY "out of memory or of trace buffers",
    14 ERROR_OUTOFMEMORY "allocation failed",
    24 ERROR_BAD_LENGTH "size field is wrong",
    32 ERROR_SHARING_VIOLATION "file is in use",
    50 ERROR_NOT_SUPPORTED "request not supported",
    87 ERROR_INVALID_PARAMETER "parameter value is wrong",
    112 ERROR_DISK_FULL "not enough disk space",
    120 ERROR_CALL_NOT_IMPLEMENTED "not implemented here",
    122 ERROR_INSUFFICIENT_BUFFER "output buffer too small",
    127 ERROR_PROC_NOT_FOUND "entry point missing",
    161 ERROR_BAD_PATHNAME "log-file path not usable",
    170 ERROR_BUSY "object in use",
    183 ERROR_ALREADY_EXISTS "already exists",
    186 ERROR_INVALID_FLAG_NUMBER "header flags are wrong",
    234 ERROR_MORE_DATA "more data than fits",
    534 ERROR_ARITHMETIC_OVERFLOW "value out of range",
    998 ERROR_NOACCESS "callback faulted",
    1004 ERROR_INVALID_FLAGS "flags are wrong",
    1117 ERROR_IO_DEVICE "input/output error",
    1168 ERROR_NOT_FOUND "item not found",
    1223 ERROR_CANCELLED "cancelled by the caller",
    1314 ERROR_PRIVILEGE_NOT_HELD "privilege missing",
    1392 ERROR_FILE_CORRUPT "file content is damaged",
    1450 ERROR_NO_SYSTEM_RESOURCES "tracing resources exhausted",
    1460 ERROR_TIMEOUT "timed out",
    1465 ERROR_XML_PARSE_ERROR "manifest is not valid",
    1502 ERROR_LOG_FILE_FULL "log file is full",
    1784 ERROR_INVALID_USER_BUFFER "caller buffer not usable",
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
    0xC000_0188 STATUS_LOG_FILE_FULL "log file is full",
}

/// The codes behind HRESULTs that stand for Win32 codes.
const FACILITY_WIN32: u32 = 0x8007_0000;

impl Status {
    /// The Win32 code that an HRESULT or NTSTATUS stands for; itself where it stands for none.
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
            0xC000_0004 => Self::ERROR_BAD_LENGTH,
            0xC000_0008 => Self::ERROR_INVALID_HANDLE,
            0xC000_000D => Self::ERROR_INVALID_PARAMETER,
            0xC000_0017 => Self::ERROR_NOT_ENOUGH_MEMORY,
            0xC000_0022 => Self::ERROR_ACCESS_DENIED,
            0xC000_0023 => Self::ERROR_INSUFFICIENT_BUFFER,
            0xC000_0035 => Self::ERROR_ALREADY_EXISTS,
            0xC000_0061 => Self::ERROR_PRIVILEGE_NOT_HELD,
            0xC000_007F => Self::ERROR_DISK_FULL,
            0xC000_0095 => Self::ERROR_ARITHMETIC_OVERFLOW,
            0xC000_009A => Self::ERROR_NO_SYSTEM_RESOURCES,
            0xC000_00BB => Self::ERROR_NOT_SUPPORTED,
            0xC000_0206 => Self::ERROR_INVALID_USER_BUFFER,
            0xC000_0295 => Self::ERROR_WMI_GUID_NOT_FOUND,
            0xC000_0296 => Self::ERROR_WMI_INSTANCE_NOT_FOUND,
            _ => self,
        }
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
