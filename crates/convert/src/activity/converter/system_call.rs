//! Converts system calls to slices.

use std::sync::Arc;

use traceweir_format::header::NO_ID;

use super::{Converted, Converter, Source};
use crate::activity::ActivityTables;
use crate::activity::event::{Activity, EventDetail};
use crate::activity::fields::{FieldValue, Fields};
use crate::activity::slices::system_call_event;
use crate::activity::survey::TraceContext;

/// The start of a system call with its address, or the end with its result.
#[derive(Clone, Copy)]
pub(super) enum SystemCall {
    Start(u64),
    End(u32),
}

impl Converter {
    /// Begins or ends the slice of a system call.
    pub(super) fn convert_system_call(
        &mut self,
        ids: (u32, u32),
        call: SystemCall,
        source: Source<'_, '_>,
        context: &mut TraceContext,
        tables: &mut ActivityTables,
        out: &mut Vec<Converted>,
    ) {
        let (pid, tid) = ids;
        let known_pid = Some(pid).filter(|pid| *pid != NO_ID);
        let thread = tables.lives.find_or_add_thread(source.at(), tid, known_pid);
        let mut add = |activity| {
            out.push(Converted { activity, address: None, pid, may_have_stack: false });
        };
        let (machine, provider) = (source.machine, source.record.provider());
        // A call that did not return, such as the end of a thread, ends with the next one.
        let stop = system_call_event(machine, tid, provider, false);
        let mut ended = if thread.is_some() { self.slices.end(&stop) } else { Vec::new() };
        let field = |name: &str, value| vec![(Arc::from(name), value)];
        if let Some(slice) = ended.pop() {
            for inner in ended {
                add(Activity::SliceEnd { slice: inner, stop: None });
            }
            let stop = match call {
                SystemCall::Start(_) => None,
                SystemCall::End(status) => {
                    let fields = Fields::from_values(field("Status", FieldValue::Unsigned(status.into())));
                    Some(Arc::new(EventDetail { fields, ..(*slice.detail).clone() }))
                }
            };
            let is_shown = slice.is_selected;
            if is_shown {
                add(Activity::SliceEnd { slice, stop });
            }
            if is_shown && matches!(call, SystemCall::End(_)) {
                return;
            }
        }
        let start = system_call_event(machine, tid, provider, true);
        let is_start = thread.is_some() && matches!(call, SystemCall::Start(_));
        if !source.is_selected {
            if is_start {
                self.slices.begin_unselected(&start, source.time_ns);
            }
            return;
        }
        let (name, values) = match call {
            SystemCall::Start(address) => {
                let function = context.code.symbols.resolve(pid, address, source.record.time());
                let name = function.first().and_then(|function| function.function.clone());
                let values = field("Address", FieldValue::Text(format!("{address:#x}").into()));
                (name.unwrap_or_else(|| self.intern("system call".to_owned())), values)
            }
            SystemCall::End(status) => {
                let values = field("Status", FieldValue::Unsigned(status.into()));
                (self.intern("end of system call".to_owned()), values)
            }
        };
        let detail = Arc::new(EventDetail {
            provider: self.intern("System calls".to_owned()),
            name: Arc::clone(&name),
            fields: Fields::from_values(values),
            ..EventDetail::default()
        });
        let slice =
            is_start.then(|| self.slices.begin(&start, source.time_ns, thread, name, &detail)).flatten();
        // A call of an unknown thread, or one that does not begin or end in the trace, is no slice.
        add(match slice {
            Some(slice) => Activity::SliceBegin(slice),
            None => Activity::Instant { thread, detail },
        });
    }
}
