//! The cost of a site that no session has enabled: instructions, counted by valgrind.
//!
//! ```text
//!   instructions of one pass = (those of a run of 2 N passes − those of a run of N passes) / N
//!   extra                    = one pass with a disabled site − one pass with a flag test
//! ```
//!
//! The difference of two runs excludes all one-time work. Neither loop may know the address of its
//! flag or its provider in advance. Times are reported without a requirement: below a nanosecond
//! they depend on the position of the code.

use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use traceweir::{Provider, write_event};

use crate::error::{Error, Result};
use crate::figure::{Figure, Rounds, Unit, Wanted};
use crate::peer::this_program;
use crate::process::{self, failed};
use crate::write::TRACELOGGING;
use crate::write::filtered::Elsewhere;
use crate::write::native::Native;
use crate::write::ours::{self, Daemon};

/// Passes of the shorter counted run, and of a timed run.
const PASSES: u64 = 1_000_000;
const TIMED_PASSES: u64 = 100_000_000;
const CACHEGRIND: [&str; 3] = ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"];

/// The content of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Site {
    /// A disabled provider is asked whether it is enabled.
    Provider,
    /// The same for a provider that a session has enabled, but not in this process.
    LeftOut,
    /// A disabled `write_event!`.
    TraceLogging,
    /// A flag is tested.
    Flag,
}

/// The role `disabled`: runs the passes and prints the nanoseconds.
pub(crate) fn run_loop(site: Site, passes: u64) -> Result<()> {
    let nanoseconds = match site {
        Site::Provider | Site::LeftOut => {
            let provider = Provider::register(ours::PROVIDER, None)?;
            if provider.enabled(4, 1) {
                return Err(Error::IncompleteRun("the provider is enabled".to_owned()));
            }
            time(|| ask_provider(&provider, passes))
        }
        Site::TraceLogging => time(|| pass_events(passes)),
        Site::Flag => time(|| ask_flag(&AtomicBool::new(false), passes)),
    };
    println!("{nanoseconds}");
    Ok(())
}

