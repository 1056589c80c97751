//! Power cuts: at every moment of a recorded run, with every damage that a disk may do.
//!
//! A run of the ledger's load is recorded on a fault device: every change that it makes to its
//! directory. Between the changes it is recorded what each client had begun, what was acknowledged,
//! and what a transaction that only read saw of the others. If the recording is cut after any
//! change and unsynced changes are damaged, the result is a directory that a power cut could have
//! left, and its right contents are known. A database opened on it must have these contents, take
//! another transaction, and survive another cut while it does.
//!
//! Everything about an image follows from the run, the cut, the damage and a seed, which a failure
//! prints. The run itself has threads, so its recording is not the same each time.

use crate::{
    ledger::{Contents, Expectation, Expectations, Number, Scale, check, is_abandoned, mix},
    load,
    victim::{Honesty, durability, options},
};
use foxton::{Database, Durability, Options};
use foxton_log::device::{
    Device,
    disk::{Damage, Disk},
    fault::{FaultDevice, Recording},
};
use std::{fmt, sync::Arc, thread};

/// A transaction of a recorded run.
#[derive(Debug, Clone, Copy)]
struct Moment {
    client: u32,
    n: u64,
    /// Number of changes recorded before it began.
    begun: usize,
    /// Number of changes recorded when it was acknowledged.
    acknowledged: usize,
}

/// The result of a transaction that only read, after its commit was acknowledged.
#[derive(Debug)]
struct Sight {
    /// Number of changes recorded when it was acknowledged.
    acknowledged: usize,
    /// The last transaction of each client.
    seen: Vec<Number>,
}

/// A recorded run.
#[derive(Debug)]
pub struct Run {
    seed: u64,
    scale: Scale,
    recording: Recording,
    /// Number of changes recorded when the load was acknowledged.
    loaded: usize,
    moments: Vec<Moment>,
    sights: Vec<Sight>,
}

/// An image with wrong contents.
#[derive(Debug)]
pub struct Failure {
    /// Seed of the run.
    pub run: u64,
    /// After how many changes it was cut, of how many.
    pub cut: (usize, usize),
    /// Damage to unsynced changes.
    pub damage: Damage,
    /// Seed of the damage.
    pub seed: u64,
    /// The second cut, if the first image was right.
    pub again: Option<(usize, Damage)>,
    /// Description of the faults.
    pub faults: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            run,
            cut: (cut, all),
            damage,
            seed,
            again,
            ..
        } = self;
        write!(
            f,
            "run {run}, cut after {cut} of {all} changes, {damage}, seed {seed}"
        )?;
        if let Some((cut, damage)) = again {
            write!(f, ", opened and cut again after {cut}, {damage}")?;
        }
        self.faults
            .iter()
            .try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

/// Number of images, by how they were made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Images opened.
    pub images: u64,
    /// Of these, second cuts.
    pub again: u64,
    /// Images that were refused as damaged, where that is right.
    pub refused: u64,
}

/// A client that no run has: it writes to images that were found right.
const AFTER: u32 = u32::MAX;

/// An image that was opened and found right.
struct Found {
    contents: Contents,
    /// Number of changes made until it was open.
    opened: usize,
    /// Number of changes made until one more transaction was acknowledged.
    acknowledged: usize,
}

/// Opens a database on `device`, with options drawn from `seed`.
///
/// # Errors
///
/// Any error of the database.
pub fn open(device: impl Device + 'static, seed: u64) -> foxton::Result<Database> {
    Database::open_on(Arc::new(device), options(seed))
}

/// Records `clients` clients, each of which runs `count` transactions.
///
/// # Errors
///
/// Any error of the database.
pub fn record(seed: u64, clients: u32, count: u64, honesty: Honesty) -> foxton::Result<Run> {
    let before = |device| -> Arc<dyn Device> { Arc::new(device) };
    record_on(before, options(seed), seed, clients, count, honesty)
}

/// As [`record`], on a device that is in front of the recording one, with other options.
///
/// # Errors
///
/// Any error of the database.
pub fn record_on(
    before: impl FnOnce(FaultDevice) -> Arc<dyn Device>,
    options: Options,
    seed: u64,
    clients: u32,
    count: u64,
    honesty: Honesty,
) -> foxton::Result<Run> {
    let scale = Scale::SMALL;
    let device = FaultDevice::new();
    device.record();
    let db = Database::open_on(before(device.clone()), options)?;
    load::load(&db, scale)?;
    let loaded = device.recorded();
    let run = |client| {
        let mut sights = Vec::new();
        let moments = (1..=count).map(|n| {
            let begun = device.recorded();
            load::run(&db, seed, (client, n), scale, durability(client))?;
            let acknowledged = match honesty {
                Honesty::Honest | Honesty::Unsynced => device.recorded(),
                Honesty::Early => begun,
            };
            let seen = load::last_of_each(&db)?;
            let shown = device.recorded();
            sights.push(Sight {
                acknowledged: shown,
                seen,
            });
            Ok(Moment {
                client,
                n,
                begun,
                acknowledged,
            })
        });
        let moments = moments.collect::<foxton::Result<Vec<_>>>()?;
        foxton::Result::Ok((moments, sights))
    };
    let done = thread::scope(|scope| {
        let run = &run;
        let clients: Vec<_> = (0..clients)
            .map(|client| scope.spawn(move || run(client)))
            .collect();
        let done = clients
            .into_iter()
            .map(|client| client.join().expect("a client panicked"));
        done.collect::<foxton::Result<Vec<_>>>()
    })?;
    let (moments, sights): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    drop(db);
    let recording = device.recording().expect("it was recording");
    Ok(Run {
        seed,
        scale,
        recording,
        loaded,
        moments: moments.concat(),
        sights: sights.into_iter().flatten().collect(),
    })
}

