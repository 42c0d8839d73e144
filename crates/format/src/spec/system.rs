//! The kernel's own providers, which are enabled on system loggers only.
//!
//! Source: Documented ("System Providers", evntrace.h of the SDK 20348).

use crate::guid::Guid;

/// The names and GUIDs of the system providers; a name stands between `System` and `ProviderGuid`.
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

/// Whether a provider is one of the kernel's own.
#[must_use]
pub fn is_system_provider(provider: &Guid) -> bool {
    SYSTEM_PROVIDERS.iter().any(|(_, guid)| guid == provider)
}
