//! Finds the names of events in TraceEvent, with tables of the names that differ from the schemas.

/// Provider, name in the schema, name in TraceEvent. The name in TraceEvent includes the provider
/// if TraceEvent renames the provider too.
const RENAMED: &[(&str, &str, &str)] = &[
    (KERNEL, "EventTrace/Header", "EventTrace"),
    (KERNEL, "EventTrace/RDComplete", "EventTrace/RundownComplete"),
    (KERNEL, "DiskIo/Read", "DiskIO/Read"),
    (KERNEL, "DiskIo/Write", "DiskIO/Write"),
    (KERNEL, "DiskIo/FlushBuffers", "DiskIO/FlushBuffers"),
    (KERNEL, "DiskIo/ReadInit", "DiskIO/ReadInit"),
    (KERNEL, "DiskIo/WriteInit", "DiskIO/WriteInit"),
    (KERNEL, "DiskIo/FlushInit", "DiskIO/FlushInit"),
    (KERNEL, "Image/UnLoad", "Image/Unload"),
    (KERNEL, "Image/DCEnd", "Image/DCStop"),
    (KERNEL, "Image/KernelBase", "MSNT_SystemTrace/Image/KernelBase"),
    (KERNEL, "PageFault/HardFault", "Memory/HardFault"),
    (KERNEL, "PerfInfo/SampleProf", "PerfInfo/Sample"),
    (KERNEL, "Process/End", "Process/Stop"),
    (KERNEL, "Process/DCEnd", "Process/DCStop"),
    (KERNEL, "SysConfigEx/BuildInfo", "SysConfig/BuildInfo"),
    (KERNEL, "SysConfigEx/SystemPaths", "SysConfig/SystemPaths"),
    (KERNEL, "SysConfigEx/UnknownVolume", "SysConfig/UnknownVolume"),
    (KERNEL, "SysConfigEx/VolumeMapping", "SysConfig/VolumeMapping"),
    (KERNEL, "SysConfigEx/Opcode(37)", "SysConfig/Opcode(37)"),
    (KERNEL, "SystemConfig/Platform", "MSNT_SystemTrace/SystemConfig/Platform"),
    (KERNEL, "Thread/End", "Thread/Stop"),
    (RUNTIME, "GarbageCollection/Start", "GC/Start"),
    (RUNTIME, "GarbageCollection/Stop", "GC/Stop"),
    (RUNTIME, "GarbageCollection/Triggered", "GC/Triggered"),
    (RUNTIME, "GarbageCollection/FinalizeObject", "GC/FinalizeObject"),
    (RUNTIME, "GarbageCollection/PinObjectAtGCTime", "GC/PinObjectAtGCTime"),
    (RUNTIME, "GarbageCollection/GCAllocationTick", "GC/AllocationTick"),
    (RUNTIME, "GarbageCollection/GCBulkMovedObjectRanges", "GC/BulkMovedObjectRanges"),
    (RUNTIME, "GarbageCollection/GCBulkSurvivingObjectRanges", "GC/BulkSurvivingObjectRanges"),
    (RUNTIME, "GarbageCollection/GCCreateSegment", "GC/CreateSegment"),
    (RUNTIME, "GarbageCollection/GCFinalizersBegin", "GC/FinalizersStart"),
    (RUNTIME, "GarbageCollection/GCFinalizersEnd", "GC/FinalizersStop"),
    (RUNTIME, "GarbageCollection/GCGenerationRange", "GC/GenerationRange"),
    (RUNTIME, "GarbageCollection/GCHeapStats", "GC/HeapStats"),
    (RUNTIME, "GarbageCollection/GCMarkFinalizeQueueRoots", "GC/MarkFinalizeQueueRoots"),
    (RUNTIME, "GarbageCollection/GCMarkHandles", "GC/MarkHandles"),
    (RUNTIME, "GarbageCollection/GCMarkOlderGenerationRoots", "GC/MarkCards"),
    (RUNTIME, "GarbageCollection/GCMarkStackRoots", "GC/MarkStackRoots"),
    (RUNTIME, "GarbageCollection/GCRestartEEBegin", "GC/RestartEEStart"),
    (RUNTIME, "GarbageCollection/GCRestartEEEnd", "GC/RestartEEStop"),
    (RUNTIME, "GarbageCollection/GCSuspendEEBegin", "GC/SuspendEEStart"),
    (RUNTIME, "GarbageCollection/GCSuspendEEEnd", "GC/SuspendEEStop"),
    (RUNTIME, "GarbageCollection/GCTerminateConcurrentThread", "GC/TerminateConcurrentThread"),
    (RUNTIME, "GC/Mark", "GC/MarkWithType"),
    (RUNTIME, "CLRLoader/AppDomainLoad", "Loader/AppDomainLoad"),
    (RUNTIME, "CLRLoader/AppDomainUnload", "Loader/AppDomainUnload"),
    (RUNTIME, "CLRLoader/AssemblyLoad", "Loader/AssemblyLoad"),
    (RUNTIME, "CLRLoader/AssemblyUnload", "Loader/AssemblyUnload"),
    (RUNTIME, "CLRLoader/DomainModuleLoad", "Loader/DomainModuleLoad"),
    (RUNTIME, "CLRLoader/ModuleLoad", "Loader/ModuleLoad"),
    (RUNTIME, "CLRLoader/ModuleUnload", "Loader/ModuleUnload"),
    (RUNTIME, "CLRMethod/MethodJittingStarted", "Method/JittingStarted"),
    (RUNTIME, "CLRMethod/MethodLoadVerbose", "Method/LoadVerbose"),
    (RUNTIME, "CLRMethod/MethodUnloadVerbose", "Method/UnloadVerbose"),
    (RUNTIME, "CLRRuntimeInformation/Start", "Runtime/Start"),
    (RUNDOWN, "CLRLoaderRundown/AppDomainDCEnd", "Loader/AppDomainDCStop"),
    (RUNDOWN, "CLRLoaderRundown/AssemblyDCEnd", "Loader/AssemblyDCStop"),
    (RUNDOWN, "CLRLoaderRundown/DomainModuleDCEnd", "Loader/DomainModuleDCStop"),
    (RUNDOWN, "CLRLoaderRundown/ModuleDCEnd", "Loader/ModuleDCStop"),
    (RUNDOWN, "CLRMethodRundown/DCEndComplete", "Method/DCStopComplete"),
    (RUNDOWN, "CLRMethodRundown/DCEndInit", "Method/DCStopInit"),
    (RUNDOWN, "CLRRuntimeInformationRundown/Start", "Runtime/Start"),
    (RUNDOWN, "TieredCompilation/SettingsDCStart", "TieredCompilationRundown/SettingsDCStart"),
];

/// Events that no available schema names: provider, id, name in TraceEvent.
const UNNAMED: &[(&str, u64, &str)] = &[
    (RUNTIME, 208, "GC/LOHCompact"),
    (RUNTIME, 209, "GC/FitBucketInfo"),
    (RUNDOWN, 10, "GC/SettingsRundown"),
];

pub(super) const KERNEL: &str = "Windows Kernel";
pub(super) const RUNTIME: &str = "Microsoft-Windows-DotNETRuntime";
pub(super) const RUNDOWN: &str = "Microsoft-Windows-DotNETRuntimeRundown";

/// Returns the name of an event in TraceEvent, including the provider.
pub(super) fn trace_event_name(provider: &str, event: Option<&str>, id: u64) -> String {
    let theirs = match event {
        Some(event) => {
            let row = RENAMED.iter().find(|row| row.0 == provider && row.1 == event);
            row.map_or(event, |(_, _, renamed)| renamed)
        }
        None => {
            let row = UNNAMED.iter().find(|row| row.0 == provider && row.1 == id);
            row.map_or("(no name)", |(_, _, name)| name)
        }
    };
    if theirs.starts_with("MSNT_SystemTrace/") { theirs.to_owned() } else { format!("{provider}/{theirs}") }
}
