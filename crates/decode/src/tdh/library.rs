//! The providers that a process has schemas for: manifests that it loaded, and installed ones.
//!
//! ```text
//!   TdhLoadManifest ──────────┐
//!   installed folders ────────┼──▶ Decoder: TraceLogging metadata first, then these in this order
//!   TdhLoadManifestFromBinary ┘
//!   built-in schemas ─────────────▶ a second Decoder, for events that nothing else describes
//! ```
//!
//! Installed manifests are read at the first query about providers, or about an event that does not
//! describe itself, and then kept. Unloading a manifest rebuilds the decoder from the remaining
//! manifests. A manifest that cannot be parsed changes nothing.

use std::borrow::Cow;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;

use super::filter::{FieldPredicate, PayloadFilter};
use super::lists::{self, EventFieldType, has_id};
use super::property::PropertyStep;
use super::query::{QueryDecoder, check_answer_size, encode_map_by_name};
use super::{Answer, Refusal};
use crate::error::Undecoded;
use crate::plain;
use crate::source::{
    EventSchema, LookupEvent, LookupKind, Precedence, ProviderSchemas, WELL_KNOWN, WellKnownProvider, binary,
    manifest, read_manifest,
};

/// The default folders of installed manifests.
pub const INSTALL_FOLDERS: [&str; 2] = ["/etc/traceweir/manifests", "/usr/share/traceweir/manifests"];
/// The environment variable with other folders, separated by colons. The callers read it and pass
/// the folders on.
pub const FOLDERS_VARIABLE: &str = "TRACEWEIR_MANIFESTS";
/// The most files that are read in a folder.
const MAX_FILES: usize = 4096;
/// The size limit of a file, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Reads the installed manifests: those in `folders`, or else in the default folders. Skips files
/// that are unreadable or not manifests.
pub fn read_installed_manifests(folders: Option<Vec<PathBuf>>) -> impl Iterator<Item = Vec<ProviderSchemas>> {
    let folders = folders.unwrap_or_else(|| INSTALL_FOLDERS.map(PathBuf::from).into());
    let listings = folders.into_iter().filter_map(|folder| folder.read_dir().ok());
    listings.flat_map(|files| files.take(MAX_FILES)).filter_map(|file| {
        let bytes = read_bounded_file(&file.ok()?.path()).ok()?;
        read_manifest(&bytes).ok()
    })
}

/// The place that a manifest was loaded from. It identifies the manifest for unloading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestOrigin {
    /// A file with an XML manifest.
    File(PathBuf),
    /// A PE or ELF file with a compiled manifest.
    Binary(PathBuf),
    /// Memory, by the length and the hash of its content.
    Memory(usize, u64),
    /// An installed manifest.
    Installed,
}

impl ManifestOrigin {
    /// Identifies a manifest in memory.
    #[must_use]
    pub fn from_memory(bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Self::Memory(bytes.len(), hasher.finish())
    }

    const fn precedence(&self) -> Precedence {
        match self {
            Self::File(_) | Self::Memory(..) => Precedence::Loaded,
            Self::Installed => Precedence::Installed,
            Self::Binary(_) => Precedence::Binary,
        }
    }
}

/// The schemas of a process.
#[derive(Debug)]
pub struct Library {
    query_decoder: QueryDecoder,
    /// The decoder with the built-in schemas of well-known providers.
    well_known: QueryDecoder,
    /// The well-known providers that queries have asked for.
    well_known_schemas: Vec<ProviderSchemas>,
    loaded: Vec<(ManifestOrigin, Vec<ProviderSchemas>)>,
    /// Whether the installed manifests have been read.
    has_read_installed: bool,
    /// The folders of installed manifests, if not the default ones; taken when they are read.
    folders: Option<Vec<PathBuf>>,
}

impl Default for Library {
    fn default() -> Self {
        Self {
            query_decoder: QueryDecoder::without_well_known(),
            well_known: QueryDecoder::default(),
            well_known_schemas: Vec::new(),
            loaded: Vec::new(),
            has_read_installed: false,
            folders: None,
        }
    }
}

impl Library {
    /// Creates a library with nothing loaded; installed manifests are read when needed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Like [`Library::new`], with these folders instead of the default ones.
    #[must_use]
    pub fn in_folders(folders: Vec<PathBuf>) -> Self {
        Self { folders: Some(folders), ..Self::default() }
    }

    /// Loads an XML manifest from a file.
    pub fn load_file(&mut self, path: &Path) -> Answer<()> {
        let bytes = read_bounded_file(path)?;
        self.load(ManifestOrigin::File(path.to_owned()), manifest::parse(&bytes)?)
    }

    /// Loads the compiled manifest of a PE or ELF file.
    pub fn load_binary(&mut self, path: &Path) -> Answer<()> {
        let bytes = read_bounded_file(path)?;
        let providers = binary::load(&bytes).map_err(|_| Refusal::NoResource)?;
        self.load(ManifestOrigin::Binary(path.to_owned()), providers)
    }

