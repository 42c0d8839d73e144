//! Parses the text that Microsoft's TraceEvent printed for a trace. Each event is one line, which
//! is wrapped here. `ProceNum` is the processor number in TraceEvent's spelling.
//!
//! ```text
//! EVENT <ms>: <provider>/<event> PID=..; TID=..; PName=..; ProceNum=..; DataLen=..;
//!       <field>=<value>; ...
//! COUNT <provider>/<event>:<number>
//! ```

use std::collections::BTreeMap;

/// One EVENT line.
pub(super) struct EventLine {
    pub(super) ms: f64,
    /// `provider/event`, as TraceEvent names them.
    pub(super) name: String,
    pub(super) pid: i64,
    pub(super) tid: i64,
    /// Name of the process without its extension.
    pub(super) process: String,
    pub(super) cpu: u64,
    pub(super) len: u64,
    pub(super) fields: Vec<(String, String)>,
}

/// The EVENT and COUNT lines of a file.
pub(super) struct Baseline {
    pub(super) events: Vec<EventLine>,
    pub(super) counts: BTreeMap<String, u64>,
}

impl Baseline {
    pub(super) fn parse(text: &str) -> Self {
        let events = text.lines().filter_map(|line| line.strip_prefix("EVENT ")).map(parse_event).collect();
        let counts = text.lines().filter_map(|line| line.strip_prefix("COUNT ")).map(parse_count).collect();
        let line_count = text.lines().count();
        let baseline = Self { events, counts };
        assert_eq!(
            baseline.events.len() + baseline.counts.len(),
            line_count,
            "a line is neither an EVENT nor a COUNT, or two COUNT lines have the same name"
        );
        baseline
    }
}

fn parse_count(line: &str) -> (String, u64) {
    let (name, number) = line.rsplit_once(':').expect("the line has no count");
    (name.to_owned(), number.parse().expect("the text is not a number"))
}

fn parse_event(line: &str) -> EventLine {
    let (ms, remaining) = line.split_once(": ").expect("the line has no time");
    let (name, remaining) = remaining.split_once(" PID=").expect("the line has no process id");
    let (pid, remaining) = remaining.split_once("; TID=").expect("the line has no thread id");
    let (tid, remaining) = remaining.split_once("; PName=").expect("the line has no process name");
    let (process, remaining) = remaining.split_once("; ProceNum=").expect("the line has no processor number");
    let (cpu, remaining) = remaining.split_once("; DataLen=").expect("the line has no length");
    let (len, fields) = remaining.split_once(';').expect("no `;` follows the length");
    EventLine {
        ms: ms.replace(',', "").parse().expect("the text is not a number"),
        name: name.to_owned(),
        pid: pid.parse().expect("the text is not a number"),
        tid: tid.parse().expect("the text is not a number"),
        process: process.to_owned(),
        cpu: cpu.parse().expect("the text is not a number"),
        len: len.parse().expect("the text is not a number"),
        fields: parse_fields(fields),
    }
}

/// Splits `name=value; name=value; `. Text that does not begin with a name belongs to the value
/// before it.
fn parse_fields(text: &str) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for part in text.trim_start().split("; ") {
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.')
        };
        match part.split_once('=').filter(|(name, _)| is_name(name)) {
            Some((name, value)) => fields.push((name.to_owned(), value.to_owned())),
            None if part.is_empty() => {}
            None => {
                let (_, value) = fields.last_mut().expect("the first part has no name");
                value.push_str("; ");
                value.push_str(part);
            }
        }
    }
    fields
}
