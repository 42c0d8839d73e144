//! The cost of a site (a place that writes an event) that no session has enabled: instructions,
//! counted by valgrind.
//!
//! ```text
//!   instructions of one pass = (those of a run of 2 N passes − those of a run of N passes) / N
//!   extra                    = one pass with a disabled site − one pass with a flag test
//! ```
//!
//! The difference of two runs excludes all one-time work. The compiler must not know that the flag
//! and the provider never change. Times are reported without a requirement: below a nanosecond they
//! depend on the position of the code.

use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use traceweir::{Provider, write_event};

use crate::error::{Error, Result};
use crate::figure::{Figure, FigureUnit, Requirement, Rounds};
use crate::peer::this_program;
use crate::process::{self, program_error};
use crate::write::TRACELOGGING;
use crate::write::filtered::ExcludingSession;
use crate::write::native::NativePrograms;
use crate::write::offer::{KEYWORD, LEVEL};
use crate::write::ours::{self, BenchDaemon};

/// Passes of the shorter of two runs whose instructions are counted.
const PASSES: u64 = 1_000_000;
/// Passes of a run whose time is measured.
const TIMED_PASSES: u64 = 100_000_000;
const CACHEGRIND: [&str; 3] = ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"];

/// The content of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LoopSite {
    /// A check whether a disabled provider is enabled.
    Provider,
    /// The same check for a provider that a session has enabled, but not in this process.
    Excluded,
    /// A disabled `write_event!`.
    TraceLogging,
    /// A test of a flag, without a provider.
    Flag,
}

/// The role `disabled`: runs the passes and prints the nanoseconds.
pub(crate) fn run_loop(site: LoopSite, passes: u64) -> Result<()> {
    let nanoseconds = match site {
        LoopSite::Provider | LoopSite::Excluded => {
            let provider = Provider::register(ours::PROVIDER, None)?;
            if provider.enabled(LEVEL, KEYWORD) {
                return Err(Error::IncompleteRun("the provider is enabled".to_owned()));
            }
            measure_ns(|| test_provider(&provider, passes))
        }
        LoopSite::TraceLogging => measure_ns(|| pass_events(passes)),
        LoopSite::Flag => measure_ns(|| test_flag(&AtomicBool::new(false), passes)),
    };
    println!("{nanoseconds}");
    Ok(())
}

#[inline(never)]
fn test_provider(provider: &Provider, passes: u64) {
    for _ in 0..passes {
        if black_box(provider).enabled(LEVEL, KEYWORD) {
            count_reached();
        }
    }
}

/// Passes `write_event!` with three fields. The compiler knows the address of a static, but it must
/// not know that the static never changes.
#[inline(never)]
fn pass_events(passes: u64) {
    for _ in 0..passes {
        black_box(&TRACELOGGING);
        write_event!(
            TRACELOGGING,
            "Sample",
            level(4),
            u32("number", &1),
            u64("value", &2),
            str8("words", "three")
        );
    }
}

#[inline(never)]
fn test_flag(flag: &AtomicBool, passes: u64) {
    for _ in 0..passes {
        if black_box(flag).load(Ordering::Relaxed) {
            count_reached();
        }
    }
}

/// Called where an event would be written.
#[cold]
#[inline(never)]
fn count_reached() {
    static REACHED: AtomicU64 = AtomicU64::new(0);
    REACHED.fetch_add(1, Ordering::Relaxed);
}

fn measure_ns(work: impl FnOnce()) -> u128 {
    let before = Instant::now();
    work();
    before.elapsed().as_nanos()
}

fn has_valgrind_for(name: &str) -> bool {
    let version = process::run(Command::new("valgrind").arg("--version"), Stdio::null());
    let is_installed = version.is_ok_and(|ended| ended.has_succeeded);
    if !is_installed {
        eprintln!("{name} left out: valgrind is not installed");
    }
    is_installed
}

/// Measures a site in a process that a filter excludes, compared with a disabled site. Returns
/// `None` if valgrind is not installed.
pub(crate) fn measure_excluded(daemon: &BenchDaemon, folder: &Path) -> Result<Option<Figure>> {
    const NAME: &str = "filtered_pid_extra_instructions";
    if !has_valgrind_for(NAME) {
        return Ok(None);
    }
    let session = ExcludingSession::start(daemon, &folder.join("elsewhere.etl"))?;
    let excluded = instructions_per_pass(LoopSite::Excluded, daemon.runtime());
    session.stop()?;
    Ok(difference_figure(
        NAME,
        excluded?,
        instructions_per_pass(LoopSite::Provider, &folder.join("no-daemon"))?,
        Requirement::at_most(0.0).with_target(0.0),
    ))
}

/// Measures a disabled site, compared with a flag test. Returns `None` if valgrind is not installed.
pub(crate) fn measure(folder: &Path) -> Result<Option<Figure>> {
    const NAME: &str = "disabled_extra_instructions";
    if !has_valgrind_for(NAME) {
        return Ok(None);
    }
    // In a folder without a daemon, no session can enable the provider.
    let folder = &folder.join("no-daemon");
    let (provider, flag) =
        (instructions_per_pass(LoopSite::Provider, folder)?, instructions_per_pass(LoopSite::Flag, folder)?);
    let [provider_ns, flag_ns] = [LoopSite::Provider, LoopSite::Flag].map(|site| ns_per_pass(site, folder));
    eprintln!("a disabled site takes {:.2} ns, a flag test {:.2} ns", provider_ns?, flag_ns?);
    Ok(difference_figure(NAME, provider, flag, Requirement::at_most(2.0).with_target(1.0)))
}

