//! Runs all benchmarks, and makes one table and one picture of their figures.
//!
//! ```text
//!   write, read, xpress, … ──each in a process of its own──┬▶ <command>-<date>.jsonl
//!                                                          └▶ figures.md, figures.svg
//! ```
//!
//! Each benchmark runs in a process of its own, because some bind their process to one processor.
//! The picture shows how far each figure is from the ratio that accepts it, on a logarithmic scale,
//! so that figures of different units can be compared.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::figure::show_spread;
use crate::record::default_folder;

/// The benchmarks, in the order in which they run.
const COMMANDS: [&str; 7] = ["write", "read", "xpress", "presence", "kernel", "view", "table"];

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct AllOptions {
    /// Save the figures, the table and the picture in `recorded`.
    #[arg(long)]
    record: bool,
    /// Run short rounds where a benchmark has them, for a first impression.
    #[arg(long)]
    quick: bool,
    /// Take the figures from the files in this folder, the newest of each benchmark, instead of
    /// measuring.
    #[arg(long, value_name = "FOLDER", conflicts_with = "quick")]
    from: Option<PathBuf>,
}

/// Runs the benchmarks and prints the table.
pub(crate) fn run(options: &AllOptions) -> Result<()> {
    let recordings = match &options.from {
        Some(folder) => read_recordings(folder)?,
        None => {
            let temporary = tempfile::tempdir().map_err(Error::file(&std::env::temp_dir()))?;
            measure(temporary.path(), options.quick)?;
            read_recordings(temporary.path())?
        }
    };
    let table = format_table(&recordings);
    print!("{table}");
    if options.record {
        save(&default_folder(), &recordings, &table)?;
    }
    Ok(())
}

/// Runs each benchmark, and leaves its figures in a folder.
fn measure(folder: &Path, is_quick: bool) -> Result<()> {
    let program = std::env::current_exe().map_err(Error::file(Path::new("this program")))?;
    for command in COMMANDS {
        eprintln!("-- {command}");
        let mut bench = Command::new(&program);
        bench.arg(command).arg("--record-in").arg(folder);
        if is_quick && matches!(command, "write" | "view") {
            bench.arg("--quick");
        }
        let status = bench.status().map_err(Error::file(&program))?;
        if !status.success() {
            eprintln!("{command} failed ({status}); its figures are left out");
        }
    }
    Ok(())
}

/// Reads the newest figures of each benchmark. One without its peer has recorded none.
fn read_recordings(folder: &Path) -> Result<Vec<Recording>> {
    let files = std::fs::read_dir(folder).map_err(Error::file(folder))?;
    let names: Vec<String> = files.filter_map(|file| file.ok()?.file_name().into_string().ok()).collect();
    let mut recordings = Vec::new();
    for command in COMMANDS {
        let is_recording = |name: &&String| {
            name.strip_prefix(command).is_some_and(|rest| rest.starts_with('-') && rest.ends_with(".jsonl"))
        };
        // The date in the name sorts by time.
        let Some(newest) = names.iter().filter(is_recording).max() else { continue };
        let path = folder.join(newest);
        let text = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
        recordings.push(Recording::parse(command, newest.clone(), text));
    }
    Ok(recordings)
}

fn save(folder: &Path, recordings: &[Recording], table: &str) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let write = |name: String, text: &str| -> Result<PathBuf> {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(Error::file(&path))?;
        Ok(path)
    };
    for recording in recordings {
        write(recording.file_name.clone(), &recording.text)?;
    }
    write("figures.svg".to_owned(), &draw(recordings))?;
    let path = write("figures.md".to_owned(), table)?;
    eprintln!("recorded in {}", path.display());
    Ok(())
}

/// The recorded figures of one benchmark.
struct Recording {
    command: &'static str,
    file_name: String,
    /// The lines of the file.
    text: String,
    /// The line about machine, versions and date.
    machine: String,
    figures: Vec<RecordedFigure>,
}

