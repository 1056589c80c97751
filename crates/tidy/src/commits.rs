//! Commit subjects and bodies, as `git log` prints them.
//!
//! A subject has at most 72 characters. A body gives reason and evidence; a commit that only moves
//! or renames may do without one, and its subject then says so.

use crate::Finding;
use std::{io, path::Path, process::Command};

/// Characters that a subject may have.
const SUBJECT: usize = 72;
/// Newest commits that are read.
const READ: &str = "-50";
/// The last commit that was made before this rule.
const BEFORE: &str = "60d6ea7";
/// Words of subjects that need no body.
const MOVES: [&str; 6] = ["move", "moved", "rename", "renamed", "folders", "files"];

/// Reads the newest commits of the repository at `root`. A copy without history has none.
///
/// # Errors
/// The error of starting git, if it cannot be started.
pub fn read(root: &Path) -> io::Result<Vec<Finding>> {
    let range = format!("{BEFORE}..HEAD");
    let format = "--format=%h%x1f%s%x1f%b%x1e";
    let log = Command::new("git")
        .args(["log", "--no-merges", READ, format, &range])
        .current_dir(root)
        .output()?;
    Ok(check(&String::from_utf8_lossy(&log.stdout)))
}

/// Checks commits, each as hash, subject and body, separated by unit separators.
fn check(log: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for commit in log.split('\u{1e}') {
        let mut fields = commit.trim().splitn(3, '\u{1f}');
        let (Some(hash), Some(subject)) = (fields.next(), fields.next()) else {
            continue;
        };
        let length = subject.chars().count();
        if length > SUBJECT {
            let what = format!("a subject of {length} characters, at most {SUBJECT}: {subject}");
            findings.push(Finding::new(hash, 0, what));
        }
        let has_body = fields.next().is_some_and(|body| !body.trim().is_empty());
        let words = subject.split(|c: char| !c.is_alphanumeric());
        let moves = words.into_iter().any(|word| MOVES.contains(&word));
        if !has_body && !moves {
            let what = format!("a commit without reason and evidence: {subject}");
            findings.push(Finding::new(hash, 0, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_subjects_and_missing_bodies_are_found() {
        let long = "x".repeat(73);
        let log = format!(
            "aa\u{1f}log: write twice\u{1f}Because of this.\n\u{1e}\nbb\u{1f}log: move files\u{1f}\u{1e}\ncc\u{1f}{long}\u{1f}why\u{1e}\ndd\u{1f}log: faster\u{1f}\n\u{1e}\n"
        );
        let hashes: Vec<_> = check(&log).into_iter().map(|one| one.path).collect();
        assert_eq!(hashes, ["cc", "dd"]);
    }
}
