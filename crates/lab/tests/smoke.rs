//! Everything, tiny: each variant of txbench over each lock manager and latch, with the checks of
//! the workload. What is shown here is not a number but that all of it runs, ends, and is right.

use std::time::Duration;

use foxton::{Durability, LatchKind, LockManagerKind};
use foxton_lab::{
    bench::{
        error::BenchError,
        lock_cost, lock_only,
        runs::Runs,
        tpcb,
        txbench::{self, Settings},
    },
    measure::outcome::Outcome,
    progress::Audience,
    report,
    report::findings::Findings,
    system::{Locks, System},
    workload::{tpcb::Scale, txbench::Shape},
};

fn managers() -> Vec<Locks> {
    let all = LockManagerKind::ALL.into_iter();
    all.flat_map(|kind| [Locks::Manager(kind), Locks::Inheriting(kind)])
        .collect()
}

fn tiny(shape: Shape) -> Settings {
    Settings {
        shape: Shape {
            rows: 2_000,
            ..shape
        },
        stalled: false,
        stamp: true,
        runs: Runs {
            systems: System::all(&managers(), &[]),
            mpls: vec![4],
            reps: 1,
            ramp: Duration::from_millis(5),
            window: Duration::from_millis(80),
            durability: Durability::Buffered,
            directory: None,
            observe: None,
            command: String::new(),
        },
        plant: false,
    }
}

/// Runs it; on a machine so busy that nobody came to commit anything, once more and longer.
fn run(settings: &Settings) -> Findings {
    let run = |settings: &Settings| {
        txbench::run(settings, Audience::Nobody).expect("the settings are sound")
    };
    let findings = run(settings);
    let mut points = findings.curves.iter().flat_map(|curve| &curve.points);
    if points.any(|point| point.tally().committed() == 0) {
        let mut longer = settings.clone();
        longer.runs.window *= 30;
        return run(&longer);
    }
    findings
}

fn assert_sound(findings: &Findings) {
    assert_eq!(findings.failure(), None, "{}", findings.variant);
    for point in findings.curves.iter().flat_map(|curve| &curve.points) {
        let tally = point.tally();
        assert!(tally.committed() > 0, "{}", findings.variant);
        assert_eq!(tally.of(Outcome::Timeout), 0, "{}", findings.variant);
    }
}

#[test]
fn every_variant_is_right_over_every_lock_manager() {
    for size in [10, 100] {
        for updates in [0, 20, 25] {
            for hotspot in [false, true] {
                for unordered in [false, true] {
                    let shape = Shape {
                        size,
                        updates,
                        hotspot,
                        unordered,
                        ..Shape::usual()
                    };
                    assert_sound(&run(&tiny(shape)));
                }
            }
        }
    }
}

#[test]
fn updates_are_right_over_every_latch_and_with_more_clients_than_rows_are_hot() {
    let shape = Shape {
        updates: 25,
        hotspot: true,
        unordered: true,
        ..Shape::usual()
    };
    let mut settings = tiny(shape);
    settings.runs.systems = System::all(
        &[
            Locks::Manager(LockManagerKind::Global),
            Locks::Manager(LockManagerKind::Bucket),
        ],
        &LatchKind::ALL,
    );
    settings.runs.mpls = vec![64];
    // Clients that queue for a latch while most of them are descheduled take their time.
    settings.runs.window = Duration::from_millis(400);
    assert_sound(&run(&settings));
}

#[test]
fn two_transactions_deadlock_when_rows_are_updated_in_any_order_and_both_commit_in_the_end() {
    let shape = Shape {
        size: 100,
        updates: 25,
        hotspot: true,
        unordered: true,
        ..Shape::usual()
    };
    let mut settings = tiny(shape);
    settings.runs.systems = System::all(&[Locks::Default], &[]);
    settings.runs.window = Duration::from_millis(300);
    let findings = run(&settings);
    assert_sound(&findings);
    assert!(findings.curves[0].points[0].tally().of(Outcome::Deadlock) > 0);
}

