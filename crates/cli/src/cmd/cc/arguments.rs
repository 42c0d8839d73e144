//! The command line of a compiler, in the form that gcc and clang share.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The last stage that the compiler is asked to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Preprocess,
    Compile,
    Link,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    C,
    Cpp,
}

impl Language {
    /// Returns the value of the option `-x`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cpp => "c++",
        }
    }

    /// Returns the value of the option `-x` for preprocessed text.
    pub(super) const fn preprocessed_name(self) -> &'static str {
        match self {
            Self::C => "cpp-output",
            Self::Cpp => "c++-cpp-output",
        }
    }

    pub(super) const fn preprocessed_extension(self) -> &'static str {
        match self {
            Self::C => "i",
            Self::Cpp => "ii",
        }
    }

    fn from_name(name: &OsStr) -> Option<Self> {
        [Self::C, Self::Cpp].into_iter().find(|language| name == language.name())
    }

    /// Returns the language of a source, by the extension of its name.
    pub(super) fn from_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "c" => Some(Self::C),
            "cc" | "cp" | "cxx" | "cpp" | "CPP" | "c++" | "C" => Some(Self::Cpp),
            _ => None,
        }
    }
}

/// An argument together with its value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Argument {
    /// A source to preprocess; `is_explicit` is set if `-x` named its language.
    Source {
        path: OsString,
        language: Language,
        is_explicit: bool,
    },
    /// Any other file.
    Input(OsString),
    /// The value of `-o`.
    Output(OsString),
    /// An option that only the preprocessor gets, so that it takes effect once: `-include`,
    /// `-imacros`.
    Preprocessor(Vec<OsString>),
    /// An option for dependency files: `-MD` and the like.
    Dependency(Vec<OsString>),
    Other(Vec<OsString>),
}

/// Options whose value is the next argument.
const OPTIONS_WITH_VALUE: [&str; 42] = [
    "-A",
    "-B",
    "-D",
    "-G",
    "-I",
    "-L",
    "-T",
    "-Tbss",
    "-Tdata",
    "-Ttext",
    "-U",
    "-MJ",
    "-Xanalyzer",
    "-Xassembler",
    "-Xclang",
    "-Xlinker",
    "-Xpreprocessor",
    "-arch",
    "-aux-info",
    "-dumpbase",
    "-dumpbase-ext",
    "-dumpdir",
    "-e",
    "-idirafter",
    "-imultilib",
    "-iprefix",
    "-iquote",
    "-isysroot",
    "-isystem",
    "-ivfsoverlay",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-iwithsysroot",
    "-l",
    "-mllvm",
    "-target",
    "-u",
    "-wrapper",
    "-z",
    "--param",
    "--serialize-diagnostics",
    "--sysroot",
];

/// A parsed command line without the compiler.
#[derive(Debug)]
pub(super) struct Invocation {
    pub(super) stage: Stage,
    pub(super) arguments: Vec<Argument>,
}

