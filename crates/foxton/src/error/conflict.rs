//! That another transaction had to go first.

use std::fmt;

use foxton_lock::name::{Class, Name};
use foxton_lock::request::{Refusal, RefusalReason};

/// Another transaction had to go first; who, and why.
#[derive(Debug)]
pub struct Conflict {
    reason: ConflictReason,
    detail: Option<Box<Detail>>,
}

#[derive(Debug, Clone)]
struct Detail {
    refusal: Refusal,
    tables: TableNames,
}

/// What the tables are called that the names of a refusal or of a deadlock lie in, by number.
#[derive(Debug, Clone)]
pub(crate) struct TableNames(Vec<(u32, String)>);

impl TableNames {
    /// Asks `table` for each that `names` lie in.
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

    /// The name as a person would call it: `users/ann`.
    pub(crate) fn call(&self, name: Name) -> String {
        name.in_table(self.get(name))
    }
}

/// Why another transaction had to go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConflictReason {
    /// A lock was asked for without waiting, and somebody has it. The transaction goes on.
    Busy,
    /// A lock was not granted within the time given. The transaction goes on.
    TimedOut,
    /// This transaction was chosen to end so that a cycle of waiters could go on. It has been
    /// rolled back already.
    Deadlock,
    /// A [`CancelToken`](crate::Canceller) ended the transaction, which has been rolled back and takes no more work, or
    /// what a [`Session`](crate::Session) waited for, which holds what it held before.
    Cancelled,
    /// More locks are held at once than the lock manager has room for, or than
    /// [`Options::lock_bytes`](crate::Options::lock_bytes) allows. The transaction goes on, and can be run again
    /// when others have ended: who stood in the way are those who hold most.
    Full,
    /// The transaction was ended and rolled back by an earlier conflict, and takes no more work. The refusal is
    /// that one's.
    Ended,
    /// A [`Session`](crate::Session) that waited for one of its own locks was chosen to wait no longer, so
    /// that a cycle of waiters could go on. It holds what it held before.
    SessionDeadlock,
    /// The transaction did nothing for longer than [`Options::idle_timeout`](crate::Options::idle_timeout),
    /// and was rolled back, so that others could have what it had locked. It takes no more work.
    Idle,
}

impl Conflict {
    /// The refusal; `table` knows what tables are called.
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
            detail: Some(Box::new(Detail { refusal, tables })),
        }
    }

    /// What was locked and is passed over: nobody asks by whom.
    pub(crate) const PASSED_OVER: Conflict = Conflict {
        reason: ConflictReason::Busy,
        detail: None,
    };

    pub(crate) const IDLE: Conflict = Conflict {
        reason: ConflictReason::Idle,
        detail: None,
    };

    pub(crate) const CANCELLED: Conflict = Conflict {
        reason: ConflictReason::Cancelled,
        detail: None,
    };

    /// What a transaction answers that was ended, where nobody noted by what.
    pub(crate) const ENDED: Conflict = Conflict {
        reason: ConflictReason::Ended,
        detail: None,
    };

    /// What a transaction answers that this has ended: with the same refusal.
    pub(crate) fn ended(&self) -> Conflict {
        Conflict {
            reason: ConflictReason::Ended,
            detail: self.detail.clone(),
        }
    }

    /// It is of what a session asked for itself: no transaction was ended.
    pub(super) fn now_of_session(&mut self) {
        if self.reason == ConflictReason::Deadlock {
            self.reason = ConflictReason::SessionDeadlock;
        }
    }

    /// Why.
    pub fn reason(&self) -> ConflictReason {
        self.reason
    }

    /// The table in which the lock was refused; `None` if it is no table's.
    pub fn table(&self) -> Option<&str> {
        let detail = self.detail.as_ref()?;
        let name = detail.refusal.name;
        (name.class() != Class::Advisory).then(|| detail.tables.get(name))
    }

    /// What was refused, who stood in the way with which labels, and the cycle of a deadlock.
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
        self.detail.as_ref().map(|detail| &detail.refusal)
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
                "a cancel_token ended this: a transaction was rolled back, a session holds what it held before; \
                 what is to be done nevertheless needs another cancel_token, or none"
            }
            ConflictReason::Full => {
                "there is no room for another lock; run it again when others have ended, and let \
                 long transactions lock whole tables"
            }
            ConflictReason::Ended => {
                "an earlier conflict ended this transaction and rolled it back; drop it and run \
                 it again from the beginning"
            }
            ConflictReason::SessionDeadlock => {
                "a deadlock ended this wait of a session, which holds what it held before; let go of \
                 some of that, so that the others can go on, and ask again"
            }
            ConflictReason::Idle => {
                "the transaction did nothing for longer than idle_timeout and was rolled back, so that \
                 others could go on; begin another, and do what takes long before it or after it, or open \
                 the database with a longer idle_timeout"
            }
        })?;
        match self.detail.as_deref() {
            Some(Detail { refusal, tables }) => {
                write!(f, " ({})", refusal.with_names(&|name| tables.call(name)))
            }
            None => Ok(()),
        }
    }
}
