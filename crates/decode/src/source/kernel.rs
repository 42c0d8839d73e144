//! Schemas of kernel events and of events that a merge adds, from the shape tables of
//! `format::kernel`.
//!
//! ```text
//!  shape (class, type, version) ─▶ each field ─▶ Schema { provider = class, event = "Class/Type" }
//!
//!   Ty            in type, length     out type     │ Ty         in type, length   out type
//!   U8 … I64      the integer         default      │ W(n)       UNICODESTRING, n  default
//!   Hex8, Hex16   UINT8, UINT16       HEXINT8, …   │ Wz         UNICODESTRING     default
//!   Hex32, Hex64  HEXINT32, HEXINT64  default      │ Az, Utf8z  ANSISTRING        default, UTF8
//!   Ptr           POINTER             default      │ Guid       GUID              default
//!   Size          SIZET               UNSIGNEDLONG │ FileTime   FILETIME          default
//!   Pid, Tid      UINT32              PID, TID     │ RawTime    INT64             ETWTIME
//!   Port          UINT16              PORT         │ SidBlock   WBEMSID           default
//!   Ip4           UINT32              IPV4         │ Bytes(n)   BINARY, n         default
//!   Ip6           BINARY, 16          IPV6         │ Pad(n)     BINARY, n         NOPRINT
//!   NtStatus      UINT32              NTSTATUS     │ Rest       BINARY, natural   HEXBINARY
//!                                                  │ Lznt1Text  BINARY, natural   XML
//! ```
//!
//! Two conventions apply only to schemas of [`SchemaOrigin::Kernel`]. BINARY of natural length is
//! the last field and takes the rest of the payload. With the out type XML, the bytes are a `u32`
//! with the text's size in bytes and an LZNT1 stream of UTF-16 text, which the formatter unpacks.
//!
//! `ETWTIME` marks a stamp of the session's raw clock. Only a consumer that knows this clock can
//! show the stamp as a time.
//!
//! Enumerations and flags that are documented in full get a map of names; partly documented flags
//! stay numbers.

use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::kernel::{FieldShape, Repeat, Ty, class_name, shape_of, thread_state};
use traceweir_format::spec::event::class;
use traceweir_format::spec::types::{InType, OutType};

use crate::schema::{Count, Field, Length, Schema, SchemaNames, SchemaOrigin, ValueMap};
use crate::walk::header_names;
use ValueNames::{Bits, Sequence, Values};

/// The name of the kernel event provider for consumers.
pub(crate) const KERNEL_PROVIDER: &str = "Windows Kernel";
/// The library that merges traces, as the provider of the events it adds.
const TRACE_CONTROL_PROVIDER: &str = "KernelTraceControl";

/// Returns the schema of an event type of a kernel or merge class, if the shape tables have it.
#[must_use]
pub fn build_schema(class: &Guid, opcode: u8, version: u8) -> Option<Schema> {
    let (shape, type_name) = shape_of(class, opcode, version)?;
    let fields: Vec<Field> =
        shape.fields.iter().map(|f| build_field(f, shape.fields, class, opcode)).collect();
    let top = fields.len();
    let mut schema = Schema::default();
    schema.origin = SchemaOrigin::Kernel;
    schema.provider = *class;
    schema.names = event_names(class, type_name);
    schema.is_log_file_header = header_names::is_log_file_header(class, opcode);
    schema.seal(fields, top).ok()
}

/// Returns the names of an event type; the default type of a class adds nothing to the class name.
fn event_names(class: &Guid, type_name: &str) -> SchemaNames {
    let class_name = class_name(class).unwrap_or("Kernel");
    let is_merge_class = [class::IMAGE_ID, class::EVENT_METADATA].contains(class);
    let event = if type_name == "Info" { class_name.to_owned() } else { format!("{class_name}/{type_name}") };
    SchemaNames {
        provider: Some(Arc::from(if is_merge_class { TRACE_CONTROL_PROVIDER } else { KERNEL_PROVIDER })),
        event: Some(event.into()),
        task: Some(class_name.into()),
        opcode: Some(type_name.into()),
        ..SchemaNames::default()
    }
}

