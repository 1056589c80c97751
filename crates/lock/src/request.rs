//! Asking for a lock, and the answers.
//!
//! A refused lock is an outcome, not an error: the caller decides whether to skip, to wait longer
//! or to roll back. A [`Refusal`](crate::request::Refusal) says everything a person would ask next: what was wanted, for
//! how long, and who stood in the way.

use crate::{mode::Mode, name::Name};
use std::{borrow::Cow, fmt, time::Duration};

/// A transaction as the lock manager sees it: unique among all owners of a manager.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(u64);

/// Bits of an id that number the owner's place; the rest counts who had that place before.
const INDEX_BITS: u32 = 24;

impl OwnerId {
    pub(crate) const fn new(index: u32, generation: u64) -> Self {
        assert!(index < 1 << INDEX_BITS, "sixteen million owners at once");
        Self(generation << INDEX_BITS | index as u64)
    }

    pub(crate) const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The place whose owner this is.
    pub(crate) const fn index(self) -> u32 {
        (self.0 & ((1 << INDEX_BITS) - 1)) as u32
    }

    /// The owner that has the same place next.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1 << INDEX_BITS))
    }

    /// The id as a number, for logs.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for OwnerId {
    /// Place and generation: `12.7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index(), self.0 >> INDEX_BITS)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerId({self})")
    }
}

/// What people call a transaction: `"transfer"`. Empty if nobody named it.
pub type OwnerLabel = Cow<'static, str>;

/// Whether a request that cannot be granted at once becomes a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMode {
    /// It is refused, and leaves no trace.
    Refuse,
    /// It is passed over ([`Reply::Skipped`]), and leaves no trace. Who stood in the way is not told: for
    /// those who pass over what is locked, many names in a row, and would not read it.
    Skip,
    /// It waits in the queue.
    Wait,
}

/// The answer to a request, without blocking.
#[derive(Debug)]
#[must_use = "a request may have become a wait, which has to be waited for or cancelled"]
pub enum Reply {
    /// The owner now holds the name in the mode asked for, or a stronger one.
    Granted,
    /// The owner held enough already.
    Held,
    /// The request is in the queue. Nothing else may be asked for until the wait has ended: call
    /// `wait`, `poll_wait` or `cancel`.
    Waiting,
    /// Nothing has changed: somebody is in the way of a request that was to be passed over then.
    Skipped,
    /// Nothing has changed.
    Refused(Box<Refusal>),
}

/// How a request ended.
#[derive(Debug)]
#[must_use = "a refused lock is not held"]
pub enum Outcome {
    /// The owner now holds the name in the mode asked for, or a stronger one.
    Granted,
    /// The owner held enough already.
    Held,
    /// Nothing has changed.
    Refused(Box<Refusal>),
}

// Outcomes travel through every hot function; the details are behind a pointer.
const _: () = assert!(size_of::<Reply>() <= 16 && size_of::<Outcome>() <= 16);

impl Outcome {
    /// Whether the lock is held now.
    pub fn is_held(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }

    /// The refusal, if it was one.
    pub fn refusal(self) -> Option<Box<Refusal>> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Granted | Self::Held => None,
        }
    }
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// It could not be granted at once and was not to wait.
    Busy,
    /// Its deadline passed.
    TimedOut,
    /// It closed, or was part of, a cycle of waits, and its owner was chosen to give way.
    Deadlock,
    /// Somebody ended the wait from outside.
    Cancelled,
    /// There are as many requests at once as the manager has room for, or as its options allow. It can be
    /// asked for again when others have ended. Those who stand in the way are those who hold most.
    Full,
}

impl RefusalReason {
    /// How many there are.
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

/// A request that was not granted, and who stood in the way.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
    /// What was asked for.
    pub name: Name,
    /// In which mode the owner would have held it: for a conversion, the supremum.
    pub mode: Mode,
    /// How long the request had waited.
    pub waited: Duration,
    /// Who stood in the way at that moment: holders in an incompatible mode, then earlier waiters.
    pub blockers: Vec<Blocker>,
    /// The cycle, if this was a deadlock: each member waits for the next, the last for the first.
    pub cycle: Vec<CycleMember>,
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
            cycle: Vec::new(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &|name| name.to_string())
    }
}

impl Refusal {
    /// As it is displayed, with names as `call` calls them: a lock manager knows tables by number
    /// only.
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
        for (at, member) in self.cycle.iter().enumerate() {
            f.write_str(if at == 0 { "; the cycle: " } else { ", " })?;
            member.write(f, call)?;
        }
        Ok(())
    }
}

/// Somebody who stood in the way of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocker {
    /// Who.
    pub owner: OwnerId,
    /// What people call it.
    pub label: OwnerLabel,
    /// The mode it holds, or waits for.
    pub mode: Mode,
    /// How long ago its transaction began, to within a clock tick.
    pub age: Duration,
    /// Whether it waits itself, earlier in the same queue, rather than holds.
    pub waiting: bool,
    /// How many locks it holds, about, if it stands in the way because it holds many ([`RefusalReason::Full`]);
    /// otherwise 0.
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
pub struct CycleMember {
    /// Who.
    pub owner: OwnerId,
    /// What people call it.
    pub label: OwnerLabel,
    /// How long ago its transaction began, to within a clock tick.
    pub age: Duration,
    /// How many locks it held.
    pub lock_count: usize,
    /// What it waits for.
    pub waits_for: (Name, Mode),
    /// How the next member of the cycle stands in its way: the mode it holds, or awaits earlier.
    pub blocking_mode: Mode,
    /// Whether the next member holds what this one waits for, or only waits for it earlier.
    pub blocked_by_holder: bool,
    /// Whether it was chosen to give way.
    pub victim: bool,
}

impl fmt::Display for CycleMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &|name| name.to_string())
    }
}

impl CycleMember {
    /// As it is displayed, with names as `call` calls them.
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

/// An owner with its label, where it has one.
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
