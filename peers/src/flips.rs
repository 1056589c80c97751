//! Harmed files, opened and read, each by a process of its own.
//!
//! A reader of a harmed database may see, from best to worst:
//!
//! * an error;
//! * the right rows;
//! * the rows of an earlier commit, without an error;
//! * rows that were never written, without an error;
//! * a process that panics or is killed by a signal;
//! * a process that does not end.
//!
//! If any call returns an error, the result is an error, whatever was read before.

use crate::{
    Outcome,
    engine::Engine,
    harm::{Files, Harm},
    rows::{COMMITS, after, mix},
};
use clap::Args;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// The action.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Databases of each engine for each harm.
    #[arg(long, default_value = "1000")]
    count: u64,
    /// Seed of the random choices.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Databases that are looked at at once.
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u64).range(1..))]
    threads: u64,
    /// Only this engine.
    #[arg(long)]
    engine: Option<String>,
    /// Where they lie.
    #[arg(long, default_value_os_t = env::temp_dir())]
    folder: PathBuf,
}

/// Arguments of a process that reads one database.
#[derive(Debug, Args)]
pub(crate) struct Orders {
    engine: String,
    folder: PathBuf,
    seed: u64,
}

/// The first argument of a process that reads one database.
pub(crate) const CHILD: &str = "read";
/// Harms to one database before the next is made.
const OF_ONE: u64 = 100;
/// Answers are statuses from here on: no panic and no other program ends with one of those.
const FIRST_STATUS: i32 = 10;
/// The status of a program that panicked.
const PANICKED: i32 = 101;
/// Longer than this is a hang.
const LIMIT: Duration = Duration::from_secs(120);
/// Memory that a reader may map.
const MOST_BYTES: u64 = 4 << 30;

/// How a harmed database answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Error,
    Right,
    Earlier,
    Wrong,
    Died,
    Hang,
}

const ANSWERS: [&str; 6] = [
    "error",
    "no effect",
    "earlier commit",
    "wrong data",
    "died",
    "hang",
];

type Counts = [[u64; ANSWERS.len()]; Harm::ALL.len()];

/// The process that reads: its answer is the status that it ends with.
pub(crate) fn child(orders: &Orders) -> Outcome<i32> {
    let (engine, seed) = (named(&orders.engine)?, orders.seed);
    let limit = rustix::process::Rlimit {
        current: Some(MOST_BYTES),
        maximum: Some(MOST_BYTES),
    };
    rustix::process::setrlimit(rustix::process::Resource::As, limit)?;
    let answer = match engine.read(&orders.folder) {
        Err(error) => {
            eprintln!("{error}");
            Answer::Error
        }
        Ok(seen) if seen.is(&after(seed, COMMITS)) => Answer::Right,
        Ok(seen) if (0..COMMITS).any(|commits| seen.is(&after(seed, commits))) => Answer::Earlier,
        Ok(_) => Answer::Wrong,
    };
    Ok(FIRST_STATUS + answer as i32)
}

fn named(name: &str) -> Outcome<Engine> {
    let found = Engine::ALL.into_iter().find(|engine| engine.name() == name);
    found.ok_or_else(|| format!("no engine is called {name}").into())
}

/// Harms, reads and counts, and prints what came of it.
pub(crate) fn run(plan: &Plan) -> Outcome {
    let folder = plan
        .folder
        .join(format!("foxton-peers-{}", std::process::id()));
    let engines = match &plan.engine {
        Some(name) => vec![named(name)?],
        None => Engine::ALL.to_vec(),
    };
    let total = plan.count * Harm::ALL.len() as u64;
    println!(
        "{total} harmed databases of each engine, seed {}",
        plan.seed
    );
    for engine in &engines {
        println!("{:>15}: {}", engine.name(), engine.version());
    }
    println!();
    print!("{:>15} {:>10}", "", "");
    ANSWERS.iter().for_each(|answer| print!(" {answer:>15}"));
    println!();
    for engine in engines {
        let start = Instant::now();
        let counts = harmed(engine, plan, &folder)?;
        for (harm, row) in Harm::ALL.iter().zip(&counts) {
            print_row(engine.name(), &format!("{harm:?}"), row);
        }
        let sum = |answer: usize| counts.iter().map(|row| row[answer]).sum();
        print_row(engine.name(), "all", &std::array::from_fn(sum));
        eprintln!("{} took {:.0?}", engine.name(), start.elapsed());
    }
    Ok(fs::remove_dir_all(folder)?)
}

fn print_row(engine: &str, harm: &str, row: &[u64; ANSWERS.len()]) {
    print!("{engine:>15} {harm:>10}");
    row.iter().for_each(|count| print!(" {count:>15}"));
    println!();
}

fn harmed(engine: Engine, plan: &Plan, folder: &Path) -> Outcome<Counts> {
    let (next, counts) = (AtomicU64::new(0), Mutex::new(Counts::default()));
    let total = plan.count * Harm::ALL.len() as u64;
    let work = |thread: u64| -> Outcome {
        let place = folder.join(format!("{}-{thread}", engine.name()));
        let mut original = None;
        loop {
            // Relaxed: numbers are handed out, and lead to no memory.
            let n = next.fetch_add(1, Relaxed);
            if n >= total {
                return Ok(());
            }
            let seed = mix(plan.seed ^ mix(n / OF_ONE));
            let files = match &original {
                Some((of, files)) if *of == seed => files,
                _ => &original.insert((seed, whole(engine, &place, seed)?)).1,
            };
            let harm = (n % Harm::ALL.len() as u64) as usize;
            let mut files = files.clone();
            files.harm(Harm::ALL[harm], mix(plan.seed) ^ n);
            files.write(&place)?;
            let answer = ask(engine, &place, seed)?;
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts[harm][answer as usize] += 1;
        }
    };
    thread::scope(|scope| -> Outcome {
        let work = &work;
        let workers: Vec<_> = (0..plan.threads)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok(counts.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// A database, closed as it has to be, and the proof that it is read right if nothing is done to
/// it.
fn whole(engine: Engine, place: &Path, seed: u64) -> Outcome<Files> {
    if place.exists() {
        fs::remove_dir_all(place)?;
    }
    fs::create_dir_all(place)?;
    engine.fill(place, seed)?;
    let files = Files::read(place)?;
    files.write(place)?;
    match ask(engine, place, seed)? {
        Answer::Right => Ok(files),
        other => Err(format!("{} unharmed: {other:?}", engine.name()).into()),
    }
}

fn ask(engine: Engine, place: &Path, seed: u64) -> Outcome<Answer> {
    let mut child = Command::new(env::current_exe()?)
        .args([CHILD, engine.name()])
        // To find the names of a stack takes longer than everything else.
        .env("RUST_BACKTRACE", "0")
        .arg(place)
        .arg(seed.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let Some(status) = ended(&mut child)? else {
        child.kill()?;
        child.wait()?;
        return Ok(Answer::Hang);
    };
    let all = [Answer::Error, Answer::Right, Answer::Earlier, Answer::Wrong];
    match status.code() {
        Some(PANICKED) => Ok(Answer::Died),
        Some(code) => {
            let answer = |&answer: &Answer| FIRST_STATUS + answer as i32 == code;
            let answer = all.into_iter().find(answer);
            answer.ok_or_else(|| format!("{}: the reader itself failed", engine.name()).into())
        }
        // By a signal.
        None => Ok(Answer::Died),
    }
}

/// How it ended, unless it takes too long.
fn ended(child: &mut Child) -> Outcome<Option<ExitStatus>> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_micros(500));
    }
    Ok(None)
}
