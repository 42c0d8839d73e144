//! Fuzzes untrusted security descriptors and SIDs: if a parsed descriptor can be encoded, its
//! encoding parses to an equal descriptor; the encoding of every parsed SID parses to an equal SID.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_format::security::{SecurityDescriptor, Sid};

fuzz_target!(|data: &[u8]| {
    if let Ok(descriptor) = SecurityDescriptor::parse(data) {
        let lists = [&descriptor.sacl, &descriptor.dacl];
        let entries: usize = lists.into_iter().flatten().map(|list| list.entries.len()).sum();
        // An entry has at least sixteen bytes, and the SACL and the DACL may share bytes: each list
        // has at most one entry for sixteen bytes, both together two.
        assert!(entries <= data.len() / 8, "there are more entries than the bytes can hold");
        if let Ok(bytes) = descriptor.to_bytes() {
            let back = SecurityDescriptor::parse(&bytes).expect("an encoded descriptor can be parsed");
            assert_eq!(back, descriptor, "the encoded descriptor must read back equal");
            assert_eq!(
                back.to_bytes().expect("the parsed descriptor can be encoded"),
                bytes,
                "the second encoding must be equal"
            );
        }
    }
    if let Ok(sid) = Sid::parse(data) {
        assert_eq!(sid.to_bytes(), data, "a SID must have one encoding");
        assert_eq!(sid.to_string().parse(), Ok(sid));
    }
    if let Ok(sid) = String::from_utf8_lossy(data).parse::<Sid>() {
        assert_eq!(Sid::parse(&sid.to_bytes()), Ok(sid));
    }
});
