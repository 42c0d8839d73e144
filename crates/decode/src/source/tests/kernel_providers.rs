//! Events of the kernel's manifest providers: each row of their table, made from a classic event as
//! captures write it, has the numbers and the fields of its built-in schema.

use traceweir_format::kernel::PayloadLayout;
use traceweir_format::kernel::providers::{EventFacts, KERNEL_PROVIDERS, events_of_provider};
use traceweir_format::put_kernel_event;
use traceweir_format::security::Sid;
use traceweir_format::time::FileTime;

use super::*;
use crate::value::Value;
use crate::walk::{Visitor, Walker};

/// The keyword bit of channel 16, which the schemas leave out.
const CHANNEL_KEYWORD: u64 = 1 << 63;

const PROCESS: PayloadLayout =
    PayloadLayout::shared(&[hook::PROCESS_START, hook::PROCESS_END, hook::PROCESS_DC_START], 4);
const THREAD: PayloadLayout = PayloadLayout::shared(&[hook::THREAD_START, hook::THREAD_END], 3);
const IMAGE: PayloadLayout = PayloadLayout::shared(&[hook::IMAGE_LOAD, hook::IMAGE_UNLOAD], 3);
const NAME: PayloadLayout =
    PayloadLayout::shared(&[hook::FILE_NAME, hook::FILE_NAME_CREATE, hook::FILE_NAME_DELETE], 2);
const CREATE: PayloadLayout = PayloadLayout::new(hook::FILE_CREATE, 3);
const FILE_TRANSFER: PayloadLayout =
    PayloadLayout::shared(&[hook::FILE_READ, hook::FILE_WRITE], 3).truncate_before("ExtraFlags");
const SIMPLE: PayloadLayout =
    PayloadLayout::shared(&[hook::FILE_CLEANUP, hook::FILE_CLOSE, hook::FILE_FLUSH], 3);
const INFO: PayloadLayout = PayloadLayout::shared(
    &[hook::FILE_SET_INFO, hook::FILE_DELETE, hook::FILE_RENAME, hook::FILE_QUERY_INFO],
    3,
);
const DIRECTORY: PayloadLayout = PayloadLayout::new(hook::FILE_DIR_ENUM, 3);
const OPERATION_END: PayloadLayout = PayloadLayout::new(hook::FILE_OPERATION_END, 2);
const TCP_FAIL: PayloadLayout = PayloadLayout::new(hook::TCP_FAIL, 2);
const UDP_FAIL: PayloadLayout = PayloadLayout::new(hook::UDP_FAIL, 2);
const DISK_TRANSFER: PayloadLayout = PayloadLayout::shared(&[hook::DISK_READ, hook::DISK_WRITE], 3);
const DISK_FLUSH: PayloadLayout = PayloadLayout::new(hook::DISK_FLUSH, 3);

/// Defines the layouts of events with IPv4 and with IPv6 addresses.
macro_rules! network_layouts {
    ($v4:ident, $v6:ident: $($hook:ident),+) => {
        const $v4: PayloadLayout = PayloadLayout::shared(&[$(hook::$hook),+], 2);
        const $v6: PayloadLayout = PayloadLayout::shared(&[$(hook::to_ipv6(hook::$hook)),+], 2);
    };
}

network_layouts!(SEND_V4, SEND_V6: TCP_SEND);
network_layouts!(CONNECT_V4, CONNECT_V6: TCP_CONNECT, TCP_ACCEPT);
network_layouts!(PLAIN_V4, PLAIN_V6: TCP_RECEIVE, TCP_DISCONNECT, TCP_RETRANSMIT, TCP_RECONNECT);
network_layouts!(UDP_V4, UDP_V6: UDP_SEND, UDP_RECEIVE);

