//! Frame of every page: one file, no script, no network, readable on a phone and at night.

use std::fmt::Write;

use super::{figures::Figure, findings::Block, lettering::escape, shape::Shape};

/// A page that is being written.
#[derive(Debug)]
pub struct Page(pub(super) String);

impl Page {
    /// A page with this title, and the line `over` above it.
    pub fn new(title: &str, over: &str) -> Page {
        Page(format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\">\
             <title>{0}</title><style>{STYLE}</style></head><body><main>\
             <p class=\"over\">Foxton laboratory · {1}</p><h1>{0}</h1>",
            escape(title),
            escape(over)
        ))
    }

    /// A part of a page with an anchor, to be inserted into a page.
    pub fn section(id: &str, title: &str) -> Page {
        let (id, title) = (escape(id), escape(title));
        Page(format!(
            "<section id=\"{id}\"><p class=\"over\">{id}</p><h1>{title}</h1>"
        ))
    }

    /// Ends the part and returns it.
    pub fn end_section(mut self) -> String {
        self.0 += "</section>";
        self.0
    }

    /// Inserts a part.
    pub fn insert(&mut self, section: &str) {
        self.0 += section;
    }

    /// Adds a table of contents. The first column names parts of the page, the second has the
    /// colour of the row's class, and the last is long.
    pub fn contents(&mut self, heads: &[String], rows: &[(&str, Vec<String>)]) {
        self.0 += "<ul class=\"contents\">";
        for (class, row) in rows {
            let Some((name, cells)) = row.split_first() else {
                continue;
            };
            let _ = write!(
                self.0,
                "<li class=\"{class}\"><a href=\"#{0}\">{0}</a>",
                escape(name)
            );
            for (head, cell) in heads.iter().skip(1).zip(cells) {
                let _ = write!(
                    self.0,
                    "<span title=\"{}\">{}</span>",
                    escape(head),
                    escape(cell)
                );
            }
            self.0 += "</li>";
        }
        self.0 += "</ul>";
    }

    /// Ends the page and returns it.
    pub fn end(mut self) -> String {
        self.0 += "</main></body></html>\n";
        self.0
    }

    /// Adds a heading.
    pub fn heading(&mut self, words: &str) {
        self.element("h2", words);
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, words: &str) {
        self.element("p", words);
    }

    /// Adds a paragraph in a softer colour.
    pub fn soft(&mut self, words: &str) {
        self.element("p class=\"soft\"", words);
    }

    /// Adds a paragraph that begins with a word in bold.
    pub fn named(&mut self, name: &str, words: &str) {
        let _ = write!(self.0, "<p><b>{}</b> {}</p>", escape(name), escape(words));
    }

    /// Adds a warning: a word in bold, and the rest.
    pub fn warning(&mut self, name: &str, words: &str) {
        let (name, words) = (escape(name), escape(words));
        let _ = write!(self.0, "<p class=\"failed\"><b>{name}</b> {words}</p>");
    }

    /// Adds the judgement of a figure's shape.
    pub fn shape(&mut self, shape: &Shape) {
        let _ = write!(
            self.0,
            "<p class=\"shape {}\">{}</p>",
            shape.verdict().class(),
            escape(&shape.sentence())
        );
    }

    /// Adds a list of findings, if there are any.
    pub fn list(&mut self, sentences: &[String]) {
        if sentences.is_empty() {
            return;
        }
        self.0 += "<ul class=\"finding\">";
        for sentence in sentences {
            let _ = write!(self.0, "<li>{}</li>", escape(sentence));
        }
        self.0 += "</ul>";
    }

    /// Adds pictures, one below the other.
    pub fn pictures(&mut self, figures: &[Figure]) {
        for figure in figures {
            let _ = write!(self.0, "<figure>{}</figure>", figure.chart.svg());
        }
    }

    /// Adds tables with their titles and notes. A table that is wider than the page scrolls in its
    /// own box.
    pub fn blocks(&mut self, blocks: &[Block]) {
        for block in blocks {
            self.heading(&block.title);
            self.table(block.table.heads(), block.table.rows());
            if !block.note.is_empty() {
                self.soft(&block.note);
            }
        }
    }

    /// Adds a table whose first column names its rows. Columns of numbers are aligned right, words
    /// left.
    pub fn table(&mut self, heads: &[String], rows: &[Vec<String>]) {
        let words: Vec<bool> = (0..heads.len())
            .map(|column| {
                let mut cells = rows.iter().filter_map(|row| row.get(column));
                cells.any(|cell| !super::table::looks_numeric(cell))
            })
            .collect();
        let class = |column: usize| {
            if words[column] {
                " class=\"words\""
            } else {
                ""
            }
        };
        self.open_table("");
        self.0 += "<thead><tr>";
        for (column, head) in heads.iter().enumerate() {
            let _ = write!(
                self.0,
                "<th scope=\"col\"{}>{}",
                class(column),
                escape(head)
            );
        }
        self.0 += "</tr></thead><tbody>";
        for row in rows.iter().filter(|row| !row.is_empty()) {
            self.0 += "<tr>";
            for (column, cell) in row.iter().enumerate().take(heads.len()) {
                let _ = match column {
                    0 => write!(self.0, "<th scope=\"row\">{}", escape(cell)),
                    _ => write!(self.0, "<td{}>{}", class(column), escape(cell)),
                };
            }
            self.0 += "</tr>";
        }
        self.0 += "</tbody>";
        self.close_table();
    }

    /// Begins a table in a box of its own, which also scrolls by the keyboard.
    pub(super) fn open_table(&mut self, class: &str) {
        let _ = write!(
            self.0,
            "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"table\"><table{class}>"
        );
    }

    /// Ends the table.
    pub(super) fn close_table(&mut self) {
        self.0 += "</table></div>";
    }

    /// Adds a part that is shown on request.
    pub fn folded(&mut self, summary: &str, inside: impl FnOnce(&mut Page)) {
        let _ = write!(self.0, "<details><summary>{}</summary>", escape(summary));
        inside(self);
        self.0 += "</details>";
    }

    /// Adds a command as it is typed.
    pub fn command(&mut self, words: &str) {
        let _ = write!(self.0, "<pre>{}</pre>", escape(words));
    }

    fn element(&mut self, tag: &str, words: &str) {
        let name = tag.split(' ').next().unwrap_or(tag);
        let _ = write!(self.0, "<{tag}>{}</{name}>", escape(words));
    }
}

