//! Hook ids: the 16-bit numbers of kernel events, group in the high byte and type in the low byte.
//!
//! ```text
//!   0x0524   group 05 (class Thread), type 24 (CSwitch)       CONTEXT_SWITCH
//!   0x030A   group 03, but of class Image, type 0A (Load)     IMAGE_LOAD
//! ```
//!
//! The constants name the events that this project writes, reads or reports; the tables of
//! [`kernel`](super) also describe many others. A test checks that each constant agrees with the
//! table of its event.

use crate::guid::Guid;
use crate::spec::event::class;

/// Defines hook ids, each with the name (`Class/Type`) of its event in the tables.
macro_rules! hooks {
    ($($name:ident = $hook:literal $event:literal;)*) => {
        $(
            #[doc = concat!("`", $event, "`, ", stringify!($hook), ".")]
            pub const $name: u16 = $hook;
        )*

        #[cfg(test)]
        pub(super) const NAMED_HOOKS: &[(u16, &str)] = &[$(($hook, $event)),*];
    };
}

hooks! {
    LOG_FILE_HEADER = 0x0000 "EventTrace/Header";
    GROUP_MASKS = 0x0005 "EventTrace/Extension";
    RUNDOWN_COMPLETE = 0x0008 "EventTrace/RDComplete";
    END_GROUP_MASKS = 0x0020 "EventTrace/EndExtension";
    BUILD_INFO = 0x0042 "EventTrace/BuildInfo";

    DISK_READ = 0x010A "DiskIo/Read";
    DISK_WRITE = 0x010B "DiskIo/Write";
    DISK_READ_INIT = 0x010C "DiskIo/ReadInit";
    DISK_WRITE_INIT = 0x010D "DiskIo/WriteInit";
    DISK_FLUSH = 0x010E "DiskIo/FlushBuffers";
    DISK_FLUSH_INIT = 0x010F "DiskIo/FlushInit";
    OPTICAL_READ = 0x0137 "DiskIo/OpticalRead";
    OPTICAL_WRITE = 0x0138 "DiskIo/OpticalWrite";
    OPTICAL_FLUSH = 0x0139 "DiskIo/OpticalFlushBuffers";

    TRANSITION_FAULT = 0x020A "PageFault/TransitionFault";
    DEMAND_ZERO_FAULT = 0x020B "PageFault/DemandZeroFault";
    COPY_ON_WRITE = 0x020C "PageFault/CopyOnWrite";
    ACCESS_VIOLATION = 0x020F "PageFault/AccessViolation";
    HARD_FAULT = 0x0220 "PageFault/HardFault";
    VIRTUAL_ALLOC = 0x0262 "PageFault/VirtualAlloc";
    VIRTUAL_FREE = 0x0263 "PageFault/VirtualFree";

    PROCESS_START = 0x0301 "Process/Start";
    PROCESS_END = 0x0302 "Process/End";
    PROCESS_DC_START = 0x0303 "Process/DCStart";
    PROCESS_DC_END = 0x0304 "Process/DCEnd";
    PROCESS_TERMINATE = 0x030B "Process/Terminate";
    PROCESS_COUNTERS = 0x0320 "Process/PerfCtr";
    PROCESS_COUNTERS_RUNDOWN = 0x0321 "Process/PerfCtrRundown";
    PROCESS_DEFUNCT = 0x0327 "Process/Defunct";

    FILE_NAME = 0x0400 "FileIo/Name";
    FILE_NAME_CREATE = 0x0420 "FileIo/FileCreate";
    FILE_NAME_DELETE = 0x0423 "FileIo/FileDelete";
    FILE_NAME_RUNDOWN = 0x0424 "FileIo/FileRundown";
    FILE_CREATE = 0x0440 "FileIo/Create";
    FILE_CLEANUP = 0x0441 "FileIo/Cleanup";
    FILE_CLOSE = 0x0442 "FileIo/Close";
    FILE_READ = 0x0443 "FileIo/Read";
    FILE_WRITE = 0x0444 "FileIo/Write";
    FILE_SET_INFO = 0x0445 "FileIo/SetInfo";
    FILE_DELETE = 0x0446 "FileIo/Delete";
    FILE_RENAME = 0x0447 "FileIo/Rename";
    FILE_DIR_ENUM = 0x0448 "FileIo/DirEnum";
    FILE_FLUSH = 0x0449 "FileIo/Flush";
    FILE_QUERY_INFO = 0x044A "FileIo/QueryInfo";
    FILE_OPERATION_END = 0x044C "FileIo/OperationEnd";

    THREAD_START = 0x0501 "Thread/Start";
    THREAD_END = 0x0502 "Thread/End";
    THREAD_DC_START = 0x0503 "Thread/DCStart";
    THREAD_DC_END = 0x0504 "Thread/DCEnd";
    CONTEXT_SWITCH = 0x0524 "Thread/CSwitch";
    COMPACT_SWITCHES = 0x0525 "Thread/CompCS";
    SET_PRIORITY = 0x0530 "Thread/SetPriority";
    READY_THREAD = 0x0532 "Thread/ReadyThread";
    THREAD_SET_NAME = 0x0548 "Thread/SetName";

    TCP_SEND = 0x060A "TcpIp/Send";
    TCP_RECEIVE = 0x060B "TcpIp/Recv";
    TCP_CONNECT = 0x060C "TcpIp/Connect";
    TCP_DISCONNECT = 0x060D "TcpIp/Disconnect";
    TCP_RETRANSMIT = 0x060E "TcpIp/Retransmit";
    TCP_ACCEPT = 0x060F "TcpIp/Accept";
    TCP_RECONNECT = 0x0610 "TcpIp/Reconnect";
    TCP_FAIL = 0x0611 "TcpIp/Fail";

    UDP_SEND = 0x080A "UdpIp/Send";
    UDP_RECEIVE = 0x080B "UdpIp/Recv";
    UDP_FAIL = 0x0811 "UdpIp/Fail";

    CONFIG_CPU = 0x0B0A "SystemConfig/CPU";
    CONFIG_PHYSICAL_DISK = 0x0B0B "SystemConfig/PhyDisk";
    CONFIG_LOGICAL_DISK = 0x0B0C "SystemConfig/LogDisk";
    CONFIG_NIC = 0x0B0D "SystemConfig/NIC";
    CONFIG_POWER = 0x0B10 "SystemConfig/Power";
    CONFIG_NETWORK = 0x0B11 "SystemConfig/Network";
    CONFIG_IRQ = 0x0B15 "SystemConfig/IRQ";
    CONFIG_NUMA_NODE = 0x0B18 "SystemConfig/NumaNode";
    CONFIG_PLATFORM = 0x0B19 "SystemConfig/Platform";
    CONFIG_PROCESSOR_GROUP = 0x0B1A "SystemConfig/ProcessorGroup";
    CONFIG_PROCESSOR_NUMBER = 0x0B1B "SystemConfig/ProcessorNumber";
    CONFIG_PROCESSORS = 0x0B23 "SystemConfig/Processors";
    CONFIG_VIRTUALIZATION = 0x0B24 "SystemConfig/Virtualization";
    CONFIG_BOOT = 0x0B25 "SystemConfig/Boot";

    SAMPLED_PROFILE = 0x0F2E "PerfInfo/SampleProf";
    PMC_PROFILE = 0x0F2F "PerfInfo/PmcCounterProf";
    PMC_CONFIG = 0x0F30 "PerfInfo/PmcCtrConfig";
    SYSCALL_ENTER = 0x0F33 "PerfInfo/SysClEnter";
    SYSCALL_EXIT = 0x0F34 "PerfInfo/SysClExit";
    ISR = 0x0F43 "PerfInfo/ISR";
    DPC = 0x0F44 "PerfInfo/DPC";
    TIMER_DPC = 0x0F45 "PerfInfo/TimerDPC";
    PROFILE_SET_INTERVAL = 0x0F48 "PerfInfo/SetInterval";
    PROFILE_START = 0x0F49 "PerfInfo/CollectionStart";
    PROFILE_END = 0x0F4A "PerfInfo/CollectionEnd";

    IMAGE_LOAD = 0x030A "Image/Load";
    IMAGE_UNLOAD = 0x1402 "Image/UnLoad";
    IMAGE_DC_START = 0x1403 "Image/DCStart";
    IMAGE_DC_END = 0x1404 "Image/DCEnd";
    KERNEL_BASE = 0x1421 "Image/KernelBase";

    STACK_WALK = 0x1820 "StackWalk/Stack";
    STACK_KEY_CREATE = 0x1822 "StackWalk/StackKeyCreate";
    STACK_KEY_DELETE = 0x1823 "StackWalk/StackKeyDelete";
    STACK_KEY_RUNDOWN = 0x1824 "StackWalk/StackKeyRundown";
    STACK_KEY_KERNEL = 0x1825 "StackWalk/StackKeyKernel";
    STACK_KEY_USER = 0x1826 "StackWalk/StackKeyUser";
    CONTEXT_REGISTERS = 0x1830 "StackWalk/ContextRegisters";

    SPLIT_IO = 0x1B20 "SplitIo/VolMgr";
}

