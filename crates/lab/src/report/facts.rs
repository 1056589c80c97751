//! Counts of a workload's own: a table with a line for each point.

use serde_json::Value;

use super::{findings::Findings, number::grouped, table::Table};
use crate::measure::curve::Point;

/// Returns the numbers of each point, named as in the files; other values are in the files only.
/// Empty if the experiment's own tables have them.
pub fn table(findings: &Findings) -> Table {
    let points = || findings.curves.iter().flat_map(|curve| &curve.points);
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in points().flat_map(numbers) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() || findings.blocks_have_points {
        return Table::default();
    }
    let heads = ["locks", "MPL"].into_iter().map(str::to_owned);
    let facts = names.iter().map(|name| name.replace('_', " "));
    let mut table = Table::of(heads.chain(facts));
    for curve in &findings.curves {
        for point in &curve.points {
            let cell = |name: &&str| {
                let found = numbers(point).find(|(other, _)| other == name);
                found.map_or("-".to_owned(), |(_, number)| grouped(number))
            };
            let point_is = [curve.label(), point.mpl.to_string()];
            table.row(point_is.into_iter().chain(names.iter().map(cell)));
        }
    }
    table
}

fn numbers(point: &Point) -> impl Iterator<Item = (&'static str, f64)> {
    let number = |(name, value): &(&'static str, Value)| Some((*name, value.as_f64()?));
    point.facts.iter().filter_map(number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::{html, synthetic, terminal};

    #[test]
    fn counts_of_a_workload_are_on_the_terminal_and_on_the_page() {
        let mut findings = synthetic::findings();
        assert!(table(&findings).is_empty());
        findings.curves[0].points[2].facts = vec![
            ("new_orders_per_minute_unpaced", json!(123_456.7)),
            ("by_cause", json!({"many": 1})),
        ];
        let of_it = table(&findings);
        assert_eq!(
            of_it.heads(),
            ["locks", "MPL", "new orders per minute unpaced"]
        );
        let cells: Vec<&str> = of_it.rows().iter().map(|row| row[2].as_str()).collect();
        assert_eq!((cells[1], cells[2]), ("-", "123,457"));
        for text in [terminal::text(&findings), html::page(&findings)] {
            assert!(text.contains("new orders per minute unpaced") && text.contains("123,457"));
        }
        findings.blocks_have_points = true;
        assert!(table(&findings).is_empty());
    }
}
