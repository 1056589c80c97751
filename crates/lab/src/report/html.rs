//! One self-contained page: no script, no network, readable on a phone and at night.

use std::fmt::Write;

use serde_json::Value;

use super::{
    chart::escape,
    data::plain,
    figures::{self, Figure},
    findings::{Block, Findings},
    number::{bytes, duration_us, grouped},
    sheet::Sheet,
};
use crate::measure::{machine::Machine, outcome::Outcome};

/// The page.
pub fn page(findings: &Findings) -> String {
    let mut out = head(&findings.title, &findings.workload);
    failure(&mut out, findings.failure());
    headline(&mut out, findings);
    disturbance(&mut out, findings);
    pictures(&mut out, &figures::of(findings));
    blocks(&mut out, &findings.blocks);
    out += "<h2>Every point</h2>";
    points(&mut out, findings);
    outcomes(&mut out, findings);
    if !findings.timelines.is_empty() {
        out += "<h2>Over time</h2>";
        samples(&mut out, findings);
    }
    out += "<h2>What was measured</h2>";
    about(&mut out, findings);
    method(&mut out);
    let (machine, settings) = (&findings.machine, &findings.settings);
    again(&mut out, machine, settings, &findings.command);
    out += END;
    out
}

/// The page of a figure: the document's beside ours, then each panel.
pub fn sheet(sheet: &Sheet) -> String {
    let mut out = head(&sheet.title, &format!("figure {}", sheet.id));
    failure(&mut out, sheet.failure());
    let _ = write!(
        out,
        "<p class=\"soft\">After {}</p><p><b>To expect:</b> {}</p>",
        escape(&sheet.source),
        escape(&sheet.expect)
    );
    for note in &sheet.notes {
        let _ = write!(out, "<p>{}</p>", escape(note));
    }
    blocks(&mut out, &sheet.beside);
    pictures(&mut out, &sheet.pictures);
    for panel in &sheet.panels {
        let _ = write!(out, "<h2>{}</h2>", escape(&panel.title));
        headline(&mut out, panel);
        disturbance(&mut out, panel);
        pictures(&mut out, &figures::of(panel));
        blocks(&mut out, &panel.blocks);
        if !panel.curves.is_empty() {
            out += "<details><summary>Every point</summary>";
            points(&mut out, panel);
            out += "</details>";
            outcomes(&mut out, panel);
        }
        if !panel.timelines.is_empty() {
            out += "<details><summary>Over time</summary>";
            samples(&mut out, panel);
            out += "</details>";
        }
        about(&mut out, panel);
    }
    if sheet.panels.iter().any(|panel| !panel.curves.is_empty()) {
        out += "<h2>How it was measured</h2>";
        method(&mut out);
    }
    again(&mut out, &sheet.machine, &sheet.settings, &sheet.command);
    out += END;
    out
}

const END: &str = "</main></body></html>\n";

fn head(title: &str, over: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{0}</title><style>{STYLE}</style></head><body><main>\
         <p class=\"over\">Foxton laboratory · {1}</p><h1>{0}</h1>",
        escape(title),
        escape(over)
    )
}

fn failure(out: &mut String, what: Option<String>) {
    if let Some(what) = what {
        let _ = write!(
            out,
            "<p class=\"failed\"><b>A check failed, so these numbers are void.</b> {}</p>",
            escape(&what)
        );
    }
}

fn disturbance(out: &mut String, findings: &Findings) {
    if let Some(warning) = findings.disturbance() {
        let _ = write!(out, "<p class=\"failed\">{}</p>", escape(&warning));
    }
}

fn pictures(out: &mut String, figures: &[Figure]) {
    for figure in figures {
        let _ = write!(out, "<figure>{}</figure>", figure.chart.svg());
    }
}

fn headline(out: &mut String, findings: &Findings) {
    let sentences = findings.sentences();
    if sentences.is_empty() {
        return;
    }
    *out += "<ul class=\"finding\">";
    for sentence in sentences {
        let _ = write!(out, "<li>{}</li>", escape(&sentence));
    }
    *out += "</ul>";
}

fn blocks(out: &mut String, blocks: &[Block]) {
    for block in blocks {
        let _ = write!(
            out,
            "<h2>{}</h2><div class=\"wide\"><table>",
            escape(&block.title)
        );
        let mut row = |tag: &str, cells: &[String]| {
            *out += "<tr>";
            for (index, cell) in cells.iter().enumerate() {
                let tag = if index == 0 { "th" } else { tag };
                let _ = write!(out, "<{tag}>{}", escape(cell));
            }
            *out += "</tr>";
        };
        row("th class=\"head\"", block.table.heads());
        block.table.rows().iter().for_each(|cells| row("td", cells));
        let _ = write!(
            out,
            "</table></div><p class=\"soft\">{}</p>",
            escape(&block.note)
        );
    }
}

