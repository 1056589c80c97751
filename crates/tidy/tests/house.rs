//! The rules of the house, run over the house.
//!
//! A rule that fails says where and what. `cargo run -p foxton-tidy --bin tidy` prints the same and
//! the longest files and functions as well.

use foxton_tidy::{check, commits, ratchets, sizes, tree::Tree};
use std::{fs, path::Path};

#[test]
fn the_house_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tree = Tree::read(&root).expect("the repository can be read");
    assert!(
        tree.sources().count() > 5,
        "the walk did not find the sources"
    );
    println!("{}", sizes::measure(&tree));
    for ratchet in ratchets::measure(&tree) {
        println!("{ratchet}");
    }
    let findings: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn commits_say_why() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let findings = commits::read(&root).expect("git starts");
    let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn what_is_built_is_passed_over_and_a_source_that_is_called_like_it_is_not() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("house");
    for folder in ["src", "target", "results", "docs/results"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in [
        "src/target.rs",
        "target/made.rs",
        "results/told.md",
        "docs/results/a.md",
    ] {
        fs::write(root.join(file), "").unwrap();
    }
    let tree = Tree::read(&root).unwrap();
    let texts: Vec<&str> = tree.texts().map(|(path, _)| path).collect();
    assert_eq!(texts, ["docs/results/a.md", "src/target.rs"]);
}
