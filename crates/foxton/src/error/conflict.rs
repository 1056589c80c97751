//! Conflicts: requests that fail because of other transactions.

use std::fmt;

use foxton_lock::name::{Class, Name};
use foxton_lock::request::{Refusal, RefusalReason};

/// A conflict with other transactions: why, and with which.
#[derive(Debug)]
pub struct Conflict {
    reason: ConflictReason,
    detail: Option<Box<Detail>>,
}

#[derive(Debug, Clone)]
struct Detail {
    /// Name of what the conflict is about.
    name: Name,
    /// None if no lock was refused.
    refusal: Option<Refusal>,
    tables: TableNames,
}

/// Names of the tables that occur in a refusal or a deadlock, by table number.
#[derive(Debug, Clone)]
pub(crate) struct TableNames(Vec<(u32, String)>);

impl TableNames {
    /// Looks up the table of each of `names` with `table`.
    pub(crate) fn of(names: impl IntoIterator<Item = Name>, table: impl Fn(u32) -> String) -> Self {
        let mut tables: Vec<(u32, String)> = Vec::new();
        for name in names {
            if tables.iter().all(|(space, _)| *space != name.space()) {
                tables.push((name.space(), table(name.space())));
            }
        }
        TableNames(tables)
    }

    fn get(&self, name: Name) -> &str {
        let found = self.0.iter().find(|(space, _)| *space == name.space());
        found.map_or("", |(_, table)| table)
    }

    /// Returns the lock name in readable form: `users/ann`.
    pub(crate) fn call(&self, name: Name) -> String {
        name.in_table(self.get(name))
    }
}

/// Why a request conflicted with other transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConflictReason {
    /// The request was not to wait, and another owner holds the lock. The transaction stays open.
    Busy,
    /// The lock was not granted within the time limit. The transaction stays open.
    TimedOut,
    /// This transaction was the victim of a deadlock. It has been rolled back.
    Deadlock,
    /// A [`CancelToken`](crate::CancelToken) ended a transaction or a wait. A transaction has been
    /// rolled back and accepts no more work. A [`Session`](crate::Session) whose wait was ended
    /// still holds what it held before.
    Cancelled,
    /// The lock manager has no memory for another lock, or
    /// [`Options::lock_bytes`](crate::Options::lock_bytes) allows none. The transaction stays open,
    /// and can be rerun when others have ended. The refusal names the owners that hold the most
    /// locks.
    Full,
    /// An earlier conflict ended the transaction and rolled it back, and it accepts no more work.
    /// The refusal is the earlier one.
    Ended,
    /// A [`Session`](crate::Session) waited for one of its own locks, and this wait was chosen as
    /// the victim of a deadlock. The session still holds what it held before.
    SessionDeadlock,
    /// The program used the transaction for nothing for longer than
    /// [`Options::idle_timeout`](crate::Options::idle_timeout). It was rolled back, so that others
    /// could get its locks. It accepts no more work.
    Idle,
    /// A table was [dropped](crate::Database::drop_table) while the transaction was about to use
    /// it. It has been rolled back.
    TableDropped,
    /// At [`Isolation::Snapshot`](crate::Isolation::Snapshot) the transaction wrote, or read to
    /// write, a row that another has changed since its snapshot. It has been rolled back, and can
    /// be run again.
    Overwritten,
    /// The snapshot was ended, because of all snapshots it kept the most versions, and together
    /// they kept more than [`Options::version_bytes`](crate::Options::version_bytes). Run again at
    /// once, it would be ended again.
    SnapshotEnded,
}

impl Conflict {
    /// Creates the conflict for a refusal; `table` returns the names of tables.
    pub(crate) fn refused(refusal: Refusal, table: impl Fn(u32) -> String) -> Conflict {
        let reason = match refusal.reason {
            RefusalReason::Busy => ConflictReason::Busy,
            RefusalReason::TimedOut => ConflictReason::TimedOut,
            RefusalReason::Deadlock => ConflictReason::Deadlock,
            RefusalReason::Full => ConflictReason::Full,
            _ => ConflictReason::Cancelled,
        };
        let cycle = refusal.cycle.iter().map(|member| member.waits_for.0);
        let tables = TableNames::of(std::iter::once(refusal.name).chain(cycle), table);
        Conflict {
            reason,
            detail: Some(Box::new(Detail {
                name: refusal.name,
                refusal: Some(refusal),
                tables,
            })),
        }
    }

    /// Creates the conflict for a row, or an entry of an index, that another transaction has
    /// changed since the snapshot of this one.
    pub(crate) fn overwritten(name: Name, table: &str) -> Conflict {
        let tables = TableNames(vec![(name.space(), table.to_owned())]);
        Conflict {
            reason: ConflictReason::Overwritten,
            detail: Some(Box::new(Detail {
                name,
                refusal: None,
                tables,
            })),
        }
    }

    /// The conflict for a skipped row, without details, because the caller does not look at them.
    pub(crate) const PASSED_OVER: Conflict = Conflict {
        reason: ConflictReason::Busy,
        detail: None,
    };

    pub(crate) const IDLE: Conflict = Conflict {
        reason: ConflictReason::Idle,
        detail: None,
    };

    pub(crate) const TABLE_DROPPED: Conflict = Conflict {
        reason: ConflictReason::TableDropped,
        detail: None,
    };

