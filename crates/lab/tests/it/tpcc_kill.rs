//! A process that runs tpcc is killed in the middle, again and again: all acknowledged transactions
//! are there, and all conditions hold, whatever was in progress.
//!
//! The process is this program once more. It writes acknowledgements to its output, which this one
//! reads: output from before the kill is read after it.
//!
//! The quick form is tiny, and each victim is killed after a hundred acknowledgements. The full
//! form has the benchmark's own size and kills after seconds of work. It runs over the default
//! database and then over each manager in turn: `cargo test --release -p foxton-lab --test
//! it tpcc_kill:: -- --ignored --nocapture`. It has two warehouses, ten seconds and three kills
//! unless `TPCC_KILL_WAREHOUSES`, `TPCC_KILL_SECONDS` or `TPCC_KILLS` give other numbers.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write, stdout},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use foxton::{Database, Durability, LockManagerKind, Options};
use foxton_lab::{
    driver::Client,
    measure::outcome::Outcome,
    progress::Audience,
    workload::{
        loading::Loading,
        tpcc::{
            Scale, WAREHOUSES,
            acknowledged::{Acknowledged, Event, Witness},
            check::{faults, survived},
            client::{Manner, Mix, TpccClient},
            load::{declare, load},
        },
    },
};

const SEED: u64 = 4;
const CLIENTS: u32 = 64;
/// One over each lock manager.
const KILLS: u32 = LockManagerKind::ALL.len() as u32;
/// Acknowledgements that must come before a kill.
const EVENTS: usize = 100;

/// The environment that gives the victim its database, its clients, and the number of warehouses of
/// full size, if it is not tiny.
const FOLDER: &str = "TPCC_VICTIM_FOLDER";
const ROUND: &str = "TPCC_VICTIM_ROUND";
const WAREHOUSES_OF: &str = "TPCC_VICTIM_WAREHOUSES";

/// Prefix of an event on a line of the victim's output.
const MARK: &str = "acknowledged";

/// The workload, and the moment of the kill.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// After this many acknowledgements, [`EVENTS`].
    Tiny,
    /// After this time, but not before there were [`EVENTS`].
    Full { warehouses: u32, after: Duration },
}

impl Form {
    fn scale(self) -> Scale {
        match self {
            Form::Tiny => Scale::tiny(2),
            Form::Full { warehouses, .. } => Scale::full(warehouses),
        }
    }

    fn open(self, folder: &Path, round: u32) -> Database {
        let all = LockManagerKind::ALL;
        let mut options = match self {
            Form::Tiny => Options::tiny(),
            Form::Full { .. } => Options::default(),
        };
        declare(&mut options.indexes);
        options.durability = Durability::Sync;
        // There are checkpoints in between too.
        match self {
            Form::Tiny => {
                options.lock_manager = all[round as usize];
                options.checkpoint_log_bytes = 64 << 10;
            }
            Form::Full { .. } => {
                if let Some(others) = round.checked_sub(1) {
                    options.lock_manager = all[others as usize % all.len()];
                }
                options.checkpoint_log_bytes = 4 << 20;
            }
        }
        Database::open_with(folder, options).unwrap()
    }

    fn is_enough(self, events: usize, since: Instant) -> bool {
        match self {
            Form::Tiny => events >= EVENTS,
            Form::Full { after, .. } => events >= EVENTS && since.elapsed() >= after,
        }
    }
}

#[test]
fn killed_in_the_middle_nothing_acknowledged_is_lost_and_all_conditions_hold() {
    kill_all(Form::Tiny, KILLS);
}

/// The number that `name` has in the environment, or this one.
fn number(name: &str, usual: u32) -> u32 {
    let said = env::var(name).ok();
    said.map_or(usual, |said| said.parse().expect("a number"))
}

#[test]
#[ignore = "takes minutes: cargo test --release -p foxton-lab --test it tpcc_kill:: -- --ignored --nocapture"]
fn killed_at_full_size_nothing_acknowledged_is_lost_and_all_conditions_hold() {
    let form = Form::Full {
        warehouses: number("TPCC_KILL_WAREHOUSES", 2),
        after: Duration::from_secs(number("TPCC_KILL_SECONDS", 10).into()),
    };
    kill_all(form, number("TPCC_KILLS", 3));
}

/// Kills one after another, and after each has the database judged.
fn kill_all(form: Form, kills: u32) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("db");
    let mut events = Vec::new();
    for round in 0..kills {
        events.extend(kill_one(form, &folder, round));
        let begun = Instant::now();
        let db = form.open(&folder, round);
        let manager = db.options().lock_manager;
        println!(
            "kill {round}, over {manager}: {} acknowledged so far; opened in {:.1?}",
            events.len(),
            begun.elapsed()
        );
        assert_eq!(
            faults(&db, form.scale(), SEED, None).unwrap(),
            [],
            "kill {round}"
        );
        assert_eq!(
            survived::acknowledged(&db, &events).unwrap(),
            [],
            "kill {round}"
        );
        assert_eq!(events.len(), unique(&events), "kill {round}");
    }
    assert!(events.len() >= EVENTS * kills as usize);
}

