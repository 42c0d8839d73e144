//! Rust modules: typed write functions, enable checks and constants of each provider.
//!
//! ```text
//!   pub mod example_workshop {
//!       pub struct ArraysRow<'a> { … }                     structures of templates
//!       pub struct Provider                                register(); for each event:
//!           fn mapped(&self, tool: u32, guards: u32)           writes it
//!           fn mapped_transfer(&self, activity, related, …)    writes it with activity ids
//!           fn mapped_enabled(&self) -> bool                   whether a session enables it
//!       pub mod event, channel, level, task, opcode, keyword, map  constants
//!   }
//! ```
//!
//! Counts and lengths are not arguments: the lengths of the slices give them. Slices that share a
//! count must have the same length.

mod event;
mod types;

use std::path::{Path, PathBuf};

use traceweir_decode::source::manifest::{MapDefinition, NameDefinition, ProviderDefinition};
use traceweir_format::spec::event::EventDescriptor;

use crate::code::{SourceText, quote_literal, sanitize_comment};
use crate::ident::{UsedNames, to_constant_name, to_snake_case};
use crate::manifest::{Manifest, write_file};
use crate::{Result, plan};
use types::StructureTypes;

impl Manifest {
    /// Returns the source of one Rust module per provider, and of a static that includes the
    /// resource from `resource_file` in the same folder.
    pub fn rust_module(&self, resource_file: &str) -> Result<String> {
        Ok(generate_module(self, resource_file, self.resource()?.len()))
    }

    /// Writes `STEM.rs` and its resource `STEM.etw` into a folder, and returns both paths.
    pub fn write_rust(&self, folder: impl AsRef<Path>) -> Result<[PathBuf; 2]> {
        let stem = self.stem();
        let resource = format!("{stem}.etw");
        let module = self.rust_module(&resource)?;
        let folder = folder.as_ref();
        Ok([
            write_file(folder.join(format!("{stem}.rs")), module.as_bytes())?,
            write_file(folder.join(resource), &self.resource()?)?,
        ])
    }
}

fn generate_module(manifest: &Manifest, resource_file: &str, resource_size: usize) -> String {
    let mut code = SourceText::default();
    code.push(format!(
        "// Made from {} by the manifest compiler of Traceweir. Do not edit.",
        sanitize_comment(&manifest.file_name())
    ));
    code.push("");
    code.push("/// The compiled manifest, which readers of traces find in the program.");
    code.push(
        "#[allow(unsafe_code, reason = \"the name of a section is taken on trust; nothing else uses it\")]",
    );
    code.push("#[used]");
    code.push(format!("#[unsafe(link_section = \"{}\")]", traceweir_decode::source::binary::ELF_SECTION));
    let file = rust_literal(resource_file);
    code.push(format!("static RESOURCE: [u8; {resource_size}] = *include_bytes!({file});"));
    let mut used_names = UsedNames::default();
    for provider in manifest.providers() {
        let name = used_names.make_unique(to_snake_case(provider.name.as_deref().unwrap_or_default()));
        code.push("");
        code.push(format!(
            "/// Provider `{}`.",
            sanitize_comment(provider.name.as_deref().unwrap_or_default())
        ));
        // A program uses only a part of the module, in a crate with its own lints and visibility.
        code.push(
            "#[allow(dead_code, unreachable_pub, unused_variables, non_upper_case_globals, clippy::all, clippy::pedantic)]",
        );
        code.push_block(format!("pub mod {name} {{"), "}", |code| write_provider(code, provider));
    }
    code.finish()
}

fn rust_literal(text: &str) -> String {
    quote_literal(text, |c| format!("\\u{{{c:x}}}"))
}

fn write_provider(code: &mut SourceText, provider: &ProviderDefinition) {
    let events = plan::plan_events(provider, &mut plan::manifest_symbols(std::slice::from_ref(provider)));
    let structures = StructureTypes::write(code, provider);
    code.push("/// The registered provider; unregistered on drop.");
    code.push("#[derive(Debug)]");
    code.push("pub struct Provider(::traceweir::Provider);");
    code.push_block("impl Provider {", "}", |code| {
        write_registration(code, provider);
        let mut used_names = UsedNames::default();
        let _ = ["register", "register_with", "provider"].map(|name| used_names.make_unique(name.to_owned()));
        for (event, constant) in events.iter().zip(event_constants(&events)) {
            let name =
                used_names.make_unique_with(to_snake_case(&event.symbol), &["", "_enabled", "_transfer"]);
            event::write_event(code, event, &name, &constant, &structures);
        }
    });
    code.push("/// The descriptors of events.");
    code.push_block("pub mod event {", "}", |code| {
        for (event, constant) in events.iter().zip(event_constants(&events)) {
            write_descriptor(code, &event.symbol, &constant, &event.definition.event.descriptor);
        }
    });
    for (kind, names) in plan::name_tables(provider) {
        write_constants(code, kind, names);
    }
    write_maps(code, &provider.maps);
}

