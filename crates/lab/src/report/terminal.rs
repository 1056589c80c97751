//! Results on a terminal: the table, the spread, and a small picture.

use super::{
    findings::{Block, Findings},
    number::{bytes, duration_us, grouped},
    sheet::Sheet,
    sketch::sketch,
    table::Table,
};
use crate::measure::{
    curve::{Curve, Point},
    outcome::{Outcome, Tally},
};

/// The table of every point, the ratios, and the sketch.
pub fn text(findings: &Findings) -> String {
    let machine = findings.machine.sentence();
    format!("\n{}\n{machine}\n\n{}", findings.title, body(findings))
}

/// A figure: what to expect, the document's numbers beside ours, then each panel.
pub fn sheet(sheet: &Sheet) -> String {
    let mut text = format!("\n{}: {}\n", sheet.id, sheet.title);
    text += &wrapped(&format!("After {}", sheet.source));
    text += &format!("{}\n\n", sheet.machine.sentence());
    text += &wrapped(&format!("To expect: {}", sheet.expect));
    text += &wrapped(&sheet.shape.sentence());
    text += "\n";
    for note in &sheet.notes {
        text += &(wrapped(note) + "\n");
    }
    sheet.beside.iter().for_each(|one| text += &block(one));
    if !sheet.shape.0.is_empty() {
        text += &block(&sheet.shape.block());
    }
    for panel in &sheet.panels {
        text += &format!("{}\n\n{}\n", panel.title, body(panel));
    }
    text
}

fn body(findings: &Findings) -> String {
    let mut text = String::new();
    findings.blocks.iter().for_each(|one| text += &block(one));
    // One point each is in the tables above already.
    let single = findings.curves.iter().all(|curve| curve.points.len() < 2);
    if !single || findings.blocks.is_empty() {
        text += &points(findings).render();
    }
    let outcomes = outcomes(findings);
    if !outcomes.is_empty() {
        text += "\nWhat became of every attempt, over all points:\n\n";
        text += &outcomes.render();
    }
    let ratios = ratios(findings);
    if !ratios.is_empty() {
        text += "\nNo-collapse ratio: throughput at the largest MPL ÷ peak, same run.\n\n";
        text += &ratios.render();
    }
    let picture = sketch(&findings.curves);
    if !picture.is_empty() {
        text += "\n";
        text += &picture;
    }
    if !findings.timelines.is_empty() {
        text += "\n";
        text += &timelines(findings).render();
    }
    if let Some(warning) = findings.disturbance() {
        text += &format!("\nNote: {warning}\n");
    }
    text
}

/// A table with its title and note.
pub fn block(block: &Block) -> String {
    let note = match block.note.as_str() {
        "" => String::new(),
        note => wrapped(note),
    };
    format!("{}\n\n{}{note}\n", block.title, block.table.render())
}

/// Lines of at most a hundred letters.
pub fn wrapped(words: &str) -> String {
    const WIDTH: usize = 100;
    let (mut text, mut width) = (String::new(), 0);
    for word in words.split_whitespace() {
        let letters = word.chars().count();
        if width > 0 && width + 1 + letters > WIDTH {
            text.push('\n');
            width = 0;
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text += word;
        width += letters;
    }
    text + "\n"
}

fn points(findings: &Findings) -> Table {
    let mut table = Table::new([
        "locks",
        "MPL",
        "tps",
        "min",
        "max",
        "p50",
        "p90",
        "p99",
        "longest",
        "deadlock",
        "timeout",
        "÷ commits",
        "÷ attempts",
        "checks",
    ]);
    for (index, curve) in findings.curves.iter().enumerate() {
        if index > 0 && curve.points.len() > 1 {
            table.gap();
        }
        curve
            .points
            .iter()
            .for_each(|point| table.row(cells(curve, point)));
    }
    table
}

fn cells(curve: &Curve, point: &Point) -> [String; 14] {
    let (tps, tally, latency) = (point.tps(), point.tally(), point.latency());
    let (commits, aborts) = (tally.committed() as f64, tally.aborts() as f64);
    let share = |whole: f64| match aborts > 0.0 {
        true => format!("{:.3} %", aborts / whole.max(1.0) * 100.0),
        false => "0".to_owned(),
    };
    [
        curve.label(),
        point.mpl.to_string(),
        grouped(tps.median()),
        grouped(tps.min()),
        grouped(tps.max()),
        duration_us(latency.quantile_us(0.5)),
        duration_us(latency.quantile_us(0.9)),
        duration_us(latency.quantile_us(0.99)),
        duration_us(latency.max_us()),
        tally.of(Outcome::Deadlock).to_string(),
        tally.of(Outcome::Timeout).to_string(),
        share(commits),
        share(commits + aborts),
        point
            .checks
            .clone()
            .map_or_else(|what| format!("FAILED: {what}"), |()| "ok".to_owned()),
    ]
}

/// The six counters of each type of transaction that was run, where there is more to say than that all
/// of one type went well.
fn outcomes(findings: &Findings) -> Table {
    let mut table = Table::new([
        "locks",
        "transaction",
        "attempts",
        "ok",
        "miss",
        "rule",
        "deadlock",
        "timeout",
        "error",
        "ok share",
    ]);
    let mut plain = true;
    for curve in &findings.curves {
        let mut tally = Tally::default();
        let points = curve.points.iter();
        points.for_each(|point| tally.add(&point.tally()));
        plain &= tally.attempts() == tally.of(Outcome::Ok) && tally.by_kind().count() < 2;
        for (kind, counts) in tally.by_kind() {
            let attempts: u64 = counts.iter().sum();
            if attempts == 0 {
                continue;
            }
            let share = counts[Outcome::Ok as usize] as f64 / attempts as f64 * 100.0;
            let count = |count: u64| grouped(count as f64);
            let cells = [curve.label(), kind.to_owned(), count(attempts)];
            let counts = counts.iter().map(|&number| count(number));
            let cells = cells.into_iter().chain(counts);
            table.row(cells.chain([format!("{share:.2} %")]));
        }
    }
    match plain {
        true => Table::default(),
        false => table,
    }
}

fn ratios(findings: &Findings) -> Table {
    let mut table = Table::new([
        "locks",
        "peak tps",
        "at MPL",
        "tps at largest",
        "MPL",
        "ratio",
        "in one pass",
    ]);
    for curve in &findings.curves {
        let (Some(peak), Some(last), Some(ratio)) =
            (curve.peak(), curve.points.last(), curve.no_collapse_ratio())
        else {
            continue;
        };
        let by_pass = curve.no_collapse_by_pass();
        table.row([
            curve.label(),
            grouped(peak.tps().median()),
            peak.mpl.to_string(),
            grouped(last.tps().median()),
            last.mpl.to_string(),
            format!("{ratio:.2}"),
            format!("{:.2}..{:.2}", by_pass.min(), by_pass.max()),
        ]);
    }
    table
}

fn timelines(findings: &Findings) -> Table {
    let mut table = Table::new([
        "locks", "second", "tps", "memory", "program", "kernel", "others", "idle",
    ]);
    for timeline in &findings.timelines {
        for sample in &timeline.samples {
            let percent = |share: f64| format!("{:.0} %", share * 100.0);
            table.row([
                timeline.label.clone(),
                format!("{:.1}", sample.at.as_secs_f64()),
                grouped(sample.tps),
                bytes(sample.resident_bytes),
                percent(sample.split.user),
                percent(sample.split.kernel),
                percent(sample.split.others),
                percent(sample.split.idle),
            ]);
        }
    }
    table
}
