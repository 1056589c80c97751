//! One door to atomics, numbered orderings, and where `unsafe` may stand.

use crate::{
    Finding, paths,
    source::{self, Source},
    tree::Tree,
};
use std::collections::BTreeSet;

/// The one file that names the standard library's atomics, cells and thread parking.
const DOOR: &str = "crates/sync/src/shim.rs";

/// Beginnings of paths that only the door may name.
const BEHIND_THE_DOOR: [&[&str]; 5] = [
    &["sync", "atomic"],
    &["cell", "UnsafeCell"],
    &["thread", "park"],
    &["thread", "park_timeout"],
    &["hint", "spin_loop"],
];

/// Crates whose atomics carry numbers.
const NUMBERED: [&str; 6] = ["sync", "sampler", "lock", "log", "store", "foxton"];

/// Crates that are built with `#![forbid(unsafe_code)]`.
const SAFE: [&str; 7] = ["lock", "log", "foxton", "lab", "sim", "cli", "tidy"];

/// Places of `unsafe`: all of `sync`, a signal handler, these files of `store`, and calls into
/// other engines. In tests: the plain memory of a stress test, the allocators of three tests, the
/// handler of a signal test, a test that forks, and the cells of a model.
const UNSAFE: [&str; 20] = [
    "crates/sync/",
    "crates/sampler/src/signal.rs",
    "crates/store/src/memory/value.rs",
    "crates/store/src/memory/record.rs",
    "crates/store/src/memory/record/chain.rs",
    "crates/store/src/memory/record/new.rs",
    "crates/store/src/memory/record_hint.rs",
    "crates/store/src/memory/inline_slot/models.rs",
    "crates/store/src/memory/node.rs",
    "crates/store/src/memory/node/tree.rs",
    "crates/store/tests/models/frame.rs",
    "crates/lock/tests/stress/pair.rs",
    "crates/foxton/tests/after_a_peak.rs",
    "crates/foxton/tests/in_memory.rs",
    "crates/foxton/tests/outlives.rs",
    "crates/foxton/tests/signals.rs",
    "crates/foxton/tests/forked.rs",
    "peers/src/engine.rs",
    "peers/src/speed/engines/lmdb.rs",
    "peers/src/speed/engines/berkeley_calls.rs",
];

/// Atomics, cells and parking come from `foxton_sync::shim`, so that the model checker can stand
/// in for them. Tests may use the standard library's: what they count is not the program.
pub fn one_door_to_atomics(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, path, source) in tree.sources().filter(|&(_, path, _)| path != DOOR) {
        for root in ["std", "core", "loom"] {
            for (name, at) in paths::from_root(&source.code, root) {
                let hidden = BEHIND_THE_DOOR.iter().any(|door| name.starts_with(door));
                if (hidden || root == "loom") && !source.is_test(at) {
                    let name = name.join("::");
                    let what = format!("{root}::{name} is named outside {DOOR}");
                    findings.push(Finding::new(path, source.line(at), what));
                }
            }
        }
    }
    findings
}

/// Every ordering stronger than Relaxed names its pair, and the pair is defined in the file's
/// first page; every pair defined there is used.
pub fn numbered_orderings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, path, source) in tree.sources().filter(|(name, ..)| NUMBERED.contains(name)) {
        let defined: BTreeSet<String> = source.first_page().filter_map(definition).collect();
        let mut carried = BTreeSet::new();
        if path == DOOR {
            continue;
        }
        for (line, word) in strong_orderings(source) {
            let numbers = numbers_at(source, line);
            if numbers.is_empty() {
                let what = format!("{word} carries no O-number");
                findings.push(Finding::new(path, line, what));
            }
            for number in numbers.iter().filter(|number| !defined.contains(*number)) {
                let what = format!("{number} is not defined in the file's first page");
                findings.push(Finding::new(path, line, what));
            }
            carried.extend(numbers);
        }
        for number in defined.difference(&carried) {
            findings.push(Finding::new(
                path,
                0,
                format!("{number} is defined and nothing carries it"),
            ));
        }
    }
    findings
}

/// The lines on which an ordering stronger than Relaxed stands.
fn strong_orderings(source: &Source) -> BTreeSet<(usize, &'static str)> {
    let mut found = BTreeSet::new();
    for word in ["Acquire", "Release", "AcqRel", "SeqCst"] {
        for at in source::words(&source.code, word).filter(|&at| !source.is_test(at)) {
            let line = source.line(at);
            let text = &source.code[source.start_of(line)..at];
            // `use Ordering::Acquire` is no atomic operation.
            if !text.trim_start().starts_with("use ") && !text.contains(" use ") {
                found.insert((line, word));
            }
        }
    }
    found
}

/// The number a line of the first page defines: `* O1  who sees ..` or `- **O1** ..`.
fn definition(line: &str) -> Option<String> {
    let item = line.trim_start().strip_prefix(['*', '-', '|'])?;
    let item = item.trim_start_matches([' ', '*', '`']);
    numbers_in(item)
        .into_iter()
        .find(|number| item.starts_with(number.as_str()))
}

