//! Reads message formats from PDB files.
//!
//! WPP leaves each message in the object code as an annotation, which the linker copies into the
//! symbols of its module:
//!
//! | offset | S_ANNOTATION (0x1019) |
//! |---|---|
//! | 0 | u16 kind |
//! | 2 | u32 code offset |
//! | 6 | u16 code section |
//! | 8 | u16 number of strings |
//! | 10 | the strings, each with a NUL |
//!
//! ```text
//!   "TMF:"  "<guid> disk // SRC=read.c MJ= MN="  "#typev read_c123 10 "%0…" // LEVEL=…"  "{"
//!   "length, ItemLong -- 10"  "}"
//!
//!   the mark "TMF:", then the lines that a TMF file would have, one message for each annotation
//! ```
//!
//! The annotation is between the records of its procedure's start and end; the procedure is the
//! message's function if the `#typev` line has no `FUNC=`.
//!
//! Invariants: no stream may be longer than the file, and the streams that are read may in total be
//! at most a few times as long as the file, so a hostile directory that repeats pages cannot
//! multiply a small file. The limits of a sparse file follow from its stored blocks. The `pdb2`
//! crate reads the container and the module list; only those parts of the crate are used that check
//! every length. This module parses the records.
//!
//! A module that cannot be read loses only its own messages, with a warning. Not supported: names
//! of enumerations (`ItemEnum`), control GUIDs and flags (annotations marked `TMC:`).
//!
//! Source: Documented (CodeView symbol records in the published `microsoft-pdb` headers); the order
//! of the strings as public tools show them.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use pdb2::{FallibleIterator, PDB, Source, SourceSlice, SourceView, SymbolIter};
use traceweir_format::{text, wire};

use super::tmf::TmfParser;
use super::{MAX_WARNINGS, ParsedFormats, lines};
use crate::{Error, Result};

const S_ANNOTATION: u16 = 0x1019;
/// Local and global procedures, with a type or with an id.
const S_PROCEDURES: [u16; 4] = [0x110F, 0x1110, 0x1146, 0x1147];
/// Byte offset of the strings in an annotation.
const STRINGS_OFFSET: usize = 10;
/// Byte offset in a procedure record of the offset of its end record.
const PROCEDURE_END_OFFSET: usize = 6;
/// Byte offset of the name in a procedure record.
const PROCEDURE_NAME_OFFSET: usize = 37;

/// The most modules that are read: stream numbers have 16 bits.
const MAX_MODULES: usize = 1 << 16;
/// The limit of bytes read, in multiples of the file's length.
const MAX_READ_MULTIPLE: u64 = 4;
/// Extra bytes to read for the header page of small files.
const EXTRA_READ_BYTES: u64 = 64 << 10;
/// The size limit of a stream that is read into memory, in bytes.
const MAX_STREAM_BYTES: u64 = 256 << 20;
/// The largest file, in bytes: the limit of PDBs with pages of 8 KiB.
const MAX_FILE_BYTES: u64 = 8 << 30;
/// The most file bytes for each stored byte: file systems may compress data, but not as much as
/// holes.
const MAX_BYTES_PER_STORED_BYTE: u64 = 16;
/// The unit of `st_blocks`, in bytes.
const BLOCK_BYTES: u64 = 512;

/// Reads the message formats of a PDB.
///
/// Returns an error if the file is not a PDB or has no message. Line numbers in warnings count the
/// strings of all annotations.
pub fn load<R: Read + Seek + Send>(file: R) -> Result<ParsedFormats> {
    load_with_max_length(file, u64::MAX)
}

/// Reads the message formats of a PDB, as [`load`] does, from a regular file on disk.
pub fn load_file(file: File) -> Result<ParsedFormats> {
    let max_length = effective_file_length(&file)?;
    load_with_max_length(BufReader::new(file), max_length)
}

/// Returns the length for the read limits of a regular file. Returns an error if the file is not
/// regular or too large.
pub(crate) fn effective_file_length(file: &File) -> Result<u64> {
    let metadata = file.metadata().map_err(unreadable_binary)?;
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        return Err(Error::Binary("not a regular file of at most 8 GiB".into()));
    }
    Ok(length_from_stored_blocks(&metadata))
}

/// Returns the length for the read limits of a file, from its stored blocks.
fn length_from_stored_blocks(metadata: &Metadata) -> u64 {
    match metadata.blocks().saturating_mul(BLOCK_BYTES) {
        // Some file systems do not report blocks.
        0 => u64::MAX,
        stored => stored.saturating_mul(MAX_BYTES_PER_STORED_BYTE).saturating_add(EXTRA_READ_BYTES),
    }
}

