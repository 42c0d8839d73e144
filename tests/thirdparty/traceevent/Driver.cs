// Reads traces and runs sessions with TraceEvent, and prints what its callbacks receive. traceevent.sh
// compares the output with `weir dump`.
//
//   events FILE OUT              writes one line for each event of a trace
//   live OUT COMMAND...          runs COMMAND in a session of two user providers, decodes their events live
//   kernel-live OUT COMMAND...   runs COMMAND in the session "NT Kernel Logger", reads samples, switches and stacks live
//   kernel-file ETL COMMAND...   runs COMMAND in a system logger that writes to ETL
//   tracelog ETL OUT             converts a kernel trace to a TraceLog, writes one line for each sample and switch

using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Threading;
using Microsoft.Diagnostics.Tracing;
using Microsoft.Diagnostics.Tracing.Etlx;
using Microsoft.Diagnostics.Tracing.Parsers;
using Microsoft.Diagnostics.Tracing.Parsers.Kernel;
using Microsoft.Diagnostics.Tracing.Session;
using Microsoft.Diagnostics.Tracing.Stacks;

static class Driver
{
    const KernelTraceEventParser.Keywords KernelFlags =
        KernelTraceEventParser.Keywords.Process | KernelTraceEventParser.Keywords.Thread |
        KernelTraceEventParser.Keywords.ImageLoad | KernelTraceEventParser.Keywords.Profile |
        KernelTraceEventParser.Keywords.ContextSwitch | KernelTraceEventParser.Keywords.Dispatcher;

    const KernelTraceEventParser.Keywords KernelStacks =
        KernelTraceEventParser.Keywords.Profile | KernelTraceEventParser.Keywords.ContextSwitch;

    static int Main(string[] args)
    {
        CultureInfo.CurrentCulture = CultureInfo.InvariantCulture;
        var command = args.Skip(2).ToArray();
        switch (args[0])
        {
            case "events": WriteEvents(args[1], args[2]); break;
            case "live": ReadLive(args[1], command); break;
            case "kernel-live": ReadKernelLive(args[1], command); break;
            case "kernel-file": RecordKernel(args[1], command); break;
            case "tracelog": WriteTraceLog(args[1], args[2]); break;
            default: throw new ArgumentException(args[0]);
        }
        return 0;
    }

    static void WriteEvents(string path, string output)
    {
        if (path.EndsWith(".zip"))
        {
            var unpacked = output + ".etl";
            new ZippedETLReader(path, TextWriter.Null) { EtlFileName = unpacked, SymbolDirectory = output + ".symbols" }.UnpackArchive();
            path = unpacked;
        }
        using (var source = new ETWTraceEventSource(path, TraceEventSourceType.FileOnly))
        using (var lines = new StreamWriter(output))
        {
            source.AllEvents += data =>
            {
                var guid = data.IsClassicProvider ? data.TaskGuid : data.ProviderGuid;
                lines.WriteLine(string.Join(" ", guid, (ushort)data.ID, data.Version, (byte)data.Level, (byte)data.Opcode,
                    (ushort)data.Task, "0x" + ((ulong)data.Keywords).ToString("x"), data.ProcessID, data.ThreadID,
                    data.ProcessorNumber, data.EventDataLength, FileTime(data)));
            };
            source.Process();
        }
    }

    static void ReadLive(string output, string[] command)
    {
        using (var session = new TraceEventSession("TraceEventUser"))
        using (var lines = new StreamWriter(output))
        {
            session.EnableProvider(new Guid("b7d19a6e-6f2c-4d0e-9a55-0d5d3f6b2c11"));
            session.EnableProvider(new Guid("3e2f0a5c-90f4-4a39-8a0e-5b8f8b6d4e22"));
            session.Source.Dynamic.All += data => lines.WriteLine(string.Join(" ", data.ProviderName, data.EventName, FileTime(data),
                string.Join(" ", data.PayloadNames.Select(name => name + "=" + data.PayloadByName(name)))));
            Run(session, command);
        }
    }

