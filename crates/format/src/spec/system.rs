//! The system providers, which can be enabled on system loggers only.
//!
//! Source: Documented ("System Providers", evntrace.h of the SDK 20348).

mod groups;

pub use groups::{GROUP_TWINS, KERNEL_GROUPS, SYSTEM_KEYWORDS, SystemKeyword, group_word};

use crate::guid::Guid;

/// A mask of kernel event groups (PERFINFO_GROUPMASK, 32 bytes).
pub type GroupMask = [u32; 8];

/// The names and GUIDs of the system providers; the published constant is `System` + name +
/// `ProviderGuid`.
pub const SYSTEM_PROVIDERS: [(&str, Guid); 17] = [
    ("Alpc", Guid::from_u128(0xfcb9baaf_e529_4980_92e9_ced1a6aadfdf)),
    ("Config", Guid::from_u128(0xfef3a8b6_318d_4b67_a96a_3b0f6b8f18fe)),
    ("Cpu", Guid::from_u128(0xc6c5265f_eae8_4650_aae4_9d48603d8510)),
    ("Hypervisor", Guid::from_u128(0xbafa072a_918a_4bed_b622_bc152097098f)),
    ("Interrupt", Guid::from_u128(0xd4bbee17_b545_4888_858b_744169015b25)),
    ("Io", Guid::from_u128(0x3d5c43e3_0f1c_4202_b817_174c0070dc79)),
    ("IoFilter", Guid::from_u128(0xfbd09363_9e22_4661_b8bf_e7a34b535b8c)),
    ("Lock", Guid::from_u128(0x721ddfd3_dacc_4e1e_b26a_a2cb31d4705a)),
    ("Memory", Guid::from_u128(0x82958ca9_b6cd_47f8_a3a8_03ae85a4bc24)),
    ("Object", Guid::from_u128(0xfebd7460_3d1d_47eb_af49_c9eeb1e146f2)),
    ("Power", Guid::from_u128(0xc134884a_32d5_4488_80e5_14ed7abb8269)),
    ("Process", Guid::from_u128(0x151f55dc_467d_471f_83b5_5f889d46ff66)),
    ("Profile", Guid::from_u128(0xbfeb0324_1cee_496f_a409_2ac2b48a6322)),
    ("Registry", Guid::from_u128(0x16156bd9_fab4_4cfa_a232_89d1099058e3)),
    ("Scheduler", Guid::from_u128(0x599a2a76_4d91_4910_9ac7_7d33f2e97a6c)),
    ("Syscall", Guid::from_u128(0x434286f7_6f1b_45bb_b37e_95f623046c7c)),
    ("Timer", Guid::from_u128(0x4f061568_e215_499f_ab2e_eda0ae890a5b)),
];

/// Returns whether a provider is a system provider.
#[must_use]
pub fn is_system_provider(provider: &Guid) -> bool {
    SYSTEM_PROVIDERS.iter().any(|(_, guid)| guid == provider)
}

/// The bit NO_SYSCONFIG, which is not a group: it keeps the configuration of the machine out of a
/// trace.
pub const NO_SYSCONFIG: u32 = 0x1000_0000;

/// Groups that a user without privileges may trace for processes of the same user, as EnableFlags:
/// processes, threads, images, context switches, samples, page faults.
pub const OWN_GROUPS: u32 = 0x0100_3017;

/// The least number of stack copies that a perf ring holds if the daemon's locked-memory limit
/// restricts the ring. Copies are made smaller until this many fit.
pub const LIMITED_RING_COPIES: u32 = 32;

/// Groups that imply another group: DRIVER and MEMORY include DISK_FILE_IO.
const IMPLIED_GROUPS: [(u32, u32); 2] = [(0x0080_0000, 0x200), (0x2000_0001, 0x200)];

