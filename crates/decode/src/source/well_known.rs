//! Built-in schemas of well-known Windows providers, for events that no other source describes.
//!
//! ```text
//!   GUID ──▶ WELL_KNOWN: name and file ──first event──▶ short schemas ──▶ ProviderSchemas
//! ```
//!
//! A file is parsed when an event or a query first needs one of its providers, so decoders that do
//! not meet these providers pay nothing. `docs/well-known-providers.md` lists the providers and the
//! sources of the facts.

use std::collections::HashMap;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;

use super::provider::ProviderSchemas;
use super::rank::{EARLIEST, SchemaCandidate, SourceRank, choose_schema};
use super::{Decoder, manifest};
use crate::Result;

/// A provider that has built-in schemas.
#[derive(Clone, Copy, Debug)]
pub struct WellKnownProvider {
    /// GUID of the provider.
    pub id: Guid,
    /// Name of the provider.
    pub name: &'static str,
    /// The file with its schemas.
    text: &'static str,
}

impl WellKnownProvider {
    /// Returns the provider with this GUID, if it has built-in schemas.
    #[must_use]
    pub fn find(id: &Guid) -> Option<&'static Self> {
        WELL_KNOWN.iter().find(|provider| provider.id == *id)
    }

    /// Parses the schemas of the provider.
    pub fn parse(&self) -> Result<ProviderSchemas> {
        manifest::parse_short_schemas(self.text, self.id)
    }
}

const DOTNET: &str = include_str!("../../schemas/dotnet.txt");
const KERNEL: &str = include_str!("../../schemas/kernel-live.txt");
const PACKETS: &str = include_str!("../../schemas/packet-capture.txt");
const DNS_CLIENT: &str = include_str!("../../schemas/dns-client.txt");
const POWERSHELL: &str = include_str!("../../schemas/powershell.txt");
const TCPIP: &str = include_str!("../../schemas/tcpip.txt");
const WININET: &str = include_str!("../../schemas/wininet.txt");
const HTTP_SERVICE: &str = include_str!("../../schemas/http-service.txt");
const RPC: &str = include_str!("../../schemas/rpc.txt");

/// All providers with built-in schemas.
pub const WELL_KNOWN: &[WellKnownProvider] = &[
    provider(0xe13c0d23_ccbc_4e12_931b_d9cc2eee27e4, "Microsoft-Windows-DotNETRuntime", DOTNET),
    provider(0xa669021c_c450_4609_a035_5af59af4df18, "Microsoft-Windows-DotNETRuntimeRundown", DOTNET),
    provider(0x763fd754_7086_4dfe_95eb_c01a46faf4ca, "Microsoft-Windows-DotNETRuntimePrivate", DOTNET),
    provider(0xcc2bcbba_16b6_4cf3_8990_d74c2e8af500, "Microsoft-Windows-DotNETRuntimeStress", DOTNET),
    provider(0x22fb2cd6_0e7b_422b_a0c7_2fad1fd0e716, "Microsoft-Windows-Kernel-Process", KERNEL),
    provider(0xedd08927_9cc4_4e65_b970_c2560fb5c289, "Microsoft-Windows-Kernel-File", KERNEL),
    provider(0x7dd42a49_5329_4832_8dfd_43d979153a88, "Microsoft-Windows-Kernel-Network", KERNEL),
    provider(0xc7bde69a_e1e0_4177_b6ef_283ad1525271, "Microsoft-Windows-Kernel-Disk", KERNEL),
    provider(0x2ed6006e_4729_4609_b423_3ee7bcd678ef, "Microsoft-Windows-NDIS-PacketCapture", PACKETS),
    provider(0x4d4f80d9_c8bd_4d73_bb5b_19c90402c5ac, "Microsoft-Windows-PktMon", PACKETS),
    provider(0x1c95126e_7eea_49a9_a3fe_a378b03ddb4d, "Microsoft-Windows-DNS-Client", DNS_CLIENT),
    provider(0xa0c1853b_5c40_4b15_8766_3cf1c58f985a, "Microsoft-Windows-PowerShell", POWERSHELL),
    provider(0x2f07e2ee_15db_40f1_90ef_9d7ba282188a, "Microsoft-Windows-TCPIP", TCPIP),
    provider(0x43d1a55c_76d6_4f7e_995c_64c711e5cafe, "Microsoft-Windows-WinINet", WININET),
    provider(0xa70ff94f_570b_4979_ba5c_e59c9feab61b, "Microsoft-Windows-WinINet-Capture", WININET),
    provider(0xdd5ef90a_6398_47a4_ad34_4dcecdef795f, "Microsoft-Windows-HttpService", HTTP_SERVICE),
    provider(0x6ad52b32_d609_4be9_ae07_ce8dae937e39, "Microsoft-Windows-RPC", RPC),
];

