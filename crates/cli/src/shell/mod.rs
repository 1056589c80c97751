//! `foxton shell`: a database by hand, line by line.
//!
//! There can be several sessions. A line goes to one of them, and the shell waits until it is
//! answered or until the session waits for a lock. Then it continues with the next line, and shows
//! the answer when it comes. The output does not depend on speed, only on which sessions wait for a
//! lock.

/// Parsing a line.
mod statement;

/// Keys and values as a person types and reads them.
mod rows;

/// Input of the shell.
mod input;

/// A thread with at most one open transaction.
mod session;

use std::{collections::BTreeMap, fmt::Display, path::Path, process::ExitCode, time::Duration};

use crate::{
    inspect,
    output::{say, show},
    row_count::Precision,
    tables,
};
use foxton::{Database, Observe, Options, inspect::WaitingLock};
use foxton_lab::report::table::Table;
use input::Input;
use session::{Answer, Session};
use statement::{About, FORMS, Line, Statement, Work, parse};

/// Time between two checks of a session that has not answered.
const LOOK: Duration = Duration::from_millis(5);
const FIRST_SESSION: &str = "a";

/// Opens the database and executes standard input.
pub(crate) fn run(directory: &Path, wait_seconds: f64, observe: bool) -> Result<ExitCode, String> {
    let mut options = Options::default();
    options.lock_wait = Duration::from_secs_f64(wait_seconds);
    if observe {
        options.observe = Observe::InDirectory;
    }
    let db = crate::opening::open(directory, options)?;
    let mut input = Input::here()?;
    let mut shell = Shell {
        sessions: BTreeMap::new(),
        current: FIRST_SESSION.to_owned(),
        failed: false,
        db,
    };
    shell.enter(FIRST_SESSION);
    if input.is_editor() {
        say!(
            "{} is open. `help` lists the commands.",
            directory.display()
        );
    }
    loop {
        shell.settle();
        match input.line(&format!("{}> ", shell.prompt()))? {
            Some(line) if shell.line(&line) => {}
            _ => break,
        }
    }
    let failed = shell.leave();
    // A person has seen the failure; a script needs an exit code.
    Ok(if failed && !input.is_editor() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

struct Shell {
    sessions: BTreeMap<String, Session>,
    current: String,
    failed: bool,
    db: Database,
}

impl Shell {
    fn enter(&mut self, name: &str) -> &mut Session {
        let db = &self.db;
        self.sessions
            .entry(name.to_owned())
            .or_insert_with(|| Session::begin(db.clone(), name))
    }

    fn prompt(&self) -> String {
        let open = self
            .sessions
            .get(&self.current)
            .is_some_and(Session::is_open);
        format!("{}{}", self.current, if open { "*" } else { "" })
    }

    /// Executes a line; false if it ends the shell.
    fn line(&mut self, text: &str) -> bool {
        match parse(text) {
            Ok(None) => {}
            Ok(Some(Line {
                statement: Statement::About(About::Quit),
                ..
            })) => return false,
            Ok(Some(Line {
                statement: Statement::About(what),
                ..
            })) => self.about(what),
            Ok(Some(Line {
                session,
                statement: Statement::Work(work),
            })) => {
                let name = session.unwrap_or_else(|| self.current.clone());
                self.work(&name, work);
            }
            Err(what) => self.fail(&what.to_string()),
        }
        true
    }

    fn work(&mut self, name: &str, work: Work) {
        let session = self.enter(name);
        if session.is_busy() {
            let what = "still waits for a lock and takes no statement until it is granted";
            return self.fail(&format!("{name} {what}"));
        }
        session.send(work);
        match self.answer_or_wait(name) {
            Some(answer) => self.show(name, answer),
            None => say!("{}", self.waiting(name).unwrap_or_default()),
        }
        // The statement may have released locks of other sessions' waits.
        self.settle();
    }

    /// Returns the session's answer, or `None` once it waits for a lock.
    fn answer_or_wait(&mut self, name: &str) -> Option<Answer> {
        loop {
            if let Some(answer) = self.sessions.get_mut(name)?.answer(LOOK) {
                return Some(answer);
            }
            if self.waiting(name).is_some() {
                return None;
            }
        }
    }

    /// Shows the answers of all sessions that no longer wait for a lock.
    fn settle(&mut self) {
        let busy = self.sessions.values().filter(|session| session.is_busy());
        let busy: Vec<String> = busy.map(|session| session.name().to_owned()).collect();
        for name in busy {
            if let Some(answer) = self.answer_or_wait(&name) {
                self.show(&name, answer);
            }
        }
    }

    fn show(&mut self, name: &str, answer: Answer) {
        let other = name != self.current;
        for line in answer.lines {
            let line = if answer.ok {
                line
            } else {
                format!("error: {line}")
            };
            match other {
                true => say!("{name}: {line}"),
                false => say!("{line}"),
            }
        }
        self.failed |= !answer.ok;
    }

    fn fail(&mut self, what: &str) {
        self.failed = true;
        say!("error: {what}");
    }

    /// The lock that the session waits for, if any.
    fn waiting(&self, name: &str) -> Option<String> {
        let waits = self.db.waits();
        let wait = waits.iter().find(|wait| wait.lock.label == name)?;
        let (mode, what) = (wait.lock.mode, wait.lock.place());
        Some(format!(
            "{name} waits for {mode} on {what}, held by {}",
            blockers(wait)
        ))
    }

    fn about(&mut self, what: About) {
        match what {
            About::Tables(precision) => self.tables(precision),
            About::Locks => self.locks(),
            About::Waits => self.waits(),
            About::Deadlocks => list(self.db.deadlocks(), "there was no deadlock"),
            About::Stats => self.stats(),
            About::Sessions => self.list_sessions(),
            About::Use(name) => {
                self.enter(&name);
                self.current = name;
            }
            About::Help => help(),
            About::Quit => {}
        }
    }

    fn tables(&mut self, precision: Precision) {
        match inspect::tables_of(&self.db, precision) {
            Ok(tables) => print_table(&tables, "there are no tables; put creates one"),
            Err(what) => self.fail(&what),
        }
    }

    fn locks(&self) {
        let status = self.db.status();
        if !status.waiters().is_empty() {
            show(&tables::waits(&status).render());
            say!("");
        }
        print_table(
            &tables::holders(&status, usize::MAX),
            "no session holds a lock",
        );
    }

    fn waits(&self) {
        print_table(
            &tables::waits(&self.db.status()),
            "no session waits for a lock",
        );
    }

    fn stats(&self) {
        let stats = self.db.stats();
        let locks = &stats.locks;
        let quantile = |share| locks.wait_quantile(share).as_micros() as u64;
        for (what, count) in [
            ("commits with changes", stats.commits),
            ("commits without changes", stats.read_only_commits),
            ("rollbacks", stats.rollbacks),
            ("deadlocks", stats.deadlocks),
            ("locks acquired", locks.acquisitions),
            ("escalations from keys to a table", locks.escalations),
            ("failed escalations", locks.escalations_refused),
            ("key locks replaced by table locks", locks.traded),
            ("waits for a lock", locks.waits),
            ("waits that timed out", locks.timeouts),
            ("microseconds waited", locks.wait_micros),
            ("microseconds at most: half of the waits", quantile(0.5)),
            ("microseconds at most: 99 of 100 waits", quantile(0.99)),
        ] {
            say!("{count:>12}  {what}");
        }
    }

    fn list_sessions(&self) {
        for (name, session) in &self.sessions {
            let at = match (session.is_busy(), session.is_open()) {
                (true, _) => "waits for a lock",
                (false, true) => "has an open transaction",
                (false, false) => "idle",
            };
            say!(
                "{name}{}  {at}",
                if *name == self.current {
                    " (current)"
                } else {
                    ""
                }
            );
        }
    }

    /// Rolls back open transactions and returns whether anything failed. Sessions that wait come
    /// last, after the transactions they wait for.
    fn leave(mut self) -> bool {
        while !self.sessions.is_empty() {
            let idle = self.sessions.values().find(|session| !session.is_busy());
            // If all are busy, every wait still ends by its timeout.
            let next = idle.or_else(|| self.sessions.values().next());
            let name = next
                .map(|session| session.name().to_owned())
                .unwrap_or_default();
            let Some(session) = self.sessions.remove(&name) else {
                break;
            };
            // A thread that panicked has printed its message.
            let _ = session.end().join();
            self.settle();
        }
        self.failed
    }
}

fn blockers(wait: &WaitingLock) -> String {
    let labels: Vec<&str> = wait.blockers.iter().map(|(_, label)| &**label).collect();
    match wait.more_blockers {
        0 => labels.join(" and "),
        more => format!("{} and {more} more", labels.join(", ")),
    }
}

fn print_table(table: &Table, nothing: &str) {
    match table.is_empty() {
        true => say!("{nothing}"),
        false => show(&table.render()),
    }
}

fn list<T: Display>(all: Vec<T>, nothing: &str) {
    if all.is_empty() {
        say!("{nothing}");
    }
    all.iter()
        .for_each(|one| say!("{}", one.to_string().trim_end()));
}

fn help() {
    let width = FORMS
        .iter()
        .map(|(_, form, _)| form.chars().count())
        .max()
        .unwrap_or(0);
    for (_, form, what) in FORMS {
        say!("  {form:<width$}  {what}");
    }
    say!("\nTry a conflict:  begin / put fruit apple red / @b get fruit apple / commit");
}
