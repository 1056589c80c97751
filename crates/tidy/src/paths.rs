//! Paths such as `crate::{a, b::c}`, written out.

/// Every path in `code` that begins with `root`, as its segments after the root and its offset.
///
/// Groups are written out: `std::{cell::Cell, sync::{Arc, atomic}}` gives three paths. A glob ends
/// its path, a rename keeps the name that was renamed. The visibility `pub(in path)` is no use of
/// a path.
pub fn from_root<'a>(code: &'a str, root: &str) -> Vec<(Vec<&'a str>, usize)> {
    let mut found = Vec::new();
    for at in crate::source::words(code, root) {
        let before = code[..at].trim_end();
        let visibility = before.ends_with("(in");
        let tail = before.ends_with("::") || before.ends_with('.');
        let after = code[at + root.len()..].trim_start();
        if !visibility && !tail && after.starts_with("::") {
            let mut reader = Reader {
                code,
                at: code.len() - after.len(),
            };
            reader.path(&mut Vec::new(), &mut found);
        }
    }
    found
}

struct Reader<'a> {
    code: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn skip_blanks(&mut self) {
        let rest = &self.code[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn eat(&mut self, what: &str) -> bool {
        self.skip_blanks();
        let there = self.code[self.at..].starts_with(what);
        self.at += if there { what.len() } else { 0 };
        there
    }

    fn word(&mut self) -> &'a str {
        self.skip_blanks();
        let rest = &self.code[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let word = &rest[..end.unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    /// Reads what follows `prefix`: `::word`, `::{..}`, or nothing more.
    fn path(&mut self, prefix: &mut Vec<&'a str>, found: &mut Vec<(Vec<&'a str>, usize)>) {
        let depth = prefix.len();
        let start = self.at;
        while self.eat("::") {
            if self.eat("{") {
                self.group(prefix, found);
                prefix.truncate(depth);
                return;
            }
            match self.word() {
                "" => break,
                word => prefix.push(word),
            }
        }
        found.push((prefix.clone(), start));
        prefix.truncate(depth);
    }

    fn group(&mut self, prefix: &mut Vec<&'a str>, found: &mut Vec<(Vec<&'a str>, usize)>) {
        while self.at < self.code.len() && !self.eat("}") {
            self.skip_blanks();
            let (depth, start) = (prefix.len(), self.at);
            match self.word() {
                // A comma, a glob, or something that is no path: step over it.
                "" => self.at += 1,
                "as" => _ = self.word(),
                "self" => found.push((prefix.clone(), start)),
                word => {
                    prefix.push(word);
                    self.path(prefix, found);
                    prefix.truncate(depth);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(code: &str, root: &str) -> Vec<String> {
        from_root(code, root)
            .into_iter()
            .map(|(path, _)| path.join("::"))
            .collect()
    }

    #[test]
    fn groups_are_written_out() {
        assert_eq!(
            read(
                "use std::{cell::Cell, sync::{Arc, atomic::{self, AtomicU8 as A}}, io::*};",
                "std"
            ),
            [
                "cell::Cell",
                "sync::Arc",
                "sync::atomic",
                "sync::atomic::AtomicU8",
                "io"
            ]
        );
    }

    #[test]
    fn only_the_root_begins_a_path() {
        assert_eq!(
            read(
                "pub(in crate::a) fn f() { crate::b::g(my::crate::c) }",
                "crate"
            ),
            ["b::g"]
        );
        assert_eq!(read("use super::super::x::Y;", "super"), ["super::x::Y"]);
    }
}