    /// Loads an XML manifest from memory.
    pub fn load_memory(&mut self, bytes: &[u8]) -> Answer<()> {
        self.load(ManifestOrigin::from_memory(bytes), manifest::parse(bytes)?)
    }

    fn load(&mut self, origin: ManifestOrigin, providers: Vec<ProviderSchemas>) -> Answer<()> {
        if self.loaded.iter().any(|(loaded, _)| *loaded == origin) {
            self.unload(&origin)?;
        }
        match self.query_decoder.decoder.add_providers(providers.clone(), origin.precedence()) {
            Ok(_) => {
                self.loaded.push((origin, providers));
                Ok(())
            }
            // A part of the manifest may have been added.
            Err(reason) => {
                self.rebuild_decoder();
                Err(reason.into())
            }
        }
    }

    /// Unloads the manifest or program that was loaded from a file.
    pub fn unload_file(&mut self, path: PathBuf) -> Answer<()> {
        if !path.exists()
            && !self
                .loaded
                .iter()
                .any(|(origin, _)| matches!(origin, ManifestOrigin::File(p) | ManifestOrigin::Binary(p) if *p == path))
        {
            return Err(Refusal::NoFile);
        }
        let binary = ManifestOrigin::Binary(path.clone());
        self.unload(&ManifestOrigin::File(path)).or_else(|_| self.unload(&binary))
    }

    /// Unloads a manifest.
    pub fn unload(&mut self, origin: &ManifestOrigin) -> Answer<()> {
        let before = self.loaded.len();
        self.loaded.retain(|(loaded, _)| loaded != origin);
        if self.loaded.len() == before {
            return Err(Refusal::NotFound("there is no loaded manifest of this origin"));
        }
        self.rebuild_decoder();
        Ok(())
    }

    fn rebuild_decoder(&mut self) {
        self.query_decoder = QueryDecoder::without_well_known();
        for (origin, providers) in &self.loaded {
            // Adding cannot fail: the decoder has accepted these manifests together with others.
            let _ = self.query_decoder.decoder.add_providers(providers.clone(), origin.precedence());
        }
    }

    fn ensure_installed_loaded(&mut self) {
        if std::mem::replace(&mut self.has_read_installed, true) {
            return;
        }
        for providers in read_installed_manifests(self.folders.take()) {
            let _ = self.load_installed(providers);
        }
    }

    fn load_installed(&mut self, providers: Vec<ProviderSchemas>) -> Answer<()> {
        self.query_decoder
            .decoder
            .add_providers(providers.clone(), ManifestOrigin::Installed.precedence())?;
        self.loaded.push((ManifestOrigin::Installed, providers));
        Ok(())
    }

    fn providers(&mut self) -> impl Iterator<Item = &ProviderSchemas> {
        self.ensure_installed_loaded();
        self.loaded.iter().flat_map(|(_, providers)| providers)
    }

    /// Returns the descriptions of a provider: loaded and installed ones, or else the built-in one.
    fn describe_provider(&mut self, provider: Guid) -> impl Iterator<Item = &ProviderSchemas> {
        let is_loaded = self.providers().any(|described| described.id == provider);
        if !is_loaded && !self.well_known_schemas.iter().any(|described| described.id == provider) {
            let built_in = WellKnownProvider::find(&provider).and_then(|provider| provider.parse().ok());
            self.well_known_schemas.extend(built_in);
        }
        let built_in = if is_loaded { &[] } else { self.well_known_schemas.as_slice() };
        self.loaded.iter().flat_map(|(_, providers)| providers).chain(built_in).filter(has_id(provider))
    }

    /// Returns the decoder with the built-in schemas, for events that neither the manifests of the
    /// process nor the trace describe.
    pub const fn well_known(&mut self) -> &mut QueryDecoder {
        &mut self.well_known
    }

    /// Like [`Library::decoder_for`], or the decoder with the built-in schemas if nothing else
    /// describes the event.
    fn decoder_or_well_known(&mut self, event: &LookupEvent<'_>) -> &mut QueryDecoder {
        let found = self.decoder_for(event).decoder.find_event(event);
        let is_missing = matches!(found, Err(Undecoded::NoSchema));
        if is_missing { &mut self.well_known } else { &mut self.query_decoder }
    }

    /// Returns the decoder for an event; reads the installed manifests first unless the event
    /// describes itself.
    pub fn decoder_for(&mut self, event: &LookupEvent<'_>) -> &mut QueryDecoder {
        if event.metadata.is_none() {
            self.ensure_installed_loaded();
        }
        &mut self.query_decoder
    }

    /// Returns the TRACE_EVENT_INFO of an event; the caller fills in the descriptor.
    pub fn event_info(&mut self, event: &LookupEvent<'_>, pointer_size: usize) -> Answer<Cow<'_, [u8]>> {
        self.decoder_or_well_known(event).event_info(event, pointer_size)
    }

    /// Returns the bytes of a property.
    pub fn property<'p>(
        &mut self,
        event: &LookupEvent<'p>,
        pointer_size: usize,
        path: &[PropertyStep<'_>],
    ) -> Answer<&'p [u8]> {
        self.decoder_or_well_known(event).property(event, pointer_size, path)
    }

