//! The file of a daemon's enabled providers, for processes that register while the daemon is busy.
//!
//! ```text
//!   RUNTIME/enabled      (the system's daemon: RUNTIME/own/enabled)
//!                        messages one after the other, encoded as on a socket:
//!                          Region            layout of a session's memory
//!                          EnableProvider    the enable of a provider or group
//!
//!   daemon    writes a file of another name and renames it; removes it on exit and before it
//!             listens
//!   process   connects, reads the file, creates the memory for sessions that enable its provider,
//!             writes events, and sends Hello, Region with the memory, and Register; these messages
//!             wait in the connection until the daemon reads them
//! ```
//!
//! 1. The file is trusted if it belongs to the user whose process listens at the daemon's socket. A
//!    daemon removes the file of its predecessor before it listens, so a process that has connected
//!    never reads the predecessor's file.
//! 2. The daemon still decides: when it reads the registration, it takes the memory only for
//!    sessions that enable the provider.
//! 3. The file is read, never mapped: a truncated file is an error, not a SIGBUS.
//! 4. Only the daemon's user can read the file: it shows which providers are traced. The system's
//!    daemon writes it to RUNTIME/own, which only the daemon's user can enter, next to a second
//!    socket for that user's processes. Processes of other users wait for the system's daemon.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use rustix::fs::OFlags;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::{Guid, name_pattern};

use crate::abi::RegionParams;
use crate::message::wire::HEADER_BYTES;
use crate::message::{EnableCode, EnableParams, Message, SessionRef};
use crate::runtime::RuntimeDir;

/// Largest size of the file. Providers that do not fit are left out: their processes wait for the
/// daemon.
const MAX_FILE_BYTES: usize = 1 << 20;

/// One provider or group that a session has enabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEnable {
    /// The provider or, with `EVENT_ENABLE_PROPERTY_PROVIDER_GROUP`, the group.
    pub target: Guid,
    /// Name by which the provider was enabled; empty if it was enabled by its GUID.
    pub name: String,
    /// Id of the session.
    pub session: u64,
    /// Layout of a process's memory for the session.
    pub region: RegionParams,
    /// Level, keywords and filters of the enable.
    pub params: EnableParams,
}

impl ListedEnable {
    /// Returns whether the enable applies to registrations of this provider, in this group and with
    /// this name.
    #[must_use]
    pub fn applies_to(&self, provider: Guid, group: Option<Guid>, name: &str) -> bool {
        if self.params.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0 {
            return group == Some(self.target);
        }
        // An enable by name has the GUID that is derived from the name as its target. It also
        // applies to providers that have this name and another GUID.
        let hash = |name: &str| (!name.is_empty()).then(|| Guid::from_provider_name(name));
        let is_by_name = hash(&self.name) == Some(self.target);
        let is_name_matched = if name_pattern::is_pattern(&self.name) {
            name_pattern::is_match(&self.name, name)
        } else {
            hash(name) == Some(self.target)
        };
        provider == self.target || (is_by_name && is_name_matched)
    }
}

/// Replaces the file of enabled providers.
pub fn write(dir: &RuntimeDir, enables: &[ListedEnable]) -> io::Result<()> {
    let unfinished = dir.unfinished_enabled_file();
    // A daemon that was killed may have left such a file.
    let _ = fs::remove_file(&unfinished);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all(&encode_all(enables))?;
    fs::rename(unfinished, dir.enabled_file())
}

/// Reads the providers that a daemon of this user has enabled; empty if there is no file that can
/// be trusted.
#[must_use]
pub fn read(dir: &RuntimeDir, user: u32) -> Vec<ListedEnable> {
    read_bytes(dir, user).map(|bytes| decode_all(&bytes)).unwrap_or_default()
}

fn read_bytes(dir: &RuntimeDir, user: u32) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    open_trusted_file(dir, user)?.take(MAX_FILE_BYTES as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn open_trusted_file(dir: &RuntimeDir, user: u32) -> Option<File> {
    // Follows no symbolic link, and does not block if the file is a FIFO or a device.
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).ok()?;
    let file = File::options().read(true).custom_flags(flags).open(dir.enabled_file()).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.uid() != user || metadata.mode() & 0o022 != 0 {
        return None;
    }
    Some(file)
}

fn encode_all(enables: &[ListedEnable]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut last_region = None;
    for enabled in enables {
        let before = bytes.len();
        let region = Message::Region { session: enabled.session, params: enabled.region };
        let enable = Message::EnableProvider {
            session: SessionRef::Id(enabled.session),
            provider: enabled.target,
            code: EnableCode::Enable,
            params: Box::new(enabled.params.clone()),
            name: enabled.name.clone(),
            timeout_ms: 0,
        };
        let is_region_written = last_region == Some((enabled.session, enabled.region));
        let result = if is_region_written { Ok(()) } else { region.encode(0, &mut bytes) };
        if result.and_then(|()| enable.encode(0, &mut bytes)).is_err() || bytes.len() > MAX_FILE_BYTES {
            bytes.truncate(before);
        } else {
            last_region = Some((enabled.session, enabled.region));
        }
    }
    bytes
}

