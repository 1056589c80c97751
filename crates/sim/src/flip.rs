//! Damage at rest: bytes that were stored safely and have changed since.
//!
//! A database is filled and its files are kept. Then they are damaged, in one way at a time, and
//! opened. Either opening refuses them and reports damage, or everything is there. Wrong data, a
//! panic, or no answer are errors.
//!
//! The end of a log that was not closed is an exception: a bad record there may be one that a power
//! cut tore. So such a log may come back shorter, whole up to some commit. A log that was closed
//! must not.

use crate::{
    ledger::{Contents, Expectation, Expectations, Number, Scale, check, is_abandoned, mix},
    load,
    victim::{self, FRAMES, set_small_pages},
};
use foxton::{Database, Durability, Options, TableComponent};
use foxton_log::device::memory::MemoryDevice;
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// Kind of damage to the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// One bit is inverted.
    Bit,
    /// One byte becomes another.
    Byte,
    /// A sector of 512 bytes becomes zeros.
    Zeroed,
    /// Two sectors are swapped, within a file or between two.
    Swapped,
    /// A file loses its end.
    Truncated,
    /// A file is replaced by that of another database.
    Foreign,
    /// A file is replaced by an earlier state of itself.
    Stale,
}

impl Harm {
    /// All kinds.
    pub const ALL: [Harm; 7] = [
        Harm::Bit,
        Harm::Byte,
        Harm::Zeroed,
        Harm::Swapped,
        Harm::Truncated,
        Harm::Foreign,
        Harm::Stale,
    ];
}

/// Result of opening a damaged database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It was refused.
    Refused,
    /// Everything is there.
    Whole,
    /// The end is missing, where that is allowed.
    Shorter,
}

/// A wrong result.
#[derive(Debug)]
pub struct Failure {
    /// The damage.
    pub harm: Harm,
    /// Its seed.
    pub seed: u64,
    /// The result.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { harm, seed, what } = self;
        write!(f, "{harm:?}, seed {seed}: {what}")
    }
}

type Files = Vec<(String, Vec<u8>)>;

/// A database whose files will be damaged.
#[derive(Debug)]
pub struct Original {
    seed: u64,
    component: TableComponent,
    closed: bool,
    files: Files,
    /// File and offset of each sector that is not zeros, as space for later pages is.
    sectors: Vec<(usize, usize)>,
    stale: Files,
    foreign: Files,
    contents: Contents,
    /// Expected contents of a database that came back shorter.
    shorter: Expectations,
}

/// Error codes that name damage.
const CODES: [&str; 4] = ["damaged", "foreign", "future_format", "not_a_database"];
const SECTOR: usize = 512;
const CLIENT: u32 = 0;

impl Original {
    /// Fills a database whose tables are of `component` with `count` transactions, and closes it or
    /// not. Its pages are small, and few of them fit into memory.
    ///
    /// # Errors
    ///
    /// Any error of the database.
    pub fn new(
        seed: u64,
        count: u64,
        closed: bool,
        component: TableComponent,
    ) -> foxton::Result<Original> {
        let device = Arc::new(MemoryDevice::new());
        let db = Database::open_on(device.clone(), options(seed, component))?;
        load::load(&db, Scale::SMALL)?;
        let mut stale = Vec::new();
        for n in 1..=count {
            if n == count / 2 {
                stale = files(&device);
            }
            load::run(&db, seed, (CLIENT, n), Scale::SMALL, Durability::Sync)?;
        }
        let contents = load::read(&db)?;
        let abandoned = files(&device);
        drop(db);
        let files = if closed { files(&device) } else { abandoned };
        let foreign = if count > 0 {
            Original::new(mix(seed), 0, closed, component)?.files
        } else {
            Vec::new()
        };
        let numbers = (1..=count).filter(|&n| !is_abandoned(n));
        let client = Expectation {
            may: numbers.collect(),
            ..Expectation::default()
        };
        let shorter = Expectations {
            loaded: false,
            clients: [(CLIENT, client)].into(),
        };
        let mut sectors = Vec::new();
        for (file, (_, bytes)) in files.iter().enumerate() {
            let used = bytes.chunks(SECTOR).enumerate();
            let used = used.filter(|(_, sector)| sector.iter().any(|byte| *byte != 0));
            sectors.extend(used.map(|(index, _)| (file, index * SECTOR)));
        }
        Ok(Original {
            seed,
            component,
            closed,
            files,
            sectors,
            stale,
            foreign,
            contents,
            shorter,
        })
    }

