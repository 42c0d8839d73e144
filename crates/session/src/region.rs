//! Chooses the ring size of each process: early processes get the configured size, later ones less,
//! the last ones none.
//!
//! ```text
//!   memory / 4 ├──────────── budget ────────────┤
//!              ├── large rings ──┼── smallest ──┤ none
//!               each region at      room for two   the region only counts lost events
//!               most an eighth of   of the
//!               what is left of     largest
//!               this half; rings    records
//!               halved until it
//!               fits
//! ```
//!
//! Regions are sparse: a page of a ring takes memory once an event is written to it, and is given
//! back when few events come. So address space costs no memory. The limit applies to the memory
//! that regions *can* use if every process is busy at once:
//!
//! - G1 The memory of a region is that of the rings that can fill: one for each online CPU. A
//!   thread writes either to the rings of restartable sequences or to the locked rings, and nearly
//!   always all threads of a process use the same kind. (If a process fills both kinds, the kernel
//!   charges that memory to the process.)
//! - G2 The sum stays within a quarter of the machine's memory, the same share that the buffers of
//!   a session may have.
//! - G3 Half of this share is kept for the smallest rings, so that thousands of processes have
//!   rings before one has none.
//! - G4 Many processes may create a region of the announced size before the session adopts the
//!   first one. So adopted regions may also use half of the memory that is kept for the smallest
//!   rings. A process that has ended fills no more memory, so its region is adopted even if the
//!   memory is used up: otherwise its events would be lost.
//! - G5 Address space has a much higher limit, which includes processes that have ended: a session
//!   with huge rings on many CPUs must not use up the address space of its owner.

use std::sync::{Mutex, PoisonError};

use traceweir_transport::abi::{Layout, RegionParams};

use crate::error::Result;

/// Address space of all regions of a session, in bytes: a hundredth of that of a process.
const MAX_ADDRESS_BYTES: u64 = 1 << 40;
/// Number of shares into which the budget that is left for large regions is divided. A large region
/// takes at most one share.
const LARGE_REGION_SHARES: u64 = 8;

/// Memory and address space of regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionCost {
    /// Bytes that can become memory.
    memory_bytes: u64,
    /// Bytes of address space.
    address_bytes: u64,
}

impl RegionCost {
    fn saturating_add(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            address_bytes: self.address_bytes.saturating_add(other.address_bytes),
        }
    }

    fn saturating_sub(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
            address_bytes: self.address_bytes.saturating_sub(other.address_bytes),
        }
    }

    fn divided_by(self, divisor: u64) -> Self {
        let part = |bytes: u64| bytes.checked_div(divisor).unwrap_or(0);
        Self { memory_bytes: part(self.memory_bytes), address_bytes: part(self.address_bytes) }
    }

    fn fits(self, available: Self) -> bool {
        self.memory_bytes <= available.memory_bytes && self.address_bytes <= available.address_bytes
    }
}

/// Layout and total cost of a session's regions.
#[derive(Debug)]
pub(crate) struct Regions {
    largest: RegionParams,
    /// Bytes of the smallest useful ring.
    min_ring_bytes: u32,
    online_cpus: u16,
    budget: RegionCost,
    used: Mutex<RegionCost>,
}

impl Regions {
    /// Creates the layout rules: the first regions are like `largest`, later ones have smaller
    /// rings of at least `min_ring_bytes` bytes. All regions together get a quarter of
    /// `machine_memory_bytes`.
    pub(crate) fn new(
        largest: RegionParams,
        min_ring_bytes: u32,
        online_cpus: u16,
        machine_memory_bytes: u64,
    ) -> Self {
        let budget = RegionCost { memory_bytes: machine_memory_bytes / 4, address_bytes: MAX_ADDRESS_BYTES };
        Self { largest, min_ring_bytes, online_cpus, budget, used: Mutex::default() }
    }

    /// Returns the largest region layout.
    pub(crate) fn largest_params(&self) -> &RegionParams {
        &self.largest
    }