fn decode_all(mut bytes: &[u8]) -> Vec<ListedEnable> {
    let mut enables = Vec::new();
    let mut region = None;
    while let Some((message, remaining)) = decode_next_message(bytes) {
        bytes = remaining;
        match message {
            Message::Region { session, params } => region = Some((session, params)),
            Message::EnableProvider { session: SessionRef::Id(id), provider, params, name, .. } => {
                let session_region = region.filter(|(session, _)| *session == id);
                enables.extend(session_region.map(|(session, region)| ListedEnable {
                    target: provider,
                    name,
                    session,
                    region,
                    params: *params,
                }));
            }
            _ => {}
        }
    }
    enables
}

/// Decodes the first message. Returns it and the following bytes.
fn decode_next_message(bytes: &[u8]) -> Option<(Message, &[u8])> {
    // The last four bytes of the header are the length of the body.
    let length = bytes.get(HEADER_BYTES - 4..HEADER_BYTES)?;
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    let (message, remaining) = bytes.split_at_checked(HEADER_BYTES.checked_add(length)?)?;
    Some((Message::decode(message).ok()?.1, remaining))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Layout;
    use crate::clock::Counter;

    /// Builds an enable of provider `n`. Each session has two of them.
    fn build_enabled(n: u64) -> ListedEnable {
        let layout = Layout::new(2, 1 << 16).unwrap();
        let region = RegionParams { layout, clock: Counter::Cycles, wake_at: 1 << 14, max_record: 65_535 };
        let params = EnableParams { level: 4, match_any: n, ..EnableParams::default() };
        ListedEnable {
            target: Guid::from_u128(u128::from(n)),
            name: format!("n{n}"),
            session: n / 2 + 1,
            region,
            params,
        }
    }

    fn create_runtime_folder() -> (tempfile::TempDir, RuntimeDir, u32) {
        let folder = tempfile::tempdir().unwrap();
        let (dir, user) = (RuntimeDir::from_path(folder.path()), fs::metadata(folder.path()).unwrap().uid());
        (folder, dir, user)
    }

    #[test]
    fn file_contains_the_providers_written_last() {
        let (_folder, dir, user) = create_runtime_folder();
        assert_eq!(read(&dir, user), []);
        let all: Vec<ListedEnable> = (0..5).map(build_enabled).collect();
        write(&dir, &all).unwrap();
        assert_eq!(read(&dir, user), all);
        write(&dir, &all[..1]).unwrap();
        assert_eq!(read(&dir, user), all[..1]);
        assert_eq!(read(&dir, user.wrapping_add(1)), [], "a file of another user was trusted");
        dir.remove_enabled_file();
        assert_eq!(read(&dir, user), []);
    }

    #[test]
    fn enable_by_name_applies_to_every_guid_with_that_name() {
        let other = Guid::from_u128(0x77);
        let hash = Guid::from_provider_name("My.App");
        let by_name = ListedEnable { target: hash, name: "My.App".into(), ..build_enabled(1) };
        assert!(by_name.applies_to(other, None, "my.app") && by_name.applies_to(hash, None, ""));
        assert!(!by_name.applies_to(other, None, "My.Other") && !by_name.applies_to(other, None, ""));
        let target = Guid::from_provider_name("My.*");
        let by_pattern = ListedEnable { target, name: "My.*".into(), ..build_enabled(1) };
        assert!(by_pattern.applies_to(other, None, "my.app") && !by_pattern.applies_to(other, None, ""));
        let by_guid = ListedEnable { name: String::new(), ..by_name.clone() };
        assert!(!by_guid.applies_to(other, None, "My.App"));
        let mut group = by_name;
        group.params.property = EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
        assert!(!group.applies_to(other, None, "My.App") && group.applies_to(other, Some(hash), ""));
    }

    #[test]
    fn links_and_writable_files_are_not_trusted() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, dir, user) = create_runtime_folder();
        write(&dir, &[build_enabled(1)]).unwrap();
        fs::set_permissions(dir.enabled_file(), PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(read(&dir, user), []);
        fs::set_permissions(dir.enabled_file(), PermissionsExt::from_mode(0o600)).unwrap();
        fs::rename(dir.enabled_file(), folder.path().join("other")).unwrap();
        std::os::unix::fs::symlink("other", dir.enabled_file()).unwrap();
        assert_eq!(read(&dir, user), []);
    }

    #[test]
    fn truncated_and_changed_files_are_read_without_panic() {
        let all: Vec<ListedEnable> = (0..3).map(build_enabled).collect();
        let bytes = encode_all(&all);
        for length in 0..bytes.len() {
            let read = decode_all(&bytes[..length]);
            assert_eq!(read, all[..read.len()]);
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0xFF;
            let _ = decode_all(&changed);
        }
    }

    #[test]
    fn file_stays_within_its_bound() {
        let filter = crate::message::Filter { kind: 1, data: vec![7; 40_000] };
        let large = |n| {
            let mut enabled = build_enabled(n);
            enabled.params.filters = vec![filter.clone()];
            enabled
        };
        let all: Vec<ListedEnable> = (0..100).map(large).collect();
        let bytes = encode_all(&all);
        assert!(bytes.len() <= MAX_FILE_BYTES && bytes.len() > MAX_FILE_BYTES - 100_000);
        assert!(decode_all(&bytes).iter().zip(&all).all(|(read, written)| read == written));
    }
}
