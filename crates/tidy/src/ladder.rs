//! Dependencies between crates and between modules.
//!
//! Between crates the ladder is a table here, and `Cargo.toml` is checked against it. Inside a
//! crate the ladder is the order of the `mod` lines: a module uses modules on lines above its own.
//! The same holds for the children of a module. Code that is compiled only for tests may use
//! modules above.

use crate::{
    Finding, paths,
    source::{self, Source},
    tree::Tree,
};

/// Each crate folder and what it may stand on. Locks know nothing of the log, the log and the
/// store nothing of locks: only `foxton` knows both.
const FLOORS: [(&str, &[&str]); 10] = [
    ("sync", &[]),
    ("sampler", &["sync"]),
    ("lock", &["sync"]),
    ("log", &["sync"]),
    ("store", &["sync", "log"]),
    ("foxton", &["sync", "lock", "log", "store"]),
    (
        "lab",
        &["sync", "sampler", "lock", "log", "store", "foxton"],
    ),
    ("sim", &["sync", "lock", "log", "store", "foxton"]),
    (
        "cli",
        &["sync", "lock", "log", "store", "foxton", "lab", "sim"],
    ),
    ("tidy", &[]),
];

/// Every dependency of a crate on a crate of ours goes down the ladder.
pub fn between_crates(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        let name = path
            .strip_prefix("crates/")
            .and_then(|rest| rest.strip_suffix("/Cargo.toml"));
        let Some(name) = name else { continue };
        let Some((_, below)) = FLOORS.iter().find(|(floor, _)| *floor == name) else {
            findings.push(Finding::new(
                path,
                0,
                format!("{name} has no floor on the ladder"),
            ));
            continue;
        };
        for (line, other) in dependencies(text) {
            if !below.contains(&other) {
                let what = format!("{name} depends on {other}, which it must not know");
                findings.push(Finding::new(path, line, what));
            }
        }
    }
    findings
}

/// The crates of ours that a manifest names as dependencies, by folder.
fn dependencies(manifest: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    manifest
        .lines()
        .enumerate()
        .filter_map(move |(index, line)| {
            if let Some(section) = line.strip_prefix('[') {
                inside = section.contains("dependencies");
            }
            let package = line.split(['.', ' ', '=']).next().filter(|_| inside)?;
            let other = match package {
                "foxton" => "foxton",
                _ => package.strip_prefix("foxton-")?,
            };
            Some((index + 1, other))
        })
}

/// A `mod` line.
#[derive(Debug)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Whether the line is compiled only for tests.
    pub test: bool,
    /// Whether its text stands in a file of its own.
    pub in_file: bool,
}

/// The `mod` lines of one file, in order.
pub fn modules(source: &Source) -> Vec<Module> {
    let code = &source.code;
    let found = source::words(code, "mod").filter_map(|at| {
        let rest = code[at + 3..].trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        let after = rest[end..].trim_start();
        let in_file = after.starts_with(';');
        (end > 0 && (in_file || after.starts_with('{'))).then(|| Module {
            name: rest[..end].to_owned(),
            test: source.is_test(at),
            in_file,
        })
    });
    found.collect()
}

/// The module path of a file under `src`, and the root file that its crate path starts from.
/// Binaries are crates of their own: their root is themselves.
pub fn place(path: &str) -> Option<(String, Vec<&str>)> {
    let (folder, inside) = path.split_once("/src/")?;
    let inside = inside.strip_suffix(".rs")?;
    if inside == "main" || inside.starts_with("bin/") {
        return None;
    }
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    let segments = if inside == "lib" {
        Vec::new()
    } else {
        inside.split('/').collect()
    };
    Some((format!("{folder}/src"), segments))
}

/// The file of the module at `segments` in the crate whose sources are in `folder`.
pub fn file_of(tree: &Tree, folder: &str, segments: &[&str]) -> Option<String> {
    let flat = match segments {
        [] => format!("{folder}/lib.rs"),
        _ => format!("{folder}/{}.rs", segments.join("/")),
    };
    let nested = format!("{folder}/{}/mod.rs", segments.join("/"));
    [flat, nested]
        .into_iter()
        .find(|path| tree.source(path).is_some())
}

/// No module uses a module on a line below its own.
pub fn inside_crates(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, path, source) in tree.sources() {
        let Some((folder, here)) = place(path) else {
            continue;
        };
        if only_for_tests(tree, &folder, &here) {
            continue;
        }
        for (target, at) in uses(&source.code, &here) {
            if source.is_test(at) {
                continue;
            }
            if let Some((lower, upper)) = looks_up(tree, &folder, &here, &target) {
                let what = format!("{lower} uses {upper}, which stands on it");
                findings.push(Finding::new(path, source.line(at), what));
            }
        }
    }
    findings
}

