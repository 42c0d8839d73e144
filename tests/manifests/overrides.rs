//! Programs that define the macros of generated headers themselves, as for the output of `mc.exe`.

use std::process::Command;

use super::{arg, run_command};
use crate::util::{Daemon, c_library, root, weir};

const MANIFEST: &str = r#"<instrumentationManifest xmlns="http://schemas.microsoft.com/win/2004/08/events">
 <instrumentation><events><provider name="Example-Calls" guid="{ca115000-0000-4000-8000-000000000018}" symbol="CALLS" resourceFileName="x" messageFileName="x">
  <templates><template tid="T"><data name="Length" inType="win:UInt32"/>
   <data name="Address" inType="win:Binary" outType="win:SocketAddress" length="Length"/>
   <data name="User" inType="win:SID"/></template></templates>
  <events><event symbol="Met" value="1" version="0" level="win:Informational" template="T"/>
   <event symbol="Ended" value="2" version="0" level="win:Informational"/></events>
 </provider></events></instrumentation></instrumentationManifest>"#;

/// A program that counts the calls of the functions that it names. It writes an address of Linux,
/// where AF_INET6 is 10.
const PROGRAM: &str = r#"#include <netinet/in.h>
#include <string.h>
#include <windows.h>
#include <evntprov.h>
static int registered, unregistered, described, written, checked, measured;
static ULONG count_register(LPCGUID id, PENABLECALLBACK callback, PVOID context, PREGHANDLE handle) {
    registered++;
    return EventRegister(id, callback, context, handle);
}
static ULONG count_unregister(REGHANDLE handle) {
    unregistered++;
    return EventUnregister(handle);
}
static ULONG count_information(REGHANDLE handle, EVENT_INFO_CLASS kind, PVOID information, ULONG size) {
    described++;
    return EventSetInformation(handle, kind, information, size);
}
static ULONG count_write(REGHANDLE handle, PCEVENT_DESCRIPTOR event, LPCGUID activity, LPCGUID related, ULONG count,
                         PEVENT_DATA_DESCRIPTOR data) {
    written++;
    return EventWriteTransfer(handle, event, activity, related, count, data);
}
#define MCGEN_EVENTREGISTER count_register
#define MCGEN_EVENTUNREGISTER count_unregister
#define MCGEN_EVENTSETINFORMATION count_information
#define MCGEN_EVENTWRITETRANSFER count_write
#define MCGEN_EVENT_ENABLED(EventName) (checked++, EventEnabled##EventName())
#define MCGEN_GETLENGTHSID(Sid) (measured++, GetLengthSid((PSID)(Sid)))
#include "calls.h"
int main(void) {
    SID system_sid = {1, 1, {{0, 0, 0, 0, 0, 5}}, {18}};
    struct sockaddr_in6 address;
    memset(&address, 0, sizeof address);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(443);
    address.sin6_addr = in6addr_loopback;
    EventRegisterExample_Calls();
    if (!MCGEN_EVENT_ENABLED(Met) || !MCGEN_ENABLE_CHECK(CALLS_Context, Ended))
        return 2;
    EventWriteMet(sizeof address, &address, &system_sid);
    EventWriteEnded();
    EventUnregisterExample_Calls();
    if (registered != 1 || unregistered != 1 || described != 1 || written != 2 || checked != 3 || measured != 1)
        return 3;
    return EventWriteEnded() == 0 && written == 2 && checked == 4 ? 0 : 4;
}
"#;

/// Includes the header only for its constants: it must declare no variable and no function.
const CONSTANTS_PROGRAM: &str = r#"#define MCGEN_DISABLE_PROVIDER_CODE_GENERATION
#include "calls.h"
#if defined(EventWriteMet) || defined(EventRegisterExample_Calls) || defined(MCGEN_EVENTREGISTER)
#error code was generated
#endif
typedef int MCGEN_TRACE_CONTEXT;
int main(void) { return !(Met.Id == Met_value && Ended.Id == 2 && CALLS.Data1 == 0xca115000); }
"#;

#[test]
fn program_replaces_the_functions_and_checks_of_generated_code() {
    let daemon = Daemon::start();
    let folder = tempfile::tempdir().unwrap();
    // `weir mc` creates the folders.
    let generated = folder.path().join("new/generated");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("calls.man"), MANIFEST).unwrap();
    weir(["mc", arg(&path("calls.man")), "--out", arg(&generated), "--c"]).expect(0);
    let compile = |name: &str, source: &str| {
        let (file, program) = (path(name).with_extension("c"), path(name));
        std::fs::write(&file, source).unwrap();
        let mut compiler = Command::new("gcc");
        compiler.args(["-Wall", "-Wextra", "-Werror", "-Wl,--build-id", "-I"]).arg(&generated);
        compiler.arg("-I").arg(root().join("crates/ffi/include")).arg(&file);
        compiler.arg(generated.join("calls_etw.c")).arg("-o").arg(&program);
        run_command(compiler.arg(c_library()).args(["-lpthread", "-ldl", "-lm"]));
        program
    };
    run_command(&mut Command::new(compile("constants", CONSTANTS_PROGRAM)));

    let (program, file) = (compile("calls", PROGRAM), daemon.path("calls.etl"));
    let provider = "{ca115000-0000-4000-8000-000000000018}";
    daemon.weir(["record", "-p", provider, "-o", arg(&file), "--", arg(&program)]).expect(0);
    let dump = weir(["dump", arg(&file)]).expect(0).text();
    assert!(dump.contains(r#"Address="[::1]:443" User=S-1-5-18"#), "{dump}");
    assert!(dump.contains("Example-Calls/Ended"), "{dump}");
}

#[test]
fn output_folder_that_is_a_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (manifest, file) = (folder.path().join("calls.man"), folder.path().join("file"));
    std::fs::write(&manifest, MANIFEST).unwrap();
    std::fs::write(&file, "").unwrap();
    let run = weir(["mc", arg(&manifest), "--out", arg(&file)]).expect(1);
    assert!(run.stderr.contains("cannot create the folder"), "{}", run.stderr);
}
