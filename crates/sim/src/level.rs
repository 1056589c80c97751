//! Isolation levels and the anomalies that each allows, by the names of the graph.
//!
//! [`Isolation`](foxton::Isolation) says it for people. A level keeps its promise if the
//! [graph](crate::graph) of a history finds no anomaly that it forbids. It is no stronger than
//! necessary if every anomaly that it allows is found at some time.

use crate::graph::{Class, Name};
use crate::history::Kept;
use foxton::{Isolation, Lock, LockOptions, LockWait};

/// Returns how long the result of a read with this `lock` must stay valid, at `level`.
pub fn kept(level: Isolation, lock: LockOptions) -> Kept {
    let is_plain = lock.lock == Lock::Shared && lock.wait != LockWait::Skip;
    match level {
        Isolation::Snapshot if lock.lock == Lock::Shared => Kept::Snapshot,
        // A read that skips rows says nothing about rows that it did not find.
        Isolation::Serializable if lock.wait != LockWait::Skip => Kept::Range,
        Isolation::ReadCommitted if is_plain => Kept::Briefly,
        Isolation::ReadUncommitted if is_plain => Kept::Dirty,
        _ => Kept::Rows,
    }
}

/// As [`kept`], of a range or a read by an index. At `Snapshot` it finds rows there, whatever it
/// locks.
pub fn kept_of_found(level: Isolation, lock: LockOptions) -> Kept {
    match level {
        Isolation::Snapshot => Kept::Snapshot,
        level => kept(level, lock),
    }
}

/// True if `name` may be found in a history whose transactions all ran at `level`. At `Snapshot`
/// that is write skew, on rows and on ranges, of transactions that lock no ranges.
pub fn admits(level: Isolation, name: Name) -> bool {
    if level == Isolation::Snapshot {
        return matches!(name.class, Class::G2Item | Class::G2);
    }
    // Reads of ranges only; reads whose locks were released; reads of uncommitted values.
    let weakest_that_forbids = match name.class {
        Class::Internal | Class::G0 | Class::GSia | Class::GSib => return false,
        Class::G1a | Class::G1b | Class::G1c | Class::Otv => 1,
        Class::P4 | Class::GSingle | Class::G2Item => 2,
        Class::Pmp | Class::G2 => 3,
    };
    strength(level) < weakest_that_forbids
}

/// Returns the anomalies that clients such as [ours](crate::clients) are sure to cause at `level`
/// before long.
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