/// Converts one field; `shape` has all fields of the event.
fn build_field(field: &FieldShape, shape: &[FieldShape], class: &Guid, opcode: u8) -> Field {
    let (input, output, length) = type_layout(field.ty);
    let count = match field.repeat {
        Repeat::One => Count::One,
        Repeat::Times(n) => Count::Fixed(n),
        Repeat::By(name) => {
            let at = shape.iter().position(|f| f.name == name).and_then(|i| u16::try_from(i).ok());
            // Sealing refuses a count that refers to no field.
            Count::Field(at.unwrap_or(u16::MAX))
        }
        Repeat::ToEnd => Count::ToEnd,
    };
    let map =
        NAMED_FIELDS.iter().find(|n| n.field == field.name && n.class == *class && n.types.contains(&opcode));
    Field::value(field.name, input, output)
        .with_count(count)
        .with_length(length)
        .with_map(map.map(|n| Arc::new(n.build_map())))
}

/// Returns the layout and display format of a kernel type.
const fn type_layout(ty: Ty) -> (InType, OutType, Length) {
    const NATURAL: Length = Length::Natural;
    match ty {
        Ty::U8 => (InType::UINT8, OutType::NULL, NATURAL),
        Ty::I8 => (InType::INT8, OutType::NULL, NATURAL),
        Ty::U16 => (InType::UINT16, OutType::NULL, NATURAL),
        Ty::I16 => (InType::INT16, OutType::NULL, NATURAL),
        Ty::U32 => (InType::UINT32, OutType::NULL, NATURAL),
        Ty::I32 => (InType::INT32, OutType::NULL, NATURAL),
        Ty::U64 => (InType::UINT64, OutType::NULL, NATURAL),
        Ty::I64 => (InType::INT64, OutType::NULL, NATURAL),
        Ty::Hex8 => (InType::UINT8, OutType::HEXINT8, NATURAL),
        Ty::Hex16 => (InType::UINT16, OutType::HEXINT16, NATURAL),
        Ty::Hex32 => (InType::HEXINT32, OutType::NULL, NATURAL),
        Ty::Hex64 => (InType::HEXINT64, OutType::NULL, NATURAL),
        Ty::Ptr => (InType::POINTER, OutType::NULL, NATURAL),
        Ty::Size => (InType::SIZET, OutType::UNSIGNEDLONG, NATURAL),
        Ty::Pid => (InType::UINT32, OutType::PID, NATURAL),
        Ty::Tid => (InType::UINT32, OutType::TID, NATURAL),
        Ty::Guid => (InType::GUID, OutType::NULL, NATURAL),
        Ty::FileTime => (InType::FILETIME, OutType::NULL, NATURAL),
        Ty::RawTime => (InType::INT64, OutType::ETWTIME, NATURAL),
        Ty::Az => (InType::ANSISTRING, OutType::NULL, NATURAL),
        Ty::Utf8z => (InType::ANSISTRING, OutType::UTF8, NATURAL),
        Ty::Wz => (InType::UNICODESTRING, OutType::NULL, NATURAL),
        Ty::W(units) => (InType::UNICODESTRING, OutType::NULL, Length::Fixed(units)),
        Ty::Bytes(n) => (InType::BINARY, OutType::NULL, Length::Fixed(n)),
        Ty::Pad(n) => (InType::BINARY, OutType::NOPRINT, Length::Fixed(n)),
        Ty::SidBlock => (InType::WBEMSID, OutType::NULL, NATURAL),
        Ty::Port => (InType::UINT16, OutType::PORT, NATURAL),
        Ty::Ip4 => (InType::UINT32, OutType::IPV4, NATURAL),
        Ty::Ip6 => (InType::BINARY, OutType::IPV6, Length::Fixed(16)),
        Ty::NtStatus => (InType::UINT32, OutType::NTSTATUS, NATURAL),
        Ty::Rest => (InType::BINARY, OutType::HEXBINARY, NATURAL),
        Ty::Lznt1Text => (InType::BINARY, OutType::XML, NATURAL),
    }
}

/// A field whose values or bits have documented names.
struct NamedField {
    class: Guid,
    types: &'static [u8],
    field: &'static str,
    names: ValueNames,
}

/// The names of the numbers of a field.
enum ValueNames {
    /// Names of the values 0, 1, 2….
    Sequence(&'static [&'static str]),
    /// Names of single values.
    Values(&'static [(u64, &'static str)]),
    /// Names of single bits.
    Bits(&'static [(u64, &'static str)]),
}

