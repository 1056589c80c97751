//! Signals while a command has changed the terminal, on a pseudoterminal: afterwards it is in its
//! former mode, on its main screen and with a cursor, and the signal has ended the command.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::{
        fd::OwnedFd,
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::Path,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::support::{command, foxton};
use nix::{
    pty::{Winsize, openpty},
    sys::{
        signal::{Signal, kill},
        termios::{LocalFlags, Termios, tcgetattr},
    },
    unistd::Pid,
};

const PATIENCE: Duration = Duration::from_secs(120);
const ENDING: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];
const RAW_SCREEN: &str = "\x1b[?1049h";
const MAIN_SCREEN: &str = "\x1b[?1049l";

/// Waits until `done`, and fails with what `state` says if that takes too long.
fn until(what: &str, state: impl Fn() -> String, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "never {what}: {}", state());
        thread::sleep(Duration::from_millis(10));
    }
}

/// A command on a pseudoterminal of its own.
struct OnTerminal {
    child: Child,
    keys: File,
    /// The program's side, kept open so that its mode can be read afterwards.
    terminal: OwnedFd,
    before: Termios,
    shown: Arc<Mutex<String>>,
}

impl OnTerminal {
    fn start(mut command: Command, directory: &Path) -> OnTerminal {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).expect("a pseudoterminal can be made");
        let before = tcgetattr(&pty.slave).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        // A signal may leave an image of the process in its directory.
        command.current_dir(directory).env("TERM", "xterm");
        command.stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().expect("the program runs");
        let keys = File::from(pty.master);
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut output, text) = (keys.try_clone().unwrap(), Arc::clone(&shown));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                *text.lock().unwrap() += &String::from_utf8_lossy(&bytes[..count]);
            }
        });
        OnTerminal {
            child,
            keys,
            terminal: pty.slave,
            before,
            shown,
        }
    }

    fn text(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    fn mode(&self) -> Termios {
        tcgetattr(&self.terminal).unwrap()
    }

    fn is_raw(&self) -> bool {
        !self.mode().local_flags.contains(LocalFlags::ICANON)
    }

    /// Waits until the terminal is raw and shows `words`, after those of the screen before.
    fn until_raw(&self, words: &str) {
        until(
            &format!("raw with {words:?}"),
            || self.text(),
            || {
                let text = self.text();
                let recent = text.rfind(RAW_SCREEN).unwrap_or(0);
                self.is_raw() && text[recent..].contains(words)
            },
        );
    }

    fn send(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("it runs");
    }

    /// Waits until it is in this state of `/proc/PID/stat`.
    fn until_state(&self, state: char) {
        let read = || fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        until(&format!("in state {state}"), read, || {
            let stat = read();
            let after_name = stat.rsplit(')').next().unwrap_or_default();
            after_name.trim_start().starts_with(state)
        });
    }

    fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        let shown = Arc::clone(&self.shown);
        let state = || shown.lock().unwrap().clone();
        until("ended", state, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Checks that the mode is that of before, and that the last of each pair of sequences is the
    /// second one.
    fn is_restored(&self, pairs: &[(&str, &str)]) {
        // The other flags have the speed of the line, which the kernel writes in its own way.
        let mode = |mode: &Termios| (mode.input_flags, mode.output_flags, mode.local_flags);
        assert_eq!(mode(&self.mode()), mode(&self.before));
        assert_eq!(self.mode().control_chars, self.before.control_chars);
        for (change, restore) in pairs {
            until(
                &format!("{restore:?} after {change:?}"),
                || format!("{:?}", self.text()),
                || {
                    let text = self.text();
                    let changed = text.rfind(change);
                    changed.is_none() || text.rfind(restore) > changed
                },
            );
        }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that has a database open and lets others look at it.
struct Observed(Child, Option<ChildStdin>);

impl Observed {
    fn open(place: &Path) -> Observed {
        let mut child = command(&["shell", &place.to_string_lossy(), "--observe"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the program runs");
        let input = child.stdin.take();
        let name = place.to_string_lossy().into_owned();
        until("observable", String::new, || {
            foxton(&["locks", &name]).status.success()
        });
        Observed(child, input)
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.1 = None;
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const TOP: [(&str, &str); 2] = [(RAW_SCREEN, MAIN_SCREEN), ("\x1b[?25l", "\x1b[?25h")];
const SHELL: [(&str, &str); 1] = [("\x1b[?2004h", "\x1b[?2004l")];

fn top(scratch: &Path, place: &Path) -> OnTerminal {
    let top = OnTerminal::start(command(&["top", &place.to_string_lossy()]), scratch);
    top.until_raw("q quit");
    top
}

#[test]
fn a_signal_that_ends_the_view_restores_the_terminal() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("db");
    let _observed = Observed::open(&place);
    for signal in ENDING {
        let mut top = top(scratch.path(), &place);
        top.send(signal);
        assert_eq!(top.ended().signal(), Some(signal as i32));
        top.is_restored(&TOP);
    }
    for key in ["q", "\x03"] {
        let mut top = top(scratch.path(), &place);
        top.keys.write_all(key.as_bytes()).unwrap();
        assert_eq!(top.ended().code(), Some(0));
        top.is_restored(&TOP);
    }
}

#[test]
fn a_view_that_is_stopped_restores_the_terminal_and_takes_it_again() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("db");
    let _observed = Observed::open(&place);
    let mut top = top(scratch.path(), &place);
    for by_key in [false, true] {
        match by_key {
            true => top.keys.write_all(b"\x1a").unwrap(),
            false => top.send(Signal::SIGTSTP),
        }
        top.until_state('T');
        top.is_restored(&TOP);
        top.send(Signal::SIGCONT);
        top.until_raw("q quit");
    }
    top.send(Signal::SIGTERM);
    assert_eq!(top.ended().signal(), Some(Signal::SIGTERM as i32));
    top.is_restored(&TOP);
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("db");
    let _observed = Observed::open(&place);
    let mut shell = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_foxton");
    let line = format!("trap '' HUP; exec {program} top {}", place.display());
    shell.arg0("sh").args(["-c", &line]);
    let mut top = OnTerminal::start(shell, scratch.path());
    top.until_raw("q quit");
    top.send(Signal::SIGHUP);
    top.send(Signal::SIGTERM);
    assert_eq!(top.ended().signal(), Some(Signal::SIGTERM as i32));
    top.is_restored(&TOP);
}

#[test]
fn a_signal_that_ends_a_shell_restores_the_terminal() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("db");
    let name = place.to_string_lossy();
    // The editor takes SIGINT for Control-C, as other shells do: it begins a new line.
    for signal in &ENDING[1..] {
        let signal = *signal;
        let mut shell = OnTerminal::start(command(&["shell", &name]), scratch.path());
        shell.until_raw("a> ");
        until(
            "at a second prompt",
            || shell.text(),
            || {
                // It does not see one that arrives right before it waits for a key.
                shell.send(Signal::SIGINT);
                shell.text().matches("a> ").count() >= 2
            },
        );
        shell.send(signal);
        assert_eq!(shell.ended().signal(), Some(signal as i32));
        shell.is_restored(&SHELL);
    }
    let mut shell = OnTerminal::start(command(&["shell", &name]), scratch.path());
    shell.until_raw("a> ");
    shell.keys.write_all(b"quit\r").unwrap();
    assert_eq!(shell.ended().code(), Some(0));
    shell.is_restored(&SHELL);
}
