//! Where threads can meet, a site is declared: the account of communication does not rot.
//!
//! A place is a read-modify-write of an atomic, a mutex taken, or a queue between threads. It is
//! accounted for if the function it stands in counts a passage (`passed(..)`), or if a comment
//! names the site at which its callers count it:
//!
//! ```text
//! // Site: "lock wait".
//! let mut wait = lock(&self.wait);
//! ```
//!
//! The site must exist. Files that know no worker stand in a list with how many places they have
//! and who counts them; what no transaction passes stands in another, with the reason. An entry
//! that does not agree with its file is a finding, too.

use crate::{
    Finding, ladder,
    source::{self, Source},
    tree::Tree,
};
use std::collections::{BTreeMap, BTreeSet};

/// The crates that transactions run through.
const ACCOUNTED: [&str; 5] = ["sync", "lock", "log", "store", "foxton"];

/// Beginnings of calls on atomics, mutexes and queues that several threads share.
const CALLS: [&str; 14] = [
    ".fetch_add(",
    ".fetch_sub(",
    ".fetch_or(",
    ".fetch_and(",
    ".fetch_xor(",
    ".fetch_max(",
    ".fetch_min(",
    ".fetch_update(",
    ".compare_exchange(",
    ".compare_exchange_weak(",
    ".lock()",
    ".try_lock()",
    "sync_channel(",
    "mpsc::channel(",
];

/// Functions that take a mutex, wherever they are called from.
const TAKE_A_MUTEX: [&str; 2] = ["lock", "try_lock"];

/// Files and folders that are not in the account, and why.
const APART: &[(&str, &str)] = &[
    ("crates/sync/src/shim.rs", "std under another name"),
    (
        "crates/sync/src/latch/",
        "a latch is counted by `Latched` and its kin, with the site it was given",
    ),
    (
        "crates/log/src/write/model.rs",
        "what stands for a log when the model checker looks at its parts",
    ),
    (
        "crates/sync/src/failpoint.rs",
        "where tests step in; not there without the feature `hooks`",
    ),
    (
        "crates/sync/src/clock.rs",
        "a clock that only tests set forward",
    ),
    (
        "crates/sync/src/process.rs",
        "the first databases that a process opens, once",
    ),
    ("crates/lock/src/inspect.rs", "who looks in"),
    ("crates/foxton/src/observe/", "who looks in"),
    (
        "crates/foxton/src/admin/backup/",
        "a copy being made, beside transactions and without them",
    ),
    (
        "crates/foxton/src/recovery/restart.rs",
        "before the database is open",
    ),
    (
        "crates/foxton/src/options/progress.rs",
        "before the database is open",
    ),
    (
        "crates/foxton/src/api/database.rs",
        "the place where databases are opened",
    ),
    (
        "crates/foxton/src/checkpoint/load.rs",
        "before the database is open",
    ),
    (
        "crates/store/src/paged/space/",
        "the header of the page file, written when the file grows",
    ),
    (
        "crates/store/src/paged/recovery/",
        "restart of pages, before the database is open",
    ),
    (
        "crates/store/src/paged/owner.rs",
        "redo and undo of pages, each of which waits for a page or the log",
    ),
    (
        "crates/log/src/device/",
        "stands for the operating system; called with \"log output\" or \"log sync\" held",
    ),
];

