//! The registers of a sample, and the event that contains them.

use traceweir_format::kernel::{PayloadLayout, RepeatedValues, hook};
use traceweir_format::put_kernel_event;

/// The layout of the event with registers.
pub(crate) const LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONTEXT_REGISTERS, 2);
/// The value of RegisterTypes in that event: control and integer.
const CONTROL_AND_INTEGER: u32 = 3;

/// The perf numbers of registers, in the order in which they are written.
#[cfg(target_arch = "x86_64")]
mod machine {
    /// RIP, CS, SS, RSP, EFLAGS; RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8 to R15.
    pub(crate) const WRITTEN_REGISTERS: [u8; 20] =
        [8, 10, 11, 7, 9, 0, 1, 2, 3, 4, 5, 6, 16, 17, 18, 19, 20, 21, 22, 23];
}

/// The perf numbers of registers, in the order in which they are written.
#[cfg(target_arch = "aarch64")]
mod machine {
    /// PC, SP; X0 to X30.
    pub(crate) const WRITTEN_REGISTERS: [u8; 33] = [
        32, 31, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
        26, 27, 28, 29, 30,
    ];
}

/// No registers are defined for this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod machine {
    pub(crate) const WRITTEN_REGISTERS: [u8; 0] = [];
}

/// Returns the mask of registers to request.
pub(crate) fn mask() -> u64 {
    machine::WRITTEN_REGISTERS.iter().fold(0, |mask, number| mask | 1 << number)
}

/// Returns the number of registers in the mask.
pub(crate) fn count() -> u32 {
    u32::try_from(machine::WRITTEN_REGISTERS.len()).unwrap_or(0)
}

/// Returns a register of a sample, by its perf number.
pub(crate) fn read_register(regs: &[u8], number: u8) -> Option<u64> {
    // A sample contains the requested registers in the order of their numbers.
    let index = machine::WRITTEN_REGISTERS.iter().filter(|other| **other < number).count();
    machine::WRITTEN_REGISTERS.contains(&number).then_some(())?;
    let word = regs.get(index.checked_mul(8)?..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*word))
}

/// Appends the payload of the event with registers.
pub(crate) fn put_payload(process: u32, thread: u32, regs: &[u8], out: &mut Vec<u8>) {
    let registers =
        machine::WRITTEN_REGISTERS.into_iter().map(|number| read_register(regs, number).unwrap_or(0));
    put_kernel_event!(
        out,
        LAYOUT,
        {
            ProcessId: process,
            ThreadId: thread,
            RegisterTypes: CONTROL_AND_INTEGER,
            RegisterCount: count(),
        },
        { Registers: RepeatedValues(registers) }
    );
}

#[cfg(test)]
mod tests {
    use traceweir_format::wire::u64_at;

    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn registers_are_found_by_number() {
        let mut numbers = machine::WRITTEN_REGISTERS;
        numbers.sort_unstable();
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| u64::from(*n).to_le_bytes()).collect();
        assert!(numbers.iter().all(|n| read_register(&bytes, *n) == Some(u64::from(*n))));
        assert_eq!(read_register(&bytes, 12), None);
        let mut out = Vec::new();
        put_payload(1, 2, &bytes, &mut out);
        assert_eq!(out.len(), 24 + 20 * 8);
        assert_eq!(u64_at(&out, 24), 8, "RIP is not first");
    }
}
