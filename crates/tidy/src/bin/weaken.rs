#![forbid(unsafe_code)]
//! Weakens each memory ordering in turn and wants a model to turn red.
//!
//! An ordering that no model needs is either superfluous or untested; this finds both. It copies
//! the repository to `target/weaken`. There it replaces, one place at a time, an ordering by the
//! next weaker ones, or removes or weakens a fence. Then every loom model of the crate runs. Each
//! line of the output is one replacement:
//!
//! * `red`    a model named after the ordering's number (`o1_..` for `// O1`) failed, as it should;
//! * `stray`  models failed, but none of that name;
//! * `GREEN`  none failed.
//!
//! Models that are ignored, since they take long, run only if they are named after the ordering's
//! number and none of the others of that name failed.
//!
//! Arguments select places: those whose `path:line` contains any of them. With anything stray or
//! green the command fails. A model that runs longer than a minute, or a long one longer than half
//! an hour, counts as failed: weakened, an algorithm may well hang.

use foxton_tidy::{
    source::{self, Source},
    tree::Tree,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The one file that has orderings only to pass them on.
const DOOR: &str = "crates/sync/src/shim.rs";

/// How long one model may run.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one of those may run that are ignored elsewhere.
const LONG: Duration = Duration::from_secs(1800);

/// Each ordering, and the next weaker ones.
const WEAKER: [(&str, &[&str]); 4] = [
    ("Acquire", &["Relaxed"]),
    ("Release", &["Relaxed"]),
    ("AcqRel", &["Acquire", "Release"]),
    ("SeqCst", &["AcqRel"]),
];

/// One place, and what is put there.
struct Weakening {
    krate: String,
    path: String,
    line: usize,
    /// The O-numbers beside it, in lower case, as test names begin.
    numbers: Vec<String>,
    what: String,
    text: String,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("weaken: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = Scratch::new(&root)?;
    let filters: Vec<String> = env::args().skip(1).collect();
    let chosen = |weakening: &Weakening| {
        let place = format!("{}:{}", weakening.path, weakening.line);
        filters.is_empty() || filters.iter().any(|filter| place.contains(filter))
    };
    let mut weakenings = weakenings(&scratch.tree);
    weakenings.retain(chosen);
    let crates: BTreeSet<&str> = weakenings.iter().map(|w| w.krate.as_str()).collect();
    for krate in crates {
        let failed = failing(&scratch.models(krate)?)?;
        if let Some(failed) = failed.first() {
            let what = format!("{failed} fails before anything is weakened");
            return Err(io::Error::other(what));
        }
    }
    let mut outcomes = BTreeMap::<&str, usize>::new();
    for weakening in &weakenings {
        scratch.write(&weakening.path, &weakening.text)?;
        let failed = scratch.failing_models(weakening);
        scratch.restore(&weakening.path)?;
        let failed = failed?;
        let outcome = weakening.judge(&failed);
        *outcomes.entry(outcome).or_default() += 1;
        let Weakening {
            path, line, what, ..
        } = weakening;
        println!(
            "{outcome:<6} {path}:{line}: {what}; failed: {}",
            list(&failed)
        );
    }
    println!("{} weakened: {outcomes:?}", weakenings.len());
    Ok(outcomes.keys().all(|outcome| *outcome == "red"))
}

fn list(failed: &[String]) -> String {
    match failed {
        [] => "nothing".to_owned(),
        failed => failed.join(", "),
    }
}

impl Weakening {
    fn judge(&self, failed: &[String]) -> &'static str {
        match failed {
            [] => "GREEN",
            failed if failed.iter().any(|model| self.is_named_by(model)) => "red",
            _ => "stray",
        }
    }

    /// Whether a model of this name is the one for this ordering. Without a number all are.
    fn is_named_by(&self, model: &str) -> bool {
        let name = model.rsplit("::").next().unwrap_or(model);
        let named = |number: &String| name.starts_with(&format!("{number}_"));
        self.numbers.is_empty() || self.numbers.iter().any(named)
    }
}

/// Every place where an ordering can be weaker, with each weaker one.
fn weakenings(tree: &Tree) -> Vec<Weakening> {
    let mut found = Vec::new();
    let modelled = |krate: &str| tree.texts().any(|(path, _)| is_model(path, krate));
    for (krate, path, source) in tree.sources() {
        if path == DOOR || !modelled(krate) {
            continue;
        }
        for (strong, weaker) in WEAKER {
            for at in source::words(&source.code, strong) {
                if source.is_test(at) || is_import(source, at) {
                    continue;
                }
                let line = source.line(at);
                let mut add = |what: String, text: String| {
                    let (krate, path) = (krate.to_owned(), path.to_owned());
                    let numbers = numbers(source, line);
                    found.push(Weakening {
                        krate,
                        path,
                        line,
                        numbers,
                        what,
                        text,
                    });
                };
                let fence = fence_around(source, at);
                for weak in weaker {
                    let mut text = source.text.clone();
                    match (fence, *weak) {
                        // There is no relaxed fence: it is taken out.
                        (Some(open), "Relaxed") => {
                            text.replace_range(open..open + "fence".len(), "drop");
                            add(format!("{strong} fence taken out"), text);
                        }
                        _ => {
                            text.replace_range(at..at + strong.len(), weak);
                            add(format!("{strong} to {weak}"), text);
                        }
                    }
                }
            }
        }
    }
    found.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    found
}

fn is_model(path: &str, krate: &str) -> bool {
    let tests = format!("crates/{krate}/tests/models/");
    path.starts_with(&tests) && path.ends_with(".rs")
}

fn is_import(source: &Source, at: usize) -> bool {
    let begin = source.code[..at]
        .rfind([';', '{', '}'])
        .map_or(0, |end| end + 1);
    // The last statement may be broken off by the brace of a list of imports.
    let begin = source.code[..begin]
        .trim_end_matches(['{', ':'])
        .rfind([';', '}'])
        .unwrap_or(begin);
    let statement = source.code[begin..at]
        .trim_start_matches([';', '}', '{'])
        .trim_start();
    statement.starts_with("use ") || statement.starts_with("pub use ")
}

/// Where the word `fence` stands, if the ordering at `at` is a fence's.
fn fence_around(source: &Source, at: usize) -> Option<usize> {
    let open = source.code[..at].rfind('(')?;
    let call = source.code[..open].trim_end();
    let is_argument = source.code[open..at].trim_start_matches('(').trim();
    let alone = is_argument.is_empty() || is_argument == "Ordering::";
    (alone && call.ends_with("fence")).then(|| call.len() - "fence".len())
}

/// The O-numbers in the comment on `line`.
fn numbers(source: &Source, line: usize) -> Vec<String> {
    let comment = source.comments.split('\n').nth(line - 1).unwrap_or("");
    let words = comment.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .filter(|word| word.len() > 1 && word.starts_with('O'))
        .filter(|word| word[1..].bytes().all(|byte| byte.is_ascii_digit()))
        .map(str::to_lowercase)
        .collect()
}

/// A copy of the repository to spoil.
struct Scratch {
    tree: Tree,
    copy: PathBuf,
    build: PathBuf,
}

impl Scratch {
    fn new(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        let tree = Tree::read(&root)?;
        let (copy, build) = (
            root.join("target/weaken/copy"),
            root.join("target/weaken/build"),
        );
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        let scratch = Self { tree, copy, build };
        for (path, text) in scratch.tree.texts() {
            let folder = scratch.copy.join(path);
            fs::create_dir_all(folder.parent().unwrap_or(&scratch.copy))?;
            scratch.write(path, text)?;
        }
        Ok(scratch)
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        fs::write(self.copy.join(path), text)
    }

    fn restore(&self, path: &str) -> io::Result<()> {
        self.write(path, self.tree.text(path).unwrap_or_default())
    }

    /// The names of the models that fail: of all that are not ignored, and if that leaves a doubt,
    /// of those that are and are named after the ordering.
    fn failing_models(&self, weakening: &Weakening) -> io::Result<Vec<String>> {
        let models = self.models(&weakening.krate)?;
        let mut failed = failing(&models)?;
        if weakening.judge(&failed) != "red" {
            let long = |model: &&Model| model.is_long && weakening.is_named_by(&model.name);
            for model in models.iter().filter(long) {
                if !passes(model)? {
                    failed.push(model.name.clone());
                }
            }
        }
        Ok(failed)
    }

    /// Builds the models of `krate` and lists them.
    fn models(&self, krate: &str) -> io::Result<Vec<Model>> {
        let mut models = Vec::new();
        for binary in self.build(krate)? {
            let long = list_models(&binary, &["--ignored"])?;
            let all = list_models(&binary, &[])?.into_iter();
            models.extend(all.map(|name| Model {
                binary: binary.clone(),
                is_long: long.contains(&name),
                name,
            }));
        }
        Ok(models)
    }

    /// Builds the models of `krate` and returns their binaries.
    fn build(&self, krate: &str) -> io::Result<Vec<PathBuf>> {
        let package = format!("foxton-{krate}");
        let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args([
                "test",
                "--release",
                "--no-run",
                "--test",
                "models",
                "-p",
                &package,
            ])
            .arg("--target-dir")
            .arg(&self.build)
            .current_dir(&self.copy)
            .env("RUSTFLAGS", "--cfg loom")
            // Many builds of little code: linking for speed would take most of the time.
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_TERM_COLOR", "never")
            .output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(io::Error::other(format!(
                "the models do not build:\n{told}"
            )));
        }
        let in_brackets = |line: &str| {
            let (_, rest) = line
                .trim_start()
                .strip_prefix("Executable")?
                .rsplit_once('(')?;
            Some(self.copy.join(rest.strip_suffix(')')?))
        };
        Ok(told.lines().filter_map(in_brackets).collect())
    }
}

/// One model.
struct Model {
    binary: PathBuf,
    name: String,
    /// It is ignored, since it takes long.
    is_long: bool,
}

/// The names of those that fail, of all that are not ignored.
fn failing(models: &[Model]) -> io::Result<Vec<String>> {
    let mut failed = Vec::new();
    for model in models.iter().filter(|model| !model.is_long) {
        if !passes(model)? {
            failed.push(model.name.clone());
        }
    }
    Ok(failed)
}

fn list_models(binary: &Path, which: &[&str]) -> io::Result<Vec<String>> {
    let output = Command::new(binary)
        .arg("--list")
        .args(which)
        .stderr(Stdio::null())
        .output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    Ok(told
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect())
}

/// Runs one model in a process of its own: weakened, it may do anything, crash and hang included.
fn passes(model: &Model) -> io::Result<bool> {
    let patience = if model.is_long { LONG } else { PATIENCE };
    let mut child = Command::new(&model.binary)
        .args(["--include-ignored", "--exact", &model.name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env("RUST_BACKTRACE", "0")
        .spawn()?;
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if begin.elapsed() > patience {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(2));
    }
}
