//! Reports: on the terminal, as CSV and JSON for programs, as SVG and HTML for people.

/// Numbers as people read them.
pub mod number;

/// Aligned columns.
pub mod table;

/// A small picture for a terminal.
pub mod sketch;

/// Words and colours that pictures share.
pub mod lettering;

/// Line charts as SVG.
pub mod chart;

/// Stacked bars as SVG.
pub mod bars;

/// Small line charts beside each other as SVG.
pub mod multiples;

/// All results of one experiment.
pub mod findings;

/// The pictures of an experiment.
pub mod figures;

/// Throughput and memory while clients run.
pub mod over_time;

/// Where the time went: a table and bars.
pub mod times;

/// Counts of a workload's own.
pub mod facts;

/// The claims of a figure, judged.
pub mod shape;

/// A figure of a document beside ours.
pub mod sheet;

/// Reports for a terminal.
pub mod terminal;

/// Results for programs: results.json and results.csv.
pub mod data;

/// The frame of a page.
pub mod page;

/// One self-contained page.
pub mod html;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use findings::Findings;
use serde_json::{Map, Value};
use sheet::Sheet;

/// A directory, and the files written to it.
struct Filled<'a> {
    directory: &'a Path,
    written: Vec<PathBuf>,
}

impl Filled<'_> {
    fn new(directory: &Path) -> io::Result<Filled<'_>> {
        fs::create_dir_all(directory)?;
        Ok(Filled {
            directory,
            written: Vec::new(),
        })
    }

    fn put(&mut self, name: &str, text: String) -> io::Result<()> {
        let path = self.directory.join(name);
        fs::write(&path, text)?;
        self.written.push(path);
        Ok(())
    }
}

/// Writes every report into `directory`, which is created, and returns the files written.
///
/// # Errors
///
/// If the directory or a file cannot be written.
pub fn write(findings: &Findings, directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut filled = Filled::new(directory)?;
    filled.put("report.html", html::page(findings))?;
    let over_clients = figures::of(findings).into_iter();
    for figure in over_clients
        .chain(times::picture(findings))
        .chain(over_time::pictures(findings))
    {
        filled.put(&format!("{}.svg", figure.name), figure.chart.svg())?;
    }
    filled.put("results.json", data::json(findings))?;
    filled.put("results.csv", data::csv(findings))?;
    if !over_time::all(findings).is_empty() {
        filled.put("samples.csv", data::samples_csv(findings))?;
    }
    Ok(filled.written)
}

/// Writes a figure into `directory`, which is created, and returns the files written.
///
/// # Errors
///
/// If the directory or a file cannot be written.
pub fn write_sheet(sheet: &Sheet, directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut filled = Filled::new(directory)?;
    filled.put("report.html", html::sheet(sheet))?;
    for figure in sheet.all_pictures() {
        filled.put(&format!("{}.svg", figure.name), figure.chart.svg())?;
    }
    if sheet.panels.iter().any(|panel| !panel.curves.is_empty()) {
        filled.put("results.json", data::sheet_json(sheet))?;
        filled.put("results.csv", data::sheet_csv(sheet))?;
    }
    let mut panels = sheet.panels.iter();
    if let Some(panel) = panels.find(|panel| !panel.timelines.is_empty()) {
        filled.put("samples.csv", data::samples_csv(panel))?;
    }
    filled.put("tables.json", data::tables_json(sheet))?;
    filled.put("tables.csv", data::tables_csv(sheet))?;
    Ok(filled.written)
}

/// Like [`write_sheet`], with these objects as `results.json` and `results.csv`: for experiments
/// that are not measured over clients.
///
/// # Errors
///
/// If the directory or a file cannot be written.
pub fn write_records(
    sheet: &Sheet,
    records: Vec<Map<String, Value>>,
    directory: &Path,
) -> io::Result<Vec<PathBuf>> {
    let mut written = write_sheet(sheet, directory)?;
    let mut filled = Filled::new(directory)?;
    filled.put("results.csv", data::records_csv(&records))?;
    filled.put("results.json", data::records_json(records))?;
    written.append(&mut filled.written);
    Ok(written)
}

/// Made-up findings for tests of reports and of their readers.
#[cfg(test)]
pub(crate) mod synthetic;
