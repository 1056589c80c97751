//! Each workload, tiny, over every lock manager without admission control, and over the default
//! database, there also with two slots; with 1, 8 and 64 clients. Everything it runs ends, and its
//! checks hold afterwards. Each client runs a fixed number of transactions, so that the speed of
//! the machine does not matter.

use std::{thread, time::Duration};

use foxton::{Admission, Database, Durability, Isolation, LockManagerKind, LogBufferKind};
use foxton_lab::{
    measure::outcome::{Outcome, Tally},
    progress::Audience,
    system::{Locks, System},
    workload::{
        contract::Workload,
        loading::Loading,
        private_insert::PrivateInsert,
        secondary::{self, Secondary},
        smallbank::Smallbank,
        sysbench::{Sysbench, choice::Choice},
        tatp::{self, Tatp},
        tpcb::{self, Scale, Tpcb},
        transfers::Transfers,
        wisconsin::{Wisconsin, mix::Mix as Shares},
        ycsb::{Ycsb, mix::Mix},
    },
};

const MPLS: [u32; 3] = [1, 8, 64];
/// Longer than any wait that ends with a wake-up.
const FOR_EVER: Duration = Duration::from_secs(600);

fn systems() -> Vec<System> {
    let all = LockManagerKind::ALL.into_iter();
    let all = all.flat_map(|kind| [Locks::Manager(kind), Locks::Inheriting(kind)]);
    let mut systems = System::all(&all.collect::<Vec<_>>(), &[]);
    let usual = System::all(&[Locks::Default], &[]);
    // So few that nearly all of 64 clients are queued.
    let two: Admission = "2".parse().expect("a number of slots");
    systems.extend(System::with_admissions(usual.clone(), &[two]));
    systems.extend(usual);
    systems
}

/// Loads `workload`, runs `mpl` clients with some transactions each, and checks; twice, so that
/// clients find the data of earlier ones. Returns the outcomes.
fn run(workload: &dyn Workload, system: &System, mpl: u32) -> Tally {
    let what = format!("{}, {system}, {mpl} clients", workload.about().title);
    let mut options = system.options(Durability::Buffered);
    options.lock_wait = FOR_EVER;
    workload.indexes(&mut options.indexes);
    let db = Database::in_memory(options).expect("it is opened");
    let nobody = Audience::Nobody.count("", 0, "");
    let mut loaded = workload
        .load(&Loading::new(&db, 2, &nobody))
        .expect("it is loaded");
    let mut all = Tally::new(workload.kinds());
    let each = transactions(mpl);
    for round in 0..2 {
        let clients: Vec<_> = (round * mpl..(round + 1) * mpl)
            .map(|number| loaded.client(&db, number))
            .collect();
        thread::scope(|scope| {
            let run = |mut client: Box<dyn foxton_lab::driver::Client>| {
                scope.spawn(move || {
                    let mut tally = Tally::new(workload.kinds());
                    for _ in 0..each {
                        tally.count(client.transaction());
                    }
                    tally
                })
            };
            let running: Vec<_> = clients.into_iter().map(run).collect();
            for client in running {
                all.add(&client.join().expect("clients do not panic"));
            }
        });
        assert_eq!(loaded.check(&db, &all), Ok(()), "{what}");
    }
    assert_eq!(all.failure, None, "{what}");
    assert_eq!(all.of(Outcome::Timeout), 0, "{what}");
    all
}

/// The same, for workloads that run a victim of a deadlock again: every transaction ends as it
/// should.
fn run_to_the_end(workload: &dyn Workload, system: &System, mpl: u32) {
    let all = run(workload, system, mpl);
    let ended = all.committed() + all.of(Outcome::Rule);
    assert_eq!(ended, u64::from(2 * mpl * transactions(mpl)), "{all:?}");
}

/// Number of transactions of each of `mpl` clients in one run.
fn transactions(mpl: u32) -> u32 {
    (64 / mpl).max(2)
}

/// Runs one workload after another over every lock manager and number of clients.
fn over_everything<W: Workload>(workloads: &[W]) {
    each_in_turn(workloads, run_to_the_end);
}

fn each_in_turn<W: Workload>(workloads: &[W], run: impl Fn(&dyn Workload, &System, u32)) {
    for (at, system) in systems().iter().enumerate() {
        for (turn, mpl) in MPLS.into_iter().enumerate() {
            run(&workloads[(at + turn) % workloads.len()], system, mpl);
        }
    }
}

