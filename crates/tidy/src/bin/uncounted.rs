#![forbid(unsafe_code)]
//! Shows that the account of critical sections costs nothing where it is off, and what it costs
//! where it is on.
//!
//! Three programs are built from the same sources and the same example of `lab`, `passages`. *On*
//! has the feature `account`, *off* does not. *Without* is built from a copy that has no statement
//! which counts a passage. Then
//!
//! * callgrind counts the instructions of two runs of different length; their difference leaves out
//!   the start of the program. The runs are ten locks and their release by two lock managers, and
//!   an update transaction of TATP. The smallest and the largest of several differences are
//!   printed;
//! * the same is timed, the programs by turns, and each pass of *off* is divided by that of
//!   *without*.
//!
//! ```text
//! cargo run --release -p foxton-tidy --bin uncounted
//! cargo run --release -p foxton-tidy --bin uncounted -- --passes 31 --again
//! ```
//!
//! Needs valgrind for the instructions, and says so without it. If *off* runs a half per cent more
//! instructions than *without* in its best difference, the command fails.

use foxton_tidy::{
    source::{Source, words},
    tree::Tree,
};
use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// The crates that count.
const COUNTING: [&str; 5] = ["sync", "lock", "log", "store", "foxton"];
/// Where counting is written, which stays.
const DOOR: &str = "crates/sync/src/site.rs";
/// The calls that count.
const CALLS: [&str; 2] = ["passed", "passed_many"];
/// A program, its title, and its repetitions under callgrind and in a timed run.
const RUNS: [(&str, &str, u64, u64); 3] = [
    ("bucket", "ten locks of bucket", 5_000, 300_000),
    ("direct", "ten locks of direct", 5_000, 1_000_000),
    ("tatp", "TATP UpdateLocation", 5_000, 100_000),
];
/// The shorter of two runs of callgrind is this part of the longer.
const SHORTER: u64 = 10;
/// Differences of instructions.
const DIFFERENCES: usize = 3;
/// Instructions that *off* may run per instruction of *without*; repeated runs differ by less.
const SLACK: f64 = 1.005;

/// Timed runs of each, if nobody says how many.
const PASSES: usize = 15;
const USAGE: &str = "say --passes NUMBER, or --again to measure what was built the last time";

/// The three programs, and where they are.
const NAMES: [&str; 3] = ["on", "off", "without"];
const PLACE: &str = "target/uncounted";
const ON: usize = 0;
const OFF: usize = 1;
const WITHOUT: usize = 2;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("uncounted: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<bool> {
    let (mut passes, mut is_built) = (PASSES, false);
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let mut count = || words.next()?.parse().ok().filter(|&count| count > 0);
        match word.as_str() {
            "--again" => is_built = true,
            "--passes" => passes = count().ok_or_else(|| io::Error::other(USAGE))?,
            _ => return Err(io::Error::other(USAGE)),
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    let programs = match is_built {
        true => NAMES.map(|name| root.join(PLACE).join(name)),
        false => programs(&root)?,
    };
    let mut is_nil = true;
    for (what, name, counted, timed) in RUNS {
        match instructions(&programs, (what, counted)) {
            Ok(found) => {
                let [on, off, without] = &found;
                println!(
                    "{name}: {} instructions on, {} off, {} without",
                    told(on, 1),
                    told(off, 1),
                    told(without, 1)
                );
                if least(off) > least(without) * SLACK {
                    is_nil = false;
                    println!("  FAILED: what is off costs instructions");
                }
            }
            Err(error) => println!("{name}: instructions are not counted: {error}"),
        }
        let nanos = nanos(&programs, (what, timed), passes)?;
        let against = |which: usize| -> Vec<f64> {
            let pairs = nanos[which].iter().zip(&nanos[WITHOUT]);
            pairs.map(|(one, without)| one / without).collect()
        };
        println!(
            "{name}: {} ns without; off ÷ without {}, on ÷ without {}",
            told(&nanos[WITHOUT], 0),
            told(&against(OFF), 3),
            told(&against(ON), 3)
        );
    }
    Ok(is_nil)
}

/// Builds the three, side by side under `target/uncounted`.
fn programs(root: &Path) -> io::Result<[PathBuf; 3]> {
    let place = root.join(PLACE);
    let copy = place.join("copy");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    let tree = Tree::read(root)?;
    for (path, text) in tree.texts() {
        let file = copy.join(path);
        fs::create_dir_all(file.parent().unwrap_or(&copy))?;
        fs::write(file, text)?;
    }
    let on = built(&copy, &place, NAMES[ON], &["--features", "account"])?;
    let off = built(&copy, &place, NAMES[OFF], &[])?;
    let mut taken = 0;
    for (krate, path, source) in tree.sources() {
        if COUNTING.contains(&krate) && path != DOOR {
            let (text, here) = without_counting(source);
            taken += here;
            if here > 0 {
                fs::write(copy.join(path), text)?;
            }
        }
    }
    println!("{taken} places that count were taken out");
    let without = built(&copy, &place, NAMES[WITHOUT], &[])?;
    Ok([on, off, without])
}

fn built(copy: &Path, place: &Path, name: &str, features: &[&str]) -> io::Result<PathBuf> {
    eprintln!("building: {name}");
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--quiet", "-p", "foxton-lab"])
        .args(["--example", "passages"])
        .args(features)
        .arg("--target-dir")
        .arg(place.join("build"))
        .current_dir(copy)
        // A parameter that was there to be counted is used no more.
        .env("RUSTFLAGS", "-Awarnings")
        .status()?;
    if !status.success() {
        return Err(io::Error::other(format!(
            "the program \"{name}\" does not build"
        )));
    }
    let kept = place.join(name);
    fs::copy(place.join("build/release/examples/passages"), &kept)?;
    Ok(kept)
}

/// The file with every expression that counts replaced by nothing, each line where it was; and how
/// many those were.
fn without_counting(source: &Source) -> (String, usize) {
    let mut text = source.text.clone();
    let mut taken = 0;
    for call in CALLS {
        for at in words(&source.code, call) {
            if let Some((from, to)) = counting(&source.code, at, call) {
                let breaks = source.code[from..to].matches('\n').count();
                let nothing = format!("(){}", "\n".repeat(breaks));
                let blanks = (to - from).saturating_sub(nothing.len());
                text.replace_range(from..to, &format!("{nothing}{}", " ".repeat(blanks)));
                taken += 1;
            }
        }
    }
    (text, taken)
}

/// From where to where the expression reaches whose method, at `at`, counts; nothing if it is
/// another's.
fn counting(code: &str, at: usize, call: &str) -> Option<(usize, usize)> {
    let open = at + call.len();
    if !code[open..].starts_with('(') {
        return None;
    }
    let before = code[..at].trim_end().strip_suffix('.')?.trim_end();
    if !["account()", ".account"]
        .iter()
        .any(|end| before.ends_with(end))
    {
        return None;
    }
    let mut depth = 0;
    let close = code[open..].char_indices().find(|&(_, letter)| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        depth == 0
    })?;
    // The receiver: names, points and calls without arguments, over line ends where a point
    // follows.
    let mut from = before.len();
    loop {
        let rest =
            code[..from].trim_end_matches(|c: char| c.is_alphanumeric() || "_.()".contains(c));
        let is_continued = code[rest.len()..from].starts_with('.');
        from = match is_continued {
            true => rest.trim_end().len(),
            false => break Some((rest.len(), open + close.0 + 1)),
        };
    }
}

