//! Lock modes, and the tables that define them.
//!
//! # State
//!
//! A mode is a set of *components*, one bit each. A table or an advisory name is held in one of six
//! modes. A key is held in a pair of a *key part* and a *gap part*, either of which may be absent.
//!
//! | bit | component | of | says |
//! |---|---|---|---|
//! | 0 | IS | table | some keys are held shared |
//! | 1 | IX | table | some keys are held in any way |
//! | 2 | S | table, key | the whole is read |
//! | 3 | U | table, key | the whole is read and may be written soon |
//! | 4 | X | table, key | the whole is written |
//! | 5 | gap S | key | the gap before the key is read: nothing may appear there |
//! | 6 | gap II | key | something is to appear in the gap (insert intention) |
//! | 7 | gap X | key | the gap belongs to the owner, as when the key at its end is removed |
//!
//! SIX is the set {S, IX}; `S+gapS` is the set {S, gap S}.
//!
//! # Invariants
//!
//! * I1  Two modes are compatible exactly if no component of one conflicts with a component of the
//!   other. So a count for each component is enough, and the modes in which a name is held need not
//!   be stored one by one.
//! * I2  A mode has at most two components, and no component that another one covers.
//! * I3  A key part never conflicts with a gap part: point locks, range locks and inserts compose.
//!
//! # Differences from the book
//!
//! Gray and Reuter, "Transaction Processing", 1993, section 7.8, give U an asymmetric row: a reader
//! may not join a holder of U. Here U and S are compatible both ways, so a transaction that only
//! intends to write does not stop readers. U keeps out a second U, which prevents the deadlock of
//! two readers that both want to write. The supremum of U and IX is then SIX, not X, because SIX
//! conflicts with exactly the modes that U or IX conflicts with.

use crate::name::{Class, Name};
use std::{fmt, str::FromStr};

mod components;

pub(crate) use components::{COMPONENTS, Set};
use components::{GAP, GAP_II, GAP_S, GAP_X, IS, IX, NORMAL, S, U, X};

/// Mode in which a name is held or requested.
///
/// ```
/// use foxton_lock::mode::{GapPart, KeyPart, Mode};
///
/// assert!(Mode::IX.compatible(Mode::IS));
/// assert_eq!(Mode::S.supremum(Mode::IX), Mode::SIX);
///
/// let range = Mode::key(KeyPart::S, GapPart::S);
/// let insert = Mode::key(KeyPart::None, GapPart::InsertIntention);
/// assert!(!range.compatible(insert));
/// assert!(insert.compatible(insert));
/// assert_eq!(range.to_string(), "S+gapS");
/// assert_eq!("S+gapS".parse(), Ok(range));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mode(u8);

/// Effect of a key mode on the key itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyPart {
    /// Nothing.
    None,
    /// The key is read.
    S,
    /// The key is read and may be written soon.
    U,
    /// The key is written.
    X,
}

/// Effect of a key mode on the gap before the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GapPart {
    /// Nothing.
    None,
    /// The gap is read: no key may be inserted there.
    S,
    /// A key is to be inserted there. Many owners may intend that at once.
    InsertIntention,
    /// The gap belongs to the owner alone.
    X,
}

impl Mode {
    /// Intention to share: some keys will be held in S.
    pub const IS: Self = Self(IS);
    /// Intention to write: some keys will be held in U or X, or have their gaps written.
    pub const IX: Self = Self(IX);
    /// The whole table is read.
    pub const S: Self = Self(S);
    /// The whole table is read, and some keys will be held in X.
    pub const SIX: Self = Self(S | IX);
    /// The whole table is read and may be written soon.
    pub const U: Self = Self(U);
    /// The whole table is written.
    pub const X: Self = Self(X);

    /// Modes of tables and advisory names, weak before strong.
    pub const TABLE_MODES: [Self; 6] = [Self::IS, Self::IX, Self::S, Self::U, Self::SIX, Self::X];

    /// Returns the mode of a key with these parts.
    ///
    /// # Panics
    ///
    /// If both parts are `None`, because such a mode would hold nothing.
    #[inline]
    pub const fn key(key: KeyPart, gap: GapPart) -> Self {
        let key = match key {
            KeyPart::None => 0,
            KeyPart::S => S,
            KeyPart::U => U,
            KeyPart::X => X,
        };
        let gap = match gap {
            GapPart::None => 0,
            GapPart::S => GAP_S,
            GapPart::InsertIntention => GAP_II,
            GapPart::X => GAP_X,
        };
        assert!(key | gap != 0, "a key mode needs a key part or a gap part");
        Self(key | gap)
    }

