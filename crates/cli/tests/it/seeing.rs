//! `foxton locks` and `foxton top` on running processes: a shell with a conflict, a benchmark, a
//! process that was killed, a database that does not allow observation.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::support::{command, foxton, said};

const PATIENCE: Duration = Duration::from_secs(60);

/// The command's output, once it has succeeded and contains all of `words`.
fn until(arguments: &[&str], words: &[&str]) -> String {
    let begun = Instant::now();
    loop {
        let output = foxton(arguments);
        let text = said(&output);
        if output.status.success() && words.iter().all(|word| text.contains(word)) {
            return text;
        }
        assert!(begun.elapsed() < PATIENCE, "no {words:?} in:\n{text}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A shell that allows observation; killed if the test ends first.
struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Shell {
    fn open(directory: &Path) -> Shell {
        let mut child = command(&["shell", &directory.to_string_lossy(), "--observe"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let lines = BufReader::new(output.expect("piped")).lines();
        Shell {
            child,
            input,
            lines,
        }
    }

    /// Sends it `script`, and waits for `last`.
    fn does(&mut self, script: &str, last: &str) {
        let input = self.input.as_mut().expect("it is open");
        input.write_all(script.as_bytes()).expect("it reads");
        loop {
            let line = self.lines.next().expect("it goes on").expect("text");
            if line.contains(last) {
                return;
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const CONFLICT: &str = "put accounts 1 100\nbegin\nput accounts 1 90\n@b get accounts 1\n";
const DEADLOCK: &str = "begin\nput t x 2\n@b begin\n@b put t y 2\nput t y 3\n@b put t x 3\n";

#[test]
fn a_conflict_in_one_process_is_seen_from_another_as_table_json_graph_and_frame() {
    let scratch = tempfile::tempdir().unwrap();
    let play = scratch.path().join("play");
    let mut shell = Shell::open(&play);
    shell.does(CONFLICT, "b waits");
    let place = &*play.to_string_lossy();

    let text = until(&["locks", place], &["b (owner", "accounts/1", "a (owner"]);
    assert!(text.contains("a holds X"), "{text}");
    let waits = text.find("b (owner").unwrap();
    assert!(
        waits < text.find("holder  ").unwrap(),
        "waits come first:\n{text}"
    );

    let json = foxton(&["locks", place, "--json"]);
    let picture: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(picture["queues"][0]["waiters"][0]["label"], "b");
    assert!(
        picture["queues"][0]["waiters"][0]["waited_micros"]
            .as_u64()
            .unwrap()
            > 0
    );

    let dot = said(&foxton(&["locks", place, "--dot"]));
    assert!(
        dot.starts_with("digraph") && dot.contains("n0 -> n1"),
        "{dot}"
    );
    let svg = said(&foxton(&["locks", place, "--svg"]));
    assert!(
        svg.starts_with("<svg") && svg.contains("awaits S on accounts/1"),
        "{svg}"
    );

    let frame = said(&foxton(&["top", place, "--once"]));
    assert_eq!(frame.lines().count(), 24, "{frame}");
    for words in [
        "1 waits, longest first",
        "b (owner",
        "accounts/1",
        "a holds X",
    ] {
        assert!(frame.contains(words), "no {words:?} in\n{frame}");
    }
    assert!(!frame.contains('\x1b'), "plain text");

    shell.does("commit\n", "b: 90");
    // The cost of the wait is shown after it.
    let text = until(&["locks", place], &["no transaction waits", "hot name"]);
    assert!(text.contains("accounts/1"), "{text}");
}

#[test]
fn a_deadlock_is_shown_and_drawn_afterwards() {
    let scratch = tempfile::tempdir().unwrap();
    let play = scratch.path().join("play");
    let mut shell = Shell::open(&play);
    let place = &*play.to_string_lossy();
    shell.does("put t x 1\nput t y 1\n", "ok");
    let none = foxton(&["locks", place, "--deadlock"]);
    assert_eq!(none.status.code(), Some(1), "{}", said(&none));
    shell.does(DEADLOCK, "deadlock");
    let text = until(&["locks", place, "--deadlock"], &["victim", "t/x", "t/y"]);
    assert!(
        text.contains("a (owner") && text.contains("b (owner"),
        "{text}"
    );
    let svg = said(&foxton(&["locks", place, "--deadlock", "--svg"]));
    assert!(
        svg.contains("gave way") && svg.contains("url(#red)"),
        "{svg}"
    );
    let page = said(&foxton(&[
        "top", place, "--once", "--page", "5", "--size", "120x30",
    ]));
    assert!(page.contains("victim"), "{page}");
}

#[test]
fn what_nobody_lets_be_seen_is_refused_with_what_to_do() {
    let scratch = tempfile::tempdir().unwrap();
    let play = scratch.path().join("play");
    let place = &*play.to_string_lossy();
    for view in [&["locks", place][..], &["top", place, "--once"]] {
        let output = foxton(view);
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains("there is no"), "{}", said(&output));
    }
    fs::create_dir(&play).unwrap();
    let output = foxton(&["locks", place]);
    assert_eq!(output.status.code(), Some(1));
    for words in ["did not opt in", "Observe::InDirectory", "--observe"] {
        assert!(said(&output).contains(words), "{}", said(&output));
    }
}

#[test]
fn a_killed_process_is_said_to_be_gone_and_the_next_one_can_be_seen() {
    let scratch = tempfile::tempdir().unwrap();
    let play = scratch.path().join("play");
    let place = &*play.to_string_lossy();
    let mut shell = Shell::open(&play);
    shell.does(CONFLICT, "b waits");
    drop(shell);
    assert!(
        play.join("observe.sock").exists(),
        "a kill leaves it behind"
    );
    let output = foxton(&["locks", place]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("is gone"), "{}", said(&output));
    let mut shell = Shell::open(&play);
    shell.does("begin\nput accounts 1 80\n", "ok");
    let text = until(&["locks", place], &["accounts/1", "a (owner"]);
    assert!(text.contains("no transaction waits"), "{text}");
}

#[test]
fn another_user_is_turned_away() {
    const NOBODY: u32 = 65_534;
    let scratch = tempfile::tempdir().unwrap();
    let play = scratch.path().join("play");
    let mut shell = Shell::open(&play);
    shell.does("put t x 1\n", "ok");
    let socket = play.join("observe.sock");
    let found = fs::metadata(&socket).unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    let allow = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let mut other = command(&["locks", &play.to_string_lossy()]);
    if found.uid() == 0 {
        // The superuser can become another user, and the directories admit that user.
        allow(scratch.path(), 0o755);
        allow(&play, 0o755);
        other.uid(NOBODY).gid(NOBODY);
    } else {
        allow(&socket, 0o000);
    }
    let output = match other.output() {
        Ok(output) => output,
        // If no other user may run this program, the test cannot be run.
        Err(error) => return eprintln!("not tried: {error}"),
    };
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("another user"), "{}", said(&output));
}

#[test]
fn a_running_benchmark_can_be_watched_and_says_how() {
    let scratch = tempfile::tempdir().unwrap();
    let watched = scratch.path().join("watch");
    let (place, out) = (watched.to_string_lossy(), scratch.path().join("out"));
    let mut child = command(&[
        "bench",
        "txbench",
        "--rows",
        "2000",
        "--mpl",
        "8",
        "--seconds",
        "6",
        "--ramp",
        "0",
        "--reps",
        "1",
        "--locks",
        "default",
        "--updates",
        "20",
        "--hotspot",
        "--observe",
        &place,
        "--out",
        &out.to_string_lossy(),
    ])
    .stdout(Stdio::null())
    .stderr(Stdio::piped())
    .spawn()
    .expect("the program runs");
    let frame = until(&["top", &place, "--once"], &["commits/s", "labels"]);
    let held = until(&["locks", &place], &["table"]);
    let status = child.wait().expect("it ends");
    let mut text = String::new();
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    while errors.read_line(&mut text).is_ok_and(|count| count > 0) {}
    assert!(status.success(), "{text}");
    assert!(text.contains(&format!("foxton top {place}")), "{text}");
    assert!(frame.contains("process"), "{frame}");
    assert!(held.contains("update") || held.contains("read"), "{held}");
    assert!(!watched.join("observe.sock").exists());
}