/// The group byte of image events. [`IMAGE_LOAD`] is one of them, although its own group byte is 3.
const GROUP_IMAGE: u8 = 0x14;

/// Returns the group that a consumer sees for a hook id.
#[must_use]
pub const fn group_of(hook: u16) -> u8 {
    if hook == IMAGE_LOAD { GROUP_IMAGE } else { hook.to_le_bytes()[1] }
}

/// Returns the event type of a hook id.
#[must_use]
pub const fn type_of(hook: u16) -> u8 {
    hook.to_le_bytes()[0]
}

/// Returns the hook id of the IPv6 event that corresponds to an IPv4 event of TCP or UDP.
#[must_use]
pub const fn to_ipv6(hook: u16) -> u16 {
    hook.saturating_add(0x10)
}

/// Returns the class GUID that a consumer sees for a hook id; null for groups without one.
#[must_use]
#[allow(clippy::indexing_slicing)] // The comparison before it checks the index.
pub const fn class_of(hook: u16) -> Guid {
    const GROUPS: &[(Guid, &str)] = &class::GROUPS;
    let group = group_of(hook) as usize;
    if group < GROUPS.len() { GROUPS[group].0 } else { Guid::NULL }
}

/// Returns the hook id of a kernel event by its class and type: the reverse of [`class_of`] and
/// [`type_of`]. `None` if no hook id has this class and type.
#[must_use]
pub fn hook_of(class: &Guid, opcode: u8) -> Option<u16> {
    let group = class::GROUPS.iter().position(|(known, _)| known == class)?;
    let regular_hook = u16::from_le_bytes([opcode, u8::try_from(group).ok()?]);
    let has_class_and_type = |hook: &u16| class_of(*hook) == *class && type_of(*hook) == opcode;
    [IMAGE_LOAD, regular_hook].into_iter().find(has_class_and_type)
}

/// Returns whether a class is a class of kernel events.
#[must_use]
pub fn is_kernel_class(class: &Guid) -> bool {
    class::GROUPS.iter().any(|(known, _)| known == class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::event_name;

    #[test]
    fn hook_constants_have_the_class_and_type_of_the_tables() {
        for (hook, name) in NAMED_HOOKS {
            assert_eq!(event_name(&class_of(*hook), type_of(*hook)), *name, "{hook:#06x}");
            assert_eq!(hook_of(&class_of(*hook), type_of(*hook)), Some(*hook), "{name}");
        }
    }

    #[test]
    fn ipv6_events_have_the_names_of_their_ipv4_events() {
        for hook in [TCP_SEND, TCP_RECEIVE, TCP_CONNECT, TCP_ACCEPT, TCP_RECONNECT, UDP_SEND, UDP_RECEIVE] {
            let name = |hook| event_name(&class_of(hook), type_of(hook));
            assert_eq!(name(to_ipv6(hook)), name(hook) + "IPV6");
        }
    }
}
