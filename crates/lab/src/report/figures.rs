//! Pictures of an experiment.

use super::{
    bars::Bars,
    chart::{Chart, Dot, Line, Scale},
    findings::Findings,
    multiples::{self, Multiples, Panel},
    number::{duration_us, short},
};
use crate::measure::{
    curve::{Curve, Point},
    outcome::{Outcome, Tally},
    spread::Spread,
};

/// A picture and the name of its file.
#[derive(Debug, Clone)]
pub struct Figure {
    /// The file's name without its ending.
    pub name: String,
    /// The picture.
    pub chart: Picture,
}

/// A picture of one kind or another.
#[derive(Debug, Clone)]
pub enum Picture {
    /// Lines.
    Lines(Chart),
    /// Stacked bars.
    Bars(Bars),
    /// Small charts of lines.
    Multiples(Multiples),
}

impl Picture {
    /// As an SVG document that stands alone or inside a page.
    pub fn svg(&self) -> String {
        match self {
            Picture::Lines(chart) => chart.svg(),
            Picture::Bars(bars) => bars.svg(),
            Picture::Multiples(charts) => charts.svg(),
        }
    }
}

/// Returns every picture over clients that these findings have.
pub fn of(findings: &Findings) -> Vec<Figure> {
    let mut figures = Vec::new();
    if findings.curves.iter().any(|curve| curve.points.len() > 1) {
        figures.push(Figure {
            name: "throughput".into(),
            chart: Picture::Lines(throughput(findings)),
        });
        figures.push(Figure {
            name: "latency".into(),
            chart: Picture::Lines(latency(findings)),
        });
        figures.push(Figure {
            name: "percentiles".into(),
            chart: Picture::Multiples(percentiles(findings)),
        });
        figures.extend(ABORTS.iter().filter_map(|cause| aborts(findings, cause)));
    }
    figures
}

fn throughput(findings: &Findings) -> Chart {
    let label = |curve: &Curve| match curve.no_collapse_ratio() {
        Some(ratio) => {
            let mpl = curve.points.last().map_or(0, |point| point.mpl);
            format!(
                "{}: {:.0} % of its peak at {mpl} clients",
                curve.label(),
                ratio * 100.0
            )
        }
        None => curve.label(),
    };
    let dot = |point: &Point| Dot::of(f64::from(point.mpl), &point.tps());
    Chart {
        title: findings.title.clone(),
        y: (
            "transactions per second (band: all repetitions)".into(),
            Scale::Linear,
        ),
        y_text: short,
        ..by_clients(findings, label, dot)
    }
}

fn latency(findings: &Findings) -> Chart {
    let dot = |point: &Point| {
        let runs = point.runs.iter().map(|run| run.latency().quantile_us(0.99));
        let (spread, all) = (Spread::new(runs), point.latency().quantile_us(0.99));
        Dot {
            x: f64::from(point.mpl),
            y: all,
            low: spread.min(),
            high: spread.max(),
        }
    };
    Chart {
        title: "Latency of 99 in 100 transactions".into(),
        y: (
            "latency, each line ten times the one below".into(),
            Scale::Log10,
        ),
        y_text: duration_us,
        ..by_clients(findings, Curve::label, dot)
    }
}

/// The quantiles that are drawn, and their names.
const SHARES: [(f64, &str); multiples::LINES] = [
    (0.5, "half of them (p50)"),
    (0.99, "99 of 100 (p99)"),
    (0.999, "999 of 1,000 transactions (p99.9)"),
];

fn percentiles(findings: &Findings) -> Multiples {
    let panel = |curve: &Curve| {
        let point = |point: &Point| {
            let latency = point.latency();
            let values = SHARES.map(|(share, _)| latency.quantile_us(share));
            (f64::from(point.mpl), values)
        };
        Panel {
            label: curve.label(),
            points: curve.points.iter().map(point).collect(),
        }
    };
    Multiples {
        title: "Latency of usual and of slow transactions".into(),
        subtitle: format!("{}; all repetitions together", findings.machine.sentence()),
        x: "clients (MPL); latency, each line ten times the one below".into(),
        lines: SHARES.map(|(_, words)| words.to_owned()),
        panels: findings.curves.iter().map(panel).collect(),
    }
}

/// The reasons why the engine ended attempts, with their names.
const ABORTS: [(Outcome, &str, &str); 3] = [
    (Outcome::Deadlock, "deadlocks", "Deadlocks"),
    (Outcome::Timeout, "timeouts", "Timeouts"),
    (Outcome::Overwritten, "overwritten", "Overwritten rows"),
];

/// Returns how often attempts ended for this reason; `None` if none did.
fn aborts(findings: &Findings, &(cause, name, heading): &(Outcome, &str, &str)) -> Option<Figure> {
    let mut points = findings.curves.iter().flat_map(|curve| &curve.points);
    points.find(|point| point.tally().of(cause) > 0)?;
    let rate = |tally: &Tally| tally.of(cause) as f64 / tally.committed().max(1) as f64 * 100.0;
    let dot = |point: &Point| {
        let spread = Spread::new(point.runs.iter().map(|run| rate(&run.tally)));
        Dot {
            x: f64::from(point.mpl),
            y: rate(&point.tally()),
            low: spread.min(),
            high: spread.max(),
        }
    };
    let chart = Chart {
        title: format!("{heading} for every 100 commits"),
        y: (
            format!("{name} for every 100 commits (band: all repetitions)"),
            Scale::Linear,
        ),
        y_text: short,
        ..by_clients(findings, Curve::label, dot)
    };
    Some(Figure {
        name: name.to_owned(),
        chart: Picture::Lines(chart),
    })
}

fn by_clients(
    findings: &Findings,
    label: impl Fn(&Curve) -> String,
    dot: impl Fn(&Point) -> Dot,
) -> Chart {
    let line =
        |curve: &Curve| Line::measured(label(curve), curve.points.iter().map(&dot).collect());
    let cores = findings.machine.cores as f64;
    let mpls = || {
        findings
            .curves
            .iter()
            .flat_map(|curve| &curve.points)
            .map(|p| f64::from(p.mpl))
    };
    let words = if cores == 1.0 {
        "1 core".into()
    } else {
        format!("{cores} cores")
    };
    let within = mpls().any(|mpl| mpl <= cores) && mpls().any(|mpl| mpl > cores);
    Chart {
        title: String::new(),
        subtitle: findings.machine.sentence(),
        x: ("clients (MPL)".into(), Scale::Log2),
        y: (String::new(), Scale::Linear),
        y_text: short,
        marker: within.then_some((cores, words)),
        lines: findings.curves.iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{measure::outcome::Ended, report::synthetic};

    #[test]
    fn each_cause_of_aborts_has_a_picture() {
        let names = |findings: &Findings| -> Vec<String> {
            of(findings).into_iter().map(|figure| figure.name).collect()
        };
        let mut findings = synthetic::findings();
        assert_eq!(names(&findings), ["throughput", "latency", "percentiles"]);
        let late = Ended {
            timeouts: 7,
            ..Ended::ok(0)
        };
        findings.curves[1].points[3].runs[0].tally.count(late);
        assert_eq!(
            names(&findings),
            ["throughput", "latency", "percentiles", "timeouts"]
        );
        let caught = Ended {
            deadlocks: 1,
            ..Ended::ok(0)
        };
        findings.curves[0].points[0].runs[0].tally.count(caught);
        assert_eq!(
            names(&findings),
            [
                "throughput",
                "latency",
                "percentiles",
                "deadlocks",
                "timeouts"
            ]
        );
    }
}
