//! Processors: their models, their numbering, and the memory near them.
//!
//! ```text
//!   /proc/cpuinfo, /sys/devices/system/{cpu,node} ──▶ 0x0B0A CPU │ 0x0B18 NumaNode
//!       │ 0x0B1A ProcessorGroup │ 0x0B1B ProcessorNumber │ 0x0B23 Processors
//! ```
//!
//! Linux has no processor groups: every 64 consecutive processors form a group, so that number =
//! group × 64 + index.

use traceweir_format::kernel::{PayloadLayout, RepeatedValues, hook};
use traceweir_format::put_kernel_event;

use super::event::ConfigEvent;
use super::machine_files::{MachineFiles, parse_list, parse_mask};

/// The most processors that are written.
const MAX_PROCESSORS: u32 = 4096;
const PROCESSORS_PER_GROUP: u32 = 64;

const CPU_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_CPU, 3);
const NODES_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_NUMA_NODE, 2);
const GROUPS_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_PROCESSOR_GROUP, 2);
const NUMBERS_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_PROCESSOR_NUMBER, 2);
const PROCESSOR_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_PROCESSORS, 2);

/// A block of `key: value` lines in `/proc/cpuinfo` or `/proc/meminfo`.
struct InfoBlock<'a> {
    lines: &'a str,
}

impl<'a> InfoBlock<'a> {
    /// Returns the value of a key; empty if it is missing.
    fn find_value(&self, name: &str) -> &'a str {
        let value = |line: &'a str| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim())
        };
        self.lines.lines().find_map(value).unwrap_or_default()
    }

    fn find_number(&self, name: &str) -> u32 {
        let digits = self.find_value(name).split('.').next().unwrap_or_default();
        digits.parse().unwrap_or(0)
    }

    fn has_flag(&self, flag: &str) -> bool {
        self.find_value("flags").split(' ').any(|word| word == flag)
    }
}

fn read_online(files: &MachineFiles) -> Vec<u32> {
    parse_list(&files.read_text("/sys/devices/system/cpu/online"), MAX_PROCESSORS)
}

/// Returns whether the machine is a virtual machine.
pub(super) fn is_virtual_machine(files: &MachineFiles) -> bool {
    InfoBlock { lines: &files.read_text("/proc/cpuinfo") }.has_flag("hypervisor")
}

pub(super) fn add_events(files: &MachineFiles, events: &mut Vec<ConfigEvent>) {
    let online = read_online(files);
    let text = files.read_text("/proc/cpuinfo");
    events.push(build_cpu_event(files, &online, &InfoBlock { lines: &text }));
    events.extend(build_nodes_event(files));
    events.push(build_groups_event(&online));
    events.push(build_numbers_event(&online));
    for block in text.split("\n\n").take(usize::try_from(MAX_PROCESSORS).unwrap_or(0)) {
        events.extend(build_processor_event(&InfoBlock { lines: block }, &read_architecture(files)));
    }
}

fn read_architecture(files: &MachineFiles) -> String {
    let name = files.read_text("/proc/sys/kernel/arch");
    if name.is_empty() { std::env::consts::ARCH.to_owned() } else { name }
}

fn build_cpu_event(files: &MachineFiles, online: &[u32], info: &InfoBlock<'_>) -> ConfigEvent {
    let memory = files.read_text("/proc/meminfo");
    let memory_kib: u64 = InfoBlock { lines: &memory }
        .find_value("MemTotal")
        .split(' ')
        .next()
        .unwrap_or("")
        .parse()
        .unwrap_or(0);
    let page = u32::try_from(rustix::param::page_size()).unwrap_or(0);
    let has_siblings = |cpu: &&u32| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        parse_list(&files.read_text(&path), MAX_PROCESSORS).len() > 1
    };
    let hyper_threaded = online.iter().filter(|cpu| **cpu < PROCESSORS_PER_GROUP).filter(has_siblings);
    let hyper_threaded = hyper_threaded.fold(0_u64, |mask, cpu| mask | 1_u64.unbounded_shl(*cpu));
    // The numbers are PROCESSOR_ARCHITECTURE_AMD64, _ARM64 and _UNKNOWN.
    let (architecture_number, highest_user_address): (u16, u64) = match &*read_architecture(files) {
        "x86_64" if info.has_flag("la57") => (9, 0x00FF_FFFF_FFFF_EFFF),
        "x86_64" => (9, 0x0000_7FFF_FFFF_EFFF),
        // The builder of the kernel chooses the size of the user address space, and no file
        // contains it.
        "aarch64" => (12, 0),
        _ => (0xFFFF, 0),
    };
    let domain = files.read_text("/proc/sys/kernel/domainname");
    let (model, stepping) = (info.find_number("model") & 0xFF, info.find_number("stepping") & 0xFF);
    let mut out = Vec::new();
    put_kernel_event!(&mut out, CPU_LAYOUT, {
        MHz: info.find_number("cpu MHz"),
        NumberOfProcessors: u32::try_from(online.len()).unwrap_or(0),
        MemSize: u32::try_from(memory_kib >> 10).unwrap_or(u32::MAX),
        PageSize: page,
        AllocationGranularity: page,
        ComputerName: files.read_text("/proc/sys/kernel/hostname").as_str(),
        DomainName: Some(&*domain).filter(|name| *name != "(none)").unwrap_or(""),
        HyperThreadingFlag: hyper_threaded,
        HighestUserAddress: highest_user_address,
        ProcessorArchitecture: architecture_number,
        ProcessorLevel: u16::try_from(info.find_number("cpu family")).unwrap_or(0),
        ProcessorRevision: u16::try_from(model << 8 | stepping).unwrap_or(0),
        PaeEnabled: u8::from(info.has_flag("pae")),
        NxEnabled: u8::from(info.has_flag("nx")),
    });
    ConfigEvent::new(hook::CONFIG_CPU, &CPU_LAYOUT, out)
}

