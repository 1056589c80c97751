//! Workloads that use no snapshot, while another thread takes one short snapshot after the other.
//!
//! * *beside snapshots ÷ without*: throughput, by workload and clients.
//!
//! A snapshot is taken each millisecond and ends at once. So versions are kept all the time, and
//! the thread itself uses hardly any processor time.

use std::{thread, time::Duration};

use foxton::{Database, Isolation};
use foxton_sync::shim::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::{Settings, client::Mixture, place::LoadedRows};
use crate::{
    bench::{
        error::BenchError,
        measured::{Measured, RATIO},
        rows::KINDS,
        runs::Runs,
        sweep::Subject,
        workload::Prepared,
    },
    driver::Client,
    progress::{Audience, Progress},
    system::System,
    workload::{
        tatp::{Shape, Tatp},
        tpcb::{Choice, Scale, Tpcb},
    },
};

/// Ten rows a transaction; a fifth of them update two.
const MIXTURE: Mixture = Mixture {
    level: Isolation::Serializable,
    reads: 10,
    updates: 20,
    writes: 2,
    drawn: 0,
    is_labelled: false,
};

const BRANCHES: u32 = 100;

/// Time between two snapshots.
const PAUSE: Duration = Duration::from_millis(1);

pub(super) fn run(settings: &Settings, audience: Audience) -> Result<Measured, BenchError> {
    let mut measured = Measured::new(
        "snapshot-beside",
        "Workloads beside short snapshots",
        "What do short snapshots of others cost programs that take none?",
        &settings.command,
    );
    let system = &settings.systems()[0];
    let rows = u32::try_from(settings.rows).unwrap_or(u32::MAX);
    let tatp = Tatp::new(Shape {
        subscribers: rows,
        seed: settings.seed,
        ..Shape::usual()
    });
    let tpcb = Tpcb {
        scale: Scale {
            branches: BRANCHES,
            accounts_a_branch: (rows / BRANCHES).max(1),
        },
        choice: Choice::Remote,
        seed: settings.seed,
    };
    let runs = runs(settings, system);
    let load = |workload| Prepared::new(workload, system, &runs, audience);
    let mut subjects = [
        ("TATP", Place::Workload(load(&tatp)?)),
        ("TPC-B", Place::Workload(load(&tpcb)?)),
        (
            "ten rows, 20 % update two",
            Place::Rows(LoadedRows::new(settings, system, settings.rows, audience)?),
        ),
    ];
    let count = 2 * settings.passes * settings.mpls.len() as u32 * subjects.len() as u32;
    let progress = audience.clock("measuring", settings.times().whole() * count);
    for pass in 0..settings.passes {
        for &mpl in &settings.mpls {
            for (name, subject) in &mut subjects {
                progress.now(&format!(
                    "{name}, {mpl} clients, pass {} of {}",
                    pass + 1,
                    settings.passes
                ));
                // Each begins half of the passes.
                let order = [pass % 2 != 0, pass % 2 == 0];
                let mut rates = [0.0; 2];
                for is_beside in order {
                    let rate = subject.rate(settings, (mpl, is_beside), &progress)?;
                    rates[usize::from(is_beside)] = rate;
                }
                let row = match mpl {
                    1 => format!("{name}, 1 client"),
                    more => format!("{name}, {more} clients"),
                };
                measured.add(&row, "without", "transactions/s", rates[0]);
                measured.add(&row, "beside snapshots", "transactions/s", rates[1]);
                let series = "beside snapshots ÷ without";
                measured.add(&row, series, RATIO, rates[1] / rates[0].max(1e-9));
            }
        }
    }
    drop(progress);
    measured.notes.push(format!(
        "{rows} subscribers, accounts or rows; a snapshot each {} ms; {} s after {} s; durability {}. \
         After each run the data were as the committed transactions left them.",
        PAUSE.as_millis(),
        settings.window.as_secs_f64(),
        settings.ramp.as_secs_f64(),
        settings.durability,
    ));
    Ok(measured)
}

fn runs(settings: &Settings, system: &System) -> Runs {
    Runs {
        systems: vec![system.clone()],
        mpls: settings.mpls.clone(),
        reps: settings.passes,
        ramp: settings.ramp,
        window: settings.window,
        durability: settings.durability,
        directory: settings.directory.clone(),
        observe: None,
        split: false,
        keep: false,
        command: String::new(),
    }
}

/// A loaded workload.
enum Place<'w> {
    Workload(Prepared<'w>),
    Rows(LoadedRows),
}

impl Place<'_> {
    /// Returns transactions a second with so many clients, beside snapshots or without.
    fn rate(
        &mut self,
        settings: &Settings,
        (mpl, is_beside): (u32, bool),
        progress: &Progress,
    ) -> Result<f64, BenchError> {
        let clients = self.clients(mpl, progress)?;
        let kinds = self.kinds();
        let db = self.database().clone();
        let (is_over, taken) = (AtomicBool::new(false), AtomicU64::new(0));
        let observed = thread::scope(|scope| {
            let running = is_beside.then(|| scope.spawn(|| take(&db, &is_over, &taken)));
            let observed = settings
                .times()
                .observe(kinds, clients, &|| Vec::new(), progress);
            is_over.store(true, Relaxed);
            let panicked = |_| Err(BenchError::Failed("the taker of snapshots panicked".into()));
            running.map_or(Ok(()), |running| running.join().unwrap_or_else(panicked))?;
            observed
        })?;
        if is_beside && taken.load(Relaxed) == 0 {
            return Err(BenchError::Failed("no snapshot was taken".into()));
        }
        self.check()?;
        Ok(observed.run.tps())
    }

    fn kinds(&self) -> &'static [&'static str] {
        match self {
            Place::Workload(prepared) => prepared.kinds(),
            Place::Rows(_) => KINDS,
        }
    }

    fn clients(
        &mut self,
        mpl: u32,
        progress: &Progress,
    ) -> Result<Vec<Box<dyn Client>>, BenchError> {
        match self {
            Place::Workload(prepared) => {
                prepared.prepare(progress).map_err(BenchError::Failed)?;
                Ok(prepared.clients(mpl))
            }
            Place::Rows(rows) => {
                let drawn = rows.rows.count;
                Ok(rows.clients(mpl, Mixture { drawn, ..MIXTURE }))
            }
        }
    }

    fn database(&self) -> &Database {
        match self {
            Place::Workload(prepared) => prepared.database(),
            Place::Rows(rows) => rows.db(),
        }
    }

    fn check(&mut self) -> Result<(), BenchError> {
        match self {
            Place::Workload(prepared) => prepared.check().map_err(BenchError::Failed),
            Place::Rows(rows) => rows.check(),
        }
    }
}

/// Takes snapshots until it is over.
fn take(db: &Database, is_over: &AtomicBool, taken: &AtomicU64) -> Result<(), BenchError> {
    while !is_over.load(Relaxed) {
        let snapshot = db.snapshot();
        drop(snapshot.map_err(BenchError::engine("taking a snapshot"))?);
        taken.fetch_add(1, Relaxed);
        thread::sleep(PAUSE);
    }
    Ok(())
}
