//! Fuzzes untrusted security descriptors and SIDs: what parses can be encoded, and parses to the
//! same value again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_format::security::{SecurityDescriptor, Sid};

fuzz_target!(|data: &[u8]| {
    if let Ok(descriptor) = SecurityDescriptor::parse(data) {
        let lists = [&descriptor.sacl, &descriptor.dacl];
        let entries: usize = lists.into_iter().flatten().map(|list| list.entries.len()).sum();
        // Both lists may share bytes; an entry has at least sixteen.
        assert!(entries <= data.len() / 8, "no more entries than there are bytes for");
        if let Ok(bytes) = descriptor.to_bytes() {
            let back = SecurityDescriptor::parse(&bytes).expect("our own bytes");
            assert_eq!(back, descriptor, "what was written reads back");
            assert_eq!(back.to_bytes().expect("as before"), bytes, "and writes to the same bytes");
        }
    }
    if let Ok(sid) = Sid::parse(data) {
        assert_eq!(sid.to_bytes(), data, "a SID has one form");
        assert_eq!(sid.to_string().parse(), Ok(sid));
    }
    if let Ok(sid) = String::from_utf8_lossy(data).parse::<Sid>() {
        assert_eq!(Sid::parse(&sid.to_bytes()), Ok(sid));
    }
});
