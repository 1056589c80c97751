//! `foxton report`: two runs compared.

use std::{fs, process::ExitCode};

use foxton_lab::compare::{Comparison, recorded::Recorded, tables};

use crate::{
    arguments::Report,
    output::{say, show},
};

/// Compares the two runs and shows the result. A slower run is a result, not a failure.
pub(crate) fn run(arguments: &Report) -> Result<ExitCode, String> {
    let read = |place| Recorded::read(place).map_err(|error| error.to_string());
    let (first, second) = (read(&arguments.first)?, read(&arguments.second)?);
    let comparison = Comparison::of(&first, &second).map_err(|error| error.to_string())?;
    let written = match &arguments.html {
        Some(file) => fs::write(file, tables::page(&comparison)).map_err(|error| {
            format!(
                "{} cannot be written ({error}); name another file",
                file.display()
            )
        }),
        None => Ok(()),
    };
    show(&tables::text(&comparison));
    written?;
    if let Some(file) = &arguments.html {
        say!("\nWritten:\n  {}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}
