//! Stacked bars as SVG: one bar for each thing compared, its parts told apart by colour and by fill.
//!
//! The colours are those of the line charts and two more; what is solid, light or striped is so in any
//! colour, and a part says what it is when it is pointed at.

use std::fmt::Write;

use super::chart::escape;

/// How a part is filled.
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
    /// Which of the chart's colours.
    pub colour: usize,
    /// How it is filled.
    pub fill: Fill,
    /// How long it is.
    pub value: f64,
}

/// One bar.
#[derive(Debug, Clone)]
pub struct Bar {
    /// What stands above it.
    pub label: String,
    /// Its parts, from the left.
    pub parts: Vec<Part>,
}

/// A chart of bars.
#[derive(Debug, Clone)]
pub struct Bars {
    /// What the picture shows, as a sentence.
    pub title: String,
    /// Under the title, smaller.
    pub subtitle: String,
    /// What each colour is.
    pub colours: Vec<String>,
    /// What each fill is.
    pub fills: Vec<(Fill, String)>,
    /// The bars, from the top.
    pub bars: Vec<Bar>,
}

const WIDTH: f64 = 620.0;
const LEFT: f64 = 16.0;
/// Room for the number behind the longest bar.
const RIGHT: f64 = 150.0;
const BAR: f64 = 22.0;
const ROW: f64 = 50.0;
/// What each line of a label but the first adds to its row.
const LINE: f64 = 18.0;
/// As many as surely fit into a line of a label, of letters of average width.
const LINE_CHARACTERS: usize = 72;
const LEGEND_ROW: f64 = 22.0;
const LEGEND_COLUMN: f64 = 147.0;
const COLOURS: usize = 8;

impl Bars {
    /// The chart as an SVG document that stands alone or inside a page.
    pub fn svg(&self) -> String {
        let legend_rows = |count: usize| count.div_ceil(4) as f64 * LEGEND_ROW;
        let colours_top = 72.0;
        let fills_top = colours_top + legend_rows(self.used_colours().len()) + 4.0;
        let top = fills_top + legend_rows(self.fills.len()) + 14.0;
        let labels: Vec<Vec<String>> = self.bars.iter().map(|bar| lines(&bar.label)).collect();
        let row = |label: &Vec<String>| ROW + LINE * (label.len() - 1) as f64;
        let height = top + labels.iter().map(row).sum::<f64>() + 12.0;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             role=\"img\" class=\"bars\" font-family=\"system-ui, -apple-system, 'Segoe UI', \
             Roboto, sans-serif\" font-size=\"15\"><title>{}</title>{STYLE}{}\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>",
            escape(&self.title),
            stripes()
        );
        text(
            &mut out,
            (16.0, 28.0),
            "ink\" font-size=\"17\" font-weight=\"600",
            &self.title,
        );
        text(
            &mut out,
            (16.0, 48.0),
            "soft\" font-size=\"13",
            &self.subtitle,
        );
        for (at, &colour) in self.used_colours().iter().enumerate() {
            legend(
                &mut out,
                colours_top,
                at,
                (colour, Fill::Solid),
                &self.colours[colour],
            );
        }
        for (at, (fill, words)) in self.fills.iter().enumerate() {
            legend(&mut out, fills_top, at, (COLOURS, *fill), words);
        }
        let total = |bar: &Bar| bar.parts.iter().map(|part| part.value).sum::<f64>();
        let longest = self.bars.iter().map(total).fold(1e-9, f64::max);
        let (mut y, scale) = (top, (WIDTH - LEFT - RIGHT) / longest);
        for (bar, label) in self.bars.iter().zip(&labels) {
            let (last, before) = label
                .split_last()
                .expect("a label has a line, if an empty one");
            for line in before {
                text(&mut out, (LEFT, y + 14.0), "ink", line);
                y += LINE;
            }
            text(&mut out, (LEFT, y + 14.0), "ink", last);
            self.bar(&mut out, y, bar, scale);
            y += ROW;
        }
        out += "</svg>\n";
        out
    }

    /// The colours that some part has, in their order.
    fn used_colours(&self) -> Vec<usize> {
        let parts = || self.bars.iter().flat_map(|bar| &bar.parts);
        let used = |&colour: &usize| parts().any(|part| part.colour == colour && part.value > 0.0);
        (0..self.colours.len()).filter(used).collect()
    }

    /// A bar under the last line of its label, which is at `y`.
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
        text(out, (x + 8.0, y + 36.0), "soft\" font-size=\"13", &words);
    }
}

