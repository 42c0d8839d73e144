//! A session that writes a file, in a real daemon, and the controller that started the session.

use std::path::Path;

use traceweir::controller::{Controller, SessionConfig, SessionRef};
use traceweir_format::etl;
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;

pub(crate) struct Recording<'a> {
    pub(crate) controller: Controller,
    pub(crate) session: SessionRef,
    folder: &'a Path,
}

impl<'a> Recording<'a> {
    /// Starts a session at the daemon of this runtime directory.
    pub(crate) fn new(folder: &'a Path) -> Self {
        let mut controller = Controller::find_at(folder).unwrap().expect("the daemon does not answer");
        let log_file = Some(folder.join("trace.etl"));
        let config = SessionConfig {
            name: "s".into(),
            log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
            log_file,
            ..SessionConfig::default()
        };
        let session = SessionRef::Id(controller.start(&config).unwrap().id);
        Self { controller, session, folder }
    }

    /// Stops the session, asserts that it lost no events, and collects what `view` returns for each
    /// record of its file.
    pub(crate) fn stop<T>(
        mut self,
        mut view: impl FnMut(&traceweir_format::Record<'_>) -> Option<T>,
    ) -> Vec<T> {
        assert_eq!(self.controller.stop(&self.session).unwrap().events_lost, 0);
        let trace = etl::Trace::open(std::fs::File::open(self.folder.join("trace.etl")).unwrap()).unwrap();
        let mut events = trace.events();
        let mut views = Vec::new();
        while let Some(record) = events.next().unwrap() {
            views.extend(view(&record));
        }
        views
    }
}
