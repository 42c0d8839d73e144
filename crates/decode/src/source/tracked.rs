//! Compiled manifests of the programs that a trace names: providers tell sessions which file they live in.
//!
//! ```text
//!   FULL EventTraceGuid 0x43: GUIDs, path, build id ──observe──▶ a list ──take_tracked──▶ whoever may open files
//!                                                                                              │
//!   schemas of those GUIDs ◀── section .etw_manifest ◀── same build id? ◀──add_tracked── the file
//! ```
//!
//! A trace may come from a stranger, and so may the paths in it. This module opens nothing; it says what a trace names, and looks into what it is
//! given. Only a file that has the very build id which the event names is believed, and only what it says about the GUIDs of the event.
//!
//! Invariants: each file is named once, and at most [`MAX_TRACKED`] are; what their schemas take is paid from the budget of the trace.

use std::collections::HashMap;
use std::io::{Read, Seek};

use traceweir_format::Guid;
use traceweir_format::binary_path::BinaryPath;
use traceweir_format::header::Record;

use super::{Decoder, Rank, identified};
use crate::{Error, Result};

/// The most files that a trace may name.
pub const MAX_TRACKED: usize = 256;

/// Files that a trace names, each once.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    /// The GUIDs that were told for a path and build id.
    seen: HashMap<(String, String), Vec<Guid>>,
    waiting: Vec<BinaryPath>,
}

impl Tracked {
    /// Notes a file, and once more if it has a provider that was not told of it before.
    fn note(&mut self, mut told: BinaryPath) {
        // A file without a build id cannot be told from any other that has its name now.
        if told.build_id.is_empty() || told.path.is_empty() {
            return;
        }
        let key = (told.path.clone(), told.build_id.clone());
        if self.seen.len() >= MAX_TRACKED && !self.seen.contains_key(&key) {
            return;
        }
        let known = self.seen.entry(key).or_default();
        told.guids.retain(|guid| !known.contains(guid));
        if told.guids.is_empty() || known.len() >= MAX_TRACKED {
            return;
        }
        known.extend_from_slice(&told.guids);
        // A file that waits is looked into once for all that it has.
        let is_it = |it: &&mut BinaryPath| it.path == told.path && it.build_id == told.build_id;
        match self.waiting.iter_mut().find(is_it) {
            Some(it) => it.guids.append(&mut told.guids),
            None => self.waiting.push(told),
        }
    }
}

impl Decoder {
    /// Learns from an event that names a file.
    pub(super) fn observe_binary_path(&mut self, record: &Record<'_>) {
        if let Ok(told) = BinaryPath::parse(record.payload()) {
            self.tracked.note(told);
        }
    }

    /// The files that the trace named since the last call, which [`add_tracked`](Self::add_tracked) can learn from.
    #[must_use]
    pub fn take_tracked(&mut self) -> Vec<BinaryPath> {
        std::mem::take(&mut self.tracked.waiting)
    }

    /// Whether the trace named files since the last call of [`take_tracked`](Self::take_tracked).
    #[must_use]
    pub fn has_tracked(&self) -> bool {
        !self.tracked.waiting.is_empty()
    }

