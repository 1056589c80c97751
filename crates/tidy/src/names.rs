//! Names of types and modules: each stands once on the ladder, and retired words stay away.
//!
//! A reader who meets a type's name should not have to ask which of two it is.

use crate::{
    source::{self, Source},
    tree::Tree,
};
use std::collections::BTreeMap;

/// The crates in which a type's name stands once.
const LADDER: [&str; 5] = ["sync", "lock", "log", "store", "foxton"];

/// Words that say the same thing in every module that has them.
const COMMON: [&str; 4] = ["Error", "Kind", "Options", "State"];

/// Names of types and modules that were replaced by the field's words, by crate.
const RETIRED: [(&str, &[&str]); 5] = [
    (
        "foxton",
        &[
            "Berth",
            "Rack",
            "Home",
            "Rest",
            "Idler",
            "Idlers",
            "Keeper",
            "Early",
            "Seen",
            "Until",
            "Canceller",
            "Door",
            "Tenure",
            "Membership",
            "Hand",
            "Up",
            "Brief",
            "Span",
            "Step",
            "Marks",
            "Locker",
            "Hold",
            "Met",
            "Tended",
            "Statement",
            "Leading",
            "Wanted",
            "Maker",
            "Gathered",
            "Gauge",
            "Pace",
            "Terms",
            "Permit",
            "Held",
            "Passed",
            "Shut",
            "Bell",
            "Trouble",
            "Told",
            "Senseless",
            "berth",
            "rack",
            "rest",
            "idlers",
            "idle_ender",
            "hand",
            "tenure",
            "keeper",
            "early",
            "brief",
            "marks",
            "span",
            "step",
            "statement",
            "by",
            "drive",
            "hold",
            "many",
            "declare",
            "run",
            "place",
            "wire",
            "look",
            "failed",
            "planted",
            "picture",
            "gathered",
            "fold",
            "maker",
            "pace",
            "trouble",
            "alike",
            "encoded",
        ],
    ),
    (
        "lock",
        &[
            "Any", "Estate", "Kept", "Notes", "Registry", "Held", "Room", "Ledger", "Line",
            "Obstacle", "Reach", "Way", "Heads", "Lone", "Patience", "Passed", "World", "usage",
            "held", "estate", "notes", "room", "registry", "bound", "keep", "waits", "reach",
            "queued", "heads", "ways", "lent", "lending", "weighing", "ends", "show", "at_once",
            "ask", "give", "detect", "explored", "calls", "asking", "ending", "leaving", "seeing",
            "line", "stack", "tail", "word", "index", "flags", "escalate",
        ],
    ),
    (
        "log",
        &[
            "Core", "Drain", "Outlet", "Turn", "Untold", "Turns", "Room", "Output", "Halt",
            "Paper", "Draft", "Placed", "Reach", "Follower", "mark", "follow", "fetch", "turn",
            "patience", "room", "point", "output", "restart", "desk", "outlet", "flush",
        ],
    ),
    (
        "sync",
        &[
            "Claim", "Place", "Taker", "Seat", "Pile", "Filling", "Hooks", "Point", "Tally",
            "pages", "named", "hook", "group", "pile", "seats", "line", "crowd", "rule", "tally",
            "trial", "engine",
        ],
    ),
    ("store", &["Room", "Left", "Probe", "room", "probe"]),
];

/// A definition of a type or a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The crate's folder.
    pub floor: String,
    /// Path and line.
    pub place: String,
    /// The name.
    pub name: String,
    is_type: bool,
}

/// Returns, for each type name that stands more than once on the ladder, where it stands.
pub fn duplicates(tree: &Tree) -> Vec<(String, Vec<Definition>)> {
    let mut by_name: BTreeMap<String, Vec<Definition>> = BTreeMap::new();
    for definition in definitions(tree).filter(|one| one.is_type) {
        let common = COMMON.contains(&definition.name.as_str());
        let is_iterator = definition.name.ends_with("Iter");
        if !common && !is_iterator {
            by_name
                .entry(definition.name.clone())
                .or_default()
                .push(definition);
        }
    }
    by_name
        .into_iter()
        .filter(|(_, all)| all.len() > 1)
        .collect()
}

/// Returns the types and modules that have a retired name.
pub fn retired(tree: &Tree) -> Vec<Definition> {
    let is_retired = |one: &Definition| {
        let words = RETIRED.iter().find(|(floor, _)| *floor == one.floor);
        words.is_some_and(|(_, words)| words.contains(&one.name.as_str()))
    };
    definitions(tree).filter(is_retired).collect()
}

fn definitions(tree: &Tree) -> impl Iterator<Item = Definition> {
    tree.sources()
        .filter(|(floor, ..)| LADDER.contains(floor))
        .flat_map(|(floor, path, source)| in_file(floor, path, source))
}

/// Returns what one file defines outside of tests and of macros.
fn in_file(floor: &str, path: &str, file: &Source) -> Vec<Definition> {
    let mut found = Vec::new();
    for word in ["struct", "enum", "union", "trait", "mod"] {
        for at in source::words(&file.code, word).filter(|&at| !file.is_test(at)) {
            let rest = file.code[at + word.len()..].trim_start();
            let name: String = rest
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            let before = file.code[..at].trim_end();
            // `$struct` in a macro, and words that a macro matches, define nothing.
            if !name.is_empty() && !before.ends_with('$') {
                found.push(Definition {
                    floor: floor.to_owned(),
                    place: format!("{path}:{}", file.line(at)),
                    name,
                    is_type: word != "mod",
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_stands_twice_is_found_once_and_tests_do_not_count() {
        let tree = Tree::from_files([
            ("crates/lock/src/a.rs", "pub struct Wait;\nenum Kind {}\n"),
            (
                "crates/log/src/b.rs",
                "struct Wait;\nenum Kind {}\n#[cfg(test)]\nmod tests { struct Other; }\n",
            ),
            ("crates/store/src/c.rs", "struct Other;\n"),
            ("crates/lab/src/d.rs", "struct Wait;\n"),
        ]);
        let found: Vec<_> = duplicates(&tree).into_iter().collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "Wait");
        let places: Vec<_> = found[0].1.iter().map(|one| &*one.place).collect();
        assert_eq!(places, ["crates/lock/src/a.rs:1", "crates/log/src/b.rs:1"]);
    }

    #[test]
    fn retired_words_are_found_in_their_crate_alone() {
        let tree = Tree::from_files([
            (
                "crates/foxton/src/a.rs",
                "mod berth;\nstruct Rack<T>(T);\nstruct Racket;\n",
            ),
            ("crates/lock/src/a.rs", "struct Berth;\n"),
        ]);
        let names: Vec<_> = retired(&tree).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["Rack", "berth"]);
    }
}
