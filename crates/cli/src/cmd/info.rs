//! `weir info`: shows what a trace contains.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use traceweir::LogFileMode;
use traceweir_analysis::event::{DescribedEvent, ReadFlow, describes_file};
use traceweir_analysis::input::TraceInput;
use traceweir_analysis::traces::TraceSet;
use traceweir_decode::format::push_json_string;
use traceweir_format::Guid;
use traceweir_format::kernel::class_name;
use traceweir_format::kernel::hook;
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::text::until_nul8;
use traceweir_format::time::{Clock, ClockKind, FileTime};

use crate::cli::InfoArgs;
use crate::exit::{self, CommandOutcome};
use crate::output::BufferedOutput;
use crate::progress::TerminalObserver;
use crate::reading::{print_defects, print_warnings, reading_outcome};
use crate::sessions::mode_names;
use crate::text::{TerminalStyle, escape, format_count, format_number, format_table};

/// Facts that a pass over the events finds.
#[derive(Default)]
struct TraceSurvey {
    /// Number of events, without those that describe the log file.
    events: u64,
    /// Number of events that describe the log file; no other number includes them.
    file_events: u64,
    first: Option<FileTime>,
    last: Option<FileTime>,
    /// The system that wrote the trace, if an event names it.
    system: Option<String>,
    /// Name and number of events of each provider.
    providers: BTreeMap<Guid, (String, u64)>,
}

pub(super) fn run(options: &InfoArgs) -> Result<CommandOutcome> {
    let mut output = BufferedOutput::open(None)?;
    exit::process_each(&options.files.files, |path| show_file(path, options, &mut output))
}

fn show_file(path: &PathBuf, options: &InfoArgs, output: &mut BufferedOutput) -> Result<CommandOutcome> {
    let mut traces = TraceSet::open(
        std::slice::from_ref(path),
        &options.schemas.files(),
        TerminalObserver::create(false),
    )?;
    let mut surveys: Vec<TraceSurvey> = traces.inputs.iter().map(|_| TraceSurvey::default()).collect();
    let reading = traces.read(
        |_, _| true,
        |event| {
            if let Some(survey) = surveys.get_mut(event.file) {
                survey.add_event(event);
            }
            Ok(ReadFlow::Continue)
        },
    )?;
    for (input, survey) in traces.inputs.iter().zip(&surveys) {
        let text = if options.json {
            format_json(input, survey)
        } else {
            format_page(input, survey, TerminalStyle::for_stdout())
        };
        output.buffer().extend_from_slice(text.as_bytes());
    }
    output.flush()?;
    if options.json {
        print_warnings(&reading);
    } else {
        // The page contains the losses.
        print_defects(&reading);
    }
    Ok(reading_outcome(&reading))
}

impl TraceSurvey {
    fn add_event(&mut self, event: &DescribedEvent<'_>) {
        if event.record.hook() == Some(hook::BUILD_INFO) && self.system.is_none() {
            let text = until_nul8(event.record.payload());
            self.system = Some(String::from_utf8_lossy(text).into_owned());
        }
        if describes_file(&event.record) {
            self.file_events += 1;
            return;
        }
        self.events += 1;
        self.first.get_or_insert(event.time);
        self.last = self.last.max(Some(event.time));
        let (name, count) = self.providers.entry(event.record.provider()).or_default();
        if name.is_empty() {
            event.provider.unwrap_or_default().clone_into(name);
        }
        *count += 1;
    }
}

/// The column at which values begin.
const VALUE_INDENT: usize = 13;

