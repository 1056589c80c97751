//! Where the time went: a table of shares, and a bar for each point.

use super::{
    bars::{Bar, Bars, Fill, Part as Piece},
    figures::{Figure, Picture},
    findings::{Block, Findings},
    table::Table,
};
use crate::measure::{
    curve::{Curve, Point},
    profile::{FREQUENCY, Part},
    time::Times,
};

/// Number of points with a bar; the table has all.
const MOST_BARS: usize = 24;

/// The table, if there were samples or should have been.
pub fn block(findings: &Findings) -> Option<Block> {
    let points = || points(findings);
    let asked = points().any(|(_, point)| point.times.is_some());
    asked.then(|| {
        let trouble = points().find_map(|(_, point)| point.times.as_ref()?.as_ref().err());
        Block {
            title: "Where the time goes".to_owned(),
            note: match trouble {
                Some(what) => format!("Some points have no samples: {what}."),
                None => method(),
            },
            table: table(findings),
        }
    })
}

fn method() -> String {
    format!(
        "Shares of the time of all processors in one more run of each point. Idle time, other programs (the host \
         of a virtual machine among them) and the kernel are the system's own counts. The program's share is \
         divided by {FREQUENCY} samples for each second of processor time; a sample is assigned to a part by its \
         source line, through inlined functions and their callers. ± is the error of a share at 95 % confidence. \
         The last column is the cost of sampling: throughput sampled ÷ not sampled, each with its own scatter."
    )
}

fn points(findings: &Findings) -> impl Iterator<Item = (&Curve, &Point)> {
    let curves = findings.curves.iter();
    curves.flat_map(|curve| curve.points.iter().map(move |point| (curve, point)))
}

fn with_times(findings: &Findings) -> impl Iterator<Item = (&Curve, &Point, &Times)> {
    points(findings).filter_map(|(curve, point)| {
        let times = point.times.as_ref()?.as_ref().ok()?;
        Some((curve, point, times))
    })
}

fn table(findings: &Findings) -> Table {
    let heads = ["locks", "MPL", "idle", "others", "kernel"].map(str::to_owned);
    let parts = Part::ALL.iter().map(Part::to_string);
    let tail = ["samples", "±", "sampled ÷ not"].map(str::to_owned);
    let mut table = Table::of(heads.into_iter().chain(parts).chain(tail));
    for (curve, point, times) in with_times(findings) {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let split = times.split;
        let undisturbed = point.tps().median();
        let cost = match undisturbed > 0.0 {
            true => format!("{:.2}", times.tps / undisturbed),
            false => "-".to_owned(),
        };
        let heads = [
            curve.label(),
            point.mpl.to_string(),
            percent(split.idle),
            percent(split.others),
            percent(split.kernel),
        ];
        let parts = Part::ALL.map(|part| percent(times.program(part)));
        let tail = [
            times.profile.samples().to_string(),
            percent(times.profile.uncertainty()),
            cost,
        ];
        table.row(heads.into_iter().chain(parts).chain(tail));
    }
    table
}

/// A bar for each point, as long as all processors' time: the program solid, its kernel time light,
/// idle time and other programs striped.
pub fn picture(findings: &Findings) -> Option<Figure> {
    let bars: Vec<Bar> = with_times(findings)
        .filter(|(.., times)| times.profile.samples() > 0)
        .take(MOST_BARS)
        .map(|(curve, point, times)| bar(curve, point, times))
        .collect();
    (!bars.is_empty()).then(|| Figure {
        name: "where-the-time-goes".to_owned(),
        chart: Picture::Bars(Bars {
            title: "Where the time goes".to_owned(),
            subtitle: "% of the time of all processors; the number is the program's share of all"
                .to_owned(),
            colours: colours(),
            fills: vec![
                (Fill::Solid, "in the program".to_owned()),
                (Fill::Light, "in the kernel for the program".to_owned()),
                (Fill::Striped, "idle or other programs".to_owned()),
            ],
            bars,
        }),
    })
}

/// The colours of the parts. The last part, the rest, shares its colour with idle time, which is
/// striped.
fn colours() -> Vec<String> {
    let mut colours: Vec<String> = Part::ALL.iter().map(Part::to_string).collect();
    colours[Part::Others as usize] = "rest, idle".to_owned();
    colours
}

fn bar(curve: &Curve, point: &Point, times: &Times) -> Bar {
    let piece = |colour: Part, fill: Fill, share: f64| Piece {
        colour: colour as usize,
        fill,
        value: (share * 1e3).round() / 10.0,
    };
    let program = Part::ALL.map(|part| piece(part, Fill::Solid, times.program(part)));
    let kernel = Part::ALL.map(|part| piece(part, Fill::Light, times.kernel(part)));
    let apart = times.split.idle + times.split.others;
    let rest = [piece(Part::Others, Fill::Striped, apart)];
    Bar {
        label: format!("{}, {} clients", curve.label(), point.mpl),
        parts: program.into_iter().chain(kernel).chain(rest).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        measure::{profile::Profile, usage::Split},
        report::synthetic,
    };

    fn sampled() -> Findings {
        let mut findings = synthetic::findings();
        let times = Times {
            split: Split {
                user: 0.5,
                kernel: 0.25,
                others: 0.05,
                idle: 0.2,
            },
            profile: Profile::made([(Part::Lock, 30), (Part::Waiting, 10)], [(Part::Log, 7)]),
            tps: 90.0,
        };
        findings.curves[0].points[0].times = Some(Ok(times));
        findings
    }

    #[test]
    fn every_row_and_bar_adds_up_to_the_whole() {
        let findings = sampled();
        let block = block(&findings).expect("a point was sampled");
        let row = &block.table.rows()[0];
        let share = |cell: &String| -> f64 { cell.strip_suffix(" %").unwrap().parse().unwrap() };
        let sum: f64 = row[2..13].iter().map(share).sum();
        assert!((sum - 100.0).abs() < 0.5, "{row:?}");
        // Three quarters of the program's time.
        assert_eq!(share(&row[5]), 37.5);
        let Some(Figure {
            chart: Picture::Bars(bars),
            ..
        }) = picture(&findings)
        else {
            panic!("bars are drawn");
        };
        let sum: f64 = bars.bars[0].parts.iter().map(|piece| piece.value).sum();
        assert!((sum - 100.0).abs() < 0.5, "{sum}");
    }

    #[test]
    fn nothing_is_said_where_nobody_asked_and_why_where_it_could_not_be_told() {
        let mut findings = synthetic::findings();
        assert!(block(&findings).is_none() && picture(&findings).is_none());
        findings.curves[0].points[0].times = Some(Err("no signals here".to_owned()));
        let block = block(&findings).expect("it was asked for");
        assert!(block.note.contains("no signals here") && block.table.is_empty());
        assert!(picture(&findings).is_none());
    }
}
