//! The same transactions on other engines, and how many a second.
//!
//! Passes are interleaved: in each pass every engine is opened in a folder of its own, loaded, and
//! run with each number of clients, for each mix; and the next pass begins with another engine.
//! After the last number of clients the increments in its table are held against those that were
//! committed.

/// Contract of an engine, and its rows.
pub(crate) mod contract;

/// Requests of a client.
mod asked;

/// The engines.
pub(crate) mod engines;

/// Results, as text and as JSON.
mod figures;

use crate::{
    Outcome, arguments,
    driver::{self, Draw, Load},
    rows::mix,
    told::Run,
};
use asked::Asked;
use clap::Args;
use contract::{Store, increments};
pub(crate) use engines::Durability;
use engines::Engine;
use figures::Figures;
use indicatif::{ProgressBar, ProgressStyle};
use std::{fs, path::PathBuf, time::Duration};

/// Engines and workloads to measure.
#[derive(Debug, Clone, Args)]
pub(crate) struct Plan {
    /// Only these engines, by name; all that are built in if none is named.
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Numbers of clients.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,512", value_parser = arguments::clients)]
    mpl: Vec<usize>,
    /// Percentages of transactions that update.
    #[arg(long, value_delimiter = ',', default_value = "0,20", value_parser = clap::value_parser!(u64).range(0..=100))]
    updating: Vec<u64>,
    /// Durability of a commit.
    #[arg(long, value_enum, default_value = "none")]
    durability: Durability,
    /// How often everything is measured.
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u64).range(1..))]
    passes: u64,
    /// How long each number of clients is measured, in seconds.
    #[arg(long, default_value = "1", value_parser = arguments::seconds)]
    seconds: f64,
    /// How long clients run before that, in seconds.
    #[arg(long, default_value = "0.2")]
    warm: f64,
    /// Seed of the random choices.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Where the databases lie [/dev/shm if there is one and nothing is synced, else the system's
    /// temporary folder].
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Where the figures go as JSON.
    #[arg(long, default_value = "results/peers-speed/results.json")]
    results: PathBuf,
}

impl Plan {
    fn engines(&self) -> Outcome<Vec<Engine>> {
        if self.engines.is_empty() {
            return Ok(Engine::ALL.to_vec());
        }
        let named = |name: &String| {
            let found = Engine::ALL.iter().find(|engine| engine.name() == name);
            found.copied().ok_or_else(|| {
                let names: Vec<_> = Engine::ALL.iter().map(|engine| engine.name()).collect();
                format!("no engine is called {name}; there are {}", names.join(", ")).into()
            })
        };
        self.engines.iter().map(named).collect()
    }

    fn folder(&self) -> PathBuf {
        arguments::folder(self.folder.as_deref(), self.durability == Durability::Sync)
    }

    fn load(&self, clients: usize, pass: u64) -> Outcome<Load> {
        Ok(Load {
            clients,
            warm: Duration::try_from_secs_f64(self.warm)?,
            measured: Duration::try_from_secs_f64(self.seconds)?,
            seed: mix(self.seed ^ mix(pass)),
        })
    }
}

/// Measures, prints and writes.
pub(crate) fn run(plan: &Plan) -> Outcome {
    let (engines, folder) = (plan.engines()?, plan.folder());
    for engine in Engine::MISSING {
        println!("{engine}: not built in; peers/install.sh, then --features native");
    }
    arguments::more_files()?;
    let mut figures = Figures::new(plan, &folder, &engines);
    figures.print_settings();
    let steps = plan.passes * (plan.updating.len() * plan.mpl.len() * engines.len()) as u64;
    let bar = ProgressBar::new(steps).with_style(ProgressStyle::with_template(
        "{msg:32} {wide_bar} {pos} of {len}, {eta} left",
    )?);
    for pass in 0..plan.passes {
        for &updating in &plan.updating {
            let mut order = engines.clone();
            order.rotate_left(pass as usize % engines.len());
            for engine in order {
                measure(plan, engine, updating, pass, &bar, &mut figures)
                    .map_err(|error| format!("{}: {error}", engine.name()))?;
            }
        }
    }
    bar.finish_and_clear();
    figures.print();
    if let Some(folder) = plan.results.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&plan.results, figures.json())?;
    println!("{}", plan.results.display());
    Ok(())
}

