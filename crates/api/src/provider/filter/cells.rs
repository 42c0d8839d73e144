//! Where compiled filters lie: cells whose memory is never given back, only used again.
//!
//! ```text
//!   cell      uses │ words: generation │ length │ content…
//!   uses      0 free ──claim──▶ CLAIMED ──filled──▶ 1 ◀──▶ n (one for each entry that names it) ──▶ 0
//!   generation   even: the content is whole; odd: it is being replaced
//! ```
//!
//! A writer may be anywhere when a filter is replaced: on another processor, in a signal handler, in a thread that is stopped for an hour. It cannot be
//! waited for, and counting it in and out would cost more than the filter. So nothing is ever freed under it:
//!
//! 1. The words of a cell stay where they are for the life of the process, and are atomic: reading them is sound at any time.
//! 2. Whoever reads looks at the generation before and after. Where it is odd or has changed, what was read means nothing and is not used.
//! 3. What is read in between may be a mix of two filters. Every look-up is bounded by the cell ([`Words::get`]) and every loop by a
//!    number of words, so it ends and harms nothing.
//! 4. A cell is filled only by whoever moved `uses` from 0 to `CLAIMED`.
//!
//! Filters of the same content share a cell: a provider that is registered a thousand times has one, and "the same filters again" is the same
//! number.
//!
//! The memory of a process for filters is bounded. A cell never grows, so small ones that are free are of no use to a large filter. What may be made to
//! fit ([`FITTED_WORDS`]) is therefore only half: the first [`WHOLE`] cells are as large as any filter needs, and made when no other is left.
//! An enable with a filter fails while all of those are in use.
//!
//! A writer that still holds the number of a cell that was given to other filters meanwhile is told by those: one event at the moment of change, as
//! `enable` has it for levels.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Cells; their numbers have twelve bits. Number 0 is none.
pub(super) const CELLS: usize = 1 << 12;
/// Words of all cells that were made to fit: 4 MiB.
const FITTED_WORDS: usize = 1 << 19;
/// Cells that hold any filters, and words of each: 4 MiB together. A call has one filter of a type, and each type has a limit.
const WHOLE: usize = 16;
const WHOLE_WORDS: usize = 1 << 15;
/// Words in front of the content.
const HEAD: usize = 2;
/// In `uses`: somebody is filling the cell.
const CLAIMED: u32 = u32::MAX;

struct Cell {
    uses: AtomicU32,
    words: OnceLock<Box<[AtomicU64]>>,
}

static TABLE: [Cell; CELLS] = [const { Cell { uses: AtomicU32::new(0), words: OnceLock::new() } }; CELLS];
/// Cells that have ever been used, the unused number 0 and the whole ones included.
static REACHED: AtomicUsize = AtomicUsize::new(1 + WHOLE);
/// Words of all cells that were made to fit so far.
static WORDS: AtomicUsize = AtomicUsize::new(0);

/// The content of a cell, which may change under the reader.
#[derive(Clone, Copy)]
pub(super) struct Words<'a>(&'a [AtomicU64]);

impl Words<'_> {
    /// A word of the content; 0 past the end.
    #[inline(always)]
    pub(super) fn get(self, index: usize) -> u64 {
        self.0.get(index.wrapping_add(HEAD)).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// The content from a word on.
    #[inline(always)]
    pub(super) fn section(self, start: usize) -> Self {
        Self(self.0.get(start..).unwrap_or_default())
    }

    /// A word that says where or how many; as large as a cell at most.
    #[inline(always)]
    pub(super) fn size(self, index: usize) -> usize {
        (self.get(index) as usize).min(self.0.len())
    }
}

