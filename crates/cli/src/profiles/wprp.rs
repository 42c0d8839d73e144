//! Recording profiles of Windows (`FILE.wprp`), as files of Windows Performance Recorder have them.
//!
//! ```text
//!   FILE.wprp[!NAME[.Light|.Verbose]]
//!
//!   <Profile Base= LoggingMode= DetailLevel=>        chosen by NAME, detail and logging mode
//!     <Collectors>   SystemCollectorId ─▶ SystemProvider: keywords ─▶ --kernel, stacks ─▶ --stacks
//!                    EventCollectorId  ─▶ EventProvider: name, level, keywords, stack ─▶ -p
//!                    BufferSize, Buffers ─▶ buffers of the one session
//! ```
//!
//! A definition with a Base begins with the lists of its base; `Operation` says whether a list
//! replaces the earlier one (Set, the default), extends it (Add) or is taken away from it (Remove).
//! What a session on Linux lacks becomes a note, and the rest is recorded.
//!
//! Source: Documented ("Authoring Recording Profiles" and the reference of the elements).

mod names;
mod provider;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::file::ProfileError;
use super::{BufferPlan, Profile};
use names::{find_groups, find_stack_event};
use tree::{Element, ProfileResult};

const EXTENSION: &str = ".wprp";
/// Maximum size of a file.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 20;
/// The longest chain of bases.
const MAX_BASES: usize = 16;
const MAX_PROVIDERS: usize = 256;
/// The most buffer memory of a recording, in KiB.
const MAX_TOTAL_KIB: u64 = 512 << 10;

/// A file, and the profile to take from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WprpName<'n> {
    pub(super) file: &'n Path,
    profile: Option<&'n str>,
    detail: Option<&'n str>,
}

/// Splits `FILE.wprp!NAME.DETAIL`; `None` if the text does not name such a file.
pub(super) fn parse_name(text: &str) -> Option<WprpName<'_>> {
    let is_wprp = |file: &str| {
        let start = file.len().checked_sub(EXTENSION.len()).and_then(|start| file.get(start..));
        start.is_some_and(|end| end.eq_ignore_ascii_case(EXTENSION))
    };
    if is_wprp(text) {
        return Some(WprpName { file: Path::new(text), profile: None, detail: None });
    }
    let (file, profile) = text.rsplit_once('!').filter(|(file, _)| is_wprp(file))?;
    let (profile, detail) = match profile.rsplit_once('.') {
        Some((profile, detail)) if is_detail(detail) => (profile, Some(detail)),
        _ => (profile, None),
    };
    Some(WprpName { file: Path::new(file), profile: Some(profile), detail })
}

fn is_detail(text: &str) -> bool {
    text.eq_ignore_ascii_case("Light") || text.eq_ignore_ascii_case("Verbose")
}

/// Decodes the text of a file: UTF-8, or UTF-16 with a byte order mark.
pub(super) fn decode(bytes: &[u8]) -> Result<String, &'static str> {
    let decode_utf16 = |bytes: &[u8], to_unit: fn([u8; 2]) -> u16| {
        let (units, rest) = bytes.as_chunks::<2>();
        let units: Vec<u16> = units.iter().map(|unit| to_unit(*unit)).collect();
        if rest.is_empty() { String::from_utf16(&units).ok() } else { None }
    };
    match bytes {
        [0xFF, 0xFE, text @ ..] => decode_utf16(text, u16::from_le_bytes).ok_or("the text is not UTF-16"),
        [0xFE, 0xFF, text @ ..] => decode_utf16(text, u16::from_be_bytes).ok_or("the text is not UTF-16"),
        _ => {
            let text = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
            std::str::from_utf8(text).map(str::to_owned).map_err(|_| "the text is not UTF-8")
        }
    }
}