    /// Returns the fifteen modes of keys.
    pub fn key_modes() -> impl Iterator<Item = Self> {
        let keys = [KeyPart::None, KeyPart::S, KeyPart::U, KeyPart::X];
        let gaps = [
            GapPart::None,
            GapPart::S,
            GapPart::InsertIntention,
            GapPart::X,
        ];
        let pairs = keys
            .into_iter()
            .flat_map(move |key| gaps.map(|gap| (key, gap)));
        pairs
            .filter(|pair| *pair != (KeyPart::None, GapPart::None))
            .map(|(key, gap)| Self::key(key, gap))
    }

    /// Returns the key part; for a table mode, the strongest of S, U and X in it.
    #[inline]
    pub const fn key_part(self) -> KeyPart {
        if self.0 & X != 0 {
            KeyPart::X
        } else if self.0 & U != 0 {
            KeyPart::U
        } else if self.0 & S != 0 {
            KeyPart::S
        } else {
            KeyPart::None
        }
    }

    /// Returns the gap part.
    #[inline]
    pub const fn gap_part(self) -> GapPart {
        match self.0 & GAP {
            GAP_X => GapPart::X,
            GAP_II => GapPart::InsertIntention,
            GAP_S => GapPart::S,
            _ => GapPart::None,
        }
    }

    /// True if two owners may hold one name in these modes.
    #[inline]
    pub const fn compatible(self, other: Self) -> bool {
        self.conflicts().bits() & other.0 == 0
    }

    /// Returns the weakest mode that covers both.
    #[inline]
    pub const fn supremum(self, other: Self) -> Self {
        Self(NORMAL[(self.0 | other.0) as usize])
    }

    /// True if an owner that holds this mode needs nothing more for `other`.
    #[inline]
    pub const fn covers(self, other: Self) -> bool {
        NORMAL[(self.0 | other.0) as usize] == self.0
    }

    /// Returns the mode that the parent must be held in before this one may be requested: IS to
    /// read, IX to write or to be able to.
    #[inline]
    pub const fn parent_mode(self) -> Self {
        match self.0 & !(IS | S | GAP_S) {
            0 => Self::IS,
            _ => Self::IX,
        }
    }

    /// True if this mode is *weak* on a name of this class: an intention on a table, a shared key
    /// or a shared gap. All weak modes of a class are compatible with each other, and all suit it.
    #[inline(always)]
    pub(crate) const fn is_weak(self, class: Class) -> bool {
        // The table is in a register: no memory access, no branches.
        const WEAK: u32 = {
            let [tables, keys] = [(IS | IX) as u32, (S | GAP_S) as u32];
            tables << (8 * Class::Table as u32)
                | keys << (8 * Class::Key as u32)
                | keys << (8 * Class::End as u32)
        };
        let weak = (WEAK >> (8 * class as u32)) as u8;
        self.0 & !weak == 0
    }

    /// Returns the weak mode that shares the key, its gap, or both.
    #[inline(always)]
    pub(crate) const fn sharing(key: bool, gap: bool) -> Option<Self> {
        match ((key as u8) * S) | ((gap as u8) * GAP_S) {
            0 => None,
            set => Some(Self(set)),
        }
    }

    /// Returns whether the key and the gap are shared. A weak mode of a key has no other
    /// components.
    #[inline(always)]
    pub(crate) const fn shares(self) -> (bool, bool) {
        (self.0 & S != 0, self.0 & GAP_S != 0)
    }

    /// True if a name of this class can be held in this mode.
    #[inline]
    pub const fn suits(self, class: Class) -> bool {
        let foreign = match class {
            Class::Table | Class::Advisory => GAP,
            Class::Key | Class::End => IS | IX,
        };
        self.0 & foreign == 0
    }

    /// Panics if `name` cannot be held in this mode.
    #[inline]
    pub(crate) fn assert_suits(self, name: &Name) {
        if !self.suits(name.class()) {
            self.does_not_suit(name);
        }
    }

    #[cold]
    #[inline(never)]
    fn does_not_suit(self, name: &Name) -> ! {
        panic!("{name} cannot be held in {self}: gap parts are for keys, intentions for tables")
    }

    /// Returns the mode with these components, which must be those of a mode.
    #[inline]
    pub(crate) const fn of(set: Set) -> Self {
        Self(set.0)
    }

