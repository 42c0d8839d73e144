//! What every end-to-end test needs: a folder of its own, the binary, the samples, and honest skips.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The root of the project.
pub(crate) fn root() -> PathBuf {
    let cli = Path::new(env!("CARGO_MANIFEST_DIR"));
    cli.ancestors().nth(2).expect("the crate lies two folders deep").to_owned()
}

/// A run of `weir`.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("output is UTF-8")
    }

    /// The lines of standard output as JSON objects.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.text().lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect()
    }

    /// Fails the test unless the exit code is as expected.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "exit code; standard error:\n{}", self.stderr);
        self
    }
}

/// The command, not yet run.
pub(crate) fn weir_command<I: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).stdin(Stdio::null()).env_remove("NO_COLOR");
    command
}

/// Runs `weir` to its end.
pub(crate) fn weir<I: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = I>) -> Run {
    let Output { status, stdout, stderr } = weir_command(args).output().expect("weir starts");
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    let code = status.code().unwrap_or_else(|| panic!("weir was killed ({status}): {stderr}"));
    Run { code, stdout, stderr }
}

/// A real Windows trace, or `None` where the samples are not on this machine.
///
/// They are looked for in `TRACEWEIR_SAMPLES`, else in `../shared/data` beside the project. With `TRACEWEIR_REQUIRE=all` (or
/// `samples`) their absence fails the test.
#[track_caller]
pub(crate) fn sample(name: &str) -> Option<PathBuf> {
    let folder =
        std::env::var_os("TRACEWEIR_SAMPLES").map_or_else(|| root().join("../shared/data"), PathBuf::from);
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    skip("samples", &format!("sample {name} is not in {}", folder.display()));
    None
}

/// Says that a check was not made, on the terminal even while the test harness captures output; fails where it is required.
#[track_caller]
pub(crate) fn skip(extra: &str, why: &str) {
    let required = std::env::var("TRACEWEIR_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|r| r == "all" || r == extra), "required: {why}");
    // The harness captures `eprintln!` but not the stream itself.
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped {}: {why}", thread.name().unwrap_or("a test"));
}