impl Run {
    /// Number of changes that were recorded.
    pub fn changes(&self) -> usize {
        self.recording.len()
    }

    /// Returns what must be, and may be, in an image cut after `cut` changes.
    fn expected(&self, cut: usize) -> Expectations {
        let mut expected = Expectations {
            loaded: self.loaded <= cut,
            ..Expectations::default()
        };
        for moment in self.moments.iter().filter(|moment| !is_abandoned(moment.n)) {
            let client: &mut Expectation = expected.clients.entry(moment.client).or_default();
            let sync = durability(moment.client) == Durability::Sync;
            if sync && moment.acknowledged <= cut {
                client.must.insert(moment.n);
            } else if moment.begun < cut {
                client.may.insert(moment.n);
            }
        }
        // A commit that an acknowledged reader saw must not be lost.
        let shown = self.sights.iter().filter(|sight| sight.acknowledged <= cut);
        for &(number, n) in shown.flat_map(|sight| &sight.seen) {
            let client = expected.clients.entry(number).or_default();
            if durability(number) == Durability::Sync && client.may.remove(&n) {
                client.must.insert(n);
            }
        }
        expected
    }

    /// Cuts the run after every `step`-th change, with every damage, and each of these images once
    /// more while it is opened.
    ///
    /// # Errors
    ///
    /// The first image with wrong contents.
    pub fn cut_everywhere(&self, step: usize, seed: u64) -> Result<Tally, Box<Failure>> {
        let mut tally = Tally::default();
        for (cut, disk) in self.recording.disks().enumerate().step_by(step) {
            for damage in Damage::ALL {
                let seed = mix(seed ^ mix(cut as u64));
                self.cut(&disk, cut, damage, seed, &mut tally)?;
            }
        }
        Ok(tally)
    }

    /// Cuts here, opens, checks, and cuts again.
    fn cut(
        &self,
        disk: &Disk,
        cut: usize,
        damage: Damage,
        seed: u64,
        tally: &mut Tally,
    ) -> Result<(), Box<Failure>> {
        let failure = |again, faults| {
            let cut = (cut, self.changes());
            Box::new(Failure {
                run: self.seed,
                cut,
                damage,
                seed,
                again,
                faults,
            })
        };
        let mut expected = self.expected(cut);
        if damage.harms_durable() {
            // The last durable bytes may be gone without a trace. They must not be wrong.
            expected.promise_nothing();
        }
        let device = FaultDevice::holding(&disk.crash(damage, seed));
        device.record();
        tally.images += 1;
        let found = self
            .find(&device, &expected)
            .map_err(|faults| failure(None, faults))?;
        let Some(found) = found else {
            // Durable bytes may be damaged; the only right answer is to report it.
            tally.refused += 1;
            let faults = vec!["it was refused as damaged, although it is not".to_owned()];
            return if damage.harms_durable() {
                Ok(())
            } else {
                Err(failure(None, faults))
            };
        };
        if damage.harms_durable() {
            return Ok(());
        }
        let recording = device.recording().expect("it was recording");
        let second = mix(seed) as usize % (recording.len() + 1);
        let mild = Damage::ALL
            .into_iter()
            .filter(|damage| !damage.harms_durable());
        let mild: Vec<Damage> = mild.collect();
        let again = mild[mix(seed ^ 1) as usize % mild.len()];
        if second >= found.opened {
            // After the opening, everything found has to stay.
            expected.settle(&found.contents);
        }
        let last = expected.clients.entry(AFTER).or_default();
        let promised = second >= found.acknowledged;
        if promised {
            &mut last.must
        } else {
            &mut last.may
        }
        .insert(1);

        let disk = recording
            .disks()
            .nth(second)
            .expect("a cut within the recording");
        let device = FaultDevice::holding(&disk.crash(again, mix(seed ^ 2)));
        tally.images += 1;
        tally.again += 1;
        let again = Some((second, again));
        match self.find(&device, &expected) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(failure(again, vec!["it was refused as damaged".to_owned()])),
            Err(faults) => Err(failure(again, faults)),
        }
    }

    /// Opens, reads, checks, and runs one more transaction. `None` if the database was refused as
    /// damaged.
    fn find(
        &self,
        device: &FaultDevice,
        expected: &Expectations,
    ) -> Result<Option<Found>, Vec<String>> {
        let told = |doing: &'static str| {
            move |error: foxton::Error| vec![format!("{doing}: {} ({error})", error.code())]
        };
        let db = match open(device.clone(), self.seed) {
            Ok(db) => db,
            Err(error) if error.code() == "damaged" => return Ok(None),
            Err(error) => return Err(told("opening")(error)),
        };
        let opened = device.recorded();
        let contents = match load::read(&db) {
            Ok(contents) => contents,
            // Pages are read, and found damaged, when they are needed.
            Err(error) if error.code() == "damaged" => return Ok(None),
            Err(error) => return Err(told("reading")(error)),
        };
        check(self.seed, self.scale, expected, &contents)?;
        if contents.history.keys().any(|&(client, _)| client == AFTER) {
            return Ok(Some(Found {
                contents,
                opened,
                acknowledged: opened,
            }));
        }
        load::load(&db, self.scale).map_err(told("loading"))?;
        load::run(&db, self.seed, (AFTER, 1), self.scale, Durability::Sync)
            .map_err(told("writing"))?;
        let acknowledged = device.recorded();
        Ok(Some(Found {
            contents,
            opened,
            acknowledged,
        }))
    }
}