/// Reads the profile that `name` chooses. Of its variants, the one that logs to memory is preferred if
/// the recording keeps its events in memory.
pub(super) fn parse(text: &str, name: WprpName<'_>, prefers_memory: bool) -> ProfileResult<Profile> {
    let root = tree::parse(text)?;
    if root.name != "WindowsPerformanceRecorder" {
        return Err(root.error(format!("not a recording profile: the root element is {}", root.name)));
    }
    let definitions = Definitions::collect(&root)?;
    let chosen = definitions.choose(name, prefers_memory)?;
    let mut recording = Recording::default();
    let chain = definitions.bases_of(chosen)?;
    for profile in &chain {
        recording.add_collectors(profile)?;
    }
    let mut profile = recording.into_profile(&definitions)?;
    let inherited = |attribute: &str| chain.iter().rev().find_map(|element| element.attribute(attribute));
    profile.description = inherited("Description").unwrap_or_default().to_owned();
    let is_strict = chain.iter().any(|element| element.is_set("Strict"));
    profile.is_kernel_optional = !is_strict && !profile.providers.is_empty();
    if let Some(buffers) = &mut profile.buffers {
        buffers.is_in_memory = inherited("LoggingMode").is_some_and(is_memory);
    }
    if profile.providers.is_empty() && profile.kernel.is_empty() {
        let notes: Vec<&str> = profile.notes.iter().map(String::as_str).collect();
        return Err(chosen.error(format!("the profile records nothing on Linux: {}", notes.join("; "))));
    }
    Ok(profile)
}

fn is_memory(mode: &str) -> bool {
    mode.eq_ignore_ascii_case("Memory")
}

/// The definitions of a file by their ids.
#[derive(Default)]
struct Definitions<'e> {
    collectors: BTreeMap<&'e str, &'e Element>,
    providers: BTreeMap<&'e str, &'e Element>,
    profiles: BTreeMap<&'e str, &'e Element>,
    /// The profiles in the order of the file.
    ordered_profiles: Vec<&'e Element>,
}

impl<'e> Definitions<'e> {
    fn collect(root: &'e Element) -> ProfileResult<Self> {
        let mut definitions = Self::default();
        for profiles in root.children_named("Profiles") {
            definitions.add(profiles)?;
        }
        Ok(definitions)
    }

    /// Adds the definitions in an element. Providers may also be defined where they are used.
    fn add(&mut self, parent: &'e Element) -> ProfileResult<()> {
        for element in &parent.children {
            let table = match element.name.as_str() {
                "SystemCollector" | "EventCollector" => Some(&mut self.collectors),
                "SystemProvider" | "EventProvider" => Some(&mut self.providers),
                "Profile" => Some(&mut self.profiles),
                _ => None,
            };
            if let Some(table) = table {
                let id = element.required("Id")?;
                if let Some(earlier) = table.insert(id, element) {
                    let line = earlier.line;
                    return Err(element.error(format!("the id {id:?} is already defined in line {line}")));
                }
            }
            if element.name == "Profile" {
                self.ordered_profiles.push(element);
            }
            self.add(element)?;
        }
        Ok(())
    }

