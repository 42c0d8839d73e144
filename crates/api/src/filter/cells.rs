//! Storage of compiled filters: cells whose memory is never freed, only reused.
//!
//! ```text
//!   cell      uses │ words: generation │ length │ content…
//!   uses      0 free ──claim──▶ CLAIMED ──filled──▶ 1 ◀──▶ n (one for each entry) ──▶ 0
//!   generation   even: the content is complete; odd: it is being replaced
//! ```
//!
//! A writer may be anywhere when a filter is replaced: on another processor, in a signal handler,
//! in a thread that is stopped for an hour. Waiting for the writer is impossible, and reference
//! counts would cost more than the filter. So nothing is ever freed during a read:
//!
//! 1. The words of a cell stay in place for the life of the process, and are atomic: reading them
//!    is sound at any time.
//! 2. A reader compares the generation before and after. If the generation is odd or has changed,
//!    the words are meaningless and not used.
//! 3. The words read in between may be a mix of two filters. Every lookup is bounded by the cell
//!    ([`CellWords::get`]) and every loop by a number of words, so a read ends and never leaves the
//!    cell.
//! 4. Only the thread that moved `uses` from 0 to `CLAIMED` fills a cell.
//!
//! Filters of equal content share a cell: a provider that is registered a thousand times has one
//! cell, and repeated filters have the same cell number.
//!
//! The memory of a process for filters is bounded. A cell never grows, so small free cells are of
//! no use to a large filter. Therefore cells of fitting size ([`FITTED_WORDS`]) take only half of
//! the memory: the first [`FULL_SIZE_CELLS`] cells are as large as any filter needs, and allocated
//! when no other cell is left. An enable with filters fails while all suitable cells are in use.
//!
//! A writer with the number of a cell that has been reused for other filters applies those. That
//! concerns only an event that is written at the moment of the change, as for levels in `enable`.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Number of cells; cell numbers have twelve bits. Number 0 means none.
pub(super) const MAX_CELLS: usize = 1 << 12;
/// Maximum number of words of all cells of fitting size: 4 MiB.
const FITTED_WORDS: usize = 1 << 19;
/// Number of cells that hold filters of any size, 4 MiB together.
const FULL_SIZE_CELLS: usize = 16;
/// Words of a full-size cell. An enable has at most one filter of each type, and each type has a
/// size limit.
const FULL_SIZE_WORDS: usize = 1 << 15;
/// Words before the content.
const HEAD_WORDS: usize = 2;
/// In `uses`: a thread is filling the cell.
const CLAIMED: u32 = u32::MAX;

struct FilterCell {
    uses: AtomicU32,
    words: OnceLock<Box<[AtomicU64]>>,
}

static TABLE: [FilterCell; MAX_CELLS] =
    [const { FilterCell { uses: AtomicU32::new(0), words: OnceLock::new() } }; MAX_CELLS];
/// One past the highest cell number that was ever used, at least past the full-size cells.
static USED_CELLS_END: AtomicUsize = AtomicUsize::new(1 + FULL_SIZE_CELLS);
/// Words of all cells of fitting size so far.
static FITTED_WORDS_USED: AtomicUsize = AtomicUsize::new(0);

/// The content of a cell, which may change during a read.
#[derive(Clone, Copy)]
pub(super) struct CellWords<'a>(&'a [AtomicU64]);

impl CellWords<'_> {
    /// Returns a word of the content; 0 past the end.
    #[inline(always)]
    pub(super) fn get(self, index: usize) -> u64 {
        self.0.get(index.wrapping_add(HEAD_WORDS)).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Returns the content from a word on.
    #[inline(always)]
    pub(super) fn section(self, start: usize) -> Self {
        Self(self.0.get(start..).unwrap_or_default())
    }

    /// Returns a word that is an index or a count, limited to the size of the cell.
    #[inline(always)]
    pub(super) fn size(self, index: usize) -> usize {
        (self.get(index) as usize).min(self.0.len())
    }
}

