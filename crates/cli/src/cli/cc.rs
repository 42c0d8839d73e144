//! Command-line arguments of `weir cc`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

const AFTER_HELP: &str = "\
weir cc adds the options that find the headers and libraries of Traceweir, and runs the compiler.
Use it wherever a build runs a compiler: to compile, to link and to write dependency files:

  weir cc gcc app.c -o app
  make CC='weir cc --wide --32-bit-long gcc' CXX='weir cc --wide g++'
  cmake -DCMAKE_C_COMPILER_LAUNCHER='weir;cc;--wide;--32-bit-long'

In printf and scanf, %ld and %lu have 32 bits with --wide and 64 bits without. With --32-bit-long
alone, the compiler therefore warns where a source uses them with a long (-Wformat).

Options of weir come before the compiler.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CcArgs {
    /// Compile with a wchar_t of 16 bits and Windows' formats, and link libtraceweir-wide
    #[arg(long)]
    pub(crate) wide: bool,
    /// Give C's long 32 bits, as on Windows, except in system headers
    #[arg(long = "32-bit-long")]
    pub(crate) is_long_32_bit: bool,
    /// Folder of the headers [default: searched beside weir, then in the system's folders]
    #[arg(long, value_name = "DIR")]
    pub(crate) include: Option<PathBuf>,
    /// Folder of the libraries [default: searched beside weir, then in the system's folders]. The
    /// program finds its library there (-rpath), unless it is a folder of the system
    #[arg(long, value_name = "DIR")]
    pub(crate) lib: Option<PathBuf>,
    /// Compiler and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_names = ["COMPILER", "ARGUMENT"])]
    pub(crate) command: Vec<OsString>,
}