    /// Returns the profile that a name chooses.
    fn choose(&self, wanted: WprpName<'_>, prefers_memory: bool) -> ProfileResult<&'e Element> {
        let end = |reason: String| ProfileError { line: 1, column: 1, reason };
        let name_of = |profile: &Element| profile.attribute("Name").unwrap_or_default().to_owned();
        let mut candidates: Vec<&'e Element> = match wanted.profile {
            Some(wanted) => self
                .ordered_profiles
                .iter()
                .copied()
                .filter(|profile| {
                    name_of(profile).eq_ignore_ascii_case(wanted) || profile.attribute("Id") == Some(wanted)
                })
                .collect(),
            None => {
                self.ordered_profiles.iter().copied().filter(|profile| !profile.is_set("Internal")).collect()
            }
        };
        let names = |profiles: &[&Element]| -> BTreeSet<String> {
            profiles.iter().map(|profile| name_of(profile)).collect()
        };
        if wanted.profile.is_none() && names(&candidates).len() > 1 {
            let all = names(&candidates);
            candidates.retain(|profile| profile.is_set("Default"));
            if names(&candidates).len() != 1 {
                let all: Vec<String> = all.into_iter().collect();
                return Err(end(format!(
                    "the file has several profiles: add !NAME, one of {}",
                    all.join(", ")
                )));
            }
        }
        if candidates.is_empty() {
            let all: Vec<String> = names(&self.ordered_profiles).into_iter().collect();
            let known = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
            return Err(end(format!("the file has no such profile; its profiles: {known}")));
        }
        let has_detail = |profile: &Element, detail: &str| {
            profile.attribute("DetailLevel").unwrap_or("Verbose").eq_ignore_ascii_case(detail)
        };
        if let Some(detail) = wanted.detail {
            candidates.retain(|profile| has_detail(profile, detail));
        }
        let is_preferred = |profile: &&&Element| {
            let logs_to_memory = profile.attribute("LoggingMode").is_some_and(is_memory);
            (logs_to_memory == prefers_memory, has_detail(profile, "Verbose"))
        };
        // Of equal candidates, the first of the file.
        let chosen = candidates.iter().rev().max_by_key(is_preferred).copied();
        chosen.ok_or_else(|| end("the profile has no variant of this detail level".to_owned()))
    }

    /// Returns a definition and its bases, the outermost base first.
    fn bases_of(&self, element: &'e Element) -> ProfileResult<Vec<&'e Element>> {
        let table = if element.name == "Profile" { &self.profiles } else { &self.providers };
        let (mut chain, mut next) = (vec![element], element.attribute("Base"));
        while let Some(base) = next {
            if chain.len() > MAX_BASES {
                return Err(element.error(format!("more than {MAX_BASES} bases, or bases in a circle")));
            }
            let found = table.get(base).copied();
            let found =
                found.ok_or_else(|| element.error(format!("the base {base:?} is not in this file")))?;
            chain.push(found);
            next = found.attribute("Base");
        }
        chain.reverse();
        Ok(chain)
    }
}

/// Applies an element with a list (`Keywords`, `Stacks`, …) to the list of its base.
fn apply_list(list: &mut Vec<String>, element: &Element, item: &str) -> ProfileResult<()> {
    let operation = element.attribute("Operation").unwrap_or("Set");
    let mut values = Vec::new();
    for child in element.children_named(item) {
        values.push(child.required("Value")?.to_owned());
    }
    match operation {
        "Add" => {
            for value in values {
                if !list.contains(&value) {
                    list.push(value);
                }
            }
        }
        "Remove" => list.retain(|value| !values.contains(value)),
        _ => *list = values,
    }
    Ok(())
}

/// The groups and stacks of all system providers, in the syntax of `--kernel` and `--stacks`.
#[derive(Default)]
struct KernelLists {
    groups: Vec<String>,
    stacks: Vec<String>,
}

/// The collectors and providers of a profile, while its bases are applied.
#[derive(Default)]
struct Recording<'e> {
    /// References to collectors, with their providers.
    collectors: Vec<&'e Element>,
    notes: Vec<String>,
}

impl<'e> Recording<'e> {
    /// Applies the collectors of a profile to those of its base.
    fn add_collectors(&mut self, profile: &'e Element) -> ProfileResult<()> {
        for collectors in profile.children_named("Collectors") {
            let references = collectors.children.iter();
            match collectors.attribute("Operation").unwrap_or("Set") {
                "Add" => self.collectors.extend(references),
                "Remove" => {
                    let mut removed = BTreeSet::new();
                    for reference in references {
                        removed.insert(reference.required("Value")?);
                    }
                    let is_kept = |reference: &&Element| {
                        reference.attribute("Value").is_none_or(|value| !removed.contains(value))
                    };
                    self.collectors.retain(is_kept);
                }
                _ => self.collectors = references.collect(),
            }
        }
        Ok(())
    }

