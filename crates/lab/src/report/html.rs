//! The pages of an experiment and of a figure.

use std::fmt::Write;

use serde_json::Value;

use super::{
    data::plain,
    facts, figures,
    findings::Findings,
    lettering::escape,
    number::{bytes, duration_us, grouped},
    over_time,
    page::Page,
    sheet::Sheet,
    times,
};
use crate::measure::{machine::Machine, outcome::Outcome};

/// Returns the page of an experiment.
pub fn page(findings: &Findings) -> String {
    let mut page = Page::new(&findings.title, &findings.workload);
    failure(&mut page, findings.failure());
    page.list(&findings.sentences());
    disturbance(&mut page, findings);
    page.pictures(&figures::of(findings));
    page.pictures(times::picture(findings).as_slice());
    page.pictures(&over_time::pictures(findings));
    page.blocks(&findings.blocks);
    page.blocks(times::block(findings).as_slice());
    page.heading("Every point");
    points(&mut page, findings);
    own(&mut page, findings);
    outcomes(&mut page, findings);
    samples(&mut page, findings);
    page.heading("What was measured");
    about(&mut page, findings);
    method(&mut page);
    let (machine, settings) = (&findings.machine, &findings.settings);
    again(&mut page, machine, settings, &findings.command);
    page.end()
}

/// Returns the page of a figure: the document's beside ours, then each panel.
pub fn sheet(sheet: &Sheet) -> String {
    let mut page = Page::new(&sheet.title, &format!("figure {}", sheet.id));
    body(&mut page, sheet);
    again(&mut page, &sheet.machine, &sheet.settings, &sheet.command);
    page.end()
}

/// Adds a figure to a page.
pub fn body(page: &mut Page, sheet: &Sheet) {
    failure(page, sheet.failure());
    page.soft(&format!("After {}", sheet.source));
    // Void numbers support no claim.
    if sheet.failure().is_none() && !sheet.shape.0.is_empty() {
        page.shape(&sheet.shape);
    }
    page.named("To expect:", &sheet.expect);
    for note in &sheet.notes {
        page.paragraph(note);
    }
    page.blocks(&sheet.beside);
    if !sheet.shape.0.is_empty() {
        page.blocks(&[sheet.shape.block()]);
    }
    page.pictures(&sheet.pictures);
    for panel in &sheet.panels {
        page.heading(&panel.title);
        page.list(&panel.sentences());
        disturbance(page, panel);
        page.pictures(&figures::of(panel));
        page.pictures(&over_time::watched(panel));
        page.pictures(times::picture(panel).as_slice());
        page.blocks(&panel.blocks);
        page.blocks(times::block(panel).as_slice());
        if !panel.curves.is_empty() {
            page.folded("Every point", |page| points(page, panel));
            own(page, panel);
            outcomes(page, panel);
        }
        if !panel.timelines.is_empty() {
            samples(page, panel);
        }
        about(page, panel);
    }
    if sheet.panels.iter().any(|panel| !panel.curves.is_empty()) {
        page.heading("How it was measured");
        method(page);
    }
}

fn failure(page: &mut Page, what: Option<String>) {
    if let Some(what) = what {
        page.warning("A check failed, so do not keep these numbers.", &what);
    }
}

fn disturbance(page: &mut Page, findings: &Findings) {
    if let Some(warning) = findings.disturbance() {
        page.warning("Disturbed.", &warning);
    }
}

fn points(page: &mut Page, findings: &Findings) {
    page.open_table("");
    page.0 += "<thead><tr><th>locks<th>MPL<th>tps, \
             median<th>min<th>max<th>p50<th>p90<th>p99<th>p99.9<th>longest<th>deadlocks<th>timeouts<th>aborts ÷ commits\
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
            let _ = write!(page.0, "<tr{class}><th>{}", escape(&curve.label()));
            for cell in [
                point.mpl.to_string(),
                grouped(tps.median()),
                grouped(tps.min()),
                grouped(tps.max()),
                duration_us(latency.quantile_us(0.5)),
                duration_us(latency.quantile_us(0.9)),
                duration_us(latency.quantile_us(0.99)),
                duration_us(latency.quantile_us(0.999)),
                duration_us(latency.max_us()),
                grouped(tally.of(Outcome::Deadlock) as f64),
                grouped(tally.of(Outcome::Timeout) as f64),
                share(commits),
                share(commits + aborts),
                memory.map_or("not available".to_owned(), bytes),
            ] {
                let _ = write!(page.0, "<td>{cell}");
            }
            let _ = match &point.checks {
                Ok(()) => write!(page.0, "<td>ok</tr>"),
                Err(what) => write!(page.0, "<td class=\"bad\">{}</tr>", escape(what)),
            };
        }
    }
    page.0 += "</tbody>";
    page.close_table();
    page.0 += "<p class=\"soft\">The peak of each is in bold.</p>";
}

