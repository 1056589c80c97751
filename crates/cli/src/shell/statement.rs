//! Parsing a line.
//!
//! ```text
//! [@SESSION] COMMAND WORDS...
//! ```
//!
//! Words are separated by blanks; double quotes keep blanks inside a word.

use std::fmt;

use foxton::Isolation;

use crate::row_count::Precision;

/// A line, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// The session it is for; if `None`, the current one.
    pub(crate) session: Option<String>,
    /// The statement.
    pub(crate) statement: Statement,
}

/// A statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Statement {
    /// A statement for a session.
    Work(Work),
    /// A question about the whole database or the shell.
    About(About),
}

/// A statement for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Work {
    Get {
        table: String,
        key: String,
        strength: Strength,
    },
    Put {
        table: String,
        key: String,
        value: String,
    },
    Insert {
        table: String,
        key: String,
        value: String,
    },
    Delete {
        table: String,
        key: String,
    },
    Scan {
        table: String,
        from: Option<String>,
        to: Option<String>,
        backward: bool,
    },
    /// At this level; `None` for the default.
    Begin(Option<Isolation>),
    Commit,
    Rollback,
}

/// Lock mode of a get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strength {
    Shared,
    Update,
    Exclusive,
}

/// A question about the whole database or the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum About {
    Tables(Precision),
    Locks,
    Waits,
    Deadlocks,
    Stats,
    Sessions,
    Use(String),
    Help,
    Quit,
}

/// Why a line was not understood, and the form that would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misunderstood(String);

impl fmt::Display for Misunderstood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The commands, their forms and their help; also the answer to a wrong form.
pub(crate) const FORMS: [(&str, &str, &str); 19] = [
    (
        "get",
        "get TABLE KEY [for update|for exclusive]",
        "the value; locks it until the transaction ends",
    ),
    (
        "put",
        "put TABLE KEY VALUE",
        "sets a value; creates the table if there is none",
    ),
    (
        "insert",
        "insert TABLE KEY VALUE",
        "like put, but refused if the key exists",
    ),
    ("delete", "delete TABLE KEY", "deletes a key"),
    (
        "scan",
        "scan TABLE [FROM [TO]]",
        "rows in order, both bounds included",
    ),
    (
        "scanback",
        "scanback TABLE [FROM [TO]]",
        "the same from the last to the first",
    ),
    (
        "begin",
        "begin [LEVEL]",
        "opens a transaction, e.g. at level snapshot; without it each statement is one",
    ),
    (
        "commit",
        "commit",
        "makes the transaction's changes permanent",
    ),
    ("rollback", "rollback", "undoes the transaction's changes"),
    (
        "tables",
        "tables [exact]",
        "every table, its types and rows; counts large tables only if exact",
    ),
    ("locks", "locks", "the locks held, and their holders"),
    (
        "waits",
        "waits",
        "the transactions that wait, and for which",
    ),
    (
        "deadlocks",
        "deadlocks",
        "the latest deadlocks and their victims",
    ),
    ("stats", "stats", "counts of commits, locks and waits"),
    ("sessions", "sessions", "the sessions and their state"),
    (
        "use",
        "use SESSION",
        "selects the session for lines without @",
    ),
    (
        "@",
        "@SESSION STATEMENT",
        "one statement in another session, created if there is none",
    ),
    ("help", "help", "this list"),
    ("quit", "quit", "rolls back open transactions and exits"),
];

/// Parses a line; `None` for an empty line or a comment, which begins with `#`.
pub(crate) fn parse(line: &str) -> Result<Option<Line>, Misunderstood> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let mut words = words(line)?;
    let session = match words[0].strip_prefix('@') {
        Some("") => return Err(form("@")),
        Some(name) => {
            let name = name.to_owned();
            words.remove(0);
            Some(name)
        }
        None => None,
    };
    let Some(command) = words.first().cloned() else {
        return Err(form("@"));
    };
    let statement = statement(&command.to_lowercase(), &words[1..])?;
    Ok(Some(Line { session, statement }))
}

