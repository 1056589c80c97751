//! Aligned columns for a terminal.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A table of text: numbers to the right, words to the left.
#[derive(Debug, Clone, Default)]
pub struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Settings of rows, by the index of the row.
    settings: BTreeMap<usize, Map<String, Value>>,
}

impl Table {
    /// A table with these column heads.
    pub fn new<const N: usize>(heads: [&str; N]) -> Table {
        Table {
            heads: heads.map(str::to_owned).to_vec(),
            ..Table::default()
        }
    }

    /// Like [`new`](Table::new), with heads that are computed.
    pub fn of(heads: impl IntoIterator<Item = String>) -> Table {
        Table {
            heads: heads.into_iter().collect(),
            ..Table::default()
        }
    }

    /// Adds a row; missing cells are blank.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Adds a row that was measured with these settings, which files for programs have beside it.
    pub fn row_with(
        &mut self,
        settings: Vec<(&'static str, Value)>,
        cells: impl IntoIterator<Item = String>,
    ) {
        let settings = settings.into_iter();
        let settings = settings.map(|(name, value)| (name.to_owned(), value));
        self.settings.insert(self.rows.len(), settings.collect());
        self.row(cells);
    }

    /// Settings of a row, if it has its own.
    pub fn settings(&self, row: usize) -> Option<&Map<String, Value>> {
        self.settings.get(&row)
    }

    /// Adds a blank line.
    pub fn gap(&mut self) {
        self.rows.push(Vec::new());
    }

    /// The column heads.
    pub fn heads(&self) -> &[String] {
        &self.heads
    }

    /// The rows.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// True if it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the text: two blanks before each column, a line for each row.
    pub fn render(&self) -> String {
        let columns = self.heads.len();
        let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
        let layout: Vec<(usize, bool)> = (0..columns)
            .map(|column| {
                let cells = || self.rows.iter().map(|row| cell(row, column));
                let widest = cells().map(|text| text.chars().count()).max().unwrap_or(0);
                let numeric = cells().all(|text| looks_numeric(&text));
                (widest.max(self.heads[column].chars().count()), numeric)
            })
            .collect();
        let line = |row: &[String]| {
            let mut text = String::new();
            for (column, &(width, numeric)) in layout.iter().enumerate() {
                let cell = cell(row, column);
                let pad = " ".repeat(width - cell.chars().count());
                text += "  ";
                text += &if numeric { pad + &cell } else { cell + &pad };
            }
            text.trim_end().to_owned() + "\n"
        };
        let mut text = line(&self.heads);
        let rule: Vec<String> = layout.iter().map(|&(width, _)| "─".repeat(width)).collect();
        text += &line(&rule);
        self.rows.iter().for_each(|row| text += &line(row));
        text
    }
}

/// True if a cell is aligned right.
pub(super) fn looks_numeric(text: &str) -> bool {
    let text = text.strip_prefix("about ").unwrap_or(text);
    text.is_empty() || text == "-" || text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_go_left_and_numbers_right() {
        let mut table = Table::new(["locks", "tps"]);
        table.row(["global".into(), "1,000".into()]);
        table.row(["none".into(), "9".into()]);
        assert_eq!(
            table.render(),
            "  locks     tps\n  ──────  ─────\n  global  1,000\n  none        9\n"
        );
        table.row(["x".into(), "about 90".into()]);
        let last = table.render().lines().last().map(str::to_owned);
        assert_eq!(last.as_deref(), Some("  x       about 90"));
    }
}
