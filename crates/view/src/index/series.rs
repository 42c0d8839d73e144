//! A track of the timeline: spans or points in time order, with summaries for every zoom level.
//!
//! ```text
//!   items      ▏▏▎▏▎▏▏▏▎▏▏▎ … start, duration, value; on disk, encoded by difference
//!   groups     └─32 items─┘└─32 items─┘ …       a summary each; on disk, in front of the items
//!   blocks     └────────── 32 groups ─────────┘ a summary each; in memory
//!   branches   └── 512 blocks or branches ──┘   on disk, in place of blocks, if memory is short
//!
//!   segments(window, pixel): a node narrower than a pixel is taken as a whole, a wider one is
//!   replaced by what it consists of
//! ```
//!
//! The tree follows the items and not the clock, so a busy second and an idle hour cost what they
//! contain. Invariants:
//!
//! 1. Items do not overlap and are in time order: `push` moves the start of a late item.
//! 2. A query visits at most a few nodes per pixel on each level, so its cost depends on the number
//!    of pixels and not on the number of items.
//! 3. No item is dropped and none is counted twice: the counts of all segments of a window add up to
//!    the number of items that overlap the window, give or take the two blocks at its edges.

use super::store::{BlockRef, Put, Reader, Store};

/// Items in a group, and groups in a block.
const FANOUT: usize = 32;
const BLOCK_ITEMS: usize = FANOUT * FANOUT;
/// The most blocks of a branch.
const BRANCH_BLOCKS: usize = 512;
/// The most branches within each other that a query enters. A track gets one more level each time
/// that blocks are written to the file, so only an index of several 100 GiB could have more.
const MAX_DEPTH: usize = 1024;
/// Encoded size of a summary, and of the length of its group.
const SUMMARY_BYTES: usize = 9 * 8;
const GROUP_HEAD_BYTES: usize = SUMMARY_BYTES + 4;
/// The most segments of one reply.
pub(crate) const MAX_SEGMENTS: usize = 1 << 13;

/// A span, or a point if `duration` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Item {
    /// Nanoseconds since the first trace began.
    pub(crate) start: i64,
    pub(crate) duration: u64,
    /// The meaning depends on the series.
    pub(crate) value: u64,
}

impl Item {
    pub(crate) const fn end(&self) -> i64 {
        self.start.saturating_add_unsigned(self.duration)
    }
}

/// How the values of a series are summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// The lowest two bits of a value are the class of the span. `totals` counts the time of each.
    #[default]
    Classes,
    /// Values are signed numbers. `totals` has the sum, the smallest and the largest one.
    Numbers,
}

impl ValueKind {
    const fn code(self) -> u64 {
        match self {
            Self::Classes => 0,
            Self::Numbers => 1,
        }
    }
}

/// What some adjacent items have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) count: u64,
    pub(crate) totals: [i64; 4],
    /// The value that takes the most time, and this time. Of points, the first value.
    pub(crate) top: u64,
    pub(crate) top_ns: u64,
}

impl Summary {
    pub(crate) fn of_item(item: &Item, kind: ValueKind) -> Self {
        let duration = i64::try_from(item.duration).unwrap_or(i64::MAX);
        let mut totals = [0; 4];
        match kind {
            ValueKind::Classes => {
                if let Some(total) = totals.get_mut((item.value & 3) as usize) {
                    *total = duration;
                }
            }
            ValueKind::Numbers => totals = [item.value.cast_signed(); 4],
        }
        Self { start: item.start, end: item.end(), count: 1, totals, top: item.value, top_ns: item.duration }
    }

    /// Adds the summary of items that follow.
    pub(crate) fn add(&mut self, other: &Self, kind: ValueKind) {
        if self.count == 0 {
            *self = *other;
            return;
        }
        self.end = self.end.max(other.end);
        self.count = self.count.saturating_add(other.count);
        let [a, b, c, d] = &mut self.totals;
        let [sum, smallest, largest, last] = other.totals;
        *a = a.saturating_add(sum);
        match kind {
            ValueKind::Classes => {
                *b = b.saturating_add(smallest);
                *c = c.saturating_add(largest);
                *d = d.saturating_add(last);
            }
            ValueKind::Numbers => (*b, *c, *d) = ((*b).min(smallest), (*c).max(largest), last),
        }
        if self.top == other.top {
            self.top_ns = self.top_ns.saturating_add(other.top_ns);
        } else if other.top_ns > self.top_ns {
            (self.top, self.top_ns) = (other.top, other.top_ns);
        }
    }

