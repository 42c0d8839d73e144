//! Reads the modules of a crate from its source text: the names that each module defines, imports
//! and uses. Finds the file that defines the target of a path.
//!
//! Macros are not expanded. A path to an item that only a macro defines leads to the file of the
//! module that the path names.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Source files by path, with `/` between folders.
pub(super) type Sources = BTreeMap<String, String>;

/// A path of the source text, segment by segment.
type Path = Vec<String>;

/// Index of a module in its crate. The root has the index 0.
type ModuleId = usize;

/// All modules of one crate that are not for tests only.
#[derive(Debug, Default)]
pub(super) struct Crate {
    modules: Vec<Module>,
}

#[derive(Debug, Default)]
struct Module {
    name: String,
    file: String,
    /// Folder of the files of its child modules.
    folder: String,
    parent: Option<ModuleId>,
    /// Child modules by name. A name has several modules if `cfg` selects one of them.
    children: BTreeMap<String, Vec<ModuleId>>,
    items: BTreeSet<String>,
    /// Paths of the imports by the name that each binds. A name has several paths if `cfg` selects
    /// one of them, or if they are in different namespaces.
    imports: BTreeMap<String, Vec<Path>>,
    /// Imports that bind no name (`use PATH as _`).
    unnamed_imports: Vec<Path>,
    /// Paths before the `*` of glob imports.
    globs: Vec<Path>,
    /// Paths of at least two segments outside of imports.
    paths: BTreeSet<Path>,
    /// All identifiers of the text. Some of them may come from a glob import.
    identifiers: BTreeSet<String>,
}

impl Module {
    /// Returns whether a name has a meaning here without glob imports.
    fn defines(&self, name: &str) -> bool {
        self.children.contains_key(name) || self.items.contains(name) || self.imports.contains_key(name)
    }
}

/// The module or item that a path leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathTarget {
    Module(ModuleId),
    /// The file that defines an item.
    Item(String),
}

impl PathTarget {
    fn module(&self) -> Option<ModuleId> {
        match self {
            Self::Module(id) => Some(*id),
            Self::Item(_) => None,
        }
    }
}

/// One file's use of an item that another file defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Import {
    pub(super) from: String,
    pub(super) to: String,
    /// The path as the source text spells it.
    pub(super) path: String,
}

impl Crate {
    /// Reads the modules of the crate whose root is the file `root`.
    pub(super) fn read(sources: &Sources, root: &str) -> Self {
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut krate = Self::default();
        let (file, folder) = (root.to_owned(), folder.to_owned());
        krate.add_file(sources, Module { file, folder, ..Module::default() });
        krate
    }

    /// Returns the uses of items of other files, except between a module and its ancestors.
    pub(super) fn imports(&self) -> BTreeSet<Import> {
        let mut imports = BTreeSet::new();
        for (id, module) in self.modules.iter().enumerate() {
            let mut add = |targets: BTreeSet<PathTarget>, path: &[String]| {
                for target in targets {
                    if let PathTarget::Item(to) = target
                        && !self.are_related(&module.file, &to)
                    {
                        imports.insert(Import { from: module.file.clone(), to, path: path.join("::") });
                    }
                }
            };
            let named = module.imports.values().flatten();
            let paths = module.paths.iter().filter(|path| self.starts_at_module(id, path));
            for path in named.chain(&module.unnamed_imports).chain(paths) {
                add(self.resolve(id, path, &mut BTreeSet::new()), path);
            }
            for path in &module.globs {
                let targets = self.resolve(id, path, &mut BTreeSet::new());
                for source in targets.iter().filter_map(PathTarget::module) {
                    add(BTreeSet::from([PathTarget::Item(self.modules[source].file.clone())]), path);
                    for identifier in
                        module.identifiers.iter().filter(|identifier| !module.defines(identifier))
                    {
                        add(self.find_name(source, identifier, &mut BTreeSet::new()), path);
                    }
                }
            }
        }
        imports
    }

