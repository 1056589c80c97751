//! Labels: the keys of a row in the indexes of its table.
//!
//! They follow from the row's own key and its [`Version`], so a history need not record them: the
//! writer and every checker can compute them. Half of the versions of a row have labels that depend
//! on the row alone, so an update mostly leaves its entries where they are. The others move the
//! entries somewhere else, now and then onto the name of another row, which is refused.

use super::Version;
use crate::ledger::mix;
use std::collections::BTreeMap;

/// Order in which rows are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum By {
    /// By their own keys.
    #[default]
    Key,
    /// By their names: a row has at most one, and no other row has it.
    Name,
    /// By their groups; then by their own keys.
    Group,
}

impl By {
    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        match self {
            By::Key => "key",
            By::Name => "name",
            By::Group => "group",
        }
    }
}

/// Labels of one row: its name, if it has one, and its group.
pub type Label = (Option<u64>, u64);

/// Position of a row in an order: the key in that order, and the row's own key, which decides
/// between equals.
pub(crate) type Position = (u64, u64);

/// Labels of all rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Labels {
    /// There are no indexes.
    #[default]
    None,
    /// Drawn, from this many.
    Drawn {
        /// Names are below this.
        names: u64,
        /// Groups are below this.
        groups: u64,
    },
    /// Those of each version; other versions have no name and group 0.
    Told(BTreeMap<Version, Label>),
}

impl Labels {
    /// For rows whose keys are below `keys`. There are so few names that some are wanted twice, and
    /// so few groups that each has several rows.
    pub fn for_keys(keys: u64) -> Labels {
        Labels::Drawn {
            names: keys * 2,
            groups: (keys / 3).max(4),
        }
    }

    /// Returns the labels of the row `key` while it has `version`.
    pub fn of(&self, key: u64, version: Version) -> Label {
        match self {
            Labels::None => (None, 0),
            Labels::Told(labels) => labels.get(&version).copied().unwrap_or_default(),
            Labels::Drawn { names, groups } => {
                let drawn = mix(version.value());
                let name = match drawn % 8 {
                    0 => None,
                    1..=4 => Some(key),
                    _ => Some((drawn >> 8) % names),
                };
                let stays = (drawn >> 3).is_multiple_of(2);
                let group = if stays { key } else { drawn >> 32 } % groups;
                (name, group)
            }
        }
    }

    /// Returns the position of the row `key` while it has `version`; `None` if it has no label of
    /// that kind.
    pub(crate) fn position(&self, by: By, key: u64, version: Version) -> Option<Position> {
        match by {
            By::Key => Some((key, 0)),
            By::Name => Some((self.of(key, version).0?, 0)),
            By::Group => Some((self.of(key, version).1, key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Writer;

    #[test]
    fn labels_stay_for_some_versions_and_move_for_others() {
        let labels = Labels::for_keys(24);
        let versions = (0..200).map(|number| Version::new(Writer { client: 3, number }, 1));
        let drawn: Vec<Label> = versions.map(|version| labels.of(5, version)).collect();
        let count = |is: fn(&Label) -> bool| drawn.iter().filter(|label| is(label)).count();
        assert!(count(|label| label.0.is_none()) > 5);
        assert!(count(|label| label.0 == Some(5)) > 50);
        assert!(count(|label| label.0.is_some_and(|name| name > 24)) > 5);
        assert!(count(|label| label.1 == 5) > 50 && count(|label| label.1 != 5) > 50);
        assert!(drawn.iter().all(|label| label.0 < Some(48) && label.1 < 8));
    }
}
