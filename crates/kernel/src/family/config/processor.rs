//! Processors: their models, their numbering, and the memory near them.
//!
//! ```text
//!   /proc/cpuinfo, /sys/devices/system/{cpu,node} ──▶ 0x0B0A CPU │ 0x0B18 NumaNode
//!       │ 0x0B1A ProcessorGroup │ 0x0B1B ProcessorNumber │ 0x0B23 Processors
//! ```
//!
//! Linux has no processor groups: each 64 consecutive processors form one, so that number = group ×
//! 64 + index.

use traceweir_format::kernel::{PayloadLayout, RepeatedValues, hook};
use traceweir_format::put_kernel_event;

use super::event::ConfigEvent;
use super::machine_files::{MachineFiles, parse_list, parse_mask};

/// The most processors that are written.
const MAX_PROCESSORS: u32 = 4096;
const GROUP_SIZE: u32 = 64;

const CPU_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_CPU, 3);
const NODES_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_NUMA_NODE, 2);
const GROUPS_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_PROCESSOR_GROUP, 2);
const NUMBERS_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_PROCESSOR_NUMBER, 2);
const PROCESSOR_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_PROCESSORS, 2);

/// One block of `/proc/cpuinfo`.
struct Info<'a> {
    lines: &'a str,
}

impl<'a> Info<'a> {
    /// Returns the value of a key; empty if it is missing.
    fn get(&self, name: &str) -> &'a str {
        let value = |line: &'a str| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim())
        };
        self.lines.lines().find_map(value).unwrap_or_default()
    }

    fn number(&self, name: &str) -> u32 {
        let digits = self.get(name).split('.').next().unwrap_or_default();
        digits.parse().unwrap_or(0)
    }

    fn has_flag(&self, flag: &str) -> bool {
        self.get("flags").split(' ').any(|word| word == flag)
    }
}

fn read_online(source: &MachineFiles) -> Vec<u32> {
    parse_list(&source.text("/sys/devices/system/cpu/online"), MAX_PROCESSORS)
}

/// Whether the machine is a virtual machine.
pub(super) fn is_guest(source: &MachineFiles) -> bool {
    Info { lines: &source.text("/proc/cpuinfo") }.has_flag("hypervisor")
}

pub(super) fn add_events(source: &MachineFiles, events: &mut Vec<ConfigEvent>) {
    let online = read_online(source);
    let text = source.text("/proc/cpuinfo");
    events.push(cpu(source, &online, &Info { lines: &text }));
    events.extend(nodes(source));
    events.push(groups(&online));
    events.push(numbers(&online));
    for block in text.split("\n\n").take(usize::try_from(MAX_PROCESSORS).unwrap_or(0)) {
        events.extend(processor(&Info { lines: block }, &architecture(source)));
    }
}

fn architecture(source: &MachineFiles) -> String {
    let name = source.text("/proc/sys/kernel/arch");
    if name.is_empty() { std::env::consts::ARCH.to_owned() } else { name }
}

fn cpu(source: &MachineFiles, online: &[u32], info: &Info<'_>) -> ConfigEvent {
    let memory = source.text("/proc/meminfo");
    let kib: u64 =
        Info { lines: &memory }.get("MemTotal").split(' ').next().unwrap_or("").parse().unwrap_or(0);
    let page = u32::try_from(rustix::param::page_size()).unwrap_or(0);
    let shares = |cpu: &&u32| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        parse_list(&source.text(&path), MAX_PROCESSORS).len() > 1
    };
    let shared = online.iter().filter(|cpu| **cpu < GROUP_SIZE).filter(shares);
    let shared = shared.fold(0_u64, |mask, cpu| mask | 1_u64.unbounded_shl(*cpu));
    let (number, highest): (u16, u64) = match &*architecture(source) {
        "x86_64" if info.has_flag("la57") => (9, 0x00FF_FFFF_FFFF_EFFF),
        "x86_64" => (9, 0x0000_7FFF_FFFF_EFFF),
        // The builder of the kernel chooses the size of the user address space, and no file
        // contains it.
        "aarch64" => (12, 0),
        _ => (0xFFFF, 0),
    };
    let domain = source.text("/proc/sys/kernel/domainname");
    let (model, stepping) = (info.number("model") & 0xFF, info.number("stepping") & 0xFF);
    let mut out = Vec::new();
    put_kernel_event!(&mut out, CPU_LAYOUT, {
        MHz: info.number("cpu MHz"),
        NumberOfProcessors: u32::try_from(online.len()).unwrap_or(0),
        MemSize: u32::try_from(kib >> 10).unwrap_or(u32::MAX),
        PageSize: page,
        AllocationGranularity: page,
        ComputerName: source.text("/proc/sys/kernel/hostname").as_str(),
        DomainName: Some(&*domain).filter(|name| *name != "(none)").unwrap_or(""),
        HyperThreadingFlag: shared,
        HighestUserAddress: highest,
        ProcessorArchitecture: number,
        ProcessorLevel: u16::try_from(info.number("cpu family")).unwrap_or(0),
        ProcessorRevision: u16::try_from(model << 8 | stepping).unwrap_or(0),
        PaeEnabled: u8::from(info.has_flag("pae")),
        NxEnabled: u8::from(info.has_flag("nx")),
    });
    ConfigEvent::new(hook::CONFIG_CPU, &CPU_LAYOUT, out)
}

