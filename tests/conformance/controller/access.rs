//! Who may what, as far as one user can see it.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use traceweir::controller::SessionConfig;

use crate::rule::{Rule, rule};
use crate::stage::Stage;

pub(crate) const RULES: &[Rule] = &[
    rule!(
        "decision 36",
        P,
        "a log belongs to who started the session and has the mode 0640 less his umask",
        logs_belong_to_who_started
    ),
    rule!("decision 36", P, "sequential and circular sessions replace an existing file", files_are_replaced),
    rule!(
        "decision 36",
        P,
        "in a folder that everybody can write, a file with a second name is not replaced → 5",
        foreign_files_stay
    ),
    rule!("decision 36", P, "a path through a link that others could change → 5", links_of_others),
];

fn logs_belong_to_who_started(stage: &Stage) {
    let config = stage.config();
    stage.end(stage.start(&config));
    let file = std::fs::metadata(config.log_file.unwrap()).unwrap();
    let here = std::fs::metadata("/proc/self").unwrap();
    assert_eq!(file.uid(), here.uid());
    assert_eq!(file.permissions().mode() & 0o777 & !0o640, 0);
    assert_eq!(file.permissions().mode() & 0o600, 0o600);
}

fn files_are_replaced(stage: &Stage) {
    for (log_file_mode, maximum_file_size) in [(1, 0), (2, 8)] {
        let path = stage.path();
        std::fs::write(&path, vec![0xAA; 1 << 20]).unwrap();
        let log_file = Some(path.clone());
        let session =
            stage.start(&SessionConfig { log_file_mode, maximum_file_size, log_file, ..stage.config() });
        assert_eq!(stage.stop(session), []);
        assert!(std::fs::metadata(path).unwrap().len() < 1 << 20);
    }
}

fn foreign_files_stay(stage: &Stage) {
    let folder = stage.folder().join("everybody's");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o1777)).unwrap();
    let path = folder.join("a.etl");
    std::fs::write(&path, "precious").unwrap();
    std::fs::hard_link(&path, folder.join("b.etl")).unwrap();
    assert_eq!(stage.refused(&SessionConfig { log_file: Some(path.clone()), ..stage.config() }), 5);
    assert_eq!(std::fs::read(path).unwrap(), b"precious");
}

fn links_of_others(stage: &Stage) {
    let (real, open) = (stage.folder().join("real"), stage.folder().join("open"));
    std::fs::create_dir(&real).unwrap();
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
    let refused = |folder: &Path| {
        symlink(&real, folder.join("link")).unwrap();
        let log_file = Some(folder.join("link").join("a.etl"));
        stage.refused(&SessionConfig { log_file, ..stage.config() })
    };
    assert_eq!(refused(&open), 5);
    assert_eq!(refused(stage.folder()), 0, "nobody else could put a link there");
}
