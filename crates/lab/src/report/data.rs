//! Results for programs: `results.json`, an array with one object for each point, and
//! `results.csv`, the same numbers in lines. Both name the machine and the settings in every
//! record, so that each record is complete.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{
    findings::{Block, Findings},
    over_time,
    sheet::Sheet,
};
use crate::measure::{
    curve::{Curve, Point},
    outcome::{OUTCOMES, Outcome, Tally},
    timeline::Steadiness,
};

/// The array of objects.
pub fn json(findings: &Findings) -> String {
    records_json(records(findings))
}

/// The array of these objects.
pub fn records_json(records: Vec<Map<String, Value>>) -> String {
    let records = Value::Array(records.into_iter().map(Value::Object).collect());
    // Serialising plain values into memory cannot fail.
    serde_json::to_string_pretty(&records).expect("values serialise") + "\n"
}

/// One line for each point; nested values are flattened as `machine.cores`.
pub fn csv(findings: &Findings) -> String {
    lines(&records(findings))
}

/// These objects, one line each.
pub fn records_csv(records: &[Map<String, Value>]) -> String {
    lines(records)
}

/// The points of every panel of a figure.
pub fn sheet_json(sheet: &Sheet) -> String {
    records_json(sheet_records(sheet))
}

/// The same, one line for each point.
pub fn sheet_csv(sheet: &Sheet) -> String {
    lines(&sheet_records(sheet))
}

/// The objects of the points of every panel of a figure.
pub fn sheet_records(sheet: &Sheet) -> Vec<Map<String, Value>> {
    let named = |record: Map<String, Value>| {
        let figure = ("figure".to_owned(), json!(sheet.id));
        std::iter::once(figure).chain(record).collect()
    };
    sheet.panels.iter().flat_map(records).map(named).collect()
}

/// The tables of a figure, the document's numbers among them: an array of tables, each with its
/// rows as objects by column. Rows that were measured with settings of their own have `settings`.
pub fn tables_json(sheet: &Sheet) -> String {
    let table = |block: &Block| {
        let row = |(at, row): (usize, &Vec<String>)| -> Map<String, Value> {
            let cells = block.table.heads().iter().zip(row);
            let cells = cells.map(|(head, cell)| (head.clone(), json!(cell)));
            let settings = block.table.settings(at);
            let settings = settings.map(|settings| ("settings".to_owned(), json!(settings)));
            cells.chain(settings).collect()
        };
        let rows: Vec<_> = block.table.rows().iter().enumerate().map(row).collect();
        json!({"figure": sheet.id, "table": block.title, "note": block.note, "rows": rows,
               "machine": sheet.machine.to_json()})
    };
    let tables: Vec<Value> = sheet.blocks().map(table).collect();
    serde_json::to_string_pretty(&tables).expect("values serialise") + "\n"
}

/// The same, a line for each cell: tables differ in their columns.
pub fn tables_csv(sheet: &Sheet) -> String {
    let mut text = "figure,table,row,column,value\n".to_owned();
    for block in sheet.blocks() {
        for row in block.table.rows() {
            let name = row.first().map_or("", String::as_str);
            for (head, cell) in block.table.heads().iter().zip(row).skip(1) {
                let cells = [sheet.id, &block.title, name, head, cell].map(quoted);
                text += &(cells.join(",") + "\n");
            }
        }
    }
    text
}

fn lines(records: &[Map<String, Value>]) -> String {
    let rows: Vec<Vec<(String, Value)>> = records.iter().map(flatten).collect();
    let mut heads: Vec<String> = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !heads.contains(name) {
            heads.push(name.clone());
        }
    }
    let mut text = heads
        .iter()
        .map(|name| quoted(name))
        .collect::<Vec<_>>()
        .join(",")
        + "\n";
    for row in rows {
        let cell = |name: &String| {
            let value = row
                .iter()
                .find(|(other, _)| other == name)
                .map(|(_, value)| value);
            value.map_or(String::new(), |value| quoted(&plain(value)))
        };
        text += &(heads.iter().map(cell).collect::<Vec<_>>().join(",") + "\n");
    }
    text
}

/// The samples over time, one line for each.
pub fn samples_csv(findings: &Findings) -> String {
    let mut text = "system,second,tps,resident_bytes,user,kernel,others,idle\n".to_owned();
    for timeline in &over_time::all(findings) {
        for sample in &timeline.samples {
            let _ = writeln!(
                text,
                "{},{:.1},{:.1},{},{:.3},{:.3},{:.3},{:.3}",
                quoted(&timeline.label),
                sample.at.as_secs_f64(),
                sample.tps,
                sample.resident_bytes,
                sample.split.user,
                sample.split.kernel,
                sample.split.others,
                sample.split.idle
            );
        }
    }
    text
}