    /// Returns the EVENT_MAP_INFO of a map by its name: a map of the event, or else of any event of
    /// its provider.
    pub fn map(&mut self, event: &LookupEvent<'_>, name: &str) -> Answer<Vec<u8>> {
        let query_decoder = self.decoder_for(event);
        let provider = query_decoder
            .decoder
            .find_event(event)
            .map_or(event.provider, |matched| matched.prepared.schema.provider);
        query_decoder.map(event, name).or_else(|refusal| {
            let mut events = self.providers().filter(has_id(provider)).flat_map(|p| &p.events);
            events
                .find_map(|e| encode_map_by_name(&e.schema, name))
                .ok_or(refusal)
                .and_then(check_answer_size)
        })
    }

    /// Returns a PROVIDER_ENUMERATION_INFO of all providers, or only of those whose DECODING_SOURCE
    /// is `source`.
    pub fn provider_list(&mut self, source: Option<u32>) -> Answer<Vec<u8>> {
        let well_known = WELL_KNOWN.iter().map(|provider| (provider.id, provider.name));
        let loaded = self.providers().map(|p| (p.id, p.name.as_deref().unwrap_or_default()));
        lists::encode_providers(loaded.chain(well_known), source)
    }

    /// Returns the PROVIDER_FIELD_INFOARRAY of a provider: all names of a kind, or only those of
    /// `value`. `kind` is the number of an EVENT_FIELD_TYPE. For keywords, `value` is a mask.
    pub fn field_list(&mut self, provider: Guid, kind: u32, value: Option<u64>) -> Answer<Vec<u8>> {
        let kind = EventFieldType::from_code(kind).ok_or(Refusal::NoSuchKind)?;
        lists::encode_fields(self.describe_provider(provider), kind, value)
    }

    /// Returns the PROVIDER_EVENT_INFO of a provider.
    pub fn event_list(&mut self, provider: Guid) -> Answer<Vec<u8>> {
        lists::encode_events(self.describe_provider(provider))
    }

    /// Returns a PROVIDER_FILTER_INFO for each filter that a provider accepts.
    pub fn filter_list(&mut self, provider: Guid) -> Answer<Vec<Vec<u8>>> {
        lists::encode_filters(self.describe_provider(provider))
    }

    /// Returns the TRACE_EVENT_INFO and the descriptor of an event in a manifest.
    pub fn manifest_event_info(
        &mut self,
        provider: Guid,
        descriptor: &EventDescriptor,
    ) -> Answer<(Vec<u8>, EventDescriptor)> {
        let descriptor = self.find_manifest_event(provider, descriptor)?.descriptor;
        let event =
            LookupEvent { kind: LookupKind::Described, provider, descriptor, ..LookupEvent::default() };
        Ok((self.event_info(&event, 8)?.into_owned(), descriptor))
    }

    fn find_manifest_event(&mut self, provider: Guid, descriptor: &EventDescriptor) -> Answer<&EventSchema> {
        let (mut is_described, mut has_events) = (false, false);
        let mut events =
            self.describe_provider(provider).inspect(|_| is_described = true).flat_map(|p| &p.events);
        let event = events.find(|event| {
            has_events = true;
            (event.descriptor.id, event.descriptor.version) == (descriptor.id, descriptor.version)
        });
        event.ok_or(match (is_described, has_events) {
            (false, _) => Refusal::NoMetadata,
            (true, false) => Refusal::Empty,
            (true, true) => Refusal::NotFound("there is no such event in the manifest"),
        })
    }

    /// Builds a payload filter for an event in a manifest; see [`PayloadFilter::new`].
    pub fn payload_filter(
        &mut self,
        provider: Guid,
        descriptor: &EventDescriptor,
        is_any_enough: bool,
        predicates: &[FieldPredicate],
    ) -> Answer<PayloadFilter> {
        let event = self.find_manifest_event(provider, descriptor)?;
        PayloadFilter::new(provider, event, is_any_enough, predicates)
    }
}

/// Reads a regular file of at most [`MAX_FILE_BYTES`].
pub(super) fn read_bounded_file(path: &Path) -> Answer<Vec<u8>> {
    let file = open_regular_file(path)?;
    if file.metadata().map_err(refuse_unreadable)?.len() > MAX_FILE_BYTES {
        return Err(Refusal::Invalid("the file has more than 64 MiB"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(refuse_unreadable)?;
    Ok(bytes)
}

pub(super) fn open_regular_file(path: &Path) -> Answer<File> {
    plain::open(path).map_err(refuse_unreadable)
}

fn refuse_unreadable(error: std::io::Error) -> Refusal {
    match error.kind() {
        ErrorKind::PermissionDenied => Refusal::NotPermitted,
        ErrorKind::InvalidInput => Refusal::Invalid("not a regular file"),
        _ => Refusal::NoFile,
    }
}
