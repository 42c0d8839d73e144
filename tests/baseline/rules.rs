//! The remaining differences, each with its reason. A difference that no rule covers fails the
//! test.

use super::fields::matches_pattern;
use super::ours::DecodedEvent;
use super::values::{date, number, values_agree};

/// The reason for a difference, and the fields that it applies to.
pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) reason: &'static str,
    /// The event as TraceEvent names it; `*` stands for any text.
    event: &'static str,
    /// The field, or `*`.
    field: &'static str,
    /// Returns whether the rule explains this value of this field.
    explains: fn(&str, &str, &DecodedEvent) -> bool,
}

impl Rule {
    pub(super) fn covers(&self, event: &str, field: &str, value: &str, ours: &DecodedEvent) -> bool {
        matches_pattern(self.event, event)
            && matches_pattern(self.field, field)
            && (self.explains)(field, value, ours)
    }
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "other names of values",
        reason: "TraceEvent has its own names for these values, which the manifest names otherwise or not at all",
        event: "Microsoft-Windows-DotNETRuntime*",
        field: "*",
        explains: |field, value, ours| match field {
            "BucketKind" => value == "PlugsInCondemned" && ours.number(field) == 1,
            "BitSettings" => value == "GCSettingsConcurrent..." && ours.number(field) & 1 != 0,
            _ => false,
        },
    },
    Rule {
        name: "event without fields",
        reason: "the manifest has version 2 of this event, but none of its fields; its bytes are kept",
        event: "Microsoft-Windows-DotNETRuntimePrivate/GC/PerHeapHistory",
        field: "*",
        explains: |field, value, ours| {
            let bytes = ours.undecoded_bytes();
            // The last byte is the instance; the other bytes that TraceEvent prints are all 0.
            let expected = if field == "ClrInstanceID" { bytes.last().copied() } else { Some(0) };
            let expected = expected.map(i128::from);
            ours.event["len"] == bytes.len() && (value == "not_specified" || number(value) == expected)
        },
    },
    Rule {
        name: "the process of ImageID",
        reason: "TraceEvent reads the process id four bytes too early in 64-bit events, so that it is always 0",
        event: "KernelTraceControl/ImageID",
        field: "ProcessID",
        explains: |_, value, ours| value == "0" && ours.event["pid"] == ours.event["fields"]["ProcessId"],
    },
    Rule {
        name: "the milliseconds of SYSTEMTIME",
        reason: "TraceEvent prints the seconds once more in their place",
        event: "solar_system/PrimitiveTypesTest",
        field: "system_time_type",
        explains: |field, value, ours| {
            let expected = ours.event["fields"][field].as_str().and_then(date).unwrap_or_default();
            // In `21/09/09 14:59:35.7990000`, `prefix` is `21/09/09 14:59:35.`, and `seconds` is
            // `35`. TraceEvent prints `21/09/09 14:59:35.0350000`.
            let (Some(prefix), Some(seconds)) = (expected.get(..18), expected.get(15..17)) else {
                return false;
            };
            values_agree(value, &format!("{prefix}0{seconds}0000").into())
        },
    },
    Rule {
        name: "UDP read as version 0",
        reason: "only version 0 has context and dsize; here context is the process id and the size of version 2, joined",
        event: "Windows Kernel/UdpIp/*",
        field: "*",
        explains: |field, value, ours| match field {
            "context" => number(value) == Some(ours.number("size") << 32 | ours.number("PID")),
            _ => field == "dsize",
        },
    },
    Rule {
        name: "create options as file attributes",
        reason: "TraceEvent has the names of file attributes for the bits of create options",
        event: "Microsoft-Windows-Kernel-File/Create",
        field: "CreateOptions",
        explains: |_, value, ours| {
            value.starts_with("FILE_ATTRIBUTE_") && ours.number("CreateOptions") & 0xFF_FFFF != 0
        },
    },
];
