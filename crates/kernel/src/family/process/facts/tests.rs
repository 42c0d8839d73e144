//! Texts of `/proc`, also those that nobody would write.

use super::*;

#[test]
fn a_stat_is_read_whatever_the_name() {
    let rest = "S 7 1 1 0 -1 4194560 10 20 30 40 1 2 3 4 20 0 1 0 4711 1000 50 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 768";
    let stat = parse_stat(format!("12 (a) b (c) {rest}\n").as_bytes()).unwrap();
    assert_eq!(stat.name.as_bytes(), b"a) b (c");
    assert_eq!((stat.state, stat.parent, stat.faults), (b'S', 7, 40));
    assert_eq!((stat.priority, stat.start_ticks, stat.exit_code), (120, 4711, 768));
    for text in ["", "12", "12 (", "12 )(", "12 (a)", "12 (a) ", "12 (a) S 1 x", ") S 1"] {
        assert_eq!(parse_stat(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn this_process_is_what_it_is() {
    let pid = std::process::id();
    let own = stat(&pid.to_string()).unwrap();
    assert_eq!(own.parent, std::os::unix::process::parent_id());
    assert_eq!(status(pid).unwrap().user, Some(rustix::process::geteuid().as_raw()));
    assert!(status(pid).unwrap().sizes.unwrap().virtual_size > 0);
    let program = program(pid, b"none", false);
    assert_eq!(program.path, std::env::current_exe().unwrap().into_os_string().into_vec());
    assert!(program.path.ends_with(&program.image) && !program.image.contains(&b'/'));
    assert!(descriptors(pid) > 2);
    assert!(numbers("/proc").any(|number| number == pid));
}

#[test]
fn users_and_inner_ids_are_found_in_a_status() {
    let text = "Name:\tx\nUid:\t1000\t1001\t1002\t1003\nNSpid:\t4711\t12\t1\nVmPeak:\t  20 kB\nVmSize:\t 10 kB\nRssAnon:\t 3 kB\nVmSwap:\t 2 kB\n";
    let status = parse_status(text);
    assert_eq!((status.user, status.inner), (Some(1001), Some(1)));
    let sizes = status.sizes.unwrap();
    assert_eq!((sizes.peak_virtual, sizes.virtual_size, sizes.private), (20 << 10, 10 << 10, 5 << 10));
    assert_eq!(parse_status("NSpid:\t4711\nUid:\t1\nnonsense\nVmPeak: -1"), Status::default());
}

#[test]
fn arguments_are_quoted_so_that_they_can_be_told_apart() {
    for (arguments, wanted) in [
        (&b"ls\0-l\0"[..], "ls -l"),
        (b"a\0\0b c\0", "a \"\" \"b c\""),
        (b"say \"x\"\0a\\\0b\\ \\\0", r#""say \"x\"" a\ "b\ \\""#),
        (br#"x\"y"#, r#""x\\\"y""#),
        (b"\0", "\"\""),
        (b"", ""),
        (b"\xFF\0", "\u{FFFD}"),
    ] {
        assert_eq!(command_line(arguments, true), wanted, "{arguments:?}");
    }
    assert_eq!(command_line(b"title: x\0\0\0\0", false), "\"title: x\"");
    assert_eq!(command_line(b"a\0\0", true), "a \"\"");
}

#[test]
fn a_long_command_line_is_cut_where_one_sees_it() {
    let whole = vec![b'x'; MAX_COMMAND_LINE];
    assert_eq!(command_line(&whole, true).len(), MAX_COMMAND_LINE);
    let longer = vec![b'x'; MAX_COMMAND_LINE + 1];
    let cut = command_line(&longer, true);
    assert!(cut.ends_with("x…") && cut.chars().count() == MAX_COMMAND_LINE + 1);
}

#[test]
fn an_inner_process_says_who_it_is_there() {
    let mut text = String::new();
    let mut place = Place { application: "nginx".into(), ..Place::default() };
    place.application_of(Some(7), &mut text);
    assert_eq!(text, "nginx");
    place.namespace = Some(4_026_532_281);
    place.application_of(Some(7), &mut text);
    assert_eq!(text, "pid:[4026532281]:7");
    place.application_of(None, &mut text);
    assert_eq!(text, "pid:[4026532281]");
}
