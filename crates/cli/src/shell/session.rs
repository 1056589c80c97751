//! A session: a thread with at most one open transaction.
//!
//! Each session has its own thread, so that a session that waits for a lock does not block the
//! others. Its transactions carry its name as their label, which locks and waits show.

use std::{
    collections::HashMap,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use foxton::{Database, Error, Lock, Table, Transaction, codec::Encoded, error::ConflictReason};

use super::{
    rows,
    statement::{Strength, Work},
};

/// Answer to a statement.
#[derive(Debug)]
pub(crate) struct Answer {
    /// For the person.
    pub(crate) lines: Vec<String>,
    /// True if the statement succeeded.
    pub(crate) ok: bool,
    /// True if a transaction is open now.
    pub(crate) open: bool,
}

/// A session, from the shell's side.
#[derive(Debug)]
pub(crate) struct Session {
    name: String,
    busy: bool,
    open: bool,
    work: Sender<Work>,
    answers: Receiver<Answer>,
    thread: JoinHandle<()>,
}

impl Session {
    /// Starts a session called `name`.
    pub(crate) fn begin(db: Database, name: &str) -> Session {
        let (work, inbox) = channel::<Work>();
        let (outbox, answers) = channel();
        let mut thread = SessionThread {
            db,
            name: name.to_owned(),
            tx: None,
            names: HashMap::new(),
        };
        let thread = thread::spawn(move || {
            for work in inbox {
                let (ok, lines) = match thread.work(work) {
                    Ok(lines) => (true, lines),
                    Err(what) => (false, vec![what]),
                };
                if outbox
                    .send(Answer {
                        lines,
                        ok,
                        open: thread.tx.is_some(),
                    })
                    .is_err()
                {
                    return;
                }
            }
        });
        Session {
            name: name.to_owned(),
            busy: false,
            open: false,
            work,
            answers,
            thread,
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// True if a statement has not been answered yet.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// True if a transaction was open after the last answer.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Sends a statement; the session must not be busy.
    pub(crate) fn send(&mut self, work: Work) {
        self.busy = self.work.send(work).is_ok();
    }

    /// The answer, if it comes within `patience`.
    pub(crate) fn answer(&mut self, patience: Duration) -> Option<Answer> {
        let answer = match self.answers.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => Answer {
                lines: vec![
                    "the session's thread panicked; its transaction is rolled back".to_owned(),
                ],
                ok: false,
                open: false,
            },
        };
        (self.busy, self.open) = (false, answer.open);
        Some(answer)
    }

    /// Ends the session; an open transaction is rolled back once the last statement has ended.
    pub(crate) fn end(self) -> JoinHandle<()> {
        self.thread
    }
}

/// State of a session's thread.
struct SessionThread {
    db: Database,
    name: String,
    tx: Option<Transaction>,
    names: HashMap<String, &'static str>,
}

type Lines = Result<Vec<String>, String>;

impl SessionThread {
    fn work(&mut self, work: Work) -> Lines {
        match work {
            Work::Begin(_) if self.tx.is_some() => {
                Err("a transaction is already open; commit or roll it back first".to_owned())
            }
            Work::Begin(level) => {
                let mut tx = self.begin()?;
                if let Some(level) = level {
                    tx.set_isolation(level).map_err(|error| error.to_string())?;
                }
                self.tx = Some(tx);
                Ok(vec!["open".to_owned()])
            }
            Work::Commit => match self.tx.take() {
                Some(tx) => tx
                    .commit()
                    .map_err(words)
                    .map(|()| vec!["committed".to_owned()]),
                None => Err(NOTHING_OPEN.to_owned()),
            },
            Work::Rollback => match self.tx.take() {
                Some(tx) => {
                    tx.rollback();
                    Ok(vec!["rolled back".to_owned()])
                }
                None => Err(NOTHING_OPEN.to_owned()),
            },
            work => self.in_transaction(work),
        }
    }

    fn begin(&self) -> Result<Transaction, String> {
        let mut tx = self.db.begin().map_err(words)?;
        tx.set_label(self.name.clone());
        Ok(tx)
    }

    /// Runs a statement in the open transaction, or in one of its own that commits at once.
    fn in_transaction(&mut self, work: Work) -> Lines {
        let Some(mut tx) = self.tx.take() else {
            let mut tx = self.begin()?;
            let lines = self
                .statement(&mut tx, work)
                .map_err(|failure| failure.words)?;
            tx.commit().map_err(words)?;
            return Ok(lines);
        };
        let result = self.statement(&mut tx, work);
        match &result {
            Err(failure) if failure.ended => drop(tx),
            _ => self.tx = Some(tx),
        }
        result.map_err(|failure| failure.words)
    }

    fn statement(&mut self, tx: &mut Transaction, work: Work) -> Result<Vec<String>, Failure> {
        match work {
            Work::Get {
                table,
                key,
                strength,
            } => {
                let table = self.known(&table)?;
                let key = table.key(&key)?;
                let lock = match strength {
                    Strength::Shared => Lock::Shared,
                    Strength::Update => Lock::Update,
                    Strength::Exclusive => Lock::Exclusive,
                };
                let value = tx.get_locked(&table.door, &key, lock)?;
                Ok(vec![value.map_or("(none)".to_owned(), |value| {
                    table.show_value(&value)
                })])
            }
            Work::Put { table, key, value } => self.write(tx, &table, &key, &value, false),
            Work::Insert { table, key, value } => self.write(tx, &table, &key, &value, true),
            Work::Delete { table, key } => {
                let table = self.known(&table)?;
                let there = tx.delete(&table.door, &table.key(&key)?)?;
                Ok(vec![
                    if there { "deleted" } else { "(no such key)" }.to_owned(),
                ])
            }
            Work::Scan {
                table,
                from,
                to,
                backward,
            } => {
                let table = self.known(&table)?;
                scan(tx, &table, from.as_deref(), to.as_deref(), backward)
            }
            Work::Begin(_) | Work::Commit | Work::Rollback => unreachable!("handled by work"),
        }
    }

    fn write(
        &mut self,
        tx: &mut Transaction,
        name: &str,
        key: &str,
        value: &str,
        insert: bool,
    ) -> Result<Vec<String>, Failure> {
        let done = || vec!["ok".to_owned()];
        let Some(table) = self.find(name) else {
            // A new table has text.
            let table: Table<str, str> = Table::new(self.forever(name));
            tx.put(&table, key, value)?;
            return Ok(done());
        };
        let (key, value) = (table.key(key)?, table.value(value)?);
        match insert {
            true => tx.insert(&table.door, &key, &value)?,
            false => tx.put(&table.door, &key, &value)?,
        }
        Ok(done())
    }

    fn known(&mut self, name: &str) -> Result<Known, Failure> {
        self.find(name).ok_or_else(|| {
            Failure::from(format!(
                "there is no table \"{name}\"; put creates one, tables lists them"
            ))
        })
    }

    fn find(&mut self, name: &str) -> Option<Known> {
        let found = self
            .db
            .stats()
            .tables
            .into_iter()
            .find(|table| table.name == name)?;
        let door = Table::new(self.forever(name));
        Some(Known {
            door,
            key_type: found.key_type,
            value_type: found.value_type,
        })
    }

    /// The name as a constant, which tables need. A shell uses few names, each once.
    fn forever(&mut self, name: &str) -> &'static str {
        let keep = || -> &'static str { Box::leak(name.to_owned().into_boxed_str()) };
        self.names.entry(name.to_owned()).or_insert_with(keep)
    }
}

const NOTHING_OPEN: &str = "no transaction is open; begin opens one";

/// A table and its types.
struct Known {
    door: Table<Encoded, Encoded>,
    key_type: String,
    value_type: String,
}

impl Known {
    fn key(&self, text: &str) -> Result<Encoded, String> {
        rows::key(&self.key_type, text).map(Encoded)
    }

    fn value(&self, text: &str) -> Result<Encoded, String> {
        rows::value(&self.value_type, text).map(Encoded)
    }

    fn show_key(&self, key: &Encoded) -> String {
        rows::show_key(&self.key_type, &key.0)
    }

    fn show_value(&self, value: &Encoded) -> String {
        rows::show_value(&self.value_type, &value.0)
    }
}

fn scan(
    tx: &mut Transaction,
    table: &Known,
    from: Option<&str>,
    to: Option<&str>,
    backward: bool,
) -> Result<Vec<String>, Failure> {
    use std::ops::Bound::{Included, Unbounded};
    let bound = |text: Option<&str>| -> Result<_, String> {
        text.map_or(Ok(Unbounded), |text| table.key(text).map(Included))
    };
    let range = tx.range(&table.door, (bound(from)?, bound(to)?));
    let rows = if backward { range.reversed() } else { range }.collect()?;
    let width = rows
        .iter()
        .map(|(key, _)| table.show_key(key).chars().count())
        .max();
    let mut lines: Vec<String> = rows
        .iter()
        .map(|(key, value)| {
            let key = table.show_key(key);
            format!(
                "{key:<width$}  {}",
                table.show_value(value),
                width = width.unwrap_or(0)
            )
        })
        .collect();
    lines.push(match rows.len() {
        1 => "(1 row)".to_owned(),
        count => format!("({count} rows)"),
    });
    Ok(lines)
}

/// A failed statement, and whether it ended the transaction.
struct Failure {
    words: String,
    ended: bool,
}

impl From<String> for Failure {
    fn from(words: String) -> Failure {
        Failure {
            words,
            ended: false,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let reason = match &error {
            Error::Conflict(conflict) => Some(conflict.reason()),
            _ => None,
        };
        let ended = matches!(
            reason,
            Some(ConflictReason::Deadlock | ConflictReason::Overwritten | ConflictReason::Ended)
        );
        Failure {
            words: words(error),
            ended,
        }
    }
}

fn words(error: Error) -> String {
    error.to_string()
}
