//! Work budget of a task: how much it does before other tasks get a turn.
//!
//! The futures of a transaction could be ready at every poll, and would then hold their executor
//! for as long as the transaction lasts. So the work that a worker context does for tasks is
//! counted, in units. An operation that finds the budget spent wakes its own task and returns
//! `Pending` once, and the budget is full again. A unit takes a few microseconds at most, so a task
//! holds its executor for well under a millisecond.
//!
//! Work is counted and no clock is read, so the same operations yield at the same places. The
//! budget outlasts its transaction: a task that runs one short transaction after the other yields,
//! too. Work for threads is not counted.

/// Units of a full budget.
pub(crate) const UNITS: usize = 512;

/// Number of bytes of a key, a value or a log record that are a unit of work.
pub(crate) const BYTES_PER_UNIT: usize = 4096;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct WorkBudget {
    left: usize,
    /// True while the transaction is a task's.
    is_of_task: bool,
}

impl Default for WorkBudget {
    fn default() -> WorkBudget {
        WorkBudget {
            left: UNITS,
            is_of_task: false,
        }
    }
}

impl WorkBudget {
    /// Begins or ends to count work.
    #[inline]
    pub(crate) fn set_of_task(&mut self, is_of_task: bool) {
        self.is_of_task = is_of_task;
    }

    /// True if the transaction is a task's.
    pub(crate) fn is_of_task(&self) -> bool {
        self.is_of_task
    }

    /// Counts work: keys visited, changes made or undone, operations.
    #[inline]
    pub(crate) fn charge(&mut self, units: usize) {
        self.left = self.left.saturating_sub(units);
    }

    /// Counts bytes that were copied or decoded.
    #[cold]
    #[inline(never)]
    pub(crate) fn charge_bytes(&mut self, bytes: usize) {
        self.charge(bytes / BYTES_PER_UNIT);
    }

    /// True if a task should yield before it does more.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.is_empty() && self.is_of_task
    }

    /// As [`is_spent`](Self::is_spent), outside a transaction.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Fills the budget, because the task yields.
    pub(crate) fn refill(&mut self) {
        self.left = UNITS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tasks_spend_it() {
        let mut budget = WorkBudget::default();
        for (is_of_task, is_spent) in [(false, false), (true, true)] {
            budget.refill();
            budget.set_of_task(is_of_task);
            budget.charge(UNITS - 1);
            assert!(!budget.is_spent());
            budget.charge_bytes(BYTES_PER_UNIT);
            assert_eq!(budget.is_spent(), is_spent);
            budget.charge(usize::MAX);
            assert_eq!(budget.is_spent(), is_spent);
        }
    }
}
