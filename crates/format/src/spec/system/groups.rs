//! Groups of kernel events, and the groups that the keywords of system providers select.
//!
//! ```text
//!   31 30 29 │ 28 … 0            word of the group mask │ bit in the word; word 0 is EnableFlags
//! ```
//!
//! Some groups have a bit in two words (profile, context switch, …): [`KERNEL_GROUPS`] has the bit
//! of EnableFlags, [`GROUP_TWINS`] both.
//!
//! Source: Documented ("EVENT_TRACE_PROPERTIES" for EnableFlags, "System Providers" for the
//! keywords); words 1 to 7 from public tools.

/// All named groups and the bit NO_SYSCONFIG, by their numbers; [`group_word`] returns the position
/// in a mask.
pub const KERNEL_GROUPS: [(u32, &str); 103] = [
    (0x0000_0001, "PROCESS"),
    (0x0000_0002, "THREAD"),
    (0x0000_0004, "IMAGE_LOAD"),
    (0x0000_0008, "PROCESS_COUNTERS"),
    (0x0000_0010, "CSWITCH"),
    (0x0000_0020, "DPC"),
    (0x0000_0040, "INTERRUPT"),
    (0x0000_0080, "SYSTEMCALL"),
    (0x0000_0100, "DISK_IO"),
    (0x0000_0200, "DISK_FILE_IO"),
    (0x0000_0400, "DISK_IO_INIT"),
    (0x0000_0800, "DISPATCHER"),
    (0x0000_1000, "MEMORY_PAGE_FAULTS"),
    (0x0000_2000, "MEMORY_HARD_FAULTS"),
    (0x0000_4000, "VIRTUAL_ALLOC"),
    (0x0000_8000, "VAMAP"),
    (0x0001_0000, "NETWORK_TCPIP"),
    (0x0002_0000, "REGISTRY"),
    (0x0004_0000, "DBGPRINT"),
    (0x0008_0000, "JOB"),
    (0x0010_0000, "ALPC"),
    (0x0020_0000, "SPLIT_IO"),
    (0x0040_0000, "DEBUG_EVENTS"),
    (0x0080_0000, "DRIVER"),
    (0x0100_0000, "PROFILE"),
    (0x0200_0000, "FILE_IO"),
    (0x0400_0000, "FILE_IO_INIT"),
    (0x1000_0000, "NO_SYSCONFIG"),
    (0x2000_0001, "MEMORY"),
    (0x2000_0008, "FOOTPRINT"),
    (0x2000_0020, "REFSET"),
    (0x2000_0040, "POOL"),
    (0x2000_0100, "COMPACT_CSWITCH"),
    (0x2000_0400, "PMC_PROFILE"),
    (0x2000_0800, "PROCESS_INSWAP"),
    (0x2000_1000, "AFFINITY"),
    (0x2000_2000, "PRIORITY"),
    (0x2001_0000, "SPINLOCK"),
    (0x2002_0000, "SYNC_OBJECTS"),
    (0x2004_0000, "DPC_QUEUE"),
    (0x2008_0000, "MEMINFO"),
    (0x2010_0000, "CONTMEM_GEN"),
    (0x2020_0000, "SPINLOCK_COUNTERS"),
    (0x2040_0000, "SESSION"),
    (0x2080_0000, "MEMINFO_WS"),
    (0x2100_0000, "KERNEL_QUEUE"),
    (0x2200_0000, "INTERRUPT_STEER"),
    (0x2400_0000, "SHOULD_YIELD"),
    (0x2800_0000, "WS"),
    (0x4000_0001, "ANTI_STARVATION"),
    (0x4000_0002, "PROCESS_FREEZE"),
    (0x4000_0004, "PFN_LIST"),
    (0x4000_0008, "WS_DETAIL"),
    (0x4000_0010, "WS_ENTRY"),
    (0x4000_0020, "HEAP"),
    (0x4000_0400, "OBJECTS"),
    (0x4000_0800, "EVENTS"),
    (0x4000_4000, "PREFETCH"),
    (0x4000_8000, "PROCESSOR_IDLE"),
    (0x4001_0000, "CPU_CONFIG"),
    (0x4002_0000, "TIMER"),
    (0x4004_0000, "CLOCK_INTERRUPT"),
    (0x4008_0000, "LOAD_BALANCER"),
    (0x4010_0000, "CLOCK_TIMER"),
    (0x4020_0000, "IDLE_SELECTION"),
    (0x4040_0000, "IPI"),
    (0x4080_0000, "IO_TIMER"),
    (0x4100_0000, "REGISTRY_HIVE"),
    (0x4200_0000, "REGISTRY_NOTIFICATION"),
    (0x4400_0000, "PPM_EXIT_LATENCY"),
    (0x4800_0000, "WORKER_THREAD"),
    (0x8000_0001, "OPTICAL_IO"),
    (0x8000_0002, "OPTICAL_IO_INIT"),
    (0x8000_0008, "DLL_INFO"),
    (0x8000_0010, "DLL_FLUSH"),
    (0x8000_0040, "OBJECT_HANDLE"),
    (0x8000_0080, "OBJECT_TYPE"),
    (0x8000_0200, "WAKE_DROP"),
    (0x8000_0400, "WAKE_EVENT"),
    (0x8000_0800, "DEBUGGER"),
    (0x8000_1000, "PROCESS_ATTACH"),
    (0x8000_2000, "WAKE_COUNTER"),
    (0x8000_8000, "POWER"),
    (0x8001_0000, "SOFT_TRIM"),
    (0x8002_0000, "CACHE"),
    (0x8008_0000, "FILTER_IO_INIT"),
    (0x8010_0000, "FILTER_IO"),
    (0x8020_0000, "FILTER_FASTIO"),
    (0x8040_0000, "FILTER_FAILURE"),
    (0x8080_0000, "HYPERVISOR_PROFILE"),
    (0x8100_0000, "WDF_DPC"),
    (0x8200_0000, "WDF_INTERRUPT"),
    (0x8400_0000, "CACHE_FLUSH"),
    (0xA000_0001, "HIBER_RUNDOWN"),
    (0xC000_0001, "CONFIG_SYSTEM"),
    (0xC000_0002, "CONFIG_GRAPHICS"),
    (0xC000_0004, "CONFIG_STORAGE"),
    (0xC000_0008, "CONFIG_NETWORK"),
    (0xC000_0010, "CONFIG_SERVICES"),
    (0xC000_0020, "CONFIG_PNP"),
    (0xC000_0040, "CONFIG_OPTICAL"),
    (0xE000_0001, "CLUSTER_OFF"),
    (0xE000_0002, "MEMORY_CONTROL"),
];

