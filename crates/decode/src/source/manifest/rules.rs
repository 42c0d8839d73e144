//! Checks the rules for single definitions, and for all definitions of one kind, in a manifest that
//! is compiled.
//!
//! | Definition | Rule |
//! |---|---|
//! | level | 16 to 255 |
//! | opcode | 10 to 239 |
//! | task | 1 to 65535 |
//! | keyword | one bit, of the lower 48 |
//! | channel | 16 to 255 if it has a value and is not imported; unique chid and name |
//! | all of these, entries of maps | each value is unique |
//! | map | has entries |
//! | field | a unique name; a length only for text or bytes, a map only for integers |
//! | provider | a unique id and name |
//! | symbol | names one thing in the whole manifest: an event, a provider, or one number |
//!
//! Predefined names may be declared again with their predefined value. A decoder does not check
//! these rules.
//!
//! Source: Documented ("EventManifest Schema", "Defining Severity Levels", "Defining Tasks and
//! Opcodes", "Defining Keywords Used to Classify Types of Events"). Values and symbols must be
//! unique so that names of numbers and the generated code are unambiguous.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::RangeInclusive;

use super::layout::{has_length, is_integer};
use super::raw::{RawChannel, RawDefinition, RawField, RawManifest, RawMap, RawProvider, RawShape};
use super::winmeta;

/// Suffixes that the message compiler appends to an event's symbol to form other names.
const GENERATED_SUFFIXES: [&str; 3] = ["_value", "_AssumeEnabled", "_Activity"];

/// The bits for a provider's keywords, below the reserved ones.
const KEYWORD_BITS: u64 = (1 << 48) - 1;

/// Reports each definition that breaks a rule, with its offset.
pub(super) fn check_manifest(manifest: &RawManifest, report: &mut dyn FnMut(u64, String)) {
    let mut rules = RuleChecker { report };
    let (mut ids, mut names) = (HashSet::new(), HashSet::new());
    for provider in &manifest.providers {
        let name = provider.name.as_deref().unwrap_or_default();
        if !ids.insert(provider.id) || (!name.is_empty() && !names.insert(name)) {
            rules.report(provider.offset, format!("provider {name} {} is defined twice", provider.id));
        }
        rules.check_provider(provider);
    }
    rules.check_symbols(manifest);
}

struct RuleChecker<'w> {
    report: &'w mut dyn FnMut(u64, String),
}

