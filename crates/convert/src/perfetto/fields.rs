//! Numbers of the fields of Perfetto's messages.
//!
//! Documented: `protos/perfetto/trace` in the repository of Perfetto.

/// `Trace` and `TracePacket`.
pub(super) mod packet {
    pub(in crate::perfetto) const PACKET: u32 = 1;
    pub(in crate::perfetto) const FTRACE_EVENTS: u32 = 1;
    pub(in crate::perfetto) const PROCESS_TREE: u32 = 2;
    pub(in crate::perfetto) const CLOCK_SNAPSHOT: u32 = 6;
    pub(in crate::perfetto) const TIMESTAMP: u32 = 8;
    pub(in crate::perfetto) const SEQUENCE_ID: u32 = 10;
    pub(in crate::perfetto) const TRACK_EVENT: u32 = 11;
    pub(in crate::perfetto) const INTERNED_DATA: u32 = 12;
    pub(in crate::perfetto) const SEQUENCE_FLAGS: u32 = 13;
    pub(in crate::perfetto) const PREVIOUS_PACKET_DROPPED: u32 = 42;
    pub(in crate::perfetto) const TRACE_PACKET_DEFAULTS: u32 = 59;
    pub(in crate::perfetto) const TRACK_DESCRIPTOR: u32 = 60;
    pub(in crate::perfetto) const PERF_SAMPLE: u32 = 66;
    /// Bits of `sequence_flags`.
    pub(in crate::perfetto) const INCREMENTAL_STATE_CLEARED: u64 = 1;
    pub(in crate::perfetto) const NEEDS_INCREMENTAL_STATE: u64 = 2;
}

/// `ClockSnapshot`, its clocks, and the ids of builtin clocks.
pub(super) mod clock {
    pub(in crate::perfetto) const CLOCKS: u32 = 1;
    pub(in crate::perfetto) const PRIMARY_TRACE_CLOCK: u32 = 2;
    pub(in crate::perfetto) const CLOCK_ID: u32 = 1;
    pub(in crate::perfetto) const CLOCK_TIMESTAMP: u32 = 2;
    pub(in crate::perfetto) const REALTIME: u64 = 1;
    pub(in crate::perfetto) const MONOTONIC: u64 = 3;
    pub(in crate::perfetto) const BOOTTIME: u64 = 6;
}

/// `ProcessTree`, its processes and its threads.
pub(super) mod process_tree {
    pub(in crate::perfetto) const PROCESSES: u32 = 1;
    pub(in crate::perfetto) const THREADS: u32 = 2;
    pub(in crate::perfetto) const PID: u32 = 1;
    pub(in crate::perfetto) const PPID: u32 = 2;
    pub(in crate::perfetto) const CMDLINE: u32 = 3;
    pub(in crate::perfetto) const TID: u32 = 1;
    pub(in crate::perfetto) const THREAD_NAME: u32 = 2;
    pub(in crate::perfetto) const TGID: u32 = 3;
}

/// `FtraceEventBundle` and `FtraceEvent`.
pub(super) mod ftrace {
    pub(in crate::perfetto) const CPU: u32 = 1;
    pub(in crate::perfetto) const EVENT: u32 = 2;
    pub(in crate::perfetto) const LOST_EVENTS: u32 = 3;
    pub(in crate::perfetto) const TIMESTAMP: u32 = 1;
    pub(in crate::perfetto) const PID: u32 = 2;
    pub(in crate::perfetto) const SCHED_SWITCH: u32 = 4;
    pub(in crate::perfetto) const SCHED_WAKING: u32 = 20;
    pub(in crate::perfetto) const SCHED_PROCESS_FREE: u32 = 240;
}

/// `SchedSwitchFtraceEvent`, `SchedWakingFtraceEvent`, `SchedProcessFreeFtraceEvent`, and the states of
/// Linux tasks.
pub(super) mod sched {
    pub(in crate::perfetto) const PREV_COMM: u32 = 1;
    pub(in crate::perfetto) const PREV_PID: u32 = 2;
    pub(in crate::perfetto) const PREV_PRIO: u32 = 3;
    pub(in crate::perfetto) const PREV_STATE: u32 = 4;
    pub(in crate::perfetto) const NEXT_COMM: u32 = 5;
    pub(in crate::perfetto) const NEXT_PID: u32 = 6;
    pub(in crate::perfetto) const NEXT_PRIO: u32 = 7;
    pub(in crate::perfetto) const WAKING_COMM: u32 = 1;
    pub(in crate::perfetto) const WAKING_PID: u32 = 2;
    pub(in crate::perfetto) const WAKING_PRIO: u32 = 3;
    pub(in crate::perfetto) const WAKING_SUCCESS: u32 = 4;
    pub(in crate::perfetto) const WAKING_TARGET_CPU: u32 = 5;
    pub(in crate::perfetto) const FREE_COMM: u32 = 1;
    pub(in crate::perfetto) const FREE_PID: u32 = 2;
    pub(in crate::perfetto) const FREE_PRIO: u32 = 3;
    pub(in crate::perfetto) const STATE_RUNNABLE: u64 = 0;
    pub(in crate::perfetto) const STATE_INTERRUPTIBLE: u64 = 1;
    pub(in crate::perfetto) const STATE_UNINTERRUPTIBLE: u64 = 2;
    pub(in crate::perfetto) const STATE_STOPPED: u64 = 4;
    pub(in crate::perfetto) const STATE_DEAD: u64 = 16;
}