/// Like [`measure`], for `write_event!`.
pub(crate) fn measure_tracelogging(folder: &Path) -> Result<Option<Figure>> {
    const NAME: &str = "tracelogging_rust_disabled_extra_instructions";
    if !has_valgrind_for(NAME) {
        return Ok(None);
    }
    let folder = &folder.join("no-daemon");
    let (event, flag) = (
        instructions_per_pass(LoopSite::TraceLogging, folder)?,
        instructions_per_pass(LoopSite::Flag, folder)?,
    );
    Ok(difference_figure(NAME, event, flag, Requirement::at_most(2.0).with_target(1.0)))
}

/// Like [`measure`], for `TraceLoggingWrite`; the flag test is in the same language.
pub(crate) fn measure_native(native: &NativePrograms, folder: &Path) -> Result<Option<Figure>> {
    let name = native.language.disabled_figure();
    if !has_valgrind_for(name) {
        return Ok(None);
    }
    let folder = folder.join("no-daemon");
    let native_instructions = |site: &str| {
        instructions_per_pass_of(|passes| {
            let mut command = Command::new("valgrind");
            command.args(CACHEGRIND).arg(&native.disabled.path).arg(site).arg(passes.to_string());
            command.env("TRACEWEIR_RUNTIME_DIR", &folder);
            command
        })
    };
    Ok(difference_figure(
        name,
        native_instructions("event")?,
        native_instructions("flag")?,
        Requirement::at_most(2.0).with_target(1.0),
    ))
}

/// Returns a figure whose ratio is the difference, rounded to hundredths of an instruction:
/// background threads change it by a millionth.
fn difference_figure(name: &'static str, ours: f64, peer: f64, requirement: Requirement) -> Option<Figure> {
    let mut rounds = Rounds::default();
    rounds.add(Some(ours), Some(peer));
    let figure = rounds.figure(name, FigureUnit::Instructions, requirement)?;
    let ratio = ((ours - peer) * 100.0).round() / 100.0;
    // Avoids a negative zero.
    Some(Figure { ratio: if ratio == 0.0 { 0.0 } else { ratio }, ..figure })
}

fn instructions_per_pass(site: LoopSite, runtime: &Path) -> Result<f64> {
    let own_path = this_program()?;
    instructions_per_pass_of(|passes| {
        let mut command = Command::new("valgrind");
        add_role_arguments(command.args(CACHEGRIND).arg(&own_path), site, passes, runtime);
        command
    })
}

/// Returns the instructions of one pass, given a command for any number of passes.
#[allow(clippy::cast_precision_loss)] // Instructions are far below 2⁵³.
fn instructions_per_pass_of(command: impl Fn(u64) -> Command) -> Result<f64> {
    let (short, long) = (count_instructions(command(PASSES))?, count_instructions(command(2 * PASSES))?);
    Ok(long.saturating_sub(short) as f64 / PASSES as f64)
}

fn count_instructions(mut command: Command) -> Result<u64> {
    let ended = process::run(&mut command, Stdio::null())?;
    let counted = ended.stderr.lines().find_map(parse_instructions);
    counted.filter(|_| ended.has_succeeded).ok_or_else(|| program_error(&command, ended.stderr))
}

/// Parses the number in valgrind's line `==1== I refs: 1,234`.
fn parse_instructions(line: &str) -> Option<u64> {
    let (_, number) = line.split_once("refs:").filter(|(name, _)| name.contains('I'))?;
    number.trim().replace(',', "").parse().ok()
}

#[allow(clippy::cast_precision_loss)] // Nanoseconds are far below 2⁵³.
fn ns_per_pass(site: LoopSite, runtime: &Path) -> Result<f64> {
    let mut command = Command::new(this_program()?);
    let ended = process::run(add_role_arguments(&mut command, site, TIMED_PASSES, runtime), Stdio::piped())?;
    let total: u64 = ended.stdout.trim().parse().map_err(|_| Error::IncompleteRun(ended.stderr))?;
    Ok(total as f64 / TIMED_PASSES as f64)
}

/// Adds the arguments of the role, and sets the runtime folder.
fn add_role_arguments<'c>(
    command: &'c mut Command,
    site: LoopSite,
    passes: u64,
    runtime: &Path,
) -> &'c mut Command {
    let name = match site {
        LoopSite::Provider => "provider",
        LoopSite::Excluded => "excluded",
        LoopSite::TraceLogging => "trace-logging",
        LoopSite::Flag => "flag",
    };
    command.env("TRACEWEIR_RUNTIME_DIR", runtime);
    command.args(["disabled", name, &passes.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read_from_valgrinds_summary() {
        assert_eq!(parse_instructions("==77== I   refs:      1,234,567"), Some(1_234_567));
        assert_eq!(parse_instructions("==77== I refs: 12"), Some(12));
        assert_eq!(parse_instructions("==77== Command: ./x"), None);
    }
}
