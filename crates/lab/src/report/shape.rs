//! Shape of a document's figure, judged claim by claim.
//!
//! Absolute numbers belong to machines. A figure claims a shape: one curve falls and another does
//! not, or one is a multiple of the other. Each claim is compared with what was measured. Some
//! cannot be judged on the machine at hand; the report says so, and that is no failure.
//!
//! Checks are not claims: that sums are right and no row was lost says nothing about a shape. A
//! check that fails is a failure of its panel
//! ([`Findings::failure`](crate::report::findings::Findings::failure)) and voids the figure,
//! whatever its shape. A check that holds does not make a figure reproduced if its claims cannot be
//! judged.

use super::{findings::Block, table::Table};

/// One claim of a document's figure, and the measurement it is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The claim of the document, as a clause.
    pub says: String,
    /// The measurement, as a clause; or the reason why nothing was measured.
    pub found: String,
    /// The bound that the measurement is compared with, such as `at least 90 %`; empty if nothing
    /// was measured.
    pub expected: String,
    /// The reason why a measurement outside the bound is not judged; empty if it is.
    pub unjudged: String,
    /// True if the measurement is within the bound; `None` if the claim is not judged here.
    pub holds: Option<bool>,
}

/// All claims of a figure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape(pub Vec<Claim>);

/// Sum of the judgements of a figure's claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every claim that is judged holds.
    Reproduced,
    /// Some claims hold, and some do not.
    Partly,
    /// No claim holds.
    NotReproduced,
    /// No claim is judged on this machine.
    NotJudged,
}

impl Verdict {
    /// All verdicts, the best first.
    pub const ALL: [Verdict; 4] = [
        Verdict::Reproduced,
        Verdict::Partly,
        Verdict::NotReproduced,
        Verdict::NotJudged,
    ];

    /// Class of the verdict's colour on a page.
    pub(super) fn class(self) -> &'static str {
        match self {
            Verdict::Reproduced => "yes",
            Verdict::Partly => "partly",
            Verdict::NotReproduced => "no",
            Verdict::NotJudged => "unseen",
        }
    }

    /// Class for these words; empty if they are no verdict.
    pub(crate) fn class_of(words: &str) -> &'static str {
        let found = Verdict::ALL.iter().find(|one| one.words() == words);
        found.map_or("", |one| one.class())
    }

    /// Words for the verdict, in reports and in the field `shape` of results.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Partly => "partly reproduced",
            Verdict::NotReproduced => "not reproduced",
            Verdict::NotJudged => "not judged here",
        }
    }
}

impl Claim {
    /// A claim with a measurement: `says` is the document's, `found` what was measured, `expected`
    /// the bound, and `holds` whether the measurement is within it.
    pub fn new(
        says: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
        holds: bool,
    ) -> Claim {
        Claim {
            says: says.into(),
            found: found.into(),
            expected: expected.into(),
            unjudged: String::new(),
            holds: Some(holds),
        }
    }

    /// A claim without a measurement, and the reason why there is none.
    pub fn not_measured(says: impl Into<String>, why: impl Into<String>) -> Claim {
        Claim {
            says: says.into(),
            found: why.into(),
            expected: String::new(),
            unjudged: String::new(),
            holds: None,
        }
    }

    /// The same claim if it holds. If it does not, it is not judged here, for the reason `why`.
    pub fn or_not_judged(self, why: &str) -> Claim {
        match self.holds {
            Some(false) => Claim {
                unjudged: why.to_owned(),
                holds: None,
                ..self
            },
            _ => self,
        }
    }

    /// The measurement with the bound it is compared with, or the reason why there is none.
    pub fn measured(&self) -> String {
        match (self.expected.as_str(), self.unjudged.as_str()) {
            ("", _) => self.found.clone(),
            (expected, "") => format!("{} (expected {expected})", self.found),
            (expected, why) => format!("{} (expected {expected}; {why})", self.found),
        }
    }

    /// Whether something was measured, judged or not.
    fn is_measured(&self) -> bool {
        !self.expected.is_empty()
    }

    fn word(&self) -> &'static str {
        match self.holds {
            Some(true) => "yes",
            Some(false) => "no",
            None if self.is_measured() => "not judged",
            None => "not measured",
        }
    }
}

impl Shape {
    /// Sum of the judgements of all claims.
    pub fn verdict(&self) -> Verdict {
        let count = |wanted: bool| {
            self.0
                .iter()
                .filter(|one| one.holds == Some(wanted))
                .count()
        };
        match (count(true), count(false)) {
            (0, 0) => Verdict::NotJudged,
            (_, 0) => Verdict::Reproduced,
            (0, _) => Verdict::NotReproduced,
            _ => Verdict::Partly,
        }
    }

