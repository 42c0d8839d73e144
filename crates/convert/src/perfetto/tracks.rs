//! The tracks that have been described, and their uuids.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::activity::{ProcessIndex, ThreadIndex};

/// The first uuids of processes, threads and other tracks.
const FIRST_PROCESS: u64 = 1 << 40;
const FIRST_THREAD: u64 = 2 << 40;
const FIRST_OTHER: u64 = 3 << 40;

/// The most disks with tracks, and the most tracks of a disk.
const MAX_DISKS: usize = 1 << 10;
const MAX_DISK_LANES: usize = 64;

/// Identifies a track in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrackUuid(pub(super) u64);

impl TrackUuid {
    pub(super) fn of_process(index: ProcessIndex) -> Self {
        Self(FIRST_PROCESS.saturating_add(index.0.into()))
    }

    pub(super) fn of_thread(index: ThreadIndex) -> Self {
        Self(FIRST_THREAD.saturating_add(index.0.into()))
    }
}

/// A track that is neither a process nor a thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum TrackKey {
    /// Slices of a task that overlap others.
    Task {
        process: Option<ProcessIndex>,
        /// The thread, for tasks whose tracks are those of a thread.
        thread: Option<ThreadIndex>,
        provider: Arc<str>,
        name: Arc<str>,
        lane: u32,
    },
    /// A counter.
    Counter { process: Option<ProcessIndex>, name: Arc<str> },
    /// Operations of a disk of a machine that do not overlap.
    Disk { machine: u16, disk: u32, lane: usize },
    /// A single track.
    Named(&'static str),
}

impl TrackKey {
    pub(super) const fn disk(machine: u16, disk: u32, lane: usize) -> Self {
        Self::Disk { machine, disk, lane }
    }

    /// Returns the process that the track is shown below.
    pub(super) const fn process(&self) -> Option<ProcessIndex> {
        match self {
            Self::Task { process, .. } | Self::Counter { process, .. } => *process,
            Self::Disk { .. } | Self::Named(_) => None,
        }
    }

    fn name_bytes(&self) -> usize {
        match self {
            Self::Task { provider, name, .. } => provider.len().saturating_add(name.len()),
            Self::Counter { name, .. } => name.len(),
            Self::Disk { .. } | Self::Named(_) => 0,
        }
    }
}

/// The described tracks.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    processes: HashSet<ProcessIndex>,
    threads: HashSet<ThreadIndex>,
    others: HashMap<TrackKey, TrackUuid>,
    /// Bytes of the names in `others`.
    name_bytes: usize,
    is_full: bool,
    /// When the operations on each track of a disk end.
    disk_lanes: HashMap<(u16, u32), Vec<u64>>,
}

impl Tracks {
    /// The most tracks besides those of processes and threads, and the most bytes of their names.
    pub(super) const MAX_TRACKS: usize = 1 << 16;
    const MAX_NAME_BYTES: usize = 32 << 20;

    /// Returns whether further tracks were needed.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns whether the track of a process is not described yet, and notes that it is now.
    pub(super) fn add_process(&mut self, index: ProcessIndex) -> bool {
        self.processes.insert(index)
    }

    /// Returns whether the track of a thread is not described yet, and notes that it is now.
    pub(super) fn add_thread(&mut self, index: ThreadIndex) -> bool {
        self.threads.insert(index)
    }

    /// Returns the uuid of a track, and whether it must be described. Beyond the limit, all tracks
    /// have one uuid.
    pub(super) fn find_or_add(&mut self, key: &TrackKey) -> (TrackUuid, bool) {
        if let Some(uuid) = self.others.get(key) {
            return (*uuid, false);
        }
        let name_bytes = self.name_bytes.saturating_add(key.name_bytes());
        if self.is_full || self.others.len() >= Self::MAX_TRACKS || name_bytes > Self::MAX_NAME_BYTES {
            let is_first = !self.is_full;
            self.is_full = true;
            return (TrackUuid(FIRST_OTHER.saturating_add(Self::MAX_TRACKS as u64)), is_first);
        }
        self.name_bytes = name_bytes;
        let uuid = TrackUuid(FIRST_OTHER.saturating_add(self.others.len() as u64));
        self.others.insert(key.clone(), uuid);
        (uuid, true)
    }

    /// Takes a track of a disk that is free at the begin of an operation. Returns the begin and the
    /// number of the track. If no track is free, the begin is when one becomes free.
    pub(super) fn take_disk_lane(&mut self, machine: u16, disk: u32, begin: u64, end: u64) -> (u64, usize) {
        if self.disk_lanes.len() >= MAX_DISKS && !self.disk_lanes.contains_key(&(machine, disk)) {
            return (end, 0);
        }
        let lanes = self.disk_lanes.entry((machine, disk)).or_default();
        let free = lanes.iter().position(|busy_until| *busy_until <= begin);
        let lane = free.unwrap_or_else(|| {
            if lanes.len() < MAX_DISK_LANES {
                lanes.push(0);
            }
            lanes.len().saturating_sub(1)
        });
        let busy_until = lanes.get(lane).copied().unwrap_or(0);
        if let Some(slot) = lanes.get_mut(lane) {
            *slot = end.max(busy_until);
        }
        (begin.max(busy_until).min(end), lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_one_disk_track_do_not_overlap() {
        let mut tracks = Tracks::default();
        let mut take = |begin, end| tracks.take_disk_lane(0, 1, begin, end);
        assert_eq!(
            [take(0, 10), take(5, 12), take(10, 14), take(11, 15)],
            [(0, 0), (5, 1), (10, 0), (11, 2)]
        );
        for time in 0..1000 {
            let (begin, lane) = take(20, 30 + time);
            assert!(lane < MAX_DISK_LANES && begin <= 30 + time);
        }
    }

    #[test]
    fn number_of_tracks_is_limited() {
        let mut tracks = Tracks::default();
        let key = |number: usize| TrackKey::Counter { process: None, name: number.to_string().into() };
        for number in 0..Tracks::MAX_TRACKS {
            assert!(tracks.find_or_add(&key(number)).1);
        }
        let (uuid, is_new) = tracks.find_or_add(&key(Tracks::MAX_TRACKS));
        assert!(is_new && tracks.is_full());
        assert_eq!(tracks.find_or_add(&key(Tracks::MAX_TRACKS + 1)), (uuid, false));
    }

    #[test]
    fn names_of_tracks_are_limited() {
        let mut tracks = Tracks::default();
        for number in 0..50 {
            let name = format!("{number}{}", "x".repeat(1 << 20)).into();
            tracks.find_or_add(&TrackKey::Counter { process: None, name });
        }
        let bytes: usize = tracks.others.keys().map(TrackKey::name_bytes).sum();
        assert!(tracks.is_full() && bytes <= Tracks::MAX_NAME_BYTES && tracks.others.len() > 30, "{bytes}");
    }
}
