//! Attempts: operations that never block.
//!
//! Every operation of a transaction is an attempt: it goes as far as the locks allow, and returns
//! whether it is done. If it is not, a thread sleeps until the lock is granted, and a task yields.
//! The same holds for pages that are not in memory. The attempt is then made again from its
//! beginning, and locks that are held already are granted at once. A long attempt of a task also
//! stops when the [budget](super::work_budget) is spent. So each operation is written once for
//! threads and tasks. An attempt pins its epoch guard itself, so the guard is never held through a
//! wait.

/// Result of an attempt.
#[must_use]
pub(crate) enum AttemptResult<T> {
    /// It finished.
    Done(T),
    /// It needs a lock that is not free, and the request is in its queue. Or it needs pages, and
    /// the context has the [wait](super::page_wait) for them.
    Wait,
    /// It has spent the work budget of the task, and continues after the task has yielded.
    Pause,
}

/// Evaluates to the result of a finished attempt, or returns that it is not finished.
macro_rules! done {
    ($step:expr) => {
        match $step? {
            $crate::txn::attempt::AttemptResult::Done(content) => content,
            $crate::txn::attempt::AttemptResult::Wait => {
                return Ok($crate::txn::attempt::AttemptResult::Wait)
            }
            $crate::txn::attempt::AttemptResult::Pause => {
                return Ok($crate::txn::attempt::AttemptResult::Pause)
            }
        }
    };
}

pub(crate) use done;
