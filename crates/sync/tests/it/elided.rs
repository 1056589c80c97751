//! Latches that elide, on whatever machine this is. With the hardware the passes are transactions,
//! without it they take the latch, and the values do not show which. Scripted cases are in
//! `latch/elided/tests.rs`, many threads in `oversubscribed.rs`.

use foxton_sync::htm::{self, Elisions, NotAvailable};
use foxton_sync::latch::{BackendKind, Kind, Latched};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::{Worker, Workers};
use std::collections::VecDeque;
use std::process::Command;
use std::thread;
use std::time::Duration;

static SITE: Site = Site::new(Component::Latch, Pattern::Unbounded, "elided");

const ELIDED: [Kind; 5] = [
    Kind::ElidedHle,
    Kind::ElidedRtm,
    Kind::ElidedRetry100,
    Kind::ElidedCooldown,
    Kind::ElidedAdaptive,
];

#[test]
fn a_kind_elides_where_processor_or_software_transactions_are_available() {
    for kind in Kind::PLAIN {
        assert_eq!(kind.elides(), Ok(false));
    }
    for kind in ELIDED {
        let can = match kind {
            Kind::ElidedHle => htm::hle().map(|_| true),
            _ => BackendKind::available().map(|_| true),
        };
        assert_eq!(kind.elides(), can, "{kind}");
    }
    let means = BackendKind::available();
    let software = means == Ok(BackendKind::Software);
    assert_eq!(software, cfg!(feature = "emulated") && means.is_ok());
    if !software {
        assert_eq!(means.err(), htm::rtm().err());
    }
}

/// All tests here once more, in a process in which elision is switched off: the switch is read
/// once. With emulated transactions this is tested on any machine.
#[test]
fn switched_off_no_latch_elides_and_all_else_holds() {
    let switch = std::env::var_os(htm::SWITCH);
    let why = match switch.as_deref().map(|switch| switch.as_encoded_bytes()) {
        None | Some(b"on" | b"") => {
            for switch in ["off", "of"] {
                let program = std::env::current_exe().expect("this is a program");
                let told = Command::new(program)
                    .arg("elided::")
                    .env(htm::SWITCH, switch)
                    .output();
                let told = told.expect("it can be run again");
                let words = String::from_utf8_lossy(&told.stdout);
                assert!(told.status.success(), "{switch}: {words}");
                assert!(words.contains("switched_off"), "{switch}: {words}");
            }
            return;
        }
        Some(b"off") => NotAvailable::SwitchedOff,
        Some(_) => NotAvailable::SwitchNotUnderstood,
    };
    for kind in ELIDED {
        assert_eq!(kind.elides(), Err(why), "{kind}");
    }
    assert_eq!(BackendKind::available(), Err(why));
    assert_eq!(htm::rtm().err(), Some(why));
    assert_eq!(htm::hle().err(), Some(why));
}

/// A pass through another latch, in either order, and through the same: the inner pass sees the
/// outer as held.
#[test]
fn passes_inside_each_other_are_passes() {
    let workers = Workers::with_seed(1);
    let worker = workers.worker();
    for outer_kind in Kind::ALL {
        for inner_kind in Kind::ALL {
            let outer = Latched::new(outer_kind, &SITE, 0);
            let inner = Latched::new(inner_kind, &SITE, 0);
            for _ in 0..100 {
                outer.with(&worker, |outer_value| {
                    *outer_value += 1;
                    inner.with(&worker, |value| *value += 1);
                    assert_eq!(outer.try_with(&worker, |_| ()), None, "{outer_kind}");
                    assert!(inner.try_with(&worker, |value| *value += 1).is_some());
                });
            }
            assert_eq!((outer.into_inner(), inner.into_inner()), (100, 200));
        }
    }
}

/// Two workers of one thread: the second worker knows of no pass, and is let through no more than
/// the first. Its result is kept until the pass is over, because a failed assertion inside would
/// abort the pass and be undone.
#[test]
fn a_thread_inside_is_inside_for_all_its_workers() {
    const PASSES: usize = 20_000;
    for kind in ELIDED {
        let workers = Workers::with_seed(1);
        let (one, other) = (workers.worker(), workers.worker());
        let latched = Latched::new(kind, &SITE, 0);
        let mut let_through = 0;
        for pass in 0..PASSES {
            // Half of the passes alone, so that trials have something that commits.
            let twice = latched.with(&one, |value| {
                *value += 1;
                pass % 2 == 0 && latched.try_with(&other, |_| ()).is_some()
            });
            let_through += usize::from(twice);
        }
        assert_eq!((latched.into_inner(), let_through), (PASSES, 0), "{kind}");
    }
}

/// The latch is held, and a transaction around its end is foreign: the latch is released, and the
/// transaction continues.
#[test]
fn a_transaction_that_a_body_leaves_behind_is_not_ended_by_the_latch() {
    let Ok(rtm) = htm::rtm() else { return };
    for kind in Kind::ALL {
        let workers = Workers::with_seed(1);
        let worker = workers.worker();
        let latched = Latched::new(kind, &SITE, 0);
        let mut left = 0;
        for _ in 0..2_000 {
            let begun = latched.with(&worker, |value| {
                *value += 1;
                rtm.begin().ok()
            });
            if let Some(transaction) = begun {
                left += 1;
                transaction.commit();
            }
            assert!(latched.try_with(&worker, |_| ()).is_some(), "{kind}");
        }
        // Where the latch was elided, the foreign transaction is nested in the latch's own, which
        // it ends: so it is not left behind there.
        assert_eq!(latched.into_inner(), 2_000, "{kind}");
        if kind.elides() == Ok(false) || kind == Kind::ElidedAdaptive {
            assert!(left > 0, "{kind}");
        }
    }
}

