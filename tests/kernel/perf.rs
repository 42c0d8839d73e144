//! Runs perf inside a recording and parses the output of `perf script`.
//!
//! ```text
//!   4242 [001] 158.123456789: sched:sched_switch: prev_comm=… prev_pid=4242 … ==> … next_prio=120
//!           ffffffff821c50d1 …            frames, innermost first
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::util::skip;

/// An event that perf recorded.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) tid: u64,
    pub(crate) cpu: u64,
    /// Name without its subsystem.
    pub(crate) name: String,
    text: String,
    pub(crate) stack: Vec<u64>,
}

impl Sample {
    /// Returns the text after `name=` or `name = `, up to the next space or comma.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let after_name = self.text.split_once(&format!(" {name}="));
        let value = after_name.or_else(|| self.text.split_once(&format!(" {name} = ")))?.1;
        value.split([' ', ',']).next()
    }

    /// Returns the decimal number after `name=` or `name = `.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        let text = self.text(name);
        text.and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("{}: no number {name} in {}", self.name, self.text))
    }

    /// Returns the text after the event name.
    pub(crate) fn payload(&self) -> &str {
        self.text.trim()
    }
}

/// Builds a `perf record` command that records the whole machine while `command` runs, with large
/// rings (`-m` counts pages). perf collects no build ids (`-B -N`), because some versions crash
/// when they do. If perf cannot be used, skips the test and returns `None`.
pub(crate) fn record_around(data: &Path, options: &[&str], command: &[OsString]) -> Option<Vec<OsString>> {
    let mut trial = Command::new("perf");
    trial.args(["record", "-q", "-a", "-e", "sched:sched_switch", "-o"]).arg(data).arg("true");
    if !trial.output().is_ok_and(|output| output.status.success()) {
        skip("perf", "perf is not installed, or may not be used here");
        return None;
    }
    let mut arguments: Vec<OsString> =
        ["perf", "record", "-q", "-a", "-B", "-N", "-m", "4096", "-o"].map(OsString::from).to_vec();
    arguments.push(data.into());
    arguments.extend(options.iter().map(OsString::from));
    arguments.push("--".into());
    arguments.extend_from_slice(command);
    Some(arguments)
}

/// Returns the events that perf recorded, in order for each processor, or `None` if perf lost
/// events.
///
/// Frames come from the raw dump of each sample, which precedes the line of the sample: the line
/// itself shows symbols instead of addresses.
#[track_caller]
pub(crate) fn read_samples(data: &Path, has_stacks: bool) -> Option<Vec<Sample>> {
    let mut command = Command::new("perf");
    command.args(["script", "--ns", "-F", "tid,cpu,time,event,trace"]);
    if has_stacks {
        command.arg("-D");
    }
    let output = command.arg("-i").arg(data).output().expect("perf script did not start");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "perf script failed: {stderr}");
    if stderr.contains("lost") {
        return None;
    }
    let mut samples: Vec<Sample> = Vec::new();
    // perf occasionally writes a sample twice: identical lines of one processor in the same
    // nanosecond are one event.
    let mut seen = BTreeSet::new();
    let mut frames = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some(frame) = line.strip_prefix("..... ") {
            frames.extend(parse_frame_address(frame));
        } else if let Some(sample) = parse_sample_line(line) {
            let stack = std::mem::take(&mut frames);
            if seen.insert(line.to_owned()) {
                samples.push(Sample { stack, ..sample });
            }
        }
    }
    Some(samples)
}

/// Parses an address of a call chain. Returns `None` for the marks between kernel and user frames.
fn parse_frame_address(frame: &str) -> Option<u64> {
    // The highest 4096 values are no addresses: the marks (`PERF_CONTEXT_USER` and others) are
    // among them.
    const FIRST_MARK: u64 = u64::MAX - 4095;
    let (_, hex) = frame.split_once(": ")?;
    u64::from_str_radix(hex.trim(), 16).ok().filter(|address| *address < FIRST_MARK)
}

/// Parses the first line of an event.
fn parse_sample_line(line: &str) -> Option<Sample> {
    let (tid, after_tid) = line.trim_start().split_once(' ')?;
    let (cpu, after_cpu) = after_tid.trim_start().strip_prefix('[')?.split_once(']')?;
    let (_time, event_text) = after_cpu.split_once(": ")?;
    let (event, text) =
        event_text.trim_start().split_once(": ").unwrap_or((event_text.trim().trim_end_matches(':'), ""));
    let name = event.rsplit(':').next()?.to_owned();
    Some(Sample {
        tid: u64::from(tid.parse::<i32>().ok()?.cast_unsigned()),
        cpu: cpu.parse().ok()?,
        name,
        text: format!(" {text}"),
        stack: Vec::new(),
    })
}

/// Counts how often each key occurs.
pub(crate) fn count_by_key<K: Ord>(keys: impl IntoIterator<Item = K>) -> BTreeMap<K, u64> {
    let mut counts = BTreeMap::new();
    keys.into_iter().for_each(|key| *counts.entry(key).or_insert(0) += 1);
    counts
}

/// Returns the innermost function of each sample of a thread.
#[track_caller]
pub(crate) fn innermost_functions(data: &Path, tid: u64) -> Vec<String> {
    let mut command = Command::new("perf");
    command.args(["script", "--no-inline", "-G", "-F", "tid,ip,sym", "--tid", &tid.to_string(), "-i"]);
    let output = command.arg(data).output().expect("perf script did not start");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| line.split_whitespace().nth(2).map(str::to_owned)).collect()
}