    /// Returns whether the first segment of a path is a module. Otherwise it is an item, and the
    /// import of that item already counts.
    fn starts_at_module(&self, from: ModuleId, path: &[String]) -> bool {
        let first = path.get(..1).unwrap_or_default();
        self.resolve(from, first, &mut BTreeSet::new()).iter().any(|target| target.module().is_some())
    }

    /// Returns whether the module of one file is an ancestor of the module of the other file.
    fn are_related(&self, first: &str, second: &str) -> bool {
        self.has_ancestor(first, second) || self.has_ancestor(second, first)
    }

    fn has_ancestor(&self, file: &str, ancestor: &str) -> bool {
        let mut next = self.modules.iter().position(|module| module.file == file);
        while let Some(id) = next {
            if self.modules[id].file == ancestor {
                return true;
            }
            next = self.modules[id].parent;
        }
        false
    }

    /// Returns the targets of a path in a module; an empty set for items of other crates.
    fn resolve(
        &self,
        from: ModuleId,
        path: &[String],
        visited: &mut BTreeSet<(ModuleId, String)>,
    ) -> BTreeSet<PathTarget> {
        let Some((first, further)) = path.split_first() else { return BTreeSet::new() };
        let mut targets = match first.as_str() {
            "crate" => BTreeSet::from([PathTarget::Module(0)]),
            "self" => BTreeSet::from([PathTarget::Module(from)]),
            "super" => self.modules[from].parent.map(PathTarget::Module).into_iter().collect(),
            name => self.find_name(from, name, visited),
        };
        for name in further {
            let modules: Vec<ModuleId> = targets.iter().filter_map(PathTarget::module).collect();
            if modules.is_empty() {
                // The rest of the path names a variant or an associated item.
                break;
            }
            targets.clear();
            for id in modules {
                let module = &self.modules[id];
                let next = if name == "super" {
                    module.parent.map(PathTarget::Module).into_iter().collect()
                } else {
                    self.find_name(id, name, visited)
                };
                let unknown = next.is_empty().then(|| PathTarget::Item(module.file.clone()));
                targets.extend(next.into_iter().chain(unknown));
            }
        }
        targets
    }

    /// Returns the targets of a name in a module: a module and an item may share a name.
    fn find_name(
        &self,
        id: ModuleId,
        name: &str,
        visited: &mut BTreeSet<(ModuleId, String)>,
    ) -> BTreeSet<PathTarget> {
        let module = &self.modules[id];
        let children = module.children.get(name).into_iter().flatten().copied();
        let mut targets: BTreeSet<PathTarget> = children.map(PathTarget::Module).collect();
        // Prevents endless recursion: the search for `table` in `use table::table` searches for
        // `table` again.
        if !visited.insert((id, name.to_owned())) {
            return targets;
        }
        if module.items.contains(name) {
            targets.insert(PathTarget::Item(module.file.clone()));
        }
        for path in module.imports.get(name).into_iter().flatten() {
            targets.extend(self.resolve(id, path, visited));
        }
        if targets.is_empty() {
            for path in &module.globs {
                for source in self.resolve(id, path, visited).iter().filter_map(PathTarget::module) {
                    targets.extend(self.find_name(source, name, visited));
                }
            }
        }
        visited.remove(&(id, name.to_owned()));
        targets
    }

    fn add_file(&mut self, sources: &Sources, module: Module) -> ModuleId {
        let file = &module.file;
        let text = sources.get(file).unwrap_or_else(|| panic!("the file {file} of a module is missing"));
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{file}: {error}"));
        self.add_module(sources, module, tokens)
    }

    fn add_module(&mut self, sources: &Sources, module: Module, tokens: TokenStream) -> ModuleId {
        let id = self.modules.len();
        self.modules.push(module);
        Scanner { krate: self, sources, module: id }.scan(tokens, TextKind::Items);
        id
    }
}

/// The kind of text that is scanned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextKind {
    /// Items of a module.
    Items,
    /// Bodies, types and attributes, whose names are not items of the module.
    Inside,
    /// The rules of a macro, whose paths are only known if they start at a crate's root.
    MacroRules,
}