#[inline(never)]
fn ask_provider(provider: &Provider, passes: u64) {
    for _ in 0..passes {
        if black_box(provider).enabled(4, 1) {
            reached();
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
fn ask_flag(flag: &AtomicBool, passes: u64) {
    for _ in 0..passes {
        if black_box(flag).load(Ordering::Relaxed) {
            reached();
        }
    }
}

/// Runs where an event would be written.
#[cold]
#[inline(never)]
fn reached() {
    static REACHED: AtomicU64 = AtomicU64::new(0);
    REACHED.fetch_add(1, Ordering::Relaxed);
}

fn time(work: impl FnOnce()) -> u128 {
    let before = Instant::now();
    work();
    before.elapsed().as_nanos()
}

fn is_counted(name: &str) -> bool {
    let installed = process::run(Command::new("valgrind").arg("--version"), Stdio::null());
    let counted = installed.is_ok_and(|ended| ended.success);
    if !counted {
        eprintln!("{name} left out: valgrind is not installed");
    }
    counted
}

/// Measures a site in a process that a filter excludes, compared with a disabled one; `None` if
/// valgrind is not installed.
pub(crate) fn measure_left_out(daemon: &Daemon, folder: &Path) -> Result<Option<Figure>> {
    const NAME: &str = "filtered_pid_extra_instructions";
    if !is_counted(NAME) {
        return Ok(None);
    }
    let session = Elsewhere::start(daemon, &folder.join("elsewhere.etl"))?;
    let left_out = per_pass(Site::LeftOut, daemon.runtime());
    session.stop()?;
    Ok(difference(
        NAME,
        left_out?,
        per_pass(Site::Provider, &folder.join("nobody"))?,
        Wanted::at_most(0.0, 0.0),
    ))
}

/// Measures a disabled site; `None` if valgrind is not installed.
pub(crate) fn measure(folder: &Path) -> Result<Option<Figure>> {
    const NAME: &str = "disabled_extra_instructions";
    if !is_counted(NAME) {
        return Ok(None);
    }
    let folder = &folder.join("nobody");
    let (provider, flag) = (per_pass(Site::Provider, folder)?, per_pass(Site::Flag, folder)?);
    let [ours, plain] = [Site::Provider, Site::Flag].map(|site| nanoseconds(site, folder));
    eprintln!("a disabled site takes {:.2} ns, a flag test {:.2} ns", ours?, plain?);
    Ok(difference(NAME, provider, flag, Wanted::at_most(2.0, 1.0)))
}

/// Like [`measure`], for `write_event!`.
pub(crate) fn measure_tracelogging(folder: &Path) -> Result<Option<Figure>> {
    const NAME: &str = "tracelogging_rust_disabled_extra_instructions";
    if !is_counted(NAME) {
        return Ok(None);
    }
    let folder = &folder.join("nobody");
    let (event, flag) = (per_pass(Site::TraceLogging, folder)?, per_pass(Site::Flag, folder)?);
    Ok(difference(NAME, event, flag, Wanted::at_most(2.0, 1.0)))
}

/// Like [`measure`], for `TraceLoggingWrite`; the flag test is in the same language.
pub(crate) fn measure_native(native: &Native, folder: &Path) -> Result<Option<Figure>> {
    let name = native.language.disabled();
    if !is_counted(name) {
        return Ok(None);
    }
    let folder = folder.join("nobody");
    let per_pass = |what: &str| {
        per_pass_of(|passes| {
            let mut command = Command::new("valgrind");
            command.args(CACHEGRIND).arg(&native.disabled.path).arg(what).arg(passes.to_string());
            command.env("TRACEWEIR_RUNTIME_DIR", &folder);
            command
        })
    };
    Ok(difference(name, per_pass("event")?, per_pass("flag")?, Wanted::at_most(2.0, 1.0)))
}

/// Returns a figure that bounds the difference, rounded to hundredths of an instruction: background
/// threads change it by a millionth.
fn difference(name: &'static str, ours: f64, peer: f64, wanted: Wanted) -> Option<Figure> {
    let mut rounds = Rounds::default();
    rounds.add(Some(ours), Some(peer));
    let figure = rounds.figure(name, Unit::Instructions, wanted)?;
    // Avoids a negative zero.
    let ratio = ((ours - peer) * 100.0).round() / 100.0;
    Some(Figure { ratio: if ratio == 0.0 { 0.0 } else { ratio }, ..figure })
}

fn per_pass(site: Site, folder: &Path) -> Result<f64> {
    let this = this_program()?;
    per_pass_of(|passes| {
        let mut command = Command::new("valgrind");
        with_role(command.args(CACHEGRIND).arg(&this), site, passes, folder);
        command
    })
}

/// Returns the instructions of one pass, given a command for any number of passes.
#[allow(clippy::cast_precision_loss)] // Instructions are far below 2⁵³.
fn per_pass_of(command: impl Fn(u64) -> Command) -> Result<f64> {
    let (one, two) = (instructions(command(PASSES))?, instructions(command(2 * PASSES))?);
    Ok(two.saturating_sub(one) as f64 / PASSES as f64)
}

fn instructions(mut command: Command) -> Result<u64> {
    let ended = process::run(&mut command, Stdio::null())?;
    let counted = ended.stderr.lines().find_map(instructions_in);
    counted.filter(|_| ended.success).ok_or_else(|| failed(&command, ended.stderr))
}

/// Parses the number in valgrind's line `==1== I refs: 1,234`.
fn instructions_in(line: &str) -> Option<u64> {
    let (_, number) = line.split_once("refs:").filter(|(name, _)| name.contains('I'))?;
    number.trim().replace(',', "").parse().ok()
}

#[allow(clippy::cast_precision_loss)] // Nanoseconds are far below 2⁵³.
fn nanoseconds(site: Site, folder: &Path) -> Result<f64> {
    let mut command = Command::new(this_program()?);
    let ended = process::run(with_role(&mut command, site, TIMED_PASSES, folder), Stdio::piped())?;
    let total: u64 = ended.stdout.trim().parse().map_err(|_| Error::IncompleteRun(ended.stderr))?;
    Ok(total as f64 / TIMED_PASSES as f64)
}

/// Adds the arguments of the role, and the daemon of this folder if there is one.
fn with_role<'c>(command: &'c mut Command, site: Site, passes: u64, folder: &Path) -> &'c mut Command {
    let name = match site {
        Site::Provider => "provider",
        Site::LeftOut => "left-out",
        Site::TraceLogging => "trace-logging",
        Site::Flag => "flag",
    };
    command.env("TRACEWEIR_RUNTIME_DIR", folder);
    command.args(["disabled", name, &passes.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read_from_valgrinds_summary() {
        assert_eq!(instructions_in("==77== I   refs:      1,234,567"), Some(1_234_567));
        assert_eq!(instructions_in("==77== I refs: 12"), Some(12));
        assert_eq!(instructions_in("==77== Command: ./x"), None);
    }
}
