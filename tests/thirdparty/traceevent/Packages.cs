// Declarations of the three packages that TraceEvent's project file references and that .NET does not
// contain: the interfaces of msdia140.dll (Dia2Lib) and of the trace relogger (TraceReloggerLib), which are
// COM components of Windows, and the client for .NET's own event pipe. They let TraceEvent's sources
// compile as they are. The checks of traceevent.sh call none of them.

using System;
using System.Collections.Generic;
using System.Diagnostics.Tracing;
using System.IO;

namespace Microsoft.Diagnostics.NETCore.Client
{
    public sealed class DiagnosticsClient
    {
        public DiagnosticsClient(int processId) { }

        public EventPipeSession StartEventPipeSession(
            IEnumerable<EventPipeProvider> providers, bool requestRundown = true, int circularBufferMB = 256)
        {
            throw new NotSupportedException();
        }
    }

    public sealed class EventPipeProvider
    {
        public EventPipeProvider(string name, EventLevel level, long keywords = 0) { }
    }

    public sealed class EventPipeSession : IDisposable
    {
        public Stream EventStream => throw new NotSupportedException();
        public void Stop() { }
        public void Dispose() { }
    }
}

namespace TraceReloggerLib
{
    public struct _EVENT_DESCRIPTOR
    {
        public ushort Id;
        public byte Version;
        public byte Channel;
        public byte Level;
        public byte Opcode;
        public ushort Task;
        public ulong Keyword;
    }

    public struct _LARGE_INTEGER
    {
        public long QuadPart;
    }

    public struct _EVENT_HEADER
    {
        public ushort Size;
        public ushort HeaderType;
        public ushort Flags;
        public ushort EventProperty;
        public uint ThreadId;
        public uint ProcessId;
        public _LARGE_INTEGER TimeStamp;
        public Guid ProviderId;
        public _EVENT_DESCRIPTOR EventDescriptor;
        public ulong ProcessorTime;
        public Guid ActivityId;
    }

    public struct _EVENT_RECORD
    {
        public _EVENT_HEADER EventHeader;
    }

    public interface ITraceEvent
    {
        ITraceEvent Clone();
        IntPtr GetEventRecord();
        void SetEventDescriptor(ref _EVENT_DESCRIPTOR descriptor);
        void SetProviderId(ref Guid provider);
        void SetActivityId(ref Guid activity);
        void SetTimeStamp(ref _LARGE_INTEGER time);
        void SetProcessId(uint process);
        void SetProcessorIndex(uint processor);
        void SetThreadId(uint thread);
        void SetPayload(ref byte payload, uint size);
    }

    public interface ITraceEventCallback
    {
        void OnBeginProcessTrace(ITraceEvent header, CTraceRelogger relogger);
        void OnEvent(ITraceEvent data, CTraceRelogger relogger);
        void OnFinalizeProcessTrace(CTraceRelogger relogger);
    }

    public class CTraceRelogger
    {
        public CTraceRelogger() { throw new NotSupportedException(); }
        public ulong AddLogfileTraceStream(string name, IntPtr context) => 0;
        public ulong AddRealtimeTraceStream(string name, IntPtr context) => 0;
        public void RegisterCallback(ITraceEventCallback callback) { }
        public void SetOutputFilename(string name) { }
        public void SetCompressionMode(sbyte mode) { }
        public ITraceEvent CreateEventInstance(ulong trace, uint flags) => null;
        public void Inject(ITraceEvent data) { }
        public void ProcessTrace() { }
        public void Cancel() { }
    }
}

namespace Dia2Lib
{
    public struct _LARGE_INTEGER
    {
        public long QuadPart;
    }

    public struct _ULARGE_INTEGER
    {
        public ulong QuadPart;
    }

    public struct tagSTATSTG
    {
        public _ULARGE_INTEGER cbSize;
    }

    public enum SymTagEnum
    {
        SymTagNull = 0,
        SymTagFunction = 5,
    }

