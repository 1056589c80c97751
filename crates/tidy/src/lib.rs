#![forbid(unsafe_code)]
//! House rules that a test can read.
//!
//! Everything here reads the repository as text: no parser, no dependency, no build. A rule is a
//! function from the [`tree::Tree`] to a list of [`Finding`]s. `tests/house.rs` runs all rules and
//! fails with every finding. Each rule has tests with violations planted in a small made-up tree.
//! Matters of taste (long files, long functions) are printed by `cargo run -p foxton-tidy --bin
//! tidy` and judged by people.

use std::fmt;

/// A source file split into code, comments and test regions.
pub mod source;

/// The files of the repository.
pub mod tree;

/// Paths such as `crate::{a, b::c}`, written out.
pub mod paths;

/// The ladder: dependencies between crates, and between the modules of one crate.
pub mod ladder;

/// One door to atomics, numbered orderings, and where `unsafe` may stand.
pub mod memory;

/// Where threads can meet, a site is declared.
pub mod meetings;

/// Leftovers, files nobody reaches, titles, references to nothing, paths of one machine.
pub mod litter;

/// Sentences and lines of comments and documents.
pub mod prose;

/// Names of types and modules.
pub mod names;

/// Counts that may fall and never rise, and sizes of documents.
pub mod ratchets;

/// Subjects and bodies of commits.
pub mod commits;

/// Sizes that are printed and not judged: long files, long functions, unsafe blocks.
pub mod sizes;

/// One broken rule, at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the root of the repository.
    pub path: String,
    /// Line, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// The broken rule, as a sentence.
    pub what: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Runs every rule over `tree`; findings come sorted by place.
pub fn check(tree: &tree::Tree) -> Vec<Finding> {
    let rules: [fn(&tree::Tree) -> Vec<Finding>; 17] = [
        ladder::between_crates,
        ladder::inside_crates,
        memory::one_door_to_atomics,
        memory::numbered_orderings,
        memory::unsafe_in_its_place,
        meetings::accounted,
        litter::leftovers,
        litter::ignored_tests,
        litter::unreached_files,
        litter::titles,
        litter::references,
        litter::machine_paths,
        ratchets::hold,
        ratchets::documents,
        ratchets::programs,
        ratchets::folders,
        ratchets::retired_names,
    ];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings.dedup();
    findings
}
