//! Small charts beside each other, one for each system, all with the same axes. They show several
//! lines for each system, which would be indistinguishable in one chart.
//!
//! A panel has a band between its lowest and its highest line; the lines differ in their strokes.

use std::fmt::Write;

use super::{
    chart::{Scale, Stroke, decade_ticks, plain, share},
    lettering::{
        self, At, COLOURS, KEY, LABEL, NOTE, TICK, escape, line_height, paragraph, text, wrapped,
    },
    number::duration_us,
};

/// Lines of each panel, from the lowest.
pub const LINES: usize = 3;

/// The strokes of the lines.
const STROKES: [Stroke; LINES] = [Stroke::Dotted, Stroke::Solid, Stroke::Dashed];

/// Data of one system.
#[derive(Debug, Clone)]
pub struct Panel {
    /// Label above the panel.
    pub label: String,
    /// Places on the x axis, and the value of each line there, from the lowest.
    pub points: Vec<(f64, [f64; LINES])>,
}

/// Panels with durations on the y axis, in microseconds, and numbers of clients on the x axis.
#[derive(Debug, Clone)]
pub struct Multiples {
    /// Title, as a sentence.
    pub title: String,
    /// Subtitle.
    pub subtitle: String,
    /// The name of the x axis.
    pub x: String,
    /// Meanings of the lines, from the lowest.
    pub lines: [String; LINES],
    /// The panels, by rows.
    pub panels: Vec<Panel>,
}

const WIDTH: f64 = 520.0;
const EDGE: f64 = 16.0;
const LEFT: f64 = 72.0;
const BETWEEN: f64 = 32.0;
const COLUMNS: usize = 2;
const PANEL: f64 = (WIDTH - LEFT - EDGE - BETWEEN) / COLUMNS as f64;
const TALL: f64 = 150.0;
/// Space below a panel for the numbers of its axis.
const UNDER: f64 = 30.0;
/// Space of a number on the x axis.
const TICK_ROOM: f64 = 42.0;
/// Where the words of the legend begin.
const WORDS: f64 = 52.0;

/// Mapping of values in every panel.
struct Axes {
    x: (Scale, f64, f64),
    x_ticks: Vec<f64>,
    y: (Scale, f64, f64),
    y_ticks: Vec<f64>,
}

impl Multiples {
    /// The picture as an SVG document that stands alone or inside a page.
    pub fn svg(&self) -> String {
        let mut out = String::new();
        let room = (EDGE, WIDTH - 2.0 * EDGE);
        let under = lettering::headings(&mut out, room, &self.title, &self.subtitle);
        let mut y = self.legend(&mut out, under + 8.0) + 8.0;
        let axes = self.axes();
        for (row, panels) in self.panels.chunks(COLUMNS).enumerate() {
            let labels: Vec<Vec<String>> = panels
                .iter()
                .map(|panel| wrapped(&panel.label, PANEL, KEY))
                .collect();
            let lines = labels.iter().map(Vec::len).max().unwrap_or(1) as f64;
            let top = y + lines * line_height(KEY);
            for (column, (panel, label)) in panels.iter().zip(&labels).enumerate() {
                let left = LEFT + column as f64 * (PANEL + BETWEEN);
                let mut at = top - 6.0 - (label.len() - 1) as f64 * line_height(KEY);
                for line in label {
                    text(&mut out, (left, at), KEY, At::Start, line);
                    at += line_height(KEY);
                }
                axes.grid(&mut out, (left, top), column == 0);
                axes.panel(&mut out, (left, top), (row * COLUMNS + column, panel), self);
            }
            y = top + TALL + UNDER + 12.0;
        }
        text(&mut out, (WIDTH / 2.0, y), NOTE, At::Middle, &self.x);
        lettering::document(&self.title, (WIDTH, y + 14.0), &out)
    }

    fn legend(&self, out: &mut String, mut y: f64) -> f64 {
        // The highest line first, as in the panels.
        for (words, stroke) in self.lines.iter().zip(STROKES).rev() {
            let _ = write!(
                out,
                "<path class=\"line c{COLOURS}{}\" d=\"M{EDGE} {}H44\"/>",
                stroke.class(),
                y - 5.0
            );
            y = paragraph(out, (WORDS, y), WIDTH - EDGE - WORDS, LABEL, words);
        }
        y
    }

