//! A process that runs tpcc is killed in the middle, again and again: what it was told is there, and
//! all conditions hold, whatever was half done.
//!
//! The process is this program once more. It writes what was acknowledged to its output, which this one
//! reads: what was written before the kill is read after it.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write, stdout},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
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
/// What must have been acknowledged before a kill comes.
const EVENTS: usize = 100;

/// What tells the victim where the database is, and which of its clients it is to run.
const FOLDER: &str = "TPCC_VICTIM_FOLDER";
const ROUND: &str = "TPCC_VICTIM_ROUND";

/// What stands before the words of an event on a line of the victim's output.
const MARK: &str = "acknowledged";

fn scale() -> Scale {
    Scale::tiny(2)
}

fn open(folder: &Path, round: u32) -> Database {
    let mut options = Options::tiny();
    declare(&mut options.indexes);
    options.durability = Durability::Sync;
    options.lock_manager = LockManagerKind::ALL[round as usize];
    // Checkpoints come in between, too.
    options.checkpoint_log_bytes = 64 << 10;
    Database::open_with(folder, options).unwrap()
}

#[test]
fn killed_in_the_middle_nothing_acknowledged_is_lost_and_all_conditions_hold() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("db");
    let mut events = Vec::new();
    for round in 0..KILLS {
        events.extend(kill_one(&folder, round));
        let db = open(&folder, round);
        assert_eq!(
            faults(&db, scale(), SEED, None).unwrap(),
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
    assert!(events.len() >= EVENTS * KILLS as usize);
}

/// How many of them are about different rows.
fn unique(events: &[Event]) -> usize {
    let mut words: Vec<String> = events.iter().map(words).collect();
    words.sort_unstable();
    words.dedup();
    words.len()
}

/// Starts a victim, kills it when enough was acknowledged, and returns all that was.
fn kill_one(folder: &Path, round: u32) -> Vec<Event> {
    let mut victim = Command::new(env::current_exe().unwrap())
        .args(["--exact", "victim", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(victim.stdout.take().unwrap());
    let mut events = Vec::new();
    for line in output.lines() {
        // The kill may have cut the last one short.
        let Ok(line) = line else { break };
        events.extend(event(&line));
        if events.len() == EVENTS {
            victim.kill().unwrap();
        }
    }
    let status = victim.wait().unwrap();
    assert!(
        events.len() >= EVENTS,
        "the victim ended by itself: {status}"
    );
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

/// Reads what [`words`] wrote; `None` for other lines, and for one that was cut short.
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
#[ignore = "the other test starts and kills it; alone: cargo test -p foxton-lab --test tpcc_kill -- --ignored"]
fn victim() {
    let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let round: u32 = env::var(ROUND).unwrap().parse().unwrap();
    fs::create_dir_all(&folder).unwrap();
    let db = open(&folder, round);
    if db.run(|tx| tx.get(&WAREHOUSES, &1)).unwrap().is_none() {
        let progress = Audience::Nobody.count("", 0, "");
        load(&Loading::new(&db, 2, &progress), scale(), SEED).unwrap();
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
                let how = (scale(), Manner::usual(Mix::Full));
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
