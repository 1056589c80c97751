//! All figures in one run: each is made in a brief form, saved as soon as it is made, and added to
//! one report.
//!
//! A figure that cannot be made holds up no other. If this machine cannot make it, the report says
//! so; if it fails or panics, the report says why. The report and `results.json` are rewritten
//! after each figure, so an interruption loses one figure at most. The same command with the same
//! directory makes the rest later. Figures of another form, program or machine are never mixed in.
//! form, program or machine are not mixed in.

/// Result of one figure.
pub mod outcome;

/// The time it takes.
mod clock;

/// The report of all.
mod summary;

use std::{
    fmt, fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::Instant,
};

use clock::{Clock, words};
use outcome::{Origin, Outcome};

use crate::{
    bench::error::BenchError,
    figure::{Listed, request::Request},
    measure::machine::Machine,
    progress::Audience,
    report::{self, sheet::Sheet},
};

/// The figures to make, and the directory for them.
#[derive(Debug)]
pub struct Plan {
    /// The figures, in the order of the report.
    pub figures: Vec<&'static Listed>,
    /// The settings of each.
    pub request: Request,
    /// Name of these settings, so that figures made with others are not mixed in.
    pub form: &'static str,
    /// The directory for everything.
    pub directory: PathBuf,
}

/// Why a report could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReproduceError {
    /// A file or directory could not be used.
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The directory has a figure that was made with other settings, another program or on another
    /// machine.
    Mixed {
        /// The directory.
        path: PathBuf,
        /// The figure.
        figure: String,
        /// How it was made, and how it would be made now.
        origins: Box<[Origin; 2]>,
    },
}

impl fmt::Display for ReproduceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReproduceError::File { path, cause } => {
                write!(
                    f,
                    "{} cannot be used ({cause}); name another place with --out",
                    path.display()
                )
            }
            ReproduceError::Mixed {
                path,
                figure,
                origins,
            } => {
                let [then, now] = &**origins;
                let words = |one: &Origin| format!("{}, {}, {}", one.form, one.foxton, one.machine);
                write!(
                    f,
                    "{} has {figure} of another run ({}; this run is {}). A report has figures of one \
                     form, program and machine; name another place with --out",
                    path.display(),
                    words(then),
                    words(now)
                )
            }
        }
    }
}

impl std::error::Error for ReproduceError {}

/// Makes the figures that are missing, and returns the result of every figure.
///
/// # Errors
///
/// If the directory cannot be written, or has figures that were made with other settings. A figure
/// that fails is a result and no error.
pub fn run(plan: &Plan, audience: Audience) -> Result<Vec<Outcome>, ReproduceError> {
    let machine = Machine::here();
    let origin = Origin::here(plan.form, &machine);
    let kept = kept(plan, &origin)?;
    let to_make = plan
        .figures
        .iter()
        .zip(&kept)
        .filter(|(_, kept)| kept.is_none());
    let mut clock = Clock::new(to_make.map(|(listed, _)| *listed));
    let progress = audience.share("figures", clock.whole());
    let mut outcomes: Vec<Option<Outcome>> = kept;
    let own = Databases::new(&plan.directory)?;
    let request = own.asked(&plan.request);
    for (at, listed) in plan.figures.iter().enumerate() {
        let place = format!("{} of {}", at + 1, plan.figures.len());
        if outcomes[at].is_some() {
            progress.say(&format!("{place}  {}: made before, kept", listed.id));
            continue;
        }
        if audience == Audience::Log {
            audience.say(&format!(
                "{place}  {}, {} left",
                listed.id,
                words(clock.left(listed, 0.0))
            ));
        }
        let began = Instant::now();
        let made = clock.while_telling(listed, &progress, &place, || make(listed, &request));
        let seconds = began.elapsed().as_secs_f64();
        let outcome = Outcome::of(listed, made.as_ref(), seconds, &origin);
        keep(plan, &outcome, made.as_ref().ok())?;
        clock.done(listed, seconds);
        progress.say(&format!(
            "{place}  {}: {}, {}",
            listed.id,
            outcome.text("shape"),
            words(seconds)
        ));
        outcomes[at] = Some(outcome);
        write_all(plan, &machine, outcomes.iter().flatten())?;
    }
    drop(progress);
    write_all(plan, &machine, outcomes.iter().flatten())?;
    Ok(outcomes.into_iter().flatten().collect())
}

