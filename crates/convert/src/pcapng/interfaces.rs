//! The interfaces of a capture: one for each capture point and link type of a trace.

use std::collections::BTreeMap;

use traceweir_format::time::FileTime;

use super::block::{LinkType, StatisticsBlock, put_interface, put_statistics};
use super::join::MAX_PACKET_BYTES;
use super::packet::CapturePoint;
use super::survey::PacketSurvey;

/// The most interfaces. Packets of further ones are left out.
const MAX_INTERFACES: usize = 1 << 14;

/// Trace, capture point and link type.
type InterfaceKey = (usize, CapturePoint, LinkType);

/// Number and times of the packets of an interface.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    packets: u64,
    first: FileTime,
    last: FileTime,
}

/// The interfaces that have been written.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    numbers: BTreeMap<InterfaceKey, u32>,
    traffic: Vec<Traffic>,
    /// Whether there are several traces, so that names say which one an interface belongs to.
    has_several_traces: bool,
}

impl Interfaces {
    pub(super) fn new(has_several_traces: bool) -> Self {
        Self { has_several_traces, ..Self::default() }
    }

    /// Returns the number of the interface of a packet, and counts the packet. Appends the block of
    /// the interface if it is new. `None` if there are too many interfaces.
    pub(super) fn find(
        &mut self,
        file: usize,
        point: &CapturePoint,
        link: LinkType,
        (time, survey): (FileTime, &PacketSurvey),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let key = (file, point.clone(), link);
        let number = match self.numbers.get(&key) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.traffic.len()).ok()?;
                if self.traffic.len() >= MAX_INTERFACES {
                    return None;
                }
                let (mut name, text) = describe(file, point, link, survey);
                if self.has_several_traces {
                    name = format!("trace {}: {name}", file.saturating_add(1));
                }
                put_interface(link, u32::try_from(MAX_PACKET_BYTES).unwrap_or(0), &name, &text, out);
                self.numbers.insert(key, number);
                self.traffic.push(Traffic { packets: 0, first: time, last: time });
                number
            }
        };
        let traffic = self.traffic.get_mut(usize::try_from(number).ok()?)?;
        traffic.packets = traffic.packets.saturating_add(1);
        (traffic.first, traffic.last) = (traffic.first.min(time), traffic.last.max(time));
        Some(number)
    }

    /// Returns the number of interfaces.
    pub(super) fn len(&self) -> usize {
        self.traffic.len()
    }

    /// Appends the statistics of all interfaces. The first has the number of lost events, and
    /// `comment`.
    pub(super) fn put_statistics(&self, lost: u64, comment: &str, out: &mut Vec<u8>) {
        for (number, traffic) in (0_u32..).zip(&self.traffic) {
            let block = StatisticsBlock {
                interface: number,
                start: traffic.first,
                end: traffic.last,
                packets: traffic.packets,
                lost: (number == 0).then_some(lost),
                comment: if number == 0 { comment } else { "" },
            };
            put_statistics(&block, out);
        }
    }
}

/// Returns name and description of an interface.
fn describe(file: usize, point: &CapturePoint, link: LinkType, survey: &PacketSurvey) -> (String, String) {
    let medium = match link {
        LinkType::ETHERNET => "ethernet",
        LinkType::IEEE_802_11 => "wifi",
        LinkType::RAW => "ip",
        _ => "unknown",
    };
    match point {
        CapturePoint::Adapter { miniport, lower } if miniport == lower => {
            (format!("{medium} {lower}"), format!("network adapter with interface index {lower}"))
        }
        CapturePoint::Adapter { miniport, lower } => (
            format!("{medium} {miniport}.{lower}"),
            format!("layer {lower} above the network adapter with interface index {miniport}"),
        ),
        CapturePoint::SwitchPort { lower, port, name } => {
            let text = format!("port {port} of the virtual switch with interface index {lower}: {name}");
            (format!("switch {lower}.{port}"), text)
        }
        CapturePoint::Component(id) => {
            let text = match survey.components.get(&(file, *id)) {
                Some((name, text)) if text.is_empty() => name.clone(),
                Some((name, text)) => format!("{name}: {text}"),
                None => String::new(),
            };
            (format!("component {id} {medium}"), text)
        }
    }
}
