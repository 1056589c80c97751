//! Counts that may fall and never rise.
//!
//! Each ratchet has a limit in `LIMITS`. A tree that has more fails; a tree that has less is
//! told the number to write there instead.

use crate::{Finding, names, prose, tree::Tree};
use std::fmt;

/// How many places each ratchet allows.
const LIMITS: Limits = Limits {
    duplicates: 6,
    wide_lines: 0,
    long_sentences: 0,
    riddles: 0,
};

/// Bytes that a document may have.
const DOCUMENTS: [(&str, usize); 12] = [
    ("README.md", 8 << 10),
    ("ARCHITECTURE.md", 14 << 10),
    ("docs/decisions.md", 16 << 10),
    ("docs/locking.md", 30 << 10),
    ("docs/recovery.md", 16 << 10),
    ("docs/format.md", 24 << 10),
    ("docs/pages.md", 11 << 10),
    ("docs/isolation.md", 6 << 10),
    ("docs/testing.md", 12 << 10),
    ("docs/operations.md", 14 << 10),
    ("docs/benchmarks.md", 14 << 10),
    ("docs/htm.md", 6 << 10),
];
/// Bytes that README, ARCHITECTURE and the documents in `docs` may have together.
const ALL_DOCUMENTS: usize = 160_000;

/// The programs of tests. Beside `it`, each has the reason why its tests are not modules of `it`.
const PROGRAMS: [(&str, &str); 25] = [
    ("crates/cli/tests/it", ""),
    (
        "crates/foxton/tests/after_a_peak",
        "its allocator counts for the whole process",
    ),
    (
        "crates/foxton/tests/descriptors",
        "it limits the descriptors of the whole process",
    ),
    (
        "crates/foxton/tests/forked",
        "forks, and so has no threads of a harness",
    ),
    (
        "crates/foxton/tests/in_memory",
        "its allocator counts for the whole process",
    ),
    ("crates/foxton/tests/it", ""),
    (
        "crates/foxton/tests/outlives",
        "its allocator counts for the whole process",
    ),
    (
        "crates/foxton/tests/signals",
        "its signal handler belongs to the whole process",
    ),
    ("crates/lab/tests/it", ""),
    ("crates/lab/tests/profile", "samples the whole process"),
    ("crates/lock/tests/it", ""),
    ("crates/lock/tests/models", "built under loom alone"),
    (
        "crates/lock/tests/shuttle_managers",
        "built under shuttle alone",
    ),
    (
        "crates/lock/tests/stress",
        "its threads leave no processor to others",
    ),
    ("crates/log/tests/it", ""),
    ("crates/log/tests/models", "built under loom alone"),
    (
        "crates/sampler/tests/where_it_is",
        "samples the whole process",
    ),
    ("crates/sim/tests/it", ""),
    ("crates/store/tests/it", ""),
    (
        "crates/store/tests/memory",
        "measures the memory of the whole process",
    ),
    ("crates/store/tests/models", "built under loom alone"),
    ("crates/sync/tests/it", ""),
    ("crates/sync/tests/models", "built under loom alone"),
    (
        "crates/sync/tests/oversubscribed",
        "its threads leave no processor to others",
    ),
    ("crates/tidy/tests/house", "the only one there"),
];

/// Places that a failing ratchet names.
const NAMED: usize = 40;

struct Limits {
    duplicates: usize,
    wide_lines: usize,
    long_sentences: usize,
    riddles: usize,
}

/// A count with its limit.
#[derive(Debug)]
pub struct Ratchet {
    /// The things counted, as a plural.
    pub name: &'static str,
    /// Number that the tree may have.
    pub limit: usize,
    /// Places that the tree has.
    pub places: Vec<String>,
}

impl fmt::Display for Ratchet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.places.len();
        write!(f, "{count:6}  {} (at most {})", self.name, self.limit)?;
        if count < self.limit {
            write!(f, ": set the limit to {count}")?;
        }
        Ok(())
    }
}

