//! Running a case: sessions polled by hand, without threads of their own.
//!
//! Each step of a session is a future, polled here. A step that must wait keeps its session busy.
//! Steps that come due meanwhile are run after it. It is polled again only when it was woken. So a
//! lost wake-up, or a deadlock that is not found, is a run that does not end. Reads at handles of
//! snapshots wait for nothing, and are not polled.

use super::alone::{added, placed};
use super::outcome::{Answer, Outcome, Played, Rows};
use super::script::{Case, Step};
use foxton::device::MemoryDevice;
use foxton::error::{ConflictReason, Request};
use foxton::{
    AsyncRange, AsyncTransaction, Database, Durability, Error, Index, Isolation, Lock, LockWait,
    Options, Savepoint, Snapshot, Table, TableComponent,
};
use foxton_sync::shim::{Arc, AtomicBool, Ordering};
use std::cell::OnceCell;
use std::future::ready;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

const ROWS: Table<u64, i64> = Table::new("case");
const BY_VALUE: Index<i64, u64, i64> =
    Index::new("case_by_value", &ROWS, |_, value, keys| keys.add(value));
const BY_OWN_VALUE: Index<i64, u64, i64> =
    Index::unique("case_by_own_value", &ROWS, |_, value, keys| keys.add(value));

/// Longest time for which a session may wait for a page. A thread of the database wakes it, not
/// another session: the page may be just being written.
const PAGE_WAIT: Duration = Duration::from_secs(10);

/// A database on which a case is run repeatedly.
#[derive(Debug)]
pub struct Stage {
    pub(super) db: Database,
    level: Isolation,
    index: Index<i64, u64, i64>,
}

impl Stage {
    /// Opens a database for `case`, whose transactions are of this level.
    ///
    /// # Errors
    ///
    /// Any error of the database.
    pub fn new(case: &Case, mut options: Options, level: Isolation) -> foxton::Result<Stage> {
        options.durability = Durability::None;
        options.checkpoint_log_bytes = u64::MAX;
        options.lock_escalation = case.escalation.unwrap_or(options.lock_escalation);
        let index = match case.index {
            Some(true) => BY_OWN_VALUE,
            _ => BY_VALUE,
        };
        if case.index.is_some() {
            options.indexes.add(&index);
        }
        let db = Database::open_on(Arc::new(MemoryDevice::new()), options)?;
        if db.options().component == TableComponent::Paged {
            // So that no session waits for the first page of the table.
            db.run(|tx| tx.put(&ROWS, &0, &0))?;
            db.run(|tx| tx.delete(&ROWS, &0))?;
        }
        Ok(Stage { db, level, index })
    }

    /// Uses `db`, which has no index.
    #[cfg(feature = "hooks")]
    pub(super) fn on(db: Database, level: Isolation) -> Stage {
        let index = BY_VALUE;
        Stage { db, level, index }
    }

    /// Runs the steps of `case` in this order.
    ///
    /// # Errors
    ///
    /// An error of the database that is neither a conflict nor a key that exists; or that some
    /// transaction waits, and no other is left to wake it.
    pub fn play(&self, case: &Case, order: &[usize]) -> Result<Outcome, String> {
        self.play_as(case, order, false)
    }

    /// The same, but a waiting session sleeps until its next step is due, even if its lock was
    /// granted earlier. So other sessions take steps before it notices the grant.
    ///
    /// # Errors
    ///
    /// As for [`play`](Self::play).
    pub fn play_asleep(&self, case: &Case, order: &[usize]) -> Result<Outcome, String> {
        self.play_as(case, order, true)
    }

