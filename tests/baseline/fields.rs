//! Fields that TraceEvent renames or computes, and how each value follows from our event.
//!
//! A field that is not listed has the name that its schema gives it, in any case.

use serde_json::Value;

use super::ours::{Ours, Trace};

/// Origin of the value of a field of TraceEvent.
enum Origin {
    /// A field with another name.
    Is(&'static str),
    /// A number for which TraceEvent has names and our schema has none.
    Spelled(&'static str, &'static [(i128, &'static str)]),
    /// A value that TraceEvent computes.
    From(fn(&Ours, &Trace) -> Value),
    /// No value: the version of the event lacks the field, and TraceEvent prints its default.
    Nothing,
}
use Origin::{From, Is, Nothing, Spelled};

/// Event (`*` for any, or a prefix and `*`), field, origin. The first matching row counts.
#[rustfmt::skip]
const FIELDS: &[(&str, &str, Origin)] = &[
    // Kernel: other names.
    ("Windows Kernel/Process/*", "PageDirectoryBase", Is("DirectoryTableBase")),
    ("Windows Kernel/Process/PerfCtr*", "MemoryCount", Is("PageFaultCount")),
    ("Windows Kernel/Thread/*", "StartAddr", Is("Affinity")),
    ("Windows Kernel/Thread/*", "ThreadName", Nothing),
    ("Windows Kernel/PerfInfo/*", "SampleSource", Is("Source")),
    ("Windows Kernel/DiskIO/*", "FileKey", Is("FileObject")),
    ("Windows Kernel/Memory/HardFault", "FileKey", Is("FileObject")),
    ("Windows Kernel/SysConfig/UnknownVolume", "Value", Is("VolumePath")),
    ("Windows Kernel/EventTrace", "SessionName", Is("SessionNameString")),
    ("Windows Kernel/EventTrace", "LogFileName", Is("LogFileNameString")),
    // Kernel: computed.
    ("Windows Kernel/EventTrace", "UtcOffsetMinutes", From(utc_offset)),
    ("*", "BuildTime", From(build_time)),
    ("Windows Kernel/Image/*", "FileName", From(|o, t| drive(o.text("FileName"), t))),
    ("Windows Kernel/DiskIO/*", "FileName", From(file_of_key)),
    ("Windows Kernel/Memory/HardFault", "FileName", From(file_of_key)),
    ("Windows Kernel/DiskIO/*", "ElapsedTimeMSec", From(response_time)),
    ("Windows Kernel/DiskIO/*", "DiskServiceTimeMSec", From(response_time)),
    ("Windows Kernel/Memory/HardFault", "ElapsedTimeMSec", From(fault_time)),
    ("Windows Kernel/DiskIO/*", "Priority", From(|o, _| spell(o.number("IrpFlags") >> 17 & 7, IO_PRIORITIES))),
    ("Windows Kernel/DiskIO/*", "IrpFlags", From(|o, _| flags(o.number("IrpFlags") & 0xFFFF, IRP_FLAGS))),
    ("Windows Kernel/PerfInfo/Sample", "ProcessorNumber", From(|o, _| o.event["cpu"].clone())),
    ("Windows Kernel/PerfInfo/Sample", "Priority", From(|o, _| int(o.number("Flags") >> 3))),
    ("Windows Kernel/PerfInfo/Sample", "ExecutingDPC", From(|o, _| (o.number("Flags") & 1 != 0).into())),
    ("Windows Kernel/PerfInfo/Sample", "ExecutingISR", From(|o, _| (o.number("Flags") & 2 != 0).into())),
    ("Windows Kernel/Thread/Start", "ParentProcessID", From(|o, _| o.event["pid"].clone())),
    ("Windows Kernel/Thread/Start", "ParentThreadID", From(|o, _| o.event["tid"].clone())),
    ("Windows Kernel/Thread/Stop", "ParentProcessID", Nothing),
    ("Windows Kernel/Thread/Stop", "ParentThreadID", Nothing),
    ("Windows Kernel/SystemConfig/Services", "ProcessName", From(process_name)),
    ("Windows Kernel/SystemConfig/NIC", "PhysicalAddr", From(eight_bytes_as_a_number)),
    // Manifest events of Windows.
    ("Microsoft-Windows-Kernel-File/Create", "IrpPtr", Is("Irp")),
    ("Microsoft-Windows-Kernel-File/Create", "FileAttributes", Is("CreateAttributes")),
    ("Microsoft-Windows-Kernel-File/Create", "FileName", From(|o, t| drive(o.text("FileName"), t))),
    ("Microsoft-Windows-Kernel-File/Create", "ShareAccess", Spelled("ShareAccess", SHARE_ACCESS)),
    ("Microsoft-Windows-Kernel-File/Create", "CreateDisposition", From(|o, _| spell(o.number("CreateOptions") >> 24, DISPOSITIONS))),
    ("Microsoft-Windows-Kernel-File/Create", "CreateOptions", From(|o, _| int(o.number("CreateOptions") & 0xFF_FFFF))),
    // Event sources.
    ("*", "PayloadLength", From(|o, _| o.event["len"].clone())),
    // .NET: other names, and names of numbers.
    ("*/GC/MarkWithType", "Promoted", Is("Bytes")),
    ("*/Type/BulkType", "TypeID_0", From(|o, _| o.event["fields"]["Values"][0]["TypeID"].clone())),
    ("*/Type/BulkType", "TypeName_0", From(|o, _| o.event["fields"]["Values"][0]["Name"].clone())),
    ("*/GC/CreateSegment", "Type", Spelled("Type", SEGMENT_TYPES)),
    ("*/GC/GlobalHeapHistory", "Reason", Spelled("Reason", GC_REASONS)),
    ("*Runtime/GC/GlobalHeapHistory", "PauseMode", Spelled("PauseMode", PAUSE_MODES)),
    ("*/GC/GlobalHeapHistory", "GlobalMechanisms", From(|o, _| flags(o.number("GlobalMechanisms"), GC_MECHANISMS))),
    ("*Runtime/GC/PerHeapHistory", "CompactMechanisms", Spelled("CompactMechanisms", COMPACT_MECHANISMS)),
    ("*Runtime/GC/PerHeapHistory", "ExpandMechanisms", Spelled("ExpandMechanisms", COMPACT_MECHANISMS)),
    ("*/Loader/AssemblyDCStop", "AssemblyFlags", Spelled("AssemblyFlags", ASSEMBLY_FLAGS)),
    ("*/NgenBinder/NgenBind", "ReasonCode", Spelled("ReasonCode", BIND_REASONS)),
    // .NET: computed.
    ("*", "ModuleILFileName", From(file_of_module)),
    ("*/GC/FinalizeObject", "TypeName", From(name_of_type)),
    ("*/GC/HeapStats", "TotalHeapSize", From(|o, _| int(sum_of_generations(o, "GenerationSize", 0)))),
    ("*/GC/HeapStats", "TotalPromoted", From(|o, _| int(sum_of_generations(o, "TotalPromotedSize", 8)))),
    ("*/GC/HeapStats", "Depth", From(depth)),
    // .NET: not in this version of the event.
    ("*/GC/HeapStats", "GenerationSize4", Nothing),
    ("*/GC/HeapStats", "TotalPromotedSize4", Nothing),
    ("*/GC/AllocationTick", "ObjectSize", Nothing),
    ("*/GC/Start", "ClientSequenceNumber", Nothing),
    ("Microsoft-Windows-DotNETRuntime/Method/*", "OptimizationTier", Nothing),
    ("Microsoft-Windows-DotNETRuntime/Method/*", "ReJITID", Nothing),
    ("*Runtime/GC/PerHeapHistory", "ConcurrentCompactMechanisms", Nothing),
    ("*Runtime/GC/PerHeapHistory", "MemoryPressure", Nothing),
    ("*Private/GC/GlobalHeapHistory", "PauseMode", Nothing),
    ("*Private/GC/GlobalHeapHistory", "MemoryPressure", Nothing),
    ("*Private/GC/GlobalHeapHistory", "CondemnReasons0", Nothing),
    ("*Private/GC/GlobalHeapHistory", "CondemnReasons1", Nothing),
    ("*Private/GC/GlobalHeapHistory", "Count", Nothing),
    ("*Private/GC/PerHeapHistory", "FreeListAllocated", Nothing),
    ("*Private/GC/PerHeapHistory", "FreeListRejected", Nothing),
    ("*Private/GC/PerHeapHistory", "EndOfSegAllocated", Nothing),
    ("*Private/GC/PerHeapHistory", "CondemnedAllocated", Nothing),
    ("*Private/GC/PerHeapHistory", "PinnedAllocated", Nothing),
    ("*Private/GC/PerHeapHistory", "PinnedAllocatedAdvance", Nothing),
    ("*Private/GC/PerHeapHistory", "RunningFreeListEfficiency", Nothing),
    ("*Private/GC/PerHeapHistory", "ConcurrentCompactMechanisms", Nothing),
    ("*Private/GC/PerHeapHistory", "Count", Nothing),
];

const IO_PRIORITIES: &[(i128, &str)] =
    &[(0, "NotSet"), (1, "Verylow"), (2, "Low"), (3, "Normal"), (4, "High"), (5, "Critical")];
const IRP_FLAGS: &[(i128, &str)] =
    &[(1, "Nocache"), (2, "MountCompletion"), (4, "SynchronousApi"), (8, "AssociatedIrp")];
const SHARE_ACCESS: &[(i128, &str)] = &[(0, "None"), (1, "Read"), (3, "ReadWrite"), (7, "ReadWrite, Delete")];
const DISPOSITIONS: &[(i128, &str)] = &[(1, "OPEN_EXISTING")];
const SEGMENT_TYPES: &[(i128, &str)] =
    &[(0, "SmallObjectHeap"), (1, "LargeObjectHeap"), (2, "ReadOnlyHeap"), (3, "PinnedObjectHeap")];
const GC_REASONS: &[(i128, &str)] = &[(0, "AllocSmall"), (1, "Induced")];
const PAUSE_MODES: &[(i128, &str)] = &[(0, "Batch"), (1, "Interactive")];
const GC_MECHANISMS: &[(i128, &str)] =
    &[(1, "Concurrent"), (2, "Compaction"), (4, "Promotion"), (8, "Demotion"), (16, "CardBundles")];
/// The top bit is set if a mechanism was chosen; the bits below give the mechanism.
const COMPACT_MECHANISMS: &[(i128, &str)] =
    &[(0, "not_specified"), (0x8000_0002, "compact_high_frag"), (0x8000_0008, "compact_loh_forced")];
const ASSEMBLY_FLAGS: &[(i128, &str)] = &[(16, "ReadyToRun")];
const BIND_REASONS: &[(i128, &str)] = &[(0, "START_BIND"), (9, "REJECT_IL_SIG")];

/// Values of our event that may correspond to a field of TraceEvent, best first.
pub(super) enum Have {
    Values(Vec<Value>),
    /// Our event has no value, and TraceEvent prints its default.
    Default,
}

/// Returns what our event has for a field of TraceEvent.
pub(super) fn have(event: &str, field: &str, ours: &Ours, trace: &Trace) -> Have {
    let row = FIELDS.iter().find(|row| row.1 == field && fits(row.0, event));
    let named = |name: &str| {
        let both = [Ours::field(&ours.event["fields"], name), Ours::field(&ours.numbers, name)];
        Have::Values(both.into_iter().flatten().cloned().collect())
    };
    match row.map(|row| &row.2) {
        None => named(field),
        Some(Is(name)) => named(name),
        Some(Spelled(name, names)) => Have::Values(vec![spell(ours.number(name), names)]),
        Some(From(compute)) => Have::Values(vec![compute(ours, trace)]),
        // A newer version of the event may have the field.
        Some(Nothing) => match named(field) {
            Have::Values(values) if values.is_empty() => Have::Default,
            values => values,
        },
    }
}

/// Returns whether a value is what TraceEvent prints for a field that an event lacks. Where bytes
/// are left over, a number may be one of them.
pub(super) fn is_default(theirs: &str, ours: &Ours) -> bool {
    theirs.is_empty() || (matches!(theirs, "0" | "-1" | "Unknown") && ours.left_over().is_empty())
}

/// Returns whether a name matches the pattern, in which `*` stands for any text.
pub(super) fn fits(pattern: &str, event: &str) -> bool {
    let (head, tail) = pattern.split_once('*').unwrap_or((pattern, ""));
    match pattern.contains('*') {
        true => event.len() >= head.len() + tail.len() && event.starts_with(head) && event.ends_with(tail),
        false => event == pattern,
    }
}

fn int(number: i128) -> Value {
    i64::try_from(number).map_or_else(|_| number.to_string().into(), Value::from)
}

fn spell(number: i128, names: &[(i128, &str)]) -> Value {
    names.iter().find(|n| n.0 == number).map_or_else(|| int(number), |n| n.1.into())
}

fn flags(bits: i128, names: &[(i128, &str)]) -> Value {
    let known: Vec<_> = names.iter().filter(|n| bits & n.0 != 0).map(|n| n.1).collect();
    let unknown = names.iter().fold(bits, |bits, n| bits & !n.0);
    let mut text = known.join(", ");
    if unknown != 0 {
        text.push_str(&format!(", {unknown:#x}"));
    }
    if text.is_empty() { "None".into() } else { text.into() }
}

/// Reads a little-endian number of `size` bytes at an offset.
pub(super) fn little_endian(bytes: &[u8], at: usize, size: usize) -> i128 {
    bytes[at..at + size].iter().rev().fold(0, |n, b| n << 8 | i128::from(*b))
}

/// Computes the UTC offset from the bias of the time zone, the first member of
/// TIME_ZONE_INFORMATION.
fn utc_offset(ours: &Ours, _: &Trace) -> Value {
    let hex = &ours.text("TimeZoneInformation")[..8];
    let bias = u32::from_str_radix(hex, 16).expect("hexadecimal").swap_bytes();
    (bias as i32).into()
}

/// Formats TimeDateStamp, which counts seconds since 1970.
fn build_time(ours: &Ours, _: &Trace) -> Value {
    let seconds = ours.number("TimeDateStamp") as i64;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.0000000Z").into()
}

/// Converts days since 1970-01-01 to year, month and day.
fn civil(mut days: i64) -> (i64, i64, i64) {
    let is_leap = |y: i64| y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    let mut year = 1970;
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + i64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

/// Replaces the NT path in a name by a drive letter; a name without a volume is on the system
/// drive.
fn drive(name: &str, trace: &Trace) -> Value {
    let fits = |path: &str| name.get(..path.len()).is_some_and(|head| head.eq_ignore_ascii_case(path));
    let best = trace.volumes.iter().filter(|(nt, _)| fits(nt)).max_by_key(|(nt, _)| nt.len());
    match best {
        Some((nt, dos)) => format!("{dos}{}", &name[nt.len()..]).into(),
        None if name.starts_with("\\Windows\\") => format!("C:{name}").into(),
        None => name.into(),
    }
}

fn file_of_key(ours: &Ours, trace: &Trace) -> Value {
    let name = trace.files.get(&ours.number("FileObject"));
    name.map_or_else(|| "".into(), |name| drive(name, trace))
}

/// Formats ticks of 100 ns as milliseconds with three decimals, halves rounded up.
fn milliseconds(ticks: i128) -> Value {
    let micros = (ticks + 5) / 10;
    format!("{}.{:03}", micros / 1000, micros % 1000).into()
}

fn response_time(ours: &Ours, _: &Trace) -> Value {
    milliseconds(ours.number("HighResResponseTime"))
}

fn fault_time(ours: &Ours, trace: &Trace) -> Value {
    let ms = ours.event["ms"].as_f64().expect("a time");
    let now = trace.anchor + (ms * 10_000.0).round() as i64;
    milliseconds(i128::from(now) - ours.number("InitialTime"))
}

fn process_name(ours: &Ours, _: &Trace) -> Value {
    let name = ours.event["process"].as_str().unwrap_or_default();
    name.strip_suffix(".exe").unwrap_or(name).into()
}

fn eight_bytes_as_a_number(ours: &Ours, _: &Trace) -> Value {
    let number = u64::from_str_radix(ours.text("PhysicalAddr"), 16).expect("eight bytes").swap_bytes();
    (number as i64).into()
}

fn file_of_module(ours: &Ours, _: &Trace) -> Value {
    let path = ours.text("ModuleILPath");
    path.rsplit('\\').next().unwrap_or(path).into()
}

fn name_of_type(ours: &Ours, trace: &Trace) -> Value {
    let pid = ours.event["pid"].as_i64().expect("a process");
    trace.types.get(&(pid, ours.number("TypeID"))).map_or("", |name| name).into()
}

/// Sums four generations, and a fifth that newer versions add after the fields of the schema.
fn sum_of_generations(ours: &Ours, field: &str, left_over_at: usize) -> i128 {
    let four: i128 = (0..4).map(|generation| ours.number(&format!("{field}{generation}"))).sum();
    let rest = ours.left_over();
    if rest.is_empty() { four } else { four + little_endian(&rest, left_over_at, 8) }
}

/// Returns the oldest generation of which something was promoted.
fn depth(ours: &Ours, _: &Trace) -> Value {
    let promoted = |generation: i128| ours.number(&format!("TotalPromotedSize{generation}")) != 0;
    int((1..=2).rev().find(|g| promoted(*g)).unwrap_or(0))
}
