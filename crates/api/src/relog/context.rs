//! Context events, which other events need to be understood: a cut trace should keep them.
//!
//! ```text
//!   the trace itself       EventTrace class: build of the system, group masks
//!   the machine            SystemConfig
//!   existing state         rundown of processes, threads and images (DCStart, DCEnd, defunct)
//!   call stacks            those that are stored once, for events that have their keys
//!   ── above: with a hook ── below: without, as merging tools and sessions write them ──
//!   paths of programs      EventTrace class, binary paths
//!   the machine            SysConfigEx
//!   schemas                EventMetadata, manifests of EventSource
//!   identities of images   ImageID
//! ```
//!
//! No process can write an event with a hook, so none gets an event past a filter by using a kernel
//! class. Processes can write the events below the line, and they are kept: such an event adds a
//! description, not a fact.

use traceweir_format::binary_path;
use traceweir_format::header::{Family, Record};
use traceweir_format::spec::event::class;
use traceweir_format::stack_key::Definitions;

/// DCStart, DCEnd, and the rundown of processes that have ended but are still referred to.
const RUNDOWN_OPCODES: [u8; 3] = [3, 4, 39];

/// Returns whether an event describes other events, rather than something that happened.
#[must_use]
pub fn is_context(record: &Record<'_>) -> bool {
    let (class, opcode) = (record.provider(), record.descriptor().opcode);
    match record.family() {
        Family::Event => record.descriptor().is_manifest_chunk(),
        Family::Message | Family::Other(_) => false,
        Family::Full | Family::Instance => match class {
            class::EVENT_TRACE => opcode == binary_path::OPCODE,
            class::SYS_CONFIG_EX | class::EVENT_METADATA | class::IMAGE_ID => true,
            _ => false,
        },
        Family::System | Family::Compact | Family::PerfInfo => match class {
            class::EVENT_TRACE | class::CONFIG => true,
            class::PROCESS | class::THREAD | class::IMAGE => RUNDOWN_OPCODES.contains(&opcode),
            _ => Definitions::is_informative(record),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::Guid;
    use traceweir_format::header::classic::ClassicHeader;
    use traceweir_format::header::perfinfo::PerfInfoHeader;
    use traceweir_format::kernel::hook;

    fn is_classic_context(class: Guid, opcode: u8) -> bool {
        let mut bytes = Vec::new();
        ClassicHeader { class, opcode, ..ClassicHeader::default() }.encode(&[0; 32], &mut bytes).unwrap();
        is_context(&Record::parse(&bytes, 0).unwrap())
    }

    fn is_hook_context(hook: u16) -> bool {
        let mut bytes = Vec::new();
        let header = PerfInfoHeader { pointer_size: 8, version: 2, hook, time: 0, counters: &[] };
        header.encode(&[0; 32], &mut bytes).unwrap();
        is_context(&Record::parse(&bytes, 0).unwrap())
    }

    #[test]
    fn events_of_processes_with_kernel_classes_are_not_context() {
        for class in [class::CONFIG, class::PROCESS, class::THREAD, class::IMAGE, class::STACK_WALK] {
            assert!(
                [0, 3, 4, 10, 39, 0x22].iter().all(|opcode| !is_classic_context(class, *opcode)),
                "{class}"
            );
        }
        assert!(!is_classic_context(class::EVENT_TRACE, 0) && !is_classic_context(class::EVENT_TRACE, 8));
        assert!(
            is_classic_context(class::EVENT_TRACE, binary_path::OPCODE),
            "a binary path of a session must be context"
        );
    }

    #[test]
    fn rundown_and_stored_stacks_are_context() {
        assert!(
            is_hook_context(hook::PROCESS_DC_START)
                && is_hook_context(hook::THREAD_DC_START)
                && is_hook_context(hook::IMAGE_DC_END)
                && is_hook_context(hook::RUNDOWN_COMPLETE)
        );
        assert!(
            is_hook_context(hook::STACK_KEY_CREATE)
                && is_hook_context(hook::STACK_KEY_DELETE)
                && is_hook_context(hook::STACK_KEY_RUNDOWN)
        );
        assert!(
            !is_hook_context(hook::PROCESS_START) && !is_hook_context(hook::STACK_WALK),
            "an event about something that happened must not be context"
        );
    }
}