/// The O-numbers in the comments of the statement that `line` belongs to: beside it, on another of
/// its lines, above it, or below its opening brace, where the formatter may put a comment.
fn numbers_at(source: &Source, line: usize) -> BTreeSet<String> {
    let (code, comments) = (lines(&source.code), lines(&source.comments));
    let ends = |line: usize| code[line].is_empty() || code[line].ends_with([';', '{', '}']);
    let is_comment = |line: usize| code[line].is_empty() && !comments[line].is_empty();
    let (mut first, mut last) = (line - 1, line - 1);
    let beside = numbers_in(comments[last]);
    if !beside.is_empty() {
        return beside;
    }
    while first > 0 && !ends(first - 1) {
        first -= 1;
    }
    while first > 0 && is_comment(first - 1) {
        first -= 1;
    }
    while last + 1 < code.len() && !ends(last) {
        last += 1;
    }
    while code[last].ends_with('{') && last + 1 < code.len() && is_comment(last + 1) {
        last += 1;
    }
    comments[first..=last]
        .iter()
        .flat_map(|comment| numbers_in(comment))
        .collect()
}

fn lines(text: &str) -> Vec<&str> {
    text.split('\n').map(str::trim).collect()
}

fn numbers_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let numbers = words.filter(|word| {
        let digits = word.strip_prefix('O').unwrap_or("");
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    });
    numbers.map(str::to_owned).collect()
}

/// `unsafe` stands only in its files, and every other crate forbids it for good.
pub fn unsafe_in_its_place(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in tree.rust() {
        if !UNSAFE.iter().any(|place| path.starts_with(place)) {
            for at in source::words(&source.code, "unsafe") {
                findings.push(Finding::new(
                    path,
                    source.line(at),
                    "unsafe outside its files",
                ));
            }
        }
    }
    for (name, path, source) in tree.sources() {
        let root = ["/src/lib.rs", "/src/main.rs"]
            .iter()
            .any(|root| path.ends_with(root));
        if root && SAFE.contains(&name) && !source.code.contains("#![forbid(unsafe_code)]") {
            findings.push(Finding::new(
                path,
                0,
                "the crate does not forbid unsafe code",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(findings: Vec<Finding>) -> Vec<String> {
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn only_the_shim_names_atomics() {
        let tree = Tree::from_files([
            (DOOR, "pub use std::sync::atomic::AtomicU64;\n"),
            (
                "crates/lock/src/a.rs",
                "use std::{\n    sync::{Arc, atomic::AtomicU64},\n};\nfn f() { std::thread::park() }\n#[cfg(test)]\nmod tests { use std::sync::atomic::AtomicU8; }\n",
            ),
            (
                "crates/lock/tests/b.rs",
                "use std::sync::atomic::AtomicU64;\n",
            ),
        ]);
        assert_eq!(
            told(one_door_to_atomics(&tree)),
            [
                format!(
                    "crates/lock/src/a.rs:2: std::sync::atomic::AtomicU64 is named outside {DOOR}"
                ),
                format!("crates/lock/src/a.rs:4: std::thread::park is named outside {DOOR}"),
            ]
        );
    }

    #[test]
    fn an_ordering_carries_a_number_that_is_defined() {
        let file = "\
//! A latch.
//!
//! * O1  `unlock` to `lock`.
//! * O3  nothing.

use crate::shim::Ordering::{self, Acquire};

fn f(word: &Word) {
    word.load(Ordering::Acquire); // O1
    word.load(Ordering::Acquire);
    word.load(Ordering::Acquire); // O2
    // O1: on failure nothing was read.
    word.compare_exchange(
        1,
        2,
        Ordering::AcqRel,
        Ordering::Relaxed,
    );
    word.store(1, Ordering::Relaxed);
    if word.load(Ordering::Acquire) {
        // O1
        return;
    }
    word.compare_exchange(
        Ordering::AcqRel,
        Ordering::Relaxed,
    ) // O1
    .is_ok()
}
";
        let tree = Tree::from_files([("crates/sync/src/latch.rs", file)]);
        assert_eq!(
            told(numbered_orderings(&tree)),
            [
                "crates/sync/src/latch.rs:10: Acquire carries no O-number",
                "crates/sync/src/latch.rs:11: O2 is not defined in the file's first page",
                "crates/sync/src/latch.rs:0: O3 is defined and nothing carries it",
            ]
        );
    }

    #[test]
    fn unsafe_has_its_files() {
        let tree = Tree::from_files([
            ("crates/sync/src/queue.rs", "unsafe fn f() {}\n"),
            (
                "crates/store/src/memory/record.rs",
                "fn f() { unsafe {} }\n",
            ),
            (
                "crates/store/src/memory/table.rs",
                "// not unsafe\nfn f() { unsafe {} }\n",
            ),
            ("crates/log/src/lib.rs", "//! What happened.\n"),
            ("crates/lab/src/lib.rs", "#![forbid(unsafe_code)]\n"),
        ]);
        assert_eq!(
            told(unsafe_in_its_place(&tree)),
            [
                "crates/store/src/memory/table.rs:2: unsafe outside its files",
                "crates/log/src/lib.rs:0: the crate does not forbid unsafe code",
            ]
        );
    }
}