/// Reads a PDB within limits that follow from its length or `max_length`, whichever is less.
fn load_with_max_length<R: Read + Seek + Send>(file: R, max_length: u64) -> Result<ParsedFormats> {
    let mut pdb = PDB::open(BoundedFile::new(file, max_length).map_err(unreadable_binary)?)
        .map_err(unreadable_binary)?;
    let debug = pdb.debug_information().map_err(unreadable_binary)?;
    let mut parser = TmfParser::default();
    let mut modules = debug.modules().map_err(unreadable_binary)?;
    let mut bad_modules = 0_usize;
    for _ in 0..MAX_MODULES {
        let Some(module) = modules.next().map_err(unreadable_binary)? else { break };
        let is_readable = match pdb.module_info(&module) {
            Ok(Some(info)) => match info.symbols() {
                Ok(symbols) => read_annotations(symbols, &mut parser)?,
                Err(_) => false,
            },
            // A stripped PDB lists modules whose streams are missing.
            Ok(None) | Err(pdb2::Error::StreamNotFound(_)) => true,
            Err(_) => false,
        };
        bad_modules = bad_modules.saturating_add(usize::from(!is_readable));
    }
    if let Ok(globals) = pdb.global_symbols() {
        bad_modules =
            bad_modules.saturating_add(usize::from(!read_annotations(globals.iter(), &mut parser)?));
    }
    let mut parsed = parser.finish()?;
    for _ in 0..bad_modules.min(MAX_WARNINGS) {
        parsed.warn(0, "symbols of a module cannot be read");
    }
    if parsed.formats.is_empty() {
        return Err(Error::NoMetadata("the PDB has no WPP messages".into()));
    }
    Ok(parsed)
}

fn unreadable_binary(error: impl fmt::Display) -> Error {
    Error::Binary(error.to_string())
}

/// Passes the messages among the symbols to the parser. Returns false if the symbols end in an
/// unreadable record.
fn read_annotations(mut symbols: SymbolIter<'_>, parser: &mut TmfParser) -> Result<bool> {
    // The last procedure: the offset of its end record, and its name.
    let mut procedure: Option<(u32, Option<Arc<str>>)> = None;
    loop {
        let symbol = match symbols.next() {
            Ok(Some(symbol)) => symbol,
            Ok(None) => return Ok(true),
            Err(_) => return Ok(false),
        };
        let (index, bytes) = (symbol.index().0, symbol.raw_bytes());
        match wire::u16_at(bytes, 0) {
            S_ANNOTATION => {
                let enclosing = procedure.as_ref().filter(|(end, _)| index < *end);
                parser.function = enclosing.and_then(|(_, name)| name.clone());
                read_message(bytes, parser)?;
            }
            kind if S_PROCEDURES.contains(&kind) => {
                let name = text::until_nul8(bytes.get(PROCEDURE_NAME_OFFSET..).unwrap_or_default());
                procedure = Some((
                    wire::u32_at(bytes, PROCEDURE_END_OFFSET),
                    lines::parse_name(&text::decode_ansi(name)),
                ));
            }
            _ => {}
        }
    }
}

/// Passes the strings of one annotation to the parser, if they are a message.
fn read_message(annotation: &[u8], parser: &mut TmfParser) -> Result<()> {
    let count = usize::from(wire::u16_at(annotation, 8));
    let mut strings = wire::Cursor::new("annotation", annotation.get(STRINGS_OFFSET..).unwrap_or_default());
    if count == 0 || strings.ansi_z() != b"TMF:" {
        return Ok(());
    }
    for _ in 1..count {
        if strings.is_empty() {
            parser.warn("the annotation has fewer strings than it declares");
            break;
        }
        parser.parse_line(&text::decode_ansi(strings.ansi_z()))?;
    }
    parser.end_message()
}

/// A file with limits: no stream is longer than the file, and the total that is read is bounded.
pub(crate) struct BoundedFile<R> {
    file: R,
    length: u64,
    bytes_left: u64,
}

impl<R: Read + Seek> BoundedFile<R> {
    /// Creates the limits of a file from its length or `max_length`, whichever is less.
    pub(crate) fn new(mut file: R, max_length: u64) -> io::Result<Self> {
        let length = file.seek(SeekFrom::End(0))?.min(max_length);
        let bytes_left = length.saturating_mul(MAX_READ_MULTIPLE).saturating_add(EXTRA_READ_BYTES);
        Ok(Self { file, length, bytes_left })
    }
}

impl<R> fmt::Debug for BoundedFile<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedFile")
            .field("length", &self.length)
            .field("bytes_left", &self.bytes_left)
            .finish_non_exhaustive()
    }
}

impl<'s, R: Read + Seek> Source<'s> for BoundedFile<R> {
    fn view(&mut self, slices: &[SourceSlice]) -> io::Result<Box<dyn SourceView<'s> + Send + Sync>> {
        let view_bytes = slices.iter().fold(0_u64, |sum, slice| sum.saturating_add(slice.size as u64));
        if view_bytes > self.length.min(MAX_STREAM_BYTES) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let remaining = self.bytes_left.checked_sub(view_bytes);
        self.bytes_left =
            remaining.ok_or_else(|| io::Error::other("the directory of the PDB uses its pages too often"))?;
        let mut bytes = Vec::with_capacity(usize::try_from(view_bytes).unwrap_or(0));
        for slice in slices {
            self.file.seek(SeekFrom::Start(slice.offset))?;
            let read_bytes = (&mut self.file).take(slice.size as u64).read_to_end(&mut bytes)?;
            if read_bytes != slice.size {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(Box::new(StreamBytes(bytes)))
    }
}

struct StreamBytes(Vec<u8>);

impl fmt::Debug for StreamBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamBytes({} bytes)", self.0.len())
    }
}

impl SourceView<'_> for StreamBytes {
    fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests;
