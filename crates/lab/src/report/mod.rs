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

/// The pictures of an experiment.
pub mod figures;

/// A figure of a document, and ours beside it.
pub mod sheet;

/// For a terminal.
pub mod terminal;

/// For programs: results.json and results.csv.
pub mod data;

/// One self-contained page.
pub mod html;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use findings::Findings;
use sheet::Sheet;

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

/// Writes a figure into `directory`, which is created, and returns the files written.
///
/// # Errors
///
/// If the directory or a file cannot be written.
pub fn write_sheet(sheet: &Sheet, directory: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(directory)?;
    let mut written = Vec::new();
    let mut put = |name: &str, text: String| -> io::Result<()> {
        let path = directory.join(name);
        fs::write(&path, text)?;
        written.push(path);
        Ok(())
    };
    put("report.html", html::sheet(sheet))?;
    for figure in sheet.all_pictures() {
        put(&format!("{}.svg", figure.name), figure.chart.svg())?;
    }
    if sheet.panels.iter().any(|panel| !panel.curves.is_empty()) {
        put("results.json", data::sheet_json(sheet))?;
        put("results.csv", data::sheet_csv(sheet))?;
    }
    let sampled = sheet
        .panels
        .iter()
        .find(|panel| !panel.timelines.is_empty());
    if let Some(panel) = sampled {
        put("samples.csv", data::samples_csv(panel))?;
    }
    put("tables.json", data::tables_json(sheet))?;
    put("tables.csv", data::tables_csv(sheet))?;
    Ok(written)
}

/// Made-up findings for the tests of the reports.
#[cfg(test)]
mod synthetic;
