//! evntrace.h for controllers: providers enabled in sessions, and the list of them.

use traceweir::controller::{Controller, EnableParams, Filter, ProviderEntry};
use traceweir::{ControlCode, Guid, Status};

use super::filters;
use super::sessions::{self, SessionSelector};
use crate::types::FilterDescriptor;
use crate::types::controller::{EnableTraceParameters, EnableTraceParametersV1, TraceGuidProperties};
use crate::{boundary, ptr};

/// ENABLE_TRACE_PARAMETERS_VERSION: one filter at most.
const ONE_FILTER: u32 = 1;
/// ENABLE_TRACE_PARAMETERS_VERSION_2: an array of filters.
const MANY_FILTERS: u32 = 2;

/// The options of an enable, apart from session, provider, code, level and keywords.
#[derive(Default)]
struct EnableOptions {
    property: u32,
    source: Guid,
    filters: Vec<Filter>,
}

/// Enables or disables a provider, or asks it for its state; [`Controller::enable`].
///
/// # Safety
///
/// Pointers are NULL or valid, those to filters and their data included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EnableTraceEx2(
    id: u64,
    provider: *const Guid,
    code: u32,
    level: u8,
    match_any: u64,
    match_all: u64,
    timeout_ms: u32,
    parameters: *const EnableTraceParameters,
) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        let (provider, options) = unsafe { (ptr::copied(provider), read_options(parameters)) };
        let options = match options {
            Ok(options) => options,
            Err(status) => return status,
        };
        enable(id, provider, code, (level, match_any, match_all), options, timeout_ms)
    })
}

/// The older form of [`EnableTraceEx2`], with one filter at most. It does not wait for providers.
///
/// # Safety
///
/// As [`EnableTraceEx2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EnableTraceEx(
    provider: *const Guid,
    source: *const Guid,
    id: u64,
    is_enabled: u32,
    level: u8,
    match_any: u64,
    match_all: u64,
    property: u32,
    filter: *const FilterDescriptor,
) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        let (provider, source) = unsafe { (ptr::copied(provider), ptr::copied(source)) };
        // SAFETY: by the contract.
        let filters = match unsafe { filters::read(filter, u32::from(!filter.is_null())) } {
            Ok(filters) => filters,
            Err(status) => return status,
        };
        let options = EnableOptions { property, source: source.unwrap_or(Guid::NULL), filters };
        enable(id, provider, is_enabled, (level, match_any, match_all), options, 0)
    })
}

/// The oldest form of [`EnableTraceEx2`]: a level and 32 flags. It does not wait for providers.
///
/// # Safety
///
/// `provider` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EnableTrace(
    is_enabled: u32,
    flags: u32,
    level: u32,
    provider: *const Guid,
    id: u64,
) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        let provider = unsafe { ptr::copied(provider) };
        let Ok(level) = u8::try_from(level) else { return Status::ERROR_INVALID_PARAMETER };
        enable(id, provider, is_enabled, (level, flags.into(), 0), EnableOptions::default(), 0)
    })
}

fn enable(
    id: u64,
    provider: Option<Guid>,
    code: u32,
    (level, match_any, match_all): (u8, u64, u64),
    options: EnableOptions,
    timeout_ms: u32,
) -> Status {
    let Some(code) = ControlCode::from_number(code) else { return Status::ERROR_INVALID_PARAMETER };
    let Some(provider) = provider else { return Status::ERROR_INVALID_PARAMETER };
    let EnableOptions { property, source, filters } = options;
    let params = EnableParams { level, match_any, match_all, property, source, filters };
    let target = sessions::find(SessionSelector { id, name: None, mode: 0 });
    match target.and_then(|target| target.enable(provider, code, &params, timeout_ms)) {
        Ok(()) => Status::ERROR_SUCCESS,
        Err(error) => error.status(),
    }
}

/// Reads ENABLE_TRACE_PARAMETERS of either version; NULL stands for the defaults.
///
/// # Safety
///
/// As [`EnableTraceEx2`]; the structure is as long as its version requires.
unsafe fn read_options(at: *const EnableTraceParameters) -> Result<EnableOptions, Status> {
    // SAFETY: by the contract; only the version is read before it is checked.
    let Some(version) = (unsafe { ptr::copied(at.cast::<u32>()) }) else {
        return Ok(EnableOptions::default());
    };
    let (first, count) = match version {
        ONE_FILTER => {
            // SAFETY: by the contract.
            let first = unsafe { at.cast::<EnableTraceParametersV1>().read_unaligned() };
            (first, u32::from(!first.enable_filter_desc.is_null()))
        }
        MANY_FILTERS => {
            // SAFETY: by the contract.
            let all = unsafe { at.read_unaligned() };
            (all.first, all.filter_desc_count)
        }
        _ => return Err(Status::ERROR_INVALID_PARAMETER),
    };
    // SAFETY: by the contract.
    let filters = unsafe { filters::read(first.enable_filter_desc, count) }?;
    Ok(EnableOptions { property: first.enable_property, source: first.source_id, filters })
}

/// Lists the registered providers, each with the first session that enables it;
/// [`Controller::providers`].
///
/// # Safety
///
/// `all` is NULL, or has `room` elements that are NULL or valid; `total` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EnumerateTraceGuids(
    all: *mut *mut TraceGuidProperties,
    room: u32,
    total: *mut u32,
) -> u32 {
    boundary::status(|| {
        if room == 0 || all.is_null() || total.is_null() {
            return Status::ERROR_INVALID_PARAMETER;
        }
        let providers = match Controller::find(None) {
            Ok(Some(mut daemon)) => daemon.provider_entries(),
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let registered: Vec<TraceGuidProperties> = match providers {
            Ok(providers) => providers
                .iter()
                .filter(|entry| !entry.is_group && !entry.pids.is_empty())
                .map(guid_properties)
                .collect(),
            Err(error) => return error.status(),
        };
        // SAFETY: by the contract.
        unsafe { store_properties(all, room as usize, &registered, total) }
    })
}

fn guid_properties(entry: &ProviderEntry) -> TraceGuidProperties {
    let by = entry.sessions.first();
    TraceGuidProperties {
        guid: entry.provider,
        guid_type: 0,
        // The low bits of a session id are its logger id; the low bits of the keywords of a classic
        // provider are its flags.
        logger_id: by.map_or(0, |by| (by.session & 0xFFFF) as u32),
        enable_level: by.map_or(0, |by| by.level.into()),
        enable_flags: by.map_or(0, |by| (by.any & 0xFFFF_FFFF) as u32),
        is_enable: by.is_some().into(),
    }
}

/// # Safety
///
/// As [`EnumerateTraceGuids`], and neither is NULL.
unsafe fn store_properties(
    all: *mut *mut TraceGuidProperties,
    room: usize,
    registered: &[TraceGuidProperties],
    total: *mut u32,
) -> Status {
    let elements: Vec<*mut TraceGuidProperties> = (0..registered.len().min(room))
        // SAFETY: by the contract.
        .map(|index| unsafe { all.wrapping_add(index).read_unaligned() })
        .collect();
    if elements.iter().any(|element| element.is_null()) {
        return Status::ERROR_INVALID_PARAMETER;
    }
    for (element, properties) in elements.iter().zip(registered) {
        // SAFETY: by the contract.
        unsafe { ptr::store(*element, *properties) };
    }
    // SAFETY: by the contract.
    unsafe { ptr::store(total, u32::try_from(registered.len()).unwrap_or(u32::MAX)) };
    if registered.len() > room { Status::ERROR_MORE_DATA } else { Status::ERROR_SUCCESS }
}
