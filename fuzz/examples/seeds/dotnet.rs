//! Seeds of method and module events of the .NET runtime.

use traceweir_format::wire::Put;

use crate::Seeds;

/// Appends an event: kind, process, length of the payload, payload.
fn put_event(out: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    out.put_u8(kind).put_u8(1).put_u8(u8::try_from(payload.len()).expect("the payload is short"));
    out.put(payload);
}

fn method_payload(start: u64, size: u32, name: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_u64(7).put_u64(8).put_u64(start).put_u32(size).put_u32(0x0600_0001).put_u32(1);
    payload.put_wide_z("A.B`1").put_wide_z(name).put_wide_z("void  (class [m]C.D,int32[])");
    payload
}

pub(crate) fn dotnet_seeds() -> Seeds {
    let mut life = Vec::new();
    put_event(&mut life, 0, &method_payload(0x1000, 0x100, "Add"));
    put_event(&mut life, 1, &method_payload(0x1000, 0x100, "Add"));
    put_event(&mut life, 0, &method_payload(0x1080, 0x100, "Remove"));
    put_event(&mut life, 2, &method_payload(0x5000, 0x10, "Main"));
    let mut module = Vec::new();
    module.put_u64(8).put_u64(9).put_u32(0).put_u32(0).put_wide_z("C:\\a\\b.dll").put_wide_z("");
    put_event(&mut life, 3, &module);
    let mut hostile = Vec::new();
    put_event(&mut hostile, 0, &method_payload(u64::MAX - 1, u32::MAX, "End"));
    put_event(&mut hostile, 4, &method_payload(0, u32::MAX, ""));
    put_event(&mut hostile, 10, &method_payload(0x10, 0, "Empty"));
    vec![("life", life), ("hostile", hostile)]
}