    fn of_items(items: &[Item], kind: ValueKind) -> Self {
        let mut summary = Self::default();
        for item in items {
            summary.add(&Self::of_item(item, kind), kind);
        }
        if kind == ValueKind::Classes && summary.top_ns > 0 {
            // The running sum above favours late values; a group is small enough to add up exactly.
            let mut sums: Vec<(u64, u64)> = Vec::with_capacity(FANOUT);
            for item in items.iter().take(BLOCK_ITEMS) {
                match sums.iter_mut().find(|(value, _)| *value == item.value) {
                    Some((_, sum)) => *sum = sum.saturating_add(item.duration),
                    None => sums.push((item.value, item.duration)),
                }
            }
            if let Some((top, top_ns)) = sums.iter().copied().max_by_key(|(_, sum)| *sum) {
                (summary.top, summary.top_ns) = (top, top_ns);
            }
        }
        summary
    }

    fn put(&self, out: &mut impl Put) {
        out.put_i64(self.start);
        out.put_i64(self.end);
        out.put_u64(self.count);
        self.totals.iter().for_each(|total| out.put_i64(*total));
        out.put_u64(self.top);
        out.put_u64(self.top_ns);
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (start, end, count) = (reader.i64()?, reader.i64()?, reader.u64()?);
        let totals = [reader.i64()?, reader.i64()?, reader.i64()?, reader.i64()?];
        Some(Self { start, end, count, totals, top: reader.u64()?, top_ns: reader.u64()? })
    }

    const fn width(&self) -> u64 {
        self.end.saturating_sub(self.start).unsigned_abs()
    }
}

/// A block on disk.
#[derive(Clone, Copy, Debug)]
struct SeriesBlock {
    offset: u64,
    bytes: u32,
    /// Whether the block is a list of blocks. Otherwise it has items.
    is_branch: bool,
    summary: Summary,
}

impl SeriesBlock {
    const fn new(at: BlockRef, is_branch: bool, summary: Summary) -> Self {
        Self { offset: at.offset, bytes: at.bytes, is_branch, summary }
    }

    const fn at(&self) -> BlockRef {
        BlockRef { offset: self.offset, bytes: self.bytes }
    }

    fn put(&self, out: &mut impl Put) {
        out.put_varint(self.is_branch.into());
        out.put_varint(self.offset);
        out.put_varint(self.bytes.into());
        self.summary.put(out);
    }
}

/// Reads blocks of one list, which follow each other in time and in the file.
struct BlockReader<'b> {
    reader: Reader<'b>,
    /// Bytes of the file in which the blocks must lie.
    file_bytes: u64,
    /// End of the block before, in the file and in time.
    end: u64,
    end_time: i64,
}

impl BlockReader<'_> {
    /// Reads the next block; `None` at the end and for damage.
    fn next(&mut self) -> Option<SeriesBlock> {
        let is_branch = match self.reader.varint()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let at = self.reader.block(&mut self.end, self.file_bytes)?;
        let summary = Summary::read(&mut self.reader)?;
        if summary.start < self.end_time || summary.end < summary.start {
            return None;
        }
        self.end_time = summary.end;
        Some(SeriesBlock::new(at, is_branch, summary))
    }
}

/// Visits the blocks of a series from left to right.
struct BlockWalk<'s> {
    store: &'s Store,
    blocks: std::slice::Iter<'s, SeriesBlock>,
    /// The rest of each branch that was entered, the innermost last.
    branches: Vec<std::vec::IntoIter<SeriesBlock>>,
    /// Where the last block with items ends. They are in the order of the file, so that a crafted
    /// file cannot repeat them.
    end: u64,
    bytes: Vec<u8>,
}

impl<'s> BlockWalk<'s> {
    /// Begins with the first block that does not end before a time.
    fn new(blocks: &'s [SeriesBlock], from: i64, store: &'s Store) -> Self {
        let first = blocks.partition_point(|block| block.summary.end < from);
        let blocks = blocks.get(first..).unwrap_or_default().iter();
        Self { store, blocks, branches: Vec::new(), end: 0, bytes: Vec::new() }
    }

    /// Returns the next block or branch.
    fn next(&mut self) -> Option<SeriesBlock> {
        while let Some(branch) = self.branches.last_mut() {
            match branch.next() {
                Some(block) => return Some(block),
                None => self.branches.pop(),
            };
        }
        self.blocks.next().copied()
    }

