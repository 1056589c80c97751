//! Samples while clients ran: throughput, memory and the kernel by slices of the window.
//!
//! An experiment over time has lines of its own. In any other, each curve has one: that of its last
//! repetition with the most clients, where growth and slowdown are the largest.

use super::{
    chart::{Chart, Dot, Line, Scale},
    figures::{Figure, Picture},
    findings::Findings,
    number::{bytes, grouped, short},
    table::Table,
};
use crate::measure::{
    curve::{Curve, Point},
    timeline::{Sample, Timeline},
};

/// The lines that are drawn and tabulated. A line has at least two samples.
pub fn lines(findings: &Findings) -> Vec<Timeline> {
    if !findings.timelines.is_empty() {
        return findings.timelines.clone();
    }
    let last = |curve: &Curve| Some(line(curve, curve.points.last()?));
    let drawn = findings.curves.iter().filter_map(last);
    drawn.filter(|line| line.samples.len() > 1).collect()
}

/// All samples, by number of clients.
pub fn all(findings: &Findings) -> Vec<Timeline> {
    if !findings.timelines.is_empty() {
        return findings.timelines.clone();
    }
    let mut all = Vec::new();
    for curve in &findings.curves {
        all.extend(curve.points.iter().map(|point| line(curve, point)));
    }
    all.retain(|line| !line.samples.is_empty());
    all
}

fn line(curve: &Curve, point: &Point) -> Timeline {
    let clients = if point.mpl == 1 { "client" } else { "clients" };
    Timeline {
        label: format!("{}, {} {clients}", curve.label(), point.mpl),
        samples: point.samples.clone(),
    }
}

/// The pictures of an experiment over time; none for any other.
pub fn watched(findings: &Findings) -> Vec<Figure> {
    match findings.timelines.is_empty() {
        true => Vec::new(),
        false => pictures(findings),
    }
}

/// Throughput, memory and the kernel over time; none without samples.
pub fn pictures(findings: &Findings) -> Vec<Figure> {
    let lines = lines(findings);
    if lines.is_empty() {
        return Vec::new();
    }
    let title = match findings.timelines.is_empty() {
        true => "Over time, in the last repetition with the most clients".to_owned(),
        false => findings.title.clone(),
    };
    let throughput = Chart {
        title,
        y: ("transactions per second".into(), Scale::Linear),
        ..by_second(findings, &lines, |sample| sample.tps)
    };
    let memory = Chart {
        title: "Resident memory of the process, with the databases of all systems".into(),
        y: ("MiB".into(), Scale::Linear),
        y_text: grouped,
        ..by_second(findings, &lines, |sample| {
            sample.resident_bytes as f64 / (1u64 << 20) as f64
        })
    };
    let kernel = Chart {
        title: "Processor time in the kernel".into(),
        y: ("% of all processors".into(), Scale::Linear),
        ..by_second(findings, &lines, |sample| sample.split.kernel * 100.0)
    };
    let named = [
        ("throughput-over-time", throughput),
        ("memory-over-time", memory),
        ("kernel-over-time", kernel),
    ];
    let figure = |(name, chart): (&str, Chart)| Figure {
        name: name.to_owned(),
        chart: Picture::Lines(chart),
    };
    named.into_iter().map(figure).collect()
}

/// The samples as a table, a line for each.
pub fn table(findings: &Findings) -> Table {
    let mut table = Table::new([
        "locks", "second", "tps", "memory", "program", "kernel", "others", "idle",
    ]);
    for line in lines(findings) {
        for sample in &line.samples {
            let percent = |share: f64| format!("{:.0} %", share * 100.0);
            table.row([
                line.label.clone(),
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

fn by_second(findings: &Findings, lines: &[Timeline], value: impl Fn(&Sample) -> f64) -> Chart {
    let dot = |sample: &Sample| Dot::alone(sample.at.as_secs_f64(), value(sample));
    let line = |timeline: &Timeline| {
        let dots = timeline.samples.iter().map(dot).collect();
        Line::measured(timeline.label.clone(), dots)
    };
    Chart {
        title: String::new(),
        subtitle: findings.machine.sentence(),
        x: ("seconds".into(), Scale::Linear),
        y: (String::new(), Scale::Linear),
        y_text: short,
        marker: findings.event.clone(),
        lines: lines.iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::{data, html, synthetic};

    fn sample(at: u64, tps: f64, mebibytes: u64) -> Sample {
        Sample {
            at: Duration::from_secs(at),
            tps,
            resident_bytes: mebibytes << 20,
            ..Sample::default()
        }
    }

    /// Memory that grows with the most clients, over the second curve alone.
    fn sampled() -> Findings {
        let mut findings = synthetic::findings();
        let points = &mut findings.curves[1].points;
        points[0].samples = vec![sample(1, 1.0, 7), sample(2, 1.0, 8)];
        let last = points.last_mut().unwrap();
        last.samples = vec![sample(1, 40.0, 100), sample(2, 20.0, 900)];
        findings
    }

    #[test]
    fn memory_over_time_is_on_the_page_of_every_workload_and_in_its_files() {
        let findings = sampled();
        let drawn = lines(&findings);
        assert_eq!(drawn.len(), 1);
        assert_eq!(drawn[0].label, "bucket/tas-t, 512 clients");
        let names: Vec<String> = pictures(&findings)
            .into_iter()
            .map(|figure| figure.name)
            .collect();
        assert_eq!(
            names,
            [
                "throughput-over-time",
                "memory-over-time",
                "kernel-over-time"
            ]
        );
        let page = html::page(&findings);
        for words in ["Resident memory of the process", "900 MiB", "Over time"] {
            assert!(page.contains(words), "no {words}");
        }
        let csv = data::samples_csv(&findings);
        assert_eq!(csv.lines().count(), 1 + 2 + 2, "{csv}");
        assert!(
            csv.contains("\"bucket/tas-t, 1 client\",2.0,1.0,8388608"),
            "{csv}"
        );
        // An experiment over time shows its own curves only.
        let plain = synthetic::findings();
        assert_eq!(findings.sentences(), plain.sentences());
        assert!(pictures(&plain).is_empty() && !html::page(&plain).contains("Over time"));
    }

    #[test]
    fn what_an_experiment_watches_of_its_own_is_shown_instead() {
        let mut findings = sampled();
        findings.timelines = vec![Timeline {
            label: "watched".to_owned(),
            samples: vec![sample(5, 3.0, 1)],
        }];
        let labels = |lines: Vec<Timeline>| -> Vec<String> {
            lines.into_iter().map(|line| line.label).collect()
        };
        assert_eq!(labels(lines(&findings)), ["watched"]);
        assert_eq!(labels(all(&findings)), ["watched"]);
        assert_eq!(data::samples_csv(&findings).lines().count(), 2);
    }
}
