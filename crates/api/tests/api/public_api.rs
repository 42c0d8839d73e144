//! Lists the public API of the crate from its sources and compares the list with `public-api.txt`,
//! so that a change of the API shows in a review. `BLESS=1` rewrites the file.
//!
//! Public items are found through re-exports. Items marked `#[doc(hidden)]` are left out, and items
//! that macros generate are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[test]
fn public_api_matches_public_api_txt() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listing = CrateSource::read(&root.join("src/lib.rs")).list_public_items();
    let file = root.join("public-api.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &listing).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    let (old, new): (BTreeSet<&str>, BTreeSet<&str>) =
        (committed.lines().collect(), listing.lines().collect());
    let removed: Vec<_> = old.difference(&new).collect();
    let added: Vec<_> = new.difference(&old).collect();
    assert!(
        committed == listing,
        "the public API has changed (BLESS=1 rewrites public-api.txt); removed: {removed:#?}; added: {added:#?}"
    );
}

#[test]
fn public_types_with_members_are_non_exhaustive() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listing = CrateSource::read(&root.join("src/lib.rs")).list_public_items();
    // Callers could write types with public fields as literals, and match all variants of enums.
    // The types in closed_types.txt are documented layouts, or closed by their meaning.
    let closed = include_str!("closed_types.txt");
    let mut closed: BTreeSet<&str> = closed.lines().filter(|line| !line.starts_with('#')).collect();
    let mut unmarked = Vec::new();
    let lines: Vec<&str> = listing.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum ")) else {
            continue;
        };
        let name = name.split(['<', '(', ' ']).next().unwrap();
        let is_member = |next: &&str| {
            next.starts_with("    pub ") || next.starts_with("    ") && line.starts_with("pub enum")
        };
        let has_members = lines.get(index + 1).is_some_and(is_member) || line.contains("(pub ");
        if has_members && !line.contains("#[non_exhaustive]") && !closed.remove(name) {
            unmarked.push(name);
        }
    }
    assert!(unmarked.is_empty(), "neither #[non_exhaustive] nor in closed_types.txt: {unmarked:#?}");
    assert!(closed.is_empty(), "in closed_types.txt, but not needed there: {closed:#?}");
}

/// Removes line comments and the contents of literals.
fn strip_comments_and_literals(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let char_at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let (mut out, mut i) = (String::new(), 0);
    while i < chars.len() {
        match char_at(i) {
            '/' if char_at(i + 1) == '/' => {
                while i < chars.len() && char_at(i) != '\n' {
                    i += 1;
                }
            }
            'r' if matches!(char_at(i + 1), '"' | '#') && !char_at(i.wrapping_sub(1)).is_alphanumeric() => {
                let hashes = (i + 1..).take_while(|n| char_at(*n) == '#').count();
                if char_at(i + 1 + hashes) == '"' {
                    let end: String = std::iter::once('"').chain((0..hashes).map(|_| '#')).collect();
                    i += 2 + hashes;
                    while i < chars.len() && !chars[i..].iter().take(end.len()).copied().eq(end.chars()) {
                        i += 1;
                    }
                    i += end.len();
                    out.push_str("\"\"");
                } else {
                    out.push('r');
                    i += 1;
                }
            }
            '"' => {
                i += 1;
                while i < chars.len() && char_at(i) != '"' {
                    i += if char_at(i) == '\\' { 2 } else { 1 };
                }
                i += 1;
                out.push_str("\"\"");
            }
            '\'' if char_at(i + 1) == '\\' => {
                // The quote, the backslash and the character after it.
                i += 3;
                while char_at(i) != '\'' {
                    i += 1;
                }
                i += 1;
                out.push_str("' '");
            }
            '\'' if char_at(i + 2) == '\'' => {
                i += 3;
                out.push_str("' '");
            }
            other => {
                out.push(other);
                i += 1;
            }
        }
    }
    out
}

