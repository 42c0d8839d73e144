//! The metadata: text in the language TSDL. Names in a trace are untrusted, so this module is the
//! only one that writes names: [`NameSet`] as identifiers, [`push_string_literal`] as strings.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use traceweir_analysis::text::escape;
use traceweir_analysis::traces::TraceSet;

/// Comes first in every metadata file of CTF 1.8.
const SIGNATURE: &str = "/* CTF 1.8 */\n\n";

/// The largest number of characters of an identifier, without the number of its repetition.
const MAX_NAME_CHARS: usize = 255;
/// The largest number of characters of a string.
const MAX_STRING_CHARS: usize = 4096;
/// The largest number of traces that the environment describes.
const MAX_DESCRIBED_TRACES: usize = 64;

/// The types of integers and floating-point numbers.
pub(super) const TYPES: &str = "\
typealias integer { size = 8; align = 8; signed = false; } := u8;
typealias integer { size = 16; align = 8; signed = false; } := u16;
typealias integer { size = 32; align = 8; signed = false; } := u32;
typealias integer { size = 64; align = 8; signed = false; } := u64;
typealias integer { size = 8; align = 8; signed = true; } := s8;
typealias integer { size = 16; align = 8; signed = true; } := s16;
typealias integer { size = 32; align = 8; signed = true; } := s32;
typealias integer { size = 64; align = 8; signed = true; } := s64;
typealias integer { size = 8; align = 8; signed = false; base = 16; } := x8;
typealias integer { size = 16; align = 8; signed = false; base = 16; } := x16;
typealias integer { size = 32; align = 8; signed = false; base = 16; } := x32;
typealias integer { size = 64; align = 8; signed = false; base = 16; } := x64;
typealias floating_point { exp_dig = 8; mant_dig = 24; align = 8; } := f32;
typealias floating_point { exp_dig = 11; mant_dig = 53; align = 8; } := f64;
";

/// The clock: nanoseconds since 1970, UTC.
const CLOCK: &str = "
clock {
	name = utc;
	description = \"UTC, nanoseconds since 1970\";
	freq = 1000000000;
	offset = 0;
	absolute = true;
};
typealias integer { size = 64; align = 8; signed = false; map = clock.utc.value; } := utc_time;
";

/// What all packets and events begin with. `streams` writes the packets, `ctf` the contexts.
const STREAM_START: &str = "
stream {
	id = 0;
	packet.context := struct {
		utc_time timestamp_begin;
		utc_time timestamp_end;
		u64 content_size;
		u64 packet_size;
		u64 packet_seq_num;
		u64 events_discarded;
		u32 cpu_id;
	};
	event.header := struct {
		u32 id;
		utc_time timestamp;
	};
	event.context := struct {
		s64 _pid;
		s64 _tid;
		u16 _cpu;
		string _process;
";
const STREAM_END: &str = "\t\tstring _other_provider;
		u16 _event_id;
		u8 _version;
		u8 _level;
		u8 _opcode;
		u16 _task;
		x64 _keyword;
		string _activity;
		string _related_activity;
		u16 __stack_length;
		x64 _stack[__stack_length];
	};
};
";

/// The parts of the metadata that do not depend on the events.
pub(super) struct TraceDescription {
    /// Identifies the output; every packet repeats it.
    pub(super) uuid: [u8; 16],
    environment: String,
}

impl TraceDescription {
    pub(super) fn new(traces: &TraceSet) -> Self {
        let mut environment = String::from("\nenv {\n\ttracer_name = \"traceweir\";\n\tdomain = \"etw\";\n");
        // Writing to a string cannot fail.
        let _ = writeln!(environment, "\ttracer_version = \"{}\";", env!("CARGO_PKG_VERSION"));
        let mut hashers = [DefaultHasher::new(), DefaultHasher::new()];
        1_u8.hash(&mut hashers[1]);
        for (index, input) in traces.inputs.iter().enumerate() {
            let header = input.trace.header();
            for hasher in &mut hashers {
                (&header.session_name, header.start_time.0, header.end_time.0).hash(hasher);
                (header.buffers_written, input.trace.file_size()).hash(hasher);
            }
            if index >= MAX_DESCRIBED_TRACES {
                continue;
            }
            for (name, text) in [("trace", &input.name), ("session", &header.session_name)] {
                let _ = write!(environment, "\t{name}_{index} = ");
                push_string_literal(text, &mut environment);
                environment.push_str(";\n");
            }
            let _ = writeln!(environment, "\tevents_lost_{index} = {};", header.events_lost);
            let _ = writeln!(environment, "\tbuffers_lost_{index} = {};", header.buffers_lost);
        }
        environment.push_str("};\n");
        Self { uuid: make_uuid(hashers.map(|hasher| hasher.finish())), environment }
    }