/// Counts every ratchet over `tree`.
pub fn measure(tree: &Tree) -> Vec<Ratchet> {
    let mut wide = Vec::new();
    let mut long = Vec::new();
    let mut riddles = Vec::new();
    let is_prose = |path: &str| path.ends_with(".rs") || path.ends_with(".md");
    for (path, text) in tree.texts().filter(|(path, _)| is_prose(path)) {
        let lines = prose::wide_lines(path, text).into_iter();
        wide.extend(lines.map(|line| format!("{path}:{line}")));
        for sentence in prose::sentences(path, text) {
            let place = || format!("{path}:{}: {}", sentence.line, sentence.text);
            if sentence.words() > prose::WORDS {
                long.push(place());
            }
            if sentence.is_riddle() {
                riddles.push(place());
            }
        }
    }
    let duplicates = names::duplicates(tree).into_iter();
    let duplicates = duplicates.map(|(name, all)| {
        let places: Vec<_> = all.iter().map(|one| one.place.as_str()).collect();
        format!("{name}: {}", places.join(", "))
    });
    let ratchet = |name, limit, places| Ratchet {
        name,
        limit,
        places,
    };
    vec![
        ratchet(
            "type names that stand twice on the ladder",
            LIMITS.duplicates,
            duplicates.collect(),
        ),
        ratchet("lines of prose over 100 columns", LIMITS.wide_lines, wide),
        ratchet("sentences over 35 words", LIMITS.long_sentences, long),
        ratchet(
            "sentences that begin with a riddle",
            LIMITS.riddles,
            riddles,
        ),
    ]
}

/// No count has grown.
pub fn hold(tree: &Tree) -> Vec<Finding> {
    let grown = measure(tree)
        .into_iter()
        .filter(|one| one.places.len() > one.limit);
    grown
        .map(|one| {
            let places = &one.places[..one.places.len().min(NAMED)];
            let what = format!("{one}, among them\n  {}", places.join("\n  "));
            Finding::new("crates/tidy/src/ratchets.rs", 0, what)
        })
        .collect()
}

/// Each document keeps to its size, and all of them to theirs.
pub fn documents(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, limit) in DOCUMENTS {
        let bytes = tree.text(path).map_or(0, str::len);
        if bytes > limit {
            let what = format!("{bytes} bytes, at most {limit}: shorten it, or move a part");
            findings.push(Finding::new(path, 0, what));
        }
    }
    let is_document = |path: &str| {
        let name = path
            .strip_prefix("docs/")
            .filter(|name| !name.contains('/'));
        name.is_some_and(|name| name.ends_with(".md"))
            || ["README.md", "ARCHITECTURE.md"].contains(&path)
    };
    let all = tree.texts().filter(|(path, _)| is_document(path));
    let bytes: usize = all.map(|(_, text)| text.len()).sum();
    if bytes > ALL_DOCUMENTS {
        let what = format!("all documents have {bytes} bytes, at most {ALL_DOCUMENTS}");
        findings.push(Finding::new("docs", 0, what));
    }
    findings
}

/// Tests are modules of one program for each crate: a program costs more to link than to run.
pub fn programs(tree: &Tree) -> Vec<Finding> {
    let added = tree.rust().filter_map(|(path, _)| {
        let (folder, inside) = path.strip_prefix("crates/")?.split_once("/tests/")?;
        let name = inside
            .strip_suffix("/main.rs")
            .or(inside.strip_suffix(".rs"))?;
        let program = format!("crates/{folder}/tests/{name}");
        let is_listed = PROGRAMS.iter().any(|(listed, _)| *listed == program);
        (!folder.contains('/') && !name.contains('/') && !is_listed).then_some(path)
    });
    added
        .map(|path| {
            let what = "one more program of tests: move it to tests/it, with a mod line in its \
                        main.rs, or add it to PROGRAMS with a reason";
            Finding::new(path, 0, what)
        })
        .collect()
}