    /// Takes in what a file says about the providers that were told to live in it. Returns the number of events.
    ///
    /// An error where it is not the file that was meant, or says nothing about them.
    pub fn add_tracked<R: Read + Seek>(&mut self, told: &BinaryPath, file: R) -> Result<usize> {
        let mut events = 0_usize;
        for provider in identified::load_identified(file, &told.build_id)? {
            if !told.guids.contains(&provider.id) {
                continue;
            }
            let fields = provider.events.iter().map(|e| e.schema.fields().len().saturating_add(1));
            if !self.in_trace.pay(fields.sum(), 0) {
                return Err(Error::Schema("the programs of the trace describe too many fields"));
            }
            events = events.saturating_add(provider.events.len());
            self.add_provider(provider, Rank::Tracked)?;
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::source::binary::{self, tests::elf_sections};
    use crate::source::wevt::build::{PROVIDER, compiled, hostile};
    use traceweir_format::wire::Put;

    /// A note with a build id.
    fn note(id: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        note.put_u32(4).put_u32(id.len() as u32).put_u32(3).put(b"GNU\0").put(id);
        note
    }

    fn program(wide: bool) -> Vec<u8> {
        let (note, manifest) = (note(&[0xAB, 0x01, 0x02, 0x03]), compiled(true));
        elf_sections(wide, &[(".note.gnu.build-id", 7, &note), (binary::ELF_SECTION, 1, &manifest)])
    }

    fn told(build_id: &str, guids: &[Guid]) -> BinaryPath {
        BinaryPath {
            path: "/x".into(),
            build_id: build_id.into(),
            guids: guids.to_vec(),
            ..BinaryPath::default()
        }
    }

    /// The event as a session writes it.
    fn observe(decoder: &mut Decoder, told: &BinaryPath) {
        let record = told.to_record().unwrap();
        decoder.observe(&Record::parse(&record, 0).unwrap());
    }

    #[test]
    fn a_program_is_believed_by_its_build_id_about_its_own_providers() {
        for wide in [true, false] {
            let add = |told: &BinaryPath| Decoder::new().add_tracked(told, Cursor::new(program(wide)));
            assert_eq!(add(&told("ab010203", &[PROVIDER])), Ok(3));
            assert_eq!(add(&told("AB010203", &[Guid::NULL, PROVIDER])), Ok(3));
            assert_eq!(add(&told("ab010203", &[Guid::NULL])), Ok(0), "nobody else's");
            for other in ["", "ab0102", "ab01020304", "cd010203"] {
                assert!(matches!(add(&told(other, &[PROVIDER])), Err(Error::Binary(_))), "{other}");
            }
        }
    }

    #[test]
    fn a_program_without_build_id_or_manifest_says_nothing() {
        let manifest = compiled(true);
        let nameless = elf_sections(true, &[(binary::ELF_SECTION, 1, &manifest)]);
        let add = |file: Vec<u8>| Decoder::new().add_tracked(&told("", &[PROVIDER]), Cursor::new(file));
        assert!(matches!(add(nameless), Err(Error::Binary(_))));
        assert!(matches!(add(elf_sections(true, &[(".text", 1, b"x")])), Err(Error::NoMetadata(_))));
        assert!(matches!(add(Vec::new()), Err(Error::Binary(_))));
        assert!(matches!(add(b"MZ no program of this system".to_vec()), Err(Error::Binary(_))));
    }

    #[test]
    fn each_file_is_named_once_and_their_number_is_bounded() {
        let mut decoder = Decoder::new();
        for _ in 0..3 {
            observe(&mut decoder, &told("01", &[PROVIDER]));
        }
        observe(&mut decoder, &told("", &[PROVIDER]));
        assert!(decoder.has_tracked());
        assert_eq!(decoder.take_tracked().len(), 1, "once, and none without a build id");
        observe(&mut decoder, &told("01", &[PROVIDER, Guid::from_u128(1)]));
        assert_eq!(decoder.take_tracked()[0].guids, [Guid::from_u128(1)], "a provider that is new there");
        for n in 0..2000 {
            observe(&mut decoder, &told(&format!("{n:08x}"), &[PROVIDER]));
        }
        assert_eq!(decoder.take_tracked().len(), MAX_TRACKED - 1);
        for n in 0..2000 {
            observe(&mut decoder, &told("01", &[Guid::from_u128(n)]));
        }
        assert!(decoder.take_tracked().len() < MAX_TRACKED);
    }

    #[test]
    fn damage_never_panics() {
        let file =
            elf_sections(true, &[(".note.gnu.build-id", 7, &note(&[1])), (binary::ELF_SECTION, 1, b"CRIM")]);
        hostile(&file, |bytes| {
            let _ = Decoder::new().add_tracked(&told("01", &[PROVIDER]), Cursor::new(bytes));
        });
    }
}