/// Lists these figures for a terminal: a line for each with its planned time, and the sum.
pub fn list(figures: &[&Listed]) -> String {
    let line = |one: &&Listed| format!("  {:<12} {:>4} s  {}\n", one.id, one.brief, one.sentence);
    let all: u32 = figures.iter().map(|one| one.brief).sum();
    let lines: String = figures.iter().map(line).collect();
    format!(
        "{lines}\n{} in all, on two cores with little else to do\n",
        words(f64::from(all))
    )
}

/// Formats the results for a terminal: a line or two for each.
pub fn text(outcomes: &[Outcome]) -> String {
    summary::text(outcomes)
}

fn at(path: &Path) -> impl Fn(io::Error) -> ReproduceError {
    let path = path.to_owned();
    move |cause| ReproduceError::File {
        path: path.clone(),
        cause,
    }
}

/// Returns the directory that a run makes for its databases, beside its report.
pub fn databases(directory: &Path) -> PathBuf {
    directory.join("databases")
}

/// The directory of the measured databases, unless the request names another. It is beside the
/// report, so that the next run finds and removes those of an interrupted one.
struct Databases(PathBuf);

impl Databases {
    /// Creates the directory, empty.
    fn new(directory: &Path) -> Result<Databases, ReproduceError> {
        let databases = Databases(databases(directory));
        databases.take_away();
        fs::create_dir_all(&databases.0).map_err(at(&databases.0))?;
        Ok(databases)
    }

    /// The same request, with this directory if it has none.
    fn asked(&self, request: &Request) -> Request {
        let said = request.directory.clone();
        Request {
            directory: Some(said.unwrap_or_else(|| self.0.clone())),
            ..request.clone()
        }
    }

    /// Removes the directory. If that fails, the next run tries again.
    fn take_away(&self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Databases {
    fn drop(&mut self) {
        self.take_away();
    }
}

/// Returns the figures of an earlier run.
fn kept(plan: &Plan, origin: &Origin) -> Result<Vec<Option<Outcome>>, ReproduceError> {
    fs::create_dir_all(&plan.directory).map_err(at(&plan.directory))?;
    let mut all = Vec::new();
    for listed in &plan.figures {
        let kept = Outcome::kept(&plan.directory, listed.id).filter(Outcome::was_made);
        if let Some(other) = kept.as_ref().filter(|kept| kept.origin() != *origin) {
            return Err(ReproduceError::Mixed {
                path: plan.directory.clone(),
                figure: listed.id.to_owned(),
                origins: Box::new([other.origin(), origin.clone()]),
            });
        }
        all.push(kept);
    }
    Ok(all)
}

/// Makes a figure; a panic is a failure like any other.
fn make(listed: &Listed, request: &Request) -> Result<Sheet, BenchError> {
    let request = Request {
        command: format!("foxton figure {}", listed.id),
        ..request.clone()
    };
    let made = catch_unwind(AssertUnwindSafe(|| listed.make(&request, Audience::Nobody)));
    made.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(BenchError::Failed(format!(
            "it panicked: {}",
            words.unwrap_or("without a message")
        )))
    })
}

fn keep(plan: &Plan, outcome: &Outcome, sheet: Option<&Sheet>) -> Result<(), ReproduceError> {
    let own = plan.directory.join(outcome.text("figure"));
    if let Some(sheet) = sheet {
        report::write_sheet(sheet, &own).map_err(at(&own))?;
    }
    outcome.keep(&plan.directory).map_err(at(&own))
}

fn write_all<'a>(
    plan: &Plan,
    machine: &Machine,
    outcomes: impl Iterator<Item = &'a Outcome>,
) -> Result<(), ReproduceError> {
    let outcomes: Vec<&Outcome> = outcomes.collect();
    let records = outcomes
        .iter()
        .map(|outcome| outcome.record.clone())
        .collect();
    let left = plan.figures.len() - outcomes.len();
    for (name, text) in [
        ("results.json", report::data::records_json(records)),
        (
            "report.html",
            summary::page(&outcomes, left, machine, &plan.request.command),
        ),
    ] {
        let path = plan.directory.join(name);
        outcome::replace(&path, &text).map_err(at(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
