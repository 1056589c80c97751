//! Lock requests and the answers to them.
//!
//! A refused lock is an outcome, not an error: the caller decides whether to skip it, to wait
//! longer or to roll back. A [`Refusal`](crate::request::Refusal) says which lock was requested,
//! how long the request waited, and which transactions blocked it.

use crate::{mode::Mode, name::Name};
use std::{borrow::Cow, fmt, time::Duration};

/// Identifier of a transaction as the lock manager sees it, unique among all owners of a manager.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(u64);

/// Bits of an id that hold the owner's index. The other bits count the earlier owners with that
/// index.
const INDEX_BITS: u32 = 24;

impl OwnerId {
    pub(crate) const fn new(index: u32, generation: u64) -> Self {
        assert!(index < 1 << INDEX_BITS, "sixteen million owners at once");
        Self(generation << INDEX_BITS | index as u64)
    }

    pub(crate) const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Returns the owner's index in the table of owners.
    pub(crate) const fn index(self) -> u32 {
        (self.0 & ((1 << INDEX_BITS) - 1)) as u32
    }

    /// Returns the id of the next owner with the same index.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1 << INDEX_BITS))
    }

    /// Returns the id as a number, for logs.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for OwnerId {
    /// Writes index and generation: `12.7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index(), self.0 >> INDEX_BITS)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerId({self})")
    }
}

/// Name of a transaction for people: `"transfer"`. Empty if it has none.
pub type OwnerLabel = Cow<'static, str>;

/// Behaviour of a request that cannot be granted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMode {
    /// The request is refused, and leaves no trace.
    Refuse,
    /// The request is skipped ([`Reply::Skipped`]), and leaves no trace. The blockers are not
    /// reported. For scans that skip locked rows, many in a row, and would not read the report.
    Skip,
    /// The request waits in the queue.
    Wait,
}

/// Answer to a request, without blocking.
#[derive(Debug)]
#[must_use = "a request may have become a wait, which has to be waited for or cancelled"]
pub enum Reply {
    /// The owner now holds the name in the requested mode, or in a stronger one.
    Granted,
    /// The owner already held the name in a mode that covers the requested one.
    Held,
    /// The request is in the queue. The owner may request nothing else until the wait has ended:
    /// call `wait`, `poll_wait` or `cancel`.
    Waiting,
    /// Nothing has changed: the request was blocked, and was to be skipped then.
    Skipped,
    /// Nothing has changed.
    Refused(Box<Refusal>),
}

/// Outcome of a request.
#[derive(Debug)]
#[must_use = "a refused lock is not held"]
pub enum Outcome {
    /// The owner now holds the name in the requested mode, or in a stronger one.
    Granted,
    /// The owner already held the name in a mode that covers the requested one.
    Held,
    /// Nothing has changed.
    Refused(Box<Refusal>),
}

// Every hot function returns an outcome, so the details are behind a pointer.
const _: () = assert!(size_of::<Reply>() <= 16 && size_of::<Outcome>() <= 16);

impl Outcome {
    /// True if the lock is held now.
    pub fn is_held(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }

    /// Returns the refusal, if there is one.
    pub fn refusal(self) -> Option<Box<Refusal>> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Granted | Self::Held => None,
        }
    }
}

/// Reason why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The request could not be granted at once and was not to wait.
    Busy,
    /// The deadline passed.
    TimedOut,
    /// The wait was part of a cycle, and its owner was chosen as the victim.
    Deadlock,
    /// Another thread ended the wait.
    Cancelled,
    /// The manager has no space for another request, or its options allow no more. It can be
    /// requested again when other transactions have ended. The reported blockers are the owners
    /// with the most locks.
    Full,
}

impl RefusalReason {
    /// Number of reasons.
    pub(crate) const COUNT: usize = Self::Full as usize + 1;
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Busy => "busy",
            Self::TimedOut => "timed out",
            Self::Deadlock => "deadlock",
            Self::Cancelled => "cancelled",
            Self::Full => "no room",
        })
    }
}

/// Maximum number of blockers that a refusal lists, and of members of a cycle in its text.
pub const MAX_BLOCKERS: usize = 16;

/// Transactions that blocked a request: up to [`MAX_BLOCKERS`], and the number of all others.
#[derive(Debug, Default)]
pub(crate) struct Blockers {
    pub(crate) listed: Vec<Blocker>,
    pub(crate) more: usize,
}

impl From<Vec<Blocker>> for Blockers {
    fn from(listed: Vec<Blocker>) -> Self {
        Self { listed, more: 0 }
    }
}

/// Request that was not granted, and the transactions that blocked it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refusal {
    /// Reason of the refusal.
    pub reason: RefusalReason,
    /// The requested name.
    pub name: Name,
    /// Mode in which the owner would have held it: for a conversion, the supremum.
    pub mode: Mode,
    /// Time that the request had waited.
    pub waited: Duration,
    /// Blocking requests at that moment: holders in an incompatible mode, then earlier waiters. The
    /// first [`MAX_BLOCKERS`] of them.
    pub blockers: Vec<Blocker>,
    /// Number of further blocking requests. After a wait in a long queue it is an upper bound.
    pub more_blockers: usize,
    /// The cycle, if this was a deadlock: each member waits for the next, the last for the first.
    pub cycle: Vec<DeadlockMember>,
}