    /// Adds a note, unless it was added before.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn into_profile(mut self, definitions: &Definitions<'e>) -> ProfileResult<Profile> {
        let (mut kernel, mut providers) = (KernelLists::default(), Vec::new());
        let mut sizes: BTreeMap<&str, BufferSize> = BTreeMap::new();
        for collector in std::mem::take(&mut self.collectors) {
            match collector.name.as_str() {
                "SystemCollectorId" => {
                    for reference in &collector.children {
                        self.add_system_provider(reference, definitions, &mut kernel)?;
                    }
                }
                "EventCollectorId" => {
                    for reference in event_provider_references(collector) {
                        self.add_event_provider(reference, definitions, &mut providers)?;
                    }
                }
                other => {
                    self.note(format!("{}: Linux has no such events", other.trim_end_matches("Id")));
                    continue;
                }
            }
            let id = collector.required("Value")?;
            let definition = definitions.collectors.get(id).copied();
            let definition = definition
                .ok_or_else(|| collector.error(format!("the collector {id:?} is not in this file")))?;
            let size = sizes.entry(id).or_insert_with(|| BufferSize::read(definition));
            size.override_with(BufferSize::read(collector));
            for element in [definition, collector] {
                for limit in ["MaximumFileSize", "FileMax"] {
                    if element.child(limit).is_some() {
                        self.note(format!(
                            "{limit}: give the size with --max-size, with --circular or --new-file"
                        ));
                    }
                }
            }
        }
        let buffers = Some(self.plan_buffers(sizes.values()));
        if kernel.groups.is_empty() {
            kernel.stacks.clear();
        }
        Ok(Profile {
            providers,
            kernel: kernel.groups.join(","),
            stacks: kernel.stacks.join(","),
            buffers,
            notes: self.notes,
            ..Profile::default()
        })
    }

    /// Adds the groups and stacks of a system provider, which is referenced or defined here.
    fn add_system_provider(
        &mut self,
        reference: &'e Element,
        definitions: &Definitions<'e>,
        kernel: &mut KernelLists,
    ) -> ProfileResult<()> {
        if !matches!(reference.name.as_str(), "SystemProviderId" | "SystemProvider") {
            if !matches!(
                reference.name.as_str(),
                "BufferSize" | "Buffers" | "StackCaching" | "MaximumFileSize" | "FileMax"
            ) {
                self.note(format!("{}: weir has no such setting", reference.name));
            }
            return Ok(());
        }
        let (mut keywords, mut events) = (Vec::new(), Vec::new());
        for definition in definition_chain(reference, definitions)? {
            for list in &definition.children {
                match list.name.as_str() {
                    "Keywords" => apply_list(&mut keywords, list, "Keyword")?,
                    "Stacks" => apply_list(&mut events, list, "Stack")?,
                    "PoolTags" => self.note("PoolTags: Linux has no events of pools".to_owned()),
                    other => self
                        .note(format!("{other} of a system provider: the daemon describes the state itself")),
                }
            }
        }
        for keyword in keywords {
            let found = find_groups(&keyword);
            for reason in found.reasons {
                self.note(format!("keyword {keyword}: {reason}"));
            }
            push_new(&mut kernel.groups, found.kernel.split(',').filter(|word| !word.is_empty()));
        }
        for stack in events {
            match find_stack_event(&stack) {
                Some(event) => push_new(&mut kernel.stacks, [event]),
                None => self.note(format!("stack {stack}: Linux has no such event")),
            }
        }
        Ok(())
    }

    fn add_event_provider(
        &mut self,
        reference: &'e Element,
        definitions: &Definitions<'e>,
        providers: &mut Vec<String>,
    ) -> ProfileResult<()> {
        let chain = definition_chain(reference, definitions)?;
        let resolved = provider::resolve(&chain, reference)?;
        for note in resolved.notes {
            self.note(note);
        }
        let Some(text) = resolved.provider else { return Ok(()) };
        if let Err(reason) = crate::grammar::parse_provider(&text) {
            return Err(reference.error(reason));
        }
        if !providers.contains(&text) {
            if providers.len() >= MAX_PROVIDERS {
                return Err(reference.error(format!("a profile has at most {MAX_PROVIDERS} providers")));
            }
            providers.push(text);
        }
        Ok(())
    }

    /// Returns the buffers of the one session that replaces all collectors.
    fn plan_buffers<'s>(&mut self, sizes: impl Iterator<Item = &'s BufferSize>) -> BufferPlan {
        let (mut buffer_kib, mut total_kib) = (0, 0_u64);
        for size in sizes {
            let BufferSize { kib, buffers, has_percentage } = *size;
            if has_percentage {
                self.note(
                    "Buffers in percent of the memory: give the size with --max-buffers or --flight"
                        .to_owned(),
                );
            }
            buffer_kib = buffer_kib.max(kib);
            total_kib = total_kib.saturating_add(u64::from(kib) * u64::from(buffers));
        }
        if total_kib > MAX_TOTAL_KIB {
            self.note(format!("Buffers: {} MiB instead of {}", MAX_TOTAL_KIB >> 10, total_kib >> 10));
            total_kib = MAX_TOTAL_KIB;
        }
        BufferPlan { buffer_kib, total_kib, is_in_memory: false }
    }
}

