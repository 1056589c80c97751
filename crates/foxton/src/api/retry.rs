//! Retries: transactions that run again after a deadlock, with a pause that grows.

use std::thread;
use std::time::{Duration, Instant};

use crate::api::async_transaction::AsyncTransaction;
use crate::api::database::Database;
use crate::api::transaction::Transaction;
use crate::engine::background::TICK;
use crate::engine::{Counter, Engine};
use crate::error::{Error, Result};
use crate::txn::bound::BoundTxn;
use crate::txn::wait::yield_once;

/// Half of the longest pause after the first deadlock; doubles with each further one up to
/// [`LONGEST`].
const FIRST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(20);

impl Database {
    /// Runs `body` in a transaction and commits it. If a deadlock ends the transaction, runs `body`
    /// again from the beginning, after a random pause that grows; at most
    /// [`Options::run_attempts`](crate::Options::run_attempts) times in all.
    ///
    /// The more often a deadlock has ended `body`, the less often a further one does: see
    /// [`VictimPolicy`](crate::VictimPolicy).
    ///
    /// `body` may run several times, and only its changes through `tx` are undone in between. Any
    /// other error that it returns, and any panic in it, rolls back and comes out at once;
    /// [`Error::other`](crate::Error::other) carries an error of the caller's own.
    ///
    /// A lock that was refused comes out at once, too: one that was requested with
    /// [`nowait`](crate::Lock::nowait), was not granted in time, or exceeded the memory for locks.
    /// Such a refusal ends no transaction, and `body` may handle it. If `body` passes it on with
    /// `?`, the caller gets it, and [`Error::is_retryable`](crate::Error::is_retryable) says
    /// whether it makes sense to call again.
    ///
    /// ```
    /// use foxton::{Database, Lock, Options, Table};
    ///
    /// const JOBS: Table<u64, str> = Table::new("jobs");
    /// let db = Database::in_memory(Options::default())?;
    /// let mut other = db.begin()?;
    /// other.put(&JOBS, &1, "sweep the floor")?;
    ///
    /// let mut runs = 0;
    /// let refused = db.run(|tx| {
    ///     runs += 1;
    ///     tx.get_locked(&JOBS, &1, Lock::Update.nowait())
    /// });
    /// assert_eq!((refused.unwrap_err().code(), runs), ("lock_busy", 1));
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// The last deadlock, if there were too many; any other error of `body` or of the commit.
    pub fn run<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        run(|| self.begin(), self.options().run_attempts, body)
    }

    /// As [`run`](Self::run), with a transaction of the database's own.
    pub(crate) fn run_busy<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        run(|| self.begin_busy(), self.options().run_attempts, body)
    }

    /// As [`run`](Self::run), for tasks. `body` gets the transaction and commits it; if it does
    /// not, the transaction rolls back. If `body` returns a deadlock, it is called again, with
    /// another transaction.
    ///
    /// ```
    /// # use foxton::{Database, Options, Table};
    /// # const COUNTERS: Table<str, u64> = Table::new("counters");
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # let db = Database::in_memory(Options::default())?;
    /// # runtime.block_on(async {
    /// let count = db
    ///     .run_async(|mut tx| async move {
    ///         let count = tx.get_for_update(&COUNTERS, "visits").await?.unwrap_or(0) + 1;
    ///         tx.put(&COUNTERS, "visits", &count).await?;
    ///         tx.commit().await?;
    ///         Ok(count)
    ///     })
    ///     .await?;
    /// assert_eq!(count, 1);
    /// # Ok::<(), foxton::Error>(())
    /// # })?;
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub async fn run_async<T, F>(&self, body: impl FnMut(AsyncTransaction) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        run_async(|| self.begin_async(), self.engine(), body).await
    }
}

/// Runs `body` in transactions that `begin` makes, until one commits or its error is final.
pub(crate) fn run<T>(
    mut begin: impl FnMut() -> Result<Transaction>,
    at_most: u32,
    mut body: impl FnMut(&mut Transaction) -> Result<T>,
) -> Result<T> {
    let mut attempts = Attempts::default();
    loop {
        let mut tx = begin()?;
        let random = attempts.begin(&mut *tx.attach()?);
        let error = match body(&mut tx).and_then(|content| tx.commit().map(|()| content)) {
            Ok(content) => return Ok(content),
            Err(error) => error,
        };
        thread::sleep(attempts.again_after(error, at_most, random)?);
    }
}

/// As [`run`], for tasks; `body` commits.
pub(crate) async fn run_async<T, F>(
    mut begin: impl FnMut() -> Result<AsyncTransaction>,
    engine: &Engine,
    mut body: impl FnMut(AsyncTransaction) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut attempts = Attempts::default();
    loop {
        let mut tx = begin()?;
        let random = attempts.begin(&mut *tx.attach()?);
        let error = match body(tx).await {
            Ok(content) => return Ok(content),
            Err(error) => error,
        };
        let pause = attempts.again_after(error, engine.options.run_attempts, random)?;
        if pause < TICK {
            // Shorter than a tick of the background thread's timers: yields to other tasks once.
            yield_once().await;
        } else {
            engine.background.sleep_until(Instant::now() + pause).await;
        }
    }
}

/// Attempts so far.
#[derive(Debug, Default)]
struct Attempts {
    /// Number of attempts that a deadlock ended.
    defeats: u32,
}

impl Attempts {
    /// Begins another attempt, and returns a random number.
    fn begin(&self, bound: &mut BoundTxn) -> u64 {
        bound.ctx.owner.set_defeats(self.defeats);
        if self.defeats > 0 {
            bound.ctx.count(Counter::Reruns);
        }
        bound.ctx.worker.random()
    }

    /// Records `error`, and returns the pause before the next attempt, or the error if it is final.
    fn again_after(&mut self, error: Error, at_most: u32, random: u64) -> Result<Duration> {
        // Any other refusal is an answer, which the caller may want soon.
        if !error.is_defeat() {
            return Err(error);
        }
        self.defeats += 1;
        if self.defeats >= at_most {
            return Err(error);
        }
        Ok(pause(self.defeats, random))
    }
}

/// Returns a random pause after `defeats` deadlocks.
fn pause(defeats: u32, random: u64) -> Duration {
    let longest = FIRST.saturating_mul(1 << defeats.min(16)).min(LONGEST);
    longest.mul_f64(random as f64 / u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anything up to a bound that doubles with each defeat and ends at 20 ms.
    #[test]
    fn pauses_are_drawn_from_ever_more_up_to_a_bound() {
        let mut bound = FIRST;
        for defeats in 1..=40 {
            bound = (bound * 2).min(Duration::from_millis(20));
            assert_eq!(pause(defeats, u64::MAX), bound, "{defeats}");
            assert_eq!(pause(defeats, 0), Duration::ZERO, "{defeats}");
            let half = pause(defeats, u64::MAX / 2);
            assert!(half.abs_diff(bound / 2) < Duration::from_micros(1));
        }
    }
}