    /// Reads a block; `None` for a branch, whose blocks are next.
    fn enter(&mut self, block: &SeriesBlock) -> Option<&[u8]> {
        if block.is_branch && self.branches.len() >= MAX_DEPTH {
            return None;
        }
        self.store.read(block.at(), &mut self.bytes);
        if block.is_branch {
            let mut reader = BlockReader {
                reader: Reader::new(&self.bytes),
                file_bytes: block.offset,
                end: 0,
                end_time: block.summary.start,
            };
            let blocks = std::iter::from_fn(|| reader.next()).take(BRANCH_BLOCKS);
            let is_within = |child: &SeriesBlock| child.summary.end <= block.summary.end;
            self.branches.push(blocks.take_while(is_within).collect::<Vec<_>>().into_iter());
            return None;
        }
        if block.offset < self.end {
            self.blocks = [].iter();
            self.branches.clear();
            return None;
        }
        self.end = block.offset.saturating_add(block.bytes.into());
        Some(&self.bytes)
    }
}

/// The items of one track.
#[derive(Debug, Default)]
pub(crate) struct Series {
    kind: ValueKind,
    blocks: Vec<SeriesBlock>,
    /// The newest items, which are in no block yet.
    open: Vec<Item>,
    end: i64,
    count: u64,
}

/// A time span in nanoseconds, and the width of a pixel in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) pixel_ns: u64,
}

impl Window {
    const fn overlaps(&self, start: i64, end: i64) -> bool {
        start <= self.to && end >= self.from
    }
}

/// A part of a track as it is drawn: one item, or several that share a pixel.
pub(crate) type Segment = Summary;

impl Series {
    pub(crate) fn new(kind: ValueKind) -> Self {
        Self { kind, end: i64::MIN, ..Self::default() }
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of items that are in no block.
    pub(crate) fn open_items(&self) -> usize {
        self.open.len()
    }

    /// Returns the memory of the items that are in no block.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open.capacity().saturating_mul(size_of::<Item>())
    }

    /// Adds an item. One that begins before the end of the last is shortened at its start. Returns the
    /// duration that is left.
    pub(crate) fn push(&mut self, mut item: Item, store: &mut Store) -> u64 {
        if self.count > 0 && item.start < self.end {
            let end = item.end();
            item.start = self.end;
            item.duration = u64::try_from(end.saturating_sub(self.end)).unwrap_or(0);
        }
        self.end = item.end();
        self.count = self.count.saturating_add(1);
        self.open.push(item);
        if self.open.len() >= BLOCK_ITEMS {
            self.close_block(store);
        }
        item.duration
    }

    /// Writes the newest items to the file, which frees their memory.
    pub(crate) fn close_block(&mut self, store: &mut Store) {
        if self.open.is_empty() {
            return;
        }
        let mut heads: Vec<u8> = Vec::with_capacity(self.open.len().div_ceil(FANOUT) * GROUP_HEAD_BYTES);
        let mut body: Vec<u8> = Vec::with_capacity(self.open.len() * 6);
        let mut whole = Summary::default();
        for group in self.open.chunks(FANOUT) {
            let summary = Summary::of_items(group, self.kind);
            let begin = body.len();
            encode_items(group, summary.start, &mut body);
            summary.put(&mut heads);
            let bytes = u32::try_from(body.len() - begin).unwrap_or(0);
            heads.extend_from_slice(&bytes.to_le_bytes());
            whole.add(&summary, self.kind);
        }
        heads.extend_from_slice(&body);
        let at = store.append(&heads);
        if self.blocks.len() == self.blocks.capacity() {
            self.blocks.reserve_exact((self.blocks.len() / 4).max(1));
        }
        self.blocks.push(SeriesBlock::new(at, false, whole));
        self.open = Vec::new();
    }

    /// Returns for how many blocks there is memory.
    pub(crate) fn block_capacity(&self) -> usize {
        self.blocks.capacity()
    }

    /// Writes the list of blocks to the file, which frees its memory. Branches take its place.
    pub(crate) fn write_branches(&mut self, store: &mut Store) {
        if self.blocks.len() < 2 {
            return;
        }
        let mut branches = Vec::with_capacity(self.blocks.len().div_ceil(BRANCH_BLOCKS));
        let mut bytes = Vec::new();
        for blocks in self.blocks.chunks(BRANCH_BLOCKS) {
            let mut whole = Summary::default();
            bytes.clear();
            for block in blocks {
                block.put(&mut bytes);
                whole.add(&block.summary, self.kind);
            }
            branches.push(SeriesBlock::new(store.append(&bytes), true, whole));
        }
        self.blocks = branches;
    }

