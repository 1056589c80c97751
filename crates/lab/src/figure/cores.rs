//! Throughput over clients on fewer processors and on all: figure 1 of document 000.
//!
//! The clients of a run may be scheduled on the first n processors only; the rest of the machine
//! stands idle. Threads of the database run anywhere; in a read-only run they sleep.

use std::{cell::RefCell, rc::Rc};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{
    beside::{self, peak_and_rest},
    judge::{self, KEEPS},
    request::Request,
};
use crate::{
    bench::{
        error::BenchError,
        loaded::Loaded,
        sweep::{Subject, Sweep},
        txbench,
    },
    driver::Client,
    measure::{curve::Curve, machine::Machine},
    progress::Audience,
    report::{
        findings::Block,
        shape::{Claim, Shape},
        sheet::Sheet,
        table::Table,
    },
};

/// The document's result for each number of cores (section 1).
const DOCUMENT: [[&str; 2]; 3] = [
    ["4 cores", "as expected: a peak, then a slow decline"],
    ["8 cores", "about 75 % of the peak left"],
    [
        "16 cores",
        "about a third of the peak left, below 4 cores; the peak below that of 8",
    ],
];

/// One mutex over the lock table, on fewer processors and on all.
pub(super) fn figure_1(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = request.chosen_of(&["global", "default"], false);
    let machine = Machine::here();
    let counts = halvings(machine.cores);
    let runs = request.sweep(chosen.systems.clone(), counts.len() as u32);
    let shape = request.shape(10, 0);
    let (loaded, runs) = txbench::load_all(&shape, &runs, audience)?;
    let mut subjects = Vec::new();
    for one in loaded {
        let one = Rc::new(RefCell::new(one));
        let on = |&cores: &usize| OnCores::new(one.clone(), cores);
        subjects.extend(counts.iter().map(on));
    }
    let sweep = Sweep {
        mpls: runs.mpls.clone(),
        reps: runs.reps,
        plan: runs.plan(),
        split: runs.split,
    };
    let curves = sweep.run(&mut subjects, audience);
    let settings = txbench::Settings::plain(shape, runs.clone());
    let panel = txbench::findings(&settings, machine.clone(), curves);
    Ok(Sheet {
        id: "000-fig1",
        title: "One mutex over the lock table, on fewer processors and on all".to_owned(),
        source: format!("{}, Figure 1 and section 1", beside::STAGED),
        expect: "The more processors there are, the more of its peak the one mutex (global) loses as \
                 clients are added. The engine's default loses nothing on any number. Two processors \
                 show little of what sixteen do."
                .to_owned(),
        shape: claims(&panel.curves, machine.cores),
        notes: chosen.notes(),
        beside: vec![document(&panel.curves)],
        pictures: Vec::new(),
        settings: request.listed(&runs),
        machine,
        command: request.command.clone(),
        panels: vec![panel],
    })
}

/// With one mutex more is lost on all processors than on one; with the default nothing is.
fn claims(curves: &[Curve], cores: usize) -> Shape {
    let on = |manager: &str| -> Vec<(&Curve, f64)> {
        let of = curves.iter().filter(|curve| curve.lock_manager == manager);
        of.filter_map(|curve| Some((curve, curve.no_collapse_ratio()?)))
            .collect()
    };
    let percent = |ratio: f64| format!("{:.0} %", ratio * 100.0);
    let mut claims = Vec::new();
    if let [(_, one), .., (most, all)] = on("global").as_slice() {
        let found = format!(
            "global keeps {} of its peak on 1 core and {} on {}",
            percent(*one),
            percent(*all),
            most.note
        );
        let claim = Claim::new(
            "the more processors, the larger the loss with one mutex",
            found,
            "at least 2 points less on all",
            *all < one - 0.02,
        );
        claims.push(judge::where_cores_count(claim, cores));
    }
    let ours = curves.iter().filter(|curve| curve.lock_manager != "global");
    for curve in ours {
        if let Some(ratio) = curve.no_collapse_ratio() {
            let found = format!(
                "{} keeps {} of its peak on {}",
                curve.label(),
                percent(ratio),
                curve.note
            );
            claims.push(Claim::new(
                "without one mutex nothing is lost",
                found,
                judge::at_least(KEEPS),
                ratio >= KEEPS,
            ));
        }
    }
    Shape(claims)
}

/// Returns all processors, half of them, and so on down to one; the fewest first.
pub(super) fn halvings(cores: usize) -> Vec<usize> {
    let mut counts = vec![cores];
    while let Some(&last) = counts.last().filter(|&&last| last > 1) {
        counts.push(last / 2);
    }
    counts.reverse();
    counts
}

fn document(curves: &[Curve]) -> Block {
    let mut table = Table::new(["system", "processors", "throughput over clients"]);
    for [cores, result] in DOCUMENT {
        table.row(["MySQL (document)", cores, result].map(str::to_owned));
    }
    for curve in curves {
        let cores = curve.note.clone();
        let label = match curve.latch.as_str() {
            "-" => curve.lock_manager.clone(),
            latch => format!("{}/{latch}", curve.lock_manager),
        };
        table.row([label, cores, peak_and_rest(curve)]);
    }
    Block {
        title: "The document beside ours".to_owned(),
        note: "Read-only, 10 rows a read, serializable. The document's text gives shares of the peak; \
               absolute numbers are drawn only."
                .to_owned(),
        table,
    }
}

/// A loaded database whose clients may use the first `cores` processors only.
pub(super) struct OnCores {
    loaded: Rc<RefCell<Loaded>>,
    cores: usize,
    before: Option<CpuSet>,
}

impl OnCores {
    pub(super) fn new(loaded: Rc<RefCell<Loaded>>, cores: usize) -> OnCores {
        OnCores {
            loaded,
            cores,
            before: None,
        }
    }

    fn restore(&mut self) {
        if let Some(set) = self.before.take() {
            // The set came from the system, so the system accepts it. If it did not, a later run on
            // fewer processors would show it.
            let _ = sched_setaffinity(None, &set);
        }
    }
}

impl Subject for OnCores {
    fn names(&self) -> (String, String) {
        self.loaded.borrow().names()
    }

    fn note(&self) -> String {
        match self.cores {
            1 => "1 core".to_owned(),
            cores => format!("{cores} cores"),
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        self.loaded.borrow().kinds()
    }

    /// The clients' threads inherit the processors of the thread that starts them.
    fn clients(&mut self, mpl: u32) -> Vec<Box<dyn Client>> {
        if let Ok(all) = sched_getaffinity(None) {
            let mut fewer = CpuSet::new();
            let usable = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu));
            usable.take(self.cores).for_each(|cpu| fewer.set(cpu));
            if sched_setaffinity(None, &fewer).is_ok() {
                self.before = Some(all);
            }
        }
        self.loaded.borrow_mut().clients(mpl)
    }

    fn check(&mut self) -> Result<(), String> {
        self.restore();
        self.loaded.borrow_mut().check()
    }

    fn diagnose(&self) -> String {
        self.loaded.borrow().diagnose()
    }
}

impl Drop for OnCores {
    fn drop(&mut self) {
        self.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halvings_end_at_one() {
        assert_eq!(halvings(16), [1, 2, 4, 8, 16]);
        assert_eq!(halvings(6), [1, 3, 6]);
        assert_eq!(halvings(1), [1]);
    }
}
