//! Causes of aborts.
//!
//! # State
//!
//! The status word of the processor [001 Table 2.1]:
//!
//! ```text
//! 31      24 23              6   5      4       3        2       1       0
//! +---------+-----------------+------+-----+--------+--------+-----+--------+
//! |  code   |        0        |nested|debug|capacity|conflict|retry|explicit|
//! +---------+-----------------+------+-----+--------+--------+-----+--------+
//! ```
//!
//! Several bits may be set, and none: an interrupt, a missing page or an instruction that cannot be
//! undone leaves 0. `code` counts if `explicit` is set. `nested` says that it happened inside an
//! inner transaction, and is the only bit where there were too many of them.

use std::fmt;

const EXPLICIT: u32 = 1 << 0;
const RETRY: u32 = 1 << 1;
const CONFLICT: u32 = 1 << 2;
const CAPACITY: u32 = 1 << 3;
const DEBUG: u32 = 1 << 4;
const NESTED: u32 = 1 << 5;

/// Cause of an abort, as one word; for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Another thread touched what this one had written, or wrote what this one had read.
    Conflict,
    /// The accessed lines did not fit.
    Capacity,
    /// The program requested it.
    Explicit,
    /// Transactions were nested too deeply.
    Nested,
    /// A breakpoint.
    Debug,
    /// An interrupt, a missing page, or an instruction that cannot be undone.
    Other,
}

crate::named_enum! {
    Cause, "cause of aborts":
    Conflict = "conflict",
    Capacity = "capacity",
    Explicit = "explicit",
    Nested = "nested",
    Debug = "debug",
    Other = "other",
}

/// An abort, as the processor reports it.
///
/// ```
/// use foxton_sync::htm::{Abort, Cause};
///
/// let abort = Abort::of_status(0x2A00_0003);
/// assert_eq!((abort.cause(), abort.code()), (Cause::Explicit, Some(42)));
/// assert!(abort.may_succeed());
/// assert_eq!(abort.to_string(), "explicit, code 42, may succeed if tried again");
/// assert_eq!(Abort::of_status(0).cause(), Cause::Other);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Abort(u32);

impl Abort {
    /// Stands for a status once a transaction has begun. No status has this value.
    pub(super) const NONE: u32 = u32::MAX;

    /// Returns the abort with this status word.
    pub const fn of_status(status: u32) -> Self {
        Self(status)
    }

    /// Returns an abort that the program requested, with `code`.
    pub const fn explicit(code: u8) -> Self {
        Self(EXPLICIT | (code as u32) << 24)
    }

    /// Returns the abort with only `cause` in its status.
    pub const fn because(cause: Cause) -> Self {
        Self(match cause {
            Cause::Conflict => CONFLICT,
            Cause::Capacity => CAPACITY,
            Cause::Explicit => EXPLICIT,
            Cause::Nested => NESTED,
            Cause::Debug => DEBUG,
            Cause::Other => 0,
        })
    }

    /// The same, and the processor expects that a retry may succeed.
    #[must_use]
    pub const fn that_may_succeed(self) -> Self {
        Self(self.0 | RETRY)
    }

    /// The same, inside an inner transaction.
    #[must_use]
    pub const fn inside_another(self) -> Self {
        Self(self.0 | NESTED)
    }

    /// Returns the one cause that it counts for. If several bits are set: the program's own request
    /// first, then what would happen again (overflow) before what need not (a conflict).
    pub const fn cause(self) -> Cause {
        match self.0 {
            status if status & EXPLICIT != 0 => Cause::Explicit,
            status if status & CAPACITY != 0 => Cause::Capacity,
            status if status & CONFLICT != 0 => Cause::Conflict,
            status if status & DEBUG != 0 => Cause::Debug,
            status if status & NESTED != 0 => Cause::Nested,
            _ => Cause::Other,
        }
    }

    /// Returns the code with which the program requested it, if it did.
    pub const fn code(self) -> Option<u8> {
        if self.0 & EXPLICIT == 0 {
            return None;
        }
        Some((self.0 >> 24) as u8)
    }

    /// True if the processor expects that a retry may succeed.
    pub const fn may_succeed(self) -> bool {
        self.0 & RETRY != 0
    }

    /// True if it happened inside an inner transaction.
    pub const fn was_inside_another(self) -> bool {
        self.0 & NESTED != 0
    }
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause())?;
        if let Some(code) = self.code() {
            write!(f, ", code {code}")?;
        }
        if self.was_inside_another() && self.cause() != Cause::Nested {
            f.write_str(", inside another")?;
        }
        if self.may_succeed() {
            f.write_str(", may succeed if tried again")?;
        }
        Ok(())
    }
}