/// Reads a cell; `None` if it is empty or changed during the read.
#[inline(always)]
pub(super) fn read<T>(number: u16, read: impl FnOnce(CellWords<'_>) -> T) -> Option<T> {
    let words: &[AtomicU64] = TABLE.get(usize::from(number))?.words.get()?;
    let generation = words.first()?;
    // Pairs with the release in `fill`: an even generation is seen with its content.
    let before = generation.load(Ordering::Acquire);
    if before & 1 != 0 {
        return None;
    }
    let seen = read(CellWords(words));
    // Pairs with the release fence in `fill`: content newer than `before` is seen with a newer
    // generation.
    fence(Ordering::Acquire);
    (generation.load(Ordering::Relaxed) == before).then_some(seen)
}

/// Returns the number of a cell with this content and adds a use; `None` if no cell is free.
pub(super) fn intern(content: &[u64]) -> Option<u16> {
    let number =
        find_equal(content).or_else(|| reuse_free_cell(content)).or_else(|| allocate_cell(content))?;
    u16::try_from(number).ok()
}

/// Ends one use of a cell.
pub(super) fn release(number: u16) {
    if let Some(cell) = TABLE.get(usize::from(number)).filter(|_| number != 0) {
        // The next claim must see all that the users did; pairs with the acquire in `claim`.
        cell.uses.fetch_sub(1, Ordering::Release);
    }
}

fn used_cells() -> impl Iterator<Item = (usize, &'static FilterCell)> {
    TABLE.iter().enumerate().take(USED_CELLS_END.load(Ordering::Relaxed)).skip(1)
}

/// Finds a cell in use with the same content.
fn find_equal(content: &[u64]) -> Option<usize> {
    let has_content = |cell: &FilterCell| {
        let Some(words) = cell.words.get() else { return false };
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        words.get(1).map(load) == Some(content.len() as u64)
            && words.iter().skip(HEAD_WORDS).map(load).take(content.len()).eq(content.iter().copied())
    };
    // Compared before the use is added, to leave other cells alone, and after it, when the content
    // cannot change any more.
    used_cells()
        .find(|(_, cell)| has_content(cell) && cell.add_use() && (has_content(cell) || cell.remove_use()))
        .map(|(n, _)| n)
}

/// Reuses the smallest free cell with enough words.
fn reuse_free_cell(content: &[u64]) -> Option<usize> {
    let needed = content.len() + HEAD_WORDS;
    let capacity = |cell: &FilterCell| cell.words.get().map_or(0, |words| words.len());
    loop {
        let (number, cell) = used_cells()
            .filter(|(_, cell)| cell.uses.load(Ordering::Relaxed) == 0 && capacity(cell) >= needed)
            .min_by_key(|(_, cell)| capacity(cell))?;
        if cell.claim() {
            cell.fill(content);
            return Some(number);
        }
    }
}

/// Allocates a new cell of fitting size, or else a full-size one.
fn allocate_cell(content: &[u64]) -> Option<usize> {
    // Rounded up, so that later filters of about this size fit.
    let size = (content.len() + HEAD_WORDS).next_power_of_two();
    let fits = FITTED_WORDS_USED.fetch_add(size, Ordering::Relaxed) + size <= FITTED_WORDS;
    let fitted = if fits { claim_new(1 + FULL_SIZE_CELLS..MAX_CELLS, size) } else { None };
    if fitted.is_none() {
        FITTED_WORDS_USED.fetch_sub(size, Ordering::Relaxed);
    }
    let full_size =
        || if size <= FULL_SIZE_WORDS { claim_new(1..1 + FULL_SIZE_CELLS, FULL_SIZE_WORDS) } else { None };
    let (number, cell) = fitted.or_else(full_size)?;
    cell.fill(content);
    USED_CELLS_END.fetch_max(number + 1, Ordering::Relaxed);
    Some(number)
}

/// Claims a cell of this range that was never used and allocates its words.
fn claim_new(numbers: Range<usize>, size: usize) -> Option<(usize, &'static FilterCell)> {
    let mut cells = TABLE.iter().enumerate().take(numbers.end).skip(numbers.start);
    let (number, cell) = cells.find(|(_, cell)| cell.words.get().is_none() && cell.claim())?;
    cell.words.get_or_init(|| (0..size).map(|_| AtomicU64::new(0)).collect());
    Some((number, cell))
}

impl FilterCell {
    fn claim(&self) -> bool {
        self.uses.compare_exchange(0, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Adds a use to a cell that is in use.
    fn add_use(&self) -> bool {
        let add_one = |uses| (uses != 0 && uses < CLAIMED - 1).then(|| uses + 1);
        self.uses.fetch_update(Ordering::Acquire, Ordering::Relaxed, add_one).is_ok()
    }

    /// Removes a use; always `false`, for the condition in `find_equal`.
    fn remove_use(&self) -> bool {
        self.uses.fetch_sub(1, Ordering::Release);
        false
    }

    /// Replaces the content of a claimed cell and adds the first use.
    fn fill(&self, content: &[u64]) {
        let Some((generation, words)) = self.words.get().and_then(|words| words.split_first()) else {
            return;
        };
        // Odd while the content is being replaced, and then the next even number.
        let next = generation.load(Ordering::Relaxed).wrapping_add(2);
        generation.store(next.wrapping_sub(1), Ordering::Relaxed);
        // Pairs with the fence in `read`: a reader that sees a new word sees the odd generation, or
        // a later one.
        fence(Ordering::Release);
        let values = std::iter::once(content.len() as u64).chain(content.iter().copied());
        for (word, value) in words.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        generation.store(next, Ordering::Release);
        self.uses.store(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn read_content(number: u16, length: usize) -> Option<Vec<u64>> {
        read(number, |words| (0..length).map(|i| words.get(i)).collect())
    }

    #[test]
    fn equal_content_shares_a_cell_while_it_is_used() {
        let (one, two) = (vec![0xA110_0001_u64; 9], vec![0xA110_0002_u64; 9]);
        let first = intern(&one).unwrap();
        assert_ne!(first, 0);
        assert_eq!(intern(&one), Some(first));
        let other = intern(&two).unwrap();
        assert_ne!(other, first);
        release(first);
        assert_eq!(read_content(first, 9), Some(one), "the content must stay while it is used");
        release(first);
        release(other);
        assert_eq!(read_content(0, 1), None);
        assert_eq!(read_content(4095, 1), None);
        assert_eq!(read_content(u16::MAX, 1), None);
    }

    #[test]
    fn released_cells_are_reused() {
        let mut used = BTreeSet::new();
        for n in 0..50_000_u64 {
            let number = intern(&vec![0xB220_0000 + n; 100 + (n % 20) as usize]).unwrap();
            assert_eq!(read(number, |words| words.get(7)), Some(0xB220_0000 + n));
            release(number);
            used.insert(number);
        }
        // Other tests use free cells at the same time, but not this many.
        assert!(used.len() < 200, "{}", used.len());
    }

    /// Runs in a separate process: so many cells would slow down all other tests.
    #[test]
    fn large_filter_fits_after_any_number_of_small_ones() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["filter::cells::tests::large_filters_after_small_ones", "--exact", "--ignored"]);
        let output = command.output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
    }

    #[test]
    #[ignore = "another test runs this in a separate process"]
    fn large_filters_after_small_ones() {
        let small: Vec<u16> = (0..MAX_CELLS as u64).map_while(|n| intern(&[0xD440_0000 + n; 9])).collect();
        assert!(small.len() > MAX_CELLS / 2);
        assert!(
            small.iter().any(|number| usize::from(*number) <= FULL_SIZE_CELLS),
            "the last filters must use full-size cells"
        );
        small.into_iter().for_each(release);
        for n in 0..100 {
            let large = intern(&vec![0xD550_0000 + n; FULL_SIZE_WORDS - HEAD_WORDS]).unwrap();
            assert_eq!(
                read(large, |words| words.get(FULL_SIZE_WORDS - HEAD_WORDS - 1)),
                Some(0xD550_0000 + n)
            );
            release(large);
        }
        assert_eq!(
            intern(&vec![0xD660_0000; FITTED_WORDS]),
            None,
            "content larger than every cell was accepted"
        );
    }

    #[test]
    fn reader_gets_only_complete_contents() {
        let stop = AtomicBool::new(false);
        let number = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let readers = [0, 1].map(|_| {
                scope.spawn(|| {
                    let mut complete_reads = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        let at = number.load(Ordering::Relaxed) as u16;
                        if let Some(words) = read_content(at, 64)
                            .filter(|words| words.first().is_some_and(|w| w >> 32 == 0xC33))
                        {
                            assert!(words.windows(2).all(|pair| pair[0] == pair[1]), "{words:?}");
                            complete_reads += 1;
                        }
                    }
                    complete_reads
                })
            });
            let mut last = 0;
            for n in 0..200_000_u64 {
                let next = intern(&[0xC33 << 32 | n; 64]).unwrap();
                number.store(u32::from(next), Ordering::Relaxed);
                release(last);
                last = next;
            }
            // The last cell stays for readers that have not run yet.
            std::thread::sleep(std::time::Duration::from_millis(5));
            stop.store(true, Ordering::Relaxed);
            for reader in readers {
                assert!(reader.join().unwrap() > 0);
            }
            release(last);
        });
    }
}