    fn play_as(&self, case: &Case, order: &[usize], asleep: bool) -> Result<Outcome, String> {
        let told = |error: Error| error.to_string();
        self.set(case).map_err(told)?;
        let handles: Vec<Rc<Handle>> = case.handles.iter().map(|_| Rc::default()).collect();
        let mut sessions: Vec<Session<'_>> = case
            .sessions
            .iter()
            .enumerate()
            .map(|(index, steps)| Session {
                level: case.level(index, self.level),
                handle: case.handle(index).map(|handle| handles[handle].clone()),
                ..Session::new(steps)
            })
            .collect();
        let mut time = 0;
        for &session in order {
            sessions[session].due += 1;
            match asleep {
                true => while sessions[session].go_on(self, &mut time).map_err(told)? {},
                // A session that continues may wake others.
                false => while self.go_on(&mut sessions, &mut time).map_err(told)? {},
            }
        }
        let begun = Instant::now();
        loop {
            let went_on = self.go_on(&mut sessions, &mut time).map_err(told)?;
            let is_waiting = sessions.iter().any(|session| session.running.is_some());
            if !went_on && (!is_waiting || begun.elapsed() > PAGE_WAIT) {
                break;
            }
            if !went_on {
                thread::sleep(Duration::from_millis(1));
            }
        }
        if let Some(stuck) = sessions
            .iter()
            .position(|session| session.running.is_some())
        {
            return Err(format!(
                "T{} waits and is never woken, in the order {order:?}",
                stuck + 1
            ));
        }
        let sessions = sessions.into_iter().map(|session| session.played).collect();
        let end = rows(&self.db).map_err(told)?;
        Ok(Outcome { sessions, end })
    }

    /// Sets the rows to those before `case`.
    pub(super) fn set(&self, case: &Case) -> foxton::Result<()> {
        self.db.run(|tx| {
            let mut old = Vec::new();
            tx.range(&ROWS, ..).for_each(|key, _| old.push(key))?;
            old.iter()
                .try_for_each(|key| tx.delete(&ROWS, key).map(drop))?;
            let mut rows = case.start.iter();
            rows.try_for_each(|(key, value)| tx.put(&ROWS, key, value))
        })
    }

    /// True if no lock is held any more.
    pub fn is_idle(&self) -> bool {
        self.db.locks().is_empty()
    }

    /// Lets each session do what it can. Returns `false` once none can do anything.
    fn go_on(&self, sessions: &mut [Session<'_>], time: &mut usize) -> foxton::Result<bool> {
        let mut went_on = false;
        for session in sessions {
            went_on |= session.go_on(self, time)?;
        }
        Ok(went_on)
    }
}

/// Returns the rows of the table.
pub(super) fn rows(db: &Database) -> foxton::Result<Rows> {
    let rows = db.run(|tx| tx.range(&ROWS, ..).collect())?;
    Ok(rows.into_iter().collect())
}

type Running =
    Pin<Box<dyn Future<Output = (Option<AsyncTransaction>, foxton::Result<Answer>)> + Send>>;

/// A handle of a snapshot, once one of its sessions has taken it, and when that was.
type Handle = OnceCell<(Snapshot, usize)>;

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        // Release: the next poll sees what was done before the wake-up.
        self.0.store(true, Ordering::Release);
    }
}

pub(super) struct Session<'c> {
    pub(super) steps: &'c [Step],
    level: Isolation,
    handle: Option<Rc<Handle>>,
    idle: Option<AsyncTransaction>,
    saved: Option<Savepoint>,
    running: Option<Running>,
    woken: Arc<Flag>,
    /// Steps that were due by now and have not begun.
    pub(super) due: usize,
    over: bool,
    pub(super) played: Played,
}

