//! The properties of WPP messages as callbacks and tdh.h present them.

use std::path::Path;
use std::process::Command;

use crate::build_program;
use crate::support::{ProgramFolder, crate_path, expect_success};

/// Runs the program with local time, or with UTC.
fn print_messages(program: &Path, zone: &str, is_local: bool) -> String {
    let fixtures = crate_path("../../fixtures");
    let mut command = Command::new(program);
    command.arg(fixtures.join("etl/wpp.etl")).arg(fixtures.join("tmf/sample.tmf"));
    expect_success(command.arg(if is_local { "1" } else { "0" }).env("TZ", zone))
}

#[test]
fn messages_have_the_twenty_published_properties() {
    let programs = ProgramFolder::new();
    let program = build_program(&programs, "wpp.c", &[]);
    let printed = print_messages(&program, "UTC", false);
    let first = "message 10 status 0\nVersion=0\nTraceGuid=6f1c2b5a-0d3e\nGuidName=blockdev\nGuidTypeName=queue_c41\n\
                 ThreadId=1204\nSystemTime=2024-5-1 (3) 10:0:0.000\nUserTime=0\nKernelTime=0\nSequenceNum=1\n\
                 ProcessId=1200\nCpuNumber=0\nIndent=0\nFlagsName=TRACE_QUEUE\nLevelName=TRACE_LEVEL_INFORMATION\n\
                 FunctionName=QueueInsert\nComponentName=Storage\nSubComponentName=Queue\n\
                 FormattedString=QueueInsert depth is -3 of 64 (100%)\nRawSystemTime=133590312000001000\n\
                 ProviderGuid=00000000-0000\ntext QueueInsert depth is -3 of 64 (100%)\n";
    assert!(printed.starts_with(first), "{printed}");
    // A message without a sequence number, and one whose component is not named in its source.
    assert!(printed.contains("message 12 status 0\n") && printed.contains("\nSequenceNum=0\n"), "{printed}");
    assert!(
        printed.contains("GuidTypeName=net_cpp7\n") && printed.contains("\nComponentName=\n"),
        "{printed}"
    );
    assert!(printed.contains("\nSequenceNum=4\n"), "{printed}");
    assert!(printed.contains("message 99 status 1168\n"), "{printed}");
}

#[test]
fn system_time_is_local_unless_the_caller_asks_for_utc() {
    let programs = ProgramFolder::new();
    let program = build_program(&programs, "wpp.c", &[]);
    // A zone that is 15 hours ahead of UTC.
    let printed = print_messages(&program, "TST-15", true);
    assert!(printed.contains("SystemTime=2024-5-2 (4) 1:0:0.000\n"), "{printed}");
    assert!(printed.contains("RawSystemTime=133590312000001000\n"), "{printed}");
    assert!(print_messages(&program, "TST-15", false).contains("SystemTime=2024-5-1 (3) 10:0:0.000\n"));
}
