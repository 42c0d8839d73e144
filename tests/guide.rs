//! Runs the commands that the README and the guide show, and compares their output.
//!
//! The commands of a page run in one shell, in a home folder with an installation of this `weir`
//! and a link `~/traceweir` to the project, as the guide describes it. Each must succeed.
//!
//! ```text
//!   ```console            runs
//!   ```console,samples    runs if this process may record samples of its own programs
//!   ```console,kernel     runs if this process may record kernel events of the whole machine
//!   ```console,view       runs if this weir has the command view
//!   ```console,perf       runs if perf is installed
//!   ```console,slow       compiles Traceweir, so it runs only with TRACEWEIR_GUIDE=all (tests/guide.sh)
//!   ```console,root       runs if this process is root
//!   ```console,ctrl-c     runs; each command gets Ctrl-C after some seconds
//!   ```console,clone      begins in ~/traceweir
//!   cargo run --release --  is replaced by weir, unless slow blocks run
//!   ```text …             does not run: commands of other tools and systems, results, drawings
//! ```

mod page;
mod pattern;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::io::Result;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::util::{Daemon, c_library, root, skip, weir};
use page::{Block, Page, Step, markdown_files};

/// Starts the output of a command.
const OUTPUT_START: char = '\u{1e}';
/// Ends the output of a command. The exit status follows.
const OUTPUT_END: char = '\u{1f}';

/// Seconds after which the commands of a page are killed. The time that compiling Traceweir takes
/// is not included.
const PAGE_TIMEOUT_S: u32 = 300;
const SLOW_PAGE_TIMEOUT_S: u32 = 3600;
/// Seconds after which a command of a block marked `ctrl-c` gets Ctrl-C.
const CTRL_C_DELAY_S: u32 = 5;

macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        /// The pages with commands.
        const PAGES: &[&str] = &[$($path),*];

        $(
            #[test]
            fn $name() {
                run_page(&Page::read($path));
            }
        )*
    };
}

pages! {
    readme: "README.md",
    tutorial: "docs/guide/tutorial.md",
    clocks: "docs/guide/concepts/clocks.md",
    providers: "docs/guide/concepts/providers.md",
    session: "docs/guide/concepts/session.md",
    stacks: "docs/guide/concepts/stacks.md",
    coming_from_bpftrace: "docs/guide/from/bpftrace.md",
    coming_from_logman: "docs/guide/from/logman.md",
    coming_from_lttng: "docs/guide/from/lttng.md",
    coming_from_perf: "docs/guide/from/perf.md",
    coming_from_perfview: "docs/guide/from/perfview.md",
    coming_from_tracerpt: "docs/guide/from/tracerpt.md",
    coming_from_wpr: "docs/guide/from/wpr.md",
    coming_from_xperf: "docs/guide/from/xperf.md",
    reference_commands: "docs/guide/reference/commands.md",
    reference_rust: "docs/guide/reference/rust.md",
    reference_windows: "docs/guide/reference/windows.md",
    forensics: "docs/guide/users/forensics.md",
    profiling: "docs/guide/users/profiling.md",
    security: "docs/guide/users/security.md",
    two_systems: "docs/guide/users/two-systems.md",
    windows_etl: "docs/guide/users/windows-etl.md",
}

/// Returns whether blocks that compile Traceweir are to run.
fn includes_slow_blocks() -> bool {
    std::env::var_os("TRACEWEIR_GUIDE").is_some_and(|blocks| blocks == "all")
}

/// Returns whether this machine has what a block needs. Records a skip if it has not.
fn can_run(page: &Page, block: &Block) -> bool {
    let place = format!("{}:{}", page.path, block.line);
    block.words[1..].iter().all(|word| match word.as_str() {
        need @ ("samples" | "kernel") => {
            let is_allowed = weir(["doctor", "--need", need]).code == 0;
            skip::holds_or_skip(is_allowed, "kernel events", &format!("{place}: {need} are not allowed here"))
        }
        "perf" => {
            let is_installed = Command::new("perf").arg("--version").output().is_ok();
            skip::holds_or_skip(is_installed, "perf", &format!("{place}: perf is not installed"))
        }
        "view" => {
            let has_view = cfg!(feature = "view");
            if !has_view {
                skip::record("view", &format!("{place}: this weir has no view"));
            }
            has_view
        }
        "slow" => {
            if !includes_slow_blocks() {
                skip::record("slow", &format!("{place}: only with TRACEWEIR_GUIDE=all"));
            }
            includes_slow_blocks()
        }
        "root" => {
            let is_root = rustix::process::geteuid().is_root();
            skip::holds_or_skip(is_root, "root", &format!("{place}: needs root"))
        }
        "clone" | "ctrl-c" => true,
        _ => panic!("{place}: a block cannot be marked {word}"),
    })
}

/// A home folder with an installation of Traceweir and a link to the project.
struct Home(TempDir);

