//! Line charts as SVG, readable in light and dark mode, without a script.
//!
//! The colours suit people with any colour vision; the marks differ in shape too.

use std::fmt::Write;

use super::{
    lettering::{self, At, COLOURS, LABEL, NOTE, TICK, escape, line_height, paragraph, text},
    number::short,
};
use crate::measure::spread::Spread;

/// One line of a chart.
#[derive(Debug, Clone)]
pub struct Line {
    /// Name in the legend.
    pub label: String,
    /// Its points, by ascending x.
    pub points: Vec<Dot>,
    /// How it is drawn.
    pub stroke: Stroke,
    /// The line whose colour and mark it shares.
    pub like: Option<usize>,
}

/// Stroke of a line: solid for measurements, broken for projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// Solid.
    Solid,
    /// Dashed.
    Dashed,
    /// Dotted.
    Dotted,
}

impl Line {
    /// A line of measurements.
    pub fn measured(label: String, points: Vec<Dot>) -> Line {
        Line {
            label,
            points,
            stroke: Stroke::Solid,
            like: None,
        }
    }
}

impl Stroke {
    /// The class of a line.
    pub(super) fn class(self) -> &'static str {
        match self {
            Stroke::Solid => "",
            Stroke::Dashed => " dashed",
            Stroke::Dotted => " dotted",
        }
    }
}

/// One point of a line.
#[derive(Debug, Clone, Copy)]
pub struct Dot {
    /// Value on the x axis.
    pub x: f64,
    /// The median.
    pub y: f64,
    /// The smallest of the repetitions.
    pub low: f64,
    /// The largest of the repetitions.
    pub high: f64,
}

impl Dot {
    /// The median of the repetitions and their extremes.
    pub fn of(x: f64, spread: &Spread) -> Dot {
        Dot {
            x,
            y: spread.median(),
            low: spread.min(),
            high: spread.max(),
        }
    }

    /// A single number, or a projection.
    pub fn alone(x: f64, y: f64) -> Dot {
        Dot {
            x,
            y,
            low: y,
            high: y,
        }
    }
}

/// Mapping from values to places on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps are equal differences; starts at zero.
    Linear,
    /// Equal steps are doublings.
    Log2,
    /// Equal steps are tenfold.
    Log10,
}

/// A line chart.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Title, as a sentence.
    pub title: String,
    /// Subtitle: machine, settings.
    pub subtitle: String,
    /// The name and scale of the x axis.
    pub x: (String, Scale),
    /// The name and scale of the y axis.
    pub y: (String, Scale),
    /// How to write a value of the y axis.
    pub y_text: fn(f64) -> String,
    /// A vertical dashed line with a caption.
    pub marker: Option<(f64, String)>,
    /// The lines.
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 520.0;
const PLOT: f64 = 300.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 28.0;
const EDGE: f64 = 16.0;
/// Where the words of the legend begin.
const WORDS: f64 = 52.0;
/// Distance between the lines of the legend.
const APART: f64 = 3.0;

impl Chart {
    /// The chart as an SVG document that stands alone or inside a page.
    pub fn svg(&self) -> String {
        let mut out = String::new();
        let room = (EDGE, WIDTH - 2.0 * EDGE);
        let under = lettering::headings(&mut out, room, &self.title, &self.subtitle);
        let frame = Frame::new(self, self.legend(&mut out, under + 8.0) + 36.0);
        self.grid(&mut out, &frame);
        self.marker(&mut out, &frame);
        for (index, line) in self.lines.iter().enumerate() {
            self.line(&mut out, &frame, line.like.unwrap_or(index), line);
        }
        let height = frame.top + PLOT + 56.0;
        lettering::document(&self.title, (WIDTH, height), &out)
    }

    /// Draws the legend from `y` on; returns where its last words are.
    fn legend(&self, out: &mut String, mut y: f64) -> f64 {
        for (index, line) in self.lines.iter().enumerate() {
            let index = line.like.unwrap_or(index);
            let middle = y - 5.0;
            let _ = write!(
                out,
                "<path class=\"line c{}{}\" d=\"M{EDGE} {middle}H44\"/>{}",
                index % COLOURS,
                line.stroke.class(),
                mark(index, 30.0, middle)
            );
            let room = WIDTH - EDGE - WORDS;
            y = paragraph(out, (WORDS, y), room, LABEL, &line.label) + APART;
        }
        y - line_height(LABEL)
    }