struct Scanner<'s> {
    krate: &'s mut Crate,
    sources: &'s Sources,
    module: ModuleId,
}

impl Scanner<'_> {
    fn module(&mut self) -> &mut Module {
        &mut self.krate.modules[self.module]
    }

    fn scan(&mut self, tokens: TokenStream, kind: TextKind) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        let mut attributes = Attributes::default();
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let is_inner = is_punct(tokens.get(at + 1), '!');
                    at += if is_inner { 2 } else { 1 };
                    if let Some(TokenTree::Group(group)) = tokens.get(at) {
                        attributes.read(group.stream());
                        if attributes.is_test && is_inner {
                            return;
                        }
                        self.scan(group.stream(), TextKind::Inside);
                        at += 1;
                        if attributes.is_test {
                            at = skip_item(&tokens, at);
                            attributes = Attributes::default();
                        }
                    }
                    continue;
                }
                TokenTree::Group(group) => {
                    self.scan(group.stream(), if kind == TextKind::Items { TextKind::Inside } else { kind });
                    at += 1;
                }
                TokenTree::Ident(_) => at = self.scan_identifier(&tokens, at, kind, &attributes),
                _ => {
                    at += 1;
                    continue;
                }
            }
            attributes = Attributes::default();
        }
    }

    /// Scans the item or path that starts with an identifier. Returns the position after it.
    fn scan_identifier(
        &mut self,
        tokens: &[TokenTree],
        at: usize,
        kind: TextKind,
        attributes: &Attributes,
    ) -> usize {
        let Some(identifier) = identifier(tokens.get(at)) else { return at + 1 };
        let next = identifier_at(tokens, at + 1);
        match (identifier.as_str(), next) {
            // The visibility belongs to the item that follows, whose attributes are still needed.
            ("pub", _) => {
                let is_restricted = matches!(tokens.get(at + 1), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
                let item = at + if is_restricted { 2 } else { 1 };
                return match tokens.get(item) {
                    Some(TokenTree::Ident(_)) => self.scan_identifier(tokens, item, kind, attributes),
                    _ => item,
                };
            }
            ("use", _) if kind != TextKind::MacroRules && !is_punct(tokens.get(at + 1), '<') => {
                let end = find_punct(tokens, at, ';');
                self.read_use(&tokens[at + 1..end], &[]);
                return end + 1;
            }
            ("mod", Some(name)) if kind != TextKind::MacroRules => {
                if let Some(TokenTree::Group(body)) = tokens.get(at + 2) {
                    self.add_inline_module(&name, body.stream());
                    return at + 3;
                }
                if is_punct(tokens.get(at + 2), ';') {
                    self.add_file_module(&name, attributes.path.as_deref());
                    return at + 3;
                }
            }
            ("macro_rules", _) if is_punct(tokens.get(at + 1), '!') => {
                let Some(name) = identifier_at(tokens, at + 2) else { return at + 1 };
                if attributes.is_exported_macro && self.module != 0 {
                    let path = self.path_from_root(&name);
                    self.krate.modules[0].imports.entry(name.clone()).or_default().push(path);
                }
                self.module().items.insert(name);
                if let Some(TokenTree::Group(rules)) = tokens.get(at + 3) {
                    self.scan(rules.stream(), TextKind::MacroRules);
                }
                return at + 4;
            }
            ("extern", Some(krate))
                if krate == "crate" && identifier_at(tokens, at + 2).as_deref() == Some("self") =>
            {
                // `extern crate self as NAME;`
                if let Some(name) = identifier_at(tokens, at + 4) {
                    self.module().imports.entry(name).or_default().push(vec!["crate".to_owned()]);
                }
                return find_punct(tokens, at, ';') + 1;
            }
            (
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" | "macro",
                Some(name),
            ) if kind == TextKind::Items => {
                let is_mutable = name == "mut";
                let name = if is_mutable { identifier_at(tokens, at + 2).unwrap_or(name) } else { name };
                self.module().items.insert(name);
                // `const fn`: the name of the function follows.
                return at + if is_mutable { 3 } else { 1 };
            }
            _ => {}
        }
        if kind == TextKind::Items
            && is_punct(tokens.get(at + 1), '!')
            && let Some(TokenTree::Group(arguments)) = tokens.get(at + 2)
        {
            // Macros may define the items that their arguments name.
            self.scan(arguments.stream(), TextKind::Items);
            return at + 3;
        }
        self.scan_path(tokens, at, kind)
    }

    /// Records a path and returns the position after it.
    fn scan_path(&mut self, tokens: &[TokenTree], start: usize, kind: TextKind) -> usize {
        let mut at = start;
        let mut path = Vec::new();
        while let Some(segment) = identifier(tokens.get(at)) {
            path.push(segment);
            at += 1;
            if !is_path_separator(tokens, at) {
                break;
            }
            at += 2;
        }
        let is_continued = start >= 2 && is_path_separator(tokens, start - 2);
        if kind == TextKind::MacroRules && path.first().is_none_or(|first| first != "crate") {
            return at;
        }
        let module = self.module();
        module.identifiers.extend(path.iter().cloned());
        if path.len() >= 2 && !is_continued {
            module.paths.insert(path);
        }
        at
    }

    /// Reads one tree of imports; `prefix` is the path before it.
    fn read_use(&mut self, tokens: &[TokenTree], prefix: &[String]) {
        // A path that starts with `::` names another crate.
        if is_path_separator(tokens, 0) {
            return;
        }
        let mut path = prefix.to_vec();
        let mut at = 0;
        loop {
            match tokens.get(at) {
                Some(TokenTree::Group(group)) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for tree in inner.split(|token| is_punct(Some(token), ',')) {
                        self.read_use(tree, &path);
                    }
                    return;
                }
                Some(TokenTree::Punct(punct)) if punct.as_char() == '*' => {
                    self.module().globs.push(path);
                    return;
                }
                Some(TokenTree::Ident(ident)) => path.push(ident.to_string()),
                _ => return,
            }
            at += 1;
            if !is_path_separator(tokens, at) {
                break;
            }
            at += 2;
        }
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let renamed = identifier_at(tokens, at + 1);
        let name = renamed.or_else(|| path.last().cloned()).unwrap_or_default();
        let module = self.module();
        if name == "_" {
            module.unnamed_imports.push(path);
        } else if path != [name.clone()] {
            module.imports.entry(name).or_default().push(path);
        }
    }

    fn add_inline_module(&mut self, name: &str, body: TokenStream) {
        let Module { file, folder, .. } = self.module();
        let (file, folder) = (file.clone(), join_path(folder, name));
        let child = self.new_child_module(name, file, folder);
        let id = self.krate.add_module(self.sources, child, body);
        self.module().children.entry(name.to_owned()).or_default().push(id);
    }

    fn add_file_module(&mut self, name: &str, path: Option<&str>) {
        let Module { file, folder, .. } = &self.krate.modules[self.module];
        let parent_folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let (file, folder) = match path {
            // The files of the module's children are assumed to be in the folder of this file.
            Some(path) => (join_path(parent_folder, path), parent_folder.to_owned()),
            None => {
                let files =
                    [join_path(folder, &format!("{name}.rs")), join_path(folder, &format!("{name}/mod.rs"))];
                let module_file = files.into_iter().find(|file| self.sources.contains_key(file));
                let module_file =
                    module_file.unwrap_or_else(|| panic!("the module {name} of {file} has no file"));
                (module_file, join_path(folder, name))
            }
        };
        if path.is_some() && !self.sources.contains_key(&file) {
            // Support of tests, which lies outside of the crates.
            return;
        }
        let child = self.new_child_module(name, file, folder);
        let id = self.krate.add_file(self.sources, child);
        self.module().children.entry(name.to_owned()).or_default().push(id);
    }

    fn new_child_module(&self, name: &str, file: String, folder: String) -> Module {
        Module { name: name.to_owned(), file, folder, parent: Some(self.module), ..Module::default() }
    }

    /// Returns the path of an item of this module from the root of the crate.
    fn path_from_root(&self, item: &str) -> Path {
        let mut path = vec![item.to_owned()];
        let mut id = self.module;
        while let Some(parent) = self.krate.modules[id].parent {
            path.push(self.krate.modules[id].name.clone());
            id = parent;
        }
        path.push("crate".to_owned());
        path.reverse();
        path
    }
}