const fn provider(id: u128, name: &'static str, text: &'static str) -> WellKnownProvider {
    WellKnownProvider { id: Guid::from_u128(id), name, text }
}

/// The built-in schemas that a decoder has loaded.
#[derive(Clone, Debug)]
pub(super) struct WellKnownSchemas {
    is_enabled: bool,
    /// Events by provider and id. A provider without events could not be parsed.
    events: HashMap<Guid, HashMap<u16, Vec<SchemaCandidate>>>,
}

impl Default for WellKnownSchemas {
    fn default() -> Self {
        Self { is_enabled: true, events: HashMap::new() }
    }
}

impl Decoder {
    /// Creates a decoder that has no built-in schemas, for callers that search other decoders
    /// before they use these schemas.
    #[must_use]
    pub fn without_well_known() -> Self {
        let well_known = WellKnownSchemas { is_enabled: false, events: HashMap::new() };
        Self { well_known, ..Self::default() }
    }

    /// Returns the built-in schema of an event that no other source describes.
    pub(super) fn find_well_known(&mut self, provider: Guid, d: &EventDescriptor) -> Option<u32> {
        if !self.well_known.is_enabled {
            return None;
        }
        if !self.well_known.events.contains_key(&provider) {
            let schemas = WellKnownProvider::find(&provider)?.parse();
            debug_assert!(schemas.is_ok(), "a built-in schema is invalid");
            let schemas = schemas.unwrap_or_default();
            let mut events = HashMap::<u16, Vec<_>>::new();
            for event in schemas.events {
                let (id, version) = (event.descriptor.id, event.descriptor.version);
                let schema = self.push_schema(event.schema);
                let candidate =
                    SchemaCandidate { version, rank: SourceRank::WellKnown, since: EARLIEST, schema };
                events.entry(id).or_default().push(candidate);
            }
            self.well_known.events.insert(provider, events);
        }
        choose_schema(self.well_known.events.get(&provider)?.get(&d.id)?, d.version)
    }
}

#[cfg(all(test, feature = "xml"))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_provider_has_a_file_that_parses() {
        let mut ids = HashSet::new();
        for provider in WELL_KNOWN {
            let schemas = provider.parse().unwrap_or_else(|e| panic!("{}: {e}", provider.name));
            assert_eq!((schemas.id, schemas.name.as_deref()), (provider.id, Some(provider.name)));
            assert!(!schemas.events.is_empty(), "{}", provider.name);
            assert!(ids.insert(provider.id), "{} comes twice", provider.name);
            let mut events = HashSet::new();
            for event in &schemas.events {
                let d = &event.descriptor;
                assert!(events.insert((d.id, d.version)), "{}: {} comes twice", provider.name, d.id);
            }
        }
    }

    #[test]
    fn every_provider_of_a_file_is_in_the_table() {
        let files: HashSet<&str> = WELL_KNOWN.iter().map(|provider| provider.text).collect();
        for line in files.iter().flat_map(|text| text.lines()) {
            let Some(header) = line.strip_prefix("provider ") else { continue };
            let id: Guid = header.split(' ').next().unwrap().parse().unwrap();
            assert!(WellKnownProvider::find(&id).is_some(), "{header}");
        }
    }

    #[test]
    fn page_lists_every_provider_with_its_number_of_events() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/well-known-providers.md");
        let page = std::fs::read_to_string(path).unwrap();
        for provider in WELL_KNOWN {
            let events = provider.parse().unwrap().events.len();
            let row = format!("| `{}` | `{}` | {events} |", provider.name, provider.id);
            assert!(page.contains(&row), "the page lacks {row}");
        }
    }

    #[test]
    fn numbers_in_files_survive_the_lookup_by_name() {
        for provider in WELL_KNOWN {
            let schemas = provider.parse().unwrap();
            let own = provider.text.lines().skip_while(|line| !line.contains(&provider.id.to_string()));
            let rows = own.skip(1).take_while(|line| !line.starts_with("provider "));
            let mut events = schemas.events.iter();
            for row in rows.filter_map(|line| line.strip_prefix("event ")) {
                let d = &events.next().unwrap().descriptor;
                let mut again = format!("{}.{} level={}", d.id, d.version, d.level);
                for (name, value) in [("task", u64::from(d.task)), ("opcode", d.opcode.into())] {
                    if value != 0 {
                        again.push_str(&format!(" {name}={value}"));
                    }
                }
                if d.keyword != 0 {
                    again.push_str(&format!(" keywords={:#x}", d.keyword));
                }
                if d.channel != 0 {
                    again.push_str(&format!(" channel={}", d.channel));
                }
                assert_eq!(row.split(" name=").next().unwrap(), again, "{}", provider.name);
            }
            assert!(events.next().is_none());
        }
    }
}
