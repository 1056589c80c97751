//! A database much larger than the memory of its pages: opening, restart, and the length of its
//! file.
//!
//! ```text
//! cargo run --release -p foxton --example large -- /var/tmp/large 10240
//! ```
//!
//! It fills the directory, which it makes and removes, with so many MiB of rows of 1,000 bytes in
//! one paged table. A fortieth of that is the memory for pages, at least 1 MiB, and the log of the
//! process that is killed. Without arguments it takes 16 MiB in a temporary directory, which shows
//! that it works, and no more. It measures
//!
//! * opening after a close, up to the first row that is read, with a cold page cache;
//! * opening after a kill, beside reading that log and as many pages at random
//!   as the killed process had changed, by two threads, from the same cold files;
//! * the length of the file beside the bytes of keys and values after every row of a smaller table
//!   was replaced ten times, before and after `shrink`.

use foxton::{Database, Durability, Options, Table};
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::{Duration, Instant};
use std::{env, thread};

const ROWS: Table<u64, [u8]> = Table::new("rows").paged();
const ROW_BYTES: usize = 1_000;
const PAGE_BYTES: u64 = 8 << 10;
/// How often each row of the smaller table is replaced.
const TIMES: u64 = 10;

/// Where, and how much.
struct Large {
    directory: PathBuf,
    mib: u64,
}

impl Large {
    fn rows(&self) -> u64 {
        (self.mib << 20) / ROW_BYTES as u64
    }

    /// Bytes of memory for pages, and of log.
    fn part(&self) -> u64 {
        (self.mib << 20) / 40
    }

    fn options(&self) -> Options {
        let mut options = Options::default();
        options.durability = Durability::Buffered;
        options.page_memory = (self.part() as usize).max(1 << 20);
        options
    }
}

/// A sequence of numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn value(seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let words = (0..ROW_BYTES / 8).map(|_| random.below(u64::MAX));
    words.flat_map(u64::to_le_bytes).collect()
}

fn fill(db: &Database, rows: u64) -> foxton::Result<()> {
    let start = Instant::now();
    for first in (0..rows).step_by(500) {
        db.run(|tx| {
            (first..rows.min(first + 500)).try_for_each(|key| tx.put(&ROWS, &key, &value(key)))
        })?;
        if first % 500_000 == 0 {
            let seconds = start.elapsed().as_secs();
            eprint!("\r{first} of {rows} rows, {seconds} s ");
        }
    }
    eprintln!("\r{rows} rows, {} s           ", start.elapsed().as_secs());
    Ok(())
}

/// Removes the files of the directory from the page cache.
fn forget(directory: &Path) {
    for entry in fs::read_dir(directory).expect("the directory").flatten() {
        if let Ok(file) = File::open(entry.path())
            && file.metadata().is_ok_and(|data| data.is_file())
        {
            file.sync_all().expect("a sync");
            fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
        }
    }
}

impl Large {
    /// Opens the database and reads a row.
    fn open(&self) -> foxton::Result<(Database, Duration)> {
        forget(&self.directory);
        let start = Instant::now();
        let db = Database::open_with(&self.directory, self.options())?;
        let row = db.run(|tx| tx.get(&ROWS, &(self.rows() / 2)))?;
        assert!(row.is_some(), "the row is there");
        Ok((db, start.elapsed()))
    }

    /// Updates random rows until the log has grown enough, and ends without closing.
    fn work_and_die(&self) -> foxton::Result<()> {
        let mut own = self.options();
        own.checkpoint_log_bytes = 16 * self.part();
        let db = Database::open_with(&self.directory, own)?;
        db.checkpoint()?;
        let (mut random, mut step) = (Random(7), 0);
        let before = db.stats().log.bytes;
        while db.stats().log.bytes - before < self.part() {
            db.run(|tx| {
                (0..100).try_for_each(|_| {
                    step += 1;
                    tx.put(&ROWS, &random.below(self.rows()), &value(step))
                })
            })?;
        }
        db.sync()?;
        process::abort();
    }
}