/// Adds words that a list does not have.
fn push_new<'w>(list: &mut Vec<String>, words: impl IntoIterator<Item = &'w str>) {
    for word in words {
        if !list.iter().any(|known| known == word) {
            list.push(word.to_owned());
        }
    }
}

/// Returns the event providers of a collector, which stand in lists.
fn event_provider_references(collector: &Element) -> Vec<&Element> {
    let is_reference =
        |element: &&Element| matches!(element.name.as_str(), "EventProviderId" | "EventProvider");
    let lists = collector.children_named("EventProviders").flat_map(|list| &list.children);
    collector.children.iter().chain(lists).filter(is_reference).collect()
}

/// Returns the definition of a referenced provider with its bases, the outermost first, and last the
/// reference itself, which may change lists.
fn definition_chain<'e>(
    reference: &'e Element,
    definitions: &Definitions<'e>,
) -> ProfileResult<Vec<&'e Element>> {
    if reference.attribute("Id").is_some() {
        return definitions.bases_of(reference);
    }
    let id = reference.required("Value")?;
    let found = definitions.providers.get(id).copied();
    let found = found.ok_or_else(|| reference.error(format!("the provider {id:?} is not in this file")))?;
    let mut chain = definitions.bases_of(found)?;
    chain.push(reference);
    Ok(chain)
}

/// The buffers of a collector; 0 where the file does not say it.
#[derive(Clone, Copy, Debug, Default)]
struct BufferSize {
    kib: u32,
    buffers: u32,
    has_percentage: bool,
}

impl BufferSize {
    fn read(element: &Element) -> Self {
        let number = |name: &str| -> u32 {
            let value = element.child(name).and_then(|child| child.attribute("Value"));
            value.and_then(|value| value.parse().ok()).unwrap_or(0)
        };
        let has_percentage =
            element.child("Buffers").is_some_and(|buffers| buffers.is_set("PercentageOfTotalMemory"));
        let buffers = if has_percentage { 0 } else { number("Buffers") };
        Self { kib: number("BufferSize"), buffers, has_percentage }
    }

    /// Replaces the values that `later` has.
    fn override_with(&mut self, later: Self) {
        if later.kib != 0 {
            self.kib = later.kib;
        }
        if later.buffers != 0 || later.has_percentage {
            self.buffers = later.buffers;
            self.has_percentage = later.has_percentage;
        }
    }
}

#[cfg(test)]
mod tests;
