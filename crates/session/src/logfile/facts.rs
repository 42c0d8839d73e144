//! The contents of the header buffer of a session's files: the log-file header and the records
//! after it.

use std::path::Path;

use traceweir_format::etl::Options;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::info::GroupMask;
use traceweir_format::kernel::hook;
use traceweir_format::logfile::group_masks;
use traceweir_format::spec::session::EVENT_TRACE_COMPRESSED_MODE;
use traceweir_format::time::FileTime;
use traceweir_transport::clock::{Anchor, boot_time};
use traceweir_transport::message::SessionConfig;

use crate::clock::SessionClock;
use crate::config::MODE_FLAGS_NOT_IN_FILES;
use crate::modules;

/// Largest length of the kernel's name and of its release; the kernel's own limit.
const MAX_KERNEL_TEXT_CHARS: usize = 64;

/// The facts about a session that every file's header states.
#[derive(Clone, Debug)]
pub(crate) struct SessionFacts {
    pub(crate) config: SessionConfig,
    pub(crate) logger_id: u16,
    pub(crate) processors: u32,
    /// Ids of the process and thread that started the session.
    pub(crate) starter: (u32, u32),
    pub(crate) clock: SessionClock,
    /// Records of modules and processes for the front of each file.
    pub(crate) modules: Vec<Vec<u8>>,
    /// Enabled kernel groups, if the session is a system logger.
    pub(crate) groups: Option<GroupMask>,
}

impl SessionFacts {
    /// Returns the writer options for a file of this name that starts at `anchor`.
    pub(crate) fn options(&self, name: Option<&Path>, anchor: &Anchor) -> Options {
        let config = &self.config;
        let mhz = self.clock.frequency().saturating_add(500_000) / 1_000_000;
        let start_time = anchor.wall;
        let (process, thread) = self.starter;
        Options {
            buffer_size: config.buffer_size.saturating_mul(1024),
            compressed: config.log_file_mode & EVENT_TRACE_COMPRESSED_MODE != 0,
            log_file_mode: config.log_file_mode & !MODE_FLAGS_NOT_IN_FILES,
            logger_id: self.logger_id,
            session_name: config.name.clone(),
            file_name: name.map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
            processors: self.processors,
            cpu_speed_mhz: u32::try_from(mhz.max(1)).unwrap_or(u32::MAX),
            clock_type: self.clock.kind(),
            perf_freq: i64::try_from(self.clock.performance_frequency()).unwrap_or(i64::MAX),
            anchor: self.clock.anchor_stamp(anchor),
            start_time,
            boot_time: FileTime(boot_time().0.min(start_time.0)),
            // `Options` has the ids in this order.
            starter: (thread, process),
            maximum_file_size: config.maximum_file_size,
            header_records: self.header_records(self.clock.anchor_stamp(anchor)),
            ..Options::default()
        }
    }

    /// Returns the records after the log-file header.
    fn header_records(&self, time: i64) -> Vec<u8> {
        let mut records =
            self.groups.map(|groups| self.encode_group_masks(&groups, time)).unwrap_or_default();
        records.extend(encode_system_record(time));
        for module in &self.modules {
            records.extend_from_slice(&modules::with_time(module, time));
        }
        records
    }

    /// Returns the record of the groups that were enabled when the session started. It follows the
    /// log-file header, as readers of kernel events expect.
    fn encode_group_masks(&self, groups: &GroupMask, time: i64) -> Vec<u8> {
        let (process_id, thread_id) = self.starter;
        let header = SystemHeader {
            pointer_size: 8,
            version: 2,
            hook: hook::GROUP_MASKS,
            thread_id,
            process_id,
            time,
            cpu_times: Some((0, 0)),
        };
        let mut record = Vec::new();
        // A record of this size always fits.
        let encoded = header.encode(&group_masks(groups), &mut record);
        if encoded.is_ok() { record } else { Vec::new() }
    }
}

/// Returns the record that names the operating system. The version fields of the log-file header
/// cannot name it, because readers expect a version of Windows there.
fn encode_system_record(time: i64) -> Vec<u8> {
    let mut text = system_name().into_bytes();
    text.push(0);
    let header = PerfInfoHeader { pointer_size: 8, version: 2, hook: hook::BUILD_INFO, time, counters: &[] };
    let mut record = Vec::new();
    // A text of this size always fits a record; the file is valid without the record.
    let encoded = header.encode(&text, &mut record);
    if encoded.is_ok() { record } else { Vec::new() }
}

/// Returns the name of the system and of this program, as in `Linux 6.12.1 (traceweir 0.1.0)`.
fn system_name() -> String {
    let read_kernel_text = |name: &str| {
        let text = std::fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).unwrap_or_default();
        text.trim().chars().take(MAX_KERNEL_TEXT_CHARS).collect::<String>()
    };
    let system = match read_kernel_text("ostype") {
        name if name.is_empty() => "Linux".to_owned(),
        name => name,
    };
    let name = format!("{system} {}", read_kernel_text("osrelease"));
    format!("{} (traceweir {})", name.trim_end(), env!("CARGO_PKG_VERSION"))
}