impl NamedField {
    /// Returns the names as a map that has the name of the field.
    fn build_map(&self) -> ValueMap {
        let to_entries =
            |pairs: &[(u64, &str)]| pairs.iter().map(|(v, n)| (*v, (*n).to_owned())).collect::<Vec<_>>();
        match self.names {
            Sequence(names) => {
                ValueMap::new(self.field, false, (0..).zip(names).map(|(v, n)| (v, (*n).to_owned())))
            }
            Values(values) => ValueMap::new(self.field, false, to_entries(values)),
            Bits(bits) => ValueMap::new(self.field, true, to_entries(bits)),
        }
    }
}

const fn named_field(
    class: Guid,
    types: &'static [u8],
    field: &'static str,
    names: ValueNames,
) -> NamedField {
    NamedField { class, types, field, names }
}

// Event types with named values.
const PARTITION_INFO: u8 = 0x50;
const CONTEXT_SWITCH: u8 = 0x24;
const READY_THREAD: u8 = 0x32;
const CONFIG_CPU: u8 = 0x0A;
const CONFIG_LOGICAL_DISK: u8 = 0x0C;
const CONFIG_VIDEO: u8 = 0x0E;
const CONFIG_SERVICES: u8 = 0x0F;
const CONFIG_IDE_CHANNEL: u8 = 0x17;
const EVENT_INFO: u8 = 32;
const EVENT_MAP: u8 = 33;

/// All fields whose values or bits have names.
static NAMED_FIELDS: [NamedField; 17] = [
    named_field(class::EVENT_TRACE, &[PARTITION_INFO], "PartitionType", Values(PARTITION)),
    // Start, end, DCStart, DCEnd, defunct.
    named_field(class::PROCESS, &[1, 2, 3, 4, 0x27], "Flags", Bits(PROCESS_FLAGS)),
    named_field(class::THREAD, &[CONTEXT_SWITCH], "OldThreadWaitReason", Sequence(WAIT_REASON)),
    named_field(class::THREAD, &[CONTEXT_SWITCH], "OldThreadState", Sequence(&thread_state::NAMES)),
    named_field(class::THREAD, &[CONTEXT_SWITCH], "OldThreadWaitMode", Sequence(&["Kernel", "User"])),
    named_field(class::THREAD, &[READY_THREAD], "AdjustReason", Sequence(&["None", "Unwait", "Boost"])),
    named_field(class::THREAD, &[READY_THREAD], "Flags", Bits(READY_FLAGS)),
    named_field(class::CONFIG, &[CONFIG_CPU], "ProcessorArchitecture", Values(ARCHITECTURE)),
    named_field(class::CONFIG, &[CONFIG_LOGICAL_DISK], "DriveType", Values(DRIVE)),
    named_field(class::CONFIG, &[CONFIG_VIDEO], "StateFlags", Bits(VIDEO_STATE)),
    named_field(class::CONFIG, &[CONFIG_SERVICES], "ServiceState", Values(SERVICE_STATE)),
    named_field(class::CONFIG, &[CONFIG_IDE_CHANNEL], "DeviceType", Values(&[(1, "ATA"), (2, "ATAPI")])),
    named_field(class::CONFIG, &[CONFIG_IDE_CHANNEL], "DeviceTimingMode", Bits(IDE_TIMING)),
    named_field(class::EVENT_METADATA, &[EVENT_INFO], "DecodingSource", Sequence(DECODING_SOURCE)),
    named_field(class::EVENT_METADATA, &[EVENT_INFO], "TemplateFlags", Bits(TEMPLATE_FLAGS)),
    named_field(class::EVENT_METADATA, &[EVENT_MAP], "Flag", Bits(MAP_FLAGS)),
    named_field(class::EVENT_METADATA, &[EVENT_MAP], "MapEntryValueType", Sequence(&["ULong", "String"])),
];

const PARTITION: &[(u64, &str)] =
    &[(1, "ProcessContainer"), (2, "VmHost"), (3, "VmHostedUtility"), (4, "VmDirectUtility")];

const PROCESS_FLAGS: &[(u64, &str)] =
    &[(1, "ApplicationId"), (2, "Wow64"), (4, "Protected"), (8, "Packaged")];

