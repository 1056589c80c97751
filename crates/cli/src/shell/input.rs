//! Input of the shell: an editor with history on a terminal, plain lines from anything else.

use std::{
    fmt::Display,
    io::{self, BufRead, ErrorKind, IsTerminal, StdinLock, Write},
    thread,
    time::{Duration, Instant},
};

use foxton_sync::shim::{AtomicBool, Ordering::SeqCst};
use nix::sys::termios::{SetArg, tcgetattr, tcsetattr};
use rustyline::{
    DefaultEditor,
    error::{ReadlineError, Signal},
};

use crate::{output, signals};

/// Ends the bracketed paste of the editor, and its line.
const EDITOR_ENDS: &str = "\x1b[?2004l\r\n";

/// True while the editor may change the terminal.
static IS_READING: AtomicBool = AtomicBool::new(false);
/// True once a signal ends the program. Each side stores its own, and then reads the other's
/// (`SeqCst`): so the editor does not begin, or the end waits for it.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// How long the end waits for an editor that has begun.
const PATIENCE: Duration = Duration::from_secs(2);

/// Input of the shell.
pub(crate) enum Input {
    /// A person at a terminal.
    Editor(Box<DefaultEditor>),
    /// A pipe or a file.
    Lines(StdinLock<'static>),
}

impl Input {
    /// Standard input.
    pub(crate) fn here() -> Result<Input, String> {
        match io::stdin().is_terminal() {
            true => {
                let editor = DefaultEditor::new();
                let editor = editor.map_err(|error| format!("the terminal: {error}"))?;
                restore_before_end()?;
                Ok(Input::Editor(Box::new(editor)))
            }
            false => Ok(Input::Lines(io::stdin().lock())),
        }
    }

    /// True if a person types.
    pub(crate) fn is_editor(&self) -> bool {
        matches!(self, Input::Editor(_))
    }

    /// Returns the next line, after `prompt` if a person types; `None` at the end. Control-C gives
    /// an empty line.
    pub(crate) fn line(&mut self, prompt: &str) -> Result<Option<String>, String> {
        let no_more = |error: &dyn Display| format!("the input could not be read: {error}");
        match self {
            Input::Editor(editor) => match read_line(editor, prompt) {
                Ok(line) => {
                    // A line that the history refuses is no reason to stop.
                    let _ = editor.add_history_entry(&line);
                    Ok(Some(line))
                }
                // The editor takes this signal for the key.
                Err(ReadlineError::Interrupted | ReadlineError::Signal(Signal::Interrupt)) => {
                    Ok(Some(String::new()))
                }
                Err(ReadlineError::Eof) => Ok(None),
                Err(ReadlineError::Io(error)) => Err(unprinted(error, no_more)),
                Err(ReadlineError::Errno(error)) => Err(unprinted(error.into(), no_more)),
                Err(error) => Err(no_more(&error)),
            },
            Input::Lines(lines) => {
                let mut line = String::new();
                let read = lines
                    .read_line(&mut line)
                    .map_err(|error| no_more(&error))?;
                Ok((read > 0).then_some(line))
            }
        }
    }
}

/// Reads a line, unless the program is about to end: then the terminal has its former mode, and
/// keeps it.
fn read_line(editor: &mut DefaultEditor, prompt: &str) -> Result<String, ReadlineError> {
    IS_READING.store(true, SeqCst);
    while IS_ENDING.load(SeqCst) {
        IS_READING.store(false, SeqCst);
        thread::park();
    }
    let line = editor.readline(prompt);
    IS_READING.store(false, SeqCst);
    line
}

/// Ends the program if the prompt could not be printed; else the input failed.
fn unprinted(error: io::Error, no_more: impl Fn(&dyn Display) -> String) -> String {
    match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::StorageFull => output::fail(&error),
        _ => no_more(&error),
    }
}

/// Restores the terminal before a signal ends the program: the editor has changed it while it waits
/// for a line.
fn restore_before_end() -> Result<(), String> {
    let before = tcgetattr(io::stdin()).map_err(|error| format!("the terminal: {error}"))?;
    signals::before_end(&signals::ENDING, move |_| {
        IS_ENDING.store(true, SeqCst);
        let is_as_before =
            || tcgetattr(io::stdin()).is_ok_and(|now| now.local_flags == before.local_flags);
        // An editor that has begun is about to change it.
        let begun = Instant::now();
        while is_as_before() && IS_READING.load(SeqCst) && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        if is_as_before() {
            return;
        }
        // A terminal that cannot be restored is gone.
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &before);
        if io::stdout().is_terminal() {
            let restored = output::descriptor();
            let _ = restored.and_then(|mut own| own.write_all(EDITOR_ENDS.as_bytes()));
        }
    })
}
