//! How results are told: on the terminal, as CSV and JSON for programs, as SVG and HTML for people.

/// Numbers as people read them.
pub mod number;

/// Aligned columns.
pub mod table;

/// A small picture for a terminal.
pub mod sketch;

/// Line charts as SVG.
pub mod chart;

/// Everything one experiment found.
pub mod findings;

/// For a terminal.
pub mod terminal;

/// For programs: results.json and results.csv.
pub mod data;

/// The pictures of an experiment.
pub mod figures;

/// One self-contained page.
pub mod html;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use findings::Findings;

/// Writes everything into `directory`, which is created, and returns the files written.
///
/// # Errors
///
/// If the directory or a file cannot be written.
pub fn write(findings: &Findings, directory: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(directory)?;
    let mut written = Vec::new();
    let mut put = |name: &str, text: String| -> io::Result<()> {
        let path = directory.join(name);
        fs::write(&path, text)?;
        written.push(path);
        Ok(())
    };
    put("report.html", html::page(findings))?;
    for figure in figures::of(findings) {
        put(&format!("{}.svg", figure.name), figure.chart.svg())?;
    }
    put("results.json", data::json(findings))?;
    put("results.csv", data::csv(findings))?;
    if !findings.timelines.is_empty() {
        put("samples.csv", data::samples_csv(findings))?;
    }
    Ok(written)
}

/// Made-up findings for the tests of the reports.
#[cfg(test)]
mod synthetic;
