//! Words and colours of pictures: words are safe and are wrapped where a line is full.
//!
//! A picture has no layout engine. The end of a line is estimated from the average width of
//! letters, a little wide, so that no word is cut at the edge. The colours are Okabe and Ito's,
//! darker on white, and three more.

use std::fmt::Write;

/// Number of colours; one more is for lines without a colour of their own.
pub(super) const COLOURS: usize = 8;
/// Width of a letter in units of its height, and of a bold one.
const LETTER: f64 = 0.53;
const BOLD: f64 = 0.58;
/// Distance between lines in units of the letters' height.
const LINE: f64 = 1.25;

/// Style of words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Face {
    pub(super) ink: &'static str,
    pub(super) size: f64,
    pub(super) bold: bool,
}

/// The title.
const TITLE: Face = face("ink", 17.0, true);
/// A name of a system.
pub(super) const LABEL: Face = face("ink", 15.0, false);
/// The meaning of a colour.
pub(super) const KEY: Face = face("ink", 13.0, false);
/// A number at an axis.
pub(super) const TICK: Face = face("soft", 15.0, false);
/// Everything else.
pub(super) const NOTE: Face = face("soft", 13.0, false);

const fn face(ink: &'static str, size: f64, bold: bool) -> Face {
    Face { ink, size, bold }
}

/// The end of the words that is at their place.
#[derive(Debug, Clone, Copy)]
pub(super) enum At {
    Start,
    Middle,
    End,
}

/// Words in one line with its baseline at `y`.
pub(super) fn text(out: &mut String, (x, y): (f64, f64), face: Face, at: At, words: &str) {
    let anchor = match at {
        At::Start => "",
        At::Middle => " text-anchor=\"middle\"",
        At::End => " text-anchor=\"end\"",
    };
    let weight = if face.bold {
        " font-weight=\"600\""
    } else {
        ""
    };
    let _ = write!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{}\" font-size=\"{}\"{weight}{anchor}>{}</text>",
        face.ink,
        face.size,
        escape(words)
    );
}

/// Words in as many lines as they need, the first at `y`; returns where the next line would be.
pub(super) fn paragraph(
    out: &mut String,
    (x, mut y): (f64, f64),
    room: f64,
    face: Face,
    words: &str,
) -> f64 {
    for line in wrapped(words, room, face) {
        text(out, (x, y), face, At::Start, &line);
        y += line_height(face);
    }
    y
}

/// Distance between lines of a paragraph.
pub(super) fn line_height(face: Face) -> f64 {
    (face.size * LINE).round()
}

/// Splits words into lines that fit; a single word that does not fit is cut.
pub(super) fn wrapped(words: &str, room: f64, face: Face) -> Vec<String> {
    let letter = face.size * if face.bold { BOLD } else { LETTER };
    let most = ((room / letter) as usize).max(2);
    let length = |text: &str| text.chars().count();
    let mut lines = vec![String::new()];
    for word in words.split_whitespace() {
        let word: String = match length(word) > most {
            true => word.chars().take(most - 1).chain(['…']).collect(),
            false => word.to_owned(),
        };
        match lines.last_mut() {
            Some(line) if line.is_empty() => *line = word,
            Some(line) if length(line) + 1 + length(&word) <= most => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Draws the title and the subtitle; returns where the next line is.
pub(super) fn headings(out: &mut String, (x, room): (f64, f64), title: &str, under: &str) -> f64 {
    let y = paragraph(out, (x, 28.0), room, TITLE, title);
    paragraph(out, (x, y), room, NOTE, under)
}

/// The drawing as a document that stands alone or inside a page.
pub(super) fn document(title: &str, (width, height): (f64, f64), drawn: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\" role=\"img\" \
         class=\"picture\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif\">\
         <title>{}</title>{STYLE}<rect class=\"page\" width=\"{width}\" height=\"{height:.0}\" rx=\"8\"/>\
         {drawn}</svg>\n",
        escape(title)
    )
}

/// Text made safe inside XML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const STYLE: &str = "<style>\
.picture{--page:#fff;--ink:#1b1f24;--soft:#59636e;--grid:#d9dee3;\
--0:#d55e00;--1:#0072b2;--2:#009e73;--3:#b0508a;--4:#b58900;--5:#4a9cc9;--6:#6a51a3;--7:#4d4d4d;--8:#59636e}\
@media (prefers-color-scheme:dark){.picture{--page:#15191e;--ink:#e8ecf0;--soft:#9aa5b1;--grid:#303841;\
--0:#ff8c42;--1:#5ab4f0;--2:#3ecfa0;--3:#e79ac6;--4:#e6c04c;--5:#9ad4f5;--6:#b7a3e6;--7:#c8c8c8;--8:#9aa5b1}}\
.picture .page{fill:var(--page)}.picture .ink{fill:var(--ink)}.picture .soft{fill:var(--soft)}\
.picture .grid{stroke:var(--grid);fill:none}\
.picture .mark{stroke:var(--soft);stroke-dasharray:4 4;fill:none}\
.picture .line{fill:none;stroke-width:2.5;stroke-linejoin:round}\
.picture .dashed{stroke-dasharray:7 5}.picture .dotted{stroke-dasharray:2 4}\
.picture .band{opacity:.18}.picture .light{opacity:.32}.picture .dot{stroke:var(--page);stroke-width:1.2}\
.picture .c0{stroke:var(--0)}.picture .c1{stroke:var(--1)}.picture .c2{stroke:var(--2)}\
.picture .c3{stroke:var(--3)}.picture .c4{stroke:var(--4)}.picture .c5{stroke:var(--5)}\
.picture .c6{stroke:var(--6)}.picture .c7{stroke:var(--7)}.picture .c8{stroke:var(--8)}\
.picture .f0{fill:var(--0)}.picture .f1{fill:var(--1)}.picture .f2{fill:var(--2)}\
.picture .f3{fill:var(--3)}.picture .f4{fill:var(--4)}.picture .f5{fill:var(--5)}\
.picture .f6{fill:var(--6)}.picture .f7{fill:var(--7)}.picture .f8{fill:var(--8)}\
</style>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_the_picture() {
        assert_eq!(escape("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
    }

    #[test]
    fn what_is_long_wraps_and_loses_no_word() {
        let long = "direct: locks are remembered until somebody conflicts; who meets at the log inserts together";
        let room = 300.0;
        let lines = wrapped(long, room, LABEL);
        assert!(lines.len() > 1 && lines.join(" ") == long);
        let fits = |line: &String| line.chars().count() as f64 * LABEL.size * LETTER <= room;
        assert!(lines.iter().all(fits), "{lines:?}");
        let cut = wrapped(&"w".repeat(100), room, LABEL);
        assert!(cut.len() == 1 && fits(&cut[0]) && cut[0].ends_with('…'));
        assert_eq!(wrapped("", room, LABEL), [""]);
    }

    #[test]
    fn what_stands_under_a_title_of_two_lines_makes_room() {
        let below = |title: &str| headings(&mut String::new(), (16.0, 400.0), title, "under");
        let long = "a title of so many words that it cannot stand in one line of this picture";
        assert_eq!(below(long) - below("short"), line_height(TITLE));
    }
}
