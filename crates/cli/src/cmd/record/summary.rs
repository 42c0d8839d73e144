//! The summary of a recording: its events by provider and kind, and the commands to type next.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anstream::eprintln;
use anyhow::Result;
use traceweir::Guid;
use traceweir_format::kernel::hook;

use crate::cli::SchemaArgs;
use crate::event::{DescribedEvent, ReadFlow, describes_file};
use crate::existing_output;
use crate::export::format_unnamed_event;
use crate::own_command::own_command;
use crate::text::{escape, format_count, format_number, quote_path_for_shell};
use crate::traces::TraceSet;

/// Larger files are not read for the summary; `weir stats` reads them.
const MAX_FILE_BYTES: u64 = 32 << 20;
/// Maximum number of rows of the table.
const MAX_ROWS: usize = 12;

/// The events of a file, by provider and kind.
#[derive(Default)]
struct EventCounts {
    rows: HashMap<(Guid, Arc<str>), u64>,
    providers: HashMap<Guid, String>,
    total: u64,
    samples: u64,
}

/// Prints what a finished recording contains, and two commands that show more. `collected` is the
/// number of events if the file is too large to be read here.
pub(super) fn print(file: &Path, manifests: &[PathBuf], collected: u64, elapsed: Duration) {
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    let counts = if size <= MAX_FILE_BYTES { EventCounts::read(file, manifests).ok() } else { None };
    if let Some(counts) = &counts {
        counts.print_table();
    }
    let events = counts.as_ref().map_or(collected, |counts| counts.total);
    let seconds = elapsed.as_secs_f64().max(f64::EPSILON);
    let rate = format_count((events as f64 / seconds).round() as u64, "event");
    eprintln!("recorded for {:.1} s: {rate} per second, {}", elapsed.as_secs_f64(), format_size(size));
    let [first, second] = next_commands(file, counts.as_ref());
    eprintln!("next: {first}\n      {second}");
}

impl EventCounts {
    fn read(file: &Path, manifests: &[PathBuf]) -> Result<Self> {
        let schemas = SchemaArgs { manifest: manifests.to_vec(), ..SchemaArgs::default() };
        let mut traces = TraceSet::open(&[file.to_owned()], &schemas, false)?;
        let mut counts = Self::default();
        traces.read(
            |record, _| !describes_file(record),
            |event| {
                counts.add(event);
                Ok(ReadFlow::Continue)
            },
        )?;
        Ok(counts)
    }

    fn add(&mut self, event: &DescribedEvent<'_>) {
        let guid = event.record.provider();
        if let Some(name) = event.provider {
            self.providers.entry(guid).or_insert_with(|| name.to_owned());
        }
        let name = event.schema_match.as_ref().ok().and_then(|schema| schema.prepared.event_name.clone());
        let name = name.unwrap_or_else(|| format_unnamed_event(&event.record).into());
        let count = self.rows.entry((guid, name)).or_default();
        *count = count.saturating_add(1);
        self.total = self.total.saturating_add(1);
        let is_sample = event.record.hook() == Some(hook::SAMPLED_PROFILE);
        self.samples = self.samples.saturating_add(u64::from(is_sample));
    }

    fn print_table(&self) {
        let label = |(guid, name): &(Guid, Arc<str>)| match self.providers.get(guid) {
            Some(provider) => format!("{}/{}", escape(provider), escape(name)),
            None => format!("{guid}/{}", escape(name)),
        };
        let mut rows: Vec<(String, u64)> =
            self.rows.iter().map(|(key, count)| (label(key), *count)).collect();
        rows.sort_by(|first, second| (Reverse(first.1), &first.0).cmp(&(Reverse(second.1), &second.0)));
        for (label, count) in rows.iter().take(MAX_ROWS) {
            eprintln!("{:>12}  {label}", format_number(*count));
        }
        let hidden = rows.len().saturating_sub(MAX_ROWS);
        if hidden > 0 {
            eprintln!("{:>12}  further kinds of events", format_number(hidden as u64));
        }
    }
}

/// Returns two commands that show the recorded events, as they can be typed in this shell.
fn next_commands(file: &Path, counts: Option<&EventCounts>) -> [String; 2] {
    let (weir, name) = (own_command(), quote_path_for_shell(file));
    let has_samples = counts.is_some_and(|counts| counts.samples > 0);
    let has_others = counts.is_none_or(|counts| counts.providers.len() > 1 || counts.samples == 0);
    let flame = || {
        let page = file.with_extension("html");
        let force = if existing_output::check_other(&page, false).is_err() { " --force" } else { "" };
        format!("{weir} flame {name} -o {}{force}", quote_path_for_shell(&page))
    };
    match (has_samples, has_others) {
        (true, true) => [format!("{weir} report cpu {name}"), format!("{weir} dump {name}")],
        (true, false) => [format!("{weir} report cpu {name}"), flame()],
        (false, _) => [format!("{weir} dump {name}"), format!("{weir} stats {name}")],
    }
}

/// Formats a size for people.
fn format_size(bytes: u64) -> String {
    match bytes {
        0..1024 => format_count(bytes, "byte"),
        1024..1_048_576 => format!("{} KiB", format_number(bytes >> 10)),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
