//! What handlers remember between records: one part for each family.

use crate::family::{
    config, disk, file, image, interrupt, memory, network, process, profile, schedule, syscall,
};
use crate::groups::Groups;

/// All that is remembered.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// What is wanted now.
    pub(crate) groups: Groups,
    /// Processes and threads that are alive: everybody may look things up here.
    pub(crate) tasks: process::Tasks,
    pub(crate) images: image::State,
    pub(crate) schedule: schedule::State,
    pub(crate) profile: profile::State,
    pub(crate) interrupts: interrupt::State,
    pub(crate) syscalls: syscall::State,
    pub(crate) memory: memory::State,
    pub(crate) disks: disk::State,
    pub(crate) files: file::State,
    pub(crate) network: network::State,
    pub(crate) config: config::State,
}