/// Files whose places are counted by who calls them, since they know no worker: how many places
/// there are, at which sites they are counted, and what of them is nobody's. One more in the file
/// is a finding, so that whoever adds it looks whether it is counted.
const COUNTED_ELSEWHERE: &[(&str, usize, &str)] = &[
    (
        "crates/sync/src/worker.rs",
        3,
        "\"worker registry\"; the accounts and tallies are added up by who looks in",
    ),
    (
        "crates/sync/src/epoch/domain.rs",
        3,
        "\"epoch advance\", once for all that a full bag takes, and once for a lot of ticks; making a domain is nobody's",
    ),
    (
        "crates/sync/src/epoch/retired.rs",
        5,
        "\"epoch advance\", once for all that a full bag takes",
    ),
    (
        "crates/sync/src/epoch/slot.rs",
        4,
        "\"worker registry\": a slot is taken and given back with its worker",
    ),
    (
        "crates/store/src/memory/node/tree.rs",
        1,
        "making a table is nobody's",
    ),
    (
        "crates/sync/src/consolidation.rs",
        5,
        "\"log buffer, group\", once for all that joining and leaving a group takes",
    ),
    (
        "crates/sync/src/park.rs",
        8,
        "\"waking\", once by the sleeper and once by the waker; \"lock wait\" beside it",
    ),
    (
        "crates/sync/src/ring.rs",
        4,
        "\"waking\" by who completes the place that the taker waits for; \"log output\" by the taker",
    ),
    (
        "crates/sync/src/ring/allocator.rs",
        3,
        "\"log buffer, one word\"",
    ),
    (
        "crates/lock/src/owner/owner_table.rs",
        23,
        "\"lock wait\" for the wait, who waits for whom, and what it cost; an owner's place is taken and given back with its worker (\"worker registry\"); labels are for people",
    ),
    (
        "crates/lock/src/owner/remembered/mod.rs",
        10,
        "\"remembered locks\"",
    ),
    (
        "crates/lock/src/owner/remembered/entry.rs",
        2,
        "none: its `lock` says what an entry locks",
    ),
    (
        "crates/lock/src/deadlock/mod.rs",
        2,
        "reports of deadlocks: \"lock detection\" was passed on the way",
    ),
    (
        "crates/lock/src/managers/inherit.rs",
        2,
        "\"inherited locks\": when an owner is made, and by `verify`",
    ),
    (
        "crates/lock/src/managers/direct/mod.rs",
        2,
        "what revoking has cost: \"lock revocation\"",
    ),
    (
        "crates/lock/src/managers/direct/granule.rs",
        5,
        "\"lock granule\", and \"lock revocation\" for what a walk sets; a granule becomes biased again once for each time it was revoked",
    ),
    (
        "crates/lock/src/managers/sharded/detector.rs",
        3,
        "\"lock detector\" by who rings; the thread that hears is the other side",
    ),
    (
        "crates/lock/src/managers/staged/free_flags.rs",
        1,
        "\"lock chain\"",
    ),
    (
        "crates/lock/src/managers/staged/lock_index.rs",
        8,
        "\"lock segments\"",
    ),
    (
        "crates/lock/src/managers/staged/request.rs",
        3,
        "\"lock wait\" and \"lock chain\"; \"lock segments\" for a segment that nobody has had",
    ),
    (
        "crates/lock/src/managers/staged/unlink.rs",
        2,
        "\"lock chain\", with the release",
    ),
    (
        "crates/lock/src/managers/staged/chain_word.rs",
        1,
        "\"lock chain\", with the request or the release",
    ),
    (
        "crates/store/src/paged/frame/latch.rs",
        8,
        "\"page latch\"; the mutex of its waiters only after spinning",
    ),
    ("crates/store/src/paged/frame/mod.rs", 4, "\"page frame\""),
    ("crates/store/src/paged/reserve.rs", 15, "\"free frames\""),
    (
        "crates/store/src/paged/pool/mod.rs",
        2,
        "\"page latch\": the number of dirty pages",
    ),
    (
        "crates/store/src/paged/pool/evict.rs",
        1,
        "statistics, with \"replacement\"",
    ),
    (
        "crates/store/src/paged/pool/load.rs",
        1,
        "statistics, once for each read",
    ),
    (
        "crates/store/src/paged/pool/clean.rs",
        1,
        "statistics, once for each batch",
    ),
    (
        "crates/sync/src/admission.rs",
        5,
        "\"admission\", as often as its callers are told; letting in ends a crowd, once in a second",
    ),
    (
        "crates/sync/src/admission/load.rs",
        6,
        "\"blocked transactions\", by who blocks and goes on; the rule is nobody's who finds it taken; who is there, ten times a second",
    ),
    (
        "crates/sync/src/admission/slots.rs",
        3,
        "\"admission\", as often as the admission tells its callers",
    ),
    (
        "crates/lock/src/managers/staged/chain_stack.rs",
        2,
        "\"lock chain\", once for a request and once for its release",
    ),
    (
        "crates/lock/src/managers/staged/chain_tail.rs",
        5,
        "\"lock chain\", once for a request and once for its release",
    ),
    (
        "crates/log/src/buffer/hybrid.rs",
        2,
        "why nothing more is taken: once the log is over",
    ),
    (
        "crates/log/src/write/group_commit.rs",
        1,
        "how often there was a sync, asked by who looks in",
    ),
    (
        "crates/log/src/log.rs",
        3,
        "the flusher's thread, when the log is opened and closed",
    ),
    (
        "crates/foxton/src/engine/large_transactions.rs",
        1,
        "only who looks in",
    ),
    (
        "crates/foxton/src/engine/persistence.rs",
        2,
        "only without space in the log, and by checkpoints",
    ),
    (
        "crates/foxton/src/engine/context_pool.rs",
        11,
        "\"pool overflow\", with the box that is taken or made; when the pool is trimmed, in the background; and when the database is closed",
    ),
    (
        "crates/foxton/src/catalog/mod.rs",
        20,
        "\"catalog\" and \"indexes of a table\", while indexes are made and dropped and tables converted or dropped, when the database is opened and when it goes, and by who looks in",
    ),
    (
        "crates/foxton/src/api/index_build.rs",
        2,
        "threads that fill an index together, before anybody reads by it",
    ),
    (
        "crates/foxton/src/engine/background.rs",
        12,
        "\"background thread\"; the thread itself is the other side, and the thread that closes",
    ),
    (
        "crates/foxton/src/checkpoint/mod.rs",
        6,
        "the thread that makes checkpoints, and who asks it for one; \"checkpoint due\" by whose commit makes one due",
    ),
    (
        "crates/foxton/src/checkpoint/throttle.rs",
        1,
        "who asks what checkpoints have come to; the rest is \"checkpoint due\"",
    ),
    (
        "crates/foxton/src/checkpoint/pacing.rs",
        1,
        "what a checkpoint has come to: written by its thread",
    ),
    (
        "crates/foxton/src/engine/slot.rs",
        11,
        "\"session slot\", \"idle slot\" and \"pool cell\", by the user that puts a box in or takes it out; the others are \
         those of the idle timeout thread, of the close of a database and of the display of transactions",
    ),
    (
        "crates/foxton/src/engine/idle_timeout.rs",
        4,
        "\"idle slots\", once for each context; the idle timeout thread, and its end",
    ),
];

