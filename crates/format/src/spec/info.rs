//! The information classes of sessions (TRACE_INFO_CLASS, also called TRACE_QUERY_INFO_CLASS):
//! numbers, and the functions that accept each.
//!
//! Source: Documented ("TRACE_QUERY_INFO_CLASS enumeration"), comments of evntrace.h. The layouts
//! of the buffers are in `info`.

/// The first invalid class number (MaxTraceSetInfoClass).
pub const MAX_TRACE_SET_INFO_CLASS: u32 = 29;

/// Profile sources that the Linux kernel counts in software, on any processor. Their ids are free
/// to choose, because the platform defines the ids from 24 on.
pub mod software_source {
    /// Run time of tasks, in units of 100 ns.
    pub const TASK_CLOCK: u32 = 0x0800;
    /// Page faults, soft and hard.
    pub const PAGE_FAULTS: u32 = 0x0801;
    /// Switches from one thread to another.
    pub const CONTEXT_SWITCHES: u32 = 0x0802;

    /// All sources with their names.
    pub const ALL: [(u32, &str); 3] =
        [(TASK_CLOCK, "TaskClock"), (PAGE_FAULTS, "PageFaults"), (CONTEXT_SWITCHES, "ContextSwitches")];
}

/// The session id that a class requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredSession {
    /// The id of a running session.
    Session,
    /// No session: the id must be 0.
    System,
    /// No session: the id is ignored.
    Anything,
}

/// The functions that accept a class, and its requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether TraceSetInformation accepts the class.
    pub can_set: bool,
    /// Whether TraceQueryInformation accepts the class.
    pub can_query: bool,
    /// Whether EnumerateTraceGuidsEx accepts the class.
    pub can_enumerate: bool,
    /// The required session id.
    pub required_session: RequiredSession,
    /// Whether the session must receive kernel events.
    pub needs_system_logger: bool,
    /// Whether setting the class needs the privilege to profile the system.
    pub is_privileged: bool,
}

macro_rules! classes {
    ($($number:literal $name:ident $via:literal $about:ident $needs:literal $text:literal,)*) => {
        /// An information class (TRACE_INFO_CLASS).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum InfoClass {
            $(#[doc = $text] $name = $number,)*
        }

        impl InfoClass {
            /// All classes, by number.
            pub const ALL: [Self; MAX_TRACE_SET_INFO_CLASS as usize] = [$(Self::$name,)*];

            /// Returns the class of a number.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }

            /// Returns the published name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// Returns the functions that accept the class, and its requirements.
            #[must_use]
            pub const fn rules(self) -> Rules {
                match self { $(Self::$name => Rules {
                    can_set: contains_letter($via, b'S'),
                    can_query: contains_letter($via, b'Q'),
                    can_enumerate: contains_letter($via, b'E'),
                    required_session: RequiredSession::$about,
                    needs_system_logger: contains_letter($needs, b'k'),
                    is_privileged: contains_letter($needs, b'p'),
                },)* }
            }
        }
    };
}

/// Returns whether a short text contains a letter.
const fn contains_letter(text: &str, letter: u8) -> bool {
    let mut remaining = text.as_bytes();
    while let [first, others @ ..] = remaining {
        if *first == letter {
            return true;
        }
        remaining = others;
    }
    false
}

// Number, name, functions (S set, Q query, E enumerate), required session id, requirements
// (k system loggers only, p privileged), description.
classes! {
    0 TraceGuidQueryList "E" Anything "" "GUIDs of all providers that are registered or enabled.",
    1 TraceGuidQueryInfo "E" Anything "" "Registrations of a provider, and the enables of each.",
    2 TraceGuidQueryProcess "E" Anything "" "GUIDs of the calling process.",
    3 TraceStackTracingInfo "SQ" Session "k" "Kernel events that are followed by a call stack.",
    4 TraceSystemTraceEnableFlagsInfo "SQ" Session "k" "Groups of kernel events.",
    5 TraceSampledProfileIntervalInfo "SQ" System "p" "The sampling interval of a profile source.",
    6 TraceProfileSourceConfigInfo "S" System "p" "Counters that raise events when they overflow.",
    7 TraceProfileSourceListInfo "Q" System "" "All profile sources.",
    8 TracePmcEventListInfo "S" Session "kp" "Kernel events at which counters are read.",
    9 TracePmcCounterListInfo "S" Session "kp" "The counters that are read.",
    10 TraceSetDisallowList "S" Session "" "Providers that a group must not enable.",
    11 TraceVersionInfo "Q" System "" "Version of trace processing.",
    12 TraceGroupQueryList "E" Anything "" "GUIDs of all provider groups.",
    13 TraceGroupQueryInfo "E" Anything "" "The enables of a group, and its members.",
    14 TraceDisallowListQuery "Q" Session "" "The list set by TraceSetDisallowList.",
    15 TraceInfoReserved15 "" Anything "" "A reserved class.",
    16 TracePeriodicCaptureStateListInfo "S" Session "" "Providers that are asked for their state periodically.",
    17 TracePeriodicCaptureStateInfo "Q" Anything "" "The shortest period and the most providers of TracePeriodicCaptureStateListInfo.",
    18 TraceProviderBinaryTracking "S" Session "" "Whether the session records the binaries of providers.",
    19 TraceMaxLoggersQuery "QE" Anything "" "The most sessions at a time.",
    20 TraceLbrConfigurationInfo "S" Session "kp" "The kinds of branches that are not recorded.",
    21 TraceLbrEventListInfo "S" Session "kp" "Kernel events that are followed by the last branches.",
    22 TraceMaxPmcCounterQuery "Q" Anything "" "The most counters at a time.",
    23 TraceStreamCount "Q" Session "" "The number of buffer streams of the session.",
    24 TraceStackCachingInfo "S" Session "k" "Whether equal stacks of kernel events are stored once.",
    25 TracePmcCounterOwners "Q" System "" "The owners of the counters of a processor.",
    26 TraceUnifiedStackCachingInfo "S" Session "" "Whether equal stacks of all events are stored once.",
    27 TracePmcSessionInformation "Q" System "" "Sessions that read counters.",
    28 TraceContextRegisterInfo "S" Session "kp" "Kernel events that are followed by the registers.",
}

impl InfoClass {
    /// Returns the number of the class.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_the_published_numbers_and_functions() {
        for (number, class) in (0..).zip(InfoClass::ALL) {
            assert_eq!((class.number(), InfoClass::from_number(number)), (number, Some(class)));
        }
        assert_eq!(InfoClass::from_number(MAX_TRACE_SET_INFO_CLASS), None);
        let count =
            |test: fn(&Rules) -> bool| InfoClass::ALL.iter().map(|class| class.rules()).filter(test).count();
        assert_eq!(
            (
                count(|rules| rules.can_set),
                count(|rules| rules.can_query),
                count(|rules| rules.can_enumerate)
            ),
            (14, 12, 6)
        );
        assert_eq!((count(|rules| rules.needs_system_logger), count(|rules| rules.is_privileged)), (8, 7));
    }
}