#[test]
fn one_client_runs_without_locking_and_more_do_not() {
    let mut settings = tiny(Shape {
        updates: 20,
        ..Shape::usual()
    });
    settings.runs.systems = System::all(&[Locks::None, Locks::Default], &[]);
    settings.runs.mpls = vec![4, 1];
    let findings = run(&settings);
    assert_sound(&findings);
    let mpls = |index: usize| -> Vec<u32> {
        findings.curves[index]
            .points
            .iter()
            .map(|point| point.mpl)
            .collect()
    };
    assert_eq!((mpls(0), mpls(1)), (vec![1], vec![1, 4]));
    settings.runs.mpls = vec![4];
    let refused = txbench::run(&settings, Audience::Nobody).unwrap_err();
    assert!(refused.to_string().contains("--mpl"), "{refused}");
}

#[test]
fn every_durability_is_right() {
    for durability in Durability::ALL {
        let mut settings = tiny(Shape {
            updates: 20,
            ..Shape::usual()
        });
        settings.runs.systems = System::all(&[Locks::Default], &[]);
        settings.runs.durability = durability;
        assert_sound(&run(&settings));
    }
}

#[test]
fn a_stalled_transaction_stops_nobody_and_the_samples_are_there() {
    let mut settings = tiny(Shape::usual());
    settings.stalled = true;
    settings.runs.window = Duration::from_millis(1_000);
    settings.runs.systems = System::all(&[Locks::Default], &[]);
    let findings = run(&settings);
    assert_sound(&findings);
    assert!(findings.timelines[0].samples.len() >= 10);
    settings.shape.updates = 20;
    let refused = txbench::run(&settings, Audience::Nobody).unwrap_err();
    assert!(matches!(refused, BenchError::Settings(_)), "{refused}");
}

#[test]
fn a_wrong_value_in_a_table_voids_every_point() {
    let mut settings = tiny(Shape {
        hotspot: true,
        ..Shape::usual()
    });
    settings.plant = true;
    let findings = run(&settings);
    for curve in &findings.curves {
        assert!(
            curve.failure().is_some(),
            "{} did not notice",
            curve.label()
        );
    }
    let json = report::data::json(&findings);
    assert!(!json.contains("\"checks\": \"ok\""), "{json}");
}

#[test]
fn locks_alone_stand_beside_the_peer_and_say_what_they_take() {
    let settings = lock_only::Settings {
        seed: 1,
        runs: Runs {
            systems: System::all(&managers(), &[]),
            mpls: vec![1, 2],
            reps: 1,
            ramp: Duration::ZERO,
            window: Duration::from_millis(20),
            durability: Durability::None,
            directory: None,
            observe: None,
            command: String::new(),
        },
    };
    let findings = lock_only::run(&settings, Audience::Nobody).expect("the settings are sound");
    assert_sound(&findings);
    let [peer, memory] = &findings.blocks[..] else {
        panic!("two tables");
    };
    assert_eq!(peer.table.rows().len(), 2 * managers().len());
    assert_eq!(memory.table.rows().len(), managers().len());
    assert!(report::data::json(&findings).contains("bytes_per_held_lock"));
}

#[test]
fn the_cost_of_locking_is_a_table_with_a_line_for_each_system() {
    let settings = lock_cost::Settings {
        systems: System::all(&managers(), &[]),
        window: Duration::from_millis(40),
        reps: 1,
        rows: 2_000,
        instructions: None,
        directory: None,
        command: String::new(),
    };
    let findings = lock_cost::run(&settings, Audience::Nobody).expect("the settings are sound");
    assert_sound(&findings);
    assert_eq!(findings.blocks[0].table.rows().len(), 1 + managers().len());
    assert_eq!(findings.curves[0].label(), "none");
    assert!(report::terminal::text(&findings).contains("ns per lock"));
}

#[test]
fn the_bank_adds_up_over_every_lock_manager() {
    let settings = tpcb::Settings {
        scale: Scale {
            branches: 2,
            accounts_a_branch: 100,
        },
        seed: 1,
        runs: Runs {
            mpls: vec![1, 16],
            ..tiny(Shape::usual()).runs
        },
    };
    let findings = tpcb::run(&settings, Audience::Nobody).expect("the settings are sound");
    assert_sound(&findings);
    assert!(findings.curves.iter().all(|curve| curve.points.len() == 2));
}
