//! Providers in containers: enabled by who asks for containers, or names them.
//!
//! The container is a PID namespace of its own, in which this very program is run once more and plays a provider.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use traceweir_format::filter::encode;
use traceweir_format::spec::enable::{EVENT_ENABLE_PROPERTY_ENABLE_SILOS, EVENT_FILTER_TYPE_EXECUTABLE_NAME};
use traceweir_transport::message::{EnableCode, EnableParams, Filter, Message, Role};
use traceweir_transport::socket::Connection;

use crate::util::{Client, Daemon, PATIENCE, PROVIDER, enable_with, live, skip};

/// Names the daemon's socket to the program in the container.
const SOCKET: &str = "TRACEWEIR_TEST_SOCKET";
/// How that program ends where it was enabled.
const ENABLED: i32 = 42;

/// Registers, and ends by whether it was enabled then.
fn play_provider(socket: &Path) -> ! {
    let connection = Connection::connect(socket, PATIENCE).unwrap();
    let mut provider = Client::welcome(connection, Role::Provider);
    provider.register(1, PROVIDER);
    let mut code = 0;
    loop {
        match provider.hear() {
            Message::Registered { .. } => std::process::exit(code),
            Message::Enable { .. } => code = ENABLED,
            _ => {}
        }
    }
}

/// A new PID namespace, and this program in it.
fn in_container(socket: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "containers::a_provider_in_a_container_is_enabled_by_who_asks_for_containers"]);
    command.env(SOCKET, socket);
    command
}

#[test]
fn a_provider_in_a_container_is_enabled_by_who_asks_for_containers() {
    if let Some(socket) = std::env::var_os(SOCKET) {
        play_provider(Path::new(&socket));
    }
    if !Command::new("unshare").args(["--pid", "--fork", "true"]).status().is_ok_and(|it| it.success()) {
        return skip("root", "a PID namespace of one's own takes root and unshare");
    }
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let by_name =
        Filter { kind: EVENT_FILTER_TYPE_EXECUTABLE_NAME, data: encode::name_list(&[program.as_str()]) };
    let silos = EVENT_ENABLE_PROPERTY_ENABLE_SILOS;
    for (property, filters, outcome) in [
        (0, vec![], 0),
        (silos, vec![], ENABLED),
        (0, vec![by_name.clone()], 0),
        (silos, vec![by_name], ENABLED),
    ] {
        let params = EnableParams { property, filters, ..EnableParams::default() };
        let what = format!("{params:?}");
        let enable = enable_with(session, PROVIDER, EnableCode::Enable, params, 0);
        assert_eq!(controller.ask(enable), Message::Done);
        let ended = in_container(&daemon.runtime().control_socket()).output().unwrap();
        assert_eq!(ended.status.code(), Some(outcome), "{what}: {ended:?}");
        // One outside is enabled in any case, where no filter is for others.
        let mut outside = daemon.provider();
        outside.register(1, PROVIDER);
        assert!(outside.connection.receive(PATIENCE).unwrap().is_some());
        outside.hear_enable();
        assert_eq!(outside.hear(), Message::Registered { registration: 1 });
        drop(outside);
        std::thread::sleep(Duration::from_millis(20));
    }
}
