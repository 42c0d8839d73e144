//! perf in the same run: what it records inside of a recording, and what its script says.
//!
//! ```text
//!   4242 [001] 158.123456789: sched:sched_switch: prev_comm=… prev_pid=4242 … ==> next_comm=… next_pid=0 next_prio=120
//!           ffffffff821c50d1 …            frames, innermost first
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::util::skip;

/// An event as perf tells it.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) tid: u64,
    pub(crate) cpu: u64,
    /// Without its system.
    pub(crate) name: String,
    text: String,
    pub(crate) stack: Vec<u64>,
}

impl Sample {
    /// What stands behind `name=` or `name = `, up to the next space.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let close = self.text.split_once(&format!(" {name}="));
        let start = close.or_else(|| self.text.split_once(&format!(" {name} = ")))?.1;
        start.split([' ', ',']).next()
    }

    /// A decimal number behind its name.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        let text = self.text(name);
        text.and_then(|it| it.parse().ok())
            .unwrap_or_else(|| panic!("{}: no number {name} in {}", self.name, self.text))
    }

    /// What the event says, as a whole.
    pub(crate) fn said(&self) -> &str {
        self.text.trim()
    }
}

/// `perf record` of the whole machine around a command, without its collection of build ids, in which some versions end; `None` where there is no perf, which is said.
pub(crate) fn around(data: &Path, options: &[&str], command: &[OsString]) -> Option<Vec<OsString>> {
    let mut trial = Command::new("perf");
    trial.args(["record", "-q", "-a", "-e", "sched:sched_switch", "-o"]).arg(data).arg("true");
    if !trial.output().is_ok_and(|it| it.status.success()) {
        skip("perf", "perf is not installed, or may not be used here");
        return None;
    }
    let mut all: Vec<OsString> =
        ["perf", "record", "-q", "-a", "-B", "-N", "-m", "4096", "-o"].map(OsString::from).to_vec();
    all.push(data.into());
    all.extend(options.iter().map(OsString::from));
    all.push("--".into());
    all.extend_from_slice(command);
    Some(all)
}

/// What perf recorded, in the order of each processor; `None` where it lost events.
///
/// Frames are taken from the raw dump of each sample, in front of its line: the lines themselves tell places in files instead of addresses.
#[track_caller]
pub(crate) fn script(data: &Path, has_stacks: bool) -> Option<Vec<Sample>> {
    let mut command = Command::new("perf");
    command.args(["script", "--ns", "-F", "tid,cpu,time,event,trace"]);
    if has_stacks {
        command.arg("-D");
    }
    let out = command.arg("-i").arg(data).output().expect("perf script starts");
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "perf script: {told}");
    if told.contains("lost") {
        return None;
    }
    let mut samples: Vec<Sample> = Vec::new();
    // perf writes some samples twice, now and then: what happened on one processor in the same nanosecond and says the same is the same.
    let mut seen = BTreeSet::new();
    let mut frames = Vec::new();
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        if let Some(frame) = line.strip_prefix("..... ") {
            frames.extend(address(frame));
        } else if let Some(sample) = head(line) {
            let stack = std::mem::take(&mut frames);
            if seen.insert(line.to_owned()) {
                samples.push(Sample { stack, ..sample });
            }
        }
    }
    Some(samples)
}

/// An address of a chain, but not the marks between kernel and program.
fn address(frame: &str) -> Option<u64> {
    const FIRST_MARK: u64 = u64::MAX - 4095;
    let (_, hex) = frame.split_once(": ")?;
    u64::from_str_radix(hex.trim(), 16).ok().filter(|it| *it < FIRST_MARK)
}

/// The first line of an event.
fn head(line: &str) -> Option<Sample> {
    let (tid, rest) = line.trim_start().split_once(' ')?;
    let (cpu, rest) = rest.trim_start().strip_prefix('[')?.split_once(']')?;
    let (_time, rest) = rest.split_once(": ")?;
    let (event, text) = rest.trim_start().split_once(": ").unwrap_or((rest.trim().trim_end_matches(':'), ""));
    let name = event.rsplit(':').next()?.to_owned();
    Some(Sample {
        tid: u64::from(tid.parse::<i32>().ok()?.cast_unsigned()),
        cpu: cpu.parse().ok()?,
        name,
        text: format!(" {text}"),
        stack: Vec::new(),
    })
}

/// How often each key is there.
pub(crate) fn tally<K: Ord>(keys: impl IntoIterator<Item = K>) -> BTreeMap<K, u64> {
    let mut counts = BTreeMap::new();
    keys.into_iter().for_each(|key| *counts.entry(key).or_insert(0) += 1);
    counts
}

/// The innermost function of each sample of a thread.
#[track_caller]
pub(crate) fn symbols(data: &Path, tid: u64) -> Vec<String> {
    let mut command = Command::new("perf");
    command.args(["script", "--no-inline", "-G", "-F", "tid,ip,sym", "--tid", &tid.to_string(), "-i"]);
    let out = command.arg(data).output().expect("perf script starts");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.lines().filter_map(|line| line.split_whitespace().nth(2).map(str::to_owned)).collect()
}
