//! Known providers, their names and events, and the manifests that a process loads.

use std::ffi::c_void;
use std::mem::offset_of;
use std::path::PathBuf;

use traceweir::{EventDescriptor, Guid, Status};
use traceweir_decode::tdh::{Answer, Library, ManifestOrigin};

use super::answer::{OutputBuffer, read_utf16};
use super::lock_library;
use crate::boundary::IntoStatus;
use crate::types::tdh::{
    ProviderEnumerationInfo, ProviderEventInfo, ProviderFieldInfoArray, ProviderFilterInfo, TdhContext,
    TraceEventInfo,
};
use crate::{boundary, ptr};

/// The most characters in the path of a manifest.
const MAX_PATH_CHARS: usize = 260;

/// Lists all known providers; [`Library::provider_list`].
///
/// # Safety
///
/// Pointers are NULL or valid; `buffer` has `*size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhEnumerateProviders(buffer: *mut ProviderEnumerationInfo, size: *mut u32) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller guarantees that `buffer` and `size` are NULL or valid.
        let Some(output) = (unsafe { OutputBuffer::new(buffer, size) }) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let list = lock_library().provider_list(None);
        output.write_answer(list)
    })
}

/// Lists the providers of one decoding source; [`Library::provider_list`].
///
/// # Safety
///
/// Pointers are NULL or valid; `buffer` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhEnumerateProvidersForDecodingSource(
    source: u32,
    buffer: *mut ProviderEnumerationInfo,
    size: u32,
    required_size: *mut u32,
) -> u32 {
    boundary::to_status(|| {
        if required_size.is_null() {
            return Status::ERROR_INVALID_PARAMETER;
        }
        // SAFETY: the caller passes NULL or a writable `required_size`.
        unsafe { ptr::store(required_size, size) };
        // SAFETY: `required_size` holds the size of the buffer, and receives the required size.
        let Some(output) = (unsafe { OutputBuffer::new(buffer, required_size) }) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let list = lock_library().provider_list(Some(source));
        output.write_answer(list)
    })
}

/// Lists a provider's fields of one kind, such as its keywords or its levels;
/// [`Library::field_list`].
///
/// # Safety
///
/// As [`TdhEnumerateProviders`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhEnumerateProviderFieldInformation(
    provider: *const Guid,
    kind: u32,
    buffer: *mut ProviderFieldInfoArray,
    size: *mut u32,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `query_provider` requires no more.
    unsafe { query_provider(provider, buffer, size, |library, guid| library.field_list(guid, kind, None)) }
}

/// Lists the fields of one kind that a value selects, such as the keywords of a provider whose bits
/// are set in the value; [`Library::field_list`].
///
/// # Safety
///
/// As [`TdhEnumerateProviders`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhQueryProviderFieldInformation(
    provider: *const Guid,
    value: u64,
    kind: u32,
    buffer: *mut ProviderFieldInfoArray,
    size: *mut u32,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `query_provider` requires no more.
    unsafe {
        query_provider(provider, buffer, size, |library, guid| library.field_list(guid, kind, Some(value)))
    }
}

/// Lists the events of a provider with a manifest; [`Library::event_list`].
///
/// # Safety
///
/// As [`TdhEnumerateProviders`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhEnumerateManifestProviderEvents(
    provider: *const Guid,
    buffer: *mut ProviderEventInfo,
    size: *mut u32,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `query_provider` requires no more.
    unsafe { query_provider(provider, buffer, size, Library::event_list) }
}

/// Stores the [`Library`]'s answer to a query about a provider.
///
/// # Safety
///
/// As [`TdhEnumerateProviders`].
unsafe fn query_provider<T>(
    provider: *const Guid,
    buffer: *mut T,
    size: *mut u32,
    query: impl FnOnce(&mut Library, Guid) -> Answer<Vec<u8>>,
) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller guarantees that `provider`, `buffer` and `size` are NULL or valid.
        let (provider, output) = unsafe { (ptr::read_value(provider), OutputBuffer::new(buffer, size)) };
        let (Some(provider), Some(output)) = (provider, output) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let list = query(&mut lock_library(), provider);
        output.write_answer(list)
    })
}

/// Returns the TRACE_EVENT_INFO of an event in a manifest; [`Library::manifest_event_info`].
///
/// # Safety
///
/// As [`TdhEnumerateProviders`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhGetManifestEventInformation(
    provider: *const Guid,
    descriptor: *const EventDescriptor,
    buffer: *mut TraceEventInfo,
    size: *mut u32,
) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller guarantees that `provider`, `descriptor`, `buffer` and `size` are
        // NULL or valid.
        let (provider, descriptor, output) = unsafe {
            (ptr::read_value(provider), ptr::read_value(descriptor), OutputBuffer::new(buffer, size))
        };
        let (Some(provider), Some(descriptor), Some(output)) = (provider, descriptor, output) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let info = lock_library().manifest_event_info(provider, &descriptor);
        match info {
            Ok((bytes, descriptor)) => output
                .write(&bytes, &[(offset_of!(TraceEventInfo, event_descriptor), &descriptor.to_bytes())]),
            Err(refusal) => refusal.status(),
        }
    })
}