impl Home {
    fn make() -> Result<Self> {
        let home = Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?);
        let prefix = home.path(".local");
        for folder in ["bin", "include", "lib"] {
            fs::create_dir_all(prefix.join(folder))?;
        }
        let program = prefix.join("bin/weir");
        let headers = root().join("crates/ffi/include");
        // `weir` finds headers and libraries relative to its program file, so a symbolic link would
        // not do. Slow blocks install over these files, so they must be copies.
        if includes_slow_blocks() || fs::hard_link(env!("CARGO_BIN_EXE_weir"), &program).is_err() {
            fs::copy(env!("CARGO_BIN_EXE_weir"), &program)?;
        }
        if includes_slow_blocks() {
            let copy =
                Command::new("cp").arg("-r").arg(headers).arg(prefix.join("include/traceweir")).status()?;
            assert!(copy.success(), "the headers cannot be copied");
        } else {
            symlink(headers, prefix.join("include/traceweir"))?;
        }
        for name in ["libtraceweir.so", "libtraceweir.so.0"] {
            symlink(c_library().with_extension("so"), prefix.join("lib").join(name))?;
        }
        if rustix::process::geteuid().is_root() {
            let sudo = prefix.join("bin/sudo");
            fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n")?;
            fs::set_permissions(&sudo, fs::Permissions::from_mode(0o755))?;
        }
        symlink(root(), home.path("traceweir"))?;
        Ok(home)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Builds a shell that runs a script in this folder, with the daemon of `runtime`.
    fn shell(&self, script: &Path, runtime: &Path) -> Command {
        let timeout_s = if includes_slow_blocks() { SLOW_PAGE_TIMEOUT_S } else { PAGE_TIMEOUT_S };
        let variable = |name: &str| std::env::var_os(name);
        // Cargo and rustup have their folders in the home folder of the user.
        let user_home = variable("HOME").map(PathBuf::from).unwrap_or_default();
        let folder =
            |name: &str, default: &str| variable(name).map_or_else(|| user_home.join(default), PathBuf::from);
        let mut path = self.path(".local/bin").into_os_string();
        path.push(":");
        path.push(variable("PATH").unwrap_or_default());

        let mut shell = Command::new("timeout");
        shell.args(["--kill-after=10", &timeout_s.to_string(), "bash"]).arg(script);
        shell.current_dir(self.0.path()).stdin(Stdio::null());
        // Without a desktop, `weir view` opens no browser.
        for name in [
            "DISPLAY",
            "WAYLAND_DISPLAY",
            "XDG_CONFIG_HOME",
            "XDG_STATE_HOME",
            "XDG_CACHE_HOME",
            "NO_COLOR",
            "CLICOLOR_FORCE",
            "COLUMNS",
        ] {
            shell.env_remove(name);
        }
        shell
            .env("CARGO_HOME", folder("CARGO_HOME", ".cargo"))
            .env("RUSTUP_HOME", folder("RUSTUP_HOME", ".rustup"))
            .env("CARGO_INSTALL_ROOT", self.path(".local"))
            .env("HOME", self.0.path())
            .env("PATH", path)
            .env("PKG_CONFIG_PATH", self.path(".local/lib/pkgconfig"))
            .env("TRACEWEIR_RUNTIME_DIR", runtime)
            .env("TZ", "UTC");
        shell
    }
}

/// Writes a script that runs the commands of a page and marks where the output of each begins and
/// ends.
fn write_script(blocks: &[(&Block, Vec<Step>)]) -> String {
    let mut script = "exec 2>&1\n".to_owned();
    for (block, steps) in blocks {
        let is_in_clone = block.has_word("clone");
        if is_in_clone {
            script.push_str("pushd ~/traceweir > /dev/null\n");
        }
        for step in steps {
            let mut command = step.command.clone();
            if !includes_slow_blocks() {
                command = command.replace("cargo run --release -- ", "weir ");
            }
            if block.has_word("ctrl-c") {
                // 130 is the exit status of a command that Ctrl-C interrupted.
                command =
                    format!("timeout --preserve-status -s INT {CTRL_C_DELAY_S} {command} || test $? = 130");
            }
            writeln!(script, "printf '{OUTPUT_START}'\n{command}\nprintf '{OUTPUT_END}%d' $?").unwrap();
        }
        if is_in_clone {
            script.push_str("popd > /dev/null\n");
        }
    }
    script
}

