//! The module that contains a provider (EventProviderBinaryTrackInfo).
//!
//! ```text
//!   an address ──/proc/self/maps──▶ the file that is mapped there
//!              ──loaded objects───▶ its GNU build id
//!   both ──▶ a record of `traceweir_format::binary_path`, marked BINARY_PATH
//!        ──▶ each session that collects from the provider, through its ring
//! ```
//!
//! For a C program, the address is that of its callback or the return address of its registration
//! call. A Rust program or library contains this code, so the address of this code identifies it,
//! even in a library that `dlopen` loaded.
//!
//! The record goes through the ring like an event and needs no daemon. Private and other sessions
//! get it when they enable the provider and when they request its state. A record that does not fit
//! into the ring is counted as lost like any other event.
//!
//! | The file was | The path is |
//! |---|---|
//! | renamed | the new one, as the system reports it |
//! | deleted, or replaced | the former path; the build id shows whether the file there is the same |
//! | absent (code generated at run time), or /proc is hidden | the loader's name, else the program |
//!
//! Bytes of a path that are not Unicode become U+FFFD. A session that records the modules of all
//! providers requests them through its daemon (`ReportModules`).
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use traceweir_format::binary_path::{BinaryPath, MAX_BUILD_ID_DIGITS};
use traceweir_transport::abi::{BINARY_PATH, PREFIX_BYTES};
use traceweir_transport::ring::Gather;

use super::enable::SessionEnable;
use super::{DecodeGuidWords, Handle, RegistrationSlot};
use crate::process::outlets;
use crate::process::thread::{self, EventWriter};

/// A module: an executable or a shared library.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ProviderModule {
    path: String,
    build_id: String,
}

/// The suffix of a deleted file in /proc.
const DELETED_SUFFIX: &[u8] = b" (deleted)";
/// Name of the note with the build id.
const GNU_NOTE_NAME: &[u8] = b"GNU\0";
/// Type of the note with the build id.
const NT_GNU_BUILD_ID: u32 = 3;
/// Bytes of a note before its name: the two sizes and the type.
const NOTE_HEAD_BYTES: usize = 12;

impl Handle {
    /// Finds the module that the provider belongs to. Takes the loader's lock.
    pub(crate) fn find_module(self) -> ProviderModule {
        ProviderModule::find_by_address(self.slot.origin())
    }
}

impl ProviderModule {
    fn find_by_address(address: usize) -> Self {
        let object = LoadedObject::find_by_address(address);
        let mapped = find_mapped_path(address).or(object.name).or_else(|| {
            let program = std::fs::read_link("/proc/self/exe").ok()?;
            Some(program.as_os_str().as_bytes().to_vec())
        });
        let path = String::from_utf8_lossy(&mapped.unwrap_or_default()).into_owned();
        let digits = object.build_id.iter().map(|byte| format!("{byte:02x}"));
        Self { path, build_id: digits.take(MAX_BUILD_ID_DIGITS / 2).collect() }
    }
}

impl RegistrationSlot {
    /// Sends the module to a session, if it is tracked.
    pub(crate) fn send_module(&self, enable: &SessionEnable) {
        if let Some(module) = self.module() {
            self.send_module_record(enable, module);
        }
    }

    /// Returns whether the module is tracked: the program set EventProviderBinaryTrackInfo, so
    /// every session records the module.
    pub(crate) fn is_module_tracked(&self) -> bool {
        self.module().is_some()
    }

    /// Sends the module to the session of an outlet, whether or not it is tracked.
    pub(crate) fn send_module_to(&self, outlet: u8, module: &ProviderModule) {
        if let Some(enable) = self.find_enable(outlet) {
            self.send_module_record(&enable, module);
        }
    }

