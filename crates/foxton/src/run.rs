//! Transactions to their end: again after a conflict, with a pause that grows.

use std::future::poll_fn;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use crate::asynchronous::AsyncTransaction;
use crate::db::Database;
use crate::engine::{Count, Engine};
use crate::error::{Error, Result};
use crate::keeper::TICK;
use crate::transaction::Transaction;
use crate::txn::state::State;

/// The longest pause after the first conflict; doubled for each further one up to [`LONGEST`].
const FIRST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(20);

impl Database {
    /// Runs `body` in a transaction and commits it; again from the beginning after a conflict, with
    /// a random pause that grows, up to
    /// [`Options::run_attempts`](crate::Options::run_attempts) times.
    ///
    /// Who was the victim of a deadlock is chosen again less and less: see
    /// [`VictimPolicy`](crate::VictimPolicy).
    ///
    /// `body` may run several times, and only what it does through `tx` is undone in between.
    /// Any error it returns that is not a conflict, and any panic in it, rolls back and comes out;
    /// [`Error::other`](crate::Error::other) carries an error of your own.
    ///
    /// # Errors
    /// The last conflict, if there were too many; anything else that `body` or the commit returned.
    pub fn run<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        run(|| self.begin(), self.options().run_attempts, body)
    }

    /// The same with a transaction of the database's own.
    pub(crate) fn run_busy<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        run(|| self.begin_busy(), self.options().run_attempts, body)
    }

    /// As [`run`](Self::run), for tasks. `body` is given the transaction and commits it itself; it is
    /// called again, with another one, if what it returns is a conflict. A transaction that it does
    /// not commit is rolled back.
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
            engine.keeper.nap(Instant::now() + pause).await;
        }
    }
}

/// What became of the attempts so far.
#[derive(Debug, Default)]
struct Attempts {
    conflicts: u32,
    /// Those that a deadlock ended.
    defeats: u32,
}

impl Attempts {
    /// Begins another, and returns a random number.
    fn begin(&self, state: &mut State) -> u64 {
        state.owner.set_defeats(self.defeats);
        if self.conflicts > 0 {
            state.count(Count::Reruns);
        }
        state.worker.random()
    }

    /// Notes `error`, and says how long to pause before the next attempt; gives the error back if
    /// there is none.
    fn again_after(&mut self, error: Error, at_most: u32, random: u64) -> Result<Duration> {
        self.conflicts += 1;
        self.defeats += u32::from(error.is_defeat());
        if !error.is_retryable() || self.conflicts >= at_most {
            return Err(error);
        }
        Ok(pause(self.conflicts, random))
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

/// A random pause after so many conflicts.
fn pause(conflicts: u32, random: u64) -> Duration {
    let longest = FIRST.saturating_mul(1 << conflicts.min(16)).min(LONGEST);
    longest.mul_f64(random as f64 / u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anything up to a bound that doubles with each conflict and ends at 20 ms.
    #[test]
    fn pauses_are_drawn_from_ever_more_up_to_a_bound() {
        let mut bound = FIRST;
        for conflicts in 1..=40 {
            bound = (bound * 2).min(Duration::from_millis(20));
            assert_eq!(pause(conflicts, u64::MAX), bound, "{conflicts}");
            assert_eq!(pause(conflicts, 0), Duration::ZERO, "{conflicts}");
            let half = pause(conflicts, u64::MAX / 2);
            assert!(half.abs_diff(bound / 2) < Duration::from_micros(1));
        }
    }
}