impl<'c> Session<'c> {
    pub(super) fn new(steps: &'c [Step]) -> Session<'c> {
        Session {
            steps,
            level: Isolation::Serializable,
            handle: None,
            idle: None,
            saved: None,
            running: None,
            woken: Arc::new(Flag(AtomicBool::new(false))),
            due: 0,
            over: false,
            played: Played {
                committed: false,
                answers: Vec::new(),
                begun: 0,
                ended: usize::MAX,
            },
        }
    }

    /// True if it waits, and the next due step is to end it.
    fn quits(&self) -> bool {
        let next = self.steps.get(self.played.answers.len() + 1);
        self.running.is_some() && self.due > 0 && next == Some(&Step::Quit)
    }

    /// True if its commit has begun and has not been answered.
    #[cfg(feature = "hooks")]
    pub(super) fn is_committing(&self) -> bool {
        let step = self.steps.get(self.played.answers.len());
        self.running.is_some() && step == Some(&Step::Commit)
    }

    pub(super) fn go_on(&mut self, stage: &Stage, time: &mut usize) -> foxton::Result<bool> {
        if self.quits() {
            // Dropped while it waits, it leaves the queue and rolls back.
            *time += 1;
            (self.running, self.over, self.played.ended) = (None, true, *time);
            return Ok(true);
        }
        if self.running.is_none() {
            if self.over || self.due == 0 {
                return Ok(false);
            }
            self.due -= 1;
            *time += 1;
            self.begin_step(stage, *time)?;
        }
        // Acquire: sees what was done before the wake-up.
        if !self.woken.0.swap(false, Ordering::Acquire) {
            return Ok(false);
        }
        let waker = Waker::from(self.woken.clone());
        let running = self
            .running
            .as_mut()
            .expect("it was begun above, or before");
        if let Poll::Ready((tx, answer)) = running.as_mut().poll(&mut Context::from_waker(&waker)) {
            *time += 1;
            self.end_step(tx, answer, *time)?;
        }
        Ok(true)
    }

    fn begin_step(&mut self, stage: &Stage, now: usize) -> foxton::Result<()> {
        let at = self.played.answers.len();
        if let Some(handle) = &self.handle {
            if handle.get().is_none() {
                let snapshot = stage.db.snapshot()?;
                handle.get_or_init(|| (snapshot, now));
            }
            let (snapshot, begun) = handle.get().expect("it was taken above, or before");
            self.played.begun = *begun;
            let answer = read_at(snapshot, &self.steps[at], &stage.index);
            self.running = Some(Box::pin(ready((None, answer))));
            self.woken.0.store(true, Ordering::Release);
            return Ok(());
        }
        if at == 0 {
            let mut tx = stage.db.begin_async()?;
            tx.set_isolation(self.level)?;
            self.idle = Some(tx);
            self.played.begun = now;
        }
        let mut tx = self
            .idle
            .take()
            .expect("nothing runs, and the session is not over");
        match (&self.steps[at], &self.saved) {
            (Step::Save, _) => self.saved = Some(tx.savepoint()?),
            (Step::Back, Some(savepoint)) => {
                let mut undone = pin!(tx.rollback_to(savepoint));
                // It yields, and waits for nothing.
                let mut context = Context::from_waker(Waker::noop());
                while undone.as_mut().poll(&mut context)?.is_pending() {}
            }
            _ => {}
        }
        let step = match self.steps[at] {
            Step::Add(key, more) => Step::Put(
                key,
                added(&self.steps[..at], &self.played.answers, key, more),
            ),
            Step::Place { base, by, value } => Step::Put(
                placed(&self.steps[..at], &self.played.answers, base, by),
                value,
            ),
            ref step => step.clone(),
        };
        self.running = Some(Box::pin(run(tx, step, stage.index)));
        self.woken.0.store(true, Ordering::Release);
        Ok(())
    }

    fn end_step(
        &mut self,
        tx: Option<AsyncTransaction>,
        answer: foxton::Result<Answer>,
        now: usize,
    ) -> foxton::Result<()> {
        self.running = None;
        let step = &self.steps[self.played.answers.len()];
        match answer {
            Ok(answer) => self.played.answers.push(answer),
            Err(Error::Request(Request::KeyExists)) => self.played.answers.push(Answer::Exists),
            Err(Error::Conflict(conflict))
                if matches!(
                    conflict.reason(),
                    ConflictReason::Deadlock | ConflictReason::Overwritten
                ) =>
            {
                self.over = true;
            }
            Err(error) if error.key_taken().is_some() => self.played.answers.push(Answer::Exists),
            Err(error) => return Err(error),
        }
        self.over |= matches!(step, Step::Commit | Step::Abort | Step::Quit);
        self.played.committed =
            *step == Step::Commit && self.played.answers.len() == self.steps.len();
        if self.over {
            self.played.ended = now;
        }
        // Dropped, it rolls back.
        self.idle = tx.filter(|_| !self.over);
        Ok(())
    }
}

/// Does one step at the handle of a snapshot.
fn read_at(
    snapshot: &Snapshot,
    step: &Step,
    index: &Index<i64, u64, i64>,
) -> foxton::Result<Answer> {
    Ok(match *step {
        Step::Get { key, .. } => Answer::Value(snapshot.get(&ROWS, &key)?),
        Step::Scan {
            from,
            to,
            reversed,
            limit,
            ..
        } => {
            let range = snapshot.range(&ROWS, from..=to)?.limit(limit);
            let range = if reversed { range.reversed() } else { range };
            Answer::Rows(range.collect()?)
        }
        Step::By {
            from,
            to,
            reversed,
            limit,
            ..
        } => {
            let range = snapshot.range_by(index, from..=to)?.limit(limit);
            let range = if reversed { range.reversed() } else { range };
            let rows = range.collect()?.into_iter();
            Answer::Rows(rows.map(|(_, key, value)| (key, value)).collect())
        }
        Step::Commit => Answer::Done,
        ref other => unreachable!("a handle of a snapshot only reads, and here is {other:?}"),
    })
}

/// Does one step.
async fn run(
    mut tx: AsyncTransaction,
    step: Step,
    index: Index<i64, u64, i64>,
) -> (Option<AsyncTransaction>, foxton::Result<Answer>) {
    match step {
        Step::Commit => (None, tx.commit().await.map(|()| Answer::Done)),
        Step::Abort | Step::Quit => {
            drop(tx);
            (None, Ok(Answer::Done))
        }
        // Done already; these do not wait.
        Step::Save | Step::Back | Step::Sync => (Some(tx), Ok(Answer::Done)),
        step => {
            let answer = attempt(&mut tx, step, &index).await;
            (Some(tx), answer)
        }
    }
}

async fn all(range: AsyncRange<'_, u64, i64>) -> foxton::Result<Vec<(u64, i64)>> {
    let mut rows = Vec::new();
    range.for_each(|key, value| rows.push((key, value))).await?;
    Ok(rows)
}

async fn attempt(
    tx: &mut AsyncTransaction,
    step: Step,
    index: &Index<i64, u64, i64>,
) -> foxton::Result<Answer> {
    let strength = |update| if update { Lock::Update } else { Lock::Shared };
    Ok(match step {
        Step::Get { key, update } => {
            Answer::Value(tx.get_locked(&ROWS, &key, strength(update)).await?)
        }
        Step::Scan {
            from,
            to,
            reversed,
            limit,
            update,
        } => {
            let range = tx
                .range(&ROWS, from..=to)
                .limit(limit)
                .locked(strength(update));
            let range = if reversed { range.reversed() } else { range };
            Answer::Rows(all(range).await?)
        }
        Step::By {
            from,
            to,
            reversed,
            limit,
            update,
        } => {
            let range = tx.range_by(index, from..=to).limit(limit);
            let range = range.locked(strength(update));
            let range = if reversed { range.reversed() } else { range };
            let rows = range.collect().await?.into_iter();
            Answer::Rows(rows.map(|(_, key, value)| (key, value)).collect())
        }
        Step::Fill(from, to, value) => {
            for key in from..=to {
                tx.put(&ROWS, &key, &value).await?;
            }
            Answer::Done
        }
        Step::Table(lock) => {
            tx.lock_table(&ROWS, lock, LockWait::Default).await?;
            Answer::Done
        }
        Step::Put(key, value) => {
            tx.put(&ROWS, &key, &value).await?;
            Answer::Done
        }
        Step::Insert(key, value) => {
            tx.insert(&ROWS, &key, &value).await?;
            Answer::Done
        }
        Step::Delete(key) => match tx.delete(&ROWS, &key).await? {
            true => Answer::Done,
            false => Answer::Value(None),
        },
        Step::Bump(from, to, more) => {
            let rows = all(tx.range(&ROWS, from..=to).locked(Lock::Update)).await?;
            for (key, value) in &rows {
                tx.put(&ROWS, key, &(value + more)).await?;
            }
            Answer::Rows(rows)
        }
        Step::Cut(from, to, value) => {
            let rows = all(tx.range(&ROWS, from..=to).locked(Lock::Update)).await?;
            for (key, _) in rows.iter().filter(|(_, old)| *old == value) {
                tx.delete(&ROWS, key).await?;
            }
            Answer::Rows(rows)
        }
        Step::Add(..) | Step::Place { .. } | Step::Save | Step::Back | Step::Sync => {
            unreachable!("done elsewhere")
        }
        Step::Commit | Step::Abort | Step::Quit => unreachable!("ends are handled elsewhere"),
    })
}
