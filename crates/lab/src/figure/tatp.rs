//! More than one table and an index: TATP over clients, figure 17 of document 000.

use super::{
    beside::{self, Says, peak_and_rest, says},
    judge,
    request::Request,
    workload_figure::{WorkloadFigure, by_form, sweep},
};
use crate::{
    bench::{error::BenchError, workload},
    progress::Audience,
    report::{findings::Findings, shape::Shape, sheet::Sheet},
    workload::tatp::{Mix, Shape as Register, Tatp},
};

/// The largest number of clients in the document.
pub(super) const MOST: u32 = 256;
/// The document's scale factor is 64, of 10,000 or of 100,000 subscribers each; it does not say.
const SUBSCRIBERS: [u32; 3] = [10_000, 50_000, 640_000];

/// The document's two mixes.
pub(super) fn mixes(request: &Request) -> [Tatp; 2] {
    let subscribers = request
        .rows
        .unwrap_or_else(|| by_form(request, SUBSCRIBERS));
    [Mix::Read, Mix::ReadUpdate].map(|mix| {
        Tatp::new(Register {
            subscribers,
            mix,
            ..Register::usual()
        })
    })
}

const FIGURE_17: [Says; 3] = [
    says(
        "MySQL, one mutex",
        "shape: collapses on 16 and 32 cores, at either level of isolation",
        "global",
    ),
    says(
        "Our System, staged",
        "shape: never collapses; the same peak on 16 and 32 cores, idle because of latches on index pages",
        "staged",
    ),
    says(
        "Shore-MT, MCS latches, inheritance",
        "peak 32 M/min reading, 5 M/min with updates; spins to join the list of transactions",
        "bucket+inherit",
    ),
];

/// Throughput over clients, reading and with updates.
pub(super) fn figure_17(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = request.chosen_and_default();
    let clients: [&[u32]; 3] = [
        &[1, 2, 32, MOST],
        &[1, 2, 4, 32, 128, MOST],
        &[1, 2, 4, 8, 16, 32, 64, 128, 200, MOST],
    ];
    let runs = sweep(request, chosen.systems.clone(), clients, [250, 600, 60_000]);
    let panels = mixes(request)
        .iter()
        .map(|mix| workload::run(mix, &runs, audience))
        .collect::<Result<Vec<Findings>, BenchError>>()?;
    let beside = panels.iter().map(|panel| {
        beside::curves(
            &format!("The document beside ours: {}", panel.title),
            "The document's curves have no numbers except those given here (section 5.3.4). It does not give \
             the shares of its transactions; here they are TATP's.",
            &FIGURE_17,
            panel,
            peak_and_rest,
        )
    });
    let figure = WorkloadFigure {
        id: "000-fig17",
        title: "TATP over clients, reading and with updates",
        source: format!("{}, Figure 17 and section 5.3.4", beside::STAGED),
        expect: "As with txbench, but with four tables, an index and short transactions. One latch over \
                 everything falls if there are cores enough to contend for it. With 256 clients the \
                 default loses 10 to 20 % of its peak, and managers without admission control a little \
                 more. There is no list of transactions to join here and no latch on the way through an \
                 index, so updates cost what they write.",
        shape: claims(&panels),
        notes: chosen.notes(),
        beside: beside.collect(),
        panels,
    };
    Ok(figure.sheet(request, &runs))
}

fn claims(panels: &[Findings]) -> Shape {
    let of = |panel| {
        [
            judge::keeps(panel, "staged", "the staged manager never collapses"),
            judge::falls(panel, "global", "one mutex collapses"),
        ]
    };
    Shape(panels.iter().flat_map(of).flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{report::synthetic, workload::contract::Workload};

    #[test]
    fn in_each_mix_staged_keeps_its_peak_and_one_mutex_does_not() {
        let panel = |staged, global| {
            let curves: [synthetic::Made<'_>; 2] = [
                ("global", "", &[(1, 100.0), (256, global)]),
                ("staged", "", &[(1, 100.0), (256, staged)]),
            ];
            synthetic::panel("tatp", 64, &curves)
        };
        let Shape(claims) = claims(&[panel(95.0, 30.0), panel(50.0, 95.0)]);
        let holds: Vec<Option<bool>> = claims.iter().map(|claim| claim.holds).collect();
        assert_eq!(holds, [true, true, false, false].map(Some));
    }

    #[test]
    fn the_mixes_are_those_of_the_document() {
        let names = mixes(&Request::default()).map(|mix| mix.about().variant);
        assert_eq!(names, ["read-50000", "read-update-50000"]);
    }
}
