//! Every tracing function that the windows-sys crate declares, with the sizes of its result and
//! parameters. The crate is generated from the metadata of Windows.

use windows_sys::Win32::System::Diagnostics::Etw;

/// The sizes of the result and the parameters of a function, in bytes.
trait Prototype: Copy {
    const SIZES: &'static [usize];
}

macro_rules! impl_prototype {
    ($($kind:ident)*) => {
        impl<Output, $($kind),*> Prototype for unsafe extern "system" fn($($kind),*) -> Output {
            const SIZES: &'static [usize] = &[size_of::<Output>(), $(size_of::<$kind>()),*];
        }
    };
}

impl_prototype!();
impl_prototype!(A);
impl_prototype!(A B);
impl_prototype!(A B C);
impl_prototype!(A B C D);
impl_prototype!(A B C D E);
impl_prototype!(A B C D E F);
impl_prototype!(A B C D E F G);
impl_prototype!(A B C D E F G H);
impl_prototype!(A B C D E F G H I);
impl_prototype!(A B C D E F G H I J);
impl_prototype!(A B C D E F G H I J K);

const fn prototype_sizes<F: Prototype>(_: F) -> &'static [usize] {
    F::SIZES
}

/// Lists functions with their sizes. The sizes are constants, so that the test does not link the
/// functions.
macro_rules! functions {
    ($($name:ident($($parameter:tt)*))*) => {
        vec![$((stringify!($name), { const SIZES: &[usize] = prototype_sizes(Etw::$name as unsafe extern "system" fn($($parameter)*) -> _); SIZES })),*]
    };
}

#[rustfmt::skip]
pub(crate) fn list_functions() -> Vec<(&'static str, &'static [usize])> {
    functions! {
        CloseTrace(_)
        ControlTraceA(_, _, _, _)
        ControlTraceW(_, _, _, _)
        CreateTraceInstanceId(_, _)
        EnableTrace(_, _, _, _, _)
        EnableTraceEx(_, _, _, _, _, _, _, _, _)
        EnableTraceEx2(_, _, _, _, _, _, _, _)
        EnumerateTraceGuids(_, _, _)
        EnumerateTraceGuidsEx(_, _, _, _, _, _)
        EventAccessControl(_, _, _, _, _)
        EventAccessQuery(_, _, _)
        EventAccessRemove(_)
        EventActivityIdControl(_, _)
        EventEnabled(_, _)
        EventProviderEnabled(_, _, _)
        EventRegister(_, _, _, _)
        EventSetInformation(_, _, _, _)
        EventUnregister(_)
        EventWrite(_, _, _, _)
        EventWriteEx(_, _, _, _, _, _, _, _)
        EventWriteString(_, _, _, _)
        EventWriteTransfer(_, _, _, _, _, _)
        FlushTraceA(_, _, _)
        FlushTraceW(_, _, _)
        GetTraceEnableFlags(_)
        GetTraceEnableLevel(_)
        GetTraceLoggerHandle(_)
        OpenTraceA(_)
        OpenTraceFromBufferStream(_, _, _)
        OpenTraceFromFile(_, _, _)
        OpenTraceFromRealTimeLogger(_, _, _)
        OpenTraceFromRealTimeLoggerWithAllocationOptions(_, _, _, _, _)
        OpenTraceW(_)
        ProcessTrace(_, _, _, _)
        ProcessTraceAddBufferToBufferStream(_, _, _)
        ProcessTraceBufferDecrementReference(_)
        ProcessTraceBufferIncrementReference(_, _)
        QueryAllTracesA(_, _, _)
        QueryAllTracesW(_, _, _)
        QueryTraceA(_, _, _)
        QueryTraceProcessingHandle(_, _, _, _, _, _, _)
        QueryTraceW(_, _, _)
        RegisterTraceGuidsA(_, _, _, _, _, _, _, _)
        RegisterTraceGuidsW(_, _, _, _, _, _, _, _)
        RemoveTraceCallback(_)
        SetTraceCallback(_, _)
        StartTraceA(_, _, _)
        StartTraceW(_, _, _)
        StopTraceA(_, _, _)
        StopTraceW(_, _, _)
        TdhAggregatePayloadFilters(_, _, _, _)
        TdhCleanupPayloadEventFilterDescriptor(_)
        TdhCloseDecodingHandle(_)
        TdhCreatePayloadFilter(_, _, _, _, _, _)
        TdhDeletePayloadFilter(_)
        TdhEnumerateManifestProviderEvents(_, _, _)
        TdhEnumerateProviderFieldInformation(_, _, _, _)
        TdhEnumerateProviderFilters(_, _, _, _, _, _)
        TdhEnumerateProviders(_, _)
        TdhEnumerateProvidersForDecodingSource(_, _, _, _)
        TdhFormatProperty(_, _, _, _, _, _, _, _, _, _, _)
        TdhGetDecodingParameter(_, _)
        TdhGetEventInformation(_, _, _, _, _)
        TdhGetEventMapInformation(_, _, _, _)
        TdhGetManifestEventInformation(_, _, _, _)
        TdhGetProperty(_, _, _, _, _, _, _)
        TdhGetPropertySize(_, _, _, _, _, _)
        TdhGetWppMessage(_, _, _, _)
        TdhGetWppProperty(_, _, _, _, _)
        TdhLoadManifest(_)
        TdhLoadManifestFromBinary(_)
        TdhLoadManifestFromMemory(_, _)
        TdhOpenDecodingHandle(_)
        TdhQueryProviderFieldInformation(_, _, _, _, _)
        TdhSetDecodingParameter(_, _)
        TdhUnloadManifest(_)
        TdhUnloadManifestFromMemory(_, _)
        TraceEvent(_, _)
        TraceEventInstance(_, _, _, _)
        TraceMessageVa(_, _, _, _, _)
        TraceQueryInformation(_, _, _, _, _)
        TraceSetInformation(_, _, _, _)
        UnregisterTraceGuids(_)
        UpdateTraceA(_, _, _)
        UpdateTraceW(_, _, _)
    }
}
