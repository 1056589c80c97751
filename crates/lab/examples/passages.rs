//! Cost of counting critical sections, and of leaving it out: ten locks and their release, or one
//! updating transaction of TATP, over and over by one thread.
//!
//! ```text
//! cargo run --release -p foxton-lab --example passages -- direct 100000
//! cargo run --release -p foxton-lab --example passages -- tatp 100000
//! cargo run --release -p foxton-lab --features account --example passages -- tatp 100000
//! ```
//!
//! The first argument is a lock manager, which locks ten keys, or `tatp`; the second is the number
//! of rounds. Prints nanoseconds for each. `cargo run --release -p foxton-tidy --bin uncounted`
//! compares several builds of it.

use std::{sync::Arc, time::Instant};

use foxton::device::MemoryDevice;
use foxton::{Database, Durability};
use foxton_lab::{
    bench::alone::Alone,
    driver::Client,
    measure::outcome::Outcome,
    progress::Audience,
    system::{Locks, System},
    workload::{
        contract::Workload,
        loading::Loading,
        tatp::{Mix, Shape, Tatp, client::TatpClient},
    },
};

/// Locks of a round: those of a transaction of txbench.
const LOCKS: usize = 10;
/// Before the measurement: caches are warm, and memory is allocated.
const WARM: u64 = 1_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = "give a kind and a number of rounds: direct 100000, bucket 100000 or tatp 100000";
    let [what, times] = words.as_slice() else {
        panic!("{usage}");
    };
    let times: u64 = times.parse().expect(usage);
    let nanos = match what.as_str() {
        "tatp" => transactions(times),
        manager => locks(&manager.parse().expect(usage), times),
    };
    println!("{nanos:.1}");
}

fn nanos(times: u64, mut run: impl FnMut()) -> f64 {
    (0..WARM).for_each(|_| run());
    let began = Instant::now();
    (0..times).for_each(|_| run());
    began.elapsed().as_nanos() as f64 / times.max(1) as f64
}

fn locks(manager: &Locks, times: u64) -> f64 {
    let system = System::new(*manager, None);
    let mut alone = Alone::new(system.manager(), LOCKS);
    nanos(times, || alone.round(LOCKS))
}

fn transactions(times: u64) -> f64 {
    let workload = Tatp::new(Shape {
        subscribers: 1_000,
        mix: Mix::UPDATE_LOCATION,
        ..Shape::usual()
    });
    let mut options = System::new(Locks::Default, None).options(Durability::None);
    workload.indexes(&mut options.indexes);
    let db = Database::open_on(Arc::new(MemoryDevice::new()), options).expect("it opens");
    let nobody = Audience::Nobody.count("", 0, "");
    let loading = Loading::new(&db, 1, &nobody);
    drop(workload.load(&loading).expect("it loads"));
    let shape = Arc::new(Shape {
        subscribers: 1_000,
        mix: Mix::UPDATE_LOCATION,
        ..Shape::usual()
    });
    let mut client = TatpClient::new(db, shape, 0);
    nanos(times, || {
        let ended = client.transaction();
        assert_eq!(ended.outcome, Outcome::Ok, "nobody is in the way");
    })
}