    /// The verdict, and every measurement with its bound: those that agree, those that do not,
    /// those that are not judged, and why others were not made.
    pub fn sentence(&self) -> String {
        let all_judged = self.0.iter().all(|one| one.holds.is_some());
        let verdict = match self.verdict() {
            Verdict::Reproduced if all_judged => "The document's shape is reproduced.",
            Verdict::Reproduced => {
                "The document's shape is reproduced as far as this machine can show it."
            }
            Verdict::Partly => "The document's shape is partly reproduced.",
            Verdict::NotReproduced => "The document's shape is not reproduced.",
            Verdict::NotJudged if self.0.is_empty() => "This run judges no claim of the document.",
            Verdict::NotJudged => "",
        };
        let mut sentences = vec![verdict.to_owned()];
        for (lead, word) in [
            ("As expected", "yes"),
            ("Not as expected", "no"),
            ("Not judged", "not judged"),
            ("Not measured", "not measured"),
        ] {
            let mut clauses: Vec<String> = Vec::new();
            for claim in self.0.iter().filter(|one| one.word() == word) {
                // Several claims may have the same measurement.
                if !clauses.contains(&claim.measured()) {
                    clauses.push(claim.measured());
                }
            }
            if !clauses.is_empty() {
                sentences.push(format!("{lead}: {}.", clauses.join("; ")));
            }
        }
        sentences.retain(|sentence| !sentence.is_empty());
        sentences.join(" ")
    }

    /// The claims as a table.
    pub fn block(&self) -> Block {
        let heads = ["the document says", "measured here", "expected", "agrees"];
        let mut table = Table::new(heads);
        for claim in &self.0 {
            let found = match claim.unjudged.as_str() {
                "" => claim.found.clone(),
                why => format!("{}; {why}", claim.found),
            };
            let expected = match claim.is_measured() {
                true => claim.expected.clone(),
                false => "-".to_owned(),
            };
            table.row([claim.says.clone(), found, expected, claim.word().to_owned()]);
        }
        Block {
            title: "The document's claims, and what was measured".to_owned(),
            note:
                "Each judgement compares the medians of this run alone with a fixed bound. A short \
                   run on a busy machine can err either way."
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
            expected: format!("bound {at}"),
            unjudged: match holds {
                Some(_) => String::new(),
                None => "too few cores".to_owned(),
            },
            holds,
        };
        Shape(holds.iter().enumerate().map(claim).collect())
    }

    #[test]
    fn a_shape_is_reproduced_if_every_judged_claim_holds() {
        for (holds, verdict) in [
            (&[Some(true), None][..], Verdict::Reproduced),
            (&[Some(true), Some(false)], Verdict::Partly),
            (&[Some(false), None], Verdict::NotReproduced),
            (&[None], Verdict::NotJudged),
            (&[], Verdict::NotJudged),
        ] {
            assert_eq!(shape(holds).verdict(), verdict, "{holds:?}");
        }
    }

    #[test]
    fn the_sentence_has_every_measurement_with_its_bound_and_every_reason() {
        assert_eq!(
            shape(&[None, Some(false), Some(true)]).sentence(),
            "The document's shape is partly reproduced. As expected: found 2 (expected bound 2). \
             Not as expected: found 1 (expected bound 1). \
             Not judged: found 0 (expected bound 0; too few cores)."
        );
        assert_eq!(
            shape(&[Some(true), None]).sentence(),
            "The document's shape is reproduced as far as this machine can show it. \
             As expected: found 0 (expected bound 0). \
             Not judged: found 1 (expected bound 1; too few cores)."
        );
        assert_eq!(
            shape(&[Some(true)]).sentence(),
            "The document's shape is reproduced. As expected: found 0 (expected bound 0)."
        );
        assert_eq!(
            shape(&[Some(false)]).sentence(),
            "The document's shape is not reproduced. \
             Not as expected: found 0 (expected bound 0)."
        );
        let unmeasured = Claim::not_measured("it falls", "this processor has no RTM");
        assert_eq!(
            Shape(vec![unmeasured.clone(), unmeasured]).sentence(),
            "Not measured: this processor has no RTM."
        );
        assert_eq!(
            Shape::default().sentence(),
            "This run judges no claim of the document."
        );
    }

    #[test]
    fn a_machine_that_cannot_show_a_claim_does_not_refute_it_but_may_confirm_it() {
        let claim = |holds| {
            let claim = Claim::new("it falls", "it keeps 99 %", "below 90 %", holds);
            claim.or_not_judged("too few cores")
        };
        assert_eq!(claim(true).holds, Some(true));
        assert_eq!(claim(false).holds, None);
        assert!(claim(false).measured().ends_with("too few cores)"));
    }
}