/// The attributes of an item that affect its modules and imports.
#[derive(Default)]
struct Attributes {
    /// Whether the item exists in tests only.
    is_test: bool,
    is_exported_macro: bool,
    /// The file that `#[path = "…"]` names.
    path: Option<String>,
}

impl Attributes {
    /// Reads the text between the brackets of an attribute.
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        match (identifier(tokens.first()).as_deref(), tokens.get(1), tokens.get(2)) {
            (Some("cfg"), Some(TokenTree::Group(group)), _) => self.is_test |= is_test_only(group.stream()),
            (Some("test"), None, _) => self.is_test = true,
            (Some("macro_export"), ..) => self.is_exported_macro = true,
            (Some("path"), _, Some(TokenTree::Literal(path))) => {
                self.path = Some(path.to_string().trim_matches('"').to_owned());
            }
            _ => {}
        }
    }
}

/// Returns whether a condition of `cfg` holds in tests only.
fn is_test_only(condition: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = condition.into_iter().collect();
    let parts = |group: &proc_macro2::Group| -> Vec<TokenStream> {
        let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
        let parts = tokens.split(|token| is_punct(Some(token), ','));
        parts.filter(|part| !part.is_empty()).map(|part| part.iter().cloned().collect()).collect()
    };
    match (identifier(tokens.first()).as_deref(), tokens.get(1)) {
        (Some("test"), None) => true,
        (Some("all"), Some(TokenTree::Group(group))) => parts(group).into_iter().any(is_test_only),
        (Some("any"), Some(TokenTree::Group(group))) => parts(group).into_iter().all(is_test_only),
        _ => false,
    }
}