/// Returns the time in which two threads read files of the log and so many pages of `rows`.
fn read_bare(directory: &Path, pages: u64) -> Duration {
    forget(directory);
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; 1 << 20];
            for path in segments(directory) {
                let file = File::open(path).expect("a file of the log");
                let mut at = 0;
                while let Ok(count @ 1..) = file.read_at(&mut buffer, at) {
                    at += count as u64;
                }
            }
        });
        for seed in [1, 2] {
            scope.spawn(move || {
                let file = File::open(directory.join("rows")).expect("the pages");
                let count = file.metadata().expect("its length").len() / PAGE_BYTES;
                let (mut random, mut buffer) = (Random(seed), vec![0; PAGE_BYTES as usize]);
                for _ in 0..pages / 2 {
                    let page = random.below(count);
                    file.read_exact_at(&mut buffer, page * PAGE_BYTES)
                        .expect("a page");
                }
            });
        }
    });
    start.elapsed()
}

/// Returns the files of the log.
fn segments(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory").flatten();
    let is_log = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("log"))
    };
    entries.map(|entry| entry.path()).filter(is_log).collect()
}

impl Large {
    /// Measures the file of a table a fiftieth as large, of which each row is replaced.
    fn replace(&self) -> foxton::Result<()> {
        let (directory, rows) = (self.directory.join("replaced"), self.rows() / 50);
        fs::create_dir_all(&directory).expect("a directory");
        let db = Database::open_with(&directory, self.options())?;
        let mut random = Random(3);
        fill(&db, rows)?;
        // In another order each time, so that leaves split and merge anywhere.
        for _ in 0..TIMES * rows / 20 {
            let keys: Vec<u64> = (0..20).map(|_| random.below(rows)).collect();
            db.run(|tx| {
                keys.iter()
                    .try_for_each(|key| tx.delete(&ROWS, key).map(drop))
            })?;
            db.run(|tx| {
                let mut keys = keys.iter();
                keys.try_for_each(|key| tx.put(&ROWS, key, &value(key + 1)))
            })?;
        }
        let live = rows as f64 * (8 + ROW_BYTES) as f64;
        let pages = db.stats().pages.expect("a paged table");
        let before = (pages.file_pages * PAGE_BYTES) as f64;
        let start = Instant::now();
        let after = db.shrink()?.bytes_after as f64;
        let time = start.elapsed();
        println!(
            "file ÷ rows after {TIMES} replacements: {:.2}",
            before / live
        );
        println!(
            "file ÷ rows after shrinking: {:.2} ({time:.1?})",
            after / live
        );
        db.close()?;
        fs::remove_dir_all(&directory).expect("it was made");
        Ok(())
    }

    fn measure(&self) -> foxton::Result<()> {
        self.replace()?;
        let db = Database::open_with(&self.directory, self.options())?;
        fill(&db, self.rows())?;
        db.close()?;
        for _ in 0..3 {
            let (db, closed) = self.open()?;
            db.close()?;
            println!("opening after a close: {closed:.2?}");
        }
        for _ in 0..3 {
            let mut child = Command::new(env::current_exe().expect("this program"));
            child
                .arg(&self.directory)
                .args([&self.mib.to_string(), "die"]);
            let ended = child.status().expect("a process");
            assert!(!ended.success(), "it is killed");
            let (db, killed) = self.open()?;
            let read = db.stats().pages.expect("a paged table").reads;
            db.close()?;
            let bare = read_bare(&self.directory, read);
            let ratio = killed.as_secs_f64() / bare.as_secs_f64();
            println!(
                "opening after a kill: {killed:.2?}; {read} pages and the log: {bare:.2?}; {ratio:.2}"
            );
        }
        Ok(())
    }
}

fn main() -> foxton::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let large = match &arguments[..] {
        [] => Large {
            directory: env::temp_dir().join(format!("foxton-large-{}", process::id())),
            mib: 16,
        },
        [directory, mib, ..] if mib.parse::<u64>().is_ok_and(|mib| mib >= 16) => Large {
            directory: PathBuf::from(directory),
            mib: mib.parse().expect("it was parsed"),
        },
        _ => {
            eprintln!("name a directory, which is made, and a number of MiB from 16 on");
            process::exit(2);
        }
    };
    if arguments.len() == 3 {
        return large.work_and_die();
    }
    let measured = large.measure();
    fs::remove_dir_all(&large.directory).expect("it was made");
    measured
}