/// Every place where threads can meet is counted, or says at which site it is counted, or is apart.
pub fn accounted(tree: &Tree) -> Vec<Finding> {
    let sites = sites(tree);
    let mut findings = Vec::new();
    let (mut apart_used, mut elsewhere) = (BTreeSet::new(), BTreeMap::<&str, usize>::new());
    for (name, path, source) in tree.sources() {
        if !ACCOUNTED.contains(&name) || ladder::is_for_tests(tree, path) {
            continue;
        }
        for (at, call) in places(source) {
            if let Some(entry) = APART
                .iter()
                .position(|(where_, _)| path.starts_with(where_))
            {
                apart_used.insert(entry);
                continue;
            }
            let line = source.line(at);
            match named_site(source, line) {
                Some(site) if sites.contains(&site) => {}
                Some(site) => {
                    let what = format!("there is no site called \"{site}\"");
                    findings.push(Finding::new(path, line, what));
                }
                None if counts(source, at) => {}
                None if COUNTED_ELSEWHERE.iter().any(|(file, ..)| *file == path) => {
                    *elsewhere.entry(path).or_default() += 1;
                }
                None => {
                    let what = format!(
                        "threads can meet at `{call}`, and no site is passed: count it, or say where \
                         it is counted as `// Site: \"name\".`"
                    );
                    findings.push(Finding::new(path, line, what));
                }
            }
        }
    }
    // A tree made up for a test need not have what the list has.
    let whole = tree.source("crates/sync/src/site.rs").is_some();
    for (entry, (path, _)) in APART.iter().enumerate() {
        if whole && !apart_used.contains(&entry) {
            findings.push(Finding::new(
                path,
                0,
                "is in the list of what is apart, and nothing in it is",
            ));
        }
    }
    for &(path, listed, _) in COUNTED_ELSEWHERE.iter().filter(|_| whole) {
        let found = elsewhere.get(path).copied().unwrap_or(0);
        if found != listed {
            let what = format!(
                "{found} places where threads can meet are counted by the callers of this file, and \
                 the list in crates/tidy/src/meetings.rs says {listed}: is each of them counted?"
            );
            findings.push(Finding::new(path, 0, what));
        }
    }
    findings.extend(never_passed(tree));
    findings
}