fn nodes(source: &MachineFiles) -> Option<ConfigEvent> {
    let folder = "/sys/devices/system/node";
    let is_node =
        |name: &String| name.strip_prefix("node").is_some_and(|digits| digits.parse::<u16>().is_ok());
    let names: Vec<String> = source.names(folder).into_iter().filter(is_node).collect();
    let count = u32::try_from(names.len()).ok().filter(|count| *count > 0)?;
    let masks = names.iter().map(|name| parse_mask(&source.text(&format!("{folder}/{name}/cpumap"))));
    let mut out = Vec::new();
    put_kernel_event!(&mut out, NODES_LAYOUT, { NodeCount: count }, { NodeMap: RepeatedValues(masks) });
    Some(ConfigEvent::new(hook::CONFIG_NUMA_NODE, &NODES_LAYOUT, out))
}

fn groups(online: &[u32]) -> ConfigEvent {
    let last = online.iter().max().map_or(0, |cpu| cpu / GROUP_SIZE);
    let masks = (0..=last).map(|group| {
        let own = online.iter().filter(|cpu| **cpu / GROUP_SIZE == group);
        own.fold(0, |mask, cpu| mask | 1_u64.unbounded_shl(cpu % GROUP_SIZE))
    });
    let mut out = Vec::new();
    put_kernel_event!(
        &mut out,
        GROUPS_LAYOUT,
        { GroupCount: last.saturating_add(1) },
        { Affinity: RepeatedValues(masks) }
    );
    ConfigEvent::new(hook::CONFIG_PROCESSOR_GROUP, &GROUPS_LAYOUT, out)
}

fn numbers(online: &[u32]) -> ConfigEvent {
    let numbers = online.iter().map(|cpu| (cpu / GROUP_SIZE) | ((cpu % GROUP_SIZE) << 16));
    let mut out = Vec::new();
    put_kernel_event!(
        &mut out,
        NUMBERS_LAYOUT,
        { ProcessorCount: u32::try_from(online.len()).unwrap_or(0) },
        { ProcessorNumber: RepeatedValues(numbers) }
    );
    ConfigEvent::new(hook::CONFIG_PROCESSOR_NUMBER, &NUMBERS_LAYOUT, out)
}

fn processor(info: &Info<'_>, architecture: &str) -> Option<ConfigEvent> {
    let index: u32 = info.get("processor").parse().ok()?;
    let vendor = info.get("vendor_id");
    let identifier = if vendor.is_empty() {
        architecture.to_owned()
    } else {
        let (family, model) = (info.number("cpu family"), info.number("model"));
        format!("{architecture} Family {family} Model {model} Stepping {}", info.number("stepping"))
    };
    let mut out = Vec::new();
    put_kernel_event!(&mut out, PROCESSOR_LAYOUT, {
        ProcessorIndex: index,
        ProcessorSpeed: info.number("cpu MHz"),
        ProcessorName: info.get("model name"),
        VendorIdentifier: vendor,
        ProcessorIdentifier: identifier.as_str(),
    });
    Some(ConfigEvent::new(hook::CONFIG_PROCESSORS, &PROCESSOR_LAYOUT, out))
}