/// `TrackDescriptor`, its process, its thread and its counter.
pub(super) mod descriptor {
    pub(in crate::perfetto) const UUID: u32 = 1;
    pub(in crate::perfetto) const NAME: u32 = 2;
    pub(in crate::perfetto) const PROCESS: u32 = 3;
    pub(in crate::perfetto) const THREAD: u32 = 4;
    pub(in crate::perfetto) const PARENT_UUID: u32 = 5;
    pub(in crate::perfetto) const COUNTER: u32 = 8;
    pub(in crate::perfetto) const PROCESS_PID: u32 = 1;
    pub(in crate::perfetto) const PROCESS_CMDLINE: u32 = 2;
    pub(in crate::perfetto) const PROCESS_NAME: u32 = 6;
    pub(in crate::perfetto) const THREAD_PID: u32 = 1;
    pub(in crate::perfetto) const THREAD_TID: u32 = 2;
    pub(in crate::perfetto) const THREAD_NAME: u32 = 5;
    pub(in crate::perfetto) const COUNTER_UNIT: u32 = 3;
    pub(in crate::perfetto) const UNIT_BYTES: u64 = 3;
}

/// `TrackEvent`.
pub(super) mod event {
    pub(in crate::perfetto) const CATEGORY_IIDS: u32 = 3;
    pub(in crate::perfetto) const DEBUG_ANNOTATIONS: u32 = 4;
    pub(in crate::perfetto) const TYPE: u32 = 9;
    pub(in crate::perfetto) const NAME_IID: u32 = 10;
    pub(in crate::perfetto) const TRACK_UUID: u32 = 11;
    pub(in crate::perfetto) const DOUBLE_COUNTER_VALUE: u32 = 44;
    pub(in crate::perfetto) const CALLSTACK_IID: u32 = 56;
    pub(in crate::perfetto) const SLICE_BEGIN: u64 = 1;
    pub(in crate::perfetto) const SLICE_END: u64 = 2;
    pub(in crate::perfetto) const INSTANT: u64 = 3;
    pub(in crate::perfetto) const COUNTER: u64 = 4;
}

/// `DebugAnnotation`.
pub(super) mod annotation {
    pub(in crate::perfetto) const NAME_IID: u32 = 1;
    pub(in crate::perfetto) const BOOL_VALUE: u32 = 2;
    pub(in crate::perfetto) const UINT_VALUE: u32 = 3;
    pub(in crate::perfetto) const INT_VALUE: u32 = 4;
    pub(in crate::perfetto) const DOUBLE_VALUE: u32 = 5;
    pub(in crate::perfetto) const STRING_VALUE: u32 = 6;
    pub(in crate::perfetto) const NAME: u32 = 10;
    pub(in crate::perfetto) const DICT_ENTRIES: u32 = 11;
    pub(in crate::perfetto) const ARRAY_VALUES: u32 = 12;
}

/// `PerfSample`.
pub(super) mod perf_sample {
    pub(in crate::perfetto) const CPU: u32 = 1;
    pub(in crate::perfetto) const PID: u32 = 2;
    pub(in crate::perfetto) const TID: u32 = 3;
    pub(in crate::perfetto) const CALLSTACK_IID: u32 = 4;
    pub(in crate::perfetto) const CPU_MODE: u32 = 5;
    pub(in crate::perfetto) const TIMEBASE_COUNT: u32 = 6;
    pub(in crate::perfetto) const MODE_KERNEL: u64 = 1;
    pub(in crate::perfetto) const MODE_USER: u64 = 2;
}

/// `TracePacketDefaults`, `PerfSampleDefaults` and `PerfEvents.Timebase`.
pub(super) mod defaults {
    pub(in crate::perfetto) const PERF_SAMPLE_DEFAULTS: u32 = 12;
    pub(in crate::perfetto) const TIMEBASE: u32 = 1;
    pub(in crate::perfetto) const PERIOD: u32 = 1;
    pub(in crate::perfetto) const COUNTER: u32 = 4;
    pub(in crate::perfetto) const NAME: u32 = 10;
    pub(in crate::perfetto) const CPU_CLOCK: u64 = 1;
}

/// `InternedData` and its entries.
pub(super) mod interned {
    pub(in crate::perfetto) const EVENT_CATEGORIES: u32 = 1;
    pub(in crate::perfetto) const EVENT_NAMES: u32 = 2;
    pub(in crate::perfetto) const DEBUG_ANNOTATION_NAMES: u32 = 3;
    pub(in crate::perfetto) const FUNCTION_NAMES: u32 = 5;
    pub(in crate::perfetto) const FRAMES: u32 = 6;
    pub(in crate::perfetto) const CALLSTACKS: u32 = 7;
    pub(in crate::perfetto) const BUILD_IDS: u32 = 16;
    pub(in crate::perfetto) const MAPPING_PATHS: u32 = 17;
    pub(in crate::perfetto) const SOURCE_PATHS: u32 = 18;
    pub(in crate::perfetto) const MAPPINGS: u32 = 19;
    pub(in crate::perfetto) const IID: u32 = 1;
    pub(in crate::perfetto) const TEXT: u32 = 2;
    pub(in crate::perfetto) const MAPPING_BUILD_ID: u32 = 2;
    pub(in crate::perfetto) const MAPPING_START: u32 = 4;
    pub(in crate::perfetto) const MAPPING_END: u32 = 5;
    pub(in crate::perfetto) const MAPPING_PATH_IDS: u32 = 7;
    pub(in crate::perfetto) const FRAME_FUNCTION: u32 = 2;
    pub(in crate::perfetto) const FRAME_MAPPING: u32 = 3;
    pub(in crate::perfetto) const FRAME_REL_PC: u32 = 4;
    pub(in crate::perfetto) const FRAME_SOURCE_PATH: u32 = 5;
    pub(in crate::perfetto) const FRAME_LINE: u32 = 6;
    pub(in crate::perfetto) const STACK_FRAME_IDS: u32 = 2;
}
