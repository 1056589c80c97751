//! `foxton reproduce`: all figures, one report.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use foxton_lab::{
    figure::{self, Listed, request::Request},
    measure::machine::Machine,
    progress::Audience,
    reproduce::{self, Plan, outcome::Outcome},
    system::{Locks, System},
};

use crate::{
    arguments::Reproduce,
    bench::{command_line, moment},
    clean,
    output::{note, say, show},
};

/// Makes the figures, shows the result of each, and prints the report's place.
pub(crate) fn run(arguments: Reproduce) -> Result<ExitCode, String> {
    let figures = chosen(&arguments.only)?;
    if arguments.list {
        show(&reproduce::list(&figures));
        return Ok(ExitCode::SUCCESS);
    }
    let machine = Machine::here();
    let fresh = || Path::new("results").join(format!("reproduce-{}", moment(&machine)));
    let directory: PathBuf = arguments.out.clone().unwrap_or_else(fresh);
    let plan = Plan {
        figures,
        form: if arguments.tiny { "tiny" } else { "brief" },
        request: request(arguments)?,
        directory,
    };
    let own = reproduce::databases(&plan.directory);
    let place = plan.request.directory.as_deref();
    if place.is_some() {
        clean::mention(place);
    }
    clean::before_end(place.or(Some(&own)), Some(&own))?;
    let outcomes = reproduce::run(&plan, Audience::here()).map_err(|error| error.to_string())?;
    show(&reproduce::text(&outcomes));
    say!("\nWritten:");
    for name in ["report.html", "results.json"] {
        say!("  {}", plan.directory.join(name).display());
    }
    if let Some(hint) = hint(&outcomes, &plan.directory) {
        say!("\n{hint}");
    }
    if !machine.optimised {
        note!("note: built without optimisation, so do not compare these numbers; use --release");
    }
    Ok(match outcomes.iter().any(Outcome::broke) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Tells how to add the figures that only another build can make, if there are any.
fn hint(outcomes: &[Outcome], directory: &Path) -> Option<String> {
    let left = outcomes.iter().filter(|outcome| !outcome.was_made());
    let mut left = left.map(|outcome| outcome.text("figure"));
    left.any(|id| figure::COUNTED.contains(&id)).then(|| {
        format!(
            "{} need a program that counts critical sections. In a clone, this command adds them:\n  \
             cargo run --release --features account -- reproduce --out {}",
            figure::COUNTED.join(" and "),
            directory.display()
        )
    })
}

/// These figures, or all, each once and in the order of the list.
fn chosen(only: &[String]) -> Result<Vec<&'static Listed>, String> {
    let named = only.iter().map(|id| figure::find(id));
    let named: Vec<&Listed> = named.collect::<Result<_, _>>()?;
    let wanted = |one: &&Listed| named.is_empty() || named.iter().any(|named| named.id == one.id);
    Ok(figure::ALL.iter().filter(wanted).collect())
}

fn request(arguments: Reproduce) -> Result<Request, String> {
    let brief = Request {
        brief: true,
        directory: arguments.dir,
        program: std::env::current_exe().ok(),
        command: command_line(),
        ..Request::default()
    };
    if !arguments.tiny {
        return Ok(brief);
    }
    let few = ["global", "bucket+inherit", "direct"].map(|name| name.parse::<Locks>());
    let few: Vec<Locks> = few.into_iter().collect::<Result<_, _>>()?;
    Ok(Request {
        systems: System::all(&few, &[]),
        mpls: vec![2, 4],
        window: Some(Duration::from_millis(30)),
        ramp: Some(Duration::from_millis(2)),
        reps: Some(1),
        rows: Some(2_000),
        program: None,
        ..brief
    })
}