fn statement(command: &str, words: &[String]) -> Result<Statement, Misunderstood> {
    use Statement::{About as A, Work as W};
    let word = |index: usize| words[index].clone();
    Ok(match (command, words.len()) {
        ("get", 2 | 4) => W(Work::Get {
            table: word(0),
            key: word(1),
            strength: strength(&words[2..])?,
        }),
        ("put", 3..) => W(Work::Put {
            table: word(0),
            key: word(1),
            value: words[2..].join(" "),
        }),
        ("insert", 3..) => W(Work::Insert {
            table: word(0),
            key: word(1),
            value: words[2..].join(" "),
        }),
        ("delete" | "del", 2) => W(Work::Delete {
            table: word(0),
            key: word(1),
        }),
        ("scan" | "scanback", 1..=3) => W(Work::Scan {
            table: word(0),
            from: words.get(1).cloned(),
            to: words.get(2).cloned(),
            backward: command == "scanback",
        }),
        ("begin", 0) => W(Work::Begin(None)),
        ("begin", 1) => match word(0).parse() {
            Ok(level) => W(Work::Begin(Some(level))),
            Err(_) => return Err(unknown_level(&words[0])),
        },
        ("commit", 0) => W(Work::Commit),
        ("rollback", 0) => W(Work::Rollback),
        ("tables", 0) => A(About::Tables(Precision::Quick)),
        ("tables", 1) if word(0) == "exact" => A(About::Tables(Precision::Exact)),
        ("locks", 0) => A(About::Locks),
        ("waits", 0) => A(About::Waits),
        ("deadlocks", 0) => A(About::Deadlocks),
        ("stats", 0) => A(About::Stats),
        ("sessions", 0) => A(About::Sessions),
        ("use", 1) => A(About::Use(word(0).trim_start_matches('@').to_owned())),
        ("help" | "?", _) => A(About::Help),
        ("quit" | "exit", 0) => A(About::Quit),
        _ => return Err(form(command)),
    })
}

fn strength(words: &[String]) -> Result<Strength, Misunderstood> {
    match words {
        [] => Ok(Strength::Shared),
        [by, what] if by == "for" && what == "update" => Ok(Strength::Update),
        [by, what] if by == "for" && what == "exclusive" => Ok(Strength::Exclusive),
        _ => Err(form("get")),
    }
}

fn unknown_level(word: &str) -> Misunderstood {
    let names = Isolation::ALL.map(|level| level.to_string());
    let names = names.join(", ");
    Misunderstood(format!("\"{word}\" is not a level; give one of {names}"))
}

fn form(command: &str) -> Misunderstood {
    let name = if command == "del" { "delete" } else { command };
    let form = FORMS.iter().find(|(known, ..)| *known == name);
    Misunderstood(match form {
        Some((_, form, _)) => format!("the form is: {form}"),
        None => format!("\"{command}\" is not a command; `help` lists them"),
    })
}

fn words(line: &str) -> Result<Vec<String>, Misunderstood> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    if quoted {
        return Err(Misunderstood("a quotation mark is missing".to_owned()));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(line: &str) -> Work {
        match parse(line).unwrap().unwrap().statement {
            Statement::Work(work) => work,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn quotes_keep_blanks_and_a_value_takes_the_rest_of_the_line() {
        let put = Work::Put {
            table: "fruit".into(),
            key: "big apple".into(),
            value: "red and round".into(),
        };
        assert_eq!(work("put fruit \"big apple\" red and round"), put);
        assert_eq!(work("  PUT fruit  \"big apple\"  \"red and round\" "), put);
    }

    #[test]
    fn a_session_comes_first() {
        let line = parse("@b get accounts 1 for update").unwrap().unwrap();
        assert_eq!(line.session.as_deref(), Some("b"));
        let get = Work::Get {
            table: "accounts".into(),
            key: "1".into(),
            strength: Strength::Update,
        };
        assert_eq!(line.statement, Statement::Work(get));
    }

    #[test]
    fn a_wrong_form_is_answered_with_the_right_one() {
        for (line, answer) in [
            ("put accounts 1", "the form is: put TABLE KEY VALUE"),
            (
                "get accounts 1 for fun",
                "the form is: get TABLE KEY [for update|for exclusive]",
            ),
            (
                "fetch accounts",
                "\"fetch\" is not a command; `help` lists them",
            ),
            (
                "begin soon",
                "\"soon\" is not a level; give one of serializable, snapshot, repeatable-read, \
                 read-committed, read-uncommitted",
            ),
            ("begin snapshot now", "the form is: begin [LEVEL]"),
            ("@ get a 1", "the form is: @SESSION STATEMENT"),
            ("put a 1 \"x", "a quotation mark is missing"),
        ] {
            assert_eq!(parse(line).unwrap_err().to_string(), answer, "{line}");
        }
        assert_eq!(parse("  # a remark"), Ok(None));
        let begin = Work::Begin(Some(Isolation::Snapshot));
        assert_eq!(work("begin snapshot"), begin);
    }
}
