//! Fills indexes whose tracks take much memory.

use super::*;
use crate::index::threads::EventTime;

const THREADS: u32 = 300;
const ITEMS: i64 = 200;

/// Returns an index of threads that run in turn; `check` is called after each turn.
fn fill_index(file: File, mut check: impl FnMut(&mut Index)) -> Index {
    let mut index = Index::new(file);
    for turn in 0..ITEMS {
        for tid in 0..THREADS {
            let ns = (turn * i64::from(THREADS) + i64::from(tid)) * 10;
            let at = EventTime { ns, file: 0, machine: 0, stamp: ns };
            let thread = index.threads.find_or_add(tid + 1, None, at);
            index.add_state(thread, ThreadState::Running, 0, ns, ns + 10);
        }
        check(&mut index);
    }
    index
}

/// Returns the states of all threads.
fn states_of(index: &Index) -> Vec<Vec<Item>> {
    let threads = index.threads.threads.iter().skip(2);
    let states = |thread: &threads::Thread| {
        let mut items = Vec::new();
        thread.states.for_each(i64::MIN, i64::MAX, &index.store, |item| {
            items.push(item);
            true
        });
        items
    };
    threads.map(states).collect()
}

#[test]
fn lists_of_blocks_have_a_limit() {
    const MAX_BLOCKS: usize = 1000;
    let file = || tempfile::tempfile().unwrap();
    let expected = states_of(&fill_index(file(), |_| {}));
    assert!(expected.len() == THREADS as usize && expected.iter().all(|items| items.len() == ITEMS as usize));
    let (mut most, mut most_open) = (0, 0);
    let kept = file();
    let mut index = fill_index(kept.try_clone().unwrap(), |index| {
        index.limit_open_items(16 << 10);
        index.limit_blocks(MAX_BLOCKS);
        most = most.max(index.series_blocks());
        let mut open = 0;
        index.for_series(|series, _| open += series.open_bytes());
        most_open = most_open.max(open);
    });
    assert!(most <= MAX_BLOCKS, "{most} blocks");
    assert!(most_open <= 16 << 10, "{most_open} bytes");
    assert!(states_of(&index) == expected);
    // The index from the cache has the same states, and not more blocks.
    index.threads.group(|thread| (thread.pid, None));
    index.complete();
    index.write_directory(b"test").unwrap();
    let mut again = Index::open(kept.try_clone().unwrap(), kept.metadata().unwrap().len(), b"test").unwrap();
    assert!(states_of(&again) == expected);
    assert!(again.series_blocks() <= MAX_BLOCKS + index.threads.threads.len());
}

#[test]
fn full_tracks_are_written_before_others() {
    let mut index = Index::new(tempfile::tempfile().unwrap());
    let at = EventTime { ns: 0, file: 0, machine: 0, stamp: 0 };
    let threads = [1, 2, 3].map(|tid| index.threads.find_or_add(tid, None, at));
    for (thread, items) in threads.into_iter().zip([4, 1000, 4]) {
        for number in 0..items {
            index.add_state(thread, ThreadState::Running, 0, number * 10, number * 10 + 5);
        }
    }
    index.limit_open_items(1000 * size_of::<Item>());
    let open_items = threads.map(|thread| index.threads.get(thread).unwrap().states.open_items());
    assert_eq!(open_items, [4, 0, 4]);
}

#[test]
fn index_that_could_not_be_opened_is_not_kept() {
    let file = tempfile::tempfile().unwrap();
    let mut index = Index::new(file.try_clone().unwrap());
    index.threads.group(|thread| (thread.pid, None));
    index.complete();
    let name: std::sync::Arc<str> = "n".repeat(1100).into();
    index.files.names = vec![Some(name); MAX_FILES];
    let error = index.write_directory(b"test").unwrap_err();
    assert!(error.to_string().contains("too large"), "{error}");
    let length = file.metadata().unwrap().len();
    assert!(length <= 129 << 20, "{length} bytes");
    assert!(Index::open(file, length, b"test").is_none());
    // Names of 1,000 bytes fit, and are read again.
    let file = tempfile::tempfile().unwrap();
    let mut index = Index::new(file.try_clone().unwrap());
    index.threads.group(|thread| (thread.pid, None));
    index.complete();
    index.files.names = vec![Some("n".repeat(1000).into()); MAX_FILES];
    index.write_directory(b"test").unwrap();
    let length = file.metadata().unwrap().len();
    assert_eq!(Index::open(file, length, b"test").unwrap().files.names.len(), MAX_FILES);
}