/// Groups with bits in two words of a group mask: the bit in EnableFlags, the index of the
/// other word, and the bit in the other word. Either bit selects the group.
pub const GROUP_TWINS: [(u32, usize, u32); 8] = [
    (0x0100_0000, 1, 0x2),    // profile
    (0x0000_0010, 1, 0x4),    // context switch
    (0x0080_0000, 1, 0x10),   // drivers
    (0x0000_0020, 1, 0x80),   // DPC
    (0x0000_0800, 1, 0x200),  // dispatcher
    (0x0000_0040, 1, 0x4000), // interrupt
    (0x0000_4000, 1, 0x8000), // virtual alloc
    (0x0000_0080, 2, 0x40),   // system call
];

/// Returns the index of the word that holds a group in a group mask, and the bit in this word.
#[must_use]
pub const fn group_word(group: u32) -> (usize, u32) {
    ((group >> 29) as usize, group & 0x1FFF_FFFF)
}

/// A keyword of a system provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemKeyword {
    /// The name of the provider in [`SYSTEM_PROVIDERS`](super::SYSTEM_PROVIDERS).
    pub provider: &'static str,
    /// The bit of the keyword.
    pub bit: u64,
    /// The name of the keyword, after `SYSTEM_…_KW_`.
    pub name: &'static str,
    /// The group that the keyword selects; 0 if the group is not known.
    pub group: u32,
}

const fn keyword(provider: &'static str, bit: u64, name: &'static str, group: u32) -> SystemKeyword {
    SystemKeyword { provider, bit, name, group }
}