    fn send_module_record(&self, enable: &SessionEnable, module: &ProviderModule) {
        let thread = match thread::identify_writer() {
            EventWriter::Thread(thread) => thread,
            // The parent has sent its module to its sessions.
            EventWriter::Forked(inherited) if inherited & enable.bit() != 0 => return,
            EventWriter::Forked(_) => thread::thread_id(),
        };
        let binary_path = BinaryPath {
            tag: self.raw_handle(),
            process_id: std::process::id(),
            guids: self.guids(),
            path: module.path.clone(),
            build_id: module.build_id.clone(),
        };
        let Ok(record) = binary_path.to_record() else { return };
        let mut words: Vec<u64> = vec![0; PREFIX_BYTES / 8];
        words.extend(record.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)));
        // Offset 0x08 of the record: the thread id in the lower half.
        if let Some(word) = words.get_mut(PREFIX_BYTES / 8 + 1) {
            *word = (*word & !u64::from(u32::MAX) | u64::from(thread)).to_le();
        }
        let staged_bytes = record.first_chunk().map_or(0, |size| usize::from(u16::from_le_bytes(*size)));
        let mut gather = Gather { staged: &mut words, staged_bytes, further_parts: &[], flags: BINARY_PATH };
        // A full ring counts the record as lost; a session that ends does not need it.
        let _ = outlets::get(enable.outlet).write(enable.ticket, thread, &mut gather);
    }

    /// Sends the module, if it is tracked, to all sessions that have the registration enabled.
    pub(crate) fn send_module_to_all(&self) {
        self.session_enables().for_each(|enable| self.send_module(&enable));
    }

    /// Sends the module to the session of an outlet, if it is tracked.
    pub(crate) fn send_tracked_module(&self, outlet: u8) {
        if let Some(enable) = self.find_enable(outlet) {
            self.send_module(&enable);
        }
    }

    /// Returns the GUIDs that the provider's events carry.
    fn guids(&self) -> Vec<traceweir_format::Guid> {
        let mut guids = vec![self.provider()];
        guids.extend(self.decoding().map(DecodeGuidWords::guid));
        guids
    }
}

/// Returns the path of the file that is mapped at an address.
pub(crate) fn find_mapped_path(address: usize) -> Option<Vec<u8>> {
    let maps = std::fs::File::open("/proc/self/maps").ok()?;
    let mut lines = BufReader::new(maps);
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        if let Some(path) = parse_maps_line(line.trim_ascii_end(), address) {
            return path.map(restore_path);
        }
    }
}

/// Returns the path in a line of `/proc/self/maps` that covers this address; `Some(None)` if no
/// file is mapped there.
fn parse_maps_line(line: &[u8], address: usize) -> Option<Option<&[u8]>> {
    let range = std::str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok()?;
    let (start, end) = range.split_once('-')?;
    let parse_hex = |digits| usize::from_str_radix(digits, 16).ok();
    if !(parse_hex(start)?..parse_hex(end)?).contains(&address) {
        return None;
    }
    Some(line.iter().position(|byte| *byte == b'/').and_then(|at| line.get(at..)))
}

/// Restores a path from its form in /proc: line ends are escaped, and deleted files have a suffix.
fn restore_path(escaped: &[u8]) -> Vec<u8> {
    let exists = |path: &[u8]| Path::new(OsStr::from_bytes(path)).symlink_metadata().is_ok();
    let escaped = match escaped.strip_suffix(DELETED_SUFFIX) {
        Some(path) if !exists(escaped) => path,
        _ => escaped,
    };
    let mut path = Vec::with_capacity(escaped.len());
    let mut remaining = escaped;
    while let Some((byte, tail)) = remaining.split_first() {
        match tail.strip_prefix(b"012") {
            Some(tail) if *byte == b'\\' => {
                path.push(b'\n');
                remaining = tail;
            }
            _ => {
                path.push(*byte);
                remaining = tail;
            }
        }
    }
    path
}

/// A loaded object, as the loader reports it.
#[derive(Default)]
struct LoadedObject {
    name: Option<Vec<u8>>,
    build_id: Vec<u8>,
}

/// The state of a search for the object that holds an address.
struct ObjectSearch {
    address: usize,
    object: LoadedObject,
}

impl LoadedObject {
    fn find_by_address(address: usize) -> Self {
        let mut search = ObjectSearch { address, object: Self::default() };
        // SAFETY: the function calls `visit_object` with objects that are and stay loaded during
        // the call, and with this pointer.
        unsafe { libc::dl_iterate_phdr(Some(visit_object), (&raw mut search).cast::<c_void>()) };
        search.object
    }
}