/// Every path used in `code`, from the root of the crate, with its offset.
fn uses<'a>(code: &'a str, here: &[&'a str]) -> Vec<(Vec<&'a str>, usize)> {
    let mut found = paths::from_root(code, "crate");
    for (path, at) in paths::from_root(code, "super") {
        let ups = 1 + path
            .iter()
            .take_while(|&&segment| segment == "super")
            .count();
        // `super` in an inline module means this file; there the path is a little too high, and
        // a path that is too high only ever names fewer modules.
        let Some(kept) = here.len().checked_sub(ups) else {
            continue;
        };
        let from_root = here[..kept]
            .iter()
            .chain(&path[ups - 1..])
            .copied()
            .collect();
        found.push((from_root, at));
    }
    found
}

/// The two modules, if `target` lies on a line below the one that `here` lies on.
fn looks_up(tree: &Tree, folder: &str, here: &[&str], target: &[&str]) -> Option<(String, String)> {
    let shared = here.iter().zip(target).take_while(|(a, b)| a == b).count();
    let (mine, theirs) = (here.get(shared)?, target.get(shared)?);
    let parent = tree.source(&file_of(tree, folder, &here[..shared])?)?;
    let modules = modules(parent);
    let line = |name: &str| modules.iter().position(|module| module.name == name);
    let theirs = match line(theirs) {
        Some(_) => (*theirs).to_owned(),
        None => reexported_from(parent, theirs)?,
    };
    (line(&theirs)? > line(mine)?).then(|| ((*mine).to_owned(), theirs))
}

/// The child module that `parent` re-exports `item` from.
fn reexported_from(parent: &Source, item: &str) -> Option<String> {
    let uses = source::words(&parent.code, "use").filter_map(|at| {
        let rest = &parent.code[at + 3..];
        let tree = &rest[..rest.find(';')?];
        let tree = tree.trim_start().trim_start_matches("self::");
        let module = tree.split("::").next()?.trim();
        source::words(tree, item).next().map(|_| module.to_owned())
    });
    uses.last()
}

/// Whether the file is compiled only for tests: a `mod` line on the way to it is.
pub fn is_for_tests(tree: &Tree, path: &str) -> bool {
    place(path).is_some_and(|(folder, here)| only_for_tests(tree, &folder, &here))
}

/// Whether a `mod` line on the way to `here` is compiled only for tests.
fn only_for_tests(tree: &Tree, folder: &str, here: &[&str]) -> bool {
    (0..here.len()).any(|depth| {
        let parent = file_of(tree, folder, &here[..depth]);
        let parent = parent.and_then(|path| tree.source(&path));
        parent.is_some_and(|parent| {
            modules(parent)
                .iter()
                .any(|module| module.name == here[depth] && module.test)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(findings: Vec<Finding>) -> Vec<String> {
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn the_log_may_not_depend_on_locks() {
        let tree = Tree::from_files([
            (
                "crates/log/Cargo.toml",
                "[dependencies]\nfoxton-sync.workspace = true\n[dev-dependencies]\nfoxton-lock = { path = \"../lock\" }\n",
            ),
            ("crates/attic/Cargo.toml", "[package]\n"),
            (
                "crates/foxton/Cargo.toml",
                "[package]\nname = \"foxton\"\n[dependencies]\nfoxton-log.workspace = true\n",
            ),
        ]);
        assert_eq!(
            told(between_crates(&tree)),
            [
                "crates/attic/Cargo.toml:0: attic has no floor on the ladder",
                "crates/log/Cargo.toml:4: log depends on lock, which it must not know",
            ]
        );
    }

    #[test]
    fn a_module_may_not_use_a_lower_line() {
        let tree = Tree::from_files([
            (
                "crates/lock/src/lib.rs",
                "/// One.\npub mod mode;\npub mod table;\npub use table::Table;\n",
            ),
            (
                "crates/lock/src/mode.rs",
                "use std::fmt;\nuse crate::{\n    table::Grant,\n};\nfn f(_: crate::Table) {}\n#[cfg(test)]\nmod tests {\n    use crate::table;\n}\n",
            ),
            (
                "crates/lock/src/table.rs",
                "use crate::mode::Mode;\nuse super::mode;\n",
            ),
        ]);
        assert_eq!(
            told(inside_crates(&tree)),
            [
                "crates/lock/src/mode.rs:3: mode uses table, which stands on it",
                "crates/lock/src/mode.rs:5: mode uses table, which stands on it",
            ]
        );
    }

    #[test]
    fn children_of_a_module_have_a_ladder_too() {
        let tree = Tree::from_files([
            (
                "crates/log/src/lib.rs",
                "pub mod device;\n#[cfg(test)]\nmod probe;\npub mod flush;\n",
            ),
            (
                "crates/log/src/device.rs",
                "mod file;\npub mod fault;\nuse fault::Fault;\n",
            ),
            (
                "crates/log/src/device/file.rs",
                "use super::fault::Fault;\n",
            ),
            (
                "crates/log/src/device/fault.rs",
                "use super::file;\nuse super::super::flush;\n",
            ),
            ("crates/log/src/probe.rs", "use crate::flush;\n"),
            ("crates/log/src/flush.rs", "use crate::device::fault;\n"),
        ]);
        assert_eq!(
            told(inside_crates(&tree)),
            [
                "crates/log/src/device/fault.rs:2: device uses flush, which stands on it",
                "crates/log/src/device/file.rs:1: file uses fault, which stands on it",
            ]
        );
    }
}