    static void ReadKernelLive(string output, string[] command)
    {
        using (var session = new TraceEventSession(KernelTraceEventParser.KernelSessionName))
        using (var lines = new StreamWriter(output))
        {
            session.EnableKernelProvider(KernelFlags, KernelStacks);
            var kernel = session.Source.Kernel;
            kernel.PerfInfoSample += data => lines.WriteLine($"sample {data.TimeStampQPC} {data.ThreadID} {data.ProcessorNumber}");
            kernel.ThreadCSwitch += data =>
                lines.WriteLine($"switch {data.TimeStampQPC} {data.NewThreadID} {data.ProcessorNumber} {data.OldThreadID}");
            kernel.DispatcherReadyThread += data => lines.WriteLine($"ready {data.TimeStampQPC} {data.AwakenedThreadID}");
            kernel.StackWalkStack += data => lines.WriteLine($"stack {data.EventTimeStampQPC} {data.ThreadID} {data.ProcessID} {data.FrameCount}");
            kernel.ProcessStart += data => lines.WriteLine($"process {data.TimeStampQPC} {data.ProcessID} {data.ImageFileName}");
            lines.WriteLine($"lost {Run(session, command)}");
        }
    }

    static void RecordKernel(string path, string[] command)
    {
        using (var session = new TraceEventSession("TraceEventKernel", path))
        {
            session.EnableKernelProvider(KernelFlags, KernelStacks);
            Execute(command);
            Stop(session);
        }
    }

    static void WriteTraceLog(string path, string output)
    {
        var options = new TraceLogOptions { ConversionLog = TextWriter.Null, KeepAllEvents = true };
        using (var log = new TraceLog(TraceLog.CreateFromEventTraceLogFile(path, output + ".etlx", options)))
        using (var lines = new StreamWriter(output))
        {
            var samples = log.Events.Filter(data => data is SampledProfileTraceData);
            var tree = new CallTree(ScalingPolicyKind.ScaleToData) { StackSource = CopyStackSource.Clone(new TraceEventStackSource(samples)) };
            lines.WriteLine($"sum {tree.Root.InclusiveCount} {tree.ByID.Sum(node => node.ExclusiveCount)}");
            lines.WriteLine($"start {log.Events.First().TimeStampQPC}");
            foreach (var data in log.Events)
            {
                if (data is SampledProfileTraceData sample)
                    lines.WriteLine($"sample {data.TimeStampQPC} {data.ThreadID} {data.ProcessID} {Frames(sample.CallStack())}");
                else if (data is CSwitchTraceData change)
                    lines.WriteLine($"switch {data.TimeStampQPC} {change.NewThreadID} {data.ProcessID} {Frames(change.CallStack())}");
            }
            foreach (var process in log.Processes)
                lines.WriteLine($"cpu {process.ProcessID} {process.CPUMSec:f3}");
        }
    }

    // Returns the addresses of a call stack, innermost first, or "-" without a stack.
    static string Frames(TraceCallStack stack)
    {
        var frames = new List<string>();
        for (; stack != null; stack = stack.Caller)
            frames.Add("0x" + stack.CodeAddress.Address.ToString("x"));
        return frames.Count == 0 ? "-" : string.Join(",", frames);
    }

    // Runs a command while another thread delivers the session's events, then ends the session. Returns the
    // number of lost events.
    static int Run(TraceEventSession session, string[] command)
    {
        var reader = new Thread(() => session.Source.Process());
        reader.Start();
        Execute(command);
        var lost = session.EventsLost;
        Stop(session);
        reader.Join();
        return lost;
    }

    // Ends a session. TraceEvent also tries to open Windows' registry and, without noThrow, reports that it cannot.
    static void Stop(TraceEventSession session) => session.Stop(noThrow: true);

    static void Execute(string[] command)
    {
        var info = new ProcessStartInfo(command[0]) { UseShellExecute = false };
        foreach (var argument in command.Skip(1))
            info.ArgumentList.Add(argument);
        using (var process = Process.Start(info))
        {
            process.WaitForExit();
            if (process.ExitCode != 0)
                throw new Exception($"{command[0]} exited with {process.ExitCode}");
        }
    }

    // Returns an event's time in units of 100 ns since 1601.
    static long FileTime(TraceEvent data) => data.TimeStamp.ToUniversalTime().ToFileTimeUtc();
}
