//! Parsing of `/proc` files, malformed ones included.

use super::*;

#[test]
fn stat_is_parsed_with_any_thread_name() {
    // Fields by their numbers in the documentation, from the state (3) to the exit code (52). The
    // faults are the sum of fields 10 and 12, and the priority is field 18 plus 100.
    let field = |number: u32| match number {
        3 => "S".to_owned(),
        4 => "7".to_owned(),
        10 => "10".to_owned(),
        12 => "30".to_owned(),
        18 => "20".to_owned(),
        22 => "4711".to_owned(),
        25 => u64::MAX.to_string(),
        52 => "768".to_owned(),
        _ => "-1".to_owned(),
    };
    let fields = (3..=52).map(field).collect::<Vec<_>>().join(" ");
    let stat = parse_stat(format!("12 (a) b (c) {fields}\n").as_bytes()).unwrap();
    assert_eq!(stat.name.as_bytes(), b"a) b (c");
    assert_eq!((stat.state, stat.parent, stat.faults), (b'S', 7, 40));
    assert_eq!((stat.priority, stat.start_ticks, stat.exit_code), (120, 4711, 768));
    for text in ["", "12", "12 (", "12 )(", "12 (a)", "12 (a) ", "12 (a) S 1 x", ") S 1"] {
        assert_eq!(parse_stat(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn facts_of_this_process_are_read() {
    let pid = std::process::id();
    let own = read_stat(&pid.to_string()).unwrap();
    assert_eq!(own.parent, std::os::unix::process::parent_id());
    assert_eq!(read_status(pid).unwrap().user, Some(rustix::process::geteuid().as_raw()));
    assert!(read_status(pid).unwrap().sizes.unwrap().virtual_size > 0);
    let program = read_program(pid, b"none", false);
    assert_eq!(program.path, std::env::current_exe().unwrap().into_os_string().into_vec());
    assert!(program.path.ends_with(&program.image) && !program.image.contains(&b'/'));
    assert!(count_descriptors(pid) > 2);
}

#[test]
fn zombie_has_its_exit_code() {
    let mut child = std::process::Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
    let zombie = (0..1000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        read_stat(&child.id().to_string()).filter(ProcStat::is_zombie)
    });
    // The status 7 is in bits 8 to 15.
    assert_eq!(zombie.unwrap().exit_code, 0x700);
    assert_eq!(read_status(child.id()).unwrap().sizes, None);
    child.wait().unwrap();
    assert_eq!(read_stat(&child.id().to_string()), None);
}

#[test]
fn status_gives_user_innermost_id_and_sizes() {
    let text = "Name:\tx\nUid:\t1000\t1001\t1002\t1003\nNSpid:\t4711\t12\t1\n\
        VmPeak:\t  20 kB\nVmSize:\t 10 kB\nRssAnon:\t 3 kB\nVmSwap:\t 2 kB\n";
    let status = parse_status(text);
    assert_eq!((status.user, status.inner_pid), (Some(1001), Some(1)));
    let sizes = status.sizes.unwrap();
    // The private bytes are RssAnon and VmSwap.
    assert_eq!((sizes.peak_virtual, sizes.virtual_size, sizes.private), (20 << 10, 10 << 10, 5 << 10));
    assert_eq!(parse_status("NSpid:\t4711\nUid:\t1\nnonsense\nVmPeak: -1"), ProcStatus::default());
}

#[test]
fn command_line_quotes_arguments_unambiguously() {
    for (arguments, expected) in [
        (&b"ls\0-l\0"[..], "ls -l"),
        (b"a\0\0b c\0", "a \"\" \"b c\""),
        (b"say \"x\"\0a\\\0b\\ \\\0", r#""say \"x\"" a\ "b\ \\""#),
        (br#"x\"y"#, r#""x\\\"y""#),
        (b"\0", "\"\""),
        (b"", ""),
        (b"\xFF\0", "\u{FFFD}"),
    ] {
        assert_eq!(join_arguments(arguments, true), expected, "{arguments:?}");
    }
    assert_eq!(join_arguments(b"title: x\0\0\0\0", false), "\"title: x\"");
    assert_eq!(join_arguments(b"a\0\0", true), "a \"\"");
}

#[test]
fn long_command_line_ends_with_an_ellipsis() {
    let longest = vec![b'x'; MAX_COMMAND_LINE_BYTES];
    assert_eq!(join_arguments(&longest, true).len(), MAX_COMMAND_LINE_BYTES);
    let longer = vec![b'x'; MAX_COMMAND_LINE_BYTES + 1];
    let cut = join_arguments(&longer, true);
    assert!(cut.ends_with("x…") && cut.chars().count() == MAX_COMMAND_LINE_BYTES + 1);
}

#[test]
fn application_id_names_an_inner_namespace() {
    let mut text = String::new();
    let mut app = AppIdentity { application: "nginx".into(), ..AppIdentity::default() };
    app.write_application_id(Some(7), &mut text);
    assert_eq!(text, "nginx");
    app.namespace = Some(4_026_532_281);
    app.write_application_id(Some(7), &mut text);
    assert_eq!(text, "pid:[4026532281]:7");
    app.write_application_id(None, &mut text);
    assert_eq!(text, "pid:[4026532281]");
}