fn event_constants(events: &[plan::PlannedEvent<'_>]) -> Vec<String> {
    let mut used_names = UsedNames::default();
    events.iter().map(|event| used_names.make_unique(to_constant_name(&event.symbol))).collect()
}

fn write_registration(code: &mut SourceText, provider: &ProviderDefinition) {
    let id =
        u128::from_str_radix(&provider.id.to_string().replace(['-', '{', '}'], ""), 16).unwrap_or_default();
    code.push("/// The GUID of the provider.");
    code.push(format!("pub const ID: ::traceweir::Guid = ::traceweir::Guid::from_u128({id:#034x});"));
    code.push("/// The name of the provider.");
    let name = rust_literal(provider.name.as_deref().unwrap_or_default());
    code.push(format!("pub const NAME: &'static str = {name};"));
    code.push("/// Registers the provider, and lets sessions record where its compiled manifest is.");
    code.push_block("pub fn register() -> ::traceweir::Result<Self> {", "}", |code| {
        code.push("Self::register_with(None)");
    });
    code.push(
        "/// Like `register`, with a callback that is called when sessions enable or disable the provider.",
    );
    let signature = "pub fn register_with(callback: Option<::traceweir::provider::EnableCallback>) -> ::traceweir::Result<Self> {";
    code.push_block(signature, "}", |code| {
        code.push("let resource = ::core::hint::black_box(&super::RESOURCE).as_ptr() as usize;");
        code.push("let provider = ::traceweir::Provider::register_at(Self::ID, callback, resource)?;");
        code.push("// EventProviderBinaryTrackInfo; without it traces are complete, only harder to read.");
        code.push("let _ = provider.set_information(0, None);");
        code.push("Ok(Self(provider))");
    });
    code.push("/// Returns the registered provider.");
    code.push_block("pub fn provider(&self) -> &::traceweir::Provider {", "}", |code| code.push("&self.0"));
}

fn write_descriptor(code: &mut SourceText, symbol: &str, constant: &str, d: &EventDescriptor) {
    code.push(format!("/// Event `{}`.", sanitize_comment(symbol)));
    code.push(format!(
        "pub const {constant}: ::traceweir::EventDescriptor = ::traceweir::EventDescriptor {{ id: {}, version: {}, channel: {}, level: {}, opcode: {}, task: {}, keyword: {:#x} }};",
        d.id, d.version, d.channel, d.level, d.opcode, d.task, d.keyword
    ));
}

fn write_constants(code: &mut SourceText, kind: &str, names: &[NameDefinition]) {
    if names.is_empty() {
        return;
    }
    let ty = match kind {
        "task" => "u16",
        "keyword" => "u64",
        _ => "u8",
    };
    code.push(format!("/// Numbers of {kind}s."));
    code.push_block(format!("pub mod {kind} {{"), "}", |code| {
        let mut used_names = UsedNames::default();
        for name in names {
            let constant =
                used_names.make_unique(to_constant_name(name.symbol.as_deref().unwrap_or(&name.name)));
            code.push(format!("/// {}", sanitize_comment(name.display())));
            code.push(format!("pub const {constant}: {ty} = {:#x};", name.value));
        }
    });
}

fn write_maps(code: &mut SourceText, maps: &[MapDefinition]) {
    if maps.is_empty() {
        return;
    }
    code.push("/// Values of fields that have names.");
    code.push_block("pub mod map {", "}", |code| {
        let mut modules = UsedNames::default();
        for map in maps {
            let module = modules.make_unique(to_snake_case(map.symbol.as_deref().unwrap_or(&map.map.name)));
            code.push(format!("/// Map `{}`.", sanitize_comment(&map.map.name)));
            code.push_block(format!("pub mod {module} {{"), "}", |code| {
                let mut used_names = UsedNames::default();
                for (value, text, symbol) in &map.entries {
                    let name = symbol
                        .as_deref()
                        .or(text.as_deref())
                        .map_or_else(|| format!("VALUE_{value}"), to_constant_name);
                    code.push(format!("/// {}", sanitize_comment(text.as_deref().unwrap_or_default())));
                    code.push(format!("pub const {}: u32 = {value:#x};", used_names.make_unique(name)));
                }
            });
        }
    });
}