fn records(findings: &Findings) -> Vec<Map<String, Value>> {
    let points = |curve| points_of(findings, curve);
    findings.curves.iter().flat_map(points).collect()
}

fn points_of(findings: &Findings, curve: &Curve) -> Vec<Map<String, Value>> {
    curve
        .points
        .iter()
        .map(|point| record(findings, curve, point))
        .collect()
}

fn record(findings: &Findings, curve: &Curve, point: &Point) -> Map<String, Value> {
    let (tps, tally, latency) = (point.tps(), point.tally(), point.latency());
    let (committed, aborts) = (tally.committed() as f64, tally.aborts() as f64);
    let split = point.split(findings.machine.cores);
    let resident = point
        .runs
        .iter()
        .filter_map(|run| run.usage)
        .map(|u| u.resident_bytes)
        .max();
    let steadiness = Steadiness::of(&point.samples);
    let settings: Map<String, Value> = findings
        .settings
        .iter()
        .chain(&curve.settings)
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    let by_pass = curve.no_collapse_by_pass();
    let value = json!({
        "workload": findings.workload,
        "variant": findings.variant,
        "lock_manager": curve.lock_manager,
        "latch": curve.latch,
        "note": curve.note,
        "mpl": point.mpl,
        "tps": rounded(tps.median(), 1),
        "tps_min": rounded(tps.min(), 1),
        "tps_max": rounded(tps.max(), 1),
        "tps_by_pass": point.runs.iter().map(|run| rounded(run.tps(), 1)).collect::<Vec<f64>>(),
        "mtpm": rounded(tps.median() * 60.0 / 1e6, 4),
        "committed": tally.committed(),
        "aborts": tally.aborts(),
        "deadlocks": tally.of(Outcome::Deadlock),
        "timeouts": tally.of(Outcome::Timeout),
        "overwritten": tally.of(Outcome::Overwritten),
        "deadlock_rate": rounded(ratio(tally.of(Outcome::Deadlock) as f64, committed), 6),
        "aborts_per_commit": rounded(ratio(aborts, committed), 6),
        "aborts_per_attempt": rounded(ratio(aborts, committed + aborts), 6),
        "p50_us": rounded(latency.quantile_us(0.50), 2),
        "p90_us": rounded(latency.quantile_us(0.90), 2),
        "p95_us": rounded(latency.quantile_us(0.95), 2),
        "p99_us": rounded(latency.quantile_us(0.99), 2),
        "p999_us": rounded(latency.quantile_us(0.999), 2),
        "max_us": rounded(latency.max_us(), 2),
        "no_collapse": curve.no_collapse_ratio().map(|ratio| rounded(ratio, 3)),
        "no_collapse_min": rounded(by_pass.min(), 3),
        "no_collapse_max": rounded(by_pass.max(), 3),
        "processor_user": split.map(|split| rounded(split.user, 3)),
        "processor_kernel": split.map(|split| rounded(split.kernel, 3)),
        "processor_others": split.map(|split| rounded(split.others, 3)),
        "resident_bytes": resident,
        "over_time": steadiness.map(over_time),
        "reps": point.runs.len(),
        "time": point.times.as_ref().map(|times| match times {
            Ok(times) => times.to_json(tps.median()),
            Err(what) => json!(what),
        }),
        "outcomes": outcomes(&tally),
        "latencies": latencies(point, &tally),
        "checks": point.checks.as_ref().map_or_else(|what| what.as_str(), |()| "ok"),
        "command": findings.command,
        "settings": settings,
        "machine": findings.machine.to_json(),
    });
    match value {
        Value::Object(mut record) => {
            let facts = curve.facts.iter().chain(&point.facts).cloned();
            record.extend(facts.map(|(name, value)| (name.to_owned(), value)));
            record
        }
        _ => unreachable!("the literal above is an object"),
    }
}

/// Steadiness of the last repetition.
fn over_time(steadiness: Steadiness) -> Value {
    json!({
        "slice_seconds": steadiness.slice.as_secs_f64(),
        "worst_to_median": rounded(steadiness.worst_to_median, 3),
        "most_resident_bytes": steadiness.most_resident_bytes,
    })
}

