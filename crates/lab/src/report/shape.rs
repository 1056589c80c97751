//! Whether the shape of a document's figure was found here, claim by claim.
//!
//! Absolute numbers belong to machines. What a figure claims is a shape: this one falls, that one
//! does not, one is a multiple of the other. Each claim is held against what was measured, and some
//! cannot be seen on the machine at hand, which is said and is no failure.
//!
//! That sums were kept and nothing was lost is no claim of a figure. A check that fails is a
//! failure of its panel ([`Findings::failure`](crate::report::findings::Findings::failure)), which
//! voids the figure, whatever its shape; one that holds says nothing of the shape, so it makes no
//! figure reproduced whose claims cannot be seen.

use super::{findings::Block, table::Table};

/// One thing that a document's figure says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What it says, as a clause.
    pub says: String,
    /// What was found here, as a clause.
    pub found: String,
    /// Whether that agrees; `None` if it cannot be seen here.
    pub holds: Option<bool>,
}

/// Every claim of a figure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape(pub Vec<Claim>);

/// What the claims come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every claim that can be seen holds.
    Reproduced,
    /// Some do, and some do not.
    Partly,
    /// None does.
    NotReproduced,
    /// None can be seen here.
    Unseen,
}

impl Verdict {
    /// All there are, the best first.
    pub const ALL: [Verdict; 4] = [
        Verdict::Reproduced,
        Verdict::Partly,
        Verdict::NotReproduced,
        Verdict::Unseen,
    ];

    /// The class of a page that has its colour.
    pub(super) fn class(self) -> &'static str {
        match self {
            Verdict::Reproduced => "yes",
            Verdict::Partly => "partly",
            Verdict::NotReproduced => "no",
            Verdict::Unseen => "unseen",
        }
    }

    /// The class for these words; nothing if they are no verdict.
    pub(crate) fn class_of(words: &str) -> &'static str {
        let found = Verdict::ALL.iter().find(|one| one.words() == words);
        found.map_or("", |one| one.class())
    }

    /// The words for it.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Partly => "partly reproduced",
            Verdict::NotReproduced => "not reproduced",
            Verdict::Unseen => "not to be seen here",
        }
    }
}

impl Claim {
    /// What a figure says, and what was found.
    pub fn new(says: impl Into<String>, found: impl Into<String>, holds: bool) -> Claim {
        Claim {
            says: says.into(),
            found: found.into(),
            holds: Some(holds),
        }
    }

    /// What a figure says, and why that cannot be seen here.
    pub fn unseen(says: impl Into<String>, why: impl Into<String>) -> Claim {
        Claim {
            says: says.into(),
            found: why.into(),
            holds: None,
        }
    }

    /// The same if it holds; but if it does not, it is one that cannot be seen, for this reason.
    pub fn or_unseen(self, why: &str) -> Claim {
        match self.holds {
            Some(false) => Claim {
                found: format!("{}: {why}", self.found),
                holds: None,
                ..self
            },
            _ => self,
        }
    }

    fn word(&self) -> &'static str {
        match self.holds {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not to be seen here",
        }
    }
}

impl Shape {
    /// What the claims come to.
    pub fn verdict(&self) -> Verdict {
        let count = |wanted: bool| {
            self.0
                .iter()
                .filter(|one| one.holds == Some(wanted))
                .count()
        };
        match (count(true), count(false)) {
            (0, 0) => Verdict::Unseen,
            (_, 0) => Verdict::Reproduced,
            (0, _) => Verdict::NotReproduced,
            _ => Verdict::Partly,
        }
    }

    /// In a sentence: the verdict, what does not agree, what agrees, and what cannot be seen.
    pub fn sentence(&self) -> String {
        let found = |holds: Option<bool>| -> Vec<&str> {
            let claims = self.0.iter().filter(|one| one.holds == holds);
            let mut all: Vec<&str> = Vec::new();
            for claim in claims {
                // What is found of several claims is said once.
                if !all.contains(&claim.found.as_str()) {
                    all.push(&claim.found);
                }
            }
            all
        };
        let mut clauses = Vec::new();
        for (lead, holds) in [
            ("", Some(true)),
            ("but ", Some(false)),
            ("not to be seen: ", None),
        ] {
            let all = found(holds);
            if !all.is_empty() {
                clauses.push(format!("{lead}{}", all.join(", ")));
            }
        }
        let is_all_seen = self.0.iter().all(|one| one.holds.is_some());
        let verdict = match self.verdict() {
            Verdict::Reproduced if is_all_seen => "The document's shape was reproduced",
            Verdict::Reproduced => {
                "As far as it can be seen here, the document's shape was reproduced"
            }
            Verdict::Partly => "The document's shape was partly reproduced",
            Verdict::NotReproduced => "The document's shape was not reproduced",
            Verdict::Unseen => "Whether the document's shape is found here cannot be said",
        };
        // With nothing that agrees before it, a "but" contradicts nobody.
        let clauses = clauses.join("; ");
        let clauses = clauses.strip_prefix("but ").unwrap_or(&clauses);
        let clauses = clauses.strip_prefix("not to be seen: ").unwrap_or(clauses);
        match clauses {
            "" => format!("{verdict}."),
            _ => format!("{verdict}: {clauses}."),
        }
    }

    /// The claims as a table.
    pub fn block(&self) -> Block {
        let mut table = Table::new(["the document says", "found here", "agrees"]);
        for claim in &self.0 {
            table.row([
                claim.says.clone(),
                claim.found.clone(),
                claim.word().to_owned(),
            ]);
        }
        Block {
            title: "Whether the shape is the document's".to_owned(),
            note: "Judged by the medians of this run alone, against fixed bounds; a short run on a busy machine \
                   errs both ways."
                .to_owned(),
            table,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(holds: &[Option<bool>]) -> Shape {
        let claim = |(at, &holds): (usize, &Option<bool>)| Claim {
            says: format!("says {at}"),
            found: format!("found {at}"),
            holds,
        };
        Shape(holds.iter().enumerate().map(claim).collect())
    }

    #[test]
    fn a_shape_is_reproduced_if_all_that_can_be_seen_of_it_is() {
        for (holds, verdict) in [
            (&[Some(true), None][..], Verdict::Reproduced),
            (&[Some(true), Some(false)], Verdict::Partly),
            (&[Some(false), None], Verdict::NotReproduced),
            (&[None], Verdict::Unseen),
            (&[], Verdict::Unseen),
        ] {
            assert_eq!(shape(holds).verdict(), verdict, "{holds:?}");
        }
    }

    #[test]
    fn the_sentence_says_what_agrees_what_does_not_and_what_cannot_be_seen() {
        assert_eq!(
            shape(&[None, Some(false), Some(true)]).sentence(),
            "The document's shape was partly reproduced: found 2; but found 1; not to be seen: found 0."
        );
        assert_eq!(
            shape(&[Some(true), None]).sentence(),
            "As far as it can be seen here, the document's shape was reproduced: found 0; not to be seen: found 1."
        );
        assert_eq!(
            shape(&[Some(true)]).sentence(),
            "The document's shape was reproduced: found 0."
        );
        assert_eq!(
            shape(&[Some(false)]).sentence(),
            "The document's shape was not reproduced: found 0."
        );
    }

    #[test]
    fn what_cannot_show_does_not_count_against_it_but_what_shows_counts_for_it() {
        let claim =
            |holds| Claim::new("it falls", "it keeps 99 %", holds).or_unseen("too few cores");
        assert_eq!(claim(true).holds, Some(true));
        assert_eq!(claim(false).holds, None);
        assert!(claim(false).found.ends_with("too few cores"));
    }
}