impl RuleChecker<'_> {
    fn report(&mut self, offset: u64, reason: String) {
        (self.report)(offset, reason);
    }

    fn check_provider(&mut self, provider: &RawProvider) {
        self.check_numbers("level", &provider.levels, winmeta::LEVELS, 16..=255);
        self.check_numbers("opcode", &provider.opcodes, winmeta::OPCODES, 10..=239);
        self.check_numbers(
            "task",
            provider.tasks.iter().map(|task| &task.definition),
            winmeta::TASKS,
            1..=0xFFFF,
        );
        for task in &provider.tasks {
            self.check_numbers("opcode", &task.opcodes, winmeta::OPCODES, 10..=239);
        }
        self.check_numbers("keyword", &provider.keywords, winmeta::KEYWORDS, 1..=KEYWORD_BITS);
        for keyword in provider.keywords.iter().filter(|keyword| keyword.value.count_ones() > 1) {
            self.report(
                keyword.offset,
                format!("keyword {}: its mask has more than one bit", keyword.name.trim()),
            );
        }
        self.check_channels(&provider.channels);
        provider.maps.iter().for_each(|map| self.check_map(map));
        provider.templates.iter().for_each(|template| self.check_fields(&template.fields));
    }

    fn check_numbers<'d>(
        &mut self,
        kind: &str,
        definitions: impl IntoIterator<Item = &'d RawDefinition>,
        predefined: &[(&str, u64)],
        range: RangeInclusive<u64>,
    ) {
        let mut values = HashMap::new();
        for definition in definitions {
            let (name, value) = (definition.name.trim(), definition.value);
            if !range.contains(&value) && !predefined.contains(&(name, value)) {
                let (min, max) = range.clone().into_inner();
                let reason =
                    format!("{kind} {name}: {value:#x} is reserved, use a value from {min:#x} to {max:#x}");
                self.report(definition.offset, reason);
            }
            self.check_unique(&mut values, value, name, definition.offset, kind);
        }
    }

    /// Records a value, and reports a mistake if another name has it.
    fn check_unique<'n, T: Hash + Eq>(
        &mut self,
        values: &mut HashMap<T, &'n str>,
        value: T,
        name: &'n str,
        offset: u64,
        kind: &str,
    ) {
        if let Some(previous_name) = values.insert(value, name) {
            self.report(offset, format!("{kind} {name} has the value of {previous_name}"));
        }
    }

    fn check_channels(&mut self, channels: &[RawChannel]) {
        let (mut ids, mut names, mut values) = (HashSet::new(), HashSet::new(), HashMap::new());
        for channel in channels {
            let name = channel.name.trim();
            let is_new = channel.id.as_deref().is_none_or(|id| ids.insert(id.trim()));
            if !names.insert(name) || !is_new {
                self.report(channel.offset, format!("channel {name} or its chid is defined twice"));
            }
            let Some(value) = channel.value else { continue };
            if value < winmeta::FIRST_MANIFEST_CHANNEL && !channel.is_imported {
                self.report(
                    channel.offset,
                    format!("channel {name}: {value:#x} is reserved, use a value from 0x10 to 0xff"),
                );
            }
            self.check_unique(&mut values, value, name, channel.offset, "channel");
        }
    }

    fn check_map(&mut self, map: &RawMap) {
        if map.entries.is_empty() {
            self.report(map.offset, format!("map {} has no entries", map.name));
        }
        let mut values = HashSet::new();
        for entry in map.entries.iter().filter(|entry| !values.insert(entry.value)) {
            self.report(entry.offset, format!("map {} has value {:#x} twice", map.name, entry.value));
        }
    }

    /// Checks fields and members of structures. The reader bounds the nesting.
    fn check_fields(&mut self, fields: &[RawField]) {
        let mut names = HashSet::new();
        for field in fields {
            let name = field.name.trim();
            if !names.insert(name) {
                self.report(field.offset, format!("field {name} is defined twice"));
            }
            match &field.shape {
                RawShape::Struct(members) => self.check_fields(members),
                RawShape::Value { input, map, .. } => {
                    if field.length.is_some() && !has_length(*input) {
                        self.report(
                            field.offset,
                            format!("field {name}: only text and win:Binary have a length"),
                        );
                    }
                    if map.is_some() && !is_integer(*input) {
                        self.report(field.offset, format!("field {name}: only integers have a map"));
                    }
                }
            }
        }
    }

    /// Checks that all symbols of a manifest, which are names in one C header, are unique.
    fn check_symbols<'m>(&mut self, manifest: &'m RawManifest) {
        // The number that each symbol names, or `None` for a provider, an event, or a channel
        // without a number. A symbol may be repeated only for the same number.
        let mut symbols: HashMap<&'m str, Option<u64>> = HashMap::new();
        let mut add_symbol = |offset: u64, symbol: &'m Option<String>, value: Option<u64>| {
            let Some((symbol, previous)) = symbol.as_deref().map(|s| (s, symbols.insert(s, value))) else {
                return;
            };
            if previous.is_some_and(|previous| value.is_none() || previous != value) {
                self.report(offset, format!("symbol {symbol} already names something else"));
            }
        };
        for provider in &manifest.providers {
            add_symbol(provider.offset, &provider.symbol, None);
            let tasks = provider.tasks.iter();
            let opcodes = provider.opcodes.iter().chain(tasks.clone().flat_map(|task| &task.opcodes));
            let numbers = provider.levels.iter().chain(&provider.keywords).chain(opcodes);
            for d in numbers.chain(tasks.map(|task| &task.definition)) {
                add_symbol(d.offset, &d.symbol, Some(d.value));
            }
            provider.channels.iter().for_each(|c| add_symbol(c.offset, &c.symbol, c.value.map(u64::from)));
            for entry in provider.maps.iter().flat_map(|map| &map.entries) {
                add_symbol(entry.offset, &entry.symbol, Some(entry.value));
            }
            provider.events.iter().for_each(|event| add_symbol(event.offset, &event.symbol, None));
        }
        for event in manifest.providers.iter().flat_map(|provider| &provider.events) {
            let Some(symbol) = event.symbol.as_deref() else { continue };
            for generated in GENERATED_SUFFIXES
                .map(|suffix| format!("{symbol}{suffix}"))
                .iter()
                .filter(|generated| symbols.contains_key(generated.as_str()))
            {
                self.report(
                    event.offset,
                    format!("symbol {generated} is generated for event {symbol}; rename one of them"),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::read_definitions;

    fn find_mistakes(provider_content: &str) -> Vec<String> {
        let xml = format!(
            "<instrumentationManifest><provider name=\"P\" guid=\"{{11223344-5566-7788-99aa-bbccddeeff00}}\">{provider_content}</provider></instrumentationManifest>"
        );
        read_definitions(xml.as_bytes(), "en-US")
            .err()
            .into_iter()
            .flatten()
            .map(|mistake| mistake.reason)
            .collect()
    }

    #[test]
    fn each_broken_rule_is_reported() {
        for (provider_content, expected) in [
            ("<levels><level name='L' value='15'/></levels>", "0xf is reserved"),
            (
                "<levels><level name='L' value='16'/><level name='M' value='16'/></levels>",
                "level M has the value of L",
            ),
            ("<opcodes><opcode name='O' value='9'/></opcodes>", "0x9 is reserved"),
            ("<opcodes><opcode name='O' value='240'/></opcodes>", "0xf0 is reserved"),
            ("<tasks><task name='T' value='0'/></tasks>", "0x0 is reserved"),
            (
                "<tasks><task name='T' value='1'><opcodes><opcode name='O' value='1'/></opcodes></task></tasks>",
                "0x1 is reserved",
            ),
            ("<keywords><keyword name='K' mask='3'/></keywords>", "more than one bit"),
            ("<keywords><keyword name='K' mask='0'/></keywords>", "is reserved"),
            ("<keywords><keyword name='K' mask='0x1000000000000'/></keywords>", "is reserved"),
            ("<channels><channel name='C' value='9'/></channels>", "is reserved"),
            (
                "<channels><channel chid='c' name='C'/><channel chid='c' name='D'/></channels>",
                "defined twice",
            ),
            ("<maps><valueMap name='M'/></maps>", "no entries"),
            (
                "<maps><bitMap name='M'><map value='1' message='a'/><map value='1' message='b'/></bitMap></maps>",
                "value 0x1 twice",
            ),
            (
                "<templates><template tid='T'><data name='a' inType='win:Int8'/><data name='a' inType='win:Int8'/></template></templates>",
                "field a is defined twice",
            ),
            (
                "<templates><template tid='T'><data name='a' inType='win:Int8' length='4'/></template></templates>",
                "have a length",
            ),
            (
                "<templates><template tid='T'><data name='a' inType='win:Int8' count='2'/><data name='b' inType='win:Int8' count='a'/></template></templates>",
                "is an array itself",
            ),
            (
                "<maps><valueMap name='M'><map value='1' message='a'/></valueMap></maps><templates><template tid='T'><data name='a' inType='win:Float' map='M'/></template></templates>",
                "have a map",
            ),
            (
                "<templates><template tid='T'><dta name='a' inType='win:Int8'/></template></templates>",
                "element dta is not known",
            ),
            ("<evnts/>", "element evnts is not known"),
            ("<events><event value='1' keyword='K'/></events>", "no attribute keyword"),
            (
                "<tasks><task name='T' value='1' symbol='E'/></tasks><events><event value='1' symbol='E'/></events>",
                "symbol E already names",
            ),
            (
                "<tasks><task name='T' value='1' symbol='S'/></tasks><opcodes><opcode name='O' value='11' symbol='S'/></opcodes>",
                "symbol S already names",
            ),
            (
                "<events><event value='1' symbol='E'/><event value='2' symbol='E_Activity'/></events>",
                "E_Activity is generated for event E",
            ),
            ("</provider><provider name='P' guid='{11223344-5566-7788-99aa-bbccddeeff01}'>", "provider P"),
            (
                "</provider><localization><resources culture='en-US'><stringTable><string id='a' value='x'/><string id='a' value='y'/></stringTable></resources></localization><provider name='Q' guid='{11223344-5566-7788-99aa-bbccddeeff01}'>",
                "string a is defined twice",
            ),
        ] {
            let mistakes = find_mistakes(provider_content);
            assert!(
                mistakes.len() == 1 && mistakes.iter().all(|reason| reason.contains(expected)),
                "{provider_content}: {expected}: {mistakes:#?}"
            );
        }
    }

    #[test]
    fn allowed_definitions_are_accepted() {
        for provider_content in [
            "<levels><level name='win:Error' value='2'/><level name='L' value='255'/></levels>",
            "<opcodes><opcode name='win:Start' value='1'/><opcode name='O' value='10'/><opcode name='P' value='239'/></opcodes>",
            "<tasks><task name='T' value='0xFFFF'><opcodes><opcode name='O' value='10'/></opcodes></task></tasks><opcodes><opcode name='P' value='10'/></opcodes>",
            "<keywords><keyword name='K' mask='0x800000000000'/></keywords>",
            "<channels><importChannel name='System'/><channel name='C' value='16'/></channels>",
            "<tasks><task name='T' value='20' symbol='S'/></tasks><opcodes><opcode name='O' value='20' symbol='S'/></opcodes>",
            "<templates><template tid='T'><data name='a' inType='win:Int8'/><struct name='s'><data name='a' inType='win:Int8'/></struct><UserData><x/></UserData></template></templates>",
            "<events><event value='1' notLogged='true' xmlns:x='urn:x' x:y='z'/></events><filters><filter name='F' value='1'/></filters>",
        ] {
            assert_eq!(find_mistakes(provider_content), [] as [&str; 0], "{provider_content}");
        }
    }

    #[test]
    fn requested_culture_must_exist() {
        let xml = b"<instrumentationManifest><provider name='P' guid='{11223344-5566-7788-99aa-bbccddeeff00}'/></instrumentationManifest>";
        assert!(read_definitions(xml, "en-us").is_ok());
        assert_eq!(
            read_definitions(xml, "de_DE").unwrap_err()[0].reason,
            "there are no texts of culture de_DE"
        );
    }
}
