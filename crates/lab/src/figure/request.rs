//! Settings of a figure: quick or as in the document, and what differs from either.

use std::{path::PathBuf, time::Duration};

use foxton::{Durability, Isolation, SnapshotMethod, TableComponent};
use serde_json::{Value, json};

use crate::{
    bench::runs::Runs,
    system::{Locks, System},
    workload::txbench::Shape,
};

/// Settings of a figure.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// With the windows and repetitions of the document.
    pub full: bool,
    /// Shorter than the quick form: each figure keeps to its share of a budget
    /// ([`BRIEF`](super::BRIEF)).
    pub brief: bool,
    /// The systems to compare; if empty, everything that is built.
    pub systems: Vec<System>,
    /// Numbers of clients; if empty, the figure's own.
    pub mpls: Vec<u32>,
    /// Time of each measurement, unless it is the figure's own.
    pub window: Option<Duration>,
    /// Time before each measurement, unless it is the figure's own.
    pub ramp: Option<Duration>,
    /// Times each point is measured, unless the figure's own.
    pub reps: Option<u32>,
    /// Rows of each table, unless the figure's own.
    pub rows: Option<u32>,
    /// Components of the tables to compare, in the figures of document 003; if empty, tables in
    /// memory.
    pub tables: Vec<TableComponent>,
    /// Bytes of memory for the pages of paged tables, unless the engine's default.
    pub page_memory: Option<usize>,
    /// Directory for the databases; if `None`, the system's directory for temporary files.
    pub directory: Option<PathBuf>,
    /// This program, to be started for measurements from outside; `None` for none.
    pub program: Option<PathBuf>,
    /// The command that repeats the figure.
    pub command: String,
}

/// Systems that a figure compares unless the request has some, in the order of the tables.
const WANTED: [&str; 8] = [
    "global",
    "bucket",
    "bucket+inherit",
    "staged",
    "staged:paper",
    "sharded",
    "sharded:fifo",
    "direct",
];

/// The same in the brief form: each manager once, in its default form.
const BRIEF_WANTED: [&str; 6] = [
    "global",
    "bucket",
    "bucket+inherit",
    "staged",
    "sharded",
    "direct",
];

/// The points of the document's sweeps, and the few of the quick form.
const FULL_MPLS: [u32; 13] = [1, 2, 4, 8, 16, 32, 64, 128, 200, 256, 300, 400, 500];
const QUICK_MPLS: [u32; 6] = [1, 2, 4, 32, 200, 500];
/// The fewer points of the brief form, and the time of all its windows.
const BRIEF_MPLS: [u32; 4] = [1, 2, 32, 500];
const BRIEF_BUDGET: Duration = Duration::from_secs(60);
/// Time of all windows of a quick form.
const QUICK_BUDGET: Duration = Duration::from_secs(130);
const QUICK_RAMP: Duration = Duration::from_millis(150);
const BRIEF_RAMP: Duration = Duration::from_millis(100);
const QUICK_REPS: u32 = 3;
/// Document 000, section 5.1.2: a minute of ramp, a minute measured, five times.
const FULL_WINDOW: Duration = Duration::from_secs(60);
const FULL_REPS: u32 = 5;

/// The systems to compare, and those that are wanted but not built.
#[derive(Debug, Clone)]
pub(super) struct Chosen {
    pub(super) systems: Vec<System>,
    pub(super) missing: Vec<&'static str>,
}

impl Request {
    /// Returns the systems to compare: those of the request, or all that are built.
    pub(super) fn chosen(&self) -> Chosen {
        match self.brief {
            true => self.chosen_of(&BRIEF_WANTED, false),
            false => self.chosen_of(&WANTED, true),
        }
    }

    /// The same and the default, which is `direct` with admission control.
    pub(super) fn chosen_and_default(&self) -> Chosen {
        let mut chosen = self.chosen();
        if self.systems.is_empty() {
            chosen.systems.push(System::new(Locks::Default, None));
        }
        chosen
    }

    /// Systems whose reads are at snapshots, by each method, to stand beside those of a figure.
    /// There are none in the brief form, or if the request has systems.
    pub(super) fn snapshots(&self) -> Vec<System> {
        if self.brief || !self.systems.is_empty() {
            return Vec::new();
        }
        let default = vec![System::new(Locks::Default, None)];
        let systems = System::with_isolations(default, &[Isolation::Snapshot]);
        System::with_snapshot_methods(systems, &SnapshotMethod::ALL)
    }

    /// [`chosen`](Self::chosen) and `direct:table`, the form of document 003.
    pub(super) fn chosen_and_by_table(&self) -> Chosen {
        let mut chosen = self.chosen();
        if self.systems.is_empty() {
            let by_table = Locks::Manager(foxton::LockManagerKind::DirectTable);
            chosen.systems.push(System::new(by_table, None));
        }
        chosen
    }

