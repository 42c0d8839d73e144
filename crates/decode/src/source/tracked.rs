//! Compiled manifests of the programs that a trace names: providers report their program file to
//! sessions.
//!
//! ```text
//!   FULL EventTraceGuid 0x43: GUIDs, path, build id ─observe──▶ a list ──take_tracked─▶ the caller
//!                                                                                       │
//!   schemas of those GUIDs ◀── section .etw_manifest ◀── same build id? ◀──add_tracked─ the file
//! ```
//!
//! A trace may come from an untrusted source, and so may its paths. This module opens no files; it
//! lists the files that a trace names, and reads the files that the caller opens. It uses a file
//! only if its build id is the one in the event, and only the providers that the event lists.
//!
//! Invariants: each provider of a file is listed once, and at most [`MAX_TRACKED`] files are
//! listed; their schemas are subtracted from the budget of the trace.

use std::collections::HashMap;
use std::io::{Read, Seek};

use traceweir_format::Guid;
use traceweir_format::binary_path::BinaryPath;
use traceweir_format::header::Record;

use super::rank::EARLIEST;
use super::{Decoder, SourceRank, identified};
use crate::{Error, Result};

/// The most files that are listed for a trace. Also limits the providers of one file: a file with
/// this many known providers gets no more.
pub const MAX_TRACKED: usize = 256;

/// The files that a trace names.
#[derive(Debug, Default)]
pub(super) struct TrackedFiles {
    /// The GUIDs that the trace lists for a path and build id.
    known_guids: HashMap<(String, String), Vec<Guid>>,
    /// Files that the caller has not taken yet.
    untaken: Vec<BinaryPath>,
}

impl TrackedFiles {
    /// Records a file; records it again if the event lists a provider that is new for the file.
    fn add_file(&mut self, mut binary: BinaryPath) {
        // Without a build id, the file cannot be distinguished from another at the same path.
        if binary.build_id.is_empty() || binary.path.is_empty() {
            return;
        }
        let key = (binary.path.clone(), binary.build_id.clone());
        if self.known_guids.len() >= MAX_TRACKED && !self.known_guids.contains_key(&key) {
            return;
        }
        let known_guids = self.known_guids.entry(key).or_default();
        binary.guids.retain(|guid| !known_guids.contains(guid));
        if binary.guids.is_empty() || known_guids.len() >= MAX_TRACKED {
            return;
        }
        known_guids.extend_from_slice(&binary.guids);
        // A file in the list is read once for all its providers.
        let is_same_file =
            |listed: &&mut BinaryPath| listed.path == binary.path && listed.build_id == binary.build_id;
        match self.untaken.iter_mut().find(is_same_file) {
            Some(listed) => listed.guids.append(&mut binary.guids),
            None => self.untaken.push(binary),
        }
    }
}

impl Decoder {
    /// Learns from an event that names a file.
    pub(super) fn observe_binary_path(&mut self, record: &Record<'_>) {
        if let Ok(binary) = BinaryPath::parse(record.payload()) {
            self.tracked.add_file(binary);
        }
    }

    /// Returns the files that the trace named since the last call, for
    /// [`add_tracked`](Self::add_tracked).
    #[must_use]
    pub fn take_tracked(&mut self) -> Vec<BinaryPath> {
        std::mem::take(&mut self.tracked.untaken)
    }

    /// Returns whether the trace named files since the last call of
    /// [`take_tracked`](Self::take_tracked).
    #[must_use]
    pub fn has_tracked(&self) -> bool {
        !self.tracked.untaken.is_empty()
    }