fn format_page(input: &TraceInput, survey: &TraceSurvey, style: TerminalStyle) -> String {
    let trace = &input.trace;
    let header = trace.header();
    let mut page = String::new();
    let mut add_line = |name: &str, value: &str| {
        let _ = writeln!(page, "{name:<12} {}", style.wrap(value, VALUE_INDENT));
    };
    let unpacked = if input.is_unpacked { " unpacked" } else { "" };
    let size = format_count(trace.file_size(), "byte");
    add_line("File", &format!("{} ({size}{unpacked})", input.name));
    add_line(
        "Session",
        &format!(
            "{}, logged to {}",
            name_or_placeholder(&header.session_name),
            name_or_placeholder(&header.file_name)
        ),
    );
    add_line(
        "Mode",
        format!("{:#x} {}", header.log_file_mode, mode_names(LogFileMode::new(header.log_file_mode)))
            .trim_end(),
    );
    add_line("Machine", &format_machine(header, survey.system.as_deref()));
    add_line("Clock", &format_clock(trace.clock()));
    add_line("Started", &format!("{}, machine up since {}", header.start_time, header.boot_time));
    if trace.is_finalised() {
        let span = header.end_time.0.saturating_sub(header.start_time.0) as f64 / 1e7;
        add_line("Ended", &format!("{}, after {span:.3} s", header.end_time));
    } else {
        add_line("Ended", "not finalised, or still being written (weir repair writes a finalised copy)");
    }
    let of_file = match survey.file_events {
        0 => String::new(),
        count => format!(", and {} of the file itself", format_number(count)),
    };
    if let (Some(first), Some(last)) = (survey.first, survey.last) {
        let span = format!("from {first} to {last}");
        add_line("Events", &format!("{} {span}{of_file}", format_number(survey.events)));
    } else {
        add_line("Events", &format!("none{of_file}"));
    }
    add_line("Buffers", &format_buffers(input));
    let (events, buffers) = (header.events_lost.into(), header.buffers_lost.into());
    let lost = format!("{}, {}", format_count(events, "event"), format_count(buffers, "buffer"));
    let has_uncounted_loss = events == 0 && buffers == 0 && trace.loss_flags() != 0;
    let uncounted = if has_uncounted_loss { "; buffers report a loss, but not how many" } else { "" };
    add_line("Lost", &format!("{lost}{uncounted}"));
    add_line("Providers", &format_number(survey.providers.len() as u64));
    let mut providers: Vec<_> = survey.providers.iter().collect();
    providers.sort_by_key(|(guid, (name, count))| (std::cmp::Reverse(*count), name, *guid));
    let mut rows = vec![["events", "guid", "provider"].map(str::to_owned)];
    rows.extend(providers.into_iter().map(|(guid, (name, count))| {
        // Kernel events share one provider name; their class distinguishes them.
        let class = class_name(guid).map_or_else(String::new, |c| format!(" ({c})"));
        [format_number(*count), guid.to_string(), format!("{}{class}", name_or_placeholder(name))]
    }));
    if rows.len() > 1 {
        let _ = write!(page, "\n{}", format_table(&rows, &[true, false, false]));
    }
    page.push('\n');
    page
}

fn name_or_placeholder(name: &str) -> String {
    if name.is_empty() { "(no name)".to_owned() } else { escape(name) }
}

fn format_machine(header: &LogFileHeader, system_name: Option<&str>) -> String {
    let [major, minor, ..] = header.versions;
    let system = match system_name {
        // The build string that Windows writes starts with a number. Other systems write their
        // name, and the version in their header is not theirs.
        Some(name) if name.starts_with(char::is_alphabetic) => escape(name),
        _ => format!("Windows {major}.{minor} build {}", header.provider_version),
    };
    let (cpus, mhz, bits) = (header.processors, header.cpu_speed_mhz, header.pointer_size * 8);
    let zone = header.time_zone.bias.saturating_add(header.time_zone.standard_bias).saturating_neg();
    let (sign, zone) = (if zone < 0 { '-' } else { '+' }, zone.unsigned_abs());
    let (hours, minutes) = (zone / 60, zone % 60);
    let cpus = format_count(cpus.into(), "CPU");
    format!("{system}, {cpus} at {mhz} MHz, {bits}-bit, standard time UTC{sign}{hours:02}:{minutes:02}")
}

fn format_clock(clock: &Clock) -> String {
    match clock.kind {
        ClockKind::Qpc => format!("performance counter, {} Hz", format_number(clock.rate)),
        ClockKind::SystemTime => "system time, 100 ns".to_owned(),
        ClockKind::CpuCycles => format!("CPU cycles, {} Hz", format_number(clock.rate)),
    }
}