    /// The systems to compare unless the request has some: these, and with `and_others` every other
    /// manager in its default form.
    pub(super) fn chosen_of(&self, wanted: &[&'static str], and_others: bool) -> Chosen {
        if !self.systems.is_empty() {
            return Chosen {
                systems: self.systems.clone(),
                missing: Vec::new(),
            };
        }
        let (mut locks, mut missing) = (Vec::new(), Vec::new());
        for &name in wanted {
            match name.parse::<Locks>() {
                Ok(found) => locks.push(found),
                Err(_) => missing.push(name),
            }
        }
        if and_others {
            let known = locks.clone();
            let others = Locks::usual().into_iter();
            locks.extend(others.filter(|other| !known.contains(other)));
        }
        Chosen {
            systems: System::all(&locks, &[]),
            missing,
        }
    }

    /// Each of `systems` with its tables in each component of the request.
    pub(super) fn in_tables(&self, systems: Vec<System>) -> Vec<System> {
        System::with_tables(systems, &self.tables, self.page_memory)
    }

    /// The components, as settings for results.
    pub(super) fn listed_tables(&self) -> Vec<(&'static str, Value)> {
        let systems = self.in_tables(vec![System::without_locking()]);
        let names = systems.iter().map(System::listed);
        let names: Vec<String> = names
            .filter_map(|listed| listed[0].1.as_str().map(str::to_owned))
            .collect();
        let paged = systems.iter().find(|system| system.is_paged());
        vec![
            ("tables", json!(names.join(","))),
            ("page_memory", json!(paged.map(System::page_memory))),
        ]
    }

    /// The sweep, if `panels` of them share the time of a quick form.
    pub(super) fn sweep(&self, systems: Vec<System>, panels: u32) -> Runs {
        let mpls = match (self.mpls.as_slice(), self.full) {
            ([], true) => FULL_MPLS.to_vec(),
            ([], false) if self.brief => BRIEF_MPLS.to_vec(),
            ([], false) => QUICK_MPLS.to_vec(),
            (some, _) => some.to_vec(),
        };
        let reps = self
            .reps
            .unwrap_or(if self.full { FULL_REPS } else { QUICK_REPS });
        let (budget, quick_ramp) = match self.brief {
            true => (BRIEF_BUDGET, BRIEF_RAMP),
            false => (QUICK_BUDGET, QUICK_RAMP),
        };
        let ramp = self.ramp.unwrap_or(match self.full {
            true => FULL_WINDOW,
            false => quick_ramp,
        });
        let points = (systems.len() * mpls.len()) as u32 * reps * panels;
        let share = (budget / points.max(1)).saturating_sub(ramp);
        let window = self.window.unwrap_or(match self.full {
            true => FULL_WINDOW,
            false => share.clamp(Duration::from_millis(250), Duration::from_secs(2)),
        });
        Runs {
            systems,
            mpls,
            reps,
            ramp,
            window,
            durability: Durability::Buffered,
            directory: self.directory.clone(),
            observe: None,
            split: false,
            keep: false,
            command: self.command.clone(),
        }
    }

    /// Time of each of many measurements: that of the request, or these milliseconds in the brief
    /// form, the quick and the full one.
    pub(super) fn each(&self, [brief, quick, full]: [u64; 3]) -> Duration {
        let usual = match (self.full, self.brief) {
            (true, _) => full,
            (false, true) => brief,
            (false, false) => quick,
        };
        self.window.unwrap_or(Duration::from_millis(usual))
    }

    /// The variant of txbench that reads this many rows, with this percentage of updates.
    pub(super) fn shape(&self, size: u32, updates: u32) -> Shape {
        let usual = Shape::usual();
        Shape {
            rows: self.rows.unwrap_or(usual.rows),
            size,
            updates,
            ..usual
        }
    }

    /// The name of the form.
    pub(super) fn form(&self) -> &'static str {
        match (self.full, self.brief) {
            (true, _) => "full",
            (false, true) => "brief",
            (false, false) => "quick",
        }
    }

    /// The settings for results.
    pub(super) fn listed(&self, runs: &Runs) -> Vec<(&'static str, Value)> {
        let mut listed = vec![
            ("form", json!(self.form())),
            ("rows", json!(self.shape(10, 0).rows)),
            ("isolation", json!("serializable")),
        ];
        listed.extend(runs.listed());
        listed
    }
}

impl Chosen {
    /// The lock managers alone, without the default, which is one of them with admission control.
    pub(super) fn managers(&self) -> Vec<System> {
        let default = System::new(Locks::Default, None);
        let managers = self.systems.iter();
        managers
            .filter(|&system| *system != default)
            .cloned()
            .collect()
    }

    /// Notes for the reader about systems that are not built.
    pub(super) fn notes(&self) -> Vec<String> {
        match self.missing.as_slice() {
            [] => Vec::new(),
            some => vec![format!("Not built: {}.", some.join(", "))],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_stands_beside_the_managers_unless_the_request_has_systems() {
        for brief in [false, true] {
            let request = Request {
                brief,
                ..Request::default()
            };
            let chosen = request.chosen_and_default();
            let default = System::new(Locks::Default, None);
            assert_eq!(chosen.systems.last(), Some(&default));
            // Where managers stand alone, the default would be `direct` again.
            assert_eq!(chosen.managers(), request.chosen().systems);
            let asked = Request {
                systems: vec![System::without_locking()],
                ..request
            };
            assert_eq!(asked.chosen_and_default().systems, asked.systems);
            assert!(asked.snapshots().is_empty());
        }
    }
}
