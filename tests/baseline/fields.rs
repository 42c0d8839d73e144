//! Fields that TraceEvent renames or computes, and how each value follows from our event.
//!
//! A field that is not listed has the name that its schema gives it, ignoring case.

use serde_json::Value;

use super::ours::{DecodedEvent, DecodedTrace};

/// Origin of the value of a field of TraceEvent.
enum Origin {
    /// A field with another name.
    Renamed(&'static str),
    /// A number for which TraceEvent has names and our schema has none.
    Named(&'static str, &'static [(i128, &'static str)]),
    /// A value that TraceEvent computes.
    Computed(fn(&DecodedEvent, &DecodedTrace) -> Value),
    /// No value: the version of the event lacks the field, and TraceEvent prints its default.
    Absent,
}
use Origin::{Absent, Computed, Named, Renamed};

/// Event (`*` stands for any text), field, origin. The first matching row applies. In the closures,
/// `o` is our event and `t` our trace. Shifts and masks select the bits of a flags field that
/// TraceEvent prints as a field of its own.
#[rustfmt::skip]
const FIELDS: &[(&str, &str, Origin)] = &[
    // Kernel: other names.
    ("Windows Kernel/Process/*", "PageDirectoryBase", Renamed("DirectoryTableBase")),
    ("Windows Kernel/Process/PerfCtr*", "MemoryCount", Renamed("PageFaultCount")),
    ("Windows Kernel/Thread/*", "StartAddr", Renamed("Affinity")),
    ("Windows Kernel/Thread/*", "ThreadName", Absent),
    ("Windows Kernel/PerfInfo/*", "SampleSource", Renamed("Source")),
    ("Windows Kernel/DiskIO/*", "FileKey", Renamed("FileObject")),
    ("Windows Kernel/Memory/HardFault", "FileKey", Renamed("FileObject")),
    ("Windows Kernel/SysConfig/UnknownVolume", "Value", Renamed("VolumePath")),
    ("Windows Kernel/EventTrace", "SessionName", Renamed("SessionNameString")),
    ("Windows Kernel/EventTrace", "LogFileName", Renamed("LogFileNameString")),
    // Kernel: computed.
    ("Windows Kernel/EventTrace", "UtcOffsetMinutes", Computed(utc_offset)),
    ("*", "BuildTime", Computed(build_time)),
    ("Windows Kernel/Image/*", "FileName", Computed(|o, t| with_drive_letter(o.text("FileName"), t))),
    ("Windows Kernel/DiskIO/*", "FileName", Computed(file_name_of_key)),
    ("Windows Kernel/Memory/HardFault", "FileName", Computed(file_name_of_key)),
    ("Windows Kernel/DiskIO/*", "ElapsedTimeMSec", Computed(response_time)),
    ("Windows Kernel/DiskIO/*", "DiskServiceTimeMSec", Computed(response_time)),
    ("Windows Kernel/Memory/HardFault", "ElapsedTimeMSec", Computed(hard_fault_time)),
    ("Windows Kernel/DiskIO/*", "Priority", Computed(|o, _| name_or_number(o.number("IrpFlags") >> 17 & 7, IO_PRIORITIES))),
    ("Windows Kernel/DiskIO/*", "IrpFlags", Computed(|o, _| flag_names(o.number("IrpFlags") & 0xFFFF, IRP_FLAGS))),
    ("Windows Kernel/PerfInfo/Sample", "ProcessorNumber", Computed(|o, _| o.event["cpu"].clone())),
    ("Windows Kernel/PerfInfo/Sample", "Priority", Computed(|o, _| number_value(o.number("Flags") >> 3))),
    ("Windows Kernel/PerfInfo/Sample", "ExecutingDPC", Computed(|o, _| (o.number("Flags") & 1 != 0).into())),
    ("Windows Kernel/PerfInfo/Sample", "ExecutingISR", Computed(|o, _| (o.number("Flags") & 2 != 0).into())),
    ("Windows Kernel/Thread/Start", "ParentProcessID", Computed(|o, _| o.event["pid"].clone())),
    ("Windows Kernel/Thread/Start", "ParentThreadID", Computed(|o, _| o.event["tid"].clone())),
    ("Windows Kernel/Thread/Stop", "ParentProcessID", Absent),
    ("Windows Kernel/Thread/Stop", "ParentThreadID", Absent),
    ("Windows Kernel/SystemConfig/Services", "ProcessName", Computed(process_name)),
    ("Windows Kernel/SystemConfig/NIC", "PhysicalAddr", Computed(eight_bytes_as_a_number)),
    // Manifest events of Windows.
    ("Microsoft-Windows-Kernel-File/Create", "IrpPtr", Renamed("Irp")),
    ("Microsoft-Windows-Kernel-File/Create", "FileAttributes", Renamed("CreateAttributes")),
    ("Microsoft-Windows-Kernel-File/Create", "FileName", Computed(|o, t| with_drive_letter(o.text("FileName"), t))),
    ("Microsoft-Windows-Kernel-File/Create", "ShareAccess", Named("ShareAccess", SHARE_ACCESS)),
    ("Microsoft-Windows-Kernel-File/Create", "CreateDisposition", Computed(|o, _| name_or_number(o.number("CreateOptions") >> 24, DISPOSITIONS))),
    ("Microsoft-Windows-Kernel-File/Create", "CreateOptions", Computed(|o, _| number_value(o.number("CreateOptions") & 0xFF_FFFF))),
    // Event sources.
    ("*", "PayloadLength", Computed(|o, _| o.event["len"].clone())),
    // .NET: other names, and names of numbers.
    ("*/GC/MarkWithType", "Promoted", Renamed("Bytes")),
    ("*/Type/BulkType", "TypeID_0", Computed(|o, _| o.event["fields"]["Values"][0]["TypeID"].clone())),
    ("*/Type/BulkType", "TypeName_0", Computed(|o, _| o.event["fields"]["Values"][0]["Name"].clone())),
    ("*/GC/CreateSegment", "Type", Named("Type", SEGMENT_TYPES)),
    ("*/GC/GlobalHeapHistory", "Reason", Named("Reason", GC_REASONS)),
    ("*Runtime/GC/GlobalHeapHistory", "PauseMode", Named("PauseMode", PAUSE_MODES)),
    ("*/GC/GlobalHeapHistory", "GlobalMechanisms", Computed(|o, _| flag_names(o.number("GlobalMechanisms"), GC_MECHANISMS))),
    ("*Runtime/GC/PerHeapHistory", "CompactMechanisms", Named("CompactMechanisms", COMPACT_MECHANISMS)),
    ("*Runtime/GC/PerHeapHistory", "ExpandMechanisms", Named("ExpandMechanisms", COMPACT_MECHANISMS)),
    ("*/Loader/AssemblyDCStop", "AssemblyFlags", Named("AssemblyFlags", ASSEMBLY_FLAGS)),
    ("*/NgenBinder/NgenBind", "ReasonCode", Named("ReasonCode", BIND_REASONS)),
    // .NET: computed.
    ("*", "ModuleILFileName", Computed(file_name_of_module)),
    ("*/GC/FinalizeObject", "TypeName", Computed(type_name)),
    ("*/GC/HeapStats", "TotalHeapSize", Computed(|o, _| number_value(sum_of_generations(o, "GenerationSize")))),
    ("*/GC/HeapStats", "TotalPromoted", Computed(|o, _| number_value(sum_of_generations(o, "TotalPromotedSize")))),
    ("*/GC/HeapStats", "Depth", Computed(promoted_generation)),
    // .NET: not in this version of the event.
    ("*/GC/HeapStats", "GenerationSize4", Absent),
    ("*/GC/HeapStats", "TotalPromotedSize4", Absent),
    ("*/GC/AllocationTick", "ObjectSize", Absent),
    ("*/GC/Start", "ClientSequenceNumber", Absent),
    ("Microsoft-Windows-DotNETRuntime/Method/*", "OptimizationTier", Absent),
    ("Microsoft-Windows-DotNETRuntime/Method/*", "ReJITID", Absent),
    ("*Runtime/GC/PerHeapHistory", "ConcurrentCompactMechanisms", Absent),
    ("*Runtime/GC/PerHeapHistory", "MemoryPressure", Absent),
    ("*Private/GC/GlobalHeapHistory", "PauseMode", Absent),
    ("*Private/GC/GlobalHeapHistory", "MemoryPressure", Absent),
    ("*Private/GC/GlobalHeapHistory", "CondemnReasons0", Absent),
    ("*Private/GC/GlobalHeapHistory", "CondemnReasons1", Absent),
    ("*Private/GC/GlobalHeapHistory", "Count", Absent),
    ("*Private/GC/PerHeapHistory", "FreeListAllocated", Absent),
    ("*Private/GC/PerHeapHistory", "FreeListRejected", Absent),
    ("*Private/GC/PerHeapHistory", "EndOfSegAllocated", Absent),
    ("*Private/GC/PerHeapHistory", "CondemnedAllocated", Absent),
    ("*Private/GC/PerHeapHistory", "PinnedAllocated", Absent),
    ("*Private/GC/PerHeapHistory", "PinnedAllocatedAdvance", Absent),
    ("*Private/GC/PerHeapHistory", "RunningFreeListEfficiency", Absent),
    ("*Private/GC/PerHeapHistory", "ConcurrentCompactMechanisms", Absent),
    ("*Private/GC/PerHeapHistory", "Count", Absent),
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
pub(super) enum OurValues {
    Values(Vec<Value>),
    /// Our event has no value, and TraceEvent prints its default.
    Default,
}

/// Returns the values of our event that correspond to a field of TraceEvent.
pub(super) fn find_our_values(
    event: &str,
    field: &str,
    ours: &DecodedEvent,
    trace: &DecodedTrace,
) -> OurValues {
    let row = FIELDS.iter().find(|row| row.1 == field && matches_pattern(row.0, event));
    let values_of = |name: &str| {
        let (named, numeric) =
            (DecodedEvent::field(&ours.event["fields"], name), DecodedEvent::field(&ours.numbers, name));
        OurValues::Values(named.into_iter().chain(numeric).cloned().collect())
    };
    match row.map(|row| &row.2) {
        None => values_of(field),
        Some(Renamed(name)) => values_of(name),
        Some(Named(name, names)) => OurValues::Values(vec![name_or_number(ours.number(name), names)]),
        Some(Computed(compute)) => OurValues::Values(vec![compute(ours, trace)]),
        // A newer version of the event may have the field.
        Some(Absent) => match values_of(field) {
            OurValues::Values(values) if values.is_empty() => OurValues::Default,
            values => values,
        },
    }
}

/// Returns whether TraceEvent prints this value for a field that an event lacks. If our schema does
/// not cover all bytes of the event, a number does not count: it may come from those bytes.
pub(super) fn is_default(theirs: &str, ours: &DecodedEvent) -> bool {
    theirs.is_empty() || (matches!(theirs, "0" | "-1" | "Unknown") && ours.undecoded_bytes().is_empty())
}

/// Returns whether a name matches the pattern, in which `*` stands for any text.
pub(super) fn matches_pattern(pattern: &str, event: &str) -> bool {
    let (start, end) = pattern.split_once('*').unwrap_or((pattern, ""));
    match pattern.contains('*') {
        true => event.len() >= start.len() + end.len() && event.starts_with(start) && event.ends_with(end),
        false => event == pattern,
    }
}

fn number_value(number: i128) -> Value {
    i64::try_from(number).map_or_else(|_| number.to_string().into(), Value::from)
}

fn name_or_number(number: i128, names: &[(i128, &str)]) -> Value {
    let named = names.iter().find(|(value, _)| *value == number);
    named.map_or_else(|| number_value(number), |(_, name)| (*name).into())
}

fn flag_names(bits: i128, names: &[(i128, &str)]) -> Value {
    let known: Vec<_> = names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    let unknown = names.iter().fold(bits, |bits, (bit, _)| bits & !bit);
    let mut text = known.join(", ");
    if unknown != 0 {
        text.push_str(&format!(", {unknown:#x}"));
    }
    if text.is_empty() { "None".into() } else { text.into() }
}

/// Returns the bias of the time zone, the first member of TIME_ZONE_INFORMATION, which TraceEvent
/// prints as the offset.
fn utc_offset(ours: &DecodedEvent, _: &DecodedTrace) -> Value {
    let hex = &ours.text("TimeZoneInformation")[..8];
    let bias = u32::from_str_radix(hex, 16).expect("the field is not hexadecimal").swap_bytes();
    (bias as i32).into()
}

/// Formats TimeDateStamp, which counts seconds since 1970.
fn build_time(ours: &DecodedEvent, _: &DecodedTrace) -> Value {
    let seconds = ours.number("TimeDateStamp") as i64;
    let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_date(days);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.0000000Z").into()
}

/// Converts days since 1970-01-01 to year, month and day.
fn civil_date(mut days: i64) -> (i64, i64, i64) {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
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

/// Replaces the NT path in a name with a drive letter; a name that begins with `\Windows\` is on
/// drive C.
fn with_drive_letter(name: &str, trace: &DecodedTrace) -> Value {
    let is_prefix =
        |path: &str| name.get(..path.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(path));
    let best = trace.volumes.iter().filter(|(nt, _)| is_prefix(nt)).max_by_key(|(nt, _)| nt.len());
    match best {
        Some((nt, dos)) => format!("{dos}{}", &name[nt.len()..]).into(),
        None if name.starts_with("\\Windows\\") => format!("C:{name}").into(),
        None => name.into(),
    }
}

fn file_name_of_key(ours: &DecodedEvent, trace: &DecodedTrace) -> Value {
    let name = trace.files.get(&ours.number("FileObject"));
    name.map_or_else(|| "".into(), |name| with_drive_letter(name, trace))
}

/// Formats ticks of 100 ns as milliseconds with three decimals, halves rounded up.
fn milliseconds(ticks: i128) -> Value {
    let micros = (ticks + 5) / 10;
    format!("{}.{:03}", micros / 1000, micros % 1000).into()
}

fn response_time(ours: &DecodedEvent, _: &DecodedTrace) -> Value {
    milliseconds(ours.number("HighResResponseTime"))
}

fn hard_fault_time(ours: &DecodedEvent, trace: &DecodedTrace) -> Value {
    let ms = ours.event["ms"].as_f64().expect("the event has no time");
    let now = trace.start_ticks + (ms * 10_000.0).round() as i64;
    milliseconds(i128::from(now) - ours.number("InitialTime"))
}

fn process_name(ours: &DecodedEvent, _: &DecodedTrace) -> Value {
    let name = ours.event["process"].as_str().unwrap_or_default();
    name.strip_suffix(".exe").unwrap_or(name).into()
}

fn eight_bytes_as_a_number(ours: &DecodedEvent, _: &DecodedTrace) -> Value {
    let number = u64::from_str_radix(ours.text("PhysicalAddr"), 16).expect("not eight bytes").swap_bytes();
    (number as i64).into()
}

fn file_name_of_module(ours: &DecodedEvent, _: &DecodedTrace) -> Value {
    let path = ours.text("ModuleILPath");
    path.rsplit('\\').next().unwrap_or(path).into()
}

fn type_name(ours: &DecodedEvent, trace: &DecodedTrace) -> Value {
    let pid = ours.event["pid"].as_i64().expect("the event has no process id");
    trace.types.get(&(pid, ours.number("TypeID"))).map_or("", |name| name).into()
}

/// Sums four generations, and a fifth that newer versions have.
fn sum_of_generations(ours: &DecodedEvent, field: &str) -> i128 {
    let generations = (0..5).map(|generation| format!("{field}{generation}"));
    let is_present = |name: &String| DecodedEvent::field(&ours.numbers, name).is_some();
    generations.filter(is_present).map(|name| ours.number(&name)).sum()
}

/// Returns the oldest generation with promoted objects, or 0.
fn promoted_generation(ours: &DecodedEvent, _: &DecodedTrace) -> Value {
    let has_promoted = |generation: i128| ours.number(&format!("TotalPromotedSize{generation}")) != 0;
    number_value((1..=2).rev().find(|generation| has_promoted(*generation)).unwrap_or(0))
}