    /// Returns what is drawn of the track in a window: at most a few segments per pixel.
    pub(crate) fn segments(&self, window: Window, store: &Store) -> Vec<Segment> {
        let mut drawing =
            Drawing { window, kind: self.kind, segments: Vec::new(), current: Summary::default() };
        let mut walk = BlockWalk::new(&self.blocks, window.from, store);
        while let Some(block) = walk.next() {
            if block.summary.start > window.to || drawing.is_full() {
                break;
            }
            if block.summary.end < window.from {
                continue;
            }
            if drawing.accepts_whole(&block.summary) {
                drawing.add(&block.summary);
                continue;
            }
            if let Some(items) = walk.enter(&block) {
                draw_block(items, block.summary.count, &mut drawing);
            }
        }
        for item in &self.open {
            if drawing.window.overlaps(item.start, item.end()) && !drawing.is_full() {
                drawing.add(&Summary::of_item(item, self.kind));
            }
        }
        drawing.finish()
    }

    /// Calls `on_item` for each item that overlaps a span, in time order, until it returns false.
    pub(crate) fn for_each(&self, from: i64, to: i64, store: &Store, mut on_item: impl FnMut(Item) -> bool) {
        let mut walk = BlockWalk::new(&self.blocks, from, store);
        while let Some(block) = walk.next().filter(|block| block.summary.start <= to) {
            if block.summary.end < from {
                continue;
            }
            let Some(bytes) = walk.enter(&block) else { continue };
            for (summary, mut items) in Groups::new(bytes, block.summary.count) {
                if summary.end < from || summary.start > to {
                    continue;
                }
                let mut decoder = ItemDecoder { previous: summary.start, value: 0 };
                for _ in 0..summary.count.min(FANOUT as u64) {
                    let Some(item) = decoder.next(&mut items) else { break };
                    if item.start <= to && item.end() >= from && !on_item(item) {
                        return;
                    }
                }
            }
        }
        for item in self.open.iter().filter(|item| item.start <= to && item.end() >= from) {
            if !on_item(*item) {
                return;
            }
        }
    }

    /// Returns the summary of a span. The two blocks at its edges are read.
    pub(crate) fn summarize(&self, from: i64, to: i64, store: &Store) -> Summary {
        let mut total = Summary::default();
        let mut walk = BlockWalk::new(&self.blocks, from, store);
        while let Some(block) = walk.next().filter(|block| block.summary.start <= to) {
            if block.summary.end < from {
                continue;
            }
            if block.summary.start >= from && block.summary.end <= to {
                total.add(&block.summary, self.kind);
                continue;
            }
            let Some(bytes) = walk.enter(&block) else { continue };
            for (summary, mut items) in Groups::new(bytes, block.summary.count) {
                let mut decoder = ItemDecoder { previous: summary.start, value: 0 };
                for _ in 0..summary.count.min(FANOUT as u64) {
                    let Some(item) = decoder.next(&mut items) else { break };
                    add_clipped(&mut total, item, from, to, self.kind);
                }
            }
        }
        for item in &self.open {
            add_clipped(&mut total, *item, from, to, self.kind);
        }
        total
    }

    pub(crate) fn put(&self, out: &mut impl Put) {
        out.put_varint(self.kind.code());
        out.put_varint(self.blocks.len() as u64);
        self.blocks.iter().for_each(|block| block.put(out));
    }

    /// Reads what [`Self::put`] has written, after all blocks were closed.
    pub(crate) fn read(reader: &mut Reader<'_>, file_bytes: u64) -> Option<Self> {
        let kind = match reader.varint()? {
            0 => ValueKind::Classes,
            1 => ValueKind::Numbers,
            _ => return None,
        };
        let mut series = Self::new(kind);
        let count = reader.count_up_to(reader.rest().len() / SUMMARY_BYTES)?;
        series.blocks.reserve_exact(count);
        let mut blocks = BlockReader { reader: reader.clone(), file_bytes, end: 0, end_time: i64::MIN };
        for _ in 0..count {
            let block = blocks.next()?;
            series.count = series.count.checked_add(block.summary.count)?;
            series.blocks.push(block);
        }
        series.end = blocks.end_time;
        *reader = blocks.reader;
        Some(series)
    }
}

