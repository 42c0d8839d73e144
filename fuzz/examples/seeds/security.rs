//! Descriptors of each shape, and SIDs as bytes and as text.

use traceweir_format::security::{Ace, AceKind, Acl, SecurityDescriptor, Sid};
use traceweir_format::spec::access::Rights;

use super::Seeds;

pub(super) fn security_seeds() -> Seeds {
    let root = Some(Sid::SYSTEM);
    let mut dacl = Acl::default();
    dacl.add(Ace::new(AceKind::Allow, Sid::SYSTEM, Rights::WMIGUID_ALL_ACCESS));
    dacl.add(Ace::new(AceKind::Allow, Sid::group(91), Rights::TRACELOG_GUID_ENABLE));
    dacl.add(Ace::new(AceKind::Deny, Sid::user(1000), Rights::TRACELOG_REGISTER_GUIDS));
    dacl.add(Ace::new(AceKind::Allow, Sid::EVERYONE, Rights(0x1800)));
    let sacl =
        Acl { entries: vec![Ace { flags: 0xC0, ..Ace::new(AceKind::Audit, Sid::EVERYONE, Rights(1)) }] };
    let (dacl, sacl) = (Some(dacl), Some(sacl));
    let encode =
        |descriptor: SecurityDescriptor| descriptor.to_bytes().expect("a small descriptor can be encoded");
    let usual = SecurityDescriptor { owner: root, group: root, dacl: dacl.clone(), ..Default::default() };
    vec![
        ("usual", encode(usual)),
        ("both", encode(SecurityDescriptor { control: 0x2C00, owner: root, group: root, sacl, dacl })),
        ("empty", encode(SecurityDescriptor { dacl: Some(Acl::default()), ..Default::default() })),
        ("none", encode(SecurityDescriptor::default())),
        ("sid", Sid::user(1000).to_bytes()),
        ("text", b"S-1-5-21-1-2-3-500".to_vec()),
    ]
}
