//! Leftovers, files nobody reaches, titles, references to nothing, paths of one machine.

use crate::{
    Finding,
    ladder::{file_of, modules, place},
    source,
    tree::Tree,
};
use std::collections::BTreeSet;

/// Words that say "later" in a comment.
const PROMISES: [&str; 3] = ["TODO", "FIXME", "XXX"];

/// Macros that say "later" in code.
const HOLES: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Nothing is left for later: what is missing is not there, and the documents say so.
pub fn leftovers(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in tree.rust() {
        for word in PROMISES {
            for at in source::words(&source.comments, word) {
                findings.push(Finding::new(
                    path,
                    source.line(at),
                    format!("leftover {word}"),
                ));
            }
        }
        for word in HOLES {
            let holes = source::words(&source.code, word);
            for at in holes.filter(|at| source.code[at + word.len()..].starts_with('!')) {
                findings.push(Finding::new(
                    path,
                    source.line(at),
                    format!("leftover {word}!"),
                ));
            }
        }
    }
    let scripts = tree
        .texts()
        .filter(|(path, _)| !path.ends_with(".rs") && !path.ends_with(".md"));
    for (path, text) in scripts {
        for (index, line) in text.lines().enumerate() {
            for word in PROMISES
                .iter()
                .filter(|word| source::words(line, word).next().is_some())
            {
                findings.push(Finding::new(path, index + 1, format!("leftover {word}")));
            }
        }
    }
    findings
}

/// Where the models of a crate lie; they are built under loom alone.
const MODELS: &str = "/tests/models/";

/// Where the tests of a crate lie; they are one program.
const TESTS: &str = "/tests/it/";

/// A test that does not run by itself says why, and with which command it does.
pub fn ignored_tests(tree: &Tree) -> Vec<Finding> {
    const IGNORED: &str = "#[ignore";
    let mut findings = Vec::new();
    for ((path, source), (_, text)) in tree
        .rust()
        .zip(tree.texts().filter(|(path, _)| path.ends_with(".rs")))
    {
        for (at, _) in source.code.match_indices(IGNORED) {
            // As text: what is asked for stands in a string.
            let line = source.line(at);
            let reason = text.lines().nth(line - 1).unwrap_or_default();
            let (_, command) = reason.split_once(": ").unwrap_or_default();
            let without_loom = path.contains(MODELS) && !command.contains("--cfg loom");
            if !command.contains("cargo test ") || !command.contains("--ignored") || without_loom {
                let what = "an ignored test does not say why, and which command runs it: \
                            #[ignore = \"takes minutes: cargo test ... -- --ignored\"]";
                findings.push(Finding::new(path, line, what));
            }
        }
    }
    findings
}

/// Every file of a crate's `src`, and every file of its tests, is reached by `mod` lines.
pub fn unreached_files(tree: &Tree) -> Vec<Finding> {
    let mut reached = BTreeSet::new();
    for (_, path, _) in tree.sources() {
        let (folder, inside) = path.split_once("/src/").expect("sources lie in src");
        if inside == "lib.rs" {
            reach(tree, &format!("{folder}/src"), &[], path, &mut reached);
        } else if place(path).is_none() {
            // A binary: its modules lie beside `main.rs`, which is what Cargo finds first.
            let beside = path.rsplit_once('/').expect("a path has a folder").0;
            reach(tree, beside, &[], path, &mut reached);
        }
    }
    let mut all: Vec<&str> = tree.sources().map(|(_, path, _)| path).collect();
    for (path, _) in tree.rust() {
        let program = [TESTS, MODELS].into_iter().find_map(|folder| {
            let at = path.find(folder)? + folder.len();
            Some(&path[..at - 1])
        });
        if let Some(folder) = program {
            all.push(path);
            if path.strip_prefix(folder) == Some("/main.rs") {
                reach(tree, folder, &[], path, &mut reached);
            }
        }
    }
    let lost = all.into_iter().filter(|path| !reached.contains(*path));
    lost.map(|path| Finding::new(path, 0, "no mod line reaches this file"))
        .collect()
}

