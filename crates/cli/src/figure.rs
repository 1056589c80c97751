//! `foxton figure`: repeat a figure of the documents, or all of one document, show it, write it.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use foxton_lab::{
    figure::{self, Listed, request::Request},
    progress::Audience,
    report::{self, terminal},
    system::System,
};

use crate::{
    arguments::Figure,
    bench::{command_line, judged, list_written, moment},
    output::{say, show},
};

/// Makes the figures of the arguments, or lists all figures.
pub(crate) fn run(arguments: Figure) -> Result<ExitCode, String> {
    let Some(id) = &arguments.id else {
        list();
        return Ok(ExitCode::SUCCESS);
    };
    let (all, out) = (figure::find_all(id)?, arguments.out.clone());
    let mut request = request(arguments);
    let mut code = ExitCode::SUCCESS;
    for listed in &all {
        let out = match all.len() {
            1 => out.clone(),
            _ => {
                request.command = format!("foxton figure {}", listed.id);
                out.as_ref().map(|out| out.join(listed.id))
            }
        };
        let made = make(listed, &format!("figure-{}", listed.id), &request, out)?;
        if made != ExitCode::SUCCESS {
            code = made;
        }
    }
    Ok(code)
}

/// Makes the one figure of this name; its results go into a directory of that name.
pub(crate) fn named(
    name: &str,
    request: &Request,
    out: Option<PathBuf>,
) -> Result<ExitCode, String> {
    let all = figure::find_all(name)?;
    let [listed] = all.as_slice() else {
        return Err(format!(
            "{name} is more than one figure; run `foxton figure` for their names"
        ));
    };
    make(listed, name, request, out)
}

fn make(
    listed: &Listed,
    name: &str,
    request: &Request,
    out: Option<PathBuf>,
) -> Result<ExitCode, String> {
    let sheet = listed
        .make(request, Audience::here())
        .map_err(|error| error.to_string())?;
    let fresh = || fresh_directory(name, &moment(&sheet.machine));
    let directory = out.unwrap_or_else(fresh);
    let written = report::write_sheet(&sheet, &directory);
    show(&terminal::sheet(&sheet));
    list_written(written, &directory)?;
    Ok(judged(&sheet.machine, sheet.failure()))
}

fn list() {
    for one in figure::ALL {
        say!("  {:<12} {}", one.id, one.sentence);
    }
    say!(
        "\n`foxton figure ID` makes one in a few minutes, with --full in the document's form; `foxton figure \
         001` makes all of document 001."
    );
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
        tables: arguments.tables,
        page_memory: arguments.page_memory,
        directory: arguments.dir,
        program: std::env::current_exe().ok(),
        command: command_line(),
    }
}

fn fresh_directory(name: &str, moment: &str) -> PathBuf {
    Path::new("results").join(format!("{name}-{moment}"))
}
