//! Line charts as SVG, readable on paper white and at night, without a line of script.
//!
//! The colours are Okabe and Ito's, which people with any colour vision tell apart; the marks
//! differ in shape as well.

use std::fmt::Write;

use super::number::short;
use crate::measure::spread::Spread;

/// One line of a chart.
#[derive(Debug, Clone)]
pub struct Line {
    /// What the line is, for the legend.
    pub label: String,
    /// Its points, by ascending x.
    pub points: Vec<Dot>,
    /// Whether it is dashed, as what is projected and was not measured.
    pub dashed: bool,
}

impl Line {
    /// What a dashed line has in its class.
    fn dash(&self) -> &'static str {
        if self.dashed { " dashed" } else { "" }
    }
}

/// One point of a line.
#[derive(Debug, Clone, Copy)]
pub struct Dot {
    /// Where.
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

    /// A number that was had once, or is no measurement.
    pub fn alone(x: f64, y: f64) -> Dot {
        Dot {
            x,
            y,
            low: y,
            high: y,
        }
    }
}

/// How an axis maps values to places.
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
    /// What the picture shows, as a sentence.
    pub title: String,
    /// Under the title, smaller: machine, settings.
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

const WIDTH: f64 = 620.0;
const PLOT: f64 = 300.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 28.0;
const LEGEND_ROW: f64 = 22.0;

impl Chart {
    /// The chart as an SVG document that stands alone or inside a page.
    pub fn svg(&self) -> String {
        let top = 62.0 + LEGEND_ROW * self.lines.len() as f64 + 36.0;
        let frame = Frame::new(self, top);
        let height = top + PLOT + 56.0;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             role=\"img\" class=\"chart\" font-family=\"system-ui, -apple-system, 'Segoe UI', \
             Roboto, sans-serif\" font-size=\"15\"><title>{}</title>{STYLE}\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>",
            escape(&self.title)
        );
        self.headings(&mut out);
        self.grid(&mut out, &frame);
        self.marker(&mut out, &frame);
        for (index, line) in self.lines.iter().enumerate() {
            self.line(&mut out, &frame, index, line);
        }
        out += "</svg>\n";
        out
    }

    fn headings(&self, out: &mut String) {
        text(
            out,
            16.0,
            28.0,
            "ink",
            "font-size=\"17\" font-weight=\"600\"",
            &self.title,
        );
        text(out, 16.0, 48.0, "soft", "font-size=\"13\"", &self.subtitle);
        for (index, line) in self.lines.iter().enumerate() {
            let y = 72.0 + LEGEND_ROW * index as f64;
            let _ = write!(
                out,
                "<path class=\"line c{}{}\" d=\"M16 {y}H44\"/>{}",
                index % COLOURS,
                line.dash(),
                mark(index, 30.0, y)
            );
            text(out, 52.0, y + 5.0, "ink", "", &line.label);
        }
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
            text(
                out,
                LEFT - 8.0,
                y + 5.0,
                "soft",
                "text-anchor=\"end\"",
                &words,
            );
        }
        for &tick in &frame.x_ticks {
            let x = frame.x(tick);
            let bottom = frame.top + PLOT;
            let _ = write!(out, "<path class=\"grid\" d=\"M{x:.1} {bottom:.1}v6\"/>");
            text(
                out,
                x,
                bottom + 22.0,
                "soft",
                "text-anchor=\"middle\"",
                &plain(tick),
            );
        }
        text(
            out,
            16.0,
            frame.top - 14.0,
            "soft",
            "font-size=\"13\"",
            &self.y.0,
        );
        let bottom = frame.top + PLOT + 44.0;
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        text(
            out,
            middle,
            bottom,
            "soft",
            "text-anchor=\"middle\" font-size=\"13\"",
            &self.x.0,
        );
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
        let anchor = if x > WIDTH * 0.7 {
            "text-anchor=\"end\""
        } else {
            ""
        };
        let aside = if anchor.is_empty() { 5.0 } else { -5.0 };
        let extra = format!("font-size=\"13\" {anchor}");
        text(
            out,
            x + aside,
            frame.top + PLOT - 8.0,
            "soft",
            &extra,
            words,
        );
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
            line.dash(),
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

/// Where values lie on the picture.
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
            // Each measured number of clients is a tick, unless they crowd.
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

fn share((scale, low, high): (Scale, f64, f64), value: f64) -> f64 {
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

fn decade_ticks(smallest: f64, largest: f64) -> Vec<f64> {
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

fn plain(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        short(value)
    }
}

const COLOURS: usize = 6;

fn mark(index: usize, x: f64, y: f64) -> String {
    let colour = index % COLOURS;
    // After the colours are used up the shapes are shifted: no two of eighteen lines look alike.
    match (index + index / COLOURS) % 3 {
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

fn text(out: &mut String, x: f64, y: f64, class: &str, extra: &str, words: &str) {
    let words = escape(words);
    let _ = write!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" {extra}>{words}</text>"
    );
}

/// Text made safe inside XML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const STYLE: &str = "<style>\
.chart{--page:#fff;--ink:#1b1f24;--soft:#59636e;--grid:#d9dee3;\
--0:#d55e00;--1:#0072b2;--2:#009e73;--3:#b0508a;--4:#b58900;--5:#4a9cc9}\
@media (prefers-color-scheme:dark){.chart{--page:#15191e;--ink:#e8ecf0;--soft:#9aa5b1;\
--grid:#303841;--0:#ff8c42;--1:#5ab4f0;--2:#3ecfa0;--3:#e79ac6;--4:#e6c04c;--5:#9ad4f5}}\
.chart .page{fill:var(--page)}.chart .ink{fill:var(--ink)}.chart .soft{fill:var(--soft)}\
.chart .grid{stroke:var(--grid);fill:none}\
.chart .mark{stroke:var(--soft);stroke-dasharray:4 4;fill:none}\
.chart .line{fill:none;stroke-width:2.5;stroke-linejoin:round}\
.chart .dashed{stroke-dasharray:7 5}.chart .band{opacity:.18}.chart .dot{stroke:var(--page);stroke-width:1.2}\
.chart .c0{stroke:var(--0)}.chart .c1{stroke:var(--1)}.chart .c2{stroke:var(--2)}\
.chart .c3{stroke:var(--3)}.chart .c4{stroke:var(--4)}.chart .c5{stroke:var(--5)}\
.chart .f0{fill:var(--0)}.chart .f1{fill:var(--1)}.chart .f2{fill:var(--2)}\
.chart .f3{fill:var(--3)}.chart .f4{fill:var(--4)}.chart .f5{fill:var(--5)}\
</style>";

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
    fn names_cannot_break_the_picture() {
        assert_eq!(escape("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
    }
}