/// Returns the payload of a classic event, with texts in all fields for them.
fn classic_payload(hook: u16) -> Vec<u8> {
    let mut out = Vec::new();
    /// Appends a payload whose fields are 0, except those that are named.
    macro_rules! put {
        ($layout:ident $(, { $($tail:ident: $value:expr),* })?) => {
            put_kernel_event!(&mut out, $layout, {}, { $($($tail: $value),*)? })
        };
    }
    let is_v6_of = |hooks: &[u16]| hooks.iter().any(|v4| hook == hook::to_ipv6(*v4));
    match hook {
        hook::PROCESS_START | hook::PROCESS_END | hook::PROCESS_DC_START => {
            put!(PROCESS, {
                UserSID: Some(&Sid::user(0)),
                ImageFileName: b"sh".as_slice(),
                CommandLine: "sh -c x",
                PackageFullName: "p",
                ApplicationId: "q"
            });
            // The details that captures add: start ticks, path.
            out.put_u64(77).put_wide_z("/bin/sh");
        }
        hook::THREAD_START | hook::THREAD_END => put!(THREAD, { ThreadName: "t" }),
        hook::IMAGE_LOAD | hook::IMAGE_UNLOAD => put!(IMAGE, { FileName: "/lib/x" }),
        hook::FILE_NAME | hook::FILE_NAME_CREATE | hook::FILE_NAME_DELETE => put!(NAME, { FileName: "/f" }),
        hook::FILE_CREATE => put!(CREATE, { OpenPath: "/f" }),
        hook::FILE_READ | hook::FILE_WRITE => put!(FILE_TRANSFER),
        hook::FILE_CLEANUP | hook::FILE_CLOSE | hook::FILE_FLUSH => put!(SIMPLE),
        hook::FILE_SET_INFO | hook::FILE_DELETE | hook::FILE_RENAME | hook::FILE_QUERY_INFO => put!(INFO),
        hook::FILE_DIR_ENUM => put!(DIRECTORY, { FileName: "*" }),
        hook::FILE_OPERATION_END => put!(OPERATION_END),
        hook::TCP_SEND => put!(SEND_V4),
        hook::TCP_CONNECT | hook::TCP_ACCEPT => put!(CONNECT_V4),
        hook::TCP_RECEIVE | hook::TCP_DISCONNECT | hook::TCP_RETRANSMIT | hook::TCP_RECONNECT => {
            put!(PLAIN_V4);
        }
        hook::UDP_SEND | hook::UDP_RECEIVE => put!(UDP_V4),
        hook::TCP_FAIL => put!(TCP_FAIL),
        hook::UDP_FAIL => put!(UDP_FAIL),
        hook::DISK_READ | hook::DISK_WRITE => put!(DISK_TRANSFER),
        hook::DISK_FLUSH => put!(DISK_FLUSH),
        _ if is_v6_of(&[hook::TCP_SEND]) => put!(SEND_V6),
        _ if is_v6_of(&[hook::TCP_CONNECT, hook::TCP_ACCEPT]) => put!(CONNECT_V6),
        _ if is_v6_of(&[hook::UDP_SEND, hook::UDP_RECEIVE]) => put!(UDP_V6),
        _ if is_v6_of(&[
            hook::TCP_RECEIVE,
            hook::TCP_DISCONNECT,
            hook::TCP_RETRANSMIT,
            hook::TCP_RECONNECT,
        ]) =>
        {
            put!(PLAIN_V6);
        }
        _ => panic!("no layout of {hook:#06x}"),
    }
    out
}

/// The index of the last field that a walk reached.
#[derive(Default)]
struct LastField(Option<usize>);

impl<'p> Visitor<'p> for LastField {
    fn value(&mut self, index: usize, _field: &Field, _value: Value<'p>) {
        self.0 = Some(index);
    }
}

#[test]
fn every_row_has_the_numbers_and_fields_of_its_schema() {
    let facts = EventFacts {
        time: FileTime::default(),
        create_time: FileTime::default(),
        parent_key: 0,
        to_ticks: &|ns| ns,
    };
    let mut decoder = Decoder::new();
    for (name, provider) in KERNEL_PROVIDERS {
        let known = WellKnownProvider::find(&provider).expect(name).parse().unwrap();
        assert_eq!(known.name.as_deref(), Some(name));
        for row in events_of_provider(provider) {
            let label = format!("{name} {} from {:#06x}", row.descriptor.id, row.hook);
            let has_numbers = |d: &EventDescriptor| {
                EventDescriptor { keyword: d.keyword | CHANNEL_KEYWORD, ..*d } == row.descriptor
            };
            assert!(known.events.iter().any(|event| has_numbers(&event.descriptor)), "{label}: numbers");
            let mut payload = Vec::new();
            assert!(row.convert(&classic_payload(row.hook), &facts, &mut payload), "{label}: too short");
            let header = EventHeader { provider, descriptor: row.descriptor, ..Default::default() };
            let record = encode_event(&header, &payload);
            let found = decoder.find(&Record::parse(&record, 0).unwrap()).expect(&label);
            let (schema, mut last) = (&found.prepared.schema, LastField::default());
            let remaining = Walker::default().walk(schema, found.payload, 8, &mut last).expect(&label);
            assert_eq!(remaining.len(), 0, "{label}: bytes after the last field");
            assert_eq!(last.0, schema.fields().len().checked_sub(1), "{label}: fields without bytes");
        }
    }
}