/// Accounts behind one latch, on cache lines of their own, which threads seldom share.
#[test]
fn no_money_is_lost_in_a_bank_behind_one_latch() {
    const ACCOUNTS: usize = 64;
    const THREADS: usize = 4;
    const TRANSFERS: usize = 2_000;
    #[repr(align(128))]
    #[derive(Clone, Copy)]
    struct Account(i64);
    for kind in ELIDED {
        let workers = Workers::with_seed(1);
        let bank = Latched::new(kind, &SITE, vec![Account(1_000); ACCOUNTS]);
        let began = htm::ticks();
        let total = |accounts: &Vec<Account>| accounts.iter().map(|account| account.0).sum::<i64>();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                let (bank, worker) = (&bank, workers.worker());
                scope.spawn(move || {
                    for turn in 0..TRANSFERS {
                        let draw = |bound: usize| worker.random_below(bound as u64) as usize;
                        let (from, to) = (draw(ACCOUNTS), draw(ACCOUNTS));
                        let amount = draw(100) as i64;
                        bank.with(&worker, |accounts| {
                            accounts[from].0 -= amount;
                            accounts[to].0 += amount;
                        });
                        if turn % 64 == 0 {
                            let sum = bank.with(&worker, |accounts| total(accounts));
                            assert_eq!(sum, 1_000 * ACCOUNTS as i64, "{kind}");
                        }
                        if turn % 256 == 0 {
                            // Aborts a transaction, so that some passes take the latch beside the
                            // others.
                            bank.with(&worker, |_| thread::yield_now());
                        }
                    }
                });
            }
        });
        let spent = (htm::ticks() - began) * THREADS as u64;
        assert_eq!(total(&bank.into_inner()), 1_000 * ACCOUNTS as i64, "{kind}");
        check(kind, &workers.elisions());
        check_time(&workers.elisions(), spent);
    }
}

/// With the hardware, some passes were elided and some took the latch; otherwise nothing is
/// counted. Whether the adaptive latch tries depends on the order of arrivals, and while it does
/// not it counts nothing either.
fn check(kind: Kind, done: &Elisions) {
    let elides = kind.elides() == Ok(true);
    match kind {
        Kind::ElidedRtm | Kind::ElidedRetry100 | Kind::ElidedCooldown if elides => {
            assert!(done.committed > 0 && done.latched > 0, "{kind}: {done:?}");
            assert!(done.attempts() > done.committed, "{kind}: {done:?}");
        }
        Kind::ElidedAdaptive if elides => {}
        _ => assert_eq!(done, &Elisions::default(), "{kind}"),
    }
}

/// No worker spends more time in transactions than has passed, and none in transactions that did
/// not happen.
fn check_time(done: &Elisions, spent: u64) {
    let shares = done.shares_of_time(spent);
    if let Some((committed, aborted)) = shares {
        assert!(committed + aborted <= 1.0, "{shares:?}, {done:?}");
        assert_eq!(committed > 0.0, done.committed > 0, "{shares:?}, {done:?}");
    }
    let timed = cfg!(feature = "account") && spent > 0;
    assert_eq!(shares.is_some(), timed);
}

/// The adaptive latch does not elide until threads have waited for it, and then a trial begins.
#[test]
fn an_adaptive_latch_is_tried_where_threads_wait() {
    const WAITS: u64 = 16;
    const ROUNDS: u64 = 100 * WAITS;
    const PASSES: u64 = 100;
    let kind = Kind::ElidedAdaptive;
    let workers = Workers::with_seed(1);
    let worker = workers.worker();
    let latched = Latched::new(kind, &SITE, 0);
    let pass = || {
        for _ in 0..PASSES {
            latched.with(&worker, |value| *value += 1);
        }
    };
    pass();
    assert_eq!(workers.elisions(), Elisions::default());
    // The scheduler decides whether the second thread comes while the latch is held, so this runs
    // more often than necessary.
    let mut rounds = 0;
    let done = loop {
        rounds += 1;
        thread::scope(|scope| {
            latched.with(&worker, |_| {
                let (latched, worker) = (&latched, workers.worker());
                scope.spawn(move || latched.with(&worker, |value| *value += 1));
                thread::sleep(Duration::from_millis(2));
            });
        });
        pass();
        let done = workers.elisions();
        let is_tried = done.committed + done.latched >= PASSES;
        if is_tried || rounds == ROUNDS || (kind.elides().is_err() && rounds == WAITS) {
            break done;
        }
    };
    match kind.elides() {
        Ok(_) => assert!(done.committed + done.latched >= PASSES, "{done:?}"),
        Err(_) => assert_eq!(done, Elisions::default()),
    }
    assert_eq!(latched.into_inner(), PASSES * (1 + rounds) + rounds);
}

/// Memory that is allocated and freed inside, and a list as long as its count says.
#[test]
fn a_body_may_allocate() {
    for kind in ELIDED {
        let workers = Workers::with_seed(1);
        let list = Latched::new(kind, &SITE, VecDeque::new());
        let pass = |worker: &Worker| {
            for turn in 0..2_000_u64 {
                list.with(worker, |list| list.push_back(Box::new(turn)));
                if turn % 2 == 1 {
                    assert!(list.with(worker, |list| list.pop_front()).is_some());
                }
            }
        };
        thread::scope(|scope| {
            for worker in [workers.worker(), workers.worker()] {
                let pass = &pass;
                scope.spawn(move || pass(&worker));
            }
        });
        assert_eq!(list.into_inner().len(), 2_000, "{kind}");
    }
}