/// One engine, from the empty folder to the comparison of increments.
fn measure(
    plan: &Plan,
    engine: Engine,
    updating: u64,
    pass: u64,
    bar: &ProgressBar,
    figures: &mut Figures,
) -> Outcome {
    bar.set_message(format!("{}, loading", engine.name()));
    let place = tempfile::Builder::new()
        .prefix("foxton-peers-")
        .tempdir_in(plan.folder())?;
    let store = engine.open(place.path(), plan.durability)?;
    let loads: Result<Vec<Load>, _> = plan
        .mpl
        .iter()
        .map(|&clients| plan.load(clients, pass))
        .collect();
    sweep(store.as_ref(), updating, &loads?, &mut |load, run| {
        figures.add(engine, updating, load.clients, run);
        bar.set_message(format!("{}, {} clients", engine.name(), load.clients));
        bar.inc(1);
    })
}

/// Runs `loads` on a store fresh from loading, and holds the increments in it against those
/// committed.
fn sweep(
    store: &dyn Store,
    updating: u64,
    loads: &[Load],
    add: &mut dyn FnMut(&Load, Run),
) -> Outcome {
    let mut committed = 0;
    for load in loads {
        let (count, took) = driver::run(load, &|client| {
            let draw = Draw::new(load.seed, client);
            Ok(Box::new(Asked::new(store.client()?, draw, updating)))
        })?;
        committed += count.changes;
        add(load, Run { count, took });
    }
    match increments(store)? {
        found if found == committed => Ok(()),
        found => {
            let what = format!("{committed} increments were committed, but {found} are there");
            Err(what.into())
        }
    }
}

#[cfg(test)]
mod tests {
    //! Every engine keeps what it commits, and who does not is found.

    use super::{
        contract::{Attempt, Client, Job, Row, counter, increment, row},
        *,
    };
    use std::sync::Mutex;

    const LOAD: Load = Load {
        clients: 4,
        warm: Duration::from_millis(10),
        measured: Duration::from_millis(100),
        seed: 1,
    };

    #[test]
    fn every_engine_keeps_what_it_commits() {
        for &engine in Engine::ALL {
            let place = tempfile::tempdir().unwrap();
            let store = engine.open(place.path(), Durability::None).unwrap();
            let loads = [1, 64].map(|clients| Load { clients, ..LOAD });
            sweep(store.as_ref(), 50, &loads, &mut |_, _| {})
                .unwrap_or_else(|error| panic!("{}: {error}", engine.name()));
        }
    }

    /// Rows behind a mutex, with or without a fault.
    struct Plain {
        rows: Mutex<Vec<Row>>,
        fault: Fault,
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        None,
        LosesEveryHundredth,
        ReadsNothing,
    }

    impl Store for Plain {
        fn client(&self) -> Outcome<Box<dyn Client + '_>> {
            Ok(Box::new(Turn(self)))
        }

        fn each(&self, see: &mut dyn FnMut(u64, &[u8])) -> Outcome {
            let rows = self.rows.lock().unwrap();
            (0..).zip(rows.iter()).for_each(|(key, row)| see(key, row));
            Ok(())
        }
    }

    struct Turn<'p>(&'p Plain);

    impl Client for Turn<'_> {
        fn attempt(&mut self, job: &Job) -> Outcome<Attempt> {
            let mut rows = self.0.rows.lock().unwrap();
            for &key in job.updates.iter().flatten() {
                if self.0.fault != Fault::LosesEveryHundredth || key % 100 > 0 {
                    increment(&mut rows[key as usize]);
                }
            }
            Ok(Attempt::Committed(match self.0.fault {
                Fault::ReadsNothing => 0,
                _ => job.marks(),
            }))
        }
    }

    fn swept(fault: Fault) -> Result<u64, String> {
        let rows = Mutex::new((0..contract::ROWS).map(row).collect());
        let store = Plain { rows, fault };
        let swept = sweep(&store, 50, &[LOAD, LOAD], &mut |_, _| {});
        swept.map_err(|error| error.to_string())?;
        let rows = store.rows.into_inner().unwrap();
        Ok(rows.iter().map(|row| counter(row)).sum())
    }

    #[test]
    fn an_engine_that_loses_increments_or_does_not_read_is_refused() {
        assert!(swept(Fault::None).unwrap() > 0);
        assert!(
            swept(Fault::LosesEveryHundredth)
                .unwrap_err()
                .contains("increments")
        );
        assert!(
            swept(Fault::ReadsNothing)
                .unwrap_err()
                .contains("read something else")
        );
    }
}
