//! Small structures behind every latch: bank, counter, list and hash map of document 001, section
//! 3.3.
//!
//! Elided latches run if the processor can elide. If it cannot, such a latch is the latch that it
//! is built on, so the table says `not available` and why. On request they run all the same, marked
//! `taken`; that shows the cost of an elided latch on a machine that cannot elide.
//!
//! A transaction of the driver is a batch of operations, so that reading the clock is not measured.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use foxton::LatchKind;
use foxton_sync::{
    htm::{self, Cause, Elisions},
    latch::BackendKind,
    topology,
    worker::Workers,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;

use super::{error::BenchError, pace::Pace, sweep::Subject};
use crate::{
    driver::Client,
    measure::{
        curve::{Curve, Point},
        machine::Machine,
        outcome::Ended,
        spread::Spread,
    },
    progress::Audience,
    report::{
        findings::{Block, Findings},
        number::grouped,
        table::Table,
    },
    workload::micro::{
        Done, Hand, Structure,
        bank::Bank,
        counter::{Counter, Layout},
        hashmap::HashMap,
        list::list,
    },
};

/// Operations that the driver counts as one transaction.
const BATCH: u64 = 128;

/// The structure behind the latches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// Accounts of a bank.
    Bank {
        /// Number of accounts.
        accounts: u32,
        /// Percentage of operations that read an account.
        reads: u32,
        /// True for one latch for all.
        global: bool,
    },
    /// Counters, incremented by threads that each stay on one processor.
    Counter(Layout),
    /// A list.
    List {
        /// Values at the start.
        values: u32,
        /// Percentage of operations that search for a value.
        reads: u32,
        /// True for several items on a line.
        beside: bool,
    },
    /// A hash map.
    HashMap {
        /// Number of buckets.
        buckets: u32,
        /// Values at the start.
        values: u32,
        /// True for one latch for all.
        global: bool,
    },
}

impl Shared {
    fn make(self, kind: LatchKind) -> Box<dyn Structure> {
        match self {
            Shared::Bank {
                accounts,
                reads,
                global,
            } => Box::new(Bank::new(kind, accounts as usize, reads, global)),
            Shared::Counter(layout) => Box::new(Counter::new(layout, kind, topology::cores())),
            Shared::List {
                values,
                reads,
                beside,
            } => list(kind, values, reads, beside),
            Shared::HashMap {
                buckets,
                values,
                global,
            } => Box::new(HashMap::new(kind, buckets, values, global)),
        }
    }

    /// Describes it, in words that differ from others of its kind.
    pub fn words(self) -> String {
        let latches = |global: bool| match global {
            true => "one latch",
            false => "a latch each",
        };
        match self {
            Shared::Bank {
                accounts,
                reads,
                global,
            } => format!("{accounts} accounts, {reads} % read, {}", latches(global)),
            Shared::Counter(layout) => layout.to_string(),
            Shared::List {
                values,
                reads,
                beside,
            } => {
                let where_ = if beside { ", items side by side" } else { "" };
                format!("{values} values, {reads} % read{where_}")
            }
            Shared::HashMap {
                buckets, global, ..
            } => format!("{buckets} buckets, {}", latches(global)),
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Shared::Bank { .. } => "bank",
            Shared::Counter(_) => "counter",
            Shared::List { .. } => "list",
            Shared::HashMap { .. } => "hashmap",
        }
    }

    fn is_pinned(self) -> bool {
        matches!(self, Shared::Counter(_))
    }
}

/// Settings of the measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The structures, all of one name.
    pub shared: Vec<Shared>,
    /// The latches; all if empty.
    pub latches: Vec<LatchKind>,
    /// Also run latches that cannot elide here.
    pub taken: bool,
    /// Numbers of threads, repetitions and times.
    pub pace: Pace,
}

/// Measures the structures.
///
/// # Errors
///
/// If the settings contradict each other.
pub fn run(settings: &Settings, audience: Audience) -> Result<Findings, BenchError> {
    let sweep = settings.pace.sweep()?;
    let latches = match settings.latches.as_slice() {
        [] => LatchKind::ALL.to_vec(),
        some => some.to_vec(),
    };
    let runs = |kind: &LatchKind| settings.taken || kind.elides().is_ok();
    let mut subjects: Vec<Behind> = Vec::new();
    for &shared in &settings.shared {
        let kinds = latches.iter().filter(|kind| runs(kind));
        subjects.extend(kinds.map(|&kind| Behind::new(shared, kind)));
    }
    let mut curves = sweep.run(&mut subjects, audience);
    for (curve, subject) in curves.iter_mut().zip(&subjects) {
        curve.facts = vec![("operations_per_transaction", json!(BATCH))];
        for point in &mut curve.points {
            point.facts = subject.elisions(point.mpl).map_or(Vec::new(), facts);
        }
    }
    let missing: Vec<LatchKind> = latches.into_iter().filter(|kind| !runs(kind)).collect();
    Ok(findings(settings, &subjects, curves, &missing))
}