/// Adds the workload's own counts.
fn own(page: &mut Page, findings: &Findings) {
    let table = facts::table(findings);
    if !table.is_empty() {
        page.heading("Other counts of this workload");
        page.table(table.heads(), table.rows());
    }
}

/// Adds how every attempt ended and how long it took, by point and type of transaction.
fn outcomes(page: &mut Page, findings: &Findings) {
    page.0 += "<details><summary>Every transaction: how it ended, how long it took</summary>";
    page.open_table("");
    page.0 += "<thead><tr><th>locks<th>MPL<th>transaction";
    for outcome in Outcome::ALL {
        let _ = write!(page.0, "<th>{}", outcome.name());
    }
    page.0 += "<th>p50<th>p90<th>p95<th>p99<th>p99.9<th>longest</tr></thead><tbody>";
    for curve in &findings.curves {
        for point in &curve.points {
            for (index, (kind, counts)) in point.tally().by_kind().enumerate() {
                if counts.iter().all(|&count| count == 0) {
                    continue;
                }
                let latency = point.latency_of(index);
                let shares = [0.5, 0.9, 0.95, 0.99, 0.999].map(|share| latency.quantile_us(share));
                let _ = write!(
                    page.0,
                    "<tr><th>{}<td>{}<td>{}",
                    escape(&curve.label()),
                    point.mpl,
                    escape(kind)
                );
                for &count in counts {
                    let _ = write!(page.0, "<td>{}", grouped(count as f64));
                }
                for micros in shares.into_iter().chain([latency.max_us()]) {
                    let _ = write!(page.0, "<td>{}", duration_us(micros));
                }
                page.0 += "</tr>";
            }
        }
    }
    page.0 += "</tbody>";
    page.close_table();
    page.0 += "<p class=\"soft\">ok: did its full work. miss: found nothing, as expected. rule: \
             rolled back because the workload says so. deadlock and timeout: attempts that the lock \
             manager ended.</p></details>";
}

/// Adds the samples, by slices of the window.
fn samples(page: &mut Page, findings: &Findings) {
    let table = over_time::table(findings);
    if !table.is_empty() {
        page.folded("Over time", |page| page.table(table.heads(), table.rows()));
    }
}

fn about(page: &mut Page, findings: &Findings) {
    page.paragraph(&findings.description);
    page.named("Checked:", &findings.checked);
}

fn method(page: &mut Page) {
    page.paragraph(
        "Clients are threads of the process; each runs one transaction after another without a \
         pause. Points are interleaved over all systems and repetitions. Tables show the median and \
         both extremes. Latency runs from the first attempt to the acknowledged end, retries \
         included.",
    );
}

/// Adds the machine, the settings and the command that repeats the run.
pub fn again(
    page: &mut Page,
    machine: &Machine,
    settings: &[(&'static str, Value)],
    command: &str,
) {
    if !machine.optimised {
        page.warning(
            "Built without optimisation:",
            "do not compare these numbers.",
        );
    }
    page.heading("Machine, versions, settings");
    page.open_table(" class=\"pairs\"");
    let mut pair = |name: &str, value: &str| {
        let _ = write!(page.0, "<tr><th>{}<td>{}</tr>", escape(name), escape(value));
    };
    pair("machine", &machine.sentence());
    pair("foxton", &machine.foxton);
    pair("compiler", machine.compiler);
    pair("started (UTC)", &machine.started);
    for (name, value) in settings {
        pair(name, &plain(value));
    }
    page.close_table();
    page.heading("Run it again");
    page.command(command);
    page.soft("The JSON and CSV files beside this page have the same numbers for programs.");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    #[test]
    fn the_page_loads_nothing_from_outside() {
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