/// A figure of a recorded line.
#[derive(Debug, Default, PartialEq)]
struct RecordedFigure {
    name: String,
    ours: String,
    peer: String,
    ratio: f64,
    spread: f64,
    rounds: u64,
    is_larger_better: bool,
    accept: Option<f64>,
    target: Option<f64>,
}

impl Recording {
    fn parse(command: &'static str, file_name: String, text: String) -> Self {
        let mut lines = text.lines();
        let machine = lines.next().unwrap_or_default().to_owned();
        let figures = lines.filter_map(RecordedFigure::parse).collect();
        Self { command, file_name, machine, figures, text }
    }
}

impl RecordedFigure {
    /// Reads a line that [`Figure::to_json`](crate::figure::Figure::to_json) wrote.
    fn parse(line: &str) -> Option<Self> {
        let number = |name: &str| find_value(line, name)?.parse::<f64>().ok();
        Some(Self {
            name: find_value(line, "name")?.to_owned(),
            ours: find_value(line, "ours_text")?.to_owned(),
            peer: find_value(line, "peer_text")?.to_owned(),
            ratio: number("ratio")?,
            spread: number("spread")?,
            rounds: find_value(line, "rounds")?.parse().ok()?,
            is_larger_better: find_value(line, "better")? == "larger",
            accept: number("accept"),
            target: number("target"),
        })
    }

    /// Returns the ratio that accepts the figure or, if none does, the target.
    fn bound(&self) -> Option<f64> {
        self.accept.or(self.target).filter(|bound| *bound > 0.0)
    }

    /// Returns how many times better than its bound the figure is; below 1 if it is worse.
    fn advantage(&self) -> Option<f64> {
        let bound = self.bound().filter(|_| self.ratio > 0.0)?;
        Some(if self.is_larger_better { self.ratio / bound } else { bound / self.ratio })
    }

    fn format_bounds(&self) -> String {
        let sign = if self.is_larger_better { "≥" } else { "≤" };
        match (self.accept, self.target) {
            (Some(accept), Some(target)) => format!("{sign} {accept}, aim {target}"),
            (Some(bound), None) | (None, Some(bound)) => format!("{sign} {bound}"),
            (None, None) => String::new(),
        }
    }
}

/// Returns the value of a member of a flat JSON object whose texts need no escapes.
fn find_value<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let (_, rest) = line.split_once(&format!("\"{name}\":"))?;
    match rest.strip_prefix('"') {
        Some(text) => text.split_once('"').map(|(value, _)| value),
        None => rest.split([',', '}']).next(),
    }
}

/// Formats all figures as Markdown.
fn format_table(recordings: &[Recording]) -> String {
    let mut out = String::from("# Benchmark figures\n\n![Figures beside their limits](figures.svg)\n");
    for Recording { command, machine, figures, .. } in recordings {
        // Writing to a string cannot fail.
        let _ = write!(out, "\n## {command}\n\n`{machine}`\n\n");
        out.push_str("| figure | Traceweir | peer or limit | ratio | spread | rounds | required |\n");
        out.push_str("|---|---|---|---|---|---|---|\n");
        for figure in figures {
            let RecordedFigure { name, ours, peer, ratio, spread, rounds, .. } = figure;
            let bounds = figure.format_bounds();
            let spread = show_spread(*spread, *rounds);
            let _ =
                writeln!(out, "| {name} | {ours} | {peer} | {ratio:.2} | {spread} | {rounds} | {bounds} |");
        }
    }
    out
}

/// The height of a row, and the widths of the picture's columns, in pixels.
const ROW: usize = 22;
const NAMES: usize = 300;
const BARS: usize = 420;
const VALUES: usize = 150;
/// Figures that are this many times better or worse than their bound have full bars.
const MAX_ADVANTAGE: f64 = 16.0;

