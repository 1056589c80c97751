//! Parser of cases: from text to steps.

use super::outcome::{Answer, Outcome, Rows};
use foxton::{Isolation, TableLock};
use std::collections::BTreeMap;
use std::fmt;

/// A step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Get {
        key: u64,
        update: bool,
    },
    Scan {
        from: u64,
        to: u64,
        reversed: bool,
        limit: u64,
        update: bool,
    },
    Put(u64, i64),
    Add(u64, i64),
    Place {
        base: u64,
        by: u64,
        value: i64,
    },
    Insert(u64, i64),
    Delete(u64),
    By {
        from: i64,
        to: i64,
        reversed: bool,
        limit: u64,
        update: bool,
    },
    Bump(u64, u64, i64),
    Fill(u64, u64, i64),
    Table(TableLock),
    Cut(u64, u64, i64),
    Save,
    Back,
    Sync,
    Commit,
    Abort,
    Quit,
}

/// A parsed case.
#[derive(Debug)]
pub struct Case {
    pub(crate) start: Rows,
    /// Steps of each transaction.
    pub(crate) sessions: Vec<Vec<Step>>,
    /// Outcomes that must not happen.
    pub never: Vec<Never>,
    /// Whether there is an index on the values, and whether it is unique.
    pub(crate) index: Option<bool>,
    /// Number of keys above which a transaction locks the whole table, if the case sets it.
    pub(crate) escalation: Option<u32>,
    /// Transactions that have a level of their own.
    pub(crate) levels: BTreeMap<usize, Isolation>,
    /// Sets of transactions that only read, each at one handle of a snapshot.
    pub(crate) handles: Vec<Vec<usize>>,
}

/// An outcome that must not happen.
#[derive(Debug)]
pub struct Never {
    /// Weakest of the locking levels that forbids it.
    pub from: Isolation,
    /// True if `Snapshot` admits it.
    pub is_of_snapshot: bool,
    /// Its text.
    pub text: String,
    /// Alternatives, each of several conditions that must all hold.
    any: Vec<Vec<Atom>>,
}

#[derive(Debug)]
enum Atom {
    Committed(usize),
    End(Rows),
    Has(Place, u64, i64),
    Compare(Place, bool, Right),
}

/// An answer: its session, and its step.
type Place = (usize, usize);

#[derive(Debug)]
enum Right {
    Answer(Answer),
    Other(Place),
}

/// Error in the text of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError(String);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseError {}

fn wrong<T>(what: &str, word: &str) -> Result<T, ParseError> {
    Err(ParseError(format!("{word:?} is no {what}")))
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, ParseError> {
    word.parse().or_else(|_| wrong("number", word))
}

fn row(word: &str) -> Result<(u64, i64), ParseError> {
    match word.split_once('=') {
        Some((key, value)) => Ok((number(key)?, number(value)?)),
        None => wrong("row", word),
    }
}

fn rows(text: &str) -> Result<Vec<(u64, i64)>, ParseError> {
    text.split_whitespace().map(row).collect()
}

fn range<T: std::str::FromStr>(word: &str) -> Result<(T, T), ParseError> {
    match word.split_once("..") {
        Some((from, to)) => Ok((number(from)?, number(to)?)),
        None => wrong("range", word),
    }
}

impl Case {
    /// Parses a case.
    ///
    /// # Errors
    ///
    /// Names the word that is not understood.
    pub fn parse(text: &str) -> Result<Case, ParseError> {
        let mut case = Case {
            start: Rows::new(),
            sessions: Vec::new(),
            never: Vec::new(),
            index: None,
            escalation: None,
            levels: BTreeMap::new(),
            handles: Vec::new(),
        };
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
            match head {
                "start" => case.start = rows(rest)?.into_iter().collect(),
                "index" if rest.is_empty() => case.index = Some(false),
                "unique" if rest == "index" => case.index = Some(true),
                "escalation" => case.escalation = Some(number(rest)?),
                "level" => {
                    let (name, level) = rest.split_once(' ').unwrap_or((rest, ""));
                    let level = level.parse().or_else(|_| wrong("level", level))?;
                    case.levels.insert(session(name)?, level);
                }
                "handle" => {
                    let sessions = rest.split_whitespace().map(session);
                    case.handles.push(sessions.collect::<Result<_, _>>()?);
                }
                "never" => case.never.push(Never::parse(rest)?),
                _ if head == format!("T{}", case.sessions.len() + 1) => {
                    let steps = rest.split(';').map(|step| Step::parse(step.trim()));
                    case.sessions.push(steps.collect::<Result<_, _>>()?);
                }
                _ => return wrong("line", line),
            }
        }
        Ok(case)
    }

    /// Returns the level of a transaction where the others have `level`.
    pub(crate) fn level(&self, session: usize, level: Isolation) -> Isolation {
        self.levels.get(&session).copied().unwrap_or(level)
    }

    /// True if some transaction reads at a snapshot where the others have `level`.
    pub fn has_snapshots(&self, level: Isolation) -> bool {
        let mut sessions = 0..self.sessions.len();
        let is_at_snapshot = |session| self.level(session, level) == Isolation::Snapshot;
        !self.handles.is_empty() || sessions.any(is_at_snapshot)
    }

    /// Returns the number of the handle at which a transaction reads, if it does.
    pub(crate) fn handle(&self, session: usize) -> Option<usize> {
        let mut handles = self.handles.iter();
        handles.position(|sessions| sessions.contains(&session))
    }

    /// Returns how many steps each transaction has.
    pub fn lengths(&self) -> Vec<usize> {
        self.sessions.iter().map(Vec::len).collect()
    }
}

