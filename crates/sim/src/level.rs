//! What each isolation level lets through, in the words of the graph.
//!
//! [`Isolation`](foxton::Isolation) says it for people. A level is as good as its word if the
//! [graph](crate::graph) of a history finds nothing that it forbids, and is no stronger than it need be if
//! all that it admits is found, given time.

use crate::graph::{Class, Name};
use crate::history::Kept;
use foxton::{Isolation, Lock, LockOptions, LockWait};

/// How long what a read with this `lock` finds is to stay so, at `level`.
pub fn kept(level: Isolation, lock: LockOptions) -> Kept {
    let is_plain = lock.lock == Lock::Shared && lock.wait != LockWait::Skip;
    match level {
        // What passes over something says nothing of what it did not find.
        Isolation::Serializable if lock.wait != LockWait::Skip => Kept::Range,
        Isolation::ReadCommitted if is_plain => Kept::Briefly,
        Isolation::ReadUncommitted if is_plain => Kept::Dirty,
        _ => Kept::Rows,
    }
}

/// Whether `name` may be found in a history whose transactions all ran at `level`.
pub fn admits(level: Isolation, name: Name) -> bool {
    // Reads of ranges alone; reads that were let go of; reads of what was not committed.
    let weakest_that_forbids = match name.class {
        Class::Internal | Class::G0 => return false,
        Class::G1a | Class::G1b | Class::G1c | Class::Otv => 1,
        Class::P4 | Class::GSingle | Class::G2Item => 2,
        Class::Pmp | Class::G2 => 3,
    };
    strength(level) < weakest_that_forbids
}

/// The anomalies that clients such as [ours](crate::clients) are sure to meet at `level` before long.
pub fn expected(level: Isolation) -> Vec<Class> {
    let all = [
        Class::Pmp,
        Class::G2,
        Class::P4,
        Class::GSingle,
        Class::G2Item,
        Class::G1a,
        Class::G1b,
        Class::G1c,
        Class::Otv,
    ];
    let admitted = |class: &Class| {
        let (class, realtime) = (*class, false);
        admits(level, Name { class, realtime })
    };
    all.into_iter().filter(admitted).collect()
}

fn strength(level: Isolation) -> u8 {
    match level {
        Isolation::ReadUncommitted => 0,
        Isolation::ReadCommitted => 1,
        Isolation::RepeatableRead => 2,
        _ => 3,
    }
}
