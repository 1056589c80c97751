//! `foxton clean`: databases that benchmarks have left over. And how a signal leaves none.
//!
//! **Problem.** Hundreds of threads may use the databases when a signal arrives. Were one thread to
//! remove the files, the others would fail, report that, and create new files meanwhile.
//!
//! **Mechanism.** The thread of the signals replaces the program by a new one, which has the same
//! process and does nothing but remove the databases. That ends all threads at once, closes all
//! files and releases all locks. The new program removes what this process has left over, and lets
//! the signal end it. A second signal ends it at once, and `foxton clean` removes the rest.

use std::{
    env,
    ffi::c_int,
    fs, io,
    io::{BufRead, IsTerminal, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{self, Command, ExitCode},
    time::Duration,
};

use foxton_lab::{
    bench::directory::{Leftover, leftovers, leftovers_of},
    report::{
        number::{bytes, duration_us},
        table::Table,
    },
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{
    arguments::Clean,
    output::{note, say, show},
    signals,
};

/// Signals that leave no databases. SIGQUIT leaves them, because it requests an image of the
/// process.
const ENDING: [c_int; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Lists what is left over, and removes it if that is wanted.
pub(crate) fn run(what: &Clean) -> Result<ExitCode, String> {
    let places = match what.places.as_slice() {
        [] => vec![env::temp_dir()],
        some => some.to_vec(),
    };
    if let Some(signal) = what.after_signal {
        after_signal(signal, &places, &what.made);
    }
    if let Some((place, error)) = unread(&places) {
        return Err(format!(
            "{} cannot be read ({error}); name a directory that benchmarks have used",
            place.display()
        ));
    }
    let found: Vec<Leftover> = places.iter().flat_map(|place| leftovers(place)).collect();
    if found.is_empty() {
        say!("no benchmark has left a database in {}", listed(&places));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["left over", "size", "age"]);
    for one in &found {
        let path = one.path.display().to_string();
        table.row([
            path,
            bytes(one.bytes),
            one.age.map_or_else(String::new, age),
        ]);
    }
    show(&table.render());
    if !what.yes && !is_wanted()? {
        say!("\nNothing was removed; --yes removes them.");
        return Ok(ExitCode::SUCCESS);
    }
    let mut code = ExitCode::SUCCESS;
    let mut removed = 0;
    for one in &found {
        match one.remove() {
            Ok(()) => removed += one.bytes,
            Err(error) => {
                note!("error: {} cannot be removed ({error})", one.path.display());
                code = ExitCode::FAILURE;
            }
        }
    }
    say!("\n{} removed", bytes(removed));
    Ok(code)
}

/// Says in one line that earlier benchmarks have left databases where the next one makes its own.
pub(crate) fn mention(place: Option<&Path>) {
    let usual = env::temp_dir();
    let found = leftovers(place.unwrap_or(&usual));
    let size = found.iter().map(|one| one.bytes).sum();
    let (count, noun) = match found.len() {
        0 => return,
        1 => (1, "database"),
        many => (many, "databases"),
    };
    let command = match place {
        Some(place) => format!("foxton clean {}", place.display()),
        None => "foxton clean".to_owned(),
    };
    note!(
        "note: killed benchmarks have left {count} {noun}, {}; `{command}` removes them",
        bytes(size)
    );
}

/// Makes signals remove the databases of this process in `place`, by default the system's directory
/// for temporary files, before they end it. `made` is a directory that the command makes for them.
pub(crate) fn before_end(place: Option<&Path>, made: Option<&Path>) -> Result<(), String> {
    let mut cleaner = Command::new(program());
    cleaner.arg("clean");
    if let Some(made) = made {
        cleaner.arg("--made").arg(made);
    }
    let place = place.map_or_else(env::temp_dir, Path::to_owned);
    signals::before_end(&ENDING, move |signal| {
        cleaner.arg(format!("--after-signal={signal}"));
        // If this program cannot be started again, the databases are left over and found later.
        let _ = cleaner.arg("--").arg(place).exec();
    })
}

/// This program, also if its file was replaced meanwhile.
fn program() -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    match running.exists() {
        true => running,
        false => env::current_exe().unwrap_or(running),
    }
}

/// Removes what this process has left over, and ends by the signal.
fn after_signal(signal: c_int, places: &[PathBuf], made: &[PathBuf]) -> ! {
    if io::stderr().is_terminal() {
        // The line of a bar, or of the keys that sent the signal.
        let _ = io::stderr().write_all(b"\r\x1b[K");
    }
    let places = places.iter().chain(made);
    for one in places.flat_map(|place| leftovers_of(process::id(), place)) {
        let path = one.path.display();
        match one.remove() {
            Ok(()) => note!("removed: {path}"),
            Err(error) => {
                note!("{path} cannot be removed ({error}); see to it, then: rm -r {path}")
            }
        }
    }
    // One that is not empty has other files.
    made.iter().for_each(|made| _ = fs::remove_dir(made));
    signals::end_by(signal)
}

/// True if a person at a terminal says yes; false if there is none.
fn is_wanted() -> Result<bool, String> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Ok(false);
    }
    show("\nRemove them? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| format!("the answer could not be read: {error}"))?;
    Ok(["y", "yes"].contains(&&*answer.trim().to_lowercase()))
}

fn unread(places: &[PathBuf]) -> Option<(&PathBuf, io::Error)> {
    let mut read = places.iter().map(|place| (place, fs::read_dir(place)));
    read.find_map(|(place, read)| Some((place, read.err()?)))
}

fn listed(places: &[PathBuf]) -> String {
    let places = places.iter().map(|place| place.display().to_string());
    places.collect::<Vec<_>>().join(", ")
}

/// An age in its largest unit.
fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 86_400.. => format!("{} days", seconds / 86_400),
        seconds @ 3_600.. => format!("{} h", seconds / 3_600),
        seconds @ 60.. => format!("{} min", seconds / 60),
        _ => duration_us(age.as_micros() as f64),
    }
}