/// Beside `lib.rs`, the sources of crate `foxton` lie in folders.
pub fn folders(tree: &Tree) -> Vec<Finding> {
    let beside = tree.sources().filter_map(|(_, path, _)| {
        let name = path.strip_prefix("crates/foxton/src/")?;
        (!name.contains('/') && name != "lib.rs").then_some(path)
    });
    beside
        .map(|path| Finding::new(path, 0, "a file beside lib.rs: move it into a folder"))
        .collect()
}

/// No type and no module has a retired name.
pub fn retired_names(tree: &Tree) -> Vec<Finding> {
    let retired = names::retired(tree).into_iter();
    retired
        .map(|one| {
            let (path, line) = one.place.rsplit_once(':').expect("a place has a line");
            let what = format!("{} is a retired name: use the glossary's word", one.name);
            Finding::new(path, line.parse().unwrap_or(0), what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_name_their_places() {
        let long = "word ".repeat(36);
        let wide = "x ".repeat(60);
        let text = format!("//! What a thing is here.\n//! {long}.\n//!\n//! {wide}\n");
        let tree = Tree::from_files([("crates/log/src/lib.rs", text)]);
        let counts: Vec<usize> = measure(&tree).iter().map(|one| one.places.len()).collect();
        assert_eq!(counts, [0, 2, 2, 1]);
        let found = &measure(&tree)[3].places[0];
        assert_eq!(found, "crates/log/src/lib.rs:1: What a thing is here.");
        assert_eq!(hold(&tree).len(), 3);
    }

    #[test]
    fn a_count_above_its_limit_fails() {
        let wide = format!("// {}\n", "x".repeat(120)).repeat(LIMITS.wide_lines + 1);
        let tree = Tree::from_files([("crates/log/src/lib.rs", wide)]);
        let findings = hold(&tree);
        assert!(
            findings
                .iter()
                .any(|one| one.what.contains("over 100 columns"))
        );
    }

    #[test]
    fn a_document_that_outgrows_its_size_fails() {
        let tree = Tree::from_files([
            ("README.md", "x".repeat((8 << 10) + 1)),
            ("docs/new.md", "x".repeat(ALL_DOCUMENTS)),
            ("docs/results/RESULTS.md", "x".repeat(ALL_DOCUMENTS)),
        ]);
        let places: Vec<_> = documents(&tree).into_iter().map(|one| one.path).collect();
        assert_eq!(places, ["README.md", "docs"]);
    }

    #[test]
    fn one_more_program_of_tests_is_found() {
        let tree = Tree::from_files([
            ("crates/log/tests/it/main.rs", "mod crash;"),
            ("crates/log/tests/it/crash.rs", ""),
            ("crates/log/tests/models/main.rs", ""),
            ("crates/log/tests/more.rs", ""),
            ("crates/log/tests/much/main.rs", ""),
            ("crates/log/tests/much/part.rs", ""),
            ("crates/log/src/tests.rs", ""),
        ]);
        let places: Vec<_> = programs(&tree).into_iter().map(|one| one.path).collect();
        assert_eq!(
            places,
            ["crates/log/tests/more.rs", "crates/log/tests/much/main.rs"]
        );
        let has_reason = |(path, why): &&(&str, &str)| !why.is_empty() || path.ends_with("/it");
        assert_eq!(PROGRAMS.iter().filter(has_reason).count(), PROGRAMS.len());
    }

    #[test]
    fn a_file_beside_the_root_is_found() {
        let tree = Tree::from_files([
            ("crates/foxton/src/lib.rs", "mod berth;"),
            ("crates/foxton/src/berth.rs", ""),
            ("crates/foxton/src/txn/begin.rs", ""),
        ]);
        let places: Vec<_> = folders(&tree).into_iter().map(|one| one.path).collect();
        assert_eq!(places, ["crates/foxton/src/berth.rs"]);
        assert_eq!(retired_names(&tree).len(), 1);
    }
}
