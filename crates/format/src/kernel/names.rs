//! Names of kernel events for users: `Class/Type`, `Type` if only one class has it, or a hook id.
//!
//! ```text
//!   "Thread/CSwitch", "cswitch", "0x0524" ──find_events───▶ [(Thread, 36)]
//!   "DiskIo"                              ──find_events───▶ all types of the class
//!   (Thread, 36)                          ──event_name────▶ "Thread/CSwitch"
//! ```

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::hook::{class_of, is_kernel_class, type_of};
use super::{class_name, shape_of, shapes};
use crate::guid::Guid;

/// Common names of some events, in addition to the names of their types.
const COMMON_NAMES: [(&str, &str); 4] = [
    ("SampledProfile", "PerfInfo/SampleProf"),
    ("SysCallEnter", "PerfInfo/SysClEnter"),
    ("SysCallExit", "PerfInfo/SysClExit"),
    ("PmcInterrupt", "PerfInfo/PmcCounterProf"),
];

/// Returns the kernel events that a text names, by class and type. Empty if no event has the name,
/// or if several classes have a type of this name.
#[must_use]
pub fn find_events(text: &str) -> Vec<(Guid, u8)> {
    let text = COMMON_NAMES
        .iter()
        .find(|(common_name, _)| common_name.eq_ignore_ascii_case(text))
        .map_or(text, |(_, name)| name);
    if let Some(hook) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        let hook = u16::from_str_radix(hook, 16).ok();
        let event = hook.map(|hook| (class_of(hook), type_of(hook)));
        return event.filter(|(class, _)| is_kernel_class(class)).into_iter().collect();
    }
    let is_same_name = |name: &str, text: &str| name.eq_ignore_ascii_case(text);
    if let Some((class, ty)) = text.split_once('/') {
        return kernel_event_types()
            .filter(|(guid, _, name)| has_class_name(guid, class) && is_same_name(name, ty))
            .fold(Vec::new(), add_event);
    }
    let events_of_class =
        kernel_event_types().filter(|(guid, ..)| has_class_name(guid, text)).fold(Vec::new(), add_event);
    if !events_of_class.is_empty() {
        return events_of_class;
    }
    let events_of_type =
        kernel_event_types().filter(|(.., name)| is_same_name(name, text)).fold(Vec::new(), add_event);
    let has_one_class = |events: &Vec<(Guid, u8)>| {
        events.first().is_some_and(|(class, _)| events.iter().all(|(other, _)| other == class))
    };
    Some(events_of_type).filter(has_one_class).unwrap_or_default()
}

/// Returns the name of a kernel event. A type without a name is shown as its number.
#[must_use]
pub fn event_name(class: &Guid, opcode: u8) -> String {
    let class_name = class_name(class).map_or_else(|| format!("{{{class}}}"), String::from);
    match shape_of(class, opcode, u8::MAX) {
        Some((_, name)) => format!("{class_name}/{name}"),
        None => format!("{class_name}/{opcode}"),
    }
}

/// Returns all types of all kernel classes; a type occurs once per version.
fn kernel_event_types() -> impl Iterator<Item = (Guid, u8, &'static str)> {
    let kernel_shapes = shapes().filter(|shape| is_kernel_class(&shape.class));
    kernel_shapes.flat_map(|shape| shape.types.iter().map(|(opcode, name)| (shape.class, *opcode, *name)))
}

fn has_class_name(guid: &Guid, text: &str) -> bool {
    class_name(guid).is_some_and(|name| name.eq_ignore_ascii_case(text))
}

fn add_event(mut events: Vec<(Guid, u8)>, (class, opcode, _): (Guid, u8, &str)) -> Vec<(Guid, u8)> {
    if !events.contains(&(class, opcode)) {
        events.push((class, opcode));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::hook::hook_of;
    use crate::spec::event::class;

    #[test]
    fn events_are_found_by_full_name_type_name_class_name_or_hook_id() {
        for text in ["Thread/CSwitch", "thread/cswitch", "CSwitch", "0x0524", "0X524"] {
            assert_eq!(find_events(text), [(class::THREAD, 36)], "{text}");
        }
        assert_eq!(find_events("ReadyThread"), [(class::THREAD, 50)]);
        assert_eq!(find_events("SampledProfile"), [(class::PERF_INFO, 46)]);
        assert_eq!(find_events("Process/Start"), [(class::PROCESS, 1)]);
        assert_eq!(find_events("DiskIo/Read"), [(class::DISK_IO, 10)]);
        assert!(find_events("DiskIo").len() > 4, "the class name does not find all its events");
        for unknown in ["Start", "", "/", "Thread/", "0x", "0xFFFF", "0x10524", "Nothing"] {
            assert_eq!(find_events(unknown), [], "{unknown}");
        }
    }

    #[test]
    fn displayed_names_are_parsed() {
        for (class, opcode, _) in kernel_event_types() {
            let name = event_name(&class, opcode);
            assert!(find_events(&name).contains(&(class, opcode)), "{name}");
        }
        for (_, name) in COMMON_NAMES {
            let [(class, opcode)] = find_events(name)[..] else { panic!("{name} is not one event") };
            assert!(hook_of(&class, opcode).is_some());
        }
        assert_eq!(event_name(&class::THREAD, 250), "Thread/250");
    }
}
