//! Components of modes, their conflicts, and sets of components.
//!
//! The table of components is on the first page of [`mode`](super). Everything here is computed at
//! compile time from one line for each component.

/// Number of components; a lock head counts each one.
pub(crate) const COMPONENTS: usize = 8;

pub(super) const IS: u8 = 1 << 0;
pub(super) const IX: u8 = 1 << 1;
pub(super) const S: u8 = 1 << 2;
pub(super) const U: u8 = 1 << 3;
pub(super) const X: u8 = 1 << 4;
pub(super) const GAP_S: u8 = 1 << 5;
pub(super) const GAP_II: u8 = 1 << 6;
pub(super) const GAP_X: u8 = 1 << 7;
pub(super) const GAP: u8 = GAP_S | GAP_II | GAP_X;

/// Conflicting components of each component. Symmetric, as a test checks.
pub(super) const CONFLICTS: [u8; COMPONENTS] = [
    X,                      // IS
    S | U | X,              // IX
    IX | X,                 // S
    IX | U | X,             // U
    IS | IX | S | U | X,    // X
    GAP_II | GAP_X,         // gap S
    GAP_S | GAP_X,          // gap II
    GAP_S | GAP_II | GAP_X, // gap X
];

/// Set of components, such as all that are granted on one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Set(pub(super) u8);

impl Set {
    pub(crate) const NONE: Self = Self(0);

    #[inline]
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    #[inline]
    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[inline]
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    pub(crate) const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the set with component `index` only.
    #[inline]
    pub(crate) const fn one(index: usize) -> Self {
        Self(1 << index)
    }

    /// Returns every component that conflicts with one of these. By symmetry, these are also the
    /// components that cannot be granted while the set is held.
    #[inline]
    pub(crate) const fn conflicts(self) -> Self {
        Self(CLOSURE[self.0 as usize])
    }

    /// Returns the indices of the components, ascending.
    #[inline]
    pub(crate) fn indices(self) -> impl Iterator<Item = usize> {
        let mut rest = u32::from(self.0);
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            // The remainder changes nothing, and saves a bounds check where the index is used.
            let index = rest.trailing_zeros() as usize % COMPONENTS;
            rest &= rest - 1;
            Some(index)
        })
    }
}

/// Conflicting components of each set of components.
static CLOSURE: [u8; 256] = {
    let mut table = [0; 256];
    let mut set = 0;
    while set < 256 {
        let mut component = 0;
        while component < COMPONENTS {
            if set & (1 << component) != 0 {
                table[set] |= CONFLICTS[component];
            }
            component += 1;
        }
        set += 1;
    }
    table
};

/// Weakest mode that covers each set of components (I2).
pub(super) static NORMAL: [u8; 256] = {
    let mut table = [0; 256];
    let mut set = 0;
    while set < 256 {
        table[set] = normal(set as u8);
        set += 1;
    }
    table
};

const fn normal(set: u8) -> u8 {
    let own = if set & X != 0 {
        X
    } else if set & IX != 0 {
        // U with IX is S with IX: both keep out everything but IS.
        IX | if set & (S | U) != 0 { S } else { 0 }
    } else if set & U != 0 {
        U
    } else if set & S != 0 {
        S
    } else {
        set & IS
    };
    let gap = set & GAP;
    // A gap that is both read and inserted into belongs to the owner alone.
    let gap = if gap & GAP_X != 0 || gap == GAP_S | GAP_II {
        GAP_X
    } else {
        gap
    };
    own | gap
}