fn reach(tree: &Tree, folder: &str, here: &[&str], path: &str, reached: &mut BTreeSet<String>) {
    let Some(source) = tree
        .source(path)
        .filter(|_| reached.insert(path.to_owned()))
    else {
        return;
    };
    for module in modules(source).iter().filter(|module| module.in_file) {
        let child: Vec<&str> = here.iter().copied().chain([module.name.as_str()]).collect();
        if let Some(file) = file_of(tree, folder, &child) {
            reach(tree, folder, &child, &file, reached);
        }
    }
}

/// A document has one title, and begins with it.
pub fn titles(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        let mut fenced = false;
        let mut titles = 0;
        for (index, line) in text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            if !fenced && line.starts_with("# ") {
                titles += 1;
                if titles > 1 {
                    findings.push(Finding::new(path, index + 1, "a second title"));
                }
            }
        }
        if titles == 0 || !text.starts_with("# ") {
            findings.push(Finding::new(path, 1, "a document begins with its title"));
        }
    }
    findings
}

/// Folders that exist on one machine only.
const FOLDERS: [&str; 7] = ["home", "root", "Users", "mnt", "srv", "work", "farm"];

/// No file names a place on somebody's machine.
pub fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in FOLDERS {
        let needle = format!("/{folder}/");
        for (path, text) in tree.texts() {
            for (at, _) in text.match_indices(&needle) {
                // `crates/home/x` and `https://site/home/` are not absolute paths.
                let before = text[..at].chars().next_back();
                if !before.is_some_and(|c| c.is_alphanumeric() || "_-.~/".contains(c)) {
                    let line = text[..at].matches('\n').count() + 1;
                    findings.push(Finding::new(
                        path,
                        line,
                        format!("a path of one machine: {needle}"),
                    ));
                }
            }
        }
    }
    findings
}

/// Targets of documents exist: links to files, and paths in backquotes.
pub fn references(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (index, line) in text.lines().enumerate() {
            let links = line
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split_once(')'));
            let links = links.map(|(link, _)| link.split('#').next().unwrap_or(link));
            let links = links.filter(|link| !link.is_empty() && !link.contains("://"));
            let links = links.map(|link| resolve(folder, link));
            let named = line.split('`').skip(1).step_by(2);
            let named =
                named.filter(|name| name.starts_with("crates/") || name.starts_with("docs/"));
            let named = named.filter(|name| !name.contains([' ', '*', '{', '<']));
            for target in links.chain(named.map(str::to_owned)) {
                if !tree.has(target.trim_end_matches('/')) {
                    findings.push(Finding::new(
                        path,
                        index + 1,
                        format!("{target} is not there"),
                    ));
                }
            }
        }
    }
    findings
}