    /// Claims the next region. Returns its layout, and its cost, which counts until it is [given
    /// back](Self::give_back).
    pub(crate) fn claim(&self) -> Result<(RegionParams, RegionCost)> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let (params, cost) = self.choose_next(*used)?;
        *used = used.saturating_add(cost);
        Ok((params, cost))
    }

    /// Returns the layout that the next region would have.
    pub(crate) fn preview(&self) -> Result<RegionParams> {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        self.choose_next(used).map(|(params, _)| params)
    }

    /// Claims a region that a process has created with the layout of an earlier
    /// [preview](Self::preview). Returns its cost; `None` if the layout does not belong to this
    /// session, the address space is used up, or the memory is used up and the process still runs.
    pub(crate) fn claim_existing(&self, params: &RegionParams, has_ended: bool) -> Option<RegionCost> {
        let ring_bytes = params.layout.ring_bytes();
        let is_ours = ring_bytes > 0
            && ring_bytes <= self.largest.layout.ring_bytes()
            && with_ring_bytes(&self.largest, ring_bytes).is_ok_and(|ours| ours == *params);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let cost = self.cost_of(params);
        // Large rings may use half of the half that is kept for the smallest rings (G4).
        let is_large = ring_bytes > self.min_ring_bytes && !has_ended;
        let reserve = if is_large { self.budget.divided_by(4) } else { RegionCost::default() };
        let mut available = self.budget.saturating_sub(reserve).saturating_sub(*used);
        if has_ended {
            available.memory_bytes = u64::MAX;
        }
        let fits = cost.fits(available);
        if !is_ours || !fits {
            return None;
        }
        *used = used.saturating_add(cost);
        Some(cost)
    }

    fn choose_next(&self, used: RegionCost) -> Result<(RegionParams, RegionCost)> {
        let share = self.budget.divided_by(2).saturating_sub(used).divided_by(LARGE_REGION_SHARES);
        let mut params = self.largest;
        while params.layout.ring_bytes() > self.min_ring_bytes && !self.cost_of(&params).fits(share) {
            params = with_ring_bytes(&params, params.layout.ring_bytes() / 2)?;
        }
        let cost = self.cost_of(&params);
        if !cost.fits(self.budget.saturating_sub(used)) {
            return Ok((with_ring_bytes(&params, 0)?, RegionCost::default()));
        }
        Ok((params, cost))
    }

    /// Gives the cost of a region back.
    pub(crate) fn give_back(&self, cost: RegionCost) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        *used = used.saturating_sub(cost);
    }

    fn cost_of(&self, params: &RegionParams) -> RegionCost {
        let rings = u64::from(params.layout.cpus().min(self.online_cpus).max(1));
        let memory_bytes = u64::from(params.layout.ring_bytes()).saturating_mul(rings);
        RegionCost { memory_bytes, address_bytes: params.layout.region_bytes() as u64 }
    }
}

/// Returns the parameters with another ring size. A ring still wakes its owner at the same fraction
/// of its size, or at the first record.
fn with_ring_bytes(params: &RegionParams, ring_bytes: u32) -> Result<RegionParams> {
    let wakes_at_once = params.wake_at <= 1;
    let wake_at = if wakes_at_once { params.wake_at } else { wake_at_bytes(ring_bytes) };
    Ok(RegionParams { layout: Layout::new(params.layout.cpus(), ring_bytes)?, wake_at, ..*params })
}

