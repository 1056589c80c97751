//! Results on a terminal: the table, the spread, and a small picture.

use std::time::Duration;

use super::{
    facts,
    findings::{Block, Findings},
    number::{bytes, duration_us, grouped},
    over_time,
    sheet::Sheet,
    sketch::sketch,
    table::Table,
    times,
};
use crate::measure::{
    curve::{Curve, Point},
    outcome::{OUTCOMES, Outcome, Tally},
    timeline::Steadiness,
};

/// Returns the table of every point, the ratios, and the sketch.
pub fn text(findings: &Findings) -> String {
    let machine = findings.machine.sentence();
    format!("\n{}\n{machine}\n\n{}", findings.title, body(findings))
}

/// Returns a figure: what to expect, the document's numbers beside ours, then each panel.
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
    // Single points are left out if the tables above have them.
    let single = findings.curves.iter().all(|curve| curve.points.len() < 2);
    if !single || !findings.blocks_have_points {
        text += &points(findings).render();
    }
    let steady = steadiness(findings);
    if !steady.is_empty() {
        text += "\nOver time, in the last repetition:\n\n";
        text += &steady.render();
    }
    let own = facts::table(findings);
    if !own.is_empty() {
        text += "\nOther counts of this workload:\n\n";
        text += &own.render();
    }
    let outcomes = outcomes(findings);
    if !outcomes.is_empty() {
        text += "\nHow every attempt ended, over all points:\n\n";
        text += &outcomes.render();
    }
    let by_type = by_type(findings);
    if !by_type.is_empty() {
        text += "\nLatency by type of transaction, with the most clients:\n\n";
        text += &by_type.render();
    }
    if let Some(one) = times::block(findings) {
        text += &format!("\n{}", block(&one));
    }
    let ratios = ratios(findings);
    if !ratios.is_empty() {
        text += "\nNo-collapse ratio: throughput at the largest MPL ÷ peak, both of this run.\n\n";
        text += &ratios.render();
    }
    let picture = sketch(&findings.curves);
    if !picture.is_empty() {
        text += "\n";
        text += &picture;
    }
    if !findings.timelines.is_empty() {
        text += "\n";
        text += &over_time::table(findings).render();
    }
    if let Some(warning) = findings.disturbance() {
        text += &format!("\nNote: {warning}\n");
    }
    text
}

/// Returns a table with its title and note.
pub fn block(block: &Block) -> String {
    let note = match block.note.as_str() {
        "" => String::new(),
        note => wrapped(note),
    };
    format!("{}\n\n{}{note}\n", block.title, block.table.render())
}

/// Breaks words into lines of at most a hundred letters.
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

/// Steadiness of windows of at least ten seconds; shorter ones say little about it.
fn steadiness(findings: &Findings) -> Table {
    const LEAST: Duration = Duration::from_millis(500);
    let mut table = Table::new([
        "locks",
        "MPL",
        "slice",
        "worst ÷ median slice",
        "most memory",
    ]);
    for curve in &findings.curves {
        for point in &curve.points {
            let steadiness = Steadiness::of(&point.samples);
            if let Some(found) = steadiness.filter(|found| found.slice >= LEAST) {
                table.row([
                    curve.label(),
                    point.mpl.to_string(),
                    duration_us(found.slice.as_secs_f64() * 1e6),
                    format!("{:.2}", found.worst_to_median),
                    bytes(found.most_resident_bytes),
                ]);
            }
        }
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

/// Outcome counters of each type of transaction; empty if one type ran and all of it went well.
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

/// Latencies of each type of transaction at the last point of each curve, if there are several
/// types. The files have those of all points.
fn by_type(findings: &Findings) -> Table {
    let mut table = Table::new([
        "locks",
        "MPL",
        "transaction",
        "p50",
        "p90",
        "p95",
        "p99",
        "p99.9",
        "longest",
    ]);
    for curve in &findings.curves {
        let Some(point) = curve.points.last() else {
            continue;
        };
        let tally = point.tally();
        let ran =
            |(_, (_, counts)): &(usize, (_, &[u64; OUTCOMES]))| counts.iter().sum::<u64>() > 0;
        let kinds: Vec<_> = tally.by_kind().enumerate().filter(ran).collect();
        if kinds.len() < 2 {
            continue;
        }
        for (index, (kind, _)) in kinds {
            let latency = point.latency_of(index);
            let shares = [0.5, 0.9, 0.95, 0.99, 0.999].map(|share| latency.quantile_us(share));
            let named = [curve.label(), point.mpl.to_string(), kind.to_owned()];
            let times = shares.into_iter().chain([latency.max_us()]);
            table.row(named.into_iter().chain(times.map(duration_us)));
        }
    }
    table
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        measure::{latency::Latency, outcome::Ended, run::Run, timeline::Sample},
        report::synthetic,
    };

    #[test]
    fn a_single_point_is_shown_unless_another_table_has_it() {
        let mut findings = synthetic::findings();
        for curve in &mut findings.curves {
            curve.points.truncate(1);
        }
        let mut table = Table::new(["system", "skipped"]);
        table.row(["global".to_owned(), "7".to_owned()]);
        findings.blocks.push(Block {
            title: "Skipped".to_owned(),
            note: String::new(),
            table,
        });
        let points = |findings: &Findings| body(findings).contains("÷ attempts");
        assert!(points(&findings));
        findings.blocks_have_points = true;
        assert!(!points(&findings));
    }

    #[test]
    fn long_windows_show_their_worst_slice_and_the_most_memory() {
        let mut findings = synthetic::findings();
        let sample = |(second, tps): (u64, f64)| Sample {
            at: Duration::from_secs(second),
            tps,
            resident_bytes: second << 20,
            ..Sample::default()
        };
        let point = &mut findings.curves[0].points[0];
        point.samples = [(1, 100.0), (2, 62.0), (3, 100.0)].map(sample).to_vec();
        let text = body(&findings);
        let line = text.lines().find(|line| line.contains("3 MiB"));
        assert!(line.is_some_and(|line| line.contains("0.62")), "{text}");
        for sample in &mut findings.curves[0].points[0].samples {
            sample.at /= 10;
        }
        assert!(!body(&findings).contains("worst ÷ median"));
    }

    #[test]
    fn each_type_of_transaction_that_ran_has_its_own_latencies() {
        let mut findings = synthetic::findings();
        assert!(by_type(&findings).is_empty(), "there is one type only");
        let mut tally = Tally::new(&["quick", "never", "slow"]);
        let mut latencies = vec![Latency::default(); 3];
        for (kind, millis) in [(0, 1), (2, 500)] {
            for _ in 0..1_000 {
                tally.count(Ended::ok(kind));
                latencies[kind].record(Duration::from_millis(millis));
            }
        }
        latencies[0].record(Duration::from_secs(3));
        findings.curves.truncate(1);
        let point = findings.curves[0].points.last_mut().expect("it has points");
        point.runs = vec![Run {
            tally,
            latencies,
            ..Run::default()
        }];
        let table = by_type(&findings);
        let rows = table.rows();
        assert_eq!(rows.len(), 2);
        assert_eq!([&rows[0][2], &rows[1][2]], ["quick", "slow"]);
        assert!(
            rows[0][7].ends_with("ms") && rows[0][8].ends_with(" s"),
            "{rows:?}"
        );
        assert!(rows[1][3].starts_with('5'), "{rows:?}");
    }
}
