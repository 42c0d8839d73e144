//! The commands of a page, and the parts of the page that checks of links need.

use std::path::Path;

use crate::util::root;

/// A fenced block of a page.
pub(super) struct Block {
    /// Number of the first line inside the block.
    pub(super) line: usize,
    /// The words after the fence, such as `console` and `samples` in ```` ```console,samples ````.
    pub(super) words: Vec<String>,
    pub(super) text: Vec<String>,
}

/// A command that a page shows, with its output.
pub(super) struct Step {
    /// Number of the line of the command in the page.
    pub(super) line: usize,
    pub(super) command: String,
    pub(super) output: Vec<String>,
}

impl Block {
    pub(super) fn has_word(&self, word: &str) -> bool {
        self.words.iter().any(|known| known == word)
    }

    /// Returns whether the block has commands of a shell, which run.
    pub(super) fn is_console(&self) -> bool {
        self.has_word("console")
    }

    /// Returns the commands of the block: lines that begin with `$ `, and the lines that continue
    /// them after a backslash.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for (number, line) in (self.line..).zip(&self.text) {
            if let Some(step) = steps.last_mut()
                && step.output.is_empty()
                && step.command.ends_with('\\')
            {
                step.command.push('\n');
                step.command.push_str(line);
            } else if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step { line: number, command: command.to_owned(), output: Vec::new() });
            } else {
                let step = steps.last_mut();
                step.expect("a console block begins with a command").output.push(line.clone());
            }
        }
        steps
    }
}

/// A page of Markdown.
pub(super) struct Page {
    /// The path of the page from the root of the project.
    pub(super) path: String,
    pub(super) blocks: Vec<Block>,
    /// The lines outside of blocks, with their numbers.
    pub(super) prose: Vec<(usize, String)>,
}

impl Page {
    pub(super) fn read(path: &str) -> Self {
        let text =
            std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self::parse(path, &text)
    }

    pub(super) fn parse(path: &str, text: &str) -> Self {
        let mut page = Self { path: path.to_owned(), blocks: Vec::new(), prose: Vec::new() };
        let mut open_block: Option<Block> = None;
        for (number, line) in (1..).zip(text.lines()) {
            match (&mut open_block, line.strip_prefix("```")) {
                (Some(_), Some(_)) => page.blocks.extend(open_block.take()),
                (None, Some(words)) => {
                    let words = words.split(',').map(|word| word.trim().to_owned()).collect();
                    open_block = Some(Block { line: number + 1, words, text: Vec::new() });
                }
                (Some(block), None) => block.text.push(line.to_owned()),
                (None, None) => page.prose.push((number, line.to_owned())),
            }
        }
        assert!(open_block.is_none(), "{path}: the last block has no end");
        page
    }

    /// Returns the targets of the links and pictures of the page, with their lines.
    pub(super) fn links(&self) -> Vec<(usize, String)> {
        // A link may continue on the next line; its target does not.
        let prose = self.prose.iter();
        prose
            .flat_map(|(number, line)| {
                let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
                targets.map(|target| (*number, target.to_owned()))
            })
            .collect()
    }

    /// Returns the anchors of the headings, as GitHub and mdBook derive them.
    pub(super) fn anchors(&self) -> Vec<String> {
        let headings = self.prose.iter().filter(|(_, line)| line.starts_with('#'));
        headings
            .map(|(_, line)| {
                let title = line.trim_start_matches('#').trim().to_lowercase();
                let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
                kept.map(|c| if c == ' ' { '-' } else { c }).collect()
            })
            .collect()
    }
}

/// Returns the paths, from the root of the project, of the Markdown files in a folder and its
/// subfolders, in order.
pub(super) fn markdown_files(folder: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(root().join(folder)).unwrap().map(Result::unwrap) {
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            paths.extend(markdown_files(&path));
        } else if Path::new(&path).extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
    paths.sort();
    paths
}
