//! A process without a free file descriptor: operations that need one are refused, the database
//! continues, and nothing that was acknowledged is lost.
//!
//! A program of its own, because it takes all descriptors of its process. It runs itself again with
//! a low limit.
#![cfg(unix)]

#[path = "it/common/scratch.rs"]
mod scratch;

use std::cell::Cell;
use std::fs::File;
use std::process::Command;

use foxton::{Database, Durability, Error, Options, Table};
use scratch::Directory;

const ROWS: Table<u64, [u8]> = Table::new("rows");
const CHILD: &str = "FOXTON_FEW_DESCRIPTORS";
const NAME: &str = "without_descriptors_the_database_continues";

/// Takes every descriptor that is free.
fn take_all() -> Vec<File> {
    let open = || File::open("/dev/null").ok();
    std::iter::from_fn(open).collect()
}

fn lacks_descriptors(error: &Error) {
    assert_eq!(error.code(), "no_resources", "{error}");
    for words in ["file descriptors", "try again", "had no effect"] {
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn without_descriptors_the_database_continues() {
    if std::env::var_os(CHILD).is_none() {
        let script = format!("ulimit -n 64 && exec \"$0\" --exact {NAME} --nocapture");
        let child = Command::new("sh")
            .args(["-c", &script])
            .arg(std::env::current_exe().unwrap())
            .env(CHILD, "1")
            .status();
        assert!(child.unwrap().success());
        return;
    }
    for durability in Durability::ALL {
        let directory = Directory::new("descriptors");
        let mut options = Options::tiny();
        (options.durability, options.checkpoint_log_bytes) = (durability, u64::MAX);
        let db = Database::open_with(&directory.0, options.clone()).unwrap();
        let mut acknowledged = 0;
        let mut put = |refused: &dyn Fn(&Error) -> bool| {
            for _ in 0..300 {
                match db.run(|tx| tx.put(&ROWS, &acknowledged, &[1; 900]).map(drop)) {
                    Ok(()) => acknowledged += 1,
                    Err(error) if refused(&error) => return acknowledged,
                    Err(error) => panic!("{error}"),
                }
            }
            acknowledged
        };
        for round in 0..3 {
            let taken = take_all();
            // The log needs its next file. Later it has one that was made ahead, and each file that
            // is full leaves its descriptor to another.
            let was_refused = Cell::new(false);
            let rows = put(&|error| {
                lacks_descriptors(error);
                was_refused.replace(true);
                true
            });
            assert!(was_refused.get() || round > 0, "{rows} rows");
            assert_eq!(db.run(|tx| tx.range(&ROWS, ..).count()).unwrap(), rows);
            lacks_descriptors(&db.checkpoint().unwrap_err());
            lacks_descriptors(&db.backup_to(directory.0.join("backup")).unwrap_err());
            db.sync().unwrap();
            let again = Database::open_with(directory.0.with_extension("other"), Options::tiny());
            assert_eq!(again.unwrap_err().code(), "no_resources");
            drop(taken);
            put(&|_| false);
            db.checkpoint().unwrap();
        }
        drop(db);
        let db = Database::open_with(&directory.0, options).unwrap();
        assert_eq!(
            db.run(|tx| tx.range(&ROWS, ..).count()).unwrap(),
            acknowledged
        );
    }
}
