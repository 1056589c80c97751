//! Where lines come from: an editor with history on a terminal, plain lines from anything else.

use std::io::{self, BufRead, IsTerminal, StdinLock};

use rustyline::{DefaultEditor, error::ReadlineError};

/// Where lines come from.
pub(crate) enum Input {
    /// A person.
    Editor(Box<DefaultEditor>),
    /// A pipe or a file.
    Lines(StdinLock<'static>),
}

impl Input {
    /// Standard input, as whatever it is.
    pub(crate) fn here() -> Result<Input, String> {
        match io::stdin().is_terminal() {
            true => {
                let editor = DefaultEditor::new();
                let editor = editor.map_err(|error| format!("the terminal: {error}"))?;
                Ok(Input::Editor(Box::new(editor)))
            }
            false => Ok(Input::Lines(io::stdin().lock())),
        }
    }

    /// Whether a person types.
    pub(crate) fn is_editor(&self) -> bool {
        matches!(self, Input::Editor(_))
    }

    /// The next line, after `prompt` if a person types; `None` at the end. Control-C gives an
    /// empty line.
    pub(crate) fn line(&mut self, prompt: &str) -> Result<Option<String>, String> {
        let told = |error: &dyn std::fmt::Display| format!("no more input: {error}");
        match self {
            Input::Editor(editor) => match editor.readline(prompt) {
                Ok(line) => {
                    // A line that history does not want is no reason to stop.
                    let _ = editor.add_history_entry(&line);
                    Ok(Some(line))
                }
                Err(ReadlineError::Interrupted) => Ok(Some(String::new())),
                Err(ReadlineError::Eof) => Ok(None),
                Err(error) => Err(told(&error)),
            },
            Input::Lines(lines) => {
                let mut line = String::new();
                let read = lines.read_line(&mut line).map_err(|error| told(&error))?;
                Ok((read > 0).then_some(line))
            }
        }
    }
}