fn findings(
    settings: &Settings,
    subjects: &[Behind],
    curves: Vec<Curve>,
    missing: &[LatchKind],
) -> Findings {
    let name = settings.shared.first().map_or("", |shared| shared.name());
    let mut blocks = Vec::new();
    for &shared in &settings.shared {
        let of = subjects.iter().zip(&curves);
        let of: Vec<(&Behind, &Curve)> = of.filter(|(one, _)| one.shared == shared).collect();
        blocks.push(throughput(shared, &of, missing));
    }
    blocks.extend(aborts(subjects));
    Findings {
        workload: name.to_owned(),
        variant: String::new(),
        title: format!("{name}: a small structure behind every latch"),
        description: format!(
            "Threads do operations on one structure in memory and nothing else. A transaction in the pictures is \
             {BATCH} operations.{}",
            match BackendKind::available() {
                Ok(BackendKind::Software) => {
                    " Hardware transactions are emulated by software: numbers of elided latches mean nothing."
                }
                _ => "",
            }
        ),
        checked: checked(name).to_owned(),
        command: settings.pace.command.clone(),
        settings: listed(settings),
        machine: Machine::here(),
        curves,
        timelines: Vec::new(),
        event: None,
        blocks_have_points: true,
        blocks,
    }
}

/// The settings, and whether the processor or software elides latches, so that each record says it.
fn listed(settings: &Settings) -> Vec<(&'static str, serde_json::Value)> {
    let mut listed = settings.pace.listed();
    listed.push(("transactions", json!(by_what())));
    listed
}

fn checked(name: &str) -> &'static str {
    match name {
        "bank" => "after each run the sum of all accounts is that at the start, to the cent.",
        "counter" => "after each run the counters add up to the increments.",
        "list" => {
            "after each run the list reads the same from both ends, and has the values loaded and inserted \
             except those removed."
        }
        _ => {
            "after each run every value is in its bucket, once, and the map has the values loaded and inserted \
             except those removed."
        }
    }
}

/// Operations a millisecond, by repetition.
pub(crate) fn operations(point: &Point) -> Spread {
    let each = BATCH as f64 / 1_000.0;
    Spread::new(point.runs.iter().map(|run| run.tps() * each))
}

/// The ratio of two points by repetition; those of the same number ran one after the other.
pub(crate) fn ratio(point: &Point, to: &Point) -> Spread {
    let pairs = point.runs.iter().zip(&to.runs);
    let pairs = pairs.filter(|(_, to)| to.tps() > 0.0);
    Spread::new(pairs.map(|(run, to)| run.tps() / to.tps()))
}

/// Counts of elision with one number of threads, over all repetitions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tried {
    by_worker: Vec<Elisions>,
    /// Time of all threads together.
    ticks: u64,
}

impl Tried {
    /// Adds a repetition of this many threads that began at `began`.
    pub(crate) fn add(&mut self, by_worker: &[Elisions], threads: u32, began: u64) {
        let more = by_worker.len().max(self.by_worker.len());
        self.by_worker.resize(more, Elisions::default());
        for (sum, one) in self.by_worker.iter_mut().zip(by_worker) {
            sum.add(one);
        }
        self.ticks += htm::ticks().saturating_sub(began) * u64::from(threads);
    }

    /// Sum over all workers.
    fn sum(&self) -> Elisions {
        let mut sum = Elisions::default();
        self.by_worker.iter().for_each(|one| sum.add(one));
        sum
    }
}

