//! Rules for providers that are not tested here, and why.

use crate::rule::{UntestedRule, untested};

pub(crate) const UNTESTED_RULES: &[UntestedRule] = &[
    untested!("provider 1", H, "layouts of EVENT_DESCRIPTOR and EVENT_DATA_DESCRIPTOR", "C façade"),
    untested!("provider 1", H, "EventDescCreate and the other inlines of the headers", "C façade"),
    untested!("provider 2", O, "Provider or Out NULL → 87; the handle is 0 after a failure", "C façade"),
    untested!("provider 2", D, "a library unregisters before it unloads", "a rule for callers"),
    untested!(
        "provider 2",
        P,
        "without TRACELOG_REGISTER_GUIDS → 5",
        "takes a guest at the system's daemon, hence root: tests/accounts/access.rs"
    ),
    untested!("provider 3", D, "unknown values of IsEnabled are ignored", "a rule for callers"),
    untested!("provider 3 #Source", D, "zero at unregistering", "no callback is called then"),
    untested!("provider 3 #Filter", D, "valid during the call only", "the Rust borrow checker enforces it"),
    untested!(
        "provider 3",
        D,
        "the callee is quick, takes no loader lock, makes no session-control calls",
        "a rule for callers"
    ),
    untested!(
        "provider 3",
        P,
        "calls of different registrations may overlap",
        "a permission that this library does not use"
    ),
    untested!("provider 4.1", D, "desc NULL; n > 0 with NULL data → 87", "C façade"),
    untested!(
        "provider 4.4",
        P,
        "header flags that the consumer adds",
        "the consumer's half of the contract (decision 29)"
    ),
    untested!(
        "decision 38",
        P,
        "stacks have no more frames than kernel.perf_event_max_stack",
        "stacks of providers' events are walked in the process, and have 192"
    ),
    untested!("provider 4.5", P, "NULL → 87", "C façade"),
    untested!("provider 4.6", O, "NULL string → 87", "C façade"),
    untested!(
        "provider 6",
        D,
        "Info NULL with a length → 87, checked after the class and the handle",
        "C façade"
    ),
    untested!(
        "provider 6",
        D,
        "callers that opt in initialise all bytes of descriptors",
        "a rule for callers"
    ),
    untested!(
        "provider 6",
        P,
        "a group that may not be joined → 5, and no trait is set",
        "takes a daemon that forbids it: api/tests/provider/forbidden.rs"
    ),
    untested!(
        "provider 7",
        D,
        "EtwGetTraitFromProviderTraits: NULL and 0 where nothing is found",
        "C façade"
    ),
    untested!(
        "provider 7",
        D,
        "the disallow list of a group (class 10) is taken off",
        "takes a session that has one: api/tests/api/info_daemon.rs"
    ),
    untested!(
        "provider 8",
        H,
        "layouts of classic structures; NULLs; image and resource are ignored",
        "C façade"
    ),
    untested!("provider 8", D, "GetTraceLoggerHandle: the logger inside a WNODE_HEADER", "C façade"),
    untested!("provider 8", P, "numbers of instances wrap to 1", "takes four billion calls"),
    untested!(
        "provider 8",
        D,
        "the kernel logger's handle → 6",
        "a process has only handles of loggers that enabled it; other handles are refused with the same status"
    ),
    untested!(
        "provider 8",
        D,
        "pool below its maximum, but no memory → 14",
        "nothing is allocated by a write here"
    ),
    untested!(
        "provider 8, 9",
        D,
        "CLASSIC_HEADER and TRACE_MESSAGE in the flags of an event",
        "the consumer's half of the contract (decision 29)"
    ),
    untested!("provider 9", H, "TraceMessage takes pairs up to a NULL, TraceMessageVa a list", "C façade"),
];
