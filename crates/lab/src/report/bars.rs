//! Stacked bars as SVG: one bar for each system, its parts distinguished by colour and fill.
//!
//! Solid, light and striped fills differ in any colour, and a part shows its name under the
//! pointer.

use std::fmt::Write;

use super::lettering::{self, At, COLOURS, KEY, LABEL, NOTE, escape, line_height, text, wrapped};

/// Fill of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// In full colour.
    Solid,
    /// In stripes.
    Striped,
    /// In a light tone.
    Light,
}

/// A part of a bar.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Index of the colour in the chart's list.
    pub colour: usize,
    /// Fill of the part.
    pub fill: Fill,
    /// Length of the part.
    pub value: f64,
}

/// One bar.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Label above the bar.
    pub label: String,
    /// Its parts, from the left.
    pub parts: Vec<Part>,
}

/// A chart of bars.
#[derive(Debug, Clone)]
pub struct Bars {
    /// Title, as a sentence.
    pub title: String,
    /// Subtitle.
    pub subtitle: String,
    /// Meanings of the colours.
    pub colours: Vec<String>,
    /// Meanings of the fills.
    pub fills: Vec<(Fill, String)>,
    /// The bars, from the top.
    pub bars: Vec<Bar>,
}

const WIDTH: f64 = 520.0;
const LEFT: f64 = 16.0;
/// Space for the number behind the longest bar.
const RIGHT: f64 = 120.0;
const BAR: f64 = 22.0;
const ROW: f64 = 50.0;
const LEGEND_ROW: f64 = 22.0;
const LEGEND_COLUMN: f64 = 166.0;
const LEGEND_COLUMNS: usize = 3;

impl Bars {
    /// The chart as an SVG document that stands alone or inside a page.
    pub fn svg(&self) -> String {
        let room = WIDTH - 2.0 * LEFT;
        let mut out = stripes();
        let under = lettering::headings(&mut out, (LEFT, room), &self.title, &self.subtitle);
        let mut y = self.legends(&mut out, under + 8.0) + 14.0;
        let total = |bar: &Bar| bar.parts.iter().map(|part| part.value).sum::<f64>();
        let longest = self.bars.iter().map(total).fold(1e-9, f64::max);
        let scale = (WIDTH - LEFT - RIGHT) / longest;
        for bar in &self.bars {
            let lines = wrapped(&bar.label, room, LABEL);
            for (at, line) in lines.iter().enumerate() {
                y += if at == 0 { 0.0 } else { line_height(LABEL) };
                text(&mut out, (LEFT, y + 14.0), LABEL, At::Start, line);
            }
            self.bar(&mut out, y, bar, scale);
            y += ROW;
        }
        lettering::document(&self.title, (WIDTH, y + 12.0), &out)
    }

    /// Draws the meanings of the used colours and fills; returns where the last row ends.
    fn legends(&self, out: &mut String, top: f64) -> f64 {
        let rows = |count: usize| count.div_ceil(LEGEND_COLUMNS) as f64 * LEGEND_ROW;
        let colours = self.used_colours();
        for (at, &colour) in colours.iter().enumerate() {
            let words = &self.colours[colour];
            legend(out, top, at, (colour, Fill::Solid), words);
        }
        let fills_top = top + rows(colours.len()) + 4.0;
        for (at, (fill, words)) in self.fills.iter().enumerate() {
            legend(out, fills_top, at, (COLOURS, *fill), words);
        }
        fills_top + rows(self.fills.len())
    }

    /// The colours that some part has, in order.
    fn used_colours(&self) -> Vec<usize> {
        let parts = || self.bars.iter().flat_map(|bar| &bar.parts);
        let used = |&colour: &usize| parts().any(|part| part.colour == colour && part.value > 0.0);
        (0..self.colours.len()).filter(used).collect()
    }

    /// Draws a bar under the last line of its label, which is at `y`.
    fn bar(&self, out: &mut String, y: f64, bar: &Bar, scale: f64) {
        let mut x = LEFT;
        for part in bar.parts.iter().filter(|part| part.value > 0.0) {
            let width = part.value * scale;
            let mut fills = self.fills.iter();
            let fill = fills.find(|(fill, _)| *fill == part.fill);
            let words = format!(
                "{}: {}, {}: {}",
                bar.label,
                self.colours.get(part.colour).map_or("", String::as_str),
                fill.map_or("", |(_, words)| words),
                amount(part.value)
            );
            let _ = write!(
                out,
                "<g><title>{}</title>{}</g>",
                escape(&words),
                swatch((x, y + 20.0), (width, BAR), (part.colour, part.fill))
            );
            x += width;
        }
        let sum = |fill: Fill| -> f64 {
            let parts = bar.parts.iter().filter(|part| part.fill == fill);
            parts.map(|part| part.value).sum()
        };
        let total: f64 = bar.parts.iter().map(|part| part.value).sum();
        let words = match sum(Fill::Solid) {
            solid if solid == total => amount(total),
            solid => format!("{} of {}", amount(solid), amount(total)),
        };
        text(out, (x + 8.0, y + 36.0), NOTE, At::Start, &words);
    }
}

