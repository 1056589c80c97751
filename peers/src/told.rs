//! Output that all measuring commands share.

use crate::driver::Count;
use std::{fs, process::Command, time::Duration};

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) count: Count,
    pub(crate) took: Duration,
}

impl Run {
    pub(crate) fn rate(&self) -> f64 {
        self.count.committed as f64 / self.took.as_secs_f64()
    }
}

/// The middle, the least and the greatest of some numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
}

impl Spread {
    pub(crate) fn of(numbers: impl Iterator<Item = f64>) -> Spread {
        let mut numbers: Vec<f64> = numbers.collect();
        numbers.sort_by(f64::total_cmp);
        let middle = numbers.len() / 2;
        let low = middle - usize::from(numbers.len().is_multiple_of(2));
        Spread {
            median: (numbers[low] + numbers[middle]) / 2.0,
            least: numbers[0],
            greatest: numbers[numbers.len() - 1],
        }
    }
}

/// The middle, and from where to where.
pub(crate) fn rate(
    Spread {
        median,
        least,
        greatest,
    }: Spread,
) -> String {
    format!(
        "{} ({} to {})",
        grouped(median),
        grouped(least),
        grouped(greatest)
    )
}

/// With a comma between thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let first = digits.len() % 3;
    let mut text = digits[..first].to_owned();
    for (n, three) in digits.as_bytes()[first..].chunks(3).enumerate() {
        if first > 0 || n > 0 {
            text.push(',');
        }
        text.extend(three.iter().map(|&digit| char::from(digit)));
    }
    text
}

/// A table in Markdown, its columns aligned.
pub(crate) fn print_aligned(rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    for (n, row) in rows.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let width = width(column);
            match column {
                0 => print!("| {cell:<width$} "),
                _ => print!("| {cell:>width$} "),
            }
        }
        println!("|");
        if n == 0 {
            print!("| {} ", "-".repeat(width(0)));
            (1..row.len()).for_each(|column| print!("| {}: ", "-".repeat(width(column) - 1)));
            println!("|");
        }
    }
}

/// The processor's name, and how many of it.
pub(crate) fn machine() -> String {
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = about
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let name = name
        .and_then(|rest| rest.split_once(':'))
        .map_or("processor", |(_, name)| name.trim());
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{count} × {name}, {} {}",
        std::env::consts::OS,
        std::env::consts::ARCH
    )
}

/// Of the repository around here, if there is one.
pub(crate) fn commit() -> String {
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    match text {
        Ok(text) if !text.is_empty() => text,
        _ => "unknown".to_owned(),
    }
}
