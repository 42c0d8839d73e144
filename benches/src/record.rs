//! Recorded figures: `recorded/<command>-<date>.jsonl`, a line about the machine and then one for
//! each figure.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use traceweir_decode::format::push_json_string;
use traceweir_format::time::FileTime;

use crate::error::{Error, Result};
use crate::figure::{self, Figure};
use crate::machine::MeasuredMachine;

/// Conditions of the measurement other than the machine: names and values.
pub(crate) type Circumstances<'a> = &'a [(&'a str, String)];

/// The destinations of the figures.
#[derive(Debug, clap::Args)]
pub(crate) struct OutputOptions {
    /// Print one JSON object for each figure.
    #[arg(long)]
    json: bool,
    /// Save the figures as `recorded/<command>-<date>.jsonl`.
    #[arg(long)]
    record: bool,
    /// Save the figures in this folder. Used by `all`.
    #[arg(long, value_name = "FOLDER", hide = true)]
    record_in: Option<PathBuf>,
}

impl OutputOptions {
    /// Prints the figures of a command, and saves them if that was requested.
    pub(crate) fn report(
        &self,
        command: &str,
        machine: &MeasuredMachine,
        circumstances: Circumstances<'_>,
        figures: &[Figure],
    ) -> Result<()> {
        if self.json {
            figures.iter().for_each(|figure| println!("{}", figure.to_json()));
        } else {
            print!("{}", figure::format_table(figures));
        }
        if let Some(folder) = &self.record_in {
            write(folder, command, machine, circumstances, figures)?;
        }
        if self.record {
            let path = write(&default_folder(), command, machine, circumstances, figures)?;
            eprintln!("recorded in {}", path.display());
        }
        Ok(())
    }
}

/// Writes today's file of one command into `folder`; replaces a file of the same day.
fn write(
    folder: &Path,
    command: &str,
    machine: &MeasuredMachine,
    circumstances: Circumstances<'_>,
    figures: &[Figure],
) -> Result<PathBuf> {
    let date = today();
    let mut text = machine_line(&date, machine, circumstances);
    for figure in figures {
        text.push('\n');
        text.push_str(&figure.to_json());
    }
    text.push('\n');
    std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let path = folder.join(format!("{command}-{date}.jsonl"));
    std::fs::write(&path, text).map_err(Error::file(&path))?;
    Ok(path)
}

/// Returns today's date in UTC, as `2026-02-28`.
fn today() -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = FileTime::from_unix(since_1970.as_secs().cast_signed(), 0).civil();
    format!("{:04}-{:02}-{:02}", now.year, now.month, now.day)
}

/// Returns the folder `recorded` of this package; without cargo, `benches/recorded` of the working
/// directory.
pub(crate) fn default_folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from("benches"), PathBuf::from)
        .join("recorded")
}

fn machine_line(date: &str, machine: &MeasuredMachine, circumstances: Circumstances<'_>) -> String {
    let mut pairs = vec![
        ("date", date.to_owned()),
        ("cpu", machine.cpu.clone()),
        ("cores", machine.cores.to_string()),
        ("memory_mib", machine.memory_mib.to_string()),
        ("kernel", machine.kernel.clone()),
    ];
    pairs.extend_from_slice(circumstances);
    let mut out = Vec::new();
    for (name, value) in &pairs {
        out.push(if out.is_empty() { b'{' } else { b',' });
        push_json_string(name, &mut out);
        out.push(b':');
        push_json_string(value, &mut out);
    }
    out.push(b'}');
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_machine_and_circumstances() {
        let machine =
            MeasuredMachine { cpu: "A \"B\"".into(), cores: 2, memory_mib: 512, kernel: "6.1".into() };
        assert_eq!(
            machine_line("2024-02-29", &machine, &[("peer", "1.0".into())]),
            r#"{"date":"2024-02-29","cpu":"A \"B\"","cores":"2","memory_mib":"512","kernel":"6.1","peer":"1.0"}"#
        );
    }
}
