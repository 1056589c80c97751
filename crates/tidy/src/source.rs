//! A source file split into code, comments and test regions.
//!
//! The rules ask "does this word stand in code?" and "is there a comment here?". One pass over the
//! text answers both: `code` has comments and the insides of literals replaced by
//! blanks, `comments` has everything else replaced by blanks. Both keep every byte
//! offset and every line where it was, so that a place found in one is a place in the file.
//!
//! # Invariants
//!
//! * I1  `text`, `code` and `comments` have the same length and the same line breaks.
//! * I2  `code` is balanced: a brace in it is a brace of the program.

/// One Rust file, as the rules see it.
#[derive(Debug)]
pub struct Source {
    /// The file as it is.
    pub text: String,
    /// The file with comments and the insides of literals blanked.
    pub code: String,
    /// The file with everything but comments blanked.
    pub comments: String,
    /// Byte offset of each line's first byte.
    starts: Vec<usize>,
    /// Byte ranges under a `#[cfg(test)]`, or the whole file.
    tests: Vec<(usize, usize)>,
}

impl Source {
    /// Splits `text`.
    pub fn new(text: &str) -> Self {
        let (code, comments) = split(text);
        let mut starts = vec![0];
        starts.extend(
            text.bytes()
                .enumerate()
                .filter(|&(_, b)| b == b'\n')
                .map(|(at, _)| at + 1),
        );
        let tests = test_regions(&code);
        Self {
            text: text.to_owned(),
            code,
            comments,
            starts,
            tests,
        }
    }

    /// The line, from 1, that the byte at `at` stands on.
    pub fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|&start| start <= at)
    }

    /// The lines of code, from line 1.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code
            .split('\n')
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }

    /// Offset of the first byte of `line`.
    pub fn start_of(&self, line: usize) -> usize {
        self.starts[line - 1]
    }

    /// Whether the byte at `at` is only compiled for tests.
    pub fn is_test(&self, at: usize) -> bool {
        self.tests
            .iter()
            .any(|&(from, to)| (from..to).contains(&at))
    }

    /// The first page: the `//!` lines before the first item.
    pub fn first_page(&self) -> impl Iterator<Item = &str> {
        self.text
            .lines()
            .take_while(|line| line.is_empty() || line.starts_with("//") || line.starts_with("#!["))
            .filter_map(|line| line.strip_prefix("//!"))
    }
}

/// Offsets at which `word` stands in `text` as a word of its own.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| {
            let before = at.checked_sub(1).map(|i| text.as_bytes()[i]);
            let after = text.as_bytes().get(at + word.len()).copied();
            !before.is_some_and(part) && !after.is_some_and(part)
        })
}

/// The offset just past the brace that closes the one at `open`; the end of the text if none does.
pub fn past_brace(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return at + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Returns the offset of the item that follows the attributes at `at`.
pub fn past_attributes(code: &str, mut at: usize) -> usize {
    loop {
        at += code[at..].len() - code[at..].trim_start().len();
        if !code[at..].starts_with("#[") {
            return at;
        }
        let mut depth = 0usize;
        let close = code[at..].bytes().position(|byte| {
            depth = match byte {
                b'[' => depth + 1,
                b']' => depth - 1,
                _ => depth,
            };
            byte == b']' && depth == 0
        });
        at = close.map_or(code.len(), |close| at + close + 1);
    }
}

/// Whether the attribute that starts at `at` says "only for tests".
pub fn is_test_attribute(code: &str, at: usize) -> bool {
    let Some(line) = code[at..].strip_prefix("#[cfg(") else {
        return false;
    };
    let arguments = &line[..line.find(']').unwrap_or(line.len())];
    words(arguments, "test").any(|at| !arguments[..at].ends_with("not("))
}

fn test_regions(code: &str) -> Vec<(usize, usize)> {
    if code.trim_start().starts_with("#![cfg(test)]") {
        return vec![(0, code.len())];
    }
    let attributes = code.match_indices("#[cfg(").map(|(at, _)| at);
    attributes
        .filter(|&at| is_test_attribute(code, at))
        .map(|at| {
            let item = past_attributes(code, at);
            let end = code[item..]
                .find(['{', ';'])
                .map_or(code.len(), |end| item + end);
            let braces = code[end..].starts_with('{');
            (
                at,
                if braces {
                    past_brace(code, end)
                } else {
                    (end + 1).min(code.len())
                },
            )
        })
        .collect()
}

/// Where the scan stands.
enum In {
    Code,
    Line,
    Block(usize),
    Text,
    Raw(usize),
}

/// The text as code and as comments, each with the other blanked (I1).
fn split(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let mut code = vec![b' '; bytes.len()];
    let mut comments = vec![b' '; bytes.len()];
    let mut state = In::Code;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let mut step = 1;
        match state {
            In::Code if rest.starts_with(b"//") => state = In::Line,
            In::Code if rest.starts_with(b"/*") => (state, step) = (In::Block(1), 2),
            In::Code => {
                (state, step) = literal(bytes, at);
                code[at..at + step].copy_from_slice(&bytes[at..at + step]);
                if step > 1 && rest[0] == b'\'' {
                    code[at + 1..at + step - 1].fill(b' ');
                }
            }
            In::Line if rest[0] == b'\n' => state = In::Code,
            In::Line => {}
            In::Block(depth) if rest.starts_with(b"*/") => {
                state = if depth == 1 {
                    In::Code
                } else {
                    In::Block(depth - 1)
                };
                step = 2;
            }
            In::Block(depth) if rest.starts_with(b"/*") => {
                (state, step) = (In::Block(depth + 1), 2);
            }
            In::Block(_) => {}
            In::Text if rest[0] == b'\\' => step = 2,
            In::Text if rest[0] == b'"' => (state, code[at]) = (In::Code, b'"'),
            In::Text => {}
            In::Raw(hashes) if rest[0] == b'"' && closes(rest, hashes) => {
                (state, step, code[at]) = (In::Code, 1 + hashes, b'"');
            }
            In::Raw(_) => {}
        }
        step = step.min(bytes.len() - at);
        if matches!(state, In::Line | In::Block(_)) {
            comments[at..at + step].copy_from_slice(&bytes[at..at + step]);
        }
        at += step;
    }
    for (at, _) in bytes.iter().enumerate().filter(|&(_, &b)| b == b'\n') {
        (code[at], comments[at]) = (b'\n', b'\n');
    }
    (ascii(code), ascii(comments))
}