    public interface IStream
    {
        void RemoteRead(out byte data, uint size, out uint read);
        void RemoteWrite(ref byte data, uint size, out uint written);
        void RemoteSeek(_LARGE_INTEGER move, uint origin, out _ULARGE_INTEGER position);
        void SetSize(_ULARGE_INTEGER size);
        void RemoteCopyTo(IStream target, _ULARGE_INTEGER size, out _ULARGE_INTEGER read, out _ULARGE_INTEGER written);
        void Commit(uint flags);
        void Revert();
        void LockRegion(_ULARGE_INTEGER offset, _ULARGE_INTEGER size, uint kind);
        void UnlockRegion(_ULARGE_INTEGER offset, _ULARGE_INTEGER size, uint kind);
        void Stat(out tagSTATSTG status, uint flags);
        void Clone(out IStream copy);
    }

    public interface IDiaDataSource3
    {
        void loadDataFromPdb(string path);
        void loadDataFromIStream(IStream stream);
        void openSession(out IDiaSession session);
        void getStreamSize(string name, out uint size);
        void getStreamRawData(string name, uint size, out byte data);
    }

    public interface IDiaSession
    {
        IDiaSymbol globalScope { get; }
        void getSymbolsByAddr(out IDiaEnumSymbolsByAddr symbols);
        void getHeapAllocationSites(out IDiaEnumSymbols sites);
        void symbolById(uint id, out IDiaSymbol symbol);
        void findChildren(IDiaSymbol parent, SymTagEnum tag, string name, uint flags, out IDiaEnumSymbols children);
        void findSymbolByToken(uint token, SymTagEnum tag, out IDiaSymbol symbol);
        void findLinesByRVA(uint rva, uint length, out IDiaEnumLineNumbers lines);
        void findILOffsetsByRVA(uint rva, uint length, out IDiaEnumLineNumbers lines);
        void findInjectedSource(string file, out IDiaEnumInjectedSources sources);
        void findInputAssemblyFiles(out IDiaEnumInputAssemblyFiles files);
        void getFuncMDTokenMapSize(out uint size);
        void getFuncMDTokenMap(uint capacity, out uint size, out byte data);
        void getTypeMDTokenMapSize(out uint size);
        void getTypeMDTokenMap(uint capacity, out uint size, out byte data);
    }

    public interface IDiaSymbol
    {
        string name { get; }
        ulong length { get; }
        uint relativeVirtualAddress { get; }
        uint addressSection { get; }
        uint symIndexId { get; }
        uint symTag { get; }
        uint typeId { get; }
        uint baseType { get; }
        uint age { get; }
        int reference { get; }
        Guid guid { get; }
        IDiaSymbol type { get; }
        void get_undecoratedNameEx(uint options, out string undecorated);
    }

    public interface IDiaEnumSymbolsByAddr
    {
        IDiaSymbol symbolByRVA(uint rva);
    }

    public interface IDiaEnumSymbols
    {
        void Next(uint count, out IDiaSymbol symbol, out uint fetched);
    }

    public interface IDiaEnumLineNumbers
    {
        void Next(uint count, out IDiaLineNumber line, out uint fetched);
    }

    public interface IDiaLineNumber
    {
        IDiaSourceFile sourceFile { get; }
        uint lineNumber { get; }
        uint lineNumberEnd { get; }
        uint columnNumber { get; }
        uint columnNumberEnd { get; }
    }

    public interface IDiaSourceFile
    {
        string fileName { get; }
        uint checksumType { get; }
        void get_checksum(uint capacity, out uint size, out byte data);
    }

    public interface IDiaEnumInjectedSources
    {
        void Next(uint count, out IDiaInjectedSource source, out uint fetched);
    }

    public interface IDiaInjectedSource
    {
        void get_source(uint capacity, out uint size, out byte data);
    }

    public interface IDiaEnumInputAssemblyFiles
    {
        void Next(uint count, out IDiaInputAssemblyFile file, out uint fetched);
    }

    public interface IDiaInputAssemblyFile
    {
        uint index { get; }
        string fileName { get; }
    }
}
