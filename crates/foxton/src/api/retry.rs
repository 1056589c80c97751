//! Transactions to their end: again after a deadlock, with a pause that grows.

use std::future::poll_fn;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use crate::api::async_transaction::AsyncTransaction;
use crate::api::database::Database;
use crate::api::transaction::Transaction;
use crate::engine::background::TICK;
use crate::engine::{Counter, Engine};
use crate::error::{Error, Result};
use crate::txn::bound::BoundTxn;

/// Half of the longest pause after the first defeat; doubled for each further one up to [`LONGEST`].
const FIRST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(20);

impl Database {
    /// Runs `body` in a transaction and commits it; again from the beginning if a deadlock ended it, with
    /// a random pause that grows, up to
    /// [`Options::run_attempts`](crate::Options::run_attempts) times.
    ///
    /// Who was the victim of a deadlock is chosen again less and less: see
    /// [`VictimPolicy`](crate::VictimPolicy).
    ///
    /// `body` may run several times, and only what it does through `tx` is undone in between.
    /// Any other error it returns, and any panic in it, rolls back and comes out at once;
    /// [`Error::other`](crate::Error::other) carries an error of your own. So does a lock that was refused: one
    /// that was asked for with [`nowait`](crate::Lock::nowait), was not granted in its time, or found no room.
    /// Such a refusal ends no transaction, and `body` may answer it itself; what it passes on with `?` is the
    /// answer to the caller, who can tell by [`Error::is_retryable`](crate::Error::is_retryable) whether it makes
    /// sense to call again.
    ///
    /// ```
    /// use foxton::{Database, Lock, Options, Table};
    ///
    /// const JOBS: Table<u64, str> = Table::new("jobs");
    /// let db = Database::in_memory(Options::default())?;
    /// let mut somebody = db.begin()?;
    /// somebody.put(&JOBS, &1, "sweep the floor")?;
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
    /// The last deadlock, if there were too many; anything else that `body` or the commit returned.
    pub fn run<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        run(|| self.begin(), self.options().run_attempts, body)
    }

    /// The same with a transaction of the database's own.
    pub(crate) fn run_busy<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        run(|| self.begin_busy(), self.options().run_attempts, body)
    }

    /// As [`run`](Self::run), for tasks. `body` is given the transaction and commits it itself; it is
    /// called again, with another one, if what it returns says that a deadlock ended that one. A transaction
    /// that it does not commit is rolled back.
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

/// Runs `body` in transactions that `begin` makes, until one is committed or may not be tried again.
pub(crate) fn run<T>(
    mut begin: impl FnMut() -> Result<Transaction>,
    at_most: u32,
    mut body: impl FnMut(&mut Transaction) -> Result<T>,
) -> Result<T> {
    let mut attempts = Attempts::default();
    loop {
        let mut tx = begin()?;
        let random = attempts.begin(&mut *tx.up()?);
        let error = match body(&mut tx).and_then(|content| tx.commit().map(|()| content)) {
            Ok(content) => return Ok(content),
            Err(error) => error,
        };
        thread::sleep(attempts.again_after(error, at_most, random)?);
    }
}

/// The same for tasks; `body` commits.
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
        let random = attempts.begin(&mut *tx.up()?);
        let error = match body(tx).await {
            Ok(content) => return Ok(content),
            Err(error) => error,
        };
        let pause = attempts.again_after(error, engine.options.run_attempts, random)?;
        if pause < TICK {
            // Shorter than the keeper can time it: others go first, once.
            yield_once().await;
        } else {
            engine.background.sleep_until(Instant::now() + pause).await;
        }
    }
}

/// What became of the attempts so far: how many of them a deadlock ended.
#[derive(Debug, Default)]
struct Attempts {
    defeats: u32,
}

impl Attempts {
    /// Begins another, and returns a random number.
    fn begin(&self, bound: &mut BoundTxn) -> u64 {
        bound.ctx.owner.set_defeats(self.defeats);
        if self.defeats > 0 {
            bound.ctx.count(Counter::Reruns);
        }
        bound.ctx.worker.random()
    }

    /// Notes `error`, and says how long to pause before the next attempt; gives the error back if
    /// there is none.
    fn again_after(&mut self, error: Error, at_most: u32, random: u64) -> Result<Duration> {
        // Any other refusal is an answer, which the caller may want before long.
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

/// Lets every other task that is ready run once.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// A random pause after so many defeats.
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