/// An item as its source shows it: attributes, the declaration before the body, the body.
#[derive(Clone, Debug)]
struct SourceItem {
    attributes: Vec<String>,
    declaration: String,
    body: Option<String>,
}

impl SourceItem {
    fn has_attribute(&self, attribute: &str) -> bool {
        self.attributes.iter().any(|text| text.contains(attribute))
    }

    fn is_public(&self) -> bool {
        self.declaration.starts_with("pub ") && !self.is_hidden()
    }

    fn is_hidden(&self) -> bool {
        self.has_attribute("doc(hidden)") || self.has_attribute("cfg(test)")
    }

    /// Returns the kind and name of a named item: `struct`, `Session`.
    fn kind_and_name(&self) -> Option<(&str, &str)> {
        let mut kind = "";
        for word in remove_visibility(&self.declaration).split_whitespace() {
            match word {
                "struct" | "enum" | "trait" | "fn" | "type" | "static" | "mod" | "union" => kind = word,
                "const" | "unsafe" | "async" | "extern" | "\"\"" | "mut" if kind.is_empty() => {
                    kind = if word == "const" { "const" } else { "" };
                }
                name if !kind.is_empty() => {
                    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
                    return Some((kind, &name[..end.unwrap_or(name.len())]));
                }
                _ => return None,
            }
        }
        None
    }
}

/// Removes `pub`, `pub(crate)` or the like from an item.
fn remove_visibility(item: &str) -> &str {
    match item.strip_prefix("pub(") {
        Some(restricted) => restricted.split_once(')').map_or("", |(_, rest)| rest.trim_start()),
        None => item.strip_prefix("pub ").unwrap_or(item),
    }
}

fn normalize_spaces(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace("( ", "(").replace(", )", ")").replace(" )", ")").replace(",)", ")")
}

/// Splits a text that begins with an opening bracket after the matching closing bracket.
fn split_after_bracket(text: &str) -> (&str, &str) {
    let mut depth = 0_i32;
    for (at, c) in text.char_indices() {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        if depth == 0 {
            return text.split_at(at + c.len_utf8());
        }
    }
    (text, "")
}

/// Splits stripped source text into items.
fn split_items(mut text: &str) -> Vec<SourceItem> {
    let mut items = Vec::new();
    loop {
        let mut attributes = Vec::new();
        text = text.trim_start();
        while text.starts_with('#') {
            let bracket = text.find('[').unwrap();
            let (attribute, rest) = split_after_bracket(&text[bracket..]);
            attributes.push(normalize_spaces(attribute));
            text = rest.trim_start();
        }
        if text.is_empty() {
            return items;
        }
        let plain = remove_visibility(text);
        let ends_in_semicolon =
            ["use ", "const ", "static ", "type "].iter().any(|word| plain.starts_with(word))
                && !plain.starts_with("const fn")
                && !plain.starts_with("const unsafe");
        let (mut at, mut body) = (0, None);
        let rest = loop {
            let Some(c) = text[at..].chars().next() else { break "" };
            match c {
                ';' => break &text[at + 1..],
                '{' if !ends_in_semicolon => {
                    let (inner, rest) = split_after_bracket(&text[at..]);
                    body = Some(inner[1..inner.len() - 1].to_owned());
                    break rest;
                }
                '(' | '[' | '{' => at += split_after_bracket(&text[at..]).0.len(),
                _ => at += c.len_utf8(),
            }
        };
        let declaration = normalize_spaces(&text[..at]);
        items.push(SourceItem { attributes, declaration, body });
        text = rest;
    }
}

