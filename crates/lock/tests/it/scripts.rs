//! Histories in text files, run on every manager. They show how a lock manager behaves.
//!
//! `tests/scripts/README.md` describes their form. Each command's outcome and each printed table is
//! in the file; a difference fails with the actual transcript. `FOXTON_REWRITE=1` writes the
//! reference manager's transcript into the files instead: then read what changed.

use foxton_lock::{
    any::{AnyManager, Inheritance, ManagerKind, Options},
    deadlock::VictimPolicy,
    manager::LockManager,
    mode::Mode,
    name::{KeyHasher, Name},
    owner::{LockSavepoint, Owner},
    request::{DeadlockMember, Outcome, Refusal, RefusalReason, Reply, WaitMode},
};
use foxton_sync::{
    latch,
    worker::{Worker, Workers},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    task::{Context, Poll, Waker},
};

/// Column of the arrow.
const ARROW_COLUMN: usize = 30;

struct Session {
    owner: Owner,
    savepoint: LockSavepoint,
    /// True if its waits are collected only by `poll`, as those of a task.
    lazy: bool,
}

struct Script {
    locks: Option<AnyManager>,
    options: Options,
    worker: Worker,
    hasher: KeyHasher,
    sessions: BTreeMap<String, Session>,
    tables: Vec<String>,
    names: BTreeMap<Name, String>,
}

/// Returns the text of a script with the outcomes of this manager.
fn transcript(text: &str, options: Options) -> Result<String, String> {
    let workers = Workers::with_seed(1);
    let mut script = Script {
        locks: None,
        options,
        worker: workers.worker(),
        hasher: KeyHasher::new(1),
        sessions: BTreeMap::new(),
        tables: Vec::new(),
        names: BTreeMap::new(),
    };
    let mut out = String::new();
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("  ") {
            continue; // Printed text, which its command prints again.
        }
        let command = line.split("->").next().expect("a first part").trim_end();
        out += command;
        if !command.is_empty() && !command.starts_with('#') {
            let words: Vec<&str> = command.split_whitespace().collect();
            let (events, printed) = script
                .run(&words)
                .map_err(|what| format!("line {}: {what}", number + 1))?;
            if !events.is_empty() {
                let gap = ARROW_COLUMN.saturating_sub(command.len()).max(1);
                out += &format!("{:gap$}-> {}", "", events.join("; "));
            }
            printed
                .iter()
                .for_each(|line| out += &format!("\n  {line}"));
        }
        out.push('\n');
    }
    script.end();
    Ok(out)
}

type Told = (Vec<String>, Vec<String>);

impl Script {
    fn run(&mut self, words: &[&str]) -> Result<Told, String> {
        let mut events = Vec::new();
        let mut printed = Vec::new();
        match *words {
            ["policy", policy] => self.options.victim = policy.parse().map_err(shown)?,
            ["lock", who, name, mode] => events.push(self.ask(who, name, mode, WaitMode::Wait)?),
            ["try", who, name, mode] => events.push(self.ask(who, name, mode, WaitMode::Refuse)?),
            ["poll", who] => events.extend(self.collect(who)),
            ["cancel", who] => self.with(who, |locks, worker, session| {
                locks.cancel(worker, &mut session.owner);
            }),
            ["timeout", who] => self.with(who, |locks, worker, session| {
                let ticket = session.owner.wait_ticket().expect("somebody who waits");
                locks.end_wait(worker, ticket, RefusalReason::TimedOut);
            }),
            ["kill", who] => self.with(who, |locks, worker, session| {
                let ticket = session.owner.wait_ticket().expect("somebody who waits");
                locks.end_wait(worker, ticket, RefusalReason::Cancelled);
            }),
            ["release", who] => self.with(who, |locks, worker, session| {
                locks.release_all(worker, &mut session.owner);
            }),
            ["release", who, name] => {
                let name = self.name(name);
                let mut held = false;
                self.with(who, |locks, worker, session| {
                    held = locks.release(worker, &mut session.owner, name);
                });
                if !held {
                    events.push("not held".to_owned());
                }
            }
            ["savepoint", who] => self.with(who, |_, _, session| {
                session.savepoint = session.owner.savepoint();
            }),
            ["rollback", who] => self.with(who, |locks, worker, session| {
                locks.release_since(worker, &mut session.owner, session.savepoint);
            }),
            ["task", who] => self.with(who, |_, _, session| session.lazy = true),
            ["label", who, label] => {
                let label = label.to_owned();
                self.with(who, |_, _, session| session.owner.set_label(label));
            }
            ["held", who] => {
                let mut held = Vec::new();
                self.with(who, |_, _, session| held = session.owner.held().collect());
                printed.extend(held.iter().map(|(name, mode)| self.on(*name, *mode)));
                if held.is_empty() {
                    printed.push("nothing".to_owned());
                }
            }
            ["print", name] => {
                let name = self.name(name);
                printed = self.print(name);
            }
            ["print"] => {
                let names: Vec<Name> = self.names.keys().copied().collect();
                for name in names {
                    printed.push(self.names[&name].clone());
                    printed.extend(self.print(name).iter().map(|line| format!("  {line}")));
                }
            }
            ["graph"] => printed = self.graph(),
            ["deadlocks"] => {
                for report in self.locks().deadlocks() {
                    printed.extend(report.cycle.iter().map(|member| self.member(member)));
                }
            }
            ["stats"] => {
                let stats = self.locks().stats(&self.worker);
                printed.push(format!(
                    "acquired {} re-asked {} waited {} busy {} timed out {} deadlocks {}",
                    stats.acquisitions,
                    stats.re_asks,
                    stats.waits,
                    stats.busy,
                    stats.timeouts,
                    stats.deadlocks
                ));
            }
            _ => return Err(format!("no such command: {}", words.join(" "))),
        }
        let eager: Vec<String> = self
            .sessions
            .iter()
            .filter(|s| !s.1.lazy)
            .map(|s| s.0.clone())
            .collect();
        events.extend(eager.iter().filter_map(|who| self.collect(who)));
        if self.locks.is_some() {
            self.locks().verify(&self.worker);
        }
        Ok((events, printed))
    }

