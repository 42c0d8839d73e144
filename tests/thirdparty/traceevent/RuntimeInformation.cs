// Replaces the assembly of this name that comes with .NET: IsOSPlatform returns true for Windows, so that
// TraceEvent decodes events with tdh.dll (docs/shims.md).

using System.Reflection;

[assembly: AssemblyVersion("4.0.99.0")]
[assembly: AssemblyFileVersion("9.0.0.0")]

namespace System.Runtime.InteropServices
{
    public enum Architecture { X86, X64, Arm, Arm64 }

    public readonly struct OSPlatform : IEquatable<OSPlatform>
    {
        private readonly string name;
        private OSPlatform(string name) { this.name = name; }
        public static OSPlatform Create(string osPlatform) => new OSPlatform(osPlatform);
        public static OSPlatform FreeBSD => new OSPlatform("FREEBSD");
        public static OSPlatform Linux => new OSPlatform("LINUX");
        public static OSPlatform OSX => new OSPlatform("OSX");
        public static OSPlatform Windows => new OSPlatform("WINDOWS");
        public bool Equals(OSPlatform other) => name == other.name;
        public override bool Equals(object other) => other is OSPlatform platform && Equals(platform);
        public override int GetHashCode() => name.GetHashCode();
        public override string ToString() => name;
        public static bool operator ==(OSPlatform left, OSPlatform right) => left.Equals(right);
        public static bool operator !=(OSPlatform left, OSPlatform right) => !left.Equals(right);
    }

    public static class RuntimeInformation
    {
        public static string FrameworkDescription => ".NET Core 3.1";
        public static string OSDescription => "Linux";
        public static Architecture OSArchitecture => Architecture.X64;
        public static Architecture ProcessArchitecture => Architecture.X64;
        public static bool IsOSPlatform(OSPlatform osPlatform) => osPlatform == OSPlatform.Windows;
    }
}