/// Checks whether an object contains the address; a result other than 0 ends the search.
unsafe extern "C" fn visit_object(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: called by `dl_iterate_phdr` with a valid object, and with the search of
    // `LoadedObject::find_by_address`, which no other code uses meanwhile.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<ObjectSearch>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: `dlpi_phdr` is not null and points to `dlpi_phnum` program headers of an object that
    // stays loaded during the call.
    let segments = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    let range = |segment: &libc::Elf64_Phdr| {
        let start = base.wrapping_add(segment.p_vaddr as usize);
        start..start.saturating_add(segment.p_memsz as usize)
    };
    let loaded_segments = || segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD);
    if !loaded_segments().any(|segment| range(segment).contains(&search.address)) {
        return 0;
    }
    if !info.dlpi_name.is_null() {
        // SAFETY: a NUL-terminated string of the loader, which lives as long as the object.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
        search.object.name = (!name.is_empty()).then(|| name.to_vec());
    }
    for notes in segments.iter().filter(|segment| segment.p_type == libc::PT_NOTE).map(range) {
        let contains_notes = |segment: &libc::Elf64_Phdr| {
            let loaded = range(segment);
            segment.p_flags & libc::PF_R != 0 && loaded.start <= notes.start && notes.end <= loaded.end
        };
        if !loaded_segments().any(contains_notes) {
            continue;
        }
        // SAFETY: inside a readable segment of an object that stays loaded during the call.
        let bytes = unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance(notes.start), notes.len())
        };
        if let Some(id) = find_build_id(bytes) {
            search.object.build_id = id.to_vec();
            break;
        }
    }
    1
}

/// Finds the build id among notes. A note is: u32 size of the name, u32 size of the data, u32 type,
/// name, data; name and data are padded to four bytes.
fn find_build_id(mut notes: &[u8]) -> Option<&[u8]> {
    let read_word = |bytes: &[u8], at: usize| {
        bytes.get(at..).and_then(<[u8]>::first_chunk).map(|word| u32::from_ne_bytes(*word))
    };
    loop {
        let (name_bytes, data_bytes) = (read_word(notes, 0)? as usize, read_word(notes, 4)? as usize);
        let kind = read_word(notes, 8)?;
        let at = NOTE_HEAD_BYTES.checked_add(name_bytes.checked_next_multiple_of(4)?)?;
        let end = at.checked_add(data_bytes)?;
        if kind == NT_GNU_BUILD_ID && notes.get(NOTE_HEAD_BYTES..)?.get(..name_bytes)? == GNU_NOTE_NAME {
            return notes.get(at..end);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_found_with_its_build_id() {
        let module =
            ProviderModule::find_by_address(this_program_is_found_with_its_build_id as *const () as usize);
        let program = std::fs::canonicalize("/proc/self/exe").unwrap();
        assert_eq!(Path::new(&module.path), program);
        let program_bytes = std::fs::read(program).unwrap();
        let digits = module.build_id.as_bytes().chunks(2);
        let id: Vec<u8> =
            digits.map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect();
        assert!(id.is_empty() || program_bytes.windows(id.len()).any(|w| w == id), "{}", module.build_id);
    }

    #[test]
    fn a_shared_library_is_found_by_an_address_in_it() {
        let module = ProviderModule::find_by_address(libc::getpid as *const () as usize);
        assert!(module.path.starts_with('/') && module.path.contains("lib"), "{module:?}");
    }

    #[test]
    fn lines_of_proc_maps_are_parsed() {
        let line = b"7f00-8f00 r-xp 00001000 08:01 1234      /opt/with space/lib.so";
        assert_eq!(parse_maps_line(line, 0x7f00), Some(Some(&b"/opt/with space/lib.so"[..])));
        assert_eq!((parse_maps_line(line, 0x8f00), parse_maps_line(line, 0x7eff)), (None, None));
        assert_eq!(parse_maps_line(b"7f00-8f00 r-xp 00000000 00:00 0 [vdso]", 0x7f00), Some(None));
        for malformed in [&b""[..], b"x-y", b"7f00", b"\xff-\xff /x"] {
            assert_eq!(parse_maps_line(malformed, 0x7f00), None);
        }
        assert_eq!(restore_path(b"/no/such/file (deleted)"), b"/no/such/file");
        assert_eq!(restore_path(b"/no/such\\012file"), b"/no/such\nfile");
        assert_eq!(restore_path(b"/no/such\\013file"), b"/no/such\\013file");
    }

    #[test]
    fn truncated_notes_have_no_build_id() {
        let note = |name: &[u8], kind: u32, data: &[u8]| {
            let mut note = Vec::new();
            for word in [name.len() as u32, data.len() as u32, kind] {
                note.extend_from_slice(&word.to_ne_bytes());
            }
            for part in [name, data] {
                note.extend_from_slice(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let notes =
            [note(b"GNU\0", 1, b"abi"), note(b"x", 3, b"no"), note(b"GNU\0", 3, b"\x01\x02\x03")].concat();
        assert_eq!(find_build_id(&notes), Some(&[1, 2, 3][..]));
        for length in 0..notes.len() - 1 {
            assert_eq!(find_build_id(&notes[..length]), None, "{length}");
        }
        assert_eq!(find_build_id(&[0xFF; 64]), None);
    }
}
