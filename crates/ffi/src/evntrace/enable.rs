//! evntrace.h for controllers: enabling providers in sessions, and listing registered providers.

use traceweir::controller::{Controller, EnableParams, ProviderEntry};
use traceweir::{ControlCode, Guid, Status};

use super::filters;
use super::sessions::{self, SessionSelector};
use crate::types::FilterDescriptor;
use crate::types::controller::{EnableTraceParameters, EnableTraceParametersV1, TraceGuidProperties};
use crate::{boundary, ptr};

/// The version of ENABLE_TRACE_PARAMETERS with at most one filter.
const ENABLE_TRACE_PARAMETERS_VERSION: u32 = 1;
/// The version of ENABLE_TRACE_PARAMETERS with an array of filters.
const ENABLE_TRACE_PARAMETERS_VERSION_2: u32 = 2;

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
    boundary::to_status(|| {
        // SAFETY: the caller guarantees that `provider` and `parameters` are NULL or valid.
        let (provider, options) = unsafe { (ptr::read_value(provider), read_options(parameters)) };
        let options = match options {
            Ok(options) => options,
            Err(status) => return status,
        };
        enable(id, provider, code, &EnableParams { level, match_any, match_all, ..options }, timeout_ms)
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
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or readable values as `provider` and `source`.
        let (provider, source) = unsafe { (ptr::read_value(provider), ptr::read_value(source)) };
        // SAFETY: the caller fulfils the `# Safety` section; `read` requires no more.
        let filters = match unsafe { filters::read(filter, u32::from(!filter.is_null())) } {
            Ok(filters) => filters,
            Err(status) => return status,
        };
        let source = source.unwrap_or(Guid::NULL);
        let params = EnableParams { level, match_any, match_all, property, source, filters };
        enable(id, provider, is_enabled, &params, 0)
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
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or a readable `provider`.
        let provider = unsafe { ptr::read_value(provider) };
        let Ok(level) = u8::try_from(level) else { return Status::ERROR_INVALID_PARAMETER };
        let params = EnableParams { level, match_any: flags.into(), ..EnableParams::default() };
        enable(id, provider, is_enabled, &params, 0)
    })
}

fn enable(id: u64, provider: Option<Guid>, code: u32, params: &EnableParams, timeout_ms: u32) -> Status {
    let Some(code) = ControlCode::from_number(code) else { return Status::ERROR_INVALID_PARAMETER };
    let Some(provider) = provider else { return Status::ERROR_INVALID_PARAMETER };
    let target = sessions::find(SessionSelector { id, name: None, mode: 0 });
    match target.and_then(|target| target.enable(provider, code, params, timeout_ms)) {
        Ok(()) => Status::ERROR_SUCCESS,
        Err(error) => error.status(),
    }
}

/// Reads ENABLE_TRACE_PARAMETERS of either version, without level and keywords; NULL stands for the
/// defaults.
///
/// # Safety
///
/// As [`EnableTraceEx2`]; the structure is as long as its version requires.
unsafe fn read_options(at: *const EnableTraceParameters) -> Result<EnableParams, Status> {
    // SAFETY: the caller passes NULL or a structure, which begins with its version. The version is
    // checked before the other members are read.
    let Some(version) = (unsafe { ptr::read_value(at.cast::<u32>()) }) else {
        return Ok(EnableParams::default());
    };
    let (v1, count) = match version {
        ENABLE_TRACE_PARAMETERS_VERSION => {
            // SAFETY: the caller guarantees that the structure is as long as its version requires.
            let v1 = unsafe { at.cast::<EnableTraceParametersV1>().read_unaligned() };
            (v1, u32::from(!v1.enable_filter_desc.is_null()))
        }
        ENABLE_TRACE_PARAMETERS_VERSION_2 => {
            // SAFETY: the caller guarantees that the structure is as long as its version requires.
            let v2 = unsafe { at.read_unaligned() };
            (v2.first, v2.filter_desc_count)
        }
        _ => return Err(Status::ERROR_INVALID_PARAMETER),
    };
    // SAFETY: the caller fulfils the `# Safety` section; `read` requires no more.
    let filters = unsafe { filters::read(v1.enable_filter_desc, count) }?;
    Ok(EnableParams {
        property: v1.enable_property,
        source: v1.source_id,
        filters,
        ..EnableParams::default()
    })
}

/// Lists the registered providers, each with the first session that enables it;
/// [`Controller::provider_entries`].
///
/// # Safety
///
/// `properties_array` is NULL, or has `capacity` elements that are NULL or valid; `total` is NULL
/// or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EnumerateTraceGuids(
    properties_array: *mut *mut TraceGuidProperties,
    capacity: u32,
    total: *mut u32,
) -> u32 {
    boundary::to_status(|| {
        if capacity == 0 || properties_array.is_null() || total.is_null() {
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
                .map(to_guid_properties)
                .collect(),
            Err(error) => return error.status(),
        };
        // SAFETY: the caller fulfils the `# Safety` section; `store_properties` requires no more.
        unsafe { store_properties(properties_array, capacity as usize, &registered, total) }
    })
}

fn to_guid_properties(entry: &ProviderEntry) -> TraceGuidProperties {
    let first_enable = entry.sessions.first();
    TraceGuidProperties {
        guid: entry.provider,
        guid_type: 0,
        // The low bits of a session id are its logger id; the low bits of the keywords of a classic
        // provider are its flags.
        logger_id: first_enable.map_or(0, |enable| (enable.session & 0xFFFF) as u32),
        enable_level: first_enable.map_or(0, |enable| enable.level.into()),
        enable_flags: first_enable.map_or(0, |enable| (enable.any & 0xFFFF_FFFF) as u32),
        is_enable: first_enable.is_some().into(),
    }
}

/// Stores the properties of providers and their number. Stores nothing if an element is NULL.
///
/// # Safety
///
/// As [`EnumerateTraceGuids`]; neither `properties_array` nor `total` is NULL.
unsafe fn store_properties(
    properties_array: *mut *mut TraceGuidProperties,
    capacity: usize,
    registered: &[TraceGuidProperties],
    total: *mut u32,
) -> Status {
    let elements: Vec<*mut TraceGuidProperties> = (0..registered.len().min(capacity))
        // SAFETY: `index` is less than `capacity`, and the caller guarantees as many elements.
        .map(|index| unsafe { properties_array.wrapping_add(index).read_unaligned() })
        .collect();
    if elements.iter().any(|element| element.is_null()) {
        return Status::ERROR_INVALID_PARAMETER;
    }
    for (element, properties) in elements.iter().zip(registered) {
        // SAFETY: the caller guarantees that the address is NULL or writable.
        unsafe { ptr::store(*element, *properties) };
    }
    // SAFETY: the caller passes NULL or a writable `total`.
    unsafe { ptr::store(total, u32::try_from(registered.len()).unwrap_or(u32::MAX)) };
    if registered.len() > capacity { Status::ERROR_MORE_DATA } else { Status::ERROR_SUCCESS }
}