    /// Adds the schemas of the providers that `binary` lists, read from its `file`. Returns the
    /// number of events.
    ///
    /// Returns an error if the file has a different build id or no manifest, or if its schemas
    /// exceed the budget of the trace.
    pub fn add_tracked<R: Read + Seek>(&mut self, binary: &BinaryPath, file: R) -> Result<usize> {
        let mut events = 0_usize;
        for provider in identified::load_identified(file, &binary.build_id)? {
            if !binary.guids.contains(&provider.id) {
                continue;
            }
            let fields = provider.events.iter().map(|e| e.schema.fields().len().saturating_add(1));
            if !self.in_trace.spend_budget(fields.sum(), 0) {
                return Err(Error::Schema("the programs of the trace describe too many fields"));
            }
            events = events.saturating_add(provider.events.len());
            self.add_provider(provider, SourceRank::Tracked, EARLIEST)?;
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::source::binary::{self, tests::build_elf_with_sections};
    use crate::source::wevt::build::{PROVIDER, compile_test_manifest, for_each_damaged_copy};
    use traceweir_format::wire::Put;

    /// Encodes a note with a build id.
    fn encode_build_id_note(id: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        note.put_u32(4).put_u32(id.len() as u32).put_u32(3).put(b"GNU\0").put(id);
        note
    }

    fn build_program(is_64_bit: bool) -> Vec<u8> {
        let (note, manifest) = (encode_build_id_note(&[0xAB, 0x01, 0x02, 0x03]), compile_test_manifest(true));
        build_elf_with_sections(
            is_64_bit,
            &[(".note.gnu.build-id", 7, &note), (binary::ELF_SECTION, 1, &manifest)],
        )
    }

    fn binary_path(build_id: &str, guids: &[Guid]) -> BinaryPath {
        BinaryPath {
            path: "/x".into(),
            build_id: build_id.into(),
            guids: guids.to_vec(),
            ..BinaryPath::default()
        }
    }

    /// Passes the event to the decoder as a session writes it.
    fn observe_binary_path(decoder: &mut Decoder, binary: &BinaryPath) {
        let record = binary.to_record().unwrap();
        decoder.observe(&Record::parse(&record, 0).unwrap());
    }

    #[test]
    fn program_with_the_same_build_id_describes_its_listed_providers() {
        for is_64_bit in [true, false] {
            let add = |binary: &BinaryPath| {
                Decoder::new().add_tracked(binary, Cursor::new(build_program(is_64_bit)))
            };
            assert_eq!(add(&binary_path("ab010203", &[PROVIDER])), Ok(3));
            assert_eq!(add(&binary_path("AB010203", &[Guid::NULL, PROVIDER])), Ok(3));
            assert_eq!(
                add(&binary_path("ab010203", &[Guid::NULL])),
                Ok(0),
                "the file must not describe other providers"
            );
            for build_id in ["", "ab0102", "ab01020304", "cd010203"] {
                let result = add(&binary_path(build_id, &[PROVIDER]));
                assert!(matches!(result, Err(Error::Binary(_))), "{build_id}");
            }
        }
    }

    #[test]
    fn program_without_build_id_or_manifest_is_refused() {
        let manifest = compile_test_manifest(true);
        let without_build_id = build_elf_with_sections(true, &[(binary::ELF_SECTION, 1, &manifest)]);
        let add =
            |file: Vec<u8>| Decoder::new().add_tracked(&binary_path("", &[PROVIDER]), Cursor::new(file));
        assert!(matches!(add(without_build_id), Err(Error::Binary(_))));
        assert!(matches!(
            add(build_elf_with_sections(true, &[(".text", 1, b"x")])),
            Err(Error::NoMetadata(_))
        ));
        assert!(matches!(add(Vec::new()), Err(Error::Binary(_))));
        assert!(matches!(add(b"MZ no program of this system".to_vec()), Err(Error::Binary(_))));
    }

    #[test]
    fn files_and_providers_are_listed_once_in_bounded_number() {
        let mut decoder = Decoder::new();
        for _ in 0..3 {
            observe_binary_path(&mut decoder, &binary_path("01", &[PROVIDER]));
        }
        observe_binary_path(&mut decoder, &binary_path("", &[PROVIDER]));
        assert!(decoder.has_tracked());
        assert_eq!(
            decoder.take_tracked().len(),
            1,
            "each file must be listed once, and none without a build id"
        );
        observe_binary_path(&mut decoder, &binary_path("01", &[PROVIDER, Guid::from_u128(1)]));
        assert_eq!(
            decoder.take_tracked()[0].guids,
            [Guid::from_u128(1)],
            "a provider that is new for the file must be listed"
        );
        for n in 0..2000 {
            observe_binary_path(&mut decoder, &binary_path(&format!("{n:08x}"), &[PROVIDER]));
        }
        assert_eq!(decoder.take_tracked().len(), MAX_TRACKED - 1);
        for n in 0..2000 {
            observe_binary_path(&mut decoder, &binary_path("01", &[Guid::from_u128(n)]));
        }
        assert!(decoder.take_tracked().len() < MAX_TRACKED);
    }

    #[test]
    fn damaged_input_never_panics() {
        let file = build_elf_with_sections(
            true,
            &[(".note.gnu.build-id", 7, &encode_build_id_note(&[1])), (binary::ELF_SECTION, 1, b"CRIM")],
        );
        for_each_damaged_copy(&file, |bytes| {
            let _ = Decoder::new().add_tracked(&binary_path("01", &[PROVIDER]), Cursor::new(bytes));
        });
    }
}