/// The offsets of the places in one file, and how the call begins.
fn places(source: &Source) -> Vec<(usize, &'static str)> {
    let code = &source.code;
    let mut found = Vec::new();
    for call in CALLS {
        found.extend(code.match_indices(call).map(|(at, _)| (at, call)));
    }
    // Of a slice there is a `swap`, too; of an atomic it says how it is ordered.
    let ordered = |at: usize| {
        let call = arguments(&code[at..]);
        ["Relaxed", "Acquire", "Release", "AcqRel"]
            .iter()
            .any(|order| call.contains(order))
    };
    let swaps = code.match_indices(".swap(").filter(|&(at, _)| ordered(at));
    found.extend(swaps.map(|(at, _)| (at, ".swap(")));
    for name in TAKE_A_MUTEX {
        let calls = source::words(code, name).filter(|&at| {
            let before = code[..at].trim_end();
            let call = &code[at + name.len()..];
            let is_call = call.starts_with('(') && !arguments(call).is_empty();
            is_call && !before.ends_with("fn") && !before.ends_with('.')
        });
        found.extend(calls.map(|at| (at, name)));
    }
    found.retain(|&(at, _)| !source.is_test(at));
    found.sort_unstable();
    found
}

/// Returns the text between the first parenthesis of `code` and its closing one.
fn arguments(code: &str) -> &str {
    let open = code.find('(').map_or(code.len(), |at| at + 1);
    let mut depth = 1;
    let end = code[open..].find(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    code[open..].split_at(end.unwrap_or(code.len() - open)).0
}

/// Whether the function around `at` counts a passage: the innermost that has a name.
fn counts(source: &Source, at: usize) -> bool {
    let code = &source.code;
    let mut around = None;
    for from in source::words(code, "fn") {
        let Some(open) = code[from..].find(['{', ';']).map(|open| from + open) else {
            continue;
        };
        let has_a_name = code[from + 3..].starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        if has_a_name && code[open..].starts_with('{') {
            let end = source::past_brace(code, open);
            if (open..end).contains(&at) {
                around = Some((open, end));
            }
        }
    }
    around.is_some_and(|(open, end)| {
        let body = &code[open..end];
        body.contains("passed(") || body.contains("passed_many(")
    })
}

/// The site named in the comments beside the statement on `line`, or right above it.
fn named_site(source: &Source, line: usize) -> Option<String> {
    let comments: Vec<&str> = source.comments.split('\n').collect();
    let code: Vec<&str> = source.code.split('\n').map(str::trim).collect();
    let mut at = line - 1;
    loop {
        if let Some(name) = comments[at].split("Site: \"").nth(1) {
            return name.split('"').next().map(str::to_owned);
        }
        // Up through the statement, and through the comments above it.
        let above = at.checked_sub(1)?;
        if code[above].ends_with([';', '{', '}', ',']) {
            return None;
        }
        at = above;
    }
}

/// The names of all sites that are declared.
fn sites(tree: &Tree) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, _, source) in tree.sources() {
        for (at, _) in source.code.match_indices("Site::new(") {
            let end = at + source.code[at..].find(';').unwrap_or(0);
            if let Some(name) = source.text[at..end].split('"').nth(1) {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

/// Sites that are declared and that nothing passes.
fn never_passed(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (crate_, path, source) in tree.sources() {
        if !ACCOUNTED.contains(&crate_) {
            continue;
        }
        for at in source::words(&source.code, "static").filter(|&at| !source.is_test(at)) {
            let rest = source.code[at + 6..].trim_start();
            let Some((name, kind)) = rest.split_once(':') else {
                continue;
            };
            if !kind.trim_start().starts_with("Site ") {
                continue;
            }
            let is_public = source.code[..at].trim_end().ends_with(')')
                || source.code[..at].trim_end().ends_with("pub");
            let uses = |other: &Source| source::words(&other.code, name).count();
            let passed = match is_public {
                true => {
                    tree.sources()
                        .map(|(_, _, other)| uses(other))
                        .sum::<usize>()
                        > 1
                }
                false => {
                    let folder = path.trim_end_matches(".rs").trim_end_matches("/mod");
                    let near = tree.sources().filter(|(_, other, _)| {
                        *other == path || other.starts_with(&format!("{folder}/"))
                    });
                    near.map(|(_, _, other)| uses(other)).sum::<usize>() > 1
                }
            };
            if !passed {
                let what = format!("the site {name} is declared and never passed");
                findings.push(Finding::new(path, source.line(at), what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        let site = "static TAIL: Site = Site::new(Component::Log, Pattern::Unbounded, \"tail\");\nfn u() { w.passed(&TAIL); }\n";
        let tree = Tree::from_files([("crates/log/src/a.rs", text), ("crates/log/src/b.rs", site)]);
        accounted(&tree).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_shared_counter_that_no_site_declares_is_found() {
        let findings = told("fn count(&self) {\n    self.0.fetch_add(1, Relaxed);\n}\n");
        assert_eq!(findings.len(), 1);
        assert!(
            findings[0].starts_with("crates/log/src/a.rs:2: threads can meet at `.fetch_add(`")
        );
        for call in [
            "lock(&self.map).clear()",
            "shim::lock(&self.map).clear()",
            "self.0.swap(new, Ordering::AcqRel)",
            "self\n        .0\n        .compare_exchange(a, b, Relaxed, Relaxed)",
            "let (to, from) = sync_channel(1)",
            "let (to, from) = mpsc::channel()",
            "self.0.swap(f(x), Ordering::AcqRel)",
            "let content = shim::try_lock(place)",
        ] {
            assert_eq!(
                told(&format!("fn f() {{\n    {call};\n}}\n")).len(),
                1,
                "{call}"
            );
        }
    }

    #[test]
    fn a_file_of_tests_is_apart_if_its_line_says_so() {
        let told = |line: &str| {
            let meets = "fn f() {\n    self.0.fetch_add(1, Relaxed);\n}\n";
            let tree = Tree::from_files([
                ("crates/log/src/lib.rs", "mod a;\n"),
                ("crates/log/src/a.rs", line),
                ("crates/log/src/a/tests.rs", meets),
            ]);
            accounted(&tree).len()
        };
        assert_eq!(told("#[cfg(all(test, not(loom)))]\nmod tests;\n"), 0);
        assert_eq!(told("mod tests;\n"), 1);
    }

    #[test]
    fn what_is_counted_where_it_stands_or_where_it_says_is_accounted_for() {
        for body in [
            "w.passed(&TAIL);\n    self.0.fetch_add(1, Relaxed);",
            "// Site: \"tail\".\n    self.0.fetch_add(1, Relaxed);",
            "self.0.fetch_add(1, Relaxed); // Site: \"tail\".",
            "// Site: \"tail\".\n    let won = self.0\n        .fetch_add(1, Relaxed);",
            "rows.swap(a, b);",
        ] {
            assert_eq!(
                told(&format!("fn f() {{\n    {body}\n}}\n")),
                [""; 0],
                "{body}"
            );
        }
    }

    #[test]
    fn a_mark_names_a_site_that_there_is_and_belongs_to_one_statement() {
        let wrong =
            told("fn f() {\n    // Site: \"tale\".\n    self.0.fetch_add(1, Relaxed);\n}\n");
        assert_eq!(
            wrong,
            ["crates/log/src/a.rs:3: there is no site called \"tale\""]
        );
        let two = "fn f() {\n    // Site: \"tail\".\n    a.fetch_add(1, Relaxed);\n    b.fetch_add(1, Relaxed);\n}\n";
        assert_eq!(told(two).len(), 1);
        // Another function that counts does not count for this one.
        let other = "fn f() {\n    a.fetch_add(1, Relaxed);\n}\nfn g() { w.passed(&TAIL); }\n";
        assert_eq!(told(other).len(), 1);
    }

    #[test]
    fn a_site_that_nothing_passes_is_found() {
        let findings =
            told("static HEAD: Site = Site::new(Component::Log, Pattern::Fixed, \"head\");\n");
        assert_eq!(
            findings,
            ["crates/log/src/a.rs:1: the site HEAD is declared and never passed"]
        );
    }
}
