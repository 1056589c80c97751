//! `foxton figure`: repeat a figure of the documents, show it, write it down.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use foxton_lab::{
    figure::{self, request::Request},
    progress::Audience,
    report::{self, terminal},
    system::System,
};

use crate::{
    arguments::Figure,
    bench::{command_line, judged, moment, tell},
    output::{say, show},
};

/// Makes the figure asked for, or lists them all.
pub(crate) fn run(arguments: Figure) -> Result<ExitCode, String> {
    let Some(id) = &arguments.id else {
        list();
        return Ok(ExitCode::SUCCESS);
    };
    let listed = figure::find(id)?;
    let out = arguments.out.clone();
    let sheet = listed
        .make(&request(arguments), Audience::here())
        .map_err(|error| error.to_string())?;
    show(&terminal::sheet(&sheet));
    let fresh = || fresh_directory(listed.id, &moment(&sheet.machine));
    let directory = out.unwrap_or_else(fresh);
    tell(report::write_sheet(&sheet, &directory), &directory)?;
    Ok(judged(&sheet.machine, sheet.failure()))
}

fn list() {
    for one in figure::ALL {
        say!("  {:<11} {}", one.id, one.sentence);
    }
    say!("\nfoxton figure ID makes one, in a minute or a few; --full as its document has it.");
}

fn request(arguments: Figure) -> Request {
    let systems = System::all(&arguments.locks, &arguments.latch);
    Request {
        full: arguments.full,
        brief: false,
        systems: System::with_victims(systems, &arguments.victim),
        mpls: arguments.mpl,
        window: arguments.seconds.map(Duration::from_secs_f64),
        ramp: arguments.ramp.map(Duration::from_secs_f64),
        reps: arguments.reps,
        rows: arguments.rows,
        directory: arguments.dir,
        program: std::env::current_exe().ok(),
        command: command_line(),
    }
}

fn fresh_directory(id: &str, moment: &str) -> PathBuf {
    Path::new("results").join(format!("figure-{id}-{moment}"))
}