/// Returns the number of unread bytes at which a ring wakes its owner, unless low latency is
/// requested.
pub(crate) const fn wake_at_bytes(ring_bytes: u32) -> u32 {
    ring_bytes / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_transport::clock::Counter;

    const GIB: u64 = 1 << 30;
    const MIN_RING_BYTES: u32 = 256 << 10;

    /// Regions for `cpus` CPUs, of which `online` are online.
    fn test_regions(ring_bytes: u32, cpus: u16, online: u16, memory: u64) -> Regions {
        let layout = Layout::new(cpus, ring_bytes).unwrap();
        let params = RegionParams {
            layout,
            clock: Counter::Cycles,
            wake_at: wake_at_bytes(ring_bytes),
            max_record: 65_535,
        };
        Regions::new(params, MIN_RING_BYTES, online, memory)
    }

    /// Ring sizes of `processes` processes, one after the other.
    fn claim_ring_sizes(regions: &Regions, processes: usize) -> Vec<u32> {
        (0..processes).map(|_| regions.claim().unwrap().0.layout.ring_bytes()).collect()
    }

    #[test]
    fn rings_shrink_with_each_process_down_to_the_smallest() {
        for (cpus, online, memory) in
            [(2, 2, GIB), (4, 4, 16 * GIB), (128, 2, 8 * GIB), (128, 128, 256 * GIB)]
        {
            let regions = test_regions(1 << 20, cpus, online, memory);
            let sizes = claim_ring_sizes(&regions, 200);
            assert_eq!(sizes[0], 1 << 20, "{cpus} processors");
            assert!(sizes.is_sorted_by(|a, b| a >= b), "{cpus} processors: {sizes:?}");
            assert!(sizes[199] >= MIN_RING_BYTES, "{cpus} processors");
        }
    }

    #[test]
    fn rings_stay_within_quarter_of_memory() {
        let regions = test_regions(8 << 20, 2, 2, 4 * GIB);
        let sizes = claim_ring_sizes(&regions, 3000);
        let sum: u64 = sizes.iter().map(|&size| 2 * u64::from(size)).sum();
        assert!(sum <= GIB && sum > GIB - u64::from(4 * MIN_RING_BYTES), "{sum}");
        let with_rings = sizes.iter().filter(|&&size| size > 0).count();
        assert!(with_rings > 1000, "{with_rings} processes have rings");
        assert_eq!(sizes.last(), Some(&0));
    }

    #[test]
    fn returned_region_can_be_claimed_again() {
        let regions = test_regions(8 << 20, 2, 2, GIB);
        let (first, cost) = regions.claim().unwrap();
        let others: Vec<_> = std::iter::repeat_with(|| regions.claim().unwrap())
            .take_while(|(params, _)| params.layout.ring_bytes() > 0)
            .collect();
        assert_eq!(regions.claim().unwrap().1, RegionCost::default());
        for (_, cost) in others {
            regions.give_back(cost);
        }
        regions.give_back(cost);
        assert_eq!(regions.claim().unwrap(), (first, cost));
    }

    #[test]
    fn adopted_region_uses_the_budget_and_must_have_a_session_layout() {
        let regions = test_regions(8 << 20, 2, 2, 4 * GIB);
        let preview = regions.preview().unwrap();
        assert_eq!(regions.preview().unwrap(), preview, "the preview claimed a region");
        let cost = regions.claim_existing(&preview, false).unwrap();
        regions.give_back(cost);
        assert_eq!(regions.claim().unwrap(), (preview, cost));
        let larger = with_ring_bytes(&preview, 16 << 20).unwrap();
        let (eager, empty) = (RegionParams { wake_at: 3, ..preview }, with_ring_bytes(&preview, 0).unwrap());
        for other in [larger, eager, empty, RegionParams { max_record: 1 << 30, ..preview }] {
            for has_ended in [false, true] {
                assert_eq!(regions.claim_existing(&other, has_ended), None, "{other:?}");
            }
        }
        // At most 1000, so that a missing limit fails the test.
        let claimed =
            std::iter::from_fn(|| regions.claim_existing(&preview, false)).take(1000).count() as u64;
        // One region was claimed above. A region costs two rings of 8 MiB. A quarter of the budget
        // is left for the smallest rings.
        assert_eq!((claimed + 1) * 16 * (1 << 20), GIB / 4 * 3);
        assert!(regions.claim().unwrap().0.layout.ring_bytes() == MIN_RING_BYTES);
        assert_eq!(
            regions.claim_existing(&preview, true),
            Some(cost),
            "the region of an ended process is refused"
        );
    }

    #[test]
    fn huge_rings_stay_within_address_limit() {
        let regions = test_regions(1 << 28, 1024, 1, 1 << 50);
        let sum: u64 = (0..2000).map(|_| regions.claim().unwrap().1.address_bytes).sum();
        assert!(sum <= MAX_ADDRESS_BYTES);
        assert!(claim_ring_sizes(&regions, 1)[0] < 1 << 28);
    }

    #[test]
    fn regions_of_ended_processes_stay_within_address_limit() {
        let regions = test_regions(1 << 28, 1024, 1, 1 << 50);
        let largest = *regions.largest_params();
        let claims = std::iter::from_fn(|| regions.claim_existing(&largest, true)).take(1000);
        let sum: u64 = claims.map(|cost| cost.address_bytes).sum();
        assert!(sum > 0 && sum <= MAX_ADDRESS_BYTES, "{sum:#x}");
    }

    #[test]
    fn smaller_ring_keeps_wake_fraction_or_immediate_wake() {
        let mut regions = test_regions(8 << 20, 2, 2, 256 << 20);
        let (params, _) = regions.claim().unwrap();
        assert!(params.layout.ring_bytes() < 8 << 20);
        assert_eq!(params.wake_at, params.layout.ring_bytes() / 4);
        regions.largest.wake_at = 1;
        assert_eq!(regions.claim().unwrap().0.wake_at, 1);
    }
}