impl Step {
    fn parse(text: &str) -> Result<Step, ParseError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Ok(match words[..] {
            ["get", key] => Step::Get {
                key: number(key)?,
                update: false,
            },
            ["getu", key] => Step::Get {
                key: number(key)?,
                update: true,
            },
            ["put", key, value] => Step::Put(number(key)?, number(value)?),
            ["add", key, more] => Step::Add(number(key)?, number(more)?),
            ["place", base, by, value] => Step::Place {
                base: number(base)?,
                by: number(by)?,
                value: number(value)?,
            },
            ["insert", key, value] => Step::Insert(number(key)?, number(value)?),
            ["delete", key] => Step::Delete(number(key)?),
            ["bump", keys, more] => {
                let (from, to) = range(keys)?;
                Step::Bump(from, to, number(more)?)
            }
            ["cut", keys, value] => {
                let (from, to) = range(keys)?;
                Step::Cut(from, to, number(value)?)
            }
            ["fill", keys, value] => {
                let (from, to) = range(keys)?;
                Step::Fill(from, to, number(value)?)
            }
            ["scan", keys, ref how @ ..] => {
                let (from, to) = range(keys)?;
                let How {
                    reversed,
                    limit,
                    update,
                } = How::parse(how)?;
                Step::Scan {
                    from,
                    to,
                    reversed,
                    limit,
                    update,
                }
            }
            ["by", values, ref how @ ..] => {
                let (from, to) = range(values)?;
                let How {
                    reversed,
                    limit,
                    update,
                } = How::parse(how)?;
                Step::By {
                    from,
                    to,
                    reversed,
                    limit,
                    update,
                }
            }
            ["table", mode] => Step::Table(match mode {
                "is" => TableLock::IntentShared,
                "ix" => TableLock::IntentExclusive,
                "s" => TableLock::Shared,
                "six" => TableLock::SharedIntentExclusive,
                "u" => TableLock::Update,
                "x" => TableLock::Exclusive,
                _ => return wrong("lock of a table", mode),
            }),
            ["save"] => Step::Save,
            ["back"] => Step::Back,
            ["sync"] => Step::Sync,
            ["commit"] => Step::Commit,
            ["abort"] => Step::Abort,
            ["quit"] => Step::Quit,
            _ => return wrong("step", text),
        })
    }
}

/// How a range is read.
struct How {
    reversed: bool,
    limit: u64,
    update: bool,
}

impl How {
    fn parse(words: &[&str]) -> Result<How, ParseError> {
        let mut how = How {
            reversed: false,
            limit: u64::MAX,
            update: false,
        };
        for word in words {
            match (*word, word.strip_prefix("limit=")) {
                ("desc", _) => how.reversed = true,
                ("update", _) => how.update = true,
                (_, Some(count)) => how.limit = number(count)?,
                _ => return wrong("way to read", word),
            }
        }
        Ok(how)
    }
}