/// Adds the part of an item that lies in a span.
fn add_clipped(total: &mut Summary, item: Item, from: i64, to: i64, kind: ValueKind) {
    if item.start > to || item.end() < from {
        return;
    }
    let (start, end) = (item.start.max(from), item.end().min(to));
    let duration = u64::try_from(end.saturating_sub(start)).unwrap_or(0);
    total.add(&Summary::of_item(&Item { start, duration, value: item.value }, kind), kind);
}

fn encode_items(items: &[Item], start: i64, out: &mut Vec<u8>) {
    let (mut previous, mut value) = (start, 0_u64);
    for item in items {
        out.put_varint(item.start.saturating_sub(previous).unsigned_abs());
        out.put_varint(item.duration);
        out.put_signed(item.value.wrapping_sub(value).cast_signed());
        (previous, value) = (item.end(), item.value);
    }
}

struct ItemDecoder {
    /// End of the item before.
    previous: i64,
    value: u64,
}

impl ItemDecoder {
    #[inline]
    fn next(&mut self, reader: &mut Reader<'_>) -> Option<Item> {
        let start = self.previous.saturating_add_unsigned(reader.varint()?);
        let duration = reader.varint()?;
        self.value = self.value.wrapping_add(reader.signed()?.cast_unsigned());
        let item = Item { start, duration, value: self.value };
        self.previous = item.end();
        Some(item)
    }
}

/// The groups of a block: the summary of each and its encoded items.
struct Groups<'b> {
    heads: Reader<'b>,
    body: &'b [u8],
    left: usize,
}

impl<'b> Groups<'b> {
    fn new(bytes: &'b [u8], items: u64) -> Self {
        let groups = usize::try_from(items.min(BLOCK_ITEMS as u64)).unwrap_or(0).div_ceil(FANOUT);
        let (heads, body) = bytes.split_at_checked(groups * GROUP_HEAD_BYTES).unwrap_or_default();
        Self { heads: Reader::new(heads), body, left: groups }
    }
}

impl<'b> Iterator for Groups<'b> {
    type Item = (Summary, Reader<'b>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let summary = Summary::read(&mut self.heads)?;
        let (bytes, rest) = self.heads.rest().split_first_chunk::<4>()?;
        self.heads = Reader::new(rest);
        let (items, body) = self.body.split_at_checked(u32::from_le_bytes(*bytes) as usize)?;
        self.body = body;
        Some((summary, Reader::new(items)))
    }
}

fn draw_block(bytes: &[u8], items: u64, drawing: &mut Drawing) {
    for (summary, mut items) in Groups::new(bytes, items) {
        if drawing.is_full() {
            return;
        }
        if !drawing.window.overlaps(summary.start, summary.end) {
            continue;
        }
        if drawing.accepts_whole(&summary) {
            drawing.add(&summary);
            continue;
        }
        let mut decoder = ItemDecoder { previous: summary.start, value: 0 };
        for _ in 0..summary.count.min(FANOUT as u64) {
            let Some(item) = decoder.next(&mut items) else { break };
            if drawing.window.overlaps(item.start, item.end()) {
                drawing.add(&Summary::of_item(&item, drawing.kind));
            }
        }
    }
}

/// Collects segments from left to right.
struct Drawing {
    window: Window,
    kind: ValueKind,
    segments: Vec<Segment>,
    /// What shares the current pixel.
    current: Summary,
}

impl Drawing {
    fn is_full(&self) -> bool {
        self.segments.len() >= MAX_SEGMENTS
    }

    /// Returns whether a node need not be replaced by what it consists of.
    fn accepts_whole(&self, node: &Summary) -> bool {
        node.width() <= self.window.pixel_ns && self.window.overlaps(node.start, node.end)
    }

    fn pixel(&self, time: i64) -> u64 {
        u64::try_from(time.saturating_sub(self.window.from)).unwrap_or(0) / self.window.pixel_ns.max(1)
    }

    fn add(&mut self, node: &Summary) {
        let is_wide = node.width() > self.window.pixel_ns;
        let shares = self.current.count > 0
            && !is_wide
            && self.current.width() <= self.window.pixel_ns
            && self.pixel(self.current.start) == self.pixel(node.start);
        if !shares {
            self.end_segment();
        }
        self.current.add(node, self.kind);
    }

    fn end_segment(&mut self) {
        if self.current.count > 0 {
            self.segments.push(self.current);
            self.current = Summary::default();
        }
    }

    fn finish(mut self) -> Vec<Segment> {
        self.end_segment();
        self.segments
    }
}

#[cfg(test)]
mod tests;