impl Invocation {
    pub(super) fn parse(words: &[OsString]) -> Self {
        let mut invocation = Self { stage: Stage::Link, arguments: Vec::new() };
        let mut explicit_language: Option<OsString> = None;
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let text = word.to_str().unwrap_or_default();
            let mut with_value =
                || [Some(word), rest.next()].into_iter().flatten().cloned().collect::<Vec<_>>();
            let argument = match text {
                "-E" | "-M" | "-MM" => {
                    invocation.stage = Stage::Preprocess;
                    Argument::Other(vec![word.clone()])
                }
                "-c" | "-S" | "-fsyntax-only" => {
                    if invocation.stage == Stage::Link {
                        invocation.stage = Stage::Compile;
                    }
                    Argument::Other(vec![word.clone()])
                }
                "-o" => match rest.next() {
                    Some(path) => Argument::Output(path.clone()),
                    None => Argument::Other(vec![word.clone()]),
                },
                "-x" => {
                    let words = with_value();
                    explicit_language = words.get(1).filter(|name| *name != "none").cloned();
                    Argument::Other(words)
                }
                "-include" | "-imacros" => Argument::Preprocessor(with_value()),
                "-MF" | "-MT" | "-MQ" => Argument::Dependency(with_value()),
                "-MD" | "-MMD" | "-MP" | "-MG" => Argument::Dependency(vec![word.clone()]),
                _ if text.starts_with("-MF") || text.starts_with("-MT") || text.starts_with("-MQ") => {
                    Argument::Dependency(vec![word.clone()])
                }
                _ if OPTIONS_WITH_VALUE.contains(&text) => Argument::Other(with_value()),
                _ if text.strip_prefix("-o").is_some_and(|path| !path.is_empty()) => {
                    Argument::Output(text[2..].into())
                }
                _ if text.strip_prefix("-x").is_some_and(|name| !name.is_empty()) => {
                    explicit_language = Some(text[2..].into()).filter(|name: &OsString| name != "none");
                    Argument::Other(vec![word.clone()])
                }
                _ if text.len() > 1 && text.starts_with('-') => Argument::Other(vec![word.clone()]),
                _ => {
                    let language = match &explicit_language {
                        Some(name) => Language::from_name(name),
                        None => Language::from_path(Path::new(word)),
                    };
                    match language {
                        Some(language) => Argument::Source {
                            path: word.clone(),
                            language,
                            is_explicit: explicit_language.is_some(),
                        },
                        None => Argument::Input(word.clone()),
                    }
                }
            };
            invocation.arguments.push(argument);
        }
        invocation
    }

    pub(super) fn has_inputs(&self) -> bool {
        self.arguments.iter().any(|argument| matches!(argument, Argument::Source { .. } | Argument::Input(_)))
    }

    /// Returns whether an option selects the stage or language, or concerns only the linker.
    pub(super) fn is_stage_or_linker_option(&self, words: &[OsString]) -> bool {
        let text = words.first().and_then(|word| word.to_str()).unwrap_or_default();
        matches!(text, "-c" | "-S" | "-fsyntax-only" | "-Xlinker" | "-u" | "-z" | "-e" | "-shared" | "-s")
            || ["-l", "-L", "-T", "-Wl,", "-x", "-static", "-save-temps"]
                .iter()
                .any(|start| text.starts_with(start))
    }

    /// Returns the options that name the dependency file and its target as the compiler would name
    /// them for the source itself. The preprocessor, which gets no `-o`, would choose other names.
    pub(super) fn dependency_options(&self, source: &OsStr) -> Vec<OsString> {
        let given = |name: &str| {
            self.arguments.iter().any(|argument| match argument {
                Argument::Dependency(words) => {
                    words.first().and_then(|word| word.to_str()).is_some_and(|word| word.starts_with(name))
                }
                _ => false,
            })
        };
        if !given("-MD") && !given("-MMD") {
            return Vec::new();
        }
        let output = self.arguments.iter().rev().find_map(|argument| match argument {
            Argument::Output(path) if self.stage == Stage::Compile => Some(PathBuf::from(path)),
            _ => None,
        });
        let stem = Path::new(source).file_stem().unwrap_or(OsStr::new("source"));
        let object = output.unwrap_or_else(|| Path::new(stem).with_extension("o"));
        let mut options: Vec<OsString> = Vec::new();
        if !given("-MF") {
            options.extend(["-MF".into(), object.with_extension("d").into()]);
        }
        if !given("-MT") && !given("-MQ") {
            options.extend(["-MQ".into(), object.into()]);
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Invocation {
        Invocation::parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn stages_follow_from_options() {
        for (line, stage) in [
            ("a.c", Stage::Link),
            ("-c a.c -o a.o", Stage::Compile),
            ("-S a.c", Stage::Compile),
            ("-E a.c", Stage::Preprocess),
            ("-c -M a.c", Stage::Preprocess),
        ] {
            assert_eq!(parse(line).stage, stage, "{line}");
        }
    }

    #[test]
    fn values_of_options_are_no_inputs() {
        assert!(!parse("--version").has_inputs());
        assert!(!parse("-I a.c -D b.c -o c.c -MF d.c -include e.c -Xlinker f.c").has_inputs());
        assert!(parse("-I dir a.o").has_inputs());
        assert!(!parse("--sysroot a.c -B b.c -mllvm c.c -iwithprefixbefore d.c -Ttext e.c").has_inputs());
    }

    #[test]
    fn standard_input_and_missing_response_files_are_inputs() {
        assert!(parse("-x c -").has_inputs());
        assert!(parse("@missing").has_inputs());
    }

    #[test]
    fn sources_have_the_language_of_their_extension_or_of_the_option() {
        let languages = |line| {
            let arguments = parse(line).arguments;
            arguments
                .into_iter()
                .filter_map(|argument| match argument {
                    Argument::Source { language, is_explicit, .. } => Some((language, is_explicit)),
                    _ => None,
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(languages("a.c b.cpp c.o d.i"), [(Language::C, false), (Language::Cpp, false)]);
        assert_eq!(
            languages("-x c a.txt -x none b.txt -xc++ c.c"),
            [(Language::C, true), (Language::Cpp, true)]
        );
        assert_eq!(languages("-x assembler a.c"), []);
    }

    #[test]
    fn dependency_files_are_named_as_by_the_compiler() {
        let options = |line: &str| {
            let options = parse(line).dependency_options(OsStr::new("dir/a.c"));
            options.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(options("-c dir/a.c"), "");
        assert_eq!(options("-MD -c dir/a.c"), "-MF a.d -MQ a.o");
        assert_eq!(options("-MMD -c dir/a.c -o out/b.o"), "-MF out/b.d -MQ out/b.o");
        assert_eq!(options("-MD -MF x.d -c dir/a.c -o out/b.o"), "-MQ out/b.o");
        assert_eq!(options("-MD -MT t -MF x.d -c dir/a.c"), "");
        assert_eq!(options("-MD dir/a.c -o program"), "-MF a.d -MQ a.o");
    }
}
