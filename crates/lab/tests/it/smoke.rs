//! Everything, tiny: each variant of txbench over each lock manager and latch, with the checks of
//! the workload. The tests show no numbers, but that all of it runs, ends, and is right.

use std::{sync::mpsc, thread, time::Duration};

use foxton::{Admission, Durability, Isolation, LatchKind, Lock, LockManagerKind, TableComponent};
use foxton_lab::{
    bench::{
        commit,
        error::BenchError,
        loaded::{Load, Loaded},
        lock_cost, lock_only,
        runs::Runs,
        sweep::Subject,
        txbench::{self, Settings},
        workload,
    },
    driver::Client,
    measure::{
        curve::{Curve, Point},
        outcome::{Outcome, Tally},
    },
    progress::Audience,
    report,
    report::findings::Findings,
    system::{Locks, System},
    workload::{
        tpcb::{Choice, Scale, Tpcb},
        txbench::{Shape, TABLES},
    },
};

fn managers() -> Vec<Locks> {
    let all = LockManagerKind::ALL.into_iter();
    all.flat_map(|kind| [Locks::Manager(kind), Locks::Inheriting(kind)])
        .collect()
}

/// Every manager without admission control; and the default database with its own admission, and
/// with two slots, and with paged tables of which a fifth fits into memory.
fn systems() -> Vec<System> {
    let usual = System::all(&[Locks::Default], &[]);
    let two: Admission = "2".parse().expect("a number of slots");
    let limited = System::with_admissions(usual.clone(), &[two]);
    let paged = System::with_tables(usual.clone(), &[TableComponent::Paged], Some(2 << 20));
    let mut systems = System::all(&managers(), &[]);
    systems.extend(usual);
    systems.extend(limited);
    systems.extend(paged);
    systems
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
            systems: systems(),
            mpls: vec![4],
            reps: 1,
            ramp: Duration::from_millis(5),
            window: Duration::from_millis(40),
            durability: Durability::Buffered,
            directory: None,
            observe: None,
            split: false,
            keep: false,
            command: String::new(),
        },
        plant: false,
    }
}

/// Runs it for this long; if the machine is so busy that nothing was committed, again and longer.
fn long_enough(window: Duration, run: impl Fn(Duration) -> Findings) -> Findings {
    let findings = run(window);
    // A curve that failed has nothing in it, however long it runs.
    let whole = findings
        .curves
        .iter()
        .filter(|curve| curve.failure().is_none());
    match whole.flat_map(|curve| &curve.points).any(idle) && window < Duration::from_secs(10) {
        true => long_enough(window * 8, run),
        false => findings,
    }
}

fn run(settings: &Settings) -> Findings {
    long_enough(settings.runs.window, |window| {
        let mut settings = settings.clone();
        settings.runs.window = window;
        txbench::run(&settings, Audience::Nobody).expect("the settings are sound")
    })
}

/// True if nothing was committed.
fn idle(point: &Point) -> bool {
    point.tally().committed() == 0
}

/// Every check held, and no wait timed out.
fn assert_right(findings: &Findings) {
    assert_eq!(findings.failure(), None, "{}", findings.variant);
    for point in findings.curves.iter().flat_map(|curve| &curve.points) {
        let timeouts = point.tally().of(Outcome::Timeout);
        assert_eq!(timeouts, 0, "{}", findings.variant);
    }
}

fn assert_sound(findings: &Findings) {
    assert_right(findings);
    let mut points = findings.curves.iter().flat_map(|curve| &curve.points);
    assert!(!points.any(idle), "{}", findings.variant);
}

/// Every combination; without updates there is no order of them.
fn every_shape() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for size in [10, 100] {
        for hotspot in [false, true] {
            for (updates, unordered) in
                [(0, false), (20, false), (20, true), (25, false), (25, true)]
            {
                shapes.push(Shape {
                    size,
                    updates,
                    hotspot,
                    unordered,
                    rows: 2_000,
                    ..Shape::usual()
                });
            }
        }
    }
    shapes
}