const WAIT_REASON: &[&str] = &[
    "Executive",
    "FreePage",
    "PageIn",
    "PoolAllocation",
    "DelayExecution",
    "Suspended",
    "UserRequest",
    "WrExecutive",
    "WrFreePage",
    "WrPageIn",
    "WrPoolAllocation",
    "WrDelayExecution",
    "WrSuspended",
    "WrUserRequest",
    "WrEventPair",
    "WrQueue",
    "WrLpcReceive",
    "WrLpcReply",
    "WrVirtualMemory",
    "WrPageOut",
    "WrRendezvous",
    "WrKeyedEvent",
    "WrTerminated",
    "WrProcessInSwap",
    "WrCpuRateControl",
    "WrCalloutStack",
    "WrKernel",
    "WrResource",
    "WrPushLock",
    "WrMutex",
    "WrQuantumEnd",
    "WrDispatchInt",
    "WrPreempted",
    "WrYieldExecution",
    "WrFastMutex",
    "WrGuardedMutex",
    "WrRundown",
];

/// Returns the name of a thread's wait reason, by the number in a context switch.
#[must_use]
pub fn wait_reason(number: u8) -> Option<&'static str> {
    WAIT_REASON.get(usize::from(number)).copied()
}

const READY_FLAGS: &[(u64, &str)] =
    &[(1, "FromDpc"), (2, "KernelStackSwappedOut"), (4, "ProcessSwappedOut"), (8, "DirectSwitch")];

const ARCHITECTURE: &[(u64, &str)] = &[(0, "x86"), (5, "ARM"), (9, "x64"), (12, "ARM64")];

/// The documentation gives 3 to a drive that spans disks, a public header gives 4.
const DRIVE: &[(u64, &str)] = &[(1, "Partition"), (2, "Volume"), (3, "Extended"), (4, "Extended")];

const VIDEO_STATE: &[(u64, &str)] = &[
    (1, "AttachedToDesktop"),
    (4, "PrimaryDevice"),
    (8, "MirroringDriver"),
    (0x10, "VgaCompatible"),
    (0x20, "Removable"),
    (0x800_0000, "ModesPruned"),
];

const SERVICE_STATE: &[(u64, &str)] = &[
    (1, "Stopped"),
    (2, "StartPending"),
    (3, "StopPending"),
    (4, "Running"),
    (5, "ContinuePending"),
    (6, "PausePending"),
    (7, "Paused"),
];

const IDE_TIMING: &[(u64, &str)] = &[
    (0x1, "PIO0"),
    (0x2, "PIO1"),
    (0x4, "PIO2"),
    (0x8, "PIO3"),
    (0x10, "PIO4"),
    (0x20, "SingleWordDMA0"),
    (0x40, "SingleWordDMA1"),
    (0x80, "SingleWordDMA2"),
    (0x100, "MultiWordDMA0"),
    (0x200, "MultiWordDMA1"),
    (0x400, "MultiWordDMA2"),
    (0x800, "UltraDMA0"),
    (0x1000, "UltraDMA1"),
    (0x2000, "UltraDMA2"),
    (0x4000, "UltraDMA3"),
    (0x8000, "UltraDMA4"),
    (0x1_0000, "UltraDMA5"),
];

const DECODING_SOURCE: &[&str] = &["XMLFile", "Wbem", "WPP", "Tlg"];

const TEMPLATE_FLAGS: &[(u64, &str)] = &[(1, "EventData"), (2, "UserData"), (4, "ControlGuid")];

const MAP_FLAGS: &[(u64, &str)] = &[
    (1, "ManifestValueMap"),
    (2, "ManifestBitMap"),
    (4, "ManifestPatternMap"),
    (8, "WbemValueMap"),
    (0x10, "WbemBitMap"),
    (0x20, "WbemFlag"),
    (0x40, "WbemNoMap"),
];

#[cfg(test)]
mod tests {
    use traceweir_format::kernel::shapes;

    use super::*;
    use crate::schema::FieldKind;

    fn find_field(schema: &Schema, name: &str) -> Field {
        schema.top().iter().find(|f| &*f.name == name).unwrap_or_else(|| panic!("no field {name}")).clone()
    }

    fn find_map(schema: &Schema, name: &str) -> Arc<ValueMap> {
        let FieldKind::Value { map: Some(map), .. } = find_field(schema, name).kind else {
            panic!("no map of {name}")
        };
        map
    }

