//! The anomalies of the literature and of Hermitage, and more (`tests/cases`), run in every order
//! of their steps, at every level, with every lock manager. Where there are very many orders, a
//! random sample is run.
//!
//! At serializable every outcome is that of some serial order, and at snapshot that of some order
//! of snapshots and commits. An outcome that a case says must never happen is not seen from its
//! level on, and is seen at the next weaker one. A failure prints
//! the case, the level, the manager and the order, which replays it: whose step is next, step by
//! step.

use foxton::{Isolation, LockInheritance, LockManagerKind, Options, TableComponent};
use foxton_sim::case::{Case, Never, Outcome, Stage, count, each, is_isolated, sample};
use std::{collections::BTreeMap, fs, path::Path};

fn cases() -> BTreeMap<String, Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let named = files.map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let case = Case::parse(&fs::read_to_string(path).unwrap());
        let case = case.unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, case)
    });
    named.collect()
}

fn options(
    manager: LockManagerKind,
    inherit: LockInheritance,
    component: TableComponent,
) -> Options {
    let mut options = Options::tiny();
    (options.component, options.page_memory) = (component, 1 << 20);
    (options.lock_manager, options.lock_inheritance) = (manager, inherit);
    options
}

/// All levels.
const LEVELS: [Isolation; 5] = [
    Isolation::Serializable,
    Isolation::RepeatableRead,
    Isolation::ReadCommitted,
    Isolation::ReadUncommitted,
    Isolation::Snapshot,
];

/// The components that can be read at snapshots.
const AT_SNAPSHOTS: [TableComponent; 1] = [TableComponent::Resident];

/// Returns the components for a case at `level`.
fn components(case: &Case, level: Isolation) -> &'static [TableComponent] {
    match case.has_snapshots(level) {
        true => &AT_SNAPSHOTS,
        false => &TableComponent::ALL,
    }
}

/// True if `level` forbids what `never` says.
fn forbids(level: Isolation, never: &Never) -> bool {
    match level {
        Isolation::Snapshot => !never.is_of_snapshot,
        level => strength(level) >= strength(never.from),
    }
}

/// True if what `never` says has to be seen at `level`.
fn shows(level: Isolation, never: &Never) -> bool {
    match level {
        Isolation::Snapshot => never.is_of_snapshot,
        level => strength(level) + 1 == strength(never.from),
    }
}

/// Returns a number that is smaller for weaker levels.
fn strength(level: Isolation) -> usize {
    let weaker = Isolation::LOCKING.iter().rev();
    weaker.take_while(|&&other| other != level).count()
}

/// Runs `case` in all orders, or in `most` of them, with sessions that look at once when they are
/// woken or with sleepers. Returns how often each of its rules was broken.
fn play(
    case: &Case,
    (stage, asleep): (&Stage, bool),
    (most, seed): (u64, u64),
    wrong: impl Fn(&Outcome) -> Option<String>,
) -> Vec<u64> {
    let lengths = case.lengths();
    let mut seen = vec![0; case.never.len()];
    let mut take = |order: &[usize]| {
        let outcome = match asleep {
            false => stage.play(case, order),
            true => stage.play_asleep(case, order),
        };
        let outcome = outcome.unwrap_or_else(|stuck| panic!("{stuck}"));
        if let Some(what) = wrong(&outcome) {
            panic!("{what}, in the order {order:?}: {outcome:?}");
        }
        for (count, never) in seen.iter_mut().zip(&case.never) {
            *count += u64::from(never.is_seen(&outcome));
        }
    };
    match count(&lengths) <= most {
        true => each(&lengths, &mut take),
        false => sample(&lengths, most, seed, &mut take),
    }
    assert!(stage.is_idle(), "locks are left");
    seen
}

/// Runs every case at every level with every manager, in all orders or in `most`.
fn play_all(most: u64) {
    let (mut plays, mut rules) = (0, 0);
    for (name, case) in cases() {
        assert!(!case.never.is_empty(), "{name} has no rule");
        for level in LEVELS {
            let mut seen = vec![0; case.never.len()];
            for (manager, seed) in LockManagerKind::ALL.into_iter().zip(1..) {
                // Each manager plays each case on both, at levels that alternate.
                let components = components(&case, level);
                let component = components[(seed as usize + strength(level)) % components.len()];
                println!("{name} at {level} over {manager}, {component}");
                let inherit = LockInheritance::ALL[seed as usize % 3];
                let options = options(manager, inherit, component);
                let stage = Stage::new(&case, options, level).unwrap();
                let wrong = |outcome: &Outcome| {
                    let forbidden = case
                        .never
                        .iter()
                        .find(|never| forbids(level, never) && never.is_seen(outcome));
                    let is_wrong = !is_isolated(&case, outcome, level);
                    let forbidden = forbidden.map(|never| format!("{:?}", never.text));
                    forbidden.or(is_wrong.then(|| format!("no order at {level}")))
                };
                // Only this manager distinguishes sleeping waiters.
                let lends = manager == LockManagerKind::Direct;
                for asleep in [false, true].into_iter().take(1 + usize::from(lends)) {
                    let played = play(&case, (&stage, asleep), (most, seed), wrong);
                    for (sum, more) in seen.iter_mut().zip(played) {
                        *sum += more;
                    }
                    plays += count(&case.lengths()).min(most);
                }
            }
            for (never, seen) in case.never.iter().zip(seen) {
                if shows(level, never) {
                    assert!(
                        seen > 0,
                        "{name}: {level} allows {:?}, but it is not seen",
                        never.text
                    );
                    rules += 1;
                }
            }
        }
    }
    println!("{plays} runs; {rules} rules seen broken one level below their own");
}

#[test]
fn no_case_comes_about_where_it_must_not_and_each_does_one_level_below() {
    play_all(60);
}

#[test]
#[ignore = "takes minutes: cargo test --release -p foxton-sim --test it cases:: -- --ignored --nocapture"]
fn nor_in_twenty_thousand_orders_of_each() {
    play_all(20_000);
}

#[test]
fn a_case_that_is_none_is_refused_by_name() {
    for (text, word) in [
        ("T2 get 1", "T2 get 1"),
        ("T1 git 1", "git 1"),
        ("T1 get x", "\"x\" is no number"),
        ("never from sometimes: T1", "sometimes"),
        ("start 1", "is no row"),
        ("T1 scan 1-2", "is no range"),
        (
            "T1 get 1\nnever from serializable: T1.1 is 5",
            "is no question",
        ),
        ("level T1 sometimes", "sometimes"),
        ("handle 1", "is no transaction"),
    ] {
        let error = Case::parse(text).unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}
