//! The command as the tests run it.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foxton"));
    command.args(arguments).stdin(Stdio::null());
    command
}

pub fn foxton(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program runs")
}

/// Runs the command with `input` on its standard input.
pub fn foxton_fed(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    // A command that needs less input may have ended before all of it was written.
    let _ = child.stdin.take().expect("piped").write_all(input);
    child.wait_with_output().expect("it ends")
}

pub fn shell(directory: &Path, script: &str) -> Output {
    let directory = directory.to_string_lossy();
    foxton_fed(&["shell", &directory, "--wait", "30"], script.as_bytes())
}

pub fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(text).expect("it speaks UTF-8")
}
