#![forbid(unsafe_code)]
//! Prints what breaks a house rule, then what is long. Fails if anything breaks one.
//! An argument names another checkout to read.

use foxton_tidy::{check, commits, ratchets, sizes, tree::Tree};
use std::{env, path::Path, path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    let here = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = env::args_os().nth(1).map_or_else(here, PathBuf::from);
    let tree = match Tree::read(&root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("cannot read the repository: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut findings = check(&tree);
    match commits::read(&root) {
        Ok(found) => findings.extend(found),
        Err(error) => eprintln!("commits are not read, since git does not start: {error}"),
    }
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("counts that may not grow");
    for ratchet in ratchets::measure(&tree) {
        println!("{ratchet}");
    }
    println!("{}", sizes::measure(&tree));
    if findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