/// Instructions for each time, several differences of each program.
fn instructions(programs: &[PathBuf; 3], (what, times): (&str, u64)) -> io::Result<[Vec<f64>; 3]> {
    let mut found = [const { Vec::new() }; 3];
    for _ in 0..DIFFERENCES {
        for (program, found) in programs.iter().zip(&mut found) {
            let short = collected(program, what, times / SHORTER)?;
            let long = collected(program, what, times)?;
            found.push((long - short) / (times - times / SHORTER) as f64);
        }
    }
    Ok(found)
}

fn collected(program: &Path, what: &str, times: u64) -> io::Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([what, &times.to_string()])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let number = said.lines().find_map(|line| line.split_once("Collected :"));
    let number = number.and_then(|(_, number)| number.trim().parse().ok());
    number.ok_or_else(|| io::Error::other(format!("callgrind says {said}")))
}

/// Nanoseconds for each time, pass by pass; the programs take turns, and each begins a third of the
/// passes.
fn nanos(
    programs: &[PathBuf; 3],
    (what, times): (&str, u64),
    passes: usize,
) -> io::Result<[Vec<f64>; 3]> {
    let mut found = [const { Vec::new() }; 3];
    for pass in 0..passes {
        for turn in 0..programs.len() {
            let which = (pass + turn) % programs.len();
            let output = Command::new(&programs[which])
                .args([what, &times.to_string()])
                .output()?;
            let said = String::from_utf8_lossy(&output.stdout);
            let number = said.trim().parse();
            found[which].push(number.map_err(|_| io::Error::other(format!("it says {said}")))?);
        }
    }
    Ok(found)
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The median and the extremes.
fn told(values: &[f64], digits: usize) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (first, middle, last) = (
        sorted[0],
        sorted[sorted.len() / 2],
        sorted[sorted.len() - 1],
    );
    format!("{middle:.digits$} ({first:.digits$} to {last:.digits$})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(text: &str) -> (String, usize) {
        let (text, taken) = without_counting(&Source::new(text));
        let blanks_are_one: Vec<&str> = text.split_whitespace().collect();
        let text = blanks_are_one.join(" ");
        (text.replace(" ;", ";").replace(" ,", ","), taken)
    }

    #[test]
    fn every_form_in_which_a_passage_is_counted_is_taken_out_and_nothing_else() {
        for (text, rest) in [
            (
                "{ worker.account().passed(&TAIL); next() }",
                "{ (); next() }",
            ),
            (
                "{ self.1.account().passed_many(&TAIL, 2 * (3 + n)); }",
                "{ (); }",
            ),
            ("{ self.account.passed(&TAIL); }", "{ (); }"),
            (
                "{\n    self.worker\n        .account()\n        .passed(&TAIL);\n    go()\n}",
                "{ (); go() }",
            ),
            (
                "f(|state, site| state.worker.account().passed(site), 3)",
                "f(|state, site| (), 3)",
            ),
            (
                "match x { A => w.account().passed(&T), _ => {} }",
                "match x { A => (), _ => {} }",
            ),
            ("if x { w.account().passed(&T) }", "if x { () }"),
        ] {
            assert_eq!(left(text), (rest.to_owned(), 1), "{text}");
        }
        for text in [
            "fn passed(&self, site: &'static Site) {}",
            "walker.has_passed(stamp); point.passed(3);",
            "// worker.account().passed(&TAIL);",
            "let account = worker.account();",
        ] {
            assert_eq!(left(text).1, 0, "{text}");
        }
    }

    #[test]
    fn lines_stay_where_they_were() {
        let text = "{\n    self.worker\n        .account()\n        .passed(&TAIL);\n    go()\n}";
        let (rest, _) = without_counting(&Source::new(text));
        assert_eq!(rest.len(), text.len());
        assert_eq!(rest.lines().position(|line| line.contains("go()")), Some(4));
    }
}