    /// Number of bytes in its files.
    pub fn bytes(&self) -> usize {
        self.files.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// Damages the files as `seed` says, opens the result and reads it.
    ///
    /// # Errors
    ///
    /// Wrong data, an error that does not name the damage, or a panic.
    pub fn harm(&self, harm: Harm, seed: u64) -> Result<Answer, Failure> {
        let files = self.harmed(harm, seed);
        let answer = catch_unwind(AssertUnwindSafe(|| self.answer(files)));
        let answer = answer.unwrap_or_else(|_| Err("it panicked".to_owned()));
        answer.map_err(|what| Failure { harm, seed, what })
    }

    fn answer(&self, files: Files) -> Result<Answer, String> {
        let files = files.into_iter();
        let device = MemoryDevice::with_files(files.map(|(name, bytes)| (name, bytes.into())));
        let told = |error: foxton::Error| format!("{} ({error})", error.code());
        let db = match Database::open_on(Arc::new(device), options(self.seed, self.component)) {
            Ok(db) => db,
            Err(error) if CODES.contains(&error.code()) => return Ok(Answer::Refused),
            Err(error) => return Err(told(error)),
        };
        let found = match load::read(&db) {
            Ok(found) => found,
            // Pages are read when they are needed, and the error names the one that is damaged.
            Err(error) if error.code() == "damaged" && names_page(&error) => {
                return Ok(Answer::Refused);
            }
            Err(error) => return Err(told(error)),
        };
        if found == self.contents {
            return Ok(Answer::Whole);
        }
        if self.closed {
            let lost = |number: &&Number| !found.history.contains_key(number);
            let lost = self.contents.history.keys().filter(lost).count();
            return Err(format!("its contents have changed: {lost} commits lost"));
        }
        check(self.seed, Scale::SMALL, &self.shorter, &found)
            .map_err(|faults| faults.join("; "))?;
        Ok(Answer::Shorter)
    }

    fn harmed(&self, harm: Harm, seed: u64) -> Files {
        let mut files = self.files.clone();
        let draw = |what: u64, count: usize| mix(mix(seed) ^ what) as usize % count.max(1);
        // One of all sectors, so that a small file is not hit as often as a large one.
        let (file, begin) = self.sectors[draw(1, self.sectors.len())];
        let length = SECTOR.min(files[file].1.len() - begin);
        let place = begin + draw(4, length);
        match harm {
            Harm::Bit => files[file].1[place] ^= 1 << draw(2, 8),
            Harm::Byte => files[file].1[place] ^= 1 + draw(2, 255) as u8,
            Harm::Zeroed => sector(&mut files[file].1, place).fill(0),
            Harm::Truncated => files[file].1.truncate(place),
            Harm::Swapped => {
                let other = draw(2, files.len());
                let other_place = draw(3, files[other].1.len());
                let mut one = sector(&mut files[file].1, place).to_vec();
                let two = sector(&mut files[other].1, other_place);
                let both = one.len().min(two.len());
                one[..both].swap_with_slice(&mut two[..both]);
                let here = sector(&mut files[file].1, place);
                here[..both].copy_from_slice(&one[..both]);
            }
            Harm::Foreign | Harm::Stale => {
                let others = if harm == Harm::Stale {
                    &self.stale
                } else {
                    &self.foreign
                };
                let name = files[draw(2, files.len())].0.clone();
                let other = others.iter().find(|(other, _)| *other == name);
                match (other, files.iter_mut().find(|(own, _)| *own == name)) {
                    (Some((_, bytes)), Some(own)) => own.1.clone_from(bytes),
                    // It did not exist then.
                    _ => files.retain(|(own, _)| *own != name),
                }
            }
        }
        files
    }
}

/// Returns the options of a database whose tables are of `component`.
fn options(seed: u64, component: TableComponent) -> Options {
    let mut options = victim::options(seed);
    options.component = component;
    set_small_pages(&mut options, FRAMES);
    options
}

/// True if an error names the page file and a page.
fn names_page(error: &foxton::Error) -> bool {
    let text = error.to_string();
    text.contains("rows: page ")
}

/// Returns the sector around `place`.
fn sector(bytes: &mut [u8], place: usize) -> &mut [u8] {
    let begin = place / SECTOR * SECTOR;
    let end = (begin + SECTOR).min(bytes.len());
    &mut bytes[begin..end]
}

/// Returns the files as they are now, up to the last byte that was ever written.
fn files(device: &MemoryDevice) -> Files {
    let bytes = |contents: foxton_log::device::memory::Contents| {
        let mut bytes = vec![0; contents.written()];
        contents.read(&mut bytes, 0);
        bytes
    };
    let files = device.files().into_iter();
    files
        .map(|(name, contents)| (name, bytes(contents)))
        .collect()
}
