//! Providers in containers are enabled only by calls that include containers.
//!
//! The container is a separate PID namespace, in which this program runs again and acts as a
//! provider.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use traceweir_format::filter::encode;
use traceweir_format::spec::enable::{EVENT_ENABLE_PROPERTY_ENABLE_SILOS, EVENT_FILTER_TYPE_EXECUTABLE_NAME};
use traceweir_transport::message::{EnableCode, EnableParams, Filter, Message, Role};
use traceweir_transport::socket::Connection;

use crate::util::{Client, Daemon, PROVIDER, TEST_TIMEOUT, enable_message_with, real_time_config, skip};

/// Environment variable with the daemon's socket for the program in the container.
const SOCKET: &str = "TRACEWEIR_TEST_SOCKET";
/// Exit code of that program if it was enabled.
const ENABLED: i32 = 42;

/// Registers a provider, and exits with [`ENABLED`] if it was enabled, else with 0.
fn act_as_provider(socket: &Path) -> ! {
    let connection = Connection::connect(socket, TEST_TIMEOUT).unwrap();
    let mut provider = Client::connect_as(connection, Role::Provider);
    provider.register(1, PROVIDER);
    let mut code = 0;
    loop {
        match provider.receive() {
            Message::Registered { .. } => std::process::exit(code),
            Message::Enable { .. } => code = ENABLED,
            _ => {}
        }
    }
}

/// Returns the command that runs this program in a new PID namespace.
fn container_command(socket: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "containers::contained_provider_is_enabled_by_calls_that_include_containers"]);
    command.env(SOCKET, socket);
    command
}

#[test]
fn contained_provider_is_enabled_by_calls_that_include_containers() {
    if let Some(socket) = std::env::var_os(SOCKET) {
        act_as_provider(Path::new(&socket));
    }
    if !Command::new("unshare")
        .args(["--pid", "--fork", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        return skip("root", "creating a PID namespace needs root and unshare");
    }
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let by_name =
        Filter { kind: EVENT_FILTER_TYPE_EXECUTABLE_NAME, data: encode::name_list(&[program.as_str()]) };
    let silos = EVENT_ENABLE_PROPERTY_ENABLE_SILOS;
    for (property, filters, exit_code) in [
        (0, vec![], 0),
        (silos, vec![], ENABLED),
        (0, vec![by_name.clone()], 0),
        (silos, vec![by_name], ENABLED),
    ] {
        let params = EnableParams { property, filters, ..EnableParams::default() };
        let params_text = format!("{params:?}");
        let enable = enable_message_with(session, PROVIDER, EnableCode::Enable, params, 0);
        assert_eq!(controller.request(enable), Message::Done);
        let ended = container_command(&daemon.runtime().control_socket()).output().unwrap();
        assert_eq!(ended.status.code(), Some(exit_code), "{params_text}: {ended:?}");
        // A process outside is enabled in any case: the filter names its program too.
        let mut outside = daemon.provider();
        outside.register(1, PROVIDER);
        assert!(outside.connection.receive(TEST_TIMEOUT).unwrap().is_some());
        outside.receive_enable();
        assert_eq!(outside.receive(), Message::Registered { registration: 1 });
        drop(outside);
        std::thread::sleep(Duration::from_millis(20));
    }
}