/// The outcome counters of each type of transaction.
fn outcomes(tally: &Tally) -> Map<String, Value> {
    let counters = |counts: &[u64; OUTCOMES]| {
        let counts = Outcome::ALL.iter().zip(counts);
        let counts = counts.map(|(outcome, count)| (outcome.name().to_owned(), json!(count)));
        Value::Object(counts.collect())
    };
    let of_kind = |(kind, counts): (&str, &[u64; OUTCOMES])| (kind.to_owned(), counters(counts));
    tally.by_kind().map(of_kind).collect()
}

/// The latencies of each type of transaction.
fn latencies(point: &Point, tally: &Tally) -> Map<String, Value> {
    let of_kind = |(index, (kind, _)): (usize, (&str, _))| {
        let latency = point.latency_of(index);
        let at = |share: f64| rounded(latency.quantile_us(share), 2);
        let shares = json!({
            "p50_us": at(0.50),
            "p90_us": at(0.90),
            "p95_us": at(0.95),
            "p99_us": at(0.99),
            "p999_us": at(0.999),
            "max_us": rounded(latency.max_us(), 2),
        });
        (kind.to_owned(), shares)
    };
    tally.by_kind().enumerate().map(of_kind).collect()
}

fn flatten(record: &Map<String, Value>) -> Vec<(String, Value)> {
    let mut flat = Vec::new();
    for (name, value) in record {
        match value {
            Value::Object(inner) => flat.extend(
                flatten(inner)
                    .into_iter()
                    .map(|(under, value)| (format!("{name}.{under}"), value)),
            ),
            other => flat.push((name.clone(), other.clone())),
        }
    }
    flat
}

/// A value as a cell of a table.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn rounded(value: f64, digits: i32) -> f64 {
    let unit = 10f64.powi(digits);
    (value * unit).round() / unit
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{measure::timeline::Sample, report::synthetic};

    #[test]
    fn every_record_has_the_fields_promised() {
        let findings = synthetic::findings();
        let records: Value = serde_json::from_str(&json(&findings)).unwrap();
        let records = records.as_array().unwrap();
        assert_eq!(records.len(), 20);
        for record in records {
            for field in [
                "workload",
                "variant",
                "lock_manager",
                "latch",
                "checks",
                "command",
            ] {
                assert!(record[field].is_string(), "{field} of {record}");
            }
            for field in [
                "mpl", "tps", "tps_min", "tps_max", "aborts", "p50_us", "p99_us",
            ] {
                assert!(record[field].is_number(), "{field} of {record}");
            }
            let (outcomes, latencies) = (&record["outcomes"]["read"], &record["latencies"]["read"]);
            for outcome in Outcome::ALL {
                assert!(outcomes[outcome.name()].is_u64(), "{record}");
            }
            let ascending = ["p50_us", "p90_us", "p95_us", "p99_us", "p999_us", "max_us"];
            for both in ascending.windows(2) {
                let [low, high] = [both[0], both[1]].map(|name| latencies[name].as_f64());
                assert!(low.is_some() && low <= high, "{both:?} of {record}");
            }
            assert!(latencies["p99_us"].as_f64() > Some(0.0), "{record}");
            assert!(record["settings"].is_object() && record["machine"]["cores"].is_number());
            assert!(record["tps_min"].as_f64() <= record["tps"].as_f64());
            assert!(record["tps"].as_f64() <= record["tps_max"].as_f64());
        }
    }

    #[test]
    fn a_record_has_the_worst_slice_and_the_most_memory_of_the_last_repetition() {
        let mut findings = synthetic::findings();
        let sample = |(second, tps): (u64, f64)| Sample {
            at: Duration::from_secs(second),
            tps,
            resident_bytes: 7 * second,
            ..Sample::default()
        };
        let point = &mut findings.curves[0].points[0];
        point.samples = [(1, 100.0), (2, 50.0), (3, 100.0)].map(sample).to_vec();
        let records: Value = serde_json::from_str(&json(&findings)).unwrap();
        let expected = json!({
            "slice_seconds": 1.0, "worst_to_median": 0.5, "most_resident_bytes": 21
        });
        assert_eq!(records[0]["over_time"], expected);
        findings.curves[0].points[0].samples.clear();
        let records: Value = serde_json::from_str(&json(&findings)).unwrap();
        assert!(records[0]["over_time"].is_null());
    }

    #[test]
    fn csv_has_a_line_for_each_point_and_as_many_cells_in_each() {
        let text = csv(&synthetic::findings());
        let cells = |line: &str| {
            let mut quoted = false;
            let commas = line.chars().filter(|&c| {
                quoted ^= c == '"';
                c == ',' && !quoted
            });
            commas.count()
        };
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 21);
        assert!(
            lines.iter().all(|line| cells(line) == cells(lines[0])),
            "{text}"
        );
    }
}