    /// Returns the metadata without the event classes, which follow it. `providers` are the values of
    /// an enumeration.
    pub(super) fn format(&self, providers: &str) -> String {
        let mut text = String::from(SIGNATURE);
        text.push_str(TYPES);
        let uuid = format_uuid(&self.uuid);
        let _ = write!(
            text,
            "\ntrace {{\n\tmajor = 1;\n\tminor = 8;\n\tuuid = \"{uuid}\";\n\tbyte_order = le;\n\
             \tpacket.header := struct {{\n\t\tx32 magic;\n\t\tu8 uuid[16];\n\t\tu32 stream_id;\n\t}};\n}};\n"
        );
        text.push_str(&self.environment);
        text.push_str(CLOCK);
        text.push_str(STREAM_START);
        let _ = writeln!(text, "\t\tenum : u32 {{ {providers} }} _provider;");
        text.push_str(STREAM_END);
        text
    }
}

/// Returns a UUID (version 8, of this tool's own making) of 128 bits.
fn make_uuid(halves: [u64; 2]) -> [u8; 16] {
    let [high, low] = halves;
    let number = u128::from(high) << 64 | u128::from(low);
    let fixed = number & !(0xF << 76) & !(3 << 62) | 8 << 76 | 2 << 62;
    fixed.to_be_bytes()
}

fn format_uuid(uuid: &[u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Appends a text as a string of TSDL. Control characters are escaped, and so are the characters
/// that end a string.
pub(super) fn push_string_literal(text: &str, out: &mut String) {
    out.push('"');
    let limited: String = text.chars().take(MAX_STRING_CHARS).collect();
    for c in escape(&limited).chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(if c.is_control() { '?' } else { c });
    }
    out.push('"');
}

/// The names of the members of one structure.
///
/// A name begins with an underscore, so that no name is a word of TSDL; readers hide the underscore.
#[derive(Debug, Default)]
pub(super) struct NameSet {
    used: HashSet<String>,
    /// How often each name was chosen before numbers were added to it.
    repetitions: HashMap<String, u32>,
}

impl NameSet {
    /// Returns the identifier for a name: its letters and digits of ASCII, and a number if the
    /// structure has the identifier already.
    pub(super) fn choose(&mut self, name: &str) -> String {
        let mut identifier = String::from("_");
        let to_ascii = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        identifier.extend(name.chars().take(MAX_NAME_CHARS).map(to_ascii));
        if identifier.len() == 1 {
            identifier.push_str("field");
        }
        self.add(identifier)
    }

    /// Returns the identifier for the length of a field.
    pub(super) fn choose_length(&mut self, field: &str) -> String {
        self.add(format!("_{field}_length"))
    }

    fn add(&mut self, identifier: String) -> String {
        let mut unique = identifier.clone();
        // babeltrace2 2.0.4 takes `_x` for a repetition of an earlier `__x`.
        let is_used = |name: &String| self.used.contains(name) || self.used.contains(&format!("_{name}"));
        while is_used(&unique) {
            let count = self.repetitions.entry(identifier.clone()).or_insert(1);
            *count = count.saturating_add(1);
            unique = format!("{identifier}_{count}");
        }
        self.used.insert(unique.clone());
        unique
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_safe_and_unique() {
        let mut names = NameSet::default();
        let chosen: Vec<String> =
            ["a", "a", "a_2", "a", "", "é}; /*", "struct", "1"].iter().map(|n| names.choose(n)).collect();
        assert_eq!(chosen, ["_a", "_a_2", "_a_2_2", "_a_3", "_field", "_______", "_struct", "_1"]);
        let length = names.choose_length("_a");
        assert_eq!((length.as_str(), names.choose("_a_length").as_str()), ("__a_length", "__a_length_2"));
        assert_eq!(names.choose(&"x".repeat(70_000)).len(), MAX_NAME_CHARS + 1);
        let mut names = NameSet::default();
        assert_eq!([names.choose("_b"), names.choose("b")], ["__b", "_b_2"], "readers hide one underscore");
    }

    #[test]
    fn four_thousand_equal_names_are_cheap() {
        let mut names = NameSet::default();
        let last = (0..4096).map(|_| names.choose("same")).last();
        assert_eq!(last.as_deref(), Some("_same_4096"));
    }

    #[test]
    fn strings_cannot_end_early() {
        let mut out = String::new();
        push_string_literal("a\"b\\c\n\u{1b}[2J\u{85}d", &mut out);
        assert_eq!(out, r#""a\"b\\c\\n\\x1b[2J\\x85d""#);
        assert!(!out.chars().any(char::is_control));
    }

    #[test]
    fn uuid_has_the_form_of_its_version() {
        let text = format_uuid(&make_uuid([u64::MAX, u64::MAX]));
        assert_eq!(text, "ffffffff-ffff-8fff-bfff-ffffffffffff");
        assert_eq!(format_uuid(&make_uuid([0, 0])), "00000000-0000-8000-8000-000000000000");
    }
}