/// Reads a cell. `None`: it holds nothing, or was changed meanwhile.
#[inline(always)]
pub(super) fn read<T>(number: u16, look: impl FnOnce(Words<'_>) -> T) -> Option<T> {
    let words: &[AtomicU64] = TABLE.get(usize::from(number))?.words.get()?;
    let generation = words.first()?;
    // Pairs with the release in `fill`: an even generation is seen with its content.
    let before = generation.load(Ordering::Acquire);
    if before & 1 != 0 {
        return None;
    }
    let seen = look(Words(words));
    // Pairs with the release fence in `fill`: content that is newer than `before` is seen with a newer generation.
    fence(Ordering::Acquire);
    (generation.load(Ordering::Relaxed) == before).then_some(seen)
}

/// The number of a cell with this content, used once more. `None`: there is no room.
pub(super) fn intern(content: &[u64]) -> Option<u16> {
    let number = find(content).or_else(|| reuse(content)).or_else(|| make(content))?;
    u16::try_from(number).ok()
}

/// One use of a cell has ended.
pub(super) fn release(number: u16) {
    if let Some(cell) = TABLE.get(usize::from(number)).filter(|_| number != 0) {
        // Whoever claims the cell next must see all that its users did; pairs with the acquire in `claim`.
        cell.uses.fetch_sub(1, Ordering::Release);
    }
}

fn reached() -> impl Iterator<Item = (usize, &'static Cell)> {
    TABLE.iter().enumerate().take(REACHED.load(Ordering::Relaxed)).skip(1)
}

/// A cell in use with the same content.
fn find(content: &[u64]) -> Option<usize> {
    let same = |cell: &Cell| {
        let Some(words) = cell.words.get() else { return false };
        let stored = |word: &AtomicU64| word.load(Ordering::Relaxed);
        words.get(1).map(stored) == Some(content.len() as u64)
            && words.iter().skip(HEAD).map(stored).take(content.len()).eq(content.iter().copied())
    };
    // Compared before the use is taken, so that others are left alone, and after it, when it cannot change any more.
    reached().find(|(_, cell)| same(cell) && cell.share() && (same(cell) || cell.unshare())).map(|(n, _)| n)
}

/// A free cell with room, the smallest there is.
fn reuse(content: &[u64]) -> Option<usize> {
    let needed = content.len() + HEAD;
    let room = |cell: &Cell| cell.words.get().map_or(0, |words| words.len());
    loop {
        let free = reached()
            .filter(|(_, cell)| cell.uses.load(Ordering::Relaxed) == 0 && room(cell) >= needed)
            .min_by_key(|(_, cell)| room(cell))?;
        if free.1.claim() {
            free.1.fill(content);
            return Some(free.0);
        }
    }
}

/// A new cell that fits, or else a whole one.
fn make(content: &[u64]) -> Option<usize> {
    // Rounded up, so that filters of about this size find room here later.
    let size = (content.len() + HEAD).next_power_of_two();
    let fits = WORDS.fetch_add(size, Ordering::Relaxed) + size <= FITTED_WORDS;
    let made = if fits { claim_new(1 + WHOLE..CELLS, size) } else { None };
    if made.is_none() {
        WORDS.fetch_sub(size, Ordering::Relaxed);
    }
    let whole = || if size <= WHOLE_WORDS { claim_new(1..1 + WHOLE, WHOLE_WORDS) } else { None };
    let (number, cell) = made.or_else(whole)?;
    cell.fill(content);
    REACHED.fetch_max(number + 1, Ordering::Relaxed);
    Some(number)
}

/// A cell of these that was never used, claimed and with its words.
fn claim_new(numbers: Range<usize>, size: usize) -> Option<(usize, &'static Cell)> {
    let mut cells = TABLE.iter().enumerate().take(numbers.end).skip(numbers.start);
    let (number, cell) = cells.find(|(_, cell)| cell.words.get().is_none() && cell.claim())?;
    cell.words.get_or_init(|| (0..size).map(|_| AtomicU64::new(0)).collect());
    Some((number, cell))
}

impl Cell {
    fn claim(&self) -> bool {
        self.uses.compare_exchange(0, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// One use more of a cell that is in use.
    fn share(&self) -> bool {
        let more = |uses| (uses != 0 && uses < CLAIMED - 1).then(|| uses + 1);
        self.uses.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    fn unshare(&self) -> bool {
        self.uses.fetch_sub(1, Ordering::Release);
        false
    }

    /// Replaces the content of a claimed cell and puts it to use.
    fn fill(&self, content: &[u64]) {
        let Some((generation, words)) = self.words.get().and_then(|words| words.split_first()) else {
            return;
        };
        let next = generation.load(Ordering::Relaxed).wrapping_add(2);
        generation.store(next.wrapping_sub(1), Ordering::Relaxed);
        // Pairs with the fence in `read`: whoever sees a new word sees the odd generation, or a later one.
        fence(Ordering::Release);
        let all = std::iter::once(content.len() as u64).chain(content.iter().copied());
        for (word, value) in words.iter().zip(all) {
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

    fn content(number: u16, length: usize) -> Option<Vec<u64>> {
        read(number, |words| (0..length).map(|i| words.get(i)).collect())
    }

    #[test]
    fn the_same_content_has_one_cell_for_as_long_as_it_is_used() {
        let (one, two) = (vec![0xA110_0001_u64; 9], vec![0xA110_0002_u64; 9]);
        let first = intern(&one).unwrap();
        assert_ne!(first, 0);
        assert_eq!(intern(&one), Some(first));
        let other = intern(&two).unwrap();
        assert_ne!(other, first);
        release(first);
        assert_eq!(content(first, 9), Some(one), "still used");
        release(first);
        release(other);
        assert_eq!(content(0, 1), None);
        assert_eq!(content(4095, 1), None);
        assert_eq!(content(u16::MAX, 1), None);
    }

    #[test]
    fn cells_are_used_again_without_end() {
        let mut used = BTreeSet::new();
        for n in 0..50_000_u64 {
            let number = intern(&vec![0xB220_0000 + n; 100 + (n % 20) as usize]).unwrap();
            assert_eq!(read(number, |words| words.get(7)), Some(0xB220_0000 + n));
            release(number);
            used.insert(number);
        }
        // Other tests take what is free at the same time, but not this many.
        assert!(used.len() < 200, "{}", used.len());
    }

    /// In a process of its own: one with as many cells is slow for all other tests.
    #[test]
    fn a_large_filter_has_room_however_many_small_ones_there_were() {
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        alone.args([
            "provider::filter::cells::tests::large_filters_after_small_ones",
            "--exact",
            "--ignored",
        ]);
        let output = alone.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    #[ignore = "the part of a process of its own"]
    fn large_filters_after_small_ones() {
        let small: Vec<u16> = (0..CELLS as u64).map_while(|n| intern(&[0xD440_0000 + n; 9])).collect();
        assert!(small.len() > CELLS / 2);
        assert!(small.iter().any(|number| usize::from(*number) <= WHOLE), "the last ones are whole");
        small.into_iter().for_each(release);
        for n in 0..100 {
            let large = intern(&vec![0xD550_0000 + n; WHOLE_WORDS - HEAD]).unwrap();
            assert_eq!(read(large, |words| words.get(WHOLE_WORDS - HEAD - 1)), Some(0xD550_0000 + n));
            release(large);
        }
        assert_eq!(intern(&vec![0xD660_0000; FITTED_WORDS]), None, "more than there can be");
    }

    #[test]
    fn a_reader_gets_whole_contents_only() {
        let stop = AtomicBool::new(false);
        let number = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let readers = [0, 1].map(|_| {
                scope.spawn(|| {
                    let mut whole = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        let at = number.load(Ordering::Relaxed) as u16;
                        if let Some(words) =
                            content(at, 64).filter(|words| words.first().is_some_and(|w| w >> 32 == 0xC33))
                        {
                            assert!(words.windows(2).all(|pair| pair[0] == pair[1]), "{words:?}");
                            whole += 1;
                        }
                    }
                    whole
                })
            });
            let mut last = 0;
            for n in 0..200_000_u64 {
                let next = intern(&[0xC33 << 32 | n; 64]).unwrap();
                number.store(u32::from(next), Ordering::Relaxed);
                release(last);
                last = next;
            }
            // The last one stays for whoever has not had a turn yet.
            std::thread::sleep(std::time::Duration::from_millis(5));
            stop.store(true, Ordering::Relaxed);
            for reader in readers {
                assert!(reader.join().unwrap() > 0);
            }
            release(last);
        });
    }
}