/// `link`, as seen from `folder`, from the root.
fn resolve(folder: &str, link: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            ".." => _ = parts.pop(),
            "." | "" => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(findings: Vec<Finding>) -> Vec<String> {
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn leftovers_are_found_in_code_and_comments_but_not_in_text() {
        let tree = Tree::from_files([
            (
                "a.rs",
                "fn f() {\n    todo!()\n}\n// FIXME later\nlet a = \"TODO\";\nlet todo = 1;\n",
            ),
            ("justfile", "# TODO\n"),
        ]);
        assert_eq!(
            told(leftovers(&tree)),
            [
                "a.rs:4: leftover FIXME",
                "a.rs:2: leftover todo!",
                "justfile:1: leftover TODO"
            ]
        );
    }

    #[test]
    fn an_ignored_test_says_why_and_which_command_runs_it() {
        let tree = Tree::from_files([
            (
                "a.rs",
                "#[ignore]\nfn a() {}\n#[ignore = \"takes minutes\"]\nfn b() {}\n",
            ),
            (
                "b.rs",
                "#[ignore = \"takes long: cargo test -p x -- --ignored\"]\nfn a() {}\n",
            ),
            ("c.rs", "let a = \"#[ignore]\"; // #[ignore]\n"),
            (
                "crates/x/tests/models/d.rs",
                "#[ignore = \"takes long: cargo test -p x -- --ignored\"]\nfn a() {}\n",
            ),
            (
                "crates/x/tests/models/e.rs",
                "#[ignore = \"long: RUSTFLAGS='--cfg loom' cargo test -p x -- --ignored\"]\nfn a() {}\n",
            ),
        ]);
        let lines = ignored_tests(&tree);
        let places: Vec<_> = lines
            .iter()
            .map(|found| (&*found.path, found.line))
            .collect();
        assert_eq!(
            places,
            [("a.rs", 1), ("a.rs", 3), ("crates/x/tests/models/d.rs", 1)]
        );
    }

    #[test]
    fn a_file_without_a_mod_line_is_dead() {
        let tree = Tree::from_files([
            ("crates/x/src/lib.rs", "mod a;\nmod tests {}\n"),
            ("crates/x/src/a.rs", "mod b;\n"),
            ("crates/x/src/a/b.rs", ""),
            ("crates/x/src/a/lost.rs", ""),
            ("crates/x/src/tests.rs", ""),
            ("crates/x/src/bin/tool.rs", ""),
            ("crates/y/src/main.rs", "mod part;\n"),
            ("crates/y/src/part.rs", ""),
            ("crates/y/tests/it/main.rs", "mod shared;\nmod one;\n"),
            ("crates/y/tests/it/one.rs", "mod part;\n"),
            ("crates/y/tests/it/one/part.rs", ""),
            ("crates/y/tests/it/shared/mod.rs", "mod part;\n"),
            ("crates/y/tests/it/shared/part.rs", ""),
            ("crates/y/tests/it/two.rs", ""),
            ("crates/y/tests/models/three.rs", ""),
        ]);
        assert_eq!(
            told(unreached_files(&tree)),
            [
                "crates/x/src/a/lost.rs:0: no mod line reaches this file",
                "crates/x/src/tests.rs:0: no mod line reaches this file",
                "crates/y/tests/it/two.rs:0: no mod line reaches this file",
                "crates/y/tests/models/three.rs:0: no mod line reaches this file",
            ]
        );
    }

    #[test]
    fn a_document_has_one_title() {
        let tree = Tree::from_files([
            ("good.md", "# One\n\n```sh\n# a comment\n```\n## Part\n"),
            ("late.md", "Hello.\n# One\n"),
            ("two.md", "# One\n# Two\n"),
        ]);
        assert_eq!(
            told(titles(&tree)),
            [
                "late.md:1: a document begins with its title",
                "two.md:2: a second title"
            ]
        );
    }

    #[test]
    fn what_a_document_points_to_is_there() {
        let tree = Tree::from_files([
            (
                "README.md",
                "# A\n[b](docs/b.md#part) [c](docs/c.md) [d](https://d.e/f)\n",
            ),
            (
                "docs/b.md",
                "# B\n[a](../README.md) `crates/x/src` `crates/y` `cargo run -p z`\n",
            ),
            ("crates/x/src/lib.rs", ""),
        ]);
        assert_eq!(
            told(references(&tree)),
            [
                "README.md:2: docs/c.md is not there",
                "docs/b.md:2: crates/y is not there"
            ]
        );
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let planted = ["home", "me"].join("/");
        let tree = Tree::from_files([(
            "a.toml",
            format!("# fine: crates/{planted}/x\nx = \"/{planted}/y\"\n"),
        )]);
        assert_eq!(
            told(machine_paths(&tree)),
            [format!("a.toml:2: a path of one machine: /{}/", "home")]
        );
    }
}