/// Splits the fields of a structure or the variants of an enumeration.
fn split_members(body: &str) -> Vec<String> {
    let (mut members, mut rest) = (Vec::new(), body.trim_start());
    while !rest.is_empty() {
        let mut is_hidden = false;
        while rest.starts_with('#') {
            let (attribute, after) = split_after_bracket(&rest[1..]);
            is_hidden |= attribute.contains("doc(hidden)");
            rest = after.trim_start();
        }
        let (mut at, mut angles) = (0, 0_i32);
        while let Some(c) = rest[at..].chars().next() {
            match c {
                ',' if angles == 0 => break,
                '(' | '[' | '{' => {
                    at += split_after_bracket(&rest[at..]).0.len();
                    continue;
                }
                '<' => angles += 1,
                // The `>` of `->` closes no bracket.
                '>' if !rest[..at].ends_with('-') => angles -= 1,
                _ => {}
            }
            at += c.len_utf8();
        }
        if !is_hidden && !rest[..at].trim().is_empty() {
            members.push(normalize_spaces(&rest[..at]));
        }
        rest = rest.get(at + 1..).unwrap_or_default().trim_start();
    }
    members
}

/// One name that a `use` brings into a module.
#[derive(Debug)]
struct Import {
    name: String,
    path: Vec<String>,
    is_public: bool,
}

/// Splits the tree of a `use` into names.
fn collect_imports(prefix: &[String], tree: &str, is_public: bool, imports: &mut Vec<Import>) {
    let tree = tree.trim();
    if let Some(group) = tree.find('{') {
        let mut path = prefix.to_vec();
        path.extend(tree[..group].split("::").filter(|part| !part.trim().is_empty()).map(str::to_owned));
        let (group, _) = split_after_bracket(&tree[group..]);
        for part in split_members(&group[1..group.len() - 1]) {
            collect_imports(&path, &part, is_public, imports);
        }
        return;
    }
    let (tree, alias) = tree.split_once(" as ").map_or((tree, None), |(tree, alias)| (tree, Some(alias)));
    let mut path = prefix.to_vec();
    path.extend(tree.split("::").filter(|part| *part != "self" || prefix.is_empty()).map(str::to_owned));
    let name = alias.map_or_else(|| path.last().cloned().unwrap_or_default(), str::to_owned);
    imports.push(Import { name, path, is_public });
}

#[derive(Debug, Default)]
struct SourceModule {
    parent: usize,
    path: String,
    is_public: bool,
    items: Vec<SourceItem>,
    imports: Vec<Import>,
    children: BTreeMap<String, usize>,
}

/// An item or module that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathTarget {
    /// The index of a module, and that of the item in it.
    Item(usize, usize),
    Module(usize),
}

/// Maximum number of steps in which a path is resolved: imports may form a cycle.
const MAX_RESOLVE_DEPTH: usize = 12;

struct CrateSource {
    modules: Vec<SourceModule>,
}

impl CrateSource {
    fn read(lib: &Path) -> Self {
        let mut source = Self { modules: Vec::new() };
        let folder = lib.parent().unwrap().to_owned();
        let root = SourceModule { path: "traceweir".to_owned(), is_public: true, ..SourceModule::default() };
        source.add_module(
            root,
            &strip_comments_and_literals(&std::fs::read_to_string(lib).unwrap()),
            &folder,
        );
        source
    }

    fn add_module(&mut self, module: SourceModule, text: &str, folder: &Path) -> usize {
        let index = self.modules.len();
        let (path, is_public) = (module.path.clone(), module.is_public);
        self.modules.push(module);
        for item in split_items(text) {
            if item.has_attribute("cfg(test)") {
                continue;
            }
            if let Some(tree) = remove_visibility(&item.declaration).strip_prefix("use ") {
                let is_public = item.is_public();
                collect_imports(&[], tree, is_public, &mut self.modules[index].imports);
            } else if let Some(("mod", name)) = item.kind_and_name() {
                let child = SourceModule {
                    parent: index,
                    path: format!("{path}::{name}"),
                    is_public: is_public && item.is_public(),
                    ..SourceModule::default()
                };
                let module_folder = folder.join(name);
                let child = match &item.body {
                    Some(text) => self.add_module(child, text, &module_folder),
                    None => {
                        let files: [PathBuf; 2] =
                            [folder.join(format!("{name}.rs")), module_folder.join("mod.rs")];
                        let file = files.iter().find(|file| file.is_file()).unwrap();
                        self.add_module(
                            child,
                            &strip_comments_and_literals(&std::fs::read_to_string(file).unwrap()),
                            &module_folder,
                        )
                    }
                };
                self.modules[index].children.insert(name.to_owned(), child);
            } else {
                self.modules[index].items.push(item);
            }
        }
        index
    }

