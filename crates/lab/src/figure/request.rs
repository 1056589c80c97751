//! What a figure is asked for: quick or as in the document, and whatever should differ from both.

use std::{path::PathBuf, time::Duration};

use foxton::Durability;
use serde_json::{Value, json};

use crate::{
    bench::runs::Runs,
    system::{Locks, System},
    workload::txbench::Shape,
};

/// What a figure is asked for.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// With the windows and repetitions of the document.
    pub full: bool,
    /// With less than the quick form: each figure keeps to its share of a budget
    /// ([`BRIEF`](super::BRIEF)).
    pub brief: bool,
    /// What is compared; everything that is built if empty.
    pub systems: Vec<System>,
    /// Numbers of clients; the figure's own if empty.
    pub mpls: Vec<u32>,
    /// Time of each measurement, if not the figure's own.
    pub window: Option<Duration>,
    /// Time before each measurement, if not the figure's own.
    pub ramp: Option<Duration>,
    /// Times each point is measured, if not the figure's own.
    pub reps: Option<u32>,
    /// Rows of each table, if not the figure's own.
    pub rows: Option<u32>,
    /// Where the databases are made; the system's place for temporary files if `None`.
    pub directory: Option<PathBuf>,
    /// This program, to be looked into from outside while it runs; `None` if that is not wanted.
    pub program: Option<PathBuf>,
    /// The command that does this again.
    pub command: String,
}

/// Everything a figure compares when nobody says what, in the order of the tables.
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

/// The same in the brief form: each manager once, in its usual form.
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
/// The fewer points of the brief form, and all its windows together.
const BRIEF_MPLS: [u32; 4] = [1, 2, 32, 500];
const BRIEF_BUDGET: Duration = Duration::from_secs(60);
/// All windows of a quick form together.
const QUICK_BUDGET: Duration = Duration::from_secs(130);
const QUICK_RAMP: Duration = Duration::from_millis(150);
const BRIEF_RAMP: Duration = Duration::from_millis(100);
const QUICK_REPS: u32 = 3;
/// Document 000, section 5.1.2: a minute of ramp, a minute measured, five times.
const FULL_WINDOW: Duration = Duration::from_secs(60);
const FULL_REPS: u32 = 5;

/// What is compared, and what is wanted but not built.
#[derive(Debug, Clone)]
pub(super) struct Chosen {
    pub(super) systems: Vec<System>,
    pub(super) missing: Vec<&'static str>,
}

impl Request {
    /// What is compared: what was asked for, or all that is built.
    pub(super) fn chosen(&self) -> Chosen {
        match self.brief {
            true => self.chosen_of(&BRIEF_WANTED, false),
            false => self.chosen_of(&WANTED, true),
        }
    }

    /// The same, and the default as users have it: `direct`, of whose clients so many are at work
    /// as do best.
    pub(super) fn chosen_and_default(&self) -> Chosen {
        let mut chosen = self.chosen();
        if self.systems.is_empty() {
            chosen.systems.push(System::new(Locks::Default, None));
        }
        chosen
    }

    /// What is compared if nobody says what: these, and perhaps every other manager in its usual
    /// form.
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

    /// The time of each of many measurements, one after the other: what was asked for, or so many
    /// milliseconds in the brief form, the quick and the full one.
    pub(super) fn each(&self, [brief, quick, full]: [u64; 3]) -> Duration {
        let usual = match (self.full, self.brief) {
            (true, _) => full,
            (false, true) => brief,
            (false, false) => quick,
        };
        self.window.unwrap_or(Duration::from_millis(usual))
    }

    /// The variant of txbench that reads so many rows, with so many updates in a hundred.
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
    /// The lock managers alone: the default is one of them, with fewer clients at work.
    pub(super) fn managers(&self) -> Vec<System> {
        let default = System::new(Locks::Default, None);
        let managers = self.systems.iter();
        managers
            .filter(|&system| *system != default)
            .cloned()
            .collect()
    }

    /// What a reader has to know of what is missing.
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
    fn the_default_stands_beside_the_managers_unless_somebody_says_what_is_compared() {
        for brief in [false, true] {
            let request = Request {
                brief,
                ..Request::default()
            };
            let chosen = request.chosen_and_default();
            let default = System::new(Locks::Default, None);
            assert_eq!(chosen.systems.last(), Some(&default));
            // Where a manager stands alone, the default is `direct` once more.
            assert_eq!(chosen.managers(), request.chosen().systems);
            let asked = Request {
                systems: vec![System::without_locking()],
                ..request
            };
            assert_eq!(asked.chosen_and_default().systems, asked.systems);
        }
    }
}
