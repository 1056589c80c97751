//! The document `docs/pages.md`, against the engine: files, records and operations are built from
//! the tables of the document, and the engine reads them.
//!
//! Nothing here uses a constant of the engine. A table is found by its section and by the head of
//! its first column; a field is found by its name. So a document that says something else than the
//! engine does fails a test, and so does one whose fields leave a gap.

use std::collections::BTreeMap;

use foxton_sync::checksum::crc32c;

// Files, and pages in them.
mod files;
// Log records, operations and undo.
mod records;

/// The document.
const DOCUMENT: &str = include_str!("../../../../docs/pages.md");
const IDENTITY: [u8; 16] = *b"as the page says";
/// B of the document.
const SIZE: usize = 1024;
/// A table of rows.
const TABLE: u64 = 10;

/// Returns the rows of the table whose first head is `head`, in the section with this number.
fn table(section: u8, head: &str) -> Vec<Vec<&'static str>> {
    let begin = DOCUMENT
        .find(&format!("\n## {section}. "))
        .expect("section");
    let rest = &DOCUMENT[begin + 1..];
    let rest = &rest[..rest.find("\n## ").unwrap_or(rest.len())];
    let cells = |line: &'static str| -> Vec<&'static str> {
        let line = line.trim_start_matches('|').trim_end_matches('|');
        line.split('|').map(str::trim).collect()
    };
    let lines = rest.lines().map(str::trim);
    let mut lines = lines.skip_while(|line| !line.starts_with(&format!("| {head} |")));
    assert!(
        lines.next().is_some(),
        "a table of {head} in section {section}"
    );
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(cells).collect()
}

/// Returns the value of an expression such as `64 + B / 2`.
fn value(text: &str) -> Option<usize> {
    let product = |text: &str| match text.split_once(" / ") {
        Some(("B", by)) => Some(SIZE / by.parse::<usize>().ok()?),
        Some(_) => None,
        None if text == "B" => Some(SIZE),
        None => text.parse().ok(),
    };
    text.split(" + ").map(product).sum()
}

/// Fields of a structure: offset and bytes of each.
struct Fields(BTreeMap<&'static str, (usize, usize)>);

impl Fields {
    /// Returns the fields of a table. Those of known length follow each other without a gap.
    fn of(section: u8, head: &str) -> Fields {
        let mut fields = BTreeMap::new();
        let mut end = None;
        for row in table(section, head) {
            let (offset, bytes) = (value(row[0]), value(row[1]));
            let offset = offset.unwrap_or_else(|| panic!("the offset of {row:?}"));
            assert!(end.is_none_or(|end| end == offset), "a gap before {row:?}");
            end = bytes.map(|bytes| offset + bytes);
            let before = fields.insert(row[2], (offset, bytes.unwrap_or(0)));
            assert!(
                before.is_none() || row[2] == "zero",
                "{row:?} is there twice"
            );
        }
        Fields(fields)
    }

    fn offset(&self, name: &str) -> usize {
        self.0
            .get(name)
            .unwrap_or_else(|| panic!("a field {name}"))
            .0
    }

    /// Puts numbers into fields of the structure that begins at `base`.
    fn put(&self, bytes: &mut [u8], base: usize, values: &[(&str, u64)]) {
        for (name, number) in values {
            let (offset, length) = self.0[name];
            let at = base + offset;
            bytes[at..at + length].copy_from_slice(&number.to_le_bytes()[..length]);
            assert_eq!(*number >> (8 * length - 1) >> 1, 0, "{name} fits");
        }
    }

    fn put_bytes(&self, bytes: &mut [u8], base: usize, name: &str, part: &[u8]) {
        let (offset, length) = self.0[name];
        assert_eq!(length, part.len(), "the length of {name}");
        bytes[base + offset..][..length].copy_from_slice(part);
    }

    /// Puts the CRC-32C of the bytes before the field *checksum*, begun with `base`.
    fn put_checksum(&self, bytes: &mut [u8], base: usize) {
        let at = base + self.offset("checksum");
        let sum = crc32c(0, &bytes[base..at]);
        self.put(bytes, base, &[("checksum", sum.into())]);
    }
}
