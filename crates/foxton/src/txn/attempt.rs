//! Attempts that never block.
//!
//! Every operation of a transaction is an attempt: it goes as far as the locks allow and says
//! whether it is done. A thread then sleeps until the lock it came to is granted, a task yields,
//! and the attempt is made again from its beginning: what is held already is granted at once. So
//! each operation is written once for threads and tasks, and the epoch guard, which an attempt
//! pins, is never held through a wait.

/// How far an attempt came.
#[must_use]
pub(crate) enum AttemptResult<T> {
    /// To its end.
    Done(T),
    /// To a lock that is not free. The request is in its queue.
    Wait,
}

/// The content of a finished step, or returns `AttemptResult::Wait`.
macro_rules! done {
    ($step:expr) => {
        match $step? {
            $crate::txn::attempt::AttemptResult::Done(content) => content,
            $crate::txn::attempt::AttemptResult::Wait => {
                return Ok($crate::txn::attempt::AttemptResult::Wait)
            }
        }
    };
}

pub(crate) use done;
