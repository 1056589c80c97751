//! Markdown for people who read it as text, too: aligned tables, and lines of 100 columns.

/// The widest line of a paragraph, in characters.
const WIDTH: usize = 100;
/// Ends a line of a command and begins the next.
const BREAK: &str = " \\\n    ";

/// An aligned table: columns of numbers to the right, others to the left.
pub(super) fn table(heads: &[String], rows: &[Vec<String>]) -> String {
    let columns: Vec<Column> = (0..heads.len())
        .map(|column| {
            Column::of(
                &heads[column],
                rows.iter().filter_map(|row| row.get(column)),
            )
        })
        .collect();
    let line = |cells: &[String]| {
        let mut text = "|".to_owned();
        for (index, column) in columns.iter().enumerate() {
            let cell = cells.get(index).map_or("", String::as_str);
            text += &format!(" {} |", column.padded(cell));
        }
        text + "\n"
    };
    let rules: Vec<String> = columns.iter().map(Column::rule).collect();
    let body: String = rows.iter().map(|row| line(row)).collect();
    line(heads) + &line(&rules) + &body
}

/// Width of a column and the side its cells are on.
#[derive(Debug)]
struct Column {
    width: usize,
    is_numeric: bool,
}

impl Column {
    fn of<'a>(head: &'a String, cells: impl Iterator<Item = &'a String> + Clone) -> Column {
        let widest = cells
            .clone()
            .chain([head])
            .map(|cell| cell.chars().count())
            .max();
        let numeric = |cell: &String| {
            cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        };
        Column {
            width: widest.unwrap_or(0).max(3),
            is_numeric: cells.clone().all(numeric),
        }
    }

    fn padded(&self, cell: &str) -> String {
        let blanks = " ".repeat(self.width - cell.chars().count());
        match self.is_numeric {
            true => blanks + cell,
            false => cell.to_owned() + &blanks,
        }
    }

    fn rule(&self) -> String {
        match self.is_numeric {
            true => "-".repeat(self.width - 1) + ":",
            false => "-".repeat(self.width),
        }
    }
}

/// The text as a paragraph, broken between words.
pub(super) fn paragraph(text: &str) -> String {
    broken(text, WIDTH, "\n") + "\n"
}

/// A command of the shell, broken between words; it still works when typed.
pub(super) fn command(line: &str) -> String {
    broken(line, WIDTH - BREAK.len(), BREAK) + "\n"
}

/// The words of a text, with `between` where a line would be too long.
fn broken(text: &str, width: usize, between: &str) -> String {
    let (mut lines, mut used) = (String::new(), 0);
    for word in text.split_whitespace() {
        let long = word.chars().count();
        if used > 0 && used + 1 + long > width {
            lines += between;
            used = 0;
        } else if used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines += word;
        used += long;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells<const N: usize>(texts: [&str; N]) -> Vec<String> {
        texts.map(str::to_owned).to_vec()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [cells(["direct", "1,000"]), cells(["µ"])];
        assert_eq!(
            table(&cells(["", "rate"]), &rows),
            "|        |  rate |\n| ------ | ----: |\n| direct | 1,000 |\n| µ      |       |\n"
        );
    }

    #[test]
    fn paragraphs_break_between_words() {
        let words = ["word"; 30].join(" ");
        let wrapped = paragraph(&words);
        assert_eq!(wrapped.lines().count(), 2);
        assert!(wrapped.lines().all(|line| line.chars().count() <= WIDTH));
        assert_eq!(wrapped.split_whitespace().count(), 30);
        let long = "x".repeat(150);
        assert_eq!(paragraph(&long), long + "\n");
    }

    #[test]
    fn commands_break_so_that_the_shell_joins_them() {
        assert_eq!(command("foxton bench txbench"), "foxton bench txbench\n");
        let long = ["--option"; 14].join(" ");
        let lines = command(&long);
        assert!(
            lines.lines().all(|line| line.chars().count() <= WIDTH),
            "{lines}"
        );
        assert_eq!(lines.replace("\\\n    ", ""), long + "\n");
    }
}