    fn grid(&self, out: &mut String, frame: &Frame) {
        for &tick in &frame.y_ticks {
            let y = frame.y(tick);
            let _ = write!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{:.1}\"/>",
                WIDTH - RIGHT
            );
            let words = (self.y_text)(tick);
            text(out, (LEFT - 8.0, y + 5.0), TICK, At::End, &words);
        }
        for &tick in &frame.x_ticks {
            let x = frame.x(tick);
            let bottom = frame.top + PLOT;
            let _ = write!(out, "<path class=\"grid\" d=\"M{x:.1} {bottom:.1}v6\"/>");
            text(out, (x, bottom + 22.0), TICK, At::Middle, &plain(tick));
        }
        text(out, (EDGE, frame.top - 14.0), NOTE, At::Start, &self.y.0);
        let bottom = frame.top + PLOT + 44.0;
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        text(out, (middle, bottom), NOTE, At::Middle, &self.x.0);
    }

    fn marker(&self, out: &mut String, frame: &Frame) {
        let Some((at, words)) = &self.marker else {
            return;
        };
        let x = frame.x(*at);
        let _ = write!(
            out,
            "<path class=\"mark\" d=\"M{x:.1} {:.1}v{:.1}\"/>",
            frame.top - 6.0,
            PLOT + 6.0
        );
        let (aside, at) = match x > WIDTH * 0.7 {
            true => (-5.0, At::End),
            false => (5.0, At::Start),
        };
        let y = frame.top + PLOT - 8.0;
        text(out, (x + aside, y), NOTE, at, words);
    }

    fn line(&self, out: &mut String, frame: &Frame, index: usize, line: &Line) {
        if line.points.is_empty() {
            return;
        }
        let colour = index % COLOURS;
        let place = |x: f64, y: f64| format!("{:.1} {:.1}", frame.x(x), frame.y(y));
        if line.points.len() > 1 {
            let upper = line.points.iter().map(|dot| place(dot.x, dot.high));
            let lower = line.points.iter().rev().map(|dot| place(dot.x, dot.low));
            let band: Vec<String> = upper.chain(lower).collect();
            let _ = write!(
                out,
                "<path class=\"band f{colour}\" d=\"M{}Z\"/>",
                band.join("L")
            );
        }
        let middle: Vec<String> = line.points.iter().map(|dot| place(dot.x, dot.y)).collect();
        let _ = write!(
            out,
            "<path class=\"line c{colour}{}\" d=\"M{}\"/>",
            line.stroke.class(),
            middle.join("L")
        );
        for dot in &line.points {
            let _ = write!(
                out,
                "<g><title>{} · {} {}: {} (from {} to {})</title>{}</g>",
                escape(&line.label),
                escape(&self.x.0),
                plain(dot.x),
                escape(&(self.y_text)(dot.y)),
                escape(&(self.y_text)(dot.low)),
                escape(&(self.y_text)(dot.high)),
                mark(index, frame.x(dot.x), frame.y(dot.y))
            );
        }
    }
}

/// The mapping of both axes.
struct Frame {
    top: f64,
    x: (Scale, f64, f64),
    y: (Scale, f64, f64),
    x_ticks: Vec<f64>,
    y_ticks: Vec<f64>,
}