const STYLE: &str = "\
:root{--page:#fff;--ink:#1b1f24;--soft:#59636e;--rule:#d9dee3;--tint:#f4f6f8;--bad:#b3261e;\
--good:#0b6b4f;--half:#7a5b00;--link:#0057a8;--card:#fff}\
@media(prefers-color-scheme:dark){:root{--page:#0f1317;--ink:#e8ecf0;--soft:#9aa5b1;\
--rule:#303841;--tint:#15191e;--bad:#ff8a80;--good:#5fd3ab;--half:#e6c04c;--link:#7cc0ff;--card:#15191e}}\
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);\
font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;overflow-wrap:break-word}\
main{max-width:54rem;margin:0 auto;padding:1.25rem 1rem 3rem}a{color:var(--link)}\
h1{font-size:1.6rem;line-height:1.25;margin:.1em 0 .6em}h2{font-size:1.15rem;margin:2em 0 .5em}\
.over,.soft{color:var(--soft);font-size:.9rem}.over{margin:0}\
.finding{padding-left:1.1em;font-size:1.05rem}.finding li{margin:.3em 0}\
figure{margin:1.2rem 0;overflow-x:auto;background:var(--card);border:1px solid var(--rule);border-radius:8px}\
figure svg{display:block;width:100%;max-width:40rem;height:auto;margin:0 auto}\
.wide{overflow-x:auto;border:1px solid var(--rule);border-radius:8px}\
.wide:focus-visible{outline:2px solid var(--link)}\
table{border-collapse:collapse;font-size:.88rem;\
font-variant-numeric:tabular-nums;white-space:nowrap}\
th,td{padding:.28rem .7rem;text-align:right;border-bottom:1px solid var(--rule)}\
tbody tr:last-child>*{border-bottom:0}.words{text-align:left}\
td.words{white-space:normal;min-width:min(13rem,55vw)}\
th:first-child{text-align:left;font-weight:500}thead th{color:var(--soft);\
font-weight:500;border-bottom:2px solid var(--rule)}.peak td{font-weight:700}\
tbody th{position:sticky;left:0;background:var(--page);max-width:46vw;white-space:normal}\
.pairs{width:100%}.pairs td{text-align:left;white-space:normal}.pairs th{vertical-align:top;width:11rem;color:var(--soft)}\
.bad{color:var(--bad);font-weight:600;white-space:normal;min-width:min(34rem,80vw);text-align:left}\
section{border-top:2px solid var(--rule);margin-top:3rem;padding-top:1rem}\
.contents{list-style:none;padding:0}.contents li{padding:.6rem 0;border-bottom:1px solid var(--rule);\
display:flex;flex-wrap:wrap;gap:.2rem 1rem}.contents a{font-weight:600;min-width:6rem}\
.contents span:nth-child(2){font-weight:600}.contents .yes span:nth-child(2){color:var(--good)}\
.contents .partly span:nth-child(2){color:var(--half)}.contents .no span:nth-child(2){color:var(--bad)}\
.contents span:nth-child(3){color:var(--soft)}\
.contents span:last-child{flex-basis:100%}\
details{margin:.8rem 0}summary{cursor:pointer;color:var(--soft);padding:.3rem 0}\
.failed{border-left:4px solid var(--bad);padding:.5rem 1rem;background:var(--tint)}\
.shape{border-left:4px solid var(--soft);padding:.5rem 1rem;background:var(--tint)}\
.shape.yes{border-color:var(--good)}.shape.partly{border-color:var(--half)}.shape.no{border-color:var(--bad)}\
.yes b{color:var(--good)}.partly b{color:var(--half)}.no b{color:var(--bad)}\
pre{background:var(--tint);padding:.8rem 1rem;border-radius:8px;overflow-x:auto;font-size:.85rem}";
