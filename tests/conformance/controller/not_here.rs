//! Rules for controllers that are not tested here, and why.

use crate::rule::{UntestedRule, untested};

pub(crate) const UNTESTED_RULES: &[UntestedRule] = &[
    untested!(
        "controller 1.1",
        H,
        "layout of WNODE_HEADER; Flags must contain WNODE_FLAG_TRACED_GUID",
        "C façade"
    ),
    untested!(
        "controller 1.2",
        H,
        "layouts of EVENT_TRACE_PROPERTIES and _V2, offsets of the two names",
        "C façade"
    ),
    untested!(
        "controller 1.2",
        D,
        "without WNODE_FLAG_VERSIONED_PROPERTIES the tail is not read; VersionNumber other than 2 → 87",
        "C façade"
    ),
    untested!("controller 1.2", D, "A functions keep 8-bit names, W functions 16-bit names", "C façade"),
    untested!(
        "controller 1.1",
        D,
        "clock 3 falls back to system time where the machine has no usable cycle counter",
        "needs such a machine; the session's own tests choose between clocks"
    ),
    untested!(
        "controller 1.2",
        D,
        "the file gets the directory's default access",
        "overridden by decision 36: mode 0640 less the umask"
    ),
    untested!(
        "controller 1.2",
        D,
        "the minimum of buffers is lowered to a limit by memory",
        "the test would take a quarter of the machine; the session's own tests give it a small one"
    ),
    untested!(
        "controller 3",
        D,
        "a session ends with an input/output error of its file",
        "not every user can make a disk that fails; the session's own tests have one"
    ),
    untested!(
        "controller 2 #0x80",
        D,
        "SECURE_MODE: writers need TRACELOG_LOG_EVENT on the session",
        "needs a second user; the daemon's own tests have one where they run as root"
    ),
    untested!(
        "controller 2.1 #16",
        P,
        "neither hybrid-shutdown flag: stop for interactive callers, persist for services",
        "Linux has no hybrid shutdown: the daemon stops its sessions when the machine goes down"
    ),
    untested!(
        "controller 3.2 #1",
        O,
        "Props, Id or name NULL → 87",
        "C façade: the Rust interface has no null pointers"
    ),
    untested!("controller 3.2 #2", O, "Wnode.BufferSize smaller than the structure → 24", "C façade"),
    untested!("controller 3.2 #3", P, "Wnode.Flags without WNODE_FLAG_TRACED_GUID → 87", "C façade"),
    untested!("controller 3.2 #4", O, "offsets inside the structure or past BufferSize → 87", "C façade"),
    untested!("controller 3.2 #5", O, "no room for the session name → 24", "C façade"),
    untested!(
        "controller 3.2 #10",
        D,
        "rights are checked before the name of a running session",
        "needs a second user; the daemon's own tests have one where they run as root"
    ),
    untested!(
        "controller 3.2 #16",
        P,
        "buffers cannot be allocated → 1450",
        "memory cannot be made scarce for one process of a test; the daemon's own tests give it a small budget"
    ),
    untested!(
        "controller 4",
        D,
        "the name wins when id and name are given",
        "C façade: a SessionRef is one of the two"
    ),
    untested!("controller 4", D, "the names do not fit → 234, and the operation was done", "C façade"),
    untested!(
        "controller 4",
        D,
        "Wnode.BufferSize wrong → 24; bad offsets → 87; unknown code → 87",
        "C façade"
    ),
    untested!(
        "controller 4",
        D,
        "flush and stop are not called from a library's constructor or destructor",
        "a rule for callers"
    ),
    untested!(
        "controller 4.1",
        D,
        "reusing a properties block needs LogFileNameOffset = 0 and the flags again",
        "C façade"
    ),
    untested!(
        "controller 4.1",
        D,
        "StopTrace, QueryTrace, UpdateTrace, FlushTrace are the fixed-code forms",
        "C façade"
    ),
    untested!(
        "controller 5",
        D,
        "count 0 or NULL → 87; more sessions than room → 234 and the real number",
        "C façade: the Rust interface returns a list that is as long as it must be"
    ),
    untested!(
        "controller 5",
        D,
        "only sessions that the caller may query are returned",
        "needs a second user; the daemon's own tests have one where they run as root"
    ),
    untested!(
        "controller 6",
        D,
        "TRACELOG_GUID_ENABLE missing → 5",
        "needs a second user; the daemon's own tests have one where they run as root"
    ),
    untested!(
        "controller 6.1 #0x400",
        D,
        "ENABLE_SILOS: also providers inside containers",
        "needs a second PID namespace; the daemon's own tests make one where they run as root"
    ),
    untested!(
        "controller 6",
        H,
        "layout and versions of ENABLE_TRACE_PARAMETERS; another version → 87; unknown control code → 87",
        "C façade"
    ),
    untested!(
        "controller 6",
        D,
        "EnableTraceEx and EnableTrace are EnableTraceEx2 with fixed parameters",
        "C façade"
    ),
    untested!("controller 7", H, "layout of EVENT_FILTER_DESCRIPTOR; null Ptr with a size → 87", "C façade"),
    untested!(
        "controller 7 #SYSTEM_FLAGS, #TRACEHANDLE",
        H,
        "rundown bits and rundown into one session",
        "accepted without effect: capture state delivers everything, to the session that asked"
    ),
    untested!("controller 7 #PID", D, "kernel-mode registrations are left out", "there are none on Linux"),
    untested!(
        "controller 8",
        D,
        "each operation needs its right on its object; default rights of users",
        "needs a second user; the daemon's own tests have one where they run as root"
    ),
    untested!(
        "controller 8",
        P,
        "system loggers need CAP_PERFMON or root",
        "needs a second user; the daemon's own tests have one where they run as root"
    ),
    untested!(
        "controller 3.1",
        D,
        "no system logger inside a container",
        "the kernel decides: unavailable events are refused with its reason"
    ),
    untested!(
        "controller 9.4",
        D,
        "rundown at start, at stop and on capture state",
        "needs kernel events; the tests of kernel events run where they are available"
    ),
    untested!(
        "controller 8",
        D,
        "EventAccessQuery: a buffer that is too small → 234 and the size",
        "C façade: the Rust interface returns the list"
    ),
    untested!(
        "controller 8",
        H,
        "layout of the arguments of EventAccessControl, EventAccessQuery, EventAccessRemove",
        "C façade"
    ),
    untested!(
        "controller 10",
        D,
        "kernel and user CPU times are not recorded",
        "no session of this project records them (decision 21)"
    ),
    untested!(
        "controller 10",
        D,
        "events carry the header flag PRIVATE_SESSION",
        "C façade: the consumer adds it to EVENT_RECORD (decision 29), from the header of the file"
    ),
    untested!(
        "controller 10",
        D,
        "the same filters are passed to every control call",
        "C façade: a session from outside is found by its id or name, which is unique"
    ),
    untested!(
        "controller 10",
        D,
        "an ordinary user's session runs in the user's processes, root's in all processes",
        "needs a second user; the daemon's own tests simulate one"
    ),
    untested!(
        "controller 11 #DisableRealtimePersistence, #Boot",
        D,
        "undelivered real-time events survive a shutdown; an early start",
        "read and without effect: nothing is kept beyond the daemon, and there is one time to start"
    ),
    untested!(
        "controller 11",
        D,
        "the global logger carries kernel events",
        "there is no global logger at boot: the system's daemon starts autologgers"
    ),
    untested!(
        "controller 11",
        D,
        "the global logger renames itself to NT Kernel Logger with EnableKernelFlags",
        "there is no global logger at boot: the system's daemon starts autologgers"
    ),
    untested!("controller 12", D, "EnumerateTraceGuids", "C façade: obsolete on Windows too"),
    untested!(
        "decision 1",
        P,
        "without an invariant counter clock 1 is CLOCK_MONOTONIC_RAW at 10⁹",
        "needs such a machine; the transport's own tests have both kinds"
    ),
    untested!(
        "decision 2",
        P,
        "a call that changes something starts the user's daemon when none answers",
        "would leave daemons running; the api's own tests start them and see them exit"
    ),
    untested!(
        "decision 3",
        P,
        "the users whose requests the user's and the system's daemon accept",
        "needs a second user; the daemon's own tests have one where they run as root"
    ),
    untested!(
        "decision 31",
        P,
        "thread ids of a process in another PID namespace are translated on collection",
        "needs namespaces, which not every user may make; the session's own tests translate"
    ),
    untested!(
        "decision 38",
        P,
        "stacks that the kernel takes have kernel.perf_event_max_stack frames at most",
        "the tests of the kernel's events ask the kernel; the library's own unwinder has 192"
    ),
    untested!(
        "api 5",
        P,
        "etw_error_text accepts NTSTATUS and HRESULT values, and reports unknown ones",
        "C façade"
    ),
    untested!("decision 5", P, "which lengths and offsets of a properties buffer → 24, 87, 234", "C façade"),
    untested!(
        "decision 7",
        P,
        "an in-process session is controlled by id, name, GUID and mode",
        "C façade: a PrivateSession is controlled by itself"
    ),
];