#[test]
fn every_variant_is_right_over_every_lock_manager() {
    let shapes = every_shape();
    // Loaded once, so that the time goes into transactions.
    let mut runs = tiny(Shape::usual()).runs;
    (runs.ramp, runs.window) = (Duration::from_millis(2), Duration::from_millis(12));
    let all = txbench::variants(&shapes, true, &runs, Audience::Nobody).expect("they are sound");
    assert_eq!(all.len(), shapes.len());
    for (findings, shape) in all.into_iter().zip(shapes) {
        assert_right(&findings);
        // If the machine is so busy that nothing was committed, once more alone.
        let idle = |curve: &Curve| curve.points.iter().any(idle);
        assert_eq!(findings.curves.len(), systems().len());
        let again = findings.curves.iter().zip(systems());
        let again = again.filter(|(curve, _)| idle(curve));
        let again: Vec<System> = again.map(|(_, system)| system).collect();
        if !again.is_empty() {
            let mut settings = tiny(shape);
            settings.runs.systems = again;
            assert_sound(&run(&settings));
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
        &LatchKind::PLAIN,
    );
    settings.runs.mpls = vec![64];
    // Clients that queue for a latch while most of them are descheduled take their time.
    settings.runs.window = Duration::from_millis(400);
    assert_sound(&run(&settings));
}

/// Runs this many clients with this many transactions each.
fn round(loaded: &mut Loaded, mpl: u32, each: u32) -> Tally {
    let (kinds, clients) = (loaded.kinds(), loaded.clients(mpl));
    let mut all = Tally::new(kinds);
    thread::scope(|scope| {
        let run = |mut client: Box<dyn Client>| {
            scope.spawn(move || {
                let mut tally = Tally::new(kinds);
                (0..each).for_each(|_| tally.count(client.transaction()));
                tally
            })
        };
        let running: Vec<_> = clients.into_iter().map(run).collect();
        for client in running {
            all.add(&client.join().expect("clients do not panic"));
        }
    });
    all
}

#[test]
fn every_read_is_right_over_every_lock_manager_with_1_8_and_64_clients() {
    // Read; updated in the order of keys; and in any order where all want the same.
    let variant = |updates, hotspot| Shape {
        rows: 2_000,
        updates,
        hotspot,
        unordered: hotspot,
        ..Shape::usual()
    };
    let shapes = [variant(0, false), variant(20, false), variant(25, true)];
    for system in systems() {
        let mut loaded = loaded_over(system, &shapes[0]);
        for shape in &shapes {
            loaded.reshape(shape);
            for (mpl, each) in [(1, 64), (8, 8), (64, 2)] {
                let what = format!(
                    "{:?}, {} % update, {mpl} clients",
                    loaded.names(),
                    shape.updates
                );
                let all = round(&mut loaded, mpl, each);
                assert_eq!(all.committed(), u64::from(mpl * each), "{what}: {all:?}");
                assert_eq!(loaded.check(), Ok(()), "{what}");
            }
        }
    }
}

fn loaded(shape: &Shape) -> Loaded {
    loaded_over(System::new(Locks::Default, None), shape)
}

fn loaded_over(system: System, shape: &Shape) -> Loaded {
    let load = Load {
        shape,
        durability: Durability::Buffered,
        stamp: true,
        plant: false,
        directory: None,
        runs: None,
    };
    Loaded::new(system, &load, Audience::Nobody).expect("it is loaded")
}

#[test]
fn two_transactions_deadlock_when_rows_are_updated_in_any_order_and_both_commit_in_the_end() {
    let mut loaded = loaded(&Shape {
        rows: 2_000,
        size: 100,
        updates: 100,
        hotspot: true,
        unordered: true,
        ..Shape::usual()
    });
    // Twenty rows of a hundred each: two clients conflict before long, however threads are
    // scheduled. For a machine that runs one after the other there are so many rounds that it
    // cannot do so in all of them.
    let (mut deadlocks, mut rounds) = (0, 0);
    while deadlocks == 0 && rounds < 10_000 {
        let tally = round(&mut loaded, 4, 25);
        assert_eq!((tally.failure.as_deref(), tally.committed()), (None, 100));
        deadlocks += tally.of(Outcome::Deadlock);
        rounds += 1;
    }
    assert!(deadlocks > 0, "none in {rounds} rounds");
    assert_eq!(loaded.check(), Ok(()));
}

#[test]
fn transactions_are_kept_apart_as_far_as_is_said() {
    for isolation in Isolation::LOCKING {
        let mut loaded = loaded(&Shape {
            rows: 2_000,
            size: 100,
            updates: 50,
            isolation,
            ..Shape::usual()
        });
        let tally = round(&mut loaded, 4, 25);
        assert_eq!((tally.failure.as_deref(), tally.committed()), (None, 100));
        assert_eq!(loaded.check(), Ok(()), "{isolation}");
    }
    // A reader of uncommitted data waits for no lock, although every row is locked.
    let mut loaded = loaded(&Shape {
        rows: 2_000,
        isolation: Isolation::ReadUncommitted,
        ..Shape::usual()
    });
    let mut other = loaded.database().begin().expect("it begins");
    for table in &TABLES {
        let all = other.range(table, ..).locked(Lock::Exclusive).count();
        assert_eq!(all.expect("nobody is in the way"), 2_000);
    }
    let (done, receiver) = mpsc::channel();
    let mut client = loaded.clients(1).remove(0);
    // Not joined, because a waiting thread would not end before the other one does.
    thread::spawn(move || done.send(client.transaction().outcome));
    let outcome = receiver.recv_timeout(Duration::from_secs(120));
    assert_eq!(outcome, Ok(Outcome::Ok));
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
fn every_kind_of_commit_is_measured_and_says_how_many_share_a_sync() {
    let settings = commit::Settings {
        compared: commit::Variant::usual(&Durability::ALL),
        runs: Runs {
            mpls: vec![1, 16],
            systems: System::all(&[Locks::Default], &[]),
            ..tiny(Shape::usual()).runs
        },
    };
    let findings = long_enough(settings.runs.window, |window| {
        let mut settings = settings.clone();
        settings.runs.window = window;
        commit::run(&settings, Audience::Nobody).expect("the settings are sound")
    });
    assert_sound(&findings);
    let labels: Vec<String> = findings.curves.iter().map(|curve| curve.label()).collect();
    assert_eq!(labels[0], "sync, own rows");
    for note in ["sync, one row", "sync, one row, locks held"] {
        let curve = labels.iter().position(|label| label == note).expect(note);
        let per_sync = &findings.curves[curve].facts[0].1;
        assert!(per_sync[1].as_f64().is_some(), "{note}: nothing was synced");
    }
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
            split: false,
            keep: false,
            command: String::new(),
        },
    };
    let findings = long_enough(settings.runs.window, |window| {
        let mut settings = settings.clone();
        settings.runs.window = window;
        lock_only::run(&settings, Audience::Nobody).expect("the settings are sound")
    });
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
    // Each is loaded again, with ten thousand requests for every lock: a few are enough.
    let few = ["global", "bucket+inherit", "staged", "sharded", "direct"];
    let few = few.map(|name| name.parse::<Locks>().expect("it is built"));
    let settings = lock_cost::Settings {
        systems: System::all(&few, &[]),
        mpls: vec![1, 2],
        window: Duration::from_millis(40),
        reps: 1,
        rows: 2_000,
        instructions: None,
        directory: None,
        command: String::new(),
    };
    let findings = long_enough(settings.window, |window| {
        let settings = lock_cost::Settings {
            window,
            ..settings.clone()
        };
        lock_cost::run(&settings, Audience::Nobody).expect("the settings are sound")
    });
    assert_sound(&findings);
    let rows: Vec<usize> = findings
        .blocks
        .iter()
        .map(|block| block.table.rows().len())
        .collect();
    assert_eq!(rows, [2 * (1 + few.len()), few.len(), few.len()]);
    assert_eq!(findings.curves[0].label(), "none");
    assert!(report::terminal::text(&findings).contains("÷ none"));
}

#[test]
fn the_bank_adds_up_over_every_lock_manager() {
    let bank = Tpcb {
        scale: Scale {
            branches: 2,
            accounts_a_branch: 100,
        },
        choice: Choice::Remote,
        seed: 1,
    };
    let runs = Runs {
        mpls: vec![1, 16],
        ..tiny(Shape::usual()).runs
    };
    let findings = long_enough(runs.window, |window| {
        let runs = Runs {
            window,
            ..runs.clone()
        };
        workload::run(&bank, &runs, Audience::Nobody).expect("the settings are sound")
    });
    assert_sound(&findings);
    assert!(findings.curves.iter().all(|curve| curve.points.len() == 2));
}