/// Returns the position after the item, statement or field that starts at `start`.
fn skip_item(tokens: &[TokenTree], start: usize) -> usize {
    let mut at = start;
    // Further attributes and the visibility come first.
    loop {
        match tokens.get(at) {
            Some(TokenTree::Punct(punct)) if punct.as_char() == '#' => at += 2,
            Some(TokenTree::Ident(ident)) if *ident == "pub" => at += 1,
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => at += 1,
            _ => break,
        }
    }
    let (ends_at_brace, ends_at_comma) = match identifier(tokens.get(at)).as_deref() {
        Some("use" | "let" | "static" | "type") => (false, false),
        // `const fn` has a body.
        Some("const") => {
            (identifier_at(tokens, at + 1).is_some_and(|next| next == "fn" || next == "unsafe"), false)
        }
        Some(
            "fn" | "mod" | "struct" | "enum" | "union" | "trait" | "impl" | "unsafe" | "extern" | "async",
        ) => (true, false),
        _ => (true, true),
    };
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => break,
            TokenTree::Punct(punct) if punct.as_char() == ',' && ends_at_comma => break,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && ends_at_brace => break,
            _ => {}
        }
    }
    at
}

fn identifier(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

fn identifier_at(tokens: &[TokenTree], at: usize) -> Option<String> {
    identifier(tokens.get(at))
}

fn is_punct(token: Option<&TokenTree>, c: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == c)
}

fn is_path_separator(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')
}

/// Returns the position of the first `c` from `start` on, or the end.
fn find_punct(tokens: &[TokenTree], start: usize, c: char) -> usize {
    let offset = tokens.iter().skip(start).position(|token| is_punct(Some(token), c));
    offset.map_or(tokens.len(), |offset| start + offset)
}

/// Joins a folder and a relative path, which may lead out of the folder.
fn join_path(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