impl Frame {
    fn new(chart: &Chart, top: f64) -> Frame {
        let dots = || chart.lines.iter().flat_map(|line| line.points.iter());
        let largest = dots().map(|dot| dot.high.max(dot.y)).fold(0.0, f64::max);
        let positive = dots().map(|dot| dot.low).filter(|&low| low > 0.0);
        let smallest = positive.fold(f64::INFINITY, f64::min);
        let y_ticks = match chart.y.1 {
            Scale::Linear => linear_ticks(largest),
            Scale::Log2 | Scale::Log10 => decade_ticks(smallest.min(largest), largest),
        };
        let mut xs: Vec<f64> = dots().map(|dot| dot.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let (x_low, x_high) = (
            xs.first().copied().unwrap_or(1.0),
            xs.last().copied().unwrap_or(2.0),
        );
        let (x_low, x_ticks) = match chart.x.1 {
            Scale::Linear => (
                0.0,
                linear_ticks(x_high)
                    .into_iter()
                    .filter(|&t| t <= x_high)
                    .collect(),
            ),
            // Each measured number of clients is a tick, unless they are too close.
            Scale::Log2 | Scale::Log10 => (x_low, uncrowded(&xs)),
        };
        let (y_low, y_high) = (
            y_ticks.first().copied().unwrap_or(0.0),
            y_ticks.last().copied().unwrap_or(1.0),
        );
        Frame {
            top,
            x: (chart.x.1, x_low, x_high),
            y: (chart.y.1, y_low, y_high),
            x_ticks,
            y_ticks,
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + share(self.x, value) * (WIDTH - RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + (1.0 - share(self.y, value)) * PLOT
    }
}

pub(super) fn share((scale, low, high): (Scale, f64, f64), value: f64) -> f64 {
    let map = |v: f64| {
        if scale == Scale::Linear {
            v
        } else {
            v.max(low.max(1e-9)).ln()
        }
    };
    let width = map(high) - map(low);
    if width > 0.0 {
        ((map(value) - map(low)) / width).clamp(0.0, 1.0)
    } else {
        0.5
    }
}

fn linear_ticks(largest: f64) -> Vec<f64> {
    if largest <= 0.0 {
        return vec![0.0, 1.0];
    }
    let rough = largest / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|m| m * power)
        .into_iter()
        .find(|&s| s >= rough);
    let step = step.unwrap_or(10.0 * power);
    (0..=(largest / step).ceil() as u32)
        .map(|index| f64::from(index) * step)
        .collect()
}

pub(super) fn decade_ticks(smallest: f64, largest: f64) -> Vec<f64> {
    let low = smallest.max(1e-6).log10().floor() as i32;
    let high = (largest.max(1e-6).log10().ceil() as i32).max(low + 1);
    (low..=high).map(|power| 10f64.powi(power)).collect()
}

fn uncrowded(xs: &[f64]) -> Vec<f64> {
    let mut ticks: Vec<f64> = Vec::new();
    for &x in xs {
        if ticks.last().is_none_or(|&last| x / last >= 1.45) {
            ticks.push(x);
        }
    }
    ticks
}

pub(super) fn plain(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        short(value)
    }
}

fn mark(index: usize, x: f64, y: f64) -> String {
    let colour = index % COLOURS;
    // Eight colours and three shapes have no common factor, so no two of twenty-four lines look
    // alike.
    match index % 3 {
        0 => format!("<circle class=\"dot f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>"),
        1 => format!(
            "<rect class=\"dot f{colour}\" x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\"/>",
            x - 4.0,
            y - 4.0
        ),
        _ => format!(
            "<path class=\"dot f{colour}\" d=\"M{x:.1} {:.1}l5.5 9.5h-11z\"/>",
            y - 6.0
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_start_at_zero_and_reach_the_largest_value() {
        assert_eq!(linear_ticks(9.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let ticks = linear_ticks(431_000.0);
        assert!(ticks[0] == 0.0 && *ticks.last().unwrap() >= 431_000.0 && ticks.len() <= 7);
        assert_eq!(decade_ticks(3.0, 450.0), [1.0, 10.0, 100.0, 1000.0]);
    }

    #[test]
    fn doublings_lie_at_equal_distances() {
        let axis = (Scale::Log2, 1.0, 16.0);
        let places = [1.0, 2.0, 4.0, 8.0, 16.0].map(|mpl| share(axis, mpl));
        assert!(
            places
                .windows(2)
                .all(|pair| (pair[1] - pair[0] - 0.25).abs() < 1e-9)
        );
    }

    #[test]
    fn a_line_looks_like_the_one_it_belongs_to_and_is_told_apart_by_its_stroke() {
        let line = |stroke, like| Line {
            stroke,
            like,
            ..Line::measured(
                "one".to_owned(),
                vec![Dot::alone(1.0, 2.0), Dot::alone(2.0, 3.0)],
            )
        };
        let chart = Chart {
            title: "t".to_owned(),
            subtitle: String::new(),
            x: ("x".to_owned(), Scale::Log2),
            y: ("y".to_owned(), Scale::Linear),
            y_text: short,
            marker: None,
            lines: vec![
                line(Stroke::Solid, None),
                line(Stroke::Solid, None),
                line(Stroke::Dashed, Some(0)),
                line(Stroke::Dotted, Some(0)),
            ],
        };
        let svg = chart.svg();
        // In the legend and in the picture.
        for class in ["line c0", "line c1", "line c0 dashed", "line c0 dotted"] {
            assert_eq!(
                svg.matches(&format!("class=\"{class}\"")).count(),
                2,
                "{class}"
            );
        }
        assert!(!svg.contains("line c2") && !svg.contains("line c3"));
    }

    #[test]
    fn no_two_of_twenty_four_lines_have_the_same_mark() {
        let marks: std::collections::BTreeSet<String> =
            (0..24).map(|index| mark(index, 1.0, 1.0)).collect();
        assert_eq!(marks.len(), 24);
    }
}
