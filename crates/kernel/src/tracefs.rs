//! Tracepoints as tracefs describes them: their number, and where their fields lie.
//!
//! ```text
//!   events/sched/sched_switch/format    ID: 314
//!                                       field:pid_t prev_pid;   offset:24;   size:4;   signed:1;
//! ```
//!
//! 1. Field offsets differ between kernels: each is read from the kernel that runs, never assumed.
//! 2. A field `__data_loc T name` holds where the data lies: offset in the low half, length in the high half of 32 bits.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Where tracefs is usually mounted.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// A format is a page or two.
const MAX_FORMAT: u64 = 64 << 10;

/// One field of a tracepoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Field {
    /// Where it begins in the raw data.
    pub(crate) offset: u16,
    /// Its bytes.
    pub(crate) size: u16,
    pub(crate) is_signed: bool,
    /// Whether it holds the place of its data.
    pub(crate) is_data_loc: bool,
}

/// A tracepoint of this kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Its number for perf events.
    pub(crate) id: u64,
    fields: Vec<(String, Field)>,
}

impl Format {
    pub(crate) fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(it, _)| it == name).map(|(_, field)| *field)
    }

    /// Reads the text of a `format` file.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut id = None;
        let mut fields = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Some(number) = line.strip_prefix("ID:") {
                id = number.trim().parse().ok();
            } else if let Some(field) = line.strip_prefix("field:").and_then(parse_field) {
                fields.push(field);
            }
        }
        Some(Self { id: id?, fields })
    }
}

/// `pid_t prev_pid;  offset:24;  size:4;  signed:1;`
fn parse_field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.split(';').map(str::trim);
    let declared = parts.next()?;
    let mut field = Field { is_data_loc: declared.starts_with("__data_loc"), ..Field::default() };
    for part in parts {
        match part.split_once(':') {
            Some(("offset", number)) => field.offset = number.trim().parse().ok()?,
            Some(("size", number)) => field.size = number.trim().parse().ok()?,
            Some(("signed", number)) => field.is_signed = number.trim() == "1",
            _ => {}
        }
    }
    // `char comm[16]`, `unsigned long args[6]`, `__data_loc char[] filename`
    let name = declared.rsplit([' ', '*']).next()?;
    let name = name.split('[').next()?;
    (!name.is_empty()).then(|| (name.to_owned(), field))
}

/// The folder where tracefs is mounted, if it can be looked into.
pub(crate) fn folder() -> Option<PathBuf> {
    PLACES.iter().map(PathBuf::from).find(|place| place.join("events").is_dir())
}

/// The format of a tracepoint.
pub(crate) fn format(folder: &Path, system: &str, name: &str) -> Result<Format> {
    let what = || format!("tracepoint {system}:{name}");
    let path = folder.join("events").join(system).join(name).join("format");
    let text = read(&path).map_err(|e| Error::system(what(), e))?;
    Format::parse(&text).ok_or_else(|| Error::Format { name: what(), field: "ID".into() })
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(MAX_FORMAT).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: sched_switch\nID: 314\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\tfield:__data_loc char[] filename;\toffset:28;\tsize:4;\tsigned:0;\n\tfield:const char * name;\toffset:32;\tsize:8;\tsigned:0;\n\nprint fmt: \"field:x y; offset:1;\"\n";

    #[test]
    fn fields_are_found_by_name() {
        let format = Format::parse(TEXT).expect("a format");
        assert_eq!(format.id, 314);
        let field = |name| format.field(name).expect(name);
        assert_eq!(field("prev_pid"), Field { offset: 24, size: 4, is_signed: true, is_data_loc: false });
        assert_eq!((field("prev_comm").offset, field("prev_comm").size), (8, 16));
        assert!(field("filename").is_data_loc);
        assert_eq!(field("name").offset, 32);
        assert_eq!(format.field("nothing"), None);
    }

    #[test]
    fn what_has_no_number_is_no_tracepoint() {
        assert_eq!(Format::parse("name: x\n"), None);
        assert_eq!(Format::parse("ID: many\n"), None);
    }
}
