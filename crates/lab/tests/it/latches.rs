//! Every structure behind every latch, tiny: sums and counts are right, whether the processor
//! elides or not, and a missing measurement is named and not invented.

use std::time::Duration;

use foxton::LatchKind;
use foxton_lab::{
    bench::{
        latches::{self, Settings, Shared},
        pace::Pace,
    },
    progress::Audience,
    report::{findings::Findings, terminal},
    workload::micro::counter::Layout,
};

fn tiny(shared: Vec<Shared>, taken: bool) -> Findings {
    let settings = Settings {
        shared,
        latches: Vec::new(),
        taken,
        pace: Pace {
            threads: vec![1, 4],
            reps: 1,
            ramp: Duration::from_millis(1),
            window: Duration::from_millis(5),
            command: "foxton bench".to_owned(),
        },
    };
    latches::run(&settings, Audience::Nobody).expect("the settings are sound")
}

fn all() -> Vec<Vec<Shared>> {
    let bank = |reads, global| Shared::Bank {
        accounts: 50,
        reads,
        global,
    };
    let list = |reads, beside| Shared::List {
        values: 50,
        reads,
        beside,
    };
    let map = |buckets, global| Shared::HashMap {
        buckets,
        values: 100,
        global,
    };
    vec![
        vec![bank(0, false), bank(50, true)],
        Layout::ALL.map(Shared::Counter).to_vec(),
        vec![list(0, false), list(50, true), list(100, false)],
        vec![map(1, false), map(10, false), map(10, true)],
    ]
}

#[test]
fn nothing_is_lost_behind_any_latch() {
    for shared in all() {
        let count = shared.len();
        let findings = tiny(shared, true);
        assert_eq!(findings.failure(), None, "{}", findings.workload);
        assert_eq!(findings.curves.len(), count * LatchKind::ALL.len());
        for (block, line) in findings.blocks.iter().take(count).zip(1..) {
            let rows = block.table.rows().len();
            assert_eq!(rows, 2 * LatchKind::ALL.len(), "table {line}");
        }
    }
}

/// Latches that cannot elide here have a line that says why, and no number.
#[test]
fn what_cannot_elide_here_is_said_and_not_measured() {
    let findings = tiny(vec![Shared::Counter(Layout::One)], false);
    let text = terminal::text(&findings);
    for kind in LatchKind::ALL {
        let rows = findings.blocks[0].table.rows().iter();
        let rows: Vec<_> = rows.filter(|row| row[0] == kind.to_string()).collect();
        match kind.elides() {
            Ok(_) => assert_eq!(rows.len(), 2, "{kind}"),
            Err(why) => {
                assert_eq!(rows.len(), 1, "{kind}");
                assert_eq!(rows[0][1..], ["-".to_owned(), why.to_string()]);
                assert!(text.contains("not available"));
            }
        }
    }
    let curves = findings.curves.iter();
    assert!(curves.clone().all(|curve| !curve.latch.contains("taken")));
}