/// Beyond ASCII nothing matters to any rule, and one blank for each byte keeps offsets (I1).
fn ascii(mut bytes: Vec<u8>) -> String {
    bytes
        .iter_mut()
        .filter(|byte| !byte.is_ascii())
        .for_each(|byte| *byte = b' ');
    String::from_utf8(bytes).expect("only ASCII is left")
}

/// Returns the literal that begins at `at`, and the number of its bytes that are still code.
fn literal(bytes: &[u8], at: usize) -> (In, usize) {
    let rest = &bytes[at..];
    let in_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    let raw = rest
        .strip_prefix(b"br")
        .or(rest.strip_prefix(b"r"))
        .filter(|_| !in_word);
    if let Some(after) = raw {
        let hashes = after.iter().take_while(|&&byte| byte == b'#').count();
        if after.get(hashes) == Some(&b'"') {
            return (In::Raw(hashes), rest.len() - after.len() + hashes + 1);
        }
    }
    match rest {
        [b'"', ..] => (In::Text, 1),
        // A character, not a lifetime: quote, one character or escape, quote.
        [b'\'', b'\\', _, tail @ ..] => {
            let close = tail.iter().position(|&byte| byte == b'\'').unwrap_or(0);
            (In::Code, close + 4)
        }
        [b'\'', first, tail @ ..] => {
            let width = match first {
                0xf0.. => 4,
                0xe0.. => 3,
                0xc0.. => 2,
                _ => 1,
            };
            let quoted = tail.get(width - 1) == Some(&b'\'');
            (In::Code, if quoted { width + 2 } else { 1 })
        }
        _ => (In::Code, 1),
    }
}

fn closes(rest: &[u8], hashes: usize) -> bool {
    rest.len() > hashes && rest[1..=hashes].iter().all(|&byte| byte == b'#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_no_code() {
        let source = Source::new(
            "let a = \"unsafe \\\" {\"; // unsafe\nlet b = r#\"unsafe \" {\"#; /* { /* { */ */ c('{', '\\'', 'x', \"é{\");\nfn f<'a>() {}\n",
        );
        assert!(!source.code.contains("unsafe"));
        assert_eq!(source.code.matches('{').count(), 1);
        assert_eq!(source.comments.matches("unsafe").count(), 1);
        assert_eq!(source.code.len(), source.text.len());
        assert_eq!(source.line(source.code.find("fn f").unwrap()), 3);
    }

    #[test]
    fn test_regions_end_where_their_item_ends() {
        let source = Source::new(
            "fn a() {}\n#[cfg(all(test, loom))]\n#[allow(x)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n#[cfg(not(test))]\nfn d() {}\n",
        );
        let inside = |what: &str| source.is_test(source.code.find(what).unwrap());
        assert!(!inside("fn a") && inside("fn b") && !inside("fn c") && !inside("fn d"));
    }

    #[test]
    fn a_word_is_not_a_part_of_a_word() {
        assert_eq!(
            words("unsafe_code unsafe", "unsafe").collect::<Vec<_>>(),
            [12]
        );
    }
}