fn throughput(shared: Shared, of: &[(&Behind, &Curve)], missing: &[LatchKind]) -> Block {
    let mut table = Table::new([
        "latch",
        "threads",
        "operations/ms",
        "min",
        "max",
        "÷ parking",
        "÷ not elided",
        "elided",
        "aborted",
    ]);
    let at = |kind: LatchKind, mpl: u32| {
        let (_, curve) = of.iter().find(|(one, _)| one.kind == kind)?;
        curve.points.iter().find(|point| point.mpl == mpl)
    };
    for (subject, curve) in of {
        for point in &curve.points {
            let rate = operations(point);
            let cell = |to: Option<&Point>| {
                let ratio = to.map(|to| ratio(point, to));
                ratio.map_or("-".to_owned(), |ratio| {
                    ratio.words(|times| format!("{times:.2}"))
                })
            };
            let plain = subject.kind.plain();
            let plain = (plain != subject.kind)
                .then(|| at(plain, point.mpl))
                .flatten();
            let elisions = subject.elisions(point.mpl).unwrap_or_default();
            table.row([
                subject.latch_name(),
                point.mpl.to_string(),
                grouped(rate.median()),
                grouped(rate.min()),
                grouped(rate.max()),
                cell(at(LatchKind::Parking, point.mpl)),
                cell(plain),
                percent(elisions.elided_share()),
                percent(elisions.aborted_share()),
            ]);
        }
    }
    for kind in missing {
        let Err(why) = kind.elides() else { continue };
        table.row([kind.to_string(), "-".to_owned(), why.to_string()]);
    }
    Block {
        title: format!("{}, {}", shared.name(), shared.words()),
        note: "Median and extremes of the repetitions; ratios by repetition, because the latches take turns in each. \
               Elided: share of the passes through an elidable latch that were elided. Aborted: share of the \
               attempts that aborted."
            .to_owned(),
        table,
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// Why attempts aborted, if any were made.
fn aborts(subjects: &[Behind]) -> Option<Block> {
    let mut table = abort_table("structure");
    for subject in subjects {
        let words = format!("{}/{}", subject.shared.words(), subject.kind);
        for (mpl, tried) in &subject.tried {
            let row = abort_row(words.clone(), *mpl, tried);
            row.into_iter().for_each(|row| table.row(row));
        }
    }
    (!table.is_empty()).then(|| Block {
        title: format!("Why transactions aborted, {}", by_what()),
        note: ABORTS_SAY.to_owned(),
        table,
    })
}

/// The maker of the latches' transactions, for a title.
pub(crate) fn by_what() -> String {
    BackendKind::available().map_or_else(|why| why.to_string(), |means| means.to_string())
}

/// Note on the columns of [`abort_row`].
pub(crate) const ABORTS_SAY: &str = "Attempts are transactions begun; the rest are percentages of them. Explicit: the \
    latch was held, or another was passed inside. Other: interrupts, pages that were not present, instructions that \
    cannot be undone. By worker: the least and the largest share of its passes that a worker had elided. Time: of \
    all threads together, in transactions that committed and in attempts that aborted, with --features account; it \
    includes two readings of the clock for each attempt, some ten nanoseconds each.";

pub(crate) fn abort_table(what: &str) -> Table {
    let heads = [what, "threads", "attempts"];
    let causes = Cause::ALL.map(|cause| cause.to_string());
    let heads = heads.map(str::to_owned).into_iter().chain(causes);
    let last = ["elided", "by worker", "time committed", "time aborted"];
    Table::of(heads.chain(last.map(str::to_owned)))
}

/// A row of the counts by worker, if there were attempts.
pub(crate) fn abort_row(what: String, mpl: u32, tried: &Tried) -> Option<Vec<String>> {
    let sum = tried.sum();
    if sum.attempts() == 0 {
        return None;
    }
    let share = |cause| sum.aborted(cause) as f64 / sum.attempts() as f64;
    let mut row = vec![what, mpl.to_string(), grouped(sum.attempts() as f64)];
    row.extend(Cause::ALL.map(|cause| percent(Some(share(cause)))));
    row.push(percent(sum.elided_share()));
    let shares = Spread::new(tried.by_worker.iter().filter_map(Elisions::elided_share));
    row.push(format!(
        "{}..{}",
        percent(Some(shares.min())),
        percent(Some(shares.max()))
    ));
    let times = sum.shares_of_time(tried.ticks);
    row.extend(match times {
        Some((committed, aborted)) => [committed, aborted].map(|share| percent(Some(share))),
        None => ["not timed"; 2].map(str::to_owned),
    });
    Some(row)
}

fn facts(elisions: Elisions) -> Vec<(&'static str, serde_json::Value)> {
    let aborted = Cause::ALL.map(|cause| (cause.to_string(), json!(elisions.aborted(cause))));
    vec![
        ("elided", json!(elisions.committed)),
        ("taken", json!(elisions.latched)),
        (
            "aborted",
            aborted
                .into_iter()
                .collect::<serde_json::Map<_, _>>()
                .into(),
        ),
    ]
}

/// A structure behind latches of one kind.
#[derive(Debug)]
struct Behind {
    shared: Shared,
    kind: LatchKind,
    run: Option<Arc<Run>>,
    mpl: u32,
    runs: u64,
    began: u64,
    /// By number of threads.
    tried: BTreeMap<u32, Tried>,
}

/// State shared by the threads of one run.
#[derive(Debug)]
struct Run {
    structure: Box<dyn Structure>,
    workers: Workers,
    done: Mutex<Done>,
}

impl Behind {
    fn new(shared: Shared, kind: LatchKind) -> Behind {
        Behind {
            shared,
            kind,
            run: None,
            mpl: 0,
            runs: 0,
            began: 0,
            tried: BTreeMap::new(),
        }
    }

    fn latch_name(&self) -> String {
        match self.kind.elides() {
            Ok(_) => self.kind.to_string(),
            Err(_) => format!("{}, taken", self.kind),
        }
    }

    /// Counts of elision with this many threads, if attempts were made or possible.
    fn elisions(&self, mpl: u32) -> Option<Elisions> {
        let elides = self.kind.elides() == Ok(true);
        elides.then(|| self.tried.get(&mpl).map(Tried::sum))?
    }
}

impl Subject for Behind {
    fn names(&self) -> (String, String) {
        (self.shared.name().to_owned(), self.latch_name())
    }

    fn note(&self) -> String {
        self.shared.words()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["operations"]
    }

    fn clients(&mut self, mpl: u32) -> Vec<Box<dyn Client>> {
        self.runs += 1;
        self.mpl = mpl;
        let run = Arc::new(Run {
            structure: self.shared.make(self.kind),
            workers: Workers::with_seed(self.runs),
            done: Mutex::default(),
        });
        let client = |number: u32| {
            Box::new(Operator {
                hand: Hand::new(run.workers.worker(), number as usize, self.runs),
                run: run.clone(),
                to_pin: self.shared.is_pinned(),
            }) as Box<dyn Client>
        };
        let clients = (0..mpl).map(client).collect();
        self.run = Some(run);
        self.began = htm::ticks();
        clients
    }

    fn check(&mut self) -> Result<(), String> {
        let Some(run) = self.run.take() else {
            return Ok(());
        };
        let counted = run.workers.elisions_by_worker();
        let tried = self.tried.entry(self.mpl).or_default();
        tried.add(&counted, self.mpl, self.began);
        let done = *run.done.lock().unwrap_or_else(PoisonError::into_inner);
        run.structure.check(&run.workers.worker(), done)
    }

    fn diagnose(&self) -> String {
        format!("{} behind {}", self.shared.words(), self.latch_name())
    }
}

/// One thread.
struct Operator {
    run: Arc<Run>,
    hand: Hand,
    to_pin: bool,
}

impl Client for Operator {
    fn transaction(&mut self) -> Ended {
        if std::mem::take(&mut self.to_pin) {
            pin(self.hand.number);
        }
        self.run.structure.operate(&mut self.hand, BATCH);
        Ended::ok(0)
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let mut done = self.run.done.lock().unwrap_or_else(PoisonError::into_inner);
        *done += self.hand.done;
    }
}

/// Keeps this thread on one of its processors to its end. If the system refuses, the thread runs
/// anywhere, and the counters are still right.
fn pin(number: usize) {
    let Ok(all) = sched_getaffinity(None) else {
        return;
    };
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&cpu| all.is_set(cpu))
        .collect();
    let Some(&cpu) = usable.get(number % usable.len().max(1)) else {
        return;
    };
    let mut one = CpuSet::new();
    one.set(cpu);
    let _ = sched_setaffinity(None, &one);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a row, which real runs do only where latches elide.
    #[test]
    fn a_row_of_attempts_is_as_wide_as_its_table() {
        let mut one = Elisions::default();
        (one.committed, one.latched) = (30, 10);
        let mut tried = Tried::default();
        let began = htm::ticks();
        tried.add(&[one], 2, began);
        tried.add(&[one, Elisions::default()], 2, began);
        assert_eq!(tried.sum().committed, 60);
        let row = abort_row("a structure".to_owned(), 2, &tried).expect("something was tried");
        assert_eq!(row[..3], ["a structure", "2", "60"]);
        let times = row.len() - 2;
        assert_eq!(row[times - 2..times], ["75.0 %", "75.0 %..75.0 %"]);
        assert_eq!(row[times] == "not timed", !cfg!(feature = "account"));
        assert_eq!(abort_table("what").heads().len(), row.len());
        assert!(abort_row(String::new(), 2, &Tried::default()).is_none());
    }
}