impl Refusal {
    pub(crate) fn new(reason: RefusalReason, name: Name, mode: Mode) -> Self {
        let waited = Duration::ZERO;
        Self {
            reason,
            name,
            mode,
            waited,
            blockers: Vec::new(),
            more_blockers: 0,
            cycle: Vec::new(),
        }
    }

    /// Returns the refusal with these blockers.
    pub(crate) fn blocked_by(self, blockers: Blockers) -> Self {
        Self {
            blockers: blockers.listed,
            more_blockers: blockers.more,
            ..self
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &|name| name.to_string())
    }
}

impl Refusal {
    /// Returns the displayed text, with each name as `call` writes it, because a lock manager knows
    /// tables only by number.
    pub fn with_names(&self, call: &dyn Fn(Name) -> String) -> String {
        let mut text = String::new();
        self.write(&mut text, call)
            .expect("a string takes everything");
        text
    }

    fn write(&self, f: &mut dyn fmt::Write, call: &dyn Fn(Name) -> String) -> fmt::Result {
        let (reason, mode, name) = (self.reason, self.mode, call(self.name));
        write!(f, "{reason}: {mode} on {name} was not granted")?;
        if !self.waited.is_zero() {
            write!(f, " in {:.1?}", self.waited)?;
        }
        for (at, blocker) in self.blockers.iter().enumerate() {
            write!(
                f,
                "{}{blocker}",
                if at == 0 { "; in the way: " } else { ", " }
            )?;
        }
        if self.more_blockers > 0 {
            write!(f, " and {} more", self.more_blockers)?;
        }
        for (at, member) in self.cycle.iter().take(MAX_BLOCKERS).enumerate() {
            f.write_str(if at == 0 { "; the cycle: " } else { ", " })?;
            member.write(f, call)?;
        }
        match self.cycle.len().saturating_sub(MAX_BLOCKERS) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Transaction that blocked a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocker {
    /// Id of the blocking owner.
    pub owner: OwnerId,
    /// Label of its transaction.
    pub label: OwnerLabel,
    /// Mode that it holds, or waits for.
    pub mode: Mode,
    /// Time since its transaction began, to within a clock tick.
    pub age: Duration,
    /// True if it waits itself, earlier in the same queue; false if it holds the name.
    pub waiting: bool,
    /// Number of locks that it holds, about, if it blocks because it holds many
    /// ([`RefusalReason::Full`]); otherwise 0.
    pub locks: usize,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.waiting { "waits for" } else { "holds" };
        write!(f, "{} {verb} ", OwnerDisplay(self.owner, &self.label))?;
        match self.locks {
            0 => write!(f, "{}", self.mode)?,
            locks => write!(f, "{locks} locks")?,
        }
        write!(f, " ({:.1?} old)", self.age)
    }
}

/// One transaction of a cycle of waits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlockMember {
    /// Id of the owner.
    pub owner: OwnerId,
    /// Label of its transaction.
    pub label: OwnerLabel,
    /// Time since its transaction began, to within a clock tick.
    pub age: Duration,
    /// Number of locks that it held.
    pub lock_count: usize,
    /// Name and mode that it waits for.
    pub waits_for: (Name, Mode),
    /// Mode in which the next member of the cycle blocks it: held, or requested earlier.
    pub blocking_mode: Mode,
    /// True if the next member holds the name; false if it only waits for it earlier.
    pub blocked_by_holder: bool,
    /// True if it was chosen as the victim.
    pub victim: bool,
}

impl fmt::Display for DeadlockMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &|name| name.to_string())
    }
}

impl DeadlockMember {
    /// Returns the displayed text, with each name as `call` writes it.
    pub fn with_names(&self, call: &dyn Fn(Name) -> String) -> String {
        let mut text = String::new();
        self.write(&mut text, call)
            .expect("a string takes everything");
        text
    }

    fn write(&self, f: &mut dyn fmt::Write, call: &dyn Fn(Name) -> String) -> fmt::Result {
        let (name, mode) = (call(self.waits_for.0), self.waits_for.1);
        let how = if self.blocked_by_holder {
            "held in"
        } else {
            "awaited earlier in"
        };
        let victim = if self.victim { ", and gave way" } else { "" };
        write!(
            f,
            "{} awaits {mode} on {name}",
            OwnerDisplay(self.owner, &self.label)
        )?;
        write!(f, ", {how} {} by the next{victim}", self.blocking_mode)
    }
}

/// Displays an owner with its label, if it has one.
struct OwnerDisplay<'a>(OwnerId, &'a str);

impl fmt::Display for OwnerDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            "" => write!(f, "owner {}", self.0),
            label => write!(f, "{label} (owner {})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_keeps_its_place_from_one_transaction_to_the_next() {
        let id = OwnerId::new(12, 7);
        assert_eq!(id.to_string(), "12.7");
        assert_eq!(id.next().to_string(), "12.8");
        assert_eq!(id.next().index(), 12);
    }

    #[test]
    fn a_refusal_says_who_stood_in_the_way() {
        let mut refusal = Refusal::new(RefusalReason::Busy, Name::table(3), Mode::X);
        refusal.blockers.push(Blocker {
            owner: OwnerId::new(1, 0),
            label: "report".into(),
            mode: Mode::IS,
            age: Duration::from_millis(5),
            waiting: false,
            locks: 0,
        });
        assert_eq!(
            refusal.to_string(),
            "busy: X on 3 was not granted; in the way: report (owner 1.0) holds IS (5.0ms old)"
        );
    }
}
