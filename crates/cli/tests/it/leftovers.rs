//! Databases of benchmarks that a signal ends: none is left. Those of killed ones are named by the
//! next benchmark and removed by `foxton clean`, and those in use are not.

use std::{
    fs,
    io::Read,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::support::{command, said};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const PATIENCE: Duration = Duration::from_secs(120);
const LONG: &str = "bench txbench --rows 2000 --seconds 600 --ramp 0 --mpl 2 --reps 1 --locks bucket --out RESULTS";
const QUICK: &str = "bench txbench --rows 2000 --seconds 0.02 --ramp 0 --mpl 1 --reps 1 --locks bucket --out RESULTS";

/// A directory for temporary files, and one for results.
struct Place {
    _root: tempfile::TempDir,
    temporary: PathBuf,
    results: PathBuf,
}

impl Place {
    fn new() -> Place {
        let root = tempfile::tempdir().unwrap();
        let temporary = root.path().join("temporary");
        fs::create_dir(&temporary).unwrap();
        Place {
            temporary,
            results: root.path().join("results"),
            _root: root,
        }
    }

    fn command(&self, line: &str) -> std::process::Command {
        let results = self.results.to_string_lossy();
        let words = line.split_whitespace().map(|word| match word {
            "RESULTS" => &*results,
            word => word,
        });
        let mut command = command(&words.collect::<Vec<_>>());
        command.env("TMPDIR", &self.temporary);
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().expect("the program runs")
    }

    /// Starts a benchmark, and waits until it has a database in `parent`.
    fn start(&self, line: &str, parent: &Path) -> Running {
        let mut command = self.command(line);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().expect("the program runs");
        let own = format!("foxton-bench-{}-", child.id());
        let mut running = Running(child);
        let begun = Instant::now();
        let has_database = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&own) && path.join("db/foxton").exists()
        };
        while !entries(parent).iter().any(has_database) {
            let ended = running.0.try_wait().unwrap();
            assert!(ended.is_none(), "{line} has ended: {ended:?}");
            assert!(begun.elapsed() < PATIENCE, "{line} makes no database");
            thread::sleep(Duration::from_millis(5));
        }
        running
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// A benchmark; killed if the test ends first.
struct Running(Child);

impl Running {
    /// Ends it by a signal, and returns its standard error.
    fn end(mut self, signal: Signal) -> String {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
        let mut text = String::new();
        let mut errors = self.0.stderr.take().expect("piped");
        errors.read_to_string(&mut text).unwrap();
        let status = self.0.wait().unwrap();
        assert_eq!(status.signal(), Some(signal as i32), "{text}");
        assert!(
            !text.contains("error") && !text.contains("panicked"),
            "{text}"
        );
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_signal_leaves_no_database() {
    for (line, signal) in [
        (LONG, Signal::SIGINT),
        (LONG, Signal::SIGTERM),
        (LONG, Signal::SIGHUP),
        (
            "bench restart --log 4000 --rows 500 --threads 1 --seconds 0.05 --reps 1",
            Signal::SIGTERM,
        ),
        ("bench queue --seconds 600 --reps 1", Signal::SIGTERM),
        (
            "bench commit --seconds 600 --reps 1 --out RESULTS",
            Signal::SIGINT,
        ),
        (
            "figure 000-fig12 --locks bucket --mpl 2 --seconds 600 --rows 2000 --out RESULTS",
            Signal::SIGINT,
        ),
    ] {
        let place = Place::new();
        let running = place.start(line, &place.temporary);
        let text = running.end(signal);
        assert_eq!(
            entries(&place.temporary),
            [] as [PathBuf; 0],
            "{line}: {text}"
        );
        assert!(text.contains("removed: "), "{line}: {text}");
    }
}

#[test]
fn a_signal_leaves_no_database_in_a_directory_of_choice_or_beside_a_report() {
    let place = Place::new();
    let chosen = place.temporary.join("chosen");
    fs::create_dir(&chosen).unwrap();
    let line = format!("{LONG} --dir {}", chosen.display());
    place.start(&line, &chosen).end(Signal::SIGTERM);
    assert_eq!(entries(&chosen), [] as [PathBuf; 0]);

    let databases = place.results.join("databases");
    let line = "reproduce --only 000-fig12 --out RESULTS";
    place.start(line, &databases).end(Signal::SIGTERM);
    assert!(!databases.exists());
}

#[test]
fn databases_of_a_killed_benchmark_are_named_and_removed_and_those_in_use_are_not() {
    let place = Place::new();
    let nothing = said(&place.run("clean"));
    assert!(nothing.contains("no benchmark has left"), "{nothing}");
    assert!(!said(&place.run(QUICK)).contains("foxton clean"));

    let in_use = place.start(LONG, &place.temporary);
    place.start(LONG, &place.temporary).end(Signal::SIGKILL);
    let all = entries(&place.temporary);
    assert_eq!(all.len(), 2);
    let is_in_use = |path: &&PathBuf| {
        let name = path.display().to_string();
        name.contains(&format!("foxton-bench-{}-", in_use.0.id()))
    };
    let kept = all.iter().find(is_in_use).unwrap();
    let left = all.iter().find(|path| !is_in_use(path)).unwrap();

    let next = said(&place.run(QUICK));
    assert!(
        next.contains("killed benchmarks have left 1 database") && next.contains("`foxton clean`"),
        "{next}"
    );
    assert!(left.exists(), "nothing is removed without a word");
    for (line, remains) in [("clean", true), ("clean --yes", false)] {
        let output = place.run(line);
        let text = said(&output);
        assert!(output.status.success(), "{text}");
        assert!(text.contains(&left.display().to_string()), "{text}");
        assert!(!text.contains(&kept.display().to_string()), "{text}");
        assert_eq!(left.exists(), remains, "{text}");
    }
    assert!(kept.join("db").exists());
    assert!(!said(&place.run(QUICK)).contains("foxton clean"));
    in_use.end(Signal::SIGTERM);
    assert_eq!(entries(&place.temporary), [] as [PathBuf; 0]);

    let missing = place.run("clean /nowhere/at/all");
    assert_eq!(missing.status.code(), Some(1), "{}", said(&missing));
}