    fn axes(&self) -> Axes {
        let points = || self.panels.iter().flat_map(|panel| &panel.points);
        let values = || points().flat_map(|(_, values)| *values);
        let positive = values().filter(|&value| value > 0.0);
        let smallest = positive.fold(f64::INFINITY, f64::min);
        let largest = values().fold(0.0, f64::max);
        let y_ticks = decade_ticks(smallest.min(largest), largest);
        let mut xs: Vec<f64> = points().map(|&(x, _)| x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let (low, high) = (
            xs.first().copied().unwrap_or(1.0),
            xs.last().copied().unwrap_or(2.0),
        );
        let x = (Scale::Log2, low, high);
        let mut x_ticks: Vec<f64> = Vec::new();
        for &at in &xs {
            let far = |&last: &f64| (share(x, at) - share(x, last)) * PANEL >= TICK_ROOM;
            if x_ticks.last().is_none_or(far) {
                x_ticks.push(at);
            }
        }
        let y = (
            Scale::Log10,
            y_ticks.first().copied().unwrap_or(1.0),
            y_ticks.last().copied().unwrap_or(10.0),
        );
        Axes {
            x,
            x_ticks,
            y,
            y_ticks,
        }
    }
}

impl Axes {
    fn grid(&self, out: &mut String, (left, top): (f64, f64), is_first: bool) {
        for &tick in &self.y_ticks {
            let y = top + (1.0 - share(self.y, tick)) * TALL;
            let _ = write!(
                out,
                "<path class=\"grid\" d=\"M{left:.1} {y:.1}h{PANEL:.1}\"/>"
            );
            if is_first {
                let words = duration_us(tick);
                text(out, (left - 8.0, y + 5.0), TICK, At::End, &words);
            }
        }
        for &tick in &self.x_ticks {
            let (x, bottom) = (left + share(self.x, tick) * PANEL, top + TALL);
            let _ = write!(out, "<path class=\"grid\" d=\"M{x:.1} {bottom:.1}v6\"/>");
            text(out, (x, bottom + 22.0), TICK, At::Middle, &plain(tick));
        }
    }

    fn panel(
        &self,
        out: &mut String,
        (left, top): (f64, f64),
        (index, panel): (usize, &Panel),
        all: &Multiples,
    ) {
        let colour = index % COLOURS;
        let place = |x: f64, y: f64| {
            let x = left + share(self.x, x) * PANEL;
            format!("{x:.1} {:.1}", top + (1.0 - share(self.y, y)) * TALL)
        };
        let upper = panel.points.iter().map(|(x, at)| place(*x, at[LINES - 1]));
        let lower = panel.points.iter().rev().map(|(x, at)| place(*x, at[0]));
        let band: Vec<String> = upper.chain(lower).collect();
        let _ = write!(
            out,
            "<path class=\"band f{colour}\" d=\"M{}Z\"/>",
            band.join("L")
        );
        for ((line, stroke), words) in STROKES.into_iter().enumerate().zip(&all.lines) {
            let places: Vec<String> = panel
                .points
                .iter()
                .map(|(x, at)| place(*x, at[line]))
                .collect();
            let _ = write!(
                out,
                "<g><title>{} · {}</title><path class=\"line c{colour}{}\" d=\"M{}\"/></g>",
                escape(&panel.label),
                escape(words),
                stroke.class(),
                places.join("L")
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(panels: usize) -> String {
        let panel = |index: usize| Panel {
            label: format!("manager {index}"),
            points: (0..10)
                .map(|step| {
                    let x = f64::from(1 << step);
                    (x, [20.0 * x, 60.0 * x, 700.0 * x])
                })
                .collect(),
        };
        let picture = Multiples {
            title: "latency".to_owned(),
            subtitle: String::new(),
            x: "clients".to_owned(),
            lines: ["half", "most", "nearly all"].map(str::to_owned),
            panels: (0..panels).map(panel).collect(),
        };
        picture.svg()
    }

    #[test]
    fn each_thing_has_a_panel_with_every_line_in_a_stroke_of_its_own() {
        let svg = picture(5);
        for index in 0..5 {
            assert!(svg.contains(&format!(">manager {index}</text>")));
            for stroke in [" dotted", "", " dashed"] {
                let class = format!("class=\"line c{index}{stroke}\"");
                assert_eq!(svg.matches(&class).count(), 1, "{class}");
            }
            assert_eq!(svg.matches(&format!("class=\"band f{index}\"")).count(), 1);
        }
        assert!(svg.contains("manager 3 · nearly all"));
    }

    #[test]
    fn all_panels_have_the_same_axes_and_their_numbers_do_not_crowd() {
        let svg = picture(3);
        // Two rows: the numbers of the y axis stand before each, those of the x axis below each
        // panel.
        assert_eq!(svg.matches(">1 ms</text>").count(), 2);
        assert_eq!(svg.matches(">1</text>").count(), 3);
        let ticks = svg.matches("v6\"/>").count() / 3;
        assert!((3..=6).contains(&ticks), "{ticks}");
    }
}