fn points(out: &mut String, findings: &Findings) {
    *out += "<div class=\"wide\"><table><thead><tr><th>locks<th>MPL<th>tps, \
             median<th>min<th>max<th>p50<th>p90<th>p99<th>longest<th>deadlocks<th>timeouts<th>aborts ÷ commits\
             <th>aborts ÷ attempts<th>memory<th>checks</tr></thead><tbody>";
    for curve in &findings.curves {
        let peak = curve.peak().map(|point| point.mpl);
        for point in &curve.points {
            let (tps, tally, latency) = (point.tps(), point.tally(), point.latency());
            let (commits, aborts) = (tally.committed() as f64, tally.aborts() as f64);
            let share = |whole: f64| format!("{:.3} %", aborts / whole.max(1.0) * 100.0);
            let memory = point.runs.iter().filter_map(|run| run.usage);
            let memory = memory.map(|usage| usage.resident_bytes).max();
            let class = if peak == Some(point.mpl) {
                " class=\"peak\""
            } else {
                ""
            };
            let _ = write!(out, "<tr{class}><th>{}", escape(&curve.label()));
            for cell in [
                point.mpl.to_string(),
                grouped(tps.median()),
                grouped(tps.min()),
                grouped(tps.max()),
                duration_us(latency.quantile_us(0.5)),
                duration_us(latency.quantile_us(0.9)),
                duration_us(latency.quantile_us(0.99)),
                duration_us(latency.max_us()),
                grouped(tally.of(Outcome::Deadlock) as f64),
                grouped(tally.of(Outcome::Timeout) as f64),
                share(commits),
                share(commits + aborts),
                memory.map_or("not available".to_owned(), bytes),
            ] {
                let _ = write!(out, "<td>{cell}");
            }
            let _ = match &point.checks {
                Ok(()) => write!(out, "<td>ok</tr>"),
                Err(what) => write!(out, "<td class=\"bad\">{}</tr>", escape(what)),
            };
        }
    }
    *out += "</tbody></table></div><p class=\"soft\">The peak of each is in bold.</p>";
}

/// What became of every attempt and how long it took, by point and type of transaction.
fn outcomes(out: &mut String, findings: &Findings) {
    *out += "<details><summary>Every transaction: what became of it, how long it took</summary>\
             <div class=\"wide\"><table><thead><tr><th>locks<th>MPL<th>transaction";
    for outcome in Outcome::ALL {
        let _ = write!(out, "<th>{}", outcome.name());
    }
    *out += "<th>p50<th>p90<th>p99<th>longest</tr></thead><tbody>";
    for curve in &findings.curves {
        for point in &curve.points {
            for (index, (kind, counts)) in point.tally().by_kind().enumerate() {
                if counts.iter().all(|&count| count == 0) {
                    continue;
                }
                let latency = point.latency_of(index);
                let shares = [0.5, 0.9, 0.99].map(|share| latency.quantile_us(share));
                let _ = write!(
                    out,
                    "<tr><th>{}<td>{}<td>{}",
                    escape(&curve.label()),
                    point.mpl,
                    escape(kind)
                );
                for &count in counts {
                    let _ = write!(out, "<td>{}", grouped(count as f64));
                }
                for micros in shares.into_iter().chain([latency.max_us()]) {
                    let _ = write!(out, "<td>{}", duration_us(micros));
                }
                *out += "</tr>";
            }
        }
    }
    *out += "</tbody></table></div><p class=\"soft\">ok: did its full work. miss: found, as expected, \
             nothing. rule: rolled back because the workload says so. deadlock and timeout: attempts \
             that the lock manager ended.</p></details>";
}

fn samples(out: &mut String, findings: &Findings) {
    *out += "<div class=\"wide\"><table><thead><tr><th>locks<th>second<th>tps\
             <th>memory<th>program<th>kernel<th>others<th>idle</tr></thead><tbody>";
    for timeline in &findings.timelines {
        for sample in &timeline.samples {
            let _ = write!(
                out,
                "<tr><th>{}<td>{:.1}<td>{}<td>{}<td>{:.0} %<td>{:.0} %<td>{:.0} %<td>{:.0} %</tr>",
                escape(&timeline.label),
                sample.at.as_secs_f64(),
                grouped(sample.tps),
                bytes(sample.resident_bytes),
                sample.split.user * 100.0,
                sample.split.kernel * 100.0,
                sample.split.others * 100.0,
                sample.split.idle * 100.0
            );
        }
    }
    *out += "</tbody></table></div>";
}