/// A number of critical sections, for people.
pub fn amount(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn legend(out: &mut String, top: f64, at: usize, look: (usize, Fill), words: &str) {
    let x = LEFT + LEGEND_COLUMN * (at % LEGEND_COLUMNS) as f64;
    let y = top + LEGEND_ROW * (at / LEGEND_COLUMNS) as f64;
    *out += &swatch((x, y - 7.0), (18.0, 13.0), look);
    text(out, (x + 24.0, y + 5.0), KEY, At::Start, words);
}

/// A rectangle in its colour and fill, on the page's background.
fn swatch(
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    (colour, fill): (usize, Fill),
) -> String {
    let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"");
    let colour = colour.min(COLOURS);
    match fill {
        Fill::Solid => format!("<rect class=\"f{colour}\" {place}/>"),
        Fill::Light => format!("<rect class=\"f{colour} light\" {place}/>"),
        Fill::Striped => format!(
            "<rect class=\"f{colour} light\" {place}/><rect fill=\"url(#s{colour})\" {place}/>"
        ),
    }
}

fn stripes() -> String {
    let stripe = |colour: usize| {
        format!(
            "<pattern id=\"s{colour}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\"><rect class=\"f{colour}\" width=\"3\" height=\"6\"/>\
             </pattern>"
        )
    };
    let all: String = (0..=COLOURS).map(stripe).collect();
    format!("<defs>{all}</defs>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_has_all_the_room_and_the_others_their_share() {
        let part = |colour, fill, value| Part {
            colour,
            fill,
            value,
        };
        let bars = Bars {
            title: "two & more".to_owned(),
            subtitle: String::new(),
            colours: ["lock", "log", "space"].map(str::to_owned).to_vec(),
            fills: vec![
                (Fill::Solid, "unbounded".to_owned()),
                (Fill::Light, "fixed".to_owned()),
            ],
            bars: vec![
                Bar {
                    label: "long".to_owned(),
                    parts: vec![part(0, Fill::Solid, 6.0), part(1, Fill::Light, 2.0)],
                },
                Bar {
                    label: "short".to_owned(),
                    parts: vec![part(0, Fill::Solid, 4.0)],
                },
            ],
        };
        let svg = bars.svg();
        let room = WIDTH - LEFT - RIGHT;
        for (value, share) in [("6", 0.75), ("2", 0.25), ("4", 0.5)] {
            let width = format!("width=\"{:.1}\" height=\"{BAR:.1}\"", room * share);
            assert!(svg.contains(&width), "{value}: {width}");
        }
        assert!(svg.contains("6 of 8") && svg.contains("two &amp; more"));
        assert!(svg.contains("long: log, fixed: 2"));
        // No part has the third colour, so the legend leaves it out.
        assert!(!svg.contains("space"));
    }

    #[test]
    fn a_long_label_is_wrapped_and_the_bars_below_it_make_room() {
        let bar = |label: &str| Bar {
            label: label.to_owned(),
            parts: vec![Part {
                colour: 0,
                fill: Fill::Solid,
                value: 1.0,
            }],
        };
        let svg_of = |first: &str| {
            let bars = Bars {
                title: String::new(),
                subtitle: String::new(),
                colours: vec!["lock".to_owned()],
                fills: Vec::new(),
                bars: vec![bar(first), bar("next")],
            };
            bars.svg()
        };
        // The place of the second bar.
        let place = |svg: &str| -> f64 {
            let label = &svg[..svg.find(">next<").expect("its label")];
            let y = &label[label.rfind(" y=\"").expect("a place") + 4..];
            y[..y.find('"').expect("a number")]
                .parse()
                .expect("a number")
        };
        let long = "direct: locks are remembered until somebody conflicts; who meets at the log inserts together";
        let (short, wrapped) = (svg_of("direct"), svg_of(long));
        assert_eq!(place(&wrapped) - place(&short), line_height(LABEL));
        assert!(wrapped.contains(">direct: locks are") && wrapped.contains("inserts together<"));
    }
}
