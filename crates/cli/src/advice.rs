//! Advice for status codes. Each text names the usual cause and the remedy, and a command that
//! shows more, if one exists.

use traceweir::Status;

/// Returns the usual cause of a code and the remedy, if they are known.
pub(crate) const fn advice_for(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::ERROR_SUCCESS => {
            "No action is needed. Writers also get this status if no session has enabled the provider."
        }
        Status::ERROR_INVALID_FUNCTION => {
            "The call needs another kind of session: for example, only a session in new-file mode can continue in another file. weir query NAME shows the mode."
        }
        Status::ERROR_FILE_NOT_FOUND => "Check the path of the trace, the manifest or the program.",
        Status::ERROR_PATH_NOT_FOUND => {
            "Create the directory of the log file first; a session does not create directories."
        }
        Status::ERROR_ACCESS_DENIED => {
            "Use root or a member of the group traceweir for the system's daemon, or use your own daemon (--user). weir access show default lists the rights."
        }
        Status::ERROR_INVALID_HANDLE => {
            "The handle is 0, closed, or of another kind. Use the handle that the open or register function returned."
        }
        Status::ERROR_NOT_ENOUGH_MEMORY => {
            "Events arrive faster than they are written: raise the size or the number of buffers (weir update NAME). Otherwise the machine is short of memory."
        }
        Status::ERROR_OUTOFMEMORY => {
            "No trace buffer was available: raise the maximum number of buffers, or free memory."
        }
        Status::ERROR_INVALID_DATA
        | Status::ERROR_HANDLE_EOF
        | Status::ERROR_BUFFER_OVERFLOW
        | Status::ERROR_INVALID_NAME
        | Status::ERROR_NO_MORE_ITEMS
        | Status::ERROR_RESOURCE_TYPE_NOT_FOUND
        | Status::ERROR_RESOURCE_NAME_NOT_FOUND => {
            "Programs for Windows compare with this code; no tracing function here returns it."
        }
        Status::ERROR_NOT_ALL_ASSIGNED | Status::ERROR_NO_SUCH_PRIVILEGE => {
            "Only root has the privileges of Windows here: weir doctor shows what other users may trace."
        }
        Status::ERROR_BAD_ARGUMENTS | Status::ERROR_OLD_WIN_VERSION => {
            "Programs see Windows 10: compare with that or an earlier version, and set a condition for each member to compare."
        }
        Status::ERROR_GEN_FAILURE => {
            "The one-time initialization (INIT_ONCE) is not complete, or another thread completed it first."
        }
        Status::ERROR_NOT_OWNER => {
            "The thread released a mutex that it does not own: check the order of waits and releases."
        }
        Status::ERROR_TOO_MANY_POSTS => {
            "The program released a semaphore more often than its maximum allows."
        }
        Status::ERROR_INVALID_SID => "The SID is NULL, or its count of parts is above 15.",
        Status::ERROR_BAD_LENGTH => {
            "A size is wrong: set Wnode.BufferSize to the size of the structure and its names, and lengths to whole elements."
        }
        Status::ERROR_SHARING_VIOLATION => {
            "Another program or session writes the file. Choose another file, or stop the other writer."
        }
        Status::ERROR_NOT_SUPPORTED => {
            "This class, direction or event source does not exist here, or the machine has no hardware for it. The daemon's log has the reason."
        }
        Status::ERROR_INVALID_PARAMETER => {
            "One of the arguments is wrong, or two of them contradict each other: flags and modes, a NULL pointer, a name that is empty or too long."
        }
        Status::ERROR_TOO_MANY_OPEN_FILES => {
            "The program has reached its limit of open files: close handles, or raise the limit (ulimit -n)."
        }
        Status::ERROR_FILE_EXISTS => {
            "The program asked for a new file, but one of that name exists: remove it, or choose another name."
        }
        Status::ERROR_NEGATIVE_SEEK => "The program set a file position below 0: check its offsets.",
        Status::ERROR_FILENAME_EXCED_RANGE => "Use a shorter file name or path.",
        Status::ERROR_DISK_FULL => "Free disk space, use a log file on another disk, or use a circular log.",
        Status::ERROR_CALL_NOT_IMPLEMENTED => {
            "The function exists by name only. docs/c-coverage.md gives the reason."
        }
        Status::ERROR_INSUFFICIENT_BUFFER => "Call again with a buffer of the size that the call returned.",
        Status::ERROR_PROC_NOT_FOUND => {
            "The loaded library lacks the function: it is older than the program, or another library of that name."
        }
        Status::ERROR_BAD_PATHNAME => {
            "Use a log file in an existing directory, with a name of at most 1024 characters that no other session uses."
        }
        Status::ERROR_BUSY => "The object is in use: try again later.",
        Status::ERROR_ALREADY_EXISTS => {
            "A session of that name or GUID is running: weir list shows it, weir stop NAME stops it."
        }
        Status::ERROR_INVALID_FLAG_NUMBER => {
            "Set WNODE_FLAG_TRACED_GUID in the Flags of the header passed to TraceEvent."
        }
        Status::ERROR_MORE_DATA => {
            "An event is larger than a buffer of its session, or an array or buffer of the caller is too short for all the data: make it larger."
        }
        Status::ERROR_MR_MID_NOT_FOUND => {
            "FormatMessage has texts only for the codes that tracing functions return: print the number."
        }
        Status::ERROR_ARITHMETIC_OVERFLOW => {
            "An event may have at most 64 KiB including its header: write less, or several events."
        }
        Status::ERROR_NOACCESS => {
            "A callback of the program failed, or returned an invalid address: debug the callback."
        }
        Status::ERROR_INVALID_FLAGS => {
            "Set WNODE_FLAG_TRACED_GUID in the Flags of the header passed to TraceEventInstance."
        }
        Status::ERROR_IO_DEVICE => {
            "The log file could not be written, and its session has stopped: check the disk and the system's log."
        }
        Status::ERROR_NOT_FOUND => {
            "No schema, field or map of that name is known: pass the manifest, or the program that contains it (--manifest)."
        }
        Status::ERROR_CANCELLED => {
            "The program itself ended the processing: its buffer callback returned FALSE."
        }
        Status::ERROR_NO_MORE_FILES => "This is the end of a list of files or volumes, not a failure.",
        Status::ERROR_MOD_NOT_FOUND => {
            "The library does not exist, or one that it needs is missing: check LD_LIBRARY_PATH, and run ldd on it."
        }
        Status::ERROR_PRIVILEGE_NOT_HELD => {
            "Profiling of the whole machine needs root, or CAP_PERFMON: weir doctor shows what this machine allows, and how to allow the rest."
        }
        Status::ERROR_FILE_CORRUPT => {
            "The file is not an event trace, or is damaged: weir check FILE lists the defects, weir repair FILE -o OUT saves the readable events."
        }
        Status::ERROR_NO_SYSTEM_RESOURCES => {
            "A limit is reached: sessions of the daemon (weir list; --max-sessions), sessions that enable one provider, or descriptors of the process."
        }
        Status::ERROR_TIMEOUT => {
            "A provider's callback did not return in time. The provider is enabled all the same; use a longer timeout, or 0 for no wait."
        }
        Status::ERROR_XML_PARSE_ERROR => {
            "The manifest breaks a rule: weir mc FILE.man lists all errors with their lines."
        }
        Status::ERROR_LOG_FILE_FULL => {
            "The log has reached its maximum size: raise it, use a circular log, or start a new file."
        }
        Status::ERROR_INVALID_USER_BUFFER => {
            "The buffer cannot be read or written completely: check its address and length."
        }
        Status::ERROR_RESOURCE_LANG_NOT_FOUND => "Texts are in English: use language 0.",
        Status::ERROR_INVALID_TIME => "The end of the range lies before its beginning, or a time is invalid.",
        Status::ERROR_ACTIVE_CONNECTIONS => "The session is already being stopped: wait until it has ended.",
        Status::ERROR_WMI_GUID_NOT_FOUND => {
            "No process has registered this GUID: weir providers lists the registered ones."
        }
        Status::ERROR_WMI_INSTANCE_NOT_FOUND => {
            "No session of that name or id is running, or it is not live: weir list shows the running sessions, weir update NAME --real-time on makes one live."
        }
        Status::ERROR_WMI_SERVER_UNAVAILABLE => {
            "The source of schemas cannot be reached: try again, or pass the manifest itself."
        }
        Status::ERROR_EMPTY => "The provider's manifest defines no events of this kind.",
        Status::ERROR_RESOURCE_NOT_FOUND => {
            "The file contains no compiled manifest or no texts for it: compile it in with weir mc."
        }
        Status::ERROR_CTX_CLOSE_PENDING => {
            "This is success: ProcessTrace still runs and returns by itself, for a file after its current event, for a live session after the events that have arrived. The handle is no longer valid."
        }
        Status::ERROR_EVT_EVENT_TEMPLATE_NOT_FOUND => {
            "The manifest names a template for this event that it does not define."
        }
        Status::ERROR_EVT_INVALID_EVENT_DATA => {
            "The event was written by a version other than the one that the schema describes, or was truncated: use the manifest of the program that wrote it."
        }
        Status::ERROR_MUI_FILE_NOT_FOUND => {
            "The texts of this culture are missing: compile the manifest with them (weir mc --culture)."
        }
        Status::E_NOTIMPL => "The request has no meaning in user mode, or is not built into this library.",
        Status::E_POINTER => "A required pointer is NULL.",
        Status::E_FAIL => "The daemon's log, or the last error of the thread, has the reason.",
        Status::STATUS_LOG_FILE_FULL => {
            "A live session has no consumer and no room to keep events: watch it (weir watch), or give it a log file. Writing then works again by itself."
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_advice_in_complete_sentences() {
        for status in Status::ALL {
            let text = advice_for(*status).unwrap_or_else(|| panic!("{status:?} has no advice"));
            assert!(text.ends_with('.') && !text.contains('\n'), "{text}");
        }
    }
}
