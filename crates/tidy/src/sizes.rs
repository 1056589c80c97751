//! Sizes that are printed and not judged: long files, long functions, unsafe blocks.
//!
//! A limit is a wish and a ratchet annoys; a list that everybody sees does the work.

use crate::{source, tree::Tree};
use std::{cmp::Reverse, fmt};

/// How many of each are worth naming.
const SHOWN: usize = 10;

/// The longest files and functions, and the unsafe blocks of each file that has any.
#[derive(Debug)]
pub struct Sizes {
    /// Lines and path.
    pub files: Vec<(usize, String)>,
    /// Lines, path with line, and name.
    pub functions: Vec<(usize, String, String)>,
    /// Unsafe blocks, functions and impls, and path.
    pub unsafes: Vec<(usize, String)>,
}

/// Measures `tree`.
pub fn measure(tree: &Tree) -> Sizes {
    let mut files: Vec<_> = tree
        .rust()
        .map(|(path, source)| (source.text.lines().count(), path.to_owned()))
        .collect();
    let mut functions: Vec<_> = tree
        .rust()
        .flat_map(|(path, source)| functions(path, source))
        .collect();
    let counts = tree.rust().map(|(path, source)| {
        (
            source::words(&source.code, "unsafe").count(),
            path.to_owned(),
        )
    });
    let mut unsafes: Vec<_> = counts.filter(|&(count, _)| count > 0).collect();
    files.sort_by_key(|file| Reverse(file.0));
    functions.sort_by_key(|function| Reverse(function.0));
    unsafes.sort_by_key(|file| Reverse(file.0));
    files.truncate(SHOWN);
    functions.truncate(SHOWN);
    Sizes {
        files,
        functions,
        unsafes,
    }
}

fn functions(path: &str, file: &source::Source) -> Vec<(usize, String, String)> {
    let code = &file.code;
    let found = source::words(code, "fn").filter_map(|at| {
        let name: String = code[at + 3..]
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        let body = at + code[at..].find(['{', ';']).filter(|_| !name.is_empty())?;
        let end = if code[body..].starts_with('{') {
            source::past_brace(code, body)
        } else {
            body
        };
        let (first, last) = (file.line(at), file.line(end.saturating_sub(1)));
        Some((last - first + 1, format!("{path}:{first}"), name))
    });
    found.collect()
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "longest files (lines)")?;
        for (lines, path) in &self.files {
            writeln!(f, "  {lines:5}  {path}")?;
        }
        writeln!(f, "longest functions (lines)")?;
        for (lines, place, name) in &self.functions {
            writeln!(f, "  {lines:5}  {name}  {place}")?;
        }
        writeln!(f, "unsafe (occurrences)")?;
        for (count, path) in &self.unsafes {
            writeln!(f, "  {count:5}  {path}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_to_their_closing_brace() {
        let tree = Tree::from_files([("a.rs", "fn a() {\n    b();\n    \"}\"\n}\nfn b();\n")]);
        let sizes = measure(&tree);
        assert_eq!(sizes.functions[0], (4, "a.rs:1".to_owned(), "a".to_owned()));
        assert_eq!(sizes.functions[1].0, 1);
    }
}