/// A label in lines that fit; what is one word and does not is cut.
fn lines(label: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in label.split_whitespace() {
        let length = |text: &str| text.chars().count();
        let cut: String = match length(word) > LINE_CHARACTERS {
            true => word
                .chars()
                .take(LINE_CHARACTERS - 1)
                .chain(['…'])
                .collect(),
            false => word.to_owned(),
        };
        match lines.last_mut() {
            Some(line) if line.is_empty() => *line = cut,
            Some(line) if length(line) + 1 + length(&cut) <= LINE_CHARACTERS => {
                line.push(' ');
                line.push_str(&cut);
            }
            _ => lines.push(cut),
        }
    }
    lines
}

/// A number of passages, for people.
pub fn amount(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn legend(out: &mut String, top: f64, at: usize, look: (usize, Fill), words: &str) {
    let x = LEFT + LEGEND_COLUMN * (at % 4) as f64;
    let y = top + LEGEND_ROW * (at / 4) as f64;
    *out += &swatch((x, y - 7.0), (18.0, 13.0), look);
    text(out, (x + 24.0, y + 5.0), "ink\" font-size=\"13", words);
}

/// A rectangle in its colour and fill, on the page's own ground.
fn swatch(
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    (colour, fill): (usize, Fill),
) -> String {
    let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"");
    let colour = colour.min(COLOURS);
    match fill {
        Fill::Solid => format!("<rect class=\"b{colour}\" {place}/>"),
        Fill::Light => format!("<rect class=\"b{colour} light\" {place}/>"),
        Fill::Striped => format!(
            "<rect class=\"b{colour} light\" {place}/><rect fill=\"url(#s{colour})\" {place}/>"
        ),
    }
}

fn stripes() -> String {
    let stripe = |colour: usize| {
        format!(
            "<pattern id=\"s{colour}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\"><rect class=\"b{colour}\" width=\"3\" height=\"6\"/>\
             </pattern>"
        )
    };
    let all: String = (0..=COLOURS).map(stripe).collect();
    format!("<defs>{all}</defs>")
}

fn text(out: &mut String, (x, y): (f64, f64), class: &str, words: &str) {
    let words = escape(words);
    let _ = write!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{words}</text>"
    );
}

const STYLE: &str = "<style>\
.bars{--page:#fff;--ink:#1b1f24;--soft:#59636e;\
--0:#d55e00;--1:#0072b2;--2:#009e73;--3:#b0508a;--4:#b58900;--5:#4a9cc9;--6:#6a51a3;--7:#4d4d4d;--8:#59636e}\
@media (prefers-color-scheme:dark){.bars{--page:#15191e;--ink:#e8ecf0;--soft:#9aa5b1;\
--0:#ff8c42;--1:#5ab4f0;--2:#3ecfa0;--3:#e79ac6;--4:#e6c04c;--5:#9ad4f5;--6:#b7a3e6;--7:#c8c8c8;--8:#9aa5b1}}\
.bars .page{fill:var(--page)}.bars .ink{fill:var(--ink)}.bars .soft{fill:var(--soft)}\
.bars .light{opacity:.32}\
.bars .b0{fill:var(--0)}.bars .b1{fill:var(--1)}.bars .b2{fill:var(--2)}.bars .b3{fill:var(--3)}\
.bars .b4{fill:var(--4)}.bars .b5{fill:var(--5)}.bars .b6{fill:var(--6)}.bars .b7{fill:var(--7)}\
.bars .b8{fill:var(--8)}\
</style>";

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
        // Nothing has the third colour, so nobody is told of it.
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
        // Where the second bar lies.
        let place = |svg: &str| -> f64 {
            let label = &svg[..svg.find(">next<").expect("its label")];
            let y = &label[label.rfind(" y=\"").expect("a place") + 4..];
            y[..y.find('"').expect("a number")]
                .parse()
                .expect("a number")
        };
        let long = "direct: locks are remembered until somebody conflicts; who meets at the log inserts together";
        let (short, wrapped) = (svg_of("direct"), svg_of(long));
        assert_eq!(place(&wrapped) - place(&short), LINE);
        assert!(
            wrapped.contains(">direct: locks are") && wrapped.contains(">log inserts together<")
        );
        let all = lines(long);
        assert!(
            all.iter()
                .all(|line| line.chars().count() <= LINE_CHARACTERS)
        );
        assert_eq!(all.join(" "), long);
        let cut = lines(&"w".repeat(100));
        assert_eq!((cut.len(), cut[0].chars().count()), (1, LINE_CHARACTERS));
        assert_eq!(lines(""), [""]);
    }
}
