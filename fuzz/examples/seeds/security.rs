//! Descriptors of each shape, and SIDs as bytes and as text.

use traceweir_format::security::{Ace, AceKind, Acl, SecurityDescriptor, Sid};
use traceweir_format::spec::access::Rights;

use super::Seeds;

pub(super) fn all() -> Seeds {
    let root = Some(Sid::SYSTEM);
    let mut dacl = Acl::default();
    dacl.add(Ace::new(AceKind::Allow, Sid::SYSTEM, Rights::WMIGUID_ALL_ACCESS));
    dacl.add(Ace::new(AceKind::Allow, Sid::group(91), Rights::TRACELOG_GUID_ENABLE));
    dacl.add(Ace::new(AceKind::Deny, Sid::user(1000), Rights::TRACELOG_REGISTER_GUIDS));
    dacl.add(Ace::new(AceKind::Allow, Sid::EVERYONE, Rights(0x1800)));
    let sacl =
        Acl { entries: vec![Ace { flags: 0xC0, ..Ace::new(AceKind::Audit, Sid::EVERYONE, Rights(1)) }] };
    let (dacl, sacl) = (Some(dacl), Some(sacl));
    let bytes = |descriptor: SecurityDescriptor| descriptor.to_bytes().expect("a small descriptor");
    let usual = SecurityDescriptor { owner: root, group: root, dacl: dacl.clone(), ..Default::default() };
    vec![
        ("usual", bytes(usual)),
        ("both", bytes(SecurityDescriptor { control: 0x2C00, owner: root, group: root, sacl, dacl })),
        ("empty", bytes(SecurityDescriptor { dacl: Some(Acl::default()), ..Default::default() })),
        ("none", bytes(SecurityDescriptor::default())),
        ("sid", Sid::user(1000).to_bytes()),
        ("text", b"S-1-5-21-1-2-3-500".to_vec()),
    ]
}