/// Returns the groups of kernel events that an enable of a system provider selects: the groups of
/// its keywords that pass both masks. A `match_any` of 0 passes all keywords. `None` if the
/// provider is not a system provider.
#[must_use]
pub fn groups_of(provider: &Guid, match_any: u64, match_all: u64) -> Option<GroupMask> {
    let (name, _) = SYSTEM_PROVIDERS.iter().find(|(_, guid)| guid == provider)?;
    let mut mask = GroupMask::default();
    for keyword in SYSTEM_KEYWORDS.iter().filter(|keyword| keyword.provider == *name) {
        let passes_any = match_any == 0 || keyword.bit & match_any != 0;
        if passes_any && keyword.bit & match_all == match_all && keyword.group != 0 {
            add_group(&mut mask, keyword.group);
        }
    }
    for (group, implied) in IMPLIED_GROUPS {
        if has_group(&mask, group) {
            add_group(&mut mask, implied);
        }
    }
    Some(mask)
}

/// Returns the keywords of a system provider whose groups a mask contains.
#[must_use]
pub fn keywords_in(provider: &Guid, mask: &GroupMask) -> u64 {
    let name = SYSTEM_PROVIDERS.iter().find(|(_, guid)| guid == provider).map(|(name, _)| *name);
    let is_selected = |keyword: &&SystemKeyword| {
        Some(keyword.provider) == name && keyword.group != 0 && has_group(mask, keyword.group)
    };
    SYSTEM_KEYWORDS.iter().filter(is_selected).fold(0, |bits, keyword| bits | keyword.bit)
}

/// Adds a group to a mask.
pub fn add_group(mask: &mut GroupMask, group: u32) {
    let (word, bits) = group_word(group);
    if let Some(word) = mask.get_mut(word) {
        *word |= bits;
    }
}

/// Returns whether a mask contains a group.
#[must_use]
pub fn has_group(mask: &GroupMask, group: u32) -> bool {
    let (word, bits) = group_word(group);
    mask.get(word).is_some_and(|word| word & bits != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(name: &str) -> Guid {
        SYSTEM_PROVIDERS.iter().find(|(known, _)| *known == name).unwrap().1
    }

    #[test]
    fn each_keyword_has_a_unique_bit_and_a_named_group() {
        for (index, keyword) in SYSTEM_KEYWORDS.iter().enumerate() {
            let has_same_provider = |other: &&SystemKeyword| other.provider == keyword.provider;
            let earlier = SYSTEM_KEYWORDS[..index].iter().filter(has_same_provider).count();
            assert_eq!(keyword.bit, 1 << earlier, "{keyword:?}");
            assert!(SYSTEM_PROVIDERS.iter().any(|(name, _)| *name == keyword.provider), "{keyword:?}");
            let has_name = KERNEL_GROUPS.iter().any(|(group, _)| *group == keyword.group);
            assert!(has_name || keyword.group == 0, "{keyword:?}");
        }
        for (index, (group, name)) in KERNEL_GROUPS.iter().enumerate() {
            assert_eq!(group_word(*group).1.count_ones(), 1, "{name}");
            assert!(
                KERNEL_GROUPS[..index].iter().all(|other| other.0 != *group && other.1 != *name),
                "{name}"
            );
        }
    }

    #[test]
    fn keywords_select_groups_and_implied_groups() {
        let (io, memory, process, scheduler) =
            (provider("Io"), provider("Memory"), provider("Process"), provider("Scheduler"));
        assert_eq!(groups_of(&process, 0x1801, 0), Some([7, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(groups_of(&scheduler, 0x280, 0), Some([0x10, 0x2000, 0, 0, 0, 0, 0, 0]));
        assert_eq!(
            groups_of(&io, 0x80, 0),
            Some([0x0080_0200, 0, 0, 0, 0, 0, 0, 0]),
            "the driver group does not include file names"
        );
        assert_eq!(groups_of(&memory, 1, 0), Some([0x200, 1, 0, 0, 0, 0, 0, 0]));
        assert_eq!(
            groups_of(&scheduler, 1, 0),
            Some([0; 8]),
            "a keyword without a known group selects a group"
        );
        assert_eq!(groups_of(&Guid::NULL, 1, 0), None);
    }

    #[test]
    fn empty_any_mask_selects_all_keywords_that_pass_the_all_mask() {
        let process = provider("Process");
        let all = groups_of(&process, 0, 0).unwrap();
        assert!([1, 2, 4, 8, 0x40000, 0x80000].iter().all(|group| has_group(&all, *group)));
        assert_eq!(groups_of(&process, 0, 1), Some([1, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(groups_of(&process, 1, 3), Some([0; 8]), "a keyword without both bits passes");
    }
}