/// All keywords, provider by provider.
pub const SYSTEM_KEYWORDS: [SystemKeyword; 102] = [
    keyword("Alpc", 0x1, "GENERAL", 0x0010_0000),
    keyword("Config", 0x1, "SYSTEM", 0xC000_0001),
    keyword("Config", 0x2, "GRAPHICS", 0xC000_0002),
    keyword("Config", 0x4, "STORAGE", 0xC000_0004),
    keyword("Config", 0x8, "NETWORK", 0xC000_0008),
    keyword("Config", 0x10, "SERVICES", 0xC000_0010),
    keyword("Config", 0x20, "PNP", 0xC000_0020),
    keyword("Config", 0x40, "OPTICAL", 0xC000_0040),
    keyword("Cpu", 0x1, "CONFIG", 0x4001_0000),
    keyword("Cpu", 0x2, "CACHE_FLUSH", 0x8400_0000),
    keyword("Cpu", 0x4, "SPEC_CONTROL", 0),
    keyword("Cpu", 0x8, "DOMAIN_CHANGE", 0),
    keyword("Hypervisor", 0x1, "PROFILE", 0x8080_0000),
    keyword("Hypervisor", 0x2, "CALLOUTS", 0),
    keyword("Hypervisor", 0x4, "VTL_CHANGE", 0),
    keyword("Interrupt", 0x1, "GENERAL", 0x0000_0040),
    keyword("Interrupt", 0x2, "CLOCK_INTERRUPT", 0x4004_0000),
    keyword("Interrupt", 0x4, "DPC", 0x0000_0020),
    keyword("Interrupt", 0x8, "DPC_QUEUE", 0x2004_0000),
    keyword("Interrupt", 0x10, "WDF_DPC", 0x8100_0000),
    keyword("Interrupt", 0x20, "WDF_INTERRUPT", 0x8200_0000),
    keyword("Interrupt", 0x40, "IPI", 0x4040_0000),
    keyword("Io", 0x1, "DISK", 0x0000_0100),
    keyword("Io", 0x2, "DISK_INIT", 0x0000_0400),
    keyword("Io", 0x4, "FILENAME", 0x0000_0200),
    keyword("Io", 0x8, "SPLIT", 0x0020_0000),
    keyword("Io", 0x10, "FILE", 0x0200_0000),
    keyword("Io", 0x20, "OPTICAL", 0x8000_0001),
    keyword("Io", 0x40, "OPTICAL_INIT", 0x8000_0002),
    keyword("Io", 0x80, "DRIVERS", 0x0080_0000),
    keyword("Io", 0x100, "CC", 0x8002_0000),
    keyword("Io", 0x200, "NETWORK", 0x0001_0000),
    keyword("Io", 0x400, "FILE_INIT", 0x0400_0000),
    keyword("Io", 0x800, "TIMER", 0x4080_0000),
    keyword("IoFilter", 0x1, "GENERAL", 0x8010_0000),
    keyword("IoFilter", 0x2, "INIT", 0x8008_0000),
    keyword("IoFilter", 0x4, "FASTIO", 0x8020_0000),
    keyword("IoFilter", 0x8, "FAILURE", 0x8040_0000),
    keyword("Lock", 0x1, "SPINLOCK", 0x2001_0000),
    keyword("Lock", 0x2, "SPINLOCK_COUNTERS", 0x2020_0000),
    keyword("Lock", 0x4, "SYNC_OBJECTS", 0x2002_0000),
    keyword("Memory", 0x1, "GENERAL", 0x2000_0001),
    keyword("Memory", 0x2, "HARD_FAULTS", 0x0000_2000),
    keyword("Memory", 0x4, "ALL_FAULTS", 0x0000_1000),
    keyword("Memory", 0x8, "POOL", 0x2000_0040),
    keyword("Memory", 0x10, "MEMINFO", 0x2008_0000),
    keyword("Memory", 0x20, "PFSECTION", 0x2040_0000),
    keyword("Memory", 0x40, "MEMINFO_WS", 0x2080_0000),
    keyword("Memory", 0x80, "HEAP", 0x4000_0020),
    keyword("Memory", 0x100, "WS", 0x2800_0000),
    keyword("Memory", 0x200, "CONTMEM_GEN", 0x2010_0000),
    keyword("Memory", 0x400, "VIRTUAL_ALLOC", 0x0000_4000),
    keyword("Memory", 0x800, "FOOTPRINT", 0x2000_0008),
    keyword("Memory", 0x1000, "SESSION", 0x2040_0000),
    keyword("Memory", 0x2000, "REFSET", 0x2000_0020),
    keyword("Memory", 0x4000, "VAMAP", 0x0000_8000),
    keyword("Memory", 0x8000, "NONTRADEABLE", 0),
    keyword("Object", 0x1, "GENERAL", 0x8000_0080),
    keyword("Object", 0x2, "HANDLE", 0x8000_0040),
    keyword("Power", 0x1, "GENERAL", 0x8000_8000),
    keyword("Power", 0x2, "HIBER_RUNDOWN", 0xA000_0001),
    keyword("Power", 0x4, "PROCESSOR_IDLE", 0x4000_8000),
    keyword("Power", 0x8, "IDLE_SELECTION", 0x4020_0000),
    keyword("Power", 0x10, "PPM_EXIT_LATENCY", 0x4400_0000),
    keyword("Process", 0x1, "GENERAL", 0x0000_0001),
    keyword("Process", 0x2, "INSWAP", 0x2000_0800),
    keyword("Process", 0x4, "FREEZE", 0x4000_0002),
    keyword("Process", 0x8, "PERF_COUNTER", 0x0000_0008),
    keyword("Process", 0x10, "WAKE_COUNTER", 0x8000_2000),
    keyword("Process", 0x20, "WAKE_DROP", 0x8000_0200),
    keyword("Process", 0x40, "WAKE_EVENT", 0x8000_0400),
    keyword("Process", 0x80, "DEBUG_EVENTS", 0x0040_0000),
    keyword("Process", 0x100, "DBGPRINT", 0x0004_0000),
    keyword("Process", 0x200, "JOB", 0x0008_0000),
    keyword("Process", 0x400, "WORKER_THREAD", 0x4800_0000),
    keyword("Process", 0x800, "THREAD", 0x0000_0002),
    keyword("Process", 0x1000, "LOADER", 0x0000_0004),
    keyword("Profile", 0x1, "GENERAL", 0x0100_0000),
    keyword("Profile", 0x2, "PMC_PROFILE", 0x2000_0400),
    keyword("Registry", 0x1, "GENERAL", 0x0002_0000),
    keyword("Registry", 0x2, "HIVE", 0x4100_0000),
    keyword("Registry", 0x4, "NOTIFICATION", 0x4200_0000),
    keyword("Scheduler", 0x1, "XSCHEDULER", 0),
    keyword("Scheduler", 0x2, "DISPATCHER", 0x0000_0800),
    keyword("Scheduler", 0x4, "KERNEL_QUEUE", 0x2100_0000),
    keyword("Scheduler", 0x8, "SHOULD_YIELD", 0x2400_0000),
    keyword("Scheduler", 0x10, "ANTI_STARVATION", 0x4000_0001),
    keyword("Scheduler", 0x20, "LOAD_BALANCER", 0x4008_0000),
    keyword("Scheduler", 0x40, "AFFINITY", 0x2000_1000),
    keyword("Scheduler", 0x80, "PRIORITY", 0x2000_2000),
    keyword("Scheduler", 0x100, "IDEAL_PROCESSOR", 0),
    keyword("Scheduler", 0x200, "CONTEXT_SWITCH", 0x0000_0010),
    keyword("Scheduler", 0x400, "COMPACT_CSWITCH", 0x2000_0100),
    keyword("Scheduler", 0x800, "SCHEDULE_THREAD", 0),
    keyword("Scheduler", 0x1000, "READY_QUEUE", 0),
    keyword("Scheduler", 0x2000, "CPU_PARTITION", 0),
    keyword("Scheduler", 0x4000, "THREAD_FEEDBACK_READ", 0),
    keyword("Scheduler", 0x8000, "WORKLOAD_CLASS_UPDATE", 0),
    keyword("Scheduler", 0x10000, "AUTOBOOST", 0),
    keyword("Syscall", 0x1, "GENERAL", 0x0000_0080),
    keyword("Timer", 0x1, "GENERAL", 0x4002_0000),
    keyword("Timer", 0x2, "CLOCK_TIMER", 0x4010_0000),
];
