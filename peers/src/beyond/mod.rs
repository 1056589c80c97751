//! Point reads and updates of data four times as large as memory, here and on LMDB.
//!
//! Both databases are loaded first. Then ballast leaves as much memory as an engine may have, a
//! quarter of the data and what is spared for the rest of the system. In each pass both engines are
//! opened with cold files, in turn, and the next pass begins with the other one. A transaction
//! reads one row, or reads it and adds one to its counter. At the end the counters of all rows must
//! equal the committed increments.

/// Memory that is taken.
mod ballast;

/// The engines.
mod store;

use crate::{
    Outcome, arguments,
    driver::{self, Draw, Load, Worker},
    rows::mix,
    speed::contract::ROW_BYTES,
    told::{Run, Spread, commit, machine, print_aligned, rate},
};
use ballast::Ballast;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use store::{BeyondEngine, BeyondStore, forget};

/// Settings of the measurement.
#[derive(Debug, Clone, Args)]
pub(crate) struct Plan {
    /// MiB of rows; each engine has a quarter of that as memory.
    #[arg(long, default_value = "4096", value_parser = clap::value_parser!(u64).range(16..))]
    data: u64,
    /// Numbers of clients.
    #[arg(long, value_delimiter = ',', default_value = "8,64,512", value_parser = arguments::clients)]
    mpl: Vec<usize>,
    /// Percentages of transactions that update.
    #[arg(long, value_delimiter = ',', default_value = "0,50", value_parser = clap::value_parser!(u64).range(0..=100))]
    updating: Vec<u64>,
    /// How often everything is measured.
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u64).range(1..))]
    passes: u64,
    /// How long each number of clients is measured, in seconds.
    #[arg(long, default_value = "10", value_parser = arguments::seconds)]
    seconds: f64,
    /// How long clients run before that, in seconds.
    #[arg(long, default_value = "5")]
    warm: f64,
    /// Seed of the random choices.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Where the databases lie, on the device to be measured: twice the data.
    #[arg(long)]
    folder: PathBuf,
    /// A file system of memory, for the ballast.
    #[arg(long, default_value = "/dev/shm")]
    ballast: PathBuf,
    /// MiB that are left to the system beside an engine's memory.
    #[arg(long, default_value = "512")]
    spare: u64,
    /// Takes no ballast, so that the page cache is not bounded and the numbers mean nothing: to try
    /// the command.
    #[arg(long)]
    no_ballast: bool,
    /// Where the figures go as JSON.
    #[arg(long, default_value = "results/peers-beyond/results.json")]
    results: PathBuf,
}

impl Plan {
    fn rows(&self) -> u64 {
        (self.data << 20) / (ROW_BYTES as u64 + 8)
    }

    fn memory(&self) -> u64 {
        (self.data << 20) / 4
    }

    fn engines(&self) -> [BeyondEngine; 2] {
        let page_memory = self.memory() as usize;
        [BeyondEngine::Foxton { page_memory }, BeyondEngine::Lmdb]
    }
}

/// One engine with so many clients: a run of each pass.
struct Point {
    engine: BeyondEngine,
    updating: u64,
    clients: usize,
    rates: Vec<f64>,
}

/// Measures, prints and writes.
pub(crate) fn run(plan: &Plan) -> Outcome {
    arguments::more_files()?;
    let place = tempfile::Builder::new()
        .prefix("foxton-peers-")
        .tempdir_in(&plan.folder)?;
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(
        "{msg:40} {wide_bar} {pos} of {len}, {eta} left",
    )?);
    // Refused before an hour of loading.
    let needed = plan.memory() + (plan.spare << 20);
    if !plan.no_ballast {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        ballast::check(&text, needed)?;
    }
    let folder = |engine: BeyondEngine| place.path().join(engine.name());
    for engine in plan.engines() {
        bar.set_length(plan.rows());
        bar.set_message(format!("{}, loading rows", engine.name()));
        fs::create_dir(folder(engine))?;
        let store = engine.open(&folder(engine))?;
        store.fill(plan.rows(), &mut |rows| bar.set_position(rows))?;
    }
    let ballast = match plan.no_ballast {
        true => None,
        false => {
            bar.set_message("taking ballast, MiB");
            bar.set_length((ballast::free()?.saturating_sub(needed)) >> 20);
            let mut progress = |bytes| bar.set_position(bytes >> 20);
            Some(Ballast::leaving(&plan.ballast, needed, &mut progress)?)
        }
    };
    let steps = plan.passes * (2 * plan.updating.len() * plan.mpl.len()) as u64;
    bar.set_length(steps);
    bar.set_position(0);
    let (mut points, mut committed) = (Vec::new(), [0; 2]);
    for pass in 0..plan.passes {
        for &updating in &plan.updating {
            for turn in 0..2 {
                let which = (pass as usize + turn) % 2;
                let engine = plan.engines()[which];
                let sweep = Sweep {
                    plan,
                    engine,
                    updating,
                    pass,
                    bar: &bar,
                };
                let added = sweep.run(&folder(engine), &mut points);
                committed[which] += added.map_err(|error| format!("{}: {error}", engine.name()))?;
            }
        }
    }
    let taken = ballast.as_ref().map_or(0, |ballast| ballast.bytes);
    drop(ballast);
    for (engine, committed) in plan.engines().into_iter().zip(committed) {
        bar.set_message(format!("{}, checking", engine.name()));
        let found = engine.open(&folder(engine))?.increments(plan.rows())?;
        if found != committed {
            let what = format!("{committed} increments were committed, but {found} are there");
            return Err(format!("{}: {what}", engine.name()).into());
        }
    }
    bar.finish_and_clear();
    report(plan, &points, taken)
}

