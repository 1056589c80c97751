//! Prose of comments and documents: its sentences and its lines.
//!
//! Prose is the comments of Rust files without code blocks, and the paragraphs of Markdown files
//! without tables, code blocks and headings. A sentence ends at a full stop, a question mark or an
//! exclamation mark, at a list item, and at the end of its paragraph.

/// Columns that a line of prose may have.
pub const COLUMNS: usize = 100;
/// Words that a sentence may have.
pub const WORDS: usize = 35;

/// Beginnings that hide the actor of a sentence.
const RIDDLES: [&str; 12] = [
    "Who",
    "Whoever",
    "Whom",
    "Whose",
    "What",
    "Whatever",
    "That one",
    "Those who",
    "He who",
    "Nobody who",
    "Somebody who",
    "Everybody who",
];

/// A sentence and the line, from 1, on which it begins.
#[derive(Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Line, from 1.
    pub line: usize,
    /// The words, separated by blanks.
    pub text: String,
}

impl Sentence {
    /// Number of words.
    pub fn words(&self) -> usize {
        self.text.split_whitespace().count()
    }

    /// True if the sentence begins with a word that hides its actor.
    pub fn is_riddle(&self) -> bool {
        let begins = |riddle: &str| {
            let rest = self.text.strip_prefix(riddle);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        };
        RIDDLES.iter().any(|riddle| begins(riddle))
    }
}

/// Returns the sentences of at least three words in the file at `path`.
pub fn sentences(path: &str, text: &str) -> Vec<Sentence> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let mut close = |open: &mut Option<(usize, String)>| {
        if let Some((line, text)) = open.take() {
            found.push(Sentence { line, text });
        }
    };
    for (line, prose) in lines(path, text) {
        let Some(prose) = prose else {
            close(&mut open);
            continue;
        };
        let item = list_item(prose);
        if prose.starts_with('#') || item.is_some() {
            close(&mut open);
        }
        if prose.starts_with('#') {
            continue;
        }
        for part in parts(item.unwrap_or(prose)) {
            let (_, words) = open.get_or_insert((line, String::new()));
            if !words.is_empty() {
                words.push(' ');
            }
            words.push_str(part);
            if ends_sentence(part) {
                close(&mut open);
            }
        }
    }
    close(&mut open);
    found.retain(|sentence| sentence.words() >= 3);
    found
}

/// Returns the numbers, from 1, of the lines of prose that have more than [`COLUMNS`] columns.
pub fn wide_lines(path: &str, text: &str) -> Vec<usize> {
    let is_wide = |line: &&str| line.chars().count() > COLUMNS && !line.contains("http");
    let is_prose = |line: &str| match path.ends_with(".rs") {
        true => comment(line).is_some(),
        false => !line.starts_with('|'),
    };
    let numbered = text.lines().zip(1..);
    numbered
        .filter(|(line, _)| is_wide(line) && is_prose(line))
        .map(|(_, number)| number)
        .collect()
}

/// The content of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let content = line.trim_start().strip_prefix("//")?;
    let content = content.strip_prefix(['/', '!']).unwrap_or(content);
    Some(content.strip_prefix(' ').unwrap_or(content))
}

/// Each line's number, from 1, and its prose, if it has any.
fn lines<'a>(path: &str, text: &'a str) -> impl Iterator<Item = (usize, Option<&'a str>)> {
    let is_rust = path.ends_with(".rs");
    let mut fenced = false;
    (1..).zip(text.lines()).map(move |(number, line)| {
        let content = if is_rust { comment(line) } else { Some(line) };
        let Some(content) = content else {
            return (number, None);
        };
        let trimmed = content.trim();
        if trimmed.starts_with("```") {
            fenced = !fenced;
            return (number, None);
        }
        let is_code = fenced || content.starts_with("    ");
        let is_prose = !is_code && !trimmed.is_empty() && !trimmed.starts_with('|');
        (number, is_prose.then_some(trimmed))
    })
}

/// The content of a list item.
fn list_item(line: &str) -> Option<&str> {
    if let Some(item) = line.strip_prefix("* ").or(line.strip_prefix("- ")) {
        return Some(item.trim_start());
    }
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let item = digits.strip_prefix(". ")?;
    (digits.len() < line.len()).then_some(item)
}

/// `line`, cut behind each end of a sentence that a blank follows.
fn parts(line: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, _) in line.match_indices(' ') {
        if at > from && line[from..at].ends_with(['.', '!', '?']) {
            parts.push(line[from..at].trim_start());
            from = at;
        }
    }
    parts.push(line[from..].trim_start());
    parts
}

/// True if `part` closes its sentence; brackets and quotes may follow the stop.
fn ends_sentence(part: &str) -> bool {
    part.trim_end_matches([')', '"', '`', '*'])
        .ends_with(['.', '!', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(path: &str, text: &str) -> Vec<(usize, String)> {
        let found = sentences(path, text).into_iter();
        found.map(|one| (one.line, one.text)).collect()
    }

    #[test]
    fn sentences_end_at_stops_items_and_blank_lines() {
        let text = "# A title of words\nOne thing is. Two things\nare there. And there is more\n\n- an item of words\n- another item here\n| a | table row |\n```\ncode is no prose\n```\n";
        let expected = [
            (2, "One thing is."),
            (2, "Two things are there."),
            (3, "And there is more"),
            (5, "an item of words"),
            (6, "another item here"),
        ];
        let found = texts("a.md", text);
        let expected = expected.map(|(line, text)| (line, text.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn comments_are_prose_and_code_is_not() {
        let text = "//! First page here.\nlet what = 1; // What is this?\n/// What a thread does.\n///     code in a block\n";
        let found = sentences("a.rs", text);
        assert_eq!(found.len(), 2);
        assert!(!found[0].is_riddle());
        assert!(found[1].is_riddle());
    }

    #[test]
    fn a_riddle_is_a_whole_word() {
        let is_riddle = |text: &str| {
            Sentence {
                line: 1,
                text: text.to_owned(),
            }
            .is_riddle()
        };
        assert!(is_riddle("Whoever waits, waits."));
        assert!(is_riddle("That one is served first."));
        assert!(!is_riddle("Whole pages are written."));
        assert!(!is_riddle("That one_word is a name."));
    }

    #[test]
    fn wide_lines_are_those_of_prose() {
        let wide = "x".repeat(101);
        let text = format!(
            "// {wide}\nlet {wide} = 1;\n// {}\n// http://{wide}\n",
            "x".repeat(97)
        );
        assert_eq!(wide_lines("a.rs", &text), [1]);
        let text = format!("{wide}\n| {wide}\n");
        assert_eq!(wide_lines("a.md", &text), [1]);
    }
}