    fn locks(&self) -> &AnyManager {
        self.locks.as_ref().expect("a session came first")
    }

    fn with(&mut self, who: &str, body: impl FnOnce(&AnyManager, &Worker, &mut Session)) {
        let locks = self
            .locks
            .get_or_insert_with(|| AnyManager::new(&self.options));
        let session = self.sessions.entry(who.to_owned()).or_insert_with(|| {
            let mut owner = locks.owner();
            owner.set_label(who.to_owned());
            Session {
                owner,
                savepoint: LockSavepoint::START,
                lazy: false,
            }
        });
        body(locks, &self.worker, session);
    }

    fn ask(
        &mut self,
        who: &str,
        name: &str,
        mode: &str,
        patience: WaitMode,
    ) -> Result<String, String> {
        let (name, mode) = (self.name(name), mode.parse().map_err(shown)?);
        let mut reply = None;
        self.with(who, |locks, worker, session| {
            reply = Some(locks.request(worker, &mut session.owner, name, mode, patience));
        });
        Ok(match reply.expect("a reply") {
            Reply::Granted => "granted".to_owned(),
            Reply::Held => "held".to_owned(),
            Reply::Waiting => "waits".to_owned(),
            Reply::Skipped => "is passed over".to_owned(),
            Reply::Refused(refusal) => self.refusal(&refusal),
        })
    }

    /// Returns the outcome of the wait of `who`, if it has ended.
    fn collect(&mut self, who: &str) -> Option<String> {
        let mut outcome = None;
        self.with(who, |locks, worker, session| {
            if session.owner.is_waiting() {
                let mut context = Context::from_waker(Waker::noop());
                let polled = locks.poll_wait(worker, &mut session.owner, &mut context);
                outcome = Some((polled, session.owner.held().last()));
            }
        });
        match outcome? {
            (Poll::Pending, _) if self.sessions[who].lazy => Some(format!("{who} still waits")),
            (Poll::Pending, _) => None,
            (Poll::Ready(Outcome::Refused(refusal)), _) => {
                Some(format!("{who} {}", self.refusal(&refusal)))
            }
            (Poll::Ready(_), _) => Some(format!("{who} granted")),
        }
    }

    fn refusal(&self, refusal: &Refusal) -> String {
        let mut blockers: Vec<String> = refusal
            .blockers
            .iter()
            .map(|b| {
                format!(
                    "{} {} {}",
                    b.label,
                    if b.waiting { "waits for" } else { "holds" },
                    b.mode
                )
            })
            .collect();
        blockers.sort();
        let blockers = blockers.join(", ");
        match refusal.cycle.iter().position(|member| member.victim) {
            Some(victim) => {
                let members = refusal
                    .cycle
                    .iter()
                    .cycle()
                    .skip(victim)
                    .take(refusal.cycle.len());
                let labels: Vec<&str> = members.map(|member| &*member.label).collect();
                format!(
                    "{} ({}): {blockers}",
                    refusal.reason,
                    labels.join(" behind ")
                )
            }
            None => format!("{}: {blockers}", refusal.reason),
        }
    }

    fn member(&self, member: &DeadlockMember) -> String {
        let (name, mode) = member.waits_for;
        let how = if member.blocked_by_holder {
            "held"
        } else {
            "awaited"
        };
        let victim = if member.victim { ", the victim" } else { "" };
        format!(
            "{} awaits {}, {how} {} by the next{victim}",
            member.label,
            self.on(name, mode),
            member.blocking_mode
        )
    }

    fn on(&self, name: Name, mode: Mode) -> String {
        format!("{mode} on {}", self.names[&name])
    }