/// Runs the commands of a page. Fails the test if one fails, or if its output is not the shown one.
fn run_page(page: &Page) {
    let problems = find_problems(page);
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

fn find_problems(page: &Page) -> Vec<String> {
    if Command::new("bash").args(["-c", "exit"]).status().is_err() {
        skip::skip("bash", "bash is not installed");
        return Vec::new();
    }
    let consoles = page.blocks.iter().filter(|block| block.is_console());
    let blocks: Vec<_> =
        consoles.filter(|block| can_run(page, block)).map(|block| (block, block.steps())).collect();
    let home = Home::make().unwrap();
    let script = home.path(".commands");
    fs::write(&script, write_script(&blocks)).unwrap();
    let daemon = Daemon::start();
    let output = home.shell(&script, daemon.folder()).output().expect("timeout is not installed");
    let output = String::from_utf8_lossy(&output.stdout);

    let mut outputs = output.split(OUTPUT_START).skip(1);
    let mut problems = Vec::new();
    for step in blocks.iter().flat_map(|(_, steps)| steps) {
        let place = format!("{}:{}: $ {}", page.path, step.line, step.command);
        let Some((output, status)) = outputs.next().and_then(|output| output.split_once(OUTPUT_END)) else {
            problems.push(format!("{place}\n  the command did not end, or ended the shell"));
            break;
        };
        let shown: Vec<&str> = step.output.iter().map(String::as_str).collect();
        let lines: Vec<&str> = output.lines().collect();
        let mut reasons = Vec::new();
        if status.trim() != "0" {
            reasons.push(format!("the exit status is {status}"));
        }
        reasons.extend(pattern::compare(&shown, &lines).err());
        if !reasons.is_empty() {
            problems.push(format!("{place}\n  {}\n  the output is:\n{output}", reasons.join("; ")));
        }
    }
    problems
}

#[test]
fn wrong_outputs_and_failing_commands_are_reported() {
    let page = |text: &str| find_problems(&Page::parse("page", text));
    assert_eq!(page("```console\n$ cd /tmp\n$ echo a \\\n  b; echo c\na b\n…\n```\n"), [] as [&str; 0]);
    let problems = page("Text\n\n```console\n$ echo x\ny\n$ echo x; false\nx\n$ exit 0\n$ echo z\nz\n```\n");
    let starts = [
        "page:4: $ echo x\n  no line of the output matches: y\n",
        "page:6: $ echo x; false\n  the exit status is 1\n",
        "page:8: $ exit 0\n  the command did not end, or ended the shell",
    ];
    assert_eq!(problems.len(), starts.len(), "{problems:?}");
    for (problem, start) in problems.iter().zip(starts) {
        assert!(problem.starts_with(start), "{problem}");
    }
}

/// Returns the pages whose commands run.
fn documented_pages() -> Vec<Page> {
    let mut paths = markdown_files("docs/guide");
    paths.extend(["README.md", "docs/README.md"].map(str::to_owned));
    paths.iter().map(|path| Page::read(path)).collect()
}

#[test]
fn all_pages_with_commands_are_tested() {
    let pages = documented_pages();
    let with_commands = pages.iter().filter(|page| page.blocks.iter().any(Block::is_console));
    let with_commands: BTreeSet<&str> = with_commands.map(|page| page.path.as_str()).collect();
    assert_eq!(with_commands, PAGES.iter().copied().collect());
}

/// Commands of this project are in blocks that run, so no other block looks like a terminal.
#[test]
fn blocks_that_do_not_run_have_no_commands_of_this_project() {
    for page in documented_pages() {
        for block in page.blocks.iter().filter(|block| !block.is_console()) {
            for (number, line) in (block.line..).zip(&block.text) {
                let is_command =
                    ["$ ", "weir ", "cargo ", "cc ", "gcc "].iter().any(|word| line.starts_with(word));
                assert!(!is_command, "{}:{number}: not in a console block: {line}", page.path);
            }
        }
        for (number, line) in &page.prose {
            assert!(!line.starts_with("    "), "{}:{number}: not in a fenced block: {line}", page.path);
        }
    }
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut pages = documented_pages();
    pages.push(Page::read("docs/SUMMARY.md"));
    for page in pages {
        let folder = root().join(&page.path).parent().unwrap().to_owned();
        for (number, link) in page.links() {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { root().join(&page.path) } else { folder.join(file) };
            let place = format!("{}:{number}: {link}", page.path);
            assert!(target.exists(), "{place} does not exist");
            if !anchor.is_empty() {
                let target = Page::read(target.to_str().unwrap());
                assert!(target.anchors().iter().any(|known| known == anchor), "{place} has no such heading");
            }
        }
    }
}

#[test]
fn summary_lists_all_pages() {
    let links: BTreeSet<String> =
        Page::read("docs/SUMMARY.md").links().into_iter().map(|(_, link)| format!("docs/{link}")).collect();
    let pages: BTreeSet<String> =
        markdown_files("docs").into_iter().filter(|path| path != "docs/SUMMARY.md").collect();
    assert_eq!(links, pages);
}

/// The tutorial shows the program that the other pages copy.
#[test]
fn tutorial_shows_the_program_that_it_runs() {
    let page = Page::read("docs/guide/tutorial.md");
    let shown = page.blocks.iter().find(|block| block.words == ["c"]).expect("no program is shown");
    let source = fs::read_to_string(root().join("docs/guide/shop.c")).unwrap();
    assert_eq!(shown.text, source.lines().collect::<Vec<_>>());
}