struct Sweep<'p> {
    plan: &'p Plan,
    engine: BeyondEngine,
    updating: u64,
    pass: u64,
    bar: &'p ProgressBar,
}

impl Sweep<'_> {
    /// Runs every number of clients on one engine, and returns the increments committed.
    fn run(&self, folder: &Path, points: &mut Vec<Point>) -> Outcome<u64> {
        let (plan, mut committed) = (self.plan, 0);
        forget(folder)?;
        let store = self.engine.open(folder)?;
        for &clients in &plan.mpl {
            let name = self.engine.name();
            let message = format!("{name}, {} % update, {clients} clients", self.updating);
            self.bar.set_message(message);
            let load = Load {
                clients,
                warm: Duration::try_from_secs_f64(plan.warm)?,
                measured: Duration::try_from_secs_f64(plan.seconds)?,
                seed: mix(plan.seed ^ mix(self.pass ^ (clients as u64) << 20)),
            };
            let (count, took) = driver::run(&load, &|client| {
                Ok(Box::new(Toucher {
                    store: &store,
                    draw: Draw::new(load.seed, client),
                    updating: self.updating,
                    rows: plan.rows(),
                    next: (0, false),
                }))
            })?;
            committed += count.changes;
            let same = |point: &&mut Point| {
                (point.engine, point.updating, point.clients)
                    == (self.engine, self.updating, clients)
            };
            let rate = Run { count, took }.rate();
            match points.iter_mut().find(same) {
                Some(point) => point.rates.push(rate),
                None => points.push(Point {
                    engine: self.engine,
                    updating: self.updating,
                    clients,
                    rates: vec![rate],
                }),
            }
            self.bar.inc(1);
        }
        Ok(committed)
    }
}

/// A client.
struct Toucher<'s> {
    store: &'s BeyondStore,
    draw: Draw,
    updating: u64,
    rows: u64,
    next: (u64, bool),
}

impl Worker for Toucher<'_> {
    fn draw(&mut self) {
        let updates = self.draw.below(100) < self.updating;
        self.next = (self.draw.below(self.rows), updates);
    }

    fn attempt(&mut self) -> Outcome<Option<u64>> {
        let (key, updates) = self.next;
        match self.store.touch(key, updates)? {
            Some(mark) if mark == mix(key) => Ok(Some(u64::from(updates))),
            Some(_) => Err(format!("row {key} is not what was loaded").into()),
            None => Ok(None),
        }
    }
}

/// Prints a table with a ratio for each point, and writes all numbers.
fn report(plan: &Plan, points: &[Point], ballast: u64) -> Outcome {
    println!("{}; commit {}", machine(), commit());
    println!(
        "{} rows of {ROW_BYTES} bytes; {} MiB for each engine and {} MiB beside; {} MiB of \
         ballast; one row a transaction; durability buffered\n",
        plan.rows(),
        plan.memory() >> 20,
        plan.spare,
        ballast >> 20
    );
    let heads = ["updates, clients", "foxton", "lmdb", "foxton ÷ lmdb"];
    let mut table = vec![heads.map(str::to_owned).to_vec()];
    let mut values = Vec::new();
    let ours = points
        .iter()
        .filter(|point| point.engine != BeyondEngine::Lmdb);
    for own in ours {
        let other = points.iter().find(|point| {
            (point.engine, point.updating, point.clients)
                == (BeyondEngine::Lmdb, own.updating, own.clients)
        });
        let Some(other) = other else { continue };
        let pairs = own.rates.iter().zip(&other.rates);
        let ratio = Spread::of(pairs.map(|(own, other)| own / other));
        let [mine, theirs] = [own, other].map(|point| Spread::of(point.rates.iter().copied()));
        let row = format!("{} %, {} clients", own.updating, own.clients);
        table.push(vec![
            row.clone(),
            rate(mine),
            rate(theirs),
            format!(
                "{:.2} ({:.2} to {:.2})",
                ratio.median, ratio.least, ratio.greatest
            ),
        ]);
        for (series, unit, spread) in [
            ("foxton", "1/s", mine),
            ("lmdb", "1/s", theirs),
            ("foxton ÷ lmdb", "ratio", ratio),
        ] {
            values.push(json!({
                "row": row, "series": series, "unit": unit, "value": spread.median,
                "low": spread.least, "high": spread.greatest, "passes": own.rates.len(),
            }));
        }
    }
    print_aligned(&table);
    if ballast == 0 {
        println!(
            "\nWithout ballast the page cache was not bounded, so these numbers mean nothing."
        );
    }
    let all = json!({
        "id": "peers-beyond-memory",
        "command": std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        "machine": machine(),
        "commit": commit(),
        "data_mib": plan.data,
        "memory_mib": plan.memory() >> 20,
        "spare_mib": plan.spare,
        "ballast_mib": ballast >> 20,
        "values": Value::Array(values),
    });
    if let Some(folder) = plan.results.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&plan.results, format!("{all:#}\n"))?;
    println!("\n{}", plan.results.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_engines_keep_every_increment_and_are_compared() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results.json");
        let plan = Plan {
            data: 16,
            mpl: vec![1, 4],
            updating: vec![0, 50],
            passes: 2,
            seconds: 0.2,
            warm: 0.05,
            seed: 1,
            folder: folder.path().to_owned(),
            ballast: "/dev/shm".into(),
            spare: 1,
            no_ballast: true,
            results: results.clone(),
        };
        run(&plan).unwrap();
        let all: Value = serde_json::from_str(&fs::read_to_string(results).unwrap()).unwrap();
        let values = all["values"].as_array().unwrap();
        assert_eq!(values.len(), 3 * 4);
        assert!(values.iter().all(|value| value["low"].as_f64() > Some(0.0)));
        assert!(values.iter().all(|value| value["passes"] == 2));
    }
}
