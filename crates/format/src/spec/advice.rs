//! Advice for status codes: one sentence for each, for people who look one up.
//!
//! The `status` module has the code, its name and its one-line text. The advice names the usual
//! cause and the remedy, and a `weir` command that shows more, if there is one.

use super::status::Status;

impl Status {
    /// Returns the usual cause of the code and the remedy, if this project knows them.
    ///
    /// ```
    /// # use traceweir_format::spec::status::Status;
    /// assert!(Status::ERROR_WMI_INSTANCE_NOT_FOUND.advice().is_some_and(|advice| advice.contains("weir list")));
    /// assert_eq!(Status(0xDEAD).advice(), None);
    /// ```
    #[must_use]
    pub const fn advice(self) -> Option<&'static str> {
        Some(match self {
            Self::ERROR_SUCCESS => {
                "Nothing has to be done. For writers it is also the answer where nobody listens."
            }
            Self::ERROR_INVALID_FUNCTION => {
                "The session is of another kind than the call needs: a next file needs the mode of new files, say. weir query NAME shows the mode."
            }
            Self::ERROR_FILE_NOT_FOUND => {
                "Look at the path of the trace, the manifest or the program that was named."
            }
            Self::ERROR_PATH_NOT_FOUND => {
                "Make the folder of the log file first; a session does not make folders."
            }
            Self::ERROR_ACCESS_DENIED => {
                "Be root or a member of the group traceweir for the system's daemon, or use your own (--user). weir access show tells who may do what."
            }
            Self::ERROR_INVALID_HANDLE => {
                "The handle is 0, was closed before, or is of another kind. Use what the function that opened or registered gave back."
            }
            Self::ERROR_NOT_ENOUGH_MEMORY => {
                "Events come faster than they are written: raise the size or the number of buffers (weir update NAME). Otherwise the machine is short of memory."
            }
            Self::ERROR_OUTOFMEMORY => {
                "A trace buffer could not be had: raise the maximum of buffers, or free memory."
            }
            Self::ERROR_BAD_LENGTH => {
                "A size is not what the call expects: set Wnode.BufferSize to the structure and its names, and lengths to whole elements."
            }
            Self::ERROR_SHARING_VIOLATION => {
                "Another program or session writes the file. Name another, or end the other one."
            }
            Self::ERROR_NOT_SUPPORTED => {
                "This class, direction or event source does not exist here, or the machine has no hardware for it. The daemon's log tells the reason."
            }
            Self::ERROR_INVALID_PARAMETER => {
                "One of the arguments is wrong, or two of them contradict each other: flags and modes, a NULL pointer, a name that is empty or too long."
            }
            Self::ERROR_DISK_FULL => {
                "Make room, name a log file on another disk, or let the session write in a circle."
            }
            Self::ERROR_CALL_NOT_IMPLEMENTED => {
                "The function is there by name only. docs/c-coverage.md says why."
            }
            Self::ERROR_INSUFFICIENT_BUFFER => {
                "Call again with a buffer of the size that the call gave back."
            }
            Self::ERROR_PROC_NOT_FOUND => {
                "The loaded library lacks the function: it is older than the program, or another library of that name."
            }
            Self::ERROR_BAD_PATHNAME => {
                "Name a log file in a folder that is there, with a name of at most 1024 characters that no other session uses."
            }
            Self::ERROR_BUSY => "Somebody uses the object: wait for them, then try again.",
            Self::ERROR_ALREADY_EXISTS => {
                "A session of that name or GUID runs: weir list shows it, weir stop NAME ends it."
            }
            Self::ERROR_INVALID_FLAG_NUMBER => {
                "Set WNODE_FLAG_TRACED_GUID in the Flags of the header that goes to TraceEvent."
            }
            Self::ERROR_MORE_DATA => {
                "An event is larger than a buffer of its session, or an array or buffer of the caller is too short for all there is: make it larger."
            }
            Self::ERROR_MR_MID_NOT_FOUND => {
                "FormatMessage has texts for the codes that tracing functions return, and for no other: print the number."
            }
            Self::ERROR_ARITHMETIC_OVERFLOW => {
                "An event may have 64 KiB with its header: write less, or several events."
            }
            Self::ERROR_NOACCESS => {
                "A callback of the program failed, or gave back an address that is none: debug the callback."
            }
            Self::ERROR_INVALID_FLAGS => {
                "Set WNODE_FLAG_TRACED_GUID in the Flags of the header that goes to TraceEventInstance."
            }
            Self::ERROR_IO_DEVICE => {
                "The log file could not be written, and its session has stopped: look at the disk and at the system's log."
            }
            Self::ERROR_NOT_FOUND => {
                "No schema, field or map of that name is known: give the manifest, or the program that holds it (--manifest)."
            }
            Self::ERROR_CANCELLED => {
                "The program itself asked for the end: its buffer callback returned FALSE."
            }
            Self::ERROR_PRIVILEGE_NOT_HELD => {
                "Profiling of the whole machine needs root, or CAP_PERFMON: weir doctor says what this machine allows, and how to allow the rest."
            }
            Self::ERROR_FILE_CORRUPT => {
                "The file is no event trace, or was damaged: weir check FILE lists what is wrong, weir repair FILE -o OUT saves what can be read."
            }
            Self::ERROR_NO_SYSTEM_RESOURCES => {
                "A limit is reached: sessions of the daemon (weir list; --max-sessions), sessions that enable one provider, or descriptors of the process."
            }
            Self::ERROR_TIMEOUT => {
                "A provider's callback did not return in time. The enable holds all the same; give a longer time, or 0 to wait for nobody."
            }
            Self::ERROR_XML_PARSE_ERROR => {
                "The manifest breaks a rule: weir mc FILE.man lists all mistakes with their lines."
            }
            Self::ERROR_LOG_FILE_FULL => {
                "The log has reached its maximum: raise it, write in a circle, or start a new file."
            }
            Self::ERROR_INVALID_USER_BUFFER => {
                "The buffer cannot be read or written as a whole: look at its address and length."
            }
            Self::ERROR_RESOURCE_LANG_NOT_FOUND => "Texts are in English: ask for language 0.",
            Self::ERROR_INVALID_TIME => "The end of the range lies before its beginning, or a time is none.",
            Self::ERROR_ACTIVE_CONNECTIONS => "The session is being stopped already: wait for it.",
            Self::ERROR_WMI_GUID_NOT_FOUND => {
                "Nobody has registered this GUID: weir providers lists those that are."
            }
            Self::ERROR_WMI_INSTANCE_NOT_FOUND => {
                "No session of that name or id runs, or it is not live: weir list shows those that run."
            }
            Self::ERROR_WMI_SERVER_UNAVAILABLE => {
                "The source of schemas cannot be reached: try again, or give the manifest itself."
            }
            Self::ERROR_EMPTY => "The provider's manifest defines no events of this kind.",
            Self::ERROR_RESOURCE_NOT_FOUND => {
                "The file holds no compiled manifest or no texts for it: compile it in with weir mc."
            }
            Self::ERROR_CTX_CLOSE_PENDING => {
                "This is success: ProcessTrace still runs and ends by itself, for a file after its current event, for a live session after the events that have come. The handle is no longer one."
            }
            Self::ERROR_EVT_EVENT_TEMPLATE_NOT_FOUND => {
                "The manifest names a template for this event that it does not define."
            }
            Self::ERROR_EVT_INVALID_EVENT_DATA => {
                "The event was written by another version than the schema describes, or was cut: take the manifest of the program that wrote it."
            }
            Self::ERROR_MUI_FILE_NOT_FOUND => {
                "The texts of this culture are missing: compile the manifest with them (weir mc --culture)."
            }
            Self::E_NOTIMPL => "The request has no meaning in user mode, or is not built into this library.",
            Self::E_POINTER => "A pointer that is needed is NULL.",
            Self::E_FAIL => "Look at the daemon's log, or at the last error of the thread, for the reason.",
            Self::STATUS_LOG_FILE_FULL => {
                "A live session has no consumer and no room to keep events: watch it (weir watch), or give it a log file. Writing works again by itself then."
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_with_a_text_has_advice_in_whole_sentences() {
        for status in Status::ALL {
            let advice = status.advice().unwrap_or_else(|| panic!("{status:?} has no advice"));
            assert!(advice.ends_with('.') && !advice.contains('\n'), "{advice}");
        }
    }
}