    pub(crate) const SNAPSHOT_ENDED: Conflict = Conflict {
        reason: ConflictReason::SnapshotEnded,
        detail: None,
    };

    pub(crate) const CANCELLED: Conflict = Conflict {
        reason: ConflictReason::Cancelled,
        detail: None,
    };

    /// The conflict for a transaction that was ended, where the cause was not recorded.
    pub(crate) const ENDED: Conflict = Conflict {
        reason: ConflictReason::Ended,
        detail: None,
    };

    /// Returns the conflict that later operations of the transaction get, which this conflict has
    /// ended: the same refusal.
    pub(crate) fn ended(&self) -> Conflict {
        Conflict {
            reason: ConflictReason::Ended,
            detail: self.detail.clone(),
        }
    }

    /// Marks the conflict as one of a session's own request: no transaction was ended.
    pub(super) fn now_of_session(&mut self) {
        if self.reason == ConflictReason::Deadlock {
            self.reason = ConflictReason::SessionDeadlock;
        }
    }

    /// Returns the reason.
    pub fn reason(&self) -> ConflictReason {
        self.reason
    }

    /// Returns the table or the index in which the lock was refused or the row has changed; `None`
    /// if it is not in one.
    pub fn table(&self) -> Option<&str> {
        let detail = self.detail.as_ref()?;
        (detail.name.class() != Class::Advisory).then(|| detail.tables.get(detail.name))
    }

    /// Returns details: the refused request, the conflicting owners and their labels, and the cycle
    /// of a deadlock. `None` if no lock was refused.
    ///
    /// ```
    /// use foxton::error::{Error, Refusal};
    /// use foxton::inspect::Label;
    /// use foxton::{Database, Lock, Options, Table};
    /// const USERS: Table<str, u32> = Table::new("users");
    ///
    /// fn in_the_way(refusal: &Refusal) -> Vec<Label> {
    ///     refusal.blockers.iter().map(|blocker| blocker.label.clone()).collect()
    /// }
    ///
    /// let db = Database::in_memory(Options::default())?;
    /// let mut tx = db.begin()?;
    /// tx.set_label("import");
    /// tx.put(&USERS, "ada", &1815)?;
    /// let refused = db.begin()?.get_locked(&USERS, "ada", Lock::Shared.nowait());
    /// let Err(Error::Conflict(conflict)) = refused else { panic!("somebody holds it") };
    /// assert_eq!(in_the_way(conflict.refusal().expect("a lock was refused")), ["import"]);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    pub fn refusal(&self) -> Option<&Refusal> {
        self.detail.as_ref()?.refusal.as_ref()
    }

    pub(super) fn code(&self) -> &'static str {
        match self.reason {
            ConflictReason::Busy => "lock_busy",
            ConflictReason::TimedOut => "lock_timeout",
            ConflictReason::Deadlock => "deadlock",
            ConflictReason::Cancelled => "cancelled",
            ConflictReason::Full => "lock_room",
            ConflictReason::Ended => "ended_by_conflict",
            ConflictReason::SessionDeadlock => "session_deadlock",
            ConflictReason::Idle => "ended_idle",
            ConflictReason::TableDropped => "table_dropped",
            ConflictReason::Overwritten => "overwritten",
            ConflictReason::SnapshotEnded => "snapshot_ended",
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            ConflictReason::Busy => "the lock is held by another transaction; try again later",
            ConflictReason::TimedOut => "the lock was not granted in time; run it again",
            ConflictReason::Deadlock => {
                "a deadlock ended this transaction and rolled it back; run it again"
            }
            ConflictReason::Cancelled => {
                "a cancel token ended this: a transaction was rolled back, a session still holds its \
                 locks; to continue, use another cancel token or none"
            }
            ConflictReason::Full => {
                "there is no memory for another lock; run it again when others have ended, and let \
                 long transactions lock whole tables"
            }
            ConflictReason::Ended => {
                "an earlier conflict ended this transaction and rolled it back; drop it and run \
                 it again from the beginning"
            }
            ConflictReason::SessionDeadlock => {
                "a deadlock ended this wait of a session, which still holds its locks; release some of \
                 them, so that others can go on, and request again"
            }
            ConflictReason::Idle => {
                "the transaction did nothing for longer than idle_timeout and was rolled back, so that \
                 others could go on; begin another, and do slow \
                 work before it or after it, or open the database with a longer idle_timeout"
            }
            ConflictReason::TableDropped => {
                "a table was dropped while this transaction was about to use it, which rolled it \
                 back; run it again"
            }
            ConflictReason::Overwritten => {
                "another transaction has changed the row since the snapshot of this one, which was \
                 rolled back; run it again"
            }
            ConflictReason::SnapshotEnded => {
                "the snapshot was ended, because it kept the most of too many old versions; read in \
                 shorter pieces, or open the database with more version_bytes"
            }
        })?;
        let Some(Detail {
            name,
            refusal,
            tables,
        }) = self.detail.as_deref()
        else {
            return Ok(());
        };
        match refusal {
            Some(refusal) => write!(f, " ({})", refusal.with_names(&|name| tables.call(name))),
            None => write!(f, " ({})", tables.call(*name)),
        }
    }
}