fn format_buffers(input: &TraceInput) -> String {
    let trace = &input.trace;
    let (count, compressed) = (trace.buffers().len(), trace.compressed_buffers());
    // The buffers are sorted by processor, so `dedup` leaves each processor once.
    let mut cpus: Vec<u16> = trace.buffers().iter().map(|b| b.cpu).collect();
    cpus.dedup();
    let (size, header_count, cpus) = (trace.header().buffer_size, trace.header().buffers_written, cpus.len());
    let state = match compressed as u64 {
        0 => "not compressed".to_owned(),
        compressed => format!("{} compressed", format_number(compressed)),
    };
    format!(
        "{} of {} in {}, {state}; header says {}",
        format_number(count as u64),
        format_count(size.into(), "byte"),
        format_count(cpus as u64, "stream"),
        format_number(header_count.into())
    )
}

fn format_json(input: &TraceInput, survey: &TraceSurvey) -> String {
    let trace = &input.trace;
    let header = trace.header();
    let mut out = b"{\"file\":".to_vec();
    push_json_string(&input.name, &mut out);
    out.extend_from_slice(b",\"session\":");
    push_json_string(&header.session_name, &mut out);
    out.extend_from_slice(b",\"log_file\":");
    push_json_string(&header.file_name, &mut out);
    out.extend_from_slice(b",\"system\":");
    match &survey.system {
        Some(system) => push_json_string(system, &mut out),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(format_number_fields(input, survey).as_bytes());
    out.extend_from_slice(b",\"providers\":[");
    for (index, (guid, (name, count))) in survey.providers.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b",{\"name\":" } else { b"{\"name\":" });
        if name.is_empty() {
            out.extend_from_slice(b"null");
        } else {
            push_json_string(name, &mut out);
        }
        out.extend_from_slice(format!(",\"guid\":\"{guid}\",\"events\":{count}}}").as_bytes());
    }
    out.extend_from_slice(b"]}\n");
    String::from_utf8_lossy(&out).into_owned()
}

/// Formats the fields that are numbers and times, each after a comma.
fn format_number_fields(input: &TraceInput, survey: &TraceSurvey) -> String {
    let trace = &input.trace;
    let header = trace.header();
    let end = if trace.is_finalised() { format!("\"{}\"", header.end_time) } else { "null".to_owned() };
    let kind = match trace.clock().kind {
        ClockKind::Qpc => "qpc",
        ClockKind::SystemTime => "system",
        ClockKind::CpuCycles => "cycles",
    };
    let quote_or_null = |time: Option<FileTime>| time.map_or("null".to_owned(), |time| format!("\"{time}\""));
    format!(
        ",\"size\":{},\"mode\":\"{:#x}\",\"os\":\"{}.{}\",\"build\":{},\"cpus\":{},\"cpu_mhz\":{},\"pointer_size\":{},\
         \"clock\":\"{kind}\",\"clock_hz\":{},\"boot\":\"{}\",\"start\":\"{}\",\"end\":{end},\"finalised\":{},\
         \"events\":{},\"file_events\":{},\"first\":{},\"last\":{},\"buffers\":{},\"compressed_buffers\":{},\"compressed\":{},\"buffer_size\":{},\
         \"buffers_written\":{},\"events_lost\":{},\"buffers_lost\":{}",
        trace.file_size(),
        header.log_file_mode,
        header.versions[0],
        header.versions[1],
        header.provider_version,
        header.processors,
        header.cpu_speed_mhz,
        header.pointer_size,
        trace.clock().rate,
        header.boot_time,
        header.start_time,
        trace.is_finalised(),
        survey.events,
        survey.file_events,
        quote_or_null(survey.first),
        quote_or_null(survey.last),
        trace.buffers().len(),
        trace.compressed_buffers(),
        trace.compressed_buffers() > 0,
        header.buffer_size,
        header.buffers_written,
        header.events_lost,
        header.buffers_lost,
    )
}
