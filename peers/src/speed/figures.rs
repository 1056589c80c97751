//! What was measured, as text and as JSON.

use super::{
    Plan,
    driver::Count,
    engines::{Durability, Engine},
};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command, time::Duration};

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) count: Count,
    pub(crate) took: Duration,
}

impl Run {
    fn rate(&self) -> f64 {
        self.count.committed as f64 / self.took.as_secs_f64()
    }
}

/// All measurements of one engine with so many clients, one for each pass.
struct Point {
    engine: Engine,
    updating: u64,
    clients: usize,
    runs: Vec<Run>,
}

/// The middle, the least and the greatest of some numbers.
#[derive(Debug, Clone, Copy)]
struct Spread {
    median: f64,
    least: f64,
    greatest: f64,
}

impl Spread {
    fn of(numbers: impl Iterator<Item = f64>) -> Spread {
        let mut numbers: Vec<f64> = numbers.collect();
        numbers.sort_by(f64::total_cmp);
        let middle = numbers.len() / 2;
        let low = middle - usize::from(numbers.len().is_multiple_of(2));
        Spread {
            median: (numbers[low] + numbers[middle]) / 2.0,
            least: numbers[0],
            greatest: numbers[numbers.len() - 1],
        }
    }
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
            println!("{:>16}: {settings}", engine.name());
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
        if engines.len() > 1 && engines.iter().any(|engine| engine.is_ours()) {
            rows.push(self.ratios(engines, updating));
        }
        rows
    }

    /// Ours over the best of the others, pass by pass.
    fn ratios(&self, engines: &[Engine], updating: u64) -> Vec<String> {
        let mut row = vec!["ours ÷ best other".to_owned()];
        for &clients in &self.plan.mpl {
            let here = |ours: bool| {
                self.points.iter().filter(move |point| {
                    (point.updating, point.clients) == (updating, clients)
                        && engines.contains(&point.engine)
                        && point.engine.is_ours() == ours
                })
            };
            let best = |ours: bool, pass: usize| {
                let rates = here(ours).map(|point| point.runs[pass].rate());
                rates.fold(0.0, f64::max)
            };
            let passes = 0..self.plan.passes as usize;
            let Spread {
                median,
                least,
                greatest,
            } = Spread::of(passes.map(|pass| best(true, pass) / best(false, pass)));
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

fn rate(
    Spread {
        median,
        least,
        greatest,
    }: Spread,
) -> String {
    format!(
        "{} ({} to {})",
        grouped(median),
        grouped(least),
        grouped(greatest)
    )
}

/// With a comma between thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let first = digits.len() % 3;
    let mut text = digits[..first].to_owned();
    for (n, three) in digits.as_bytes()[first..].chunks(3).enumerate() {
        if first > 0 || n > 0 {
            text.push(',');
        }
        text.extend(three.iter().map(|&digit| char::from(digit)));
    }
    text
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

fn print_aligned(rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    for (n, row) in rows.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let width = width(column);
            match column {
                0 => print!("| {cell:<width$} "),
                _ => print!("| {cell:>width$} "),
            }
        }
        println!("|");
        if n == 0 {
            print!("| {} ", "-".repeat(width(0)));
            (1..row.len()).for_each(|column| print!("| {}: ", "-".repeat(width(column) - 1)));
            println!("|");
        }
    }
}

/// The processor's name, and how many of it.
fn machine() -> String {
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = about
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let name = name
        .and_then(|rest| rest.split_once(':'))
        .map_or("processor", |(_, name)| name.trim());
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{count} × {name}, {} {}",
        std::env::consts::OS,
        std::env::consts::ARCH
    )
}

/// Of the repository around here, if there is one.
fn commit() -> String {
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    match text {
        Ok(text) if !text.is_empty() => text,
        _ => "unknown".to_owned(),
    }
}