fn about(out: &mut String, findings: &Findings) {
    let _ = write!(
        out,
        "<p>{}</p><p><b>Checked:</b> {}</p>",
        escape(&findings.description),
        escape(&findings.checked)
    );
}

fn method(out: &mut String) {
    *out += "<p>Clients are threads of the process, each running one transaction after another \
             without pause. The points are interleaved over everything compared and over the \
             repetitions; the tables show the median and the extremes. Latency runs from the first \
             attempt to the acknowledged end, retries included.</p>";
}

fn again(out: &mut String, machine: &Machine, settings: &[(&'static str, Value)], command: &str) {
    if !machine.optimised {
        *out += "<p class=\"failed\">Built without optimisation: not numbers to compare.</p>";
    }
    *out += "<h2>Machine, versions, settings</h2><div class=\"wide\"><table class=\"pairs\">";
    let mut pair = |name: &str, value: &str| {
        let _ = write!(out, "<tr><th>{}<td>{}</tr>", escape(name), escape(value));
    };
    pair("machine", &machine.sentence());
    pair("foxton", &machine.foxton);
    pair("compiler", machine.compiler);
    pair("started (UTC)", &machine.started);
    for (name, value) in settings {
        pair(name, &plain(value));
    }
    let _ = write!(
        out,
        "</table></div><h2>Again</h2><pre>{}</pre><p class=\"soft\">The same numbers for programs \
         are in the JSON and CSV files beside this page.</p>",
        escape(command)
    );
}

const STYLE: &str = "\
:root{--page:#fff;--ink:#1b1f24;--soft:#59636e;--rule:#d9dee3;--tint:#f4f6f8;--bad:#b3261e}\
@media(prefers-color-scheme:dark){:root{--page:#0f1317;--ink:#e8ecf0;--soft:#9aa5b1;\
--rule:#303841;--tint:#15191e;--bad:#ff8a80}}\
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);\
font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}\
main{max-width:54rem;margin:0 auto;padding:1.25rem 1rem 3rem}\
h1{font-size:1.6rem;line-height:1.25;margin:.1em 0 .6em}h2{font-size:1.15rem;margin:2em 0 .5em}\
.over,.soft{color:var(--soft);font-size:.9rem}.over{margin:0}\
.finding{padding-left:1.1em;font-size:1.05rem}.finding li{margin:.3em 0}\
figure{margin:1.2rem 0;overflow-x:auto;border:1px solid var(--rule);border-radius:8px}\
figure svg{display:block;width:100%;min-width:21rem;max-width:44rem;height:auto;margin:0 auto}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;\
font-variant-numeric:tabular-nums;white-space:nowrap}\
th,td{padding:.28rem .7rem;text-align:right;border-bottom:1px solid var(--rule)}\
th:first-child{text-align:left;font-weight:500}thead th,th.head{color:var(--soft);\
font-weight:500;border-bottom:2px solid var(--rule)}.peak td{font-weight:700}\
.pairs td{text-align:left;white-space:normal}.pairs th{vertical-align:top;color:var(--soft)}\
.bad{color:var(--bad);font-weight:600;white-space:normal;min-width:16rem;text-align:left}\
details{margin:.8rem 0}summary{cursor:pointer;color:var(--soft)}\
.failed{border-left:4px solid var(--bad);padding:.5rem 1rem;background:var(--tint)}\
pre{background:var(--tint);padding:.8rem 1rem;border-radius:8px;overflow-x:auto;font-size:.85rem}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    #[test]
    fn the_page_reaches_for_nothing_outside_itself() {
        let page = page(&synthetic::findings());
        for outside in [
            "<script", "<link", "<img", "@import", "url(", "src=", "href=",
        ] {
            assert!(!page.contains(outside), "the page contains {outside}");
        }
        // The only address is the name of the SVG namespace.
        assert_eq!(
            page.matches("http").count(),
            page.matches("http://www.w3.org/2000/svg").count()
        );
    }

    #[test]
    fn a_failed_check_is_at_the_top_of_the_page() {
        let mut findings = synthetic::findings();
        findings.curves[0].points[0].fail("table 2 has 9 rows".into());
        let page = page(&findings);
        let (warning, chart) = (page.find("table 2 has 9 rows"), page.find("<figure"));
        assert!(warning.is_some() && warning < chart);
    }
}
