//! `TraceLoggingActivity.h`, and C++ constructs that are difficult for macros.

use std::process::Command;

use crate::compiler::{SourceFolder, cpp_compilers, test_folder};
use crate::support::expect_success;

#[test]
fn activities_follow_the_contract() {
    let folder = SourceFolder::new();
    for compiler in cpp_compilers() {
        for (standard, optimization) in [(compiler.standards()[0], "-O0"), (compiler.standards()[1], "-O2")] {
            let program =
                folder.build(compiler, &test_folder().join("activity.cpp"), &[standard, optimization]);
            assert_eq!(expect_success(&mut Command::new(program)), "all rules hold\n", "{compiler:?}");
        }
    }
}

#[test]
fn activity_asserts_the_order_of_its_calls() {
    let folder = SourceFolder::new();
    for compiler in cpp_compilers().into_iter().take(1) {
        let program = folder.build(compiler, &test_folder().join("activity.cpp"), &["-std=c++17"]);
        for (wrong_call, message) in [
            ("start", "has been started already"),
            ("stop", "has not been started"),
            ("related", "before the start"),
        ] {
            let output = Command::new(&program).arg(wrong_call).output().expect("cannot start the program");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && stderr.contains(message), "{wrong_call}: {stderr}");
        }
    }
}
