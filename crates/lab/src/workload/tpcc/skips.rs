//! Deliveries that found districts with nothing to deliver.
//!
//! Clause 2.7.4.2: such a district is skipped, and if that happens in more than one in a hundred of
//! the Deliveries, or in more than one, whichever is greater, it must be reported.

use super::client::DELIVERY;
use crate::{
    measure::{
        curve::Curve,
        outcome::{Outcome, Tally},
    },
    report::{findings::Block, number::grouped, table::Table},
};

/// Deliveries that ended as planned.
fn deliveries(tally: &Tally) -> u64 {
    tally.of_kind(DELIVERY, Outcome::Ok) + tally.of_kind(DELIVERY, Outcome::Miss)
}

/// True if this number of skips must be reported.
fn are_many(tally: &Tally) -> bool {
    tally.skips.transactions > (deliveries(tally) / 100).max(1)
}

/// The report; `None` if there were few skips at every point.
pub(super) fn block(curves: &[Curve]) -> Option<Block> {
    let mut table = Table::new([
        "system",
        "MPL",
        "deliveries",
        "with skips",
        "districts skipped",
    ]);
    for curve in curves {
        for point in &curve.points {
            let tally = point.tally();
            if are_many(&tally) {
                table.row([
                    curve.label(),
                    point.mpl.to_string(),
                    grouped(deliveries(&tally) as f64),
                    grouped(tally.skips.transactions as f64),
                    grouped(tally.skips.parts as f64),
                ]);
            }
        }
    }
    (!table.is_empty()).then(|| Block {
        title: "Districts with nothing to deliver".to_owned(),
        note: "Points at which more than one in a hundred of the Deliveries skipped a district (clause \
               2.7.4.2). Deliveries then keep up with NewOrders, or have overtaken them."
            .to_owned(),
        table,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        measure::{curve::Point, outcome::Ended, run::Run},
        workload::tpcc::client::KINDS,
    };

    /// A point with this many Deliveries, of which this many skipped three districts each.
    fn curves(all: u32, skipping: u32) -> Vec<Curve> {
        let mut tally = Tally::new(KINDS);
        for number in 0..all {
            tally.count(Ended {
                skipped: if number < skipping { 3 } else { 0 },
                ..Ended::ok(DELIVERY)
            });
        }
        let mut point = Point::new(4);
        point.runs.push(Run {
            tally,
            ..Run::default()
        });
        vec![Curve {
            lock_manager: "direct".to_owned(),
            latch: "-".to_owned(),
            note: String::new(),
            points: vec![point],
            settings: Vec::new(),
            facts: Vec::new(),
        }]
    }

    #[test]
    fn skips_are_reported_where_the_benchmark_wants_it() {
        for (all, skipping, reported) in [
            (50, 0, false),
            (50, 1, false),
            (50, 2, true),
            (1_000, 10, false),
            (1_000, 11, true),
        ] {
            let block = block(&curves(all, skipping));
            assert_eq!(block.is_some(), reported, "{skipping} of {all}");
        }
        let block = block(&curves(1_000, 11)).unwrap();
        assert_eq!(block.table.rows()[0][2..], ["1,000", "11", "33"]);
    }
}
