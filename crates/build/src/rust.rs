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

use traceweir_decode::source::manifest::{MapDefinition, Name, ProviderDefinition};
use traceweir_format::spec::event::EventDescriptor;

use crate::code::{Code, comment, literal};
use crate::ident::{UsedNames, constant, snake};
use crate::manifest::{Manifest, write_file};
use crate::{Result, plan};
use types::Structures;

impl Manifest {
    /// Returns the source of one Rust module per provider; they include the resource from
    /// `resource_file` in the same folder.
    pub fn rust_module(&self, resource_file: &str) -> Result<String> {
        Ok(module(self, resource_file, self.resource()?.len()))
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

/// Returns the source of the modules.
fn module(manifest: &Manifest, resource_file: &str, resource_size: usize) -> String {
    let mut code = Code::default();
    code.line(format!(
        "// Made from {} by the manifest compiler of Traceweir. Do not edit.",
        comment(&manifest.file_name())
    ));
    code.line("");
    code.line("/// The compiled manifest, which readers of traces find in the program.");
    code.line(
        "#[allow(unsafe_code, reason = \"the name of a section is taken on trust; nothing else uses it\")]",
    );
    code.line("#[used]");
    code.line(format!("#[unsafe(link_section = \"{}\")]", traceweir_decode::source::binary::ELF_SECTION));
    let file = rust_literal(resource_file);
    code.line(format!("static RESOURCE: [u8; {resource_size}] = *include_bytes!({file});"));
    let mut taken = UsedNames::default();
    for provider in manifest.providers() {
        let name = taken.unique(snake(provider.name.as_deref().unwrap_or_default()));
        code.line("");
        code.line(format!("/// Provider `{}`.", comment(provider.name.as_deref().unwrap_or_default())));
        // A program uses only a part of the module, in a crate with its own lints and visibility.
        code.line(
            "#[allow(dead_code, unreachable_pub, unused_variables, non_upper_case_globals, clippy::all, clippy::pedantic)]",
        );
        code.block(format!("pub mod {name} {{"), "}", |code| write_provider(code, provider));
    }
    code.finish()
}

fn rust_literal(text: &str) -> String {
    literal(text, |c| format!("\\u{{{c:x}}}"))
}

fn write_provider(code: &mut Code, provider: &ProviderDefinition) {
    let events = plan::events(provider, &mut plan::symbols(std::slice::from_ref(provider)));
    let structures = Structures::write(code, provider);
    code.line("/// The registered provider; unregistered on drop.");
    code.line("#[derive(Debug)]");
    code.line("pub struct Provider(::traceweir::Provider);");
    code.block("impl Provider {", "}", |code| {
        write_registration(code, provider);
        let mut taken = UsedNames::default();
        let _ = ["register", "register_with", "provider"].map(|name| taken.unique(name.to_owned()));
        for (event, constant) in events.iter().zip(event_constants(&events)) {
            let name = taken.unique_with(snake(&event.symbol), &["", "_enabled", "_transfer"]);
            event::write(code, event, &name, &constant, &structures);
        }
    });
    code.line("/// The descriptors of events.");
    code.block("pub mod event {", "}", |code| {
        for (event, constant) in events.iter().zip(event_constants(&events)) {
            write_descriptor(code, &event.symbol, &constant, &event.definition.event.descriptor);
        }
    });
    for (what, names) in plan::tables(provider) {
        write_constants(code, what, names);
    }
    write_maps(code, &provider.maps);
}

fn event_constants(events: &[plan::Event<'_>]) -> Vec<String> {
    let mut taken = UsedNames::default();
    events.iter().map(|event| taken.unique(constant(&event.symbol))).collect()
}

fn write_registration(code: &mut Code, provider: &ProviderDefinition) {
    let id =
        u128::from_str_radix(&provider.id.to_string().replace(['-', '{', '}'], ""), 16).unwrap_or_default();
    code.line("/// The GUID of the provider.");
    code.line(format!("pub const ID: ::traceweir::Guid = ::traceweir::Guid::from_u128({id:#034x});"));
    code.line("/// The name of the provider.");
    let name = rust_literal(provider.name.as_deref().unwrap_or_default());
    code.line(format!("pub const NAME: &'static str = {name};"));
    code.line("/// Registers the provider, and lets sessions record where its compiled manifest is.");
    code.block("pub fn register() -> ::traceweir::Result<Self> {", "}", |code| {
        code.line("Self::register_with(None)");
    });
    code.line(
        "/// Like `register`, with a callback that is called when sessions enable or disable the provider.",
    );
    let head = "pub fn register_with(callback: Option<::traceweir::provider::EnableCallback>) -> ::traceweir::Result<Self> {";
    code.block(head, "}", |code| {
        code.line("let resource = ::core::hint::black_box(&super::RESOURCE).as_ptr() as usize;");
        code.line("let provider = ::traceweir::Provider::register_at(Self::ID, callback, resource)?;");
        code.line("// EventProviderBinaryTrackInfo; without it traces are complete, only harder to read.");
        code.line("let _ = provider.set_information(0, None);");
        code.line("Ok(Self(provider))");
    });
    code.line("/// Returns the registered provider.");
    code.block("pub fn provider(&self) -> &::traceweir::Provider {", "}", |code| code.line("&self.0"));
}

fn write_descriptor(code: &mut Code, symbol: &str, constant: &str, d: &EventDescriptor) {
    code.line(format!("/// Event `{}`.", comment(symbol)));
    code.line(format!(
        "pub const {constant}: ::traceweir::EventDescriptor = ::traceweir::EventDescriptor {{ id: {}, version: {}, channel: {}, level: {}, opcode: {}, task: {}, keyword: {:#x} }};",
        d.id, d.version, d.channel, d.level, d.opcode, d.task, d.keyword
    ));
}

fn write_constants(code: &mut Code, what: &str, names: &[Name]) {
    if names.is_empty() {
        return;
    }
    let ty = match what {
        "task" => "u16",
        "keyword" => "u64",
        _ => "u8",
    };
    code.line(format!("/// Numbers of {what}s."));
    code.block(format!("pub mod {what} {{"), "}", |code| {
        let mut taken = UsedNames::default();
        for name in names {
            let constant = taken.unique(constant(name.symbol.as_deref().unwrap_or(&name.name)));
            code.line(format!("/// {}", comment(name.display())));
            code.line(format!("pub const {constant}: {ty} = {:#x};", name.value));
        }
    });
}

fn write_maps(code: &mut Code, maps: &[MapDefinition]) {
    if maps.is_empty() {
        return;
    }
    code.line("/// Values of fields that have names.");
    code.block("pub mod map {", "}", |code| {
        let mut modules = UsedNames::default();
        for map in maps {
            let module = modules.unique(snake(map.symbol.as_deref().unwrap_or(&map.map.name)));
            code.line(format!("/// Map `{}`.", comment(&map.map.name)));
            code.block(format!("pub mod {module} {{"), "}", |code| {
                let mut taken = UsedNames::default();
                for (value, text, symbol) in &map.entries {
                    let name = symbol
                        .as_deref()
                        .or(text.as_deref())
                        .map_or_else(|| format!("VALUE_{value}"), constant);
                    code.line(format!("/// {}", comment(text.as_deref().unwrap_or_default())));
                    code.line(format!("pub const {}: u32 = {value:#x};", taken.unique(name)));
                }
            });
        }
    });
}
