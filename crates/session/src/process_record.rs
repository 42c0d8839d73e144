//! The event that describes an attached process, at the front of log files, so that readers can name
//! the processes of events.
//!
//! ```text
//!   process attaches ──▶ Process/DCStart (0x0303, SYSTEM header) ──▶ header buffer of each file
//! ```
//!
//! - A1 The event has the layout of the kernel's process rundown. Unlike that one, it has a header
//!   with the ids of the process, and the session does not count it.
//! - A2 Files whose header buffer cannot change (compressed, continued), or has no room left, do not
//!   get the event.
//! - A3 A system logger gets no such events, because its kernel events describe all processes.

use traceweir_format::header::NO_ID;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;
use traceweir_format::security::Sid;

use crate::identity::Identity;

const LAYOUT: PayloadLayout = PayloadLayout::new(hook::PROCESS_DC_START, 4);

/// The exit status of a running process.
const STILL_ACTIVE: i32 = 259;

/// Returns the event that describes a process; `None` if its program is unknown.
pub(crate) fn encode(identity: &Identity) -> Option<Vec<u8>> {
    let program = identity.program.as_ref()?;
    let mut payload = Vec::new();
    let user = identity.user.map(Sid::user);
    put_kernel_event!(
        &mut payload,
        LAYOUT,
        {
            UniqueProcessKey: identity.start_key.unwrap_or(0),
            ProcessId: identity.pid,
            ParentId: program.parent,
            SessionId: identity.audit_session,
            ExitStatus: STILL_ACTIVE,
        },
        {
            UserSID: user.as_ref(),
            ImageFileName: program.image.as_bytes(),
            CommandLine: "",
            PackageFullName: identity.package.as_deref().unwrap_or_default(),
            ApplicationId: "",
        }
    );
    let header = SystemHeader {
        pointer_size: 8,
        version: LAYOUT.version(),
        hook: hook::PROCESS_DC_START,
        thread_id: NO_ID,
        process_id: identity.pid,
        time: 0,
        cpu_times: Some((0, 0)),
    };
    let mut record = Vec::new();
    header.encode(&payload, &mut record).ok()?;
    record.resize(record.len().next_multiple_of(8), 0);
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Program;
    use traceweir_format::Record;
    use traceweir_format::wire::{u32_at, u64_at};

    #[test]
    fn event_describes_the_process() {
        assert_eq!(encode(&Identity::from(7)), None, "the program is unknown");
        let program = Program { parent: 3, image: "shop".to_owned() };
        let (start_key, user) = (Some(0x1234), Some(1000));
        let record =
            encode(&Identity { start_key, user, program: Some(program), ..Identity::from(7) }).unwrap();
        assert_eq!(record.len() % 8, 0);
        let view = Record::parse(&record, 0).unwrap();
        let payload = view.payload();
        assert_eq!(view.hook(), Some(hook::PROCESS_DC_START));
        assert_eq!((u64_at(payload, 0), u32_at(payload, 8), u32_at(payload, 12)), (0x1234, 7, 3));
        let has = |bytes: &[u8]| payload.windows(bytes.len()).any(|window| window == bytes);
        assert!(has(b"shop\0"));
    }
}
