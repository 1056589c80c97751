//! Every workload over every lock manager, tiny, with its checks: 1, 8 and 64 clients that run a few
//! transactions each, however long that takes. A new workload is a line in `workloads`.

use std::{sync::Mutex, thread};

use foxton::{Database, Durability, LockManagerKind};
use foxton_lab::{
    driver::Client,
    measure::outcome::{Outcome, Tally},
    progress::Audience,
    system::{Locks, System},
    workload::{
        contract::{Loaded, Workload},
        secondary::{self, Secondary},
        tatp::{self, Mix, Tatp},
        tpcb::{Scale, Tpcb},
    },
};

fn tatp(mix: Mix) -> Box<dyn Workload> {
    Box::new(Tatp::new(tatp::Shape {
        subscribers: 100,
        mix,
        ..tatp::Shape::usual()
    }))
}

fn secondary(scattered: bool) -> Box<dyn Workload> {
    Box::new(Secondary::new(secondary::Shape {
        subscribers: 100,
        size: 10,
        scattered,
        seed: 1,
    }))
}

fn tpcb() -> Box<dyn Workload> {
    let scale = Scale {
        branches: 2,
        accounts_a_branch: 50,
    };
    Box::new(Tpcb { scale, seed: 1 })
}

/// Those that differ in what they lock.
fn workloads() -> Vec<Box<dyn Workload>> {
    vec![tatp(Mix::Full), secondary(false), tpcb()]
}

/// The others, which differ in what is drawn.
fn variants() -> Vec<Box<dyn Workload>> {
    vec![
        tatp(Mix::Read),
        tatp(Mix::ReadUpdate),
        tatp(Mix::Single),
        secondary(true),
    ]
}

/// Clients, and transactions of each.
const POINTS: [(u32, u32); 3] = [(1, 40), (8, 10), (64, 2)];

fn systems() -> Vec<System> {
    let all = LockManagerKind::ALL.into_iter();
    let locks: Vec<Locks> = all
        .flat_map(|kind| [Locks::Manager(kind), Locks::Inheriting(kind)])
        .collect();
    System::all(&locks, &[])
}

/// A workload in a database in memory, and what all clients so far have reported.
struct Bench {
    db: Database,
    loaded: Box<dyn Loaded>,
    ended: Tally,
    clients: u32,
}

impl Bench {
    fn new(workload: &dyn Workload, system: &System) -> Bench {
        let mut options = system.options(Durability::None);
        workload.indexes(&mut options.indexes);
        let db = Database::in_memory(options).expect("memory is there");
        let progress = Audience::Nobody.count("", 0, "");
        let loaded = workload.load(&db, 2, &progress).expect("it loads");
        Bench {
            db,
            loaded,
            ended: Tally::new(workload.kinds()),
            clients: 0,
        }
    }

    /// Lets so many clients run so many transactions each, and notes how they ended.
    fn drive(&mut self, (mpl, transactions): (u32, u32)) {
        let first = self.clients;
        self.clients += mpl;
        let clients: Vec<Box<dyn Client>> = (first..self.clients)
            .map(|number| self.loaded.client(&self.db, number))
            .collect();
        let ended = Mutex::new(&mut self.ended);
        thread::scope(|scope| {
            for mut client in clients {
                let ended = &ended;
                scope.spawn(move || {
                    for _ in 0..transactions {
                        let one = client.transaction();
                        ended.lock().expect("counting does not panic").count(one);
                    }
                });
            }
        });
    }

    /// Everything is as it must be, and nothing ended but as planned or by a deadlock.
    fn assert_right(&mut self, what: &str) {
        assert_eq!(self.loaded.check(&self.db, &self.ended), Ok(()), "{what}");
        let odd = self.ended.of(Outcome::Error) + self.ended.of(Outcome::Timeout);
        assert_eq!(odd, 0, "{what}: {:?}", self.ended.failure);
    }
}

fn is_right(workload: &dyn Workload, system: &System) {
    let about = workload.about();
    let name = format!("{} {}, {system}", about.name, about.variant);
    let mut bench = Bench::new(workload, system);
    bench.assert_right(&format!("{name}, loaded"));
    for point in POINTS {
        bench.drive(point);
        bench.assert_right(&format!("{name}, {} clients", point.0));
    }
    assert!(bench.ended.committed() > 0, "{name}");
}

#[test]
fn every_workload_is_right_over_every_lock_manager() {
    for workload in workloads() {
        for system in systems() {
            is_right(&*workload, &system);
        }
    }
}

#[test]
fn every_variant_is_right_over_the_usual_lock_manager() {
    for workload in variants() {
        is_right(&*workload, &System::new(Locks::Default, None));
    }
}