impl Never {
    fn parse(text: &str) -> Result<Never, ParseError> {
        let Some((head, rest)) = text.split_once(':') else {
            return wrong("rule", text);
        };
        let head = head.trim();
        let (head, is_of_snapshot) = match head.strip_suffix(" but snapshot") {
            Some(head) => (head, true),
            None => (head, false),
        };
        let level = head.strip_prefix("from ").unwrap_or(head).trim();
        let any = rest.split('|').map(|all| {
            let all = all.split(" and ").map(|atom| Atom::parse(atom.trim()));
            all.collect::<Result<Vec<Atom>, _>>()
        });
        Ok(Never {
            from: level.parse().or_else(|_| wrong("level", level))?,
            is_of_snapshot,
            text: rest.trim().to_owned(),
            any: any.collect::<Result<_, _>>()?,
        })
    }

    /// True if it happened.
    pub fn is_seen(&self, outcome: &Outcome) -> bool {
        let holds = |all: &Vec<Atom>| all.iter().all(|atom| atom.holds(outcome));
        self.any.iter().any(holds)
    }
}

/// Parses the name of a transaction.
fn session(word: &str) -> Result<usize, ParseError> {
    let number = word.strip_prefix('T').and_then(|word| word.parse().ok());
    match number.and_then(|number: usize| number.checked_sub(1)) {
        Some(session) => Ok(session),
        None => wrong("transaction", word),
    }
}

fn place(word: &str) -> Option<Place> {
    let (session, step) = word.strip_prefix('T')?.split_once('.')?;
    let (session, step): (usize, usize) = (session.parse().ok()?, step.parse().ok()?);
    Some((session.checked_sub(1)?, step.checked_sub(1)?))
}

impl Atom {
    fn parse(text: &str) -> Result<Atom, ParseError> {
        if let Some(all) = text.strip_prefix("end") {
            return Ok(Atom::End(rows(all)?.into_iter().collect()));
        }
        let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
        let Some(one) = place(first) else {
            let name = if rest.is_empty() { first } else { text };
            return Ok(Atom::Committed(session(name)?));
        };
        let Some((how, right)) = rest.trim().split_once(' ') else {
            return wrong("question", text);
        };
        Ok(match how {
            "has" => {
                let (key, value) = row(right)?;
                Atom::Has(one, key, value)
            }
            "=" => Atom::Compare(one, true, Right::parse(right)?),
            "!=" => Atom::Compare(one, false, Right::parse(right)?),
            _ => return wrong("question", text),
        })
    }

    fn holds(&self, outcome: &Outcome) -> bool {
        let answer = |&(session, step): &Place| {
            let played = &outcome.sessions[session];
            played.answers.get(step).filter(|_| played.committed)
        };
        match self {
            Atom::Committed(session) => outcome.sessions[*session].committed,
            Atom::End(rows) => outcome.end == *rows,
            Atom::Has(place, key, value) => {
                matches!(answer(place), Some(Answer::Rows(rows)) if rows.contains(&(*key, *value)))
            }
            Atom::Compare(place, equal, right) => {
                let right = match right {
                    Right::Answer(right) => Some(right),
                    Right::Other(other) => answer(other),
                };
                match (answer(place), right) {
                    (Some(left), Some(right)) => (left == right) == *equal,
                    _ => false,
                }
            }
        }
    }
}

impl Right {
    fn parse(text: &str) -> Result<Right, ParseError> {
        if let Some(other) = place(text) {
            return Ok(Right::Other(other));
        }
        let inside = text
            .strip_prefix('{')
            .and_then(|text| text.strip_suffix('}'));
        Ok(Right::Answer(match (inside, text) {
            (Some(inside), _) => Answer::Rows(rows(inside)?),
            (_, "none") => Answer::Value(None),
            (_, "exists") => Answer::Exists,
            (_, "ok") => Answer::Done,
            _ => Answer::Value(Some(number(text)?)),
        }))
    }
}