    /// Returns the item or module that a path names in a module; `None` for other crates.
    fn resolve(&self, module: usize, path: &[String], depth: usize) -> Option<PathTarget> {
        let (first, rest) = path.split_first()?;
        if depth > MAX_RESOLVE_DEPTH {
            return None;
        }
        let here = &self.modules[module];
        let start = match first.as_str() {
            "crate" => PathTarget::Module(0),
            "self" => PathTarget::Module(module),
            "super" => PathTarget::Module(here.parent),
            name => {
                let has_name =
                    |item: &SourceItem| item.kind_and_name().is_some_and(|(_, item_name)| item_name == name);
                let import = || here.imports.iter().find(|import| import.name == name && import.path != path);
                if let Some(child) = here.children.get(name) {
                    PathTarget::Module(*child)
                } else if let Some(index) = here.items.iter().position(has_name) {
                    PathTarget::Item(module, index)
                } else {
                    self.resolve(module, &import()?.path, depth + 1)?
                }
            }
        };
        match (rest, start) {
            ([], target) => Some(target),
            (rest, PathTarget::Module(inner)) => self.resolve(inner, rest, depth + 1),
            (_, PathTarget::Item(..)) => None,
        }
    }

    /// Returns the impl blocks of each item.
    fn find_impls(&self) -> BTreeMap<PathTarget, Vec<&SourceItem>> {
        let mut impls: BTreeMap<PathTarget, Vec<&SourceItem>> = BTreeMap::new();
        for (index, module) in self.modules.iter().enumerate() {
            for item in module.items.iter().filter(|item| item.declaration.starts_with("impl")) {
                if let Some(target) = self.resolve(index, &[implemented_type(&item.declaration)], 0) {
                    impls.entry(target).or_default().push(item);
                }
            }
        }
        impls
    }

