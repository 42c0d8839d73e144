//! Network transfers and file operations, as events contain them.

use std::net::SocketAddr;
use std::sync::Arc;

use traceweir_format::kernel::hook;

/// What a network event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkKind {
    Send,
    Receive,
    Connect,
    Accept,
    Disconnect,
    Retransmit,
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetworkProtocol {
    Tcp,
    Udp,
}

/// An event of TCP or UDP.
#[derive(Clone, Debug)]
pub struct NetworkTransfer {
    pub protocol: NetworkProtocol,
    pub kind: NetworkKind,
    pub bytes: u64,
    /// The process; `None` if the event does not name it.
    pub pid: Option<u32>,
    /// The local end and the remote end; `None` for events without addresses.
    pub ends: Option<(SocketAddr, SocketAddr)>,
}

/// The start of an operation on a file.
#[derive(Clone, Debug)]
pub struct FileOperation {
    pub kind: FileOperationKind,
    /// The number that the end of the operation has too.
    pub irp: u64,
    pub thread: Option<u32>,
    /// The process id in the event's header. It is used for threads that the trace does not define.
    pub pid: u32,
    /// The number of the open file, for later operations on it.
    pub file_object: u64,
    /// The number of bytes that the caller requested.
    pub requested_bytes: u64,
    /// The path that the event contains, or the name that the trace defines for the file.
    pub path: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileOperationKind {
    Open,
    Close,
    Read,
    Write,
    Flush,
    SetInfo,
    QueryInfo,
    Delete,
    Rename,
    ListFolder,
}

impl FileOperationKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Close => "close",
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::SetInfo => "set info",
            Self::QueryInfo => "query info",
            Self::Delete => "delete",
            Self::Rename => "rename",
            Self::ListFolder => "list folder",
        }
    }

    /// Returns the kind of operation that a hook id starts. `FileIo/Cleanup` is not one of them: it
    /// comes with a `FileIo/Close`.
    pub(super) const fn from_hook(hook: u16) -> Option<Self> {
        Some(match hook {
            hook::FILE_CREATE => Self::Open,
            hook::FILE_CLOSE => Self::Close,
            hook::FILE_READ => Self::Read,
            hook::FILE_WRITE => Self::Write,
            hook::FILE_FLUSH => Self::Flush,
            hook::FILE_SET_INFO => Self::SetInfo,
            hook::FILE_QUERY_INFO => Self::QueryInfo,
            hook::FILE_DELETE => Self::Delete,
            hook::FILE_RENAME => Self::Rename,
            hook::FILE_DIR_ENUM => Self::ListFolder,
            _ => return None,
        })
    }
}