    fn print(&mut self, name: Name) -> Vec<String> {
        let snapshot = self.locks().inspect(&self.worker);
        let Some(queue) = snapshot.queue(name) else {
            return vec!["nobody".to_owned()];
        };
        let entry =
            |entry: &foxton_lock::inspect::QueueRequest| format!("{} {}", entry.label, entry.mode);
        let mut holders: Vec<String> = queue.holders.iter().map(entry).collect();
        holders.sort();
        let mut lines = vec![format!("held:    {}", holders.join(", "))];
        if !queue.waiters.is_empty() {
            let line: Vec<String> = queue.waiters.iter().map(entry).collect();
            lines.push(format!("waiting: {}", line.join(", ")));
        }
        lines
    }

    fn graph(&self) -> Vec<String> {
        let labels: BTreeMap<_, _> = self
            .sessions
            .iter()
            .map(|(who, session)| (session.owner.id(), who))
            .collect();
        let edge = |edge: foxton_lock::inspect::WaitForEdge| {
            let how = if edge.holds {
                "who holds"
            } else {
                "who waits earlier for"
            };
            let (waiter, blocker) = (labels[&edge.waiter], labels[&edge.blocker]);
            format!(
                "{waiter} waits for {blocker}, {how} {}",
                self.names[&edge.name]
            )
        };
        let mut edges: Vec<String> = self
            .locks()
            .inspect(&self.worker)
            .edges()
            .map(edge)
            .collect();
        edges.sort();
        edges
    }

    /// Parses `accounts`, `accounts/7`, `accounts/end`, `#5`.
    fn name(&mut self, word: &str) -> Name {
        let table = word.split('/').next().expect("a first part");
        let name = match word.strip_prefix('#') {
            Some(number) => Name::advisory(number.parse().expect("a number after #")),
            None => {
                let space = self.tables.iter().position(|known| known == table);
                let space = space.unwrap_or_else(|| {
                    self.tables.push(table.to_owned());
                    self.tables.len() - 1
                }) as u32;
                match word.split_once('/') {
                    None => Name::table(space),
                    Some((_, "end")) => Name::end(space),
                    Some((_, key)) => Name::key(space, key.as_bytes(), &self.hasher),
                }
            }
        };
        self.names.insert(name, word.to_owned());
        name
    }

    /// Ends all owners; then nothing may be left (L7).
    fn end(mut self) {
        let who: Vec<String> = self.sessions.keys().cloned().collect();
        for who in who {
            self.with(&who, |locks, worker, session| {
                locks.cancel(worker, &mut session.owner);
                locks.release_all(worker, &mut session.owner);
                locks.verify(worker);
            });
        }
        if let Some(locks) = self.locks {
            assert!(locks.inspect(&self.worker).queues.is_empty(), "L7");
        }
    }
}

fn shown(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let entries = fs::read_dir(folder).expect("the folder of scripts");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    paths.sort();
    paths
}

fn options(kind: ManagerKind, latch: latch::Kind, bucket_count: usize) -> Options {
    let mut options = Options::tiny();
    (options.kind, options.latch, options.bucket_count) = (kind, latch, bucket_count);
    options.victim = VictimPolicy::default();
    options
}

#[test]
fn every_script_happens_as_written_on_every_manager() {
    let rewrite = std::env::var_os("FOXTON_REWRITE").is_some();
    let mut failures = Vec::new();
    for path in scripts() {
        let name = path
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        let mut text = fs::read_to_string(&path).expect("a readable script");
        if rewrite {
            let reference = options(ManagerKind::Reference, latch::Kind::Parking, 1);
            text = transcript(&text, reference).unwrap_or_else(|what| panic!("{name}: {what}"));
            fs::write(&path, &text).expect("a writable script");
        }
        let fenced = |kind| {
            crate::fenced::fences(kind)
                .iter()
                .map(move |&fences| (kind, fences))
        };
        for (kind, fences) in ManagerKind::ALL.into_iter().flat_map(fenced) {
            for latch in latch::Kind::ALL {
                for (buckets, inherit) in [
                    (1, Inheritance::Off),
                    (16, Inheritance::Off),
                    (16, Inheritance::Always),
                ] {
                    let mut options = options(kind, latch, buckets);
                    (options.inherit, options.fences) = (inherit, fences);
                    match transcript(&text, options) {
                        Ok(out) if out == text => {}
                        Ok(out) => failures.push(format!(
                            "{name} on {kind} over {latch}, inheritance {inherit}, fences {fences}:\n{out}"
                        )),
                        Err(what) => failures.push(format!("{name}: {what}")),
                    }
                }
            }
        }
    }
    failures.dedup();
    assert!(
        failures.is_empty(),
        "{} differ\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn every_script_says_what_it_shows() {
    let scripts = scripts();
    assert!(scripts.len() >= 42, "{} scripts", scripts.len());
    for path in scripts {
        let text = fs::read_to_string(&path).expect("a readable script");
        assert!(
            text.starts_with("# "),
            "{} begins with a comment",
            path.display()
        );
    }
}