fn ycsb(mix: Mix) -> Ycsb {
    Ycsb {
        mix,
        records: 200,
        operations: 1,
        seed: 1,
    }
}

#[test]
fn workloads_are_right_over_every_log_buffer() {
    let bank = Tpcb {
        scale: Scale {
            branches: 2,
            accounts_a_branch: 50,
        },
        choice: tpcb::Choice::Remote,
        seed: 1,
    };
    let rows = Sysbench {
        rows: 300,
        choice: Choice::Pareto,
        isolation: Isolation::Serializable,
        log_k: true,
        seed: 1,
    };
    let inserts = PrivateInsert {
        rows: 20,
        batch: 8,
        seed: 1,
    };
    let all: [&dyn Workload; 4] = [&bank, &rows, &inserts, &ycsb(Mix::A)];
    let some = [Locks::Default, Locks::Manager(LockManagerKind::Bucket)];
    for system in System::with_log_buffers(System::all(&some, &[]), &LogBufferKind::DELEGATED) {
        for workload in all {
            for mpl in MPLS {
                run_to_the_end(workload, &system, mpl);
            }
        }
    }
}

#[test]
fn ycsb_is_right_over_every_lock_manager() {
    for mix in Mix::ALL {
        over_everything(&[ycsb(mix)]);
    }
}

#[test]
fn ycsb_is_right_with_several_operations_in_a_transaction() {
    let batches = Mix::ALL.map(|mix| Ycsb {
        operations: 4,
        ..ycsb(mix)
    });
    over_everything(&batches);
}

#[test]
fn smallbank_is_right_over_every_lock_manager() {
    let bank = |customers, hotspot| Smallbank {
        customers,
        hotspot,
        seed: 1,
    };
    over_everything(&[bank(4, false), bank(150, true)]);
}

#[test]
fn wisconsin_is_right_over_every_lock_manager() {
    let relation = |shares: &str| Wisconsin {
        rows: 200,
        mix: shares.parse::<Shares>().expect("they come to 100"),
        seed: 1,
    };
    over_everything(&["20,20,20,20,20", "0,5,5,0,90"].map(relation));
}

#[test]
fn transfers_and_audits_are_right_over_every_lock_manager() {
    let bank = |accounts, reads| Transfers {
        accounts,
        reads,
        seed: 1,
    };
    over_everything(&[bank(4, 0), bank(100, 50), bank(1, 20)]);
}

#[test]
fn sysbench_is_right_over_every_lock_manager_at_every_level() {
    let mut variants = Vec::new();
    for isolation in Isolation::LOCKING {
        for choice in Choice::ALL {
            variants.push(Sysbench {
                rows: 300,
                choice,
                isolation,
                log_k: true,
                seed: 1,
            });
        }
    }
    over_everything(&variants);
}

#[test]
fn private_insert_is_right_over_every_lock_manager() {
    over_everything(&[PrivateInsert {
        rows: 20,
        batch: 8,
        seed: 1,
    }]);
}

#[test]
fn tpcb_is_right_over_every_lock_manager() {
    let bank = |choice, branches, accounts_a_branch| Tpcb {
        scale: Scale {
            branches,
            accounts_a_branch,
        },
        choice,
        seed: 1,
    };
    let mut banks = vec![bank(tpcb::Choice::Remote, 1, 20)];
    banks.extend(tpcb::Choice::ALL.map(|choice| bank(choice, 2, 50)));
    over_everything(&banks);
}

#[test]
fn tatp_is_right_over_every_lock_manager() {
    let all: Vec<Tatp> = tatp::Mix::all()
        .map(|mix| {
            Tatp::new(tatp::Shape {
                subscribers: 100,
                mix,
                ..tatp::Shape::usual()
            })
        })
        .collect();
    // A victim of a deadlock is not run again.
    each_in_turn(&all[..1], |workload, system, mpl| {
        run(workload, system, mpl);
    });
    each_in_turn(&all, |workload, system, mpl| {
        run(workload, system, mpl);
    });
}

#[test]
fn secondary_is_right_over_every_lock_manager() {
    let all = [false, true].map(|scattered| {
        Secondary::new(secondary::Shape {
            subscribers: 100,
            size: 10,
            scattered,
            seed: 1,
        })
    });
    over_everything(&all);
}
