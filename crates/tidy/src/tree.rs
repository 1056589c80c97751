//! The files of the repository.
//!
//! Read once, all of it; a test may also make one up with `Tree::from_files`.

use crate::source::Source;
use std::{collections::BTreeMap, fs, io, path::Path};

/// Every text file of a repository, by its path from the root.
#[derive(Debug, Default)]
pub struct Tree {
    texts: BTreeMap<String, String>,
    rust: BTreeMap<String, Source>,
}

impl Tree {
    /// Reads what is kept under `root`: no build output, no hidden folder but `.ci` and `.github`.
    ///
    /// # Errors
    ///
    /// The error of the file system. Files that are not UTF-8 are passed over.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        walk(root, "", &mut files)?;
        Ok(Self::from_files(files))
    }

    /// A tree made of `(path, text)` pairs.
    pub fn from_files<P: Into<String>, T: Into<String>>(
        files: impl IntoIterator<Item = (P, T)>,
    ) -> Self {
        let texts: BTreeMap<String, String> = files
            .into_iter()
            .map(|(path, text)| (path.into(), text.into()))
            .collect();
        let rust = texts.iter().filter(|(path, _)| path.ends_with(".rs"));
        let rust = rust
            .map(|(path, text)| (path.clone(), Source::new(text)))
            .collect();
        Self { texts, rust }
    }

    /// Every text file.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Every Rust file.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.rust
            .iter()
            .map(|(path, source)| (path.as_str(), source))
    }

    /// Every Rust file under the `src` of a crate, with the crate's folder name.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str, &Source)> {
        self.rust().filter_map(|(path, source)| {
            let (name, inside) = path.strip_prefix("crates/")?.split_once('/')?;
            inside.starts_with("src/").then_some((name, path, source))
        })
    }

    /// One Rust file.
    pub fn source(&self, path: &str) -> Option<&Source> {
        self.rust.get(path)
    }

    /// One text file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Whether `path` is a text file, or a folder with one in it.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        let mut from = self.texts.range(folder.clone()..);
        self.texts.contains_key(path)
            || from
                .next()
                .is_some_and(|(path, _)| path.starts_with(&folder))
    }
}

fn walk(folder: &Path, prefix: &str, files: &mut Vec<(String, String)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kept_hidden = [".ci", ".github"].contains(&name.as_str());
        let kind = entry.file_type()?;
        let is_result = name == "results" && prefix.is_empty();
        let is_made = kind.is_dir() && (name.starts_with("target") || is_result);
        let built = is_made || name == "Cargo.lock";
        if built || (name.starts_with('.') && !kept_hidden) {
            continue;
        }
        let path = if prefix.is_empty() {
            name
        } else {
            format!("{prefix}/{name}")
        };
        if kind.is_dir() {
            walk(&entry.path(), &path, files)?;
        } else if kind.is_file()
            && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
        {
            files.push((path, text));
        }
    }
    Ok(())
}
