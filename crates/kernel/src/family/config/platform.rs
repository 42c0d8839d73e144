//! The machine around the processors: firmware, sleep states, interrupts, operating system.
//!
//! ```text
//!   /sys/power, /sys/firmware/acpi    ──▶ 0x0B10 Power
//!   /proc/interrupts, /proc/irq/N     ──▶ 0x0B15 IRQ
//!   /sys/class/dmi/id                 ──▶ 0x0B19 Platform
//!   hypervisor flag                   ──▶ 0x0B24 Virtualization
//!   /sys/firmware/efi                 ──▶ 0x0B25 Boot
//!   /etc/os-release, /proc/sys/kernel ──▶ SysConfigEx 32
//! ```

use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;
use traceweir_format::spec::event::class;
use traceweir_format::time::UNIX_EPOCH_AS_FILETIME;

use super::event::ConfigEvent;
use super::machine_files::{MachineFiles, parse_mask};
use super::processor;

/// The most interrupts that are written.
const MAX_INTERRUPTS: usize = 4096;
/// The most characters of a text that are written.
const MAX_TEXT_CHARS: usize = 1024;
const FIRMWARE_BIOS: u32 = 1;
const FIRMWARE_EFI: u32 = 2;
/// The event type of SysConfigEx with the names of the operating system.
pub(super) const OS_INFO_OPCODE: u8 = 32;

const VIRTUALIZATION_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_VIRTUALIZATION, 2);
const POWER_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_POWER, 2);
const INTERRUPT_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_IRQ, 3);
const PLATFORM_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_PLATFORM, 2);
const BOOT_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_BOOT, 2);
const OS_INFO_LAYOUT: PayloadLayout = PayloadLayout::for_class(class::SYS_CONFIG_EX, OS_INFO_OPCODE, 0);

pub(super) fn add_events(files: &MachineFiles, events: &mut Vec<ConfigEvent>) {
    events.push(build_power_event(files));
    add_interrupt_events(files, events);
    events.extend(build_platform_event(files));
    events.push(build_virtualization_event(files));
    events.push(build_boot_event(files));
}

fn truncate_text(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).collect()
}

fn build_virtualization_event(files: &MachineFiles) -> ConfigEvent {
    let is_virtual_machine = u8::from(processor::is_virtual_machine(files));
    let mut out = Vec::new();
    put_kernel_event!(&mut out, VIRTUALIZATION_LAYOUT, { HyperVisorEnabled: is_virtual_machine });
    ConfigEvent::new(hook::CONFIG_VIRTUALIZATION, &VIRTUALIZATION_LAYOUT, out)
}

fn build_power_event(files: &MachineFiles) -> ConfigEvent {
    let states = files.read_text("/sys/power/state");
    let has_state = |state: &str| states.split(' ').any(|word| word == state);
    let is_deep = files.read_text("/sys/power/mem_sleep").contains("deep");
    let mut out = Vec::new();
    put_kernel_event!(&mut out, POWER_LAYOUT, {
        S1: u8::from(has_state("standby")),
        S3: u8::from(has_state("mem") && is_deep),
        S4: u8::from(has_state("disk")),
        S5: u8::from(files.has_path("/sys/firmware/acpi")),
    });
    ConfigEvent::new(hook::CONFIG_POWER, &POWER_LAYOUT, out)
}

fn add_interrupt_events(files: &MachineFiles, events: &mut Vec<ConfigEvent>) {
    let text = files.read_text("/proc/interrupts");
    let mut lines = text.lines();
    let cpu_count = lines.next().map_or(0, |line| line.split_whitespace().count());
    for line in lines.take(MAX_INTERRUPTS) {
        let Some((number, columns_and_name)) = line.trim_start().split_once(':') else { continue };
        // Interrupts with names instead of numbers belong to the processors, not to devices.
        let Ok(number) = number.parse::<u32>() else { continue };
        let words: Vec<&str> = columns_and_name.split_whitespace().skip(cpu_count).collect();
        let description = truncate_text(&words.join(" "));
        let affinity = parse_mask(&files.read_text(&format!("/proc/irq/{number}/smp_affinity")));
        let length = description.encode_utf16().count();
        let mut out = Vec::new();
        put_kernel_event!(
            &mut out,
            INTERRUPT_LAYOUT,
            {
                IRQAffinity: affinity,
                IRQNum: number,
                DeviceDescriptionLen: u32::try_from(length).unwrap_or(0),
            },
            { DeviceDescription: description.as_str() }
        );
        events.push(ConfigEvent::new(hook::CONFIG_IRQ, &INTERRUPT_LAYOUT, out));
    }
}

/// Returns the firmware's description of the machine; `None` if there is none.
fn build_platform_event(files: &MachineFiles) -> Option<ConfigEvent> {
    let texts = ["sys_vendor", "product_name", "bios_date", "bios_version"]
        .map(|name| truncate_text(&files.read_text(&format!("/sys/class/dmi/id/{name}"))));
    if texts.iter().all(String::is_empty) {
        return None;
    }
    let [vendor, product, date, version] = texts.each_ref().map(String::as_str);
    let mut out = Vec::new();
    put_kernel_event!(
        &mut out,
        PLATFORM_LAYOUT,
        {},
        {
            SystemManufacturer: vendor,
            SystemProductName: product,
            BiosDate: date,
            BiosVersion: version,
        }
    );
    Some(ConfigEvent::new(hook::CONFIG_PLATFORM, &PLATFORM_LAYOUT, out))
}

fn build_boot_event(files: &MachineFiles) -> ConfigEvent {
    let firmware =
        match (files.has_path("/sys/firmware/efi"), files.has_path("/sys/class/dmi/id/bios_vendor")) {
            (true, _) => FIRMWARE_EFI,
            (false, true) => FIRMWARE_BIOS,
            (false, false) => 0,
        };
    // The variable has four bytes of attributes before its value.
    let variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    let secure = files.read_bytes(variable).get(4).copied();
    let mut out = Vec::new();
    put_kernel_event!(&mut out, BOOT_LAYOUT, {
        FirmwareType: firmware,
        SecureBootEnabled: u8::from(secure == Some(1)),
        SecureBootCapable: u8::from(secure.is_some()),
    });
    ConfigEvent::new(hook::CONFIG_BOOT, &BOOT_LAYOUT, out)
}

/// Returns the payload of SysConfigEx 32: the time of installation, which is unknown, and the names
/// of kernel and distribution.
pub(super) fn build_os_info(files: &MachineFiles) -> Vec<u8> {
    let kernel = ["osrelease", "version"].map(|name| files.read_text(&format!("/proc/sys/kernel/{name}")));
    let release = files.read_text("/etc/os-release");
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let name = name.map_or("Linux", |name| name.trim_matches(['"', '\'']));
    let kernel = truncate_text(kernel.join(" ").trim());
    let mut out = Vec::new();
    put_kernel_event!(
        &mut out,
        OS_INFO_LAYOUT,
        { InstallDate: UNIX_EPOCH_AS_FILETIME },
        { BuildLab: kernel.as_str(), ProductName: truncate_text(name).as_str() }
    );
    out
}
