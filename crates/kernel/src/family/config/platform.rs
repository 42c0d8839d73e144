//! The machine around the processors: firmware, sleep, interrupts, and which system it is.
//!
//! ```text
//!   /sys/power, /sys/firmware/acpi ──▶ 0x0B10 Power           /proc/interrupts, /proc/irq/N ──▶ 0x0B15 IRQ
//!   /sys/class/dmi/id ──▶ 0x0B19 Platform                     /sys/firmware/efi ──▶ 0x0B25 Boot
//!   hypervisor flag ──▶ 0x0B24 Virtualization                 /etc/os-release, /proc/sys/kernel ──▶ SysConfigEx 32
//! ```

use traceweir_format::time::UNIX_EPOCH;
use traceweir_format::wire::Put;

use super::source::{Source, mask};
use super::{Fact, processor};

/// Interrupts that are told.
const MAX_INTERRUPTS: usize = 4096;
/// Units of a text that is told.
const MAX_TEXT: usize = 1024;
const FIRMWARE_BIOS: u32 = 1;
const FIRMWARE_EFI: u32 = 2;

pub(super) fn tell(source: &Source, facts: &mut Vec<Fact>) {
    facts.push(power(source));
    interrupts(source, facts);
    facts.extend(platform(source));
    facts.push(Fact::new(0x0B24, 2, vec![0, 0, processor::is_guest(source).into(), 0]));
    facts.push(boot(source));
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

fn power(source: &Source) -> Fact {
    let states = source.text("/sys/power/state");
    let has = |state: &str| states.split(' ').any(|it| it == state);
    let is_deep = source.text("/sys/power/mem_sleep").contains("deep");
    let is_acpi = source.has("/sys/firmware/acpi");
    let supported = [has("standby"), false, has("mem") && is_deep, has("disk"), is_acpi];
    let mut out: Vec<u8> = supported.into_iter().map(u8::from).collect();
    out.put(&[0; 3]);
    Fact::new(0x0B10, 2, out)
}

fn interrupts(source: &Source, facts: &mut Vec<Fact>) {
    let text = source.text("/proc/interrupts");
    let mut lines = text.lines();
    let columns = lines.next().map_or(0, |head| head.split_whitespace().count());
    for line in lines.take(MAX_INTERRUPTS) {
        let Some((number, rest)) = line.trim_start().split_once(':') else { continue };
        // Those with names instead of numbers belong to the processors, not to devices.
        let Ok(number) = number.parse::<u32>() else { continue };
        let words: Vec<&str> = rest.split_whitespace().skip(columns).collect();
        let description = cut(&words.join(" "));
        let affinity = mask(&source.text(&format!("/proc/irq/{number}/smp_affinity")));
        let length = description.encode_utf16().count();
        let mut out = Vec::new();
        out.put_u64(affinity).put_u16(0).put_u16(0).put_u32(number);
        out.put_u32(u32::try_from(length).unwrap_or(0)).put_wide_z(&description);
        facts.push(Fact::new(0x0B15, 3, out));
    }
}

/// Nothing where there is no firmware that says so.
fn platform(source: &Source) -> Option<Fact> {
    let said = ["sys_vendor", "product_name", "bios_date", "bios_version"]
        .map(|name| cut(&source.text(&format!("/sys/class/dmi/id/{name}"))));
    let mut out = Vec::new();
    for text in &said {
        out.put_wide_z(text);
    }
    said.iter().any(|text| !text.is_empty()).then(|| Fact::new(0x0B19, 2, out))
}

fn boot(source: &Source) -> Fact {
    let firmware = match (source.has("/sys/firmware/efi"), source.has("/sys/class/dmi/id/bios_vendor")) {
        (true, _) => FIRMWARE_EFI,
        (false, true) => FIRMWARE_BIOS,
        (false, false) => 0,
    };
    // Four bytes of attributes, then the value.
    let variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    let secure = source.bytes(variable).get(4).copied();
    let mut out = Vec::new();
    out.put_u64(0).put_u32(firmware).put_u8((secure == Some(1)).into()).put_u8(secure.is_some().into());
    out.put_u16(0);
    Fact::new(0x0B25, 2, out)
}

/// The payload of SysConfigEx 32: when the system was installed, which nobody knows, and what it is.
pub(super) fn build_info(source: &Source) -> Vec<u8> {
    let kernel = ["osrelease", "version"].map(|name| source.text(&format!("/proc/sys/kernel/{name}")));
    let release = source.text("/etc/os-release");
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let name = name.map_or("Linux", |it| it.trim_matches(['"', '\'']));
    let mut out = Vec::new();
    out.put_i64(UNIX_EPOCH).put_wide_z(&cut(kernel.join(" ").trim())).put_wide_z(&cut(name));
    out
}
