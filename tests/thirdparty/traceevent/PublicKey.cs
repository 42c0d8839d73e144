// Writes the public key of an assembly to a file: PublicKey.dll ASSEMBLY OUT

using System.IO;
using System.Reflection;

static class PublicKey
{
    static void Main(string[] args)
    {
        File.WriteAllBytes(args[1], AssemblyName.GetAssemblyName(args[0]).GetPublicKey());
    }
}
