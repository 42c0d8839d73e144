//! The folders of the user, by the XDG Base Directory Specification.

use std::path::PathBuf;

/// Returns the folder that a variable such as `XDG_CONFIG_HOME` names, or else `default` in the home
/// folder; `None` without a home folder. As the specification says, a relative path is not used.
pub fn user_folder(variable: &str, default: &str) -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(default)))
}