    fn list_public_items(&self) -> String {
        let impls = self.find_impls();
        let mut listed: BTreeMap<PathTarget, String> = BTreeMap::new();
        let mut entries = BTreeMap::new();
        for (index, module) in self.modules.iter().enumerate().rev().filter(|(_, module)| module.is_public) {
            entries.insert(module.path.clone(), vec![format!("pub mod {}", module.path)]);
            for (at, item) in module.items.iter().enumerate() {
                let target = PathTarget::Item(index, at);
                if item.declaration.starts_with("macro_rules!")
                    && item.has_attribute("macro_export")
                    && !item.is_hidden()
                {
                    let name = item.declaration.trim_start_matches("macro_rules! ");
                    entries
                        .insert(format!("traceweir::{name}!"), vec![format!("pub macro traceweir::{name}!")]);
                }
                if let Some((_, name)) = item.kind_and_name().filter(|_| item.is_public()) {
                    let path = format!("{}::{name}", module.path);
                    entries.insert(path.clone(), describe_item(item, &path, impls.get(&target)));
                    listed.insert(target, path);
                }
            }
        }
        // The modules are visited in reverse, so that the root comes last: it repeats names that
        // belong to modules.
        for (index, module) in self.modules.iter().enumerate().rev().filter(|(_, module)| module.is_public) {
            for import in module.imports.iter().filter(|import| import.is_public) {
                let path = format!("{}::{}", module.path, import.name);
                let entry = match self.resolve(index, &import.path, 0) {
                    Some(target @ PathTarget::Item(inner, at)) => match listed.get(&target) {
                        Some(known) => vec![format!("pub use {path} = {known}")],
                        None => {
                            let item = &self.modules[inner].items[at];
                            listed.insert(target, path.clone());
                            describe_item(item, &path, impls.get(&target))
                        }
                    },
                    Some(PathTarget::Module(inner)) => {
                        vec![format!("pub use {path} = {}", self.modules[inner].path)]
                    }
                    None => vec![format!("pub use {path} = {}", import.path.join("::"))],
                };
                entries.entry(path).or_insert(entry);
            }
        }
        let mut text = String::new();
        for line in entries.into_values().flatten() {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

/// Returns the name of the type that an impl block is for.
fn implemented_type(declaration: &str) -> String {
    let mut rest = declaration.trim_start_matches("unsafe ").trim_start_matches("impl").trim_start();
    if rest.starts_with('<') {
        let mut depth = 0;
        let is_closing = |(_, c): &(usize, char)| {
            depth += i32::from(*c == '<') - i32::from(*c == '>');
            depth == 0
        };
        let end = rest.char_indices().find(is_closing).map_or(rest.len(), |(at, _)| at + 1);
        rest = rest[end..].trim_start();
    }
    let name = rest.rsplit(" for ").next().unwrap_or(rest);
    let name = name.split(['<', ' ']).next().unwrap_or_default();
    name.rsplit("::").next().unwrap_or_default().to_owned()
}

/// Returns the lines of an item and its members.
fn describe_item(item: &SourceItem, path: &str, impls: Option<&Vec<&SourceItem>>) -> Vec<String> {
    let (kind, name) = item.kind_and_name().unwrap();
    let declaration = item.declaration.replacen(&format!("{kind} {name}"), &format!("{kind} {path}"), 1);
    let declaration = remove_value(&declaration);
    let mark = if item.has_attribute("non_exhaustive") { " #[non_exhaustive]" } else { "" };
    let mut lines = vec![format!("{}{mark}", hide_private_parts(declaration))];
    let body = item.body.as_deref().unwrap_or_default();
    match kind {
        "struct" => lines.extend(split_members(body).into_iter().filter(|field| field.starts_with("pub "))),
        "enum" => lines.extend(split_members(body)),
        "trait" => lines.extend(
            split_items(body).into_iter().filter(|inner| !inner.is_hidden()).map(|inner| inner.declaration),
        ),
        _ => return lines,
    }
    let derived = item.attributes.iter().filter_map(|text| text.strip_prefix("[derive("));
    let mut impl_lines: Vec<String> = derived
        .flat_map(|list| list.trim_end_matches(")]").split(',').map(|name| format!("impl {}", name.trim())))
        .collect();
    for block in impls.into_iter().flatten().filter(|block| !block.is_hidden()) {
        if block.declaration.contains(" for ") {
            impl_lines.push(block.declaration.replacen(&format!(" for {name}"), "", 1));
        } else {
            let inner = split_items(block.body.as_deref().unwrap_or_default());
            impl_lines.extend(
                inner
                    .iter()
                    .filter(|item| item.is_public())
                    .map(|item| remove_value(&item.declaration).to_owned()),
            );
        }
    }
    impl_lines.sort();
    lines.extend(impl_lines);
    let members = lines.split_off(1);
    lines.extend(members.into_iter().map(|line| format!("    {line}")));
    lines
}

/// Removes the value of a constant or type alias.
fn remove_value(declaration: &str) -> &str {
    let has_value =
        ["const ", "static ", "type "].iter().any(|word| remove_visibility(declaration).starts_with(word));
    match declaration.split_once(" = ") {
        Some((declared, _)) if has_value && !remove_visibility(declaration).starts_with("const fn") => {
            declared
        }
        _ => declaration,
    }
}

/// Replaces the fields of a tuple structure with an underscore, unless the first is public.
fn hide_private_parts(declaration: &str) -> String {
    match declaration.split_once('(') {
        Some((name, fields)) if declaration.contains("struct ") && !fields.starts_with("pub ") => {
            format!("{name}(_)")
        }
        _ => declaration.to_owned(),
    }
}