fn build_nodes_event(files: &MachineFiles) -> Option<ConfigEvent> {
    let folder = "/sys/devices/system/node";
    let is_node =
        |name: &String| name.strip_prefix("node").is_some_and(|digits| digits.parse::<u16>().is_ok());
    let names: Vec<String> = files.list_names(folder).into_iter().filter(is_node).collect();
    let count = u32::try_from(names.len()).ok().filter(|count| *count > 0)?;
    let masks = names.iter().map(|name| parse_mask(&files.read_text(&format!("{folder}/{name}/cpumap"))));
    let mut out = Vec::new();
    put_kernel_event!(&mut out, NODES_LAYOUT, { NodeCount: count }, { NodeMap: RepeatedValues(masks) });
    Some(ConfigEvent::new(hook::CONFIG_NUMA_NODE, &NODES_LAYOUT, out))
}

fn build_groups_event(online: &[u32]) -> ConfigEvent {
    let last_group = online.iter().max().map_or(0, |cpu| cpu / PROCESSORS_PER_GROUP);
    let masks = (0..=last_group).map(|group| {
        let members = online.iter().filter(|cpu| **cpu / PROCESSORS_PER_GROUP == group);
        members.fold(0, |mask, cpu| mask | 1_u64.unbounded_shl(cpu % PROCESSORS_PER_GROUP))
    });
    let mut out = Vec::new();
    put_kernel_event!(
        &mut out,
        GROUPS_LAYOUT,
        { GroupCount: last_group.saturating_add(1) },
        { Affinity: RepeatedValues(masks) }
    );
    ConfigEvent::new(hook::CONFIG_PROCESSOR_GROUP, &GROUPS_LAYOUT, out)
}

fn build_numbers_event(online: &[u32]) -> ConfigEvent {
    // A structure PROCESSOR_NUMBER: u16 group, u8 index in the group, u8 reserved.
    let numbers =
        online.iter().map(|cpu| (cpu / PROCESSORS_PER_GROUP) | ((cpu % PROCESSORS_PER_GROUP) << 16));
    let mut out = Vec::new();
    put_kernel_event!(
        &mut out,
        NUMBERS_LAYOUT,
        { ProcessorCount: u32::try_from(online.len()).unwrap_or(0) },
        { ProcessorNumber: RepeatedValues(numbers) }
    );
    ConfigEvent::new(hook::CONFIG_PROCESSOR_NUMBER, &NUMBERS_LAYOUT, out)
}

fn build_processor_event(info: &InfoBlock<'_>, architecture: &str) -> Option<ConfigEvent> {
    let index: u32 = info.find_value("processor").parse().ok()?;
    let vendor = info.find_value("vendor_id");
    let identifier = if vendor.is_empty() {
        architecture.to_owned()
    } else {
        let (family, model) = (info.find_number("cpu family"), info.find_number("model"));
        format!("{architecture} Family {family} Model {model} Stepping {}", info.find_number("stepping"))
    };
    let mut out = Vec::new();
    put_kernel_event!(&mut out, PROCESSOR_LAYOUT, {
        ProcessorIndex: index,
        ProcessorSpeed: info.find_number("cpu MHz"),
        ProcessorName: info.find_value("model name"),
        VendorIdentifier: vendor,
        ProcessorIdentifier: identifier.as_str(),
    });
    Some(ConfigEvent::new(hook::CONFIG_PROCESSORS, &PROCESSOR_LAYOUT, out))
}