    #[test]
    fn every_shape_becomes_a_schema() {
        for shape in shapes() {
            for (opcode, name) in shape.types {
                let schema = build_schema(&shape.class, *opcode, shape.version).unwrap();
                assert_eq!(schema.origin, SchemaOrigin::Kernel);
                assert_eq!(schema.provider, shape.class);
                let event = schema.names.event.as_deref().unwrap();
                assert!(event.ends_with(name) || *name == "Info", "{event}");
                assert_eq!(schema.event_name().as_deref(), Some(event), "{event}");
                let expected: Vec<_> = shape.fields.iter().map(|f| f.name).collect();
                let names: Vec<_> = schema.top().iter().map(|f| &*f.name).collect();
                assert_eq!(names, expected, "{event}");
            }
        }
    }

    #[test]
    fn sizes_of_types_agree_with_the_tables() {
        for field in shapes().flat_map(|s| s.fields) {
            for pointer_size in [4, 8] {
                let (input, _, length) = type_layout(field.ty);
                let size = match (input, length) {
                    (InType::UNICODESTRING, Length::Fixed(n)) => Some(usize::from(n) * 2),
                    (_, Length::Fixed(n)) => Some(usize::from(n)),
                    _ => input.size(pointer_size),
                };
                assert_eq!(size, field.ty.size(pointer_size), "{} {:?}", field.name, field.ty);
            }
        }
    }

    #[test]
    fn events_are_named_by_class_and_type() {
        let name = |class, opcode| build_schema(&class, opcode, 2).unwrap().names;
        let start = name(class::PROCESS, 1);
        assert_eq!(start.event.as_deref(), Some("Process/Start"));
        assert_eq!(start.provider.as_deref(), Some("Windows Kernel"));
        let identity = name(class::IMAGE_ID, 0);
        assert_eq!(identity.event.as_deref(), Some("ImageID"));
        assert_eq!(identity.provider.as_deref(), Some("KernelTraceControl"));
        assert_eq!(name(class::SYS_CONFIG_EX, 35).event.as_deref(), Some("SysConfigEx/VolumeMapping"));
        assert_eq!(name(class::SYS_CONFIG_EX, 35).provider.as_deref(), Some("Windows Kernel"));
    }

    #[test]
    fn counts_point_at_their_fields() {
        let pnp = build_schema(&class::CONFIG, 0x16, 4).unwrap();
        assert_eq!(find_field(&pnp, "UpperFilters").count, Count::Field(1));
        assert_eq!(find_field(&pnp, "LowerFilters").count, Count::Field(2));
        assert!(pnp.top()[1].is_referenced && pnp.top()[2].is_referenced);
        let stack = build_schema(&class::STACK_WALK, 0x20, 2).unwrap();
        assert_eq!(find_field(&stack, "Stack").count, Count::ToEnd);
        let compact = build_schema(&class::THREAD, 0x25, 2).unwrap();
        assert_eq!(find_field(&compact, "TidTable").count, Count::Fixed(16));
    }

    #[test]
    fn named_fields_exist_and_have_maps() {
        for named in &NAMED_FIELDS {
            for opcode in named.types {
                let newest = build_schema(&named.class, *opcode, u8::MAX).unwrap();
                let version_2 = build_schema(&named.class, *opcode, 2).unwrap();
                let has_map = [&newest, &version_2].into_iter().any(|s| {
                    s.top().iter().any(|f| {
                        &*f.name == named.field && matches!(f.kind, FieldKind::Value { map: Some(_), .. })
                    })
                });
                assert!(has_map, "{} of {} type {opcode:#x}", named.field, named.class);
            }
        }
        let switch = build_schema(&class::THREAD, CONTEXT_SWITCH, 2).unwrap();
        assert_eq!(find_map(&switch, "OldThreadWaitReason").value(36), Some("WrRundown"));
        assert_eq!(find_map(&switch, "OldThreadWaitReason").value(13), Some("WrUserRequest"));
        assert_eq!(find_map(&switch, "OldThreadState").value(5), Some("Waiting"));
        let process = build_schema(&class::PROCESS, 1, 4).unwrap();
        assert!(find_map(&process, "Flags").is_bit_map);
        let optical = build_schema(&class::CONFIG, 0x12, 2).unwrap();
        assert!(matches!(find_field(&optical, "DeviceType").kind, FieldKind::Value { map: None, .. }));
    }

    #[test]
    fn unknown_types_have_no_schema() {
        assert_eq!(build_schema(&class::CONFIG, 0x13, 2), None);
        assert_eq!(build_schema(&class::HEAP, 0x20, 2), None);
        assert_eq!(build_schema(&Guid::NULL, 1, 2), None);
    }
}