/// Lists the filters that a provider accepts, as its manifest defines them;
/// [`Library::filter_list`]. The buffer receives their addresses, followed by the filters.
///
/// # Safety
///
/// As [`TdhEnumerateProviders`]; `context` has `contexts` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhEnumerateProviderFilters(
    provider: *const Guid,
    contexts: u32,
    context: *const TdhContext,
    count: *mut u32,
    buffer: *mut *mut ProviderFilterInfo,
    size: *mut u32,
) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller guarantees that `provider` and `context` are NULL or valid.
        let (provider, contexts) =
            unsafe { (ptr::read_value(provider), ptr::read_array(context, contexts as usize)) };
        // SAFETY: the caller guarantees that `buffer` and `size` are NULL or valid.
        let output = unsafe { OutputBuffer::new(buffer, size) };
        let is_valid = contexts.is_some() && !count.is_null();
        let (Some(provider), Some(output), true) = (provider, output, is_valid) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let list = lock_library().filter_list(provider);
        let number = list.as_ref().map_or(0, Vec::len);
        // SAFETY: the caller passes NULL or a writable `count`.
        unsafe { ptr::store(count, u32::try_from(number).unwrap_or(u32::MAX)) };
        match list {
            Ok(filters) => output.write(&prepend_addresses(&filters, buffer.addr()), &[]),
            Err(refusal) => refusal.status(),
        }
    })
}

/// Returns the addresses of structures, followed by the structures. The addresses are valid once
/// the caller has copied the result to `at`. Each structure begins at a multiple of eight bytes.
fn prepend_addresses(structures: &[Vec<u8>], at: usize) -> Vec<u8> {
    const POINTER_BYTES: usize = size_of::<usize>();
    let mut next = structures.len().saturating_mul(POINTER_BYTES);
    let (mut addresses, mut contents) = (Vec::with_capacity(next), Vec::new());
    for bytes in structures {
        addresses.extend(at.wrapping_add(next).to_ne_bytes());
        contents.extend_from_slice(bytes);
        contents.resize(contents.len().next_multiple_of(POINTER_BYTES), 0);
        next = structures.len().saturating_mul(POINTER_BYTES).saturating_add(contents.len());
    }
    addresses.extend(contents);
    addresses
}

/// Calls `body` with the [`Library`] and a path.
///
/// # Safety
///
/// `path` is NULL, or ends with a NUL.
unsafe fn with_path(path: *const u16, body: impl FnOnce(&mut Library, PathBuf) -> Answer<()>) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or a text with a terminator as `path`.
        match unsafe { read_utf16(path, MAX_PATH_CHARS) }.filter(|path| !path.is_empty()) {
            Some(path) => body(&mut lock_library(), path.into()).into_status(),
            None => Status::ERROR_INVALID_PARAMETER,
        }
    })
}

/// Loads a manifest; [`Library::load_file`].
///
/// # Safety
///
/// `path` is NULL, or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhLoadManifest(path: *const u16) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `with_path` requires no more.
    unsafe { with_path(path, |library, path| library.load_file(&path)) }
}

/// Unloads a manifest; [`Library::unload_file`].
///
/// # Safety
///
/// `path` is NULL, or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhUnloadManifest(path: *const u16) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `with_path` requires no more.
    unsafe { with_path(path, |library, path| library.unload_file(path)) }
}

/// Loads the compiled manifest of a program; [`Library::load_binary`].
///
/// # Safety
///
/// `path` is NULL, or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhLoadManifestFromBinary(path: *const u16) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `with_path` requires no more.
    unsafe { with_path(path, |library, path| library.load_binary(&path)) }
}

/// Loads a manifest from memory; [`Library::load_memory`].
///
/// # Safety
///
/// `data` is NULL, or has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhLoadManifestFromMemory(data: *const c_void, size: u32) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `with_memory` requires no more.
    unsafe { with_memory(data, size, Library::load_memory) }
}

/// Unloads a manifest that was loaded from memory. Its content identifies it; [`Library::unload`].
///
/// # Safety
///
/// `data` is NULL, or has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhUnloadManifestFromMemory(data: *const c_void, size: u32) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `with_memory` requires no more.
    unsafe { with_memory(data, size, |library, bytes| library.unload(&ManifestOrigin::from_memory(bytes))) }
}

/// Calls `body` with the [`Library`] and bytes.
///
/// # Safety
///
/// `data` is NULL, or has `size` bytes.
unsafe fn with_memory(
    data: *const c_void,
    size: u32,
    body: impl FnOnce(&mut Library, &[u8]) -> Answer<()>,
) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller guarantees that `data` is NULL or valid.
        let bytes = unsafe { ptr::read_array(data.cast::<u8>(), size as usize) };
        match bytes.filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => body(&mut lock_library(), bytes).into_status(),
            None => Status::ERROR_INVALID_PARAMETER,
        }
    })
}