/// Number of them that are about different rows.
fn unique(events: &[Event]) -> usize {
    let mut words: Vec<String> = events.iter().map(words).collect();
    words.sort_unstable();
    words.dedup();
    words.len()
}

/// Starts a victim, kills it when enough was acknowledged, and returns all that was.
fn kill_one(form: Form, folder: &Path, round: u32) -> Vec<Event> {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "tpcc_kill::victim", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped());
    if let Form::Full { warehouses, .. } = form {
        command.env(WAREHOUSES_OF, warehouses.to_string());
    }
    let mut victim = command.spawn().unwrap();
    let output = BufReader::new(victim.stdout.take().unwrap());
    let mut events = Vec::new();
    let (mut since, mut is_killed) = (Instant::now(), false);
    for line in output.lines() {
        // The kill may have cut the last one short.
        let Ok(line) = line else { break };
        if events.is_empty() {
            since = Instant::now(); // Until then it loads, or restarts.
        }
        events.extend(event(&line));
        if !is_killed && form.is_enough(events.len(), since) {
            victim.kill().unwrap();
            is_killed = true;
        }
    }
    let status = victim.wait().unwrap();
    assert!(is_killed, "the victim ended by itself: {status}");
    events
}

fn words(event: &Event) -> String {
    match event {
        Event::NewOrder {
            order: (w, d, o),
            customer,
            lines,
        } => {
            format!("{MARK} order {w} {d} {o} {customer} {lines} .")
        }
        Event::Payment {
            number: (who, n),
            customer: (w, d, c),
            amount,
        } => {
            format!("{MARK} payment {who} {n} {w} {d} {c} {amount} .")
        }
        Event::Delivery { order: (w, d, o) } => format!("{MARK} delivery {w} {d} {o} ."),
    }
}

/// Parses a line of [`words`]; `None` for other lines, and for a truncated one.
fn event(line: &str) -> Option<Event> {
    let words: Vec<&str> = line
        .strip_prefix(MARK)?
        .strip_suffix('.')?
        .split_whitespace()
        .collect();
    let (kind, numbers) = words.split_first()?;
    let numbers: Vec<i64> = numbers.iter().map(|word| word.parse().unwrap()).collect();
    let key = |from: usize| {
        (
            numbers[from] as u32,
            numbers[from + 1] as u8,
            numbers[from + 2] as u32,
        )
    };
    Some(match *kind {
        "order" => Event::NewOrder {
            order: key(0),
            customer: numbers[3] as u32,
            lines: numbers[4] as u8,
        },
        "payment" => Event::Payment {
            number: (numbers[0] as u32, numbers[1] as u64),
            customer: key(2),
            amount: numbers[5],
        },
        _ => Event::Delivery { order: key(0) },
    })
}

/// Runs until killed.
#[test]
#[ignore = "the others start and kill it; alone it does nothing: cargo test -p foxton-lab --test it tpcc_kill:: -- --ignored"]
fn victim() {
    let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let round: u32 = env::var(ROUND).unwrap().parse().unwrap();
    fs::create_dir_all(&folder).unwrap();
    let form = match number(WAREHOUSES_OF, 0) {
        0 => Form::Tiny,
        warehouses => Form::Full {
            warehouses,
            after: Duration::MAX,
        },
    };
    let (db, scale) = (form.open(&folder, round), form.scale());
    if db.run(|tx| tx.get(&WAREHOUSES, &1)).unwrap().is_none() {
        let progress = Audience::Nobody.count("", 0, "");
        load(&Loading::new(&db, 2, &progress), scale, SEED).unwrap();
    }
    let witness: Witness = Arc::new(|event| {
        let line = words(event) + "\n";
        let mut out = stdout().lock();
        out.write_all(line.as_bytes())
            .and_then(|()| out.flush())
            .unwrap();
    });
    thread::scope(|scope| {
        for number in round * CLIENTS..(round + 1) * CLIENTS {
            let (db, witness) = (db.clone(), witness.clone());
            scope.spawn(move || {
                let how = (scale, Manner::usual(Mix::Full));
                let client = TpccClient::new(db, how, SEED, number, Acknowledged::default());
                let mut client = client.watched(witness);
                loop {
                    let ended = client.transaction();
                    assert_ne!(ended.outcome, Outcome::Error, "{:?}", ended.failure);
                }
            });
        }
    });
}
