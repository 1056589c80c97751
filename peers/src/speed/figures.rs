//! Results, as text and as JSON.

use super::{
    Plan,
    engines::{Durability, Engine},
};
use crate::{
    driver::Count,
    told::{Run, Spread, commit, machine, print_aligned, rate},
};
use serde_json::{Value, json};
use std::path::Path;

/// All measurements of one engine with so many clients, one for each pass.
struct Point {
    engine: Engine,
    updating: u64,
    clients: usize,
    runs: Vec<Run>,
}

impl Point {
    fn spread(&self) -> Spread {
        Spread::of(self.runs.iter().map(Run::rate))
    }

    fn sum(&self, of: impl Fn(&Count) -> u64) -> u64 {
        self.runs.iter().map(|run| of(&run.count)).sum()
    }
}

/// All that was measured, and with what.
pub(crate) struct Figures {
    plan: Plan,
    folder: String,
    settings: Vec<(Engine, String)>,
    machine: String,
    commit: String,
    points: Vec<Point>,
}

impl Figures {
    pub(crate) fn new(plan: &Plan, folder: &Path, engines: &[Engine]) -> Figures {
        let settings = |&engine: &Engine| (engine, engine.settings(plan.durability));
        Figures {
            plan: plan.clone(),
            folder: folder.display().to_string(),
            settings: engines.iter().map(settings).collect(),
            machine: machine(),
            commit: commit(),
            points: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, engine: Engine, updating: u64, clients: usize, run: Run) {
        let same = |point: &&mut Point| {
            (point.engine, point.updating, point.clients) == (engine, updating, clients)
        };
        match self.points.iter_mut().find(same) {
            Some(point) => point.runs.push(run),
            None => self.points.push(Point {
                engine,
                updating,
                clients,
                runs: vec![run],
            }),
        }
    }

    pub(crate) fn print_settings(&self) {
        let Plan {
            passes,
            seconds,
            warm,
            seed,
            durability,
            ..
        } = &self.plan;
        println!("{}", self.machine);
        println!(
            "commit {}; {passes} passes of {seconds} s after {warm} s, seed {seed}; durability {}; files in {}",
            self.commit,
            durability.name(),
            self.folder
        );
        for (engine, settings) in &self.settings {
            println!("{:>18}: {settings}", engine.name());
        }
        println!();
    }

    /// A table for each mix and kind of engine, in Markdown.
    pub(crate) fn print(&self) {
        for locks in [false, true] {
            let engines: Vec<Engine> = self.settings.iter().map(|&(engine, _)| engine).collect();
            let engines: Vec<Engine> = engines
                .into_iter()
                .filter(|engine| engine.is_locks() == locks)
                .collect();
            for &updating in self.plan.updating.iter().filter(|_| !engines.is_empty()) {
                println!("{}\n", title(updating, locks, self.plan.durability));
                print_aligned(&self.rows(&engines, updating));
                println!();
            }
        }
    }

    fn rows(&self, engines: &[Engine], updating: u64) -> Vec<Vec<String>> {
        let clients = |mpl: &usize| match mpl {
            1 => "1 client".to_owned(),
            more => format!("{more} clients"),
        };
        let mut rows = vec![vec!["engine".to_owned()]];
        rows[0].extend(self.plan.mpl.iter().map(clients));
        rows[0].push("refused per 1,000".to_owned());
        for &engine in engines {
            let points = self.points.iter();
            let points: Vec<&Point> = points
                .filter(|point| (point.engine, point.updating) == (engine, updating))
                .collect();
            let mut row = vec![format!("`{}`", engine.name())];
            row.extend(points.iter().map(|point| rate(point.spread())));
            row.push(refusals(&points));
            rows.push(row);
        }
        if engines.iter().any(|engine| !engine.is_ours()) {
            let ours = engines.iter().filter(|engine| engine.is_ours());
            rows.extend(ours.map(|&own| self.ratios(own, engines, updating)));
        }
        rows
    }

    /// One of ours over the best of the others, pass by pass.
    fn ratios(&self, own: Engine, engines: &[Engine], updating: u64) -> Vec<String> {
        let mut row = vec![format!("`{}` ÷ best other", own.name())];
        for &clients in &self.plan.mpl {
            let best = |of: &dyn Fn(Engine) -> bool, pass: usize| {
                let here = self.points.iter().filter(|point| {
                    (point.updating, point.clients) == (updating, clients) && of(point.engine)
                });
                here.map(|point| point.runs[pass].rate())
                    .fold(0.0, f64::max)
            };
            let other = |engine: Engine| engines.contains(&engine) && !engine.is_ours();
            let passes = 0..self.plan.passes as usize;
            let ratio = |pass| best(&|engine| engine == own, pass) / best(&other, pass);
            let Spread {
                median,
                least,
                greatest,
            } = Spread::of(passes.map(ratio));
            row.push(format!("{median:.2} ({least:.2} to {greatest:.2})"));
        }
        row.push(String::new());
        row
    }

    /// Everything, one object for each point.
    pub(crate) fn json(&self) -> String {
        let settings: serde_json::Map<String, Value> = self
            .settings
            .iter()
            .map(|(engine, settings)| (engine.name().to_owned(), settings.as_str().into()))
            .collect();
        let points: Vec<Value> = self.points.iter().map(point_json).collect();
        let all = json!({
            "run": "peers-speed",
            "machine": self.machine,
            "commit": self.commit,
            "folder": self.folder,
            "durability": self.plan.durability.name(),
            "passes": self.plan.passes,
            "measured_s": self.plan.seconds,
            "warm_s": self.plan.warm,
            "seed": self.plan.seed,
            "settings": settings,
            "points": points,
        });
        format!("{all:#}\n")
    }
}

fn point_json(point: &Point) -> Value {
    let Spread {
        median,
        least,
        greatest,
    } = point.spread();
    json!({
        "engine": point.engine.name(),
        "updating_percent": point.updating,
        "clients": point.clients,
        "median_per_s": median,
        "least_per_s": least,
        "greatest_per_s": greatest,
        "per_s": point.runs.iter().map(Run::rate).collect::<Vec<f64>>(),
        "committed": point.sum(|count| count.committed),
        "refused": point.sum(|count| count.refused),
    })
}

fn title(updating: u64, locks: bool, durability: Durability) -> String {
    let what = match (updating, locks) {
        (0, false) => "10 reads".to_owned(),
        (0, true) => "Locks alone: 1 intention and 10 shared".to_owned(),
        (share, false) => format!("10 reads, and {share} % of the transactions update two rows"),
        (share, true) => format!("Locks alone: the same, and {share} % take two exclusive ones"),
    };
    match locks {
        true => format!("{what}; transactions/s, median (least to greatest)"),
        false => format!(
            "{what}; durability {}; transactions/s, median (least to greatest)",
            durability.name()
        ),
    }
}

/// Attempts that gave way for 1,000 transactions, at the number of clients where they were most.
fn refusals(points: &[&Point]) -> String {
    let share = |point: &&Point| {
        1_000.0 * point.sum(|count| count.refused) as f64
            / point.sum(|count| count.committed).max(1) as f64
    };
    let most = points.iter().map(share).fold(0.0, f64::max);
    match most {
        0.0 => "0".to_owned(),
        most => format!("{most:.2}"),
    }
}
