//! What the machine is: processors, disks, network, firmware.
//!
//! ```text
//!   start            0x0B11 network settings; SysConfigEx 33 system paths, 35 volumes
//!   end, or when     all the rest, and SysConfigEx 32: which system
//!   asked in between
//! ```
//!
//! 1. That is when Windows tells it, in the name of whoever writes: the header has this process and thread. `NO_SYSCONFIG` leaves it out, but for what the Config provider wants.
//! 2. Facts are read from files below one folder, bounded; what a machine does not say is not told (`docs/spec/kernel-events.md`).
//! 3. The build of the kernel (0x0042) stands in the head of each log file already: the session writes it.

mod network;
mod platform;
mod processor;
mod source;
mod storage;
#[cfg(test)]
mod tests;

use traceweir_format::spec::event::class;
use traceweir_format::wire::Put;

use self::source::Source;
use super::Rundown;
use crate::groups::{Group, Groups};
use crate::out::Out;
use crate::state::State as All;

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct State {
    is_begun: bool,
}

/// Groups of the Config provider.
const SYSTEM: Group = Group(0xC000_0001);
const STORAGE: Group = Group(0xC000_0004);
const NETWORK: Group = Group(0xC000_0008);

const NETWORK_SETTINGS: u16 = 0x0B11;
const BUILD_INFO: u8 = 32;
const SYSTEM_PATHS: u8 = 33;
const VOLUME_MAPPING: u8 = 35;

/// One record about the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fact {
    hook: u16,
    version: u8,
    payload: Vec<u8>,
}

impl Fact {
    const fn new(hook: u16, version: u8, payload: Vec<u8>) -> Self {
        Self { hook, version, payload }
    }
}

/// Appends text that takes so many units, NULs behind it and at least one. What is too long is cut between characters.
fn put_wide(out: &mut Vec<u8>, text: &str, units: usize) {
    let mut left = units;
    for character in text.chars() {
        let Some(rest) = left.checked_sub(character.len_utf16()).filter(|rest| *rest > 0) else { break };
        left = rest;
        for unit in character.encode_utf16(&mut [0; 2]) {
            out.put_u16(*unit);
        }
    }
    for _ in 0..left {
        out.put_u16(0);
    }
}

fn is_wanted(groups: &Groups, group: Group) -> bool {
    !groups.has(Group::NO_SYSCONFIG) || groups.has(group)
}

/// Everything that is told at the end.
fn facts(source: &Source, groups: &Groups) -> Vec<Fact> {
    let mut facts = Vec::new();
    if is_wanted(groups, SYSTEM) {
        processor::tell(source, &mut facts);
        platform::tell(source, &mut facts);
    }
    if is_wanted(groups, STORAGE) {
        storage::tell(source, &mut facts);
    }
    if is_wanted(groups, NETWORK) {
        network::tell(source, &mut facts);
    }
    facts
}

/// Tells what there is to tell now.
pub(crate) fn run_down(state: &mut All, when: Rundown, out: &mut Out<'_>) {
    let source = Source::new("/");
    let is_begun = std::mem::replace(&mut state.config.is_begun, true);
    if !is_begun {
        begin(&source, &state.groups, out);
    }
    if is_begun || when == Rundown::End {
        for Fact { hook, version, payload } in facts(&source, &state.groups) {
            out.system(hook, version, crate::writer(), payload);
        }
        if is_wanted(&state.groups, SYSTEM) {
            out.classic(class::SYS_CONFIG_EX, BUILD_INFO, 0, (0, 0), platform::build_info(&source));
        }
    }
}

/// What stands in front: how TCP is set, and that paths are what they are, from the root on.
fn begin(source: &Source, groups: &Groups, out: &mut Out<'_>) {
    if is_wanted(groups, NETWORK) {
        out.perfinfo(NETWORK_SETTINGS, 2, network::settings(source));
    }
    if is_wanted(groups, SYSTEM) {
        for opcode in [SYSTEM_PATHS, VOLUME_MAPPING] {
            let mut payload = out.payload();
            payload.put_wide_z("/").put_wide_z("/");
            out.classic(class::SYS_CONFIG_EX, opcode, 0, (0, 0), payload);
        }
    }
}