/// Draws one bar for each figure that has a bound: to the right if it is better, to the left if it
/// is worse.
fn draw(recordings: &[Recording]) -> String {
    let bars: Vec<(&RecordedFigure, f64)> = recordings
        .iter()
        .flat_map(|recording| &recording.figures)
        .filter_map(|figure| Some((figure, figure.advantage()?)))
        .collect();
    let (width, height) = (NAMES + BARS + VALUES, ROW * (bars.len() + 3));
    let middle = NAMES + BARS / 2;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{middle}\" y=\"16\" text-anchor=\"middle\">times better than required</text>\n"
    );
    let to_x = |advantage: f64| {
        let part = advantage.clamp(1.0 / MAX_ADVANTAGE, MAX_ADVANTAGE).log2() / MAX_ADVANTAGE.log2();
        middle as f64 + part * BARS as f64 / 2.0
    };
    // Writing to a string cannot fail.
    for tick in [1.0 / 16.0, 0.25, 1.0, 4.0, 16.0] {
        let x = to_x(tick);
        let (top, bottom) = (ROW * 2 - 6, height - ROW / 2);
        let label = if tick < 1.0 { format!("1/{}", 1.0 / tick) } else { tick.to_string() };
        let _ = writeln!(
            out,
            "<line x1=\"{x:.0}\" y1=\"{top}\" x2=\"{x:.0}\" y2=\"{bottom}\" stroke=\"#ccc\"/>\
             <text x=\"{x:.0}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{label}</text>",
            top - 3
        );
    }
    for (row, (figure, advantage)) in bars.iter().enumerate() {
        let y = ROW * (row + 2);
        let (end, zero) = (to_x(*advantage), middle as f64);
        let (left, length) = (end.min(zero), (end - zero).abs().max(1.0));
        let colour = if *advantage >= 1.0 { "#2a7f4f" } else { "#c0392b" };
        let (name, bounds, ratio) = (&figure.name, figure.format_bounds(), figure.ratio);
        let (text_y, bar) = (y + 15, ROW - 8);
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{text_y}\" text-anchor=\"end\">{name}</text>\
             <rect x=\"{left:.1}\" y=\"{}\" width=\"{length:.1}\" height=\"{bar}\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{text_y}\">{ratio:.2} ({bounds})</text>",
            NAMES - 8,
            y + 4,
            NAMES + BARS + 8
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Direction, FigureUnit, Requirement, Rounds};

    fn recording() -> Recording {
        let mut text = String::from("{\"date\":\"2026-01-02\",\"cpu\":\"A\"}\n");
        for (name, ours, requirement) in [
            ("fast", 20.0, Requirement::at_least(5.0).with_target(10.0)),
            ("slow", 2.0, Requirement::at_most(0.5)),
            ("free", 3.0, Requirement::report_only(Direction::Smaller)),
        ] {
            let mut rounds = Rounds::default();
            rounds.add(Some(ours), Some(2.0));
            let figure = rounds.figure(name, FigureUnit::Nanoseconds, requirement).unwrap();
            text += &figure.to_json();
            text.push('\n');
        }
        Recording::parse("read", "read-2026-01-02.jsonl".into(), text)
    }

    #[test]
    fn recorded_lines_are_read_back() {
        let recording = recording();
        assert!(recording.machine.contains("2026-01-02"));
        let advantages: Vec<Option<f64>> = recording.figures.iter().map(RecordedFigure::advantage).collect();
        assert_eq!(advantages, [Some(2.0), Some(0.5), None]);
        let fast = &recording.figures[0];
        assert_eq!((fast.ours.as_str(), fast.rounds, fast.ratio), ("20.0 ns", 1, 10.0));
        assert_eq!(fast.format_bounds(), "≥ 5, aim 10");
        assert_eq!(RecordedFigure::parse("{}"), None);
    }

    #[test]
    fn table_and_picture_contain_the_figures() {
        let recordings = [recording()];
        let table = format_table(&recordings);
        for row in ["## read", "| fast | 20.0 ns | 2.0 ns | 10.00 | – | 1 | ≥ 5, aim 10 |", "| free |"] {
            assert!(table.contains(row), "{table}");
        }
        let picture = draw(&recordings);
        assert!(picture.contains(">fast<") && picture.contains(">slow<") && !picture.contains(">free<"));
        assert_eq!(picture.matches("#c0392b").count(), 1, "one figure is worse than required");
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    }
}