    /// Returns the components of this mode.
    #[inline]
    pub(crate) const fn set(self) -> Set {
        Set(self.0)
    }

    /// Returns the components that conflict with this mode.
    #[inline]
    pub(crate) const fn conflicts(self) -> Set {
        Set(self.0).conflicts()
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = match self.0 & !GAP {
            0 => "",
            IS => "IS",
            IX => "IX",
            S => "S",
            U => "U",
            X => "X",
            _ => "SIX",
        };
        let gap = match self.gap_part() {
            GapPart::None => "",
            GapPart::S => "gapS",
            GapPart::InsertIntention => "gapII",
            GapPart::X => "gapX",
        };
        let plus = if own.is_empty() || gap.is_empty() {
            ""
        } else {
            "+"
        };
        f.pad(&format!("{own}{plus}{gap}"))
    }
}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mode({self})")
    }
}

/// Error: the text is not a lock mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseModeError(String);

impl fmt::Display for ParseModeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = &self.0;
        write!(
            f,
            "{word:?} is no lock mode: use IS, IX, S, SIX, U, X, gapS, gapII, gapX, or a pair such as S+gapS"
        )
    }
}

impl std::error::Error for ParseModeError {}

impl FromStr for Mode {
    type Err = ParseModeError;

    fn from_str(word: &str) -> Result<Self, ParseModeError> {
        let all = Self::TABLE_MODES.into_iter().chain(Self::key_modes());
        all.into_iter()
            .find(|mode| mode.to_string() == word)
            .ok_or_else(|| ParseModeError(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::{components::CONFLICTS, *};

    fn all() -> Vec<Mode> {
        let mut all: Vec<Mode> = Mode::TABLE_MODES
            .into_iter()
            .chain(Mode::key_modes())
            .collect();
        all.sort();
        all.dedup();
        all
    }

    fn mode(word: &str) -> Mode {
        word.parse().unwrap()
    }

    /// The table of the six table modes as textbooks print it.
    #[test]
    fn table_modes_are_compatible_as_printed() {
        let table = "
                 IS  IX  S   SIX U   X
            IS   yes yes yes yes yes no
            IX   yes yes no  no  no  no
            S    yes no  yes no  yes no
            SIX  yes no  no  no  no  no
            U    yes no  yes no  no  no
            X    no  no  no  no  no  no";
        check(table, |a, b| {
            if a.compatible(b) { "yes" } else { "no" }.to_owned()
        });
    }

    #[test]
    fn the_supremum_of_table_modes_is_as_printed() {
        let table = "
                 IS  IX  S   SIX U   X
            IS   IS  IX  S   SIX U   X
            IX   IX  IX  SIX SIX SIX X
            S    S   SIX S   SIX U   X
            SIX  SIX SIX SIX SIX SIX X
            U    U   SIX U   SIX U   X
            X    X   X   X   X   X   X";
        check(table, |a, b| a.supremum(b).to_string());
    }

    #[test]
    fn key_parts_are_compatible_as_printed() {
        let table = "
                 S   U   X
            S    yes yes no
            U    yes no  no
            X    no  no  no";
        check(table, |a, b| {
            if a.compatible(b) { "yes" } else { "no" }.to_owned()
        });
    }

    #[test]
    fn gap_parts_are_compatible_as_printed() {
        let table = "
                  gapS gapII gapX
            gapS  yes  no    no
            gapII no   yes   no
            gapX  no   no    no";
        check(table, |a, b| {
            if a.compatible(b) { "yes" } else { "no" }.to_owned()
        });
        let table = "
                  gapS gapII gapX
            gapS  gapS gapX  gapX
            gapII gapX gapII gapX
            gapX  gapX gapX  gapX";
        check(table, |a, b| a.supremum(b).to_string());
    }

    fn check(table: &str, answer: impl Fn(Mode, Mode) -> String) {
        let mut lines = table
            .lines()
            .map(str::split_whitespace)
            .filter(|line| line.clone().count() > 0);
        let columns: Vec<Mode> = lines.next().unwrap().map(mode).collect();
        for mut line in lines {
            let row = mode(line.next().unwrap());
            for (&column, expected) in columns.iter().zip(line) {
                assert_eq!(answer(row, column), expected, "{row} and {column}");
            }
        }
    }

    #[test]
    fn a_key_part_never_conflicts_with_a_gap_part() {
        for key in [KeyPart::S, KeyPart::U, KeyPart::X] {
            for gap in [GapPart::S, GapPart::InsertIntention, GapPart::X] {
                let (key, gap) = (Mode::key(key, GapPart::None), Mode::key(KeyPart::None, gap));
                assert!(key.compatible(gap));
            }
        }
    }

    #[test]
    fn conflict_is_symmetric_and_decided_by_components() {
        for a in all() {
            for b in all() {
                assert_eq!(a.compatible(b), b.compatible(a), "{a} {b}");
                let by_parts = a
                    .set()
                    .indices()
                    .all(|i| b.set().indices().all(|j| CONFLICTS[i] & (1 << j) == 0));
                assert_eq!(a.compatible(b), by_parts, "{a} {b}");
            }
        }
    }

    /// Within one class the supremum is the least upper bound: it conflicts with all that either
    /// mode conflicts with, and no weaker mode does.
    #[test]
    fn the_supremum_is_the_weakest_mode_that_covers_both() {
        let tables: Vec<Mode> = Mode::TABLE_MODES.to_vec();
        for family in [tables, Mode::key_modes().collect()] {
            for &a in &family {
                assert_eq!(a.supremum(a), a);
                assert!(a.covers(a));
                for &b in &family {
                    let both = a.supremum(b);
                    assert!(family.contains(&both));
                    assert_eq!(both, b.supremum(a));
                    assert!(both.covers(a) && both.covers(b));
                    assert_eq!(a.covers(b), both == a);
                    for &c in &family {
                        assert_eq!(both.supremum(c), a.supremum(b.supremum(c)), "{a} {b} {c}");
                        if c.covers(a) && c.covers(b) {
                            assert!(c.covers(both), "{c} covers {a} and {b} but not {both}");
                        }
                        if !both.compatible(c) && both.gap_part() != GapPart::X {
                            assert!(!a.compatible(c) || !b.compatible(c), "{a} {b} {c}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_stronger_mode_conflicts_with_no_less() {
        for a in all() {
            for b in all().into_iter().filter(|&b| a.covers(b)) {
                for c in all() {
                    assert!(
                        !a.compatible(c) || b.compatible(c),
                        "{a} covers {b}, but {c}"
                    );
                }
            }
        }
    }

    #[test]
    fn no_mode_has_more_than_two_components_nor_a_covered_one() {
        for a in all() {
            assert!((1..=2).contains(&a.set().indices().count()), "{a}");
            assert_eq!(NORMAL[a.0 as usize], a.0, "{a}");
        }
    }

    #[test]
    fn reading_needs_is_above_and_everything_else_ix() {
        for word in ["S", "gapS", "S+gapS", "IS"] {
            assert_eq!(mode(word).parent_mode(), Mode::IS, "{word}");
        }
        for word in ["U", "X", "gapII", "gapX", "S+gapX", "U+gapS", "IX", "SIX"] {
            assert_eq!(mode(word).parent_mode(), Mode::IX, "{word}");
        }
    }

    #[test]
    fn every_mode_is_spelled_one_way() {
        for a in all() {
            assert_eq!(a.to_string().parse(), Ok(a));
        }
        for word in ["", "Q", "s", "gapS+S", "IS+gapS", "S+"] {
            assert!(word.parse::<Mode>().is_err(), "{word}");
        }
        assert!(
            "Q".parse::<Mode>()
                .unwrap_err()
                .to_string()
                .contains("S+gapS")
        );
    }

    #[test]
    fn weak_modes_of_a_class_are_compatible_and_closed() {
        for class in [Class::Table, Class::Key, Class::End, Class::Advisory] {
            let weak: Vec<Mode> = all()
                .into_iter()
                .filter(|mode| mode.suits(class) && mode.is_weak(class))
                .collect();
            assert_eq!(weak.is_empty(), class == Class::Advisory);
            for &a in &weak {
                for &b in &weak {
                    assert!(a.compatible(b) && a.supremum(b).is_weak(class), "{a} {b}");
                }
            }
        }
    }

    #[test]
    fn parts_come_apart_again() {
        for a in Mode::key_modes() {
            assert_eq!(Mode::key(a.key_part(), a.gap_part()), a);
            assert!(a.suits(Class::Key) && a.suits(Class::End));
        }
        assert!(!mode("gapS").suits(Class::Table));
        assert!(!mode("SIX").suits(Class::Key));
    }

    #[test]
    #[should_panic(expected = "needs a key part or a gap part")]
    fn a_key_mode_that_says_nothing_is_refused() {
        Mode::key(KeyPart::None, GapPart::None);
    }
}
